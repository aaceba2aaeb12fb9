"""The transforms of the five games, by the paper's tables."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers.daylight import PROBABILITIES, SETTINGS, Daylight
from adv_wrappers.daylight.daylight import TRANSFORM_CLASSES, TRANSFORMS, transform_of
from adv_wrappers.errors import ValueRangeError
from tests.daylight.helpers import X, at_step
from tests.every_case import every_case


@every_case("game", SETTINGS)
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


def test_every_game_has_a_probability():
    assert set(PROBABILITIES) == set(SETTINGS) and all(0 < p <= 0.1 for p in PROBABILITIES.values())
