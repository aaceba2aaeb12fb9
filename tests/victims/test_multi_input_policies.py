"""SB3's MultiInputPolicy: images, vectors and choices in one Dict, and the Dicts of goals of Gymnasium-Robotics."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError
from adv_wrappers.utils import trees

sb3 = pytest.importorskip("stable_baselines3")

MIXED = spaces.Dict({
    "image": spaces.Box(0, 255, (3, 36, 36), np.uint8), "vector": spaces.Box(-1, 1, (5,), np.float32),
    "room": spaces.Discrete(4), "bits": spaces.MultiBinary(3), "parts": spaces.MultiDiscrete([2, 3]),
})  # fmt: skip


class Rooms(gym.Env):
    """Random observations of every kind."""

    observation_space, action_space = MIXED, spaces.Discrete(3)

    def _seen(self):
        rng = self.np_random
        return {
            "image": rng.integers(0, 256, (3, 36, 36), dtype=np.uint8),
            "vector": rng.uniform(-1, 1, 5).astype(np.float32),
            "room": rng.integers(4), "bits": rng.integers(0, 2, 3, dtype=np.int8), "parts": rng.integers([2, 3]),
        }  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self._seen(), {}

    def step(self, action):
        self.left -= 1
        return self._seen(), float(action == 0), self.left == 0, False, {}


class Reach(gym.Env):
    """A point is pushed to a goal, in the spaces of Gymnasium-Robotics."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self):
        anywhere = [spaces.Box(-np.inf, np.inf, (size,), np.float64) for size in (4, 2, 2)]
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict(zip(names, anywhere, strict=True)))
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def _seen(self):
        state = np.concatenate([self.place, self.speed])
        return {"observation": state, "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -np.linalg.norm(achieved_goal - desired_goal, axis=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2))
        self.speed, self.left = np.zeros(2), 8
        return self._seen(), {}

    def step(self, action):
        self.speed = 0.5 * self.speed + 0.2 * np.asarray(action, np.float64)
        self.place, self.left = self.place + self.speed, self.left - 1
        return self._seen(), float(self.compute_reward(self.place, self.goal, {})), False, self.left == 0, {}


@pytest.fixture(scope="module", params=["PPO", "DQN"])
def model(request):
    arguments = {"n_steps": 64} if request.param == "PPO" else {"buffer_size": 10}
    return getattr(sb3, request.param)("MultiInputPolicy", Rooms(), seed=0, device="cpu", **arguments)


@pytest.mark.parametrize("read", [False, True])
def test_images_vectors_and_choices_in_one_dict(model, read, tmp_path):
    if read:
        model.save(tmp_path / "rooms.zip")
        victim = adv.load_victim(f"sb3:{tmp_path / 'rooms.zip'}")
    else:
        victim = adv.from_sb3(model)
    env = Rooms()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        mine = victim.act_on({key: np.asarray(leaf)[None] for key, leaf in obs.items()})
        assert mine.item() == model.predict(obs, deterministic=True)[0].item()


@pytest.mark.parametrize(
    ("text", "keys", "kind"),
    [
        ("pgd:eps=8,at=image,steps=3,restarts=1", "image", "env"), ("max-diff:eps=0.5,at=vector", "vector", "sb3"),
        ("discrete-search:at=room", "room", "env"), ("discrete-search:eps=2,norm=l0,at=bits", "bits", "sb3"),
        ("discrete-search:norm=valid,at=parts", "parts", "env"),
        ("noise:norm=valid,at=room;parts", "room parts", "sb3"),
        ("square:eps=0.5,at=vector,queries=10", "vector", "sb3"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("model", ["PPO"], indirect=True)
def test_one_key_is_perturbed_and_the_others_are_not(model, text, keys, kind):
    def make():
        if kind == "sb3":
            made = sb3.common.vec_env.DummyVecEnv([Rooms] * 4)
            made.seed(0)
            return made
        return Rooms() if kind == "env" else gym.vector.SyncVectorEnv([Rooms] * 4)

    found = []
    for env in (make(), adv.wrap(make(), text, victim=adv.from_sb3(model))):
        shown = [env.reset() if kind == "sb3" else env.reset(seed=0)[0]]
        for _ in range(4):
            shown.append(env.step(0 if kind == "env" else np.zeros(4, int))[0])
        found.append(shown)
    changed = {
        key for true, shown in zip(*found, strict=True) for key in true if not np.array_equal(true[key], shown[key])
    }
    assert changed == set(keys.split()) and all(
        MIXED.contains(trees.row(o, 0) if kind != "env" else o) for o in found[1]
    )


@pytest.mark.parametrize("model", ["PPO"], indirect=True)
def test_several_threats_to_one_dict(model):
    victim = adv.from_sb3(model)
    env = adv.wrap(Rooms(), "pgd:eps=8,at=image", "noise:eps=0.1,at=vector", "noise:norm=valid,at=room", victim=victim)
    true, shown = Rooms().reset(seed=0)[0], env.reset(seed=0)[0]
    assert all(np.array_equal(true[key], shown[key]) == (key in ("bits", "parts")) for key in true)
    with pytest.raises(SpaceError, match="different dtypes, int64, int8: perturb them in layers of their own"):
        adv.wrap(Rooms(), "noise:norm=valid,at=room;bits")


def test_dicts_of_goals():
    model = sb3.SAC("MultiInputPolicy", Reach(), seed=0, device="cpu", buffer_size=10)
    victim = adv.from_sb3(model)
    texts = [
        "noise:eps=0.1,at=observation", "max-diff:eps=0.1,at=desired_goal",
        "max-diff:eps=0.1,at=observation;desired_goal", "noise:eps=0.1,scale=1;1;0;0,at=observation",
        "observation-delay:steps=2,at=achieved_goal",
    ]  # fmt: skip
    report = adv.evaluate(victim, Reach, texts, episodes=4, num_envs=2)
    rows = {row["threat"]: row for row in report.threats}
    assert all(0 < rows[text]["linf"] <= 0.1 + 1e-12 for text in texts[:4])
    assert rows[texts[1]]["l2"] <= 0.1 * 2**0.5 + 1e-9 and rows[texts[1]]["l2"] < rows[texts[2]]["l2"]
    env = adv.wrap(Reach(), texts[2], victim=victim)
    true, shown = Reach().reset(seed=0)[0], env.reset(seed=0)[0]
    assert np.array_equal(true["achieved_goal"], shown["achieved_goal"]) and shown["observation"].dtype == np.float64
    goal = env.get_wrapper_attr("compute_reward")(shown["achieved_goal"], env.unwrapped.goal, {})
    assert goal == pytest.approx(-np.linalg.norm(true["achieved_goal"] - true["desired_goal"]))  # rewards are true


def test_gymnasium_robotics():
    robotics = pytest.importorskip("gymnasium_robotics")
    gym.register_envs(robotics)
    env = gym.make("PointMaze_UMaze-v3", max_episode_steps=5)
    victim = adv.from_sb3(sb3.PPO("MultiInputPolicy", env, n_steps=64, seed=0, device="cpu"))
    texts = ["max-diff:eps=0.1,at=observation", "max-diff:eps=0.1,at=desired_goal"]
    report = adv.evaluate(victim, "PointMaze_UMaze-v3", texts, episodes=2, env_kwargs={"max_episode_steps": 5})
    assert all(0 < row["linf"] <= 0.1 + 1e-12 for row in report.threats[1:])
