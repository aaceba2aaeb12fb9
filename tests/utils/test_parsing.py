"""Durations in words."""

from __future__ import annotations

from adv_wrappers.utils.parsing import duration
from tests.every_case import every_case


@every_case(("seconds", "text"), [(0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")])
def test_a_duration(seconds, text):
    assert duration(seconds) == text
