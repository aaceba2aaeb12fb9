"""What takes long is said beforehand: the sums, and attacks of which is warned."""

from __future__ import annotations

import warnings

import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation.cost import LONG, Cost, Costs, warn_of_long_attacks
from adv_wrappers.evaluation.threat_stacks import as_threat_stack
from adv_wrappers.studies import Plan, expand
from tests.rigs import RIGS

LENGTHY = "min-played-q:restarts=1_000,eps=0.1"
SAID = r"restarts=1_000,eps=0.1 computes a network 5,000 times at every step"


@pytest.fixture(scope="module")
def victim():
    return adv.load_victim("zoo:cartpole-dqn")


def test_evaluations_warn_before_they_play(victim):
    def progress(*_: object) -> None:
        raise AssertionError("it was played before it was said")

    with pytest.raises(UserWarning, match=SAID), warnings.catch_warnings():
        warnings.simplefilter("error")
        adv.evaluate(victim, "CartPole-v1", ["noise:eps=0.1", LENGTHY], episodes=1, progress=progress)


def test_plans_warn_when_they_are_expanded():
    with pytest.warns(UserWarning, match=SAID):
        expand(Plan.of(victims=["zoo:cartpole-dqn"], threats=[LENGTHY], episodes=1))


def test_layers_of_a_stack_add_up(victim):
    half = f"max-diff:eps=0.1,steps={LONG // 2}"
    warn_of_long_attacks([as_threat_stack(half, victim), as_threat_stack([half, half], victim)])
    with pytest.warns(UserWarning, match=f"computes a network {LONG + 1:,} times"):
        warn_of_long_attacks([as_threat_stack([half, half, "noise:eps=0.1"], victim)])


def test_presets_are_not_long():
    """The presets as they are, under every victim: nobody is warned of what is offered."""
    for name, preset in adv.presets.items():
        budget = {"eps": 1} if preset.on == "observation" else {"norm": "valid"}
        for rig in ("q", "image"):
            try:
                made = adv.threat(name, RIGS[rig].victim(), **budget)
            except adv.AdvWrappersError:  # needs another victim, or a folder
                continue
            assert made.how.network_passes <= LONG


def test_functions_have_no_known_cost(victim):
    stack = as_threat_stack(adv.ThreatModel("observation", lambda x, context: x, adv.Linf(0.1)), victim)
    warn_of_long_attacks([stack])


COSTS = Costs(
    (
        Cost("noise", 0, 0.0), Cost("pgd", 1, 10.0), Cost("beam: search", 1, 90.0, True), Cost("beam", 1, 2.0),
        Cost("pa-ad: training", 2, 300.0, True), Cost("pa-ad", 4, 1.0), Cost("a", 1, 3.0),
    ),
    "entries", 1, ("transfer",),
)  # fmt: skip


def test_the_sums():
    assert COSTS.seconds == 709 and COSTS.left == 7
    assert COSTS.wall_clock() == 709 and COSTS.wall_clock(2) == 690 + 19 / 2  # a training is in one process


def test_the_line_names_what_takes_longest():
    assert COSTS.line() == (
        "about 12 min on this machine: pa-ad: training 10 min, beam: search 90 s, pgd 10 s, pa-ad 4 s, 2 others 5 s; "
        "less or more where attacks shorten or lengthen episodes; not estimated: transfer"
    )
    text = str(COSTS)
    assert "7 entries are left, 1 are known: about 12 min" in text
    assert text.index("pa-ad") < text.index("beam") < text.index("noise") < text.index("entries")
    nothing = Costs((), "cells", 4).summary(2)
    assert nothing == "0 cells are left, 4 are known: with 2 processes about 0 s on this machine"
