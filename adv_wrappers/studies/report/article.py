"""What a page is made of, an article a report, and how it becomes one file of HTML that needs nothing else.

An article has sections, a section has parts: tables, charts, texts, commands, pictures. Names of agents, environments
and threats are texts of strangers: the templates escape all of them, and the page's own content security policy lets
nothing be loaded and no script run but the one that stands in it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adv_wrappers.errors import OutputError
from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.studies.report.charts import LineChart, Table, eps_text
from adv_wrappers.utils.files import probe_file
from adv_wrappers.utils.number_text import number_text

if TYPE_CHECKING:
    import jinja2

GENERATOR = "adv_wrappers report"  # of the meta tag by which a page is known as ours
LARGEST_PICTURES = 2_000_000  # bytes of a page's pictures
PICTURES = {".png": "image/png", ".webp": "image/webp"}  # which may move
DASH = "\N{EN DASH}"


class Paragraph(NamedTuple):
    """A text; ``style`` is a class of the style sheet, or ``h3`` for a heading."""

    words: str
    style: str = ""
    kind: str = "text"


class Listing(NamedTuple):
    """Things one below the other, each a text and the command that does it, or ""; numbered where there is an order."""

    items: Sequence[tuple[str, str]]
    style: str = "plain"
    kind: str = "listing"


class Facts(NamedTuple):
    """Names and the lines of text that belong to them."""

    items: Mapping[str, Sequence[str]]
    kind: str = "facts"


class Command(NamedTuple):
    """A command that can be copied."""

    words: str
    kind: str = "command"


class Details(NamedTuple):
    """A part that is shown where a reader asks for it."""

    summary: str
    part: Part
    kind: str = "details"


class Pictures(NamedTuple):
    """Pictures beside each other, by what they show their address; a film is shown where a reader asks for it."""

    title: str
    uris: Mapping[str, str]
    film: bool = False
    kind: str = "pictures"


Part = Table | LineChart | Paragraph | Listing | Facts | Command | Details | Pictures


class Section(NamedTuple):
    """A section of an article; ``key`` is what its id ends with."""

    key: str
    title: str
    parts: Sequence[Part]


def cell_text(value: float | None, form: str = "return") -> str:
    """A number of a column of a form (:class:`.Column`); a dash where there is none."""
    if value is None:
        return DASH
    if form in ("share", "eps"):
        return f"{100 * value:.0f}%" if form == "share" else eps_text(value)
    text = number_text(value + 0.0)  # which is never -0
    return ("+" if form == "signed" and value > 0 else "") + text.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Article:
    """What a page says of one report, or of two that are compared.

    Attributes:
        id: what the ids of its elements begin with.
        what: it is.
        title, about: its name, and what stands beside that.
        sentence: what it says first.
        headline: its number, of a :class:`.Verdict`, or a small table in place of one, or None.
        facts: names and values below the sentence.
        sections: those that have something in them.
        finished: whether nothing is missing.
        notes: what else is to be known first.
    """

    id: str
    what: str
    title: str
    about: str
    sentence: str
    headline: MeanWithInterval | Table | None
    facts: Mapping[str, str]
    sections: Sequence[Section]
    finished: bool = True
    notes: Sequence[str] = ()


def embedded(folder: Path | None, file: str) -> str:
    """A picture or film in a folder as a data URI; "" where none is there."""
    path = (folder or Path()) / file
    kind = PICTURES.get(path.suffix.lower())
    try:
        if kind is None or not path.is_file():
            return ""
        # of one that is too large by itself as much as shows that
        return f"data:{kind};base64,{base64.b64encode(path.read_bytes()[: 2 * LARGEST_PICTURES]).decode()}"
    except OSError:
        return ""


def render(template: str, **values: Any) -> bytes:
    """A page of a template, with its style and script inside."""
    from markupsafe import Markup

    folder = resources.files(__package__) / "templates"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = _templates().get_template(template)
    text = page.render(
        generator=GENERATOR, style=Markup(style), script=Markup(script), script_hash=f"sha256-{digest}", **values
    )
    return text.encode()


@functools.cache
def _templates() -> jinja2.Environment:
    """The templates, which are compiled once for all pages of a program."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # long texts may break behind commas and slashes
    environment.filters["cell"] = cell_text
    environment.filters["breakable"] = lambda text: Markup("<wbr>").join(
        re.split(r"(?<=[,:])(?=[\w-]+=)|(?<=[/;])", str(text))
    )
    environment.tests["mean"] = lambda value: isinstance(value, MeanWithInterval)
    return environment


def check_target(path: Path) -> None:
    """Raise :class:`OutputError` unless a page can be written there, now: over a page of ours, or where nothing is."""
    probe_file(path)
    if path.exists():
        try:
            with path.open("rb") as file:
                head = file.read(2000)
        except OSError as error:
            raise OutputError(f"cannot read {path}, which is there already: {error.strerror}") from error
        if f'<meta name="generator" content="{GENERATOR}">'.encode() not in head:
            raise OutputError(f"{path} is there and is no page of adv_wrappers: give the name of another file")
