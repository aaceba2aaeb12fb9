"""Aggregates: those of rliable, where runs are victims or seeds and strata are environments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.statistics.aggregates import bootstrap, iqm
from tests.evaluation.made_reports import made_report
from tests.every_case import every_case

RANDOM = np.random.default_rng(5)
A, B = RANDOM.normal(0.6, 0.2, (8, 3)), RANDOM.normal(0.4, 0.2, (8, 3))  # scores [runs, environments]
ENVS = ("CartPole-v1", "MountainCar-v0", "Acrobot-v1")
RANGES = {"CartPole-v1": (0.0, 500.0), "MountainCar-v0": (-200.0, -100.0), "Acrobot-v1": (-500.0, -80.0)}


def returns_of(score: float, env: str) -> list[float]:
    low, high = RANGES[env]
    mean = low + score * (high - low)
    return [mean - 1, mean + 1]


@pytest.fixture(scope="module")
def reports() -> list[adv.Report]:
    return [
        made_report(
            {
                "none": returns_of(1.0, env),
                "noise:eps=0.1": returns_of(A[run, i], env),
                "pgd:eps=0.1": returns_of(B[run, i], env),
            },
            victim=f"card:agent-{run}",
            env=env,
        )
        for i, env in enumerate(ENVS)
        for run in range(len(A))
    ]


@pytest.fixture(scope="module")
def found(reports: list[adv.Report]) -> adv.evaluation.aggregates.Aggregates:
    return adv.aggregate(reports, ranges=RANGES)


def test_scores_are_normalised_and_the_middle_half_is_averaged(found) -> None:
    assert [group.name for group in found.groups] == ["none", "noise:eps=0.1", "pgd:eps=0.1"] and found.runs == "victim"
    noise = found.group("noise:eps=0.1")
    for i, env in enumerate(ENVS):
        np.testing.assert_allclose(noise.scores[env], A[:, i])
    middle = np.sort(A.ravel())[6:18]
    assert noise.iqm == pytest.approx(middle.mean()) and noise.mean == pytest.approx(A.mean()) and noise.runs == 24
    assert found.group("none").iqm == pytest.approx(1) and found.ranges["Acrobot-v1"].high_is == "given"


def test_it_is_what_rliable_computes(found) -> None:
    metrics = pytest.importorskip("rliable.metrics")
    for name, scores in (("noise:eps=0.1", A), ("pgd:eps=0.1", B)):
        assert found.group(name).iqm == pytest.approx(metrics.aggregate_iqm(scores))
        np.testing.assert_allclose(found.profile(name, [0.3, 0.5])[0], [(scores > 0.3).mean(), (scores > 0.5).mean()])
    value, _, _ = found.improvement("noise:eps=0.1", "pgd:eps=0.1")
    assert value == pytest.approx(metrics.probability_of_improvement(A, B))


def test_intervals_are_those_of_the_bootstrap_of_arch(found) -> None:
    """Of rliable's own class the bootstrap is arch's, which draws the runs of every environment apart."""
    arch = pytest.importorskip("arch.bootstrap")

    def ends(statistic, *strata):
        drawn = arch.IndependentSamplesBootstrap(*strata, seed=1)
        return drawn.conf_int(statistic, 2000, method="percentile")[:, 0]

    def middle(*strata):
        return float(iqm(np.concatenate(strata)))

    def above_half(*strata):
        return (np.concatenate(strata) > 0.5).mean()

    def better(*strata):
        return np.mean([(1 + np.sign(x[:, None] - y)).mean() / 2 for x, y in zip(strata[:3], strata[3:], strict=True)])

    group = found.group("noise:eps=0.1")
    assert [group.low, group.high] == pytest.approx(ends(middle, *A.T), abs=0.015)
    _, low, high = found.profile("noise:eps=0.1", [0.5])
    assert [low[0], high[0]] == pytest.approx(ends(above_half, *A.T), abs=0.05)
    _, *found_ends = found.improvement("noise:eps=0.1", "pgd:eps=0.1")
    assert found_ends == pytest.approx(ends(better, *A.T, *B.T), abs=0.02)


def test_the_statistic_of_mann_and_whitney(found) -> None:
    stats = pytest.importorskip("scipy.stats")
    value, low, high = found.improvement("pgd:eps=0.1", "noise:eps=0.1")
    assert value == pytest.approx(np.mean([stats.mannwhitneyu(B[:, i], A[:, i]).statistic / 64 for i in range(3)]))
    assert low < value < high < 0.5
    assert found.improvement("none", "none")[0] == 0.5  # ties count half


def test_intervals_are_the_same_every_time_and_in_pieces(reports, monkeypatch: pytest.MonkeyPatch, found) -> None:
    again = adv.aggregate(reports, ranges=RANGES)
    assert again.to_dict() == found.to_dict()
    strata, ends = [A[:, 0], A[:, 1]], []
    for size in (10**6, 100):
        monkeypatch.setattr("adv_wrappers.evaluation.statistics.aggregates._AT_ONCE", size)
        ends.append(bootstrap(strata, iqm, 0.95, 3000, 0))
    np.testing.assert_allclose(*ends, atol=0.02)  # other draws


def test_how_often_intervals_hold_the_mean_of_the_middle() -> None:
    random, held = np.random.default_rng(0), {}
    centres = (0.3, 0.5, 0.8)
    truth = {n: [] for n in (2, 20)}
    for n, values in truth.items():
        values += [float(iqm(np.concatenate([random.normal(c, 0.2, n) for c in centres]))) for _ in range(1000)]
        hits = 0
        for seed in range(150):
            low, high = bootstrap([random.normal(c, 0.2, n) for c in centres], iqm, 0.95, 400, seed)
            hits += low <= np.mean(values) <= high
        held[n] = hits / 150
    assert held[2] < 0.85 and held[20] > 0.88, held  # as the note on few runs says


def test_without_ranges_scores_go_from_the_lowest_return_to_the_clean_mean() -> None:
    rows = [
        made_report({"none": [400, 500], "pgd:eps=0.1": [50, 40]}),
        made_report({"none": [9.0, 11.0], "pgd:eps=0.1": [5.0, 7.0]}, env="Nobody-v7"),
    ]
    found = adv.aggregate(rows)
    assert found.runs == "seed" and str(found.ranges["CartPole-v1"]) == (
        "0 is 0 (the lowest return of the game), 1 is 450.0 (the mean of the clean run)"
    )
    assert (
        str(found.ranges["Nobody-v7"])
        == "0 is 6 (the lowest mean return of a row), 1 is 10 (the mean of the clean run)"
    )
    attacked = found.group("pgd:eps=0.1")
    assert attacked.scores["CartPole-v1"] == pytest.approx([0.1]) and attacked.scores["Nobody-v7"] == pytest.approx([0])
    assert attacked.low is None and np.isnan(found.profile("none", [0.5])[1]).all()
    assert found.improvement("none", "pgd:eps=0.1") == (1.0, None, None)
    assert any("an environment has one run" in note for note in found.notes)


def test_seeds_of_a_victim_are_averaged_or_are_runs() -> None:
    rows = [
        made_report({"none": [500.0], "pgd:eps=0.1": [100.0 * victim + 10 * seed]}, victim=f"zoo:{victim}", seed=seed)
        for victim in (1, 2)
        for seed in (0, 1)
    ]
    assert adv.aggregate(rows).group("pgd:eps=0.1").scores["CartPole-v1"].tolist() == [0.21, 0.41]
    assert "all scores of none are equal" in adv.aggregate(rows).notes[-1]
    by_seed = adv.aggregate(rows, runs="seed")
    assert by_seed.group("pgd:eps=0.1").scores["CartPole-v1"] == pytest.approx([0.2, 0.22, 0.4, 0.42])
    assert "say nothing of agents trained anew" in by_seed.notes[0]
    alone = adv.aggregate(rows, by="victim", where={"threat": "pgd:eps=0.1"})
    assert [(group.name, group.runs) for group in alone.groups] == [("zoo:1", 2), ("zoo:2", 2)] and alone.runs == "seed"


def test_groups_by_several_columns_and_by_a_function() -> None:
    threats = {"none": [9.0], "pgd:eps=0.1": [5.0], "pgd:eps=0.2": [3.0], "noise:eps=0.1": [7.0], "flip": [1.0]}
    rows = made_report(threats)
    names = [group.name for group in adv.aggregate(rows, by=("attack", "eps"), where={"eps": [0.1, 0.2]}).groups]
    assert names == ["pgd, 0.1", "pgd, 0.2", "noise, 0.1"]
    by_kind = adv.aggregate(rows, by=lambda row: row.threat[:3], where={"threat": ["none", "flip"]})
    assert by_kind.by == "group" and [group.name for group in by_kind.groups] == ["non", "fli"]
    assert [group.name for group in adv.aggregate(rows, by="eps", where={"attack": ["pgd", "flip"]}).groups][
        -1
    ] == "no eps"


def test_groups_of_other_environments_are_not_compared_in_silence() -> None:
    rows = [made_report({"none": [9.0], "flip": [1.0]}), made_report({"none": [-150.0]}, env="MountainCar-v0")]
    found = adv.aggregate(rows)
    assert "flip was not played in MountainCar-v0, and is not comparable with groups that were" in found.notes


@every_case(
    ("how", "message"),
    [
        ({"by": "agent"}, "no column 'agent' for by=: there are threat, attack, eps"),
        ({"by": []}, "by must name a column"),
        ({"where": {"agent": 1}}, "no column 'agent' for where"),
        ({"where": {"eps": 3.0}}, "no row has where="),
        (
            {"by": "victim"},
            r"rows of none and pgd:eps=0\.1 of one victim fall together in 'zoo:a'",
        ),
        ({"ranges": {"Pong": (0, 1)}}, "ranges= has 'Pong': rows are of CartPole-v1"),
        ({"ranges": {"CartPole-v1": (1, 1)}}, "expects two finite numbers, the lower first, for CartPole-v1"),
        ({"ranges": {"CartPole-v1": (0, 1, 2)}}, "expects two finite numbers"),
        ({"ranges": {"CartPole-v1": 500.0}}, "expects two finite numbers"),
        ({"runs": "agents"}, "runs must be 'victim' or 'seed'"),
        ({"level": 2.0}, "level must be"),
        ({"repetitions": 1}, "repetitions must be"),
    ],
)
def test_bad_arguments_are_named(how: dict[str, object], message: str) -> None:
    with pytest.raises(ValueRangeError, match=message):
        adv.aggregate(made_report({"none": [9.0], "pgd:eps=0.1": [1.0]}), **how)


def test_what_cannot_be_normalised_is_named() -> None:
    with pytest.raises(ValueRangeError, match="CartPole-v1 has no range to normalise by, as there is no clean run"):
        adv.aggregate(made_report({"flip": [1.0]}))
    with pytest.raises(ValueRangeError, match="clean runs have the lowest return there is, 0: give ranges= a pair"):
        adv.aggregate(made_report({"none": [0.0]}))
    with pytest.raises(ValueRangeError, match="no group 'pgd': there are none, flip"):
        adv.aggregate(made_report({"none": [9.0], "flip": [1.0]})).group("pgd")
    pair = [made_report({"none": [9.0]}), made_report({"flip": [-150.0], "none": [-1.0]}, env="MountainCar-v0")]
    apart = adv.aggregate(pair, by=("threat", "env"))
    with pytest.raises(ValueRangeError, match="share no environment"):
        apart.improvement("none, CartPole-v1", "none, MountainCar-v0")


def test_tables_frames_and_figures(found, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    frame = found.to_dataframe()
    assert frame["threat"].tolist() == ["none", "noise:eps=0.1", "pgd:eps=0.1"] and frame["runs"].tolist() == [24] * 3
    shown = str(found)
    assert "IQM" in shown and "95% interval" in shown and "CartPole-v1: 0 is 0 (given), 1 is 500.0 (given)" in shown
    found.plot(tmp_path / "profiles.svg")
    text = (tmp_path / "profiles.svg").read_text()
    assert text.startswith("<?xml") and "nan" not in text.lower().split("</metadata>")[-1]
    with pytest.raises(ValueRangeError, match="a picture is written as"):
        found.plot(tmp_path / "profiles.gif")


def test_the_table_is_written_and_printed(found) -> None:
    name = found.groups[0].name
    assert r"\toprule" in found.to_latex() and found.to_markdown().startswith("**normalised scores**")
    assert found._repr_markdown_() == found.to_markdown()
    for text in (str(found), str(found.table())):
        assert name in text and "object at" not in text and "IQM" in text
