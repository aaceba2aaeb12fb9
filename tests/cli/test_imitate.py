"""``adv-wrappers imitate``: of the zoo, of files, and what it refuses."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import adv_wrappers as adv
from adv_wrappers.cli import main

ZOO = ["imitate", "MountainCar-v0", "--victim", "zoo:mountaincar-dqn"]
TINY = ["--queries", "100", "--rounds", "1", "--episodes", "1"]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def test_an_agent_of_the_zoo(tmp_path: Path) -> None:
    out = tmp_path / "a,b"
    done = invoke(*ZOO, *TINY, "--threat", "fgsm:eps=0.01", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "fgsm:eps=0.01" in done.output and "equal actions: 0." in done.output and "under the attacks" in done.output
    command = done.output.splitlines()[-1].removeprefix("attack through it with: adv-wrappers ")
    assert f"victim='\"'\"'card:{out}'\"'\"'" in command or f"'card:{out}'" in command
    assert adv.load_victim(f"card:{out}").kind == "logits"


@pytest.mark.parametrize(
    "command", [["evaluate", "--threat", "noise:eps=0.1"], ["suite", "--eps", "0.1", "--attack", "noise"]]
)
def test_a_torchscript_file_takes_the_spaces_of_the_environment(tmp_path: Path, command: list[str]) -> None:
    net = nn.Sequential(nn.Linear(2, 3))
    with warnings.catch_warnings(action="ignore"):  # torch.jit is deprecated, and what people have
        torch.jit.trace(net, torch.zeros(1, 2)).save(str(tmp_path / "net.pt"))
    words = [*command, "MountainCar-v0", "--victim", f"torchscript:{tmp_path / 'net.pt'}", "--kind", "q"]
    kwargs = ["--env-kwargs", "max_episode_steps=5", "--episodes", "2", "--json"]
    done = invoke(*words, *kwargs)
    assert done.exit_code != 0 and "give trust=True" in done.output.replace("--trust", "trust=True")
    done = invoke(*words, *kwargs, "--trust")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["mean_return"] == -5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*ZOO, "--kind", "q"], "--kind goes with onnx:FILE and torchscript:FILE"),
        (["imitate", "MountainCar-v0", "--victim", "onnx:a.onnx"], "onnx:a.onnx does not say what it returns"),
        (
            ["imitate", "MountainCar-v0", "--victim", "onnx:a.onnx", "--kind", "q", "--stats", "a"],
            "--stats goes with sb3:FILE.zip",
        ),
        ([*ZOO, "--no-attacks", "--threat", "pgd:eps=1"], "--no-attacks leaves out what --threat asks for"),
        ([*ZOO, "--queries", "10"], "--queries must be at least 50 a round, so 350 with --rounds 6, got 10"),
    ],
)
def test_what_it_refuses(tmp_path: Path, words: list[str], message: str) -> None:
    done = invoke(*words, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2 and message in done.output
    assert not (tmp_path / "out").exists()
