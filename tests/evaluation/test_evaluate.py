"""evaluate: pairing, quotas, metrics, transfer, and errors before anything is spent."""

from __future__ import annotations

import functools
import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import AdvWrappersError, SimulationError
from adv_wrappers.evaluation import rollout
from adv_wrappers.evaluation.cell_loop import CellLoop
from adv_wrappers.evaluation.episodes import Episodes
from adv_wrappers.evaluation.evaluator import CellsInBlocks, Evaluator, EvaluatorCell
from adv_wrappers.evaluation.executor import ThisProcess
from adv_wrappers.evaluation.first_steps import TOGETHER
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.evaluation.rows.store import Store
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN, as_threat_stack
from adv_wrappers.victims import Victim, from_module
from tests.evaluation.agents import Film, balancing, short, watcher
from tests.every_case import every_case
from tests.executors import LastFirst
from tests.rigs import RIGS
from tests.toys import Brief


class Counting(gym.Wrapper[Any, Any, Any, Any]):
    """Counts its steps and resets."""

    steps = resets = 0

    def reset(self, **arguments: Any) -> Any:
        self.resets += 1
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.env.step(action)


STACK = ["noise:eps=0.3", "worst-action:when=every(3)"]
THREATS = ["noise:eps=0.8", "max-diff:eps=2.0,p=0.8", "action-flip:p=0.5", STACK]


def untimed(report: Report) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "ms_per_step"} for row in report.threats]


def test_the_number_of_environments_changes_nothing() -> None:
    agent = balancing("logits", "sample", 1.0)
    one, many = (adv.evaluate(agent, short, THREATS, episodes=3, seed=7, num_envs=n) for n in (1, 2))
    for a, b in zip(untimed(one), untimed(many), strict=True):
        assert a["returns"] == b["returns"] and a["lengths"] == b["lengths"], a["threat"]
        assert a["attacked_fraction"] == b["attacked_fraction"] and a["action_change"] == b["action_change"]
        for key in ("l2", "linf"):
            assert a[key] == (b[key] if b[key] is None else pytest.approx(b[key], rel=1e-6))
    assert len({tuple(row["returns"]) for row in one.threats}) == len(THREATS) + 1


def test_a_run_can_be_repeated_and_another_seed_differs(victim: Victim) -> None:
    runs = [adv.evaluate(victim, short, ["noise:eps=1.0"], episodes=4, seed=s) for s in (0, 0, 1)]
    assert untimed(runs[0]) == untimed(runs[1]) and runs[0].episode_seeds == runs[1].episode_seeds
    assert runs[0].threats[1]["returns"] != runs[2].threats[1]["returns"]


def test_it_is_the_plain_loop_with_the_same_seeds(victim: Victim) -> None:
    report = adv.evaluate(victim, short, ["fgsm:eps=0.1"], episodes=2, num_envs=2)
    env = adv.wrap(short(), "fgsm:eps=0.1", victim=victim)
    returns = []
    for seed in report.episode_seeds:
        (obs, _), total, done = env.reset(seed=seed), 0.0, False
        while not done:
            params = victim.params(torch.as_tensor(obs, dtype=torch.float64)[None])
            obs, reward, terminated, truncated, _ = env.step(int(victim.act(params)))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    assert report.threats[1]["returns"] == returns


def test_the_clean_run_comes_first_and_keeps_the_pole_up(victim: Victim) -> None:
    report = adv.evaluate(victim, "CartPole-v1", "fgsm:eps=0.3", episodes=4)
    clean, attacked = report.threats
    assert clean["threat"] == "none" and clean["returns"] == [500.0] * 4 and clean["attacked_fraction"] == 0
    assert clean["regret"] == 0 and clean["impact"] == 0 and clean["l2"] is None
    assert attacked["mean_return"] < 100 and attacked["regret"] == 500 - attacked["mean_return"]
    assert attacked["impact"] == pytest.approx(attacked["regret"] / 500)
    assert attacked["attacked_fraction"] == 1 and 0 < attacked["action_change"] <= 1
    assert 0 < attacked["linf"] <= 0.3 + 1e-6 and attacked["linf"] <= attacked["l2"] <= 2 * 0.3 + 1e-6
    assert attacked["low"] <= attacked["mean_return"] <= attacked["high"]
    assert clean["caveat"].startswith("all 4 returns are equal") and attacked["caveat"].startswith("fewer than 10")


def test_action_attacks_are_measured_at_the_environment(victim: Victim) -> None:
    row = adv.evaluate(victim, short, "action-flip:when=every(4)", episodes=3).threats[1]
    assert row["attacked_fraction"] == pytest.approx(0.25, abs=0.02) and row["action_change"] == 1.0
    assert row["l2"] is None


class Still(Brief):
    """Twenty steps of zeros (or of what it is told), with continuous actions."""

    observation_space = gym.spaces.Box(-10, 10, (3,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    steps = 20

    def __init__(self, value: float = 0.0, reward: float = 1.0) -> None:
        self.value, self.gain = value, reward

    def seen(self) -> Any:
        return np.full(3, self.value)

    def act(self, action: Any) -> float:
        return self.gain


def test_distances_of_sign_noise_are_exact() -> None:
    actor = from_module(lambda x: x[:, :2] * 0, Still.observation_space, Still.action_space, "mean")
    noise = adv.ThreatModel("observation", adv.Noise("sign"), adv.Linf(0.5))
    push = adv.ThreatModel("action", adv.ActionNoise("bernoulli"), adv.Linf(0.25))
    report = adv.evaluate(actor, Still, [noise, push], episodes=3)
    seen, done = report.threats[1:]
    assert seen["linf"] == pytest.approx(0.5) and seen["l2"] == pytest.approx(0.5 * 3**0.5)
    assert seen["action_change"] == 0
    assert done["linf"] == pytest.approx(0.25) and done["l2"] == pytest.approx(0.25 * 2**0.5)
    assert done["action_change"] == 1 and done["impact"] is None
    assert report.env == {"id": "Still", "kwargs": {}, "make": "tests.evaluation.test_evaluate:Still"}


def test_transfer_is_told(victim: Victim) -> None:
    other = adv.threat("fgsm", balancing("q", sharpness=2.0), eps=0.1)
    report = adv.evaluate(victim, short, [other, adv.threat("fgsm", victim, eps=0.1), "fgsm:eps=0.1"], episodes=1)
    assert [row["transfer"] for row in report.threats] == [False, True, False, False]
    assert report.threats[1]["threat"].startswith("fgsm:eps=0.1,victim=<")


def test_idle_rows_are_not_attacked(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def decide(self: rollout.UnfinishedRows, step: Any, path: int = 0) -> Any:
        asked.append(self.rows)
        return self.rows

    monkeypatch.setattr(rollout.UnfinishedRows, "decide", decide)
    report = adv.evaluate(victim, short, ["fgsm:eps=0.3"], episodes=3, num_envs=2)
    assert any(rows is not True and not rows[1] for rows in asked)  # row 1 plays one episode, row 0 two
    assert report.threats[1]["episodes"] == 3 and report.num_envs == 2


@pytest.mark.parametrize("num_envs", [1, 2, 5])
def test_idle_rows_are_not_simulated(num_envs: int) -> None:
    made: list[Counting] = []
    agent = watcher(Film())

    def make() -> gym.Env[Any, Any]:
        made.append(Counting(Film()))
        return made[-1]

    report = adv.evaluate(agent, make, ["noise:eps=9"], episodes=5, num_envs=num_envs, distances=())
    lengths = [row["lengths"] for row in report.threats]
    assert len({*lengths[0]}) > 1 and lengths[0] == lengths[1]  # rows end at different steps
    first = lengths[0][0]  # the first episode is played twice before, and its beginning beside another environment
    looked = 2 * first + (2 * min(first, TOGETHER) if num_envs > 1 else 0)
    assert sum(env.steps for env in made) == looked + sum(map(sum, lengths))
    assert all(env.resets >= 2 for env in made[:num_envs])  # in every run


def test_results_are_kept_as_they_come(victim: Victim, tmp_path: Path) -> None:
    kept: list[int] = []

    def progress(threat: str, done: int, total: int) -> None:
        if done == 0 and threat != "none":
            kept.append(len(Report.from_json(tmp_path / "report.json").threats))

    report = adv.evaluate(victim, short, ["pgd:eps=0.3", "noise:eps=0.9"], 2, progress=progress, out=tmp_path)
    assert kept == [1, 2]
    assert Report.from_json(tmp_path / "report.json") == report


@pytest.mark.parametrize("rig", ["q", "image"])
def test_torch_computes_on_one_thread_and_threads_are_given_back(rig: str) -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    try:
        torch.set_num_threads(2)
        adv.evaluate(
            RIGS[rig].victim(),
            RIGS[rig].env,
            "noise:eps=0",
            episodes=1,
            progress=lambda *_: seen.append(torch.get_num_threads()),
        )
        assert set(seen) == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@every_case(
    ("arguments", "message"),
    [
        ({"env": "Acrobot-v1"}, "observation space"), ({"env": "Nonsense-v9"}, "cannot make"),
        ({"env": 3}, "id of an env"),
        ({"episodes": 0}, "episodes"), ({"episodes": True}, "episodes"), ({"seed": -1}, "seed"),
        ({"num_envs": 0}, "num_envs"), ({"threats": ["nonsense:eps=1"]}, "unknown preset"),
        ({"threats": ["noise"]}, "budget"), ({"threats": [[]]}, "stack"),
        ({"threats": [None]}, "expected a threat"), ({"victim": "zoo:nobody"}, "zoo"),
        ({"victim": 3}, "victim"),
        ({"device": "cuda:99"}, "device"), ({"device": "nowhere"}, "device"), ({"minimum": float("nan")}, "minimum"),
        ({"env": lambda: 1 / 0}, "side by side"), ({"env_kwargs": {"nonsense": 1}}, "cannot make"),
        ({"threats": ["robust-sarsa:eps=0.1"]}, "robust-sarsa"),
    ],
)  # fmt: skip
def test_errors_come_before_anything_is_spent(
    victim: Victim, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    played: list[Any] = []
    monkeypatch.setattr("adv_wrappers.evaluation.player.play_episodes", lambda *a, **b: played.append(a))
    with pytest.raises(AdvWrappersError, match=message):
        adv.evaluate(**{"victim": victim, "env": "CartPole-v1", **arguments})
    assert played == []


@every_case("broken", [{"value": np.nan}, {"reward": np.inf}])
def test_numbers_must_be_finite(broken: dict[str, float]) -> None:
    actor = from_module(lambda x: x[:, :2] * 0, Still.observation_space, Still.action_space, "mean")
    with pytest.raises(AdvWrappersError, match="not finite"):
        adv.evaluate(actor, Still, episodes=1, env_kwargs=broken)


def test_the_atari_preprocessing() -> None:
    pytest.importorskip("ale_py")
    from adv_wrappers.atari.env import atari
    from adv_wrappers.environments.environment import Environment

    env = atari("BreakoutNoFrameskip-v4")
    assert env.observation_space.shape == (4, 84, 84) and env.observation_space.dtype == np.uint8
    obs, _ = env.reset(seed=0)
    assert (obs[0] == obs[3]).all()  # a stack begins with copies of its first frame
    frames = [obs]
    lives = env.unwrapped.ale.lives()  # type: ignore[attr-defined]
    while env.unwrapped.ale.lives() == lives:  # type: ignore[attr-defined]
        frames.append(env.step(0)[0])  # the ball is served: FIRE was pressed
    assert 5 < len(frames) < 200 and (frames[-3][3] == frames[-2][2]).all()
    served = [env.step(0)[0][3] for _ in range(60)]  # and again after the lost life, or nothing would move
    assert any((a != b).any() for a, b in itertools.pairwise(served[20:]))
    images = from_module(
        lambda x: x.flatten(1)[:, :4], env.observation_space, env.action_space, "logits", dtype=torch.float32
    )
    made = Environment.of("BreakoutNoFrameskip-v4", images)
    assert made().observation_space == env.observation_space
    assert made.described == {"id": "BreakoutNoFrameskip-v4", "kwargs": {}}


def test_a_stack_is_written_as_reports_print_it() -> None:
    text = "noise:eps=0.1 + action-flip:p=0.5"
    as_list = adv.evaluate("zoo:cartpole-dqn", short, [text.split(" + ")], episodes=1)
    report = adv.evaluate("zoo:cartpole-dqn", short, text, episodes=1)
    assert report.threats[1]["threat"] == as_list.threats[1]["threat"] == text
    assert report.threats[1]["returns"] == as_list.threats[1]["returns"]


def test_a_report_prints_as_its_table() -> None:
    kwargs = {"max_episode_steps": 20}
    report = adv.evaluate("zoo:cartpole-dqn", "CartPole-v1", "noise:eps=0.1,when=every(2)", 2, env_kwargs=kwargs)
    lines = str(report).splitlines()
    assert lines[0] == "zoo:cartpole-dqn on CartPole-v1, 2 episodes, seed 0"
    assert any(line.strip().startswith("noise:eps=0.1,when=every(2)") for line in lines)
    assert all(line == line.rstrip() for line in lines)


def test_every_row_has_a_name_of_its_own_that_can_be_run_again(victim: Victim) -> None:
    weak, strong = (adv.threat("max-diff", eps=0.1, steps=steps) for steps in (1, 5))
    twins = [lambda x, context: x, lambda x, context: x + 1]
    blind = [adv.ThreatModel("observation", how, adv.Linf(0.1)) for how in twins]
    asked = [weak, strong, adv.threat("fgsm", eps=0.1, at=None), "noise:eps=1/10", "noise:eps=1/10", *blind]
    first = adv.evaluate(victim, short, asked, episodes=1)
    names = [row["threat"] for row in first.threats]
    assert names == [
        "none",
        "max-diff:steps=1,eps=0.1",
        "max-diff:steps=5,eps=0.1",
        "fgsm:eps=0.1",
        "noise:eps=1/10",
        "noise:eps=1/10 #2",
        "<lambda>:eps=0.1",
        "<lambda>:eps=0.1 #2",
    ]
    again = adv.evaluate(victim, short, names[1:6], episodes=1)
    assert [row["layers"] for row in again.threats] == [row["layers"] for row in first.threats[:6]]
    assert [row["returns"] for row in again.threats] == [row["returns"] for row in first.threats[:6]]


class Unstable(gym.Env[np.ndarray, int]):
    """Diverges at its third step where it is more than twice as heavy as its own."""

    physical_parameters = {"mass": "m"}  # noqa: RUF012
    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.m, self.t = 1.0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> Any:
        self.t += 1
        broken = self.m > 2 and self.t == 3
        return np.full(4, np.inf if broken else 0.1 * self.t, np.float32), 1.0 / self.m, self.t == 5, False, {}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_simulation_that_diverges_ends_its_own_row_alone(victim: Victim, tmp_path: Path, workers: int) -> None:
    threats = [
        "fixed-dynamics:at=mass,values=2",
        "fixed-dynamics:at=mass,values=3",
        "fixed-dynamics:at=mass,values=0.5",
    ]
    made = functools.partial(adv.evaluate, victim, Unstable, threats, episodes=3, num_envs=2, workers=workers)
    report = made(out=tmp_path)
    assert [row["threat"] for row in report.threats] == ["none", threats[0], threats[2]]
    assert [row["mean_return"] for row in report.threats] == [5.0, 2.5, 10.0]
    [warning] = [text for text in report.warnings if "has no row" in text]
    assert warning == (
        "fixed-dynamics:at=mass,values=3 has no row: the simulation diverged at step 3 with mass=3: it returned "
        "array([inf, inf, inf, inf], dtype=float32)"
    )
    with Store(tmp_path / "rows.db") as store:
        assert list(store.errors().values()) == [f"SimulationError: {warning.partition(': ')[2]}"]
        assert len(list(store.rows())) == 3
    again = made(out=tmp_path, resume=True)  # what failed is tried again, and nothing else
    assert untimed(again) == untimed(report)


@every_case(
    ("wrong", "text"),
    [
        ("pgd:epz=0.1", "^pgd takes "),
        ("nonsense", "^unknown preset 'nonsense'"),
        ({"on": "observation"}, "^unknown type None"),
        ("rotation:degrees=3", "^rotation:degrees=3.*: cannot tell which axes"),
        ("action-noise:eps=0.2", "^action-noise:eps=0.2: discrete actions have no distance"),
        (["pgd:eps=0.1", "nonsense"], "^unknown preset 'nonsense'"),
    ],
)
def test_an_error_in_a_list_says_which_threat(victim: Victim, wrong: Any, text: str) -> None:
    with pytest.raises(AdvWrappersError, match=f"^{text}"):
        adv.evaluate(victim, short, ["noise:eps=0.1", wrong, "pgd:eps=0.1"], episodes=1)
    if not isinstance(wrong, list):  # one threat needs no number
        with pytest.raises(AdvWrappersError, match=r"^(?!threat )"):
            adv.evaluate(victim, short, [wrong], episodes=1)


class Later(Unstable):
    """It diverges at a step that depends on its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        found = super().reset(seed=seed)
        self.t = -((seed or 0) % 7)
        return found


def test_an_error_is_that_of_the_first_episodes_whichever_end_first(victim: Victim) -> None:
    stacks = [CLEAN_RUN, as_threat_stack("fixed-dynamics:at=mass,values=3", victim)]
    evaluator = Evaluator(victim, Environment(Later), stacks, Episodes(6, num_envs=1))
    cells, found = [EvaluatorCell(str(i), i) for i in range(2)], list[str | None]()
    with closing(evaluator):
        for make in (ThisProcess, LastFirst):
            loop = CellLoop(cells, cells, CellsInBlocks(evaluator, make(evaluator.player)))
            loop.play(lambda played: found.append(None if played is None else played.error))
    assert found.count(None) == 2 and len({*found}) == 2


def test_rows_in_a_folder_have_the_order_of_the_threats(victim: Victim, tmp_path: Path) -> None:
    for threats in (["fgsm:eps=0.1"], ["noise:eps=0.1", "fgsm:eps=0.1"]):  # the last was played first
        adv.evaluate(victim, short, threats, episodes=2, out=tmp_path, resume=True)
    with Store(tmp_path / "rows.db") as store:
        assert [row["threat"] for _, row in store.rows()] == ["none", "noise:eps=0.1", "fgsm:eps=0.1"]


def test_a_simulation_that_diverges_without_a_threat_is_an_error(victim: Victim) -> None:
    def heavy() -> gym.Env[Any, Any]:
        return adv.PerturbDynamics(Unstable(), "fixed-dynamics:at=mass,values=3")

    with pytest.raises(SimulationError, match="diverged at step 3 with mass=3"):
        adv.evaluate(victim, heavy, episodes=2)


def test_fewer_environments_are_played_side_by_side_where_there_are_images() -> None:
    def first_two(x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :2]

    acts = gym.spaces.Discrete(2)
    box, image = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(0, 255, (9, 9, 3), np.uint8)
    for space, most in ((box, 32), (image, 8), (gym.spaces.Dict(x=box), 32), (gym.spaces.Dict(x=box, eye=image), 8)):
        agent = from_module(lambda obs: first_two(obs["x"] if isinstance(obs, dict) else obs), space, acts, "q")
        assert Episodes(320).fitted(agent).num_envs == most
