"""``standing``: an agent is measured and stands in the table, and what is none is one line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from adv_wrappers.cli import main


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["standing", *map(str, words)])


def attack_with_code_of_ones_own(store, monkeypatch):
    """A class of perturbations, a function, and what is neither."""
    monkeypatch.syspath_prepend(store.parent)
    (store.parent / "lab_push.py").write_text(
        "from dataclasses import dataclass\nfrom adv_wrappers.core.perturbation import Perturbation\n"
        "@dataclass(frozen=True)\nclass Push(Perturbation):\n    name = 'push'\n"
        "    def __call__(self, x, context):\n        return x + 10.0\n"
        "def pull(x, context):\n    return x - 10.0\n"
    )
    attack = "attack", "zoo:cartpole-dqn", "--store", store
    for name, said in (("Push", "push"), ("pull", "pull")):
        done = call(*attack, "--perturbation", f"lab_push:{name}")
        assert done.exit_code == 0 and f"cartpole-dqn: {said} leaves " in done.output, done.output
    done = call(*attack, "--perturbation", "lab_push:Other")
    assert done.exit_code == 2 and "has no 'Other'" in done.output
    done = call(*attack, "--perturbation", "fractions:Fraction.from_float")  # takes one argument
    assert done.exit_code == 2 and "must take (x, context)" in done.output, done.output
    done = call(*attack, "--perturbation", "types:FunctionType")
    assert done.exit_code == 2 and "Invalid value for '--perturbation'" in done.output
    done = call(*attack)
    assert done.exit_code == 2 and "either --threat or --perturbation" in done.output


def test_an_agent_is_added_and_the_table_is_built(tmp_path, monkeypatch):
    done = call("add", "zoo:cartpole-dqn", "--store", tmp_path / "store", "--minutes", 0.01,
                "--env-kwargs", "max_episode_steps=20")  # fmt: skip
    assert done.exit_code == 0 and "cartpole-dqn: 20 without an attack" in done.output
    done = call("attack", "zoo:cartpole-dqn", "--store", tmp_path / "store", "--threat", "max-diff:steps=2")
    assert done.exit_code == 0 and "cartpole-dqn: max-diff:steps=2 leaves 20" in done.output
    attack_with_code_of_ones_own(tmp_path / "store", monkeypatch)
    done = call("build", tmp_path / "store", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "agents" / "cartpole-dqn.html").is_file()
    page = (tmp_path / "out" / "standing.html").read_text()
    assert '<a href="agents/cartpole-dqn.html">cartpole-dqn</a>' in page
    (tmp_path / "out" / "standing.html").write_text("notes of somebody")
    done = call("build", tmp_path / "store", "--out", tmp_path / "out")
    assert done.exit_code == 2 and "no page of adv_wrappers" in done.output


@pytest.mark.slow
def test_a_dry_run_says_what_attacks_take_and_adds_nothing(tmp_path):
    done = call("add", "zoo:cartpole-dqn", "--store", tmp_path, "--env-kwargs", "max_episode_steps=20", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "seconds each" in done.output and " minutes play all of them" in done.output
    assert not [*tmp_path.glob("*/entry.json")]


def test_errors_are_one_line(tmp_path):
    done = call("build", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2 and "holds no agent of a standing" in done.output
    done = call("add", "zoo:cartpole-dqn", "--store", tmp_path, "--eps", 0.2)
    assert done.exit_code == 2 and "all attacked at --eps 0.05, got --eps 0.2" in done.output
    done = call("add", "zoo:cartpole-dqn", "--store", tmp_path, "--licence", "Apache-2.0")
    assert done.exit_code == 2 and "is 'MIT', got --licence Apache-2.0" in done.output
