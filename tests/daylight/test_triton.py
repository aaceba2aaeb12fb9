"""The kernels of brightness, shift, blur and warp, alone and composed, interpreted against the plain versions, to the
bit. The functions ``check_...`` run in processes of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from adv_wrappers import daylight
from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight import Brightness, Perspective, Rotation, Shift
from adv_wrappers.daylight.brightness import table
from adv_wrappers.daylight.images import _plan
from adv_wrappers.daylight.perspective import PATTERNS
from adv_wrappers.daylight.warp import BORDERS, INTERPOLATIONS, affine_map, perspective_map, warp
from tests.daylight.helpers import at_step, force_torch, pictures
from tests.triton_tools import interpreted, needs_triton

TWINS = ("brightness", "shift", "blur", "warp", "warp_per_row")
SIZES = [(1, 1), (2, 7), (9, 6)]
CPU = torch.device("cpu")


def twin(name: str):
    return importlib.import_module(f"adv_wrappers.daylight.kernels.{name}_triton")


@contextlib.contextmanager
def kernels():
    """Every transform takes the path of CUDA; gives the names of the twins that were asked for."""
    asked = []

    def trusted(name, x):
        assert x.dtype == torch.uint8
        asked.append(name)
        return importlib.import_module(f"adv_wrappers.{name}_triton") if name.split(".")[-1] in TWINS else None

    with pytest.MonkeyPatch.context() as patch:
        force_torch(patch)
        patch.setattr(triton_loader, "twin", trusted)
        yield asked


def check_trials():
    for name in TWINS:
        twin(name).trial(CPU)


def check_warps():
    """All borders and interpolations, odd sizes, pixels of one to five bytes, words that are not aligned."""
    for border, interpolation, size in itertools.product(BORDERS, INTERPOLATIONS, SIZES):
        maps = [affine_map((1.3, 0.4, -2.2, -0.7, 0.8, 1.1), *size, interpolation)]
        maps.append(perspective_map((1.1, 0.1, -0.4, 0.0, 0.9, 0.3, 0.02, -0.3, 0.7), *size, interpolation))
        for at, channels in zip(maps, (4, 1), strict=True):
            x = pictures(3, *size, channels)
            triton_loader.check_equal(f"{border} {interpolation} {size}", *both(x, at, border, interpolation))
    far = affine_map((1.0, 0.0, 1e5, 0.0, 1.0, -1e5), 9, 6, "bilinear")
    for channels in (2, 3, 5):
        triton_loader.check_equal(f"{channels} channels", *both(pictures(2, 9, 6, channels), at, "zero", "nearest"))
        triton_loader.check_equal(f"{channels} channels", *both(pictures(2, 9, 6, channels), far, "wrap", "bilinear"))
    with pytest.MonkeyPatch.context() as patch:  # several images a program, the last of fewer
        patch.setattr(twin("warp"), "_PROGRAMS", 0)
        triton_loader.check_equal("many images", *both(pictures(11, 9, 6, 4), far, "wrap", "bilinear"))
    odd = pictures(1 + 2 * 9 * 6 * 4).view(-1)[1:].view(2, 9, 6, 4)
    for x in (odd, odd.flip(1).transpose(1, 2).contiguous().transpose(1, 2), odd[:0]):
        triton_loader.check_equal("strides", *both(x, maps[0], "zero", "nearest"))


def both(x, at, border, interpolation):
    return twin("warp").warp(x, at, border, interpolation), warp(x, at, border, interpolation)


def check_shifts_and_tables():
    shift = twin("shift")
    for border, size, (dx, dy) in itertools.product(BORDERS, SIZES, [(1, 0), (-3, 2), (0, -40), (32767, -32767)]):
        x = pictures(2, *size, 3)
        expected = daylight.shift(x, dx, dy, border=border, layout="HWC")
        triton_loader.check_equal(f"{border} {dx} {dy}", shift.shift(x, shift.move(dx, dy, CPU), border), expected)
    for channels in (1, 2, 4, 5, 8):
        x = pictures(2, 9, 6, channels)
        expected = daylight.shift(x, 2, -1, border="zero", layout="HWF")
        triton_loader.check_equal(f"{channels} channels", shift.shift(x, shift.move(2, -1, CPU), "zero"), expected)
    moves, x = torch.tensor([[1, 2], [-3, 0], [0, 0]], dtype=torch.int32), pictures(6, 9, 6, 1)
    expected = [daylight.shift(x[i : i + 1], *moves[i // 2].tolist(), layout="HWC") for i in range(6)]
    triton_loader.check_equal("by row", shift.shift(x, moves, "replicate"), torch.cat(expected))
    x = pictures(3, 700)
    levels = torch.stack([torch.from_numpy(table(a, 20.0, "abs")) for a in (-1.0, 0.3, 2.0)])
    triton_loader.check_equal("tables", twin("brightness").look_up(x, levels), levels.gather(1, x.long()))
    triton_loader.check_equal("table", twin("brightness").look_up(x.t(), levels[0]), levels[0][x.t().long()])


def check_medians():
    for k, (size, channels) in itertools.product((3, 5, 7), zip(SIZES, (1, 2, 3), strict=True)):
        x = pictures(2, *size, channels)
        triton_loader.check_equal(
            f"{k} {size} {channels}", twin("blur").median(x, k), daylight.median_blur(x, k, layout="HWF")
        )
    for k in (3, 5, 7):
        x = pictures(1, 19, 6, 4)
        triton_loader.check_equal(
            f"{k}, more rows", twin("blur").median(x, k, rows=12), daylight.median_blur(x, k, layout="HWF")
        )


def check_functions():
    """The public functions by kernels, in all layouts, and parameters that are drawn."""
    calls = {
        "brightness": lambda x, k: daylight.brightness(x, 1.7, 40),
        "shift": lambda x, k: daylight.shift(x, 2, 1, **k),
        "blur": lambda x, k: daylight.median_blur(x, 3, **k),
        "warp": lambda x, k: daylight.rotate(x, 30, **k),
    }
    sizes = {"H": 7, "W": 6, "F": 5, "C": 3}
    for layout, (name, call) in itertools.product(("HW", "HWC", "CHW", "FHW", "HWF", "FHWC", "FCHW"), calls.items()):
        x = pictures(2, *(sizes[letter] for letter in layout))
        expected = call(x, {"layout": layout})
        with kernels() as asked:
            triton_loader.check_equal(f"{name} {layout}", call(x, {"layout": layout}), expected)
        assert asked == [f"daylight.kernels.{name}"]


DRAWN = [
    Brightness((0.5, 2.0), (-50, 50), "abs"), Brightness(1.5, (0, 50)), Shift((-3, 3), 1), Shift(0, (-2, 2), "zero"),
    *(Rotation((-40, 40), border) for border in BORDERS), Rotation((-9, 9), interpolation="nearest"),
    *(Perspective((0, 2), pattern, border=border) for pattern, border in zip(PATTERNS, BORDERS, strict=True)),
    Perspective((0, 1.5), interpolation="nearest"),
]  # fmt: skip


def check_drawn():
    """Parameters that every row has of its own: pictures of more rows than columns, and of more than one block."""
    for layout, how in itertools.product(("FHW", "HWF"), DRAWN):
        x = pictures(3, 2, 21, 7)
        x = x if layout == "FHW" else x.repeat(1, 2, 1, 1).permute(0, 2, 3, 1)
        expected = replace(how, layout=layout)(x, at_step(3))
        with kernels() as asked:
            triton_loader.check_equal(repr(how), how.by_row(x, layout, at_step(3)), expected)
        assert len(asked) == 1
    wide = pictures(2, 17, 150, 1)  # perspectives are summed in blocks of 64 columns
    how = Perspective((0, 3), "left", layout="HWF")
    with kernels():
        triton_loader.check_equal("wide", how.by_row(wide, "HWF", at_step(2)), how(wide, at_step(2)))


def code_of(check: str, module: str = __name__) -> str:
    root = str(Path(__file__).parents[2])
    return f"import sys; sys.path.insert(0, {root!r})\nfrom {module} import *\n{check}"


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("part", ["trials", "warps", "shifts_and_tables", "medians", "functions", "drawn"])
def test_interpreted(part):
    interpreted(code_of(f"check_{part}()"))


def test_kernels_take_any_number_of_channels_in_place():
    assert _plan((5, 7, 6), "HWF", False, True) == (None, (0, 1, 2, 3), 1, (5, 7, 6))
