"""Which training a report advises to harden an agent by, what was tried already, and what a step of it takes."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.environments.environment import Environment, json_value
from adv_wrappers.errors import AdvWrappersError, CardError
from adv_wrappers.registry import Rewards
from adv_wrappers.studies.report.choices import ADVERSARIES, CHOICES_FILE, AdvisedTraining, HardenedBy, read_choices
from adv_wrappers.training.history import Tried, hardened_before, learned_as, tried_in
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.reading import read_json
from adv_wrappers.victims.victim import Victim

_RECURRENT: tuple[HardenedBy, ...] = ("max-diff", "pa-ad")  # no loss has bounds through an LSTM
_Q: tuple[HardenedBy, ...] = ("radial", "sa", "car", "max-diff")
_IMAGES: tuple[HardenedBy, ...] = ("radial", "sa", "max-diff")
_POLICIES: tuple[HardenedBy, ...] = ("wocar", "sa", "radial", "pa-ad")
_ROWS = 32  # environments, as many as train-agent has
_ROLLOUTS = 4  # of the training that is timed
# steps of a rollout, at the least: of each environment, and of all together
_STEPS = 8
_LEAST = 128
_MOST_FOLDERS = 100  # beside the report that are looked into


def advised_training(
    victim: Victim, environment: Environment | None = None, beside: Path | None = None, seed: int = 0
) -> AdvisedTraining:
    """The training that an agent is to be hardened by next: the first way that was not tried, as the agent learned.

    Of the losses for policies the one that keeps most comes first, and for DQN the one that keeps most in its worst
    seed (``docs/results/defences.md``). WocaR takes no images, and no loss a hidden state. Once all were tried they
    come again; where one of them left nothing to choose checkpoints by, under half of the eps that would have. An agent
    that earns much less than the one that it was trained from is left: that one is begun with again, under half of the
    eps.

    Args:
        victim: the agent.
        environment: where it is trained, if it is to be checked that it can be.
        beside: a folder whose folders may hold trainings, and reports, or None.
        seed: of the report.
    """
    # whether any training can go on with this agent in its environment
    learned = learned_as(victim.card if victim.card else {"training": getattr(victim, "learned", None)})
    try:
        from adv_wrappers.training.agent import AGENT_ALGORITHMS, check_spaces, victim_and_algorithm
        from adv_wrappers.training.sb3.conversion import networks_of_agent

        own = AGENT_ALGORITHMS.get(learned.get("algorithm", ""))
        fits = own is not None and victim.kind in own.begins_from and victim.recurrent == own.recurrent
        name: Any = own.name if own is not None and fits else ""
        initial, algorithm = victim_and_algorithm(victim, name or None)
        networks_of_agent(victim)
        if environment is not None:
            check_spaces(environment, initial, algorithm)
    except (AdvWrappersError, ImportError) as error:
        return AdvisedTraining(why_none=str(error))
    # the losses that suit it, and what was tried of them
    image = len(victim.observation_space.shape or ()) > 1
    fitting = _RECURRENT if victim.recurrent else _Q if victim.kind == "q" else _IMAGES if image else _POLICIES
    before = hardened_before(victim.card)
    rewards: Any = learned.get("rewards")
    # an agent that has given up its return is left: the one before it is trained anew
    last = before[-1] if before else None
    known = victim.fingerprint()
    ref = ""
    scale = None
    if last is not None and last.gave_up and last.most is not None and last.began_with and last.began_with[1]:
        known = last.began_with[0]
        ref = last.began_with[1]
        scale = last.scale
    before += [] if beside is None else [one for one in _tried_beside(beside, known) if one not in before]
    before = [one for one in before if one.by in get_args(HardenedBy)]
    # the first of those that were tried least often
    counts = {by: sum(one.by == by for one in before) for by in fitting}
    rounds = min(counts.values())
    return AdvisedTraining(
        next(by for by in fitting if counts[by] == rounds),
        tuple(one.by for one in before),
        min((one.most / 2**rounds for one in before if one.most is not None), default=None),
        name,
        rewards if rewards in get_args(Rewards) else "",
        gamma if (gamma := learned.get("gamma")) is not None and 0 <= gamma <= 1 else None,
        begins_with=ref or "",
        scale=scale,
        report=_report_beside(beside, known, environment, seed) if ref and beside and environment else "",
    )


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

        # a training that is as short as these rollouts, and ends with an exception
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


def _tried_beside(folder: Path, fingerprint: str) -> list[Tried]:
    """The trainings in the folders of a folder that began with an agent."""
    found = list[Tried]()
    for path in sorted(folder.glob("*/state.json"))[:_MOST_FOLDERS]:
        with suppress(CardError, AttributeError, KeyError, TypeError):
            state = read_json(path)
            if state.get("kind") == "agent" and state["about"].get("victim") == fingerprint:
                began = (state.get("result") or {}).get("began_with")
                found += tried_in(state["about"], state.get("record"), began, state.get("best", -1))
    return found


def _report_beside(folder: Path, fingerprint: str, environment: Environment, seed: int) -> str:
    """The folder, of those in a folder, with the report of an agent on the same episodes; "" where none has it."""
    for path in sorted(folder.glob(f"*/{CHOICES_FILE}"))[:_MOST_FOLDERS]:
        with suppress(AdvWrappersError, AttributeError, KeyError):
            known = read_choices(path.parent).identity or {}
            same = (known.get("env"), known.get("seed")) == (json_value(environment.described), seed)
            if same and known["victim"].get("fingerprint") == fingerprint:
                return str(path.parent)
    return ""
