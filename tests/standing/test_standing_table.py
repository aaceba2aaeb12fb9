"""The table of a standing."""

from __future__ import annotations

from adv_wrappers.standing.standing_table import HEAD, standing_table


def entry(**more):
    figures = {"mean": 10.0, "low": 9.0, "high": 11.0, "caveat": None, "seconds": 1.0}
    return {
        "name": "a",
        "environment": {"id": "E-v1"},
        "budget": "0.1 in raw units",
        "episodes": 10,
        "seed": 0,
        "clean": figures,
        "attacks": {"noise": figures, "pgd": {**figures, "mean": 4.0, "low": 3.0, "high": 5.0}},
        "certificate": None,
        "no_certificate": "no bounds",
        "licence": "MIT",
        "victim": {"fingerprint": "f" * 64},
        **more,
    }


def test_an_agent_counts_for_its_strongest_attack():
    text = "\n\n".join(standing_table([entry()]))
    assert "| a | 10 [9, 11] | 10 [9, 11] | 4 [3, 5] | `pgd` | 2 of " in text
    assert "- No certificate of a: no bounds" in text


def test_large_returns_are_written_out():
    large = {**entry()["clean"], "mean": 15275.25, "low": 12.345, "high": 23456.7}
    assert "| a | 15275 [12.35, 23457] |" in standing_table([entry(clean=large)])[3]


def test_what_is_no_interval_is_marked_and_explained_once_a_table():
    noise = {**entry()["clean"], "caveat": "all 10 returns are equal"}
    elsewhere = {"beam, everything": {**noise, "mean": 1.0, "caveat": "fewer than 10 episodes", "episodes": 5}}
    rows = [entry(clean=noise), entry(name="b", clean=noise), entry(name="c", elsewhere=elsewhere)]
    table, *notes = standing_table(rows)[3:6]
    assert table.count("10 † [9, 11]") == 2 and table.count("†") == 3 and "1 † [9, 11] | `beam, everything`" in table
    assert [note.split(":")[0] for note in notes] == [
        "† no interval of 95% (all returns are equal, or all but 3 or fewer)",
        "† no interval of 95% (fewer than 10 episodes)",
    ]
    assert "†" not in "".join(standing_table([entry()]))


def test_words_of_a_submission_break_no_cell():
    text = standing_table([entry(claim="9|9 <b>\nnew")])[3]
    assert all(line.count("|") == len(HEAD) + 1 for line in text.splitlines())
    assert "9/9 (b) new" in text


def test_an_agent_without_an_attack_has_no_figure():
    noise = entry()["attacks"]["noise"]
    assert "not attacked yet" in standing_table([entry(attacks={"noise": noise})])[3]
    assert "not attacked yet" in standing_table([entry(attacks={})])[3]
