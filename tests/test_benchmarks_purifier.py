"""The script that attacks purified agents: which victims its attacks look at, and what its page says."""

from __future__ import annotations

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def script():
    with result_script("purifier") as module:
        yield module


def row(mean):
    return {"mean_return": mean, "std": 1.0, "episodes": 2, "returns": [mean - 1, mean + 1]}


def test_every_kind_of_attacker_looks_at_a_victim_of_its_own(script):
    cartpole, hopper = script.CASES.values()
    found = script.threats_of("zoo:cartpole-dqn", "purified:zoo:cartpole-dqn?denoiser=F", cartpole, "diffusion")
    assert found["pgd, unaware"] == "pgd:eps=0.1,victim=zoo:cartpole-dqn" and found["pgd, exact"] == "pgd:eps=0.1"
    assert found["pgd, bpda"].endswith("denoiser=F&gradient=bpda") and found["pgd, other draws"].endswith("&seed=1")
    assert set(found) <= {"noise", *script.UNAWARE, *script.ADAPTIVE}
    plain = script.threats_of("zoo:hopper-ppo", "x", hopper, "plain")
    assert "max-diff, other draws" not in plain and "pgd, exact" not in plain
    assert plain["max-diff, exact"] == "max-diff:eps=0.075,scale=victim"


def test_the_page_has_the_strongest_row_of_either_attacker(script):
    errors = {part: {"before": 1.0, "after": 0.5} for part in ("noise", "corners")} | {"clean": 0.1}
    alone = {"rows": {"none": row(500.0), "noise": row(400.0), "pgd, exact": row(50.0)}}
    rows = {"none": row(480.0), "noise": row(450.0), "pgd, unaware": row(200.0), "pgd, exact": row(60.0)}
    other = {**rows, "pgd, exact": row(80.0)}
    behind = {"errors": errors, "signs": ["`pgd, unaware` is stronger"]}
    agent = {"alone": alone, "plain-0": {**behind, "rows": rows}, "plain-1": {**behind, "rows": other}}
    text = script.PAGE.markdown({"command": "x", "machine": "y", "agents": {"zoo:cartpole-dqn": agent}})
    assert "leaves 50 without it, 200 if the attacker does not know of it, and 70 if he does" in text
    assert "| pgd, exact | 50 +- 1 (n=2)" in text and "| 70 (60, 80) |" in text
    assert "- `pgd, unaware` is stronger" in text and "square |" not in text
