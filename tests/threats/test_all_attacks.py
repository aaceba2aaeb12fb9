"""A new attack is one file and one line: the preset, the public name and the laws follow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import adv_wrappers as adv
from adv_wrappers.core.perturbation import Perturbation, Variants
from adv_wrappers.errors import ThreatError
from adv_wrappers.threats import all_attacks
from adv_wrappers.threats.presets import presets_of

ROOT = Path(__file__).parents[2]

NEW = """
import adv_wrappers as adv
from adv_wrappers import Dropout
from adv_wrappers.threats.text import text_of
from adv_wrappers.threats.presets import parse_threat
from tests.laws import checks
from tests.rigs import RIGS

assert adv.Dropout is Dropout and "Dropout" in adv.__all__ and adv.presets["dropout"].kind is Dropout
assert adv.presets["dropout"].summary == "Every feature reads zero with probability ``rate``."
assert text_of(parse_threat("dropout:rate=0.5,eps=1")) == "dropout:rate=0.5,eps=1"
cases = [case for rig in RIGS.values() if checks.fitting(case := checks.Case("dropout", rig))]
assert len(cases) > 1, cases
checks.check_budget(cases[0], "linf")
checks.check_round_trip(cases[0])
checks.check_text(cases[0])
"""


@pytest.mark.slow
def test_an_attack_is_one_file_and_one_line(tmp_path):
    """The file and the line are those that CONTRIBUTING.md shows."""
    file, line = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
    package = tmp_path / "adv_wrappers"
    shutil.copytree(ROOT / "adv_wrappers", package)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (package / "attacks" / "dropout.py").write_text(file, encoding="utf-8")
    with (package / "threats/all_attacks.py").open("a", encoding="utf-8") as listing:
        listing.write(line)
    done = subprocess.run(
        [sys.executable, "-c", NEW],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_attack_is_listed_once():
    listed = {name: kind for name, kind in vars(all_attacks).items() if isinstance(kind, type)}
    assert all(name == kind.__name__ and adv.presets[kind.name].kind is kind for name, kind in listed.items())
    folders = {kind.__module__.split(".")[1] for kind in listed.values()}
    assert folders == {"attacks", "faults", "adversaries"}


@dataclass(frozen=True)
class Again(Perturbation):
    """With a variant of another's name."""

    name: ClassVar[str] = "again"
    variants: ClassVar[Variants] = {"noise": ({}, "The same once more.")}


def test_a_name_stands_for_one_preset():
    with pytest.raises(ThreatError, match="noise is the name of two presets: Noise, Again"):
        presets_of([adv.Noise, Again])


@dataclass(frozen=True)
class Below(adv.MinBest):
    """A subclass."""

    name: ClassVar[str] = "below"


def test_variants_are_those_of_the_class_itself():
    assert list(presets_of([adv.MinBest, Below])) == ["min-best", "fgsm", "pgd", "below"]
