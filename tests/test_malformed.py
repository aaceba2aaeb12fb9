"""Malformed input of every kind gets an error of the package's own, which says what was expected and what came."""

from __future__ import annotations

import dataclasses
import json
import math
import random

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adv_wrappers as adv
from adv_wrappers.core.perturbation import BoundedPerturbation, VictimAttack
from adv_wrappers.threats.presets import as_threat, parse_threat, parse_when
from adv_wrappers.threats.text import text_of
from tests.every_case import every_case
from tests.laws.checks import adversary_of, by_turns
from tests.rigs import CARTPOLE, RIGS, ReplayEnv, vector


class _Odd:
    """An object of no use; unlike ``object()`` it has the same name in every worker of a parallel test run."""

    def __repr__(self) -> str:
        return "ODD"


ODD = _Odd()
NOT_NUMBERS = [-1, math.nan, math.inf, True, "0.1", None, 10**400]
ATTACKS = sorted(name for name, preset in adv.presets.items() if issubclass(preset.kind, VictimAttack))


def refused(call):
    """An error of the package's own, with a message; anything else is a failure."""
    try:
        result = call()
    except adv.AdvWrappersError as error:
        assert len(str(error)) > 15, f"a message that says nothing: {error}"
        return
    raise AssertionError(f"accepted, and gave {result!r}")


def reads(call):
    """Either it works, or it is an error of the package's own."""
    try:
        call()
    except adv.AdvWrappersError as error:
        assert len(str(error)) > 15, f"a message that says nothing: {error}"


@every_case("value", NOT_NUMBERS)
def test_budgets(value):
    refused(lambda: adv.Linf(value))
    refused(lambda: adv.L2(value))
    refused(lambda: adv.L0(value))
    if value is not None:
        refused(lambda: adv.Linf(0.1, scale=value))


@every_case(
    "scale",
    [
        (1, -1), ("a", "b"), [[1, 2], [3]], np.array([None]), "std", torch.tensor([1.0, math.inf]),
    ],
)  # fmt: skip
def test_scales(scale):
    refused(lambda: adv.Linf(0.1, scale=scale))


@pytest.mark.parametrize("size", [0, 3])
def test_scales_of_the_wrong_length(size):
    env = RIGS["q"].env()
    refused(lambda: adv.PerturbObservation(env, adv.Noise(), adv.Linf(0.1, (1.0,) * size)))


@every_case("value", [*NOT_NUMBERS, 1.5])
def test_timings(value):
    refused(lambda: adv.Every(value))
    refused(lambda: adv.AtMost(value))
    refused(lambda: adv.Window(value, 3))
    refused(lambda: adv.Window(5, value))
    refused(lambda: adv.Bernoulli(value))
    refused(lambda: adv.Strategic(value))
    refused(lambda: adv.Bernoulli(0.5) & value)
    refused(lambda: adv.Bernoulli(0.5) | value)
    refused(lambda: adv.core.timing.Not(value))
    refused(lambda: adv.ProbabilisticTiming(adv.wrap(RIGS["q"].env(), "noise:eps=1"), value))
    if value is not None:
        refused(lambda: adv.threat("noise", eps=0.1, when=value))


@pytest.mark.parametrize("field", ["steps", "step", "noise", "kind", "loss", "target"])
@pytest.mark.parametrize("value", [-1, math.nan, "many", []], ids=repr)
def test_arguments_of_presets(field, value):
    """Every preset that takes an argument of this name refuses a senseless value of it, the others the name."""
    for name in adv.presets:
        refused(lambda name=name: adv.threat(name, eps=0.1, **{field: value}))


@pytest.mark.parametrize("victim", [3, torch.nn.Linear(4, 2)], ids=type)
@pytest.mark.parametrize("preset", ATTACKS)
def test_victims_that_are_none(preset, victim):
    refused(lambda: adv.threat(preset, victim, eps=0.1))
    refused(lambda: adv.presets[preset].kind(victim=victim))
    refused(lambda: adv.wrap(RIGS["q"].env(), adv.threat(preset, eps=0.1), victim=victim))


@every_case("ref", ["", "zoo:nobody", "zoo:../x", "card:/nowhere", "sb3:/nowhere.zip", "nobody"])
def test_references(ref):
    refused(lambda: adv.load_victim(ref))
    refused(lambda: adv.threat("pgd", ref, eps=0.1))
    refused(lambda: parse_threat("pgd:eps=0.1", victim=ref) if ref else adv.load_victim(ref))


@every_case(("preset", "rig"), by_turns(ATTACKS, list(RIGS)))
def test_mismatched_victims(preset, rig):
    """A victim of other spaces, and none at all."""
    other = gym.make("Pendulum-v1")
    refused(lambda: adv.wrap(other, adv.threat(preset, RIGS[rig].victim(), eps=0.1)))
    refused(lambda: adv.wrap(RIGS[rig].env(), adv.threat(preset, eps=0.1, at=RIGS[rig].at)))


@every_case(
    "preset", [n for n, p in adv.presets.items() if issubclass(p.kind, BoundedPerturbation) and p.on == "observation"]
)
@every_case("budget", ["valid", "l0"])
def test_searches_of_unbounded_sets(preset, budget):
    given = {"norm": "valid"} if budget == "valid" else {"norm": "l0", "eps": 2}
    for rig in ("q", "mean"):
        refused(lambda rig=rig: adv.wrap(RIGS[rig].env(), adv.threat(preset, RIGS[rig].victim(), **given)))


@pytest.mark.parametrize("eps", [0.999, 1 / 255])
def test_less_than_one_grey_level(eps):
    env = RIGS["image"].env()
    refused(lambda: adv.wrap(env, adv.threat("noise", eps=eps)))
    refused(lambda: adv.wrap(env, adv.threat("noise", eps=eps, norm="l2")))
    layer = adv.wrap(env, "noise:eps=2")
    refused(lambda: layer.set_budget(adv.Linf(eps)))
    assert layer.threat.within == adv.Linf(2.0)
    adv.wrap(env, adv.threat("noise", eps=eps), quantize=False).reset(seed=0)


@every_case(
    "at",
    [
        3, "nothing", (), ("vector", "nothing"), ["vector", []], True, ("vector", "image"), ("vector", "vector"),
    ],
)  # fmt: skip
def test_at(at):
    refused(lambda: adv.wrap(RIGS["dict"].env(), adv.threat("noise", eps=0.1, at=at)))
    refused(lambda: adv.wrap(RIGS["q"].env(), adv.threat("noise", eps=0.1, at=at)))
    refused(lambda: adv.wrap(RIGS["dict"].env(), adv.threat("noise", eps=0.1)))


@every_case(
    "space",
    [
        gym.spaces.Discrete(3),
        gym.spaces.MultiBinary(3),
        gym.spaces.Text(4),
        gym.spaces.Tuple([CARTPOLE]),
        gym.spaces.Box(0, 1, (2,), bool),
    ],
)
def test_spaces(space):
    env = ReplayEnv([[space.sample()] * 3], space, gym.spaces.Text(3))
    refused(lambda: adv.wrap(env, "noise:eps=1"))
    refused(lambda: adv.wrap(env, "action-noise"))


@pytest.mark.parametrize("env", [None, "CartPole-v1", gym.spaces.Discrete(2)], ids=repr)
def test_things_that_are_no_environment(env):
    refused(lambda: adv.wrap(env, "noise:eps=1"))
    refused(lambda: adv.PerturbAction(env, "action-noise"))
    refused(lambda: adv.ProbabilisticTiming(env, 0.5))


def _feed(rig, seen, kind="env"):
    """An environment that shows ``seen``, in a layer of noise, after its reset."""
    env = ReplayEnv([[seen] * 3], rig.space, rig.actions)
    return adv.wrap(env, adv.threat("noise", eps=0.1, at=rig.at))


@every_case(
    "seen",
    [
        np.full(4, np.nan, np.float32),
        np.zeros(3, np.float32),
        np.zeros((4, 1), np.float32),
        np.array(["a"] * 4),
        np.array([{}, 1, 2, 3]),
        np.zeros(4, complex),
    ],
)
def test_observations(seen):
    refused(lambda: _feed(RIGS["q"], seen).reset(seed=0))


@every_case("kind", ["next", "same", "disabled", "sb3"])
@every_case("value", [np.nan, np.inf])
def test_observations_of_vectors(kind, value):
    venv = adv.wrap(vector(kind, RIGS["q"], 3), "noise:eps=0.1")
    for env in venv.unwrapped.envs:
        env.unwrapped.recordings = [[np.full(4, value, np.float32)] * 3]
    refused(lambda: venv.reset())


@every_case("action", [None, "left", 1.5, np.zeros(2), ODD])
def test_discrete_actions(action):
    env = adv.wrap(RIGS["q"].env(), "action-flip")
    env.reset(seed=0)
    refused(lambda: env.step(action))


@every_case("action", [None, "left", np.full(3, np.nan), np.zeros(2), [[1], [1, 2]]])
def test_continuous_actions(action):
    env = adv.wrap(RIGS["mean"].env(), "action-noise:eps=0.1")
    env.reset(seed=0)
    refused(lambda: env.step(action))


@every_case("actions", [None, 3, np.zeros(2, int), np.zeros((3, 1), int), np.array(["a"] * 3), np.full(3, np.nan)])
def test_actions_of_vectors(actions):
    venv = adv.wrap(vector("next", RIGS["q"], 3), "action-flip")
    venv.reset(seed=0)
    refused(lambda: venv.step(actions))


@every_case("seed", [-1, 1.5, "7", [1, 2]])
def test_seeds(seed):
    for layer in ("noise:eps=1", "action-flip"):
        env = adv.wrap(RIGS["q"].env(), layer)
        refused(lambda env=env: env.reset(seed=seed))
        venv = adv.wrap(vector("next", RIGS["q"], 3), layer)
        refused(lambda venv=venv: venv.reset(seed=seed))
    refused(lambda: adv.wrap(vector("same", RIGS["q"], 3), "noise:eps=1").reset(seed=[1, 2, "3"]))


@every_case(
    "how",
    [
        lambda x, context: x[:, :2],
        lambda x, context: x * math.nan,
        lambda x, context: x.numpy(),
        lambda x, context: None,
        lambda x, context: x.to(torch.complex64),
    ],
)
def test_functions_that_return_something_else(how):
    for env in (RIGS["q"].env(), vector("next", RIGS["q"], 3), vector("sb3", RIGS["q"], 3)):
        layer = adv.PerturbObservation(env, how, adv.Linf(0.1))
        refused(lambda layer=layer: layer.reset())


@every_case(
    "when",
    [
        lambda x, context: None,
        lambda x, context: torch.zeros(7, dtype=torch.bool),
        lambda x, context: torch.zeros(len(x)),
        lambda x, context: 0.5,
    ],
)
def test_timings_that_return_something_else(when):
    for env in (RIGS["q"].env(), vector("next", RIGS["q"], 3), vector("sb3", RIGS["q"], 3)):
        layer = adv.PerturbObservation(env, adv.Noise(), adv.Linf(0.1), when)
        refused(lambda layer=layer: layer.reset())


@every_case(
    "how",
    [None, "nothing", adv.Noise, adv.Linf(0.1), {"type": "nothing"}, {}],
)
def test_things_that_are_no_threat(how):
    refused(lambda: as_threat(how, on="observation"))
    refused(lambda: adv.wrap(RIGS["q"].env(), how))
    refused(lambda: adv.PerturbObservation(RIGS["q"].env(), how))
    refused(lambda: adv.ThreatModel("observation", how) if not isinstance(how, type) else as_threat(how))


@every_case(
    "module",
    [
        lambda obs: obs[:, 0],
        lambda obs: obs,
        lambda obs: None,
        lambda obs: obs.numpy(),
        lambda obs: 1 / 0,
        torch.nn.Linear(5, 3),
        lambda obs: (obs, None),
        None,
    ],
)
def test_modules_of_the_wrong_shape(module):
    refused(lambda: adv.from_module(module, CARTPOLE, gym.spaces.Discrete(3), "q"))


# random ones


KNOWN = """
    eps norm scale when p at victim name within kind steps linf l2 valid bernoulli every atmost window strategic
    and not 0.1 3 -1 nan inf 1e999 none true ' " ( ) [ ] { } : = , ; & | ~ * lambda:0 __import__('os')
"""
WORDS = [*adv.presets, *KNOWN.split(), " ", "\0", "é"]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(WORDS), max_size=14))
def test_texts_of_known_words(words):
    text = "".join(words)
    reads(lambda: parse_threat(text))
    reads(lambda: parse_threat("noise:" + text))
    reads(lambda: parse_threat("noise:eps=0.1,when=" + text))
    reads(lambda: parse_when(text))


ODD_VALUES = [
    "0", "1", "-1", "1;2", "1;2;3;4", "0.5", "nan", "inf", "-inf", "1e999", "1e308", "1e-320", "9" * 30,
    "1" + "0" * 400, "true", "none", "x",
    "''", "'3'", "1j", "b'x'", "1/3", "(1;2);(3;4)", "-5;5", "true;false", "1;", ";", "()",
]  # fmt: skip
RANDOM = st.tuples(
    st.sampled_from(sorted(adv.presets)), st.sampled_from(["q", "mean", "image", "unit", "dict"]),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(ODD_VALUES)), min_size=1, max_size=2),
)  # fmt: skip


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(RANDOM)
def test_arguments_of_presets_at_random(drawn):
    """Whatever a text says of a preset is refused, or works from the reset on and survives both round trips."""
    name, rig, pairs = drawn
    own = {field.name for field in dataclasses.fields(adv.presets[name].kind) if field.init}
    fields = [*sorted(own - {"steps"}), "eps", "norm", "scale", "newest", "p", "at"]  # many steps take their time
    given = {"eps": "0.1", "game": "Pong", "transform": "shift", "card": adversary_of(rig), "at": RIGS[rig].at}
    given = {key: value for key, value in given.items() if key in fields and value is not None}
    given |= {fields[number % len(fields)]: value for number, value in pairs}
    text = f"{name}:{','.join(f'{key}={value}' for key, value in given.items())}"

    def build():
        made = parse_threat(text)
        assert parse_threat(text_of(made)).to_dict() == json.loads(json.dumps(made.to_dict()))
        env = adv.wrap(RIGS[rig].env(), made, victim=RIGS[rig].victim())
        env.reset(seed=0)
        env.step(RIGS[rig].act(0, 0, 0))

    reads(build)


def test_dictionaries_with_something_changed():
    """A valid dictionary, with one random part of it replaced by junk, forty times over."""
    rng = random.Random(3)
    victim = RIGS["q"].victim()
    victims = {victim.fingerprint(): victim}
    threat = adv.threat("pgd", victim, eps=0.1, when=adv.Bernoulli(0.5) & ~adv.Window(1, 3))
    junk = [
        None,
        -1,
        math.nan,
        "x",
        [],
        {},
        {"type": "noise"},
        {"type": "linf", "eps": 1},
        {"type": "threat"},
        True,
        1e400,
        10**400,
        {"type": "and"},
        {"victim": "nobody"},
        {"victim": None, "sha256": []},
        [1, 2],
        {"type": ["linf"]},
        {3: 4},
    ]
    for _ in range(40):
        data = json.loads(json.dumps(threat.to_dict()))
        node = data
        while True:
            key = rng.choice(list(node))
            if isinstance(node[key], dict) and rng.random() < 0.6:
                node = node[key]
                continue
            break
        change = rng.random()
        if change < 0.2:
            del node[key]
        elif change < 0.4:
            node[rng.choice([*WORDS, 3, ""])] = rng.choice(junk)
        else:
            node[key] = rng.choice(junk)

        def build(data=data):
            adv.wrap(RIGS["q"].env(), adv.ThreatModel.from_dict(data, victims=victims)).reset(seed=0)

        reads(build)
