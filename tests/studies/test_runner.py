"""run: equal rows whoever plays, several runs on one store, deaths, failures and interruptions."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import pytest

import adv_wrappers
from adv_wrappers.errors import OutputError, ValueRangeError, WorkerError
from adv_wrappers.evaluation import cell_loop
from adv_wrappers.evaluation.executor import Processes
from adv_wrappers.evaluation.rows import store as store_module
from adv_wrappers.studies import Plan, Store, expand, run, runner
from adv_wrappers.studies.cell_player import CellPlayer, CellPlayerSetup
from adv_wrappers.utils.pace import progress_lines
from tests.evaluation.agents import balancing
from tests.every_case import every_case
from tests.executors import LastFirst
from tests.processes import python

DQN, HOPPER = "zoo:cartpole-dqn", "zoo:hopper-ppo"
SHORT, HOPS = ({"id": id, "kwargs": {"max_episode_steps": 20}} for id in ("CartPole-v1", "Hopper-v5"))
BRIEF = {"id": "CartPole-v1", "kwargs": {"max_episode_steps": 2}}
ATTACKED = {"threats": ["noise", "max-diff:steps=2"], "budgets": ["eps=0.1"], "seeds": [0, 1], "episodes": 2}
PLAN = sum(
    (Plan.of(victims=[name], environments=[env], **ATTACKED) for name, env in ((DQN, SHORT), (HOPPER, HOPS))),
    Plan(()),
)
MANY = Plan.of(victims=[DQN], environments=[SHORT], threats=["noise:eps=0.1"], seeds=range(5), episodes=1)


def rows(store):
    """Every row without its time, by what it is."""
    found = {}
    for about, row in store.rows():
        what = (about["victim"]["ref"], about["seed"], row["threat"])
        assert what not in found
        found[what] = {**row, "ms_per_step": 0}
    return found


class Failing(gym.Wrapper):
    """CartPole of 20 steps that raises, or kills its process, at a step."""

    def __init__(self, how, at):
        super().__init__(gym.make("CartPole-v1", max_episode_steps=20))
        self.how, self.at, self.steps = how, at, 0

    def reset(self, **given):
        self.steps = 0
        return super().reset(**given)

    def step(self, action):
        self.steps += 1
        if self.steps == self.at and self.how.startswith("raises"):
            raise RuntimeError("no more")
        if self.steps == self.at and self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def failing(how):
    environment = {"id": "CartPole-v1", "kwargs": {"how": how}, "make": f"{__name__}:make_failing"}
    return Plan.of(victims=[DQN], environments=[environment], episodes=1)


def make_failing(id, how):
    return Failing(how, 3)


def test_processes_play_the_same_rows(tmp_path):
    seen = []
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        first = run(PLAN, one, progress=lambda *at: seen.append(at))
        second = run(PLAN, two, workers=2)
        assert rows(one) == rows(two) and len(rows(one)) == 12
        assert first.played == second.played == 12 and not first.failed and first.known == 0
        assert run(PLAN, two, workers=2).known == 12 and seen[0] == (0, 0, 12) and seen[-1] == (12, 0, 12)
    assert "12 cells played" in str(first)


def names(store):
    return [[row["threat"] for row in report.threats] for report in store.reports()]


def test_rows_have_the_order_of_the_plan_whichever_is_played_first(tmp_path):
    plan = Plan.of(victims=[DQN], environments=[SHORT], **ATTACKED)
    ordered = [str(cell) for cell in expand(plan).cells]
    with Store(tmp_path / "rows.db") as store, closing(CellPlayer()) as player:
        assert run(plan, store, LastFirst(player)).played == 6
        assert [cell.name for cell in store.played()] == ordered
        assert names(store) == [["none", "noise:eps=0.1", "max-diff:steps=2,eps=0.1"]] * 2
        # a later plan has them the other way round, and one more between them
        given = {**ATTACKED, "threats": ["max-diff:steps=2", "pgd", "noise"], "seeds": [1, 0]}
        assert run(Plan.of(victims=[DQN], environments=[SHORT], **given), store, LastFirst(player)).known == 6
        assert [report.seed for report in store.reports()] == [1, 0]
        assert names(store) == [["none", "max-diff:steps=2,eps=0.1", "pgd:eps=0.1", "noise:eps=0.1"]] * 2
    with Store(tmp_path / "rows.db", read_only=True) as store:
        assert names(store)[0][2] == "pgd:eps=0.1"


def test_cells_that_fail_have_the_order_of_the_plan():
    plan = sum((failing(how) for how in ("raises", "is fine", "raises later")), Plan(()))
    with Store(":memory:") as store, closing(CellPlayer()) as player:
        found = run(plan, store, LastFirst(player))
        assert [name.partition("how=")[2][:8] for name in found.failed] == ["'raises'", "'raises "]
        assert [*store.errors()] == [*found.failed]


def test_a_long_run_says_how_far_it_is(monkeypatch, capsys):
    class Slow(CellPlayer):
        def play(self, cell):
            end.wait(60)  # until a line came
            return super().play(cell)

    def write(line):
        written.append(line)
        end.set()

    end, written = threading.Event(), []
    monkeypatch.setattr(runner, "progress_lines", lambda: progress_lines(write, 0.0))
    plan = Plan.of(victims=[DQN], environments=[SHORT], episodes=1)
    with Store(":memory:") as store, closing(Slow()) as player:
        run(plan, store, LastFirst(player))
    assert written[0].startswith("cells: 0 of 1 after ")
    assert inspect.signature(progress_lines).parameters["every"].default == 10
    with Store(":memory:") as store:
        run(plan, store, progress=lambda *_: None)
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_two_runs_share_a_store(tmp_path):
    script = f"""
from adv_wrappers.studies import Plan, Store, run
from tests.studies.test_runner import MANY
with Store({str(tmp_path / "rows.db")!r}) as store:
    print(run(MANY, store).played)
"""
    with ThreadPoolExecutor(2) as threads:
        played = [int(done.stdout) for done in threads.map(python, [script] * 2)]
    with Store(tmp_path / "rows.db") as store, Store(":memory:") as alone:
        run(MANY, alone)
        assert sum(played) == 10 and rows(store) == rows(alone)


def test_a_run_that_is_killed_goes_on(tmp_path, monkeypatch):
    # its claims are free as soon as the other run waits for them
    monkeypatch.setattr(cell_loop.time, "sleep", lambda _: monkeypatch.setattr(store_module, "_STALE", 0.0))
    script = f"""
import os, signal
from adv_wrappers.studies import Store, run
from tests.studies.test_runner import MANY
with Store({str(tmp_path / "rows.db")!r}) as store:
    run(MANY, store, progress=lambda done, *_: done >= 5 and os.kill(os.getpid(), signal.SIGKILL))
"""
    assert python(script).returncode == -signal.SIGKILL
    with Store(tmp_path / "rows.db") as store, Store(":memory:") as alone:
        again = run(MANY, store)
        run(MANY, alone)
        assert 5 <= again.known < 10 and again.known + again.played == 10 and rows(store) == rows(alone)


def test_a_cell_that_fails_is_kept_with_its_error_and_tried_again(tmp_path):
    plan = failing("raises") + Plan.of(victims=[DQN], environments=[SHORT], episodes=1)
    with Store(tmp_path / "rows.db") as store:
        found = run(plan, store)
        name = f"{DQN} on CartPole-v1 (how='raises', made by {__name__}:make_failing), none, seed 0"
        assert found.played == 1 and found.failed == store.errors() and {*found.failed} == {name}
        assert "step of CartPoleEnv (CartPole-v1) raised RuntimeError: no more" in found.failed[name]
        assert run(plan, store).known == 1
    assert "1 failed" in str(found)


def test_what_has_changed_since_the_plan_was_expanded_is_not_played(tmp_path):
    def put(name):
        shutil.rmtree(tmp_path / "agent", ignore_errors=True)
        shutil.copytree(Path(adv_wrappers.__file__).parent / "zoo" / name, tmp_path / "agent")

    put("cartpole-a2c")
    plan = Plan.of(victims=[f"card:{tmp_path / 'agent'}"], threats=["noise:eps=0.1"], episodes=1)
    with Store(":memory:") as store:
        cells = expand(plan)
        put("cartpole-ppo")
        found = run(cells, store)
        assert found.played == 0 and len(found.failed) == 2
        assert all("is not what it was when the plan was expanded" in error for error in found.failed.values())
        assert run(plan, store).played == 2


@pytest.mark.slow
def test_processes_find_what_a_relative_path_names(tmp_path, monkeypatch):
    with Store(":memory:") as store:
        run(MANY, store, 2)  # processes that began elsewhere
    shutil.copytree(Path(adv_wrappers.__file__).parent / "zoo" / "cartpole-a2c", tmp_path / "agent")
    monkeypatch.chdir(tmp_path)
    plan = Plan.of(victims=["card:agent"], threats=["noise:eps=0.1"], episodes=1)
    with Store(":memory:") as store:
        assert run(plan, store, 2).played == 2


@every_case("workers", [None, "2", 0, True, 1.5])
def test_workers_are_a_number(workers):
    with pytest.raises(ValueRangeError, match="workers"), Store(":memory:") as store:
        run(PLAN, store, workers)


def test_a_process_that_dies_is_replaced(tmp_path):
    plan = failing("dies") + Plan.of(victims=[DQN], environments=[SHORT], seeds=range(5), episodes=1)
    with Store(tmp_path / "rows.db") as store:
        found = run(plan, store, workers=2)
        assert found.played == 5
        assert [*found.failed.values()] == ["WorkerError: the process that plays it died 3 times"]


def test_victims_that_are_handed_over(tmp_path):
    plan = Plan.of(victims=["mine"], environments=[SHORT], threats=["noise:eps=0.1"], episodes=2)
    with Store(tmp_path / "one.db") as one, Store(tmp_path / "two.db") as two:
        run(plan, one, victims={"mine": balancing()})
        run(plan, two, 2, victims={"mine": balancing()})
        assert rows(one) == rows(two)

    class Local(type(balancing())):
        pass

    agent = balancing()
    agent.__class__ = Local
    with Store(":memory:") as store, pytest.raises(WorkerError, match="the victim mine cannot be sent"):
        run(plan, store, 2, victims={"mine": agent})


def test_an_interruption_gives_claims_back(tmp_path):
    def stop(done, *_):
        if done >= 3:
            raise KeyboardInterrupt

    with Store(tmp_path / "rows.db") as store:
        with pytest.raises(KeyboardInterrupt):
            run(MANY, store, progress=stop)
        assert len(store) >= 3
        left = [cell.key for cell in expand(MANY).cells]
        with Store(tmp_path / "rows.db") as other:
            other.owner = "elsewhere:1:1"
            assert len(other.claim(left)) == 10 - len(store)


def test_rows_that_cannot_be_written_come_with_the_error(tmp_path):
    plan = Plan.of(victims=[DQN], environments=[BRIEF], episodes=400)  # whose row takes more than a page
    with Store(tmp_path / "rows.db") as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(OutputError, match="full") as raised:
            run(plan, store)
        assert len(raised.value.report[0].row["returns"]) == 400 and len(store) == 0


def test_players_close_their_environments_and_keep_the_last():
    with closing(CellPlayer()) as player:
        first, *_, last = expand(PLAN).cells
        assert player.play(first).row is not None
        venv = player._player.venv
        assert player.play(first).row is not None and player._player.venv is venv
        assert player.play(last).row is not None and player._player.venv is not venv
    with pytest.raises(ValueRangeError, match="nothing is open"):
        print(player._player.venv)


def test_processes_hold_two_cells_each():
    cell = expand(PLAN).cells[0]
    with closing(Processes(1, CellPlayerSetup({}))) as processes:
        assert processes.free() == 2
        processes.submit(cell)
        assert processes.free() == 1
        assert processes.collect(300)[0].value().key == cell.key and processes.free() == 2
