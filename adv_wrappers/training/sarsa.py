"""Robust Sarsa's learner (Zhang et al. 2020, section 3.5; what their code does is said where it differs).

``mean SmoothL1(Q(s, a) - (r + gamma Q(s', a'))) + weight mean max(Q_high - Q, Q - Q_low)^2``, with the bounds of Q over
a box around its input, one that grows from nothing in the second third of the training (as released; the learning rate
falls to zero in the last third). Rewards are divided by the running standard deviation of the discounted return.

The paper's box is around the action alone (``box="action"``); the released code's, which is the default, around the
normalised observation and the action. The code passes from CROWN's bounds to interval bounds during the training; here
they are interval bounds throughout. Its rewards are clipped at 10 after scaling; these are not. With
``successor="shuffled"`` an episode that was cut short has no value after it, as released; else it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from adv_wrappers.bounds.interval import interval
from adv_wrappers.core.errors import ValueRangeError

SAMPLES = 4  # corners that the robustness term looks at with robust="sample"


@dataclass(frozen=True)
class Rule:
    """What is minimised, as the arguments of ``train_one`` say it."""

    robust: str | None
    eps: float
    weight: float
    box: str
    successor: str
    gamma: float
    lr: float


class Returns:
    """Running standard deviation of the discounted returns of N environments (Engstrom et al. 2020)."""

    def __init__(self, gamma: float, moments: Tensor | None = None) -> None:
        self.gamma = gamma
        self.running: NDArray[Any] | None = None
        self.moments = torch.zeros(3, dtype=torch.float64) if moments is None else moments  # count, mean, squares

    def update(self, reward: NDArray[Any], over: NDArray[Any]) -> None:
        """Take in rewards ``[T, N]`` and where episodes ended."""
        running, seen = np.zeros(reward.shape[1]) if self.running is None else self.running, []
        for r, o in zip(reward, over, strict=True):
            running = running * self.gamma + r
            seen.append(running)
            running = running * ~o
        self.running = running
        new = torch.from_numpy(np.concatenate(seen))
        (count, mean, squares), fresh = self.moments.tolist(), float(new.mean())
        n, gap = len(new), fresh - mean
        total = count + n
        squares += float((new - fresh).square().sum()) + gap**2 * count * n / total
        self.moments = torch.tensor([total, mean + gap * n / total, squares], dtype=torch.float64)

    @property
    def std(self) -> float:
        """Standard deviation so far; 1 while the returns are all one number."""
        count, _, squares = self.moments.tolist()
        std = float(np.sqrt(squares / count)) if count else 0.0
        return std if std > 1e-8 else 1.0


def network(inputs: int, hidden: tuple[int, ...], seed: int, device: Any, dtype: torch.dtype) -> nn.Sequential:
    """Tanh layers with orthogonal weights, as released; no global random number is drawn."""
    draws, layers = torch.Generator().manual_seed(seed), []
    for size, last in zip((*hidden, 1), (*[False] * len(hidden), True), strict=True):
        layer = nn.utils.skip_init(nn.Linear, inputs, size, dtype=dtype)
        nn.init.orthogonal_(layer.weight, 1.0 if last else 2**0.5, generator=draws)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers).to(device)


class Learner:
    """A network, its optimiser and the rule; inputs are normalised observations beside actions, ``[M, n + D]``."""

    def __init__(self, net: nn.Sequential, rule: Rule, features: int) -> None:
        self.net, self.rule = net, rule
        self.params = list(net.parameters())
        self.adam = torch.optim.Adam(self.params, lr=rule.lr, eps=1e-5)
        first = self.params[0]
        self.around = torch.full((first.shape[1],), rule.eps, dtype=first.dtype, device=first.device)
        if rule.box == "action":
            self.around[:features] = 0.0

    def epoch(
        self, x: Tensor, reward: Tensor, after: Tensor, ended: Tensor, over: Tensor, count: int,
        draws: torch.Generator, done: float, part: float,
    ) -> tuple[float, float]:  # fmt: skip
        """One pass through a batch; mean TD loss and mean robustness term.

        Args:
            x, after: inputs here and at the successor ``[M, n + D]``.
            reward: scaled ``[M]``; ``ended`` and ``over`` bool ``[M]``.
            count: of minibatches.
            done, part: the share of the training that is behind, and that this epoch is.
        """
        order = torch.randperm(len(x), generator=draws).to(x.device)
        losses = []
        pieces = order.tensor_split(max(min(count, len(x) // 2), 1))
        for i, rows in enumerate(pieces):
            share = done + part * i / len(pieces)
            for group in self.adam.param_groups:
                group["lr"] = self.rule.lr * max(0.0, min(1.0, 3 * (1 - share)))  # the last round may overshoot
            q = self.net(x[rows]).squeeze(-1)
            if self.rule.successor == "shuffled":
                # the released code shuffles first: what stands next in the batch is a state of some other time
                target = reward[rows[:-1]] + self.rule.gamma * q[1:].detach() * ~over[rows[:-1]]
                loss = smooth_l1_loss(q[:-1], target)
            else:
                with torch.no_grad():
                    then = self.net(after[rows]).squeeze(-1) * ~ended[rows]
                loss = smooth_l1_loss(q, reward[rows] + self.rule.gamma * then)
            grown = min(max(3 * share - 1, 0.0), 1.0)
            penalty = self._penalty(x[rows], q, grown, draws) if self.rule.robust and grown > 0 else None
            total = loss if penalty is None else loss + self.rule.weight * penalty
            self.adam.zero_grad()
            total.backward()
            self.adam.step()
            losses.append((loss.detach(), torch.zeros_like(loss) if penalty is None else penalty.detach()))
        td, smooth = (float(torch.stack(part).mean()) for part in zip(*losses, strict=True))
        if not np.isfinite(td + smooth):
            raise ValueRangeError(f"the critic diverged (loss {td}, robustness term {smooth}): try a smaller lr")
        return td, smooth

    def _penalty(self, x: Tensor, q: Tensor, grown: float, draws: torch.Generator) -> Tensor:
        around = grown * self.around
        if self.rule.robust == "interval":
            low, high = (bound.squeeze(-1) for bound in interval(self.net, x - around, x + around))
            return torch.maximum(high - q, q - low).square().mean()
        signs = torch.randint(2, (SAMPLES, *x.shape), generator=draws).to(x) * 2 - 1
        change: Tensor = self.net(x + around * signs).squeeze(-1) - q
        return change.abs().amax(0).square().mean()

    @torch.no_grad()
    def width(self, x: Tensor) -> float:
        """Mean width of the interval bounds over the whole box around ``x`` ``[M, n + D]``."""
        low, high = interval(self.net, x - self.around, x + self.around)
        return float((high - low).mean())

    def state(self) -> dict[str, Tensor]:
        """Weights and the optimiser's moments, by name."""
        moments = {f"adam.{i}.{k}": v for i, p in enumerate(self.params) for k, v in self.adam.state[p].items()}
        return {**{f"net.{name}": value for name, value in self.net.state_dict().items()}, **moments}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Inverse of :meth:`state`."""
        self.net.load_state_dict({k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")})
        for i, param in enumerate(self.params):
            known = {k.split(".", 2)[2]: v for k, v in state.items() if k.startswith(f"adam.{i}.")}
            self.adam.state[param] = {k: v.clone().to(v if k == "step" else param) for k, v in known.items()}
