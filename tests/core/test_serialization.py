"""Values and their JSON form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.serialization import Value, construct, decode, encode
from adv_wrappers.errors import ThreatError, VictimError
from tests.core.helpers import chooser, linear, randn
from tests.every_case import every_case


@dataclass(frozen=True)
class Sample(Value):
    name: ClassVar[str] = "test-sample"
    a: int
    b: tuple[float, ...] = (1.0,)
    c: Any = None


def test_only_what_differs_from_the_default_is_written():
    assert Sample(2).to_dict() == {"type": "test-sample", "a": 2}
    assert Sample(2, (1.0,), None).to_dict() == {"type": "test-sample", "a": 2}
    assert Sample(2, (1.0, 2.0)).to_dict() == {"type": "test-sample", "a": 2, "b": [1.0, 2.0]}


@every_case(
    "value", [Sample(1), Sample(1, (2.0, 3.0)), Sample(1, c=Sample(2, c=Linf(0.5, (1.0, 0.0)))), Sample(3, c="text")]
)
def test_round_trip_through_json(value):
    assert decode(json.loads(json.dumps(value.to_dict()))) == value


def test_unknown_types_and_arguments_are_named():
    with pytest.raises(ThreatError, match="nothing-known"):
        decode({"type": "nothing-known"})
    with pytest.raises(ThreatError, match="not d"):
        decode({"type": "test-sample", "a": 1, "d": 2})
    with pytest.raises(ThreatError, match="needs a, got no arguments"):
        decode({"type": "test-sample"})
    with pytest.raises(ThreatError, match="eps"):
        construct(Linf)


def test_what_has_no_form_says_so():
    for thing in (lambda x: x, torch.zeros(2), {1, 2}):
        with pytest.raises(ThreatError, match="no JSON form"):
            encode(thing)


def test_a_name_is_taken_once():
    with pytest.raises(ThreatError, match="taken"):
        type("Other", (Value,), {"name": "test-sample"})
    assert Value.kinds["test-sample"] is Sample
    type("Nameless", (Sample,), {})  # without a name of its own it registers nothing
    assert Value.kinds["test-sample"] is Sample


def test_victims_are_written_as_reference_and_hash():
    victim = chooser(linear(randn(3, 4)), ref="test:victim")
    data = json.loads(json.dumps(Sample(1, c=victim).to_dict()))
    known = {"sha256": victim.fingerprint(), "structure": victim.structure()}
    assert data["c"] == {"victim": "test:victim", **known, "select": "mode"}
    assert decode(data, {"test:victim": victim}).c is victim
    assert decode(data, {victim.fingerprint(): victim}).c is victim
    assert decode(data, lambda ref: victim if ref == "test:victim" else None).c is victim


def test_changed_weights_and_missing_victims_raise():
    old, new = chooser(linear(randn(3, 4)), ref="test:victim"), chooser(linear(randn(3, 4, seed=1)), ref="test:victim")
    data = Sample(1, c=old).to_dict()
    with pytest.raises(VictimError, match="changed"):
        decode(data, {"test:victim": new})
    with pytest.raises(VictimError, match="from_dict takes victims=load_victim"):
        decode(data)
    nameless = Sample(1, c=chooser(linear(randn(3, 4)))).to_dict()
    with pytest.raises(VictimError, match="no victim"):
        decode(nameless, lambda ref: new)


@every_case("value", [np.zeros(2), torch.zeros(2), b"x", {1}, 1j, range(2), [np.zeros(2)], {"victim": np.zeros(2)}])
def test_values_that_json_cannot_hold(value):
    for field in ("on", "how", "within", "at"):
        threat = {"type": "threat", "on": "observation", "how": {"type": "noise"}, "within": {"type": "linf", "eps": 1}}
        with pytest.raises(ThreatError, match="values that JSON can hold"):
            decode({**threat, field: value})


def test_numbers_of_numpy_are_numbers():
    for number in (np.float32(0.5), np.float64(0.5)):
        assert decode({"type": "linf", "eps": number}) == Linf(0.5)
