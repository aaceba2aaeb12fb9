"""Statistics of ``VecNormalize``: found beside a zip, read without running code, and damaged in every way."""

from __future__ import annotations

import copy
import json
import os
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.serialization import decode, encode
from adv_wrappers.errors import CardError, TrustError, VictimError
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.sb3.vecnormalize import read_statistics
from adv_wrappers.victims.sb3.victim import from_sb3, load_sb3

sb3 = pytest.importorskip("stable_baselines3")
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

from tests.every_case import every_case  # noqa: E402


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A PPO agent after a few steps behind ``VecNormalize``, its zip and the pickle of its statistics."""
    folder = tmp_path_factory.mktemp("trained")
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), clip_obs=2.0, epsilon=1e-3)
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=1, policy_kwargs={"net_arch": [8]}, seed=0)
    model.learn(64)
    model.save(folder / "model.zip")
    env.save(str(folder / "statistics.pkl"))
    return model, env, folder


def actions(victim, obs):
    return victim.act(victim.params(torch.as_tensor(obs).float())).numpy()


def observations():
    return np.random.default_rng(0).normal(0, 3, (50, 3)).astype(np.float32)


@pytest.fixture
def at_home(trained, tmp_path):
    """The zip alone in a folder named as rl-zoo3 names them."""
    home = tmp_path / "Pendulum-v1_1"
    home.mkdir()
    (home / "Pendulum-v1.zip").write_bytes((trained[2] / "model.zip").read_bytes())
    return home


@pytest.fixture
def unpickled(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("code of a pickle was run")

    for name in ("pickle.loads", "pickle.load", "cloudpickle.loads", "cloudpickle.load"):
        monkeypatch.setattr(name, forbidden)


@pytest.mark.parametrize("how", ["argument", "text", "vec_normalize", "from_sb3"])
def test_the_victim_plays_as_the_agent_did(trained, unpickled, how):
    model, env, folder = trained
    zipped, stats = folder / "model.zip", folder / "statistics.pkl"
    if how == "argument":
        victim = load_victim(f"sb3:{zipped}", stats=stats)
    elif how == "text":
        victim = load_victim(f"sb3:{zipped}?stats={stats}")
    elif how == "vec_normalize":
        victim = load_sb3(zipped, vec_normalize=stats)
    else:
        victim = from_sb3(model.policy, stats=stats)
    obs = observations()
    expected = model.predict(env.normalize_obs(obs), deterministic=True)[0]
    np.testing.assert_allclose(actions(victim, obs), expected, rtol=1e-5, atol=1e-6)
    assert victim.fingerprint() == from_sb3(model).fingerprint()
    np.testing.assert_array_equal(victim.scale.numpy(), np.sqrt(env.obs_rms.var + 1e-3))


def test_without_statistics_there_is_a_warning(trained):
    model, _, folder = trained
    with pytest.warns(UserWarning, match="trained behind a VecNormalize.*stats=FILE"):
        raw = load_victim(f"sb3:{folder / 'model.zip'}")
    assert raw.fingerprint() != from_sb3(model).fingerprint()
    for ref, stats in ((f"sb3:{folder / 'model.zip'}", False), (f"sb3:{folder / 'model.zip'}?stats=none", None)):
        asked = load_victim(ref, stats=stats)
        assert asked.fingerprint() == raw.fingerprint() and asked.ref.endswith("?stats=none")
    with pytest.warns(UserWarning, match="this model was trained behind"):
        from_sb3(sb3.PPO.load(folder / "model.zip"))
    quick = {"learning_starts": 1, "buffer_size": 9, "batch_size": 2, "policy_kwargs": {"net_arch": [8]}}
    sb3.DQN("MlpPolicy", "CartPole-v1", **quick).learn(4).save(folder / "dqn.zip")
    from_sb3(sb3.DQN.load(folder / "dqn.zip"))  # off-policy algorithms keep the same trace without one: no warning
    bare = sb3.PPO("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, n_steps=4, batch_size=4).learn(4)
    bare.save(folder / "bare.zip")
    assert from_sb3(bare).fingerprint() == load_victim(f"sb3:{folder / 'bare.zip'}").fingerprint()


@pytest.mark.parametrize(
    ("zipped", "stats"),
    [
        ("Pendulum-v1.zip", "Pendulum-v1/vecnormalize.pkl"),
        ("best_model.zip", "Pendulum-v1/vecnormalize.pkl"),
        ("rl_model_5000_steps.zip", "rl_model_vecnormalize_5000_steps.pkl"),
        ("acrobot.zip", "acrobot_vecnormalize.pkl"),
        ("best_model.zip", "best_vec_norm.pkl"),
        ("acrobot.zip", "vecnormalize_acrobot.pkl"),
        ("acrobot.zip", "vec_norm.pkl"),
    ],
)
def test_statistics_beside_the_zip(trained, at_home, unpickled, zipped, stats):
    model, _, folder = trained
    (at_home / "Pendulum-v1.zip").rename(at_home / zipped)
    (at_home / stats).parent.mkdir(exist_ok=True)
    (at_home / stats).write_bytes((folder / "statistics.pkl").read_bytes())
    victim = load_victim(f"sb3:{at_home / zipped}")
    assert victim.fingerprint() == from_sb3(model).fingerprint()
    assert load_victim(f"sb3:{at_home / zipped}", stats=False).fingerprint() != victim.fingerprint()


def test_dictionaries_and_texts_keep_the_statistics(trained):
    _, _, folder = trained
    victim = load_victim(f"sb3:{folder / 'model.zip'}", stats=folder / "statistics.pkl")
    assert decode(encode(victim), load_victim).fingerprint() == victim.fingerprint()
    threat = parse_threat(f"max-diff:eps=0.1,victim={victim.ref}")
    assert threat.how.victim.fingerprint() == victim.fingerprint()


def test_npz_and_json(trained, tmp_path):
    model, env, folder = trained
    rms = env.obs_rms
    np.savez(tmp_path / "a.npz", mean=rms.mean, var=rms.var, clip=2.0, epsilon=1e-3)
    np.savez_compressed(tmp_path / "b.npz", mean=rms.mean, std=np.sqrt(rms.var + 1e-3), clip=np.float32(2))
    about = {"mean": rms.mean.tolist(), "var": rms.var.tolist(), "clip": 2, "epsilon": 1e-3}
    (tmp_path / "c.json").write_text(json.dumps(about))
    expected = from_sb3(model)
    for name in ("a.npz", "b.npz", "c.json"):
        victim = load_sb3(folder / "model.zip", stats=tmp_path / name)
        torch.testing.assert_close(victim.params(torch.ones(2, 3)), expected.params(torch.ones(2, 3)))


def test_the_statistics_of_another_model_in_the_folder_are_not_taken(trained, at_home):
    _, _, folder = trained
    statistics = (folder / "statistics.pkl").read_bytes()
    (at_home / "other_vecnormalize.pkl").write_bytes(statistics)
    (at_home / "Pendulum-v1_vecnormalize.pkl").mkdir()  # no file
    looked = r"not there \(looked for Pendulum-v1_vecnormalize.pkl, vecnormalize.pkl and the like\)"
    with pytest.warns(UserWarning, match=looked):
        load_victim(f"sb3:{at_home / 'Pendulum-v1.zip'}")
    (at_home / "vecnormalize.pkl").write_bytes(b"of the other one")
    (at_home / "vecnormalize_Pendulum-v1.pkl").write_bytes(statistics)
    load_victim(f"sb3:{at_home / 'Pendulum-v1.zip'}")  # its own comes first


def test_statistics_of_another_shape_beside_the_zip_are_left_alone(trained, at_home):
    _, _, folder = trained
    with warnings.catch_warnings(action="ignore"):
        plain = load_victim(f"sb3:{folder / 'model.zip'}", stats=False)
    other = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    other.save(str(at_home / "vecnormalize.pkl"))
    with pytest.warns(UserWarning, match=r"vecnormalize.pkl is not used, since it is of another agent.*stats=FILE"):
        found = load_victim(f"sb3:{at_home / 'Pendulum-v1.zip'}")
    assert found.fingerprint() == plain.fingerprint()
    with pytest.raises(VictimError, match="statistics of shape"):  # those that are asked for are an error
        load_victim(f"sb3:{at_home / 'Pendulum-v1.zip'}", stats=at_home / "vecnormalize.pkl")


def test_an_algorithm_with_a_replay_buffer_says_nothing_of_statistics(tmp_path):
    agent = sb3.SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, learning_starts=2, batch_size=4)
    agent.learn(4).save(tmp_path / "sac.zip")
    with warnings.catch_warnings(action="error"):
        load_victim(f"sb3:{tmp_path / 'sac.zip'}")


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_protocol_dictionaries_and_normalisers_of_rewards_alone(protocol, tmp_path, unpickled):
    space = spaces.Dict(a=spaces.Box(-1, 1, (3,), np.float32), b=spaces.Box(0, 2, (2, 2), np.float64))

    class Blank(gym.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

    for on in (True, False):
        env = VecNormalize(DummyVecEnv([Blank]), norm_obs=on, clip_obs=5.0)
        env.seed(0)
        env.reset()
        (tmp_path / "norm.pkl").write_bytes(pickle.dumps(env, protocol))
        found = read_statistics(tmp_path / "norm.pkl")
        assert found.norm_obs is on and (found.clip_obs, found.epsilon) == (5.0, 1e-8)
        if on:
            for key, rms in env.obs_rms.items():
                np.testing.assert_array_equal(found.obs_rms[key].mean, rms.mean)
                np.testing.assert_array_equal(found.obs_rms[key].var, rms.var)
                assert found.obs_rms[key].count == rms.count


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


class Mine(VecNormalize):
    """A user's own class, which only its code can make."""


def test_code_needs_trust(trained, at_home, tmp_path):
    model, env, _ = trained
    path, mark = at_home / "vecnormalize.pkl", tmp_path / "ran"
    path.write_bytes(pickle.dumps({"mean": Bomb(mark)}))
    with pytest.raises(TrustError, match=r"vecnormalize\.pkl: it holds .*open.*trust=True.*stats=False"):
        load_victim(f"sb3:{at_home / 'Pendulum-v1.zip'}")
    assert not mark.exists()
    own = Mine(env.venv, clip_obs=2.0, epsilon=1e-3)
    own.obs_rms = env.obs_rms
    path.write_bytes(pickle.dumps(own))
    ref = f"sb3:{at_home / 'Pendulum-v1.zip'}"
    with pytest.raises(TrustError, match=r"Mine"):
        load_victim(ref)
    assert load_victim(ref, trust=True).fingerprint() == from_sb3(model).fingerprint()


@every_case(
    ("name", "value"),
    [
        ("mean", [0.0, np.nan, 0.0]),
        ("var", [1.0, -1.0, 1.0]),
        ("var", "wide"),
    ],
)
def test_statistics_that_cannot_be(trained, tmp_path, name, value):
    model, env, folder = trained
    about = {"mean": env.obs_rms.mean.tolist(), "var": env.obs_rms.var.tolist()} | {name: value}
    (tmp_path / "a.json").write_text(json.dumps(about))
    with pytest.raises(CardError, match=r"a\.json"):
        load_sb3(folder / "model.zip", stats=tmp_path / "a.json")
    if isinstance(value, list) and len(value) == 3:
        state = VecNormalize(env.venv)
        state.obs_rms = copy.deepcopy(env.obs_rms)
        setattr(state.obs_rms, name, np.array(value))
        with pytest.raises(VictimError, match="variance"):
            from_sb3(model.policy, vec_normalize=state)
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(state))
        with pytest.raises(CardError, match=r"a\.pkl"):
            load_sb3(folder / "model.zip", stats=tmp_path / "a.pkl")


@every_case(
    ("about", "message"),
    [
        ({"mean": [0.0] * 3}, "either var or std"),
        ({"mean": [0.0] * 3, "var": [1.0] * 3, "std": [1.0] * 3}, "either var or std"),
        ({"mean": [0.0] * 3, "std": [-1.0] * 3}, "at least 0"),
        ({"mean": [0.0] * 3, "std": [0.0] * 3}, "above 0"),
        ({"mean": [0.0] * 3, "var": [1.0] * 3, "clip": -1}, "clip_obs must be above 0"),
        ({"mean": [0.0] * 3, "var": [1.0] * 3, "epsilon": "x"}, "could not convert"),
    ],
)
def test_json_that_cannot_be(tmp_path, about, message):
    (tmp_path / "a.json").write_text(json.dumps(about))
    with pytest.raises(CardError, match=message):
        read_statistics(tmp_path / "a.json")


def test_arguments_that_do_not_go_together(trained):
    model, env, folder = trained
    for wrong in (3, env, True, []):
        with pytest.raises(VictimError, match="stats must be the path"):
            load_victim(f"sb3:{folder / 'model.zip'}", stats=wrong)
    with pytest.raises(VictimError, match="not both"):
        from_sb3(model, stats=folder / "statistics.pkl", vec_normalize=env)
    with pytest.raises(VictimError, match="a card holds its own"):
        load_victim("zoo:cartpole-ppo", stats=folder / "statistics.pkl")
    with pytest.raises(CardError, match="nowhere"):
        load_victim(f"sb3:{folder / 'model.zip'}?stats=nowhere.pkl")
    cartpole = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=4, batch_size=4)
    with pytest.raises(VictimError, match=r"statistics of shape \(3,\)"):
        from_sb3(cartpole, stats=folder / "statistics.pkl")


def test_memory_is_never_taken_before_it_is_known_to_be_needed(tmp_path):
    for data in (
        b"\x80\x04" + b"]r\xff\xff\xff\x7f.",  # a place in the memo two billion away
        b"\x80\x04" + b"]" * 200_000 + b".",
    ):
        (tmp_path / "a.pkl").write_bytes(data)
        with pytest.raises(CardError, match="too many parts"):
            read_statistics(tmp_path / "a.pkl")
    os.mkfifo(tmp_path / "b.pkl")
    with pytest.raises(CardError, match="regular file"):
        read_statistics(tmp_path / "b.pkl")


class Far(gym.Env):
    """Observations of float64 near 1e8 and 1e-3, of which a normaliser sees the rest."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(-1, 1, (2,))

    def _observe(self):
        return np.array([1e8, -3e5, 1e-3]) + self.np_random.normal(size=3) * [1, 0.1, 1e-4]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        self.t += 1
        return self._observe(), float(action[0]), self.t >= 10, False, {}


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    folder = tmp_path_factory.mktemp("far")
    env = VecNormalize(DummyVecEnv([Far]), norm_reward=False)
    made = sb3.A2C("MlpPolicy", env, n_steps=64, policy_kwargs={"net_arch": [16]}, seed=0, device="cpu").learn(64)
    env.obs_rms.mean, env.obs_rms.var = np.array([1e8, -3e5, 1e-3]), np.array([1, 1e-2, 1e-8])
    made.policy.action_net.weight.data.mul_(30)
    made.save(folder / "model.zip")
    env.save(str(folder / "vecnormalize.pkl"))
    draw = np.random.default_rng(0)
    obs = np.array([1e8, -3e5, 1e-3]) + draw.normal(size=(50, 3)) * [1, 0.1, 1e-4]
    return made, env, folder, obs, made.predict(env.normalize_obs(obs), deterministic=True)[0]


@pytest.mark.parametrize("how", ["from_sb3", "zip", "card", "module"])
def test_observations_far_from_zero_are_normalised_in_their_own_precision(far, tmp_path, how):
    made, env, folder, obs, expected = far
    victim = from_sb3(made)
    if how == "zip":
        victim = load_victim(f"sb3:{folder / 'model.zip'}")
    elif how == "card":
        adv.save_card(tmp_path, victim, environment="Far-v0")
        victim = load_victim(f"card:{tmp_path}")
    elif how == "module":
        policy = made.policy
        net = torch.nn.Sequential(*policy.mlp_extractor.policy_net, policy.action_net)
        std = np.sqrt(env.obs_rms.var + env.epsilon)
        rule = {"mean": env.obs_rms.mean.tolist(), "std": std.tolist(), "clip": 10.0}
        spaces_ = Far.observation_space, Far.action_space
        adv.save_card(tmp_path, net, *spaces_, "mean", environment="Far-v0", observation=rule, clip=True)
        victim = load_victim(f"card:{tmp_path}")
    assert np.ptp(expected, 0).max() > 0.05
    np.testing.assert_allclose(victim.act_on(obs), expected, atol=1e-5)
    np.testing.assert_allclose(victim.act_on(torch.from_numpy(obs)).numpy(), expected, atol=1e-5)
    if how != "module":
        table = adv.evaluate(victim, Far, ["max-diff:eps=0.5,scale=victim"], episodes=2).to_dataframe(long=True)
        seeds, returns = table.episode_seed[:2], []
        for seed in seeds:
            one, total = Far(), 0.0
            seen, done = one.reset(seed=int(seed))[0], False
            while not done:
                action = made.predict(env.normalize_obs(seen), deterministic=True)[0]
                seen, reward, done, _, _ = one.step(action)
                total += reward
            returns.append(total)
        np.testing.assert_allclose(table["return"][:2], returns, atol=1e-4)
        assert abs(table["return"][2:].mean() - np.mean(returns)) > 1e-3  # attacks are no smaller than roundings


def test_observations_near_zero_are_normalised_in_float32(trained):
    assert from_sb3(trained[0]).dtype == torch.float32
