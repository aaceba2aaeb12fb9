"""Law 14: a victim's answers are finite numbers of the shape that it promised, or the run stops and names it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.core.perturbation import VictimAttack
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.distributions import CategoricalFamily
from tests.laws.checks import broken, by_turns, cases, check_answers, check_runner
from tests.rigs import CARTPOLE, RIGS, TORQUES

VALUES = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize(
    ("case", "value"),
    by_turns([c for c in cases(rigs=1) if issubclass(adv.presets[c.preset].kind, VictimAttack)], VALUES[:2]),
    ids=str,
)
def test_attacks(case, value):
    check_answers(case, value)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("rig", ["q", "mean", "gaussian"])
def test_the_agent_and_the_adversarys_environment(rig, value):
    check_runner(RIGS[rig], value)


@pytest.mark.parametrize("rig", ["logits", "recurrent", "image", "dict", "dict-mean"])
def test_every_form_of_victim(rig):
    check_runner(RIGS[rig], float("nan"))


def test_evaluate_names_the_victim_and_not_the_environment():
    rig = RIGS["gaussian"]
    with pytest.raises(VictimError, match=r"broken.*not finite"):
        adv.evaluate(broken(rig, float("nan")), rig.env, "noise:eps=0.1", episodes=2)


def test_a_standard_deviation_that_overflows_is_the_victims():
    victim = adv.from_module(
        lambda x: (x[:, :3], torch.full((3,), 200.0)), RIGS["gaussian"].space, TORQUES, select="sample", ref="broken"
    )
    with pytest.raises(VictimError, match=r"broken.*acts with"):
        adv.evaluate(victim, RIGS["gaussian"].env, (), episodes=2)


class Masked(nn.Module):
    """Logits of which some are ruled out where the first feature is positive, and all where it is above 100."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.stack([x[:, 0], 0.1 * x[:, 1], -x[:, 0]], 1)
        out = torch.where(torch.stack([x[:, 0] * 0, x[:, 0], x[:, 0]], 1) > 0, -torch.inf, out)
        return torch.where(x[:, :1] > 100, -torch.inf, out)


def test_logits_may_rule_choices_out_but_not_all():
    victim = adv.from_module(Masked(), CARTPOLE, adv_spaces(), "logits", ref="masked")
    x = torch.tensor([[1.0, 0, 0, 0], [-1.0, 2.0, 0, 0]])
    victim.check_params(victim.params(x), 2)
    assert victim.act_on(x.numpy()).tolist() == [0, 2]
    x[0, 0] = 200.0
    with pytest.raises(VictimError, match=r"masked.*not finite.*row 0"):
        victim.check_params(victim.params(x))
    values = adv.from_module(Masked(), CARTPOLE, adv_spaces(), "q")
    with pytest.raises(VictimError, match="not finite"):
        values.check_params(values.params(x[:1] * 0.01))
    assert CategoricalFamily().possible(torch.tensor([[0.0, -torch.inf], [torch.nan, 0.0]]), True).tolist() == [
        True,
        False,
    ]


def test_a_shape_that_was_not_promised():
    victim = adv.from_module(lambda x: x[:, :3] if len(x) == 2 else x, CARTPOLE, adv_spaces(), "logits", ref="broken")
    env = adv.wrap(RIGS["q"].env(), adv.threat("fgsm", victim, eps=0.1))
    with pytest.raises(VictimError, match=r"broken.*must answer with \[1, 3\], got Tensor of shape \(1, 4\)"):
        env.reset(seed=0)


def test_numbers_that_are_large_are_numbers():
    victim = adv.from_module(lambda x: x[:, :3] * 0 + 3e38, CARTPOLE, adv_spaces(), "q")
    assert victim.act_on(np.zeros((2, 4), np.float32)).tolist() == [0, 0]  # their sum is infinite


def adv_spaces():
    return RIGS["q"].actions
