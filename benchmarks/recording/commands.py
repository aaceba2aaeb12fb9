"""What commands print, how they exit, and which files they leave."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.recording.values import Items, Value, in_folder, inner, untimed

COMMANDS = {  # calls that follow one another in an empty folder
    "threats": ["threats", "threats --json"],
    "victims": ["victims", "victims --json"],
    "nothing": ["", "--version"],
    "evaluate": [
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --threat noise:eps=0.1 --episodes 2 --json --out o",
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --threat flip --episodes 2 --json --out o --resume",
        "report o --out page.html",
    ],
    "evaluate the best of three": [
        "evaluate CartPole-v1 VICTIM --threat noise:eps=0.3 --best-of 3 --by loss --measure 2=0.2 --episodes 2 --json"
    ],
    "evaluate a stack that samples": [
        "evaluate CartPole-v1 VICTIM --threat 'noise:eps=0.1 + action-flip:p=0.5' --select sample --episodes 3 --json"
    ],
    "evaluate from a minimum": ["evaluate CartPole-v1 VICTIM --minimum worst-action --episodes 2 --json"],
    "gate": [
        "evaluate CartPole-v1 VICTIM --threat pgd:eps=0.3 --episodes 10 --at-least 400 --json",
        "evaluate CartPole-v1 VICTIM --threat noise:eps=0.01 --episodes 10 --at-least 50 --json",
    ],
    "certify": ["certify CartPole-v1 VICTIM --eps 0.01 --episodes 1 --max-nodes 100 --attack noise --json --out o"
        " --env-kwargs max_episode_steps=60"],
    "suite": ["suite CartPole-v1 VICTIM --eps 0.1 --no-train --attack noise --attack pgd --episodes 2 --json --out o"],
    "look": ["look CartPole-v1 VICTIM --step 3 --threat noise:eps=0.1 --threat pgd:eps=0.1 --json"],
    "look at pixels": ["look PongNoFrameskip-v4 --step 2 --threat rotation:degrees=4 --threat noise:eps=3 --json"],
    "train-agent": [
        "train-agent CartPole-v1 --adversary none --steps 256 --num-envs 4 --checks 1 --episodes 2 --out ag --json"
    ],
    "imitate": ["imitate CartPole-v1 VICTIM --queries 400 --rounds 1 --episodes 2 --no-attacks --json --out im"],
    "run": [
        "run plan.json --store s --json", "plot s --json --out p.png",
        "plot s --x seed --y impact --hue threat --json --out q.svg",
    ],
}  # fmt: skip
WRONG_COMMANDS = (
    "nonsense", "evaluate", "evaluate CartPole-v1", "evaluate CartPole-v1 VICTIM --nonsense",
    "run nowhere.toml --store s",
    "evaluate CartPole-v1 VICTIM --episodes 0", "evaluate CartPole-v1 VICTIM --episodes 99999999999",
    "evaluate CartPole-v1 VICTIM --minimum low", "evaluate CartPole-v1 --victim zoo:nobody",
    "evaluate CartPole-v1 --victim nobody", "evaluate Acrobot-v1 VICTIM", "evaluate Nowhere-v0 VICTIM",
    "evaluate CartPole-v1 VICTIM --threat nonsense", "evaluate CartPole-v1 VICTIM --device cuda:99",
    "evaluate CartPole-v1 VICTIM --resume", "evaluate CartPole-v1 VICTIM --by loss",
    "evaluate CartPole-v1 VICTIM --measure own", "evaluate CartPole-v1 VICTIM --best-of 999999999",
    "evaluate CartPole-v1 VICTIM --stats a", "evaluate CartPole-v1 --victim onnx:a.onnx",
    "evaluate CartPole-v1 VICTIM --threat max-diff", "evaluate CartPole-v1 VICTIM --threat max-diff:eps=-1",
    "evaluate CartPole-v1 VICTIM --threat noise:eps=1,scale=victim", "evaluate CartPole-v1 VICTIM --at-least nan",
    "evaluate CartPole-v1 VICTIM --env-kwargs nonsense",
    "suite CartPole-v1 VICTIM --eps -1", "suite CartPole-v1 VICTIM --eps 1 --scale victim",
    "suite CartPole-v1 VICTIM --eps 1 --attack nonsense", "certify CartPole-v1 VICTIM",
    "certify CartPole-v1 VICTIM --eps 1 --eps 1", "certify CartPole-v1 VICTIM --eps 1 --attack pgd:by=1",
    "certify Hopper-v5 --victim zoo:hopper-ppo --eps 0.1", "report nowhere",
    "look PongNoFrameskip-v4 --threat fgsm:eps=1", "plot nowhere", "standing add zoo:cartpole-dqn", "standing nonsense",
    "train-dynamics Hopper-v5 --victim zoo:hopper-ppo --random 3 --out o",
    "train-critic Hopper-v5 --victim zoo:hopper-ppo --eps -1 --out o", "train-adversary CartPole-v1 VICTIM --out o",
    "train-adversary CartPole-v1 VICTIM --out o --eps 1 --kind sa-rl --form target",
    "train-adversary CartPole-v1 VICTIM --out o --eps 1 --kind nonsense", "train-agent CartPole-v1 --out o",
    "train-agent CartPole-v1 --out o --robust sa", "train-agent CartPole-v1 --out o --eps 1 --algorithm trpo",
    "train-agent CartPole-v1 --out o --eps 1 --adversary nobody", "imitate CartPole-v1 VICTIM --queries 60 --out o",
    "train-agent FrozenLake-v1 --adversary none --out o",
    "resilience CartPole-v1 --victim zoo:cartpole-ppo --by q --out o",
    "resilience CartPole-v1 VICTIM --r-max nan --out o", "robustness CartPole-v1 VICTIM --out o",
)  # fmt: skip
PLAN = {
    "victims": ["zoo:cartpole-dqn", "zoo:cartpole-ppo"], "threats": ["noise", "pgd"],
    "environments": [{"id": "CartPole-v1", "kwargs": {"max_episode_steps": 60}}],
    "budgets": ["eps=0.1", "eps=0.3"], "timings": ["always", "every(3)"], "seeds": [0, 1], "episodes": 1,
}  # fmt: skip


def commands() -> Items:
    """Help of every command, output and exit status of good and bad calls, and the files that they leave."""
    found: Items = {f"help {' '.join(path)}": functools.partial(help_of, path) for path in command_paths()}
    found |= {f"call {name}": functools.partial(called, calls) for name, calls in COMMANDS.items()}
    found |= {f"wrong {words}": functools.partial(called, [words]) for words in WRONG_COMMANDS}
    return found


def command_paths(group: Any = None, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command, by its words."""
    group = group or inner("main")
    found = [path]
    for name, command in sorted(getattr(group, "commands", {}).items()):
        found += command_paths(command, (*path, name))
    return found


def invoke(words: str) -> Any:
    """The result of a call in this process."""
    import shlex

    from click.testing import CliRunner

    words = words.replace("VICTIM", "--victim zoo:cartpole-dqn")
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(inner("main"), shlex.split(words))


def help_of(path: tuple[str, ...]) -> list[str]:
    """What ``--help`` prints."""
    return invoke(" ".join([*path, "--help"])).output.splitlines()


def called(calls: Sequence[str]) -> list[Value]:
    """Of every call its exit status and what it printed, and at the end the files of the folder."""
    out = list[Value]()
    with in_folder() as folder:
        Path("plan.json").write_text(json.dumps(PLAN), encoding="utf-8")
        for words in calls:
            done = invoke(words)
            printed = untimed(printed_json(done.stdout)) if "--json" in words else lines_of(done.stdout, folder)
            said = lines_of(done.stderr, folder) if done.exit_code else []
            out.append({"status": done.exit_code, "printed": printed, "error": said})
        files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        out.append(sorted(name for name in files if not name.endswith(("-shm", "-wal"))))  # of stores not yet collected
    return out


def printed_json(text: str) -> Value:
    """What was printed, read as JSON where it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def lines_of(text: str, folder: Path) -> list[str]:
    """Lines without the place of the folder and without times."""
    text = text.replace(str(folder), "FOLDER")
    return [re.sub(r"\b[\d.]+ (s|ms|seconds|minutes)\b", r"N \1", line.rstrip()) for line in text.splitlines()]
