"""Certificates beside attacks: nothing that was played is below what was certified, or everything stops."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.certification import ranges as ranges
from adv_wrappers.certification.certify import certify
from adv_wrappers.certification.ranges import certified_ranges
from adv_wrappers.errors import BudgetError, CertificateError, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.utils import deadline
from tests.certification.walks import Walk, walker
from tests.every_case import every_case

SHORT = {"env_kwargs": {"max_episode_steps": 20}, "max_nodes": 20, "budget_s": None}


def lines(found):
    """The rows of a table, by the heads of its columns."""
    table = found.table()
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def cartpole(eps=(0.002, 0.3), **more):
    attacks = more.pop("attacks", ["min-best", "beam"])
    given = {"episodes": 2, "attacks": attacks, "width": 2, **SHORT, **more}
    return certified_ranges("zoo:cartpole-ppo", "CartPole-v1", eps, **given)


def test_cartpole_lies_between(tmp_path):
    told = []
    found = cartpole(out=tmp_path, episodes=1, progress=lambda *at: told.append(at[0]))
    small, large = found.ranges
    for one in found.ranges:
        assert (one.lower_returns <= one.upper_returns).all() and [*one.attacks] == ["min-best", "beam"]
        assert (one.upper_returns <= one.certificate.clean_returns).all() and (one.lower_returns >= 1).all()
    how = {"episodes": 1, "env_kwargs": SHORT["env_kwargs"]}
    report = adv.evaluate("zoo:cartpole-ppo", "CartPole-v1", ["min-best:eps=0.3"], **how)
    assert report.threats[1]["returns"] == large.attacks["min-best"]
    assert large.upper_returns.max() < 20 == small.upper_returns.min() and (small.strongest, large.strongest) == (
        "",
        "beam",
    )
    assert small.lower_returns.mean() > large.lower_returns.mean()
    assert {"search", "beam", "none"} <= {*told}
    data = json.loads((tmp_path / "ranges.json").read_text())
    assert data == json.loads(json.dumps(found.to_dict())) and data["ranges"][1]["strongest"] == "beam"
    assert [row["eps"] for row in lines(found)] == ["0.002", "0.3"]
    assert "| eps | clean | certified |" in found.to_markdown() and "GWC is an estimate" in str(found)
    found.plot(tmp_path / "ranges.png")
    assert (tmp_path / "ranges.png").read_bytes()[1:4] == b"PNG"


def test_what_budget_s_cut_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(deadline, "clock", itertools.count(0, 100.0).__next__)  # all time is over at once
    found = cartpole((0.05,), out=tmp_path, attacks=["noise"], budget_s=1.0)
    row = lines(found)[0]
    assert (row["clean"], row["GWC"], row["ACR"], row["AWC"]) == ("-", "-", "-", "-") and row["certified"] == "1"
    said = "eps 0.05: cut by budget_s: clean in 2 of 2 episodes, acr in 2 of 2, gwc in 2 of 2, search in 2 of 2"
    assert said in found.notes() and said in str(found)
    assert found.ranges[0].upper_returns.tolist() == found.ranges[0].attacks["noise"]
    found.plot(tmp_path / "ranges.svg")


def test_it_goes_on_where_it_stopped(tmp_path, monkeypatch):
    certified, few = [], {"episodes": 1, "env_kwargs": {"max_episode_steps": 8}}
    monkeypatch.setattr(ranges, "certify", lambda *args, **more: certified.append(more) or certify(*args, **more))
    with monkeypatch.context() as patch:
        patch.setattr(ranges, "evaluate", lambda *args, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cartpole((0.02,), out=tmp_path, **few)
    assert json.loads((tmp_path / "ranges.json").read_text())["ranges"][0]["attacks"] == {}
    one = cartpole((0.02,), out=tmp_path, **few)
    assert len(certified) == 1 and one.ranges[0].attacks
    both = cartpole((0.05, 0.02), out=tmp_path, **few, attacks=["noise"])
    assert len(certified) == 2 and [*both.ranges[1].attacks] == ["min-best", "beam", "noise"]
    with pytest.raises(ValueRangeError, match="holds another call's certified ranges, with episodes 1 and not 3"):
        cartpole((0.02,), out=tmp_path, **{**few, "episodes": 3})
    (tmp_path / "ranges.json").write_text("{}")
    with pytest.raises(ValueRangeError, match="cannot read"):
        cartpole((0.02,), out=tmp_path, **few)


@pytest.mark.slow
def test_the_search_and_the_beam_meet():
    """Where a search is finished, its worst case is one that a wide beam plays."""
    found = certified_ranges(
        walker(), Walk, [0.2, 0.4], 4, method="bisect", attacks=["beam"], least_reward=0.0, width=100
    )
    for one in found.ranges:
        assert one.certificate.finished == 1 and (one.lower_returns <= one.upper_returns).all()
        assert np.mean(one.lower_returns == one.upper_returns) >= 0.75
    assert (found.ranges[1].upper_returns < found.ranges[1].certificate.clean_returns).any()


def test_an_episode_below_its_certificate_stops_everything(tmp_path, monkeypatch):
    def too_high(*args, **more):
        found = certify(*args, **more)
        return replace(found, lower_returns=found.clean_returns.copy())

    monkeypatch.setattr(ranges, "certify", too_high)
    words = r"beam at eps=0.3 leaves \d+ in the episode with seed \d+, below its certified return of 20"
    with pytest.raises(CertificateError, match=f"{words}.*counterexample.json") as error:
        cartpole((0.3,), out=tmp_path, attacks=["beam"], episodes=1)
    example = json.loads((tmp_path / "counterexample.json").read_text())
    assert example == error.value.counterexample and example["eps"] == 0.3 and example["attack"] == "beam"
    assert example["seed"] == draw_seeds(0, 1)[example["episode"]] and example["certified_return"] == 20
    threat = adv.ThreatModel.from_dict(example["threat"])
    report = adv.evaluate("zoo:cartpole-ppo", "CartPole-v1", [threat], 1, env_kwargs=SHORT["env_kwargs"])
    assert report.threats[1]["returns"][example["episode"]] == example["attacked_return"] < 20
    assert json.loads((tmp_path / "ranges.json").read_text())["ranges"][0]["attacks"] == {}


def test_all_attacks_that_apply(tmp_path):
    found = cartpole((0.01,), attacks=None, episodes=1, env_kwargs={"max_episode_steps": 5})
    one = found.ranges[0]
    assert {*one.attacks, *one.left_out} == {*ranges.UNTRAINED, "beam"} and [*one.left_out] == ["min-q"]
    assert "min-q: left out" in str(found)


@every_case(
    ("changed", "error", "words"),
    [
        ({"eps": []}, ValueRangeError, "different radii, at least one, got"),
        ({"eps": [0.1, 0.1]}, ValueRangeError, r"different radii, at least one, got \[0.1, 0.1\]"),
        ({"attacks": []}, ThreatError, "attacks must be a list of names or texts"),
        ({"attacks": "pgd"}, ThreatError, "attacks must be a list of names or texts.*pgd"),
        ({"attacks": ["noise:eps=-1"]}, BudgetError, "the budget goes beside the attacks, not in them: eps"),
        ({"attacks": ["action-flip:p=0.1"]}, ThreatError, "for perturbed observations, and action-flip"),
        ({"victim": "zoo:hopper-ppo", "env": "Hopper-v5"}, SpaceError, "one discrete action"),
    ],
)
def test_what_is_refused(changed, error, words):
    given = {"victim": "zoo:cartpole-ppo", "env": "CartPole-v1", "eps": [0.1], "max_nodes": 5, "episodes": 1}
    given |= {"attacks": ["noise"], "env_kwargs": None if "env" in changed else {"max_episode_steps": 5}}
    with pytest.raises(error, match=words):
        certified_ranges(**{**given, **changed})
