"""resilience and robustness: what is measured, what a folder keeps of it, and what is refused."""

from __future__ import annotations

import json
import shutil
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.core.timing import And
from adv_wrappers.errors import BudgetError, SnapshotError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.searches.fewest_perturbations import fewest_perturbations
from adv_wrappers.training.resilience import resilience as measurement_module
from tests import rigs  # noqa: F401 - registers tests/Short-v0
from tests.evaluation.agents import balancing, short
from tests.every_case import every_case
from tests.training.toys import Stopped

pytest.importorskip("stable_baselines3")


from adv_wrappers.training.resilience.resilience import resilience, robustness, worst_action_of

# its environments and agents are functions, which folders cannot tell apart
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot tell a victim that is a function:RuntimeWarning")

SHORT = "tests/Short-v0"  # CartPole of 30 steps
DQN = "zoo:cartpole-dqn"
QUICK: dict[str, Any] = {
    "steps": 128, "episodes": 5, "checks": 2, "check_episodes": 3, "num_envs": 4, "n_steps": 16, "batch_size": 32,
    "n_epochs": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A measurement, its folder, and what it reported."""
    out, seen = tmp_path_factory.mktemp("measured") / "out", []
    found = resilience(
        DQN,
        SHORT,
        2.0,
        transfer="zoo:cartpole-ppo",
        by="policy",
        out=out,
        progress=lambda *at: seen.append(at),
        **QUICK,
    )
    return found, out, seen


def test_it_agrees_with_an_evaluation(finished: Any) -> None:
    found, out, _ = finished
    report = adv.evaluate(DQN, SHORT, [found.adversary, f"learned:card={out / 'adversary'}"], episodes=5, seed=0)
    clean, *attacked = report.threats
    assert found.clean_returns.tolist() == clean["returns"] and found.r_max == max(clean["returns"]) == 30
    assert found.episode_seeds == report.episode_seeds
    for row in attacked:
        assert found.returns.tolist() == row["returns"] and found.test.lengths.tolist() == row["lengths"]
        shares = found.test.perturbations / found.test.lengths
        assert shares.tolist() == row["attacked_fractions"]
        assert found.mean_regret == pytest.approx(30 - row["mean_return"])
    assert found.adversary.observe == "state+action"


def test_the_histogram_has_every_perturbation_once(finished: Any) -> None:
    found = finished[0]
    assert found.histogram.sum() == found.test.perturbations.sum() > 0
    assert len(found.histogram) == found.test.lengths.max() and found.histogram.max() <= 5


def test_what_the_training_was(finished: Any) -> None:
    found, _, seen = finished
    assert len(found.training) > 5 and (found.training.lengths == found.training.returns).all()
    assert (found.training.perturbations <= found.training.lengths).all()
    assert found.training.returns.min() == 30 - found.max_regret
    assert (found.training.costs == 2 * found.training.perturbations).all()
    assert found.steps == 128 and found.seconds > 0
    assert seen[0] == ("clean episodes", 0, 5) and ("training", 64, 128) in seen and ("test", 5, 5) in seen


def test_another_victim_is_attacked_by_the_same_adversary(finished: Any) -> None:
    found = finished[0]
    (row,) = found.transfer
    assert row.victim["ref"] == "zoo:cartpole-ppo" and len(row.test) == 5 and row.test.r_max == 30
    report = adv.evaluate("zoo:cartpole-ppo", SHORT, episodes=5, seed=0)
    assert row.clean_returns.tolist() == report.threats[0]["returns"]
    aimed = adv.Learned(
        found.adversary.director,
        found.adversary.actor.open().against(adv.load_victim("zoo:cartpole-ppo")),
        observe="state+action",
    )
    attacked = adv.evaluate("zoo:cartpole-ppo", SHORT, [aimed], episodes=5, seed=0).threats[1]
    assert row.test.returns.tolist() == attacked["returns"]


def test_what_is_finished_is_not_measured_again(finished: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found, out, _ = finished

    def fail(*given: Any, **more: Any) -> None:
        raise AssertionError("measured again")

    for name in ("train_director", "Player"):
        monkeypatch.setattr(measurement_module, name, fail)
    again = resilience(DQN, SHORT, 2.0, transfer="zoo:cartpole-ppo", by="policy", out=out, **QUICK)
    assert again.to_dict() == found.to_dict() and again.adversary.sha256 == found.adversary.sha256
    fewer = resilience(DQN, SHORT, 2.0, by="policy", out=out, **QUICK)
    assert fewer.transfer == () and fewer.test.returns.tolist() == found.test.returns.tolist()


@every_case(
    ("change", "message"),
    [
        ({"cost": 1.0}, r"holds another measurement, with cost 2\.0 and not 1\.0"),
        ({"seed": 1}, r"with seed 0 and not 1"),
        ({"episodes": 6}, r"with episodes 5 and not 6"),
        ({"by": None}, r"with actor\.how\.by 'policy' and not 'q'"),
    ],
)
def test_the_folder_of_another_measurement_is_refused(finished: Any, change: Any, message: str) -> None:
    given = {"cost": 2.0, "by": "policy", **QUICK, **change}
    with pytest.raises(ValueRangeError, match=message):
        resilience(DQN, SHORT, out=finished[1], **given)


@pytest.mark.slow
def test_more_steps_go_on_and_are_tested_again(tmp_path: Any) -> None:
    first = resilience(DQN, SHORT, out=tmp_path, **QUICK)
    more = resilience(DQN, SHORT, out=tmp_path, **{**QUICK, "steps": 256})
    before = len(first.training)
    assert more.steps == 256 and more.training.returns[:before].tolist() == first.training.returns.tolist()
    assert more.training.steps is not None and len(more.training) > before and more.training.steps[before] > 128
    assert min(first.seconds, more.seconds) > 0


@pytest.mark.parametrize("at", [("training", 64), pytest.param(("test", 5), marks=pytest.mark.slow)])
def test_an_interrupted_measurement_goes_on(tmp_path: Any, at: tuple[str, int]) -> None:
    """One of the literal reward and of every action."""
    literal: dict[str, Any] = {**QUICK, "terminal": True, "induce": "any", "r_max": 40, "num_envs": 2, "out": tmp_path}

    def interrupt(*seen: Any) -> None:
        if seen[:2] == at:
            raise Stopped

    with pytest.raises(Stopped):
        resilience(DQN, SHORT, progress=interrupt, **literal)
    stored = json.loads((tmp_path / "state.json").read_text())["result"]
    assert len(stored["clean_returns"]) == 5 and ("asked" in stored) == (at[0] == "test")
    assert not (tmp_path / "resilience.json").exists()
    seen: list[Any] = []
    found = resilience(DQN, SHORT, progress=lambda *at: seen.append(at), **literal)
    assert ("clean episodes", 0, 5) not in seen and (("training", 128, 128) in seen) == (at[0] == "training")
    steps, kept = found.training.steps, stored["training"]["steps"]
    assert steps is not None and (np.diff(steps) >= 0).all() and steps[-1] <= 128 and len(found.test) == 5
    assert kept and steps[: len(kept)].tolist() == kept
    assert found.r_max == 40 and found.mean_regret == pytest.approx(40 - found.returns.mean())
    assert found.about["terminal"] and found.about["actor"]["type"] == "induce"


def test_a_folder_of_before_is_gone_on_with(finished: Any, tmp_path: Any) -> None:
    """It says whether a rule might end the training, which there is no more."""
    found, given = finished[0], {"cost": 2.0, "by": "policy", "out": tmp_path / "out", **QUICK}
    shutil.copytree(finished[1], tmp_path / "out")
    state = json.loads((tmp_path / "out" / "state.json").read_text())
    for stop in (False, True):
        state["about"]["stop"], state["result"]["stopped"] = stop, stop
        (tmp_path / "out" / "state.json").write_text(json.dumps(state))
        if stop:
            with pytest.raises(ValueRangeError, match="with stop True and not False"):
                resilience(DQN, SHORT, **given)
        else:
            again = resilience(DQN, SHORT, **given)
            assert again.returns.tolist() == found.returns.tolist() and again.seconds == found.seconds


@pytest.mark.parametrize("hard", [pytest.param(False, marks=pytest.mark.slow), True])
def test_robustness_has_a_budget(hard: bool, tmp_path: Any) -> None:
    """And a threat keeps the timing that it has."""
    early = adv.Window(0, 20)
    threat = adv.ThreatModel("action", adv.WorstAction(), when=early)
    found = robustness(DQN, SHORT, 2, hard, 0.5, how=threat, out=tmp_path, **QUICK)
    spent = found.test.perturbations
    assert found.adversary is not None and found.adversary.observe == "state+action+spent"
    assert found.budget == 2 and found.hard is hard and found.about["budget"] == 2
    assert found.training.perturbations.max() > 2  # at a cost
    beyond = np.maximum(found.training.perturbations - 2, 0)
    late = 10 if hard else 0.5 * 2
    assert (found.training.costs == 0.5 * (found.training.perturbations - beyond) + late * beyond).all()
    if hard:
        assert spent.max() <= 2 and (found.test.costs == 0.5 * spent).all()
        threats = [found.adversary, f"learned:card={tmp_path / 'adversary'}"]  # it keeps its timing, in its card too
        for row in adv.evaluate(DQN, SHORT, threats, episodes=5).threats[1:]:
            assert row["returns"] == found.returns.tolist()
    assert found.adversary.when == (And(early, adv.AtMost(2)) if hard else early)
    assert found.histogram[20:].sum() == 0


@pytest.mark.slow
def test_the_algorithm_of_the_paper() -> None:
    given = {"steps": 120, "episodes": 2, "checks": 1, "check_episodes": 2, "learning_starts": 80, "train_freq": 20}
    found = resilience(DQN, SHORT, algorithm="dqn", **given)
    assert found.steps == 120 and len(found.training) >= 4 and found.about["settings"]["learning_starts"] == 80


def test_any_attack_can_be_timed_also_through_another_victim() -> None:
    how, few = adv.MinBest(balancing("q")), {**QUICK, "steps": 64, "checks": 1}
    found = resilience(balancing(), short, how=how, within=adv.Linf(0.3), r_max=np.float64(40), **few)
    assert found.victim["ref"] is None and found.env["id"] == "short"
    assert found.adversary is not None and found.adversary.on == "observation"
    assert found.adversary.within == adv.Linf(0.3) and 0 < found.test.perturbations.sum() < found.test.lengths.sum()


@every_case(
    ("given", "error", "message"),
    [
        ({"cost": -1}, ValueRangeError, r"cost must be a finite number from 0 to 1e\+12, got -1"),
        ({"r_max": 29}, ValueRangeError, "r_max must be at least the highest clean return, 30, got 29"),
        ({"induce": "any", "by": "q"}, ThreatError, "induce= leaves it to the adversary"),
        ({"how": "max-diff:eps=0.1", "by": "q"}, ThreatError, "by= chooses what is induced, and so does how="),
        ({"how": "max-diff:eps=0.1", "induce": "any"}, ThreatError, "induce= chooses what is induced, and so does how"),
        ({"algorithm": "sac"}, ThreatError, "algorithm must be one of 'ppo', 'a2c', 'dqn', got 'sac'"),
        ({"when": adv.Every(2), "eps": 0.1}, ThreatError, "eps, when cannot be set here: how= is a threat with its"),
        ({"how": "max-diff"}, BudgetError, "max-diff needs a budget"),
        ({"how": adv.ThreatModel("observation", adv.Noise(), adv.Linf(0.1), at="x")}, ThreatError, "threat at 'x'"),
        (
            {"how": adv.ThreatModel("observation", adv.Noise(), adv.Linf(0.1), lambda x, context: x[:, 0] > 0)},
            ThreatError, "the timing of how= must be one such as",
        ),
        ({"transfer": ["zoo:hopper-ppo"]}, VictimError, "is for observation space"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_trained(
    given: Any, error: Any, message: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement_module, "train_director", None)
    with pytest.raises(error, match=message):
        resilience(DQN, SHORT, out=tmp_path, **{**QUICK, **given})


def test_a_budget_is_a_whole_number() -> None:
    with pytest.raises(ValueRangeError, match="budget must be an integer from 1 to 1000000000"):
        robustness(DQN, SHORT, 2.5, **QUICK)


def test_continuous_actions_cannot_be_named() -> None:
    with pytest.raises(VictimError, match="induce names one of several discrete actions"):
        resilience("zoo:hopper-ppo", "Hopper-v5", induce="any", **QUICK)


def test_the_worst_action_needs_an_opinion() -> None:
    victim = balancing()
    with pytest.raises(VictimError, match=r"has neither: approximate them with imitate, take"):
        resilience(victim, short, **QUICK)
    assert worst_action_of(victim, short, "policy") == adv.WorstAction(victim, "policy", other=True)
    assert worst_action_of(balancing("q"), short).by == "q"
    hopper = adv.load_victim("zoo:hopper-ppo")
    assert worst_action_of(hopper, lambda: gym.make("Hopper-v5"), "policy") == adv.WorstAction(hopper, "policy")


@pytest.mark.slow
def test_a_state_value_is_looked_up_in_the_environment() -> None:
    victim = adv.load_victim("zoo:cartpole-ppo")
    found = resilience(victim, SHORT, **{**QUICK, "steps": 64, "checks": 1})
    how = found.about["actor"]["how"]
    assert (how["by"], how["other"]) == ("successor", True)
    every = adv.ThreatModel("action", adv.WorstAction(victim, "successor", other=True))
    assert adv.evaluate(victim, SHORT, [every], episodes=5).threats[1]["action_change"] == 1


class Forgetful(gym.Wrapper[Any, Any, Any, Any]):
    """Draws from a generator that no snapshot knows."""

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        return obs + np.random.uniform(size=obs.shape).astype(obs.dtype), *rest


def test_an_environment_that_does_not_repeat_is_refused() -> None:
    with pytest.raises(SnapshotError, match="does not repeat: step 1 after a restore has another observation"):
        resilience("zoo:cartpole-a2c", lambda: Forgetful(gym.make(SHORT)), **QUICK)


@pytest.mark.slow
def test_no_trained_adversary_beats_the_exact_optimum() -> None:
    found = resilience(DQN, "CartPole-v1", steps=6144, episodes=6, checks=3, check_episodes=6, num_envs=16)
    best = fewest_perturbations(DQN, "CartPole-v1", found.episode_seeds, lowest_reward=1.0)
    totals = found.returns + found.test.perturbations
    assert best.finished.all() and (totals >= best.objective).all()
    assert totals.mean() < 18  # an adversary that attacks at every step has about 19
