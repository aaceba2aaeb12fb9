"""The way in and out of every kind of space."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from adv_wrappers.core.spaces import Field, finite, leaf_at, to_victim
from adv_wrappers.core.threat import fits
from adv_wrappers.errors import SpaceError, VictimError
from tests.core.helpers import chooser, linear, randn
from tests.every_case import every_case

BOXES = [
    spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Box(-1, 1, (3,), np.float16), spaces.Box(0, 255, (4, 4, 1), np.uint8), spaces.Box(-5, 5, (2,), np.int64),
    spaces.Box(-1, 1, (), np.float32),
]  # fmt: skip
ACTIONS = [
    spaces.Discrete(4), spaces.Discrete(4, start=-2), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3),
    spaces.MultiDiscrete([2, 3], start=[1, 5]),
]  # fmt: skip


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, tuple):
        assert len(a) == len(b)
        for one, two in zip(a, b, strict=True):
            same(one, two)
    elif isinstance(a, (np.ndarray, np.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    else:
        assert a == b


def around(field: Field, value, batched: bool):
    """In, through the exact dtype, and out again."""
    part = field.take(value, batched)
    return field.give(value, field.native(field.exactly(part), part), batched)


@every_case("space", [*BOXES, *ACTIONS])
def test_one_row_comes_out_as_it_went_in(space):
    field = Field(space, None, "action")
    space.seed(0)
    value = space.sample()
    part = field.take(value, False)
    assert part.shape == (1, *field.shape) and field.exactly(part).dtype == field.exact
    same(around(field, value, False), value)


@pytest.mark.parametrize("space", BOXES, ids=str)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_batches_come_out_as_they_went_in(space, kind):
    field = Field(space, None, "observation")
    space.seed(0)
    value = np.stack([space.sample() for _ in range(3)])
    value = torch.from_numpy(value) if kind == "torch" else value
    exact = field.exactly(value)
    same(around(field, value, True), value)
    before = value.clone() if kind == "torch" else value.copy()
    exact.add_(1)
    same(value, before)  # the exact tensor is fresh


@pytest.mark.parametrize("value", [2, np.int64(2), np.asarray(2)], ids=lambda v: type(v).__name__)
def test_integers_keep_their_python_type(value):
    same(around(Field(spaces.Discrete(4), None, "action"), value, False), value)


DEEP = spaces.Dict({
    "box": spaces.Box(-1, 1, (2,), np.float32), "a/b": spaces.Discrete(2),
    "a": spaces.Dict({
        "b": spaces.Discrete(3), "c": spaces.Tuple([spaces.Text(3), spaces.Box(-1, 1, (2,), np.float32)]),
    }),
})  # fmt: skip
TUPLE = spaces.Tuple(
    [spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3), spaces.Text(3), spaces.Discrete(2, start=5)]
)
DICT = spaces.Dict({
    "image": spaces.Box(0, 255, (2, 2), np.uint8), "a": spaces.Box(-1, 1, (2,), np.float32),
    "b": spaces.Box(-2, 2, (1, 2), np.float32), "go": spaces.Discrete(3), "stop": spaces.Discrete(2, start=5),
})  # fmt: skip


class OtherArray:
    """An array of another library, as far as the array API standard has to be kept."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __array_namespace__(self):
        return self

    @staticmethod
    def asarray(values):
        return OtherArray(values)


@every_case("at", [None, "a"])
def test_arrays_of_other_libraries_stay_what_they_are(at):
    space = spaces.Box(-1, 1, (3,), np.float32)
    value = OtherArray(np.float32([0.25, 0.5, 1]))
    whole, inside = (space, value) if at is None else (spaces.Dict(a=space), {"a": value})
    out = around(Field(whole, at, "observation"), inside, False)
    out = out if at is None else out["a"]
    assert type(out) is OtherArray
    same(out.values, value.values)


@every_case("space", BOXES)
def test_a_copied_space_has_the_dtype_of_arrays(space):
    assert Field(copy.deepcopy(space), None, "observation").dtype is np.zeros(1, space.dtype).dtype


@pytest.mark.parametrize("at", ["a", "image", ("a", "b"), ("b", "a"), "go", ("go", "stop")])
@pytest.mark.parametrize("batched", [False, True])
def test_keys_of_a_dict(at, batched):
    field = Field(DICT, at, "action")
    DICT.seed(0)
    rows = [DICT.sample() for _ in range(3)]
    value = {key: np.stack([np.asarray(row[key]) for row in rows]) for key in DICT.spaces} if batched else rows[0]
    same(around(field, value, batched), value)
    part = field.take(value, batched)
    changed = field.give(value, part + 1, batched)
    for key in DICT.spaces:
        touched = key in ((at,) if isinstance(at, str) else at)
        assert np.array_equal(changed[key], value[key]) != touched


@every_case(
    ("space", "at", "touched"),
    [
        (TUPLE, 0, {(0,)}), (TUPLE, 1, {(1,)}), (TUPLE, "3", {(3,)}), (TUPLE, (1, 3), {(1,), (3,)}),
        (TUPLE, (0,), {(0,)}),
        (DEEP, "box", {("box",)}), (DEEP, "a/b", {("a/b",)}), (DEEP, "a/c/1", {("a", "c", 1)}),
        (DEEP, ("a/c/1", "box"), {("a", "c", 1), ("box",)}),
    ],
)  # fmt: skip
def test_leaves_of_tuples_and_of_spaces_within_spaces(space, at, touched):
    """A key that a Dict has wins over a path; texts and other leaves stay what they are."""
    field = Field(space, at, "observation")
    assert set(field.paths) == touched
    space.seed(0)
    rows = [space.sample() for _ in range(3)]
    envs = concatenate(space, rows, create_empty_array(space, 3))
    for value, batched in ((rows[0], False), (envs, True)):
        same(around(field, value, batched), value)
        changed = field.give(value, field.take(value, batched) + 1, batched)
        assert type(changed) is type(value)
        for path in _paths(space):
            equal = np.array_equal(leaf_at(changed, path), leaf_at(value, path))
            assert equal != (path in touched), path


def _paths(space, before=()):
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, leaf in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from _paths(leaf, (*before, key))
    else:
        yield before


def test_observations_may_be_choices():
    for space, counts in (
        (spaces.Discrete(4, start=-2), (4,)), (spaces.MultiDiscrete([[2, 3], [4, 5]]), (2, 3, 4, 5)),
        (spaces.MultiBinary((2, 2)), (2,) * 4),
    ):  # fmt: skip
        field = Field(space, None, "observation")
        assert field.discrete and field.grid and field.choices == counts and field.shape == space.shape
    assert Field(BOXES[4], None, "observation").choices is None
    assert Field(DICT, ("go", "stop"), "observation").choices == (3, 2)


def test_joined_keys_lie_side_by_side():
    field = Field(DICT, ("b", "a"), "observation")
    assert field.shape == (4,) and field.low.tolist() == [-2, -2, -1, -1]
    value = {"a": np.array([1.0, 2.0], np.float32), "b": np.array([[3.0, 4.0]], np.float32)}
    assert field.take(value, False).tolist() == [[3.0, 4.0, 1.0, 2.0]]
    tensors = {key: torch.from_numpy(leaf)[None] for key, leaf in value.items()}
    assert field.take(tensors, True).tolist() == [[3.0, 4.0, 1.0, 2.0]]
    same(around(field, tensors, True), tensors)


@every_case(
    ("space", "at", "what", "words"),
    [
        (DICT, None, "observation", "at="),
        (DICT, "c", "observation", "'c'"),
        (DICT, (), "observation", "name keys"),
        (DICT, ("a", "image"), "observation", "different dtypes"),
        (BOXES[0], "a", "observation", "Dict or Tuple"),
        (DEEP, "a", "observation", "the key 'a' .* pick a key, at='a/b'"),
        (DEEP, "a/c", "observation", "pick a key, at='a/c/1' .it has a/c/0, a/c/1"),
        (DEEP, "a/c/0", "observation", "cannot perturb the key 'a/c/0'"),
        (DEEP, "a/d", "observation", "must name keys .* it has a, a/b, box"),
        (DEEP, "a/c/2", "observation", "must name keys"),
        (TUPLE, None, "observation", "pick a key, at=0 .it has 0, 1, 2, 3"),
        (TUPLE, 4, "observation", "at=4 must name keys .* it has 0, 1, 2, 3"),
        (TUPLE, -1, "observation", "at=-1 must name keys"),
        (TUPLE, True, "observation", "at must be a key"),
        (TUPLE, (0, 1), "observation", "different dtypes"),
        (TUPLE, (1, 1), "observation", "different keys"),
        (TUPLE, (1, "1"), "observation", "different keys"),
        (TUPLE, 2, "observation", "cannot perturb the key 2"),
        (spaces.Text(3), None, "action", "cannot perturb"),
        (spaces.Tuple([BOXES[0]]), None, "action", "cannot perturb .* pick a key, at=0"),
        (spaces.Dict(x=spaces.Dict(y=BOXES[0])), None, "action", "pick a key, at='x/y' .it has x/y"),
        (spaces.OneOf([BOXES[0]]), None, "observation", "FlattenObservation"),
        (spaces.Sequence(BOXES[0]), None, "observation", "nothing in Gymnasium"),
        (spaces.Box(0, 1, (2,), np.bool_), None, "observation", "bool"),
    ],
)
def test_what_cannot_be_perturbed(space, at, what, words):
    with pytest.raises(SpaceError, match=words):
        Field(space, at, what)


@every_case("space", [s for s in [*BOXES, *ACTIONS] if np.dtype(s.dtype).kind in "iu"])
def test_the_exact_dtype_holds_every_integer(space):
    field = Field(space, None, "action")
    assert field.grid
    for bound in (field.low, field.high):
        part = np.atleast_1d(np.asarray(bound, space.dtype))
        assert np.array_equal(field.native(field.exactly(part), part), part)


def test_starts_are_part_of_the_bounds():
    for space, low, high in ((ACTIONS[1], -2, 1), (ACTIONS[4], [1, 5], [2, 7])):
        field = Field(space, None, "action")
        assert field.low.tolist() == low and field.high.tolist() == high and field.discrete and field.bounded
    assert not Field(BOXES[1], None, "observation").bounded


def test_choices_reach_a_victim_as_integers():
    """Whatever an attack computes in; those of a Tuple as well, and texts as arrays of objects."""
    cpu = torch.device("cpu")
    for space, kind in ((spaces.Discrete(4), torch.int64), (spaces.MultiBinary(4), torch.int8)):
        for value in (torch.full(space.shape or (1,), 1.0), np.ones(space.shape or (1,), np.int32)):
            seen = to_victim(value, torch.float32, cpu, True, space=space)
            assert seen.dtype == kind and bool((seen == 1).all())
    obs = (np.zeros((2, 2), np.float32), np.array([1, 2]), ("a", "bc"), np.array([5, 6]))
    box, one, text, two = to_victim(obs, torch.float64, cpu, True, space=TUPLE)
    assert box.dtype == torch.float64 and one.dtype == two.dtype == torch.int64 and text.tolist() == ["a", "bc"]
    box, one, text, two = to_victim((obs[0][0], 1, "a", 5), torch.float64, cpu, False, space=TUPLE)
    assert box.shape == (1, 2) and one.tolist() == [1] and text.tolist() == ["a"] and two.tolist() == [5]


def test_to_victim():
    obs = {"a": np.zeros((2, 3), np.uint8), "b": {"c": torch.ones(2)}}
    seen = to_victim(obs, torch.float64, torch.device("cpu"), True)
    assert seen["a"].dtype == seen["b"]["c"].dtype == torch.float64 and seen["a"].shape == (2, 3)
    assert to_victim(np.zeros(3), torch.float32, torch.device("cpu"), False).shape == (1, 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_finite(bad):
    assert finite(torch.full((2,), 3e38)) and not finite(torch.tensor([1.0, bad]))  # a sum that overflows is no proof


def test_fits():
    victim = chooser(linear(randn(3, 4)))
    fits(victim, spaces.Box(0, 1, (4,), np.float32), spaces.Discrete(3, start=1))
    for observation, action in (
        (spaces.Box(0, 1, (5,)), spaces.Discrete(3)),
        (spaces.Box(0, 1, (4,)), spaces.Discrete(2)),
    ):
        with pytest.raises(VictimError, match="this environment"):
            fits(victim, observation, action)
