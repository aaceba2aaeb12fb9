"""ONNX graphs as torch modules: every operation as ONNX Runtime computes it, layers, states, what is unknown."""

from __future__ import annotations

import pickle
import re
import sys
import warnings

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.bounds.crown_bounds import crown
from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.victims.onnx import victim as onnx_victim
from adv_wrappers.victims.onnx.operations import known_operations
from tests.core.helpers import randn
from tests.victims.onnx_files import saved

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, DOUBLE, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.BOOL
WHOLE = np.iinfo(np.int64).max
X = randn(5, 6).float()


@pytest.fixture(autouse=True)
def few_observations(monkeypatch):
    """A graph is compared at some observations: many files of these tests take one at a time."""
    monkeypatch.setattr(onnx_victim, "_MOST", 64 * X.shape[1])


def weight(*sizes, seed=0):
    return randn(*sizes, seed=seed).numpy() / 2


def ints(*values):
    return np.array(values, np.int64)


def victim_of(path, shape, width, kind="mean", **more):
    box = spaces.Box(-3, 3, shape, np.float64)
    return adv.from_onnx(path, box, spaces.Box(-1, 1, (width,)), kind, **more)


def one(op, tensors="", more=None, **settings):
    """A graph of one operation, with constants ``more`` after the observation."""
    return [(op, f"x {tensors}", "y", settings)], more or {}


V = ints
UNARY = [
    "Relu", "Tanh", "Sigmoid", "Softplus", "HardSwish", "Softsign", "Elu", "LeakyRelu", "Celu", "Selu", "HardSigmoid",
    "Abs", "Neg", "Erf", "Sin", "Cos", "Floor", "Sign", "Identity", "Dropout", "LogSoftmax", "Softmax",
]  # fmt: skip


def side_by_side(*operations):
    """A graph of several operations ``(name, settings)`` on the observation, whose outputs follow one another."""
    outputs = [f"out{i}" for i in range(len(operations))]
    nodes = [(op, ["x"], [out], more) for out, (op, more) in zip(outputs, operations, strict=True)]
    return [*nodes, ("Concat", outputs, ["y"], {"axis": -1})], {}


# by name: the sizes of a row, the nodes from x to y, and constants; settings of versions after "@"
CASES = {
    "activations": ((6,), *side_by_side(*((op, {}) for op in UNARY))),
    "activations with settings": ((6,), *side_by_side(
        ("Elu", {"alpha": 0.3}), ("LeakyRelu", {"alpha": 0.2}), ("Celu", {"alpha": 0.7}),
        ("Selu", {"alpha": 0.5, "gamma": 2.0}), ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
    )),
    "later activations@20": ((6,), *side_by_side(("Mish", {}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"}))),
    "Softmax@11": ((6,), *one("Softmax")),
    "Sqrt": ((6,), [("Abs", "x", "a", {}), ("Sqrt", "a", "y", {})], {}),
    "Log": ((6,), [("Exp", "x", "a", {}), ("Add", "a one", "b", {}), ("Log", "b", "y", {})], {"one": V(1) * 1.0}),
    "Reciprocal": ((6,), [("Exp", "x", "a", {}), ("Reciprocal", "a", "y", {})], {}),
    "Pow": ((6,), *one("Pow", "w", {"w": np.array(2.0)})),
    "Clip@9": ((6,), *one("Clip", min=-1.0, max=0.5)),
    "Max": ((6,), *one("Max", "w", {"w": np.array(0.5)})),
    "Min of several": ((6,), [("Neg", "x", "n", {}), ("Min", "x w n", "y", {})], {"w": weight(6)}),
    "Max with zero": ((6,), *one("Max", "w", {"w": np.zeros(6)})),
    "Sum": ((6,), [("Neg", "x", "n", {}), ("Sum", "x w n w", "y", {})], {"w": weight(6)}),
    "Where": ((6,), [("Greater", "x zero", "m", {}), ("Where", "m x low", "y", {})],
        {"zero": np.array([0.0]), "low": np.array([-2.0])}),
    "logic": ((6,), [
        ("LessOrEqual", "x one", "a", {}), ("Less", "zero x", "b", {}), ("And", "a b", "c", {}),
        ("Not", "c", "d", {}),
        ("GreaterOrEqual", "x w", "e", {}), ("Or", "d e", "f", {}), ("Floor", "x", "h", {}),
        ("Equal", "h zero", "i", {}),
        ("And", "f i", "j", {}), ("Cast", "j", "g", {"to": FLOAT}), ("Mul", "x g", "y", {}),
    ], {"zero": np.array(0.0), "one": np.array(1.0), "w": weight(1, 6)}),
    **{op: ((6,), *one(op, "w", {"w": abs(weight(6)) + 1})) for op in ("Add", "Sub", "Mul", "Div")},
    "Sub turned": ((6,), [("Sub", "w x", "y", {})], {"w": weight(1, 6)}),
    "Div turned": ((6,), [("Exp", "x", "e", {}), ("Div", "w e", "y", {})], {"w": np.array(2.0)}),
    "broadcast": ((6,), [
        ("Add", "x w", "a", {}), ("Tanh", "a", "t", {}), ("ReduceMean", "t", "y", {"axes": [0], "keepdims": 1}),
    ], {"w": weight(3, 6)}),
    "normaliser": ((6,), [("Sub", "x m", "a", {}), ("Div", "a s", "y", {})], {"m": weight(6), "s": abs(weight(6)) + 1}),
    "Gemm of its own": ((6,), *one("Gemm", "w b", {"w": weight(4, 6), "b": weight(1)}, alpha=0.5, beta=2.0, transB=1)),
    "MatMul": ((6,), *one("MatMul", "w", {"w": weight(6, 4)})),
    "MatMul and a bias": ((6,), [("MatMul", "x w", "a", {}), ("Add", "b a", "y", {})],
        {"w": weight(6, 4), "b": weight(4)}),
    "Gemm and another bias": ((6,), [("Gemm", "x w b", "a", {}), ("Add", "a one", "y", {})],
        {"w": weight(6, 4), "b": weight(4), "one": np.array(1.0)}),
    "MatMul and a column": ((6,), [
        ("MatMul", "x w", "a", {}), ("Add", "a c", "b", {}), ("Tanh", "b", "t", {}),
        ("ReduceMean", "t", "y", {"axes": [0], "keepdims": 1}),
    ], {"w": weight(6, 4), "c": weight(4, 1)}),
    "MatMul of a vector": ((6,), [("MatMul", "x w", "a", {}), ("Unsqueeze", "a last", "y", {})],
        {"w": weight(6), "last": V(-1)}),
    "MatMul of several": ((3, 4), *one("MatMul", "w", {"w": weight(4, 5)})),
    "MatMul of values": ((3, 4), [("Transpose", "x", "t", {"perm": [0, 2, 1]}), ("MatMul", "x t", "y", {})], {}),
    "MatMul from the left": ((3, 4), [("MatMul", "w x", "y", {})], {"w": weight(2, 3)}),
    "Split": ((6,), [("Split", "x two", "a b", {"axis": -1}), ("Mul", "a b", "y", {})], {"two": V(3, 3)}),
    "Split@11": ((6,), [("Split", "x", "a b", {"axis": 1, "split": [2, 4]}), ("Concat", "b a", "y", {"axis": 1})], {}),
    "Slice back": ((6,), *one("Slice", "s e a t", {"s": V(-1), "e": V(-WHOLE), "a": V(1), "t": V(-2)})),
    "Slice@9": ((4, 6), *one("Slice", starts=[1, 2], ends=[3, 5], axes=[1, 2])),
    "Slice of a linear layer": ((6,), [("Gemm", "x w b", "a", {}), ("Slice", "a s e ax", "y", {})],
        {"w": weight(6, 8), "b": weight(8), "s": V(1), "e": V(5), "ax": V(1)}),
    "Gather": ((6,), *one("Gather", "i", {"i": V(5, 0, 0, -2)}, axis=1)),
    "Gather several": ((3, 4), *one("Gather", "i", {"i": V(2, 0)}, axis=2)),
    "Concat": ((6,), [("Tanh", "x", "t", {}), ("Concat", "t x", "y", {"axis": -1})], {}),
    "Concat with a constant": ((6,), [("Concat", "x c", "y", {"axis": 1})], {"c": weight(1, 2)}),
    "Concat of rows": ((6,), [("Neg", "x", "n", {}), ("Concat", "x n", "a", {"axis": 0}), ("Reshape", "a s", "y", {})],
        {"s": V(1, 12)}),
    "Flatten": ((3, 4), *one("Flatten")),
    "Reshape": ((6,), [("Reshape", "x s", "a", {}), ("ReduceSum", "a ax", "y", {})], {"s": V(-1, 2, 3), "ax": V(1)}),
    "Reshape by its shape": ((3, 4), [
        ("Shape", "x", "s", {}), ("Gather", "s zero", "n", {}), ("Concat", "n rest", "t", {"axis": 0}),
        ("Reshape", "x t", "y", {}),
    ], {"zero": V(0), "rest": V(-1)}),
    "Transpose all": ((3, 4), [
        ("Transpose", "x", "t", {}), ("Softmax", "t", "u", {"axis": 0}), ("Transpose", "u", "y", {}),
    ], {}),
    "Squeeze@11": ((1, 6), *one("Squeeze", axes=[1])),
    "Unsqueeze": ((6,), [("Unsqueeze", "x a", "b", {}), ("Mul", "b w", "y", {})], {"a": V(2), "w": weight(3)}),
    "Expand": ((6,), [("Unsqueeze", "x a", "b", {}), ("Expand", "b s", "y", {})], {"a": V(1), "s": V(1, 3, 6)}),
    "Conv": ((2, 8, 9), *one("Conv", "w b", {"w": weight(4, 2, 3, 2), "b": weight(4)},
        strides=[2, 1], pads=[1, 0, 1, 0])),
    "Conv to one side": ((2, 8, 9), *one("Conv", "w", {"w": weight(4, 1, 3, 3)},
        group=2, pads=[0, 0, 1, 2], dilations=[1, 2])),
    "Conv the same": ((2, 7, 8), *one("Conv", "w", {"w": weight(3, 2, 4, 3)}, auto_pad="SAME_UPPER", strides=[2, 2])),
    "Conv in one dimension": ((2, 8), *one("Conv", "w", {"w": weight(3, 2, 3)}, pads=[1, 1])),
    "MaxPool": ((2, 7, 8), *one("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0])),
    "MaxPool to one side": ((2, 7, 8), *one("MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 0])),
    "AveragePool": ((2, 6, 8), *one("AveragePool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1])),
    "AveragePool with its edge": ((2, 6, 8), *one("AveragePool", kernel_shape=[2, 2], pads=[1, 1, 1, 1],
        count_include_pad=1)),
    "GlobalAveragePool": ((2, 6, 8), *one("GlobalAveragePool")),
    "GlobalMaxPool": ((2, 6, 8), *one("GlobalMaxPool")),
    "BatchNormalization": ((3, 4, 5), *one("BatchNormalization", "s b m v",
        {"s": weight(3), "b": weight(3), "m": weight(3, seed=1), "v": abs(weight(3, seed=2))})),
    "BatchNormalization of vectors": ((3,), *one("BatchNormalization", "s b m v",
        {"s": weight(3), "b": weight(3), "m": weight(3, seed=1), "v": abs(weight(3, seed=2))}, epsilon=0.1)),
    "LayerNormalization": ((6,), *one("LayerNormalization", "s b", {"s": weight(6), "b": weight(6)})),
    "LayerNormalization of pictures": ((3, 6), *one("LayerNormalization", "s", {"s": weight(3, 6)},
        axis=1, epsilon=0.1)),
    "ReduceMean@18": ((3, 4), *one("ReduceMean", "a", {"a": V(1, 2)})),
    "ReduceMax": ((3, 4), *one("ReduceMax", axes=[1])),
    "ReduceMin": ((3, 4), *one("ReduceMin", axes=[1], keepdims=0)),
    "ReduceL2": ((6,), [("ReduceL2", "x", "n", {"axes": [1]}), ("Div", "x n", "y", {})], {}),
    "ReduceSum of rows": ((6,), [("ReduceSum", "x a", "m", {"keepdims": 1}), ("Sub", "x m", "y", {})], {"a": V(0, 1)}),
    "LSTM of a sequence": ((3, 4), [
        ("Transpose", "x", "t", {"perm": [1, 0, 2]}), ("LSTM", "t w r b", "o h c", {"hidden_size": 5}),
        ("Concat", "h c", "y", {"axis": 2}),
    ], {"w": weight(1, 20, 4), "r": weight(1, 20, 5), "b": weight(1, 40)}),
    "Constant": ((6,), [("Constant", "", "c", {"value_float": 2.0}), ("Mul", "c x", "y", {})], {}),
}  # fmt: skip


# of these the graph is for one row alone: with several, it would mix them
ONE_ROW = {
    "broadcast",
    "MatMul and a column",
    "Concat with a constant",
    "Concat of rows",
    "ReduceSum of rows",
    "LSTM of a sequence",
}
# and of these there is one without an axis for the rows
NO_ROWS = {
    "MatMul", "Split", "Concat", "Transpose all", "Reshape",
}  # fmt: skip
# and these differ from others in numbers alone
SLOW = {
    "Sqrt", "Reciprocal", "Where", "Add", "Mul", "Div turned", "MatMul",
    "MatMul and a bias", "MatMul from the left", "Split", "Concat", "Concat with a constant",
    "Concat of rows", "Transpose all", "Unsqueeze", "Conv in one dimension", "MaxPool to one side",
    "GlobalAveragePool", "BatchNormalization", "ReduceMax", "ReduceMin",
}  # fmt: skip
# for any number of rows and for one take turns, where a graph can be both
PLACES = [
    *(
        pytest.param(
            name, ("B",) if turn % 3 and name not in ONE_ROW else (1,), marks=[pytest.mark.slow] * (name in SLOW)
        )
        for turn, name in enumerate(CASES)
    ),
    *((name, ()) for name in CASES if name in NO_ROWS),
]


def case(path, name, rows, dtype=np.float32):
    """A file of the graph of a case, whose output is flat, and what ONNX Runtime answers to five rows."""
    sizes, nodes, tensors = CASES[name]
    last = ("Flatten", "y", "out", {"axis": 1}) if rows else ("Reshape", "y flat", "out", {})
    tensors = tensors if rows else dict(tensors, flat=V(-1))
    path = saved(path, {"x": [*rows, *sizes]}, [*nodes, last], {"out": None}, tensors, opset_of(name), dtype)
    session, x = onnxruntime.InferenceSession(str(path)), randn(5, *sizes, seed=7).numpy().astype(dtype)
    if rows == ("B",):
        return path, x, session.run(None, {"x": x})[0]
    answers = [session.run(None, {"x": row[None] if rows else row})[0] for row in x]
    return path, x, np.concatenate(answers) if rows else np.stack(answers)


def opset_of(name):
    return int(name.partition("@")[2] or 17)


@pytest.mark.parametrize(("name", "rows"), PLACES, ids=str)
def test_operations(tmp_path, name, rows):
    path, x, expected = case(tmp_path / "a.onnx", name, rows)
    victim = victim_of(path, x.shape[1:], expected.shape[1])
    assert victim.differentiable, victim.without_gradient
    for each in (victim, pickle.loads(pickle.dumps(victim))):
        found = each.params(torch.from_numpy(x))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * abs(expected).max())


# ONNX Runtime has no convolutions and no recurrent layers of double precision
@pytest.mark.parametrize("name", ["Gemm of its own", "LayerNormalization"])
def test_double_precision(tmp_path, name):
    path, x, expected = case(tmp_path / "a.onnx", name, (1,), np.float64)
    victim = victim_of(path, x.shape[1:], expected.shape[1])
    assert victim.differentiable and victim.dtype == torch.float64
    np.testing.assert_allclose(victim.params(torch.from_numpy(x)), expected, rtol=1e-12, atol=1e-12)


def test_every_operation_is_tried():
    tried = {node[0] for _, nodes, _ in CASES.values() for node in nodes} | {"GRU"}
    assert set(known_operations()) == tried - {"Constant", "Shape"}


MLP = [
    ("Sub", "x mean", "a", {}), ("Mul", "a factor", "b", {}), ("Gemm", "b w0 b0", "c", {}), ("Sigmoid", "c", "d", {}),
    ("Mul", "c d", "e", {}), ("Gemm", "e w1 b1", "f", {}), ("Split", "f", "g unused", {"axis": -1}),
    ("Tanh", "g", "y", {}),
]  # fmt: skip
WEIGHTS = {
    "mean": weight(6), "factor": abs(weight(6)) + 0.1, "w0": weight(6, 16), "b0": weight(16), "w1": weight(16, 8),
    "b1": weight(8),
}  # fmt: skip


def mlp(path, rows=1):
    """A policy as Brax exports it: a normaliser, SiLU as a product, and the mean as one half of the last layer."""
    return saved(path, {"x": [rows, 6]}, MLP, {"y": [rows, 4]}, WEIGHTS, 11)


def test_a_policy_has_gradients_bounds_and_a_card(tmp_path):
    victim = victim_of(mlp(tmp_path / "a.onnx"), (6,), 4)
    layers = [type(node.layer) for node in victim.layer_graph().nodes]
    assert layers == [Normalize, nn.Linear, nn.SiLU, nn.Linear, nn.Tanh]
    x = randn(3, 6).float()
    for bounds in (interval, crown):
        low, high = bounds(victim.net, x - 0.05, x + 0.05)
        inside = x[:, None] + 0.1 * torch.rand(3, 1000, 6, generator=torch.Generator().manual_seed(0)) - 0.05
        found = victim.params(inside.flatten(0, 1)).view(3, 1000, 4)
        assert ((low[:, None] <= found + 1e-6) & (found <= high[:, None] + 1e-6)).all()
        assert (high - low).max() < 0.5
    card = adv.save_card(tmp_path / "card", victim, environment="HalfCheetah-v5")
    assert torch.equal(card.params(x), victim.params(x))
    again = pickle.loads(pickle.dumps(victim))
    assert torch.equal(again.params(x), victim.params(x)) and again.fingerprint() == victim.fingerprint()


def test_activations_that_weights_do_not_tell_are_part_of_the_fingerprint(tmp_path):
    files = [saved(tmp_path / f"{op}.onnx", {"x": ["B", 6]}, [(op, "x", "y", {})], {"y": ["B", 6]}) for op in UNARY[:2]]
    assert len({victim_of(path, (6,), 6).fingerprint() for path in files}) == 2


def spelled(*nodes, **tensors):
    return list(nodes), {name: np.array(value) for name, value in tensors.items()}


WRITTEN_OUT = {
    "silu": (nn.SiLU, *spelled(
        ("Neg", "x", "a", {}), ("Exp", "a", "b", {}), ("Add", "b one", "c", {}), ("Div", "x c", "y", {}), one=1.0)),
    "gelu": (nn.GELU, *spelled(
        ("Div", "x root", "a", {}), ("Erf", "a", "b", {}), ("Add", "b one", "c", {}), ("Mul", "x c", "d", {}),
        ("Mul", "d half", "y", {}), root=2**0.5, one=1.0, half=0.5)),
    "gelu by a tanh": (nn.GELU, *spelled(
        ("Pow", "x three", "a", {}), ("Mul", "a little", "b", {}), ("Add", "x b", "c", {}), ("Mul", "c k", "d", {}),
        ("Tanh", "d", "e", {}), ("Add", "e one", "f", {}), ("Mul", "x f", "g", {}), ("Mul", "g half", "y", {}),
        three=3.0, little=0.044715, k=(2 / np.pi) ** 0.5, one=1.0, half=0.5)),
    "elu": (nn.ELU, *spelled(
        ("Greater", "x zero", "a", {}), ("Where", "a zeros x", "b", {}), ("Exp", "b", "c", {}),
        ("Sub", "c one", "d", {}), ("Where", "a x d", "y", {}), zero=0.0, zeros=np.zeros((1, 6)), one=1.0)),
    "mish": (nn.Mish, *spelled(("Softplus", "x", "a", {}), ("Tanh", "a", "b", {}), ("Mul", "x b", "y", {}))),
    "layer norm": (nn.LayerNorm, *spelled(
        ("ReduceMean", "x", "m", {"axes": [-1]}), ("Sub", "x m", "a", {}), ("Pow", "a two", "b", {}),
        ("ReduceMean", "b", "v", {"axes": [-1]}), ("Add", "v eps", "c", {}), ("Sqrt", "c", "d", {}),
        ("Div", "a d", "y", {}), two=2.0, eps=1e-3)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_layers_that_are_written_out(tmp_path, name):
    kind, nodes, tensors = WRITTEN_OUT[name]
    victim = victim_of(saved(tmp_path / "a.onnx", {"x": [1, 6]}, nodes, {"y": [1, 6]}, tensors), (6,), 6)
    (layer,) = victim.net.layers
    assert (type(layer) is kind and victim.layer_graph() is not None) or kind is nn.Mish
    if kind is nn.LayerNorm:
        assert layer.eps == 1e-3
    # another function is not taken for it
    nodes = [*nodes[:-1], (nodes[-1][0], nodes[-1][1], "z", nodes[-1][3]), ("Mul", "z x", "y", {})]
    victim = victim_of(saved(tmp_path / "a.onnx", {"x": [1, 6]}, nodes, {"y": [1, 6]}, tensors), (6,), 6)
    x = randn(4, 6).float()
    torch.testing.assert_close(victim.params(x), layer(x) * x)


def test_the_state_of_a_recurrent_layer(tmp_path):
    nodes = [
        ("Unsqueeze", "x first", "s", {}),
        ("GRU", ["s", "w", "r", "b", "", "h"], ["", "h_out"], {"hidden_size": 5, "linear_before_reset": 1}),
        ("Squeeze", "h_out first", "z", {}), ("MatMul", "z v", "y", {}),
    ]  # fmt: skip
    tensors = {
        "first": V(0), "w": weight(1, 15, 4), "r": weight(1, 15, 5, seed=1), "b": weight(1, 30, seed=2),
        "v": weight(5, 2),
    }  # fmt: skip
    state = [1, "B", 5]
    path = saved(tmp_path / "a.onnx", {"x": ["B", 4], "h": state}, nodes, {"y": ["B", 2], "h_out": state}, tensors)
    victim, session = victim_of(path, (4,), 2), onnxruntime.InferenceSession(str(path))
    assert victim.recurrent and victim.differentiable, victim.without_gradient
    state, hidden = victim.initial_state(1), np.zeros((1, 1, 5), np.float32)
    for t in range(4):
        x = randn(1, 4, seed=t).float().requires_grad_()
        expected, hidden = session.run(None, {"x": x.detach().numpy(), "h": hidden})
        params = victim.params(x, state)
        np.testing.assert_allclose(params.detach(), expected, rtol=1e-4, atol=1e-6)
        assert torch.autograd.grad(params.sum(), x)[0].any()
        with torch.no_grad():
            state = victim.advance(x, state)
    wide = victim_of(path, (4,), 2, dtype=torch.float64).initial_state(1)
    assert {leaf.dtype for leaf in wide.values()} == {torch.float64}


def test_a_masked_policy_has_the_gradient_of_its_observation(tmp_path):
    nodes = [
        ("MatMul", "obs w", "a", {}), ("Cast", "mask", "m", {"to": BOOL}), ("Where", "m a low", "y", {}),
    ]  # fmt: skip
    tensors = {"w": weight(4, 3), "low": np.array(-np.inf)}
    path = saved(tmp_path / "a.onnx", {"obs": ["B", 4], "mask": ["B", 3]}, nodes, {"y": ["B", 3]}, tensors)
    space = spaces.Dict(obs=spaces.Box(-1, 1, (4,)), mask=spaces.MultiBinary(3))
    victim = adv.from_onnx(path, space, spaces.Discrete(3), "logits")
    x = {"obs": randn(5, 4).float().requires_grad_(), "mask": torch.ones(5, 3, dtype=torch.int8)}
    (gradient,) = torch.autograd.grad(victim.params(x)[:, 0].sum(), x["obs"])
    np.testing.assert_allclose(gradient, np.tile(tensors["w"][:, 0], (5, 1)), rtol=1e-6)


def test_a_standard_deviation_that_is_a_constant(tmp_path):
    nodes = [("MatMul", "x w", "mean", {}), ("Identity", "s", "log_std", {})]
    path = saved(
        tmp_path / "a.onnx", {"x": ["B", 4]}, nodes, {"mean": ["B", 2], "log_std": [1, 2]},
        {"w": weight(4, 2), "s": weight(1, 2)},
    )  # fmt: skip
    victim = victim_of(path, (4,), 2, "gaussian")
    assert victim.layer_graph() is not None
    np.testing.assert_allclose(victim.params(torch.zeros(3, 4))[:, 2:], np.tile(weight(1, 2), (3, 1)), rtol=1e-6)


UNKNOWN = {
    "the operation Tan is not known": [("Tan", "x", "y", {})],
    "the operation RandomUniform is not known": [
        ("RandomUniform", "", "r", {"shape": [1, 4]}), ("Add", "x r", "y", {}),
    ],
    "the operation com.microsoft.Gelu is not known": [("Gelu", "x", "y", {"domain": "com.microsoft"})],
    "the input 1 of Clip depends on the observation": [
        ("ReduceMean", "x", "m", {"keepdims": 0}), ("Clip", "x m", "y", {}),
    ],
    "torch computes its Cast differently": [
        ("Cast", "x", "i", {"to": onnx.TensorProto.INT32}), ("Cast", "i", "y", {"to": FLOAT}),
    ],
    "torch answers something else at 96 random observations": [
        ("ReduceMean", "x", "m", {"axes": [0], "keepdims": 1}), ("Sub", "x m", "a", {}), ("Add", "a x", "y", {}),
    ],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:the module answers otherwise for an observation among others")
@pytest.mark.filterwarnings("ignore:the module answers by chance")
@pytest.mark.parametrize("why", UNKNOWN)
def test_what_is_not_known_is_run_by_onnx_runtime_and_named(tmp_path, why):
    path = saved(tmp_path / "a.onnx", {"x": ["B", 4]}, UNKNOWN[why], {"y": ["B", 4]})
    victim = victim_of(path, (4,), 4)
    assert not victim.differentiable and victim.act_on(np.zeros((1, 4), np.float32)).shape == (1, 4)
    with pytest.raises(
        VictimError, match=rf"this victim has none: ONNX Runtime runs .*a\.onnx, since {re.escape(why)}"
    ):
        adv.MaxDiff(victim)


def test_what_the_outputs_do_not_need_may_be_unknown(tmp_path):
    nodes = [("Tanh", "x", "y", {}), ("ArgMax", "x", "action", {"axis": 1})]
    path = saved(tmp_path / "a.onnx", {"x": ["B", 4]}, nodes, {"y": ["B", 4]})
    assert victim_of(path, (4,), 4).differentiable


def test_without_the_package_onnx_it_is_named(tmp_path, monkeypatch):
    path = mlp(tmp_path / "a.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "the package onnx, which reads its graph, is not installed" in victim_of(path, (6,), 4).without_gradient


def test_files_of_onnx_runtimes_own_format(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "a.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(mlp(tmp_path / "a.onnx")), options)
    victim = victim_of(tmp_path / "a.ort", (6,), 4)
    assert "since the package onnx cannot read it" in victim.without_gradient
    torch.testing.assert_close(victim.params(X), victim_of(tmp_path / "a.onnx", (6,), 4).params(X))


def test_functions_of_a_file_are_written_into_the_graph(tmp_path):
    path = saved(tmp_path / "a.onnx", {"x": ["B", 4]}, [("Tanh", "x", "y", {})], {"y": ["B", 4]})
    model, opset = onnx.load(str(path)), onnx.helper.make_opsetid("", 17)
    twice = [onnx.helper.make_node("Tanh", ["a"], ["b"]), onnx.helper.make_node("Tanh", ["b"], ["c"])]
    model.functions.append(onnx.helper.make_function("own", "Twice", ["a"], ["c"], twice, [opset]))
    model.graph.node[0].op_type, model.graph.node[0].domain = "Twice", "own"
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    onnx.save(model, str(path))
    x = randn(5, 4).float()
    torch.testing.assert_close(victim_of(path, (4,), 4).params(x), x.tanh().tanh())


class RecurrentNet(nn.Module):
    """An LSTM as torch exports it, batch first."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, obs, h_in, c_in):
        x, (h, c) = self.lstm(obs.unsqueeze(1), (h_in, c_in))
        return self.head(x.squeeze(1)), h, c


def exported(path, net, *given, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is a newer exporter
        torch.onnx.export(net.eval(), given, str(path), dynamo=False, **settings)
    return path


@pytest.mark.parametrize("opset", [9, 18])
def test_networks_that_torch_exports(tmp_path, opset):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 8),
        nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 8), nn.Softplus(), nn.Linear(8, 2), nn.Hardtanh(),
    )  # fmt: skip
    x = randn(5, 1, 14, 14).float()
    path = exported(tmp_path / "a.onnx", net, x[:1], opset_version=opset)
    victim = victim_of(path, (1, 14, 14), 2)
    assert victim.layer_graph() is not None
    torch.testing.assert_close(victim.params(x), net(x), rtol=1e-5, atol=1e-6)


def test_an_lstm_that_torch_exports(tmp_path):
    torch.manual_seed(0)
    net, zero = RecurrentNet(), torch.zeros(1, 1, 8)
    names = {"input_names": ["obs", "h_in", "c_in"], "output_names": ["mean", "h_out", "c_out"]}
    path = exported(tmp_path / "a.onnx", net, torch.zeros(1, 4), zero, zero, **names)
    victim = victim_of(path, (4,), 2)
    assert victim.differentiable
    h, c, state = zero.repeat(1, 3, 1), zero.repeat(1, 3, 1), victim.initial_state(3)
    for t in range(3):
        x = randn(3, 4, seed=t).float()
        expected, h, c = net(x, h, c)
        torch.testing.assert_close(victim.params(x, state), expected, rtol=1e-5, atol=1e-6)
        state = victim.advance(x, state)
