"""Every example runs, with a tiny budget, as a user would run it; the README's snippet is one of them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

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
    assert {*RUNS, "atari_vec_env.py"} == {path.name for path in EXAMPLES.glob("*.py")}  # train_victim.py imports that


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


@pytest.fixture
def recipes(monkeypatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("train_victim")


def test_an_atari_agent_is_the_same_as_a_card(recipes, tmp_path):
    env = recipes.AtariVecEnv("pong", 2, seed=3)
    kwargs = recipes.RECIPES["pong-ppo"]["policy_kwargs"]
    model = recipes.PPO("CnnPolicy", env, n_steps=4, batch_size=8, policy_kwargs=kwargs, seed=0, device="cpu")
    model.policy.to(memory_format=torch.channels_last)
    recipes.write_card(tmp_path / "pong-ppo", "pong-ppo", model, None, {"attack": "none", "mean": 0.0})
    victim = adv.load_victim(f"card:{tmp_path / 'pong-ppo'}")
    frames, _ = model.policy.obs_to_tensor(env.reset())
    with torch.no_grad():
        ours = torch.log_softmax(victim.params(frames.float()), -1)
        theirs = model.policy.get_distribution(frames).distribution.logits
        values = model.policy.predict_values(frames)[:, 0]
        torch.testing.assert_close(victim.value(frames.float()), values, atol=1e-3, rtol=1e-2)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-2)  # weights are rounded to float16
    env.close()


def test_atari_as_a_vec_env(recipes):
    """An episode ends with its return, its last observation, and the first of the next."""
    env = recipes.AtariVecEnv("pong", 1, seed=0)
    env.reset()
    total, done = 0.0, False
    while not done:
        obs, rewards, dones, infos = env.step(np.zeros(1, np.int64))
        total, done = total + float(rewards[0]), bool(dones[0])
    assert infos[0]["episode"]["r"] == total == -21
    assert infos[0]["terminal_observation"].shape == obs[0].shape == (4, 84, 84)
    assert (infos[0]["terminal_observation"] != obs[0]).any()
    assert not infos[0]["TimeLimit.truncated"] and env.returns[0] == 0
    env.close()
