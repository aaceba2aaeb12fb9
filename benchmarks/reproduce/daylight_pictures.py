"""Pictures of the daylight transforms in the paper's five games, after its figures 1 to 3.

    python benchmarks/reproduce/daylight_pictures.py [--victim Pong=card:FOLDER]

writes for every game a sheet (``pong.png``) and the power spectral density (``pong-spectrum.png``), for all of them
together ``frames.png`` and ``spectra.png``, and ``bands.csv``: by how many dB the transforms change the power in three
bands, the mean over several frames of every game. A game with a victim is played by it, and has a Carlini-Wagner
column; the others are played at random. Needs the games' ROMs, which come with ale-py.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import adv_wrappers as adv
from adv_wrappers.evaluation.perturbed_samples import compare_threats, daylight_threats
from adv_wrappers.rendering.contact_sheet import ThreatComparison, draw_contact_sheet, draw_spectra
from adv_wrappers.rendering.fourier_spectrum import BANDS
from adv_wrappers.rendering.frames import to_pixels
from adv_wrappers.rendering.plots import new_figure, save_figure, show_image
from adv_wrappers.victims.policy_runner import PolicyRunner

GAMES = {"BankHeist": 50, "Jamesbond": 125, "Pong": 50, "Riverraid": 100, "TimePilot": 200}  # and the step shown
ATTACK = "carlini-wagner:target=worst"
EVERY = 8  # steps from one frame of the table to the next


def observations(game: str, victim: Any, count: int, seed: int) -> list[NDArray[np.uint8]]:
    """Observations of one run, some steps apart; a new episode begins where one ends."""
    env = adv.atari.atari(f"{game}NoFrameskip-v4")
    obs, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    runner = PolicyRunner(victim, 1) if victim is not None else None
    found: list[NDArray[np.uint8]] = []
    for step in range(1, count * EVERY + 1):
        action = env.action_space.sample() if runner is None else runner.act(np.asarray(obs)[None])[0]
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
        if step % EVERY == 0:
            found.append(np.array(obs))
    env.close()
    return found


def mean_bands(comparisons: Sequence[ThreatComparison]) -> dict[str, dict[str, float]]:
    """By transform and band, the mean change in dB over frames."""
    rows = [one.bands() for one in comparisons]
    return {
        name: {band: float(np.mean([row[place][band] for row in rows])) for band in BANDS}
        for place, (name, _) in enumerate(comparisons[0].names)
    }


def table(changes: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """One row a transform, one column a game, the bands from low to high in a cell."""
    names = dict.fromkeys(name for rows in changes.values() for name in rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["transform", *changes])
        for name in names:
            cells = [
                " / ".join(f"{round(value, 1) + 0.0:+.1f}" for value in rows[name].values()) if name in rows else ""
                for rows in changes.values()
            ]
            writer.writerow([name, *cells])


def gallery(comparisons: dict[str, ThreatComparison], path: Path, fourier: bool) -> None:
    """Rows are games, columns the original and its transforms: frames, or the logarithms of their spectra."""
    columns = max(len(one.perturbed) for one in comparisons.values()) + 1
    names = ["original", *(name for name, _ in max(comparisons.values(), key=lambda one: len(one.perturbed)).names)]
    figure = new_figure(1.7 * columns + 0.3, 1.7 * len(comparisons) + 0.3, 100, "constrained")
    grid = figure.subplots(len(comparisons), columns, squeeze=False)
    for axes, name in zip(grid[0], names, strict=True):
        axes.set_title(name, loc="left", fontweight="bold")
    for row, (game, one) in zip(grid, comparisons.items(), strict=True):
        row[0].set_ylabel(game)
        seen = [one.true, *one.perturbed]
        planes = [one.spectrum(x) for x in seen] if fourier else []
        brightest = max((math.ceil(plane.max()) for plane in planes), default=0)
        for column, x in enumerate(seen):
            if fourier:
                show_image(row[column], planes[column], cmap="magma", vmin=0, vmax=brightest)
            else:
                show_image(row[column], to_pixels(one.frame(x)))
    save_figure(figure, path)


def main() -> None:
    """Write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victim", action="append", default=[], metavar="GAME=REF", help="again for more games")
    parser.add_argument("--frames", type=int, default=32, help="of every game, for the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/_static/daylight"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    victims = dict(item.split("=", 1) for item in arguments.victim)
    unknown = sorted(set(victims) - set(GAMES))
    if unknown:
        parser.error(f"--victim: {', '.join(unknown)} is none of {', '.join(GAMES)}")
    comparisons: dict[str, ThreatComparison] = {}
    changes: dict[str, dict[str, dict[str, float]]] = {}
    for game, step in GAMES.items():
        victim = adv.load_victim(victims[game]) if game in victims else None
        id = f"{game}NoFrameskip-v4"
        threats = [*([ATTACK] if victim is not None else []), *daylight_threats(id)]
        one = compare_threats(id, threats, victim, step=step, seed=arguments.seed)
        draw_contact_sheet(one, arguments.out / f"{game.lower()}.png")
        draw_spectra(one, arguments.out / f"{game.lower()}-spectrum.png")
        comparisons[game] = one
        frames = observations(game, victim, arguments.frames, arguments.seed)
        changes[game] = mean_bands([compare_threats(x, threats, victim, seed=arguments.seed) for x in frames])
        print(game, changes[game], flush=True)
    transforms = {game: _without_attack(one) for game, one in comparisons.items()}
    gallery(transforms, arguments.out / "frames.png", fourier=False)
    gallery(transforms, arguments.out / "spectra.png", fourier=True)
    table(changes, arguments.out / "bands.csv")


def _without_attack(one: ThreatComparison) -> ThreatComparison:
    kept = [i for i, (name, _) in enumerate(one.names) if name != "carlini-wagner"]
    lists = (tuple(values[i] for i in kept) for values in (one.perturbed, one.names, one.distances))
    return ThreatComparison(one.title, one.space, one.true, *lists)


if __name__ == "__main__":
    main()
