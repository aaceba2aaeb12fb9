"""Searches over action sequences: beside every sequence that perturbations bring about, played from the start."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

from adv_wrappers import Linf, from_module
from adv_wrappers.certification import action_search, possible_actions
from adv_wrappers.certification.action_search import ActionSearch
from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.searches import search_tree
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes
from adv_wrappers.evaluation.statistics.return_range import LeastReturn
from adv_wrappers.utils.deadline import Deadline
from tests.certification.walks import STEPS, Walk, every_return, walker
from tests.core.helpers import box, mlp
from tests.every_case import every_case

EPS = 0.5


def searched(
    seed=1,
    order="depth-first",
    actions=2,
    eps=EPS,
    least=None,
    lost=0.0,
    batch=64,
    env=None,
    victim=None,
    method="interval",
    **limits,
):
    victim = victim or walker(actions)
    with closing(DeterministicEpisodes(victim, env or (lambda: Walk(actions, lost)))) as episodes:
        possible = PossibleActions(victim, episodes.env.observation_space, Linf(eps), method)
        found = ActionSearch(episodes, possible, least or LeastReturn(-lost, None, STEPS), seed)
        found.run(order, batch=batch, **limits)
        return found


@pytest.mark.parametrize(
    ("actions", "order"), [(2, "depth-first"), pytest.param(3, "best-first", marks=pytest.mark.slow)]
)
def test_the_worst_case_is_that_of_all_sequences(actions, order):
    differs = 0
    for seed in range(3):
        for lost in (0.0, 1.0):
            for eps in (0.1, EPS):
                worst = min(every_return(Walk(actions, lost), walker(actions), seed, eps))
                found = searched(seed, order, actions, eps, lost=lost, batch=3)
                assert found.finished and found.lower == found.lowest <= worst
                if actions == 2:  # differences of two linear outputs have exact bounds
                    assert found.lowest == worst
                differs += found.sequences > 1
    assert differs


def test_networks_whose_bounds_are_not_exact():
    victim, lowest = from_module(mlp(3, 3, 1), box(3), Walk(3).action_space, "logits", dtype=torch.float64), []
    for seed in range(5):
        worst = min(every_return(Walk(3), victim, seed, 0.1))
        found = searched(seed, eps=0.1, env=lambda: Walk(3), victim=victim, method="crown")
        assert found.finished and found.lowest <= worst
        lowest.append(found.lowest == worst)
    assert any(lowest)


def test_the_bound_holds_whenever_a_search_stops_and_rises():
    for lost in (-0.5, 1.0):
        worst = min(every_return(Walk(3, lost), walker(3), 4, EPS))
        bounds = list[float]()
        for nodes in (3, 11, 31, None):
            found = searched(4, "best-first", 3, EPS, lost=lost, max_nodes=nodes, batch=2)
            assert found.nodes <= (nodes or 1000) and found.lower <= worst
            bounds.append(found.lower)
        assert found.finished and bounds == sorted(bounds) and bounds[0] < bounds[-1]


def _met(self, state):
    """Whether the state was met, whatever had been earned by then."""
    key = state.observation.tobytes()
    return key in self._totals or bool(self._totals.update({key: 0.0}))


@every_case(
    "mutant",
    ["a smaller box", "a bound that is too high", "no way back", "worst looking alone", "states met with more"],
)
def test_an_unsound_search_is_found(mutant, monkeypatch):
    if mutant == "a smaller box":
        real = possible_actions.ObservationBoxes.__call__

        def shrunk(self, observations):
            low, high = real(self, observations)
            return low + 0.1 * (high - low), high - 0.1 * (high - low)

        monkeypatch.setattr(possible_actions.ObservationBoxes, "__call__", shrunk)
    elif mutant == "a bound that is too high":
        monkeypatch.setattr(LeastReturn, "after", lambda self, total, steps: total + 0.5)
    elif mutant == "no way back":
        monkeypatch.setattr(search_tree, "check_repeats", lambda env, action, **more: None)
        monkeypatch.setattr(search_tree.Snapshot, "restore", lambda self, env: None)
    elif mutant == "states met with more":
        monkeypatch.setattr(action_search.ActionSearch, "_met_before", lambda self, state: _met(self, state))
    else:
        real_possible = PossibleActions.at

        def greedy(self, observations):
            possible, outputs = real_possible(self, observations)
            return np.eye(possible.shape[1], dtype=bool)[np.where(possible, outputs, np.inf).argmin(1)], outputs

        monkeypatch.setattr(PossibleActions, "at", greedy)
    with pytest.raises(AssertionError):
        for actions in (2, 3):
            test_the_worst_case_is_that_of_all_sequences(actions, "depth-first")


def test_states_that_were_met_before_are_followed_once(monkeypatch):
    once = searched(4, actions=3, order="best-first")
    assert once.met > 0
    monkeypatch.setattr(action_search.StateFingerprints, "of", lambda self, snapshot: None)
    again = searched(4, actions=3, order="best-first")
    assert again.met == 0 and again.nodes > once.nodes and again.lowest == once.lowest
    monkeypatch.undo()
    monkeypatch.setattr(action_search, "_NEVER_MET", 0)
    assert searched(4, actions=3, order="best-first").nodes == again.nodes


def test_a_return_that_is_known_beforehand():
    whole = searched(4, actions=3)
    with closing(DeterministicEpisodes(walker(3), lambda: Walk(3))) as episodes:
        possible = PossibleActions(episodes.victim, episodes.env.observation_space, Linf(EPS), "interval")
        found = ActionSearch(episodes, possible, LeastReturn(0.0, None, STEPS), 4, found=whole.lowest)
        assert not found.finished and found.lowest == whole.lowest
        found.run("depth-first")
        assert found.finished and found.lowest == whole.lowest and found.nodes < whole.nodes


def test_a_search_goes_on_where_it_was_and_in_another_order():
    victim = walker(3)
    with closing(DeterministicEpisodes(victim, lambda: Walk(3))) as episodes:
        possible = PossibleActions(victim, episodes.env.observation_space, Linf(EPS), "interval")
        found = ActionSearch(episodes, possible, LeastReturn(0.0, None, STEPS), 4)
        found.run("depth-first", max_sequences=1, batch=2)
        assert 1 <= found.sequences <= 6 and not found.finished and found.lower < found.lowest
        before = found.nodes
        found.run("depth-first", max_sequences=1)
        found.run("best-first", Deadline(0))
        assert found.nodes == before
        found.run("best-first")
        assert found.finished and found.lowest == searched(4, actions=3).lowest


def test_the_worst_return_there_is_ends_a_search():
    whole = searched(4, actions=3, batch=1)
    known = searched(4, actions=3, least=LeastReturn(0.0, whole.lowest, STEPS), batch=1)
    assert known.finished and known.lowest == whole.lowest and known.nodes < whole.nodes


def test_the_victim_s_own_sequence_where_nothing_else_is_possible():
    for seed in range(3):
        found = searched(seed, eps=0.0, actions=3)
        assert found.finished and found.sequences == 1 and found.nodes <= STEPS
        assert found.lowest == next(every_return(Walk(3), walker(3), seed, 0.0))


def test_rewards_below_what_is_taken_to_be_the_least():
    with pytest.raises(ValueRangeError, match=r"expected rewards of at least least_reward=0\.1, got 0"):
        searched(least=LeastReturn(0.1, None, STEPS))
    with pytest.raises(ValueRangeError, match="an episode goes on after 2 steps, its limit is 2"):
        searched(least=LeastReturn(0.0, None, 2))
    with pytest.raises(ValueRangeError, match="expected returns of at least least_return=100, got"):
        searched(least=LeastReturn(None, 100.0, None))


class Dice(Walk):
    """Draws a number in its last step."""

    def step(self, action):
        if self.t == STEPS - 1:
            self.np_random.random()
        return super().step(action)


def test_a_simulator_that_draws():
    with pytest.warns(RuntimeWarning, match="draws random numbers in its steps: .* adversary that knows what will be"):
        found = searched(0, env=Dice)
    assert found.finished and found.lowest == min(every_return(Dice(), walker(), 0, EPS))
