"""Bounds on networks: how long they take, and how near they come to what an attack reaches.

    python benchmarks/bounds.py --victims FOLDER
    python benchmarks/bounds.py --victims FOLDER --only speed        # or tightness, graphs
    python benchmarks/bounds.py --victims FOLDER --again             # what is there too

Times are medians over the rounds of one interleaved run, on one thread, in processor time, and in brackets in forward
passes of as many points: of 64 boxes of radius 0.05 of the network 8-256-256-4 with random weights, and of a quarter of
a grey level around one stack of random frames of zoo:pong-ppo, for the differences of every output to the largest one.

Tightness, at up to 2000 states of 20 episodes without an attack: of discrete actions the share of states at which no
action but the agent's own is possible, which no sound bound can bring above PGD's (40 sign steps from nine points for
every difference); of continuous ones the mean width of the box of actions, which none can bring below PGD's. `bisect`
bounds at most 1000 boxes a state, and decides all but 0.1% of them. In brackets, ms a state.

Networks that are no layers in a row have random weights and compute in float64; boxes are ten of radius 0.02, or half a
grey level. No output at 200,000 random points and corners lies outside; `reached` is the mean width of what they were,
beside mean widths of bounds and of those of auto_LiRPA 0.3, the release on PyPI (``benchmarks/bounds_lirpa.py``; run
with ``--only graphs`` by the interpreter of an environment that has it).
"""

from __future__ import annotations

import argparse
import copy
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bounds_lirpa
import gymnasium as gym
import numpy as np
import torch
from networks import Dueling, Impala, SimBa, TD3Actor
from timing import AGAIN, Data, Page, Results, interleave, medians, prose, table, timing_options
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.bounds import crown, interval
from adv_wrappers.bounds.branch_and_bound import Decision, decide
from adv_wrappers.bounds.probabilities import difference_spec
from adv_wrappers.bounds.rounding_error import rounding
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.victims.certified_actions import ROUNDING_FACTOR, action_bounds, params_network, possible_actions

HALF = (0.9, 0.07)  # of MountainCar's positions and speeds
METHODS = ("interval", "crown", "full-crown", "bisect")
AT_ONCE = 256  # states


@dataclass(frozen=True)
class Agent:
    """An agent, its environment, and the radius of the boxes around what it observes, in a unit."""

    name: str
    ref: str
    env: str
    eps: float
    scale: tuple[float, ...] | str | None
    unit: str

    def load(self, victims: Path | None) -> adv.Victim:
        """The victim: one of the zoo, or a card in a folder."""
        return adv.load_victim(self.ref if ":" in self.ref else f"card:{victims / self.ref}")  # type: ignore[operator]

    def radius(self, victim: adv.Victim) -> Tensor:
        """Of a box, ``[*S]``."""
        unit = victim.scale if self.scale == "victim" else torch.tensor(self.scale or 1.0)
        return (self.eps * unit).to(victim.dtype)  # type: ignore[operator]


AGENTS = (
    Agent("CartPole, DQN", "zoo-cartpole-dqn", "CartPole-v1", 0.01, None, "raw units"),
    Agent("MountainCar, DQN", "zoo:mountaincar-dqn", "MountainCar-v0", 0.05, HALF, "the half-range"),
    Agent("Hopper, PPO", "zoo:hopper-ppo", "Hopper-v5", 0.075, "victim", "standard deviations"),
    Agent("Hopper, SA-DDPG", "saddpg-hopper-convex", "Hopper-v4", 0.075, "victim", "standard deviations"),
)  # fmt: skip


def states(agent: Agent, victim: adv.Victim, episodes: int, most: int) -> Tensor:
    """Observations of the agent's own episodes ``[N, *S]``, evenly spaced."""
    env, seen = gym.make(agent.env), []
    for seed in draw_seeds(0, episodes):
        obs, over = env.reset(seed=seed)[0], False
        while not over:
            seen.append(np.array(obs))
            obs, _, terminated, truncated, _ = env.step(victim.act_on(np.array(obs)[None])[0])
            over = terminated or truncated
    env.close()
    at = np.unique(np.linspace(0, len(seen) - 1, min(most, len(seen))).round().astype(int))
    return torch.as_tensor(np.stack(seen)[at]).to(victim.dtype)


def reached(net: nn.Module, low: Tensor, high: Tensor, rows: Tensor, restarts: int = 8, steps: int = 40) -> Tensor:
    """The most that PGD makes of combinations ``rows [B, M, K]`` of outputs in boxes, ``[B, M]``."""
    count, generator = rows.shape[1], torch.Generator().manual_seed(0)
    best = torch.full(rows.shape[:2], -torch.inf, dtype=low.dtype)
    low, high = (end[:, None].expand(-1, count, *end.shape[1:]) for end in (low, high))
    for restart in range(restarts + 1):
        share = torch.rand(low.shape, generator=generator, dtype=low.dtype)
        share = share.round() if restart % 2 else share if restart else torch.full_like(share, 0.5)
        x, step = low + share * (high - low), (high - low) / 4
        for i in range(steps + 1):
            with torch.enable_grad():
                at = x.flatten(0, 1).requires_grad_()
                value = (rows * net(at).view(*rows.shape)).sum(-1)
                (grad,) = torch.autograd.grad(value.sum(), at)
            best = torch.maximum(best, value.detach())
            if i and i % 5 == 0:
                step = step / 2
            x = torch.minimum(torch.maximum(x.detach() + step * grad.view_as(x).sign(), low), high)
    return best


def batches(one: Callable[[Tensor, Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """A function of boxes, some at a time."""
    return torch.cat([one(*part) for part in zip(low.split(AT_ONCE), high.split(AT_ONCE), strict=True)])


def decided_with_margins(victim: adv.Victim, low: Tensor, high: Tensor) -> Decision:
    """What ``possible_actions(..., method="bisect")`` makes its answer of."""
    net, low, high = copy.deepcopy(params_network(victim)).double(), low.double(), high.double()
    one = torch.eye(victim.width, dtype=low.dtype)
    return decide(net, low, high, margin=ROUNDING_FACTOR * rounding(net, low, high, one, torch.finfo(victim.dtype).eps))


def tightness(agent: Agent, arguments: argparse.Namespace, data: dict[str, Any], keep: Callable[[], None]) -> None:
    """What is not there yet of one agent."""
    victim = agent.load(arguments.victims)
    x = states(agent, victim, arguments.episodes, arguments.states)
    low, high = x - agent.radius(victim), x + agent.radius(victim)
    net = params_network(victim)
    data.update(states=len(x), episodes=arguments.episodes)
    own = victim.params(x).argmax(-1)
    rows = data.setdefault("rows", {})

    def attacked(low: Tensor, high: Tensor) -> Tensor:
        if victim.discrete:
            best = victim.params((low + high) / 2).argmax(-1)
            return reached(net, low, high, difference_spec(best, victim.width, low.dtype))
        size = low.new_ones(victim.action_space.shape).numel()  # type: ignore[union-attr]
        one = torch.eye(size, victim.width, dtype=low.dtype)
        ends = reached(net, low, high, torch.cat([one, -one]).expand(len(low), -1, -1))
        most, least = ends[:, :size], -ends[:, size:]
        beside = low.new_zeros(len(low), victim.width - size)
        most, least = (victim.mode(torch.cat([end, beside], -1)) for end in (most, least))
        return most - least

    def bound(low: Tensor, high: Tensor, method: Any) -> Tensor:
        if victim.discrete:
            return possible_actions(victim, low, high, method)
        least, most = action_bounds(victim, low, high, method)
        return most - least

    for name in arguments.methods:
        if (name in rows and not arguments.again) or (name == "bisect" and not victim.discrete):
            continue
        began = time.process_time()
        found = batches(attacked if name == "PGD" else functools.partial(bound, method=name), low, high)
        row = {"ms": 1000 * (time.process_time() - began) / len(x)}
        if not victim.discrete:
            row["width"] = float(found.mean())
        else:
            other = (found > 0) if name == "PGD" else found
            other = other.scatter(1, own[:, None], False).any(1)
            row["share"] = float((~other).float().mean())
        if name == "bisect":
            parts = zip(low.split(AT_ONCE), high.split(AT_ONCE), strict=True)
            decided = [decided_with_margins(victim, *part) for part in parts]
            row["undecided"] = float(torch.cat([each.undecided.any(1) for each in decided]).float().mean())
            row["boxes"] = float(torch.cat([each.boxes for each in decided]).float().mean())
        rows[name] = row
        print(agent.name, name, row, flush=True)
        keep()


def speed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A row a network: the time of a forward pass, and of every kind of bound."""
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    atari = params_network(adv.load_victim("zoo:pong-ppo"))
    cases = [
        ("8-256-256-4", mlp.requires_grad_(False), torch.randn(64, 8), 0.05),
        ("Atari", atari, (255 * torch.rand(1, 4, 84, 84)).round(), 0.25),
    ]
    found = []
    for name, net, x, radius in cases:
        low, high = x - radius, x + radius
        outputs = net(x)
        spec = difference_spec(outputs.argmax(-1), outputs.shape[1])
        calls: dict[str, Callable[[], object]] = {
            "forward": lambda net=net, x=x: net(x),
            "interval": lambda net=net, low=low, high=high: interval(net, low, high),
            "interval, differences": lambda net=net, low=low, high=high, spec=spec: interval(net, low, high, spec),
            "crown": lambda net=net, low=low, high=high, spec=spec: crown(net, low, high, spec),
            "full-crown": lambda net=net, low=low, high=high, spec=spec: crown(net, low, high, spec, "crown"),
        }
        seconds = interleave(calls, arguments.rounds if len(x) > 1 else 3, arguments.least)
        ratios = medians(seconds, "forward")
        row = {
            "network": name,
            "boxes": len(x),
            "ms": {call: 1000 * sorted(times)[len(times) // 2] for call, times in seconds.items()},
            "ratio": ratios,
        }
        print(row, flush=True)
        found.append(row)
    return found


GRAPHS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "SimBa, 17-128-6": (SimBa, (17,)), "dueling, 17-128-128-6": (Dueling, (17,)),
    "TD3's actor, 17-256-256-6": (TD3Actor, (17,)),
    "IMPALA, 8, 16 and 16 channels, 4x24x24": (lambda: Impala((8, 16, 16), 24), (4, 24, 24)),
}  # fmt: skip


def graphs(name: str) -> dict[str, Any]:
    """The row of a network that is no layers in a row."""
    make, shape = GRAPHS[name]
    torch.manual_seed(0)
    net = make().double().eval().requires_grad_(False)
    picture = len(shape) == 3
    x = (torch.rand if picture else torch.randn)(10, *shape, dtype=torch.float64)
    radius = 0.5 / 255 if picture else 0.02
    low, high = x - radius, x + radius
    row: dict[str, Any] = {"ms": {}, "lirpa": {}}
    boxes = []
    for method in ("interval", "crown", "full-crown"):
        bound = functools.partial(interval if method == "interval" else crown, net)
        if method == "full-crown":
            bound = functools.partial(crown, net, intermediate="crown")
        else:
            bound(low[:1], high[:1])
        began = time.process_time()
        boxes.append(bound(low, high))
        row["ms"][method] = 1000 * (time.process_time() - began) / len(x)
        row[method] = float((boxes[-1][1] - boxes[-1][0]).mean())
    least, most = (torch.stack(end) for end in zip(*boxes, strict=True))
    generator, outside, count = torch.Generator().manual_seed(0), 0, 0
    ends = torch.full_like(least[0], torch.inf), torch.full_like(least[0], -torch.inf)
    for corners in (False, True):
        for _ in range(100):
            share = torch.rand(100, *low.shape, generator=generator, dtype=low.dtype)
            points = low + (share.round() if corners else share) * (high - low)
            values = net(points.flatten(0, 1)).unflatten(0, points.shape[:2])[:, None]
            outside += int(((values < least - 1e-9) | (values > most + 1e-9)).any(1).sum())
            count += values.numel()
            ends = torch.minimum(ends[0], values.amin((0, 1))), torch.maximum(ends[1], values.amax((0, 1)))
    row |= {"outside": outside / count, "reached": float((ends[1] - ends[0]).mean())}
    for method in bounds_lirpa.METHODS:
        try:
            theirs = bounds_lirpa.bounds(make_float(make), low.float(), high.float(), method)
            row["lirpa"][method] = float((theirs[1] - theirs[0]).mean())
        except Exception as error:  # it is not there, or does not take the network
            row["lirpa"][method] = f"{type(error).__name__}: {error!s:.120}"
    print(name, row, flush=True)
    return row


def make_float(make: Callable[[], nn.Module]) -> nn.Module:
    """The same network in float32."""
    torch.manual_seed(0)
    return make().eval().requires_grad_(False)


def body(data: Data) -> list[str]:
    """The section after its head."""
    about = prose(__doc__)
    names = ["forward", "interval", "interval, differences", "crown", "full-crown"]
    times = [
        [row["network"], row["boxes"], *(f"{row['ms'][n]:.3g} ms ({row['ratio'][n]:.1f})" for n in names)]
        for row in data["speed"]
    ]
    tight = []
    for agent in AGENTS:
        rows = data["tightness"][agent.name]["rows"]
        key = "share" if "share" in rows["PGD"] else "width"
        cells = [f"{rows[n][key]:.4f} ({rows[n]['ms']:.3g})" if n in rows else "" for n in (*METHODS, "PGD")]
        tight.append([f"{agent.name} (`{agent.ref}`), eps {agent.eps:g} ({agent.unit})", key, *cells])
    lines = []
    pairs = [("interval", "IBP"), ("crown", "CROWN-IBP"), ("full-crown", "CROWN")]
    for network, row in data["graphs"].items():
        theirs = {name: "" if isinstance(width, str) else f"{width:.3g}" for name, width in row["lirpa"].items()}
        cells = [cell for own, their in pairs for cell in (f"{row[own]:.3g} ({row['ms'][own]:.3g} ms)", theirs[their])]
        lines.append([network, f"{row['reached']:.3g}", *cells])
    header = ["network", "reached", *(name for own, their in pairs for name in (own, f"its {their}"))]
    return [
        about[0], table(["network", "boxes", *names], times),
        about[1], table(["agent", "share or width", *METHODS, "PGD"], tight),
        about[2], table(header, lines),
    ]  # fmt: skip


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    with torch.no_grad():
        if given.only in (None, "speed"):
            results.once(results.data, "speed", speed, given)
        for name in GRAPHS if given.only in (None, "graphs") else ():
            results.once(results.part("graphs"), name, graphs, name)
        for agent in AGENTS if given.only in (None, "tightness") else ():
            if agent.name in given.agents:
                tightness(agent, given, results.part("tightness", agent.name), results.keep)


PAGE = Page(
    "bounds",
    "Bounds on networks: time and tightness",
    __doc__,
    measure,
    body,
    page="certificates",
    options={
        "--victims": {"type": Path, "help": "the folder of the cards that are not in the zoo"},
        "--only": {"choices": ["speed", "tightness", "graphs"]},
        "--agents": {"nargs": "*", "default": [agent.name for agent in AGENTS]},
        "--episodes": {"type": int, "default": 20},
        "--states": {"type": int, "default": 2000},
        **timing_options(15, 0.05),
        "--methods": {"nargs": "*", "default": ["PGD", *METHODS]},
        **AGAIN,
    },
    partly=["--only", "--agents", "--methods", "--again"],
)


if __name__ == "__main__":
    PAGE.main()
