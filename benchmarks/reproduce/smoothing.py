"""Randomized smoothing: what is certified over the length of an attack, and what attacks of that length leave.

    python benchmarks/reproduce/smoothing.py

For CartPole's DQN agent and Pong's PPO agent (both of the zoo), each with Gaussian noise of several sizes: the
certified return over the total Euclidean length of an attack (Kumar, Levine and Feizi 2022), from episodes without an
attack; and attacks of the same total length on other episodes, all at once or over many steps, on the average over
noise and on the network without it.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import table
from page import Data, Page, Results

import adv_wrappers as adv
from adv_wrappers.certification.smoothing import SmoothedCertificate
from adv_wrappers.core.engine.context import Context
from adv_wrappers.rendering.frames import GRID, INK, MUTED
from adv_wrappers.rendering.plots import bottom_spine_only, new_figure, save_figure
from adv_wrappers.victims.smoothed import Smoothed

COLOURS = ("#2563eb", "#0f766e", "#d97706", "#b91c1c", "#7c3aed")
PARTS = ("certificates", "attacks")
REACH = 4.0  # lengths up to so many times the second largest sigma are drawn


@dataclass(frozen=True)
class Plan:
    """How an attack spends its length.

    Attributes:
        attack: ``"fgsm"`` on the average over noise, ``"network"`` for fgsm on the network without noise,
            ``"tilt"`` to push the observed angle of CartPole's pole and its speed one way, ``"lean"`` to push them back
            to upright while the pole leans by more than 0.1.
        steps: over how many steps, each of length ``eps / sqrt(steps)``.
        every: the least distance between two of them.
    """

    attack: str
    steps: int
    every: int = 1

    def __str__(self) -> str:
        apart = f", {self.every} apart" if self.every > 1 else ""
        return f"{self.attack}, {self.steps} step{'s' * (self.steps > 1)}{apart}"

    def threat(self, victim: Smoothed, eps: float) -> adv.ThreatModel:
        """The attack of a total length."""
        when = adv.AtMost(self.steps) if self.every == 1 else adv.Every(self.every) & adv.AtMost(self.steps)
        how: Any = tilted
        if self.attack == "lean":
            return adv.ThreatModel("observation", upright, adv.L2(eps / math.sqrt(self.steps)), self._leans)
        if self.attack != "tilt":
            target = victim.victim if self.attack == "network" else victim
            how = adv.threat("fgsm", target, eps=1.0).how
        return adv.ThreatModel("observation", how, adv.L2(eps / math.sqrt(self.steps)), when)

    def _leans(self, x: torch.Tensor, context: Context) -> torch.Tensor:
        """Rows in which the pole leans and steps are left."""
        return (x[:, 2].abs() > 0.1) & torch.as_tensor(context.spent < self.steps)


def upright(x: torch.Tensor, context: Context) -> torch.Tensor:
    """CartPole as if the pole stood upright, or leaned to the other side."""
    return x - 1e3 * x[:, 2:3].sign() * torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=x.dtype)


def tilted(x: torch.Tensor, context: Context) -> torch.Tensor:
    """CartPole as if the pole leaned and fell to the right: where it is shown does not change with what is true."""
    return x + 1e3 * torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=x.dtype)


@dataclass(frozen=True)
class Case:
    """An agent, its noise, and how much of everything is played.

    Attributes:
        sigmas: sizes of the noise; ``votes`` has pairs of a size and a number of votes beside them.
        episodes: for a certificate, played ``together`` at a time.
        lengths: of attacks, in units of sigma.
        attacked: episodes of an attack.
        unit: of sigma and of lengths, in words.
        least: the least return that is possible.
    """

    name: str
    ref: str
    env: str
    sigmas: tuple[float, ...]
    votes: tuple[tuple[float, int], ...]
    episodes: int
    together: int
    lengths: tuple[float, ...]
    plans: tuple[Plan, ...]
    attacked: int
    unit: str
    least: float

    def settings(self) -> list[tuple[float, int]]:
        """Sizes of the noise and numbers of votes."""
        return [*((sigma, 1) for sigma in self.sigmas), *self.votes]

    def smoothed(self, sigma: float, vote: int) -> Smoothed:
        """The agent with noise."""
        return Smoothed(adv.load_victim(self.ref), sigma, vote)


CASES = (
    Case(
        "CartPole, DQN", "zoo:cartpole-dqn", "CartPole-v1", (0.05, 0.1, 0.2), ((0.2, 5),), 1000, 500, (1.0, 2.0),
        (Plan("fgsm", 1), Plan("fgsm", 20), Plan("network", 20), Plan("tilt", 20), Plan("tilt", 500), Plan("lean", 10)),
        100, "the units of CartPole's four numbers", 0.0,
    ),
    Case(
        "Pong, PPO", "zoo:pong-ppo", "PongNoFrameskip-v4", (2.5, 5.0, 10.0), (), 20, 5, (2.0,),
        (Plan("fgsm", 25, 20), Plan("network", 25, 20)), 5,
        "grey levels, over the four frames of a stack and all steps", -21.0,
    ),
)  # fmt: skip


def key_of(sigma: float, vote: int) -> str:
    """The name of a setting in the results."""
    return f"sigma={sigma:g}" + (f", {vote} votes" if vote > 1 else "")


def measure_case(case: Case, found: dict[str, Any], seed: int, parts: set[str], keep: Callable[[], None]) -> None:
    """All of one agent that is not there yet."""
    for sigma, vote in case.settings():
        victim, row = case.smoothed(sigma, vote), found.setdefault(key_of(sigma, vote), {"sigma": sigma, "vote": vote})
        returns = row.setdefault("returns", [])
        while "certificates" in parts and len(returns) < case.episodes:
            began, count = time.process_time(), min(case.together, case.episodes - len(returns))
            # a seed for every part, so that a run can go on
            run = adv.evaluate(victim, case.env, [], count, seed + 1000 + len(returns), count)
            returns += run.threats[0]["returns"]
            row["seconds"] = row.get("seconds", 0.0) + time.process_time() - began
            keep()
            print(case.name, key_of(sigma, vote), len(returns), f"{np.mean(returns):.1f}", flush=True)
        for length in case.lengths if "attacks" in parts and vote == 1 else ():
            known = row.setdefault("attacks", {})
            plans = {f"{plan}, {length:g} sigma": plan for plan in case.plans}
            names = [name for name in plans if name not in known]
            if not names:
                continue
            threats = [plans[name].threat(victim, length * sigma) for name in names]
            count = min(case.together, case.attacked)
            run = adv.evaluate(victim, case.env, threats, case.attacked, seed, count, quantize=False)
            row["clean"] = figures_of(run.threats[0])
            for name, attacked in zip(names, run.threats[1:], strict=True):
                known[name] = {"eps": length * sigma, **figures_of(attacked)}
                print(case.name, key_of(sigma, vote), name, attacked["mean_return"], flush=True)
            keep()


def figures_of(row: dict[str, Any]) -> dict[str, Any]:
    """What a page needs of a row of a report."""
    wanted = ("mean_return", "std", "low", "high", "episodes", "returns", "attacked_fraction", "l2")
    return {key: row[key] for key in wanted}


def certificate(case: Case, row: dict[str, Any]) -> SmoothedCertificate:
    """The certificate of a setting."""
    return SmoothedCertificate(row["returns"], row["sigma"], case.least, row["vote"])


def broken(case: Case, found: dict[str, Any]) -> list[str]:
    """Attacks whose mean return is below the certified one by more than the intervals of both explain."""
    wrong = []
    for name, row in found.items():
        if not row["returns"]:
            continue
        certified = certificate(case, row)
        for attack, attacked in row.get("attacks", {}).items():
            if attacked["high"] < certified.certified_return(attacked["eps"]):
                wrong.append(f"{case.name}, {name}, {attack}")
    return wrong


def verdict(data: dict[str, Any]) -> str:
    """Whether certificates hold, in a sentence."""
    wrong, lower = [], 0
    for case in CASES:
        found = data["cases"].get(case.ref, {})
        wrong += broken(case, found)
        for row in (row for row in found.values() if row["returns"]):
            known = certificate(case, row)
            lower += sum(
                one["mean_return"] < known.certified_return(one["eps"]) for one in row.get("attacks", {}).values()
            )
    if wrong:
        return f"**An attack is below its certificate: {'; '.join(wrong)}.**"
    if lower:
        return f"The mean of {lower} attacks is below the certificate, by less than its 95% interval explains."
    return "No attack is below its certificate."


def told(value: float) -> str:
    """Four digits, or two decimals."""
    return (
        f"{value:.0f}"
        if abs(value) >= 1000 or value == int(value)
        else f"{value:.4g}"
        if value >= 10
        else f"{value:.2f}"
    )


def mean_of(returns: list[float]) -> str:
    """Mean return, standard deviation and number of episodes."""
    spread = f" +- {told(float(np.std(returns, ddof=1)))}" if len(returns) > 1 else ""
    return f"{told(float(np.mean(returns)))}{spread} (n={len(returns)})"


def body(data: Data) -> list[str]:
    """The page after its head."""
    parts = [
        "An agent acts on its observation with noise `N(0, sigma^2)` at every step. `certified` is a lower bound on "
        "its expected return under every attack whose perturbations have a total Euclidean length of at most `eps` "
        "over the episode (policy smoothing, Kumar, Levine and Feizi 2022), at confidence 0.95; at `eps` 0 it is what "
        "the episodes show of the return without an attack. Attacks are of that length, spent evenly over so many "
        "steps, on other episodes: `fgsm` on the average over 16 draws of noise, `network` (fgsm) on the network "
        "without noise, `tilt` pushes the angle and its speed one way, `lean` back to upright while the pole leans. "
        f"{verdict(data)}",
        "![certified return over the length of an attack](smoothing.png)",
    ]
    parts += [section(case, data["cases"][case.ref]) for case in CASES if data["cases"].get(case.ref)]
    return parts


def section(case: Case, found: dict[str, Any]) -> str:
    """One agent."""
    played = {name: row for name, row in found.items() if row["returns"]}
    shares = (0.0, 0.5, 1.0, 2.0, 3.0)
    lines = []
    for name, row in played.items():
        known = certificate(case, row)
        cells = [told(known.certified_return(share * row["sigma"])) for share in shares]
        lines.append([name, mean_of(row["returns"]), *cells, f"{row.get('seconds', 0.0):.0f}"])
    header = ["noise", "return", *(f"certified at {s:g} sigma" for s in shares), "seconds of a processor"]
    parts = [
        f"## {case.name}\n\n`{case.ref}`. Sigma and lengths are in {case.unit}. The least return is "
        f"{case.least:g}.\n\n" + table(header, lines)
    ]
    lines = []
    for name, row in played.items():
        known = certificate(case, row)
        for length in case.lengths:
            eps = length * row["sigma"]
            cells = []
            for plan in case.plans:
                attacked = row.get("attacks", {}).get(f"{plan}, {length:g} sigma")
                cells.append("" if attacked is None else told(attacked["mean_return"]))
            if any(cells):
                lines.append(
                    [name, f"{eps:g}", told(known.certified_return(eps)), told(row["clean"]["mean_return"]), *cells]
                )
    if lines:
        header = ["noise", "eps", "certified", "without an attack", *(f"`{plan}`" for plan in case.plans)]
        parts.append(
            f"Mean return over {case.attacked} episodes under attacks of that length.\n\n" + table(header, lines)
        )
    return "\n\n".join(parts)


def draw(data: dict[str, Any], path: Path) -> None:
    """A panel an agent: certified returns as lines, attacks of the same length as points."""
    cases = [case for case in CASES if any(row["returns"] for row in data["cases"].get(case.ref, {}).values())]
    if not cases:
        return
    figure = new_figure(4.6 * len(cases), 3.9, 160, "constrained")
    for place, case in enumerate(cases):
        axes, reach = figure.add_subplot(1, len(cases), place + 1), REACH * sorted(case.sigmas)[-2]
        rows = [(name, row) for name, row in data["cases"][case.ref].items() if row["returns"] and row["vote"] == 1]
        for colour, (name, row) in zip(COLOURS, rows, strict=False):
            known, eps = certificate(case, row), np.linspace(0, reach, 120)
            axes.plot(eps, [known.certified_return(e) for e in eps], color=colour, linewidth=2, label=name)
            for attacked in row.get("attacks", {}).values():
                axes.plot(attacked["eps"], attacked["mean_return"], ".", color=colour, markersize=6, alpha=0.7)
        axes.set_xlim(0, reach)
        axes.set_title(case.name, loc="left", fontsize=10, fontweight="bold", color=INK)
        axes.set_xlabel("total length of the attack (l2)", color=MUTED, fontsize=9)
        axes.set_ylabel("return: certified (lines), attacked (points)", color=MUTED, fontsize=9)
        axes.grid(color=GRID, linewidth=0.8)
        axes.legend(frameon=False, fontsize=8)
        bottom_spine_only(axes)
    save_figure(figure, path)


def measure(results: Results) -> None:
    """Measure what is not there yet."""
    given = results.given
    warnings.filterwarnings("ignore")
    for case in CASES:
        if given.only in (None, case.ref):
            measure_case(case, results.part("cases", case.ref), given.seed, set(given.parts), results.keep)
    for line in [line for case in CASES for line in broken(case, results.part("cases", case.ref))]:
        print(f"BELOW ITS CERTIFICATE: {line}")


PAGE = Page(
    "smoothing",
    "Randomized smoothing",
    __doc__,
    measure,
    body,
    lambda data, folder: draw(data, folder / "smoothing.png"),
    page="smoothing",
    options={
        "--only": {"choices": [case.ref for case in CASES], "help": "one agent; what is there of others stays"},
        "--parts": {"nargs": "+", "choices": PARTS, "default": PARTS, "help": "some of it"},
        "--seed": {"type": int, "default": 0},
    },
    partly=["--only", "--parts"],
    releases=["ale-py"],
)


if __name__ == "__main__":
    PAGE.main()
