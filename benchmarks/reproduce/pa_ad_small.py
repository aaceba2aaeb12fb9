"""SA-RL and PA-AD on CartPole and MountainCar (PA-AD, appendix F.1), and their learning curves (Figure 12).

    python benchmarks/reproduce/pa_ad_small.py --victims FOLDER --work FOLDER

CartPole: the card's A2C agent with sampled actions at eps 0.05 raw, five seeds of each. MountainCar: the zoo's DQN
agent at several eps, in units of the half-range (0.9, 0.07), 100k steps of each.

    python benchmarks/reproduce/pa_ad_small.py --victims FOLDER --untrained

measures the attacks that need no training, on the same episodes, and leaves what was trained as it is; and how much of
the return a search of a grid for MaxDiff's divergence takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import learning
import torch
from adversaries import STRONG, record_of
from figures import kept, of_row, table
from page import AGAIN, VICTIMS, WORK, Data, Page, Results, episode_options

import adv_wrappers as adv
from adv_wrappers.attacks.objectives import divergence_of
from adv_wrappers.threats.presets import parse_threat

HALF = (0.9, 0.07)  # of MountainCar's positions and speeds
SWEEP = (0.05, 0.052, 0.054, 0.06, 0.075)
SEEDS = 5
# Attacks that need no training, by what the tables call them; those of MountainCar's agent, which has Q-values, and of
# CartPole's, which has none.
UNTRAINED = ("max-diff", STRONG, "pgd", "multi-targeted")
OF_Q = ("min-best:steps=10,step=0.25", *UNTRAINED, "min-played-q")
GRID = 3  # points along each of CartPole's four dimensions
# SA-RL learns CartPole's four numbers in the time given with a larger step only; PA-AD's single number needs no care.
CARTPOLE: dict[str, dict[str, Any]] = {
    "sa-rl": {"steps": 55_000, "n_steps": 16, "learning_rate": 1e-3, "checks": 11},
    "pa-ad": {"steps": 20_000, "n_steps": 32, "checks": 4},
}


def agent(victims: Path) -> adv.Victim:
    """The A2C agent of CartPole, sampling."""
    return adv.load_victim(f"card:{victims / 'zoo-cartpole-a2c'}", select="sample")


def cartpole(arguments: argparse.Namespace) -> dict[str, Any]:
    """Five trainings of each kind, and the best of each kind over 50 episodes."""
    victim, within = agent(arguments.victims), adv.Linf(0.05)
    out: dict[str, Any] = {"runs": {}}
    threats = [adv.ThreatModel("observation", how, within) for how in (adv.Noise(), adv.MaxDiff(victim))]
    for kind, settings in CARTPOLE.items():
        runs = []
        for seed in range(SEEDS):
            folder = arguments.work / "cartpole" / f"{kind}-s{seed}"
            adv.train_adversary(kind, "CartPole-v1", victim, 0.05, seed=seed, out=folder, **settings)
            runs.append(record_of(folder))
        out["runs"][kind] = runs
        best = min(range(SEEDS), key=lambda seed: min(point["mean_return"] for point in runs[seed]))
        folder = arguments.work / "cartpole" / f"{kind}-s{best}"
        threats.append(adv.ThreatModel("observation", adv.Learned(card=str(folder), victim=victim), within))
    report = adv.evaluate(victim, "CartPole-v1", threats, arguments.episodes, arguments.seed).to_dict()
    names = ("none", "noise", "max-diff", *CARTPOLE)
    out["rows"] = {name: kept(row) for name, row in zip(names, report["threats"], strict=True)}
    return out


def mountaincar(arguments: argparse.Namespace, eps: float) -> dict[str, Any]:
    """One eps: noise, MaxDiff, MinBest, MinQ, and a training of each kind."""
    victim, within = adv.load_victim("zoo:mountaincar-dqn"), adv.Linf(eps, HALF)
    hows: dict[str, Any] = {
        "noise": adv.Noise(),
        "min-best": adv.MinBest(victim, steps=10, step=0.25),
        "max-diff": adv.MaxDiff(victim),
    }
    for kind, actor in (("sa-rl", adv.SARL()), ("pa-ad", adv.PAAD(victim, steps=10, step=0.2))):
        folder = arguments.work / "mountaincar" / f"{kind}-{eps:g}"
        hows[kind] = adv.train_adversary(
            actor, "MountainCar-v0", victim, within=within, steps=100_000, seed=0, out=folder, learning_rate=1e-3
        )
    threats = [adv.ThreatModel("observation", how, within) for how in hows.values()]
    report = adv.evaluate(victim, "MountainCar-v0", threats, arguments.episodes, arguments.seed).to_dict()
    return {name: kept(row) for name, row in zip(("none", *hows), report["threats"], strict=True)}


class Grid:
    """The largest of MaxDiff's divergences on a grid over the box, its corners included.

    Attributes:
        reached: mean divergence over every tenth step's states: by MaxDiff's published form, its strong one, and this.
    """

    def __init__(self, victim: adv.Victim) -> None:
        self.forms = adv.MaxDiff(victim), adv.MaxDiff(victim, restarts=6, keep="best", noise=0)
        self.sums, self.states, self.steps = torch.zeros(3, dtype=torch.float64), 0, 0
        axis = torch.linspace(0, 1, GRID)
        self.grid = torch.cartesian_prod(*[axis] * 4)

    @property
    def reached(self) -> list[float]:
        return (self.sums / self.states).tolist()

    def __call__(self, x: torch.Tensor, context: Any) -> torch.Tensor:
        low, high = (side.unsqueeze(1) for side in context.box)
        points = low + (high - low) * self.grid.to(x.dtype)
        if compared := self.steps % 10 == 0:
            points = torch.cat([*(form(x, context).unsqueeze(1) for form in self.forms), points], 1)
        self.steps += 1
        victim, rows = self.forms[0].victim, points.shape[1]
        bound = context.bind(victim)
        clean = bound.params(x).repeat_interleave(rows, 0)
        values = divergence_of(victim, clean, None, None)(bound.params(points.flatten(0, 1))).view(len(x), rows)
        best = values[:, -len(self.grid) :].max(1)
        if compared:
            self.sums += torch.stack([values[:, 0], values[:, 1], best.values]).double().sum(1)
            self.states += len(x)
        return points[torch.arange(len(x)), best.indices + values.shape[1] - len(self.grid)]


def divergence(ref: str, select: str, given: argparse.Namespace) -> dict[str, Any]:
    """What more divergence takes from an A2C agent of CartPole that plays the mode or samples."""
    within, victim = adv.Linf(0.05), adv.load_victim(ref, select=select)
    grid = Grid(victim)
    hows = [parse_threat(form, victim=victim, within=within) for form in ("max-diff", STRONG)]
    hows.append(adv.ThreatModel("observation", grid, within))
    report = adv.evaluate(victim, "CartPole-v1", hows, given.episodes, given.seed, num_envs=50)
    rows = zip(("none", "max-diff", STRONG, "grid"), report.to_dict()["threats"], strict=True)
    return {"rows": {key: kept(row) for key, row in rows}, "reached": grid.reached}


def without_training(
    victim: adv.Victim, env: str, names: tuple[str, ...], within: adv.Linf, given: argparse.Namespace
) -> dict[str, Any]:
    """Attacks that need no training, over the same episodes as those that were trained."""
    threats = [parse_threat(name, victim=victim, within=within) for name in names]
    report = adv.evaluate(victim, env, threats, given.episodes, given.seed, num_envs=50).to_dict()
    return {name: kept(row) for name, row in zip(("none", *names), report["threats"], strict=True)}


def untrained(results: Results) -> None:
    """Everything that needs no training; what was trained, and its command, stay as they are."""
    given, data = results.given, results.part("untrained")
    data |= {**results.made, **({} if given.again else data)}
    results.made = {}
    cart, car = agent(given.victims), adv.load_victim("zoo:mountaincar-dqn")
    results.once(data, "cartpole", without_training, cart, "CartPole-v1", UNTRAINED, adv.Linf(0.05), given)
    for eps in SWEEP:
        within, rows = adv.Linf(eps, HALF), results.part("untrained", "mountaincar")
        results.once(rows, f"{eps:g}", without_training, car, "MountainCar-v0", OF_Q, within, given)
    for name, ref in (("zoo", "zoo:cartpole-a2c"), ("card", f"card:{given.victims / 'zoo-cartpole-a2c'}")):
        for select in ("mode", "sample"):
            rows = results.part("untrained", "divergence")
            results.once(rows, f"{name}, {select}", divergence, ref, select, given)


def text(row: dict[str, Any]) -> str:
    """A mean, its deviation and the median."""
    return f"{row['mean_return']:.1f} +- {row['std']:.1f} ({row['median']:.1f})"


def cell_of(row: dict[str, Any]) -> str:
    """A mean and its interval."""
    figure = of_row(row)
    return f"{figure.mean:.1f} [{figure.low:.1f}, {figure.high:.1f}]"


def body(data: Data) -> list[str]:
    """The section after its head."""
    again, cart = data["untrained"], data["cartpole"]
    columns = {"CartPole, eps 0.05": {**cart["rows"], **again["cartpole"]}}
    for eps in sorted({*data["mountaincar"], *again["mountaincar"]}, key=float):
        columns[f"MountainCar, eps {eps}"] = {**data["mountaincar"].get(eps, {}), **again["mountaincar"].get(eps, {})}
    names = dict.fromkeys(name for rows in columns.values() for name in rows if name != "min-best")
    lines = [[name, *(cell_of(rows[name]) if name in rows else "" for rows in columns.values())] for name in names]
    return [
        "Mean return [95% interval] over the same 50 episodes, on which no training chose. CartPole's A2C agent "
        "samples its actions; MountainCar's is a DQN, eps in units of the half-range (0.9, 0.07). SA-RL and PA-AD are "
        "the best checkpoint of five trainings on CartPole, of one of 100k steps on MountainCar (with a single ascent "
        "of PA-AD's actor; none at 0.075).",
        table(["attack", *columns], lines),
        "CartPole's learning curves, means over seeds with their 95% interval; SA-RL learns with n_steps=16 and "
        "learning_rate=1e-3, PA-AD with n_steps=32 and 3e-4. Minutes are a processor's, checkpoints left out.",
        "![learning curves](pa_ad_small.png)",
        learning.summary(cart["runs"]),
        more_objective(again["divergence"]),
    ]


def more_objective(found: dict[str, Any]) -> str:
    """What a larger divergence takes."""
    names = list(next(iter(found.values()))["rows"])
    lines = [
        [who, *(text(result["rows"][name]) for name in names), *(f"{value:.3g}" for value in result["reached"])]
        for who, result in found.items()
    ]
    return (
        "## More objective is not less return\n\nCartPole's two A2C agents at eps 0.05, playing the mode and sampling. "
        f"`grid` takes at every step the largest divergence out of a grid of {GRID} points along each dimension. The "
        "last columns are mean divergences at the same states: more divergence leaves more return here.\n\n"
        + table(["agent", *names, *(f"divergence: {name}" for name in ("max-diff", "strong form", "grid"))], lines)
    )


def draw(data: Data, folder: Path) -> None:
    """The learning curves."""
    if "cartpole" in data:
        learning.draw(data["cartpole"]["runs"], folder / "pa_ad_small.png")


def measure(results: Results) -> None:
    """Train and evaluate what is missing, or measure what needs no training."""
    given = results.given
    if given.untrained:
        untrained(results)
        return
    results.need("--work", "for what is trained")
    results.once(results.data, "cartpole", cartpole, given)
    for eps in SWEEP:
        results.once(results.part("mountaincar"), f"{eps:g}", mountaincar, given, eps)


PAGE = Page(
    "pa_ad_small",
    "SA-RL and PA-AD on CartPole and MountainCar",
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
        "--untrained": {"action": "store_true", "help": "measure what needs no training, and nothing else"},
    },
    needs=["--victims"],
)


if __name__ == "__main__":
    PAGE.main()
