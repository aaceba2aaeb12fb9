"""The cost of a suite in advance: what is estimated, that its rows are kept and no other changes, and the sums."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.campaign import AttackSetting, Entry, EntryCost, SuiteCost, run_suite, suite_cost
from adv_wrappers.campaign.suites import SUITES
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.evaluator import Evaluator
from tests.evaluation.agents import make_short, short
from tests.training.test_one_critic import Toy, toy_victim

DQN = "zoo:cartpole-dqn"
NAMES = ["noise", "pgd", "strong-max-diff", "beam"]
HOW = {"episodes": 4, "num_envs": 2}
SETTING = AttackSetting(DQN, short, adv.Linf(0.2), episodes=4, num_envs=2)
LONGER = replace(SETTING, env=lambda: make_short("CartPole-v1", 100))
BRIEF = {"checks": 1, "episodes": 2, "n_steps": 8, "batch_size": 16, "n_epochs": 1}
TIME = "ms_per_step"


def rows_of(report):
    """The rows of all episodes of a suite, without the time that they took."""
    reports = [report.report, report.fresh, *([report.tie_break] if report.tie_break else [])]
    return [{key: value for key, value in row.items() if key != TIME} for one in reports for row in one.threats]


@pytest.fixture
def stepped(monkeypatch):
    """By attack the numbers of rows with which its steps were timed, each of which takes 2 ms, and 3 ms a row."""
    found: dict[str, list[int]] = {}

    def step_seconds(self, i, timer, rows):
        found.setdefault(self.stacks[i].name.partition(":")[0], []).append(rows)
        return [0.002 + 0.003 * rows] * 2

    monkeypatch.setattr(Evaluator, "step_seconds", step_seconds)
    return found


def brief():
    return make_short("CartPole-v1", 25)


def draws_globally(x, context):
    return x + 0.2 * torch.rand_like(x) * float(np.random.rand())


def test_rows_are_the_same_with_and_without():
    own = Entry("own", lambda _: None, lambda setting: adv.ThreatModel("observation", draws_globally, setting.budget))
    costs, played = [], []
    for tell in (None, costs.append):
        torch.manual_seed(0)
        np.random.seed(0)
        played.append(run_suite([*NAMES, own], DQN, brief, 0.2, **HOW, on_cost=tell))
    without, with_estimate = played
    assert rows_of(without) == rows_of(with_estimate) and without.settings == with_estimate.settings
    assert without.warnings == with_estimate.warnings and without.protocol == with_estimate.protocol
    [cost] = costs
    assert {entry.name for entry in cost.entries} == {*NAMES, "own"} and cost.unknown == ()
    for name, row in cost.rows.items():  # no row is played twice
        [kept] = [row for row in with_estimate.report.threats if row["threat"] == name]
        assert kept[TIME] == row[TIME]


def test_the_seconds_of_an_entry_are_those_of_its_steps(stepped):
    cost = suite_cost(["noise", "pgd"], SETTING)
    assert stepped == {"noise": [2, 1], "pgd": [2, 1]}
    assert [*cost.rows] == ["none"] and cost.clean > 0 and cost.blocks == 2  # none takes a twentieth
    assert cost.rows["none"]["lengths"] == [40] * 4
    assert [entry.seconds for entry in cost.entries] == pytest.approx([80 * 0.002 + 160 * 0.003] * 2)
    assert cost.seconds == pytest.approx(1.28) and cost.unknown == ()


def test_quick_attacks_are_played_and_say_how_long_episodes_are(stepped, monkeypatch):
    slow = Evaluator.step_seconds

    def step_seconds(self, i, timer, rows):
        seconds = slow(self, i, timer, rows)
        return [100 * one for one in seconds] if self.stacks[i].name.startswith("pgd") else seconds

    monkeypatch.setattr(Evaluator, "step_seconds", step_seconds)
    setting = replace(LONGER, budget=adv.Linf(1.0))
    cost = suite_cost(["min-best", "pgd"], setting)
    quick, long = cost.entries
    assert quick.played and quick.seconds == 0 and not long.played and {*cost.rows} == {"none", "min-best"}
    lengths = cost.rows["min-best"]["lengths"]
    assert max(lengths) < 100 == cost.rows["none"]["mean_length"]
    rounds = sum(max(lengths[i : i + 2]) for i in (0, 2))
    assert long.seconds == pytest.approx(0.2 * rounds + 0.3 * sum(lengths))


def test_rows_of_a_folder_are_not_estimated(tmp_path, stepped):
    run_suite(["noise", "pgd"], DQN, short, 0.2, out=tmp_path, **HOW)
    setting = replace(SETTING, out=tmp_path)
    assert suite_cost(["noise", "pgd"], setting).entries == () and not stepped  # all is known
    cost = suite_cost(["noise", "min-q", "pgd"], setting)
    assert [entry.played for entry in cost.entries] == [True, False, True] and {*stepped} == {"min-q"}
    assert cost.seconds == cost.entries[1].seconds > 0
    with pytest.raises(ValueRangeError, match="suite"):
        suite_cost(["noise"], replace(setting, budget=adv.Linf(0.3)))
    received = []
    more = run_suite(
        ["noise", "min-q", "pgd"],
        DQN,
        short,
        0.2,
        out=tmp_path,
        on_cost=received.append,
        progress=lambda *at: received.append(at),
        **HOW,
    )
    [again] = [one for one in received if isinstance(one, SuiteCost)]
    assert more.report.threats[0][TIME] == again.rows["none"][TIME] == cost.rows["none"][TIME]
    begun = [what for what, done, _ in received[received.index(again) :][1:] if 0 < done < 4]
    assert {what for what in begun if " on " not in what} == {"scoring min-q"}


def test_a_report_of_runs_that_are_not_estimated_stays_where_it_is(tmp_path, stepped):
    own = replace(SUITES["standard"][0], name="own", per_episodes=True, make=lambda of: adv.threat("noise", eps=0.1))
    run_suite(["noise", own], DQN, short, 0.2, out=tmp_path, **HOW)
    cost = suite_cost(["noise", own, "pgd"], replace(SETTING, out=tmp_path))
    assert cost.unknown == ("own",) and [entry.played for entry in cost.entries] == [True, False]
    assert {path.name for path in (tmp_path / "evaluation").glob("*.json")} == {"report.json"}
    assert len(adv.Report.from_json(tmp_path / "evaluation" / "report.json").threats) == 3


def test_of_a_search_a_few_steps_are_taken(monkeypatch):
    from adv_wrappers.campaign import suite_attacks_without_training

    steps, search = [], suite_attacks_without_training.beam_search

    def watched(*given, on_step, **named):
        return search(*given, **named, on_step=lambda states: steps.append(states) or on_step(states))

    monkeypatch.setattr(suite_attacks_without_training, "beam_search", watched)
    cost = suite_cost(["beam"], replace(LONGER, budget=adv.Linf(0.05)))
    assert len(steps) < 60 and max(steps) > 4 and {*cost.rows} == {"none"}
    [entry] = cost.entries
    assert entry.searching > entry.playing > 0 == entry.training
    assert cost.wall_clock()[0] == pytest.approx(2 * entry.seconds + cost.clean)  # again, on fresh episodes


def test_of_a_training_a_share_is_taken(tmp_path):
    pytest.importorskip("stable_baselines3")
    setting = replace(SETTING, train=True, steps=500, training=BRIEF, out=tmp_path)
    noise, trained = suite_cost(["noise", "pa-ad"], setting).entries
    assert noise.training == 0 and trained.training > trained.playing > 0 and not (tmp_path / "pa-ad").exists()
    entry = next(entry for entry in SUITES["standard"] if entry.name == "pa-ad")
    entry.attack(setting)
    assert suite_cost(["pa-ad"], setting).entries[0].training == 0
    longer = suite_cost(["pa-ad"], replace(setting, steps=1000)).entries[0].training
    assert longer > 0


def test_what_is_not_estimated_is_named(stepped):
    own = replace(SUITES["standard"][0], name="own", trained=True)
    setting = replace(SETTING, train=True)
    cost = suite_cost(["noise", own, replace(own, name="made", trained=False, per_episodes=True)], setting)
    assert cost.unknown == ("own", "made") and [entry.name for entry in cost.entries] == ["noise"]
    assert cost.line().endswith("; not estimated: own, made")
    assert suite_cost(["transfer"], setting).unknown == ("transfer",)
    stepped.clear()
    quick = suite_cost(["noise"], replace(SETTING, env=lambda: make_short("CartPole-v1", 5)))
    assert quick.unknown == ("noise",) and not stepped and quick.seconds == 0
    with pytest.raises(ThreatError, match="no attack applies: rotation"):
        suite_cost(["rotation"], SETTING)


def test_of_critics_the_first_is_trained_for_a_share(stepped, monkeypatch):
    module = importlib.import_module("adv_wrappers.campaign.suite_cost")  # which the function hides
    asked, training = [], module.CriticTraining

    def watched(victim, env, how, *given):
        asked.append((how["steps"], how["num_envs"]))
        return training(victim, env, how, *given)

    setting = AttackSetting(
        toy_victim(),
        Toy,
        adv.Linf(1.0),
        train=True,
        episodes=4,
        num_envs=2,
        critics=[{"steps": 2000, "num_envs": 2}, {"steps": 4000, "num_envs": 4}],
    )
    monkeypatch.setattr(module, "CriticTraining", watched)
    [entry] = suite_cost(["robust-sarsa"], setting).entries
    assert asked == [(64, 2), (150, 2)] and entry.name == "robust-sarsa"
    assert entry.training > 15 * entry.playing > 0  # twenty episodes under each, and of the strongest again


COST = SuiteCost(
    (
        EntryCost("noise", 0, 0, 1.0, True), EntryCost("pgd", 0, 0, 10.0), EntryCost("beam", 0, 90.0, 2.0),
        EntryCost("pa-ad", 600.0, 0, 4.0), EntryCost("a", 0, 0, 3.0), EntryCost("b", 0, 0, 3.0),
        EntryCost("c", 0, 0, 2.0), EntryCost("d", 0, 0, 2.0),
    ),
    1.0, 2, (), 5.0, {},
)  # fmt: skip


def test_the_sums():
    assert COST.seconds == 716 and COST.entries[0].seconds == 0
    assert COST.wall_clock() == (716 + 2, 716 + 93)  # noise again, or the beam
    low, high = COST.wall_clock(2)
    assert (low, high) == (690 + 13 + 1, 690 + 13 + 90 + 1.5)  # trainings and searches are in one process
    assert COST.wall_clock(8)[0] == 690 + 5 + 0.5 == COST.wall_clock(8, 8)[0]  # two blocks of pgd
    assert COST.wall_clock(8, 1) == COST.wall_clock()


def test_the_line_names_what_takes_longest():
    assert COST.line() == (
        "about 12 to 13 min on this machine: pa-ad 10 min, beam 92 s, pgd 10 s, a 3 s, 3 others 7 s, and the strongest "
        "again on fresh episodes; less or more where attacks shorten or lengthen episodes"
    )
    text = str(COST)
    assert "7 entries are left, 1 are known: about 12 to 13 min" in text and "the sample took 5 s" in text
    assert text.index("pa-ad") < text.index("beam") < text.index("noise")
