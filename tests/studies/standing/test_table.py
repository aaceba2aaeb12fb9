"""The table of a standing."""

from __future__ import annotations

from dataclasses import replace

from adv_wrappers.studies.standing.table import HEAD, standing_table
from tests.studies.standing.test_entry import ENTRY, FIGURES


def test_an_agent_counts_for_its_strongest_attack():
    text = "\n\n".join(standing_table([ENTRY]))
    assert "| a | 10 [9, 11] | 10 [9, 11] | 4 [3, 5] | `pgd` | 2 of " in text
    assert "- No certificate of a: no bounds" in text


def test_large_returns_are_written_out():
    large = replace(FIGURES, mean=15275.25, low=12.345, high=23456.7)
    assert "| a | 15275 [12.35, 23457] |" in standing_table([replace(ENTRY, clean=large)])[3]


def test_what_is_no_interval_is_marked_and_explained_once_a_table():
    noise = replace(FIGURES, caveat="all 10 returns are equal")
    elsewhere = {"beam, everything": replace(noise, mean=1.0, caveat="fewer than 10 episodes", episodes=5)}
    rows = [replace(ENTRY, clean=noise), replace(ENTRY, name="b", clean=noise), replace(ENTRY, elsewhere=elsewhere)]
    table, *notes = standing_table(rows)[3:6]
    assert table.count("10 † [9, 11]") == 2 and table.count("†") == 3 and "1 † [9, 11] | `beam, everything`" in table
    assert [note.split(":")[0] for note in notes] == [
        "† no interval of 95% (all returns are equal, or all but 3 or fewer)",
        "† no interval of 95% (fewer than 10 episodes)",
    ]
    assert "†" not in "".join(standing_table([ENTRY]))


def test_words_of_a_submission_break_no_cell():
    text = standing_table([replace(ENTRY, claim="9|9 <b>\nnew")])[3]
    assert all(line.count("|") == len(HEAD) + 1 for line in text.splitlines())
    assert "9/9 (b) new" in text


def test_an_agent_without_an_attack_has_no_figure():
    assert "not attacked yet" in standing_table([replace(ENTRY, attacks={"noise": FIGURES})])[3]
    assert "not attacked yet" in standing_table([replace(ENTRY, attacks={})])[3]
