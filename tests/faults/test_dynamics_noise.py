"""Random physical parameters, and how long a draw holds."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from tests.every_case import every_case


def masses(env, seeds=(0, None, 1), steps=4):
    """Factor of the pole's mass at every step, episode by episode."""
    found = []
    for seed in seeds:
        env.reset(seed=seed)
        found.append([])
        for t in range(steps):
            env.step(t % 2)
            found[-1].append(env.unwrapped.masspole / 0.1)
    return np.array(found).round(12)


def wrapped(text):
    return adv.PerturbDynamics(gym.make("CartPole-v1"), f"dynamics-noise:at=mass.pole,eps=0.5,{text}")


@pytest.mark.parametrize("kind", ["uniform", "bernoulli", "gaussian"])
def test_a_draw_holds_for_a_step_an_episode_or_a_run(kind):
    step, episode, run = (masses(wrapped(f"kind={kind},every={every}")) for every in ("step", "episode", "run"))
    assert (episode == episode[:, :1]).all() and (run == run[0, 0]).all()
    for found in (step, episode, run):
        assert (found >= 0.5).all() and (found <= 1.5).all()
    if kind == "bernoulli":
        assert {*np.unique(step)} == {0.5, 1.5}
    else:  # a Gaussian is drawn back into the budget
        inside = step[(step > 0.5) & (step < 1.5)]
        assert len(np.unique(inside)) == inside.size > 3 and len(np.unique(episode)) > 1


def test_the_draw_of_a_run_follows_its_own_seed_and_no_reset():
    one, same, other = (
        masses(wrapped(f"every=run,seed={seed}"), seeds=(s,))[0, 0] for seed, s in ((0, 1), (0, 2), (1, 1))
    )
    assert one == same != other


def test_draws_are_uniform_over_the_budget():
    env = wrapped("every=episode")
    found = masses(env, seeds=range(400), steps=1).ravel()
    counts = np.histogram(found, 10, (0.5, 1.5))[0]
    assert counts.min() > 20 and abs(found.mean() - 1) < 0.05


@every_case(
    ("arguments", "words"),
    [
        ({"kind": "cauchy"}, "kind must be 'uniform', 'bernoulli' or 'gaussian', got 'cauchy'"),
        ({"every": "day"}, "every must be 'run', 'episode' or 'step', got 'day'"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_arguments(arguments, words):
    with pytest.raises(ValueRangeError, match=words):
        adv.DynamicsNoise(**arguments)
