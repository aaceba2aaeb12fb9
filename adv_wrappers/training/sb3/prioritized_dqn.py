"""The DQN of Behzadan and Hsu (2019), Tables 2 and 5: prioritised replay and parameter-space noise.

Stable-Baselines3's DQN has neither, so :class:`PrioritizedDQN` adds the two to it.

The tables give: learning rate 1e-3, 50 000 transitions, the first learning step at 1000, a new target network every
500 steps, gamma 0.99, and an exploration rate that falls to 0.02 within the first tenth of the training. Their
names and figures are those of OpenAI Baselines' deepq, of Stable-Baselines 2 and of RL Baselines Zoo's entry for
CartPole. What they leave out is taken from there: an update of 32 transitions at every step, alpha 0.6, beta from
0.4 to 1, double Q-learning, gradients of at most 10, one hidden layer of 64 with layer normalisation. The rest is
as in Stable-Baselines3: a step at which the time ran out is not terminal, the first 1000 actions are random, and
the limit of 10 is that of the whole gradient. The networks are not dueling ones, as theirs are: a card holds layers
in a row.

Transitions are drawn as :class:`PrioritizedReplayBuffer` says, and the agent explores as :class:`ParameterNoise` does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples, Schedule
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from adv_wrappers.core.types import Array, Info
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import number

TABLE_5: Mapping[str, Any] = {
    "gamma": 0.99,
    "learning_rate": 1e-3,
    "buffer_size": 50_000,
    "learning_starts": 1000,
    "batch_size": 32,
    "train_freq": 1,
    "target_update_interval": 500,
    "exploration_fraction": 0.1,
    "exploration_final_eps": 0.02,
}

# ----------------------------------------------------------------------------------------------------------------------
# Prioritised experience replay (Schaul et al. 2016), the proportional variant, as a buffer of Stable-Baselines3.
#
# A transition is drawn with probability ``p ** alpha`` over their sum, ``p = |TD error| + 1e-6``, and weighs
# ``(N P) ** -beta`` over the largest such weight (section 3.4).
# ----------------------------------------------------------------------------------------------------------------------


SMALLEST = 1e-6  # added to an error, so that no transition is never drawn again


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws transitions in proportion to a priority, by Schaul et al. (2016).

    A new transition has the highest priority so far. :meth:`sample` draws evenly, as for every other algorithm;
    :meth:`draw` and :meth:`transitions` draw by priority.

    Args:
        given: arguments of SB3's ``ReplayBuffer``.
        alpha: exponent of the priorities: 0 for even draws, 1 for those in proportion to the errors.
        **settings: further arguments of SB3's ``ReplayBuffer``.

    Raises:
        ValueRangeError: for an ``alpha`` out of [0, 1], and for ``optimize_memory_usage``.
    """

    def __init__(self, *given: Any, alpha: float = 0.6, **settings: Any) -> None:
        number("alpha", alpha, 0, 1)
        if settings.get("optimize_memory_usage"):
            raise ValueRangeError(
                "PrioritizedReplayBuffer keeps both observations of a transition: optimize_memory_usage must be False"
            )
        super().__init__(*given, **settings)
        self.alpha = alpha
        self.priorities = np.zeros(self.buffer_size * self.n_envs)  # to the power of alpha
        self.highest = 1.0

    def add(self, obs: Array, next_obs: Array, action: Array, reward: Array, done: Array, infos: list[Info]) -> None:
        self.priorities[self.pos * self.n_envs :][: self.n_envs] = self.highest
        super().add(obs, next_obs, action, reward, done, infos)

    def draw(self, count: int, beta: float) -> tuple[Array, Array]:
        """Transitions by priority, one from each of ``count`` equal parts of their sum; evenly where ``alpha`` is 0.

        Args:
            count: how many.
            beta: exponent of the importance weights: 0 for none, 1 for the full correction.

        Returns:
            Indices ``[count]``, and weights ``[count]`` in (0, 1], float32.

        Raises:
            ValueRangeError: from an empty buffer.
        """
        stored = self.size() * self.n_envs
        if not stored:
            raise ValueRangeError("cannot draw from a replay buffer without transitions")
        # SB3 seeds NumPy's global generator, and its own buffers draw from it
        if not self.alpha:
            return np.random.randint(stored, size=count), np.ones(count, np.float32)
        # the sum of all priorities in `count` equal parts, and one transition from each
        priorities = self.priorities[:stored]
        ends = priorities.cumsum()
        masses = (np.arange(count) + np.random.random_sample(count)) * (ends[-1] / count)
        found = np.minimum(ends.searchsorted(masses, "right"), stored - 1)
        weights = (priorities[found] / priorities.min()) ** -beta
        return found, weights.astype(np.float32)

    def transitions(self, found: Array, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """The transitions at indices ``[n]`` that :meth:`draw` returned.

        Args:
            found: the indices.
            env: normalises observations and rewards.
        """
        at = found // self.n_envs, found % self.n_envs
        done = self.dones[at] * (1 - self.timeouts[at])
        parts = (
            self._normalize_obs(self.observations[at], env),
            self.actions[at],
            self._normalize_obs(self.next_observations[at], env),
            done[:, None],
            self._normalize_reward(self.rewards[at][:, None], env),
        )
        return ReplayBufferSamples(*(torch.as_tensor(part, device=self.device) for part in parts))

    def update(self, found: Array, errors: Array) -> None:
        """Set the priorities of transitions at indices ``[n]`` by their TD errors ``[n]``."""
        if not self.alpha:
            return
        values = (np.abs(errors) + SMALLEST) ** self.alpha
        self.priorities[found] = values
        self.highest = max(self.highest, float(values.max()))


# ----------------------------------------------------------------------------------------------------------------------
# Exploration by noise on the parameters of a Q-network (Plappert et al. 2018, Parameter Space Noise for Exploration).
#
# A copy of the Q-network with Gaussian noise on its linear layers acts for an episode. Noise is as strong as
# ``eps``-greedy exploration would be: its standard deviation grows by 1% while the divergence KL(softmax Q || softmax
# noisy Q) is below ``-log(1 - eps + eps / n)``, n actions, and shrinks by 1% while it is not (appendix C.1).
# ----------------------------------------------------------------------------------------------------------------------


_PACE = 1.01  # of the standard deviation, a step


class ParameterNoise(nn.Module):
    """Exploration by noise on the parameters of a Q-network; see the head of this file.

    Args:
        net: the Q-network, whose weights this follows.

    Attributes:
        acting: the noisy copy that acts, until the next :meth:`perturb`.
        std: standard deviation of the noise.
    """

    std: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.acting = copy.deepcopy(net)
        self.register_buffer("std", torch.tensor(0.01))
        self._others = net, copy.deepcopy(net)  # in a tuple, so that they are not saved along with the acting copy
        linear = [isinstance(layer, nn.Linear) for layer in net.modules() for _ in layer.parameters(recurse=False)]
        parts = (torch.full_like(weight, on) for weight, on in zip(net.parameters(), linear, strict=True))
        self._noisy = parameters_to_vector(parts).detach()  # 1 where there is noise, else 0
        self.perturb()

    def _perturb(self, copied: nn.Module) -> None:
        weights = parameters_to_vector(self._others[0].parameters())
        noise = torch.randn_like(weights)
        vector_to_parameters(weights.addcmul(noise, self._noisy * self.std), copied.parameters())

    @torch.no_grad()
    def perturb(self) -> None:
        """Give the acting copy the present weights and new noise."""
        self._perturb(self.acting)

    @torch.no_grad()
    def adapt(self, observations: Tensor, rate: float) -> None:
        """Compare a newly perturbed copy with the network, and correct the standard deviation.

        Args:
            observations: ``[B, *S]``.
            rate: the exploration rate that the noise is to correspond to, from 0 to 1.
        """
        self._perturb(self._others[1])
        plain, noisy = (functional.log_softmax(net(observations), 1) for net in self._others)
        divergence = float((plain.exp() * (plain - noisy)).sum(1).mean())
        allowed = -math.log(1 - rate + rate / plain.shape[1])
        self.std.mul_(_PACE if divergence < allowed else 1 / _PACE)

    @torch.no_grad()
    def act(self, observations: Tensor) -> Array:
        """Actions ``[B]`` of the acting copy."""
        found: Array = self.acting(observations).argmax(1).cpu().numpy()
        return found


class LayerNormQPolicy(DQNPolicy):
    """SB3's policy of DQN with layer normalisation before every activation; by default one hidden layer of 64.

    Noise of one standard deviation then means about as much in every layer (Plappert et al. 2018, section 3).
    """

    def __init__(
        self,
        observation_space: spaces.Space[object],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        optimizer_kwargs: dict[str, object] | None = None,
        **settings: Any,
    ) -> None:
        net_arch = [64] if net_arch is None else net_arch
        optimizer_kwargs = {"fused": True} if optimizer_kwargs is None else optimizer_kwargs  # a quarter of the time
        super().__init__(
            observation_space, action_space, lr_schedule, net_arch, optimizer_kwargs=optimizer_kwargs, **settings
        )

    def make_q_net(self) -> QNetwork:
        net = super().make_q_net()
        shape = net.features_dim, int(net.action_space.n), net.net_arch, net.activation_fn
        net.q_net = nn.Sequential(*create_mlp(*shape, post_linear_modules=[nn.LayerNorm])).to(self.device)
        return net


def error(value: Tensor, target: Tensor) -> Tensor:
    """The loss of values for their targets: the square, halved, up to a distance of 1, and from there on a line."""
    return functional.smooth_l1_loss(value, target, reduction="none")


@dataclass
class QBatch:
    """A minibatch of transitions, as losses of Q-networks see it.

    Attributes:
        observations: as the replay buffer gives them, ``[B, *S]``.
        values: the network's Q-values there, ``[B, A]``.
        actions: the actions that were taken, int64 ``[B]``.
        target: what the values of these actions should be, ``[B]``, without a gradient.
    """

    observations: Tensor
    values: Tensor
    actions: Tensor
    target: Tensor

    @property
    def value(self) -> Tensor:
        """Q-values of the actions that were taken, ``[B]``."""
        return self.values.gather(1, self.actions[:, None])[:, 0]


class PrioritizedDQN(DQN):
    """SB3's DQN with prioritised replay, double Q-learning and parameter-space noise; see the head of this file.

    Several environments share one noisy copy, which is drawn anew when an episode of any of them ends.

    Args:
        policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a policy of DQN's;
            ``"MlpPolicy"`` is :class:`LayerNormQPolicy` with one hidden layer of 64.
        env: the environment, or its id.
        alpha, beta: exponents of the priorities, and of the importance weights at the beginning.
        param_noise: whether to explore by parameter-space noise; otherwise eps-greedily.
        **settings: further arguments of SB3's DQN; their defaults are those of the paper, or of OpenAI Baselines where
            the paper has none (``TABLE_5``).

    Raises:
        ValueRangeError: for exponents out of [0, 1].

    >>> from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN
    >>> model = PrioritizedDQN("MlpPolicy", "CartPole-v1", learning_starts=10, seed=0).learn(20)
    >>> model.predict([0.0, 0.0, 0.0, 0.0], deterministic=True)[0].shape
    ()
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {**DQN.policy_aliases, "MlpPolicy": LayerNormQPolicy}
    replay_buffer: PrioritizedReplayBuffer

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        param_noise: bool = True,
        **settings: Any,
    ) -> None:
        number("beta", beta, 0, 1)
        self.beta, self.param_noise = beta, param_noise
        self.parameter_noise: ParameterNoise | None = None
        super().__init__(
            policy,
            env,
            replay_buffer_class=PrioritizedReplayBuffer,
            replay_buffer_kwargs={"alpha": alpha},
            **{**TABLE_5, **settings},
        )

    def _setup_model(self) -> None:
        super()._setup_model()
        self.parameter_noise = ParameterNoise(self.q_net) if self.param_noise else None

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[Array, Array]:
        # no random actions where it fills its buffer again
        noise, starts = self.parameter_noise, 0 if self._n_updates else learning_starts
        if noise is None or self.num_timesteps < starts:
            return super()._sample_action(starts, action_noise, n_envs)
        assert self._last_obs is not None
        observations: Any = self.policy.obs_to_tensor(self._last_obs)[0]
        noise.adapt(observations, self.exploration_rate)
        actions = noise.act(observations)
        return actions, actions

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: Array,
        new_obs: Any,
        reward: Array,
        dones: Array,
        infos: list[Info],
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        if self.parameter_noise is not None and dones.any():
            self.parameter_noise.perturb()

    def train(self, gradient_steps: int, batch_size: int = 32) -> None:
        self.policy.set_training_mode(True)
        optimizer, buffer = self.policy.optimizer, self.replay_buffer
        self._update_learning_rate(optimizer)
        beta = 1 - (1 - self.beta) * self._current_progress_remaining
        losses = []
        for _ in range(gradient_steps):
            found, importance = buffer.draw(batch_size, beta)
            data = buffer.transitions(found, self._vec_normalize_env)
            # double Q-learning: the online network chooses the next action, the target network values it
            with torch.no_grad():
                best = self.q_values(self.q_net, data.next_observations).argmax(1, keepdim=True)
                future = self.q_values(self.q_net_target, data.next_observations).gather(1, best)
                target = data.rewards + self.gamma * (1 - data.dones) * future
            # the loss of each transition by its importance weight
            values = self.q_values(self.q_net, data.observations)
            batch = QBatch(data.observations, values, data.actions[:, 0].long(), target[:, 0])
            loss = torch.as_tensor(importance, device=self.device).dot(self.losses(batch)) / batch_size
            # what zero_grad, backward and clip_grad_norm_ do, in half of their time
            weights = optimizer.param_groups[0]["params"]
            gradient = torch.autograd.grad(loss, weights)
            excess = float(parameters_to_vector(gradient).norm()) / self.max_grad_norm
            for weight, part in zip(weights, gradient, strict=True):
                weight.grad = part / excess if excess > 1 else part
            # new priorities from the errors
            optimizer.step()
            buffer.update(found, (batch.target - batch.value.detach()).cpu().numpy())
            losses.append(float(loss.detach()))
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def q_values(self, net: QNetwork, observations: Tensor) -> Tensor:
        """Values ``[B, A]`` that are learned, and that targets are made of: those of the network, or its target."""
        found: Tensor = net(observations)
        return found

    def losses(self, batch: QBatch) -> Tensor:
        """The loss of each transition of a minibatch, ``[B]``."""
        return error(batch.value, batch.target)

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        states, tensors = super()._get_torch_save_params()
        return [*states, *(["parameter_noise"] if self.param_noise else [])], tensors

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "parameter_noise"]
