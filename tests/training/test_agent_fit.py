"""The adversary as the agent meets it, and the states of a recurrent agent, with which attacks look at what it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries import Director, Forces, Induce, Timed
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.errors import BudgetError, VictimError

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.atla import DirectorSnapshot, SnapshotAdversary
from adv_wrappers.training.sb3.vec_env import AgentVecEnv
from adv_wrappers.wrappers.sb3_vec_env import VecAdversaryEnv

SMALL = {
    "num_envs": 3, "phase": 48, "checks": 1, "episodes": 1, "scale": "victim", "env_kwargs": {"max_episode_steps": 12},
    "settings": {"n_steps": 16, "n_epochs": 2, "learning_rate": 1e-2, "policy_kwargs": {"lstm_hidden_size": 8}},
    "adversary_settings": {"n_steps": 16, "n_epochs": 1},
}  # fmt: skip


@dataclass(frozen=True)
class SeenByMaxDiff(MaxDiff):
    """MaxDiff that notes the states of the victim that it attacks, and what the victim answers there."""

    name: ClassVar[str] = "test-seen-by-max-diff"
    seen: ClassVar[list] = []

    def __call__(self, x, context):
        shown = super().__call__(x, context)
        self.seen.append((context.state(self.victim), context.bind(self.victim).params(shown).detach()))
        return shown


def test_an_attack_looks_at_the_state_that_the_agent_acts_with(monkeypatch):
    """Over two rollouts, in which the networks and the normaliser change and episodes end in the middle."""
    at_step, acted = [], []
    reset, step, add = AgentVecEnv.reset, AgentVecEnv.step_wait, RecurrentRolloutBuffer.add

    def noted(call):
        def wrapper(self):
            out = call(self)
            at_step.append(SeenByMaxDiff.seen[-1])  # of the new observations, after those that end an episode
            return out

        return wrapper

    def added(self, obs, action, reward, starts, value, log_prob, lstm_states):
        acted.append((lstm_states.pi, starts.copy(), action[:, 0].copy(), log_prob.clone(), self.pos))
        return add(self, obs, action, reward, starts, value, log_prob, lstm_states=lstm_states)

    SeenByMaxDiff.seen.clear()
    monkeypatch.setattr(AgentVecEnv, "reset", noted(reset))
    monkeypatch.setattr(AgentVecEnv, "step_wait", noted(step))
    monkeypatch.setattr(RecurrentRolloutBuffer, "add", added)
    attack = SeenByMaxDiff(steps=1)
    train_agent("CartPole-v1", attack, 0.3, 2 * 48, "recurrent-ppo", **SMALL)
    ends = [starts.any() for _, starts, *_ in acted]
    assert len(acted) == 32 and len(at_step) == 33 and any(ends[16:]) and not all(ends[16:])
    for (states, params), (lstm, starts, actions, log_prob, place) in zip(at_step, acted, strict=False):
        for ours, theirs in zip(states, lstm, strict=False):
            kept = theirs.transpose(0, 1) * torch.as_tensor(1.0 - starts)[:, None, None]
            torch.testing.assert_close(ours, kept.float(), rtol=1e-4, atol=1e-5)
        if place:  # the first observation of a rollout was attacked before the networks changed
            known = params.log_softmax(-1)[torch.arange(3), torch.as_tensor(actions).long()]
            torch.testing.assert_close(known, log_prob, rtol=1e-4, atol=1e-5)
    begun = [state[0].abs().sum((1, 2)) == 0 for state, _ in at_step[:-1]]
    assert all(np.array_equal(zero, starts) for zero, (_, starts, *_) in zip(begun, acted, strict=True))


def test_the_agent_remembers_in_the_phase_of_the_adversary(monkeypatch):
    states = []
    step = VecAdversaryEnv.step_async

    def stepped(self, actions):
        live = self.runner.victim
        states.append((self.runner.state, self.engine.hidden_state(live), self._lengths.copy()))
        step(self, actions)

    monkeypatch.setattr(VecAdversaryEnv, "step_async", stepped)
    train_agent("CartPole-v1", "pa-ad", 0.3, 48, "recurrent-ppo", **SMALL)
    assert len(states) == 16
    for own, of_attack, lengths in states:
        assert np.array_equal(own[0].abs().sum((1, 2)) > 0, lengths > 0)  # zero where an episode begins, and only there
        assert all(torch.equal(a, b) for a, b in zip(own, of_attack, strict=True))
    assert any((lengths == 0).any() for *_, lengths in states[1:])


def opponent(actor, *preferred):
    """An adversary in training that chooses by these logits, whatever it sees."""
    layer = nn.Linear(4, len(preferred))
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor(preferred))
    snapshot = DirectorSnapshot()
    snapshot.director = Director(nn.Sequential(layer), discrete=True)
    return SnapshotAdversary(actor, snapshot)


@pytest.mark.parametrize("actor", [Timed(adv.MinBest(steps=2)), Induce()], ids=lambda actor: actor.name)
def test_the_agent_is_not_attacked_at_the_steps_that_its_opponent_declines(actor):
    victim = adv.load_victim("zoo:cartpole-dqn")
    within = adv.Linf(0.05) if actor.on == "observation" else None
    attacked = []
    for logits in ((100.0, -100.0), (-100.0, 100.0)):
        how = opponent(actor.against(victim), *logits, *[-100.0] * (actor.name == "induce"))
        env = adv.wrap(gym.make("CartPole-v1"), adv.ThreatModel(actor.on, how, within))
        env.reset(seed=0)
        notes = [env.step(1)[-1]["adv_wrappers"][env.key] for _ in range(5)]  # 1 is not the first action, that it names
        attacked.append([note["attacked"] for note in notes])
    assert attacked == [[False] * 5, [True] * 5]


def test_the_opponent_is_what_its_actor_is():
    transform = opponent(Timed(adv.threat("brightness", alpha=0.5).how), 0.0, 0.0)
    simulating = opponent(Timed(adv.WorstAction(by="successor")), 0.0, 0.0)
    assert transform.native and not simulating.native and simulating.simulates and not transform.simulates
    assert opponent(Forces(bodies=("foot",)), 0.0).at == ("force.foot",)
    with pytest.raises(VictimError, match="opponent needs a victim"):
        adv.PerturbObservation(gym.make("CartPole-v1"), opponent(Timed(adv.MinBest()), 0.0, 0.0), within=adv.Linf(0.1))
    unbounded = adv.ThreatModel("observation", opponent(Timed(adv.Noise()), 0.0, 0.0), adv.Valid())
    with pytest.raises(BudgetError, match=r"^noise .* unbounded"):
        adv.wrap(gym.make("CartPole-v1"), unbounded)
