"""Sweeps of PA-AD on MuJoCo agents: learning curves (Figure 12), budgets (Figure 11) and lambda (Table 4).

    python benchmarks/reproduce/pa_ad_sweeps.py --victims FOLDER --work FOLDER

Curves: SA-RL and PA-AD against the zoo's Walker2d agent, five seeds. Budgets: the zoo's Hopper agent at four eps.
Lambda: the direction form against saddpg-hopper-vanilla.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import learning
import matplotlib.pyplot as plt
from adversaries import Job, Row, record_of, train_all
from figures import kept, of_row, table
from pa_ad import best_of, critic_of
from page import AGAIN, VICTIMS, WORK, Data, Page, Results, episode_options

import adv_wrappers as adv

WALKER = Row("zoo:walker2d-ppo", "Walker2d-v5", 0.05)
HOPPERS = tuple(Row("zoo:hopper-ppo", "Hopper-v5", eps) for eps in (0.025, 0.05, 0.075, 0.1))
LAMBDA_ROW, LAMBDAS = Row("saddpg-hopper-vanilla", "Hopper-v4", 0.075), (0.0, 0.2, 1.0, 5.0)
FORM = {"sa-rl": None, "pa-ad": "target"}
PARTS = ("budgets", "lambda", "curves")


def curves(arguments: argparse.Namespace, seeds: int = 5) -> dict[str, Any]:
    """What every checkpoint leaves and what it cost, a training a seed."""
    jobs = [Job(WALKER, kind, form, seed, arguments.steps) for seed in range(seeds) for kind, form in FORM.items()]
    train_all(jobs, arguments.victims, arguments.work, arguments.processes)
    out: dict[str, Any] = {kind: [] for kind in FORM}
    for job in jobs:
        out[job.kind].append(record_of(job.folder(arguments.work)))
    return out


def budget(arguments: argparse.Namespace, row: Row) -> dict[str, Any]:
    """Every attack at one eps."""
    jobs = [Job(row, kind, form, 0, arguments.steps) for kind, form in FORM.items()]
    train_all(jobs, arguments.victims, arguments.work, arguments.processes)
    victim, within = row.load(arguments.victims), adv.Linf(row.eps, scale="victim")
    hows: dict[str, Any] = {"noise": adv.Noise(), "max-diff": adv.MaxDiff(victim, weights="std")}
    hows["robust-sarsa"], _ = critic_of(row, victim, arguments.work, arguments.seed)
    for job in jobs:
        hows[job.kind] = adv.Learned(card=str(job.folder(arguments.work)), victim=victim)
    threats = [adv.ThreatModel("observation", how, within) for how in hows.values()]
    report = adv.evaluate(victim, row.env, threats, arguments.episodes, arguments.seed, num_envs=50).to_dict()
    return {name: kept(line) for name, line in zip(("none", *hows), report["threats"], strict=True)}


def weight(arguments: argparse.Namespace, value: float) -> dict[str, Any]:
    """PA-AD with one weight of the cosine."""
    job = Job(LAMBDA_ROW, "pa-ad", "direction", 0, arguments.steps, weight=value)
    train_all([job], arguments.victims, arguments.work, 1)
    victim, within = LAMBDA_ROW.load(arguments.victims), adv.Linf(LAMBDA_ROW.eps, scale="victim")
    point, _ = best_of([job], arguments.work)
    threat = adv.ThreatModel("observation", adv.Learned(card=str(job.folder(arguments.work)), victim=victim), within)
    report = adv.evaluate(victim, LAMBDA_ROW.env, [threat], arguments.episodes, arguments.seed, num_envs=50).to_dict()
    return {**kept(report["threats"][1]), "chosen_at": point["steps"], "when_chosen": point["mean_return"]}


def draw(data: dict[str, Any], out: Path) -> None:
    """The pictures of the page."""
    plt.rcParams.update(learning.STYLE)
    if data.get("curves"):
        learning.draw(data["curves"], out / "pa_ad_curves.png")
    if data.get("budgets"):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        points = sorted(data["budgets"].items(), key=lambda pair: float(pair[0]))
        for name, colour in learning.COLOURS.items():
            rows = [lines[name] for _, lines in points]
            eps, mean = [float(key) for key, _ in points], [row["mean_return"] for row in rows]
            low, high = zip(*((f.low, f.high) for f in map(of_row, rows)), strict=True)
            axes.fill_between(eps, low, high, color=colour, alpha=0.15, lw=0)
            axes.plot(eps, mean, color=colour, lw=2.5, marker="o")
            axes.annotate(
                name.upper(),
                (eps[-1], mean[-1]),
                (10, 0),
                textcoords="offset points",
                color=colour,
                va="center",
                weight="bold",
                annotation_clip=False,
            )
        axes.set(xlabel="eps", ylabel="the victim's return", ylim=(0, None), xticks=eps)
        figure.savefig(out / "pa_ad_budgets.png", dpi=120)
    plt.close("all")


def body(data: Data) -> list[str]:
    """The page after its head."""

    def text(row: dict[str, Any]) -> str:
        return f"{row['mean_return']:.0f} +- {row['std']:.0f} ({row['median']:.0f})"

    parts = [
        "Mean return +- standard deviation (median) over 50 episodes, checkpoints chosen on 30 others; `max-diff` is "
        "`max-diff:weights=std`.",
    ]
    if data.get("curves"):
        parts.append(
            "## Learning curves\n\nThe zoo's Walker2d agent at eps 0.05: what checkpoints leave, with the 95% interval "
            "of the mean over seeds. Minutes are the processor's on one thread, checkpoints left out.\n\n"
            "![learning curves](pa_ad_curves.png)\n\n" + learning.summary(data["curves"])
        )
    if data.get("budgets"):
        names = list(next(iter(data["budgets"].values())))
        points = sorted(data["budgets"].items(), key=lambda pair: float(pair[0]))
        lines = [[eps, *(text(rows[name]) for name in names)] for eps, rows in points]
        parts.append(
            "## By budget\n\nThe zoo's Hopper agent; one training of each kind at each eps.\n\n"
            "![budgets](pa_ad_budgets.png)\n\n" + table(["eps", *names], lines)
        )
    if data.get("lambda"):
        lines = [
            [key, text(row), f"{row['chosen_at'] // 1000}k", f"{row['when_chosen']:.0f}"]
            for key, row in sorted(data["lambda"].items(), key=lambda pair: float(pair[0]))
        ]
        parts.append(
            "## Lambda\n\nThe weight of the cosine, form `direction`, saddpg-hopper-vanilla at eps 0.075; one training "
            "each.\n\n" + table(["lambda", "return", "chosen at", "when chosen"], lines)
        )
    return parts


def measure(results: Results) -> None:
    """Train and evaluate what is missing."""
    given = results.given
    rows: dict[str, tuple[Any, dict[str, Any]]] = {
        "budgets": (budget, {f"{row.eps:g}": row for row in HOPPERS}),
        "lambda": (weight, {f"{value:g}": value for value in LAMBDAS}),
    }
    for part, (make, items) in rows.items():
        for key, item in items.items() if part in given.only else ():
            results.once(results.part(part), key, make, given, item)
    if "curves" in given.only:
        results.once(results.data, "curves", curves, given)


PAGE = Page(
    "pa_ad_sweeps",
    "PA-AD: learning curves, budgets, lambda",
    __doc__,
    measure,
    body,
    draw,
    page="pa_ad",
    options={
        **VICTIMS,
        **WORK,
        **episode_options(50),
        **AGAIN,
        "--steps": {"type": int, "default": 500_000},
        "--processes": {"type": int, "default": 2},
        "--only": {"nargs": "+", "choices": PARTS, "default": PARTS},
    },
    needs=["--victims", "--work"],
    partly=["--only"],
)


if __name__ == "__main__":
    PAGE.main()
