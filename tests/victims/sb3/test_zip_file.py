"""Zips that Stable-Baselines3 writes after a few steps of training: ``load_victim`` plays what ``predict`` says."""

from __future__ import annotations

import json
import zipfile

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import adv_wrappers as adv

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float64)
KEYS = spaces.Dict(a=VECTOR, b=spaces.Discrete(3), c=spaces.Box(-1, 1, (2,), np.float32), d=spaces.MultiBinary(2))
BOX, THREE = spaces.Box(np.float32([-2, 0]), np.float32([2, 0.5])), spaces.Discrete(3)
SMALL, OFF = {"net_arch": [8]}, {"buffer_size": 100, "learning_starts": 16}
ON = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}


class Drift(gym.Env):
    """Observations of every leaf, some far from zero, and a reward of the action."""

    def __init__(self, observed, acted):
        self.observation_space, self.action_space = observed, acted

    def _observe(self):
        draw = self.np_random
        leaves = {
            "a": 1e4 + draw.normal(0, 3, 4), "b": np.int64(draw.integers(3)),
            "c": draw.uniform(-1, 1, 2).astype(np.float32), "d": draw.integers(0, 2, 2).astype(np.int8),
        }  # fmt: skip
        return leaves if isinstance(self.observation_space, spaces.Dict) else leaves["a"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        return self._observe(), float(np.sum(action)), False, self.t >= 16, {}


AGENTS = {
    "ppo gsde": (sb3.PPO, VECTOR, BOX, SMALL, ON | {"use_sde": True}),
    "ppo gsde squashed": (sb3.PPO, VECTOR, BOX, SMALL | {"squash_output": True}, ON | {"use_sde": True}),
    "a2c gsde": (sb3.A2C, VECTOR, BOX, SMALL | {"full_std": False, "use_expln": True}, {"use_sde": True}),
    "sac gsde": (sb3.SAC, VECTOR, BOX, SMALL, OFF | {"use_sde": True}),
    "tqc gsde": (contrib.TQC, VECTOR, BOX, SMALL | {"n_quantiles": 5}, OFF | {"use_sde": True, "sde_sample_freq": 4}),
    "ars": (contrib.ARS, VECTOR, BOX, {}, {"n_delta": 1}),
    "ars with bias": (contrib.ARS, VECTOR, THREE, {"with_bias": True}, {"n_delta": 1}),
    "ars squashed": (contrib.ARS, VECTOR, BOX, {"squash_output": True}, {"n_delta": 1}),
    "ppo": (sb3.PPO, KEYS, THREE, SMALL, ON),
    "dqn": (sb3.DQN, KEYS, THREE, SMALL, OFF),
    "sac": (sb3.SAC, KEYS, BOX, SMALL, OFF),
}
REPEATING = {"a2c gsde", "sac gsde", "tqc gsde", "ars", "sac"}  # what others have in another combination
FORMS = ("{", "OrderedDict({", "OrderedDict([(")  # of a dictionary of spaces in a zip


def learned(name, venv):
    kind, observed, _, kwargs, arguments = AGENTS[name]
    policy = "LinearPolicy" if kind is contrib.ARS else "MultiInputPolicy" if observed is KEYS else "MlpPolicy"
    return kind(policy, venv, policy_kwargs=dict(kwargs), seed=0, device="cpu", **arguments).learn(64)


def as_written_before(path, form):
    """The same file with its dictionary of spaces as an older Gymnasium, or Python, printed it."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    data = json.loads(members["data"])
    text = data["observation_space"]["spaces"]
    if form.startswith("OrderedDict(["):
        pairs = [f"('{key}', {leaf})" for key, leaf in KEYS.spaces.items()]
        text = f"[{', '.join(pairs)}]"
    data["observation_space"]["spaces"] = text if form == "{" else f"OrderedDict({text})"
    assert data["observation_space"]["spaces"].startswith(form)
    members["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)


@pytest.mark.parametrize(
    ("name", "normalised"),
    [
        pytest.param(name, turn % 2 == 0, marks=[pytest.mark.slow] * (name in REPEATING))
        for turn, name in enumerate(AGENTS)
    ],
)
def test_plays_what_predict_says(name, normalised, tmp_path):
    _, observed, acted, _, _ = AGENTS[name]
    venv = DummyVecEnv([lambda: Drift(observed, acted)])
    if normalised:
        keys = ["a", "c"] if observed is KEYS else None
        venv = VecNormalize(venv, norm_obs_keys=keys)
    model = learned(name, venv)
    path = tmp_path / "model.zip"
    model.save(path)
    if normalised:
        venv.save(str(tmp_path / "vecnormalize.pkl"))
        venv.training = False
    draw = Drift(observed, acted)
    draw.reset(seed=5)
    rows = [draw._observe() for _ in range(40)]
    obs = {key: np.stack([row[key] for row in rows]) for key in KEYS} if observed is KEYS else np.stack(rows)
    expected = model.predict(venv.normalize_obs(obs) if normalised else obs, deterministic=True)[0]
    compare = np.testing.assert_array_equal if acted is THREE else close
    for form in FORMS if observed is KEYS else FORMS[:1]:
        if observed is KEYS:
            as_written_before(path, form)
        victim = adv.load_victim(f"sb3:{path}", stats=None if normalised else False)
        compare(victim.act_on(obs), expected)
    if observed is KEYS or name.startswith("tqc"):
        return  # which no card holds
    card = adv.save_card(tmp_path / "card", victim, environment="Drift-v0")
    compare(card.act_on(obs), expected)
    compare(adv.load_victim(f"card:{tmp_path / 'card'}").act_on(obs), expected)


def close(found, expected):
    """Equal but for the rounding of float32."""
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
