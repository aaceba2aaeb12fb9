"""What an error carries."""

from __future__ import annotations

import pickle

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, OutputError, threat_in_errors
from tests.every_case import every_case


@every_case("kind", [AdvWrappersError, OutputError, adv.errors.TrustError])
def test_an_error_keeps_what_it_is_about_when_a_worker_sends_it(kind: type[AdvWrappersError]) -> None:
    with pytest.raises(kind) as raised, threat_in_errors("fgsm:eps=1"):
        raise kind("min-best needs a victim")
    sent = pickle.loads(pickle.dumps(raised.value))
    assert type(sent) is kind and sent.threat == "fgsm:eps=1"
    assert str(sent) == str(raised.value) == "fgsm:eps=1: min-best needs a victim"


def test_an_error_of_a_threat_names_it_once() -> None:
    with pytest.raises(adv.errors.BudgetError, match=r"^fgsm: eps must be a finite number from 0 .*, got -1$"):
        adv.wrap(None, "fgsm:eps=-1")
    with pytest.raises(adv.errors.BudgetError, match=r"^max-diff needs a budget") as raised:
        adv.wrap(None, "max-diff:steps=3")
    assert raised.value.threat == "max-diff"
    with pytest.raises(adv.errors.BudgetError, match=r"^eps must be") as raised:
        adv.Linf(-1)
    assert raised.value.threat is None
