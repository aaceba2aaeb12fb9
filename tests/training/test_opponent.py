"""Opponents that learn: what they earn, what a folder knows of those they play against, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ValueRangeError, VictimError

pytest.importorskip("stable_baselines3")
pytest.importorskip("pettingzoo")

from gymnasium import spaces
from pettingzoo import ParallelEnv

from adv_wrappers.training.opponent import train_opponent
from adv_wrappers.wrappers.single_agent_env import SingleAgentEnv
from tests.every_case import every_case

SMALL: dict[str, Any] = {"num_envs": 4, "checks": 2, "episodes": 4, "settings": {"n_steps": 32, "n_epochs": 2}}


class Matching(ParallelEnv):
    """Each of two players sees a number of its own sign; the guesser earns 1 by playing what the hider plays.

    What both see is the same number, so a hider that follows it loses to a guesser who has learned that.
    """

    metadata = {"name": "matching", "render_modes": []}  # noqa: RUF012 - PettingZoo's own form

    def __init__(self) -> None:
        self.possible_agents, self.agents = ["hider", "guesser"], []
        self.render_mode = None
        self._seen = {agent: spaces.Box(-1.0, 1.0, (1,), np.float32) for agent in self.possible_agents}
        self._acts = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self.generator = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._seen[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acts[agent]

    def _observations(self) -> dict[str, Any]:
        drawn = self.generator.uniform(-1, 1, 1).astype(np.float32)
        return {agent: drawn.copy() for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.generator = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        self.t += 1
        found = float(actions["hider"] == actions["guesser"])
        there = list(self.agents)
        self.agents = [] if self.t == 8 else there
        over = dict.fromkeys(there, self.t == 8)
        rewards = {"hider": -found, "guesser": found + 0.5}  # no zero-sum game
        return self._observations(), rewards, dict.fromkeys(there, False), over, {agent: {} for agent in there}


def hider(weight: float = 20.0) -> adv.Victim:
    """Plays 1 where the number is positive."""
    net = torch.nn.Linear(1, 2)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[0.0], [weight]]))
        net.bias.zero_()
    return adv.from_module(net, spaces.Box(-1.0, 1.0, (1,), np.float32), spaces.Discrete(2), "logits")


@pytest.mark.slow
def test_an_opponent_beats_its_victim_more_often_than_a_random_one() -> None:
    victim = hider()
    found = train_opponent(
        Matching, "guesser", {"hider": victim}, 1024, seed=1, zero_sum_with="hider", **{**SMALL, "settings": {
            "n_steps": 64, "n_epochs": 10, "learning_rate": 3e-3}})  # fmt: skip
    side = {"env": Matching, "agent": "hider"}
    lost = {}
    for name, opponent in (("random", "random"), ("learned", found.victim)):
        arguments = {**side, "others": {"guesser": opponent}}
        lost[name] = adv.evaluate(victim, SingleAgentEnv, env_kwargs=arguments, episodes=20, seed=0).threats[0]
    assert lost["learned"]["mean_return"] < -7 < -5 < lost["random"]["mean_return"]


@pytest.mark.parametrize(("zero_sum_with", "more"), [("hider", 0.0), (None, 0.5)])
def test_it_earns_what_the_victim_loses_or_its_own_reward(zero_sum_with: str | None, more: float) -> None:
    found = train_opponent(Matching, "guesser", {"hider": "random"}, 256, zero_sum_with=zero_sum_with, **SMALL)
    means = [row["clean"] for row in found.record]
    assert all(8 * more <= mean <= 8 * (1 + more) for mean in means) and found.threat is None
    whole = np.array(means) * 4 - 8 * more * 4  # of four episodes
    assert np.allclose(whole, np.round(whole))


def test_a_folder_resumes_and_knows_the_weights_of_the_victim(tmp_path: Any) -> None:
    reported = list[tuple[int, float]]()
    arguments: dict[str, Any] = {"zero_sum_with": "hider", "out": tmp_path / "guesser", **SMALL}
    found = train_opponent(
        Matching, "guesser", {"hider": hider()}, 256, progress=lambda *row: reported.append(row), **arguments
    )
    assert [steps for steps, _ in reported] == [row["steps"] for row in found.record]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train_opponent(Matching, "guesser", {"hider": hider()}, 256, **arguments)
    card = adv.load_victim(f"card:{tmp_path / 'guesser'}")
    assert again.record == found.record and card.fingerprint() == again.victim.fingerprint()
    with pytest.raises(
        ValueRangeError, match=r"holds another training, with environment\.kwargs\.others\.hider\.fingerprint"
    ):
        train_opponent(Matching, "guesser", {"hider": hider(10.0)}, 256, **arguments)
    side = {"env": Matching, "agent": "hider", "others": {"guesser": f"card:{tmp_path / 'guesser'}"}}
    assert adv.evaluate(hider(), SingleAgentEnv, env_kwargs=side, episodes=2, seed=0).threats[0]["mean_return"] <= 0


@every_case(
    ("error", "match", "agent", "others", "zero_sum_with"),
    [
        (SpaceError, "a side of unknown agents: 'seeker'", "seeker", {"hider": "random"}, None),
        (VictimError, "a policy for each agent but 'guesser': for 'hider', got them for none", "guesser", {}, None),
        (VictimError, "^agent 'hider': the victim zoo:cartpole-dqn", "guesser", {"hider": "zoo:cartpole-dqn"}, None),
        (SpaceError, "zero_sum_with='guesser' must be another agent", "guesser", {"hider": "random"}, "guesser"),
        (VictimError, "by the names of the other agents, a dictionary, got 'random'", "guesser", "random", None),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(
    error: type[Exception], match: str, agent: str, others: Any, zero_sum_with: str | None, tmp_path: Any
) -> None:
    with pytest.raises(error, match=match):
        train_opponent(Matching, agent, others, 256, zero_sum_with=zero_sum_with, out=tmp_path / "out", **SMALL)
    assert not (tmp_path / "out").exists()
