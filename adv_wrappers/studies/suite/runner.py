"""run_suite: the strongest of many attacks on one agent (after AutoAttack, Croce and Hein 2020).

One attack that fails says little of an agent: it may be the wrong attack, or badly trained. So all that apply are run
on the same episodes, cheap and trained ones, and the attack with the lowest mean is the worst case. The lowest of
several means is lower than that attack's own mean, by chance, so the worst case is played again on fresh episodes: that
is what the agent is worth under this budget. Where the episodes do not tell the lowest from others, which may take much
more, these are played on further ones first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import OutputError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.cost import Cost, Costs, run_seconds
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluate import kept_rows, play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.report import Report, number_text
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.statistics import mean_interval
from adv_wrappers.evaluation.store import ROWS_FILE
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, ThreatStack, as_threat_stack
from adv_wrappers.studies.estimate import entry_costs, global_draws_kept, is_made
from adv_wrappers.studies.suite.attack_lists import LEARNED, SUITES, chosen_entries, entries_of, entries_that_apply
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack, SuiteProgress
from adv_wrappers.studies.suite.report import SuiteReport, close_attacks, strongest_of
from adv_wrappers.studies.suite.trained import SARSA
from adv_wrappers.threats.presets import parse_threat, threat, threat_layers
from adv_wrappers.training.critic import SMALL, CriticSetting
from adv_wrappers.training.folder import (
    check_same,
    describe_settings,
    described,
    described_victim,
)
from adv_wrappers.utils.files import held, holding, write
from adv_wrappers.utils.limits import EnvCount, EpisodeCount, Seed, TrainingSteps, Workers, checked
from adv_wrappers.utils.reading import decoding, read_result
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.saved_networks import Dynamics, load_dynamics
from adv_wrappers.victims.victim import Victim

# settings that a suite shares with the one in its folder
_IDENTITY = ("victim", "environment", "within", "seed", "quantize")
_ENTRIES = frozenset(entry.name for entry in SUITES["everything"])
# the names of attacks that are trained, of which a report says where they are no stronger than noise
_TRAINED = (*LEARNED, SARSA)


@checked
@holding
def run_suite(
    suite: str | Iterable[Entry | str],
    victim: Victim | str,
    env: AnyEnvironment,
    eps: float | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    action_within: Budget | None = None,
    train: bool = False,
    episodes: EpisodeCount = 50,
    seed: Seed = 0,
    steps: TrainingSteps = 100_000,
    critics: Sequence[CriticSetting] = SMALL,
    num_envs: EnvCount | None = None,
    training: Mapping[str, object] | None = None,
    attacks: str | Iterable[str] | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    quantize: bool = True,
    out: str | Path | None = None,
    progress: SuiteProgress | None = None,
    dynamics: Dynamics | str | None = None,
    workers: Workers = 1,
    name: str = "own",
    tell: Callable[[str], None] | None = None,
    on_cost: Callable[[Costs], None] | None = None,
) -> SuiteReport:
    """Attack an agent with every attack of a suite that applies, and report the worst case.

    What is trained, and what chooses between critics and checkpoints, are episodes apart from those that are scored.
    All attacks are scored on the same episodes, which choose the strongest, with as many further ones where they do not
    tell it from others; its own figure is that of fresh ones, on which nothing was chosen.

    Args:
        suite: which attacks. A name of :data:`adv_wrappers.studies.SUITES`; or its attacks: entries, names of entries,
            and texts of threats without a budget, such as ``[*SUITES["standard"], "max-diff:steps=30", Entry(...)]``.
        victim, env, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`.
        eps: radius of the l-infinity budget, without which attacks that need one are left out. It is that of perturbed
            observations; instead of it and ``scale``, ``within`` is the budget itself.
        scale: of :class:`Linf`.
        action_within: the budget of perturbed actions; None takes any action where they are discrete, and else ``eps``
            or ``within`` in the units of the actions. With a ``scale`` these are left out.
        train: adversaries, critics and surrogates, for minutes to hours each; they are left out otherwise.
        episodes: episodes that every attack is scored on, and the strongest again. As many further ones are for those
            that may be the strongest, and fresh ones for the strongest.
        seed: seeds the scored episodes. Trainings take ``seed + 1``, fresh episodes ``fresh_seed(seed)``.
        steps: training steps of each adversary that learns.
        critics: settings for :func:`scan_critics`, which is run where the victim's card has no critic.
        num_envs: environments side by side, of evaluations and trainings; None takes 32, or 8 for images.
        training: further arguments of :func:`train_adversary`: ``algorithm``, ``checks``, ``episodes``, and the
            algorithm's own settings.
        attacks: names of attacks of the suite; None takes all that apply.
        out: a folder for the report and all that is trained; the same call goes on where it stopped. It gets
            ``report.json``, adversaries and critics in folders of their own, and in ``evaluation``, ``tie_break`` and
            ``fresh`` the rows as they come. The same call goes on after an interruption, or reads the result; with more
            ``steps`` or attacks it does only what is missing, and with more ``episodes`` it trains nothing anew but
            scores all attacks on them. Rows that this leaves behind are kept in ``evaluation/rows.db``. No other
            process gets it meanwhile. An entry of one's own is made again at every call, since its code may have
            changed; its row is taken over where the threat is the same. A victim that is a function, and an environment
            that a lambda, a method or a partial makes, are always played again, as :func:`adv_wrappers.evaluate` does.
        progress: called as ``progress(what, done, total)``.
        dynamics: a model of the environment, card:FOLDER, for model-based. It is one of
            :func:`adv_wrappers.train_dynamics` or its reference; None leaves that attack out.
        workers: as for :func:`adv_wrappers.evaluate`.
        name: what the report calls a suite that has no name of ``SUITES``.
        tell: called, before anything is trained, with a sentence that says what is.
        on_cost: called, once the clean run was played and before anything is trained or searched for, with what the
            suite will take (:func:`suite_cost`); None makes no estimate. The rows are the same with and without.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work;
            :class:`OutputError` for a folder that cannot be written to, or that another process holds;
            :class:`ValueRangeError` for a folder of another suite, and for one whose finished suite has an attack that
            is not asked for, more episodes, or adversaries that were trained for more steps; :class:`ThreatError` for
            what is no suite.

    >>> from adv_wrappers.studies import run_suite
    >>> report = run_suite(["noise", "max-diff:steps=3"], "zoo:cartpole-dqn", "CartPole-v1", eps=0.1, episodes=2)
    >>> report.attacks
    ('noise', 'max-diff:steps=3')
    """
    without = eps is None and within is None and scale is None
    budget = None if without else needed_budget("the suite", eps, scale, within)
    name, given = (suite, ()) if isinstance(suite, str) else (name, tuple(suite) if isinstance(suite, Iterable) else ())
    whole = entries_of(given or suite)
    entries = chosen_entries(whole, attacks)
    training, critics = dict(training or {}), [*critics]
    victim, model = load_victim(victim), None if dynamics is None else load_dynamics(dynamics)
    folder, environment = None if out is None else Path(out), Environment.of(env, victim, env_kwargs, make)
    setting = AttackSetting(
        victim,
        environment,
        budget,
        action_within,
        quantize,
        train,
        seed + 1,
        steps,
        critics,
        training,
        num_envs,
        model,
        folder,
        int(episodes),
        int(seed),
        progress=progress,
    )
    entries, reasons = entries_that_apply(entries, setting)
    if not entries:
        raise ThreatError(_nothing_applies(reasons))
    names = tuple(entry.name for entry in entries)
    left_out = {one.name: reasons.get(one.name, "not asked for") for one in whole if one.name not in names}
    settings = _settings_of(setting, entries, given)
    finished = None if folder is None else _finished_suite(folder, settings)
    own = any(isinstance(item, Entry) and item not in SUITES["everything"] for item in given)
    if finished is not None and not own and victim.is_known and environment.is_known:
        return replace(finished, suite=name)
    if tell is not None and any(entry.trains(setting) for entry in entries):
        tell(training_note(entries, setting))
    made = dict[str, MadeAttack]()

    def evaluate_all(
        chosen: Sequence[Entry], setting: AttackSetting, on: str, rows: Mapping[str, Row] = MappingProxyType({})
    ) -> Report:
        made.update({entry.name: entry.attack(setting) for entry in chosen if entry.per_episodes})
        names = [entry.name for entry in chosen]
        stacks = [as_threat_stack(made[name].threat, victim) for name in names]
        with held(setting.folder(setting.part)), closing(_opened(setting, stacks)) as evaluator:
            named = zip(("none", *names), evaluator.stacks, strict=True)
            played = {i: replace(rows[one], threat=as_.name) for i, (one, as_) in enumerate(named) if one in rows}
            return play_missing(
                evaluator,
                played,
                progress=_named_progress(progress, evaluator, names, on),
                out=setting.folder(setting.part),
                resume=folder is not None,
                workers=workers,
            )

    with held(setting.folder(setting.part)):  # it is tried whether it can be written to before anything is played
        known: Mapping[str, Row] = {}
        if on_cost is not None:
            made |= _made_at_once(entries, setting)
            cost, known = _estimated(entries, setting, made)
            on_cost(cost)
        made |= {one.name: one.attack(setting) for one in entries if not (one.per_episodes or one.name in made)}
        scored = evaluate_all(entries, setting, "", known)
    report = _named(scored, names)
    tie_break = None
    if len(close := close_attacks(report)) > 1:
        further = replace(setting, episode_seed=fresh_seed(int(seed), 2), part="tie_break")
        again = evaluate_all([entries[names.index(one)] for one in close], further, " on further episodes")
        tie_break = _named(again, close)
    strongest = entries[names.index(strongest_of(report, tie_break)["threat"])]
    later = replace(setting, episode_seed=fresh_seed(int(seed)), part="fresh")
    fresh = evaluate_all([strongest], later, " on fresh episodes")
    others = _other_budgets({one: made[one].threat for one in names}, setting)
    trained = {*_TRAINED, *(entry.name for entry in entries if entry.trained)}
    warnings = [*_with_advice(scored, names, trained, others), *(text for one in names for text in made[one].warnings)]
    done = SuiteReport(
        name,
        settings,
        report,
        _named(fresh, [strongest.name]),
        {one: made[one].protocol for one in names},
        left_out,
        tuple(warnings),
        others,
        tie_break,
    )
    if folder is not None:
        try:
            done.report.to_json(folder / "evaluation" / "report.json")
            done.fresh.to_json(folder / "fresh" / "report.json")
            if tie_break is not None:
                tie_break.to_json(folder / "tie_break" / "report.json")
            done.to_json(folder / "report.json")
        except OutputError as error:
            error.report = done
            raise
    return done


@holding
def standard(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: float | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> SuiteReport:
    """:func:`run_suite` of the suite ``standard``, with its trainings: everything that applies to observations.

    The attacks are ``noise``, ``min-best``, ``pgd``, ``apgd``, ``multi-targeted``, ``momentum``, ``min-q`` and
    ``max-diff`` with the numbers of the presets, ``strong-max-diff``, which searches for the largest divergence,
    ``beam``, which searches the scored episodes where a simulator can be saved, ``model-based`` where a model of the
    environment is given, ``robust-sarsa`` with the critic of the victim's card or else the strongest of a scan, and
    ``sa-rl`` and ``pa-ad``, trained here.

    Args:
        victim, env, eps, scale, within, out: as for :func:`run_suite`; a budget is needed.
        **options: the other arguments of :func:`run_suite`.

    Raises:
        AdvWrappersError: as :func:`run_suite` does; :class:`ThreatError` without a budget, or with two.
    """
    budget = needed_budget("the suite", eps, scale, within)
    return run_suite("standard", victim, env, within=budget, out=out, **{"train": True, **options})


def suite_cost(
    suite: str | Iterable[Entry | str],
    setting: AttackSetting,
    attacks: str | Iterable[str] | None = None,
) -> Costs:
    """What a suite will take on this machine, attack by attack: seconds of some of its steps, times the steps.

    The run without an attack is played, and says how many steps there are. Some steps of every attack are timed, the
    first steps of a search, and a rollout of every training, which is thrown away. Nobody knows beforehand how long
    episodes are under an attack. The strongest, which is played again on fresh episodes, is counted once.

    Args:
        suite, attacks: as for :func:`run_suite`.
        setting: what the attacks are made for. A folder, ``out``, is that of :func:`run_suite`: rows that it holds are
            not estimated, and the clean run is kept there, so that the suite does not play it again.

    Raises:
        AdvWrappersError: one of its kinds, as :func:`run_suite` does.

    >>> from adv_wrappers import Linf
    >>> from adv_wrappers.studies import AttackSetting, suite_cost
    >>> setting = AttackSetting("zoo:cartpole-dqn", "CartPole-v1", Linf(0.05), episodes=2)
    >>> cost = suite_cost(["noise", "pgd", "beam"], setting)
    >>> max(cost.parts, key=lambda part: part.seconds).name
    'beam: search'
    """
    with held(setting.out):
        given = () if isinstance(suite, str) else tuple(suite)
        entries, reasons = entries_that_apply(chosen_entries(entries_of(given or suite), attacks), setting)
        if not entries:
            raise ThreatError(_nothing_applies(reasons))
        if setting.out is not None and _finished_suite(setting.out, _settings_of(setting, entries, given)) is not None:
            return Costs((), "entries", len(entries))
        return _estimated(entries, setting, _made_at_once(entries, setting))[0]


def _estimated(
    entries: Sequence[Entry], setting: AttackSetting, made: Mapping[str, MadeAttack]
) -> tuple[Costs, dict[str, Row]]:
    """What a suite will take, and the rows that are known then, by name; that of the clean run is ``none``."""
    kept = [entry for entry in entries if entry.name not in made and is_made(entry, setting)]
    made = {**made, **{entry.name: entry.attack(setting) for entry in kept}}
    names = [entry.name for entry in entries if entry.name in made]
    stacks = [as_threat_stack(made[name].threat, setting.victim) for name in names]
    rows, parts, unknown = dict[int, Row](), list[Cost](), list[str]()
    with closing(_opened(setting, stacks)) as evaluator, one_thread():
        folder = setting.folder(setting.part)
        if folder is not None and (folder / ROWS_FILE).exists():
            rows |= kept_rows(evaluator, folder)
            if len(names) < len(entries):
                folder = None  # its report may hold rows of runs that are not among these
        told = _named_progress(setting.progress, evaluator, names)
        with contextlib.suppress(OutputError):  # the suite raises it again, with all rows
            play_missing(evaluator, rows, [0], out=folder, resume=folder is not None, progress=told)
        for entry in entries:
            i = names.index(entry.name) + 1 if entry.name in names else None
            found = [Cost(entry.name, 0, 0.0)]  # its row is known
            with global_draws_kept():  # of trainings and of code of one's own
                if i is None:
                    found = entry_costs(entry, setting, rows[0])
                elif i not in rows:
                    found = [Cost(entry.name, 1, run_seconds(evaluator, i, rows[0]))]
            parts += found
            unknown += [] if found else [entry.name]
    costs = Costs(tuple(parts), "entries", sum(not part.left for part in parts), tuple(unknown))
    return costs, {name: rows[i] for i, name in enumerate(("none", *names)) if i in rows}


def _opened(setting: AttackSetting, stacks: Sequence[ThreatStack]) -> Evaluator:
    """The clean run and these attacks on the episodes of a setting."""
    return Evaluator(
        setting.victim,
        setting.environment,
        [CLEAN_RUN, *stacks],
        Episodes(setting.episodes, setting.episode_seed, setting.num_envs, distances=(), quantize=setting.quantize),
    )


def _named_progress(
    progress: SuiteProgress | None, evaluator: Evaluator, names: Sequence[str], on: str = ""
) -> SuiteProgress | None:
    """Progress of an evaluation by the names of a suite.

    Args:
        progress: is told of each run, or None.
        evaluator: the evaluator.
        names: of its runs but the clean one.
        on: says on which episodes, if not on those that are scored.
    """
    if progress is None:
        return None
    known = dict(zip([stack.name for stack in evaluator.stacks], ("none", *names), strict=True))
    return lambda what, done, total: progress(f"scoring {known[what]}{on}", done, total)


def _made_at_once(entries: Sequence[Entry], setting: AttackSetting) -> dict[str, MadeAttack]:
    """The attacks that are neither trained nor made for their episodes."""
    return {one.name: one.attack(setting) for one in entries if not (one.per_episodes or one.trains(setting))}


def _nothing_applies(reasons: Mapping[str, str]) -> str:
    return "no attack applies: " + "; ".join(f"{one}: {reason}" for one, reason in reasons.items())


def training_note(entries: Sequence[Entry], setting: AttackSetting) -> str:
    """One sentence that says what is trained for these entries, and for how long."""
    trained = [entry.name for entry in entries if entry.trains(setting)]
    several = [name for name in trained if name != SARSA]
    parts = [f"{', '.join(several)}: about {setting.steps:,} steps each"] if several else []
    parts += [f"{SARSA}: {len(setting.critics)} critics"] if SARSA in trained else []
    return f"trains {'; '.join(parts)}; --no-train (train=False) leaves them out"


def _settings_of(setting: AttackSetting, entries: Sequence[Entry], given: Iterable[Entry | str]) -> dict[str, Any]:
    """What a suite is called with, as a JSON file returns it; ``given`` are the items of one of one's own."""
    victim, within, on_actions = setting.victim, setting.budget, setting.action_budget
    names = [entry.name for entry in entries]
    text = "no budget" if within is None else _budget_text(within, victim)
    settings: dict[str, Any] = {
        "victim": described_victim(victim),
        "environment": json_value(setting.environment.described),
        "within": None if within is None else within.resolve(victim).to_dict(),
        "budget": text,
        "seed": setting.episode_seed,
        "episodes": setting.episodes,
        "steps": setting.steps,
        "critics": setting.critics if SARSA in names and victim.robust_sarsa is None else None,
        "num_envs": setting.num_envs,
        "training": describe_settings(setting.training),
        "attacks": names,
        "quantize": bool(setting.quantize),
        "dynamics": None if setting.dynamics is None else setting.dynamics.sha256,
        **({} if on_actions is None else {"action_within": on_actions.to_dict()}),
    }
    if texts := [item for item in given if isinstance(item, str) and item not in _ENTRIES]:
        settings["threats"] = {text: described(parse_threat(text, within=Valid())) for text in texts}  # with all hashes
    return dict(json.loads(json.dumps(settings)))


def _budget_text(within: Budget, victim: Victim) -> str:
    """A budget as threats' texts write it, such as ``eps=0.1``."""
    return as_threat_stack(threat("noise", within=within), victim).name.partition(":")[2] or within.name


def _other_budgets(threats: Mapping[str, ThreatModel], setting: AttackSetting) -> dict[str, str]:
    """By attack that is not under the setting's budget, the one that it is under, in words."""
    victim = setting.victim
    own = None if setting.budget is None else {("observation", setting.budget.resolve(victim))}
    found = dict[str, set[tuple[str, Budget]]]()
    for name, one in threats.items():
        found[name] = {(layer.on, layer.budget) for layer in threat_layers(one.against(victim))}
    if own is None and all(budgets == next(iter(found.values())) for budgets in found.values()):
        return {}

    def words(on: str, within: Budget) -> str:
        if isinstance(within, Valid):
            return "any action" if on == "action" else "any valid observation"
        return f"{on}s within {_budget_text(within, victim)}"

    texts = {name: " + ".join(sorted(words(*one) for one in budgets)) for name, budgets in found.items()}
    return {name: text for name, text in texts.items() if found[name] != own}


def fresh_seed(seed: int, key: int = 1) -> int:
    """The seed of the fresh episodes that a suite's worst case is reported on, apart from all its other seeds.

    Args:
        seed: of the suite.
        key: 1 for these, 2 for the further episodes that choose between close attacks.
    """
    return int(np.random.SeedSequence(seed, spawn_key=(key,)).generate_state(1)[0])


def _named(report: Report, names: Sequence[str]) -> Report:
    """A report whose rows are named as in the suite: the texts of two adversaries that learn are equal."""
    rows = zip(("none", *names), report.threats, strict=True)
    return replace(report, threats=tuple(replace(row, threat=name) for name, row in rows))


def _finished_suite(folder: Path, settings: dict[str, Any]) -> SuiteReport | None:
    """The finished suite of a folder, or None where there is more to do.

    Raises:
        ValueRangeError: for a folder of another suite, or of a finished one of more than is asked for.
    """
    about, done = folder / "suite.json", folder / "report.json"
    found = read_result(about) if about.exists() else settings
    with decoding(about, ValueRangeError):
        theirs, mine = ({key: suite[key] for key in _IDENTITY} for suite in (found, settings))
    check_same(folder, theirs, mine, "suite")
    if done.exists():
        known = read_result(done)
        with decoding(done, ValueRangeError):
            theirs = known["settings"]
        if theirs != settings:
            _check_no_less(folder, theirs, settings)
        elif "fresh" in known:  # one of an older release had no fresh episodes: they are played now
            return SuiteReport.from_json(done)
    write(about, (json.dumps(settings, indent=1) + "\n").encode())
    return None


def _check_no_less(folder: Path, found: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise :class:`ValueRangeError` where a finished suite would be replaced by one that says less."""
    names = [name for name in found["attacks"] if name in LEARNED]
    fewer = mine["episodes"] < found["episodes"] or (names and mine["steps"] < found["steps"])
    if fewer or {*found["attacks"]} - {*mine["attacks"]}:
        trained = f" and {found['steps']} steps of training" if names else ""
        what = f"{', '.join(found['attacks'])} over {found['episodes']} episodes{trained}"
        raise ValueRangeError(f"{folder} holds the finished suite of {what}: ask for no less, or give another folder")


def _with_advice(
    report: Report, names: Sequence[str], learned: Collection[str] = _TRAINED, others: Collection[str] = ()
) -> list[str]:
    """The report's warnings, with advice on trained attacks that are no stronger than noise.

    Args:
        report: the report.
        names: the names of its attacks.
        learned: those that are trained.
        others: those under another budget, which are not compared with noise.
    """
    rows = dict(zip(names, report.threats[1:], strict=True))
    trained = [name for name in rows if name in learned and name not in others]
    doubled = tuple(f"{rows[name].threat} is weaker than " for name in trained)
    found = [warning for warning in report.warnings if not warning.startswith(doubled)]

    def less(one: str, other: str) -> bool:
        """Whether one attack's mean return is lower than another's, beyond the interval of the paired difference."""
        return mean_interval(np.subtract(rows[other].returns, rows[one].returns))[0] > 0

    usual = [name for name in names if name not in others]
    best = min(usual, default="", key=lambda name: float(rows[name].mean_return))
    for name in trained if "noise" in rows else ():
        means = [rows[key].mean_return for key in (name, "noise")]
        figures = f"({number_text(means[0])} against {number_text(means[1])})"
        more = "more critics, or more steps for each" if name == SARSA else "train it longer"
        if less("noise", name):
            found.append(f"{name} is weaker than noise {figures}: {more}")
        elif means[0] >= means[1] and less(best, "noise"):
            found.append(f"{name} is no stronger than noise {figures}, as {best} is: {more}")
    return found
