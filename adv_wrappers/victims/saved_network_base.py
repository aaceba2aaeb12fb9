"""Networks that are trained beside a victim, as folders of data: a critic of it, a model of its environment.

A folder holds ``card.json`` and ``weights.safetensors``, and no code. What is read from it is a frozen value, known by
the hash of the card, which holds that of the weights.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import torch
from torch import Tensor, nn

from adv_wrappers.core.json_values import Value
from adv_wrappers.errors import Argument, CardError, Message, ThreatError
from adv_wrappers.networks.card_format import Card, CardKind, Section, digest, read_card, write_card

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

    card_kind: ClassVar[CardKind]
    called: ClassVar[str]  # in error messages
    folder: str | None
    sha256: str | None = None
    card: dict[str, Any] = field(init=False, repr=False, compare=False)
    net: N = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.folder, (str, Path)):
            raise CardError(f"a {self.called} is read from a folder, got {self.folder!r:.80}")
        where, expected = str(self.folder), self.sha256
        card = read_card(where, self.card_kind)
        if expected is not None and card.sha256 != expected:
            raise CardError(
                f"the {self.called} {where} changed: expected sha256 {expected[:12]}, got {card.sha256[:12]}"
            )
        if "weights_sha256" not in card.about:  # without it the hash of the card would say nothing of the weights
            raise CardError(f"{where}: the card of a {self.called} needs weights_sha256")
        self._fill(folder=where, sha256=card.sha256, card=card.about, net=self._network(card).eval())

    def _fill(self, **values: object) -> None:
        for name, value in {**values, "_nets": {}}.items():
            object.__setattr__(self, name, value)

    @staticmethod
    @abstractmethod
    def _network(card: Card) -> N:
        """The network that a card describes, frozen."""

    def _tensors(self) -> Mapping[str, Tensor]:
        """The weights by their names in the file."""
        return self.net.state_dict()

    @classmethod
    def of(cls, net: N, card: Section) -> Self:
        """One that is in no folder yet, around ``net`` itself; it has no JSON form before :meth:`save`."""
        made = object.__new__(cls)
        made._fill(folder=None, sha256=digest([net]), card=card, net=net.eval().requires_grad_(False))
        return made

    def save(self, folder: str | Path) -> Self:
        """Write both files, each all at once, and read them back."""
        try:
            about = json.loads(json.dumps(self.card, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise CardError(f"a card holds JSON values only: {error}") from error
        write_card(folder, self.card_kind, about, self._tensors(), hashed=True)
        return type(self)(str(folder))

    def to_dict(self) -> dict[str, Any]:
        if self.folder is None:
            raise ThreatError(
                Message(
                    f"this {self.called} is in no folder and has no JSON form: train it with ",
                    Argument("out", ...),
                    ", or save(folder)",
                )
            )
        return {"type": self.name, "folder": self.folder, "sha256": self.sha256}

    def _net_like(self, x: Tensor) -> N:
        """The network in the dtype and on the device of ``x``."""
        nets: dict[tuple[torch.dtype, torch.device], N] = self.__dict__["_nets"]
        key = x.dtype, x.device
        if key not in nets:
            nets[key] = copy.deepcopy(self.net).to(dtype=x.dtype, device=x.device).requires_grad_(False)
        return nets[key]

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self  # as a victim: a frozen value
