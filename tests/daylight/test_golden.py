"""Both backends against recorded results of OpenCV 4.12, of which no bit may differ (see golden/make.py)."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from adv_wrappers import daylight
from tests.daylight.golden import make

HERE = Path(make.__file__).parent
GOLDEN = json.loads((HERE / "golden.json").read_text(encoding="utf-8"))
FUNCTIONS = {
    "brightness": daylight.brightness, "median-blur": daylight.median_blur, "rotation": daylight.rotate,
    "shift": daylight.shift, "jpeg": daylight.jpeg, "perspective": daylight.perspective,
}  # fmt: skip

with np.load(HERE / "golden.npz") as file:
    KEPT = dict(file)

batch = lru_cache(maxsize=None)(make.pictures)


def ours(transform, size, parameters):
    if transform != "brightness":
        parameters = {**parameters, "layout": "HWC" if "subsampling" in parameters else "HWF"}
    return FUNCTIONS[transform](torch.from_numpy(batch(*size)), **parameters).numpy()


def compare(transform, every=1):
    wrong, count = [], 0
    for case in [case for case in make.cases() if case[0] == transform][::every]:
        count += 1
        name, y = make.name_of(case), ours(*case)
        assert y.shape == (3, *case[1]) and y.dtype == np.uint8, name
        if make.digest(y) != GOLDEN["cases"][name]:
            wrong.append(name + (f" ({(y != KEPT[name]).sum()} of {y.size} values)" if name in KEPT else ""))
        elif name in KEPT:
            np.testing.assert_array_equal(y, KEPT[name], name)
    assert count, transform
    assert not wrong, f"{len(wrong)} of {count} results differ from OpenCV {GOLDEN['opencv']}: {'; '.join(wrong[:20])}"


@pytest.mark.parametrize("transform", sorted(set(FUNCTIONS) - {"shift"}))
def test_equal_to_opencv_4_12(transform, backend):
    # The same code is compared with OpenCV itself, where it is. Neither number divides that of borders and ways to
    # interpolate, or of kernels: all of them have their turn.
    compare(transform, 11 if backend == "opencv" else 13)


def test_shift_is_equal_to_opencv_4_12():
    compare("shift")


def test_the_inputs_are_those_of_the_recording():
    sizes = {size for _, size, _ in make.cases()}
    assert {"x".join(map(str, size)): make.digest(batch(*size)) for size in sizes} == GOLDEN["inputs"]


def test_every_case_is_recorded_and_none_else():
    assert {make.name_of(case) for case in make.cases()} == set(GOLDEN["cases"])
    assert set(KEPT) <= set(GOLDEN["cases"])
    assert {case[0] for case in make.cases()} == set(FUNCTIONS)


def test_the_recording_was_made_by_the_script_as_it_is():
    assert hashlib.sha256(Path(make.__file__).read_bytes()).hexdigest() == GOLDEN["make"]
    assert GOLDEN["opencv"] == make.VERSION
