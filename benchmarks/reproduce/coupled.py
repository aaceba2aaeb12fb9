"""Temporally coupled perturbations: what a limit on their change from step to step takes from attacks.

    python benchmarks/reproduce/coupled.py --work FOLDER

No feature of a perturbation moves by more than a limit from step to step (Liang et al. 2024), here a share of eps
(``change``); two eps are no limit. PA-AD is trained under the same budget; twenty episodes each. On Hopper the limit
makes the greedy attack stronger: looking no step ahead, it turns at every step, where an error that stays hurts more.
"""

from __future__ import annotations

import time
from typing import Any

from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv

# the agent, its environment, the greedy attack, eps and its scale, and the steps of a training
AGENTS: dict[str, tuple[str, str, float, str | None, int]] = {
    "zoo:cartpole-dqn": ("CartPole-v1", "pgd", 0.15, None, 100_000),
    "zoo:mountaincar-dqn": ("MountainCar-v0", "pgd", 0.01, None, 100_000),
    "zoo:hopper-ppo": ("Hopper-v5", "max-diff", 0.075, "victim", 200_000),
}
SHARES = (2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
LEARNED = (2.0, 0.1)  # shares under which an adversary is trained


def budget_of(ref: str, share: float) -> adv.Coupled:
    """The coupled budget of an agent."""
    _, _, eps, scale, _ = AGENTS[ref]
    return adv.Coupled(adv.Linf(eps, scale), share * eps)


def greedy(ref: str, episodes: int, seed: int) -> dict[str, Any]:
    """The rows of the greedy attack by share, and of noise at the smallest one."""
    began = time.perf_counter()
    env, attack, *_ = AGENTS[ref]
    threats = [adv.threat(attack, within=budget_of(ref, share)) for share in SHARES]
    rows = adv.evaluate(ref, env, threats, episodes=episodes, seed=seed).threats
    named = {"none": kept(rows[0])} | {f"{share:g}": kept(row) for share, row in zip(SHARES, rows[1:], strict=True)}
    return {"rows": named, "seconds": time.perf_counter() - began}


def learned(ref: str, share: float, work: Any, episodes: int, seed: int) -> dict[str, Any]:
    """The row of an adversary that was trained under a coupled budget."""
    began = time.perf_counter()
    env, _, _, _, steps = AGENTS[ref]
    folder = work / f"{ref.removeprefix('zoo:')}-{share:g}"
    within = budget_of(ref, share)
    adversary = adv.train_adversary(
        "pa-ad", env, ref, within=within, steps=steps, checks=5, episodes=10, seed=1, out=folder
    )
    threat = adv.ThreatModel("observation", adversary, within)
    row = kept(adv.evaluate(ref, env, [threat], episodes=episodes, seed=seed).threats[1])
    row["threat"] = row["threat"].replace(str(work), "FOLDER")  # a result must not name a folder of a machine
    return {"row": row, "seconds": time.perf_counter() - began}


def body(data: Data) -> list[str]:
    """The page after its head."""
    refs = list(data["greedy"])
    rows = [["none", *(brief(data["greedy"][ref]["rows"]["none"]) for ref in refs)]]
    for share in SHARES:
        said = "no limit (2 eps)" if share == 2 else f"{share:g} eps"
        rows.append([said, *(brief(data["greedy"][ref]["rows"][f"{share:g}"]) for ref in refs)])
    for share in LEARNED:
        found = [data.get("learned", {}).get(f"{ref} {share:g}") for ref in refs]
        said = "no limit (2 eps)" if share == 2 else f"{share:g} eps"
        rows.append([f"PA-AD, {said}", *("-" if one is None else brief(one["row"]) for one in found)])
    heads = [f"{ref.removeprefix('zoo:')}, {AGENTS[ref][1]} at {AGENTS[ref][2]:g}" for ref in refs]
    return [*prose(__doc__), table(["change of a step", *heads], rows)]


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    for ref in AGENTS:
        results.once(results.part("greedy"), ref, greedy, ref, episodes=given.episodes, seed=given.seed)
    for ref in AGENTS:
        for share in LEARNED:
            key, part = f"{ref} {share:g}", results.part("learned")
            results.once(part, key, learned, ref, share, given.work, episodes=given.episodes, seed=given.seed)


PAGE = Page(
    "coupled",
    "Temporally coupled perturbations",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**WORK, **episode_options(20), **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
