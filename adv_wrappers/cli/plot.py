"""``plot``: curves over eps, or over another column, from the rows of a store or a folder."""

from __future__ import annotations

from pathlib import Path

import click

from adv_wrappers.cli.main import main
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.registry import CURVES_BY


@main.command("plot")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--x", default="eps", show_default=True, metavar="COLUMN",
    help="eps, seed, training_steps of a RobustnessCallback, or an argument of threats such as steps",
)  # fmt: skip
@click.option(
    "--y", default="return", show_default=True, metavar="COLUMN",
    help="return, regret, impact, length, loss, attacked, or a column of rows such as action_change",
)  # fmt: skip
@click.option("--hue", default="threat", show_default=True, type=click.Choice(CURVES_BY), help="what curves are by")
@click.option("--col", type=click.Choice(CURVES_BY), help="what panels are by  [default: one panel]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="for the figure: .png, .svg or .pdf")
@table_options
def plot(store: Path, x: str, y: str, hue: str, col: str | None, out: Path | None) -> None:
    """Draw curves from the rows of STORE, a file or a folder, and print their points."""
    from adv_wrappers.evaluation.curves import curves_of
    from adv_wrappers.rendering.plots import format_of
    from adv_wrappers.utils.files import probe_file

    if out is not None:
        format_of(out)
        probe_file(out)
    curves = curves_of(store, x, y, hue, col)
    if out is not None:
        curves.plot(out)
    print_table(curves.table(), curves.rows())
    if out is not None:
        say(f"the figure is in {out}")
