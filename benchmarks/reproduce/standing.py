"""The standing: agents by what the strongest attack leaves them, at one budget an environment.

    python benchmarks/reproduce/standing.py --work FOLDER --victims FOLDER

measures the agents of the zoo, of ``--victims`` and of the folders of cards in ``CARDS``, those of states first, and
goes on after an interruption. Images are played with ``--images`` alone: an Atari agent takes minutes an attack.

All attacks on an agent are played on the same episodes, and it counts for the lowest mean, so that another attack can
only lower it. Noise alone is a baseline: an agent under which no attack fitted is "not attacked yet", and stands last.
The intervals of 95% are those of each attack's own mean and not corrected for that choice. Attacks that did not fit
into the time of an agent (``--minutes-each``) are counted as left out: such a row may still fall. An attack with the
name of a page beside it, as in "pa-ad, defences", is lent by that page: of its own episodes, and not among those
played. Seconds of attack are those of playing; the search of `beam` before it is not counted. "Certified" is a lower
bound of the mean under every attack, proved in about a second an episode: a low one says that the search was short, and
`certificates.md` has longer ones. An agent `zoo-NAME` is one of RL Baselines3 Zoo; `zoo:NAME` of this package is called
NAME. "Trained with" is what the training record of the card says, and is not checked.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from defences import TASKS
from hardened import ENVS
from page import AGAIN, RESULTS, Data, Page, Results, load, prose, write

from adv_wrappers.errors import AdvWrappersError
from adv_wrappers.evaluation.return_statistics import caveat, mean_interval
from adv_wrappers.standing.budget_table import StandingBudget, budget_of_environment
from adv_wrappers.standing.measure_submission import Submission, add_submission
from adv_wrappers.standing.standing_entry import ENTRY_FILE, AttackedMean, StandingEntry, ranked, read_entries
from adv_wrappers.standing.standing_page import STANDING_PAGE, standing_page
from adv_wrappers.standing.standing_table import standing_table
from adv_wrappers.victims import environment_of, load_victim
from adv_wrappers.victims.victim_references import zoo_names

CARDS = ("benchmarks/reproduce/hardened/*", "benchmarks/reproduce/rarl/*", "benchmarks/reproduce/defences/*")
LENDING = {  # pages with attacks that take hours, and what their budget is in an environment
    "hardened": {id: StandingBudget(eps, "victim", "").arguments for id, eps in ENVS.values()},
    "defences": {id: StandingBudget(task.eps, task.scale, "").arguments for id, task in TASKS.items()},
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
    keys = [key for key in published if key in ("heuristic", "evasion", "strongest_attack")]
    if not keys:
        return ""
    eps = (card.get("attack") or {}).get("eps")
    return f"{', '.join(f'{key} {published[key]:g}' for key in keys)} at {eps} ({published.get('source', '')})"


def elsewhere(entry: StandingEntry) -> dict[str, AttackedMean]:
    """What other pages have of an agent of the same name, environment and budget: attacks that take hours, by name."""
    name, budget = entry.name, budget_of_environment(entry.env_id)
    found = dict[str, AttackedMean]()
    suites = load(RESULTS / "everything.json").get("agents", {})
    suite = suites.get(f"zoo:{name}", suites.get(name))
    if suite is not None and budget is not None and suite["budget"] == budget.arguments:
        figure = suite["figure"]
        mean, low, high, count = (figure[key] for key in ("mean", "low", "high", "episodes"))
        worst = AttackedMean(suite["worst"], mean, low, high, known_caveat(figure), 0.0, episodes=count)
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
                lent = AttackedMean(attack, row["mean_return"], low, high, why, 0.0, episodes=count)
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
    for name, ref in agents_of(given.victims).items():
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


def entries_of(data: Data) -> list[StandingEntry]:
    """The entries with what other pages have of their agents, in their order."""
    entries = [StandingEntry.from_dict(one) for one in data["entries"]]
    return ranked([replace(entry, elsewhere=elsewhere(entry)) for entry in entries])


def body(data: Data) -> list[str]:
    """The page."""
    link = f"[One table of all of them]({STANDING_PAGE}) sorts and filters."
    return [*prose(__doc__, 3), link, *standing_table(entries_of(data))]


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
    options={
        "--victims": {"type": Path, "help": "folder of cards"},
        "--work": {"type": Path, "help": "folder of the rows"},
        "--minutes-each": {"type": float, "default": 1.0, "help": "of wall clock an agent"},
        **AGAIN,
        "--images": {"action": "store_true", "help": "agents that see images, and no others"},
    },
)

if __name__ == "__main__":
    PAGE.main()
