"""What an environment returns, checked: sentences instead of tracebacks from inside Gymnasium's vectors.

People's environments run in other libraries, or in a loop of their own, that ask for less than Gymnasium does:
``reset`` without a seed, ``step`` with four values, a reward in an array of one. :class:`CheckedEnv` is around every
environment that :class:`.Environment` makes, and looks at all that comes out of it; layers around an environment of a
user's own look at every reset and at the first steps. Neither changes anything; a list for a tuple is taken.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import TimeLimit

from adv_wrappers.core.action_masks import MASK, MASK_NAMES, as_mask, mask_choices, mask_name
from adv_wrappers.core.types import Info, Space
from adv_wrappers.environments.object_snapshot import KeepsItself, Walk, make_worlds_anew
from adv_wrappers.errors import AdvWrappersError, SpaceError

NOTICED_STEPS, MOST_STEPS = 5_000, 15_000  # of an episode that nothing limits
CHECKED_STEPS = 3  # of the environment beneath the innermost layer
LIMIT = "max_episode_steps=1000 among env_kwargs="  # which helps there
_RESET = "def reset(self, *, seed=None, options=None): super().reset(seed=seed); ...; return observation, {}"
_STEP = "return observation, float(reward), terminated, truncated, {}"
_REWARDS = frozenset((float, np.float64, np.float32, np.int64))  # int may be too large for a float
_FLAGS = frozenset((bool, np.bool_))
_LARGEST = 2**63

Env = gym.Env[Any, Any]


class TransparentEnv(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that is not seen: texts, attributes and the spec are those of the environment that it is around."""

    def __str__(self) -> str:
        return str(self.env)

    def __repr__(self) -> str:
        return repr(self.env)

    def __getattr__(self, name: str) -> object:
        """What is looked for in the environment."""
        if name == "env" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.env, name)

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]
        """The spec of the environment."""
        return self.env.spec


# Calls that are under way, by the identity of what is called: the call, of which environment or function, and how many
# came before.
_UNDER_WAY: dict[int, tuple[str, object, int]] = {}
_MAKING = "the function that makes the environment"
_ALIVE: weakref.WeakSet[CheckedEnv] = weakref.WeakSet()
HANGING_SECONDS = 30.0  # without an answer, after which it is said which call waits
_LOOK_SECONDS = 5.0


def hanging(since: Mapping[tuple[int, int], float], now: float) -> tuple[dict[tuple[int, int], float], list[str]]:
    """Since when each call is under way, and a sentence for each that just became one that hangs.

    Args:
        since: what this returned before: by what is called, and how many calls came before, seconds; infinity for a
            call that was told of.
        now: seconds.
    """
    found, sentences = dict[tuple[int, int], float](), list[str]()
    for key, (call, of, before) in [*_UNDER_WAY.items()]:
        began = since.get((key, before), now)
        if now - began >= HANGING_SECONDS:
            called = f"{call} of {_name(of)}" if isinstance(of, gym.Env) else f"{call}, {of!s:.60},"
            sentences.append(f"{called} has not answered for {now - began:.0f} s")
            began = math.inf
        found[key, before] = began
    return found, sentences


def _watch() -> None:
    """Say on the standard error which call hangs, as long as there are environments; in a thread, one a process."""
    since = dict[tuple[int, int], float]()
    while _ALIVE or _UNDER_WAY:
        time.sleep(_LOOK_SECONDS)
        since, sentences = hanging(since, time.monotonic())
        for sentence in sentences:
            with contextlib.suppress(OSError, ValueError):  # a standard error that was closed meanwhile
                print(sentence, file=sys.stderr, flush=True)


class CheckedEnv(TransparentEnv, KeepsItself):
    """Looks at all that an environment returns, and passes it on. Specs and texts of environments do not name it.

    Where the environment says elsewhere which actions are allowed, as by a method ``action_masks``, its infos hold that
    as ``action_mask``. One of Box2D begins every episode in a world of its own: BipedalWalker and CarRacing keep
    theirs, and so what an episode meets would depend on those before it.

    An episode that does not end is an error after ``MOST_STEPS`` steps, unless a
    :class:`gymnasium.wrappers.TimeLimit`, or the environment's spec, says how long it may be.

    Args:
        env: the environment.

    Raises:
        SpaceError: at ``reset`` and ``step``, for answers that are not those of a ``gymnasium.Env``, for an episode
            that does not end, and for whatever the environment itself raises.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        space = env.observation_space
        box = isinstance(space, spaces.Box)
        self._shape = space.shape if box else None  # None is no array's shape
        self._dtype = np.dtype(space.dtype) if box else None
        self._space = space
        self._steps, self._notice = 0, math.inf if is_limited(env) else NOTICED_STEPS
        self._calls = 0
        self._masks = mask_method(env)
        self._choices = mask_choices(env.action_space)
        _ALIVE.add(self)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment."""
        self._steps, self._calls = 0, self._calls + 1
        _UNDER_WAY[id(self)] = "reset", self.env, self._calls
        try:
            make_worlds_anew(self.env.unwrapped)
            answer = checked_reset(self.env, seed, options, self._space)
        except (Exception, SystemExit) as error:
            raise _raised(self.env, "reset", error)  # noqa: B904  # it has its cause
        finally:
            del _UNDER_WAY[id(self)]
        return answer[0], self._with_mask(answer[1])

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, Info]:
        """One step; what is as usual passes a few comparisons."""
        # what is under way is noted, so that a step that never returns can be told of
        self._calls += 1
        _UNDER_WAY[id(self)] = "step", self.env, self._calls
        try:
            answer = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise _raised(self.env, "step", error)  # noqa: B904
        finally:
            del _UNDER_WAY[id(self)]
        if type(answer) is not tuple or len(answer) != 5:
            check_step(self.env, answer, self._space)
            answer = tuple(answer)
        # the usual types are let through, and whatever else comes is looked at closely
        obs, reward, terminated, truncated, info = answer
        if not (
            type(obs) is np.ndarray
            and obs.shape == self._shape
            and obs.dtype is self._dtype
            and (type(reward) in _REWARDS or (type(reward) is int and -_LARGEST < reward < _LARGEST))
            and type(terminated) in _FLAGS
            and type(truncated) in _FLAGS
            and type(info) is dict
        ):
            check_step(self.env, answer, self._space)
            if type(obs) is np.ndarray and self._shape is not None:
                self._dtype = obs.dtype  # such as float64 where float32 is declared: as usual from now on
        self._steps += 1
        if self._steps >= self._notice:
            self._goes_on()
        if self._masks is None and not info:
            return answer
        return obs, reward, terminated, truncated, self._with_mask(info)

    def _with_mask(self, info: Info) -> Info:
        """``info`` with the action mask, which the environment may say elsewhere."""
        if MASK in info:
            return info
        if self._masks is not None:
            return {MASK: self._masks(), **info}
        name = mask_name(info, self._choices)
        return info if name is None else {MASK: as_mask(info[name], self._choices, name), **info}

    def close(self) -> None:
        """Close the environment; what it raises there is a warning, since what was played is worth no less."""
        self._calls += 1
        _UNDER_WAY[id(self)] = "close", self.env, self._calls
        _ALIVE.discard(self)
        try:
            super().close()
        except (Exception, SystemExit) as error:
            found = _raised(self.env, "close", error)
            if found is error:
                raise
            warnings.warn(str(found), stacklevel=2)
        finally:
            del _UNDER_WAY[id(self)]

    def keep(self, walk: Walk) -> None:
        """Keep the contents of the environment in a snapshot, and the number of steps."""
        walk.visit(self.env)
        walk.kept.append((_put_steps, self, self._steps))

    def _goes_on(self) -> None:
        """Say that an episode does not end, and end it at last."""
        if self._steps == NOTICED_STEPS:
            warnings.warn(
                f"an episode of {_name(self.env)} has not ended after {NOTICED_STEPS} steps, and nothing says when it "
                f"will: {LIMIT} would end it",
                stacklevel=3,
            )
        if self._steps >= MOST_STEPS:
            raise SpaceError(
                f"an episode of {_name(self.env)} has not ended after {MOST_STEPS} steps, and nothing says when it "
                f"will: {LIMIT} ends it (gymnasium.wrappers.TimeLimit), with whatever number an episode may have"
            )


def mask_method(env: Env) -> Callable[[], Any] | None:
    """What says which actions of an environment are allowed; None without.

    That is its method ``action_masks``, or another of its methods or attributes with such a name, where that has the
    form of a mask.
    """
    names = (f"{get}{name}" for get in ("", "get_") for name in MASK_NAMES)
    name = next(filter(env.has_wrapper_attr, names), None)
    if name is None or name == MASK_NAMES[0]:  # as MaskablePPO (sb3-contrib) asks for it
        return None if name is None else env.get_wrapper_attr(name)
    choices = mask_choices(env.action_space)
    if not choices:
        return None

    def ask() -> Any:
        value = env.get_wrapper_attr(name)
        mask = None
        with contextlib.suppress(TypeError):  # of a method that takes something
            mask = as_mask(value() if callable(value) else value, choices, name)
        return np.ones(sum(choices), np.int8) if mask is None else mask

    return ask


def _put_steps(env: CheckedEnv, steps: int) -> None:
    env._steps = steps


def made_by(make: Callable[[], object]) -> CheckedEnv:
    """The environment that a function makes, checked; a call of either that hangs is told of from now on.

    Raises:
        SpaceError: for what is no single environment.
    """
    maker = getattr(make, "__self__", make)  # an Environment, whose text is its name
    _UNDER_WAY[id(make)] = _MAKING, maker, 0
    if not any(thread.name == _watch.__qualname__ for thread in threading.enumerate()):
        threading.Thread(target=_watch, name=_watch.__qualname__, daemon=True).start()
    try:
        return CheckedEnv(check_one(make()))
    except SystemExit as error:  # as of a simulator without its licence
        raise SpaceError(f"{_MAKING}, {maker!s:.60}, raised {with_place(error)}") from error
    finally:
        _UNDER_WAY.pop(id(make), None)


def is_limited(env: Env) -> bool:
    """Whether an environment says after how many steps its episodes end."""
    if env.spec is not None and env.spec.max_episode_steps is not None:
        return True
    game: Any = getattr(env.unwrapped, "ale", None)  # of the Arcade Learning Environment, which counts frames
    frames = game.getInt("max_num_frames_per_episode") if hasattr(game, "getInt") else 0
    if isinstance(frames, int) and frames > 0:
        return True
    return any(isinstance(one, TimeLimit) or hasattr(one, "_max_episode_steps") for one in _inside(env))


def _inside(env: Any) -> Iterator[Any]:
    """An environment and what its wrappers are around, from the outermost in."""
    while env is not None:
        yield env
        env = env.__dict__.get("env")


def _raised(env: Env, call: str, error: BaseException) -> Exception:
    """What is raised for what a call of an environment raised: a sentence with its place, caused by it."""
    if isinstance(error, AdvWrappersError):
        return error
    found = SpaceError(f"{call} of {_name(env)} raised {with_place(error)}")
    found.__cause__ = error
    return found


def with_place(error: BaseException) -> str:
    """An error of code that is not ours, in words: its kind, its text, and the line that raised it."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{what} ({os.path.basename(at.filename)}, line {at.lineno})"


def check_one(made: object) -> Env:
    """What a function made, if it is one environment with its spaces.

    Raises:
        SpaceError: for vectors of environments, environments of other libraries, and anything else.
    """
    if not isinstance(made, gym.Env):
        raise SpaceError(f"expected one gymnasium.Env, the function made {_kind(made)}")
    # the spaces and the methods that everything here uses
    for name in ("observation_space", "action_space"):
        space = getattr(made, name, None)
        if not isinstance(space, spaces.Space):
            raise SpaceError(
                f"expected {name} of {_name(made)} to be a gymnasium space, got {space!r:.60}: set self.{name} = "
                f"gymnasium.spaces... in its __init__"
            )
    for name, head in (("reset", _RESET), ("step", f"def step(self, action): ...; {_STEP}")):
        if not callable(getattr(made, name, None)):
            raise SpaceError(
                f"expected {name} of {_name(made)} to be a method, got {getattr(made, name)!r:.60}: {head}"
            )
    return made


def _kind(made: object) -> str:
    """What is no environment, and what helps."""
    of = f"{type(made).__module__}.{type(made).__qualname__}"
    if isinstance(made, VectorEnv) or hasattr(made, "step_async"):
        return (
            f"a vector of {getattr(made, 'num_envs', 'several')} ({of}): give a function that makes one, lambda: "
            f"gymnasium.make(...); num_envs= plays several of them side by side"
        )
    if hasattr(made, "possible_agents"):
        return f"one of several agents ({of}): adv_wrappers.SingleAgentEnv(function, agent, others) is one agent's side"
    if made is None:
        return "None: does it return the environment?"
    # a function that makes one, or an environment of the older library
    if isinstance(made, type) or (callable(made) and not hasattr(made, "step")):
        return f"a function or class ({made!r:.60}): give that itself, or call it"
    if any(kind.__module__.partition(".")[0] == "gym" for kind in type(made).__mro__):
        return f"one of the old gym ({of}): shimmy.GymV21CompatibilityV0(env=...) makes a gymnasium.Env of it"
    return f"{of}: derive its class from gymnasium.Env, or wrap it in one that does"


def checked_reset(env: Any, seed: Any, options: Info | None, space: Space | None = None) -> tuple[Any, Info]:
    """``env.reset(seed=seed, options=options)`` of an environment or a vector, whose answer is looked at.

    What the observations of a vector must be, layers check themselves, on any device. ``space`` is what observations of
    one environment are of, by default that which it has now.

    Raises:
        SpaceError: for one that does not take these arguments, or returns something else than an observation of its
            space and a dictionary.
    """
    try:
        answer = env.reset(seed=seed, options=options)
    except TypeError as error:
        # the wrapper, or the environment itself, that does not take what Gymnasium gives to reset
        inside = [*_inside(env)]
        inside += [one for each in getattr(inside[-1], "envs", ()) for one in _inside(each)]
        for one in inside:  # whose it is
            if lacking := [name for name in ("seed", "options") if not takes(one.reset, name)]:
                raise SpaceError(
                    f"reset of {type(one).__name__} takes no {' and no '.join(lacking)}: expected {_RESET}"
                ) from error
        raise
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not isinstance(answer[1], Mapping):
        raise SpaceError(
            f"reset of {_name(env)} must return two values, an observation and a dictionary, got {_short(answer)}: "
            f"return observation, {{}}"
        )
    if isinstance(env, gym.Env):
        _check_observation(env, "reset", answer[0], space)
    found: tuple[Any, Info] = tuple(answer)
    return found


def check_step(env: Env, answer: Any, space: Space | None = None) -> None:
    """Raise :class:`SpaceError` unless this is what ``step`` returns: observation, reward, two flags, a dictionary."""
    of = f"step of {_name(env)}"
    if not isinstance(answer, (tuple, list)) or len(answer) != 5:
        old = ""
        if isinstance(answer, (tuple, list)) and len(answer) == 4:
            old = ", with what was done split into terminated (the game is over) and truncated (time is)"
        raise SpaceError(
            f"{of} must return five values, observation, reward, terminated, truncated and info, got {_short(answer)}: "
            f"{_STEP}{old}"
        )
    # each value by itself
    observation, reward, terminated, truncated, info = answer
    if not _is_number(reward):
        several = math.prod(getattr(reward, "shape", None) or ()) > 1  # as environments of several objectives return
        cure = "gymnasium.wrappers.TransformReward(env, lambda rewards: float(rewards.sum()))" if several else _STEP
        raise SpaceError(f"{of} must return a number as its reward, got {reward!r:.60}{_shape(reward)}: {cure}")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not _is_number(flag) or float(flag) not in (0.0, 1.0):
            raise SpaceError(f"{of} must return True or False as {name}, got {flag!r:.60}{_shape(flag)}: bool({name})")
    if not isinstance(info, Mapping):
        raise SpaceError(f"{of} must return a dictionary as its info, got {info!r:.60}: {_STEP}")
    _check_observation(env, "step", observation, space)


def _is_number(value: Any) -> bool:
    """Whether this is one real number, no text and no array of one."""
    if type(value) in _REWARDS or type(value) in _FLAGS:
        return True
    if isinstance(value, (str, bytes, complex, np.complexfloating)) or getattr(value, "shape", ()) not in ((), None):
        return False
    if not isinstance(value, SupportsFloat) or getattr(getattr(value, "dtype", None), "kind", "f") not in "biuf":
        return False
    try:
        float(value)
    except OverflowError:  # of a whole number that no float is as large as
        return False
    return True


def _check_observation(env: Env, call: str, value: Any, space: Space | None) -> None:
    space = env.observation_space if space is None else space
    try:
        wrong = _misfit(space, value, "observation")
    except (TypeError, ValueError) as error:
        wrong = f"an observation of {space}, got {value!r:.60} ({error})"
    if wrong:
        raise SpaceError(f"{call} of {_name(env)} must return {wrong}: it is what observation_space declares")


def _misfit(space: Space, value: Any, path: str) -> str | None:
    """What was expected of a leaf of an observation and what came; None where it can be one of its space."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            return f"a dictionary as {path}, got {_short(value)}"
        missing = [key for key in space.spaces if key not in value]
        if missing:
            return f"the key {missing[0]!r} in {path}, got {', '.join(map(repr, value))}"
        return next(filter(None, (_misfit(s, value[k], f"{path}[{k!r}]") for k, s in space.spaces.items())), None)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            return f"{len(space.spaces)} values as {path}, got {_short(value)}"
        return next(filter(None, (_misfit(s, value[i], f"{path}[{i}]") for i, s in enumerate(space.spaces))), None)
    if not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return None  # nothing is stacked of a text or a graph
    # a leaf of numbers: their kind, shape and dtype, and of a choice its value
    dtype = np.dtype(space.dtype)
    array: Any = value if isinstance(getattr(value, "dtype", None), np.dtype) else _array(value)
    if array is None or array.dtype.kind not in "biuf":
        return f"numbers of {dtype} and shape {space.shape} as {path}, got {_short(value)}"
    if tuple(array.shape) != tuple(space.shape or ()):
        return f"the shape {space.shape} as {path}, got {tuple(array.shape)}"
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (dtype.kind in "iu" and array.dtype.kind in "biu"):
        return f"{dtype} as {path}, got {array.dtype}"
    if isinstance(space, spaces.Discrete) and not any(0 <= int(array) - first < space.n for first in (0, space.start)):
        return f"a value of {space} as {path}, got {int(array)}"  # and SB3's agents count from 0, whatever start is
    if isinstance(space, spaces.MultiDiscrete) and not any(
        ((array >= first) & (array < first + space.nvec)).all() for first in (0, space.start)
    ):
        return f"values of {space} as {path}, got {array.tolist()}"
    if isinstance(space, spaces.MultiBinary) and not ((array == 0) | (array == 1)).all():
        return f"values of {space} as {path}, got {array.tolist()}"
    return None


def _array(value: Any) -> Any:
    """Lists, numbers and tensors as an array; None for what makes none."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def takes(function: Callable[..., object], name: str) -> bool:
    """Whether a function takes a keyword argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


def _name(env: Any) -> str:
    """The class of an environment, with its id."""
    spec = getattr(env, "spec", None)
    base = type(getattr(env, "unwrapped", env) if isinstance(env, (gym.Env, VectorEnv)) and spec else env).__name__
    return f"{base} ({spec.id})" if spec is not None else base


def _short(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        kind = "" if isinstance(value, tuple) else "a list of "
        return f"{kind}{len(value)} ({', '.join(type(part).__name__ for part in value[:6])})"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"{value!r:.60}"


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f" of shape {tuple(shape)}" if shape else ""
