"""Networks that are trained beside a victim: a critic of it, a model of its environment.

Each is read from a card of its role (:mod:`adv_wrappers.networks.card`), and is a frozen value, known by the hash of
the card, which holds that of the weights.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from adv_wrappers.core.serialization import Value
from adv_wrappers.errors import CardError, ThreatError, VictimError
from adv_wrappers.networks.card import Card, Layers, Role, Section, check_sizes, section
from adv_wrappers.networks.fingerprint import digest
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.utils.reading import decoding
from adv_wrappers.victims.victim import Victim

N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True)
class SavedNetwork(Value, Generic[N]):
    """A network read from its folder.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``.
        net: the network.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    role: ClassVar[Role]
    called: ClassVar[str]  # in error messages
    folder: str | None
    sha256: str | None = None
    card: dict[str, Any] = field(init=False, repr=False, compare=False)
    net: N = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, Path)):
            raise CardError(f"a {self.called} is read from a folder, got {self.folder!r:.80}")
        where, expected = str(self.folder), self.sha256
        card = Card.read(where, self.role)
        if expected is not None and card.sha256 != expected:
            raise CardError(
                f"the {self.called} {where} changed: expected sha256 {expected[:12]}, got {card.sha256[:12]}"
            )
        with decoding(f"a {self.called} from {where}"):
            card.about["weights_sha256"]  # without it the hash of the card would say nothing of the weights
            net = self._network(card, card.networks()).eval()
            card.weights.finish()
        self._fill(folder=where, sha256=card.sha256, card=card.about, net=net)

    def _fill(self, **values: object) -> None:
        for name, value in {**values, "_nets": {}}.items():
            object.__setattr__(self, name, value)

    @staticmethod
    @abstractmethod
    def _network(card: Card, parts: Mapping[str, nn.Sequential]) -> N:
        """The network that a card describes, frozen, around its lists of layers and all other weights."""

    @staticmethod
    @abstractmethod
    def _parts(net: N) -> tuple[Mapping[str, Layers], Mapping[str, Tensor]]:
        """The lists of layers of a network by name, and its other weights."""

    @classmethod
    def of(cls, net: N, card: Section) -> Self:
        """One that is in no folder yet, around ``net`` itself; it has no JSON form before :meth:`save`."""
        made = object.__new__(cls)
        made._fill(folder=None, sha256=digest([net]), card=card, net=net.eval().requires_grad_(False))
        return made

    def save(self, folder: str | Path) -> Self:
        """Write both files, each all at once, and read them back."""
        Card.of(self.role, self.card, *self._parts(self.net)).write(folder, hashed=True)
        return type(self)(str(folder))

    def _check_spaces(self, victim: Victim, features: object, actions: object) -> None:
        """Raise :class:`VictimError` unless a victim's observations and actions are as long as these."""
        own, theirs = ((features,), (actions,)), (victim.observation_space.shape, victim.action_space.shape)
        if own != theirs:
            raise VictimError(
                f"the {self.called} takes observations and actions of shapes {own}, this victim has {theirs}"
            )

    def to_dict(self) -> dict[str, Any]:
        if self.folder is None:
            raise ThreatError(
                f"this {self.called} is in no folder and has no JSON form: train it with out=, or save(folder)"
            )
        return {"type": self.name, "folder": self.folder, "sha256": self.sha256}

    def net_like(self, x: Tensor) -> N:
        """The network in the dtype and on the device of ``x``."""
        nets: dict[tuple[torch.dtype, torch.device], N] = self.__dict__["_nets"]
        key = x.dtype, x.device
        if key not in nets:
            nets[key] = copy.deepcopy(self.net).to(dtype=x.dtype, device=x.device).requires_grad_(False)
        return nets[key]

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # as a victim: a frozen value


# ----------------------------------------------------------------------------------------------------------------------
# Trained critics as folders of data: ``card.json`` and ``weights.safetensors``, which hold no code.
# ----------------------------------------------------------------------------------------------------------------------


class Critic(SavedNetwork[ActionValue]):
    """A trained critic, read from its folder: ``(observations [B, n], native actions [B, D]) -> Q [B]``.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``: network, victim (``ref`` and ``sha256``), environment and ``training``.
        net: the network.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    name = role = called = "critic"

    @staticmethod
    def _network(card: Card, parts: Mapping[str, nn.Sequential]) -> ActionValue:
        features, actions = (cast(int, card.network[name]) for name in ("features", "actions"))
        clip: Any = section(card.about, "observation")["clip"]
        mean, std = (card.weights.take(name, features).data for name in ("mean", "std"))
        check_sizes("critic", parts["critic"], features + actions, 1)
        return ActionValue(Normalize(mean, std, None if clip is None else float(clip)), parts["critic"])

    @staticmethod
    def _parts(net: ActionValue) -> tuple[Mapping[str, Layers], Mapping[str, Tensor]]:
        return {"critic": cast(nn.Sequential, net.net)}, net.normalise.state_dict()

    def __call__(self, obs: Tensor, act: Tensor) -> Tensor:
        """Q ``[B]``, in the units of the environment's return, in the dtype and on the device of ``act``."""
        return self.net_like(act)(obs, act)  # type: ignore[no-any-return]

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim's observations and actions are as long as this critic's."""
        network = section(self.card, "network")
        self._check_spaces(victim, network["features"], network["actions"])


# ----------------------------------------------------------------------------------------------------------------------
# A learned model of an environment: which observation follows an observation and an action.
#
# Weng et al. 2020 (section 3.2, step 1) learn ``s' = f(s, a)`` from transitions, and plan perturbations through it.
# Here the model predicts the normalised change of the observation, as is usual in model-based reinforcement learning;
# the paper's linear model ``f(s, a) = A s + B a`` is the same without hidden layers. A further output predicts the
# reward of the step. A card may hold several networks: the prediction is their mean.
#
# A model is a folder with ``card.json`` and ``weights.safetensors``, which holds data and no code;
# :func:`adv_wrappers.train_dynamics` makes one.
# ----------------------------------------------------------------------------------------------------------------------


LEAST_SHARE = 1e-12  # of the variance of changes, the least error: what does not change has none
MeanStd = tuple[Tensor, Tensor]


class TransitionModel(nn.Module):
    """Networks that predict, from a normalised observation and action, the normalised change and the reward.

    Args:
        nets: from ``n + k`` numbers to ``n + 1``: the changes of ``n`` features, and the reward.
        obs, act, change: mean and standard deviation of observations ``[n]``, of actions ``[k]``, and of changes and
            rewards ``[n + 1]``.
    """

    obs_mean: Tensor
    obs_std: Tensor
    act_mean: Tensor
    act_std: Tensor
    change_mean: Tensor
    change_std: Tensor

    def __init__(self, nets: Sequence[nn.Module], obs: MeanStd, act: MeanStd, change: MeanStd) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        for name, (mean, std) in (("obs", obs), ("act", act), ("change", change)):
            self.register_buffer(f"{name}_mean", mean)
            self.register_buffer(f"{name}_std", std)

    def inputs(self, obs: Tensor, act: Tensor) -> Tensor:
        """What the networks take, ``[..., n + k]``."""
        return torch.cat([(obs - self.obs_mean) / self.obs_std, (act - self.act_mean) / self.act_std], -1)

    def forward(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """The next observations ``[..., n]`` and the rewards ``[...]``."""
        x = self.inputs(obs, act)
        first, *others = (net(x) for net in self.nets)
        mean = sum(others, first) / len(self.nets) if others else first
        change = mean * self.change_std + self.change_mean
        return obs + change[..., :-1], change[..., -1]


class Dynamics(SavedNetwork[TransitionModel]):
    """A learned model of an environment, read from its folder.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``: network, environment, ``feature_names``, ``errors`` on episodes that were held
            out, and ``training``.
        net: the networks.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    name = role = "dynamics"
    called = "model"

    @staticmethod
    def _network(card: Card, parts: Mapping[str, nn.Sequential]) -> TransitionModel:
        features, actions = (cast(int, card.network[name]) for name in ("features", "actions"))
        sizes = {"obs": features, "act": actions, "change": features + 1}
        found = {
            name: tuple(card.weights.take(f"{name}_{part}", size).data for part in ("mean", "std"))
            for name, size in sizes.items()
        }
        for name, net in parts.items():
            check_sizes(name, net, features + actions, features + 1)
        return TransitionModel(list(parts.values()), **cast(dict[str, MeanStd], found))

    @staticmethod
    def _parts(net: TransitionModel) -> tuple[Mapping[str, Layers], Mapping[str, Tensor]]:
        nets = {f"nets.{i}": cast(nn.Sequential, one) for i, one in enumerate(net.nets)}
        return nets, dict(net.named_buffers(recurse=False))

    @property
    def features(self) -> int:
        """How many numbers an observation has."""
        return len(self.net.obs_mean)

    @property
    def actions(self) -> int:
        """How many numbers an action has."""
        return len(self.net.act_mean)

    @cached_property
    def error_std(self) -> Tensor:
        """Root mean square of the error of every feature one step ahead, ``[n]``, in the units of the environment.

        It is that of the victim's transitions that were held out, or of those that were recorded.

        Raises:
            CardError: for a model whose card does not say how large its errors are.
        """
        errors = self.card.get("errors") or {}
        part = next((errors[name] for name in ("victim", "recorded") if name in errors), None)
        shares = part.get("one_step") if isinstance(part, dict) else None
        if not isinstance(shares, list) or len(shares) != self.features:
            raise CardError("the card of this model has no errors: train it again, by train_dynamics")
        share = torch.tensor(shares, dtype=torch.float64).clamp(min=LEAST_SHARE)
        return share.sqrt() * self.net.change_std[:-1].double().cpu()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers of an observation, where the environment has some."""
        names = self.card.get("feature_names")
        return tuple(map(str, names)) if isinstance(names, (list, tuple)) else ()

    def predict(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        """One step.

        Args:
            obs: observations ``[..., n]`` in the units of the environment.
            act: native actions ``[..., k]``. The model computes in their dtype and on their device.

        Returns:
            The next observations ``[..., n]`` and the rewards ``[...]``, differentiable in both arguments.
        """
        next_obs, reward = self.net_like(act)(obs, act)
        return next_obs, reward

    def step(self, obs: Tensor, act: Tensor) -> Tensor:
        """The next observations ``[..., n]``, as :meth:`predict`."""
        return self.predict(obs, act)[0]

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim sees and acts in what this is a model of, at the same rate."""
        self._check_spaces(victim, self.features, self.actions)
        environments = (section(card or {}, "environment", {}) for card in (self.card, victim.card))
        (made, held), (used, holds) = ((about.get("id"), _action_repeat(about)) for about in environments)
        if made == used and held != holds:
            raise VictimError(
                f"the model predicts what follows {held} control steps of an action, this victim holds its actions for "
                f"{holds}: train a model with the action_repeat of the victim"
            )


def _action_repeat(environment: Section) -> object:
    kwargs = environment.get("kwargs")
    return kwargs.get("action_repeat", 1) if isinstance(kwargs, dict) else 1


def load_dynamics(ref: Dynamics | str) -> Dynamics:
    """The model that a text names, ``card:FOLDER``; a model is returned as it is.

    Raises:
        CardError: for another text, and for a folder that holds no model.
    """
    if isinstance(ref, Dynamics):
        return ref
    if not isinstance(ref, str) or not ref.startswith("card:"):
        raise CardError(f"expected a model of the dynamics, or card:FOLDER, got {ref!r:.80}")
    return Dynamics(ref.removeprefix("card:"))
