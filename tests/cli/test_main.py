"""Errors of the library with the options of the command line."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from adv_wrappers.cli import main
from adv_wrappers.cli.main import BEGIN, by_option, option_names
from tests.every_case import every_case

DQN, A2C, PPO = ["--victim", "zoo:cartpole-dqn"], ["--victim", "zoo:cartpole-a2c"], ["--victim", "zoo:cartpole-ppo"]
EVALUATE = ["evaluate", "CartPole-v1", *DQN, "--episodes", "1"]
SUITE = ["suite", "CartPole-v1", *DQN]
CERTIFY = ["certify", "CartPole-v1", *PPO]
ADVERSARY = ["train-adversary", "CartPole-v1", *A2C, "--out", "o"]
AGENT = ["train-agent", "CartPole-v1", "--out", "o"]
RESILIENCE = ["resilience", "CartPole-v1", *PPO, "--out", "o"]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*EVALUATE, "--resume"], "--resume goes on with the rows of a folder: give --out"),
        ([*EVALUATE, "--by", "loss"], "--by loss needs the loss of states: give --measure"),
        ([*EVALUATE, "--measure", "own"], "as in --measure 0=1.5"),
        ([*EVALUATE, "--best-of", "9" * 9], "--best-of must be an integer from 1 to 1000000"),
        ([*EVALUATE, "--stats", "a"], "--stats goes with sb3:FILE.zip"),
        ([*EVALUATE[:2], "--victim", "onnx:a.onnx"], "onnx:a.onnx does not say what it returns: give --kind"),
        (
            [*EVALUATE[:2], "--victim", "nobody"],
            "a victim is 'zoo:NAME', 'card:FOLDER', 'hub:user/name@revision', 'sb3:FILE.zip', 'rllib:FOLDER', "
            "'rsl_rl:FILE.pt' or 'rl_games:FILE.pth'; commands that play ENV also take onnx:FILE or torchscript:FILE",
        ),
        (
            ["robot", "Hopper-v5", "--victim", "onx:walk.onnx"],
            "did you mean onnx:walk.onnx, as commands take it, or from_onnx('walk.onnx', ...) in Python?",
        ),
        ([*SUITE, "--eps", "-1"], "--eps must be a finite number from 0"),
        ([*SUITE, "--eps", "1", "--scale", "victim"], "--scale victim needs a victim with a unit of its own"),
        ([*CERTIFY, "--eps", "1", "--eps", "1"], "--eps must be different radii"),
        ([*CERTIFY, "--eps", "1", "--scale", "victim"], "--scale victim needs a victim"),
        (
            ["train-dynamics", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--random", "3", "--out", "o"],
            "--random must be",
        ),
        (["train-critic", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--eps", "-1", "--out", "o"], "--eps must be"),
        (
            ["certify", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "nan"],
            "--eps must be a finite number of at least 0",
        ),
        (
            ["certify", "CartPole-v1", "--victim", "zoo:cartpole-dqn", "--eps", "-1"],
            "--eps must be a finite number of at least 0, got -1",
        ),
        (ADVERSARY, "an adversary needs a budget: give --eps"),
        ([*ADVERSARY, "--eps", "1", "--device", "cuda:99"], "'cuda:99'"),
        ([*ADVERSARY, "--eps", "1", "--kind", "sa-rl", "--form", "target"], "--form goes with pa-ad and pa-ad-action"),
        ([*ADVERSARY, "--eps", "1", "--kind", "induce"], "use Valid() or L0(k), not Linf(eps=1.0, scale=None)"),
        (AGENT, "'pa-ad' needs a budget: give --eps"),
        ([*AGENT, "--eps", "-1"], "--eps must be a finite number from 0"),
        ([*AGENT, "--robust", "sa"], "--robust sa needs a budget: give --eps"),
        (
            [*AGENT, "--eps", "1", "--algorithm", "trpo"],
            "--algorithm must be 'ppo', 'a2c', 'dqn', 'td3', 'ddpg' or 'recurrent-ppo', got",
        ),
        ([*AGENT, "--eps", "1", "--adversary", "nobody"], "unknown adversary 'nobody': expected 'pa-ad', 'sa-rl', an"),
        ([*AGENT, "--adversary", "nobody"], "shift) or none"),
        (
            ["train-agent", "FrozenLake-v1", "--adversary", "none", "--out", "o"],
            "agents are trained on observations",
        ),
        ([*RESILIENCE, "--by", "q"], "worst-action --by q needs Q-values, and this victim has none: use --by policy"),
        ([*RESILIENCE, "--r-max", "nan"], "--r-max must be a finite number"),
        (
            [*RESILIENCE, "--how", "max-diff:eps=1", "--any-action"],
            "--any-action chooses what is induced, and so does --how",
        ),
        (
            [*RESILIENCE[:2], "--victim", "zoo:cartpole-dqn", "--out", "o", "--terminal", "--num-envs", "0"],
            "--num-envs",
        ),
        ([*RESILIENCE, "--any-action", "--by", "q"], "--by finds the worst action, --any-action leaves it"),
    ],
)
def test_arguments_are_said_as_options(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] in ("train-adversary", "train-agent", "resilience"):
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    done = invoke(*words)
    assert done.exit_code == 2 and message in done.output, done.output
    assert len([line for line in done.output.splitlines() if line.startswith("Error: ")]) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*EVALUATE, "--threat", "max-diff"], "max-diff needs a budget: eps=..., with norm=linf"),
        ([*EVALUATE, "--threat", "max-diff:eps=-1"], "Error: max-diff: eps must be a finite number"),
        (
            [*EVALUATE, "--threat", "worst-action:by=nonsense"],
            "worst-action: by must be 'q', ",
        ),
        (["evaluate", "CartPole-v1", *PPO, "--threat", "worst-action:by=q"], "by='q' needs Q-values"),
        ([*EVALUATE, "--threat", "noise:eps=1,scale=victim"], "scale='victim' needs a victim with a unit of its own"),
        ([*CERTIFY, "--eps", "0.1", "--attack", "pgd:by=1"], "pgd takes "),
        ([*AGENT, "--adversary", "max-diff:eps=-1"], "Error: max-diff: eps must be a finite number"),
        (["resilience", "CartPole-v1", *DQN, "--how", "max-diff", "--out", "o"], "eps=..., with norm=linf"),
        (["resilience", "CartPole-v1", *PPO, "--how", "worst-action:by=q", "--out", "o"], "use by='policy'"),
    ],
)
def test_a_threats_own_arguments_stay(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] in ("train-agent", "resilience"):
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    done = invoke(*words)
    assert done.exit_code == 2 and message in done.output, done.output


@every_case(
    ("message", "said"),
    [
        ("eps must be", "--eps must be"),
        ("the victim must be, and scale must be", "the victim must be, and scale must be"),
        ("give eps=", "give --eps"),
        ("give eps=, or by=.", "give --eps, or --by."),
        ("eps=1 is", "--eps 1 is"),
        ("at eps=0.5.", "at --eps 0.5."),
        ("terminal=True, r_max=None", "--terminal, r_max=None"),
        ("terminal=False", "terminal=False"),
        ("give quantize=False", "give --no-quantize"),
        ("by='q'", "--by q"),
        ("by='a b' or", "--by a b or"),
        ("restarts=0 and within=", "restarts=0 and within="),
        ("not Linf(eps=1.0, scale=None) or 'pgd:eps=1,by=q'", "not Linf(eps=1.0, scale=None) or 'pgd:eps=1,by=q'"),
        ("got 'by=q' of wrap(env, threat, by='q')", "got 'by=q' of wrap(env, threat, by='q')"),
        ("cannot read /tmp/by=4/out=x\n  here", "cannot read /tmp/by=4/out=x here"),
    ],
)
def test_arguments_in_a_message(message: str, said: str) -> None:
    options = option_names(main.commands["certify"]) | option_names(main.commands["resilience"])
    assert by_option(message, options) == said


def test_no_arguments_show_commands_to_begin_with() -> None:
    done = invoke()
    assert done.exit_code == 0 and done.output == BEGIN and all(len(line) <= 80 for line in BEGIN.splitlines())
    given = [shlex.split(line)[1:] for line in BEGIN.splitlines() if line.startswith("adv-wrappers ")]
    assert [words[0] for words in given] == ["demo", "evaluate", "report"]
    for name, *words in given:
        if name in main.commands:
            main.commands[name].make_context(name, words, click.Context(main, **main.context_settings))  # or raises
