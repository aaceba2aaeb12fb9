"""The torch backend, as a device runs it: no trip to the host, no shape that depends on the data."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import daylight
from tests.attacks.test_cost import NoTrips
from tests.daylight.helpers import force_torch, pictures

CALLS = {
    "brightness": lambda x: daylight.brightness(x, 1.7, 40),
    "median 3": lambda x: daylight.median_blur(x, 3),
    "median 5": lambda x: daylight.median_blur(x, 5),
    "rotation": lambda x: daylight.rotate(x, 3),
    "rotation, black, nearest": lambda x: daylight.rotate(x, 3, border="zero", interpolation="nearest"),
    "shift": lambda x: daylight.shift(x, 2, 1),
    "shift, reflected": lambda x: daylight.shift(x, 2, 1, border="reflect"),
    "jpeg": lambda x: daylight.jpeg(x, 30),
    "perspective": lambda x: daylight.perspective(x, 3),
}


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(4, 16, 17), (16, 17, 3)])
@pytest.mark.parametrize("name", list(CALLS))
def test_no_trips(monkeypatch, name, shape, kind):
    force_torch(monkeypatch)
    x = pictures(2, *shape)
    x = x if kind == torch.uint8 else x / 255
    first = CALLS[name](x)  # what is computed once a parameter and device may be
    kept = x.clone()
    with NoTrips():
        again = CALLS[name](x)
    assert torch.equal(first, again) and torch.equal(x, kept) and again.dtype == kind
