"""States that cannot be saved are reached by a replay, to the bit; what does not repeat then either is named."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, RecordEpisodeStatistics
from stable_baselines3.common.vec_env import DummyVecEnv

import adv_wrappers as adv
from adv_wrappers.core.perturbation import SimulatingPerturbation
from adv_wrappers.environments.replay import ReplayRecorder, record_for_replay, recorders_of
from adv_wrappers.environments.snapshot import Snapshot, StateFingerprints, check_repeats, difference, random_states
from adv_wrappers.errors import SnapshotError
from tests.box2d import needs_box2d
from tests.episodes import play
from tests.every_case import every_case

REPLAYED = "its states are reached by replaying its episode"


class Handle(gym.Env):
    """Walks by noise that it draws, and counts its steps in a generator, which cannot be copied."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(3)
    played = 0  # of all steps ever

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal() + (options or {}).get("start", 0)
        self.counter = (t for t in range(10**9))
        return np.array([self.place, next(self.counter)]), {}

    def step(self, action):
        Handle.played += 1
        self.place += int(action) + self.np_random.normal()
        t = next(self.counter)
        return np.array([self.place, t]), self.place, t >= 40, False, {"t": t}


class Forgets(gym.Env):
    """Counts where no snapshot looks, from 0 at every reset; ``seeded=False`` from where it was."""

    observation_space, action_space = gym.spaces.Discrete(99), gym.spaces.Discrete(2)

    def __init__(self, seeded=True):
        count = 0

        def reset():
            nonlocal count
            count = 0 if seeded else count

        def step():
            nonlocal count
            count += 1
            return count

        self.start, self.count = reset, step

    def reset(self, *, seed=None, options=None):
        self.start()
        return 0, {}

    def step(self, action):
        return self.count(), 1.0, False, False, {}


def wrapped(env):
    """Wrappers and layers, all of which remember something."""
    env = adv.PerturbAction(RecordEpisodeStatistics(env), "action-flip:p=0.3")
    env = adv.PerturbObservation(NormalizeObservation(env), "noise:eps=0.01", when="bernoulli(0.5)&atmost(20)")
    return FrameStackObservation(gym.wrappers.TimeLimit(env, 60), 2)


def drawn(env, count):
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(count)]


def box2d(id, **kwargs):
    return pytest.param(lambda: wrapped(gym.make(id, **kwargs)), 30, id=id, marks=needs_box2d)


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        pytest.param(lambda: wrapped(Handle()), 60, id="handle"),
        box2d("LunarLander-v3"),
        pytest.param(
            lambda: RecordEpisodeStatistics(gym.make("ALE/Pong-v5", obs_type="ram")), 40, id="sticky",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_equal_to_the_bit_after_a_replay(make, steps):
    env = record_for_replay(make())
    env.reset(seed=3)
    actions = drawn(env, steps)
    play(env, actions[: steps // 3])
    snapshot = Snapshot.of(env)
    with pytest.warns(RuntimeWarning, match=f"cannot be saved: its .*{REPLAYED}"):
        check_repeats(env)
    first = play(env, actions[steps // 3 :])  # of Handle over the end of an episode
    for _ in range(2):
        snapshot.restore(env)
        assert difference(first, play(env, actions[steps // 3 :]), "answers") == ""
    env.reset()  # an episode without a seed
    play(env, actions[:5])
    later = Snapshot.of(env)
    first = play(env, actions[5:15])
    later.restore(env)
    assert difference(first, play(env, actions[5:15]), "answers") == ""
    env.close()


@needs_box2d
@pytest.mark.parametrize("id", ["BipedalWalkerHardcore-v3", pytest.param("CarRacing-v3", marks=pytest.mark.slow)])
def test_a_world_of_box2d_is_as_new_after_other_episodes(id):
    env = record_for_replay(gym.make(id))
    actions = drawn(env, 20 if id == "CarRacing-v3" else 60)
    for seed in range(1 if id == "CarRacing-v3" else 4):
        env.reset(seed=seed)
        play(env.env, actions[: 9 * seed])
        env.reset(seed=7)
        play(env, actions[:5])
        if seed == 0:
            snapshot = Snapshot.of(env)
            first = play(env, actions[5:])
            with pytest.warns(RuntimeWarning, match="is a b2Body, whose state is outside Python"):
                snapshot.restore(env)
        snapshot.restore(env)
        assert difference(first, play(env, actions[5:]), "answers") == ""


def test_steps_are_played_again_only_where_it_must_be():
    env = record_for_replay(gym.wrappers.TimeLimit(Handle(), 50))
    env.reset(seed=0, options={"start": 5})
    saved = [Snapshot.of(env)]
    for action in (1, 2, 0, 1, 2):
        env.step(action)
        saved.append(Snapshot.of(env))
    saved[0].restore(env)
    env.step(0)
    with pytest.warns(RuntimeWarning, match=REPLAYED):  # once
        saved[5].restore(env)
    costs = []
    for t in (5, 2, 4, 4, 0, 3):  # here already; from the reset; two steps on; here; the reset; three steps on
        before = Handle.played
        saved[t].restore(env)
        costs.append(Handle.played - before)
        assert env._elapsed_steps == t
    assert costs == [0, 2, 2, 0, 0, 3]
    env.step(0)  # another way, which what was saved does not lie on
    before = Handle.played
    saved[4].restore(env)
    assert Handle.played - before == 4 and env.step(2)[0][1] == 5


def test_what_can_be_saved_is_not_recorded():
    env = record_for_replay(gym.make("CartPole-v1"))
    (recorder,) = recorders_of(env)
    env.reset(seed=0)
    env.step(1)
    assert recorder.at.t == 1
    check_repeats(env)
    assert recorder.at is None and recorder.why == ""
    env.reset(seed=0)
    prints, before = StateFingerprints(), Snapshot.of(env)
    env.step(1)
    before.restore(env)
    assert recorder.at is None and prints.of(Snapshot.of(env)) == prints.of(before)


def test_contents_that_do_not_repeat_are_replayed():
    env = record_for_replay(Forgets())
    env.reset(seed=0)
    env.step(0)
    with pytest.warns(RuntimeWarning, match=f"<Forgets.* does not repeat after .* observation .2, then 5.*{REPLAYED}"):
        check_repeats(env)
    assert env.step(0)[0] == 2
    snapshot = Snapshot.of(env)
    assert [env.step(0)[0], snapshot.restore(env), env.step(0)[0]] == [3, None, 3]
    assert StateFingerprints().of(snapshot) is None


@every_case(
    ("make", "words"),
    [
        (lambda: Forgets(seeded=False), "Forgets.* is not deterministic under its seed: .*, step 1 has another observ"),
        (lambda: Luck(), "Luck.* is not deterministic under its seed: .* its reset has another observation; a replay"),
    ],
)
def test_what_is_not_deterministic_under_its_seed_is_named(make, words):
    env = record_for_replay(make())
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(SnapshotError, match=words):
        check_repeats(env)


class Luck(Handle):
    """Draws from a generator that no seed reaches."""

    luck = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed, options={"start": Luck.luck.normal()})


def test_before_a_reset_and_without_a_recorder():
    env = Handle()
    env.reset(seed=0)
    with pytest.raises(SnapshotError, match=r"Handle.* cannot be saved: its counter is a generator"):
        Snapshot.of(env)
    recorded = record_for_replay(env)  # too late for this episode
    with pytest.raises(SnapshotError, match="cannot be saved: its counter is a generator"):
        Snapshot.of(recorded)
    recorded.reset(seed=0)
    Snapshot.of(recorded)
    recorded.env.counter = None
    again = pickle.loads(pickle.dumps(recorded))
    with pytest.raises(SnapshotError, match="which is replayed, and has no state yet: call reset first"):
        Snapshot.of(again)


def test_recorders_are_found_in_rows_and_nowhere_else():
    plain, rows = Handle(), SyncVectorEnv([lambda: record_for_replay(Handle()), Handle])
    plain.env, plain.envs = object(), [object()]  # an environment's own affair
    assert recorders_of(plain) == []
    venv = DummyVecEnv([lambda: record_for_replay(Handle())])
    for env, count in ((adv.wrap(rows, "noise:eps=0.1"), 1), (adv.PerturbObservation(venv, "noise:eps=0.1"), 1)):
        assert len(recorders_of(env)) == count


def test_nobody_sees_the_recorder():
    bare, env = gym.make("CartPole-v1"), record_for_replay(gym.make("CartPole-v1"))
    assert (str(env), repr(env), env.spec.to_json()) == (str(bare), repr(bare), bare.spec.to_json())
    (recorder,) = recorders_of(env)
    assert record_for_replay(env) is env and recorders_of(env) == [recorder] and recorder.gravity == 9.8
    assert isinstance(env.unwrapped, type(bare.unwrapped)) and not hasattr(recorder, "nothing")
    inside = record_for_replay(Handle())
    assert isinstance(inside, ReplayRecorder) and copy.deepcopy(inside).at is None


def test_random_states_are_those_of_parts_that_cannot_be_saved_too():
    env = Handle()
    env.reset(seed=0)
    before = random_states(env)
    assert difference(random_states(env), before, "") == ""
    env.step(0)
    assert difference(random_states(env), before, "") != ""
    game = gym.make("ALE/Pong-v5", obs_type="ram")
    game.reset(seed=0)
    before = random_states(game)
    game.step(0)
    assert difference(random_states(game), before, "") != ""


# layers that try actions


def highest(x, context):
    """The action after which the place is the highest, which is the last one."""
    tried = [context.simulator.step(np.full(len(x), action))[0][:, 0] for action in (0, 1, 2)]
    return x * 0 + int(np.stack(tried).sum(1).argmax())


class Highest(SimulatingPerturbation, adv.ActionFlip):
    """Tries every action, and says so."""

    name = "tests-highest"

    def __call__(self, x, context):
        return highest(x, context)


@pytest.mark.parametrize("kind", ["single", "bare", "sync", "dummy"])
def test_layers_that_try_actions_replay(kind):
    make = {
        "single": lambda: gym.wrappers.TimeLimit(Handle(), 9),
        "bare": Handle,
        "sync": lambda: SyncVectorEnv([Handle, lambda: gym.wrappers.TimeLimit(Handle(), 9)]),
        "dummy": lambda: DummyVecEnv([Handle, Handle]),
    }[kind]
    attacked, plain = adv.PerturbAction(make(), Highest(), adv.Valid()), make()
    if kind == "dummy":
        attacked.seed(0), plain.seed(0)
    one = kind in ("single", "bare")
    starts = [env.reset() if kind == "dummy" else env.reset(seed=0) for env in (attacked, plain)]
    assert difference(*(start if kind == "dummy" else start[0] for start in starts), "start") == ""
    with pytest.warns(RuntimeWarning, match=REPLAYED):
        for _ in range(12):  # over the end of episodes, which go on without a seed
            answers = attacked.step(0 if one else np.zeros(2, int)), plain.step(2 if one else np.full(2, 2))
            assert np.array_equal(answers[0][0], answers[1][0]) and np.array_equal(answers[0][1], answers[1][1])
            if one and (answers[0][2] or answers[0][3]):
                assert np.array_equal(attacked.reset()[0], plain.reset()[0])


def test_an_attack_that_does_not_say_that_it_tries_actions():
    env = adv.PerturbAction(Handle(), highest, adv.Valid())
    env.reset(seed=0)
    with pytest.raises(SnapshotError, match="cannot be saved: its counter is a generator"):
        env.step(0)
