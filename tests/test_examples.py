"""Every example runs, with a tiny budget, as a user would run it; the README's snippet is one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import adv_wrappers as adv

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

RUNS = {
    "readme.py": [],
    "train_under_attack.py": ["--steps", "600", "--episodes", "2"],
    "evaluate_cleanrl.py": ["--steps", "2000", "--episodes", "2"],
    "register_and_make_vec.py": ["--num-envs", "2", "--episodes", "2"],
    "train_victim.py": ["cartpole-dqn", "--steps", "1200", "--episodes", "1", "--out", "zoo"],
}


def run(name: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *RUNS[name]],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_run():
    assert set(RUNS) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize("name", [name for name in RUNS if name != "train_victim.py"])
def test_example(name, tmp_path):
    if name == "train_under_attack.py":
        pytest.importorskip("stable_baselines3")
    assert run(name, tmp_path).strip()


def test_saved_weights_are_loaded_instead_of_training_again(tmp_path):
    first = run("evaluate_cleanrl.py", tmp_path)
    written = (tmp_path / "cleanrl-agent.pt").stat().st_mtime_ns
    assert run("evaluate_cleanrl.py", tmp_path) == first
    assert (tmp_path / "cleanrl-agent.pt").stat().st_mtime_ns == written


def test_trained_victim_is_a_card_that_loads(tmp_path):
    pytest.importorskip("stable_baselines3")
    run("train_victim.py", tmp_path)
    victim = adv.load_victim(f"card:{tmp_path / 'zoo' / 'cartpole-dqn'}")
    assert victim.kind == "q"
    assert victim.card["environment"]["id"] == "CartPole-v1"
    assert len(adv.evaluate(victim, "CartPole-v1", ["fgsm:eps=0.1"], episodes=1).threats) == 2


def test_the_readme_shows_the_example_that_runs():
    _, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")
    assert rest.partition("```")[0] == (EXAMPLES / "readme.py").read_text(encoding="utf-8")
