"""Cards that were written are read as the same victims, to the bit; what a card cannot say is refused."""

from __future__ import annotations

import functools
import itertools
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import adv_wrappers as adv
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.victims.card import load_card
from tests.every_case import every_case
from tests.studies.report.planted import agent_for
from tests.victims.test_card_reader import CARDS, observations, write

OBS, DISCRETE = spaces.Box(-np.inf, np.inf, (5,), np.float32), spaces.Discrete(3)
BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 0.5]))
IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
RULE = {"mean": [0.1, 2.0, -1.0, 0.0, 7.0], "std": [1.0, 0.3, 5.0, 0.01, 2.0], "epsilon": 1e-3, "clip": 4.0}


def mlp(outputs, *hidden, activation=nn.Tanh, last=None):
    torch.manual_seed(outputs)
    sizes = [5, *hidden, outputs]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), activation())]
    return nn.Sequential(*layers[:-1], *([last] if last else []))


class Gaussian(nn.Module):
    def forward(self, x):
        return torch.cat([x, x * 0], -1)


def same(a, b, rows=6):
    shape = a.observation_space.shape
    x = torch.randn(rows, *shape) * 5 if len(shape) == 1 else torch.randint(0, 256, (rows, *shape)).float()
    state = a.initial_state(rows)
    assert torch.equal(a.params(x, state), b.params(x, state))
    assert torch.equal(a.mode(a.params(x, state)), b.mode(b.params(x, state)))
    for name in ("value", "q"):
        ours, theirs = (getattr(victim, name)(x, state=state) for victim in (a, b))
        assert (ours is None) is (theirs is None) and (ours is None or torch.equal(ours, theirs))
    assert (a.kind, a.select, a.action_space, a.recurrent) == (b.kind, b.select, b.action_space, b.recurrent)
    assert shape == b.observation_space.shape


@pytest.mark.parametrize("kind", CARDS)
def test_every_kind_of_card_is_written_as_it_was_read(kind, tmp_path):
    folder, _ = write(tmp_path / "a", kind)
    first = load_card(folder)
    again = adv.save_card(tmp_path / "b", first, environment=("Hopper-v4", {"a": 1}), name="b", measured=[])
    same(first, again)
    assert again.fingerprint() == first.fingerprint() and again.structure() == first.structure()
    assert again.ref == f"card:{tmp_path / 'b'}" and again.card["format"] == 3
    assert again.card["environment"] == first.card["environment"] and again.card["name"] == "b"
    if first.scale is not None:
        torch.testing.assert_close(again.scale, first.scale, rtol=1e-12, atol=0)
    if kind == "tanh-mlp":
        x, act = observations().float(), torch.rand(4, 2)
        assert torch.equal(first.q(x, act), again.q(x, act))
        assert torch.equal(first.robust_sarsa(x, act), again.robust_sarsa(x, act))


@pytest.mark.parametrize("kind", ["logits", "mean"])
def test_an_observation_rule(kind, tmp_path):
    """It stands before the network, and before that of the value."""
    net = mlp(3, 8) if kind == "logits" else mlp(2, 8, last=nn.Tanh())
    given = net, OBS, DISCRETE if kind == "logits" else BOX, kind
    value = mlp(1, 8)
    state = torch.random.get_rng_state()
    card = adv.save_card(tmp_path, *given, environment="Any-v0", observation=RULE, value=value)
    assert torch.equal(state, torch.random.get_rng_state())
    mean, std = (torch.tensor(RULE[key], dtype=torch.float64) for key in ("mean", "std"))
    for one in (torch.randn(9, 5) * 5, torch.zeros(9, 5)):
        seen = ((one - mean.float()) / (std + 1e-3).float()).clamp(-4, 4)
        assert torch.equal(card.params(one), net(seen).detach())
        assert torch.equal(card.value(one), value(seen).detach()[:, 0])
    assert torch.equal(card.scale, std + 1e-3)
    assert adv.load_victim(f"card:{tmp_path}").fingerprint() == card.fingerprint()


def atari(channels=4, heads=1):
    torch.manual_seed(1)
    trunk = nn.Sequential(
        nn.Conv2d(channels, 4, 8, 4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 4, 2),
        nn.ReLU(),
        nn.Conv2d(3, 2, 3, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(16),
        nn.ReLU(),
    )
    return [nn.Sequential(trunk, nn.Linear(16, 3 if i == 0 else 1)) for i in range(heads)]


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 64, 72)])
def test_images(shape, tmp_path):
    """What policy and value share is written once."""
    space = spaces.Box(0, 255, shape, np.uint8)
    net, value = atari(shape[0], heads=2)
    for one in (net, value):
        one(torch.zeros(1, *shape))
    value[0].load_state_dict(net[0].state_dict())
    more = {"observation": {"mean": 0.0, "std": 255.0}, "value": value}
    card = adv.save_card(tmp_path, net, space, DISCRETE, "logits", environment="ALE/Pong-v5", **more)
    x = torch.randint(0, 256, (3, *shape)).float()
    assert torch.equal(card.params(x), net(x / 255).detach()) and card.observation_space == space
    assert torch.equal(card.value(x), value(x / 255).detach()[:, 0]) and (card.scale == 255).all()
    names = {name.split(".")[0] for name in load_file(tmp_path / "weights.safetensors") if name.endswith(".weight")}
    assert names == {"trunk", "policy", "value"} and card.card["network"]["value"] == ["trunk", {"kind": "linear"}]


@pytest.mark.parametrize("name", ["cartpole-ppo", "hopper-ppo", "mountaincar-dqn"])
def test_agents_of_the_zoo(name, tmp_path):
    victim = adv.load_victim(f"zoo:{name}")
    card = adv.save_card(tmp_path, victim, environment="Any-v0", measured=victim.card["measured"])
    assert card.fingerprint() == victim.fingerprint() and card.card["network"] == victim.card["network"]
    same(victim, card)


def test_weights_are_stored_in_half_of_the_space_where_they_fit(tmp_path):
    net = mlp(3, 8)
    about = {"environment": "CartPole-v1", "stored": torch.float16}
    with pytest.raises(VictimError, match=r"policy.0.weight holds numbers that torch.float16 would round"):
        adv.save_card(tmp_path, net, OBS, DISCRETE, "logits", **about)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(parameter.half())
    read = adv.save_card(tmp_path, net, OBS, DISCRETE, "logits", **about)
    stored = load_file(tmp_path / "weights.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16} and read.dtype == torch.float32
    assert torch.equal(read.params(torch.ones(1, 5)), net(torch.ones(1, 5)))


def test_float64(tmp_path):
    victim = adv.from_module(mlp(3, 8).double(), OBS, DISCRETE, "q")
    card, x = adv.save_card(tmp_path, victim, environment="Any-v0"), torch.randn(4, 5).double()
    assert card.dtype == torch.float64 and torch.equal(card.params(x), victim.params(x))


class Odd(nn.Linear):
    """Not what its name says."""

    def forward(self, x):
        return super().forward(x**2)


def unlike():
    """Each case: a victim or module with its spaces, more arguments, and what the error says."""
    three = spaces.Box(0, 1, (1, 5), np.float32)
    yield (nn.Sequential(nn.Linear(5, 3), nn.Softmax(-1), nn.Linear(3, 3)), OBS, DISCRETE, "q"), {}, "layers in a row"
    yield (Odd(5, 3), OBS, DISCRETE, "q"), {}, "layers in a row"
    yield (mlp(3, 8), OBS, spaces.Discrete(3, start=1), "q"), {}, "starts at 0"
    yield (mlp(5, 8), OBS, spaces.MultiDiscrete([2, 3]), "logits"), {}, "starts at 0"
    yield (nn.Sequential(nn.Flatten(), mlp(3, 8)), three, DISCRETE, "q"), {}, r"observations \[n\]"
    yield (nn.Sequential(mlp(2, 8), Gaussian()), OBS, BOX, "gaussian"), {}, "layers in a row"
    ruled = ActionValue(Normalize(torch.ones(5), torch.ones(5)), nn.Linear(7, 1))
    for critic in (ruled, lambda obs, act: act.sum(-1), nn.Bilinear(5, 2, 1)):
        message = "one observation rule" if critic is ruled else "layers in a row"
        yield (adv.from_module(mlp(2, 8, last=nn.Tanh()), OBS, BOX, "mean", critic=critic),), {}, message


class CleanRL(nn.Module):
    """A class, with a log standard deviation of its own."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.log_std = nn.Linear(5, 8), nn.Linear(8, 2), nn.Parameter(torch.randn(1, 2))

    def forward(self, x):
        mean = self.fc2(torch.tanh(self.fc1(x)))
        return mean, self.log_std.expand_as(mean)


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(4, 3, 8, 8, padding=2), nn.Linear(363, 3)

    def forward(self, x):
        return self.out(functional.relu(self.conv(x / 255.0)).reshape(x.shape[0], -1))


def anything():
    """Each case: a module with its spaces, more arguments, and the networks that the card holds."""
    torch.manual_seed(0)
    nature, value = atari(), nn.Sequential(*[*atari()[0][0], nn.Linear(16, 1)])
    for net in (*nature, value):
        net(torch.zeros(1, 4, 84, 84))
    with torch.no_grad():
        value[0].weight.add_(1.0)
    one, both, headed = {"policy"}, {"policy", "value"}, {"trunk", "policy"}
    dropout = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Dropout(), nn.Linear(3, 3))
    yield (nn.Sequential(nn.Linear(5, 3), nn.ELU(), nn.Linear(3, 3, bias=False)), OBS, DISCRETE, "q"), {}, one
    yield (dropout, OBS, DISCRETE, "q"), {}, one
    yield (nn.Sequential(nn.Flatten(), mlp(3, 8)), OBS, DISCRETE, "q"), {"value": mlp(1, 8)}, both
    yield (mlp(3, 8), OBS, DISCRETE, "logits"), {"observation": RULE, "value": mlp(1, activation=nn.ELU)}, both
    yield (mlp(3), OBS, DISCRETE, "logits"), {"select": "sample", "value": mlp(1, 4, 4)}, both
    yield (mlp(2, 8, activation=nn.ReLU, last=nn.Tanh()), OBS, BOX, "mean"), {"clip": True}, one
    yield (mlp(4, 8), OBS, BOX, "gaussian"), {}, one
    yield (nature[0], IMAGE, DISCRETE, "logits"), {"value": value}, headed | both
    yield (nature[0], IMAGE, DISCRETE, "q"), {"observation": {"mean": 0.0, "std": 255.0}}, one
    yield (CleanRL(), OBS, BOX, None), {"clip": True}, one
    yield (CleanRL(), OBS, BOX, None), {"observation": RULE, "select": "sample"}, one
    yield (Pixels(), IMAGE, DISCRETE, "logits"), {}, one
    yield (Pixels(), IMAGE, DISCRETE, "logits"), {"value": nn.Sequential(nn.Flatten(), nn.LazyLinear(1))}, both


everything = functools.cache(lambda: [*anything()])


@pytest.mark.parametrize("case", range(13))
def test_layers_in_a_row(case, tmp_path):
    given, more, networks = everything()[case]
    if isinstance(more.get("value"), nn.Module):
        more["value"](torch.zeros(1, *given[1].shape))
    card = adv.save_card(tmp_path, *given, environment="Any-v0", **more)
    assert card.card["network"].keys() == {"output", *networks}
    same(card, adv.load_victim(f"card:{tmp_path}"))
    if "observation" not in more:
        same(adv.from_module(*given, **more), card)


@every_case("case", range(9))
def test_what_a_card_cannot_hold(case, tmp_path):
    given, more, message = list(unlike())[case]
    with pytest.raises(VictimError, match=message):
        adv.save_card(tmp_path, *given, environment="Any-v0", **more)
    assert not list(tmp_path.iterdir())


def test_arguments(tmp_path):
    victim = adv.from_module(mlp(3, 8), OBS, DISCRETE, "q")
    for error, message, given, more in (
        (CardError, "network of a card follows", (victim,), {"network": {}}),
        (CardError, "JSON values only", (victim,), {"measured": object()}),
        (CardError, "JSON values only", (victim,), {"measured": float("nan")}),
        (CardError, "text id", (victim,), {"environment": (3, {})}),
        (VictimError, "a victim has its own", (victim, OBS, DISCRETE), {}),
        (VictimError, "a module and its spaces", (mlp(3),), {}),
        (VictimError, "a module and its spaces", (lambda x: x, OBS, DISCRETE, "q"), {}),
        (CardError, "got None", (mlp(3), OBS, DISCRETE, "q"), {"observation": {"mean": 0}}),
        (CardError, "std must be", (mlp(3), OBS, DISCRETE, "q"), {"observation": {"mean": [0] * 5, "std": [-1] * 5}}),
    ):
        with pytest.raises(error, match=message):
            adv.save_card(tmp_path, *given, **{"environment": "Any-v0"} | more)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("algorithm", "normalised"), [("DDPG", False), ("SAC", True)])
def test_off_policy_agents_of_sb3(algorithm, normalised, tmp_path):
    """Actions are scaled to [-2, 2], and the critics are their own, two or one."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    env = DummyVecEnv([lambda: gym.make("Pendulum-v1")])
    normal = VecNormalize(env) if normalised else None
    if normal is not None:
        normal.obs_rms.mean, normal.obs_rms.var = normal.obs_rms.mean + 0.3, normal.obs_rms.var * 4
    kwargs = {"net_arch": [6, 5]}
    model = getattr(sb3, algorithm)("MlpPolicy", env, buffer_size=1, device="cpu", seed=0, policy_kwargs=kwargs)
    victim = adv.from_sb3(model, vec_normalize=normal)
    card = adv.save_card(tmp_path / "a", victim, environment="Pendulum-v1")
    again = adv.save_card(tmp_path / "b", card, environment="Pendulum-v1")
    x, actions = torch.randn(7, 3) * 3, torch.rand(7, 1) * 4 - 2
    for other in (card, again):
        same(victim, other)
        assert torch.equal(victim.q(x, actions), other.q(x, actions))
        keys = torch.arange(7)
        assert torch.equal(victim.play(x, None, keys), other.play(x, None, keys))
    assert (card.scale is None) is (not normalised) and again.fingerprint() == card.fingerprint()
    assert len(card.card["network"]["critics"]) == (1 if algorithm == "DDPG" else 2)


@pytest.mark.parametrize(
    ("env", "critic"), [("CartPole-v1", "lstm of its own"), ("Pendulum-v1", "shared lstm"), ("CartPole-v1", "no lstm")]
)
def test_recurrent_agents_of_sb3_contrib(critic, env, tmp_path):
    """Both play the same episode, state by state, also where the card writes a shared LSTM twice."""
    contrib = pytest.importorskip("sb3_contrib")
    from stable_baselines3.common.vec_env import VecNormalize

    one = gym.make(env)
    own, shared = critic == "lstm of its own", critic == "shared lstm"
    kwargs = {"lstm_hidden_size": 6, "n_lstm_layers": 2, "net_arch": {"pi": [5], "vf": []}}
    kwargs |= {"enable_critic_lstm": own, "shared_lstm": shared}
    model = contrib.RecurrentPPO("MlpLstmPolicy", one, n_steps=8, batch_size=8, device="cpu", policy_kwargs=kwargs)
    normal = VecNormalize(model.get_env())
    normal.obs_rms.mean, normal.obs_rms.var = normal.obs_rms.mean + 0.3, normal.obs_rms.var * 4
    victim = adv.from_sb3(model, vec_normalize=normal)
    card = adv.save_card(tmp_path / "a", victim, environment=env)
    assert card.recurrent and torch.equal(card.scale, victim.scale)
    again = adv.save_card(tmp_path / "b", card, environment=env)
    states = [each.initial_state(5) for each in (victim, card, again)]
    for _ in range(3):
        x = torch.randn(5, *one.observation_space.shape)
        params, values, actions = (
            [getattr(each, what)(x, state) for each, state in zip((victim, card, again), states, strict=True)]
            for what in ("params", "value", "play")
        )
        for first, *others in (params, values, actions):
            assert all(torch.equal(first, other) for other in others)
        states = [each.advance(x, state) for each, state in zip((victim, card, again), states, strict=True)]
    assert again.fingerprint() == card.fingerprint()


class Counting(nn.Module):
    """A recurrent network that is no sequence: its state is the number of steps."""

    def forward(self, x, state=None):
        return x[:, :3] + (0 if state is None else state), 0 if state is None else state + 1


def test_other_recurrent_victims_are_refused(tmp_path):
    victim = adv.from_module(Counting(), OBS, DISCRETE, "q", initial_state=lambda rows: torch.zeros(rows, 1))
    with pytest.raises(VictimError, match="of a recurrent victim with one LSTM among them"):
        adv.save_card(tmp_path, victim, environment="Any-v0")
    assert not list(tmp_path.iterdir())


def test_a_victim_that_moved_on_is_written_as_it_is_now(tmp_path):
    net = mlp(3, 8)
    live, frozen = (adv.from_module(net, OBS, DISCRETE, "q", live=live) for live in (True, False))
    with torch.no_grad():
        net[0].bias += 1
    same(adv.from_module(net, OBS, DISCRETE, "q"), adv.save_card(tmp_path, live, environment="Any-v0"))
    same(frozen, adv.save_card(tmp_path, frozen, environment="Any-v0"))
    assert [*json.loads((tmp_path / "card.json").read_text())["network"]] == ["output", "policy"]


@pytest.mark.parametrize(
    "space", [spaces.Discrete(4), spaces.Dict(goal=spaces.Box(-1, 1, (2,)), room=spaces.Discrete(3))], ids=repr
)
def test_the_refusal_of_other_observations_says_what_takes_them(space, tmp_path):
    with pytest.raises(VictimError, match=r"sb3:FILE\.zip, is a reference that evaluate and report take"):
        adv.save_card(tmp_path / "card", agent_for(space), environment="X-v0")
    assert not (tmp_path / "card").exists()
