"""The victim: the differentiable policy under attack. Raw observations in, parameters of an action distribution out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Distribution

from adv_wrappers.core.spaces import is_text_space, to_victim
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.fingerprint import digest
from adv_wrappers.networks.input_gradient import LayerGraph
from adv_wrappers.registry import Select as Select
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.trees import is_text, leaves
from adv_wrappers.victims.distributions import (
    CategoricalFamily,
    DeterministicFamily,
    DistributionFamily,
    Family,
    GaussianFamily,
    MultiCategoricalFamily,
)
from adv_wrappers.victims.gradients import Fill, Loss, gradient

OutputKind = Literal["q", "logits", "mean", "gaussian", "distribution"]
RecurrentState = object  # of a recurrent victim: a tree of tensors that only its networks look into
BatchedObservation = Tensor | Mapping[str, object] | tuple[object, ...]  # a dictionary for a Dict, a tuple for a Tuple
CriticFunction = Callable[..., Tensor]  # observations [B, *S] and native actions [B, D] to Q-values [B]


def device_of(device: torch.device | str, shapes_only: bool = False) -> torch.device:
    """The device that a text names, after trying it; :class:`VictimError` if this machine has none of it.

    Args:
        device: the device.
        shapes_only: whether ``"meta"`` is one, on which tensors have shapes and no numbers: nothing is played there,
            but what an attack would compute is seen.
    """
    try:
        made = torch.zeros((), device=device)
        if not shapes_only:
            made.cpu()
        return made.device
    except (RuntimeError, TypeError, AssertionError) as error:  # torch's ways of not having a device
        raise VictimError(f"no such device {device!r}: {error}") from error


def choice_sizes(space: spaces.Space[object]) -> list[int]:
    """Of how many each choice of a discrete action is one, two for a bit; none for other spaces."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    return [2] * math.prod(space.shape) if isinstance(space, spaces.MultiBinary) else []


class Victim:
    """A frozen policy, with what an adversary may compute from it.

    Observations enter in the units of the environment, ``[B, *S]``, as float tensors of ``dtype`` on ``device`` (a
    dictionary of them for a Dict space): scaling, normalising and channel order are the victim's own affair, so a
    gradient is always with respect to what the environment returns.

    Attributes:
        observation_space, action_space: the spaces of one environment.
        kind: ``q`` (Q-values of discrete actions), ``logits``, ``mean`` (a deterministic actor), ``gaussian`` (mean
            and log standard deviation side by side) or ``distribution`` (any other of continuous actions).
        select: whether the agent plays the mode or a sample.
        ref: what :func:`load_victim` takes, or None.
        scale: the victim's unit of every feature (its normaliser's standard deviation), or None.
        scales: the same of a Dict, by those of its keys that have one.
        recurrent: whether the victim has a hidden state.
        differentiable: whether the victim has gradients; a function on numpy arrays has none.
        width: how many parameters a row has, the K of ``[B, K]``.
        card: the parsed ``card.json`` that the victim came from, or None.
    """

    recurrent = False
    differentiable = True
    from_zero = False  # whether it is one of a library that numbers choices from 0, whatever their space says
    chooses = False  # whether its logits are made of the actions that a function returns
    without_gradient = "it works on numpy arrays, is quantised, detaches or runs under no_grad"  # where it has none
    card: dict[str, Any] | None = None
    scales: Mapping[str, Tensor] = MappingProxyType({})
    critic: CriticFunction | None = None  # of continuous actions, where the victim has one
    robust_sarsa: CriticFunction | None = None  # the same, trained for the attack of that name

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Space[object],
        kind: OutputKind,
        *,
        select: Select = "mode",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        ref: str | None = None,
        scale: Tensor | None = None,
        family: DistributionFamily | None = None,
    ) -> None:
        # kind, dtype and spaces have to go together
        if family is None:
            check_choice("kind", kind, ("q", "logits", "mean", "gaussian"), error=VictimError)
        check_choice("select", select, ("mode", "sample"), error=VictimError)
        if dtype not in (torch.float32, torch.float64):
            raise VictimError(f"a victim computes in float32 or float64, got {dtype}")
        if bool(choice_sizes(action_space)) != (kind in ("q", "logits")) or (
            kind == "q" and not isinstance(action_space, spaces.Discrete)
        ):
            raise VictimError(f"kind={kind!r} does not go with the action space {action_space}")
        self.observation_space, self.action_space = observation_space, action_space
        self.kind, self.select = kind, select
        self.device = device_of(device, shapes_only=True)
        self.dtype = dtype
        self.ref = ref
        self.scale = scale
        # what the parameters mean, and how many there are
        self.family: Family = self._make_family() if family is None else family
        self.width = self._make_width() if family is None else family.width
        self._fingerprint: str | None = None

    def _make_family(self) -> Family:
        if self.kind in ("q", "logits"):
            one = isinstance(self.action_space, spaces.Discrete)
            return CategoricalFamily() if one else MultiCategoricalFamily(tuple(choice_sizes(self.action_space)))
        return GaussianFamily() if self.kind == "gaussian" else DeterministicFamily()

    def _make_width(self) -> int:
        sizes = choice_sizes(self.action_space)
        return sum(sizes) or math.prod(self.action_space.shape or ()) * (1 if self.kind == "mean" else 2)

    # implemented by subclasses

    def params(self, obs: BatchedObservation, state: RecurrentState = None) -> Tensor:
        """Parameters of the action distribution, ``[B, K]``: Q-values, logits, a mean, or mean and log-std."""
        raise NotImplementedError

    def q(self, obs: BatchedObservation, act: Tensor | None = None, state: RecurrentState = None) -> Tensor | None:
        """Q-values ``[B, A]``, or ``[B]`` of the native actions ``act``; None where there are none."""
        if self.kind != "q":
            return None
        values = self.params(obs, state)
        return values if act is None else values.gather(-1, (act - self._start)[..., None]).squeeze(-1)

    def value(self, obs: BatchedObservation, state: RecurrentState = None) -> Tensor | None:
        """State value ``[B]``; None where there is none."""
        values = self.q(obs, None, state)
        return None if values is None or values.dim() < 2 else values.amax(-1)

    def modules(self) -> list[nn.Module]:
        """The networks that the victim is made of; their weights make its fingerprint."""
        return []

    def layer_graph(self) -> LayerGraph | None:
        """The layers that compute ``params`` from raw observations, where their gradient is written out."""
        return None

    def initial_state(self, rows: int) -> RecurrentState:
        """Hidden state at the start of an episode, leaves ``[rows, ...]``; None for feed-forward victims."""
        return None

    def advance(self, obs: BatchedObservation, state: RecurrentState) -> RecurrentState:
        """Hidden state after acting on ``obs``."""
        return state

    def native(self, action: Tensor) -> Tensor:
        """The action a family chose, in the units of the environment; differentiable for continuous actions."""
        return action if isinstance(self.action_space, spaces.Box) else action + self._start

    # derived from these

    @property
    def _start(self) -> int | Tensor:
        if isinstance(self.action_space, spaces.MultiDiscrete):
            return torch.as_tensor(self.action_space.start.reshape(-1), device=self.device)
        return int(self.action_space.start) if isinstance(self.action_space, spaces.Discrete) else 0

    @property
    def discrete(self) -> bool:
        """Whether an action is one of ``n``."""
        return self.family.discrete

    @property
    def has_q(self) -> bool:
        """Whether :meth:`q` answers."""
        return self.kind == "q" or (self.critic is not None and isinstance(self.action_space, spaces.Box))

    @property
    def has_value(self) -> bool:
        """Whether :meth:`value` answers."""
        return self.kind == "q"

    def policy(self, obs: BatchedObservation, state: RecurrentState = None) -> Distribution:
        """Action distribution at ``obs``."""
        return self.family.policy(self.params(obs, state))

    def kl(self, p: Tensor, q: Tensor) -> Tensor:
        """KL(p || q) of two batches of parameters, ``[B]``."""
        return self.family.kl(p, q)

    def mode(self, params: Tensor) -> Tensor:
        """Most likely native action of ``params``; differentiable for continuous actions."""
        return self.native(self.family.mode(params))

    def act(self, params: Tensor, key: Tensor | None = None) -> Tensor:
        """Native actions as the agent plays them: the mode, or a sample drawn with the int64 keys ``[B]``.

        ``params`` are what :meth:`params` returns, and not an observation: :meth:`act_on` takes those.

        Raises:
            VictimError: for anything but a tensor ``[B, K]``, and for a victim that samples without a key.
        """
        if not isinstance(params, Tensor) or params.dim() != 2 or params.shape[1] != self.width:
            raise VictimError(
                f"act takes parameters [B, {self.width}], which victim.params(observations) returns, got "
                f"{_form(params)}: victim.act_on(observations) acts on observations"
            )
        if self.select == "mode":
            return self.mode(params)
        if key is None:
            raise VictimError("this victim samples its actions: act needs one key per row")
        return self.native(self.family.sample(params, key))

    def play(self, obs: BatchedObservation, state: RecurrentState = None, key: Tensor | None = None) -> Tensor:
        """Native actions at ``obs``, a tensor ``[B, ...]``: by :meth:`act` of :meth:`params`, after checking these.

        The policy runner and :meth:`act_on` act by it. A subclass whose agent does not act by :meth:`params` alone
        (:class:`adv_wrappers.victims.smoothed.Smoothed` adds noise that an attacker does not know) has its own.

        Args:
            obs: observations as :meth:`params` takes them.
            state: the hidden state of a recurrent victim.
            key: int64 keys ``[B]``, for a victim that samples.
        """
        params = self.params(obs, state)
        self.check_params(params, len(next(leaves(obs))))
        return self.act(params, key)

    def act_on(self, observations: Any, state: RecurrentState = None, key: Tensor | None = None) -> Any:
        """Native actions at observations ``[B, *S]``, as the agent plays them.

        Args:
            observations: observations of any dtype, as an array, a tensor or a dictionary of them.
            state: the hidden state of a recurrent victim, as :meth:`initial_state` and :meth:`advance` make it; None is
                that at the start of an episode.
            key: int64 keys ``[B]``, for a victim that samples.

        Returns:
            Actions ``[B, ...]``: an array in the dtype of the action space where the observations are arrays, else a
            tensor.

        Raises:
            VictimError: for observations of another shape, a sampling victim without a key, and answers that are not
                finite.

        >>> import numpy as np
        >>> from adv_wrappers import load_victim
        >>> load_victim("zoo:cartpole-dqn").act_on(np.zeros((1, 4), np.float32))
        array([1])
        """
        leaf = _expect_batch(observations, self.observation_space)
        if state is None and self.recurrent:
            state = self.initial_state(len(leaf))
        with torch.no_grad():
            action = self.play(observations, state, key)
        if isinstance(leaf, Tensor):
            return action
        return action.cpu().numpy().astype(np.int64 if self.discrete else self.action_space.dtype, copy=False)

    def check_params(self, params: object, rows: int | None = None, look: bool = True) -> None:
        """Raise :class:`VictimError` unless ``params`` is what was promised: finite numbers ``[B, K]``.

        Logits may be minus infinity where a mask rules a choice out, as long as a choice is left.

        Args:
            params: what :meth:`params` returned.
            rows: the expected B; None for any.
            look: whether values are checked too; False checks the shape alone, and waits for no device.
        """
        fits = isinstance(params, Tensor) and params.dim() == 2 and params.shape[1] == self.width
        if not isinstance(params, Tensor) or not fits or (rows is not None and len(params) != rows):
            raise VictimError(
                f"{self!r} must answer with [{'B' if rows is None else rows}, {self.width}], got {_form(params)}"
            )
        # a sum of finite numbers is finite but for overflow, which the second check rules out
        if look and not math.isfinite(float(params.detach().sum())):
            possible = self.family.possible(params.detach(), masks=self.kind == "logits")
            if not bool(possible.all()):
                row = int(possible.logical_not().nonzero()[0, 0])
                raise VictimError(
                    f"{self!r} answers with numbers that are not finite: {params[row].tolist()} in row {row}"
                )

    def gradient(
        self, loss: Loss, state: RecurrentState = None, fill: Fill | None = None
    ) -> Callable[[Tensor], Tensor]:
        """``x -> d loss(params(x)).sum() / dx``: the sum, so that a row does not depend on its batch.

        ``loss`` maps parameters ``[B, K]`` to ``[B]``; one with a ``gradient`` method in closed form is not
        differentiated. ``fill`` completes ``x`` to a whole observation. Weights receive no gradient.
        """
        return gradient(self, loss, state, fill)

    def fingerprint(self) -> str:
        """sha256 over names, shapes and bytes of all weights (hexadecimal)."""
        if self._fingerprint is None:
            self._fingerprint = digest(self.modules())
        return self._fingerprint

    @property
    def is_known(self) -> bool:
        """Whether :meth:`described` tells the victim from others: it has weights, and no part of it is a function."""
        return bool(self.modules())

    def structure(self) -> str:
        """sha256 over what weights do not say (hexadecimal): how outputs are read, and what the networks print."""
        settings = [f"{name}={getattr(self, name, None)}" for name in ("kind", "dtype", "clip", "squash", "first")]
        settings += ["probabilities"] if getattr(self, "probabilities", False) else []
        spaces = [repr(self.observation_space), repr(self.action_space)]
        parts = [type(self).__name__, *settings, *spaces, *map(repr, self.modules())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def described(self) -> dict[str, str | None]:
        """The victim as files know it: ``ref``, ``fingerprint``, ``structure`` and ``select``.

        ``structure`` is None where the victim is a function (see :attr:`is_known`).
        """
        hashes = {"fingerprint": self.fingerprint(), "structure": self.structure() if self.is_known else None}
        return {"ref": self.ref, **hashes, "select": self.select}

    def __deepcopy__(self, memo: dict[int, object]) -> Victim:
        return self  # Gymnasium's spec machinery copies arguments; a victim is a frozen value

    def __repr__(self) -> str:
        who = f"{type(self).__name__} {self.ref}" if self.ref else type(self).__name__
        return f"<{who}, {self._plays}, {self.observation_space} -> {self.action_space}>"

    @property
    def _plays(self) -> str:
        """How actions are chosen, in words."""
        return f"{self.kind} by its {self.select}"


def _expect_batch(obs: Any, space: spaces.Space[object]) -> Any:
    """A leaf of ``obs``, after checking that it is a batch of observations of ``space``."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        named = isinstance(space, spaces.Dict)
        keys: list[Any] = [*space.spaces] if named else [*range(len(space.spaces))]
        if not isinstance(obs, dict if named else tuple) or {*(obs if named else range(len(obs)))} != {*keys}:
            expected = f"dictionary of {', '.join(keys)}" if named else f"tuple of {len(keys)} parts"
            raise VictimError(f"expected a {expected}, got {_form(obs)}")
        # the first part that is no text stands for the batch
        parts = [_expect_batch(obs[key], space.spaces[key]) for key in keys]
        return next((leaf for leaf in parts if not is_text(leaf)), parts[0])
    if is_text_space(space) and is_text(obs):
        return obs
    # one axis more than a single observation
    shape = getattr(obs, "shape", None)
    if shape is None or (space.shape is not None and tuple(shape[1:]) != space.shape) or len(shape) == 0:
        more = "" if shape is None or tuple(shape) != space.shape else ": a single one becomes a batch by obs[None]"
        raise VictimError(f"expected observations of shape {('B', *(space.shape or ()))}, got {_form(obs)}{more}")
    return obs


def _form(value: object) -> str:
    if isinstance(value, (dict, tuple)):
        return f"{type(value).__name__} of {', '.join(map(str, value)) if isinstance(value, dict) else len(value)}"
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{type(value).__name__} of shape {tuple(shape)}"


class VictimAround(Victim):
    """A victim that acts by another one, whose spaces, networks and native actions it has.

    Args:
        victim: the other one.
        select: how it acts; None as the other one does.

    Attributes:
        victim: the other one.

    Raises:
        VictimError: for anything else than a victim.
    """

    def __init__(self, victim: Victim, select: Select | None = None) -> None:
        if not isinstance(victim, Victim):
            raise VictimError(f"expected a victim, such as load_victim returns, got {type(victim).__name__}")
        self.victim = victim
        super().__init__(
            victim.observation_space,
            victim.action_space,
            victim.kind,
            select=select or victim.select,
            device=victim.device,
            dtype=victim.dtype,
            scale=victim.scale,
            family=victim.family if isinstance(victim.family, DistributionFamily) else None,
        )
        self.card = victim.card
        self.from_zero = victim.from_zero
        self.critic = victim.critic
        self.robust_sarsa = victim.robust_sarsa
        self.differentiable = victim.differentiable

    def taken(self, obs: Any) -> Any:
        """Observations as tensors of the victim's dtype on its device."""
        if isinstance(obs, Tensor) and obs.dtype == self.dtype:
            return obs
        return to_victim(obs, self.dtype, self.device, True, space=self.observation_space)

    def reference(self, prefix: str, usual: Mapping[str, object], **options: object) -> str | None:
        """What :func:`load_victim` takes, with the options that are not as usual; None where the victim has none."""
        told = "&".join(f"{name}={value}" for name, value in options.items() if value != usual.get(name))
        return None if self.victim.ref is None else f"{prefix}:{self.victim.ref}?{told}"

    def acts_by(self) -> str:
        """What is told of it in its fingerprint, beside the other one's."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """sha256 over the agent's fingerprint, and what is around it (hexadecimal)."""
        return hashlib.sha256(f"{self.victim.fingerprint()} {self.acts_by()}".encode()).hexdigest()

    @property
    def scales(self) -> Mapping[str, Tensor]:  # type: ignore[override]  # that of the other one
        return self.victim.scales

    def modules(self) -> list[nn.Module]:
        return self.victim.modules()

    @property
    def is_known(self) -> bool:
        return self.victim.is_known

    def structure(self) -> str:
        return self.victim.structure()

    def native(self, action: Tensor) -> Tensor:
        return self.victim.native(action)

    @property
    def has_value(self) -> bool:
        return self.victim.has_value

    def q(self, obs: Any, act: Tensor | None = None, state: Any = None) -> Tensor | None:
        """Q-values of discrete actions as :meth:`params`; of continuous ones those of the agent's critic at ``obs``."""
        return super().q(obs, act, state) if self.kind == "q" else self.victim.q(obs, act)
