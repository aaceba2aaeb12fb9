"""``train-agent`` and ``train-dynamics``: tables, folders that resume, and commands that evaluate what was trained."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
from pathlib import Path

import gymnasium as gym
import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.training.folder import read_record
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.auxiliary_networks import load_dynamics

SETTINGS = "--transitions 200 --layers 0 --num-envs 2 --seed 3"
WORDS = ["train-dynamics", "Hopper-v5", "--victim", "zoo:hopper-ppo", *SETTINGS.split()]


@pytest.mark.slow
def test_a_model_is_learned_and_the_command_that_attacks_through_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gym.registry, "Hopper-v5", dataclasses.replace(gym.spec("Hopper-v5"), max_episode_steps=5))
    done = CliRunner().invoke(main, [*WORDS, "--out", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    model = load_dynamics(f"card:{tmp_path / 'model'}")
    assert model.features == 11 and model.card["training"]["transitions"] == 200
    assert model.card["network"]["nets"] == [[{"kind": "linear"}]]
    assert "one step" in done.output and "random" in done.output
    again = CliRunner().invoke(main, [*WORDS, "--out", str(tmp_path / "model")])
    assert again.output == done.output
    other = CliRunner().invoke(main, [*WORDS, "--noise", "0.1", "--out", str(tmp_path / "model")])
    assert other.exit_code == 2 and "another training, with training.noise 0.3 and not 0.1" in other.output
    [line] = [line for line in done.output.splitlines() if line.startswith("evaluate with: ")]
    program, *words = shlex.split(line.removeprefix("evaluate with: "))
    done = CliRunner().invoke(main, [*words, "--episodes", "1"])
    assert program == "adv-wrappers" and done.exit_code == 0, done.output
    assert "model-based" in done.output


def test_dynamics_are_of_continuous_actions() -> None:
    done = CliRunner().invoke(main, ["train-dynamics", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--out", "x"])
    assert done.exit_code == 2 and "continuous actions" in done.output


AGENT = ["train-agent", "CartPole-v1", "--num-envs", "2", "--steps", "256", "--checks", "2", "--episodes", "1"]


def evaluated(output: str) -> list[str]:
    """The threats of the printed command, which is run."""
    [line] = [line for line in output.splitlines() if line.startswith("evaluate with: ")]
    program, *words = shlex.split(line.removeprefix("evaluate with: "))
    done = CliRunner().invoke(main, [*words, "--episodes", "1"])
    assert program == "adv-wrappers" and done.exit_code == 0, done.output
    return [after for word, after in itertools.pairwise(words) if word == "--threat"]


@pytest.mark.slow
def test_an_agent_is_trained_and_the_command_that_evaluates_it_works(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    out = tmp_path / "an agent"
    words = [*AGENT, "--eps", "0.05", "--env-kwargs", "max_episode_steps=20", "--seed", "3", "--out", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    assert card["training"]["adversary"]["actor"] == "pa-ad" and card["training"]["seed"] == 3
    assert load_victim(f"card:{out}").kind == "logits" and [row["steps"] for row in read_record(out)] == [128, 256]
    assert done.output.count(" * ") == 1 and "attacked" in done.output and "worst case" not in done.output
    assert "* the best of 2 checkpoints by the mean of clean and attacked return, at " in done.output
    assert f"the agent is card:{out}" in done.output
    again = CliRunner().invoke(main, words)
    assert again.stdout == done.stdout  # how far it is, on standard error, is said where that takes long
    assert evaluated(done.output) == [f"learned:card={out / 'adversary'}", "pgd:eps=0.05"]
    done = CliRunner().invoke(main, [*words, "--rewards", "raw"])
    assert done.exit_code == 2 and "holds another training, with rewards 'normalized' and not 'raw'" in done.output


@pytest.mark.parametrize(
    ("words", "learned_by", "threats"),
    [
        pytest.param(
            ["--victim", "zoo:cartpole-ppo", "--robust", "radial", "--eps", "0.01"], "greedy", ["pgd:eps=0.01"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--algorithm", "dqn", "--robust", "sa", "--eps", "0.01", "--rewards", "raw"], "greedy", ["pgd:eps=0.01"],
            marks=pytest.mark.slow,
        ),
        (["--adversary", "none", "--algorithm", "a2c", "--observations", "raw"], "clean return", []),
        pytest.param(
            ["--adversary", "none", "--algorithm", "recurrent-ppo"], "clean return", [], marks=pytest.mark.slow
        ),
        pytest.param(
            ["--adversary", "pgd", "--eps", "0.1", "--select", "sample"], "attacked", ["pgd:eps=0.1"],
            marks=pytest.mark.slow,
        ),
        (["--adversary", "action-flip", "--when", "every(2)"], "attacked", ["action-flip:when=every(2)"]),
    ],
)  # fmt: skip
def test_what_an_agent_is_trained_by(words: list[str], learned_by: str, threats: list[str], tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    done = CliRunner().invoke(main, [*AGENT, "--env-kwargs", "max_episode_steps=20", *words, "--out", str(tmp_path)])
    assert done.exit_code == 0 and learned_by in done.output, done.output
    assert evaluated(done.output) == threats
    training = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))["training"]
    given = dict(zip(words[::2], words[1::2], strict=True))
    for option in ("--algorithm", "--rewards", "--observations", "--select"):
        if option in given:
            assert training[option.lstrip("-")] == given[option]
    assert ("robust" in training) == ("--robust" in given) and (training["victim"] is None) == ("--victim" not in given)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trust"], "--trust is for the file of --victim"),
        (["--stats", "a.pkl"], "--stats is for the file of --victim"),
        (["--scale", "victim"], "--scale victim needs --eps beside it"),
        (["--eps", "0.1", "--robust", "crown"], "'crown' is not one of 'radial', 'sa', 'wocar'"),
        (["--victim", "zoo:cartpole-ppo", "--observations", "raw"], "--observations is of a new agent"),
        (["--adversary", "none", "--when", "every(2)"], "--when is the timing of an adversary, and there is none"),
        (["--robust", "sa", "--eps", "0.1", "--when", "every(2)"], "--when is the timing of an adversary"),
        (["--algorithm", "recurrent-ppo", "--robust", "sa", "--eps", "0.1"], "not for recurrent-ppo: train against"),
        (
            ["--eps", "0.1", "--victim", "zoo:cartpole-dqn", "--algorithm", "ppo"],
            "expected an agent of PPO or A2C to begin from",
        ),
        (["--eps", "0.1", "--victim", "zoo:hopper-ppo"], "the victim zoo:hopper-ppo is for observation space"),
        (["--eps", "0.1", "--adversary", "pa-ad-action"], "agents are trained against actors on observations"),
    ],
)  # fmt: skip
def test_no_agent_is_trained_by_what_does_not_fit(words: list[str], message: str, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    done = CliRunner().invoke(main, [*AGENT, *words, "--out", str(tmp_path / "o")])
    assert done.exit_code == 2 and message in done.output, done.output
    assert not (tmp_path / "o").exists()
