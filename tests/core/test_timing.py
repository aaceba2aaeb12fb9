"""Timings as values."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode
from adv_wrappers.errors import ThreatError
from adv_wrappers.threats.presets import parse_when
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv


def attacked(when, steps=40, seed=0, layers=("noise",)):
    """At which t a layer attacks."""
    still = [[RIGS["mean"].env().recordings[0][0]] * (steps + 1)]
    env = ReplayEnv(still, RIGS["mean"].space, RIGS["mean"].actions)
    env = adv.wrap(env, *[adv.threat(layer, eps=0.1, when=when) for layer in layers])
    infos = [env.reset(seed=seed)[1]] + [env.step(np.zeros(3, np.float32))[4] for _ in range(steps - 1)]
    flags = np.array([[e["attacked"] for e in info["adv_wrappers"].values()] for info in infos])
    return flags[:, 0] if len(layers) == 1 else flags


def test_deterministic_timings():
    t = np.arange(40)
    assert attacked(adv.Always()).all() and not attacked(adv.Never()).any() and attacked(None).all()
    assert (attacked(adv.Every(3)) == (t % 3 == 0)).all()
    assert (attacked(adv.Window(2, 5)) == ((t >= 2) & (t < 5))).all()
    assert (attacked(adv.AtMost(4)) == (t < 4)).all()
    assert (attacked(adv.Every(4, length=2, first=1)) == ((t >= 1) & ((t - 1) % 4 < 2))).all()
    assert (attacked(adv.Every(3) & adv.AtMost(2)) == ((t == 0) | (t == 3))).all()
    assert (attacked(~adv.Window(2, 5)) == ~((t >= 2) & (t < 5))).all()
    assert (attacked(adv.Every(3) | adv.Window(2, 5)) == ((t % 3 == 0) | ((t >= 2) & (t < 5)))).all()


def test_bernoulli():
    draws = np.concatenate([attacked(adv.Bernoulli(0.3), seed=s) for s in range(10)])
    assert abs(draws.mean() - 0.3) < 4 * (0.21 / 400) ** 0.5
    assert attacked(adv.Bernoulli(1.0)).all() and not attacked(adv.Bernoulli(0.0)).any()


def test_operands_draw_apart():
    """Two Bernoullis of one layer are not the same coin, nor are those of two layers."""
    both = np.concatenate([attacked(adv.Bernoulli(0.5) & adv.Bernoulli(0.5), seed=s) for s in range(10)])
    assert 0.15 < both.mean() < 0.35
    either = np.concatenate([attacked(adv.Bernoulli(0.5) | ~adv.Bernoulli(0.5), seed=s) for s in range(10)])
    assert 0.6 < either.mean() < 0.9
    two = np.concatenate([attacked(adv.Bernoulli(0.5), seed=s, layers=("noise", "noise")) for s in range(10)])
    assert 0.35 < (two[:, 0] == two[:, 1]).mean() < 0.65
    shared = attacked(adv.Bernoulli(0.5, stream=3), layers=("noise", "noise"))
    assert (shared[:, 0] == shared[:, 1]).all()


def test_strategic_is_the_gap_of_probabilities():
    """Lin et al. 2017, equation 6."""
    import torch

    rig = RIGS["logits"]
    victim = rig.victim(torch.float64)
    env = adv.wrap(rig.env(), adv.threat("noise", eps=0.0, when=adv.Strategic(0.5, victim)))
    seen = []
    for seed in range(5):
        obs, info = env.reset(seed=seed)
        while True:
            gap = victim.params(torch.as_tensor(obs, dtype=torch.float64)[None]).softmax(1)[0]
            seen.append((float(gap.max() - gap.min()) > 0.5, info["adv_wrappers"]["0:noise"]["attacked"]))
            obs, _, terminated, truncated, info = env.step(1)
            if terminated or truncated:
                break
    assert all(a == b for a, b in seen) and len({a for a, _ in seen}) == 2


ATOMS = st.one_of(
    st.builds(adv.Always),
    st.builds(adv.Never),
    st.builds(adv.Every, st.integers(1, 5), st.integers(1, 3), st.integers(0, 2)),
    st.builds(adv.AtMost, st.integers(0, 9)),
    st.builds(adv.Bernoulli, st.floats(0, 1)),
    st.tuples(st.integers(0, 5), st.integers(0, 9)).map(lambda p: adv.Window(p[0], p[0] + p[1])),
)
TIMINGS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map(lambda a: ~a),
        st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
    ),
    max_leaves=5,
)


def text_of(when):
    if hasattr(when, "b") and when.name in ("and", "or"):
        return f"({text_of(when.a)}{'&' if when.name == 'and' else '|'}{text_of(when.b)})"
    if when.name == "not":
        return f"~{text_of(when.a)}"
    fields = [getattr(when, f.name) for f in dataclasses.fields(when) if getattr(when, f.name) is not None]
    return f"{when.name}({','.join(map(repr, fields))})"


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(TIMINGS)
def test_round_trips(when):
    """A timing is read back from its text and from its dictionary."""
    assert parse_when(text_of(when)) == when
    assert decode(when.to_dict()) == when


@every_case(
    "text",
    [
        "",
        "every(1,2,3,4)",
        "every(k=1,j=2)",
        "every(*[1])",
        "1",
        "not every(2)",
        "every(2) and never()",
        "and(a=1)",
        "timing()",
        "().__class__",
        "every(2)+never()",
        "linf(1)",
        "every(print())",
    ],
)
def test_what_is_no_timing(text):
    with pytest.raises(ThreatError, match=r"cannot read the timing|takes k|takes first, k, length"):
        parse_when(text)


def test_words_of_python_do_not_combine_timings() -> None:
    for combine in (
        lambda: adv.AtMost(5) and adv.Every(2),
        lambda: adv.AtMost(5) or adv.Every(2),
        lambda: not adv.Every(2),
    ):
        with pytest.raises(ThreatError, match="&"):
            combine()


TEXTS = ("every(3)", "bernoulli(0)", "bernoulli(0.1)&atmost(7)", "(always()|~window(0,3))&~(never()|every(2))")
NESTED = ("always()&(never()&every(2))", "~(always()&never())", "~~every(2)")


@every_case("text", TEXTS + NESTED)
def test_the_text_of_a_timing_is_read_back(text: str) -> None:
    when = parse_when(text)
    assert str(when) == text and parse_when(str(when)) == when


def test_what_a_timing_lacks_is_named() -> None:
    with pytest.raises(ThreatError, match="bernoulli needs p"):
        parse_when("bernoulli")
    with pytest.raises(ThreatError, match="twice"):
        parse_when("every(4,k=5)")
