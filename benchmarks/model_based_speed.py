"""What model-based attacks and their baselines cost: milliseconds a step of planning, and control steps a second.

    python benchmarks/model_based_speed.py

Planning is that of 16 episodes of walker-stand at once (zoo:walker-stand-sac), plans of 10 steps, 30 iterations,
through models of four layers with weights as they are drawn: what they predict does not matter to the time. The floor
of a call is what 30 times 10 steps of model and agent take alone, forwards and backwards; a ratio to it is taken within
a round and given as the median over the rounds. Random baselines play whole episodes under noise of random signs, with
MuJoCo stepped directly and by dm_control's own loop. Seconds are the process's own, of one thread. Memory is the peak
of a process of its own.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from timing import Data, Page, Results, interleave, medians, table, timing_options
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.core import rng
from adv_wrappers.core.context import Context
from adv_wrappers.environments.dmc import dmc
from adv_wrappers.victims.saved_networks import Dynamics, TransitionModel

ROWS, STEPS, ITERATIONS = 16, 10, 30
VICTIM, ENV = "zoo:walker-stand-sac", "dm_control/walker-stand-v0"
GOALS = {256: 20.0, 1000: 85.0}  # ms of an episode's step, by the width of the layers
TASKS = ("cartpole-balance", "walker-stand", "fish-upright")
LEAST_STEPS = 10_000  # control steps a second on cartpole


def model(width: int, features: int, actions: int) -> Dynamics:
    """A model of four layers with weights as they are drawn."""
    torch.manual_seed(0)
    sizes = [features + actions, *[width] * 4, features + 1]
    layers = [layer for i, o in itertools.pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
    statistics_ = {
        name: (torch.zeros(size), torch.ones(size) * 0.01 if name == "change" else torch.ones(size))
        for name, size in (("obs", features), ("act", actions), ("change", features + 1))
    }
    card = {"environment": {"id": ENV, "kwargs": {"action_repeat": 2}}, "feature_names": ["height"]}
    return Dynamics.of(TransitionModel([nn.Sequential(*layers[:-1])], **statistics_), card)


def planning(width: int, planner: str, iterations: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A call that plans anew for all rows, and its floor."""
    victim = adv.load_victim(VICTIM)
    features, actions = victim.observation_space.shape[0], victim.action_space.shape[0]
    made = model(width, features, actions)
    attack: Any = adv.ModelBased(victim, made, "0=0", STEPS, iterations=iterations, planner=planner)
    x, budget = torch.randn(ROWS, features), adv.Linf(0.2)
    far = torch.full_like(x, torch.inf)
    key = torch.tensor([rng.signed(rng.root(i)) for i in range(ROWS)])

    @torch.no_grad()  # as in the engine
    def plan() -> Tensor:
        context = Context.around(x, budget, (x - 0.2, x + 0.2), key, space=(-far[0], far[0]))
        found: Tensor = attack(x, context)
        return found

    def floor() -> Tensor:
        for _ in range(iterations):
            obs = x.clone().requires_grad_()
            total, now = torch.zeros(()), obs
            for _ in range(STEPS):
                now, _ = made.predict(now, victim.mode(victim.params(now)))
                total = total + now[:, 0].square().sum()
            (gradient,) = torch.autograd.grad(total, obs)
        return gradient

    return plan, floor


def costs(rounds: int, least: float) -> list[dict[str, Any]]:
    """Milliseconds of an episode's step by width and planner."""
    rows = []
    for width, planner, iterations in (
        (256, "adam", ITERATIONS),
        (1000, "adam", ITERATIONS),
        (256, "cem", 3),
        (256, "mppi", 3),
        (256, "lqr", 3),
    ):
        plan, floor = planning(width, planner, iterations)
        seconds = interleave({"plan": plan, "floor": floor}, rounds, least)
        own = statistics.median(seconds["plan"]) / ROWS * 1000
        ratio = medians(seconds, "floor")["plan"] if planner == "adam" else None
        rows.append({"width": width, "planner": planner, "iterations": iterations, "ms": own, "ratio": ratio})
        print(rows[-1], flush=True)
    return rows


def baselines(draws: int) -> list[dict[str, Any]]:
    """Control steps a second of random baselines, stepped directly and by dm_control's own loop."""
    rows = []
    for task in TASKS:
        victim, env = adv.load_victim(f"zoo:{task}-sac"), f"dm_control/{task}-v0"
        repeat = victim.card["environment"]["kwargs"]["action_repeat"]  # type: ignore[index, call-overload]
        rates = {}
        for name, made, count in (("direct", env, draws), ("dm_control", functools.partial(dmc, env, repeat), 2)):
            begun = time.process_time()
            adv.evaluate(victim, made, ["noise:kind=sign,eps=0.1"], 4, best_of=count, measure="0=0", by="loss")
            rates[name] = 4000 * (count + 1) / (time.process_time() - begun)
        rows.append({"task": task, **rates})
        print(rows[-1], flush=True)
    return rows


def memory(width: int) -> float:
    """MB that planning adds to the peak of a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--peak", str(width)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])  # what MuJoCo says at its start comes before


def peak(width: int) -> None:
    """Print the MB by which one call of planning raises the peak of this process, as Linux tells it."""
    plan, _ = planning(width, "adam", 1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before = highest()
    plan()
    print((highest() - before) / 1024)


def highest() -> int:
    """The peak of this process, in KB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def body(data: Data) -> list[str]:
    """The page after its head."""
    goal = {width: f"{ms:g}" for width, ms in GOALS.items()}
    plans = [
        [
            row["planner"],
            f"4 x {row['width']}",
            row["iterations"],
            f"{row['ms']:.1f}",
            goal[row["width"]] if row["planner"] == "adam" else "",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        ]
        for row in data["plans"]
    ]
    trials = [
        [row["task"], f"{row['direct']:.0f}", f"{row['dm_control']:.0f}", f"{row['direct'] / row['dm_control']:.1f}"]
        for row in data["baselines"]
    ]
    sizes = ", ".join(f"{value:.0f} MB for 4 x {width}" for width, value in data["memory"].items())
    parts = [
        f"Milliseconds of one step of one episode where {ROWS} are planned for together, plans of {STEPS} steps. The "
        "floor is what the model and the agent alone take, forwards and backwards.",
        table(["planner", "model", "iterations", "ms", "goal", "times the floor"], plans),
        f"Planning raises the peak of memory by {sizes}.",
        "Control steps a second under noise, the agent, the wrapper and the loss included; the goal on cartpole is "
        f"{LEAST_STEPS}.",
        table(["task", "MuJoCo stepped directly", "dm_control's own loop", "ratio"], trials),
    ]
    return parts


def measure(results: Results) -> None:
    """All of it, anew."""
    given = results.given
    if given.peak is not None:
        peak(given.peak)
        raise SystemExit
    results.data |= {
        "plans": costs(given.rounds, given.least),
        "baselines": baselines(given.draws),
        "memory": {str(width): memory(width) for width in GOALS},
    }
    results.keep()


PAGE = Page(
    "model_based_speed",
    "What model-based attacks cost",
    __doc__,
    measure,
    body,
    options={
        **timing_options(5, 2.0),
        "--draws": {"type": int, "default": 25, "help": "of the random baselines"},
        "--peak": {"type": int, "help": argparse.SUPPRESS},
    },
)


if __name__ == "__main__":
    PAGE.main()
