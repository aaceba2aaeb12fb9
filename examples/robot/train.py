"""Teach Pup-v0 to walk, and export two policies to ONNX and TorchScript.

    python train.py --out .

The first is an MLP, learned by PPO (Schulman et al. 2017) whose critic sees what the robot does not: its velocity, its
height, and which feet are on the ground. The second is an LSTM that imitates it on its own walks (DAgger, Ross et al.
2011). Together they take ten to twenty minutes on one core. The normaliser of observations is a part of every file:

- ``mlp.onnx`` and ``mlp.pt``, without a state;
- ``lstm.onnx``, whose state goes in and comes out (``h_in``, ``c_in``, ``h_out``, ``c_out``);
- ``lstm.pt``, whose state lies in buffers that ``reset_memory()`` clears.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pup import Pup
from torch import Tensor, nn

SEEN, UNSEEN, ACTIONS, STATE = 33, 8, 8, 32  # numbers of an observation, of what only the critic sees, and so on
ROWS, HORIZON, LENGTH = 32, 64, 500  # robots side by side, and steps: between two updates, and of an episode
RATE, EPOCHS, PARTS = 1e-3, 4, 4  # of learning: passes through what was played, and the parts of each
GAMMA, LAMBDA, CLIP, ENTROPY, FALL = 0.98, 0.95, 0.2, 0.002, 0.5  # of PPO; the last is what a fall costs


class Normaliser(nn.Module):
    """Observations by their mean and standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(SEEN))
        self.register_buffer("std", torch.ones(SEEN))

    def forward(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std


class Mlp(nn.Module):
    """Actions ``[..., 8]`` for observations ``[..., 33]``."""

    def __init__(self) -> None:
        super().__init__()
        self.normaliser, last = Normaliser(), nn.Linear(32, ACTIONS)
        nn.init.orthogonal_(last.weight, 0.01)
        self.body = nn.Sequential(nn.Linear(SEEN, 48), nn.ELU(), nn.Linear(48, 32), nn.ELU(), last, nn.Tanh())

    def forward(self, obs: Tensor) -> Tensor:
        actions: Tensor = self.body(self.normaliser(obs))
        return actions


class Lstm(nn.Module):
    """Actions ``[T, B, 8]`` and the next state for observations ``[T, B, 33]`` and a state.

    Args:
        normaliser: that of the policy which is imitated.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        super().__init__()
        self.normaliser, self.memory = normaliser, nn.LSTM(SEEN, STATE)
        self.body = nn.Sequential(nn.Linear(STATE, 32), nn.ELU(), nn.Linear(32, ACTIONS), nn.Tanh())

    def forward(self, obs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, (h, c) = self.memory(self.normaliser(obs), (h, c))
        return self.body(x), h, c


class OneStep(nn.Module):
    """An LSTM for one observation ``[1, 33]``."""

    def __init__(self, policy: Lstm) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        actions, h, c = self.policy(obs[None], h, c)
        return actions[0], h, c


class WithMemory(nn.Module):
    """An LSTM that keeps its state in buffers: actions ``[1, 8]`` for an observation ``[1, 33]``."""

    def __init__(self, policy: Lstm) -> None:
        super().__init__()
        self.h: Tensor
        self.c: Tensor
        self.policy = policy
        self.register_buffer("h", torch.zeros(1, 1, STATE))
        self.register_buffer("c", torch.zeros(1, 1, STATE))

    def forward(self, obs: Tensor) -> Tensor:
        actions, h, c = self.policy(obs[None], self.h, self.c)
        self.h[:] = h
        self.c[:] = c
        one: Tensor = actions[0]
        return one

    @torch.jit.export
    def reset_memory(self) -> None:
        """Begin an episode."""
        self.h[:] = 0.0
        self.c[:] = 0.0


class Robots:
    """Robots side by side, whose episodes begin again where they end."""

    def __init__(self, seed: int) -> None:
        self.envs = [Pup(command=None, pushes=True) for _ in range(ROWS)]
        self.ages = np.random.default_rng(seed).integers(0, LENGTH, ROWS)  # so that they do not end all at once
        self.totals, self.returns = np.zeros(ROWS), deque[float](maxlen=100)
        first = [env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]
        self.seen = self._all_seen(first)

    def step(self, actions: Tensor, critic: nn.Module | None = None) -> tuple[Tensor, Tensor]:
        """Rewards, and which episodes ended, both ``[B]``; what comes after a cut episode is the critic's guess."""
        rewards, ends, seen = np.zeros(ROWS, np.float32), np.zeros(ROWS, np.float32), list[Any]()
        self.ages += 1
        for i, (env, action) in enumerate(zip(self.envs, actions.numpy(), strict=True)):
            obs, reward, fallen, _, _ = env.step(action)
            self.totals[i] += reward
            rewards[i] = reward - FALL * fallen
            if fallen or self.ages[i] >= LENGTH:
                if critic is not None and not fallen:
                    rewards[i] += GAMMA * critic(torch.from_numpy(np.append(obs, env.privileged()))).item()
                self.returns.append(self.totals[i])
                ends[i], self.ages[i], self.totals[i] = 1, 0, 0
                obs, _ = env.reset()
            seen.append(obs)
        self.seen = self._all_seen(seen)
        return torch.from_numpy(rewards), torch.from_numpy(ends)

    def _all_seen(self, observations: list[Any]) -> Tensor:
        """Observations beside what only the critic sees, ``[B, 41]``."""
        unseen = [env.privileged() for env in self.envs]
        return torch.from_numpy(np.concatenate([np.stack(observations), np.stack(unseen)], 1))


def reinforced(steps: int, seed: int) -> Mlp:
    """An MLP that has learned by PPO for so many steps of the environment."""
    torch.manual_seed(seed)
    policy, robots = Mlp(), Robots(seed)
    layers = [nn.Linear(SEEN + UNSEEN, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU(), nn.Linear(64, 1)]
    critic, log_std = nn.Sequential(*layers), nn.Parameter(torch.full((ACTIONS,), -0.7))
    learned = [*policy.parameters(), *critic.parameters(), log_std]
    optimizer = torch.optim.Adam(learned, RATE, eps=1e-5)
    normaliser, statistics = policy.normaliser, list[Tensor]()
    updates, began = max(steps // (ROWS * HORIZON), 1), time.perf_counter()

    def log_prob(actions: Tensor, means: Tensor) -> Tensor:
        return (-0.5 * ((actions - means) / log_std.exp()).square() - log_std).sum(-1)

    for update in range(updates):
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)

        # play
        played = list[tuple[Tensor, ...]]()
        for _ in range(HORIZON):
            seen = robots.seen
            with torch.no_grad():
                means = policy(seen[:, :SEEN])
                actions = means + log_std.exp() * torch.randn_like(means)
            played.append((seen, actions, *robots.step(actions, critic)))
        seen, actions, rewards, ends = map(torch.stack, zip(*played, strict=True))
        obs = seen[..., :SEEN]

        # the normaliser goes on in the first tenth
        if update <= updates // 10:
            statistics.append(obs.flatten(0, 1))
            whole = torch.cat(statistics)
            normaliser.mean.copy_(whole.mean(0))
            normaliser.std.copy_(whole.std(0).clamp(0.01))

        # advantages, ``[T, B]``
        with torch.no_grad():
            values = critic(torch.cat([seen, robots.seen[None]]))[..., 0]
            old = log_prob(actions, policy(obs))
        advantages, last = torch.zeros(HORIZON, ROWS), torch.zeros(ROWS)
        for t in reversed(range(HORIZON)):
            on = GAMMA * (1 - ends[t])
            last = rewards[t] + on * values[t + 1] - values[t] + LAMBDA * on * last
            advantages[t] = last
        targets = advantages + values[:-1]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

        # learn
        for rows in (rows for _ in range(EPOCHS) for rows in torch.randperm(ROWS).chunk(PARTS)):
            means, gain = policy(obs[:, rows]), advantages[:, rows]
            ratio = (log_prob(actions[:, rows], means) - old[:, rows]).exp()
            surrogate = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            error = (critic(seen[:, rows])[..., 0] - targets[:, rows]).square().mean()
            optimizer.zero_grad()
            (error - surrogate - ENTROPY * log_std.sum()).backward()
            nn.utils.clip_grad_norm_(learned, 0.5)
            optimizer.step()
        if update % 10 == 9 or update == updates - 1:
            _tell("PPO", update, robots, began)
    return policy.requires_grad_(False)


def imitating(teacher: Mlp, rounds: int, seed: int) -> Lstm:
    """An LSTM that has learned to do what a policy does, at the observations that it comes to itself."""
    torch.manual_seed(seed)
    policy, began = Lstm(teacher.normaliser), time.perf_counter()
    optimizer = torch.optim.Adam([*policy.memory.parameters(), *policy.body.parameters()], RATE)
    kept = deque[tuple[Tensor, ...]](maxlen=8)
    for each in range(rounds):
        optimizer.param_groups[0]["lr"] = RATE * (1 - each / rounds)
        if each % 4 == 0:  # else the first steps of an episode would hardly be among what is learned from
            robots, h, c = Robots(seed + each), torch.zeros(1, ROWS, STATE), torch.zeros(1, ROWS, STATE)

        # play, the teacher in the first round; the state at the begin is kept with what was seen
        first, seen, begins = (h, c), list[Tensor](), list[Tensor]()
        for _ in range(HORIZON):
            obs = robots.seen[:, :SEEN]
            with torch.no_grad():
                actions, h, c = policy(obs[None], h, c)
                _, ends = robots.step(actions[0] if each else teacher(obs))
            seen.append(obs)
            begins.append(ends)
            h, c = (part * (1 - ends[:, None]) for part in (h, c))
        whole = torch.stack(begins).sum(0) == 0  # rows without an end
        obs = torch.stack(seen)[:, whole]
        kept.append((obs, teacher(obs), *(part[:, whole] for part in first)))

        # learn from the latest rounds
        for _ in range(EPOCHS):
            for obs, wanted, *state in kept:
                error = (policy(obs, *state)[0] - wanted).square().mean()
                optimizer.zero_grad()
                error.backward()
                optimizer.step()
        if each % 10 == 9 or each == rounds - 1:
            _tell(f"imitation, error {error.item() ** 0.5:.3f}", each, robots, began)
    return policy.requires_grad_(False)


def _tell(what: str, update: int, robots: Robots, began: float) -> None:
    mean, seconds = np.mean(robots.returns or [np.nan]), time.perf_counter() - began
    print(f"{what}: {(update + 1) * ROWS * HORIZON} steps, {seconds:.0f} s, return {mean:.2f}", flush=True)


def export(mlp: Mlp, lstm: Lstm, out: Path) -> None:
    """Write both policies as ONNX and as TorchScript."""
    obs, state = torch.zeros(1, SEEN), torch.zeros(1, 1, STATE)
    how: Any = {"dynamo": False, "opset_version": 17}
    named: Any = {"input_names": ["obs", "h_in", "c_in"], "output_names": ["actions", "h_out", "c_out"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both exporters are to be replaced one day
        torch.onnx.export(mlp, (obs,), str(out / "mlp.onnx"), input_names=["obs"], output_names=["actions"], **how)
        torch.onnx.export(OneStep(lstm), (obs, state, state), str(out / "lstm.onnx"), **named, **how)
        torch.jit.save(torch.jit.script(mlp), str(out / "mlp.pt"))
        torch.jit.save(torch.jit.script(WithMemory(lstm)), str(out / "lstm.pt"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--steps", type=int, default=600_000, help="of PPO")
    parser.add_argument("--rounds", type=int, default=120, help="of imitation, 2048 steps each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    mlp = reinforced(given.steps, given.seed)
    export(mlp, imitating(mlp, given.rounds, given.seed), given.out)
