"""Plausible perturbations: what is left of attacks that a model of the dynamics does not notice.

    python benchmarks/reproduce/plausible.py --work FOLDER

A detector compares every observation with a learned model's prediction (of Hopper, 50,000 transitions, two layers of
256), and raises an alarm beyond what 99% of the steps of clean episodes have, in standard deviations of the model's
errors. ``Plausible`` holds attacks to a distance from the same model's prediction, the best case for the attacker. Ten
episodes, alarms of the first two.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.core.budgets.plausible_transitions import action_vectors
from adv_wrappers.victims.auxiliary_networks import Dynamics
from adv_wrappers.victims.policy_runner import PolicyRunner

REF, ENV, EPS = "zoo:hopper-ppo", "Hopper-v5", 0.075
ATTACKS = ("noise", "max-diff")
DISTANCES = (None, 20.0, 10.0, 5.0, 3.0)
PLAYED = 2  # episodes of the detector


def model(work: Any) -> Dynamics:
    """The model, trained where the folder does not have it."""
    folder = work / "hopper"
    if not (folder / "card.json").exists():
        adv.train_dynamics(REF, ENV, 50_000, hidden=(256, 256), epochs=10, out=folder)
    return Dynamics(str(folder))


def distances(known: Dynamics, threat: Any, seed: int) -> list[float]:
    """How far the most surprising feature of every step is from its prediction, in the unit of the model."""
    import gymnasium as gym

    victim = adv.load_victim(REF)
    plain = gym.make(ENV)
    env = plain if threat is None else adv.wrap(plain, threat, victim=victim)
    runner, found = PolicyRunner(victim, 1), list[float]()
    for episode in range(PLAYED):
        obs, _ = env.reset(seed=seed + episode)
        runner.reset(None, [seed + episode])
        over = False
        while not over:
            action = runner.act(obs[None])[0]
            new, _, terminated, truncated, _ = env.step(action)
            acted = action_vectors(action, env.action_space)
            expected = known.step(torch.as_tensor(obs, dtype=torch.float64)[None], acted)[0]
            found.append(float(((torch.as_tensor(new) - expected).abs() / known.error_std).max()))
            obs, over = new, terminated or truncated
    env.close()
    return found


def threat_of(attack: str, distance: float | None, known: Dynamics) -> adv.ThreatModel:
    """The attack, held to a distance or not."""
    held = {} if distance is None else {"plausible": distance, "model": known}
    return adv.threat(attack, eps=EPS, scale="victim", **held)


def row_of(attack: str, distance: float | None, work: Any, limit: float, episodes: int, seed: int) -> dict[str, Any]:
    """What an attack leaves, and how often the detector fires."""
    began, known = time.perf_counter(), model(work)
    threat = threat_of(attack, distance, known)
    row = kept(adv.evaluate(REF, ENV, [threat], episodes=episodes, seed=seed).threats[1])
    row["threat"] = row["threat"].replace(str(work), "FOLDER")  # a result must not name a folder of a machine
    alarms = float(np.mean(np.array(distances(known, threat, seed)) > limit))
    return {"row": row, "alarms": alarms, "seconds": time.perf_counter() - began}


def clean_of(work: Any, episodes: int, seed: int) -> dict[str, Any]:
    """The clean return, and the limit of the detector: from other episodes than those of the rows."""
    known = model(work)
    row = kept(adv.evaluate(REF, ENV, [], episodes=episodes, seed=seed).threats[0])
    limit = float(np.quantile(distances(known, None, seed + 10_000), 0.99))
    return {"row": row, "limit": limit, "alarms": float(np.mean(np.array(distances(known, None, seed)) > limit))}


def body(data: Data) -> list[str]:
    """The page after its head."""
    clean = data["clean"]
    rows: list[list[Any]] = [["none", "-", brief(clean["row"]), f"{clean['alarms']:.0%}"]]
    for attack in ATTACKS:
        for distance in DISTANCES:
            one = data["rows"].get(f"{attack} {distance}")
            said = "any" if distance is None else f"{distance:g}"
            rows.append([attack, said, *(("-", "-") if one is None else (brief(one["row"]), f"{one['alarms']:.0%}"))])
    said = f"The detector fires beyond {clean['limit']:.1f}. zoo:hopper-ppo at eps {EPS:g} of its own scale:"
    return [*prose(__doc__), said, table(["attack", "distance allowed", "left", "steps with an alarm"], rows)]


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    common: dict[str, Any] = {"episodes": given.episodes, "seed": given.seed}
    clean = results.once(results.data, "clean", clean_of, given.work, **common)
    for attack in ATTACKS:
        for distance in DISTANCES:
            key, part = f"{attack} {distance}", results.part("rows")
            results.once(part, key, row_of, attack, distance, given.work, clean["limit"], **common)


PAGE = Page(
    "plausible",
    "Plausible perturbations",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**WORK, **episode_options(10), **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
