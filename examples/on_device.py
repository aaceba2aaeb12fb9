"""Environments whose tensors live on a device, attacked there: one in torch, and Gymnasium's functional one in JAX.

    python examples/on_device.py --num-envs 256

Both are CartPole, on a CUDA device if there is one (for JAX: if it has one), else on the processor. Observations go
through the attack to the agent, and actions back, as tensors of that device. Every tenth step is watched: counted are
the kernels that wait for the device, bring a tensor to the host or move it to another device. numpy may read none,
except on the processor, where tensors are arrays, and random numbers are drawn by numpy because it is faster.

The JAX environment needs ``pip install "adv_wrappers[jax]"``, and is left out without it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
from contextlib import nullcontext
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import adv_wrappers as adv

LIMIT = 500  # steps of an episode


class CartPole(VectorEnv[Any, Any, Any]):
    """What the two environments share: CartPole's spaces."""

    single_observation_space = gym.spaces.Box(-math.inf, math.inf, (4,), np.float32)
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)


class TorchCartPole(CartPole):
    """CartPole-v1 in torch: states, rewards and flags never leave ``device``. A finished row is reset by its next step.

    Observations are float32 ``[B, 4]``: position, velocity, angle, angular velocity. Actions are int64 ``[B]``.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, num_envs: int, device: torch.device | str) -> None:
        super().__init__(num_envs)
        self.draws = torch.Generator(device)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Tensor, dict[str, Any]]:
        """All rows begin; ``seed`` is one integer for all of them."""
        if seed is not None:
            self.draws.manual_seed(seed)
        self.state = self._fresh()
        self.t = torch.zeros(self.num_envs, dtype=torch.int64, device=self.draws.device)
        self.over = self.t > 0
        return self.state, {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Every row moves, but for those that were over: they are reset, and their action is ignored."""
        waking, moved = self.over, self.transition(self.state, actions)
        self.state = torch.where(waking[:, None], self._fresh(), moved)
        self.t = (self.t + 1) * ~waking
        terminated = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > math.radians(12))
        truncated = self.t >= LIMIT
        self.over = terminated | truncated
        return self.state, (~waking).float(), terminated, truncated, {}

    def _fresh(self) -> Tensor:
        return torch.rand(self.num_envs, 4, generator=self.draws, device=self.draws.device).mul_(0.1).sub_(0.05)

    @staticmethod
    def transition(state: Tensor, actions: Tensor) -> Tensor:
        """The next state ``[B, 4]``: Euler's rule over 0.02 s on the equations of Barto, Sutton and Anderson (1983)."""
        x, v, angle, spin = state.unbind(1)
        sin, cos = angle.sin(), angle.cos()
        push = (20 * actions - 10 + 0.05 * spin.square() * sin) / 1.1  # 10 N; a cart of 1 kg, a pole of 0.1 kg and 1 m
        twist = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos.square() / 1.1))
        pull = push - 0.05 * twist * cos / 1.1
        return torch.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * twist], 1)


class JaxCartPole(CartPole):
    """Gymnasium's functional CartPole, a whole step compiled by JAX. A finished row is reset within its last step.

    Gymnasium's own vector of functional environments asks the device in every step whether a row was over, and holds
    all other rows still in a step that resets one, so that few of many rows would ever move.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        jax: Any = importlib.import_module("jax")
        cartpole: Any = importlib.import_module("gymnasium.envs.phys2d.cartpole")
        self.jax, rules = jax, cartpole.CartPoleFunctional()
        params = cartpole.CartPoleParams(polemass_length=0.05)  # mass times length; the default is their sum

        def begin(key: Any) -> Any:
            key, fresh = jax.random.split(key)
            return key, jax.vmap(lambda k: rules.initial(k, params))(jax.random.split(fresh, num_envs))

        def advance(key: Any, state: Any, t: Any, actions: Any) -> Any:
            last = jax.vmap(lambda s, a: rules.transition(s, a, None, params))(state, actions)
            terminated = jax.vmap(lambda s: rules.terminal(s, None, params))(last)
            truncated = t + 1 >= LIMIT
            over = terminated | truncated
            key, fresh = begin(key)
            state = jax.numpy.where(over[:, None], fresh, last)
            return key, state, (t + 1) * ~over, last, jax.numpy.ones(num_envs), terminated, truncated

        self.begin, self.advance = jax.jit(begin), jax.jit(advance)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """All rows begin; ``seed`` is one integer for all of them."""
        if seed is not None:
            self.key = self.jax.random.key(seed)
        self.key, self.state = self.begin(self.key)
        self.t = self.jax.numpy.zeros(self.num_envs, int)
        return self.state, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Every row moves; ``final_obs`` has what rows that are over ended with."""
        *mine, last, reward, terminated, truncated = self.advance(self.key, self.state, self.t, actions)
        self.key, self.state, self.t = mine
        return self.state, reward, terminated, truncated, {"final_obs": last}


class Trips(TorchDispatchMode):
    """Counts the kernels that torch is asked for, and among them those that wait for a device or leave it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = self.trips = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = function(*args, **(kwargs or {})), function.name()
        devices = {t.device for t in (*args, out) if isinstance(t, Tensor) and t.dim()}
        by_mask = name == "aten::index.Tensor" and any(i is not None and i.dtype == torch.bool for i in args[1])
        self.kernels += 1
        self.trips += by_mask or len(devices) > 1 or name.startswith(("aten::_local_scalar_dense", "aten::nonzero"))
        return out


def play(env: VectorEnv[Any, Any, Any], victim: adv.Victim, steps: int, trips: Trips) -> float:
    """Mean return of the first episode of every row, within ``steps`` steps; every tenth of them is watched."""
    obs, _ = env.reset(seed=0)
    score = torch.zeros(env.num_envs, device=obs.device)
    alive = score == 0
    unread = nullcontext() if obs.device.type == "cpu" else mock.patch.object(Tensor, "numpy", None)
    for t in range(steps):
        with torch.no_grad():
            actions = victim.act(victim.params(obs))
        watch = trips if t % 10 == 1 else nullcontext()  # the first step puts tables of the threat on the device
        with watch, unread:
            obs, reward, terminated, truncated, _ = env.step(actions)
        score += reward * alive
        alive &= ~(terminated | truncated)
    return score.mean().item()


def main() -> None:
    """Play both environments clean, under noise and under PGD, and print what was lost and what left the device."""
    parser = argparse.ArgumentParser(description="Attack environments whose tensors live on a device.")
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=LIMIT)
    parser.add_argument("--eps", type=float, default=0.2, help="l-infinity radius, in raw units")
    arguments = parser.parse_args()
    rows, eps, device = arguments.num_envs, arguments.eps, "cuda" if torch.cuda.is_available() else "cpu"
    environments: dict[str, Any] = {"torch": TorchCartPole(rows, device)}
    if importlib.util.find_spec("jax") and importlib.util.find_spec("flax"):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of a device's memory
        from gymnasium.wrappers.vector import JaxToTorch

        environments["jax"] = JaxToTorch(JaxCartPole(rows))

    print("CartPole   device     clean     noise       pgd   trips in watched steps")
    for name, env in environments.items():
        where = env.reset(seed=0)[0].device
        victim = adv.load_victim("zoo:cartpole-dqn", device=where)
        trips, returns = Trips(), []
        for threat in (None, adv.threat("noise", eps=eps), adv.threat("pgd", victim, eps=eps)):
            returns.append(play(env if threat is None else adv.wrap(env, threat), victim, arguments.steps, trips))
        scores = "".join(f"{value:10.1f}" for value in returns)
        print(f"{name:10} {where!s:6}{scores}   {trips.trips} of {trips.kernels} kernels")


if __name__ == "__main__":
    main()
