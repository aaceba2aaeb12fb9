"""The networks of a card, by their kind."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.core.errors import CardError
from adv_wrappers.victims.chain import AppendLogStd
from adv_wrappers.victims.recurrent import GaussianLSTM, LSTMValue, zero_state
from adv_wrappers.victims.victim import Kind
from adv_wrappers.victims.weights import Weights

STRIDES = (4, 2, 1)  # of the Atari trunk of Mnih et al. 2015, which weights do not tell


class Critic(nn.Module):
    """``net([normalise(obs), act])``, ``[B]``."""

    def __init__(self, normalise: nn.Module, net: nn.Module) -> None:
        super().__init__()
        self.normalise, self.net = normalise, net

    def forward(self, obs: Tensor, act: Tensor) -> Tensor:
        out: Tensor = self.net(torch.cat([self.normalise(obs), act], -1))
        return out.squeeze(-1)


@dataclass
class Nets:
    """What a card holds: the networks, the kind of output and the sizes that its spaces follow from."""

    net: nn.Module
    kind: Kind
    features: int
    actions: int
    value: nn.Module | None = None
    critic: nn.Module | None = None
    robust_sarsa: nn.Module | None = None
    start: Any = None


def mean_over_quantiles(last: nn.Linear, quantiles: int) -> nn.Linear:
    """The layer whose outputs ``[A]`` are the means of outputs ``[quantiles * A]``: a mean is linear."""
    actions = last.out_features // quantiles
    layer = nn.Linear(last.in_features, actions, device="meta")
    for name in ("weight", "bias"):
        whole = getattr(last, name).detach()
        mean = whole.double().view(quantiles, actions, *whole.shape[1:]).mean(0)
        setattr(layer, name, nn.Parameter(mean.to(whole.dtype), requires_grad=False))
    return layer


def build(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
    """The networks of ``network["kind"]``; ``image`` is the shape of image observations."""
    kind = str(network.get("kind"))
    builders = {
        "gaussian-mlp": _mlp, "categorical-mlp": _mlp, "tanh-mlp": _tanh, "q-mlp": _q, "quantile-q-mlp": _q,
        "categorical-cnn": _cnn, "gaussian-lstm": _lstm,
    }  # fmt: skip
    builder = builders.get(kind)
    if builder is None:
        raise CardError(f"{weights.where}: unknown network kind {kind!r:.80}; known: {', '.join(builders)}")
    nets = builder(weights, network, normalise, image)
    weights.finish()
    return nets


def _sizes(mlp: nn.Sequential) -> tuple[int, int]:
    first, last = mlp[0], mlp[-1]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    return first.in_features, last.out_features


def _mlp(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
    policy = weights.mlp("policy", network)
    features, actions = _sizes(policy)
    value = nn.Sequential(normalise, weights.mlp("value", network, features, 1)) if weights.has("value") else None
    if network["kind"] == "categorical-mlp":
        return Nets(nn.Sequential(normalise, policy), "logits", features, actions, value)
    tail = AppendLogStd(weights.take("log_std", actions))
    return Nets(nn.Sequential(normalise, policy, tail), "gaussian", features, actions, value)


def _tanh(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
    policy = weights.mlp("policy", network)
    features, actions = _sizes(policy)
    nets = Nets(nn.Sequential(normalise, policy, nn.Tanh()), "mean", features, actions)
    for name in ("critic", "robust_sarsa"):
        if weights.has(name):
            setattr(nets, name, Critic(normalise, weights.mlp(name, network, features + actions, 1)))
    return nets


def _q(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
    q = weights.mlp("q" if weights.has("q") else "policy", network)
    features, outputs = _sizes(q)
    if network["kind"] == "quantile-q-mlp":
        quantiles = network.get("quantiles")
        if isinstance(quantiles, bool) or not isinstance(quantiles, int) or quantiles < 1 or outputs % quantiles:
            raise CardError(f"{weights.where}: quantiles must divide the {outputs} outputs, got {quantiles!r:.80}")
        last = q[-1]
        assert isinstance(last, nn.Linear)
        q[-1] = mean_over_quantiles(last, quantiles)
        outputs //= quantiles
    return Nets(nn.Sequential(normalise, q), "q", features, outputs)


def _cnn(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
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
    return Nets(net, "logits", 0, policy.out_features, value and nn.Sequential(normalise, trunk, value))


def _lstm(weights: Weights, network: dict[str, Any], normalise: nn.Module, image: tuple[int, ...]) -> Nets:
    policy = weights.path("policy")
    features, actions = policy.embed.in_features, policy.head.out_features
    value = weights.path("value", features, 1) if weights.has("value") else None
    net = GaussianLSTM(normalise, policy, weights.take("log_std", actions), value)
    sizes = [path.head.in_features for path in (policy, value) if path is not None for _ in "hc"]
    start = functools.partial(zero_state, [(size,) for size in sizes])
    return Nets(net, "gaussian", features, actions, None if value is None else LSTMValue(normalise, value), start=start)
