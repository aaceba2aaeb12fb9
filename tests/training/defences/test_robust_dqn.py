"""Losses of robust DQN: by hand, at eps = 0, above every perturbed loss, and in trainings of train_agent."""

from __future__ import annotations

import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

import adv_wrappers as adv
from adv_wrappers import Linf
from adv_wrappers.core.serialization import decode
from adv_wrappers.core.training_schedules import LinearSchedule
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.defences.radial import Radial, RadialDQN, equation_5, overlap
from adv_wrappers.training.defences.robust_dqn import RobustDQN
from adv_wrappers.training.defences.robust_ppo import make_robust
from adv_wrappers.training.defences.sa import SADQN, hinge
from adv_wrappers.training.sb3.conversion import live_victim
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN, error
from tests.every_case import every_case
from tests.toys import Brief
from tests.training.defences.dqn_toys import SMALL, lines, made, random_batch


def test_equation_5_by_hand():
    """Q = (2x, 1 - x, 0.25) at x = 0.5 with eps 0.1: (1, 0.5, 0.25) in [0.8, 1.2], [0.4, 0.6], [0.25, 0.25]."""
    bounds = lines([[2.0], [-1.0], [0.0]], [0.0, 1.0, 0.25])
    x = torch.full((3, 1), 0.5)
    batch = made(bounds, x, [0, 1, 2], [1.5, 0.3, 3.0])
    loss = equation_5(bounds, batch, x - 0.1, x + 0.1)
    own = [(1.5 - 0.8) ** 2 / 2, (0.6 - 0.3) ** 2 / 2, 3.0 - 0.25 - 0.5]  # the last one is beyond 1: on the line
    others = [0.1**2 / 2, 0.2**2 / 2, 0.2**2 / 2 + 0.1**2 / 2]
    assert loss.tolist() == pytest.approx([a + b for a, b in zip(own, others, strict=True)], rel=1e-5)


def test_overlap_by_hand():
    """The bound is that of the difference: Q_1 - Q_0 = 1 - 3x, in [-0.8, -0.2] around -0.5; bounds apart give 0.2."""
    bounds = lines([[2.0], [-1.0], [0.0]], [0.0, 1.0, 0.25])
    x = torch.full((3, 1), 0.5)
    batch = made(bounds, x, [0, 1, 2], [0.0, 0.0, 0.0])
    loss = overlap(bounds, batch, x - 0.1, x + 0.1)
    # action 0: d = (0, 0.5, 0.75), u = (0, -0.2, -0.55); action 1: d = (0, 0, 0.25), u = (., 0, -0.15); action 2: worst
    wanted = [0.5 * (-0.2 + 0.25) + 0.0, 0.25 * max(0.0, -0.15 + 0.125), 0.0]
    assert loss.tolist() == pytest.approx(wanted, abs=1e-6)
    wide = overlap(bounds, batch, x - 0.2, x + 0.2)
    assert wide.tolist() == pytest.approx([0.5 * (0.1 + 0.25) + 0.75 * 0.025, 0.25 * (-0.05 + 0.125), 0.0], abs=1e-6)


def test_the_distance_of_two_actions_is_a_number_in_overlap():
    """Its gradient is that of the bound alone, times the distance."""
    bounds = lines([[2.0], [-1.0]], [0.0, 1.0])
    x = torch.full((1, 1), 0.5)
    overlap(bounds, made(bounds, x, [0], [0.0]), x - 0.1, x + 0.1).sum().backward()
    assert bounds.net[0].bias.grad.tolist() == pytest.approx([-0.5, 0.5])


def test_the_hinge_by_hand():
    bounds = lines([[2.0], [-1.0], [0.0]], [0.0, 1.0, 0.25])
    x = torch.full((1, 1), 0.5)
    batch = made(bounds, x, [2], [0.0])  # the best action counts, not the one that was taken
    for eps, margin, wanted in ((0.1, 1.0, -0.2), (0.1, 0.1, -0.1), (0.2, 1.0, 0.1)):
        assert hinge(bounds, batch, x - eps, x + eps, margin).tolist() == pytest.approx([wanted], abs=1e-6)


def test_gradient_steps_come_near_the_hinge_of_a_line_and_never_above_its_bound():
    line = lines([[2.0], [-1.0], [0.0]], [0.0, 1.0, 0.25])
    straight = made(line, torch.full((1, 1), 0.5), [2], [0.0])
    for bounds, batch, exact in ((line, straight, True), (*random_batch(0), False)):
        bounds.boxes = lambda observations, share: (observations - share, observations + share)
        standard = error(batch.value, batch.target)
        most, found = (
            SADQN(1.0, 10.0, 0.2, form=form).losses(bounds, batch, 1.0) - standard for form in ("interval", "sgld")
        )
        if exact:  # the difference rises by 3, and the first point is a tenth of the radius off
            torch.testing.assert_close(found, most, rtol=0, atol=3 * 0.02 + 1e-6)
        before = batch.values.topk(2).values.diff(dim=1)[:, 0]
        assert (found <= most + 1e-9).all() and (found >= before - 1e-9).all() and (found > before + 0.01).any()


def test_without_a_box_the_losses_are_those_of_dqn():
    bounds, batch = random_batch(0)
    x = batch.observations
    torch.testing.assert_close(equation_5(bounds, batch, x, x), error(batch.value, batch.target))
    assert overlap(bounds, batch, x, x).abs().max() == 0
    gap = batch.values.topk(2).values.diff(dim=1)[:, 0]
    torch.testing.assert_close(hinge(bounds, batch, x, x, 0.3), gap.clamp(min=-0.3))


def test_no_perturbation_gives_a_larger_loss():
    bounds, batch = random_batch(0)
    x, eps = batch.observations, 0.1
    low, high = x - eps, x + eps
    most = {
        "equation-5": equation_5(bounds, batch, low, high),
        "overlap": overlap(bounds, batch, low, high),
        "hinge": hinge(bounds, batch, low, high, 1e9),
    }
    worse, rows = (batch.value[:, None] - batch.values).clamp(min=0), torch.arange(len(x))
    best, own = batch.values.argmax(1), torch.nn.functional.one_hot(batch.values.argmax(1), 3).bool()
    reached = dict.fromkeys(most, torch.full((len(x),), -torch.inf).double())
    for k in range(200):
        shift = torch.rand_like(x) * 2 - 1
        values = bounds.net(x + eps * (shift.sign() if k % 2 else shift))
        value = values[rows, batch.actions]
        found = {
            "equation-5": error(value, batch.target),
            "overlap": (worse * (values - value[:, None] + worse / 2).clamp(min=0)).sum(1),
            "hinge": (values - values[rows, best][:, None]).masked_fill(own, -torch.inf).amax(1),
        }
        reached = {name: torch.maximum(reached[name], loss) for name, loss in found.items()}
    for name, bound in most.items():
        assert (reached[name] <= bound + 1e-9).all(), name


@pytest.mark.parametrize("method", [RadialDQN(eps=1.0), RadialDQN(0.5, 1.0, "equation-5"), SADQN(eps=1.0)])
def test_before_the_schedule_begins_the_loss_is_that_of_dqn(method):
    bounds, batch = random_batch(0)
    bounds.boxes = lambda observations, share: (observations - share, observations + share)
    later = type(method)(**{**vars(method), "eps": LinearSchedule(0.0, 1.0, 0.25, 0.75)})
    standard = error(batch.value, batch.target)
    assert torch.equal(later.losses(bounds, batch, 0.25), standard)
    torch.testing.assert_close(later.losses(bounds, batch, 0.75), method.losses(bounds, batch, 0.0))
    assert (method.losses(bounds, batch, 0.0) - standard).abs().max() > 0.01
    off = SADQN(0.0) if isinstance(method, SADQN) else RadialDQN(kappa=1.0, form=method.form)
    assert torch.equal(off.losses(bounds, batch, 1.0), standard)


def test_kappa_weighs_the_two_losses():
    bounds, batch = random_batch(1)
    bounds.boxes = lambda observations, share: (observations - share, observations + share)
    box, standard = bounds.boxes(batch.observations, 0.2), error(batch.value, batch.target)
    for form, worst in (("overlap", overlap(bounds, batch, *box)), ("equation-5", equation_5(bounds, batch, *box))):
        found = RadialDQN(0.3, 0.2, form).losses(bounds, batch, 1.0)
        torch.testing.assert_close(found, 0.3 * standard + 0.7 * worst)
    found = SADQN(2.0, 0.5, 0.2).losses(bounds, batch, 1.0)
    torch.testing.assert_close(found, standard + 2 * hinge(bounds, batch, *box, 0.5))


def test_dqn_trains_to_a_card(tmp_path):
    hardened = train_agent("CartPole-v1", None, 0.05, 128, "dqn", robust="radial", out=tmp_path, **SMALL)
    assert [row["steps"] for row in hardened.record] == [64, 128]
    row = hardened.record[hardened.best]
    assert row["score"] == pytest.approx((row["clean"] + row["gwc"]) / 2) and hardened.threat is None
    card, x = adv.load_victim(f"card:{tmp_path}"), torch.randn(9, 4)
    assert card.kind == "q" and torch.equal(card.params(x), hardened.victim.params(x)) and card.scale is None
    within = card.card["training"]["robust"].pop("within")
    assert card.card["training"]["robust"] == RadialDQN().to_dict() and within["eps"] == 0.05


def test_the_robust_loss_is_what_is_learned_by():
    """With kappa 1 the weights are those of plain training, to the bit; with a loss of the box they are others."""
    brief = {**SMALL, "checks": 1, "episodes": 1}
    ends = [
        train_agent("CartPole-v1", None, 0.05, 64, "dqn", robust=robust, **brief).victim.fingerprint()
        for robust in (None, RadialDQN(1.0), RadialDQN(0.5, 1.0))
    ]
    assert ends[0] == ends[1] != ends[2]


def test_dqn_with_layer_normalisation(tmp_path):
    """Begins as a victim whose hidden layers are normalised, learns by the bounds of all of it, and ends as a card."""
    first = PrioritizedDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [16, 8]}, seed=0)
    first.learn(8)  # as new
    victim = adv.from_sb3(first)
    given = {"steps": 48, "algorithm": "dqn", "victim": victim, "robust": "sa", **SMALL, "checks": 1, "episodes": 1}
    given["settings"] = {"learning_starts": 16, "batch_size": 16}
    still = {**given, "settings": {**given["settings"], "learning_rate": 0.0}}
    x = torch.randn(32, 4)
    assert torch.equal(train_agent("CartPole-v1", None, 0.05, **still).victim.params(x), victim.params(x))
    hardened = train_agent("CartPole-v1", None, 0.05, **given, out=tmp_path)
    before, after = ([*each.net.parameters()] for each in (victim, hardened.victim))
    assert len(before) == len(after) == 10 and all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(adv.load_victim(f"card:{tmp_path}").params(x), hardened.victim.params(x))


class Dueling(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.value, self.advantage = nn.Linear(4, 16), nn.Linear(16, 1), nn.Linear(16, 2)

    def forward(self, x):
        x = torch.relu(self.body(x))
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)


class DuelingPolicy(DQNPolicy):
    """A policy of one's own, whose Q-network is no layers in a row."""

    def make_q_net(self):
        net = super().make_q_net()
        net.q_net = Dueling()
        return net


def test_a_dueling_network_learns_by_its_bounds():
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]), norm_obs=False)
    model = RobustDQN(DuelingPolicy, env, learning_starts=16, param_noise=False, seed=0)
    bounds = BoundedPolicy(model, live_victim(model, "mode"), Linf(0.05))
    make_robust(model, RadialDQN(0.5, 1.0), bounds)
    before = [weight.clone() for weight in model.q_net.parameters()]
    model.learn(48)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.q_net.parameters(), strict=True))
    x = torch.randn(8, 4)
    torch.testing.assert_close(bounds.net(x), model.q_net(x))


class Pictures(Brief):
    """Pictures of one of two sides."""

    observation_space = spaces.Box(0, 255, (2, 12, 12), np.uint8)
    action_space = spaces.Discrete(2)
    cut = False

    def seen(self):
        self.side = int(self.np_random.integers(2))
        picture = np.zeros((2, 12, 12), np.uint8)
        picture[..., 6 * self.side : 6 * self.side + 6] = 200
        return picture

    def act(self, action):
        return action == self.side


def test_dqn_on_images_ends_as_a_card_that_another_training_begins_from(tmp_path):
    extractor = {"convs": ((4, 4, 2), (4, 3, 1)), "features_dim": 16}
    settings = {
        "learning_starts": 64,
        "buffer_size": 2000,
        "batch_size": 32,
        "learning_rate": 3e-3,
        "target_update_interval": 64,
        "policy_kwargs": {"features_extractor_kwargs": extractor},
    }
    hardened = train_agent(
        Pictures,
        None,
        1,
        96,
        "dqn",
        num_envs=4,
        checks=1,
        episodes=1,
        robust="radial",
        settings=settings,
        out=tmp_path,
    )
    card = adv.load_victim(f"card:{tmp_path}")
    x = torch.randint(256, (5, 2, 12, 12)).float()
    assert card.kind == "q" and torch.equal(card.params(x), hardened.victim.params(x))
    again = train_agent(
        Pictures,
        None,
        1,
        64,
        "dqn",
        num_envs=4,
        checks=1,
        episodes=1,
        robust="sa",
        victim=card,
        settings={**settings, "learning_rate": 0.0, "policy_kwargs": {}},
    )
    assert torch.equal(again.victim.params(x), card.params(x))


@every_case(
    ("arguments", "error", "match"),
    [
        ({"env": "Pendulum-v1"}, SpaceError, "dqn is for discrete actions, and this environment has Box"),
        ({"env": "Pendulum-v1", "robust": RadialDQN(form="equation-5")}, SpaceError, "dqn is for discrete"),
        ({"victim": "zoo:cartpole-ppo"}, VictimError, "an agent of DQN to begin from, got one of kind 'logits'"),
        (
            {"robust": "equation-5"},
            ThreatError,
            "robust must be 'radial', 'sa', 'car' or 'smoothed', or a value such as RadialDQN",
        ),
        ({"robust": Radial()}, ThreatError, r"a value such as RadialDQN\(\) for dqn, got Radial"),
        (
            {"algorithm": "ppo", "robust": RadialDQN()},
            ThreatError,
            r"a value such as Radial\(\) for ppo, got",
        ),
        ({"eps": None}, ThreatError, "needs a budget"),
        ({"settings": {"policy_kwargs": {"activation_fn": nn.Mish}}}, VictimError, "Mish"),
        ({"settings": {"alpha": 2.0}}, ValueRangeError, "alpha"),
        ({"settings": {"n_stepps": 2}}, ThreatError, "DQN takes .*, not n_stepps"),
    ],
)
def test_what_cannot_work(arguments, error, match, tmp_path):
    given = {"env": "CartPole-v1", "eps": 0.05, "steps": 100, "algorithm": "dqn", "robust": "radial", **arguments}
    with pytest.raises(error, match=match):
        train_agent(**given, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@every_case(
    ("method", "given", "match"),
    [
        (RadialDQN, {"eps": LinearSchedule(0.0, 2.0)}, "eps"),
        (SADQN, {"weight": LinearSchedule(0.0, -1.0)}, "weight"),
    ],
)
def test_methods_check_their_numbers(method, given, match):
    with pytest.raises(ValueRangeError, match=match):
        method(**given)


def test_a_method_has_a_json_form():
    for method in (RadialDQN(0.5, LinearSchedule(0.0, 0.5), "equation-5"), SADQN(0.2, 0.1)):
        assert decode(json.loads(json.dumps(method.to_dict()))) == method


@pytest.mark.slow
def test_dqn_trains_under_attack():
    given = {**SMALL, "phase": 64, "adversary_settings": {"n_steps": 16, "n_epochs": 1}, "checks": 1}
    hardened = train_agent("CartPole-v1", "sa-rl", 0.05, 64, "dqn", robust="radial", **given)
    row = hardened.record[hardened.best]
    assert row["score"] == pytest.approx(np.mean([row["clean"], row["attacked"], row["gwc"]]))
    assert row["adversary_steps"] == row["steps"] == 64
