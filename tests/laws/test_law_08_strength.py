"""Law 8: an attack reaches more of its own objective than noise of the same budget on the same states."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from tests.laws.checks import cases, check_strength, fitting


def _aims(kind) -> bool:
    return hasattr(kind, "objective") or hasattr(kind, "score")


def _aiming():
    return [c for c in cases(rigs=1) if _aims(adv.presets[c.preset].kind)]


@pytest.mark.parametrize("case", _aiming(), ids=str)
def test_stronger_than_noise(case):
    check_strength(case)


@pytest.mark.parametrize("case", [c for c in _aiming() if "l2" in fitting(c)][::2], ids=str)
def test_stronger_than_noise_in_l2(case):
    check_strength(case, "l2")


@pytest.mark.parametrize("case", [c for c in _aiming() if "sparse" in fitting(c)][1::2], ids=str)
def test_stronger_than_noise_in_few_features(case):
    check_strength(case, "sparse")
