"""Good files with something changed at random: either they read, or it is an error of the package's own."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import warnings
import zipfile

import gymnasium as gym
import pytest
import torch
from torch import nn

import adv_wrappers as adv
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.victims.auxiliary_networks import Critic
from adv_wrappers.victims.sb3.vecnormalize import read_statistics
from tests.victims.helpers import damaged, refused
from tests.victims.sb3.test_victim import CASES, model
from tests.victims.test_card_reader import write

pytest.importorskip("stable_baselines3")
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

JUNK = [
    None, True, 0, -1, 3, 10**9, 10**30, 10**308, 10**400, 1e308, 1e-320, math.nan, math.inf, "", "x", "relu",
    "9" * 500,
    "mode", [], [1], [1, 2, 3], [0] * 5, [[1], [2, 3]], {}, {"a": 1}, [None], [math.nan] * 5, [10**400] * 5, [-1] * 5,
    "gaussian-mlp", "categorical-cnn", "gaussian-lstm", [4, 10**9, 84], "(3,)", "[0. 1.", "uint8", "complex64",
    "<f4,<f4",
    "<class 'gymnasium.spaces.box.Box'>", "<class 'gymnasium.spaces.dict.Dict'>", "{'a': Discrete(3)}",
    "<class 'gymnasium.spaces.multi_discrete.MultiDiscrete'>", "<class 'torch.nn.modules.activation.ReLU'>",
]  # fmt: skip
NAMES = [
    "scale", "clip", "mean", "std", "epsilon", "shape", "low", "high", "select", "hidden", "quantiles", "kind", "n",
    "_shape", "dtype", "nvec", "start", "spaces", "net_arch", "n_critics", "features_extractor_kwargs", "lstm_kwargs",
    "n_quantiles", "use_sde", "lstm_hidden_size", "share_features_extractor", "victim", "observe", "actor",
]  # fmt: skip


def junk(data, rng):
    """The same JSON with up to four parts taken out, added or replaced."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        node = data
        while node:
            key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
            if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.75:
                node = node[key]
                continue
            if rng.random() < 0.2:
                del node[key]
            elif rng.random() < 0.2 and isinstance(node, dict):
                node[rng.choice(NAMES)] = copy.deepcopy(rng.choice(JUNK))
            else:
                node[key] = copy.deepcopy(rng.choice(JUNK))
            break
    return data


def play(ref, dtype=torch.float32):
    victim = adv.load_victim(ref, dtype=dtype)
    space = victim.observation_space
    if getattr(space, "shape", None):
        x, state = torch.zeros(2, *space.shape, dtype=dtype), victim.initial_state(2)
        victim.mode(victim.params(x, state))
    repr(victim)


def card_of(folder):
    """The text and the weights of a card, with limits that most leave out."""
    card = json.loads((write(folder, "gaussian-mlp")[0] / "card.json").read_text())
    card |= {"spaces": {"observation": {"low": -5.0, "high": [5.0] * 5, "shape": [5]}, "action": {"low": -1}}}
    return card | {"attack": {"scale": [1.0] * 5}}, next(folder.rglob("weights.safetensors")).read_bytes()


def critic_of(folder):
    rule = Normalize(torch.zeros(5), torch.ones(5), 10.0)
    net = ActionValue(rule, nn.Sequential(nn.Linear(7, 8), nn.Tanh(), nn.Linear(8, 1)))
    Critic.of(net, {"network": {"features": 5, "actions": 2}, "observation": {"clip": 10}}).save(folder)
    return json.loads((folder / "card.json").read_text()), (folder / "weights.safetensors").read_bytes()


FOLDERS = {
    "card": (card_of, lambda folder: play(f"card:{folder}")),
    "critic": (critic_of, lambda folder: Critic(str(folder))(torch.zeros(2, 5), torch.zeros(2, 2))),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders(kind, tmp_path):
    make, read = FOLDERS[kind]
    (tmp_path / "good").mkdir()
    card, weights = make(tmp_path / "good")
    rng, length = random.Random(kind), int.from_bytes(weights[:8], "little")

    def calls():
        for i in range(40):
            stored = weights if i % 4 else damaged(weights[: 8 + length], rng) + weights[8 + length :]
            about = junk(card, rng) if i % 4 else card | {"weights_sha256": hashlib.sha256(stored).hexdigest()}
            (tmp_path / "card.json").write_text(json.dumps(about))
            (tmp_path / "weights.safetensors").write_bytes(stored)
            yield lambda: read(tmp_path)

    assert 12 < refused(calls()) < 40


def zip_of(folder, name):
    path = folder / "model.zip"
    model(*CASES[name]).save(path)
    return path, lambda: play(f"sb3:{path}")


def statistics_of(folder, name):
    path = folder / "statistics.pkl"
    VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")])).save(str(path))
    return path, lambda: read_statistics(path)


@pytest.mark.parametrize(("make", "name"), [(zip_of, "ppo box"), (zip_of, "recurrent"), (statistics_of, "")])
def test_files_of_sb3(make, name, tmp_path):
    path, read = make(tmp_path, name)
    good, rng, zipped = path.read_bytes(), random.Random(name), name != ""
    if zipped:
        with zipfile.ZipFile(path) as archive:
            data, weights = json.loads(archive.read("data")), archive.read("policy.pth")
        names = ("observation_space", "action_space", "policy_kwargs", "policy_class", "use_sde", "n_epochs")
        few = {key: data[key] for key in names if key in data}

    def calls():
        for i in range(40):
            if i % 4 == 3 or not zipped:
                path.write_bytes(damaged(good, rng))
            else:
                with zipfile.ZipFile(path, "w") as archive:
                    archive.writestr("data", json.dumps(junk(few, rng) if i % 4 < 2 else data))
                    archive.writestr("policy.pth", damaged(weights, rng) if i % 4 == 2 else weights)
            yield read

    with warnings.catch_warnings(action="ignore"):
        assert 8 < refused(calls()) < 40


def test_weights_of_odd_strides(tmp_path):
    """A side of length 1 may have any stride: such a weight has the hash of its values, in memory and in a zip."""
    path, made = tmp_path / "model.zip", model(*CASES["a2c linear"])
    made.save(path)
    plain = adv.load_victim(f"sb3:{path}")
    bias = made.policy.value_net.bias
    bias.data = torch.cat([bias.data, torch.zeros(7)]).as_strided((1,), (5,))
    assert adv.from_sb3(made).fingerprint() == plain.fingerprint()
    made.save(path)
    assert adv.load_victim(f"sb3:{path}").fingerprint() == plain.fingerprint()
