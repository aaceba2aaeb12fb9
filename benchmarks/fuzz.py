"""Bad input at random: whatever is read is accepted, or refused with a sentence, within five seconds.

    python benchmarks/fuzz.py                                # 50 000 inputs
    python benchmarks/fuzz.py --only plans --inputs 2000 --seed 7

Good input of every kind is changed at random: plans (dictionaries, JSON and TOML files), cards (their ``card.json`` and
their weights), zips of Stable-Baselines3 and sb3-contrib with the statistics beside them, texts and dictionaries of
threats, and words of the command line. Nothing is replaced by a mock: what is accepted is loaded, wrapped and played
for a few steps.

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
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from click.testing import CliRunner
from gymnasium import spaces
from safetensors.torch import load, save

import adv_wrappers as adv
from adv_wrappers.cli import main as adv_wrappers_command
from adv_wrappers.core.perturbation import NativePerturbation
from adv_wrappers.core.serialization import Value
from adv_wrappers.errors import ThreatError
from adv_wrappers.studies import Plan, expand
from adv_wrappers.threats.presets import parse_threat, parse_when
from adv_wrappers.threats.text import text_of
from adv_wrappers.utils.parsing import split_stack


def listed(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


INPUTS = 50_000
SECONDS, CLOCK, MEMORY = 5, 60, 4 << 30
LEAST = 15  # letters of a message that says something

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
LETTERS = "abcXYZ0189 _-+.,;:=()[]{}<>|&~*'\"#%$@!?\t\n\0\x7f\u00e9\u202e\u4e2d\uffff\U0001f600"
ODD = [
    *(np.zeros(2), np.array(["observation"]), np.float32(0.5), np.int64(3), torch.zeros(2)),
    *(b"x", {1, 2}, (1, (2,)), 1j, {3: 4}, range(3), Ellipsis, object, [[[]]]),
]
FIELDS = {
    name: [one.name for one in fields(kind) if one.init] for name, kind in Value.kinds.items() if is_dataclass(kind)
}


def letters(rng: Random) -> str:
    """Up to six letters of any kind."""
    return "".join(rng.choices(LETTERS, k=rng.randrange(7)))


def plain(rng: Random) -> Any:
    """A number, a word, letters, or what JSON has besides."""
    kinds = (None, True, False, rng.choice(NUMBERS), rng.choice(WORDS), letters(rng), rng.randrange(-(10**6), 10**6))
    return rng.choice(kinds)


def junk(rng: Random, odd: bool = False, depth: int = 2) -> Any:
    """A plain value, or a list or a dictionary of such; with ``odd`` also what JSON cannot hold."""
    how = rng.random()
    if odd and how < 0.3:
        return copy.deepcopy(rng.choice(ODD))
    if not depth or how < 0.7:
        return plain(rng)
    parts = [junk(rng, False, depth - 1) for _ in range(rng.randrange(4))]
    names = (rng.choice(("type", "eps", "a", "b", "id", "kwargs", letters(rng))) for _ in parts)
    return parts if how < 0.85 else dict(zip(names, parts, strict=True))


def changed(rng: Random, data: Any, odd: bool = False) -> Any:
    """A tree of lists and dictionaries with one to three parts replaced, taken out, doubled or added."""
    tree = {"": copy.deepcopy(data)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        whole, *parts = _places(tree)
        parts = [part for part in parts if part[1] != "type"] if rng.random() < 0.9 else parts
        node, key = whole if not parts or rng.random() < 0.02 else rng.choice(parts)
        how = rng.choice(("alike", "alike", "replace", "delete", "add", "double"))
        if how == "delete" and node is not tree:
            del node[key]
        elif how == "add" and isinstance(node[key], dict):
            known = FIELDS.get(str(node[key].get("type")), [])
            name = rng.choice(known) if known and rng.random() < 0.8 else rng.choice((*WORDS, letters(rng)))
            node[key][name] = plain(rng) if rng.random() < 0.5 else junk(rng, odd)
        elif how == "add" and isinstance(node[key], list):
            node[key].insert(rng.randrange(4), junk(rng, odd))
        elif how == "double":
            node[key] = [node[key], copy.deepcopy(node[key])]
        elif how == "alike" and isinstance(node[key], (int, float, str)):
            node[key] = rng.choice(WORDS if isinstance(node[key], str) else NUMBERS)
        else:
            node[key] = junk(rng, odd)
    return tree[""]


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], (dict, list)):
            yield from _places(node[key])


def with_bytes_changed(rng: Random, data: bytes) -> bytes:
    """The same bytes with some changed, taken out, doubled, or all behind one place missing."""
    out = bytearray(data)
    for _ in range(rng.randrange(5)):
        at, value = rng.randrange(len(out) or 1), rng.randrange(256)
        how = rng.choice(("set", "cut", "repeat", "end"))
        if how == "set" and out:
            out[at] = value
        elif how == "repeat":
            out[at:at] = out[at : at + value]
        else:
            del out[at : at + value if how == "cut" else None]
    return bytes(out)


def json_bytes(rng: Random, data: Any) -> bytes:
    """A changed tree as JSON, at times with changed bytes; NaN and Infinity are written, as Python does."""
    sys.set_int_max_str_digits(0)
    text = json.dumps(data).encode("utf-8", "surrogatepass")
    return with_bytes_changed(rng, text) if rng.random() < 0.2 else text


def with_tensors_changed(rng: Random, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of which some have another shape, type, name or value, or are missing."""
    out = dict(tensors)
    for _ in range(rng.randrange(4)):
        name = rng.choice(sorted(out) or [""])
        found = out.pop(name, torch.zeros(1))
        shape = rng.choice([(), (0,), (1,), (3, 4), (64, 4), (2, 64, 1), (7,), (64,)])
        dtype = rng.choice([torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
        number = rng.choice([0.0, 1e38, -1e30, math.nan, math.inf, 1e-40])
        made = {name: torch.zeros(shape)}, {name: found.to(dtype)}, {}, {f"{name}x": found}
        more = {name: torch.full(found.shape, number)}, {name: found, "extra.weight": torch.zeros(shape)}
        out |= rng.choice((*made, *more))
    return out


# inputs: each kind draws one, and tries it


class Kind:
    """One kind of input."""

    name = ""
    share = 1.0  # of all inputs

    def prepare(self, folder: Path) -> None:
        """Make what inputs are changed from, once, in a folder that stays."""

    def draw(self, rng: Random) -> Any:
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

    def draw(self, rng: Random) -> Any:
        form = rng.choice(("dictionary", "json", "toml"))
        data = changed(rng, rng.choice(self.bases), form == "dictionary")
        if form == "dictionary":
            return form, data
        if form == "json":
            return form, json_bytes(rng, data)
        text = _toml(data).encode("utf-8", "replace")
        return form, with_bytes_changed(rng, text) if rng.random() < 0.2 else text

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

    def draw(self, rng: Random) -> Any:
        name, what = rng.choice(self.bases), rng.choice(("card", "card", "tensors", "bytes", "both"))
        data = self.cards[name]
        text = json_bytes(rng, changed(rng, data)) if what in ("card", "both") else json.dumps(data).encode()
        return name, what, text, rng.getrandbits(32)

    def attempt(self, given: Any) -> None:
        name, what, text, seed = given
        weights, rng = self.weights[name], Random(seed)
        if what in ("tensors", "both"):
            weights = save(with_tensors_changed(rng, load(weights)))
        Path("card.json").write_bytes(text)
        Path("weights.safetensors").write_bytes(with_bytes_changed(rng, weights) if what == "bytes" else weights)
        act(adv.load_victim("card:."))


class Zips(Kind):
    """Zips of Stable-Baselines3 and the statistics beside them, changed: loaded without running code from them."""

    name, share = "zips", 0.1

    def prepare(self, folder: Path) -> None:
        from sb3_contrib import ARS
        from stable_baselines3 import DQN, PPO, SAC
        from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

        def pendulum() -> VecNormalize:
            return VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))

        def small(**more: int) -> dict[str, Any]:
            return {"policy_kwargs": {"net_arch": [4]}, "seed": 0, "device": "cpu", **more}

        made = {
            "ppo": PPO("MlpPolicy", pendulum(), **small(n_steps=8, batch_size=8)),
            "dqn": DQN("MlpPolicy", "CartPole-v1", **small(buffer_size=1)),
            "sac": SAC("MlpPolicy", "Pendulum-v1", **small(buffer_size=1)),
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

    def draw(self, rng: Random) -> Any:
        name, what = rng.choice(sorted(self.members)), rng.choice(("data", "data", "tensors", "member", "zip", "stats"))
        text = json_bytes(rng, changed(rng, self.data[name])) if what == "data" else None
        return name, what, rng.choice(sorted(self.members[name])), text, rng.getrandbits(32)

    def attempt(self, given: Any) -> None:
        name, what, member, text, seed = given
        members, rng = dict(self.members[name]), Random(seed)
        if what == "data":
            members["data"] = text
        elif what == "tensors":
            stored, written = torch.load(io.BytesIO(members["policy.pth"]), weights_only=True), io.BytesIO()
            torch.save(with_tensors_changed(rng, stored), written)
            members["policy.pth"] = written.getvalue()
        elif what == "member":
            members[member] = with_bytes_changed(rng, members[member])
        with zipfile.ZipFile("model.zip", "w") as archive:
            for one, content in members.items():
                archive.writestr(one, content)
        if what == "zip":
            Path("model.zip").write_bytes(with_bytes_changed(rng, Path("model.zip").read_bytes()))
        found = with_bytes_changed(rng, self.statistics) if what == "stats" else self.statistics
        Path("statistics.pkl").write_bytes(found)
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


class Texts(Kind):
    """Texts of threats and timings: read, written again, and played for two steps."""

    name, share = "texts", 0.2

    def prepare(self, folder: Path) -> None:
        self.scenes = scenes()

    def draw(self, rng: Random) -> Any:
        if rng.random() < 0.2:
            return "q", "".join(rng.choice((*WORDS, letters(rng))) for _ in range(rng.randrange(12)))
        made = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            name = rng.choice(sorted(adv.presets))
            given = {"eps": "1"} | {
                one: rng.choice(TEXT_VALUES) for one in rng.sample(arguments_of(name), rng.randrange(3))
            }
            made.append(f"{name}:{','.join(f'{key}={value}' for key, value in given.items())}")
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

    def draw(self, rng: Random) -> Any:
        scene, data = rng.choice(self.bases)
        return scene, changed(rng, data, True)

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
evaluate {_SHORT} --episodes 2 --num-envs 2 --select sample --at-least 3
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
train-critic {_HOPPER} --steps 2 --eps 0.1 --scale victim --episodes 1 --num-envs 1 --out made
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
SINGLE = ("--workers", "--env-workers", "--actors", "--ray")  # whose good values begin processes
NEVER = {"--trust", "--dry-run", *SINGLE}
PROCESSES = ["", "0", "1", "-1", "x", "9" * 30, "1.5"]


class Commands(Kind):
    """Words of the command line: a command of every kind with words replaced, taken out, doubled and added."""

    name, share = "commands", 0.1

    def prepare(self, folder: Path) -> None:
        self.plan = {"victims": ["zoo:cartpole-dqn"], "environments": [CARTPOLE], "threats": ["noise:eps=0.1"]}
        self.plan["episodes"] = 1
        for name, original in (("Short-v0", "CartPole-v1"), ("ShortHopper-v0", "Hopper-v5")):
            gym.register(name, gym.spec(original).entry_point, max_episode_steps=3)  # short whatever is left out
        self.options = {
            name: sorted({word for one in command.params for word in one.opts if word.startswith("--")} - NEVER)
            for name, command in adv_wrappers_command.commands.items()
        }

    def draw(self, rng: Random) -> Any:
        words = rng.choice(COMMANDS).split()
        bounds = [words[i : i + 2] for i, word in enumerate(words) if word in ("--steps", "--queries")]
        for _ in range(rng.choice((1, 1, 2, 3))):
            at, how = rng.randrange(len(words)), rng.choice(("set", "set", "set", "cut", "double", "option"))
            if how == "option" and (known := self.options.get(words[0])):
                words += [rng.choice(known), self._value("", rng)]
            elif how == "double":
                words.insert(at, words[at])
            elif how == "cut" and len(words) > 1:
                del words[at]
            elif at and (not words[at].startswith("--") or rng.random() < 0.1):
                words[at] = self._value(words[at - 1], rng)
        # without it a training has its usual length, which is minutes and no hang
        return words + [word for bound in bounds if bound[0] not in words for word in bound]

    def _value(self, option: str, rng: Random) -> str:
        if option in SINGLE:
            return rng.choice(PROCESSES)
        return rng.choice(
            (*COMMAND_VALUES, *("0", "1", "2", "-1", "0.5", "nan", "1e308"), letters(rng).replace("\0", ""))
        )

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
class Outcome:
    """What an input came to.

    Attributes:
        kind: its kind.
        given: its ``repr``.
        cause: what findings are counted together by; "accepted" and "refused" are none.
        reason: what happened, with the last frames.
    """

    kind: str
    given: str
    cause: str
    reason: str = ""

    @property
    def is_finding(self) -> bool:
        """Whether it was neither accepted nor refused."""
        return self.cause not in ("accepted", "refused")


def _late(signum: int, frame: object) -> None:
    raise TooLong(f"more than {SECONDS if signum == signal.SIGPROF else CLOCK} s")


def cause_of(kind: Kind, given: Any) -> tuple[str, str]:
    """The cause and the reason of what an input came to, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    statm = Path("/proc/self/statm")
    if statm.exists():
        most = int(statm.read_text().split()[0]) * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.signal(signal.SIGPROF, _late)
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, CLOCK)
    faulthandler.dump_traceback_later(2 * CLOCK, exit=True)  # for code that returns to no signal
    warnings.simplefilter("always")
    warnings.showwarning = lambda *_, **__: None  # commands print theirs all the same
    try:
        with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
            kind.attempt(given)
        return "accepted", ""
    except adv.AdvWrappersError as error:
        return ("refused" if len(str(error)) >= LEAST else "a message that says nothing"), repr(error)
    except BaseException as error:  # whatever comes is a finding
        frames = traceback.extract_tb(error.__traceback__)
        own = [one for one in frames if "adv_wrappers" in one.filename and "benchmarks" not in one.filename] or frames
        place, name = own[-1].filename.rpartition("adv_wrappers/")[2], type(error).__name__
        cause = f"{name} in {place}" if isinstance(error, TooLong) else f"{name} at {place}:{own[-1].lineno}"
        return cause, f"{name}: {error!s:.300}\n{''.join(traceback.format_list(frames[-4:]))}"


def try_one(kind: Kind, number: str) -> Outcome:
    """Draw the input of a number, and try it in a forked process."""
    given = kind.draw(Random(number))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(cause_of(kind, given)).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    died = f"the process ended with status {status}", ""
    return Outcome(kind.name, repr(given), *(json.loads(said) if said else died))


KINDS_IN_USE: dict[str, Kind] = {}  # which forked workers inherit


def _try_numbered(name: str, number: str) -> Outcome:
    return try_one(KINDS_IN_USE[name], number)


def run(kinds: list[Kind], inputs: int, seed: int, workers: int) -> list[Outcome]:
    """Try so many inputs, shared between the kinds, in several processes at a time."""
    whole = sum(kind.share for kind in kinds)
    counts = {kind.name: max(round(inputs * kind.share / whole), 1) for kind in kinds}
    numbers = [(name, f"{name} {seed} {i}") for name, count in counts.items() for i in range(count)]
    with tempfile.TemporaryDirectory(prefix="adv-wrappers-fuzz-") as folder:
        for kind in kinds:
            kind.prepare(Path(folder))
            KINDS_IN_USE[kind.name] = kind
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            return pool.starmap(_try_numbered, numbers, chunksize=20)


def show(outcomes: list[Outcome]) -> int:
    """Print what every kind came to, and the shortest finding of every cause; the number of causes."""
    for name in dict.fromkeys(one.kind for one in outcomes):
        counts = Counter("findings" if one.is_finding else one.cause for one in outcomes if one.kind == name)
        print(f"{name}: {counts['accepted']} accepted, {counts['refused']} refused, {counts['findings']} findings")
    causes = Counter((one.kind, one.cause) for one in outcomes if one.is_finding)
    for (kind, cause), count in causes.most_common():
        alike = [each for each in outcomes if (each.kind, each.cause) == (kind, cause)]
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
    outcomes = run(kinds, options.inputs, options.seed, options.workers)
    causes = show(outcomes)
    took = f"{time.perf_counter() - started:.0f} s"
    print(f"\n{len(outcomes)} inputs in {took}, {causes} causes of findings, seed {options.seed}")
    sys.exit(1 if causes else 0)


if __name__ == "__main__":
    main()
