"""Checkpoints that are scored in another process: the result is the same, and a training that ends early can go on."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import pytest
import torch

from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import ValueRangeError, WorkerError
from tests.evaluation.agents import short

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.scoring import CheckpointScore, Scoring, ScoringSetup

VICTIM = "zoo:cartpole-a2c"
QUICK = {"num_envs": 4, "checks": 4, "episodes": 3, "n_steps": 16, "batch_size": 64, "n_epochs": 1}
AGENT = {
    "num_envs": 4, "phase": 64, "checks": 2, "episodes": 2,
    "settings": {"n_steps": 8, "n_epochs": 1}, "adversary_settings": {"n_steps": 8, "n_epochs": 1},
}  # fmt: skip


def untimed(record):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in record]


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def record_of(folder):
    return json.loads((folder / "state.json").read_text())["record"]


@dataclass(frozen=True)
class Named(CheckpointScore[list, tuple]):
    """The checkpoint itself, and how many episodes it would be scored on."""

    def __call__(self, evaluator, checkpoint):
        return checkpoint, len(evaluator.seeds)


@pytest.mark.parametrize("workers", [1, 2])
def test_scores_are_of_checkpoints_as_they_were_and_come_in_order(workers):
    received, weights = [], torch.zeros(2)
    setup = ScoringSetup(Environment(short), 3, 0, True, Named())
    with Scoring(setup, workers) as scoring:
        for i in range(6):
            weights += 1
            scoring.submit([i, weights], lambda score: received.append((score[0][0], score[0][1][0].item(), score[1])))
            assert len(received) >= i + 1 - workers  # no more are on their way
        scoring.deliver(0)
        assert not scoring.ready
    assert received == [(i, i + 1.0, 3) for i in range(6)]


def test_an_agent_is_the_same_with_two_workers(tmp_path):
    """With an adversary that learns, and the greedy worst case."""
    one, two = (
        train_agent(short, "sa-rl", 0.05, 64, robust="radial", out=tmp_path / str(workers), workers=workers, **AGENT)
        for workers in (1, 2)
    )
    assert untimed(one.record) == untimed(two.record) and one.best == two.best and "gwc" in one.record[0]
    assert one.victim.fingerprint() == two.victim.fingerprint() and one.threat.how.sha256 == two.threat.how.sha256
    assert files(tmp_path / "1") == files(tmp_path / "2") and not [*tmp_path.rglob(".part.*")]


def test_logs_have_every_score_at_its_own_steps(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    received = []
    train_adversary(
        "sa-rl",
        short,
        VICTIM,
        0.2,
        256,
        tensorboard=tmp_path,
        workers=2,
        progress=lambda *at: received.append(at),
        **QUICK,
    )
    logged = EventAccumulator(str(next(tmp_path.iterdir()))).Reload().Scalars("adversary/victim_return")
    assert [point.step for point in logged] == [steps for steps, _ in received[:-1]]
    assert [point.value for point in logged] == pytest.approx([left for _, left in received[:-1]], rel=1e-6)


class Failing(gym.Wrapper):
    """CartPole that, in another process than the training's, fails during the second checkpoint of three episodes."""

    resets: ClassVar = 0  # of all environments of a process

    def __init__(self):
        super().__init__(short())

    def reset(self, **given):
        Failing.resets += 1
        if multiprocessing.parent_process() is not None and Failing.resets > 7:  # four for the first steps
            raise ValueRangeError("the environment has had enough")
        return super().reset(**given)


def test_an_error_of_a_worker_comes_back_and_what_was_scored_stays(tmp_path):
    given = ("sa-rl", Failing, VICTIM, 0.2, 256)
    more = {"out": tmp_path, **QUICK}
    with pytest.raises(ValueRangeError, match="has had enough"):
        train_adversary(*given, workers=2, **more)
    card, model = ["card.json", "weights.safetensors"], ["model.zip", "normaliser.json"]
    checkpoint = ["checkpoint-64", *(f"checkpoint-64/{name}" for name in (*card, *model))]
    assert files(tmp_path) == sorted([*checkpoint, *card, "state.json"])
    before = record_of(tmp_path)
    assert [row["steps"] for row in before] == [64]
    train_adversary(*given, **more)
    assert record_of(tmp_path)[:1] == before and record_of(tmp_path)[-1]["steps"] == 256


def test_what_cannot_be_sent_is_named_before_anything_is_trained(tmp_path):
    received = []
    how = {"workers": 2, "progress": lambda *at: received.append(at)}
    with pytest.raises(WorkerError, match=r"the environment cannot be sent to another process.*top of a module"):
        train_adversary("sa-rl", lambda: short(), VICTIM, 0.2, 128, out=tmp_path / "a", **how, **QUICK)
    with pytest.raises(WorkerError, match="the timing cannot be sent"):
        train_adversary("sa-rl", short, VICTIM, 0.2, 128, when=lambda x, context: x[:, 0] > 0, **how, **QUICK)
    with pytest.raises(WorkerError, match="the environment cannot be sent"):
        train_agent(lambda: short(), "sa-rl", 0.05, 128, out=tmp_path / "b", **how, **AGENT)
    with pytest.raises(WorkerError, match="the threat cannot be sent"):
        train_agent(short, "sa-rl", 0.05, 128, when=lambda x, context: x[:, 0] > 0, **how, **AGENT)
    for train, how in (
        (train_adversary, {"kind": "sa-rl", "env": short, "victim": VICTIM}),
        (train_agent, {"env": short}),
    ):
        with pytest.raises(ValueRangeError, match="workers"):
            train(**how, workers=0)
    assert not received and not [*tmp_path.iterdir()]
