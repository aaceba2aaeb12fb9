"""Names of physical parameters, and where they stand."""

from __future__ import annotations

import numpy as np
import pytest

from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.errors import SpaceError
from tests.every_case import every_case

SPACE = ParameterSpace([
    Parameter("mass.torso", 0.01, 100.0), Parameter("mass.foot", 0.01, 100.0), Parameter("gravity", 0.0, 100.0),
    Parameter("force.foot", -10.0, 10.0, 0.0, 3),
])  # fmt: skip


@every_case(
    ("at", "places"),
    [
        ("mass", [0, 1]),
        ("mass.foot", [1]),
        ("force", [3, 4, 5]),
        (("gravity", "mass.torso"), [2, 0]),
        (("force.foot", "mass"), [3, 4, 5, 0, 1]),
    ],
)
def test_a_name_or_what_is_before_its_dot(at, places):
    assert SPACE.places(at).tolist() == places
    box = SPACE.box(SPACE.places(at))
    assert box.low.tolist() == SPACE.low[places].tolist() and box.dtype == np.float64


@every_case(
    ("at", "words"),
    [
        (None, r"which parameters it changes, at='mass': it has mass \(mass.torso, mass.foot\); gravity; force"),
        ("weight", r"at='weight' must name parameters of the dynamics: it has mass \(mass.torso"),
        ("mass.hand", "must name parameters"),
        (("mass", "mass.foot"), "names a parameter twice"),
    ],
)
def test_other_names_are_refused_and_the_known_ones_listed(at, words):
    with pytest.raises(SpaceError, match=words):
        SPACE.places(at)


def test_text_of_what_is_changed():
    values = SPACE.nominal.copy()
    assert SPACE.text_of(values) == ""
    values[[1, 4]] = 1.5, -2.0
    assert SPACE.text_of(values) == "mass.foot=1.5, force.foot[1]=-2"
