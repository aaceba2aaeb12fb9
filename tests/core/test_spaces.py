"""The way in and out of every kind of space."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core.spaces import Field, finite, to_victim
from adv_wrappers.core.threat import fits
from adv_wrappers.errors import SpaceError, VictimError
from tests.core.helpers import chooser, linear, randn

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


@pytest.mark.parametrize("space", [*BOXES, *ACTIONS], ids=str)
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


DICT = spaces.Dict({
    "image": spaces.Box(0, 255, (2, 2), np.uint8), "a": spaces.Box(-1, 1, (2,), np.float32),
    "b": spaces.Box(-2, 2, (1, 2), np.float32), "go": spaces.Discrete(3), "stop": spaces.Discrete(2, start=5),
})  # fmt: skip


@pytest.mark.parametrize("space", BOXES, ids=str)
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


def test_joined_keys_lie_side_by_side():
    field = Field(DICT, ("b", "a"), "observation")
    assert field.shape == (4,) and field.low.tolist() == [-2, -2, -1, -1]
    value = {"a": np.array([1.0, 2.0], np.float32), "b": np.array([[3.0, 4.0]], np.float32)}
    assert field.take(value, False).tolist() == [[3.0, 4.0, 1.0, 2.0]]
    tensors = {key: torch.from_numpy(leaf)[None] for key, leaf in value.items()}
    assert field.take(tensors, True).tolist() == [[3.0, 4.0, 1.0, 2.0]]
    same(around(field, tensors, True), tensors)


@pytest.mark.parametrize(
    ("space", "at", "what", "words"),
    [
        (DICT, None, "observation", "at="),
        (DICT, "c", "observation", "'c'"),
        (DICT, (), "observation", "name keys"),
        (DICT, ("a", "image"), "observation", "different dtypes"),
        (DICT, "go", "observation", "expected a Box"),
        (BOXES[0], "a", "observation", "Dict"),
        (spaces.Discrete(3), None, "observation", "expected a Box"),
        (spaces.Text(3), None, "action", "cannot perturb"),
        (spaces.Tuple([BOXES[0]]), None, "action", "cannot perturb"),
        (spaces.Box(0, 1, (2,), np.bool_), None, "observation", "bool"),
    ],
)
def test_what_cannot_be_perturbed(space, at, what, words):
    with pytest.raises(SpaceError, match=words):
        Field(space, at, what)


@pytest.mark.parametrize("space", [s for s in [*BOXES, *ACTIONS] if np.dtype(s.dtype).kind in "iu"], ids=str)
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
