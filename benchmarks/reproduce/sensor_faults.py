"""Faults of sensors and of the channels to and from them: what each leaves of six agents' returns.

    python benchmarks/reproduce/sensor_faults.py

Sizes are shares of the range of each feature in clean episodes, or grey levels of Pong: noise, a bias and a drift of a
tenth (25 levels), readings in steps of a fifth, sensors that read the middle half alone; the one sensor sticks whose
loss costs most. Delays are two steps, jitter is up to three, a tenth of numbers or a fifth of messages is lost. Twenty
episodes, of Pong five.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from figures import brief, kept, table
from page import AGAIN, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.studies.report.observation_ranges import observed_ranges

AGENTS = {
    "zoo:cartpole-dqn": "CartPole-v1",
    "zoo:cartpole-ppo": "CartPole-v1",
    "zoo:mountaincar-dqn": "MountainCar-v0",
    "zoo:hopper-ppo": "Hopper-v5",
    "zoo:walker2d-ppo": "Walker2d-v5",
    "zoo:pong-ppo": "PongNoFrameskip-v4",
}
SIZE, LEVELS = 0.1, 25
CHANNELS = {
    "dropout, reads 0": "sensor-dropout:rate=0.1",
    "dropout, reads the last": "sensor-dropout:rate=0.1,fill=last",
    "observations late by 2": "observation-delay:steps=2",
    "observations late by 0 to 3": "observation-jitter:most=3",
    "observations lost": "observation-loss:rate=0.2",
    "actions late by 1": "action-delay:steps=1",
    "actions lost": "action-loss:rate=0.2",
}


def numbers(values: Any) -> str:
    """A list in a threat's text."""
    return ";".join(f"{value:.6g}" for value in values)


def faults_of(victim: adv.Victim, environment: adv.Environment, seed: int) -> tuple[dict[str, str], int]:
    """The texts of the faults by their names, and how many features the agent has."""
    ranges = observed_ranges(victim, environment, draw_seeds(seed, 3))
    if ranges.image:
        size = f"eps={LEVELS}"
        own = {"bias": f"sensor-bias:{size}", "drift": f"sensor-drift:{size}", "quantized": f"quantization:{size}"}
        more = {"saturated": "saturation:low=64,high=191", "occluded": "occlusion:height=20,width=20"}
        return {"noise": f"noise:{size}", **own, **more, **CHANNELS}, 0
    low, high = np.array([[one.low, one.high] for one in ranges.features or ()], np.float64).T
    size = f"eps={SIZE},scale={numbers(high - low)}"
    own = {"bias": f"sensor-bias:{size}", "drift": f"sensor-drift:{size}", "quantized": f"quantization:{size}"}
    middle, quarter = (high + low) / 2, np.maximum((high - low) / 4, 1e-6)
    ends = f"low={numbers(middle - quarter)},high={numbers(middle + quarter)}"
    more = {"saturated": f"saturation:{ends}", "swapped (first two)": "swapped-sensors:features=0;1"}
    return {"noise": f"noise:{size}", **own, **more, **CHANNELS}, len(low)


def evaluate(ref: str, env: str, episodes: int, seed: int) -> dict[str, Any]:
    """One agent: the row of the report for every fault."""
    began = time.perf_counter()
    victim = adv.load_victim(ref)
    environment = adv.Environment.of(env, victim)
    faults, features = faults_of(victim, environment, seed)
    stuck = [f"stuck-sensor:features={i}" for i in range(features)] or ["stuck-sensor"]
    found = adv.evaluate(victim, environment, [*faults.values(), *stuck], episodes=episodes, seed=seed).threats
    rows = dict(zip(["none", *faults], found, strict=False))
    worst = min(found[1 + len(faults) :], key=lambda row: float(row["mean_return"]))
    rows["stuck"] = worst
    return {"rows": {name: kept(row) for name, row in rows.items()}, "seconds": time.perf_counter() - began}


def body(data: Data) -> list[str]:
    """The page after its head."""
    agents = data["agents"]
    names = list(dict.fromkeys(name for result in agents.values() for name in result["rows"]))
    rows = [
        [name, *(brief(result["rows"][name]) if name in result["rows"] else "-" for result in agents.values())]
        for name in names
    ]
    return [*prose(__doc__), table(["fault", *(ref.removeprefix("zoo:") for ref in agents)], rows)]


def measure(results: Results) -> None:
    """Evaluate the agents that are missing."""
    given = results.given
    for ref, env in AGENTS.items():
        episodes = min(given.episodes, 5) if "Pong" in env else given.episodes
        results.once(results.part("agents"), ref, evaluate, ref, env, episodes=episodes, seed=given.seed)


PAGE = Page(
    "sensor_faults",
    "Faults of sensors and channels on six agents",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**episode_options(20), **AGAIN},
)

if __name__ == "__main__":
    PAGE.main()
