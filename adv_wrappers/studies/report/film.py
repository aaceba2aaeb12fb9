"""Pictures for pages: what threats do to an agent that sees images, and what they make of an episode."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
from PIL import Image

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import SpaceError
from adv_wrappers.evaluation.perturbed_samples import compare_threats
from adv_wrappers.rendering.attack_view import AttackView, compose_panels
from adv_wrappers.rendering.frames import Pixels, amplified_difference, gain_for, largest_change, to_pixels
from adv_wrappers.studies.report.choices import AttackedFrame
from adv_wrappers.utils.deadline import NEVER, Deadline
from adv_wrappers.utils.files import write
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.wrap import wrap

FILM_FILE = "film.webp"
_STEP = 100  # of the stills
_FIRST = 60  # the step at which a film begins
_STEPS = 48  # of a film
_MILLISECONDS = 67  # that each is shown
_SIZE = 168  # pixels of the longer side of a picture in a film
_WIDE = 300  # pixels of the width of a rendering


def write_stills(
    folder: Path, victim: Victim, environment: Environment, threats: Sequence[object], seed: int
) -> tuple[AttackedFrame, ...]:
    """Write the true, the shown and the different picture of one step of an episode under each threat.

    Returns:
        Of each threat the title and the files.

    Raises:
        AdvWrappersError: one of its kinds, for observations that are no images and threats that do not fit.
    """
    found = compare_threats(environment.name, threats, victim, step=_STEP, seed=seed)
    true, frames = found.frame(found.true), list[AttackedFrame]()
    for i, (name, observation) in enumerate(zip(found.names, found.perturbed, strict=True)):
        shown = found.frame(observation)
        # the difference as much brighter as its own changes allow
        gain = gain_for(largest_change(true, shown))
        pictures = {
            "true": to_pixels(true),
            "shown": to_pixels(shown),
            "difference": amplified_difference(true, shown, gain),
        }
        files = {part: f"frames/{i}-{part}.png" for part in pictures}
        for part, picture in pictures.items():
            write(folder / files[part], cv2.imencode(".png", picture[..., ::-1])[1].tobytes())
        frames.append(AttackedFrame(f"{name[0]}, step {_STEP}", **files))
    return tuple(frames)


def write_film(
    folder: Path, victim: Victim, environment: Environment, threat: ThreatModel, seed: int, deadline: Deadline
) -> str:
    """Write some seconds of an episode under a threat: true, shown and different pictures side by side.

    Returns:
        The name of the file, an animated WebP; "" where the episode ends, or the time, before the film begins.

    Raises:
        AdvWrappersError: one of its kinds, for observations that are no images and a threat that does not fit.
    """
    with closing(environment.make_one()) as env, one_thread():
        view = AttackView(wrap(env, threat, victim=victim), size=_SIZE)
        frames = _rendered(view, victim, seed, range(_FIRST, _FIRST + _STEPS), deadline)
    return _written(folder, frames, _MILLISECONDS).name if len(frames) > 1 else ""


def write_side_by_side(
    folder: Path,
    victim: Victim,
    environment: Environment,
    threats: Mapping[str, str | None],
    seed: int,
    steps: range,
    seconds: float,
) -> Path:
    """Write an episode under several threats side by side, as the environment renders it.

    Args:
        folder: where the film is written.
        victim: who plays.
        environment: its ``render_mode`` is ``"rgb_array"`` here.
        threats: the threat of each picture by its title; None for none.
        seed: of the episode.
        steps: those that are shown; the picture of an episode that ends before them stays.
        seconds: of a step.

    Returns:
        The file, an animated WebP.

    Raises:
        SpaceError: for an environment that does not render.
        Exception: whatever it raises, such as MuJoCo where there is no OpenGL.
    """
    films = list[list[Pixels]]()
    rendering = replace(environment, kwargs={**(environment.kwargs or {}), "render_mode": "rgb_array"})
    # the same episode under each threat, one after the other
    for threat in threats.values():
        with closing(rendering.make_one()) as env, one_thread():
            attacked = env if threat is None else wrap(env, threat, victim=victim)
            films.append([_narrowed(picture) for picture in _rendered(attacked, victim, seed, steps)])
    frames = list[Pixels]()
    # picture by picture; the last one of an episode that is over stays
    for i, step in enumerate(steps):
        panels = [(title, film[min(i, len(film) - 1)]) for title, film in zip(threats, films, strict=True)]
        frames.append(compose_panels([(None, f"{seconds * step:.2f} s")], panels))
    return _written(folder, frames, round(1000 * seconds * steps.step))


def _rendered(env: Any, victim: Victim, seed: int, steps: range, deadline: Deadline = NEVER) -> list[Any]:
    """What an environment renders at some steps of an episode, and at its end where that comes before, or the time."""
    found = list[Any]()
    for step, (_, over) in enumerate(PolicyRunner(victim, 1).episode(env, seed)):
        if over or (step and deadline.passed):
            return [*found, env.render()]
        if step == steps.stop:
            break
        if step in steps:
            found.append(env.render())
    return found


def _narrowed(picture: Any) -> Pixels:
    """What an environment renders, :data:`_WIDE` pixels wide."""
    if getattr(picture, "ndim", 0) != 3:
        raise SpaceError(f"its render() returned {type(picture).__name__} instead of an image [H, W, 3]")
    high = round(_WIDE * picture.shape[0] / picture.shape[1])
    return to_pixels(cv2.resize(picture, (_WIDE, high), interpolation=cv2.INTER_AREA))


def _written(folder: Path, frames: Sequence[Pixels], milliseconds: int) -> Path:
    """The file of an animation."""
    data, (first, *others) = io.BytesIO(), map(Image.fromarray, frames)
    first.save(data, "WEBP", save_all=True, append_images=others, duration=milliseconds, loop=0, quality=35)
    file = folder.resolve() / FILM_FILE
    write(file, data.getvalue())
    return file
