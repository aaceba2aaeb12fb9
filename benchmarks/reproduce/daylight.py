"""Agents of a game under the six daylight transforms and Carlini-Wagner: at every step, and with a probability.

    python benchmarks/reproduce/daylight.py --victims FOLDER [--agent NAME ...]
    python benchmarks/reproduce/daylight.py --game BankHeist

evaluates them beside the paper's tables, as far as these concern the game. Agents are cards in FOLDER, or of the zoo
(``zoo:NAME``). Reports of a run that is under way lie in ``daylight/NAME``. Carlini-Wagner, targeted at the least
likely action, is capped at 3 values of c and 20 steps of Adam each; on BankHeist it attacks with the probability alone.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

from figures import brief, kept, table
from page import AGAIN, VICTIMS, Data, Page, Results, episode_options

import adv_wrappers as adv
from adv_wrappers.daylight.games import (
    A3C_PONG_IMPACTS,
    A3C_PONG_SCORES,
    FRACTIONS,
    IMPACTS,
    PROBABILITIES,
    SCORES,
    SETTINGS,
    TIMED_IMPACTS,
    TRANSFORMS,
)

AGENTS = {
    "Pong": ("davide-pong-ppo", "davide-pong-a2c", "zoo:pong-ppo"),
    "BankHeist": ("zoo:bankheist-ppo",),
}
CAP = "carlini-wagner:target=worst,searches=3,steps=20,step=0.1"
ENDLESS = ("BankHeist",)  # under Carlini-Wagner at every step two episodes of ten had ended after an hour of a core
QUALITIES = (20, 10, 5)  # of JPEG, beside the default of 30: the paper gives none
ATTACKS = (*TRANSFORMS, "carlini-wagner")


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


def scores(game: str, agents: dict[str, Any]) -> str:
    """Raw scores and impacts at every step, beside the paper's."""
    pong = game == "Pong"
    head = ["attack", "setting", "paper, DDQN: score; I", *(["paper, A3C: score; I"] if pong else [])]
    rows = []
    for attack in ("none", "worst-action", *ATTACKS):
        papers = [f"{cell(SCORES[game].get(attack), 1)}; {cell(IMPACTS[game].get(attack))}"]
        if pong:
            papers.append(f"{cell(A3C_PONG_SCORES.get(attack), 2)}; {cell(A3C_PONG_IMPACTS.get(attack))}")
        line = [attack, setting(game, attack), *("" if text == "; " else text for text in papers)]
        for row in (pick(agent["rows"], attack, False) for agent in agents.values()):
            text = "" if row is None else brief(row)
            line.append(f"{text}; {cell(row['impact'])}" if row and attack in ATTACKS else text)
        rows.append(line)
    return table([*head, *(f"{name}: score; I" for name in agents)], rows)


def qualities(agents: dict[str, Any]) -> str:
    """Raw scores under other JPEG qualities than the default."""
    texts = [row["threat"] for row in next(iter(agents.values()))["rows"] if row["threat"].startswith("jpeg:")]
    rows = []
    for text in texts:
        found = [next((r for r in agent["rows"] if r["threat"] == text), None) for agent in agents.values()]
        rows.append([text, *("" if row is None else brief(row) for row in found)])
    return table(["threat", *agents], rows)


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


def body(data: Data, game: str) -> list[str]:
    """The section of a game after its head."""
    probability, agents = PROBABILITIES[game], data["agents"]
    first = next(iter(agents.values()))
    parts = [
        f"{first['episodes']} episodes of {game}NoFrameskip-v4, the same ones for every run of an agent; mean return "
        "with its 95% interval, and impact I (equation 2), from the agent that does its worst in every state; the "
        "generalised impact (equation 4) is the same, as that agent gets the least score. Transforms act on every "
        f"frame of the uint8 stack of 84x84 frames, with the paper's settings for {game}; what it leaves open is the "
        "library's default: border replicated, bilinear, JPEG quality 30, the corners of the upper side move. "
        f"Carlini-Wagner is `{data['cap']}`, its iterations capped. The paper's agents are others, so the comparison "
        "is one of orders of magnitude.",
        scores(game, agents),
        f"Attacked with probability {probability} (tables 7 and 21):",
        timings(game, agents),
        "At lower qualities of JPEG, which the paper does not give, than the default of 30:",
        qualities(agents),
    ]
    if all(pick(agent["rows"], "carlini-wagner") is None for agent in agents.values()):
        parts.append(
            "Carlini-Wagner at every step has no row: after an hour of a processor two of ten episodes had ended, "
            "since an agent that wanders loses no lives."
        )
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
        f"Agents of {game}",
        __doc__,
        functools.partial(measure, game=game),
        functools.partial(body, game=game),
        page="daylight",
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
