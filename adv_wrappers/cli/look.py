"""``look``: pictures of what threats do to one observation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adv_wrappers.cli.completion import complete_threat, complete_victim
from adv_wrappers.cli.main import main
from adv_wrappers.cli.options import SEED, STATS, TRUST, EnvArguments, environment_options, load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.utils.files import probe_file

if TYPE_CHECKING:
    from adv_wrappers.environments.named_function import MakeFunction
    from adv_wrappers.rendering.contact_sheet import ThreatComparison


@main.command("look")
@environment_options
@click.option(
    "--threat",
    "threats",
    multiple=True,
    metavar="TEXT",
    shell_complete=complete_threat,
    help="again for more columns; ' + ' between threats makes a stack  [default: the six daylight transforms]",
)
@click.option(
    "--victim", metavar="REF", help="who plays, and is attacked  [default: random actions]",
    shell_complete=complete_victim("card", "sb3"),
)  # fmt: skip
@STATS
@TRUST
@click.option("--step", default=100, show_default=True, type=click.IntRange(min=0), help="played before the picture")
@SEED
@click.option("--raw", is_flag=True, help="the colour screen of an Atari game, not the observation of agents")
@click.option(
    "--out",
    default=Path("sheet.png"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="a second figure, of the spectra, is put beside it",
)
@table_options
def look_(
    env: str,
    env_kwargs: EnvArguments | None,
    make: MakeFunction | None,
    threats: tuple[str, ...],
    victim: str | None,
    stats: str | None,
    trust: bool,
    step: int,
    seed: int,
    raw: bool,
    out: Path,
) -> None:
    """Show what threats do to one observation of ENV: pictures, spectra and distances."""
    from adv_wrappers.evaluation.threat_comparison import compare_threats
    from adv_wrappers.rendering.contact_sheet import draw_contact_sheet, draw_spectra
    from adv_wrappers.rendering.plots import format_of

    format_of(out, ("png",))
    probe_file(out)
    agent = None if victim is None else load_agent(victim, trust, stats)
    comparison = compare_threats(
        env, list(threats) or None, agent, step=step, seed=seed, raw=raw, env_kwargs=env_kwargs, make=make
    )
    spectrum = out.with_name(f"{out.stem}-spectrum{out.suffix}")
    draw_contact_sheet(comparison, out)
    draw_spectra(comparison, spectrum)
    _show(comparison)
    say(f"wrote {out} and {spectrum}")


def _show(comparison: ThreatComparison) -> None:
    from adv_wrappers.rendering.contact_sheet import decibels, distance_text
    from adv_wrappers.rendering.fourier_spectrum import BANDS
    from adv_wrappers.rendering.text_table import TextTable

    lines, rows = list[tuple[str, ...]](), list[dict[str, object]]()
    for (name, numbers), row, bands in zip(comparison.names, comparison.distances, comparison.bands(), strict=True):
        values = [row[key] for key in ("l2", "linf", "ssim", "psnr")]
        words = ["-" if value is None or math.isinf(value) else distance_text(value) for value in values]
        lines.append((" ".join([name, *numbers]), *words, *(decibels(change) for change in bands.values())))
        bands_by_name = {f"{band}_band": change for band, change in bands.items()}
        rows.append({"threat": " ".join([name, *numbers]), **row, **bands_by_name})
    say(f"{comparison.title}\n")
    if comparison.under:
        say(f"as it comes: {' + '.join(comparison.under)}; threats are applied to that\n")
    columns = ("threat", "l2", "linf", "ssim", "psnr", *(f"{name} band" for name in BANDS))
    print_table(TextTable("", columns, tuple(lines)), rows)
