"""What a layer costs on an environment of tensors: 4 096 rows that never leave the device they are computed on.

    python benchmarks/tensors.py
    python benchmarks/tensors.py --device cuda

The environment is a batch of CartPoles in plain torch: the state is one tensor ``[4096, 4]``, and rows whose pole falls
begin anew within the step, as Isaac Lab, ManiSkill and Playground do it. The victim is an MLP 4-64-64-2 on the same
device. Every layer is given in steps of the bare environment, medians of one interleaved run: wall-clock time, and on
CUDA that of the device's events.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from gpu import clocked, duration, gpu
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from timing import Data, Page, Results, hardware, medians, prose, table, timing_options
from torch import Tensor, nn

import adv_wrappers as adv

BARE, ROWS = "bare", 4096
LAYERS = {
    "noise": "noise:eps=0.05",
    "sensor bias": "sensor-bias:eps=0.05",
    "stuck sensor": "stuck-sensor:norm=valid",
    "observation delay": "observation-delay:norm=valid",
    "other action, in one step of ten": "action-flip:p=0.1",
    "FGSM": "fgsm:eps=0.05",
    "PGD, 10 steps": "pgd:eps=0.05,steps=10,restarts=1",
    "MaxDiff, 10 steps": "max-diff:eps=0.05,steps=10",
}


class TensorCartPole(VectorEnv[Tensor, Tensor, Tensor]):
    """CartPole for many rows in torch: the physics of Gymnasium's, autoreset within the step."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, num_envs: int, device: str) -> None:
        limit = np.array([4.8, np.inf, 0.42, np.inf], np.float32)
        self.num_envs, self.device = num_envs, torch.device(device)
        self.single_observation_space, self.single_action_space = spaces.Box(-limit, limit), spaces.Discrete(2)
        self.observation_space = spaces.Box(*(np.tile(s * limit, (num_envs, 1)) for s in (-1, 1)))
        self.action_space = spaces.MultiDiscrete(np.full(num_envs, 2))
        self.draws = torch.Generator(self.device)
        self.state = torch.zeros(num_envs, 4, device=device)

    def begin(self) -> Tensor:
        """First states of all rows."""
        return torch.rand(self.num_envs, 4, generator=self.draws, device=self.device) * 0.1 - 0.05

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Tensor, dict[str, Any]]:
        self.draws.manual_seed(0 if seed is None else int(np.ravel(seed)[0]))
        self.state = self.begin()
        return self.state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        x, speed, angle, turn = self.state.unbind(1)
        force = actions * 20.0 - 10.0
        cosine, sine = angle.cos(), angle.sin()
        pushed = (force + 0.05 * turn.square() * sine) / 1.1
        angular = (9.8 * sine - cosine * pushed) / (0.5 * (4 / 3 - 0.1 * cosine.square() / 1.1))
        linear = pushed - 0.05 * angular * cosine / 1.1
        last = torch.stack([x + 0.02 * speed, speed + 0.02 * linear, angle + 0.02 * turn, turn + 0.02 * angular], 1)
        over = (last[:, 0].abs() > 2.4) | (last[:, 2].abs() > 0.2095)
        self.state = torch.where(over[:, None], self.begin(), last)
        reward = torch.ones(self.num_envs, device=self.device)
        return self.state, reward, over, torch.zeros_like(over), {"final_obs": last}


def victim(device: str) -> adv.Victim:
    """An MLP that prefers either action."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    env = TensorCartPole(1, "cpu")
    return adv.from_module(net, env.single_observation_space, env.single_action_space, "logits", device=device)


def steps(env: Any, device: str) -> Callable[[], object]:
    """A step with the same actions every time."""
    env.reset(seed=0)
    actions = torch.arange(env.num_envs, device=device) % 2
    return lambda: env.step(actions)


def measure_all(results: Results) -> None:
    """The layers on one device, beside what was measured on another.

    Raises:
        SystemExit: with 2, for CUDA where there is none.
    """
    given = results.given
    device, rows = given.device, given.num_envs
    if device == "cuda" and not torch.cuda.is_available():
        print("--device cuda needs CUDA, and torch finds none here", file=sys.stderr)
        raise SystemExit(2)
    attacked = victim(device)
    calls = {BARE: steps(TensorCartPole(rows, device), device)}
    for name, text in LAYERS.items():
        calls[name] = steps(adv.wrap(TensorCartPole(rows, device), text, victim=attacked), device)
    seconds = clocked(calls, given.rounds, given.least, torch.device(device))
    results.part("devices")[device] = {
        **results.made,
        "device": gpu() if device == "cuda" else {},
        "num_envs": rows,
        "bare_seconds": statistics.median(seconds[BARE]),
        "ratios": medians(seconds, BARE),
    }
    results.keep()


def head(data: Data) -> str:
    """What the rows of each device were made by."""
    parts = []
    for device, found in data["devices"].items():
        machine = "; ".join([*(f"{key} {value}" for key, value in found["device"].items()), hardware(found["machine"])])
        bare = f"{found['num_envs']} rows, a step of the bare environment takes {duration(found['bare_seconds'])}"
        parts.append(f"{device}: made by `{found['command']}` on {machine}; {bare}.")
    return " ".join(parts)


def body(data: Data) -> Iterable[str]:
    """The table of layers."""
    devices = data["devices"]
    yield from prose(__doc__)
    names = [name for name in LAYERS if any(name in found["ratios"] for found in devices.values())]
    lines = [
        (name, f"`{LAYERS[name]}`", *(f"{found['ratios'][name]:.2f}" for found in devices.values())) for name in names
    ]
    yield table(["layer", "threat", *(f"{device}, bare steps" for device in devices)], lines)


PAGE = Page(
    "tensors",
    "Layers on environments of tensors",
    __doc__,
    measure_all,
    body,
    page="gpu",
    options={
        "--device": {"default": "cpu", "choices": ["cpu", "cuda"]},
        "--num-envs": {"type": int, "default": ROWS},
        **timing_options(9, 0.1),
    },
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
