"""Advice can be followed as it stands: its commands name the agent, folders that are free, and their price."""

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


def test_its_price_stands_in_the_advice(folder: Path) -> None:
    (known, *_), (unknown, *_) = (advised(folder, **more) for more in ({"seconds": 0.0024}, {}))
    assert (
        "1,000,000 steps, and they take about 40 min on this machine" in known.what
        and "--steps 1000000" in known.command
    )
    assert "1,000,000 steps, and the command says after the first rollout how long they take" in unknown.what


def test_what_was_tried_is_said_and_the_size_is_no_larger_than_it_should_be(folder: Path) -> None:
    first = advised(folder, tried=["wocar", "sa"], most=0.05)[0]
    assert "against errors of a smaller size, by radial (tried before: wocar, sa)" in first.what
    assert "(tried before: wocar)" in advised(folder, tried=["wocar", "wocar"])[0].what
    assert "--eps 0.05 " in first.command and "--eps 0.125 " in advised(folder, most=0.5)[0].command


def test_an_agent_goes_on_as_it_learned(folder: Path) -> None:
    how = {"algorithm": "dqn", "rewards": "raw", "gamma": 0.98}
    assert "--eps 0.125 --algorithm dqn --rewards raw --gamma 0.98 --steps" in advised(folder, **how)[0].command
    assert not {"--algorithm", "--rewards", "--gamma"} & {*shlex.split(advised(folder)[0].command)}


def test_the_time_of_reports_and_of_their_comparison_is_said(folder: Path) -> None:
    _, again, both = advised(folder, LAST.format("x"))
    assert again.what.endswith(", in 2 min") and "in at most 2 min" in both.what
    assert "--minutes 2" in again.command and "--minutes 2" in both.command


def test_a_worse_agent_is_left_for_the_one_that_it_was_trained_from(folder: Path) -> None:
    """What comes of that is compared with it, and not with the worse one."""
    known = {"begins_with": "zoo:cartpole-a2c", "most": 0.05, "scale": [1, 2, 3, 4], "tried": ["radial"], "by": "sa"}
    own, words = (9, 9, 9, 9), LAST.format("x") + " --seed 3"
    train, again, both = advised(folder, words, own, **known, report="before")
    assert "earns much less than zoo:cartpole-a2c" in train.what
    assert "a smaller size, by sa (tried before: radial)" in train.what
    assert "CartPole-v1 --victim zoo:cartpole-a2c --robust sa --eps 0.05 --scale '1;2;3;4' --steps" in train.command
    assert "--victim card:hardened " in again.command
    assert both.command.startswith("adv-wrappers report before hardened-report ") and "zoo:cartpole-a2c" in both.what
    train, again = advised(folder, words, own, **known)
    assert "train-agent" in train.command and "report CartPole-v1" in again.command, "there is none to compare with"


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


class NamedPole(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole in two parts, which no command trains an agent for."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1", max_episode_steps=20))
        whole = self.env.observation_space
        assert isinstance(whole, gym.spaces.Box)
        low, high = whole.low, whole.high
        parts = {name: gym.spaces.Box(low[i::2], high[i::2]) for i, name in enumerate(("position", "velocity"))}
        self.observation_space = gym.spaces.Dict(parts)

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"position": observation[::2], "velocity": observation[1::2]}


def test_the_line_for_a_training_of_ones_own_runs(tmp_path: Path, monkeypatch: Any) -> None:
    """It attacks the agent that learns, in the parts and units of the report."""
    sb3 = pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    model = sb3.PPO("MultiInputPolicy", NamedPole(), n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.save("mine.zip")
    threats = ["fgsm:eps=0.5,scale=1;2;3;4,at=position;velocity"]
    victim = adv.load_victim("sb3:mine.zip")
    monkeypatch.setitem(gym.registry, "NamedPole-v0", gym.envs.registration.EnvSpec("NamedPole-v0", NamedPole))
    adv.evaluate(victim, "NamedPole-v0", threats, episodes=2, out="rows")
    (agent,) = read_reports(tmp_path / "rows").agents
    command = "adv-wrappers report mine:NamedPole-v0 --victim sb3:mine.zip --minutes 1 --out mine-report"
    choices = replace(agent.choices, command=command, scale=(1.0, 2.0, 3.0, 4.0), minutes=1)
    named = replace(agent.report, victim={**agent.report.victim, "ref": "sb3:mine.zip"})
    (row,) = agent.attacked
    wrap, learn, again, both = own_training(replace(agent, choices=choices, report=named), 0.25, row, "this size")

    names: dict[str, Any] = {"adv": adv, "model": model, "env": NamedPole()}
    exec(wrap.command, names)
    model.set_env(names["env"])
    exec(learn.command.replace("1000000", "16"), names)
    threat = names["env"].threat
    assert threat.budget == adv.Linf(0.25, (1.0, 2.0, 3.0, 4.0)) and threat.when == adv.Bernoulli(0.5)
    assert adv.load_victim("sb3:hardened.zip").observation_space == victim.observation_space
    assert shlex.split(again.command)[:5] == [
        "adv-wrappers",
        "report",
        "mine:NamedPole-v0",
        "--victim",
        "sb3:hardened.zip",
    ]
    assert shlex.split(both.command)[2:4] == ["mine-report", "hardened-report"] and "--trust" not in both.command
    names["env"].close()
    elsewhere = replace(named, env={**named.env, "id": "mine:NamedPole-v0"})
    assert "--trust" in own_training(replace(agent, choices=choices, report=elsewhere), 0.25, row, "")[-1].command

    other = replace(agent.report, victim={**agent.report.victim, "ref": None})
    (alone,) = own_training(replace(agent, choices=choices, report=other), 0.25, row, "this size")
    assert alone.command.endswith("victim=victim)") and "live=True" in alone.what
