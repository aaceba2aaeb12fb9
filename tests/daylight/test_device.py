"""The torch backend, as a device runs it: no trip to the host (but of JPEG), no shape that depends on the data."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import daylight
from tests.attacks.helpers import NoTrips
from tests.daylight.helpers import force_torch, pictures

CALLS = {
    "brightness": lambda x, k: daylight.brightness(x, 1.7, 40, **k),
    "median 3": lambda x, k: daylight.median_blur(x, 3),
    "median 5": lambda x, k: daylight.median_blur(x, 5),
    "rotation": lambda x, k: daylight.rotate(x, 3, **k),
    "rotation, black, nearest": lambda x, k: daylight.rotate(x, 3, border="zero", interpolation="nearest", **k),
    "shift": lambda x, k: daylight.shift(x, 2, 1, **k),
    "shift, reflected": lambda x, k: daylight.shift(x, 2, 1, border="reflect", **k),
    "perspective": lambda x, k: daylight.perspective(x, 3, **k),
}


@pytest.mark.parametrize("kind", [torch.uint8, torch.float32])
@pytest.mark.parametrize("shape", [(4, 16, 17), (16, 17, 3)])
@pytest.mark.parametrize("name", list(CALLS))
def test_no_trips(monkeypatch, name, shape, kind):
    force_torch(monkeypatch)
    x = pictures(2, *shape)
    x = x if kind == torch.uint8 else x / 255
    limits = {} if kind == torch.uint8 else {"limits": (0.0, 1.0)}  # given: on the host the default is looked over
    first = CALLS[name](x, limits)  # what is computed once a parameter and device may be
    kept = x.clone()
    with NoTrips():
        again = CALLS[name](x, limits)
    assert torch.equal(first, again) and torch.equal(x, kept) and again.dtype == kind
