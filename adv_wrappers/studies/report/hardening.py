"""Which training a report advises to harden an agent by, what was tried already, and what a step of it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adv_wrappers.core.budgets import Linf
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import AdvWrappersError, CardError
from adv_wrappers.studies.report.choices import ADVERSARIES, HARDENED_BY
from adv_wrappers.training.method import Tried, hardened_before, tried_in
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.reading import read_json
from adv_wrappers.victims.victim import Victim

_RECURRENT = ("max-diff", "pa-ad")  # no loss has bounds through an LSTM
_Q = ("radial", "sa", "car", "max-diff")
_IMAGES = ("radial", "sa", "max-diff")
_POLICIES = ("wocar", "sa", "radial", "pa-ad")
_ROWS = 32  # environments, as many as train-agent has
_ROLLOUTS, _STEPS, _LEAST = 4, 8, 128  # of the training that is timed, and the steps of each environment and of all
# together in one, at the least
_MOST_FOLDERS = 100  # beside the report that are looked into


@dataclass(frozen=True)
class Advised:
    """The training that comes next.

    Attributes:
        by: one of ``HARDENED_BY``, or "" where none can begin with the agent.
        tried: those before it, in their order.
        most: the largest eps that it should have, or None.
        why_none: why none can begin with the agent, or "".
    """

    by: str = ""
    tried: tuple[str, ...] = ()
    most: float | None = None
    why_none: str = ""


def hardened_by(victim: Victim, environment: Environment | None = None, beside: Path | None = None) -> Advised:
    """What a training that begins with an agent goes on by: the first that was not tried.

    Of the losses for policies the one that keeps most comes first, and for DQN the one that keeps most in its worst
    seed (``docs/results/defences.md``). WocaR takes no images, and no loss a hidden state. Once all were tried they
    come again; where one of them left nothing to choose checkpoints by, under half of the eps that would have.

    Args:
        victim: the agent.
        environment: where it is trained, if it is to be checked that it can be.
        beside: a folder whose folders may hold trainings that began with it, or None.
    """
    try:
        from adv_wrappers.training.agent import check_spaces, victim_and_algorithm
        from adv_wrappers.training.sb3_conversion import networks_of_agent

        initial, algorithm = victim_and_algorithm(victim, None)
        networks_of_agent(victim)
        if environment is not None:
            check_spaces(environment, initial, algorithm)
    except (AdvWrappersError, ImportError) as error:
        return Advised(why_none=str(error))
    image = len(victim.observation_space.shape or ()) > 1
    fitting = _RECURRENT if victim.recurrent else _Q if victim.kind == "q" else _IMAGES if image else _POLICIES
    before = [*hardened_before(victim.card), *([] if beside is None else _tried_beside(beside, victim))]
    before = [one for one in before if one.by in HARDENED_BY]
    counts = {by: sum(one.by == by for one in before) for by in fitting}
    rounds = min(counts.values())
    most = min((one.most / 2**rounds for one in before if one.most is not None), default=None)
    return Advised(next(by for by in fitting if counts[by] == rounds), tuple(one.by for one in before), most)


def training_step_seconds(
    by: str, victim: Victim, environment: Environment, within: Linf, deadline: Deadline, rows: int | None = None
) -> float | None:
    """Seconds of a step of the training that is advised, measured on a few short rollouts of it.

    The rollouts are the first of a training that is as short as they are, so that what grows in the course of one, such
    as the share of eps that a loss is over, has grown. What checkpoints take, some hundredths, is not counted.

    Args:
        by, within: the training and its budget.
        victim, environment: with what it begins, and where.
        deadline: when to give up.
        rows: environments side by side; None takes as many as train-agent.

    Returns:
        None where there was no time for it, or the training cannot begin.
    """
    rows = rows or _ROWS
    each = max(_STEPS, _LEAST // rows)  # steps of an environment in a rollout
    told = list[tuple[int, float]]()  # steps, and the time at which a rollout began after so many

    def rollout(steps: int) -> None:
        deadline.check()
        told.append((steps, time.perf_counter()))
        # the rest, and the episodes of its checkpoint, would tell nothing more
        if steps >= (_ROLLOUTS - 1) * each * rows:
            raise OutOfTime

    try:
        from adv_wrappers.training.agent import train_agent

        q = victim.kind == "q"
        short: dict[str, Any] = {"learning_starts": rows} if q else {"n_steps": each}
        adversary: dict[str, Any] = {"adversary_settings": {"n_steps": each}} if by == "pa-ad" else {}
        train_agent(
            environment, by if by in ADVERSARIES else None, steps=_ROLLOUTS * each * rows, num_envs=rows, victim=victim,
            robust=None if by in ADVERSARIES else by, within=within, phase=each * rows, checks=1, episodes=1,
            settings=short, on_steps=rollout, **adversary,
        )  # fmt: skip
    except OutOfTime:
        pass
    except Exception:  # of whatever so many environments raise, or a library that is not there: the report goes on
        return None
    if len(told) < 3:
        return None
    (first, began), (last, ended) = told[1], told[-1]  # the first rollout prepares what all others use
    return (ended - began) / (last - first)


def _tried_beside(folder: Path, victim: Victim) -> list[Tried]:
    """The trainings in the folders of a folder that began with an agent."""
    found = list[Tried]()
    for path in sorted(folder.glob("*/state.json"))[:_MOST_FOLDERS]:
        with suppress(CardError):
            state = read_json(path)
            about = state.get("about") if state.get("kind") == "agent" else None
            if isinstance(about, Mapping) and about.get("victim") == victim.fingerprint():
                found += tried_in(about, state.get("record"))
    return found
