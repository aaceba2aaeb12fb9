"""The networks of a victim's card, by the kind that its card names.

A kind is a short way to say what :mod:`adv_wrappers.networks.spec` says layer by layer; the sizes follow from the
weights. ``docs/cards.rst`` lists the kinds and the names of their weights.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.layers import ActionValue, AppendLogStd, mean_over_quantiles
from adv_wrappers.networks.recurrent import GaussianLSTM, LSTMPath, LSTMValue, zero_state
from adv_wrappers.networks.spec import build
from adv_wrappers.networks.weights import Weights
from adv_wrappers.utils.numbers import is_integer
from adv_wrappers.victims.victim import Kind

STRIDES = (4, 2, 1)  # of the Atari trunk of Mnih et al. 2015, which weights do not tell
Network = Mapping[str, object]  # the section ``network`` of a card


@dataclass
class VictimNetworks:
    """What a victim is made of: the networks, the kind of output, and the sizes that a card's spaces follow from."""

    net: nn.Module
    kind: Kind
    features: int = 0
    actions: int = 0
    value: nn.Module | None = None
    critic: nn.Module | None = None
    robust_sarsa: nn.Module | None = None
    initial_state: Callable[..., tuple[Tensor, ...]] | None = None


def networks_of(
    weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]
) -> VictimNetworks:  # fmt: skip
    """The networks of ``network["kind"]``; ``image`` is the shape of image observations."""
    kind = str(network.get("kind"))
    maker = _KINDS.get(kind)
    if maker is None:
        raise CardError(f"{weights.where}: unknown network kind {kind!r:.80}; known: {', '.join(_KINDS)}")
    nets = maker(weights, network, normalise, image)
    weights.finish()
    return nets


def mlp(
    weights: Weights, prefix: str, network: Network, inputs: int | None = None, outputs: int | None = None
) -> nn.Sequential:
    """``Linear, activation, Linear, ...`` whose weights are named ``prefix.0, prefix.2, ...``."""
    activation = network.get("activation")
    if activation not in ("relu", "tanh"):
        raise CardError(f"{weights.where}: activation must be one of relu, tanh, got {activation!r:.80}")
    count = sum(name.startswith(prefix + ".") and name.endswith(".weight") for name in weights.tensors)
    written = [{"kind": kind} for _ in range(max(count, 1)) for kind in ("linear", activation)][:-1]
    net = build(written, weights, prefix, inputs, outputs)
    hidden = [layer.out_features for layer in net if isinstance(layer, nn.Linear)][:-1]
    if "hidden" in network and network["hidden"] != hidden:
        raise CardError(
            f"{weights.where}: the card says hidden={network['hidden']!s:.80}, the weights of {prefix} say {hidden}"
        )
    return net


def _sizes(net: Sequence[nn.Module] | nn.Sequential) -> tuple[int, int]:
    first, last = net[0], net[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    return first.in_features, last.out_features


def _actor_critic(
    weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]
) -> VictimNetworks:  # fmt: skip
    policy = mlp(weights, "policy", network)
    features, actions = _sizes(policy)
    value = nn.Sequential(normalise, mlp(weights, "value", network, features, 1)) if weights.has("value") else None
    if network["kind"] == "categorical-mlp":
        return VictimNetworks(nn.Sequential(normalise, policy), "logits", features, actions, value)
    tail = AppendLogStd(weights.take("log_std", actions))
    return VictimNetworks(nn.Sequential(normalise, policy, tail), "gaussian", features, actions, value)


def _deterministic(
    weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]
) -> VictimNetworks:  # fmt: skip
    policy = mlp(weights, "policy", network)
    features, actions = _sizes(policy)
    nets = VictimNetworks(nn.Sequential(normalise, policy, nn.Tanh()), "mean", features, actions)
    for name in ("critic", "robust_sarsa"):
        if weights.has(name):
            setattr(nets, name, ActionValue(normalise, mlp(weights, name, network, features + actions, 1)))
    return nets


def _q(weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]) -> VictimNetworks:
    q = mlp(weights, "q" if weights.has("q") else "policy", network)
    features, outputs = _sizes(q)
    if network["kind"] == "quantile-q-mlp":
        quantiles = network.get("quantiles")
        if not is_integer(quantiles) or quantiles < 1 or outputs % quantiles:
            raise CardError(f"{weights.where}: quantiles must divide the {outputs} outputs, got {quantiles!r:.80}")
        last = q[-1]
        assert isinstance(last, nn.Linear)
        q[-1] = mean_over_quantiles(last, quantiles)
        outputs //= quantiles
    return VictimNetworks(nn.Sequential(normalise, q), "q", features, outputs)


def _nature_cnn(
    weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]
) -> VictimNetworks:  # fmt: skip
    if len(image) != 3:
        raise CardError(f"{weights.where}: expected images of shape (channels, rows, columns), got {image}")
    channels, rows, columns = image
    layers: list[nn.Module] = []
    for i, stride in enumerate(STRIDES):
        conv = weights.conv(f"trunk.{2 * i}", channels, stride)
        rows, columns = ((size - k) // stride + 1 for size, k in zip((rows, columns), conv.kernel_size, strict=True))
        if rows < 1 or columns < 1:
            raise CardError(f"{weights.where}: images of {image} are too small for the convolutions of the trunk")
        layers, channels = [*layers, conv, nn.ReLU()], conv.out_channels
    hidden = weights.linear("trunk.7", channels * rows * columns)
    trunk = nn.Sequential(*layers, nn.Flatten(), hidden, nn.ReLU())
    policy = weights.linear("policy", hidden.out_features)
    value = weights.linear("value", hidden.out_features, 1) if weights.has("value") else None
    net = nn.Sequential(normalise, trunk, policy)
    return VictimNetworks(
        net, "logits", 0, policy.out_features, value and nn.Sequential(normalise, trunk, value)
    )  # fmt: skip


def _gaussian_lstm(
    weights: Weights, network: Network, normalise: nn.Module, image: tuple[int, ...]
) -> VictimNetworks:  # fmt: skip
    policy = _path(weights, "policy")
    features, actions = policy.embed.in_features, policy.head.out_features
    value = _path(weights, "value", features, 1) if weights.has("value") else None
    net = GaussianLSTM(normalise, policy, weights.take("log_std", actions), value)
    sizes = [path.head.in_features for path in (policy, value) if path is not None for _ in "hc"]
    start = functools.partial(zero_state, [(size,) for size in sizes])
    valued = None if value is None else LSTMValue(normalise, value)
    return VictimNetworks(net, "gaussian", features, actions, valued, initial_state=start)


def _path(weights: Weights, prefix: str, inputs: int | None = None, outputs: int | None = None) -> LSTMPath:
    """``prefix.embed``, ``prefix.lstm`` (one layer) and ``prefix.head``."""
    embed, head = weights.linear(f"{prefix}.embed", inputs), weights.linear(f"{prefix}.head", None, outputs)
    return LSTMPath(embed, weights.lstm_cell(f"{prefix}.lstm", embed.out_features, head.in_features), head)


_Maker = Callable[[Weights, Network, nn.Module, tuple[int, ...]], VictimNetworks]
_KINDS: dict[str, _Maker] = {
    "gaussian-mlp": _actor_critic, "categorical-mlp": _actor_critic, "tanh-mlp": _deterministic, "q-mlp": _q,
    "quantile-q-mlp": _q, "categorical-cnn": _nature_cnn, "gaussian-lstm": _gaussian_lstm,
}  # fmt: skip
