"""What wrapping costs: a step that is not attacked, noise and action attacks, MaxDiff on 32 Hoppers, and evaluate.

    python benchmarks/wrappers.py --victims FOLDER

Steps of CartPole whose time stands still, not attacked, around noise: what is added, in bare steps. Then attacked steps
of uniform noise (0.05, of images two grey levels) and of action attacks, in microseconds over the bare step, beside a
hand-written wrapper and Gymnasium's ``TransformObservation`` around the same function, which know no budget. 64 rows
are Gymnasium's vector CartPole; images are one uint8 picture of 84x84x4.

MaxDiff takes 10 steps at the card's eps, 32 environments in a ``SyncVectorEnv``, episodes cut at 100 steps. The
hand-written loop is the same algorithm in plain torch by autograd; the wrapper loop steps ``PerturbObservation``.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv, VectorEnv, VectorWrapper
from timing import INTERLEAVED, Data, Page, Results, interleave, made_by, medians, prose, table
from torch import Tensor

import adv_wrappers as adv

EPS, LEVELS = 0.05, 2
BARE, HAND, WRAPPED, EVALUATE = "bare", "hand-written loop", "wrapper loop", "evaluate"
ROWS, LENGTH, STEPS, STEP = 32, 100, 10, 0.1


def cartpole() -> gym.Env[Any, Any]:
    """CartPole without an end: its time stands still."""
    env = gym.make("CartPole-v1", max_episode_steps=10**9)
    pole: Any = env.unwrapped
    pole.tau = 0.0
    return env


def stepper(env: Any, count: int, actions: Sequence[Any] = (0, 1)) -> Callable[[], None]:
    """``count`` steps with two actions by turns."""
    env.reset(seed=0)
    env.step(actions[0])  # t = 0 is behind us
    step, script = env.step, [actions[i % 2] for i in range(count)]

    def call() -> None:
        for action in script:
            step(action)

    return call


def steps(rounds: int) -> dict[str, Any]:
    """Microseconds a step, and what each layer adds in bare steps."""
    count = 1000
    whens: dict[str, Any] = {"Never()": adv.Never(), "Every(k)": adv.Every(10**9), "Bernoulli(p)": adv.Bernoulli(1e-12)}
    calls = {BARE: stepper(cartpole(), count)}
    for name, when in whens.items():
        calls[name] = stepper(adv.PerturbObservation(cartpole(), "noise:eps=0.05", when=when), count)
    seconds = interleave(calls, rounds, 0.0)
    ratios = medians(seconds, BARE)
    micro = {name: 1e6 * statistics.median(times) / count for name, times in seconds.items()}
    return {name: {"microseconds": micro[name], "added": ratios[name] - 1} for name in calls}


def cartpoles() -> VectorEnv[Any, Any, Any]:
    """64 CartPoles without an end, in Gymnasium's own vector class."""
    env: Any = gym.make_vec("CartPole-v1", 64, "vector_entry_point", max_episode_steps=10**9)
    env.unwrapped.tau = 0.0
    return env  # type: ignore[no-any-return]


class Picture(gym.Env[Any, Any]):
    """One picture of an Atari stack, which costs nothing to make."""

    observation_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.picture = np.random.default_rng(0).integers(0, 256, (84, 84, 4), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.picture, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.picture, 0.0, False, False, {}


def noise_by_hand(space: Any) -> Callable[[Any], Any]:
    """What one writes for noise that stays in the space."""
    rng, shape, low, high = np.random.default_rng(0), space.shape, space.low, space.high
    if space.dtype == np.uint8:
        return lambda x: np.clip(x + rng.integers(-LEVELS, LEVELS + 1, shape, np.int16), 0, 255).astype(np.uint8)
    return lambda x: np.clip(x + rng.uniform(-EPS, EPS, shape).astype(x.dtype), low, high)


class _NoisyObservations:
    """Noise on observations, as one writes it."""

    env: Any

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.noise = noise_by_hand(env.observation_space)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.noise(obs), reward, terminated, truncated, info


class ObservationByHand(_NoisyObservations, gym.Wrapper[Any, Any, Any, Any]):
    """Noise on the observations of one environment."""


class RowsByHand(_NoisyObservations, VectorWrapper):
    """Noise on those of a vector."""


class ActionByHand(gym.Wrapper[Any, Any, Any, Any]):
    """Noise on actions, as one writes it; or the other of two."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = env.action_space
        self.change = noise_by_hand(space) if isinstance(space, gym.spaces.Box) else lambda action: 1 - action

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(self.change(action))


def transformed(env: Any) -> Any:
    """The same function in Gymnasium's own wrapper."""
    space = env.observation_space
    kind = gym.wrappers.TransformObservation if isinstance(env, gym.Env) else gym.wrappers.vector.TransformObservation
    return kind(env, noise_by_hand(space), space)


def attacked_steps(rounds: int) -> dict[str, dict[str, Any]]:
    """Environment by environment, microseconds a step, and over the bare step with the goal."""
    noise, flips, moves = f"noise:eps={EPS}", adv.ActionFlip(), adv.threat("action-noise", eps=EPS)
    pendulum: Callable[[], Any] = lambda: gym.make("Pendulum-v1", max_episode_steps=10**9)  # noqa: E731
    torques = [np.full(1, side, np.float32) for side in (-1.0, 1.0)]
    rows = [np.full(64, side) for side in (0, 1)]
    groups: dict[
        str, tuple[Callable[[], Any], Sequence[Any], int, dict[str, tuple[Callable[[Any], Any], float | None]]]
    ]
    groups = {
        "CartPole": (
            cartpole,
            (0, 1),
            1000,
            {
                "hand-written noise": ObservationByHand,
                "TransformObservation": transformed,
                "noise": lambda env: adv.wrap(env, noise),
                "five layers of noise": lambda env: adv.wrap(env, *[noise] * 5),
                "hand-written action flip": ActionByHand,
                "action flip": lambda env: adv.wrap(env, flips),
            },
        ),
        "Pendulum": (
            pendulum,
            torques,
            1000,
            {
                "hand-written action noise": ActionByHand,
                "action noise": lambda env: adv.wrap(env, moves),
            },
        ),
        "CartPole, 64 rows": (
            cartpoles,
            rows,
            500,
            {
                "hand-written noise": RowsByHand,
                "TransformObservation": transformed,
                "noise": lambda env: adv.wrap(env, noise),
            },
        ),
        "uint8, 84x84x4": (
            Picture,
            (0, 1),
            100,
            {
                "hand-written noise": ObservationByHand,
                "TransformObservation": transformed,
                "noise": lambda env: adv.wrap(env, f"noise:eps={LEVELS}"),
            },
        ),
    }
    found: dict[str, dict[str, Any]] = {}
    for group, (make, actions, count, layers) in groups.items():
        calls = {BARE: stepper(make(), count, actions)}
        calls |= {name: stepper(layer(make()), count, actions) for name, layer in layers.items()}
        seconds = interleave(calls, rounds, 0.0)
        found[group] = {}
        for name, times in seconds.items():
            added = statistics.median(own - bare for own, bare in zip(times, seconds[BARE], strict=True))
            found[group][name] = {
                "microseconds": 1e6 * statistics.median(times) / count,
                "added": 1e6 * added / count,
            }
    return found


def one(env_id: str) -> gym.Env[Any, Any]:
    """One environment, its episodes cut short."""
    return gym.make(env_id, max_episode_steps=LENGTH)


def by_hand(victim: adv.Victim, env: SyncVectorEnv, eps: float) -> Callable[[], float]:
    """One episode in every row under a MaxDiff that is written out."""
    net: Any = victim.modules()[0]
    assert victim.scale is not None
    unit = victim.scale.float()
    length, radius = STEP * eps, eps * unit
    factor = math.sqrt(2 * length)

    def attack(x: Tensor) -> Tensor:
        low, high = x - radius, x + radius
        with torch.no_grad():
            mean, log_std = net(x).chunk(2, -1)
            inverse = (-2 * log_std).exp()
            y = torch.clamp(x + length * unit * (2 * torch.randint_like(x, 2) - 1), low, high)
        for i in range(STEPS):
            y.requires_grad_()
            there, log_there = net(y).chunk(2, -1)
            gap = log_there - log_std
            kl = gap + ((-2 * gap).exp() + (mean - there).square() * inverse * (-2 * gap).exp() - 1) / 2
            (g,) = torch.autograd.grad(kl.sum(), y)
            with torch.no_grad():
                g = g * unit + torch.randn_like(g) * (factor / (i + 2))
                y = torch.clamp(y + length * unit * g.sign(), low, high)
        return y

    def call() -> float:
        started = time.process_time()
        obs, _ = env.reset(seed=0)
        for _ in range(LENGTH):
            y = attack(torch.from_numpy(obs).float())
            with torch.no_grad():
                actions = net(y).chunk(2, -1)[0].numpy()
            obs = env.step(actions)[0]
        return time.process_time() - started

    return call


def wrapped(victim: adv.Victim, env: SyncVectorEnv, eps: float) -> Callable[[], float]:
    """One episode in every row through the wrapper."""
    attacked = adv.PerturbObservation(env, adv.MaxDiff(victim, STEPS, STEP), within=adv.Linf(eps, scale="victim"))

    def call() -> float:
        started = time.process_time()
        obs, _ = attacked.reset(seed=0)
        for _ in range(LENGTH):
            with torch.no_grad():
                actions = victim.act(victim.params(torch.from_numpy(obs).float())).numpy()
            obs = attacked.step(actions)[0]
        return time.process_time() - started

    return call


def evaluated(victim: adv.Victim, env_id: str, eps: float) -> Callable[[], float]:
    """The attacked run of an evaluation of one episode a row."""
    threat = f"max-diff:eps={eps},scale=victim,steps={STEPS},step={STEP}"

    def call() -> float:
        stamps: list[float] = []

        def progress(name: str, done: int, episodes: int) -> None:
            if name == threat:
                stamps.append(time.process_time())

        report = adv.evaluate(victim, lambda: one(env_id), [threat], episodes=ROWS, num_envs=ROWS, progress=progress)
        row = report.threats[-1]
        return (stamps[-1] - stamps[0]) * LENGTH / float(row["mean_length"])

    return call


def loops(victim: adv.Victim, env_id: str, eps: float, rounds: int) -> dict[str, Any]:
    """Steps a second of the three loops, and their medians of ratios to the hand-written one."""
    calls = {
        HAND: by_hand(victim, SyncVectorEnv([lambda: one(env_id)] * ROWS), eps),
        WRAPPED: wrapped(victim, SyncVectorEnv([lambda: one(env_id)] * ROWS), eps),
        EVALUATE: evaluated(victim, env_id, eps),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    names = list(calls)
    for i in range(rounds):
        at = i % len(names)
        for name in names[at:] + names[:at]:
            seconds[name].append(calls[name]())
    speed = {n: np.asarray([ROWS * LENGTH / s for s in times]) for n, times in seconds.items()}
    return {
        "steps_per_second": {n: float(np.median(s)) for n, s in speed.items()},
        "wrapper_to_hand": float(np.median(speed[WRAPPED] / speed[HAND])),
        "evaluate_to_wrapper": float(np.median(speed[EVALUATE] / speed[WRAPPED])),
        "evaluate_to_hand": float(np.median(speed[EVALUATE] / speed[HAND])),
    }


def body(data: Data) -> list[str]:
    """The section after its head."""
    vector = data["hopper"]
    layers = [["CartPole, not attacked", name, row] for name, row in data["cartpole"].items() if name != BARE]
    layers += [[group, name, row] for group, rows in data["attacked"].items() for name, row in rows.items()]
    lines = [
        [group, name, f"{row['microseconds']:.1f}", f"{row['added']:.2f} steps" if i < 3 else f"{row['added']:.1f}"]
        for i, (group, name, row) in enumerate(layers)
    ]
    speeds = ", ".join(f"{name} {speed:.0f}" for name, speed in vector["steps_per_second"].items())
    return [
        *prose(__doc__),
        table(["environment", "layer", "microseconds a step", "added, us or bare steps"], lines),
        f"MaxDiff-10 on 32 Hoppers, environment steps a second: {speeds}.",
    ]


def measure(results: Results) -> None:
    """Time everything, anew."""
    given = results.given
    if given.victims is not None and (given.victims / "wocar-hopper-ppo").exists():
        name = "wocar-hopper-ppo"
        victim = adv.load_victim(f"card:{given.victims / name}")
    else:
        name = "zoo:hopper-ppo"
        victim = adv.load_victim(name)
    card = victim.card or {}
    eps = float((card.get("attack") or {}).get("eps", 0.075))
    single = steps(given.rounds * 2)
    for label, row in single.items():
        print(f"{label:14} {row['microseconds']:7.2f} us a step, adds {row['added']:6.2f} bare steps", flush=True)
    attacked = attacked_steps(given.rounds)
    for group, rows in attacked.items():
        for label, row in rows.items():
            print(f"{group:18} {label:26} {row['microseconds']:7.1f} us a step, adds {row['added']:7.1f}", flush=True)
    if given.steps_only:
        return
    vector = loops(victim, card["environment"]["id"], eps, given.rounds)
    for label, speed in vector["steps_per_second"].items():
        print(f"{label:18} {speed:8.0f} steps a second", flush=True)
    results.data |= {"victim": name, "cartpole": single, "attacked": attacked, "hopper": vector}
    results.keep()


PAGE = Page(
    "wrappers",
    "What wrapping costs",
    __doc__,
    measure,
    body,
    page="speed",
    options={
        "--victims": {"type": Path, "help": "folder of cards; None takes zoo:hopper-ppo"},
        "--rounds": {"type": int, "default": 15},
        "--steps-only": {"action": "store_true", "help": "time single steps, and print them alone"},
    },
    head=lambda data: f"{made_by(data)} {INTERLEAVED}, ratios within a round; MaxDiff on {data['victim']}.",
)


if __name__ == "__main__":
    PAGE.main()
