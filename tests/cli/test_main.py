"""Errors of the library with the options of the command line: of real commands, and of every message that there is."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import adv_wrappers
from adv_wrappers.cli import main
from adv_wrappers.cli.main import BEGIN, by_option, option_names
from adv_wrappers.errors import Argument, Message, Words

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
        ([*EVALUATE, "--resume"], "--resume goes on with the rows of a folder: give --out"),
        ([*EVALUATE, "--by", "loss"], "--by loss needs the loss of states: give --measure"),
        ([*EVALUATE, "--measure", "own"], "as in --measure 0=1.5"),
        ([*EVALUATE, "--best-of", "9" * 9], "--best-of must be an integer from 1 to 1000000"),
        ([*EVALUATE, "--stats", "a"], "--stats goes with sb3:FILE.zip"),
        ([*EVALUATE[:2], "--victim", "onnx:a.onnx"], "adv-wrappers imitate ENV --victim onnx:FILE --kind KIND --out"),
        (
            [*EVALUATE[:2], "--victim", "nobody"],
            "a victim is 'zoo:NAME', 'card:FOLDER', 'sb3:FILE.zip' or 'rllib:FOLDER'",
        ),
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
        ([*ADVERSARY, "--eps", "1", "--device", "cuda:99"], "'cuda:99'"),
        ([*ADVERSARY, "--eps", "1", "--kind", "sa-rl", "--form", "target"], "--form goes with pa-ad and pa-ad-action"),
        ([*ADVERSARY, "--eps", "1", "--kind", "induce"], "use Valid() or L0(k), not Linf(eps=1.0, scale=None)"),
        (AGENT, "'pa-ad' needs a budget: --eps"),
        ([*AGENT, "--eps", "-1"], "--eps must be a finite number from 0"),
        ([*AGENT, "--robust", "sa"], "--robust sa needs a budget: --eps"),
        (
            [*AGENT, "--eps", "1", "--algorithm", "trpo"],
            "--algorithm must be 'ppo' or 'a2c' or 'dqn' or 'td3' or 'ddpg' or 'recurrent-ppo', got",
        ),
        ([*AGENT, "--eps", "1", "--adversary", "nobody"], "unknown adversary 'nobody': expected 'pa-ad', 'sa-rl', an"),
        ([*AGENT, "--adversary", "nobody"], "shift) or none"),
        (["train-agent", "FrozenLake-v1", "--adversary", "none", "--out", "o"], "train-agent takes observations of"),
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


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([Argument("eps"), " must be"], "--eps must be"),
        (["give ", Argument("eps", ...)], "give --eps"),
        ([Argument("eps", 1.0), " is"], "--eps 1 is"),
        ([Argument("eps", 0.5), " is"], "--eps 0.5 is"),
        ([Argument("terminal", True), ", ", Argument("r_max", None)], "--terminal, no --r-max"),
        ([Argument("terminal", False)], "no --terminal"),
        (["give ", Argument("quantize", False)], "give --no-quantize"),
        ([Argument("by", "q")], "--by q"),
        ([Argument("restarts", 0), " and ", Argument("within", ...)], "restarts=0 and within="),
        (["cannot read /tmp/by=4/out=x\n  here"], "cannot read /tmp/by=4/out=x here"),
        (["give ", Words("within=", "--eps")], "give --eps"),
        ([Message("a ", Message(Argument("by"), " b")), " c"], "a --by b c"),
    ],
)
def test_arguments_in_a_message(parts: list, said: str) -> None:
    options = option_names(main.commands["certify"]) | option_names(main.commands["resilience"])
    assert by_option(Message(*parts), options) == said


@functools.cache
def written() -> dict[str, list[ast.expr]]:
    """What messages of errors and warnings are written of, by where they are: constants and what is put into them."""
    found = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            name = getattr(getattr(call, "func", None), "id", getattr(getattr(call, "func", None), "attr", ""))
            if isinstance(call, ast.Call) and call.args and (name.endswith("Error") or name in ("warn", "Message")):
                found[f"{path.relative_to(ROOT)}:{node.lineno}"] = call.args if name == "Message" else call.args[:1]
    return found


def texts(expression: ast.expr) -> str:
    """The constant text of an expression; what is put into it is ``X``."""
    parts = expression.values if isinstance(expression, ast.JoinedStr) else [expression]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in parts)


# whose messages are about a threat, a plan or a value of a class, which write arguments like Python everywhere
OTHERS = (
    "adversaries", "attacks", "atari", "cli", "core/perturbation", "core/timing", "daylight", "environments/ids",
    "evaluation/beam", "faults/actuators", "studies/cells", "studies/plan", "studies/runner", "studies/suite",
    "threats", "training/defences/dqn", "training/defences/losses", "victims/smoothed",
)  # fmt: skip


def test_no_message_has_an_argument_in_its_text_that_a_command_has_as_an_option() -> None:
    known = {name for command in main.commands.values() for name in option_names(command)}
    assert len(written()) > 700
    left = {}
    for place, expressions in written().items():
        for text in map(texts, expressions):
            outside = re.sub(r"\w\([^()]*\)|'[^']*:[^']*'", "", text)  # calls, and texts of threats in quotes
            names = [word for word in re.findall(r"(?<![\w.?:,(;/'\"-])(\w+)=", outside) if word in known]
            names += [word for word in re.findall(r"^(\w+)(?=, the | must | goes )", outside) if word in known]
            if names and not place.startswith(OTHERS):
                left[place] = (names, text)
    assert not left


def test_no_arguments_show_commands_to_begin_with() -> None:
    done = invoke()
    assert done.exit_code == 0 and done.output == BEGIN and all(len(line) <= 80 for line in BEGIN.splitlines())
    given = [shlex.split(line)[1:] for line in BEGIN.splitlines() if line.startswith("adv-wrappers ")]
    assert [words[0] for words in given] == ["demo", "evaluate", "report"]
    for name, *words in given:
        if name in main.commands:
            main.commands[name].make_context(name, words)  # raises for wrong usage
