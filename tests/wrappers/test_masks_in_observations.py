"""Action masks that lie in observations, as in PettingZoo's games: layers on actions keep to the true ones."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv

N = 5


class Game(gym.Env[Any, Any]):
    """Counts what is forbidden; masks change at every step, and with a new episode."""

    action_space: Any = spaces.Discrete(N, start=2)
    first, forbidden = 2, 0

    def __init__(self, where: str = "observation") -> None:
        self.where, self.buffer = where, np.zeros(N, np.int8)
        leaves = {"observation": spaces.Box(-1, 1, (4,))}
        if where != "info":
            leaves["action_mask"] = spaces.MultiBinary(N)
        self.observation_space = spaces.Dict(leaves)

    def show(self) -> Any:
        mask = (self.np_random.random(N) < 0.3).astype(np.int8)
        mask[self.np_random.integers(N)] = 1
        self.buffer[:] = mask  # one buffer for all steps
        obs = {"observation": self.np_random.uniform(-1, 1, 4).astype(np.float32)}
        if self.where != "info":
            obs["action_mask"] = self.buffer
        return obs, {} if self.where == "observation" else {"action_mask": mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.show()

    def step(self, action: Any) -> Any:
        self.forbidden += not self.buffer[action - self.first]
        self.t += 1
        obs, info = self.show()
        return obs, 1.0, self.t >= 4, False, info


class FromZero(Game):
    """With actions from 0, as SB3 counts them."""

    action_space = spaces.Discrete(N)
    first = 0


LARGEST = adv.ThreatModel("action", lambda x, context: context.space[1].expand_as(x), adv.Valid())


def policy(obs: Any) -> Any:
    """Logits ``[B, 5]``: those of the observation, without what the mask forbids."""
    logits = obs["observation"].sum(1, keepdim=True).repeat(1, N) * torch.arange(N)
    return logits.masked_fill(obs["action_mask"] == 0, -torch.inf)


def permitted(game: Game) -> int:
    """The first permitted action."""
    return int(np.argmax(game.buffer)) + game.first


THREATS = ["action-flip", "action-noise", "worst-action:by=policy", LARGEST, "action-delay:steps=1"]
# a function has its address in its text
IDS = ["action-flip", "action-noise", "worst-action", "largest", "action-delay"]
OVER_MASK = adv.ThreatModel("observation", adv.Noise(), adv.Valid(), at="action_mask")


def victim(game: Game) -> Any:
    return adv.from_module(policy, game.observation_space, game.action_space, "logits")


@pytest.mark.parametrize("threat", THREATS, ids=IDS)
@pytest.mark.parametrize("where", ["observation", "both", "info"])
def test_single_environments(threat: Any, where: str) -> None:
    game = Game(where)
    agent = None if where == "info" else victim(game)
    if agent is None and "worst" in str(threat):
        return
    env = adv.wrap(game, threat, victim=agent)
    for episode in range(12):
        env.reset(seed=episode)
        done = False
        while not done:
            _, _, done, _, _ = env.step(permitted(game))
    assert game.forbidden == 0


@pytest.mark.parametrize("threat", THREATS[:4], ids=IDS[:4])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("lie", [False, True])
def test_vectors(threat: Any, mode: AutoresetMode, lie: bool) -> None:
    venv: Any = SyncVectorEnv([Game] * 3, autoreset_mode=mode)
    games, agent = venv.envs, victim(venv.envs[0])
    env = adv.wrap(venv, *([OVER_MASK] if lie else []), threat, victim=agent)
    env.reset(seed=0)
    for _ in range(30):
        done = env.step(np.array([permitted(game) for game in games]))[2]
        if mode == AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})
    assert sum(game.forbidden for game in games) == 0


@pytest.mark.parametrize("threat", THREATS[:4], ids=IDS[:4])
@pytest.mark.parametrize("where", ["observation", "info"])
@pytest.mark.parametrize("lie", [False, True])
def test_vectors_of_sb3(threat: Any, where: str, lie: bool) -> None:
    module = pytest.importorskip("stable_baselines3.common.vec_env")
    venv = module.DummyVecEnv([lambda: FromZero(where)] * 3)
    games = venv.envs
    if where == "info" and (lie or "worst" in str(threat)):
        return
    agent = victim(games[0]) if where == "observation" else None
    env = adv.wrap(venv, *([OVER_MASK] if lie else []), threat, victim=agent)
    env.seed(0)
    env.reset()
    for _ in range(30):
        env.step(np.array([permitted(game) for game in games]))
    assert sum(game.forbidden for game in games) == 0


def test_a_layer_inside_the_rows_may_lie() -> None:
    venv: Any = SyncVectorEnv([lambda: adv.wrap(Game(), OVER_MASK)] * 2)
    games, env = [one.unwrapped for one in venv.envs], adv.wrap(venv, "action-noise")
    env.reset(seed=0)
    for _ in range(30):
        env.step(np.array([permitted(game) for game in games]))
    assert sum(game.forbidden for game in games) == 0


def test_an_agent_that_is_shown_another_mask_is_not_forbidden_anything_by_the_layer() -> None:
    """What the agent does by itself stays: the layer proposes nothing that is forbidden, and takes nothing away."""
    game = Game()
    env = adv.wrap(game, LARGEST)
    env.reset(seed=0)
    game.buffer[:] = [0, 1, 0, 0, 0]
    env.engine.act(2)
    sent = env.engine.act(2, torch.tensor([[0, 1, 0, 0, 0]]))
    assert int(sent) == 2


@pytest.mark.parametrize("kind", [np.array, list, torch.tensor])
def test_a_mask_of_several_actions_may_be_a_tuple(kind: Any) -> None:
    class Several(Game):
        action_space = spaces.MultiDiscrete([2, 3])

        def show(self) -> Any:
            return super().show()[0], {"action_mask": (kind([1, 0]), kind([0, 1, 0]))}

        def step(self, action: Any) -> Any:
            self.got = action.tolist()
            return super().step(2)

    game = Several("info")
    env = adv.wrap(game, adv.ThreatModel("action", lambda x, context: (x + 1) % 2, adv.L0(2)))
    env.reset(seed=0)
    for _ in range(10):
        env.step(np.array([0, 1]))
        assert game.got == [0, 1]


@pytest.mark.parametrize("threat", ["action-flip:p=1", "action-noise:p=1", "worst-action:by=policy"])
def test_evaluations(threat: str) -> None:
    made: list[Game] = []

    def make() -> Game:
        made.append(Game())
        return made[-1]

    report = adv.evaluate(victim(Game()), make, [threat], episodes=4, num_envs=2)
    assert report.threats[1]["action_change"] is not None and not any(game.forbidden for game in made)
