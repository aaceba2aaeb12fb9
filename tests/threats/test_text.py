"""Threats as texts: what is written is read back, and what cannot be written says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.errors import ThreatError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.threats.text import caption, name_of, text_of, unique, without_number
from adv_wrappers.utils.parsing import parse_value, split_stack
from tests.every_case import every_case
from tests.laws.checks import adversary_of
from tests.rigs import RIGS

OBS = "observation"


@dataclass(frozen=True)
class Spin(Perturbation):
    """A user's own, which is no preset."""

    name: ClassVar[str] = "tests-spin"
    speed: float = 1.0

    def __call__(self, x, context):
        return x


def rare(x, context):
    return torch.zeros(len(x), dtype=torch.bool)


@every_case(
    "text",
    [
        "noise:eps=0.1", "noise:kind=sign,eps=3,newest=true", "noise:eps=1e-07", "noise:eps=2,norm=l0",
        "noise:eps=0.1,norm=sparse(2)", "noise:eps=0.1,norm=sparse(2),scale=1;2",
        "noise:eps=0.30000000000000004,norm=l2", "noise:norm=valid", "noise:eps=1,scale=victim", "noise:eps=1,scale=2",
        "noise:eps=1,scale=1;0;0.1", "noise:eps=1,scale=2;", "max-diff:steps=50,eps=0.1", "max-diff:noise=0,eps=0.1",
        "pgd:eps=0.1", "pgd:steps=20,eps=0.1", "fgsm:eps=0.1", "min-best:steps=3,step=0.5,eps=1",
        "pgd:loss=cross-entropy,eps=1", "rotation:degrees=3", "rotation:degrees=50", "rotation:degrees=-5;5,per=step",
        "rotation:degrees=3,eps=3", "rotation:degrees=3,newest=true", "shift:dx=2,dy=0", "perspective:distance=1",
        "perspective:corners=(1;0);(0;1);(0;0);(0;0)", "daylight:game=Pong,transform=jpeg",
        "noise:eps=1,at=a", "noise:eps=1,at=a;b", "noise:eps=1,at=a;", "noise:eps=1,at='x,y'", "noise:eps=1,at='3'",
        "noise:eps=1,at=\"it's\"", "noise:eps=1,at='none'", "noise:eps=1,at='a + b'", "noise:eps=1,at='a;b';c",
        "noise:eps=1,at='ends #2'", "noise:eps=1,when=bernoulli(0.1)&atmost(7)", "noise:eps=1,when=bernoulli(0.5,3)",
        "noise:eps=1,when=~(window(1,3)&every(2))", "noise:eps=1,when=strategic(0.3)", "action-noise:eps=0.1",
        "carlini-wagner:target=2", "carlini-wagner:target=worst", "action-flip", "worst-action:by=policy",
    ],
)  # fmt: skip
def test_a_canonical_text_is_its_own(text: str) -> None:
    made = parse_threat(text)
    assert text_of(made) == text and parse_threat(text_of(made)) == made
    assert parse_threat(text).to_dict() == made.to_dict()


def test_the_preset_that_says_most() -> None:
    best = adv.MinBest(steps=1, step=1.0)
    assert text_of(adv.ThreatModel(OBS, best, adv.Linf(1))) == "fgsm:eps=1"
    assert name_of(adv.threat("min-best", eps=1, **adv.presets["pgd"].arguments)) == "pgd"
    assert text_of(parse_threat("noise:eps=1,p=0.5,when=every(2)")) == "noise:eps=1,when=bernoulli(0.5)&every(2)"
    assert text_of(adv.ThreatModel(OBS, adv.daylight.Rotation(4.0))) == text_of(
        adv.ThreatModel(OBS, adv.daylight.Rotation(4))
    )


def test_victims() -> None:
    zoo, own = adv.load_victim("zoo:cartpole-dqn"), RIGS["q"].victim()
    aimed = adv.threat("pgd", zoo, eps=0.1, when=adv.Strategic(0.3, zoo))
    assert text_of(aimed) == "pgd:eps=0.1,victim=zoo:cartpole-dqn,when=strategic(0.3)"
    assert parse_threat(text_of(aimed)).to_dict() == aimed.to_dict()
    assert text_of(aimed, zoo) == "pgd:eps=0.1,when=strategic(0.3)"
    assert text_of(adv.threat("pgd", own, eps=0.1)) == f"pgd:eps=0.1,victim=<{own.fingerprint()[:12]}>"
    mixed = adv.threat("pgd", zoo, eps=0.1, when=adv.Strategic(0.3, own))
    assert text_of(mixed) == "pgd:eps=0.1,victim=zoo:cartpole-dqn,when=<strategic of another victim>"
    apart = replace(adv.threat("pgd", zoo, eps=0.1), when=adv.Strategic(0.3))
    assert "when=<strategic of another victim>" in text_of(apart) and "<" not in text_of(apart, zoo)


def test_a_unit_that_is_the_victims_own() -> None:
    hopper = adv.load_victim("zoo:hopper-ppo")
    aimed = adv.threat("max-diff", hopper, eps=0.1, scale="victim")
    assert text_of(aimed) == "max-diff:eps=0.1,scale=victim,victim=zoo:hopper-ppo"
    assert parse_threat(text_of(aimed)).to_dict() == aimed.to_dict()
    noise = adv.threat("noise", hopper, eps=0.1, scale="victim")  # which looks at nobody, and has the numbers alone
    assert parse_threat(text_of(noise)) == noise and text_of(noise, hopper) == "noise:eps=0.1,scale=victim"
    assert caption(noise) == "noise:eps=0.1,scale=<11 numbers>" and caption(aimed) == "max-diff:eps=0.1,scale=victim"


def test_a_folder_is_said_as_it_is() -> None:
    card = adversary_of("q")
    made = adv.threat("learned", card=card, eps=0.1)
    assert text_of(made) == f"learned:card={card},eps=0.1"
    assert parse_threat(text_of(made)).to_dict() == made.to_dict()


@every_case(
    ("threat", "text"),
    [
        (adv.ThreatModel(OBS, lambda x, context: x, adv.Linf(1)), "<lambda>:eps=1"),
        (adv.ThreatModel(OBS, Spin(), adv.Linf(1)), "<tests-spin>:eps=1"),
        (adv.ThreatModel(OBS, adv.Noise(), adv.Linf(1), rare), "noise:eps=1,when=<rare>"),
        (adv.ThreatModel(OBS, adv.Noise(), adv.Newest(adv.Linf(1), 0, 3)), "noise:eps=1,newest=<axis 0 size 3>"),
        (adv.ThreatModel(OBS, adv.Noise(), adv.Linf(1), at='it\'s "so"'), "noise:eps=1,at=<str>"),
    ],
)
def test_what_no_text_can_say_says_so(threat: adv.ThreatModel, text: str) -> None:
    assert text_of(threat) == text
    with pytest.raises(ThreatError, match="has no text form"):
        parse_threat(text)


def test_a_long_scale_is_told_by_its_hash() -> None:
    texts = {text_of(adv.threat("noise", eps=1, scale=(1.0,) * 300 + (last,))) for last in (1.0, 2.0)}
    assert len(texts) == 2 and all(text.startswith("noise:eps=1,scale=<301 numbers ") for text in texts)


def test_numbers_behind_texts() -> None:
    assert unique(["a", "b", "a", "a #2", "a"]) == ["a", "b", "a #2", "a #2 #2", "a #3"]
    assert without_number("noise:eps=1 #12") == "noise:eps=1" and without_number("a:card='x #2'") == "a:card='x #2'"


def test_a_stack_is_split_outside_of_quotes() -> None:
    assert split_stack("a:card='x + y' + b") == ["a:card='x + y'", "b"]
    assert parse_value("'a;b'") == "a;b" and parse_value("(1;2);(3;)") == ((1, 2), (3,)) and parse_value("1;") == (1,)
