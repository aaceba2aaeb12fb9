"""PPO, ATLA and PA-ATLA on Hopper, each under every attack, in the shape of Table 6 of Sun et al. 2022.

    python benchmarks/reproduce/atla.py --work FOLDER

trains the agents that are missing in the work folder, then for each the critics and adversaries that attack it, plays
50 episodes under each attack, and writes ``atla.json`` and ``atla.md`` as cells come. A run that is interrupted goes on
where it stopped. ``--only`` picks agents, ``--seeds`` trains several of each, ``--page`` writes what is there.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from atla_page import COLUMNS, ENV, EPS, markdown
from figures import command, kept, load, machine, save, write

import adv_wrappers as adv
from adv_wrappers.training.train_adversary import train_adversary
from adv_wrappers.training.train_agent import Hardened, train_agent
from adv_wrappers.training.train_critic import SMALL, scan_critics

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


def publish(jobs: list[Job], out: Path, line: str) -> None:
    """Write the page of every cell that is there."""
    agents = {job.row: load(job.path) for job in jobs if job.path.exists()}
    if agents:
        data = {"command": line, "machine": machine(), "agents": agents}
        save(out / "atla.json", data)
        write(out / "atla.md", markdown(data))


def main() -> None:
    """Train and measure what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of trainings")
    parser.add_argument("--steps", type=int, default=2_000_000, help="of each agent")
    parser.add_argument("--attack-steps", type=int, default=500_000, help="of SA-RL and PA-AD against it")
    parser.add_argument("--only", nargs="+", choices=AGENTS, default=TABLE, metavar="AGENT", help=", ".join(AGENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of the agents")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the evaluation")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    parser.add_argument("--page", action="store_true", help="write the page of what is there, and no more")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    jobs = [
        Job(name, seed, given.steps, given.attack_steps, given.episodes, given.seed, given.work)
        for seed in given.seeds
        for name in AGENTS
        if name in given.only
    ]
    line = command(sys.argv[1:])
    if not given.page:
        with ProcessPoolExecutor(given.processes, initializer=os.nice, initargs=(15,)) as pool:
            for future in as_completed([pool.submit(run, job) for job in jobs]):
                future.result()
                publish(jobs, given.out, line)
    publish(jobs, given.out, line)


if __name__ == "__main__":
    main()
