"""Plans: their products, their files, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from adv_wrappers import threat
from adv_wrappers.errors import BudgetError, OutputError, SpaceError, ValueRangeError
from adv_wrappers.studies import Grid, Plan
from tests.every_case import every_case

VICTIM = "zoo:cartpole-dqn"
WHOLE = {
    "victims": [VICTIM, "zoo:hopper-ppo"],
    "environments": ["CartPole-v1", {"id": "Hopper-v5", "kwargs": {"reset_noise_scale": 0.1}, "make": "os:getcwd"}],
    "threats": ["noise", "pgd:eps=0.1 + action-flip:p=0.5", {"type": "threat"}, ["max-diff", "action-noise:eps=0.1"]],
    "budgets": ["eps=0.1", "eps=0.2,scale=victim"], "timings": ["bernoulli(0.5)", "every(2)"], "seeds": [0, 3],
    "episodes": 7, "num_envs": 3, "quantize": False, "measure": "0=1", "best_of": 2, "by": "loss", "select": "sample",
}  # fmt: skip


def test_a_plan_is_the_same_after_a_file(tmp_path):
    plan = Plan.of(**WHOLE) + Plan.of(victims=["zoo:pong-ppo"])
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert json.loads((tmp_path / "plan.json").read_text())["grids"][1] == {"victims": ["zoo:pong-ppo"]}
    assert Plan.from_dict(plan.to_dict()) == plan


def test_what_stands_beside_grids_holds_for_all(tmp_path):
    (tmp_path / "plan.toml").write_text(
        f'victims = ["{VICTIM}"]\nseeds = [0, 1]\n[[grids]]\nthreats = ["noise:eps=0.1"]\n[[grids]]\nseeds = [2]\n'
    )
    assert Plan.load(tmp_path / "plan.toml").grids == (
        Grid((VICTIM,), threats=("noise:eps=0.1",), seeds=(0, 1)),
        Grid((VICTIM,), seeds=(2,)),
    )


def test_budgets_and_timings_are_given_to_threats_that_have_none():
    grid = Grid(
        (VICTIM,),
        threats=("noise", "pgd:eps=0.3", "max-diff:steps=2,when=every(3)", "rotation:degrees=3", "action-flip"),
        budgets=("eps=0.1", "eps=0.2"),
        timings=("every(2)",),
    )
    assert list(grid.stacks()) == [
        "noise:eps=0.1,when=every(2)",
        "noise:eps=0.2,when=every(2)",
        "pgd:eps=0.3,when=every(2)",
        "max-diff:steps=2,when=every(3),eps=0.1",
        "max-diff:steps=2,when=every(3),eps=0.2",
        "rotation:degrees=3,when=every(2)",
        "action-flip:when=every(2)",
    ]
    stack = Grid((VICTIM,), threats=("noise + action-noise:eps=0.3",), budgets=("eps=0.1",))
    assert list(stack.stacks()) == ["noise:eps=0.1 + action-noise:eps=0.3"]
    with pytest.raises(BudgetError, match=r"noise' needs a budget: .* or budgets in the plan"):
        list(Grid((VICTIM,), threats=("noise",)).stacks())


NO_THREATS = [3, 1.5, None, True, [], [3], [None], ["noise", None], [["noise"]], [[["noise"]]]]


@every_case(
    ("change", "message"),
    [
        ({"victims": []}, "at least one victim"), ({"victims": VICTIM}, "victims of a plan must be a list"),
        ({"seeds": []}, "one seed"), ({"seeds": [-1]}, "seeds must be"),
        ({"seeds": [0, 0]}, "seeds of a plan name 0 twice"),
        ({"threats": ["noise:eps=1"] * 2}, "name \"noise:eps=1\" twice"),
        ({"victims": [3]}, "victims must be a text"),
        ({"episodes": 0}, "episodes must be an integer"), ({"eps": 0.1}, "a plan has .* not eps"),
        ({"grids": []}, "grids of a plan"),
        ({"grids": [3]}, "grids of a plan"), ({"budgets": [0.1]}, "budgets must be a text"),
        ({"num_envs": 0}, "num_envs must be an integer"), ({"num_envs": True}, "num_envs must be an integer"),
        ({"num_envs": "4"}, "num_envs must be an integer"), ({"best_of": 0}, "best_of must be an integer"),
        ({"quantize": "false"}, "quantize must be true or false"), ({"measure": 3}, "measure must be a text, got 3"),
        ({"measure": np.zeros(2)}, "measure must be a text"),
        ({"training_seed": 2**32}, "training_seed must be an integer"),
        ({"training": {"lr": float("inf")}}, "a plan keeps what JSON can hold, not training.lr"),
        ({"environments": [{"id": "A", "kwargs": {"x": np.ones(2)}}]}, "a plan keeps what .* not environments:"),
        ({"threats": [threat("noise", eps=0.1)]}, "a threat of a plan is a text, a dictionary"),
        *(({"threats": [part]}, "a threat of a plan is a text, a dictionary, or a list") for part in NO_THREATS),
        ({"num_envs": 10**30}, "num_envs must be an integer from 1 to 65536"),
        ({"best_of": 10**30}, "best_of must be an integer from 1 to 1000000"),
        ({"episodes": 10**30}, "episodes must be an integer from 1 to 1000000"),
        ({"steps": 10**30}, "steps must be an integer from 1 to"),
        ({"suite": 3}, "suite must be a list, each a text, got 3"), ({"suite": [["pgd"]]}, "suite must be a text"),
        ({"by": 3}, "by must be 'return' or 'loss'"), ({"device": None}, "device must be a text, got None"),
        ({3: 4}, "a plan has .* not 3"),
    ],
)  # fmt: skip
def test_what_is_refused(change, message):
    with pytest.raises(ValueRangeError, match=message):
        Plan.from_dict({"victims": [VICTIM]} | change)


@every_case("given", [3, {"kwargs": {}}, {"id": "A", "make": 3}, {"id": "A", "kwargs": 3}, {"id": "A", "x": 1}])
def test_environments_that_are_none(given):
    with pytest.raises(SpaceError, match="environment"):
        Plan.of(victims=[VICTIM], environments=[given])


def test_a_plan_is_written_as_json_alone(tmp_path):
    with pytest.raises(ValueRangeError, match="a plan is written as JSON, and read from TOML too"):
        Plan.of(victims=[VICTIM]).save(tmp_path / "plan.toml")
    assert not (tmp_path / "plan.toml").exists()


def test_files_that_hold_no_plan(tmp_path):
    for name, text in (
        ("a.toml", "victims = ["),
        ("b.json", "{"),
        ("c.json", "{}"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueRangeError, match="plan"):
            Plan.load(tmp_path / name)
    with pytest.raises(ValueRangeError, match="No such file"):
        Plan.load(tmp_path / "none.toml")
    with pytest.raises(OutputError, match="cannot write"):
        Plan.of(victims=[VICTIM]).save(tmp_path / "a.toml" / "plan.json")


def test_a_plan_holds_what_its_file_gives_back(tmp_path):
    """Tuples are lists and NumPy's numbers are plain, however a plan was made."""
    timed = {
        "type": "threat",
        "on": "action",
        "how": {"type": "action-flip"},
        "within": {"type": "valid"},
        "at": ("a",),
    }
    plan = Plan.of(
        victims=(VICTIM,),
        environments=({"id": "A", "kwargs": {"x": (1, (2,))}},),
        threats=(timed, ("noise", timed)),
        seeds=np.arange(2),
        episodes=np.int64(3),
        num_envs=np.int64(2),
        best_of=np.int64(2),
        training={"x": (1,)},
    )
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan == Plan.from_dict(plan.to_dict())
