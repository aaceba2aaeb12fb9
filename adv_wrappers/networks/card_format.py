"""Cards: networks as folders with ``card.json`` and ``weights.safetensors``, which hold data and never code.

Every card says of which kind it is: a ``victim``, the ``director`` of an adversary, a ``critic``, a model of the
``dynamics``, or a ``denoiser`` of observations. Its files may come from a stranger: limits are checked before what they
limit is allocated (see :mod:`adv_wrappers.utils.reading`), and :class:`Weights` gives every tensor by its name,
after checking its shape.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from safetensors.torch import save
from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.utils.files import write
from adv_wrappers.utils.reading import decoding, parse_json, parse_tensors, read_bytes

FORMAT = 2
CardKind = Literal["victim", "director", "critic", "dynamics", "denoiser"]
Section = dict[str, object]


@dataclass(frozen=True)
class Card:
    """What the two files of a folder say.

    Attributes:
        about: the parsed ``card.json``.
        tensors: of ``weights.safetensors``, by name.
        sha256: the hash of ``card.json`` (hexadecimal).
    """

    about: Section
    tensors: dict[str, Tensor]
    sha256: str


def read_card(folder: str | Path, kind: CardKind, max_bytes: int | None = None) -> Card:
    """The card of a folder.

    Args:
        folder: the folder with both files.
        kind: the kind that the card must be of.
        max_bytes: limit on the length of either file; None is 256 MiB.

    Raises:
        CardError: for a file that is missing, truncated, too large or malformed, for a card of another kind or of a
            later format, and for weights that are not those whose hash the card has, if it has one.
    """
    text, stored = (read_bytes(Path(folder, name), max_bytes) for name in ("card.json", "weights.safetensors"))
    about = parse_json(text, Path(folder, "card.json"), max_bytes)
    tensors = parse_tensors(stored, Path(folder, "weights.safetensors"))
    with decoding(folder):
        check_kind(about, kind)
        if "weights_sha256" in about and about["weights_sha256"] != hashlib.sha256(stored).hexdigest():
            raise CardError("the weights are not those that card.json describes")
    return Card(about, tensors, hashlib.sha256(text).hexdigest())


def write_card(
    folder: str | Path, kind: CardKind, about: Mapping[str, object], tensors: Mapping[str, Tensor], hashed: bool = False
) -> None:
    """Write ``card.json`` and ``weights.safetensors``, each all at once or not at all.

    Args:
        folder: the folder, which is created if it does not exist.
        kind: the kind of the card.
        about: what the card says beside its format and kind.
        tensors: the weights by name.
        hashed: put the hash of the weights into the card, so that files of two different moments are refused.
    """
    stored = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    card = {"format": FORMAT, "kind": kind, **{k: value for k, value in about.items() if k not in ("format", "kind")}}
    if hashed:
        card["weights_sha256"] = hashlib.sha256(stored).hexdigest()
    text = json.dumps(card, indent=1) + "\n"
    write(Path(folder, "weights.safetensors"), stored)
    write(Path(folder, "card.json"), text.encode())


def as_json(about: Mapping[str, object]) -> Section:
    """What a card says as its file returns it; :class:`CardError` for what JSON cannot hold, NaN and infinity too."""
    try:
        return dict(json.loads(json.dumps(about, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise CardError(f"a card holds JSON values only: {error}") from error


def card_kind(about: Mapping[str, object]) -> CardKind | None:
    """What a parsed ``card.json`` is of; None where it does not look like a card.

    Cards without a format were written before there were kinds: a director's said ``adversary``, a critic's and a
    victim's have a network of some kind.
    """
    kind, network = about.get("kind"), about.get("network")
    if kind in get_args(CardKind):
        return cast(CardKind, kind)
    if kind == "adversary":
        return "director"
    if not isinstance(network, dict):
        return None
    return "critic" if network.get("kind") == "critic-mlp" else "victim"


def check_kind(about: Mapping[str, object], kind: CardKind) -> None:
    """Raise :class:`CardError` for the card of another kind, or of a format that is not known here."""
    found, stated = card_kind(about), about.get("format", 1)
    if found not in (kind, None):
        raise CardError(f"expected the card of a {kind}, got that of a {found}")
    if stated not in (1, FORMAT):
        raise CardError(f"cards have format 1 or {FORMAT}, got {stated!r:.80}")


def section(about: Mapping[str, object], name: str, default: Section | None = None) -> Section:
    """The object ``name`` in a card; :class:`CardError` for anything else in its place."""
    found = about.get(name, default)
    if not isinstance(found, dict):
        raise CardError(f"card.json needs an object {name!r}, got {found!r:.80}")
    return found


class Weights:
    """Weights taken by name; a missing one, a wrong shape and one left over are each a :class:`CardError`.

    Args:
        tensors: by name, floating point, finite, and none of them empty: the shape of an empty one may say anything.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if not tensor.is_floating_point() or not tensor.numel() or not torch.isfinite(tensor).all():
                raise CardError(
                    f"{name} must hold finite floats, got {tensor.dtype} {tuple(tensor.shape)}: {tensor!s:.80}"
                )
        self.tensors, self.taken = tensors, set[str]()

    def has(self, prefix: str) -> bool:
        """Whether any weight is named ``prefix.*``."""
        return any(name.startswith(prefix + ".") for name in self.tensors)

    def take(self, name: str, *shape: int | None) -> nn.Parameter:
        """One weight, frozen; None in ``shape`` allows any size, and no ``shape`` any at all."""
        found = self.tensors.get(name)
        wanted = tuple("any" if size is None else size for size in shape)
        if found is None:
            raise CardError(f"expected {name} of shape {wanted}, got only {', '.join(sorted(self.tensors)):.300}")
        fits = len(shape) == found.dim() and all(w in (None, size) for w, size in zip(shape, found.shape, strict=True))
        if shape and not fits:
            raise CardError(f"expected {name} of shape {wanted}, got {tuple(found.shape)}")
        self.taken.add(name)
        return nn.Parameter(found, requires_grad=False)

    def linear(
        self, prefix: str, inputs: int | None = None, outputs: int | None = None, bias: bool = True
    ) -> nn.Linear:
        """The layer ``prefix``; made on ``meta`` so that no global random number is drawn for it."""
        weight = self.take(f"{prefix}.weight", outputs, inputs)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias, device="meta")
        layer.weight = weight
        if bias:
            layer.bias = self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def conv(
        self,
        prefix: str,
        inputs: int | None,
        outputs: int | None = None,
        *,
        stride: int | Sequence[int],
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> nn.Conv2d:
        """The convolution ``prefix``, by default without padding."""
        weight = self.take(f"{prefix}.weight", outputs, None if inputs is None else inputs // groups, None, None)
        outputs, channels, rows, columns = weight.shape
        settings: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        layer = nn.Conv2d(channels * groups, outputs, (rows, columns), bias=bias, device="meta", **settings)
        layer.weight = weight
        if bias:
            layer.bias = self.take(f"{prefix}.bias", outputs)
        return layer

    def lstm(self, prefix: str, inputs: int | None = None, _: int | None = None) -> nn.LSTM:
        """The layers ``prefix.weight_ih_l0``, ``prefix.weight_hh_l0``, two biases, and so on, of one ``nn.LSTM``."""
        count = max(sum(name.startswith(f"{prefix}.weight_ih_l") for name in self.tensors), 1)
        size = self.take(f"{prefix}.weight_hh_l0", None, None).shape[1]
        first = self.take(f"{prefix}.weight_ih_l0", None, inputs).shape[1]
        layer = nn.LSTM(first, size, count, device="meta")
        for i in range(count):
            for name, weight in self._lstm_weights(prefix, i, size if i else first, size).items():
                setattr(layer, f"{name}_l{i}", weight)
        return layer

    def lstm_cell(self, prefix: str, inputs: int, size: int) -> nn.LSTMCell:
        """The only layer of an ``nn.LSTM`` as a cell."""
        cell = nn.LSTMCell(inputs, size, device="meta")
        for name, weight in self._lstm_weights(prefix, 0, inputs, size).items():
            setattr(cell, name, weight)
        return cell

    def _lstm_weights(self, prefix: str, layer: int, inputs: int, size: int) -> dict[str, nn.Parameter]:
        shapes = {
            "weight_ih": (4 * size, inputs),
            "weight_hh": (4 * size, size),
            "bias_ih": (4 * size,),
            "bias_hh": (4 * size,),
        }
        return {name: self.take(f"{prefix}.{name}_l{layer}", *shape) for name, shape in shapes.items()}

    def finish(self) -> None:
        """Raise if a weight was not taken: the network is then not what the card says."""
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise CardError(f"weights that this kind of network does not have: {', '.join(left):.300}")


def digest(modules: Iterable[nn.Module]) -> str:
    """sha256 over names, shapes, dtypes and bytes of all weights and buffers (hexadecimal)."""
    found = hashlib.sha256()
    for module in modules:
        try:
            held = module.state_dict()
        except Exception:  # of a method of the module's own
            held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, value in sorted(held.items()):
            _digest(found, name, value)
    return found.hexdigest()


def _digest(found: Any, name: str, value: object) -> None:
    """Add a named weight; layers of quantised networks have tuples of weights, numbers and dtypes too."""
    if isinstance(value, (tuple, list)):
        for i, part in enumerate(value):
            _digest(found, f"{name}.{i}", part)
    elif not isinstance(value, Tensor):
        found.update(f"{name}{value!r}".encode())
    else:
        if value.is_quantized:
            found.update(f"{name}{value.qscheme()}".encode())
            value = value.dequantize()
        # contiguous() would leave any stride to a side of length 1
        array = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        found.update(f"{name}{tuple(array.shape)}{array.dtype}".encode())
        found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
