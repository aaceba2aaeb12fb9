"""Victims' cards of older formats, told as cards are today.

Their networks were of kinds, ``gaussian-mlp`` and others, whose layers followed from the names of the weights. A kind
is told here by its lists of layers, and the weights get the names of these. Nothing is checked: whoever reads the lists
checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from adv_wrappers.errors import CardError
from adv_wrappers.utils.checks import is_integer

Network = dict[str, Any]  # the section ``network``
Tensors = dict[str, Tensor]

_IMAGES = [4, 84, 84]  # observations of a victim whose card says nothing of their shape
# actions of Gymnasium's environments that reach further than 1, where a card says nothing of them
_REACH = {"InvertedPendulum": 3.0, "Pendulum": 2.0, "Pusher": 2.0, "Humanoid": 0.4, "HumanoidStandup": 0.4}


@dataclass(frozen=True)
class Kind:
    """What the kind of a victim's network stood for.

    Attributes:
        output: what its policy answers.
        mlps: networks of linear layers with an activation between them, as many as there are weights.
        lists: networks that are always the same.
        names: what names of weights began with, and begin with today.
    """

    output: str
    mlps: tuple[str, ...] = ()
    lists: Mapping[str, list[Any]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def _layers(*kinds: str) -> list[Any]:
    return [{"kind": kind} for kind in kinds]


_Q = Kind("q", ("policy",), names={"q.": "policy."})
_PATH = {
    f"{net}.{part}.": f"{net}.{i}." for net in ("policy", "value") for i, part in enumerate(("embed", "lstm", "head"))
}
_CONVOLUTIONS = [part for stride in (4, 2, 1) for part in ({"kind": "conv", "stride": stride}, {"kind": "relu"})]
KINDS = {
    "gaussian-mlp": Kind(
        "gaussian",
        ("trunk", "value"),
        {"policy": ["trunk", *_layers("append_log_std")]},
        {"policy.": "trunk.", "log_std": "policy.1.log_std"},
    ),
    "categorical-mlp": Kind("logits", ("policy", "value")),
    "tanh-mlp": Kind(
        "mean", ("trunk", "critic", "robust_sarsa"), {"policy": ["trunk", *_layers("tanh")]}, {"policy.": "trunk."}
    ),
    "q-mlp": _Q,
    "quantile-q-mlp": _Q,
    "categorical-cnn": Kind(  # the network of Mnih et al. 2015
        "logits",
        lists={
            "trunk": [*_CONVOLUTIONS, *_layers("flatten", "linear", "relu")],
            "policy": ["trunk", *_layers("linear")],
            "value": ["trunk", *_layers("linear")],
        },
        names={"policy.": "policy.1.", "value.": "value.1."},
    ),
    "gaussian-lstm": Kind(
        "gaussian",
        lists={
            "policy": _layers("linear", "lstm", "linear", "append_log_std"),
            "value": _layers("linear", "lstm", "linear"),
        },
        names={**_PATH, "log_std": "policy.3.log_std"},
    ),
}


def translated(about: Mapping[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
    """A victim's parsed ``card.json`` and weights, as in today's format, whose number is left to the caller."""
    network = about["network"]
    told = {name: value for name, value in about.items() if name not in ("format", "kind")} | {"role": "victim"}
    reach = _REACH.get(str(told["environment"]["id"]).split("/")[-1].split("-v")[0], 1.0)
    spaces: dict[str, dict[str, Any]] = {"observation": {"shape": _IMAGES}, "action": {"low": -reach, "high": reach}}
    for space in spaces:
        spaces[space] |= told.get("spaces", {}).get(space, {})
    # a network of layers already, or one of a kind
    if network.get("kind") == "layers":
        network = {name: value for name, value in network.items() if name != "kind"}
    else:
        network, tensors, features = _layered(network, tensors)
        spaces["observation"] |= {} if features is None else {"shape": [features]}
    if network.get("output") in ("q", "logits"):
        del spaces["action"]
    return {**told, "network": network, "spaces": spaces}, tensors


def _layered(network: Network, tensors: Tensors) -> tuple[Network, Tensors, int | None]:
    """A network of a kind by its layers, its weights, and how many numbers it takes; None for images."""
    name = network.get("kind")
    kind = KINDS.get(str(name))
    if kind is None:
        raise CardError(f"unknown network kind {name!r:.80}; known: {', '.join(KINDS)}, layers")
    flat = {key: x.reshape(1, -1) if key == "log_std" else x for key, x in tensors.items()}
    tensors = _renamed(flat, kind.names)
    # the layers of every network of the kind, of which the card has those that have weights
    lists = {net: _mlp(network, tensors, net) for net in kind.mlps} | {**kind.lists}
    held = {"trunk", "policy", *(key.split(".")[0] for key in tensors)}
    if name == "quantile-q-mlp":
        _average(network.get("quantiles"), tensors, f"policy.{len(lists['policy']) - 1}")
    first = tensors.get(f"{[*kind.mlps, 'policy'][0]}.0.weight")
    told = {"kind": name, "output": kind.output} | {net: lists[net] for net in lists if net in held}
    return told, tensors, None if first is None else first.shape[1]


def _average(quantiles: object, tensors: Tensors, last: str) -> None:
    """Make the mean over quantiles, which is linear, a part of the last layer."""
    for name in (f"{last}.weight", f"{last}.bias"):
        outputs, *inputs = tensors[name].shape
        if not is_integer(quantiles) or quantiles < 1 or outputs % quantiles:
            raise CardError(f"quantiles must divide the {outputs} outputs, got {quantiles!r:.80}")
        tensors[name] = tensors[name].double().view(quantiles, -1, *inputs).mean(0)


def _mlp(network: Network, tensors: Tensors, prefix: str) -> list[Network]:
    """Linear layers with an activation between them, whose weights are ``prefix.0, prefix.2, ...``."""
    count = sum(name.startswith(f"{prefix}.") and name.endswith(".weight") for name in tensors)
    return [{"kind": kind} for _ in range(max(count, 1)) for kind in ("linear", network.get("activation"))][:-1]


def _renamed(tensors: Tensors, names: Mapping[str, str]) -> Tensors:
    """Weights by names that begin as today."""
    found: Tensors = {}
    for name, tensor in tensors.items():
        old = next((old for old in names if name.startswith(old)), "")
        found[names.get(old, "") + name.removeprefix(old)] = tensor
    if len(found) < len(tensors):
        raise CardError(f"weights that this network does not have: {', '.join(sorted(tensors)):.300}")
    return found
