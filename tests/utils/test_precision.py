"""Switches of torch for the precision of float32: off inside, and as they were afterwards, by either set of them."""

from __future__ import annotations

from operator import attrgetter

import pytest
import torch

from adv_wrappers.utils.precision import full_precision

NEWER = [
    f"backends.{name}fp32_precision"
    for name in ("", "cudnn.", "cuda.matmul.", "cudnn.conv.", "cudnn.rnn.", "mkldnn.matmul.", "mkldnn.conv.")
]
HAS_NEWER = hasattr(torch.backends.cudnn, "conv")
needs_newer = pytest.mark.skipif(not HAS_NEWER, reason="torch 2.8 has the older switches alone")


def older(read):
    try:
        return read()
    except RuntimeError:
        return "cannot be read"


def switches():
    """Every switch, older and newer, by its name."""
    found = {
        "products": older(torch.get_float32_matmul_precision),
        "convolutions": older(lambda: torch.backends.cudnn.allow_tf32),
        "autocast": torch.is_autocast_enabled("cpu"),
    }
    return {**found, **({name: attrgetter(name)(torch) for name in NEWER} if HAS_NEWER else {})}


def set_newer(name, value):
    place, _, last = name.rpartition(".")
    setattr(attrgetter(place)(torch), last, value)


@pytest.fixture(autouse=True)
def put_back():
    """Torch's own defaults after every test."""
    yield
    if HAS_NEWER:
        for name in NEWER:
            set_newer(name, "tf32" if "conv" in name or "rnn" in name else "none")
        set_newer("backends.mkldnn.conv.fp32_precision", "none")
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def is_full(found):
    return set(found.values()) <= {"highest", "cannot be read", False, "ieee", "none"}


def default():
    """TF32 in convolutions, as torch begins."""


def medium():
    torch.set_float32_matmul_precision("medium")  # bfloat16 on processors that have it


def convolutions_are_full():
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # after which the older switch cannot be read


def products_in_tf32():
    torch.backends.cuda.matmul.fp32_precision = "tf32"


def everything_in_tf32():
    torch.backends.fp32_precision = "tf32"


def processors_in_bfloat16():
    torch.backends.mkldnn.conv.fp32_precision = "bf16"


NEW_WAYS = [convolutions_are_full, products_in_tf32, everything_in_tf32, processors_in_bfloat16]
WAYS = [default, medium, *(pytest.param(way, marks=needs_newer) for way in NEW_WAYS)]


@pytest.mark.parametrize("way", WAYS)
def test_full_precision_is_in_force_and_everything_is_set_back(way):
    way()
    before = switches()
    assert not is_full(before)
    with torch.autocast("cpu", torch.bfloat16), full_precision():
        assert is_full(switches())
        x = torch.rand(2, 2)
        assert (x @ x).dtype == torch.float32
    assert switches() == before
    with pytest.raises(ValueError, match="inside"), full_precision():
        raise ValueError("inside")
    assert switches() == before


@needs_newer
def test_what_follows_another_switch_follows_it_afterwards():
    before = switches()
    everything_in_tf32()
    with full_precision():
        assert is_full(switches())
    torch.backends.fp32_precision = "none"
    after = switches()
    assert {name for name in before if after[name] != before[name]} <= {"backends.cuda.matmul.fp32_precision"}
    assert after["backends.cuda.matmul.fp32_precision"] in ("none", "ieee")
