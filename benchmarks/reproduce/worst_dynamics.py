"""The worst physical parameters within a budget: CMA-ES against random draws and a grid.

    python benchmarks/reproduce/worst_dynamics.py --work FOLDER

Every parameter may be off by a share of its own value, for whole episodes. CMA-ES plays 200 sets of parameters, the
first 50 of them corners of the box; the random search 1000, and a grid up to 200, on the same episodes. The figure to
report is that of other episodes, twenty, under what CMA-ES found.
"""

from __future__ import annotations

import time
from typing import Any

from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.environments.dmc import dmc


def swingup() -> Any:
    """The task of dm_control, each environment with a model of its own."""
    return dmc("dm_control/cartpole-swingup-v0", 4)


# the agent, its environment, which parameters, how far, and the episodes of one evaluation
AGENTS: dict[str, tuple[Any, tuple[str, ...], float, int]] = {
    "zoo:cartpole-dqn": ("CartPole-v1", ("mass", "length", "gravity", "gain"), 0.8, 5),
    "zoo:mountaincar-dqn": ("MountainCar-v0", ("gain", "gravity"), 0.2, 5),
    "zoo:hopper-ppo": ("Hopper-v5", ("mass", "friction", "damping"), 0.3, 2),
    "zoo:walker2d-ppo": ("Walker2d-v5", ("mass", "friction", "damping"), 0.3, 2),
    "zoo:cartpole-swingup-sac": (swingup, ("mass", "gravity", "gain"), 0.5, 2),
}
METHODS = {"cma": 200, "random": 1000, "grid": 200}


def searched(ref: str, method: str, work: Any, seed: int) -> dict[str, Any]:
    """What a search found, and how long it took."""
    began = time.perf_counter()
    env, at, eps, episodes = AGENTS[ref]
    out = work / f"{ref.removeprefix('zoo:')}-{method}"
    found = adv.worst_dynamics(ref, env, at, eps, METHODS[method], episodes, seed, method=method, out=out)
    means = [one.mean_return for one in found.tried]
    return {
        "clean": found.clean_return,
        "lowest": found.mean_return,
        "values": {name: round(value, 4) for name, value in found.values.items()},
        "threat": found.threat.to_dict(),
        "lowest_so_far": [min(m for m in means[: i + 1] if m is not None) for i in range(len(means))],
        "seconds": time.perf_counter() - began,
    }


def replayed(ref: str, found: dict[str, Any], episodes: int, seed: int) -> dict[str, Any]:
    """The rows of the agent on other episodes, with its own parameters and those that were found."""
    threat = adv.ThreatModel.from_dict(found["threat"])
    rows = adv.evaluate(ref, AGENTS[ref][0], [threat], episodes=episodes, seed=seed).threats
    return {"none": kept(rows[0]), "worst": kept(rows[1])}


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows, worst = [], []
    for ref, (env, at, eps, episodes) in AGENTS.items():
        found = {method: data["searches"].get(f"{ref} {method}") for method in METHODS}
        if found["cma"] is None:
            continue
        name, place = ref.removeprefix("zoo:"), env if isinstance(env, str) else env.__name__
        cells = [f"{found[m]['lowest']:.5g}" if found[m] else "" for m in METHODS]
        sooner = ""
        if found["random"]:
            below = [i for i, low in enumerate(found["cma"]["lowest_so_far"]) if low < found["random"]["lowest"]]
            sooner = str(below[0] + 1) if below else "never"
        rows.append([
            f"{name}, {place}", f"{', '.join(at)} within {eps:.0%}", str(len(found["cma"]["values"])), str(episodes),
            f"{found['cma']['clean']:.5g}", *cells, sooner,
        ])  # fmt: skip
        other = data.get("replayed", {}).get(ref)
        if other is not None:
            said = ", ".join(f"{key} {value:g}" for key, value in found["cma"]["values"].items())
            worst.append([name, brief(other["none"]), brief(other["worst"]), said])
    return [
        *prose(__doc__),
        table(
            ["agent", "parameters", "numbers", "episodes", "clean", "CMA-ES, 200", "random, 1000", "grid, up to 200",
             "CMA-ES is below random's lowest after"], rows,
        ),
        "On other episodes:",
        "",
        table(["agent", "clean", "under the worst", "the worst that CMA-ES found"], worst),
    ]  # fmt: skip


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    for ref in AGENTS:
        searches, numbers = results.part("searches"), 0
        for method, count in METHODS.items():
            if method != "grid" or 2**numbers < count:  # else there are not two points for each number
                found = results.once(searches, f"{ref} {method}", searched, ref, method, given.work, given.seed)
                numbers = len(found["values"])
        found = searches[f"{ref} cma"]
        results.once(results.part("replayed"), ref, replayed, ref, found, given.episodes, seed=given.seed + 1)


PAGE = Page(
    "worst_dynamics",
    "The worst dynamics",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**WORK, **episode_options(20), **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
