"""Plausible: what is shown could have followed from what was shown before, by a model of the dynamics."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.core.budgets.plausible_transitions import LastShown, Plausible, action_vectors
from adv_wrappers.core.budgets.temporal_coupling import Coupled, LastChange
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError, CardError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from adv_wrappers.victims.auxiliary_networks import Dynamics, TransitionModel
from tests.every_case import every_case
from tests.laws import checks
from tests.rigs import RIGS

EPS, DISTANCE = 0.1, 3.0
VICTIM = "zoo:cartpole-dqn"
STD = (0.01, 0.1, 0.01, 0.15)


def model(n: int, k: int, std: Any, seed: int = 0, scale: float = 0.02) -> Dynamics:
    """A model that predicts little change, and whose errors have these standard deviations."""
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(n + k, 8), torch.nn.ReLU(), torch.nn.Linear(8, n + 1))
    torch.random.set_rng_state(state)
    net[-1].weight.data.mul_(scale)
    net[-1].bias.data.mul_(scale)
    widths = {"obs": n, "act": k, "change": n + 1}
    statistics = {name: (torch.zeros(width), torch.ones(width)) for name, width in widths.items()}
    network = {"features": n, "actions": k}
    card = {"network": network, "errors": {"victim": {"one_step": [float(each) ** 2 for each in std]}}}
    return Dynamics.of(TransitionModel([net], **statistics), card)


MODEL = model(4, 2, STD)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("model")
    MODEL.save(where)
    return where


def predicted(shown: np.ndarray, action: int) -> np.ndarray:
    acted = action_vectors(action, gym.spaces.Discrete(2))
    return MODEL.step(torch.as_tensor(shown, dtype=torch.float64)[None], acted)[0].numpy()


def played(threat: Any, steps: int = 25, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """What is true, what is shown, and the action before it, at every step of an episode of CartPole."""
    env: Any = adv.wrap(gym.make("CartPole-v1"), threat)
    obs, _ = env.reset(seed=seed)
    found = [(np.asarray(env.engine.true), obs, -1)]
    for t in range(steps):
        obs, _, terminated, _, _ = env.step(action := (t // 2) % 2)
        found.append((np.asarray(env.engine.true), obs, action))
        if terminated:
            break
    env.close()
    return found


def threat(attack: str, distance: float = DISTANCE, **more: Any) -> ThreatModel:
    return adv.threat(attack, eps=EPS, plausible=distance, model=MODEL, **more)


def test_what_a_model_says_of_its_errors_is_the_unit() -> None:
    np.testing.assert_allclose(MODEL.error_std, STD, rtol=1e-6)
    with pytest.raises(CardError, match="has no errors"):
        _ = Dynamics.of(MODEL.net, {}).error_std


@pytest.mark.parametrize("attack", ["flip", "pgd", "square"])
def test_what_is_shown_is_near_the_prediction_from_what_was_shown(attack: str) -> None:
    victim = {} if attack in ("noise", "flip") else {"victim": VICTIM}
    steps = played(threat(attack, **victim, **({"queries": 20} if attack == "square" else {})))
    away, reach = 0, DISTANCE * np.array(STD)
    assert len(steps) > 5
    for (_, before, _), (true, shown, action) in itertools.pairwise(steps):
        expected = predicted(before, action)
        assert (np.abs(shown - true) <= EPS * (1 + 1e-6)).all()
        low, high = expected - reach, expected + reach
        # where the two boxes do not meet, the point of the budget that is nearest to the prediction
        nearest = np.clip(np.clip(expected, low, high), true - EPS, true + EPS)
        possible = (low <= true + EPS) & (high >= true - EPS)
        away += int((~possible).sum())
        assert ((shown >= low - 1e-6) & (shown <= high + 1e-6))[possible].all()
        assert (np.abs(shown - nearest)[~possible] <= EPS * 1e-5).all()
    assert away < len(steps), "most of the time something plausible is within the budget"
    first_true, first_shown, _ = steps[0]
    assert np.abs(first_shown - first_true).max() > 0, "the first observation is free"


@pytest.mark.parametrize("attack", ["noise", "flip"])
def test_any_distance_is_the_budget_itself_to_the_bit(attack: str) -> None:
    both = [played(threat(attack, 1e9)), played(f"{attack}:eps={EPS}")]
    assert [shown.tobytes() for _, shown, _ in both[0]] == [shown.tobytes() for _, shown, _ in both[1]]


def test_no_eps_is_the_identity_to_the_bit() -> None:
    for true, shown, _ in played(adv.threat("noise", eps=0, plausible=0, model=MODEL)):
        assert shown.tobytes() == true.tobytes()


def test_a_step_that_is_not_attacked_shows_the_truth_and_the_next_is_predicted_from_that() -> None:
    steps = played(threat("flip", when="every(3)"))
    for i, (true, shown, action) in enumerate(steps[1:], 1):
        if i % 3:
            assert shown.tobytes() == true.tobytes()
        else:
            expected = predicted(steps[i - 1][0], action)
            near = np.clip(expected, true - EPS, true + EPS)
            assert (np.abs(shown - near) <= DISTANCE * np.array(STD) + 1e-6).all()


def test_a_share_of_the_budget_keeps_what_was_shown_last() -> None:
    env: Any = adv.wrap(gym.make("CartPole-v1"), threat("flip"))
    before, _ = env.reset(seed=0)
    env.set_budget_share(0.9)
    obs, *_ = env.step(0)
    near = np.clip(predicted(before, 0), env.engine.true - 0.9 * EPS, env.engine.true + 0.9 * EPS)
    assert (np.abs(obs - near) <= DISTANCE * np.array(STD) + 1e-6).all()


def test_a_prediction_that_is_not_finite_allows_the_truth() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 5))
    net[0].bias.data.fill_(float("inf"))
    widths = {"obs": 4, "act": 2, "change": 5}
    statistics = {name: (torch.zeros(width), torch.ones(width)) for name, width in widths.items()}
    broken = Dynamics.of(TransitionModel([net], **statistics), MODEL.card)
    for true, shown, _ in played(adv.threat("noise", eps=EPS, plausible=0, model=broken))[1:]:
        np.testing.assert_array_equal(shown, true)


def test_actions_as_a_model_takes_them() -> None:
    discrete, box = gym.spaces.Discrete(3, start=1), gym.spaces.Box(-1, 1, (2,))
    assert action_vectors(np.int64(2), discrete).tolist() == [[0, 1, 0]]
    assert action_vectors(torch.tensor([1, 3]), discrete).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert action_vectors(np.array([0.5, -1], np.float32), box).tolist() == [[0.5, -1]]


def test_texts_dictionaries_and_reports(folder: Path) -> None:
    text = f"pgd:eps=0.1,plausible=3,model=card:{folder},when=every(2)"
    made = parse_threat(text)
    assert made.budget == Plausible(adv.Linf(0.1), Dynamics(str(folder)), 3)
    assert text_of(made) == text and parse_threat(text_of(made)).budget == made.budget
    assert ThreatModel.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    report = adv.evaluate(VICTIM, "CartPole-v1", [text], 2, env_kwargs={"max_episode_steps": 20})
    assert report.threats[1]["threat"] == text


@every_case(
    ("make", "words"),
    [
        (lambda: Plausible(adv.L2(1.0), MODEL, 1), "needs an Linf"),
        (lambda: Plausible(adv.Linf(1), "a", 1), "a model"),
        (lambda: Plausible(adv.Linf(1.0), MODEL, -1), "distance"),
        (lambda: parse_threat("noise:eps=1,plausible=3"), "go together"),
        (lambda: adv.wrap(gym.make("CartPole-v1"), threat("noise", scale=(1, 1, 1))), "numbers for a space"),
        (lambda: adv.wrap(gym.make("MountainCar-v0"), threat("noise")), "observations of 4 floats"),
        (lambda: adv.wrap(gym.make("Acrobot-v1"), adv.threat("noise", eps=1, plausible=1, model=model(6, 2, [1] * 6))),
         "actions of 2 numbers"),
        (lambda: adv.wrap(gym.make("Pendulum-v1"), threat("action-noise", scale=(1,))), "a space of shape"),
        (lambda: adv.wrap(gym.make("MountainCarContinuous-v0"),
                          adv.threat("action-noise", eps=1, plausible=1, model=model(1, 1, [1]))), "for observations"),
        (lambda: adv.Newest(Plausible(adv.Linf(1), MODEL, 1)), "Newest needs the budget of a frame"),
    ],
)  # fmt: skip
def test_bad_budgets_are_named(make: Any, words: str) -> None:
    with pytest.raises(BudgetError, match=words):
        make()


def test_the_memory_of_another_budget_is_not_taken() -> None:
    other = LastChange(Coupled(adv.Linf(1.0), 0.1))
    other.remember(torch.zeros(1, 4), torch.ones(1, 4))
    assert LastShown(Plausible(adv.Linf(1.0), MODEL, 1), other).leaves is None


@dataclass(frozen=True)
class PlausibleCase(checks.Case):
    """A preset under which what is shown must be plausible."""

    def budget(self, name: str, eps: float | None = None) -> dict[str, Any]:
        found = super().budget(name, eps)
        if name != "linf":
            return found
        k = self.rig.actions.n if isinstance(self.rig.actions, gym.spaces.Discrete) else len(self.rig.actions.low)
        size = self.rig.space.shape[0]
        return {**found, "plausible": 2, "model": saved(size, int(k), 0.1 * found["eps"])}


_saved: dict[Any, str] = {}


def saved(n: int, k: int, std: float) -> str:
    if (n, k, std) not in _saved:
        _saved[n, k, std] = tempfile.mkdtemp(prefix="plausible-")
        model(n, k, [std] * n).save(_saved[n, k, std])
    return f"card:{_saved[n, k, std]}"


@pytest.mark.parametrize(("preset", "rig", "kind"), [("fgsm", "q", "same"), ("noise", "gaussian", "tensor")])
def test_the_laws_of_all_threats_hold(preset: str, rig: str, kind: str) -> None:
    case = PlausibleCase(preset, RIGS[rig])
    assert isinstance(case.threat("linf").budget, Plausible)
    checks.check_vector(case, kind)
    checks.check_budget(case, "linf", kind)
    checks.check_identity(case, kind)
    checks.check_seeds(case, kind)
    checks.check_round_trip(case)
    checks.check_text(case)
