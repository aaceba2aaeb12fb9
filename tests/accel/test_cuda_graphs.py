"""Graphs over functions of tensors: what they read, when they are made again, and what happens where there are none."""

from __future__ import annotations

import functools
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn

from adv_wrappers.accel import cuda_graphs
from adv_wrappers.accel.cuda_graphs import CapturedGraph, GraphCache
from adv_wrappers.utils.trees import leaves
from tests.core.helpers import chooser, mlp, randn
from tests.core.tape import Tape


def tree(seed: int = 0, rows: int = 3):
    """Inputs of every kind, all of them different with the seed."""
    more = (randn(rows, 2, seed=seed + 1), None)
    return {"x": randn(rows, 4, seed=seed), "key": lambda: torch.arange(rows) + seed, "states": {7: more}, "mask": None}


def mixed(inputs):
    """A function of all of them."""
    (state, _), x = inputs["states"][7], inputs["x"]
    return x.sin() + state.sum(1, keepdim=True) * inputs["key"]()[:, None], x.abs().amax()


class Plain(GraphCache):
    """Graphs whose function is its own way without them."""

    def __call__(self, function, tree, keep=True):
        return super().__call__(function, tree, lambda: function(tree), keep)


def made(most=16, record=None, **more):
    return Plain(record or Tape(), "test", most=most, **more)


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


def test_replays_read_new_inputs_and_run_no_python():
    calls, taped = [], made()

    def function(inputs):
        calls.append(1)
        return mixed(inputs)

    for seed in range(4):
        assert same(taped(function, tree(seed)), mixed(tree(seed)))
    assert (taped.recorder.records, taped.recorder.replays) == (1, 4) and len(calls) == 3, "warmed, watched, recorded"


@pytest.mark.parametrize("forgotten", range(3))
def test_an_input_that_is_not_copied_is_caught(monkeypatch, forgotten):
    def careless(self, inputs):
        used = [(static, leaf) for static, leaf in zip(self._static, leaves(inputs), strict=True)]
        for number, (static, leaf) in enumerate(used):
            if number != forgotten:
                static.copy_(leaf() if callable(leaf) else leaf)
        return self._replay()

    monkeypatch.setattr(CapturedGraph, "__call__", careless)
    taped = made()
    assert same(taped(mixed, tree()), mixed(tree()))
    assert not same(taped(mixed, tree(1)), mixed(tree(1)))


def test_what_is_never_asked_for_is_not_made():
    def key():
        raise AssertionError("asked for")

    taped = made()
    for seed in range(2):
        x = randn(3, 4, seed=seed)
        assert torch.equal(taped(lambda inputs: inputs["x"] * 2, {"x": x, "key": key}), x * 2)


def test_results_are_new_memory_unless_that_may_be_spared():
    taped = made()
    first = taped(mixed, tree())
    kept = tuple(value.clone() for value in first)
    assert same(first, kept) and not same(taped(mixed, tree(1)), first) and same(first, kept)
    assert taped(mixed, tree(2), keep=False)[0] is taped(mixed, tree(3), keep=False)[0]


def test_shapes_have_graphs_of_their_own_and_the_oldest_goes():
    taped = made(most=2)
    for rows, records in ((3, 1), (4, 2), (3, 2), (5, 3), (3, 3), (4, 4)):
        assert same(taped(mixed, tree(rows, rows)), mixed(tree(rows, rows)))
        assert taped.recorder.records == records and len(taped.graphs) <= 2, rows
    wide = {**tree(rows=4), "x": randn(4, 4).t()}  # of the same shape, otherwise laid out
    assert same(taped(mixed, wide), mixed(wide)) and taped.recorder.records == 5
    whole = tree(rows=4) | {"x": randn(4, 4).float()}
    assert same(taped(mixed, whole), mixed(whole)) and taped.recorder.records == 6
    allowed = {"x": randn(4, 4), "mask": None}
    for mask in (None, torch.ones(4)):
        taped(lambda inputs: inputs["x"] * (1 if inputs["mask"] is None else 0), allowed | {"mask": mask})
    assert taped.recorder.records == 8


def test_precision_is_part_of_a_shape():
    taped, before = made(), torch.get_float32_matmul_precision()
    try:
        for precision, records in (("highest", 1), ("high", 2), ("highest", 2)):
            torch.set_float32_matmul_precision(precision)
            taped(mixed, tree())
            assert taped.recorder.records == records
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cpu"):
        assert same(taped(mixed, tree()), mixed(tree()))
    assert taped.recorder.replays == 3, "with autocast the function itself runs"


@pytest.mark.parametrize("live", [True, False])
def test_weights_may_change_where_they_are_but_not_move(live):
    net = mlp(4, 3)
    victim = chooser(net, live=live)
    taped, weight = made(victims=[victim]), victim.modules()[0][0].weight

    def run(records):
        x = randn(5, 4, seed=records)
        assert torch.equal(taped(lambda inputs: victim.params(inputs["x"]), {"x": x}), victim.params(x))
        assert taped.recorder.records == records

    with torch.no_grad():
        run(1)
        weight.mul_(3)
        run(1)
        weight.data = weight.data * 2
        run(2)
        if live:
            net[0].weight = nn.Parameter(net[0].weight * 2)
            run(3)
            assert len(taped.graphs) == 1, "graphs over weights that nobody has any more are given up"


def test_weights_that_only_a_function_knows_may_not_move_unnoticed():
    hidden, taped, x = nn.Linear(4, 2).double(), made(), randn(3, 4)
    with torch.no_grad():
        for records in (1, 2):
            assert torch.equal(taped(lambda inputs: hidden(inputs["x"]), {"x": x}), hidden(x))
            assert taped.recorder.records == records
            hidden.bias.data = hidden.bias.data + 1


def test_tables_live_as_long_as_a_graph_reads_them():
    @functools.lru_cache
    def table():
        return torch.arange(4.0)

    taped, seen = made(record=Forgetful()), weakref.ref(table())
    taped(lambda inputs: inputs["x"] * table(), {"x": torch.ones(3, 4)})
    table.cache_clear()
    gc.collect()
    assert seen() is not None
    taped.graphs.clear()
    gc.collect()
    assert seen() is None


class Forgetful:
    """Keeps nothing of what it recorded alive, as a CUDA graph does not."""

    def record(self, function):
        out = function()
        return lambda: out


class Broken:
    def record(self, function):
        raise RuntimeError("operation not permitted when stream is capturing")


UNFIT = {
    "item": lambda i: i["x"] * i["x"].sum().item(),
    "branch": lambda i: i["x"] if i["x"].sum() > 0 else -i["x"],
    "nonzero": lambda i: i["x"].nonzero(),
    "mask": lambda i: i["x"][i["x"] > 0],
    "unique": lambda i: i["x"].unique(),
    "another device": lambda i: (i["x"].to("meta"), i["x"] * 2)[1],
    "input": lambda i: i["x"].mul_(2),
    "view": lambda i: i["x"].detach()[0].zero_(),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_cannot_be_recorded_runs_as_it_is_after_one_warning(name):
    taped, calls, x = made(), [], randn(3, 4)

    def function(inputs):
        calls.append(1)
        return UNFIT[name](inputs)

    with pytest.warns(RuntimeWarning, match="test is not recorded as a graph.*: ThreatError: ") as seen:
        assert torch.equal(taped(function, {"x": x.clone()}), UNFIT[name]({"x": x.clone()}))
    assert len(seen) == 1 and taped.recorder.records == 0
    before = len(calls)
    assert torch.equal(taped(function, {"x": x.clone()}), UNFIT[name]({"x": x.clone()})) and len(calls) == before + 1


def test_weights_are_not_written_to_by_a_graph():
    net = nn.BatchNorm1d(4).double().train()
    with pytest.warns(RuntimeWarning, match="writes to memory"), torch.no_grad():
        made()(lambda inputs: net(inputs["x"]), {"x": randn(3, 4)})


def test_a_broken_capture_costs_a_warning():
    taped = made(record=Broken())
    with pytest.warns(RuntimeWarning, match="one by one: RuntimeError: operation not permitted"):
        assert same(taped(mixed, tree()), mixed(tree()))
    assert same(taped(mixed, tree(1)), mixed(tree(1))) and not taped.graphs


def test_errors_of_the_function_are_its_own():
    with pytest.raises(ZeroDivisionError):
        made()(lambda inputs: 1 / 0, {"x": randn(3)})


def test_what_is_no_tensor_is_not_taken_for_constant():
    taped = made()
    with pytest.warns(RuntimeWarning, match="TypeError: expected tensors, got float"):
        assert taped(lambda inputs: inputs["t"], {"t": 1.0}) == 1.0
    assert taped(lambda inputs: inputs["t"], {"t": 2.0}) == 2.0


def test_graphs_are_left_behind_when_pickled():
    taped = made(record=Broken())
    taped.graphs[0] = None
    again = pickle.loads(pickle.dumps(taped))
    assert not again.graphs and again.label == "test"
    used = cuda_graphs.CudaGraphRecorder(torch.device("cuda"))
    used._stream = used._pool = lambda: "of this process"
    again = pickle.loads(pickle.dumps(used))
    assert again._stream is None and again.device == used.device


def test_where_there_are_graphs(monkeypatch):
    assert cuda_graphs.recorder_for(torch.device("cpu")) is None
    assert isinstance(cuda_graphs.recorder_for(torch.device("cuda")), cuda_graphs.CudaGraphRecorder)
    monkeypatch.setenv(cuda_graphs.GRAPHS_VARIABLE, "0")
    assert cuda_graphs.recorder_for(torch.device("cuda")) is None
