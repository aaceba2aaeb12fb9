"""Daylight by game: the transform with the daylight paper's own parameters (tables 1 to 6)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.context import Context
from adv_wrappers.daylight.base_transform import Transform
from adv_wrappers.daylight.blur import MedianBlur
from adv_wrappers.daylight.brightness import Brightness
from adv_wrappers.daylight.jpeg import JPEG
from adv_wrappers.daylight.observations_as_images import choice
from adv_wrappers.daylight.paper_parameter_tables import SETTINGS
from adv_wrappers.daylight.perspective import Perspective
from adv_wrappers.daylight.rotation import Rotation
from adv_wrappers.daylight.shift import Shift
from adv_wrappers.utils.frozen_dataclasses import set_fields

TRANSFORM_CLASSES: dict[str, type[Transform]] = {
    kind.name: kind for kind in (Brightness, MedianBlur, Rotation, Shift, JPEG, Perspective)
}


def game_of(text: object) -> str:
    """The paper's name of a game, whatever the case of its letters; raises for a game that the paper does not have."""
    known = {game.lower(): game for game in SETTINGS}
    return choice("game", known.get(str(text).lower(), text), tuple(SETTINGS))


@functools.lru_cache(maxsize=64)
def transform_of(game: str, transform: str, layout: str | None = None) -> Transform:
    """The transform of a game.

    >>> transform_of("Pong", "rotation").degrees
    3
    """
    return TRANSFORM_CLASSES[transform](**SETTINGS[game][transform], layout=layout)


@dataclass(frozen=True)
class Daylight(Transform):
    """A transform with the parameters that the daylight paper chose for a game.

    Args:
        game: BankHeist, JamesBond, Pong, RiverRaid or TimePilot, in letters of any case.
        transform: brightness, median-blur, rotation, shift, jpeg or perspective.
    """

    name: ClassVar[str] = "daylight"
    arrays: ClassVar[bool] = True
    game: str
    transform: str

    def __post_init__(self) -> None:
        set_fields(self, game=game_of(self.game))
        choice("transform", self.transform, tuple(TRANSFORM_CLASSES))
        super().__post_init__()

    def __call__(self, x: Any, context: Context) -> Any:
        return self.without_ranges()(x, context)

    def without_ranges(self) -> Transform:
        return transform_of(self.game, self.transform, self.layout)

    def validate(self, **parameter: object) -> None:
        """Nothing is ranged here."""
