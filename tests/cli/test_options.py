"""ENV, --env-kwargs, --make and --trust: what they read, what they refuse, and that every command passes them on."""

from __future__ import annotations

import copy
import pickle
import shlex
import sys
from pathlib import Path

import click
import gymnasium as gym
import pytest
from click.testing import CliRunner
from torch import nn

from adv_wrappers.cli import main
from adv_wrappers.cli.options import repeated
from adv_wrappers.cli.signatures import command
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import SpaceError
from adv_wrappers.evaluation.rows.report import Report
from tests.every_case import every_case

VICTIM = ["--victim", "zoo:cartpole-dqn"]
EVALUATE = ["evaluate", "CartPole-v1", *VICTIM, "--episodes", "1"]
PLACE = """
import gymnasium as gym

calls = []


def short(id, steps=7, **kwargs):
    calls.append((id, steps, kwargs))
    return gym.wrappers.TimeLimit(gym.make(id, **kwargs), steps)


class Shelf:
    short = staticmethod(short)
"""


class Swish(nn.SiLU):
    """A class that is none of torch's, so that a file with it holds code."""


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def read(*words: str) -> list[object]:
    """What the options of an environment read."""
    seen: list[object] = []

    @command("play", "adv_wrappers.evaluate:env,env_kwargs,make", group=click.Group())
    def play(**given: object) -> None:
        seen.append(given)

    done = CliRunner().invoke(play, ["Some-v0", *words])
    return seen if done.exit_code == 0 else [done.output]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory."""
    name = f"place_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(PLACE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


@every_case(
    ("text", "found"),
    [
        ("frameskip=4,mode=1", {"frameskip": 4, "mode": 1}),
        ("size=8;9, name='a,b',on=true,off=none", {"size": (8, 9), "name": "a,b", "on": True, "off": None}),
        ('{"size": [8, 9], "inner": {"a": 1.5}}', {"size": [8, 9], "inner": {"a": 1.5}}),
        ("{}", {}),
        ("", {}),
    ],
)
def test_arguments_of_an_environment(text: str, found: dict[str, object]) -> None:
    assert read("--env-kwargs", text) == [{"env": "Some-v0", "env_kwargs": found, "make": None}]
    assert read() == [{"env": "Some-v0", "env_kwargs": None, "make": None}]


@every_case(
    ("option", "text", "message"),
    [
        ("--env-kwargs", "frameskip", "cannot read 'frameskip': expected key=value"),
        ("--env-kwargs", "a b=1", "cannot read 'a b=1'"),
        ("--env-kwargs", "a=1,a=2", "a is given twice"),
        ("--env-kwargs", "a=(1", "unbalanced quote or bracket"),
        ("--env-kwargs", '{"a": ', "cannot read the dictionary"),
        ("--make", "gymnasium", "expected module:name, got 'gymnasium'"),
        ("--make", ":make", "expected module:name, got ':make'"),
        ("--make", "no_such_module:make", "cannot import 'no_such_module'"),
        ("--make", "gymnasium:no_such_name", "'gymnasium' has no 'no_such_name'"),
        ("--make", "math:pi", "expected a function, 'math:pi' is 3.14"),
    ],
)
def test_mistakes_are_one_line(option: str, text: str, message: str) -> None:
    done = invoke(*EVALUATE, option, text)
    assert done.exit_code == 2 and message in done.output and "Traceback" not in done.output
    assert done.output.splitlines()[-1].startswith(f"Error: Invalid value for '{option}'")


def test_a_function_of_the_current_directory_is_called_with_the_arguments(module: str, tmp_path: Path) -> None:
    words = ["--make", f"{module}:short", "--env-kwargs", "steps=5", "--out", str(tmp_path / "o")]
    done = invoke(*EVALUATE, *words)
    assert done.exit_code == 0, done.output
    report = Report.from_json(tmp_path / "o" / "report.json")
    assert report.threats[0]["lengths"] == [5] and report.env == {
        "id": "CartPole-v1",
        "kwargs": {"steps": 5},
        "make": f"{module}:short",
    }
    assert MakeFunction(f"{module}:Shelf.short")("CartPole-v1").spec.id == "CartPole-v1"


def test_a_function_that_fails_is_one_line(module: str) -> None:
    done = invoke(*EVALUATE, "--make", f"{module}:short", "--env-kwargs", "colour=red")
    assert done.exit_code == 2 and f"Error: {module}:short cannot make 'CartPole-v1' with" in done.output
    done = invoke(*EVALUATE, "--make", "math:sin")
    assert done.exit_code == 2 and "math:sin cannot make 'CartPole-v1' with {}: TypeError" in done.output


def test_a_function_goes_to_workers_by_its_name() -> None:
    make = MakeFunction("gymnasium:make")
    assert pickle.loads(pickle.dumps(make)) == make == copy.deepcopy(make) and make.function is gym.make
    with pytest.raises(SpaceError, match="module:name"):
        MakeFunction("gymnasium:")


def test_words_for_another_command() -> None:
    [found] = read("--env-kwargs", "a=1", "--make", "gymnasium:make")
    assert repeated({**found, "trust": True}) == [
        "--env-kwargs",
        "a=1",
        "--make",
        "gymnasium:make",
        "--trust",
    ]
    assert repeated({"env_kwargs": None, "make": None, "trust": False}) == []


HOPPER = ["Hopper-v5", "--victim", "zoo:hopper-ppo"]
CARTPOLE = ["CartPole-v1", *VICTIM]
COMMANDS = {
    "evaluate": [*CARTPOLE, "--episodes", "1"],
    "suite": [*CARTPOLE, "--eps", "0.1", "--attack", "noise", "--episodes", "1"],
    "certify": [*CARTPOLE, "--eps", "0.1", "--attack", "noise", "--episodes", "1"],
    "look": ["PongNoFrameskip-v4", "--step", "1", "--threat", "shift"],
    "imitate": [*CARTPOLE, "--queries", "60", "--rounds", "0", "--episodes", "1", "--out", "o"],
    "resilience": [*CARTPOLE, "--steps", "8", "--out", "o"],
    "robustness": [*CARTPOLE, "--steps", "8", "--budget", "1", "--out", "o"],
    "train-adversary": [*CARTPOLE, "--kind", "sa-rl", "--eps", "0.1", "--steps", "8", "--out", "o"],
    "train-agent": [*CARTPOLE, "--algorithm", "dqn", "--eps", "0.1", "--steps", "8", "--out", "o"],
    "train-critic": [*HOPPER, "--one", "--steps", "8", "--out", "o"],
    "train-dynamics": [*HOPPER, "--transitions", "100", "--out", "o"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_passes_arguments_and_function_on(name: str, module: str, tmp_path: Path) -> None:
    """The environment's own error says what it was made with, before anything is trained."""
    if name in ("resilience", "robustness", "train-adversary", "train-agent"):
        pytest.importorskip("stable_baselines3")
    done = invoke(name, *COMMANDS[name], "--make", f"{module}:short", "--env-kwargs", "colour=red")
    assert done.exit_code == 2 and "'colour': 'red'" in done.output, done.output
    assert f"{module}:short cannot make '{COMMANDS[name][0]}'" in done.output
    done = invoke(name, *COMMANDS[name], "--env-kwargs", '{"colour": "red"}')
    assert done.exit_code == 2 and "colour" in done.output and "Traceback" not in done.output


@every_case("name", [name for name in COMMANDS if name != "look"])
def test_every_command_has_trust(name: str) -> None:
    flags = {flag for parameter in main.commands[name].params for flag in parameter.opts}
    assert {"--trust", "--stats", "--env-kwargs", "--make"} <= flags


def test_a_file_with_code_is_read_with_trust_alone(tmp_path: Path) -> None:
    """The next command that a training prints trusts it too."""
    sb3 = pytest.importorskip("stable_baselines3")
    kwargs = {"activation_fn": Swish, "net_arch": [4]}
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, policy_kwargs=kwargs, device="cpu")
    model.save(tmp_path / "model.zip")
    words = ["CartPole-v1", "--victim", f"sb3:{tmp_path / 'model.zip'}", "--episodes", "1"]
    done = invoke("evaluate", *words)
    assert done.exit_code == 2 and "can only be read from a pickle. --trust does so" in done.output, done.output
    done = invoke("evaluate", *words, "--trust")
    assert done.exit_code == 0, done.output
    more = ["--kind", "sa-rl", "--eps", "0.1", "--steps", "8", "--num-envs", "1", "--checks", "1"]
    done = invoke("train-adversary", *words, *more, "--trust", "--out", str(tmp_path / "adversary"))
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("evaluate with: ")]
    again = invoke(*shlex.split(line.removeprefix("evaluate with: adv-wrappers ")), "--episodes", "1")
    assert "--trust" in line and again.exit_code == 0, again.output
