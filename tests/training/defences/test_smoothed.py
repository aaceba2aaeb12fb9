"""Training for randomized smoothing: the noise is where it should be, the losses by hand, and smoothed results."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers import L2, Linf
from adv_wrappers.errors import BudgetError, SpaceError

pytest.importorskip("stable_baselines3")

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.robust_ppo import make_robust
from adv_wrappers.training.defences.smoothed import DenoisingExtractor, SmoothedDQN, SmoothedPolicy, smoothed
from adv_wrappers.training.sb3.prioritized_dqn import QBatch, error
from adv_wrappers.victims.smoothed import Smoothed
from tests.training.defences import dqn_toys
from tests.training.defences.toys import SMALL, Pictures, Reach, batch_of, bounded


def test_the_denoiser_begins_as_the_identity():
    for count in (4, 40):
        denoiser, x = DenoisingExtractor(adv.load_victim("zoo:cartpole-dqn").observation_space), torch.randn(9, count)
        if count == 4:
            torch.testing.assert_close(denoiser(x), x)
    assert sum(p.requires_grad for p in denoiser.parameters()) == 4


def test_the_loss_of_dqn_by_hand():
    """The loss of DQN, and for the denoiser alone the error at the noisy observation and the reconstruction."""
    denoiser = DenoisingExtractor(adv.load_victim("zoo:cartpole-dqn").observation_space)
    head = torch.nn.Linear(4, 2)

    class Net(torch.nn.Module):
        features_extractor, q_net = denoiser, head

    x, target = torch.randn(64, 4), torch.randn(64)
    net, actions = Net(), torch.randint(2, (64,))
    unit = torch.tensor([0.1, 0.2, 0.3, 0.0])
    bounds = SimpleNamespace(model=SimpleNamespace(q_net=net), radius=lambda x: unit)
    method = SmoothedDQN(sigma=0.5, reconstruction=2.0)
    batch = QBatch(x, method.q_values(net, x), actions, target)
    torch.testing.assert_close(batch.values, head(x))
    torch.manual_seed(3)
    found = method.losses(bounds, batch, 1.0)
    torch.manual_seed(3)
    noise = torch.randn(64, 4)
    value = head(x + 0.5 * unit * noise).gather(1, actions[:, None])[:, 0]
    own = error(value, target) + 2 * (0.5 * noise[:, :3]).square().sum(1) / 4
    torch.testing.assert_close(found, error(batch.value, target) + own, rtol=1e-4, atol=1e-5)
    mine = torch.autograd.grad(found.sum(), [head.weight, denoiser.net[0].weight], retain_graph=True)
    plain = torch.autograd.grad(error(batch.value, target).sum(), head.weight, retain_graph=True)[0]
    torch.testing.assert_close(mine[0], plain)
    assert mine[1].abs().sum() > 0 and mine[1].isfinite().all()


def test_rollouts_see_noise_of_the_radius_and_the_normaliser_does_not():
    model, policy, _ = bounded(Reach, Linf(0.5, (1.0, 0.5, 0.1, 0.0)))
    method = SmoothedPolicy(sigma=1.0)
    make_robust(model, method, policy)
    env = policy.normal.venv
    env.seed(0)
    env.reset()
    off = []
    for _ in range(400):
        seen = env.step(np.zeros((2, 2), np.float32))[0]
        off.append(seen - env.true_observations[-1])
    spread = np.concatenate(off).std(0)
    assert spread == pytest.approx([0.5, 0.25, 0.05, 0.0], rel=0.08)
    batch = batch_of(policy, torch.randn(8, 4), 0.2)
    assert torch.equal(method.policy_loss(policy, batch, 1.0), batch.surrogate(batch.log_prob).mean())


@pytest.mark.parametrize(("algorithm", "scale"), [("ppo", (1.0, 0.5, 1.0, 0.5)), ("dqn", None)])
def test_the_result_is_the_smoothed_agent(algorithm, scale, tmp_path):
    small = SMALL if algorithm == "ppo" else {"steps": 64, **dqn_toys.SMALL}
    hardened = train_agent(
        "CartPole-v1", eps=0.2, scale=scale, algorithm=algorithm, robust="smoothed", out=tmp_path, **small
    )
    victim = hardened.victim
    vote = 1 if algorithm == "ppo" else 15
    assert isinstance(victim, Smoothed) and (victim.sigma, victim.vote) == (0.2, vote)
    assert "gwc" not in hardened.record[0]
    inner = adv.load_victim(f"card:{tmp_path}")
    assert torch.equal(inner.params(torch.ones(3, 4)), victim.victim.params(torch.ones(3, 4)))
    if scale is None:
        assert victim.ref == f"smoothed:card:{tmp_path}?sigma=0.2" + ("" if vote == 1 else "&vote=15")
        assert adv.load_victim(victim.ref).fingerprint() == victim.fingerprint()
    report = adv.evaluate(victim, "CartPole-v1", episodes=2)
    assert report.threats[0]["mean_return"] >= 8


def test_dqn_begins_as_a_victim_behind_the_identity():
    victim = adv.load_victim("zoo:cartpole-dqn")
    still = {"learning_starts": 16, "learning_rate": 0.0}
    given = {"num_envs": 4, "checks": 1, "episodes": 2, "settings": still}
    hardened = train_agent("CartPole-v1", None, 0.1, 64, "dqn", victim=victim, robust="smoothed", **given)
    x = torch.randn(32, 4)
    torch.testing.assert_close(hardened.victim.victim.params(x), victim.params(x), rtol=1e-4, atol=1e-3)


def test_what_cannot_work_is_refused():
    with pytest.raises(SpaceError, match=r"robust='smoothed' takes observations of float \[n\]"):
        train_agent(Pictures, eps=1, robust="smoothed", **SMALL)
    with pytest.raises(BudgetError, match="standard deviation of the noise"):
        smoothed(adv.load_victim("zoo:cartpole-dqn"), L2(0.1))
