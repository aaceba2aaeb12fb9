"""The standard suite: the strongest of many attacks on one agent (after AutoAttack, Croce and Hein 2020).

One attack that fails says little of an agent: it may be the wrong attack, or badly trained. So all that apply are run
on the same episodes, cheap and trained ones, and the attack with the lowest mean is the worst case. The lowest of
several means is lower than that attack's own mean, by chance, so the worst case is played again on fresh episodes: that
is what the agent is worth under this budget.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from adv_wrappers.campaign.make_attacks import AttackTrainer, SuiteProgress
from adv_wrappers.campaign.select_attacks import LEARNED, SARSA, check_training, exclusions, select_attacks
from adv_wrappers.campaign.suite_report import SuiteReport, strongest_of
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.errors import OutputError, ValueRangeError
from adv_wrappers.evaluation.beam import WIDTH, beam_search
from adv_wrappers.evaluation.environments import MakeEnv, environment_factory
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.prepared import MOST_EPISODES
from adv_wrappers.evaluation.report import Report, number
from adv_wrappers.evaluation.statistics import interval
from adv_wrappers.evaluation.threat_stacks import as_threat_stack
from adv_wrappers.evaluation.untrained_attacks import BEAM, UNTRAINED
from adv_wrappers.presets import threat
from adv_wrappers.training.train_critic import SMALL, check_settings
from adv_wrappers.training.training_folder import check_same
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.numbers import integer
from adv_wrappers.utils.processes import check_workers
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.dynamics import Dynamics, load_dynamics
from adv_wrappers.victims.victim import Victim

# settings that a suite shares with the one in its folder
_IDENTITY = ("victim", "environment", "within", "seed", "quantize")


@holding
def standard(
    victim: Victim | str, env: str | MakeEnv, eps: float | None = None, *, scale: Any = None,
    within: Budget | None = None, episodes: int = 50, seed: int = 0, steps: int = 100_000,
    critics: Sequence[Mapping[str, Any]] = SMALL, num_envs: int | None = None,
    training: Mapping[str, Any] | None = None, attacks: Sequence[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None, make: MakeEnv | None = None, quantize: bool = True,
    out: str | Path | None = None, progress: SuiteProgress | None = None, dynamics: Dynamics | str | None = None,
    workers: int = 1,
) -> SuiteReport:  # fmt: skip
    """Attack an agent's observations with everything that applies, and report the worst case.

    The attacks are ``noise``, ``min-best``, ``pgd``, ``apgd``, ``multi-targeted``, ``momentum``, ``min-q`` and
    ``max-diff`` with the numbers of the presets, ``strong-max-diff``, which searches for the largest divergence,
    ``beam``, which searches the scored episodes where a simulator can be saved, ``model-based`` where a model of the
    environment is given, ``robust-sarsa`` with the critic of the victim's card or else the strongest of a scan, and
    ``sa-rl`` and ``pa-ad``, trained here. What is trained, and what chooses between critics and checkpoints, are
    episodes apart from those that are scored. All attacks are scored on the same episodes, which choose the strongest;
    its own figure is that of fresh ones, on which nothing was chosen.

    Args:
        victim, env, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`.
        eps, scale: arguments of the budget :class:`Linf`; or ``within``, the budget itself.
        episodes: the number of episodes that every attack is scored on, and of fresh ones for the strongest.
        seed: seeds the scored episodes; trainings take ``seed + 1``, fresh episodes ``fresh_seed(seed)``.
        steps: training steps of each adversary that learns.
        critics: settings for :func:`scan_critics`, which is run where the victim's card has no critic.
        num_envs: the number of environments of evaluations and trainings; None takes 32, or 8 for images.
        training: further arguments of :func:`train_adversary`: ``algorithm``, ``checks``, ``episodes``, and the
            algorithm's own settings.
        attacks: names of the attacks to run; None runs all that apply.
        out: a folder for everything: ``report.json``, adversaries and critics in folders of their own, and in
            ``evaluation`` and ``fresh`` the rows as they come. The same call goes on after an interruption, or reads
            the result; with more ``steps`` or attacks it does only what is missing, and with more ``episodes`` it
            trains nothing anew but scores all attacks on them. Rows that this leaves behind are kept in
            ``evaluation/report-1.json``, ... No other process gets it meanwhile.
        progress: called as ``progress(what, done, total)``.
        dynamics: a model of the environment or its reference (:func:`adv_wrappers.train_dynamics`), through which
            ``model-based`` plans; None leaves that attack out.
        workers: the number of processes that score attacks, as for :func:`adv_wrappers.evaluate`.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work;
            :class:`OutputError` for a folder that cannot be written to, or that another process holds;
        :class:`ValueRangeError` for a folder of another suite, and for one whose finished suite has an attack that
            is not asked for, more episodes, or adversaries that were trained for more steps.
    """
    rows = 1 if num_envs is None else num_envs
    integer("episodes", episodes, 1, MOST_EPISODES)
    for what, value, least in (("seed", seed, 0), ("steps", steps, 1), ("num_envs", rows, 1)):
        integer(what, value, least)
    check_workers(workers)
    budget = needed_budget("the suite", eps, scale, within)
    names, training, critics = select_attacks(attacks), dict(training or {}), [*critics]
    victim = load_victim(victim)
    if any(name in LEARNED for name in names):
        check_training(training)
    make_env, kind, kwargs = environment_factory(env, victim, env_kwargs, make)
    model = None if dynamics is None else load_dynamics(dynamics)
    left_out = exclusions(names, victim, make_env, budget.resolve(victim), quantize, model)
    names = tuple(name for name in names if name not in left_out)
    scan = SARSA in names and victim.robust_sarsa is None
    if scan:
        check_settings(critics)
    settings: dict[str, Any] = {
        "victim": {"ref": victim.ref, "sha256": victim.fingerprint(), "select": victim.select},
        "environment": {"id": kind, "kwargs": kwargs}, "within": budget.resolve(victim).to_dict(),
        "budget": as_threat_stack(threat("noise", within=budget), victim).name.partition(":")[2] or budget.name,
        "seed": int(seed), "episodes": int(episodes), "steps": int(steps), "critics": critics if scan else None,
        "num_envs": num_envs, "training": training, "attacks": list(names), "quantize": bool(quantize),
        "dynamics": None if model is None else model.sha256,
    }  # fmt: skip
    settings = json.loads(json.dumps(settings, default=repr))
    folder = None if out is None else Path(out)
    finished = None if folder is None else _finished_suite(folder, settings)
    if finished is not None:
        return finished
    env_arguments: dict[str, Any] = {"env_kwargs": env_kwargs, "make": make}
    trainer = AttackTrainer(victim, env, budget, int(seed) + 1, folder, progress, model, **env_arguments)
    training |= {"num_envs": num_envs, "quantize": quantize}
    threats = {name: trainer.make(name, int(steps), critics, training) for name in names if name != BEAM}
    if BEAM in names:
        trainer.protocol[BEAM] = f"one search of width {WIDTH} over the episodes that it is scored on"

    def searched(seed: int, name: str) -> ThreatModel:
        return beam_search(
            victim, env, None, int(episodes), seed, within=budget, quantize=quantize, progress=progress,
            out=None if folder is None else folder / BEAM / name, **env_arguments,
        ).threat  # fmt: skip

    def evaluate_all(attacks: Sequence[str], seed: int, name: str, on: str) -> Report:
        made = [searched(seed, name) if attack == BEAM else threats[attack] for attack in attacks]
        return evaluate(
            victim, env, made, int(episodes), seed, num_envs, distances=(), quantize=quantize,
            progress=None if progress is None else _report_scores(progress, attacks, on),
            out=None if folder is None else folder / name, resume=folder is not None, workers=workers, **env_arguments,
        )  # fmt: skip

    report = evaluate_all(names, int(seed), "evaluation", "")
    strongest = strongest_of(_named(report, names))["threat"]
    fresh = evaluate_all([strongest], fresh_seed(int(seed)), "fresh", " on fresh episodes")
    done = SuiteReport(
        "standard", settings, _named(report, names), _named(fresh, [strongest]), trainer.protocol, left_out,
        (*_with_advice(report, names), *trainer.warnings),
    )  # fmt: skip
    if folder is not None:
        try:
            done.report.to_json(folder / "evaluation" / "report.json")
            done.fresh.to_json(folder / "fresh" / "report.json")
            done.to_json(folder / "report.json")
        except OutputError as error:
            error.report = done
            raise
    return done


def fresh_seed(seed: int) -> int:
    """The seed of the fresh episodes that a suite's worst case is reported on, apart from all its other seeds."""
    return int(np.random.SeedSequence(seed, spawn_key=(1,)).generate_state(1)[0])


def _named(report: Report, names: Sequence[str]) -> Report:
    """A report whose rows are named as in the suite: the texts of two adversaries that learn are equal."""
    rows = zip(("none", *names), report.threats, strict=True)
    return replace(report, threats=tuple({**row, "threat": name} for name, row in rows))


def _finished_suite(folder: Path, settings: dict[str, Any]) -> SuiteReport | None:
    """The finished suite of a folder, or None where there is more to do.

    Raises:
        ValueRangeError: for a folder of another suite, or of a finished one of more than is asked for.
    """
    about, done = folder / "suite.json", folder / "report.json"
    try:
        found = json.loads(about.read_text(encoding="utf-8")) if about.exists() else settings
        theirs, mine = ({key: suite[key] for key in _IDENTITY} for suite in (found, settings))
        check_same(folder, theirs, mine, "suite")
        if done.exists():
            known = json.loads(done.read_text(encoding="utf-8"))
            if known["settings"] != settings:
                _check_no_less(folder, known["settings"], settings)
            elif "fresh" in known:  # one of an older release had no fresh episodes: they are played now
                return SuiteReport.from_json(done)
        write(about, (json.dumps(settings, indent=1) + "\n").encode())
    except OutputError:
        raise
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueRangeError(f"cannot use the folder {folder}: {error}") from error
    return None


def _check_no_less(folder: Path, found: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise :class:`ValueRangeError` where a finished suite would be replaced by one that says less."""
    names = [name for name in found["attacks"] if name in LEARNED]
    fewer = mine["episodes"] < found["episodes"] or (names and mine["steps"] < found["steps"])
    if fewer or {*found["attacks"]} - {*mine["attacks"]}:
        trained = f" and {found['steps']} steps of training" if names else ""
        what = f"{', '.join(found['attacks'])} over {found['episodes']} episodes{trained}"
        raise ValueRangeError(f"{folder} holds the finished suite of {what}: ask for no less, or give another folder")


def _report_scores(progress: SuiteProgress, names: Sequence[str], on: str) -> SuiteProgress:
    """Progress by the names of the suite, as :func:`_named`; ``on`` says on which episodes."""
    coming, known = iter(("none", *names)), dict[str, str]()

    def report(what: str, done: int, total: int) -> None:
        if what not in known:
            known[what] = next(coming, what)
        progress(f"scoring {known[what]}{on}", done, total)

    return report


def _with_advice(report: Report, names: Sequence[str]) -> list[str]:
    """The report's warnings, with advice on trained attacks that are no stronger than noise."""
    rows = dict(zip(names, report.threats[1:], strict=True))
    trained = [name for name in rows if name not in (*UNTRAINED, BEAM)]
    doubled = tuple(f"{rows[name]['threat']} is weaker than " for name in trained)
    found = [warning for warning in report.warnings if not warning.startswith(doubled)]

    def less(one: str, other: str) -> bool:
        """Whether one attack's mean return is lower than another's, beyond the interval of the paired difference."""
        return interval(np.subtract(rows[other]["returns"], rows[one]["returns"]))[0] > 0

    best = min(names, key=lambda name: float(rows[name]["mean_return"]))
    for name in trained if "noise" in rows else ():
        means = [rows[key]["mean_return"] for key in (name, "noise")]
        figures = f"({number(means[0])} against {number(means[1])})"
        more = "more critics, or more steps for each" if name == SARSA else "train it longer"
        if less("noise", name):
            found.append(f"{name} is weaker than noise {figures}: {more}")
        elif means[0] >= means[1] and less(best, "noise"):
            found.append(f"{name} is no stronger than noise {figures}, as {best} is: {more}")
    return found
