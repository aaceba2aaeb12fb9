"""WocaR-PPO: robust training by an estimate of the worst attack (Liang et al. 2022), ``train_agent(robust="wocar")``.

A second critic learns what an agent returns at least under attacks, without anybody attacking. Which actions
``A_adv(s)`` an attack can bring about at a state is bounded from the policy's network, and the worst-attack Bellman
operator (section 4.1) looks ahead at the worst of them::

    Q(s, a) = r + gamma * min over a' in A_adv(s') of Q(s', a')

The policy then maximises that value beside its own advantage, so that it prefers actions after which attacks can do
little, and is regularised as in SA-PPO, more where the choice of an action matters (sections 4.2 and 4.3)::

    L = L_PPO(A + critic_weight * A_worst) + weight * mean of w(s) * max over y of KL(pi(s), pi(y))

Choices where the paper leaves one open, or where this differs from it or from the authors' code:

- ``A_adv``: with actions in a Box the box of the policy's means, by CROWN (the code has interval bounds, of a budget of
  0.01 at all times); the worst action in it is found by ``steps`` steps of signs from the mean. Of discrete actions
  those that no bound excludes from being the most probable, since that is how agents are deployed.
- The look ahead is computed once a rollout, with the critic as it is then, instead of by a target network that moves a
  thousandth at each step: within a rollout the policy does not change either.
- ``A_worst`` is ``Q(s, a)``, normalised in the minibatch as advantages are, as in the code. Most of it is what the
  state is worth, which changes no expectation of the gradient and keeps what the action is worth small beside ``A``.
  With that taken off before it was normalised, a Hopper agent first learned and then lost everything (2 million steps,
  one seed).
- ``w(s)`` is the largest ``Q(s, a)`` less the smallest, over all actions or over eight random ones of a Box, divided by
  its mean in the minibatch. The code of PPO leaves it out, and so does ``importance=False``.
- At the end of an episode that ran out of time the algorithm adds the state's value to the reward, and so it is here.
- ``critic_weight`` rises to 0.8 over the whole training, ``weight`` is that of the code's Hopper (0.1, of twice the
  divergence).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.core.training_schedules import LinearSchedule, ScheduledWeight, at
from adv_wrappers.training.defences.base import PolicyBatch, RobustPolicyMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.defences.sa import SARegularizer
from adv_wrappers.utils.validation import AboveZero, Positive

_SAMPLED = 8  # actions of a Box among which the importance of a state is looked for


class RolloutTransitions(NamedTuple):
    """What a rollout saw, ``N`` steps: observations in the units of its buffer."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    ends: Tensor
    next_observations: Tensor

    @staticmethod
    def of(model: OnPolicyAlgorithm) -> RolloutTransitions:
        """Those of the rollout that a model has just made, before its buffer is drawn from."""
        buffer, last = model.rollout_buffer, model._last_obs
        assert isinstance(buffer, RolloutBuffer) and last is not None and model._last_episode_starts is not None
        seen = torch.as_tensor(buffer.observations).float()
        # the next observation of the last step is the one that the next rollout begins with
        after = torch.cat([seen[1:], torch.as_tensor(last)[None].float()])
        begins = torch.as_tensor(buffer.episode_starts).float()
        ends = torch.cat([begins[1:], torch.as_tensor(model._last_episode_starts)[None].float()])
        actions, rewards = torch.as_tensor(buffer.actions), torch.as_tensor(buffer.rewards)
        return RolloutTransitions(*(part.flatten(0, 1) for part in (seen, actions, rewards, ends, after)))


class WorstAttackCritic(nn.Module):
    """An estimate of the return under the worst attack, of discrete actions ``[B, A]``, or of given ones ``[B]``.

    Args:
        observations: how many numbers an observation has.
        actions: how many numbers an action has, or how many there are.
        discrete: which of the two.
        rate: of Adam.
    """

    def __init__(self, observations: int, actions: int, discrete: bool, rate: float) -> None:
        super().__init__()
        self.discrete = discrete
        inputs, outputs = (observations, actions) if discrete else (observations + actions, 1)
        self.net = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
        self.optimizer = torch.optim.Adam(self.parameters(), rate)

    def forward(self, x: Tensor, actions: Tensor) -> Tensor:
        """Of actions ``[B]`` (int64), or ``[B, D]``, at observations ``[B, n]``: ``[B]``."""
        if self.discrete:
            return self.of_all(x).gather(1, actions.view(-1, 1))[:, 0]
        found: Tensor = self.net(torch.cat([x, actions], -1))[..., 0]
        return found

    def of_all(self, x: Tensor) -> Tensor:
        """Of every discrete action, ``[B, A]``."""
        found: Tensor = self.net(x)
        return found

    def fit(self, x: Tensor, actions: Tensor, targets: Tensor, epochs: int, batch: int) -> None:
        """Move towards targets ``[N]`` of actions at observations."""
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(batch):
                loss = functional.mse_loss(self(x[rows], actions[rows]), targets[rows])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


@dataclass(frozen=True)
class Wocar(RobustPolicyMethod):
    """WocaR-PPO (Liang et al. 2022); see the head of this file.

    Args:
        critic_weight: of the worst-attack advantage, a number or a schedule.
        regularizer: the divergence that is added, its weight, and the share of the budget that is used.
        importance: whether states at which actions differ more weigh more in it.
        epochs: how often the critic sees every rollout.
        rate: its learning rate.
        steps: of the search for the worst action in a Box.
    """

    name: ClassVar[str] = "wocar"
    loss: ClassVar[str] = "wocar"
    images: ClassVar[bool] = False
    critic_weight: ScheduledWeight = field(default=LinearSchedule(0.0, 0.8))
    regularizer: SARegularizer = field(default=SARegularizer(0.2, LinearSchedule(0.0, 1.0, end=0.75), form="sgld"))
    importance: bool = True
    epochs: Positive = 10
    rate: AboveZero = 4e-4
    steps: Positive = 10

    def make_critic(self, model: OnPolicyAlgorithm) -> WorstAttackCritic:
        inputs, actions = model.observation_space, model.action_space
        assert inputs.shape is not None
        discrete = isinstance(actions, spaces.Discrete)
        count = int(actions.n) if isinstance(actions, spaces.Discrete) else int(np.prod(actions.shape or ()))
        return WorstAttackCritic(inputs.shape[0], count, discrete, self.rate)

    def learn_from_rollout(self, model: OnPolicyAlgorithm, bounds: BoundedPolicy) -> None:
        critic = bounds.critic
        assert isinstance(critic, WorstAttackCritic)
        seen, share = RolloutTransitions.of(model), at(self.regularizer.eps, 1 - model._current_progress_remaining)
        # the worst-attack Bellman operator (section 4.1): r + gamma min of Q(s', a') over what attacks can bring about
        worst = self.worst_value(bounds, critic, seen.next_observations, share)
        targets = seen.rewards + model.gamma * (1 - seen.ends) * worst
        actions = seen.actions.long() if bounds.count else seen.actions
        critic.fit(seen.observations, actions, targets, self.epochs, getattr(model, "batch_size", 128))

    def worst_value(self, bounds: BoundedPolicy, critic: WorstAttackCritic, x: Tensor, share: float) -> Tensor:
        """The least value of an action that an attack can bring about at observations of a rollout, ``[N]``."""
        # discrete actions: the least value of those that no bound excludes
        if bounds.count:
            with torch.no_grad():
                possible = bounds.possible_actions(x, share)
                return critic.of_all(x).masked_fill(~possible, torch.inf).amin(1)
        # a box of actions: descend the critic from the mean, by steps of signs that stay in the box
        with torch.no_grad():
            low, high, action = bounds.mean_actions(x, share)
            least, step = critic(x, action), (high - low) / self.steps
        for _ in range(self.steps):
            action = action.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(critic(x, action).sum(), action)
            with torch.no_grad():
                action = torch.clamp(action - step * gradient.sign(), low, high)
                least = torch.minimum(least, critic(x, action))
        found: Tensor = least
        return found

    def policy_loss(self, bounds: BoundedPolicy, batch: PolicyBatch, done: float) -> Tensor:
        critic = bounds.critic
        assert isinstance(critic, WorstAttackCritic)
        # sections 4.1 and 4.2: the advantage, and beside it that of the worst attack
        with torch.no_grad():
            worst, spread = self._advantages(bounds, critic, batch)
        both = replace(batch, advantages=batch.advantages + at(self.critic_weight, done) * worst)
        standard = both.surrogate(batch.log_prob).mean()
        weight, share = at(self.regularizer.weight, done), at(self.regularizer.eps, done)
        if weight == 0 or share == 0:
            return standard
        # section 4.3: the largest divergence in the box, weighted by how much the choice of an action matters
        divergence = self.regularizer.largest(bounds, batch, done)
        if self.importance:
            divergence = divergence * spread / spread.mean().clamp(min=1e-8)
        loss: Tensor = standard + weight * divergence.mean()
        return loss

    def _advantages(
        self, bounds: BoundedPolicy, critic: WorstAttackCritic, batch: PolicyBatch
    ) -> tuple[Tensor, Tensor]:
        """Normalised values under the worst attack, and how far actions differ in value, ``[B]`` each."""
        x = batch.observations.float()
        # the values of all actions, or of some random ones of the box
        if bounds.count:
            each = critic.of_all(x)
        else:
            low, high = bounds.action_box
            drawn = low + (high - low) * torch.rand(len(x), _SAMPLED, len(low))
            each = critic(x.repeat_interleave(_SAMPLED, 0), drawn.flatten(0, 1)).view(-1, _SAMPLED)
        worst = critic(x, batch.actions)
        return (worst - worst.mean()) / (worst.std() + 1e-8), each.amax(1) - each.amin(1)
