"""The last value that a perturbation remembers of every row."""

from __future__ import annotations

import torch

from adv_wrappers.faults.delays import last_value, no_last_value, remember_value


def test_last_value_of_rows_that_have_one() -> None:
    memory = no_last_value(torch.zeros(3, 2))
    otherwise = torch.tensor([7.0, 8.0])
    assert torch.equal(last_value(memory, otherwise.expand(3, 2)), otherwise.expand(3, 2))

    value = torch.arange(6.0).view(3, 2)
    remember_value(memory, value)
    memory["begun"][1] = False  # a new episode begins in this row
    expected = torch.tensor([[0.0, 1.0], [7.0, 8.0], [4.0, 5.0]])
    assert torch.equal(last_value(memory, otherwise), expected)
    assert torch.equal(last_value(memory, otherwise.expand(3, 2)), expected)


def test_last_value_has_the_dtype_of_the_step() -> None:
    memory = no_last_value(torch.zeros(1, 2, dtype=torch.float64))
    remember_value(memory, torch.tensor([[1.0, 2.0]], dtype=torch.float32))
    assert memory["last"].dtype == torch.float64
    assert last_value(memory, torch.zeros(1, 2)).dtype == torch.float32
