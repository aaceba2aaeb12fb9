"""train_critic: by default the strongest of four critics, one critic where one setting is given, and folders."""

from __future__ import annotations

import json

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.attacks.critic import Critic
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.training.critic_scan import SMALL, scan_critics
from adv_wrappers.training.train_critic import train_critic
from adv_wrappers.training.train_one_critic import train_one_critic
from tests.training.test_train_one_critic import Toy, Unplayed, toy_victim

TOY = {"num_envs": 4, "gamma": 0.5, "lr": 3e-3, "noise": 0.5, "steps": 16}


def weights_of(critic):
    return torch.cat([param.flatten() for param in critic.net.parameters()])


def test_by_default_a_critic_is_the_strongest_of_four(tmp_path):
    how, told = {"within": adv.Linf(1.0), "episodes": 3, **TOY}, []
    critic = train_critic(toy_victim(), Toy, **how, out=tmp_path, progress=lambda *at: told.append(at))
    scan = scan_critics(toy_victim(), Toy, **how)
    assert torch.equal(weights_of(critic), weights_of(scan.critic)) and scan.settings == SMALL
    assert not torch.equal(weights_of(scan.critics[0]), weights_of(scan.critics[1]))
    about = critic.card["scan"]
    assert about["protocol"] == scan.protocol and [row["setting"] for row in about["critics"]] == [*map(dict, SMALL)]
    means = [row["mean_return"] for row in about["critics"]]
    assert means.index(min(means)) == scan.best
    assert told[-1] == (64, 64) and [done for done, _ in told] == sorted(done for done, _ in told)
    assert Critic(str(tmp_path)).sha256 == critic.sha256
    assert {path.name for path in tmp_path.iterdir()} >= {"card.json", "chosen", "scored", "eps-0.02-weight-0.1"}
    again = train_critic(toy_victim(), Toy, **how, out=tmp_path)
    assert again.sha256 == critic.sha256


@pytest.mark.parametrize(
    "given", [{"settings": [{}]}, {"settings": [{"weight": 0.1}]}, {"eps": 0.02}, {"robust": "interval"}]
)
def test_one_setting_is_trained_alone(given, tmp_path):
    """Without a budget, as nothing is attacked; the same critic, to the bit, that its setting makes of itself."""
    critic = train_critic(toy_victim(), Toy, **given, **TOY, seed=5, out=tmp_path)
    assert torch.equal(weights_of(critic), weights_of(train_one_critic(toy_victim(), Toy, **TOY, seed=5)))
    assert "scan" not in critic.card and {path.name for path in tmp_path.iterdir()} == {
        "card.json", "weights.safetensors"
    }  # fmt: skip


def test_what_several_critics_need(tmp_path):
    with pytest.raises(ThreatError, match=r"no unit of its own .*give within= .*settings=\[\{\}\]"):
        train_critic(toy_victim(), Unplayed, out=tmp_path / "a")
    with pytest.raises(ThreatError, match=r"setting takes .*, not epss"):
        train_critic(toy_victim(), Unplayed, epss=1)
    train_one_critic(toy_victim(), Toy, **TOY, out=tmp_path / "b")
    with pytest.raises(ValueRangeError, match="holds something else than the strongest of several"):
        train_critic(toy_victim(), Unplayed, within=adv.Linf(1.0), out=tmp_path / "b")
    (tmp_path / "b" / "card.json").write_text("{")
    with pytest.raises(CardError, match="cannot read"):
        train_critic(toy_victim(), Unplayed, within=adv.Linf(1.0), out=tmp_path / "b")
    assert json.loads((tmp_path / "b" / "card.json").read_text() + "}") == {} and not (tmp_path / "a").exists()
