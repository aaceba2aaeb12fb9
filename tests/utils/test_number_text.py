"""Numbers, intervals and durations in words."""

from __future__ import annotations

from adv_wrappers.utils.number_text import duration, interval_text, number_text, share_text
from tests.every_case import every_case


@every_case(("seconds", "text"), [(0.2, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")])
def test_a_duration(seconds, text):
    assert duration(seconds) == text


def test_numbers_of_a_table() -> None:
    assert [number_text(v) for v in (None, 3614.52, 0.07512, -21.0)] == ["-", "3614.5", "0.0751", "-21"]
    assert (interval_text(-1.25, 100.0, ".."), share_text(0.5), share_text(None)) == ("-1.25 .. 100.0", "50%", "-")
