"""How often ``assert_robust`` is wrong, how soon it ends, and whether it keeps its time.

    python benchmarks/robust_gate.py

The agent plays five steps, each of which is won with a probability of 0.7, or of 0.5 where an attack makes it take the
other action; every perturbation of the budget that moves the observation far enough does. So its mean return is 3.5,
and under attack 2.5, exactly. The test is called again and again, each time with other episodes, and asked for a little
less than that, where failing is wrong, and for a little more, where passing is. Undecided is no verdict. The clear
cases are asked for far less and far more. The last calls have a number of seconds for a claim that no number of
episodes decides.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from timing import command, machine, save, table, write

import adv_wrappers as adv
from adv_wrappers.errors import NotRobust
from adv_wrappers.testing import assert_robust

WORST = 2.5
CASES = {  # the return asked for, and the verdict that is wrong
    "a little less than is left": (WORST - 0.1, "fails"), "what is left": (WORST, None),
    "a little more than is left": (WORST + 0.1, "passes"), "far less": (1.0, "fails"), "far more": (4.5, "passes"),
}  # fmt: skip


class FiveBets(gym.Env[Any, Any]):
    """Five steps, won with a probability of 0.7, or of 0.5 after action 1."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        self.left = 5
        return np.full(1, -0.1), {}

    def step(self, action: Any) -> Any:
        """One bet."""
        self.left -= 1
        won = self.np_random.uniform() < (0.5 if action else 0.7)
        return np.full(1, -0.1), float(won), self.left == 0, False, {}


def agent() -> adv.Victim:
    """Takes action 1 where the observation is above 0."""
    net = torch.nn.Linear(1, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    return adv.from_module(net, FiveBets.observation_space, FiveBets.action_space, "logits")


def call(victim: adv.Victim, min_return: float, seed: int, **how: Any) -> tuple[str, int, float]:
    """The verdict of a call, the episodes that it played, and its seconds."""
    began = time.perf_counter()
    try:
        found = assert_robust(victim, FiveBets, eps=0.5, attacks=["fgsm"], min_return=min_return, seed=seed, **how)
        verdict, episodes = "passes", found.worst.episodes
    except NotRobust as error:
        text = str(error)
        verdict = "undecided" if text.startswith("undecided") else "fails"
        episodes = int(text.rpartition(" over ")[2].split()[0])
    return verdict, episodes, time.perf_counter() - began


def main() -> None:
    """Call, count, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="of every case")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 2.0, 4.0], help="of the calls with a time")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    victim, cases, times = agent(), {}, []
    for name, (asked, wrong) in CASES.items():
        found = [call(victim, asked, seed) for seed in range(given.calls)]
        verdicts = [verdict for verdict, _, _ in found]
        cases[name] = {
            "asked": asked, "wrong": None if wrong is None else verdicts.count(wrong), "calls": given.calls,
            **{verdict: verdicts.count(verdict) for verdict in ("passes", "fails", "undecided")},
            "episodes": statistics.median(episodes for _, episodes, _ in found),
        }  # fmt: skip
        print(name, cases[name], flush=True)
    for seconds in given.seconds:
        verdict, episodes, spent = call(victim, WORST, 0, budget_s=seconds, most_episodes=10**6)
        times.append({"seconds": seconds, "verdict": verdict, "episodes": episodes, "spent": spent})
        print(times[-1], flush=True)
    data = {"command": command(sys.argv[1:]), "machine": machine(), "cases": cases, "times": times}
    save(given.out / "robust_gate.json", data)
    head = ["asked for", "return", "calls", "passes", "fails", "undecided", "wrong", "median of episodes"]
    lines = [
        [name, f"{c['asked']:g}", c["calls"], c["passes"], c["fails"], c["undecided"],
         "" if c["wrong"] is None else f"{c['wrong'] / c['calls']:.1%}", f"{c['episodes']:g}"]
        for name, c in cases.items()
    ]  # fmt: skip
    timed = [[f"{t['seconds']:g}", f"{t['spent']:.2f}", t["verdict"], t["episodes"]] for t in times]
    parts = ["# A test of robustness", f"Made by `{data['command']}`\n\non {data['machine']}."]
    parts += [part.strip().replace("\n", " ") for part in (__doc__ or "").split("\n\n")[2:]]
    parts += [table(head, lines), "## Time\n\n" + table(["seconds", "spent", "verdict", "episodes"], timed)]
    write(given.out / "robust_gate.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
