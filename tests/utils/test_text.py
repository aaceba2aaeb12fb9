"""Durations in words."""

from __future__ import annotations

import pytest

from adv_wrappers.utils.text import duration, duration_between


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")]
)
def test_a_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(31, 31.3, "31 s"), (31, 95, "31 to 95 s"), (81, 141, "1 to 2 min"), (600, 9000, "0.2 to 2.5 h")],
)
def test_a_range_has_one_unit(low, high, text):
    assert duration_between(low, high) == text
