"""Timed and Induce: what they take, what declined steps cost, masks, round trips, and what cannot work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries import Director, Induce, Learned, Timed
from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.core.perturbation import DecliningPerturbation, Perturbation
from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import BudgetError, ThreatError, VictimError
from adv_wrappers.threats.presets import as_actor
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv, recorded

DQN = adv.load_victim("zoo:cartpole-dqn")
A2C = adv.load_victim("zoo:cartpole-a2c")
HOPPER = adv.load_victim("zoo:hopper-ppo")


@dataclass(frozen=True)
class Counted(Perturbation):
    """Counts the rows that it is computed for."""

    name: ClassVar[str] = "counted"
    rows: ClassVar[list[int]] = []

    def __call__(self, x, context):
        self.rows.append(len(x))
        return x + 0.01


def every_third(x):
    """A director that attacks the rows whose first number, in thousandths, is a multiple of three."""
    return ((x[:, 0] * 1e3).floor() % 3 == 0).long()


@pytest.mark.parametrize("rows", [None, 4])
def test_declined_steps_cost_no_computing_and_no_budget(rows):
    Counted.rows.clear()
    make = lambda: gym.make("CartPole-v1")  # noqa: E731
    env = make() if rows is None else gym.vector.SyncVectorEnv([make] * rows)
    env = adv.PerturbObservation(env, Learned(every_third, Timed(Counted())), adv.Linf(0.1), keep_true=True)
    obs, info = env.reset(seed=0)
    attacked = []
    for _ in range(8 if rows is None else 30):
        note = info["adv_wrappers"][env.key]
        attacked.append(np.atleast_1d(note["attacked"]))
        true, seen = np.atleast_2d(note["true"]), np.atleast_2d(obs)
        np.testing.assert_array_equal(attacked[-1], every_third(torch.from_numpy(true)).bool())
        np.testing.assert_array_equal((seen != true).all(1), attacked[-1])
        np.testing.assert_array_equal((seen != true).any(1), attacked[-1])
        obs, *_, info = env.step(env.action_space.sample() * 0)
    note = info["adv_wrappers"][env.key]
    attacked.append(np.atleast_1d(note["attacked"]))
    assert sum(Counted.rows) == sum(int(one.sum()) for one in attacked) > 0
    assert 0 not in Counted.rows


def test_at_most_counts_what_is_attacked():
    threat = adv.ThreatModel("action", Learned(every_third, Timed(adv.ActionFlip(), DQN)), None, adv.AtMost(2))
    report = adv.evaluate(DQN, "CartPole-v1", [threat], episodes=1, env_kwargs={"max_episode_steps": 40})
    row = report.threats[1]
    assert row["attacked_fraction"] == pytest.approx(2 / sum(row["returns"]))


def test_an_outer_timing_comes_first():
    asked = []

    def director(x):
        asked.append(len(x))
        return torch.ones(len(x), dtype=torch.int64)

    env = adv.wrap(
        gym.make("CartPole-v1"),
        adv.ThreatModel("observation", Learned(director, Timed(Counted())), adv.Linf(0.1), adv.Every(3)),
    )
    env.reset(seed=0)
    for _ in range(6):
        env.step(0)
    assert asked == [1, 1, 1]


def test_transforms_of_images_keep_their_dtype():
    rig = RIGS["image"]
    learned = Learned(lambda x: torch.ones(len(x), dtype=torch.int64), Timed(adv.threat("brightness", alpha=0.5).how))
    plain, timed = (adv.wrap(rig.env(), adv.ThreatModel("observation", how)) for how in (learned.actor.how, learned))
    assert timed.threat.budget == adv.Valid()
    one, other = plain.reset(seed=1)[0], timed.reset(seed=1)[0]
    np.testing.assert_array_equal(one, other)
    assert other.dtype == np.uint8


def test_induce_names_an_action_and_its_own_is_nothing():
    env = adv.AdversaryEnv(gym.make("CartPole-v1"), DQN, "induce")
    assert env.action_space == gym.spaces.Discrete(3)
    obs, _ = env.reset(seed=0)
    for named in (0, 1, 2, 1, 2, 2, 1):
        own = int(DQN.act_on(obs[None])[0])
        obs, *_, info = env.step(named)
        assert info["adv_wrappers"][env._layer_beneath.key]["attacked"] == (named != 0 and named - 1 != own)


def test_induce_leaves_masked_actions_alone():
    rig = RIGS["q"]
    env = ReplayEnv(recorded(rig.space), rig.space, rig.actions, masked=True)
    chosen = []

    def director(x):
        return torch.full((len(x),), chosen[-1])

    layer = adv.PerturbAction(env, Learned(director, Induce(rig.victim())))
    _, info = layer.reset(seed=1)
    start, attacked = int(rig.actions.start), []
    for t in range(4):
        own, allowed = int(rig.act(1, 0, t)), np.flatnonzero(info["action_mask"])
        named = np.flatnonzero(info["action_mask"] == 0)[0] if t % 2 else allowed[allowed + start != own][0]
        chosen.append(1 + int(named))
        *_, info = layer.step(own)
        attacked.append(info["adv_wrappers"][layer.key]["attacked"])
        assert env.received[-1][-1] == (named + start if attacked[-1] else own)
    assert attacked == [True, False, True, False]


def test_texts_become_actors():
    timed = as_actor("timed:max-diff:steps=5", HOPPER)
    assert timed == Timed(adv.MaxDiff(HOPPER, steps=5), HOPPER) and timed.label == "timed max-diff"
    assert as_actor("induce", DQN) == Induce(DQN)
    assert as_actor({"type": "timed", "how": {"type": "noise"}}, DQN) == Timed(adv.Noise(), DQN)
    with pytest.raises(ThreatError, match="timed needs the perturbation"):
        as_actor("timed", DQN)
    with pytest.raises(ThreatError, match="budget and timing go beside the text of noise, not in it: eps, when"):
        as_actor("timed:noise:eps=0.1,when=every(2)", DQN)
    with pytest.raises(ThreatError, match="unknown actor 'pa-ad:steps=3'"):
        as_actor("pa-ad:steps=3", DQN)


@pytest.mark.parametrize(("actor", "victim"), [(Timed(adv.MaxDiff()), HOPPER), (Timed(adv.WorstAction()), DQN),
                                               (Induce(), DQN)], ids=str)  # fmt: skip
def test_saved_and_loaded(actor, victim, tmp_path):
    actor = actor.against(victim)
    size = int(actor.action_space(victim.observation_space.shape).n)
    director = Director(nn.Sequential(nn.Linear(victim.observation_space.shape[0], size)), discrete=True)
    saved = Learned(director, actor).save(tmp_path, adv.Linf(0.1) if actor.on == "observation" else None)
    assert saved.actor == actor and saved.within == (adv.Linf(0.1) if actor.on == "observation" else adv.Valid())
    again = decode(json.loads(json.dumps(saved.to_dict())), adv.load_victim)
    assert again.actor.open() == actor.open() and again.declines and again.on == actor.on
    assert Learned(card=str(tmp_path), victim=victim).actor.open().victim is None


def test_a_surrogate_stays_what_the_perturbation_is_aimed_at():
    timed = Timed(adv.MinBest(A2C)).against(DQN)
    assert timed.how.victim is A2C and timed.victim is DQN
    assert timed.open().how.victim is A2C and timed.open().victim is None
    assert Timed(adv.MinBest(), DQN).open().how.victim is None


@every_case(
    ("make", "error", "match"),
    [
        (lambda: Timed(adv.Linf(0.1)), ThreatError, "timed takes a perturbation such as"),
        (lambda: Timed("max-diff"), ThreatError, "or the text 'timed:max-diff'"),
        (lambda: Timed(Learned(every_third, Timed(adv.Noise()))), ThreatError, "without a memory of its own"),
        (lambda: Induce(HOPPER), VictimError, "induce names one of several discrete actions"),
        (lambda: Timed(adv.Noise(), "zoo:x"), VictimError, "timed expects a victim"),
    ],
)
def test_what_cannot_work(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_what_the_perturbation_checks_is_checked():
    with pytest.raises(BudgetError, match="searches its budget"):
        adv.AdversaryEnv(gym.make("Hopper-v5"), HOPPER, "timed:max-diff", adv.Valid())


def test_an_actor_that_declines_nothing_accepts_all():
    assert Actor().accepts(torch.zeros(3, 2), torch.zeros(3), None).tolist() == [True] * 3


def test_an_answer_that_is_no_choice():
    @dataclass(frozen=True)
    class Undecided(DecliningPerturbation):
        name: ClassVar[str] = "undecided"

        def accepts(self, x, context):
            return x

        def __call__(self, x, context):
            return x

    env = adv.PerturbObservation(gym.make("CartPole-v1"), Undecided(), adv.Linf(0.1))
    with pytest.raises(ThreatError, match=r"undecided must accept or decline with one bool a row \(1\)"):
        env.reset(seed=0)
