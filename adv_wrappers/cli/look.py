"""``look``: pictures of what threats do to one observation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adv_wrappers.cli.completion import complete_env, complete_victim
from adv_wrappers.cli.options import load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.signatures import command
from adv_wrappers.utils.files import probe_file

if TYPE_CHECKING:
    from adv_wrappers.rendering.contact_sheet import ThreatComparison


@command(
    "look",
    "adv_wrappers.evaluation.perturbed_samples.compare_threats",
    without=("source",),
    victim={
        "help": "who plays, and is attacked; None takes random actions",
        "shell_complete": complete_victim("card", "sb3"),
    },
)
@click.argument("env", shell_complete=complete_env)
@click.option(
    "--out",
    default=Path("sheet.png"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="a second figure, of the spectra, is put beside it",
)
@table_options
def look_(env: str, out: Path, **given: Any) -> None:
    """Show what threats do to one observation of ENV: pictures, spectra and distances."""
    from adv_wrappers.evaluation.perturbed_samples import compare_threats
    from adv_wrappers.rendering.contact_sheet import draw_contact_sheet, draw_spectra
    from adv_wrappers.rendering.plots import format_of

    format_of(out)
    probe_file(out)
    comparison = compare_threats(env, victim=load_agent(given), **given)
    spectrum = out.with_name(f"{out.stem}-spectrum{out.suffix}")
    draw_contact_sheet(comparison, out)
    draw_spectra(comparison, spectrum)
    _show(comparison)
    say(f"wrote {out} and {spectrum}")


def _show(comparison: ThreatComparison) -> None:
    from adv_wrappers.rendering.contact_sheet import decibels, distance_text
    from adv_wrappers.rendering.fourier_spectrum import BANDS
    from adv_wrappers.rendering.table import TextTable

    # a line for each threat: how far it moves the picture, and how much power each band gains
    lines, rows = list[tuple[str, ...]](), list[dict[str, object]]()
    for (name, numbers), row, bands in zip(comparison.names, comparison.distances, comparison.bands(), strict=True):
        values = [row[key] for key in ("l2", "linf", "ssim", "psnr")]
        words = ["-" if value is None or math.isinf(value) else distance_text(value) for value in values]
        lines.append((" ".join([name, *numbers]), *words, *(decibels(change) for change in bands.values())))
        bands_by_name = {f"{band}_band": change for band, change in bands.items()}
        rows.append({"threat": " ".join([name, *numbers]), **row, **bands_by_name})
    say(f"{comparison.title}\n")
    columns = ("threat", "l2", "linf", "ssim", "psnr", *(f"{name} band" for name in BANDS))
    print_table(TextTable("", columns, tuple(lines)), rows)
