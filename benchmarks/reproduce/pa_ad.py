"""Attacks on MuJoCo agents in the shape of Table 2 of PA-AD (Sun et al. 2022): what an agent earns under each.

    python benchmarks/reproduce/pa_ad.py --victims FOLDER --work FOLDER

trains what is missing in the work folder, evaluates every row over the same 50 episodes, and writes ``pa_ad.json`` as
results come and ``pa_ad.md``. A run that is interrupted goes on where it stopped. ``--long`` trains seeds 0 to 2 for
two million steps on two of the rows.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from adversaries import EVERY, ROWS, Job, Row, record_of, train_all
from figures import command, done, kept, load, machine, of_row, options, save, table, write

import adv_wrappers as adv

LONG = ("zoo-hopper-ppo-0.075", "saddpg-hopper-vanilla-0.075")
COLUMNS = ("none", "noise", "max-diff", "robust-sarsa", "sa-rl", "pa-ad")
MORE = {"saddpg-hopper-vanilla-0.075": 3}  # rows whose PA-AD in the form of a direction has more than one seed


def jobs_of(row: Row, steps: int) -> list[Job]:
    """Two trainings of SA-RL, and one of PA-AD in each of its forms."""
    directions = [Job(row, "pa-ad", "direction", seed, steps) for seed in range(MORE.get(row.name, 1))]
    targets = [Job(row, "pa-ad", "target", 0, steps)]
    return [*directions, *targets, *(Job(row, "sa-rl", None, seed, steps) for seed in (0, 1))]


def long_jobs(row: Row) -> list[Job]:
    """Three seeds of each kind, two million steps."""
    return [Job(row, kind, form, seed, 2_000_000) for kind, form in KINDS for seed in range(3)]


PAPER = (
    ("Hopper", 0.075, 3167, 2101, 1410, 794, 636, 160), ("Walker2d", 0.05, 4472, 3007, 2869, 1336, 1086, 804),
    ("HalfCheetah", 0.15, 7117, 5486, 1836, 489, -660, -356), ("Ant", 0.15, 5687, 5261, 1759, 268, -872, -2580),
)  # fmt: skip
KINDS = (("sa-rl", None), ("pa-ad", "target"))


def best_of(jobs: list[Job], work: Path) -> tuple[dict[str, Any], Job]:
    """The strongest checkpoint of several trainings, and whose it is; on the episodes that trainings choose on."""
    found = [(min(record_of(job.folder(work)), key=lambda point: point["mean_return"]), job) for job in jobs]
    return min(found, key=lambda pair: pair[0]["mean_return"])


def critic_of(row: Row, victim: adv.Victim, work: Path, seed: int) -> tuple[Any, str]:
    """Robust Sarsa's strongest critic: the scan's, or the one that the victim brings; and how it was chosen."""
    within = adv.Linf(row.eps, scale="victim")
    scan = adv.scan_critics(victim, row.env, within=within, episodes=20, seed=seed, out=work / row.name / "critics")
    chosen = scan.chosen.threats[1 + scan.best]["mean_return"]
    if victim.robust_sarsa is None:
        return adv.RobustSarsa(victim, critic=scan.critic), scan.protocol
    own = adv.evaluate(victim, row.env, [adv.ThreatModel("observation", adv.RobustSarsa(victim), within)], 20, 1 + seed)
    left = own.threats[1]["mean_return"]
    words = f"{scan.protocol}; the card's own critic {left:.0f} on the former episodes"
    return (adv.RobustSarsa(victim) if left < chosen else adv.RobustSarsa(victim, critic=scan.critic)), words


def evaluate(row: Row, jobs: list[Job], arguments: argparse.Namespace) -> dict[str, Any]:
    """One row: every attack over the same episodes."""
    victim, work = row.load(arguments.victims), arguments.work
    within = adv.Linf(row.eps, scale="victim")
    threats: dict[str, Any] = {"noise": adv.Noise(), "max-diff": adv.MaxDiff(victim)}
    about: dict[str, Any] = {}
    threats["robust-sarsa"], about["robust-sarsa"] = critic_of(row, victim, work, arguments.seed)
    for kind in ("sa-rl", "pa-ad"):
        mine = [job for job in jobs if job.kind == kind]
        point, job = best_of(mine, work)
        threats[kind] = adv.Learned(card=str(job.folder(work)), victim=victim)
        runs = sorted({other.setting for other in mine})
        about[kind] = (
            f"best of {len(mine)} trainings ({', '.join(runs)}) with a checkpoint every {EVERY // 1000}k steps: "
            f"{job.setting}, seed {job.seed}, {point['steps'] // 1000}k steps ({point['mean_return']:.0f} when chosen)"
        )
    models = [adv.ThreatModel("observation", how, within) for how in threats.values()]
    report = adv.evaluate(victim, row.env, models, arguments.episodes, arguments.seed, num_envs=50).to_dict()
    rows = {name: kept(line) for name, line in zip(["none", *threats], report["threats"], strict=True)}
    trainings = [
        {"setting": job.setting, "seed": job.seed, "steps": job.steps, "record": record_of(job.folder(work))}
        for job in jobs
    ]
    return {
        "episodes": arguments.episodes, "seed": arguments.seed, "victim": row.victim, "env": row.env, "eps": row.eps,
        "rows": rows, "about": about, "trainings": trainings, "versions": report["versions"],
        "warnings": report["warnings"],
    }  # fmt: skip


def cells(result: dict[str, Any]) -> list[str]:
    """Mean and standard deviation of every column, the lowest mean in bold."""
    means = {name: result["rows"][name]["mean_return"] for name in COLUMNS if name in result["rows"]}
    low = min(means.values())
    texts = []
    for name in COLUMNS:
        line = result["rows"].get(name)
        text = "" if line is None else f"{line['mean_return']:.0f} +- {line['std']:.0f} ({line['median']:.0f})"
        texts.append(f"**{text}**" if means.get(name) == low else text)
    return texts


def verdict(result: dict[str, Any]) -> str:
    """Whether PA-AD is the strongest of a row."""
    rows = {name: result["rows"][name] for name in COLUMNS}
    best = min(rows, key=lambda name: rows[name]["mean_return"])
    if best == "pa-ad":
        return "yes"
    overlap = of_row(rows[best]).overlaps(of_row(rows["pa-ad"]))
    return f"within the intervals of {best}" if overlap else f"no: {best} is"


def line_of(run: dict[str, Any]) -> list[Any]:
    """One training."""
    record, soon = run["record"], [p["mean_return"] for p in run["record"] if p["steps"] <= 350_000 + EVERY // 2]
    best, last = min(record, key=lambda point: point["mean_return"]), record[-1]
    return [
        run["setting"], run["seed"], f"{last['steps'] // 1000}k", f"{min(soon):.0f}", f"{best['mean_return']:.0f}",
        f"{best['median']:.0f}", f"{best['steps'] // 1000}k", f"{last['seconds'] / last['steps'] * 1e6 / 60:.1f}",
    ]  # fmt: skip


def unfinished(data: dict[str, Any]) -> str:
    """How many trainings were still gaining when they ended."""
    runs = [run for key in ("short", "long") for r in (data.get(key) or {}).values() for run in r["trainings"]]
    parts = []
    for kind, name in (("sa-rl", "SA-RL"), ("pa-ad", "PA-AD")):
        records = [run["record"] for run in runs if run["setting"].startswith(kind)]
        last = sum(record[-1]["mean_return"] <= min(p["mean_return"] for p in record) for record in records)
        parts.append(f"{last} of {len(records)} of {name}")
    return f"A training whose best checkpoint is its last had not ended: {' and '.join(parts)}."


def markdown(data: dict[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# PA-AD and the other attacks on MuJoCo agents",
        f"Made by `{data['command']}`\n\non {data['machine']}.",
        "What an agent earns over the same 50 episodes: mean +- standard deviation (median), in the shape of the "
        "paper's Table 2; the lowest mean of a row is bold. eps is that of "
        '`Linf(eps, scale="victim")`, in normalised observations. MaxDiff and Robust Sarsa take 10 steps, the actor of '
        "PA-AD five of 0.4 eps. Our noise is uniform over the budget; the paper does not say which noise this table of "
        "its has.",
        "**How the figures were chosen.** A learned attack's figure is that of the best checkpoint of a few trainings, "
        "Robust Sarsa's that of the best of a few critics; how many stands under every table. Checkpoints are compared "
        "over 30 episodes, critics over 20, on seeds apart from those of the table. PA-AD has two trainings, as SA-RL "
        "has, and on saddpg-hopper four. The paper's figures are the best of 30 settings (Robust Sarsa) and 50 "
        "trainings (PA-AD).",
        "The paper's Table 2 for its own vanilla PPO agents, in older environments:\n\n"
        + table(["environment", "eps", "none", "noise", "MaxDiff", "Robust Sarsa", "SA-RL", "PA-AD"], PAPER),
    ]
    for title, key in (("500k steps", "short"), ("Two million steps, three seeds", "long")):
        results = data.get(key) or {}
        if not results:
            continue
        lines = [[r["victim"], r["env"], f"{r['eps']:g}", *cells(r), verdict(r)] for r in results.values()]
        header = ["victim", "environment", "eps", "none", "noise", "MaxDiff", "Robust Sarsa", "SA-RL", "PA-AD",
                  "PA-AD strongest"]  # fmt: skip
        notes = [f"- {name}, {attack}: {words}." for name, r in results.items() for attack, words in r["about"].items()]
        parts += [f"## {title}\n\n" + table(header, lines), "\n".join(notes)]
    runs = [
        [name, *line_of(run)]
        for key in ("short", "long") for name, r in (data.get(key) or {}).items() for run in r["trainings"]
    ]  # fmt: skip
    header = ["row", "setting", "seed", "steps", "best mean by 350k", "best mean", "its median", "at",
              "minutes per million steps"]  # fmt: skip
    parts.append(
        "## Every training\n\nThe best checkpoint of each on the choosing episodes, and the processor's minutes per "
        f"million steps (checkpoints left out; one thread). {unfinished(data)}\n\n" + table(header, runs)
    )
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Train and evaluate what is missing, then write the page."""
    parser = options(__doc__, episodes=50)
    parser.add_argument("--work", type=Path, required=True, help="folder of trainings")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--only", nargs="+", metavar="ROW", help=", ".join(row.name for row in ROWS))
    parser.add_argument("--long", action="store_true", help=f"{', '.join(LONG)}: 2M steps and three seeds")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="gymnasium")
    wanted = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    plan = {row.name: (row, jobs_of(row, arguments.steps), "short") for row in wanted}
    if arguments.long:
        plan = {row.name: (row, long_jobs(row), "long") for row in wanted if row.name in LONG}
    path, line = arguments.out / "pa_ad.json", command(sys.argv[1:])
    for name, (row, jobs, key) in plan.items():
        data = load(path) or {}
        if done(data.get(key, {}).get(name), arguments):
            continue
        train_all(jobs, arguments.victims, arguments.work, arguments.processes)
        result = evaluate(row, jobs, arguments)
        data = {"command": line, "machine": machine(), **{k: data.get(k, {}) for k in ("short", "long")}}
        data[key] = {r.name: {**data[key], name: result}[r.name] for r in ROWS if r.name in {*data[key], name}}
        save(path, data)
        write(arguments.out / "pa_ad.md", markdown(data))
        print(name, *(f"{column} {of_row(result['rows'][column])}" for column in COLUMNS), sep="\n  ", flush=True)
    if path.exists():
        write(arguments.out / "pa_ad.md", markdown(load(path)))


if __name__ == "__main__":
    main()
