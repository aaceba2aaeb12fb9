"""Law 1: the output lies in the budget and in the (widened) space; integer outputs lie on the integer grid."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.errors import SpaceError
from tests.laws.checks import BUDGETS, Case, cases, check_budget, fitting, of_each_sort
from tests.rigs import RIGS

BUDGETED = [(case, fitting(case)[turn % len(fitting(case))]) for turn, case in enumerate(cases())]
ALL_BUDGETS = [(case, name) for case in of_each_sort() for name in fitting(case) if (case, name) not in BUDGETED]


@pytest.mark.parametrize(("case", "budget"), BUDGETED + ALL_BUDGETS, ids=str)
def test_single(case, budget):
    check_budget(case, budget)


@pytest.mark.parametrize("case", of_each_sort(), ids=str)
def test_vectors(case):
    check_budget(case, fitting(case)[0], "next")


def _push(x, context):
    return x + torch.where(torch.arange(x[0].numel()).view(x.shape[1:]) % 2 == 0, 1e4, -1e4)


def _in_place(x, context):
    """A careless function, that writes into what it was given."""
    x.add_(1e4)
    context.low.sub_(1e4)
    context.high.add_(1e4)
    return x


@pytest.mark.parametrize("how", [_push, _in_place])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("rig", ["q", "mean", "image", "dict"])
def test_no_function_is_trusted(rig, budget, how):
    """Whatever comes back is projected: also on unbounded spaces, also if the function wrote into its arguments."""
    check_budget(Case("noise", RIGS[rig]), budget, how=how)


def test_a_preset_without_a_rig_is_an_error(monkeypatch):
    """A preset that no rig fits fails the suite: it cannot slip through untested."""
    from adv_wrappers.threats.presets import Preset
    from tests.laws import checks

    @dataclass(frozen=True)
    class Odd(Perturbation):
        name = "odd-one-out"

        def check(self, field, within):
            raise SpaceError("nothing fits")

    monkeypatch.setitem(adv.presets, "odd-one-out", Preset(Odd))
    with pytest.raises(AssertionError, match="odd-one-out"):
        checks.cases.__wrapped__()
