"""What is written down is built again, to the bit, and what does not fit is refused before it is used."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.card import MOST_LAYERS, Card, build, copy_of, describe, kind_of, kinds, output_shape
from adv_wrappers.networks.operations.stored_layer import Weights
from adv_wrappers.networks.policy_layers import (
    GSDE,
    AppendLogStd,
    Clip,
    MeanAndLogStd,
    Normalize,
    OneHot,
    QuantileMean,
    TwoLogits,
)
from adv_wrappers.networks.recurrent import lstm_step
from adv_wrappers.utils.reading import decoding
from tests.every_case import every_case

NETS = {
    "activations": lambda: [
        nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5, bias=False), nn.Tanh(), nn.Sigmoid(), nn.SiLU(), nn.ELU(0.5),
        nn.LeakyReLU(0.3), nn.Softplus(2.0, 7.0), nn.GELU("tanh"), nn.LayerNorm(5, 1e-3), nn.Hardtanh(-0.5, 0.25),
        Clip(None, 0.2), nn.Linear(5, 2), AppendLogStd(torch.tensor([0.1, -0.5])),
    ],
    "normalised": lambda: [
        Normalize(torch.randn(4), torch.rand(4) + 0.1, 2.0), nn.Linear(4, 6), QuantileMean(2), TwoLogits(),
    ],
    "two heads": lambda: [nn.Linear(4, 5), nn.ReLU(), MeanAndLogStd(nn.Linear(5, 2), nn.Linear(5, 2))],
    "exploration": lambda: [nn.Linear(4, 5), nn.ReLU(), GSDE(nn.Linear(5, 2), torch.randn(5, 2), True, 0.5)],
    "exploration alike": lambda: [GSDE(nn.Linear(4, 2), torch.randn(4, 1))],
    "one hot": lambda: [OneHot((3, 2)), nn.Linear(5, 2)],
    "picture": lambda: [
        Normalize(torch.tensor(0.5), torch.tensor(2.0)), nn.Conv2d(2, 4, 3, (2, 1), 1, groups=2), nn.GELU(),
        nn.Conv2d(4, 3, 2, dilation=2, padding=(1, 2), bias=False), nn.Flatten(), nn.Linear(120, 3),
    ],
}  # fmt: skip


def inputs(name: str) -> torch.Tensor:
    if name == "one hot":
        return torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    return torch.randn(2, 2, 7, 8) if name == "picture" else torch.randn(2, 4)


def written(layers):
    """The list, through JSON, and weights of one's own."""
    spec, tensors = describe(layers, "net")
    return json.loads(json.dumps(spec)), {name: tensor.detach().clone() for name, tensor in tensors.items()}


@every_case("name", NETS)
def test_a_network_is_built_again(name):
    torch.manual_seed(0)
    layers, x = NETS[name](), inputs(name)
    before = torch.get_rng_state()
    spec, tensors = written(layers)
    weights = Weights(tensors)
    net = build(spec, weights, "net")
    weights.finish()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(net(x), nn.Sequential(*layers)(x))
    assert describe(net, "net")[0] == spec and not any(p.requires_grad for p in net.parameters())
    assert output_shape(net, tuple(x.shape[1:]), 1000) == tuple(net(x).shape[1:])


def test_a_recurrent_network_is_built_again():
    torch.manual_seed(0)
    lstm = nn.LSTM(4, 3, 2)
    spec, tensors = written([lstm, nn.Linear(3, 2)])
    other = build(spec, Weights(tensors), "net")[0]
    given = torch.randn(5, 4), torch.zeros(5, 2, 3), torch.zeros(5, 2, 3)
    for a, b in zip(lstm_step(lstm, *given), lstm_step(other, *given), strict=True):
        assert torch.equal(a, b)


def test_defaults_are_left_out():
    layers = [
        nn.Conv2d(1, 1, 2, 3),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(2, 2),
        Clip(-1, 1),
        Normalize(*torch.ones(2, 1), float("inf")),
    ]
    assert describe(layers, "net")[0] == [
        {"kind": "conv", "stride": 3},
        {"kind": "elu"},
        {"kind": "flatten"},
        {"kind": "linear"},
        {"kind": "clip", "low": -1, "high": 1},
        {"kind": "normalize", "clip": None},
    ]


def test_a_copy_has_weights_of_its_own():
    layers = [nn.Linear(2, 2), nn.Tanh()]
    before = torch.get_rng_state()
    copied = copy_of(layers)
    assert torch.equal(torch.get_rng_state(), before) and torch.equal(copied[0].weight, layers[0].weight)
    with torch.no_grad():
        layers[0].weight.fill_(3.0)
    assert not torch.equal(copied[0].weight, layers[0].weight)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, args, out: out * 2)
    return layer


@every_case(
    "layer",
    [
        Doubled(2, 2), hooked(), nn.Dropout(0.5), nn.Flatten(0), nn.Conv2d(1, 1, 3, padding="same"),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"), nn.LSTM(2, 2, bidirectional=True),
        nn.LayerNorm((2, 2)), nn.LayerNorm(2, elementwise_affine=False),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ],
)  # fmt: skip
def test_what_cannot_be_written(layer):
    with pytest.raises(CardError, match="written"):
        describe([layer], "net")


LINEAR = {"critic.0.weight": torch.ones(2, 3), "critic.0.bias": torch.zeros(2)}
CONV = {"critic.0.weight": torch.ones(2, 3, 2, 2), "critic.0.bias": torch.zeros(2)}


@every_case(
    ("spec", "tensors", "message"),
    [
        ([{"kind": "gru"}], {}, "expected layers of the kinds append_log_std, clip"),
        ([3], {}, "expected layers of the kinds"),
        ([{"kind": "relu"}] * (MOST_LAYERS + 1), {}, "at most 100 networks of at most 5000 layers"),
        ([{"kind": "flatten", "start_dim": 0}], {}, "a Flatten that is written keeps the first axis"),
        ([{"kind": "lstm"}], dict(nn.LSTM(1, 1).named_parameters(prefix="critic.0")), "lstm .*, critic may not"),
        ([{"kind": "linear", "padding": 1}], LINEAR, "padding"),
        ([{"kind": "linear", "bias": False}], LINEAR, "does not have: critic.0.bias"),
        ([{"kind": "linear"}, {"kind": "linear"}], LINEAR, "expected critic.1.weight"),
        ([{"kind": "conv", "stride": 1, "groups": 3}], CONV, "divisible by groups"),
        ([{"kind": "normalize"}], {"critic.0.mean": torch.ones(2), "critic.0.std": torch.ones(3)}, "0.std of shape"),
        ([{"kind": "linear"}], {"critic.0.weight": torch.ones(2, 3) / 0}, "critic.0.weight must hold finite floats"),
    ],
)  # fmt: skip
def test_what_is_refused(spec, tensors, message):
    with pytest.raises(CardError, match=message) as found, decoding("card.json"):
        card = Card({"role": "critic", "network": {"critic": spec}}, tensors)
        card.networks()
        card.weights.finish()
    assert len(str(found.value)) < 1000


def test_sizes_are_found_without_computing():
    net = nn.Sequential(nn.Flatten(), nn.Linear(10, 3))
    assert output_shape(net, (2, 5), 100) == (3,)
    with pytest.raises(CardError, match="would answer with 1000000000000 numbers, at most 100"):
        output_shape(OneHot((10**12,)), (1,), 100)


@every_case(
    "layer",
    [
        nn.Linear(10, 3), nn.Conv2d(2, 4, 3), nn.LayerNorm(10), nn.LSTM(10, 2), AppendLogStd(torch.zeros(10)),
        Normalize(torch.zeros(10), torch.ones(10)), OneHot((3, 2)), QuantileMean(5),
        MeanAndLogStd(nn.Linear(10, 2), nn.Linear(10, 2)), GSDE(nn.Linear(10, 2), torch.zeros(10, 2)),
    ],
)  # fmt: skip
def test_what_a_layer_does_not_take(layer):
    with pytest.raises(CardError, match=r"does not take \(12,\)"):
        output_shape(layer, (12,), 100)


def test_every_kind_has_a_layer_that_is_tested():
    tested = {kind_of(layer) for name in NETS for layer in NETS[name]()} | {"lstm"}
    assert tested == set(kinds())
