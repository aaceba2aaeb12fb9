"""A context whose attack is recorded as a graph: what differs from step to step is an input, and the rest not there."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.core.context import EPISODE_STREAM, Context
from adv_wrappers.core.layer_protocol import AttackedLayer
from adv_wrappers.core.types import Info, VictimLike


def _not_recorded(name: str) -> property:
    def refuse(context: Context) -> None:
        raise AttributeError(f"a capturable perturbation must not look at context.{name}")

    return property(refuse)


class RecordedContext(Context):
    """A context to be recorded: what differs from step to step, and is no tensor, is not there.

    Args:
        engine: of the layer.
        inputs: what :meth:`Context.inputs` made, or static copies of it.
    """

    t, spent, memory, simulator = map(_not_recorded, ("t", "spent", "memory", "simulator"))

    def __init__(self, engine: AttackedLayer, inputs: Info) -> None:
        super().__init__(engine, None, inputs["part"])
        self._inputs = inputs
        vars(self).update(part=inputs["part"], free=inputs["free"], mask=inputs["mask"])

    def again(self) -> RecordedContext:
        return RecordedContext(self._engine, self._inputs)

    @cached_property
    def observation(self) -> Any:
        seen = self._inputs["observation"]
        return self._received() if seen is None and not self._engine.before_step else seen

    def state(self, victim: VictimLike) -> Any:
        return self._inputs["states"].get(id(victim))

    @cached_property
    def key(self) -> Tensor:
        return self._input_key(0)

    @cached_property
    def episode_key(self) -> Tensor:
        return self._input_key(1)

    def _input_key(self, which: int) -> Tensor:
        if "keys" in self._inputs:
            key: Tensor = self._inputs["keys"][which]()
            return key
        root, episode, t = self._inputs["clock"]
        last = EPISODE_STREAM if which else t()
        key = rng.fold(rng.fold(rng.fold(root(), episode()), last), self._engine.stream)
        return key
