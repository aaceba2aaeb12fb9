"""Checkpoints: what is kept of a model comes back to the bit, and no code of a file runs."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import CardError, TrustError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.fit import restore_model, save_model
from adv_wrappers.training.folder import describe_settings
from adv_wrappers.training.sb3.director_networks import DirectorCNN
from tests.every_case import every_case

STEPS = {"n_steps": 16, "n_epochs": 1}


def made(kind=PPO, seed=0, norm_obs=True, **policy):
    normal = VecNormalize(make_vec_env("CartPole-v1", 2), norm_obs=norm_obs)
    more = {"n_steps": 16, "batch_size": 32} if kind is PPO else {}
    return kind("MlpPolicy", normal, seed=seed, device="cpu", policy_kwargs={"net_arch": [8], **policy}, **more)


@pytest.mark.parametrize(("kind", "norm_obs"), [(PPO, True), (A2C, False)])
def test_what_is_kept_comes_back(kind, norm_obs, tmp_path):
    one, other = made(kind, norm_obs=norm_obs), made(kind, 1, norm_obs=norm_obs)
    one.learn(64)
    files = tmp_path / "model.zip", tmp_path / "normaliser.json"
    save_model(one, *files)
    restore_model(other, *files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.zip", "normaliser.json"]
    assert other.num_timesteps == one.num_timesteps >= 64 and other._n_updates == one._n_updates > 0
    for mine, theirs in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        moments = (model.policy.optimizer.state[p] for model, p in ((one, mine), (other, theirs)))
        for a, b in zip(*(state.values() for state in moments), strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
    names = ("obs_rms", "ret_rms") if norm_obs else ("ret_rms",)
    for mine, theirs in ((getattr(m.get_vec_normalize_env(), name) for m in (one, other)) for name in names):
        assert np.array_equal(mine.mean, theirs.mean) and np.array_equal(mine.var, theirs.var)
        assert mine.count == theirs.count > 32
    other.learn(64, reset_num_timesteps=False)
    assert other.num_timesteps >= one.num_timesteps + 64


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.makedirs, (str(self.mark), 0o777, True))


def poison(path, bomb):
    """Put a pickle with code wherever SB3 would unpickle one."""
    with zipfile.ZipFile(path) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist()}
    data = json.loads(files["data"])
    known = [entry for entry in data.values() if isinstance(entry, dict) and ":serialized:" in entry]
    for entry in known:
        entry[":serialized:"] = base64.b64encode(bomb).decode()
    assert known
    files["data"] = json.dumps(data)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)


def again(out):
    settings = {"settings": STEPS, "adversary_settings": STEPS}
    return train_agent(
        "CartPole-v1", "sa-rl", 0.05, 64, num_envs=2, phase=32, checks=2, episodes=1, out=out, **settings
    )


def test_going_on_runs_no_code_of_the_folder(tmp_path):
    """Neither that of an agent's checkpoints nor that of its adversary's."""
    out, mark = tmp_path / "out", tmp_path / "ran"
    again(out)
    bomb = pickle.dumps(Bomb(mark))
    zips = [*out.rglob("*.zip")]
    assert len(zips) == 2 * len([*out.glob("checkpoint-*")])
    for path in zips:
        poison(path, bomb)
    whole = io.BytesIO(zips[0].read_bytes())
    statistics = [*out.rglob("*normaliser.json")]
    assert len(statistics) == len(zips)
    for path in statistics:
        path.with_suffix(".pkl").write_bytes(bomb)
    again(out)
    assert not mark.exists()
    for path in statistics:
        path.unlink(missing_ok=True)
    for path in out.rglob("*normaliser.json"):
        path.with_suffix(".pkl").write_bytes(bomb)
        path.unlink()
    with pytest.raises(CardError, match=r"cannot read .*normaliser\.json"):
        again(out)
    assert not mark.exists()
    with pytest.raises(Exception):  # noqa: B017 - whatever None in place of a class sets off
        PPO.load(whole)
    assert mark.exists()  # the bomb does work


def infect(name, content):
    def change(files):
        with zipfile.ZipFile(files[0]) as archive:
            kept = {entry: archive.read(entry) for entry in archive.namelist()}
        kept[name] = content
        with zipfile.ZipFile(files[0], "w") as archive:
            for entry, data in kept.items():
                archive.writestr(entry, data)

    return change


def stored(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def state(**more):
    moments = {"mean": [0.0] * 4, "var": [1.0] * 4, "count": 5.0}
    about = {"observation": {**moments, **more}, "reward": {"mean": 0.0, "var": 1.0, "count": 5.0}}
    return lambda files: files[1].write_text(json.dumps(about))


@every_case(
    ("change", "error", "match"),
    [
        (infect("policy.optimizer.pth", stored({"state": Bomb("never")})), TrustError, "holds more than weights"),
        (infect("policy.pth", b"zip"), adv.AdvWrappersError, "policy.pth"),
        (infect("policy.pth", stored({"weight": torch.zeros(2)})), CardError, "cannot read"),
        (infect("data", b"{}"), CardError, "cannot read"),
        (
            infect("data", b'{"num_timesteps": -1, "_n_updates": 0}'),
            CardError,
            "integer of at least 0, got -1",
        ),
        (lambda files: files[0].unlink(), CardError, "cannot read"),
        (lambda files: files[1].write_text("{}"), CardError, "'reward' is missing"),
        (state(mean=[0.0] * 3), CardError, r"of shape \(4,\)"),
        (state(var=[float("nan")] * 4), CardError, "expected a finite mean, var and count"),
    ],
)
def test_a_damaged_checkpoint(change, error, match, tmp_path):
    one = made()
    files = tmp_path / "model.zip", tmp_path / "normaliser.json"
    save_model(one, *files)
    change(files)
    with pytest.raises(error, match=match):
        restore_model(made(), *files)


def test_settings_are_described_by_names_and_plain_values():
    given = {"features_extractor_class": DirectorCNN, "rate": np.float32(0.5), "sizes": (1, None)}
    described = describe_settings(given)
    assert described == {
        "features_extractor_class": "adv_wrappers.training.sb3.director_networks.DirectorCNN",
        "rate": 0.5,
        "sizes": [1, None],
    }
