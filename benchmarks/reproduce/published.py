"""Returns of agents under attacks on their observations, read from the pages of ``docs/results``.

Most pages hold rows of reports, which name their threat; :func:`rows_in` finds these wherever they stand. Pages that
hold returns in another form, or do not say whose rows they are, have a reader of their own below. Not read are figures
that say nothing of an agent's return in its own environment: shares of changed actions, steps of games that were cut
short (``worst_case``, the image games of ``certificates``), agents that play another policy than their card's
(smoothed, or sampling where the card takes the mode), and agents that were trained for one page. The greedy worst case
is no attack: it is an estimate, and may be lower than what any perturbation reaches.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import Figure, of_row, of_seeds

ROW = {"threat", "mean_return", "std", "episodes", "returns"}
# what learns before it attacks: adversaries, critics, surrogates and models of the environment
TRAINED = re.compile(r"learned|robust-sarsa|hybrid|critic=|card[=:]|pa-ad|sa-rl|induce|timed|model", re.IGNORECASE)
HALF = "0.9;0.07"  # the scale of MountainCar's budgets: half the range of either feature

Found = tuple[str, str, str, bool, Figure]  # agent, threat, budget, whether it is trained, the figure


@dataclass(frozen=True)
class PublishedRow:
    """A row of ``docs/results`` of an attack on observations within a ball.

    Attributes:
        file: the page that it stands in.
        threat: its text.
        budget: as arguments of a threat.
        trained: whether it is of an attack that is trained.
        figure: the mean with its interval, where one was published.
    """

    file: str
    threat: str
    budget: str
    trained: bool
    figure: Figure


def budget_of(threat: str) -> str | None:
    """The budget of a single attack on observations within an l-infinity ball; None for others.

    It may be applied at some of the steps alone: what it does there lies in the same ball.

    >>> budget_of("pgd:eps=0.10,steps=3"), budget_of("pgd:eps=1 + action-flip"), budget_of("pgd:eps=1,norm=2")
    ('eps=0.1', None, None)
    """
    eps = re.search(r"[:,]eps=([0-9.e-]+)", threat)
    scale = re.search(r"scale=([^,]+)", threat)
    other = " + " in threat or "norm=" in threat or re.match(r"(half-)?(worst-)?action\b", threat)
    if eps is None or other or (scale and scale[1] == "..."):  # a text that was cut does not say its unit
        return None
    return ball(eps[1], scale[1] if scale else None)


def ball(eps: str | float, scale: str | None = None) -> str:
    """An l-infinity ball as arguments of a threat, its numbers in one form.

    >>> ball("0.10"), ball(0.05, "0.9;0.07")
    ('eps=0.1', 'eps=0.05,scale=0.9;0.07')
    """
    return f"eps={float(eps):g}" + (f",scale={scale}" if scale else "")


def is_trained(file: str, threat: str) -> bool:
    """Whether an attack is trained; the page ``victims`` has Robust Sarsa through the critics that cards bring."""
    return bool(TRAINED.search(threat)) and not (file == "victims" and threat.startswith("robust-sarsa"))


def published(folder: Path, environments: Mapping[str, str]) -> dict[str, list[PublishedRow]]:
    """By agent, the rows of the pages; an agent without any has an empty list.

    Args:
        folder: of the pages.
        environments: by name of every agent, the id of its environment. Rows of other environments are left out.
    """
    found: dict[str, list[PublishedRow]] = {name: [] for name in environments}
    for path in sorted(folder.glob("*.json")):
        page = json.loads(path.read_text(encoding="utf-8"))
        if path.stem == "everything" or not isinstance(page, dict):
            continue
        for name, row in rows_in(page, environments, None):
            budget = budget_of(row["threat"])
            if budget is not None and len(row["returns"]) > 1:
                trained = is_trained(path.stem, row["threat"])
                found[name].append(PublishedRow(path.stem, row["threat"], budget, trained, of_row(row)))
        reader = READERS.get(path.stem)
        for name, threat, own, trained, figure in reader(page) if reader is not None else ():
            if name in found:
                found[name].append(PublishedRow(path.stem, threat, own, trained, figure))
    return found


def rows_in(value: Any, environments: Mapping[str, str], agent: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row within a value of JSON, with the agent that the nearest key or entry around it names.

    Args:
        value: the value.
        environments: as for :func:`published`.
        agent: the agent that what is around the value names, or None.
    """
    if isinstance(value, list):
        for item in value:
            yield from rows_in(item, environments, agent)
    elif isinstance(value, dict) and {*value} >= ROW:
        if agent is not None:
            yield agent, value
    elif isinstance(value, dict):
        named = value.get("victim") or value.get("agent")
        agent = named_agent(named.get("ref") if isinstance(named, dict) else named, environments) or agent
        env = value.get("env")
        env = env.get("id") if isinstance(env, dict) else env
        if agent is not None and isinstance(env, str) and env != environments[agent]:
            return
        for key, item in value.items():
            yield from rows_in(item, environments, named_agent(key, environments) or agent)


def named_agent(text: Any, agents: Mapping[str, str]) -> str | None:
    """The agent that a text names, with or without an eps behind it.

    Without an eps ``zoo-NAME`` is a card of that name and not the zoo's NAME, which is another agent.
    """
    if not isinstance(text, str):
        return None
    whole = text.removeprefix("card:").rpartition("/")[2]
    short = re.sub(r"-[0-9.]+$", "", whole)
    for one in (text, whole, short, *([short.replace("zoo-", "zoo:", 1)] if short != whole else [])):
        if one in agents:
            return one
    return None


# pages in forms of their own


def _certificates(page: dict[str, Any]) -> Iterator[Found]:
    """The attacks beside the certificates; the image games are cut short."""
    for one in page["agents"].values():
        name, scale = one["settings"]["victim"]["ref"], one["settings"]["scale"]
        if "-v" not in one["settings"]["env"]["id"]:
            continue
        for at in one["ranges"]:
            budget = ball(at["eps"], ";".join(map(str, scale)) if scale else None)
            for attack, returns in at["attacks"].items():
                if len(returns) > 1:
                    yield name, attack, budget, False, of_seeds(returns)


def _model_based(page: dict[str, Any]) -> Iterator[Found]:
    """Attacks on observations of agents of dm_control; baselines may be the lowest of many draws of each episode."""
    for row, found in page["rows"].items():
        task, _, on = row.partition(", ")
        if on != "observations":
            continue
        cells = {**found.get("table", {}), "simulator": found.get("truth", {})}
        for attack, cell in cells.items():
            if attack != "none" and len(cell.get("returns", ())) > 1:
                text = {"attack": "model-based", "simulator": "planning in the simulator"}.get(attack, attack)
                text += f", lowest of {cell['best_of']} draws" if cell["best_of"] > 1 else ""
                yield f"zoo:{task}-sac", text, ball(found["eps"]), is_trained("", text), of_seeds(cell["returns"])


def _model_based_steps(page: dict[str, Any]) -> Iterator[Found]:
    """MaxDiff, and by steps of training PA-AD and plans through a model that is learned."""
    budgets = {"hopper": ("zoo:hopper-ppo", ball(0.075, "victim")), "walker-stand": ("zoo:walker-stand-sac", ball(0.2))}
    for key, (name, budget) in budgets.items():
        for attack, found in page.get(key, {}).items():
            if attack == "none":
                continue
            by_steps = {"": found} if "returns" in found else found
            for steps, cell in by_steps.items():
                text = f"{attack}, {steps} steps" if steps else attack
                yield name, text, budget, bool(steps), of_seeds(cell["returns"])


def _pa_ad_small(page: dict[str, Any]) -> Iterator[Found]:
    """MountainCar, whose rows do not name their agent, and CartPole where the agent plays its mode."""
    for part in (page, page.get("untrained", {})):
        for eps, rows in part.get("mountaincar", {}).items():
            for row in rows.values():
                if row["threat"] != "none":
                    trained = is_trained("", row["threat"])
                    yield "zoo:mountaincar-dqn", row["threat"], ball(eps, HALF), trained, of_row(row)
    agents = {"zoo, mode": "zoo:cartpole-a2c", "card, mode": "zoo-cartpole-a2c"}
    for key, name in agents.items():
        for row in page.get("untrained", {}).get("divergence", {}).get(key, {}).get("rows", {}).values():
            if row["threat"] != "none":
                yield name, row["threat"], ball(0.05), False, of_row(row)


def _pa_ad_sweeps(page: dict[str, Any]) -> Iterator[Found]:
    """Hopper at several eps; the rows do not name their agent."""
    for row in (row for rows in page["budgets"].values() for row in rows.values()):
        budget = budget_of(row["threat"])
        if budget is not None:
            yield "zoo:hopper-ppo", row["threat"], budget, is_trained("", row["threat"]), of_row(row)


def _radial(page: dict[str, Any]) -> Iterator[Found]:
    """Means on games of Atari, whose agents are the zoo's; agents of the other games were trained for the page."""
    for game in ("Pong", "RoadRunner", "BankHeist"):
        for kind, end in (("PPO", "ppo"), ("RADIAL-PPO", "radial-ppo")):
            row = page["games"].get(game, {}).get(kind, {}).get("0", {})
            for eps, at in row.items():
                for attack in ("fgsm", "pgd") if isinstance(at, dict) else ():
                    name = f"zoo:{game.lower()}-{end}"
                    yield name, attack, ball(eps), False, Figure(at[attack], episodes=row["episodes"])


READERS: dict[str, Callable[[dict[str, Any]], Iterator[Found]]] = {
    "certificates": _certificates, "model_based": _model_based, "model_based_steps": _model_based_steps,
    "pa_ad_small": _pa_ad_small, "pa_ad_sweeps": _pa_ad_sweeps, "radial": _radial,
}  # fmt: skip


def counted(rows: list[PublishedRow]) -> collections.Counter[str]:
    """How many rows there are under each budget."""
    return collections.Counter(row.budget for row in rows)
