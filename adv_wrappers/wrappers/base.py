"""What every shell shares, whatever kind of environment it wraps: a threat, an engine, a place in the stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.engine import Perturber
from adv_wrappers.core.perturbation import How, On, When
from adv_wrappers.core.session import Session
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError
from adv_wrappers.presets import as_threat, called
from adv_wrappers.utils.threads import one_thread_in_workers
from adv_wrappers.victims import Victim, load_victim

LAYERS, GATES = "adv_wrappers.layers", "adv_wrappers.gates"  # counts, carried by metadata through any wrapper


def chain(env: Any) -> list[Any]:
    """Wrappers from the outermost in, the environment itself last."""
    found = [env]
    while hasattr(found[-1], "env") or hasattr(found[-1], "venv"):
        inner = found[-1].__dict__.get("env") or found[-1].__dict__.get("venv")
        if inner is None:
            break
        found.append(inner)
    return found


def layers(env: Any) -> list[Layer]:
    """Perturbing layers of one stack, innermost first."""
    return [shell for shell in reversed(chain(env)) if isinstance(shell, Layer)]


def is_vec_env(env: Any) -> bool:
    """Whether this is an SB3 ``VecEnv``, told without importing SB3."""
    return any(k.__module__.startswith("stable_baselines3.") and k.__name__ == "VecEnv" for k in type(env).__mro__)


def counts(env: Any) -> dict[str, int]:
    """How many layers and gates lie beneath, also inside the workers of a vector environment.

    Gymnasium's wrappers pass metadata on and its vector environments copy it from their environments; SB3's do not,
    so there the shells of the process are counted on top of what a worker's metadata says.
    """
    if not is_vec_env(env):
        metadata = env.metadata or {}
        return {key: int(metadata.get(key, 0)) for key in (LAYERS, GATES)}
    for shell in chain(env):
        beneath = shell.__dict__.get("beneath")
        if beneath is not None:
            return {**beneath, LAYERS: beneath[LAYERS] + isinstance(shell, Layer)}
    try:
        metadata = env.get_attr("metadata", 0)[0] or {}
    except AttributeError:  # vectors of other libraries (SuperSuit's) have no environments to ask
        metadata = {}
    return {key: int(metadata.get(key, 0)) for key in (LAYERS, GATES)}


def autoreset_mode(env: Any) -> AutoresetMode:
    """The mode of a vector environment, from the environment itself: ``AtariVectorEnv`` shares its metadata."""
    mode = getattr(env.unwrapped, "autoreset_mode", None) or (env.metadata or {}).get("autoreset_mode")
    return AutoresetMode(mode) if mode is not None else AutoresetMode.NEXT_STEP


def understood(obs: Any) -> None:
    """Raise :class:`SpaceError` for the arrays of other libraries, which would be copied to the host without a word."""
    leaf = next(iter(obs.values())) if isinstance(obs, dict) else obs
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, (np.ndarray, np.generic, torch.Tensor)):
        raise SpaceError(
            f"expected numpy arrays or torch tensors, the environment hands out {type(leaf).__module__}."
            f"{type(leaf).__qualname__}: wrap it in Gymnasium's JaxToTorch or ArrayConversion first"
        )


class Layer:
    """Mixin of the shells: ``self.threat``, ``self.engine``, and the means to change the budget."""

    on: ClassVar[On]

    threat: ThreatModel
    engine: Perturber
    beneath: dict[str, int]

    def _install(
        self, env: Any, how: How | ThreatModel | str | dict[str, Any], within: Budget | None, when: When | str | None,
        at: Any, victim: Victim | str | None, rows: int | None, quantize: bool, keep_true: bool,
        observation_space: spaces.Space[Any], action_space: spaces.Space[Any], device: torch.device | None = None,
        ball: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        one_thread_in_workers()
        with called(how):
            threat = as_threat(how, on=self.on, within=within, when=when, at=at, **ball)
            self._attach(env, threat, victim, rows, quantize, keep_true, observation_space, action_space, device)

    def _attach(
        self, env: Any, threat: ThreatModel, victim: Victim | str | None, rows: int | None, quantize: bool,
        keep_true: bool, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
        device: torch.device | None,
    ) -> None:  # fmt: skip
        if victim is not None:
            threat = threat.against(load_victim(victim))
        if threat.on != self.on:
            raise ThreatError(
                f"{type(self).__name__} perturbs the {self.on}, {threat.label} is a threat to the {threat.on}"
            )
        threat = threat.against(next(iter(threat.victims), None))
        beneath = layers(env)
        session = beneath[-1].engine.session if beneath else Session(rows)
        self.beneath = counts(env)
        self.keep_true, self.quantize, self.threat = keep_true, quantize, threat
        if not quantize:
            observation_space = as_float(observation_space, threat)
        self.perturbed_space = observation_space
        self.engine = Perturber(threat, observation_space, action_space, session, self.beneath[LAYERS], device)
        session.join(self, threat.victims, self.engine.watches)
        self.key = f"{self.beneath[LAYERS]}:{threat.label}"

    def set_budget(self, within: Budget) -> None:
        """Replace the budget, for curricula; it holds from the next strike on, and the recorded spec follows.

        Raises:
            BudgetError: for a budget that makes no sense on this space; the old one then stays.
        """
        if not isinstance(within, Budget):
            raise BudgetError(f"within must be a budget such as Linf(0.1), got {within!r}")
        self._replace(replace(self.threat, within=within.resolve(next(iter(self.threat.victims), None))))

    def _replace(self, threat: ThreatModel) -> None:
        self.engine.arm(threat)
        self.threat = threat

    def _record(self) -> None:
        """Remember the arguments, in shells whose spec says them."""

    @property
    def _kept(self) -> Any:
        """The newest true value, where it is kept."""
        return self.engine.true if self.keep_true else None

    def _note(self, info: dict[str, Any], struck: Any, true: Any) -> dict[str, Any]:
        """``info`` with this layer's entry; the environment's own dictionary is not written to."""
        entry = {"struck": struck} if true is None else {"struck": struck, "true": true}
        beneath = info.get("adv_wrappers")
        return {**info, "adv_wrappers": {self.key: entry} if beneath is None else {**beneath, self.key: entry}}


def recorded(threat: ThreatModel) -> Any:
    """What a spec remembers of a threat: its dictionary, or the threat itself where a part of it has no JSON form."""
    try:
        data = threat.to_dict()
    except ThreatError:
        return threat
    return data if all(v.ref for v in threat.victims) else threat


def as_float(space: spaces.Space[Any], threat: ThreatModel) -> spaces.Space[Any]:
    """The observation space with the perturbed integer leaves made float32 (``quantize=False``)."""
    field = Field(space, threat.at, "observation")
    if not field.grid:
        return space
    if isinstance(space, spaces.Dict):
        floats = {k: _box(v) if k in (field.keys or ()) else v for k, v in space.spaces.items()}
        return spaces.Dict(list(floats.items()))  # pairs: a dictionary would have its keys sorted
    return _box(space)


def _box(space: Any) -> spaces.Box:
    return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)


def floated(obs: Any, at: Any) -> Any:
    """The observation with the perturbed leaves as float32."""
    if at is None:
        return obs.to(torch.float32) if isinstance(obs, torch.Tensor) else np.asarray(obs, dtype=np.float32)
    return obs | {k: floated(obs[k], None) for k in ((at,) if isinstance(at, str) else at)}
