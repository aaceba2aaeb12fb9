"""Advice can be followed as it stands: its commands name the agent, and folders that are free."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from click.testing import CliRunner

import adv_wrappers as adv
from adv_wrappers.cli.main import main
from adv_wrappers.studies.report.advice import NextStep, hardening, own_training
from adv_wrappers.studies.report.choices import AdvisedTraining
from adv_wrappers.studies.report.sections import read_reports

LAST = "adv-wrappers report CartPole-v1 --victim zoo:cartpole-dqn --out {} --minutes 2"


def advised(folder: Path, command: str = "", units: Any = None, **training: Any) -> list[NextStep]:
    choices = {"training": {"by": "radial", **training}, "minutes": 2, "scale": units}
    (folder / "choices.json").write_text(json.dumps({"command": command, **choices}))
    (agent,) = read_reports(folder).agents
    return hardening(agent, 0.125)


def test_folders_are_free_whatever_is_there(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    out = "a folder; of mine"
    Path(out).mkdir(parents=True, exist_ok=True)
    seen = set[str]()
    for _ in range(2):
        train, again, both = (shlex.split(step.command) for step in advised(folder, LAST.format(shlex.quote(out))))
        agent, report, page = train[-1], again[-1], both[-1]
        assert not {agent, report, page} & seen and not any(map(os.path.lexists, (agent, report, page)))
        assert again[again.index("--victim") + 1] == f"card:{agent}" and both[2:4] == [out, report]
        assert Path(agent).parent == Path(out).parent
        seen |= {agent, report, page}
        Path(agent).symlink_to("nothing")


def test_the_environment_and_the_file_of_the_agent_are_those_of_the_report(folder: Path) -> None:
    words = "--env-kwargs '{\"sutton_barto_reward\": true}' --make gymnasium:make --trust --select sample"
    command = f"adv-wrappers report CartPole-v1 --victim sb3:a.zip --stats 'a b.pkl' {words} --out x --minutes 2"
    train, again, both = (step.command for step in advised(folder, command))
    assert f"CartPole-v1 --victim sb3:a.zip --stats 'a b.pkl' {words} --robust radial --eps 0.125" in train
    assert "--stats" not in again and "--trust" not in again and "sb3" not in again
    assert "--make gymnasium:make --select sample --victim card:" in again and "--minutes 2" in again
    assert both.startswith("adv-wrappers report x ") and "--make gymnasium:make --trust" in both


def test_the_module_of_an_environment_is_trusted_where_two_reports_are_compared(folder: Path) -> None:
    advised(folder, LAST.format("x"))
    (agent,) = read_reports(folder).agents
    elsewhere = replace(agent.report, env={**agent.report.env, "id": "mine:CartPole-v1"})
    assert "--trust" in hardening(replace(agent, report=elsewhere), 0.1)[-1].command


def test_what_was_tried_is_said(folder: Path) -> None:
    first = advised(folder, tried=["wocar", "sa", "wocar"])[0]
    assert "against errors of this size, by radial (tried before: wocar, sa); 1,000,000 steps" in first.what
    assert "--eps 0.125 " in first.command and "--steps 1000000" in first.command


def test_an_agent_goes_on_as_it_learned(folder: Path) -> None:
    how = {"algorithm": "dqn", "rewards": "raw", "gamma": 0.98}
    assert "--eps 0.125 --algorithm dqn --rewards raw --gamma 0.98 --steps" in advised(folder, **how)[0].command
    assert not {"--algorithm", "--rewards", "--gamma"} & {*shlex.split(advised(folder)[0].command)}


def test_the_time_of_reports_and_of_their_comparison_is_said(folder: Path) -> None:
    _, again, both = advised(folder, LAST.format("x"))
    assert again.what.endswith(", in 2 min") and "in at most 2 min" in both.what
    assert "--minutes 2" in again.command and "--minutes 2" in both.command


def test_no_command_is_made_of_what_has_no_name(folder: Path) -> None:
    (agent,) = read_reports(folder).agents
    training = AdvisedTraining("radial")
    played = replace(agent.choices, training=training, command="adv.report(victim, 'CartPole-v1', out='x')")
    nameless = replace(agent.report, victim={**agent.report.victim, "ref": None})
    made = replace(agent.report, env={**agent.report.env, "make": "lambda"})
    known = replace(agent, choices=played)
    assert hardening(known, 0.1)
    assert not hardening(replace(agent, choices=played, report=nameless), 0.1)
    assert not hardening(replace(agent, choices=replace(played, command=LAST.format("x")), report=made), 0.1)
    assert not hardening(replace(agent, choices=replace(played, training=AdvisedTraining())), 0.1)


def test_commands_are_commands(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Each is taken by the command line: the training begins, and the others say what is not there yet."""
    pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    train, again, both = (shlex.split(step.command)[1:] for step in advised(folder, LAST.format("cartpole")))
    train[train.index("--steps") + 1] = "64"
    small = ["--num-envs", "2", "--checks", "1", "--episodes", "1"]
    done = CliRunner().invoke(main, [*train, *small])
    assert done.exit_code == 0, done.output
    assert adv.load_victim("card:hardened").discrete
    assert again[again.index("--victim") + 1] == "card:hardened"
    done = CliRunner().invoke(main, both)
    assert "hardened-report" in done.output and done.exit_code == 2


def test_the_line_for_a_training_of_ones_own_runs(folder: Path) -> None:
    """It attacks the agent that learns, in the units of the report."""
    sb3 = pytest.importorskip("stable_baselines3")
    (agent,) = read_reports(folder).agents
    choices = replace(agent.choices, scale=(1.0, 2.0, 3.0, 4.0))
    named = replace(agent.report, victim={**agent.report.victim, "ref": "sb3:mine.zip"})
    row = next(row for row in agent.attacked if row.attack == "fgsm")
    wrap = own_training(replace(agent, choices=choices, report=named), 0.25, row, "this size")
    env = gym.make("CartPole-v1")
    model = sb3.PPO("MlpPolicy", env, n_steps=16, batch_size=16, device="cpu")
    names: dict[str, Any] = {"adv": adv, "env": env, "model": model}
    exec(wrap.command, names)
    threat = names["env"].threat
    assert threat.budget == adv.Linf(0.25, (1.0, 2.0, 3.0, 4.0)) and threat.when == adv.Bernoulli(0.5)
    names["env"].reset(seed=0)
    names["env"].close()

    other = replace(agent.report, victim={**agent.report.victim, "ref": None})
    alone = own_training(replace(agent, choices=choices, report=other), 0.25, row, "this size")
    assert alone.command.endswith("victim=victim)") and "live=True" in alone.what
