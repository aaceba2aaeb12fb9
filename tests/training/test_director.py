"""Training an adversary: a few steps of it, its folder, going on after a kill, and the arguments that cannot work."""

from __future__ import annotations

import json

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.adversaries.learned import Learned

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.director import train_adversary

QUICK = {"num_envs": 4, "checks": 2, "episodes": 3, "n_steps": 32, "batch_size": 64, "n_epochs": 2}


@pytest.mark.parametrize("kind", ["sa-rl", "pa-ad"])
def test_what_is_trained_is_a_threat(kind, tmp_path):
    told = []
    learned = train_adversary(
        kind, "CartPole-v1", "zoo:cartpole-a2c", 0.05, 256, out=tmp_path, progress=lambda *at: told.append(at), **QUICK
    )
    assert isinstance(learned, Learned) and learned.within == adv.Linf(0.05)
    assert [steps for steps, _ in told] == [128, 256, 256] and all(0 < left <= 500 for _, left in told)
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["best"] == min(left for _, left in told)
    threat = adv.ThreatModel("observation", learned, adv.Linf(0.05))
    again = adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())))
    x = torch.randn(5, 4)
    assert torch.equal(again.how.director(x), learned.director(x)) and again.how.sha256 == learned.sha256
    report = adv.evaluate("zoo:cartpole-a2c", "CartPole-v1", [again], episodes=2)
    assert report.threats[1]["linf"] <= 0.05 + 1e-6 and report.threats[1]["attacked_fraction"] == 1


def test_a_training_that_was_killed_goes_on(tmp_path):
    arguments = ("sa-rl", "CartPole-v1", "zoo:cartpole-a2c", 0.05)
    train_adversary(*arguments, 128, out=tmp_path, **QUICK)
    before = json.loads((tmp_path / "state.json").read_text())["record"]
    told = []
    train_adversary(*arguments, 384, out=tmp_path, progress=lambda steps, left: told.append(steps), **QUICK)
    record = json.loads((tmp_path / "state.json").read_text())["record"]
    assert record[: len(before)] == before and told[0] > 128 and record[-1]["steps"] == 384


def test_a_changed_folder_is_refused(tmp_path):
    learned = train_adversary("sa-rl", "CartPole-v1", "zoo:cartpole-a2c", 0.05, 128, out=tmp_path / "a", **QUICK)
    other = train_adversary("sa-rl", "CartPole-v1", "zoo:cartpole-a2c", 0.05, 128, seed=1, out=tmp_path / "b", **QUICK)
    assert learned.sha256 != other.sha256
    with pytest.raises(adv.CardError, match="changed: expected"):
        Learned(card=str(tmp_path / "a"), sha256=other.sha256)
    with pytest.raises(adv.CardError, match="is no adversary's folder"):
        Learned(card=str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"kind": "pa-bd"}, adv.ThreatError, "unknown actor 'pa-bd'; known: pa-ad, sa-rl"),
        ({"eps": None}, adv.ThreatError, "needs a budget"),
        ({"steps": 0}, adv.ValueRangeError, "steps must be a whole number"),
        ({"algorithm": "acktr"}, adv.ThreatError, "algorithm must be 'ppo'"),
        ({"victim": "zoo:hopper-ppo"}, adv.VictimError, "for observation space"),
    ],
)
def test_what_cannot_work(arguments, error, match):
    given = {
        "kind": "pa-ad",
        "env": "CartPole-v1",
        "victim": "zoo:cartpole-a2c",
        "eps": 0.05,
        "steps": 100,
        **arguments,
    }
    with pytest.raises(error, match=match):
        train_adversary(**given)
