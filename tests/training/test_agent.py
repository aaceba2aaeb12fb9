"""Training against adversaries: who stands still when, what the agent sees, what is kept, and what cannot work."""

from __future__ import annotations

import functools
import inspect
import json
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import adv_wrappers as adv
from adv_wrappers.adversaries import Director, Learned
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import SEED_OFFSET

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.training.agent import Hardened, train_agent
from adv_wrappers.training.agent_fit import (
    AgentFit,
    LearningAgent,
    all_lost,
    hold_statistics,
    is_better,
)
from adv_wrappers.training.defences.atla import DirectorSnapshot
from adv_wrappers.training.sb3 import director_networks
from adv_wrappers.training.sb3.conversion import live_victim, update_normaliser
from adv_wrappers.training.sb3.vec_env import AgentVecEnv
from tests import rigs  # noqa: F401 - registers tests/Frames-v0
from tests.episodes import short_episodes_of
from tests.every_case import every_case
from tests.toys import Brief

SMALL: dict[str, Any] = {
    "num_envs": 4, "phase": 128, "checks": 2, "episodes": 2,
    "settings": {"n_steps": 16, "n_epochs": 1}, "adversary_settings": {"n_steps": 16, "n_epochs": 1},
}  # fmt: skip


RECURRENT = {"algorithm": "recurrent-ppo"}


class Slope(Brief):
    """Five features of very different spread that drift; going along the first one pays; eight steps an episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float64)
    action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    spread = np.array([0.01, 1.0, 30.0, 4.0, 0.5])

    def seen(self):
        self.obs = 7.0 + self.spread * self.np_random.normal(size=5)
        return self.obs

    def act(self, action):
        assert self.action_space.contains(action)
        return action[0] * (self.obs[0] - 7.0) * 100


def weights(policy):
    return torch.cat([p.detach().reshape(-1).clone() for p in policy.parameters()])


@functools.cache
def what_was_seen():
    """What every rollout, phase and checkpoint of a training looked like, told by its own objects as it goes."""
    received: dict[str, list[Any]] = {"steps": [], "before": [], "after": [], "rollouts": []}
    step, turn, settle = AgentVecEnv.step_wait, AgentFit.pause, LearningAgent.update_normaliser

    def stepped(self):
        out = step(self)
        received["steps"].append((self, self.recorder.observation.copy(), out[0].copy()))
        return out

    def turned(self, checkpoint):
        before = weights(self.agent.model.policy), weights(self.adversary.model.policy)
        steps, taken = len(received["steps"]), self.adversary.model.num_timesteps
        turn(self, checkpoint)
        assert len(received["steps"]) == steps  # the agent's environments stand still
        if self.adversary.model.num_timesteps == taken:
            return
        received["before"].append(before)
        received["after"].append((weights(self.agent.model.policy), weights(self.adversary.model.policy)))
        director = self.adversary.snapshot.director
        x = torch.randn(3, 5) if self.agent.victim.observation_space.shape == (5,) else torch.randn(3, 4)
        assert torch.equal(director(x), director_networks.director_of(self.adversary.model)(x))
        received["rollouts"].append(("director", director(x), x, director))

    def settled(self):
        settle(self)
        normal = self.normal
        budgets = [layer.threat.budget for layer in self.layers]
        received["rollouts"].append(("rollout", normal.obs_rms.var.copy(), budgets, len(received["steps"])))
        obs = np.random.default_rng(0).normal(7, 5, (6, *self.victim.observation_space.shape))
        mean = self.victim.params(torch.as_tensor(obs, dtype=torch.float32)).detach()
        own = self.model.policy.get_distribution(torch.as_tensor(normal.normalize_obs(obs))).distribution
        received.setdefault("agrees", []).append((mean, own))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AgentVecEnv, "step_wait", stepped)
        patched.setattr(AgentFit, "pause", turned)
        patched.setattr(LearningAgent, "update_normaliser", settled)
        train_agent(Slope, "pa-ad", 0.1, 256, scale="victim", **SMALL)
    return received


def test_one_side_stands_still_while_the_other_learns():
    seen = what_was_seen()
    assert len(seen["before"]) == len(seen["after"]) == 2
    for (agent, trained_adversary), (agent_after, adversary_after) in zip(seen["before"], seen["after"], strict=True):
        assert torch.equal(agent, agent_after) and not torch.equal(trained_adversary, adversary_after)
    for (agent, trained_adversary), (agent_before, adversary_before) in zip(
        seen["after"][:-1], seen["before"][1:], strict=True
    ):
        assert not torch.equal(agent, agent_before) and torch.equal(trained_adversary, adversary_before)
    last = None
    for event in seen["rollouts"]:
        if event[0] == "director":
            last = event
        elif last is not None:  # throughout the agent's phase its opponent is what it was
            assert torch.equal(last[3](last[2]), last[1])


def test_the_agent_sees_perturbed_observations_within_the_budget_of_its_present_units():
    seen = what_was_seen()
    events = [event for event in seen["rollouts"] if event[0] == "rollout"]
    assert len(events) == 4 and len(seen["steps"]) == 4 * 16
    units = np.array([np.sqrt(event[1] + 1e-8) for event in events])
    assert (units[0] == np.sqrt(1 + 1e-8)).all() and (np.diff(units, axis=0) != 0).all()
    assert np.allclose(units[-1], Slope.spread, rtol=0.2)
    for (_, _, budgets, begin), unit, end in zip(events, units, [*(e[3] for e in events[1:]), 64], strict=True):
        assert len(budgets) == 2  # the agent's layer and the adversary's own
        for budget in budgets:
            assert np.allclose(budget.scale, unit, rtol=1e-12) and budget.eps == 0.1
        gone = []
        for _, true, shown in seen["steps"][begin:end]:
            assert np.isfinite(shown).all() and shown.shape == true.shape == (4, 5)
            gone.append(np.abs(shown - true) / unit)
        assert 0.1 * 0.5 < np.max(gone) <= 0.1 * (1 + 1e-6) and np.mean(gone) > 0.01


def test_the_live_victim_is_the_agent_at_every_rollout():
    seen = what_was_seen()
    assert len(seen["agrees"]) == 4
    for params, own in seen["agrees"]:
        torch.testing.assert_close(params[:, :2], own.mean.detach(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(params[:, 2:].exp(), own.stddev.detach(), rtol=1e-5, atol=1e-6)
    moved = [first[0] - second[0] for first, second in zip(seen["agrees"], seen["agrees"][1:], strict=False)]
    assert all(move.abs().max() > 1e-4 for move in moved)


def test_statistics_are_those_of_true_observations():
    """A bias of the whole budget, up and never down, would be in the mean of what the agent sees."""
    up = adv.ThreatModel("observation", lambda x, context: context.high, adv.Linf(50.0))
    hardened = train_agent(Slope, up, None, 256, **SMALL)
    assert hardened.victim.net[0].mean == pytest.approx([7.0] * 5, abs=8.0)


def test_one_argument_tells_the_trainings_apart():
    received, small = [], {**SMALL, "phase": 64}
    hardened = train_agent(
        "CartPole-v1", "max-diff:steps=2", 0.05, 128, progress=lambda *at: received.append(at), **small
    )
    assert [steps for steps, *_ in received] == [64, 128] == [row["steps"] for row in hardened.record]
    assert all(attacked is not None and 0 < clean <= 30 for _, clean, attacked in received)
    row = hardened.record[hardened.best]
    assert row["score"] == max(row["score"] for row in hardened.record)
    assert row["adversary_steps"] == 0
    assert f"at {row['steps']} of 128 steps" in hardened.protocol
    report = adv.evaluate(hardened.victim, "CartPole-v1", [hardened.threat], episodes=2)
    assert report.threats[1]["linf"] <= 0.05 + 1e-6


PLAIN: dict[str, Any] = {"env": "CartPole-v1", "steps": 256, **SMALL, "checks": 4}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A plain training, its folder, and the steps that were told."""
    out, told = tmp_path_factory.mktemp("agents") / "plain", []
    with short_episodes_of(30, "CartPole-v1"):
        hardened = train_agent(**PLAIN, adversary=None, gamma=0.9, out=out, on_steps=told.append)
    return hardened, out, told


def test_only_the_second_half_is_chosen_from(plain):
    hardened = plain[0]
    assert hardened.began_with is None
    assert hardened.threat is None and all(row["attacked"] is None for row in hardened.record)
    late = [(64, False), (128, True), (192, True), (256, True)]
    assert [(row["steps"], row["late"]) for row in hardened.record] == late
    assert hardened.protocol.startswith("the best of 3 checkpoints by the clean return")
    rows = [(9.0, False), (3.0, True), (5.0, True), (5.0, True), (4.0, True)]
    assert best_of([{"score": score, "late": late} for score, late in rows]) == [
        None,
        1,
        2,
        3,
        3,
    ]  # the longest trained


def best_of(rows):
    """Which row is the best after each."""
    best, found = None, []
    for number, row in enumerate(rows):
        best = number if is_better(row, None if best is None else rows[best]) else best
        found.append(best)
    return found


@every_case(
    ("clean", "best", "words"),
    [
        ([-150.0, -140.0], 1, "it earned -101.7 as the agent that it began with, and earns -140.0 now"),
        ([166.5, 99.7, 116.4], 2, "it earned 166.5 after 10 steps, and earns 116.4 now: more steps"),
        ([-100.0, -90.0, -200.0], 2, "it earned -90 after 20 steps, and earns -200.0 now"),
        ([100.0, 90.0, 85.0], 2, ""), ([-871.0, -100.0], 1, ""),
    ],
)  # fmt: skip
def test_a_training_that_cost_much_of_the_clean_return_says_so(clean, best, words):
    record = tuple({"steps": 10 * (place + 1), "clean": value} for place, value in enumerate(clean))
    said = Hardened(None, None, record, best, -101.7 if min(clean) == -150 else None).given_up
    assert words in said and bool(words) == bool(said)


def test_the_agent_that_it_began_with_plays_the_same_episodes(tmp_path):
    """No file of an agent by others says what it earned."""
    how = {"steps": 64, "victim": "zoo:cartpole-ppo", "env_kwargs": {"max_episode_steps": 20}, "out": tmp_path}
    for _ in range(2):
        hardened = train_agent("CartPole-v1", robust="sa", eps=0.05, **SMALL, **how)
        assert hardened.began_with == 20.0
    began = {"ref": "zoo:cartpole-ppo", "clean": 20.0}
    assert hardened.victim.card["training"]["began_with"] == began
    assert json.loads((tmp_path / "state.json").read_text())["result"]["began_with"] == began


def test_the_discount_factor_is_given_in_one_place(plain):
    assert plain[0].victim.card["training"]["settings"]["gamma"] == 0.9
    with pytest.raises(ThreatError, match=r"gamma=0.9 and settings\['gamma'\]=0.8 differ"):
        train_agent("CartPole-v1", None, gamma=0.9, settings={"gamma": 0.8})
    with pytest.raises(ValueRangeError, match="gamma must be"):
        train_agent("CartPole-v1", None, gamma=1.5)


def test_steps_are_told_between_rollouts(plain):
    assert plain[2] == [0, 64, 128, 192]

    def stop(steps):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_agent("CartPole-v1", None, steps=512, on_steps=stop, **SMALL)


ALL_LOST = {"env_kwargs": {"max_episode_steps": 40}, **SMALL, "num_envs": 2, "checks": 2, "episodes": 3}


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({"robust": "sa"}, "the greedy worst case leaves"),
        pytest.param({"adversary": "min-best"}, "the attack leaves", marks=pytest.mark.slow),
    ],
)
def test_where_all_is_lost_checkpoints_are_compared_under_max_diff(how, left, tmp_path):
    """CartPole within a budget of one: every episode ends after nine steps, whatever the agent has learned."""
    given = {"victim": "zoo:cartpole-a2c", "eps": 1.0, "steps": 64, "out": tmp_path / "out", **ALL_LOST, **how}
    with pytest.warns(UserWarning, match=f"{left} .* at each of the 2 checkpoints .* at 1 and 0.5 and 0.25 and 0.125"):
        hardened = train_agent("CartPole-v1", **given)
    late = [row for row in hardened.record if row["late"]]
    assert all(list(row["max_diff"]) == ["1", "0.5", "0.25", "0.125"] for row in late)
    for row in late:
        assert row["max_diff_score"] == pytest.approx((row["clean"] + np.mean([*row["max_diff"].values()])) / 2)
    assert hardened.record[hardened.best]["max_diff_score"] == max(row["max_diff_score"] for row in late)
    assert "shares of the budget" in hardened.protocol
    state = json.loads((tmp_path / "out" / "state.json").read_text())
    assert state["record"] == [*hardened.record]
    # what tells one training from another: a call with another value of what is missing goes on with this one
    assert {*inspect.signature(train_agent).parameters} - {*state["about"]} - {"robust"} == {
        "eps", "scale", "within", "when",  # in the adversary or the loss
        "env", "env_kwargs", "make",  # in the environment
        "gamma",  # in the settings
        "tensorboard", "workers", "env_workers", "out", "progress", "on_steps",
    }  # fmt: skip


def test_what_is_kept_in_the_budget_itself_counts_first():
    rows = [(50.0, 30.0), (49.0, 40.0), (60.0, None), (55.0, 99.0), (20.0, 70.0)]
    lost = [{} if one is None else {"max_diff": {"0.5": 1.0}, "max_diff_score": one} for _, one in rows]
    found = [{"score": score, "late": True, **more} for (score, _), more in zip(rows, lost, strict=True)]
    assert best_of(found) == [0, 1, 2, 2, 2]


@every_case(
    ("clean", "returns", "lost"),
    [(500, [9, 10, 8, 9], True), (-80, [-500] * 4, True), (500, [500] * 4, False), (9, [9, 8, 9, 8], False),
     (500, [9, 400, 20, 300], False), (500, [9, 9], False), (0, [-21] * 4, True), (250, [-600, -400, -90], False)],
)  # fmt: skip
def test_all_is_lost_where_every_episode_ends_alike(clean, returns, lost):
    assert all_lost(np.array(returns, float), np.full(len(returns), float(clean))) == lost


def test_the_snapshot_draws_as_the_adversary_does_in_its_own_phase():
    x, key = torch.zeros(20_000, 2), torch.arange(20_000) * 977
    for choices in (True, False):
        layer = nn.Linear(2, 3)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([0.0, 1.0, -0.2]))
        snapshot = DirectorSnapshot()
        snapshot.director, snapshot.log_std = Director(nn.Sequential(layer), choices), None
        if not choices:
            snapshot.log_std = torch.tensor([0.1, 0.1, 0.3]).log()
        adversary_action = snapshot.act(x, key)
        if choices:
            share = torch.bincount(adversary_action, minlength=3) / len(x)
            torch.testing.assert_close(share, layer.bias.softmax(-1).detach(), atol=0.015, rtol=0)
        else:
            assert adversary_action.abs().max() <= 1
            spread = torch.tensor([0.1, 0.0584, 0.3])  # of the second, cut at 1, half is left
            torch.testing.assert_close(adversary_action.std(0), spread, atol=0.01, rtol=0)
        assert torch.equal(adversary_action, snapshot.act(x, key)) and torch.equal(
            adversary_action[:5], snapshot.act(x[:5], key[:5])
        )


def test_the_card_is_the_agent(tmp_path):
    hardened = train_agent(Slope, "sa-rl", 0.05, 128, out=tmp_path, **SMALL)
    victim = adv.load_victim(f"card:{tmp_path}")
    place = tmp_path / f"checkpoint-{hardened.record[hardened.best]['steps']}"
    kept, normal = json.loads((place / "normaliser.json").read_text()), VecNormalize(make_vec_env(Slope, 1))
    normal.obs_rms.mean, normal.obs_rms.var = (np.array(kept["observation"][part]) for part in ("mean", "var"))
    from_zip = adv.from_sb3(PPO.load(place / "agent.zip"), vec_normalize=normal)
    x = torch.as_tensor(np.random.default_rng(0).normal(6, 9, (64, 5)), dtype=torch.float32)
    for other in (from_zip, hardened.victim):
        assert torch.equal(victim.params(x), other.params(x)) and torch.equal(victim.value(x), other.value(x))
        assert torch.equal(victim.scale, other.scale) and victim.select == other.select == "mode"
        assert torch.equal(victim.act(victim.params(x)), other.act(other.params(x)))
    assert victim.card["training"]["adversary"]["actor"] == "sa-rl"
    assert isinstance(hardened.threat.how, Learned) and hardened.threat.how.card == str(tmp_path / "adversary")
    for seed, warned in ((SEED_OFFSET, 2), (0, 0)):  # of both sides on the episodes that chose the checkpoint
        report = adv.evaluate(victim, Slope, [hardened.threat], 4, seed)
        assert sum("was chosen on 2 of the 4 episodes" in warning for warning in report.warnings) == warned
    again = adv.ThreatModel.from_dict(json.loads(json.dumps(hardened.threat.to_dict())))
    assert torch.equal(again.how.director(x), hardened.threat.how.director(x)) and again.how.victim is None


def test_a_card_of_dqn_and_of_two_shapes(tmp_path):
    for name, model in {
        "q": DQN("MlpPolicy", "CartPole-v1", device="cpu", seed=0),
        "shapes": A2C(
            "MlpPolicy",
            "Pendulum-v1",
            device="cpu",
            seed=0,
            policy_kwargs={"net_arch": {"pi": [8], "vf": [16, 4]}, "activation_fn": nn.ReLU},
        ),
    }.items():
        victim = adv.from_sb3(model)
        adv.save_card(tmp_path / name, victim, environment="Any-v0")
        card, x = adv.load_victim(f"card:{tmp_path / name}"), torch.randn(9, *victim.observation_space.shape)
        assert torch.equal(card.params(x), victim.params(x)) and card.kind == victim.kind
        acted = card.act(card.params(50 * x)), victim.act(victim.params(50 * x))
        assert torch.equal(*acted) and card.action_space == victim.action_space
    with pytest.raises(VictimError, match="a card holds networks of layers in a row"):
        odd = {"activation_fn": nn.Mish}
        adv.save_card(tmp_path, adv.from_sb3(PPO("MlpPolicy", "CartPole-v1", policy_kwargs=odd)), environment="Any-v0")


def test_a_live_victim_follows_a_moving_normaliser():
    """Its gradient is that of what the agent does now, also before anything was told to it again."""
    normal = VecNormalize(make_vec_env(Slope, 2))
    model = PPO("MlpPolicy", normal, n_steps=16, batch_size=32, device="cpu", seed=0)
    victim = live_victim(model, "mode")
    model.learn(32)
    hold_statistics(normal, False)
    update_normaliser(victim, normal)
    frozen, x = adv.from_sb3(model), torch.randn(7, 5) + 7
    # a frozen one computes in float64 here, where a feature of mean 7 hardly varies
    torch.testing.assert_close(victim.params(x), frozen.params(x).float())
    assert torch.equal(victim.scale, frozen.scale)
    along = [one.gradient(lambda params: params[:, 0])(x).float() for one in (victim, frozen)]
    torch.testing.assert_close(*along)
    before = [None if p.grad is None else p.grad.clone() for p in model.policy.parameters()]
    victim.gradient(lambda params: params[:, 0])(x)
    after = [p.grad for p in model.policy.parameters()]
    assert all(a is b or torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_an_agent_learns_against_an_adversary_of_a_folder(tmp_path):
    Learned(Director(nn.Sequential(nn.Linear(4, 4)), False, clip=True), adv.SARL()).save(
        tmp_path / "adversary", adv.Linf(0.1)
    )
    found = train_agent(
        "CartPole-v1",
        f"learned:card={tmp_path / 'adversary'}",
        steps=64,
        num_envs=4,
        checks=1,
        episodes=1,
        settings={"n_steps": 16},
        out=tmp_path / "agent",
    )
    assert found.threat is not None and found.threat.how.card == str(tmp_path / "adversary")


def test_the_folder_of_another_training_is_refused(plain):
    known = {**PLAIN, "gamma": 0.9, "out": plain[1]}
    with pytest.raises(
        ValueRangeError, match=r"with adversary.actor None and not 'sa-rl', .* and \d more: give another folder"
    ):
        train_agent(**known, adversary="sa-rl", eps=0.05)
    with pytest.raises(ValueRangeError, match="net_arch"):
        settings = {**SMALL["settings"], "policy_kwargs": {"net_arch": [8]}}
        train_agent(**{**known, "settings": settings}, adversary=None)
    with pytest.raises(ValueRangeError, match=r"holds another training, with .*robust"):
        train_agent(**known, adversary=None, eps=0.05, robust="radial")


def test_one_log_a_side(tmp_path):
    pytest.importorskip("tensorboard")
    before = threading.active_count()
    train_agent("CartPole-v1", "sa-rl", 0.05, 64, tensorboard=tmp_path, **{**SMALL, "phase": 64, "checks": 1})
    assert sorted(path.parent.name for path in tmp_path.rglob("events.*")) == ["adversary_0", "agent_0"]
    assert threading.active_count() == before


def test_an_agent_begins_as_a_victim():
    """With a rate of zero it stays what it was, normaliser included."""
    victim = adv.load_victim("zoo:hopper-ppo")
    still = {**SMALL, "settings": {"n_steps": 16, "learning_rate": 0.0}, "checks": 1}
    hardened = train_agent("Hopper-v5", None, steps=64, victim="zoo:hopper-ppo", **still)
    x = torch.randn(32, *victim.observation_space.shape)
    torch.testing.assert_close(hardened.victim.params(x), victim.params(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hardened.victim.scale.float(), victim.scale.float(), rtol=1e-6, atol=0)


def test_without_an_algorithm_an_agent_goes_on_by_that_of_its_kind(tmp_path):
    small = {"steps": 16, "num_envs": 2, "checks": 1, "episodes": 1}
    hardened = train_agent("CartPole-v1", None, victim="zoo:cartpole-dqn", out=tmp_path, **small)
    assert hardened.victim.card["training"]["algorithm"] == "dqn"


@every_case(
    ("arguments", "error", "match"),
    [
        ({"adversary": "pa-bd"}, ThreatError, "unknown adversary 'pa-bd': expected 'pa-ad', 'sa-rl'"),
        ({"adversary": "sa-rl", "eps": None}, ThreatError, "needs a budget"),
        ({"adversary": "max-diff", "eps": None}, BudgetError, "needs a budget"),
        ({"within": adv.Linf(0.1)}, ThreatError, "give either eps"),
        ({"eps": None, "within": adv.Linf(0.1), "scale": "victim"}, ThreatError, "give either eps"),
        ({"eps": None, "scale": 2.0}, ThreatError, "scale=2.0 needs eps= beside it"),
        ({"adversary": adv.ActionPAAD()}, ThreatError, "actors on observations"),
        ({"steps": 0}, ValueRangeError, "steps must be an integer from 1 to 1000000000000"),
        ({"settings": {"n_stepps": 3}}, ThreatError, "PPO takes .*, not n_stepps"),
        ({"adversary_settings": {"n_stepps": 3}}, ThreatError, "PPO takes .*, not n_stepps"),
        ({"algorithm": "sac"}, ThreatError, "algorithm must be 'ppo', 'a2c', 'dqn'"),
        ({"env": "Nowhere-v0"}, SpaceError, "Nowhere"),
        ({"env": "FrozenLake-v1"}, SpaceError, "observations of float"),
        ({"env": "PongNoFrameskip-v4", "make": gym.make}, SpaceError, r"images of uint8 \[C, H, W\]"),
        ({"env": "tests/Frames-v0"}, BudgetError, "below one grey level"),
        ({"victim": "zoo:hopper-ppo"}, VictimError, "for observation space"),
        ({"victim": "zoo:cartpole-dqn", "algorithm": "ppo"}, VictimError, "PPO or A2C to begin from, got one of kind"),
        ({"victim": "zoo:pong-ppo"}, VictimError, "for observation space"),
        ({"victim": 3}, VictimError, "a victim is 'zoo:NAME'"),
        ({"env": "Pendulum-v1", "adversary": "min-best"}, VictimError, "use max-diff"),
        ({**RECURRENT, "robust": "sa"}, ThreatError, "robust= is for ppo, a2c and dqn, not for recurrent-ppo"),
        ({**RECURRENT, "victim": "zoo:cartpole-ppo"}, VictimError, "from a recurrent victim, got a feed-forward one"),
        ({**RECURRENT, "env": "tests/Frames-v0", "eps": 1}, SpaceError, "use ppo on stacks of frames"),
        ({**RECURRENT, "settings": {"n_stepps": 3}}, ThreatError, "RecurrentPPO takes .*, not n_stepps"),
    ],
)
def test_what_cannot_work(arguments, error, match, tmp_path):
    given = {"env": "CartPole-v1", "adversary": "pa-ad", "eps": 0.05, "steps": 100, "out": tmp_path, **arguments}
    with pytest.raises(error, match=match):
        train_agent(**given)
    assert not list(tmp_path.iterdir())


def test_recurrent_agents_are_those_of_recurrent_ppo():
    contrib = pytest.importorskip("sb3_contrib")
    model = contrib.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", device="cpu", n_steps=8, batch_size=8)
    with pytest.raises(VictimError, match="got a recurrent victim: algorithm='recurrent-ppo' is for it"):
        train_agent("CartPole-v1", "sa-rl", 0.05, 100, "ppo", victim=model)


def test_a_recurrent_agent_is_trained_as_others_are():
    pytest.importorskip("sb3_contrib")
    short = {**SMALL, "num_envs": 2, "env_kwargs": {"max_episode_steps": 20}}
    hardened = train_agent("CartPole-v1", None, steps=64, algorithm="recurrent-ppo", **short)
    assert hardened.victim.recurrent and [row["steps"] for row in hardened.record] == [32, 64]
    adv.evaluate(hardened.victim, "CartPole-v1", episodes=2, env_kwargs=short["env_kwargs"])
