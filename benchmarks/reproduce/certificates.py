"""Certificates beside attacks: the worst case of every deterministic agent of the zoo, from both sides.

    python benchmarks/reproduce/certificates.py --work FOLDER [--victims FOLDER] [--only NAME ...]

CartPole's agents at three radii in the units of the observation, MountainCar's at three in half-ranges of its space,
and Atari's at one grey level: Pong to the first point, RoadRunner and BankHeist for a hundred decisions. Every episode
is certified and attacked from the same start; an attacked episode below its certificate stops the script, and
``counterexample.json`` in the folder says which. With ``--victims`` every card of that folder for CartPole or
MountainCar is measured too, such as those that RADIAL trained. Searches stop after a number of simulated steps, or of
boxes, so the figures do not depend on the machine. ``--beam EPS ...`` certifies nothing, and searches with the beam
again at radii that are there, as when the search has changed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
from figures import table
from gymnasium import spaces
from page import Data, Page, Results, episode_options
from radial_paper import AGENTS, POINTS, POINTS_EPISODES, table_1

import adv_wrappers as adv
from adv_wrappers.atari.env import atari
from adv_wrappers.certification.ranges import CertifiedRange, CertifiedRanges, certified_ranges
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.beam import beam_search
from adv_wrappers.victims import environment_of
from adv_wrappers.victims.possible_actions import Method

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
CONTINUOUS = (("zoo:hopper-ppo", "Hopper-v5"), ("zoo:walker2d-ppo", "Walker2d-v5"))


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


def refused() -> dict[str, str]:
    """What certify says of the zoo's agents with continuous actions."""
    found = {}
    for ref, env in CONTINUOUS:
        try:
            adv.certify(ref, env, 0.05, 1)
        except AdvWrappersError as error:
            found[ref] = str(error)
    return found


def ranges_of(data: dict[str, Any]) -> CertifiedRanges:
    """Ranges as the results hold them."""
    names = ("eps", "certificate", "attacks", "left_out")
    return CertifiedRanges(data["settings"], tuple(CertifiedRange(*map(one.get, names)) for one in data["ranges"]))


def search_again(case: Case, result: dict[str, Any], radii: list[float]) -> None:
    """Search with the beam again at some radii of an agent, and put what is found in place of what was.

    At all of its radii the beam is as wide as the script says now, and else as wide as it was.
    """
    about = result["settings"]
    if all(one["eps"] in radii for one in result["ranges"]):
        about["width"] = case.width
    for one, certified in zip(result["ranges"], ranges_of(result).ranges, strict=True):
        if one["eps"] in radii and "beam" in one["attacks"]:
            found = beam_search(
                case.ref, case.env, one["eps"], about["episodes"], about["seed"], about["width"], scale=case.scale
            ).returns
            if (found < certified.lower_returns).any():
                raise SystemExit(f"{case.name} at {one['eps']:g}: {found} is below {certified.lower_returns}")
            one["attacks"]["beam"] = found.tolist()


def picture_of(name: str) -> str:
    """The file of an agent's figure."""
    return f"certificates_{re.sub(r'[^a-z0-9]', '_', name.lower())}.png"


def body(data: Data) -> list[str]:
    """The page after its head."""
    parts = [
        "Every episode is certified and attacked from the same start, paired by seed. `certified`: no attack within "
        "eps leaves a lower mean on these episodes. `attacked`: the mean over episodes of what the strongest of the "
        "attacks below leaves of each; others may leave less. The worst case lies between the two. `GWC` is an "
        "estimate and no bound; `ACR` is the share of steps of the clean episode with one possible action; `AWC` is "
        "known where all searches are finished, else it is a dash: the worst case where bounds are by bisect, with "
        "looser ones at most that. `strongest` is a dash where no attack left a lower mean than none. No attacked "
        "episode is below its own certificate: the script stops where one is. Budgets are Linf, in the units of the "
        "observation or of the scale that is given. Radii that are missing have not been run.",
        "An episode of Pong ends with its first point, which is its return; one of RoadRunner or BankHeist ends after "
        "a hundred decisions, with the score of these. One to three episodes say little: these rows show that bounds "
        "and attacks meet, not how well an agent plays.",
    ]
    for name, one in data["agents"].items():
        found, about = ranges_of(one), one["settings"]
        stop = (
            f"Searches stop after {about['max_nodes']} simulated steps an episode"
            + (f" and {about['max_boxes']} boxes of states" if about.get("max_boxes") else "")
            + f"; the beam is {about['width']} wide."
        )
        rows, attacks = found.rows(), found.attack_rows()
        parts += [
            f"## {name}",
            f"Made by `{one['command']}`" + (f", the beam again by `{one['again']}`" if "again" in one else ""),
            f"{found.title}. {stop}",
            table(list(rows[0]), [list(row.values()) for row in rows]),
            "Mean returns under each attack:",
            table(list(attacks[0]), [list(row.values()) for row in attacks]),
            f"![certified returns and attacks over eps, {name}]({picture_of(name)})",
        ]
    parts.append(beside_the_paper())
    parts += [
        "## Not certified",
        *(f"`{ref}`: {words}" for ref, words in data["refused"].items()),
        "A search has one branch an action, and these act in continuous spaces: certificates of randomized smoothing "
        "are for them.",
    ]
    return parts


def beside_the_paper() -> str:
    """What Oikarinen et al. 2020 have of this page's columns, and why no row of it stands in the tables above."""
    first, second = POINTS
    return (
        "## Beside the paper\n\nGWC, AWC and ACR are of Oikarinen et al. 2020. It has no CartPole and no MountainCar, "
        "and no certified return where a search did not finish. Its GWC is of whole games of Atari, where episodes "
        "above end with a point or after a hundred decisions, so that its figures stand beside those of whole games in "
        f"`radial.md`, and here for the size of the effect alone. {AGENTS}. Its AWC is of Pong's second point: at eps "
        f"{first.eps:g} (read as grey levels) {first.won} of {first.finished} episodes are won in the worst case, with "
        f"a mean ACR of {first.acr:.3f}; at {second.eps:g} only {second.finished} of {POINTS_EPISODES} searches "
        "finish. `worst_case.md` repeats that experiment. The paper's agents that were trained with RADIAL:\n\n"
        + table_1(("RADIAL-A3C", "RADIAL-DQN"), ("Pong", "RoadRunner", "BankHeist"))
    )


def measure(results: Results) -> None:
    """Certify and attack what is missing; or search with the beam again."""
    given, agents = results.given, results.part("agents")
    line = results.made.pop("command")  # of every agent its own
    results.data["refused"] = refused()
    for case in cases(given.victims):
        if given.only and case.name not in given.only:
            continue
        if given.beam and case.name in agents:
            about = {"command": agents[case.name]["command"], "again": line}
            search_again(case, agents[case.name], given.beam)
            agents[case.name] = {**about, **json.loads(json.dumps(ranges_of(agents[case.name]).to_dict()))}
            results.keep()
            continue
        for count in range(1, len(case.eps) + 1):
            found = ranges(case, count, given)
            agents[case.name] = {"command": line, **found}
            results.keep()
            print(ranges_of(found), flush=True)


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


def draw(data: Data, folder: Path) -> None:
    """A figure an agent."""
    for name, result in data["agents"].items():
        ranges_of(result).plot(folder / picture_of(name))


PAGE = Page(
    "certificates",
    "Certificates beside attacks",
    __doc__,
    measure,
    body,
    draw,
    options={
        "--work": {"type": Path, "help": "folder for everything that is played"},
        "--victims": {"type": Path, "help": "folder of further cards"},
        **episode_options(5),
        "--max-nodes": {"type": int, "default": 20_000},
        "--method": {"default": "crown", "choices": get_args(Method), "help": "of the bounds on the network"},
        "--only": {"nargs": "*", "help": "names of agents"},
        "--beam": {"nargs": "+", "type": float, "help": "radii at which only the beam is searched again"},
    },
    needs=["--work"],
    head=lambda data: f"Made on {data['machine']}.",
)


if __name__ == "__main__":
    PAGE.main()
