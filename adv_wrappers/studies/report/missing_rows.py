"""Plays the attacks of one report on the agent of another, so that the two can be compared.

They are played as they are: on the same episodes, within the same budgets, in the units of the first report. The rows
are kept in a folder of their own, so that the same call with more minutes goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, ThreatError, VictimError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.rendering.table import grouped
from adv_wrappers.studies.report.advice import option_of, words_of_agent
from adv_wrappers.studies.report.sections import AgentSections, sorted_report
from adv_wrappers.studies.report.trials import DoesNotFit, TrialPlayer
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.number_text import counted, duration
from adv_wrappers.utils.pace import Progress
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

_RESERVE = 2.0  # seconds that are kept for the page


def play_missing_rows(
    first: AgentSections,
    second: AgentSections,
    minutes: float,
    folder: Path,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> tuple[AgentSections, list[str]]:
    """Play on a second agent the attacks that only a first one was played under, the strongest ones first.

    Args:
        first, second: reports of the same episodes of one environment.
        minutes: of wall clock.
        folder: for the rows.
        trust: whether files may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one.
        progress: called as ``progress(what, done, of how many)``.

    Returns:
        The second with what was played on it; and in sentences what was played, what could not be and why, and what
        there was no time for.
    """
    about, deadline = second.report, Deadline(60 * minutes).before(_RESERVE)
    try:
        victim = _victim(second, trust)
        environment = _environment(second, victim, trust, make)
    except (AdvWrappersError, ImportError, OSError) as error:
        return second, [f"What only the first was played under cannot be played on the second: {error}."]
    episodes = Episodes(about.episodes, about.seed, about.num_envs, quantize=about.quantize is not False)
    player = TrialPlayer(victim, environment, episodes, deadline, folder)
    folder.mkdir(parents=True, exist_ok=True)

    # what the second lacks, as far as there is time
    known, strongest = ({row.identity for row in rows} for rows in (second.rows, first.strongest.values()))
    missing = [row for row in first.attacked if row.identity not in known]
    missing.sort(key=lambda row: row.identity not in strongest)
    rows, late, reasons = list[Row](), list[float](), dict[str, str]()
    with closing(player):
        for done, row in enumerate(missing, 1):
            try:
                threats = _threats_of(row.row)
                if not player.has_clean:
                    player.play_clean()
                made = player.play(threats, label=row.attack).row
                rows.append(
                    replace(made, threat=row.row.threat)
                )  # by which the two are compared, however it is written
            except DoesNotFit as error:
                late.append(error.seconds)
            except AdvWrappersError as error:
                reasons[row.attack] = str(error)
            if progress is not None:
                progress("attacks of the first report alone", done, len(missing))

    # what came of it, in sentences
    notes = list[str]()
    if rows:
        notes.append(
            f"Played on the second agent too, with eps in the units of the first: {counted(len(rows), 'row')}."
        )
    if late:
        count = f"{counted(len(late), 'row')}, about {duration(sum(late))}"
        notes.append(f"Left out for lack of time: {count}. The same call with more minutes goes on.")
    if reasons:
        why = "; ".join(f"{names}: {reason}" for reason, names in grouped(reasons).items())
        notes.append(f"Not played on the second: {why}.")
    return sorted_report(replace(about, threats=(*about.threats, *rows)), second.choices), notes


def _victim(agent: AgentSections, trust: bool) -> Victim:
    """The agent of a report, loaded again; raises :class:`VictimError` unless it is the same."""
    about, words = agent.report.victim, words_of_agent(agent) or []
    if not about.get("ref"):
        raise VictimError(f"{agent.victim} has no reference to load it by")
    found = load_victim(str(about["ref"]), trust=trust, stats=option_of(words, "--stats"), select=about.get("select"))
    if found.fingerprint() != about.get("fingerprint"):
        raise VictimError(f"{about['ref']} holds other weights than those that the report was played with")
    return found


def _environment(agent: AgentSections, victim: Victim, trust: bool, make: MakeEnv | None) -> Environment:
    """The environment of a report, made again; raises :class:`VictimError` where another function would make it."""
    env = agent.report.env
    kwargs = dict(env.get("kwargs") or {})
    if make is None and "make" not in env:
        return Environment.of_file(agent.environment, kwargs, "a report", trust).for_victim(victim)
    made = Environment(agent.environment, kwargs, make)
    if make is None or json_value(made.described) != env:
        by = env.get("make") or "gymnasium.make"
        raise VictimError(f"the environment {agent.environment} is made by {by}: give that as --make")
    return made.for_victim(victim)


def _threats_of(row: Row) -> tuple[ThreatModel, ...]:
    """The threats of a row, whose victim is open; raises :class:`ThreatError` where they are of one agent alone."""
    kinds = {(layer.get("how") or {}).get("type") for layer in row.layers if layer is not None}
    if kinds & {"recorded", "learned"} or row.transfer or "<recorded>" in row.threat:
        raise ThreatError("it was made for its own agent, or aimed at another")
    if row.best_of > 1:
        raise ThreatError("it is the best of several draws")
    if None in row.layers:
        raise ThreatError("it has no form in which it could be stored")
    return tuple(ThreatModel.from_dict(_without_victim(layer)) for layer in row.layers)


def _without_victim(value: Any) -> Any:
    """A JSON form without the agent that is attacked, of whom it speaks at any depth."""
    if isinstance(value, list):
        return [_without_victim(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _without_victim(one) for name, one in value.items() if name != "victim"}
