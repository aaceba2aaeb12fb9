"""Measuring a submission: clean episodes, the attacks and a certificate at the standing's budget, in a given time.

All rows of an agent are of the same episodes, and lie in its folder of the standing, which has the form of a report's
folder. An agent counts for the lowest of the means, so another attack can only lower it. Agents are cards: data, whose
networks are deterministic, so that a defence cannot gain by noise in its layers.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adv_wrappers.certification.certify import certify
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.perturbation import How, Perturbation, function_name
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import Environment, EnvKwargs, json_value
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from adv_wrappers.evaluation.cost import Costs
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.studies.report.advised_training import advised_training
from adv_wrappers.studies.report.choices import CertifiedReturn, ReportChoices, Untried, write_choices
from adv_wrappers.studies.report.observation_ranges import observed_ranges
from adv_wrappers.studies.report.trials import ROOM, DoesNotFit, TrialPlayer
from adv_wrappers.studies.run_time import attack_costs, timed_search
from adv_wrappers.studies.standing.budgets import StandingBudget, chosen_budget, fitted_budget
from adv_wrappers.studies.standing.entry import AttackedMean, StandingEntry, is_name, read_entry
from adv_wrappers.studies.suite.attack_lists import entries_that_apply
from adv_wrappers.studies.suite.entry import AttackSetting, MadeAttack
from adv_wrappers.studies.suite.untrained_attacks import beam
from adv_wrappers.threats.presets import as_threat, parse_perturbation
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.validation import AboveZero, Minutes, Seed, check_fields, checked
from adv_wrappers.victims import environment_of, load_victim
from adv_wrappers.victims.victim import Victim

EPISODES, FEWER = 10, 2  # of states, and of images
ATTACKS = (
    "noise", "max-diff", "beam", "square", "min-best", "pgd", "min-q", "strong-max-diff", "apgd", "multi-targeted",
)  # fmt: skip
_RANGE_SEEDS = 3  # clean episodes apart from the scored ones, by which an agent's own unit is checked
# of the time that is left
RANGE_SHARE = 0.05
CERTIFIED_SHARE = 0.15
SEARCHED_SHARE = 0.5


@dataclass(frozen=True)
class Submission:
    """An agent that is to join a standing.

    Args:
        victim: its reference, ``card:FOLDER`` or ``zoo:NAME``: agents of the standing are cards.
        name: by which the standing calls it.
        licence: of its weights; None takes that of its card.
        claim: what its authors say of it, in their words. "" keeps what was said before.
        env: the id of its environment; None takes that of its card.
        env_kwargs: of its environment; None is that of its card.
        eps: radius of the budget, for an environment that the table of budgets does not have.
        scale: of :class:`adv_wrappers.Linf`.
        seed: of the episodes.
        trust: import the module of an environment that its card names: for files of your own.
    """

    victim: str
    name: str
    licence: str | None = None
    claim: str = ""
    env: str | None = None
    eps: AboveZero | None = None
    scale: Scale = None
    seed: Seed = 0
    env_kwargs: EnvKwargs | None = None
    trust: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


@checked
@holding
def add_submission(
    given: Submission, out: str | Path, minutes: Minutes = 2.0, tell: Callable[[str], None] = lambda sentence: None
) -> StandingEntry:
    """Measure an agent, or go on with it, and write its entry.

    Args:
        given: the submission.
        out: its folder of the standing.
        minutes: of wall clock. Attacks that do not fit are left out, with the seconds that they take: fewer on a
            faster machine, which a search and a certificate also go further on.
        tell: called with a sentence whenever something else begins.

    Returns:
        The entry, which is in the folder.

    Raises:
        AdvWrappersError: one of its kinds, before anything is attacked: for a reference that is no card, no licence, a
            budget other than the table's, a unit of the agent's own that is too small, and a folder of other weights,
            another environment, budget or seed.
    """
    deadline = Deadline(60 * minutes)
    folder, name = Path(out), given.name
    setting, entry = open_submission(given, folder, deadline)
    left_out = entry.left_out
    # clean episodes, the certificate, then one attack after the other
    with closing(_player(setting, deadline)) as player:
        tell(f"{name}: no attack")
        entry.clean = _figures(player.play_clean())
        entry.certificate, entry.no_certificate = _certified(setting, deadline)
        entries, reasons = entries_that_apply(ATTACKS, setting)
        left_out |= {name: _without_folders(reason) for name, reason in reasons.items()}
        for one in entries:
            tell(f"{name}: {one.name}")
            try:
                # each as far as it fits, and kept as soon as it is there
                made = _searched(player, setting) if one is beam else one.attack(setting)
                row = player.play(made.threat, label=one.name).row
                entry.attacks[one.name] = _figures(row)
                left_out.pop(one.name, None)
            except DoesNotFit as error:
                entry.left_out_seconds[one.name] = error.seconds
                left_out[one.name] = str(error)
                tell(f"{name}: {one.name} was left out, {left_out[one.name]}")
            except AdvWrappersError as error:
                left_out[one.name] = _without_folders(str(error))
            _write(setting, entry, player)
        _write(setting, entry, player)
    return entry


@checked
def submission_cost(given: Submission, out: str | Path, minutes: Minutes = 2.0) -> Costs:
    """How long the attacks of the standing on an agent take, from the clean run and a few steps of each.

    Args:
        given: the submission, which is checked.
        out: the folder that the agent has, or gets, in the standing: attacks that have a row there are not timed.
            Nothing is written to it.
        minutes: of wall clock that are given for a submission, of which the checks take a share.

    Raises:
        AdvWrappersError: as :func:`add_submission` does.
    """
    setting, _ = open_submission(given, Path(out), Deadline(60 * minutes))
    entries, left_out = entries_that_apply(ATTACKS, setting)
    return attack_costs(entries, setting, _episodes(setting), Path(out), "attacks", left_out)


def minutes_for(costs: Costs) -> float:
    """``minutes`` with which :func:`add_submission` plays all attacks, and has its share for a certificate."""
    return ROOM * costs.seconds / (1 - RANGE_SHARE) / (1 - CERTIFIED_SHARE) / 60


def _searched(player: TrialPlayer, setting: AttackSetting) -> MadeAttack:
    """What a search finds in a share of the time that is left, or had found; else :class:`.DoesNotFit`, which is noted.

    How long it takes is not known before: it shortens the episodes that it searches.
    """
    given = SEARCHED_SHARE * player.deadline.left
    seconds, found = timed_search(setting, player.clean.mean_length, sys.maxsize, given)
    if found is None:
        raise player.leave_out(beam.name, seconds)
    return found


@checked
@holding
def add_attack(
    victim: str,
    out: str | Path,
    threat: str | How,
    *,
    label: str | None = None,
    minutes: Minutes = 10.0,
    tell: Callable[[str], None] = lambda sentence: None,
    trust: bool = False,
) -> StandingEntry:
    """Attack an agent of the standing in another way, such as by an adversary that was trained against it.

    The attack is played on the episodes and in the budget of the agent's other rows. It can only lower the agent.

    Args:
        victim: the agent's reference, as :func:`add_submission` took it.
        out: its folder of the standing.
        threat: without a budget, such as ``"max-diff:steps=100"`` or ``"learned:card=FOLDER"``. It is a text, a
            perturbation of one's own, or a function ``(x, context) -> x'``. An adversary that was trained has a budget
            of its own, which must be that of the standing.
        label: of the attack in the table; None takes the text. Of a perturbation or function that is its name. Of two
            attacks of one name the lower one stays.
        minutes: of wall clock.
        tell: called with a sentence whenever something else begins.
        trust: import the module of an environment that the folder names: for files of your own.

    Returns:
        The entry, which is in the folder.

    Raises:
        AdvWrappersError: one of its kinds: for an agent that the folder does not hold, the name of an attack of the
            standing, an attack in another budget or a text with one, and one that does not fit into the time, before it
            is played.
    """
    folder, agent = Path(out), load_victim(victim)
    # the agent, environment, budget and episodes of its entry
    entry = read_entry(folder)
    if entry is None or agent.card is None or entry.victim["fingerprint"] != agent.fingerprint():
        raise ValueRangeError(f"{folder} does not hold {victim}: adv-wrappers standing add comes first")
    deadline = Deadline(60 * minutes)
    kwargs = entry.environment.get("kwargs") or None
    environment = Environment.of_file(entry.env_id, kwargs, str(folder), trust).for_victim(agent)
    eps, scale = entry.given_budget
    chosen = chosen_budget(environment.name, eps, tuple(scale) if isinstance(scale, list) else scale)
    setting = _opened(agent, environment, chosen, entry.seed, folder, deadline, entry.episodes)
    within = setting.budget
    assert within is not None
    name = label or called(threat)
    if name in ATTACKS:  # whose row it would take the place of
        raise ValueRangeError(f"the standing has an attack of its own called {name}: give another label=")
    # an attack in the standing's own budget
    if not isinstance(threat, str):
        attack = ThreatModel("observation", threat, within)
    elif threat.startswith("learned:"):  # whose card has its budget
        attack = as_threat(threat)
    else:
        attack = as_threat(parse_perturbation(threat), within=within)
    # an adversary's card has the numbers of the victim's unit, not its name
    if attack.on != "observation" or attack.budget.resolve(agent) != within.resolve(agent):
        raise ValueRangeError(f"attacks of the standing are on observations, within {within}, got {threat!r:.200}")
    with closing(_player(setting, deadline)) as player:
        player.play_clean()
        tell(f"{entry.name}: {name}")
        try:
            row = player.play(attack, label=name).row
        except DoesNotFit as error:
            raise ValueRangeError(f"{name} takes {error}: give more minutes") from error
        # of two of one name the lower one counts
        known, found = entry.attacks.get(name), replace(_figures(row), added=True)
        if known is None or found.mean <= known.mean:
            entry.attacks[name] = found
        _write(setting, entry, player)
    return entry


def called(threat: str | How) -> str:
    """What the standing calls an attack that has no label: its text, or the name of the perturbation or function."""
    if isinstance(threat, str):
        return threat
    return threat.name if isinstance(threat, Perturbation) else function_name(threat)


def what_card_says(card: Mapping[str, Any]) -> dict[str, Any]:
    """What the training record of a card says: how it was trained, and for how many seconds; None where it has none.

    >>> what_card_says({"training": {"algorithm": "ppo", "robust": {"type": "sa"}}})
    {'trained_with': 'ppo, sa', 'training_seconds': None}
    """

    def said(of: Any, *names: str) -> Any:
        """What a dictionary has under these names, one inside the other; None where it has no such."""
        for name in names:
            of = of.get(name) if isinstance(of, Mapping) else None
        return of

    # the algorithm, the robust loss and the adversary
    training = card.get("training")
    actor = said(training, "adversary", "actor")
    against = said(actor, "type") if isinstance(actor, Mapping) else actor
    words = [said(training, "algorithm"), said(training, "robust", "type")]
    words += [f"against {against}"] if isinstance(against, str) else []
    # of the last checkpoint the seconds of every part
    points = said(training, "checkpoints")
    seconds = said(points[-1] if isinstance(points, list) and points else None, "seconds")
    total = sum(float(one) for one in seconds.values()) if isinstance(seconds, Mapping) else None
    return {"trained_with": ", ".join(str(word) for word in words if word) or None, "training_seconds": total}


def _figures(row: Row) -> AttackedMean:
    """What a page shows of a row."""
    return AttackedMean(
        threat=_without_folders(row.threat),
        mean=row.mean_return,
        low=row.low,
        high=row.high,
        caveat=row.caveat,
        seconds=row.seconds,
    )


def _without_folders(text: str) -> str:
    """A text without the folders in which cards and critics lie on one machine."""
    return re.sub(r"(card[:=]|critic=)\S*/", r"\1", text)


def open_submission(given: Submission, folder: Path, deadline: Deadline) -> tuple[AttackSetting, StandingEntry]:
    """Check a submission, and play the few clean episodes by which its budget is fitted.

    Args:
        given: the submission.
        folder: of the standing, that the agent has or gets.
        deadline: for all its rows, of which these episodes take a share.

    Returns:
        What its attacks are made for, in the folder, and the entry as far as it is known without any row but those of
        attacks that were added.

    Raises:
        AdvWrappersError: as :func:`add_submission` does.
    """
    if not is_name(given.name):
        raise ValueRangeError(f"the name of an agent has letters, digits and any of . _ + -, got {given.name!r:.80}")
    agent = load_victim(given.victim)
    if agent.card is None:
        raise ValueRangeError(
            f"agents of a standing are cards, card:FOLDER or zoo:NAME, got {given.victim!r:.80}: "
            f"adv_wrappers.save_card writes a victim as one"
        )
    # a card with a licence, and its environment
    licence = _licence(agent.card, given.licence)
    id, own = environment_of(agent.card)
    kwargs = given.env_kwargs if given.env_kwargs is not None else own or None
    environment = Environment.of_file(
        "" if given.env is not None else id,
        None if given.env_kwargs is not None else own,
        f"the card of {given.victim}",
        given.trust,
    )
    environment = Environment(given.env or id, kwargs).for_victim(agent)
    chosen = chosen_budget(environment.name, given.eps, given.scale)
    # what is in the folder has to be of the same agent
    known = read_entry(folder)
    if known is not None and known.victim["fingerprint"] != agent.fingerprint():
        raise ValueRangeError(f"{folder} holds an agent of other weights: give another name")
    described = json_value(environment.described)
    given_budget = json_value([given.eps, given.scale])
    if known is not None:  # attacks that were added there are of its episodes, and would count for these
        for what, before, now in (
            ("environment", known.environment, described),
            ("eps and scale", known.given_budget, given_budget),
            ("seed", known.seed, given.seed),
        ):
            if before != now:
                raise ValueRangeError(f"{folder} holds rows of {what} {before}, got {now}: give another name")
    # the entry, with attacks that somebody has added
    setting = _opened(agent, environment, chosen, given.seed, folder, deadline)
    entry = StandingEntry(
        name=given.name,
        licence=licence,
        claim=given.claim or (known.claim if known else ""),
        environment=described,
        budget=str(chosen),
        given_budget=given_budget,
        victim={**agent.described(), "ref": None},
        **what_card_says(agent.card),
        episodes=setting.episodes,
        seed=given.seed,
        attacks={name: row for name, row in known.attacks.items() if row.added} if known else {},
    )
    return setting, entry


def _opened(
    agent: Victim,
    environment: Environment,
    chosen: StandingBudget,
    seed: int,
    folder: Path,
    deadline: Deadline,
    count: int | None = None,
) -> AttackSetting:
    """Play a few clean episodes, by which the budget is fitted and the number of episodes chosen.

    Args:
        deadline: for all, of which these take a share.
        count: of episodes; None takes that of the standing.
    """
    ranges = observed_ranges(agent, environment, draw_seeds(seed + 1, _RANGE_SEEDS), deadline.share(RANGE_SHARE))
    budget, count = fitted_budget(chosen, agent, ranges), count or (FEWER if ranges.image else EPISODES)
    return AttackSetting(agent, environment, budget, episodes=count, episode_seed=seed, out=folder)


def _episodes(setting: AttackSetting) -> Episodes:
    """The episodes of all rows, in which images are compared as well."""
    return Episodes(setting.episodes, setting.episode_seed)


def _player(setting: AttackSetting, deadline: Deadline) -> TrialPlayer:
    """What plays the rows of an agent, and keeps them in its folder."""
    assert setting.out is not None
    return TrialPlayer(setting.victim, setting.environment, _episodes(setting), deadline, setting.out)


def _licence(card: Mapping[str, Any], given: str | None) -> str:
    """The licence of a card's weights, or the one that is given where the card names none."""
    own = str(card.get("licence") or "")
    if not own and not given:
        raise ValueRangeError(
            "a submission needs the licence of its weights, which its card does not name: give licence="
        )  # fmt: skip
    if own and given and own != given:
        raise ValueRangeError(
            f"the card says that the licence of its weights is {own!r:.80}, got licence={given!r:.80}"
        )
    return own or str(given)


def _certified(setting: AttackSetting, deadline: Deadline) -> tuple[CertifiedReturn | None, str | None]:
    """The certified mean return of the episodes, or why there is none."""
    if setting.images:
        return None, "of images it takes hours: adv-wrappers certify"
    count = setting.episodes
    seed = setting.episode_seed
    budget = setting.budget
    each = max(CERTIFIED_SHARE * deadline.left / count, 0.01)
    try:
        found = certify(setting.victim, setting.environment, None, count, seed, budget_s=each, within=budget)
    except AdvWrappersError as error:
        return None, _without_folders(str(error))
    certificate = CertifiedReturn.of(found, getattr(budget, "eps", 0.0))
    return certificate, None if certificate else "nothing was searched in the time"


def _write(setting: AttackSetting, entry: StandingEntry, player: TrialPlayer) -> None:
    with contextlib.suppress(AdvWrappersError):
        entry.warnings, entry.versions = list(player.report().warnings), player.report().versions
    entry.write(player.out)
    write_choices(player.out, _choices(entry, setting))


def _choices(entry: StandingEntry, setting: AttackSetting) -> ReportChoices:
    """What the agent's own page has beside its rows: the certificate, and what was not played."""
    found, seconds = entry.certificate, entry.left_out_seconds
    not_tried = [] if found is not None else [f"Nothing is certified: {entry.no_certificate}"]
    not_tried += [f"{name} does not apply: {why}" for name, why in entry.left_out.items() if name not in seconds]
    budget = setting.budget
    assert isinstance(budget, Linf)
    # what there is no row of
    scale = budget.resolve(setting.victim).scale
    return ReportChoices(
        scale=scale if isinstance(scale, tuple) else None,
        reasons=(f"The budget is that of the standing: {entry.budget}.",),
        certificates=(replace(found, eps=budget.eps),) if found else (),
        untried=tuple(Untried(name, "did not fit into the time", spent) for name, spent in seconds.items()),
        training=advised_training(setting.victim),
        not_tried=tuple(not_tried),
    )
