"""The page of the GPU's benchmark, made without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.processes import python

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


def run(*arguments):
    return python(FOLDER / "gpu.py", *arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_without_cuda_there_is_one_line_and_no_page(tmp_path):
    done = run("--out", str(tmp_path))
    assert done.returncode == 2 and "CUDA" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not done.stdout and not list(tmp_path.iterdir())


def test_a_dry_run_says_so_and_has_every_part(tmp_path):
    rows = ("brightness", "PGD-10 MLP 17-64-64-6")
    only = [word for row in rows for word in ("--only", row)]
    done = run("--device", "cpu", "--rounds", "1", "--least", "0", "--no-peers", *only, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    data, page = json.loads((tmp_path / "gpu.json").read_text()), (tmp_path / "gpu.md").read_text()
    assert data["dry"] and "**A dry run on a processor" in page
    assert {row["name"] for row in data["rows"]} == {*rows} and {row["size"] for row in data["rows"]} == {1}
    for row in data["rows"]:
        assert row["same_as_cpu"] == row["same_as_torch"] == 1 and min(row["seconds"].values()) > 0
        assert f"| {row['name']} | 1 |" in page
    assert "% of copy" in page and "% of fp32" in page
