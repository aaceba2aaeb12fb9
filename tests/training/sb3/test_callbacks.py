"""Callbacks of Stable-Baselines3: what they measure, that they disturb no training, and curricula."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import OrderError, SpaceError, ThreatError, ValueRangeError, VictimError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize

from adv_wrappers.evaluation.statistics.curves import curves_of
from adv_wrappers.studies import Store
from adv_wrappers.training.sb3.callbacks import RobustnessCallback, ScheduleBudgetCallback, training_environment
from tests.every_case import every_case

ATTACK = "max-diff:eps=0.3,steps=2"
SMALL: dict[type, dict[str, Any]] = {
    PPO: {"n_steps": 32, "batch_size": 32, "n_epochs": 2},
    A2C: {"n_steps": 8},
    DQN: {"learning_starts": 16, "batch_size": 8},
    SAC: {"learning_starts": 16, "batch_size": 8},
    TD3: {"learning_starts": 16, "batch_size": 8},
}
RAMP = adv.LinearSchedule(0.0, 1.0)


def short(id: str = "CartPole-v1", **kwargs: Any) -> gym.Env:
    return gym.make(id, max_episode_steps=20, **kwargs)


def model(kind=PPO, make=short, normalise=True, seed=0, **settings):
    venv = make_vec_env(make, 2, seed=seed)
    venv = VecNormalize(venv) if normalise else venv
    return kind("MlpPolicy", venv, seed=seed, device="cpu", policy_kwargs={"net_arch": [8]}, **SMALL[kind], **settings)


def weights(trained):
    parameters = [p.detach().flatten() for p in trained.policy.parameters()]
    optimizers = [v for v in vars(trained.policy).values() if isinstance(v, torch.optim.Optimizer)]
    moments = [
        t.flatten() for o in optimizers for s in o.state.values() for t in s.values() if t.dtype.is_floating_point
    ]
    return torch.cat([*parameters, *moments])


class Drawing(gym.Wrapper):
    """An environment that draws from the global generators, as some users' do, and that must be left alone."""

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward + random.random() + np.random.rand() + torch.rand(1).item(), terminated, truncated, info


def drawing(id="CartPole-v1"):
    return Drawing(short(id))


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind is not PPO)) for kind in SMALL])
def test_the_training_is_the_same_to_the_bit_with_the_callback_and_without(kind):
    make = functools.partial(drawing, "Pendulum-v1" if kind in (SAC, TD3) else "CartPole-v1")
    seen = []
    for callback in (None, RobustnessCallback(ATTACK, every=32, episodes=2, env=make, select="sample")):
        trained = model(kind, make)
        trained.learn(128, callback=callback)
        normal = trained.get_vec_normalize_env()
        draws = random.random(), np.random.rand(), torch.rand(1).item(), trained.action_space.sample()
        seen.append((weights(trained), normal.obs_rms.mean, normal.ret_rms.var, trained.policy.training, *draws))
    for without, with_it in zip(*seen, strict=True):
        assert torch.equal(torch.as_tensor(without), torch.as_tensor(with_it))
    assert [row["steps"] for row in callback.rows[::2]] == ([64, 128] if kind is PPO else [32, 64, 96, 128])
    assert callback.seconds > 0


def test_what_is_logged(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trained = model()
    trained.set_logger(configure(str(tmp_path), ["tensorboard", "csv", "json", "log"]))
    callback = RobustnessCallback([ATTACK, "noise:eps=0.1"], every=64, episodes=2)
    trained.learn(128, callback=callback, log_interval=1)
    trained.logger.close()
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    for place, name in ((1, ATTACK), (2, "noise:eps=0.1")):
        for key in ("return", "low", "high", "attack_rate", "flips"):
            found = events.Scalars(f"robustness/{name}/{key}")
            assert [event.step for event in found] == [64, 128]
            rows = callback.rows[place::3]
            assert [event.value for event in found] == pytest.approx([row[key] for row in rows])
    clean, attacked = (events.Scalars(f"robustness/{name}")[0].value for name in ("clean", "attacked"))
    assert clean == callback.rows[0]["return"] and attacked == min(row["return"] for row in callback.rows[1:3])
    assert {event.step for event in events.Scalars("train/loss")} == {128}  # recorded and written when PPO does
    text = (tmp_path / "log.txt").read_text()
    assert text.count("robustness/") == 2 and "attack_rate" not in text


def test_rows_are_kept_and_the_best_agent_can_be_loaded(tmp_path):
    out = tmp_path / "robustness"
    trained = model()
    callback = RobustnessCallback(ATTACK, every=64, episodes=2, out=out, save_best=True)
    trained.learn(128, callback=callback)
    with Store(out / "rows.db", shared=False) as store:
        reports = store.reports()
    assert [report.victim["ref"] for report in reports] == ["PPO@64", "PPO@128"]
    assert reports[0].warnings == ("nothing was checked: PPO@64 was measured while it was trained, and is not kept",)
    returns = [[row["mean_return"] for row in report.threats] for report in reports]
    assert returns == [[row["return"] for row in callback.rows[i : i + 2]] for i in (0, 2)]
    assert adv.Report.from_json(out / "report.json").threats == callback.report.threats
    curves = curves_of(out, x="training_steps").curves
    points = [(label, [(point.x, point.mean) for point in found]) for (_, label), found in curves.items()]
    assert points == [
        (name, [*zip((64, 128), found, strict=True)])
        for name, found in zip(("none", ATTACK), zip(*returns, strict=True), strict=True)
    ]

    best = json.loads((out / "best_model.json").read_text())
    assert best == callback.best and best["attacked"] == max(attacked for _, attacked in returns)
    victim = adv.load_victim(f"sb3:{out / 'best_model.zip'}")
    env = adv.Environment("CartPole-v1", {"max_episode_steps": 20})
    again = adv.evaluate(victim, env, ATTACK, callback.episodes)
    assert [row["mean_return"] for row in again.threats] == [best["clean"], best["attacked"]]

    (out / "best_model.json").write_text(json.dumps({**best, "attacked": 1e9}))
    trained.learn(64, callback=callback, reset_num_timesteps=False)
    assert callback.best["attacked"] == 1e9 and callback.rows[-1]["steps"] == 192
    trained.learn(64, callback=callback)
    assert callback.best["steps"] == 64 and callback.best["attacked"] < 1e9


def perturbed(**kwargs):
    env = adv.wrap(short(**kwargs), "noise:eps=0.1")
    return adv.ScheduleBudget(env, RAMP, 10)


def test_the_environment_of_the_training_is_played_without_its_threats():
    trained = model(make=perturbed)
    trained.set_env(adv.wrap(trained.get_env(), "noise:eps=0.2"))
    found = training_environment(trained)
    assert found == adv.Environment("CartPole-v1", {"max_episode_steps": 20})
    assert training_environment(PPO("MlpPolicy", "CartPole-v1")) == adv.Environment("CartPole-v1", {})


def rescaled():
    return gym.wrappers.RescaleObservation(short("Pendulum-v1"), np.float32(0), np.float32(1))


@every_case(
    ("venv", "message"),
    [
        (lambda: make_vec_env(rescaled, 1), "RescaleObservation changes the training's environment: give env="),
        (lambda: VecFrameStack(make_vec_env(short, 1), 2), "VecFrameStack changes the training's environment: give"),
        (lambda: make_vec_env(gym.envs.classic_control.CartPoleEnv, 1), "was not made by an id: give env="),
    ],
)
def test_an_environment_that_the_spec_does_not_tell_has_to_be_given(venv, message):
    trained = PPO("MlpPolicy", venv(), n_steps=8, batch_size=8)
    with pytest.raises(SpaceError, match=message):
        trained.learn(8, callback=RobustnessCallback("noise:eps=1"))
    assert trained.num_timesteps == 0


@every_case(
    ("threat", "more", "error", "message"),
    [
        ("nois:eps=1", {}, ThreatError, "did you mean noise"),
        ("pgd:eps=0.1", {"env": "Pendulum-v1"}, VictimError, "is for observation space"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_anything_is_trained(threat, more, error, message):
    trained = model()
    before = weights(trained)
    with pytest.raises(error, match=message):
        trained.learn(64, callback=RobustnessCallback(threat, **more))
    assert torch.equal(before, weights(trained)) and trained.num_timesteps == 0


@every_case(
    ("given", "message"),
    [
        ({"every": 0}, "every must be an integer of at least 1, got 0"),
        ({"save_best": True}, "save_best=True needs a folder: give out="),
        ({"episodes": adv.Episodes(2), "seed": 3}, "an Episodes has its own seed"),
    ],
)
def test_arguments_that_cannot_work(given, message):
    with pytest.raises(ValueRangeError, match=message):
        RobustnessCallback("noise:eps=1", **given)


class Shares(ScheduleBudgetCallback):
    """Notes the budget at every step."""

    def __init__(self, schedule, budget):
        super().__init__(schedule)
        self.budget, self.seen = budget, []

    def _on_step(self):
        self.seen.append((self.num_timesteps, self.budget(self.training_env)))
        return True


def noisy():
    return adv.wrap(short(), "noise:eps=1")


@pytest.mark.parametrize("place", ["around", "workers"])
def test_budgets_follow_the_progress_of_the_training_between_rollouts(place, tmp_path):
    if place == "around":
        venv = adv.wrap(make_vec_env(short, 2), "noise:eps=1")
    else:
        venv = make_vec_env(noisy, 2, vec_env_cls=SubprocVecEnv)

    def budget(venv):
        layer = venv if place == "around" else None
        return (layer.threat if layer is not None else venv.get_attr("threat", 1)[0]).budget.eps

    callback = Shares(adv.LinearSchedule(0.0, 0.5, begin=0.25, end=0.75), budget)
    trained = PPO("MlpPolicy", venv, seed=0, n_steps=8, batch_size=16)
    trained.set_logger(configure(str(tmp_path), ["json"]))
    trained.learn(64, callback=callback)
    trained.logger.close()
    venv.close()
    logged = [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()]
    assert [row["rollout/budget_share"] for row in logged] == [0.0, 0.0, 0.25, 0.5]
    expected = {16: 0.0, 32: 0.0, 48: 0.25, 64: 0.5}  # of the rollout that ends at these steps
    assert callback.seen == [(step, expected[-(-step // 16) * 16]) for step in range(2, 66, 2)]


def test_a_whole_budget_trains_the_same_agent_as_no_schedule():
    found = []
    for callback in (None, ScheduleBudgetCallback(adv.LinearSchedule(1.0, 1.0))):
        trained = model(make=noisy)
        trained.learn(64, callback=callback)
        found.append(weights(trained))
    assert torch.equal(*found)
    trained.learn(64, callback=ScheduleBudgetCallback(0.5))
    assert trained.get_env().get_attr("budget_share") == [0.5, 0.5]
    assert not torch.equal(weights(trained), found[0])


def twice_noisy():
    return adv.wrap(noisy(), "noise:eps=1")


def test_what_cannot_be_scheduled(tmp_path):
    with pytest.raises(ValueRangeError, match="schedule must be a finite number from 0 to 1"):
        ScheduleBudgetCallback(adv.LinearSchedule(0.0, 1.5))
    with pytest.raises(OrderError, match="ScheduleBudgetCallback changes the budgets of the layers beneath it"):
        model().learn(64, callback=ScheduleBudgetCallback(RAMP))
    venv = make_vec_env(twice_noisy, 1, vec_env_cls=SubprocVecEnv)
    with pytest.raises(OrderError, match="cannot reach the layers inside the workers"):
        PPO("MlpPolicy", venv, n_steps=8, batch_size=8).learn(8, callback=ScheduleBudgetCallback(RAMP))
    venv.close()
