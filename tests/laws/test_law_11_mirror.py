"""Law 11, the mirror: what an adversary earns in its environment is what the agent loses under the deployed adversary.

The same episodes are played twice: once by a director in :class:`AdversaryEnv`, and once by the agent, through the same
policy runner, in an environment under the director as a :class:`Learned` perturbation.
"""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries import PAAD, SARL, ActionPAAD, Director, Hybrid, Induce, Learned, Timed
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.adversary_env import AdversaryEnv
from tests.laws.checks import by_turns
from tests.rigs import spread
from tests.toys import Brief

CART = gym.make("CartPole-v1")
BUDGET = adv.Linf(0.3, scale=(0.1, 0.5, 0.05, 0.5))
WHEN = adv.Bernoulli(0.7) & adv.AtMost(40)
PUSHES = 10  # steps of an episode of Push


class Cell(nn.Module):
    """A recurrent policy over two actions."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(4, 8), nn.Linear(8, 2)

    def forward(self, x, state):
        state = self.cell(x, state)
        return self.head(state), state


def victim(kind: str = "logits", select: str = "sample"):
    torch.manual_seed(0)
    if kind == "recurrent":
        return adv.from_module(
            spread(Cell()).double(),
            CART.observation_space,
            CART.action_space,
            "logits",
            select=select,
            initial_state=lambda rows: torch.zeros(rows, 8, dtype=torch.float64),
        )
    net = spread(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))).double()
    return adv.from_module(
        net, CART.observation_space, CART.action_space, kind, select="mode" if kind == "q" else select
    )


def director(actor, inputs: int = 4) -> Director:
    torch.manual_seed(2 if actor.declines else 1)  # one that declines some steps, and not all
    space = actor.action_space((inputs,))
    discrete = isinstance(space, spaces.Discrete)
    outputs = int(space.n) if discrete else space.shape[0]
    net = spread(nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs)))
    return Director(net, discrete, clip=not actor.direction)


ACTORS = {
    "sa-rl": lambda v: SARL(),
    "pa-ad": lambda v: PAAD(v),
    "target": lambda v: PAAD(v, form="target", steps=2),
    "literal": lambda v: PAAD(v, variant="literal", steps=2),
    "released": lambda v: PAAD(v, variant="released"),
    "pa-ad-action": lambda v: ActionPAAD(v),
    "hybrid": lambda v: Hybrid(PAAD(v, form="target", steps=2), ActionPAAD(v), adv.Valid()),
    "timed": lambda v: Timed(adv.MinBest(steps=2), v),
    "timed action": lambda v: Timed(adv.WorstAction(by="policy"), v),
    "induce": lambda v: Induce(v),
}
CASES = [
    (kind, name)
    for kind, names in (("logits", ACTORS), ("q", ("sa-rl",)), ("recurrent", ("pa-ad", "timed")))
    for name in names
]
ON_ACTIONS = ("pa-ad-action", "timed action", "induce")


def budget_of(name: str):
    return adv.Valid() if name in ON_ACTIONS else BUDGET


def deploy(env, learned, name: str, when=WHEN):
    """The adversary as whoever trained it deploys it; a hybrid is two layers."""
    on = "action" if name in ON_ACTIONS else "observation"
    return adv.wrap(env, adv.ThreatModel(on, learned, budget_of(name), when))


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_single(kind, name):
    agent = victim(kind)
    actor = ACTORS[name](agent)
    objective = director(actor)
    deployed = deploy(gym.make("CartPole-v1", max_episode_steps=30), Learned(objective, actor), name)
    game = AdversaryEnv(gym.make("CartPole-v1", max_episode_steps=30), agent, actor, budget_of(name), WHEN)
    runner = PolicyRunner(agent, 1)
    moved = False
    for seed in (3, None, 7, None):
        obs, _ = deployed.reset(seed=seed)
        true, _ = game.reset(seed=seed)
        runner.reset(seeds=None if seed is None else [seed])
        earned = lost = 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = deployed.step(runner.act(obs[None])[0])
            earned += reward
            over = terminated or truncated
            moved = moved or deployed.engine.spent > 0
        over = False
        while not over:
            adversary_action = objective(torch.from_numpy(np.array(true))[None])[0].numpy()
            true, reward, terminated, truncated, _ = game.step(adversary_action)
            lost += reward
            over = terminated or truncated
        assert earned == -lost > 0
    assert moved


@pytest.mark.parametrize(
    ("case", "mode"), by_turns([c for c in CASES if c[1] not in ("target", "literal", "released")], AutoresetMode)
)
def test_vector(case, mode):
    kind, name = case
    agent = victim(kind)
    actor = ACTORS[name](agent)
    objective = director(actor)

    def vector():
        return SyncVectorEnv([lambda: gym.make("CartPole-v1", max_episode_steps=12)] * 3, autoreset_mode=mode)

    deployed = deploy(vector(), Learned(objective, actor), name)
    game = AdversaryEnv(vector(), agent, actor, budget_of(name), WHEN)
    runner = PolicyRunner(agent, 3)
    obs, _ = deployed.reset(seed=5)
    true, _ = game.reset(seed=5)
    runner.reset(seeds=5)
    assert name in (*ON_ACTIONS, "timed") or not np.array_equal(obs, true)
    finished, ended = np.zeros(3, bool), 0
    for _ in range(28):
        obs, reward, terminated, truncated, _ = deployed.step(runner.act(obs))
        actions = objective(torch.from_numpy(np.array(true))).numpy()
        true, minus, *over, _ = game.step(actions)
        np.testing.assert_array_equal(-minus, reward)
        np.testing.assert_array_equal(over, [terminated, truncated])
        done = terminated | truncated
        ended += int(done.sum())
        turned = (
            finished if mode == AutoresetMode.NEXT_STEP else done if mode == AutoresetMode.SAME_STEP else ~done & done
        )
        if turned.any():
            runner.reset(turned)
        finished = done
        if mode == AutoresetMode.DISABLED and done.any():
            obs, _ = deployed.reset(options={"reset_mask": done.copy()})
            true, _ = game.reset(options={"reset_mask": done.copy()})
            runner.reset(done)
    assert ended > 3


class Push(Brief):
    """Two numbers that the agent is to keep near zero, and that its own noise drives away."""

    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    steps = PUSHES

    def begin(self):
        self.x = self.np_random.normal(size=2)

    def seen(self):
        return self.x.copy()

    def act(self, action):
        drift = 0.1 * self.np_random.normal(size=2)
        self.x = np.clip(0.95 * self.x + 0.5 * np.asarray(action, np.float64) + drift, -10, 10)
        return -np.square(self.x).sum()


def pusher(kind: str, select: str = "mode"):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4 if kind == "gaussian" else 2)).double()
    return adv.from_module(net, Push.observation_space, Push.action_space, kind, select=select)


CONTINUOUS = {
    "sa-rl": lambda v: (SARL(), BOX),
    "direction": lambda v: (PAAD(v, form="direction"), BOX),
    "target": lambda v: (PAAD(v, form="target"), BOX),
    "pa-ad-action": lambda v: (ActionPAAD(v), adv.Linf(0.3)),
    "pa-ad-action target": lambda v: (ActionPAAD(v, form="target"), adv.L2(0.3)),
    "hybrid": lambda v: (Hybrid(PAAD(v, form="direction"), ActionPAAD(v), adv.Linf(0.2)), BOX),
}
BOX = adv.Linf(0.3)


@pytest.mark.parametrize(
    ("case", "wrapper"),
    by_turns(
        by_turns([*itertools.product(CONTINUOUS, ["mean", "gaussian"])], ["state", "state+action", "state+action"]),
        ["env", "vector", "sb3", "vector"],
    ),
)
def test_continuous_actions(case, wrapper):
    (name, kind), observe = case
    agent = pusher(kind, "sample" if kind == "gaussian" else "mode")
    actor, within = CONTINUOUS[name](agent)
    actions = actor.action_space((2,))
    torch.manual_seed(1)
    size = 2 if observe == "state" else 4
    objective = Director(nn.Sequential(nn.Linear(size, 8), nn.Tanh(), nn.Linear(8, actions.shape[0])), False, clip=True)
    on = "action" if name.startswith("pa-ad-action") else "observation"
    threat = adv.ThreatModel(on, Learned(objective, actor, observe=observe), within)
    losses = adversary_env_losses(
        wrapper, lambda env: AdversaryEnv(env, agent, actor, within, observe=observe), objective
    )
    report = adv.evaluate(agent, Push, [threat], episodes=3, num_envs=1 if wrapper == "env" else 3, seed=4)
    seeds = report.episode_seeds
    assert losses(seeds) == pytest.approx(
        [-r for r in report.threats[1]["returns"]], rel=1e-5 if wrapper == "sb3" else 1e-12
    )
    assert report.threats[1]["returns"] != report.threats[0]["returns"]


def adversary_env_losses(wrapper, sit, objective):
    """Plays one episode a seed in an adversary environment; what the adversary earns in each."""

    def adversary_action(obs):
        return objective(torch.from_numpy(np.array(obs))).numpy()

    def single(seeds):
        env, earned = sit(Push()), []
        for seed in seeds:
            obs, _ = env.reset(seed=seed)
            earned.append(0.0)
            over = False
            while not over:
                obs, reward, _, over, _ = env.step(adversary_action(obs[None])[0])
                earned[-1] += reward
        return earned

    def vector(seeds):
        env = sit(SyncVectorEnv([Push] * 3, autoreset_mode=AutoresetMode.DISABLED))
        obs, _ = env.reset(seed=list(seeds))
        earned = np.zeros(3)
        for _ in range(PUSHES):
            obs, rewards, _, over, _ = env.step(adversary_action(obs))
            earned += rewards
        assert over.all()
        return earned.tolist()

    def sb3(seeds):
        from stable_baselines3.common.vec_env import DummyVecEnv

        env = sit(DummyVecEnv([Push] * 3))
        env.venv.unwrapped._seeds = list(seeds)
        obs, earned = env.reset(), np.zeros(3)
        for _ in range(PUSHES):
            obs, rewards, over, _ = env.step(adversary_action(obs))
            earned += rewards
        assert over.all()
        return earned.tolist()

    return {"env": single, "vector": vector, "sb3": sb3}[wrapper]


@pytest.mark.parametrize(
    ("name", "mode"), [("timed", None), ("timed action", AutoresetMode.DISABLED), ("induce", AutoresetMode.DISABLED)]
)
def test_what_was_spent_is_observed_where_it_is_deployed(mode, name):
    """A director that sees the number of attacks attacks in the same steps: it stops after three, and always begins."""
    agent = victim("logits", "mode")
    actor = ACTORS[name](agent)

    def director(x):  # the last number is what was spent
        return (x[..., -1] < 3).long() * (1 + (x[..., 4] > x[..., 5]).long() * (name == "induce"))

    threat = adv.ThreatModel(actor.on, Learned(director, actor, observe="state+action+spent"), budget_of(name))
    report = adv.evaluate(agent, "CartPole-v1", [threat], episodes=3, num_envs=3, seed=4)
    row, seeds = report.threats[1], report.episode_seeds
    assert row["attacked_fraction"] == pytest.approx(9 / sum(row["returns"]))
    env = (
        gym.make("CartPole-v1")
        if mode is None
        else SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=mode)
    )
    game = AdversaryEnv(env, agent, actor, budget_of(name), observe="state+action+spent")
    earned = np.zeros(3)
    if mode is None:
        for i, seed in enumerate(seeds):
            obs, over = game.reset(seed=seed)[0], False
            while not over:
                obs, reward, terminated, truncated, _ = game.step(int(director(torch.from_numpy(obs))))
                earned[i], over = earned[i] + reward, terminated or truncated
        assert obs[-1] == 3
    else:
        obs, over = game.reset(seed=list(seeds))[0], np.zeros(3, bool)
        while not over.all():
            obs, rewards, terminated, truncated, _ = game.step(director(torch.from_numpy(obs)).numpy())
            earned, over = earned + np.where(over, 0, rewards), over | terminated | truncated
            if (terminated | truncated).any():
                obs, _ = game.reset(options={"reset_mask": terminated | truncated})
    assert earned.tolist() == [-r for r in row["returns"]]
