"""What every wrapper shares, whatever kind of environment it wraps: a threat, an engine, a place in the stack.

:class:`Layer` is the one body of a step and of a reset. What it is mixed with translates: :class:`EnvLayer` a single
environment, :class:`VectorLayer` a vector in every autoreset mode, on the host or on a device, and ``VecLayer`` one of
Stable-Baselines3 (:mod:`adv_wrappers.wrappers.sb3_vec_env`). Users name the first; :class:`ForAnyEnv` makes the others
of it.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from adv_wrappers.core.action_masks import (
    MASK,
    mask_choices,
    mask_name,
    mask_path,
    side_by_side_mask,
    told_mask,
    with_mask,
)
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.clock import Seeds, row_seeds
from adv_wrappers.core.engine.engine import Autoreset, Engine, Wrapped
from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import How, On, When
from adv_wrappers.core.spaces import At, Field, Path, leaf_at, with_leaf, with_leaves
from adv_wrappers.core.spaces import from_zero as numbered_from_zero
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.core.timing import Bernoulli
from adv_wrappers.core.types import Array, Flags, Info, Space
from adv_wrappers.environments.checked import (
    CHECKED_STEPS,
    CheckedEnv,
    check_one,
    check_step,
    checked_reset,
    mask_method,
)
from adv_wrappers.environments.replay import ReplayRecorder
from adv_wrappers.environments.simulator import EnvironmentBeneath
from adv_wrappers.errors import BudgetError, OrderError, SpaceError, ThreatError, threat_in_errors
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.utils import trees
from adv_wrappers.utils.checks import number
from adv_wrappers.utils.threads import one_thread_in_workers
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.parameterized_env import ParameterizedEnv

AnyEnv: TypeAlias = gym.Env[Any, Any]
AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]
_OF_SB3 = "adv_wrappers.wrappers.sb3_vec_env"  # imported by name alone: it needs SB3, and what is in this file
LAYERS, GATES = "adv_wrappers.layers", "adv_wrappers.gates"  # counts, carried by metadata through any wrapper


def wrappers_of(env: Any) -> list[Any]:
    """Wrappers from the outermost in, the environment itself last, without those that specs do not name."""
    found = [env]
    while hasattr(found[-1], "env") or hasattr(found[-1], "venv"):
        # its own attributes: those of wrappers beneath would be found through it
        own = found[-1].__dict__
        inner = own.get("venv") if own.get("env") is None else own["env"]  # one may well be false, as of length 0
        if inner is None:
            break
        found.append(inner)
    return [one for one in found if not isinstance(one, (ReplayRecorder, ParameterizedEnv, CheckedEnv))]


def layers(env: Any) -> list[Layer]:
    """Perturbing layers of one stack, innermost first."""
    found = list[Layer]()
    for wrapper in reversed(wrappers_of(env)):
        if isinstance(wrapper, Layer):
            found.append(wrapper)
    return found


def is_vec_env(env: Any) -> bool:
    """Whether this is an SB3 ``VecEnv``, found without importing SB3."""
    for kind in type(env).__mro__:
        if kind.__name__ == "VecEnv" and kind.__module__.startswith("stable_baselines3."):
            return True
    return False


def counts(env: Any) -> dict[str, int]:
    """How many layers and gates lie beneath, also inside the workers of a vector environment.

    Gymnasium's wrappers pass metadata on and its vector environments copy it from their environments; SB3's do not,
    so there the wrappers of the process are counted on top of what a worker's metadata says.
    """
    if not is_vec_env(env):
        metadata = env.metadata or {}
        return {LAYERS: int(metadata.get(LAYERS, 0)), GATES: int(metadata.get(GATES, 0))}
    # the next layer or gate knows what lies beneath it; without one the environments are asked
    for wrapper in wrappers_of(env):
        beneath = wrapper.__dict__.get("beneath")
        if beneath is not None:
            return {**beneath, LAYERS: beneath[LAYERS] + isinstance(wrapper, Layer)}
    try:
        metadata = env.get_attr("metadata", 0)[0] or {}
    except AttributeError:  # vectors of other libraries (SuperSuit's) have no environments to ask
        metadata = {}
    return {LAYERS: int(metadata.get(LAYERS, 0)), GATES: int(metadata.get(GATES, 0))}


def gate(env: Any, p: float) -> dict[str, int]:
    """Put one coin of probability ``p`` in front of every layer of the stack.

    Returns:
        How many layers and gates there are with this one, for metadata.

    Raises:
        ValueRangeError: unless p is a probability.
        OrderError: where there is nothing to gate, or layers hide inside the workers of a vector environment.
    """
    found, rows = layers_within_reach(env, "ProbabilisticTiming", "gates")
    below = counts(env)
    # the same coin for every layer, and for those inside the rows with the row's own key
    coin = Bernoulli(p, stream=below[GATES])
    for layer in found:
        layer.engine.add_gate(coin)
    roots = found[0].engine.roots if found else [None] * len(rows)  # one coin a row, also before anything was seeded
    for root, row in zip(roots, rows, strict=False):
        for layer in row:
            layer.engine.add_gate(coin, root)
    return {**below, GATES: below[GATES] + 1}


def layers_within_reach(env: Any, who: str, does: str) -> tuple[list[Layer], list[list[Layer]]]:
    """The layers of a stack, innermost first, and row by row those inside the environments of a vector.

    Args:
        env: the stack.
        who: needs them, and what it does to them, for messages.
        does: see ``who``.

    Raises:
        OrderError: where there are none, or where some are inside the workers of a vector environment.
    """
    found, rows = layers(env), inner_layers(env)
    inside = sum(map(len, rows))
    if counts(env)[LAYERS] > len(found) + inside:
        raise OrderError(
            f"{who} cannot reach the layers inside the workers of this vector environment: wrap the vector environment "
            f"itself, or the environments inside the workers in {who.removesuffix('Callback')}"
        )
    if not found and not inside:
        raise OrderError(f"{who} {does} the layers beneath it, and there are none: wrap them first")
    return found, rows


def inner_layers(env: Any) -> list[list[Layer]]:
    """Row by row, the layers inside the environments of a vector that runs in this process."""
    inner = getattr(wrappers_of(env)[-1], "envs", None) or []
    return [layers(one) for one in inner if isinstance(one, gym.Env)]


def autoreset_mode(env: Any) -> AutoresetMode:
    """The mode of a vector environment, from the environment itself: ``AtariVectorEnv`` shares its metadata."""
    mode = getattr(env.unwrapped, "autoreset_mode", None) or (env.metadata or {}).get("autoreset_mode")
    return AutoresetMode(mode) if mode is not None else AutoresetMode.NEXT_STEP


def understood(obs: Any) -> None:
    """Raise :class:`SpaceError` for the arrays of other libraries, which would be copied to the host without a word."""
    leaf = next(trees.leaves(obs), None)
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, (np.ndarray, np.generic, torch.Tensor)):
        raise SpaceError(
            f"expected numpy arrays or torch tensors, the environment hands out {type(leaf).__module__}."
            f"{type(leaf).__qualname__}: wrap it first, gymnasium.wrappers.vector.JaxToTorch(envs), or JaxToNumpy"
        )


class ForAnyEnv:
    """Mixin of the wrappers that users name: with a vector they make the wrapper of its kind, whose class is made here.

    Attributes:
        of_vector: the class for a Gymnasium ``VectorEnv``.
        of_vec_env: the name of that for an SB3 ``VecEnv``, if there is one in :mod:`adv_wrappers.wrappers.sb3_vec_env`.
    """

    of_vector: ClassVar[type]
    of_vec_env: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__signature__" not in vars(cls):  # that of __new__ would say nothing
            _, *parameters = inspect.signature(cls.__init__).parameters.values()
            cls.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        if ForAnyEnv in cls.__bases__:  # a subclass has those of its base
            cls.of_vec_env = f"Vec{cls.__name__}"
            cls.of_vector = twin(cls, "Vector", {EnvLayer: VectorLayer, EnvWrapper: AnyVectorWrapper})

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return cls.of_vector(env, *args, **kwargs)
        if is_vec_env(env):
            of_vec_env = getattr(importlib.import_module(_OF_SB3), cls.of_vec_env, None)
            if of_vec_env is not None:
                return of_vec_env(env, *args, **kwargs)
        return super().__new__(cls)


def twin(cls: type, prefix: str, adapters: dict[type, type], module: str | None = None) -> type:
    """The class of a wrapper for another kind of environment: of the same mixins, with another adapter.

    Args:
        cls: the class for single environments.
        prefix: put before its name.
        adapters: in the place of which base comes which.
        module: where the class is found by its name; None for that of ``cls``.
    """
    bases = tuple(adapters.get(base, base) for base in cls.__bases__ if base is not ForAnyEnv)
    kind = "a :class:`gymnasium.vector.VectorEnv`" if prefix == "Vector" else "an SB3 ``VecEnv``"
    named = {"__module__": module or cls.__module__, "__doc__": f":class:`adv_wrappers.{cls.__name__}` for {kind}."}
    return type(prefix + cls.__name__, bases, named | ({"on": vars(cls)["on"]} if "on" in vars(cls) else {}))


class EnvWrapper(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adapter of wrappers that are no layers: a single environment, whose spec records the arguments."""

    rows = 1
    whole_spec = False  # set by a registered id, whose own spec already describes the stack
    _spec_around: Any = None  # the environment that specs add it to, where it has made what lies in between

    def _wrap_one(self, env: Any, hint: str = "", **arguments: Any) -> None:
        """Be the wrapper of an environment; the arguments are recorded, and ``hint`` says what others take.

        Raises:
            SpaceError: for one of another kind.
        """
        if not isinstance(env, gym.Env):
            raise SpaceError(f"expected a gymnasium Env or VectorEnv, got {type(env).__name__}{hint}")
        RecordConstructorArgs.__init__(self, **arguments)
        gym.Wrapper.__init__(self, env)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment with this wrapper added, made anew: the budgets of layers may change."""
        self._cached_spec = None
        if self.whole_spec:
            return self.env.unwrapped.spec
        if self._spec_around is None:
            return super().spec
        inner, self.env = self.env, self._spec_around
        try:
            return super().spec
        finally:
            self.env = inner


class AnyVectorWrapper(VectorWrapper):
    """Adapter of wrappers that are no layers: a vector."""

    def _wrap_one(self, env: Any, hint: str = "", **arguments: Any) -> None:
        VectorWrapper.__init__(self, env)
        self.rows = env.num_envs


class Layer:
    """Mixin of the wrappers that perturb: ``threat``, ``engine``, and the means to change the budget."""

    on: ClassVar[On]
    from_zero: ClassVar[bool] = False  # whether an agent that is not known numbers choices from 0, as SB3's do

    env: Any
    engine: Engine
    beneath: dict[str, int]
    budget_share: float = 1.0  # that is used
    _whole: Budget | None = None  # the budget of which that is a share; None where it is used whole

    def __init__(
        self,
        env: Any,
        how: How | ThreatModel | str | Info,
        within: Budget | None = None,
        when: When | str | None = None,
        at: At = None,
        *,
        victim: Victim | str | None = None,
        quantize: bool = True,
        keep_true: bool = False,
        eps: float | None = None,
        norm: str | None = None,
        scale: object = None,
    ) -> None:
        one_thread_in_workers()
        wrapped = self._wrap(env)
        observed: Space = wrapped.observation_space
        acted: Space = wrapped.action_space
        with threat_in_errors(how):
            # the threat, and where this layer lies in the stack
            threat = as_threat(how, on=self.on, within=within, when=when, at=at, eps=eps, norm=norm, scale=scale)
            if threat.on != self.on:
                raise ThreatError(
                    f"{type(self).__name__} perturbs the {self.on}, {threat.label} is a threat to the {threat.on}"
                )
            beneath, self.beneath = layers(env), counts(env)
            self._unchecked = 0 if beneath else CHECKED_STEPS  # answers of the environment
            env, parameters = self._parameters_beneath(env)
            simulators = EnvironmentBeneath(env)
            self.keep_true, self.quantize = keep_true, quantize
            # the spaces as the victims of the threat see them
            agent = None if victim is None else load_victim(victim)
            known = threat.resolve(agent).victims
            if self.from_zero and agent is None and not known:
                observed = numbered_from_zero(observed)
                acted = numbered_from_zero(acted)
            self.perturbed_space = observed if quantize else as_float(observed, threat)
            for seen in known:  # the engine checks it too, and knows no names
                fits(seen, self.perturbed_space, acted, getattr(getattr(env, "spec", None), "id", None))
            self.engine = Engine(
                threat,
                wrapped._replace(
                    observation_space=self.perturbed_space,
                    action_space=acted,
                    simulators=simulators,
                    parameters=parameters,
                ),
                victim=agent,
                beneath=beneath[-1].engine if beneath else None,
                stream=self.beneath[LAYERS],
            )
            simulators.action_space = self.engine.action_space
            self._threat_taken()
            self.key = f"{self.beneath[LAYERS]}:{self.threat.label}"
        # where the environment tells its action masks
        self._choices = mask_choices(wrapped.action_space)
        self._mask_path = mask_path(wrapped.observation_space, self._choices)
        self._masks: Callable[[], Any] | None = None  # asks the environments beneath
        self._action_mask: torch.Tensor | None = None  # bool [B, A], of the newest observations
        self._installed(simulators.env)
        if not self.quantize:
            self._show(self.perturbed_space)

    def _mask(self, info: Info) -> Any:
        """The action mask of one row, or of all, as one array: that of the info, else what the environments say."""
        told = told_mask(info, self._choices) if info else None
        return told if told is not None or self._masks is None else side_by_side_mask(self._masks(), self._choices)

    def _wrap(self, env: Any) -> Wrapped:
        """Be the wrapper of an environment, which is checked.

        Raises:
            SpaceError: for one of another kind.
        """
        raise NotImplementedError

    def _installed(self, env: Any) -> None:
        """Called once the engine is there, with the environment beneath.

        Where the threat tries actions and there is no wrapper in between, that is in a recorder, and where it changes
        the dynamics, in what sets them.
        """

    def _parameters_beneath(self, env: Any) -> tuple[Any, ParameterSpace | None]:
        """The environment beneath, and its physical parameters for a layer that changes them."""
        return env, None

    def _threat_taken(self) -> None:
        """Called when a threat was taken."""

    # a reset and a step, whatever the kind of environment

    def _begin(self, obs: Any, info: Any, seeds: Seeds = None, mask: Any = None) -> tuple[Any, Any]:
        """What a reset returned, as the next layer or the agent gets it.

        Args:
            obs, info: as they came in.
            seeds: what the environment was reset with.
            mask: bool ``[B]``, the rows that were reset; None for all.
        """
        self.engine.begin_episode(seeds, mask)
        return self._receive(obs, info, mask)

    def _step(
        self, obs: Any, rewards: Any, terminated: Any, truncated: Any, info: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        """What the environment answered to the action that was sent, as the next layer or the agent gets it."""
        rewards = self._pay(rewards, terminated, truncated)
        over = terminated | truncated if self.engine.batched else bool(terminated or truncated)
        info = self._end_step(obs, over, info)
        obs, info = self._receive(obs, info)
        return obs, rewards, terminated, truncated, info

    def _send(self, action: Any) -> Any:
        """The action that the environment gets."""
        return self.engine.act(action, self._action_mask)

    def _pay(self, rewards: Any, *ends: Any) -> Any:
        """The rewards of a step, one or ``[B]``, as the next layer or the agent gets them.

        Args:
            rewards: as they came in.
            ends: whether episodes terminated and were truncated.
        """
        return rewards

    def _end_step(self, obs: Any, over: Any, info: Any) -> Any:
        """End the engine's step; ``info`` with the last observations of rows that it reset as the agent gets them."""
        engine = self.engine
        attacked = engine.autoreset == "same step" and self.on == "observation"
        last = self._last_observations(obs, over, info) if attacked else None
        if last is None:
            engine.end_step(over)
            return info
        return self._with_last(info, over, engine.end_step(over, self._received(last)))

    def _receive(self, obs: Any, info: Any, mask: Any = None) -> tuple[Any, Any]:
        """What the environment returned, as the next layer or the agent gets it; ``mask`` is as of :meth:`_begin`."""
        info = self._with_mask(obs, info)
        if self.on == "action":
            self._action_mask = self._allowed(info, mask)
        engine = self.engine
        obs = engine.observe(obs if self.quantize else self._received(obs))
        return obs, self._note(info, self._rows(engine.attacked), engine.true if self.keep_true else None)

    def _received(self, obs: Any) -> Any:
        """Observations as this layer takes them."""
        return obs if self.quantize or self.on != "observation" else floated(obs, self.engine.applied.field.paths)

    # what adapters translate

    def _show(self, observation_space: Any, action_space: Any = None) -> None:
        """Take spaces of one row in place of the environment's."""
        self.observation_space = observation_space
        if action_space is not None:
            self.action_space = action_space

    def _last_observations(self, obs: Any, over: Any, info: Any) -> Any:
        """The last observations of the rows that a step has ended and reset, ``[B, *S]``; None where there are none."""

    def _with_last(self, info: Any, over: Any, last: Any) -> Any:
        """``info`` with other last observations, ``[B, *S]``."""

    def _with_mask(self, obs: Any, info: Any) -> Any:
        """``info`` with the action masks that lie in observations."""
        return info if self._mask_path is None else with_mask(obs, info, self._mask_path)

    def _allowed(self, info: Any, mask: Any) -> torch.Tensor | None:
        """Action masks bool ``[B, A]`` of the newest observations, where the environment tells any."""
        new = self._mask(info)
        return None if new is None else torch.as_tensor(new)[None]

    def _rows(self, attacked: Flags) -> Any:
        """Whether rows were attacked, as ``info`` says it: a bool, or bool ``[B]``."""
        return bool(attacked)

    def _note(self, info: Any, attacked: Any, true: Any) -> Any:
        """``info`` with this layer's entry; the environment's own dictionary is not written to."""
        entry = {"attacked": attacked} if true is None else {"attacked": attacked, "true": true}
        beneath = info.get("adv_wrappers")
        return {**info, "adv_wrappers": {self.key: entry} if beneath is None else {**beneath, self.key: entry}}

    # what users ask and change

    @property
    def threat(self) -> ThreatModel:
        """What this layer does now, every victim filled in."""
        return self.engine.threat

    @property
    def whole_threat(self) -> ThreatModel:
        """:attr:`threat` with its whole budget, whatever share of it is used: what a spec records."""
        return self.threat if self._whole is None else replace(self.threat, within=self._whole)

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula; it holds from the next attack on, and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        if not isinstance(within, Budget):
            raise BudgetError(f"within must be a budget such as Linf(0.1), got {within!r}")
        self._use(replace(self.threat, within=within).resolve(), self.budget_share)

    def set_budget_share(self, share: float) -> None:
        """Use a share of the budget (:meth:`.Budget.scaled`) from the next attack on; a spec records the whole.

        Args:
            share: of the radius, in [0, 1]. At 0 nothing changes, at 1 the threat is what it was, to the bit.

        Raises:
            ValueRangeError: for a share that is none.
            BudgetError: for a budget without a radius.
        """
        self._use(self.whole_threat, number("share", share, 0, 1))

    def _use(self, whole: ThreatModel, share: float) -> None:
        """Take a threat with a share of its budget."""
        engine, used = self.engine, whole
        if share < 1:
            field = whole.check(engine.observation_space, engine.action_space, engine.parameters)
            used = replace(whole, within=whole.budget.scaled(share, field.grid))
        if used != engine.threat:
            engine.set_threat(used)
            self._threat_taken()
        self._whole, self.budget_share = None if share == 1 else whole.budget, share


def recorded(threat: ThreatModel) -> ThreatModel | Info:
    """What a spec remembers of a threat: its dictionary, or the threat itself where a part of it has no JSON form."""
    try:
        data = threat.to_dict()
    except ThreatError:
        return threat
    return data if all(v.ref for v in threat.victims) else threat


def as_float(space: Space, threat: ThreatModel) -> Space:
    """The observation space with the perturbed integer leaves made float32 (``quantize=False``)."""
    field = Field(space, threat.at, "observation")
    if not field.grid:
        return space
    if field.discrete:
        raise SpaceError(f"quantize=False makes floats of integers, and {field.leaves[0]} has choices: leave it away")
    paths = field.paths or ((),)

    def floats(leaf: Any, path: Path) -> Space:
        if path not in paths:
            return leaf  # type: ignore[no-any-return]
        return spaces.Box(leaf.low.astype(np.float32), leaf.high.astype(np.float32), dtype=np.float32)

    return with_leaves(space, floats)


def floated(obs: Any, paths: tuple[Path, ...] | None = None) -> Any:
    """The observation with the leaves at the end of some paths, or the whole of it, as float32."""
    for path in paths or ((),):
        leaf = leaf_at(obs, path)
        leaf = leaf.to(torch.float32) if isinstance(leaf, torch.Tensor) else np.asarray(leaf, dtype=np.float32)
        obs = with_leaf(obs, path, leaf)
    return obs


class EnvLayer(Layer, EnvWrapper):
    """A layer around a :class:`gymnasium.Env`; its subclasses say what it perturbs."""

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, gym.Env):
            of_agents = ": PerturbAgents takes PettingZoo's" if hasattr(env, "possible_agents") else ""
            got = f"got {type(env).__name__}{of_agents}"
            raise SpaceError(f"expected a gymnasium Env, VectorEnv or an SB3 VecEnv, {got}")
        gym.Wrapper.__init__(self, check_one(env))
        return Wrapped(env.observation_space, env.action_space)

    def _installed(self, env: AnyEnv) -> None:
        self.metadata = {**(self.env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self.env = env
        if self.on == "action":
            self._masks = mask_method(env)

    @property
    def _saved_kwargs(self) -> Info:  # type: ignore[override]
        """The arguments that Gymnasium writes into the spec, made when it asks: budgets change."""
        arguments: Info = {"how": recorded(self.whole_threat)}
        if not self.quantize:
            arguments["quantize"] = False
        if self.keep_true:
            arguments["keep_true"] = True
        return arguments

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset; a seed restarts this layer's randomness, without one its next episode begins."""
        row_seeds(seed)
        obs, info = checked_reset(self.env, seed, options)
        return self._begin(obs, info, seed)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """One step under attack."""
        answer = self.env.step(self._send(action))
        # the first answers are checked
        if self._unchecked:
            check_step(self.env, answer)
            self._unchecked -= 1
        return self._step(*answer)


_AUTORESET: dict[AutoresetMode, Autoreset] = {
    AutoresetMode.DISABLED: "disabled",
    AutoresetMode.NEXT_STEP: "next step",
    AutoresetMode.SAME_STEP: "same step",
}


class VectorLayer(Layer, VectorWrapper):
    """A layer around a :class:`gymnasium.vector.VectorEnv`."""

    def _wrap(self, env: Any) -> Wrapped:
        if not isinstance(env, VectorEnv):
            raise SpaceError(f"expected a gymnasium VectorEnv, got {type(env).__name__}")
        if not hasattr(env, "single_observation_space"):
            raise SpaceError(
                f"{type(env).__name__} has no single_observation_space, as a VectorEnv has; SuperSuit's vectors can be "
                f"wrapped as SB3's: concat_vec_envs_v1(..., base_class='stable_baselines3')"
            )
        VectorWrapper.__init__(self, env)
        batch = getattr(env.unwrapped, "batch_size", None)
        if batch not in (None, env.num_envs):
            raise SpaceError(f"rows must stay in place: expected batch_size = num_envs = {env.num_envs}, got {batch}")
        autoreset = _AUTORESET[autoreset_mode(env)]
        return Wrapped(env.single_observation_space, env.single_action_space, env.num_envs, autoreset)

    def _installed(self, env: AnyVectorEnv) -> None:
        self.metadata = {**(env.metadata or {}), **self.beneath, LAYERS: self.beneath[LAYERS] + 1}
        self._every: Flags = np.ones(env.num_envs, bool)
        inner = [mask_method(one) for one in getattr(env.unwrapped, "envs", ()) if isinstance(one, gym.Env)]
        if self.on == "action" and inner and None not in inner:
            self._masks = lambda: np.stack([ask() for ask in inner if ask is not None])

    def _show(self, observation_space: Any, action_space: Any = None) -> None:
        self.single_observation_space = observation_space
        self.observation_space = batch_space(observation_space, self.num_envs)
        if action_space is not None:
            self.single_action_space = action_space
            self.action_space = batch_space(action_space, self.num_envs)

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """Spec of the wrapped environment; an autoreset mode in its arguments is written as its value, for JSON."""
        spec = self.env.spec
        mode = spec.kwargs.get("autoreset_mode") if spec is not None else None
        if spec is None or not isinstance(mode, AutoresetMode):
            return spec
        spec = copy.deepcopy(spec)
        spec.kwargs["autoreset_mode"] = mode.value
        return spec

    def reset(self, *, seed: int | list[int | None] | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset all rows, or those of ``options["reset_mask"]``; the other rows keep what they were shown."""
        mask: Any = None  # bool [B]
        if options and options.get("reset_mask") is not None:
            mask = options["reset_mask"]
            if self.engine.on_host or not isinstance(mask, torch.Tensor):
                mask = np.array(mask, dtype=bool)
            options = {**options, "reset_mask": trees.copy(mask)}
        # the environment first, then the engine, on the device that observations are on
        seeds = row_seeds(seed, self.num_envs, mask)
        obs, info = checked_reset(self.env, seed, options)
        understood(obs)
        device = trees.device(obs)
        if device is not None and self.engine.on_host:
            self.engine.to(device)
            self._every = self._rows(True)
        if mask is not None and not self.engine.on_host:
            mask = torch.as_tensor(mask, dtype=torch.bool, device=self.engine.clock.device)
        return self._begin(obs, info, None if seed is None else seeds, mask)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """One step of every row under attack."""
        return self._step(*self.env.step(self._send(actions)))

    def _last_observations(self, obs: Any, over: Any, info: Info) -> Any:
        last: Any = info.get("final_obs")
        if last is None or (self.engine.on_host and not over.any()):
            return None
        if not _ragged(last):
            return last
        batch = trees.copy(obs)
        for row in np.flatnonzero(over).tolist():
            trees.put(batch, row, last[row])
        return batch

    def _with_last(self, info: Info, over: Any, last: Any) -> Info:
        before = info["final_obs"]
        if _ragged(before):
            last, batch = before.copy(), last
            for row in np.flatnonzero(over).tolist():
                last[row] = trees.like(trees.row(batch, row), before[row])
        return {**info, "final_obs": last}

    def _with_mask(self, obs: Any, info: Info) -> Info:
        found = super()._with_mask(obs, info)
        return info if found is info else {**found, f"_{MASK}": self._every}

    def _allowed(self, info: Info, mask: Flags | None) -> torch.Tensor | None:
        """After a partial reset the other rows keep theirs, and a row without has all."""
        new = self._mask(info)
        if new is None:
            return self._action_mask if mask is not None else None
        new, known = torch.as_tensor(new).bool(), info.get(f"_{mask_name(info, self._choices)}")
        # a row that says nothing allows all its actions
        if known is not None:
            new = new | ~torch.as_tensor(known, device=new.device)[:, None]
        if mask is not None and self._action_mask is not None:
            new = torch.where(torch.as_tensor(mask, device=new.device)[:, None], new, self._action_mask)
        return new

    def _rows(self, attacked: Flags) -> Flags:
        if isinstance(attacked, bool):
            rows, device = self.num_envs, self.engine.clock.device
            kind = np.ones if attacked else np.zeros
            return kind(rows, bool) if device is None else torch.full((rows,), attacked, device=device)
        return attacked

    def _note(self, info: Info, attacked: Flags, true: Any) -> Info:
        """As in every vector info, a key ``k`` comes with the mask ``_k`` of the rows that have it: here, all."""
        every = self._every
        entry = {"attacked": attacked, "_attacked": every}
        if true is not None:
            entry |= {"true": true, "_true": every}
        layers = {**info.get("adv_wrappers", {}), self.key: entry, f"_{self.key}": every}
        return {**info, "adv_wrappers": layers, "_adv_wrappers": every}


def _ragged(last: Any) -> bool:
    """Whether last observations have an entry a row, most of them None."""
    return isinstance(last, np.ndarray) and last.dtype == object
