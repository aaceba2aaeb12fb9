"""Forces on bodies, chosen by an adversary."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.adversaries import Director, Forces, Learned
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.toys import Brief

SPACES = gym.make("InvertedPendulum-v5")
STILL = adv.from_module(torch.nn.Linear(4, 1), SPACES.observation_space, SPACES.action_space, "mean")


@pytest.fixture
def victim():
    return adv.load_victim("zoo:hopper-ppo")


def test_the_adversarys_action_is_the_force(victim):
    env = adv.AdversaryEnv(gym.make("Hopper-v5"), victim, Forces(bodies="foot"), adv.Linf(8.0))
    assert env.action_space.shape == (3,)
    env.reset(seed=0)
    obs, _, _, _, info = env.step(np.array([0.5, 0.0, -2.0], np.float32))
    assert env.unwrapped.data.xfrc_applied[-1].tolist() == [4.0, 0.0, -8.0, 0, 0, 0]
    assert info["adv_wrappers"]["0:adversary"]["attacked"]
    clean = gym.make("Hopper-v5")
    clean.reset(seed=0)
    assert env.action_space.shape != clean.action_space.shape or not np.array_equal(obs, clean.step(np.zeros(3))[0])


def test_all_bodies_unless_some_are_named(victim):
    env = adv.AdversaryEnv(gym.make("Hopper-v5"), victim, "forces", adv.Linf(1.0))
    assert env.action_space.shape == (12,)
    with pytest.raises(SpaceError, match=r"at=\('force.hand',\) must name parameters of the dynamics"):
        adv.AdversaryEnv(gym.make("Hopper-v5"), victim, Forces(bodies=("hand",)), adv.Linf(1.0))
    with pytest.raises(ValueRangeError, match="bodies are names"):
        Forces(bodies=(1,))
    with pytest.raises(AdvWrappersError, match="budget"):
        adv.AdversaryEnv(gym.make("Hopper-v5"), victim, "forces")


@pytest.mark.parametrize("kind", ["single", AutoresetMode.NEXT_STEP])
def test_deployed_it_does_what_it_did_in_its_own_environment(victim, kind):
    """Law 11 for the dynamics: what the adversary earns is minus what the agent does, step by step."""
    torch.manual_seed(0)
    actor, within, rows = Forces(victim, ("foot", "torso")), adv.Linf(5.0), 1 if kind == "single" else 3
    director = Director(torch.nn.Sequential(torch.nn.Linear(11, 6)), False, clip=True)

    def make():
        return gym.make("Hopper-v5", max_episode_steps=12)

    def build():
        return make() if kind == "single" else SyncVectorEnv([make] * rows, autoreset_mode=kind)

    def played(env, act):
        obs, found = env.reset(seed=3)[0], []
        for _ in range(30):
            actions = act(obs[None] if rows == 1 else obs)
            obs, reward, terminated, truncated, _ = env.step(actions[0] if rows == 1 else actions)
            found.append(np.array(reward, float))
            over = np.atleast_1d(terminated | truncated)
            if kind == "single" and over.all():
                obs = env.reset()[0]
        return np.array(found)

    game = adv.AdversaryEnv(build(), victim, actor, within)
    own = played(game, lambda obs: director(torch.as_tensor(obs).float()).detach().numpy())
    deployed = adv.wrap(build(), adv.ThreatModel("dynamics", Learned(director, actor), within))
    agent = played(deployed, PolicyRunner(victim, rows).act)
    np.testing.assert_allclose(own, -agent, rtol=1e-6, atol=1e-6)


def test_an_adversary_that_is_trained_is_an_ordinary_threat(tmp_path):
    settings = {
        "steps": 64,
        "num_envs": 2,
        "n_steps": 32,
        "n_epochs": 1,
        "checks": 1,
        "episodes": 2,
        "out": tmp_path / "pushes",
    }
    learned = adv.train_adversary(Forces(bodies="pole"), "InvertedPendulum-v5", STILL, 30.0, **settings)
    data = json.loads(json.dumps(adv.ThreatModel("dynamics", learned, learned.within).to_dict()))
    threat = adv.ThreatModel.from_dict(data, {STILL.fingerprint(): STILL})
    assert threat.at == ("force.pole",) and threat.budget == adv.Linf(30.0)
    report = adv.evaluate(STILL, "InvertedPendulum-v5", [learned, f"learned:card={tmp_path / 'pushes'}"], episodes=3)
    rows = [row["returns"] for row in report.threats]
    assert rows[1] == rows[2] and [row["attacked_fraction"] for row in report.threats] == [0, 1, 1]


def test_an_agent_that_is_trained_against_forces(tmp_path):
    hardened = adv.train_agent(
        "InvertedPendulum-v5", Forces(bodies="pole"), 3.0, steps=64, num_envs=2, checks=1, episodes=2, phase=64,
        settings={"n_steps": 32, "n_epochs": 1}, adversary_settings={"n_steps": 32, "n_epochs": 1},
        out=tmp_path / "rarl",
    )  # fmt: skip
    assert hardened.threat.on == "dynamics" and hardened.record[-1]["adversary_steps"] >= 64
    report = adv.evaluate(hardened.victim, "InvertedPendulum-v5", [hardened.threat], episodes=2)
    assert report.threats[1]["attacked_fraction"] == 1.0


class Brittle(Brief):
    """Diverges where it is more than 1.4 times as heavy."""

    physical_parameters = {"mass": "m"}  # noqa: RUF012
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    steps, cut, m = 20, False, 1.0

    def seen(self):
        return np.full(4, 0.0 if self.t == 0 else np.inf if self.m > 1.4 else 0.1, np.float32)

    def act(self, action):
        return 1.0


@pytest.mark.filterwarnings("ignore:the simulation diverged:RuntimeWarning")
def test_trainings_outlive_a_simulation_that_diverges():
    settings = {"steps": 128, "num_envs": 2, "checks": 1, "episodes": 2}
    threat = "dynamics-noise:at=mass,eps=0.5,every=step"
    hardened = adv.train_agent(Brittle, threat, settings={"n_steps": 32, "n_epochs": 1}, **settings)
    assert hardened.record[-1]["clean"] == 20 > hardened.record[-1]["attacked"] > 0
