"""What a shell completes: environments, victims and threats, by click's classes of the shells and in a real Bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import FishComplete, ZshComplete, get_completion_class

from adv_wrappers.cli import main
from adv_wrappers.cli.completion import WholeWords
from adv_wrappers.registry import NAMES
from adv_wrappers.victims import zoo_names


def completions(*words: str) -> list[str]:
    """What any shell is told of the last word."""
    *before, incomplete = words
    shell = ZshComplete(main, {}, "adv-wrappers", "_ADV_WRAPPERS_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


def bash(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What Bash is told of a line."""
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'><=;|&(:")
    shell = WholeWords(main, {}, "adv-wrappers", "_ADV_WRAPPERS_COMPLETE")
    return [line.partition(",")[2] for line in shell.complete().splitlines()]


def test_environments() -> None:
    assert completions("evaluate", "CartPole-v") == ["CartPole-v0", "CartPole-v1"]
    assert "ALE/Pong-v5" in completions("look", "ALE/P") and "PongNoFrameskip-v4" in completions("look", "Pong")
    assert "Hopper-v5" in completions("train-agent", "") and completions("suite", "no-such") == []


def test_environments_or_files() -> None:
    assert completions("report", "CartPole-v1") == ["CartPole-v1"]
    shell = ZshComplete(main, {}, "adv-wrappers", "_ADV_WRAPPERS_COMPLETE")
    assert [item.type for item in shell.get_completions(["report"], "runs/ro")] == ["file"]


def test_victims_of_the_zoo_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "agent").mkdir(parents=True)
    (tmp_path / "runs" / "agent" / "card.json").write_text("{}")
    for name in ("runs/sac.zip", "runs/sac.txt", ".hidden.zip"):
        (tmp_path / name).write_text("")
    words = ["suite", "CartPole-v1", "--victim"]
    kinds = ["card:", "hub:", "onnx:", "rl_games:", "rllib:", "rsl_rl:", "sb3:", "torchscript:"]
    assert completions(*words, "") == [*kinds, *(f"zoo:{name}" for name in zoo_names())]
    assert completions(*words, "zoo:cartpole-d") == ["zoo:cartpole-dqn"]
    assert completions(*words, "card:ru") == ["card:runs/"] and completions(*words, "card:runs/a") == [
        "card:runs/agent"
    ]
    assert completions(*words, "sb3:runs/") == ["sb3:runs/agent/", "sb3:runs/sac.zip"]
    assert completions(*words, "sb3:") == ["sb3:runs/"]
    assert completions("imitate", "CartPole-v1", "--victim", "on") == ["onnx:"]
    assert completions("resilience", "CartPole-v1", "--transfer", "zoo:hop") == ["zoo:hopper-ppo"]


def test_suites_and_presets() -> None:
    assert completions("suite", "CartPole-v1", "--suite", "da") == ["daylight"]
    assert set(NAMES) <= set(completions("evaluate", "CartPole-v1", "--threat", ""))
    assert completions("look", "CartPole-v1", "--threat", "noise:eps=1 + pg") == ["noise:eps=1 + pgd"]


def test_bash_is_told_what_stands_behind_the_last_place_where_it_breaks_words(monkeypatch: pytest.MonkeyPatch) -> None:
    assert get_completion_class("bash") is WholeWords
    assert bash(monkeypatch, "adv-wrappers evaluate CartPole-v1 --victim zoo:cartpole-d") == ["cartpole-dqn"]
    assert bash(monkeypatch, "adv-wrappers suite CartPole-v1 --suite=day") == ["daylight"]
    assert bash(monkeypatch, "adv-wrappers suite CartPole-v1 --suite day") == ["daylight"]
    assert bash(monkeypatch, "adv-wrappers evalu") == ["evaluate"]
    assert "CartPole-v1" in bash(monkeypatch, "adv-wrappers evaluate ")
    monkeypatch.setenv("COMP_LINE", "adv-wrappers evaluate CartPole-v1 --victim zoo:cartpole-d")
    assert (
        "zoo"
        in FishComplete(main, {}, "adv-wrappers", "X")
        .get_completions(["evaluate", "CartPole-v1", "--victim"], "zoo:cartpole-d")[0]
        .value
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs Bash")
def test_a_real_bash_completes_a_victim(tmp_path: Path) -> None:
    program = tmp_path / "adv-wrappers"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m adv_wrappers "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_ADV_WRAPPERS_COMPLETE=bash_source adv-wrappers)"
        COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:'
        COMP_LINE='adv-wrappers suite CartPole-v1 --victim zoo:cartpole-d' COMP_POINT=${#COMP_LINE}
        COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(adv-wrappers suite CartPole-v1 --victim zoo : cartpole-d) COMP_CWORD=6
        _adv_wrappers_completion adv-wrappers
        echo "${COMPREPLY[@]}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout == "cartpole-dqn\n", done.stderr
