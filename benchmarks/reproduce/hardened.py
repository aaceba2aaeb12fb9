"""Hardened agents on Hopper and Walker2d over seeds, in the shape of Table 6 of Sun et al. 2022.

    python benchmarks/reproduce/hardened.py --work FOLDER

trains PPO, ATLA-PPO, PA-ATLA-PPO and PPO with the regulariser of SA-PPO, two of each, 1M steps each, unless they are in
``hardened/`` beside this script; then for each the adversaries that learn to attack it, SA-RL and PA-AD in both of its
forms, 500k steps each, and its critics for Robust Sarsa; then it runs the plan of all rows into ``FOLDER/rows.db``,
from which the page is made. Everything goes on where it stopped. ``--only`` picks agents and ``--part`` a part, so that
processes can share the trainings. Figures of an earlier page stay where the store has none, as long as they are of the
same weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import table
from page import WORK, Data, Page, Results, episode_options, load, machine, made_by

import adv_wrappers as adv
from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.training.adversary import train_adversary
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.models.critic_scan import SMALL, scan_critics

SHIPPED = Path("benchmarks/reproduce/hardened")
ENVS = {"hopper": ("Hopper-v5", 0.075), "walker2d": ("Walker2d-v5", 0.05)}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("PPO", {"adversary": None}), "sa": ("PPO, robust=\"sa\"", {"adversary": None, "robust": "sa"}),
    "atla": ("ATLA-PPO", {"adversary": "sa-rl"}), "pa-atla": ("PA-ATLA-PPO", {"adversary": "pa-ad"}),
}  # fmt: skip
PARTS = ("agents", "attacks", "rows")
STEPS, ATTACK_STEPS, ATTACK_SEED = 1_000_000, 500_000, 100
UNTRAINED = {
    "noise": "noise", "max-diff": "MaxDiff", "max-diff:weights=std": "MaxDiff (std)",
    "max-diff:restarts=6,keep=best,noise=0": "strong MaxDiff", "apgd": "APGD",
}  # fmt: skip
LEARNED = {
    "robust-sarsa": "Robust Sarsa",
    "sa-rl": "SA-RL",
    "pa-ad-direction": "PA-AD",
    "pa-ad-target": "PA-AD, target",
}
NOTES = {
    "hopper": "",
    "walker2d": 'The agents of `robust="sa"` are of an earlier version, whose boxes were in the environment\'s units.',
}
PAPER = {  # Hopper, mean +- std of natural, noise, MaxDiff, Robust Sarsa, SA-RL and PA-AD, of Tables 2 and 6
    "PPO (1M)": ("3167 +- 542", "2101 +- 793", "1410 +- 655", "794 +- 238", "636 +- 9", "160 +- 136"),
    "ATLA-PPO (2M)": ("1763 +- 818", "", "", "1349 +- 174", "1172 +- 344", "477 +- 30"),
    "PA-ATLA-PPO (2M)": ("2164 +- 121", "", "", "1720 +- 490", "1119 +- 123", "1024 +- 188"),
}  # fmt: skip


@dataclass(frozen=True)
class Agent:
    """One agent, and where all of it is kept.

    Attributes:
        env: ``"hopper"`` or ``"walker2d"``.
        kind: one of ``KINDS``.
        seed: of its training.
        work: the folder of trainings.
    """

    env: str
    kind: str
    seed: int
    work: Path

    @property
    def name(self) -> str:
        """Of its folders."""
        return f"{self.env}-{self.kind}-s{self.seed}"

    @property
    def card(self) -> Path:
        """Its card: the shipped one, or the one that was trained here."""
        shipped = SHIPPED / self.name / "card.json"
        return shipped if shipped.exists() else self.work / "agents" / self.name / "card.json"

    @property
    def ref(self) -> str:
        """Of its card."""
        return f"card:{self.card.parent}"

    @property
    def attacks(self) -> Path:
        """The folder of the attacks that are trained."""
        return self.work / "attacks" / self.name

    def say(self, *words: Any) -> None:
        """A line of what goes on."""
        print(self.name, *words, flush=True)

    def train(self) -> None:
        """Train the agent, or go on, unless it is shipped."""
        if self.card.is_relative_to(SHIPPED):
            return
        env, eps = ENVS[self.env]
        train_agent(
            env,
            eps=eps,
            steps=STEPS,
            scale="victim",
            seed=self.seed,
            checks=20,
            out=self.work / "agents" / self.name,
            progress=lambda step, *returns: self.say(step, *(f"{r:.0f}" for r in returns if r is not None)),
            **KINDS[self.kind][1],
        )

    def attack(self) -> None:
        """Train what attacks the agent, or go on."""
        env, eps = ENVS[self.env]
        victim = adv.load_victim(self.ref)
        for name in ("pa-ad-direction", "pa-ad-target", "sa-rl"):
            if trained(self.attacks / name):
                continue
            train_adversary(
                "sa-rl" if name == "sa-rl" else adv.PAAD(victim, form=name.rpartition("-")[2]),
                env,
                victim,
                eps,
                ATTACK_STEPS,
                scale="victim",
                seed=ATTACK_SEED,
                out=self.attacks / name,
                progress=lambda step, mean, name=name: self.say(name, step, f"{mean:.0f}"),
            )
        if (self.attacks / "robust-sarsa" / "card.json").exists():
            return
        scan = scan_critics(
            victim,
            env,
            within=adv.Linf(eps, scale="victim"),
            settings=SMALL,
            episodes=20,
            seed=ATTACK_SEED,
            out=self.attacks / "critics",
        )
        scan.critic.save(self.attacks / "robust-sarsa")
        self.say(scan.protocol)

    def plan(self, episodes: int) -> Plan:
        """Of its rows: the attacks that need no training, and those that are there."""
        budget = f"eps={ENVS[self.env][1]},scale=victim"
        threats = [f"{text}{',' if ':' in text else ':'}{budget}" for text in UNTRAINED]
        threats += [text for _, text in self.learned()]
        return Plan.of(victims=[self.ref], threats=threats, episodes=episodes, num_envs=episodes)

    def learned(self) -> Iterator[tuple[str, str]]:
        """Name and text of the attacks that were trained to their end."""
        budget = f"eps={ENVS[self.env][1]},scale=victim"
        for name in LEARNED:
            folder = self.attacks / name
            if name == "robust-sarsa" and (folder / "card.json").exists():
                yield name, f"robust-sarsa:critic={folder},{budget}"
            elif trained(folder):
                yield name, f"learned:card={folder}"


def trained(folder: Path) -> bool:
    """Whether a folder holds the whole training of an adversary."""
    record = load(folder / "state.json").get("record", [])
    return bool(record) and record[-1]["steps"] >= ATTACK_STEPS


def figures(store: Store, agents: list[Agent], episodes: int, earlier: dict[str, Any]) -> dict[str, Any]:
    """By agent, the figures of its rows in the store, and those of an earlier page that are of the same weights."""
    found: dict[str, Any] = {}
    reports = {report.victim["ref"]: report for report in store.reports() if report.episodes == episodes}
    keep = ("mean_return", "low", "high", "std", "episodes", "returns")
    for agent in agents:
        if not agent.card.exists():
            continue
        known = {"fingerprint": adv.load_victim(agent.ref).fingerprint(), "machine": machine()}
        before = earlier.get("agents", {}).get(agent.name, {})
        if before.get("fingerprint") == known["fingerprint"]:
            known = {"machine": earlier["machine"], **before}
        report = reports.get(agent.ref)
        if report is not None:
            names = {text: name for name, text in agent.learned()}
            budget = f"eps={ENVS[agent.env][1]},scale=victim"
            names |= {f"{text}{',' if ':' in text else ':'}{budget}": text for text in UNTRAINED} | {"none": "none"}
            rows = {names[r["threat"]]: {k: r[k] for k in keep} for r in report.threats if r["threat"] in names}
            known |= {"versions": report.versions, "machine": machine(), "rows": {**known.get("rows", {}), **rows}}
        if "rows" in known:
            found[agent.name] = known
    return found


def spread(values: list[float]) -> str:
    """Mean and standard deviation over seeds."""
    return f"{statistics.fmean(values):.0f} +- {statistics.stdev(values):.0f}"


def machines(data: dict[str, Any]) -> str:
    """Where the figures were measured: the machine of most agents, and those that were on another."""
    groups: dict[str, list[str]] = {}
    for name, found in data["agents"].items():
        groups.setdefault(found["machine"], []).append(name)
    first, *others = sorted(groups, key=lambda one: len(groups[one]), reverse=True)
    return "; ".join([first, *(f"{', '.join(groups[one])} on {one}" for one in others)])


def body(data: Data) -> list[str]:
    """The page: a table an environment, one line an agent and one the mean over its seeds."""
    columns = {"none": "natural", **UNTRAINED, **LEARNED}
    parts = [
        "Mean returns +- standard deviation over the same 50 episodes of agents of 1M steps, in the shape of the "
        "paper's Table 6 (theirs: 2M); the lowest of a line is bold. Attacks that learn had 500k steps on each agent, "
        "the best of 10 checkpoints by 30 other episodes; critics are the best of four by 20. Lines of seeds have mean "
        "and standard deviation over the means of their agents.",
    ]
    for env, (id, eps) in ENVS.items():
        lines = []
        for kind, (label, _) in KINDS.items():
            seeds = {name: found for name, found in data["agents"].items() if name.startswith(f"{env}-{kind}-s")}
            worst: list[float] = []
            for name, found in seeds.items():
                rows = found["rows"]
                means = {key: rows[key]["mean_return"] for key in columns if key in rows}
                whole = len(means) == len(columns)
                worst += [min(means.values())] if whole else []
                cells = []
                for key in columns:
                    text = f"{means[key]:.0f} +- {rows[key]['std']:.0f}" if key in means else ""
                    cells.append(f"**{text}**" if text and means[key] == min(means.values()) else text)
                lines.append([f"{label} s{name.rpartition('s')[2]}", *cells, f"{worst[-1]:.0f}" if whole else ""])
            if len(seeds) > 1:
                rows = [found["rows"] for found in seeds.values()]
                every = [[row[key]["mean_return"] for row in rows if key in row] for key in columns]
                cells = [spread(values) if len(values) == len(seeds) else "" for values in [*every, worst]]
                lines.append([f"{label}, {len(seeds)} seeds", *cells])
        parts += [f"## {id}, eps {eps}", table(["agent", *columns.values(), "worst"], lines), NOTES[env]]
    lines = [[name, *cells] for name, cells in PAPER.items()]
    header = ["agent", "natural", "noise", "MaxDiff", "Robust Sarsa", "SA-RL", "PA-AD"]
    parts += ["The paper's Hopper, of another release, the medium agent of 21 and the best of 30 to 50 attacks:"]
    parts.append(table(header, lines))
    return parts


def measure(results: Results) -> None:
    """Train what is missing, run the plan, and take the figures from its store."""
    given = results.given
    agents = [Agent(env, kind, seed, given.work) for seed in given.seeds for env in ENVS for kind in KINDS]
    chosen = [agent for agent in agents if given.only is None or agent.name in given.only]
    for agent in chosen:
        if "agents" in given.part:
            agent.train()
        if "attacks" in given.part:
            agent.attack()
    if "rows" in given.part:
        with Store(given.work / "rows.db") as store:
            plans = [agent.plan(given.episodes) for agent in chosen if agent.card.exists()]
            print(run(Plan(tuple(grid for plan in plans for grid in plan.grids)), store, given.workers))
            results.data["agents"] = figures(store, agents, given.episodes, results.data)
        results.keep()


PAGE = Page(
    "hardened",
    "Hardened agents on Hopper and Walker2d",
    __doc__,
    measure,
    body,
    page="pa_ad",
    options={
        **WORK,
        "--part": {"nargs": "+", "choices": PARTS, "default": PARTS},
        "--seeds": {"nargs": "+", "type": int, "default": [0, 1], "help": "of the agents"},
        "--only": {"nargs": "+", "metavar": "NAME", "help": "agents such as hopper-ppo-s0"},
        **episode_options(50),
        "--workers": {"type": int, "default": 1, "help": "processes that play the rows"},
    },
    needs=["--work"],
    partly=["--part", "--only"],
    head=lambda data: made_by({**data, "machine": machines(data)}),
)


if __name__ == "__main__":
    PAGE.main()
