"""Every defence that trains an agent, on CartPole, Pendulum and Hopper, beside plain training.

    python benchmarks/reproduce/defences.py --work FOLDER

trains what is not in ``defences/`` beside this script, attacks every agent with entries of the suite ``everything`` on
the same episodes, those of Hopper with adversaries that learn besides; then it compares certified returns of smoothed
agents, and measures what a step on images costs. ``--only`` picks agents and ``--part`` a part, so that processes can
share the work. Everything goes on where it stopped.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from figures import table
from page import WORK, Data, Page, Results, episode_options, load

import adv_wrappers as adv
from adv_wrappers.certification.smoothing import certify_smoothed
from adv_wrappers.studies import run_suite
from adv_wrappers.studies.standing.measure import what_card_says
from adv_wrappers.studies.suite.attack_lists import SUITES
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.car import CarDQN
from adv_wrappers.training.defences.radial import Radial
from adv_wrappers.training.defences.sa import SARegularizer
from adv_wrappers.training.defences.smoothed import SmoothedDQN

SHIPPED = Path("benchmarks/reproduce/defences")
PARTS = ("agents", "attacks", "smoothing")
EPS, SIGMA, SMOOTHED_SIGMA, SMOOTHED_DQN_SIGMA = 0.05, 0.2, 0.1, 0.03
PPO: Mapping[str, Any] = {
    "steps": 200_000, "num_envs": 8, "rewards": "raw", "observations": "raw",
    "settings": {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "gamma": 0.98},
}  # fmt: skip
DQN: Mapping[str, Any] = {"steps": 160_000, "num_envs": 8, "algorithm": "dqn"}
HOPPER: Mapping[str, Any] = {"steps": 2_000_000, "checks": 20}
THREE_QUARTERS = adv.LinearSchedule(0.0, 1.0, end=0.75)
CARTPOLE: dict[str, Mapping[str, Any]] = {
    "ppo": PPO,
    "sa-ppo": {**PPO, "robust": "sa"},
    "radial-ppo": {**PPO, "robust": Radial(kappa=0.8, form="ratio")},
    "wocar-ppo": {**PPO, "robust": "wocar"},
    "smoothed-ppo": {**PPO, "robust": "smoothed", "eps": SMOOTHED_SIGMA},
    "pa-atla-ppo": {**PPO, "adversary": "pa-ad"},
    "dqn": DQN,
    "sa-dqn": {**DQN, "robust": "sa", "checks": 48},
    "radial-dqn": {**DQN, "robust": "radial"},
    "car-dqn": {**DQN, "robust": CarDQN(kappa=0.95), "victim": "dqn"},
    "smoothed-dqn": {**DQN, "robust": "smoothed", "eps": SMOOTHED_DQN_SIGMA},
}
PENDULUM: Mapping[str, Any] = {
    "steps": 16_000, "num_envs": 4, "algorithm": "td3", "checks": 16, "episodes": 10,
    "settings": {"policy_kwargs": {"net_arch": [64, 64]}},
}  # fmt: skip
PENDULUMS: dict[str, Mapping[str, Any]] = {"td3": PENDULUM}
HOPPERS: dict[str, Mapping[str, Any]] = {
    "sa-ppo": {**HOPPER, "robust": SARegularizer(0.2, THREE_QUARTERS, form="sgld")},
    "sa-interval-ppo": {**HOPPER, "robust": SARegularizer(0.06, THREE_QUARTERS)},
    "wocar-ppo": {**HOPPER, "steps": 1_000_000, "robust": "wocar"},
}
SMOOTHED: dict[str, Mapping[str, Any]] = {
    "ppo-sigma": {**PPO, "robust": "smoothed", "eps": SIGMA},
}
ATTACKS = ("noise", "pgd", "apgd", "max-diff", "strong-max-diff", "square")
SHOWN = ("noise", "apgd", "max-diff", "strong-max-diff")
LEARNED = ("robust-sarsa", "sa-rl", "pa-ad")
SLOW = ("hop-skip-jump", "carlini-wagner", "lower-bound-pgd", "transfer")  # minutes a row
ON_OBSERVATIONS = tuple(
    entry.name
    for entry in SUITES["everything"]
    if entry not in (*SUITES["action"], *SUITES["daylight"]) and entry.name not in SLOW
)
COUNTED = ("training", "attack")
LENGTHS = (0.0, 0.5, 1.0, 2.0)  # of attacks, in sigma
INTRODUCTION = (
    "Mean returns over the same episodes, over the agents of a kind, with their range. The worst is the lowest mean "
    "of an agent under any attack of the suite `everything` that perturbs observations and takes no minutes a row "
    f"(not {', '.join(SLOW)}); columns are some of them. `smoothed` agents of PPO act on one noisy copy, of sigma "
    f"{SMOOTHED_SIGMA}, of DQN by the vote of {SmoothedDQN().vote} of sigma {SMOOTHED_DQN_SIGMA}; the beam search "
    "leaves these out. `car-dqn` goes on from the plain agent of its seed. Seconds are a processor's, of a training "
    "up to the checkpoint that was taken, partly of an AMD EPYC."
)
CARTPOLE_NOTE = (
    "Adversaries were trained for 20,000 steps; `pa-atla-ppo` loses nothing to PA-AD with eight times as many either."
)
PENDULUM_NOTE = (
    "SA-DDPG, which an earlier release had, left TD3 -290: its regularizer took the swing-up away while eps grew, with "
    "weights of 0.03 to 1 and with gradient steps in place of bounds. On InvertedPendulum TD3 without it keeps 1000 of "
    "1000 under these attacks and Robust Sarsa, where the authors' agent of DDPG falls to 290."
)
HOPPER_NOTE = (
    "`sa-ppo`, by gradient steps (SGLD), and `sa-interval-ppo`, by interval bounds, were trained for 2M steps, "
    "`wocar-ppo` for 1M; the checkpoint is the best of the second half by the mean of clean return and MaxDiff. "
    "[The standing](standing.md) has the published agents of WocaR-PPO and SA-DDPG. The authors of SA-PPO publish, as "
    "medians of 15 trainings or more, 3523 clean and 1403 under the strongest of five attacks with SGLD, 3704 and 1224 "
    "with convex relaxations ([SA_PPO](https://github.com/huanzhang12/SA_PPO)), and 1076 of the latter where SA-RL is "
    "played too ([ATLA](https://github.com/huanzhang12/ATLA_robust_RL))."
)


@dataclass(frozen=True)
class Task:
    """An environment, and how its agents are trained and attacked.

    Attributes:
        eps, scale: the budget, of trainings and attacks.
        unit: of eps, in words.
        kinds: the settings of trainings, by the kind of agent. A ``victim`` is another kind, whose agent of the same
            seed the training goes on from.
        attacks: entries of the suite ``everything``; those that apply to an agent are its rows.
        learning_steps: of those among them that learn; None where none do.
        shown: those with a column of their own; None for all.
        note: below the table of the page.
    """

    eps: float
    scale: Any
    unit: str
    kinds: Mapping[str, Mapping[str, Any]]
    attacks: tuple[str, ...]
    learning_steps: int | None = None
    shown: tuple[str, ...] | None = None
    note: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of rows, that without an attack first."""
        return ("none", *(self.attacks if self.shown is None else self.shown))


TASKS = {
    "CartPole-v1": Task(
        EPS,
        None,
        "in raw units",
        {**CARTPOLE, **SMOOTHED},
        ON_OBSERVATIONS,
        20_000,
        shown=(*SHOWN, "sa-rl", "pa-ad", "beam"),
        note=CARTPOLE_NOTE,
    ),
    "Pendulum-v1": Task(
        EPS,
        (1.0, 1.0, 8.0),
        "of half the range",
        PENDULUMS,
        (*ATTACKS, "min-q"),
        shown=(*SHOWN, "min-q"),
        note=PENDULUM_NOTE,
    ),
    "Hopper-v5": Task(
        0.075,
        "victim",
        "in the units of the agent's normaliser",
        HOPPERS,
        (*ATTACKS, *LEARNED),
        500_000,
        shown=(*SHOWN, *LEARNED),
        note=HOPPER_NOTE,
    ),
}


@dataclass(frozen=True)
class Agent:
    """An agent of one defence.

    Attributes:
        env: of its training, one of ``TASKS``.
        kind: one of the task's.
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
        return f"{self.env.partition('-')[0].lower()}-{self.kind}-s{self.seed}"

    @property
    def folder(self) -> Path:
        """Of its card: the shipped one, or the one that was trained here."""
        shipped = SHIPPED / self.name
        return shipped if (shipped / "card.json").exists() else self.work / "agents" / self.name

    @property
    def task(self) -> Task:
        """The task of its environment."""
        return TASKS[self.env]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Of its training."""
        return self.task.kinds[self.kind]

    @property
    def ref(self) -> str:
        """Of the agent as it is used."""
        card = f"card:{self.folder}"
        if self.settings.get("robust") != "smoothed":
            return card
        vote = f"&vote={SmoothedDQN().vote}" if self.settings.get("algorithm") == "dqn" else ""
        return f"smoothed:{card}?sigma={self.settings['eps']}{vote}"

    def train(self) -> None:
        """Train it, or go on, unless it is shipped."""
        if self.folder.is_relative_to(SHIPPED):
            return
        budget = {"eps": self.task.eps, "scale": self.task.scale}
        given = {**budget, "checks": 16, "adversary": None, "seed": self.seed, **self.settings}
        if "victim" in given:
            given["victim"] = replace(self, kind=given["victim"]).ref
        began = time.time()
        train_agent(self.env, out=self.folder, **given)
        print(self.name, f"{time.time() - began:.0f} s", flush=True)

    def seconds(self) -> int:
        """Processor seconds of the training up to the checkpoint that was taken, from its card."""
        return round(what_card_says(load(self.folder / "card.json"))["training_seconds"])


def agents(given: Any) -> list[Agent]:
    """All of them."""
    seeds = {**dict.fromkeys(TASKS, given.seeds), "Hopper-v5": given.hopper_seeds}
    found = [
        Agent(env, kind, seed, given.work) for env, task in TASKS.items() for kind in task.kinds for seed in seeds[env]
    ]
    return [agent for agent in found if given.only is None or any(agent.name.startswith(one) for one in given.only)]


def attacked(agent: Agent, given: Any) -> Data:
    """The rows of a suite on an agent, and what they and the agent took of a processor."""
    task = agent.task
    began = time.process_time()
    report = run_suite(
        "everything",
        agent.ref,
        agent.env,
        task.eps,
        scale=task.scale,
        train=task.learning_steps is not None,
        attacks=list(task.attacks),
        episodes=given.episodes,
        seed=given.seed,
        **({} if task.learning_steps is None else {"steps": task.learning_steps}),
        out=given.work / "suites" / agent.name,
    )
    keep = ("mean_return", "std", "episodes", "returns")
    rows = {row["threat"]: {key: row[key] for key in keep} for row in report.report.threats}
    seconds = round(time.process_time() - began)
    return {"rows": rows, "attack_seconds": seconds, "training_seconds": agent.seconds()}


def certified(agent: Agent, episodes: int) -> Data:
    """Certified returns of an agent with noise of ``SIGMA``."""
    noisy = agent.ref if agent.kind in SMOOTHED else f"smoothed:{agent.ref}?sigma={SIGMA}"
    found = certify_smoothed(noisy, agent.env, episodes)
    return {"mean": statistics.fmean(found.returns), **{str(at): found.certified_return(at * SIGMA) for at in LENGTHS}}


def measure(results: Results) -> None:
    """Train, attack and certify what is missing."""
    given = results.given
    for agent in agents(given):
        if "agents" in given.part:
            agent.train()
        there = (agent.folder / "card.json").exists()
        of_smoothing = agent.env == "CartPole-v1" and agent.kind in ("ppo", *SMOOTHED)
        for part, wanted, play in (
            ("attacks", agent.kind not in SMOOTHED, lambda agent: attacked(agent, given)),
            ("smoothing", of_smoothing, lambda agent: certified(agent, 1000)),
        ):
            found = results.data.setdefault(part, {})
            if part in given.part and wanted and there and agent.name not in found:
                found[agent.name] = play(agent)
                results.keep()
                print(agent.name, part, flush=True)


def worst(found: Data) -> tuple[str, float]:
    """The attack that left least, and what."""
    means = {name: row["mean_return"] for name, row in found["rows"].items() if name != "none"}
    return min(means.items(), key=lambda one: one[1])


def seeds_of(data: Data, part: str, env: str, kind: str) -> list[Data]:
    """What was measured of the seeds of a kind."""
    return [found for name, found in data.get(part, {}).items() if re.fullmatch(rf"{env}-{kind}-s\d+", name)]


def spread(values: list[float], form: str = ".0f") -> str:
    """Mean and range over seeds."""
    mean = format(statistics.fmean(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} to {max(values):{form}})"


def rows_of_task(data: Data, env: str) -> list[list[Any]]:
    """A line a kind of agents of an environment: means over its seeds, of every attack, and of what is worst."""
    task, lines = TASKS[env], list[list[Any]]()
    for kind in task.kinds:
        found = seeds_of(data, "attacks", env.partition("-")[0].lower(), kind)
        if not found:
            continue
        plain = seeds_of(data, "attacks", env.partition("-")[0].lower(), kind.rpartition("-")[2])
        ends = [worst(one)[1] for one in found]
        columns = [[one["rows"][name]["mean_return"] for one in found if name in one["rows"]] for name in task.columns]
        more = f"{statistics.fmean(ends) - statistics.fmean([worst(one)[1] for one in plain]):+.0f}" if plain else ""
        cells = [spread(column) if column else "" for column in columns]
        known = [[float(one[f"{what}_seconds"]) for one in found if one[f"{what}_seconds"]] for what in COUNTED]
        seconds = (spread(values) if values else "" for values in known)
        leads = ", ".join(sorted({worst(one)[0] for one in found}))
        lines.append([kind, len(found), *cells, f"**{spread(ends)}**", leads, more, *seconds])
    return lines


def body(data: Data) -> list[str]:
    """The page: what is left of agents in every environment, and what smoothed agents are certified for."""
    parts = [INTRODUCTION]
    for env, task in TASKS.items():
        lines = rows_of_task(data, env)
        if lines:
            names = ("clean", *task.columns[1:])
            header = ["agents", "seeds", *names, "worst", "by", "more than plain", "training, s", "attacks, s"]
            parts += [
                f"## {env}, eps {task.eps:g} {task.unit}",
                table(header, lines),
                *([task.note] if task.note else []),
            ]
    lines = list[list[Any]]()
    for kind in ("ppo", "ppo-sigma"):
        found_ = seeds_of(data, "smoothing", "cartpole", kind)
        if found_:
            label = f"{kind.removesuffix('-sigma')}, {'trained for the noise' if 'sigma' in kind else 'plain'}"
            cells = [spread([one[key] for one in found_], ".1f") for key in ("mean", *map(str, LENGTHS))]
            lines.append([label, len(found_), *cells])
    if lines:
        header = ["agents", "seeds", "return", *(f"certified at {at:g} sigma" for at in LENGTHS)]
        parts += [
            f"## Certified returns of smoothed agents on CartPole, sigma {SIGMA}",
            "Policy smoothing (Kumar, Levine and Feizi 2022) from 1000 episodes without an attack, at confidence 0.95: "
            "a lower bound of the mean return under every attack whose perturbations have that total length.",
            table(header, lines),
        ]
    return parts


PAGE = Page(
    "defences",
    "Defences that train an agent",
    __doc__,
    measure,
    body,
    page="defences",
    options={
        **WORK,
        "--part": {"nargs": "+", "choices": PARTS, "default": PARTS},
        "--seeds": {"nargs": "+", "type": int, "default": [0, 1, 2], "help": "of the agents"},
        "--hopper-seeds": {"nargs": "+", "type": int, "default": [0, 1, 2], "help": "of those on Hopper"},
        "--only": {"nargs": "+", "metavar": "NAME", "help": "agents whose names begin so"},
        **episode_options(20),
    },
    needs=["--work"],
    partly=["--part", "--only"],
)


if __name__ == "__main__":
    PAGE.main()
