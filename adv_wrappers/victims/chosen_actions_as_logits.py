"""Functions that only choose an action: discrete ones as logits, one for the chosen action and zero for the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.errors import Argument, Message, VictimError


class ChosenActions:
    """A module or function that returns native discrete actions, as one that returns logits without a gradient.

    Args:
        function: observations to actions ``[B]`` (``[B, D]`` for MultiDiscrete and MultiBinary), tensors or arrays;
            a tuple is taken by its first entry, as SB3's ``predict`` and ``forward`` return it. One with a hidden state
            takes it too, and returns actions and the next state.
        space: the action space: Discrete, MultiDiscrete or MultiBinary.
    """

    def __init__(self, function: Callable[..., object], space: spaces.Space[object]) -> None:
        self.function, self.space = function, space
        if isinstance(space, spaces.Discrete):
            self.sizes, self.start = [int(space.n)], [int(space.start)]
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes, self.start = space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist()
        else:
            self.sizes = [2] * int(np.prod(space.shape or ()))
            self.start = [0] * len(self.sizes)

    def __call__(self, obs: object, *state: object) -> object:
        """Logits ``[B, K]`` in float32: a tensor where the function answers with one, else an array.

        With a hidden state they are the first of a pair, beside the next state.

        Raises:
            VictimError: for answers that are no actions of the space.
        """
        answer = self.function(obs, *state)
        if state and isinstance(answer, tuple):
            return self._logits(answer[0]), answer[1]
        return self._logits(answer)

    def _logits(self, answer: object) -> object:
        answer = answer[0] if isinstance(answer, tuple) and answer else answer
        chosen = answer.detach() if isinstance(answer, Tensor) else torch.as_tensor(np.asarray(answer))
        wide = chosen.reshape(len(chosen), -1) if chosen.dim() else chosen.reshape(1, 1)
        index = wide.double() - torch.tensor(self.start, dtype=torch.float64, device=wide.device)
        ends = torch.tensor(self.sizes, dtype=torch.float64, device=wide.device)
        whole = wide.shape[1] == len(self.sizes)
        if not whole or not bool(((index >= 0) & (index < ends) & (index == index.floor())).all()):
            shown = chosen.flatten()[:3].tolist()
            got = f"{chosen.dtype} of shape {tuple(chosen.shape)}, such as {shown}"
            raise VictimError(
                Message(
                    Argument("kind", "action"),
                    f" takes a module that returns actions of {self.space}, got {got}: Q-values are ",
                    Argument("kind", "q"),
                    ", and logits ",
                    Argument("kind", "logits"),
                )
            )
        columns = zip(index.long().unbind(1), self.sizes, strict=True)
        logits = torch.cat([one_hot(column, size) for column, size in columns], 1).float()
        return logits if isinstance(answer, Tensor) else logits.numpy()
