"""The wrapper of SB3's ``VecEnv``."""

from __future__ import annotations

import types

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers import sb3_vec_env
from adv_wrappers.wrappers.sb3_vec_env import VecPerturbAction, VecPerturbObservation
from tests.rigs import RIGS, same_bytes, vector

vec_env = pytest.importorskip("stable_baselines3.common.vec_env")


def test_the_wrapper_that_fits():
    venv = adv.wrap(vector("sb3", RIGS["q"], 2), "noise:eps=0.1", "action-flip")
    assert isinstance(venv, VecPerturbAction) and isinstance(venv.venv, VecPerturbObservation)
    assert isinstance(adv.ProbabilisticTiming(venv, 0.5), sb3_vec_env.VecProbabilisticTiming)
    assert isinstance(venv, vec_env.VecEnv)


def test_infos_and_terminal_observations():
    venv = adv.wrap(vector("sb3", RIGS["q"], 2), "noise:eps=0.5,when=window(0,2)", keep_true=True)
    venv.seed(2)  # two and four steps
    venv.reset()
    _, _, _, infos = venv.step(np.zeros(2, int))
    assert [i["adv_wrappers"]["0:noise"]["attacked"] for i in infos] == [True, True]
    obs, _, dones, infos = venv.step(np.zeros(2, int))
    assert dones.tolist() == [True, False]
    assert [i["adv_wrappers"]["0:noise"]["attacked"] for i in infos] == [True, False]  # t = 0 of the next, t = 2
    same_bytes(infos[0]["terminal_observation"], RIGS["q"].env().recordings[2][2], "t = 2 is outside the window")
    same_bytes(
        infos[0]["adv_wrappers"]["0:noise"]["true"], RIGS["q"].env().recordings[3][0], "the true reset observation"
    )
    assert not np.array_equal(obs[0], RIGS["q"].env().recordings[3][0])


def test_vec_normalize_outside_a_layer():
    """SB3's own wrappers go on top: an agent then trains on normalised attacked observations."""
    venv = vec_env.VecNormalize(adv.wrap(vector("sb3", RIGS["mean"], 2), "noise:eps=0.1"))
    obs = venv.reset()
    assert obs.shape == (2, 6)
    with pytest.raises(SpaceError, match="expected an SB3 VecEnv, got ReplayEnv"):
        VecPerturbObservation(RIGS["q"].env(), "noise:eps=0.1")


class Foreign(vec_env.VecEnvWrapper):
    """What SuperSuit makes of a game of several agents: no attributes to ask for, integers for dones, and rows that
    are done before the game is over, whose last observation nobody was handed."""

    def get_attr(self, attr_name, indices=None):
        raise AttributeError(f"'ConcatVecEnv' object has no attribute {attr_name!r}")

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            info.pop("terminal_observation", None)
        return obs, rewards, dones.astype(np.uint8), infos


class NoVecEnvBeneath(Foreign):
    """With a vector beneath that is none of SB3's, and knows of no infos of resets."""

    @property
    def unwrapped(self):
        return types.SimpleNamespace(_seeds=self.venv._seeds)


@pytest.mark.filterwarnings("ignore:The `render_mode` attribute is not defined:UserWarning")
@pytest.mark.parametrize("kind", [Foreign, NoVecEnvBeneath])
def test_vectors_of_other_libraries(kind):
    venv = adv.wrap(kind(vector("sb3", RIGS["q"], 2)), "noise:eps=0.5,when=window(1,9)", "noise:eps=0.1")
    venv.seed(2)  # two and four steps
    venv.reset()
    attacked = []
    for _ in range(4):
        _, _, dones, infos = venv.step(np.zeros(2, int))
        assert dones.dtype == bool
        attacked.append([bool(info["adv_wrappers"]["0:noise"]["attacked"]) for info in infos])
    assert attacked == [[True, True], [False, True], [True, True], [True, False]]  # t = 1, 0, 1, 2 and 1, 2, 3, 0
