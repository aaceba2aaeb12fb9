"""PA-AD against gradient attacks on Pong, below one grey level (Table 1 of Sun et al. 2022).

    python benchmarks/reproduce/pa_ad_pong.py --victims FOLDER --work FOLDER

The card's A2C agent, which samples, and the zoo's PPO agent, which does not, at the paper's eps of 0.0005 (in [0, 1]
pixels; 0.1275 of a grey level, so observations are handed out as floats).
"""

from __future__ import annotations

import argparse
from typing import Any

from figures import kept, of_row, table
from page import AGAIN, VICTIMS, WORK, Data, Page, Results, episode_options, load

import adv_wrappers as adv

EPS = 0.0005
VICTIM_REFS = {"davide-pong-a2c": "card:{}/davide-pong-a2c", "zoo:pong-ppo": "zoo:pong-ppo"}
PAPER = {"none": "20 +- 1", "noise-sign": "20 +- 1", "noise": "", "min-best": "-4 +- 8", "momentum": "-11 +- 7",
         "max-diff": "18 +- 3", "pa-ad": "-13 +- 6"}  # fmt: skip
NAMES = {"noise-sign": "noise, sign", "noise": "noise, uniform"}
ENV = "PongNoFrameskip-v4"


def attack(name: str, old: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """One victim under every attack that an earlier run has not left; PA-AD's actor takes one step, as the paper's."""
    victim = adv.load_victim(VICTIM_REFS[name].format(arguments.victims))
    within, folder = adv.Linf(255 * EPS), arguments.work / name.replace(":", "-")
    hows: dict[str, Any] = {
        "noise-sign": adv.Noise("sign"),
        "noise": adv.Noise(),
        "min-best": adv.MinBest(victim),
        "momentum": adv.Momentum(victim),
        "max-diff": adv.MaxDiff(victim),
        "pa-ad": None,
    }
    hows = {key: how for key, how in hows.items() if key not in old.get("rows", {})}

    def tell(steps: int, left: float) -> None:
        print(f"{name} {steps} {left:.1f}", flush=True)

    record = old.get("record")
    if "pa-ad" in hows:
        hows["pa-ad"] = adv.train_adversary(
            adv.PAAD(victim, form="direction", steps=1, step=1.0),
            ENV,
            victim,
            steps=arguments.steps,
            within=within,
            quantize=False,
            checks=arguments.checks,
            episodes=4,
            out=folder,
            progress=tell,
            num_envs=8,
        )
        record = load(folder / "state.json")["record"]
    threats = [adv.ThreatModel("observation", how, within) for how in hows.values()]
    report = adv.evaluate(
        victim, ENV, threats, arguments.episodes, arguments.seed, num_envs=8, quantize=False
    ).to_dict()
    rows = {key: kept(row) for key, row in zip(("none", *hows), report["threats"], strict=True)}
    return {"rows": {**old.get("rows", {}), **rows}, "record": record, "select": victim.select}


def body(data: Data) -> list[str]:
    """The page after its head."""
    lines = [["paper, A2C", *PAPER.values()]]
    notes = []
    for name, result in data["victims"].items():
        lines.append([name, *(str(of_row(result["rows"][key])) if key in result["rows"] else "" for key in PAPER)])
        minutes = result["record"][-1]["seconds"] / result["record"][-1]["steps"] * 1e6 / 60
        notes.append(
            f"- {name}: the best of {len(result['record'])} checkpoints, over 4 episodes each, of "
            f"{result['record'][-1]['steps'] // 1000}k steps; {minutes:.0f} minutes of one processor per million steps."
        )
    parts = [
        f"eps {EPS} of [0, 1] pixels, observations as floats. The paper's random attacker (appendix E.1.1) is noise by "
        "sign.",
        table(["victim", *(NAMES.get(key, key) for key in PAPER)], lines),
        "\n".join(notes),
    ]
    return parts


def measure(results: Results) -> None:
    """Train and evaluate what is missing."""
    given, victims = results.given, results.part("victims")
    for name in given.only:
        old = {} if given.again else victims.get(name, {})
        if {*PAPER} - {*old.get("rows", {})}:
            victims[name] = attack(name, old, given)
            results.keep()
            print(name, {key: str(of_row(row)) for key, row in victims[name]["rows"].items()}, flush=True)


PAGE = Page(
    "pa_ad_pong",
    "PA-AD on Pong, below one grey level",
    __doc__,
    measure,
    body,
    page="pa_ad",
    options={
        **VICTIMS,
        **WORK,
        **episode_options(10),
        **AGAIN,
        "--steps": {"type": int, "default": 200_000},
        "--checks": {"type": int, "default": 5},
        "--only": {"nargs": "+", "choices": VICTIM_REFS, "default": list(VICTIM_REFS)},
    },
    needs=["--victims", "--work"],
)


if __name__ == "__main__":
    PAGE.main()
