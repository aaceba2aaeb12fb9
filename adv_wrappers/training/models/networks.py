"""What trainings of networks on vectors share: layers in a row from draws of their own, statistics, and Adam.

:func:`descend` is one step of it, for all of them; :func:`descend_in_rounds` a whole training on data that stays.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

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


def descend_in_rounds(
    net: nn.Module,
    rounds: int,
    steps: Callable[[int], Iterator[tuple[float, Tensor]]],
    folder: TrainingFolder,
    what: str,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Train a network by Adam, with a checkpoint after every round, from the last one where the folder has it.

    Args:
        net: the network.
        rounds: how many.
        steps: from the number of a round to its steps: the learning rate of each, and the loss, which is computed when
            the step before it has been made.
        folder: of the training.
        what: is trained, for the message.
        progress: called as ``progress("training", done, rounds)`` after every round.

    Raises:
        ValueRangeError: for a loss that is not finite.
        CardError: for a checkpoint that cannot be read.
    """
    adam = torch.optim.Adam(net.parameters())
    # on from the last checkpoint
    if folder.checkpoint is not None:
        state = read_tensors(folder.checkpoint)
        with decoding(f"{folder.checkpoint} as the state of {what}"):
            net.load_state_dict(state["network"])
            adam.load_state_dict(state["optimizer"])
    for done in range(len(folder.record), rounds):
        for rate, loss in steps(done):
            descend(adam, loss, rate, f"the training of {what} left the finite numbers: choose lr below {rate:g}")
        checkpoint = folder.begin_checkpoint(done + 1)
        if checkpoint is not None:
            write_tensors(checkpoint, {"network": net.state_dict(), "optimizer": adam.state_dict()})
        folder.add({"steps": done + 1, "loss": float(loss.detach())}, checkpoint)
        if progress is not None:
            progress("training", done + 1, rounds)


def cosine_rate(first: float, done: float, whole: float) -> float:
    """A learning rate that falls from its first value to zero along half a cosine."""
    return first * (1 + math.cos(math.pi * done / whole)) / 2
