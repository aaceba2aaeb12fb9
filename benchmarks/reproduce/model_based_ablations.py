"""What a model-based attack depends on: Tables 3 to 5 and Figure 3 of Weng et al. 2020.

    python benchmarks/reproduce/model_based_ablations.py --models FOLDER [--part NAME ...]

The length of plans on walker (Table 3) and on cartpole's actions (Table 5), attacks at every second step (Table 4), and
the number of transitions that a model is learned from (Figure 3), each over ten runs of 1000 control steps at the eps
that ``model_based.py`` chose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from figures import table
from model_based import NAMES, ROWS, attack, cell, model_of
from page import Data, Page, Results, load

from adv_wrappers.rendering.frames import GRID, INK, MUTED
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure, save_figure

PARTS = ("lengths", "seldom", "samples")
STAND, WALK, ACTIONS = (ROWS[NAMES.index(n)] for n in NAMES if n in (NAMES[0], NAMES[1], "cartpole-balance, actions"))
LENGTHS = {STAND.name: (1, 2, 5, 10, 15, 20), WALK.name: (1, 2, 5, 10, 15, 20), ACTIONS.name: (20, 100)}
SAMPLES = {50_000: 60, 200_000: 30, 1_000_000: 20}  # transitions of walker-stand, and epochs
COLOURS = ("#94a3b8", "#2563eb", "#b91c1c")
PAPER = {  # mean losses of Tables 3 and 5 by T
    WALK.name: {1: 468, 2: 604, 5: 761, 10: 881, 15: 874, 20: 937},
    STAND.name: {1: 322, 2: 279, 5: 163, 10: 84, 15: 101, 20: 117},
    ACTIONS.name: {20: 2173, 100: 1951},
}
PAPER_SELDOM = {"rand-U": 1511, "rand-B": 1431, "flip": 1532, "attack": 934}  # of Table 4


def lengths(eps: Mapping[str, float], models: Path, results: Results) -> None:
    """The attack at one setting but for T."""
    for row in (STAND, WALK, ACTIONS):
        for steps in LENGTHS[row.name]:
            threat = attack(row, model_of(row, models), eps[row.name], steps)
            results.once(results.part("lengths", row.name), str(steps), cell, row, threat)


def seldom(eps: Mapping[str, float], models: Path, results: Results) -> None:
    """Attacks of walker-stand at every second step, by which plans go too."""
    radius, when = eps[STAND.name], "when=every(2)"
    wanted = {
        "rand-U": (f"noise:kind=uniform,eps={radius},{when}", STAND.draws),
        "rand-B": (f"noise:kind=sign,eps={radius},{when}", STAND.draws),
        "flip": (f"flip:eps={radius},{when}", 1),
        "attack": (attack(STAND, model_of(STAND, models), radius, STAND.steps + 2, every=2) + f",{when}", 1),
    }
    for name, (threat, draws) in wanted.items():
        results.once(results.part("seldom"), name, cell, STAND, threat, best_of=draws)


def samples(eps: Mapping[str, float], models: Path, results: Results) -> None:
    """The attack of walker-stand through models of more and more transitions."""
    for count, epochs in SAMPLES.items():
        row = dataclasses.replace(STAND, transitions=count)
        threat = attack(row, model_of(row, models, epochs=epochs), eps[STAND.name], row.steps)
        results.once(results.part("samples"), str(count), cell, row, threat)


def draw(data: Data, folder: Path) -> None:
    """Figure 3: the loss of every run by the number of transitions."""
    if not data.get("samples"):
        return
    figure = new_figure(6.4, 3.2, 110, layout="constrained")
    axes = figure.add_subplot()
    for colour, (count, one) in zip(COLOURS, data["samples"].items(), strict=False):
        runs = range(1, len(one["losses"]) + 1)
        axes.plot(runs, one["losses"], "o-", color=colour, label=f"{int(count):,} transitions", linewidth=1.5)
    axes.set_xlabel("run", color=MUTED)
    axes.set_ylabel("total loss", color=INK)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    bottom_spine_only(axes)
    save_figure(figure, folder / "model_based_samples.png")


def spread(cell: Mapping[str, Any], what: str) -> str:
    """Mean, deviation, and range."""
    given = np.array(cell[what])
    return f"{given.mean():.0f} ({given.std(ddof=1):.0f}), {given.min():.0f} to {given.max():.0f}"


def body(results: Data) -> list[str]:
    """The section after its head."""
    lines = [
        [
            f"{name}, T = {steps}",
            *(spread(one, what) for what in ("losses", "returns")),
            PAPER[name].get(int(steps), ""),
        ]
        for name, cells in results["lengths"].items()
        for steps, one in cells.items()
    ]
    lines += [
        [f"walker-stand, every second step, {name}", spread(one, "losses"), spread(one, "returns"), PAPER_SELDOM[name]]
        for name, one in results["seldom"].items()
    ]
    lines += [
        [f"walker-stand, {int(count):,} transitions", spread(one, "losses"), "", ""]
        for count, one in results["samples"].items()
    ]
    return [
        "Ten runs of 1000 control steps each, at the eps above: mean, deviation, range. T counts decisions, of which "
        "one is two control steps of walker and four of cartpole.",
        table(["row (Tables 3 to 5, Figure 3)", "loss", "reward", "the paper's loss"], lines),
        "![loss of every run by the number of transitions](model_based_samples.png)",
    ]


def measure(results: Results) -> None:
    """Measure what was asked for and is not there yet."""
    given = results.given
    eps = {name: row["eps"] for name, row in load(given.out / "model_based.json")["rows"].items()}
    for name, make in (("lengths", lengths), ("seldom", seldom), ("samples", samples)):
        if name in given.part:
            make(eps, given.models, results)


PAGE = Page(
    "model_based_ablations",
    "Model-based attacks: what they depend on",
    __doc__,
    measure,
    body,
    draw,
    page="model_based",
    options={
        "--models": {"type": Path, "help": "for the learned models and their transitions"},
        "--part": {"nargs": "+", "choices": PARTS, "default": PARTS},
    },
    needs=["--models"],
    partly=["--part"],
)


if __name__ == "__main__":
    PAGE.main()
