"""Plays on two agents that are compared what only one of them was played under, so that both met the same attacks.

Every attack of either report is played on both: on the same episodes, under the same eps, counted in the units of the
first report. The rows are kept in a folder of their own, so that the same call with more minutes goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, MakeEnv, json_value
from adv_wrappers.errors import AdvWrappersError, VictimError
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.rendering.table import grouped
from adv_wrappers.studies.report.advice import option_of, words_of_agent
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, sorted_report
from adv_wrappers.studies.report.trials import TrialPlayer
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.parsing import counted, duration, split_stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

_RESERVE = 2.0  # seconds that are kept for the page

Agents = tuple[AgentSections, AgentSections]
Scale = tuple[float, ...] | None


@dataclass
class _Attack:
    """An attack of one of two reports, in the units of the first.

    Attributes:
        name: what a row is called.
        layers: the threats; empty where they cannot be made again.
        why_not: the reason for that.
        rows: that of either report, None where it was not played under it, or in other units.
    """

    name: str
    layers: tuple[ThreatModel, ...]
    why_not: str
    rows: list[Row | None] = field(default_factory=lambda: [None, None])


def play_missing_rows(
    agents: Agents,
    minutes: float,
    folder: Path,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> tuple[Agents, list[str]]:
    """Play what only one of two agents was played under on the other.

    Args:
        agents: two reports of the same episodes of one environment.
        minutes: of wall clock.
        folder: for the rows.
        trust: whether files may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one.
        progress: called as ``progress(what, done, of how many)``.

    Returns:
        Both with what was played on them, or as they were where nothing could be; and in sentences what was played,
        what could not be and why, and what there was no time for.
    """
    # both agents in their environments, and the attacks that either has met
    deadline, units = Deadline(60 * minutes), agents[0].choices.scale
    tell = progress or (lambda what, done, of: None)
    players = list[TrialPlayer]()
    try:
        for agent, name in zip(agents, ("first", "second"), strict=True):
            about, victim = agent.report, _victim(agent, trust)
            episodes = Episodes(about.episodes, about.seed, about.num_envs, quantize=about.quantize is not False)
            environment = _environment(agent, victim, trust, make)
            players.append(TrialPlayer(victim, environment, episodes, deadline, folder / name))
        attacks = _attacks(agents, [player.victim for player in players])
    except (AdvWrappersError, ImportError, OSError) as error:
        return agents, [f"What only one of them was played under cannot be played on the other: {error}."]

    # each on the agent that lacks it, as far as there is time
    missing = [(attack, side) for attack in attacks if attack.layers for side in (0, 1) if not attack.rows[side]]
    late, reasons = list[float](), {one.name: one.why_not for one in attacks if one.why_not and None in one.rows}
    played = 0
    with closing(players[0]), closing(players[1]):
        for done, (attack, side) in enumerate(missing, 1):
            player = players[side]
            if agents[0].report.num_envs == 1:  # there may be only one environment
                players[1 - side].close()
            try:
                if not player.has_clean:
                    player.out.mkdir(parents=True, exist_ok=True)
                    player.reserve = min(_RESERVE, deadline.left / 4)
                    player.play_clean()
                attack.rows[side] = player.play(attack.layers, label=attack.name).row
                played += 1
            except OutOfTime:
                late.append(player.left_out[-1].seconds)
            except AdvWrappersError as error:
                reasons[attack.name] = str(error)
            tell("attacks of one report alone", done, len(missing))

    # what came of it, in sentences
    notes = list[str]()
    if played:
        count = counted(played, "row")
        notes.append(f"Played on the agent that lacked it, with eps in the units of the first report: {count}.")
    if late:
        count = f"{counted(len(late), 'row')}, about {duration(sum(late))}"
        notes.append(f"Left out for lack of time: {count}. The same call with more minutes goes on.")
    if reasons:
        why = "; ".join(f"{names}: {reason}" for reason, names in grouped(reasons).items())
        notes.append(f"Not played on the other: {why}.")
    if all(None in attack.rows for attack in attacks):
        return agents, notes  # nothing in common but what either report counts in its own units
    # both reports anew, with the rows that both have
    both = list[AgentSections]()
    for side, agent in enumerate(agents):
        rows = (agent.clean.row, *(row for attack in attacks if (row := attack.rows[side]) is not None))
        choices = agent.choices if agent.choices.scale is None else replace(agent.choices, scale=units)
        both.append(sorted_report(replace(agent.report, threats=rows), choices))
    return (both[0], both[1]), notes


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


def _attacks(agents: Agents, victims: Sequence[Victim]) -> list[_Attack]:
    """The attacks of both reports, those first that are the strongest at an eps of either."""
    units, found = agents[0].choices.scale, dict[tuple[str, Scale], _Attack]()
    strongest = {id(row) for agent in agents for row in agent.strongest.values()}
    rows = [(side, row) for side, agent in enumerate(agents) for row in agent.attacked]
    for side, row in sorted(rows, key=lambda one: id(one[1]) not in strongest):
        own = agents[side].choices.scale
        if (key := key_of(row, own)) not in found:
            found[key] = _Attack(row.attack, *_again(row, own, units, victims[side]))
        # a row of the second report counts where its budget means the same in the units of the first
        if own == units or None in (own, units) or key[1] == row.scale:
            found[key].rows[side] = row.row
    return [*found.values()]


def key_of(row: AttackRow, own: Scale) -> tuple[str, Scale]:
    """The same for rows of the same threat, each aimed at its own agent and in units of its own report."""
    if own and row.scale and len(own) == len(row.scale):
        return row.label, tuple(round(x / unit, 6) if unit else x for x, unit in zip(row.scale, own, strict=True))
    return row.label, row.scale


def _again(row: AttackRow, own: Scale, units: Scale, victim: Victim) -> tuple[tuple[ThreatModel, ...], str]:
    """The threats of a row in other units, whose victim is open; or why they cannot be played on another agent."""
    kinds = {layer["how"].get("type") for layer in row.row.layers
             if isinstance(layer, Mapping) and isinstance(layer["how"], Mapping)}  # fmt: skip
    if kinds & {"recorded", "learned"} or row.row.transfer or "<recorded>" in row.row.threat:
        return (), "it was made for its own agent, or aimed at another"
    if row.row.best_of > 1:
        return (), "it is the best of several draws"
    # its text has to say all of it, or another attack would be played
    try:
        made = tuple(as_threat(part) for part in split_stack(without_number(row.row.threat)))
        again = [json_form(layer) for layer in as_threat_stack([*made], victim).layers]
    except AdvWrappersError as error:
        return (), str(error)
    if json.loads(json.dumps(again)) != [*row.row.layers]:
        return (), "its text does not say all of it"
    return tuple(replace(threat, within=_in_units(threat.budget, own, units)) for threat in made), ""


def _in_units(budget: Any, own: Scale, units: Scale) -> Any:
    """A budget whose scale is in one report's units, in those of another."""
    if isinstance(budget, Newest):
        return replace(budget, within=_in_units(budget.within, own, units))
    scale = budget.scale if isinstance(budget, Linf) else None
    if not isinstance(scale, tuple) or not own or not units or own == units:
        return budget
    if not len(scale) == len(own) == len(units):
        return budget
    # each feature's share of the one range becomes the same share of the other
    made = (x / mine * unit if mine else x for x, mine, unit in zip(scale, own, units, strict=True))
    return Linf(budget.eps, tuple(float(f"{one:.6g}") for one in made))
