"""Trees: rows of every leaf, two trees merged row by row, and functions of leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from adv_wrappers.utils import trees


class Pair(NamedTuple):
    h: torch.Tensor
    c: torch.Tensor | None


def test_a_shape_is_a_leaf():
    shape = torch.Size([2, 3])
    assert [*trees.leaves([shape])] == [shape] and trees.map_leaves(lambda leaf: leaf, [shape]) == [shape]


def test_leaves_in_order():
    a, b, c = torch.zeros(1), torch.ones(1), np.zeros(2)
    assert list(map(id, trees.leaves({"x": (a, None), "y": [b, {"z": c}]}))) == [id(a), id(b), id(c)]
    assert list(map(id, trees.tensors({"x": (a, None), "y": [b, {"z": c}]}))) == [id(a), id(b)]
    assert not list(trees.leaves(None)) and not list(trees.leaves({})) and list(trees.leaves(3)) == [3]


def test_a_mapped_tree_has_the_same_form():
    tree = {"a": (1, [2, None]), "b": Pair(3, None)}
    assert trees.map_leaves(lambda leaf: 10 * leaf, tree) == {"a": (10, [20, None]), "b": Pair(30, None)}


def test_a_clone_shares_no_tensor():
    array, tensor = np.zeros(2), torch.zeros(2)
    out = trees.clone({"a": tensor, "b": (array, None)})
    out["a"] += 1
    assert float(tensor.sum()) == 0 and out["b"] == (array, None) and out["b"][0] is array


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([True, False, True])], ids=["numbers", "mask"])
def test_rows_of_every_leaf(rows):
    tree = {"a": torch.arange(3), "b": (np.arange(3), ("x", "y", "z")), "c": None}
    out = trees.select(tree, rows)
    expected = [0, 2] if rows.dtype == bool else [2, 0]
    assert out["a"].tolist() == out["b"][0].tolist() == expected and out["c"] is None
    assert out["b"][1].tolist() == [("x", "y", "z")[i] for i in expected]
    assert trees.select(tree, None) is tree


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["array", "tensor"])
def test_merged_rows(kind):
    """A mask of either kind is taken for leaves of either kind, and nothing is written to."""
    new = {"a": torch.ones(2, 3), "b": (np.ones((2, 1)), ()), "c": ("p", "q")}
    old = {"a": torch.zeros(2, 3), "b": (np.zeros((2, 1)), ()), "c": ("r", "s")}
    out = trees.merge(kind([True, False]), new, old)
    assert out["a"].tolist() == [[1, 1, 1], [0, 0, 0]] and out["b"][0].tolist() == [[1], [0]] and out["b"][1] == ()
    assert list(out["c"]) == ["p", "s"]
    assert float(new["a"].sum()) == 6 and float(old["a"].sum()) == 0


def test_rows_are_read_and_written():
    tree = {"a": np.zeros((2, 2)), "b": {"c": np.zeros(2)}}
    trees.put(tree, 1, {"a": np.ones(2), "b": {"c": 3.0}})
    assert trees.row(tree, 1)["a"].tolist() == [1, 1] and trees.row(tree, 1)["b"]["c"] == 3 == tree["b"]["c"][1]
    before = trees.copy(tree)
    trees.put(tree, 0, trees.row(tree, 1))
    assert before["a"][0].tolist() == [0, 0] and tree["a"][0].tolist() == [1, 1]


def test_texts_and_devices():
    assert trees.is_text(("a", "b")) and trees.is_text(np.array(["a", "b"], dtype=object)) and trees.is_text(["a"])
    assert not trees.is_text(np.zeros(2)) and not trees.is_text((torch.zeros(1),)) and not trees.is_text("a")
    assert trees.copy(("a", "b")).dtype == object
    assert trees.device({"a": torch.zeros(1)}) == torch.device("cpu") and trees.device(np.zeros(1)) is None


def test_rows_of_tuples_and_of_texts():
    batch = (np.arange(3), {"a": torch.arange(3)}, ("x", "y", "z"))
    first, inner, text = trees.row(batch, 1)
    assert first == 1 and inner["a"] == 1 and text == "y"
    made = trees.copy(batch)
    trees.put(made, 0, (7, {"a": 8}, "long"))
    assert made[0].tolist() == [7, 1, 2] and made[1]["a"].tolist() == [8, 1, 2] and list(made[2]) == ["long", "y", "z"]
    assert (
        batch[0].tolist() == [0, 1, 2] and trees.device(batch) is None and trees.device((torch.zeros(1),)) is not None
    )


def test_every_row_several_times():
    tree = {"a": torch.arange(2), "b": (np.array(["x", "y"], dtype=object), None)}
    found = trees.repeat(tree, 2)
    assert (
        found["a"].tolist() == [0, 0, 1, 1] and found["b"][0].tolist() == ["x", "x", "y", "y"] and found["b"][1] is None
    )


def test_a_row_in_the_types_of_the_one_before():
    found = trees.like((np.int64(3), {"a": np.int64(1)}, np.zeros(2)), (2, {"a": np.int32(4)}, np.ones(2)))
    assert type(found[0]) is int and type(found[1]["a"]) is np.int32 and found[2].tolist() == [0, 0]
