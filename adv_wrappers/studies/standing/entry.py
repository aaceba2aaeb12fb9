"""What a standing knows of one agent, and the file that keeps it in the agent's folder.

An entry may come from strangers, with a store or a pull request: what a file lacks or has in another form is an error
that names the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.studies.report.choices import CertifiedReturn
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.reading import decoding, read_result, value_of

ENTRY_FILE = "entry.json"  # in the folder of an agent, beside its rows
SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,79}")


@dataclass(frozen=True)
class AttackedMean(MeanWithInterval):
    """The mean return under one attack, or under none.

    Attributes:
        threat: its text.
        seconds: of playing.
        added: whether the attack is not one of the standing's own.
        episodes: how many, where they are not those of the entry; None where they are.
    """

    threat: str
    seconds: float
    added: bool = False
    episodes: int | None = None


@dataclass
class StandingEntry:
    """An agent in a standing; filled in while it is measured.

    Attributes:
        name, licence, claim: what its submission says.
        environment: ``id`` and ``kwargs``, as a report has them.
        budget: in words.
        given_budget: ``[eps, scale]`` of the submission, ``[None, None]`` where the table has the environment's.
        victim: its fingerprint and what else a report says of it.
        trained_with, training_seconds: what its card says of its training; None where it says nothing.
        episodes, seed: of all rows.
        attacks: by name.
        clean: without an attack; None before it was played.
        left_out: by the name of an attack, why it has no row.
        left_out_seconds: of those among them that did not fit into the time, how long they take.
        certificate: None where there is none, of which ``no_certificate`` is the reason.
        warnings, versions: of the report of its rows.
        elsewhere: attacks that other pages have of the agent, by name; not in the file.
    """

    name: str
    licence: str
    claim: str
    environment: Mapping[str, Any]
    budget: str
    given_budget: Sequence[Any]
    victim: Mapping[str, Any]
    trained_with: str | None
    training_seconds: float | None
    episodes: int
    seed: int
    attacks: dict[str, AttackedMean]
    clean: AttackedMean | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    left_out_seconds: dict[str, float] = field(default_factory=dict)
    certificate: CertifiedReturn | None = None
    no_certificate: str | None = None
    warnings: list[str] = field(default_factory=list)
    versions: Mapping[str, str] = field(default_factory=dict)
    elsewhere: dict[str, AttackedMean] = field(default_factory=dict)

    @property
    def env_id(self) -> str:
        """The id of the environment."""
        return str(self.environment["id"])

    @property
    def noise(self) -> AttackedMean | None:
        """The mean under noise, the baseline; None where it was not played."""
        return self.attacks.get("noise")

    @property
    def strongest(self) -> tuple[str, AttackedMean] | None:
        """Name and figures of the attack that leaves the lowest mean; None where none but noise was played.

        Noise alone is a baseline, and no attack: an agent is not ranked by it, but it counts where it alone is the
        lowest. Attacks that other pages have count like the agent's own.
        """
        found = {**self.attacks, **self.elsewhere}
        if not {*found} - {"noise"}:
            return None
        return min(found.items(), key=lambda pair: (pair[1].mean, pair[0] == "noise"))

    @property
    def attacks_played(self) -> tuple[int, int]:
        """How many of the standing's attacks have a row, and how many others were added."""
        added = sum(one.added for one in self.attacks.values())
        return len(self.attacks) - added, added

    @property
    def attack_seconds(self) -> float:
        """Seconds of playing all attacks."""
        return sum(one.seconds for one in self.attacks.values())

    @property
    def weights(self) -> str:
        """The first digits of the fingerprint of its weights."""
        return str(self.victim["fingerprint"])[:12]

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON has it."""
        found = {"schema": SCHEMA, **asdict(self)}
        del found["elsewhere"]
        for row in [*found["attacks"].values(), *([found["clean"]] if found["clean"] else [])]:
            for name in ("added", "episodes"):  # said where they say something
                if not row[name]:
                    del row[name]
        return found

    @classmethod
    def from_dict(cls, data: Any, where: str = "an entry of a standing") -> StandingEntry:
        """The entry of :meth:`to_dict`; :class:`ValueRangeError` for what is none, naming ``where`` it was read."""
        with decoding(where, ValueRangeError):
            given = dict(data)
            if (form := given.pop("schema")) != SCHEMA:
                raise ValueRangeError(f"it has form {form!r:.80} and not {SCHEMA}")
            entry: StandingEntry = value_of(StandingEntry, given)
            _ = entry.environment["id"], entry.victim["fingerprint"]
            return entry

    def write(self, folder: Path) -> None:
        """Write the entry into the folder of its agent, whole or not at all."""
        write_json(folder / ENTRY_FILE, self.to_dict())


def is_name(name: object) -> bool:
    """Whether a text may be the name of an agent, and so of its folder and page."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def read_entry(folder: Path) -> StandingEntry | None:
    """The entry of an agent's folder; None where there is none.

    Raises:
        ValueRangeError: for one that is damaged.
    """
    path = folder / ENTRY_FILE
    if not path.exists():
        return None
    return StandingEntry.from_dict(read_result(path), str(path))


def read_entries(store: str | Path) -> list[StandingEntry]:
    """The entries of a standing, by environment, and in each the highest mean under the strongest attack first.

    Raises:
        ValueRangeError: for a folder without any, an entry that cannot be read, and one of another name than its
            folder, by which pages are named.
    """
    folders = [path.parent for path in sorted(Path(store).glob(f"*/{ENTRY_FILE}"))]
    found = {folder: entry for folder in folders if (entry := read_entry(folder)) is not None}
    if not found:
        raise ValueRangeError(f"{store} holds no agent of a standing: adv-wrappers standing add")
    for folder, entry in found.items():
        if entry.name != folder.name or not is_name(folder.name):
            raise ValueRangeError(f"expected the entry of an agent called {folder.name}, got {entry.name!r:.80}")
    return ranked([*found.values()])


def ranked(entries: Sequence[StandingEntry]) -> list[StandingEntry]:
    """Entries by environment, and in each the highest mean under the strongest attack first; those without one last."""

    def order(entry: StandingEntry) -> tuple[str, float]:
        worst = entry.strongest
        return entry.env_id, -worst[1].mean if worst else float("inf")

    return sorted(entries, key=order)
