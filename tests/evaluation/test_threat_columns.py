"""The columns of a threat: its radius, and its text without that."""

from __future__ import annotations

import pytest

import adv_wrappers as adv
from adv_wrappers.evaluation.tables import argument_of, attack_label, attack_text, eps_of, row_label
from adv_wrappers.evaluation.threat_stacks import as_threat_stack, json_form
from adv_wrappers.threats.text import text_of

VICTIM = adv.load_victim("zoo:cartpole-dqn")


def row(text: str) -> dict[str, object]:
    layers = () if text == "none" else as_threat_stack(text, VICTIM).layers
    return {"threat": text, "layers": [*map(json_form, layers)]}


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
    assert eps_of(made) == eps and attack_text(made) == attack


def test_the_radius_of_the_newest_frame_and_of_a_budget_of_several_numbers() -> None:
    newest = adv.ThreatModel("observation", adv.Noise(), adv.Newest(adv.Linf(3.0)))
    assert eps_of({"threat": text_of(newest), "layers": [newest.to_dict()]}) == 3.0
    sparse = adv.ThreatModel("observation", adv.Noise(), adv.L0(2))
    assert eps_of({"threat": "x", "layers": [sparse.to_dict()]}) is None
    assert eps_of({"threat": "<mine>", "layers": [None]}) is None


def test_another_argument_and_what_is_none() -> None:
    made = row("pgd:eps=0.1,steps=20")
    assert argument_of(made, "steps") == 20 and attack_text(made, "steps") == "pgd:eps=0.1"
    assert argument_of(made, "restarts") is None and attack_text(made, "restarts") == "pgd:eps=0.1,steps=20"
    assert argument_of({"threat": "noise:kind=sign", "layers": [None]}, "kind") is None
    assert attack_text({"threat": "a:eps='1", "layers": [None]}) == "a:eps='1"  # an unbalanced quote


def test_labels_say_what_else_tells_rows_apart() -> None:
    made = {"threat": "noise:eps=0.1", "layers": [None], "best_of": 3, "transfer": True}
    assert row_label(made) == "noise:eps=0.1 (best of 3) (transfer)"
    assert attack_label(made) == "noise (best of 3) (transfer)"
