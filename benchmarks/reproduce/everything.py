"""The suite ``everything`` on every agent, beside every row of these pages about the same agent and budget.

    python benchmarks/reproduce/everything.py --victims FOLDER --work FOLDER

plays all entries of the suite that need no training on the agents of the zoo and of ``--victims``, each in the
environment of its card, into ``FOLDER/rows.db``, and goes on there after an interruption. ``--only`` picks agents,
``--list`` shows them, and ``--part page`` writes what is there.

The budget of an agent is the one that most rows of ``docs/results`` about it have, where there are any. The suite's
worst case is its entry with the lowest mean among those that perturb observations under that budget. It should be no
better than any other row: its mean should not lie above the 95% interval of theirs. Adversaries and critics that were
trained have a column of their own, since here the suite trained nothing.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from figures import Figure, command, machine, of_row, save, table, write

from adv_wrappers.campaign import Plan, Store, run
from adv_wrappers.victims.references import zoo_names

ROW = {"threat", "mean_return", "std", "episodes", "returns"}
TRAINED = re.compile(r"learned|robust-sarsa|hybrid|critic=|card=|pa-ad|sa-rl|induce|timed")
ATARI = re.compile(r"pong|qbert|spaceinvaders|roadrunner|bankheist")
OWN = "everything.json"
BUDGETS = {  # of agents that no page has a row of
    "zoo:cartpole": "eps=0.1", "zoo:mountaincar": "eps=0.05", "zoo:walker": "eps=0.2", "zoo:fish": "eps=0.2",
}  # fmt: skip


@dataclass(frozen=True)
class PublishedRow:
    """A row of ``docs/results`` of an attack on observations within a ball.

    Attributes:
        file: the page that it stands in.
        threat: its text.
        eps, scale: the ball's, as texts.
        figure: the mean with its interval.
    """

    file: str
    threat: str
    eps: str
    scale: str | None
    figure: Figure

    @property
    def trained(self) -> bool:
        """Whether it is of an attack that is trained."""
        return bool(TRAINED.search(self.threat))

    @property
    def budget(self) -> str:
        """As arguments of a threat."""
        return f"eps={self.eps}" + (f",scale={self.scale}" if self.scale else "")


def budget_of(threat: str) -> tuple[str, str | None] | None:
    """Eps and scale of a single attack on observations; None for others, and for units that a text does not show.

    >>> budget_of("pgd:eps=0.10,steps=3"), budget_of("pgd:eps=1 + action-flip"), budget_of("pgd:eps=1,norm=2")
    (('0.1', None), None, None)
    """
    eps = re.search(r"[:,]eps=([0-9.e-]+)", threat)
    scale = re.search(r"scale=([^,]+)", threat)
    other = " + " in threat or "norm=" in threat or "when=" in threat or threat.startswith(("action-", "worst-action"))
    if eps is None or other or (scale and scale[1] != "victim"):
        return None
    return f"{float(eps[1]):g}", scale[1] if scale else None


def published(folder: Path, agents: dict[str, str]) -> dict[str, list[PublishedRow]]:
    """By agent, the rows of the pages.

    Args:
        folder: of the pages.
        agents: by name, the reference of every agent.
    """
    found: dict[str, list[PublishedRow]] = collections.defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        if path.name == OWN:
            continue
        for name, row in rows_in(json.loads(path.read_text(encoding="utf-8")), agents, None):
            budget = budget_of(row["threat"])
            if budget is not None and len(row["returns"]) > 1:
                found[name].append(PublishedRow(path.stem, row["threat"], *budget, of_row(row)))
    return found


def rows_in(value: Any, agents: dict[str, str], agent: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row within a value of JSON, with the agent that the nearest key or entry around it names."""
    if isinstance(value, list):
        for item in value:
            yield from rows_in(item, agents, agent)
    elif isinstance(value, dict) and {*value} >= ROW:
        if agent is not None:
            yield agent, value
    elif isinstance(value, dict):
        named = value.get("victim") or value.get("agent")
        agent = named_agent(named.get("ref") if isinstance(named, dict) else named, agents) or agent
        for key, item in value.items():
            yield from rows_in(item, agents, named_agent(key, agents) or agent)


def named_agent(text: Any, agents: dict[str, str]) -> str | None:
    """The agent that a text names, with or without an eps behind it."""
    if not isinstance(text, str):
        return None
    short = re.sub(r"-[0-9.]+$", "", text.removeprefix("card:").rpartition("/")[2])
    for one in (text, short, short.replace("zoo-", "zoo:", 1)):
        if one in agents:
            return one
    return None


def agents_of(victims: Path | None) -> dict[str, str]:
    """By name, the references of the agents; cheap ones first."""
    found = {f"zoo:{name}": f"zoo:{name}" for name in zoo_names()}
    for card in sorted(victims.glob("*/card.json")) if victims is not None else ():
        found[card.parent.name] = f"card:{card.parent}"
    return dict(sorted(found.items(), key=lambda item: (bool(ATARI.search(item[0])), "dm_control" in item[0])))


def chosen_budget(name: str, rows: list[PublishedRow]) -> str:
    """The budget that most rows of an agent have, or else one of ``BUDGETS``, or of one grey level."""
    counts = collections.Counter(row.budget for row in rows)
    default = next((budget for begin, budget in BUDGETS.items() if name.startswith(begin)), "eps=1")
    return counts.most_common(1)[0][0] if counts else default


def compare(rows: list[dict[str, Any]], budget: str, others: list[PublishedRow]) -> dict[str, Any]:
    """The worst case of a suite beside the published rows of the same budget.

    Args:
        rows: of the suite, that without an attack first.
        budget: of the suite.
        others: published rows of the agent.
    """
    own = [row for row in rows[1:] if budget_of(row["threat"]) is not None]
    worst = min(own, key=lambda row: float(row["mean_return"]))
    same = [row for row in others if row.budget == budget]
    found: dict[str, Any] = {
        "budget": budget, "entries": len(own), "clean": asdict(of_row(rows[0])), "worst": worst["threat"],
        "figure": asdict(of_row(worst)),
    }  # fmt: skip
    for name, trained in (("untrained", False), ("trained", True)):
        of_kind = [row for row in same if row.trained is trained]
        if of_kind:
            best = min(of_kind, key=lambda row: row.figure.mean)
            highs = [row.figure.mean if row.figure.high is None else row.figure.high for row in of_kind]
            found[name] = {"file": best.file, "threat": best.threat, "figure": asdict(best.figure),
                           "rows": len(of_kind), "holds": bool(worst["mean_return"] <= min(highs))}  # fmt: skip
    return found


def markdown(data: dict[str, Any]) -> str:
    """The page: one line an agent."""
    lines = []
    for name, found in data["agents"].items():
        cells = []
        for kind in ("untrained", "trained"):
            row = found.get(kind)
            text = f"`{row['threat'].partition(':')[0]}` of {row['file']}: {Figure(**row['figure'])}" if row else ""
            cells += [text, "" if row is None else "yes" if row["holds"] else "no"]
        worst = f"`{found['worst'].partition(':')[0]}`: {Figure(**found['figure'])}"
        clean = Figure(**{**found["clean"], "std": None, "episodes": None})
        lines.append([name, found["budget"], str(clean), str(found["entries"]), worst, *cells])
    head = ["agent", "budget", "no attack", "entries", "worst of everything", "lowest other row", "no better",
            "lowest trained row", "no better than it"]  # fmt: skip
    said = (__doc__ or "").split("\n\n")[-1].strip().replace("\n", " ")
    missing = ", ".join(data["missing"])
    parts = ["# The suite everything beside all other rows", f"Made by `{data['command']}`\n\non {data['machine']}.",
             said, table(head, lines)]  # fmt: skip
    parts += [f"Not played: {missing}."] * bool(missing)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Play what is missing, compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victims", type=Path, help="folder of agents, beside those of the zoo")
    parser.add_argument("--work", type=Path, help="folder of the store")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="agents")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--part", nargs="+", choices=["rows", "page"], default=["rows", "page"])
    parser.add_argument("--list", action="store_true", help="print agents, budgets and rows, and end")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    given = parser.parse_args()
    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    agents = agents_of(given.victims)
    rows = published(Path("docs/results"), agents)
    budgets = {name: chosen_budget(name, rows[name]) for name in agents}
    if given.list:
        for name in agents:
            print(name, budgets[name], len(rows[name]))
        return
    if given.work is None:
        parser.error("--work FOLDER is needed")
    found: dict[str, Any] = {}
    with Store(given.work / "rows.db") as store:
        for name, budget in budgets.items():
            if "rows" in given.part and (given.only is None or name in given.only):
                plan = Plan.of(victims=[agents[name]], suite="everything", budgets=[budget], episodes=given.episodes)
                print(name, run(plan, store, given.workers), flush=True)
        for report in store.reports() if "page" in given.part else ():
            name = next(one for one, ref in agents.items() if ref == report.victim["ref"])
            found[name] = compare([*report.threats], budgets[name], rows[name])
    if "page" not in given.part:
        return
    data = {"command": command(sys.argv[1:]), "machine": machine(), "missing": [n for n in agents if n not in found]}
    data["agents"] = {name: found[name] for name in agents if name in found}
    save(given.out / OWN, data)
    write(given.out / "everything.md", markdown(data))


if __name__ == "__main__":
    main()
