"""Law 5: type, dtype, shape and device come out as they went in; Gymnasium's ``check_env`` passes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import adv_wrappers as adv
from tests.laws.checks import Case, by_turns, cases, check_environment_api, check_types, of_each_sort
from tests.rigs import PLAIN, RIGS


@pytest.mark.parametrize(("case", "kind"), by_turns(cases(rigs=1), PLAIN), ids=str)
def test_types(case, kind):
    check_types(case, kind)


@pytest.mark.parametrize("case", of_each_sort(), ids=str)
def test_check_env_without_a_ref(case):
    check_environment_api(case, case.rig.victim())


@pytest.mark.filterwarnings("ignore")
def test_check_env_with_a_ref(tmp_path):
    """A victim with a reference is recorded in the environment's spec as a dictionary."""
    env = gym.make("CartPole-v1")
    given = torch.nn.Linear(4, 2), env.observation_space, env.action_space, "q"
    ref = adv.save_card(tmp_path, *given, environment="CartPole-v1").ref
    env = adv.wrap(env, f"pgd:victim={ref},eps=0.01", f"worst-action:victim={ref}")
    check_env(env, skip_render_check=True)


@pytest.mark.parametrize("preset", ["action-noise", "action-flip", "worst-action"])
@pytest.mark.parametrize("make", [int, np.int64, np.int32, np.array], ids=lambda m: m.__name__)
def test_discrete_actions_keep_their_type(preset, make):
    """A Python integer stays one, and so does a numpy integer of any width."""
    case = Case(preset, RIGS["logits"])
    env = adv.wrap(case.rig.env(), case.threat())
    env.reset(seed=0)
    seen = []
    inner = env.unwrapped.step
    env.unwrapped.step = lambda action: seen.append(action) or inner(action)
    env.step(make(2))
    assert type(seen[0]) is type(make(2)) and np.asarray(seen[0]).dtype == np.asarray(make(2)).dtype
    assert case.rig.actions.contains(int(seen[0]))


def test_a_layer_hands_out_new_arrays():
    """An observation that was handed out does not change later, nor does what came in."""
    case = Case("noise", RIGS["mean"])
    env = adv.wrap(case.rig.env(), case.threat())
    first, _ = env.reset(seed=0)
    kept = first.copy()
    action = np.zeros(3, np.float32)
    env.step(action)
    assert np.array_equal(first, kept) and not action.any()


@pytest.mark.parametrize("at", ["vector", ("vector",)])
def test_the_other_leaves_of_a_dict_are_the_same_objects_in_value(at):
    rig = RIGS["dict"]
    env = adv.wrap(rig.env(), adv.threat("noise", eps=0.1, at=at))
    obs, true = env.reset(seed=1)[0], rig.env().reset(seed=1)[0]
    assert obs["image"].tobytes() == true["image"].tobytes() and obs["image"].dtype == np.uint8
    assert not np.array_equal(obs["vector"], true["vector"]) and obs["vector"].dtype == np.float32
