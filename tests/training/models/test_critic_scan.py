"""train_critic and scan_critics: the strongest of many critics, what is reported of it, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, CardError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.training.models import robust_sarsa
from adv_wrappers.training.models.critic_scan import CRITIC_GRID, SMALL, scan_critics, train_critic
from adv_wrappers.victims.auxiliary_networks import Critic
from tests.core.helpers import actor, mlp
from tests.every_case import every_case
from tests.training.toys import Toy, Unplayed, one_critic, toy_victim


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    """What a critic learns is tested with one of them."""
    monkeypatch.setattr(robust_sarsa, "EPOCHS", 2)


TOY = {"num_envs": 4, "gamma": 0.5, "lr": 3e-3, "noise": 0.5, "steps": 16}


def test_a_scan_reports_how_many_it_chose_from(tmp_path):
    how = {
        "within": adv.Linf(1.0),
        "episodes": 3,
        "num_envs": 4,
        "gamma": 0.5,
        "lr": 3e-3,
        "noise": 0.5,
        "out": tmp_path,
        "settings": [{"steps": 16}, {"steps": 64, "eps": 0.05}],
    }
    received = []
    scan = scan_critics(toy_victim(), Toy, **how, progress=lambda *row: received.append(row))
    means = [row["mean_return"] for row in scan.chosen.threats]
    assert scan.best == means.index(min(means[1:])) - 1 and scan.critic is scan.critics[scan.best]
    assert [c.card["training"]["steps"] for c in scan.critics] == [16, 64]
    seeds = [{*scan.chosen.episode_seeds}, {*scan.scored.episode_seeds}]
    assert not seeds[0] & seeds[1] and len(scan.scored.threats) == 2
    assert f"best of 2 critics by mean return over 3 episodes ({min(means[1:]):.3g})" in scan.protocol
    assert ("steps=16", 16, 16) in received
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chosen", "scored", "steps-16", "steps-64-eps-0.05"]
    again = scan_critics(toy_victim(), Toy, **how)
    assert again.critics == scan.critics and again.protocol == scan.protocol


def test_settings_of_a_scan():
    assert len(CRITIC_GRID) == 30 and len({(s["eps"], s["weight"]) for s in CRITIC_GRID}) == 30
    for bad in ([], [{"eps": 0.1}, {"eps": 0.1}]):
        with pytest.raises(ValueRangeError, match="settings that differ"):
            scan_critics(toy_victim(), Toy, within=adv.Linf(1.0), settings=bad)


@every_case(
    ("change", "error", "words"),
    [
        ({"within": adv.Linf(1.0, scale=(1.0, 2.0, 3.0))}, BudgetError, "3 numbers for a space of 2"),
        ({"within": adv.Linf(1.0, scale="victim")}, BudgetError, "unit of its own"),
        ({"within": adv.Valid()}, BudgetError, "unbounded"),
        ({"within": 0.1}, BudgetError, "within must be a budget .*0.1"),
        ({"within": None}, ThreatError, "no unit of its own to count their budget in"),
        ({"episodes": 0}, ValueRangeError, "episodes must be an integer from 1 to 1000000, got 0"),
        ({"settings": [{}, {"eps": -1}]}, ValueRangeError, "eps must be .* got -1"),
        ({"settings": [{}, {"eps": "wide"}]}, ValueRangeError, "eps must be .* got 'wide'"),
        ({"settings": [{}, {"epss": 1}]}, ThreatError, "setting takes .*eps.*, not epss"),
        ({"settings": [{}, {"out": "here"}]}, ThreatError, "not out"),
        ({"settings": [{}, 3]}, ThreatError, "not 3"),
        ({"settings": [{"hidden": (4, 4)}, {"hidden": [4, 4]}]}, ValueRangeError, "settings that differ"),
        ({"settings": [{}, {"noise": 0.0}]}, ValueRangeError, "noise"),
        ({"epss": 1}, ThreatError, "not epss"),
        ({"num_envs": 0}, ValueRangeError, "num_envs"),
        ({"victim": actor(mlp(4, 1), actions=1)}, VictimError, "observation space"),
        ({"env": lambda: 1 / 0}, SpaceError, "cannot make the environment: division"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_training(change, error, words, tmp_path):
    given = {"victim": toy_victim(), "env": Unplayed, "within": adv.Linf(1.0), "steps": 64, "out": tmp_path / "scan"}
    with pytest.raises(error, match=words):
        scan_critics(**{**given, **change})
    assert not (tmp_path / "scan").exists()


def test_the_folder_of_another_critic_is_found_before_the_first_training(tmp_path):
    how = {"steps": 16, "num_envs": 2}
    one_critic(toy_victim(), Toy, **how, eps=0.3, out=tmp_path / "eps-0.1")
    with pytest.raises(ValueRangeError, match=r"another training, with .*eps 0\.3"):
        scan_critics(toy_victim(), Toy, within=adv.Linf(1.0), settings=[{}, {"eps": 0.1}], out=tmp_path, **how)
    (tmp_path / "eps-0.1" / "state.json").unlink()
    with pytest.raises(ValueRangeError, match="something else"):
        scan_critics(toy_victim(), Toy, within=adv.Linf(1.0), settings=[{}, {"eps": 0.1}], out=tmp_path, **how)
    assert [path.name for path in tmp_path.iterdir()] == ["eps-0.1"]


def weights_of(critic):
    return torch.cat([param.flatten() for param in critic.net.parameters()])


def test_by_default_a_critic_is_the_strongest_of_four(tmp_path):
    """And the episodes that chose it are not for scoring."""
    how, received = {"within": adv.Linf(1.0), "episodes": 3, **TOY}, []
    critic = train_critic(toy_victim(), Toy, **how, out=tmp_path, progress=lambda *at: received.append(at))
    about = critic.card["scan"]
    means = [row["mean_return"] for row in about["critics"]]
    assert [row["setting"] for row in about["critics"]] == [*map(dict, SMALL)]
    best = SMALL[means.index(min(means))]
    assert {name: critic.card["training"][name] for name in best} == best
    assert {("eps=0.02,weight=0.1", 16, 16), ("eps=0.3,weight=3.0,box=action", 16, 16)} <= {*received}
    assert Critic(str(tmp_path)).sha256 == critic.sha256
    assert {path.name for path in tmp_path.iterdir()} >= {"card.json", "chosen", "scored", "eps-0.02-weight-0.1"}
    assert train_critic(toy_victim(), Toy, **how, out=tmp_path).sha256 == critic.sha256
    attack = adv.ThreatModel("observation", adv.RobustSarsa(critic=Critic(str(tmp_path))), adv.Linf(1.0))
    assert len(about["episode_seeds"]) == 3
    chosen, scored = (adv.evaluate(toy_victim(), Toy, [attack], 5, seed).warnings for seed in (1, 2))
    assert [warning for warning in chosen if "the critic of" in warning and "chosen on 3 of the 5 episodes" in warning]
    assert not [warning for warning in scored if "chosen on" in warning]


@pytest.mark.parametrize("given", [{"settings": [{"weight": 0.1}]}, {"eps": 0.02}])
def test_one_setting_is_trained_alone(given, tmp_path):
    """Without a budget, as nothing is attacked; the same critic, to the bit, that its setting makes of itself."""
    critic = train_critic(toy_victim(), Toy, **given, **TOY, seed=5, out=tmp_path)
    assert torch.equal(weights_of(critic), weights_of(one_critic(toy_victim(), Toy, **TOY, seed=5)))
    assert "scan" not in critic.card
    assert {path.name for path in tmp_path.iterdir()} == {"card.json", "state.json", "weights.safetensors"}


def test_what_several_critics_need(tmp_path):
    with pytest.raises(ThreatError, match=r"no unit of its own .*give within=.*settings=\[\{\}\]"):
        train_critic(toy_victim(), Unplayed, out=tmp_path / "a")
    with pytest.raises(ThreatError, match=r"setting takes .*, not epss"):
        train_critic(toy_victim(), Unplayed, epss=1)
    one_critic(toy_victim(), Toy, **TOY, out=tmp_path / "b")
    with pytest.raises(ValueRangeError, match="holds something else than the strongest of several"):
        train_critic(toy_victim(), Unplayed, within=adv.Linf(1.0), out=tmp_path / "b")
    (tmp_path / "b" / "card.json").write_text("{")
    with pytest.raises(CardError, match="cannot read"):
        train_critic(toy_victim(), Unplayed, within=adv.Linf(1.0), out=tmp_path / "b")
    assert json.loads((tmp_path / "b" / "card.json").read_text() + "}") == {} and not (tmp_path / "a").exists()
