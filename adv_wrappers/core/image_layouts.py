"""Layouts: which axis of an observation is what.

A layout names the axes of ONE observation: ``H`` rows, ``W`` columns, ``C`` colours, ``F`` frames of a stack. A colour
axis holds one picture in three parts; frames are pictures of their own.
"""

from __future__ import annotations

import functools

from adv_wrappers.errors import SpaceError
from adv_wrappers.utils.checks import check_choice

LAYOUTS = ("HW", "HWC", "CHW", "FHW", "HWF", "FHWC", "FCHW")


@functools.lru_cache(maxsize=256)
def layout_of(shape: tuple[int, ...], given: str | None = None) -> str:
    """The layout of observations of this shape (without the batch).

    Inferred: two axes are ``HW``. Of three, the shorter of the first and the last is not a side of the picture; three
    long it is colours, else frames (or one grey picture). Of four, the first is frames, and colours are the axis of
    length one or three.

    Args:
        shape: of one observation.
        given: one of ``LAYOUTS``, checked against the shape; None to infer.

    Raises:
        SpaceError: for a shape that is no image, one that can be read in two ways, and a layout that does not fit.

    >>> layout_of((84, 84)), layout_of((4, 84, 84)), layout_of((210, 160, 3)), layout_of((4, 210, 160, 3))
    ('HW', 'FHW', 'HWC', 'FHWC')
    """
    if given is not None:
        check_choice("layout", given, LAYOUTS, error=SpaceError)
        # a layout that is given has to be one of these axes
        if len(given) != len(shape):
            raise SpaceError(f"layout {given} names {len(given)} axes, the observation has {len(shape)}: {shape}")
        if "C" in given and shape[given.index("C")] not in (1, 3):
            raise SpaceError(
                f"layout {given} says that {shape} has {shape[given.index('C')]} colours; expected 1 or 3 "
                f"(frames of a stack are F)"
            )
        found = given
    else:
        found = _infer(shape)
    if 0 in shape:
        raise SpaceError(f"an image needs at least one pixel, got the shape {shape}")
    return found


def _infer(shape: tuple[int, ...]) -> str:
    if len(shape) == 2 and not (shape[1] in (1, 3, 4) and shape[0] >= 16):  # else columns and colours of one picture
        return "HW"
    if len(shape) == 3 and shape[0] != shape[2]:
        first = shape[0] < shape[2]
        letter = "C" if min(shape[0], shape[2]) == 3 else "F"
        return f"{letter}HW" if first else f"HW{letter}"
    if len(shape) == 4 and (shape[3] in (1, 3)) != (shape[1] in (1, 3)):
        return "FHWC" if shape[3] in (1, 3) else "FCHW"
    raise SpaceError(
        f"cannot tell which axes of an observation of shape {shape} (without the batch, which comes first) are rows "
        f"and columns: give layout=, one of {', '.join(LAYOUTS)}"
    )
