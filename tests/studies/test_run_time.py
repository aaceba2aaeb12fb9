"""What plans and suites will take: what is timed and played for it, that its rows are kept and no other changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, ThreatError
from adv_wrappers.evaluation.player import Player
from adv_wrappers.studies import AttackSetting, Plan, Store, run, run_suite, suite_cost
from adv_wrappers.studies import run_time as estimate_module
from adv_wrappers.studies.run_time import estimate
from adv_wrappers.studies.suite.attack_lists import SUITES
from tests.evaluation.agents import make_short, short
from tests.studies.test_runner import DQN, SHORT, failing
from tests.training.toys import Toy, toy_victim

PLAN = Plan.of(
    victims=[DQN], environments=[{"id": "CartPole-v1", "kwargs": {"max_episode_steps": 5}}], threats=["noise", "pgd"],
    budgets=["eps=0.1", "eps=0.2"], seeds=range(5), episodes=1,
)  # fmt: skip
HOW = {"episodes": 4, "num_envs": 2}
SETTING = AttackSetting(DQN, short, adv.Linf(0.2), episodes=4, num_envs=2)
BRIEF = {"checks": 1, "episodes": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}


@pytest.fixture
def stepped(monkeypatch):
    """The attacks whose steps were timed, each of which takes 8 ms."""
    found: list[str] = []

    def step_seconds(self, cell, seeds, timer):
        found.append(self._cells[cell].threats.name.partition(":")[0])
        return [0.008] * timer.most

    monkeypatch.setattr(Player, "step_seconds", step_seconds)
    return found


# plans


def test_of_many_cells_one_is_played_and_kept(tmp_path, stepped):
    with Store(tmp_path / "rows.db") as store:
        found = estimate(PLAN, store)
        parts = {part.name.rpartition(" ")[2]: part for part in found.parts}
        assert {name: part.left for name, part in parts.items()} == {"none": 4, "noise": 9, "pgd": 9}
        assert found.known == 0 and found.left == 22 and len(store) == 3 and not stepped
        assert parts["pgd"].seconds > 0 and run(PLAN, store).known == 3
        assert estimate(PLAN, store).known == 25


def test_of_few_cells_the_clean_one_is_played_and_steps_of_attacks_are_timed(stepped):
    with Store(":memory:") as store:
        few = Plan.of(victims=[DQN], environments=[SHORT], threats=["noise:eps=0.1", "pgd:eps=0.1"], episodes=1)
        parts = [part for part in estimate(few, store).parts if not part.name.endswith(" none")]
        [(_, row)] = store.rows()
        assert [(part.left, part.each) for part in parts] == [(1, pytest.approx(0.008 * row["lengths"][0]))] * 2
        assert stepped == ["noise", "pgd"]


def test_an_environment_that_is_perturbed_itself_has_a_clean_cell(stepped):
    noisy = {"id": "adv/noise-v0", "kwargs": {"env": "CartPole-v1", "eps": 0.1, "env_kwargs": SHORT["kwargs"]}}
    grid = {"victims": [DQN], "environments": [noisy], "episodes": 1}
    one, other = Plan.of(**grid, threats=["noise:eps=0.1"]), Plan.of(**grid, threats=["fgsm:eps=0.1"])
    with Store(":memory:") as store:
        parts = [part for part in estimate(one + other, store).parts if part.left]
        assert [(part.name.rpartition(" ")[2], part.left) for part in parts] == [("noise", 1), ("fgsm", 1)]


def test_a_cell_that_fails_is_said():
    with Store(":memory:") as store, pytest.raises(AdvWrappersError, match=r"seed 0 fails: .*RuntimeError: no more"):
        estimate(failing("raises"), store)


# suites


def test_the_seconds_of_an_entry_are_those_of_its_steps(stepped):
    found = suite_cost(["noise", "pgd"], SETTING)
    assert stepped == ["noise", "pgd"]
    assert [part.seconds for part in found.parts] == pytest.approx([80 * 0.008] * 2)  # two rounds of 40 steps
    assert found.seconds == pytest.approx(1.28) and found.unknown == ()


def test_rows_of_a_folder_are_not_estimated_and_nothing_is_written_to_it(tmp_path, stepped):
    own = replace(SUITES["standard"][0], name="own", per_episodes=True, make=lambda of: adv.threat("noise", eps=0.1))
    run_suite(["noise", own], DQN, short, 0.2, out=tmp_path, **HOW)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    found = suite_cost(["noise", own, "pgd"], replace(SETTING, out=tmp_path))
    assert found.unknown == ("own",) and [part.left for part in found.parts] == [0, 1] and stepped == ["pgd"]
    assert found.known == 1 and suite_cost(["noise"], replace(SETTING, out=tmp_path)).left == 0
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.*")}


def test_of_a_search_a_few_steps_are_taken(monkeypatch):
    steps, search = [], estimate_module.beam_attack

    def watched(setting, on_step):
        return search(setting, lambda states: steps.append(states) or on_step(states))

    monkeypatch.setattr(estimate_module, "beam_attack", watched)
    longer = replace(SETTING, env=lambda: make_short("CartPole-v1", 40), budget=adv.Linf(0.05))
    searching, playing = suite_cost(["beam"], longer).parts
    assert 1 < len(steps) < 60 and max(steps) > 4 and min(searching.seconds, playing.seconds) > 0 and searching.alone


def test_of_critics_the_first_is_trained_for_some_steps(monkeypatch):
    asked, training = [], estimate_module.CriticTraining

    def watched(victim, env, how, *given):
        asked.append((how.steps, how.num_envs))
        return training(victim, env, how, *given)

    setting = AttackSetting(
        toy_victim(),
        Toy,
        adv.Linf(1.0),
        train=True,
        episodes=4,
        num_envs=2,
        critics=[{"steps": 2000, "num_envs": 2, "robust": None}, {"steps": 4000, "num_envs": 4}],
    )
    monkeypatch.setattr(estimate_module, "CriticTraining", watched)
    trained, playing = suite_cost(["robust-sarsa"], setting).parts
    assert asked == [(64, 2), (64, 2)] and playing.name == "robust-sarsa"
    assert min(trained.seconds, playing.seconds) > 0


def test_what_is_not_estimated_is_named(stepped):
    own = replace(SUITES["standard"][0], name="own", trained=True)
    setting = replace(SETTING, train=True)
    found = suite_cost(["noise", own, replace(own, name="made", trained=False, per_episodes=True)], setting)
    assert found.unknown == ("own", "made") and [part.name for part in found.parts] == ["noise"]
    assert suite_cost(["transfer"], setting).unknown == ("transfer",)
    with pytest.raises(ThreatError, match="no attack applies: rotation"):
        suite_cost(["rotation"], SETTING)
