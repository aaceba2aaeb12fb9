"""Which rows a layer attacks: what gates and timing allow, less what the perturbation itself declines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.context import Context
from adv_wrappers.core.layer_protocol import AttackedLayer
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.types import Flags
from adv_wrappers.errors import ThreatError


def timed(engine: AttackedLayer, value: Any, eligible: Flags, final: bool) -> Flags:
    """The rows that gates and timing allow: a bool, or bool ``[B]``.

    Args:
        engine: of the layer.
        value: the observation or action as it came in.
        eligible: the rows that may be attacked.
        final: whether the observation is the last of its episode.

    Raises:
        ThreatError: for a timing that answers with anything but a bool, or one a row.
    """
    attacked, when = eligible, engine.when
    for gate in engine.gates:
        attacked = attacked & gate.decide(engine)
    if when is None or attacked is False:
        return attacked
    if engine.blind:
        allowed: Flags = attacked & when.decide(engine)
        return allowed
    if not isinstance(attacked, Tensor) and not np.any(attacked):
        return attacked
    context = Context(engine, value, engine.part_of(value), None, final)
    seen: Any = when.look(context.x, context, engine) if isinstance(when, When) else when(context.x, context)
    if isinstance(seen, bool):
        return attacked & seen
    if isinstance(seen, Tensor) and engine.on_host:
        seen = seen.numpy() if engine.transfer is None else engine.transfer.down(seen)[0].copy()
    if getattr(seen, "dtype", None) not in (np.bool_, torch.bool) or tuple(seen.shape) != (len(context.x),):
        raise ThreatError(f"a timing must return a bool, or one a row ({len(context.x)}), got {seen!r:.80}")
    return attacked & (seen if engine.batched else bool(seen[0]))


def accepted(engine: AttackedLayer, value: Any, attacked: Flags, final: bool, mask: Tensor | None) -> Flags:
    """Those of the attacked rows that the perturbation does not decline; the others are not even asked.

    What it writes into its memory while it decides stays there.

    Args:
        engine: of a layer whose perturbation declares ``declines``.
        value, final: as for :func:`timed`.
        attacked: the rows that the timing allows.
        mask: action mask, where the environment gave one.

    Raises:
        ThreatError: for an answer that is no bool a row.
    """
    if not isinstance(attacked, Tensor) and not np.any(attacked):
        return False
    rows = np.flatnonzero(attacked) if isinstance(attacked, np.ndarray) and engine.on_host else None
    context = Context(engine, value, engine.part_of(value), rows, final, mask)
    with torch.no_grad():
        answer = engine.how.accepts(context.x, context)
    count = len(context.x)
    if not isinstance(answer, Tensor) or answer.dtype != torch.bool or tuple(answer.shape) != (count,):
        raise ThreatError(
            f"{engine.threat.label} must accept or decline with one bool a row ({count}), got {answer!r:.80}"
        )
    if engine.memory is not None and context.memory is not None:
        everyone: Flags = attacked if isinstance(attacked, Tensor) else True
        engine.remember(context.memory, everyone if rows is None else rows)
    if not engine.on_host:
        return attacked & answer
    chosen = answer.cpu().numpy()
    if rows is None or not isinstance(attacked, np.ndarray):
        return chosen if engine.batched else bool(chosen[0])
    whole = np.zeros(len(attacked), np.bool_)
    whole[rows] = chosen
    return whole
