"""``certify``: what no attack takes from an agent, beside what attacks leave it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.options import load_agent
from adv_wrappers.cli.output import print_table, say, table_options
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command, option_type
from adv_wrappers.utils.validation import Expected, NotNegative


@command(
    "certify",
    "adv_wrappers.certification.ranges.certified_ranges",
    eps={"type": option_type(Expected(NotNegative).parts), "multiple": True},
    files=True,
)
@table_options
def certify_(env: str, eps: tuple[float, ...], out: Path | None, **given: Any) -> None:
    """Bound from below what attacks within a budget leave a victim in ENV, and attack the same episodes."""
    from adv_wrappers.certification.ranges import certified_ranges

    agent = load_agent(given, env=env)
    with show_progress() as move, resumable(out):
        found = certified_ranges(agent, env, eps, out=out, progress=move, **given)
    print_table(found.table(), [one.to_dict() for one in found.ranges])
    if out is not None:
        found.plot(out / "ranges.png")
        say(f"wrote {out / 'ranges.json'} and {out / 'ranges.png'}")
