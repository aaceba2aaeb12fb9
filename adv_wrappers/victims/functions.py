"""Victims that are functions: of numpy arrays, or that name the action they choose and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Categorical, Distribution
from torch.nn.functional import one_hot

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import leaves, map_leaves
from adv_wrappers.victims.victim import choice_sizes

# ----------------------------------------------------------------------------------------------------------------------
# Functions on numpy arrays as victims: tensors are copied to arrays on the way in, and what they answer to tensors.
#
# Such a victim has outputs and no gradients, so it is attacked by its outputs alone.
# ----------------------------------------------------------------------------------------------------------------------


def is_array(value: object) -> bool:
    """Whether this is a numpy array, or what turns into one, and no tensor."""
    objects = getattr(value, "dtype", None) == np.dtype(object)  # a state that a function keeps itself
    return not isinstance(value, Tensor) and hasattr(value, "__array__") and not objects


def answers_arrays(answer: object) -> bool:
    """Whether an answer is an array, or a tuple that begins with one: a mean, or an output beside a state."""
    return is_array(answer[0] if isinstance(answer, tuple) and answer else answer)


def to_arrays(tree: object) -> Any:
    """Tensors of a tree as arrays of their own memory, which may be written to."""
    return map_leaves(lambda leaf: leaf.detach().cpu().numpy().copy() if isinstance(leaf, Tensor) else leaf, tree)


def to_tensors(tree: object, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Arrays and tensors of a tree as tensors of ``dtype``, by default their own."""

    def tensor(leaf: object) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device=device, dtype=dtype)
        return torch.tensor(np.asarray(leaf), dtype=dtype, device=device) if is_array(leaf) else leaf

    return map_leaves(tensor, tree)


class ArrayFunction:
    """A function on numpy arrays, as a function on tensors without gradients.

    Args:
        function: takes and returns arrays; a recurrent one takes ``(obs, state)`` and returns ``(output, state)``.
        recurrent: whether it does.
        device, dtype: of the output. The leaves of a state keep their own dtype.
        takes_tensors: whether the function is given tensors, and only returns arrays.
    """

    def __init__(
        self,
        function: Callable[..., object],
        recurrent: bool,
        device: torch.device,
        dtype: torch.dtype,
        takes_tensors: bool = False,
    ) -> None:
        self.function = function
        self.recurrent = recurrent
        self.device = device
        self.dtype = dtype
        self.takes_tensors = takes_tensors

    def __call__(self, *inputs: object) -> Any:
        with torch.no_grad():
            answer = self.function(*(inputs if self.takes_tensors else map(to_arrays, inputs)))
        if self.recurrent and isinstance(answer, tuple) and len(answer) == 2:
            return to_tensors(answer[0], self.device, self.dtype), to_tensors(answer[1], self.device)
        return to_tensors(answer, self.device, self.dtype)


class ArrayStart:
    """The initial state of a recurrent function on arrays, as tensors."""

    def __init__(self, start: Callable[[int], object], device: torch.device) -> None:
        self.start, self.device = start, device

    def __call__(self, rows: int) -> Any:
        return to_tensors(self.start(rows), self.device)


class SingleObservation:
    """A function of one observation ``[*S]``, as a function of a batch of one.

    Args:
        function: takes an observation as the environment hands it out; anything that turns into an array is an answer.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function

    def __call__(self, obs: object) -> Any:
        """The answer as one row.

        Raises:
            ValueError: for more than one observation.
        """
        if any(len(leaf) != 1 for leaf in leaves(obs)):
            raise ValueError("a function of one observation")
        return batched(self.function(map_leaves(lambda leaf: leaf[0], obs)))


def batched(answer: Any) -> Any:
    """An answer for one observation, as that for a batch of one; :class:`TypeError` for what is no number."""
    if isinstance(answer, tuple):
        return tuple(batched(part) for part in answer)
    if isinstance(answer, (Tensor, np.ndarray)):
        return answer[None]
    made = np.asarray([answer])
    if made.dtype == np.dtype(object):
        raise TypeError(f"expected numbers, got {answer!r:.80}")
    return made


# ----------------------------------------------------------------------------------------------------------------------
# Answers of several parts.
# ----------------------------------------------------------------------------------------------------------------------


def main_part(answer: Any, sizes: list[int], pair: bool) -> Any:
    """What a victim reads of an answer: logits of several choices side by side, or the first of other parts.

    Args:
        answer: of a module; one that has a single part is returned as it is, and so are two tensors.
        sizes: of how many each choice of a discrete action is one.
        pair: whether the first two of more parts are a mean and a log-std.
    """
    # one head for each choice
    if isinstance(answer, (tuple, list)) and len(answer) == len(sizes) > 1:
        heads = [head.logits if isinstance(head, Categorical) else head for head in answer]
        if [tuple(getattr(head, "shape", ()))[1:] for head in heads] == [(size,) for size in sizes]:
            return torch.cat(heads, 1) if isinstance(heads[0], Tensor) else np.concatenate(heads, 1)
    if isinstance(answer, tuple) and len(answer) > 1:
        if isinstance(answer[0], (Distribution, tuple, list)):
            return main_part(answer[0], sizes, pair)
        return answer if len(answer) == 2 else answer[:2] if pair else answer[0]
    return answer


class MainPart:
    """A module or function by the :func:`main_part` of what it answers; a hidden state stays beside it.

    Args:
        function: the module or function.
        sizes, pair: as :func:`main_part` takes them.
    """

    def __init__(self, function: Callable[..., Any], sizes: list[int], pair: bool) -> None:
        self.function = function
        self.sizes = sizes
        self.pair = pair

    def __call__(self, obs: object, *state: object) -> Any:
        answer, rows = self.function(obs, *state), len(next(leaves(obs)))
        return (self.read(answer[0], rows), answer[1]) if state else self.read(answer, rows)

    def read(self, answer: Any, rows: int) -> Any:
        """What a victim reads of an answer, with an axis of rows."""
        part = main_part(answer, self.sizes, self.pair)
        if getattr(part, "ndim", 0) == 1 and len(part) % rows == 0:  # one number a row, or a row that was squeezed
            return part.reshape(rows, -1)
        return part


# ----------------------------------------------------------------------------------------------------------------------
# Functions that only choose an action: discrete ones as logits, one for the chosen action and zero for the others.
# ----------------------------------------------------------------------------------------------------------------------


class ChosenActions:
    """A module or function that returns native discrete actions, as one that returns logits without a gradient.

    Args:
        function: observations to actions ``[B]`` (``[B, D]`` for MultiDiscrete and MultiBinary), tensors or arrays;
            a tuple is taken by its first entry, as SB3's ``predict`` and ``forward`` return it. One with a hidden state
            takes it too, and returns actions and the next state.
        space: the action space: Discrete, MultiDiscrete or MultiBinary.
    """

    def __init__(self, function: Callable[..., object], space: spaces.Space[object]) -> None:
        self.function = function
        self.space = space
        self.sizes = choice_sizes(space)
        self.start = np.broadcast_to(np.ravel(getattr(space, "start", 0)), len(self.sizes)).tolist()

    def __call__(self, obs: object, *state: object) -> object:
        """Logits ``[B, K]`` in float32: a tensor where the function answers with one, else an array.

        With a hidden state they are the first of a pair, beside the next state.

        Raises:
            VictimError: for answers that are no actions of the space.
        """
        answer = self.function(obs, *state)
        if state and isinstance(answer, tuple):
            return self._logits(answer[0]), answer[-1]
        return self._logits(answer)

    def _logits(self, answer: object) -> object:
        answer = answer[0] if isinstance(answer, tuple) and answer else answer
        chosen = answer.detach() if isinstance(answer, Tensor) else torch.as_tensor(np.asarray(answer))
        wide = chosen.reshape(len(chosen), -1) if chosen.dim() else chosen.reshape(1, 1)
        # the answer has to be whole numbers, one for each choice, that the space has
        index = wide.double() - torch.tensor(self.start, dtype=torch.float64, device=wide.device)
        ends = torch.tensor(self.sizes, dtype=torch.float64, device=wide.device)
        whole = wide.shape[1] == len(self.sizes)
        if not whole or not bool(((index >= 0) & (index < ends) & (index == index.floor())).all()):
            shown = chosen.flatten()[:3].tolist()
            got = f"{chosen.dtype} of shape {tuple(chosen.shape)}, such as {shown}"
            raise VictimError(
                f"kind='action' takes a module that returns actions of {self.space}, got {got}: Q-values are kind='q', "
                "and logits kind='logits'"
            )
        # logits that are 1 for the choice that was made, and 0 for all others
        columns = zip(index.long().unbind(1), self.sizes, strict=True)
        logits = torch.cat([one_hot(column, size) for column, size in columns], 1).float()
        return logits if isinstance(answer, Tensor) else logits.numpy()
