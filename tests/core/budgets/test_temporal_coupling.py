"""Perturbations that are near those of the step before: the set, the projection, every kind of environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.core.budgets.temporal_coupling import Coupled
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from tests.core.helpers import Grey
from tests.every_case import every_case
from tests.laws import checks
from tests.rigs import RIGS

EPS, CHANGE = 0.1, 0.03
VICTIM = "zoo:cartpole-dqn"


def changes(threat: Any, steps: int = 25, seed: int = 0) -> np.ndarray:
    """What a layer changes at every step of an episode of CartPole."""
    env, found = adv.wrap(gym.make("CartPole-v1"), threat), list[Any]()
    layer: Any = env
    obs, _ = env.reset(seed=seed)
    found.append(obs.astype(np.float64) - layer.engine.true)
    for t in range(steps):
        obs, _, terminated, _, _ = env.step((t // 2) % 2)
        found.append(obs.astype(np.float64) - layer.engine.true)
        if terminated:
            break
    return np.stack(found)


@pytest.mark.parametrize("attack", ["noise", "pgd", "square:queries=20", "flip"])
def test_every_attack_stays_near_its_last_change(attack: str) -> None:
    colon = "," if ":" in attack else ":"
    moved = changes(f"{attack}{colon}eps={EPS},change={CHANGE},victim={VICTIM}" if attack not in ("noise", "flip")
                    else f"{attack}:eps={EPS},change={CHANGE}")  # fmt: skip
    assert np.abs(moved).max() <= EPS * (1 + 1e-6) and np.abs(np.diff(moved, axis=0)).max() <= CHANGE + 1e-7
    assert np.abs(moved[0]).max() > CHANGE or attack == "noise", "the first step is free"


@pytest.mark.parametrize("attack", ["noise:", f"fgsm:victim={VICTIM},"])
def test_no_limit_is_the_budget_itself_to_the_bit(attack: str) -> None:
    plain = changes(f"{attack}eps={EPS}").tobytes()
    for change in (2 * EPS, 5.0):
        assert changes(f"{attack}eps={EPS},change={change}").tobytes() == plain


def test_no_change_at_all_is_a_bias() -> None:
    moved = changes(f"noise:eps={EPS},change=0")
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-7)
    assert np.abs(moved[0]).max() > 0


def test_a_step_that_is_not_attacked_changes_nothing_and_the_next_is_near_that() -> None:
    moved = changes(f"flip:eps={EPS},change={CHANGE},when=every(3)")
    assert (moved[[1, 2, 4, 5]] == 0).all() and np.abs(moved[3]).max() <= CHANGE + 1e-7


def test_the_scale_holds_for_both() -> None:
    moved = changes(f"noise:eps={EPS},change={CHANGE},scale=1;2;0;0.5")
    scale = np.array([1, 2, 0, 0.5])
    assert (np.abs(moved) <= EPS * scale + 1e-7).all() and (
        np.abs(np.diff(moved, axis=0)) <= CHANGE * scale + 1e-7
    ).all()


def test_whole_grey_levels() -> None:
    env = adv.wrap(Grey(100, (6, 6)), "noise:eps=20,change=3.5")
    seen = np.stack([env.reset(seed=0)[0], *(env.step(0)[0] for _ in range(20))]).astype(int)
    assert np.abs(seen - 100).max() <= 20 and np.abs(np.diff(seen, axis=0)).max() == 3 and seen.std() > 0
    with pytest.raises(BudgetError, match="grey level"):
        adv.wrap(Grey(100, (6, 6)), "noise:eps=20,change=0.5")


def test_actions_are_coupled_too() -> None:
    env = adv.wrap(gym.make("Pendulum-v1"), "action-noise:kind=bernoulli,eps=0.5,change=0.1")
    layer: Any = env
    env.reset(seed=0)
    moved = []
    for t in range(30):
        action = np.array([np.sin(t / 3)], np.float32)
        env.step(action)
        moved.append(np.asarray(layer.engine.sent, np.float64) - action)
    found = np.array(moved)
    assert np.abs(found).max() <= 0.5 + 1e-6 and np.abs(np.diff(found, axis=0)).max() <= 0.1 + 1e-6


def test_a_share_of_the_budget_keeps_what_was_changed_last() -> None:
    env = adv.wrap(gym.make("CartPole-v1"), f"flip:eps={EPS},change={CHANGE}")
    layer: Any = env
    obs, _ = env.reset(seed=0)
    before = obs.astype(np.float64) - layer.engine.true
    env.set_budget_share(0.9)
    obs, *_ = env.step(0)
    moved = obs.astype(np.float64) - layer.engine.true
    assert np.abs(moved - before).max() <= 0.9 * CHANGE + 1e-7 and np.abs(moved).max() <= 0.9 * EPS + 1e-7


def test_texts_dictionaries_and_ids() -> None:
    threat = parse_threat("pgd:eps=0.1,change=0.03,when=every(2)")
    assert threat.budget == Coupled(adv.Linf(0.1), 0.03)
    assert text_of(threat) == "pgd:eps=0.1,change=0.03,when=every(2)"
    assert parse_threat(text_of(threat)).budget == threat.budget
    assert ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict()))) == threat
    env = gym.make("adv_wrappers:adv/noise-v0", env="CartPole-v1", eps=0.1, change=0.03)
    assert env.get_wrapper_attr("threat").budget == Coupled(adv.Linf(0.1), 0.03)
    report = adv.evaluate(VICTIM, "CartPole-v1", ["pgd:eps=0.2,change=0.05"], 2, env_kwargs={"max_episode_steps": 20})
    assert report.threats[1]["threat"] == "pgd:eps=0.2,change=0.05"


@every_case(
    ("make", "words"),
    [
        (lambda: Coupled(adv.L2(1.0), 0.1), "needs an Linf"), (lambda: Coupled(adv.Linf(1.0), -0.1), "change"),
        (lambda: Coupled(adv.Linf(1.0), float("nan")), "change"), (lambda: Coupled(adv.Linf(1.0), "a"), "change"),
        (lambda: parse_threat("noise:eps=1,norm=l2,change=0.1"), "needs an Linf"),
        (lambda: parse_threat("noise:eps=1,newest=true,change=0.1"), "Newest needs the budget of a frame"),
    ],
)  # fmt: skip
def test_bad_budgets_are_named(make: Any, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        make()


@dataclass(frozen=True)
class CoupledCase(checks.Case):
    """A preset whose budget is coupled."""

    def budget(self, name: str, eps: float | None = None) -> dict[str, Any]:
        found = super().budget(name, eps)
        return {**found, "change": 0.4 * found["eps"]} if name == "linf" else found


@pytest.mark.parametrize(
    ("preset", "rig", "kind"),
    [("fgsm", "q", "same"), ("noise", "image", "tensor"), ("noise", "dict", "next")],
)
def test_the_laws_of_all_threats_hold(preset: str, rig: str, kind: str) -> None:
    case = CoupledCase(preset, RIGS[rig])
    assert isinstance(case.threat("linf").budget, Coupled)
    checks.check_vector(case, kind)
    checks.check_budget(case, "linf", kind)
    checks.check_round_trip(case)
