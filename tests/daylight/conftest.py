"""The two backends: OpenCV, and torch where it would not be taken on the host."""

from __future__ import annotations

import pytest

from tests.daylight.helpers import force_torch


@pytest.fixture(params=["opencv", "torch"])
def backend(request, monkeypatch):
    if request.param == "torch":
        force_torch(monkeypatch)
    return request.param
