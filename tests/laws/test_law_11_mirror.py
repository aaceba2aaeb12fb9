"""Law 11, the mirror: what an adversary earns in its environment is what the agent loses under the deployed adversary.

The same episodes are played twice: once by a director in :class:`AdversaryEnv`, and once by the agent, through the same
pilot, in an environment under the director as a :class:`Learned` perturbation.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.adversaries.pa_ad import PAAD
from adv_wrappers.adversaries.sa_rl import SARL
from adv_wrappers.wrappers.adversary import AdversaryEnv
from adv_wrappers.wrappers.pilot import Pilot

CART = gym.make("CartPole-v1")
BUDGET = adv.Linf(0.3, scale=(0.1, 0.5, 0.05, 0.5))
WHEN = adv.Bernoulli(0.7) & adv.AtMost(40)


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
            Cell().double(), CART.observation_space, CART.action_space, "logits", select=select,
            initial_state=lambda rows: torch.zeros(rows, 8, dtype=torch.float64),
        )  # fmt: skip
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)).double()
    return adv.from_module(
        net, CART.observation_space, CART.action_space, kind, select="mode" if kind == "q" else select
    )


def director(actor) -> Director:
    torch.manual_seed(1)
    space = actor.steer_space((4,))
    discrete = isinstance(space, spaces.Discrete)
    outputs = int(space.n) if discrete else space.shape[0]
    return Director(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, outputs)), discrete)


ACTORS = {
    "sa-rl": lambda v: SARL(),
    "pa-ad": lambda v: PAAD(v),
    "target": lambda v: PAAD(v, form="target", steps=2),
    "literal": lambda v: PAAD(v, variant="literal", steps=2),
    "released": lambda v: PAAD(v, variant="released"),
}
CASES = [
    (kind, name)
    for kind in ("logits", "q", "recurrent")
    for name in ACTORS
    if kind == "logits" or name in ("sa-rl", "pa-ad")
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_single(kind, name):
    agent = victim(kind)
    actor = ACTORS[name](agent)
    steering = director(actor)
    deployed = adv.PerturbObservation(gym.make("CartPole-v1"), Learned(steering, actor), BUDGET, WHEN)
    chair = AdversaryEnv(gym.make("CartPole-v1"), agent, actor, BUDGET, WHEN)
    pilot = Pilot(agent, 1)
    moved = False
    for seed in (3, None, 7, None):
        obs, _ = deployed.reset(seed=seed)
        true, _ = chair.reset(seed=seed)
        pilot.reset(seeds=None if seed is None else [seed])
        moved = moved or not np.array_equal(obs, true)
        earned = lost = 0.0
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = deployed.step(pilot.act(obs[None])[0])
            earned += reward
            over = terminated or truncated
        over = False
        while not over:
            steer = steering(torch.from_numpy(np.array(true))[None])[0].numpy()
            true, reward, terminated, truncated, _ = chair.step(steer)
            lost += reward
            over = terminated or truncated
        assert earned == -lost > 0
    assert moved


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("kind", "name"), [c for c in CASES if c[1] in ("sa-rl", "pa-ad")])
def test_vector(mode, kind, name):
    agent = victim(kind)
    actor = ACTORS[name](agent)
    steering = director(actor)

    def vector():
        return SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3, autoreset_mode=mode)

    deployed = adv.PerturbObservation(vector(), Learned(steering, actor), BUDGET, WHEN)
    chair = AdversaryEnv(vector(), agent, actor, BUDGET, WHEN)
    pilot = Pilot(agent, 3)
    obs, _ = deployed.reset(seed=5)
    true, _ = chair.reset(seed=5)
    pilot.reset(seeds=5)
    assert not np.array_equal(obs, true)
    finished, ended = np.zeros(3, bool), 0
    for _ in range(60):
        obs, reward, terminated, truncated, _ = deployed.step(pilot.act(obs))
        steers = steering(torch.from_numpy(np.array(true))).numpy()
        true, minus, *over, _ = chair.step(steers)
        np.testing.assert_array_equal(-minus, reward)
        np.testing.assert_array_equal(over, [terminated, truncated])
        done = terminated | truncated
        ended += int(done.sum())
        turned = (
            finished if mode == AutoresetMode.NEXT_STEP else done if mode == AutoresetMode.SAME_STEP else ~done & done
        )
        if turned.any():
            pilot.reset(turned)
        finished = done
        if mode == AutoresetMode.DISABLED and done.any():
            obs, _ = deployed.reset(options={"reset_mask": done.copy()})
            true, _ = chair.reset(options={"reset_mask": done.copy()})
            pilot.reset(done)
    assert ended > 3
