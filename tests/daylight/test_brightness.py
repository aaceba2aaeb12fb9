"""Brightness: equal to OpenCV called here where it folds, to exact arithmetic where it clips."""

from __future__ import annotations

import math
from fractions import Fraction

import cv2
import numpy as np
import pytest
import torch

from adv_wrappers.daylight import Brightness, brightness
from adv_wrappers.daylight.brightness import table
from adv_wrappers.daylight.daylight import SETTINGS
from adv_wrappers.errors import SpaceError, ValueRangeError
from tests.every_case import every_case

GREYS = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
PAPER = [tuple(games["brightness"].values()) for games in SETTINGS.values()]


def drawn(count: int) -> list[tuple[float, float]]:
    """Factors and offsets of all magnitudes, float32."""
    rng = np.random.default_rng(0)
    alpha = rng.choice([-1, 1], count) * 2 ** rng.uniform(-9, 5, count)
    beta = rng.normal(0, 1, count) * rng.choice([0.5, 20, 300, 5000], count)
    return [(float(a), float(b)) for a, b in zip(alpha.astype("f4"), beta.astype("f4"), strict=True)]


@pytest.mark.usefixtures("backend")
def test_abs_is_convert_scale_abs():
    halves = [(0.5, 0.0), (0.5, 0.5), (1.5, -0.5), (-0.5, 0.25), (0.25, 0.125), (1 / 3, 1 / 6), (0.0, 2.5), (0.0, -3.5)]
    for alpha, beta in [*PAPER, *halves, *drawn(400)]:
        expected = cv2.convertScaleAbs(GREYS[0].numpy(), alpha=alpha, beta=beta)
        ours = brightness(GREYS, alpha, beta, rule="abs")[0].numpy()
        np.testing.assert_array_equal(ours, expected, f"{alpha} {beta}")


@pytest.mark.usefixtures("backend")
def test_clip_is_exact_arithmetic_rounded_once():
    for alpha, beta in [*PAPER, (0.5, 0), (0.5, 0.5), (-1, 255), (0.1, 0.05), *drawn(40)]:
        a, b = Fraction(float(np.float32(alpha))), Fraction(float(np.float32(beta)))
        fused = [float(np.float32(float(a * s + b))) for s in range(256)]
        expected = [min(255, max(0, round(value))) for value in fused]  # round() is half to even
        assert brightness(GREYS, alpha, beta).flatten().tolist() == expected, (alpha, beta)


def test_the_rules_differ_where_values_are_negative():
    clip, fold = table(1.0, -50.0, "clip"), table(1.0, -50.0, "abs")
    assert clip[10] == 0 and fold[10] == 40
    assert np.array_equal(clip[50:], fold[50:])


def test_no_change_and_a_negative():
    assert torch.equal(brightness(GREYS, 1, 0), GREYS)
    assert torch.equal(brightness(GREYS, -1, 255), 255 - GREYS)


@every_case("rule", ["clip", "abs"])
@every_case("limits", [None, (-1.0, 1.0), (0.0, 255.0), (5.0, 6.0)])
def test_floats_are_not_rounded(rule, limits):
    low, high = limits or (0.0, 1.0)
    unit = (high - low) / 255
    x = GREYS.double() * unit + low
    for alpha, beta in PAPER:
        y = brightness(x, alpha, beta, rule=rule, limits=limits)
        value = alpha * GREYS.double() + beta
        expected = (value.abs() if rule == "abs" else value).clamp(0, 255) * unit + low
        torch.testing.assert_close(y, expected)
        assert y.min() >= low and y.max() <= high
        levels = (brightness(GREYS, alpha, beta, rule=rule).double() * unit + low - y).abs() / unit
        assert levels.max() <= 0.5 + 1e-4


def test_floats_keep_their_dtype():
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert brightness(torch.full((1, 1, 2), 0.25, dtype=dtype), 2.0, 0).tolist() == [[[0.5, 0.5]]]
        assert brightness(torch.zeros(1, 2, 2, dtype=dtype), 2.0, 1).dtype == dtype


@every_case("wrong", [
    {"alpha": math.nan}, {"alpha": math.inf}, {"alpha": "1"}, {"alpha": True}, {"alpha": 1e39}, {"beta": -math.inf},
    {"beta": None}, {"beta": -1e300}, {"rule": "fold"}, {"rule": None},
])  # fmt: skip
def test_wrong_parameters(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        brightness(GREYS, **{"alpha": 1, "beta": 0, **wrong})
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        Brightness(**wrong)


def test_wrong_images():
    with pytest.raises(SpaceError, match="uint8 or float"):
        brightness(GREYS.int(), 1, 0)
    with pytest.raises(ValueRangeError, match="limits"):
        brightness(GREYS, 1, 0, limits=(0, 1))


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("rule", ["clip", "abs"])
def test_pictures_of_any_size_are_looked_up_in_the_table(rule):
    noise = torch.from_numpy(np.random.default_rng(0).integers(0, 256, 150_001, np.uint8))
    for alpha, beta in [
        (1.7, 40.0),
        (2.4, -275.0),
        (-2.4, 275.0),
        (0.0, -9.0),
        (0.0, 9.0),
        (1e30, 1e30),
        (-1e30, 1e30),
    ]:
        levels = torch.from_numpy(table(alpha, beta, rule))
        for size in (1, 15, 64, 255, 256, 257, 33_000, 150_001):
            x = noise[:size].view(1, 1, size)
            assert torch.equal(brightness(x, alpha, beta, rule=rule), levels[x.long()]), (alpha, beta, size)
