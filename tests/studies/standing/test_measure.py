"""Measuring a submission: what is refused before anything is attacked, and what its entry says."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import adv_wrappers
from adv_wrappers.adversaries import Director
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.errors import BudgetError, ThreatError, TrustError, ValueRangeError
from adv_wrappers.evaluation.cost import Cost, Costs
from adv_wrappers.studies.report.choices import read_choices
from adv_wrappers.studies.report.page import write_page
from adv_wrappers.studies.run_time import is_made
from adv_wrappers.studies.standing import measure
from adv_wrappers.studies.standing.entry import read_entries, read_entry
from adv_wrappers.studies.standing.measure import (
    CERTIFIED_SHARE,
    RANGE_SHARE,
    Submission,
    _without_folders,
    add_attack,
    add_submission,
    minutes_for,
    open_submission,
    submission_cost,
    what_card_says,
)
from adv_wrappers.studies.suite.untrained_attacks import beam
from adv_wrappers.utils import deadline
from adv_wrappers.utils.deadline import Deadline

ZOO = Path(adv_wrappers.__file__).parent / "zoo"


SHORT = {"max_episode_steps": 5}


def add(folder, minutes=10.0, **more):
    """A measured agent whose episodes are short; rows that the folder holds take no time."""
    return add_submission(Submission("zoo:cartpole-dqn", "dqn", env_kwargs=SHORT, **more), folder, minutes)


@pytest.fixture(scope="module", autouse=True)
def few_episodes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "EPISODES", 3)
        patch.setattr(measure, "ATTACKS", ("noise", "max-diff", "beam", "min-q"))
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory, few_episodes):
    store = tmp_path_factory.mktemp("store")
    return store, add(store / "dqn", claim="400")


def test_an_entry_has_what_was_measured(measured):
    store, entry = measured
    assert entry.clean.mean == 5.0 and "noise" in entry.attacks
    assert {*entry.attacks} & {*entry.left_out} == set()
    assert entry.licence == "MIT" and entry.claim == "400" and entry.trained_with == "dqn"
    assert read_entries(store) == [entry]
    assert (store / "dqn" / "rows.db").is_file()
    lowest = min(one.mean for one in entry.attacks.values())
    assert entry.certificate is None or entry.certificate.lower <= lowest


def test_the_page_of_an_agent_has_its_certificate_and_what_was_not_played(measured):
    store, entry = measured
    choices = read_choices(store / "dqn")
    certificate = entry.certificate  # None where the machine was too slow for one
    assert [(one.eps, one.lower) for one in choices.certificates] == (
        [(0.05, certificate.lower)] if certificate else []
    )
    assert {one.threat for one in choices.untried} == {*entry.left_out_seconds}
    named = {text.partition(" does not apply: ")[0] for text in choices.not_tried}
    assert named >= {*entry.left_out} - {*entry.left_out_seconds}
    page = write_page(store / "dqn", store / "dqn.html").read_text(encoding="utf-8")
    assert ("Nothing is certified:" in page) is (certificate is None)


def test_rows_that_are_there_are_none_to_be_paid_for(measured):
    store, _ = measured
    (entry,) = read_entries(store)  # as it is now
    cost = submission_cost(Submission("zoo:cartpole-dqn", "dqn", env_kwargs=SHORT), store / "dqn")
    left = {part.name: part.left for part in cost.parts if not part.alone}
    assert {name for name in left if not left[name]} == {*entry.attacks} - {"mine"}
    assert {name for name in left if left[name]} == {*entry.left_out_seconds}


def test_whole_episodes_are_searched_where_the_environment_can_be_saved(measured, tmp_path):
    store, entry = measured
    assert entry.attacks["beam"].mean == min(one.mean for one in entry.attacks.values())
    folder = shutil.copytree(store / "dqn", tmp_path / "dqn")
    setting = open_submission(Submission("zoo:cartpole-dqn", "dqn", env_kwargs=SHORT), folder, Deadline(6.0))[0]
    assert is_made(beam, setting) and not is_made(beam, replace(setting, out=tmp_path))


def test_an_attack_of_ones_own_can_only_lower(measured):
    store, entry = measured
    before = entry.strongest[1].mean
    found = add_attack("zoo:cartpole-dqn", store / "dqn", "max-diff:steps=3", label="mine")
    assert found.attacks["mine"].added and found.strongest[1].mean <= before
    assert found.attacks_played == (len(found.attacks) - 1, 1)
    assert found == read_entry(store / "dqn")
    again = add(store / "dqn")  # plays no row again
    assert again.attacks == found.attacks and again.claim == "400"  # both stay when the agent is measured further
    with pytest.raises(ValueRangeError, match="standing add comes first"):
        add_attack("zoo:cartpole-a2c", store / "dqn", "max-diff")
    with pytest.raises(ValueRangeError, match="on observations, within"):
        add_attack("zoo:cartpole-dqn", store / "dqn", "worst-action")
    with pytest.raises(ValueRangeError, match="an attack of its own called min-q: give another label"):
        add_attack("zoo:cartpole-dqn", store / "dqn", "noise", label="min-q")
    with pytest.raises(ThreatError, match=r"go beside the text of max-diff, not in it: eps"):
        add_attack("zoo:cartpole-dqn", store / "dqn", "max-diff:steps=3,eps=0.3")


def test_an_adversary_that_was_trained_in_the_victims_own_unit_is_in_the_budget(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(deadline, "clock", lambda: now[0])
    agent = adv_wrappers.load_victim("zoo:hopper-ppo")
    short = Submission("zoo:hopper-ppo", "hopper", env_kwargs=SHORT)
    late = add_submission(short, tmp_path / "hopper", 1.0, tell=lambda _: now.append(now.pop() + 100))
    assert {*late.left_out_seconds} == {"noise", "max-diff"} <= {*late.left_out}
    assert late.left_out["noise"].endswith(", more than was left")
    net = torch.nn.Sequential(torch.nn.Linear(11, 11))
    adversary = adv_wrappers.Learned(Director(net, discrete=False, clip=True), adv_wrappers.SARL())
    for eps, folder in ((0.075, tmp_path / "fits"), (0.1, tmp_path / "larger")):
        adversary.save(folder, within=Linf(eps, "victim").resolve(agent))
    entry = add_attack("zoo:hopper-ppo", tmp_path / "hopper", f"learned:card={tmp_path / 'fits'}", label="sa-rl")
    assert entry.attacks["sa-rl"].threat == "learned:card=fits"
    with pytest.raises(ValueRangeError, match="on observations, within"):
        add_attack("zoo:hopper-ppo", tmp_path / "hopper", f"learned:card={tmp_path / 'larger'}", label="larger")


def test_of_two_attacks_of_one_name_the_lower_one_stays(measured, tmp_path):
    folder = shutil.copytree(measured[0] / "dqn", tmp_path / "dqn")
    entry = read_entry(folder)
    entry.attacks["mine"] = replace(entry.attacks["noise"], mean=1.0, added=True)
    entry.write(folder)
    assert add_attack("zoo:cartpole-dqn", folder, "noise", label="mine").attacks["mine"].mean == 1.0
    assert add_attack("zoo:cartpole-dqn", folder, "noise", label="other").attacks["other"].mean > 1.0


def test_a_folder_of_other_weights_is_refused(measured):
    store, _ = measured
    with pytest.raises(ValueRangeError, match="other weights"):
        add_submission(Submission("zoo:cartpole-a2c", "dqn"), store / "dqn", minutes=0.02)


def test_a_folder_of_other_episodes_is_refused(measured, tmp_path):
    store, _ = measured
    folder = shutil.copytree(store / "dqn", tmp_path / "dqn")
    replace(read_entry(folder), given_budget=[0.2, None]).write(folder)
    with pytest.raises(ValueRangeError, match=r"holds rows of eps and scale \[0\.2, None\], got \[None, None\]"):
        add(folder)
    with pytest.raises(ValueRangeError, match="holds rows of seed 0, got 1: give another name"):
        add(store / "dqn", seed=1)
    with pytest.raises(ValueRangeError, match=r"holds rows of environment .*max_episode_steps"):
        add_submission(Submission("zoo:cartpole-dqn", "dqn"), store / "dqn", minutes=0.02)


def test_what_is_no_submission_is_refused(tmp_path):
    with pytest.raises(ValueRangeError, match=r"is 'MIT', got licence='Apache-2\.0'"):
        add_submission(Submission("zoo:cartpole-dqn", "a", licence="Apache-2.0"), tmp_path / "a")
    card = shutil.copytree(ZOO / "cartpole-dqn", tmp_path / "card")
    about = json.loads((card / "card.json").read_text())
    (card / "card.json").write_text(json.dumps({**about, "licence": ""}))
    with pytest.raises(ValueRangeError, match="does not name: give licence="):
        add_submission(Submission(f"card:{card}", "a"), tmp_path / "a")
    with pytest.raises(ValueRangeError, match="name of an agent"):
        add_submission(Submission("zoo:cartpole-dqn", "../a"), tmp_path / "a")
    with pytest.raises(BudgetError, match="all attacked at eps"):
        add_submission(Submission("zoo:cartpole-dqn", "a", eps=0.001), tmp_path / "a")


def test_a_training_record_is_what_says_how_an_agent_was_trained():
    assert what_card_says({"name": "certified, robust"})["trained_with"] is None
    record = {
        "algorithm": "ppo",
        "adversary": {"actor": "pa-ad"},
        "checkpoints": [{"seconds": {"agent": 60.0, "adversary": 30.0}}],
    }
    said = what_card_says({"training": record})
    assert said == {"trained_with": "ppo, against pa-ad", "training_seconds": 90.0}


def test_no_folder_of_a_machine_is_told():
    said = "<ModuleVictim card:/home/me/agent, mode> and learned:card=/tmp/adversary"
    assert _without_folders(said) == "<ModuleVictim card:agent, mode> and learned:card=adversary"
    assert _without_folders("robust-sarsa:critic=/a/b/mine,eps=0.1") == "robust-sarsa:critic=mine,eps=0.1"


def test_modules_that_a_card_or_a_folder_names_are_not_imported_without_trust(measured, tmp_path, monkeypatch):
    store, entry = measured
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lab_games.py").write_text("")
    env = {"id": "lab_games:CartPole-v1", "kwargs": SHORT}
    card = shutil.copytree(ZOO / "cartpole-dqn", tmp_path / "card")
    about = json.loads((card / "card.json").read_text())
    (card / "card.json").write_text(json.dumps({**about, "environment": {**about["environment"], **env}}))
    given = Submission(f"card:{card}", "dqn")
    with pytest.raises(
        TrustError, match=r"the card of card:.* names an environment of a module, 'lab_games:.*trust=True"
    ):
        add_submission(given, tmp_path / "new")
    folder = shutil.copytree(store / "dqn", tmp_path / "dqn")
    replace(entry, environment=env).write(folder)
    with pytest.raises(TrustError, match=r"dqn names an environment of a module, 'lab_games:.*trust=True"):
        add_attack("zoo:cartpole-dqn", folder, "noise:steps=2")
    assert "lab_games" not in sys.modules


@pytest.mark.slow
def test_every_attack_has_a_time_or_a_reason_and_none_is_played(tmp_path):
    given = Submission("zoo:cartpole-a2c", "a2c", env_kwargs={"max_episode_steps": 20})
    cost = submission_cost(given, tmp_path / "a2c")
    assert {part.name for part in cost.parts if not part.alone} | {*cost.left_out} == {*measure.ATTACKS}
    assert cost.known == 0 and all(part.left == 1 and part.seconds > 0 for part in cost.parts)
    assert "needs Q-values" in cost.left_out["min-q"] and not (tmp_path / "a2c").exists()


def test_the_price_of_what_is_no_submission_is_refused(tmp_path):
    with pytest.raises(ValueRangeError, match=r"got licence='Apache-2\.0'"):
        submission_cost(Submission("zoo:cartpole-a2c", "a2c", "Apache-2.0"), tmp_path / "a2c")
    assert not (tmp_path / "a2c").exists()


def test_the_minutes_are_enough_for_all_and_the_notes_say_why_others_do_not_apply():
    parts = (Cost("noise", 1, 48.0), Cost("square", 1, 4000.0), Cost("max-diff", 0, 0.0))
    cost = Costs(parts, "attacks", 1, left_out={"min-q": "no Q", "pgd": "no Q"})
    left = Deadline(60 * minutes_for(cost)).left * (1 - RANGE_SHARE) * (1 - CERTIFIED_SHARE)
    assert cost.seconds == 4048.0 < left
    first, second = cost.table().notes
    assert first.startswith("2 attacks are left, 1 are known: about 67 min ") and second == "min-q, pgd: no Q"
