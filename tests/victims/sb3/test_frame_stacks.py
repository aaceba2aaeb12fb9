"""Agents behind ``VecFrameStack``: in both orders with ``VecNormalize``, and what to do where nothing stacks."""

from __future__ import annotations

import re

import gymnasium
import numpy
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformObservation

import adv_wrappers as adv
from adv_wrappers.errors import VictimError

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize  # noqa: E402

from tests.every_case import every_case  # noqa: E402

SMALL = {"net_arch": [8]}
KEYS = spaces.Dict(a=spaces.Box(-9, 9, (2,)), b=spaces.Box(-9, 9, (3,)))
STATISTICS = {"norm_reward": False, "clip_obs": 1.5}


class Walk(gymnasium.Env):
    """A few steps of random numbers, which actions move."""

    action_space = spaces.Discrete(3)

    def __init__(self, space):
        self.observation_space = space

    def _observe(self):
        space, draw = self.observation_space, self.np_random
        if isinstance(space, spaces.Dict):
            found = {key: draw.normal(self.x, 1, leaf.shape).astype(np.float32) for key, leaf in space.items()}
            return {key: found[key].clip(-9, 9) for key in found}
        if space.dtype == np.uint8:
            return draw.integers(0, 256, space.shape).astype(np.uint8)
        return draw.normal(self.x, 1, space.shape).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, 2.0
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        self.x = 0.5 * self.x + int(action)
        return self._observe(), self.x, self.t >= 8, False, {}


def own_returns(model, venv, seeds):
    """Returns as SB3 plays in its own vector environment."""
    if isinstance(venv, VecNormalize):
        venv.training = False
    elif isinstance(venv.venv, VecNormalize):
        venv.venv.training = False
    found = []
    for seed in seeds:
        venv.seed(int(seed))
        obs, done, total = venv.reset(), False, 0.0
        while not done:
            obs, reward, dones, _ = venv.step(model.predict(obs, deterministic=True)[0])
            total, done = total + float(reward[0]), bool(dones[0])
        found.append(total)
    return found


def joined(obs):
    return {key: np.concatenate(part, -1) for key, part in obs.items()}


@pytest.mark.parametrize(
    ("space", "inner"), [(spaces.Box(-9, 9, (4,)), "stacked"), (KEYS, "normalised")], ids=["vector", "dictionary"]
)
def test_stacks_and_statistics_in_both_orders(inner, space, tmp_path):
    venv = DummyVecEnv([lambda: Walk(space)])
    if inner == "normalised":  # the order of rl-zoo3
        normalizer = VecNormalize(venv, **STATISTICS)
        venv = VecFrameStack(normalizer, 3)
    else:
        venv = normalizer = VecNormalize(VecFrameStack(venv, 3), **STATISTICS)
    policy = "MultiInputPolicy" if space is KEYS else "MlpPolicy"
    model = sb3.PPO(policy, venv, n_steps=64, batch_size=64, n_epochs=1, policy_kwargs=SMALL, seed=0, device="cpu")
    model.learn(64)
    model.save(tmp_path / "model.zip")
    normalizer.save(str(tmp_path / "vecnormalize.pkl"))
    padding = "zero"
    if inner == "normalised":  # what is zero after it is normalised
        rms = normalizer.obs_rms
        means = {key: one.mean for key, one in rms.items()} if space is KEYS else {"": rms.mean}
        padding = {key: mean.astype(np.float32) for key, mean in means.items()}
        padding = padding if space is KEYS else padding[""]

    def make():
        env = FrameStackObservation(Walk(space), 3, padding_type=padding)
        return (
            FlattenObservation(env) if space is not KEYS else TransformObservation(env, joined, venv.observation_space)
        )

    for victim in (adv.from_sb3(model), adv.load_victim(f"sb3:{tmp_path / 'model.zip'}")):
        table = adv.evaluate(victim, make, [], episodes=3).to_dataframe(long=True)
        np.testing.assert_allclose(table["return"], own_returns(model, venv, table.episode_seed), rtol=1e-6)
    if space is not KEYS:
        assert victim.scale.shape == (12,)
        card = adv.save_card(tmp_path / "card", victim, environment="Walk-v0")
        again = adv.evaluate(card, make, [], episodes=3).to_dataframe(long=True)
        assert again["return"].tolist() == table["return"].tolist()


def test_statistics_that_are_no_part_of_a_stack():
    venv = VecNormalize(DummyVecEnv([lambda: Walk(spaces.Box(-9, 9, (3,)))]))
    model = sb3.PPO("MlpPolicy", Walk(spaces.Box(-9, 9, (4,))), policy_kwargs=SMALL, device="cpu")
    with pytest.raises(VictimError, match=r"statistics of shape \(3,\)"):
        adv.from_sb3(model, vec_normalize=venv)


SMALL_CNN = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8}}
SEEN = {
    "vector": spaces.Box(-9, 9, (4,)),
    "dictionary": KEYS,
    "channels last": spaces.Box(0, 255, (36, 38, 3), np.uint8),
    "channels first": spaces.Box(0, 255, (3, 36, 38), np.uint8),
    "grey": spaces.Box(0, 255, (36, 38, 1), np.uint8),
}


@every_case("name", SEEN)
def test_the_hint_for_stacks_can_be_followed(name):
    space = SEEN[name]
    venv = VecFrameStack(DummyVecEnv([lambda: Walk(space)]), 4)
    kind = {"vector": "Mlp", "dictionary": "MultiInput"}.get(name, "Cnn")
    kwargs = SMALL_CNN if kind == "Cnn" else SMALL
    model = sb3.A2C(f"{kind}Policy", venv, policy_kwargs=kwargs, seed=0, device="cpu")
    victim = adv.from_sb3(model)
    with pytest.raises(VictimError, match="takes 4 observations at once, a stack of frames") as error:
        adv.evaluate(victim, lambda: Walk(space), [], episodes=2)
    [line] = re.findall(r"Wrap the environment in (.*); frames", str(error.value))

    def make():
        return eval(line, {"gymnasium": gymnasium, "numpy": numpy, "env": Walk(space), "victim": victim})

    table = adv.evaluate(victim, make, [], episodes=2).to_dataframe(long=True)
    assert own_returns(model, model.get_env(), table.episode_seed) == table["return"].tolist()


@every_case(
    ("own", "given", "frames"),
    [
        ((3, 5), (5,), 3), ((4, 8, 9), (8, 9), 4), ((8, 9, 4), (8, 9), 4), ((8, 9, 12), (3, 8, 9), 4), ((12,), (4,), 3),
        ((12,), (5,), 0), ((4,), (12,), 0), ((2, 2), (4,), 0), ((3, 8, 9), (8, 9, 3), 0), ((6, 16, 9), (3, 8, 9), 0),
        ((4,), (), 4),
    ],
)  # fmt: skip
def test_what_is_taken_for_a_stack(own, given, frames):
    from adv_wrappers.core.threat import turned_or_stacked

    found = turned_or_stacked(spaces.Box(0, 1, own), spaces.Box(0, 1, given))
    assert (f"takes {frames} observations at once" in found) if frames else "at once" not in found
    if frames:
        [line] = re.findall(r"Wrap the environment in (.*); frames", found)
        names = {"gymnasium": gymnasium, "numpy": numpy, "env": Walk(spaces.Box(0, 1, given))}
        wrapped = eval(
            line,
            names
            | {
                "victim": adv.from_module(
                    lambda x: x.flatten(1)[:, :2], spaces.Box(0, 1, own), spaces.Discrete(2), "logits"
                )
            },
        )
        assert wrapped.reset()[0].shape == own
