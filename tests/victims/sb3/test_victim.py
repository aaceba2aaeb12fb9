"""Victims from Stable-Baselines3: they act as ``predict`` does, and their gradients are whole."""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import BudgetError, CardError, TrustError, VictimError
from adv_wrappers.victims.sb3.victim import from_sb3, load_sb3

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.policies import ActorCriticPolicy  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize  # noqa: E402

from tests.every_case import every_case  # noqa: E402
from tests.victims.helpers import check_gradient  # noqa: E402

VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)
DICT = spaces.Dict(
    b=IMAGE, a=VECTOR, c=spaces.Discrete(3), d=spaces.Box(np.float32([0, -1]), np.float32([1, 2])),
    e=spaces.MultiDiscrete([2, 3]), f=spaces.MultiBinary(3),
)  # fmt: skip
TWO, BOX = spaces.Discrete(2), spaces.Box(np.float32([-2, 0]), np.float32([2, 0.5]))
SMALL = {"net_arch": [8, 8]}
CNN = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 16}}
BOTH = {"net_arch": [8], "features_extractor_kwargs": {"cnn_output_dim": 8}}
OFF = {"buffer_size": 50}
SDE = {"use_sde": True}


class Blank(gym.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def model(algorithm, observed, acted, kwargs, arguments=None, env=None):
    policy = "MultiInput" if isinstance(observed, spaces.Dict) else "Cnn" if observed is IMAGE else "Mlp"
    policy += "LstmPolicy" if algorithm is contrib.RecurrentPPO else "Policy"
    policy = "LinearPolicy" if algorithm is contrib.ARS and "net_arch" not in kwargs else policy
    torch.manual_seed(0)
    made = algorithm(
        policy, env or Blank(observed, acted), policy_kwargs=dict(kwargs), device="cpu", **(arguments or {})
    )
    for name, value in made.policy.named_parameters():  # so that actions saturate, and differ between rows
        if name.startswith(("action_net", "actor.mu.", "actor.latent", "log_std")):
            value.data.mul_(3).add_(0.1 * torch.randn_like(value))
    for layer in made.policy.modules():  # statistics as a training leaves them
        if type(layer).__name__ == "BatchRenorm1d":
            layer.ra_mean.normal_()
            layer.ra_var.uniform_(0.5, 2)
            layer.bias.data.normal_()
    return made


CASES = {
    "dqn": (sb3.DQN, VECTOR, spaces.Discrete(3), SMALL, OFF),
    "dqn cnn": (sb3.DQN, IMAGE, TWO, CNN, OFF),
    "dqn dict": (sb3.DQN, DICT, TWO, BOTH, OFF),
    "dqn discrete": (sb3.DQN, spaces.Discrete(5), spaces.Discrete(3), SMALL, OFF),
    "ppo multidiscrete": (sb3.PPO, spaces.MultiDiscrete([3, 4]), BOX, SMALL, {}),
    "a2c multibinary": (sb3.A2C, spaces.MultiBinary(4), TWO, SMALL, {}),
    "qrdqn": (contrib.QRDQN, VECTOR, spaces.Discrete(3), SMALL | {"n_quantiles": 7}, OFF),
    "ppo": (sb3.PPO, VECTOR, spaces.Discrete(3), SMALL, {}),
    "ppo box": (sb3.PPO, VECTOR, BOX, SMALL | {"activation_fn": torch.nn.ReLU}, {}),
    "ppo cnn": (sb3.PPO, IMAGE, TWO, CNN, {}),
    "ppo dict": (sb3.PPO, DICT, BOX, BOTH, {}),
    "a2c": (sb3.A2C, VECTOR, spaces.MultiDiscrete([2, 3]), SMALL, {}),
    "a2c bits": (sb3.A2C, VECTOR, spaces.MultiBinary(3), SMALL | {"share_features_extractor": False}, {}),
    "a2c linear": (sb3.A2C, VECTOR, TWO, {"net_arch": {"pi": [], "vf": [4]}}, {}),
    "sac": (sb3.SAC, VECTOR, BOX, SMALL, OFF),
    "sac linear": (sb3.SAC, VECTOR, BOX, {"net_arch": []}, OFF),
    "sac cnn": (sb3.SAC, IMAGE, BOX, CNN | {"share_features_extractor": True}, OFF),
    "td3": (sb3.TD3, VECTOR, BOX, SMALL, OFF),
    "td3 dict": (sb3.TD3, DICT, BOX, BOTH, OFF),
    "ddpg": (sb3.DDPG, VECTOR, BOX, SMALL, OFF),
    "tqc": (contrib.TQC, VECTOR, BOX, SMALL | {"n_quantiles": 5, "n_critics": 3}, OFF),
    "tqc cnn": (contrib.TQC, IMAGE, BOX, CNN | {"share_features_extractor": True}, OFF),
    "tqc dict": (contrib.TQC, DICT, BOX, BOTH, OFF),
    "crossq": (contrib.CrossQ, VECTOR, BOX, SMALL | {"batch_norm_eps": 0.1}, OFF),
    "crossq plain": (contrib.CrossQ, VECTOR, BOX, SMALL | {"batch_norm": False}, OFF),
    "ars": (contrib.ARS, VECTOR, BOX, {"net_arch": [8]}, {}),
    "ars scores": (contrib.ARS, VECTOR, spaces.Discrete(3), {"net_arch": [8], "with_bias": False}, {}),
    "ars linear": (contrib.ARS, VECTOR, BOX, {}, {}),
    "ars linear squashed": (contrib.ARS, VECTOR, BOX, {"with_bias": True, "squash_output": True}, {}),
    "trpo": (contrib.TRPO, VECTOR, BOX, SMALL, {}),
    "recurrent": (contrib.RecurrentPPO, VECTOR, BOX, SMALL | {"lstm_hidden_size": 6, "n_lstm_layers": 2}, {}),
    "recurrent shared": (
        contrib.RecurrentPPO, VECTOR, TWO,
        SMALL | {"lstm_hidden_size": 6, "shared_lstm": True, "enable_critic_lstm": False}, {},
    ),
    "recurrent plain critic": (
        contrib.RecurrentPPO, VECTOR, TWO, SMALL | {"lstm_hidden_size": 6, "enable_critic_lstm": False}, {}
    ),
    "ppo gsde": (sb3.PPO, VECTOR, BOX, SMALL, SDE),
    "ppo gsde squashed": (
        sb3.PPO, VECTOR, BOX, SMALL | {"squash_output": True, "use_expln": True, "full_std": False}, SDE
    ),
    "a2c gsde": (sb3.A2C, VECTOR, BOX, {"net_arch": [], "full_std": False}, SDE),
    "a2c gsde dict": (sb3.A2C, DICT, BOX, BOTH, SDE),
    "sac gsde": (sb3.SAC, VECTOR, BOX, SMALL, OFF | SDE),
    "sac gsde free": (sb3.SAC, VECTOR, BOX, SMALL | {"clip_mean": 0.0, "use_expln": True}, OFF | SDE),
    "tqc gsde": (contrib.TQC, VECTOR, BOX, SMALL | {"clip_mean": 0.5}, OFF | SDE),
    "crossq gsde": (contrib.CrossQ, VECTOR, BOX, SMALL, OFF | SDE),
    "trpo gsde": (contrib.TRPO, VECTOR, BOX, SMALL, SDE),
    "recurrent gsde": (contrib.RecurrentPPO, VECTOR, BOX, SMALL | {"lstm_hidden_size": 6}, SDE),
}  # fmt: skip
WRITTEN_OUT = {
    "dqn", "dqn cnn", "qrdqn", "ppo", "ppo box", "ppo cnn", "a2c", "a2c linear", "a2c bits", "td3", "ddpg", "sac",
    "sac cnn", "sac linear", "tqc", "tqc cnn", "crossq", "crossq plain", "ars", "ars scores", "ars linear",
    "ars linear squashed", "trpo",
}  # fmt: skip


def batch(space, rows=6, seed=0):
    if isinstance(space, spaces.Dict):
        return {key: batch(leaf, rows, seed) for key, leaf in space.spaces.items()}
    space.seed(seed)
    return np.stack([np.asarray(space.sample()) for _ in range(rows)])


def tensors(obs):
    return {k: tensors(v) for k, v in obs.items()} if isinstance(obs, dict) else torch.as_tensor(obs).float()


@pytest.fixture(scope="module", params=CASES)
def case(request):
    made = model(*CASES[request.param])
    return request.param, made, from_sb3(made)


def test_acts_as_predict_does(case):
    name, made, victim = case
    assert victim.observation_space == made.observation_space
    state, memory = victim.initial_state(6), None
    for t in range(3):
        obs = batch(made.observation_space, seed=t)
        expected, memory = made.predict(obs, state=memory, deterministic=True)
        found = victim.act(victim.params(tensors(obs), state)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        state = victim.advance(tensors(obs), state)
    assert victim.recurrent is name.startswith("recurrent")
    assert name in WRITTEN_OUT or victim.layer_graph() is None


def test_the_actions_of_these_models_are_worth_comparing():
    made = model(*CASES["ppo box"])
    actions = made.predict(batch(VECTOR, 50), deterministic=True)[0]
    assert (actions[:, 1] == BOX.low[1]).any() and len(np.unique(actions[:, 0])) > 5


def test_gradient_is_autograd_and_moves_nothing(case):
    name, made, victim = case
    if isinstance(made.observation_space, (spaces.Discrete, spaces.MultiDiscrete)):
        pytest.skip("no gradient goes through one-hot vectors")
    obs = tensors(batch(made.observation_space))
    check_gradient(victim, made.policy, obs, "a" if isinstance(obs, dict) else None, rtol=1e-4, atol=1e-7)
    assert (victim.layer_graph() is not None) is (name in WRITTEN_OUT)
    assert all(p.requires_grad for n, p in made.policy.named_parameters() if "target" not in n)


@every_case("name", [name for name in CASES if "gsde" in name and "recurrent" not in name])
def test_the_distribution_of_state_dependent_exploration(name):
    made = model(*CASES[name])
    made.policy.set_training_mode(False)
    obs = batch(made.observation_space)
    if hasattr(made.policy, "get_distribution"):
        expected = made.policy.get_distribution(made.policy.obs_to_tensor(obs)[0]).distribution
    else:
        actor = made.policy.actor
        mean, log_std, more = actor.get_action_dist_params(made.policy.obs_to_tensor(obs)[0])
        expected = actor.action_dist.proba_distribution(mean, log_std, **more).distribution
    mean, log_std = from_sb3(made).params(tensors(obs)).chunk(2, -1)
    torch.testing.assert_close(mean, expected.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(log_std.exp(), expected.stddev, rtol=1e-4, atol=1e-5)
    assert expected.stddev.std(0).max() > 1e-3  # it does depend on the state


def test_a_live_victim_follows_state_dependent_exploration():
    made = model(*CASES["ppo gsde"])
    victim, obs = from_sb3(made, live=True), torch.randn(4, 4)
    before = victim.params(obs)
    made.policy.log_std.data.add_(1)
    torch.testing.assert_close(victim.params(obs)[:, 2:], before[:, 2:] + 1, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in CASES if "gsde" in name and name.startswith(("ppo", "sac", "rec"))])
def test_a_card_of_state_dependent_exploration(name, tmp_path):
    victim = from_sb3(model(*CASES[name]))
    obs = torch.randn(5, 4)
    read = adv.save_card(tmp_path, victim, environment="Blank-v0")
    assert torch.equal(read.params(obs, read.initial_state(5)), victim.params(obs, victim.initial_state(5)))
    state = victim.initial_state(5)
    np.testing.assert_array_equal(read.act_on(obs.numpy(), state), victim.act_on(obs.numpy(), state))


@pytest.mark.parametrize("name", ["ppo box", "ppo dict", "a2c bits", "ppo cnn"])
def test_distribution_and_value(name):
    made = model(*CASES[name])
    victim, obs = from_sb3(made), batch(made.observation_space)
    policy_obs = made.policy.obs_to_tensor(obs)[0]
    with torch.no_grad():
        torch.testing.assert_close(victim.value(tensors(obs)), made.policy.predict_values(policy_obs)[:, 0])
        theirs = made.policy.get_distribution(policy_obs).distribution
        if isinstance(theirs, list | torch.distributions.Bernoulli):
            torch.testing.assert_close(victim.policy(tensors(obs)).base_dist.probs[..., 1], theirs.probs)
        else:
            ours = victim.policy(tensors(obs))
            ours = getattr(ours, "base_dist", ours)
            torch.testing.assert_close(torch.distributions.kl_divergence(ours, theirs), torch.zeros(ours.batch_shape))


@pytest.mark.parametrize("name", ["sac", "sac cnn", "td3", "td3 dict", "ddpg", "crossq", "crossq plain"])
def test_critic(name):
    made = model(*CASES[name])
    victim, obs = from_sb3(made), batch(made.observation_space)
    act = batch(BOX)
    scaled = torch.as_tensor(made.policy.scale_action(act))
    made.policy.set_training_mode(False)
    with torch.no_grad():
        expected = torch.cat(made.critic(made.policy.obs_to_tensor(obs)[0], scaled), 1).amin(1)
    x, a = tensors(obs), torch.as_tensor(act).requires_grad_()
    leaf = (x["a"] if isinstance(x, dict) else x).requires_grad_()
    found = victim.q(x, a)
    torch.testing.assert_close(found.detach(), expected)
    slopes = torch.autograd.grad(found.sum(), (leaf, a))
    assert all(slope.abs().max() > 0 for slope in slopes)


def test_a_card_without_the_critic_that_it_cannot_hold(tmp_path):
    victim = from_sb3(model(*CASES["tqc"]))
    with pytest.raises(VictimError, match=r"victim\.critic = None leaves it out"):
        adv.save_card(tmp_path, victim, environment="Some-v0")
    victim.critic = None
    obs = batch(victim.observation_space)
    np.testing.assert_array_equal(
        adv.save_card(tmp_path, victim, environment="Some-v0").act_on(obs), victim.act_on(obs)
    )


@pytest.mark.parametrize("name", ["tqc", "tqc cnn", "tqc dict"])
def test_the_critic_of_tqc_is_the_mean_over_quantiles(name):
    made = model(*CASES[name])
    victim, obs, act = from_sb3(made), batch(made.observation_space), batch(BOX)
    scaled = torch.as_tensor(made.policy.scale_action(act))
    with torch.no_grad():
        expected = made.critic(made.policy.obs_to_tensor(obs)[0], scaled).mean(2).mean(1)
    x, a = tensors(obs), torch.as_tensor(act).requires_grad_()
    leaf = (x["a"] if isinstance(x, dict) else x).requires_grad_()
    found = victim.q(x, a)
    torch.testing.assert_close(found.detach(), expected)
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found.sum(), (leaf, a)))


def test_attacks_that_need_the_critic():
    victim, true = from_sb3(model(*CASES["tqc"])), batch(VECTOR, 20)
    env = adv.PerturbObservation(Blank(VECTOR, BOX), adv.MinQ(victim), within=adv.Linf(0.1))
    rows = iter(true)
    env.unwrapped.reset = lambda **kwargs: (next(rows).copy(), {})
    seen = np.stack([env.reset(seed=0)[0] for _ in true])
    assert np.abs(seen - true).max() <= 0.1 + 1e-6
    worse, clean = (victim.q(torch.as_tensor(true), torch.as_tensor(victim.act_on(obs))) for obs in (seen, true))
    assert (worse <= clean + 1e-6).all() and worse.mean() < clean.mean() - 1e-3


def test_a_live_crossq_must_not_be_in_training_mode():
    """An attack would move its running statistics, and its actions would depend on the batch."""
    made, obs = model(*CASES["crossq"]), torch.randn(6, 4)
    made.policy.set_training_mode(True)
    with pytest.raises(VictimError, match=r"batch normalisation.*BatchRenorm1d"):
        from_sb3(made, live=True)
    frozen = from_sb3(made)
    made.policy.set_training_mode(False)
    live = from_sb3(made, live=True)
    torch.testing.assert_close(live.params(obs).detach(), frozen.params(obs))
    before = frozen.params(obs)
    for layer in made.actor.modules():
        if hasattr(layer, "ra_mean"):
            layer.ra_mean += 1
    assert torch.equal(frozen.params(obs), before) and not torch.allclose(live.params(obs), before)
    made.policy.set_training_mode(True)
    with pytest.raises(VictimError, match="training mode"):
        live.params(obs)


@pytest.mark.parametrize("name", ["recurrent", "recurrent shared", "recurrent plain critic"])
def test_recurrent_value_and_state(name):
    made = model(*CASES[name])
    victim, obs = from_sb3(made), torch.randn(5, 4)
    state = victim.advance(obs, victim.initial_state(5))
    assert all(leaf.shape[0] == 5 for leaf in state)
    before = [leaf.clone() for leaf in state]
    used = state[2:] if len(state) == 4 else state
    theirs = tuple(leaf.transpose(0, 1).contiguous() for leaf in used)
    with torch.no_grad():
        expected = made.policy.predict_values(obs, theirs, torch.zeros(5))[:, 0]
    torch.testing.assert_close(victim.value(obs, state), expected)
    new = victim.advance(obs, state)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
    assert not torch.equal(new[0], state[0])
    one = victim.advance(obs[2:3], tuple(leaf[2:3] for leaf in state))
    torch.testing.assert_close(one[0], new[0][2:3])


def normalised(observed, keys=None, **arguments):
    env = VecNormalize(DummyVecEnv([lambda: Blank(observed, TWO)]), norm_obs_keys=keys, clip_obs=1.5, epsilon=1e-3)
    rng = np.random.default_rng(0)
    for rms in env.obs_rms.values() if isinstance(env.obs_rms, dict) else [env.obs_rms]:
        rms.mean, rms.var = rng.normal(size=rms.mean.shape), rng.uniform(0, 2, rms.var.shape)
    return env


@every_case(("observed", "keys"), [(VECTOR, None), (DICT, ["a", "d"])])
def test_vec_normalize_is_mirrored_and_frozen(observed, keys):
    env = normalised(observed, keys)
    made = model(sb3.PPO, observed, TWO, BOTH if keys else SMALL, env=env)
    victim, obs = from_sb3(made), batch(made.observation_space, 30)
    seen = env.normalize_obs(obs)
    if not keys:
        assert (np.abs(seen) == 1.5).any()
        np.testing.assert_allclose(victim.scale.numpy(), np.sqrt(env.obs_rms.var + 1e-3))
    else:
        units = {key: np.sqrt(env.obs_rms[key].var + 1e-3) for key in keys}
        assert victim.scale is None and (victim.scales["b"] == 255).all()
        for at in ("a", ("d", "a")):
            within = adv.threat("noise", eps=0.1, scale="victim", at=at).against(victim).budget
            expected = np.concatenate([units[key] for key in at])
            np.testing.assert_allclose(within.scale, expected)
        for at in (None, "c", ("a", "f")):
            with pytest.raises(BudgetError, match="needs at=, of keys that this victim normalises: a, d, b"):
                adv.threat("noise", eps=0.1, scale="victim", at=at).against(victim)
    with torch.no_grad():
        expected = made.policy.get_distribution(made.policy.obs_to_tensor(seen)[0]).distribution.probs
    before = victim.policy(tensors(obs)).probs
    torch.testing.assert_close(before, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(from_sb3(made.policy, vec_normalize=env).params(tensors(obs)), victim.params(tensors(obs)))
    for rms in env.obs_rms.values() if keys else [env.obs_rms]:
        rms.mean += 1
    assert torch.equal(victim.policy(tensors(obs)).probs, before)
    env.norm_obs = False
    plain = from_sb3(made)
    assert plain.scale is None and not torch.equal(plain.policy(tensors(obs)).probs, before)


def test_live_under_vec_normalize():
    """The weights are the policy's own, the statistics a copy in the victim's dtype."""
    env = normalised(VECTOR)
    made = sb3.PPO("MlpPolicy", env, n_steps=4, batch_size=4, device="cpu", policy_kwargs=SMALL)
    victim, frozen = from_sb3(made, live=True), from_sb3(made)
    x = torch.randn(5, 4)
    torch.testing.assert_close(victim.params(x), frozen.params(x))
    with torch.no_grad():
        made.policy.action_net.bias += 1
    torch.testing.assert_close(victim.params(x)[:, :2], frozen.params(x)[:, :2] + 1)


def test_vec_normalize_of_images_keeps_the_raw_space():
    env = normalised(spaces.Box(0, 255, (1, 36, 36), np.uint8))
    torch.manual_seed(0)
    made = sb3.PPO("CnnPolicy", env, policy_kwargs=CNN | {"normalize_images": False}, device="cpu")
    victim, obs = from_sb3(made), batch(spaces.Box(0, 255, (1, 36, 36), np.uint8))
    assert victim.observation_space == spaces.Box(0, 255, (1, 36, 36), np.uint8)
    with torch.no_grad():
        seen = torch.as_tensor(env.normalize_obs(obs)).float()
        expected = made.policy.get_distribution(seen).distribution.probs
    torch.testing.assert_close(victim.policy(tensors(obs)).probs, expected, rtol=1e-4, atol=1e-5)


def test_images_have_a_unit():
    assert (from_sb3(model(*CASES["ppo cnn"])).scale == 255).all()
    assert from_sb3(model(*CASES["ppo"])).scale is None


@pytest.mark.parametrize("name", ["ppo box", "qrdqn", "tqc", "crossq", "ars", "trpo", "recurrent"])
def test_live_follows_and_a_copy_does_not(name):
    made, obs = model(*CASES[name]), torch.randn(4, 4)
    made.policy.set_training_mode(False)
    frozen, live = from_sb3(made), from_sb3(made, live=True)
    state = frozen.initial_state(4)
    before = frozen.params(obs, state)
    torch.testing.assert_close(live.params(obs, state).detach(), before)
    prints = frozen.fingerprint(), live.fingerprint()
    with torch.no_grad():
        for parameter in made.policy.parameters():
            parameter.add_(0.01)
    assert torch.equal(frozen.params(obs, state), before) and frozen.fingerprint() == prints[0]
    assert live.fingerprint() != prints[1]
    torch.testing.assert_close(live.params(obs, state), from_sb3(made).params(obs, state))
    assert all(p.requires_grad and p.grad is None for p in live.net.parameters() if p.shape[0] != 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ARS", "TQC", "CrossQ", "TRPO"])
def test_agents_of_sb3_contrib_that_learned(name):
    """Before and after further training, on a thousand observations."""
    how = {"ARS": {"n_delta": 2}, "TRPO": {"n_steps": 64, "batch_size": 64}}.get(
        name, {"learning_starts": 20, "batch_size": 32}
    )
    made = getattr(contrib, name)("MlpPolicy", "Pendulum-v1", device="cpu", seed=0, **how).learn(40)
    obs = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    frozen, before = from_sb3(made), made.predict(obs, deterministic=True)[0]
    made.learn(40)
    for victim, expected in ((frozen, before), (from_sb3(made), made.predict(obs, deterministic=True)[0])):
        np.testing.assert_allclose(victim.act_on(obs), expected, rtol=1e-4, atol=1e-5)
    assert np.abs(made.predict(obs, deterministic=True)[0] - before).max() > 1e-3


@every_case("name", ["ppo", "ppo cnn", "dqn", "dqn cnn", "a2c", "sac", "td3"])
def test_attacks_use_what_a_frozen_copy_keeps_and_the_model_trains_on(name):
    made = model(*CASES[name])
    made.policy.train()
    modes = [module.training for module in made.policy.modules()]
    wants = [parameter.requires_grad for parameter in made.policy.parameters()]
    frozen, live = from_sb3(made), from_sb3(made, live=True)
    obs = tensors(batch(frozen.observation_space, 3))

    def slope(victim):
        return victim.gradient(lambda params: params.square().sum(-1))(obs)

    def by_autograd(victim):
        leaf = obs.clone().requires_grad_()
        return torch.autograd.grad(victim.params(leaf).square().sum(), leaf)[0]

    before = slope(frozen)
    assert not any(net.training for net in frozen.modules())
    assert not any(p.requires_grad for net in frozen.modules() for p in net.parameters())
    torch.testing.assert_close(before, slope(live))
    optimizer = torch.optim.SGD([p for p in made.policy.parameters() if p.requires_grad], lr=0.05)
    sum(p.square().sum() for p in made.policy.parameters() if p.requires_grad).backward()
    optimizer.step()
    assert torch.equal(slope(frozen), before) and not torch.allclose(slope(live), before)
    torch.testing.assert_close(slope(live), by_autograd(live), rtol=1e-4, atol=1e-6)
    assert [module.training for module in made.policy.modules()] == modes
    assert [parameter.requires_grad for parameter in made.policy.parameters()] == wants and any(wants)


def test_a_trained_model_can_be_copied():
    made = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
    obs = batch(VECTOR)
    assert (
        from_sb3(made).act(from_sb3(made).params(tensors(obs))).numpy() == made.predict(obs, deterministic=True)[0]
    ).all()


def test_pickles():
    for name in ("ppo cnn", "recurrent", "sac", "td3 dict"):
        victim = from_sb3(model(*CASES[name]))
        again = pickle.loads(pickle.dumps(victim))
        obs, state = tensors(batch(victim.observation_space, 2)), victim.initial_state(2)
        assert torch.equal(again.params(obs, again.initial_state(2)), victim.params(obs, state))


class Squared(ActorCriticPolicy):
    def _predict(self, observation, deterministic=False):
        return super()._predict(observation**2, deterministic)


def test_what_is_not_understood_is_refused():
    env = Blank(VECTOR, BOX)
    with pytest.raises(VictimError, match="overrides _predict"):
        from_sb3(sb3.PPO(Squared, env, device="cpu"))
    with pytest.raises(VictimError, match=r"expected a model or policy of DQN.*from_module"):
        from_sb3(torch.nn.Linear(2, 2))
    with pytest.raises(VictimError, match=r"statistics of shape \(4,\)"):
        from_sb3(model(*CASES["ppo cnn"]), vec_normalize=normalised(VECTOR))
    with pytest.raises(VictimError, match="is for action space"):
        from_sb3(model(*CASES["ppo"]), action_space=TWO)


ZIPPED = [
    "dqn", "dqn cnn", "dqn discrete", "qrdqn", "ppo box", "a2c", "a2c bits", "sac cnn", "td3 dict", "ddpg", "tqc gsde",
    "crossq", "ars linear squashed", "recurrent", "recurrent shared", "ppo gsde squashed", "a2c gsde dict",
]  # fmt: skip


@pytest.mark.parametrize("name", ZIPPED)
def test_zip_without_unpickling(name, tmp_path, monkeypatch):
    made = model(*CASES[name])
    victim = from_sb3(made)
    made.save(tmp_path / "model.zip")

    def forbidden(*args, **kwargs):
        raise AssertionError("a pickle was read")

    for module in ("pickle.loads", "pickle.load", "cloudpickle.loads", "cloudpickle.load"):
        monkeypatch.setattr(module, forbidden)
    state = torch.random.get_rng_state()
    found = load_sb3(tmp_path / "model.zip")
    assert torch.equal(state, torch.random.get_rng_state())
    assert found.fingerprint() == victim.fingerprint()
    assert found.observation_space == victim.observation_space and found.action_space == victim.action_space
    assert found.ref == f"sb3:{tmp_path / 'model.zip'}"
    obs = tensors(batch(made.observation_space))
    assert torch.equal(found.params(obs, found.initial_state(6)), victim.params(obs, victim.initial_state(6)))


@pytest.mark.parametrize("name", ["dqn", "ppo box", "tqc", "ars linear", "recurrent"])
def test_zip_with_trust(name, tmp_path):
    made = model(*CASES[name])
    made.save(tmp_path / "model.zip")
    assert load_sb3(tmp_path / "model.zip", trust=True).fingerprint() == from_sb3(made).fingerprint()


class Own(torch.nn.Module):
    """An activation function that plain text does not tell."""

    def forward(self, x):
        return x.sin()


def test_trust_runs_what_plain_text_does_not_tell(tmp_path):
    made = model(sb3.PPO, VECTOR, TWO, SMALL | {"activation_fn": Own})
    made.save(tmp_path / "model.zip")
    with pytest.raises(TrustError, match="activation_fn"):
        load_sb3(tmp_path / "model.zip")
    assert load_sb3(tmp_path / "model.zip", trust=True).fingerprint() == from_sb3(made).fingerprint()


def of_sb3_1(data):
    """What SB3 1.x wrote into the file: pickles of the package gym, and of functions of another Python."""
    data = json.loads(data)
    pickled = {"observation_space": b"cgym.spaces.box\nBox\n.", "clip_range": b"cgone.version\nof_python\n."}
    for name, code in pickled.items():
        data[name] = (data[name] if isinstance(data[name], dict) else {}) | {
            ":serialized:": base64.b64encode(code).decode()
        }
    return json.dumps(data)


def test_zips_of_sb3_1_are_read_with_trust_and_without(saved, tmp_path):
    expected = load_sb3(saved)
    rewrite(saved, "data", of_sb3_1)
    for trust in (False, True):
        assert load_sb3(saved, trust=trust).fingerprint() == expected.fingerprint()
    own = tmp_path / "own.zip"
    made = model(sb3.PPO, VECTOR, BOX, SMALL | {"activation_fn": Own})
    made.save(own)
    rewrite(own, "data", of_sb3_1)  # what has to be run is, and what is not needed is left alone
    assert load_sb3(own, trust=True).fingerprint() == from_sb3(made).fingerprint()


def test_a_package_that_pickles_need_is_named(tmp_path):
    model(sb3.PPO, VECTOR, BOX, SMALL | {"activation_fn": Own}).save(tmp_path / "model.zip")
    rewrite(
        tmp_path / "model.zip", "data", edit(policy_class={":serialized:": base64.b64encode(b"cgym\nEnv\n.").decode()})
    )
    with pytest.raises(CardError, match=r"policy class.*No module named 'gym'\. Install gym, or save the agent anew"):
        load_sb3(tmp_path / "model.zip", trust=True)


def of_ars_1(path):
    """The weights of a linear ARS as sb3-contrib wrote them before 1.8: a layer, not a Sequential of one."""
    with zipfile.ZipFile(path) as file:
        weights = torch.load(io.BytesIO(file.read("policy.pth")), weights_only=True)
    stored = io.BytesIO()
    torch.save({name.replace("action_net.0.", "action_net."): value for name, value in weights.items()}, stored)
    rewrite(path, "policy.pth", lambda _: stored.getvalue())


@pytest.mark.parametrize(
    ("acted", "biased", "trust"), [(BOX, False, True), (spaces.Discrete(3), True, False), (BOX, True, True)]
)
def test_linear_ars_of_both_forms(acted, biased, trust, tmp_path):
    made = model(contrib.ARS, VECTOR, acted, {"with_bias": True} if biased else {})
    path = tmp_path / "model.zip"
    made.save(path)
    obs = batch(VECTOR, 50)
    expected = made.predict(obs, deterministic=True)[0]
    np.testing.assert_array_equal(load_sb3(path).act_on(obs), expected)
    of_ars_1(path)
    np.testing.assert_array_equal(load_sb3(path, trust=trust).act_on(obs), expected)
    read = adv.save_card(tmp_path / "card", load_sb3(path), environment="Blank-v0")
    np.testing.assert_array_equal(read.act_on(obs), expected)


KEYS = [
    "{'a': Box(-1.0, 1.0, (4,), float32), 'b': Discrete(3), 'c': MultiDiscrete([2 3]), 'd': MultiBinary(3)}",
    "OrderedDict([('a', Box(-1.0, 1.0, (4,), float32)), ('b', Discrete(3)), ('c', MultiDiscrete([2 3])), "
    "('d', MultiBinary(3))])",
    "OrderedDict({'a': Box(-1.0, 1.0, (4,), float32), 'b': Discrete(3), 'c': MultiDiscrete([2 3]), "
    "'d': MultiBinary(3)})",
    "OrderedDict([('a', Box([-1. -1. -1. -1.], [1. 1. 1. 1.], (4,), float32)), ('b', Discrete(3, start=2)), "
    "('c', MultiDiscrete([2 3], start=[1 1])), ('d', MultiBinary(3))])",
]


@pytest.mark.parametrize("text", KEYS)
def test_dictionaries_of_spaces_in_every_form(text, tmp_path):
    observed = spaces.Dict(
        a=spaces.Box(-1, 1, (4,)), b=spaces.Discrete(3), c=spaces.MultiDiscrete([2, 3]), d=spaces.MultiBinary(3)
    )
    made = model(sb3.PPO, observed, spaces.Discrete(4), {"net_arch": [8]})
    path = tmp_path / "model.zip"
    made.save(path)
    rewrite(
        path,
        "data",
        lambda data: edit(observation_space=json.loads(data)["observation_space"] | {"spaces": text})(data),
    )
    found, obs = load_sb3(path), batch(observed, 20)
    assert found.observation_space == observed
    np.testing.assert_array_equal(found.act_on(obs), made.predict(obs, deterministic=True)[0])


def rewrite(path, name, change):
    with zipfile.ZipFile(path) as archive:
        files = {n: archive.read(n) for n in archive.namelist()}
    files[name] = change(files[name])
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in files.items():
            archive.writestr(entry, content)


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.fixture
def saved(tmp_path):
    model(sb3.PPO, VECTOR, BOX, SMALL).save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def test_no_code_from_the_file_runs(saved, tmp_path):
    mark = tmp_path / "ran"
    bomb = pickle.dumps(Bomb(mark))

    def poison(data):
        data = json.loads(data)
        for entry in data.values():
            if isinstance(entry, dict) and ":serialized:" in entry:
                entry[":serialized:"] = base64.b64encode(bomb).decode()
        return json.dumps(data)

    def infect(_):
        buffer = io.BytesIO()
        torch.save({"weight": Bomb(mark)}, buffer)
        return buffer.getvalue()

    rewrite(saved, "data", poison)
    rewrite(saved, "pytorch_variables.pth", infect)
    rewrite(saved, "policy.optimizer.pth", infect)
    assert load_sb3(saved).kind == "gaussian"  # what is poisoned is never looked at
    for change in (infect, lambda _: bomb):
        rewrite(saved, "policy.pth", change)
        with pytest.raises((TrustError, CardError), match=r"policy\.pth"):
            load_sb3(saved)
    assert not mark.exists()
    pickle.loads(bomb).close()
    assert mark.exists()  # the bomb does work


def edit(**changes):
    return lambda data: json.dumps(json.loads(data) | changes)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            edit(policy_class={":type:": "type", "__module__": "mine.policies"}),
            TrustError,
            r"policy class .*mine\.policies",
        ),
        (edit(policy_class={}), TrustError, "policy class"),
        (edit(policy_kwargs={"activation_fn": "<class 'mine.Evil'>"}), TrustError, r"activation_fn.*mine\.Evil"),
        (edit(policy_kwargs={"activation_fn": "<class 'torch.nn.Linear'>"}), TrustError, "activation_fn"),
        (
            edit(policy_kwargs={"features_extractor_class": "<class 'mine.Net'>"}),
            TrustError,
            "features_extractor_class",
        ),
        (edit(policy_kwargs={"surprise": 1}), TrustError, "surprise"),
        (edit(policy_kwargs={"net_arch": "[8, Evil()]"}), TrustError, "net_arch"),
        (edit(policy_kwargs={"net_arch": [9, 8]}), CardError, "weights are not those of ActorCriticPolicy"),
        (edit(policy_kwargs={}), CardError, "weights are not those"),
        (edit(action_space={":type:": "<class 'mine.Space'>"}), TrustError, "action space Space"),
        (edit(action_space={":type:": "<class 'gymnasium.spaces.box.Box'>"}), TrustError, "action space Box"),
        (edit(observation_space=None), TrustError, "observation space"),
        (edit(use_sde=True), CardError, "weights are not those of ActorCriticPolicy with .*use_sde"),
        (edit(policy_kwargs={"full_std": "False"}), TrustError, "full_std"),
        (lambda data: b"{", CardError, "cannot read"),
        (lambda data: b"[]", CardError, "JSON object"),
    ],
)
def test_what_plain_text_does_not_tell(saved, change, error, message):
    rewrite(saved, "data", change)
    with pytest.raises(error, match=message):
        load_sb3(saved)


def test_boxes_that_text_leaves_out_need_trust(tmp_path):
    low = np.linspace(-2, -1, 1500, dtype=np.float32)
    model(sb3.PPO, spaces.Box(low, -low), TWO, SMALL).save(tmp_path / "model.zip")
    with pytest.raises(TrustError, match="observation space Box"):
        load_sb3(tmp_path / "model.zip")


def test_damaged_files(saved, tmp_path):
    weights = {"action_net.weight": torch.zeros(2, 8)}

    def save(value):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return buffer.getvalue()

    for value, message in (
        (weights, "expected weights"),
        ([1], "cannot read"),
        ({"a": torch.zeros(1)}, "no weights"),
    ):
        rewrite(saved, "policy.pth", lambda _, value=value: save(value))
        with pytest.raises(CardError, match=message):
            load_sb3(saved)
    rewrite(saved, "policy.pth", lambda content: content[:100])
    with pytest.raises((CardError, TrustError), match=r"policy\.pth"):
        load_sb3(saved)
    (tmp_path / "text.zip").write_text("not a zip")
    for missing in ("text.zip", "none.zip"):
        with pytest.raises(CardError, match=missing):
            load_sb3(tmp_path / missing)


def test_weights_that_are_not_finite(tmp_path):
    made = model(sb3.DQN, VECTOR, TWO, SMALL, OFF)
    made.policy.q_net.q_net[0].weight.data[0, 0] = float("nan")
    made.save(tmp_path / "model.zip")
    with pytest.raises(CardError, match="not finite"):
        load_sb3(tmp_path / "model.zip")


def test_masks_are_refused_by_name(tmp_path):
    made = contrib.MaskablePPO("MlpPolicy", Blank(VECTOR, TWO), device="cpu")
    made.save(tmp_path / "model.zip")
    for load in (lambda: from_sb3(made), lambda: from_sb3(made.policy), lambda: load_sb3(tmp_path / "model.zip")):
        with pytest.raises(VictimError, match=r"MaskablePPO.*mask.*from_module"):
            load()


@every_case("eps", [-1.0, [1]])
def test_a_hostile_epsilon_of_batch_renormalisation(eps, tmp_path):
    model(*CASES["crossq"]).save(tmp_path / "model.zip")
    rewrite(tmp_path / "model.zip", "data", edit(policy_kwargs={"net_arch": [8, 8], "batch_norm_eps": eps}))
    with pytest.raises(CardError, match=r"batch_norm_eps must be|cannot read"):
        load_sb3(tmp_path / "model.zip")


class Screen(gym.Env):
    """Images with their channels last, beside a number where that is asked for; a step pays its action."""

    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, number=False):
        self.number, image = number, gym.spaces.Box(0, 255, (36, 40, 3), np.uint8)
        self.observation_space = gym.spaces.Dict(image=image, x=gym.spaces.Box(-1, 1, (2,))) if number else image

    def _seen(self):
        image = self.np_random.integers(0, 256, (36, 40, 3), np.uint8)
        return {"image": image, "x": self.np_random.uniform(-1, 1, 2).astype(np.float32)} if self.number else image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5
        return self._seen(), {}

    def step(self, action):
        self.left -= 1
        return self._seen(), float(action[0]), self.left == 0, False, {}


@pytest.mark.parametrize("number", [False, True])
def test_images_with_channels_last_are_turned_as_sb3_turns_them(number):
    policy = "MultiInputPolicy" if number else "CnnPolicy"
    model = sb3.PPO(
        policy, Screen(number), device="cpu", n_steps=2, batch_size=2, seed=0, policy_kwargs=BOTH if number else CNN
    )
    attack = "noise:eps=200,at=image" if number else "noise:eps=200"
    report = adv.evaluate(from_sb3(model), lambda: Screen(number), [attack], episodes=3, num_envs=2, seed=1)
    played = []
    for seed in adv.Episodes(3, seed=1).seeds:
        env = Screen(number)
        (obs, _), total, over = env.reset(seed=int(seed)), 0.0, False
        while not over:
            obs, reward, over, *_ = env.step(model.predict(obs, deterministic=True)[0])
            total += reward
        played.append(total)
    clean, attacked = report.threats
    assert clean.returns == pytest.approx(played, rel=1e-4) != attacked.returns and attacked.linf > 190


def test_images_with_channels_last_are_told_what_to_do():
    model = sb3.PPO(
        "CnnPolicy", Screen(), device="cpu", n_steps=2, batch_size=2
    )  # SB3 puts a VecTransposeImage around it
    victim = from_sb3(model)
    received = r"\(3, 36, 40\).*come in another order.*VecTransposeImage"
    with pytest.raises(VictimError, match=rf"the victim <Sb3Victim.*{received}"):
        adv.wrap(Screen(), "max-diff:eps=1", victim=victim)
    with pytest.raises(VictimError, match=received):
        from_sb3(model, observation_space=Screen().observation_space)
    adv.wrap(model.get_env(), "max-diff:eps=1", victim=victim)
