"""The standard suite: what applies, what is scored, what is kept, and going on after an interruption."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.applicable_attacks import why_no_beam
from adv_wrappers.studies import SUITES, AttackSetting, Entry, MadeAttack, SuiteReport, run_suite
from adv_wrappers.studies.suite.attack_lists import entry_named
from adv_wrappers.studies.suite.runner import _with_advice, fresh_seed
from adv_wrappers.training.folder import read_record
from adv_wrappers.training.models.critic_scan import check_critic_settings
from tests.core.helpers import OnlySpaces
from tests.evaluation.agents import Film, balancing, make_short, short, uncopied, watcher
from tests.every_case import every_case
from tests.training.toys import Toy, toy_victim

pytest.importorskip("stable_baselines3")

ATTACKS = [entry.name for entry in SUITES["standard"]]
BRIEF = {"checks": 2, "episodes": 3, "n_steps": 32, "batch_size": 64, "n_epochs": 2}
QUICK: dict[str, Any] = {"episodes": 4, "steps": 256, "num_envs": 4, "training": BRIEF}
FRESH = " on fresh episodes"
CRITICS = [{"steps": 32, "num_envs": 2}, {"steps": 32, "num_envs": 2, "successor": "shuffled"}]


def standard(victim, env, eps=None, **how):
    """The standard suite, with its trainings."""
    return run_suite("standard", victim, env, eps, **{"train": True, **how})


def briefly() -> gym.Env:
    """CartPole that ends after 15 steps: the search over episodes takes as long as they are."""
    return make_short("CartPole-v1", 15)


class Seeded(gym.Wrapper):
    """CartPole that ends after 20 steps, and writes down the seeds that it is reset with."""

    seeds: list[int] = []  # noqa: RUF012 - shared by all that are made

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1", max_episode_steps=20))

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            Seeded.seeds.append(int(seed))
        return super().reset(seed=seed, options=options)


class Lottery(gym.Env):
    """One step, and a reward of its own for each of two actions, both drawn from the same distribution."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rewards = 500 * self.np_random.normal(size=2)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(self.rewards[int(action)]), True, False, {}


@pytest.mark.slow
def test_the_worst_case_of_attacks_that_take_nothing_is_nothing():
    torch.manual_seed(0)  # what is tested is of a distribution
    net = torch.nn.Linear(2, 2, bias=False)
    victim = adv.from_module(net, Lottery.observation_space, Lottery.action_space, "logits")
    how: dict[str, Any] = {"attacks": ("noise", "pgd"), "episodes": 25, "num_envs": 25}
    reports = [standard(victim, Lottery, 1.0, seed=seed, **how) for seed in range(16)]
    deviation = 500 / (16 * 25) ** 0.5
    assert abs(np.mean([report.worst["mean_return"] for report in reports])) < 2 * deviation
    assert np.mean([report.chosen["mean_return"] for report in reports]) < -2 * deviation  # the lowest of two


def test_further_episodes_choose_between_attacks_that_are_not_told_apart(tmp_path):
    net = torch.nn.Linear(2, 2, bias=False)
    victim = adv.from_module(net, Lottery.observation_space, Lottery.action_space, "logits")
    names, received = ("noise", "pgd", "max-diff"), list[tuple[str, int, int]]()
    how: dict[str, Any] = {"attacks": names, "episodes": 8, "num_envs": 4, "out": tmp_path}

    def stop(*at):
        received.append(at)
        if at == ("scoring pgd on further episodes", 4, 8):
            raise Stopped

    with pytest.raises(Stopped):
        standard(victim, Lottery, 1.0, progress=stop, **how)
    assert not (tmp_path / "report.json").exists()
    received.clear()
    report = standard(victim, Lottery, 1.0, progress=lambda *at: received.append(at), **how)
    assert report.tie_break is not None
    played = [what for what, done, _ in received if done == 4]
    chosen = report.chosen["threat"]
    assert played == [
        *(f"scoring {name} on further episodes" for name in ("pgd", "max-diff")),
        *(f"scoring {name}{FRESH}" for name in ("none", chosen)),
    ]
    parts = (report.report, report.tie_break, report.fresh)
    assert len({seed for part in parts for seed in part.episode_seeds}) == 24
    assert report.tie_break.episode_seeds == tuple(np.random.SeedSequence(fresh_seed(0, 2)).generate_state(8))
    both = {
        row["threat"]: row["returns"] + report.tie_break.threats[i]["returns"]
        for i, row in enumerate(report.report.threats)
    }
    assert [*both] == ["none", *names] and chosen == min(names, key=lambda name: np.mean(both[name]))
    assert chosen == report.worst["threat"] and SuiteReport.from_json(tmp_path / "report.json") == report


class Stopped(Exception):
    """What ends a suite from outside."""


def test_a_folder_takes_more_attacks_but_no_other_suite(tmp_path):
    how: dict[str, Any] = {"out": tmp_path, "episodes": 2, "env_kwargs": {"max_episode_steps": 40}}
    first = standard("zoo:cartpole-dqn", "CartPole-v1", 0.05, attacks=("noise",), **how)
    assert first.left_out["pa-ad"] == "not asked for"
    more = standard("zoo:cartpole-dqn", "CartPole-v1", 0.05, attacks=("min-q", "noise"), **how)
    assert more.attacks == ("noise", "min-q") and SuiteReport.from_json(tmp_path / "report.json") == more
    with pytest.raises(ValueRangeError, match=r"holds another suite, with within\.eps 0\.05 and not 0\.1"):
        standard("zoo:cartpole-dqn", "CartPole-v1", 0.1, attacks=("noise",), **how)
    with pytest.raises(ValueRangeError, match=r"another suite, with environment\.make 'missing'|environment"):
        standard(
            "zoo:cartpole-dqn", "CartPole-v1", 0.05, attacks=("noise",), make=make_short, **{**how, "env_kwargs": None}
        )
    with pytest.raises(ValueRangeError, match="holds another suite, with victim"):
        standard("zoo:cartpole-ppo", "CartPole-v1", 0.05, attacks=("noise",), **how)
    (tmp_path / "suite.json").write_text("[")
    with pytest.raises(ValueRangeError, match="cannot read"):
        standard("zoo:cartpole-dqn", "CartPole-v1", 0.05, attacks=("noise",), **how)


def scored(received):
    """Names of the attacks that episodes were played under: of the others only a start and an end are told.

    But for the fresh episodes, which are played last.
    """
    names = [
        what.removeprefix("scoring ") for what, *_ in received if what.startswith("scoring ") and FRESH not in what
    ]
    return [name for name in dict.fromkeys(names) if names.count(name) > 2]


@pytest.mark.slow
def test_fresh_episodes_are_kept_and_played_again_for_another_worst_case_only(tmp_path):
    received: list[tuple[str, int, int]] = []

    def stop(what, done, whole):
        received.append((what, done, whole))
        if what == f"scoring noise{FRESH}" and 0 < done < whole:
            raise Stopped

    def played():
        names = [what.removesuffix(FRESH) for what, *_ in received if FRESH in what]
        return [name.removeprefix("scoring ") for name in dict.fromkeys(names) if names.count(name) > 2]

    how: dict[str, Any] = {"episodes": 6, "num_envs": 2, "out": tmp_path}
    with pytest.raises(Stopped):
        standard("zoo:cartpole-dqn", briefly, 0.3, attacks=("noise",), progress=stop, **how)
    received.clear()
    how["progress"] = lambda *at: received.append(at)
    first = standard("zoo:cartpole-dqn", briefly, 0.3, attacks=("noise",), **how)
    assert played() == ["noise"] and not scored(received)
    received.clear()
    assert standard("zoo:cartpole-dqn", briefly, 0.3, attacks=("noise",), **how) == first and not played()
    received.clear()
    more = standard("zoo:cartpole-dqn", briefly, 0.3, attacks=("noise", "pgd"), **how)
    assert played() == ["pgd"] and more.worst["threat"] == "pgd" and more.fresh.threats[0] == first.fresh.threats[0]
    assert SuiteReport.from_json(tmp_path / "report.json") == more


def test_trainings_and_choices_share_no_episode_with_the_score():
    Seeded.seeds.clear()
    phase: dict[str, list[int]] = {}

    def tell(what, done, whole):
        if done == 0:
            phase[what] = [*Seeded.seeds]

    report = standard(
        balancing(), Seeded, 0.3, attacks=("noise", "pa-ad"), progress=tell, **{**QUICK, "seed": 5, "episodes": 3}
    )
    scored, fresh = len(phase["scoring none"]), len(phase["scoring none on fresh episodes"])
    before, theirs, own = (
        {*part} for part in (Seeded.seeds[:scored], Seeded.seeds[scored:fresh], Seeded.seeds[fresh:])
    )
    assert len(before) >= 4 + 3 and not before & (theirs | own) and not theirs & own
    assert theirs == {*report.report.episode_seeds} and own == {*report.fresh.episode_seeds}
    assert len(theirs) == len(own) == 3


def test_continuous_actions_and_a_scan_of_critics(tmp_path):
    victim = toy_victim()
    report = standard(
        victim, Toy, 1.0, critics=CRITICS, out=tmp_path, attacks=("noise", "min-best", "robust-sarsa"), **QUICK
    )
    assert report.attacks == ("noise", "robust-sarsa") and "use max-diff" in report.left_out["min-best"]
    assert report.protocol["robust-sarsa"].startswith("best of 2 critics, chosen by mean return over 20 other episodes")
    assert len(list((tmp_path / "robust-sarsa").glob("*/weights.safetensors"))) == 2
    assert report.settings["critics"] == CRITICS


def test_both_forms_of_pa_ad_against_continuous_actions(tmp_path):
    report = standard(toy_victim(), Toy, 1.0, out=tmp_path, attacks=("pa-ad",), **QUICK)
    assert report.protocol["pa-ad"].startswith("two trainings (direction and target) of 256 steps each")
    left = {f: min(c["mean_return"] for c in read_record(tmp_path / "pa-ad" / f)) for f in ("direction", "target")}
    best = min(left, key=left.__getitem__)
    mine = adv.threat("learned", toy_victim(), card=str(tmp_path / "pa-ad" / best))
    again = adv.evaluate(toy_victim(), Toy, [mine], episodes=4, num_envs=4)
    assert again.threats[1]["returns"] == report.report.threats[1]["returns"]


def test_a_critic_that_the_victim_brings_is_taken():
    victim = toy_victim(robust_sarsa=lambda obs, act: act[:, 0] * obs[:, 0])
    report = standard(victim, Toy, 1.0, critics=[], attacks=("noise", "robust-sarsa"), episodes=20)
    assert report.protocol["robust-sarsa"] == "one run, through the critic of the victim's card"
    assert report.worst["threat"] == "robust-sarsa" and report.warnings == ()


def why_excluded(name, victim, budget, seen, acted):
    setting = AttackSetting(victim, lambda: OnlySpaces(seen, acted), budget, train=True)
    return entry_named(name).applies(setting)


def test_images_leave_sa_rl_out():
    seen, acted = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(2)
    victim = adv.from_module(lambda x: x.flatten(1)[:, :2], seen, acted, "q")
    budget = adv.Linf(2.0)
    assert "4 x 84 x 84 numbers a step" in str(why_excluded("sa-rl", victim, budget, seen, acted))
    assert why_excluded("pa-ad", victim, budget, seen, acted) is None
    names = ("pgd", "strong-max-diff", "apgd", "multi-targeted")
    found = [why_excluded(name, victim, budget, seen, acted) for name in names]
    assert found == [None, None, *2 * ["on images it takes too long: evaluate it by itself"]]
    assert why_no_beam(victim, Environment(Film), budget) == "on images it takes too long: evaluate it by itself"
    moves = spaces.Box(-1.0, 1.0, (2,), np.float32)
    driver = adv.from_module(lambda x: x.flatten(1)[:, :2], seen, moves, "mean")
    assert "one dimension" in str(why_excluded("robust-sarsa", driver, budget, seen, moves))
    last = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    other = adv.from_module(lambda x: x.flatten(1)[:, :2], last, acted, "q")
    assert "images with their channels first" in str(why_excluded("pa-ad", other, budget, last, acted))


class Windy(gym.Wrapper):
    """CartPole in which a random number is drawn at every step."""

    def step(self, action):
        self.unwrapped.np_random.random()
        return super().step(action)


@pytest.mark.parametrize(
    ("victim", "make_env", "budget", "words"),
    [
        (balancing(select="sample"), short, adv.Linf(0.1), "plays its mode"),
        (toy_victim(), Toy, adv.Linf(0.1), "one discrete action"),
        (
            balancing(),
            lambda: Windy(short()),
            adv.Linf(0.1),
            "draws random numbers in its steps, .*; beam_search",
        ),
        (
            balancing(),
            uncopied,
            adv.Linf(0.1),
            "cannot be saved: its .*handle is a generator, .*; beam_search, called",
        ),
        (balancing(), short, adv.Newest(adv.Linf(0.1)), "the budget of a whole observation"),
    ],
)
def test_a_search_over_episodes_that_does_not_apply_is_listed(victim, make_env, budget, words):
    assert re.search(words, str(why_no_beam(victim, Environment(make_env), budget)))
    assert why_no_beam(balancing(), Environment(short), adv.Linf(0.1)) is None


def test_a_suite_goes_on_where_the_environment_cannot_be_saved():
    report = standard(balancing(), lambda: uncopied(12), 0.1, attacks=("noise", "beam"), episodes=2)
    assert report.attacks == ("noise",) and "cannot be saved" in report.left_out["beam"]


def test_budgets_below_one_grey_level():
    film = Film()
    with pytest.raises(BudgetError, match="quantize=False"):
        standard(watcher(film), Film, 0.5, attacks=("noise", "max-diff"), episodes=2)
    report = standard(watcher(film), Film, 0.5, attacks=("noise", "max-diff"), episodes=2, quantize=False)
    assert all(0 < row["linf"] <= 0.5 for row in report.report.threats[1:])


# suites of one's own


def no_reason(setting):
    return None


def backwards(setting):
    return adv.ThreatModel("observation", lambda x, context: -x, setting.budget)


def test_an_attack_of_ones_own_joins_with_one_line(tmp_path):
    mine = Entry("mine", no_reason, backwards)
    left = Entry("other", lambda setting: f"not on {setting.environment.name}", backwards)
    suite = [*SUITES["standard"], "max-diff:steps=3", mine, left]
    names = ["noise", "max-diff:steps=3", "mine", "other"]
    report = run_suite(iter(suite), "zoo:cartpole-dqn", short, eps=0.05, attacks=names, episodes=2)
    assert report.suite == "own" and report.attacks == ("noise", "max-diff:steps=3", "mine")
    assert report.left_out["other"] == "not on short" and report.left_out["pgd"] == "not asked for"
    threats = [
        "noise:eps=0.05",
        "max-diff:steps=3,eps=0.05",
        backwards(AttackSetting(balancing(), short, adv.Linf(0.05))),
    ]
    rows = adv.evaluate("zoo:cartpole-dqn", short, threats, episodes=2).threats
    assert [row["returns"] for row in rows] == [row["returns"] for row in report.report.threats]


def test_an_entry_of_ones_own_is_made_again_as_its_code_may_have_changed(tmp_path):
    made = []

    def make(setting):
        made.append(setting.part)
        return MadeAttack(adv.threat("noise", within=setting.budget), "best of three", ("look out",))

    for count in (1, 2):
        report = run_suite(
            ["max-diff", Entry("mine", no_reason, make)],
            "zoo:cartpole-dqn",
            short,
            eps=0.05,
            episodes=2,
            out=tmp_path,
            name="two",
        )
        assert len(made) == count
    assert report.suite == "two" and report.protocol["mine"] == "best of three" and report.warnings[-1] == "look out"


def test_a_unit_without_a_radius_is_no_budget():
    with pytest.raises(ThreatError, match="scale='victim' needs eps= beside it"):
        run_suite("action", "zoo:cartpole-dqn", short, scale="victim")


def test_nothing_is_trained_unless_it_is_asked_for():
    told = []
    report = run_suite(
        "standard", "zoo:cartpole-dqn", short, 0.05, attacks=["noise", "pa-ad"], episodes=2, tell=told.append
    )
    assert report.attacks == ("noise",) and not told
    assert report.left_out["pa-ad"].endswith("only where train=True (--train)")


def test_a_search_is_made_for_its_episodes_and_again_for_the_fresh_ones():
    made = []

    def make(setting):
        made.append((setting.episodes, setting.episode_seed, setting.part))
        return adv.threat("noise", within=setting.budget)

    entry = Entry("mine", no_reason, make, per_episodes=True)
    report = run_suite([entry], "zoo:cartpole-dqn", short, 0.05, episodes=2, seed=3)
    assert made == [(2, 3, "evaluation"), (2, fresh_seed(3), "fresh")]
    assert report.fresh.seed == fresh_seed(3)


def test_another_budget_is_said_beside_the_figures():
    names = ["noise", "max-diff", "worst-action"]
    report = run_suite("everything", "zoo:cartpole-dqn", short, 0.05, attacks=names, episodes=2)
    assert report.other_budgets == {"worst-action": "any action"} and report.worst["threat"] == "worst-action"
    text = str(report)
    assert "worst-action * ‡" in text and "‡ not under eps=0.05, so not comparable: worst-action (any action)" in text
    assert report.verdict.startswith("worst case: worst-action (any action) leaves ")
    assert SuiteReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    wide = adv.Linf(0.5)
    toy = run_suite(["noise", "action-noise"], toy_victim(), Toy, 0.1, action_within=wide, episodes=2)
    assert toy.other_budgets == {"action-noise": "actions within eps=0.5"}
    assert toy.settings["action_within"] == {"type": "linf", "eps": 0.5}


# warnings


def test_trained_attacks_that_are_weaker_than_noise_are_told_what_to_do(victim):
    def nothing(x, context):
        return x

    budget = adv.Linf(0.4)
    threats = [adv.ThreatModel("observation", how, budget) for how in (adv.Noise(), nothing, adv.MaxDiff())]
    report = adv.evaluate(victim, "CartPole-v1", threats, episodes=10, env_kwargs={"max_episode_steps": 200})
    assert any(warning.startswith("<nothing>:eps=0.4 is weaker than noise") for warning in report.warnings)
    clean, noise = (f"{row['mean_return']:.6g}" for row in report.threats[:2])
    found = _with_advice(report, ("noise", "pa-ad", "max-diff"))
    [told] = [warning for warning in found if "weaker than noise" in warning]
    assert told == f"pa-ad is weaker than noise:eps=0.4 ({clean} against {noise}): train it longer"
    assert any("more critics" in text for text in _with_advice(report, ("noise", "robust-sarsa", "max-diff")))
    assert _with_advice(report, ("noise", "mine", "max-diff")) == [*report.warnings]


# what cannot work


class Unplayed(gym.Wrapper):
    """CartPole that nobody may play."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))

    def step(self, action):
        raise AssertionError("something was spent")


@every_case(
    ("arguments", "error", "match"),
    [
        ({"attacks": ["pa-bd"]}, ThreatError, "attacks must be names out of noise, .*'pa-bd'"),
        ({"attacks": []}, ThreatError, "got none"),
        ({"attacks": ["min-q", "robust-sarsa"]}, ThreatError, "no attack applies: min-q: min-q needs Q-values"),
        ({"eps": None}, ThreatError, "no attack applies: noise: it needs a budget"),
        ({"within": adv.Linf(0.1)}, ThreatError, "give either eps"),
        ({"eps": -1.0}, BudgetError, "eps"),
        ({"scale": "victim"}, BudgetError, "unit of its own"),
        ({"scale": (1.0, 2.0)}, BudgetError, "2 numbers for a space of 4"),
        ({"episodes": 0}, ValueRangeError, "episodes must be"),
        ({"seed": -1}, ValueRangeError, "seed must be"),
        ({"steps": 1.5}, ValueRangeError, "steps must be"),
        ({"num_envs": 0}, ValueRangeError, "num_envs must be"),
        ({"training": {"checkz": 3}}, ThreatError, "training takes .*checks.*, not checkz"),
        ({"training": {"eps": 3}}, ThreatError, "not eps"),
        ({"training": {"algorithm": "acktr"}}, ThreatError, "'acktr'"),
        ({"victim": "zoo:hopper-ppo"}, VictimError, "observation space"),
        ({"env": "Nothing-v7"}, SpaceError, "Nothing-v7"),
        ({"env": lambda: 1 / 0}, SpaceError, "cannot make the environment: division"),
    ],
)
def test_bad_input_costs_nothing(arguments, error, match, tmp_path):
    given: dict[str, Any] = {"victim": balancing(), "env": Unplayed, "eps": 0.05, "out": tmp_path / "o", **arguments}
    with pytest.raises(error, match=match):
        standard(**given)
    assert not (tmp_path / "o").exists()


def test_settings_of_critics_that_cannot_work():
    with pytest.raises(ValueRangeError, match="at least one"):
        check_critic_settings([])
    with pytest.raises(ValueRangeError, match=r"eps must be .* got -1"):
        standard(toy_victim(), Toy, 1.0, attacks=("robust-sarsa",), critics=[*CRITICS, {"eps": -1}])
    with pytest.raises(ThreatError, match=r"takes .*weight.*, not heft"):
        standard(toy_victim(), Toy, 1.0, attacks=("robust-sarsa",), critics=[{"heft": 1}])
    with pytest.raises(ThreatError, match="not 3"):
        check_critic_settings([3])


def test_a_place_without_sb3_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    for name in [name for name in sys.modules if name.startswith("adv_wrappers.training.")]:
        monkeypatch.delitem(sys.modules, name)  # which may hold names of it already
    with pytest.raises(adv.AdvWrappersError, match=r"pip install 'adv_wrappers\[sb3\]'"):
        standard(balancing(), Unplayed, 0.05)
    report = standard(balancing(), short, 0.05, attacks=("noise", "max-diff"), episodes=1)
    assert report.attacks == ("noise", "max-diff")
    report = run_suite("everything", balancing(), short, 0.05, attacks=("noise", "timed-max-diff"), episodes=1)
    assert report.attacks == ("noise",) and "train=True" in report.left_out["timed-max-diff"]


@pytest.fixture
def victim():
    return balancing("q")


@pytest.mark.slow
def test_a_model_of_the_environment_is_planned_through(tmp_path):
    """In the suite where it is given, and said to be missing where not."""
    hopper, env_kwargs = "zoo:hopper-ppo", {"max_episode_steps": 2}
    how = {"episodes": 2, "attacks": ["noise", "model-based"], "out": tmp_path / "suite", "env_kwargs": env_kwargs}
    model = adv.train_dynamics(hopper, "Hopper-v5", 100, hidden=(), num_envs=2, out=tmp_path / "model")
    without = standard(hopper, "Hopper-v5", 0.05, **how)
    assert without.attacks == ("noise",) and "dynamics=" in without.left_out["model-based"]
    report = standard(hopper, "Hopper-v5", 0.05, dynamics=f"card:{tmp_path / 'model'}", **how)
    assert report.attacks == ("noise", "model-based") and report.settings["dynamics"] == model.sha256
    assert "through the model" in report.protocol["model-based"]
    assert report.report.threats[2]["layers"][0]["how"].get("target") is None  # Hopper has its own
    pendulum = adv.train_dynamics(toy_victim(), Toy, 200, hidden=(), num_envs=2)
    with pytest.raises(VictimError, match="the model takes observations"):
        standard(hopper, "Hopper-v5", 0.05, dynamics=pendulum, attacks=["model-based"])
