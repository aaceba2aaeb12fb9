"""Victims from TorchScript files, which other code has exported with ``torch.jit.save``.

A TorchScript file is a program. PyTorch's interpreter runs it instead of Python, but its operators can open and write
files (``torch.from_file``) and loop forever, so PyTorch treats it as an executable, and so does this: it is read where
``trust=True`` says so. Networks without code are better written as cards (:func:`adv_wrappers.save_card`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.errors import TrustError
from adv_wrappers.utils.reading import check_max_bytes, check_zip, decoding, read_bytes
from adv_wrappers.victims.modules.frozen_copy import TorchScriptNet
from adv_wrappers.victims.modules.module import ModuleVictim, from_module
from adv_wrappers.victims.victim import Select


def from_torchscript(
    path: str | Path,
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    kind: Literal["q", "logits", "mean", "gaussian", "action"],
    *,
    trust: bool = False,
    select: Select = "mode",
    clip: bool = False,
    scale: Tensor | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> ModuleVictim:
    """A victim from a TorchScript file, with the gradients of its network where it has some.

    The file knows no spaces and does not say what it returns, so both are arguments here, and there is no reference for
    :func:`load_victim`.

    Args:
        path: the file, as ``torch.jit.save`` wrote it.
        observation_space, action_space: of one environment.
        kind: what the program returns for observations ``[B, *S]``, as for :func:`adv_wrappers.from_module`.
        trust: run the program in the file; without it :class:`TrustError` is raised.
        select, clip, scale, device, dtype: as for :func:`adv_wrappers.from_module`.
        max_bytes: how long the file may be, and how much it may unpack to; None is 256 MiB.

    Raises:
        TrustError: without ``trust=True``.
        CardError: for a file that is missing, too large or no TorchScript.
        VictimError: for what :func:`adv_wrappers.from_module` refuses.

    >>> from_torchscript("policy.pt", env.observation_space, env.action_space, "logits", trust=True)  # doctest: +SKIP
    """
    if trust is not True:
        raise TrustError(
            f"{path} is a TorchScript program, which can read and write files when it runs: give trust=True for a file "
            "of your own, or of somebody whose programs you run"
        )
    max_bytes = check_max_bytes(max_bytes)
    data = read_bytes(path, max_bytes)
    check_zip(data, path, max_bytes)
    with decoding(f"{path} as TorchScript"):
        net = TorchScriptNet(data)
    return from_module(
        net, observation_space, action_space, kind, select=select, clip=clip, scale=scale, device=device, dtype=dtype
    )
