"""The suite ``everything`` on every agent, beside every row of these pages about the same agent and budget.

    python benchmarks/reproduce/everything.py --victims FOLDER --work FOLDER

plays the suite on the agents of the zoo and of ``--victims``, each in the environment of its card, into a folder an
agent, and goes on there after an interruption. ``--only`` picks agents, ``--list`` shows them, and ``--part page``
compares what is finished. ``--models FOLDER`` attacks tasks of the DeepMind Control Suite through the models of
``model_based.py`` too, and ``--steps`` trains for longer.

Of the suite's entries those are played that perturb observations under the agent's budget. Perturbed actions and
daylight transforms have budgets of their own, and their returns say nothing of this one. Where these pages have
adversaries that were trained against an agent of MuJoCo or dm_control, the suite trains too: the column "steps" says
for how long each, a dash where entries that are trained were left out. The entry with the lowest mean is the
worst case, and its mean is that of fresh episodes, on which it was not chosen. It should be no better than any other
row of ``docs/results`` about that agent, environment and budget: "yes" says that its mean does not lie above the 95%
interval of any of them, "overlaps" that it does, but that the intervals overlap, and "no" that it is better than one
of them. Rows of adversaries, critics, surrogates and models that were trained have columns of their own. Those pages
train for longer, several times, or towards a state that a person chose, or plan in the simulator itself; the suite
trains each once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from figures import Figure, of_row, table
from model_based import ROWS, model_of
from page import RESULTS, Data, Page, Results
from published import PublishedRow, ball, counted, published

from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.studies import SUITES, SuiteReport, run_suite
from adv_wrappers.studies.cells import budget_of
from adv_wrappers.studies.standing.budgets import budget_of_environment
from adv_wrappers.victims import environment_of, load_victim
from adv_wrappers.victims.references import zoo_names

PARTS = ("rows", "page")
CLASSIC = ("CartPole-v1", "MountainCar-v0")
IMAGES = "NoFrameskip-v4"
OTHER_BUDGETS = {  # of agents that the pages have at other budgets, by the beginning of their names
    "zoo-cartpole": ball(0.1), "saddpg-ant": ball(0.2, "victim"),
}  # fmt: skip
TRAINING = {  # steps of each training, by the beginning of an environment's id
    "Hopper": 500_000, "Walker2d": 500_000, "Ant": 500_000, "dm_control/": 100_000,
}  # fmt: skip
EPISODES, FEWER = 20, 5  # of states, and of images
VERDICTS = ("yes", "overlaps", "no")
ENTRIES = tuple(  # those under the agent's budget
    entry.name for entry in SUITES["everything"] if entry not in (*SUITES["action"], *SUITES["daylight"])
)


@dataclass(frozen=True)
class Agent:
    """An agent, and what it is attacked in.

    Attributes:
        name: ``zoo:NAME``, or the folder of its card.
        ref: its reference.
        env: the id of its environment.
    """

    name: str
    ref: str
    env: str

    @property
    def budget(self) -> str:
        """That of the standing, or of the pages, as arguments of a threat; ``SystemExit`` where there is none."""
        known = budget_of_environment(self.env)
        if known is None:
            raise SystemExit(f"{self.name}: the standing has no budget for {self.env}; give it one in its BUDGETS")
        others = (ball for begin, ball in OTHER_BUDGETS.items() if self.name.startswith(begin))
        return next(others, known.arguments)

    def folder(self, work: Path) -> Path:
        """The folder of its suite; ``zoo:NAME`` and a card called ``zoo-NAME`` have different ones."""
        return work / self.name.replace(":", "/")

    @property
    def steps(self) -> int | None:
        """Steps of each training where adversaries are trained against agents of this environment; or None."""
        return next((steps for begin, steps in TRAINING.items() if self.env.startswith(begin)), None)

    def play(
        self,
        work: Path,
        episodes: int | None = None,
        workers: int = 1,
        num_envs: int | None = None,
        steps: int | None = None,
        models: Path | None = None,
    ) -> SuiteReport:
        """Run the suite, go on with it, or read what is finished.

        Args:
            work: the folder of all suites.
            episodes: the number of episodes of every entry, and of others for the worst case; None takes 20, or 5 of
                images.
            workers, num_envs: as for :func:`adv_wrappers.studies.run_suite`.
            steps: of each training; None trains nothing.
            models: the folder of learned models, as for ``model_based.py``; None attacks without them.

        Raises:
            AdvWrappersError: as :func:`run_suite` does.
        """
        return run_suite(
            "everything",
            self.ref,
            self.env,
            within=budget_of(self.budget),
            attacks=ENTRIES,
            workers=workers,
            episodes=episodes or (FEWER if self.env.endswith(IMAGES) else EPISODES),
            num_envs=num_envs,
            out=self.folder(work),
            dynamics=self.dynamics(models),
            **({} if steps is None else {"train": True, "steps": steps}),
        )

    def dynamics(self, models: Path | None) -> str | None:
        """The reference of the model that ``model_based.py`` has of the environment, learned where it is not there."""
        row = next((row for row in ROWS if row.env == self.env and row.victim == self.name), None)
        return None if models is None or row is None else model_of(row, models)

    def finished(self, work: Path) -> SuiteReport | None:
        """The finished suite at the agent's budget, or None."""
        path = self.folder(work) / "report.json"
        report = SuiteReport.from_json(path) if path.exists() else None
        return report if report is not None and report.settings["budget"] == self.budget else None

    @property
    def cost(self) -> int:
        """Its place in the order: classic control is cheap, images take hours."""
        return 0 if self.env in CLASSIC else 3 if self.env.endswith(IMAGES) else 2 if "/" in self.env else 1


def agents_of(victims: Path | None) -> list[Agent]:
    """The agents of the zoo and of a folder of cards, cheap ones first."""
    refs = {f"zoo:{name}": f"zoo:{name}" for name in zoo_names()}
    for card in sorted(victims.glob("*/card.json")) if victims is not None else ():
        refs[card.parent.name] = f"card:{card.parent}"
    found = [Agent(name, ref, environment_of(load_victim(ref).card or {})[0]) for name, ref in refs.items()]
    return sorted(found, key=lambda agent: agent.cost)


def verdict(worst: Figure, row: Figure) -> str:
    """Whether a worst case is no better than a row: ``"yes"``, ``"overlaps"`` or ``"no"``.

    Args:
        worst: the worst case.
        row: a published row; without an interval its mean stands for one.
    """
    if worst.mean <= (row.mean if row.high is None else row.high):
        return "yes"
    point = row if row.high is not None else Figure(row.mean, low=row.mean, high=row.mean)
    return "overlaps" if worst.overlaps(point) else "no"


def compare(report: SuiteReport, budget: str, others: Sequence[PublishedRow]) -> dict[str, Any]:
    """The worst case of a suite beside the published rows of the same budget.

    Args:
        report: of the suite.
        budget: of the suite, as arguments of a threat.
        others: published rows of the agent.
    """
    figure = of_row(report.worst)
    found: dict[str, Any] = {
        "budget": budget,
        "entries": len(report.attacks),
        "steps": _trained_steps(report),
        "clean": asdict(of_row(report.clean)),
        "worst": report.worst["threat"],
        "figure": asdict(figure),
        "chosen": asdict(of_row(report.chosen)),
        "means": {row["threat"]: row["mean_return"] for row in report.report.threats},
        "left_out": {  # without the folders of cards, which are those of one machine
            name: re.sub(r"card:\S*/", "card:", report.left_out[name]) for name in ENTRIES if name in report.left_out
        },
        "fingerprint": report.settings["victim"]["sha256"],
        "versions": report.report.versions,
    }
    for name, trained in (("untrained", False), ("trained", True)):
        rows = [row for row in others if row.budget == budget and row.trained is trained]
        if rows:
            best = min(rows, key=lambda row: row.figure.mean)
            said = {row: verdict(figure, row.figure) for row in rows}
            found[name] = {
                **_told(best),
                "rows": len(rows),
                "holds": max(said.values(), key=VERDICTS.index),
                "lower": [_told(row) for row, text in said.items() if text == "no"],
            }
    return found


def _trained_steps(report: SuiteReport) -> int | None:
    """Steps of each training of a suite; None where it trained no adversary."""
    return int(report.settings["steps"]) if {"sa-rl", "pa-ad"} & {*report.attacks} else None


def _told(row: PublishedRow) -> dict[str, Any]:
    return {"file": row.file, "threat": row.threat, "figure": asdict(row.figure)}


def body(data: Data) -> list[str]:
    """The page: one line an agent, and the rows that are lower than a worst case."""
    lines, lower, verdicts = [], [], []
    for name, found in data["agents"].items():
        cells = []
        for kind in ("untrained", "trained"):
            row = found.get(kind)
            cells += [_cell(row), row["holds"]] if row else ["", ""]
        if "untrained" in found:
            verdicts.append(found["untrained"]["holds"])
            lower += [
                [name, f"`{row['threat']}`", row["file"], Figure(**row["figure"])]
                for row in found["untrained"]["lower"]
            ]
        chosen = f"{found['chosen']['mean']:.4g} in the suite's table"
        worst = f"`{found['worst']}`: {Figure(**found['figure'])}, {chosen}"
        clean = Figure(**{**found["clean"], "std": None, "episodes": None})
        rows = found.get("untrained", {}).get("rows", "")
        lines.append([name, found["budget"], clean, found["entries"], found["steps"] or "", worst, rows, *cells])
    head = [
        "agent",
        "budget",
        "no attack",
        "entries",
        "steps",
        "worst of everything",
        "other rows",
        "lowest of them",
        "no better",
        "lowest trained row",
        "no better than it",
    ]
    about = (__doc__ or "").split("\n\n")[-1].strip().replace("\n", " ")
    count = ", ".join(f'"{text}" for {verdicts.count(text)}' for text in VERDICTS)
    parts = [
        about,
        "Rows of `beam` here, and of other pages beside them, are of a search that was not yet monotone in its width. "
        "What the present one leaves stands in `beam.md` and `certificates.md`.",
        f"Of {len(lines)} agents {len(verdicts)} have other rows: {count}.",
        table(head, lines),
    ]
    if lower:
        parts.append(
            '## Rows that are lower than the worst case\n\nWhere the last table says "no" of attacks that '
            "need no training, one of them leaves less than the suite's worst case.\n\n"
            + table(["agent", "attack", "page", "mean"], lower)
        )
    parts += [f"Not played: {', '.join(data['missing'])}."] * bool(data["missing"])
    return parts


def _cell(row: dict[str, Any]) -> str:
    return f"`{row['threat'].partition(':')[0]}` of {row['file']}: {Figure(**row['figure'])}"


def measure(results: Results) -> None:
    """Play what is missing, and compare what is finished."""
    given = results.given
    agents = agents_of(given.victims)
    if unknown := sorted({*(given.only or ())} - {agent.name for agent in agents}):
        raise SystemExit(f"no agent is called {', '.join(unknown)}; --list shows them")
    rows = published(RESULTS, {agent.name: agent.env for agent in agents})
    if given.list:
        for agent in agents:
            print(agent.name, agent.env, agent.budget, f"{counted(rows[agent.name])[agent.budget]} rows")
        raise SystemExit
    results.need("--work", "for the suites")
    failed = []
    for agent in agents if "rows" in given.part else ():
        if given.only is not None and agent.name not in given.only:
            continue
        began = time.perf_counter()
        try:
            trains = any(row.trained and row.budget == agent.budget for row in rows[agent.name])
            steps = (given.steps or agent.steps) if trains else None
            report = agent.play(given.work, given.episodes, given.workers, steps=steps, models=given.models)
            print(f"{agent.name}: {report.verdict} ({time.perf_counter() - began:.0f} s)", flush=True)
        except AdvWrappersError as error:  # the other agents go on
            failed.append(agent.name)
            print(f"{agent.name}: {type(error).__name__}: {error}", flush=True)
    if "page" in given.part:
        reports = {agent: agent.finished(given.work) for agent in agents}
        found = {
            agent.name: compare(report, agent.budget, rows[agent.name])
            for agent, report in reports.items()
            if report is not None
        }
        results.data |= {"missing": [agent.name for agent in agents if agent.name not in found], "agents": found}
        results.keep()
    if failed:
        PAGE.write(given.out)
        raise SystemExit(f"failed: {', '.join(failed)}")


PAGE = Page(
    "everything",
    "The suite everything beside all other rows",
    __doc__,
    measure,
    body,
    options={
        "--victims": {"type": Path, "help": "folder of agents, beside those of the zoo"},
        "--work": {"type": Path, "help": "folder of the suites"},
        "--models": {"type": Path, "help": "folder of learned models, as for model_based.py"},
        "--only": {"nargs": "+", "metavar": "NAME", "help": "agents"},
        "--episodes": {"type": int, "help": f"of each entry (default: {EPISODES}, of images {FEWER})"},
        "--steps": {"type": int, "help": "of each training, with --only (default: 500,000, or 100,000 of tasks)"},
        "--workers": {"type": int, "default": 1},
        "--part": {"nargs": "+", "choices": PARTS, "default": PARTS, "help": "play, or compare what was played"},
        "--list": {"action": "store_true", "help": "print agents, environments, budgets and rows, and end"},
    },
)


if __name__ == "__main__":
    PAGE.main()
