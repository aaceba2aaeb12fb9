"""Blocks of a run, and that it does not matter who plays them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError, WorkerError
from adv_wrappers.evaluation.episodes import MOST_BLOCKS, blocks_of
from adv_wrappers.evaluation.rows.report import Report
from tests.evaluation.agents import Film, balancing, short
from tests.every_case import every_case

NOISE, FGSM = "noise:eps=0.4", "fgsm:eps=0.3"


class Brighter(nn.Module):
    """Values one action by the left half of an image, the other by the right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return torch.stack([x[..., :half].flatten(1).mean(1), x[..., half:].flatten(1).mean(1)], 1)


def untimed(report: Report) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "ms_per_step"} for row in report.threats]


@every_case(("plays", "num_envs"), [(1, 1), (1, 32), (50, 32), (51, 32), (7, 2), (1000, 32), (1000, 1)])
def test_blocks_hold_every_episode_once(plays: int, num_envs: int) -> None:
    blocks = blocks_of(plays, num_envs)
    assert [i for block in blocks for i in block] == list(range(plays))
    lengths = [len(block) for block in blocks]
    assert max(lengths) - min(lengths) <= 1 and len(blocks) <= MOST_BLOCKS
    assert len(blocks) == MOST_BLOCKS or max(lengths) <= num_envs


def test_blocks_of_the_width_that_a_report_names_are_the_same() -> None:
    for plays in range(1, 200):
        for num_envs in (1, 2, 7, 8, 32):
            blocks = blocks_of(plays, num_envs)
            assert blocks_of(plays, min(num_envs, max(map(len, blocks)))) == blocks


def test_rows_are_the_same_with_two_workers(tmp_path: Path) -> None:
    """Rows, their samples of observations, several draws and losses; files too."""
    moved: list[tuple[str, int, int]] = []
    how: dict[str, Any] = {"episodes": 3, "seed": 3, "num_envs": 2, "best_of": {NOISE: 2}, "measure": "0=1"}
    agent = balancing("q", "sample")
    one = adv.evaluate(agent, short, [NOISE, FGSM], out=tmp_path / "1", **how)
    two = adv.evaluate(
        agent, short, [NOISE, FGSM], out=tmp_path / "2", workers=2, progress=lambda *at: moved.append(at), **how
    )
    assert untimed(one) == untimed(two) and one.warnings == two.warnings and one.num_envs == two.num_envs == 2
    assert untimed(Report.from_json(tmp_path / "2" / "report.json")) == untimed(one)
    for name, whole in (("none", 3), (NOISE, 6), (FGSM, 3)):
        done = [at for what, at, of in moved if what == name and of == whole]
        assert done == sorted(done) and done[0] == 0 and done[-1] == whole and len(done) > 2
    seer = adv.from_module(Brighter(), Film().observation_space, Film().action_space, kind="q")
    film = {"threats": ["noise:eps=9"], "episodes": 2, "num_envs": 1}
    alone, shared = (adv.evaluate(seer, Film, workers=workers, **film) for workers in (1, 2))
    assert untimed(alone) == untimed(shared) and alone.threats[1]["distances"]["ssim"] < 1


def test_only_what_a_folder_does_not_hold_is_sent_to_workers(tmp_path: Path) -> None:
    agent, how = balancing(), {"episodes": 4, "num_envs": 2, "out": tmp_path}
    first = adv.evaluate(agent, short, [NOISE], **how)
    second = adv.evaluate(agent, short, [NOISE, FGSM], resume=True, workers=2, **how)
    assert second.threats[:2] == first.threats and len(second.threats) == 3  # with its ms_per_step, so it was kept


class Dying(gym.Wrapper[Any, Any, Any, Any]):
    """Ends its process, or raises, at step 3 of the processes that it was not made in."""

    def __init__(self, how: str) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.how, self.left = how, 3

    def step(self, action: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left == 0 and self.how == "raises":
            raise ValueRangeError("the environment has had enough")
        obs, reward, *rest = super().step(action)
        return obs, float("nan") if self.how == "nan" else reward, *rest


@every_case(
    ("how", "error", "message"),
    [
        ("dies", WorkerError, "one of 2 worker processes died"), ("raises", ValueRangeError, "has had enough"),
        ("nan", ValueRangeError, "a reward that is not finite"),
    ],
)  # fmt: skip
def test_errors_of_workers_come_back(how: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        adv.evaluate(balancing(), Dying, [], 4, num_envs=2, env_kwargs={"how": how}, workers=2)


def test_what_cannot_be_sent_is_named_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adv_wrappers.evaluation.player.play_episodes", None)
    with pytest.raises(WorkerError, match="the environment cannot be sent to another process"):
        adv.evaluate(balancing(), lambda: short(), [], 4, workers=2)

    class Local(type(balancing())):  # type: ignore[misc]
        pass

    agent = balancing()
    agent.__class__ = Local
    with pytest.raises(WorkerError, match="the victim cannot be sent to another process"):
        adv.evaluate(agent, short, [], 4, workers=2)
    with pytest.raises(WorkerError, match="a threat cannot be sent to another process"):
        adv.evaluate(balancing(), short, [adv.threat("noise", eps=0.1, when=lambda x, context: x[:, 0] > 0)], workers=2)
    with pytest.raises(ValueRangeError, match="workers"):
        adv.evaluate(balancing(), short, [], 4, workers=0)


def test_reports_are_json(tmp_path: Path) -> None:
    report = adv.evaluate(balancing(), short, [FGSM], 3, num_envs=1, workers=2, out=tmp_path)
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["num_envs"] == 1 and np.isfinite([row["ms_per_step"] for row in data["threats"]]).all()
    assert Report.from_json(tmp_path / "report.json") == report
