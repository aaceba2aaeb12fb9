"""How environments are made: by an id or a function, with keyword arguments; one value from the public functions on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformObservation

from adv_wrappers.atari.ale import is_atari
from adv_wrappers.atari.env import atari
from adv_wrappers.core.threat import fits, turned
from adv_wrappers.core.types import Space
from adv_wrappers.environments.checked import check_one, made_by, takes
from adv_wrappers.environments.dmc import PREFIX, dmc
from adv_wrappers.environments.gym_make import make_environment
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import AdvWrappersError, SpaceError, TrustError, ValueRangeError
from adv_wrappers.utils.processes import pickled
from adv_wrappers.victims import environment_of
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyEnv
from adv_wrappers.wrappers.order import check_order

_OWN_MODULES = ("adv_wrappers", "ale_py", "gymnasium")  # which are imported anyway
_NAME_ENVIRONMENTS = ("env", "env_id", "make", "entry_point")  # keyword arguments of ids that are made of others


def named_code(id: str, kwargs: object) -> str | None:
    """The module or function that making an environment would import, by its id and keyword arguments; None for none.

    Gymnasium imports what stands before the colon of an id, and ``adv/noise-v0`` has another id in ``env``.

    Args:
        id: of the environment; "" for the keyword arguments alone.
        kwargs: dictionaries, lists and values.

    >>> named_code("somemodule:CartPole-v1", {}), named_code("adv/noise-v0", {"env": "os:system"})
    ('somemodule:CartPole-v1', 'os:system')
    >>> named_code("CartPole-v1", {"max_episode_steps": 50})
    """
    if ":" in id and id.partition(":")[0].partition(".")[0] not in _OWN_MODULES:
        return id
    parts = kwargs.items() if isinstance(kwargs, Mapping) else enumerate(kwargs if isinstance(kwargs, list) else ())
    for name, part in parts:
        own = part if isinstance(part, str) and name in _NAME_ENVIRONMENTS else ""
        if (found := named_code(own, part)) is not None:
            return found
    return None


MakeEnv = Callable[..., AnyEnv]
EnvFactory = Callable[[], AnyEnv]
EnvKwargs = Mapping[str, Any]
_SHOWN = 64  # numbers of an array that are written out
_IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)  # what agents of the DQN lineage see of Atari


@dataclass(frozen=True)
class Environment:
    """How the environments of an evaluation, a search or a training are made; calling it makes one.

    Args:
        env: an id, or a function that makes one environment.
        kwargs: keyword arguments of that; None takes those of the victim's card if it names the same id.
        make: a function called as ``make(id, **kwargs)`` instead of ``gymnasium.make``.
        preprocessing: what an id is made by: ``"atari"``, :func:`adv_wrappers.atari.atari`; ``"dmc"``,
            :func:`adv_wrappers.environments.dmc.dmc`; None, ``gymnasium.make``. :meth:`for_victim` chooses it.
        seen: what the agent sees, which :meth:`for_victim` fills in: images are turned to its order of channels.

    Raises:
        SpaceError: if ``env`` is neither an id nor a function, ``kwargs`` no dictionary, or ``make`` no function.

    >>> import adv_wrappers as adv
    >>> short = adv.Environment("CartPole-v1", {"max_episode_steps": 50})
    >>> adv.evaluate("zoo:cartpole-dqn", short, ["pgd:eps=0.1"], episodes=2).threats[0]["mean_return"]
    50.0
    >>> print(short)
    CartPole-v1 (max_episode_steps=50)
    """

    env: str | MakeEnv
    kwargs: EnvKwargs | None = None
    make: MakeEnv | None = None
    preprocessing: Literal["atari", "dmc"] | None = None
    seen: Space | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.env, str) or callable(self.env)):
            made = ": give what makes it, such as lambda: MyEnv(...)" if hasattr(self.env, "reset") else ""
            raise SpaceError(
                f"expected the id of an environment or a function that makes one, got {self.env!r:.200}{made}"
            )
        if not isinstance(self.kwargs, (Mapping, type(None))):
            raise SpaceError(f"env_kwargs must be a dictionary, got {self.kwargs!r:.80}")
        if not (self.make is None or callable(self.make)):
            raise SpaceError(f"make must be a function, called as make(id, **env_kwargs), got {self.make!r:.80}")

    @classmethod
    def of(
        cls, env: AnyEnvironment, victim: Victim | None, kwargs: EnvKwargs | None = None, make: MakeEnv | None = None
    ) -> Environment:
        """What public functions are given as ``env``, ``env_kwargs`` and ``make``, as a victim needs it.

        Raises:
            SpaceError: if ``env`` is neither an id nor a function.
            ValueRangeError: for keyword arguments, or a function, beside an :class:`Environment` that has its own.
        """
        if not isinstance(env, Environment):
            env = Environment(env, kwargs, make)
        elif kwargs is not None or make is not None:
            raise ValueRangeError("an Environment has its own env_kwargs and make: give them to it")
        return env.for_victim(victim)

    @classmethod
    def of_file(cls, id: str, kwargs: EnvKwargs | None, where: str, trust: bool = False) -> Environment:
        """The environment that a card or another file names, which is not of the user's own hand.

        Args:
            id, kwargs: of the environment.
            where: the file, for the message.
            trust: import the modules that these name, such as that of ``"module:CartPole-v1"``.

        Raises:
            TrustError: for one that names a module, without ``trust``.
        """
        if not trust and (code := named_code(id, kwargs)) is not None:
            raise TrustError(
                f"{where} names an environment of a module, {code!r:.80}, and importing that runs its code: name the "
                "environment yourself, or, for files of your own, trust=True"
            )
        return cls(id, kwargs)

    def for_victim(self, victim: Victim | None) -> Environment:
        """The same environment as an agent needs it: with the keyword arguments of its card, and preprocessed.

        Args:
            victim: for one that sees uint8 ``[4, 84, 84]``, and for None, an agent that is yet to be trained, Atari
                games are preprocessed; for one that sees a vector tasks of the DeepMind Control Suite are flattened;
                for one that sees images with their channels first, as those of SB3 do, they are put first.

        Raises:
            TrustError: for a card whose keyword arguments name a module.
        """
        sees = None if victim is None else victim.observation_space
        if callable(self.env):
            return replace(self, kwargs=dict(self.kwargs or {}), seen=sees)
        # keyword arguments: those given, or else those that the card says this id was trained with
        known = environment_of(victim.card) if self.kwargs is None and victim is not None and victim.card else None
        kwargs = dict(self.kwargs or {})
        if known is not None and known[0] == self.env:  # of the id that the user named
            kwargs = dict(Environment.of_file("", known[1], "the card").kwargs or {})
        # the preprocessing that makes what the victim sees out of what the environment shows
        seen = _IMAGES if sees is None else sees
        preprocessing: Literal["atari", "dmc"] | None = None
        if self.make is None and isinstance(seen, spaces.Box):
            if seen.shape == _IMAGES.shape and seen.dtype == _IMAGES.dtype and is_atari(self.env):
                preprocessing = "atari"
            elif self.env.startswith(PREFIX):
                preprocessing = "dmc"
        return replace(self, kwargs=kwargs, preprocessing=preprocessing, seen=sees)

    def __call__(self) -> AnyEnv:
        """One environment, whose answers are checked (:class:`.CheckedEnv`).

        Raises whatever a user's function raises, and :class:`SpaceError` for what is no single environment.
        """
        made = made_by(self._turned)
        _MADE.add(self.name)
        return made

    def _turned(self) -> AnyEnv:
        made = self._made()
        found = None if self.seen is None else turned(self.seen, check_one(made).observation_space)
        return made if found is None else TransformObservation(made, *found)

    def _made(self) -> AnyEnv:
        kwargs = dict(self.kwargs or {})
        function: MakeEnv | None
        given: tuple[str, ...] = ()
        # an id: by our own preprocessing, by Gymnasium, or by the function that was given
        if isinstance(self.env, str):
            if self.preprocessing == "atari":
                return atari(self.env, **kwargs)
            if self.preprocessing == "dmc":
                return dmc(self.env, **kwargs)
            if self.make is None:
                return make_environment(self.env, kwargs)
            function, given = self.make, (self.env,)
        else:
            function = self.env
        # gymnasium.make takes max_episode_steps itself; for a function that does not, the same wrapper does
        limit = kwargs.pop("max_episode_steps", None) if not takes(function, "max_episode_steps") else None
        made = function(*given, **kwargs)
        return made if limit is None else TimeLimit(check_one(made), limit)

    @property
    def name(self) -> str:
        """The id, or the name of the function."""
        return self.env if isinstance(self.env, str) else getattr(self.env, "__name__", type(self.env).__name__)

    @property
    def id(self) -> str | None:
        """The id, where nothing but the id and the keyword arguments decides what is made; else None."""
        return self.env if isinstance(self.env, str) and self.make is None else None

    @property
    def described(self) -> dict[str, Any]:
        """The environment as reports and folders know it: ``id``, ``kwargs``, and ``make``, a function's name."""
        about: dict[str, Any] = {"id": self.name, "kwargs": dict(self.kwargs or {})}
        function = self.env if callable(self.env) else self.make
        if function is not None:
            about["make"] = text_of_function(function)
        return about

    @property
    def is_known(self) -> bool:
        """Whether :attr:`described` tells it from others.

        It does not for a lambda, a method or a partial, and with an object of one's own among the keyword arguments.
        """
        return all(map(is_named, (self.env, self.make, self.kwargs)))

    def __str__(self) -> str:
        return environment_text(self.described)

    def make_one(self) -> AnyEnv:
        """One environment; :class:`SpaceError` for one that cannot be made, whatever a user's function raises."""
        try:
            return self()
        except AdvWrappersError:
            raise
        except Exception as error:
            raise SpaceError(f"cannot make the environment: {error}{_once(self)}") from error

    def spaces_for(self, victim: Victim) -> tuple[Space, Space]:
        """The spaces of observations and actions, of an environment that is made, checked against a victim, and closed.

        Raises:
            SpaceError: for one that cannot be made.
            AdvWrappersError: one of its kinds, for layers in an order that cannot work, and a victim that does not fit.
        """
        with closing(self.make_one()) as env:
            check_order(env)
            fits(victim, env.observation_space, env.action_space, self.name)
            return env.observation_space, env.action_space

    def pickled(self) -> bytes:
        """The environment as it is sent to a process; raises :class:`WorkerError` that names what cannot be."""
        pickled("the environment", self.env)
        pickled("the argument env_kwargs", self.kwargs)
        pickled("the argument make", self.make)
        return pickled("the environment", self)

    def unchecked(self) -> Environment:
        """The same without Gymnasium's checks of every step, which take half of its time."""
        if self.id is None or is_atari(self.id):
            return self
        return replace(self, kwargs={"disable_env_checker": True, **(self.kwargs or {})})


_MADE = set[str]()  # names of environments that could be made in this process


def _once(environment: Environment) -> str:
    """What helps where one was made before, and is none now."""
    if environment.name not in _MADE:
        return ""
    return ". Where only one can be made in a process: make it once, and give lambda: env and num_envs=1"


def not_side_by_side(rows: int, error: Exception, one_was_made: bool = True) -> SpaceError:
    """What is raised where so many environments cannot be made, for what a user's function raised; with what helps."""
    helps = ". Where only one can be at a time: num_envs=1" if one_was_made and rows > 1 else ""
    return SpaceError(f"cannot make {rows} environments side by side: {error}{helps}")


def environment_text(described: Mapping[str, Any]) -> str:
    """An environment in words, with whatever is not as usual, from what :attr:`Environment.described` says."""
    more = [f"{name}={value!r:.40}" for name, value in described["kwargs"].items()]
    more += [f"made by {described['make']}"] if "make" in described else []
    return f"{described['id']} ({', '.join(more)})" if more else str(described["id"])


def text_of_function(function: Callable[..., object]) -> str:
    """A function's name, such as ``"module:function"``."""
    if isinstance(function, MakeFunction):
        return function.text
    return f"{getattr(function, '__module__', '')}:{_qualified_name(function)}"


def json_value(value: object) -> Any:
    """A value as a file holds it: arrays by their dtype and numbers, or hash, functions and other objects by a name.

    Victims, the players of :class:`.SingleAgentEnv`, are known by their weights.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    # large arrays by their hash
    if isinstance(value, np.ndarray):
        few = value.size <= _SHOWN and value.dtype != object
        numbers = {"values": value.tolist()} if few else {"sha256": hashlib.sha256(value.tobytes()).hexdigest()}
        return {"dtype": str(value.dtype), "shape": list(value.shape), **numbers}
    if isinstance(value, Mapping):
        return {str(key): json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(part) for part in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Victim):
        return value.described()
    return text_of_function(value) if callable(value) else f"<{type(value).__module__}.{type(value).__qualname__}>"


def is_named(value: object) -> bool:
    """Whether :func:`json_value` tells a value from others: of functions it is no lambda, method or partial."""
    if isinstance(value, Mapping):
        return all(map(is_named, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_named, value))
    if isinstance(value, np.ndarray):
        return bool(value.dtype != object)
    if isinstance(value, Victim):
        return value.is_known
    if callable(value):
        return isinstance(value, MakeFunction) or bool(_qualified_name(value).isidentifier())
    return value is None or isinstance(value, (bool, int, float, str, np.generic, os.PathLike))


def _qualified_name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", f"<{type(function).__qualname__}>"))


AnyEnvironment = Environment | str | MakeEnv
