"""Models of the dynamics: what they predict, their folders, and the victims that they fit."""

from __future__ import annotations

import json

import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import CardError, ThreatError, VictimError
from adv_wrappers.victims.auxiliary_networks import Dynamics, TransitionModel, load_dynamics
from tests.every_case import every_case

N, K = 3, 2
WIDER = [{"kind": kind} for kind in ("linear", "relu", "linear", "two_logits")]


def model(nets=1, **card):
    torch.manual_seed(0)
    made = [
        torch.nn.Sequential(torch.nn.Linear(N + K, 4), torch.nn.ReLU(), torch.nn.Linear(4, N + 1)) for _ in range(nets)
    ]
    statistics = {
        "obs": (torch.tensor([1.0, 0.0, -1.0]), torch.tensor([2.0, 1.0, 0.5])),
        "act": (torch.zeros(K), torch.full((K,), 0.5)),
        "change": (torch.linspace(-1, 1, N + 1), torch.linspace(1, 2, N + 1)),
    }
    return Dynamics.of(TransitionModel(made, **statistics), {"network": {"features": N, "actions": K}, **card})


def actor(**card):
    net = torch.nn.Sequential(torch.nn.Linear(N, K), torch.nn.Tanh())
    victim = adv.from_module(net, spaces.Box(-9, 9, (N,)), spaces.Box(-1, 1, (K,)), "mean")
    victim.card = card or None
    return victim


def test_the_change_is_predicted_from_normalised_numbers():
    found = model(2)
    obs, act = torch.randn(5, N), torch.randn(5, K)
    net = found.net
    x = torch.cat([(obs - net.obs_mean) / net.obs_std, act / 0.5], -1)
    change = sum(one(x) for one in net.nets) / 2 * net.change_std + net.change_mean
    after, reward = found.predict(obs, act)
    torch.testing.assert_close(after, obs + change[:, :N])
    torch.testing.assert_close(reward, change[:, N])
    torch.testing.assert_close(found.step(obs, act), after)
    assert found.predict(obs.double(), act.double())[0].dtype == torch.float64


def test_it_is_differentiable_and_its_weights_are_not():
    found = model()
    obs, act = torch.randn(4, N, requires_grad=True), torch.randn(4, K, requires_grad=True)
    found.step(obs, act).sum().backward()
    assert obs.grad.abs().sum() > 0 and act.grad.abs().sum() > 0
    assert not any(parameter.requires_grad for parameter in found.net.parameters())


def test_a_folder_holds_the_same_model(tmp_path):
    found = model(2, feature_names=["x", "y", "z"])
    saved = found.save(tmp_path)
    obs, act = torch.randn(5, N), torch.randn(5, K)
    assert torch.equal(saved.step(obs, act), found.step(obs, act))
    assert saved.feature_names == ("x", "y", "z") and (saved.features, saved.actions) == (N, K)
    again = load_dynamics(f"card:{tmp_path}")
    assert again == saved and again.sha256 == saved.sha256
    assert decode(json.loads(json.dumps(saved.to_dict()))) == saved
    assert load_dynamics(saved) is saved


def test_a_model_in_no_folder_has_no_dictionary():
    with pytest.raises(ThreatError, match="in no folder"):
        model().to_dict()


def test_a_folder_that_changed_is_refused(tmp_path):
    saved = model().save(tmp_path)
    about = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**about, "note": 1}))
    with pytest.raises(CardError, match="changed: expected sha256"):
        decode(saved.to_dict())
    tensors = load_file(tmp_path / "weights.safetensors")
    save_file({**tensors, "act_std": tensors["act_std"] * 2}, tmp_path / "weights.safetensors")
    with pytest.raises(CardError, match="the weights are not those"):
        Dynamics(str(tmp_path))


@every_case(
    ("change", "words"),
    [
        ({"nets": [[]] * 101}, "at most 100 networks"),
        (
            {"nets": [[{"kind": kind} for kind in ("linear", "relu", "linear", "two_logits")]]},
            "expected nets.0 to answer 5 numbers with 4, it answers with",
        ),
        ({"features": N + 1}, "expected obs_mean of shape"),
        ({"nets": [["relu"]]}, "expected layers of the kinds .*, got 'relu'"),
    ],
)
def test_cards_that_are_wrong(tmp_path, change, words):
    model().save(tmp_path)
    about = json.loads((tmp_path / "card.json").read_text())
    about["network"] |= change
    (tmp_path / "card.json").write_text(json.dumps(about))
    with pytest.raises(CardError, match=words):
        Dynamics(str(tmp_path))


def test_other_cards_and_other_texts_are_refused(tmp_path):
    with pytest.raises(CardError, match="expected the card of a dynamics, got that of a victim"):
        Dynamics(str(adv.victims.references._ZOO / "hopper-ppo"))
    for ref in ("zoo:hopper-ppo", 3, None):
        with pytest.raises(CardError, match="expected a model of the dynamics, or card:FOLDER"):
            load_dynamics(ref)


def test_victims_of_other_spaces_and_other_action_repeats_are_refused():
    model().check(actor())
    wide = adv.from_module(torch.nn.Linear(4, K), spaces.Box(-9, 9, (4,)), spaces.Box(-1, 1, (K,)), "mean")
    with pytest.raises(VictimError, match=r"shapes \(\(3,\), \(2,\)\), this victim has \(\(4,\), \(2,\)\)"):
        model().check(wide)
    held = {"environment": {"id": "dm_control/walker-walk-v0", "kwargs": {"action_repeat": 2}}}
    plain = {"environment": {"id": "dm_control/walker-walk-v0", "kwargs": {}}}
    model(**held).check(actor(**held))
    with pytest.raises(VictimError, match="follows 2 control steps of an action, this victim holds its actions for 1"):
        model(**held).check(actor(**plain))
