"""The script that attacks purified agents: which victims its attacks look at, and what its page says."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("purifier") as module:
        yield module


def test_every_kind_of_attacker_looks_at_a_victim_of_its_own(script):
    cartpole, hopper = script.CASES.values()
    found = script.threats_of("zoo:cartpole-dqn", "purified:zoo:cartpole-dqn?denoiser=F", cartpole, "diffusion")
    assert found["pgd, unaware"] == "pgd:eps=0.1,victim=zoo:cartpole-dqn" and found["pgd, exact"] == "pgd:eps=0.1"
    assert found["pgd, bpda"].endswith("denoiser=F&gradient=bpda") and found["pgd, other draws"].endswith("&seed=1")
    assert set(found) <= {"noise", *script.UNAWARE, *script.ADAPTIVE}
    plain = script.threats_of("zoo:hopper-ppo", "x", hopper, "plain")
    assert "max-diff, other draws" not in plain and "pgd, exact" not in plain
    assert plain["max-diff, exact"] == "max-diff:eps=0.075,scale=victim"
