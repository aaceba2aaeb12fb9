"""The page of ``atla.py``: what agents that were trained against adversaries earn under each attack."""

from __future__ import annotations

from typing import Any

from figures import table

ENV, EPS = "Hopper-v5", 0.075
COLUMNS = {
    "none": "natural", "noise": "noise", "max-diff": "MaxDiff", "robust-sarsa": "Robust Sarsa", "sa-rl": "SA-RL",
    "pa-ad": "PA-AD",
}  # fmt: skip
LAST = ("robust-sarsa", "sa-rl", "pa-ad")  # whose mean the paper reports
PAPER = {  # Hopper of the paper: natural, noise, MaxDiff, Robust Sarsa, SA-RL, PA-AD and the mean of the last three
    "PPO, the paper's table 2": ("", "3167 +- 542", "2101 +- 793", "1410 +- 655", "794 +- 238", "636 +- 9",
                                 "160 +- 136", "530"),
    "ATLA-PPO, its table 6": ("2M", "1763 +- 818", "", "", "1349 +- 174", "1172 +- 344", "477 +- 30", "999"),
    "PA-ATLA-PPO, its table 6": ("2M", "2164 +- 121", "", "", "1720 +- 490", "1119 +- 123", "1024 +- 188", "1288"),
}  # fmt: skip


def line_of(result: dict[str, Any]) -> list[str]:
    """The cells of one agent, those that were not measured empty, the lowest bold; and the mean over the attacks."""
    rows = result["rows"]
    means = {name: rows[name]["mean_return"] for name in COLUMNS if name in rows}
    attacked = [means[name] for name in LAST if name in means]
    texts = []
    for name in COLUMNS:
        text = f"{means[name]:.0f} +- {rows[name]['std']:.0f}" if name in means else ""
        texts.append(f"**{text}**" if name in means and means[name] == min(means.values()) else text)
    return [*texts, f"{sum(attacked) / len(LAST):.0f}" if len(attacked) == len(LAST) else ""]


def markdown(data: dict[str, Any]) -> str:
    """The whole page."""
    agents = data["agents"]
    header = ["agent", "steps", *COLUMNS.values(), "mean of the last three"]
    lines = [[row, f"{r['steps'] / 1e6:g}M", *line_of(r)] for row, r in agents.items()]
    lines += [[name, *cells] for name, cells in PAPER.items()]
    notes = []
    for row, r in agents.items():
        spent, chosen = r["record"][-1]["seconds"], r["protocol"]
        words = "; ".join(f"{COLUMNS[name]}: {text}" for name, text in r["about"].items())
        notes.append(
            f"- {row}: {chosen}, over 20 episodes a side on seeds of their own; {spent['agent'] / 60:.0f} minutes of "
            f"the processor for the agent and {spent['adversary'] / 60:.0f} for its adversary in training. {words}."
        )
    curves = [
        [row, f"{p['steps'] / 1e3:.0f}k", f"{p['clean']:.0f}", "" if p["attacked"] is None else f"{p['attacked']:.0f}"]
        for row, r in agents.items()
        for p in r["record"]
    ]
    parts = [
        "# ATLA and PA-ATLA against plain PPO",
        f"Made by `{data['command']}`\n\non {data['machine']}.",
        f"What agents trained on {ENV} earn, in the shape of the paper's Table 6: mean +- standard deviation over the "
        f"same episodes ({', '.join(sorted({str(r['episodes']) for r in agents.values()}))}), the lowest mean of a row "
        f'bold. eps is {EPS} of `Linf(eps, scale="victim")`, each agent\'s own normaliser. A dash: not '
        "measured, or not in the paper. The paper's rows come from another release of the environment, with the "
        "medium agent of 21 and the best of 30 to 50 attacks, and stand here for the shape. Our noise is uniform over "
        "the budget; the paper does not say which noise its tables have. Our MaxDiff is `max-diff:weights=std`, the "
        "divergence of the Gaussian policy, and not today's default, which weighs all dimensions of an action alike.",
        table(header, lines),
        "**How agents and attacks were chosen.** Steps are the agent's; its adversary took as many of its own.\n\n"
        + "\n".join(notes),
        "## Checkpoints\n\nMean returns on the choosing seeds, clean and under the adversary of that day.\n\n"
        + table(["agent", "steps", "clean", "attacked"], curves),
    ]
    return "\n\n".join(parts) + "\n"
