"""PettingZoo environments for tests: three agents of which one dies, and two that play a Gymnasium environment each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from adv_wrappers.wrappers.single_agent_env import seed_of_agent

AGENTS = ["left", "right", "keeper"]
STEPS = 6  # of an episode


class Trio(ParallelEnv):
    """Observations are draws of the environment's stream, moved by the actions; ``right`` dies at its second step.

    Args:
        back: the step at which ``right`` is there again; None for never.
        masked: whether actions are discrete, with a mask in the info of each agent.
    """

    metadata = {"name": "trio", "render_modes": []}  # noqa: RUF012 - PettingZoo's own form

    def __init__(self, back: int | None = None, masked: bool = False) -> None:
        self.possible_agents, self.agents = list(AGENTS), []
        self.back, self.masked, self.render_mode = back, masked, None
        self.generator = np.random.default_rng(0)
        self._seen = {agent: spaces.Box(-10.0, 10.0, (3,), np.float32) for agent in AGENTS}
        box = lambda: spaces.Box(-1.0, 1.0, (2,), np.float32)  # noqa: E731
        self._acts = {agent: spaces.Discrete(4) if masked else box() for agent in AGENTS}
        self.received: list[dict[str, Any]] = []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents, self.t = list(AGENTS), 0
        return self._observations(), self._infos(self.agents)

    def _observations(self) -> dict[str, Any]:
        return {agent: self.generator.uniform(-1, 1, 3).astype(np.float32) for agent in self.agents}

    def _infos(self, agents: list[str]) -> dict[str, Any]:
        if not self.masked:
            return {agent: {} for agent in agents}
        mask = np.ones(4, np.int8)
        mask[self.t % 4] = 0
        return {agent: {"action_mask": mask} for agent in agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.received.append({agent: np.array(action) for agent, action in actions.items()})
        self.t += 1
        if self.t == self.back:
            self.agents.append("right")
        there, total = list(self.agents), float(sum(np.sum(action) for action in actions.values()))
        obs = self._observations()
        rewards = {agent: total * (1 + AGENTS.index(agent)) for agent in there}
        dies = {agent: agent == "right" and self.t == 2 for agent in there}
        ends = dict.fromkeys(there, self.t == STEPS)
        self.agents = [agent for agent in there if not (dies[agent] or ends[agent])]
        return obs, rewards, dies, ends, self._infos(there)


class SideBySide(ParallelEnv):
    """Two agents, each with a single environment of its own, reset with the agent's seed; their episodes differ.

    Args:
        make: makes the environment of an agent.
    """

    metadata = {"name": "side_by_side", "render_modes": []}  # noqa: RUF012 - PettingZoo's own form

    def __init__(self, make: Callable[[], Any]) -> None:
        self.envs, self.render_mode = {"one": make(), "other": make()}, None
        self.possible_agents, self.agents = list(self.envs), []

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.envs[agent].observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.envs[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.envs)
        started = {
            agent: env.reset(seed=None if seed is None else seed_of_agent(seed, agent))
            for agent, env in self.envs.items()
        }
        return tuple({agent: part[i] for agent, part in started.items()} for i in range(2))

    def step(self, actions: dict[str, Any]) -> Any:
        found = {agent: self.envs[agent].step(actions[agent]) for agent in self.agents}
        self.agents = [
            agent for agent, (_, _, terminated, truncated, _) in found.items() if not (terminated or truncated)
        ]
        return tuple({agent: part[i] for agent, part in found.items()} for i in range(5))
