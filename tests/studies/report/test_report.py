"""A report finds out how an agent breaks: its verdict is right on agents that were made for it."""

from __future__ import annotations

import functools
import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.evaluation import cost
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.studies.report import agenda, eps_search
from adv_wrappers.studies.report import observation_ranges as ranges_module
from adv_wrappers.studies.report.choices import ReportChoices
from adv_wrappers.studies.report.report import report
from adv_wrappers.studies.report.trials import Trial, TrialPlayer
from adv_wrappers.utils import deadline
from adv_wrappers.utils.deadline import OutOfTime
from tests.evaluation.made_reports import made_row
from tests.every_case import every_case
from tests.studies.report.planted import Deaf, Guess, Narrow, Plain, agent_for, showing, victim

MINUTES = 1.0  # never used up: no time passes


@pytest.fixture(autouse=True)
def no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a report plays does not depend on how fast the machine is: counts alone end what would end with its time."""
    now = deadline.clock()
    monkeypatch.setattr(deadline, "clock", lambda: now)
    monkeypatch.setattr(agenda, "certify", functools.partial(agenda.certify, max_nodes=100))


@pytest.fixture(autouse=True)
def short_agenda(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each kind of trial, no search and no training."""
    short = {"_OTHERS": ("noise", "square:queries=8"), "_FIRST_POINTS": 1, "_WINDOWS": 2}
    few = {"_FEW": (1,), "_LARGE": (1.0,), "_SEARCHED": 0, "_CERTIFICATES": 1, "_STRONG": ("fgsm", "max-diff")}
    others = {"_FAULTS": agenda._FAULTS[:1], "_CHANNEL": ("observation-delay:steps=1",), "_RATES": (0.5,)}
    for name, value in {**short, **few, **others}.items():
        monkeypatch.setattr(agenda, name, value)
    monkeypatch.setattr(eps_search, "_CLOSE", 2.0)
    monkeypatch.setattr(cost, "STEPS", 2)


@pytest.fixture
def few_details(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but sweeps, actions and what there is to change of a body: for tests that look at no other row."""
    for name in ("_FEW", "_LARGE", "_FAULTS"):
        monkeypatch.setattr(agenda, name, ())
    monkeypatch.setattr(agenda, "_MOST_STUCK", 0)
    monkeypatch.setattr(agenda, "_MOST_FEATURES", 0)


@pytest.fixture(scope="module")
def reports() -> dict[type, Any]:
    """By environment, the report of :class:`Plain` there, whose folder is not to be written to."""
    return {}


@pytest.fixture
def plain_report(
    reports: dict[type, Any], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> Callable[[type], Any]:
    """Makes the report of :class:`Plain` in an environment, once for all tests, and a copy of its folder."""

    def made(env: type) -> Any:
        if env not in reports:
            reports[env] = found(Plain(), env, tmp_path_factory.mktemp("plain") / "out")
        shutil.copytree(reports[env].folder, tmp_path / "out")
        return reports[env]

    return made


class Deaf4(torch.nn.Module):
    """Pushes to the right, whatever CartPole shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        torch.nn.init.zeros_(self.layer.weight)
        self.layer.bias.data = torch.tensor([0.0, 1.0])

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


def found(net: Any, env: Any, out: Path, **given: Any) -> Any:
    return report(victim(net), env, MINUTES, out=out, episodes=5, **given)


def test_an_agent_that_breaks_below_a_hundredth(plain_report: Callable[[type], Any]) -> None:
    made = plain_report(Narrow)
    assert made.verdict.figure.eps < 0.01
    assert " on feature 0 leaves " in made.verdict.hurts["Weakest feature"]
    assert "feature 0 alone" in made.verdict.sentence
    why = [text for text in made.verdict.cannot_tell if "train-agent" in text]
    assert len(why) == 1 and why[0].startswith("No training by train-agent is advised: "), "it has no layers"


@pytest.mark.slow
def test_noise_is_first_and_stronger_attacks_move_the_sweep_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient flips a guess by less than noise does, and is played at smaller eps for that."""
    monkeypatch.setattr(agenda, "_STRONG", ("fgsm",))
    monkeypatch.setattr(agenda, "_OTHERS", ("noise",))
    monkeypatch.setattr(eps_search, "_CLOSE", 1.5)
    told = list[str]()
    made = found(Plain(), Guess, tmp_path / "out", tell=told.append)
    left = {row["threat"]: row["mean_return"] for row in made.report.threats}
    first, *others = left
    names = [first, *reversed(others)]  # the newest stands first
    assert any(sentence.startswith("fgsm, ") for sentence in told), "an attack has one name, told and on the page"
    assert names[2].startswith("fgsm:"), "noise alone is no attack"
    assert names[1].startswith("noise:") and min(left[name] for name in names if "noise:eps=0.2," in name) > 10
    assert made.verdict.figure.attack == "fgsm" and made.verdict.figure.eps < 0.2
    strong = next(i for i, name in enumerate(names) if name.startswith("fgsm"))
    alone = next(i for i, name in enumerate(names) if name.endswith(";0"))
    assert strong < alone, "what is strong comes before single features"
    assert "(noise, fgsm)" in made.verdict.sentence and "rests on 5 episodes" in made.verdict.sentence


def test_a_search_that_time_ends_keeps_the_episodes_that_it_came_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lost all of them, and a report that was short of time called an agent whole that falls to a search."""
    now = [0.0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])
    monkeypatch.setattr(agenda, "_TOGETHER", 1)
    monkeypatch.setattr(agenda, "training_step_seconds", lambda *_: 0.25)

    class Clocked(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            now[0] += 0.02
            return super().step(action)

    for name in ("_STRONG", "_OTHERS", "_FEW"):
        monkeypatch.setattr(agenda, name, ())
    monkeypatch.setattr(agenda, "_SEARCHED", 1)
    brief = functools.partial(gym.make, "CartPole-v1", max_episode_steps=20)
    slow = report("zoo:cartpole-ppo", lambda: Clocked(brief()), MINUTES, out=tmp_path / "out", episodes=4)
    searched = [row for row in slow.report.threats if "<recorded>" in row["threat"]]
    cut = [row for row in searched if row["episodes"] < 4]
    assert cut and all(len(row["returns"]) == row["episodes"] for row in cut)
    [clean] = [row for row in slow.report.threats if row["threat"] == "none"]
    for row in cut:
        assert row["regret"] == pytest.approx(np.mean(clean["returns"][: row["episodes"]]) - row["mean_return"])
    assert f"on {cut[0]['episodes']} of 4 episodes" in slow.page.read_text()
    assert now[0] < 70 and slow.choices.training.seconds == 0.25


def short_cartpole() -> Any:
    return gym.make("CartPole-v1", max_episode_steps=40)


@pytest.mark.slow
def test_whole_episodes_are_searched_before_weak_attacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of PPO loses nothing to noise and gradients where a search over whole episodes takes half."""
    for name in ("_SEARCHED", "_CERTIFICATES"):
        monkeypatch.setattr(agenda, name, 1)
    for name in ("_STRONG", "_OTHERS", "_FEW"):
        monkeypatch.setattr(agenda, name, ())
    made = report("zoo:cartpole-ppo", short_cartpole, MINUTES, out=tmp_path / "out", episodes=1)
    figure = made.verdict.figure
    assert figure is not None and figure.attack == "episode search" and figure.eps is not None
    left = {
        row["threat"]: row["mean_return"] for row in made.report.threats if row["threat"].startswith("fgsm:eps=0.2,")
    }
    assert figure.eps < 0.4 and figure.mean <= 25 and min(left.values()) == 40
    assert "(episode search)" in made.verdict.sentence


def test_minutes_count_from_when_the_program_began(tmp_path: Path) -> None:
    made = found(Plain(), Guess, tmp_path / "out", began=time.monotonic() - 600)
    assert [row["threat"] for row in made.report.threats] == ["none"] and made.page.exists()
    assert made.choices.seconds is not None and made.choices.seconds > 600


class Loaded(Narrow):
    """Guesses count for nothing where it carries more than its own weight."""

    physical_parameters = {"mass": "m", "stiffness": "k"}  # noqa: RUF012
    m = k = 2.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        return obs, reward if self.m <= 2.0 else 0.0, *rest  # type: ignore[return-value]


@pytest.mark.slow
def test_an_agent_that_breaks_under_a_load(
    tmp_path: Path, plain_report: Callable[[type], Any], request: pytest.FixtureRequest
) -> None:
    """Each kind of parameter that has factors is made smaller and larger; an environment without any says so."""
    left = plain_report(Narrow)
    request.getfixturevalue("few_details")  # whose rows the report of other tests has
    made = found(Plain(), Loaded, tmp_path / "loaded")
    with Store(tmp_path / "loaded" / "rows.db") as store:
        rows = {row["threat"]: row["mean_return"] for _, row in store.rows()}
    assert rows["fixed-dynamics:values=1.3,at=mass"] == 0.0 < rows["fixed-dynamics:values=0.7,at=mass"]
    assert not any("stiffness" in text for text in rows)
    assert made.verdict.hurts["Worst change of body or world"].startswith("mass times 1.3")
    assert "Worst change of body or world" not in left.verdict.hurts
    assert any("Its body and its world were left as they are" in text for text in left.choices.not_tried)
    assert any("give least_reward=, or least_return=" in text for text in left.choices.not_tried)


VECTOR, GOAL = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)
IMAGE, ROOM = spaces.Box(0, 255, (12, 12, 1), np.uint8), spaces.Discrete(3)


@pytest.mark.parametrize(
    ("space", "at"),
    [
        pytest.param(ROOM, (), marks=pytest.mark.slow),
        pytest.param(spaces.MultiDiscrete([3, 2]), (), marks=pytest.mark.slow),
        pytest.param(spaces.MultiBinary(2), (), marks=pytest.mark.slow),
        pytest.param(spaces.Box(-1, 1, (), np.float32), (), marks=pytest.mark.slow),
        pytest.param(spaces.Box(0, 9, (2,), np.int64), (), marks=pytest.mark.slow),
        pytest.param(spaces.Dict(goal=GOAL, observation=VECTOR), ("goal", "observation"), marks=pytest.mark.slow),
        (spaces.Dict(image=IMAGE, room=ROOM, vector=VECTOR), ("vector",)),
        pytest.param(
            spaces.Tuple([ROOM, spaces.Dict(a=GOAL, flag=spaces.Box(0, 1, (1,), bool))]),
            ("1/a",),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["discrete", "multidiscrete", "multibinary", "scalar", "integers", "goals", "mixed", "tuple"],
)
def test_observations_of_every_space(
    space: Any, at: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a page, and what was attacked of the observation stands beside every row."""
    monkeypatch.setattr(agenda, "_FAULTS", agenda._CHANNEL)
    monkeypatch.setattr(agenda, "_STRONG", ("fgsm",))
    monkeypatch.setattr(agenda, "_OTHERS", ("noise",))
    made = report(agent_for(space), lambda: showing(space), MINUTES, out=tmp_path / "out", episodes=1, tell=None)
    assert made.choices.at == at and len(made.report.threats) > 4
    page = made.page.read_text()
    assert ("all features" in page) == (not at and isinstance(space, spaces.Box))
    assert all(f"all of {', '.join(keys)}" in page for keys in [at] if keys)
    if isinstance(space, spaces.Dict) and "image" in space.spaces:
        said = str([row["threat"] for row in made.report.threats])
        assert all(text in said for text in ("at=image", "at=vector", "at=room", "rotation:"))
    if "Tuple" in str(space):
        assert any("bool" in sentence for sentence in made.choices.not_tried)


@pytest.mark.slow
@pytest.mark.usefixtures("few_details")
def test_episodes_of_a_single_step(tmp_path: Path) -> None:
    """Blackjack, and contextual bandits: there is no second step whose time tells the price of a row."""

    class Bandit(Guess):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            obs, reward, *_ = super().step(action)
            return obs, reward, True, False, {}

    made = found(Plain(), Bandit, tmp_path / "out")
    assert made.verdict.figure.mean < made.verdict.figure.of


def test_parts_that_there_was_no_time_for_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is silent of an image would call the agent whole that never saw an attacked one."""

    def over(self: Any, part: Any) -> None:
        raise OutOfTime

    monkeypatch.setattr(agenda.Agenda, "_sweep_part", over)
    monkeypatch.setattr(agenda.Agenda, "_changes_of_images", lambda self: None)
    space = spaces.Dict(image=IMAGE, vector=VECTOR)
    made = report(agent_for(space), lambda: showing(space), MINUTES, out=tmp_path / "out", episodes=1, tell=None)
    assert "Nothing was tried on image: the time was over before." in made.verdict.cannot_tell


@pytest.mark.usefixtures("few_details")
def test_parts_that_no_attack_fits_are_named_with_that_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrialPlayer, "fits", lambda *_: "it is an image")
    made = report(agent_for(IMAGE), lambda: showing(IMAGE), MINUTES, out=tmp_path / "out", episodes=1, tell=None)
    assert "Nothing was tried on what the agent sees: it is an image" in made.verdict.cannot_tell
    assert not any("the time was over" in sentence for sentence in made.verdict.cannot_tell)


def test_a_training_ends_with_its_time_between_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes a tenth of a second, and the next checkpoint is far away."""
    pytest.importorskip("stable_baselines3")
    now = [0.0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])

    class Slow(Guess):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            now[0] += 0.1
            return super().step(action)

    agent = victim(Plain())
    sections: Any = SimpleNamespace(
        environment=adv.Environment.of(Slow, agent), victim=agent, rows=SimpleNamespace(episodes=Episodes(1, 0)),
        path=tmp_path, seed=0, num_envs=2, deadline=deadline.Deadline(6.25),
    )  # fmt: skip
    with pytest.raises(OutOfTime):
        agenda.Agenda._trained(sections, "pa-ad", 10_000, adv.Linf(0.1))
    assert 5.0 <= now[0] < 20.0


class Slow(Guess):
    """Each step takes a second."""

    now = 0.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Slow.now += 1.0
        return super().step(action)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> type[Slow]:
    """The environment, by whose steps alone time passes."""
    monkeypatch.setattr(Slow, "now", 0.0)
    monkeypatch.setattr(deadline, "clock", lambda: Slow.now)
    monkeypatch.setattr(ranges_module, "time", SimpleNamespace(perf_counter=lambda: Slow.now))
    timer = functools.partial(cost.StepTimer, clock=lambda: Slow.now)
    monkeypatch.setattr(cost, "StepTimer", timer)
    return Slow


def test_the_time_is_over_before_the_end_of_an_episode(slow: type[Slow], tmp_path: Path) -> None:
    """Its twenty steps take longer than the time for all, which is held nevertheless."""
    words = r"12 seconds were over .* not over after 6 steps of about 1 s\. Give more time.*minutes=.*max_episode_steps"
    with pytest.raises(ValueRangeError, match=words):
        report(victim(Plain()), slow, 0.2, out=tmp_path / "out", tell=None)
    assert slow.now < 12


def test_a_slow_environment_has_fewer_episodes(slow: type[Slow], tmp_path: Path) -> None:
    """Three episodes of twenty seconds would take too much of four minutes, in which attacks are to be played."""
    made = report(victim(Plain()), slow, 4, out=tmp_path / "out", tell=None)
    assert made.choices.episodes == 2 and "rests on 2 episodes alone" in made.verdict.sentence
    assert slow.now < 4 * 60 + 5


@pytest.mark.usefixtures("few_details")
def test_a_certified_agent(tmp_path: Path) -> None:
    """The agent answers the same whatever it sees, which is proved where saved states can be searched."""
    steady = adv.load_victim("zoo:cartpole-dqn")
    net = Deaf4()
    agent = adv.from_module(net, steady.observation_space, steady.action_space, "logits")
    made = report(agent, "CartPole-v1", MINUTES, out=tmp_path / "out", episodes=1)
    assert made.verdict.figure.certified_eps is not None
    assert "proved" in made.verdict.sentence
    assert made.verdict.sentence.startswith("Nothing that was tried changes a single action")
    assert not any(step.command for step in made.verdict.next)


@pytest.mark.slow
@pytest.mark.usefixtures("few_details")
def test_another_call_with_less_time_keeps_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, attacks in (("_OTHERS", ()), ("_STRONG", ("max-diff",))):
        monkeypatch.setattr(agenda, name, attacks)
    first = found(Plain(), Guess, tmp_path / "out")

    def over(self: Any) -> None:
        raise OutOfTime

    monkeypatch.setattr(agenda.Agenda, "_strongest_first", over)
    again = found(Plain(), Guess, tmp_path / "out")
    assert again.verdict.figure.mean == first.verdict.figure.mean
    assert again.verdict.figure.eps == first.verdict.figure.eps
    before, after = ({row["threat"] for row in one.report.threats} for one in (first, again))
    assert before == after
    assert json.loads((tmp_path / "out" / "report.json").read_text())["threats"][-1]["threat"] in before
    assert not {one.threat for one in again.choices.untried} & {"max-diff", "noise"}


def test_the_first_search_is_as_wide_as_one_batch_of_ascents() -> None:
    assert [agenda.first_width(actions) for actions in (1, 2, 3, 4, 18)] == [32, 32, 16, 8, 8]


def test_one_command_plays_all_that_there_was_no_time_for(plain_report: Callable[[type], Any]) -> None:
    """The order of a report is fixed: what comes later is played after all before it."""
    choices = plain_report(Narrow).choices
    seconds = sum(one.seconds for one in choices.untried)
    assert seconds > 0 and f"minutes={math.ceil(MINUTES + 1.5 * seconds / 60)})" in choices.more


def test_what_a_users_environment_raises_in_a_training_is_said(tmp_path: Path) -> None:
    """Its constructor: more instances than there are licences for."""
    pytest.importorskip("stable_baselines3")

    class Licensed(Guess):
        made = 0

        def __init__(self) -> None:
            Licensed.made += 1
            if Licensed.made > 3:
                raise RuntimeError("no licence is left")
            super().__init__()

    agent = victim(Plain())
    environment = adv.Environment.of(Licensed, agent)
    clean = made_row("none", [20.0])
    rows: Any = SimpleNamespace(
        victim=agent, environment=environment, episodes=Episodes(1, 0), clean=clean,
        deadline=deadline.Deadline(1e5), close=lambda: None,
        leave_out=lambda *_: None, out=tmp_path,
    )  # fmt: skip
    ranges: Any = SimpleNamespace(
        seconds=0.0, scale=None, image=False, levels=1.0, whole=False, least_eps=0.0, unfit=()
    )
    trial = Trial(made_row("noise:eps=0.1", [5.0]), clean)
    sections = agenda.Agenda(rows, ranges, ReportChoices(), [trial], lambda _: None)
    sections._train()
    [said] = sections.not_tried
    assert said.startswith(
        "No adversary (pa-ad) was trained to the end: cannot make 32 environments side by side: no licence is left"
    )


def test_the_folder_of_another_agent_is_left_alone(tmp_path: Path, plain_report: Callable[[type], Any]) -> None:
    plain_report(Narrow)
    kept = (tmp_path / "out" / "choices.json").read_bytes()
    with pytest.raises(ValueRangeError, match="holds the report of"):
        found(Deaf(), Narrow, tmp_path / "out")
    with pytest.raises(ValueRangeError, match="holds the report of"):
        found(Plain(), Narrow, tmp_path / "out", seed=1)
    assert (tmp_path / "out" / "choices.json").read_bytes() == kept
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(ValueRangeError, match="is not empty and holds no report"):
        found(Plain(), Guess, tmp_path / "other")


@every_case(
    ("given", "error", "message"),
    [
        ({"minutes": 0}, ValueRangeError, "minutes"),
        ({"minutes": float("nan")}, ValueRangeError, "minutes"),
        ({"episodes": 0}, ValueRangeError, "episodes"),
        ({"env": "MountainCar-v0"}, VictimError, "observation"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        report(victim(Plain()), **{"env": Guess, "minutes": MINUTES, "out": tmp_path / "out", **given})
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("few_details")
def test_an_interrupted_report_has_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it, the page says what is known, and the same call goes on."""
    for name in ("_STRONG", "_OTHERS"):
        monkeypatch.setattr(agenda, name, ())

    killed = tmp_path / "killed"

    def interrupt(sentence: str) -> None:
        if sentence.startswith("errors of what the agent sees"):
            shutil.copytree(tmp_path / "out", killed)
        if sentence == "actions":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        found(Plain(), Guess, tmp_path / "out", tell=interrupt)
    kept = json.loads((tmp_path / "out" / "choices.json").read_text())
    assert not kept["finished"] and (tmp_path / "out" / "report.html").exists()
    assert found(Plain(), Guess, tmp_path / "out").choices.finished
    assert found(Plain(), Guess, killed).choices.finished, "where nothing could be written at the end"
