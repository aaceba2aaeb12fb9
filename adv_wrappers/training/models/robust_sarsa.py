"""Robust Sarsa (Zhang et al. 2020, section 3.5 and appendix D): a critic of a victim's own policy, made smooth.

Minimised is ``mean SmoothL1(Q(s, a) - (r + gamma Q(s', a'))) + weight mean max(Q_high - Q, Q - Q_low)^2``, where a'
is the action that the victim truly takes at s', and Q_low and Q_high are bounds of Q over a box around its input.
As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs
of 32 minibatches; two tanh layers of 64; no target network. The box grows from nothing in the second third of the
training, and the learning rate falls to zero in the last third. Rewards are divided by the running standard deviation
of the discounted return.

Departures from the released code, and choices between it and the paper:

- The paper's box is around the action alone (``box="action"``); the released code's, the default here, is around the
  normalised observation and the action.
- The code passes from CROWN's bounds to interval bounds during the training; here they are interval bounds
  throughout.
- The code clips rewards at 10 after scaling; here they are not clipped.
- With ``successor="shuffled"`` an episode that was cut short has no value after it, as released; else it has.
- A deterministic victim explores by Gaussian noise; SA-DDPG's code has an Ornstein-Uhlenbeck process of the same size.
- Observations are normalised as the victim normalises them, else by mean and deviation of the first round.

The attack through such a critic is :mod:`adv_wrappers.attacks.robust_sarsa`; which of several critics is the strongest
is found by :mod:`adv_wrappers.training.models.critic_scan`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers.utils import RunningMeanStd
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core import rng
from adv_wrappers.core.types import Array, Info
from adv_wrappers.environments.environment import Environment
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.models.networks import Learner, check_vectors, descend, fit, tanh_mlp
from adv_wrappers.training.models.trajectories import ContinuingEpisodes, Trajectories
from adv_wrappers.utils.checks import check_names
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import MOST_TRAINING_STEPS, EnvCount, Limits, Share, Width, check_fields
from adv_wrappers.victims.auxiliary_networks import Critic
from adv_wrappers.victims.distributions import DeterministicFamily
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim, VictimAround

ROUND = 2048  # steps
EPOCHS = 10
MINIBATCHES = 32
CLIP = 10.0  # of normalised observations


CriticSetting = Mapping[str, object]  # arguments of :class:`CriticSettings`


@dataclass(frozen=True)
class CriticSettings:
    """How one critic is trained.

    Attributes:
        steps: environment steps of a critic, in rounds of 2048, summed over all environments.
        robust: the robustness term: bounds of Q over a box, or none.
        eps: final radius of the box, in units of normalised observations and of native actions.
        weight: weight of the robustness term.
        box: around observation and action (as released), or around the action alone (as in the paper).
        successor: Sarsa's own, or the released code's, a random state. That shuffles a batch before it takes the next
            entry as successor: its target is a random state's value.
        gamma: the discount.
        lr: the learning rate before it falls to zero in the last third.
        noise: a deterministic victim's exploration, as a fraction of half the range of its actions. It is the standard
            deviation of Gaussian noise.
        hidden: widths of the layers.
        seed: seeds all randomness.
        num_envs: environments side by side.
    """

    steps: Annotated[int, Limits(2, MOST_TRAINING_STEPS)] = 61_440  # 30 rounds
    robust: Literal["interval"] | None = "interval"
    eps: Annotated[float, Limits(0.0, 1e30)] = 0.02
    weight: Annotated[float, Limits(0.0, 1e30)] = 0.1
    box: Literal["both", "action"] = "both"
    successor: Literal["next", "shuffled"] = "next"
    gamma: Share = 0.99
    lr: Annotated[float, Limits(0.0, 1e3)] = 3e-4
    noise: Annotated[float, Limits(0.0, 1e30)] = 0.2
    hidden: Sequence[Width] = (64, 64)
    seed: Annotated[int, Limits(0, 2**60)] = 0
    num_envs: EnvCount = 8

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, *parts: CriticSetting) -> CriticSettings:
        """From dictionaries, of which later ones take precedence.

        Raises:
            ThreatError: for anything else than settings of a critic.
            ValueRangeError: for values out of range.
        """
        how = dict[str, Any]()
        for part in parts:
            how |= part if isinstance(part, Mapping) else {repr(part): None}
        check_names("a critic's setting", how, [each.name for each in fields(cls)])
        return cls(**how)


class _Noisy(DeterministicFamily):
    """A deterministic actor's action with Gaussian noise, clipped to the action box."""

    def __init__(self, std: Tensor, low: Tensor, high: Tensor) -> None:
        self.std = std
        self.low, self.high = low, high

    def sample(self, params: Tensor, key: Tensor) -> Tensor:
        noise = rng.normal(rng.fold(key, 0), tuple(params.shape[1:]), params.dtype)
        return (params + self.std * noise).clamp(self.low, self.high)


def exploring_victim(victim: Victim, noise: float) -> Victim:
    """A copy of the victim that draws every action: from its own policy if that is Gaussian, else by adding noise.

    Args:
        victim: the victim, with continuous actions.
        noise: standard deviation of a deterministic victim's noise, as a fraction of half the range of its actions
            (of 1 where they are unbounded).

    Raises:
        VictimError: unless actions and observations are ``Box`` of one dimension.
        ValueRangeError: for a deterministic victim without noise, of which the value of other actions cannot be
            learned.
    """
    check_vectors("a Robust Sarsa critic", victim)
    space, other = victim.action_space, copy.copy(victim)
    assert isinstance(space, spaces.Box)
    # Sarsa needs the value of other actions than the most likely ones, so actions are drawn
    if isinstance(other, VictimAround):  # which acts by the agent that it is around
        other.victim, other.select = exploring_victim(other.victim, noise), "sample"
        return other
    other.select = "sample"
    if victim.kind == "mean":
        if not noise > 0:
            raise ValueRangeError(f"a deterministic victim explores by noise above 0, got {noise!r}")
        low, high = (torch.as_tensor(b, dtype=victim.dtype, device=victim.device) for b in (space.low, space.high))
        half = (high - low) / 2
        other.family = _Noisy(noise * torch.where(half.isfinite(), half, torch.ones_like(half)), low, high)
    return other


@dataclass(frozen=True)
class Transitions(Trajectories):
    """Trajectories of a victim, in the types of its environment, and what Sarsa learns beside them.

    Attributes:
        next_act: the victim's action at the next observation; for an episode that was truncated, the action that it
            would have taken, for one that terminated, zeros.
        ended: bool ``[T, N]``, whether the episode terminated: no value follows.
        returns: returns of the episodes that were finished.
    """

    next_act: Array
    ended: Array
    returns: list[float]


class TransitionCollector:
    """Collects transitions of a victim in several environments; episodes continue from one call to the next.

    Args:
        make_env: makes one environment.
        victim: the policy that acts, made by :func:`exploring_victim`.
        rows: the number of environments.
        entropy: integers that all seeds are derived from.
    """

    def __init__(
        self, make_env: Callable[[], gym.Env[Any, Any]], victim: Victim, rows: int, entropy: tuple[int, ...]
    ) -> None:
        self.venv, self.runner = EpisodesVectorEnv(make_env, rows), PolicyRunner(victim, rows)
        self.episodes = ContinuingEpisodes(self.venv, [self.runner], np.random.default_rng(entropy))
        self.score = np.zeros(rows)

    def collect(self, steps: int) -> Transitions:
        """Play ``steps`` steps of every environment.

        Raises:
            ValueRangeError: for observations or rewards that are not finite.
        """
        played = list[tuple[Array, ...]]()
        next_act = list[Array]()
        returns = list[float]()
        # the action of a step is the next action of the step before, unless an episode ended between
        for step in self.episodes.play(steps, self.runner.act):
            _, act, _, reward, ended, over = step
            if played:
                going = ~played[-1][-1]
                next_act[-1][going] = act[going]
            played.append(step)
            next_act.append(np.zeros_like(act))
            self._write_next_actions(next_act[-1], over & ~ended)
            self.score += reward
            returns += self.score[over].tolist()
            self.score[over] = 0.0
        self._write_next_actions(next_act[-1], ~over)
        obs, act, after, reward, ended, over = map(np.stack, zip(*played, strict=True))
        return Transitions(obs, act, after, reward, over, np.stack(next_act), ended, returns)

    def _write_next_actions(self, into: Array, mask: Array) -> None:
        """Write the actions that the rows of ``mask`` would take now; ``act`` will draw the same."""
        rows = np.flatnonzero(mask)
        if len(rows):
            into[rows] = self.runner.peek(self.episodes.obs, rows)


class ReturnStatistics:
    """Running standard deviation of the discounted returns of N environments (Engstrom et al. 2020).

    Args:
        gamma: the discount.
        moments: count, mean and sum of squared deviations, float64 ``[3]``, to continue from; None to begin.
    """

    def __init__(self, gamma: float, moments: Tensor | None = None) -> None:
        self.gamma = gamma
        self.rms: Any = RunningMeanStd(epsilon=0.0)  # type: ignore[no-untyped-call]
        self.running: Any = 0.0
        if moments is not None:
            self.rms.count, self.rms.mean, squares = moments.tolist()
            self.rms.var = squares / self.rms.count

    def update(self, reward: Array, over: Array) -> None:
        """Update with rewards ``[T, N]``, and with ``over`` bool ``[T, N]`` where episodes were finished."""
        seen = []
        for r, o in zip(reward, over, strict=True):
            self.running = self.running * self.gamma + r
            seen.append(self.running)
            self.running = self.running * ~o
        self.rms.update(np.concatenate(seen))

    @property
    def moments(self) -> Tensor:
        """Count, mean and sum of squared deviations, float64 ``[3]``."""
        return torch.tensor([self.rms.count, self.rms.mean, self.rms.var * self.rms.count], dtype=torch.float64)

    @property
    def std(self) -> float:
        """Standard deviation so far; 1 while the returns are all one number."""
        std = float(np.sqrt(self.rms.var))
        return std if std > 1e-8 else 1.0


class SarsaBatch(NamedTuple):
    """What a critic learns from, a row a step.

    Attributes:
        x, after: inputs at the state and at its successor ``[M, n + D]``.
        reward: scaled rewards ``[M]``.
        ended, over: bool ``[M]``, as in :class:`Transitions`.
    """

    x: Tensor
    after: Tensor
    reward: Tensor
    ended: Tensor
    over: Tensor


def _normaliser(victim: Victim) -> Normalize | None:
    """A copy of the victim's own normaliser of observations, one number a feature; None where it has none."""
    shape = victim.observation_space.shape
    for module in (m for net in victim.modules() for m in net.modules()):
        if isinstance(module, Normalize) and module.mean.shape in ((), (1,), shape):
            mean, std = (t.expand(shape).clone() for t in (module.mean, module.std))  # type: ignore[arg-type]
            return Normalize(mean, std, module.clip)
    return None


class CriticTraining(Learner):
    """One training with checked arguments; no environment is made before :meth:`run`.

    Args:
        victim, out: as for :func:`adv_wrappers.train_critic`. A recurrent victim plays with its hidden state; its
            critic sees the observation alone. Every round writes the critic so far and its state to ``out``.
        environment: how the environment is made.
        how: how it is trained.

    Attributes:
        net: the network, from normalised observations and actions ``[M, n + D]`` to values ``[M, 1]``.

    Raises:
        AdvWrappersError: as :func:`adv_wrappers.train_critic` does.
    """

    def __init__(
        self, victim: Victim, environment: Environment, how: CriticSettings, out: str | Path | None = None
    ) -> None:
        self.victim = victim
        self.environment = environment
        self.how = how
        self.player = exploring_victim(victim, how.noise)
        asked = {**vars(how), "noise": how.noise if victim.kind == "mean" else None}
        self.folder = TrainingFolder.of(out, "critic", environment, victim, training=asked)
        self.finished = Critic(str(out)) if self.folder.finished else None
        features, actions = (int((space.shape or ())[0]) for space in (victim.observation_space, victim.action_space))
        self.sizes = {"features": features, "actions": actions}
        # an MLP of tanh layers with orthogonal weights, and what changes with it from round to round
        draws = torch.Generator().manual_seed(how.seed)
        layers = (features + actions, *how.hidden, 1)
        self.net = tanh_mlp(layers, 1.0, draws, victim.dtype).to(victim.device)
        self.adam = torch.optim.Adam(self.net.parameters(), lr=how.lr, eps=1e-5)
        self.returns = ReturnStatistics(how.gamma)
        self.normalise = _normaliser(victim)
        # the whole box: around observation and action, or the action alone
        self.around = torch.full((features + actions,), how.eps, dtype=victim.dtype, device=victim.device)
        if how.box == "action":
            self.around[:features] = 0.0
        self.collector: TransitionCollector

    def run(self, progress: Callable[[str, int, int], None] | None = None, name: str = "robust-sarsa critic") -> Critic:
        """Train what is left to train, and return the critic; ``name`` is what ``progress`` is told of."""
        if self.finished is not None:
            return self.finished
        folder, how = self.folder, self.how
        self.environment.spaces_for(self.victim)  # which checks them
        rows = how.num_envs
        rounds = math.ceil(how.steps / (rows * max(math.ceil(ROUND / rows), 2)))

        def tell(row: Info) -> None:
            if progress is not None:
                progress(name, min(row["steps"], how.steps), how.steps)

        # rounds of playing and learning, from where the record ends
        with one_thread():
            self.collector = TransitionCollector(self.environment, self.player, rows, (how.seed, len(folder.record)))
            with closing(self.collector.venv):
                fit(self, rounds, folder, tell)
        folder.finish()
        return self.critic(folder.record) if folder.out is None else Critic(str(folder.out))

    def round(self, number: int) -> Info:
        """Play 2048 steps (in the last round, what is left) and learn from them; returns what is recorded of it."""
        how = self.how
        before = self.folder.record[-1]["steps"] if number else 0
        length = math.ceil(min(ROUND, how.steps - before) / how.num_envs)
        taken = self.collector.collect(max(length, 2))
        self.returns.update(taken.reward, taken.over)
        # inputs are normalised by what the first round saw
        if self.normalise is None:
            seen = self._tensor(taken.obs)
            std = seen.std(0)
            self.normalise = Normalize(seen.mean(0), torch.where(std > 1e-6, std, torch.ones_like(std)), CLIP)
        # the batch: state and action, what followed, rewards in units of the spread of returns
        x, after = (
            torch.cat([self.normalise(self._tensor(obs)), self._tensor(act)], -1)
            for obs, act in ((taken.obs, taken.act), (taken.next_obs, taken.next_act))
        )
        ended, over = (torch.from_numpy(flags).flatten().to(x.device) for flags in (taken.ended, taken.over))
        batch = SarsaBatch(x, after, self._tensor(taken.reward / self.returns.std), ended, over)
        entropy = np.random.SeedSequence((how.seed, number)).generate_state(1)
        td, penalty = self.learn(batch, torch.Generator().manual_seed(int(entropy[0])), before)
        # and what is recorded: the losses of the last pass, the width of the bounds over the whole box, returns
        with torch.no_grad():
            low, high = interval(self.net, x - self.around, x + self.around)
            q = float(self.net(x).mean()) * self.returns.std
        return {
            "steps": before + len(x),
            "loss": td,
            "robustness": penalty,
            "width": float((high - low).mean()),
            "q": q,
            "return_std": self.returns.std,
            "episodes": len(taken.returns),
            "mean_return": float(np.mean(taken.returns)) if taken.returns else None,
        }

    def learn(self, batch: SarsaBatch, draws: torch.Generator, before: int) -> tuple[float, float]:
        """Ten passes through a batch; returns the mean TD loss and the mean robustness term of the last.

        Args:
            batch: the batch.
            draws: the generator of the minibatches.
            before: steps that were learned from before.
        """
        how = self.how
        count = len(batch.x)
        losses: list[Tensor] = []
        for epoch in range(EPOCHS):
            pieces = torch.randperm(count, generator=draws).tensor_split(max(min(MINIBATCHES, count // 2), 1))
            losses = []
            for i, order in enumerate(pieces):
                x, after, reward, ended, over = (part[order.to(part.device)] for part in batch)
                done = (before + count * (epoch + i / len(pieces)) / EPOCHS) / how.steps
                # the TD loss
                q = self.net(x).squeeze(-1)
                if how.successor == "shuffled":
                    # the released code shuffles first: what stands next in the batch is a state of some other time
                    td = smooth_l1_loss(q[:-1], reward[:-1] + how.gamma * q[1:].detach() * ~over[:-1])
                else:
                    with torch.no_grad():
                        then = self.net(after).squeeze(-1) * ~ended
                    td = smooth_l1_loss(q, reward + how.gamma * then)
                # the robustness term, whose box grows in the second third of the training
                penalty = torch.zeros_like(td)
                grown = min(max(3 * done - 1, 0.0), 1.0)
                if how.robust and grown > 0:
                    around = grown * self.around
                    low, high = (bound.squeeze(-1) for bound in interval(self.net, x - around, x + around))
                    penalty = torch.maximum(high - q, q - low).square().mean()
                # the rate falls in the last third, beyond which the last round may reach
                rate = how.lr * max(0.0, min(1.0, 3 * (1 - done)))
                failed = "the critic diverged (loss {loss:g}): try a smaller lr"
                descend(self.adam, td + how.weight * penalty, rate, failed)
                losses.append(torch.stack([td.detach(), penalty.detach()]))
        td_loss, smooth = torch.stack(losses).mean(0).tolist()
        return td_loss, smooth

    def _tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=self.victim.dtype, device=self.victim.device).flatten(0, 1)

    def state_dict(self) -> dict[str, object]:
        """The network, its optimizer, what is known of returns, and the normaliser of the first round."""
        assert self.normalise is not None
        known = {"mean": self.normalise.mean, "std": self.normalise.std, "moments": self.returns.moments}
        return {"learner": super().state_dict(), **known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        super().load_state_dict(state["learner"])
        self.returns = ReturnStatistics(self.how.gamma, state["moments"])
        if self.normalise is None:
            mean, std = (state[name].to(self.victim.device) for name in ("mean", "std"))
            self.normalise = Normalize(mean, std, CLIP)

    def save(self, folder: Path, rows: Sequence[Info]) -> None:
        """Write the critic so far, whose rounds are ``rows``."""
        self.critic(rows).save(folder)

    def critic(self, rows: Sequence[Info]) -> Critic:
        """The critic as it is now, its last layer scaled back to the units of the environment's rewards.

        Args:
            rows: of the record, one a round.
        """
        assert self.normalise is not None
        net = copy.deepcopy(self.net)
        with torch.no_grad():
            for param in net[-1].parameters():
                param.mul_(self.returns.std)
        rule = {"rule": "clip((o - mean) / std, -clip, clip)", "clip": self.normalise.clip}
        card = self.folder.card("robust-sarsa critic", network=self.sizes, observation=rule, losses=[*rows])
        return Critic.of(ActionValue(self.normalise, net), card)
