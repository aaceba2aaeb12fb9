"""Planners beside Adam: LQR is exact where it can be, those that sample need no gradients, and may use the truth."""

from __future__ import annotations

import functools

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.attacks.model_based import cem, descend, lqr, mppi
from adv_wrappers.attacks.targets import Fall, Reach
from adv_wrappers.environments.dmc import DmcVectorEnv, dmc
from adv_wrappers.errors import SnapshotError, ValueRangeError
from adv_wrappers.wrappers.perturb_observation import VectorPerturbObservation
from tests.attacks.test_model_based import (
    GAIN,
    LARGE,
    A,
    B,
    LinearSystem,
    agent,
    context_of,
    least_losses,
    planned,
    problem,
    simulated,
)
from tests.every_case import every_case


@pytest.mark.parametrize("on", ["observation", "action"])
def test_one_iteration_of_lqr_solves_a_linear_system(on):
    """Acceptance of the paper's footnote: within 1e-3 of the least loss, where the box does not bind."""
    found = problem(on)
    least, plans = lqr(found, torch.zeros(2, *found.size, dtype=torch.float64), 1)
    exact = np.array(least_losses(found))
    np.testing.assert_allclose(least.numpy(), np.tile(exact, (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(simulated(found, plans[0]).numpy(), exact, rtol=1e-6)


@pytest.mark.parametrize("on", ["observation", "action"])
def test_the_attack_finds_the_loss_of_lqr_on_a_linear_system(on):
    """A model-based attack with a perfect linear model is as good as LQR where the box does not bind."""
    found = problem(on, rows=2, steps=4)
    context = context_of(found.value, found.budget, observation=found.obs)
    kind = adv.ModelBased if on == "observation" else adv.ActionModelBased
    target, losses = Reach((0, 1), (2.0, -1.0)), []
    for how in ({"planner": "lqr", "iterations": 2}, {"planner": "adam", "iterations": 400, "lr": 1e-2}):
        attack = kind(agent(), LinearSystem(), target, 4, **how)
        losses.append(found.losses(attack.planned(found, context, torch.zeros(*found.size, dtype=torch.float64))))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=0)
    assert losses[0].numpy() == pytest.approx(least_losses(found), rel=1e-6)


def test_iterated_lqr_never_gets_worse_and_comes_near_descent_in_a_box():
    found = problem(budget=adv.Linf(0.3))
    zero = torch.zeros(1, *found.size, dtype=torch.float64)
    losses = [lqr(found, zero, count)[0] for count in (0, 1, 4)]
    assert bool((losses[1] < losses[0]).all()) and bool((losses[2] <= losses[1]).all())
    best, _ = descend(found, zero, 400, 0.05)
    assert bool((losses[2] - best <= 0.25 * (losses[0] - best)).all())
    _, plans = lqr(found, zero, 4)
    assert bool((plans.abs() <= 1).all())


def test_lqr_takes_losses_without_curvature_and_steps_without_attack():
    found = problem(budget=adv.Linf(0.3), target=Fall(0), every=2)
    zero = torch.zeros(1, *found.size, dtype=torch.float64)
    least, plans = lqr(found, zero, 3)
    assert bool((least < found.losses(zero)).all()) and bool((plans[0, :, 1::2] == 0).all())


def test_lqr_survives_a_model_that_runs_away():
    class Explodes:
        def predict(self, obs, act):
            return obs * 1e20 + act, obs.new_zeros(obs.shape[:-1])

    found = problem(budget=adv.Linf(0.3), steps=40)
    found.model = Explodes()
    _, plans = lqr(found, torch.zeros(1, *found.size, dtype=torch.float64), 2)
    assert bool(plans.isfinite().all()) and bool((plans.abs() <= 1).all())


@pytest.mark.parametrize("method", [cem, mppi])
@pytest.mark.parametrize("budget", [adv.Linf(0.3), adv.L2(0.4)])
def test_planners_that_sample_come_near_descent(method, budget):
    found = problem(budget=budget)
    context = context_of(found.value, budget)
    zero = torch.zeros(1, *found.size, dtype=torch.float64)
    plan = method(found, zero, 12, 128, context)
    lost = found.losses(zero)[0] - found.losses(plan)
    best = found.losses(zero)[0] - descend(found, zero, 100, 0.1)[0][0]
    assert plan.shape == found.size and bool((lost >= 0.8 * best).all())
    torch.testing.assert_close(found.feasible(plan), plan)
    again = method(found, zero, 12, 128, context_of(found.value, budget))
    torch.testing.assert_close(again, plan)  # draws are a function of seed and step
    assert bool((method(found, plan[None], 1, 2, context_of(found.value, budget, t=1)) == plan).any())


class Cart(gym.Env):
    """The linear system of these tests, for 12 steps."""

    observation_space = spaces.Box(-LARGE, LARGE, (2,), np.float64)
    action_space = spaces.Box(-LARGE, LARGE, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.t = self.np_random.normal(size=2), 0
        return self.state.copy(), {}

    def step(self, action):
        self.state, self.t = A.numpy() @ self.state + B.numpy() @ np.asarray(action, np.float64), self.t + 1
        return self.state.copy(), float(self.state[0]), False, self.t == 12, {}


def run(dynamics, rows=None):
    """What an attacked agent is shown in an episode."""
    attack = planned(dynamics=dynamics, planner="cem", iterations=2, samples=8)
    how = {"within": adv.Linf(0.4)}
    if rows is None:
        env = adv.PerturbObservation(Cart(), attack, **how)
    else:
        env = SyncVectorEnv([Cart] * rows, autoreset_mode=AutoresetMode.DISABLED)
        env = VectorPerturbObservation(env, attack, **how)
    obs, _ = env.reset(seed=3)
    seen = [obs]
    for _ in range(12):
        obs, *_ = env.step(np.atleast_1d(obs @ GAIN.numpy().T))
        seen.append(obs)
    return np.array(seen[:-1])  # nothing can be tried from the last observation of an episode


@pytest.mark.parametrize("rows", [None, 2])
def test_planning_in_the_truth_is_planning_with_a_perfect_model(rows):
    """As far as no plan reaches beyond the end of the episode, where the truth stops and a model does not."""
    truth, model = run("simulator", rows), run(LinearSystem(), rows)
    np.testing.assert_allclose(truth[:9], model[:9], rtol=1e-9)


class Named(gym.Wrapper):
    """A cart whose numbers have names."""

    feature_names = ("place", "speed")


@every_case("wrap", [lambda make: make(), lambda make: SyncVectorEnv([make])])
def test_features_have_the_names_of_the_environment_that_is_simulated(wrap):
    seen = []
    for target in ("place=2&speed=-1", "0=2&1=-1"):
        attack = planned(dynamics="simulator", target=target, iterations=1, samples=4)
        env = adv.PerturbObservation(wrap(lambda: Named(Cart())), attack, within=adv.Linf(0.4))
        seen.append(env.reset(seed=3)[0])
    np.testing.assert_array_equal(*seen)
    for make, words in ((lambda: Named(Cart()), "2 numbers: place, speed"), (Cart, "2 numbers, and no names")):
        with pytest.raises(ValueRangeError, match=f"has no feature 'height'; it has {words}"):
            adv.PerturbObservation(wrap(make), planned(dynamics="simulator", target="height=0"), within=adv.Linf(0.4))


def test_without_a_simulator_it_is_refused_at_once():
    envs = gym.vector.AsyncVectorEnv([functools.partial(Cart)])
    try:
        with pytest.raises(SnapshotError, match="use SyncVectorEnv"):
            VectorPerturbObservation(envs, planned(dynamics="simulator"), within=adv.Linf(0.4))
    finally:
        envs.close()


@pytest.mark.slow
def test_tasks_that_are_stepped_directly_try_many_plans_at_once_to_the_same_end():
    pytest.importorskip("dm_control")
    task, seen = "dm_control/cartpole-balance-v0", []
    victim = adv.load_victim("zoo:cartpole-balance-sac")
    single = SyncVectorEnv([lambda: dmc(task, 4)] * 2, autoreset_mode=AutoresetMode.DISABLED)
    for venv in (DmcVectorEnv(task, 2, 4), single):
        attack = adv.ModelBased(victim, "simulator", "position[1]=-1", 3, iterations=1, samples=6)
        env = VectorPerturbObservation(venv, attack, within=adv.Linf(0.2))
        obs, _ = env.reset(seed=1)
        steps = [obs]
        for _ in range(3):
            obs, *_ = env.step(np.clip(victim.mode(victim.params(torch.from_numpy(obs))).numpy(), -1, 1))
            steps.append(obs)
        seen.append(np.array(steps))
    np.testing.assert_array_equal(*seen)
