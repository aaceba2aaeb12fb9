"""Pong agents under the six daylight transforms and Carlini-Wagner, at every step and with probability 0.06.

    python benchmarks/reproduce/daylight.py --victims FOLDER [--agent NAME ...]

writes ``daylight.json`` after every agent, and ``daylight.md`` beside the paper's tables as far as they concern Pong.
Agents are cards in FOLDER, or of the zoo (``zoo:NAME``). Reports of a run that is under way lie in ``daylight/NAME``.
Carlini-Wagner, targeted at the least likely action, is capped at 3 values of c and 20 steps of Adam each.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from daylight_page import TRANSFORMS, markdown
from figures import command, done, kept, load, machine, of_row, options, save, write

import adv_wrappers as adv
from adv_wrappers.daylight.paper_tables import PROBABILITIES

AGENTS = ("davide-pong-ppo", "davide-pong-a2c", "zoo:pong-ppo")
CAP = "carlini-wagner:target=worst,searches=3,steps=20,step=0.1"
GAME = "PongNoFrameskip-v4"
QUALITIES = (20, 10, 5)  # of JPEG, beside the default of 30: the paper gives none


def threats() -> list[str]:
    """The texts of all runs beside the clean one and the agent that does its worst."""
    always = [f"daylight:game=Pong,transform={name}" for name in TRANSFORMS] + [CAP]
    timed = [f"{text},p={PROBABILITIES['Pong']}" for text in always]
    return always + timed + [f"jpeg:quality={quality}" for quality in QUALITIES]


def evaluate(agent: str, victims: Path, out: Path, episodes: int, seed: int) -> dict[str, Any]:
    """The rows of one agent, as JSON can hold them."""
    victim = adv.load_victim(agent if agent.startswith("zoo:") else f"card:{victims / agent}")
    started = time.perf_counter()

    def tell(threat: str, finished: int, _: int) -> None:
        if finished in (0, episodes):
            print(f"{time.perf_counter() - started:6.0f} s  {agent}  {threat}  {finished} episodes", flush=True)

    report = adv.evaluate(
        victim, GAME, threats(), episodes=episodes, seed=seed, num_envs=episodes, minimum="worst-action",
        progress=tell, out=out / "daylight" / agent.replace(":", "-"),
    ).to_dict()  # fmt: skip
    rows = [{k: v for k, v in kept(row).items() if k != "attacked_fractions"} for row in report["threats"]]
    return {
        "episodes": episodes, "seed": seed, "fingerprint": victim.fingerprint(), "select": victim.select,
        "minimum": report["minimum"], "env": report["env"], "versions": report["versions"],
        "warnings": report["warnings"], "rows": rows, "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def main() -> None:
    """Evaluate what is missing, then write the page."""
    parser = options(__doc__, episodes=10)
    parser.add_argument("--agent", action="append", help=f"of {', '.join(AGENTS)} (the default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="gymnasium")
    line = command(sys.argv[1:])
    path = arguments.out / "daylight.json"
    for agent in arguments.agent or AGENTS:
        if done(load(path).get("agents", {}).get(agent), arguments):
            continue
        result = evaluate(agent, arguments.victims, arguments.out, arguments.episodes, arguments.seed)
        agents = {**load(path).get("agents", {}), agent: result}  # read again: another agent may have come meanwhile
        agents = {name: agents[name] for name in (*AGENTS, *agents) if name in agents}
        save(path, {"command": line, "machine": machine(), "cap": CAP, "agents": agents})
        for row in result["rows"]:
            impact = row["impact"] if row["impact"] is not None else math.nan
            print(f"{agent:18} {row['threat']:70} {of_row(row)!s:36} {impact:6.3f}", flush=True)
    write(arguments.out / "daylight.md", markdown(load(path)))
    print(f"wrote {arguments.out / 'daylight.md'}")


if __name__ == "__main__":
    main()
