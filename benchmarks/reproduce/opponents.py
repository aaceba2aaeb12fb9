"""Opponents that learn: how often another player beats an agent that was trained without it.

    python benchmarks/reproduce/opponents.py --work FOLDER

The game is PettingZoo's simple_tag (``mpe2``) with one chaser, the victim, which earns 10 at every step at which it
touches the runner, 25 steps an episode. The victim was trained by PPO for 200,000 steps against a random runner, and
for 200,000 against one that had learned. Against the fixed victim six runners learn for 200,000 steps each (adversarial
policies, Gleave et al. 2020): three earn what a runner does, three what the victim loses; the latter leave the arena,
and pay for that with their own return. The opponent wins an episode in which it is not caught.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import Figure, kept, of_row, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval

GAME, OPTIONS = "mpe2.simple_tag_v3", {"num_adversaries": 1}
VICTIM, OPPONENT = "adversary_0", "agent_0"
SEEDS = (1, 2, 3)  # of the trainings of opponents
FIRST, STEPS = 100_000, 200_000  # steps of the opponent that the victim is trained with, and of all other trainings
REWARDS = {"its own reward": None, "minus the victim's": VICTIM}


def trained(work: Path, name: str, agent: str, other: str, steps: int, seed: int, **more: Any) -> str:
    """The reference of a policy that has learned to play against another.

    Args:
        work: the folder of trainings.
        name: of the training.
        agent: the agent that learns.
        other: the policy of the other.
        steps, seed: of the training.
        **more: arguments of :func:`adv_wrappers.train_opponent`.
    """
    rest = {VICTIM: OPPONENT, OPPONENT: VICTIM}[agent]
    arguments = {"zero_sum_with": None, "checks": 5, "episodes": 20, **more}
    adv.train_opponent(GAME, agent, {rest: other}, steps, seed=seed, env_kwargs=OPTIONS, out=work / name, **arguments)
    return f"card:{work / name}"


def players(work: Path) -> tuple[str, str]:
    """The victim, and the opponent that it was trained with last."""
    runner = trained(work, "runner", OPPONENT, "random", FIRST, 101)
    beginner = trained(work, "beginner", VICTIM, "random", STEPS, 102)
    return trained(work, "victim", VICTIM, runner, STEPS, 103, start=beginner), runner


def played(victim: str, opponent: str, episodes: int, seed: int) -> dict[str, Any]:
    """The victim's row against an opponent, and what that earns itself."""
    side = {"env": GAME, "agent": VICTIM, "others": {OPPONENT: opponent}, "env_kwargs": OPTIONS}
    row, own = (
        adv.evaluate(victim, adv.SingleAgentEnv, episodes=episodes, seed=seed, env_kwargs=kwargs).threats[0]
        for kwargs in (side, {**side, "zero_sum_with": OPPONENT})
    )
    return {**kept(row), "opponent": [-value for value in own["returns"]]}


def learned(work: Path, victim: str, reward: str, training: int, episodes: int, seed: int) -> dict[str, Any]:
    """The row of an opponent that learned against the victim."""
    began = time.perf_counter()
    against = REWARDS[reward]
    name = f"{'own' if against is None else 'zero-sum'}-{training}"
    opponent = trained(work, name, OPPONENT, victim, STEPS, training, zero_sum_with=against)
    seconds = time.perf_counter() - began
    return {"row": played(victim, opponent, episodes, seed), "seconds": seconds}


def won(row: Mapping[str, Any]) -> list[float]:
    """For each episode 100 if the opponent won it, and else 0."""
    return [100.0 * (value == 0) for value in row["returns"]]


def more_wins(row: Mapping[str, Any], other: Mapping[str, Any]) -> Figure:
    """How much more often an opponent wins than another on the same episodes, in percentage points."""
    more = [one - before for one, before in zip(won(row), won(other), strict=True)]
    low, high = mean_interval(more)
    return Figure(statistics.fmean(more), low=low, high=high)


def line(name: str, row: Mapping[str, Any], random: Mapping[str, Any]) -> list[Any]:
    """A row of the table, beside the row of the random opponent."""
    more = "" if row is random else more_wins(row, random)
    return [
        name,
        f"{statistics.fmean(won(row)):.1f}",
        more,
        of_row(dict(row)),
        f"{statistics.fmean(row['opponent']):.1f}",
    ]


def body(data: Data) -> list[str]:
    """The page after its head."""
    random = data["fixed"]["random"]
    rows = [line(name, row, random) for name, row in data["fixed"].items()]
    for reward in REWARDS:
        found = [data["learned"][f"{reward}, seed {seed}"]["row"] for seed in SEEDS]
        rows += [line(f"learned, {reward}, seed {seed}", row, random) for seed, row in zip(SEEDS, found, strict=True)]
    return [
        *prose(__doc__),
        table(["opponent", "wins, %", "more than the random one", "return of the victim", "its own return"], rows),
    ]


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    options = {"episodes": given.episodes, "seed": given.seed}
    victim, runner = players(given.work)
    for name, opponent in (("random", "random"), ("trained with", runner)):
        results.once(results.part("fixed"), name, played, victim, opponent, **options)
    for reward in REWARDS:
        for training in SEEDS:
            key, part = f"{reward}, seed {training}", results.part("learned")
            results.once(part, key, learned, given.work, victim, reward, training, **options)


PAGE = Page(
    "opponents",
    "Opponents that learn",
    __doc__,
    measure,
    body,
    page="surfaces",
    options={**WORK, **episode_options(200), **AGAIN},
    needs=["--work"],
    releases=("pettingzoo", "mpe2", "stable-baselines3"),
)

if __name__ == "__main__":
    PAGE.main()
