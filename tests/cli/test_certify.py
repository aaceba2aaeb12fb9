"""``adv-wrappers certify``: what it refuses; ``test_interruption.py`` has what it writes."""

from __future__ import annotations

from click.testing import CliRunner

from adv_wrappers.cli import main

CARTPOLE = ["certify", "CartPole-v1", "--victim", "zoo:cartpole-ppo", "--episodes", "1", "--max-nodes", "20"]


def invoke(*words: str):
    return CliRunner().invoke(main, [*words])


def test_what_is_refused_is_one_line() -> None:
    done = invoke(*CARTPOLE, "--eps", "0.1", "--attack", "pdg")
    assert done.exit_code == 2 and "did you mean pgd" in done.output.replace("\n", " ")
    done = invoke("certify", "Hopper-v5", "--victim", "zoo:hopper-ppo", "--eps", "0.1")
    assert done.exit_code == 2 and "one discrete action" in done.output and "Traceback" not in done.output
