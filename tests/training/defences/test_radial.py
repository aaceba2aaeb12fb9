"""Robust training: the bounds of losses hold, nothing changes at eps 0, what is kept, and what cannot work."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.core.budgets.budget import L2, Linf, Valid
from adv_wrappers.core.budgets.frame_stack import Newest
from adv_wrappers.errors import BudgetError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.networks.tracing import layers_in_order

pytest.importorskip("stable_baselines3")

from torch import nn
from torch.distributions import kl_divergence
from torch.nn import functional

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core.training_schedules import LinearSchedule, SmoothSchedule
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.training.agent import AGENT_ALGORITHMS, algorithm_settings, make_agent, train_agent
from adv_wrappers.training.defences.base import langevin_ascent
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy, image_bounds
from adv_wrappers.training.defences.radial import Radial
from adv_wrappers.training.defences.robust_ppo import make_robust
from adv_wrappers.training.defences.sa import SARegularizer
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.sb3.conversion import live_victim, update_normaliser
from adv_wrappers.training.sb3.vec_env import AgentVecEnv
from tests.every_case import every_case
from tests.training.defences.toys import (
    SMALL,
    Choose,
    Pictures,
    Reach,
    batch_of,
    bounded,
    distribution,
    points,
    total,
)


@pytest.mark.parametrize("env", [Choose, Reach])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_log_probabilities_and_divergences_stay_within_their_bounds(env, share):
    _, policy, x = bounded(env, Linf(0.2, (1.0, 0.5, 2.0, 0.0)))
    clean = distribution(policy, policy.observed(x))
    actions = clean.sample()
    low, high = policy.log_probability(x, share, actions)
    most = policy.divergence(x, share)
    reached = torch.zeros(len(x))
    for y in points(policy, x, share):
        other = distribution(policy, y)
        found = total(other.log_prob(actions))
        assert (low - 1e-4 <= found).all() and (found <= high + 1e-4).all()
        reached = torch.maximum(reached, total(kl_divergence(clean, other)))
        torch.testing.assert_close(
            policy.divergence_at(y, policy.net(policy.observed(x))),
            total(kl_divergence(clean, other)),
            rtol=1e-3,
            atol=1e-5,
        )
    assert (reached <= most + 1e-4).all() and (reached > 1e-5).all()
    own = policy.net(policy.observed(x)).detach()
    step = langevin_ascent(lambda y: policy.divergence_at(y, own), *policy.boxes(x, share), steps=5, noise=1e-5)
    ascended = policy.divergence_at(step, own)
    assert (ascended <= most + 1e-4).all() and ascended.mean() > 0.5 * reached.mean()  # which is of 40 points


def test_boxes_are_in_the_units_of_the_environment_and_within_its_space():
    _, policy, x = bounded(Choose, Linf(0.5))
    true = policy.observed(x)
    low, high = policy.boxes(x, 1.0)
    assert low.min() >= -3 and high.max() <= 3
    inner = (true.abs() < 2.4).all(-1)
    torch.testing.assert_close((high - low)[inner], torch.full_like(low[inner], 1.0), rtol=1e-4, atol=1e-4)
    half_low, half_high = policy.boxes(x, 0.5)
    torch.testing.assert_close(half_high - half_low, (high - low) / 2)
    point_low, point_high = policy.boxes(x, 0.0)
    assert torch.equal(point_low, point_high) and torch.equal(point_low, true)


def test_a_budget_in_the_victims_unit_follows_the_normaliser():
    """As a training does: bounds are made before the normaliser has seen anything, and used after it has."""
    model, policy, _ = bounded(Reach, Linf(0.1, "victim"))
    normal = model.get_vec_normalize_env()
    for std in (np.array([0.06, 0.25, 1.5, 5.0]), np.array([2.0, 1.0, 0.5, 0.1])):
        normal.obs_rms.var = std**2
        update_normaliser(policy.victim, normal)
        low, high = policy.boxes(torch.zeros(3, 4), 1.0)  # in the middle of the space, which clips none
        torch.testing.assert_close((high - low) / 2, torch.as_tensor(0.1 * std, dtype=torch.float32).expand(3, 4))


@pytest.mark.parametrize("env", [Choose, Reach])
@pytest.mark.parametrize("clip", [0.2, None])
def test_the_worst_case_loss_is_above_the_loss_anywhere_in_the_box(env, clip):
    _, policy, x = bounded(env, Linf(0.1))
    batch = batch_of(policy, x, clip)
    worst = Radial(kappa=0.0, eps=1.0, form="ratio" if clip else "log").policy_loss(policy, batch, 1.0)
    losses = [
        batch.surrogate(total(distribution(policy, y).log_prob(batch.actions))).mean() for y in points(policy, x, 1.0)
    ]
    assert batch.surrogate(batch.log_prob).mean() < max(losses) <= worst + 1e-5
    mixed = Radial(kappa=0.25, eps=1.0, form="ratio" if clip else "log").policy_loss(policy, batch, 1.0)
    torch.testing.assert_close(mixed, 0.25 * batch.surrogate(batch.log_prob).mean() + 0.75 * worst)


@pytest.mark.parametrize("method", [Radial(0.0, 1e-7, "ratio"), SARegularizer(1.0, 1e-7), Radial(0.5, 0.0)])
def test_without_a_box_the_loss_and_its_gradient_are_the_algorithms_own(method):
    model, policy, x = bounded(Choose, Linf(0.1))
    batch = batch_of(policy, x, 0.2)
    parameters = [*model.policy.mlp_extractor.policy_net.parameters(), *model.policy.action_net.parameters()]
    own = batch.surrogate(batch.log_prob).mean()
    robust = method.policy_loss(policy, batch, 1.0)
    torch.testing.assert_close(robust, own, rtol=1e-4, atol=1e-5)
    pairs = (torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (own, robust))
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-4)


def test_the_logarithms_form_leaves_out_what_ppo_would_clip():
    _, policy, x = bounded(Choose, Linf(1e-6))
    batch = batch_of(policy, x, 0.1)
    ratio = torch.exp(batch.log_prob) * 0 + batch.clipped(batch.log_prob)
    assert 0 < ratio.sum() < len(x)
    loss = Radial(kappa=0.0, eps=1.0, form="log").policy_loss(policy, batch, 1.0)
    kept = ~batch.clipped(batch.log_prob)
    torch.testing.assert_close(loss, (-batch.advantages * batch.log_prob * kept).mean(), rtol=1e-3, atol=1e-4)


def test_the_overlap_form_bounds_how_far_less_probable_actions_come_up():
    _, policy, x = bounded(Choose, Linf(0.5))
    batch = batch_of(policy, x, 0.2)
    logits, own = policy.net(policy.observed(x)), batch.actions[:, None]
    margin = (logits.gather(1, own) - logits) / 2
    weight = (torch.softmax(logits, -1).gather(1, own) - torch.softmax(logits, -1)).clamp(min=0)

    def reached(y):
        other = policy.net(y)
        return (weight * (other - other.gather(1, own) + margin).clamp(min=0)).sum(1).mean()

    loss = Radial(kappa=0.0, eps=1.0, form="overlap").policy_loss(policy, batch, 1.0)
    assert 0 < max(reached(y) for y in points(policy, x, 1.0)) <= loss + 1e-6
    mixed = Radial(kappa=0.25, eps=1.0, form="overlap").policy_loss(policy, batch, 1.0)
    torch.testing.assert_close(mixed, 0.25 * batch.surrogate(batch.log_prob).mean() + 0.75 * loss)
    assert Radial(kappa=0.0, eps=1e-7, form="overlap").policy_loss(policy, batch, 1.0).abs() < 1e-5
    assert any(
        part.abs().sum() > 0
        for part in torch.autograd.grad(loss, [*policy.net.parameters()], allow_unused=True)
        if part is not None
    )


def test_imitation_adds_the_cross_entropy_to_the_first_victim_to_both_losses():
    _, policy, x = bounded(Choose, Linf(0.1))
    net = nn.Linear(policy.space.shape[0], 3)
    with torch.no_grad():
        net.weight.mul_(10)
    policy.first = adv.from_module(net, policy.space, spaces.Discrete(3), "logits")
    batch = batch_of(policy, x, 0.2)
    true = policy.observed(x)
    for sharpness, target in (
        (1.0, torch.softmax(net(true), -1)),
        (2.0, torch.softmax(2 * net(true), -1)),
        (1e4, functional.one_hot(net(true).argmax(-1), 3).float()),
    ):
        torch.testing.assert_close(policy.first_probabilities(x, sharpness), target, rtol=1e-3, atol=1e-4)

        def entropy(y, target=target):
            return -(target * torch.log_softmax(policy.net(y), -1)).sum(-1).mean()

        def loss(kappa, imitate, sharpness=sharpness):
            return Radial(kappa, 1.0, "ratio", imitate, sharpness).policy_loss(policy, batch, 1.0)

        torch.testing.assert_close(loss(1.0, 3.0) - loss(1.0, 0.0), 3 * entropy(true), rtol=1e-3, atol=1e-4)
        worst = loss(0.0, 1.0) - loss(0.0, 0.0)
        assert entropy(true) < max(entropy(y) for y in points(policy, x, 1.0)) <= worst + 1e-5
        mixed = 0.25 * (loss(1.0, 1.0) - loss(1.0, 0.0)) + 0.75 * worst
        torch.testing.assert_close(loss(0.25, 1.0) - loss(0.25, 0.0), mixed, rtol=1e-3, atol=1e-4)


def test_bounds_of_images_are_those_of_intervals_to_three_digits():
    _, policy, x = bounded(Pictures, Linf(4.0))
    net, spec = layers_in_order(policy.net), policy._pairs
    x = x.float().clamp(10, 245)  # where the grey scale does not cut the box
    for radius in (4.0, 0.01):
        low, high = image_bounds(net, x, radius, spec)
        exact_low, exact_high = interval(policy.net, x - radius, x + radius, spec)
        torch.testing.assert_close(high - low, exact_high - exact_low, rtol=0.02, atol=1e-6)
        torch.testing.assert_close(high, exact_high, rtol=0.02, atol=0.03)


def test_schedules():
    line = LinearSchedule(1.0, 0.5, 0.2, 0.6)
    assert [line(done) for done in (0, 0.2, 0.4, 0.6, 1)] == pytest.approx([1, 1, 0.75, 0.5, 0.5])
    assert [LinearSchedule(0, 1, 0.5, 0.5)(done) for done in (0.49, 0.5)] == [0.0, 1.0]
    curve = SmoothSchedule(0.0, 2.0, end=0.5)
    values = np.array([curve(done) for done in np.linspace(0, 1, 201)])
    assert values[0] == 0 and (values[100:] == 2).all() and (np.diff(values[:101]) > 0).all()
    slopes = np.diff(values[:101])
    assert (np.diff(slopes) > -1e-9).all() and values[10] < 0.01  # slow at first, no kink down
    for wrong in ({"begin": -0.1}, {"begin": 0.5, "end": 0.4}, {"end": 1.5}):
        with pytest.raises(ValueRangeError, match=r"(begin|end) must be a finite number"):
            LinearSchedule(0.0, 1.0, **wrong)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [("ppo", {}), ("a2c", {}), ("ppo", {"target_kl": 1e-5}), ("ppo", {"clip_range_vf": 0.01})],
)
def test_updates_are_those_of_stable_baselines3_where_the_loss_is(algorithm, given):
    """kappa = 1 is the algorithm itself: the same weights after the same steps, and the same count of updates."""
    ends = []
    for robust in (True, False):
        vector = gym.vector.SyncVectorEnv([Choose] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
        settings = algorithm_settings(AGENT_ALGORITHMS[algorithm], 2, {"n_steps": 16, **given}, None)
        model = make_agent(
            vector,
            Training(96, algorithm, 2, 1, 1, 0, settings, "cpu"),
            None,
            None,
            method=Radial() if robust else None,
        )
        if robust:
            policy = BoundedPolicy(model, live_victim(model, "mode"), Linf(0.1))
            make_robust(model, Radial(kappa=1.0), policy)
        model.learn(96)
        ends.append((torch.cat([p.detach().flatten() for p in model.policy.parameters()]), model._n_updates))
    torch.testing.assert_close(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


@pytest.mark.parametrize(
    ("env", "algorithm", "robust"),
    [
        ("CartPole-v1", "ppo", "radial"), (Reach, "a2c", "sa"),
        pytest.param("CartPole-v1", "ppo", SARegularizer(form="sgld", steps=2, eps=1.0), marks=pytest.mark.slow),
        pytest.param(Reach, "a2c", Radial(0.5, 1.0, "ratio"), marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_train_agent_trains_robustly(env, algorithm, robust):
    small = SMALL if algorithm == "ppo" else {**SMALL, "settings": {"n_steps": 16}}
    hardened = train_agent(env, eps=0.02, scale="victim", robust=robust, algorithm=algorithm, **small)
    discrete = env == "CartPole-v1"
    assert all(("gwc" in row) == discrete == (row["attacked"] is None) for row in hardened.record)
    assert hardened.threat is None if discrete else hardened.threat.how == adv.MaxDiff(None)
    assert all(0 <= row["gwc_acr"] <= 1 and row["gwc"] >= 8 for row in hardened.record if discrete)
    row = hardened.record[hardened.best]
    assert row["score"] == pytest.approx((row["clean"] + row["gwc" if discrete else "attacked"]) / 2)
    assert f"mean of clean and {'greedy worst-case' if discrete else 'attacked'} return" in hardened.protocol


def test_an_agent_on_images_trains_from_scratch_and_from_a_victim(tmp_path):
    small = {**SMALL, "steps": 32, "checks": 1, "episodes": 1, "settings": {"n_steps": 8, "n_epochs": 1}}
    first = train_agent(Pictures, None, rewards="clipped", out=tmp_path, **small)
    victim = adv.load_victim(f"card:{tmp_path}")
    obs = torch.as_tensor(np.stack([Pictures().seen_at(i) for i in range(4)]))
    torch.testing.assert_close(victim.params(obs), first.victim.params(obs))
    rate = {**small, "settings": {**small["settings"], "learning_rate": 0.0}}
    same = train_agent(Pictures, eps=1, victim=victim, robust=Radial(eps=1.0, imitate=0.5), **rate)
    torch.testing.assert_close(same.victim.params(obs), victim.params(obs))
    torch.testing.assert_close(same.victim.value(obs), victim.value(obs))
    longer = {**small, "steps": 64, "settings": {"n_steps": 8}}
    moved = train_agent(Pictures, eps=1, victim=victim, robust=Radial(eps=1.0), algorithm="a2c", **longer)
    assert not torch.allclose(moved.victim.params(obs), victim.params(obs))


def test_a_policy_may_see_observations_as_they_are():
    victim = train_agent(Reach, None, observations="raw", **{**SMALL, "steps": 64}).victim
    assert victim.scale is None and not any(isinstance(layer, Normalize) for layer in layers_in_order(victim.net))


def test_clipped_rewards_are_signs_and_returns_stay_as_they_are():
    vector = gym.vector.SyncVectorEnv([Pictures] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    env = AgentVecEnv(vector, clip_rewards=True)
    env.reset()
    for t in range(8):
        _, rewards, _, infos = env.step(np.array([2, 0]) if t else np.array([1, 1]))
        assert rewards.tolist() == ([1.0, -1.0] if t else [-1.0, -1.0])
    assert [info["episode"]["r"] for info in infos] == [7 * 5.0 - 3.0, -24.0]


class Strange(Pictures):
    """Pictures whose channels come last."""

    observation_space = spaces.Box(0, 255, (36, 36, 2), np.uint8)


def _train(env="CartPole-v1", **arguments):
    return train_agent(env, **{"eps": 0.1, "robust": "radial", **arguments}, **SMALL)


def test_what_cannot_work_is_refused_before_anything_is_trained():
    with pytest.raises(ThreatError, match="robust must be 'radial', 'sa', 'wocar' or 'smoothed', or a value such as"):
        _train(robust="trades")
    with pytest.raises(ThreatError, match="robust='radial' needs a budget"):
        _train(eps=None)
    with pytest.raises(BudgetError, match="bounds are taken over boxes, Linf or Newest"):
        _train(eps=None, within=L2(0.1))
    with pytest.raises(BudgetError, match="bounds are taken over boxes"):
        _train(eps=None, within=Valid())
    with pytest.raises(BudgetError, match="scale has 2 numbers"):
        _train(scale=(1.0, 1.0))
    with pytest.raises(VictimError, match=r"bounds have no rule for .*Mish"):
        train_agent(
            "CartPole-v1",
            eps=0.1,
            robust="radial",
            **{**SMALL, "settings": {"n_steps": 16, "policy_kwargs": {"activation_fn": nn.Mish}}},
        )
    with pytest.raises(ThreatError, match="imitate needs a victim"):
        _train(robust=Radial(imitate=1.0))
    with pytest.raises(ThreatError, match="imitate is for discrete actions"):
        _train(env=Reach, robust=Radial(imitate=1.0))
    with pytest.raises(ThreatError, match="form='overlap' is for discrete actions"):
        _train(env=Reach, robust=Radial(form="overlap"))
    with pytest.raises(SpaceError, match=r"or images of uint8 \[C, H, W\]"):
        _train(env=Strange, adversary=None, robust=None)
    with pytest.raises(ValueRangeError, match="must be a finite number"):
        Radial(kappa=LinearSchedule(0.0, 2.0))
    with pytest.raises(ValueRangeError, match=r"imitate goes with form='ratio' or 'log', got 1\.0 with 'overlap'"):
        Radial(form="overlap", imitate=1.0)


def test_a_victim_on_images_needs_a_network_that_the_policy_can_hold():
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 36 * 36, 3))
    victim = adv.from_module(net, Pictures.observation_space, Pictures.action_space, "logits")
    with pytest.raises(VictimError, match="expected pictures over 255, convolutions without padding"):
        train_agent(Pictures, eps=1, victim=victim, robust="radial", **SMALL)


@every_case("budget", [Linf(1 / 255), Newest(Linf(0.9)), Linf(0.1, scale=5.0)])
def test_a_budget_below_one_grey_level_is_refused_with_and_without_a_robust_loss(budget):
    for adversary, robust in ((None, "radial"), (None, "sa"), ("min-best", None)):
        with pytest.raises(
            BudgetError, match=r"below one grey level on an integer space.*\(1 is 1/255 of the range of uint8\)"
        ):
            train_agent(Pictures, adversary, within=budget, robust=robust, **SMALL)


def test_the_budget_of_the_paper_is_one_grey_level():
    """Appendix B of Oikarinen et al. 2020 has 1/255 for pixels between 0 and 1."""
    assert bounded(Pictures, Linf(1.0))[1].budget == Linf(1.0)


def test_budgets_of_new_frames_are_boxes_of_every_frame():
    _, policy, _ = bounded(Pictures, Newest(Linf(1.5)))
    assert policy.budget == Linf(1.5)


def test_methods_are_values():
    method = Radial(LinearSchedule(1.0, 0.5), 1.0)
    assert method.to_dict() == {
        "type": "radial",
        "kappa": {"type": "linear-schedule", "first": 1.0, "last": 0.5},
        "eps": 1.0,
    }
    assert dataclasses.replace(method, kappa=0.5).kappa == 0.5
