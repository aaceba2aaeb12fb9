"""A row: a mapping and an object, what it says of its threat."""

from __future__ import annotations

import json

import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.threats.text import text_of
from tests.evaluation.made_reports import made_row

VICTIM = adv.load_victim("zoo:cartpole-dqn")


def row(text: str, layers: list[object] | None = None) -> Row:
    made = () if text == "none" else as_threat_stack(text, VICTIM).layers if layers is None else ()
    return made_row(text, [1.0, 2.0], layers=[*map(json_form, made)] if layers is None else layers)


@pytest.mark.parametrize(
    ("text", "eps", "attack"),
    [
        ("none", 0.0, "none"),
        ("noise:eps=0.1", 0.1, "noise"),
        ("pgd:eps=8/255,steps=20", 8 / 255, "pgd:steps=20"),
        ("noise:kind=sign, eps=0.05,when=every(4)", 0.05, "noise:kind=sign,when=every(4)"),
        ("noise:norm=l2,eps=0.3", 0.3, "noise:norm=l2"),
        ("noise:eps=0.1 #2", 0.1, "noise #2"),
        ("action-flip:p=0.2", None, "action-flip:p=0.2"),
        ("noise:eps=0.1 + action-flip", None, "noise:eps=0.1 + action-flip"),
    ],
)
def test_radius_and_attack(text: str, eps: float | None, attack: str) -> None:
    made = row(text)
    assert made.eps == eps and made.attack() == attack


def test_the_radius_of_the_newest_frame_and_of_a_budget_of_several_numbers() -> None:
    newest = adv.ThreatModel("observation", adv.Noise(), adv.Newest(adv.Linf(3.0)))
    assert row(text_of(newest), [newest.to_dict()]).eps == 3.0
    sparse = adv.ThreatModel("observation", adv.Noise(), adv.L0(2))
    assert row("x", [sparse.to_dict()]).eps is None
    assert row("<mine>", [None]).eps is None


def test_another_argument_and_what_is_none() -> None:
    made = row("pgd:eps=0.1,steps=20")
    assert made.argument("steps") == 20 and made.attack("steps") == "pgd:eps=0.1"
    assert made.argument("restarts") is None and made.attack("restarts") == "pgd:eps=0.1,steps=20"
    assert row("noise:kind=sign", [None]).argument("kind") is None
    assert row("a:eps='1", [None]).attack() == "a:eps='1"  # an unbalanced quote


def test_labels_say_what_else_tells_rows_apart() -> None:
    made = made_row("noise:eps=0.1", [1.0], best_of=3, transfer=True)
    assert made.label == "noise:eps=0.1 (best of 3) (transfer)"
    assert made.attack() + made.marks == "noise (best of 3) (transfer)"


def test_columns_have_names_and_are_json() -> None:
    made = made_row("noise:eps=0.1", [1.0, 3.0])
    assert made["mean_return"] == made.mean_return == 2.0 and made == made.to_dict() and "eps" not in made
    assert json.loads(json.dumps(made.to_dict())) == made.to_dict() and Row(**made.to_dict()) == made
    assert made.seconds == 0.0
