"""What a report advises to do against what it found: commands, and lines of Python, that can be followed as they stand.

They name the agent and its environment as the report's own command does, and their folders are free.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.timing import Bernoulli
from adv_wrappers.registry import NAMES
from adv_wrappers.studies.report.choices import ADVERSARIES, ReportChoices
from adv_wrappers.studies.report.sections import AgentSections, AttackRow
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import text_of
from adv_wrappers.utils.number_text import duration

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
    choices = agent.choices
    training = agent.choices.training
    same = words_of_agent(agent)
    if same is None or not training.by:
        return []
    # folders that do not exist yet, for the agent, its report and the comparison
    before: Path | None = report_folder(choices)
    hardened, after, page = _free_names(report_folder(choices).parent)
    scale = choices.scale
    env = _without_victim(same)
    what = "Harden the agent: go on training it"
    both = "the two"
    # under the size that trainings so far could cope with, from the agent that has not given up its return
    if training.most is not None and training.most < eps:
        eps, size = training.most, "a smaller size"
    if first := training.begins_with:
        what = f"Without an attack it earns much less than {first}, from which it was trained: train that one anew,"
        same = [*env, "--victim", first]
        both = f"it with {first}"
        scale = training.scale
        eps = training.most or eps
        size = "a smaller size"
        before = Path(training.report) if training.report else None
    # the command, with what the agent learned by before
    options = {
        "--adversary" if training.by in ADVERSARIES else "--robust": training.by,
        "--eps": f"{eps:.3g}",
        "--scale": ";".join(f"{unit:g}" for unit in scale or ()),
        "--algorithm": training.algorithm,  # as it learned: its values, above all those of a DQN, are of those rewards
        "--rewards": training.rewards,
        "--gamma": "" if training.gamma is None else f"{training.gamma:g}",
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    words = ["adv-wrappers", "train-agent", *same, *words, "--steps", str(STEPS), "--out", str(hardened)]
    # and what there is to know before it is given
    tried = f" (tried before: {', '.join(dict.fromkeys(training.tried))})" if training.tried else ""
    price = "the command says after the first rollout how long they take"
    if training.seconds is not None:
        price = f"they take about {duration(STEPS * training.seconds)} on this machine"
    what += f" against errors of {size}, by {training.by}{tried}; {STEPS:,} steps, and {price}"
    step = NextStep(f"{what} (fewer by --steps may cost much of the return)", shlex.join(words))
    return [step, *_then_compare(agent, [*env, "--victim", f"card:{hardened}"], before, after, page, both)]


def own_training(agent: AgentSections, eps: float, row: AttackRow, size: str) -> list[NextStep]:
    """The lines for the own training of an agent that no command trains, then those that look at what came of it.

    Args:
        agent: the report.
        eps: the size that it is to withstand, in units of the row.
        row: what shows what such an error takes.
        size: the same in words.
    """
    # a search over whole episodes and a trained attack were made for the agent as it was
    name = row.attack.partition(":")[0]
    attack = row.attack if name in NAMES and name != "learned" else "max-diff"
    # the threat that goes around the environment of the training
    within = Linf(float(f"{eps:.3g}"), agent.choices.scale)
    threat = text_of(parse_threat(attack, within=within, at=row.keys or None, when=Bernoulli(0.5)))
    by_sb3 = str(agent.report.victim.get("ref")).startswith("sb3:")
    what = f"Harden the agent in its own training: put an attack of {size} around its environment, at half of the steps"
    what += "" if by_sb3 else "; victim is the agent that learns, made with live=True"
    victim = "adv.from_sb3(model, live=True)" if by_sb3 else "victim"
    step, same = (
        NextStep(what, f'env = adv.PerturbObservation(env, "{threat}", victim={victim})'),
        words_of_agent(agent),
    )
    if not by_sb3 or same is None:
        return [step]
    # an agent of SB3 is named by its file, so that what follows can be said too
    before = report_folder(agent.choices)
    hardened, after, page = _free_names(before.parent)
    learn = NextStep("Go on training, and save the agent", f"model.learn({STEPS}); model.save({str(hardened)!r})")
    words = [f"sb3:{hardened}.zip" if word == option_of(same, "--victim") else word for word in same]
    return [step, learn, *_then_compare(agent, words, before, after, page, "the two")]


def _then_compare(
    agent: AgentSections, hardened: list[str], before: Path | None, after: Path, page: Path, both: str
) -> list[NextStep]:
    """The steps that make the report of a hardened agent and compare it with the one before, where that is known.

    On the same episodes, and in as much time: what the two reports say can then be compared.
    """
    minutes, seed = agent.choices.minutes or _MINUTES, agent.report.seed
    given, time = ["--minutes", f"{minutes:g}"], duration(60 * minutes)
    words = ["adv-wrappers", "report", *hardened, *(["--seed", str(seed)] if seed else []), *given, "--out", str(after)]
    steps = [NextStep(f"Then make the report of the hardened agent, in {time}", shlex.join(words))]
    if before is None:
        return steps
    words = ["adv-wrappers", "report", str(before), str(after), *given]
    words += ["--make", make] if (make := option_of(hardened, "--make")) is not None else []
    module = ":" in agent.environment  # an id in a file, whose module is not imported without trust
    words += [*(["--trust"] if module or "--trust" in (words_of_agent(agent) or ()) else []), "--out", str(page)]
    return [*steps, NextStep(f"Then compare {both}, in at most {time}: did it help?", shlex.join(words))]


def words_of_agent(agent: AgentSections) -> list[str] | None:
    """The words that name the environment and the agent in a command: those of the report's own, or made of its rows.

    Returns:
        None where no words do: for victims without a reference, and environments that a function makes.
    """
    given = _split(agent.choices.command)
    ref = agent.report.victim.get("ref")
    env = agent.report.env
    # as the report's own command said it, else by the reference in its rows
    if given[:2] == ["adv-wrappers", "report"] and "--out" in given:
        words = given[2 : given.index("--out")]
    elif ref:
        words = [agent.environment, "--victim", str(ref)]
        words += ["--env-kwargs", json.dumps(kwargs)] if (kwargs := env.get("kwargs")) else []
    else:
        return None
    return None if "make" in env and "--make" not in words else words


def report_folder(choices: ReportChoices) -> Path:
    """The folder that a report was told to write to; the usual one where that is not known."""
    return Path(option_of(_split(choices.command), "--out") or "adv_report")


def option_of(words: list[str], name: str) -> str | None:
    """The value of an option in the words of a command, or None."""
    return words[words.index(name) + 1] if name in words[:-1] else None


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without an end, from a file of another hand
        return []


def _without_victim(words: list[str]) -> list[str]:
    """The words that name the environment alone: no victim, nothing that is for its file."""
    for name in ("--victim", "--stats"):
        if name in words:
            words = [*words[: words.index(name)], *words[words.index(name) + 2 :]]
    return [word for word in words if word != "--trust"]


def _free_names(beside: Path) -> tuple[Path, Path, Path]:
    """Names for an agent, its report and a comparison, none of which is there."""
    for number in itertools.count(1):
        name = "hardened" if number == 1 else f"hardened-{number}"
        agent, file, after, page = (beside / f"{name}{end}" for end in ("", ".zip", "-report", "-comparison.html"))
        if not any(map(os.path.lexists, (agent, file, after, page))):
            return agent, after, page
    raise AssertionError
