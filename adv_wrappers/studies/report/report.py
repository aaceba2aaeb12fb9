"""report: how an agent breaks, found in a given time, and the page that says it."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch

from adv_wrappers.core.spaces import keys_in
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.report_warnings import other_environment
from adv_wrappers.studies.report.agenda import Agenda, Tell
from adv_wrappers.studies.report.choices import ReportChoices, Untried, read_choices, write_choices
from adv_wrappers.studies.report.observation_ranges import ObservationRanges, observed_ranges
from adv_wrappers.studies.report.page import PAGE_FILE, page_of
from adv_wrappers.studies.report.sections import read_reports
from adv_wrappers.studies.report.trials import TrialPlayer
from adv_wrappers.studies.report.verdict import GREY_LEVELS, Verdict, verdict
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.files import LOCK, holding, write
from adv_wrappers.utils.number_text import duration
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.validation import EnvCount, EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

_RESERVE = 3.0  # seconds kept for the page
_RANGES_SHARE = 0.05  # of the time, for the clean episodes that budgets are chosen by
_FIRST_EPISODE_SHARE = 0.5  # of the time, within which the first episode ends
_LEAST_CLEAN = 5.0  # seconds for what is played without an attack, should the time be over when it begins
_CLEAN_SHARE = 0.2  # of the time that is left, for the row without an attack: others take as long
_ROW_SECONDS = 2.0  # of a row under a cheap attack, which decides how many episodes a row has
_MANY, _ROW_SHARE = 10, 0.005  # episodes beyond which such a row takes at most this share of the time
_COUNTS, _IMAGE_COUNTS = (30, 20, 10, 5, 3), (10, 5, 3, 2)  # episodes of a row
_SHORT = 100  # steps of an episode, in the advice where the time is over before one is


@dataclass(frozen=True)
class AgentReport:
    """What :func:`report` found.

    Attributes:
        folder: holds ``rows.db``, ``choices.json``, ``report.json`` and the page.
        page: the page.
        report: every row that was played.
        choices: what was chosen and why.
        verdict: what the rows say.
    """

    folder: Path
    page: Path
    report: Report
    choices: ReportChoices
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.verdict.sentence}\n{self.page}"


@checked
@holding
def report(
    victim: Victim | str,
    env: AnyEnvironment,
    minutes: Annotated[float, Limits(0.02, 1e5)] = 5.0,
    *,
    out: str | Path = "adv_report",
    episodes: EpisodeCount | None = None,
    seed: Seed = 0,
    device: torch.device | str | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    workers: Workers = 1,
    num_envs: EnvCount | None = None,
    progress: Progress | None = None,
    tell: Tell | None = print,
    command: str | None = None,
    began: float | None = None,
) -> AgentReport:
    """Find out how an agent breaks, in a given time, and write a page that says it.

    What is tried is chosen by what the agent sees and how long things take, in an order that does not depend on the
    time: noise, and a cheap attack that aims at the agent, on observations from no effect to half of the return; what
    is strongest for its price, a narrow search over whole episodes where states can be saved and attacks of single
    steps, downwards while half of the return is lost; certificates where there are any; changes of images; single
    features; other attacks at the same sizes; parts of an episode, few perturbations; actions; faults; thorough
    attacks; searches; and an adversary that is trained. A search whose time is over keeps the episodes that it came to,
    and its row says how many these are. With more time the same order goes further. Rows are kept as they come: the
    same call, with more minutes, goes on where it ended, and with fewer it keeps what is there. Where episodes take
    long, a row has fewer of them.

    Args:
        victim: the agent, or a reference such as ``"sb3:model.zip"``.
        env: the id of the environment, a function that makes one, or an :class:`adv_wrappers.Environment`.
        minutes: of wall clock, after which the page is ready, and what is not played is left out. A faster machine
            plays more in them, so what is found depends on it.
        out: the folder, which is made; that of an earlier call goes on.
        episodes: of every row; None takes as many as there is time for.
        seed: seeds all randomness.
        device, env_kwargs, make, workers: as for :func:`adv_wrappers.evaluate`.
        num_envs: as for :func:`adv_wrappers.evaluate`; 1 where only one environment can be at a time.
        progress: called as ``progress(threat, episodes finished, episodes)``.
        tell: called with a sentence, whenever something else begins; None for silence.
        command: the command that repeats this, for the page; None makes it of the arguments.
        began: the ``time.monotonic()`` from which the minutes count; None for that of this call.

    Returns:
        The rows, what was chosen, and where the page is.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played, for arguments that cannot work;
            :class:`ValueRangeError` for a folder that holds something else, or the report of another agent, and where
            the time is over before the episodes without an attack are.

    >>> import adv_wrappers as adv
    >>> found = adv.report("zoo:cartpole-dqn", "CartPole-v1", minutes=0.1)  # doctest: +SKIP
    """
    now = time.monotonic()
    limit, began = 60 * minutes, now if began is None else min(began, now)
    # whose report it is, and what an earlier call has chosen
    deadline = Deadline(limit - (now - began))
    agent = load_victim(victim) if device is None else load_victim(victim, device=device)
    environment = Environment.of(env, agent, env_kwargs, make)
    environment.spaces_for(agent)
    folder = Path(out)
    identity = {"victim": agent.described(), "env": json_value(environment.described), "seed": seed}
    before = _known_choices(folder, identity)
    tell = tell or (lambda sentence: None)

    # what the agent sees and how long that takes, by which budgets and the number of episodes are chosen
    for warning in other_environment(agent, environment.name):
        tell(f"WARNING: {warning}")
    tell("the agent is played without an attack")
    clean_until = Deadline(max(deadline.left, _LEAST_CLEAN))
    until = clean_until.share(_FIRST_EPISODE_SHARE)
    try:
        seen = observed_ranges(agent, environment, draw_seeds(seed, 30), Deadline(_RANGES_SHARE * limit), until)
        ranges = _as_before(seen, before)
        count = before.episodes or episodes or _episodes(ranges, limit, deadline)
        why = f"an episode takes about {duration(ranges.length * ranges.seconds)} here, and the report is of {count}"
        how, rows_until = Episodes(count, seed, num_envs), deadline.before(_RESERVE)
        rows = TrialPlayer(agent, environment, how, rows_until, folder, workers, progress, ranges.at)
        with contextlib.closing(rows):
            rows.play_clean(clean_until)
            for sentence in rows.clean.environment_notes.values():
                tell(f"WARNING: {sentence}")
            # what is tried, from the rows that are there on
            earlier = read_reports(folder).own
            agenda = Agenda(rows, ranges, before, earlier.swept if earlier else (), tell)
            # how to repeat it, for the page
            if agent.ref is None:
                given, more = f"adv.report(victim, {environment.name!r}, out={str(folder)!r}, minutes=", "{:g})"
            else:
                words = ["adv-wrappers", "report", environment.name, "--victim", agent.ref]
                words += ["--env-kwargs", json.dumps(environment.kwargs, default=str)] if environment.kwargs else []
                given = command or shlex.join([*words, "--out", str(folder)])
                more = " --minutes {:g}"
            again = given.replace("{", "{{").replace("}", "}}") + more
            # a page is there whatever ends it, and before, so that a program that was killed can be called again
            write_report = partial(_write, agenda, identity, again, limit, began)
            write_report("the report was interrupted before")
            try:
                agenda.play()
            except BaseException:
                with contextlib.suppress(AdvWrappersError):
                    write_report("the report was interrupted before")
                raise
            return write_report("")
    except OutOfTime as over:
        raise ValueRangeError(
            f"{limit:.3g} seconds were over before the agent was played without an attack: {str(over) or why}. Give "
            f"more time, or shorter episodes: minutes=, or max_episode_steps={_SHORT} among env_kwargs="
        ) from over


def _known_choices(folder: Path, identity: Mapping[str, Any]) -> ReportChoices:
    """What an earlier call chose.

    Raises:
        ValueRangeError: for a folder that holds something else, or the report of another agent.
    """
    before = read_choices(folder)
    if before.played and before.identity != identity:
        raise ValueRangeError(
            f"{folder} holds the report of another agent or environment, or from another seed: give another folder"
        )
    if not before.played and folder.is_dir() and any(one.name != LOCK for one in folder.iterdir()):
        raise ValueRangeError(f"{folder} is not empty and holds no report: give a new folder")
    return before


def _write(
    agenda: Agenda, identity: Mapping[str, Any], again: str, limit: float, began: float, unfinished: str
) -> AgentReport:
    """Write the rows, what was chosen, and the page.

    Args:
        agenda: what was played.
        identity: whose report it is.
        again: the command that plays it again, in so many minutes.
        limit, began: the seconds that are given, and when they began.
        unfinished: why it is not all, or "".
    """
    folder = agenda.path
    rows = agenda.rows
    ranges = agenda.ranges
    late = limit + 1.5 * sum(rows.left_out.values())
    why, unit = unfinished or "the time was over before", _unit(ranges)
    # what was left out, and why eps are what they are
    parts = [part.words for part in ranges.others if part.at not in agenda.told_of]
    reasons = [f"{note[:1].upper()}{note[1:]}." for note in rows.clean.environment_notes.values()]
    if sizes := agenda.strongest:
        reasons.append(
            f"eps goes from {min(sizes):.3g} to {max(sizes):.3g} {unit}, above all around that at which half of the "
            "return is lost."
        )
    # choices first: the page is made of what lies in the folder
    choices = ReportChoices(
        identity=identity,
        command=again.format(limit / 60),
        minutes=limit / 60,
        seconds=time.monotonic() - began,
        finished=not unfinished,
        episodes=rows.episodes.count,
        features=ranges.features if ranges.scale else None,
        scale=ranges.scale,
        unit=unit,
        at=tuple(map(str, keys_in(ranges.at) or ())),
        reasons=tuple(reasons),
        certificates=tuple(agenda.certificates),
        untried=tuple(Untried(*named, seconds) for named, seconds in rows.left_out.items()),
        more=again.format(math.ceil(late / 60)) if rows.left_out else "",
        frames=agenda.frames,
        film=agenda.film,
        training=agenda.advised,
        not_tried=(*agenda.not_tried, *(f"Nothing was tried on {part}: {why}." for part in parts)),
    )
    write_choices(folder, choices)
    page = folder / PAGE_FILE
    stored = read_reports(folder)
    write(page, page_of(stored, page.name))
    # the verdict of this very report
    own = stored.own
    assert own is not None  # it has been chosen for
    found = replace(own.report, warnings=rows.report().warnings)  # stored rows do not know an agent without a reference
    found.to_json(folder / "report.json")
    return AgentReport(folder, page, found, choices, verdict(own))


def _as_before(found: ObservationRanges, before: ReportChoices) -> ObservationRanges:
    """The ranges with those of an earlier call, if there were any: in them its rows are counted."""
    known = before.features or ()
    same = before.scale and tuple(one.name for one in known) == found.names
    return replace(found, features=known) if same else found


def _episodes(ranges: ObservationRanges, limit: float, deadline: Deadline) -> int:
    """The number of episodes of a row, by how long a row takes."""
    steps = 3 if ranges.image else 2  # a cheap attack costs about so many times a clean step
    each = ranges.seconds * ranges.length
    counts = _IMAGE_COUNTS if ranges.image else _COUNTS
    for count in counts:
        most = _ROW_SECONDS if count <= _MANY else min(_ROW_SECONDS, _ROW_SHARE * limit)
        if count * steps * each / 4 <= most:  # several are stepped at once
            return count
    return max(min(counts[-1], int(_CLEAN_SHARE * deadline.left / max(each, 1e-9))), 1)


def _unit(ranges: ObservationRanges) -> str:
    if ranges.choices:
        return ""
    if not ranges.image:
        return "of the range of each feature"
    return GREY_LEVELS if ranges.levels == 255 else "in the unit of a pixel"
