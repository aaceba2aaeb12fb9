"""The kernels of JPEG without a GPU: interpreted against OpenCV, to the bit, and compiled for a GPU that is not there.

Interpreted programs are given more lanes than on a device, since the interpreter's time goes by the count of programs.
"""

from __future__ import annotations

import pytest

from tests.triton_tools import compiled, interpreted, needs_triton

pytestmark = needs_triton

_THROUGH = """
import pytest
import torch
from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight.kernels import dct_triton, jpeg_triton
from adv_wrappers.daylight.jpeg import jpeg
from tests.daylight.helpers import force_torch
dct_triton._LANES = 1024

calls = []

def asked(name, x):
    assert name == "daylight.kernels.jpeg" and x.dtype == torch.uint8
    calls.append(name)
    return jpeg_triton

def check(x, quality, **options):
    kept = x.clone()
    expected = jpeg(x, quality, **options)
    with pytest.MonkeyPatch.context() as patch:
        force_torch(patch)
        patch.setattr(triton_loader, "twin", asked)
        got = jpeg(x, quality, **options)
    assert calls.pop() and not calls
    triton_loader.check_equal(f"{quality} {options}", got, expected)
    assert torch.equal(x, kept)

g = torch.Generator().manual_seed(0)
def noise(*shape):
    return torch.randint(0, 256, shape, generator=g, dtype=torch.uint8)
"""

_GREY = (
    _THROUGH
    + """
qualities = (5, 30, 75, 100)
for i, (h, w) in enumerate([(8, 8), (13, 9), (17, 24), (1, 1)]):
    for layout, shape in {"HW": (h, w), "FHW": (3, h, w), "HWF": (h, w, 4), "FHWC": (2, h, w, 1)}.items():
        check(noise(2, *shape), qualities[i % 4], layout=layout)
        i += 1
extremes = noise(2, 5, 16, 24) // 128 * 255
ramps = (torch.arange(16)[:, None] * 7 + torch.arange(24) * 3).to(torch.uint8).expand(2, 5, 16, 24)
for quality in (1, 30, 92):
    check(torch.cat([extremes, ramps]), quality, layout="FHW")
stack = noise(2, 17, 24, 4)
check(stack / 255, 30, layout="HWF")
check(stack[:, 3:, 1:, ::2], 30, layout="HWF")  # not contiguous
check(stack[0], 30, layout="HWF")
check(stack[:0], 30, layout="HWF")
dct_triton._LANES = 32
jpeg_triton._MOST = 40  # the batch is cut where counting would end
check(noise(3, 17, 24, 4), 30, layout="HWF")
"""
)

_COLOURS = (
    _THROUGH
    + """
i = 0
for subsampling in ("4:2:0", "4:2:2", "4:4:4"):
    for h, w in [(13, 9), (17, 24), (5, 3), (1, 1), *([(34, 50)] if subsampling == "4:2:0" else [])]:
        layout = ("HWC", "CHW", "FHWC", "FCHW")[i % 4]
        shape = [{"H": h, "W": w, "C": 3, "F": 2}[letter] for letter in layout]
        order = ("RGB", "BGR")[i // 4 % 2]
        x = noise(2, *shape)
        check(x, (5, 30, 75, 100)[i % 3], layout=layout, subsampling=subsampling, order=order)
        i += 1
check(noise(2, 16, 20, 3) // 128 * 255, 1, layout="HWC")
check(noise(2, 16, 20, 3) / 255, 60, layout="HWC")
jpeg_triton._MOST = 6
check(noise(3, 16, 20, 3), 30, layout="HWC")
"""
)

_TRIAL = """
import torch
from adv_wrappers.daylight.kernels import dct_triton, jpeg_triton
dct_triton._LANES = 1024
cpu = torch.device("cpu")
jpeg_triton.trial(cpu)
right = dct_triton._table
dct_triton._table = lambda quality, chroma, device: right(quality, False, device)
try:
    jpeg_triton.trial(cpu)
except AssertionError as error:
    print(error)
"""

_KERNEL = """
import triton
import triton.language as tl
from adv_wrappers.daylight.kernels.dct_triton import requantised

@triton.jit
def kernel(c, table, out, COUNT: tl.constexpr):
    step = tl.arange(0, 256)[:, None]
    inverse = tl.load(table + step + 256).to(tl.float32, bitcast=True)
    at = tl.program_id(0) * COUNT + tl.arange(0, COUNT)[None, :]
    tl.store(out + step * 16512 + at, requantised(tl.load(c + at), inverse, tl.load(table + step)))
"""

_EVERY_QUOTIENT = """
import sys
import torch
sys.path.insert(0, {folder!r})
from quotient import kernel
from adv_wrappers.daylight.kernels import dct_triton
steps = torch.arange(256).clamp_(1)
dct_triton.quantisers = lambda quality, chroma: steps
table = dct_triton._table(1, False, torch.device("cpu"))
c = torch.arange(-8256, 8256, dtype=torch.int32)
out = torch.zeros(256, 16512, dtype=torch.int32)
kernel[(129,)](c, table, out, 128)
size = (2 * c.abs() + 8 * steps[:, None]) // (16 * steps[:, None])
assert torch.equal(out, (size * steps[:, None] * c.sign()).int())
"""

_CUBINS = """
import re, subprocess, tempfile
from adv_wrappers.daylight.kernels.dct_triton import blocks_kernel
from adv_wrappers.daylight.kernels.jpeg_triton import to_rgb_kernel, to_ycc_kernel

def check(kernel, memory, integers, **constants):
    signature = {**{name: "*i32" if name == "table" else "*u8" for name in memory.split()},
                 **{name: "i32" for name in integers.split()}, **{name: "constexpr" for name in constants}}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin(kernel, signature, constants, num_warps=4, enable_fp_fusion=False))
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        use = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack, local = (int(re.search(name + r":(\\d+)", use.stdout)[1]) for name in ("REG", "STACK", "LOCAL"))
    print(kernel.__name__, constants, registers)
    assert registers <= 96 and stack == local == 0, use.stdout

for inner in INNER:
    check(blocks_kernel, "x out table", "count height width", INNER=inner, LANES=128)
tile = dict(ROWS=16, COLUMNS=32)
for pixel in PIXEL:
    for down, across in SAMPLING:
        factors = dict(PIXEL=pixel, DOWN=down, ACROSS=across)
        check(to_ycc_kernel, "x luma chroma", "height width rows columns red green blue", **factors, **tile)
        for smooth in {False, across == 2}:
            integers = "height width rows columns last red green blue"
            check(to_rgb_kernel, "luma chroma out", integers, **factors, SMOOTH=smooth, **tile)
"""


@pytest.mark.slow
def test_grey_pictures_in_every_layout():
    interpreted(_GREY)


@pytest.mark.slow
def test_colours_in_every_layout_and_subsampling():
    interpreted(_COLOURS)


@pytest.mark.slow
def test_the_trial_passes_and_notices_a_wrong_table():
    assert "JPEG 4:2:0 of HWC is off by" in interpreted(_TRIAL)


@pytest.mark.slow
def test_every_quotient_is_rounded_half_away_from_zero(tmp_path):
    (tmp_path / "quotient.py").write_text(_KERNEL, encoding="utf-8")
    interpreted(_EVERY_QUOTIENT.format(folder=str(tmp_path)))


@pytest.mark.parametrize(
    ("inner", "pixel", "sampling", "variants"),
    [
        pytest.param([4], [3], [(2, 2)], 1 + 1 + 2, marks=pytest.mark.slow),
        pytest.param([1, 4], [1, 3], [(2, 2), (1, 2), (1, 1)], 2 + 6 + 10, marks=pytest.mark.slow),
    ],
    ids=["one of each", "all"],
)
def test_variants_compile_without_spills(inner, pixel, sampling, variants):
    chosen = f"INNER, PIXEL, SAMPLING = {inner}, {pixel}, {sampling}\n"
    assert compiled(chosen + _CUBINS).count("\n") == variants
