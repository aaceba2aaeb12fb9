"""assert_robust: verdicts, early ends, time, and what is refused; and the option of pytest."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import NotRobust, SpaceError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN
from adv_wrappers.studies import gate as gate_module
from adv_wrappers.studies.gate import BUDGET_VARIABLE, _SequentialTest, _Tried, assert_robust
from adv_wrappers.utils import deadline
from tests.evaluation.agents import balancing, make_short, short
from tests.every_case import every_case
from tests.toys import Brief

pytest_plugins = ("pytester",)


class Lottery(Brief):
    """Five steps whose reward is 1, drawn with the probability 0.7, and 0.5 where the agent was led to action 1."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)
    steps, cut = 5, False

    def seen(self):
        return np.full(1, -0.1)

    def act(self, action):
        return self.np_random.uniform() < (0.5 if action else 0.7)


def player():
    net = torch.nn.Linear(1, 2, bias=False, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[-1.0], [1.0]]))
    return adv.from_module(net, Lottery.observation_space, Lottery.action_space, "logits")


def brief():
    """CartPole that ends after 10 steps."""
    return make_short("CartPole-v1", 10)


WORST = 2.5  # of five steps that are won with one half; without an attack 3.5


def gate(min_return, **how):
    return assert_robust(player(), Lottery, eps=0.5, attacks=["fgsm"], min_return=min_return, **how)


def test_an_agent_that_keeps_what_is_asked_for_passes():
    found = gate(1.5)
    assert found.worst.threat == "fgsm:eps=0.5" and found.worst.episodes <= 80 and found.worst.low >= 1.5
    assert found.seconds > 0 and gate(1.5).attacks == found.attacks  # by its seed


def test_an_agent_that_does_not_fails_with_the_episode():
    with pytest.raises(NotRobust, match=r"fgsm:eps=0.5 leaves \d.* less than the 3.5 asked for") as raised:
        gate(3.5)
    text = str(raised.value)
    seed = int(text.partition("env.reset(seed=")[2].partition(")")[0])
    assert isinstance(raised.value, AssertionError) and f"seed {seed}" in text and "over 10 episodes" in text


def test_the_line_that_repeats_a_failure_makes_the_same_environment():
    environment = adv.Environment("CartPole-v1", {"max_episode_steps": 12})
    for env, kwargs in ((environment, None), (environment.env, environment.kwargs)):
        with pytest.raises(NotRobust, match="see also adv") as error:
            assert_robust("zoo:cartpole-dqn", env, eps=0.01, attacks=["noise"], min_return=13, env_kwargs=kwargs)
        line = str(error.value).partition("see also ")[2]
        assert eval(line, {"adv": adv}).threats[1]["lengths"] == [12]


def test_a_clear_case_ends_early_and_a_close_one_is_undecided():
    close = 2.5
    with pytest.raises(NotRobust, match=r"undecided after 160 episodes: whether at least 2.5 are left is not shown"):
        gate(close, most_episodes=160)
    assert gate(1.0).worst.episodes <= 20


def test_an_undecided_case_says_by_which_rule():
    with pytest.raises(
        NotRobust, match=r"passes where the interval lies at or above 2.5 \(it begins at .* for 7 looks"
    ):
        gate(2.5, most_episodes=160)
    known = {"eps": 1e-3, "attacks": ["noise"], "return_range": (None, None), "most_episodes": 10}
    with pytest.raises(NotRobust, match=r"what another episode may return is not known: it fails from 72 episodes on"):
        assert_robust(balancing(), short, min_return=45, **known)
    with pytest.raises(NotRobust, match=r"it passes from 72 episodes on, or with .*return_range=\(lowest, highest\)"):
        assert_robust(balancing(), short, min_return=35, **known)
    with pytest.raises(NotRobust, match="there is no verdict on fewer than 10 episodes"):
        assert_robust(balancing(), short, min_return=35, budget_s=1e-6, **known)


def test_pytest_shows_the_line_of_the_test_alone(pytester):
    pytester.makepyfile(
        """
        from adv_wrappers.studies.gate import assert_robust

        def test_agent():
            assert_robust("zoo:cartpole-dqn", "CartPole-v1", eps=0.5, attacks=["fgsm"], min_return=400)
        """
    )
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    done.assert_outcomes(failed=1)
    shown = done.stdout.str()
    assert "NotRobust: fgsm:eps=0.5 leaves" in shown and "in assert_robust" not in shown and "budget_s" not in shown


def sequential(attacks: int, min_return: float) -> _SequentialTest:
    return _SequentialTest([_Tried(CLEAN_RUN) for _ in range(attacks)], min_return, 0.95, 320)


def broken(test: _SequentialTest) -> bool:
    return any(test.claim.refuted_by(one.returns) for one in test.tried)


def test_verdicts_are_wrong_no_more_often_than_asked_for():
    """On returns with the worst case known, at its mean, where either verdict is wrong half of the time at most."""
    draw, wrong = np.random.default_rng(0), 0
    for _ in range(60):
        test = sequential(2, 2.5)
        verdict = None
        for look in test.looks:
            for one in test.tried:
                one.add(draw.binomial(5, 0.5, look - len(one.returns)).tolist(), [0])
            test.end_look()
            verdict = "fails" if broken(test) else None if test.undecided else "passes"
            if verdict is not None:
                break
        wrong += verdict is not None
    assert wrong <= 0.1 * 60  # 5% for each of the two


def test_a_call_ends_with_its_time(monkeypatch):
    """A step takes a millisecond, whatever else the machine does."""
    now = [0.0]

    class Slow(Lottery):
        def step(self, action):
            now[0] += 1e-3
            return super().step(action)

    monkeypatch.setattr(gate_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(deadline, "clock", lambda: now[0])
    given = {"eps": 0.5, "attacks": ["fgsm"], "min_return": 2.5, "most_episodes": 10**6}
    with pytest.raises(NotRobust, match=r"undecided after .* of 1 s: whether at least 2.5"):
        assert_robust(player(), Slow, budget_s=1.0, **given)
    with pytest.raises(NotRobust, match="10 episodes of each take about"):
        assert_robust(player(), Slow, budget_s=1e-6, **given)


def test_a_look_is_cut_to_the_time_that_is_left():
    test = sequential(2, 2.5)
    assert test.batch(100.0) == 1
    for one in test.tried:
        one.add([2.0], [0])
        one.seconds = 0.5
    test.end_look()
    assert test.batch(100.0) == 9 and test.batch(4.0) == 4 and test.batch(1.0) == 1 and test.batch(1.0) == 0


def test_equal_returns_decide_only_where_there_are_many():
    known = {"eps": 1e-3, "attacks": ["noise"], "return_range": (None, None)}
    found = assert_robust(balancing(), brief, min_return=7, **{**known, "attacks": "noise"})
    assert found.worst.mean == 10 and found.worst.episodes == 80  # 72 would show an event of 1 in 20
    with pytest.raises(NotRobust, match="over 80 episodes, less than the 11"):
        assert_robust(balancing(), brief, min_return=11, **known)


def test_the_range_of_returns_decides_sooner():
    known = {"eps": 1e-3, "attacks": ["noise"], "return_range": (0.0, 12.5)}
    assert assert_robust(balancing(), brief, min_return=3.75, **known).worst.episodes == 10
    with pytest.raises(NotRobust, match=r"over 10 episodes, less than the 12\.2"):
        assert_robust(balancing(), brief, min_return=12.25, **known)
    cut = {**known, "return_range": None, "env_kwargs": {"max_episode_steps": 10}}
    assert assert_robust(balancing(), "CartPole-v1", min_return=3.75, **cut).worst.episodes == 10
    cut["env_kwargs"] |= {"sutton_barto_reward": True}
    with pytest.raises(NotRobust, match="undecided after 20 episodes"):  # -1 is its lowest return, and not 0
        assert_robust(balancing(), "CartPole-v1", min_return=-0.1, most_episodes=20, **cut)


@pytest.mark.slow
@pytest.mark.parametrize(("chance", "asked"), [(0.1, 0.04), (0.2, 0.1)])
def test_a_task_that_is_seldom_won_is_not_failed_for_its_first_losses(chance, asked):
    draw, failed = np.random.default_rng(0), 0
    for _ in range(100):
        test = sequential(3, asked)
        for look in test.looks:
            for one in test.tried:
                one.add(draw.binomial(1, chance, look - len(one.returns)).tolist(), [0])
            test.end_look()
            failed += broken(test)
            if broken(test) or not test.undecided:
                break
    assert failed <= 0.05 * 100


def test_a_suite_and_threats_of_ones_own():
    threats = ["fgsm", "noise:eps=0.3", adv.threat("action-flip", p=0.0)]
    found = assert_robust(player(), Lottery, eps=0.5, attacks=threats, min_return=1.0)
    assert [attack.threat.partition(":")[0] for attack in found.attacks] == ["fgsm", "noise", "action-flip"]
    suite = assert_robust(player(), Lottery, eps=0.01, suite="action", min_return=0.0)
    assert "action-flip" in [attack.threat for attack in suite.attacks] and "induce" in suite.left_out


@every_case(
    ("change", "error", "message"),
    [
        ({"min_return": float("nan")}, ValueRangeError, "min_return"),
        ({"confidence": 1.0}, ValueRangeError, "confidence"),
        ({"confidence": 0.4}, ValueRangeError, "confidence"), ({"budget_s": 0.0}, ValueRangeError, "budget_s"),
        ({"most_episodes": 9}, ValueRangeError, "most_episodes"), ({"attacks": None, "suite": "no"}, ThreatError, "no"),
        ({"attacks": None, "eps": None}, ThreatError, "needs a budget"),
        ({"attacks": ["min-q"]}, ValueRangeError, "min-q"),
        ({"attacks": []}, ValueRangeError, "no attack"), ({"env": "Nowhere-v0"}, SpaceError, "Nowhere"),
        ({"env_kwargs": ["max_episode_steps"]}, SpaceError, r"env_kwargs must be a dictionary, got \['max_ep"),
        ({"env": "CartPole-v1", "make": 3}, SpaceError, "make must be a function, .*, got 3"),
        ({"seed": -1}, ValueRangeError, "seed"), ({"rare": 0.0}, ValueRangeError, "rare"),
        ({"rare": 1.0}, ValueRangeError, "rare must be .* below 1"),
        ({"return_range": 5}, ValueRangeError, "return_range"),
        ({"return_range": (3.0, 1.0)}, ValueRangeError, "from the lowest to the highest"),
        ({"return_range": (0.0, "x")}, ValueRangeError, "return_range must be a list of 2"),
        ({"eps": None, "scale": "victim", "attacks": ["noise:eps=0.1"]}, ThreatError, "eps"),
    ],
)  # fmt: skip
def test_what_is_refused(change, error, message):
    given = {"victim": player(), "env": Lottery, "eps": 0.5, "attacks": ["fgsm"], "min_return": 1.0} | change
    with pytest.raises(error, match=message) as raised:
        assert_robust(**given)
    # what pytest shows: the line of the test, and no source of the package
    shown = [one for one in raised.traceback if not one.frame.f_locals.get("__tracebackhide__")]
    assert [str(one.path) for one in shown] == [__file__]


def test_seconds_of_the_session(monkeypatch):
    monkeypatch.setenv(BUDGET_VARIABLE, "1e-6")
    with pytest.raises(NotRobust, match="of 1e-06 s"):
        gate(2.5)
    assert gate(1.0, budget_s=60.0).worst.mean > 1.0  # its own counts
    monkeypatch.setenv(BUDGET_VARIABLE, "soon")
    with pytest.raises(ValueRangeError, match="must be a number of seconds, got 'soon'"):
        gate(1.0)


def test_the_option_of_pytest(pytester):
    pytester.makepyfile(
        """
        import os, sys

        def test_budget():
            assert os.environ["ADV_WRAPPERS_BUDGET"] == "2.5"
            assert "torch" not in sys.modules and "gymnasium" not in sys.modules
        """
    )
    done = pytester.runpytest_subprocess("-p", "adv_wrappers_pytest", "--adv-budget", "2.5", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1)
