"""The engine around a perturbation that nobody trusts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core.budgets.budget import Linf, Valid
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.perturbation import NativePerturbation, Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import AtMost, Bernoulli, Every, Never, Strategic
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from tests.core.helpers import chooser, linear

FLOATS = spaces.Box(-1, 1, (3,), np.float64)
BYTES = spaces.Box(0, 255, (2, 2), np.uint8)
ACTIONS = spaces.Discrete(2)


def engine(how, budget=None, space=FLOATS, rows=4, stream=0, device=None, on="observation", when=None, seed=0):
    made = Engine(
        ThreatModel(on, how, budget or Linf(0.5), when), Wrapped(space, ACTIONS, rows, device=device), stream=stream
    )
    made.begin_episode(seed)
    return made


def far(x, context):
    return x + 100


def noise(x, context):
    return context.draw()


def floats(rows=4, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3))


def test_decisions():
    x = floats()
    assert engine(far).decide(x) is True and engine(far, when=Never()).decide(x) is False
    made = engine(far, when=Every(2))
    assert made.decide(x).all()
    made.clock.tick()
    assert not made.decide(x).any()
    spent = engine(far, when=AtMost(1))
    spent.clock.count(np.array([True, False, False, True]))
    assert spent.decide(x).tolist() == [False, True, True, False]
    gated = engine(far, when=Every(1))
    gated.add_gate(Bernoulli(0.5, stream=3))
    other = engine(noise, stream=5)
    other.add_gate(Bernoulli(0.5, stream=3))
    draws = []
    for _ in range(20):
        draws.append(gated.decide(x))
        assert np.array_equal(draws[-1], other.decide(x)), "one draw rules all the layers of a gate"
        gated.clock.tick(), other.clock.tick()
    assert 0.3 < np.mean(draws) < 0.7


def test_timings_that_look_see_the_observation():
    victim = chooser(linear(torch.tensor([[1.0], [-1.0]], dtype=torch.float64)), size=1, actions=2)
    space = spaces.Box(-9, 9, (1,), np.float64)
    x = np.array([[0.0], [5.0], [0.1], [-5.0]])
    made = engine(far, space=space, when=Strategic(0.5, victim))
    assert made.decide(x).tolist() == [False, True, False, True]
    assert made.decide(x, np.array([True, True, True, False])).tolist() == [False, True, False, False]
    callable_ = engine(far, space=space, when=lambda x, context: x[:, 0] > 1)
    assert callable_.decide(x).tolist() == [False, True, False, False]
    single = engine(far, space=space, rows=None, when=Strategic(0.5, victim))
    assert single.decide(x[1]) is True and single.decide(x[0]) is False


def test_errors():
    with pytest.raises(SpaceError, match=r"\(4, 3\)"):
        engine(far).apply(np.zeros((4, 2)), True)
    with pytest.raises(SpaceError, match=r"shape \(4, 3\), got \(3, 3\)"):
        engine(far).apply(np.zeros((3, 3)), True)
    with pytest.raises(ValueRangeError, match="not finite"):
        engine(far).apply(np.full((4, 3), np.nan), True)
    with pytest.raises(ThreatError, match="not finite"):
        engine(lambda x, c: x / 0).apply(floats(), True)
    with pytest.raises(ThreatError, match=r"\(4, 3\), got .*\(4, 1\)"):
        engine(lambda x, c: x[:, :1]).apply(floats(), True)
    with pytest.raises(ThreatError, match="got ndarray"):
        engine(lambda x, c: x.numpy()).apply(floats(), True)


def test_huge_finite_values_are_finite():
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    x = np.full((4, 3), 1.7e308)
    assert engine(lambda x, c: x, Linf(1), space).apply(x, True).tobytes() == x.tobytes()


@dataclass(frozen=True)
class Drift(Perturbation):
    """Moves one further at every attack."""

    name: ClassVar[str] = "test-drift"

    def initial_memory(self, x):
        return {"n": torch.zeros(len(x), dtype=torch.int64)}

    def __call__(self, x, context):
        context.memory["n"] += 1
        return x + 0.01 * context.memory["n"][:, None]


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_memory_is_kept_for_the_rows_that_were_attacked(device):
    made = engine(Drift(), device=device)
    cast = torch.from_numpy if device else np.asarray
    x = np.zeros((4, 3))
    for attacked in ([True, False, True, True], [True, True, False, True]):
        y = made.apply(cast(x), cast(np.array(attacked)))
    assert np.allclose(np.asarray(y)[:, 0], [0.02, 0.01, 0.0, 0.02])
    made.begin_episode(mask=cast(np.array([True, False, False, False])))
    y = made.apply(cast(x), True)
    assert np.allclose(np.asarray(y)[:, 0], [0.01, 0.02, 0.02, 0.03])
    made.begin_episode()
    assert np.allclose(np.asarray(made.apply(cast(x), True))[:, 0], 0.01)


@dataclass(frozen=True)
class Invert(NativePerturbation):
    """An image transform, which gets the space's own dtype."""

    name: ClassVar[str] = "test-invert"

    def __call__(self, x, context):
        assert x.dtype == torch.uint8
        return 255 - x


@pytest.mark.parametrize("attacked", [True, np.array([True, False])])
def test_native_perturbations_get_the_spaces_own_dtype(attacked):
    x = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    y = engine(Invert(), Valid(), BYTES, rows=2).apply(x, attacked)
    assert np.array_equal(y[0], 255 - x[0]) and np.array_equal(y[1], x[1] if attacked is not True else 255 - x[1])
