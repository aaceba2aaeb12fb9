"""The page about imitated victims: what counts as transferred, and that it holds every figure."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def imitation():
    with result_script("imitation") as module:
        yield module


def rows(**returns):
    return {name: {"mean_return": value, "episodes": 2} for name, value in returns.items()}


@pytest.fixture
def data(imitation):
    case = imitation.CASES[0]
    white = {f"{attack} {eps:g}": 100.0 for attack in case.attacks for eps in case.eps}
    reached = dict.fromkeys(white, 300.0) | {"pgd 0.15": 301.0, "max-diff 0.1": 20.0}
    noise = {"none": 500.0, "noise 0.05": 500.0, "noise 0.1": 90.0, "noise 0.15": 500.0}
    done = {"agreement": 0.99, "attacked_agreement": 0.5, "cosine": 0.25, "processor_seconds": 7.0}
    return {
        "noise": rows(**noise),
        "white box": rows(none=500.0, **white),
        "all": {**done, "rows": rows(none=500.0, **reached)},
        "logits as trained": {"cosine": 1.0, "rows": rows(**white)},
    }


def test_half_of_the_white_boxs_cost_where_that_is_more_than_noises(imitation, data):
    found = imitation.verdicts(imitation.CASES[0], data, "all")
    assert [(name, ok) for name, _, ok in found] == [
        ("pgd at 0.05", True),
        ("pgd at 0.15", False),
        ("max-diff at 0.05", True),
        ("max-diff at 0.15", True),
    ]
    assert found[1][1] == pytest.approx(199 / 400)
    assert imitation.share(5.0, 5.0, 3.0) is None and imitation.share(500, 100, 20) == pytest.approx(1.2)
