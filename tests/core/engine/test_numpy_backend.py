"""An attack in numpy gives the bytes of the same attack on tensors, and leaves the unusual to it."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.engine.context import AttackedStep
from adv_wrappers.core.engine.engine import Engine, Wrapped, numpy_backend
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.errors import AdvWrappersError
from tests.every_case import every_case
from tests.laws.checks import by_turns

STEPS = 6
RNG = np.random.default_rng(0)


def box(low: Any, high: Any, shape: tuple[int, ...], dtype: str = "float32") -> spaces.Box:
    return spaces.Box(np.full(shape, low, dtype), np.full(shape, high, dtype), dtype=np.dtype(dtype).type)


HALF_OPEN = spaces.Box(np.array([-1, -np.inf, 0, -np.inf], "f"), np.array([1, np.inf, 0.5, 3], "f"))
FLOATS = {
    "open": box(-np.inf, np.inf, (5,)),
    "half open": HALF_OPEN,
    "closed": box(-1, 1, (4,)),
    "float64": box(-1, 1, (2, 3), "float64"),
    "one number": box(-2, 2, (), "float64"),
}
INTEGERS = {
    "uint8": box(0, 255, (4, 5), "uint8"),
    "uint8, narrow": box(20, 90, (6,), "uint8"),
    "int16": box(-30000, 30000, (3,), "int16"),
}
ACTIONS = {
    "Discrete": spaces.Discrete(5, start=-2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4, 2]),
    "MultiBinary": spaces.MultiBinary(4),
    "Box": box(-2, 2, (2,)),
    "open Box": box(-np.inf, np.inf, (2,)),
}
BALLS = (adv.Linf(0), adv.Linf(0.3), adv.Linf(1e-7), adv.Linf(2.5), adv.Linf(7, scale=0.7), adv.Linf(1e30))


def values(space: spaces.Space[Any], rows: int | None) -> list[Any]:
    """Observations or actions: within the space, on its bounds, outside of it, zeros of either sign."""
    found = []
    space.seed(1)
    for i in range(STEPS):
        drawn = [space.sample() for _ in range(rows or 1)]
        array = np.array(drawn)
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            if i == 1:  # an action lies outside its space, and so may an observation
                array = array * 3
            if i == 2:
                array = np.where(array > 0, np.nan_to_num(space.high, posinf=1), np.nan_to_num(space.low, neginf=-1))
            if i == 3:
                array = np.where(array > 0, 0.0, -0.0)
            array = array.astype(space.dtype)
        found.append(array if rows is not None else drawn[0] if not isinstance(space, spaces.Box) else array[0])
    return found


def engine(space: spaces.Space[Any], on: Any, how: Any, within: Any, rows: int | None, when: Any = None) -> Engine:
    pair = (space, spaces.Discrete(2)) if on == "observation" else (box(-1, 1, (2,)), space)
    return Engine(adv.ThreatModel(on, how, within, when), Wrapped(*pair, rows), stream=3)


def played(made: Engine, given: list[Any], on: str) -> list[tuple[type, str, tuple[int, ...], bytes]]:
    """Type, dtype, shape and bytes of everything that comes out of an engine."""
    found = []
    made.begin_episode(7)
    for value in given:
        out = made.act(value) if on == "action" else made.observe(value)
        array = np.asarray(out)
        found.append((type(out), array.dtype.str, array.shape, array.tobytes()))
        made.end_step(np.zeros(made.clock.rows, bool) if made.batched else False)
    return found


def both(space: spaces.Space[Any], on: Any, how: Any, within: Any, rows: int | None, when: Any = None) -> Any:
    """What an engine makes in numpy and on tensors of the same values, after checks that it did."""
    given = values(space, rows)
    calls, results = [], []
    for tensors in (False, True):
        made = engine(space, on, how, within, rows, when)
        attack = made.in_numpy
        assert attack is not None
        if tensors:
            made.in_numpy = None
        else:
            made.in_numpy = lambda *args, attack=attack: calls.append(attack(*args)) or calls[-1]
        results.append(played(made, given, on))
    assert calls and all(isinstance(out, np.ndarray) for out in calls)
    return results


ROWS = (None, 1, 3)


@pytest.mark.parametrize(
    ("noise", "rows"), by_turns([*itertools.product(["uniform", "sign", "gaussian"], FLOATS)], ROWS)
)
def test_noise_on_floats(noise, rows):
    kind, name = noise
    space = FLOATS[name]
    count = int(np.prod(space.shape))
    tuples = (adv.Linf(0.2, scale=tuple(np.linspace(0, 2, count))), adv.Linf(0.4, scale=(0.3,) * count))
    valid = (adv.Valid(),) if space.is_bounded() else ()
    for within in (*BALLS, *tuples, *valid):
        one, other = both(space, "observation", adv.Noise(kind), within, rows)
        assert one == other, within


@pytest.mark.parametrize(("kind", "name", "rows"), [*zip(("uniform", "sign", "gaussian"), INTEGERS, ROWS, strict=True)])
def test_noise_on_integers(kind, name, rows):
    space = INTEGERS[name]
    scales = tuple(np.linspace(0, 2, int(np.prod(space.shape))))
    for within in (adv.Linf(0), adv.Linf(1), adv.Linf(2.9), adv.Linf(300), adv.Linf(3, scale=scales), adv.Valid()):
        one, other = both(space, "observation", adv.Noise(kind), within, rows)
        assert one == other, within


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", ACTIONS)
def test_actions(name, rows):
    space = ACTIONS[name]
    continuous = isinstance(space, spaces.Box)
    hows = [adv.ActionFlip()] + (
        [adv.ActionNoise(k) for k in ("uniform", "bernoulli", "gaussian")] if continuous else []
    )
    for how in [*hows, *([] if continuous else [adv.ActionNoise()])]:
        balls = [adv.Linf(0.3), adv.Linf(0.3, scale=(0.5, 2.0))] if continuous else []
        search = how.name == "action-noise" and name == "open Box"
        for within in [*balls, *([] if search else [adv.Valid()])]:
            one, other = both(space, "action", how, within, rows)
            assert one == other, (how, within)


@pytest.mark.parametrize("within", [adv.Linf(0.3), adv.Valid()])
def test_some_rows(within):
    one, other = both(FLOATS["closed"], "observation", adv.Noise(), within, 7, adv.Bernoulli(0.5))
    assert one == other
    given = values(FLOATS["closed"], 7)
    changed = [
        (np.frombuffer(out, "f").reshape(7, 4) != value).any(1) for (*_, out), value in zip(one, given, strict=True)
    ]
    assert 0 < np.mean(changed) < 1


@every_case("dtype", ["float64", "float32", "float16", "int64", "uint8", ">f4"])
def test_values_of_other_dtypes(dtype):
    space = FLOATS["closed"]
    given = [np.array([0, 1, 1, 0], dtype)] * 3
    found = []
    for tensors in (False, True):
        made = engine(space, "observation", adv.Noise(), adv.Linf(0.3), None)
        made.in_numpy = None if tensors else made.in_numpy
        found.append(played(made, given, "observation"))
    assert found[0] == found[1]


def test_the_key_of_a_dict():
    space = spaces.Dict(a=box(-1, 1, (2,)), b=box(-1, 1, (3,)), c=spaces.Discrete(2))
    space.seed(0)
    for at in ("b", ("a", "b")):
        found = []
        for tensors in (False, True):
            threat = adv.ThreatModel("observation", adv.Noise(), adv.Linf(0.3), None, at)
            made = Engine(threat, Wrapped(space, spaces.Discrete(2)))
            assert made.in_numpy is not None
            made.in_numpy = None if tensors else made.in_numpy
            made.begin_episode(1)
            space.seed(0)
            seen = made.observe(space.sample())
            found.append({key: np.asarray(leaf).tobytes() for key, leaf in seen.items()})
        assert found[0] == found[1]


BAD: dict[str, tuple[spaces.Space[Any], Any]] = {
    "not a number": (FLOATS["closed"], np.array([0, np.nan, 0, 0], "f")),
    "infinite": (FLOATS["closed"], np.array([0, np.inf, -np.inf, 0], "f")),
    "too many": (FLOATS["closed"], np.zeros(5, "f")),
    "floats for integers": (INTEGERS["uint8"], np.zeros((4, 5), "f")),
    "texts": (FLOATS["closed"], np.array(["a", "b", "c", "d"])),
}


@every_case("case", BAD)
def test_errors_are_those_of_tensors(case):
    space, value = BAD[case]
    messages = []
    for tensors in (False, True):
        made = engine(space, "observation", adv.Noise(), adv.Linf(1), None)
        made.in_numpy = None if tensors else made.in_numpy
        made.begin_episode(0)
        with pytest.raises(AdvWrappersError) as error:
            made.observe(value)
        messages.append(f"{type(error.value).__name__}: {error.value}")
    assert messages[0] == messages[1]


def test_numbers_near_the_largest_are_left_to_tensors():
    made = engine(FLOATS["open"], "observation", adv.Noise(), adv.Linf(1e38), None)
    assert made.in_numpy is None
    made = engine(FLOATS["open"], "observation", adv.Noise(), adv.Linf(1), None)
    attack, value = made.in_numpy, np.full((1, 5), 3e38, "f")
    assert attack is not None and attack(AttackedStep(made.applied, made.state, value[0], value)) is None
    made.begin_episode(0)
    assert np.isfinite(made.observe(value[0])).all()


@dataclass(frozen=True)
class Returns(Perturbation):
    """Returns what it is told to."""

    name = "returns"
    arrays = True
    what: Any = None

    def __call__(self, x: Any, context: Any) -> Any:
        return self.what if isinstance(x, np.ndarray) else x


@dataclass(frozen=True)
class Inherits(adv.Noise):
    """Calls a method of tensors."""

    name = "inherits"

    def __call__(self, x: Any, context: Any) -> Any:
        return x.clone().add_(0.1)


@dataclass(frozen=True)
class Halved(adv.Linf):
    """Half a ball, written for tensors."""

    name = "halved"

    def box(self, x: Any, low: Any, high: Any) -> Any:
        lower, upper = super().box(x, low, high)
        return lower, x.clone().minimum(upper)


def test_a_declaration_is_not_inherited():
    space = FLOATS["closed"]
    made = engine(space, "observation", Inherits(), adv.Linf(0.3), None)
    made.begin_episode(0)
    assert made.in_numpy is None and (made.observe(np.zeros(4, "f")) == np.float32(0.1)).all()
    made = engine(space, "observation", adv.Noise(), Halved(0.3), None)
    made.begin_episode(0)
    assert made.in_numpy is None and (made.observe(np.zeros(4, "f")) <= 0).all()


@every_case("what", [torch.zeros(1, 4), np.zeros((1, 4)), np.zeros(4, "f"), np.full((1, 4), np.nan, "f"), None])
def test_odd_answers_are_left_to_tensors(what):
    made = engine(FLOATS["closed"], "observation", Returns(what), adv.Linf(0.3), None)
    assert made.in_numpy is not None
    made.begin_episode(0)
    assert (made.observe(np.full(4, 0.25, "f")) == 0.25).all()


def test_what_needs_tensors():
    space = FLOATS["closed"]
    for how, within in [(adv.Noise(), adv.L2(1)), (adv.Noise(), adv.L0(2)), (lambda x, context: x, adv.Linf(1))]:
        assert engine(space, "observation", how, within, None).in_numpy is None
    stack = box(0, 255, (4, 9, 9), "uint8")
    assert engine(stack, "observation", adv.Noise(), adv.Newest(adv.Linf(1), axis=0), None).in_numpy is None
    half = box(-1, 1, (2,), "float16")
    assert engine(half, "observation", adv.Noise(), adv.Linf(0.5), None).in_numpy is None
    on_device = Engine(
        adv.ThreatModel("observation", adv.Noise(), adv.Linf(1)),
        Wrapped(space, spaces.Discrete(2), 2, device=torch.device("cpu")),
    )
    assert on_device.in_numpy is None


def test_large_batches_and_masks_go_by_tensors(monkeypatch):
    made = engine(spaces.Discrete(3), "action", adv.ActionNoise(), adv.Valid(), 2)
    attack, part = made.in_numpy, np.zeros(2, np.int64)
    made.begin_episode(0)
    assert attack is not None and attack(AttackedStep(made.applied, made.state, part, part)) is not None
    assert attack(AttackedStep(made.applied, made.state, part, part, mask=torch.ones(2, 3, dtype=torch.bool))) is None
    assert attack(AttackedStep(made.applied, made.state, part, torch.zeros(2, dtype=torch.int64))) is None
    monkeypatch.setattr(numpy_backend, "LARGEST", 1)
    assert attack(AttackedStep(made.applied, made.state, part, part)) is None


def test_an_engine_is_freed_as_soon_as_it_is_let_go():
    made = engine(FLOATS["closed"], "observation", adv.Noise(), adv.Linf(0.3), None)
    made.begin_episode(0)
    made.observe(np.zeros(4, "f"))
    assert made.in_numpy is not None
    watched = weakref.ref(made)
    gc.disable()
    try:
        del made
        assert watched() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("space", [FLOATS["closed"], INTEGERS["uint8"]], ids=str)
def test_a_budget_that_is_replaced_takes_another_attack(space):
    made = engine(space, "observation", adv.Noise(), adv.Linf(2), None)
    before = made.in_numpy
    made.set_threat(adv.ThreatModel("observation", adv.Noise(), adv.Linf(0)))
    made.begin_episode(0)
    value = values(space, None)[0]
    assert made.in_numpy is not before and np.asarray(made.observe(value)).tobytes() == value.tobytes()
    made.set_threat(adv.ThreatModel("observation", adv.Noise(), adv.L2(2)))
    assert made.in_numpy is None
