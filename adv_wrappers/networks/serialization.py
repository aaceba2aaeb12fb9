"""The written form of a network: a JSON list of layers, and their weights by name.

``[{"kind": "conv", "stride": 4}, {"kind": "relu"}, {"kind": "flatten"}, {"kind": "linear"}]`` says what a network
computes; the sizes follow from the weights ``PREFIX.I.NAME``, where ``I`` is the place of the layer in the list.
Settings that are torch's defaults are left out. :func:`describe` writes a network down, :func:`build` makes it from
what was written, and checks every shape and every number before it is used, since a file may come from anybody.
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
from adv_wrappers.utils.checks import finite_float, integer, number

_MOST = torch.finfo(torch.float32).max
MOST_LAYERS = 1000  # of one network; it takes a second to build so many
MOST_CHOICES = 2**22  # of a one-hot encoding: a number that a file states and does not hold
LayerSetting = bool | int | float | str | None | list[int]
WrittenLayer = dict[str, LayerSetting]  # the written form of one layer
Tensors = dict[str, Tensor]


class Settings:
    """The settings that a written layer states, each taken once, with torch's defaults for the rest."""

    def __init__(self, about: Mapping[str, object], where: str) -> None:
        self.left = {name: value for name, value in about.items() if name != "kind"}
        self.where = where

    def truth(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.left.pop(name, default)
        if not isinstance(value, bool):
            raise CardError(f"{self.where}: {name} must be true or false, got {value!r:.80}")
        return value

    def integer(self, name: str, default: int | None, low: int, high: int) -> int:
        """An integer in ``[low, high]``; None as default for one that must be given."""
        return self._integer(name, self.left.pop(name, default), low, high)

    def _integer(self, name: str, value: object, low: int, high: int) -> int:
        return integer(f"{self.where}: {name}", value, low, high, error=CardError)

    def integers(self, name: str, default: int | None, low: int, high: int, length: int | None = 2) -> tuple[int, ...]:
        """Integers: a list of ``length`` (None: of any), or one that stands for all of them."""
        value = self.left.pop(name, default)
        if isinstance(value, list) and value and length in (None, len(value)):
            return tuple(self._integer(name, each, low, high) for each in value)
        return (self._integer(name, value, low, high),) * (length or 1)

    def number(self, name: str, default: float) -> float:
        """A number that fits a float32."""
        return number(f"{self.where}: {name}", self.left.pop(name, default), -_MOST, _MOST, error=CardError)

    def optional(self, name: str) -> float | None:
        """A number that fits a float32, or null."""
        if self.left.get(name) is None:
            self.left.pop(name, None)
            return None
        return self.number(name, 0.0)

    def choice(self, name: str, *known: str) -> str:
        """One of the known texts, the first of which is the default."""
        value = self.left.pop(name, known[0])
        if value not in known:
            raise CardError(f"{self.where}: {name} must be one of {', '.join(known)}, got {value!r:.80}")
        return str(value)

    def finish(self) -> None:
        """Raise if a setting was not taken: the layer would compute something else than is written."""
        if self.left:
            raise CardError(f"{self.where}: a layer has no setting {', '.join(map(str, self.left)):.80}")


def clip_of(clip: object, where: str, name: str) -> float | None:
    """What normalised observations are clipped to; :class:`CardError` for what is no number that fits a float32."""
    if clip is None:
        return None
    found = finite_float(clip)
    if found is None or not 0 < found <= _MOST:
        raise CardError(f"{where}: {name} must be a finite number above 0 or null, got {clip!r:.80}")
    return found


@dataclass(frozen=True)
class _Form:
    """How the layers of one type are written: ``settings`` of a layer, and a layer from settings and weights."""

    type: type[nn.Module]
    settings: Callable[[nn.Module], WrittenLayer]
    build: Callable[[Weights, str, Settings, int | None, int | None], nn.Module]


_FORMS: dict[str, _Form] = {}


def _plain(kind: str, layer: type[nn.Module]) -> None:
    """A layer without settings or weights."""
    _FORMS[kind] = _Form(layer, lambda module: {}, lambda weights, prefix, settings, inputs, outputs: layer())


def _numbers(kind: str, layer: type[nn.Module], **defaults: float) -> None:
    """A layer without weights whose settings are numbers, attributes under the names of its arguments."""

    def settings(module: nn.Module) -> WrittenLayer:
        stated = {name: getattr(module, name) for name in defaults}
        return {name: value for name, value in stated.items() if value != defaults[name]}

    def build(weights: Weights, prefix: str, stated: Settings, inputs: int | None, outputs: int | None) -> nn.Module:
        return layer(**{name: stated.number(name, default) for name, default in defaults.items()})

    _FORMS[kind] = _Form(layer, settings, build)


def _attributes(*names: str) -> Callable[[nn.Module], WrittenLayer]:
    """Settings under the names of a layer's attributes, tuples as lists."""

    def settings(layer: nn.Module) -> WrittenLayer:
        found = {name: getattr(layer, name) for name in names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    return settings


def _normalize(weights: Weights, prefix: str, settings: Settings, _: int | None, __: int | None) -> Normalize:
    clip = clip_of(settings.left.pop("clip", None), weights.where, "clip")
    given = weights.tensors.get(f"{prefix}.mean")
    axes = 1 if given is None or given.dim() > 3 else given.dim()
    mean = weights.take(f"{prefix}.mean", *[None] * axes).detach()
    std = weights.take(f"{prefix}.std", *mean.shape).detach()
    if not (std > 0).all():
        raise CardError(f"{weights.where}: {prefix}.std must be above 0")
    return Normalize(mean, std, clip)


def _normalize_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, Normalize)
    return {"clip": layer.clip if finite_float(layer.clip) is not None else None}  # infinity clips nothing


def _linear(weights: Weights, prefix: str, settings: Settings, inputs: int | None, outputs: int | None) -> nn.Linear:
    return weights.linear(prefix, inputs, outputs, settings.truth("bias", True))


def _linear_settings(layer: nn.Module) -> WrittenLayer:
    return {"bias": False} if layer.bias is None else {}


def _conv(weights: Weights, prefix: str, settings: Settings, inputs: int | None, _: int | None) -> nn.Conv2d:
    (rows, columns), most = settings.integers("stride", None, 1, 2**15), 2**15
    dilation = settings.integers("dilation", 1, 1, most)
    # a window that lies beyond the picture sees zeros alone, and padding is memory that a file only states
    kernel = weights.tensors.get(f"{prefix}.weight")
    sizes = tuple(kernel.shape[2:]) if kernel is not None and kernel.dim() == 4 else (1, 1)
    reach = max(d * (size - 1) for d, size in zip(dilation, sizes, strict=True))
    padding = settings.integers("padding", 0, 0, min(reach, most))
    groups, bias = settings.integer("groups", 1, 1, most), settings.truth("bias", True)
    return weights.conv(
        prefix, inputs, (rows, columns), (padding[0], padding[1]), (dilation[0], dilation[1]), groups, bias
    )


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


def _layer_norm(weights: Weights, prefix: str, settings: Settings, inputs: int | None, _: int | None) -> nn.LayerNorm:
    weight, eps = weights.take(f"{prefix}.weight", inputs), settings.number("eps", 1e-5)
    layer = nn.LayerNorm(len(weight), eps, device="meta")
    layer.weight, layer.bias = weight, weights.take(f"{prefix}.bias", len(weight))
    return layer


def _layer_norm_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, nn.LayerNorm)
    if layer.weight is None or layer.bias is None or len(layer.normalized_shape) != 1:
        raise CardError(f"a LayerNorm that is written is over one axis, with weight and bias, got {layer}")
    return {} if layer.eps == 1e-5 else {"eps": layer.eps}


def _log_std(weights: Weights, prefix: str, _: Settings, inputs: int | None, __: int | None) -> AppendLogStd:
    return AppendLogStd(weights.take(f"{prefix}.log_std", 1, inputs).detach())


def _mean_and_log_std(
    weights: Weights, prefix: str, _: Settings, inputs: int | None, outputs: int | None
) -> MeanAndLogStd:
    mean = weights.linear(f"{prefix}.mean", inputs)
    return MeanAndLogStd(mean, weights.linear(f"{prefix}.log_std", mean.in_features, mean.out_features))


def _mean_and_log_std_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, MeanAndLogStd)
    heads = (layer.mean, layer.log_std)
    if any(type(head) is not nn.Linear or head.bias is None or hooked(head) for head in heads):
        raise CardError(f"heads of mean and log-std that are written are linear, with biases, got {layer}")
    return {}


def _gsde(weights: Weights, prefix: str, settings: Settings, inputs: int | None, outputs: int | None) -> GSDE:
    mean = weights.linear(f"{prefix}.mean", inputs, None if outputs is None else outputs // 2)
    given = weights.tensors.get(f"{prefix}.log_std")
    columns = 1 if given is not None and given.dim() == 2 and given.shape[1] == 1 else mean.out_features
    log_std = weights.take(f"{prefix}.log_std", mean.in_features, columns)
    return GSDE(mean, log_std, settings.truth("expln", False), clip_of(settings.left.pop("clip", None), prefix, "clip"))


def _gsde_settings(layer: nn.Module) -> WrittenLayer:
    assert isinstance(layer, GSDE)
    if type(layer.mean) is not nn.Linear or layer.mean.bias is None or hooked(layer.mean):
        raise CardError(f"a head of the mean that is written is linear, with a bias, got {layer}")
    return ({"expln": True} if layer.expln else {}) | ({} if layer.clip is None else {"clip": layer.clip})


_FORMS["normalize"] = _Form(Normalize, _normalize_settings, _normalize)
_FORMS["linear"] = _Form(nn.Linear, _linear_settings, _linear)
_FORMS["conv"] = _Form(nn.Conv2d, _conv_settings, _conv)
_FORMS["flatten"] = _Form(nn.Flatten, _flatten_settings, lambda *given: nn.Flatten())
_plain("relu", nn.ReLU)
_plain("tanh", nn.Tanh)
_FORMS["lstm"] = _Form(nn.LSTM, _lstm_settings, lambda weights, prefix, *_: weights.lstm(prefix))
_plain("sigmoid", nn.Sigmoid)
_plain("silu", nn.SiLU)
_numbers("elu", nn.ELU, alpha=1.0)
_numbers("leaky_relu", nn.LeakyReLU, negative_slope=0.01)
_numbers("softplus", nn.Softplus, beta=1.0, threshold=20.0)
_numbers("hardtanh", nn.Hardtanh, min_val=-1.0, max_val=1.0)
_FORMS["gelu"] = _Form(
    nn.GELU, _attributes("approximate"),
    lambda weights, prefix, settings, *_: nn.GELU(settings.choice("approximate", "none", "tanh")),
)  # fmt: skip
_FORMS["layer_norm"] = _Form(nn.LayerNorm, _layer_norm_settings, _layer_norm)
_FORMS["clip"] = _Form(
    Clip, _attributes("low", "high"),
    lambda weights, prefix, settings, *_: Clip(settings.optional("low"), settings.optional("high")),
)  # fmt: skip
_FORMS["append_log_std"] = _Form(AppendLogStd, lambda layer: {}, _log_std)
_FORMS["mean_and_log_std"] = _Form(MeanAndLogStd, _mean_and_log_std_settings, _mean_and_log_std)
_FORMS["gsde"] = _Form(GSDE, _gsde_settings, _gsde)
_FORMS["one_hot"] = _Form(
    OneHot, _attributes("sizes"),
    lambda weights, prefix, settings, *_: OneHot(settings.integers("sizes", None, 1, MOST_CHOICES, None)),
)  # fmt: skip
_plain("two_logits", TwoLogits)
_FORMS["quantile_mean"] = _Form(
    QuantileMean, _attributes("quantiles"),
    lambda weights, prefix, settings, *_: QuantileMean(settings.integer("quantiles", None, 1, MOST_CHOICES)),
)  # fmt: skip
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
        CardError: for unknown layers and settings, numbers out of range, and weights that are missing, or whose shape
            does not follow from the layers before.
    """
    if len(written) > MOST_LAYERS:
        raise CardError(f"{weights.where}: at most {MOST_LAYERS} layers are read, got {len(written)}")
    layers: list[nn.Module] = []
    for i, about in enumerate(written):
        kind = about.get("kind") if isinstance(about, Mapping) else None
        if not isinstance(about, Mapping) or not isinstance(kind, str) or kind not in _FORMS:
            raise CardError(f"{weights.where}: expected layers of the kinds {', '.join(_FORMS)}, got {about!r:.80}")
        settings = Settings(about, weights.where)
        last = outputs if i == len(written) - 1 else None
        layers.append(_FORMS[kind].build(weights, f"{prefix}.{i}", settings, inputs, last))
        settings.finish()
        inputs = _outputs(layers[-1], inputs)
    return nn.Sequential(*layers)


_ELEMENTWISE = (
    Normalize, Clip, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softplus, nn.Hardtanh, nn.GELU,
    nn.LayerNorm,
)  # fmt: skip


def _outputs(layer: nn.Module, inputs: int | None) -> int | None:
    """How many numbers, or channels, a layer gives to the next; None where that does not follow from the layers."""
    if isinstance(layer, nn.LSTM):
        if inputs is not None and layer.input_size != inputs:
            raise CardError(f"an LSTM takes {layer.input_size} numbers, the layer before it gives {inputs}")
        return layer.hidden_size
    if isinstance(layer, nn.Linear):
        return layer.out_features
    if isinstance(layer, nn.Conv2d):
        return layer.out_channels
    return inputs if isinstance(layer, _ELEMENTWISE) else None


def copy_of(layers: Iterable[nn.Module]) -> nn.Sequential:
    """The same layers, frozen, around copies of their weights; no random number is drawn for it.

    Raises:
        CardError: for a layer that has no written form, and for weights that are not finite.
    """
    written, tensors = describe(layers, "net")
    return build(written, Weights({name: t.detach().clone() for name, t in tensors.items()}, "a network"), "net")


def output_shape(layers: Iterable[nn.Module], shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Shape of what layers make of one input of ``shape``, found without computing anything; of an LSTM, of one step.

    Raises:
        CardError: for layers that do not fit each other or the shape, and where any of them would answer with more than
            ``most`` numbers.
    """
    x = torch.empty(1, *shape, device="meta")
    for layer in layers:
        state = {name: tensor.to("meta", x.dtype) for name, tensor in layer.state_dict().items()}
        try:
            with torch.no_grad():
                x = functional_call(layer, state, (x,))
        except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            raise CardError(
                f"{layer} does not take what comes before it, {tuple(x.shape[1:])}: {error!s:.200}"
            ) from error
        x = x[0] if isinstance(layer, nn.LSTM) else x  # beside it the state
        if not isinstance(x, Tensor):
            raise CardError(f"{layer} does not answer with one tensor")
        if x[0].numel() > most:
            raise CardError(f"{layer} would answer with {x[0].numel()} numbers, at most {most} are allowed")
    return tuple(x.shape[1:])
