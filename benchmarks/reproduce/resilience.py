"""Resilience and robustness on CartPole (Behzadan and Hsu 2019, Table 6, Figures 1-12, sections 6.1 to 6.3).

    python benchmarks/reproduce/resilience.py --victims FOLDER --targets FOLDER --work FOLDER [--exact]

measures the zoo's DQN, A2C and PPO, and those that ``resilience_targets.py`` trained with the paper's Tables 2 to 4
into ``--targets``: five trainings of the adversary each, and 100 test episodes, the same for all. Beside them stand the
exact optimum, an attack at every step, random timing and ``Strategic`` with as many perturbations, the paper's DQN as
the adversary's algorithm, and budgets of 10 and 5. ``--only PART`` does one part of it, ``--exact`` the exact optimum
alone.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from figures import number, table
from page import AGAIN, VICTIMS, WORK, Data, Page, Results, episode_options

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches.fewest_perturbations import fewest_perturbations, resilience_profile
from adv_wrappers.evaluation.statistics.confidence_intervals import mean_interval
from adv_wrappers.rendering.plots import TrainingCurve, plot_histograms, plot_trainings
from adv_wrappers.training.resilience.result import LAST, AttackedEpisodes, Resilience

ENV = "CartPole-v1"
SEEDS = 5
BUDGET_SEEDS = 3  # under a budget of 5, soft; hard for the zoo's victims alone
STEPS = 60_000
DQN_STEPS = 20_000  # Table 5 allows 100_000, seven minutes of the processor; the training is done after 10_000
TEST = 1000  # seeds the test's episodes, the same for all trainings
TUNING = 2000  # seeds the episodes that p and beta are chosen on
BUDGETS, HORIZON = tuple(range(1, 11)), 60  # of the exact profile
PROFILE_STARTS = 6  # a start whose victim survives three perturbations takes half a minute, four take several
PARTS = ("resilience", "baselines", "robustness", "dqn", "profile", "exact")
Job = tuple[Any, ...]  # the key of a row, the function that measures it, and its arguments
# Table 6: max. regret, regret and perturbations of the training, regret and perturbations of the test
PAPER = {
    "dqn": (492.0, 491.24, 7.13, 491.15, 6.95), "a2c": (492.0, 491.44, 7.69, 488.16, 8.71),
    "ppo": (492.0, 491.72, 7.49, 490.47, 7.72),
}  # fmt: skip
PAPER_AT_5 = {"dqn": 462.5, "a2c": 224.0, "ppo": 268.2}  # section 6.3
SHOWN_STEPS = 12  # of the table of time steps
DRAWN = "Tables 2-4"  # the family of victims of the pictures
TOGETHER = 20  # episodes that a dot of a training curve is the mean of
STEPS_PICTURE = "resilience_steps.png"
# of trainings: the file, the paper's figures, the keys of the rows, and what they show
TRAININGS = (
    ("resilience_training.png", "Figures 1-3", "resilience/{}/0", "resilience"),
    ("resilience_budget_10.png", "Figures 7-9", "robustness/{}/10/soft/0", "robustness, a budget of 10 (soft)"),
    ("resilience_budget_5.png", "Figures 10-12", "robustness/{}/5/soft/0", "robustness, a budget of 5 (soft)"),
)


def exact(ref: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The exact optimum of return plus perturbations over some starts."""
    started = time.process_time()
    found = fewest_perturbations(adv.load_victim(ref), ENV, seeds, cost=1.0, lowest_reward=1.0).to_dict()
    return {
        "totals": found["objective"],
        "perturbations": found["perturbations"],
        "finished": all(found["finished"]),
        "seconds": round(time.process_time() - started, 1),
    }


def profile(ref: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The highest regret that budgets of perturbations can cause, exactly, over some starts."""
    started, victim = time.process_time(), adv.load_victim(ref)
    found = resilience_profile(victim, ENV, seeds, BUDGETS, HORIZON, lowest_reward=1.0, max_nodes=3_000_000).to_dict()
    return {
        "budgets": list(found["budgets"]),
        "regret": found["regret"],
        "finished": found["finished"],
        "seconds": round(time.process_time() - started, 1),
    }


def victims_of(arguments: argparse.Namespace) -> dict[str, str]:
    """References of the victims by name, those of the zoo first."""
    found = {f"zoo {kind}": f"zoo:cartpole-{kind}" for kind in ("dqn", "a2c", "ppo")}
    if arguments.targets is not None:
        found |= {
            f"Tables 2-4 {kind}": f"card:{arguments.targets / kind}"
            for kind in ("dqn", "a2c", "ppo")
            if (arguments.targets / kind / "card.json").exists()
        }
    return found


def curve_of(training: AttackedEpisodes) -> dict[str, list[float]]:
    """A training curve as the pictures need it: means of ``TOGETHER`` episodes in a row, of which the last are left."""
    whole = len(training) // TOGETHER * TOGETHER
    assert training.steps is not None
    return {
        "steps": training.steps[TOGETHER - 1 : whole : TOGETHER].tolist(),
        "regrets": training.regrets[:whole].reshape(-1, TOGETHER).mean(1).round(2).tolist(),
        "perturbations": training.perturbations[:whole].reshape(-1, TOGETHER).mean(1).round(2).tolist(),
    }


def row_of(found: Resilience, curve: bool = False) -> dict[str, Any]:
    """What the page needs of a result, with the curve of its training where that is drawn."""
    late = found.training.last(LAST)
    return {
        "max_regret": found.max_regret,
        "training_regret": late.mean_regret,
        "training_perturbations": late.mean_perturbations,
        "regrets": found.test.regrets.tolist(),
        "perturbations": found.test.perturbations.tolist(),
        "lengths": found.test.lengths.tolist(),
        "total": float((found.returns + found.test.perturbations).mean()),
        "seconds": round(found.seconds, 1),
        "steps": found.steps,
        "histogram": found.histogram.tolist(),
        "clean": float(found.clean_returns.mean()),
        **({"curve": curve_of(found.training)} if curve else {}),
    }


def played(victim: adv.Victim, threats: list[Any], episodes: int, seed: int, env: str = ENV) -> list[dict[str, Any]]:
    """Returns and perturbations of every episode, under each threat."""
    report = adv.evaluate(victim, env, threats, episodes, seed)
    rows = []
    for row in report.threats[1:]:
        perturbations = np.rint(np.array(row["attacked_fractions"]) * row["lengths"]).astype(int)
        rows.append(
            {
                "returns": row["returns"],
                "perturbations": perturbations.tolist(),
                "lengths": row["lengths"],
                "changed": row["action_change"],
            }
        )
    return rows


def gaps(victim: adv.Victim) -> np.ndarray[Any, Any]:
    """How far the victim's favourite action is ahead of its least, at the states of five clean episodes."""
    found = []
    with closing(gym.make(ENV)) as env:
        for seed in range(5):
            obs, _ = env.reset(seed=TUNING + seed)
            over = False
            while not over:
                params = victim.params(torch.as_tensor(obs)[None])
                probabilities = torch.softmax(params, -1)[0]
                found.append(float(probabilities.max() - probabilities.min()))
                obs, _, terminated, truncated, _ = env.step(int(victim.act(params)[0]))
                over = terminated or truncated
    return np.array(found)


def tuned(victim: adv.Victim, when: Callable[[float], Any], target: float) -> tuple[float, Any]:
    """The share of the steps at which a timing spends ``target`` perturbations an episode, and the timing.

    Bisected on episodes of its own, between a share that spends hardly any and one of a tenth.
    """
    low, high = math.log(0.001), math.log(0.1)
    for _ in range(8):
        middle = (low + high) / 2
        threat = adv.ThreatModel("action", adv.WorstAction(victim, "policy"), when=when(math.exp(middle)))
        spent = np.mean(played(victim, [threat], 30, TUNING)[0]["perturbations"])
        low, high = (middle, high) if spent < target else (low, middle)
    return math.exp((low + high) / 2), when(math.exp((low + high) / 2))


def baselines(ref: str, target: float, episodes: int) -> dict[str, Any]:
    """An attack at every step, random timing and ``Strategic`` with ``target`` perturbations an episode."""
    victim = adv.load_victim(ref)
    apart = gaps(victim)
    timings: dict[str, Callable[[float], Any]] = {
        "random": lambda share: adv.Bernoulli(share),
        "strategic": lambda share: adv.Strategic(float(np.quantile(apart, 1 - share)), victim),
    }
    found: dict[str, Any] = {"target": target}
    chosen: dict[str, Any] = {"always": None}
    for name, timing in timings.items():
        found[f"{name} share"], chosen[name] = tuned(victim, timing, target)
        found[f"{name} timing"] = str(chosen[name]) if name == "random" else f"strategic({chosen[name].beta:.6g})"
    threats = [adv.ThreatModel("action", adv.WorstAction(victim, "policy"), when=when) for when in chosen.values()]
    return found | dict(zip(chosen, played(victim, threats, episodes, TEST), strict=True))


def adversary(key: str, ref: str, work: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The row of an adversary that is trained, against an agent's resilience or, with a budget, its robustness."""
    how = adv.resilience if "budget" not in given else adv.robustness
    folder = work / key.replace("/", "-").replace(" ", "-").replace(":", "-")
    return row_of(how(ref, ENV, out=folder, **given), key in drawn())


def jobs(arguments: argparse.Namespace, data: Data) -> Iterator[Job]:
    """Every result by its key, the most important first; those that need earlier ones come after them."""
    found = victims_of(arguments)

    def trained(key: str, ref: str, seed: int, **more: Any) -> Job:
        given = {"episodes": arguments.episodes, "seed": seed, "test_seed": TEST, "steps": STEPS, **more}
        return key, adversary, key, ref, arguments.work, given

    for seed in range(SEEDS):
        for name, ref in found.items():
            yield trained(f"resilience/{name}/{seed}", ref, seed)
        if seed == 0:
            for name, ref in found.items():
                for budget in (5, 10):
                    for form in ("soft", "hard"):
                        key = f"robustness/{name}/{budget}/{form}/0"
                        yield trained(key, ref, 0, budget=budget, hard=form == "hard")
            for name, ref in found.items():
                rows = [row for key, row in data["results"].items() if key.startswith(f"resilience/{name}/")]
                if rows:
                    target = float(np.mean([np.mean(row["perturbations"]) for row in rows]))
                    yield f"baselines/{name}", baselines, ref, target, arguments.episodes
            for name, ref in found.items():
                if name.startswith("zoo"):
                    yield trained(f"dqn/{name}/0", ref, 0, algorithm="dqn", steps=DQN_STEPS)
        elif seed < BUDGET_SEEDS:
            for name, ref in found.items():
                for form in ("soft", "hard") if name.startswith("zoo") else ("soft",):
                    key = f"robustness/{name}/5/{form}/{seed}"
                    yield trained(key, ref, seed, budget=5, hard=form == "hard")
    for name, ref in found.items():
        if name.startswith("zoo"):
            yield f"profile/{name}", profile, ref, draw_seeds(TEST, min(PROFILE_STARTS, arguments.episodes))


def two(value: float) -> str:
    """Two decimals."""
    return f"{value:.2f}"


def kind_of(name: str) -> str:
    """The algorithm of a victim."""
    return name.rsplit(" ", 1)[1]


def seeds_of(results: Data, start: str) -> dict[str, list[dict[str, Any]]]:
    """Rows by victim, a list over seeds, of the keys ``start/VICTIM/.../SEED``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, row in results.items():
        first, *rest = key.split("/")
        if first == start:
            found.setdefault("/".join(rest[:-1]), []).append(row)
    return found


def mean(rows: list[dict[str, Any]], name: str) -> float:
    """The mean over seeds of the mean over episodes."""
    return float(np.mean([np.mean(row[name]) for row in rows]))


def least_total(results: Data, name: str) -> float | None:
    """The exact optimum of return plus perturbations over the test's starts, or None."""
    row = results.get(f"exact/{name}")
    return None if row is None else float(np.mean(row["totals"]))


def victims_drawn() -> list[str]:
    """The victims of the pictures, in the order of the paper's."""
    return [f"{DRAWN} {kind}" for kind in PAPER]


def drawn() -> set[str]:
    """Keys of the rows whose training is drawn."""
    return {key.format(name) for _, _, key, _ in TRAININGS for name in victims_drawn()}


def curves(results: Data, key: str) -> dict[str, TrainingCurve] | None:
    """Training curves by victim of the rows ``key``; None while one is missing."""
    rows = {name: results.get(key.format(name), {}).get("curve") for name in victims_drawn()}
    if not all(rows.values()):
        return None
    return {name: TrainingCurve(*(np.array(row[part]) for part in TrainingCurve._fields)) for name, row in rows.items()}


def tests(results: Data) -> dict[str, dict[str, Any]] | None:
    """The rows of the tests that the histograms are of, by victim; None while one is missing."""
    rows = {name: results.get(f"resilience/{name}/0") for name in victims_drawn()}
    return {name: row for name, row in rows.items() if row} if all(rows.values()) else None


def draw(results: Data, folder: Path) -> None:
    """The pictures of those rows that are there."""
    for file, _, key, title in TRAININGS:
        found = curves(results, key)
        if found is not None:
            plot_trainings(found, folder / file, f"Training of the adversary: {title}", LAST, TOGETHER)
    rows = tests(results)
    if rows is not None:
        counts = {name: np.array(row["histogram"]) for name, row in rows.items()}
        plot_histograms(
            counts,
            len(next(iter(rows.values()))["regrets"]),
            folder / STEPS_PICTURE,
            "Attacked time steps of the test episodes",
        )


def pictures(results: Data, which: slice) -> Iterator[str]:
    """The training curves of some of the paper's figures, with what the page says of them."""
    for file, figures, key, title in TRAININGS[which]:
        if curves(results, key) is not None:
            yield f"{figures}, of seed 0; the paper has a DQN.\n\n![training of the adversary: {title}]({file})"


def table_6(results: Data) -> Iterator[str]:
    """Ours beside the paper's Table 6, with the exact optimum of the same starts."""
    found = seeds_of(results, "resilience")
    lines = []
    for name, rows in found.items():
        figures = [mean(rows, key) for key in ("training_regret", "training_perturbations", "regrets", "perturbations")]
        totals, least = [row["total"] for row in rows], least_total(results, name)
        seconds = f"{mean(rows, 'seconds'):.0f}"
        span = f"{two(float(np.mean(totals)))} ({two(min(totals))} to {two(max(totals))})"
        lines.append([name, str(len(rows)), *map(two, figures), span, two(least) if least is not None else "", seconds])
    for kind, (_, *row) in PAPER.items():
        lines.append([f"the paper's {kind}", "1", *map(two, row), two(500 - row[2] + row[3]), "", ""])
    header = [
        "victim", "seeds", "regret (training)", "perturbations (training)", "regret", "perturbations",
        "return + perturbations", "optimum", "seconds",
    ]  # fmt: skip
    yield (
        "## Resilience (Table 6)\n\nMeans over the seeds of the adversary's training (range in "
        "brackets), over the same 100 test episodes, with a cost of 1; the largest regret is "
        "492. `(training)` is of the last 100 episodes, in which the adversary samples. The "
        "adversary minimises `return + perturbations`; `optimum` is the least that is possible "
        "on the same starts, by following all timings (`fewest_perturbations`). `seconds` are "
        "a processor's.\n\n" + table(header, lines)
    )
    yield from pictures(results, slice(0, 1))


def ranked(found: dict[str, list[Any]], least_first: bool) -> list[list[str]]:
    """Victims from the least resilient to the most, with intervals of 95%.

    Args:
        found: by victim, for every seed of the adversary's training the figure of each of the test's episodes.
        least_first: whether the least resilient victim is that of the least mean.
    """
    starts = {name: np.mean(seeds, 0) for name, seeds in found.items()}
    order = sorted(starts, key=lambda name: float(starts[name].mean()) * (1 if least_first else -1))
    lines = []
    for name, after in zip(order, [*order[1:], None], strict=True):
        means = [float(np.mean(values)) for values in found[name]]
        low, high = mean_interval(means)
        own = two(float(np.mean(means))) + (f" [{two(low)}, {two(high)}]" if len(means) > 1 else "")
        more = "-"
        if after is not None:
            gap = starts[after] - starts[name]
            low, high = mean_interval(gap)
            more = f"{gap.mean():+.2f} [{low:+.2f}, {high:+.2f}]"
        lines.append([name, str(len(means)) if len(means) > 1 else "-", own, more])
    return lines


def ranking(results: Data) -> Iterator[str]:
    """How sure the order of the victims is, which the paper reads from its Table 6 and section 6.3."""
    measures = (
        ("perturbations", "resilience", "perturbations", True),
        ("regret at a budget of 5, soft", "robustness", "regrets", False),
    )
    parts = []
    for title, start, what, least_first in measures:
        seeds = seeds_of(results, start).items()
        known = {name.removesuffix("/5/soft"): [row[what] for row in rows] for name, rows in seeds}
        lines = []
        for family in ("zoo", "Tables 2-4"):
            names = [f"{family} {kind}" for kind in PAPER]
            if all(name in known for name in names):
                lines += ranked({name: known[name] for name in names}, least_first)
        if lines:
            parts.append(table(["victim", "seeds", title, "the next victim's minus this one's"], lines))
    if parts:
        yield (
            "## Ranking of the victims\n\nFrom the least resilient, or least robust, of a family to the most; the "
            "paper's order is dqn, ppo, a2c by both. Intervals of 95%: of the mean, over the seeds of the adversary's "
            "training; of the difference to the next, over the test's starts (one that holds zero leaves the order "
            "open). These are rankings of agents, not of algorithms.\n\n" + "\n\n".join(parts)
        )


def timing_section(results: Data) -> Iterator[str]:
    """Always attacking, and timings that are not learned, with as many perturbations."""
    lines: list[list[str]] = []
    timings = ("random", "strategic", "always")
    for key, row in results.items():
        if key.startswith("baselines/"):
            name = key.split("/")[1]
            learned = seeds_of(results, "resilience")[name]
            left = [500 - mean(learned, "regrets"), *(float(np.mean(row[timing]["returns"])) for timing in timings)]
            spent = [float(np.mean(row[timing]["perturbations"])) for timing in timings]
            spent = [mean(learned, "perturbations"), *spent]
            lines.append([name, *(f"{two(a)} at {two(b)}" for a, b in zip(left, spent, strict=True))])
    if lines:
        yield (
            "## When, and only when\n\nThe return that the same worst action leaves at as many steps of an episode, "
            "chosen without learning: at random (`Bernoulli`), and by the gap between the victim's most and least "
            "preferred action (`Strategic`, Lin et al. 2017), with parameters from other episodes. The worst action by "
            "the policy's probabilities, by `r + gamma V(s')` (equation 3) and by a Q imitated from 20,000 queries "
            "leave the same here.\n\n" + table(["victim", "learned", *timings], lines)
        )


def robustness_section(results: Data) -> Iterator[str]:
    """Budgets of 10 and 5, soft and hard."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for name, rows in sorted(seeds_of(results, "robustness").items()):
        victim, budget, form = name.split("/")
        within = float(np.mean([np.mean(np.array(row["perturbations"]) <= int(budget)) for row in rows]))
        text = f"{two(mean(rows, 'regrets'))} at {two(mean(rows, 'perturbations'))}"
        cells = found.setdefault((victim, int(budget)), {"5": number(PAPER_AT_5[kind_of(victim)])})
        cells[form] = f"{text} ({len(rows)} seeds, {within:.0%} within)" if form == "soft" else text
    if found:
        lines = [
            [victim, budget, cells.get("soft", ""), cells.get("hard", ""), cells.get(str(budget), "")]
            for (victim, budget), cells in sorted(found.items())
        ]
        yield (
            "## Robustness (section 6.3)\n\nRegret at so many perturbations. `soft` is Algorithm 2, in which a "
            "perturbation beyond the budget costs the budget; `hard` makes no more possible.\n\n"
            + table(["victim", "budget", "soft", "hard", "the paper's regret"], lines)
        )
        yield from pictures(results, slice(1, None))


def budget_section(results: Data) -> Iterator[str]:
    """The exact regret by budget."""
    rows = {key.split("/", 1)[1]: row for key, row in results.items() if key.startswith("profile/")}
    if not rows:
        return
    lines = []
    for name, row in rows.items():
        means, whole = np.mean(row["regret"], 0), np.all(row["finished"], 0)
        cells = [f"{value:.0f}{'' if every else '*'}" for value, every in zip(means, whole, strict=True)]
        lines.append([name, str(len(row["regret"])), *cells, f"{row['seconds']:.0f}"])
    budgets = [str(budget) for budget in next(iter(rows.values()))["budgets"]]
    yield (
        "## What each budget can cost\n\nThe mean of the highest regret that so many perturbations can cause within 60 "
        "steps, by following all timings (`resilience_profile`). An asterisk marks a lower bound, where not all were "
        "followed.\n\n" + table(["victim", "starts", *budgets, "seconds"], lines)
    )


def steps_section(results: Data) -> Iterator[str]:
    """At which time steps the adversaries perturb (Figures 4-6, section 6.2)."""
    lines = []
    for name, rows in seeds_of(results, "resilience").items():
        width = max(SHOWN_STEPS, *(len(row["histogram"]) for row in rows))
        counts = np.array([[*row["histogram"], *[0] * (width - len(row["histogram"]))] for row in rows], float)
        shares = counts.mean(0) / len(rows[0]["regrets"])
        length = float(np.mean([np.mean(row["lengths"]) for row in rows]))
        half = float(shares[: int(np.ceil(length / 2))].sum() / shares.sum())
        lines.append(
            [name, *(f"{100 * share:.0f}%" for share in shares[:SHOWN_STEPS]), two(length), f"{100 * half:.0f}%"]
        )
    if lines:
        yield (
            "## At which steps (Figures 4-6, section 6.2)\n\nThe share of the test's episodes that were attacked at "
            "step t, over all seeds.\n\n"
            + (f"![time steps that were attacked, of seed 0]({STEPS_PICTURE})\n\n" if tests(results) else "")
            + table(["victim", *(f"t={t}" for t in range(SHOWN_STEPS)), "mean length", "in the first half"], lines)
        )


def algorithm_section(results: Data) -> Iterator[str]:
    """The paper's DQN beside PPO."""
    lines = []
    for key, row in results.items():
        if key.startswith("dqn/"):
            name = key.split("/")[1]
            ppo = seeds_of(results, "resilience")[name]
            for algorithm, rows in (("ppo", ppo), ("dqn", [row])):
                figures = [two(mean(rows, figure)) for figure in ("regrets", "perturbations", "total")]
                seconds = f"{mean(rows, 'seconds'):.0f}"
                lines.append([name, algorithm, str(len(rows)), str(rows[0]["steps"]), *figures, seconds])
    if lines:
        header = [
            "victim",
            "algorithm",
            "seeds",
            "steps",
            "regret",
            "perturbations",
            "return + perturbations",
            "seconds",
        ]
        yield (
            "## The paper's algorithm\n\nThe DQN of Table 5 (prioritised replay, noise on the parameters) beside PPO, "
            "on the same game with the dense reward. Table 5 allows 100,000 steps.\n\n" + table(header, lines)
        )


SECTIONS = (
    table_6,
    ranking,
    timing_section,
    steps_section,
    robustness_section,
    budget_section,
    algorithm_section,
)


def body(data: Data) -> Iterator[str]:
    """The page after its head, of what there is."""
    for section in SECTIONS:
        yield from section(data["results"])


def measure(results: Results) -> None:
    """Measure what is missing."""
    given, rows = results.given, results.part("results")
    results.data["episodes"] = given.episodes
    if not given.exact:
        results.need("--work", "for what is trained")
        for key, make, *arguments in jobs(given, results.data):
            if given.only is None or key.startswith(given.only):
                if key in drawn() and "curve" not in rows.get(key, {}):
                    rows.pop(key, None)
                results.once(rows, key, make, *arguments)
    if given.exact or given.only in (None, "exact"):
        seeds = draw_seeds(TEST, given.episodes)
        for name, ref in (victims_of(given)).items():
            results.once(rows, f"exact/{name}", exact, ref, seeds)


PAGE = Page(
    "resilience",
    "Resilience and robustness on CartPole",
    __doc__,
    measure,
    body,
    lambda data, folder: draw(data["results"], folder),
    page="resilience",
    options={
        **VICTIMS,
        **episode_options(100),
        **AGAIN,
        "--targets": {"type": Path, "help": "folder of the agents of Tables 2 to 4"},
        **WORK,
        "--only": {"choices": PARTS, "help": "one part of it"},
        "--exact": {"action": "store_true", "help": "the exact optimum, and nothing else"},
    },
    needs=["--victims"],
    partly=["--only", "--exact"],
)


if __name__ == "__main__":
    PAGE.main()
