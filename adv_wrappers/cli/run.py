"""``run``: the cells of a plan, in this process, in several, or on a Ray cluster, into a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.interruption import Interrupted
from adv_wrappers.cli.output import json_asked, print_columns, print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command
from adv_wrappers.errors import TrustError

if TYPE_CHECKING:
    from adv_wrappers.evaluation.rows.row import Row
    from adv_wrappers.studies import RunSummary, Store
    from adv_wrappers.studies.plan_cells import Expansion, PlanCell

_OF_A_RUN = ("seed", "episode_seeds", "git")  # which differ between rows that are counted together
_MOST_LINES = 200  # of the table: a store of more is read by Store.reports()
_COLUMNS = {
    "victim": "victim", "environment": "environment", "threat": "threat", "return": "mean_return",
    "std over seeds": "std_over_seeds", "lowest": "lowest", "seeds": "seeds", "episodes": "episodes",
}  # fmt: skip
_BY_IMPORTANCE = ("threat", "return", "victim", "std over seeds", "seeds", "environment", "lowest")


@command(
    "run",
    "adv_wrappers.evaluation.evaluate.evaluate:workers",
    "adv_wrappers.studies.ray_cluster.RayActors:actors,gpus",
)
@click.argument("plan", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option(
    "--store",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="for the rows; the same command plays only what it lacks",
)
@click.option("--ray", metavar="ADDRESS", help="play on a Ray cluster: local, auto, or its address")
@click.option("--dry-run", is_flag=True, help="play some cells, time steps of others, and say what all take")
@click.option(
    "--trust",
    is_flag=True,
    help="import the modules of environments that cards name, and with --dry-run what PLAN names: for your own files",
)
@table_options
def run_(
    plan: Path,
    store: Path,
    workers: int,
    ray: str | None,
    actors: int | None,
    gpus: float,
    dry_run: bool,
    trust: bool,
) -> None:
    """Play the cells of PLAN, a .toml or .json file, that the store does not hold."""
    if ray is None and (actors is not None or gpus):
        raise click.UsageError("--actors and --gpus go with --ray")
    if ray is not None and workers > 1:
        raise click.UsageError("--workers are processes of this machine: give --actors with --ray")
    from adv_wrappers.studies import Plan, Store, expand
    from adv_wrappers.studies.run_time import estimate

    # timing a plan runs what it names, so its file has to be trusted
    whole = Plan.load(plan)
    if dry_run and not trust and whole.code:
        raise TrustError(
            f"--dry-run times some steps of the cells, which runs what {plan} names: {', '.join(whole.code)}. For a "
            f"plan of your own: --dry-run --trust"
        )
    cells = expand(whole, trust=trust)
    for name, reason in cells.left_out.items():
        say(f"left out: {name}: {reason}")
    # what takes long is said before it begins
    trained = sorted({cell.recipe.entry for cell in cells.cells if cell.recipe is not None and cell.recipe.trained})
    with Store(store) as opened:
        if trained:
            say(f"trains {', '.join(trained)}, for minutes to hours each, and keeps them in {opened.trainings}")
        if dry_run:
            cost = estimate(cells, opened)
            parts = (part.to_dict() for part in cost.parts)
            print_table(cost.table(workers), parts)
            return
        try:
            summary = _played(cells, opened, workers, ray, actors, gpus)
        except KeyboardInterrupt:
            count = len(opened.done(cell.key for cell in cells.cells))
            kept = f"{count} of {len(cells.cells)} rows are in {opened.path}"
            raise Interrupted(f"{kept}; the same command plays only the others") from None
        _show(opened, cells.cells)
    # what failed makes the exit status
    for name, error in summary.failed.items():
        click.echo(f"failed: {name}: {error}", err=True)
    say(f"{summary}; rows are in {store}")
    if summary.failed:
        raise SystemExit(1)


def _played(
    cells: Expansion, store: Store, workers: int, ray: str | None, actors: int | None, gpus: float
) -> RunSummary:
    """Run a plan, and show how far it is."""
    from adv_wrappers.studies import run
    from adv_wrappers.studies.ray_cluster import RayActors
    from adv_wrappers.studies.runner import cell_progress

    with show_progress() as move:
        # in this process and its workers, or on a cluster
        if ray is None:
            return run(cells, store, workers, progress=cell_progress(move))
        with closing(RayActors(ray, actors, gpus)) as cluster:
            return run(cells, store, cluster, progress=cell_progress(move))


def _show(store: Store, cells: Iterable[PlanCell]) -> None:
    """Print the rows of these cells: for every victim, environment, threat and setting the mean over seeds."""
    groups: dict[str, tuple[dict[str, Any], list[Row]]] = {}
    known = {cell.key: cell.recipe for cell in cells}
    for played in store.played():
        if played.key not in known:
            continue
        # rows that differ in their seed alone are one line
        about = dict(played.about or {})
        row = played.row
        recipe = known[played.key]
        assert row is not None  # those that failed are not among them
        setting = {name: value for name, value in about.items() if name not in _OF_A_RUN}
        if recipe is not None and recipe.trained:
            row = replace(row, threat=f"{row.threat} ({recipe.steps} steps, seed {recipe.seed})")
        made = row.layers if recipe is None else recipe.identity
        group = json.dumps([setting, row.threat, row.best_of, made], sort_keys=True)
        groups.setdefault(group, (about, []))[1].append(row)
    if len(groups) > _MOST_LINES and not json_asked():
        say(f"{len(groups)} lines are too many for a table: --json and Store({str(store.path)!r}).reports() have them")
        return
    lines = [_over_seeds(about, rows) for about, rows in groups.values()]
    print_columns(lines, _COLUMNS, texts=("victim", "environment", "threat"), by_importance=_BY_IMPORTANCE)


def _over_seeds(about: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    """One line of the table, from the rows of several seeds."""
    import numpy as np

    from adv_wrappers.environments.environment import environment_text
    from adv_wrappers.evaluation.rows.report import victim_text

    means = np.array([row.mean_return for row in rows], np.float64)
    return {
        "victim": victim_text(about),
        "environment": environment_text(about["env"]),
        "threat": rows[0].threat,
        "mean_return": float(means.mean()),
        "std_over_seeds": float(means.std(ddof=1)) if len(means) > 1 else None,
        "lowest": float(means.min()),
        "seeds": len(rows),
        "episodes": sum(row.episodes for row in rows),
    }
