"""Pictures of a report: what is written, and where nothing can be."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from PIL import Image
from torch import Tensor, nn

import adv_wrappers as adv
from adv_wrappers.studies.report.film import write_film, write_stills
from adv_wrappers.utils.deadline import Deadline
from tests.studies.report.planted import Guess, Plain

SEEN = spaces.Box(0, 255, (12, 16, 1), np.uint8)


class Pictures(gym.Env[Any, Any]):
    """Random pictures, for so many steps."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form
    observation_space, action_space = SEEN, spaces.Discrete(2)

    def __init__(self, steps: int = 200) -> None:
        self.steps = steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._next(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self._next(), 0.0, self.t == self.steps, False, {}

    def _next(self) -> Any:
        return self.np_random.integers(60, 200, SEEN.shape, np.uint8)


class Halves(nn.Module):
    """Which half of a picture is brighter."""

    def forward(self, obs: Tensor) -> Tensor:
        return torch.stack([obs[:, :6].float().mean((1, 2, 3)), obs[:, 6:].float().mean((1, 2, 3))], 1)


def agent() -> adv.Victim:
    return adv.from_module(Halves(), SEEN, Pictures.action_space, "logits")


def environment(id: str, **kwargs: Any) -> adv.Environment:
    if id not in gym.registry:
        gym.register(id, Pictures)
    return adv.Environment(id, kwargs)


def test_a_film_shows_some_seconds_under_the_threat(tmp_path: Path) -> None:
    threat = adv.threat("fgsm", eps=8)
    film_file = write_film(tmp_path, agent(), environment("test/Pictures-v0"), threat, 0, Deadline(None))
    with Image.open(tmp_path / film_file) as film:
        frames = []
        for i in range(film.n_frames):  # type: ignore[attr-defined]
            film.seek(i)
            frames.append(np.asarray(film.convert("RGB")))
    assert len(frames) == 48 and all((a != b).any() for a, b in itertools.pairwise(frames))


def test_an_episode_that_ends_before_has_no_film(tmp_path: Path) -> None:
    threat, short = adv.threat("fgsm", eps=8), environment("test/Pictures-v0", steps=10)
    assert write_film(tmp_path, agent(), short, threat, 0, Deadline(None)) == "" and not [*tmp_path.iterdir()]


def test_stills_show_the_truth_what_is_shown_and_the_difference(tmp_path: Path) -> None:
    stills = write_stills(tmp_path, agent(), environment("test/Pictures-v0"), ["fgsm:eps=8", "brightness"], 0)
    assert [still.title for still in stills] == ["fgsm, step 100", "brightness, step 100"]
    true, shown = (cv2.imread(str(tmp_path / file), cv2.IMREAD_GRAYSCALE) for file in (stills[0].true, stills[0].shown))
    assert true.shape == (12, 16) and np.abs(true.astype(int) - shown).max() == 8
    assert cv2.imread(str(tmp_path / stills[0].difference)).std() > 0


def test_what_is_no_image_is_refused(tmp_path: Path) -> None:
    if "test/Guess-v0" not in gym.registry:
        gym.register("test/Guess-v0", Guess)
    blind = adv.from_module(Plain(), Guess.observation_space, Guess.action_space, "logits")
    with pytest.raises(adv.errors.SpaceError, match="only images can be looked at"):
        write_stills(tmp_path, blind, adv.Environment("test/Guess-v0"), ["fgsm:eps=0.1"], 0)
