"""What a report advises to do against what it found: commands that can be followed as they stand.

They name the agent and its environment as the report's own command does, their folders are free, and each says what it
takes: the seconds of a step of the training were measured while the report was made.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.studies.report.choices import ADVERSARIES, ReportChoices
from adv_wrappers.studies.report.sections import AgentSections
from adv_wrappers.utils.parsing import duration

STEPS = 1_000_000  # of the training that is advised, as many as train-agent takes by itself


@dataclass(frozen=True)
class NextStep:
    """Something to do, and the command that does it ("" where there is none)."""

    what: str
    command: str


def hardening(agent: AgentSections, eps: float) -> list[NextStep]:
    """The steps that harden an agent against errors of a size, look at what came of it, and compare the two.

    Returns:
        Nothing where no command can name the agent, or no training can begin with it.
    """
    choices, same = agent.choices, words_of_agent(agent)
    if same is None or not choices.harden_by:
        return []
    out = report_folder(choices)
    hardened, report, page = _free_names(out.parent)
    size = "this size"
    if choices.harden_most is not None and choices.harden_most < eps:
        eps, size = choices.harden_most, "a smaller size"
    how = "under attacks of" if choices.harden_by in ADVERSARIES else "by a loss against every error of"
    tried = [*dict.fromkeys(choices.tried)]
    before = f" ({' and '.join(tried)} {'was' if len(tried) == 1 else 'were'} tried before)" if tried else ""
    train = ["adv-wrappers", "train-agent", *same]
    train += ["--adversary" if choices.harden_by in ADVERSARIES else "--robust", choices.harden_by]
    train += ["--eps", f"{eps:.3g}"]
    if choices.scale is not None:
        train += ["--scale", ";".join(f"{unit:g}" for unit in choices.scale)]
    train += ["--steps", str(STEPS), "--out", str(hardened)]
    # the same episodes, and as much time: what the two reports say can then be compared
    again = ["adv-wrappers", "report", *_without_victim(same), "--victim", f"card:{hardened}"]
    again += ["--seed", str(agent.report.seed)] if agent.report.seed else []
    again += ["--minutes", f"{choices.minutes:g}"] if choices.minutes is not None else []
    both = ["adv-wrappers", "report", str(out), str(report)]
    both += ["--make", make] if (make := option_of(same, "--make")) is not None else []
    both += [*(["--trust"] if "--trust" in same else []), "--out", str(page)]
    return [
        NextStep(
            f"Harden the agent: go on training it {how} {size}, {choices.harden_by}{before}; {_price(choices)} "
            "(fewer with --steps)",
            shlex.join(train),
        ),
        NextStep("Then make the report of the hardened agent", shlex.join([*again, "--out", str(report)])),
        NextStep("Then compare the two: did it help?", shlex.join(both)),
    ]


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


def _free_names(beside: Path) -> tuple[Path, Path, Path]:
    """Names of a folder for an agent, one for its report, and a page, none of which is there."""
    for number in itertools.count(1):
        name = "hardened" if number == 1 else f"hardened-{number}"
        found = beside / name, beside / f"{name}-report", beside / f"{name}-comparison.html"
        if not any(os.path.lexists(path) for path in found):
            return found
    raise AssertionError


def _price(choices: ReportChoices) -> str:
    """What the training takes, as far as it is known."""
    if choices.harden_seconds is None:
        return f"{STEPS:,} steps, and the command says after the first rollout how long they take"
    return f"{STEPS:,} steps take about {duration(STEPS * choices.harden_seconds)} on this machine"
