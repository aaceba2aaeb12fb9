"""How far attacks on observations can move Hopper within a few steps: bounds, attacks in the model, and the simulator.

    python benchmarks/reproduce/reached_sets.py --work FOLDER

Each agent has a model of the dynamics of its own, of 100,000 transitions and two layers of 128. `reached_sets` bounds
what follows a few attacked steps, and gradient attacks look for the ends of these boxes. The figure is the width of the
bounds over that of what attacks found, the median over coordinates and states: 1 would say that nothing is left between
them. "Within its error" allows the model to be off at every step by what 99% of held-out transitions do not exceed. The
last column plays what was found in the simulator, and counts the states within the bounds of the second kind.
"""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from figures import table
from page import AGAIN, WORK, Data, Page, Results, prose

import adv_wrappers as adv
from adv_wrappers.certification.reached_sets import ClosedLoop, VictimActions, reached_sets
from adv_wrappers.victims.saved_networks import Dynamics

ENV, EPS, STEPS = "Hopper-v5", 0.075, (1, 2, 3, 5)
SHIPPED = Path("benchmarks/reproduce/defences")
AGENTS = {
    "plain (`zoo:hopper-ppo`)": "zoo:hopper-ppo",
    "SA-PPO, gradient steps": f"card:{SHIPPED / 'hopper-sa-ppo-s0'}",
    "SA-PPO, interval bounds": f"card:{SHIPPED / 'hopper-sa-interval-ppo-s0'}",
    "WocaR-PPO": f"card:{SHIPPED / 'hopper-wocar-ppo-s0'}",
}
STARTS, FIRST, LAST = 10, 20, 120  # states, one of an episode each, between these steps
TRIES, ASCENT, FULL = 4, 30, 3  # corners that attacks start from, their steps, and those of them that are whole
INTRODUCTION = f"{ENV}, eps {EPS} in the units of each agent's normaliser, {STARTS} states."


def model_of(name: str, ref: str, work: Path) -> Dynamics:
    """The model of an agent, trained where the folder does not have it."""
    out = work / "".join(each for each in name if each.isalnum())
    return adv.train_dynamics(ref, ENV, 100_000, hidden=(128, 128), out=out)


class Episode:
    """An episode without an attack, up to a state that attacks start from."""

    def __init__(self, victim: Any, seed: int) -> None:
        self.victim, self.seed, self.env = victim, seed, gym.make(ENV)
        self.count = int(np.random.default_rng(seed).integers(FIRST, LAST))
        self.state = self.play([])[-1]

    def play(self, added: Any) -> list[Any]:
        """The states from that one on, where these ``[steps, n]`` are added to what the agent sees."""
        obs, _ = self.env.reset(seed=self.seed)
        found = []
        for step in range(self.count + len(added) + 1):
            if step >= self.count:
                found.append(obs)
            if step < self.count + len(added):
                seen = obs if step < self.count else obs + added[step - self.count]
                obs = self.env.step(self.victim.act_on(seen[None])[0])[0]
        return found


def ends(loop: ClosedLoop, start: torch.Tensor, room: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and largest last states that attacks find from a state, ``[2, n]``, and what they add, ``[., D]``."""
    n = len(start)
    which, sign = torch.arange(n).repeat(2 * TRIES), torch.tensor([1.0, -1.0]).repeat_interleave(n).repeat(TRIES)
    rows = torch.arange(len(which))
    added = (torch.rand(len(which), len(room), dtype=torch.float64).round() * 2 - 1) * room
    best, kept = torch.full((len(which),), -torch.inf, dtype=torch.float64), added
    for step in range(ASCENT + 1):
        added = added.detach().requires_grad_()
        reached = sign * loop(torch.cat([start.expand(len(which), -1), added], 1))[rows, which]
        better = reached > best
        best, kept = torch.where(better, reached, best).detach(), torch.where(better[:, None], added, kept).detach()
        (gradient,) = torch.autograd.grad(reached.sum(), added)
        added = (added + (1.0 if step < FULL else 0.3) * room * gradient.sign()).clamp(-room, room)
    best = best.view(TRIES, 2, n).amax(0)
    return torch.stack([-best[1], best[0]]), kept


def measured(name: str, work: Path, seed: int) -> Data:
    """What bounds and attacks say of an agent."""
    torch.manual_seed(seed)
    ref = AGENTS[name]
    victim, model = adv.load_victim(ref), model_of(name, ref, work)
    episodes = [Episode(victim, seed + i) for i in range(STARTS)]
    starts, n = np.array([episode.state for episode in episodes]), model.features
    budget = adv.Linf(EPS, scale="victim").resolve(victim)
    bounds = {
        error: reached_sets(victim, model, starts, within=budget, steps=max(STEPS), error=allowed)
        for error, allowed in (("exact", 0), ("within", None))
    }
    policy, transition = VictimActions(victim), copy.deepcopy(model.net).double().requires_grad_(False)
    found: Data = {}
    for steps in STEPS:
        loop, inside = ClosedLoop(policy, transition, steps), list[bool]()
        for error, sets in bounds.items():
            sides = torch.cat([torch.as_tensor(budget.radius(torch.zeros(1, n))).double(), torch.as_tensor(sets.error)])
            ratios = list[float]()
            for i, episode in enumerate(episodes):
                (low, high), added = ends(loop, torch.as_tensor(starts[i]), sides.repeat(steps))
                low_, high_ = sets.low[i, steps], sets.high[i, steps]
                if (low.numpy() < low_ - 1e-6).any() or (high.numpy() > high_ + 1e-6).any():
                    raise AssertionError(f"an attack left the bounds: {name}, {steps} steps from state {i}")
                ratios += ((high_ - low_) / (high - low).numpy()).tolist()
                if error == "exact":
                    within = bounds["within"]
                    for each in added.view(-1, steps, 2, n)[:, :, 0].numpy():
                        state = episode.play(each)[-1]
                        inside.append(bool(((within.low[i, steps] <= state) & (state <= within.high[i, steps])).all()))
            found[f"{error} {steps}"] = statistics.median(ratios)
            widths = np.median(sets.high[:, steps] - sets.low[:, steps], 0) / model.net.obs_std.numpy()
            found[f"{error} {steps} width"] = float(np.median(widths))
        found[f"inside {steps}"] = statistics.fmean(inside)
    return found


def measure(results: Results) -> None:
    """Measure what is missing."""
    for name in AGENTS:
        results.once(results.part("agents"), name, measured, name, results.given.work, results.given.seed)


def short(value: float) -> str:
    """Two digits, or all before the point."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def body(data: Data) -> list[str]:
    """The page after its head."""
    lines = [
        [
            name, steps,
            *(short(found[f"{error} {steps}{more}"]) for error in ("exact", "within") for more in ("", " width")),
            f"{found[f'inside {steps}']:.1%}",
        ]
        for name, found in data["agents"].items() for steps in STEPS
    ]  # fmt: skip
    header = [
        "agent", "steps", "model exact: bounds over attacks", "width", "model within its error: bounds over attacks",
        "width", "states of the simulator inside",
    ]  # fmt: skip
    return [
        *prose(__doc__),
        INTRODUCTION + " Widths are medians, in standard deviations of a state's coordinates.",
        table(header, lines),
    ]


PAGE = Page(
    "reached_sets",
    "Where attacks can bring Hopper in a few steps",
    __doc__,
    measure,
    body,
    page="certificates",
    options={**WORK, "--seed": {"type": int, "default": 0}, **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
