"""Training both forms of PA-AD's actions: which of the two is stronger differs from victim to victim."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.types import JSON
from adv_wrappers.errors import ANOTHER_OUT, Argument, CardError, Message, ThreatError, ValueRangeError
from adv_wrappers.option_values import BOTH, FORMS
from adv_wrappers.training.adversary_checkpoints import adversary_score
from adv_wrappers.utils.files import write


def actors_by_form(actor: Actor | Hybrid, form: object) -> dict[str, Actor]:
    """The actor in one form, or in each of the two for ``"both"``.

    Raises:
        ThreatError: for an actor without forms, or with another form of its own.
        ValueRangeError: for an unknown form, or one that the victim's actions do not allow.
    """
    if form not in (*FORMS, BOTH):
        raise ValueRangeError(Message(Argument("form"), f" must be 'direction', 'target' or 'both', got {form!r}"))
    if not hasattr(actor, "form"):
        goes = f" goes with pa-ad and pa-ad-action, {actor.name} has none"
        raise ThreatError(Message(Argument("form", ...), goes))
    if actor.form not in (None, form):
        beside = f" is given beside an actor with form={actor.form!r}"
        raise ThreatError(Message(Argument("form", form), beside))
    chosen = FORMS if form == BOTH else (str(form),)
    return {name: replace(actor, form=name) for name in chosen}  # type: ignore[misc, type-var]


def check_forms_folder(out: Path | None) -> None:
    """Raise unless the stronger of two forms may be written to this folder.

    Raises:
        CardError: for a card that cannot be read.
        ValueRangeError: for a folder with one training, or with something else.
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
        raise ValueRangeError(Message(f"{out} holds something else than a training of both forms: ", ANOTHER_OUT))


def strongest_form(found: Mapping[str, Learned], out: Path | None) -> Learned:
    """The adversary whose best checkpoint has the lowest score (:func:`.adversary_checkpoints.adversary_score`).

    Its card is copied into ``out`` itself, with the scores of all forms.

    Args:
        found: the best adversary of every form.
        out: the folder, which holds those of earlier calls too; or None.
    """
    if out is None:
        return min(found.values(), key=lambda learned: _best_score(learned.director.record))
    cards = {form: json.loads((out / form / "card.json").read_text(encoding="utf-8")) for form in found}
    lowest = {form: _best_score(card["training"]) for form, card in cards.items()}
    best = min(lowest, key=lambda form: lowest[form])
    card = cards[best]
    write(out / "weights.safetensors", (out / best / "weights.safetensors").read_bytes())
    write(out / "card.json", (json.dumps({**card, "forms": lowest}, indent=2) + "\n").encode())
    return Learned(card=str(out), victim=found[best].victim)


def _best_score(training: Mapping[str, JSON]) -> float:
    """The score of the best checkpoint of a training, which is the last of its record at that time."""
    return adversary_score(training["checkpoints"][-1])
