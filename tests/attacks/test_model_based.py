"""Planned attacks: the loss of plans, their descent, when they are renewed, and what is refused."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.attacks.model_based import DRAWN_CORNERS, PlanningProblem, descend, starts
from adv_wrappers.attacks.targets import Reach
from adv_wrappers.errors import BudgetError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.victims.auxiliary_networks import Dynamics, TransitionModel
from tests.attacks.linear_system import (
    Cart,
    LinearSystem,
    agent,
    context_of,
    least_losses,
    problem,
    simulated,
)
from tests.every_case import every_case


@pytest.mark.parametrize("on", ["observation", "action"])
def test_the_loss_of_a_plan_is_that_of_equations_3_and_4(on):
    found = problem(on)
    plans = torch.randn(4, *found.size, dtype=torch.float64) * 0.01
    torch.testing.assert_close(found.losses(plans), torch.stack([simulated(found, part) for part in plans]))


def test_descent_reaches_the_least_loss_of_a_linear_system():
    found = problem("action")
    exact = least_losses(found)
    least, plans = descend(found, torch.zeros(1, *found.size, dtype=torch.float64), 120, 4e-2)
    np.testing.assert_allclose(least[0].numpy(), exact, rtol=1e-3)
    np.testing.assert_allclose(simulated(found, plans[0]).numpy(), exact, rtol=1e-3)


def test_the_best_iterate_is_kept():
    found = problem(budget=adv.Linf(0.3))
    start = torch.zeros(1, *found.size, dtype=torch.float64)
    losses = [descend(found, start, count, 0.9)[0] for count in (0, 1, 3, 10)]
    torch.testing.assert_close(losses[0], found.losses(start))
    for before, after in itertools.pairwise(losses):
        assert bool((after <= before).all())
    assert bool((losses[-1] < losses[0]).all())


@pytest.mark.parametrize(
    "budget", [adv.Linf(0.3), adv.Linf(0.3, (0.5, 2.0)), adv.L2(0.4)], ids=["linf", "scaled", "l2"]
)
def test_every_perturbation_of_a_plan_is_within_the_budget(budget):
    found = problem(budget=budget)
    _, plans = descend(found, torch.zeros(1, *found.size, dtype=torch.float64), 5, 1.0)
    moves = (plans[0] * found.radius[:, None]).reshape(-1, 2)
    assert float(moves.abs().max()) > 0.1
    x = torch.zeros_like(moves)
    far = torch.full_like(moves, math.inf)
    torch.testing.assert_close(budget.project(moves, x, *budget.box(x, -far, far)), moves)


def test_searches_begin_at_the_corners_where_there_are_few():
    found = problem(budget=adv.Linf(0.3))
    context = context_of(found.obs, found.budget)
    tried = starts(found, context, None)
    assert tried.shape == (1 + 4, *found.size)
    assert {tuple(corner.tolist()) for corner in tried[1:, 0, 0]} == {(-1, -1), (-1, 1), (1, -1), (1, 1)}
    assert bool((tried == tried[:, :, :1]).all())  # constant over the plan
    previous = torch.full(found.size, 0.5, dtype=torch.float64)
    assert torch.equal(starts(found, context, previous)[0], previous)


def test_of_many_corners_some_are_drawn():
    wide = torch.zeros(2, 10, dtype=torch.float64)
    bounds = tuple(torch.full((10,), sign, dtype=torch.float64) for sign in (-9, 9))
    net = torch.nn.Linear(10, 1).double()
    victim = adv.from_module(
        net, spaces.Box(-9, 9, (10,), np.float64), spaces.Box(-1, 1, (1,), np.float64), "mean", dtype=torch.float64
    )
    found = PlanningProblem(
        LinearSystem(),
        victim,
        Reach((0,), (1.0,)),
        "observation",
        wide,
        None,
        adv.Linf(0.3),
        bounds,
        2,
        torch.ones(2, dtype=torch.float64),
    )
    tried = starts(found, context_of(wide, found.budget), None)
    assert tried.shape == (1 + DRAWN_CORNERS, 2, 2, 10) and set(tried[1:].unique().tolist()) == {-1.0, 1.0}
    assert not torch.equal(tried[1:, 0], tried[1:, 1])  # every row has its own


def planned(victim=None, **settings):
    given = {"dynamics": LinearSystem(), "target": "0=2&1=-1", "steps": 4, "iterations": 5, **settings}
    return adv.ModelBased(victim or agent(), **given)


def test_a_start_off_the_flat_top_is_found():
    """The slope of a pole's cosine is zero upright: no descent that begins there would move."""

    class Upright:
        def predict(self, obs, act):
            angle = obs[..., 1:] + 0.5 * (act + 0.4)  # the agent's action upright is -0.4
            return torch.cat([torch.cos(angle), angle], -1), obs.new_zeros(obs.shape[:-1])

    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    attack = planned(dynamics=Upright(), target="0=-1")
    budget = adv.Linf(0.3)
    found = attack.problem(x, context_of(x, budget))
    flat = torch.zeros(1, *found.size, dtype=torch.float64)
    assert torch.equal(descend(found, flat, 30, 0.25)[1], flat)
    assert float((attack(x, context_of(x, budget)) - x).abs().max()) == pytest.approx(0.3)


def test_plans_are_renewed_when_they_are_used_up(monkeypatch):
    made = []
    real = adv.ModelBased.planned
    monkeypatch.setattr(adv.ModelBased, "planned", lambda self, *args: made.append(1) or real(self, *args))
    attack, memory, shown = planned(apply=3), None, []
    torch.manual_seed(0)
    x = torch.randn(2, 2, dtype=torch.float64)
    for t in range(7):
        context = context_of(x, adv.Linf(0.3), t, memory)
        shown.append(attack(x, context) - x)
        memory = context.memory
    assert len(made) == 3  # at 0, 3 and 6
    found = attack.problem(x, context_of(x, adv.Linf(0.3)))
    plan = real(attack, found, context_of(x, adv.Linf(0.3)), torch.zeros(found.size, dtype=torch.float64))
    for t in range(3):
        torch.testing.assert_close(shown[t], plan[:, t] * found.radius, rtol=1e-5, atol=1e-7)


def test_a_plan_is_shifted_by_the_steps_that_have_passed():
    attack, x = planned(apply=4), torch.zeros(2, 2, dtype=torch.float64)
    plan = torch.arange(16, dtype=torch.float64).view(2, 4, 2) / 16
    for t, expected in ((5, plan[:, 0]), (7, plan[:, 2]), (8, plan[:, 3])):
        context = context_of(x, adv.Linf(0.3), t, {"plan": plan.clone(), "made": torch.tensor([5, 5])})
        torch.testing.assert_close(attack(x, context), expected * 0.3)
    memory = {"plan": plan.clone(), "made": torch.tensor([5, 1])}  # the second row's is used up
    context = context_of(x, adv.Linf(0.3), 6, memory)
    torch.testing.assert_close(attack(x, context)[0], plan[0, 1] * 0.3)
    assert context.memory["made"].tolist() == [5, 6]


def test_steps_that_are_not_attacked_have_no_perturbation():
    attack = planned(every=2)
    x = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    context = context_of(x, adv.Linf(0.3))
    attack(x, context)
    plan = context.memory["plan"]
    assert bool((plan[:, 1::2] == 0).all()) and bool((plan[:, ::2].abs().amax((1, 2)) > 0).all())


@pytest.mark.slow
def test_planning_beats_noise_on_a_system_that_it_knows():
    victim = agent()
    threats = [
        adv.ThreatModel("observation", adv.Noise("sign"), adv.Linf(0.5)),
        adv.ThreatModel("observation", planned(victim, steps=10, iterations=30), adv.Linf(0.5)),
        adv.ThreatModel("action", adv.ActionNoise("bernoulli"), adv.Linf(0.5)),
        adv.ThreatModel(
            "action", adv.ActionModelBased(victim, LinearSystem(), "0=2&1=-1", 10, iterations=30), adv.Linf(0.5)
        ),
    ]
    cart = functools.partial(Cart, steps=30, reward=lambda state: ((state - [2.0, -1.0]) ** 2).sum())
    report = adv.evaluate(victim, cart, threats, episodes=4)
    clean, noise, plan, action_noise, action_plan = (row["mean_return"] for row in report.threats)
    assert plan < 0.8 * min(clean, noise) and action_plan < 0.8 * min(clean, action_noise)


def saved_model(errors):
    net = torch.nn.Sequential(torch.nn.Linear(3, 3))
    statistics = {name: (torch.zeros(size), torch.ones(size)) for name, size in (("obs", 2), ("act", 1), ("change", 3))}
    network = {"features": 2, "actions": 1}
    about = {"network": network, "errors": errors, "environment": {"id": "Lab-v0"}, "feature_names": ["x", "v"]}
    return Dynamics.of(TransitionModel([net], **statistics), about)


def test_features_are_called_by_name():
    attack = adv.ModelBased(agent(), saved_model({}), "v=1")
    assert attack.aim == Reach((1,), (1.0,)) and attack.target == Reach(("v",), (1.0,))


@every_case(
    ("settings", "error", "words"),
    [
        ({"dynamics": None}, ThreatError, "model-based needs a model: dynamics=card:FOLDER"),
        ({"dynamics": 3}, ThreatError, "dynamics must be a model"),
        ({"dynamics": saved_model({}), "target": None}, ThreatError, "Lab-v0 has none of its own"),
        ({"target": None}, ThreatError, "this environment has none of its own"),
        ({"dynamics": saved_model({}), "target": "w=1"}, ValueRangeError, "no feature 'w'; it has 2 numbers: x, v"),
        (
            {"dynamics": saved_model({"victim": {"open_loop": {"5": 0.1, "20": None}}}), "target": "0=1"},
            ThreatError, "predictions over 20 steps are not finite on episodes of the victim",
        ),
        ({"apply": 5}, ValueRangeError, "apply, which is at most steps, must be an integer"),
        ({"steps": 0}, ValueRangeError, "steps must be an integer"),
        ({"iterations": -1}, ValueRangeError, "iterations must be"),
        ({"lr": 0.0}, ValueRangeError, "lr must be"),
        ({"restarts": 0}, ValueRangeError, "restarts must be"),
        ({"every": 0}, ValueRangeError, "every must be"),
        ({"planner": "sgd"}, ValueRangeError, "planner must be 'adam' or 'cem', got 'sgd'"),
        ({"samples": 1}, ValueRangeError, "samples must be"),
        ({"dynamics": "simulator", "planner": "adam"}, ThreatError, "a simulator has none: use cem"),
        ({"dynamics": "simulator", "target": "2=0"}, ValueRangeError, "no feature 2; it has 2 numbers"),
    ],
)  # fmt: skip
def test_bad_settings(settings, error, words):
    with pytest.raises(error, match=words):
        planned(**settings)


def test_victims_that_cannot_be_planned_through():
    cartpole = adv.load_victim("zoo:cartpole-dqn")
    with pytest.raises(VictimError, match="for continuous actions"):
        planned(cartpole)
    image = adv.from_module(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(8, 1)),
        spaces.Box(0, 1, (2, 2, 2)),
        spaces.Box(-1, 1, (1,)),
        "mean",
    )
    with pytest.raises(VictimError, match=r"takes observations \[n\]"):
        planned(image)
    blind = agent()
    blind.differentiable = False
    with pytest.raises(VictimError, match="follows the victim's gradient"):
        planned(blind, planner="adam")
    with pytest.raises(VictimError, match=r"shapes \(\(2,\), \(1,\)\), this victim has \(\(11,\), \(3,\)\)"):
        adv.ModelBased(adv.load_victim("zoo:hopper-ppo"), saved_model({}), "x=1")


def test_budgets_that_have_no_radius_are_refused():
    space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    threat = adv.ThreatModel("observation", planned(), adv.Valid())
    with pytest.raises(BudgetError, match="unbounded"):
        threat.check(space, agent().action_space)
