"""Pictures for the page of an agent that sees images: a step under several threats, some seconds of an episode."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import cv2
from PIL import Image

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment
from adv_wrappers.evaluation.perturbed_samples import compare_threats
from adv_wrappers.rendering.attack_view import AttackView
from adv_wrappers.rendering.frames import amplified_difference, gain_for, largest_change, to_pixels
from adv_wrappers.studies.report.choices import AttackedFrame
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import write
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.wrap import wrap

FILM_FILE = "film.webp"
_STEP = 100  # of the stills
_FIRST, _STEPS, _MILLISECONDS = 60, 48, 67  # the step at which a film begins, its steps, and how long each is shown
_SIZE = 168  # pixels of the longer side of a picture in a film


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
        gain = gain_for(largest_change(true, shown))
        pictures = {
            "true": to_pixels(true),
            "shown": to_pixels(shown),
            "difference": amplified_difference(true, shown, gain),
        }
        files = {part: folder.resolve() / "frames" / f"{i}-{part}.png" for part in pictures}
        for part, picture in pictures.items():
            write(files[part], cv2.imencode(".png", picture[..., ::-1])[1].tobytes())
        frames.append(AttackedFrame(f"{name[0]}, step {_STEP}", **files))
    return tuple(frames)


def write_film(
    folder: Path, victim: Victim, environment: Environment, threat: ThreatModel, seed: int, deadline: Deadline
) -> Path | None:
    """Write some seconds of an episode under a threat: true, shown and different pictures side by side.

    Returns:
        The file, an animated WebP; None where the episode ends, or the time, before the film begins.

    Raises:
        AdvWrappersError: one of its kinds, for observations that are no images and a threat that does not fit.
    """
    frames = list[Image.Image]()
    with closing(environment.make_one()) as env, one_thread():
        view = AttackView(wrap(env, threat, victim=victim), size=_SIZE)
        runner = PolicyRunner(victim, 1)
        obs, _ = view.reset(seed=seed)
        runner.reset(None, [seed])
        for step in range(_FIRST + _STEPS):
            if step >= _FIRST:
                frames.append(Image.fromarray(view.render()))
            obs, _, terminated, truncated, _ = view.step(runner.act_one(obs))
            if terminated or truncated or deadline.passed:
                break
    if not frames:
        return None
    data = io.BytesIO()
    frames[0].save(data, "WEBP", save_all=True, append_images=frames[1:], duration=_MILLISECONDS, loop=0, quality=35)
    file = folder.resolve() / FILM_FILE
    write(file, data.getvalue())
    return file
