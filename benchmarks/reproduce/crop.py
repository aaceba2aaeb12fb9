"""CROP: certified returns of smoothed agents, by search and by global smoothing, beside attacks.

    python benchmarks/reproduce/crop.py

The two kinds of bounds of Wu et al. 2022, of CartPole's DQN agents of the zoo. The search (LoRe) is of attacks within
`L2(eps)` at every step, on the majority of 1000 noisy copies or the action of the highest average Q-value, clipped to
the range named: `certified` is of the agent as it plays, `exact` of the one that would know the averages exactly, as
the paper certifies it; bounds hold at once with probability 0.95. `attacked` is what the strongest of `fgsm`, `pgd`,
`max-diff`, `min-q`, an attack on the network alone, and `lean` (the pole shown upright) leaves. Searches stop after a
number of simulated steps: where attacks leave far more than is certified, the search was not finished.

Global smoothing (GRe) is of attacks of a total length on an agent that acts on a single noisy copy, from 1000 episodes:
`by distribution` shifts the whole distribution (Kumar, Levine and Feizi 2022, `certified_return`), `by mean` the mean
alone (CROP's expectation, by Hoeffding's inequality), `line` is its linear form in CROP, `median` is by order
statistics (`certified_quantile`).
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from figures import table
from page import Data, Page, Results, prose
from smoothing import CASES, told, upright

import adv_wrappers as adv
from adv_wrappers.certification.crop import certify_smoothed_actions
from adv_wrappers.certification.smoothing import SmoothedCertificate
from adv_wrappers.victims.smoothed import Smoothed

ENV, COPIES, DRAWS, EPISODES, NODES = "CartPole-v1", 1000, 2000, 5, 4000
EPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
MOST, NORMAL = 500.0, NormalDist()  # the largest return


@dataclass(frozen=True)
class Agent:
    """A smoothed agent of the search."""

    name: str
    ref: str
    sigma: float
    q_range: tuple[float, float] | None = None

    def victim(self) -> Smoothed:
        """The agent, as it plays."""
        return Smoothed(adv.load_victim(self.ref), self.sigma, COPIES, q_range=self.q_range)

    def __str__(self) -> str:
        return f"{self.ref}, sigma={self.sigma:g}, {self.scores}"

    @property
    def scores(self) -> str:
        """What it chooses by, in words."""
        return "votes" if self.q_range is None else "Q-values in [{:g}, {:g}]".format(*self.q_range)


AGENTS = (
    Agent("DQN", "zoo:cartpole-dqn", 0.05),
    Agent("DQN", "zoo:cartpole-dqn", 0.1),
    Agent("DQN", "zoo:cartpole-dqn", 0.1, (85.0, 97.0)),
    Agent("DQN, RADIAL", "zoo:cartpole-radial-dqn", 0.05),
    Agent("DQN, RADIAL", "zoo:cartpole-radial-dqn", 0.1),
)
ATTACKS = ("fgsm", "pgd", "max-diff", "min-q", "network", "lean")
CASE = CASES[0]  # CartPole's agent of the page on smoothing


def attack(name: str, victim: Smoothed, eps: float) -> adv.ThreatModel:
    """An attack on every step."""
    within = adv.L2(eps)
    if name == "lean":
        return adv.ThreatModel("observation", upright, within)
    if name == "network":
        return adv.threat("pgd", victim.victim, within=within)
    return adv.threat(name, victim, within=within)


def search(agent: Agent, exact: bool, seed: int) -> Data:
    """The search's bounds of one agent."""
    began = time.process_time()
    found = certify_smoothed_actions(
        agent.victim(), ENV, EPS, EPISODES, seed, samples=DRAWS, exact=exact, max_nodes=NODES
    )
    return {
        "lower_returns": [one.lower_returns.tolist() for one in found],
        "finished": [one.finished for one in found],
        "seconds": time.process_time() - began,
    }


def attacked(agent: Agent, seed: int) -> Data:
    """Returns of the same episodes under every attack and eps, ``[E]`` each."""
    victim = agent.victim()
    plans = {f"{name}, {eps:g}": attack(name, victim, eps) for eps in EPS for name in ATTACKS}
    run = adv.evaluate(victim, ENV, [*plans.values()], EPISODES, seed, EPISODES, distances=())
    return {name: row["returns"] for name, row in zip(("none", *plans), run.threats, strict=True)}


def lowest(rows: Data, eps: float) -> tuple[np.ndarray[Any, Any], str]:
    """Of every episode the lowest return of an attack within an eps, and the attack of the lowest mean."""
    of_eps = {name: rows[f"{name}, {eps:g}"] for name in ATTACKS}
    strongest = min(of_eps, key=lambda name: float(np.mean(of_eps[name])))
    if np.mean(of_eps[strongest]) >= np.mean(rows["none"]):
        strongest = ""
    return np.min([rows["none"], *of_eps.values()], 0), strongest


def broken(agents: Data) -> list[str]:
    """Episodes in which an attack leaves less than is certified of the agent that plays."""
    wrong = []
    for agent in AGENTS:
        row = agents.get(str(agent), {})
        if "attacks" in row and "played" in row:
            for eps, lower in zip(EPS, row["played"]["lower_returns"], strict=True):
                below = lowest(row["attacks"], eps)[0] < np.array(lower)
                wrong += [f"{agent}, eps {eps:g}, episode {i}" for i in np.flatnonzero(below)]
    return wrong


def measure(results: Results) -> None:
    """Measure what is not there yet."""
    warnings.filterwarnings("ignore")
    seed = results.given.seed
    for agent in AGENTS:
        row = results.part("agents", str(agent))
        results.once(row, "played", search, agent, False, seed)
        results.once(row, "exact", search, agent, True, seed)
        results.once(row, "attacks", attacked, agent, seed)
    for sigma in CASE.sigmas[:2]:
        row = results.part("global", f"{sigma:g}")
        results.once(row, "clean", clean_returns, sigma, seed)
        results.once(row, "attacks", attacked_in_all, sigma, seed)
    for line in broken(results.part("agents")):
        print(f"BELOW ITS CERTIFICATE: {line}")


def clean_returns(sigma: float, seed: int) -> list[float]:
    """Of episodes without an attack."""
    returns: list[float] = adv.evaluate(CASE.smoothed(sigma, 1), ENV, [], 1000, seed + 1000, 500).threats[0]["returns"]
    return returns


def attacked_in_all(sigma: float, seed: int) -> Data:
    """Returns of other episodes under attacks of a total length, by length."""
    victim, found = CASE.smoothed(sigma, 1), Data()
    for length in CASE.lengths:
        threats = [plan.threat(victim, length * sigma) for plan in CASE.plans]
        run = adv.evaluate(victim, ENV, threats, CASE.attacked, seed, CASE.attacked, distances=())
        found[f"{length:g}"] = {
            str(plan): row["returns"] for plan, row in zip(("none", *CASE.plans), run.threats, strict=True)
        }
    return found


def mean(returns: Sequence[Any]) -> str:
    """Of an array, as a cell."""
    return told(float(np.mean(returns)))


def body(data: Data) -> list[str]:
    """The page after its head."""
    wrong = broken(data.get("agents", {}))
    verdict = f"**Below its certificate: {'; '.join(wrong)}.**" if wrong else "No attack is below its certificate."
    parts = [
        *prose(__doc__),
        f"{verdict} {EPISODES} episodes, {DRAWS} draws of noise at a state, {NODES} simulated steps an episode and "
        "eps: certified / exact / attacked, of 500 without an attack.",
    ]
    lines = []
    for agent in AGENTS:
        row = data.get("agents", {}).get(str(agent))
        if row is None or "attacks" not in row:
            continue
        bounds = [row[kind]["lower_returns"] for kind in ("played", "exact")]
        left = [lowest(row["attacks"], eps)[0] for eps in EPS]
        cells = [" / ".join(map(mean, (*(of[k] for of in bounds), left[k]))) for k in range(len(EPS))]
        lines.append([agent.name, f"{agent.sigma:g}", agent.scores, *cells])
    parts.append(table(["agent", "sigma", "chooses by", *(f"eps {eps:g}" for eps in EPS)], lines))
    parts.append("Global smoothing:")
    lines = []
    for sigma, row in data.get("global", {}).items():
        known = SmoothedCertificate(row["clean"], float(sigma), 0.0)
        least = np.mean(row["clean"]) / MOST - math.sqrt(math.log(20) / (2 * len(row["clean"])))
        for length in (0.0, 0.25, 0.5, 1.0, 2.0):
            eps = length * float(sigma)
            by_mean = MOST * NORMAL.cdf(NORMAL.inv_cdf(least) - length)
            line = MOST * max(least - length / math.sqrt(2 * math.pi), 0.0)
            under = row["attacks"].get(f"{length:g}")
            left = ["-", "-"] if under is None else [told(min(map(f, under.values()))) for f in (np.mean, np.median)]
            bounds = [known.certified_return(eps), by_mean, line, known.certified_quantile(eps)]
            lines.append([sigma, f"{eps:g}", *map(told, bounds), *left])
    header = [
        "sigma",
        "eps in all",
        "by distribution",
        "by mean",
        "line",
        "median",
        "attacked, mean",
        "attacked, median",
    ]
    parts.append(table(header, lines))
    return parts


PAGE = Page(
    "crop",
    "CROP: search and global smoothing",
    __doc__,
    measure,
    body,
    page="smoothing",
    options={
        "--again": {"action": "store_true", "help": "measure also what an earlier run has left"},
        "--seed": {"type": int, "default": 0},
    },
    releases=["safetensors"],
)


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.main()
