"""The written form of a network: a JSON list of layers, and their weights by name.

``[{"kind": "conv", "stride": 4}, {"kind": "relu"}, {"kind": "flatten"}, {"kind": "linear"}]`` says what a network
computes; the sizes follow from the weights ``PREFIX.I.NAME``, where ``I`` is the place of the layer in the list.
Settings that are torch's defaults are left out. :func:`describe` writes a network down, :func:`build` makes it from
what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from adv_wrappers.errors import CardError
from adv_wrappers.networks.card_format import Weights
from adv_wrappers.networks.graph import hooked
from adv_wrappers.networks.layers import (
    GSDE,
    AppendLogStd,
    Clip,
    MeanAndLogStd,
    Normalize,
    OneHot,
    QuantileMean,
    TwoLogits,
)
from adv_wrappers.utils.checks import finite_float

MOST_LAYERS = 1000  # of one network; it takes a second to build so many
LayerSetting = bool | int | float | str | None | list[int]
WrittenLayer = dict[str, LayerSetting]  # the written form of one layer
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class _Form:
    """How the layers of one type are written.

    Attributes:
        type: of the layers.
        settings: those of a layer.
        build: a layer from the weights, the prefix of its own, how many numbers or channels come in and go out where
            that is known, and its settings by name.
    """

    type: type[nn.Module]
    settings: Callable[[nn.Module], WrittenLayer]
    build: Callable[..., nn.Module]


_FORMS: dict[str, _Form] = {}


def _plain(kind: str, layer: type[nn.Module], **defaults: LayerSetting) -> None:
    """A layer without weights, whose settings are attributes under the names of its arguments."""

    def settings(module: nn.Module) -> WrittenLayer:
        stated = {name: getattr(module, name) for name in defaults}
        return {name: value for name, value in stated.items() if value != defaults[name]}

    _FORMS[kind] = _Form(layer, settings, lambda weights, prefix, inputs, outputs, **given: layer(**given))


def _normalize(weights: Weights, prefix: str, *_: int | None, clip: float | None = None) -> Normalize:
    mean = weights.take(f"{prefix}.mean").detach()
    return Normalize(mean, weights.take(f"{prefix}.std", *mean.shape).detach(), None if clip is None else float(clip))


def _normalize_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, Normalize)
    return {"clip": layer.clip if finite_float(layer.clip) is not None else None}  # infinity clips nothing


def _linear_settings(layer: nn.Module) -> WrittenLayer:
    return {"bias": False} if layer.bias is None else {}


def _conv_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, nn.Conv2d)
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
        raise CardError(f"convolutions are written with zeros around the picture, and their number, got {layer}")
    stated = {"stride": (layer.stride, None), "padding": (layer.padding, 0), "dilation": (layer.dilation, 1)}
    settings: WrittenLayer = {
        name: value[0] if value[0] == value[1] else list(value)
        for name, (value, default) in stated.items()
        if value != (default, default)
    }
    settings |= {} if layer.groups == 1 else {"groups": layer.groups}
    return settings | ({"bias": False} if layer.bias is None else {})


def _lstm_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, nn.LSTM)
    if layer.bidirectional or layer.proj_size or not layer.bias:
        raise CardError(f"an LSTM that is written goes one way, has biases and is not projected, got {layer}")
    return {}


def _flatten_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, nn.Flatten)
    if (layer.start_dim, layer.end_dim) != (1, -1):
        raise CardError(f"a Flatten that is written keeps the first axis alone, got {layer}")
    return {}


def _layer_norm(weights: Weights, prefix: str, inputs: int | None, _: int | None, eps: float = 1e-5) -> nn.LayerNorm:
    weight = weights.take(f"{prefix}.weight", inputs)
    layer = nn.LayerNorm(len(weight), eps, device="meta")
    layer.weight, layer.bias = weight, weights.take(f"{prefix}.bias", len(weight))
    return layer


def _layer_norm_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, nn.LayerNorm)
    if layer.weight is None or layer.bias is None or len(layer.normalized_shape) != 1:
        raise CardError(f"a LayerNorm that is written is over one axis, with weight and bias, got {layer}")
    return {} if layer.eps == 1e-5 else {"eps": layer.eps}


def _log_std(weights: Weights, prefix: str, inputs: int | None, _: int | None) -> AppendLogStd:
    return AppendLogStd(weights.take(f"{prefix}.log_std", 1, inputs).detach())


def _mean_and_log_std(weights: Weights, prefix: str, inputs: int | None, _: int | None) -> MeanAndLogStd:
    mean = weights.linear(f"{prefix}.mean", inputs)
    return MeanAndLogStd(mean, weights.linear(f"{prefix}.log_std", mean.in_features, mean.out_features))


def _mean_and_log_std_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, MeanAndLogStd)
    heads = (layer.mean, layer.log_std)
    if any(type(head) is not nn.Linear or head.bias is None or hooked(head) for head in heads):
        raise CardError(f"heads of mean and log-std that are written are linear, with biases, got {layer}")
    return {}


def _gsde(
    weights: Weights, prefix: str, inputs: int | None, _: int | None, expln: bool = False, clip: float | None = None
) -> GSDE:
    return GSDE(weights.linear(f"{prefix}.mean", inputs), weights.take(f"{prefix}.log_std", None, None), expln, clip)


def _gsde_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, GSDE)
    if type(layer.mean) is not nn.Linear or layer.mean.bias is None or hooked(layer.mean):
        raise CardError(f"a head of the mean that is written is linear, with a bias, got {layer}")
    return ({"expln": True} if layer.expln else {}) | ({} if layer.clip is None else {"clip": layer.clip})


_FORMS["normalize"] = _Form(Normalize, _normalize_settings, _normalize)
_FORMS["linear"] = _Form(nn.Linear, _linear_settings, Weights.linear)
_FORMS["conv"] = _Form(nn.Conv2d, _conv_settings, Weights.conv)
_FORMS["flatten"] = _Form(nn.Flatten, _flatten_settings, lambda *_: nn.Flatten())
_plain("relu", nn.ReLU)
_plain("tanh", nn.Tanh)
_FORMS["lstm"] = _Form(nn.LSTM, _lstm_settings, Weights.lstm)
_plain("sigmoid", nn.Sigmoid)
_plain("silu", nn.SiLU)
_plain("elu", nn.ELU, alpha=1.0)
_plain("leaky_relu", nn.LeakyReLU, negative_slope=0.01)
_plain("softplus", nn.Softplus, beta=1.0, threshold=20.0)
_plain("hardtanh", nn.Hardtanh, min_val=-1.0, max_val=1.0)
_plain("gelu", nn.GELU, approximate="none")
_FORMS["layer_norm"] = _Form(nn.LayerNorm, _layer_norm_settings, _layer_norm)
_plain("clip", Clip, low=None, high=None)
_FORMS["append_log_std"] = _Form(AppendLogStd, lambda layer: {}, _log_std)
_FORMS["mean_and_log_std"] = _Form(MeanAndLogStd, _mean_and_log_std_settings, _mean_and_log_std)
_FORMS["gsde"] = _Form(GSDE, _gsde_settings, _gsde)
_FORMS["one_hot"] = _Form(
    OneHot,
    lambda layer: {"sizes": list(layer.sizes)},  # type: ignore[arg-type]
    lambda weights, prefix, inputs, outputs, sizes: OneHot(tuple(sizes)),
)
_plain("two_logits", TwoLogits)
_plain("quantile_mean", QuantileMean, quantiles=None)
_KINDS = {form.type: kind for kind, form in _FORMS.items()}


def kinds() -> tuple[str, ...]:
    """The kinds of layers that can be written down."""
    return tuple(_FORMS)


def kind_of(layer: nn.Module) -> str | None:
    """The kind under which a layer is written; None for another type, a subclass, or a layer with a hook."""
    return None if hooked(layer) else _KINDS.get(type(layer))


def describe(layers: Iterable[nn.Module], prefix: str) -> tuple[list[WrittenLayer], Tensors]:
    """The written form of layers in a row: the list for JSON, and their weights as ``PREFIX.I.NAME``.

    Weights are those of the layers themselves: they are copied when they are saved.

    Raises:
        CardError: for a layer that has no written form.
    """
    written: list[WrittenLayer] = []
    tensors: Tensors = {}
    for i, layer in enumerate(layers):
        kind = kind_of(layer)
        if kind is None:
            raise CardError(f"networks of the layers {', '.join(_FORMS)} can be written, got {type(layer).__name__}")
        written.append({"kind": kind, **_FORMS[kind].settings(layer)})
        tensors |= {f"{prefix}.{i}.{name}": tensor for name, tensor in layer.state_dict().items()}
    return written, tensors


def build(
    written: Sequence[object], weights: Weights, prefix: str, inputs: int | None = None, outputs: int | None = None
) -> nn.Sequential:
    """The network that :func:`describe` wrote down, frozen, around the weights ``PREFIX.I.NAME``.

    Args:
        inputs, outputs: sizes of the first and the last layer, where they are known: of vectors, or channels.

    Raises:
        CardError: for unknown layers, and weights that are missing, or whose shape does not follow from the layers
            before. Settings that a layer does not have, or cannot, are whatever error its constructor raises.
    """
    if len(written) > MOST_LAYERS:
        raise CardError(f"at most {MOST_LAYERS} layers are read, got {len(written)}")
    layers: list[nn.Module] = []
    for i, about in enumerate(written):
        form = _FORMS.get(str(about.get("kind"))) if isinstance(about, Mapping) else None
        if not isinstance(about, Mapping) or form is None:
            raise CardError(f"expected layers of the kinds {', '.join(_FORMS)}, got {about!r:.80}")
        settings = {name: value for name, value in about.items() if name != "kind"}
        last = outputs if i == len(written) - 1 else None
        layer = form.build(weights, f"{prefix}.{i}", inputs, last, **settings)
        layers.append(layer)
        width = next((getattr(layer, name) for name in _WIDTHS if hasattr(layer, name)), None)
        inputs = inputs if isinstance(layer, _ELEMENTWISE) else width
    return nn.Sequential(*layers)


_WIDTHS = ("out_features", "out_channels", "hidden_size")  # how many numbers, or channels, a layer gives to the next
_ELEMENTWISE = (
    Normalize, Clip, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Hardtanh, nn.GELU,
    nn.LayerNorm,
)  # fmt: skip


def copy_of(layers: Iterable[nn.Module]) -> nn.Sequential:
    """The same layers, frozen, around copies of their weights; no random number is drawn for it.

    Raises:
        CardError: for a layer that has no written form, and for weights that are not finite.
    """
    written, tensors = describe(layers, "net")
    return build(written, Weights({name: t.detach().clone() for name, t in tensors.items()}), "net")


def output_shape(layers: Iterable[nn.Module], shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Shape of what layers make of one input of ``shape``, found without computing anything; of an LSTM, of one step.

    Raises:
        CardError: where a layer would answer with more than ``most`` numbers; for layers that do not fit each other or
            the shape, whatever error they raise.
    """
    x = torch.empty(1, *shape, device="meta")
    for layer in layers:
        state = {name: tensor.to("meta", x.dtype) for name, tensor in layer.state_dict().items()}
        with torch.no_grad():
            x = functional_call(layer, state, (x,))
        x = x[0] if isinstance(layer, nn.LSTM) else x  # beside it the state
        if x.numel() > most:
            raise CardError(f"{layer} would answer with {x.numel()} numbers, at most {most} are allowed")
    return tuple(x.shape[1:])
