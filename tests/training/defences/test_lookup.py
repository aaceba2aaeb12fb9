"""Every robust loss that has a name can be made by it, and told apart in JSON."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("stable_baselines3")

from adv_wrappers.core.serialization import decode
from adv_wrappers.training.defences.lookup import POLICY_METHODS, Q_METHODS
from tests.every_case import every_case


@every_case("method", [*POLICY_METHODS.values(), *Q_METHODS.values()])
def test_a_method_survives_json(method):
    value = method()
    assert decode(json.loads(json.dumps(value.to_dict()))) == value
