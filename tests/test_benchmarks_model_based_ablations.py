"""The script of the model-based paper's ablations: its page, its figure, and the rows that it takes from the tables."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("model_based_ablations") as module:
        yield module


def test_rows_are_those_that_the_paper_varies(script):
    assert (
        [row.name for row in (script.STAND, script.WALK, script.ACTIONS)]
        == [*script.LENGTHS]
        == [
            "walker-stand, observations",
            "walker-walk, observations",
            "cartpole-balance, actions",
        ]
    )
    assert set(script.PAPER[script.WALK.name]) == set(script.LENGTHS[script.WALK.name])
