"""from_onnx: inputs, outputs and states of graphs, in torch and in ONNX Runtime; files that cannot be used."""

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
from tests.victims.onnx_files import saved

onnx = pytest.importorskip("onnx")
SEEN, TWO = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2)
WEIGHT = randn(4, 2).float().numpy()
X = randn(5, 4, seed=1).float()


@pytest.fixture(params=["torch", "ONNX Runtime"])
def differentiable(request, monkeypatch):
    """Whether the graph becomes a module of torch: without the package that reads it, ONNX Runtime runs it."""
    if request.param == "ONNX Runtime":
        monkeypatch.setitem(sys.modules, "onnx", None)
    return request.param == "torch"


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


@pytest.mark.parametrize("batch", [("B",), (3,), ()], ids=str)
def test_batches_of_any_size(tmp_path, batch, differentiable):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx", batch), SEEN, TWO, "logits")
    assert victim.differentiable == differentiable
    np.testing.assert_allclose(victim.params(X).numpy(), X.numpy() @ WEIGHT, rtol=1e-5)
    assert victim.act_on(X[:1].numpy()).shape == (1,)


def test_inputs_of_other_types(tmp_path, differentiable):
    pixels = spaces.Box(0, 255, (4,), np.uint8)
    path = graph(tmp_path / "a.onnx", dtype=onnx.TensorProto.UINT8)
    x = np.array([[1, 2, 3, 255]], np.uint8)
    np.testing.assert_allclose(adv.from_onnx(path, pixels, TWO, "q").params(x).numpy(), x @ WEIGHT, rtol=1e-5)


def test_outputs(tmp_path, differentiable):
    path = graph(tmp_path / "a.onnx", names=("mean", "log_std", "value"))
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert adv.from_onnx(path, SEEN, box, "gaussian").params(X).shape == (5, 4)
    assert adv.from_onnx(path, SEEN, box, "mean").params(X).shape == (5, 2)
    assert adv.from_onnx(path, SEEN, box, "mean", output="value").params(X).shape == (5, 2)
    with pytest.raises(VictimError, match="no output 'logits', the graph has mean, log_std, value"):
        adv.from_onnx(path, SEEN, box, "mean", output="logits")
    more = spaces.Box(-1, 1, (3,), np.float32)
    with pytest.raises(
        VictimError, match=r"needs 3\. Taken was the output mean; .* log_std, value, too: output='log_std'"
    ):
        adv.from_onnx(path, SEEN, more, "mean")


@pytest.mark.parametrize("batch", [("B",), ()], ids=str)
def test_a_graph_that_chooses(tmp_path, batch):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx", batch, ends="argmax"), SEEN, TWO, "action")
    assert victim.act_on(X.numpy()).tolist() == (X.numpy() @ WEIGHT).argmax(1).tolist()


def test_copies_and_fingerprints(tmp_path, differentiable):
    victim = adv.from_onnx(graph(tmp_path / "a.onnx"), SEEN, TWO, "q")
    other = pickle.loads(pickle.dumps(victim))
    assert torch.equal(other.params(X), victim.params(X)) and other.fingerprint() == victim.fingerprint()
    fixed = adv.from_onnx(graph(tmp_path / "b.onnx", (1,)), SEEN, TWO, "q")
    assert fixed.fingerprint() != victim.fingerprint() and victim.modules()


def test_operations_of_others_are_named(tmp_path):
    nodes = [
        onnx.helper.make_node("Wiggle", ["obs"], ["x"], domain="lab.custom"),
        onnx.helper.make_node("Wobble", ["x"], ["y"]),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("obs", "y")]
    domains = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("lab.custom", 1)]
    made = onnx.helper.make_graph(nodes, "policy", ports[:1], ports[1:])
    onnx.save(onnx.helper.make_model(made, opset_imports=domains, ir_version=8), str(tmp_path / "a.onnx"))
    with pytest.raises(CardError, match=r"does not have: Wiggle of the domain lab\.custom, Wobble\. Export"):
        adv.from_onnx(tmp_path / "a.onnx", SEEN, TWO, "q")


def test_graphs_that_do_not_fit(tmp_path):
    with pytest.raises(VictimError, match=r"expected one input of shape \('B', 3\) or \(3,\), the graph takes obs0"):
        adv.from_onnx(graph(tmp_path / "a.onnx"), spaces.Box(-1, 1, (3,)), TWO, "q")
    with pytest.raises(VictimError, match="takes 4 numbers, an observation has 3: 1 are missing, such as a command"):
        adv.from_onnx(tmp_path / "a.onnx", spaces.Box(-1, 1, (3,)), TWO, "q")
    with pytest.raises(VictimError, match="4 numbers, 2 times the 2 of an observation, such as a history: Frame"):
        adv.from_onnx(tmp_path / "a.onnx", spaces.Box(-1, 1, (2,)), TWO, "q")
    with pytest.raises(VictimError, match="1 are too many, such as those that only a critic sees"):
        adv.from_onnx(tmp_path / "a.onnx", spaces.Box(-1, 1, (5,)), TWO, "q")
    with pytest.raises(VictimError, match="as many numbers: make the observation a Dict of obs0, obs1"):
        adv.from_onnx(graph(tmp_path / "b.onnx", inputs=2), spaces.Box(-1, 1, (8,)), TWO, "q")
    with pytest.raises(VictimError, match=r"the graph takes obs0: .*; obs1"):
        adv.from_onnx(graph(tmp_path / "b.onnx", inputs=2), SEEN, TWO, "q")
    with pytest.raises(VictimError, match=r"from_onnx takes Box, .* or a Dict of these, got Dict"):
        adv.from_onnx(tmp_path / "a.onnx", spaces.Dict({"a": spaces.Dict({"b": SEEN})}), TWO, "q")
    with pytest.raises(VictimError, match=r"'onnx:a\.onnx' is a file that knows no spaces: .* from_onnx"):
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


def outside(folder, weight=WEIGHT, location="weights.bin"):
    """A file whose weights are in another one."""
    folder.mkdir(exist_ok=True)
    (folder / location).parent.mkdir(exist_ok=True)
    (folder / location).unlink(missing_ok=True)
    nodes = [("MatMul", ["obs", "w"], ["logits"], {})]
    external = {"save_as_external_data": True, "location": location, "size_threshold": 0}
    return saved(folder / "a.onnx", {"obs": ["B", 4]}, nodes, {"logits": ["B", 2]}, {"w": weight}, **external)


@pytest.mark.parametrize("location", ["weights.bin", "data/weights.bin"])
def test_weights_in_a_file_beside_it_are_part_of_it(tmp_path, monkeypatch, location, differentiable):
    path = outside(tmp_path / "here", location=location)
    outside(tmp_path / "elsewhere", WEIGHT + 1, location)
    monkeypatch.chdir(tmp_path / "elsewhere")  # which holds a file of the same name
    victim = adv.from_onnx(path, SEEN, TWO, "logits")
    np.testing.assert_allclose(victim.params(X).numpy(), X.numpy() @ WEIGHT, rtol=1e-5)
    again = pickle.loads(pickle.dumps(victim))
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    outside(tmp_path / "here", 2 * WEIGHT, location)
    assert path.read_bytes() == before  # and the weights alone have changed
    np.testing.assert_allclose(again.params(X).numpy(), X.numpy() @ WEIGHT, rtol=1e-5)
    other = adv.from_onnx(path, SEEN, TWO, "logits")
    np.testing.assert_allclose(other.params(X).numpy(), 2 * X.numpy() @ WEIGHT, rtol=1e-5)
    assert other.fingerprint() != victim.fingerprint() == again.fingerprint()


def test_weights_that_are_not_beside_it_are_refused(tmp_path, monkeypatch):
    path = outside(tmp_path / "here")
    (tmp_path / "here" / "weights.bin").rename(tmp_path / "weights.bin")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CardError, match=r"keeps weights in other files, which must lie beside it"):
        adv.from_onnx(path, SEEN, TWO, "logits")
    path.write_bytes(path.read_bytes().replace(b"\x12\x0bweights.bin", b"\x12\x0b../weigh.in"))
    (tmp_path / "weigh.in").write_bytes((tmp_path / "weights.bin").read_bytes())
    with pytest.raises(CardError, match=r"keeps weights in other files, which must lie beside it"):
        adv.from_onnx(path, SEEN, TWO, "logits")
    monkeypatch.chdir(tmp_path / "here")
    path = outside(tmp_path / "large")
    with pytest.raises(CardError, match="weights"):
        adv.from_onnx(path, SEEN, TWO, "logits", max_bytes=path.stat().st_size + 1)


MASKED = spaces.Dict(observation=SEEN, action_mask=spaces.MultiBinary(2))


def masked(path, first, second, rows=("B",)):
    """Logits of an observation, minus infinity where the mask is false."""
    nodes = [
        ("MatMul", [first, "w"], ["x"], {}), ("Where", ["allowed", "x", "low"], ["logits"], {}),
        ("Cast", [second], ["allowed"], {"to": onnx.TensorProto.BOOL}),
    ]  # fmt: skip
    nodes = [nodes[0], nodes[2], nodes[1]]
    low = np.array(-np.inf, np.float32)
    return saved(
        path, {second: [*rows, 2], first: [*rows, 4]}, nodes, {"logits": [*rows, 2]}, {"w": WEIGHT, "low": low}
    )


@pytest.mark.parametrize(
    ("first", "second", "rows"),
    [
        ("a", "b", ("B",)), ("obs", "mask", ()), ("observation", "action_mask", (3,)),
    ],
    ids=str,
)  # fmt: skip
def test_a_dictionary_of_inputs(tmp_path, first, second, rows, differentiable):
    victim = adv.from_onnx(masked(tmp_path / "a.onnx", first, second, rows), MASKED, TWO, "logits")
    obs = {"observation": X.numpy(), "action_mask": np.array([[1, 0], [0, 1], [1, 1], [1, 0], [0, 1]], np.int8)}
    expected = np.where(obs["action_mask"] == 1, X.numpy() @ WEIGHT, -np.inf).argmax(1)
    np.testing.assert_array_equal(victim.act_on(obs), expected)


def test_inputs_that_names_and_sizes_do_not_tell(tmp_path, differentiable):
    both = spaces.Dict(left=SEEN, right=SEEN)
    nodes = [("Sub", ["a", "b"], ["x"], {}), ("MatMul", ["x", "w"], ["logits"], {})]
    path = saved(tmp_path / "a.onnx", {"a": ["B", 4], "b": ["B", 4]}, nodes, {"logits": ["B", 2]}, {"w": WEIGHT})
    with pytest.raises(VictimError, match=r"expected inputs of left \[4\], right \[4\], .*graph takes a: .*; b: "):
        adv.from_onnx(path, both, TWO, "logits")
    obs = {"left": X.numpy(), "right": np.ones((5, 4), np.float32)}
    for named, sign in (({"a": "left", "b": "right"}, 1), ({"a": "right", "b": "left"}, -1)):
        victim = adv.from_onnx(path, both, TWO, "logits", inputs=named)
        np.testing.assert_allclose(victim.params(obs).numpy(), sign * (X.numpy() - 1) @ WEIGHT, rtol=1e-4, atol=1e-6)
    with pytest.raises(VictimError, match=r"the input a: .* does not take 'middle' of inputs of left"):
        adv.from_onnx(path, both, TWO, "logits", inputs={"a": "middle"})


def test_choices_as_observations(tmp_path, differentiable):
    for sizes in (["B"], ["B", 1]):
        nodes = [("Reshape", ["obs", "column"], ["x"], {}), ("MatMul", ["x", "w"], ["logits"], {})]
        weights = {"w": WEIGHT[:1], "column": np.array([-1, 1])}
        path = saved(tmp_path / "a.onnx", {"obs": sizes}, nodes, {"logits": ["B", 2]}, weights)
        victim = adv.from_onnx(path, spaces.Discrete(3), TWO, "logits")
        np.testing.assert_allclose(victim.params(np.array([0, 2])).numpy(), [[0, 0], 2 * WEIGHT[0]], rtol=1e-6)


HIDDEN = {"u": randn(4, 3, seed=2).float().numpy(), "v": randn(3, 3, seed=3).float().numpy(), "w": WEIGHT[:3]}


def recurrent(path, names, rows="B", layers=True, ends="logits"):
    """A network with a hidden state ``tanh(obs @ u + h @ v)``, whose logits are of the new one."""
    seen, before, after = names
    sizes = [1, rows, 3] if layers else [rows, 3]
    state = [("Squeeze", [before, "first"], ["h"], {})] if layers else [("Identity", [before], ["h"], {})]
    back = [("Unsqueeze", ["new", "first"], [after], {})] if layers else [("Identity", ["new"], [after], {})]
    last = [("ArgMax", ["logits"], ["action"], {"axis": -1, "keepdims": 0})] if ends == "action" else []
    nodes = [
        ("MatMul", [seen, "u"], ["a"], {}), *state, ("MatMul", ["h", "v"], ["b"], {}), ("Add", ["a", "b"], ["c"], {}),
        ("Tanh", ["c"], ["new"], {}), ("MatMul", ["new", "w"], ["logits"], {}), *last, *back,
    ]  # fmt: skip
    returned = {ends: [rows] if ends == "action" else [rows, 2], after: sizes}
    weights = HIDDEN | ({"first": np.array([0])} if layers else {})
    return saved(path, {seen: [rows, 4], before: sizes}, nodes, returned, weights)


NAMES = ("obs", "h_in", "h_out"), ("x", "state_in_0", "state_out_0"), ("seen", "1", "2")


@pytest.mark.parametrize(
    ("rows", "layers", "names", "ends"),
    [
        ("B", False, NAMES[1], "action"), (1, True, NAMES[2], "action"), (2, True, NAMES[0], "logits"),
    ],
    ids=str,
)  # fmt: skip
def test_hidden_states(tmp_path, rows, layers, names, ends, differentiable):
    victim = adv.from_onnx(recurrent(tmp_path / "a.onnx", names, rows, layers, ends), SEEN, TWO, ends)
    assert victim.recurrent
    state, hidden = victim.initial_state(5), np.zeros((5, 3))
    for t in range(3):
        obs = randn(5, 4, seed=t).float()
        hidden = np.tanh(obs.numpy() @ HIDDEN["u"] + hidden @ HIDDEN["v"])
        np.testing.assert_array_equal(victim.act_on(obs.numpy(), state), (hidden @ HIDDEN["w"]).argmax(1))
        state = victim.advance(obs, state)
    again = pickle.loads(pickle.dumps(victim))
    assert torch.equal(again.params(obs, state), victim.params(obs, state))


def test_a_graph_with_a_state_is_evaluated(tmp_path):
    victim = adv.from_onnx(recurrent(tmp_path / "a.onnx", ("obs", "h_in", "h_out"), 1), SEEN, TWO, "logits")
    report = adv.evaluate(victim, "CartPole-v1", ["square:eps=0.1,queries=5"], 2, env_kwargs={"max_episode_steps": 10})
    assert report.threats[0]["mean_return"] > 5 and report.threats[1]["attacked_fraction"] == 1


def test_a_state_of_the_size_of_an_observation(tmp_path):
    seen = spaces.Box(-1, 1, (3,), np.float32)
    nodes = [("Add", ["h_in", "obs"], ["h_out"], {}), ("MatMul", ["h_out", "w"], ["logits"], {})]
    path = saved(
        tmp_path / "a.onnx", {"h_in": ["B", 3], "obs": ["B", 3]}, nodes, {"h_out": ["B", 3], "logits": ["B", 2]},
        {"w": WEIGHT[:3]},
    )  # fmt: skip
    victim, obs = adv.from_onnx(path, seen, TWO, "logits"), X[:, :3]
    state = victim.advance(obs, victim.initial_state(5))
    np.testing.assert_allclose(victim.params(obs, state).numpy(), 2 * obs.numpy() @ WEIGHT[:3], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "sizes", "values"),
    [("time_step", ["B", 1], (0, 1, 2)), ("time_step", [1, 1], (0, 1, 2)), ("episode_starts", ["B"], (1, 0, 0))],
)
def test_what_tells_the_step_of_an_episode(tmp_path, name, sizes, values, differentiable):
    nodes = [
        ("MatMul", ["obs", "w"], ["x"], {}), ("Reshape", [name, "column"], ["t"], {}),
        ("Mul", ["x", "t"], ["mean"], {}),
    ]  # fmt: skip
    weights = {"w": WEIGHT, "column": np.array([-1, 1])}
    path = saved(tmp_path / "a.onnx", {"obs": [sizes[0], 4], name: sizes}, nodes, {"mean": [sizes[0], 2]}, weights)
    victim = adv.from_onnx(path, SEEN, spaces.Box(-9, 9, (2,)), "mean")
    state = victim.initial_state(5)
    for value in values:
        np.testing.assert_allclose(victim.params(X, state).numpy(), value * X.numpy() @ WEIGHT, rtol=1e-5)
        state = victim.advance(X, state)


def test_inputs_that_are_nothing_known(tmp_path):
    path = masked(tmp_path / "a.onnx", "obs", "mask")
    with pytest.raises(
        VictimError, match=r"the input mask is no part .* takes mask: .*\['B', 2\]; obs: .* a Dict of obs"
    ):
        adv.from_onnx(path, SEEN, spaces.Box(-1, 1, (2,)), "mean", output="logits")


def test_graphs_of_double_precision_see_it(tmp_path, differentiable):
    path = graph(tmp_path / "a.onnx", dtype=onnx.TensorProto.DOUBLE)
    made = onnx.load(str(path))
    made.graph.node[0].op_type = "Sub"
    made.graph.node[0].input[:] = ["obs0", "mean"]
    del made.graph.node[0].attribute[:]
    made.graph.node[0].output[0] = "near"
    made.graph.node.insert(1, onnx.helper.make_node("Cast", ["near"], ["x"], to=onnx.TensorProto.FLOAT))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.full(4, 1e9), "mean"))
    onnx.save(made, str(path))
    victim = adv.from_onnx(path, spaces.Box(-np.inf, np.inf, (4,), np.float64), TWO, "logits")
    np.testing.assert_allclose(victim.params(1e9 + X.double()).numpy(), X.numpy() @ WEIGHT, rtol=1e-4, atol=1e-5)
