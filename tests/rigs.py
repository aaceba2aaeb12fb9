"""What the tests attack: scripted environments, small victims, and the rigs that pair them.

A rig is a pair of spaces with a victim for them. :class:`ReplayEnv` plays recorded observations, so that what an
environment shows depends on nothing but the reset seed; :func:`run` drives any kind of environment to the same form of
transcript, row by row and episode by episode, so that kinds can be compared.
"""

from __future__ import annotations

import copy
import functools
import itertools
import zlib
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from torch import nn

from adv_wrappers import from_module

EPISODES = (3, 5, 2, 4, 6)  # steps of the recorded episodes
KINDS = ("env", "next", "same", "disabled", "sb3", "tensor")  # and "cuda", where there is a GPU
PLAIN = KINDS[:2]  # the kinds that laws are tested in; the adapters of the others conform (laws/test_adapters.py)
ADAPTED = KINDS[2:]
MODES = {"next": "NEXT_STEP", "same": "SAME_STEP", "disabled": "DISABLED", "tensor": "SAME_STEP", "cuda": "SAME_STEP"}
TENSORS = {"tensor": "cpu", "cuda": "cuda"}  # the devices of the kinds that speak tensors


# environments


class ReplayEnv(gym.Env):
    """Plays recordings: ``reset(seed=s)`` takes number ``s`` (modulo their count), a reset without seed the next.

    The reward mixes the action and a draw of the environment's own stream, so that it tells when either changed.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self, recordings: list[list[Any]], observation_space: Any, action_space: Any, masked: bool = False
    ) -> None:
        self.recordings, self.masked = recordings, masked
        self.observation_space, self.action_space = observation_space, action_space
        self.number, self.t = -1, 0
        self.received: list[list[Any]] = []

    def _info(self) -> dict[str, Any]:
        if not self.masked:
            return {}
        mask = np.ones(self.action_space.n, np.int8)
        mask[(self.number + self.t) % self.action_space.n] = 0
        return {"action_mask": mask}

    def _seen(self) -> Any:
        return copied(self.recordings[self.number][self.t])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = (self.number + 1 if seed is None else seed) % len(self.recordings)
        self.t = 0
        self.received.append([])
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received[-1].append(np.array(action))
        self.t += 1
        over = self.t == len(self.recordings[self.number]) - 1
        values = np.asarray(action, np.float64).reshape(-1)
        reward = float(values @ (1 + np.arange(len(values)))) + float(self.np_random.random())
        odd = self.number % 2 == 1
        return self._seen(), reward, over and not odd, over and odd, self._info()


class ParameterEnv(ReplayEnv):
    """Has physical parameters, of which its rewards are made too; it records them instead of the actions."""

    physical_parameters = {"mass.cart": "cart", "mass.pole": "pole", "gravity": "gravity"}  # noqa: RUF012

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cart, self.pole, self.gravity = 2.0, 0.5, 9.75

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        self.received[-1][-1] = np.array([self.cart / 2.0, self.pole / 0.5])
        return obs, reward + self.cart + 3 * self.pole + self.gravity, *rest  # type: ignore[return-value]


class TensorVector(VectorEnv):
    """A vector environment that speaks tensors on ``device``, as those on a GPU do."""

    def __init__(self, inner: SyncVectorEnv, device: str = "cpu") -> None:
        self.device = device
        self.inner, self.num_envs, self.metadata = inner, inner.num_envs, inner.metadata
        self.autoreset_mode, self.envs = inner.autoreset_mode, inner.envs
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self.single_observation_space, self.single_action_space = (
            inner.single_observation_space,
            inner.single_action_space,
        )

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = self.inner.reset(seed=seed, options=options)
        return tensors(obs, self.device), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, *rest, info = self.inner.step(arrays(actions))
        out: dict[str, Any] = {}
        if "final_obs" in info:
            last = copied(obs)
            for row in np.flatnonzero(info["_final_obs"]):
                _write(last, int(row), info["final_obs"][row])
            out["final_obs"] = tensors(last, self.device)
        return (tensors(obs, self.device), *(tensors(part, self.device) for part in rest), out)


def mapped(function: Any, tree: Any) -> Any:
    """``function`` of every leaf of an observation."""
    if isinstance(tree, tuple):
        return tuple(mapped(function, v) for v in tree)
    return {k: mapped(function, v) for k, v in tree.items()} if isinstance(tree, dict) else function(tree)


def _write(tree: Any, row: int, value: Any) -> None:
    if isinstance(tree, (dict, tuple)):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            tree[key][row] = value[key]
    else:
        tree[row] = value


def copied(tree: Any) -> Any:
    """A deep copy of an observation."""
    return mapped(lambda leaf: leaf if isinstance(leaf, np.generic) else np.array(leaf), tree)


def tensors(tree: Any, device: str = "cpu") -> Any:
    """Arrays to tensors on ``device``."""
    return mapped(lambda leaf: torch.from_numpy(np.array(leaf)).to(device), tree)


def arrays(tree: Any) -> Any:
    """Tensors to arrays."""
    return mapped(lambda leaf: leaf.numpy(force=True) if isinstance(leaf, torch.Tensor) else leaf, tree)


def row_of(tree: Any, row: int) -> Any:
    """One row of a batch."""
    return mapped(lambda leaf: arrays(leaf[row]), tree)


# victims


class MLP(nn.Sequential):
    """Two smooth layers: gradients that vanish nowhere."""

    def __init__(self, inputs: int, outputs: int, width: int = 16) -> None:
        super().__init__(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)
        )


class CNN(nn.Module):
    """One convolution over pixels, which it scales itself."""

    def __init__(self, channels: int, size: int, outputs: int) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(channels, 6, 4, 2), nn.Linear(6 * ((size - 4) // 2 + 1) ** 2, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.conv(x / 255)).flatten(1))


class Flat(nn.Module):
    """An MLP on every number of an image."""

    def __init__(self, inputs: int, outputs: int, scale: float) -> None:
        super().__init__()
        self.scale, self.net = scale, MLP(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.flatten(1) / self.scale)


class DictNet(nn.Module):
    """An MLP on a Dict observation (and an action, for critics)."""

    def __init__(self, outputs: int, extra: int = 0) -> None:
        super().__init__()
        self.net = MLP(5 + 18 + extra, outputs)

    def forward(self, obs: dict[str, torch.Tensor], act: torch.Tensor | None = None) -> torch.Tensor:
        vector, image = obs["vector"], obs["image"]
        parts = [vector, image.flatten(1) / 255] + ([] if act is None else [act])
        return self.net(torch.cat(parts, 1))


class Choices(nn.Module):
    """An embedding of every entry of a Discrete or MultiDiscrete observation, and an MLP on all of them."""

    def __init__(self, counts: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(sum(counts), 4)
        self.net = MLP(4 * len(counts), outputs)
        self.register_buffer("first", torch.tensor([sum(counts[:i]) for i in range(len(counts))]))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.net(self.embed(obs.reshape(-1, len(self.first)) + self.first).flatten(1))


class Bits(nn.Module):
    """An MLP on a MultiBinary observation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.net = MLP(inputs, outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.net(obs.to(self.net[0].weight.dtype))


class TupleNet(nn.Module):
    """An MLP on a Tuple of a vector and two choices."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.net, self.choices = MLP(4, outputs), Choices((5, 4), outputs)

    def forward(self, obs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        vector, first, second = obs
        return self.net(vector) + self.choices(torch.stack([first, second], 1))


class Critic(nn.Module):
    """Q of observations and actions side by side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.net = MLP(inputs, 1)

    def forward(self, obs: torch.Tensor, act: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([obs, act], 1))


class Recurrent(nn.Module):
    """An LSTM cell between two layers; its state is (h, c)."""

    def __init__(self, inputs: int, outputs: int, width: int = 8) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(inputs, width), nn.Linear(width, outputs)

    def forward(self, obs: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, Any]:
        h, c = self.cell(obs, state)
        return self.head(h), (h, c)


def spread(module: nn.Module, gain: float = 2.0, last: float = 8.0) -> nn.Module:
    """Larger weights, most of all in the last layer: small perturbations matter to this victim."""
    matrices = [p for p in module.parameters() if p.dim() > 1]
    with torch.no_grad():
        for matrix in matrices:
            matrix.mul_(last if matrix is matrices[-1] else gain)
    return module


class Start:
    """Zeros ``[rows, 8]`` twice, the state of :class:`Recurrent`."""

    def __init__(self, dtype: torch.dtype, device: str = "cpu") -> None:
        self.dtype, self.device = dtype, device

    def __call__(self, rows: int) -> tuple[torch.Tensor, ...]:
        h = torch.zeros(rows, 8, dtype=self.dtype, device=self.device)
        return h, torch.zeros_like(h)


# spaces

CARTPOLE = spaces.Box(*(s * np.array([4.8, np.inf, 0.42, np.inf], np.float32) for s in (-1, 1)), dtype=np.float32)
HOPPER = spaces.Box(-np.inf, np.inf, (6,), np.float64)
IMAGE = spaces.Box(0, 255, (4, 12, 12), np.uint8)
COLOUR = spaces.Box(0, 255, (9, 10, 3), np.uint8)
UNIT = spaces.Box(-1, 1, (3, 10, 8), np.float32)
DICT = spaces.Dict({"vector": spaces.Box(-3, 3, (5,), np.float32), "image": spaces.Box(0, 255, (2, 3, 3), np.uint8)})
CHOICE = spaces.Discrete(7, start=2)
CHOICES = spaces.MultiDiscrete([3, 4, 2, 6])
BITS = spaces.MultiBinary(5)
TUPLE = spaces.Tuple([spaces.Box(-3, 3, (4,), np.float32), spaces.Discrete(5), spaces.Discrete(4)])
TORQUES = spaces.Box(-1, 1, (3,), np.float32)


def recorded(space: Any, inside: bool = False) -> list[list[Any]]:
    """Recordings of ``space``: signed zeros and denormals in them, and values beyond its bounds unless ``inside``."""
    rng = np.random.default_rng(20)

    def one(box: Any) -> Any:
        if isinstance(box, spaces.Dict):
            return {key: one(leaf) for key, leaf in box.spaces.items()}
        if isinstance(box, spaces.Tuple):
            return tuple(one(leaf) for leaf in box.spaces)
        if isinstance(box, spaces.Discrete):
            return box.start + rng.integers(box.n)
        if isinstance(box, spaces.MultiDiscrete):
            return rng.integers(box.nvec)
        if isinstance(box, spaces.MultiBinary):
            return rng.integers(0, 2, box.shape, np.int8)
        if box.dtype == np.uint8:
            image = rng.integers(0, 256, box.shape)
            return np.where(rng.random(box.shape) < 0.2, rng.choice([0, 1, 254, 255], box.shape), image).astype(
                np.uint8
            )
        value = rng.normal(0, 1, box.shape)
        value[..., 0] = rng.choice([-0.0, 0.0, 1e-41])
        if not inside:
            value[..., 2] = np.where(np.isfinite(box.high[..., 2]), box.high[..., 2] * 1.05, value[..., 2])
        return np.clip(value, box.low, box.high).astype(box.dtype) if inside else value.astype(box.dtype)

    episodes = [[one(space) for _ in range(steps + 1)] for steps in EPISODES]
    if space is IMAGE:  # a stack of frames: every observation pushes one more in
        for episode in episodes:
            for before, after in itertools.pairwise(episode):
                after[:-1] = before[1:]
    return episodes


@dataclass(frozen=True)
class Rig:
    """A victim with its environment; ``at`` and sensible sizes of budgets come along."""

    name: str
    space: Any
    actions: Any
    eps: float
    at: Any = None
    inside: bool = False
    masked: bool = False
    parameters: bool = False

    def env(self) -> ReplayEnv:
        """A new scripted environment, with a space of its own: VecNormalize writes into that of a Dict."""
        space = copy.deepcopy(self.space) if isinstance(self.space, spaces.Dict) else self.space
        kind = ParameterEnv if self.parameters else ReplayEnv
        return kind(_recordings(self.name, self.inside), space, self.actions, self.masked)

    def victim(self, dtype: torch.dtype = torch.float32, live: bool = False, device: str = "cpu") -> Any:
        """The victim, with the same weights whenever it is asked for."""
        return make_victim(self.name, dtype, live, device)

    def act(self, seed: int, episode: int, t: int) -> Any:
        """What the agent of this rig does: any function of the row's seed, the episode and the step."""
        return copied(_action(self.name, seed, episode, t))


def frames() -> ReplayEnv:
    """Scripted image observations inside their space: the entry point of ``tests/Frames-v0``."""
    return ReplayEnv(recorded(IMAGE, True), IMAGE, spaces.Discrete(4))


gym.register("tests/Frames-v0", entry_point="tests.rigs:frames")
gym.register("tests/Short-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=30)


@functools.cache
def _recordings(name: str, inside: bool) -> list[list[Any]]:
    return recorded(RIGS[name].space, inside)


@functools.cache
def _action(name: str, seed: int, episode: int, t: int) -> Any:
    actions, rng = RIGS[name].actions, np.random.default_rng((seed, episode, t))
    if isinstance(actions, spaces.Discrete):
        return actions.start + rng.integers(actions.n)
    return rng.normal(0, 0.8, actions.shape).astype(actions.dtype)  # unclipped, as agents' actions are


RIGS = {
    rig.name: rig
    for rig in (
        Rig("q", CARTPOLE, spaces.Discrete(3), 0.2),
        Rig("logits", CARTPOLE, spaces.Discrete(3, start=1), 0.2),
        Rig("recurrent", CARTPOLE, spaces.Discrete(3), 0.2),
        Rig("mean", HOPPER, TORQUES, 0.15),
        Rig("gaussian", HOPPER, TORQUES, 0.15),
        Rig("image", IMAGE, spaces.Discrete(4), 2.5),
        Rig("colour", COLOUR, spaces.Discrete(3), 2.5),
        Rig("unit", UNIT, spaces.Discrete(3), 0.05),
        Rig("dict", DICT, spaces.Discrete(3), 0.2, at="vector"),
        Rig("dict-mean", DICT, TORQUES, 0.2, at="vector"),
        Rig("choice", CHOICE, spaces.Discrete(3), 1),
        Rig("choices", CHOICES, spaces.Discrete(3), 1),
        Rig("bits", BITS, TORQUES, 1),
        Rig("tuple", TUPLE, spaces.Discrete(3), 0.2, at=0),
        Rig("tuple-choice", TUPLE, spaces.Discrete(3), 1, at=1),
        Rig("parameters", CARTPOLE, spaces.Discrete(3), 0.2, parameters=True),
    )
}


@functools.cache
def make_victim(name: str, dtype: torch.dtype, live: bool, device: str = "cpu") -> Any:
    """The named victim. ``live`` ones keep their weights trainable and their modules in training mode."""
    rig = RIGS[name]
    state = torch.random.get_rng_state()
    torch.manual_seed(zlib.crc32(name.encode()))
    n = rig.actions.n if isinstance(rig.actions, spaces.Discrete) else rig.actions.shape[0]
    extra: dict[str, Any] = {}
    if name in ("q", "parameters"):
        kind, net = "q", MLP(4, n)
    elif name == "logits":
        kind, net = "logits", MLP(4, n)
    elif name == "recurrent":
        kind, net = "logits", Recurrent(4, n)
        extra["initial_state"] = Start(dtype, device)
    elif name == "mean":
        kind, net = "mean", MLP(6, n)
        extra = {"critic": Critic(6 + n), "robust_sarsa": Critic(6 + n), "scale": torch.linspace(0.5, 2, 6)}
    elif name == "gaussian":
        kind, net = "gaussian", MLP(6, 2 * n)
    elif name == "image":
        kind, net = "q", CNN(4, 12, n)
    elif name in ("colour", "unit"):
        size = int(np.prod(rig.space.shape))
        kind, net = "q", Flat(size, n, 255.0 if name == "colour" else 1.0)
    elif name == "choice":
        kind, net = "logits", nn.Sequential(nn.Embedding(9, 8), MLP(8, n))
    elif name == "choices":
        kind, net = "q", Choices((3, 4, 2, 6), n)
    elif name == "bits":
        kind, net = "mean", Bits(5, n)
    elif name in ("tuple", "tuple-choice"):
        kind, net = "logits", TupleNet(n)
    elif name == "dict":
        kind, net = "logits", DictNet(n)
    else:
        kind, net = "mean", DictNet(n)
        extra = {"critic": DictNet(1, n), "robust_sarsa": DictNet(1, n)}
    nets = [net, *(e for e in extra.values() if isinstance(e, nn.Module))]
    for module in nets:
        spread(module, last=2.0 if name == "gaussian" else 8.0).to(device, dtype)
    torch.random.set_rng_state(state)
    return from_module(net, rig.space, rig.actions, kind, dtype=dtype, live=live, device=device, **extra)  # type: ignore[arg-type]


# transcripts


@dataclass
class Episode:
    """What happened in one episode of one row: what was handed out, done, received, rewarded, and told by layers.

    ``told`` has, for every observation, what its info says of each layer: whether it attacked; None where one info is
    about two, as where a row is reset in the same step, and of resets of SB3's vectors.
    """

    seen: list[Any]
    done: list[Any]
    received: list[Any]
    rewards: list[float]
    told: list[list[bool] | None] = field(default_factory=list)


def _bare(env: Any) -> Any:
    return env


def vector(kind: str, rig: Rig, rows: int, wrapper: Any = _bare) -> Any:
    """``rows`` scripted environments side by side, each in ``wrapper``."""
    builders = [lambda: wrapper(rig.env())] * rows
    if kind == "sb3":
        from stable_baselines3.common.vec_env import DummyVecEnv

        return DummyVecEnv(builders)
    inner = SyncVectorEnv(builders, autoreset_mode=AutoresetMode[MODES[kind]])
    return TensorVector(inner, TENSORS[kind]) if kind in TENSORS else inner


def run(
    kind: str,
    rig: Rig,
    wrapper: Any = _bare,
    seeds: tuple[int, ...] = (7, 8, 9),
    episodes: int = 2,
    inside: bool = False,
) -> list[list[Episode]]:
    """Row by row, ``episodes`` whole episodes of an environment of ``kind`` in ``wrapper``, row i reset with seeds[i].

    ``inside`` puts the wrapper around every single environment of the vector instead of around the vector.
    """
    if kind == "env":
        return [_single(wrapper(rig.env()), rig, seed, episodes) for seed in seeds]
    venv = vector(kind, rig, len(seeds), wrapper if inside else _bare)
    base = venv
    venv = venv if inside else wrapper(venv)
    rows = (_sb3 if kind == "sb3" else _vector)(venv, kind, rig, seeds, episodes)
    for row, env in zip(rows, base.envs, strict=True):
        for episode, received in zip(row, env.unwrapped.received, strict=False):
            episode.received = received
    return rows


def _single(env: Any, rig: Rig, seed: int, episodes: int) -> list[Episode]:
    out = []
    for number in range(episodes):
        obs, info = env.reset(seed=seed) if number == 0 else env.reset()
        episode, over = Episode([obs], [], [], [], [_told(info)]), False
        while not over:
            action = rig.act(seed, number, len(episode.done))
            obs, reward, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            episode.seen.append(obs)
            episode.told.append(_told(info))
            episode.done.append(action)
            episode.rewards.append(reward)
        episode.received = env.unwrapped.received[-1]
        out.append(episode)
    return out


def _told(info: dict[str, Any], row: int | None = None) -> list[bool]:
    """What an info says of every layer: of one environment, or of a row of several."""
    flags = [entry["attacked"] for key, entry in info.get("adv_wrappers", {}).items() if key[0] != "_"]
    return [bool(flag if row is None else flag[row]) for flag in flags]


def _begun(obs: Any, row: int, told: list[bool] | None = None) -> Episode:
    return Episode([row_of(obs, row)], [], [], [], [told])


def _vector(venv: Any, kind: str, rig: Rig, seeds: tuple[int, ...], episodes: int) -> list[list[Episode]]:
    n, mode = len(seeds), MODES[kind]
    obs, info = venv.reset(seed=list(seeds))
    rows, over = [[_begun(obs, i, _told(info, i))] for i in range(n)], np.zeros(n, bool)
    while any(len(row) <= episodes for row in rows):
        actions = np.stack([rig.act(seeds[i], len(rows[i]) - 1, len(rows[i][-1].done)) for i in range(n)])
        obs, rewards, terminated, truncated, info = venv.step(
            tensors(actions, TENSORS[kind]) if kind in TENSORS else actions
        )
        done = arrays(terminated | truncated)
        for i, row in enumerate(rows):
            if mode == "NEXT_STEP" and over[i]:
                row.append(_begun(obs, i, _told(info, i)))
                continue
            row[-1].done.append(actions[i])
            row[-1].rewards.append(float(rewards[i]))
            final = mode == "SAME_STEP" and done[i]
            row[-1].seen.append(
                row_of(info["final_obs"], i)
                if final and kind in TENSORS
                else info["final_obs"][i]
                if final
                else row_of(obs, i)
            )
            row[-1].told.append(None if final else _told(info, i))
            if final:
                row.append(_begun(obs, i))
        over = done
        if mode == "DISABLED" and done.any():
            before = copied(obs)
            obs, info = venv.reset(options={"reset_mask": done.copy()})
            for i, row in enumerate(rows):
                if done[i]:
                    row.append(_begun(obs, i, _told(info, i)))
                else:
                    same_bytes(row_of(obs, i), row_of(before, i), "a row outside the reset mask")
    return [row[:episodes] for row in rows]


def _sb3(venv: Any, kind: str, rig: Rig, seeds: tuple[int, ...], episodes: int) -> list[list[Episode]]:
    n = len(seeds)
    venv.unwrapped._seeds = list(seeds)
    obs = venv.reset()
    rows = [[_begun(obs, i)] for i in range(n)]
    while any(len(row) <= episodes for row in rows):
        actions = np.stack([rig.act(seeds[i], len(rows[i]) - 1, len(rows[i][-1].done)) for i in range(n)])
        obs, rewards, dones, infos = venv.step(actions)
        for i, row in enumerate(rows):
            row[-1].done.append(actions[i])
            row[-1].rewards.append(float(rewards[i]))
            row[-1].seen.append(infos[i]["terminal_observation"] if dones[i] else row_of(obs, i))
            row[-1].told.append(None if dones[i] else _told(infos[i]))
            if dones[i]:
                row.append(_begun(obs, i))
    return [row[:episodes] for row in rows]


# comparisons


def leaves(tree: Any) -> dict[str, Any]:
    """An observation's leaves by key."""
    if isinstance(tree, tuple):
        return dict(enumerate(tree))
    return tree if isinstance(tree, dict) else {"": tree}


def same_bytes(a: Any, b: Any, what: str) -> None:
    """Raise unless two observations are equal to the bit, in dtype and in shape."""
    a, b = leaves(a), leaves(b)
    assert list(a) == list(b), f"{what}: keys {list(a)} and {list(b)}"
    for key in a:
        x, y = np.asarray(a[key]), np.asarray(b[key])
        assert x.dtype == y.dtype and x.shape == y.shape, f"{what} {key}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        assert x.tobytes() == y.tobytes(), f"{what} {key}: {x} and {y}"


def close(a: Any, b: Any, what: str) -> None:
    """Raise unless two observations are equal up to the rounding of their dtype."""
    a, b = leaves(a), leaves(b)
    assert list(a) == list(b), f"{what}: keys {list(a)} and {list(b)}"
    for key in a:
        x, y = np.asarray(a[key]), np.asarray(b[key])
        assert x.dtype == y.dtype and x.shape == y.shape, f"{what} {key}: {x.dtype}{x.shape} and {y.dtype}{y.shape}"
        atol = 0 if x.dtype.kind in "iu" else 1e-9 if x.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol, err_msg=f"{what} {key}")


def same(a: list[list[Episode]], b: list[list[Episode]], exact: bool, what: str, rewards: bool = True) -> None:
    """Raise unless two transcripts are the same."""
    equal = same_bytes if exact else close
    assert [len(row) for row in a] == [len(row) for row in b], f"{what}: rows"
    for i, (p, q) in enumerate(zip(a, b, strict=True)):
        for e, (x, y) in enumerate(zip(p, q, strict=True)):
            place = f"{what}: row {i}, episode {e}"
            assert len(x.seen) == len(y.seen), f"{place}: {len(x.seen)} and {len(y.seen)} observations"
            for t, pair in enumerate(zip(x.seen, y.seen, strict=True)):
                equal(*pair, f"{place}, observation {t}")
            for t, pair in enumerate(zip(x.received, y.received, strict=True)):
                equal(*pair, f"{place}, action {t}")
            for t, (p_, q_) in enumerate(zip(x.told, y.told, strict=False)):
                assert not p_ or not q_ or p_ == q_, f"{place}, info {t}: {p_} and {q_}"
            if rewards:
                np.testing.assert_allclose(x.rewards, y.rewards, rtol=1e-5, atol=1e-5, err_msg=place)
