"""Evaluate an agent in the style of CleanRL: a class, and a state dict in a file.

    python examples/evaluate_cleanrl.py --weights agent.pt --episodes 20

The agent is CleanRL's discrete actor-critic. If the file does not exist, the agent is trained first, with REINFORCE and
a value baseline, and saved: a small stand-in for CleanRL's own ppo.py. ``from_module`` takes the actor as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical

import adv_wrappers as adv


def layer_init(layer: nn.Linear, std: float = 2**0.5) -> nn.Linear:
    """Orthogonal weights and zero biases, as in CleanRL."""
    nn.init.orthogonal_(layer.weight, std)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    """CleanRL's agent for vectors and discrete actions."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(inputs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 1), 1.0),
        )
        self.actor = nn.Sequential(
            layer_init(nn.Linear(inputs, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, 64)),
            nn.Tanh(),
            layer_init(nn.Linear(64, actions), 0.01),
        )


def train(
    agent: Agent,
    envs: VectorEnv[Any, Any, Any],
    steps: int,
    seed: int,
    tell: Callable[[int, dict[str, Any]], None] = lambda step, info: None,
) -> None:
    """REINFORCE with a baseline on 8 environments: 64 steps, then one gradient step on returns to go.

    ``tell`` is called with every ``info`` and the number of steps of all environments.
    """
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
    obs, _ = envs.reset(seed=seed)
    for rollout in range(max(steps // (8 * 64), 1)):
        seen: list[Tensor] = []
        acted: list[Tensor] = []
        rewards: list[Tensor] = []
        going: list[Tensor] = []
        for t in range(64):
            seen.append(torch.as_tensor(obs, dtype=torch.float32))
            with torch.no_grad():
                acted.append(Categorical(logits=agent.actor(seen[-1])).sample())
            obs, reward, terminated, truncated, info = envs.step(acted[-1].numpy())
            tell(8 * (64 * rollout + t + 1), info)
            rewards.append(torch.as_tensor(reward, dtype=torch.float32))
            going.append(torch.as_tensor(~(terminated | truncated), dtype=torch.float32))
        states, actions = torch.stack(seen), torch.stack(acted)
        with torch.no_grad():
            following = agent.critic(torch.as_tensor(obs, dtype=torch.float32)).squeeze(-1)
        togo = torch.empty_like(torch.stack(rewards))
        for t in reversed(range(64)):
            following = togo[t] = rewards[t] + 0.99 * going[t] * following
        values = agent.critic(states).squeeze(-1)
        advantage = (togo - values).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = Categorical(logits=agent.actor(states))
        loss = -(policy.log_prob(actions) * advantage).mean() + 0.5 * (togo - values).square().mean()
        loss = loss - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
    envs.close()


def main() -> None:
    """Train or load the agent, wrap its actor as a victim, and play it under each threat."""
    parser = argparse.ArgumentParser(description="Evaluate a CleanRL-style agent under attack.")
    parser.add_argument("--weights", type=Path, default=Path("cleanrl-agent.pt"), help="state dict; made if missing")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps of the training run")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--eps", type=float, default=0.1, help="l-infinity radius, in raw units")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    env = gym.make(arguments.env)
    assert isinstance(env.observation_space, gym.spaces.Box) and isinstance(env.action_space, gym.spaces.Discrete)
    agent = Agent(env.observation_space.shape[0], int(env.action_space.n))
    if not arguments.weights.exists():
        envs = gym.make_vec(arguments.env, num_envs=8, vectorization_mode="sync")
        train(agent, envs, arguments.steps, arguments.seed)
        torch.save(agent.state_dict(), arguments.weights)
    agent.load_state_dict(torch.load(arguments.weights, weights_only=True))

    victim = adv.from_module(
        agent.actor, env.observation_space, env.action_space, "logits", value=agent.critic, select="sample"
    )
    eps = arguments.eps
    report = adv.evaluate(
        victim,
        arguments.env,
        [f"noise:eps={eps}", f"fgsm:eps={eps}", f"max-diff:eps={eps}"],
        episodes=arguments.episodes,
        seed=arguments.seed,
    )
    for row in report.threats:
        print(f"{row['threat']:20} {row['mean_return']:6.1f}  [{row['low']:.1f}, {row['high']:.1f}]")
    for warning in report.warnings:
        print("warning:", warning)


if __name__ == "__main__":
    main()
