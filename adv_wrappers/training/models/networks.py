"""What trainings of networks on vectors share: layers in a row from draws of their own, statistics, and Adam.

:func:`descend` is one step of it; :func:`fit` a whole training in rounds, which goes on where it stopped.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.types import Info
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.training.folder import TrainingFolder, read_tensors, write_tensors
from adv_wrappers.utils.reading import decoding
from adv_wrappers.victims.victim import Victim


def relu_mlp(sizes: Sequence[int], entropy: Sequence[int]) -> nn.Sequential:
    """Linear layers from ``sizes[0]`` to ``sizes[-1]`` numbers, as torch begins them, with ReLU units between them.

    Args:
        sizes: two at least.
        entropy: integers that the weights are drawn from.
    """
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would also decide what CUDA draws once it is used
        torch.default_generator.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))
        for inputs, outputs in itertools.pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def tanh_mlp(
    sizes: Sequence[int], last: float, draws: torch.Generator, dtype: torch.dtype = torch.float32
) -> nn.Sequential:
    """Linear layers with orthogonal weights and tanh between them.

    Args:
        sizes: from the numbers that come in to those that go out.
        last: the gain of the last layer; that of the others is the square root of 2.
        draws: the weights are drawn from.
        dtype: of the weights.
    """
    layers: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 2):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
        nn.init.orthogonal_(layer.weight, last if i == len(sizes) else 2**0.5, generator=draws)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def check_vectors(what: str, victim: Victim) -> None:
    """Raise :class:`VictimError` for a victim that does not see vectors and act by them; ``what`` is trained."""
    space, seen = victim.action_space, victim.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise VictimError(f"{what} is for continuous actions, this victim acts in {space}")
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise VictimError(f"{what} takes observations of one dimension, this victim sees {seen}")


def mean_and_std(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of rows ``[M, n]``, float32; what does not vary has a standard deviation of 1."""
    std = values.double().std(0)
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return values.double().mean(0).float(), std.float()


def descend(adam: torch.optim.Adam, loss: Tensor, rate: float, failed: str) -> None:
    """One step of Adam.

    Args:
        adam: the optimizer.
        loss: what is minimised.
        rate: the learning rate.
        failed: what a loss that is not finite means, for the error; ``{loss:g}`` in it is the loss.

    Raises:
        ValueRangeError: for a loss that is not finite.
    """
    if not loss.isfinite():
        raise ValueRangeError(failed.format(loss=loss.item()))
    (group,) = adam.param_groups
    group["lr"] = rate
    adam.zero_grad()
    loss.backward()
    adam.step()


class Learner(ABC):
    """What is trained in rounds by Adam.

    Attributes:
        net: the network.
        adam: its optimizer.
    """

    net: Any  # a module
    adam: torch.optim.Adam

    @abstractmethod
    def round(self, number: int) -> Info:
        """Learn for a round; returns its row of the record, with the ``steps`` so far."""

    def state_dict(self) -> dict[str, object]:
        """What the next round begins with: a tree of tensors, numbers and texts."""
        return {"network": self.net.state_dict(), "optimizer": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.net.load_state_dict(state["network"])
        self.adam.load_state_dict(state["optimizer"])

    def save(self, folder: Path, rows: Sequence[Info]) -> None:  # noqa: B027 - most learners have nothing to write
        """Write what is learned so far, in the rounds that ``rows`` are of; nothing by default."""


def fit(learner: Learner, rounds: int, folder: TrainingFolder, tell: Callable[[Info], None]) -> None:
    """Train in rounds with a checkpoint after each, from the last one where the folder has it.

    Args:
        learner: what is trained.
        rounds: how many.
        folder: of the training.
        tell: called with the row of every round.

    Raises:
        CardError: for a checkpoint that cannot be read.
    """
    if folder.checkpoint is not None:
        state = read_tensors(folder.checkpoint)
        with decoding(f"{folder.checkpoint} as the state of this training"):
            learner.load_state_dict(state)
    for number in range(len(folder.record), rounds):
        row = learner.round(number)
        checkpoint = folder.begin_checkpoint(row["steps"])
        if checkpoint is not None:
            write_tensors(checkpoint, learner.state_dict())
            learner.save(checkpoint, [*folder.record, row])
        folder.add(row, checkpoint, best=True)
        tell(row)


def cosine_rate(first: float, done: float, whole: float) -> float:
    """A learning rate that falls from its first value to zero along half a cosine."""
    return first * (1 + math.cos(math.pi * done / whole)) / 2
