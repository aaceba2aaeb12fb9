"""``choices.json``: what is written is read."""

from __future__ import annotations

from dataclasses import replace

from adv_wrappers.studies.report.choices import (
    AdvisedTraining,
    AttackedFrame,
    CertifiedReturn,
    FeatureSpread,
    ReportChoices,
    Untried,
    read_choices,
    write_choices,
)


def test_what_is_written_is_read(tmp_path):
    choices = ReportChoices(
        "adv-wrappers report", 2.0, 1.5, False, 30, (FeatureSpread("x", -1.0, None, 0.5),), (1.0, 2.0), "of the range",
        ("a reason",), (CertifiedReturn(3.0, "crown", 0.1, None, 10),),
        (Untried("pgd", "no time", 0.0),), "adv-wrappers report --minutes 3",
        (AttackedFrame("pgd", "true.png", "", "pictures/difference.png"),),
        "film.webp", AdvisedTraining("wocar", ("sa",), 0.05, "ppo", "raw", 0.9, 0.0024, "a", (1.0,), "b"),
        ("nothing else",), {"seed": 0}, ("goal",),
    )  # fmt: skip
    write_choices(tmp_path, choices)
    assert read_choices(tmp_path) == replace(choices, folder=tmp_path)
