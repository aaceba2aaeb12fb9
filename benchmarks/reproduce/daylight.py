"""Agents of a game under the six daylight transforms and Carlini-Wagner: at every step, and with a probability.

    python benchmarks/reproduce/daylight.py --victims FOLDER [--agent NAME ...]
    python benchmarks/reproduce/daylight.py --game BankHeist

writes ``daylight.json`` after every agent, and ``daylight.md`` beside the paper's tables as far as they concern Pong;
of BankHeist ``daylight_bankheist.json`` and ``daylight_bankheist.md``. The probability is the paper's. Agents are cards
in FOLDER, or of the zoo (``zoo:NAME``). Reports of a run that is under way lie in ``daylight/NAME``. Carlini-Wagner,
targeted at the least likely action, is capped at 3 values of c and 20 steps of Adam each; on BankHeist it attacks with
the probability alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from typing import Any

import torch
from daylight_page import TRANSFORMS, markdown
from figures import command, done, kept, load, machine, of_row, options, save, write

import adv_wrappers as adv
from adv_wrappers.daylight.paper_tables import PROBABILITIES

AGENTS = {
    "Pong": ("davide-pong-ppo", "davide-pong-a2c", "zoo:pong-ppo"),
    "BankHeist": ("zoo:bankheist-ppo",),
}
CAP = "carlini-wagner:target=worst,searches=3,steps=20,step=0.1"
ENDLESS = ("BankHeist",)  # under Carlini-Wagner at every step two episodes of ten had ended after an hour of a core
QUALITIES = (20, 10, 5)  # of JPEG, beside the default of 30: the paper gives none


def threats(game: str) -> list[str]:
    """The texts of all runs beside the clean one and the agent that does its worst."""
    transforms = [f"daylight:game={game},transform={name}" for name in TRANSFORMS]
    timed = [f"{text},p={PROBABILITIES[game]}" for text in (*transforms, CAP)]
    always = transforms if game in ENDLESS else [*transforms, CAP]
    return always + timed + [f"jpeg:quality={quality}" for quality in QUALITIES]


def evaluate(game: str, agent: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The rows of one agent, as JSON can hold them."""
    if agent.startswith("zoo:"):
        victim = adv.load_victim(agent)
    elif arguments.victims is None:
        raise SystemExit(f"{agent} is a card: say where with --victims FOLDER, or name agents by --agent zoo:NAME")
    else:
        victim = adv.load_victim(f"card:{arguments.victims / agent}")
    episodes, seed = arguments.episodes, arguments.seed
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
        "episodes": episodes,
        "seed": seed,
        "fingerprint": victim.fingerprint(),
        "select": victim.select,
        "minimum": report["minimum"],
        "env": report["env"],
        "versions": report["versions"],
        "warnings": report["warnings"],
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> None:
    """Evaluate what is missing, then write the page."""
    parser = options(__doc__, episodes=10, victims=False)
    parser.add_argument("--game", choices=AGENTS, default="Pong")
    parser.add_argument("--agent", action="append", help=f"the default: {AGENTS}")
    arguments = parser.parse_args()
    game = arguments.game
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="gymnasium")
    line = command(sys.argv[1:])
    path = arguments.out / ("daylight.json" if game == "Pong" else f"daylight_{game.lower()}.json")
    for agent in arguments.agent or AGENTS[game]:
        if done(load(path).get("agents", {}).get(agent), arguments):
            continue
        result = evaluate(game, agent, arguments)
        agents = {**load(path).get("agents", {}), agent: result}  # read again: another agent may have come meanwhile
        agents = {name: agents[name] for name in (*AGENTS[game], *agents) if name in agents}
        save(path, {"command": line, "machine": machine(), "cap": CAP, "agents": agents})
        for row in result["rows"]:
            impact = row["impact"] if row["impact"] is not None else math.nan
            print(f"{agent:18} {row['threat']:70} {of_row(row)!s:36} {impact:6.3f}", flush=True)
    page = path.with_suffix(".md")
    write(page, markdown(game, load(path)))
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
