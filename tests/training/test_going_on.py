"""A training of an agent that is killed goes on: the same call trains what is left, from what was kept."""

from __future__ import annotations

import json
import zipfile
from typing import Any

import pytest

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.agent import train_agent
from tests.training.toys import Stopped, stop_at

SMALL = {"eps": 0.05, "steps": 128, "num_envs": 4, "phase": 32, "checks": 4, "episodes": 2}
ROLLOUTS = {"n_steps": 8, "n_epochs": 1}
REPLAY = {"learning_starts": 16, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}
BRIEF = {"env_kwargs": {"max_episode_steps": 10}}
TRAININGS: dict[str, dict[str, Any]] = {
    "adversary": {"adversary": "sa-rl", "settings": ROLLOUTS, "adversary_settings": ROLLOUTS, **BRIEF},
    "dqn": {"algorithm": "dqn", "robust": "radial", "settings": REPLAY, **BRIEF},
    "td3": {
        "env": "Pendulum-v1",
        "algorithm": "td3",
        "adversary": "sa-rl",
        "settings": REPLAY,
        "adversary_settings": ROLLOUTS,
        **BRIEF,
    },
    "wocar": {"robust": "wocar", "settings": ROLLOUTS, **BRIEF},
    "recurrent": {"algorithm": "recurrent-ppo", "settings": ROLLOUTS, **BRIEF},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("td3", "wocar", "recurrent"))) for name in TRAININGS],
)
def test_a_training_that_was_killed_goes_on(name, tmp_path):
    if name == "recurrent":
        pytest.importorskip("sb3_contrib")
    given = {"env": "CartPole-v1", "adversary": None, "out": tmp_path, **SMALL, **TRAININGS[name]}

    with pytest.raises(Stopped):
        train_agent(**given, progress=stop_at(64))
    before = json.loads((tmp_path / "state.json").read_text())["record"]
    assert [row["steps"] for row in before] == [32, 64]
    if given.get("robust") == "wocar":
        with zipfile.ZipFile(tmp_path / "checkpoint-64" / "agent.zip") as zipped:
            assert {"method_critic.pth", "method_critic.optimizer.pth"} <= {*zipped.namelist()}
    (tmp_path / ".part.1").mkdir()  # of a checkpoint that was never whole
    (tmp_path / "card.json").write_text("half a ca")  # nor this

    received = []
    hardened = train_agent(**given, progress=lambda steps, *_: received.append(steps))
    assert received == [96, 128] and list(hardened.record[:2]) == before
    assert hardened.record[-1]["adversary_steps"] == (128 if given["adversary"] else 0)
    seconds = [row["seconds"]["agent"] for row in hardened.record]
    assert seconds == sorted(seconds)
    kept = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert kept == {"checkpoint-128", f"checkpoint-{hardened.record[hardened.best]['steps']}"}

    done = train_agent(**given, progress=stop_at(64))  # nothing left to do
    assert done.record == hardened.record and done.victim.fingerprint() == hardened.victim.fingerprint()
