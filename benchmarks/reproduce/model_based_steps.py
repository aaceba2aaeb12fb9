"""How many steps of the environment an adversary needs: a model that is planned through, or PA-AD that is trained.

    python benchmarks/reproduce/model_based_steps.py [--work FOLDER]

On zoo:hopper-ppo and zoo:walker-stand-sac, at equal eps: the return under ``model-based`` through a model of so many
transitions, to the task's unsafe state and to the least predicted reward; under PA-AD after so many steps of training
(Sun et al. 2022, the form that the victim's actions call for); and under ``max-diff``, which needs none. All are scored
on the same episodes, which none of them has seen. What a planner or PA-AD costs in gradients is not counted. FOLDER
keeps models and adversaries.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import table
from page import Data, Page, Results

import adv_wrappers as adv
from adv_wrappers.rendering.pixels import GRID, INK, MUTED
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure, save_png

BUDGETS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
EPISODES, SEED = 20, 11
# victim, environment, eps, its scale, length of plans
AGENTS = {
    "hopper": ("zoo:hopper-ppo", "Hopper-v5", 0.075, "victim", 5),
    "walker-stand": ("zoo:walker-stand-sac", "dm_control/walker-stand-v0", 0.2, None, 3),
}
FIXED = ("none", "max-diff")
LEARNED = {"unsafe state": "#b91c1c", "least reward": "#d97706", "PA-AD": "#2563eb"}


def model_of(agent: str, count: int, work: Path) -> str:
    """A model of so many transitions, trained for about as many updates whatever their number."""
    victim, env, *_ = AGENTS[agent]
    epochs = min(max(3_000_000 // count, 10), 300)
    folder = work / f"{agent}-{count}"
    adv.train_dynamics(victim, env, count, hidden=(256,) * 4, epochs=epochs, out=folder)
    return f"card:{folder}"


def threat_of(agent: str, kind: str, count: int, work: Path) -> Any:
    """An adversary that has seen so many steps of the environment; PA-AD as it is after the last of them."""
    victim, env, eps, scale, steps = AGENTS[agent]
    within = {"eps": eps, "scale": scale}
    if kind == "PA-AD":
        learned = adv.train_adversary(
            "pa-ad",
            env,
            victim,
            steps=count,
            checks=1,
            episodes=1,
            num_envs=8,
            out=work / f"pa-ad-{agent}-{count}",
            **within,
        )
        return adv.ThreatModel("observation", learned, adv.Linf(eps, scale))
    target = "reward" if kind == "least reward" else None
    model = model_of(agent, count, work)
    settings = {"steps": steps, "iterations": 10, "restarts": 8, "lr": 1.0}
    return adv.threat("model-based", dynamics=model, target=target, **settings, **within)


def scored(agent: str, threat: Any) -> dict[str, Any]:
    """The returns of a threat."""
    victim, env, *_ = AGENTS[agent]
    row = adv.evaluate(victim, env, [] if threat is None else [threat], EPISODES, SEED).threats[-1]
    return {key: row[key] for key in ("mean_return", "low", "high", "std", "returns")}


def attacked(agent: str, kind: str, count: int, work: Path) -> dict[str, Any]:
    """The returns under an adversary that has seen so many steps, and the seconds that it learned."""
    begun = time.process_time()
    threat = threat_of(agent, kind, count, work)
    trained = time.process_time() - begun
    return {**scored(agent, threat), "training_seconds": trained}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Returns by the number of steps, with their intervals."""
    figure = new_figure(9.0, 3.9, 110, layout="constrained")
    for i, agent in enumerate(name for name in AGENTS if name in results):
        axes, found = figure.add_subplot(1, len(AGENTS), i + 1), results[agent]
        for name in FIXED:
            if name in found:
                axes.axhline(found[name]["mean_return"], color=MUTED, linewidth=1, linestyle="--")
                axes.annotate(
                    {"none": "no attack"}.get(name, name),
                    (BUDGETS[-1], found[name]["mean_return"]),
                    color=MUTED,
                    fontsize=8,
                    xytext=(0, 3),
                    textcoords="offset points",
                    ha="right",
                )
        for kind, colour in LEARNED.items():
            cells = {int(count): cell for count, cell in found.get(kind, {}).items()}
            label = kind if kind == "PA-AD" else f"model-based, {kind}"
            axes.plot([*cells], [cell["mean_return"] for cell in cells.values()], "o-", color=colour, label=label)
            bounds = [[cell[end] for cell in cells.values()] for end in ("low", "high")]
            axes.fill_between([*cells], *bounds, color=colour, alpha=0.15, linewidth=0)
        axes.set_xscale("log")
        axes.set_xlim(BUDGETS[0] / 1.3, BUDGETS[-1] * 1.3)
        axes.set_ylim(bottom=0)
        axes.set_title(AGENTS[agent][0], fontsize=10, color=INK)
        axes.set_xlabel("steps of the environment that the adversary has seen", color=MUTED)
        axes.set_ylabel("return under attack", color=INK)
        axes.grid(axis="y", color=GRID)
        axes.set_axisbelow(True)
        bottom_spine_only(axes)
        if i == 0:
            figure.legend(loc="outside lower center", ncols=len(LEARNED), frameon=False, fontsize=9)
    save_png(figure, path)


def body(results: Data) -> list[str]:
    """The page after its head."""
    parts = [
        f"Means over {EPISODES} episodes, deviations in parentheses, by the number of steps of the environment that an "
        "adversary has seen: transitions of its model, or steps of PA-AD's training. One training each, and PA-AD as "
        "it is at its end: to compare checkpoints, as `train_adversary` does, takes further steps.",
        "![returns by the number of steps](model_based_steps.png)",
    ]
    for agent, (victim, env, eps, scale, steps) in AGENTS.items():
        found = results.get(agent, {})

        def cell(row: Mapping[str, Any] | None) -> str:
            return "" if row is None else f"{row['mean_return']:.0f} ({row['std']:.0f})"

        lines = [[f"{count:,}", *(cell(found.get(kind, {}).get(str(count))) for kind in LEARNED)] for count in BUDGETS]
        unit = " of the victim's own scale" if scale == "victim" else ""
        parts.append(
            f"## {victim} on {env}\n\neps {eps:g}{unit}, plans of {steps} steps. Without an attack "
            f"{cell(found.get('none'))}, under max-diff {cell(found.get('max-diff'))}.\n\n"
            + table(["steps", *(kind if kind == "PA-AD" else f"model-based, {kind}" for kind in LEARNED)], lines)
        )
    return parts


def measure(results: Results) -> None:
    """All that is not there yet."""
    with tempfile.TemporaryDirectory() as temporary:
        work = results.given.work or Path(temporary)
        for agent, (_, _, eps, scale, _) in AGENTS.items():
            for name in FIXED:
                threat = None if name == "none" else adv.threat(name, eps=eps, scale=scale)
                results.once(results.part(agent), name, scored, agent, threat)
            for count in BUDGETS:
                for kind in LEARNED:
                    results.once(results.part(agent, kind), str(count), attacked, agent, kind, count, work)


PAGE = Page(
    "model_based_steps",
    "Steps of the environment: a model or a trained adversary",
    __doc__,
    measure,
    body,
    lambda data, folder: draw(data, folder / "model_based_steps.png"),
    options={"--work": {"type": Path, "help": "for models and adversaries"}},
)


if __name__ == "__main__":
    PAGE.main()
