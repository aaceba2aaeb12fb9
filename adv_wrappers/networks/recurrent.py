"""Recurrent networks one step at a time, with batch-first state.

A step calls ``lstm_cell`` and not ``nn.LSTM``: on CUDA the latter is cuDNN's, which refuses to differentiate a network
in evaluation mode, and attacking a victim is differentiating one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from adv_wrappers.networks.layers_torch_lacks import AppendLogStd

LSTMState = tuple[Tensor, ...]


def zero_state(shapes: Sequence[tuple[int, ...]], rows: int, *, device: torch.device, dtype: torch.dtype) -> LSTMState:
    """Zeros ``[rows, *shape]`` for every shape."""
    return tuple(torch.zeros(rows, *shape, device=device, dtype=dtype) for shape in shapes)


def lstm_step(lstm: nn.LSTM, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of a plain ``nn.LSTM``: ``x`` is ``[B, I]``, the state ``[B, layers, H]`` twice; output ``[B, H]``."""
    hiddens, cells = [], []
    for i in range(lstm.num_layers):
        weights = [getattr(lstm, f"{name}_l{i}", None) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        x, c = torch.lstm_cell(x, [hidden[:, i], cell[:, i]], *weights)  # type: ignore[arg-type]
        hiddens.append(x)
        cells.append(c)
    return x, torch.stack(hiddens, 1), torch.stack(cells, 1)


class LSTMPath(nn.Module):
    """Linear, one LSTM layer, Linear."""

    def __init__(self, embed: nn.Linear, cell: nn.LSTMCell, head: nn.Linear) -> None:
        super().__init__()
        self.embed, self.cell, self.head = embed, cell, head

    def step(self, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """New hidden and cell state, ``[B, H]`` twice."""
        out: tuple[Tensor, Tensor] = self.cell(self.embed(x), (hidden, cell))
        return out


class GaussianLSTM(nn.Module):
    """Mean and log-std ``[B, 2 D]``; the state is ``(h, c)`` of the policy, then of the value if there is one."""

    def __init__(self, normalise: nn.Module, policy: LSTMPath, log_std: Tensor, value: LSTMPath | None) -> None:
        super().__init__()
        self.normalise, self.policy, self.tail, self.value = normalise, policy, AppendLogStd(log_std), value

    def forward(self, obs: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """Parameters at ``obs``, and the state as it came: an attack evaluates this many times in one step."""
        hidden, _ = self.policy.step(self.normalise(obs), *state[:2])
        return self.tail(self.policy.head(hidden)), state

    def advance(self, obs: Tensor, state: LSTMState) -> LSTMState:
        """The state after acting on ``obs``."""
        x = self.normalise(obs)
        new = self.policy.step(x, *state[:2])
        return new if self.value is None else new + self.value.step(x, *state[2:])


class LSTMValue(nn.Module):
    """State value ``[B, 1]`` from the second half of the same state."""

    def __init__(self, normalise: nn.Module, path: LSTMPath) -> None:
        super().__init__()
        self.normalise, self.path = normalise, path

    def forward(self, obs: Tensor, state: LSTMState) -> Tensor:
        value: Tensor = self.path.head(self.path.step(self.normalise(obs), *state[2:])[0])
        return value
