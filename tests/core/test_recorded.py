"""Attacks that are recorded: everything an attack depends on reaches the graph, and the laws hold as without one."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.accel import cuda_graphs
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.errors import ThreatError
from tests.core.helpers import chooser, mlp
from tests.core.tape import install
from tests.laws.checks import Case, by_turns, cases, seeds_of, wrapper
from tests.rigs import RIGS, run, same

CASES = [case for case in cases("observation", rigs=1) if adv.presets[case.preset].kind.capturable]
# on the host, which makes no difference to what is recorded; noise has no device to be recorded on
HOSTED = [case for case in CASES if not case.exact][::3]


def compare(monkeypatch, case, kind, **more):
    threat = case.threat(dtype=torch.float64, **more)
    seeds = seeds_of(kind)[:2]
    plain = run(kind, case.rig, wrapper(threat), seeds)
    tapes, lates = install(monkeypatch)
    taped = run(kind, case.rig, wrapper(threat), seeds)
    replays = sum(tape.replays for tape in tapes)
    assert replays and replays > sum(tape.records for tape in tapes)
    assert kind == "tensor" or any(late.fences for late in lates)
    # the rows of a vector on the host that are attacked make a batch of another size, and products round differently
    same(taped, plain, kind in ("tensor", "env") or "when" not in more, f"{case} {kind}: recorded and plain")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_recorded_attacks_are_the_plain_ones(monkeypatch, case):
    compare(monkeypatch, case, "tensor")


@pytest.mark.parametrize(("case", "kind"), by_turns(HOSTED, ["next", "same", "env"]), ids=str)
def test_recorded_attacks_of_values_on_the_host(monkeypatch, case, kind):
    compare(monkeypatch, case, kind)


PGD = [(Case("pgd", RIGS["q"]), budget) for budget in ("linf", "scaled", "l2")]
PGD += [(Case("pgd", RIGS["image"]), budget) for budget in ("l0", "newest")]


@pytest.mark.parametrize(("cased", "kind"), by_turns(PGD, ["tensor", "next"]))
def test_recorded_under_every_budget_and_a_timing(monkeypatch, cased, kind):
    case, budget = cased
    compare(monkeypatch, case, kind, budget=budget, when=adv.Bernoulli(0.6))


ATTACK = adv.MinBest(chooser(mlp(4, 3)), steps=2, step=0.5, random_start=True)
SPACE = spaces.Box(-5, 5, (4,), np.float64)


def engine(how=ATTACK, budget=None, rows=13, device="cpu", when=None):
    """A host engine (device None), or one whose tensors lie on ``device``."""
    threat = adv.ThreatModel("observation", how, budget or adv.Linf(0.3), when)
    place = None if device is None else torch.device(device)
    made = Engine(threat, Wrapped(SPACE, spaces.Discrete(3), rows, device=place))
    made.begin_episode(0)
    return made


def floats(rows=13, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 4))


def test_every_input_that_an_engine_forgets_is_caught(monkeypatch):
    """What an attack is made of, one by one: without it, the second attack repeats something of the first."""
    for name in ("part", "clock"):
        install(monkeypatch)
        plain, mutant = engine(adv.Noise()), engine(adv.Noise())
        plain.state.graphs = None
        fresh, first = Context.inputs, []

        def stale(context, fresh=fresh, first=first, name=name, mutant=mutant):
            tree = fresh(context)
            if context._state is not mutant.state:
                return tree
            first.append(tuple(leaf().clone() for leaf in tree[name]) if name == "clock" else tree[name])
            return (
                {**tree, name: first[0]} if name == "part" else {**tree, name: tuple(lambda v=v: v for v in first[0])}
            )

        monkeypatch.setattr(Context, "inputs", stale)
        for seed in range(2):
            x = torch.from_numpy(floats(seed=seed))
            agree = torch.equal(plain.apply(x, True), mutant.apply(x, True))
            assert agree == (seed == 0), name
            plain.clock.tick(), mutant.clock.tick()


def test_rows_on_the_host_are_padded_to_a_handful_of_shapes(monkeypatch):
    tapes, _ = install(monkeypatch)
    made, x = engine(device=None), floats()
    rng, seen = np.random.default_rng(1), set()
    for _ in range(40):
        attacked = rng.random(13) < rng.random()
        y = made.apply(x, attacked)
        assert y[~attacked].tobytes() == x[~attacked].tobytes()
        assert not attacked.any() or (y[attacked] != x[attacked]).any(1).all()
        seen.add(int(attacked.sum()))
    assert len(seen) > 8 and tapes[0].records <= 5
    assert [len(cuda_graphs.padded(np.arange(n), 13)) for n in (1, 2, 3, 5, 8, 9, 13)] == [
        1,
        2,
        4,
        8,
        8,
        13,
        13,
    ]


def test_padding_does_not_change_the_rows_that_were_attacked(monkeypatch):
    install(monkeypatch)
    x, attacked, out = floats(), np.arange(13) % 3 == 1, []
    x[0], x[12] = 1e3, -4.9
    for filler in (1, 0, 12):
        pad = lambda rows, most, filler=filler: np.concatenate([rows, [filler] * (8 - len(rows))])  # noqa: E731
        monkeypatch.setattr(cuda_graphs, "padded", pad)
        out.append(engine(device=None).apply(x, attacked).tobytes())
    assert len(set(out)) == 1


def test_a_new_budget_or_victim_is_recorded_anew(monkeypatch):
    tapes, _ = install(monkeypatch)
    x = torch.from_numpy(floats())
    made = engine()
    widest = [float((made.apply(x, True) - x).abs().max())]
    for budget, how in ((adv.Linf(0.1), ATTACK), (adv.Linf(0.1), adv.MinBest(chooser(mlp(4, 3, seed=9))))):
        made.set_threat(adv.ThreatModel("observation", how, budget))
        widest.append(float((made.apply(x, True) - x).abs().max()))
        plain = engine(how, budget)
        plain.state.graphs = None
        assert torch.equal(made.apply(x, True), plain.apply(x, True))
    assert np.allclose(widest, [0.3, 0.1, 0.1]) and sum(tape.records for tape in tapes) == 3


@dataclass(frozen=True)
class Eager(Perturbation):
    """Says that it may be recorded, and looks at what it must not."""

    name: ClassVar[str] = "test-eager"
    capturable: ClassVar[bool] = True
    looks: str = "t"
    victim: Any = None

    def __call__(self, x, context):
        if self.looks == "write":
            return x.add_(1)
        if self.looks == "divide":
            return x / 0
        return x + 0.1 * len(str(getattr(context, self.looks)))


@pytest.mark.parametrize("looks", ["t", "spent", "memory"])
def test_what_must_not_be_looked_at_costs_a_warning_once(monkeypatch, looks):
    tapes, _ = install(monkeypatch)
    made, x = engine(Eager(looks)), torch.from_numpy(floats())
    with pytest.warns(RuntimeWarning, match=f"test-eager is not recorded.*must not look at context.{looks}"):
        y = made.apply(x, True)
    made.set_threat(adv.ThreatModel("observation", Eager(looks), adv.Linf(0.2)))
    with pytest.warns(RuntimeWarning):
        made.apply(x, True)
    made.set_threat(adv.ThreatModel("observation", made.threat.how, adv.Linf(0.3)))  # another budget, the same attack
    assert torch.equal(made.apply(x, True), y) and not any(tape.records for tape in tapes)


def test_a_promise_not_to_write_is_not_trusted(monkeypatch):
    x = torch.from_numpy(floats())
    kept = x.clone()
    assert torch.allclose(engine(Eager("write")).apply(x, True), (kept + 0.3).clamp(max=5)) and torch.equal(x, kept)
    install(monkeypatch)
    assert torch.allclose(engine(Eager("write")).apply(x, True), (kept + 0.3).clamp(max=5)) and torch.equal(x, kept)


@dataclass(frozen=True)
class Counting(Perturbation):
    """Remembers, so every attack differs."""

    name: ClassVar[str] = "test-counting"
    capturable: ClassVar[bool] = True

    def initial_memory(self, x):
        return {"n": torch.zeros(len(x), dtype=torch.int64)}

    def __call__(self, x, context):
        context.memory["n"] += 1
        return x + 0.01 * context.memory["n"][:, None]


def test_who_is_not_recorded(monkeypatch):
    install(monkeypatch)
    function = lambda x, context: x + 1  # noqa: E731
    for how in (function, Counting(), adv.daylight.Shift(1, 1)):
        within, space = adv.Linf(0.3), SPACE
        if how.__class__ is adv.daylight.Shift:
            within, space = adv.Valid(), spaces.Box(0, 255, (4, 9, 9), np.uint8)
        threat = adv.ThreatModel("observation", how, within)
        made = Engine(threat, Wrapped(space, spaces.Discrete(3), 3, device=torch.device("cpu")))
        assert made.state.graphs is None
    assert engine(adv.Noise()).state.graphs is not None and engine(adv.Noise(), device=None).state.graphs is None


def test_values_that_are_not_finite_are_seen_on_their_way_to_the_host(monkeypatch):
    install(monkeypatch)
    with pytest.raises(ThreatError, match="not finite"):
        engine(Eager("divide", chooser(mlp(4, 3))), device=None).apply(floats(), True)
    assert torch.isfinite(engine(Eager("divide")).apply(torch.from_numpy(floats()), True)).all(), (
        "devices are not asked"
    )


def test_recorded_wrappers_pickle(monkeypatch):
    tapes, _ = install(monkeypatch)
    made, x = engine(), torch.from_numpy(floats())
    y = made.apply(x, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(made))
        assert torch.equal(again.apply(x, True), y)
    assert tapes[0].records == 1 and again.state.graphs.recorder.records == 2
