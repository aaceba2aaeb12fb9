"""The optimum of Behzadan and Hsu's (2019) resilience and robustness, for CartPole agents: what adversaries may reach.

    python benchmarks/reproduce/resilience_exact.py [--victims FOLDER] [--starts 100] [--profile-starts 10]

Of every agent it prints the mean over ``--starts`` episodes of the lowest sum of steps and perturbations, and of its
parts, with 95% intervals (``fewest_perturbations``, cost 1); then the mean regret that 1 to 10
perturbations can cause within 60 steps (:func:`adv_wrappers.evaluation.optimal_timing.resilience_profile`). The first
takes a tenth of a second an episode. The second takes up to half a minute where the agent survives 3 perturbations,
since all 500 000 timings of them are then followed; ``--profile-starts 0`` leaves it out.

The seeds of the episodes are those of ``adv_wrappers.evaluate(..., seed=--seed)``. Agents are the zoo's and, with
``--victims``, the cards of the folder that start with ``zoo-cartpole-``. Results are kept in ``--out`` (``exact.json``)
as they come, and a run that is done again leaves those that are there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import command, load, machine, save, table

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.optimal_timing import fewest_perturbations, resilience_profile
from adv_wrappers.evaluation.statistics import interval

ENV, ZOO = "CartPole-v1", ("zoo:cartpole-dqn", "zoo:cartpole-a2c", "zoo:cartpole-ppo")
SHARED = ("zoo-cartpole-dqn", "zoo-cartpole-a2c", "zoo-cartpole-ppo")
BUDGETS, HORIZON = tuple(range(1, 11)), 60


def agents(victims: Path | None) -> dict[str, adv.Victim]:
    """The agents by their names: the zoo's, and those of a folder of cards."""
    found = {name: adv.load_victim(name) for name in ZOO}
    if victims is not None:
        found |= {name: adv.load_victim(f"card:{victims / name}") for name in SHARED}
    return found


def optimum(victim: adv.Victim, seeds: Sequence[int]) -> dict[str, Any]:
    """The fewest perturbations of some episodes, and the seconds that it took to find them."""
    started = time.process_time()
    found = fewest_perturbations(victim, ENV, seeds, cost=1.0, lowest_reward=1.0).to_dict()
    return {**found, "seconds": time.process_time() - started}


def profile(victim: adv.Victim, seeds: Sequence[int]) -> dict[str, Any]:
    """The lowest returns under budgets of perturbations, and the seconds that it took to find them."""
    started = time.process_time()
    found = resilience_profile(victim, ENV, seeds, BUDGETS, HORIZON, lowest_reward=1.0, max_nodes=3_000_000).to_dict()
    return {**found, "seconds": time.process_time() - started}


def with_interval(values: Sequence[float]) -> str:
    """The mean and its 95% interval."""
    low, high = interval(values)
    return f"{np.mean(values):.2f} [{low:.2f}, {high:.2f}]"


def optimum_table(results: dict[str, Any]) -> str:
    """The fewest perturbations, a line an agent."""
    head = ("agent", "starts", "steps + perturbations", "regret", "perturbations", "finished", "seconds")
    rows = []
    for name, result in results.items():
        if "optimum" in result:
            found = result["optimum"]
            parts = (with_interval(found[part]) for part in ("objective", "regret", "perturbations"))
            rows.append((name, len(found["seeds"]), *parts, sum(found["finished"]), f"{found['seconds']:.1f}"))
    return table(head, rows)


def profile_table(results: dict[str, Any]) -> str:
    """The mean regret of every budget, a line an agent; an asterisk where not all timings were followed."""
    rows = []
    for name, result in results.items():
        if "profile" in result:
            found = result["profile"]
            means, finished = np.mean(found["regret"], 0), np.all(found["finished"], 0)
            cells = (f"{mean:.0f}{'' if whole else '*'}" for mean, whole in zip(means, finished, strict=True))
            rows.append((name, len(found["seeds"]), *cells, f"{found['seconds']:.0f}"))
    return table(("agent", "starts", *map(str, BUDGETS), "seconds"), rows)


def exact(victims: Path | None, starts: int, profile_starts: int, seed: int, out: Path) -> dict[str, Any]:
    """Compute and print both tables; returns the results by agent, which ``out`` holds as they come.

    Args:
        victims: a folder of cards beside the zoo's agents, or None.
        starts, profile_starts: how many episodes are searched for the table and for the profile.
        seed: the seed from which the episodes have theirs.
        out: the file of the results.
    """
    kept: dict[str, Any] = load(out) or {}
    results: dict[str, Any] = kept.get("results", {})
    searches = {"optimum": (optimum, starts), "profile": (profile, profile_starts)}
    for part, (search, episodes) in searches.items():
        seeds = draw_seeds(seed, episodes)
        for name, victim in agents(victims).items() if seeds else ():
            result = results.setdefault(name, {})
            if result.get(part, {}).get("seeds") != seeds:
                result[part] = search(victim, seeds)
                save(out, {"command": command(sys.argv[1:]), "machine": machine(), "results": results})
        if seeds:
            print((optimum_table if part == "optimum" else profile_table)(results), flush=True)
    return results


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=Path, help="folder of cards")
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--profile-starts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("exact.json"), help="file of the results")
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    exact(given.victims, given.starts, given.profile_starts, given.seed, given.out)


if __name__ == "__main__":
    main()
