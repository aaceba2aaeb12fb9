"""The small robot of ``examples/robot``: its policies are one network in every file, and it is taken to a page."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import adv_wrappers as adv
from adv_wrappers.cli import main

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
onnxruntime = pytest.importorskip("onnxruntime")
FOLDER = Path(__file__).parent.parent / "examples" / "robot"
STEPS = 30  # of an episode that is long enough for a step or two of the legs


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch):
    """As for the command ``adv-wrappers`` in the folder of the example, which Python does not look for modules in."""
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield
    for name in ("pup", "train"):
        sys.modules.pop(name, None)
    gym.registry.pop("Pup-v0", None)


def victim_of(name):
    env = adv.Environment("pup:Pup-v0").make_one()
    spaces = env.observation_space, env.action_space
    env.close()
    if name.endswith(".onnx"):
        return adv.from_onnx(FOLDER / name, *spaces, "mean")
    return adv.from_torchscript(FOLDER / name, *spaces, "mean", trust=True)


def walked():
    """Observations of a walk under the MLP, ``[T, 33]``."""
    env, policy, seen = adv.Environment("pup:Pup-v0").make_one(), torch.jit.load(str(FOLDER / "mlp.pt")), []
    obs, _ = env.reset(seed=0)
    for _ in range(STEPS):
        seen.append(obs)
        with torch.no_grad():
            obs, *_ = env.step(policy(torch.from_numpy(obs)[None])[0].numpy())
    env.close()
    return np.stack(seen)


def run_in_onnx_runtime(name, observations):
    """Actions by ONNX Runtime alone, with a state that is carried from step to step."""
    session, found = onnxruntime.InferenceSession(str(FOLDER / name)), []
    state = {one.name: np.zeros(one.shape, np.float32) for one in session.get_inputs()[1:]}
    for obs in observations:
        actions, *later = session.run(None, {"obs": obs[None], **state})
        state = dict(zip(state, later, strict=True))
        found.append(actions[0])
    return np.stack(found)


def run_in_torchscript(name, observations):
    policy = torch.jit.load(str(FOLDER / name))
    with torch.no_grad():
        return np.stack([policy(torch.from_numpy(obs)[None])[0].numpy() for obs in observations])


@pytest.mark.parametrize("network", ["mlp", "lstm"])
def test_every_file_of_a_policy_is_the_same_network(network):
    observations = walked()
    expected = run_in_onnx_runtime(f"{network}.onnx", observations)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(run_in_torchscript(f"{network}.pt", observations), expected, atol=1e-5)
    for name in (f"{network}.onnx", f"{network}.pt"):
        victim, state, found = victim_of(name), None, []
        assert victim.recurrent == (network == "lstm") and victim.differentiable
        if victim.recurrent:
            state = victim.initial_state(1)
        for obs in torch.from_numpy(observations)[:, None]:
            with torch.no_grad():
                found.append(victim.mode(victim.params(obs, state))[0].numpy())
                state = victim.advance(obs, state) if victim.recurrent else None
        np.testing.assert_allclose(np.stack(found), expected, atol=1e-5)


@pytest.mark.slow
def test_it_walks_and_falls_when_it_is_pushed_hard():
    victim = victim_of("mlp.onnx")
    how = {"episodes": 4, "metrics": ["x_position", "terminated"]}
    rows = adv.evaluate(victim, "pup:Pup-v0", [PUSH], **how).threats
    assert rows[0].metric("x_position").mean > 1 and rows[0].metric("terminated").mean == 0
    assert rows[1].metric("terminated").mean > 0


PUSH = "fixed-dynamics:at=force.trunk,values=0;90;0,when=every(100,10,90)"


def test_the_command_of_the_docs(tmp_path):
    words = ["robot", "pup:Pup-v0", "--victim", "onnx:mlp.onnx", "--minutes", "0.02", "--episodes", "1"]
    found = CliRunner().invoke(main, [*words, "--out", str(tmp_path)])
    assert found.exit_code == 0, found.output
    page = (tmp_path / "robot.html").read_text()
    assert "noise of joint encoders" in page and "softer controller" in page


@pytest.mark.slow
def test_the_script_writes_all_files(tmp_path):
    adv.Environment("pup:Pup-v0").make_one().close()
    train = importlib.import_module("train")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlp = train.reinforced(2048, 0)
        train.export(mlp, train.imitating(mlp, 1, 0), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"mlp.onnx", "mlp.pt", "lstm.onnx", "lstm.pt"}
    obs = torch.zeros(1, 33)
    np.testing.assert_allclose(torch.jit.load(str(tmp_path / "mlp.pt"))(obs), mlp(obs), atol=1e-6)
