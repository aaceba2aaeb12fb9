"""What the options of attacks give: compiled gradients, lower precision, and the actions that the latter flips.

    python benchmarks/options.py

PGD-10 as a wrapper runs it (``MinBest``, 10 steps of a quarter of eps), on one thread, interleaved in one run, ratios
within a round. The first table has a network whose gradient is not written out (a small transformer), by autograd
and with ``from_module(..., compile=True)``; the first attack with a new shape compiles, which is timed apart. It also
has the MLP 17-64-64-6 and the Atari network in float32 and with ``precision="bf16"``; "same" is the share of elements
that end where those of the attack without the option do. The second plays each agent of the zoo for some episodes and
says at how many of its observations its action flips in bfloat16.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from attacks import STEPS
from gymnasium import spaces
from networks import ACTIONS, Transformer, cnn, mlp
from peers import EPS, STEP
from timing import INTERLEAVED, Data, Page, Results, interleave, made_by, medians, prose, table
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers import Linf, MinBest, from_module, load_victim
from adv_wrappers.core.context import Context
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.victims.autograd_or_written_out_gradient import flipped

_KEY = torch.zeros(1, dtype=torch.int64)  # nothing is drawn here
AGENTS = {
    "zoo:cartpole-ppo": "CartPole-v1", "zoo:cartpole-a2c": "CartPole-v1", "zoo:cartpole-dqn": "CartPole-v1",
    "zoo:mountaincar-dqn": "MountainCar-v0", "zoo:hopper-ppo": "Hopper-v5", "zoo:walker2d-ppo": "Walker2d-v5",
    "zoo:pong-ppo": "PongNoFrameskip-v4",
}  # fmt: skip


def attack(net: nn.Module, x: Tensor, precision: str | None = None, **more: Any) -> Callable[[], Tensor]:
    """A call of PGD-10 around ``x``."""
    shape = tuple(x.shape[1:])
    victim = from_module(net, spaces.Box(0.0, 1.0, shape, np.float32), spaces.Discrete(ACTIONS), "logits", **more)
    how, budget = MinBest(victim, steps=STEPS, step=STEP, precision=precision), Linf(EPS)
    space = torch.zeros(shape), torch.ones(shape)

    @torch.no_grad()
    def call() -> Tensor:
        return how(x, Context.around(x, budget, budget.box(x, *space), _KEY, space=space))

    return call


def compare(rounds: int, least: float) -> list[dict[str, Any]]:
    """A row a network, batch and option, beside the same attack without it."""
    rows = []
    cases: list[tuple[str, Callable[[], nn.Module], str, dict[str, Any], tuple[int, ...], tuple[int, ...]]] = [
        ("transformer", Transformer, "compile=True", {"compile": True}, (17,), (1, 64)),
        ("mlp", mlp, 'precision="bf16"', {"precision": "bf16"}, (17,), (1, 64, 1024)),
        ("cnn", cnn, 'precision="bf16"', {"precision": "bf16"}, (4, 84, 84), (1, 8, 64)),
    ]
    for network, make, option, more, shape, batches in cases:
        torch.manual_seed(0)
        net = make().eval()
        for batch in batches:
            x = torch.rand(batch, *shape)
            calls = {"plain": attack(net, x), "option": attack(net, x, **more)}
            started = time.perf_counter()
            end = calls["option"]()
            first = time.perf_counter() - started
            same = float((end - calls["plain"]()).abs().le(1e-6).float().mean())
            seconds = interleave(calls, rounds, least)
            row = {
                "network": network,
                "batch": batch,
                "option": option,
                "ratio": medians(seconds, "plain")["option"],
                "plain_ms": 1000 * statistics.median(seconds["plain"]),
                "option_ms": 1000 * statistics.median(seconds["option"]),
                "first_s": first,
                "same": same,
            }
            print(row, flush=True)
            rows.append(row)
    return rows


def observed(ref: str, env_id: str, steps: int) -> tuple[Any, Tensor]:
    """An agent and the observations of its first ``steps`` steps, ``[steps, *S]``."""
    victim = load_victim(ref)
    env = adv.atari.atari(env_id) if len(victim.observation_space.shape or ()) == 3 else gym.make(env_id)
    obs, _ = env.reset(seed=0)
    seen = []
    for _ in range(steps):
        seen.append(np.array(obs))
        x = to_victim(obs, victim.dtype, victim.device, False)
        with torch.no_grad():
            action = victim.mode(victim.params(x))[0].numpy()
        obs, _, terminated, truncated, _ = env.step(action if action.shape else action.item())
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()
    return victim, to_victim(np.stack(seen), victim.dtype, victim.device, True)


def flips(steps: int) -> list[dict[str, Any]]:
    """A row an agent: the share of its observations at which bfloat16 flips its action."""
    rows = []
    for ref, env_id in AGENTS.items():
        victim, x = observed(ref, env_id, steps)
        share = float(torch.cat([flipped(victim, part, "bf16") for part in x.split(256)]).float().mean())
        rows.append({"agent": ref, "kind": victim.kind, "observations": len(x), "flipped": share})
        print(rows[-1], flush=True)
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
    parts = [
        *prose(__doc__),
        table(header, lines),
        "## Actions that flip in bfloat16",
        table(
            ["agent", "kind", "observations", "flipped"],
            [[r["agent"], r["kind"], r["observations"], f"{r['flipped']:.2%}"] for r in data["agents"]],
        ),
    ]
    return parts


def measure(results: Results) -> None:
    """Both tables, anew."""
    given = results.given
    results.data |= {"rows": compare(given.rounds, given.least), "agents": flips(given.steps)}
    results.keep()


PAGE = Page(
    "options",
    "Options of attacks: compiled gradients and lower precision",
    __doc__,
    measure,
    body,
    options={
        "--rounds": {"type": int, "default": 7},
        "--least": {"type": float, "default": 0.05, "help": "seconds a timing lasts at least"},
        "--steps": {"type": int, "default": 2000, "help": "observations of every agent"},
    },
    head=lambda data: f"{made_by(data)} {INTERLEAVED}.",
)


if __name__ == "__main__":
    PAGE.main()
