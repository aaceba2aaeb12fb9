"""Ctrl-C: one line that says what is kept and how it goes on, status 130, and a command that does go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path

import gymnasium as gym
import pytest
from click.testing import CliRunner
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv

from adv_wrappers.cli import main
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.utils import processes
from adv_wrappers.utils.processes import pool_of

DQN = ["--victim", "zoo:cartpole-dqn"]
EVALUATE = ["evaluate", "Interrupted-v0", *DQN, "--episodes", "2", "--num-envs", "1"]
THREATS = ["--threat", "noise:eps=0.1", "--threat", "noise:eps=0.2"]


class Interrupt:
    """Sends SIGINT to this process at a step of all environments together, as a terminal does at Ctrl-C."""

    at: int | None = None
    steps = 0

    @classmethod
    def count(cls) -> None:
        cls.steps += 1
        if cls.steps == cls.at:
            os.kill(os.getpid(), signal.SIGINT)


class Pole(CartPoleEnv):
    def step(self, action):
        Interrupt.count()
        return super().step(action)


class Leg(HopperEnv):
    def step(self, action):
        Interrupt.count()
        return super().step(action)


@pytest.fixture(autouse=True)
def environments() -> Iterator[None]:
    """CartPole of exactly five steps, Hopper of at most ten, which count the steps; SIGINT is Python's own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    gym.register("Interrupted-v0", entry_point=Pole, max_episode_steps=5)
    gym.register("InterruptedLeg-v0", entry_point=Leg, max_episode_steps=10)
    Interrupt.at, Interrupt.steps = None, 0
    yield
    del gym.registry["Interrupted-v0"], gym.registry["InterruptedLeg-v0"]
    signal.signal(signal.SIGINT, before)


def invoke(*words: str, at: int | None = None):
    Interrupt.at, Interrupt.steps = at, 0
    return CliRunner().invoke(main, [*words])


def said(done) -> str:
    """The line of an interrupted command."""
    assert done.exit_code == 130, done.output
    assert "Traceback" not in done.output and "Error" not in done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("Interrupted: ")]
    return line.removeprefix("Interrupted: ")


def test_evaluate_without_a_folder() -> None:
    line = said(invoke(*EVALUATE, *THREATS, at=15))
    assert line == "nothing is kept; with --out FOLDER the same command with --resume would go on"


def test_evaluate_keeps_the_rows_that_are_finished_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "o"
    words = [*EVALUATE, *THREATS, "--out", str(out)]
    assert said(invoke(*words, at=3)) == f"{out} keeps rows.db; the same command with --resume goes on from there"
    line = said(invoke(*words, at=25))  # the first five steps twice, and two episodes of five steps a row
    assert line == f"{out} keeps report.json, rows.db; the same command with --resume goes on from there"
    assert len(Report.from_json(out / "report.json").threats) == 1
    line = said(invoke(*words, "--resume", at=25))
    assert line == f"{out} keeps report.json, rows.db; the same command goes on from there"
    assert len(Report.from_json(out / "report.json").threats) == 2
    done = invoke(*words, "--resume")
    assert done.exit_code == 0 and Interrupt.steps == 20 and len(Report.from_json(out / "report.json").threats) == 3


def test_certify(tmp_path: Path) -> None:
    words = ["certify", "CartPole-v1", "--victim", "zoo:cartpole-ppo", "--episodes", "1", "--max-nodes", "1"]
    words += ["--method", "interval", "--eps", "0.1", "--eps", "0.2", "--attack", "noise", "--out", str(tmp_path / "o")]

    def stop(name: str, done: int, whole: int) -> None:
        if name.startswith("noise"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adv_wrappers.cli.certify.show_progress", lambda: contextlib.nullcontext(stop))
        line = said(invoke(*words))
    assert "ranges.json" in line and line.endswith("; the same command goes on from there")
    done = invoke(*words)
    assert done.exit_code == 0 and "zoo:cartpole-ppo on CartPole-v1, 1 episodes, seed 0" in done.output, done.output
    assert [one["eps"] for one in json.loads((tmp_path / "o" / "ranges.json").read_text())["ranges"]] == [0.1, 0.2]
    assert (tmp_path / "o" / "ranges.png").read_bytes()[1:4] == b"PNG"


def test_train_agent(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    words = ["train-agent", "Interrupted-v0", "--adversary", "none", "--steps", "128", "--num-envs", "1", "--out"]
    words += [str(tmp_path / "o"), "--checks", "2", "--episodes", "2"]
    assert said(invoke(*words, at=3)).endswith("keeps nothing yet; the same command begins anew")
    line = said(invoke(*words, at=100))  # a checkpoint at step 64, and its two episodes
    assert "state.json" in line and line.endswith("; the same command goes on from there")
    assert invoke(*words).exit_code == 0 and Interrupt.steps == 64 + 30  # first steps, two side by side, two episodes


def test_train_dynamics_and_train_critic(tmp_path: Path) -> None:
    leg = ["InterruptedLeg-v0", "--victim", "zoo:hopper-ppo", "--num-envs", "1", "--out", str(tmp_path / "o")]
    words = ["train-dynamics", *leg, "--transitions", "200", "--layers", "0"]
    assert said(invoke(*words, at=3)).endswith("keeps nothing yet; the same command begins anew")
    line = said(invoke(*words, at=190))
    assert line.startswith(f"{tmp_path / 'o'} keeps state.json, trajectories-") and line.endswith("goes on from there")
    assert invoke(*words).exit_code == 0
    words = ["train-critic", *leg[:-1], str(tmp_path / "critic"), "--one", "--steps", "64"]
    assert said(invoke(*words, at=3)).endswith("keeps nothing yet; the same command begins anew")


def test_a_command_that_keeps_nothing_says_that_it_was_interrupted() -> None:
    """Outside of what is resumable too: here the interruption comes while the victim is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adv_wrappers.cli.evaluate.load_agent", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        assert said(invoke(*EVALUATE)) == "by the user"


def test_a_module_in_c_that_is_interrupted_while_it_is_imported() -> None:
    """It raises an ImportError, as mujoco does."""

    def load(*_: object, **__: object) -> None:
        try:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as error:
                raise ImportError("initialization failed") from error
        except ImportError as error:
            raise ImportError("initialization failed") from error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adv_wrappers.cli.evaluate.load_agent", load)
        assert said(invoke(*EVALUATE)) == "by the user"


def test_worker_processes_end_with_an_interruption() -> None:
    """Those that wait for work too, which otherwise take apart what they have imported before the command may end."""
    pool = pool_of(1)
    pool.submit(os.getpid).result()
    [worker] = pool._processes.values()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("adv_wrappers.cli.evaluate.load_agent", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        assert said(invoke(*EVALUATE)) == "by the user"
    assert wait([worker.sentinel], 60) and 1 not in processes._pools


PROGRAM = """
import atexit, os, signal, sys
from adv_wrappers.cli import evaluate as evaluation, main

class Module:
    def __del__(self):
        print("taken apart", flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
kept = Module()
atexit.register(print, "at exit")
if sys.argv[1] == "interrupted":
    evaluation.load_agent = lambda *_: os.kill(os.getpid(), signal.SIGINT)
    atexit.register(os.kill, os.getpid(), signal.SIGINT)  # once more while it ends
main(["evaluate", "CartPole-v1", "--victim", "zoo:nobody"])
"""


@pytest.mark.parametrize(
    ("how", "status", "written", "line"),
    [
        ("interrupted", 130, ["at exit"], "Interrupted: by the user\n"),
        pytest.param("not", 2, ["at exit", "taken apart"], "Error: no agent 'nobody'", marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_program_ends_before_its_modules_are_taken_apart(
    how: str, status: int, written: list[str], line: str
) -> None:
    """That takes seconds where torch is imported; what was to be done at the exit is done."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True)
    assert done.returncode == status and done.stdout.splitlines() == written and line in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
