"""The picture of the folders: their order is that of ``tests/test_layers.py``, their notes stand at their heads."""

from __future__ import annotations

import ast
import re
import textwrap
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
ROW, LEFT, WIDTH = 34, 126, 940  # pixels: height of a floor, where boxes begin, width of the picture
# the first floor of every group, from below
GROUPS = {
    "errors": "Foundation", "networks": "Mathematics", "core": "Engine", "victims": "Victims", "attacks": "Threats",
    "environments": "Environments", "rendering": "Results", "training": "Training", "studies": "Studies",
    "public": "Users",
}  # fmt: skip
STYLE = """
.adv-map text { font-family: ui-sans-serif, system-ui, sans-serif; fill: var(--color-foreground-primary, #1f2430); }
.adv-map .name { font-family: ui-monospace, monospace; font-weight: 600; font-size: 14px; }
.adv-map .note { font-size: 12.5px; fill: var(--color-foreground-secondary, #5a6170); }
.adv-map .group { font-weight: 600; font-size: 13px; fill: var(--color-foreground-secondary, #5a6170); }
.adv-map .band { fill: var(--color-background-secondary, #f5f6f9); stroke: var(--color-background-border, #d8dbe3); }
.adv-map .box { fill: var(--color-background-primary, #ffffff); stroke: var(--color-foreground-muted, #8a90a0); }
"""


def floors() -> list[tuple[str, ...]]:
    """The names of every floor, from below, as ``FLOORS`` of ``tests/test_layers.py`` has them."""
    text = (HERE.parent / "tests" / "test_layers.py").read_text(encoding="utf-8")
    listed = ast.literal_eval(re.search(r"^FLOORS = (\[.*?^\])", text, re.MULTILINE | re.DOTALL)[1])  # type: ignore[index]
    return [(floor,) if isinstance(floor, str) else floor for floor in listed]


def described(name: str) -> tuple[str, str]:
    """A folder with its slash or a file with its ending, and what its head says; of a file in a folder, that folder."""
    folder, _, module = name.rpartition(".")
    if folder:
        return f"{module}.py", f"in {folder}/"
    path = HERE.parent / "adv_wrappers" / name
    label, file = (f"{name}/", path / "__init__.py") if path.is_dir() else (f"{name}.py", path.with_suffix(".py"))
    said = str(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))))
    return label, said.partition("\n")[0].replace("`", "").rstrip(".")


def text(kind: str, x: float, y: float, said: str) -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(said)}</text>'


def rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    """A rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def floor_of(names: tuple[str, ...], y: float) -> tuple[list[str], float]:
    """The boxes of one floor, whose upper edge is at ``y``, and their height."""
    width = (WIDTH - 16 - LEFT) / len(names)
    alone = len(names) == 1
    said = [(label, textwrap.wrap(note, 96 if alone else 36)) for label, note in map(described, names)]
    height = ROW - 6 + 16 * (max(len(lines) for _, lines in said) - alone)
    out = []
    for place, (name, lines) in enumerate(said):
        x = LEFT + place * width
        out += [rectangle("box", x, y, width - 6, height), text("name", x + 12, y + 19, name)]
        for row, line in enumerate(lines):
            out.append(text("note", x + (170 if alone else 12), y + 19 + 16 * (row + (not alone)), line))
    return out, height


def drawn() -> str:
    """The picture, as SVG in the colours of the page."""
    y = 10.0
    bands, boxes = list[str](), list[str]()
    bottom = y
    for names in reversed(floors()):
        found, height = floor_of(names, y)
        boxes += found
        y += height + 6
        if names[0] in GROUPS:
            band = rectangle("band", 8, bottom - 5, WIDTH - 16, y - bottom + 4)
            bands += [band, text("group", 18, (bottom + y) / 2 + 2, GROUPS[names[0]])]
            y += 12
            bottom = y
    head = (
        f'<svg class="adv-map" viewBox="0 0 {WIDTH} {y - 8:g}" width="100%" style="max-width:{WIDTH}px" '
        'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="The folders of adv_wrappers; imports go down only">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *bands, *boxes, "</svg>", ""])
