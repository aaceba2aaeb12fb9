"""from_onnx: graphs for batches of any and of fixed sizes, their outputs, and files that cannot be used."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import CardError, VictimError
from tests.core.helpers import randn

onnx = pytest.importorskip("onnx")
SEEN, TWO = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
WEIGHT = randn(4, 2).float().numpy()
X = randn(5, 4, seed=1).float()


def graph(path, batch=("B",), names=("logits",), inputs=1, ends="linear", dtype=onnx.TensorProto.FLOAT):
    """A file whose graph multiplies by ``WEIGHT``, once for each name; further inputs are added to the first."""
    given = [onnx.helper.make_tensor_value_info(f"obs{i}", dtype, [*batch, 4]) for i in range(inputs)]
    nodes = [onnx.helper.make_node("Cast", ["obs0"], ["x"], to=onnx.TensorProto.FLOAT)]
    last = "MatMul" if ends == "linear" else "ArgMax"
    kind = onnx.TensorProto.FLOAT if ends == "linear" else onnx.TensorProto.INT64
    for i, name in enumerate(names):
        if ends == "argmax":
            nodes += [
                onnx.helper.make_node("MatMul", ["x", "w"], [f"y{i}"]),
                onnx.helper.make_node(last, [f"y{i}"], [name], axis=-1, keepdims=0),
            ]
        else:
            nodes.append(onnx.helper.make_node(last, ["x", "w"], [name]))
    width = [2] if ends == "linear" else []
    out = [onnx.helper.make_tensor_value_info(name, kind, [*batch, *width]) for name in names]
    weight = onnx.numpy_helper.from_array(WEIGHT, "w")
    made = onnx.helper.make_graph(nodes, "policy", given, out, [weight])
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize("batch", [("B",), (1,), (3,), (5,), ()], ids=str)
def test_batches_of_any_size(tmp_path, batch):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx", batch), SEEN, TWO, "logits")
    assert not victim.differentiable
    np.testing.assert_allclose(victim.params(X).numpy(), X.numpy() @ WEIGHT, rtol=1e-5)
    assert victim.act_on(X[:1].numpy()).shape == (1,)


def test_inputs_of_other_types(tmp_path):
    pixels = spaces.Box(0, 255, (4,), np.uint8)
    path = graph(tmp_path / "a.onnx", dtype=onnx.TensorProto.UINT8)
    x = np.array([[1, 2, 3, 255]], np.uint8)
    np.testing.assert_allclose(adv.from_onnx(path, pixels, TWO, "q").params(x).numpy(), x @ WEIGHT, rtol=1e-5)


def test_outputs(tmp_path):
    path = graph(tmp_path / "a.onnx", names=("mean", "log_std", "value"))
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert adv.from_onnx(path, SEEN, box, "gaussian").params(X).shape == (5, 4)
    assert adv.from_onnx(path, SEEN, box, "mean").params(X).shape == (5, 2)
    assert adv.from_onnx(path, SEEN, box, "mean", output="value").params(X).shape == (5, 2)
    with pytest.raises(VictimError, match="no output 'logits', the graph has mean, log_std, value"):
        adv.from_onnx(path, SEEN, box, "mean", output="logits")


@pytest.mark.parametrize("batch", [("B",), ()], ids=str)
def test_a_graph_that_chooses(tmp_path, batch):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx", batch, ends="argmax"), SEEN, TWO, "action")
    assert victim.act_on(X.numpy()).tolist() == (X.numpy() @ WEIGHT).argmax(1).tolist()


def test_copies_and_fingerprints(tmp_path):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx"), SEEN, TWO, "q")
    other = pickle.loads(pickle.dumps(victim))
    assert torch.equal(other.params(X), victim.params(X)) and other.fingerprint() == victim.fingerprint()
    fixed = adv.from_onnx(graph(tmp_path / "b.onnx", (1,)), SEEN, TWO, "q")
    assert fixed.fingerprint() != victim.fingerprint() and victim.modules()


def test_attacked_by_its_outputs(tmp_path):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx"), SEEN, TWO, "logits")
    report = adv.evaluate(victim, "CartPole-v1", ["square:eps=0.1,queries=5"], episodes=1)
    assert report.threats[1]["attacked_fraction"] == 1.0


def test_graphs_that_do_not_fit(tmp_path):
    with pytest.raises(VictimError, match=r"expected one input of shape \('B', 3\) or \(3,\), the graph takes obs0"):
        adv.from_onnx(graph(tmp_path / "a.onnx"), spaces.Box(-1, 1, (3,)), TWO, "q")
    with pytest.raises(VictimError, match=r"the graph takes obs0: .*; obs1"):
        adv.from_onnx(graph(tmp_path / "b.onnx", inputs=2), SEEN, TWO, "q")
    with pytest.raises(VictimError, match=r"from_onnx takes Box observations, got Dict"):
        adv.from_onnx(tmp_path / "a.onnx", spaces.Dict({"a": SEEN}), TWO, "q")
    with pytest.raises(VictimError, match=r"'onnx:a\.onnx' is a file that knows no spaces: from_onnx"):
        adv.load_victim("onnx:a.onnx")


def test_files_that_are_none(tmp_path):
    with pytest.raises(CardError, match="cannot read"):
        adv.from_onnx(tmp_path / "none.onnx", SEEN, TWO, "q")
    (tmp_path / "text.onnx").write_text("no protobuf")
    with pytest.raises(CardError, match=r"text\.onnx as ONNX"):
        adv.from_onnx(tmp_path / "text.onnx", SEEN, TWO, "q")


def test_without_onnx_runtime_the_error_names_the_extra(tmp_path, monkeypatch):
    path = graph(tmp_path / "a.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VictimError, match=r"needs ONNX Runtime: pip install 'adv_wrappers\[onnx\]'"):
        adv.from_onnx(path, SEEN, TWO, "q")
