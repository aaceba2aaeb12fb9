"""The two forms of PA-AD's steer, trained one beside the other: which is stronger differs from victim to victim."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.utils.files import write

FORMS = ("direction", "target")
BOTH = "both"


def formed(actor: Any, form: Any) -> dict[str, Any]:
    """The actor in one form, or in either for ``"both"``.

    Raises:
        ThreatError: for an actor that has no forms, or one of its own that is another.
        ValueRangeError: for a form that there is not, or that the victim's actions do not allow.
    """
    if form not in (*FORMS, BOTH):
        raise ValueRangeError(f"form must be 'direction', 'target' or 'both', got {form!r}")
    if not hasattr(actor, "form"):
        raise ThreatError(f"form= goes with pa-ad and pa-ad-action, {actor.name} has none")
    if actor.form not in (None, form):
        raise ThreatError(f"form={form!r} is given beside an actor with form={actor.form!r}")
    return {one: replace(actor, form=one) for one in (FORMS if form == BOTH else (form,))}


def refuse_other(out: Path | None) -> None:
    """Raise for a folder to which the stronger of two forms cannot be written.

    Raises:
        CardError: for a card that cannot be read.
        ValueRangeError: for the folder of one training, or of something else.
    """
    if out is None:
        return
    path, card = out / "card.json", None
    if path.exists():
        try:
            card = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise CardError(f"cannot read {path}: {error}") from error
    other = path.exists() and not (isinstance(card, dict) and "forms" in card)
    if other or (out / "state.json").exists():
        raise ValueRangeError(f"{out} holds something else than a training of both forms: give another out=")


def stronger(found: Mapping[str, Learned], told: Mapping[str, Sequence[float]], out: Path | None) -> Learned:
    """The adversary whose best checkpoint leaves the least; its card goes into ``out`` itself.

    Args:
        found: the best adversary of every form.
        told: what the checkpoints of every form left; folders know those of earlier calls too.
    """
    left = {form: min(told[form] if out is None else left_by(out / form)) for form in found}
    best = min(left, key=lambda form: left[form])
    if out is None:
        return found[best]
    card = json.loads((out / best / "card.json").read_text(encoding="utf-8"))
    write(out / "weights.safetensors", (out / best / "weights.safetensors").read_bytes())
    write(out / "card.json", (json.dumps({**card, "forms": left}, indent=2) + "\n").encode())
    return Learned(card=str(out), victim=found[best].victim)


def left_by(folder: Path) -> list[float]:
    """What the victim earns under every checkpoint that the state of a training tells of."""
    try:
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))["record"]
        return [float(row["mean_return"]) for row in record]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CardError(f"cannot read the training in {folder}: {error}") from error
