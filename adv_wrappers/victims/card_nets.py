"""Named weights to layers, every shape checked before it is used.

The networks of a card, by their kind.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.input_gradient import AppendLogStd
from adv_wrappers.networks.recurrent import GaussianLSTM, LSTMPath, LSTMValue, zero_state
from adv_wrappers.utils.numbers import finite, is_integer
from adv_wrappers.victims.victim import Kind

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


def clip_of(clip: Any, where: str, name: str) -> float | None:
    """What normalised observations are clipped to; :class:`CardError` for what is no number that fits a float32."""
    if clip is None:
        return None
    if not 0 < (finite(clip) or 0.0) <= torch.finfo(torch.float32).max:
        raise CardError(f"{where}: {name} must be a finite number above 0 or null, got {clip!r:.80}")
    return float(clip)


class Weights:
    """Weights taken by name; a missing one, a wrong shape and one left over are each a :class:`CardError`."""

    def __init__(self, tensors: dict[str, Tensor], where: str) -> None:
        for name, tensor in tensors.items():
            if not tensor.is_floating_point():
                raise CardError(f"{where}: {name} must hold floats, got {tensor.dtype}")
            if not tensor.numel():  # its shape may say anything
                raise CardError(f"{where}: {name} holds no values, its shape is {tuple(tensor.shape)}")
            if not torch.isfinite(tensor).all():
                raise CardError(f"{where}: {name} holds values that are not finite")
        self.tensors, self.where, self.taken = tensors, where, set[str]()

    def has(self, prefix: str) -> bool:
        """Whether any weight is named ``prefix.*``."""
        return any(name.startswith(prefix + ".") for name in self.tensors)

    def take(self, name: str, *shape: int | None) -> nn.Parameter:
        """One weight; None in ``shape`` allows any size."""
        found = self.tensors.get(name)
        wanted = tuple("any" if size is None else size for size in shape)
        if found is None:
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got only {self._names()}")
        if found.dim() != len(shape) or any(w is not None and w != f for w, f in zip(shape, found.shape, strict=True)):
            raise CardError(f"{self.where}: expected {name} of shape {wanted}, got {tuple(found.shape)}")
        self.taken.add(name)
        return nn.Parameter(found, requires_grad=False)

    def _names(self) -> str:
        return f"{', '.join(sorted(self.tensors)):.300}"

    def linear(self, prefix: str, inputs: int | None = None, outputs: int | None = None) -> nn.Linear:
        """The layer ``prefix``; made on ``meta`` so that no global random number is drawn for it."""
        weight = self.take(f"{prefix}.weight", outputs, inputs)
        layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
        layer.weight, layer.bias = weight, self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def mlp(
        self, prefix: str, network: dict[str, Any], inputs: int | None = None, outputs: int | None = None
    ) -> nn.Sequential:
        """``Linear, activation, Linear, ...`` named ``prefix.0, prefix.2, ...``."""
        activation = _ACTIVATIONS.get(str(network.get("activation")))
        if activation is None:
            raise CardError(
                f"{self.where}: activation must be one of {', '.join(_ACTIVATIONS)}, "
                f"got {network.get('activation')!r:.80}"
            )
        count = sum(name.startswith(prefix + ".") and name.endswith(".weight") for name in self.tensors)
        layers: list[nn.Module] = []
        for i in range(max(count, 1)):
            layer = self.linear(f"{prefix}.{2 * i}", inputs, outputs if i == count - 1 else None)
            inputs = layer.out_features
            layers += [layer, activation()]
        hidden = [layer.out_features for layer in layers[:-2:2] if isinstance(layer, nn.Linear)]
        if "hidden" in network and network["hidden"] != hidden:
            raise CardError(
                f"{self.where}: the card says hidden={network['hidden']!s:.80}, the weights of {prefix} say {hidden}"
            )
        return nn.Sequential(*layers[:-1])

    def conv(self, prefix: str, inputs: int | None, stride: int) -> nn.Conv2d:
        """The convolution ``prefix``, without padding."""
        weight = self.take(f"{prefix}.weight", None, inputs, None, None)
        size = (weight.shape[2], weight.shape[3])
        layer = nn.Conv2d(weight.shape[1], weight.shape[0], size, stride, device="meta")
        layer.weight, layer.bias = weight, self.take(f"{prefix}.bias", weight.shape[0])
        return layer

    def lstm(self, prefix: str) -> nn.LSTM:
        """The layers ``prefix.weight_ih_l0``, ``prefix.weight_hh_l0``, two biases, and so on, of one ``nn.LSTM``."""
        count = sum(name.startswith(f"{prefix}.weight_ih_l") for name in self.tensors)
        first = self.take(f"{prefix}.weight_hh_l0", None, None)
        size = first.shape[1]
        inputs: int | None = None
        layer = nn.LSTM(self.take(f"{prefix}.weight_ih_l0", None, None).shape[1], size, max(count, 1), device="meta")
        for i in range(max(count, 1)):
            shapes = {"weight_ih": (4 * size, inputs), "weight_hh": (4 * size, size)}
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                setattr(layer, f"{name}_l{i}", self.take(f"{prefix}.{name}_l{i}", *shapes.get(name, (4 * size,))))
            inputs = size
        return layer

    def path(self, prefix: str, inputs: int | None = None, outputs: int | None = None) -> LSTMPath:
        """``prefix.embed``, ``prefix.lstm`` (one layer) and ``prefix.head``."""
        embed, head = self.linear(f"{prefix}.embed", inputs), self.linear(f"{prefix}.head", None, outputs)
        size = head.in_features
        cell = nn.LSTMCell(embed.out_features, size, device="meta")
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            shape = (4 * size, {"weight_ih": embed.out_features, "weight_hh": size}.get(name))[
                : 2 if "weight" in name else 1
            ]
            setattr(cell, name, self.take(f"{prefix}.lstm.{name}_l0", *shape))
        return LSTMPath(embed, cell, head)

    def finish(self) -> None:
        """Raise if a weight was not taken: the network is then not what the card says."""
        left = sorted(set(self.tensors) - self.taken)
        if left:
            raise CardError(f"{self.where}: weights that this kind of network does not have: {', '.join(left):.300}")


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
        if not is_integer(quantiles) or quantiles < 1 or outputs % quantiles:
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
