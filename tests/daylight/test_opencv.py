"""OpenCV's calls on batches: every picture is handed over once, in the shape that it was asked in, and put back."""

from __future__ import annotations

import numpy as np

from adv_wrappers.core.image_layouts import LAYOUTS
from adv_wrappers.daylight.opencv import each
from tests.daylight.test_images import SHAPES
from tests.every_case import every_case


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


class Flip:
    """A call that turns pictures upside down, into its place or not, and remembers their shapes."""

    def __init__(self, in_place: bool = True) -> None:
        self.in_place, self.shapes = in_place, []

    def __call__(self, source, place):
        assert source.shape == place.shape and source.flags.c_contiguous and place.flags.c_contiguous
        self.shapes.append(source.shape)
        if not self.in_place:
            return source[::-1].copy()
        place[...] = source[::-1]
        return place


@every_case("in_place", [False, True])
@every_case("ways", [
    {}, {"channels": (1, 3, 4)}, {"channels": (1,)}, {"coloured": True}, {"by_fours": True},
    {"channels": (1,), "by_fours": True},
])  # fmt: skip
@every_case("layout", LAYOUTS)
def test_every_layout_and_back(layout, ways, in_place):
    x, call = noise(6, *SHAPES[layout]), Flip(in_place)
    kept = x.copy()
    y = each(x, layout, call, **ways)
    assert np.array_equal(y, np.flip(x, 1 + layout.index("H"))) and np.array_equal(x, kept)
    assert y.flags.c_contiguous and y.flags.writeable and not np.shares_memory(x, y)
    assert sum(map(np.prod, call.shapes)) == x.size  # every value once
    channels = [shape[2] if len(shape) == 3 else 1 for shape in call.shapes]
    if ways.get("coloured"):
        assert set(channels) == {3 if "C" in layout else 1}
    elif "by_fours" not in ways:
        assert set(channels) <= {*ways.get("channels", (1, 2, 3, 4))}
    elif layout in ("HW", "FHW"):
        assert max(channels) == 4
    assert all(shape[:2] == (5, 7) for shape in call.shapes)


def test_colours_are_handed_over_together():
    x = noise(2, 3, 5, 7)
    seen = []
    each(x, "CHW", lambda source, place: seen.append(source.copy()) or source, coloured=True)
    assert np.array_equal(np.stack(seen), np.moveaxis(x, 1, -1))
    seen.clear()
    each(x, "FHW", lambda source, place: seen.append(source.copy()) or source, coloured=True)
    assert np.array_equal(np.stack(seen), x.reshape(6, 5, 7))


@every_case("frames", [1, 2, 3, 4, 5, 12, 128, 129, 600])
def test_stacks_of_any_length(frames):
    x = noise(2, 3, 4, frames)
    for ways in ({}, {"by_fours": True}):
        call = Flip()
        assert np.array_equal(each(x, "HWF", call, **ways), x[:, ::-1])
        grey = frames == 1 or (frames > 4 and not (ways and frames % 4 == 0))
        assert ((3, 4) in call.shapes) == grey


@every_case("layout", LAYOUTS)
def test_memory_of_any_order_and_no_rows(layout):
    x = noise(4, *SHAPES[layout])
    for part in (x[::2], x[:, ::-1], x[..., ::-1], np.asfortranarray(x), x[:0]):
        y = each(part, layout, Flip(), coloured=True, by_fours=True)
        assert np.array_equal(y, np.flip(part, 1 + layout.index("H")))
    x.setflags(write=False)
    assert np.array_equal(each(x, layout, Flip()), np.flip(x, 1 + layout.index("H")))
