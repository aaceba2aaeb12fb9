"""The wrapper of vector environments, and the real vector classes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.errors import OrderError, SpaceError
from tests.rigs import RIGS, ReplayEnv, same_bytes, vector


def test_infos_come_with_masks():
    venv = adv.wrap(vector("next", RIGS["q"], 3), "noise:eps=0.1,when=every(2)", "action-flip", keep_true=True)
    _, info = venv.reset(seed=0)
    assert info["_adv_wrappers"].all()
    entry = info["adv_wrappers"]["0:noise"]
    assert entry["attacked"].tolist() == [True] * 3 and entry["_attacked"].all() and entry["true"].shape == (3, 4)
    info = venv.step(np.zeros(3, int))[4]
    assert info["adv_wrappers"]["0:noise"]["attacked"].tolist() == [False] * 3
    assert info["adv_wrappers"]["1:action-flip"]["attacked"].all() and info["adv_wrappers"]["_1:action-flip"].all()
    assert info["adv_wrappers"]["1:action-flip"]["true"].tolist() == [0, 0, 0]


def test_next_step_ignores_the_dummy_action():
    """The action after a final observation is never attacked, nor paid for; the reset observation opens an episode."""
    venv = adv.wrap(vector("next", RIGS["q"], 2), "action-flip:when=atmost(2)")
    venv.reset(seed=[2, 1])  # two and five steps
    attacked = []
    for _ in range(4):
        info = venv.step(np.zeros(2, int))[4]
        attacked.append(info["adv_wrappers"]["0:action-flip"]["attacked"].tolist())
    assert attacked == [[True, True], [True, True], [False, False], [True, False]]
    assert venv.engine.clock.t.tolist() == [1, 4] and venv.engine.clock.spent.tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["next", "same", "disabled"])
def test_final_observations_cost_nothing(kind):
    venv = adv.wrap(vector(kind, RIGS["q"], 2), "noise:eps=0.1")
    venv.reset(seed=[2, 1])
    venv.step(np.zeros(2, int))
    assert venv.engine.clock.spent.tolist() == [2, 2]
    venv.step(np.zeros(2, int))  # the first row is done: a new episode has begun where rows are reset at once
    assert venv.engine.clock.spent.tolist() == [1 if kind == "same" else 2, 3]
    assert venv.engine.clock.t.tolist() == [0 if kind == "same" else 2, 2]


def test_masked_resets_with_seeds():
    """Rows of the mask start anew under their own seeds; the others keep what they were handed, bytes and all."""
    rig = RIGS["mean"]
    venv = adv.wrap(vector("disabled", rig, 3), "noise:eps=0.5", "noise:eps=0.5")
    before = venv.reset(seed=0)[0]
    mask = np.array([False, True, False])
    after, info = venv.reset(seed=[None, 40, None], options={"reset_mask": mask})
    assert mask.tolist() == [False, True, False], "the caller's mask was changed"
    for row in (0, 2):
        same_bytes(after[row], before[row], f"row {row}")
    alone = adv.wrap(rig.env(), "noise:eps=0.5", "noise:eps=0.5").reset(seed=40)[0]
    same_bytes(after[1], alone, "the row that was reset")
    assert info["adv_wrappers"]["1:noise"]["attacked"].tolist() == mask.tolist()


@pytest.mark.parametrize("kind", ["next", "same", "disabled"])
def test_masks_of_actions_survive_partial_resets(kind):
    rig = RIGS["q"]
    builders = [lambda: ReplayEnv(rig.env().recordings, rig.space, rig.actions, masked=True)] * 3
    mode = {"next": "NEXT_STEP", "same": "SAME_STEP", "disabled": "DISABLED"}[kind]
    base = SyncVectorEnv(builders, autoreset_mode=AutoresetMode[mode])
    venv = adv.wrap(base, "action-noise")
    info = venv.reset(seed=0)[1]
    masks, over = info["action_mask"].copy(), np.zeros(3, bool)
    for _ in range(14):
        counts = [len(e.unwrapped.received[-1]) for e in base.envs], [len(e.unwrapped.received) for e in base.envs]
        _, _, terminated, truncated, info = venv.step(masks.argmax(1))
        for i, env in enumerate(base.envs):
            if not (kind == "next" and over[i]):
                assert masks[i, env.unwrapped.received[counts[1][i] - 1][counts[0][i]]] == 1
        masks, over = info["action_mask"].copy(), terminated | truncated
        if kind == "disabled" and over.any():
            recorded = venv.reset(options={"reset_mask": over.copy()})[1]["action_mask"]
            masks[over] = recorded[over]


def test_masks_of_several_actions_are_respected():
    """A vector collects Gymnasium's masks of a MultiDiscrete, tuples, in an array of objects."""

    class Halved(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (2,))
        action_space = gym.spaces.MultiDiscrete([2, 3])
        mask = (np.array([1, 0], np.int8), np.array([1, 1, 1], np.int8))

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(2, np.float32), {"action_mask": self.mask}

        def step(self, action):
            assert action[0] == 0
            seen.add(int(action[1]))
            return np.zeros(2, np.float32), 0.0, False, False, {"action_mask": self.mask}

    seen = set()
    venv = adv.wrap(SyncVectorEnv([Halved] * 2), adv.threat("action-noise", within=adv.L0(1)))
    venv.reset(seed=0)
    for _ in range(20):
        venv.step(np.zeros((2, 2), int))
    assert seen == {0, 1, 2}


def test_the_mode_is_read_from_the_environment_itself():
    """``AtariVectorEnv`` writes its mode into metadata that all of them share."""
    for kind, mode in (("next", "next step"), ("same", "same step"), ("disabled", "disabled")):
        venv = vector(kind, RIGS["q"], 2)
        venv.metadata = {**venv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        assert adv.wrap(venv, "noise:eps=1").engine.autoreset == mode


# real ones


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_cartpole_vector_env():
    venv = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    assert type(venv.unwrapped).__name__ == "CartPoleVectorEnv"
    bare = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    venv = adv.wrap(venv, "noise:eps=0.1", adv.threat("action-noise", when=adv.Never()))
    obs, clean = venv.reset(seed=3)[0], bare.reset(seed=3)[0]
    for _ in range(40):
        assert obs.dtype == clean.dtype == np.float32 and np.abs(obs - clean).max() <= 0.1 + 1e-6
        assert (obs != clean).any()
        (obs, *rest, _), (clean, *others, _) = venv.step(np.array([0, 1, 0])), bare.step(np.array([0, 1, 0]))
        for a, b in zip(rest, others, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_atari_vector_env(mode):
    """A dense ``final_obs``, no mask beside it, and a mode that shows in no row's own environment."""
    import ale_py

    gym.register_envs(ale_py)

    def make():
        return gym.make_vec(
            "ALE/Pong-v5", num_envs=2, autoreset_mode=AutoresetMode(mode), max_num_frames_per_episode=40
        )

    venv, bare = adv.wrap(make(), "noise:eps=4"), make()
    obs, clean = venv.reset(seed=1)[0], bare.reset(seed=1)[0]
    ends = 0
    for _ in range(25):
        moved = np.abs(obs.astype(int) - clean.astype(int))
        assert obs.dtype == np.uint8 and obs.shape == (2, 4, 84, 84) and 0 < moved.max() <= 4
        (obs, *rest, info), (clean, *others, recorded) = venv.step(np.zeros(2, int)), bare.step(np.zeros(2, int))
        for a, b in zip(rest, others, strict=True):
            assert np.array_equal(a, b)
        done = rest[1] | rest[2]
        ends += int(done.sum())
        if mode == "SameStep" and done.any():
            last = np.abs(info["final_obs"][done].astype(int) - recorded["final_obs"][done].astype(int))
            assert 0 < last.max() <= 4
    assert ends, "no episode ended"
    venv.close()
    bare.close()


@pytest.mark.slow
def test_atari_masked_reset_keeps_the_other_rows():
    """ALE takes per-row seeds with ``reset_mask`` in its own modes: rows outside it keep what they were handed."""
    import ale_py

    gym.register_envs(ale_py)
    venv = adv.wrap(gym.make_vec("ALE/Pong-v5", num_envs=2), "noise:eps=4")
    venv.reset(seed=1)
    before = venv.step(np.zeros(2, int))[0]
    after = venv.reset(seed=np.array([5]), options={"reset_mask": np.array([True, False])})[0]
    same_bytes(after[1], before[1], "the other row")
    full = adv.wrap(gym.make_vec("ALE/Pong-v5", num_envs=2), "noise:eps=4")
    same_bytes(after[0], full.reset(seed=5)[0][0], "the row that was reset, under its seed")
    venv.close()
    full.close()


def _noisy():
    return adv.wrap(gym.make("CartPole-v1"), "noise:eps=0.1")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_async_vector_env():
    """Layers in the parent, and layers in the workers, which give the same draws."""
    outside = adv.wrap(gym.vector.AsyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2), "noise:eps=0.1")
    inside = gym.vector.AsyncVectorEnv([_noisy] * 2)
    try:
        a, b = outside.reset(seed=4)[0], inside.reset(seed=4)[0]
        same_bytes(a, b, "reset")
        for t in range(5):
            same_bytes(outside.step(np.array([t % 2, 0]))[0], inside.step(np.array([t % 2, 0]))[0], f"step {t}")
        with pytest.raises(OrderError, match="workers"):
            adv.ProbabilisticTiming(inside, 0.5)
        with pytest.raises(OrderError, match="workers"):
            adv.ProbabilisticTiming(adv.wrap(inside, "noise:eps=0.1"), 0.5)
    finally:
        outside.close()
        inside.close()


def test_the_spec_of_a_vector_is_json_with_an_autoreset_mode():
    mode = gym.vector.AutoresetMode.SAME_STEP
    env = gym.make_vec("adv_wrappers:adv/noise-v0", num_envs=2, env="CartPole-v1", eps=0.1, autoreset_mode=mode)
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    again = gym.make_vec(spec, num_envs=2)
    assert again.engine.autoreset == env.engine.autoreset == "same step"
    assert (again.reset(seed=3)[0] == env.reset(seed=3)[0]).all()


def test_a_vector_without_the_space_of_a_row_is_refused():
    class Bare(gym.vector.VectorEnv):
        num_envs, observation_space, action_space = 2, RIGS["q"].space, RIGS["q"].actions

    with pytest.raises(SpaceError, match=r"no single_observation_space.*base_class='stable_baselines3'"):
        adv.wrap(Bare(), "noise:eps=0.1")
