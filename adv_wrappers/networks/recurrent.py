"""Recurrent networks one step at a time, with batch-first state.

A step calls ``lstm_cell`` and not ``nn.LSTM``: on CUDA the latter is cuDNN's, which refuses to differentiate a network
in evaluation mode, and attacking a victim is differentiating one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

LSTMState = tuple[Tensor, ...]


def is_plain(lstm: nn.LSTM) -> bool:
    """Whether it goes one way, has biases and is not projected: what :func:`lstm_step` takes."""
    return lstm.bias and not lstm.bidirectional and not lstm.proj_size


def zero_state(lstms: Iterable[nn.LSTM], rows: int) -> LSTMState:
    """The state at the start of an episode: zeros ``[rows, layers, H]`` like the weights, twice for every LSTM."""
    return tuple(
        cast(Tensor, lstm.weight_hh_l0).new_zeros(rows, lstm.num_layers, lstm.hidden_size)
        for lstm in lstms
        for _ in "hc"
    )


def lstm_step(lstm: nn.LSTM, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of a plain ``nn.LSTM``: ``x`` is ``[B, I]``, the state ``[B, layers, H]`` twice; output ``[B, H]``."""
    hiddens, cells = [], []
    for i in range(lstm.num_layers):
        weights = [getattr(lstm, f"{name}_l{i}", None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        x, c = torch.lstm_cell(x, [hidden[:, i], cell[:, i]], *weights)  # type: ignore[arg-type]
        hiddens.append(x)
        cells.append(c)
    return x, torch.stack(hiddens, 1), torch.stack(cells, 1)


class RecurrentActor(nn.Module):
    """Parameters of a policy through one LSTM: of sb3-contrib's RecurrentPPO, or of a card with a list of layers.

    The state is ``(h, c)`` of the policy's LSTM, then of the value's if that has its own, each ``[B, layers, H]``.

    Args:
        features: what stands before the LSTM; its outputs are ``[B, I]``.
        lstm: one or more layers, one way, with biases and without a projection.
        head: from ``[B, H]`` to the parameters ``[B, K]``.
        critic: what stands before the value's own LSTM, and that LSTM; None where the value has none.
    """

    def __init__(
        self, features: nn.Module, lstm: nn.LSTM, head: nn.Module, critic: tuple[nn.Module, nn.LSTM] | None
    ) -> None:
        super().__init__()
        self.features = features
        self.lstm = lstm
        self.head = head
        self.critic = nn.ModuleList(critic or [])

    @property
    def parts(self) -> list[nn.Module]:
        """What an observation goes through to become parameters, in order."""
        return [self.features, self.lstm, self.head]

    def initial_state(self, rows: int) -> LSTMState:
        """The state at the start of an episode."""
        return zero_state(cast(list[nn.LSTM], [self.lstm, *self.critic[1:]]), rows)

    def forward(self, obs: Any, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Parameters at ``obs``, and the state as it came."""
        return self.head(lstm_step(self.lstm, self.features(obs), *state[:2])[0]), state

    def advance(self, obs: Any, state: LSTMState) -> LSTMState:
        """The state after acting on ``obs``."""
        new: LSTMState = lstm_step(self.lstm, self.features(obs), *state[:2])[1:]
        if len(self.critic):
            features, lstm = self.critic
            assert isinstance(lstm, nn.LSTM)
            new += lstm_step(lstm, features(obs), *state[2:])[1:]
        return new


class RecurrentValue(nn.Module):
    """The value beside a :class:`RecurrentActor`: of its own LSTM, of the actor's, or of none.

    Args:
        features: what stands before the LSTM, or before ``plain``.
        lstm: the value's LSTM; None for a value that remembers nothing.
        plain: what stands in the place of an LSTM, or None.
        head: to the value ``[B, 1]``.
        own: whether the LSTM is the value's own, whose state is the second half.
    """

    def __init__(
        self, features: nn.Module, lstm: nn.LSTM | None, plain: nn.Module | None, head: nn.Module, own: bool
    ) -> None:
        super().__init__()
        self.features = features
        self.lstm = lstm
        self.plain = plain
        self.head = head
        self.own = own

    @property
    def parts(self) -> list[nn.Module]:
        """What an observation goes through to become a value, in order."""
        middle = self.plain if self.lstm is None else self.lstm
        return [self.features, self.head] if middle is None else [self.features, middle, self.head]

    def forward(self, obs: Any, state: LSTMState) -> Any:
        x = self.features(obs)
        if self.lstm is not None:
            x = lstm_step(self.lstm, x, *(state[2:] if self.own else state[:2]))[0]
        elif self.plain is not None:
            x = self.plain(x)
        return self.head(x)
