"""What critics and models have in common: they are read from folders, known by their hashes, and never change."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
import torch
from torch import nn

from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import CardError, ThreatError
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.victims.auxiliary_networks import Critic
from tests.every_case import every_case
from tests.victims.test_dynamics_model import model


def critic():
    net = ActionValue(Normalize(torch.zeros(5), torch.ones(5), 10.0), nn.Sequential(nn.Linear(7, 1)))
    return Critic.of(net, {"network": {"features": 5, "actions": 2}, "observation": {"clip": 10}})


KINDS = [(critic, "critic"), (model, "model")]


@every_case(("make", "called"), KINDS)
def test_a_folder_is_known_by_its_hash(make, called, tmp_path):
    with pytest.raises(ThreatError, match=f"this {called} is in no folder"):
        make().to_dict()
    saved = make().save(tmp_path)
    for same in (decode(saved.to_dict()), pickle.loads(pickle.dumps(saved))):
        assert type(same) is type(saved) and same == saved
        weights = zip(saved.net.state_dict().values(), same.net.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in weights)
    assert copy.deepcopy(saved) is saved and not saved.net.training
    assert not any(parameter.requires_grad for parameter in saved.net.parameters())
    about = json.loads((tmp_path / "card.json").read_text())
    for change, words in (
        ({"note": 1}, f"the {called} .* changed: expected sha256"),
        (None, "weights_sha256"),
    ):
        other = {**about, **change} if change else {k: v for k, v in about.items() if k != "weights_sha256"}
        (tmp_path / "card.json").write_text(json.dumps(other))
        with pytest.raises(CardError, match=words):
            type(saved)(str(tmp_path), saved.sha256 if change else None)


def test_weights_of_another_card_are_refused(tmp_path):
    for name in ("one", "other"):
        net = ActionValue(Normalize(torch.zeros(5), torch.ones(5), 10.0), nn.Sequential(nn.Linear(7, 1)))
        Critic.of(net, critic().card).save(tmp_path / name)
    (tmp_path / "other" / "weights.safetensors").replace(tmp_path / "one" / "weights.safetensors")
    with pytest.raises(CardError, match="not those that"):
        Critic(str(tmp_path / "one"))


@every_case(("make", "called"), KINDS)
def test_what_is_no_folder_and_no_json(make, called, tmp_path):
    with pytest.raises(CardError, match=f"a {called} is read from a folder, got None"):
        type(make())(None)
    with pytest.raises(CardError, match="JSON values only"):
        type(make()).of(make().net, {**make().card, "note": float("nan")}).save(tmp_path)
    assert not list(tmp_path.iterdir())


@every_case(("make", "called"), KINDS)
def test_cards_of_format_2_are_refused_by_name(make, called, tmp_path):
    saved = make().save(tmp_path)
    about = {**saved.card, "format": 2, "role": None, "kind": saved.role}
    (tmp_path / "card.json").write_text(json.dumps(about))
    with pytest.raises(CardError, match=f"a {saved.role} is read from cards of format 3, got 2: train it again"):
        type(saved)(str(tmp_path))
