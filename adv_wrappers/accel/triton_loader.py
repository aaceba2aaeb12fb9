"""Triton kernels: whether there are any, and whether they are to be trusted on a device.

A kernel lives in the twin ``<file>_triton.py`` of the file with the plain torch version. Twins import Triton, which
comes with CUDA builds of torch and is no dependency, so nothing imports them but :func:`twin`. Every twin has a
function ``trial(device)`` that raises unless its kernels give what the plain versions give on small examples; it runs
once a process and device, before the kernels are used for the first time. A kernel that does not compile on some
release of Triton, or is wrong on some device, so costs speed and a warning, never a result.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from types import ModuleType

import torch
from torch import Tensor

TRITON_VARIABLE = "ADV_WRAPPERS_TRITON"


def twin(name: str, x: Tensor) -> ModuleType | None:
    """The module ``adv_wrappers.<name>_triton`` if its kernels are to work on ``x``, else None.

    They are on CUDA, where Triton is installed, unless the environment variable ``ADV_WRAPPERS_TRITON`` is 0.
    """
    if not x.is_cuda or os.environ.get(TRITON_VARIABLE) == "0":
        return None
    return trusted(name, x.device)


@functools.cache
def trusted(name: str, device: torch.device) -> ModuleType | None:
    """The twin after its trial on ``device``; None, with a warning, if that failed, and None without Triton."""
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        module = importlib.import_module(f"adv_wrappers.{name}_triton")
        module.trial(device)
    except Exception as error:  # whatever a compiler or a driver raises: the plain version is there
        warnings.warn(
            f"the Triton kernels of {name} are not used on {device}, plain torch is: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
        return None
    return module


def check_equal(what: str, got: Tensor, expected: Tensor) -> None:
    """Raise :class:`AssertionError` unless two results agree to the bit."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        raise AssertionError(
            f"{what} gave {got.dtype} {tuple(got.shape)}, not {expected.dtype} {tuple(expected.shape)}"
        )
    far = float((got.double() - expected.double()).abs().max()) if got.numel() else 0.0
    if not far <= 0:
        raise AssertionError(f"{what} is off by {far:g}")
