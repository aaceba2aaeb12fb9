"""Errors of the library in the words of the command line: of real commands, and of every message that there is."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import adv_wrappers
from adv_wrappers.cli import main
from adv_wrappers.cli.messages import option_names, threat_words, translate

ROOT = Path(adv_wrappers.__file__).parent
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
        ([*EVALUATE, "--resume"], "--resume goes on with the report of a folder: give --out"),
        ([*EVALUATE, "--by", "loss"], "--by loss needs the loss of states: give --measure"),
        ([*EVALUATE, "--measure", "own"], "as in --measure 0=1.5"),
        ([*EVALUATE, "--best-of", "9" * 9], "--best-of must be an integer from 1 to 1000000"),
        ([*EVALUATE, "--stats", "a"], "--stats goes with sb3:FILE.zip"),
        ([*EVALUATE[:2], "--victim", "onnx:a.onnx"], "adv-wrappers imitate ENV --victim onnx:FILE --kind KIND --out"),
        ([*EVALUATE[:2], "--victim", "nobody"], "a victim is 'zoo:NAME', 'card:FOLDER' or 'sb3:FILE.zip'"),
        ([*SUITE, "--eps", "-1"], "--eps must be a finite number from 0"),
        ([*SUITE, "--eps", "1", "--scale", "victim"], "--scale victim needs a victim with a unit of its own"),
        ([*CERTIFY, "--eps", "1", "--eps", "1"], "--eps must be different radii"),
        ([*CERTIFY, "--eps", "1", "--scale", "victim"], "--scale victim needs a victim"),
        (["look", "CartPole-v1", "--raw"], "--raw takes the screen of an Atari game"),
        (["train-dynamics", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--random", "3", "--out", "o"], "--random, the"),
        (["train-critic", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--eps", "-1", "--out", "o"], "--eps must be"),
        (
            ["train-critic", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--robust-eps", "-1", "--out", "o"],
            "--robust-eps must be",
        ),
        (ADVERSARY, "train-adversary needs a budget: --eps"),
        ([*ADVERSARY, "--eps", "1", "--kind", "sa-rl", "--form", "target"], "--form goes with pa-ad and pa-ad-action"),
        ([*ADVERSARY, "--eps", "1", "--kind", "induce"], "use Valid() or L0(k), not Linf(eps=1.0, scale=None)"),
        (AGENT, "'pa-ad' needs a budget: --eps"),
        ([*AGENT, "--eps", "-1"], "--eps must be a finite number from 0"),
        ([*AGENT, "--robust", "sa"], "--robust sa needs a budget: --eps"),
        ([*AGENT, "--eps", "1", "--algorithm", "trpo"], "--algorithm must be 'ppo' or 'a2c' or 'dqn', got 'trpo'"),
        ([*AGENT, "--eps", "1", "--adversary", "nobody"], "unknown adversary 'nobody': expected 'pa-ad', 'sa-rl', an"),
        ([*AGENT, "--adversary", "nobody"], "shift) or none"),
        (["train-agent", "FrozenLake-v1", "--adversary", "none", "--out", "o"], "train-agent takes observations of"),
        ([*RESILIENCE, "--by", "q"], "worst-action --by q needs Q-values, and this victim has none: use --by policy"),
        ([*RESILIENCE, "--r-max", "nan"], "--r-max must be a finite number"),
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
        ([*EVALUATE, "--threat", "max-diff:eps=-1"], "Error: eps must be a finite number"),
        ([*EVALUATE, "--threat", "worst-action:by=nonsense"], "Error: by must be 'q', 'policy' or 'successor'"),
        (["evaluate", "CartPole-v1", *PPO, "--threat", "worst-action:by=q"], "by='q' needs Q-values"),
        ([*EVALUATE, "--threat", "noise:eps=1,scale=victim"], "scale='victim' needs a victim with a unit of its own"),
        ([*CERTIFY, "--eps", "0.1", "--attack", "pgd:by=1"], "pgd takes "),
        ([*AGENT, "--adversary", "max-diff:eps=-1"], "Error: eps must be a finite number"),
        (["look", "PongNoFrameskip-v4", "--threat", "fgsm:eps=1"], "as in the text 'fgsm:victim=zoo:NAME,...'"),
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


def test_a_flag_is_said_without_its_value() -> None:
    known = option_names(main.commands["certify"]) | option_names(main.commands["resilience"])
    for message, said in (
        ("what to do (quantize=False makes the space float32)", "what to do (--no-quantize makes the space float32)"),
        ("induce='any' leaves it", "--any-action leaves it"),
        (
            "terminal and r_max go together, got terminal=True, r_max=None",
            "terminal and --r-max go together, got --terminal, no --r-max",
        ),
        (
            "give least_reward=, or least_return= for a whole episode",
            "give --least-reward, or --least-return for a whole episode",
        ),
        ("make CartPole-v1 with max_episode_steps=", "give --env-kwargs max_episode_steps=N"),
        ("cannot read /tmp/steps=4/num_envs/out=x", "cannot read /tmp/steps=4/num_envs/out=x"),
        ("trust=True does so", "--trust does so"),
        ("give stats=FILE, or stats=False", "give --stats FILE, or sb3:FILE.zip?stats=none"),
    ):
        assert translate(message, known) == said


@functools.cache
def messages() -> dict[str, str]:
    """Texts of the errors that the package raises, by where they are; what is put into them is ``X``."""
    found = {}
    for path in ROOT.rglob("*.py"):
        if path.parent.name == "cli":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = node.exc.args[0]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                words = [str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts]
                found[f"{path.relative_to(ROOT)}:{node.lineno}"] = " ".join("".join(words).split())
    return found


@pytest.mark.parametrize("name", main.commands)
def test_no_message_names_an_argument_that_the_command_has_as_an_option(name: str) -> None:
    known = option_names(main.commands[name])
    said = {place: translate(text, known) for place, text in messages().items()}
    assert len(said) > 300
    left = {}
    for place, text in said.items():
        outside = re.sub(r"\w\([^()]*\)|'[^']*:[^']*'", "", text)  # calls, and texts of threats in quotes
        names = [word for word in re.findall(r"(?<![\w.?:,(;/'\"-])(\w+)=", outside) if word in known]
        left |= {place: (names, text)} if names else {}
    assert not left


def test_no_message_about_a_threat_changes_its_arguments() -> None:
    """But for sentences with calls in them, which no command can follow."""
    known, kept = option_names(main.commands["evaluate"]), threat_words()
    for place, text in messages().items():
        if place.startswith(("attacks/", "actions/", "timing")):
            for word in re.findall(r"(?<![\w.])(\w+)=", translate(text, {})):
                if word in kept:
                    assert f"{word}=" in translate(text, known, kept), place
