"""One thread for every test, and the rigs as fixtures."""

from __future__ import annotations

import pytest
import torch

from tests.rigs import RIGS

torch.set_num_threads(1)


@pytest.fixture(params=list(RIGS))
def rig(request):
    return RIGS[request.param]
