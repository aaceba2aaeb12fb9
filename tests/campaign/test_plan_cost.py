"""The cost of a plan: what is played, that its rows are kept, and the sums."""

from __future__ import annotations

import pytest

from adv_wrappers.campaign import Plan, Store, run
from adv_wrappers.campaign.plan_cost import KindCost, PlanCost, estimate
from adv_wrappers.errors import AdvWrappersError, ValueRangeError
from tests.campaign.test_run_plan import DQN, SHORT, failing

PLAN = Plan.of(
    victims=[DQN], environments=[SHORT], threats=["noise", "pgd"], budgets=["eps=0.1", "eps=0.2"], seeds=range(5),
    episodes=1,
)  # fmt: skip


def test_a_sample_plays_a_share_of_every_kind_and_keeps_it(tmp_path):
    with Store(tmp_path / "rows.db") as store:
        cost = estimate(PLAN, store, 0.2)
        assert [(kind.name.rpartition(" ")[2], kind.sampled, kind.cells) for kind in cost.kinds] == [
            ("none", 1, 4),
            ("noise", 2, 8),
            ("pgd", 2, 8),
        ]
        assert cost.known == 0 and cost.cells == 20 and len(store) == 5
        assert 0 < cost.seconds < 600 and cost.worker_bytes > 1 << 20
        assert run(PLAN, store).known == 5
        assert estimate(PLAN, store).cells == 0 and estimate(PLAN, store).known == 25


def test_the_sums():
    cost = PlanCost((KindCost("a", 10, 2.0, None, 1), KindCost("b", 5, 1.0, 0.5, 3)), 4, 3.0, 2**29)
    low, high = cost.interval
    assert cost.seconds == 25 and cost.cells == 15
    assert (
        high - cost.seconds == pytest.approx(4.3027 * 5 * 0.5 * (1 / 3 + 1 / 5) ** 0.5, rel=1e-3) == cost.seconds - low
    )
    assert cost.wall_clock(5) == 5 and cost.wall_clock(100) == 2 and cost.wall_clock(8, cores=2) == 12.5
    assert "15 cells are left, 4 are known: 25 s of one core" in str(cost) and "0.50 GiB a process" in str(cost)


def test_what_is_refused(tmp_path):
    with Store(tmp_path / "rows.db") as store:
        for share in (0.0, 1.5, -1.0, float("nan")):
            with pytest.raises(ValueRangeError, match="share"):
                estimate(PLAN, store, share)
        with pytest.raises(AdvWrappersError, match=r"seed 0 fails: .*step of CartPoleEnv .* RuntimeError: no more"):
            estimate(failing("raises"), store)
