"""Distances of an evaluation: which are taken, on which steps, and what is refused before anything is spent."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.measurements import sampled_distances
from adv_wrappers.evaluation.measurements.image_distances import psnr, ssim
from adv_wrappers.evaluation.measurements.sampled_distances import ObservationSample
from adv_wrappers.victims import Victim
from tests.evaluation.agents import Film, short, watcher
from tests.every_case import every_case

FILM = watcher(Film())
DARKER = adv.ThreatModel("observation", lambda x, context: x - 20, adv.Linf(20))  # clipped at black


def average(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A distance of one's own."""
    return (x.double() - y.double()).abs().flatten(1).mean(1)


def test_images_get_ssim_and_psnr_and_others_do_not(victim: Victim) -> None:
    clean, noise = adv.evaluate(FILM, Film, ["noise:eps=8"], episodes=3).threats
    assert clean["distances"] == {"ssim": None, "psnr": None} and clean["distance_images"] == 0
    assert 0 < noise["distances"]["ssim"] < 1 and 20 < noise["distances"]["psnr"] < 50
    assert noise["distance_images"] == sum(noise["lengths"]) and noise["linf"] <= 8
    assert adv.evaluate(victim, short, ["noise:eps=0.1"], episodes=1).threats[1]["distances"] == {}
    assert adv.evaluate(FILM, Film, ["noise:eps=8"], 1, distances=("l2", "linf")).threats[1]["distances"] == {}


def test_they_are_means_over_the_attacked_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[tuple[Any, Any]] = []
    places: list[tuple[int, int]] = []

    def spy(self: Any, shown: Any, true: Any, rows: Any, episodes: Any, steps: Any) -> None:
        for i in rows:
            pairs.append((shown[i].copy(), true[i].copy()))
            places.append((int(episodes[i]), int(steps[i])))
        consider(self, shown, true, rows, episodes, steps)

    consider = ObservationSample.consider
    monkeypatch.setattr(ObservationSample, "consider", spy)
    threat = adv.ThreatModel("observation", DARKER.how, adv.Linf(20), adv.Every(2))
    kinds = ("psnr", average, "ssim")
    row = adv.evaluate(FILM, Film, threat, episodes=3, num_envs=3, distances=kinds).threats[1]
    assert [*row["distances"]] == ["psnr", "average", "ssim"]
    assert row["distance_images"] == len(pairs) == sum((n + 1) // 2 for n in row["lengths"])
    assert sorted(places) == [(e, t) for e, n in enumerate(row["lengths"]) for t in range(0, n, 2)]
    shown, true = (np.stack(images) for images in zip(*pairs, strict=True))
    for name, values in (("ssim", ssim(shown, true)), ("psnr", psnr(shown, true))):
        assert row["distances"][name] == pytest.approx(float(values.mean()), rel=1e-6)
    gap = np.abs(shown.astype(float) - true)
    assert row["distances"]["average"] == pytest.approx(gap.mean()) and row["linf"] == gap.max() == 20


def test_an_infinite_ratio_is_not_counted() -> None:
    still = adv.ThreatModel("observation", lambda x, context: x, adv.Linf(20))
    half = adv.ThreatModel("observation", lambda x, c: torch.where(x[:, :1, :1, :1] < 128, x, x - 20), adv.Linf(20))
    row, some, whole = adv.evaluate(FILM, Film, [still, half, DARKER], episodes=3).threats[1:]
    assert row["distances"] == {"ssim": pytest.approx(1), "psnr": None} and row["linf"] == 0
    assert some["distances"]["psnr"] == pytest.approx(whole["distances"]["psnr"], rel=0.05)  # of the darkened alone
    assert whole["distances"]["ssim"] < some["distances"]["ssim"] < 1


def test_the_sample_depends_on_the_seeds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled_distances, "MAX_PAIRS", 7)
    runs = [adv.evaluate(FILM, Film, ["noise:eps=8"], 6, seed=s, num_envs=n).threats[1] for s, n in ((4, 1), (4, 4))]
    assert runs[0]["distances"] == runs[1]["distances"] and runs[0]["distance_images"] == 7
    assert sum(runs[0]["lengths"]) > 70
    assert adv.evaluate(FILM, Film, ["noise:eps=8"], 6, seed=5).threats[1]["distances"] != runs[0]["distances"]


def test_every_step_has_the_same_chance() -> None:
    counts = np.zeros((4, 25))
    for seed in range(400):
        sample = ObservationSample(range(4 * seed, 4 * seed + 4), most=10)
        for t in range(25):
            obs = np.arange(4)[:, None] * 25 + t
            sample.consider(obs, obs, np.arange(4), np.arange(4), np.full(4, t))
        kept = [int(true[0]) for *_, true in sample._pairs]
        assert len(set(kept)) == len(sample) == 10
        counts.flat[kept] += 1
    assert counts.sum() == 4000
    for part in (counts.sum(0) / 4, counts.sum(1) / 25):  # 40 of 400, a deviation of 6 a cell
        assert np.abs(part - 40).max() < 12


def test_floats_are_compared_within_the_bounds_of_their_space() -> None:
    def dim() -> Film:
        return Film(gym.spaces.Box(-1, 3, (12, 16), np.float32))

    threat = adv.ThreatModel("observation", lambda x, context: x + 0.4, adv.Linf(0.4))
    row = adv.evaluate(watcher(dim()), dim, threat, 1, distances=("psnr", "ssim")).threats[1]
    assert row["distances"]["psnr"] == pytest.approx(20, abs=1e-3)  # 0.4 of a range of 4
    assert adv.evaluate(watcher(dim()), dim, threat, 1).threats[1]["distances"] == {}


def named(name: str) -> Any:
    def distance(x: Any, y: Any) -> Any:
        return average(x, y)

    distance.name = name  # type: ignore[attr-defined]
    return distance


@every_case(
    ("given", "message"),
    [
        ("lpips", "l2, linf, ssim, psnr or functions"), ([3], "or functions"), ([None], "or functions"),
        (["ssim", "ssim"], "taken"), ([average, average], "taken"), ([named("psnr")], "taken"),
        ([named("median")], "taken"), ([lambda x, y: 3.0], "must return 1 numbers"),
        ([lambda x, y: 1 / 0], "cannot compare"), ([lambda x, y: average(x, y) * np.nan], "must return 1 numbers"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch, given: Any, message: str) -> None:
    monkeypatch.setattr("adv_wrappers.evaluation.player.play_episodes", None)
    with pytest.raises(AdvWrappersError, match=message):
        adv.evaluate(FILM, Film, ["noise:eps=8"], distances=given)


def test_distances_that_do_not_apply(victim: Victim) -> None:
    def line() -> Film:
        return Film(gym.spaces.Box(0, 255, (40,), np.uint8))

    for name in ("ssim", "psnr"):
        with pytest.raises(AdvWrappersError, match="finite bounds"):
            adv.evaluate(victim, "CartPole-v1", distances=[name])
    with pytest.raises(AdvWrappersError, match="which axes"):
        adv.evaluate(watcher(line()), line, distances=["ssim"])
    assert adv.evaluate(watcher(line()), line, DARKER, 1).threats[1]["distances"] == {}
    row = adv.evaluate(watcher(line()), line, DARKER, 1, distances=["psnr"]).threats[1]
    assert 20 < row["distances"]["psnr"] < 30
