"""Cards: networks as folders with ``card.json`` and ``weights.safetensors``, which hold data and never code.

A card says the role of its networks: those of a ``victim``, the ``director`` of an adversary, a ``critic``, or a model
of the ``dynamics``. What they compute are lists of layers in its section ``network``:
``[{"kind": "conv", "stride": 4}, {"kind": "relu"}, {"kind": "flatten"}, {"kind": "linear"}]``. The sizes follow from
the weights ``NETWORK.I.NAME``, where ``I`` is the place of the layer in its list; settings that are torch's defaults
are left out. :func:`describe` writes layers down, :func:`build` makes them from what was written.

Files may come from a stranger: limits are checked before what they limit is allocated (see
:mod:`adv_wrappers.utils.reading`), and every weight is taken by its name, after checking its shape.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

from safetensors.torch import save
from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks import older_cards
from adv_wrappers.networks.graph import flattened
from adv_wrappers.networks.operations.lookup import operation_of
from adv_wrappers.networks.operations.operation import KINDS, OPERATIONS, hooked
from adv_wrappers.networks.operations.stored_layer import StoredLayer, Weights, WrittenLayer
from adv_wrappers.utils.files import write, write_json
from adv_wrappers.utils.reading import decoding, most_numbers, parse_json, parse_tensors, read_bytes
from adv_wrappers.utils.validation import MOST_NETWORKS

FORMAT = 3
MOST_LAYERS = 5000  # of one card; it takes seconds to build so many
TRUNK = "trunk"  # layers that several networks begin with: its name is then the first in their lists
Role = Literal["victim", "director", "critic", "dynamics"]
NETWORKS: dict[Role, tuple[str, ...]] = {  # the lists that a card may have
    "victim": (TRUNK, "policy", "value", "critic", "robust_sarsa", "critics"),
    "director": ("policy",),
    "critic": ("critic",),
    "dynamics": ("nets",),
}
_SEVERAL = ("critics", "nets")  # lists of networks
_RECURRENT = ("policy", "value")  # networks that may have a state
Section = dict[str, object]
Tensors = dict[str, Tensor]
Layers = Iterable[nn.Module | str]  # text: :data:`TRUNK`
Written = list[WrittenLayer | str]


@dataclass(frozen=True)
class Card:
    """What the two files of a folder say.

    Attributes:
        about: the parsed ``card.json``, in the format of today.
        tensors: of ``weights.safetensors``, by name.
        sha256: the hash of ``card.json`` (hexadecimal); empty where it is in no folder.
    """

    about: Section
    tensors: Tensors
    sha256: str = ""

    @classmethod
    def read(cls, folder: str | Path, role: Role, max_bytes: int | None = None) -> Card:
        """The card of a folder; one of an older format as it would be written today.

        Args:
            folder: the folder with both files.
            role: the role that the card must be of.
            max_bytes: limit on the length of either file; None is 256 MiB.

        Raises:
            CardError: for a file that is missing, truncated, too large or malformed, for a card of another role or of a
                later format, and for weights that are not those whose hash the card has, if it has one.
        """
        text, stored = (read_bytes(Path(folder, name), max_bytes) for name in ("card.json", "weights.safetensors"))
        about = parse_json(text, Path(folder, "card.json"), max_bytes)
        tensors = parse_tensors(stored, Path(folder, "weights.safetensors"))
        with decoding(folder):
            check_role(about, role)
            # the card holds the hash of its weights, so that neither can be exchanged
            if "weights_sha256" in about and about["weights_sha256"] != hashlib.sha256(stored).hexdigest():
                raise CardError("the weights are not those that card.json describes")
            if (stated := about.get("format", 1)) != FORMAT:
                if role != "victim":
                    raise CardError(
                        f"a {role} is read from cards of format {FORMAT}, got {stated!r:.80}: train it again"
                    )
                about, tensors = older_cards.translated(about, tensors)
        return cls(about, tensors, hashlib.sha256(text).hexdigest())

    @classmethod
    def of(
        cls, role: Role, about: Mapping[str, object], networks: Mapping[str, Layers], tensors: Mapping[str, Tensor]
    ) -> Card:
        """A card in no folder.

        Args:
            role: the role of its networks.
            about: what it says beside that.
            networks: by name; of several, such as ``critics``, ``critics.0`` and so on.
            tensors: further ones that the card holds.

        Raises:
            CardError: for what JSON cannot hold, NaN and infinity too, and for layers that have no written form.
        """
        network = {k: value for k, value in section(about, "network", {}).items() if k not in NETWORKS[role]}
        weights = {**tensors}
        # a list of layers for every network; those named NAME.I are one list of lists
        for name, layers in networks.items():
            written, found = describe(layers, name)
            weights |= found
            several, dot, _ = name.partition(".")
            network[several] = [*cast(list[Written], network.get(several, [])), written] if dot else written
        card = {"format": FORMAT, "role": role, **about, "network": network}
        try:
            return cls(dict(json.loads(json.dumps(card, allow_nan=False))), weights)
        except (TypeError, ValueError) as error:
            raise CardError(f"a card holds JSON values only: {error}") from error

    def write(self, folder: str | Path, hashed: bool = False) -> None:
        """Write ``card.json`` and ``weights.safetensors``, each all at once or not at all.

        Args:
            folder: the folder, which is created if it does not exist.
            hashed: put the hash of the weights into the card, so that files of two different moments are refused.
        """
        stored = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.tensors.items()})
        more = {"weights_sha256": hashlib.sha256(stored).hexdigest()} if hashed else {}
        write(Path(folder, "weights.safetensors"), stored)
        write_json(Path(folder, "card.json"), self.about | more, allow_nan=True)

    @property
    def network(self) -> Section:
        """What the card says of its networks."""
        return section(self.about, "network")

    @cached_property
    def weights(self) -> Weights:
        """The weights, to be taken by name."""
        return Weights(self.tensors)

    def networks(self) -> dict[str, nn.Sequential]:
        """The networks by name, frozen; of several, such as ``critics``, ``critics.0`` and so on.

        A network that begins with the trunk has it, a ``Sequential``, as its first layer.

        Raises:
            CardError: as :func:`build` does, and for an LSTM in another network than a policy or a state value.
        """
        # the lists of layers by the name of their network
        lists = dict[str, object]()
        for name in NETWORKS[cast(Role, self.about["role"])]:
            written = self.network.get(name)
            several = name in _SEVERAL and isinstance(written, list)
            lists |= {f"{name}.{i}": one for i, one in enumerate(cast(list[object], written))} if several else {}
            lists |= {} if several or written is None else {name: written}
        count = sum(len(written) if isinstance(written, list) else 0 for written in lists.values())
        if len(lists) > MOST_NETWORKS or count > MOST_LAYERS:
            most = f"{MOST_NETWORKS} networks of at most {MOST_LAYERS} layers together"
            raise CardError(f"a card holds at most {most}, got {len(lists)} of {count}")
        # the trunk is the first name of all, so that the others find it built
        found = dict[str, nn.Sequential]()
        for name, written in lists.items():
            if not isinstance(written, list):
                raise CardError(f"expected {name} as a list of layers, got {written!r:.80}")
            found[name] = build(written, self.weights, name, found.get(TRUNK))
            if name not in _RECURRENT and any(isinstance(layer, nn.LSTM) for layer in found[name]):
                raise CardError(f"{' and '.join(_RECURRENT)} may have an lstm among their layers, {name} may not")
        return found


def role_of(about: Mapping[str, object]) -> str | None:
    """Whose card a parsed ``card.json`` is, by a word that older ones have elsewhere; None for what looks like none."""
    role = about.get("role") or about.get("kind")
    if isinstance(role, str) and role in NETWORKS:
        return role
    return "victim" if isinstance(about.get("network"), dict) else None


def check_role(about: Mapping[str, object], role: Role) -> None:
    """Raise :class:`CardError` for the card of another role, or of a format that is not known here."""
    found, stated = role_of(about), about.get("format", 1)
    if found not in (role, None):
        raise CardError(f"expected the card of a {role}, got that of a {found}")
    if stated not in range(1, FORMAT + 1):
        raise CardError(f"cards have a format up to {FORMAT}, got {stated!r:.80}")


def section(about: Mapping[str, object], name: str, default: Section | None = None) -> Section:
    """The object ``name`` in a card; :class:`CardError` for anything else in its place."""
    found = about.get(name, default)
    if not isinstance(found, dict):
        raise CardError(f"card.json needs an object {name!r}, got {found!r:.80}")
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Lists of layers.
# ----------------------------------------------------------------------------------------------------------------------


def kinds() -> tuple[str, ...]:
    """The kinds of layers that can be written down, sorted."""
    return tuple(sorted(KINDS))


def kind_of(layer: nn.Module) -> str | None:
    """The kind under which a layer is written; None for another type, a subclass, or a layer with a hook."""
    found = OPERATIONS.get(type(layer))
    return None if found is None or hooked(layer) else found.kind


def describe(layers: Layers, prefix: str) -> tuple[Written, Tensors]:
    """The written form of layers in a row: the list for JSON, and their weights as ``PREFIX.I.NAME``.

    Weights are those of the layers themselves: they are copied when they are saved.

    Raises:
        CardError: for a layer that has no written form.
    """
    written: Written = []
    tensors: Tensors = {}
    for i, layer in enumerate(layers):
        if isinstance(layer, str):
            written.append(layer)
            continue
        # the layer's kind with the settings that are not defaults, and its weights under its place
        kind, operation = kind_of(layer), operation_of(layer)
        if kind is None or operation is None:
            raise CardError(f"networks of the layers {', '.join(kinds())} can be written, got {type(layer).__name__}")
        written.append({"kind": kind, **operation.settings()})
        tensors |= {f"{prefix}.{i}.{name}": tensor for name, tensor in layer.state_dict().items()}
    return written, tensors


def build(
    written: Sequence[object], weights: Weights, prefix: str, trunk: nn.Sequential | None = None
) -> nn.Sequential:
    """The network that :func:`describe` wrote down, frozen, around the weights ``PREFIX.I.NAME``.

    Raises:
        CardError: for unknown layers, layers that could not be written so, and weights that are missing. Whether a
            layer takes what the one before it gives says :func:`output_shape`. Settings that a layer does not have, or
            cannot, are whatever error its constructor raises.
    """
    layers: list[nn.Module] = []
    for i, about in enumerate(written):
        kind = KINDS.get(str(about.get("kind"))) if isinstance(about, Mapping) else None
        if about == TRUNK and i == 0 and trunk is not None:
            layer: nn.Module = trunk
        elif kind is None or not isinstance(about, Mapping):
            raise CardError(f"expected layers of the kinds {', '.join(kinds())}, got {about!r:.80}")
        else:
            settings = {name: value for name, value in about.items() if name != "kind"}
            layer = kind.build(StoredLayer(weights, f"{prefix}.{i}", settings))
        layers.append(layer)
        for part in flattened(layer):
            operation = operation_of(part)
            assert operation is not None
            operation.settings()  # raises for what no card says, such as an LSTM that runs both ways
    return nn.Sequential(*layers)


def copy_of(layers: Iterable[nn.Module]) -> nn.Sequential:
    """The same layers, frozen, around copies of their weights; no random number is drawn for it.

    Raises:
        CardError: for a layer that has no written form, and for weights that are not finite.
    """
    written, tensors = describe(layers, "net")
    return build(written, Weights({name: t.detach().clone() for name, t in tensors.items()}), "net")


def output_shape(net: nn.Module, shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Shape of what layers make of one input of ``shape``, found without computing anything; of an LSTM, of one step.

    Raises:
        CardError: where a layer would answer with more than ``most`` numbers, or does not take what it gets.
    """
    for layer in flattened(net):
        operation = operation_of(layer)
        assert operation is not None
        try:
            after = operation.shape_after(shape)
        except RuntimeError as error:
            raise CardError(f"{layer} does not take {shape}: {error!s:.200}") from error
        if math.prod(after) > most:
            raise CardError(f"{layer} would answer with {math.prod(after)} numbers, at most {most} are allowed")
        shape = after
    return shape


def check_sizes(name: str, net: nn.Module, inputs: int, outputs: int) -> None:
    """Raise :class:`CardError` unless a network takes so many numbers, and answers with so many."""
    found = output_shape(net, (inputs,), most_numbers(None))
    if found != (outputs,):
        raise CardError(f"expected {name} to answer {inputs} numbers with {outputs}, it answers with {found}")
