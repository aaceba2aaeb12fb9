# mypy: allow-untyped-decorators, disable-error-code="no-untyped-def"
"""Grey levels looked up in a table, by Triton: one for all, or one a row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from adv_wrappers.accel import triton_loader
from adv_wrappers.daylight.brightness import table

_BLOCK = 1024


@triton.jit
def _look_up(x, out, tables, size, apart, BLOCK: tl.constexpr):
    """Rows of ``size`` values; their tables lie ``apart`` bytes apart."""
    blocks = tl.cdiv(size, BLOCK)
    row = tl.program_id(0) // blocks
    at = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    level = tl.load(x + row.to(tl.int64) * size + at, inside, other=0).to(tl.int32)
    level = tl.load(tables + row * apart + level)
    tl.store(out + row.to(tl.int64) * size + at, level, inside)


def look_up(x: Tensor, tables: Tensor) -> Tensor:
    """What the tables make of uint8 ``[B, ...]``; one ``[256]`` is for all rows, ``[B, 256]`` are one each."""
    x = x.contiguous()
    out = torch.empty_like(x)
    rows = len(tables) if tables.dim() == 2 else 1
    if out.numel():
        size = x.numel() // rows
        with torch.cuda.device_of(x):
            _look_up[(rows * triton.cdiv(size, _BLOCK),)](
                x, out, tables, size, 256 * (tables.dim() - 1), _BLOCK, enable_fp_fusion=False
            )
    return out


def trial(device: torch.device) -> None:
    """Raise unless tables are looked up as they are by indexing."""
    x = torch.arange(3 * 1400).view(3, -1).to(torch.uint8)
    tables = torch.stack([torch.from_numpy(table(a, b, "clip")) for a, b in ((1.7, 40.0), (-1, 250), (0.5, 3))])
    one = look_up(x.to(device), tables[0].to(device)).cpu()
    triton_loader.check_equal("look_up", one, tables[0][x.long()])
    each = look_up(x.to(device), tables.to(device)).cpu()
    triton_loader.check_equal("look_up by row", each, tables.gather(1, x.long()))
