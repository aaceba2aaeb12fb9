"""PPO, ATLA and PA-ATLA on Hopper, each under every attack, in the shape of Table 6 of Sun et al. 2022.

    python benchmarks/reproduce/atla.py --work FOLDER

trains the agents that are missing in the work folder, then for each the critics and adversaries that attack it, and
plays 50 episodes under each attack. ``--only`` picks agents, ``--seeds`` trains several of each.
"""

from __future__ import annotations

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from figures import kept, table
from page import WORK, Data, Page, Results, episode_options, load, save

import adv_wrappers as adv
from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import Hardened, train_agent
from adv_wrappers.training.critic import SMALL, scan_critics

ENV, EPS = "Hopper-v5", 0.075
COLUMNS = {
    "none": "natural", "noise": "noise", "max-diff": "MaxDiff", "robust-sarsa": "Robust Sarsa", "sa-rl": "SA-RL",
    "pa-ad": "PA-AD",
}  # fmt: skip
LAST = ("robust-sarsa", "sa-rl", "pa-ad")  # whose mean the paper reports
PAPER = {  # Hopper of the paper: natural, noise, MaxDiff, Robust Sarsa, SA-RL, PA-AD and the mean of the last three
    "PPO, the paper's table 2": ("", "3167 +- 542", "2101 +- 793", "1410 +- 655", "794 +- 238", "636 +- 9",
                                 "160 +- 136", "530"),
    "ATLA-PPO, its table 6": ("2M", "1763 +- 818", "", "", "1349 +- 174", "1172 +- 344", "477 +- 30", "999"),
    "PA-ATLA-PPO, its table 6": ("2M", "2164 +- 121", "", "", "1720 +- 490", "1119 +- 123", "1024 +- 188", "1288"),
}  # fmt: skip
WITHIN = adv.Linf(EPS, scale="victim")
AGENTS = {
    "PPO": None, "ATLA-PPO": "sa-rl", "PA-ATLA-PPO": "pa-ad", "MaxDiff-PPO": "max-diff", "Noise-PPO": "noise",
}  # fmt: skip
TABLE = ("PPO", "ATLA-PPO", "PA-ATLA-PPO")
CHECKS = 20  # checkpoints of an agent
EVERY = 50_000  # steps between two checkpoints of an attack


@dataclass(frozen=True)
class Job:
    """One agent and all attacks on it."""

    name: str
    seed: int
    steps: int
    attack_steps: int
    episodes: int
    evaluation_seed: int
    work: Path

    @property
    def row(self) -> str:
        """What its row is called."""
        return f"{self.name} s{self.seed}"

    @property
    def folder(self) -> Path:
        """Where everything of it is kept."""
        return self.work / f"{self.name.lower()}-s{self.seed}-{self.steps // 1000}k"

    @property
    def path(self) -> Path:
        """Of its cells."""
        return self.folder / f"cells-{self.attack_steps // 1000}k-{self.episodes}-{self.evaluation_seed}.json"

    def say(self, *words: Any) -> None:
        """A line of what goes on."""
        print(self.row, *words, flush=True)

    def agent(self) -> Hardened:
        """Train, go on with, or read the agent."""
        return train_agent(
            ENV,
            AGENTS[self.name],
            EPS,
            self.steps,
            scale="victim",
            seed=self.seed,
            checks=CHECKS,
            out=self.folder / "agent",
            progress=lambda step, *returns: self.say(step, *(f"{r:.0f}" for r in returns if r is not None)),
        )

    def attack(self, name: str, victim: adv.Victim) -> tuple[Any, str]:
        """The perturbation of a column, trained if it has to be, and how it was chosen."""
        if name == "noise":
            return adv.Noise(), "uniform in the ball"
        if name == "max-diff":
            return adv.MaxDiff(victim, weights="std"), "10 steps"
        if name == "robust-sarsa":
            scan = scan_critics(
                victim, ENV, within=WITHIN, settings=SMALL, episodes=20, seed=self.seed, out=self.folder / "critics"
            )
            return adv.RobustSarsa(victim, critic=scan.critic), scan.protocol
        forms = ("direction", "target") if name == "pa-ad" else (None,)
        found = []
        for form in forms:
            folder = self.folder / (name if form is None else f"{name}-{form}")
            learned = train_adversary(
                name if form is None else adv.PAAD(victim, form=form),
                ENV,
                victim,
                EPS,
                self.attack_steps,
                scale="victim",
                seed=self.seed + 1,
                out=folder,
                checks=max(self.attack_steps // EVERY, 1),
                progress=lambda *at, what=folder.name: self.say(what, f"{at[0]} {at[1]:.0f}"),
            )
            record = load(folder / "state.json")["record"]
            found.append((min(record, key=lambda point: point["mean_return"]), learned, form, len(record)))
        best, learned, form, count = min(found, key=lambda run: run[0]["mean_return"])
        trainings = "one training" if len(found) == 1 else f"two trainings ({' and '.join(map(str, forms))})"
        which = "" if form is None else f" of {form}"
        return learned, (
            f"{trainings} of {self.attack_steps} steps, the best of {count} checkpoints each over 30 episodes of their "
            f"own ({best['mean_return']:.0f} at {best['steps']}{which})"
        )


def run(job: Job) -> dict[str, Any]:
    """Train the agent, then measure what is missing of its row, cell by cell."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    agent = job.agent()
    cells = load(job.path)
    if cells.get("fingerprint") != agent.victim.fingerprint():
        cells = {
            "name": job.name,
            "seed": job.seed,
            "steps": job.steps,
            "attack_steps": job.attack_steps,
            "episodes": job.episodes,
            "evaluation_seed": job.evaluation_seed,
            "protocol": agent.protocol,
            "fingerprint": agent.victim.fingerprint(),
            "record": agent.record,
            "rows": {},
            "about": {},
        }
        save(job.path, cells)
    for name in COLUMNS:
        if name in cells["rows"]:
            continue
        threats: list[Any] = []
        if name != "none":
            how, cells["about"][name] = job.attack(name, agent.victim)
            threats = [adv.ThreatModel("observation", how, WITHIN)]
        report = adv.evaluate(
            agent.victim, ENV, threats, job.episodes, job.evaluation_seed, num_envs=min(50, job.episodes)
        )
        cells["rows"][name] = kept(report.to_dict()["threats"][-1])
        cells["versions"] = report.to_dict()["versions"]
        save(job.path, cells)
        job.say(COLUMNS[name], f"{cells['rows'][name]['mean_return']:.0f} +- {cells['rows'][name]['std']:.0f}")
    return cells


def line_of(result: dict[str, Any]) -> list[str]:
    """The cells of one agent, those that were not measured empty, the lowest bold; and the mean over the attacks."""
    rows = result["rows"]
    means = {name: rows[name]["mean_return"] for name in COLUMNS if name in rows}
    attacked = [means[name] for name in LAST if name in means]
    texts = []
    for name in COLUMNS:
        text = f"{means[name]:.0f} +- {rows[name]['std']:.0f}" if name in means else ""
        texts.append(f"**{text}**" if name in means and means[name] == min(means.values()) else text)
    return [*texts, f"{sum(attacked) / len(LAST):.0f}" if len(attacked) == len(LAST) else ""]


def body(data: Data) -> list[str]:
    """The page after its head."""
    agents = data["agents"]
    header = ["agent", "steps", *COLUMNS.values(), "mean of the last three"]
    lines = [[row, f"{r['steps'] / 1e6:g}M", *line_of(r)] for row, r in agents.items()]
    lines += [[name, *cells] for name, cells in PAPER.items()]
    notes = []
    for row, r in agents.items():
        spent, chosen = r["record"][-1]["seconds"], r["protocol"]
        words = "; ".join(f"{COLUMNS[name]}: {text}" for name, text in r["about"].items())
        notes.append(
            f"- {row}: {chosen}, over 20 episodes a side on seeds of their own; {spent['agent'] / 60:.0f} minutes of "
            f"the processor for the agent and {spent['adversary'] / 60:.0f} for its adversary in training. {words}."
        )
    curves = [
        [row, f"{p['steps'] / 1e3:.0f}k", f"{p['clean']:.0f}", "" if p["attacked"] is None else f"{p['attacked']:.0f}"]
        for row, r in agents.items()
        for p in r["record"]
    ]
    parts = [
        f"What agents trained on {ENV} earn, in the shape of the paper's Table 6: mean +- standard deviation over the "
        f"same episodes ({', '.join(sorted({str(r['episodes']) for r in agents.values()}))}), the lowest mean of a row "
        f'bold. eps is {EPS} of `Linf(eps, scale="victim")`, each agent\'s own normaliser. A dash: not '
        "measured, or not in the paper. The paper's rows come from another release of the environment, with the "
        "medium agent of 21 and the best of 30 to 50 attacks, and stand here for the shape. Our noise is uniform over "
        "the budget; the paper does not say which noise its tables have. Our MaxDiff is `max-diff:weights=std`, the "
        "divergence of the Gaussian policy, and not today's default, which weighs all dimensions of an action alike.",
        table(header, lines),
        "**How agents and attacks were chosen.** Steps are the agent's; its adversary took as many of its own.\n\n"
        + "\n".join(notes),
        "## Checkpoints\n\nMean returns on the choosing seeds, clean and under the adversary of that day.\n\n"
        + table(["agent", "steps", "clean", "attacked"], curves),
    ]
    return parts


def jobs_of(given: argparse.Namespace) -> list[Job]:
    """Every agent that is asked for."""
    return [
        Job(name, seed, given.steps, given.attack_steps, given.episodes, given.seed, given.work)
        for seed in given.seeds
        for name in AGENTS
        if name in given.only
    ]


def measure(results: Results) -> None:
    """Train and measure what is missing, some agents at a time; then take what there is of all of them."""
    given, jobs = results.given, jobs_of(results.given)
    with ProcessPoolExecutor(given.processes, initializer=os.nice, initargs=(15,)) as pool:
        for future in as_completed([pool.submit(run, job) for job in jobs]):
            future.result()
            results.data["agents"] = {job.row: load(job.path) for job in jobs if job.path.exists()}
            results.keep()


PAGE = Page(
    "atla",
    "ATLA and PA-ATLA against plain PPO",
    __doc__,
    measure,
    body,
    options={
        **WORK,
        "--steps": {"type": int, "default": 2_000_000, "help": "of each agent"},
        "--attack-steps": {"type": int, "default": 500_000, "help": "of SA-RL and PA-AD against it"},
        "--only": {"nargs": "+", "choices": AGENTS, "default": TABLE, "metavar": "AGENT", "help": ", ".join(AGENTS)},
        "--seeds": {"nargs": "+", "type": int, "default": [0], "help": "of the agents"},
        **episode_options(50),
        "--processes": {"type": int, "default": 1},
    },
    needs=["--work"],
)


if __name__ == "__main__":
    PAGE.main()
