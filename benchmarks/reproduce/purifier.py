"""Purified observations: what two denoisers give back of an agent's return, by what an attacker knows of them.

    python benchmarks/reproduce/purifier.py --work FOLDER

`plain` reconstructs an observation from itself alone; `diffusion` is a diffusion model that is conditioned on the last
four reconstructions and the last action, after DMBP (Yang and Xu, ICLR 2024), whose agents learn offline, so that no
figure of it stands here. Each was trained for the budget of the attacks on the agent's own episodes. `unaware` attacks
the agent alone, as in the paper; `bpda` takes the identity for the denoiser's gradient; `exact` takes the gradient
through it, and `other draws` does so without knowing the noise of the reverse steps, averaging over 8 draws; `square`
needs no gradient, and asks 50 times a step. A defence is worth what the strongest row leaves of it: on CartPole neither
gives much back, and the gradients of `diffusion` mislead.
"""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, prose

import adv_wrappers as adv
from adv_wrappers.core.engine.context import Context
from adv_wrappers.training.models.denoiser import train_denoiser

CASES: dict[str, dict[str, Any]] = {
    "zoo:cartpole-dqn": {"env": "CartPole-v1", "eps": 0.1, "scale": None, "seeds": (3, 1), "episodes": 20},
    "zoo:hopper-ppo": {"env": "Hopper-v5", "eps": 0.075, "scale": "victim", "seeds": (1, 1), "episodes": 10},
}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "plain", "updates": 4000},
    "diffusion": {"kind": "diffusion", "levels": 4, "updates": 4000},
}
QUERIES = "queries=50"
UNAWARE = ("pgd, unaware", "max-diff, unaware")
ADAPTIVE = (
    "pgd, bpda", "max-diff, bpda", "pgd, exact", "max-diff, exact", "pgd, other draws", "max-diff, other draws",
    "square",
)  # fmt: skip
BEYOND, BEYOND_ON = ("constant", "sa-rl"), ("zoo:cartpole-dqn",)
SIGNS = ("gradient masking", "is weaker than noise", "no stronger than noise")


def attacks_of(case: dict[str, Any]) -> tuple[str, ...]:
    """The gradient attacks on an agent; pgd is for discrete actions."""
    return ("pgd", "max-diff") if case["env"] == "CartPole-v1" else ("max-diff",)


def threats_of(ref: str, text: str, case: dict[str, Any], kind: str) -> dict[str, str]:
    """The texts of the attacks by their names; ``text`` is the reference of the purified agent."""
    size = f"eps={case['eps']}" + (f",scale={case['scale']}" if case["scale"] else "")
    first = attacks_of(case)[0]
    found = {"noise": f"noise:{size}"}
    for attack in attacks_of(case):
        found |= {f"{attack}, unaware": f"{attack}:{size},victim={ref}", f"{attack}, exact": f"{attack}:{size}"}
    found |= {f"{first}, bpda": f"{first}:{size},victim={text}&gradient=bpda", "square": f"square:{size},{QUERIES}"}
    if kind == "diffusion":
        found[f"{first}, other draws"] = f"{first}:{size},victim={text}&draws=8&seed=1"
    return found


def alone(ref: str, episodes: int) -> dict[str, Any]:
    """The agent without a denoiser, under the same attacks."""
    case = CASES[ref]
    size = f"eps={case['eps']}" + (f",scale={case['scale']}" if case["scale"] else "")
    texts = {"noise": "noise", **{f"{attack}, exact": attack for attack in attacks_of(case)}, "square": "square"}
    threats = [f"{text}:{size}" + (f",{QUERIES}" if text == "square" else "") for text in texts.values()]
    report = adv.evaluate(ref, case["env"], threats, episodes=episodes, num_envs=episodes)
    return {"rows": {name: kept(row) for name, row in zip(["none", *texts], report.threats, strict=True)}}


def purified(ref: str, name: str, work: Path, episodes: int, seed: int) -> dict[str, Any]:
    """An agent behind a denoiser of a seed: the rows of all attacks, and what the report warns of."""
    case, folder = CASES[ref], folder_of(work, ref, name, seed)
    began = time.process_time()
    denoiser = train_denoiser(ref, case["env"], case["eps"], case["scale"], seed=seed, out=folder, **KINDS[name])
    trained = time.process_time() - began
    text = f"purified:{ref}?denoiser={folder}"
    threats = threats_of(ref, text, case, name)
    report = adv.evaluate(text, case["env"], [*threats.values()], episodes=episodes, num_envs=episodes)
    rows = {}
    for key, row in zip(["none", *threats], report.threats, strict=True):
        rows[key] = {**kept(row), "threat": row["threat"].replace(str(folder), "FOLDER")}
    told = {value: key for key, value in threats.items()}
    signs = [warning for warning in report.warnings if any(sign in warning for sign in SIGNS)]
    for value in sorted(told, key=len, reverse=True):
        signs = [sign.replace(value, f"`{told[value]}`") for sign in signs]
    return {"errors": denoiser.card["errors"], "rows": rows, "signs": signs, "seconds": trained}


def folder_of(work: Path, ref: str, name: str, seed: int) -> Path:
    """The folder of a denoiser."""
    return work / f"{ref.removeprefix('zoo:')}-{name}-{seed}"


def constant(corner: tuple[float, ...]) -> adv.ThreatModel:
    """The same move at every step, to a corner of CartPole's budget."""

    def moved(x: torch.Tensor, context: Context) -> torch.Tensor:
        return x + torch.tensor(corner, dtype=x.dtype)  # farther than the budget, which the engine projects onto

    return adv.ThreatModel("observation", moved, adv.Linf(CASES["zoo:cartpole-dqn"]["eps"]))


def beyond_one_step(ref: str, name: str, work: Path, episodes: int, steps: int) -> dict[str, Any]:
    """Attacks that a memory does not outlast: the strongest constant move of 16, and SA-RL; each chosen elsewhere."""
    case = CASES[ref]
    victim = ref
    if name != "alone":
        victim = f"purified:{ref}?denoiser={folder_of(work, ref, name, 0)}"
    corners = [constant(corner) for corner in itertools.product((-1.0, 1.0), repeat=4)]
    tried = adv.evaluate(victim, case["env"], corners, episodes=10, num_envs=10, seed=1).threats[1:]
    chosen = corners[min(range(len(corners)), key=lambda i: float(tried[i]["mean_return"]))]
    learned = adv.train_adversary("sa-rl", case["env"], victim, case["eps"], steps=steps, checks=4, episodes=10)
    scored = adv.evaluate(victim, case["env"], [chosen, learned], episodes=episodes, num_envs=episodes)
    rows = dict(zip(BEYOND, scored.threats[1:], strict=True))
    return {"rows": {key: {**kept(row), "threat": key} for key, row in rows.items()}}


def measure(results: Results) -> None:
    """Train and evaluate what is missing."""
    given = results.given
    for ref, case in CASES.items():
        if given.only in (None, ref):
            agent = results.part("agents", ref)
            results.once(agent, "alone", alone, ref, episodes=case["episodes"])
            for name, seeds in zip(KINDS, case["seeds"], strict=True):
                for seed in range(seeds):
                    part = {"episodes": case["episodes"], "seed": seed}
                    results.once(agent, f"{name}-{seed}", purified, ref, name, given.work, **part)
            for name in ("alone", *KINDS) if ref in BEYOND_ON else ():
                how = {"episodes": case["episodes"], "steps": 40_000}
                results.once(results.part("beyond", ref), name, beyond_one_step, ref, name, given.work, **how)


def told(rows: list[dict[str, Any]], name: str) -> str:
    """The return under one attack: with its interval, or the means of several seeds."""
    found = [row["rows"][name] for row in rows if name in row["rows"]]
    if not found:
        return "-"
    if len(found) == 1:
        return str(brief(found[0]))
    means = [row["mean_return"] for row in found]
    return f"{statistics.fmean(means):.0f} ({', '.join(f'{mean:.0f}' for mean in means)})"


def least(row: dict[str, Any], names: tuple[str, ...]) -> float:
    """What the strongest of some attacks leaves."""
    return min(float(row["rows"][name]["mean_return"]) for name in names if name in row["rows"])


def section(ref: str, agent: Data, beyond: Data) -> str:
    """One agent."""
    case = CASES[ref]
    parts = {"alone": [agent["alone"]]}
    for name in KINDS:
        parts[name] = [row for key, row in agent.items() if key.rpartition("-")[0] == name]
    parts = {name: rows for name, rows in parts.items() if rows}
    names = ["none", "noise", *UNAWARE, *ADAPTIVE]
    lines = [[name, *(told(rows, name) for rows in parts.values())] for name in names]
    lines = [line for line in lines if any(cell != "-" for cell in line[1:])]
    unit = " of the agent's standard deviations" if case["scale"] else ""
    text = [
        f"## {ref.removeprefix('zoo:')}, {case['env']}, eps {case['eps']:g}{unit}",
        f"Mean return over {case['episodes']} episodes; in parentheses that of each seed of a denoiser.",
        table(["attack", "no denoiser", *(name for name in parts if name != "alone")], lines),
    ]
    if beyond:
        lines = [[name, *(brief(row["rows"][name]) for row in beyond.values())] for name in BEYOND]
        text.append(
            "Attacks that look beyond a step, on denoisers of seed 0: `constant` moves every feature the same way at "
            "every step, to the corner of the budget that left least of 16 on ten other episodes; `sa-rl` learned for "
            "40,000 steps against the agent as it acts."
        )
        text.append(table(["attack", "no denoiser", *(name for name in beyond if name != "alone")], lines))
    return "\n\n".join(text)


def body(data: Data) -> list[str]:
    """The page after its head."""
    beyond = data.get("beyond", {})
    return [*prose(__doc__), *(section(ref, agent, beyond.get(ref, {})) for ref, agent in data["agents"].items())]


PAGE = Page(
    "purifier",
    "Purified observations",
    __doc__,
    measure,
    body,
    page="defences",
    options={
        **WORK,
        "--only": {"choices": [*CASES], "help": "one agent; what is there of others stays"},
        **AGAIN,
    },
    needs=["--work"],
    partly=["--only"],
    releases=["mujoco"],
)

if __name__ == "__main__":
    PAGE.main()
