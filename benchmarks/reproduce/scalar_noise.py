"""What scalar noise misses: the disturbances of Robust-Gymnasium beside the worst case of the same size.

    python benchmarks/reproduce/scalar_noise.py --work FOLDER

Gu et al. 2025 add one number, Gaussian or uniform, to all features alike at every step: by default a deviation of 0.005
(0.05 in their comments), uniform numbers from 0.05 to 0.55, masses by a Gaussian of 0.05. Beside these stand the same
noise for every feature by itself, and the worst case within twice the deviation: by MaxDiff on observations, by the
search for the worst dynamics on masses. Ten episodes each. Their curves are of agents that train under such noise, so
no number of theirs stands here.
"""

from __future__ import annotations

import time
from typing import Any

from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv

AGENTS = {
    "hopper-ppo": ("zoo:hopper-ppo", "Hopper-v5"), "walker2d-ppo": ("zoo:walker2d-ppo", "Walker2d-v5"),
    "halfcheetah-ppo": ("card:benchmarks/reproduce/rarl/halfcheetah-ppo", "HalfCheetah-v5"),
}  # fmt: skip
DEVIATIONS = (0.005, 0.05, 0.1)
MASSES = 0.05


def scalar(sigma: float) -> Any:
    """One Gaussian number a step, added to everything."""
    return lambda x, context: x + sigma * context.normal()[:, :1]


def between(low: float, high: float) -> Any:
    """One uniform number a step, added to everything."""
    return lambda x, context: x + low + (high - low) * context.uniform()[:, :1]


def each(sigma: float) -> Any:
    """A Gaussian number for every feature."""
    return lambda x, context: x + sigma * context.normal()


def threats() -> dict[str, adv.ThreatModel]:
    """What is played, by the words of the page."""
    found: dict[str, adv.ThreatModel] = {}
    for on, name in (("observation", "observations"), ("action", "actions")):
        for sigma in DEVIATIONS:
            found[f"{name}, one Gaussian number, {sigma:g}"] = adv.ThreatModel(on, scalar(sigma), adv.Valid())
            found[f"{name}, a Gaussian for each, {sigma:g}"] = adv.ThreatModel(on, each(sigma), adv.Valid())
            if on == "observation":
                found[f"{name}, MaxDiff within {2 * sigma:g}"] = adv.threat("max-diff", eps=2 * sigma, restarts=3)
        found[f"{name}, one uniform number, 0.05 to 0.55"] = adv.ThreatModel(on, between(0.05, 0.55), adv.Valid())
    masses = adv.ThreatModel("dynamics", adv.DynamicsNoise("gaussian"), adv.Linf(MASSES), at="mass")
    found[f"masses, a Gaussian for each, {MASSES:g}, every episode"] = masses
    return found


def played(name: str, episodes: int, seed: int) -> dict[str, Any]:
    """The rows of an agent."""
    ref, env = AGENTS[name]
    named = threats()
    rows = adv.evaluate(ref, env, list(named.values()), episodes=episodes, seed=seed).threats
    return {"rows": {said: kept(row) for said, row in zip(["none", *named], rows, strict=True)}}


def searched(name: str, work: Any, episodes: int, seed: int) -> dict[str, Any]:
    """The worst masses within twice the deviation, on episodes of the search's own, and then on those of the table."""
    began = time.perf_counter()
    ref, env = AGENTS[name]
    found = adv.worst_dynamics(ref, env, "mass", 2 * MASSES, 200, 2, seed + 1, out=work / name)
    row = kept(adv.evaluate(ref, env, [found.threat], episodes=episodes, seed=seed).threats[1])
    return {"row": row, "seconds": time.perf_counter() - began}


def body(data: Data) -> list[str]:
    """The page after its head."""
    names = [name for name in AGENTS if name in data["noise"]]
    rows = [[said, *(brief(data["noise"][name]["rows"][said]) for name in names)] for said in ["none", *threats()]]
    worst = [data.get("masses", {}).get(name) for name in names]
    found = ["" if one is None else brief(one["row"]) for one in worst]
    rows.append([f"masses, the worst found within {2 * MASSES:g}", *found])
    return [*prose(__doc__), table(["disturbance", *names], rows)]


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    how = {"episodes": given.episodes, "seed": given.seed}
    for name in AGENTS:
        results.once(results.part("noise"), name, played, name, **how)
        results.once(results.part("masses"), name, searched, name, given.work, **how)


PAGE = Page(
    "scalar_noise",
    "What scalar noise misses",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**WORK, **episode_options(10), **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
