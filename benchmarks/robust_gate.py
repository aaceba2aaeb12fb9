"""How often ``assert_robust`` and ``--at-least`` are wrong, and how soon the first ends.

    python benchmarks/robust_gate.py

The agent plays a few bets, each won with one probability, and with a lower one under attack, so its mean return under
attack is known: five bets, won with 0.7 and 0.5, leave 2.5; one, seldom won, 0.1; often won, 0.9; nearly always won,
0.98. The test is called again and again, and asked for a little less than what is left, where failing is wrong, and for
a little more, where passing is. What happens more rarely than in 1 of 20 episodes it does not look for unless it is
told to (``rare=``), or told the range of the returns.

``--at-least`` looks once, at a fixed number of episodes: how often a claim is shown wrongly / refuted wrongly, by it
and by the plain 95% interval of the mean.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from timing import Data, Page, Results, pivot, prose, table

import adv_wrappers as adv
from adv_wrappers.errors import NotRobust
from adv_wrappers.evaluation.statistics.claim import RobustnessClaim
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.studies.gate import assert_robust

WORST = 2.5
FIVE, SELDOM, OFTEN, NEARLY = (5, 0.7, 0.5), (1, 0.2, 0.1), (1, 0.98, 0.9), (1, 0.99, 0.98)  # steps, won, and attacked
RANGE = {"return_range": (0.0, 1.0)}
CASES: dict[str, tuple[tuple[int, float, float], float, str | None, dict[str, Any]]] = {  # bets, asked, wrong verdict
    "five bets: a little less than is left": (FIVE, WORST - 0.1, "fails", {}), "what is left": (FIVE, WORST, None, {}),
    "a little more than is left": (FIVE, WORST + 0.1, "passes", {}), "far less": (FIVE, 1.0, "fails", {}),
    "far more": (FIVE, 4.5, "passes", {}),
    "one bet, seldom won: less than is left": (SELDOM, 0.04, "fails", {}),
    "a little less": (SELDOM, 0.09, "fails", {}), "a little less, with the range": (SELDOM, 0.09, "fails", RANGE),
    "a little more": (SELDOM, 0.11, "passes", {}), "far more than is left": (SELDOM, 0.9, "passes", RANGE),
    "one bet, often won: a little less": (OFTEN, 0.89, "fails", {}),
    "a little more, often won": (OFTEN, 0.91, "passes", {}),
    "a little more, often won, with the range": (OFTEN, 0.91, "passes", RANGE),
    "one bet, nearly always won: a little more": (NEARLY, 0.985, "passes", {}),
    "a little more, nearly always won, rare=0.01": (NEARLY, 0.985, "passes", {"rare": 0.01}),
    "a little more, nearly always won, with the range": (NEARLY, 0.985, "passes", RANGE),
}  # fmt: skip


FIXED: dict[str, tuple[tuple[int, float, float], float | None]] = {  # bets, and the lowest return if it is known
    "five bets": (FIVE, None), "one bet, seldom won": (SELDOM, None), "one bet, often won": (OFTEN, None),
    "one bet, nearly always won": (NEARLY, None), "one bet, nearly always won, lowest return known": (NEARLY, 0.0),
}  # fmt: skip
EPISODES = (10, 30, 100, 300)


class Bets(gym.Env[Any, Any]):
    """Steps that are won with one probability, or with another after action 1."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, steps: int, won: float, attacked: float) -> None:
        self.steps, self.chances = steps, (won, attacked)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        self.left = self.steps
        return np.full(1, -0.1), {}

    def step(self, action: Any) -> Any:
        """One bet."""
        self.left -= 1
        won = self.np_random.uniform() < self.chances[int(action)]
        return np.full(1, -0.1), float(won), self.left == 0, False, {}


def agent() -> adv.Victim:
    """Takes action 1 where the observation is above 0."""
    net = torch.nn.Linear(1, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    return adv.from_module(net, Bets.observation_space, Bets.action_space, "logits")


def call(
    victim: adv.Victim, bets: tuple[int, float, float], min_return: float, seed: int, **how: Any
) -> tuple[str, int, float]:
    """The verdict of a call, the episodes that it played, and its seconds."""
    began = time.perf_counter()
    try:
        make = functools.partial(Bets, *bets)
        found = assert_robust(victim, make, eps=0.5, attacks=["fgsm"], min_return=min_return, seed=seed, **how)
        verdict, episodes = "passes", found.worst.episodes
    except NotRobust as error:
        text = str(error)
        verdict = "undecided" if text.startswith("undecided") else "fails"
        episodes = int(text.rpartition(" over ")[2].split()[0])
    return verdict, episodes, time.perf_counter() - began


def one_look(episodes: int, draws: int) -> list[dict[str, Any]]:
    """How often a look at so many episodes is wrong, of the claim and of the rule before it, for every kind of bets."""
    found = []
    for name, ((steps, _, won), lowest) in FIXED.items():
        draw, counts = np.random.default_rng(0), dict.fromkeys(("shown", "below", "shown, plain", "below, plain"), 0)
        asked = steps * won
        claims = [RobustnessClaim(asked + change, lowest=lowest) for change in (1e-9, -1e-9)]
        for _ in range(draws):
            returns = draw.binomial(steps, won, episodes).astype(float)
            low, high = mean_interval(returns)
            counts["shown"] += claims[0].shown_by(returns)
            counts["below"] += claims[1].refuted_by(returns)
            counts["shown, plain"] += low >= asked + 1e-9
            counts["below, plain"] += high < asked - 1e-9
        found.append({"bets": name, "episodes": episodes, "draws": draws, **counts})
    return found


def body(data: Data) -> list[str]:
    """The page after its head."""
    head = ["asked for", "return", "calls", "passes", "fails", "undecided", "wrong", "median of episodes"]
    lines = [
        [
            name,
            f"{c['asked']:g}",
            c["calls"],
            c["passes"],
            c["fails"],
            c["undecided"],
            "" if c["wrong"] is None else f"{c['wrong'] / c['calls']:.1%}",
            f"{c['episodes']:g}",
        ]
        for name, c in data["cases"].items()
    ]

    def wrong(row: Data) -> str:
        keys = ("shown", "below", "shown, plain", "below, plain")
        own, plain = (" / ".join(f"{row[key] / row['draws']:.1%}" for key in part) for part in (keys[:2], keys[2:]))
        return f"{own}, plain {plain}"

    about = prose(__doc__)
    return [about[0], table(head, lines), about[1], pivot(data["one look"], "bets", ("episodes",), wrong)]


def measure(results: Results) -> None:
    """Call and count."""
    given, victim, cases = results.given, agent(), {}
    for name, (bets, asked, wrong, how) in CASES.items():
        found = [call(victim, bets, asked, seed, **how) for seed in range(given.calls)]
        verdicts = [verdict for verdict, _, _ in found]
        cases[name] = {
            "asked": asked,
            "wrong": None if wrong is None else verdicts.count(wrong),
            "calls": given.calls,
            **{verdict: verdicts.count(verdict) for verdict in ("passes", "fails", "undecided")},
            "episodes": statistics.median(episodes for _, episodes, _ in found),
        }
        print(name, cases[name], flush=True)
    looks = [row for episodes in EPISODES for row in one_look(episodes, given.draws)]
    results.data |= {"cases": cases, "one look": looks}
    results.keep()


PAGE = Page(
    "robust_gate",
    "A test of robustness",
    __doc__,
    measure,
    body,
    page="statistics",
    options={
        "--calls": {"type": int, "default": 200, "help": "of every case"},
        "--draws": {"type": int, "default": 2000, "help": "of a number of episodes that is looked at once"},
    },
)


if __name__ == "__main__":
    PAGE.main()
