"""Run every capability that the README and the papers' pages name, small, and say which fail.

Code blocks of the README run as they are but for a few numbers that are made smaller; a command that it only names
runs with the arguments of ``COMMANDS``. Of a paper's page every section is written anew from its record, and has to
come out as it is; measuring it takes hours and is listed as skipped. Everything runs in a temporary folder.

    python benchmarks/capabilities.py                   # half an hour on two busy cores
    python benchmarks/capabilities.py --only train-agent
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from adv_wrappers.cli.main import main as commands

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ("pa_ad", "resilience", "model_based", "radial", "daylight")
LONG = {"minutes=5": "minutes=0.2", "--minutes 3": "--minutes 0.2"}  # and what stands for it here
DQN, HOPPER = "CartPole-v1 --victim zoo:cartpole-dqn", "Hopper-v5 --victim zoo:hopper-ppo"
TRAIN = "--steps 2048 --num-envs 8 --checks 2 --episodes 2"
AGENT = f"train-agent CartPole-v1 --eps 0.05 {TRAIN} --out"
PLAN = 'victims = ["zoo:cartpole-dqn"]\nepisodes = 2\n[[grids]]\nthreats = ["noise"]\nbudgets = ["eps=0.1"]\n'
COMMANDS = (  # in this order: later ones take what earlier ones wrote
    f"evaluate {DQN} --threat noise:eps=0.1 --threat pgd:eps=0.1 --episodes 2 --out rows",
    "report rows --out rows.html",
    "evaluate CartPole-v1 --victim zoo:cartpole-ppo --threat pgd:eps=0.1 --episodes 2 --out others",
    "report rows others --out both.html --minutes 0.1",
    f"suite {DQN} --eps 0.05 --episodes 2 --attack noise --attack pgd --attack max-diff",
    f"suite {HOPPER} --eps 0.05 --scale victim --suite action --action-eps 0.1 --episodes 1 --no-train",
    f"certify {DQN} --eps 0.01 --episodes 1 --max-nodes 200 --attack pgd",
    f"train-adversary {DQN} --kind pa-ad --eps 0.05 {TRAIN} --out pa-ad",
    f"train-adversary {DQN} --kind sa-rl --eps 0.05 {TRAIN} --out sa-rl",
    f"train-adversary {HOPPER} --kind forces --eps 20 {TRAIN} --out forces",
    f"train-adversary {DQN} --kind timed:worst-action --cost 1 {TRAIN} --out timed",
    f"resilience {DQN} --steps 2048 --num-envs 8 --checks 2 --episodes 4 --transfer zoo:cartpole-ppo --out resilience",
    f"robustness {DQN} --budget 5 --steps 2048 --num-envs 8 --checks 2 --episodes 4 --out robustness",
    f"{AGENT} pa-atla",
    f"{AGENT} atla --adversary sa-rl",
    *(f"{AGENT} {loss} --robust {loss}" for loss in ("sa", "radial", "wocar", "smoothed")),
    *(f"{AGENT} {loss}-dqn --robust {loss} --algorithm dqn" for loss in ("sa", "radial", "car", "smoothed")),
    f"train-critic {HOPPER} --one --steps 256 --num-envs 2 --out critic",
    f"train-dynamics {HOPPER} --transitions 500 --width 16 --layers 1 --epochs 1 --out dynamics",
    f"evaluate {HOPPER} --env-kwargs max_episode_steps=5 --episodes 1 "
    "--threat model-based:dynamics=card:dynamics,target=0,eps=0.1,steps=2",
    f"imitate {DQN} --queries 500 --rounds 1 --no-attacks --episodes 1 --out surrogate",
    "look PongNoFrameskip-v4 --step 20 --out pong.png",
    "run plan.toml --store rows.db",
    "plot rows.db --out curves.svg",
    "standing add card:sa --store standing --minutes 0.1 --licence MIT",
    "standing build standing --out pages",
    *("threats", "victims", "demo"),
)
GATE = """from adv_wrappers.studies.gate import assert_robust
assert_robust("zoo:cartpole-radial-dqn", "CartPole-v1", eps=0.01, min_return=400, attacks=["noise", "fgsm"])"""


def run(command: list[str], folder: Path = Path()) -> None:
    """A command in a folder; its last lines if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: " + " / ".join(done.stdout.strip().splitlines()[-3:]))


def cli(arguments: str) -> Callable[[], None]:
    """A call of the command line."""
    return lambda: run([sys.executable, "-m", "adv_wrappers", *shlex.split(arguments)])


def python(code: str, names: dict[str, object]) -> Callable[[], None]:
    """A block of code; those of one page share their names."""
    return lambda: exec(compile(code, "<page>", "exec"), names)


def section(page: Path, script: str, arguments: str) -> Callable[[], None]:
    """Write a section of a page of results anew; it must come out as it is."""

    def call() -> None:
        before = page.read_text(encoding="utf-8")
        run([sys.executable, script, "--page", *shlex.split(arguments)], ROOT)
        if page.read_text(encoding="utf-8") != before:
            page.write_text(before, encoding="utf-8")
            raise RuntimeError("the page is not what its script writes from the record")

    return call


def capabilities() -> Iterator[tuple[str, Callable[[], None] | str]]:
    """Name and call of everything, or the reason why it is skipped."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", readme, re.MULTILINE | re.DOTALL):
        for long, short in LONG.items():
            block = block.replace(long, short)
        name = f"README: {next(line for line in reversed(block.splitlines()) if line and line[0] not in '#)')}"
        if language == "python":
            yield name, python(block, {})
        elif block.startswith("adv-wrappers "):
            yield name, cli(block.removeprefix("adv-wrappers "))
        else:
            yield name, "installs from the network"
    yield "README: assert_robust", python(GATE, {})
    for arguments in COMMANDS:
        yield f"adv-wrappers {arguments}", cli(arguments)
    for name in sorted({*commands.commands} - {one.split()[0] for one in COMMANDS}):
        yield f"adv-wrappers {name}", "no small run of it is known"
    for paper in PAPERS:
        path = ROOT / "docs" / "results" / f"{paper}.md"
        made = re.findall(r"ade by `python (benchmarks/reproduce/\w+\.py)( [^`]*)?`", path.read_text(encoding="utf-8"))
        for script, rest in dict.fromkeys((name, "".join(re.findall(r" --game \w+", rest))) for name, rest in made):
            yield f"{paper}: python {script} --page{rest}", section(path, script, rest)
        for script, rest in made:
            yield f"{paper}: python {script}{rest}", "measuring takes hours; its record is in docs/results"


def main() -> None:
    """Run them one after another, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose names contain it")
    only, failed = parser.parse_args().only, 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("plan.toml").write_text(PLAN, encoding="utf-8")
        for name, call in capabilities():
            if only not in name:
                continue
            begun, result = time.perf_counter(), f"skipped: {call}" if isinstance(call, str) else "ok"
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    _ = isinstance(call, str) or call()
            except (Exception, SystemExit) as error:  # whatever a page's code raises
                failed, result = failed + 1, f"FAILED: {type(error).__name__}: {error}"
            print(f"{time.perf_counter() - begun:6.1f} s  {name[:110]}  {result}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
