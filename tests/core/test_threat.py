"""Threat models: what belongs together, what is filled in, and what is refused before anything is spent."""

from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers import ActionFlip, ActionNoise, MaxDiff, MinBest, MultiTargeted, Noise
from adv_wrappers.attacks.model_based import ModelBased
from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse, Valid
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel, fits, needed_budget, victims_in
from adv_wrappers.core.timing import And, Bernoulli, Strategic
from adv_wrappers.errors import BudgetError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.victims.victim import Victim
from tests.core.helpers import box, chooser, linear, randn
from tests.every_case import every_case

DISCRETE = spaces.Discrete(3)


def victim(seed: int = 0, **more):
    return chooser(linear(randn(3, 4, seed=seed)), **more)


@every_case(
    ("arguments", "error", "words"),
    [
        (("reward", Noise(), Linf(1)), ThreatError, "observation"),
        (("action", Noise(), Linf(1)), ThreatError, "noise perturbs the observation"),
        (("observation", 3, Linf(1)), ThreatError, "perturbation"),
        (("observation", Noise()), BudgetError, "needs a budget"),
        (("observation", lambda x, c: x), BudgetError, "needs a budget"),
        (("observation", Noise(), 0.1), BudgetError, "0.1"),
        (("observation", Noise(), Linf(1), 0.5), ThreatError, "timing"),
    ],
)
def test_parts_that_do_not_belong_together(arguments, error, words):
    with pytest.raises(error, match=words):
        ThreatModel(*arguments)


def test_budgets_and_labels_by_default():
    assert ThreatModel("action", ActionFlip()).budget == Valid()

    def halve(x, context):
        return x / 2

    threat = ThreatModel("observation", halve, Linf(1))
    assert threat.label == "halve" and ThreatModel("observation", Noise(), Linf(1)).label == "noise"
    with pytest.raises(ThreatError, match="no JSON form"):
        threat.to_dict()


def test_against_fills_in_what_is_open_and_nothing_else():
    mine, other = victim(scale=randn(4).abs()), victim(1, scale=randn(4, seed=1).abs())
    when = And(Bernoulli(0.5), Strategic(0.3))
    threat = ThreatModel("observation", MinBest(), Linf(1, "victim"), when)
    armed = threat.against(mine)
    assert armed.how.victim is mine and armed.when.b.victim is mine and armed.victims == [mine]
    assert armed.budget == Linf(1, tuple(mine.scale.tolist())) and threat.how.victim is None
    transfer = ThreatModel("observation", MinBest(other), Linf(1, "victim"), when).against(mine)
    assert transfer.how.victim is other and transfer.when.b.victim is mine
    assert transfer.budget == Linf(1, tuple(other.scale.tolist())), "the unit is that of the attacked model"
    assert list(victims_in((transfer.how, transfer.when))) == [other, mine]
    assert armed.against(other) == armed


def test_round_trip():
    mine = victim(ref="test:mine")
    threat = ThreatModel("observation", MinBest(mine, steps=3), Linf(0.5), Bernoulli(0.5), ["a", "b"])
    data = json.loads(json.dumps(threat.to_dict()))
    again = ThreatModel.from_dict(data, {"test:mine": mine})
    assert again == threat and again.at == ("a", "b")
    with pytest.raises(ThreatError, match="linf"):
        ThreatModel.from_dict(Linf(1).to_dict())


@every_case(
    ("threat", "error", "words"),
    [
        (ThreatModel("observation", MinBest(), Linf(1)), VictimError, "needs a victim"),
        (ThreatModel("observation", Noise(), Linf(1, "victim")), BudgetError, "needs a victim"),
        (ThreatModel("observation", Noise(), Valid()), BudgetError, "unbounded"),
        (ThreatModel("observation", Noise(), L0(1)), BudgetError, "unbounded"),
        (ThreatModel("observation", MaxDiff(victim()), Valid()), BudgetError, "unbounded"),
        (ThreatModel("action", ActionNoise(), Linf(1)), BudgetError, "no distance"),
        (ThreatModel("action", ActionNoise(), L2(1)), BudgetError, "no distance"),
        (
            ThreatModel("observation", MinBest(chooser(linear(randn(3, 5)), size=5)), Linf(1)),
            VictimError,
            "environment has",
        ),
    ],
)
def test_refused_before_anything_is_spent(threat, error, words):
    with pytest.raises(error, match=words):
        threat.check(box(4), DISCRETE)


def test_accepted():
    assert ThreatModel("observation", Noise(), Valid()).check(box(4, 1.0), DISCRETE).shape == (4,)
    assert ThreatModel("observation", MinBest(victim()), L2(1)).check(box(4), DISCRETE).shape == (4,)
    assert ThreatModel("action", ActionNoise()).check(box(4), DISCRETE).discrete
    assert ThreatModel("action", ActionNoise(), L0(1)).check(box(4), spaces.MultiDiscrete([2, 2])).shape == (2,)
    assert ThreatModel("action", ActionFlip()).check(box(4), spaces.Box(-np.inf, np.inf, (2,))).shape == (2,)


@every_case(
    "within",
    [
        Linf(0),
        Linf(1, 0),
        Linf(1, (0, 0)),
        L2(0),
        L0(0),
        Sparse(0, Linf(1)),
        Sparse(1, Linf(1, 0)),
        Newest(Linf(1, 0)),
        3,
        "eps=1",
    ],
)
def test_long_work_needs_a_budget_that_allows_a_change(within):
    with pytest.raises(BudgetError, match=r"nothing can change|within must be a budget"):
        needed_budget("it", None, None, within)


def test_budgets_that_allow_a_change():
    for within in (Linf(1e-9), Linf(1, (0, 1)), Linf(1, "victim"), L2(1), L0(1), Valid(), Newest(Valid())):
        assert needed_budget("it", None, None, within) == within
    assert needed_budget("it", 0.1, 2.0, None) == Linf(0.1, 2.0)
    with pytest.raises(BudgetError, match=r"it needs a budget that allows a change.*scale=0.0"):
        needed_budget("it", 0.1, 0, None)


@every_case(
    ("text", "passes"),
    [
        ("noise:eps=1", 1),
        ("pgd:eps=1", 30),
        ("min-played-q:eps=1", 360),
        ("carlini-wagner", 250),
        ("square:eps=1", 500),
        ("hop-skip-jump:eps=1", 500),
        ("apgd:eps=1", 100),
        ("worst-action", 10),
    ],
)
def test_passes_through_the_network(text, passes):
    assert parse_threat(text).how.network_passes == passes
    model = ModelBased(dynamics="simulator", target="reward", steps=3, samples=5, iterations=2, restarts=4)
    assert model.network_passes == 3 * (5 + 2 * 4)


def test_attacks_that_would_never_end_are_refused():
    with pytest.raises(
        ValueRangeError, match=r"min-played-q: multi-targeted would compute its network .* times for one observation"
    ):
        parse_threat("min-played-q:eps=1,restarts=1_000_000")
    within = MultiTargeted(victim(), steps=10**4, restarts=500)  # toward two other actions
    assert within.network_passes == 10**7 and ThreatModel("observation", within, Linf(1)).how == within
    with pytest.raises(ValueRangeError, match="at most 10,000,000 are allowed: fewer steps, restarts or queries"):
        ThreatModel("observation", MultiTargeted(victim(), steps=10**4, restarts=501), Linf(1))


FIRST, LAST = spaces.Box(0, 255, (3, 6, 8), np.uint8), spaces.Box(0, 255, (6, 8, 3), np.uint8)
UNIT = spaces.Box(0, 1, (3, 6, 8), np.float32), spaces.Box(0, 1, (6, 8, 3), np.float32)


@every_case(
    ("own", "other"),
    [
        (FIRST, LAST),
        (LAST, FIRST),
        UNIT,
        (spaces.Dict(image=FIRST, speed=box(2)), spaces.Dict(image=LAST, speed=box(2))),
        (spaces.Dict(left=FIRST, right=UNIT[0]), spaces.Dict(left=LAST, right=UNIT[1])),
        (spaces.Dict(image=FIRST, room=DISCRETE), spaces.Dict(image=LAST, room=DISCRETE)),
    ],
)
def test_the_line_for_channels_that_are_turned_works(own, other):
    """What the error says is run as it stands, and makes what the victim sees."""
    env = PassiveEnv(other)
    with pytest.raises(VictimError, match="the channels of the victim's images come") as caught:
        fits(victim := Victim(own, DISCRETE, "logits"), other, DISCRETE)
    line = str(caught.value).partition("Wrap the environment in ")[2].partition(";")[0]
    made = eval(line, {"gymnasium": gymnasium, "env": env, "victim": victim})
    assert made.observation_space == own
    assert own.contains(made.reset(seed=0)[0])


@every_case(
    ("play", "both"),
    [
        (lambda agent: adv.evaluate(agent, "MountainCar-v0", episodes=1), True),
        (lambda agent: adv.report(agent, "MountainCar-v0", tell=None), True),
        (lambda agent: adv.wrap(gymnasium.make("MountainCar-v0"), "pgd:eps=0.1", victim=agent), True),
        (lambda agent: adv.wrap(gymnasium.make_vec("MountainCar-v0"), "pgd:eps=0.1", victim=agent), True),
        (lambda agent: fits(agent, box(3), DISCRETE), False),
    ],
)
def test_a_victim_of_another_environment_names_both(play, both):
    with pytest.raises(VictimError, match=r"is for observation space Box.*It is an agent for CartPole-v1") as caught:
        play(adv.load_victim("zoo:cartpole-dqn"))
    assert ("this is MountainCar-v0: play it in CartPole-v1" in str(caught.value)) == both
    if both:  # nothing is known of one without a card
        with pytest.raises(VictimError, match="This is MountainCar-v0: play it in the"):
            play(Victim(box(3), spaces.Discrete(2), "logits"))


class PassiveEnv(gymnasium.Env):
    """Shows samples of a space."""

    action_space = DISCRETE

    def __init__(self, space):
        self.observation_space = space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}
