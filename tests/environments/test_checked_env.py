"""What an environment returns is checked: a sentence says what was expected, what came, and what helps."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments import checked
from adv_wrappers.environments.checked import CheckedEnv, check_one, check_step, is_limited
from adv_wrappers.environments.snapshot import Snapshot
from adv_wrappers.errors import AdvWrappersError, SpaceError
from adv_wrappers.wrappers.layer import wrappers_of
from tests.box2d import needs_box2d
from tests.every_case import every_case

BOX = spaces.Box(-1, 1, (2,))


class Walk(gym.Env[Any, Any]):
    """Shows what it is told to."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any = BOX, shown: Any = None, ends: int | None = 5) -> None:
        self.observation_space, self.ends, self.t = space, ends, 0
        self.shown = np.zeros(2, np.float32) if shown is None else shown

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.shown, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.shown, 1.0, self.t == self.ends, False, {}


def answer(**changed: Any) -> tuple[Any, ...]:
    usual = {"observation": np.zeros(2, np.float32), "reward": 1.0, "terminated": False, "truncated": False, "info": {}}
    return tuple({**usual, **changed}.values())


@every_case("reward", [1, 1.0, True, np.float64(1), np.float32(1), np.int8(1), np.array(1.0), np.bool_(True)])
def test_numbers_are_rewards(reward: Any) -> None:
    check_step(Walk(), answer(reward=reward))


@every_case("reward", ["1.5", b"1", None, 1j, np.array([1.0]), np.array([[1.0]]), [1.0], np.str_("1.5"), 10**400])
def test_nothing_else_is(reward: Any) -> None:
    with pytest.raises(SpaceError, match=r"step of Walk must return a number as its reward, got .*float\(reward\)"):
        check_step(Walk(), answer(reward=reward))


def test_several_rewards_are_made_one() -> None:
    got = re.escape("got array([1., 2.]) of shape (2,): gymnasium.wrappers.TransformReward(env, lambda rewards: float(")
    with pytest.raises(SpaceError, match=got):
        check_step(Walk(), answer(reward=np.array([1.0, 2.0])))


@every_case("flag", [True, np.bool_(False), 0, 1, np.int64(1), np.array(True), 1.0])
def test_flags(flag: Any) -> None:
    check_step(Walk(), answer(terminated=flag, truncated=flag))


@every_case("flag", [float("nan"), None, "False", 2, np.array([True]), [False], np.float32("nan")])
@every_case("name", ["terminated", "truncated"])
def test_no_flags(name: str, flag: Any) -> None:
    with pytest.raises(SpaceError, match=rf"must return True or False as {name}, got .*bool\({name}\)"):
        check_step(Walk(), answer(**{name: flag}))


@every_case("given", [None, 3, (1, 2), (0, 1.0, False, {}), {}, [0, 1.0, False, {}]])
def test_five_values(given: Any) -> None:
    with pytest.raises(SpaceError, match="must return five values"):
        check_step(Walk(), given)


class Lists(Walk):
    """What Gymnasium's own vectors and wrappers unpack as well as tuples."""

    def reset(self, **given: Any) -> Any:
        return [*super().reset(**given)]

    def step(self, action: Any) -> Any:
        return [*super().step(action)]


def test_lists_in_place_of_tuples_are_taken() -> None:
    env = CheckedEnv(Lists())
    assert type(env.reset(seed=0)) is type(env.step(0)) is tuple
    agent = adv.from_module(torch.nn.Linear(2, 2), BOX, spaces.Discrete(2), "logits")
    assert adv.evaluate(agent, Lists, ["noise:eps=0.1"], episodes=2).threats[0]["mean_return"] == 5
    layered = adv.wrap(Lists(), "noise:eps=0.1")
    layered.reset(seed=0)
    assert layered.step(0)[1] == 1.0


DICT = spaces.Dict(a=BOX, b=spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]))


@every_case(
    ("space", "shown"),
    [
        (BOX, [0.0, 1.0]),
        (BOX, np.zeros(2)),  # vectors cast float64
        (BOX, np.zeros(2, int)),
        (spaces.Box(0, 255, (2,), np.uint8), np.zeros(2, np.int64)),
        (spaces.Discrete(3), 2),
        (spaces.Discrete(3), np.int8(2)),
        (spaces.Discrete(3, start=5), 7),
        (spaces.Discrete(3, start=5), 2),  # as SB3 counts
        (spaces.MultiDiscrete([2, 3]), [1, 2]),
        (spaces.Text(4), "left"),
        (DICT, {"a": np.zeros(2, np.float32), "b": (3, np.ones(2, np.int8)), "more": None}),
    ],
)
def test_observations_of_their_space(space: Any, shown: Any) -> None:
    env = CheckedEnv(Walk(space, shown))
    env.reset(seed=0)
    env.step(0)


@every_case(
    ("space", "shown", "words"),
    [
        (BOX, np.zeros(3, np.float32), r"the shape \(2,\) as observation, got \(3,\)"),
        (BOX, np.zeros((1, 2), np.float32), r"the shape \(2,\) as observation, got \(1, 2\)"),
        (BOX, 0.0, r"the shape \(2,\)"),
        (BOX, [[0.0], [0.0, 1.0]], "numbers of float32"),
        (BOX, np.array([0.0, None]), r"numbers of float32 and shape \(2,\) as observation, got an array of object"),
        (BOX, {"a": 1}, "numbers of float32"),
        (BOX, "left", "numbers of float32"),
        (spaces.Box(0, 255, (2,), np.uint8), np.zeros(2), "uint8 as observation, got float64"),
        (spaces.Discrete(3), 3, r"a value of Discrete\(3\) as observation, got 3"),
        (spaces.Discrete(3), 1.5, "int64 as observation, got float64"),
        (spaces.MultiBinary(2), [1], r"the shape \(2,\)"),
        (DICT, np.zeros(2), "a dictionary as observation"),
        (DICT, {"a": np.zeros(2)}, "the key 'b' in observation, got 'a'"),
        (DICT, {"a": np.zeros(1), "b": (1, [0, 1])}, r"the shape \(2,\) as observation\['a'\]"),
        (DICT, {"a": np.zeros(2), "b": (4, [0, 1])}, r"as observation\['b'\]\[0\], got 4"),
        (DICT, {"a": np.zeros(2), "b": (1,)}, r"2 values as observation\['b'\], got 1"),
    ],
)
def test_observations_of_another(space: Any, shown: Any, words: str) -> None:
    with pytest.raises(SpaceError, match=f"reset of Walk must return .*{words}"):
        CheckedEnv(Walk(space, shown)).reset(seed=0)
    env = CheckedEnv(Walk(space))
    env.env.shown = shown
    with pytest.raises(SpaceError, match=f"step of Walk must return .*{words}"):
        env.step(0)


def test_arguments_of_reset_are_named_with_their_class() -> None:
    class Inner(Walk):
        def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
            return super().reset(seed=seed)

    env = CheckedEnv(gym.wrappers.TimeLimit(Inner(), 3))
    with pytest.raises(SpaceError, match=r"reset of Inner takes no options: expected def reset\(self, \*, seed=None"):
        env.reset(seed=0)


def test_a_number_that_no_float_is_as_large_as_is_seen_at_its_step() -> None:
    env = CheckedEnv(gym.wrappers.TransformReward(Walk(), lambda reward: 10**400))
    env.reset(seed=0)
    with pytest.raises(SpaceError, match="must return a number as its reward"):
        env.step(0)


def test_an_environment_that_ends_the_process_is_an_error() -> None:
    class Unlicensed(Walk):
        at = "init"

        def __init__(self) -> None:
            super().__init__()
            self.ask("init")

        def ask(self, call: str) -> None:
            if call == self.at:
                raise SystemExit("no licence")

        def reset(self, **given: Any) -> Any:
            self.ask("reset")
            return super().reset(**given)

        def step(self, action: Any) -> Any:
            self.ask("step")
            return super().step(action)

        def close(self) -> None:
            self.ask("close")

    make = adv.Environment(Unlicensed)
    with pytest.raises(
        SpaceError, match=r"makes the environment, .*Unlicensed.* raised SystemExit: no licence \(test_"
    ):
        make()
    for call in ("reset", "step"):
        Unlicensed.at = call
        env = make()
        with pytest.raises(SpaceError, match=f"{call} of Unlicensed raised SystemExit: no licence"):
            env.reset(seed=0), env.step(0)
    Unlicensed.at = "close"
    with pytest.warns(UserWarning, match="close of Unlicensed raised SystemExit"):
        make().close()


def test_what_an_environment_raises_names_the_call_and_the_place() -> None:
    class Faulty(Walk):
        def step(self, action: Any) -> Any:
            return 1 / self.t

    env = CheckedEnv(Faulty())
    env.reset()
    with pytest.raises(SpaceError, match=r"of Faulty raised ZeroDivisionError: .* \(test_checked_env.py, line \d+"):
        env.step(0)

    class Refusing(Walk):
        def step(self, action: Any) -> Any:
            raise adv.errors.SimulationError("diverged")

    with pytest.raises(adv.errors.SimulationError, match=r"^diverged$"):  # an error of ours stays what it is
        CheckedEnv(Refusing()).step(0)


@every_case(
    ("made", "words"),
    [
        (lambda: None, "None: does it return"),
        (lambda: Walk, "a function or class"),
        (lambda: gym.vector.SyncVectorEnv([Walk]), "a vector of 1 .*num_envs="),
        (lambda: object(), "builtins.object: derive its class from gymnasium.Env"),
        (lambda: (Walk(), None), "builtins.tuple"),
    ],
)
def test_one_environment_is_expected(made: Any, words: str) -> None:
    with pytest.raises(SpaceError, match=f"expected one gymnasium.Env, the function made {words}"):
        check_one(made())


def test_an_episode_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "MOST_STEPS", 8)
    monkeypatch.setattr(checked, "NOTICED_STEPS", 3)
    env = CheckedEnv(Walk(ends=None))
    for _ in range(2):  # the count is that of an episode
        env.reset(seed=0)
        env.step(0), env.step(0)
    with pytest.warns(UserWarning, match="has not ended after 3 steps, .*max_episode_steps"):
        env.step(0)
    state = Snapshot.of(env)
    [env.step(0) for _ in range(4)]
    state.restore(env)
    [env.step(0) for _ in range(4)]
    with pytest.raises(SpaceError, match=r"an episode of Walk has not ended after 8 steps.*max_episode_steps"):
        env.step(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gym.make("CartPole-v1"),
        lambda: gym.wrappers.TimeLimit(Walk(ends=None), 10),
        lambda: adv.Environment(Walk, {"max_episode_steps": 10, "ends": None})(),
    ],
)
def test_a_limit_that_is_known(make: Any) -> None:
    assert is_limited(make())
    assert not is_limited(Walk())


def test_the_limit_of_a_game_is_in_frames() -> None:
    pytest.importorskip("ale_py")
    assert is_limited(adv.Environment("ALE/Pong-v5")())
    game = gym.make("ALE/Pong-v5", max_num_frames_per_episode=0)
    assert not is_limited(game)  # though its spec names a limit


def test_what_was_looked_at_is_as_usual_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    env, looked = CheckedEnv(Walk(shown=np.zeros(2))), list[Any]()  # float64, which vectors cast
    env.reset(seed=0)
    monkeypatch.setattr(checked, "check_step", lambda _, given, space: looked.append(given))
    for _ in range(3):
        env.step(0)
    assert len(looked) == 1


def test_the_limit_of_a_function_is_that_of_gymnasium() -> None:
    env = adv.Environment(Walk, {"max_episode_steps": 3, "ends": None})()
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]
    own = adv.Environment(lambda max_episode_steps: Walk(ends=max_episode_steps), {"max_episode_steps": 2})()
    own.reset(seed=0)
    assert [own.step(0)[2] for _ in range(2)] == [False, True]  # a function that takes it gets it


def test_it_is_not_seen() -> None:
    env = adv.Environment("CartPole-v1")()
    assert env.spec == gym.make("CartPole-v1").spec and str(env) == str(env.env) and env.unwrapped.gravity == 9.8
    assert CheckedEnv not in map(type, wrappers_of(env))
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.reset(seed=1)[0].tolist() == env.reset(seed=1)[0].tolist()


@every_case("how", ["noise:eps=0.1", "action-flip"])
def test_layers_look_at_the_first_steps(how: str) -> None:
    class Old(Walk):
        def step(self, action: Any) -> Any:  # type: ignore[override]
            obs, reward, terminated, _, info = super().step(action)
            return obs, reward, terminated, info

    env = adv.wrap(Old(), how, how)
    env.reset(seed=0)
    with pytest.raises(SpaceError, match="step of Old must return five values"):
        env.step(0)

    class Silent(Walk):
        def reset(self, **given: Any) -> Any:
            return super().reset(**given)[0]

    with pytest.raises(SpaceError, match="reset of Silent must return two values"):
        adv.wrap(Silent(), how).reset(seed=0)
    with pytest.raises(AdvWrappersError, match="expected observation_space of Walk"):
        adv.wrap(Walk(space=None), how)


class Masked(Walk):
    """Says which actions are allowed, of the length that it is told."""

    def __init__(self, mask: Any, action_space: Any = None, later: bool = False) -> None:
        super().__init__()
        self.mask, self.later = mask, later
        self.action_space = action_space or spaces.Discrete(3)

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0], {} if self.later else {"action_mask": self.mask}

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {"action_mask": self.mask})


@every_case(
    ("mask", "space", "lengths"),
    [
        (np.ones(2, np.int8), None, r"3 entries, one for every choice of an action, got 2$"),
        ([1, 1, 1, 1], None, "3 entries.*got 4$"),
        (1, None, "3 entries.*got none"),
        (np.ones(3), spaces.MultiDiscrete([2, 2]), "4 entries.*got 3$"),
        (([1, 1, 1], [1]), spaces.MultiDiscrete([2, 2]), "2 and 2 entries.*got 3 and 1$"),
    ],
)
def test_masks_of_another_length_than_the_actions_are_refused(mask: Any, space: Any, lengths: str) -> None:
    for later in (False, True):
        with pytest.raises(SpaceError, match=f"action_mask must hold {lengths}"):
            layered = adv.wrap(Masked(mask, space, later), "action-noise")
            layered.reset(seed=0)
            layered.step(layered.action_space.sample())


def test_masks_of_another_length_are_refused_in_vectors() -> None:
    vector_env = adv.wrap(gym.vector.SyncVectorEnv([lambda: Masked(np.ones(2, np.int8))] * 2), "action-noise")
    with pytest.raises(SpaceError, match=r"action_mask must hold 3 entries.*got 2"):
        vector_env.reset(seed=0)
    module = pytest.importorskip("stable_baselines3.common.vec_env")
    venv = adv.wrap(module.DummyVecEnv([lambda: Masked(np.ones(2, np.int8))] * 2), "action-noise")
    with pytest.raises(SpaceError, match=r"action_mask must hold 3 entries.*got 2"):
        venv.reset()


class Several(gym.vector.VectorEnv[Any, Any, Any]):
    """Written by hand: returns what it is told to."""

    metadata: dict[str, Any] = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
    num_envs, single_observation_space, single_action_space = 2, BOX, spaces.Discrete(2)
    observation_space, action_space = spaces.Box(-1, 1, (2, 2)), spaces.MultiDiscrete([2, 2])

    def __init__(self, started: Any = None) -> None:
        obs = np.zeros((2, 2), np.float32)
        self.started = (obs, {}) if started is None else started
        self.stepped = obs, np.ones(2), np.zeros(2, bool), np.zeros(2, bool), {}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.started

    def step(self, actions: Any) -> Any:
        return self.stepped


@every_case("started", [np.zeros((2, 2), np.float32), (np.zeros((2, 2), np.float32), None), None])
def test_vectors_written_by_hand_are_looked_at(started: Any) -> None:
    if started is None:
        env = adv.wrap(Several(), "noise:eps=0.1", "action-flip")
        env.reset(seed=0)
        assert env.step(np.zeros(2, int))[1].tolist() == [1.0, 1.0]
        return
    with pytest.raises(
        SpaceError, match="reset of Several must return two values, an observation and a dictionary, got"
    ):
        adv.wrap(Several(started), "noise:eps=0.1").reset(seed=0)


def test_arguments_of_a_reset_inside_a_vector_are_named_with_their_class() -> None:
    class Unseeded(Walk):
        def reset(self, options: Any = None) -> Any:  # type: ignore[override]
            return super().reset(options=options)

    env = adv.wrap(gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Unseeded(), 3)]), "noise:eps=0.1")
    with pytest.raises(SpaceError, match="reset of Unseeded takes no seed: expected def reset"):
        env.reset(seed=0)


@needs_box2d
def test_an_episode_of_box2d_does_not_depend_on_those_before_it() -> None:
    """BipedalWalker resets its own world, which then meets contacts in another order."""

    def played(env: gym.Env, seed: int) -> list[Any]:
        first, _ = env.reset(seed=seed)
        return [first, *(env.step(np.array([1.0, -1.0, 1.0, -1.0], np.float32))[0] for _ in range(60))]

    env = CheckedEnv(gym.make("BipedalWalker-v3"))
    for seed in (0, 1, 0):
        found, new = played(env, seed), played(gym.make("BipedalWalker-v3"), seed)
        assert np.array_equal(found, new)


class Empty(Walk):
    """An environment that is false."""

    def __len__(self) -> int:
        return 0


class Proxy(Walk):
    """Has whatever it is asked for, as a client of a server that calls methods by their names."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **named: None


class Renewed(Walk):
    """Another space after a reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space, self.shown = spaces.Box(-1, 1, (3,)), np.zeros(3, np.float32)
        return super().reset(seed=seed)


def _agent(space: Any = BOX, actions: int = 2) -> Any:
    return adv.from_module(torch.nn.Linear(2, actions), space, spaces.Discrete(actions), "logits")


@pytest.mark.parametrize("kind", [Empty, Proxy])
def test_objects_of_an_odd_kind(kind: Any) -> None:
    assert adv.evaluate(_agent(), kind, ["action-noise:p=1"], episodes=2).threats[1]["mean_return"] == 5


def test_a_space_that_becomes_another_one() -> None:
    with pytest.raises(SpaceError, match=r"reset of Renewed must return the shape \(2,\) as observation, got \(3,\)"):
        adv.evaluate(_agent(), Renewed, episodes=1)


@every_case(
    ("space", "shown"),
    [(spaces.MultiDiscrete([3, 4]), np.array([3, 0])), (spaces.MultiBinary(2), np.array([0, 2], np.int8))],
)
def test_choices_that_are_none(space: Any, shown: Any) -> None:
    with pytest.raises(SpaceError, match="must return values of Multi"):
        CheckedEnv(Walk(space, shown)).reset()


def test_choices_may_be_counted_from_zero() -> None:
    space = spaces.MultiDiscrete([3, 4], start=[5, 6])
    for shown in (np.array([2, 3]), np.array([7, 9])):
        CheckedEnv(Walk(space, shown)).reset()


def test_actions_of_another_number_have_nothing_to_do_with_images() -> None:
    with pytest.raises(AdvWrappersError, match=r"is for action space Discrete\(3\), this") as raised:
        adv.evaluate(_agent(actions=3), Walk, episodes=1)
    assert "channels" not in str(raised.value)


def test_the_second_takes_the_place_of_the_first() -> None:
    class Taken(Walk):
        latest: Any = None

        def __init__(self) -> None:
            super().__init__()
            Taken.latest = self

        def step(self, action: Any) -> Any:
            if Taken.latest is not self:
                raise ConnectionError("lost")
            return super().step(action)

    with pytest.raises(SpaceError, match=r"ConnectionError: lost .*Where only one can be at a time: num_envs=1"):
        adv.evaluate(_agent(), Taken, episodes=2)
    assert adv.evaluate(_agent(), Taken, episodes=2, num_envs=1).threats[0]["mean_return"] == 5


def test_one_that_can_be_made_once(tmp_path: Any) -> None:
    class Once(Walk):
        made = 0

        def __init__(self) -> None:
            super().__init__()
            Once.made += 1
            if Once.made > 1:
                raise RuntimeError("started before")

    with pytest.raises(SpaceError, match="make it once, and give lambda: env and num_envs=1"):
        adv.report(_agent(), Once, minutes=0.02, out=tmp_path / "page", num_envs=1, tell=None)
    Once.made = 0
    env = Once()
    assert adv.evaluate(_agent(), lambda: env, episodes=2, num_envs=1).threats[0]["mean_return"] == 5
