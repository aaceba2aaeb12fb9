"""Action masks in observations, infos, and what environments are asked for: layers on actions keep to the true ones."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.core.action_masks import as_mask, mask_name

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


class Asked(Game):
    """Says what is allowed when it is asked, as sb3-contrib has it."""

    def __init__(self) -> None:
        super().__init__("")
        self.observation_space = spaces.Dict(observation=spaces.Box(-1, 1, (4,)))

    def show(self) -> Any:
        obs, _ = super().show()
        return {"observation": obs["observation"]}, {}

    def action_masks(self) -> Any:
        return self.buffer == 1


class Named(Game):
    """Its masks have another name, and lie deeper."""

    def __init__(self) -> None:
        super().__init__("")
        inner = spaces.Dict(observation=spaces.Box(-1, 1, (4,)), legal_actions=spaces.Box(0, 1, (N,), np.int8))
        self.observation_space = spaces.Dict(turn=spaces.Discrete(2), agent=inner)

    def show(self) -> Any:
        obs, _ = super().show()
        return {"turn": 0, "agent": {"observation": obs["observation"], "legal_actions": obs["action_mask"]}}, {}


class Infos(Named):
    """What is allowed lies in infos, under another name, as numbers of actions."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(observation=spaces.Box(-1, 1, (4,)))

    def show(self) -> Any:
        obs, _ = super().show()
        return {"observation": obs["agent"]["observation"]}, {"legal_actions": np.flatnonzero(self.buffer).tolist()}


class ByMethod(Infos):
    """It is asked by another name."""

    def show(self) -> Any:
        return super().show()[0], {}

    def valid_action_mask(self) -> Any:
        return self.buffer == 1


class ByAttribute(ByMethod):
    valid_action_mask: Any = None
    action_mask = property(lambda self: self.buffer)


class InfoMask(Infos):
    def show(self) -> Any:
        obs, _ = super().show()
        return obs, {"action_masks": self.buffer.copy(), "attention_mask": "all"}


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
@pytest.mark.parametrize("where", ["both", "info"])
def test_single_environments(threat: Any, where: str) -> None:
    game = Game(where)
    agent = None if where == "info" else victim(game)
    if agent is None and "worst" in str(threat):
        return
    env = adv.wrap(game, threat, victim=agent)
    for episode in range(6):
        env.reset(seed=episode)
        done = False
        while not done:
            _, _, done, _, _ = env.step(permitted(game))
    assert game.forbidden == 0


@pytest.mark.parametrize("threat", THREATS[1:3], ids=IDS[1:3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vectors(threat: Any, mode: AutoresetMode) -> None:
    """Also where a layer on observations lies about what is allowed."""
    venv: Any = SyncVectorEnv([Game] * 3, autoreset_mode=mode)
    games, agent = venv.envs, victim(venv.envs[0])
    env = adv.wrap(venv, OVER_MASK, threat, victim=agent)
    env.reset(seed=0)
    for _ in range(30):
        done = env.step(np.array([permitted(game) for game in games]))[2]
        if mode == AutoresetMode.DISABLED and done.any():
            env.reset(options={"reset_mask": done})
    assert sum(game.forbidden for game in games) == 0


@pytest.mark.parametrize(("threat", "where"), [(THREATS[2], "observation"), (THREATS[1], "info")])
def test_vectors_of_sb3(threat: Any, where: str) -> None:
    module = pytest.importorskip("stable_baselines3.common.vec_env")
    venv = module.DummyVecEnv([lambda: FromZero(where)] * 3)
    games = venv.envs
    agent = victim(games[0]) if where == "observation" else None
    env = adv.wrap(venv, *([OVER_MASK] if agent else []), threat, victim=agent)
    env.seed(0)
    env.reset()
    for _ in range(30):
        env.step(np.array([permitted(game) for game in games]))
    assert sum(game.forbidden for game in games) == 0


@pytest.mark.parametrize("kind", [Infos, InfoMask, ByMethod, ByAttribute])
def test_evaluations_find_other_names(kind: Any) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(kind())
        return made[-1]

    def choose(obs: Any) -> Any:
        return torch.stack([torch.as_tensor(game.buffer).float() for game in made[-len(obs["observation"]) :]])

    agent = adv.from_module(choose, make().observation_space, Game.action_space, "logits")
    adv.evaluate(agent, make, ["action-noise:p=1"], episodes=4, num_envs=1)
    assert not any(game.forbidden for game in made[1:])


def test_what_has_the_form_of_a_mask() -> None:
    assert as_mask([0, 1], (2,), "legal_actions").tolist() == [1, 1]
    assert as_mask([0, 1], (2,), "valid_mask").tolist() == [0, 1]
    assert as_mask((1, 1), (2,), "legal_actions").tolist() == [1, 1]
    assert as_mask(np.eye(3)[:2], (3,), "mask").tolist() == [[1, 0, 0], [0, 1, 0]]
    assert (
        as_mask([2, 5], (3,), "legal_actions") is as_mask([1, 1], (3,), "mask") is as_mask(None, (3,), "mask") is None
    )
    assert mask_name({"invalid_mask": [0, 1], "x": 1}, (2,)) is None
    assert mask_name({"avail_actions": [0, 1]}, (2,)) == "avail_actions"


@pytest.mark.parametrize("kind", [Asked, Named, ByMethod, ByAttribute, Infos])
def test_other_ways_to_say_what_is_allowed(kind: Any) -> None:
    single, venv = kind(), SyncVectorEnv([kind] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    env, vector = adv.wrap(single, "action-noise"), adv.wrap(venv, "action-noise")
    vector.reset(seed=0)
    for episode in range(8):
        env.reset(seed=episode)
        for _ in range(4):
            env.step(permitted(single))
            vector.step(np.array([permitted(game) for game in venv.envs]))
    assert not any(game.forbidden for game in [single, *venv.envs])


def test_a_vector_of_sb3_is_asked() -> None:
    module = pytest.importorskip("stable_baselines3.common.vec_env")
    kind = type("AskedFromZero", (Asked,), {"action_space": spaces.Discrete(N), "first": 0})
    venv = module.DummyVecEnv([kind] * 3)
    env = adv.wrap(venv, "action-noise")
    env.reset()
    for _ in range(30):
        env.step(np.array([permitted(game) for game in venv.envs]))
    assert sum(game.forbidden for game in venv.envs) == 0


def test_evaluations_ask_too() -> None:
    made: list[Asked] = []

    def make() -> Asked:
        made.append(Asked())
        return made[-1]

    def choose(obs: Any) -> Any:
        return torch.stack([torch.as_tensor(made[-1].action_masks()).float()] * len(obs["observation"]))

    agent = adv.from_module(choose, make().observation_space, Game.action_space, "logits")
    adv.evaluate(agent, make, ["action-flip:p=1"], episodes=4, num_envs=1)
    assert made[-1].t and not any(game.forbidden for game in made)


def test_what_the_agent_itself_rules_out_is_no_worst_action() -> None:
    game = type("Silent", (Game,), {"show": lambda self: ({"observation": Game.show(self)[0]["observation"]}, {})})("")
    game.observation_space = spaces.Dict(observation=spaces.Box(-1, 1, (4,)))
    logits = torch.tensor([[3.0, -torch.inf, 1.0, 2.0, -torch.inf]])
    agent = adv.from_module(lambda obs: logits.expand(len(obs["observation"]), N), game.observation_space,
                            game.action_space, "logits")  # fmt: skip
    sent: list[int] = []
    game.step = lambda action: (sent.append(int(action)), Game.step(game, action))[1]
    env = adv.wrap(game, "worst-action:by=policy", victim=agent)
    env.reset(seed=0)
    env.step(2)
    assert sent == [4]


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


def test_evaluations() -> None:
    made: list[Game] = []

    def make() -> Game:
        made.append(Game())
        return made[-1]

    report = adv.evaluate(victim(Game()), make, ["worst-action:by=policy"], episodes=4, num_envs=2)
    assert report.threats[1]["action_change"] is not None and not any(game.forbidden for game in made)
