"""The networks of a victim's card, by the kind that its card names.

A kind is a short way to say what :mod:`adv_wrappers.networks.serialization` says layer by layer; the sizes follow from
the weights. ``docs/cards.rst`` lists the kinds and the names of their weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.card_format import Weights
from adv_wrappers.networks.graph import flattened
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, Normalize, mean_over_quantiles
from adv_wrappers.networks.recurrent import (
    GaussianLSTM,
    LSTMPath,
    LSTMValue,
    RecurrentActor,
    RecurrentValue,
    zero_state,
)
from adv_wrappers.networks.serialization import build, output_shape
from adv_wrappers.utils.checks import check_choice, is_integer
from adv_wrappers.victims.victim import OutputKind

_MOST_CRITICS = 16
_NETWORKS = ("policy", "value", "critic", "robust_sarsa")
STRIDES = (4, 2, 1)  # of the Atari trunk of Mnih et al. 2015, which weights do not tell
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}
NetworkSection = Mapping[str, object]  # the section ``network`` of a card


@dataclass
class VictimNetworks:
    """What a victim is made of: the networks, the kind of output, and the sizes that a card's spaces follow from.

    Attributes:
        shape: of an observation.
        actions: how many there are, or how many numbers one is.
        critics: of a card with several, which take actions in [-1, 1]; the least of them is the critic.
    """

    net: nn.Module
    kind: OutputKind
    shape: tuple[int, ...] = ()
    actions: int = 0
    value: nn.Module | None = None
    critic: nn.Module | None = None
    critics: tuple[nn.Module, ...] = ()
    robust_sarsa: nn.Module | None = None
    initial_state: Callable[..., tuple[Tensor, ...]] | None = None


def networks_of(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    """The networks of ``network["kind"]``.

    Args:
        weights: all of them are taken.
        network: the card's section.
        normalise: the observation rule, the first layer of every network.
        shape: of observations, where it does not follow from the weights.
        most: limit on the numbers that a layer may answer with, where sizes do not follow from the weights alone.

    Raises:
        CardError: for an unknown kind, and for weights and settings that are missing, left over or do not fit.
    """
    kind = str(network.get("kind"))
    maker = _KINDS.get(kind)
    if maker is None:
        raise CardError(f"unknown network kind {kind!r:.80}; known: {', '.join(_KINDS)}")
    nets = maker(weights, network, normalise, shape, most)
    weights.finish()
    return nets


@dataclass(frozen=True)
class MLP:
    """Linear layers with biases and one activation between them.

    Attributes:
        normalize: the layer before them, if there is one.
        linear: at least one.
        activation: ``"relu"`` or ``"tanh"``; None where there is one layer alone.
        end: what follows the last of them: a tanh, a log standard deviation, or nothing.
    """

    normalize: Normalize | None
    linear: tuple[nn.Linear, ...]
    activation: str | None
    end: nn.Tanh | AppendLogStd | None

    @property
    def hidden(self) -> list[int]:
        """Widths of the hidden layers."""
        return [layer.out_features for layer in self.linear[:-1]]


def mlp_of(layers: Sequence[nn.Module]) -> MLP | None:
    """Layers in a row as an MLP, or None for what is none. Inputs are vectors: a ``Flatten`` does nothing."""
    rest = [layer for layer in layers if not isinstance(layer, nn.Flatten)]
    first = rest.pop(0) if rest and isinstance(rest[0], Normalize) else None
    last = rest.pop() if rest and isinstance(rest[-1], (nn.Tanh, AppendLogStd)) else None
    linear = tuple(layer for layer in rest[::2] if isinstance(layer, nn.Linear) and layer.bias is not None)
    between = {next((name for name, kind in ACTIVATIONS.items() if type(layer) is kind), None) for layer in rest[1::2]}
    if not linear or 2 * len(linear) - 1 != len(rest) or None in between or len(between) > 1:
        return None
    activation = next(iter(between), None)
    # the second time for the types
    normalize = first if isinstance(first, Normalize) else None
    return MLP(normalize, linear, activation, last if isinstance(last, (nn.Tanh, AppendLogStd)) else None)


def mlp(
    weights: Weights, prefix: str, network: NetworkSection, inputs: int | None = None, outputs: int | None = None
) -> nn.Sequential:
    """``Linear, activation, Linear, ...`` whose weights are named ``prefix.0, prefix.2, ...``."""
    activation = network.get("activation")
    check_choice("activation", activation, ACTIVATIONS, error=CardError)
    count = sum(name.startswith(prefix + ".") and name.endswith(".weight") for name in weights.tensors)
    written = [{"kind": kind} for _ in range(max(count, 1)) for kind in ("linear", activation)][:-1]
    net = build(written, weights, prefix, inputs, outputs)
    hidden = [layer.out_features for layer in net if isinstance(layer, nn.Linear)][:-1]
    if "hidden" in network and network["hidden"] != hidden:
        raise CardError(f"the card says hidden={network['hidden']!s:.80}, the weights of {prefix} say {hidden}")
    return net


def _sizes(net: Sequence[nn.Module] | nn.Sequential) -> tuple[int, int]:
    first, last = net[0], net[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    return first.in_features, last.out_features


def _actor_critic(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    policy = mlp(weights, "policy", network)
    features, actions = _sizes(policy)
    value = nn.Sequential(normalise, mlp(weights, "value", network, features, 1)) if weights.has("value") else None
    if network["kind"] == "categorical-mlp":
        return VictimNetworks(nn.Sequential(normalise, policy), "logits", (features,), actions, value)
    tail = AppendLogStd(weights.take("log_std", actions))
    return VictimNetworks(nn.Sequential(normalise, policy, tail), "gaussian", (features,), actions, value)


def _deterministic(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    policy = mlp(weights, "policy", network)
    features, actions = _sizes(policy)
    nets = VictimNetworks(nn.Sequential(normalise, policy, nn.Tanh()), "mean", (features,), actions)
    for name in ("critic", "robust_sarsa"):
        if weights.has(name):
            setattr(nets, name, ActionValue(normalise, mlp(weights, name, network, features + actions, 1)))
    return nets


def _q(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    q = mlp(weights, "q" if weights.has("q") else "policy", network)
    features, outputs = _sizes(q)
    if network["kind"] == "quantile-q-mlp":
        quantiles = network.get("quantiles")
        if not is_integer(quantiles) or quantiles < 1 or outputs % quantiles:
            raise CardError(f"quantiles must divide the {outputs} outputs, got {quantiles!r:.80}")
        last = q[-1]
        assert isinstance(last, nn.Linear)
        q[-1] = mean_over_quantiles(last, quantiles)
        outputs //= quantiles
    return VictimNetworks(nn.Sequential(normalise, q), "q", (features,), outputs)


def _nature_cnn(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    channels, rows, columns = shape
    layers: list[nn.Module] = []
    for i, stride in enumerate(STRIDES):
        conv = weights.conv(f"trunk.{2 * i}", channels, stride=stride)
        rows, columns = ((size - k) // stride + 1 for size, k in zip((rows, columns), conv.kernel_size, strict=True))
        layers, channels = [*layers, conv, nn.ReLU()], conv.out_channels
    hidden = weights.linear("trunk.7", channels * rows * columns)
    trunk = nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU())
    policy = weights.linear("policy", hidden.out_features)
    value = weights.linear("value", hidden.out_features, 1) if weights.has("value") else None
    net = nn.Sequential(normalise, trunk, policy)
    return VictimNetworks(net, "logits", shape, policy.out_features, value and nn.Sequential(normalise, trunk, value))


def _gaussian_lstm(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    policy = _path(weights, "policy")
    features, actions = policy.embed.in_features, policy.head.out_features
    value = _path(weights, "value", features, 1) if weights.has("value") else None
    net = GaussianLSTM(normalise, policy, weights.take("log_std", actions), value)
    sizes = [path.head.in_features for path in (policy, value) if path is not None for _ in "hc"]
    start = functools.partial(zero_state, [(size,) for size in sizes])
    valued = None if value is None else LSTMValue(normalise, value)
    return VictimNetworks(net, "gaussian", (features,), actions, valued, initial_state=start)


def _path(weights: Weights, prefix: str, inputs: int | None = None, outputs: int | None = None) -> LSTMPath:
    """``prefix.embed``, ``prefix.lstm`` (one layer) and ``prefix.head``."""
    embed, head = weights.linear(f"{prefix}.embed", inputs), weights.linear(f"{prefix}.head", None, outputs)
    return LSTMPath(embed, weights.lstm_cell(f"{prefix}.lstm", embed.out_features, head.in_features), head)


def _layers(
    weights: Weights, network: NetworkSection, normalise: nn.Module, shape: tuple[int, ...], most: int
) -> VictimNetworks:
    """Every network as a list of layers (see :mod:`adv_wrappers.networks.serialization`)."""
    output = network.get("output")
    check_choice("output", output, get_args(OutputKind), error=CardError)
    several = cast(list[object], network.get("critics", []))[:_MOST_CRITICS]
    lists = {f"critics.{i}": written for i, written in enumerate(several)}
    lists |= {name: network[name] for name in _NETWORKS if network.get(name) is not None}
    built = {name: build(cast(list[object], written), weights, name) for name, written in lists.items()}

    def width(net: nn.Module, inputs: tuple[int, ...]) -> int:
        (found,) = output_shape(flattened(net), inputs, most)
        return found

    net = nn.Sequential(normalise, built["policy"])
    actions, left = divmod(width(net, shape), 2 if output == "gaussian" else 1)
    nets = VictimNetworks(net, cast(OutputKind, output), shape, actions)
    if "value" in built:
        nets.value = nn.Sequential(normalise, built["value"])
    inputs = {name: (shape[0] + actions,) if name not in ("policy", "value") else shape for name in built}
    if left or any(width(part, inputs[name]) != 1 for name, part in built.items() if name != "policy"):
        raise CardError("policy must answer with numbers for each action, and all other networks with one number")
    if any(isinstance(layer, nn.LSTM) for part in built.values() for layer in part):
        _make_recurrent(nets, normalise, built)
    for name in [name for name in built if name not in ("policy", "value")]:
        if name in ("critic", "robust_sarsa"):
            setattr(nets, name, ActionValue(normalise, built[name]))
        else:
            nets.critics = (*nets.critics, built[name])
    return nets


def _make_recurrent(nets: VictimNetworks, normalise: nn.Module, built: Mapping[str, nn.Sequential]) -> None:
    """Give networks with an LSTM in their lists of layers the state of one."""
    split = dict[str, tuple[nn.Sequential, nn.LSTM | None, nn.Sequential]]()
    for name, net in built.items():
        layers = list(net)
        found = [(i, layer) for i, layer in enumerate(layers) if isinstance(layer, nn.LSTM)]
        if len(found) > (name in ("policy", "value")):
            raise CardError(f"policy and value may have one lstm among their layers, {name} has {len(found)}")
        at, only = found[0] if found else (-1, None)
        split[name] = nn.Sequential(normalise, *layers[: max(at, 0)]), only, nn.Sequential(*layers[at + 1 :])
    features, lstm, head = split["policy"]
    if lstm is None:
        raise CardError("value has an lstm among its layers, and policy has none")
    before, own, valued = split.get("value", (None, None, None))
    nets.net = RecurrentActor(features, lstm, head, None if before is None or own is None else (before, own))
    if before is not None and valued is not None:
        nets.value = RecurrentValue(before, own, None, valued, own is not None)
    shapes = [(each.num_layers, each.hidden_size) for each in (lstm, own) if each is not None for _ in "hc"]
    nets.initial_state = functools.partial(zero_state, shapes)


_Maker = Callable[[Weights, NetworkSection, nn.Module, tuple[int, ...], int], VictimNetworks]
_KINDS: dict[str, _Maker] = {
    "gaussian-mlp": _actor_critic, "categorical-mlp": _actor_critic, "tanh-mlp": _deterministic, "q-mlp": _q,
    "quantile-q-mlp": _q, "categorical-cnn": _nature_cnn, "gaussian-lstm": _gaussian_lstm, "layers": _layers,
}  # fmt: skip
