"""Agents of a game under the six daylight transforms and Carlini-Wagner: at every step, and with a probability.

    python benchmarks/reproduce/daylight.py --victims FOLDER [--agent NAME ...]
    python benchmarks/reproduce/daylight.py --game BankHeist

evaluates them beside the paper's tables, as far as these concern the game: ``daylight.md`` is of Pong, and
``daylight_bankheist.md`` of BankHeist. The probability is the paper's. Agents are cards in FOLDER, or of the zoo
(``zoo:NAME``). Reports of a run that is under way lie in ``daylight/NAME``. Carlini-Wagner, targeted at the least
likely action, is capped at 3 values of c and 20 steps of Adam each; on BankHeist it attacks with the probability alone.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

from figures import kept, of_row, table
from page import AGAIN, VICTIMS, Data, Page, Results, episode_options

import adv_wrappers as adv
from adv_wrappers.daylight.games import (
    A3C_PONG_IMPACTS,
    A3C_PONG_SCORES,
    FRACTIONS,
    GENERAL_IMPACTS,
    IMPACTS,
    PERCEPTUAL,
    PROBABILITIES,
    SCORES,
    SETTINGS,
    TIMED_IMPACTS,
    TRANSFORMS,
)
from adv_wrappers.evaluation.return_range import described_lowest_return

AGENTS = {
    "Pong": ("davide-pong-ppo", "davide-pong-a2c", "zoo:pong-ppo"),
    "BankHeist": ("zoo:bankheist-ppo",),
}
CAP = "carlini-wagner:target=worst,searches=3,steps=20,step=0.1"
ENDLESS = ("BankHeist",)  # under Carlini-Wagner at every step two episodes of ten had ended after an hour of a core
QUALITIES = (20, 10, 5)  # of JPEG, beside the default of 30: the paper gives none
ATTACKS = (*TRANSFORMS, "carlini-wagner")
WITHSTOOD = 0.5  # an impact below which an agent is said to withstand what took at least 0.9 of the paper's


def threats(game: str) -> list[str]:
    """The texts of all runs beside the clean one and the agent that does its worst."""
    transforms = [f"daylight:game={game},transform={name}" for name in TRANSFORMS]
    timed = [f"{text},p={PROBABILITIES[game]}" for text in (*transforms, CAP)]
    always = transforms if game in ENDLESS else [*transforms, CAP]
    return always + timed + [f"jpeg:quality={quality}" for quality in QUALITIES]


def evaluate(game: str, agent: str, arguments: argparse.Namespace, episodes: int, seed: int) -> dict[str, Any]:
    """The rows of one agent, as JSON can hold them."""
    if agent.startswith("zoo:"):
        victim = adv.load_victim(agent)
    elif arguments.victims is None:
        raise SystemExit(f"{agent} is a card: say where with --victims FOLDER, or name agents by --agent zoo:NAME")
    else:
        victim = adv.load_victim(f"card:{arguments.victims / agent}")
    started = time.perf_counter()

    def tell(threat: str, finished: int, _: int) -> None:
        if finished in (0, episodes):
            print(f"{time.perf_counter() - started:6.0f} s  {agent}  {threat}  {finished} episodes", flush=True)

    report = adv.evaluate(
        victim,
        f"{game}NoFrameskip-v4",
        threats(game),
        episodes=episodes,
        seed=seed,
        num_envs=episodes,
        minimum="worst-action",
        progress=tell,
        out=arguments.out / "daylight" / agent.replace(":", "-"),
    ).to_dict()
    rows = [{k: v for k, v in kept(row).items() if k != "attacked_fractions"} for row in report["threats"]]
    return {
        "fingerprint": victim.fingerprint(),
        "select": victim.select,
        "minimum": report["minimum"],
        "env": report["env"],
        "versions": report["versions"],
        "warnings": report["warnings"],
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 1),
    }


def pick(rows: list[dict[str, Any]], attack: str, timed: bool = False) -> dict[str, Any] | None:
    """The row of an attack, at every step or with the paper's probability."""
    for row in rows:
        text = row["threat"]
        found = f"transform={attack}" in text or text.startswith(attack)
        if found and (",p=" in text) == timed:
            return row
    return None


def cell(value: float | None, digits: int = 3) -> str:
    """A number of a table; empty where nobody measured."""
    return "" if value is None else f"{value:.{digits}f}"


def setting(game: str, attack: str) -> str:
    """The paper's parameters in a game."""
    return ", ".join(f"{key} {value}" for key, value in SETTINGS[game].get(attack, {}).items())


def scores(game: str, agents: dict[str, Any], timed: bool) -> str:
    """Raw scores, one column an agent."""
    papers = ["paper, DDQN (T 8-13)", *(["paper, A3C (T 20)"] if game == "Pong" else [])]
    head = ["attack", "setting", *([] if timed else papers), *agents]
    rows = []
    for attack in ("none", "worst-action", *ATTACKS):
        if timed and attack in ("none", "worst-action"):
            continue
        paper = [] if timed else [cell(SCORES[game].get(attack), 1)]
        if game == "Pong" and not timed:
            paper.append(cell(A3C_PONG_SCORES.get(attack), 2))
        found = [pick(agent["rows"], attack, timed) for agent in agents.values()]
        rows.append(
            [attack, setting(game, attack), *paper, *("" if row is None else str(of_row(row)) for row in found)]
        )
    return table(head, rows)


def qualities(agents: dict[str, Any]) -> str:
    """Raw scores under other JPEG qualities than the default."""
    texts = [row["threat"] for row in next(iter(agents.values()))["rows"] if row["threat"].startswith("jpeg:")]
    rows = []
    for text in texts:
        found = [next((r for r in agent["rows"] if r["threat"] == text), None) for agent in agents.values()]
        rows.append([text, *("" if row is None else str(of_row(row)) for row in found)])
    return table(["threat", *agents], rows)


def impacts(game: str, agents: dict[str, Any]) -> str:
    """Impact (equation 2) and generalised impact (equation 4) at every step."""
    head = ["attack", "paper I", "paper I general", *(["A3C I general"] if game == "Pong" else [])]
    for name in agents:
        head += [f"{name} I", f"{name} I general"]
    rows = []
    for attack in ATTACKS:
        line = [attack, cell(IMPACTS[game][attack]), cell(GENERAL_IMPACTS[game][attack])]
        line += [cell(A3C_PONG_IMPACTS.get(attack))] if game == "Pong" else []
        for agent in agents.values():
            row = pick(agent["rows"], attack) or {}
            line += [cell(row.get("impact")), cell(row.get("general_impact"))]
        rows.append(line)
    return table(head, rows)


def timings(game: str, agents: dict[str, Any]) -> str:
    """Impact and attacked fraction with the paper's probability."""
    head = ["attack", "paper I (T 7)", "paper e_adv (T 21)"]
    for name in agents:
        head += [f"{name} I", f"{name} e_adv"]
    rows = []
    for attack in ATTACKS:
        line = [attack, cell(TIMED_IMPACTS[game][attack]), cell(FRACTIONS[game][attack])]
        for agent in agents.values():
            row = pick(agent["rows"], attack, True) or {}
            line += [cell(row.get("impact")), cell(row.get("e_adv"))]
        rows.append(line)
    return table(head, rows)


def distances(game: str, agents: dict[str, Any]) -> str:
    """How far the attacked stacks are from the true ones."""
    head = ["attack", "paper LPIPS"]
    for name in agents:
        head += [f"{name} l2", "linf", "SSIM", "PSNR"]
    rows = []
    for attack in ATTACKS:
        line = [attack, cell(PERCEPTUAL[game][attack])]
        for agent in agents.values():
            row = pick(agent["rows"], attack) or {}
            more = row.get("distances", {})
            line += [cell(row.get("l2"), 0), cell(row.get("linf"), 0)]
            line += [cell(more.get("ssim")), cell(more.get("psnr"), 1)]
        rows.append(line)
    return table(head, rows)


def withstood(game: str, agents: dict[str, Any]) -> list[str]:
    """Sentences on what took nearly everything from the paper's agent and less than half from one of ours."""
    found = []
    for name, agent in agents.items():
        for attack in ATTACKS:
            row, paper = pick(agent["rows"], attack), GENERAL_IMPACTS[game][attack]
            if row is not None and row["general_impact"] < WITHSTOOD and paper >= 0.9:
                found.append(
                    f"- **{name} withstands {attack}** ({setting(game, attack) or 'default quality'}): "
                    f"{of_row(row)}, generalised impact {row['general_impact']:.3f} where the paper has {paper:.3f}."
                )
    return found


def body(data: Data, game: str) -> list[str]:
    """The page of a game after its head."""
    probability = PROBABILITIES[game]
    agents = data["agents"]
    first = next(iter(agents.values()))
    minima = [
        f"- {name}: acts by {a['select']}, minimum = {a['minimum']['kind']} ({a['minimum']['value']:.1f}), "
        f"{a['seconds'] / 60:.0f} minutes"
        for name, a in agents.items()
    ]
    warned = [f"- {name}: {text}" for name, agent in agents.items() for text in agent["warnings"]]
    if all(pick(agent["rows"], "carlini-wagner") is None for agent in agents.values()):
        warned.append(
            "- Carlini-Wagner at every step has no row: after an hour of a processor two of ten episodes had ended, "
            "since an agent that wanders loses no lives."
        )
    theirs = "The paper's agent is a DDQN; ours are others"
    if game == "Pong":
        theirs = "The paper's agents are a DDQN (tables 1-19 and 21) and an A3C (table 20); ours are others"
    parts = [
        f"{first['episodes']} episodes of {game}NoFrameskip-v4 a run, the same ones for every run of an agent; mean "
        "return +- standard deviation, with a 95% interval. Transforms act on every frame of the uint8 stack "
        f"of 84x84 frames, with the paper's settings for {game}; what the paper leaves open is the library's default: "
        f"border replicated, bilinear, JPEG quality 30, the corners of the upper side move. Carlini-Wagner is "
        f"`{data['cap']}`: its iterations are capped. {theirs}, so the comparison is one of orders of magnitude.",
        "Impact (equation 2) counts from the agent that does its worst in every state; generalised impact (equation 4) "
        f"from {described_lowest_return({'id': f'{game}NoFrameskip-v4', 'kwargs': {}}):g}:\n\n" + "\n".join(minima),
        "## Raw scores, attacked at every step\n\n" + scores(game, agents, False),
        "## Impacts, attacked at every step (tables 1-6, 14-19, 20)\n\n" + impacts(game, agents),
        f"## Attacked with probability {probability} (tables 7 and 21)\n\n" + timings(game, agents),
        f"Raw scores with probability {probability}:\n\n" + scores(game, agents, True),
        "## The quality of compression\n\nThe paper does not say which quality of JPEG it took. At lower ones than the "
        "default of 30:\n\n" + qualities(agents),
        "## Distances of the attacked stacks\n\nMeans over attacked steps. LPIPS needs a trained backbone, which is "
        "not shipped (see the page on evaluation), so that column has the paper's figures alone.\n\n"
        + distances(game, agents),
    ]
    lines = withstood(game, agents)
    parts.append("## What an agent withstands\n\n" + ("\n".join(lines) if lines else "Nothing that broke the paper's."))
    if warned:
        parts.append("## Warnings of the evaluations\n\n" + "\n".join(warned))
    return parts


def measure(results: Results, game: str) -> None:
    """Evaluate the agents that are missing."""
    given, agents = results.given, results.part("agents")
    results.data["cap"] = CAP
    for agent in given.agent or AGENTS[game]:
        results.once(agents, agent, evaluate, game, agent, given, episodes=given.episodes, seed=given.seed)


def page_of(game: str) -> Page:
    """The page of a game."""
    return Page(
        "daylight" if game == "Pong" else f"daylight_{game.lower()}",
        f"Daylight: {game} agents in another light",
        __doc__,
        functools.partial(measure, game=game),
        functools.partial(body, game=game),
        options={
            "--game": {"choices": AGENTS, "default": "Pong"},
            **VICTIMS,
            **episode_options(10),
            **AGAIN,
            "--agent": {"action": "append", "help": f"the default: {AGENTS}"},
        },
        releases=["ale-py"],
    )


PAGES = {game: page_of(game) for game in AGENTS}


def main() -> None:
    """Choose the page by its game."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--game", choices=AGENTS, default="Pong")
    PAGES[parser.parse_known_args()[0].game].main()


if __name__ == "__main__":
    main()
