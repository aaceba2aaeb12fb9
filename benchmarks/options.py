"""What ``compile=True`` gives: gradients of networks that are left to autograd, as compiled code.

    python benchmarks/options.py

PGD-10 as a wrapper runs it (``MinBest``, 10 steps of a quarter of eps), on one thread, interleaved in one run, ratios
within a round, on a small transformer, by autograd and with ``from_module(..., compile=True)``; the first attack with a
new shape compiles, which is timed apart. "Same" is the share of elements that end where those of the attack without the
option do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from attacks import STEPS
from gymnasium import spaces
from networks import ACTIONS, Transformer
from peers import EPS, STEP
from timing import INTERLEAVED, Data, Page, Results, interleave, made_by, medians, prose, table, timing_options
from torch import Tensor, nn

from adv_wrappers import Linf, MinBest, from_module
from adv_wrappers.core.context import Context

_KEY = torch.zeros(1, dtype=torch.int64)  # nothing is drawn here


def attack(net: nn.Module, x: Tensor, **more: Any) -> Callable[[], Tensor]:
    """A call of PGD-10 around ``x``."""
    shape = tuple(x.shape[1:])
    victim = from_module(net, spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(ACTIONS), "logits", **more)
    how, budget = MinBest(victim, steps=STEPS, step=STEP), Linf(EPS)
    space = torch.zeros(shape), torch.ones(shape)

    @torch.no_grad()
    def call() -> Tensor:
        return how(x, Context.around(x, budget, budget.box(x, *space), _KEY, space=space))

    return call


def compare(rounds: int, least: float) -> list[dict[str, Any]]:
    """A row a batch: the attack with the option beside the one without."""
    rows = []
    torch.manual_seed(0)
    net = Transformer().eval()
    for batch in (1, 64):
        x = torch.rand(batch, 17)
        calls = {"plain": attack(net, x), "option": attack(net, x, compile=True)}
        started = time.perf_counter()
        end = calls["option"]()
        first = time.perf_counter() - started
        same = float((end - calls["plain"]()).abs().le(1e-6).float().mean())
        seconds = interleave(calls, rounds, least)
        row = {
            "network": "transformer",
            "batch": batch,
            "option": "compile=True",
            "ratio": medians(seconds, "plain")["option"],
            "plain_ms": 1000 * statistics.median(seconds["plain"]),
            "option_ms": 1000 * statistics.median(seconds["option"]),
            "first_s": first,
            "same": same,
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def body(data: Data) -> list[str]:
    """The page after its head."""
    header = ["network", "batch", "option", "time, of that without", "ms without", "ms with", "first call, s", "same"]
    lines = [
        [
            r["network"],
            r["batch"],
            f"`{r['option']}`",
            f"{r['ratio']:.2f}",
            f"{r['plain_ms']:.3f}",
            f"{r['option_ms']:.3f}",
            f"{r['first_s']:.1f}",
            f"{r['same']:.2%}",
        ]
        for r in data["rows"]
    ]
    return [*prose(__doc__), table(header, lines)]


def measure(results: Results) -> None:
    """The table, anew."""
    given = results.given
    results.data |= {"rows": compare(given.rounds, given.least)}
    results.keep()


PAGE = Page(
    "options",
    "Compiled gradients",
    __doc__,
    measure,
    body,
    options={
        **timing_options(7, 0.05),
    },
    head=lambda data: f"{made_by(data)} {INTERLEAVED}.",
)


if __name__ == "__main__":
    PAGE.main()
