"""What the context and the computation of an attack know of the layer that it is for: its engine, seen from below."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from adv_wrappers.accel.cuda_graphs import GraphCache
from adv_wrappers.accel.transfer import Transfer
from adv_wrappers.core.budgets import Budget, LastStep
from adv_wrappers.core.clock import Clock
from adv_wrappers.core.session import Session
from adv_wrappers.core.simulator_protocol import MakesSimulators
from adv_wrappers.core.spaces import Field, Labelled
from adv_wrappers.core.types import Leaves, Rows, Space


class AttackedLayer(Protocol):
    """The engine of a layer (:class:`adv_wrappers.core.engine.Engine`).

    Attributes:
        rows, batched: number of rows of a vector environment, None for a single environment; whether it is one.
        stream: number of layers beneath, which tells this layer's draws from theirs.
        how: the perturbation.
        victims: those that the threat looks at.
        before_step: whether what is perturbed is no observation, but an action, physical parameters or a reward.
        sees_own: whether the perturbation looks at what this layer received, not at what the agent acted on.
        native, unbounded: whether it is perturbed in its own dtype; whether without any projection.
        writes_nothing: whether the perturbation writes to nothing that it is given, as far as that is known.
        last_step: what is kept of the step before, where the budget depends on it; else None.
        framed, free: whether the budget is :class:`.Newest`; then the elements that may change, bool ``[B, *S]``.
        dtype, device: of the computation.
        home: the device of true values; None for where they are.
        transfer, graphs: what copies batches to the device and back, and what records attacks; None for nothing.
        look: whether answers of victims are checked, which waits for their device.
        memory: what the perturbation remembers.
    """

    rows: int | None
    batched: bool
    stream: int
    how: Any
    before_step: bool
    sees_own: bool
    native: bool
    unbounded: bool
    writes_nothing: bool
    last_step: LastStep | None
    framed: bool
    free: Tensor | None
    budget: Budget
    field: Field
    dtype: torch.dtype
    device: torch.device | None
    home: torch.device | None
    transfer: Transfer | None
    graphs: GraphCache | None
    look: bool
    memory: Leaves | None
    observation_space: Space
    clock: Clock
    session: Session
    simulators: MakesSimulators | None

    @property
    def threat(self) -> Labelled: ...
    @property
    def victims(self) -> list[Any]: ...
    @property
    def acted_on(self) -> Any: ...
    @property
    def on_host(self) -> bool: ...
    def lift(self, leaf: Any, rows: Rows = None) -> Any: ...
    def remember(self, new: Leaves, attacked: Any) -> None: ...
