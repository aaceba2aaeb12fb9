"""What attacks refuse when they are made: numbers out of range, unknown words, and victims that they are not for."""

from __future__ import annotations

import math

import pytest
from gymnasium import spaces

from adv_wrappers import CarliniWagner, MaxDiff, MaxWorst, MinBest, MinQ, Momentum, Noise, RobustSarsa
from adv_wrappers.attacks.apgd import APGD
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump
from adv_wrappers.attacks.square import Square
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.victims import from_module
from tests.core.helpers import actor, box, chooser, linear, mlp, randn
from tests.every_case import every_case

VALUES = [
    (MinBest, "loss", ["hinge"], "loss"),
    (MinBest, "steps", [0, 1.0, True], "steps"),
    (MinBest, "step", [0, -1.0, math.inf, math.nan, "a"], "step"),
    (MinBest, "restarts", [0, 1.0, True], "restarts"),
    (MinBest, "keep", ["first"], "keep"),
    (MinBest, "schedule", ["cosine"], "schedule"),
    (MaxWorst, "by", ["value"], "value"),
    (MaxDiff, "noise", [-1.0, math.inf, math.nan, True, "1"], "noise"),
    (Momentum, "decay", [-0.1, 1.1, True, "0.5"], "decay"),
    (CarliniWagner, "target", [-1, "best", True, 1.5], "target"),
    (CarliniWagner, "searches", [0], "searches must be .*got 0"),
    (CarliniWagner, "confidence", [-1, math.nan, math.inf, True, "1", (1, 2), 10**400], "confidence must be a finite"),
    (APGD, "loss", ["hinge"], "loss must be .*hinge"),
    (APGD, "keep", ["last"], "keep must be .*last|leave .*keep"),
    (APGD, "schedule", ["linear"], "schedule must be .*linear|leave .*schedule"),
    (APGD, "weights", ["two"], "weights must be .*two|leave .*weights"),
    (APGD, "steps", [0], "steps must be .*0|leave .*steps"),
    (Square, "queries", [1, 0, True, 2.5, "many"], "queries must be an integer from 2 to"),
    (Square, "share", [0, -0.1, 1.5, True, "half"], "share must be a finite number above 0 and at most 1"),
    (HopSkipJump, "queries", [15, 0, True, 20.5], "queries must be an integer from 16 to"),
    (Noise, "kind", ["laplace"], "laplace"),
]


@every_case(("kind", "name", "value", "words"), [(*row[:2], value, row[3]) for row in VALUES for value in row[2]])
def test_values(kind, name, value, words):
    with pytest.raises(ValueRangeError, match=words):
        kind(**{name: value})


def critic(x, action):
    return action.sum(-1)


CHOOSES, MOVES = chooser(linear(randn(3, 4))), actor(linear(randn(3, 4)))
SEVERAL = from_module(linear(randn(6, 4)), box(4), spaces.MultiBinary(3), "logits")
OF_MOVES = chooser(linear(randn(3, 4)), critic=critic)  # a critic of continuous actions is no Q of discrete ones


@every_case(
    ("kind", "victim", "words"),
    [
        *((MinBest, victim, "max-diff") for victim in (MOVES, SEVERAL)),
        *((MinQ, victim, "max-diff") for victim in (CHOOSES, MOVES, OF_MOVES)),
        *((HopSkipJump, victim, "use square") for victim in (MOVES, SEVERAL)),
        *((kind, "zoo:cartpole-dqn", "expects a victim") for kind in (Square, HopSkipJump)),
        *((RobustSarsa, victim, "continuous") for victim in (CHOOSES, SEVERAL)),
        (RobustSarsa, MOVES, "critic"),
        (MaxWorst, MOVES, "min-q or max-diff"),
        (Momentum, MOVES, "max-diff"),
        (CarliniWagner, MOVES, "one discrete action"),
    ],
)
def test_victims(kind, victim, words):
    with pytest.raises(VictimError, match=words):
        kind(victim)


@every_case(
    ("make", "error", "words"),
    [
        (lambda: MaxWorst(CHOOSES, by="q"), VictimError, "by='policy'"),
        (lambda: CarliniWagner(CHOOSES, target=3), ValueRangeError, "target"),
        *(
            (lambda loss=loss: APGD(MOVES, loss=loss), VictimError, "discrete")
            for loss in ("cross-entropy", "margin", "dlr")
        ),
        (lambda: APGD(chooser(mlp(4, 2), actions=2), loss="dlr"), ValueRangeError, "three"),
    ],
)
def test_values_that_a_victim_lacks(make, error, words):
    with pytest.raises(error, match=words):
        make()
