"""What an episode under attack is recorded as: the numbers that reports have, in every kind of environment."""

from __future__ import annotations

import math
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import OrderError, SpaceError, VictimError
from tests.every_case import every_case
from tests.rigs import EPISODES, MODES, RIGS, arrays, tensors, vector

DQN = "zoo:cartpole-dqn"


def played(env, victim, seed):
    """The end of an episode that the victim plays."""
    (obs, info), over = env.reset(seed=seed), False
    while not over:
        obs, _, terminated, truncated, info = env.step(victim.act_on(obs[None])[0])
        over = terminated or truncated
    return info


SHORT = {"max_episode_steps": 40}


@pytest.mark.parametrize(
    "threats",
    [
        ["pgd:eps=0.05,steps=3,restarts=1,when=every(2)"],
        ["noise:eps=0.1,p=0.5", "action-noise:p=0.3"],
    ],
)
def test_the_numbers_are_those_of_a_report(threats):
    victim = adv.load_victim(DQN)
    report = adv.evaluate(victim, "CartPole-v1", [threats], adv.Episodes(1, seed=3, num_envs=1), env_kwargs=SHORT)
    row = report.threats[1]
    env = adv.RecordAttackStatistics(adv.wrap(gym.make("CartPole-v1", **SHORT), *threats, victim=victim), victim)
    for _ in range(2):  # the second episode begins at nothing
        found = played(env, victim, report.episode_seeds[0])["attack"]
        assert found["r"] == row["returns"][0] and found["l"] == row["lengths"][0]
        assert found["attack_rate"] == row["attacked_fractions"][0] > 0
        if len(threats) == 1:
            assert found["flips"] == pytest.approx(row["action_change"])
        else:  # an attack on the action may undo what one on the observation did
            assert found["flips"] > row["action_change"]
    assert 0 < found["flips"] < 1 or "pgd" in threats[0]


def recorded(kind, wrapper, rig, seeds, episodes=2):
    """Row by row, the statistics of the first episodes of a vector, whose actions are those of the rig."""
    envs = wrapper(vector(kind, rig, len(seeds)))
    envs.reset(seed=list(seeds))
    rows, steps, over = [[] for _ in seeds], np.zeros(len(seeds), int), np.zeros(len(seeds), bool)
    while any(len(row) < episodes for row in rows):
        actions = np.stack([rig.act(s, len(row), int(t)) for s, row, t in zip(seeds, rows, steps, strict=True)])
        _, _, terminated, truncated, info = envs.step(tensors(actions) if kind == "tensor" else actions)
        steps += ~over if MODES[kind] == "NEXT_STEP" else 1
        done = arrays(terminated | truncated)
        assert ("attack" in info) == done.any() and (not done.any() or (info["_attack"] == done).all())
        for i in np.flatnonzero(done).tolist():
            rows[i].append({name: float(numbers[i]) for name, numbers in info["attack"].items()})
        steps[done], over = 0, done
        if MODES[kind] == "DISABLED" and done.any():
            envs.reset(options={"reset_mask": done.copy()})
    return [row[:episodes] for row in rows]


@pytest.mark.parametrize("kind", ["next", "same", "disabled", "tensor"])
@pytest.mark.parametrize("name", ["mean", "dict"])
def test_rows_of_a_vector_are_single_environments(kind, name):
    rig = RIGS[name]
    eps = {"mean": 0.01, "dict": 0.6}[name]
    threats = [f"noise:eps={eps},p=0.6" + (",at=vector" if rig.at else ""), "action-noise:p=0.5"]
    threats[1] += ",eps=0.13" if name == "mean" else ""

    def wrapper(env):
        return adv.RecordAttackStatistics(adv.wrap(env, *threats), rig.victim())

    seeds, single = (7, 8, 9), []
    found = recorded(kind, wrapper, rig, seeds)
    for seed in seeds:
        env = wrapper(rig.env())
        for number in range(2):
            env.reset(seed=seed) if number == 0 else env.reset()
            for t in range(max(EPISODES) + 1):
                _, _, terminated, truncated, info = env.step(rig.act(seed, number, t))
                if terminated or truncated:
                    break
            single.append(info["attack"])
    assert [one for row in found for one in row] == [pytest.approx(one, nan_ok=True) for one in single]
    assert {one["l"] for one in single} <= {*EPISODES} and len({one["attack_rate"] for one in single}) > 1
    assert any(0 < one["flips"] < 1 for one in single)


def test_without_a_victim_there_are_no_flips_and_without_an_attack_they_are_no_number():
    victim = adv.load_victim(DQN)
    quiet = adv.wrap(gym.make("CartPole-v1", max_episode_steps=5), "noise:eps=0.1,when=never()")
    assert played(adv.RecordAttackStatistics(quiet), victim, 0)["attack"] == {"r": 5.0, "l": 5, "attack_rate": 0.0}
    found = played(adv.RecordAttackStatistics(quiet, DQN, stats_key="under"), victim, 0)["under"]
    assert math.isnan(found["flips"]) and found["attack_rate"] == 0


def test_rows_that_are_wrapped_themselves_are_aggregated_by_gymnasium():
    def make():
        return adv.RecordAttackStatistics(
            adv.wrap(gym.make("CartPole-v1", max_episode_steps=3), "action-noise:p=0.5"), None
        )

    envs = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=0)
    for _ in range(3):
        *_, info = envs.step(np.zeros(2, int))
    assert info["_attack"].all() and info["attack"]["l"].tolist() == [3, 3] and "flips" in info["attack"]


class Writer(list):
    def add_scalar(self, tag, scalar_value, global_step):
        self.append((tag, scalar_value, global_step))


class Bust(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(32, 2)

    def forward(self, obs):
        return self.table(obs[0])


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_tuples(kind):
    game = gym.make("Blackjack-v1")
    victim = adv.from_module(Bust(), game.observation_space, game.action_space, "q")
    env = game if kind == "single" else gym.make_vec("Blackjack-v1", 2, vectorization_mode="sync")
    env = adv.PerturbObservation(env, adv.threat("discrete-search", victim, at=0))
    env = adv.RecordAttackStatistics(env, victim)
    env.reset(seed=0)
    info = {}
    while "attack" not in info:
        info = env.step(1 if kind == "single" else np.ones(2, int))[4]
    assert np.max(info["attack"]["attack_rate"]) == np.max(info["attack"]["flips"]) == 1


def test_scalars_are_written_over_the_steps_of_all_rows(tmp_path):
    def make():
        return gym.make("CartPole-v1", max_episode_steps=3)

    writer = Writer()
    envs = adv.wrap(SyncVectorEnv([make] * 2), "noise:eps=0.1,when=every(3)")
    envs = adv.RecordAttackStatistics(envs, DQN, log=writer)
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.zeros(2, int))
    tags = ["attack/return", "attack/length", "attack/attack_rate", "attack/flips"]
    assert [tag for tag, *_ in writer] == tags * 2 and {step for *_, step in writer} == {6}
    assert writer[2][1] == pytest.approx(1 / 3)

    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    env = adv.RecordAttackStatistics(adv.wrap(make(), "noise:eps=0.1"), log=tmp_path / "logs")
    played(env, adv.load_victim(DQN), 0)
    events = accumulator.EventAccumulator(str(tmp_path / "logs")).Reload()
    assert events.Scalars("attack/attack_rate")[0].value == 1 and events.Scalars("attack/length")[0].step == 3


def test_it_pickles_and_is_rebuilt_from_its_spec():
    victim = adv.load_victim(DQN)
    env = adv.RecordAttackStatistics(adv.wrap(gym.make("CartPole-v1", **SHORT), "action-noise:p=0.5"), victim)
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    copy = pickle.loads(pickle.dumps(env))
    assert played(env, victim, 1)["attack"] == played(again, victim, 1)["attack"] == played(copy, victim, 1)["attack"]


@every_case(
    ("make", "victim", "error", "message"),
    [
        (lambda: RIGS["q"].env(), None, OrderError, "there are none: wrap the environment in them first"),
        (
            lambda: SyncVectorEnv([lambda: adv.wrap(RIGS["q"].env(), "noise:eps=1")]), None, OrderError,
            "out of reach: put RecordAttackStatistics around each row",
        ),
        (lambda: adv.wrap(RIGS["q"].env(), "noise:eps=1"), "zoo:hopper-ppo", VictimError, "is for observation space"),
        (lambda: adv.wrap(RIGS["recurrent"].env(), "noise:eps=1"), "recurrent", VictimError, "no flips of recurrent"),
        (lambda: 3, None, SpaceError, "expected a gymnasium Env or VectorEnv, got int"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded(make, victim, error, message):
    victim = RIGS["recurrent"].victim() if victim == "recurrent" else victim
    with pytest.raises(error, match=message):
        adv.RecordAttackStatistics(make(), victim)
