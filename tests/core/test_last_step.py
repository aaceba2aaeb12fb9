"""What a layer keeps of its last step: row by row, and until their episodes end."""

from __future__ import annotations

import torch
from torch import Tensor

import adv_wrappers as adv
from adv_wrappers.core.budgets.budget import LastStep, nearest_part


class Shown(LastStep):
    def after(self, true: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        return (shown,)


def test_rows_are_kept_and_forgotten_by_themselves() -> None:
    memory = Shown()
    memory.remember(torch.zeros(3, 2), torch.ones(3, 2), torch.tensor([True, False, True]))
    assert memory.leaves is not None
    assert memory.leaves[0].tolist() == [[1, 1], [0, 0], [1, 1]] and memory.leaves[1].tolist() == [True, False, True]
    memory.remember(torch.zeros(3, 2), torch.full((3, 2), 2.0), torch.tensor([False, True, False]))
    assert memory.leaves[0].tolist() == [[1, 1], [2, 2], [1, 1]] and memory.leaves[1].all()
    memory.forget(torch.tensor([True, False, False]))
    assert memory.leaves[1].tolist() == [False, True, True]
    assert Shown(memory).leaves is memory.leaves and LastStep(memory).leaves is None
    memory.forget()
    assert memory.leaves is None
    memory.forget(torch.tensor([True]))


def test_where_boxes_do_not_meet_the_nearest_side_is_taken() -> None:
    box, known = (torch.zeros(3, 1), torch.ones(3, 1)), torch.tensor([True, True, False])
    near = torch.tensor([[0.2], [1.5], [1.5]]), torch.tensor([[0.4], [2.0], [2.0]])
    low, high = nearest_part(near, box, known)
    torch.testing.assert_close(low, torch.tensor([[0.2], [1.0], [0.0]]))
    torch.testing.assert_close(high, torch.tensor([[0.4], [1.0], [1.0]]))


def test_budgets_of_a_single_step_keep_nothing() -> None:
    assert all(budget.last_step(None) is None for budget in (adv.Linf(1), adv.L2(1), adv.L0(1), adv.Valid()))
