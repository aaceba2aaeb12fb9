"""``adv-wrappers certify``: the table, what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from adv_wrappers.cli import main

CARTPOLE = ["certify", "CartPole-v1", "--victim", "zoo:cartpole-ppo", "--episodes", "1", "--max-nodes", "20"]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def test_a_table_and_a_folder(tmp_path: Path) -> None:
    out = tmp_path / "ranges"
    words = [*CARTPOLE, "--eps", "0.2", "--eps", "0.5", "--attack", "min-best", "--attack", "beam", "--width", "4"]
    done = invoke(*words, "--method", "interval", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "zoo:cartpole-ppo on CartPole-v1, 1 episodes, seed 0" in done.output and "certified" in done.output
    data = json.loads((out / "ranges.json").read_text())
    assert [one["eps"] for one in data["ranges"]] == [0.2, 0.5] and data["settings"]["method"] == "interval"
    assert all(one["lower"] <= one["upper"] < 60 for one in data["ranges"])
    assert (out / "ranges.png").read_bytes()[1:4] == b"PNG"
    assert done.output.splitlines()[-1] == f"wrote {out / 'ranges.json'} and {out / 'ranges.png'}"


def test_what_is_refused_is_one_line(tmp_path: Path) -> None:
    done = invoke(*CARTPOLE, "--eps", "0.1", "--attack", "pdg")
    assert done.exit_code == 2 and "did you mean pgd" in done.output.replace("\n", " ")
    done = invoke("certify", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--eps", "0.1")
    assert done.exit_code == 2 and "one discrete action" in done.output and "Traceback" not in done.output
