"""``context.simulator``: what it returns, in every kind of environment, and that nobody notices its use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor, VecTransposeImage

import adv_wrappers as adv
from adv_wrappers.core.engine.context import AttackedStep, Context
from adv_wrappers.core.perturbation import ActionPerturbation, SimulatingPerturbation
from adv_wrappers.core.timing import Bernoulli
from adv_wrappers.environments.simulator import EnvironmentBeneath, Simulator
from adv_wrappers.environments.snapshot import difference
from adv_wrappers.errors import SnapshotError
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv
from adv_wrappers.training.sb3.vec_env import Sb3Adapter
from adv_wrappers.wrappers.action_recorder import VectorActionRecorder
from tests.every_case import every_case


def cartpole():
    return gym.make("CartPole-v1", max_episode_steps=12)


class Tries:
    """An attack on actions that tries each of them, notes what it saw, and plays the agent's own."""

    def __init__(self, tries=True):
        self.tries, self.seen = tries, []

    def __call__(self, x, context):
        if self.tries:
            self.seen.append([context.simulator.step(torch.full((len(x),), a)) for a in (1, 0, 1)])
        return x


def sync(mode):
    return lambda: SyncVectorEnv([cartpole] * 3, autoreset_mode=mode)


VECTORS = {
    "single": cartpole,
    **{mode.name: sync(mode) for mode in AutoresetMode},
    "episodes": lambda: VectorActionRecorder(EpisodesVectorEnv(cartpole, 3)),
    "dummy": lambda: DummyVecEnv([cartpole] * 3),
    "adapter": lambda: VecMonitor(Sb3Adapter(sync(AutoresetMode.SAME_STEP)())),
}


def episode(kind, tries):
    attack = Tries(tries)
    env = adv.PerturbObservation(VECTORS[kind](), "noise:eps=0.01")
    if isinstance(env, adv.PerturbObservation):  # a layer beneath is simulated with the environment
        env = adv.PerturbAction(env, attack, adv.Valid(), when=Bernoulli(0.5))
    else:
        env = adv.PerturbObservation(
            adv.PerturbAction(VECTORS[kind](), attack, adv.Valid(), when=Bernoulli(0.5)), "noise:eps=0.01"
        )
    single = kind == "single"
    sb3 = hasattr(env, "step_async") and not isinstance(env, gym.vector.VectorEnv)
    if sb3:
        env.seed(0)
    answers, rng = [env.reset() if sb3 else env.reset(seed=0)], np.random.default_rng(0)
    for _ in range(40):
        answer = env.step(int(rng.integers(2)) if single else rng.integers(0, 2, 3))
        answers.append(answer)
        if single and (answer[2] or answer[3]):
            answers.append(env.reset())
        elif kind in ("DISABLED", "episodes") and (done := answer[2] | answer[3]).any():
            answers.append(env.reset(options={"reset_mask": done}))
    return answers, attack.seen


def without_seconds(answers):
    return [
        tuple(part for part in answer if not isinstance(part, list)) if isinstance(answer, tuple) else answer
        for answer in answers
    ]


@pytest.mark.parametrize("kind", VECTORS)
def test_nobody_notices_its_use(kind):
    tried, seen = episode(kind, True)
    plain, nothing = episode(kind, False)
    assert difference(without_seconds(plain), without_seconds(tried), "answers") == "" and not nothing
    assert len(seen) > 5
    for right, left, again in seen:
        assert difference(right, again, "answer") == ""
        rows = len(right[1])
        assert right[0].shape == (rows, 4) and right[0].dtype == np.float32
        assert right[1].dtype == np.float64 and right[2].dtype == bool
        assert (right[0][:, 1] > left[0][:, 1]).all()  # pushed to the right the cart is faster to the right
    assert any(answer[2].any() for three in seen for answer in three)


@every_case("kind", VECTORS)
def test_it_foresees_the_next_step(kind):
    foreseen = []

    def look(x, context):
        foreseen.append(context.simulator.step(x.long()))
        return x

    inner = VECTORS[kind]()
    env = adv.PerturbAction(inner, look, adv.Valid())
    sb3 = not isinstance(env, (gym.Env, gym.vector.VectorEnv))
    env.reset() if sb3 else env.reset(seed=1)
    for step in range(6):
        obs, reward, *_ = env.step(1 if kind == "single" else np.array([1, 0, 1]))
        expected, gained, done = foreseen[step]
        assert np.array_equal(expected, np.atleast_2d(obs)) and np.array_equal(gained, np.atleast_1d(reward))
        assert not done.any()


def test_continuous_and_dictionary_actions():
    class Doubled(gym.Env):
        observation_space = gym.spaces.Dict(a=gym.spaces.Box(-9, 9, (2,)), b=gym.spaces.Discrete(5))
        action_space = gym.spaces.Dict(x=gym.spaces.Box(-1, 1, (2,)), y=gym.spaces.Discrete(2))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.at = np.zeros(2, np.float32)
            return {"a": self.at, "b": 0}, {}

        def step(self, action):
            self.at += action["x"]  # the environment's own memory is handed out
            return {"a": self.at, "b": int(action["y"])}, float(action["y"]), False, False, {}

    actions = {"x": torch.tensor([[0.5, 0.25], [1.0, -1.0]]), "y": np.array([1, 0])}
    rows = SyncVectorEnv([Doubled, Doubled])
    rows.reset(seed=0)
    for _ in range(2):
        obs, reward, done = Simulator(EnvironmentBeneath(rows)).step(actions)
        assert obs["a"].tolist() == [[0.5, 0.25], [1.0, -1.0]] and obs["b"].tolist() == [1, 0]
        assert reward.tolist() == [1, 0] and done.tolist() == [False, False]
    obs, reward, _ = Simulator(EnvironmentBeneath(rows), np.array([1])).step({"x": np.ones((1, 2)), "y": np.array([1])})
    assert obs["a"].tolist() == [[1, 1]] and reward.tolist() == [1]
    one = Doubled()
    one.reset(seed=0)
    obs, reward, done = Simulator(EnvironmentBeneath(one)).step({"x": np.ones((1, 2), np.float32), "y": [1]})
    assert obs["a"].tolist() == [[1, 1]] and obs["b"].tolist() == [1] and one.at.tolist() == [0, 0]


def test_the_replay_comes_first():
    env = adv.PerturbAction(cartpole(), Tries(), adv.Valid())
    env.reset(seed=0)
    env.unwrapped.tau = 0.02
    count = iter(range(100))
    real = type(env.unwrapped).step
    env.unwrapped.step = lambda action: (next(count), real(env.unwrapped, action))[1]  # notices every step
    env.step(0)
    assert next(count) == 3 + 3 + 3 + 1  # twice three, three tries, and the step itself
    env.step(0)
    assert next(count) == 11 + 3 + 1
    env.unwrapped.step = lambda action: (np.float32([next(count), 0, 0, 0]), 1.0, False, False, {})
    fresh = adv.PerturbAction(env.unwrapped, Tries(), adv.Valid())
    fresh.reset(seed=0)
    with pytest.raises(SnapshotError, match="does not repeat: step 1 after a restore has another observation"):
        fresh.step(0)


def small_pong():
    return gym.wrappers.ResizeObservation(gym.make("ALE/Pong-v5"), (8, 8))


@dataclass(frozen=True)
class Simulating(ActionPerturbation, SimulatingPerturbation):
    """Needs a simulator from the beginning."""

    name: ClassVar[str] = "tests-simulating"

    def __call__(self, x, context):
        return x


def wrapped(env):
    return adv.PerturbAction(env, Simulating())


@every_case(
    ("make", "what"),
    [
        (lambda: AsyncVectorEnv([cartpole]), "AsyncVectorEnv has no simulator: .* processes: use SyncVectorEnv"),
        (lambda: SubprocVecEnv([cartpole], "fork"), "SubprocVecEnv has no simulator: .* processes: use DummyVecEnv"),
        (lambda: gym.make_vec("ALE/Pong-v5", 1), r"AtariVectorEnv .* its games cannot be saved: use Sync.*atari\("),
        (lambda: gym.make_vec("CartPole-v1", 1), "CartPoleVectorEnv has no simulator: use SyncVectorEnv, or Dummy"),
        (lambda: NormalizeObservation(SyncVectorEnv([cartpole])), "past NormalizeObservation, which changes what"),
        (lambda: adv.wrap(SyncVectorEnv([cartpole]), "noise:eps=0.1"), "past VectorPerturbO.* directly around the v"),
        (lambda: VecTransposeImage(DummyVecEnv([small_pong])), "past VecTransposeImage"),
    ],
)  # fmt: skip
def test_environments_without_one_are_refused_when_they_are_wrapped(make, what):
    env = make()
    try:
        with pytest.raises(SnapshotError, match=what):
            wrapped(env)
    finally:
        env.close()


def test_without_an_environment_and_at_the_end_of_an_episode():
    engine = adv.PerturbAction(cartpole(), Simulating()).engine
    with pytest.raises(SnapshotError, match="tests-simulating cannot simulate from the last observation of an episode"):
        _ = Context(AttackedStep(engine.applied, engine.state, np.int64(0), np.zeros((1,)), final=True)).simulator
    engine.state.simulators = None
    with pytest.raises(
        SnapshotError, match="tests-simulating needs a simulator: a layer around an environment on the host"
    ):
        _ = Context(AttackedStep(engine.applied, engine.state, np.int64(0), np.zeros((1,)))).simulator
    around = Context.around(torch.zeros(1, 1), adv.Valid(), (torch.zeros(1, 1), torch.ones(1, 1)), torch.zeros(1))
    assert around.simulator is None
