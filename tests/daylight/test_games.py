"""The transforms of the five games, by the paper's tables."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.daylight import PROBABILITIES, SETTINGS, Daylight
from adv_wrappers.daylight.games import (
    FRACTIONS,
    GENERAL_IMPACTS,
    IMPACTS,
    PERCEPTUAL,
    SCORES,
    TIMED_IMPACTS,
    TRANSFORM_CLASSES,
    TRANSFORMS,
    transform_of,
)
from adv_wrappers.errors import ValueRangeError
from tests.daylight.helpers import X, at_step
from tests.every_case import every_case


@pytest.mark.parametrize("game", SETTINGS)
def test_every_transform_of_every_game(game):
    assert tuple(SETTINGS[game]) == TRANSFORMS == tuple(TRANSFORM_CLASSES)
    for name, settings in SETTINGS[game].items():
        how = Daylight(game.upper(), name)
        assert how.game == game
        plain = TRANSFORM_CLASSES[name](**settings)
        assert torch.equal(how(X, at_step(1)), plain(X, at_step(1)))
        assert {key: getattr(transform_of(game, name), key) for key in settings} == settings


def test_the_layout_is_passed_on():
    x = X.movedim(-1, 1)
    for name in TRANSFORMS:
        y = Daylight("Pong", name, layout="FHW")(x, at_step(1))
        assert torch.equal(y, TRANSFORM_CLASSES[name](**SETTINGS["Pong"][name], layout="FHW")(x, at_step(1)))


@every_case("wrong", [
    {"game": "Chess"}, {"game": None}, {"transform": "turn"}, {"transform": None}, {"per": "day"},
])  # fmt: skip
def test_wrong_words(wrong):
    with pytest.raises(ValueRangeError, match=f"^{next(iter(wrong))} must be"):
        Daylight(**{"game": "Pong", "transform": "rotation", **wrong})


def test_the_tables_are_whole():
    games, columns = set(SETTINGS), {"carlini-wagner", *TRANSFORMS}
    assert set(PROBABILITIES) == games and all(0 < p <= 0.1 for p in PROBABILITIES.values())
    for table in (IMPACTS, PERCEPTUAL, SCORES, GENERAL_IMPACTS, TIMED_IMPACTS, FRACTIONS):
        assert set(table) == games and all(set(row) == columns for row in table.values())
    for table in (IMPACTS, PERCEPTUAL, GENERAL_IMPACTS, TIMED_IMPACTS, FRACTIONS):
        assert all(0 < value <= 1 for row in table.values() for value in row.values())
    for game, row in FRACTIONS.items():  # observations are perturbed as often as the probability says
        assert all(abs(value / PROBABILITIES[game] - 1) < 0.15 for value in row.values())
