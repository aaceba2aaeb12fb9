"""What the library does today, kept in ``tests/recorded`` so that a redesign can be compared with it.

    python benchmarks/record.py --compare --jobs 2          # exit status 1, and a line for every difference
    python benchmarks/record.py --write --only bounds       # after a change that was meant
    python benchmarks/record.py --compare --only attacks --match noise

A section is a function that answers a dictionary: a key, and a function of no arguments that computes the key's value.
Values are what JSON holds. Texts, whole numbers and truth values are compared exactly (``exact`` makes a text of a
float that has to be the same to the bit, ``digest`` one of bytes), floats within the tolerance of their section,
relative to values above 1. ``tests/test_recorded.py`` compares a part of every section.

Recording goes through public names, through commands, and through ``tests/rigs.py`` and ``tests/laws/checks.py``. The
few names that have no public place are in ``ELSEWHERE``: when a module moves, its line there follows, and nothing else.
What may differ is in ``tests/recorded/exceptions.json``, ``{"section: key": "reason"}``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import importlib
import inspect
import io
import json
import math
import multiprocessing
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "recorded"
sys.path.insert(0, str(ROOT))

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

import adv_wrappers as adv  # noqa: E402
from tests.laws.checks import ROWS, Case, cases, fitting, pairs, wrapper  # noqa: E402
from tests.rigs import KINDS, RIGS, leaves, run  # noqa: E402

# the only places inside the package that are named here
ELSEWHERE = {
    "main": "adv_wrappers.cli",
    "parse_threat": "adv_wrappers.presets",
    "text_of": "adv_wrappers.format_threat_text",
    "zoo_names": "adv_wrappers.victims",
}

Value = Any  # what JSON holds
Items = dict[str, Callable[[], Value]]


def inner(name: str) -> Any:
    """A name that has no public place."""
    return getattr(importlib.import_module(ELSEWHERE[name]), name)


# values


def exact(number: float) -> str:
    """A float that is compared to the bit."""
    return repr(float(number))


def digest(*values: Any) -> str:
    """A hash of texts, arrays and trees of arrays: their types, shapes and bytes."""
    found = hashlib.sha256()
    for value in values:
        for key, leaf in leaves(value).items():
            array = leaf if isinstance(leaf, str) else np.asarray(leaf)
            text = array if isinstance(array, str) else f"{array.dtype}{array.shape}"
            found.update(f"{key}:{text}:".encode() + (b"" if isinstance(array, str) else array.tobytes()))
    return found.hexdigest()[:16]


def summary(values: Any, first: int = 3) -> list[float]:
    """A few floats that tell arrays apart: sums with weights of one's own for every place, and the first values."""
    flat = np.concatenate([np.asarray(value, np.float64).reshape(-1) for value in values] or [np.zeros(0)])
    weights = np.random.default_rng(len(flat)).uniform(-1, 1, (2, len(flat)))
    return [*(weights @ flat).tolist(), *flat[:first].tolist()]


def plain(value: Any) -> Value:
    """What JSON holds of a value: floats of nine digits, and texts of those that are not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)


def answered(function: Callable[..., Any], *given: Any, **options: Any) -> Value:
    """The value of a call, or the text of the library's error."""
    try:
        return plain(function(*given, **options))
    except adv.AdvWrappersError as error:
        return f"{type(error).__name__}: {error}"


def differences(was: Value, now: Value, tolerance: float, place: str = "") -> Iterator[tuple[str, Value, Value]]:
    """(place, was, is) of everything that differs between two values."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in [*was, *(key for key in now if key not in was)]:
            yield from differences(was.get(key), now.get(key), tolerance, f"{place} {key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, pair in enumerate(zip(was, now, strict=True)):
            yield from differences(*pair, tolerance, f"{place} [{i}]")
    elif type(was) is float and type(now) is float:
        if not abs(was - now) <= tolerance * max(1.0, abs(was)):
            yield place, was, now
    elif was != now or type(was) is not type(now):
        yield place, was, now


# 1. attacks


def transcript(case: Case, threat: Any, kind: str) -> Value:
    """What came out of a layer: a hash of bytes, or of attacks that follow gradients sums of what was changed."""
    rows = run(kind, case.rig, wrapper(threat), ROWS)
    episodes = [episode for row in rows for episode in row]
    parts = [(e.seen, e.received, [np.asarray(e.rewards, np.float64)]) for e in episodes]
    if case.exact:
        return digest(*(value for part in parts for values in part for value in values))
    moved = [y for _, y in pairs(case, rows, run(kind, case.rig, seeds=ROWS))]
    return [len(moved), *summary(moved), *summary([rewards for *_, (rewards,) in parts], 0)]


def attacks() -> Items:
    """Every preset on every rig that it fits under its first budget, in every kind of environment.

    The other budgets, and timings, are recorded of one kind of environment. Victims compute in float64.
    """
    double: Any = {"dtype": torch.float64}

    def case_of(case: Case, kinds: Sequence[str], **options: Any) -> Value:
        threat = case.threat(**double, **options)
        return {kind: answered(transcript, case, threat, kind) for kind in kinds}

    found: Items = {}
    for case in cases():
        found[str(case)] = functools.partial(case_of, case, KINDS)
        for budget in fitting(case)[1:]:
            found[f"{case} {budget}"] = functools.partial(case_of, case, ("next",), budget=budget)
    timings = {
        "every": adv.Every(2), "window": adv.Window(1, 3), "bernoulli": adv.Bernoulli(0.5), "at-most": adv.AtMost(2),
        "mixed": (adv.Bernoulli(0.6) & adv.AtMost(3)) | ~adv.Window(0, 2),
    }  # fmt: skip
    for preset in ("noise", "action-noise"):
        for name, when in timings.items():
            found[f"{preset} when {name}"] = functools.partial(case_of, Case(preset, RIGS["mean"]), KINDS, when=when)
    for rig in ("logits", "recurrent"):
        case, when = Case("min-best", RIGS[rig]), adv.Strategic(0.4) & adv.Bernoulli(0.8)
        found[f"min-best when strategic {rig}"] = functools.partial(case_of, case, KINDS, when=when)
    return found


# 2. names


def shown(value: Any) -> str:
    """A default, without the address of an object."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def signature(thing: Any) -> list[str]:
    """The parameters of a function or class, each with its default."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ["none"]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    out, keywords = [], False
    for one in parameters:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            out.append("*")
        keywords = one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        default = "" if one.default is inspect.Parameter.empty else f"={shown(one.default)}"
        out.append(f"{stars.get(one.kind, '')}{one.name}{default}")
    return out


def names() -> Items:
    """Public names with their parameters, registered ids, presets with their arguments, and hints for wrong names."""
    found: Items = {"all": lambda: sorted(adv.__all__), "presets": lambda: list(adv.presets)}
    for name in adv.__all__:
        found[f"adv.{name}"] = lambda name=name: signature(getattr(adv, name))
    for name in adv.presets:
        found[f"preset {name}"] = lambda name=name: preset_arguments(name)
    found["ids"] = lambda: sorted(id for id in gym.registry if id.startswith(("adv/", "adv-daylight/")))
    for name in ("Nois", "beam_search", "max_diff", "nonsense"):
        found[f"no adv.{name}"] = lambda name=name: raised(lambda: getattr(adv, name))
    return found


def preset_arguments(name: str) -> Value:
    """What a preset is, and every argument that its attack takes with its default."""
    preset = adv.presets[name]
    fields = {field.name: shown(field.default) for field in dataclasses.fields(preset.kind)}
    return {"on": preset.on, "class": preset.kind.__name__, "arguments": {**fields, **preset_defaults(preset)}}


def preset_defaults(preset: Any) -> dict[str, str]:
    """The arguments that a preset fills in."""
    given = getattr(preset, "arguments", None) or getattr(preset, "kwargs", None) or {}
    return {key: shown(value) for key, value in dict(given).items()}


def raised(function: Callable[[], Any]) -> str:
    """The class and message of the error of a call, or that there was none."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


# 3. threats


def threats() -> Items:
    """Threats as texts and dictionaries, there and back, and what is said of texts that are none."""

    def both(case: Case, budget: str) -> Value:
        threat, victim = case.threat(budget), case.rig.victim()
        data = json.loads(json.dumps(threat.to_dict()))
        again = adv.ThreatModel.from_dict(data, victims={victim.fingerprint(): victim})
        text = unplaced(inner("text_of")(threat, victim))
        return {"text": text, "same": again == threat, "dictionary": digest(data_text(data))}

    def parsed(text: str) -> Value:
        threat = inner("parse_threat")(text)
        return {"text": inner("text_of")(threat), "dictionary": data_text(threat.to_dict())}

    found: Items = {}
    for case in cases(rigs=3):
        for budget in fitting(case):
            found[f"{case} {budget}"] = functools.partial(both, case, budget)
    for text in TEXTS:
        found[f"text {text}"] = functools.partial(parsed, text)
    for text in WRONG_TEXTS:
        found[f"wrong {text}"] = lambda text=text: raised(lambda: inner("parse_threat")(text))
    return found


TEXTS = (
    "noise:eps=0.1", "noise:eps=0.1,kind=sign", "pgd:eps=0.3,steps=3,restarts=2", "max-diff:eps=0.075,scale=victim",
    "pgd:eps=0.1,norm=l2", "noise:eps=3,norm=l0", "pgd:eps=0.1,norm=sparse(2)", "noise:eps=0.1,scale=1;0;2;0.5",
    "fgsm:eps=0.1,when=every(2)", "fgsm:eps=0.1,when=bernoulli(0.1)&atmost(7)", "min-best:eps=0.1,at=vector",
    'fgsm:eps=0.1,when="~window(1, 4)|bernoulli(0.5)"', "fgsm:eps=0.1,p=0.5", "noise:eps=2,newest=true",
    "action-noise:eps=0.1", "action-flip", "worst-action:by=policy", "sensor-bias:eps=0.1", "rotation:degrees=4",
    "brightness", "daylight:game=Pong,transform=shift", "reward-noise:eps=0.5", "dynamics-noise:eps=0.1,at=mass",
    "shift", "fgsm:victim=zoo:cartpole-dqn,eps=0.1", "max-diff:victim=zoo:hopper-ppo,eps=0.075,scale=victim",
)  # fmt: skip
WRONG_TEXTS = (
    "", "nois:eps=0.1", "noise", "noise:eps=-1", "noise:eps=x", "noise:epz=1", "noise:eps=1,eps=2", "noise:eps",
    "pgd:eps=1,norm=l3", "pgd:eps=1,when=sometimes", "pgd:eps=1,when=bernoulli(2)", "pgd:eps=1,steps=0",
    "pgd:eps=1,victim=zoo:nobody", "noise:eps=1,scale=1;;2", "noise:eps=nan", "rotation:eps=1", "saturation",
    "worst-action:by=nonsense", "daylight:game=Chess", "fixed-dynamics", "learned", "noise:eps=1,at=", "noise:'eps=1",
)  # fmt: skip


def data_text(data: Any) -> str:
    """A dictionary as a text."""
    return unplaced(json.dumps(data, sort_keys=True))


def unplaced(text: str) -> str:
    """Without the names of temporary folders."""
    return re.sub(re.escape(tempfile.gettempdir()) + r"/[\w.-]+", "FOLDER", text)


# 4. commands


COMMANDS = {  # calls that follow one another in an empty folder
    "threats": ["threats", "threats --json"],
    "victims": ["victims", "victims --json"],
    "nothing": ["", "--version"],
    "evaluate": [
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --threat noise:eps=0.1 --episodes 2 --json --out o",
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --threat flip --episodes 2 --json --out o --resume",
        "report o --out page.html",
    ],
    "evaluate the best of three": [
        "evaluate CartPole-v1 VICTIM --threat noise:eps=0.3 --best-of 3 --by loss --measure 2=0.2 --episodes 2 --json"
    ],
    "evaluate a stack that samples": [
        "evaluate CartPole-v1 VICTIM --threat 'noise:eps=0.1 + action-flip:p=0.5' --select sample --episodes 3 --json"
    ],
    "evaluate from a minimum": ["evaluate CartPole-v1 VICTIM --minimum worst-action --episodes 2 --wide"],
    "evaluate seeds into a store": [
        "evaluate CartPole-v1 VICTIM --threat noise:eps=0.1 --threat noise:eps=0.3 --episodes 2 --seeds 0,1 --store s",
        "plot s --json --out p.png", "plot s --x seed --y impact --hue threat --json --out q.svg",
    ],
    "gate": [
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --episodes 10 --at-least 400 --json",
        "evaluate CartPole-v1 VICTIM --threat noise:eps=0.01 --episodes 10 --at-least 50 --junit j.xml --json",
    ],
    "certify": ["certify CartPole-v1 VICTIM --eps 0.01 --episodes 1 --max-nodes 100 --attack noise --json --out o"
        " --env-kwargs max_episode_steps=60"],
    "suite": ["suite CartPole-v1 VICTIM --eps 0.1 --no-train --attack noise --attack pgd --episodes 2 --json --out o"],
    "look": ["look CartPole-v1 VICTIM --step 3 --threat noise:eps=0.1 --threat pgd:eps=0.1 --json"],
    "look at pixels": ["look PongNoFrameskip-v4 --step 2 --threat rotation:degrees=4 --threat noise:eps=3 --json"],
    "train-agent": [
        "train-agent CartPole-v1 --adversary none --steps 256 --num-envs 4 --checks 1 --episodes 2 --out ag --json"
    ],
    "imitate": ["imitate CartPole-v1 VICTIM --queries 400 --rounds 1 --episodes 2 --no-attacks --json --out im"],
    "run": ["run plan.json --store s --json"],
}  # fmt: skip
WRONG_COMMANDS = (
    "nonsense", "evaluate", "evaluate CartPole-v1", "evaluate CartPole-v1 VICTIM --nonsense",
    "run nowhere.toml --store s",
    "evaluate CartPole-v1 VICTIM --episodes 0", "evaluate CartPole-v1 VICTIM --episodes 99999999999",
    "evaluate CartPole-v1 VICTIM --minimum low", "evaluate CartPole-v1 --victim zoo:nobody",
    "evaluate CartPole-v1 --victim nobody", "evaluate Acrobot-v1 VICTIM", "evaluate Nowhere-v0 VICTIM",
    "evaluate CartPole-v1 VICTIM --threat nonsense", "evaluate CartPole-v1 VICTIM --device cuda:99",
    "evaluate CartPole-v1 VICTIM --resume", "evaluate CartPole-v1 VICTIM --by loss",
    "evaluate CartPole-v1 VICTIM --measure own", "evaluate CartPole-v1 VICTIM --best-of 999999999",
    "evaluate CartPole-v1 VICTIM --stats a", "evaluate CartPole-v1 --victim onnx:a.onnx",
    "evaluate CartPole-v1 VICTIM --threat max-diff", "evaluate CartPole-v1 VICTIM --threat max-diff:eps=-1",
    "evaluate CartPole-v1 VICTIM --threat noise:eps=1,scale=victim", "evaluate CartPole-v1 VICTIM --seeds 0,1",
    "evaluate CartPole-v1 VICTIM --env-kwargs nonsense", "evaluate CartPole-v1 VICTIM --junit j.xml",
    "suite CartPole-v1 VICTIM --eps -1", "suite CartPole-v1 VICTIM --eps 1 --scale victim",
    "suite CartPole-v1 VICTIM --eps 1 --attack nonsense", "certify CartPole-v1 VICTIM",
    "certify CartPole-v1 VICTIM --eps 1 --eps 1", "certify CartPole-v1 VICTIM --eps 1 --attack pgd:by=1",
    "certify Hopper-v5 --victim zoo:hopper-ppo --eps 0.1", "look CartPole-v1 --raw", "report nowhere",
    "look PongNoFrameskip-v4 --threat fgsm:eps=1", "plot nowhere", "standing add zoo:cartpole-dqn", "standing nonsense",
    "train-dynamics Hopper-v5 --victim zoo:hopper-ppo --random 3 --out o",
    "train-critic Hopper-v5 --victim zoo:hopper-ppo --eps -1 --out o", "train-adversary CartPole-v1 VICTIM --out o",
    "train-adversary CartPole-v1 VICTIM --out o --eps 1 --kind sa-rl --form target",
    "train-adversary CartPole-v1 VICTIM --out o --eps 1 --kind nonsense", "train-agent CartPole-v1 --out o",
    "train-agent CartPole-v1 --out o --robust sa", "train-agent CartPole-v1 --out o --eps 1 --algorithm trpo",
    "train-agent CartPole-v1 --out o --eps 1 --adversary nobody", "imitate CartPole-v1 VICTIM --queries 60 --out o",
    "train-agent FrozenLake-v1 --adversary none --out o",
    "resilience CartPole-v1 --victim zoo:cartpole-ppo --by q --out o",
    "resilience CartPole-v1 VICTIM --r-max nan --out o", "robustness CartPole-v1 VICTIM --out o",
)  # fmt: skip
PLAN = {
    "victims": ["zoo:cartpole-dqn", "zoo:cartpole-ppo"], "threats": ["noise", "pgd"],
    "environments": [{"id": "CartPole-v1", "kwargs": {"max_episode_steps": 60}}],
    "budgets": ["eps=0.1", "eps=0.3"], "timings": ["always", "every(3)"], "seeds": [0, 1], "episodes": 1,
}  # fmt: skip
TIMED = ("seconds", "ms_per_step", "minutes", "when", "created")  # columns that no two runs have alike


def commands() -> Items:
    """Help of every command, output and exit status of good and bad calls, and the files that they leave."""
    found: Items = {f"help {' '.join(path)}": functools.partial(help_of, path) for path in command_paths()}
    found |= {f"call {name}": functools.partial(called, calls) for name, calls in COMMANDS.items()}
    found |= {f"wrong {words}": functools.partial(called, [words]) for words in WRONG_COMMANDS}
    return found


def command_paths(group: Any = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, by its words."""
    group = group or inner("main")
    found = [path]
    for name, command in sorted(getattr(group, "commands", {}).items()):
        found += command_paths(command, (*path, name))
    return found


def invoke(words: str) -> Any:
    """The result of a call in this process."""
    import shlex

    from click.testing import CliRunner

    words = words.replace("VICTIM", "--victim zoo:cartpole-dqn")
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(inner("main"), shlex.split(words))


def help_of(path: tuple[str, ...]) -> list[str]:
    """What ``--help`` prints."""
    return invoke(" ".join([*path, "--help"])).output.splitlines()


def called(calls: Sequence[str]) -> list[Value]:
    """Of every call its exit status and what it printed, and at the end the files of the folder."""
    out = list[Value]()
    with in_folder() as folder:
        Path("plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
        for words in calls:
            done = invoke(words)
            printed = untimed(printed_json(done.stdout)) if "--json" in words else lines_of(done.stdout, folder)
            said = lines_of(done.stderr, folder) if done.exit_code else []
            out.append({"status": done.exit_code, "printed": printed, "error": said})
        out.append(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
    return out


@contextlib.contextmanager
def in_folder() -> Iterator[Path]:
    """An empty folder, which is the current one."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name).resolve()


def printed_json(text: str) -> Value:
    """What was printed, read as JSON where it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def lines_of(text: str, folder: Path) -> list[str]:
    """Lines without the place of the folder and without times."""
    text = text.replace(str(folder), "FOLDER")
    return [re.sub(r"\b[\d.]+ (s|ms|seconds|minutes)\b", r"N \1", line.rstrip()) for line in text.splitlines()]


def untimed(value: Value) -> Value:
    """Without what no two runs have alike."""
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if key not in TIMED}
    return [untimed(one) for one in value] if isinstance(value, list) else value


# 5. evaluation


AGENTS = {  # threats by kind of agent, with a radius for each environment; episodes, steps of an episode
    "vector": (
        "none", "noise:eps={eps}", "noise:eps={eps},kind=sign", "fgsm:eps={eps}", "pgd:eps={eps},norm=l2",
        "max-diff:eps={eps},when=every(3)", "momentum:eps={eps}", "min-q:eps={eps}", "max-worst:eps={eps}",
        "apgd:eps={eps},restarts=1,steps=5", "square:eps={eps},queries=8",
        "carlini-wagner:eps={eps},searches=2,steps=5",
        "sensor-bias:eps={eps}", "quantization:eps={eps}", "observation-delay:steps=2", "action-flip:p=0.2",
        "worst-action:p=0.2", "action-noise:eps=0.1", "noise:eps={eps},when=bernoulli(0.5) + action-delay:steps=1",
    ),
    "image": (
        "none", "noise:eps=4", "fgsm:eps=1", "pgd:eps=1,restarts=1,steps=3", "max-diff:eps=2,steps=3",
        "rotation:degrees=3", "jpeg:quality=20", "brightness:alpha=1.2,beta=20", "median-blur", "shift:dx=2,dy=1",
        "perspective", "action-flip:p=0.3",
    ),
}  # fmt: skip
RADII = {
    "CartPole-v1": "0.2", "MountainCar-v0": "0.01", "Hopper-v5": "0.075,scale=victim",
    "Walker2d-v5": "0.05,scale=victim",
}  # fmt: skip


def evaluation() -> Items:
    """Every agent of the zoo under a dozen threats: 5 episodes, cut to 100 steps; 2 of 20 steps for images."""
    found: Items = {}
    for victim in json.loads(invoke("victims --json").stdout):
        kind = "image" if "NoFrameskip" in victim["environment"] else "vector"
        for text in AGENTS[kind]:
            text = text.format(eps=RADII.get(victim["environment"], "0.05"))
            key = f"{victim['victim']} {text}"
            found[key] = functools.partial(evaluated, victim["victim"], victim["environment"], text, kind)
    return found


def evaluated(victim: str, env: str, text: str, kind: str) -> Value:
    """The row of a threat."""
    episodes, steps = (5, 100) if kind == "vector" else (2, 20)
    threats = [] if text == "none" else [text.split(" + ")]
    how: Any = {"env_kwargs": {"max_episode_steps": steps}, "distances": ("ssim", "psnr") if kind == "image" else None}
    try:
        report = adv.evaluate(victim, env, threats, episodes, 3, **how)
    except adv.AdvWrappersError as error:
        return f"{type(error).__name__}: {error}"
    row = dict(report.threats[-1])
    row["returns"] = [exact(one) for one in row["returns"]]
    return untimed({**row, "layers": digest(data_text(row["layers"]))})


# running and comparing


@dataclasses.dataclass(frozen=True)
class Section:
    """One kind of behaviour.

    Attributes:
        items: the keys and what computes their values.
        tolerance: of floats.
        test: ``tests/test_recorded.py`` compares one key of so many; 0 leaves the section out.
    """

    items: Callable[[], Items]
    tolerance: float = 1e-6
    test: int = 10


SECTIONS = {
    "attacks": Section(attacks, 1e-5, test=40),
    "names": Section(names, 0.0, test=1),
    "threats": Section(threats, 0.0, test=4),
    "commands": Section(commands, 1e-6, test=7),
    "evaluation": Section(evaluation, 1e-6, test=60),
}


@functools.cache
def items_of(section: str) -> Items:
    """A section's keys."""
    return SECTIONS[section].items()


def compute(place: tuple[str, str]) -> tuple[tuple[str, str], Value, float]:
    """The value of a key, an error as a text, and the seconds that it took."""
    section, key = place
    began = time.perf_counter()
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            value = plain(items_of(section)[key]())
    except Exception as error:
        if os.environ.get("RECORD_TRACEBACKS"):
            traceback.print_exc(file=sys.__stderr__)
        value = f"raises {type(error).__name__}: {error}"
    return place, value, time.perf_counter() - began


def begin() -> None:
    """One thread a process: results and times do not depend on how many cores there are."""
    torch.set_num_threads(1)
    os.environ.setdefault("MPLBACKEND", "agg")


def computed(places: Sequence[tuple[str, str]], jobs: int) -> Iterator[tuple[tuple[str, str], Value, float]]:
    """Every key's value, as they come."""
    begin()
    if jobs < 2:
        yield from map(compute, places)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, begin) as pool:
        yield from pool.imap_unordered(compute, places, chunksize=4)


def file_of(section: str) -> Path:
    """Where a section is kept."""
    return FOLDER / f"{section}.json"


@functools.cache
def stored(section: str) -> dict[str, Value]:
    """What is kept of a section."""
    return json.loads(file_of(section).read_text(encoding="utf-8")) if file_of(section).exists() else {}


def store(section: str, values: Mapping[str, Value]) -> None:
    """One line a key, in the order of keys, so that a change of a file can be read."""
    lines = [f"{json.dumps(key)}: {json.dumps(values[key], separators=(',', ':'))}" for key in sorted(values)]
    FOLDER.mkdir(exist_ok=True)
    file_of(section).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def exceptions() -> dict[str, str]:
    """Differences that are allowed, and why."""
    return json.loads((FOLDER / "exceptions.json").read_text(encoding="utf-8"))


def changed(section: str, key: str, was: Value, now: Value) -> list[str]:
    """A line for every difference of a key's value that no exception allows."""
    name = f"{section}: {key}"
    if any(fnmatch.fnmatchcase(name, pattern) for pattern in exceptions()):
        return []
    found = differences(was, now, SECTIONS[section].tolerance)
    return [f"{name}{place}\n    was {short(a)}\n    is  {short(b)}" for place, a, b in found]


def compared(section: str, keys: Sequence[str]) -> list[str]:
    """Lines of what differs from what is kept, of some keys of a section; computed in this process."""
    known = items_of(section)
    lines = [f"{section}: {key} is recorded no more" for key in keys if key not in known]
    for (_, key), now, _ in computed([(section, key) for key in keys if key in known], 1):
        lines += changed(section, key, stored(section).get(key), now)
    return lines


def short(value: Value, most: int = 300) -> str:
    """The beginning of a value."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[:most]}..."


def keys_to_test(section: str) -> list[str]:
    """The keys that the test compares: one of so many, spread over the section."""
    each = SECTIONS[section].test
    ordered = sorted(stored(section), key=lambda key: hashlib.sha256(key.encode()).hexdigest())
    return ordered[::each] if each else []


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--compare", action="store_true", help="with what is stored; exit status 1 if it differs")
    parser.add_argument("--write", action="store_true", help="store what was computed")
    parser.add_argument("--only", action="append", choices=[*SECTIONS], help="a section; again for more")
    parser.add_argument("--match", default="*", help="keys with this in them, or a pattern with *")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--times", action="store_true", help="print the slowest keys")
    given = parser.parse_args()
    pattern = given.match if "*" in given.match else f"*{given.match}*"
    sections = given.only or [*SECTIONS]
    places = [(s, key) for s in sections for key in items_of(s) if fnmatch.fnmatchcase(key, pattern)]
    values: dict[str, dict[str, Value]] = {section: {} for section in sections}
    seconds: dict[tuple[str, str], float] = {}
    began, lines = time.perf_counter(), list[str]()
    for (section, key), value, took in computed(places, given.jobs):
        values[section][key], seconds[section, key] = value, took
        if isinstance(value, str) and value.startswith("raises "):
            print(f"{section}: {key} {value}", file=sys.stderr)
    for section in sections:
        before = stored(section) if given.compare else {}
        gone = {key: None for key in before if key not in values[section] and fnmatch.fnmatchcase(key, pattern)}
        for key, now in {**values[section], **gone}.items() if given.compare else ():
            lines += changed(section, key, before.get(key), now)
        if given.write:
            store(section, values[section] if pattern == "*" else {**stored(section), **values[section]})
        took = sum(t for (s, _), t in seconds.items() if s == section)
        print(f"{section}: {len(values[section])} keys, {took:.1f} s")
    if given.times:
        for (section, key), took in sorted(seconds.items(), key=lambda one: -one[1])[:30]:
            print(f"{took:7.2f} s  {section}: {key}")
    print(f"{len(lines)} differences, {time.perf_counter() - began:.0f} s", *lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
