"""Agents that the tests of evaluations share."""

from __future__ import annotations

import pytest

from adv_wrappers.victims import Victim
from tests.evaluation.agents import balancing


@pytest.fixture
def victim() -> Victim:
    return balancing("q")


@pytest.fixture
def sampler() -> Victim:
    return balancing("logits", "sample", 1.0)
