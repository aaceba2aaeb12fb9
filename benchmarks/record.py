"""What the library does today, kept in ``tests/recorded`` so that a redesign can be compared with it.

    python benchmarks/record.py --compare --jobs 2          # exit status 1, and a line for every difference
    python benchmarks/record.py --write --only bounds       # after a change that was meant
    python benchmarks/record.py --compare --only attacks --match noise
    python benchmarks/record.py --compare --victims FOLDER  # the answers of cards too, where they were written before
    python benchmarks/record.py --compare --speed           # ratios of benchmarks that moved by more than a tenth

A section is a function that answers a dictionary: a key, and a function of no arguments that computes the key's value.
Sections are in ``benchmarks/recording``. Values are what JSON holds: floats are compared within the tolerance of their
section, relative to values above 1, and everything else exactly. ``tests/test_recorded.py`` compares a part of each.

Recording goes through public names, through commands, and through ``tests/rigs.py`` and ``tests/laws/checks.py``. The
few names that have no public place are in ``recording/values.py``: when a module moves, its line there follows.
What was written anew since the first recording, and why, is in ``tests/recorded/CHANGES.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import io
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "recorded"
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.recording import (  # noqa: E402
    answers,
    attacks,
    bounds,
    certificates,
    commands,
    evaluation,
    names,
    reports,
    searches,
    speed,
    trainings,
)
from benchmarks.recording.values import Items, Value, differences, plain  # noqa: E402

SLOWER = 0.1  # changes of a ratio that are reported


@dataclasses.dataclass(frozen=True)
class Section:
    """One kind of behaviour.

    Attributes:
        items: the keys and what computes their values.
        tolerance: of floats.
        test: what ``tests/test_recorded.py`` compares: one key of so many, or the keys of some patterns.
    """

    items: Callable[[], Items]
    tolerance: float = 1e-6
    test: int | tuple[str, ...] = 10


SECTIONS = {
    "attacks": Section(attacks.attacks, 1e-5, test=320),
    "names": Section(names.names, 0.0, test=1),
    "threats": Section(names.threats, 0.0, test=8),
    "commands": Section(commands.commands, 1e-6, test=("help *", "wrong *", "call threats", "call gate")),
    "evaluation": Section(evaluation.evaluation, 1e-6, test=("*cartpole-dqn f*", "*hopper-ppo se*", "*pong-ppo r*")),
    "answers": Section(answers.answers, 1e-5, test=24),
    "bounds": Section(bounds.bounds, 1e-6, test=40),
    "certificates": Section(certificates.certificates, 1e-6, test=("zoo:mountaincar*", "smoothed*")),
    "searches": Section(searches.searches, 1e-6, test=("fewest*a2c", "worst*cartpole*random")),
    "suites": Section(reports.suites, 0.0, test=12),
    "reports": Section(reports.reports, 1e-6, test=1),
    "trainings": Section(trainings.trainings, 1e-6, test=("adversary sa-rl ppo", "dynamics")),
    "cards": Section(answers.cards, 1e-5, test=()),
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
    except ImportError:
        value = MISSING
    except Exception as error:
        if os.environ.get("RECORD_TRACEBACKS"):
            traceback.print_exc(file=sys.__stderr__)
        value = f"raises {type(error).__name__}: {error}"
    return place, value, time.perf_counter() - began


MISSING = "a library is missing"  # such keys are neither stored nor compared


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


def releases() -> dict[str, str]:
    """What figures were made with: others may round, draw or print differently."""
    import importlib.metadata as metadata
    import platform

    packages = (
        "torch", "numpy", "gymnasium", "stable-baselines3", "sb3-contrib", "opencv-python-headless", "opencv-python",
        "ale-py", "mujoco", "dm-control", "cma", "onnxruntime", "safetensors", "click", "rich", "Jinja2",
    )  # fmt: skip
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def other_releases() -> list[str]:
    """Which releases are not those that were recorded with."""
    here = releases()
    return [f"{name} {was}, here {here.get(name)}" for name, was in stored("releases").items() if here.get(name) != was]


def changed(section: str, key: str, was: Value, now: Value) -> list[str]:
    """A line for every difference of a key's value."""
    if now == MISSING:
        return []
    found = differences(was, now, SECTIONS[section].tolerance)
    return [f"{section}: {key}{place}\n    was {short(a)}\n    is  {short(b)}" for place, a, b in found]


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
    """The keys that the test compares; one of so many are spread over the section."""
    chosen = SECTIONS[section].test
    if isinstance(chosen, tuple):
        return [key for key in stored(section) if any(fnmatch.fnmatchcase(key, pattern) for pattern in chosen)]
    return sorted(stored(section), key=lambda key: hashlib.sha256(key.encode()).hexdigest())[::chosen]


def speed_changes(now: Mapping[str, float]) -> list[str]:
    """A line for every ratio that moved by more than a tenth."""
    was = stored("speed")
    both = [(name, was[name], now[name]) for name in was if name in now]
    return [f"{name}: was {a:.3f}, is {b:.3f}" for name, a, b in both if abs(b / a - 1) > SLOWER]


def main_of_speed(given: argparse.Namespace) -> int:
    """The command with ``--speed``."""
    now = speed.speed()
    lines = speed_changes(now) if given.compare else [f"{name}: {ratio:.3f}" for name, ratio in now.items()]
    if given.write:
        store("speed", plain(now))
    print(*lines, sep="\n")
    return 1 if given.compare and lines else 0


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--compare", action="store_true", help="with what is stored; exit status 1 if it differs")
    parser.add_argument("--write", action="store_true", help="store what was computed")
    parser.add_argument("--only", action="append", choices=[*SECTIONS], help="a section; again for more")
    parser.add_argument("--match", default="*", help="keys with this in them, or a pattern with *")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--times", action="store_true", help="print the slowest keys")
    parser.add_argument("--speed", action="store_true", help="ratios of the benchmarks alone, on an idle machine")
    parser.add_argument("--victims", type=Path, help="folder of cards, of which the section cards is made")
    given = parser.parse_args()
    if given.victims:
        os.environ["RECORD_VICTIMS"] = str(given.victims.resolve())
    if given.speed:
        return main_of_speed(given)
    pattern = given.match if "*" in given.match else f"*{given.match}*"
    sections = given.only or [name for name in SECTIONS if name != "cards" or given.victims]
    places = [(s, key) for s in sections for key in items_of(s) if fnmatch.fnmatchcase(key, pattern)]
    values: dict[str, dict[str, Value]] = {section: {} for section in sections}
    seconds: dict[tuple[str, str], float] = {}
    began, lines = time.perf_counter(), list[str]()
    for (section, key), value, took in computed(places, given.jobs):
        seconds[section, key] = took
        values[section][key] = stored(section).get(key, MISSING) if value == MISSING else value
        if isinstance(value, str) and value.startswith("raises "):
            print(f"{section}: {key} {value}", file=sys.stderr)
    for section in sections:
        before = stored(section) if given.compare else {}
        gone = {key: None for key in before if key not in values[section] and fnmatch.fnmatchcase(key, pattern)}
        for key, now in {**values[section], **gone}.items() if given.compare else ():
            lines += changed(section, key, before.get(key), now)
        if given.write:
            kept = {key: value for key, value in stored(section).items() if key in items_of(section)}
            new = {key: value for key, value in values[section].items() if value != MISSING}
            store(section, {**(kept if pattern != "*" else {}), **new})
            store("releases", releases())
        took = sum(t for (s, _), t in seconds.items() if s == section)
        print(f"{section}: {len(values[section])} keys, {took:.1f} s")
    if given.times:
        for (section, key), took in sorted(seconds.items(), key=lambda one: -one[1])[:30]:
            print(f"{took:7.2f} s  {section}: {key}")
    if lines and other_releases():
        print("recorded with other releases:", "; ".join(other_releases()))
    print(f"{len(lines)} differences, {time.perf_counter() - began:.0f} s", *lines, sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
