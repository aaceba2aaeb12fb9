"""What a robot's policy survives: bisections that find known thresholds, what is left out, and the page."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import adv_wrappers as adv
from adv_wrappers.cli import main
from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.studies import Plan, Store, play_study
from adv_wrappers.studies.robot.disturbances import Disturbance
from adv_wrappers.studies.robot.report import robot_report
from adv_wrappers.studies.robot.study import RobotStudy

BOX = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)


class Beam(gym.Env):
    """It is shown the time, and is to answer with it; it falls under too much mass, and when answers are late.

    Late answers are half a kilogram each.
    """

    physical_parameters: ClassVar[dict[str, str]] = {"mass": "mass"}
    sensors: ClassVar[dict[str, Any]] = {"gyro": (1, 2, 0.5), "unknown": (0, 1)}
    observation_space = action_space = BOX
    dt, mass = 0.1, 2.0

    def __init__(self, holds=3.0, diverges=np.inf):
        self.holds, self.diverges, self.t = holds, diverges, 0

    def _seen(self):
        return np.array([self.t, np.nan if self.mass > self.diverges else 0.0], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        late, tilt = self.t - action[0], abs(action[1])
        self.t += 1
        late = late if self.t > 10 else 0
        fallen = self.mass + late / 2 > self.holds or tilt > 0.4 or late >= 3
        return self._seen(), 1.0, bool(fallen), self.t == 20, {"height": 4.0 - self.mass}


class Shown(Beam):
    """A picture of it is as bright as it was heavy in its last step."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode=None, colours=3, **kwargs):
        super().__init__(**kwargs)
        self.render_mode, self.colours, self.weighed = render_mode, colours, 0.0

    def step(self, action):
        self.weighed = self.mass
        return super().step(action)

    def render(self):
        if not self.colours:
            raise OSError("no display")
        return np.full((60, 120, self.colours), int(50 * self.weighed), np.uint8)


class Misnamed(Beam):
    """Its parameter is an attribute that it does not have."""

    physical_parameters: ClassVar[dict[str, str]] = {"mass": "weight"}


for name, made in (("Beam-v0", Beam), ("Shown-v0", Shown), ("Misnamed-v0", Misnamed)):
    if name not in gym.registry:
        gym.register(name, made)

SAME = adv.from_module(torch.nn.Identity(), BOX, BOX, "mean")
HEAVY = Disturbance("load", "%", 100, "fixed-dynamics:at=mass,values={more}")
LATE = Disturbance("late", "steps", 8, "action-delay:steps={m}", 0.1)
LATE_SEEN = Disturbance("seen late", "steps", 8, "observation-delay:steps={m}", 0.1)
NOTHING = Disturbance("nothing", "m", 1, "sensor-bias:eps={m},scale=0;0")


def study(*table, metric="terminated", **kwargs):
    environments = [{"id": "Beam-v0", "kwargs": kwargs}]
    return RobotStudy(Plan.of(victims=["same"], environments=environments, episodes=2, metrics=[metric]), table, metric)


def played(given, store, **how):
    """The margins and the combinations that were played; nothing is left to be played."""
    margins, combinations, waiting = play_study(given, store, victims={"same": SAME}, progress=lambda *_: None, **how)
    assert waiting == []
    return margins, combinations


def test_the_least_magnitude_that_breaks_the_policy_is_found_and_two_break_it_together():
    with Store(":memory:") as store:
        found, combinations = played(study(NOTHING, HEAVY, LATE), store)
        margins, count = {one.disturbance: one for one in found}, len(store) - len(combinations)
    assert [*margins] == [LATE, HEAVY, NOTHING]  # by their share of the largest
    late, heavy, nothing = found
    assert heavy.safe <= 50 < heavy.breaks <= heavy.safe + 100 / 32  # 2 kg of 3, 50% more
    assert (late.safe, late.breaks, late.next) == (2.0, 3.0, None)
    assert nothing.breaks is None and nothing.safe == 1.0 and [m for m, _ in nothing.points] == [0.25, 1.0]
    assert count == 1 + sum(len(one.points) for one in margins.values()) < 16
    assert str(late) == "late: breaks it from 3 steps (300 ms) on, harmless up to 2 steps (200 ms)"
    assert heavy.disturbance.said(50) == "load (50%)"
    assert replace(HEAVY, name="mass off by").said(50) == "mass off by 50%"
    assert str(nothing) == "nothing: bears 1 m, the largest"
    halfway = replace(heavy, next=60.0, breaks=75.0, safe=50.0)
    assert str(halfway) == "load: breaks it at 75%, harmless up to 50%; less was not tried yet"
    [both] = combinations
    assert both.breaks and both.parts == ((LATE, 1.0), (HEAVY, pytest.approx(heavy.breaks / 2, abs=0.05)))
    assert str(both) == f"late (1 step (100 ms)) and load ({HEAVY.size(both.parts[1][1])})"


def test_three_are_combined_where_no_two_break_the_policy():
    three = study(HEAVY, LATE, LATE_SEEN, holds=3.5)
    with Store(":memory:") as store:
        _, [worst, *others] = played(three, store)
        rows = [row for _, row in store.rows() if " + " not in row.threat]
    assert worst.breaks and {one for one, _ in worst.parts} == {HEAVY, LATE, LATE_SEEN}
    assert [(one.breaks, len(one.parts)) for one in others] == [(False, 2)] * 3
    _, known, waiting = three.conclusion(rows)  # before they are played
    assert known == [] and {len(one.parts) for one in waiting} == {2} and len(waiting) == 3


@pytest.mark.slow
def test_what_breaks_first_is_known_well_and_combined_before_the_others_are_known(monkeypatch):
    monkeypatch.setattr("adv_wrappers.studies.robot.study._COMBINED", 2)
    asked, given = [], study(HEAVY, LATE, replace(HEAVY, name="at most", most=60), NOTHING)

    def rule(rows):
        plan = given.next(rows)
        asked.extend(plan.grids[0].threats if plan else [])
        return plan

    with Store(":memory:") as store:
        noted = type("Noted", (), {"next": staticmethod(rule), "conclusion": staticmethod(given.conclusion)})()
        margins, [both] = played(noted, store)
    first, second, third, _ = (one.disturbance for one in margins)
    assert {first, second} == {LATE, HEAVY} and both.threat in asked
    sizes = [third.threat(m) for m, _ in margins[2].points]
    last = [max(asked.index(one.disturbance.threat(m)) for m, _ in one.points) for one in margins[:2]]
    assert sum(asked.index(one) < max(last) for one in sizes) == 2 < len(sizes)
    assert max(last) < asked.index(both.threat) < max(asked.index(one) for one in sizes)


def test_disturbances_of_one_number_are_not_combined():
    more = replace(HEAVY, name="more load", most=90)
    with Store(":memory:") as store:
        _, combinations = played(study(HEAVY, more), store)
    assert combinations == []


def test_a_number_breaks_where_half_of_it_is_lost():
    with Store(":memory:") as store:
        [heavy], _ = played(study(HEAVY, metric="height", holds=100.0), store)
        _, clean = next(store.rows())
    assert str(clean.metric("height")) == "2 (2 to 2)"
    assert heavy.safe < 50 <= heavy.breaks <= heavy.safe + 100 / 32  # 4 - 2 kg is 2, and 1 at 3 kg


def test_a_policy_that_falls_by_itself_is_not_disturbed():
    with Store(":memory:") as store:
        assert len(played(study(HEAVY, holds=1.0), store)[0]) == 1 and len(store) == 2


def test_it_goes_on_and_a_limit_of_time_ends_it_between_two_rounds(tmp_path):
    with Store(tmp_path / "rows.db") as store:
        first, _ = played(study(HEAVY, LATE), store, minutes=0.0)
        assert len(first) == 1 and len(store) == 2, "the run without a disturbance, and one of the first round"
        whole, count = played(study(HEAVY, LATE), store), len(store)
        again = played(study(HEAVY, LATE), store)
        assert [str(one) for part in again for one in part] == [str(one) for part in whole for one in part]
        assert len(whole[1]) == 1 and len(store) == count


def test_the_report(tmp_path):
    told = []
    how = {"out": tmp_path, "episodes": 2, "name": "same", "env_kwargs": {"diverges": 5.0}}
    found = robot_report(SAME, "Beam-v0", **how, progress=lambda *counts: told.append(counts))
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1][0] > 10
    by_name = {one.disturbance.name: one for one in found.margins}
    assert by_name["actions late by"].breaks is None  # 0.2 s are two steps
    off = by_name["gyroscope off by"]
    assert off.safe <= 0.8 < off.breaks <= off.safe + 3 / 32 + 1e-9  # 0.4 by a factor of 0.5
    assert found.sentence.startswith("It falls first under ")
    assert "load on" in " ".join(found.left_out) and "push forward for 0.2 s every 2 s" in found.left_out
    page = found.page.read_text()
    assert str(found.combinations[0]) in page
    assert found.sentence.endswith(f"none of {len(found.combinations)} makes it fall.")
    assert found.sentence in page and "return there (of 20)" in page and "not finished" not in page


def test_the_run_without_a_disturbance_is_played_whatever_was_spent_before(tmp_path, monkeypatch):
    times = iter([0.0, 1000.0])  # of the report, and of what is left of it
    monkeypatch.setattr("adv_wrappers.utils.deadline.clock", lambda: next(times, 2000.0))
    found = robot_report(SAME, "Beam-v0", out=tmp_path, episodes=2)
    assert found.clean.episodes == 2 and len(found.margins) == 1
    words = str(found)
    assert "not finished, more minutes play: " in words and "actions late by" in words and "not tried: " in words


def test_a_film_of_the_worst_beside_the_run_without_it(tmp_path, monkeypatch):
    monkeypatch.setattr("adv_wrappers.studies.robot.report.disturbances", lambda robot: [HEAVY])
    found = robot_report(SAME, "Shown-v0", out=tmp_path, episodes=2)
    assert "data:image/webp;base64," in found.page.read_text()
    _, threat, row = found.worst
    assert threat == HEAVY.threat(found.margins[0].breaks) and row.lengths == [1, 1]
    with Image.open(tmp_path / "film.webp") as film:
        assert film.n_frames == 7  # one step of 0.1 s, and 0.6 s after it
        film.seek(6)
        picture = np.asarray(film.convert("RGB")).astype(int)
    left, right = picture[100, picture.shape[1] // 4, 0], picture[100, 3 * picture.shape[1] // 4, 0]
    assert abs(left - 100) < 6 and abs(right - 50 * 3) < 6  # 2 kg and 3


def test_why_there_is_no_film(tmp_path, monkeypatch):
    monkeypatch.setattr("adv_wrappers.studies.robot.report.disturbances", lambda robot: [HEAVY])
    how = {"out": tmp_path, "episodes": 1}
    cases = {"no render_mode rgb_array": "Beam-v0", "OSError: no display": ("Shown-v0", {"colours": 0})}
    for words, env in cases.items():
        env = env if isinstance(env, str) else adv.Environment(*env)
        page = robot_report(SAME, env, **how).page.read_text()
        assert "There is no film" in page and words in page


def test_a_disturbance_whose_simulation_diverges_is_left_out(tmp_path, monkeypatch):
    table = [HEAVY, LATE]
    monkeypatch.setattr("adv_wrappers.studies.robot.report.disturbances", lambda robot: table)
    given = {"out": tmp_path, "episodes": 2, "env_kwargs": {"holds": 9.0, "diverges": 3.5}}
    found = robot_report(SAME, "Beam-v0", **given)
    assert [one.disturbance for one in found.margins] == [LATE] and found.margins[0].breaks == 3.0
    assert "diverged" in found.left_out["load"]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"sensors": {"gyro": "1-2"}}, ValueRangeError, "sensors are places such as gyro=3:6"),
        ({"sensors": {"gyro": (1, 3)}}, ValueRangeError, "gyro stands at first:end with .* <= 2, .* got .1, 3"),
        ({"sensors": {"gyro": "2:1"}}, ValueRangeError, "gyro stands at first:end with 0 <= first < end"),
        ({"sensors": {"gyro": "0:1:0"}}, ValueRangeError, "the factor of the sensor gyro .* got 0"),
        ({"sensors": {"gyroscope": "0:1"}}, ValueRangeError, "no sensor 'gyroscope': known are velocity, gyro"),
        ({"sensors": {"gyro": "0:2", "joints": "1:2"}}, ValueRangeError, r"gyro \(0:2\) and joints \(1:2\) share"),
        ({"body": "torso"}, ValueRangeError, "no body 'torso' to push and load: none is known"),
        ({"env": "Misnamed-v0"}, SpaceError, "Misnamed lists .* as its attribute .weight., got None"),
        ({"env": Beam}, SpaceError, "register Beam"),
        ({"metric": "what:ever"}, ValueRangeError, "metrics are made by"),
    ],
)
def test_what_is_refused_before_anything_is_played(tmp_path, given, error, words):
    with pytest.raises(error, match=words):
        robot_report(SAME, **{"env": "Beam-v0", "out": tmp_path, **given})


@pytest.mark.slow
def test_a_robot_of_mujoco_from_the_command_line(tmp_path):
    """An agent of Hopper as TorchScript, for a few seconds: what is not known yet is named."""
    net = torch.nn.Sequential(torch.nn.Linear(11, 3), torch.nn.Tanh())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.trace(net, torch.zeros(1, 11)), str(tmp_path / "policy.pt"))
    words = ["robot", "Hopper-v5", "--victim", f"torchscript:{tmp_path / 'policy.pt'}", "--trust", "--minutes", "0.02"]
    more = ["--metric", "x_position", "--episodes", "1", "--sensors", "joints=1:5", "--out", str(tmp_path / "out")]
    found = CliRunner().invoke(main, [*words, *more])
    assert found.exit_code == 0, found.output
    page = (tmp_path / "out" / "robot.html").read_text()
    assert "With more time" in page and "drag in thigh_joint alone" in page and "noise of joint encoders" in page
    assert "weaker actuators" in page and "controller" not in page  # its motors have no stiffness
    assert "--sensors joints=1:5" in page.replace("<span>", "").replace("</span>", "")
