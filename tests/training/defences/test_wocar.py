"""WocaR: what its critic learns is the worst attack's value, its loss by hand, and trainings that go on."""

from __future__ import annotations

import pytest
import torch

from adv_wrappers import Linf
from adv_wrappers.errors import SpaceError, ThreatError

pytest.importorskip("stable_baselines3")

from torch.distributions import kl_divergence

from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.sa import SARegularizer
from adv_wrappers.training.defences.wocar import RolloutTransitions, Wocar, WorstAttackCritic
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


def with_critic(env, method, eps=0.2):
    model, policy, x = bounded(env, Linf(eps))
    torch.manual_seed(0)
    model.method_critic = policy.critic = method.make_critic(model)
    return model, policy, x


def test_the_worst_value_is_not_above_that_of_any_action_that_attacks_bring_about():
    """Discrete: of the actions that are found at points of the box; and some box has several."""
    _, policy, x = with_critic(Choose, Wocar())
    worst = Wocar().worst_value(policy, policy.critic, x, 1.0)
    values = policy.critic.of_all(x)
    several = 0
    played = distribution(policy, policy.observed(x)).logits.argmax(-1)
    for y in points(policy, x, 1.0):
        chosen = policy.net(y).argmax(-1)
        several += int((chosen != played).sum())
        assert (worst <= values.gather(1, chosen[:, None])[:, 0] + 1e-5).all()
    assert several > 5
    alone = Wocar().worst_value(policy, policy.critic, x, 0.0)
    torch.testing.assert_close(alone, values.gather(1, played[:, None])[:, 0])


def test_the_worst_value_in_a_box_of_actions_is_looked_for():
    """Within the bounds of the means, and lower than that of most means that attacks bring about."""
    method = Wocar(steps=20)
    _, policy, x = with_critic(Reach, method)
    low, high, mean = policy.mean_actions(x, 1.0)
    worst = method.worst_value(policy, policy.critic, x, 1.0)
    found = torch.stack([policy.critic(x, policy.net(y)[:, :2]) for y in points(policy, x, 1.0)])
    for y in points(policy, x, 1.0):
        action = policy.net(y)[:, :2]
        assert (low - 1e-4 <= action).all() and (action <= high + 1e-4).all()
    assert (worst <= policy.critic(x, mean) + 1e-6).all()
    assert (worst <= found.amin(0) + 1e-3).float().mean() > 0.9


def test_transitions_are_those_of_the_rollout():
    model, policy, _ = with_critic(Choose, Wocar())
    seen = []

    class Recorded(Wocar):
        name = "recorded-wocar"

        def learn_from_rollout(self, model, policy):
            seen.append((RolloutTransitions.of(model), model.rollout_buffer.episode_starts.copy()))
            super().learn_from_rollout(model, policy)

    model.method, model.bounds = Recorded(epochs=1), policy
    model.learn(32)  # two rollouts of 8 steps in 2 environments, whose episodes have 8 steps
    (first, starts), _ = seen
    x, after = (part.view(8, 2, 4) for part in (first.observations, first.next_observations))
    assert torch.equal(x[1:], after[:-1]) and first.ends.view(8, 2)[:-1].eq(torch.as_tensor(starts[1:])).all()
    assert first.ends.view(8, 2)[-1].tolist() == [1.0, 1.0] and first.rewards.shape == (16,)


def test_the_critic_learns_the_worst_attacks_value_of_a_known_game():
    """One state, two actions that pay 1 and 0; an attack can bring about both: r + gamma / (1 - gamma) * 0."""
    torch.manual_seed(0)
    critic = WorstAttackCritic(1, 2, True, 1e-2)
    x, actions = torch.zeros(64, 1), torch.arange(64) % 2
    rewards = 1.0 - actions
    for _ in range(40):
        with torch.no_grad():
            worst = critic.of_all(x).amin(1)
        critic.fit(x, actions, rewards + 0.5 * worst, 2, 16)  # gamma = 1/2
    assert critic.of_all(x[:1])[0].tolist() == pytest.approx([1.0, 0.0], abs=0.05)


@pytest.mark.parametrize("env", [Choose, Reach])
def test_the_loss_is_that_of_the_sum_of_advantages_and_the_weighed_divergence(env):
    still = SARegularizer(2.0, 1.0)
    method = Wocar(0.5, still, importance=False)
    _, policy, x = with_critic(env, method)
    batch = batch_of(policy, x, 0.2)
    worst = policy.critic(x, batch.actions)
    worst = ((worst - worst.mean()) / (worst.std() + 1e-8)).detach()
    advantages = batch.advantages + 0.5 * worst
    ratio = (batch.log_prob - batch.old_log_prob).exp()
    surrogate = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()
    divergence = policy.divergence(x, 1.0)
    torch.testing.assert_close(method.policy_loss(policy, batch, 1.0), surrogate + 2 * divergence.mean())
    assert torch.equal(batch.advantages + 0.5 * worst, advantages)  # the batch is as it was
    if env is Choose:
        values = policy.critic.of_all(x)
        spread = values.amax(1) - values.amin(1)
        weighed = Wocar(0.5, still).policy_loss(policy, batch, 1.0)
        torch.testing.assert_close(weighed, surrogate + 2 * (spread / spread.mean() * divergence).mean())
    clean = distribution(policy, policy.observed(x))
    for y in points(policy, x, 1.0, 4):
        assert (total(kl_divergence(clean, distribution(policy, y))) <= divergence + 1e-4).all()


def test_what_cannot_work_is_refused():
    with pytest.raises(SpaceError, match=r"robust='wocar' takes observations of float \[n\]"):
        train_agent(Pictures, eps=1, robust="wocar", **SMALL)
    with pytest.raises(ThreatError, match="robust must be 'radial', 'sa', 'car' or 'smoothed'"):
        train_agent("CartPole-v1", eps=0.05, robust="wocar", algorithm="dqn", steps=64)
