"""The wrapper of a single environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import adv_wrappers as adv
from tests.rigs import RIGS, ReplayEnv, same_bytes


def test_budgets_are_relative_to_what_a_layer_receives():
    """Two layers add up; the last is outermost."""
    env = adv.wrap(RIGS["mean"].env(), "noise:eps=0.5,kind=sign", "noise:eps=0.25,kind=sign", keep_true=True)
    obs, info = env.reset(seed=0)
    layers = info["adv_wrappers"]
    assert list(layers) == ["0:noise", "1:noise"] and env.key == "1:noise"
    true = RIGS["mean"].env().reset(seed=0)[0]
    same_bytes(layers["0:noise"]["true"], true, "what the inner layer received")
    np.testing.assert_allclose(np.abs(layers["1:noise"]["true"] - true), 0.5)
    np.testing.assert_allclose(np.abs(obs - layers["1:noise"]["true"]), 0.25)


def test_actions_pass_the_outermost_layer_first():
    double = adv.ThreatModel("action", lambda a, context: a * 2, adv.Linf(9.0))
    add = adv.ThreatModel("action", lambda a, context: a + 0.25, adv.Linf(9.0))
    env = adv.wrap(RIGS["mean"].env(), double, add)
    env.reset(seed=0)
    env.step(np.full(3, 0.125, np.float32))
    np.testing.assert_allclose(env.unwrapped.received[-1][0], 2 * (0.125 + 0.25))


def test_info_of_an_layer_beneath_tells_the_action_of_this_step():
    env = adv.wrap(RIGS["mean"].env(), "action-noise:eps=0.1,when=every(2)", keep_true=True)
    _, info = env.reset(seed=0)
    assert info["adv_wrappers"]["0:action-noise"] == {"attacked": False}
    for t in range(3):
        action = np.full(3, t / 10, np.float32)
        entry = env.step(action)[4]["adv_wrappers"]["0:action-noise"]
        assert entry["attacked"] is (t % 2 == 0)
        same_bytes(entry["true"], action, f"step {t}")
    assert env.reset()[1]["adv_wrappers"]["0:action-noise"] == {"attacked": False}


def test_the_info_of_the_environment_is_not_written_to():
    class Telling(ReplayEnv):
        shared = {"mine": 1}  # noqa: RUF012

        def _info(self):
            return self.shared

    rig = RIGS["q"]
    env = adv.wrap(Telling(rig.env().recordings, rig.space, rig.actions), "noise:eps=1", "action-flip")
    info = env.reset(seed=0)[1]
    assert set(info) == {"mine", "adv_wrappers"} and Telling.shared == {"mine": 1}


def test_at_most_counts_what_somebody_acts_on():
    """Final observations cost nothing, and every episode has its own budget."""
    env = adv.wrap(RIGS["q"].env(), adv.threat("noise", eps=0.1, when=adv.AtMost(3)))
    for episode in range(3):
        attacked = [env.reset(seed=0)[1] if episode == 0 else env.reset()[1]]
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(0)
            attacked.append(info)
            over = terminated or truncated
        flags = [info["adv_wrappers"]["0:noise"]["attacked"] for info in attacked]
        assert flags == [i < 3 for i in range(len(flags))]
        assert env.engine.clock.spent == min(3, len(flags) - 1)


def test_final_observations_are_attacked_but_free():
    env = adv.wrap(RIGS["q"].env(), "noise:eps=0.1")
    env.reset(seed=0)  # three steps
    for _ in range(3):
        info = env.step(0)[4]
    assert info["adv_wrappers"]["0:noise"]["attacked"] and env.engine.clock.spent == 3  # t = 0, 1, 2 and not 3


@pytest.mark.parametrize("rig", ["image", "dict"])
def test_quantize_false_makes_the_space_float(rig):
    at = "image" if rig == "dict" else None
    env = adv.wrap(RIGS[rig].env(), adv.threat("noise", eps=0.25, at=at), quantize=False)
    obs, true = env.reset(seed=1)[0], RIGS[rig].env().reset(seed=1)[0]
    obs, true, space = (
        (obs, true, env.observation_space) if at is None else (obs[at], true[at], env.observation_space[at])
    )
    assert space.dtype == np.float32 and obs.dtype == np.float32 and space.contains(obs)
    moved = np.abs(obs - true)
    assert 0 < moved.max() <= 0.25 + 1e-4 and (obs != np.round(obs)).any()


def test_masks_are_respected():
    """An action that the environment forbids is never made of one that it allows."""
    rig = RIGS["q"]
    for preset in ("action-noise", "action-flip", "worst-action"):
        base = ReplayEnv(rig.env().recordings, rig.space, rig.actions, masked=True)
        env = adv.wrap(base, adv.threat(preset, rig.victim()))
        for seed in range(5):
            mask, over = env.reset(seed=seed)[1]["action_mask"], False
            while not over:
                _, _, terminated, truncated, info = env.step(int(np.flatnonzero(mask)[0]))
                assert mask[base.received[-1][-1]] == 1, preset
                mask, over = info["action_mask"], terminated or truncated


def test_the_attributes_of_the_environment_stay_within_reach():
    env = adv.wrap(gym.make("CartPole-v1"), "noise:eps=0.1", "action-flip")
    assert env.get_wrapper_attr("gravity") == 9.8 and isinstance(env, gym.Env)
    assert isinstance(env, adv.PerturbAction) and isinstance(env.env, adv.PerturbObservation)


def test_unseeded_runs_differ():
    draws = {adv.wrap(RIGS["mean"].env(), "noise:eps=1").reset()[0].tobytes() for _ in range(4)}
    assert len(draws) == 4
