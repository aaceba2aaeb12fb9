"""End to end: environment steps a second of an agent at play, clean and under attack, and where the time goes.

    python benchmarks/rollout.py --victims FOLDER

Pong is ALE's vector environment under PGD-10 (one grey level), a rotation by 3 degrees and JPEG; HalfCheetah-v5 a
``SyncVectorEnv`` with a card of FOLDER under MaxDiff of 10 steps (without ``--victims`` Hopper-v5 and zoo:hopper-ppo).
Threats take turns; ratios and shares are medians over the rounds. Steps a second, of all rows, are by the clock on the
wall, as is the part of ALE, which has threads of its own; all else is processor time of one thread. The rest of the
wrapper is what ``step`` spends beside the environment and the attack.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym
from gymnasium.vector import SyncVectorEnv
from timing import Data, Page, Results, made_by, prose, table, timing_options

import adv_wrappers as adv
from adv_wrappers.victims.policy_runner import PolicyRunner

CLEAN = "clean"
PARTS = ("environment", "agent", "attack", "rest")


class Meter:
    """Seconds by name: on the wall, and of this thread's own."""

    def __init__(self) -> None:
        self.wall: Counter[str] = Counter()
        self.own: Counter[str] = Counter()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose calls are counted under ``name``."""

        def call(*args: Any, **kwargs: Any) -> Any:
            wall, own = time.perf_counter(), time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.own[name] += time.thread_time() - own
                self.wall[name] += time.perf_counter() - wall

        return call


class Row:
    """An agent at play in ``rows`` environments under one threat, or under none."""

    def __init__(self, env: Any, victim: adv.Victim, threat: adv.ThreatModel | None, threads: bool) -> None:
        self.meter, self.rows, self.threads = Meter(), env.num_envs, threads
        self.kind: Any = None  # of perturbation
        env.step = self.meter.timed("environment", env.step)
        if threat is not None:
            env = adv.wrap(env, threat)
            self.kind = type(env.threat.how)
        self.env, self.runner = env, PolicyRunner(victim, self.rows)
        self.runner.reset(seeds=0)
        self.obs = env.reset(seed=0)[0]
        self.act, self.step = self.meter.timed("agent", self.runner.act), self.meter.timed("step", env.step)

    def play(self, steps: int) -> dict[str, float]:
        """Seconds a step of each part, and on the wall altogether."""
        self.meter.wall.clear()
        self.meter.own.clear()
        watch: Any = contextlib.nullcontext()
        if self.kind is not None:
            watch = mock.patch.object(self.kind, "__call__", self.meter.timed("attack", self.kind.__call__))
        with watch:
            started = time.perf_counter()
            for _ in range(steps):
                self.obs, _, terminated, truncated, _ = self.step(self.act(self.obs))
                over = terminated | truncated
                if over.any():
                    self.runner.reset(over)
            wall = time.perf_counter() - started
        own = self.meter.own
        found = {
            "environment": (self.meter.wall if self.threads else own)["environment"],
            "agent": own["agent"],
            "attack": own["attack"],
            "rest": own["step"] - own["environment"] - own["attack"],
            "wall": wall,
        }
        return {name: seconds / steps for name, seconds in found.items()}


def measure(rows: dict[str, Row], rounds: int, least: float) -> list[dict[str, Any]]:
    """One environment and size: a line a threat."""
    steps = {}
    for name, row in rows.items():
        row.play(3)
        steps[name] = max(2, round(least / row.play(3)["wall"]))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    names = list(rows)
    for i in range(rounds):
        at = i % len(names)
        for name in names[at:] + names[:at]:
            found[name].append(rows[name].play(steps[name]))

    def median(name: str, value: Callable[[dict[str, float]], float]) -> float:
        return statistics.median(value(block) for block in found[name])

    def walls(name: str) -> list[float]:
        return [block["wall"] for block in found[name]]

    def parts(block: dict[str, float]) -> float:
        return sum(block[part] for part in PARTS)

    return [
        {
            "threat": name,
            "num_envs": row.rows,
            "steps_a_block": steps[name],
            "steps_per_second": row.rows / median(name, lambda block: block["wall"]),
            "of_clean": statistics.median(c / b for c, b in zip(walls(CLEAN), walls(name), strict=True)),
            "milliseconds": {part: 1000 * median(name, lambda block, part=part: block[part]) for part in PARTS},
            "shares": {part: median(name, lambda block, part=part: block[part] / parts(block)) for part in PARTS},
            "accounted": median(name, lambda block: parts(block) / block["wall"]),
        }
        for name, row in rows.items()
    ]


def pong(count: int) -> dict[str, Row]:
    """Pong's rows, of ``count`` games each."""
    victim = adv.load_victim("zoo:pong-ppo")
    threats = {
        CLEAN: None,
        "PGD-10": adv.threat("pgd", victim, eps=1),
        "rotation": adv.threat("rotation", degrees=3),
        "JPEG": adv.threat("jpeg"),
    }
    return {n: Row(adv.atari.atari_vec("PongNoFrameskip-v4", count), victim, t, True) for n, t in threats.items()}


def runner(victim: adv.Victim, env_id: str, count: int) -> dict[str, Row]:
    """The rows of an agent that runs."""
    eps = float(((victim.card or {}).get("attack") or {}).get("eps", 0.075))
    threats = {CLEAN: None, "MaxDiff-10": adv.threat("max-diff", victim, eps=eps, scale="victim", steps=10)}
    rows = {name: SyncVectorEnv([lambda: gym.make(env_id)] * count) for name in threats}
    return {name: Row(rows[name], victim, threat, False) for name, threat in threats.items()}


def victim_of(folder: Path | None) -> tuple[adv.Victim, str]:
    """The agent that runs, and its environment."""
    found = sorted(folder.glob("*halfcheetah*/card.json")) if folder else []
    if not found:
        return adv.load_victim("zoo:hopper-ppo"), "Hopper-v5"
    return adv.load_victim(f"card:{found[0].parent}"), "HalfCheetah-v5"


def head(data: Data) -> str:
    """Which command made the page, on which machine, and who plays."""
    played = {row["environment"]: row["agent"] for row in data["rows"]}
    agents = ", ".join(f"{name} is played by {agent}" for name, agent in played.items())
    return f"{made_by({**data, 'releases': agents})} Milliseconds are those of one step of the whole batch."


def body(data: Data) -> list[str]:
    """The page after its head."""
    header = [
        "environment",
        "rows",
        "threat",
        "steps a second",
        "of clean",
        "environment, ms",
        "agent, ms",
        "attack, ms",
        "rest of the wrapper, ms",
        "share of the attack",
    ]
    lines = [
        [
            r["environment"],
            r["num_envs"],
            r["threat"],
            f"{r['steps_per_second']:.0f}",
            f"{r['of_clean']:.0%}",
            *(f"{r['milliseconds'][part]:.2f}" for part in PARTS),
            f"{r['shares']['attack']:.0%}",
        ]
        for r in data["rows"]
    ]
    return [*prose(__doc__), table(header, lines)]


def measure_all(results: Results) -> None:
    """Every environment, anew."""
    given, lines = results.given, []
    runs, env_id = victim_of(given.victims)
    agent = (runs.card or {}).get("name", runs.ref)
    jobs: list[tuple[str, str, Callable[[], dict[str, Row]]]] = [
        *(("Pong", "zoo:pong-ppo", lambda count=count: pong(count)) for count in (8, 32, 128)),
        *((env_id, str(agent), lambda count=count: runner(runs, env_id, count)) for count in (8, 32)),
    ]
    for name, who, make in jobs:
        rows = make()
        for found in measure(rows, given.rounds, given.least):
            lines.append({"environment": name, "agent": who, **found})
            parts = "  ".join(f"{part} {found['milliseconds'][part]:8.2f}" for part in PARTS)
            print(
                f"{name:15} x {found['num_envs']:3} {found['threat']:10} {found['steps_per_second']:7.0f} steps/s "
                f"{found['of_clean']:5.0%} of clean   ms: {parts}   attack {found['shares']['attack']:4.0%}   "
                f"accounted {found['accounted']:4.0%}",
                flush=True,
            )
        for row in rows.values():
            row.env.close()
    results.data["rows"] = lines
    results.keep()


PAGE = Page(
    "rollout",
    "Rollouts under attack, end to end",
    __doc__,
    measure_all,
    body,
    page="speed",
    options={
        "--victims": {"type": Path, "help": "folder of cards; None takes zoo:hopper-ppo"},
        **timing_options(11, 0.5),
    },
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
