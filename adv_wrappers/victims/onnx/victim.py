"""Victims from ONNX files: networks of torch where every operation of the graph is known, else run by ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.spaces import CHOICES
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.reading import check_max_bytes, read_bytes
from adv_wrappers.victims.functions import ChosenActions
from adv_wrappers.victims.modules.module import ModuleVictim, from_module
from adv_wrappers.victims.modules.probe import random_rows
from adv_wrappers.victims.onnx.graph import OnnxGraph, agrees, torch_graph
from adv_wrappers.victims.onnx.node_converter import UnknownOperation
from adv_wrappers.victims.onnx.session import WHOLE, WIDE, OnnxNet, OnnxStart, files_beside
from adv_wrappers.victims.victim import Select


def from_onnx(
    path: str | Path,
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    kind: Literal["q", "logits", "mean", "gaussian", "action"],
    *,
    output: str | None = None,
    inputs: Mapping[str, str] | None = None,
    select: Select = "mode",
    clip: bool = False,
    scale: Tensor | None = None,
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> ModuleVictim:
    """A victim from an ONNX file, with the gradients of its network where every operation of the graph is known.

    The graph becomes a module of torch for batches of any size, which has to answer as ONNX Runtime does at random
    observations, to 1e-5 of the largest number. Where it does not, where an operation is not known, and for graphs that
    end with a discrete action, ONNX Runtime runs the graph, as often as it takes for one that takes one observation or
    a batch of a fixed size. Such a victim has no gradients, and is attacked by its outputs or through :func:`imitate`;
    attacks that need gradients say which operation is in the way.

    The file knows no spaces and does not say what it returns, so both are arguments here, and there is no reference for
    :func:`load_victim`.

    A graph may take the keys of a Dict by inputs of their names, or of sizes that only one key has: an observation and
    an action mask, for example. Inputs that are none of them are hidden states, zero when an episode begins, if an
    output of the same sizes has the next one; one that is called ``time_step`` gets the steps since the episode began,
    and one called ``episode_start`` (or ``is_first``, ``is_init``) 1 at the first of them.

    Args:
        path: the file. Weights that it keeps in files beside it are read too, and are part of the fingerprint.
        observation_space: of one environment: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict of these.
        action_space: of one environment.
        kind: what the output is, as for :func:`adv_wrappers.from_module`; graphs that end with the action that the
            agent takes are ``action``.
        output: the name of the output; None takes the first, and for ``gaussian`` the first two, mean and log standard
            deviation, where there are several. Next hidden states do not count.
        inputs: which key of a Dict an input of the graph takes, by its name, where names and sizes do not tell.
        select, clip, scale: as for :func:`adv_wrappers.from_module`.
        dtype: the same; None takes float64 for a graph that takes float64, or integers of 32 or 64 bits.
        max_bytes: how long the files may be together; None is 256 MiB.

    Raises:
        VictimError: where ONNX Runtime is not installed, for a graph that does not take observations of the space, and
            for what :func:`adv_wrappers.from_module` refuses.
        CardError: for a file that is missing, too large, or that ONNX Runtime cannot read.

    >>> from_onnx("policy.onnx", env.observation_space, env.action_space, "logits")  # doctest: +SKIP
    """
    # the session, which every row of the victim can be asked by
    data = read_bytes(path, check_max_bytes(max_bytes))
    beside = files_beside(data, Path(path), max_bytes)
    outputs = 2 if kind == "gaussian" and output is None else 1
    net = OnnxNet(data, beside, str(path), _shapes(observation_space), inputs or {}, output, outputs)
    start = OnnxStart(net.states) if net.states else None
    if dtype is None:
        dtype = torch.float64 if any(each.dtype in WIDE for each in net.observed) else torch.float32
    # torch computes the graph where it can, and ONNX Runtime where it cannot or where the graph chooses the action
    # itself
    function: Any = net
    if kind == "action" and not isinstance(action_space, spaces.Box):
        missing = "it returns the action that it chooses"
        if start is not None:
            function, kind = ChosenActions(net, action_space), "logits"
    else:
        function, missing = _in_torch(net, start, observation_space, dtype)
        if start is not None and not missing:
            start = OnnxStart(net.states, dtype)
    try:
        victim = from_module(
            function,
            observation_space,
            action_space,
            kind,
            initial_state=start,
            select=select,
            clip=clip,
            scale=scale,
            dtype=dtype,
        )
    except VictimError as error:
        if output is not None or not net.others:
            raise
        taken, others = " and ".join(net.outputs), ", ".join(net.others)
        raise VictimError(
            f"{error}. Taken was the output {taken}; the graph has {others}, too: output={net.others[0]!r}"
        ) from error
    if missing:
        victim.without_gradient = f"ONNX Runtime runs {path}, since {missing}"
    return victim


def _in_torch(
    net: OnnxNet, start: OnnxStart | None, space: spaces.Space[object], dtype: torch.dtype
) -> tuple[OnnxGraph | OnnxNet, str]:
    """The graph as a module of torch, or as it is with the reason."""
    leaves = _leaves(space)
    choices = [key for key, leaf in leaves.items() if not isinstance(leaf, spaces.Box)]
    # as many random observations to compare both at as memory allows, from 16 to 1000
    rows = random_rows(space, torch.device("cpu"), dtype)
    numbers = sum(math.prod(leaf.shape or ()) for leaf in leaves.values())
    count = min(max(_MOST // max(numbers, 1), 16), 1000)
    states = None if start is None else start(count)
    try:
        graph = torch_graph(net, rows(1, 2), None if start is None else start(2), dtype, choices)
    except UnknownOperation as error:
        return net, str(error)
    if not agrees(graph, net, rows(0, count), states):
        return net, f"torch answers something else at {count} random observations"
    return graph, ""


_MOST = 2**21  # numbers in the observations at which a graph is compared


def _leaves(space: spaces.Space[object]) -> dict[str, spaces.Space[object]]:
    """The leaves of a space by their keys."""
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {WHOLE: space}


def _shapes(space: spaces.Space[object]) -> dict[str, tuple[int, ...]]:
    """The shapes of the leaves of a space by their keys."""
    leaves = _leaves(space)
    for leaf in leaves.values():
        if not isinstance(leaf, (spaces.Box, *CHOICES)):
            kinds = "Box, Discrete, MultiDiscrete or MultiBinary observations, or a Dict of these"
            raise VictimError(f"from_onnx takes {kinds}, got {space}")
    return {key: leaf.shape or () for key, leaf in leaves.items()}
