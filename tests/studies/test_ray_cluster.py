"""Actors of a local Ray cluster: equal rows, lost actors, and what is refused."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from adv_wrappers.errors import AdvWrappersError, ValueRangeError, WorkerError
from adv_wrappers.studies import Plan, Store, run
from adv_wrappers.studies.ray_cluster import RayActors, import_ray
from tests.evaluation.agents import balancing
from tests.studies.test_runner import DQN, PLAN, SHORT, failing, rows

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore:.*:FutureWarning", "ignore::DeprecationWarning"
)


@pytest.fixture(scope="module")
def actors():
    pytest.importorskip("ray")
    with closing(RayActors("local", 2, victims={"mine": balancing()})) as opened:
        yield opened


@pytest.mark.slow
def test_actors_play_the_same_rows(actors):
    plan = PLAN + Plan.of(victims=["mine"], environments=[SHORT], threats=["noise:eps=0.1"], episodes=2)
    given = {"victims": {"mine": balancing()}}
    with Store(":memory:") as one, Store(":memory:") as other:
        assert run(plan, one, actors, **given).played == 14
        run(plan, other, **given)
        assert rows(one) == rows(other)


@pytest.mark.slow
def test_an_actor_that_is_lost_is_replaced(actors):
    plan = failing("dies") + Plan.of(victims=[DQN], environments=[SHORT], seeds=range(4), episodes=1)
    with Store(":memory:") as store:
        found = run(plan, store, actors)
        assert found.played == 4 and len(found.failed) == 1
        assert next(iter(found.failed.values())).startswith("WorkerError: its actor was lost 3 times")


@pytest.mark.slow
def test_an_actor_without_room_is_refused(actors):
    with pytest.raises(WorkerError, match="has no room for an actor with 2 GPUs"):
        RayActors("local", gpus=2.0)
    for name, wrong in (("gpus", -1.0), ("actors", 0)):
        with pytest.raises(ValueRangeError, match=name):
            RayActors("local", **{name: wrong})


def test_where_ray_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(AdvWrappersError, match=r"pip install 'adv_wrappers\[ray\]'"):
        import_ray()
