"""What a report advises to do against what it found: commands, and lines of Python, that can be followed as they stand.

They name the agent and its environment as the report's own command does, and their folders are free.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.core.budgets import Linf
from adv_wrappers.core.timing import Bernoulli
from adv_wrappers.registry import NAMES
from adv_wrappers.studies.report.choices import ADVERSARIES, AdvisedTraining, ReportChoices
from adv_wrappers.studies.report.sections import AgentSections, AttackRow
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from adv_wrappers.utils.parsing import duration

STEPS = 1_000_000  # of the training that is advised, as many as train-agent takes by itself
_MINUTES = 5.0  # of a report and a comparison, where this one was not given any


@dataclass(frozen=True)
class NextStep:
    """Something to do, and the command that does it ("" where there is none)."""

    what: str
    command: str


def hardening(agent: AgentSections, eps: float, size: str = "this size") -> list[NextStep]:
    """The steps that harden an agent against errors of a size, look at what came of it, and compare.

    Args:
        agent: the report.
        eps: the size, in its units.
        size: the same in words.

    Returns:
        Nothing where no command can name the agent, or no training can begin with it.
    """
    choices, training, same = agent.choices, agent.choices.training, words_of_agent(agent)
    if same is None or not training.by:
        return []
    steps, own, scale = list[NextStep](), report_folder(choices), choices.scale
    hardened, after, page, before = _free_names(own.parent)
    env, minutes = _without_victim(same), choices.minutes or _MINUTES
    seed = _seed(agent)
    what, both = "Harden the agent: go on training it", "the two"
    if training.most is not None and training.most < eps:
        eps, size = training.most, "a smaller size"
    if first := training.begins_with:
        what = f"Without an attack it earns much less than {first}, from which it was trained: train that one anew,"
        same, both, scale, own = [*env, "--victim", first], f"it with {first}", training.scale, Path(training.report)
        eps, size = training.most or eps, "a smaller size"
    if first and not training.report:
        own = before
        steps.append(_report_step(f"Make the report of {first}", [*same, *seed], minutes, own))
    how = "under attacks of" if training.by in ADVERSARIES else "by a loss against every error of"
    tried = [*dict.fromkeys(training.tried)]
    known = f" ({' and '.join(tried)} {'was' if len(tried) == 1 else 'were'} tried before)" if tried else ""
    what += f" {how} {size}, {training.by}{known}; {_price(training)} (fewer by --steps may cost much of the return)"
    steps.append(NextStep(what, shlex.join([*_training_words(training, same, eps, scale), "--out", str(hardened)])))
    after_words = [*env, "--victim", f"card:{hardened}", *seed]
    return [*steps, *_then_compare(agent, after_words, own, after, page, both)]


def own_training(agent: AgentSections, eps: float, row: AttackRow, size: str) -> list[NextStep]:
    """The steps for an agent that no command trains: the line for its own training, then those of :func:`hardening`.

    Args:
        agent: the report.
        eps: the size that it is to withstand, in units of the row.
        row: what shows what such an error takes.
        size: the same in words.
    """
    same, choices, by_sb3 = words_of_agent(agent), agent.choices, str(agent.report.victim.get("ref")).startswith("sb3:")
    # a search over whole episodes and a trained attack were made for the agent as it was
    name = row.attack.partition(":")[0]
    attack = row.attack if name in NAMES and name != "learned" else "max-diff"
    within = Linf(float(f"{eps:.3g}"), choices.scale)
    threat = text_of(parse_threat(attack, within=within, at=row.keys or None, when=Bernoulli(0.5)))
    what = f"Harden the agent in its own training: put an attack of {size} around its environment, at half of the steps"
    what += "" if by_sb3 else "; victim is the agent that learns, made with live=True"
    victim = "adv.from_sb3(model, live=True)" if by_sb3 else "victim"
    steps = [NextStep(what, f'env = adv.PerturbObservation(env, "{threat}", victim={victim})')]
    if not by_sb3 or same is None:
        return steps
    own = report_folder(choices)
    hardened, after, page, _ = _free_names(own.parent)
    steps.append(NextStep("Go on training, and save the agent", f"model.learn({STEPS}); model.save({str(hardened)!r})"))
    words = [f"sb3:{hardened}.zip" if word == option_of(same, "--victim") else word for word in same]
    return [*steps, *_then_compare(agent, words + _seed(agent), own, after, page, "the two")]


def _seed(agent: AgentSections) -> list[str]:
    return ["--seed", str(agent.report.seed)] if agent.report.seed else []


def _then_compare(
    agent: AgentSections, hardened: list[str], before: Path, after: Path, page: Path, both: str
) -> list[NextStep]:
    """The steps that make the report of a hardened agent and compare it with the one before.

    On the same episodes, and in as much time: what the two reports say can then be compared.
    """
    minutes = agent.choices.minutes or _MINUTES
    words = ["adv-wrappers", "report", str(before), str(after), "--minutes", f"{minutes:g}"]
    words += ["--make", make] if (make := option_of(hardened, "--make")) is not None else []
    module = ":" in agent.environment  # an id in a file, whose module is not imported without trust
    words += [*(["--trust"] if module or "--trust" in (words_of_agent(agent) or ()) else []), "--out", str(page)]
    return [
        _report_step("Then make the report of the hardened agent", hardened, minutes, after),
        NextStep(f"Then compare {both}, in at most {duration(60 * minutes)}: did it help?", shlex.join(words)),
    ]


def _training_words(
    training: AdvisedTraining, agent: list[str], eps: float, scale: Sequence[float] | None
) -> list[str]:
    """The command that trains an agent as it learned: its values, above all those of a DQN, are of those rewards."""
    words = ["adv-wrappers", "train-agent", *agent]
    words += ["--adversary" if training.by in ADVERSARIES else "--robust", training.by, "--eps", f"{eps:.3g}"]
    words += [] if scale is None else ["--scale", ";".join(f"{unit:g}" for unit in scale)]
    words += ["--algorithm", training.algorithm] if training.algorithm else []
    words += ["--rewards", training.rewards] if training.rewards else []
    words += [] if training.gamma is None else ["--gamma", f"{training.gamma:g}"]
    return [*words, "--steps", str(STEPS)]


def _report_step(what: str, agent: list[str], minutes: float, out: Path) -> NextStep:
    """The step that makes a report of an agent, in so many minutes."""
    words = ["adv-wrappers", "report", *agent, "--minutes", f"{minutes:g}", "--out", str(out)]
    return NextStep(f"{what}, in {duration(60 * minutes)}", shlex.join(words))


def words_of_agent(agent: AgentSections) -> list[str] | None:
    """The words that name the environment and the agent in a command: those of the report's own, or made of its rows.

    Returns:
        None where no words do: for victims without a reference, and environments that a function makes.
    """
    words, ref = _own_words(agent.choices), agent.report.victim.get("ref")
    if words is None and ref:
        words = [agent.environment, "--victim", str(ref)]
        kwargs = agent.report.env.get("kwargs")
        words += ["--env-kwargs", json.dumps(kwargs)] if kwargs else []
    return None if words is None or ("make" in agent.report.env and "--make" not in words) else words


def report_folder(choices: ReportChoices) -> Path:
    """The folder that a report was told to write to; the usual one where that is not known."""
    words = _split(choices.command)
    return Path(words[words.index("--out") + 1] if "--out" in words[:-1] else "adv_report")


def option_of(words: list[str], name: str) -> str | None:
    """The value of an option in the words of a command, or None."""
    return words[words.index(name) + 1] if name in words[:-1] else None


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without an end, from a file of another hand
        return []


def _own_words(choices: ReportChoices) -> list[str] | None:
    """What stands between ``adv-wrappers report`` and ``--out``; None where the report was not made by a command."""
    words = _split(choices.command)
    return words[2 : words.index("--out")] if words[:2] == ["adv-wrappers", "report"] and "--out" in words else None


def _without_victim(words: list[str]) -> list[str]:
    """The words that name the environment alone: no victim, nothing that is for its file."""
    found, skipped = list[str](), False
    for word in words:
        if not skipped and word not in ("--victim", "--stats", "--trust"):
            found.append(word)
        skipped = not skipped and word in ("--victim", "--stats")
    return found


def _free_names(beside: Path) -> tuple[Path, Path, Path, Path]:
    """Names for an agent, its report, a comparison and the report of the agent before; none of which is there."""
    for number in itertools.count(1):
        name = "hardened" if number == 1 else f"hardened-{number}"
        agent, after, page, before = (
            beside / f"{name}{end}" for end in ("", "-report", "-comparison.html", "-begins-with")
        )
        if not any(os.path.lexists(path) for path in (agent, Path(f"{agent}.zip"), after, page, before)):
            return agent, after, page, before
    raise AssertionError


def _price(training: AdvisedTraining) -> str:
    """What the training takes, as far as it is known."""
    if training.seconds is None:
        return f"{STEPS:,} steps, and the command says after the first rollout how long they take"
    return f"{STEPS:,} steps take about {duration(STEPS * training.seconds)} on this machine"
