"""Every example runs, with a tiny budget, as a user would run it; the README's snippet is one of them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from tests.processes import python

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"

RUNS = {
    "readme.py": [],
    "report.py": [],
    "certify.py": [],
    "plan.py": ["--episodes", "1", "--seeds", "0", "--store", "rows.db"],
    "plan_ray.py": ["--episodes", "1", "--seeds", "0", "--actors", "1"],
    "daylight.py": [],
    "least_eps.py": ["--attack", "noise", "--episodes", "1", "--close", "0.1"],
    "robust_gate.py": [],
    "while_training.py": ["--steps", "256", "--episodes", "1", "--seeds", "1", "--out", "pictures"],
    "first_steps.ipynb": [],
    "evaluate_cleanrl.py": ["--steps", "600", "--episodes", "1"],
    "register_and_make_vec.py": ["--num-envs", "2", "--episodes", "2"],
    "pa_atla.py": ["--steps", "256", "--attack-steps", "64", "--episodes", "1", "--checks", "1"],
    "train_director.py": ["--steps", "256", "--episodes", "1", "--out", "adversary"],
    "train_director_cleanrl.py": ["--steps", "512", "--episodes", "1"],
    "on_device.py": ["--num-envs", "4", "--steps", "22"],
    "train_radial.py": ["cartpole", "--steps", "256", "--episodes", "1", "--out", "agent"],
    "train_victim.py": ["cartpole-dqn", "--steps", "200", "--episodes", "1", "--out", "zoo"],
}
SHORTER = {  # lines of examples that have no arguments for it
    "first_steps.ipynb": {"minutes=3": "minutes=0.02", "episodes=10": "episodes=1", "steps=4096": "steps=64"},
    "readme.py": {"episodes=4": "episodes=1"},
    "report.py": {"minutes=5": "minutes=0.05"},
    "certify.py": {"budget_s=1": "budget_s=0.1"},
    "robust_gate.py": {'ATTACKS = ["noise", "fgsm", "pgd", "max-diff"]': 'ATTACKS = ["fgsm"]'},
    "train_radial.py": {"budget_s=2": "budget_s=0.1"},
}
LONG_EPISODES = {"robust_gate.py", "on_device.py"}  # whose returns are those of whole episodes
WITH_SHORT_EPISODES = """
import runpy, sys
from pathlib import Path
import gymnasium

for env_id in ("CartPole-v1", "Hopper-v5"):
    gymnasium.registry[env_id].max_episode_steps = 40
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def source(path: Path) -> str:
    """The text of a script, or of all cells of code of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")


def run(name: str, folder: Path) -> str:
    scripts = folder / "scripts"
    shutil.copytree(EXAMPLES, scripts, dirs_exist_ok=True)
    if name in SHORTER:
        text = source(EXAMPLES / name)
        for line, shorter in SHORTER[name].items():
            assert text.count(line) == 1
            text = text.replace(line, shorter)
        (scripts / name).write_text(text, encoding="utf-8")
    short = name not in LONG_EPISODES
    done = python(
        WITH_SHORT_EPISODES if short else scripts / name,
        *[str(scripts / name)] * short,
        *RUNS[name],
        cwd=folder,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MORE = {"train_victim.py", "on_device.py", "evaluate_cleanrl.py"}  # of which a test says more


def test_every_example_is_run():
    found = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert {*RUNS, "ppo_atari.py"} == found  # train_victim.py imports that


# shorter ones have most of these
LONG = {
    "daylight.py", "first_steps.ipynb", "plan.py", "plan_ray.py", "pa_atla.py", "report.py", "robust_gate.py",
    "train_director.py", "train_director_cleanrl.py", "train_radial.py", "while_training.py",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in sorted(RUNS.keys() - MORE)],
)
def test_example(name, tmp_path):
    if name in ("first_steps.ipynb", "train_director.py", "pa_atla.py", "train_radial.py", "while_training.py"):
        pytest.importorskip("stable_baselines3")
    if name == "plan_ray.py":
        pytest.importorskip("ray")
    assert run(name, tmp_path).strip()


@pytest.mark.slow
def test_nothing_leaves_the_device(tmp_path):
    """PGD works, and of the kernels that were watched none makes a trip."""
    rows = [line.split() for line in run("on_device.py", tmp_path).splitlines()[1:]]
    jax = importlib.util.find_spec("jax") and importlib.util.find_spec("flax")
    assert [row[0] for row in rows] == ["torch", "jax"][: 2 if jax else 1]
    for _, device, clean, _, pgd, trips, _, kernels, _ in rows:
        assert device == "cpu" or device.startswith("cuda")
        assert float(clean) == 22 > float(pgd) and trips == "0" and int(kernels) > 500


@pytest.mark.slow
def test_trained_victim_is_a_card_that_loads(tmp_path):
    pytest.importorskip("stable_baselines3")
    run("train_victim.py", tmp_path)
    victim = adv.load_victim(f"card:{tmp_path / 'zoo' / 'cartpole-dqn'}")
    assert victim.kind == "q"
    assert victim.card["environment"]["id"] == "CartPole-v1"
    assert len(adv.evaluate(victim, "CartPole-v1", ["fgsm:eps=0.1"], episodes=1).threats) == 2


def test_a_hardened_agent_is_a_card_that_loads(recipes, monkeypatch, tmp_path):
    recipe = recipes.RECIPES["cartpole-radial-dqn"] | {"checks": 1}
    monkeypatch.setitem(recipes.RECIPES, "cartpole-radial-dqn", recipe)
    given = ["cartpole-radial-dqn", "--steps", "64", "--episodes", "1", "--scored", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["train_victim.py", *given])
    recipes.main()
    victim = adv.load_victim(f"card:{tmp_path / 'cartpole-radial-dqn'}")
    (row,) = victim.card["measured"]
    assert victim.kind == "q" and victim.card["name"] == "cartpole-radial-dqn" and row["steps"] == 64
    returns = recipes.play(lambda obs: victim.act_on(obs[None])[0], recipe, 2, recipes.SCORE)
    assert row["mean"] == round(float(returns.mean()), 1) and row["episodes"] == 2


def test_the_readme_shows_the_examples_that_run():
    blocks = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1:]
    shown = [block.partition("```")[0] for block in blocks]
    names = ("report.py", "readme.py")
    assert shown == [(EXAMPLES / name).read_text(encoding="utf-8") for name in names]


@pytest.fixture
def recipes(monkeypatch):
    pytest.importorskip("stable_baselines3")
    monkeypatch.syspath_prepend(EXAMPLES)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield importlib.import_module("train_victim")
    torch.set_num_threads(threads)


def test_an_atari_agent_is_the_same_as_a_card(recipes, tmp_path):
    torch.manual_seed(0)
    agent = recipes.Agent(6)
    torch.nn.init.orthogonal_(agent.policy.weight)  # as large as a trained one
    recipes.save(tmp_path, "pong-ppo", recipes.atari_victim(agent)[0], np.zeros(2), 8, 0, True)
    victim = adv.load_victim(f"card:{tmp_path / 'pong-ppo'}")
    assert victim.card["environment"]["id"] == "PongNoFrameskip-v4" and victim.select == "mode"
    frames = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        logps, values = agent(frames)
        ours = torch.log_softmax(victim.params(frames.float()), -1)
        torch.testing.assert_close(victim.value(frames.float()), values, atol=0.02, rtol=0.02)
    torch.testing.assert_close(ours, logps, atol=0.02, rtol=0.02)  # the agent computes in bfloat16


class Paying:
    """A game of one state and no memory that pays 1 a step."""

    def __init__(self, rom, num_envs, **kwargs):
        self.frames = np.zeros((num_envs, 4, 84, 84), np.uint8)

    def reset(self, seed):
        return self.frames, {}

    def step(self, actions):
        never = np.zeros(len(self.frames), bool)
        return self.frames, np.ones(len(self.frames)), never, never, {}

    def close(self):
        pass


class Killed(Exception):
    pass


def killed_after(steps, tell):
    """What ``tell`` does, until so many steps are done."""

    def dying(step, *score):
        tell(step, *score)
        if step >= steps:
            raise Killed

    return dying


@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_same_agent(recipes, monkeypatch, tmp_path):
    """Weights, moments, random numbers and the falling rate: one of them wrong, and the agents would differ."""
    ppo_atari = importlib.import_module("ppo_atari")
    monkeypatch.setattr(ppo_atari, "AtariVectorEnv", Paying)  # games begin anew, and this one is as it was

    def train(path, tell):
        torch.manual_seed(0)
        agent = ppo_atari.Agent(3)
        ppo_atari.ppo("", agent, 96, num_envs=2, horizon=16, minibatches=2, epochs=1, tell=tell, checkpoint=path)
        return agent

    received = []
    whole = train(tmp_path / "whole", lambda step, score: None)
    with pytest.raises(Killed):
        train(tmp_path / "killed", killed_after(64, lambda step, score: None))
    resumed = train(tmp_path / "killed", lambda step, score: received.append(step))
    assert received == [64, 96]  # the killed update was not kept
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "killed").read_bytes()
    with pytest.raises(ValueError, match=r"'steps': 96, .*, and this one has .*'steps': 320"):
        ppo_atari.ppo("", resumed, 320, num_envs=2, horizon=16, checkpoint=tmp_path / "killed")
