"""Rows that a folder keeps are taken over, those of other runs are not, and none is lost."""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.attacks.targets import VictimValue
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import OutputError, StoreError, ValueRangeError
from adv_wrappers.evaluation import evaluator
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.victims import Victim
from tests.evaluation.agents import Film, balancing, make_short, short, watcher

NOISE, FGSM, WORST = "noise:eps=0.4", "fgsm:eps=0.3", "worst-action"
KEPT = {"report.json", "rows.db"}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One item a run that is played."""
    runs: list[Any] = []
    made = evaluator.CellRun
    monkeypatch.setattr(evaluator, "CellRun", lambda i, *how: (runs.append(i), made(i, *how))[1])
    return runs


def untimed(report: Report) -> Report:
    return dataclasses.replace(
        report, threats=tuple(dataclasses.replace(row, ms_per_step=0.0) for row in report.threats)
    )


def test_only_what_is_missing_is_played_and_the_report_is_the_same(
    victim: Victim, played: list[Any], tmp_path: Path
) -> None:
    how: dict[str, Any] = {"episodes": 4, "seed": 3, "num_envs": 2}
    idle = adv.threat("max-diff", victim, eps=1e-13)
    first = adv.evaluate(victim, short, [NOISE, idle], out=tmp_path, **how)
    assert len(played) == 3 and any("came out unchanged" in warning for warning in first.warnings)
    received: list[tuple[str, int, int]] = []
    wanted = [FGSM, idle, NOISE, [NOISE, WORST]]
    how |= {"minimum": WORST}
    more = adv.evaluate(
        victim, short, wanted, out=tmp_path, resume=True, progress=lambda *at: received.append(at), **how
    )
    assert len(played) == 3 + 3 and {at[0] for at in received if 0 < at[1] < 4} == {WORST, FGSM, f"{NOISE} + {WORST}"}
    assert [at for at in received if at[0] == NOISE] == [(NOISE, 0, 4), (NOISE, 4, 4)]  # bars are full at once
    assert untimed(more) == untimed(adv.evaluate(victim, short, wanted, **how))
    assert Report.from_json(tmp_path / "report.json") == more and {path.name for path in tmp_path.iterdir()} == KEPT
    again = adv.evaluate(victim, short, wanted, out=tmp_path, resume=True, **how)
    assert again == more and len(played) == 6 + 6


class Stopped(Exception):
    """What ends an evaluation from outside."""


def test_an_interruption_leaves_no_fewer_rows(victim: Victim, tmp_path: Path) -> None:
    def until(name: str, threats: list[str]) -> list[str]:
        def stop(threat: str, done: int, whole: int) -> None:
            if threat == name:
                raise Stopped

        with pytest.raises(Stopped):
            adv.evaluate(victim, short, threats, 2, out=tmp_path, resume=True, progress=stop)
        return [row["threat"] for row in Report.from_json(tmp_path / "report.json").threats]

    assert until("fgsm:eps=0.1", [NOISE, FGSM, "fgsm:eps=0.1"]) == ["none", NOISE, FGSM]
    assert until("none", [NOISE, FGSM, "fgsm:eps=0.1"]) == ["none", NOISE, FGSM]
    assert until("fgsm:eps=0.1", ["fgsm:eps=0.1", FGSM, NOISE]) == ["none", FGSM, NOISE]
    assert {path.name for path in tmp_path.iterdir()} == KEPT


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1}, {"quantize": False}, {"distances": ["ssim"]},
        {"victim": lambda: balancing("q", sharpness=2.0)}, {"victim": lambda: balancing("q", "sample")},
    ],
    ids=["seed", "quantize", "distances", "weights", "select"],
)  # fmt: skip
def test_rows_of_other_runs_are_played_and_kept(change: dict[str, Any], played: list[Any], tmp_path: Path) -> None:
    film = "victim" not in change
    how: dict[str, Any] = {"victim": filmed() if film else balancing("q"), "env": Film if film else short}
    how |= {"episodes": 2, "num_envs": 2, "threats": ["noise:eps=3"], "distances": (), "out": tmp_path, "resume": True}
    first = adv.evaluate(**how)
    other = adv.evaluate(**{**how, **change, **({} if film else {"victim": change["victim"]()})})
    assert len(played) == 4 and Report.from_json(tmp_path / "report.json") == other
    assert adv.evaluate(**how) == first == Report.from_json(tmp_path / "report.json") and len(played) == 4
    with Store(tmp_path / ROWS_FILE) as store:
        assert len(store) == 4


def test_what_another_function_makes_is_another_environment(played: list[Any], tmp_path: Path) -> None:
    how: dict[str, Any] = {"victim": balancing("q"), "env": "CartPole-v1", "episodes": 1, "threats": [NOISE]}
    how |= {"out": tmp_path, "resume": True}
    whole = adv.evaluate(**how)
    assert whole.env == {"id": "CartPole-v1", "kwargs": {}} and whole.threats[0]["mean_length"] > 40
    made = adv.evaluate(**how, make=make_short)
    assert made.env["make"] == "tests.evaluation.agents:make_short" and made.threats[0]["mean_length"] == 40
    named = adv.evaluate(**how, make=MakeFunction("tests.evaluation.agents:make_short"))
    assert len(played) == 4 and named == made and Report.from_json(tmp_path / "report.json") == made
    for steps in (30, 20):  # the names of these do not tell them apart
        partly = adv.evaluate(**how, make=functools.partial(make_short, steps=steps))
        whole = adv.evaluate(**{**how, "env": functools.partial(make_short, "CartPole-v1", steps)})
        assert partly.threats[0]["mean_length"] == whole.threats[0]["mean_length"] == steps
    assert len(played) == 4 + 8


def tanh_or_relu(kind: type[nn.Module]) -> Victim:
    """Of equal weights, whatever the activation."""
    torch.manual_seed(0)
    env = short()
    net = nn.Sequential(nn.Linear(4, 8), kind(), nn.Linear(8, 2))
    return adv.from_module(net, env.observation_space, env.action_space, "logits")


def test_an_attack_through_another_victim_is_known_by_all_of_it(played: list[Any], tmp_path: Path) -> None:
    how: dict[str, Any] = {"victim": balancing(), "env": short, "episodes": 2, "out": tmp_path, "resume": True}
    for kind in (nn.Tanh, nn.ReLU):
        adv.evaluate(**how, threats=[adv.threat("fgsm", tanh_or_relu(kind), eps=0.3)])
    assert len(played) == 3
    law = watcher(Film(gym.spaces.Box(-1.0, 1.0, (4,), np.float32)))
    for _ in range(2):  # a function
        adv.evaluate(**how, threats=[adv.threat("noise", eps=0.3), adv.threat("square", law, eps=0.3, queries=2)])
    assert len(played) == 3 + 2 + 1


def test_a_victim_with_a_function_beside_its_network_is_played_again(played: list[Any], tmp_path: Path) -> None:
    env = short()
    net = nn.Linear(4, 2)
    for slope in (1.0, 2.0):
        agent = adv.from_module(
            lambda x, slope=slope: slope * x[:, :2], env.observation_space, env.action_space, "logits", value=net
        )
        adv.evaluate(agent, short, episodes=1, out=tmp_path, resume=True)
    assert len(played) == 2


def test_a_card_that_was_edited_is_another_victim(played: list[Any], tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    shutil.copytree(Path(adv.__file__).parent / "zoo" / "cartpole-a2c", agent)
    card = json.loads((agent / "card.json").read_text())
    for clip in (10.0, 0.01):
        card["observation"] |= {"mean": [0.0] * 4, "std": [1.0] * 4, "clip": clip}
        (agent / "card.json").write_text(json.dumps(card))
        adv.evaluate(f"card:{agent}", short, episodes=1, out=tmp_path / "rows", resume=True)
    assert len(played) == 2


def test_losses_of_other_functions_and_victims_are_other_rows(played: list[Any], tmp_path: Path) -> None:
    how: dict[str, Any] = {"victim": balancing("q"), "env": short, "episodes": 1, "out": tmp_path, "resume": True}
    for index in (0, 1):
        adv.evaluate(**how, measure=lambda x, index=index: x[..., index])
    assert len(played) == 2
    for agent in (balancing("q", sharpness=2.0), balancing("q", sharpness=3.0), balancing("q", sharpness=3.0)):
        report = adv.evaluate(**how, measure=VictimValue(agent))
    assert len(played) == 4 and str(report.measure).startswith("victim-value of ModuleVictim ")


def test_keyword_arguments_of_numpy_are_told_apart(played: list[Any], tmp_path: Path) -> None:
    how: dict[str, Any] = {"victim": balancing(), "env": mapped, "episodes": 1, "out": tmp_path, "resume": True}
    for place in (3, 5, 5):
        steps = np.zeros(2000)
        steps[1000] = place
        report = adv.evaluate(**how, env_kwargs={"steps": steps, "more": np.int64(1)})
        assert report.threats[0]["mean_length"] == place + 1
    assert len(played) == 2 and Report.from_json(tmp_path / "report.json").env == report.env
    for _ in range(2):  # an object that nothing is known of
        adv.evaluate(**how, env_kwargs={"steps": np.ones(3), "more": object()})
    assert len(played) == 4


def mapped(steps: Any, more: object) -> gym.Env[Any, Any]:
    return make_short("CartPole-v1", int(steps.sum()) + 1)


def filmed() -> Victim:
    """One with weights, that acts by them on pictures."""
    torch.manual_seed(0)
    film = Film()
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 12 * 16, 2))
    return adv.from_module(net, film.observation_space, film.action_space, "q", dtype=torch.float32)


def test_rows_are_those_of_the_same_release(
    victim: Victim, played: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"episodes": 2, "out": tmp_path, "resume": True}
    first = adv.evaluate(victim, short, [FGSM], **how)
    monkeypatch.setattr("adv_wrappers.evaluation.evaluator.versions", lambda: {**first.versions, "torch": "0.1"})
    again = adv.evaluate(victim, short, [FGSM], **how)
    assert len(played) == 2 + 2 and untimed(again).threats == untimed(first).threats
    with Store(tmp_path / ROWS_FILE) as store:
        assert [report.versions["torch"] for report in store.reports()] == [first.versions["torch"], "0.1"]


def test_a_threat_that_is_given_twice_has_two_rows(victim: Victim, played: list[Any], tmp_path: Path) -> None:
    for resume in (False, True):
        report = adv.evaluate(victim, short, [NOISE, NOISE], 2, out=tmp_path, resume=resume)
        assert [row["threat"] for row in report.threats] == ["none", NOISE, f"{NOISE} #2"]
    assert len(played) == 3


def test_without_resume_rows_are_replaced(victim: Victim, played: list[Any], tmp_path: Path) -> None:
    for _ in range(2):
        report = adv.evaluate(victim, short, [NOISE], 2, out=tmp_path)
    with Store(tmp_path / ROWS_FILE) as store:
        assert [row["ms_per_step"] for _, row in store.rows()] == [row["ms_per_step"] for row in report.threats]
    assert len(played) == 4


@pytest.mark.parametrize("rows", [0, 1])
def test_a_row_that_cannot_be_stored_comes_with_the_error(
    rows: int, victim: Victim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, tried = Store.add, list[int]()

    def full(self: Store, played: Any, replace: bool = False) -> None:
        tried.append(len(played))
        if len(tried) > rows:  # no row fits but an empty one
            played = [dataclasses.replace(one, about={"padding": " " * 100_000}) for one in played]
            [pages] = self._connection.execute("PRAGMA page_count").fetchone()
            self._connection.execute(f"PRAGMA max_page_count = {pages}")
        add(self, played, replace)

    monkeypatch.setattr(Store, "add", full)
    with pytest.raises(OutputError, match="full") as raised:
        adv.evaluate(victim, short, [NOISE, FGSM], 1, out=tmp_path)
    assert [row["threat"] for row in raised.value.report.threats] == ["none", NOISE][: rows + 1]
    monkeypatch.undo()
    again = adv.evaluate(victim, short, [NOISE, FGSM], 1, out=tmp_path, resume=True)
    assert [row["threat"] for row in again.threats] == ["none", NOISE, FGSM]


def test_what_a_file_cannot_tell_apart_is_played_again(victim: Victim, played: list[Any], tmp_path: Path) -> None:
    def nothing(x: Any, context: Any) -> Any:
        return x

    bare = adv.ThreatModel("observation", nothing, adv.Linf(0.1))
    for _ in range(2):
        adv.evaluate(victim, short, [bare], 2, out=tmp_path / "a", resume=True)
    assert len(played) == 2 + 1
    for _ in range(2):
        adv.evaluate(watcher(Film()), Film, ["noise:eps=3"], 2, out=tmp_path / "b", resume=True)
    assert len(played) == 3 + 4


def test_folders_that_cannot_be_gone_on_with(victim: Victim, played: list[Any], tmp_path: Path) -> None:
    with pytest.raises(ValueRangeError, match="give out="):
        adv.evaluate(victim, short, resume=True)
    (tmp_path / ROWS_FILE).write_text("[" * 5000)
    for resume in (False, True):
        with pytest.raises(StoreError, match="is damaged, or no store"):
            adv.evaluate(victim, short, out=tmp_path, resume=resume)
    assert played == [] and (tmp_path / ROWS_FILE).read_text() == "[" * 5000
