"""What tells one training from another in a folder: victims, threats, and functions that nothing is known of."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import decode
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.environments import Environment
from adv_wrappers.training.agent_setup import AdversarySpec
from adv_wrappers.training.training_folder import (
    check_counts,
    check_same,
    described,
    described_victim,
    functions_of,
    warn_of_unknown,
)
from tests.evaluation.agents import balancing, short


def agent(kind=nn.Tanh):
    torch.manual_seed(0)
    env = short()
    net = nn.Sequential(nn.Linear(4, 8), kind(), nn.Linear(8, 2))
    return adv.from_module(net, env.observation_space, env.action_space, "logits")


def law():
    env = short()
    return adv.from_module(lambda x: x[:, :2], env.observation_space, env.action_space, "logits")


def never(x, context):
    return torch.zeros(len(x), dtype=torch.bool)


def always(x, context):
    return torch.ones(len(x), dtype=torch.bool)


def test_victims_of_equal_weights_differ_by_their_structure(tmp_path):
    one, other = ({"victim": described_victim(agent(kind))} for kind in (nn.Tanh, nn.ReLU))
    check_same(tmp_path, one, {"victim": described_victim(agent())})
    with pytest.raises(ValueRangeError, match=r"holds another training, with victim\.structure"):
        check_same(tmp_path, one, other)


def test_an_imitation_of_another_victim_is_not_gone_on_with(tmp_path):
    how = {"queries": 100, "rounds": 1, "epochs": 1, "episodes": 1, "out": tmp_path}
    adv.imitate(agent(), short, **how)
    with pytest.raises(ValueRangeError, match="holds another imitation"):
        adv.imitate(agent(nn.ReLU), short, **how)


@pytest.mark.parametrize("change", [{"steps": 9}, {"when": always}, {"director": 2.0}])
def test_threats_without_a_json_form_are_told_apart(change):
    how = {"steps": 3, "when": never, "director": 1.0} | change

    def spec(steps, when, director):
        if "director" in change:
            net = nn.Linear(4, 4)
            for weight in net.parameters():
                nn.init.constant_(weight, director)
            learned = adv.Learned(net, decode({"type": "sa-rl"}), victim=balancing(), within=adv.Linf(0.1))
            return AdversarySpec.parse(learned, None, None, None, None)
        threat = ThreatModel("observation", adv.MaxDiff(steps=steps), adv.Linf(0.1), when)
        return AdversarySpec.parse(threat, None, None, None, None)

    first, other = spec(3, never, 1.0).describe(), spec(**how).describe()
    assert json.loads(json.dumps(first)) == first != other
    assert first == spec(3, never, 1.0).describe()


def test_functions_of_a_threat():
    threat = ThreatModel("observation", adv.MaxDiff(), adv.Linf(0.1), never)
    assert functions_of(threat) == [never] and described(never) == f"{__name__}:never"
    assert functions_of(adv.threat("max-diff", eps=0.1, when="every(2)")) == []


def test_a_folder_that_cannot_tell_is_gone_on_with_and_said(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_unknown(tmp_path, law(), Environment(short))  # it is empty
        (tmp_path / ".lock").touch()
        warn_of_unknown(tmp_path, law(), Environment(short))
        warn_of_unknown(None, law(), Environment(short))
        (tmp_path / "card.json").touch()
        warn_of_unknown(tmp_path, agent(), Environment(short, {"n": 3}))
    for victim, env in ((law(), short), (agent(), lambda: short())):
        with pytest.warns(RuntimeWarning, match="cannot tell a victim that is a function, or an environment"):
            warn_of_unknown(tmp_path, victim, Environment(env))


def test_counts_have_limits_of_their_own():
    most = {"steps": 10**12, "checks": 10**12, "num_envs": 2**16, "episodes": 10**6, "epochs": 10**6, "ensemble": 100}
    check_counts(**most)
    for name, value in most.items():
        for wrong in (0, value + 1, 10**400, 1.5, True, "1", np.int64(3)):
            with pytest.raises(ValueRangeError, match=f"{name} must be an integer from 1 to {value}, got"):
                check_counts(**{name: wrong})
