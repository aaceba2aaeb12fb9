"""Layers with a state, which cards hold."""

from __future__ import annotations

from typing import Any

from torch import nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.card_format import Weights
from adv_wrappers.networks.operations.operation import LayerOperation, WrittenLayer, register


@register
class LSTM(LayerOperation):
    """Any number of LSTM layers (see :mod:`adv_wrappers.networks.recurrent`)."""

    layers = (nn.LSTM,)
    kind = "lstm"
    bounded = False

    def settings(self) -> WrittenLayer:
        layer = self.layer
        if layer.bidirectional or layer.proj_size or not layer.bias:
            raise CardError(f"an LSTM that is written goes one way, has biases and is not projected, got {layer}")
        return {}

    @classmethod
    def build(
        cls, weights: Weights, prefix: str, inputs: int | None, outputs: int | None, **settings: Any
    ) -> nn.Module:
        return weights.lstm(prefix, inputs, outputs, **settings)

    def width(self, inputs: int | None) -> int | None:
        width: int = self.layer.hidden_size
        return width
