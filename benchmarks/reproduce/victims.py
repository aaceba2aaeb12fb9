"""Evaluates cards, clean and attacked, beside the figures that the cards bring.

    python benchmarks/reproduce/victims.py --victims FOLDER

Means +- standard deviations over n episodes, with a 95% interval. Environments, eps and its unit are those of the card;
cards of CartPole bring none and are attacked at 0.1 in raw units, agents of Atari, which sample their actions, at one
grey level. `noise` is uniform, `max-diff` and `robust-sarsa` take 10 steps, `fgsm` one. The card's intervals are those
of its own standard deviation and n. What the authors published is under attacks of their own, and not compared. On
Gaussian agents that play their mean (wocar) `max-diff` weighs all dimensions of an action alike, as the released code
does, and `weights=std` takes the divergence of the policy; the cards do not say which theirs is.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from figures import Figure, kept, measured, number, of_row, table
from page import AGAIN, VICTIMS, Data, Page, Results, episode_options, hardware, prose

import adv_wrappers as adv

NAMES = {"none": "none", "mad": "max-diff", "rs": "robust-sarsa", "random": "noise", "fgsm": "fgsm"}
STD = "max-diff-std"  # MaxDiff by the divergence of a Gaussian policy that plays its mean, which is not the default
CARTPOLE_EPS = 0.1  # raw; these cards bring no eps


def threats_of(card: dict[str, Any], victim: adv.Victim) -> dict[str, str]:
    """Threats by name, as texts: Robust Sarsa where the card brings a critic, both weights of MaxDiff on Gaussians."""
    if len(victim.observation_space.shape or ()) == 3:
        return {"noise": "noise:eps=1", "fgsm": "fgsm:eps=1"}
    attack = card.get("attack") or {}
    unit = f"eps={attack['eps']},scale=victim" if "eps" in attack else f"eps={CARTPOLE_EPS}"
    names = ["noise", "max-diff"] + (["robust-sarsa"] if victim.robust_sarsa is not None else [])
    threats = {name: f"{name}:{unit}" for name in names}
    if victim.kind == "gaussian" and victim.select == "mode":
        threats[STD] = f"max-diff:weights=std,{unit}"
    return threats


def evaluate(folder: Path, made: Data, num_envs: int, episodes: int, seed: int) -> dict[str, Any]:
    """One card: rows of the report by the name of the threat, and what the card and the authors say of it."""
    victim = adv.load_victim(f"card:{folder}")
    card = victim.card or {}
    threats = threats_of(card, victim)
    started = time.perf_counter()
    report = adv.evaluate(
        victim, card["environment"]["id"], list(threats.values()), episodes=episodes, seed=seed, num_envs=num_envs
    ).to_dict()
    rows = {name: kept(row) for name, row in zip(["none", *threats], report["threats"], strict=True)}
    return {
        **made,
        "card": {name: card[name] for name in ("measured", "published") if name in card},
        "fingerprint": victim.fingerprint(),
        "env": report["env"],
        "versions": report["versions"],
        "warnings": report["warnings"],
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 1),
    }


def card_figures(card: dict[str, Any], threat: str) -> list[Figure]:
    """The card's own measurements of a threat, those over most episodes first."""
    name = "max-diff" if threat == STD else threat
    rows = [row for row in card.get("measured", ()) if NAMES.get(row["attack"]) == name]
    rows = [row for row in rows if name != "fgsm" or abs(row["eps"] - 1 / 255) < 1e-4]  # the only one that uint8 holds
    found = [measured(row["mean"], row["std"], row["episodes"]) for row in rows]
    return sorted(found, key=lambda figure: -(figure.episodes or 0))


def published(card: dict[str, Any], threat: str) -> str:
    """What the authors printed, which comes without an interval; attacks of theirs that are not ours are named."""
    entry = card.get("published") or {}
    if threat == "none":
        return number(entry["clean"]) if "clean" in entry else ""
    if threat not in ("max-diff", STD, "robust-sarsa"):
        return ""
    return ", ".join(f"{k.replace('_', ' ')} {number(v)}" for k, v in entry.items() if k not in ("clean", "source"))


def verdict(ours: Figure, theirs: list[Figure]) -> str:
    """Whether intervals overlap, for each of the card's own runs."""
    answers = [{True: "yes", False: "**no**", None: ""}[ours.overlaps(figure)] for figure in theirs]
    return "; ".join(answer for answer in answers if answer)


def head(data: Data) -> str:
    """Which commands evaluated the cards, on which machines."""
    groups: dict[str, dict[str, None]] = {}
    for result in data["cards"].values():
        where = f"{hardware(result['machine'])}; mujoco {result['versions'].get('mujoco', '?')}"
        groups.setdefault(where, {})[f"`{result['command']}`"] = None
    made = "; ".join(f"{', '.join(lines)} on {where}" for where, lines in groups.items())
    return f"Made by {made}."


def body(data: Data) -> list[str]:
    """The page after its head."""
    results = data["cards"]
    rows = []
    for name, result in results.items():
        for threat, row in result["rows"].items():
            ours, theirs = of_row(row), card_figures(result["card"], threat)
            rows.append(
                [
                    name,
                    row["threat"],
                    ours,
                    "; ".join(map(str, theirs)),
                    published(result["card"], threat),
                    verdict(ours, theirs),
                ]
            )
    header = ["card", "threat", "ours", "the card's own runs", "published", "overlap"]
    return [*prose(__doc__), table(header, rows)]


def measure(results: Results) -> None:
    """Evaluate the cards that are missing."""
    given = results.given
    results.made, made = {}, results.made
    for path in sorted(given.victims.glob("*/card.json")):
        card = json.loads(path.read_text(encoding="utf-8"))
        images = card["observation"]["std"] == 255.0
        if path.parent.name not in (given.only or ()) and (given.only or images):
            continue
        played = {"episodes": given.episodes, "seed": given.seed}
        results.once(results.part("cards"), path.parent.name, evaluate, path.parent, made, given.num_envs, **played)


PAGE = Page(
    "victims",
    "Victims: our figures beside those of their cards",
    __doc__,
    measure,
    body,
    page="victims",
    options={
        **VICTIMS,
        **episode_options(30),
        **AGAIN,
        "--only": {"nargs": "+", "metavar": "NAME", "help": "names of cards"},
        "--num-envs": {"type": int, "default": 30},
    },
    needs=["--victims"],
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
