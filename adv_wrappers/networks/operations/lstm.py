"""Layers with a state, which cards hold."""

from __future__ import annotations

from torch import nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.operations.linear_bounds import Shape, takes
from adv_wrappers.networks.operations.operation import LayerOperation, register
from adv_wrappers.networks.operations.stored_layer import StoredLayer, WrittenLayer
from adv_wrappers.networks.recurrent import is_plain


@register
class LSTM(LayerOperation):
    """Any number of LSTM layers (see :mod:`adv_wrappers.networks.recurrent`)."""

    layers = (nn.LSTM,)
    kind = "lstm"
    bounded = False

    def settings(self) -> WrittenLayer:
        layer = self.layer
        if not is_plain(layer):
            raise CardError(f"an LSTM that is written goes one way, has biases and is not projected, got {layer}")
        return {}

    @classmethod
    def build(cls, stored: StoredLayer) -> nn.Module:
        layers = sum(name.startswith(f"{stored.prefix}.weight_ih_l") for name in stored.weights.tensors)
        size = stored.take("weight_hh_l0", None, None).shape[1]
        inputs = stored.take("weight_ih_l0", None, None).shape[1]
        return stored.filled(nn.LSTM, inputs, size, layers)

    def shape_after(self, shape: Shape) -> Shape:
        takes(shape, self.layer.input_size)
        return (self.layer.hidden_size,)
