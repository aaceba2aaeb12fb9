"""The first steps are played twice: environments that do not follow their seed, observations outside their space."""

from __future__ import annotations

import contextlib
import itertools
import random
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments.snapshot import difference
from adv_wrappers.errors import SpaceError
from adv_wrappers.evaluation import first_steps
from adv_wrappers.evaluation.first_steps import OutsideSpace
from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.studies.report.agenda import Agenda
from tests.every_case import every_case

BOX = spaces.Box(-1, 1, (3,))
_COUNT = itertools.count()


class Well(gym.Env[Any, Any]):
    observation_space, action_space = BOX, spaces.Discrete(2)

    def show(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.show(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.show(), float(action), self.t >= 6, False, {}


class GlobalNumpy(Well):
    def show(self) -> Any:
        return np.random.uniform(-1, 1, 3).astype(np.float32)


class GlobalReward(Well):
    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(action)
        return obs, random.random(), *rest


class GlobalEnd(Well):
    def step(self, action: Any) -> Any:
        obs, reward, _, *rest = super().step(action)
        return obs, reward, self.t > 2 + self.ends, *rest

    def reset(self, **given: Any) -> Any:
        self.ends = next(_COUNT) % 2
        return super().reset(**given)


class GlobalTorch(Well):
    def show(self) -> Any:
        return torch.rand(3).numpy()


class OwnGenerator(Well):
    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def show(self) -> Any:
        return self.own.uniform(-1, 1, 3).astype(np.float32)


class NoSeed(Well):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset()


class OverEpisodes(Well):
    level = 0

    def reset(self, **given: Any) -> Any:
        self.level += 1
        obs, info = super().reset(**given)
        return obs / np.float32(self.level), info


def agent(space: Any = BOX) -> Any:
    torch.manual_seed(0)
    return adv.from_module(torch.nn.Linear(3, 2), space, spaces.Discrete(2), "logits")


def said(env: Any, *words: str) -> list[str]:
    found = adv.evaluate(agent(), env, ["noise:eps=0.01"], episodes=2).warnings
    return [text for text in found if any(word in text for word in words)]


@every_case(
    ("env", "where"),
    [
        (GlobalNumpy, "the reset has another observation"),
        (GlobalReward, "step 1 has another reward"),
        (GlobalEnd, "has another terminated"),
        (GlobalTorch, "the reset has another observation"),
        (OwnGenerator, "the reset has another observation"),
        (NoSeed, "the reset has another observation"),
        (OverEpisodes, "the reset has another observation"),
    ],
)
def test_an_environment_that_does_not_follow_its_seed(env: Any, where: str) -> None:
    (sentence,) = said(env, "does not repeat")
    assert where in sentence and "not paired" in sentence and "super().reset(seed=seed)" in sentence


class SeedsNumpy(GlobalNumpy):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        np.random.seed(seed)
        return super().reset()


class OneWorld(Well):
    """All of them are one simulation."""

    world = SimpleNamespace(t=0)

    def reset(self, **given: Any) -> Any:
        self.world.t = 0
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        self.world.t += 1
        obs, _, *rest = super().step(action)
        return obs, float(self.world.t), *rest


class OneSpace(Well):
    """Draws from the space of its class, which every reset seeds."""

    observation_space = spaces.Box(-1, 1, (3,))

    def show(self) -> Any:
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(seed)
        return super().reset()


@pytest.mark.parametrize("env", [SeedsNumpy, OneWorld, OneSpace])
def test_one_that_repeats_alone(env: Any) -> None:
    (sentence,) = said(env, "beside it")
    assert "not paired" in sentence and sentence.endswith("num_envs=1")
    assert not [text for text in adv.evaluate(agent(), env, episodes=2, num_envs=1).warnings if "repeat" in text]


def test_environments_that_differ_from_each_other() -> None:
    class Drawn(Well):
        def __init__(self) -> None:
            self.scale = next(_COUNT)

        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, float(self.scale), *rest

    (sentence,) = said(Drawn, "made alike")
    assert "step 1 has another reward" in sentence and "__init__" in sentence


def test_what_only_happens_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_steps, "MORE_SECONDS", 60)

    class Late(Well):
        def step(self, action: Any) -> Any:
            obs, _, *_ = super().step(action)
            return obs, random.random() if self.t > 90 else 0.0, self.t >= 120, False, {}

    (sentence,) = said(Late, "does not repeat")
    assert "step 91 has another reward" in sentence


class OnlyAtFirst(Well):
    """Its first reset is another one than all later ones, as of a scene that is loaded once."""

    scale = np.float32(0.5)

    def reset(self, **given: Any) -> Any:
        obs, info = super().reset(**given)
        obs, self.scale = obs * self.scale, np.float32(1)
        return obs, info


class LikeAnArray:
    """An observation that is none of NumPy's or torch's, and whose comparison has no truth value."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.values, dtype)

    def __eq__(self, other: Any) -> Any:
        return self.values == other.values


def test_observations_like_arrays_differ_by_more_than_rounding() -> None:
    one, near, far = (LikeAnArray(np.array([1.0, 2.0 + more])) for more in (0.0, 1e-7, 1e-3))
    assert difference(one, one, "observation") == difference(one, near, "observation", 1e-5) == ""
    assert difference(one, near, "observation") and difference(one, far, "observation", 1e-5)


def test_what_the_first_reset_alone_does() -> None:
    assert not said(OnlyAtFirst, "does not repeat")
    one, two = (adv.evaluate(agent(), OnlyAtFirst, episodes=4, num_envs=n).threats[0] for n in (1, 4))
    assert one["returns"] == two["returns"]  # of all environments side by side it is over


@pytest.mark.parametrize("env", [Well, "CartPole-v1", "LunarLander-v3"])
def test_one_that_does(env: Any) -> None:
    victim = "zoo:cartpole-dqn" if env == "CartPole-v1" else agent()
    if env == "LunarLander-v3":
        pytest.importorskip("Box2D")
        victim = adv.from_module(torch.nn.Linear(8, 4), spaces.Box(-10, 10, (8,)), spaces.Discrete(4), "logits")
    report = adv.evaluate(victim, env, episodes=1)
    assert not [text for text in report.warnings if "repeat" in text]
    assert "unrepeated" not in report.threats[0]["checks"]


def test_rows_say_it_wherever_they_are_kept(tmp_path: Any) -> None:
    victim = agent()
    found = [adv.evaluate(victim, NoSeed, episodes=2, out=tmp_path, resume=resume) for resume in (False, True)]
    for report in found:
        assert (
            "does not repeat" in report.threats[0]["checks"]["unrepeated"] and "does not repeat" in report.warnings[0]
        )


def test_results_and_keys_are_as_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def row() -> Any:
        found = adv.evaluate(agent(), Well, ["noise:eps=0.1"], episodes=3, num_envs=2)
        return [(one["returns"], one["lengths"], one["linf"]) for one in found.threats]

    looked = row()
    monkeypatch.setattr("adv_wrappers.evaluation.player.unrepeated", lambda *_: "")
    assert row() == looked


class Far(Well):
    """Leaves its space in the second feature, at the end of an episode."""

    def show(self) -> Any:
        obs = super().show()
        obs[1] = 5.0 if self.t == 6 else 0.0
        return obs


def test_an_observation_outside_of_its_space() -> None:
    (sentence,) = said(Far, "outside of the declared space")
    assert "observation[1] was 5, outside of the declared space (-1 to 1)" in sentence
    assert "half of its ball is missing" in sentence and "TransformObservation" in sentence
    assert not said(Well, "outside")
    wide = gym.wrappers.TransformObservation
    assert not said(lambda: wide(Far(), lambda x: x, spaces.Box(-np.inf, np.inf, (3,))), "outside")


def test_actions_outside_of_their_space() -> None:
    class Started(Well):
        action_space = spaces.Discrete(2, start=1)

    (sentence,) = said(Started, "declares Discrete(2, start=1)")
    assert "plays actions of Discrete(2), and" in sentence and "own action_space, Discrete(2, start=1)" in sentence
    followed = adv.from_module(torch.nn.Linear(3, 2), BOX, spaces.Discrete(2, start=1), "logits")
    assert "declares" not in str(adv.evaluate(followed, Started, [], episodes=1).warnings)


@pytest.mark.parametrize("most", [1, 255])
def test_grey_levels_that_are_shares(most: int) -> None:
    class Grey(Well):
        observation_space = spaces.Dict(a=spaces.Box(0, 255, (2, 2), np.uint8), b=BOX)

        def show(self) -> Any:
            return {"a": self.np_random.integers(0, most + 1, (2, 2)).astype(np.uint8), "b": super().show()}

    agent = adv.from_module(lambda x: x["a"].flatten(1)[:, :2], Grey.observation_space, spaces.Discrete(2), "logits")
    found = [text for text in adv.evaluate(agent, Grey, [], episodes=1).warnings if "goes to 255" in text]
    assert len(found) == (most == 1)
    for text in found:
        assert "observation['a'] was never above 1" in text and "Box(0, 1, (2, 2), numpy.uint8)" in text


def test_leaves_that_lie_outside() -> None:
    space = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1, 2), np.uint8)]))
    look = OutsideSpace(space)
    shown = {"a": np.zeros((4, 3)), "b": (np.zeros(4), np.zeros((4, 1, 2), np.uint8))}
    look.look(shown)
    assert look.found == ""
    shown["b"][1][2, 0, 1] = 12
    look.look(shown)
    assert look.found.startswith("observation['b'][1][0][1] was 12, outside of the declared space (0 to 9)")


@pytest.mark.parametrize(
    ("space", "shown"),
    [
        (spaces.Box(np.float32(-0.7), np.float32(0.7), (2,)), np.array([0.7, -0.7])),  # float32 of 0.7 is below it
        (BOX, np.array([1.0000001, 0, -1.0000002], np.float32)),
        (spaces.Box(-3.4e38, 3.4e38, (1,)), np.array([3.4e38], np.float32)),
    ],
)
def test_values_on_a_bound_in_another_precision(space: Any, shown: Any) -> None:
    look = OutsideSpace(space)
    look.look(shown, 0)
    assert look.found == ""


def test_reports_claims_and_plans_say_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Agenda, "play", lambda *_: None)  # what is said stands before all that is tried
    found = adv.report(agent(), NoSeed, minutes=1.0, out=tmp_path / "{report}", num_envs=1, tell=told.append)
    assert [text for text in told if "WARNING: the environment does not repeat" in text]
    assert any("does not repeat" in reason for reason in found.choices.reasons)
    with pytest.warns(UserWarning, match="does not repeat") as said, contextlib.suppress(adv.errors.NotRobust):
        adv.assert_robust(agent(), NoSeed, attacks=["noise:eps=0.01"], min_return=5.0, most_episodes=20)
    assert len(said) == 1
    adv.save_card(tmp_path / "card", agent(), environment="x")
    plan = {"victims": [f"card:{tmp_path / 'card'}"], "environments": [{"id": "x", "make": f"{__name__}:no_seed"}]}
    with Store(tmp_path / "rows.db") as store, pytest.warns(UserWarning, match="x .*: the environment does") as said:
        run(Plan.of(**plan, threats=["noise:eps=0.01"], seeds=[0, 1], episodes=2), store)
    assert len(said) == 1


def no_seed(name: str) -> Any:
    """Made by a plan."""
    return NoSeed()


class OnlyOne(Well):
    """Refuses to be made while there is one."""

    running = 0

    def __init__(self) -> None:
        if OnlyOne.running:
            raise RuntimeError("the port is taken")
        OnlyOne.running += 1

    def close(self) -> None:
        OnlyOne.running = 0


def test_a_simulator_of_which_only_one_can_run() -> None:
    OnlyOne.running = 0
    with pytest.raises(SpaceError, match=r"the port is taken. Where only one can be at a time: num_envs=1"):
        adv.evaluate(agent(), OnlyOne, episodes=2)
    assert OnlyOne.running == 0  # the first was closed
    assert len(adv.evaluate(agent(), OnlyOne, episodes=2, num_envs=1).threats[0]["returns"]) == 2
    assert OnlyOne.running == 0


def test_the_first_error_is_told_where_closing_fails_too() -> None:
    class BadlyClosed(OnlyOne):
        def close(self) -> None:
            super().close()
            raise RuntimeError("it is not running")

    with (
        pytest.raises(SpaceError, match="the port is taken"),
        pytest.warns(UserWarning, match=r"close of BadlyClosed raised RuntimeError: it is not running \("),
    ):
        adv.evaluate(agent(), BadlyClosed, episodes=2)
    OnlyOne.running = 0
    with pytest.warns(UserWarning, match="it is not running"):
        assert adv.evaluate(agent(), BadlyClosed, episodes=1, num_envs=1).episodes == 1  # what was played is kept


class Slow(Well):
    """Whose steps take long."""

    played = 0

    def step(self, action: Any) -> Any:
        Slow.played += 1
        obs, reward, *rest = super().step(action)
        return obs, reward, self.t >= 60, *rest[1:]


def test_of_slow_environments_fewer_steps_are_played_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(first_steps, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    assert first_steps.unrepeated([Slow()], agent(), 0) == ""
    assert Slow.played == 2 * (1 + first_steps.MOST_SECONDS)


def test_the_same_environment_is_not_played_side_by_side() -> None:
    shared = Well()
    with pytest.raises(SpaceError, match="the same environment was returned twice"):
        adv.evaluate(agent(), lambda: shared, episodes=2)
    adv.evaluate(agent(), lambda: shared, episodes=2, num_envs=1)


def test_an_environment_itself_is_refused_with_what_makes_one() -> None:
    for made in (Well(), gym.vector.SyncVectorEnv([Well])):
        with pytest.raises(SpaceError, match=r"a function that makes one, got .*: give what makes it, such as lambda"):
            adv.evaluate(agent(), made, episodes=1)  # type: ignore[arg-type]
