"""The standing: agents by what the strongest attack leaves them, at one budget an environment.

    python benchmarks/reproduce/standing.py --work FOLDER --victims FOLDER

measures the agents of the zoo, of ``--victims`` and of the folders of cards in ``CARDS``, those of states first, and
goes on after an interruption. Images are played with ``--images`` alone: an Atari agent takes minutes an attack. With
``--added`` the attacks in ``ADDED`` are made and played, adversaries trained first; the rows that the page has are not
played again.

Intervals of 95% are those of each attack's own mean, and not corrected for the choice of the lowest. Attacks that did
not fit into the time of an agent (``--minutes-each``) are left out: such a row may still fall. An attack with a name
beside it, as in "pa-ad, defences" or "beam, everything", is lent by that page or by the suite below: of other episodes,
and not among those played. "Certified" is a lower bound of the mean under every attack, proved in about a second an
episode: a low one says that the search was short. There is none of continuous actions and hidden states; of images it
takes hours. An agent `zoo-NAME` is one of RL Baselines3 Zoo; `zoo:NAME` of this package is called NAME.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from defences import TASKS
from figures import Figure, table
from hardened import ENVS
from page import AGAIN, RESULTS, Data, Page, Results, load, prose, write

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.statistics.confidence_intervals import caveat, marked, mean_interval
from adv_wrappers.studies.standing.budgets import StandingBudget, budget_of_environment
from adv_wrappers.studies.standing.entry import ENTRY_FILE, AttackedMean, StandingEntry, ranked, read_entries
from adv_wrappers.studies.standing.measure import ATTACKS, Submission, add_attack, add_submission
from adv_wrappers.studies.standing.page import STANDING_PAGE, figure_footnotes, standing_page
from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.models.critic_scan import train_critic
from adv_wrappers.victims import environment_of, load_victim
from adv_wrappers.victims.references import zoo_names

CARDS = ("benchmarks/reproduce/hardened/*", "benchmarks/reproduce/rarl/*", "benchmarks/reproduce/defences/*")
LENDING = {  # pages with attacks that take hours, and what their budget is in an environment
    "hardened": {id: StandingBudget(eps, "victim", "").arguments for id, eps in ENVS.values()},
    "defences": {id: StandingBudget(task.eps, task.scale, "").arguments for id, task in TASKS.items()},
}
# attacks beside the standing's own, by agent and label: a text without a budget, or arguments of train_adversary, or of
# train_critic for Robust Sarsa
ADDED: dict[str, dict[str, str | dict[str, Any]]] = {
    "wocar-halfcheetah-ppo": {"pa-ad": {"kind": "pa-ad", "form": "target", "steps": 300_000, "episodes": 20}},
    "wocar-ant-ppo": {"pa-ad": {"kind": "pa-ad", "form": "target", "steps": 400_000, "episodes": 20}},
    "wocar-walker-ppo": {"robust-sarsa": {"kind": "robust-sarsa"}},
    "saddpg-invertedpendulum-vanilla": {"robust-sarsa, ten starts": "robust-sarsa:keep=best,restarts=10"},
}

CLAIMED = ("heuristic", "evasion", "strongest_attack")  # what the cards of others call the returns under attack
ABOVE = {  # why more is left here than under the attack of the authors, and what was tried
    "saddpg-invertedpendulum-vanilla": (
        "half a step above their rounded mean, by the authors' own critic. Robust Sarsa as published leaves "
        "224 through it; PA-AD and SA-RL of 150,000 steps and four critics trained here leave 1000"
    ),
    "wocar-walker-ppo": (
        "its authors publish 4132 without an attack, here it returns 4669. PA-AD of 500,000 steps leaves 4599 "
        "of 50 episodes (`pa_ad.md`); one that takes it to 1009 at 0.15, trained on for 350,000 steps at 0.05, "
        "4496. When it falls differs from processor to processor"
    ),
}


def agents_of(victims: Path | None) -> dict[str, str]:
    """References by name: of the zoo, of a folder of cards and of ``CARDS``, but for agents that add noise themselves.

    The card of such an agent holds the network without the noise, which is another agent.
    """
    found = {name: f"zoo:{name}" for name in zoo_names()}
    folders = [card.parent for pattern in CARDS for card in sorted(Path().glob(f"{pattern}/card.json"))]
    folders += [card.parent for card in sorted(victims.glob("*/card.json"))] if victims is not None else []
    kept = [folder for folder in folders if not is_smoothed(load(folder / "card.json"))]
    return found | {folder.name: f"card:{folder}" for folder in kept}


def is_smoothed(card: Data) -> bool:
    """Whether an agent was trained to act on noise of its own."""
    robust = (card.get("training") or {}).get("robust") or {}
    return str(robust.get("type", "")).startswith("smoothed")


def claim_of(card: dict[str, Any]) -> str:
    """What a card says that its authors published of it under attack, with its source; "" for nothing."""
    published = card.get("published") or {}
    keys = [key for key in published if key in CLAIMED]
    if not keys:
        return ""
    eps = (card.get("attack") or {}).get("eps")
    return f"{', '.join(f'{key} {published[key]:g}' for key in keys)} at {eps} ({published.get('source', '')})"


def elsewhere(entry: StandingEntry, suites: Data) -> dict[str, AttackedMean]:
    """What suites and other pages have of an agent of the same name, environment and budget, by name of the attack."""
    name, budget = entry.name, budget_of_environment(entry.env_id)
    found = dict[str, AttackedMean]()
    suite = suites.get(f"zoo:{name}", suites.get(name))
    if suite is not None and budget is not None and suite["budget"] == budget.arguments:
        figure = suite["figure"]
        mean, low, high, count = (figure[key] for key in ("mean", "low", "high", "episodes"))
        worst = AttackedMean(mean, low, high, known_caveat(figure), suite["worst"], 0.0, episodes=count)
        found[f"{suite['worst']}, everything"] = worst
    for page, budgets in LENDING.items():
        if budget is None or budgets.get(entry.env_id) != budget.arguments:
            continue
        data = load(RESULTS / f"{page}.json")
        rows = data.get("agents", data.get("attacks", {})).get(name, {}).get("rows", {})
        for attack, row in rows.items():
            if attack not in ("none", "noise"):
                returns = row["returns"]
                low, high = mean_interval(returns)
                why, count = caveat(returns), len(returns)
                lent = AttackedMean(row["mean_return"], low, high, why, attack, 0.0, episodes=count)
                found[f"{attack}, {page}"] = lent
    return found


def known_caveat(figure: dict[str, Any]) -> str | None:
    """Why the interval of a figure whose returns were not kept is none of 95%: they are equal, or few."""
    returns = [figure["mean"]] * figure["episodes"] if figure["std"] == 0 else range(figure["episodes"])
    return caveat(returns)


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    results.need("--work", "for the rows")
    warnings.filterwarnings("ignore")
    # the folder of a machine that has none yet begins with what the page has
    for entry in map(StandingEntry.from_dict, results.data.get("entries", [])):
        if not (given.work / entry.name / ENTRY_FILE).exists():
            write(given.work / entry.name / ENTRY_FILE, json.dumps(entry.to_dict()))
    agents = agents_of(given.victims)
    if given.added:
        for name in agents.keys() & ADDED.keys():
            for label, attack in ADDED[name].items():
                add(agents[name], given.work / name, label, attack)
        agents = {}
        results.data["added"] = results.made  # the other rows keep theirs
        results.made = {key: results.data[key] for key in results.made}
    for name, ref in agents.items():
        card = load_victim(ref).card or {}
        images = "NoFrameskip" in environment_of(card)[0]
        if images != given.images or (not given.again and (given.work / name / ENTRY_FILE).exists()):
            continue
        licence = card.get("licence") or "MIT"  # cards that this project trained have that of the project
        try:
            add_submission(Submission(ref, name, licence, claim_of(card)), given.work / name, given.minutes_each)
            print(name, flush=True)
        except AdvWrappersError as error:  # the others go on
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    results.data["entries"] = [entry.to_dict() for entry in read_entries(given.work)]
    results.keep()


def add(victim: str, folder: Path, label: str, attack: str | dict[str, Any]) -> None:
    """Play one attack of ``ADDED`` on the episodes of an agent; what it needs is trained within the budget first."""
    text = attack
    if not isinstance(text, str):
        id, kwargs = environment_of(load_victim(victim).card or {})
        budget = budget_of_environment(id)
        within = Linf(budget.eps, budget.scale)
        out = folder.parent / "adversaries" / f"{folder.name}-{label}"
        settings = {key: value for key, value in attack.items() if key != "kind"}
        if attack["kind"] == "robust-sarsa":
            train_critic(victim, id, within=within, env_kwargs=kwargs, out=out, **settings)
            text = f"robust-sarsa:critic={out}"
        else:
            train_adversary(attack["kind"], id, victim, within=within, env_kwargs=kwargs, out=out, **settings)
            text = f"learned:card={out}"
    print(add_attack(victim, folder, text, label=label, minutes=60.0).attacks[label], flush=True)


def entries_of(data: Data) -> list[StandingEntry]:
    """The entries with what other pages have of their agents, in their order."""
    entries = [StandingEntry.from_dict(one) for one in data["entries"]]
    return ranked([replace(entry, elsewhere=elsewhere(entry, data["suites"]["agents"])) for entry in entries])


def beside_authors(data: Data) -> list[str]:
    """What the attacks of an agent's authors left of it, beside what is left here, at the same budget."""
    rows = []
    for entry in entries_of(data):
        figures = [float(one) for one in re.findall(rf"(?:{'|'.join(CLAIMED)}) (-?[\d.]+)", entry.claim)]
        budget = budget_of_environment(entry.env_id)
        if not figures or entry.strongest is None or f"at {budget.eps} " not in entry.claim:
            continue
        name, least = entry.strongest
        why = ABOVE.get(entry.name, "") if least.mean > min(figures) else "at or below"
        if not why:
            raise ValueError(f"{entry.name} keeps {least.mean:g}, its authors' attack leaves {min(figures):g}: say why")
        rows.append(f"| {entry.name} | {min(figures):g} | {least.mean:.4g} | `{name}` | {why} |")
    added = data["added"]
    text = (
        "The lowest figure that the authors of an agent publish at this budget, in the environments of their time, and "
        f"the lowest here. Attacks that were added to these agents: `{added['command']}`."
    )
    return [
        "## Beside what the attacks of the authors leave",
        text,
        "\n".join(["| agent | theirs | here | by | which is |", "|---|---|---|---|---|", *rows]),
    ]


def environments_of(entries: Sequence[StandingEntry]) -> list[str]:
    """A table an environment, one line an agent; the table that sorts has more columns."""
    parts = [f"{len(entries)} agents.", *(f"{note}." for note in figure_footnotes(entries))]
    for env, group in groupby(entries, lambda entry: entry.env_id):
        rows = list(group)
        head = ["agent", "no attack", "noise", "strongest attack leaves", "by", f"attacks played, of {len(ATTACKS)}"]
        if any(entry.certificate for entry in rows):
            head.append("certified")
        lines = [head, ["---"] * len(head), *(line_of(entry)[: len(head)] for entry in rows)]
        parts += [
            f"## {env}",
            f"Budget: {rows[0].budget}. {rows[0].episodes} episodes of seed {rows[0].seed}.",
            "\n".join("| " + " | ".join(line) + " |" for line in lines),
        ]
    return parts


def line_of(entry: StandingEntry) -> Sequence[str]:
    """The cells of an agent."""
    worst, (own, added) = entry.strongest, entry.attacks_played
    return (
        entry.name,
        mean_text(entry.clean) if entry.clean else "not played",
        mean_text(entry.noise) if entry.noise else "not played",
        mean_text(worst[1]) if worst else "not attacked yet",
        f"`{worst[0]}`" if worst else "none",
        f"{own}{f', {added} added' if added else ''}",
        digits(entry.certificate.lower) if entry.certificate else "none",
    )


def mean_text(figures: AttackedMean) -> str:
    """A mean with its interval, marked where that is none of 95%; without one where all returns are equal."""
    interval = "" if figures.low == figures.high else f"[{digits(figures.low)}, {digits(figures.high)}]"
    return f"{digits(figures.mean)} {marked(interval, {'caveat': figures.caveat})}".rstrip()


def digits(value: float) -> str:
    """A return by four digits, or all digits before the point."""
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def suites_of(data: Data) -> list[str]:
    """The worst case of the suite ``everything`` on every agent that it was played on."""
    rows = []
    for name, suite in data["suites"]["agents"].items():
        clean, figure = Figure(suite["clean"]["mean"]), Figure(**suite["figure"])
        rows.append([name, suite["budget"], clean, f"`{suite['worst']}`", figure])
    header = ["agent", "budget", "no attack", "worst case", "it leaves"]
    text = (
        "By `adv-wrappers suite ENV --victim AGENT --suite everything` with each agent's budget, adversaries trained "
        "for 500,000 steps on MuJoCo and 100,000 on dm_control; the worst case is played on fresh episodes. Beside "
        "the lowest row of an attack without training that these pages have of the agent at that budget, the suite is "
        "no better for 32 of 36 agents, the intervals overlap for 3, and for one, walker-stand, a planner in the "
        "simulator itself leaves less."
    )
    return ["## The suite everything", text, table(header, rows)]


def body(data: Data) -> list[str]:
    """The section."""
    link = (
        f"[One table of all of them]({STANDING_PAGE}) sorts and filters, with claims, trainings, times and licences. "
        "How agents are measured, and how yours joins: [the rules](../standing.rst)."
    )
    tables = environments_of(entries_of(data))
    return [*prose(__doc__, 3), link, *tables, *beside_authors(data), *suites_of(data)]


def draw(data: Data, folder: Path) -> None:
    """The table that sorts and filters, beside the page; in the documentation it lies in a folder of its own."""
    lent = 'An attack with the name of a page beside it, as in "beam, everything", was played for that page of results.'
    page = standing_page(entries_of(data), rules="../standing.html", notes=[lent])
    write(folder / STANDING_PAGE, page.decode())


PAGE = Page(
    "standing",
    "The standing of agents under attack",
    __doc__,
    measure,
    body,
    draw,
    page="standing",
    options={
        "--victims": {"type": Path, "help": "folder of cards"},
        "--work": {"type": Path, "help": "folder of the rows"},
        "--minutes-each": {"type": float, "default": 1.0, "help": "of wall clock an agent"},
        **AGAIN,
        "--added": {"action": "store_true", "help": "the attacks of ADDED, and nothing else"},
        "--images": {"action": "store_true", "help": "agents that see images, and no others"},
    },
)

if __name__ == "__main__":
    PAGE.main()
