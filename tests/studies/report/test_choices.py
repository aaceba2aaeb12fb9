"""``choices.json``: what is written is read."""

from __future__ import annotations

import json
from dataclasses import replace

from adv_wrappers.studies.report.choices import (
    AdvisedTraining,
    CertifiedReturn,
    FeatureSpread,
    ReportChoices,
    Untried,
    read_choices,
    write_choices,
)


def test_what_is_written_is_read(tmp_path):
    choices = ReportChoices(
        "adv-wrappers report", 2.0, False, 30, (FeatureSpread("x", -1.0, None, 0.5),), (1.0, 2.0), "of the range",
        ("a reason",), (CertifiedReturn(0.1, 3.0, None, 10, "bounds"),),
        (Untried("pgd", "no time", 0.0),), "adv-wrappers report --minutes 3",
        AdvisedTraining("wocar", ("sa",), 0.05, "ppo", "raw", 0.9, "a"),
        ("nothing else",), {"seed": 0}, ("goal",),
    )  # fmt: skip
    write_choices(tmp_path, choices)
    assert read_choices(tmp_path) == replace(choices, played=True)


def test_what_other_releases_wrote_is_left_out(tmp_path):
    training = {"by": "radial", "seconds": 0.0024, "report": "before", "begins_with": "", "scale": None}
    known = {"schema": 2, "eps": [0.0, 0.1], "halving_eps": 0.1, "film": "a.webp", "frames": [], "training": training}
    (tmp_path / "choices.json").write_text(json.dumps(known))
    assert read_choices(tmp_path) == ReportChoices(training=AdvisedTraining("radial"), played=True)
