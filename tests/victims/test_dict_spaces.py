"""Observations of a Dict whose other keys are no Box, as MiniGrid's; spaces that no victim is made of."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, VictimError
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.every_case import every_case


class MissionSpace(spaces.Space[str]):
    """Strings in a space of their own, as the missions of MiniGrid are."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self, mask=None, probability=None):
        return "go"

    def contains(self, x):
        return isinstance(x, str)

    def __eq__(self, other):
        return isinstance(other, MissionSpace)


class Grid(gym.Env):
    """A grid seen from above, a direction and a mission, in the spaces of MiniGrid; and a few bits more."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, text: spaces.Space | bool = True) -> None:
        leaves = {
            "image": spaces.Box(0, 255, (5, 4, 3), np.uint8),
            "direction": spaces.Discrete(4, start=1),
            "keys": spaces.MultiBinary(3),
            "rooms": spaces.MultiDiscrete([2, 5]),
        }
        if text:
            leaves["mission"] = spaces.Text(30) if text is True else text
        self.observation_space, self.action_space = spaces.Dict(leaves), spaces.Discrete(3)

    def _seen(self):
        rng = self.np_random
        seen = {
            "image": rng.integers(0, 256, (5, 4, 3), dtype=np.uint8),
            "direction": np.int64(rng.integers(1, 5)),
            "keys": rng.integers(0, 2, 3, dtype=np.int8),
            "rooms": rng.integers(0, [2, 5]),
            "mission": "open the door" if rng.random() < 0.5 else "go",
        }
        return {key: seen[key] for key in self.observation_space.spaces}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 6))
        return self._seen(), {}

    def step(self, action):
        self.left -= 1
        return self._seen(), float(action), self.left == 0, False, {}


class Reader(nn.Module):
    """Looks at all keys, and says what it was given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.embed = nn.Linear(60 + 3 + 2, 3), nn.Embedding(5, 3)
        self.given: dict[str, tuple[type, object]] = {}

    def forward(self, obs):
        self.given = {key: (type(leaf), leaf.dtype) for key, leaf in obs.items()}
        rows = len(obs["image"])
        flat = [obs[key].reshape(rows, -1).float() for key in ("image", "keys", "rooms")]
        out = self.head(torch.cat([flat[0] / 255, *flat[1:]], 1)) + self.embed(obs["direction"])
        if "mission" in obs:
            out = out + torch.tensor([[float(len(text)), 0.0, 0.0] for text in obs["mission"]])
        return out


def reader(text=True, **more):
    env = Grid(text)
    return adv.from_module(Reader(), env.observation_space, env.action_space, "logits", **more)


def test_what_each_kind_of_leaf_arrives_as():
    victim = reader()
    venv = SyncVectorEnv([Grid] * 3)
    obs, _ = venv.reset(seed=0)
    actions = PolicyRunner(victim, 3).act(obs)
    assert actions.shape == (3,) and victim.act_on(obs).tolist() == actions.tolist()
    assert victim.net.given == {
        "image": (torch.Tensor, torch.float32),
        "direction": (torch.Tensor, torch.int64),
        "keys": (torch.Tensor, torch.int8),
        "rooms": (torch.Tensor, torch.int64),
        "mission": (np.ndarray, np.dtype("O")),
    }


@pytest.mark.parametrize("text", [True, MissionSpace()])
def test_evaluate_from_end_to_end(text):
    threats = ["noise:eps=1,at=image", "pgd:eps=8,at=image,steps=5", "max-diff:eps=8,at=image"]
    report = adv.evaluate(reader(text), lambda: Grid(text), threats, episodes=3, num_envs=2)
    none, noise, pgd, _ = report.threats
    assert none["linf"] is None or none["linf"] == 0
    assert noise["linf"] == 1 and 1 < pgd["linf"] <= 8
    assert not any("unchanged" in warning or "zero gradients" in warning for warning in report.warnings)


def untouched(before, after):
    for key in before:
        if key == "image":
            gap = np.abs(np.asarray(before[key], int) - np.asarray(after[key], int))
            assert 0 < gap.max() <= 8 and after[key].dtype == np.uint8
        else:
            assert np.array_equal(before[key], after[key]) and type(before[key]) is type(after[key]), key


def test_a_single_environment():
    victim = reader()
    plain, env = Grid(), adv.wrap(Grid(), "pgd:eps=8,at=image", victim=victim)
    untouched(plain.reset(seed=3)[0], env.reset(seed=3)[0])
    untouched(plain.step(0)[0], env.step(0)[0])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_vector_environments(mode):
    victim = reader()
    venvs = [SyncVectorEnv([Grid] * 3, autoreset_mode=mode) for _ in range(2)]
    plain, env = venvs[0], adv.wrap(venvs[1], "pgd:eps=8,at=image,when=every(2)", victim=victim)
    untouched(plain.reset(seed=3)[0], env.reset(seed=3)[0])
    for _ in range(6):
        (before, _, a, b, info), (after, *_, received) = (venv.step(np.zeros(3, int)) for venv in (plain, env))
        for key in set(before) - {"image"}:
            assert np.array_equal(before[key], after[key])
        if "final_obs" in info:
            for row in np.flatnonzero(info["_final_obs"]):
                assert info["final_obs"][row]["mission"] == received["final_obs"][row]["mission"]
        if mode == AutoresetMode.DISABLED and (a | b).any():
            before, after = (venv.reset(options={"reset_mask": a | b})[0] for venv in (plain, env))
            assert list(before["mission"]) == list(after["mission"])


def test_sb3():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    victim = reader(False)
    plain, env = (vec_env.DummyVecEnv([lambda: Grid(False)] * 2) for _ in range(2))
    env = adv.wrap(env, "pgd:eps=8,at=image", victim=victim)
    for venv in (plain, env):
        venv.seed(3)
    untouched(plain.reset(), env.reset())
    for _ in range(6):
        untouched(plain.step(np.zeros(2, int))[0], env.step(np.zeros(2, int))[0])


@every_case("space", [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.OneOf([spaces.Discrete(2)])])
def test_other_spaces_say_what_to_do(space):
    with pytest.raises(VictimError, match=r"expected Box, .*env = gymnasium\.wrappers\.TransformObservation\(env"):
        adv.from_module(lambda o: o, space, spaces.Discrete(2), "q")
    with pytest.raises(SpaceError, match="cannot perturb"):
        adv.threat("noise", eps=1).check(space, spaces.Discrete(2))


def test_what_is_left_out_of_a_dict():
    leaves = {
        "way": spaces.Sequence(spaces.Discrete(2)),
        "in": spaces.Dict(x=spaces.Discrete(2)),
        "said": MissionSpace(),
    }
    space = spaces.Dict({**leaves, "deep": spaces.Tuple([spaces.OneOf([spaces.Discrete(2)])])})
    with pytest.raises(VictimError, match=r"FilterObservation\(env, \['in', 'said'\]\) leaves it out, and env"):
        adv.from_module(lambda o: o, space, spaces.Discrete(2), "q")
    with pytest.raises(SpaceError, match=r"cannot perturb the key 'said'.*nothing in Gymnasium makes one of it"):
        adv.threat("noise", norm="valid", at="said").check(space, spaces.Discrete(2))


def test_images_whose_channels_lie_elsewhere():
    first, last = (spaces.Box(0, 255, shape, np.uint8) for shape in ((3, 8, 9), (8, 9, 3)))
    victim = adv.from_module(lambda o: o.flatten(1)[:, :2], first, spaces.Discrete(2), "q")
    env = gym.Env()
    env.observation_space, env.action_space = last, spaces.Discrete(2)
    with pytest.raises(VictimError, match=r"ModuleVictim.*\(3, 8, 9\).*channels .* another order.*VecTransposeImage"):
        adv.wrap(env, "pgd:eps=1", victim=victim)
    turned = gym.wrappers.TransformObservation(
        env, lambda x: x.transpose(2, 0, 1), spaces.Box(0, 255, (3, 8, 9), "uint8")
    )
    adv.wrap(turned, "pgd:eps=1", victim=victim)
    other = adv.from_module(lambda o: o.flatten(1)[:, :2], last, spaces.Discrete(2), "q", ref="mine")
    env.observation_space = first
    with pytest.raises(VictimError, match=r"victim mine.*another order.*transpose\(1, 2, 0\)"):
        adv.wrap(env, "pgd:eps=1", victim=other)
