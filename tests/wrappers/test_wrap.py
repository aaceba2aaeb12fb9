"""``wrap``."""

from __future__ import annotations

import pickle

import gymnasium as gym
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from tests.rigs import RIGS, vector


@pytest.mark.parametrize("kind", ["next", "sb3"])
def test_wrappers_by_environment(kind):
    venv = adv.wrap(vector(kind, RIGS["q"], 2), "noise:eps=0.1", "action-flip")
    prefix = "Vec" if kind == "sb3" else "Vector"
    assert type(venv).__name__ == f"{prefix}PerturbAction" and pickle.loads(pickle.dumps(type(venv))) is type(venv)

    class Own(adv.PerturbObservation):
        """A subclass takes what its base does."""

    assert type(Own(vector(kind, RIGS["q"], 2), "noise:eps=0.1")).__name__ == f"{prefix}PerturbObservation"


def test_no_threats_is_the_environment():
    env = RIGS["q"].env()
    assert adv.wrap(env) is env


def test_the_victim_fills_what_is_open_and_nothing_else():
    own, other = RIGS["q"].victim(), RIGS["logits"].victim()
    env = adv.wrap(RIGS["q"].env(), "pgd:eps=0.1", adv.threat("pgd", other, eps=0.1), victim=own)
    assert env.threat.victims == [other] and env.env.threat.victims == [own]


def test_options_reach_every_layer():
    env = adv.wrap(RIGS["image"].env(), "noise:eps=0.5", "noise:eps=0.5", quantize=False, keep_true=True)
    assert not env.quantize and not env.env.quantize and env.keep_true and env.env.keep_true


def test_a_victim_of_another_environment_is_told_that_before_what_the_threat_needs():
    hopper = adv.load_victim("zoo:hopper-ppo")
    with pytest.raises(VictimError, match=r"is an agent for Hopper-v5, and this is CartPole-v1: play it in Hopper"):
        adv.wrap(gym.make("CartPole-v1"), "fgsm:eps=0.1", victim=hopper)
    with pytest.raises(VictimError, match="defined for one discrete action"):
        adv.wrap(gym.make("Hopper-v5"), "fgsm:eps=0.1", victim=hopper)
    with pytest.raises(VictimError, match=r"is an agent for Hopper-v5, and this is CartPole-v1: play it in Hopper"):
        adv.certify(hopper, "CartPole-v1", 0.1, 1)
