"""Plays on two agents that are compared what only one of them was played under, so that both met the same attacks.

Every attack of either report is played on both: on the same episodes, under the same eps, counted in the units of the
first report. The rows are kept in a folder of their own, so that the same call with more minutes goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adv_wrappers.agent_report.advice import option_of, words_of_agent
from adv_wrappers.agent_report.play_rows_until_deadline import Progress, TrialPlayer
from adv_wrappers.agent_report.rows_by_section import AgentSections, AttackRow, sorted_report
from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.frame_stack import Newest
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import AdvWrappersError, VictimError
from adv_wrappers.evaluation.environments import Environment, MakeEnv, json_value
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.threats.presets import as_threat
from adv_wrappers.threats.text import without_number
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.text import duration, split_stack
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

_RESERVE = 2.0  # seconds that are kept for the page


@dataclass(frozen=True)
class Completed:
    """Two reports of the same attacks.

    Attributes:
        agents: the first and the second, with what was played on them; as they were where nothing could be.
        notes: what was played, what could not be and why, and what there was no time for, in sentences.
    """

    agents: tuple[AgentSections, AgentSections]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Attack:
    """An attack of one of two reports, in the units of the first.

    Attributes:
        name: what a row is called.
        rows: that of either report, None where it was not played under it, or in other units.
        layers: the threats; empty where they cannot be made again.
        why_not: the reason for that.
    """

    name: str
    rows: tuple[AttackRow | None, AttackRow | None]
    layers: tuple[ThreatModel, ...]
    why_not: str = ""


def play_missing_rows(
    agents: tuple[AgentSections, AgentSections],
    key: Callable[[AttackRow, Sequence[float] | None], str],
    minutes: float,
    folder: Path,
    *,
    trust: bool = False,
    make: MakeEnv | None = None,
    progress: Progress | None = None,
) -> Completed:
    """Play what only one of two agents was played under on the other.

    Args:
        agents: two reports of the same episodes of one environment.
        key: the same for rows of one threat, by the scale that their report counts in.
        minutes: of wall clock.
        folder: for the rows.
        trust: whether files may run code, as for :func:`adv_wrappers.load_victim`.
        make: the function that makes the environment, where the reports were made with one.
        progress: called as ``progress(what, done, of how many)``.
    """
    first, second = agents
    deadline = Deadline(60 * minutes)
    players: list[TrialPlayer] = []
    try:
        victims = _victim(first, trust), _victim(second, trust)
        attacks = _attacks(agents, key, victims)
        if all(None not in attack.rows or not attack.layers for attack in attacks):
            return Completed(agents, tuple(_not_again(attacks)))
        for agent, victim, name in zip(agents, victims, ("first", "second"), strict=True):
            about, part = agent.report, folder / name
            episodes = Episodes(about.episodes, about.seed, about.num_envs, quantize=about.quantize is not False)
            part.mkdir(parents=True, exist_ok=True)
            environment = _environment(agent, victim, trust, make)
            players.append(TrialPlayer(victim, environment, episodes, deadline, part))
    except (AdvWrappersError, ImportError, OSError) as error:
        return Completed(agents, (f"What only one of them was played under cannot be played on the other: {error}.",))
    missing = [(attack, side) for attack in attacks if attack.layers for side in (0, 1) if attack.rows[side] is None]
    found: list[list[Any]] = [[], []]
    left, failed, seconds = 0, list[str](), 0.0
    with closing(players[0]), closing(players[1]):
        for done, (attack, side) in enumerate(missing):
            if progress is not None:
                progress("attacks of one report alone", done, len(missing))
            player = players[side]
            if first.report.num_envs == 1:  # there may be only one environment
                players[1 - side].close()
            try:
                if not player.has_clean:
                    player.reserve = min(_RESERVE, deadline.left / 4)
                    player.play_clean()
                found[side].append(player.play(attack.layers, None, "of both", label=attack.name).row)
            except OutOfTime:
                left, seconds = left + 1, seconds + player.left_out[-1].seconds
            except AdvWrappersError as error:
                failed.append(f"{attack.name}: {error}")
        if progress is not None:
            progress("attacks of one report alone", len(missing), len(missing))
    notes = _played(len(missing) - left - len(failed), left, seconds) + _not_again(attacks, failed)
    if not any(found) and all(None in attack.rows for attack in attacks):
        return Completed(agents, tuple(notes))  # nothing in common but what either report counts in its own units
    both = [
        _with_rows(agent, [attack.rows[side] for attack in attacks], found[side], first.choices.scale)
        for side, agent in enumerate(agents)
    ]
    return Completed((both[0], both[1]), tuple(notes))


def _played(count: int, left: int, seconds: float) -> list[str]:
    """What was played, and what there was no time for, about how many seconds."""
    played = "row that one of the two lacked was" if count == 1 else "rows that one of the two lacked were"
    notes = [f"{count} {played} played on it, eps in the units of the first."]
    late = f"{left} row{'' if left == 1 else 's'} did not fit into the time, about {duration(seconds)}"
    return notes[: min(count, 1)] + ([f"{late}: the same call with more minutes goes on."] if left else [])


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
    if make is not None or "make" in env:
        made = Environment(agent.environment, dict(env.get("kwargs") or {}), make)
        if make is None or json_value(made.described) != env:
            by = env.get("make") or "gymnasium.make"
            raise VictimError(f"the environment {agent.environment} is made by {by}: give that as --make")
        return made.for_victim(victim)
    found = Environment.of_file(agent.environment, dict(env.get("kwargs") or {}), "a report", trust)
    return found.for_victim(victim)


def _attacks(
    agents: tuple[AgentSections, AgentSections],
    key: Callable[[AttackRow, Sequence[float] | None], str],
    victims: tuple[Victim, Victim],
) -> list[_Attack]:
    """The attacks of both reports, those first that are the strongest at an eps of either."""
    units = agents[0].choices.scale
    found = dict[str, _Attack]()
    strongest = [
        row for agent in agents for sweep in agent.sweeps[:1] for _, row in sweep.strongest if row.kind != "clean"
    ]
    for wanted in (strongest, None):
        for side, agent in enumerate(agents):
            own = agent.choices.scale
            for row in agent.attacked:
                if wanted is not None and not any(row is one for one in wanted):
                    continue
                name = key(row, own)
                attack = found.get(name)
                if attack is None:
                    layers, why_not = _again(row, own, units, victims[side])
                    attack = _Attack(row.attack or row.label, (None, None), layers, why_not)
                # a row of the second report counts where its budget means the same in the units of the first
                if own == units or None in (own, units) or not _is_scaled(row.row["layers"]):
                    rows = (row, attack.rows[1]) if side == 0 else (attack.rows[0], row)
                    attack = replace(attack, rows=rows)
                found[name] = attack
    return [*found.values()]


def _is_scaled(layers: Any) -> bool:
    """Whether a budget among some layers has a number a feature, which are those of a report's own units."""
    if isinstance(layers, Mapping):
        return isinstance(layers.get("scale"), (list, tuple)) or any(map(_is_scaled, layers.values()))
    return isinstance(layers, (list, tuple)) and any(map(_is_scaled, layers))


def _again(
    row: AttackRow, own: Sequence[float] | None, units: Sequence[float] | None, victim: Victim
) -> tuple[tuple[ThreatModel, ...], str]:
    """The threats of a row in other units, whose victim is open; or why they cannot be played on another agent."""
    kinds = [layer["how"].get("type") if isinstance(layer, Mapping) and isinstance(layer["how"], Mapping) else None
             for layer in row.row["layers"]]  # fmt: skip
    if "recorded" in kinds or "<recorded>" in str(row.row["threat"]):
        return (), "what a search found is for its own agent"
    if "learned" in kinds or row.row.get("transfer"):
        return (), "it was trained against, or aimed at, another agent"
    if row.row.get("best_of", 1) > 1:
        return (), "it is the best of several draws"
    try:
        made = tuple(as_threat(part) for part in split_stack(without_number(str(row.row["threat"]))))
        if _open([json_form(layer) for layer in as_threat_stack([*made], victim).layers]) != _open(row.row["layers"]):
            return (), "its text does not say all of it"
    except AdvWrappersError as error:
        return (), str(error)
    if own is None or units is None or tuple(own) == tuple(units) or len(own) != len(units):
        return made, ""
    return tuple(replace(threat, within=_in_units(threat.budget, own, units)) for threat in made), ""


def _open(value: Any) -> Any:
    """A JSON form without the victims in it."""
    if isinstance(value, Mapping):
        if "sha256" in value:
            return "victim"
        return {name: _open(part) for name, part in value.items()}
    return [_open(part) for part in value] if isinstance(value, (list, tuple)) else value


def _in_units(budget: Any, own: Sequence[float], units: Sequence[float]) -> Any:
    """A budget whose scale is in one report's units, in those of another."""
    if isinstance(budget, Newest):
        return replace(budget, within=_in_units(budget.within, own, units))
    if not isinstance(budget, Linf) or not isinstance(budget.scale, tuple) or len(budget.scale) != len(own):
        return budget
    scale = (x / mine * unit if mine else x for x, mine, unit in zip(budget.scale, own, units, strict=True))
    return Linf(budget.eps, tuple(float(f"{one:.6g}") for one in scale))


def _with_rows(
    agent: AgentSections, kept: Sequence[AttackRow | None], played: Sequence[Any], units: tuple[float, ...] | None
) -> AgentSections:
    """A report of the run without an attack, the rows that count, and those that were played; in these units."""
    rows = [agent.clean.row, *(row.row for row in kept if row is not None), *played]
    choices = replace(agent.choices, scale=units) if agent.choices.scale is not None else agent.choices
    return sorted_report(replace(agent.report, threats=tuple(rows)), choices)


def _not_again(attacks: Sequence[_Attack], failed: Sequence[str] = ()) -> list[str]:
    """What could not be played on the other agent, and why."""
    reasons = [f"{one.name}: {one.why_not}" for one in attacks if one.why_not and None in one.rows]
    reasons += failed
    if not reasons:
        return []
    some = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return [f"Not played on the other: {some}."]
