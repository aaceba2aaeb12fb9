"""``plot``: curves over eps, or over another column, from the rows of a store or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.signatures import command


@command("plot", "adv_wrappers.evaluation.statistics.curves.curves_of", without=("source",))
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="for the figure: .png, .svg or .pdf")
@table_options
def plot(store: Path, out: Path | None, **given: Any) -> None:
    """Draw curves from the rows of STORE, a file or a folder, and print their points."""
    from adv_wrappers.evaluation.statistics.curves import curves_of
    from adv_wrappers.rendering.plots import format_of
    from adv_wrappers.utils.files import probe_file

    if out is not None:
        format_of(out)
        probe_file(out)
    curves = curves_of(store, **given)
    if out is not None:
        curves.plot(out)
    print_table(curves.table(), curves.rows())
    if out is not None:
        say(f"the figure is in {out}")
