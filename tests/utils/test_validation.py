"""Annotations say what arguments may be, and doors hold everybody to it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_origin

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.training_schedules import LinearSchedule, Number
from adv_wrappers.errors import BudgetError, ValueRangeError
from adv_wrappers.threats import all_attacks  # noqa: F401 - whose classes are values
from adv_wrappers.utils import validation
from adv_wrappers.utils.validation import (
    Count,
    Expected,
    Finite,
    Limits,
    OpenShare,
    Positive,
    PositiveShare,
    Share,
    check_fields,
    checked,
)
from tests.every_case import every_case

if TYPE_CHECKING:
    from nowhere import Unknown

Scheduled = Annotated[Number, Limits(0, 1)]


@checked
def door(
    steps: Positive | None = None,
    share: Share = 0.5,
    kind: Literal["mean", "mode"] | None = None,
    whole: bool = False,
    sizes: Sequence[Positive] = (),
    ends: tuple[Finite, Finite] | None = None,
    best: Count | Mapping[str, Count] = 0,
    weight: Scheduled = 1.0,
    anything: Any = None,
    victim: Unknown | Positive = 0,
    plain: float = 0.0,
) -> dict[str, Any]:
    """What comes in."""
    return dict(locals())


class Box(dict[str, int]):
    """A dictionary of somebody's own."""


@every_case(
    ("given", "got"),
    [
        ({"steps": np.int64(3)}, 3),
        ({"steps": None}, None),
        ({"share": np.float32(0.5)}, 0.5),
        ({"share": 1}, 1.0),
        ({"kind": "mode"}, "mode"),
        ({"kind": None}, None),
        ({"whole": np.True_}, True),
        ({"sizes": [1, np.uint8(2)]}, (1, 2)),
        ({"sizes": np.array([4, 5])}, (4, 5)),
        ({"ends": [0, 1]}, (0.0, 1.0)),
        ({"best": {"pgd": np.int64(2)}}, {"pgd": 2}),
        ({"weight": LinearSchedule(0.0, 1.0)}, LinearSchedule(0.0, 1.0)),
    ],
)
def test_values_come_in_plain(given, got):
    [(name, _)] = given.items()
    found = door(**given)[name]
    assert found == got and type(found) is type(got)
    assert {type(one) for one in found} <= {int, float, str} if isinstance(found, (tuple, dict)) else True


@every_case(
    ("given", "said"),
    [
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"steps": True}, "steps must be an integer of at least 1, got True"),
        ({"steps": 3.0}, "steps must be an integer of at least 1, got 3.0"),
        ({"steps": "3"}, "steps must be an integer of at least 1, got '3'"),
        ({"share": math.nan}, "share must be a finite number from 0 to 1, got nan"),
        ({"share": 10**400}, "share must be a finite number from 0 to 1, got 1000"),
        ({"share": True}, "share must be a finite number from 0 to 1, got True"),
        ({"share": None}, "share must be a finite number from 0 to 1, got None"),
        ({"kind": "median"}, "kind must be 'mean' or 'mode', got 'median'"),
        ({"kind": ["mode"]}, "kind must be 'mean' or 'mode', got ['mode']"),
        ({"whole": 1}, "whole must be true or false, got 1"),
        ({"sizes": "12"}, "sizes must be a list, each an integer of at least 1, got '12'"),
        ({"sizes": 12}, "sizes must be a list, each an integer of at least 1, got 12"),
        ({"sizes": {1: 2}}, "sizes must be a list, each an integer of at least 1, got {1: 2}"),
        ({"sizes": (4, 0)}, "sizes must be a list, each an integer of at least 1, got (4, 0)"),
        ({"ends": (1,)}, "ends must be a list of 2, each a finite number, got (1,)"),
        ({"ends": (0, math.inf)}, "ends must be a list of 2, each a finite number, got (0, inf)"),
        (
            {"best": {"pgd": -1}},
            "best must be an integer of at least 0 or a dictionary, each an integer of at least 0, got {'pgd': -1}",
        ),
        ({"weight": 2}, "weight must be a finite number from 0 to 1 or a LinearSchedule, got 2"),
        (
            {"weight": LinearSchedule(0.0, 2.0)},
            "weight must be a finite number from 0 to 1 or a LinearSchedule, got Lin",
        ),
    ],
)
def test_others_are_refused_in_words(given, said):
    with pytest.raises(ValueRangeError, match=f"^{re.escape(said)}"):
        door(**given)
    with pytest.raises(ValueRangeError, match=f"^{re.escape(said)}"):
        door(*[inspect.signature(door).parameters[name].default for name in _before(*given)], *given.values())


def _before(name: str) -> Iterable[str]:
    names = [*inspect.signature(door).parameters]
    return names[: names.index(name)]


def test_what_declares_nothing_passes_as_it_is():
    things = [[1], Box(a=1), object(), iter([1]), "3", math.nan, True]
    for thing in things:
        assert door(anything=thing)["anything"] is thing is door(victim=thing)["victim"]
    assert door(plain=things[0])["plain"] is things[0]


def test_a_wrong_call_is_pythons_own_error():
    with pytest.raises(TypeError, match=r"door\(\) got an unexpected keyword argument 'size'"):
        door(size=3)
    assert pickle.loads(pickle.dumps(door)) is door and door.__doc__ == "What comes in."


@every_case(
    ("kind", "inside", "outside"),
    [
        (Share, (0, 1), (-1e-9, 1.1)),
        (PositiveShare, (1e-9, 1), (0, 1.1)),
        (OpenShare, (1e-9, 0.999), (0, 1)),
        (Annotated[int, Limits(None, 5)], (-(10**9), 5), (6, -math.inf)),
    ],
)
def test_ends(kind, inside, outside):
    for value in inside:
        assert Expected(kind).check("a", value) == value
    for value in outside:
        with pytest.raises(ValueRangeError, match="a must be"):
            Expected(kind).check("a", value)


def test_words_of_open_ends():
    assert str(Expected(OpenShare)) == "a finite number above 0 and below 1"
    assert str(Expected(Annotated[int, Limits(None, 5)])) == "an integer of at most 5"


def test_fields_of_a_dataclass_and_of_those_it_inherits():
    part = First(np.int64(2), np.float64(0.25))
    assert (type(part.count), type(part.share)) == (int, float) and part == First(2, 0.25)
    with pytest.raises(BudgetError, match="share must be a finite number from 0 to 1, got 2"):
        First(2, 2)
    with pytest.raises(BudgetError, match="count must be an integer of at least 1, got 0"):
        dataclasses.replace(part, count=0)


@dataclass(frozen=True)
class Base:
    count: Positive

    def __post_init__(self) -> None:
        check_fields(self, BudgetError)


@dataclass(frozen=True)
class First(Base):
    share: Share = 0.0


# those of the package

ROOT = Path(adv.__file__).parent
ALIASES = {name for name, each in vars(validation).items() if get_origin(each) in (Annotated, Union, UnionType)}
WORDS = re.compile(rf"\b({'|'.join(sorted(ALIASES))}|Literal)\b")


def declared() -> Iterable[tuple[str, str, str]]:
    """Module, function and argument of everything in the package that is checked by a decorator."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "@checked" not in source:
            continue
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == "checked" for one in node.decorator_list):
                for one in (*node.args.args, *node.args.kwonlyargs):
                    if one.annotation is not None and WORDS.search(ast.unparse(one.annotation)):
                        yield module, node.name, one.arg


def test_every_annotation_that_declares_something_is_read():
    pytest.importorskip("stable_baselines3")
    found = [*declared()]
    assert len(found) > 100
    for module, name, argument in found:
        loaded = vars(importlib.import_module(module))
        owners = [loaded[name]] if name in loaded else _methods(loaded, name)
        assert any(argument in validation.expected_arguments(each) for each in owners), (module, name, argument)


def _methods(loaded: Mapping[str, Any], name: str) -> list[Callable[..., Any]]:
    methods = [vars(each).get(name) for each in loaded.values() if isinstance(each, type)]
    return [each for each in methods if inspect.isfunction(each)]


def test_every_field_of_a_value_that_declares_something_is_read():
    read = 0
    for kind in Value.kinds.values():
        if not dataclasses.is_dataclass(kind) or not kind.__module__.startswith("adv_wrappers."):
            continue
        for field in dataclasses.fields(kind):
            if field.init and WORDS.search(str(field.type)):
                assert field.name in validation.expected_fields(kind), (kind, field.name)
                read += 1
    assert read > 60


def test_an_unknown_argument_is_told_of_alone() -> None:
    with pytest.raises(TypeError, match="stpes") as error:
        door(stpes=1)  # type: ignore[call-arg]
    assert error.value.__context__ is None
