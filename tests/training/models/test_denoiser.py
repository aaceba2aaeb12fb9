"""Denoisers that are trained: what they learn, from what, what their card says and what is refused."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import BudgetError, CardError, ValueRangeError, VictimError
from adv_wrappers.evaluation.rollout import side_by_side
from adv_wrappers.training.folder import write_tensors
from adv_wrappers.training.models import denoiser
from adv_wrappers.training.models.denoiser import _Windows, train_denoiser
from adv_wrappers.training.models.trajectories import Trajectories, collect
from adv_wrappers.victims.saved_networks import Denoiser

QUICK = {"transitions": 400, "updates": 5, "hidden": (8,), "num_envs": 2}


class Line(gym.Env):
    """The state lies on the line ``(x, -x)`` and is drawn anew at every step; episodes of 20 steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2, start=3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def step(self, action):
        assert action in (3, 4)
        self.t += 1
        return self._draw(), 1.0, False, self.t == 20, {}

    def _draw(self):
        return self.np_random.normal() * np.array([1.0, -1.0])


class Walk(Line):
    """The state is where the action puts it, a half to either side."""

    def _draw(self):
        self.x = 0.5 if self.t == 0 else self.x
        return np.array([self.x, -self.x])

    def step(self, action):
        self.x = action - 3.5
        return super().step(action)


def agent(env=Line):
    torch.manual_seed(0)
    return adv.from_module(torch.nn.Linear(2, 2), env.observation_space, env.action_space, "q")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "diffusion"])
def test_a_state_on_a_line_is_brought_back_to_it(kind):
    made = train_denoiser(
        agent(), Line, 0.5, kind=kind, history=0, levels=3, transitions=2000, updates=600, hidden=(64,), num_envs=4
    )
    errors = made.card["errors"]
    assert errors["noise"]["before"] == pytest.approx(3**-0.5, abs=0.02) and errors["corners"]["before"] == 1
    assert errors["noise"]["after"] < 0.48 and errors["corners"]["after"] < 0.8  # half the variance lies off the line
    obs = torch.tensor([[1.3, -0.7]])
    found = made.net(obs, None)
    assert found.sum().abs() < 0.25 and (found - obs).abs().max() <= 0.5 + 1e-6


@pytest.mark.slow
def test_history_tells_where_a_state_is():
    how = {"transitions": 2000, "updates": 600, "hidden": (64,), "num_envs": 4, "levels": 3}
    with_it, without = (train_denoiser(agent(Walk), Walk, 0.5, history=h, **how) for h in (2, 0))
    assert with_it.card["errors"]["noise"]["after"] < 0.9 * without.card["errors"]["noise"]["after"]


@pytest.mark.parametrize(("kind", "history"), [("plain", 0), ("diffusion", None)])
def test_the_card_and_its_folder(kind, history, tmp_path):
    told = []
    given = {**QUICK, "out": tmp_path, "history": history, "progress": lambda *now: told.append(now)}
    made = train_denoiser("zoo:cartpole-dqn", "CartPole-v1", 0.1, [1, 2, 1, 0], kind, **given)
    assert made == Denoiser(str(tmp_path)) and made.net.unit.tolist() == pytest.approx([0.1, 0.2, 0.1, 0])
    assert made.card["budget"]["eps"] == 0.1 and made.card["victim"]["ref"] == "zoo:cartpole-dqn"
    expected = (4 if kind == "diffusion" else 0) if history is None else history
    assert made.history == expected and made.diffusion == (kind == "diffusion")
    errors = made.card["errors"]["noise"]
    assert 0 < errors["after"] != errors["before"] > 0
    assert told[-1] == ("training", 5, 5) and ("victim", 400, 400) in told
    told.clear()
    again = train_denoiser("zoo:cartpole-dqn", "CartPole-v1", 0.1, [1, 2, 1, 0], kind, **given)
    assert again == made and told == []
    with pytest.raises(ValueRangeError, match="seed"):
        train_denoiser("zoo:cartpole-dqn", "CartPole-v1", 0.1, [1, 2, 1, 0], kind, **{**given, "seed": 1})


def test_the_same_call_makes_the_same_denoiser_and_continuous_actions_are_remembered():
    one, two = (
        train_denoiser("zoo:hopper-ppo", "Hopper-v5", 0.075, "victim", **{**QUICK, "transitions": 100})
        for _ in range(2)
    )
    assert one.sha256 == two.sha256 and one.net.actions == 3
    scale = adv.load_victim("zoo:hopper-ppo").scale
    torch.testing.assert_close(one.net.unit, 0.075 * scale.float())
    assert json.dumps(one.card)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stopped_at", [2, 5])
def test_an_interrupted_training_goes_on_to_the_same_network(monkeypatch, tmp_path, stopped_at):
    monkeypatch.setattr(denoiser, "LEAST_ROUND", 2)

    def stop(part, done, whole):
        if (part, done) == ("training", stopped_at):
            raise Stopped

    with pytest.raises(Stopped):
        train_denoiser(agent(), Line, 0.5, out=tmp_path, progress=stop, **QUICK)
    told = []
    found = train_denoiser(agent(), Line, 0.5, out=tmp_path, progress=lambda *now: told.append(now), **QUICK)
    assert told == [("training", done, 5) for done in (4, 5) if done > stopped_at]
    whole = train_denoiser(agent(), Line, 0.5, **QUICK).net.state_dict()
    assert all(torch.equal(part, whole[name]) for name, part in found.net.state_dict().items())
    assert not [*tmp_path.glob("checkpoint-*")]


def test_a_checkpoint_of_another_network_is_named(tmp_path):
    def stop(part, done, whole):
        if part == "training":
            raise Stopped

    with pytest.raises(Stopped):
        train_denoiser(agent(), Line, 0.5, out=tmp_path, progress=stop, **QUICK)
    write_tensors(tmp_path / "checkpoint-5", {"network": {}, "optimizer": {}, "draws": torch.zeros(1)})
    with pytest.raises(CardError, match="checkpoint-5 as the state of the denoiser"):
        train_denoiser(agent(), Line, 0.5, out=tmp_path, **QUICK)


def test_windows_stay_in_one_episode():
    steps, rows = 12, 2
    t = np.arange(steps, dtype=np.float32)
    obs = np.stack([t, 100 + t], 1)[..., None]
    over = np.zeros((steps, rows), bool)
    over[4, 0] = over[11] = True
    played = Trajectories(obs, obs, obs, obs[..., 0], over)
    windows = _Windows(played, 2, 3)
    pairs = set(zip(windows.t.tolist(), windows.row.tolist(), strict=True))
    assert pairs == {(s, 0) for s in (0, 1, 2, 5, 6, 7, 8, 9)} | {(s, 1) for s in range(10)}
    seen, act, past = windows.sample(200, torch.Generator().manual_seed(0))
    assert (seen.diff(dim=1) == 1).all() and torch.equal(seen, act)
    before, last, known = past
    first = seen[:, 0, 0]
    fresh = (first == 0) | (first == 5) | (first == 100)
    assert not known[fresh].any() and not before[fresh].any() and not last[fresh].any()
    later = known[:, 1] == 1
    assert torch.equal(before[later][:, 1, 0], first[later] - 1) and torch.equal(last[later][:, 0], first[later] - 1)
    with pytest.raises(ValueRangeError, match="13 steps long"):
        _Windows(played, 0, 13)


def test_discrete_actions_are_disturbed_in_every_second_row():
    env = Environment.of(Line, agent())
    found = collect(lambda rows: side_by_side(env, rows), agent(), 300, 2, (0,), 1.0)
    played = agent().act_on(found.obs.reshape(-1, 2)).reshape(300, 2) - 3
    same = found.act.argmax(-1) == played
    assert found.act.shape == (300, 2, 2) and (found.act.sum(-1) == 1).all()
    assert same[:, 0].all() and 0.35 < same[:, 1].mean() < 0.65
    drawn = collect(lambda rows: side_by_side(env, rows), None, 100, 2, (0,))
    assert 0.35 < drawn.act[..., 0].mean() < 0.65


def test_what_is_refused():
    two = spaces.MultiDiscrete([2, 2])
    several = adv.from_module(torch.nn.Linear(2, 4), Line.observation_space, two, "logits")
    image = adv.from_module(torch.nn.Flatten(), spaces.Box(-1, 1, (1, 2)), spaces.Discrete(2), "q")
    cartpole = "zoo:cartpole-dqn"
    for call, error, match in [
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, kind="unet"), ValueRangeError, "'diffusion' or 'plain'"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.0), BudgetError, "above zero"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, [1.0]), BudgetError, "scale has 1 numbers"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, "victim"), BudgetError, "unit of its own"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, transitions=99), ValueRangeError, "transitions"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, history=-1), ValueRangeError, "history"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, levels=0), ValueRangeError, "levels"),
        (lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, updates=0), ValueRangeError, "updates"),
        (
            lambda: train_denoiser(cartpole, "CartPole-v1", 0.1, transitions=100, num_envs=50),
            ValueRangeError,
            "more than 450 transitions",
        ),
        (lambda: train_denoiser(several, Line, 0.1), VictimError, "one choice, or a Box"),
        (lambda: train_denoiser(image, Line, 0.1), VictimError, "one dimension"),
    ]:
        with pytest.raises(error, match=match):
            call()
