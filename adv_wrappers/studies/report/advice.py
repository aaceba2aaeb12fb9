"""What a report advises to do against what it found: commands that can be followed as they stand.

They name the agent and its environment as the report's own command does, and their folders are free.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from adv_wrappers.studies.report.choices import ADVERSARIES, ReportChoices
from adv_wrappers.studies.report.sections import AgentSections, AttackRow
from adv_wrappers.threats.text import without_number
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

    What came of it is played on the same episodes in as much time, so that the two reports can be compared.

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
    before = report_folder(choices)
    hardened, after, page = _free_names(before.parent)
    env, scale, what = _without_victim(same), choices.scale, "Harden the agent: go on training it"
    if training.most is not None and training.most < eps:
        eps, size = training.most, "a smaller size"
    tried = f" (tried before: {', '.join(dict.fromkeys(training.tried))})" if training.tried else ""
    what += (
        f" against errors of {size}, by {training.by}{tried}; {STEPS:,} steps, and the command says after the first "
        "rollout how long they take (fewer by --steps may cost much of the return)"
    )
    train = _words("train-agent", *same, **{
        "--adversary" if training.by in ADVERSARIES else "--robust": training.by,
        "--eps": f"{eps:.3g}",
        "--scale": ";".join(f"{unit:g}" for unit in scale or ()),
        "--algorithm": training.algorithm,  # as it learned: its values, above all those of a DQN, are of those rewards
        "--rewards": training.rewards,
        "--gamma": training.gamma,
        "--steps": STEPS,
        "--out": hardened,
    })  # fmt: skip
    minutes, seed = f"{choices.minutes or _MINUTES:g}", agent.report.seed
    time, hardened_agent = duration(60 * float(minutes)), ["--victim", f"card:{hardened}"]
    again = _words("report", *env, *hardened_agent, **{"--seed": seed, "--minutes": minutes, "--out": after})
    steps = [NextStep(what, train), NextStep(f"Then make the report of the hardened agent, in {time}", again)]
    # an id in a file names a module, which is not imported without trust
    trust = ":" in agent.environment or "--trust" in same
    compare = _words("report", str(before), str(after), **{
        "--minutes": minutes, "--make": option_of(env, "--make"), "--trust": trust, "--out": page
    })  # fmt: skip
    return [*steps, NextStep(f"Then compare the two, in at most {time}: did it help?", compare)]


def adversary(agent: AgentSections, eps: float) -> list[NextStep]:
    """The step that trains an adversary against an agent that lost nothing; none where no command can name it."""
    if (same := words_of_agent(agent)) is None:
        return []
    scale, out = agent.choices.scale, _free_names(report_folder(agent.choices).parent, "adversary")[0]
    command = _words("train-adversary", *_without(same, "--kind", "--num-envs"), **{
        "--eps": f"{eps:.3g}", "--scale": ";".join(f"{unit:g}" for unit in scale or ()), "--out": out
    })  # fmt: skip
    return [NextStep("Train an adversary against the agent, which takes long and may find what these did not", command)]


def looking(agent: AgentSections, row: AttackRow) -> list[NextStep]:
    """The step that shows what an attack does to the images that an agent sees; none where it sees none."""
    same, choices, threat = words_of_agent(agent), agent.choices, without_number(row.row.threat)
    if same is None or choices.features is not None or not choices.unit or threat.startswith(("<", "learned")):
        return []
    command = _words("look", *_without(same, "--kind", "--num-envs"), **{"--threat": threat})
    return [NextStep("Look at what that does to an image: would one notice?", command)]


def _words(*words: str, **options: object) -> str:
    """A command with those options that have a value; of what is true the name alone."""
    given = [
        word for name, value in options.items() if value for word in ((name,) if value is True else (name, str(value)))
    ]
    return shlex.join(["adv-wrappers", *words, *given])


def _free_names(beside: Path, first: str = "hardened") -> tuple[Path, Path, Path]:
    """Names for an agent, its report and a comparison, none of which is there."""
    names = itertools.chain([first], (f"{first}-{number}" for number in itertools.count(2)))
    for name in names:
        agent, after, page = (beside / f"{name}{end}" for end in ("", "-report", "-comparison.html"))
        if not any(map(os.path.lexists, (agent, after, page))):
            return agent, after, page
    raise AssertionError


def words_of_agent(agent: AgentSections) -> list[str] | None:
    """The words that name the environment and the agent in a command: those of the report's own, or made of its rows.

    Returns:
        None where no words do: for victims without a reference, and environments that a function makes.
    """
    given, ref, env = _split(agent.choices.command), agent.report.victim.get("ref"), agent.report.env
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
    return [word for word in _without(words, "--victim", "--stats") if word != "--trust"]


def _without(words: list[str], *names: str) -> list[str]:
    """The words of a command without some options, each with its value."""
    for name in names:
        if name in words:
            words = [*words[: words.index(name)], *words[words.index(name) + 2 :]]
    return words
