"""Episodes along one way through what is possible, beside the paper's algorithms written out step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from adv_wrappers import Linf
from adv_wrappers.certification.greedy_worst_case import own_action, play_choices, worst_possible_action
from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.errors import ValueRangeError
from tests.certification.walks import STEPS, Walk, shown, walker

SEEDS = [0, 1, 2, 3, 4, 5, 6]


def step_by_step(env, victim, seed, eps, worst):
    """Algorithm 2, and the victim's own way; the possible actions of two linear outputs from points of the ball."""
    observation, total, certified, over, steps = env.reset(seed=seed)[0], 0.0, 0, False, 0
    while not over:
        values = victim.params(torch.from_numpy(observation[None]))[0].numpy()
        possible = sorted({a - 1 for a in victim.act_on(shown(observation, eps)).tolist()})
        action = min(possible, key=lambda a: values[a]) if worst else int(values.argmax())
        certified, steps = certified + (len(possible) == 1), steps + 1
        observation, reward, over, truncated, _ = env.step(action + 1)
        total, over = total + reward, over or truncated
    return total, certified / steps


@pytest.mark.parametrize(("eps", "num_envs"), [(0.0, 3), (0.1, 20), (0.5, 3)])
def test_returns_and_rates(eps, num_envs):
    victim = walker()
    possible = PossibleActions(victim, Walk().observation_space, Linf(eps), "interval")
    finished = list[int]()
    found = [
        play_choices([Walk() for _ in range(num_envs)], possible, SEEDS, choose, finished.append)
        for choose in (own_action, worst_possible_action)
    ]
    for worst, played in enumerate(found):
        expected = [step_by_step(Walk(), victim, seed, eps, bool(worst)) for seed in SEEDS]
        assert played.returns.tolist() == [total for total, _ in expected]
        assert played.acr.tolist() == [rate for _, rate in expected]
    assert finished == [*range(1, 8), *range(1, 8)]
    assert (found[0].returns == found[1].returns).all() == (eps == 0)


class Broken(Walk):
    def step(self, action):
        answer = super().step(action)
        return (answer[0], np.nan, *answer[2:]) if self.t == STEPS - 2 else answer


def test_rewards_that_are_not_finite():
    possible = PossibleActions(walker(), Walk().observation_space, Linf(0.1), "interval")
    with pytest.raises(ValueRangeError, match="returned a reward that is not finite: nan"):
        play_choices([Broken(), Broken()], possible, SEEDS, own_action)
