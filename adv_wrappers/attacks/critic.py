"""Trained critics as folders of data: ``card.json`` and ``weights.safetensors``, which hold no code."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from adv_wrappers.core.values import Value
from adv_wrappers.errors import CardError, ThreatError, VictimError
from adv_wrappers.networks.card import Section, Weights, digest, read_card, section, write_card
from adv_wrappers.networks.layers import ActionValue, Normalize
from adv_wrappers.networks.serialization import clip_of
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.victims.card_networks import mlp
from adv_wrappers.victims.victim import Victim


@dataclass(frozen=True)
class Critic(Value):
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

    name: ClassVar[str] = "critic"
    folder: str | None
    sha256: str | None = None
    card: dict[str, Any] = field(init=False, repr=False, compare=False)
    net: ActionValue = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, Path)):
            raise CardError(f"a critic is read from a folder, got {self.folder!r:.80}")
        where, expected = str(self.folder), self.sha256
        card = read_card(where, "critic")
        if expected is not None and card.sha256 != expected:
            raise CardError(f"the critic {where} changed: expected sha256 {expected[:12]}, got {card.sha256[:12]}")
        if "weights_sha256" not in card.about:  # without it the hash of the card would say nothing of the weights
            raise CardError(f"{where}: the card of a critic needs weights_sha256")
        network = card.section("network")
        try:
            features, actions = int(network["features"]), int(network["actions"])  # type: ignore[call-overload]
            clip = clip_of(card.section("observation")["clip"], where, "observation.clip")
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise CardError(f"cannot read a critic from {where}: {type(error).__name__}: {error!s:.200}") from error
        weights = Weights(card.tensors, where)
        mean, std = (weights.take(name, features).data for name in ("mean", "std"))
        if not (std > 0).all():
            raise CardError(f"{where}: std must be above 0")
        net = ActionValue(Normalize(mean, std, clip), mlp(weights, "critic", network, features + actions, 1)).eval()
        weights.finish()
        set_fields(self, folder=where, sha256=card.sha256, card=card.about, net=net)

    @classmethod
    def of(cls, net: ActionValue, card: Section) -> Critic:
        """A critic that is in no folder yet, around ``net`` itself; it has no JSON form before :meth:`save`."""
        critic = object.__new__(cls)
        set_fields(critic, folder=None, sha256=digest([net]), card=card, net=net.eval().requires_grad_(False))
        return critic

    def save(self, folder: str | Path) -> Critic:
        """Write both files, each all at once, and read them back."""
        layers = {f"critic.{name}": value for name, value in self.net.net.state_dict().items()}
        try:
            about = json.loads(json.dumps(self.card, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise CardError(f"a card holds JSON values only: {error}") from error
        write_card(folder, "critic", about, layers | self.net.normalise.state_dict(), hashed=True)
        return Critic(str(folder))

    def to_dict(self) -> dict[str, Any]:
        if self.folder is None:
            raise ThreatError("this critic is in no folder and has no JSON form: train it with out=, or save(folder)")
        return {"type": self.name, "folder": self.folder, "sha256": self.sha256}

    @cached_property
    def _nets(self) -> dict[tuple[torch.dtype, torch.device], nn.Module]:
        """The network in every dtype and on every device that it was asked for."""
        return {}

    def __call__(self, obs: Tensor, act: Tensor) -> Tensor:
        """Q ``[B]``, in the units of the environment's return, in the dtype and on the device of ``act``."""
        key = act.dtype, act.device
        if key not in self._nets:
            self._nets[key] = copy.deepcopy(self.net).to(dtype=act.dtype, device=act.device)
        return self._nets[key](obs, act)  # type: ignore[no-any-return]

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim's observations and actions are as long as this critic's."""
        network = section(self.card, "network", "the critic")
        own = (network["features"],), (network["actions"],)
        shapes = victim.observation_space.shape, victim.action_space.shape
        if own != shapes:
            raise VictimError(f"the critic takes observations and actions of shapes {own}, this victim has {shapes}")

    def __deepcopy__(self, memo: dict[int, object]) -> Critic:
        return self  # as a victim: a frozen value
