"""Messages that keep what they are made of, and what an error carries."""

from __future__ import annotations

import pickle

import pytest

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, Argument, AttackName, Message, OutputError, Words, arguments_named
from adv_wrappers.utils.checks import check_integer


def test_a_message_is_its_text_in_python() -> None:
    message = Message("give ", Argument("out", ...), ", not ", Argument("by", "q"), Words(" here", " there"))
    assert message == "give out=, not by='q' here" == str(message) == str(AdvWrappersError(message))
    assert Message("a ", message, ".").parts == ("a ", *message.parts, ".")
    assert str(Argument("eps", 50.0)) == "eps=50" and str(Argument("eps", "x" * 200)) == "eps='" + "x" * 79


@pytest.mark.parametrize("kind", [AdvWrappersError, OutputError, adv.errors.TrustError])
def test_an_error_keeps_what_it_is_about_when_a_worker_sends_it(kind: type[AdvWrappersError]) -> None:
    error = kind(Message(AttackName("min-best"), " needs ", Argument("eps", ...)))
    error.preset = "fgsm"
    sent = pickle.loads(pickle.dumps(error))
    assert sent.arguments == (Argument("eps", ...),) and sent.preset == "fgsm"
    assert sent.message.parts == error.message.parts and str(sent) == str(error) == "min-best needs eps="


def test_an_error_of_a_threat_names_its_preset() -> None:
    with pytest.raises(adv.errors.BudgetError, match=r"eps must be a finite number from 0 to .*, got -1") as raised:
        adv.threat("fgsm", eps=-1)
    assert raised.value.preset == "fgsm" and raised.value.arguments == (Argument("eps"),)
    with pytest.raises(adv.errors.BudgetError, match="eps must be") as raised:
        adv.Linf(-1)
    assert raised.value.preset is None


def test_a_caller_has_names_of_its_own() -> None:
    raised = pytest.raises(adv.errors.ValueRangeError, match="robust_eps must be an integer, got")
    with raised, arguments_named(eps="robust_eps"):
        check_integer("eps", 0.5)
