"""Lower precision: nearly the same gradients, nothing left switched over, and the flipped actions told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from adv_wrappers import Linf, MinBest, from_module
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.victims.autograd_or_written_out_gradient import flipped, lowered
from tests.core.helpers import context

BOX = spaces.Box(-1, 1, (5,), np.float32)


def victim(walked: bool = True, bias: float = 0.0):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 32), nn.Tanh() if walked else nn.Mish(), nn.Linear(32, 3))
    with torch.no_grad():
        net[2].bias += bias
    made = from_module(net, BOX, spaces.Discrete(3), "logits")
    assert (made.layer_graph() is not None) is walked
    return made


@pytest.mark.parametrize("walked", [True, False])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_gradients_are_nearly_the_same(walked, precision):
    agent, x = victim(walked), torch.rand(200, 5) * 2 - 1
    weights = {k: v.clone() for k, v in agent.net.state_dict().items()}
    ends = [MinBest(agent, steps=4, step=0.3, precision=p)(x, context(x, Linf(0.2), -1, 1)) for p in (None, precision)]
    assert ends[1].dtype == torch.float32 and all(torch.equal(v, weights[k]) for k, v in agent.net.state_dict().items())
    same = (ends[0] == ends[1]).float().mean()
    assert same > 0.95 and (precision == "tf32" or same < 1)


def test_bf16_leaves_the_dtype_of_float64_alone():
    agent, x = victim(), torch.rand(3, 5, dtype=torch.float64)
    assert agent.gradient(lambda params: params[:, 0], precision="bf16")(x.float()).dtype == torch.float32


def test_switches_are_set_back():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with pytest.raises(RuntimeError, match="inside"), lowered("tf32", torch.device("cpu")):
            assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32
            raise RuntimeError("inside")
        assert torch.get_float32_matmul_precision() == before[0] and not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.allow_tf32 = before[1]
    with lowered("bf16", torch.device("cpu")):
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_flipped_actions():
    x = torch.rand(500, 5) * 2 - 1
    assert not flipped(victim(), x, None).any()
    few = flipped(victim(), x, "bf16")
    many = flipped(victim(bias=300.0), x, "bf16")  # bfloat16 has no room for the differences left
    assert few.dtype == torch.bool and few.shape == (500,) and 0 <= few.sum() < 25 < many.sum()


def test_flipped_continuous_actions():
    net = nn.Linear(5, 2)
    agent = from_module(net, BOX, spaces.Box(-1, 1, (2,), np.float32), "mean")
    x = torch.rand(50, 5)
    assert not flipped(agent, x, "bf16").any()
    with torch.no_grad():
        net.bias += 100
    wild = from_module(net, BOX, spaces.Box(-1, 1, (2,), np.float32), "mean")
    assert flipped(wild, x, "bf16").any()


@pytest.mark.parametrize("precision", ["fp16", "", 16, True])
def test_unknown(precision):
    with pytest.raises(ValueRangeError, match="precision must be one of bf16, tf32, or None for full, got"):
        MinBest(victim(), precision=precision)
