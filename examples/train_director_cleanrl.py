"""Train an adversary with a single-file PPO in the manner of CleanRL: the adversary environment, without a library.

python examples/train_director_cleanrl.py --kind pa-ad
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

import adv_wrappers as adv
from adv_wrappers.adversaries import Director


def mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Two layers of 64 with tanh, orthogonal."""
    net = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
    for i, layer in enumerate(net):
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain if i == 4 else 2**0.5)
            nn.init.zeros_(layer.bias)
    return net


class Agent(nn.Module):
    """The adversary in training: its policy and a value."""

    def __init__(self, inputs: int, actions: spaces.Space[object]) -> None:
        super().__init__()
        self.discrete = isinstance(actions, spaces.Discrete)
        size = int(actions.n) if isinstance(actions, spaces.Discrete) else int(np.prod(actions.shape or ()))
        self.actor, self.critic = mlp(inputs, size, 0.01), mlp(inputs, 1, 1.0)
        self.log_std = nn.Parameter(torch.full((size,), -0.7))

    def policy(self, x: Tensor) -> Distribution:
        """The distribution of actions ``[B, A]`` at observations ``[B, n]``."""
        out = self.actor(x)
        return Categorical(logits=out) if self.discrete else Independent(Normal(out, self.log_std.exp()), 1)


def train(env: gym.vector.VectorEnv, agent: Agent, steps: int, horizon: int = 32, gamma: float = 0.99) -> None:
    """PPO: 10 epochs of 4 minibatches, clipped at 0.2, GAE of 0.95."""
    optimizer = torch.optim.Adam(agent.parameters(), 1e-3, eps=1e-5)
    rows, scale = env.num_envs, 1 / (1 - gamma)  # rewards are one per step: values stay near one
    obs, _ = env.reset(seed=0)
    for update in range(max(steps // (rows * horizon), 1)):
        seen, actions, logs, values, rewards, ends, ahead = ([] for _ in range(7))
        for _ in range(horizon):
            x = torch.as_tensor(obs, dtype=torch.float32)
            with torch.no_grad():
                policy = agent.policy(x)
                action = policy.sample()
                values.append(agent.critic(x).squeeze(-1))
            seen.append(x)
            actions.append(action)
            logs.append(policy.log_prob(action))
            obs, reward, terminated, truncated, info = env.step(action.numpy())
            last = np.array(obs)  # where an episode ended, what it ended with
            for row in np.flatnonzero(terminated | truncated):
                last[row] = info["final_obs"][row]
            with torch.no_grad():
                after = agent.critic(torch.as_tensor(last, dtype=torch.float32)).squeeze(-1)
            ahead.append(after * torch.as_tensor(~terminated))  # a truncated episode would have continued
            ends.append(torch.as_tensor(terminated | truncated).float())
            rewards.append(torch.as_tensor(reward, dtype=torch.float32) / scale)
        advantage, advantages = torch.zeros(rows), []
        for t in reversed(range(horizon)):
            delta = rewards[t] + gamma * ahead[t] - values[t]
            advantage = delta + gamma * 0.95 * (1 - ends[t]) * advantage
            advantages.append(advantage)
        x, chosen, old = torch.cat(seen), torch.cat(actions), torch.cat(logs)
        gain = torch.cat(advantages[::-1])
        target = gain + torch.cat(values)
        for _ in range(10):
            for batch in torch.randperm(len(x)).chunk(4):
                ratio = (agent.policy(x[batch]).log_prob(chosen[batch]) - old[batch]).exp()
                edge = (gain[batch] - gain[batch].mean()) / (gain[batch].std() + 1e-8)
                loss = -torch.min(ratio * edge, ratio.clamp(0.8, 1.2) * edge).mean()
                loss = loss + 0.5 * (agent.critic(x[batch]).squeeze(-1) - target[batch]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        if update % 10 == 0:
            lengths = f"{1 / max(torch.stack(ends).mean().item(), 1 / (rows * horizon)):.0f}"
            print(f"{(update + 1) * rows * horizon} steps, episodes of about {lengths}", flush=True)


def main() -> None:
    """Train, deploy, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=["pa-ad", "sa-rl"], default="pa-ad")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()
    torch.manual_seed(0)

    victim, within = adv.load_victim("zoo:cartpole-a2c"), adv.Linf(0.1)
    games = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 16, autoreset_mode=AutoresetMode.SAME_STEP)
    game: Any = adv.AdversaryEnv(games, victim, arguments.kind, within)
    agent = Agent(4, game.single_action_space)
    train(game, agent, arguments.steps)

    actor = {"pa-ad": adv.PAAD(victim), "sa-rl": adv.SARL()}[arguments.kind]
    adversary = adv.Learned(Director(agent.actor, agent.discrete, clip=arguments.kind == "sa-rl"), actor)
    threats = [adv.ThreatModel("observation", how, within) for how in (adv.Noise(), adv.MaxDiff(victim), adversary)]
    print(adv.evaluate(victim, "CartPole-v1", threats, arguments.episodes))


if __name__ == "__main__":
    main()
