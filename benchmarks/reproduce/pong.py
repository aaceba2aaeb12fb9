"""The two Pong agents of the cards, clean and under one FGSM step of one grey level.

    python benchmarks/reproduce/pong.py --victims FOLDER

The agents sample their
actions, as their source does; observations are uint8, so eps = 1/255 of the range is eps = 1, and every perturbed
observation is a uint8 image again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from figures import kept, measured, of_row, table
from page import AGAIN, VICTIMS, Data, Page, Results, episode_options

import adv_wrappers as adv

CARDS = ("davide-pong-ppo", "davide-pong-a2c")
FGSM = "fgsm:eps=1"
CLEAN, BROKEN = 19.0, -21.0  # wanted: both clean at least this; of davide-pong-ppo under FGSM an interval with that


def evaluate(folder: Path, episodes: int, seed: int) -> dict[str, Any]:
    """Rows of the report for one card."""
    victim = adv.load_victim(f"card:{folder}")
    card = victim.card or {}
    started = time.perf_counter()
    report = adv.evaluate(
        victim,
        card["environment"]["id"],
        [f"noise:{FGSM.partition(':')[2]}", FGSM],
        episodes=episodes,
        seed=seed,
        num_envs=episodes,
    ).to_dict()
    rows = [kept(row) for row in report["threats"]]
    return {
        "fingerprint": victim.fingerprint(),
        "select": victim.select,
        "env": report["env"],
        "versions": report["versions"],
        "warnings": report["warnings"],
        "rows": rows,
        "measured": card.get("measured", []),
        "published": card.get("published", {}),
        "seconds": round(time.perf_counter() - started, 1),
    }


def card_figures(result: dict[str, Any], threat: str) -> str:
    """What the card measured: clean, or FGSM at one grey level (the only eps that uint8 can hold)."""
    if threat.startswith("noise"):
        return ""
    attack, eps = ("none", 0.0) if threat == "none" else ("fgsm", 1 / 255)
    rows = [r for r in result["measured"] if r["attack"] == attack and abs(r["eps"] - eps) < 1e-4]
    return "; ".join(str(measured(r["mean"], r["std"], r["episodes"])) for r in rows)


def goals(results: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """What was wanted, what was measured, and whether it was met."""
    found = []
    for name, result in results.items():
        clean, fgsm = result["rows"][0], result["rows"][-1]
        found.append((f"{name}: clean at least {CLEAN:.0f}", str(of_row(clean)), clean["mean_return"] >= CLEAN))
        if name == "davide-pong-ppo":
            lost = sum(score == BROKEN for score in fgsm["returns"])
            text = f"{of_row(fgsm)}, {lost} of {fgsm['episodes']} episodes at {BROKEN:.0f}"
            low = of_row(fgsm).low
            met = low is not None and low <= BROKEN
            found.append((f"{name}: FGSM at eps 1/255 brings it to {BROKEN:.0f}", text, met))
    return found


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows, results = [], data["cards"]
    for name, result in results.items():
        for row in result["rows"]:
            share = "" if row["linf"] is None else f"{row['action_change']:.0%}"
            rows.append([name, row["threat"], of_row(row), card_figures(result, row["threat"]), share])
    wanted = [(a, b, "yes" if c else "**no**") for a, b, c in goals(results)]
    warned = [f"- {name}: {text}" for name, result in results.items() for text in result["warnings"]]
    parts = [
        "Mean return +- standard deviation over n episodes of PongNoFrameskip-v4, with a 95% interval: Student's t, "
        "for ours corrected for skewness. Runs of a card share their episodes' seeds. `fgsm:eps=1` is MinBest with one "
        "step of one grey level (1/255 of the range) on the stack of four uint8 frames; `noise` is uniform: it moves "
        "every pixel by -1, 0 or 1. The lowest return is -21; that goal is met if the interval reaches it.",
        "## Goals\n\n" + table(["goal", "measured", "met"], wanted),
        "## All runs\n\n" + table(["card", "threat", "ours", "the card's own runs", "actions changed"], rows),
    ]
    if warned:
        parts.append("## Warnings of the evaluations\n\n" + "\n".join(warned))
    return parts


def measure(results: Results) -> None:
    """Evaluate the cards that are missing."""
    given = results.given
    for name in CARDS:
        folder = given.victims / name
        results.once(results.part("cards"), name, evaluate, folder, episodes=given.episodes, seed=given.seed)


PAGE = Page(
    "pong",
    "Pong: two sampling agents under one FGSM step",
    __doc__,
    measure,
    body,
    options={**VICTIMS, **episode_options(32), **AGAIN},
    needs=["--victims"],
    releases=["ale-py"],
)


if __name__ == "__main__":
    PAGE.main()
