"""The laws, as functions that raise AssertionError: the law tests and the mutants call the same ones."""

from __future__ import annotations

import atexit
import contextlib
import copy
import dataclasses
import functools
import itertools
import json
import math
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils.env_checker import check_env

import adv_wrappers as adv
from adv_wrappers.adversaries import PAAD, SARL, Director, Learned, Timed
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.core.perturbation import NativePerturbation, VictimAttack
from adv_wrappers.core.spaces import with_leaf
from adv_wrappers.core.threat import REWARDS
from adv_wrappers.core.timing import Timing
from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import AdvWrappersError, BudgetError, VictimError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from adv_wrappers.victims.auxiliary_networks import Dynamics, TransitionModel
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.rigs import (
    RIGS,
    Episode,
    ReplayEnv,
    Rig,
    make_victim,
    mapped,
    run,
    same,
    same_bytes,
    tensors,
    vector,
)

BUDGETS = ("linf", "scaled", "l2", "l0", "sparse", "valid", "newest")
ROWS = (5, 6, 7)  # their seeds, which play the shorter recordings


@dataclass(frozen=True)
class Case:
    """A preset on a rig."""

    preset: str
    rig: Rig

    def __str__(self) -> str:
        return f"{self.preset}-{self.rig.name}"

    @property
    def on(self) -> str:
        return adv.presets[self.preset].on

    @property
    def at(self) -> Any:
        if self.on == "dynamics":
            return "mass"
        return self.rig.at if self.on == "observation" else None

    @property
    def leaf(self) -> Any:
        """The space that is perturbed."""
        if self.on == "action":
            return self.rig.actions
        if self.on == "reward":
            return REWARDS
        if self.on == "dynamics":
            return self.parameters.box(self.parameters.places(self.at))
        return self.rig.space if self.at is None else self.rig.space[self.at]

    @property
    def parameters(self) -> Any:
        """The physical parameters of the rig's environment, or None."""
        return parameters_of(self.rig.env()).space if self.rig.parameters else None

    @property
    def quick(self) -> dict[str, Any]:
        """Arguments that a preset needs, and those that make a slow search short: fewer and longer steps."""
        if self.preset == "learned":
            return {"card": adversary_of(self.rig.name)}
        if self.preset in PLANNED:
            model = model_of(self.rig.space, self.rig.actions)
            return {"dynamics": model, "target": "0=1&2=-1", "steps": 3, "iterations": 3}
        if self.preset == "saturation":
            return {"low": 90, "high": 160} if self.leaf.dtype == np.uint8 else {"low": -0.05, "high": 0.05}
        if self.preset == "reward-clip":
            return {"low": -0.25, "high": 0.75}
        if self.preset == "fixed-dynamics":
            return {"values": (1.125, 0.9375)}
        if self.preset == "daylight":
            return {"game": "Pong", "transform": "brightness"}
        takes = {field.name: field.default for field in dataclasses.fields(adv.presets[self.preset].kind)}
        if self.preset in ("multi-targeted", "min-played-q"):
            return {"restarts": 1, "steps": 2, "targets": 2}
        if self.preset in ("pgd", "apgd"):
            return {"restarts": 2, "steps": 2} if self.preset == "pgd" else {"restarts": 1, "steps": 4}
        if "queries" in takes:
            return {"queries": 16}
        if "searches" in takes:
            return {"searches": 1, "steps": 4, "step": 0.5, "c": 1e4}
        return {"steps": 3} if takes.get("steps", 1) > 3 else {}

    @property
    def exact(self) -> bool:
        """Whether results are equal to the bit whatever the batch: nothing but keys and elementwise arithmetic."""
        return not issubclass(adv.presets[self.preset].kind, VictimAttack) and self.preset != "learned"

    @property
    def sort(self) -> tuple[str, bool, bool, bool]:
        """What the engine tells presets apart by."""
        kind = adv.presets[self.preset].kind
        attack, native = issubclass(kind, VictimAttack), issubclass(kind, NativePerturbation)
        return self.on, attack, native, self.preset in REMEMBERING

    def budget(self, name: str, eps: float | None = None) -> dict[str, Any]:
        """Arguments of ``threat`` for a budget of this case's leaf."""
        eps = self.rig.eps if eps is None else eps
        if name == "linf":
            return {"eps": eps}
        if name in ("scaled", "sparse"):
            size, steps = (
                int(np.prod(self.leaf.shape)),
                (0.0, 1.0, 2.0) if self.leaf.dtype == np.uint8 else (0.0, 0.5, 2.0),
            )
            few = {"norm": "sparse(2)"} if name == "sparse" else {}
            return {"eps": eps, "scale": tuple(steps[i % 3] for i in range(size)), **few}
        if name == "l2":
            return {"eps": eps * 1.7, "norm": "l2"}
        if name == "newest":
            native = issubclass(adv.presets[self.preset].kind, NativePerturbation)
            return {"newest": True} | ({"norm": "valid"} if native else {"eps": eps})
        return {"eps": 2, "norm": "l0"} if name == "l0" else {"norm": "valid"}

    def threat(
        self,
        budget: str = "",
        dtype: torch.dtype = torch.float32,
        live: bool = False,
        device: str = "cpu",
        **kwargs: Any,
    ) -> Any:
        """The threat; an empty budget takes the first that fits."""
        if not budget:
            budget = fitting(self)[0]
        sized = self.budget(budget, kwargs.pop("eps", None))
        made = adv.threat(
            self.preset, self.rig.victim(dtype, live, device), at=self.at, **sized, **{**self.quick, **kwargs}
        )
        made.check(self.rig.space, self.rig.actions, self.parameters)
        return made


PLANNED = ("model-based", "action-model-based")
REMEMBERING = (  # what was before, which an actor that learns when to attack does not take
    "stuck-sensor", "observation-delay", "observation-jitter", "observation-loss", "action-delay", "action-loss",
    "reward-delay",
)  # fmt: skip


@dataclass(frozen=True)
class Remembering(Case):
    """The preset ``learned``, by a director that has an LSTM."""

    @property
    def quick(self) -> dict[str, Any]:
        return {"card": adversary_of(self.rig.name, recurrent=True)}


@functools.cache
def adversary_of(rig: str, recurrent: bool = False) -> str:
    """The folder of an adversary against a rig's victim: PA-AD where observations are flat, else SA-RL."""
    space = RIGS[rig].space if RIGS[rig].at is None else RIGS[rig].space[RIGS[rig].at]
    victim = make_victim(rig, torch.float32, False)
    flat = len(space.shape) == 1 and RIGS[rig].at is None
    return adversary_for(space, PAAD(victim, steps=3) if flat else SARL(), recurrent)


def model_of(space: Any, actions: Any) -> str:
    """The reference of a random model of an environment with these spaces, which need not be a good one."""
    sizes = tuple(len(side.low) if isinstance(side, gym.spaces.Box) else 1 for side in (space, actions))
    if sizes not in _models:
        n, k = sizes
        state = torch.random.get_rng_state()
        torch.manual_seed(12)
        net = torch.nn.Sequential(torch.nn.Linear(n + k, 8), torch.nn.ReLU(), torch.nn.Linear(8, n + 1))
        torch.random.set_rng_state(state)
        widths = {"obs": n, "act": k, "change": n + 1}
        statistics = {name: (torch.zeros(width), torch.ones(width)) for name, width in widths.items()}
        network = {"features": n, "actions": k}
        _models[sizes] = tempfile.mkdtemp(prefix="dynamics-")
        atexit.register(shutil.rmtree, _models[sizes], True)
        Dynamics.of(TransitionModel([net], **statistics), {"network": network}).save(_models[sizes])
    return f"card:{_models[sizes]}"


_models: dict[tuple[int, ...], str] = {}


def adversary_for(space: Any, actor: Any, recurrent: bool = False) -> str:
    """The folder of an adversary with one random layer, for observations of ``space``."""
    adversary_actions = actor.action_space(space.shape)
    discrete = isinstance(adversary_actions, gym.spaces.Discrete)
    state = torch.random.get_rng_state()
    torch.manual_seed(11)
    size = int(adversary_actions.n) if discrete else int(np.prod(adversary_actions.shape))
    inputs = int(np.prod(space.shape))
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, size))
    if recurrent:
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LSTM(inputs, 5, 2), torch.nn.Linear(5, size))
        net[1].weight_hh_l0.data *= 5  # what it remembers is heard
    torch.random.set_rng_state(state)
    if space.dtype == np.uint8 and not recurrent:  # pixels saturate every action of an adversary
        net[1].weight.data *= 0.02
    folder = tempfile.mkdtemp(prefix="adversary-")
    atexit.register(shutil.rmtree, folder, True)
    Learned(Director(net, discrete, clip=True), actor).save(folder)
    return folder


def fitting(case: Case) -> tuple[str, ...]:
    """The budgets under which a preset works on a rig; none if its victim is of the wrong kind."""
    return tuple(name for name in BUDGETS if fits(case, name))


def fits(case: Case, budget: str) -> bool:
    """Whether a preset works on a rig under a budget."""
    shared = case.rig is RIGS.get(case.rig.name)  # and so what fits stays what it is
    key = type(case), case.preset, case.rig.name, budget
    if shared and key in _fits:
        return _fits[key]
    try:
        case.threat(budget)
        fit = case.on != "reward" or budget not in ("scaled", "sparse")  # which leave the first of its numbers alone
    except BudgetError:
        fit = False
    except AdvWrappersError:  # whatever the budget
        fit = False
        _fits.update({(*key[:-1], name): False for name in BUDGETS if shared})
    if shared:
        _fits[key] = fit
    return fit


_fits: dict[Any, bool] = {}


@functools.cache
def cases(on: str | None = None, rigs: int | None = None) -> list[Case]:
    """Every preset of the table on the first ``rigs`` of those that it fits; by default on some that cover all.

    Those are the most telling rig of a preset, another by turns, and each rig on which no preset of the same sort was
    before: every preset is on two rigs, and every rig has every sort of preset that fits it.

    Raises:
        AssertionError: for a preset that fits none: it would otherwise escape every law.
    """
    out = list[Case]()
    covered = set[tuple[str, str, bool, bool]]()
    for turn, (preset, entry) in enumerate(adv.presets.items()):
        fit = [rig for rig in RIGS.values() if rig.parameters == (entry.on == "dynamics")]
        fit = [RIGS["q"], RIGS["mean"]] if entry.on == "reward" else fit  # whose observations say nothing of rewards
        found = [case for rig in fit if any(fits(case := Case(preset, rig), budget) for budget in BUDGETS)]
        assert found, f"no rig fits the preset {preset!r}: add a victim to tests/rigs.py"
        found.sort(key=lambda case: _RANK.index(case.rig.name))
        if rigs is None:
            chosen = found[0], found[-1 - turn % max(len(found) - 1, 1)]
            found = [case for case in found if case in chosen or (case.rig.name, *case.sort[:3]) not in covered]
            covered |= {(case.rig.name, *case.sort[:3]) for case in found}
        out += [case for case in found[:rigs] if on in (None, case.on)]
    return out


def of_each_sort() -> list[Case]:
    """One preset of each sort, for laws that the engine keeps whatever the preset."""
    return [*{case.sort: case for case in reversed(cases(rigs=1))}.values()][::-1]


def by_turns(cases: Sequence[Any], kinds: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Every case in one of the kinds of environment, by turns, so that every kind has cases of every sort."""
    return [*zip(cases, itertools.cycle(kinds), strict=False)]


_RANK = (
    "q",
    "mean",
    "recurrent",
    "image",
    "logits",
    "colour",
    "unit",
    "dict",
    "dict-mean",
    "gaussian",
    "tuple",
    "choices",
    "bits",
    "choice",
    "tuple-choice",
    "parameters",
)  # most telling first


def wrapper(*threats: Any, **options: Any) -> Any:
    """Wraps any environment."""
    return lambda env: adv.wrap(env, *threats, **options)


def unattacked(kind: str, rig: Rig, seeds: tuple[int, ...]) -> list[list[Episode]]:
    """What a rig does in no wrapper, not to be written to; it is the same for all cases."""
    if rig is not RIGS.get(rig.name):
        return run(kind, rig, seeds=seeds)
    key = kind, rig.name, seeds
    if key not in _unattacked:
        _unattacked[key] = run(kind, rig, seeds=seeds)
    return _unattacked[key]


_unattacked: dict[Any, list[list[Episode]]] = {}


def seeds_of(kind: str) -> tuple[int, ...]:
    """Seeds of the rows to play: one after another, one is enough where rows are not compared."""
    return ROWS[1:2] if kind == "env" else ROWS


def pairs(case: Case, attacked: Any, clean: Any) -> list[tuple[Any, Any]]:
    """(true value, value that came out) of everything that the layer saw."""
    out = []
    for row, bare in zip(attacked, clean, strict=True):
        for episode, original in zip(row, bare, strict=True):
            if case.on == "action":
                out += list(zip(episode.done, episode.received, strict=True))
            elif case.on == "reward":
                out += [(np.array([x]), np.array([y])) for x, y in zip(original.rewards, episode.rewards, strict=True)]
            elif case.on == "dynamics":
                out += list(zip(original.received, episode.received, strict=True))
            else:
                out += list(zip(original.seen, episode.seen, strict=True))
    at = None if case.on == "dynamics" else case.at
    return [(_part(x, at), _part(y, at)) for x, y in out]


def _part(value: Any, at: Any) -> Any:
    return np.asarray(value if at is None else value[at])


# law 1


def inside(budget: dict[str, Any], y: Any, x: Any, leaf: Any) -> None:
    """Raise unless y lies in the budget around x and in the space widened to contain x; written without the library."""
    if isinstance(leaf, gym.spaces.Box):
        low, high = leaf.low, leaf.high
    elif isinstance(leaf, gym.spaces.MultiBinary):
        low, high = 0, 1
    else:
        low, high = leaf.start, leaf.start + getattr(leaf, "n", getattr(leaf, "nvec", 0)) - 1
    assert np.all((y >= np.minimum(low, x)) & (y <= np.maximum(high, x))), f"{y} leaves the space of {x}"
    move = y.astype(np.float64) - x.astype(np.float64)
    eps, norm = budget.get("eps", 0), budget.get("norm", "linf")  # an old frame was in the budget when it was new
    if norm in ("linf", "sparse(2)"):
        radius = eps * (np.reshape(budget["scale"], x.shape) if "scale" in budget else np.ones(x.shape))
        close = np.abs(move) >= radius * (1 - 1e-9)
        for a, b, r in zip(*(part[close].tolist() for part in (x, y, radius)), strict=True):
            assert abs(Fraction(b) - Fraction(a)) <= Fraction(r), f"{a!r} moved to {b!r}, allowed are {r!r}"
        assert norm == "linf" or np.count_nonzero(move) <= 2, f"{np.count_nonzero(move)} elements moved, not 2"
    elif norm == "l2":
        length = math.sqrt(math.fsum((move * move).flat))
        assert length <= eps * (1 + 2e-15), f"moved by {length!r}, allowed is {eps!r}"
    elif norm == "l0":
        assert np.count_nonzero(move) <= eps, f"{np.count_nonzero(move)} elements moved, allowed are {eps}"


def check_budget(case: Case, budget: str, kind: str = "env", how: Any = None) -> None:
    """Law 1, for every value of a run; and the layer does something."""
    if how is None:
        threat = case.threat(budget)
    else:  # a function needs no bounded budget
        eps = case.budget(budget).get("eps")
        sets = {"l2": adv.L2, "l0": adv.L0}
        within = adv.Valid() if budget == "valid" else sets.get(budget, adv.Linf)(eps)
        if budget in ("scaled", "sparse"):
            within = adv.Linf(eps, case.budget(budget)["scale"])
        within = adv.Sparse(2, within) if budget == "sparse" else within
        threat = adv.ThreatModel(case.on, how, within, None, case.at)
    seeds = seeds_of(kind)
    attacked, clean = run(kind, case.rig, wrapper(threat), seeds), unattacked(kind, case.rig, seeds)
    values = pairs(case, attacked, clean)
    for x, y in values:
        assert y.dtype == x.dtype and y.shape == x.shape, f"{x.dtype}{x.shape} became {y.dtype}{y.shape}"
        inside(case.budget(budget), y, x, case.leaf)
    assert any(x.tobytes() != y.tobytes() for x, y in values), "nothing was ever perturbed"
    if budget == "newest" and case.on == "observation":
        _check_past(case, attacked, clean)


def _check_past(case: Case, attacked: Any, clean: Any) -> None:
    """Law 1 under Newest: a frame that moved up by one place since the last step is shown as it was shown then."""
    moved = 0
    for episode, original in zip(itertools.chain(*attacked), itertools.chain(*clean), strict=True):
        seen, true = ([_part(value, case.at) for value in one.seen] for one in (episode, original))
        for before, after, x, y in zip(seen, seen[1:], true, true[1:], strict=False):
            for place in range(len(y) - 1):
                if y[place].tobytes() == x[place + 1].tobytes():
                    same_bytes(after[place], before[place + 1], f"{case}: a frame that was shown before")
                    moved += 1
    assert moved or case.rig.name != "image", "no frame was ever shown twice"


# law 2


def check_identity(case: Case, kind: str) -> None:
    """Law 2: without a budget, and where a layer does not attack, what came in goes out, to the bit."""
    seeds = seeds_of(kind)
    clean = unattacked(kind, case.rig, seeds)
    threats = [case.threat(when=adv.Never())]
    norms = [name for name in ("linf", "l2", "l0", "sparse") if name in fitting(case)]
    turn = 1 + len(case.preset) % max(len(norms) - 1, 1)  # one of the others stands beside the first
    for name in (*norms[:1], *norms[turn : turn + 1]) if kind == "env" else norms[:1]:
        norm = "sparse(2)" if name == "sparse" else name
        zero = adv.threat(case.preset, case.rig.victim(), eps=0, norm=norm, at=case.at, **case.quick)
        threats.append(zero)
    for threat in threats:
        same(run(kind, case.rig, wrapper(threat), seeds), clean, True, f"{case} under {threat.within}, {threat.when}")
    values = pairs(case, run(kind, case.rig, wrapper(case.threat(when=adv.Every(2))), seeds), clean)
    calm = [v for i, v in enumerate(values) if _step(case, clean, i) % 2]
    assert calm
    for x, y in calm:
        same_bytes(x, y, f"{case}: a value that was not attacked")


def _step(case: Case, clean: Any, index: int) -> int:
    steps = [t for row in clean for e in row for t in range(len(e.seen if case.on == "observation" else e.done))]
    return steps[index]


# law 3


def check_seeds(case: Case, kind: str) -> None:
    """Law 3: the same seed gives the same bytes; rows beside a row, and its place among them, do not matter.

    Law 4 has rows that are alone.
    """
    threat = case.threat(dtype=torch.float64)
    apply = wrapper(threat)
    if kind == "env":  # nothing stands beside it
        rows = run(kind, case.rig, apply, (5, 7))
        same(run(kind, case.rig, apply, (7, 5)), rows[::-1], True, f"{case}: the same seeds again")
        return
    rows = run(kind, case.rig, apply, ROWS)
    same(run(kind, case.rig, apply, ROWS), rows, True, f"{case}: the same seeds again")
    same(run(kind, case.rig, apply, (7, 5)), [rows[2], rows[0]], case.exact, f"{case}: other rows, another order")


def check_fresh(case: Case) -> None:
    """Law 3: draws differ between seeds, episodes and steps; a random layer never repeats itself."""
    still = [[case.rig.env().recordings[0][0]] * 4]  # what differs is the draw alone
    env = adv.wrap(ReplayEnv(still, case.rig.space, case.rig.actions), case.threat("linf"))
    moves = []
    for seed in (1, 2):
        for episode in range(2):
            obs, _ = env.reset(seed=seed) if episode == 0 else env.reset()
            moves.append(_part(obs, case.at).tobytes())
            for t in range(3):
                moves.append(_part(env.step(case.rig.act(0, 0, t))[0], case.at).tobytes())
    assert len(set(moves)) == len(moves), f"{case}: {len(moves) - len(set(moves))} of {len(moves)} draws are repeated"


# law 4


def check_vector(case: Case, kind: str, when: Any = None, budget: str = "", inside: bool = True) -> None:
    """Law 4: a wrapped vector equals a vector of wrapped environments (``inside``), and the single ones themselves."""
    apply = wrapper(case.threat(budget, dtype=torch.float64, when=when))
    outside = run(kind, case.rig, apply, ROWS[:2])
    single = _singles(case, apply, (budget, str(when)))
    same(outside, single, case.exact, f"{case}: {kind} and single environments")
    if inside and kind != "tensor":
        same(
            run(kind, case.rig, apply, ROWS[:2], inside=True),
            outside,
            case.exact,
            f"{case}: {kind} inside and outside",
        )


def _singles(case: Case, apply: Any, how: Any) -> list[list[Episode]]:
    """The single environments of law 4, the same for every kind of vector: the latest are kept."""
    key = type(case), case.preset, case.rig, how
    if _latest.get("key") != key:
        _latest.update(key=key, rows=run("env", case.rig, apply, ROWS[:2]))
    return _latest["rows"]


_latest: dict[str, Any] = {}


# law 5


def check_environment_api(case: Case, victim: Any) -> None:
    """Law 5: Gymnasium's own checker passes, on recordings that respect their space."""
    rig = Rig(**{**case.rig.__dict__, "inside": True})
    threat = adv.threat(case.preset, victim, at=case.at, **case.budget(fitting(case)[0]), **case.quick)
    env = adv.wrap(rig.env(), threat)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on spaces and on missing specs
        check_env(env, skip_render_check=True)


def check_types(case: Case, kind: str) -> None:
    """Law 5: types, dtypes, shapes and devices come out as they went in."""
    rows = 3
    if kind == "env":
        bare, env = case.rig.env(), adv.wrap(case.rig.env(), case.threat())
    else:
        bare, env = vector(kind, case.rig, rows), adv.wrap(vector(kind, case.rig, rows), case.threat())
    take = (lambda out: out) if kind == "sb3" else (lambda out: out[0])
    _alike(take(bare.reset()), take(env.reset()), f"{case} {kind}")
    actions = np.stack([case.rig.act(i, 0, 0) for i in range(rows)])
    action = case.rig.act(0, 0, 0) if kind == "env" else tensors(actions) if kind == "tensor" else actions
    for one in (bare, env):
        one.out = one.step(action)  # type: ignore[attr-defined]
    _alike(bare.out[0], env.out[0], f"{case} {kind}")
    for a, b in zip(bare.out[1:-1], env.out[1:-1], strict=True):
        assert type(a) is type(b), f"{case} {kind}: {type(a)} and {type(b)}"
    if case.on == "dynamics":  # what was received are parameters
        return
    got = [e.unwrapped.received[-1][0] for e in (env.unwrapped.envs if kind != "env" else [env])]
    for value in got:
        assert value.shape == np.shape(case.rig.act(0, 0, 0)) and value.dtype == actions.dtype, (
            f"{case} {kind}: {value.dtype}"
        )


def _alike(a: Any, b: Any, what: str) -> None:
    assert type(a) is type(b), f"{what}: {type(a)} became {type(b)}"
    if isinstance(a, dict):
        assert list(a) == list(b), f"{what}: keys {list(a)} became {list(b)}"
    if isinstance(a, (dict, tuple)):
        for key in a if isinstance(a, dict) else range(len(a)):
            _alike(a[key], b[key], what)
        return
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} became {b.dtype}{b.shape}"
    if isinstance(a, torch.Tensor):
        assert a.device == b.device, f"{what}: {a.device} became {b.device}"


# law 6


class _Script:
    """A rig whose agent does what environments received before, so that a bare run can be compared."""

    def __init__(self, rig: Rig, rows: Any, seeds: tuple[int, ...]) -> None:
        self.rig, self.rows, self.seeds, self.env = rig, rows, seeds, rig.env

    def act(self, seed: int, episode: int, t: int) -> Any:
        row = self.rows[self.seeds.index(seed)]
        known = episode < len(row) and t < len(row[episode].received)
        return row[episode].received[t] if known else self.rig.act(seed, episode, t)


def check_dynamics(case: Case, kind: str) -> None:
    """Law 6: the environment's stream and dynamics are those of the bare environment under the actions it received."""
    seeds, kept = seeds_of(kind), []

    def keeping(apply: Any) -> Any:
        def around(env: Any) -> Any:
            kept.append(env)
            return apply(env)

        return around

    wrapped = run(kind, case.rig, keeping(wrapper(case.threat())), seeds)
    half = len(kept)
    if case.on == "dynamics":
        _check_own_dynamics(case, kept)
    script: Any = case.rig if case.on == "dynamics" else _Script(case.rig, wrapped, seeds)
    bare = run(kind, script, keeping(lambda env: env), seeds)
    for row, plain in zip(wrapped, bare, strict=True):
        for episode, other in zip(row, plain, strict=True):
            if case.on == "dynamics":
                continue
            same = case.on == "reward" or episode.rewards == other.rewards
            assert same, f"{case}: rewards {episode.rewards} and {other.rewards}"
            assert [a.tobytes() for a in episode.received] == [a.tobytes() for a in other.received]
    assert _streams(kept[:half]) == _streams(kept[half:]), f"{case}: the environments' random streams moved apart"


def _check_own_dynamics(case: Case, kept: list[Any]) -> None:
    """Law 6 of the dynamics: once an episode is over, or another begins, the environment has its own parameters."""
    for env in kept:
        for row in getattr(env, "envs", ()):
            row.reset()
        for one in getattr(env, "envs", [env]):
            own = one.unwrapped
            assert (own.cart, own.pole, own.gravity) == (2.0, 0.5, 9.75), f"{case}: {vars(own)}"


def _streams(kept: list[Any]) -> list[Any]:
    inner = [one for env in kept for one in getattr(env.unwrapped, "envs", [env])]
    return [one.unwrapped.np_random.bit_generator.state for one in inner]


# law 7


def check_victim(case: Case, kind: str) -> None:
    """Law 7: weights, gradients, modes and buffers of the victim are what they were, also of a live one in training."""
    victim = case.rig.victim(live=True)

    def snapshot() -> list[Any]:
        out = []
        for module in victim.modules():
            out += [(n, p.detach().numpy().tobytes(), p.requires_grad, p.grad) for n, p in module.named_parameters()]
            out += [(n, b.numpy().tobytes()) for n, b in module.named_buffers()]
            out += [(n, m.training) for n, m in module.named_modules()]
        return out

    before = snapshot()
    assert any(entry[2] is True for entry in before if len(entry) == 4), "the live victim has no trainable weight"
    run(kind, case.rig, wrapper(case.threat(live=True)), seeds_of(kind), episodes=1)
    assert snapshot() == before, f"{case}: the victim was changed"


# law 8


def check_strength(case: Case, budget: str = "") -> None:
    """Law 8: an attack reaches more of its own objective than noise of the same budget, on the same states."""
    rig, victim, budget = case.rig, case.rig.victim(), budget or fitting(case)[0]
    # an attack of minimum distance leaves alone what it cannot turn: it needs the room to turn something
    eps = rig.eps * (4 if "searches" in case.quick else 1)
    # MaxDiff's released noise drowns the gradients of small networks: the law is about the ascent
    plain = {"noise": 0.0} if case.preset == "max-diff" else {}
    threat = adv.threat(case.preset, victim, at=case.at, **plain, **case.budget(budget, eps))
    seeds = tuple(range(24))
    truth = vector("same", rig, len(seeds)).reset(seed=list(seeds))[0]

    def score(how: Any) -> float:
        venv = adv.wrap(vector("same", rig, len(seeds)), how)
        obs = venv.reset(seed=list(seeds))[0]
        state = victim.initial_state(len(seeds))
        clean, seen = _inputs(truth, victim), _inputs(obs, victim)
        fill = None if case.at is None else lambda x: with_leaf(clean, (case.at,), x)
        bound = VictimView(victim, state, fill, clean)
        x = clean if case.at is None else clean[case.at]
        loss = getattr(threat.how, "objective", None) or threat.how.score
        loss = loss(x, bound)
        with torch.no_grad():
            part = seen if case.at is None else seen[case.at]
            reached = loss(getattr(threat.how, "outputs", VictimView.params)(bound, part))
        # an attack of minimum distance wants no more lead than its confidence
        return float(reached.clamp(max=getattr(threat.how, "confidence", torch.inf)).mean())

    attack = score(threat)
    for noise in ("uniform",) if threat.check(rig.space, rig.actions).discrete else ("uniform", "sign"):
        adversary = score(adv.ThreatModel("observation", adv.Noise(noise), threat.within, None, case.at))
        assert attack > adversary, f"{case}: the attack reaches {attack}, {noise} noise {adversary}"


def _inputs(obs: Any, victim: Any) -> Any:
    return mapped(lambda leaf: torch.as_tensor(np.asarray(leaf)).to(victim.dtype), obs)


# law 12


def check_never_weaker(case: Case) -> None:
    """Law 12: of more ascents, or of more steps of one length, no row gets less; of a larger budget not on average."""
    rig, victim = case.rig, case.rig.victim(torch.float64)
    given = {**case.quick, "keep": "best", "schedule": "constant", "step": 0.4, "steps": 3, "restarts": 1}
    if case.preset == "apgd":  # it keeps its best in any case, and its steps depend on how many there are
        given = {"restarts": 1, "steps": 3}
    elif case.preset == "max-diff":
        given |= {"noise": 0.0}
    elif case.preset in ("fgsm", "min-best", "pgd"):  # left alone, a search climbs other losses than one ascent
        given |= {"loss": "margin"}
    seeds = tuple(range(16))
    truth = vector("same", rig, len(seeds)).reset(seed=list(seeds))[0]
    clean = _inputs(truth, victim)
    fill = None if case.at is None else lambda x: with_leaf(clean, (case.at,), x)
    bound = VictimView(victim, victim.initial_state(len(seeds)), fill, clean)

    def rank(scale: float = 1.0, **more: Any) -> tuple[Any, Any]:
        budget = case.budget("linf", rig.eps * scale)
        threat = adv.threat(case.preset, victim, at=case.at, **{**given, **more}, **budget)
        obs = adv.wrap(vector("same", rig, len(seeds)), threat).reset(seed=list(seeds))[0]
        seen = _inputs(obs, victim)
        x, y = (clean, seen) if case.at is None else (clean[case.at], seen[case.at])
        with torch.no_grad():
            loss = threat.how.objective(x, bound)
            outputs = threat.how.outputs(bound, y)
            value = loss(outputs)
            success = loss.success(outputs) if victim.select == "mode" and hasattr(loss, "success") else value * 0
        return success, value

    def compare(weak: tuple[Any, Any], strong: tuple[Any, Any], words: str) -> None:
        slack = 1e-9 * (1 + weak[1].abs())
        fine = (strong[0] > weak[0]) | ((strong[0] == weak[0]) & (strong[1] >= weak[1] - slack))
        assert fine.all(), f"{case}: with {words} {int((~fine).sum())} of {len(fine)} rows are worse off"

    one = rank()
    compare(one, rank(restarts=3), "more ascents")
    if case.preset != "apgd":
        last = {} if case.preset == "pgd" else {"keep": "last"}
        compare(rank(**last), one, "the best point of the same ascent")
        compare(one, rank(steps=6), "more steps")
    if case.preset in ("max-worst", "min-value"):  # monotone objectives: of the others success comes first
        assert rank(3.0)[1].mean() >= one[1].mean() - 1e-9, f"{case}: a larger budget is worse"


# law 9


def check_round_trip(case: Case, **kwargs: Any) -> None:
    """Law 9: a threat's dictionary survives JSON and rebuilds the same behaviour."""
    threat = case.threat(**kwargs)
    victim = case.rig.victim()
    data = json.loads(json.dumps(threat.to_dict()))
    again = adv.ThreatModel.from_dict(data, victims={victim.fingerprint(): victim})
    assert again == threat, f"{case}: {again} is not {threat}"
    assert again.to_dict() == threat.to_dict(), f"{case}: the dictionary of the copy differs"
    same(
        run("env", case.rig, wrapper(again), seeds_of("env")),
        run("env", case.rig, wrapper(threat), seeds_of("env")),
        True,
        f"{case}: rebuilt from its dictionary",
    )
    pickled = pickle.loads(pickle.dumps(threat))
    assert pickled.to_dict() == threat.to_dict()
    assert copy.deepcopy(threat) == threat


def check_text(case: Case) -> None:
    """Law 9: a threat's text parses back to the same threat, and different threats have different texts."""
    victim, seen = case.rig.victim(), {}
    timings = (None, (adv.Bernoulli(0.1) & ~adv.Window(1, 2)) | adv.Every(3), adv.Bernoulli(0.1, 2))
    variants = [case.threat(budget, when=when) for budget in fitting(case) for when in timings]
    variants += [made for made in _changed(case.threat()) if made not in variants]
    for made in variants:
        text = text_of(made, victim)
        assert text not in seen, f"{case}: {made} and {seen[text]} have the text {text}"
        seen[text] = made
        long = len(scale) > 256 if isinstance(scale := getattr(made.budget, "scale", None), tuple) else False
        assert long == ("<" in text), f"{case}: {text}"
        if not long:
            again = parse_threat(text).against(victim).to_dict()
            assert again == made.to_dict(), f"{case}: {text} gives {again} for {made.to_dict()}"


def _changed(threat: Any) -> list[Any]:
    """The threat with its radius, and every number of its attack, a little larger."""
    found = []
    for part, name in [("within", "eps"), *(("how", field.name) for field in dataclasses.fields(threat.how))]:
        value = getattr(threat, part)
        old = getattr(value, name, None)
        if isinstance(old, (int, float)):
            new = (not old) if isinstance(old, bool) else old + 2 if isinstance(old, int) else old * (1 + 1e-12) + 1e-12
            with contextlib.suppress(AdvWrappersError):
                found.append(dataclasses.replace(threat, **{part: dataclasses.replace(value, **{name: new})}))
    return found


def check_spec(env: Any, steps: int = 3) -> None:
    """Law 9: an environment's spec survives JSON and rebuilds an environment that behaves the same."""
    from gymnasium.envs.registration import EnvSpec

    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    a, b = _drive(env, steps), _drive(again, steps)
    for t, (x, y) in enumerate(zip(a, b, strict=True)):
        same_bytes(x[0], y[0], f"observation {t}")
        assert x[1:] == y[1:], f"step {t}: {x[1:]} and {y[1:]}"
    again.close()


def _drive(env: Any, steps: int) -> list[Any]:
    out: list[Any] = [(env.reset(seed=5)[0], sorted(env.reset(seed=5)[1].get("adv_wrappers", {}).items()))]
    env.action_space.seed(3)
    for _ in range(steps):
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        out.append((obs, reward, terminated, truncated, sorted(info["adv_wrappers"].items())))
        if terminated or truncated:
            env.reset()
    return out


# law 10


def check_composition(case: Case, kind: str) -> None:
    """Law 10: wrap(env, a, b) equals wrap(wrap(env, a), b), and is the wrappers themselves, the last outermost."""
    first = case.threat(when=adv.Bernoulli(0.7), dtype=torch.float64)
    second = {
        "observation": lambda: adv.threat("noise", **case_noise(case)),
        "action": lambda: adv.threat("action-noise", **action_noise(case)),
        "dynamics": lambda: adv.threat("dynamics-noise", eps=0.1, every="step", at=("gravity", "mass.pole")),
        "reward": lambda: adv.threat("reward-noise", eps=0.1),
    }[case.on]()

    def played(how: Any) -> Any:
        return run(kind, case.rig, how, ROWS[:2], episodes=1)

    together = played(wrapper(first, second))
    same(played(lambda env: adv.wrap(adv.wrap(env, first), second)), together, True, f"{case}: nested")
    by_hand = {
        "observation": adv.PerturbObservation, "action": adv.PerturbAction, "dynamics": adv.PerturbDynamics,
        "reward": adv.PerturbReward,
    }[case.on]  # fmt: skip
    same(played(lambda env: by_hand(by_hand(env, first), second)), together, True, f"{case}: by hand")
    assert not _equal(played(wrapper(second)), together), f"{case}: the first layer does nothing"


def case_noise(case: Case) -> dict[str, Any]:
    """A noise that fits beside the case."""
    return {**case.budget(fitting(Case("noise", case.rig))[0]), "at": case.at}


def action_noise(case: Case) -> dict[str, Any]:
    """The same for actions: half the time, or random actions would hide what lies beneath."""
    return {"p": 0.4} if hasattr(case.rig.actions, "n") else {"eps": 0.1}


def _equal(a: Any, b: Any) -> bool:
    try:
        same(a, b, True, "")
    except AssertionError:
        return False
    return True


# law 14


class Broken(torch.nn.Module):
    """A network whose first output is ``value``, whatever it sees."""

    def __init__(self, net: torch.nn.Module, value: float) -> None:
        super().__init__()
        self.net, self.value = net, value

    def forward(self, obs: Any, *state: Any) -> Any:
        out = self.net(obs, *state)
        params = (out[0] if state else out).clone()
        params[:, 0] = self.value
        return (params, out[1]) if state else params


def broken(rig: Rig, value: float) -> Any:
    """The victim of a rig, with answers that hold ``value``."""
    own = rig.victim()
    critic = None if own.critic is None else lambda obs, act: own.critic(obs, act) + value
    nets = {"critic": critic, "robust_sarsa": own.robust_sarsa, "initial_state": own.start}
    return adv.from_module(
        Broken(own.net, value), rig.space, rig.actions, own.kind, scale=own.scale, ref="broken", **nets
    )


def check_stops(what: str, function: Any) -> None:
    """Law 14: ``function`` raises a :class:`VictimError` that names the victim."""
    try:
        function()
    except VictimError as error:
        assert "broken" in str(error), f"{what}: the error does not name the victim: {error}"
        return
    except AdvWrappersError as error:
        raise AssertionError(f"{what}: the error blames another: {error}") from error
    raise AssertionError(f"{what}: went on with answers that are not finite")


def check_answers(case: Case, value: float) -> None:
    """Law 14: an attack, the agent itself and an adversary's environment stop at answers that are not finite."""
    rig = case.rig
    victim = broken(rig, value)
    how = {"at": case.at, **case.budget(fitting(case)[0]), **case.quick}
    env = adv.wrap(rig.env(), adv.threat(case.preset, victim, **how))

    def attacked() -> None:
        env.reset(seed=7)
        env.step(rig.act(7, 0, 0))

    check_stops(f"{case} against {value}", attacked)


def check_runner(rig: Rig, value: float) -> None:
    """Law 14: whoever acts for the victim stops at answers that are not finite."""
    victim = broken(rig, value)
    runner = PolicyRunner(victim, 3)
    runner.reset(None, 0)
    obs = vector("same", rig, 3).reset(seed=[7, 8, 9])[0]
    for name in ("act", "peek", "mode"):
        check_stops(f"{name} of {rig.name} with {value}", lambda name=name: getattr(runner, name)(obs))
    if rig.at is None:
        env = adv.AdversaryEnv(rig.env(), victim, "sa-rl", adv.Linf(rig.eps))
        env.reset(seed=7)
        check_stops(f"AdversaryEnv of {rig.name} with {value}", lambda: env.step(env.action_space.sample()))


# law 15


def odd_rows(x: torch.Tensor) -> torch.Tensor:
    """A choice that depends on a row alone, bool ``[B]``: about half of all rows."""
    rows = x.detach().cpu().reshape(len(x), -1).double()
    return (torch.nan_to_num(rows.abs().sum(1), posinf=1.0).mul(1e3).floor() % 2 == 1).to(x.device)


def choosing_director(x: torch.Tensor) -> torch.Tensor:
    """A director of :class:`Timed` that attacks the odd rows."""
    return odd_rows(x).long()


@dataclass(frozen=True)
class OddRows(Timing):
    """The same choice as a timing; a layer with a victim knows what the agent acted on."""

    name: ClassVar[str] = "odd-rows"
    blind: ClassVar[bool] = False
    victim: Any = None

    def look(self, x: torch.Tensor, context: Any, step: Any, path: int = 0) -> Any:
        seen = odd_rows(x if step.applied.on_observations else context.observation)
        return seen.numpy() if step.on_host else seen


def check_declined(case: Case, kind: str) -> None:
    """Law 15: an adversary that declines a step is a timing: the same bytes, the same attacks, the same count."""
    threat, rig, seeds = case.threat(), case.rig, ROWS[:2] if kind == "env" else ROWS
    learned = Learned(choosing_director, Timed(threat.how, rig.victim()))
    clean = unattacked(kind, rig, seeds)
    changed: dict[bool, list[list[int]]] = {}
    for when in (None, adv.AtMost(1)):
        odd = OddRows(rig.victim())
        chosen = odd if when is None else when & odd
        own = run(kind, rig, wrapper(dataclasses.replace(threat, how=learned, when=when)), seeds)
        timed = run(kind, rig, wrapper(dataclasses.replace(threat, when=chosen)), seeds)
        same(own, timed, True, f"{case} under {when}")
        changed[when is None] = [
            [t for t, (x, y) in enumerate(pairs(case, [[episode]], [[original]])) if x.tobytes() != y.tobytes()]
            for row, bare in zip(own, clean, strict=True)
            for episode, original in zip(row, bare, strict=True)
        ]
    steps = sum(len(e.done if case.on == "action" else e.seen) for row in clean for e in row)
    assert sum(map(len, changed[True])) < steps, f"{case}: no step was declined"
    assert all(len(one) <= 1 for one in changed[False]), f"{case}: more attacks than one"
    late = [first for first, *_ in filter(None, changed[True]) if first > 0]
    assert not late or any(one and one[0] > 0 for one in changed[False]), f"{case}: declined steps were counted"


# law 16


def check_agents(case: Case) -> None:
    """Law 16: an agent of several under threats is a single environment under them, and no other agent changes."""
    from adv_wrappers.wrappers.perturb_agents import PerturbAgents
    from adv_wrappers.wrappers.single_agent_env import seed_of_agent
    from tests.wrappers.parallel_envs import SideBySide

    on_actions = case.on == "action"
    noise = adv.threat("action-noise", **action_noise(case)) if on_actions else adv.threat("noise", **case_noise(case))
    threats = [case.threat(when=adv.Bernoulli(0.7)), noise]
    env, seed = PerturbAgents(SideBySide(case.rig.env), {"one": threats}), ROWS[0]
    seeds = {agent: seed_of_agent(seed, agent) for agent in env.possible_agents}
    played: dict[str, list[Episode]] = {agent: [] for agent in seeds}
    for number in range(2):
        obs, _ = env.reset(seed=seed) if number == 0 else env.reset()
        for agent, first in obs.items():
            played[agent].append(Episode([first], [], [], []))
        while env.agents:
            actions = {a: case.rig.act(seeds[a], number, len(played[a][-1].done)) for a in env.agents}
            obs, rewards, *_ = env.step(actions)
            for agent, action in actions.items():
                played[agent][-1].done.append(action)
                played[agent][-1].seen.append(obs[agent])
                played[agent][-1].rewards.append(rewards[agent])
        for agent, own in env.unwrapped.envs.items():
            played[agent][-1].received = own.received[-1]
    for agent, how in (("one", wrapper(*threats)), ("other", wrapper())):
        same(run("env", case.rig, how, (seeds[agent],)), [played[agent]], True, f"{case}: {agent}")
    bare = run("env", case.rig, wrapper(), (seeds["one"],))
    assert not _equal(bare, [played["one"]]), f"{case}: nothing was attacked"
