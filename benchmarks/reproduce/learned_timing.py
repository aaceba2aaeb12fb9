"""Adversaries that learn when to attack, beside random and strategic timings at the same share of the steps.

    python benchmarks/reproduce/learned_timing.py --work FOLDER

One training per game (``train_adversary("timed:...", reward=PerturbationCost(...))``; Behzadan and Hsu 2019). Its
director says at every step how much it prefers to attack, as the difference of two logits; it attacks where that
exceeds a threshold, which is tuned so that a given share of the steps is attacked. So is the threshold of
``Strategic`` (Lin et al. 2017), both on other episodes than those that are reported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from figures import kept, of_row, table
from learning import STYLE
from page import WORK, Data, Page, Results, load

import adv_wrappers as adv
from adv_wrappers.adversaries import Director, Learned
from adv_wrappers.rendering.frames import ATTACKED, CLEAN, MUTED
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

TUNED_ON = 1000  # seed of the episodes that thresholds are tuned on
COLOURS = {"learned": ATTACKED, "random": CLEAN, "strategic": "#0f766e"}
Measure = Callable[[float], float]


@dataclass(frozen=True)
class Game:
    """A victim, the attack on it, and the training of its timing.

    Attributes:
        victim, env: the agent and its environment.
        attack: the attack as a text, without its budget; ``budget`` is the rest of that text.
        eps, scale: the budget.
        cost: what an attack costs in the training, in units of the victim's reward.
        steps: of the training.
        settings: further arguments of the training.
        shares: of the steps, at which timings are compared.
        timings: what is compared.
        widest: the largest threshold of the director's preference that is tried.
        episodes, tuning: episodes of a row, and of a measurement in tuning.
    """

    victim: str
    env: str
    attack: str
    eps: float
    scale: str | None
    cost: float
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)
    shares: tuple[float, ...] = (0.05, 0.1, 0.15, 0.25, 0.4)
    timings: tuple[str, ...] = ("random", "learned")
    widest: float = 8.0
    episodes: int = 100
    tuning: int = 20

    @property
    def budget(self) -> str:
        """The arguments of a threat's text."""
        return f"eps={self.eps:g}" + (f",scale={self.scale}" if self.scale else "")

    def threat(self, when: str | None = None) -> adv.ThreatModel:
        """The attack under a timing, a text; None attacks at every step."""
        joint = "," if ":" in self.attack else ":"
        return parse_threat(f"{self.attack}{joint}{self.budget}" + (f",when={when}" if when else ""))


GAMES = {
    "hopper": Game(
        "zoo:hopper-ppo", "Hopper-v5", "max-diff", 0.15, "victim", 2.0, 200_000,
        {"gamma": 0.997, "n_steps": 128, "learning_rate": 1e-3, "episodes": 8, "checks": 4},
    ),
}  # fmt: skip


def with_threshold(learned: Learned, threshold: float) -> Learned:
    """The adversary that attacks where its director's preference, the difference of two logits, exceeds a threshold.

    Args:
        learned: an adversary with the two actions of ``Timed``, whose director ends with a linear layer.
        threshold: 0 leaves it as it was trained.
    """
    net = copy.deepcopy(learned.director.net)
    with torch.no_grad():
        net[-1].bias[1] -= threshold
    return Learned(Director(net, True, True), learned.actor, observe=learned.observe, within=learned.within)


def tune(fraction_of: Measure, share: float, low: float, high: float, known: dict[float, float], rounds: int) -> float:
    """The smallest known threshold at which no more than a share of the steps is attacked, after bisection.

    Args:
        fraction_of: the share of the steps that is attacked at a threshold; it falls as the threshold rises.
        share: the share wanted.
        low, high: thresholds between which it lies; at ``high`` nothing may be attacked.
        known: thresholds and their shares that were measured already; it is filled.
        rounds: bisections at most; within a twentieth of the share it ends.
    """
    for _ in range(rounds):
        below = max((at for at, found in known.items() if found > share), default=low)
        above = min((at for at, found in known.items() if found <= share and at > below), default=high)
        if 0.95 * share <= known.get(above, 0.0):
            break
        middle = (below + above) / 2
        known[middle] = fraction_of(middle)
    return min((at for at, found in known.items() if found <= share), default=high)


def fraction(row: dict[str, Any]) -> float:
    """Attacked steps over all steps of a row's episodes."""
    return float(row["attacked_fraction"])


class Measurement:
    """The rows of one game, made and kept one by one."""

    def __init__(self, name: str, results: Results) -> None:
        self.name, self.game, self.results = name, GAMES[name], results
        self.found = results.part("games", name)
        self.work = results.given.work / name
        self.victim = adv.load_victim(self.game.victim)
        self._learned: Learned | None = None

    @property
    def learned(self) -> Learned:
        """The trained adversary; its training goes on where it stopped."""
        if self._learned is None:
            game = self.game
            self._learned = train_adversary(
                f"timed:{game.attack}",
                game.env,
                self.victim,
                game.eps,
                game.steps,
                scale=game.scale,
                seed=0,
                out=self.work,
                reward=PerturbationCost(game.cost),
                progress=self.tell,
                **game.settings,
            )
            self.found["record"] = load(self.work / "state.json")["record"]
            self.results.keep()
        return self._learned

    def tell(self, steps: int, left: float) -> None:
        """Print the progress of the training."""
        print(f"{self.name} {steps} {left:.1f}", flush=True)

    def threat(self, timing: str, at: float) -> Any:
        """The attack by a timing: ``random`` with probability ``at``, the others where ``at`` is exceeded."""
        if timing == "learned":
            return with_threshold(self.learned, at)
        return self.game.threat({"random": "bernoulli", "strategic": "strategic"}[timing] + f"({at!r})")

    def play(self, threats: list[Any], episodes: int, seed: int) -> list[dict[str, Any]]:
        """Rows of the report, the first that of no attack."""
        report = adv.evaluate(self.victim, self.game.env, threats, episodes, seed).to_dict()
        return [kept(row) for row in report["threats"]]

    def tuned(self, timing: str, share: float) -> float:
        """The threshold at which a timing attacks a share of the steps, on episodes of its own."""
        if timing == "random":
            return share
        kept_thresholds = self.found.setdefault("tuning", {}).setdefault(timing, [])
        known = {at: found for at, found in kept_thresholds}

        def fraction_of(at: float) -> float:
            _, row = self.play([self.threat(timing, at)], self.game.tuning, TUNED_ON)
            kept_thresholds.append([at, fraction(row)])
            self.results.keep()
            print(f"{self.name} {timing} {at:.4f}: {fraction(row):.1%} attacked, {row['mean_return']:.1f}", flush=True)
            return fraction(row)

        low, high = (-self.game.widest, self.game.widest) if timing == "learned" else (0.0, 1.0)
        return tune(fraction_of, share, low, high, known, rounds=9)

    def measure(self, episodes: int, seed: int) -> None:
        """Make the rows that are missing."""
        rows = self.found.setdefault("rows", {})
        if "none" not in rows:
            rows["none"], rows["always"] = self.play([self.game.threat()], episodes, seed)
            self.results.keep()
        for share in self.game.shares:
            for timing in self.game.timings:
                self.results.once(rows, f"{timing} {share:g}", self.row, timing, share, episodes, seed)

    def row(self, timing: str, share: float, episodes: int, seed: int) -> dict[str, Any]:
        """The row of a timing at a share of the steps, and the threshold that it was tuned to."""
        at = self.tuned(timing, share)
        return {**self.play([self.threat(timing, at)], episodes, seed)[1], "at": at}


def draw(games: dict[str, Any], path: Path) -> None:
    """The victim's return over the share of the steps that was attacked, one panel a game."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(games), figsize=(7 * len(games), 4.5), layout="constrained", squeeze=False)
        for panel, (name, found) in zip(axes[0], games.items(), strict=True):
            rows = found["rows"]
            for timing in GAMES[name].timings:
                points = sorted((row for key, row in rows.items() if key.startswith(timing)), key=fraction)
                points = [rows["none"], *points, *([rows["always"]] if timing == "random" else [])]
                values = [of_row(row) for row in points]
                x, mean = [100 * fraction(row) for row in points], [value.mean for value in values]
                low = [value.mean if value.low is None else value.low for value in values]
                high = [value.mean if value.high is None else value.high for value in values]
                panel.plot(x, mean, color=COLOURS[timing], lw=2.5, marker="o", label=timing)
                panel.fill_between(x, low, high, color=COLOURS[timing], alpha=0.15, lw=0)
            panel.set(xlabel="attacked steps, %", ylabel="the victim's return", title=title(name))
            panel.title.set_color(MUTED)
            panel.legend(frameon=False)
        figure.savefig(path, dpi=120)
        plt.close(figure)


def title(name: str) -> str:
    """What a game is called."""
    game = GAMES[name]
    return f"{game.victim}, {game.attack}, {game.budget}"


def body(data: Data) -> list[str]:
    """The section after its head."""
    parts = [
        "The same attack at the same share of the steps: `random` attacks every step with the same probability, "
        "`learned` where a director that learned when to attack (`Timed`) does, by a threshold on the difference of "
        "its two logits that is tuned on other episodes.",
        "![return over the share of the steps that is attacked](learned_timing.png)",
    ]
    header = ["timing and share", "attacked", "return", "median", "mean length"]
    for name, found in data["games"].items():
        game, rows, record = GAMES[name], found["rows"], found["record"][-1]
        lines = [
            [key, f"{fraction(row):.1%}", of_row(row), f"{row['median']:.0f}", f"{row['mean_length']:.0f}"]
            for key, row in sorted(rows.items(), key=lambda item: (item[0].split()[0], fraction(item[1])))
        ]
        parts.append(
            f"{title(name)}, trained for {record['steps']} steps, {record['seconds'] / 60:.1f} minutes of a processor, "
            f"at a cost of {game.cost:g} an attack:"
        )
        parts.append(table(header, lines))
    return parts


def measure(results: Results) -> None:
    """Train and evaluate what is missing."""
    given = results.given
    for name in [given.only] if given.only else GAMES:
        Measurement(name, results).measure(given.episodes or GAMES[name].episodes, given.seed)


PAGE = Page(
    "learned_timing",
    "Learned timing",
    __doc__,
    measure,
    body,
    lambda data, folder: draw(data["games"], folder / "learned_timing.png"),
    page="resilience",
    options={
        **WORK,
        "--only": {"choices": sorted(GAMES), "help": "one game; the rows of the others stay"},
        "--episodes": {"type": int, "help": "episodes of a row, instead of the game's own number"},
        "--seed": {"type": int, "default": 0},
    },
    needs=["--work"],
    releases=["mujoco", "ale-py"],
)


if __name__ == "__main__":
    PAGE.main()
