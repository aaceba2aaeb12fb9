"""Certificates beside attacks: the worst case of every deterministic agent of the zoo, from both sides.

    python benchmarks/reproduce/certificates.py --work FOLDER [--victims FOLDER] [--only NAME ...]

CartPole's agents at three radii in the units of the observation, MountainCar's at three in half-ranges of its space,
and Atari's at one grey level: Pong to the first point, RoadRunner and BankHeist for a hundred decisions. Every episode
is certified and attacked from the same start; an attacked episode below its certificate stops the script, and
``counterexample.json`` in the folder says which. With ``--victims`` every card of that folder for CartPole or
MountainCar is measured too, such as those that RADIAL trained. Searches stop after a number of simulated steps, or of
boxes, so the figures do not depend on the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
from figures import table
from gymnasium import spaces
from page import Data, Page, Results, episode_options, hardware

import adv_wrappers as adv
from adv_wrappers.atari.env import atari
from adv_wrappers.certification.ranges import CertifiedRange, CertifiedRanges, certified_ranges
from adv_wrappers.victims import environment_of
from adv_wrappers.victims.certified_actions import Method

HALF = (0.9, 0.07)  # half of the ranges of MountainCar's positions and speeds
ATTACKS = ("pgd", "max-diff", "beam")


class FirstPoint(gym.Wrapper):
    """A game that ends with its first point."""

    def step(self, action: Any) -> Any:
        """The step of the game, which is over once it has brought a reward."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated or reward != 0, truncated, info


def pong() -> gym.Env[Any, Any]:
    """Pong to the first point."""
    return FirstPoint(atari("PongNoFrameskip-v4"))


def roadrunner() -> gym.Env[Any, Any]:
    """The first hundred decisions of RoadRunner."""
    return gym.wrappers.TimeLimit(atari("RoadRunnerNoFrameskip-v4"), 100)


def bankheist() -> gym.Env[Any, Any]:
    """The first hundred decisions of BankHeist."""
    return gym.wrappers.TimeLimit(atari("BankHeistNoFrameskip-v4"), 100)


@dataclass(frozen=True)
class Case:
    """An agent, its environment, and the radii."""

    name: str
    ref: str
    env: str | Callable[[], gym.Env[Any, Any]]
    eps: tuple[float, ...]
    scale: tuple[float, ...] | None = None
    episodes: int | None = None
    max_nodes: int | None = None
    max_boxes: int | None = None
    width: int = 32
    attacks: tuple[str, ...] = ATTACKS
    least_return: float | None = None
    method: Method | None = None


CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "eps": (0.01, 0.02, 0.05), "max_boxes": 500_000, "width": 128}
MOUNTAINCAR: dict[str, Any] = {"env": "MountainCar-v0", "eps": (0.005, 0.01, 0.05), "scale": HALF, "max_boxes": 500_000}
ATARI: dict[str, Any] = {"width": 2, "attacks": ("min-best", "beam")}
CASES = (
    *(Case(f"cartpole-{kind}", f"zoo:cartpole-{kind}", **CARTPOLE) for kind in (
        "dqn", "radial-dqn", "a2c", "ppo", "radial-ppo"
    )),
    Case("mountaincar-dqn", "zoo:mountaincar-dqn", **MOUNTAINCAR),
    Case("pong-ppo", "zoo:pong-ppo", pong, (1.0,), episodes=1, max_nodes=200, least_return=-1.0, **ATARI),
    Case(
        "pong-radial-ppo", "zoo:pong-radial-ppo", pong, (1.0,), max_nodes=5000, least_return=-1.0, method="interval",
        **ATARI,
    ),
    *(
        case for game in (roadrunner, bankheist) for case in (
            Case(
                f"{game.__name__}-ppo", f"zoo:{game.__name__}-ppo", game, (1.0,), episodes=1, max_nodes=200,
                least_return=0.0, method="interval", **ATARI,
            ),
            Case(
                f"{game.__name__}-radial-ppo", f"zoo:{game.__name__}-radial-ppo", game, (1.0,), max_nodes=5000,
                least_return=0.0, method="interval", **ATARI,
            ),
        )
    ),
)  # fmt: skip


def cases(victims: Path | None) -> Iterator[Case]:
    """The agents of the zoo, and those of a folder of cards that play one of its games by their mode."""
    yield from CASES
    for folder in sorted(victims.iterdir()) if victims is not None else ():
        if not (folder / "card.json").exists():
            continue
        victim = adv.load_victim(f"card:{folder}")
        about = {"CartPole-v1": CARTPOLE, "MountainCar-v0": MOUNTAINCAR}.get(environment_of(victim.card or {})[0])
        fits = isinstance(victim.action_space, spaces.Discrete) and not victim.recurrent and victim.select == "mode"
        if about is not None and fits:
            yield Case(folder.name, f"card:{folder}", **about)


def ranges_of(data: dict[str, Any]) -> CertifiedRanges:
    """Ranges as the results hold them."""
    return CertifiedRanges(data["settings"], tuple(map(CertifiedRange.from_dict, data["ranges"])))


def body(data: Data) -> list[str]:
    """The section after its head."""
    lines = []
    for name, one in data["agents"].items():
        found, about = ranges_of(one), one["settings"]
        for row, attacked in zip(found.table().rows, found.ranges, strict=True):
            lines.append([name, about["episodes"], *row, ", ".join(attacked.attacks)])
    return [
        "Every episode is certified and attacked from the same start. `certified`: no attack within eps leaves a lower "
        "mean on these episodes. `attacked`: the mean of what the strongest of the attacks named leaves of each; "
        "others may leave less. `GWC` is an estimate and no bound; `ACR` the share of steps of the clean episode with "
        "one possible action; `AWC` is known where all searches are finished. No attacked episode is below its own "
        "certificate. Budgets are Linf, in raw units, half-ranges of MountainCar, or grey levels. Pong ends with its "
        "first point, RoadRunner and BankHeist after a hundred decisions: these rows show that bounds and attacks "
        "meet, not how well an agent plays.",
        table(["agent", "episodes", *found.table().columns, "attacks"], lines),
    ]


def measure(results: Results) -> None:
    """Certify and attack what is missing."""
    given, agents = results.given, results.part("agents")
    line = results.made.pop("command")  # of every agent its own
    for case in cases(given.victims):
        if given.only and case.name not in given.only:
            continue
        for count in range(1, len(case.eps) + 1):
            found = ranges(case, count, given)
            agents[case.name] = {"command": line, **found}
            results.keep()
            print(ranges_of(found), flush=True)


def head(data: Data) -> str:
    """Which commands made it."""
    lines = dict.fromkeys(one[key] for one in data["agents"].values() for key in ("command",))
    return f"Made by {', '.join(f'`{line}`' for line in lines)} on {hardware(data['machine'])}."


def ranges(case: Case, count: int, given: argparse.Namespace) -> dict[str, Any]:
    """What is certified of an agent at the first radii, and what attacks leave; finished radii lie in the folder."""
    found = certified_ranges(
        case.ref,
        case.env,
        case.eps[:count],
        case.episodes or given.episodes,
        given.seed,
        case.method or given.method,
        None,
        scale=case.scale,
        attacks=case.attacks,
        least_return=case.least_return,
        max_nodes=case.max_nodes or given.max_nodes,
        max_boxes=case.max_boxes,
        width=case.width,
        out=given.work / case.name,
    )
    result: dict[str, Any] = json.loads(json.dumps(found.to_dict()))
    result["settings"]["victim"]["ref"] = case.ref if case.ref.startswith("zoo:") else f"card:{case.name}"
    for one in result["ranges"]:
        one["certificate"]["victim"] = result["settings"]["victim"]["ref"]
    return result


PAGE = Page(
    "certificates",
    "Certificates beside attacks",
    __doc__,
    measure,
    body,
    page="certificates",
    options={
        "--work": {"type": Path, "help": "folder for everything that is played"},
        "--victims": {"type": Path, "help": "folder of further cards"},
        **episode_options(5),
        "--max-nodes": {"type": int, "default": 20_000},
        "--method": {"default": "crown", "choices": get_args(Method), "help": "of the bounds on the network"},
        "--only": {"nargs": "*", "help": "names of agents"},
    },
    needs=["--work"],
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
