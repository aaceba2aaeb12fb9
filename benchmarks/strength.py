"""How much of what a budget allows attacks find, beside exhaustive search, long searches and other libraries.

    python benchmarks/strength.py --victims FOLDER

Of states that the victim meets when nobody attacks it, all attacked at once, by the engine that wrappers use.
"""

from __future__ import annotations

import argparse
import copy
import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from timing import AGAIN, Data, Page, Results, interleave, medians, pivot, releases
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.adversaries import Director
from adv_wrappers.core.engine.engine import Engine, Wrapped
from adv_wrappers.core.engine.victim_view import VictimView
from adv_wrappers.threats.presets import parse_threat

STATES, GRID, SEEDS = 512, 41, 3
PLAIN = "min-best:steps=10,step=0.25"
STRONG = "max-diff:restarts=6,keep=best,noise=0"
PEERS = ("torchattacks", "adversarial-robustness-toolbox")

Rows = list[dict[str, Any]]


class Agent:
    """A victim, and states that it meets; they are attacked by the engine that wrappers use.

    Args:
        victim: whose policy.
        make: makes its environment.
        count: number of states, drawn from its own episodes.
        seeds: of the episodes.
        most: steps of an episode that are looked at.
        floats: hand out integer observations as floats.
    """

    def __init__(
        self,
        victim: adv.Victim,
        make: Callable[[], Any],
        count: int = STATES,
        seeds: int = 20,
        most: int = 1000,
        floats: bool = False,
    ) -> None:
        env = make()
        self.victim, self.seen, self.acted = victim, env.observation_space, env.action_space
        found: list[NDArray[Any]] = []
        for seed in range(seeds):
            obs, _ = env.reset(seed=seed)
            for t in range(most):
                found.append(np.array(obs))
                params = self.params(found[-1][None])
                action = victim.act(params, torch.tensor([seed * most + t]))[0].numpy()
                obs, _, terminated, truncated, _ = env.step(action if action.shape else int(action))
                if terminated or truncated:
                    break
        env.close()
        order = np.random.default_rng(0).permutation(len(found))[:count]
        self.x = np.stack([found[i] for i in order])
        if floats:
            box: Any = self.seen
            self.seen = spaces.Box(0.0, 255.0, box.shape, np.float32)
            self.x = self.x.astype(np.float32)
        self.clean = self.params(self.x)

    def params(self, y: NDArray[Any]) -> Tensor:
        """The victim's parameters at observations ``[n, *S]``."""
        with torch.no_grad():
            parts = np.array_split(y, max(len(y) // 64, 1))
            return torch.cat([self.victim.params(torch.as_tensor(part).to(self.victim.dtype)) for part in parts])

    def attack(self, text: str, seed: int = 0, **budget: Any) -> Callable[[], NDArray[Any]]:
        """A function that attacks all states by the threat that a text and a budget describe."""
        threat = parse_threat(text, victim=self.victim, **budget)
        engine = Engine(threat, Wrapped(self.seen, self.acted, len(self.x)))

        def attacked() -> NDArray[Any]:
            engine.begin_episode(seed)
            return np.asarray(engine.apply(self.x, True))

        return attacked

    def flips(self, y: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether another action is played, bool ``[n]``."""
        return (self.params(y).argmax(-1) != self.clean.argmax(-1)).numpy()

    def grid(self, eps: float) -> NDArray[np.bool_]:
        """The actions that are played somewhere on a grid over the box, bool ``[n, A]``; for two features."""
        box: Any = self.seen
        low, high = np.maximum(self.x - eps, box.low), np.minimum(self.x + eps, box.high)
        reached = np.zeros(self.clean.shape, bool)
        for i in np.linspace(0, 1, GRID):
            for j in np.linspace(0, 1, GRID):
                point = (low + (high - low) * np.array([i, j])).astype(self.x.dtype)
                reached[np.arange(len(self.x)), self.params(point).argmax(-1).numpy()] = True
        return reached


@functools.cache
def mountain() -> Agent:
    """The zoo's DQN agent of MountainCar."""
    return Agent(adv.load_victim("zoo:mountaincar-dqn"), lambda: gym.make("MountainCar-v0"))


MOUNTAIN = (
    "fgsm", PLAIN, f"{PLAIN},random_start=true", "max-worst", "momentum", "min-q", "min-played-q", "max-diff", STRONG,
    "pgd", "apgd", "multi-targeted", "square", "hop-skip-jump",
)  # fmt: skip


def mountain_car(arguments: argparse.Namespace) -> Rows:
    """Table 1."""
    rows, agent = [], mountain()
    for eps in (0.005, 0.01, 0.02):
        reached = agent.grid(eps)
        reached[np.arange(len(agent.x)), agent.clean.argmax(-1).numpy()] = False
        there = float(reached.any(1).mean())
        times = medians(interleave({text: agent.attack(text, eps=eps) for text in MOUNTAIN}, 5, 0.2), PLAIN)
        for text in MOUNTAIN:
            found = [agent.flips(agent.attack(text, seed, eps=eps)()).mean() for seed in range(SEEDS)]
            rows.append(
                {
                    "eps": eps,
                    "threat": text,
                    "exhaustive": there,
                    "flips": float(np.mean(found)),
                    "share": float(np.mean(found)) / there,
                    "lowest": float(min(found)) / there,
                    "time": times[text],
                }
            )
    return rows


DIVERGENT = (
    "max-diff", "max-diff:noise=0", "max-diff:noise=0,steps=30", STRONG, "apgd:loss=divergence",
    "max-diff:restarts=100,steps=100,keep=best,noise=0", "apgd:loss=divergence,restarts=20,steps=100",
)  # fmt: skip


def divergence(arguments: argparse.Namespace) -> Rows:
    """Table 2."""
    cards = arguments.victims
    agents: list[tuple[str, str, float, str | None]] = [
        ("zoo:mountaincar-dqn", "MountainCar-v0", 0.02, None),
        ("zoo:cartpole-a2c", "CartPole-v1", 0.05, None),
        ("zoo:hopper-ppo", "Hopper-v5", 0.075, "victim"),
        ("zoo:walker2d-ppo", "Walker2d-v5", 0.05, "victim"),
        ("wocar-walker-ppo", "Walker2d-v4", 0.05, "victim"),
        ("saddpg-hopper-vanilla", "Hopper-v4", 0.075, "card"),
    ]
    rows = []
    for name, env_id, eps, unit in agents:
        victim = adv.load_victim(name if name.startswith("zoo:") else f"card:{cards / name}")
        budget: dict[str, Any] = {"eps": eps, "scale": unit}
        if unit == "card":
            budget["scale"] = tuple((victim.card or {})["attack"]["scale"])
        agent = Agent(victim, functools.partial(gym.make, env_id))
        x = torch.as_tensor(agent.x).to(victim.dtype)
        loss = adv.MaxDiff(victim).objective(x, VictimView(victim, None, None, x))
        found = {text: loss(agent.params(agent.attack(text, **budget)())).double() for text in DIVERGENT}
        best = torch.stack(list(found.values())).amax(0).sum()
        rows += [
            {"victim": name, "eps": eps, "threat": text, "share": float(reached.sum() / best)}
            for text, reached in found.items()
        ]
    return rows


PONG = (
    "fgsm", PLAIN, "momentum", "max-diff", STRONG, "pgd", "apgd:loss=cross-entropy", "apgd:loss=dlr", "apgd",
    "multi-targeted:targets=3", "square",
)  # fmt: skip


class Pixels(nn.Module):
    """A victim's network on pixels of [0, 1], as other libraries take them."""

    def __init__(self, victim: Any) -> None:
        super().__init__()
        self.net = copy.deepcopy(victim.net).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * 255)  # type: ignore[no-any-return]


def torchattacks_apgd(agent: Agent, eps: float, loss: str) -> NDArray[Any]:
    """Observations ``[n, *S]`` from ``torchattacks.APGD``, in grey levels: 20 steps, 5 restarts."""
    import torchattacks

    x, labels = torch.as_tensor(agent.x).float() / 255, agent.clean.argmax(-1)
    attack = torchattacks.APGD(Pixels(agent.victim), eps=eps / 255, steps=20, n_restarts=5, loss=loss)
    return np.asarray(attack(x, labels).detach()) * 255


def art_pgd(agent: Agent, eps: float) -> NDArray[Any]:
    """Observations ``[n, *S]`` from ART's projected gradient descent, in grey levels: 10 steps, 3 restarts."""
    from art.attacks.evasion.projected_gradient_descent.projected_gradient_descent_pytorch import (
        ProjectedGradientDescentPyTorch,
    )
    from art.estimators.classification.pytorch import PyTorchClassifier

    actions = agent.clean.shape[1]
    model = PyTorchClassifier(
        Pixels(agent.victim),
        nn.CrossEntropyLoss(),
        agent.x.shape[1:],
        actions,
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    attack = ProjectedGradientDescentPyTorch(
        model, eps=eps / 255, eps_step=0.25 * eps / 255, max_iter=10, num_random_init=3, batch_size=64, verbose=False
    )
    y = attack.generate(agent.x.astype(np.float32) / 255, agent.clean.argmax(-1).numpy())
    return np.asarray(y) * 255


LIBRARIES: dict[str, Callable[[Agent, float], NDArray[Any]]] = {
    "torchattacks APGD, cross-entropy": functools.partial(torchattacks_apgd, loss="ce"),
    "torchattacks APGD, DLR": functools.partial(torchattacks_apgd, loss="dlr"),
    "ART PGD, 3 restarts": art_pgd,
}


def pong(arguments: argparse.Namespace) -> Rows:
    """Table 3."""
    rows = []
    for name in ("zoo:pong-ppo", "davide-pong-a2c"):
        victim = adv.load_victim(name if name.startswith("zoo:") else f"card:{arguments.victims / name}", select="mode")
        for kind, eps in (("uint8", 1.0), ("float", 0.1275)):
            agent = Agent(victim, lambda: adv.atari.atari("PongNoFrameskip-v4"), 64, 2, 600, kind == "float")
            found = {text: agent.attack(text, eps=eps)() for text in PONG}
            x = agent.x.astype(np.float32)
            for peer, call in LIBRARIES.items():
                try:
                    y = np.clip(call(agent, eps), np.maximum(x - eps, 0), np.minimum(x + eps, 255))
                except ImportError as error:
                    print(f"{peer} is left out: {error}", file=sys.stderr)
                    continue
                found[peer] = np.rint(y).astype(np.uint8) if kind == "uint8" else y.astype(np.float32)
            rows += [
                {"victim": name, "observations": kind, "eps": eps, "attack": key, "flips": float(agent.flips(y).mean())}
                for key, y in found.items()
            ]
    return rows


WHITE = (PLAIN, "pgd", "apgd", "multi-targeted")
BLACK = ("square:queries=100", "square", "hop-skip-jump:queries=100", "hop-skip-jump")


def black_box(arguments: argparse.Namespace) -> Rows:
    """Table 4."""
    rows = []
    poles = [("zoo:cartpole-dqn", (0.05, 0.1, 0.2)), ("zoo:cartpole-a2c", (0.05, 0.1))]
    agents = [("zoo:mountaincar-dqn", mountain(), (0.005, 0.01, 0.02))]
    agents += [(n, Agent(adv.load_victim(n), lambda: gym.make("CartPole-v1")), sizes) for n, sizes in poles]  # type: ignore[misc]
    for name, agent, sizes in agents:
        for eps in sizes:
            white = np.stack([agent.flips(agent.attack(text, eps=eps)()) for text in WHITE]).any(0)
            for text in BLACK:
                found = agent.flips(agent.attack(text, eps=eps)())
                rows.append(
                    {
                        "victim": name,
                        "eps": eps,
                        "threat": text,
                        "white": float(white.mean()),
                        "flips": float(found.mean()),
                        "share": float((found & white).sum() / max(white.sum(), 1)),
                    }
                )
    return rows


ACTORS: dict[str, dict[str, Any]] = {
    "one ascent, its last point": {"restarts": 1, "keep": "last"},
    "one ascent of 30 steps, its last point": {"restarts": 1, "keep": "last", "steps": 30, "step": 0.1},
    "one ascent, its best point": {"restarts": 1, "keep": "best"},
    "the default (three ascents)": {},
    "nine ascents": {"restarts": 9, "keep": "best"},
}


def actor(arguments: argparse.Namespace) -> Rows:
    """Table 5."""
    agent, rows = mountain(), []
    victim, eps = agent.victim, 0.01
    there = agent.grid(eps)
    for name, settings in ACTORS.items():
        shares = []
        for seed in range(SEEDS):
            found = np.zeros_like(there)
            for action in range(there.shape[1]):
                director = Director(_always(action, there.shape[1], 2), True)
                how = adv.Learned(director, adv.PAAD(victim, form="target", **settings))
                engine = Engine(
                    adv.ThreatModel("observation", how, adv.Linf(eps)), Wrapped(agent.seen, agent.acted, len(agent.x))
                )
                engine.begin_episode(seed)
                y = np.asarray(engine.apply(agent.x, True))
                found[:, action] = agent.params(y).argmax(-1).numpy() == action
            shares.append((found & there).sum() / there.sum())
        rows.append({"actor": name, "share": float(np.mean(shares)), "lowest": float(min(shares))})
    return rows


def _always(action: int, count: int, features: int) -> nn.Sequential:
    """A director's network that always asks for the same action."""
    layer = nn.Linear(features, count)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(nn.functional.one_hot(torch.tensor(action), count))
    return nn.Sequential(layer)


WIDE = (PLAIN, "max-worst", "min-q", "min-q:loss=margin", "min-q:temperature=1", "max-diff", "max-diff:temperature=1")


def gaps(arguments: argparse.Namespace) -> Rows:
    """Table 6."""
    rows = []
    for factor in (1, 1000):
        inner = adv.load_victim("zoo:cartpole-dqn")
        net = copy.deepcopy(inner.net)  # type: ignore[attr-defined]
        last = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1]
        with torch.no_grad():
            last.weight.mul_(factor)
            last.bias.mul_(factor)
        victim = adv.from_module(net, inner.observation_space, inner.action_space, "q")
        agent = Agent(victim, lambda: gym.make("CartPole-v1"))
        rows += [
            {"factor": factor, "threat": text, "flips": float(agent.flips(agent.attack(text, eps=0.2)()).mean())}
            for text in WIDE
        ]
    return rows


TABLES = {
    "mountain_car": (
        "MountainCar: the share of the states in which a grid of 41 x 41 points over the box finds another action "
        "where the attack finds one (above one: the grid missed some), mean of three seeds, and processor time in "
        "units of ten plain steps (`min-best:steps=10,step=0.25`)",
        mountain_car,
    ),
    "divergence": ("The divergence that MaxDiff reaches, as a share of a state's largest in any search", divergence),
    "pong": (
        "Pong: the share of 64 states in which another action is played, on the grid of grey levels (uint8) and in "
        "floats; other libraries get the same network in pixels of [0, 1], rounded to the grid",
        pong,
    ),
    "black_box": ("Attacks without a gradient: the share of the flips that any gradient attack found", black_box),
    "actor": ("The `target` actor of PA-AD on MountainCar: the share that it reaches of the actions in reach", actor),
    "gaps": ("Flips on CartPole's DQN at eps 0.2, and with its Q-values multiplied by 1000", gaps),
}
SHOWN: dict[str, tuple[str, tuple[str, ...], Callable[[dict[str, Any]], str]]] = {
    "mountain_car": ("threat", ("eps",), lambda row: f"{row['share']:.3f} ({row['time']:.3g})"),
    "divergence": ("threat", ("victim", "eps"), lambda row: f"{row['share']:.3f}"),
    "pong": ("attack", ("victim", "observations"), lambda row: f"{row['flips']:.3g}"),
    "black_box": ("threat", ("victim", "eps"), lambda row: f"{row['share']:.3f}"),
    "actor": ("actor", (), lambda row: f"{row['share']:.3f}"),
    "gaps": ("threat", ("factor",), lambda row: f"{row['flips']:.3g}"),
}


def body(data: Data) -> list[str]:
    """The section after its head."""
    parts = []
    for key, (title, _) in TABLES.items():
        if data.get(key):
            parts += [f"{title}:", pivot(data[key], *SHOWN[key])]
    return [*parts, f"Other libraries: {data['peers']}."] if data.get("pong") else parts


def measure(results: Results) -> None:
    """Measure the tables that are missing, or those that are asked for."""
    given, data = results.given, results.data
    warnings.filterwarnings("ignore")
    for key, (title, make) in TABLES.items():
        if given.again or key in (given.only or ()) or (not given.only and key not in data):
            print(title, flush=True)
            data[key] = make(given)
            data["peers"] = releases(*PEERS) or "none"
            results.keep()


PAGE = Page(
    "strength",
    "Strength: how much of what a budget allows attacks find",
    __doc__,
    measure,
    body,
    page="strength",
    options={
        "--victims": {"type": Path, "help": "folder of cards"},
        "--only": {"choices": [*TABLES], "action": "append", "help": "measure this table (again)"},
        **AGAIN,
    },
    needs=["--victims"],
)


if __name__ == "__main__":
    PAGE.main()
