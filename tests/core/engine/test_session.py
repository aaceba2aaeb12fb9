"""Hidden states of recurrent victims, shared by the layers of a stack."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.core.engine.session import Session
from adv_wrappers.utils.trees import merge, select

ROWS = 3


class Counter:
    """A recurrent victim whose state is the sum of what it acted on, and the number of times it did."""

    recurrent, dtype, device = True, torch.float64, torch.device("cpu")
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self) -> None:
        self.calls = 0

    def initial_state(self, rows: int):
        return {"sum": torch.zeros(rows, 2, dtype=self.dtype), "n": (torch.zeros(rows, dtype=torch.int64),)}

    def advance(self, obs, state):
        self.calls += 1
        return {"sum": state["sum"] + obs, "n": (state["n"][0] + 1,)}


class Shell:
    """A layer, as far as the session is concerned."""


def stack(rows: int | None = ROWS):
    inner, outer, victim = Shell(), Shell(), Counter()
    session = Session(rows)
    session.add(inner, [victim], False)
    session.add(outer, [victim], False)
    return session, inner, outer, victim


def step(session, layer, moved=None) -> None:
    session.begin_step(layer)
    session.end_step(moved)


def test_select_and_merge_reach_every_leaf():
    tree = {"a": torch.arange(3), "b": (np.arange(3), torch.arange(6).view(3, 2))}
    rows = np.array([2, 0])
    picked = select(tree, rows)
    assert picked["a"].tolist() == [2, 0] and picked["b"][0].tolist() == [2, 0]
    assert picked["b"][1].tolist() == [[4, 5], [0, 1]]
    assert select(tree, None) is tree and select(None, rows) is None
    old = {"a": torch.zeros(3), "b": (torch.zeros(3, 2),)}
    new = {"a": torch.ones(3), "b": (torch.ones(3, 2),)}
    mixed = merge(torch.tensor([True, False, True]), new, old)
    assert mixed["a"].tolist() == [1, 0, 1] and mixed["b"][0].tolist() == [[1, 1], [0, 0], [1, 1]]
    assert old["a"].tolist() == [0, 0, 0], "never in place"


def test_victims_advance_once_from_what_the_outermost_layer_handed_out():
    session, inner, outer, victim = stack()
    assert session.listening and session.outermost is outer
    session.show(inner, np.full((ROWS, 2), 100.0))
    assert session.shown is None, "an inner layer hands nothing to the agent"
    session.show(outer, np.ones((ROWS, 2)))
    session.begin_step(inner)
    session.end_step()
    assert victim.calls == 0, "the step of an inner layer is part of the outermost one's"
    step(session, outer)
    session.end_step()  # the other layers see the same answer
    assert victim.calls == 1 and session.state(victim)["sum"].tolist() == [[1.0, 1.0]] * ROWS


def test_rows_that_did_not_move_keep_their_state():
    session, _, outer, victim = stack()
    session.show(outer, np.ones((ROWS, 2)))
    step(session, outer, np.array([True, False, True]))
    assert session.state(victim)["n"][0].tolist() == [1, 0, 1]
    assert session.state(victim, np.array([1, 2]))["n"][0].tolist() == [0, 1]


def test_the_final_observation_sees_the_state_before_the_reset():
    session, _, outer, victim = stack()
    session.show(outer, np.ones((ROWS, 2)))
    step(session, outer)
    session.reset(np.array([False, True, False]))
    assert session.state(victim)["n"][0].tolist() == [1, 0, 1]
    assert session.state(victim, final=True)["n"][0].tolist() == [1, 1, 1]
    step(session, outer)
    assert session.state(victim, final=True)["n"][0].tolist() == [2, 1, 2], "a new step has its own past"


def test_a_single_environment_is_a_batch_of_one():
    session, _, outer, victim = stack(None)
    session.show(outer, np.array([1.0, 2.0]))
    step(session, outer)
    assert session.state(victim)["sum"].tolist() == [[1.0, 2.0]]
    session.reset()
    assert session.state(victim)["sum"].tolist() == [[0.0, 0.0]]


def test_without_a_recurrent_victim_nothing_is_recorded_unless_asked():
    session, layer = Session(ROWS), Shell()
    session.add(layer, [SimpleNamespace(recurrent=False)], False)
    session.show(layer, np.ones((ROWS, 2)))
    assert session.shown is None and session.state(object()) is None
    session.add(layer, [], True)
    session.show(layer, np.ones((ROWS, 2)))
    assert session.shown is not None
