"""run_suite: the strongest of many attacks on one agent (after AutoAttack, Croce and Hein 2020).

One attack that fails says little of an agent: it may be the wrong attack, or badly trained. So all that apply are run
on the same episodes, cheap and trained ones, and the attack with the lowest mean is the worst case. The lowest of
several means is lower than that attack's own mean, by chance, so the worst case is played again on fresh episodes: that
is what the agent is worth under this budget. Where the episodes do not tell the lowest from others, which may take much
more, these are played on further ones first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.environment import AnyEnvironment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import OutputError, ValueRangeError
from adv_wrappers.evaluation.evaluate import play_missing
from adv_wrappers.evaluation.evaluator import Evaluator
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack
from adv_wrappers.studies.suite.attack_lists import LEARNED, chosen_entries, entries_of, some_that_apply
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.studies.suite.report import SuiteReport, close_attacks, strongest_of
from adv_wrappers.studies.suite.trained_attacks import SARSA
from adv_wrappers.threats.presets import threat, threat_layers
from adv_wrappers.training.folder import describe_settings, described_victim
from adv_wrappers.training.models.critic_scan import SMALL
from adv_wrappers.training.models.robust_sarsa import CriticSetting
from adv_wrappers.utils.files import held, holding, write_json
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.reading import check_same, decoding, read_result
from adv_wrappers.utils.validation import EnvCount, EpisodeCount, Seed, TrainingSteps, Workers, checked
from adv_wrappers.victims.auxiliary_networks import Dynamics
from adv_wrappers.victims.victim import Victim

# settings that a suite shares with the one in its folder
_IDENTITY = ("victim", "environment", "within", "seed", "quantize")
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
    progress: Progress | None = None,
    dynamics: Dynamics | str | None = None,
    workers: Workers = 1,
    name: str = "own",
    tell: Callable[[str], None] | None = None,
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
            ``fresh`` the rows as they come. Only what is missing is trained and played, also for other attacks or
            ``episodes``, or more ``steps``, whose report replaces the one before, while all rows stay in each
            ``rows.db``. No other process gets it meanwhile. An entry of one's own is made again at every call,
            since its code may have changed; its row is taken over where the threat is the same. A victim that is a
            function, and an environment that a lambda, a method or a partial makes, are always played again, as
            :func:`adv_wrappers.evaluate` does.
        progress: called as ``progress(what, done, total)``.
        dynamics: a model of the environment, card:FOLDER, for model-based. It is one of
            :func:`adv_wrappers.train_dynamics` or its reference; None leaves that attack out.
        workers: as for :func:`adv_wrappers.evaluate`.
        name: what the report calls a suite that has no name of ``SUITES``.
        tell: called, before anything is trained, with a sentence that says what is.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work;
            :class:`OutputError` for a folder that cannot be written to, or that another process holds;
            :class:`ValueRangeError` for a folder of another victim, environment, budget or seed; :class:`ThreatError`
            for what is no suite.

    >>> from adv_wrappers.studies import run_suite
    >>> short = {"max_episode_steps": 50}
    >>> attacks = ["noise", "max-diff:steps=3"]
    >>> report = run_suite(attacks, "zoo:cartpole-dqn", "CartPole-v1", eps=0.1, episodes=2, env_kwargs=short)
    >>> report.attacks
    ('noise', 'max-diff:steps=3')
    """
    setting = AttackSetting.of(
        victim,
        env,
        eps,
        scale,
        within,
        env_kwargs,
        make,
        seed,
        action_budget=action_within,
        quantize=quantize,
        train=train,
        steps=steps,
        critics=[*critics],
        training=dict(training or {}),
        num_envs=num_envs,
        dynamics=dynamics,  # which it loads
        out=None if out is None else Path(out),
        episodes=episodes,
        progress=progress,
    )
    return play_suite(suite, setting, attacks, workers, name, tell)


def play_suite(
    suite: str | Iterable[Entry | str],
    setting: AttackSetting,
    attacks: str | Iterable[str] | None = None,
    workers: int = 1,
    name: str = "own",
    tell: Callable[[str], None] | None = None,
) -> SuiteReport:
    """:func:`run_suite` with its arguments in a setting: the attacks are made, scored, and the strongest played again.

    Args:
        suite, attacks, workers, name, tell: as for :func:`run_suite`.
        setting: what the attacks are made for; its folder is :func:`~adv_wrappers.utils.files.held` by the caller.

    Raises:
        AdvWrappersError: as :func:`run_suite` does.
    """
    whole = entries_of(suite)
    name = suite if isinstance(suite, str) else name
    victim = setting.victim
    folder = setting.out
    seed = setting.episode_seed
    progress = setting.progress
    # what is run, and why the rest is not
    entries, reasons = some_that_apply(chosen_entries(whole, attacks), setting)
    names = tuple(entry.name for entry in entries)
    left_out = {one.name: reasons.get(one.name, "not asked for") for one in whole if one.name not in names}
    settings = _settings_of(setting, entries)
    _check_folder(folder, settings)
    if tell is not None and any(entry.trains(setting) for entry in entries):
        tell(training_note(entries, setting))
    made = dict[str, MadeAttack]()

    def evaluate_all(chosen: Sequence[Entry], setting: AttackSetting, on: str) -> Report:
        made.update({entry.name: entry.attack(setting) for entry in chosen if entry.per_episodes})
        names, part = [entry.name for entry in chosen], setting.folder(setting.part)
        stacks = [as_threat_stack(made[name].threat, victim) for name in names]
        opened = Evaluator(victim, setting.environment, [CLEAN_RUN, *stacks], setting.scored_episodes)
        with held(part), closing(opened) as evaluator:
            told = _named_progress(progress, evaluator, names, on)
            return play_missing(evaluator, progress=told, out=part, workers=workers)

    # attacks that are searched are made for the episodes that they are scored on, others once
    made |= {one.name: one.attack(setting) for one in entries if not one.per_episodes}
    # all on the same episodes; where these do not tell the lowest apart, those few on as many more
    scored = evaluate_all(entries, setting, "")
    report = _named(scored, names)
    tie_break = None
    if len(close := close_attacks(report)) > 1:
        further = replace(setting, episode_seed=fresh_seed(seed, 2), part="tie_break")
        again = evaluate_all([entries[names.index(one)] for one in close], further, " on further episodes")
        tie_break = _named(again, close)
    strongest = entries[names.index(strongest_of(report, tie_break)["threat"])]
    # the strongest on fresh episodes, on which nothing was chosen
    later = replace(setting, episode_seed=fresh_seed(seed), part="fresh")
    fresh = evaluate_all([strongest], later, " on fresh episodes")
    # what a reader has to know beside the figures
    others = _other_budgets({one: made[one].threat for one in names}, setting)
    trained = {*_TRAINED, *(entry.name for entry in entries if entry.trained)}
    warnings = [*_with_advice(scored, names, trained), *(text for one in names for text in made[one].warnings)]
    # the report, which is returned even where it cannot be written
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
            done.to_json(folder / "report.json")
        except OutputError as error:
            error.report = done
            raise
    return done


def _named_progress(
    progress: Progress | None, evaluator: Evaluator, names: Sequence[str], on: str = ""
) -> Progress | None:
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


def training_note(entries: Sequence[Entry], setting: AttackSetting) -> str:
    """One sentence that says what is trained for these entries, and for how long."""
    trained = [entry.name for entry in entries if entry.trains(setting)]
    several = [name for name in trained if name != SARSA]
    parts = [f"{', '.join(several)}: about {setting.steps:,} steps each"] if several else []
    parts += [f"{SARSA}: {len(setting.critics)} critics"] if SARSA in trained else []
    return f"trains {'; '.join(parts)}; --no-train (train=False) leaves them out"


def _settings_of(setting: AttackSetting, entries: Sequence[Entry]) -> dict[str, Any]:
    """What a suite is called with, as a JSON file returns it."""
    victim = setting.victim
    within = setting.budget
    on_actions = setting.action_budget
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
    return dict(json.loads(json.dumps(settings)))


def _budget_text(within: Budget, victim: Victim) -> str:
    """A budget as threats' texts write it, such as ``eps=0.1``."""
    return as_threat_stack(threat("noise", within=within), victim).name.partition(":")[2] or within.name


def _other_budgets(threats: Mapping[str, ThreatModel], setting: AttackSetting) -> dict[str, str]:
    """By attack that is not under the setting's budget, the one that it is under, in words."""
    victim = setting.victim
    own = None if setting.budget is None else {("observation", setting.budget.resolve(victim))}
    found = dict[str, set[tuple[str, Budget]]]()
    # the budgets of all layers of each attack
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


def _check_folder(folder: Path | None, settings: dict[str, Any]) -> None:
    """Note the suite of a folder; raises :class:`ValueRangeError` for one of another victim, environment or budget."""
    if folder is None:
        return
    about = folder / "suite.json"
    found = read_result(about) if about.exists() else settings
    with decoding(about, ValueRangeError):
        theirs, mine = ({key: suite[key] for key in _IDENTITY} for suite in (found, settings))
    check_same(folder, theirs, mine, "suite")
    write_json(about, settings)


def _with_advice(report: Report, names: Sequence[str], trained: Collection[str] = _TRAINED) -> list[str]:
    """The report's warnings, and what to do about trained attacks that are weaker than noise, by their names here.

    Args:
        report: the report.
        names: the names of its attacks.
        trained: those of them that are trained.
    """
    found = [*report.warnings]
    for name, row in zip(names, report.threats[1:], strict=True):
        more = "more critics, or more steps for each" if name == SARSA else "train it longer"
        for i, warning in enumerate(found):
            if name in trained and warning.startswith(f"{row.threat} is weaker than "):
                found[i] = f"{name}{warning.removeprefix(row.threat).rpartition(': ')[0]}: {more}"
    return found
