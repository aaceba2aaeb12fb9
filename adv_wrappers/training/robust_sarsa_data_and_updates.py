"""Robust Sarsa (Zhang et al. 2020, section 3.5): the transitions of a victim's own policy, and what is learned of them.

Minimised is ``mean SmoothL1(Q(s, a) - (r + gamma Q(s', a'))) + weight mean max(Q_high - Q, Q - Q_low)^2``, where a' is
the action that the victim truly takes at s', and Q_low and Q_high are bounds of Q over a box around its input. The box
grows from nothing in the second third of the training (as released); the learning rate falls to zero in the last third.
Rewards are divided by the running standard deviation of the discounted return.

Departures from the released code, and choices between it and the paper:

- The paper's box is around the action alone (``box="action"``); the released code's, the default here, is around the
  normalised observation and the action.
- The code passes from CROWN's bounds to interval bounds during the training; here they are interval bounds throughout.
- The code clips rewards at 10 after scaling; here they are not clipped.
- With ``successor="shuffled"`` an episode that was cut short has no value after it, as released; else it has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core import rng
from adv_wrappers.core.threat import fits
from adv_wrappers.core.types import Array
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes_under_one_threat import EpisodesVectorEnv
from adv_wrappers.victims.distributions import DeterministicFamily
from adv_wrappers.victims.purified import Purified
from adv_wrappers.victims.runner import PolicyRunner
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Victim


class _Noisy(DeterministicFamily):
    """A deterministic actor's action with Gaussian noise, clipped to the action box."""

    def __init__(self, std: Tensor, low: Tensor, high: Tensor) -> None:
        self.std, self.low, self.high = std, low, high

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        noise = rng.normal(rng.fold(key, 0), tuple(params.shape[1:]), params.dtype)
        return (params + self.std * noise).clamp(self.low, self.high)


def exploring_victim(victim: Victim, noise: float) -> Victim:
    """A copy of the victim that draws every action: from its own policy if that is Gaussian, else by adding noise.

    Args:
        victim: the victim, with continuous actions.
        noise: standard deviation of a deterministic victim's noise, as a fraction of half the range of its actions
            (of 1 where they are unbounded).

    Raises:
        VictimError: unless actions and observations are ``Box`` of one dimension.
        ValueRangeError: for a deterministic victim without noise, of which the value of other actions cannot be
            learned.
    """
    space, seen = victim.action_space, victim.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise VictimError(f"a Robust Sarsa critic is for continuous actions, this victim acts in {space}")
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise VictimError(f"a Robust Sarsa critic takes observations of one dimension, this victim sees {seen}")
    other = copy.copy(victim)
    if isinstance(other, (Smoothed, Purified)):  # which act by the agent that they are around
        other.victim, other.select = exploring_victim(other.victim, noise), "sample"
        return other
    other.select = "sample"
    if victim.kind == "mean":
        if not noise > 0:
            raise ValueRangeError(f"a deterministic victim explores by noise above 0, got {noise!r}")
        low, high = (torch.as_tensor(b, dtype=victim.dtype, device=victim.device) for b in (space.low, space.high))
        half = (high - low) / 2
        other.family = _Noisy(noise * torch.where(half.isfinite(), half, torch.ones_like(half)), low, high)
    return other


@dataclass
class Transitions:
    """Transitions of N environments, arrays ``[T, N, ...]``.

    Attributes:
        obs, act, reward: observations, the actions taken there, and the rewards.
        next_obs, next_act: the next observation of the same episode, and the victim's action there; for an episode that
            was truncated, the action that it would have taken, for one that terminated, zeros.
        ended: bool, whether the episode terminated: no value follows.
        over: bool, whether it terminated or was truncated.
        returns: returns of the episodes that were finished.
    """

    obs: Array
    act: Array
    reward: Array
    next_obs: Array
    next_act: Array
    ended: Array
    over: Array
    returns: list[float]


class TransitionCollector:
    """Collects transitions of a victim in several environments; episodes continue from one call to the next.

    Args:
        make_env: makes one environment.
        victim: the policy that acts, made by :func:`exploring_victim`.
        rows: the number of environments.
        entropy: integers that all seeds are derived from.
    """

    def __init__(
        self, make_env: Callable[[], gym.Env[Any, Any]], victim: Victim, rows: int, entropy: tuple[int, ...]
    ) -> None:
        self.venv = EpisodesVectorEnv(make_env, rows)
        try:
            fits(victim, self.venv.single_observation_space, self.venv.single_action_space)
        except VictimError:
            self.venv.close()
            raise
        self.runner, self.rows = PolicyRunner(victim, rows), rows
        self._draw = np.random.default_rng(entropy)
        self.score = np.zeros(rows)
        seeds = self._seeds()
        self.obs, _ = self.venv.reset(seed=seeds)
        self.runner.reset(None, seeds)

    def _seeds(self) -> list[int | None]:
        return [int(seed) for seed in self._draw.integers(2**31, size=self.rows)]

    def collect(self, steps: int) -> Transitions:
        """Play ``steps`` steps of every environment.

        Raises:
            ValueRangeError: for observations or rewards that are not finite.
        """
        shape, seen, acted = (steps, self.rows), self.obs.shape[1:], self.venv.single_action_space.shape or ()
        obs, act, reward, after, then = (np.zeros((*shape, *size)) for size in (seen, acted, (), seen, acted))
        taken = Transitions(obs, act, reward, after, then, np.zeros(shape, bool), np.zeros(shape, bool), [])
        for t in range(steps):
            act = self.runner.act(self.obs)
            taken.obs[t], taken.act[t] = self.obs, act
            if t:
                went_on = ~taken.over[t - 1]
                taken.next_act[t - 1][went_on] = act[went_on]
            obs, reward, ended, cut, _ = self.venv.step(act)
            if not np.isfinite(reward).all():
                raise ValueRangeError(f"the environment handed out a reward that is not finite: {reward}")
            over = ended | cut
            taken.reward[t], taken.next_obs[t], taken.ended[t], taken.over[t] = reward, obs, ended, over
            self.score += reward
            self._write_next_actions(taken.next_act[t], obs, cut & ~ended)
            if over.any():
                taken.returns += self.score[over].tolist()
                self.score[over] = 0.0
                seeds = [seed if o else None for seed, o in zip(self._seeds(), over, strict=True)]
                obs, _ = self.venv.reset(seed=seeds, options={"reset_mask": over})
                self.runner.reset(over, seeds)
            self.obs = obs
        self._write_next_actions(taken.next_act[-1], self.obs, ~taken.over[-1])
        return taken

    def _write_next_actions(self, into: Array, obs: Array, mask: Array) -> None:
        """Write the actions that the rows of ``mask`` would take at ``obs``; ``act`` will draw the same."""
        rows = np.flatnonzero(mask)
        if len(rows):
            into[rows] = self.runner.peek(obs, rows)


_CORNERS = 4  # random corners of the box that the robustness term compares with robust="sample"


@dataclass(frozen=True)
class SarsaSettings:
    """What is minimised, by the arguments of :func:`.train_one_robust_sarsa_critic.train_one_critic`."""

    robust: str | None
    eps: float
    weight: float
    box: str
    successor: str
    gamma: float
    lr: float


class ReturnStatistics:
    """Running standard deviation of the discounted returns of N environments (Engstrom et al. 2020).

    Args:
        gamma: the discount.
        moments: count, mean and sum of squared deviations, float64 ``[3]``, to continue from; None to begin.
    """

    def __init__(self, gamma: float, moments: Tensor | None = None) -> None:
        self.gamma = gamma
        self.running: Array | None = None
        self.moments = torch.zeros(3, dtype=torch.float64) if moments is None else moments  # count, mean, squares

    def update(self, reward: Array, over: Array) -> None:
        """Update with rewards ``[T, N]``, and with ``over`` bool ``[T, N]`` where episodes were finished."""
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


def critic_network(
    inputs: int, hidden: tuple[int, ...], seed: int, device: torch.device | str, dtype: torch.dtype
) -> nn.Sequential:
    """An MLP of tanh layers with orthogonal weights, as released; the global random state is not touched."""
    draws, layers = torch.Generator().manual_seed(seed), []
    for size, last in zip((*hidden, 1), (*[False] * len(hidden), True), strict=True):
        layer = nn.utils.skip_init(nn.Linear, inputs, size, dtype=dtype)
        nn.init.orthogonal_(layer.weight, 1.0 if last else 2**0.5, generator=draws)
        nn.init.zeros_(layer.bias)
        layers += [layer] if last else [layer, nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers).to(device)


class SarsaLearner:
    """Learns a critic: the network, its optimiser and the loss.

    Args:
        net: the critic, from normalised observations and actions ``[M, n + D]`` to values ``[M, 1]``.
        settings: the loss and the optimiser's settings.
        features: the number n of features of an observation.
    """

    def __init__(self, net: nn.Sequential, settings: SarsaSettings, features: int) -> None:
        self.net, self.settings = net, settings
        self.params = list(net.parameters())
        self.adam = torch.optim.Adam(self.params, lr=settings.lr, eps=1e-5)
        first = self.params[0]
        self.around = torch.full((first.shape[1],), settings.eps, dtype=first.dtype, device=first.device)
        if settings.box == "action":
            self.around[:features] = 0.0

    def epoch(
        self,
        x: Tensor,
        reward: Tensor,
        after: Tensor,
        ended: Tensor,
        over: Tensor,
        count: int,
        draws: torch.Generator,
        done: float,
        part: float,
    ) -> tuple[float, float]:
        """One pass through a batch; returns the mean TD loss and the mean robustness term.

        Args:
            x, after: inputs at the state and at its successor ``[M, n + D]``.
            reward: scaled rewards ``[M]``.
            ended, over: bool ``[M]``, as in :class:`Transitions`.
            count: the number of minibatches.
            draws: the generator of the minibatches and of random corners.
            done, part: the fraction of the whole training that lies before this epoch, and the epoch's own fraction.
        """
        order = torch.randperm(len(x), generator=draws).to(x.device)
        losses = []
        pieces = order.tensor_split(max(min(count, len(x) // 2), 1))
        for i, rows in enumerate(pieces):
            share = done + part * i / len(pieces)
            for group in self.adam.param_groups:
                group["lr"] = self.settings.lr * max(0.0, min(1.0, 3 * (1 - share)))  # the last round may overshoot
            q = self.net(x[rows]).squeeze(-1)
            if self.settings.successor == "shuffled":
                # the released code shuffles first: what stands next in the batch is a state of some other time
                target = reward[rows[:-1]] + self.settings.gamma * q[1:].detach() * ~over[rows[:-1]]
                loss = smooth_l1_loss(q[:-1], target)
            else:
                with torch.no_grad():
                    then = self.net(after[rows]).squeeze(-1) * ~ended[rows]
                loss = smooth_l1_loss(q, reward[rows] + self.settings.gamma * then)
            grown = min(max(3 * share - 1, 0.0), 1.0)
            penalty = self._penalty(x[rows], q, grown, draws) if self.settings.robust and grown > 0 else None
            total = loss if penalty is None else loss + self.settings.weight * penalty
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
        if self.settings.robust == "interval":
            low, high = (bound.squeeze(-1) for bound in interval(self.net, x - around, x + around))
            return torch.maximum(high - q, q - low).square().mean()
        signs = torch.randint(2, (_CORNERS, *x.shape), generator=draws).to(x) * 2 - 1
        change: Tensor = self.net(x + around * signs).squeeze(-1) - q
        return change.abs().amax(0).square().mean()

    @torch.no_grad()
    def width(self, x: Tensor) -> float:
        """Mean width of the interval bounds over the full box around ``x`` ``[M, n + D]``."""
        low, high = interval(self.net, x - self.around, x + self.around)
        return float((high - low).mean())

    def state_dict(self) -> dict[str, object]:
        """The states of the network and of its optimizer."""
        return {"network": self.net.state_dict(), "optimizer": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.net.load_state_dict(state["network"])
        self.adam.load_state_dict(state["optimizer"])
