"""Daylight by game: the transform with the daylight paper's own parameters (tables 1 to 6)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from adv_wrappers.core.engine.context import Context
from adv_wrappers.daylight.blur import MedianBlur
from adv_wrappers.daylight.brightness import Brightness
from adv_wrappers.daylight.jpeg import JPEG
from adv_wrappers.daylight.perspective import Perspective
from adv_wrappers.daylight.rotation import Rotation
from adv_wrappers.daylight.shift import Shift
from adv_wrappers.daylight.transform import Transform
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.frozen import set_fields

# ----------------------------------------------------------------------------------------------------------------------
# The daylight paper's tables as data, for five Atari games; names of games are the paper's.
#
# ``SETTINGS`` are the parameters of tables 1 to 6, ``PROBABILITIES`` those of table 7. What the paper measured is in
# ``benchmarks/reproduce/daylight.py``.
# ----------------------------------------------------------------------------------------------------------------------


# Tables 1 to 6. The paper gives no JPEG quality (table 5): there the transform's own default holds.
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "BankHeist": {
        "brightness": {"alpha": 1.2, "beta": 40}, "median-blur": {"k": 5}, "rotation": {"degrees": 1.4},
        "shift": {"dx": 1, "dy": 1}, "jpeg": {}, "perspective": {"distance": 1},
    },
    "JamesBond": {
        "brightness": {"alpha": 0.9, "beta": 20}, "median-blur": {"k": 3}, "rotation": {"degrees": 1.6},
        "shift": {"dx": 0, "dy": 1}, "jpeg": {}, "perspective": {"distance": 1},
    },
    "Pong": {
        "brightness": {"alpha": 1.7, "beta": 40}, "median-blur": {"k": 3}, "rotation": {"degrees": 3},
        "shift": {"dx": 2, "dy": 1}, "jpeg": {}, "perspective": {"distance": 3},
    },
    "RiverRaid": {
        "brightness": {"alpha": 2.4, "beta": -275}, "median-blur": {"k": 5}, "rotation": {"degrees": 1.8},
        "shift": {"dx": 1, "dy": 2}, "jpeg": {}, "perspective": {"distance": 2},
    },
    "TimePilot": {
        "brightness": {"alpha": 2.4, "beta": -260}, "median-blur": {"k": 5}, "rotation": {"degrees": 5},
        "shift": {"dx": 2, "dy": 2}, "jpeg": {}, "perspective": {"distance": 3},
    },
}  # fmt: skip

TRANSFORMS = ("brightness", "median-blur", "rotation", "shift", "jpeg", "perspective")

# Table 7: probability that the agent is shown the perturbed observation.
PROBABILITIES = {"RiverRaid": 0.1, "TimePilot": 0.02, "BankHeist": 0.02, "Pong": 0.06, "JamesBond": 0.08}

TRANSFORM_CLASSES: dict[str, type[Transform]] = {
    kind.name: kind for kind in (Brightness, MedianBlur, Rotation, Shift, JPEG, Perspective)
}


def game_of(text: object) -> str:
    """The paper's name of a game, whatever the case of its letters; raises for a game that the paper does not have."""
    name = {game.lower(): game for game in SETTINGS}.get(str(text).lower(), str(text))
    check_choice("game", name, SETTINGS)
    return name


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
        check_choice("transform", self.transform, TRANSFORM_CLASSES)
        super().__post_init__()

    def __call__(self, x: Any, context: Context) -> Any:
        return self.without_ranges()(x, context)

    def without_ranges(self) -> Transform:
        return transform_of(self.game, self.transform, self.layout)

    def validate(self, **parameter: object) -> None:
        """Nothing is ranged here."""
