"""Bad input at random: whatever is read is accepted, or refused with a sentence, within five seconds.

    python benchmarks/fuzz.py                                # 50 000 inputs
    python benchmarks/fuzz.py --only plans --inputs 2000 --seed 7

Good input of every kind is changed at random by hypothesis: plans (dictionaries, JSON and TOML files), cards (their
``card.json`` and their weights), zips of Stable-Baselines3 and sb3-contrib with the statistics beside them, texts and
dictionaries of threats, and words of the command line. Nothing is replaced by a mock: what is accepted is loaded,
wrapped and played for a few steps.

An input may work, or raise an :class:`AdvWrappersError` with a sentence; a command may also end with a usage error of
click. Everything else is a finding: another exception, a message of a few letters, a process that dies, 4 GiB of
memory, more than five seconds of processor time, or sixty on the clock. Findings are printed, of those with the same
cause the shortest one, and the status is then 1. The same seed gives the same inputs.

Inputs are tried in forked processes, two at a time (``--workers``), so the script needs Linux or macOS; 50 000 take
about ten minutes on two cores. What it never tries: files that are run as code (``--trust``), paths outside of a
temporary folder, several workers, and long work that was rightly asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import faulthandler
import io
import json
import math
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import click
import gymnasium as gym
import numpy as np
import torch
from click.testing import CliRunner
from gymnasium import spaces
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

import adv_wrappers as adv
from adv_wrappers.cli import main as adv_wrappers_command
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.value import Value
from adv_wrappers.errors import ThreatError
from adv_wrappers.studies import Plan, expand
from adv_wrappers.threats.presets import parse_threat, parse_when
from adv_wrappers.threats.text import text_of
from adv_wrappers.utils.parsing import split_stack

Draw = Callable[[st.SearchStrategy[Any]], Any]
INPUTS, CHUNK = 50_000, 1000  # of a process
SECONDS, CLOCK, MEMORY = 5, 60, 4 << 30
LEAST = 15  # letters of a message that says something


def listed(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


NUMBERS = [
    *(0, 1, -1, 2, 3, 0.5, 1.5, -0.0, 10**9, 2**31, 2**63, 10**30, 10**308, 10**400, -(10**400), 1e-320, 1e38, 1e308),
    *(math.nan, math.inf, -math.inf),
]
WORDS = [
    *sorted(adv.presets),
    *listed(
        """
        eps norm scale when p at victim name within kind steps step restarts keep best newest target by q margin
        linf l2 l0 sparse(2) valid bernoulli every atmost window strategic always and not type on how select mode
        0.1 3 -1 1_0 8/255 nan inf 1e999 none true zoo:cartpole-dqn card:. cpu meta uint8 relu <f> lambda:0
        ' " ( ) [ ] { } : = , ; & | ~ *
        """
    ),
    *("", " ", " + ", "\0", "\n", "\u00e9", "\ud800", "9" * 400),
]
# without surrogates, as files are UTF-8, and slashes, as a text may become a path
LETTERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\"), max_size=6)
PLAIN = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(WORDS) | LETTERS | st.integers()
RNG = st.randoms(use_true_random=True)  # from hypothesis's seed; its own draws are far from uniform
JUNK = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "eps", "a", "b", "id", "kwargs"]) | LETTERS, inner, max_size=3)
    ),
    max_leaves=6,
)
ODD = st.sampled_from(
    [
        *(np.zeros(2), np.array(["observation"]), np.float32(0.5), np.int64(3), torch.zeros(2)),
        *(b"x", {1, 2}, (1, (2,)), 1j, {3: 4}, range(3), Ellipsis, object, [[[]]]),
    ]
).map(copy.deepcopy)
FIELDS = {
    name: [one.name for one in fields(kind) if one.init] for name, kind in Value.kinds.items() if is_dataclass(kind)
}


# changes


def changed(draw: Draw, data: Any, values: st.SearchStrategy[Any] = JUNK) -> Any:
    """A tree of lists and dictionaries with one to three parts replaced, taken out, doubled or added."""
    tree, rng = {"": copy.deepcopy(data)}, draw(RNG)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        whole, *parts = _places(tree)
        parts = [part for part in parts if part[1] != "type"] if rng.random() < 0.9 else parts
        node, key = whole if not parts or rng.random() < 0.02 else rng.choice(parts)
        how = rng.choice(("alike", "alike", "replace", "delete", "add", "double"))
        if how == "delete" and node is not tree:
            del node[key]
        elif how == "add" and isinstance(node[key], dict):
            known = FIELDS.get(str(node[key].get("type")), [])
            name = rng.choice(known) if known and rng.random() < 0.8 else draw(st.sampled_from(WORDS) | LETTERS)
            node[key][name] = draw(PLAIN if rng.random() < 0.5 else values)
        elif how == "add" and isinstance(node[key], list):
            node[key].insert(rng.randrange(4), draw(values))
        elif how == "double":
            node[key] = [node[key], copy.deepcopy(node[key])]
        else:
            numbers, texts = st.sampled_from(NUMBERS), st.sampled_from(WORDS) | LETTERS
            alike = {int: numbers, float: numbers, str: texts}.get(type(node[key])) if how == "alike" else None
            node[key] = draw(alike or values)
    return tree[""]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], (dict, list)):
            yield from _places(node[key])


BYTE_CHANGES = st.lists(
    st.tuples(st.sampled_from(["set", "cut", "repeat", "end"]), st.floats(0, 1), st.integers(0, 255)), max_size=4
)


def with_bytes_changed(data: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    """The same bytes with some changed, taken out, doubled, or all behind one place missing."""
    out = bytearray(data)
    for how, where, value in changes:
        at = min(int(where * len(out)), max(len(out) - 1, 0))
        if how == "set" and out:
            out[at] = value
        elif how == "cut":
            del out[at : at + value]
        elif how == "repeat":
            out[at:at] = out[at : at + value]
        elif how == "end":
            del out[at:]
    return bytes(out)


def json_bytes(draw: Draw, data: Any) -> bytes:
    """A changed tree as JSON, at times with changed bytes; NaN and Infinity are written, as Python does."""
    with contextlib.suppress(ValueError):
        sys.set_int_max_str_digits(0)
    text = json.dumps(data).encode("utf-8", "surrogatepass")
    return with_bytes_changed(text, draw(BYTE_CHANGES)) if draw(RNG).random() < 0.2 else text


# inputs: each kind draws one, and tries it


class Kind:
    """One kind of input."""

    name = ""
    share = 1.0  # of all inputs

    def prepare(self, folder: Path) -> None:
        """Make what inputs are changed from, once, in a folder that stays."""

    def draw(self, draw: Draw) -> Any:
        """An input that its ``repr`` shows."""
        raise NotImplementedError

    def attempt(self, given: Any) -> None:
        """Read it, in an empty current folder."""
        raise NotImplementedError


CARTPOLE = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 3}}


class Plans(Kind):
    """Plans as dictionaries, JSON and TOML: read, saved, and expanded to cells."""

    name, share = "plans", 0.2
    bases = (
        {
            "victims": ["zoo:cartpole-dqn"],
            "environments": [CARTPOLE],
            "seeds": [0, 1],
            "episodes": 1,
            "num_envs": 1,
            "threats": [
                *("noise", "pgd:eps=0.1 + action-flip:p=0.5", ["max-diff", "action-flip"]),
                adv.threat("pgd", eps=0.1, when=adv.Bernoulli(0.5)).to_dict(),
            ],
            "budgets": ["eps=0.1", "eps=0.2,scale=0.5"],
            "timings": ["every(2)"],
            "select": "mode",
            "device": "cpu",
        },
        {
            "victims": ["zoo:cartpole-dqn"],
            "environments": ["CartPole-v1"],
            "suite": ["noise", "pgd"],
            "budgets": ["eps=0.1"],
            "train": False,
            "steps": 100,
            "training": {"checks": 1},
            "training_seed": 1,
            "quantize": True,
            "measure": "0=0.1",
            "best_of": 2,
            "by": "loss",
        },
        {
            "victims": ["zoo:cartpole-dqn"],
            "grids": [{"threats": ["noise:eps=0.1"]}, {"seeds": [3], "threats": ["action-flip"]}],
        },
    )

    def draw(self, draw: Draw) -> Any:
        rng = draw(RNG)
        form = rng.choice(("dictionary", "json", "toml"))
        data = changed(draw, rng.choice(self.bases), JUNK | ODD if form == "dictionary" else JUNK)
        if form == "dictionary":
            return form, data
        if form == "json":
            return form, json_bytes(draw, data)
        text = _toml(data).encode("utf-8", "replace")
        return form, with_bytes_changed(text, draw(BYTE_CHANGES)) if rng.random() < 0.2 else text

    def attempt(self, given: Any) -> None:
        form, data = given
        if form == "dictionary":
            plan = Plan.from_dict(data)
        else:
            path = Path(f"plan.{form}")
            path.write_bytes(data)
            plan = Plan.load(path)
        assert Plan.from_dict(plan.to_dict()) == plan
        plan.save("again.json")
        expand(plan)


def _toml(data: Any) -> str:
    """TOML, as far as data has it; the rest is written as JSON, which TOML does not read."""
    if not isinstance(data, dict):
        return json.dumps(data)
    return "\n".join(f"{json.dumps(str(key))} = {_toml_value(value)}" for key, value in data.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml_value(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    words = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
    return words.get(json.dumps(value), json.dumps(value))


TENSOR_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["shape", "dtype", "drop", "rename", "fill", "extra"]),
        st.integers(0, 20),
        st.sampled_from([0.0, 1e38, -1e30, math.nan, math.inf, 1e-40]),
        st.sampled_from(["float64", "float16", "bfloat16", "int64", "int8", "bool", "complex64"]),
        st.sampled_from([(), (0,), (1,), (3, 4), (64, 4), (2, 64, 1), (7,), (64,)]),
    ),
    max_size=3,
)


def with_tensors_changed(tensors: dict[str, torch.Tensor], changes: list[tuple[Any, ...]]) -> dict[str, torch.Tensor]:
    """Tensors of which some have another shape, type, name or value, or are missing."""
    out = dict(tensors)
    for how, which, value, dtype, shape in changes:
        if not out:
            break
        name = sorted(out)[which % len(out)]
        if how == "shape":
            out[name] = torch.zeros(shape)
        elif how == "dtype":
            out[name] = out[name].to(getattr(torch, dtype))
        elif how == "drop":
            del out[name]
        elif how == "rename":
            out[name + "x"] = out.pop(name)
        elif how == "extra":
            out["extra.weight"] = torch.zeros(shape)
        else:
            out[name] = torch.full(out[name].shape, value)
    return out


def act(victim: adv.Victim) -> None:
    """Two observations through a victim, and a step under an attack."""
    space = victim.observation_space
    if not isinstance(space, spaces.Box):
        return
    if math.prod(space.shape) > 1 << 20:
        return
    x, state = torch.zeros(2, *space.shape, dtype=victim.dtype), victim.initial_state(2)
    params = victim.params(x, state)
    victim.act(params)
    if not torch.isfinite(params).all():
        raise adv.AdvWrappersError("not finite, which every attack and evaluation refuses")


class Cards(Kind):
    """Cards whose ``card.json`` or weights were changed: loaded and asked for an action."""

    name, share = "cards", 0.2
    bases = ("cartpole-dqn", "cartpole-a2c", "mountaincar-dqn", "hopper-ppo", "cartpole-balance-sac")

    def prepare(self, folder: Path) -> None:
        zoo = Path(adv.__file__).parent / "zoo"
        self.cards = {name: json.loads((zoo / name / "card.json").read_text()) for name in self.bases}
        self.weights = {name: (zoo / name / "weights.safetensors").read_bytes() for name in self.bases}

    def draw(self, draw: Draw) -> Any:
        rng = draw(RNG)
        name, what = rng.choice(self.bases), rng.choice(("card", "card", "tensors", "bytes", "both"))
        card = json_bytes(draw, changed(draw, self.cards[name])) if what in ("card", "both") else None
        tensors = draw(TENSOR_CHANGES) if what in ("tensors", "both") else []
        return name, card, tensors, draw(BYTE_CHANGES) if what == "bytes" else []

    def attempt(self, given: Any) -> None:
        name, card, tensors, changes = given
        weights = self.weights[name]
        if tensors:
            weights = save(with_tensors_changed(load(weights), tensors))
        Path("card.json").write_bytes(json.dumps(self.cards[name]).encode() if card is None else card)
        Path("weights.safetensors").write_bytes(with_bytes_changed(weights, changes))
        act(adv.load_victim("card:."))


class Zips(Kind):
    """Zips of Stable-Baselines3 and the statistics beside them, changed: loaded without running code from them."""

    name, share = "zips", 0.1

    def prepare(self, folder: Path) -> None:
        from sb3_contrib import ARS, TQC, CrossQ
        from stable_baselines3 import DQN, PPO, SAC, TD3
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

        def pendulum() -> VecNormalize:
            return VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))

        def small(**more: int) -> dict[str, Any]:
            return {"policy_kwargs": {"net_arch": [4]}, "seed": 0, "device": "cpu", **more}

        made = {
            "ppo": PPO("MlpPolicy", pendulum(), **small(n_steps=8, batch_size=8)),
            "dqn": DQN("MlpPolicy", "CartPole-v1", **small(buffer_size=1)),
            "sac": SAC("MlpPolicy", "Pendulum-v1", **small(buffer_size=1)),
            "td3": TD3("MlpPolicy", "Pendulum-v1", **small(buffer_size=1)),
            "tqc": TQC("MlpPolicy", "Pendulum-v1", **small(buffer_size=1)),
            "crossq": CrossQ("MlpPolicy", "Pendulum-v1", **small(buffer_size=1)),
            "ars": ARS("MlpPolicy", "Pendulum-v1", **small()),
        }
        self.members: dict[str, dict[str, bytes]] = {}
        for name, model in made.items():
            model.save(folder / name)
            with zipfile.ZipFile(folder / f"{name}.zip") as archive:
                self.members[name] = {one: archive.read(one) for one in archive.namelist()}
        self.data = {name: json.loads(found["data"]) for name, found in self.members.items()}
        made["ppo"].get_env().save(str(folder / "statistics.pkl"))
        self.statistics = (folder / "statistics.pkl").read_bytes()

    def draw(self, draw: Draw) -> Any:
        rng = draw(RNG)
        name = rng.choice(sorted(self.members))
        what = rng.choice(("data", "data", "tensors", "member", "zip", "statistics"))
        data = json_bytes(draw, changed(draw, self.data[name])) if what == "data" else None
        tensors = draw(TENSOR_CHANGES) if what == "tensors" else []
        member = rng.choice(sorted(self.members[name])) if what == "member" else None
        return name, data, tensors, member, what, draw(BYTE_CHANGES) if what in ("member", "zip", "statistics") else []

    def attempt(self, given: Any) -> None:
        name, data, tensors, member, what, changes = given
        members = dict(self.members[name])
        if data is not None:
            members["data"] = data
        if tensors:
            stored = torch.load(io.BytesIO(members["policy.pth"]), weights_only=True)
            buffer = io.BytesIO()
            torch.save(with_tensors_changed(stored, tensors), buffer)
            members["policy.pth"] = buffer.getvalue()
        if member is not None:
            members[member] = with_bytes_changed(members[member], changes)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for one, content in members.items():
                archive.writestr(one, content)
        content = buffer.getvalue()
        Path("model.zip").write_bytes(with_bytes_changed(content, changes) if what == "zip" else content)
        Path("statistics.pkl").write_bytes(
            with_bytes_changed(self.statistics, changes) if what == "statistics" else self.statistics
        )
        with nothing_unpickled():
            act(adv.load_victim("sb3:model.zip", stats="statistics.pkl" if name == "ppo" else None))


@contextlib.contextmanager
def nothing_unpickled() -> Iterator[None]:
    """Raise where a pickle is loaded, whatever it holds."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a pickle of a zip was loaded")

    kept = pickle.loads, pickle.load
    pickle.loads = pickle.load = refuse
    try:
        yield
    finally:
        pickle.loads, pickle.load = kept


class Scene(gym.Env[Any, Any]):
    """An environment that shows random observations of its space for ever."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


VECTOR, IMAGE = spaces.Box(-2.0, 2.0, (4,), np.float32), spaces.Box(0, 255, (8, 8, 3), np.uint8)
TWO, TORQUE = spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,), np.float32)


def scenes() -> dict[str, tuple[spaces.Space[Any], spaces.Space[Any], adv.Victim]]:
    """By name the spaces of an environment, and a victim of it."""
    torch.manual_seed(0)
    net, image = torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))

    def critic(x: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (x[:, :2] * action).sum(1)

    return {
        "q": (VECTOR, TWO, adv.load_victim("zoo:cartpole-dqn")),
        "mean": (VECTOR, TORQUE, adv.from_module(net, VECTOR, TORQUE, "mean", critic=critic)),
        "image": (IMAGE, TWO, adv.from_module(image, IMAGE, TWO, "q")),
    }


def play(threat: Any, scene: tuple[spaces.Space[Any], spaces.Space[Any], adv.Victim]) -> None:
    """A reset and two steps under a threat."""
    observations, actions, victim = scene
    env = adv.wrap(Scene(observations, actions), threat, victim=victim)
    env.reset(seed=0)
    for _ in range(2):
        env.step(actions.sample())


def arguments_of(name: str) -> list[str]:
    """What the text of a preset may name. Long work is left out: steps and queries have values of their own."""
    own = [one.name for one in fields(adv.presets[name].kind) if one.init and one.name not in ("victim", "learned")]
    return [*own, "eps", "norm", "scale", "newest", "when", "p", "at"]


TEXT_VALUES = [
    *listed(
        """
        0 1 -1 2 1_0 1;2 1;2;3;4 0.5 nan inf -inf 1e999 1e308 1e-320 true none x '' '3' 1j b'x' 1/3 1/0 (1;2);(3;4)
        1; ; () linf l2 l0 sparse(2) valid best last linear q every(2) bernoulli(0.5) window(0,3)&~atmost(1)
        strategic(0.1) bernoulli(2) every('x') zoo:cartpole-dqn card:. <f>
        """
    ),
    *("\0", "9" * 30, "9" * 400, f"sparse({'9' * 30})"),
]


def usual_values() -> dict[str, list[str]]:
    """By argument of presets, its defaults in all of them, as texts."""
    found = {"eps": ["1", "2"], "norm": ["linf", "l2"], "scale": ["1", "2"], "newest": ["false"], "p": ["0.5"]}
    found |= {"at": ["none"], "when": ["every(2)", "bernoulli(0.5)"]}
    for preset in adv.presets.values():
        for one in fields(preset.kind):
            value = preset.arguments.get(one.name, one.default)
            if one.init and (value is None or isinstance(value, (bool, int, float, str))):
                found.setdefault(one.name, []).append(str(value).lower())
    return found


class Texts(Kind):
    """Texts of threats and timings: read, written again, and played for two steps."""

    name, share = "texts", 0.2

    def prepare(self, folder: Path) -> None:
        self.scenes, self.usual = scenes(), usual_values()

    def draw(self, draw: Draw) -> Any:
        rng = draw(RNG)
        if rng.random() < 0.2:
            return "q", "".join(draw(st.lists(st.sampled_from(WORDS) | LETTERS, max_size=12)))
        made = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice(sorted(adv.presets))
            first, *others = rng.sample(arguments_of(name), rng.choice((1, 2, 3)))
            values = {"eps": "1"} | {key: rng.choice(self.usual.get(key, TEXT_VALUES)) for key in others}
            values[first] = rng.choice(TEXT_VALUES if rng.random() < 0.6 else self.usual.get(first, TEXT_VALUES))
            made.append(f"{name}:{','.join(f'{key}={value}' for key, value in values.items())}")
        native = issubclass(adv.presets[name].kind, NativePerturbation)
        return "image" if native else rng.choice(("q", "q", "mean")), " + ".join(made)

    def attempt(self, given: Any) -> None:
        scene, words = given
        victim = self.scenes[scene][2]
        with contextlib.suppress(adv.AdvWrappersError):
            parse_when(words)
        for part in split_stack(words):
            made = parse_threat(part).against(victim)
            if "<" not in (text := text_of(made, victim)):
                assert parse_threat(text).against(victim) == made, f"{text} is not {part}"
            play(made, self.scenes[scene])


class Dictionaries(Kind):
    """Dictionaries of threats: read, written again, and played for two steps."""

    name, share = "dictionaries", 0.2

    def prepare(self, folder: Path) -> None:
        self.scenes = scenes()
        victim = self.scenes["q"][2]
        timed = adv.threat("pgd", victim, eps=0.1, when=adv.Bernoulli(0.5) & ~adv.Window(1, 3) | adv.Strategic(0.1))
        made = [("q", timed), ("q", adv.threat("noise", eps=0.1, norm="sparse(2)", scale=(1.0, 2.0, 0.0, 1.0)))]
        for name, preset in sorted(adv.presets.items()):
            budget: dict[str, Any] = {"eps": 1} if preset.on == "observation" else {"norm": "valid"}
            with contextlib.suppress(adv.AdvWrappersError):  # those that need a folder
                scene = "image" if issubclass(preset.kind, NativePerturbation) else "q"
                made += [(scene, adv.threat(name, **budget)), ("mean", adv.threat(name, **budget))]
                made += [("q", adv.threat(name, **budget).against(victim))]
        self.bases = [(scene, json.loads(json.dumps(threat.to_dict()))) for scene, threat in made]

    def draw(self, draw: Draw) -> Any:
        scene, data = draw(RNG).choice(self.bases)
        return scene, changed(draw, data, JUNK | ODD)

    def attempt(self, given: Any) -> None:
        scene, data = given
        made = adv.ThreatModel.from_dict(data, adv.load_victim)
        with contextlib.suppress(ThreatError):  # of a victim without a reference
            assert (
                adv.ThreatModel.from_dict(json.loads(json.dumps(made.to_dict())), adv.load_victim).to_dict()
                == made.to_dict()
            )
        play(made, self.scenes[scene])


_SHORT = "Short-v0 --env-kwargs max_episode_steps=3 --victim zoo:cartpole-dqn"
_HOPPER = "ShortHopper-v0 --env-kwargs max_episode_steps=3 --victim zoo:hopper-ppo"
_TINY = "--steps 8 --num-envs 1 --checks 1 --episodes 1"
COMMANDS = f"""
threats
victims
--version
evaluate --help
evaluate {_SHORT} --threat pgd:eps=0.3 --episodes 1 --num-envs 1 --seed 0 --device cpu
evaluate {_SHORT} --threat noise:eps=0.3 --episodes 2 --best-of 2 --by loss --measure 0=0.1 --minimum 0
evaluate {_SHORT} --episodes 2 --num-envs 2 --select sample --at-least 3 --junit gate.xml
evaluate {_SHORT} --threat flip --seeds 0,1 --store rows.db --episodes 1
run plan.json --store rows.db --workers 1
run plan.toml --store rows.db --dry-run
plot rows.db --x eps --y regret --hue victim --col env --out curves.svg
suite {_SHORT} --eps 0.1 --scale 1 --episodes 1 --no-train --attack noise --attack pgd --num-envs 1
suite {_SHORT} --suite action --action-eps 0.1 --episodes 1 --no-train --attack action-flip --seed 1
certify {_SHORT} --eps 0.001 --episodes 1 --budget-s 0.1 --max-nodes 10 --attack noise --num-envs 1 --least-reward 0
certify {_SHORT} --eps 0.001 --scale 2 --episodes 1 --budget-s 0 --max-boxes 9 --least-reward 0 --width 1
look ALE/Pong-v5 --threat rotation:degrees=3 --step 1 --out sheet.png --seed 3
imitate {_SHORT} --queries 64 --rounds 0 --episodes 1 --no-attacks --out copy
train-adversary {_SHORT} --kind sa-rl --eps 0.1 {_TINY} --out made
train-adversary {_SHORT} --kind pa-ad --eps 0.1 {_TINY} --when every(2) --out made
train-agent {_SHORT} --algorithm dqn --adversary pgd --eps 0.1 {_TINY} --rewards raw --out made
train-agent Short-v0 --robust sa --eps 0.1 {_TINY} --observations raw --select mode --out made
train-critic {_HOPPER} --steps 2 --one --num-envs 1 --episodes 1 --out made
train-critic {_HOPPER} --steps 2 --robust-eps 0.1 --weight 0.1 --box both --successor next --num-envs 1 --out made
train-dynamics {_HOPPER} --transitions 100 --width 4 --layers 1 --epochs 1 --num-envs 1 --lr 0.1 --out made
resilience {_SHORT} {_TINY} --cost 1 --r-max 3 --algorithm ppo --out made
robustness {_SHORT} {_TINY} --budget 1 --hard --how noise:eps=0.1 --out made
""".strip().splitlines()
COMMAND_VALUES = [
    *listed(
        """
        0 1 2 -1 0.5 -0.5 nan inf 1e999 1_0 x none true a=1 a = { {} {'a':1} max_episode_steps=0 nothing=1 0,1 0,,1 0;1
        {"max_episode_steps":"x"} max_episode_steps=0.5 max_episode_steps=1,max_episode_steps=2 render_mode=x
        zoo: zoo:nobody zoo:cartpole-a2c zoo:hopper-ppo zoo:pong-ppo card: card:. sb3:x.zip sb3:plan.json
        onnx:plan.json torchscript:plan.json smoothed:zoo:cartpole-dqn?sigma=0 smoothed:zoo:cartpole-dqn?sigma=1
        lower-bound:zoo:cartpole-dqn?eps=-1 lower-bound:zoo:cartpole-dqn?eps=0.1 meta cuda cpu:0 plan.json plan.toml
        missing/rows.db . .. folder noise noise:eps=-1 worst-action own victim 1;1;1;1 1;2 crown ibp all beam
        MountainCar-v0 CartPole-v99 Nothing-v0 ALE/Pong-v5 Hopper-v5 nothing:Env-v0 dm_control/cartpole-balance-v0
        math:sqrt math:pi os : nobody:f noise,pgd standard everything daylight certified mode sample loss return
        timed:max-diff pa-ad-action induce sa-rl dqn a2c state+action interval successor worst q policy
        -- --out --help -h --nothing -x --no-quantize --resume --eps --seed
        """
    ),
    *("", " ", "pgd:eps=0.1 + ", "9" * 30, "9" * 400, "x" * 300, "\udcff", "\u00e9", "\U0001f600"),
]
COMMAND_NUMBERS = ["0", "1", "2", "-1", "0.5", "nan", "inf", "1e308", "1e-320", "9" * 30, "9" * 400, "x", ""]
SINGLE = ("--workers", "--env-workers", "--actors", "--ray")  # whose good values begin processes
NEVER = {"--trust", "--ray", "--dry-run"}
PROCESSES = ["", "0", "1", "-1", "x", "9" * 30, "1.5"]


class Commands(Kind):
    """Words of the command line: a command of every kind with words replaced, taken out, doubled and added."""

    name, share = "commands", 0.1

    def prepare(self, folder: Path) -> None:
        self.plan = {"victims": ["zoo:cartpole-dqn"], "environments": [CARTPOLE], "threats": ["noise:eps=0.1"]}
        self.plan["episodes"] = 1
        for name, original in (("Short-v0", "CartPole-v1"), ("ShortHopper-v0", "Hopper-v5")):
            gym.register(name, gym.spec(original).entry_point, max_episode_steps=3)  # short whatever is left out
        self.texts = Texts()
        self.texts.prepare(folder)
        self.options: dict[str, list[str]] = {}
        self.numeric: set[str] = set()
        for name, command in adv_wrappers_command.commands.items():
            found = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
            self.options[name] = sorted({word for each in found for word in each.opts if word.startswith("--")} - NEVER)
            numbers = (click.types.IntParamType, click.types.FloatParamType)
            self.numeric |= {word for each in found if isinstance(each.type, numbers) for word in each.opts}

    def draw(self, draw: Draw) -> Any:
        rng = draw(RNG)
        words = rng.choice(COMMANDS).split()
        bounds = [words[i : i + 2] for i, word in enumerate(words) if word in ("--steps", "--queries")]
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = rng.randrange(len(words)) if len(words) == 1 or rng.random() < 0.03 else rng.randrange(1, len(words))
            how = rng.choice(("set", "set", "set", "cut", "double", "option"))
            known = self.options.get(words[0], [])
            if how == "option" and known:
                option = rng.choice(known)
                words += [option, self._value(option, draw, rng)]
            elif how == "double":
                words.insert(at, words[at])
            elif how == "cut":
                del words[at]
            elif not words[at].startswith("--") or rng.random() < 0.1:
                words[at] = self._value(words[at - 1], draw, rng)
            words = words or ["--help"]
        for option, count in bounds:  # without it a training has its usual length, which is minutes and no hang
            words += [] if option in words else [option, count]
        return words

    def _value(self, option: str, draw: Draw, rng: random.Random) -> Any:
        """What is put behind an option: mostly of the kind that it takes."""
        if option in SINGLE:
            return rng.choice(PROCESSES)
        if option in self.numeric and rng.random() < 0.8:
            return rng.choice(COMMAND_NUMBERS)
        if option == "--threat" and rng.random() < 0.8:
            return self.texts.draw(draw)[1].replace("\0", "")
        return draw(st.sampled_from(COMMAND_VALUES) | LETTERS.map(lambda text: text.replace("\0", "")))

    def attempt(self, given: Any) -> None:
        Path("plan.json").write_text(json.dumps(self.plan))
        Path("plan.toml").write_text(_toml(self.plan))
        Path("folder").mkdir()
        done = CliRunner().invoke(adv_wrappers_command, given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if "Traceback" in done.output:
            raise AssertionError(f"a traceback in the output: {done.output[-300:]}")
        if done.exit_code not in (0, 1, 2):
            raise AssertionError(f"status {done.exit_code}: {done.output[-300:]}")
        if done.exit_code == 2:
            raise adv.AdvWrappersError(done.output.strip())


KINDS: tuple[type[Kind], ...] = (Plans, Cards, Zips, Texts, Dictionaries, Commands)


# the watchdog


class TooLong(BaseException):
    """An input that is not done in time; no code that catches exceptions catches this one."""


@dataclass(frozen=True)
class Finding:
    """An input that was neither accepted nor refused.

    Attributes:
        kind: its kind.
        given: its ``repr``.
        cause: what findings are counted together by.
        reason: what happened, with the last frames.
    """

    kind: str
    given: str
    cause: str
    reason: str


@dataclass
class Tally:
    """What the inputs of one process came to."""

    accepted: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)


def _late(signum: int, frame: object) -> None:
    raise TooLong(f"more than {SECONDS if signum == signal.SIGPROF else CLOCK} s")


def try_one(kind: Kind, given: Any) -> tuple[str, str] | None:
    """None for an input that is accepted, else the cause and the reason.

    Raises:
        AdvWrappersError: for an input that is refused with a sentence.
    """
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, CLOCK)
    faulthandler.dump_traceback_later(2 * CLOCK, exit=True)  # for code that returns to no signal
    try:
        kind.attempt(given)
        return None
    except adv.AdvWrappersError as error:
        if len(str(error)) < LEAST:
            return "a message that says nothing", repr(error)
        raise
    except BaseException as error:  # whatever comes is a finding
        frames = traceback.extract_tb(error.__traceback__)
        own = [one for one in frames if "adv_wrappers" in one.filename and "benchmarks" not in one.filename] or frames
        place, name = own[-1].filename.rpartition("adv_wrappers/")[2], type(error).__name__
        cause = f"{name} in {place}" if isinstance(error, TooLong) else f"{name} at {place}:{own[-1].lineno}"
        return cause, f"{name}: {error!s:.300}\n{''.join(traceback.format_list(frames[-4:]))}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def try_many(kind: Kind, count: int, number: int, current: Path) -> Tally:
    """Inputs of one kind that follow from a number; ``current`` always holds the one that is being tried."""
    tally, home = Tally(), current.parent / f"{current.name}-home"

    @seed(number)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.composite(lambda draw: kind.draw(draw))())
    def one(given: Any) -> None:
        if tally.accepted + tally.refused + len(tally.findings) >= count:
            return
        shown = repr(given)
        current.write_text(shown, "utf-8", "backslashreplace")
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        os.chdir(home)
        state = random.getstate(), np.random.get_state(), torch.get_rng_state()
        try:
            found = try_one(kind, given)
        except adv.AdvWrappersError:
            tally.refused += 1
            return
        finally:
            random.setstate(state[0]), np.random.set_state(state[1]), torch.set_rng_state(state[2])
        if found is None:
            tally.accepted += 1
        else:
            tally.findings.append(Finding(kind.name, shown, *found))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: None  # commands print theirs all the same
        one()
    return tally


def _in_child(kind: Kind, count: int, number: int, current: Path, pipe: Any) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGPROF, _late)
    signal.signal(signal.SIGALRM, _late)
    tally = try_many(kind, count, number, current)
    pipe.send(tally)
    pipe.close()


@dataclass
class _Running:
    kind: Kind
    count: int
    number: int
    current: Path
    process: Any
    pipe: Any


@settings(max_examples=1, database=None, deadline=None)
@given(st.integers())
def _draw_once(number: int) -> None:
    """Hypothesis reads the constants of all modules at its first draw: here, so that no child has to."""


def run(kinds: list[Kind], inputs: int, number: int, workers: int) -> dict[str, Tally]:
    """Try so many inputs, shared between the kinds, in several processes at a time."""
    context, totals = multiprocessing.get_context("fork"), {kind.name: Tally() for kind in kinds}
    whole = sum(kind.share for kind in kinds)
    waiting: list[tuple[Kind, int, int]] = []
    for kind in kinds:
        left, part = max(round(inputs * kind.share / whole), 1), 0
        while left > 0:
            own = np.random.SeedSequence([number, zlib.crc32(kind.name.encode()), part]).generate_state(1)
            waiting.append((kind, min(left, CHUNK), int(own[0])))
            left, part = left - CHUNK, part + 1
    running: list[_Running] = []
    _draw_once()
    with tempfile.TemporaryDirectory(prefix="adv-wrappers-fuzz-") as folder:
        for kind in kinds:
            (Path(folder) / kind.name).mkdir()
            kind.prepare(Path(folder) / kind.name)
        while waiting or running:
            while waiting and len(running) < workers:
                kind, count, own = waiting.pop(0)
                ours, theirs = context.Pipe(False)
                current = Path(folder) / f"{kind.name}-{own}"
                process = context.Process(target=_in_child, args=(kind, count, own, current, theirs))
                process.start()
                theirs.close()
                running.append(_Running(kind, count, own, current, process, ours))
            multiprocessing.connection.wait([one.pipe for one in running], timeout=1)
            for one in [one for one in running if one.pipe.poll() or not one.process.is_alive()]:
                total = totals[one.kind.name]
                try:
                    tally = one.pipe.recv()
                except EOFError:  # it died of its input: half as many others are tried in its place
                    one.process.join()
                    given = one.current.read_text("utf-8") if one.current.exists() else "nothing yet"
                    reason = f"the process ended with status {one.process.exitcode}"
                    tally = Tally(findings=[Finding(one.kind.name, given, f"{reason} ({one.kind.name})", reason)])
                    if one.count > 1:
                        waiting.append((one.kind, one.count // 2, one.number + 1))
                one.process.join()
                running.remove(one)
                total.accepted, total.refused = total.accepted + tally.accepted, total.refused + tally.refused
                for finding in tally.findings:
                    if finding.cause not in {known.cause for known in total.findings}:
                        print(f"{finding.kind}: {finding.cause}: {finding.given:.300}", flush=True)
                total.findings += tally.findings
                counts = f"{total.accepted} accepted, {total.refused} refused, {len(total.findings)} findings"
                print(f"{one.kind.name}: {counts}", flush=True)
    return totals


def show(totals: dict[str, Tally]) -> int:
    """Print the shortest finding of every cause; the number of causes."""
    findings = [one for tally in totals.values() for one in tally.findings]
    causes = Counter((one.kind, one.cause) for one in findings)
    for (kind, cause), count in causes.most_common():
        alike = [each for each in findings if (each.kind, each.cause) == (kind, cause)]
        one = min(alike, key=lambda each: len(each.given))
        print(f"\n{kind}: {cause} ({count} inputs)\n  input: {one.given:.1500}\n  reason: {one.reason}")
    return len(causes)


def main() -> None:
    """Read the command line, try the inputs, and exit with status 1 where there are findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS], action="append", help="again for more")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    kinds = [kind() for kind in KINDS if options.only is None or kind.name in options.only]
    totals = run(kinds, options.inputs, options.seed, options.workers)
    causes = show(totals)
    tried = sum(tally.accepted + tally.refused + len(tally.findings) for tally in totals.values())
    took = f"{time.perf_counter() - started:.0f} s"
    print(f"\n{tried} inputs in {took}, {causes} causes of findings, seed {options.seed}")
    sys.exit(1 if causes else 0)


if __name__ == "__main__":
    main()
