"""The entry of an agent: what it counts for, and its file, which may be of another hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adv_wrappers.errors import ValueRangeError
from adv_wrappers.studies.report.choices import CertifiedReturn
from adv_wrappers.studies.standing.entry import (
    ENTRY_FILE,
    AttackedMean,
    StandingEntry,
    ranked,
    read_entries,
    read_entry,
)

FIGURES = AttackedMean(10.0, 9.0, 11.0, None, "noise:eps=0.1", 1.0)
ENTRY = StandingEntry(
    name="a",
    licence="MIT",
    claim="",
    environment={"id": "E-v1", "kwargs": {}},
    budget="0.1 in raw units",
    given_budget=[None, None],
    victim={"fingerprint": "f" * 64},
    trained_with=None,
    training_seconds=None,
    episodes=10,
    seed=0,
    attacks={"noise": FIGURES, "pgd": replace(FIGURES, threat="pgd:eps=0.1", mean=4.0, low=3.0, high=5.0)},
    clean=FIGURES,
    no_certificate="no bounds",
)


def attacked(**means: float) -> StandingEntry:
    return replace(ENTRY, attacks={name: replace(FIGURES, mean=mean) for name, mean in means.items()})


def test_an_agent_counts_for_its_lowest_mean() -> None:
    assert ENTRY.strongest == ("pgd", ENTRY.attacks["pgd"])
    lent = replace(FIGURES, mean=3.0)
    assert replace(ENTRY, elsewhere={"beam, everything": lent}).strongest == ("beam, everything", lent)


def test_noise_is_a_baseline_and_no_attack() -> None:
    alike = attacked(noise=9, pgd=9).strongest
    assert alike is not None and alike[0] == "pgd"
    lower = attacked(noise=8, pgd=9).strongest
    assert lower is not None and lower[0] == "noise", "it counts where it alone is the lowest"
    assert attacked(noise=9).strongest is None and attacked().strongest is None


def test_the_higher_mean_under_the_strongest_attack_is_first() -> None:
    of = {name: replace(attacked(**means), name=name) for name, means in (
        ("a", {"pgd": 9, "beam": 1}), ("none", {}), ("b", {"pgd": 3, "beam": 2}),
    )}  # fmt: skip
    other = replace(of["a"], name="c", environment={"id": "D-v1"})
    assert [one.name for one in ranked([*of.values(), other])] == ["c", "b", "a", "none"]


def test_attacks_that_were_added_are_counted_apart() -> None:
    mine = replace(FIGURES, added=True, seconds=2.5)
    entry = replace(ENTRY, attacks={**ENTRY.attacks, "mine": mine})
    assert entry.attacks_played == (2, 1) and entry.attack_seconds == 4.5


@pytest.mark.parametrize("entry", [
    ENTRY,
    replace(ENTRY, attacks={}),
    replace(
        ENTRY, certificate=CertifiedReturn(2.0, "crown"), no_certificate=None, warnings=["w"], versions={"python": "3"},
        left_out={"beam": "about 5 min"}, left_out_seconds={"beam": 300.0},
        attacks={"mine": replace(FIGURES, added=True, caveat="few")},
    ),
])  # fmt: skip
def test_what_is_written_is_read(entry: StandingEntry, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    assert read_entry(folder) is None
    entry.write(folder)
    assert read_entry(folder) == entry and read_entries(tmp_path) == [entry]
    assert json.loads((folder / ENTRY_FILE).read_text()) == json.loads(json.dumps(entry.to_dict()))


def test_a_certificate_of_an_earlier_release_is_read() -> None:
    data = {**ENTRY.to_dict(), "certificate": {"lower": 2.0, "method": "crown"}}
    assert StandingEntry.from_dict(data).certificate == CertifiedReturn(2.0, "crown")


def test_what_other_pages_lend_is_not_in_the_file() -> None:
    assert StandingEntry.from_dict(replace(ENTRY, elsewhere={"x": FIGURES}).to_dict()) == ENTRY


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"schema": 2}, "form 2 and not 1"),
        ({"attacks": {"pgd": {"mean": 3.0}}}, "missing .*threat"),
        ({"certificate": 3.0}, "certificate must be a CertifiedReturn, got 3.0"),
        ({"victim": {}}, "'fingerprint' is missing"),
        ({"more": 1}, "'more' is missing, or unknown"),
        ({"left_out_seconds": [1]}, "left_out_seconds must be a dictionary"),
        (
            {"attacks": {"pgd": {**ENTRY.to_dict()["clean"], "mean": float("nan")}}},
            "mean must be a finite number, got nan",
        ),
    ],
)
def test_what_is_no_entry_is_refused(wrong: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ENTRY_FILE).write_text(json.dumps({**ENTRY.to_dict(), **wrong}))
    with pytest.raises(ValueRangeError, match=f"entry.json: .*{said}"):
        read_entry(tmp_path / "a")


@pytest.mark.parametrize(("folder", "name"), [("a", "../../a"), ("a", "b"), ("a b", "a b")])
def test_an_entry_of_another_name_than_its_folder_is_refused(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / folder).mkdir()
    replace(ENTRY, name=name).write(tmp_path / folder)
    with pytest.raises(ValueRangeError, match=f"an agent called {folder}, got"):
        read_entries(tmp_path)


def test_a_store_without_agents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueRangeError, match="no agent of a standing"):
        read_entries(tmp_path)
