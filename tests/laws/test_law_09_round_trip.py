"""Law 9: a threat's dictionary, its text and an id's spec survive the round trip and rebuild the same environment."""

from __future__ import annotations

import dataclasses
import functools
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from stable_baselines3 import PPO
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import ActionValue
from tests.laws.checks import (
    PLANNED,
    adversary_for,
    by_turns,
    cases,
    check_round_trip,
    check_spec,
    check_text,
    model_of,
    of_each_sort,
)
from tests.rigs import same_bytes

TIMED = (adv.Bernoulli(0.5) & ~adv.Window(1, 2)) | adv.AtMost(1)


@pytest.mark.parametrize(("case", "when"), by_turns(cases(rigs=1), [None, TIMED]), ids=str)
def test_dictionaries(case, when):
    check_round_trip(case, when=when)


@pytest.mark.parametrize("case", cases(rigs=1), ids=str)
def test_texts(case):
    check_text(case)


def _card(folder, env, net, kind, **critics):
    made = gym.make(env)
    victim = adv.from_module(net, made.observation_space, made.action_space, kind, **critics)
    return adv.save_card(folder, victim, environment=env).ref


def _mlp(inputs, outputs):
    with torch.random.fork_rng():
        torch.manual_seed(inputs + outputs)
        return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


@pytest.fixture(scope="module")
def refs(tmp_path_factory):
    """A discrete victim of CartPole and a continuous one of InvertedPendulum, as cards; none for images.

    Of FrozenLake, which shows one number of 16, one that SB3 has saved: cards hold no such networks.
    """
    tmp_path = tmp_path_factory.mktemp("victims")
    lake, critic = tmp_path / "lake.zip", ActionValue(nn.Identity(), _mlp(5, 1))
    PPO("MlpPolicy", gym.make("FrozenLake-v1"), seed=0, device="cpu").save(lake)
    return {
        "CartPole-v1": _card(tmp_path / "q", "CartPole-v1", _mlp(4, 2), "q"),
        "InvertedPendulum-v5": _card(
            tmp_path / "mean", "InvertedPendulum-v5", _mlp(4, 1), "mean", critic=critic, robust_sarsa=critic
        ),
        "FrozenLake-v1": f"sb3:{lake}",
        "tests/Frames-v0": None,
    }


@pytest.fixture(scope="module")
def arguments(refs):
    """By preset, what :func:`_arguments` finds, once for all tests."""
    return functools.cache(lambda preset: _arguments(preset, refs))


def _arguments(preset, refs):
    """An environment and arguments that a preset works with: discrete if it can."""
    for env, ref in refs.items():
        kwargs = {"game": "Pong", "transform": "jpeg"} if preset == "daylight" else {}
        if preset == "learned" and ref:
            kwargs = {"card": adversary_for(gym.make(env).observation_space, adv.PAAD(adv.load_victim(ref)))}
        if preset in PLANNED:
            made = gym.make(env)
            model = model_of(made.observation_space, made.action_space)
            kwargs = {"dynamics": model, "target": "0=1", "steps": 2, "iterations": 2}
        if preset == "saturation":
            kwargs = {"low": -0.05, "high": 0.05}
        if adv.presets[preset].on == "dynamics":
            kwargs = {"at": "mass"} | ({"values": 1.5} if preset == "fixed-dynamics" else {"eps": 0.5})
        if preset == "reward-noise":
            kwargs["eps"] = 0.5
        kwargs |= {"victim": ref} if ref else {}
        if adv.presets[preset].on == "observation" and ref and env != "FrozenLake-v1":  # which has no distances
            kwargs["eps"] = 0.05
        takes = {field.name for field in dataclasses.fields(adv.presets[preset].kind)}
        short = {"queries": 16, "searches": 1, "restarts": 1} | ({} if preset in PLANNED else {"steps": 3})
        kwargs |= {name: value for name, value in short.items() if name in takes and name not in kwargs}
        try:
            adv.wrap(gym.make(env), adv.threat(preset, **kwargs)).close()
        except adv.AdvWrappersError:
            continue
        return env, kwargs
    pytest.fail(f"neither victim of this test fits the preset {preset!r}")


@pytest.mark.parametrize("preset", list(adv.presets))
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_ids_for_make(preset, arguments):
    env, kwargs = arguments(preset)
    check_spec(gym.make(f"adv_wrappers:adv/{preset}-v0", env=env, **kwargs))


@pytest.mark.parametrize("preset", [case.preset for case in of_each_sort()])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_ids_for_make_vec(preset, arguments):
    """``make_vec`` gives rows that equal the single environments of the same id."""
    env, kwargs = arguments(preset)
    name = f"adv_wrappers:adv/{preset}-v0"
    venv = gym.make_vec(
        name, num_envs=2, env=env, vectorization_mode="vector_entry_point", autoreset_mode="SameStep", **kwargs
    )
    obs, _ = venv.reset(seed=3)
    single = gym.make(name, env=env, **kwargs)
    one, _ = single.reset(seed=4)
    np.testing.assert_allclose(obs[1], one, rtol=1e-4, atol=1e-5)
    for _ in range(2):
        action = venv.single_action_space.sample()
        obs = venv.step(np.stack([action] * 2))[0]
        one = single.step(action)[0]
        np.testing.assert_allclose(obs[1], one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("preset", [case.preset for case in of_each_sort()])
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_specs_of_wrappers(preset, arguments):
    """The spec of an environment that was wrapped by hand records every layer."""
    env, kwargs = arguments(preset)
    other = "noise:eps=0.01" if adv.presets[preset].on == "action" else "action-noise:p=0.5"
    stack = adv.wrap(gym.make(env), adv.threat(preset, when="every(2)", **kwargs), other)
    check_spec(adv.ProbabilisticTiming(stack, 0.7))


def test_changed_weights_are_refused(tmp_path):
    net = _mlp(4, 2)
    ref = _card(tmp_path / "q", "CartPole-v1", net, "q")
    env = adv.wrap(gym.make("CartPole-v1"), adv.threat("pgd", ref, eps=0.1))
    text, data = env.spec.to_json(), env.threat.to_dict()
    with torch.no_grad():
        net[2].bias[0] += 1e-3
    _card(tmp_path / "q", "CartPole-v1", net, "q")
    with pytest.raises(VictimError, match="changed"):
        adv.ThreatModel.from_dict(json.loads(json.dumps(data)))
    with pytest.raises(VictimError, match="changed"):
        gym.make(EnvSpec.from_json(text))


def test_a_victim_without_a_ref_must_be_given():
    from tests.rigs import RIGS

    victim = RIGS["q"].victim()
    data = adv.threat("pgd", victim, eps=0.1).to_dict()
    with pytest.raises(VictimError, match="victims="):
        adv.ThreatModel.from_dict(data)
    assert adv.ThreatModel.from_dict(data, victims={victim.fingerprint(): victim}).victims == [victim]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_set_budget_is_recorded():
    env = adv.wrap(gym.make("CartPole-v1"), "noise:eps=0.5")
    assert '"eps": 0.5' in env.spec.to_json()
    env.set_budget(adv.Linf(0.125))
    again = gym.make(EnvSpec.from_json(env.spec.to_json()))
    same_bytes(again.reset(seed=2)[0], env.reset(seed=2)[0], "after set_budget")
    bare = gym.make("CartPole-v1").reset(seed=2)[0]
    assert np.abs(env.reset(seed=2)[0] - bare).max() <= 0.125 + 1e-6
