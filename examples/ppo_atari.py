"""PPO (Schulman et al. 2017) on ALE's own vector environment, lean enough for two cores: read it from top to bottom.

Frames stay uint8 until a minibatch needs them, the network computes in bfloat16 where the processor can, and the
emulator steps all games in one call. A run that was killed goes on from its checkpoint, which is one safetensors file.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


class Agent(nn.Module):
    """The trunk of Mnih et al. 2015 with half of its channels; frames uint8 ``[B, 4, 84, 84]`` to logits and values."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        convs = [nn.Conv2d(4, 16, 8, 4), nn.Conv2d(16, 32, 4, 2), nn.Conv2d(32, 32, 3)]
        layers = [layer for conv in convs for layer in (conv, nn.ReLU())]
        self.trunk = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 49, 256), nn.ReLU())
        self.policy, self.value = nn.Linear(256, actions), nn.Linear(256, 1)
        for module in self.trunk:
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.orthogonal_(module.weight, 2**0.5)
                nn.init.constant_(module.bias, 0.0)  # type: ignore[arg-type]
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.orthogonal_(self.value.weight, 1.0)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast on a CPU

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities ``[B, A]`` and values ``[B]``, float32."""
        with torch.autocast(frames.device.type, torch.bfloat16):
            pixels = frames.to(torch.bfloat16, memory_format=torch.channels_last) / 255
            features = self.trunk(pixels)
            logits, values = self.policy(features), self.value(features)
        return torch.log_softmax(logits.float(), -1), values.float().squeeze(-1)


def ppo(
    rom: str,
    agent: Agent,
    steps: int,
    *,
    num_envs: int = 32,
    horizon: int = 128,
    minibatches: int = 4,
    epochs: int = 3,
    rate: float = 5e-4,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.1,
    entropy: float = 0.01,
    clip_rewards: bool = False,
    terminal_on_life_loss: bool = False,
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda step, score: None,
    checkpoint: Path | None = None,
    notes: dict[str, Any] | None = None,
) -> None:
    """Train ``agent`` in place for ``steps`` steps of the environment; the rate falls to zero.

    Args:
        rom: the game, such as ``"pong"`` or ``"bank_heist"``.
        clip_rewards: learn from the signs of the rewards, for games whose rewards differ in size.
        terminal_on_life_loss: let no return reach beyond a lost life. The game itself goes on, unlike under
            ``AtariVectorEnv(episodic_life=True)``, which begins a new game and never shows the second life.
        tell: called as ``tell(step, score)`` after every update; the score is the mean return of the last 100 games,
            whole and with their rewards as they are, or nan before the first has ended.
        checkpoint: a file to write after every update (after ``tell``) and, where it exists, to go on from: weights,
            moments of Adam, random numbers, counters, rate. The games begin anew, as an emulator is not saved.
        notes: the caller's own data for the checkpoint, as JSON; filled from the checkpoint that is resumed.

    Raises:
        ValueError: if the checkpoint is of a training with other settings.
    """
    # all arguments so far that are plain values: what a checkpoint has to agree with
    settings = {name: value for name, value in locals().items() if isinstance(value, (str, int, float))}
    notes = {} if notes is None else notes
    optimizer = torch.optim.Adam(agent.parameters(), lr=rate, eps=1e-5)
    step, scores = 0, deque[float](maxlen=100)
    if checkpoint and checkpoint.exists():
        state = load(checkpoint, agent, optimizer, settings)
        step = state["step"]
        scores.extend(state["scores"])
        notes.update(state["notes"])
    env = AtariVectorEnv(
        rom,
        num_envs,
        num_threads=torch.get_num_threads(),
        autoreset_mode=AutoresetMode.SAME_STEP,
        reward_clipping=False,
    )
    first, info = env.reset(seed=seed + step)
    obs = torch.from_numpy(np.array(first))
    lives: Any = info.get("lives")
    frames = torch.zeros(horizon, *obs.shape, dtype=torch.uint8)
    actions = torch.zeros(horizon, num_envs, dtype=torch.int64)
    logps, values, rewards, ended = (torch.zeros(horizon, num_envs) for _ in range(4))
    score = np.zeros(num_envs)
    batch = horizon * num_envs
    while step < max(steps // batch, 1) * batch:
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        for t in range(horizon):
            with torch.no_grad():
                logp, values[t] = agent(obs)
            frames[t], actions[t] = obs, logp.exp().multinomial(1)[:, 0]
            logps[t] = logp.gather(1, actions[t, :, None])[:, 0]
            new, reward, terminated, truncated, info = env.step(actions[t].numpy())
            obs, done = torch.from_numpy(np.array(new)), terminated | truncated
            before, lives = lives, info.get("lives")
            end = done | (lives < before) if terminal_on_life_loss else done
            gained = np.sign(reward) if clip_rewards else reward
            rewards[t], ended[t] = torch.from_numpy(gained.astype(np.float32)), torch.from_numpy(end).float()
            score += reward
            scores.extend(score[done].tolist())
            score[done] = 0
        with torch.no_grad():
            following = agent(obs)[1]
        advantages, carried = torch.zeros_like(rewards), torch.zeros(num_envs)
        for t in reversed(range(horizon)):
            alive = 1 - ended[t]
            delta = rewards[t] + gamma * alive * (following if t == horizon - 1 else values[t + 1]) - values[t]
            carried = advantages[t] = delta + gamma * lam * alive * carried
        returns = advantages + values
        flat = [part.flatten(0, 1) for part in (frames, actions, logps, advantages, returns)]
        for rows in _shuffled(batch, minibatches, epochs):
            x, action, old, advantage, target = (part[rows] for part in flat)
            logp, value = agent(x)
            ratio = (logp.gather(1, action[:, None])[:, 0] - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
            loss = 0.5 * (value - target).square().mean() - gain + entropy * (logp.exp() * logp).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        step += batch
        tell(step, float(np.mean(scores)) if scores else float("nan"))
        if checkpoint:
            state = {"step": step, "scores": list(scores), "notes": notes, "settings": settings}
            save(checkpoint, agent, optimizer, state)
    env.close()


def _shuffled(batch: int, minibatches: int, epochs: int) -> Iterator[Tensor]:
    for _ in range(epochs):
        yield from torch.randperm(batch).chunk(minibatches)


def save(path: Path, agent: Agent, optimizer: torch.optim.Adam, state: dict[str, Any]) -> None:
    """Write a checkpoint: tensors as safetensors, ``state`` as JSON in the file's header, and never a pickle.

    As it is one file that is replaced whole, a run killed at any moment leaves the one before or the new one.
    """
    tensors = {"random": torch.get_rng_state()}
    for name, parameter in agent.named_parameters():
        tensors[name] = parameter.detach().contiguous()
        tensors |= {f"{name}.{key}": moment.contiguous() for key, moment in optimizer.state[parameter].items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    save_file(tensors, beside, {"state": json.dumps(state)})
    os.replace(beside, path)


def load(path: Path, agent: Agent, optimizer: torch.optim.Adam, settings: dict[str, Any]) -> dict[str, Any]:
    """Fill agent, optimizer and torch's random numbers from a checkpoint of the same settings; its state."""
    with safe_open(path, "pt") as file:
        state: dict[str, Any] = json.loads(file.metadata()["state"])
        if state["settings"] != settings:
            raise ValueError(f"{path} is of a training with {state['settings']}, and this one has {settings}")
        for name, parameter in agent.named_parameters():
            parameter.data.copy_(file.get_tensor(name))
            moments = {key: torch.empty_like(parameter.data) for key in ("exp_avg", "exp_avg_sq")}
            for key, moment in moments.items():
                moment.copy_(file.get_tensor(f"{name}.{key}"))
            optimizer.state[parameter] = {"step": file.get_tensor(f"{name}.step"), **moments}
        torch.set_rng_state(file.get_tensor("random"))
    return state
