"""A perturbation that can never reach the agent is refused."""

from __future__ import annotations

import ale_py
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import (
    AddRenderObservation,
    AtariPreprocessing,
    FilterObservation,
    FlattenObservation,
    FrameStackObservation,
    NormalizeObservation,
    TransformObservation,
)

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, OrderError, SpaceError
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.wrappers.order import check_order
from tests.rigs import RIGS, DictNet

gym.register_envs(ale_py)
NOISE = "noise:eps=8"


def pong():
    return gym.make("ALE/Pong-v5", frameskip=1)


def test_inside_atari_preprocessing():
    """The preprocessing reads the emulator's own screen: what lies inside is never seen."""
    env = AtariPreprocessing(adv.wrap(pong(), NOISE))
    for check in (check_order, lambda e: adv.wrap(e, "action-flip")):
        with pytest.raises(OrderError, match="AtariPreprocessing"):
            check(env)


@pytest.mark.slow
def test_outside_and_actions_are_fine():
    env = adv.wrap(FrameStackObservation(AtariPreprocessing(adv.wrap(pong(), "action-noise:p=0")), 4), NOISE)
    check_order(env)
    check_order(TransformObservation(env, lambda o: o, env.observation_space))
    bare = FrameStackObservation(AtariPreprocessing(pong()), 4)
    moved = np.abs(env.reset(seed=0)[0].astype(int) - bare.reset(seed=0)[0].astype(int))
    assert 0 < moved.max() <= 8


def raw():
    return adv.atari.RawFrames(gym.make("ALE/Pong-v5", frameskip=1), noop_max=1)


def test_inside_raw_frames():
    """They too read the emulator's own screen."""
    wrong = adv.atari.ShrinkFrames(adv.atari.RawFrames(adv.wrap(pong(), NOISE)))
    with pytest.raises(OrderError, match="RawFrames reads the emulator's screen itself"):
        check_order(wrong)
    check_order(adv.wrap(adv.atari.ShrinkFrames(adv.wrap(raw(), NOISE)), NOISE))  # beneath and around are fine


@pytest.mark.slow
def test_newest_where_there_is_no_stack_yet():
    """Two screens, or the rows of one frame, would pass for a stack."""
    newest = f"{NOISE},newest=true"
    with pytest.raises(BudgetError, match="say which axis"):
        adv.wrap(AtariPreprocessing(pong()), newest)
    frames = adv.wrap(AtariPreprocessing(pong()), adv.threat("noise", within=adv.Newest(adv.Linf(4), axis=0)))
    with pytest.raises(OrderError, match="inside FrameStackObservation there is none yet"):
        check_order(FrameStackObservation(frames, 4))
    with pytest.raises(OrderError, match="FrameStackObservation"):
        adv.wrap(FrameStackObservation(frames, 4), "action-flip")
    with pytest.raises(OrderError, match="inside ShrinkFrames there is none yet"):
        check_order(adv.atari.ShrinkFrames(adv.wrap(raw(), newest)))
    stack = FrameStackObservation(AtariPreprocessing(pong()), 4)
    check_order(FrameStackObservation(adv.wrap(stack, newest), 2))  # a stack of stacks


def test_newest_inside_the_stack_of_sb3():
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    class Channels(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)

        def observation(self, observation):
            return observation[..., None]

    def make():
        newest = adv.threat("noise", within=adv.Newest(adv.Linf(4), axis=0))
        return Channels(adv.wrap(AtariPreprocessing(pong()), newest))

    with pytest.raises(OrderError, match="inside VecFrameStack there is none yet"):
        check_order(VecFrameStack(DummyVecEnv([make]), 4))


def test_keys_that_are_dropped():
    from stable_baselines3.common.vec_env import DummyVecEnv, VecExtractDictObs

    rig = RIGS["dict"]
    key, other = (
        rig.at if isinstance(rig.at, str) else rig.at[0],
        next(k for k in rig.space if k not in (rig.at, *rig.at)),
    )
    env = adv.wrap(rig.env(), adv.threat("noise", eps=0.1, at=key))
    vectors = gym.wrappers.vector
    venv = adv.wrap(SyncVectorEnv([rig.env]), adv.threat("noise", eps=0.1, at=key))
    for wrong in (
        FilterObservation(env, [other]),
        vectors.FilterObservation(venv, [other]),
        vectors.FilterObservation(SyncVectorEnv([lambda: env]), [other]),
        VecExtractDictObs(adv.wrap(DummyVecEnv([rig.env]), adv.threat("noise", eps=0.1, at=key)), other),
    ):
        with pytest.raises(OrderError, match=f"drops '{key}'"):
            check_order(wrong)
    for fine in (
        FilterObservation(env, [key]),
        vectors.FilterObservation(venv, [key]),
        VecExtractDictObs(adv.wrap(DummyVecEnv([rig.env]), adv.threat("noise", eps=0.1, at=key)), key),
    ):
        check_order(fine)


def test_a_rendering_beside_the_observation_leaves_it_heard():
    env = adv.wrap(gym.make("ALE/Pong-v5", render_mode="rgb_array"), NOISE)
    check_order(AddRenderObservation(env, render_only=False))
    with pytest.raises(OrderError, match="replaces the observation by a rendering"):
        check_order(AddRenderObservation(env))


def test_transforms_outside_what_makes_no_image():
    game = pong()
    for name in ("brightness", "median-blur", "rotation", "shift", "jpeg", "perspective"):
        with pytest.raises(SpaceError, match="which axes of an observation of shape"):
            adv.wrap(FlattenObservation(game), name)
        with pytest.raises(SpaceError, match="float images with finite bounds"):
            adv.wrap(NormalizeObservation(game), name)


def normalised(kind, layer, outside):
    """Three normalised CartPoles of a kind, with a layer outside of the normaliser or beneath it."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    def make():
        return gym.make("CartPole-v1")

    if kind == "sb3":
        env, normal = DummyVecEnv([make] * 3), VecNormalize
    elif kind == "vector":
        env, normal = SyncVectorEnv([make] * 3), gym.wrappers.vector.NormalizeObservation
    else:
        env, normal = make(), NormalizeObservation
    return layer(normal(env)) if outside else normal(layer(env))


@pytest.mark.parametrize("kind", ["single", "vector", "sb3"])
def test_observations_that_are_normalised_twice(kind):
    """The victim's own normaliser would see what a wrapper has normalised, in another unit."""
    space, actions = gym.make("CartPole-v1").observation_space, gym.spaces.Discrete(2)
    linear = torch.nn.Linear(4, 2)
    inside = torch.nn.Sequential(Normalize(torch.zeros(4), torch.full((4,), 3.0)), linear)
    for net, more, twice in (
        (inside, {}, True),
        (linear, {"scale": torch.arange(1.0, 5.0)}, True),
        (linear, {}, False),
    ):
        victim = adv.from_module(net, space, actions, "logits", **more)
        layers = (
            lambda env, v=victim: adv.wrap(env, adv.threat("fgsm", v, eps=0.1)),
            lambda env, v=victim: adv.wrap(env, adv.threat("noise", eps=0.1, when=adv.Strategic(0.5, v))),
            lambda env, v=victim: adv.wrap(env, adv.threat("worst-action", v)),
        )
        for layer in layers:
            normalised(kind, layer, outside=False)
            if not twice:
                normalised(kind, layer, outside=True)
                continue
            with pytest.raises(OrderError, match=r"put the layer beneath .*Normalize"):
                normalised(kind, layer, outside=True)


def test_a_normaliser_of_rewards_alone_is_no_trouble():
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    victim = adv.load_victim("zoo:hopper-ppo")
    venv = DummyVecEnv([lambda: gym.make("Hopper-v5")])
    adv.wrap(VecNormalize(venv, norm_obs=False), "max-diff:eps=0.1", victim=victim)
    with pytest.raises(OrderError, match="zoo:hopper-ppo"):
        adv.wrap(VecNormalize(venv), "max-diff:eps=0.1", victim=victim)


def test_keys_that_are_not_normalised_are_no_trouble():
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    rig = RIGS["dict"]
    victim = adv.from_module(DictNet(3), rig.space, rig.actions, "logits", scale=torch.arange(1.0, 6.0))
    for keys, twice in ((["vector"], True), (["image"], False)):
        venv = VecNormalize(DummyVecEnv([rig.env]), norm_obs_keys=keys)
        if not twice:
            adv.wrap(venv, adv.threat("fgsm", victim, eps=0.1, at="vector"))
            continue
        with pytest.raises(OrderError, match="VecNormalize"):
            adv.wrap(venv, adv.threat("fgsm", victim, eps=0.1, at="vector"))
