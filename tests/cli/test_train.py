"""``train-dynamics``: a table of errors, a model that resumes, and the command that attacks through it."""

from __future__ import annotations

import shlex
from pathlib import Path

from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.victims.dynamics import load_dynamics

SETTINGS = "--transitions 400 --layers 0 --num-envs 2 --seed 3"
WORDS = ["train-dynamics", "Hopper-v5", "--victim", "zoo:hopper-ppo", *SETTINGS.split()]


def test_a_model_is_learned_and_the_command_that_attacks_through_it_works(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [*WORDS, "--out", str(tmp_path / "model")])
    assert done.exit_code == 0, done.output
    model = load_dynamics(f"card:{tmp_path / 'model'}")
    assert model.features == 11 and model.card["training"]["transitions"] == 400 and not model.card["network"]["hidden"]
    assert "one step" in done.output and "random" in done.output
    again = CliRunner().invoke(main, [*WORDS, "--out", str(tmp_path / "model")])
    assert again.output == done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("evaluate with: ")]
    program, *words = shlex.split(line.removeprefix("evaluate with: "))
    done = CliRunner().invoke(main, [*words, "--episodes", "1"])
    assert program == "adv-wrappers" and done.exit_code == 0, done.output
    assert "model-based" in done.output


def test_other_settings_are_refused(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, [*WORDS, "--out", str(tmp_path)]).exit_code == 0
    done = CliRunner().invoke(main, [*WORDS, "--noise", "0.1", "--out", str(tmp_path)])
    assert done.exit_code == 2 and "belongs to something else" in done.output
    done = CliRunner().invoke(main, ["train-dynamics", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--out", "x"])
    assert done.exit_code == 2 and "continuous actions" in done.output
