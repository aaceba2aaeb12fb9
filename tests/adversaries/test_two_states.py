"""PA-AD on the paper's Markov decision process of two states, against closed forms (appendix F.1, figure 14)."""

from __future__ import annotations

import numpy as np
import pytest

import adv_wrappers as adv
from tests.adversaries import two_states as paper
from tests.adversaries.two_states import PLANE, POLICY, RADIUS, attacked, perturbed, steered, towards

VICTIM = paper.victim()
TURNS = np.linspace(0, 2 * np.pi, 7200, endpoint=False)
CIRCLE = np.stack([np.cos(TURNS), np.sin(TURNS)], -1) @ PLANE  # directions [N, 3] of length one
OPTIMUM = paper.optimum()
LOWEST = perturbed(OPTIMUM)[0]


def kl(p):
    """From the victim's policy at s1 to ``p`` ``[..., 3]``."""
    return (POLICY[0] * np.log(POLICY[0] / p)).sum(-1)


def test_values_are_those_of_the_process():
    value, stay = np.zeros(2), (POLICY * paper.TO_S1).sum(1)
    for _ in range(200):
        value = (POLICY * paper.REWARDS).sum(1) + paper.GAMMA * (stay * value[0] + (1 - stay) * value[1])
    np.testing.assert_allclose(perturbed(POLICY[0]), value, rtol=1e-12)
    np.testing.assert_allclose(POLICY[0] @ paper.q_values(value), value[0], rtol=1e-12)


def test_the_optimum_is_on_the_outermost_boundary():
    assert towards(CIRCLE).min() > 0.05  # the disc lies within the simplex, so its rim is the outermost boundary
    radii = np.linspace(0, RADIUS, 41)
    disc = np.stack([perturbed(towards(CIRCLE, radius)) for radius in radii])  # [41, N, 2]
    np.testing.assert_allclose(disc.min((0, 1)), perturbed(OPTIMUM), atol=1e-6)  # lowest at both states
    assert (np.diff(disc.min(1), axis=0) < 0).all() and disc.min() >= LOWEST - 1e-12
    assert np.linalg.norm(OPTIMUM - POLICY[0]) == pytest.approx(RADIUS, abs=1e-12)
    # a policy that is the worst against its own Q-values is the worst (policy iteration)
    np.testing.assert_allclose(towards(-paper.q_values(perturbed(OPTIMUM))), OPTIMUM, atol=1e-12)
    np.testing.assert_allclose(perturbed(POLICY[0]), [1.560665, 3.488112], atol=1e-6)
    np.testing.assert_allclose([*OPTIMUM, LOWEST], [0.351408, 0.438543, 0.210049, 1.378708], atol=1e-6)


def test_min_best_and_max_worst_are_not_it():
    best, worst = np.eye(3)[POLICY[0].argmax()], np.eye(3)[POLICY[0].argmin()]
    assert paper.q_values(perturbed(POLICY[0])).argmin() == POLICY[0].argmin()  # by Q and by the policy alike
    for attack, goal, value in [
        (adv.MinBest(VICTIM), -best, 1.594138),
        (adv.MinBest(VICTIM, steps=10, step=0.2), -best, 1.594138),
        (adv.MaxWorst(VICTIM), worst, 1.411259),
    ]:
        found = attacked(attack)
        np.testing.assert_allclose(found, towards(goal), atol=1e-9)
        assert perturbed(found)[0] == pytest.approx(value, abs=1e-6) and perturbed(found)[0] - LOWEST > 0.03


@pytest.mark.slow
def test_max_diff_is_not_it():
    rim = kl(towards(CIRCLE))
    tops = CIRCLE[(rim > np.roll(rim, 1)) & (rim > np.roll(rim, -1))]
    furthest = towards(CIRCLE[rim.argmax()])
    assert perturbed(furthest)[0] == pytest.approx(1.68897, abs=1e-4)  # more than without an attack
    found = [attacked(adv.MaxDiff(VICTIM, steps=120), seed) for seed in range(8)]
    for one in found:  # every ascent ends on one of the tops, which one is a matter of its random start
        assert np.linalg.norm(towards(tops) - one, axis=1).min() < 2e-3
        assert perturbed(one)[0] - LOWEST > 0.007
    np.testing.assert_allclose(max(found, key=kl), furthest, atol=1e-3)
    assert min(perturbed(attacked(adv.MaxDiff(VICTIM), seed))[0] for seed in range(12)) > LOWEST + 5e-3


@pytest.mark.parametrize("settings", [{}, {"steps": 1, "step": 1.0}, {"steps": 30, "step": 0.1}, {"weight": 0.0}])
def test_the_actor_goes_where_it_is_sent(settings):
    for direction in CIRCLE[::900]:
        found = attacked(steered(adv.PAAD(VICTIM, **settings), direction))
        np.testing.assert_allclose(found, towards(direction), atol=1e-12)
    found = attacked(steered(adv.PAAD(VICTIM, **settings), OPTIMUM - POLICY[0]))
    assert perturbed(found)[0] == pytest.approx(LOWEST, abs=1e-12)


def test_taken_literally_it_does_not():
    """One step from a random start goes where the start happened to point; many steps turn round."""
    seeds = range(8)
    angles = {}
    for steps, step in [(1, 1.0), (30, 0.1)]:
        actor = adv.PAAD(VICTIM, variant="literal", steps=steps, step=step)
        moved = np.stack([attacked(steered(actor, OPTIMUM - POLICY[0]), seed) for seed in seeds]) - POLICY[0]
        along = moved @ (OPTIMUM - POLICY[0]) / RADIUS / np.linalg.norm(moved, axis=1)
        angles[steps] = np.degrees(np.arccos(along.clip(-1, 1)))
    assert angles[1].max() > 60 and angles[1].mean() > 30 and angles[30].max() < 0.1
    released = attacked(steered(adv.PAAD(VICTIM, variant="released"), OPTIMUM - POLICY[0]))
    assert perturbed(released)[0] > perturbed(POLICY[0])[0]  # it descends


@pytest.mark.slow
def test_training_finds_it():
    pytest.importorskip("stable_baselines3")
    found = attacked(paper.trained(seed=0))
    assert np.linalg.norm(found - POLICY[0]) == pytest.approx(RADIUS, abs=1e-9)
    assert perturbed(found)[0] - LOWEST < 1e-3
