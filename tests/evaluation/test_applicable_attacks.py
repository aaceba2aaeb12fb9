"""What cannot search an agent's episodes says so before anything is played."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.evaluation.applicable_attacks import why_no_beam
from tests.studies.report.planted import agent_for, showing

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize("space", [spaces.Dict(cart=BOX, pole=BOX), spaces.Tuple([BOX, BOX]), spaces.Dict(whole=BOX)])
def test_no_beam_where_an_agent_sees_no_box(space: spaces.Space[Any]) -> None:
    environment = adv.Environment(lambda: showing(space))
    reason = why_no_beam(agent_for(space), environment, adv.Linf(0.1))
    assert reason == f"a beam search takes one Box, and this agent sees a {type(space).__name__}"
