"""train_critic and scan_critics: Robust Sarsa as papers report it, the strongest of many critics, and of how many.

No setting of a critic is the strongest on all victims, and trainings of one setting differ: on Ant a single default
critic left 726 where the scan of its authors left 264. So the default is a small scan.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers.utils import RunningMeanStd
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.bounds.interval_bounds import interval
from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import Array, Info
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv
from adv_wrappers.evaluation.rows.report import Report, interval_text, number_text
from adv_wrappers.evaluation.statistics.confidence_intervals import footnotes
from adv_wrappers.networks.policy_layers import ActionValue, Normalize
from adv_wrappers.rendering.table import Tabular, TextTable
from adv_wrappers.training.folder import (
    TrainingFolder,
    check_chosen_folder,
    read_tensors,
    write_tensors,
)
from adv_wrappers.training.models.networks import check_vectors, descend, tanh_mlp
from adv_wrappers.training.models.trajectories import ContinuingEpisodes, Trajectories
from adv_wrappers.utils.checks import check_names
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.reading import decoding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    MOST_TRAINING_STEPS,
    EnvCount,
    EpisodeCount,
    Limits,
    Positive,
    Seed,
    Share,
    Width,
    check_fields,
    checked,
)
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.distributions import DeterministicFamily
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.saved_networks import Critic
from adv_wrappers.victims.victim import Victim, VictimAround

# ----------------------------------------------------------------------------------------------------------------------
# Robust Sarsa (Zhang et al. 2020, section 3.5): the transitions of a victim's own policy, and what is learned of them.
#
# Minimised is ``mean SmoothL1(Q(s, a) - (r + gamma Q(s', a'))) + weight mean max(Q_high - Q, Q - Q_low)^2``, where a'
# is the action that the victim truly takes at s', and Q_low and Q_high are bounds of Q over a box around its input.
# The box grows from nothing in the second third of the training (as released); the learning rate falls to zero in the
# last third. Rewards are divided by the running standard deviation of the discounted return.
#
# Departures from the released code, and choices between it and the paper:
#
# - The paper's box is around the action alone (``box="action"``); the released code's, the default here, is around the
#   normalised observation and the action.
# - The code passes from CROWN's bounds to interval bounds during the training; here they are interval bounds
#   throughout.
# - The code clips rewards at 10 after scaling; here they are not clipped.
# - With ``successor="shuffled"`` an episode that was cut short has no value after it, as released; else it has.
# ----------------------------------------------------------------------------------------------------------------------


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


class SarsaLearner:
    """Learns a critic: the network, its optimiser and the loss.

    Args:
        net: the critic, from normalised observations and actions ``[M, n + D]`` to values ``[M, 1]``.
        how: what is minimised.
        features: the number n of features of an observation.
    """

    def __init__(self, net: nn.Sequential, how: CriticSettings, features: int) -> None:
        self.net, self.how = net, how
        self.params = list(net.parameters())
        self.adam = torch.optim.Adam(self.params, lr=how.lr, eps=1e-5)
        first = self.params[0]
        self.around = torch.full((first.shape[1],), how.eps, dtype=first.dtype, device=first.device)
        if how.box == "action":
            self.around[:features] = 0.0

    def epoch(
        self, batch: SarsaBatch, count: int, draws: torch.Generator, done: float, part: float
    ) -> tuple[float, float]:
        """One pass through a batch; returns the mean TD loss and the mean robustness term.

        Args:
            batch: the batch.
            count: the number of minibatches.
            draws: the generator of the minibatches.
            done, part: the fraction of the whole training that lies before this epoch, and the epoch's own fraction.
        """
        x, after, reward, ended, over = batch
        order = torch.randperm(len(x), generator=draws).to(x.device)
        losses = []
        pieces = order.tensor_split(max(min(count, len(x) // 2), 1))
        for i, rows in enumerate(pieces):
            # the TD loss of this minibatch
            share = done + part * i / len(pieces)
            q = self.net(x[rows]).squeeze(-1)
            if self.how.successor == "shuffled":
                # the released code shuffles first: what stands next in the batch is a state of some other time
                target = reward[rows[:-1]] + self.how.gamma * q[1:].detach() * ~over[rows[:-1]]
                loss = smooth_l1_loss(q[:-1], target)
            else:
                with torch.no_grad():
                    then = self.net(after[rows]).squeeze(-1) * ~ended[rows]
                loss = smooth_l1_loss(q, reward[rows] + self.how.gamma * then)
            # the robustness term, whose box grows in the second third of the training, and the rate, which falls in the
            # last
            grown = min(max(3 * share - 1, 0.0), 1.0)
            penalty = self._penalty(x[rows], q, grown) if self.how.robust and grown > 0 else None
            total = loss if penalty is None else loss + self.how.weight * penalty
            rate = self.how.lr * max(0.0, min(1.0, 3 * (1 - share)))  # the last round may overshoot
            descend(self.adam, total, rate, "the critic diverged (loss {loss:g}): try a smaller lr")
            losses.append((loss.detach(), torch.zeros_like(loss) if penalty is None else penalty.detach()))
        td, smooth = (float(torch.stack(part).mean()) for part in zip(*losses, strict=True))
        return td, smooth

    def _penalty(self, x: Tensor, q: Tensor, grown: float) -> Tensor:
        around = grown * self.around
        low, high = (bound.squeeze(-1) for bound in interval(self.net, x - around, x + around))
        return torch.maximum(high - q, q - low).square().mean()

    @torch.no_grad()
    def width(self, x: Tensor) -> float:
        """Mean width of the interval bounds over the full box around ``x`` ``[M, n + D]``."""
        low, high = interval(self.net, x - self.around, x + self.around)
        return float((high - low).mean())

    def state_dict(self) -> dict[str, object]:
        """The states of the network and of its optimizer."""
        return {"network": self.net.state_dict(), "optimizer": self.adam.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what :meth:`state_dict` returned."""
        self.net.load_state_dict(state["network"])
        self.adam.load_state_dict(state["optimizer"])


# ----------------------------------------------------------------------------------------------------------------------
# Training of one Robust Sarsa critic of a victim's own policy (Zhang et al. 2020, section 3.5 and appendix D).
#
# As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs
# of 32 minibatches; two tanh layers of 64; no target network. Choices made here: a deterministic victim explores by
# Gaussian noise (SA-DDPG's code: an Ornstein-Uhlenbeck process of the same size), and observations are normalised as
# the victim normalises them, else by mean and deviation of the first round.
# ----------------------------------------------------------------------------------------------------------------------


ROUND = 2048
EPOCHS = 10
MINIBATCHES = 32
CLIP = 10.0


def _normaliser(victim: Victim) -> Normalize | None:
    """A copy of the victim's own normaliser of observations, one number a feature; None where it has none."""
    shape = victim.observation_space.shape
    for module in (m for net in victim.modules() for m in net.modules()):
        if isinstance(module, Normalize) and module.mean.shape in ((), (1,), shape):
            mean, std = (t.expand(shape).clone() for t in (module.mean, module.std))  # type: ignore[arg-type]
            return Normalize(mean, std, module.clip)
    return None


class CriticTraining:
    """One training with checked arguments; no environment is made before :meth:`run`.

    Args:
        victim, out: as for :func:`train_critic`. A recurrent victim plays with its hidden state; its critic sees the
            observation alone. Every round writes the critic so far and the state of the training to ``out``.
        environment: how the environment is made.
        how: how it is trained.

    Raises:
        AdvWrappersError: as :func:`train_critic` does.
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

    def run(self, progress: Callable[[str, int, int], None] | None = None, name: str = "robust-sarsa critic") -> Critic:
        """Train what is left to train, and return the critic; ``name`` is what ``progress`` is told of."""
        if self.finished is not None:
            return self.finished
        folder, how = self.folder, self.how
        self.environment.spaces_for(self.victim)  # which checks them
        with one_thread():
            # rounds of playing and learning, from where the record ends
            collector = TransitionCollector(self.environment, self.player, how.num_envs, (how.seed, len(folder.record)))
            with closing(collector.venv):
                self._begin()
                while self.steps < how.steps:
                    self._play_round(collector)
                    if progress is not None:
                        progress(name, min(self.steps, how.steps), how.steps)
                folder.finish()
        return self.critic(folder.record) if folder.out is None else Critic(str(folder.out))

    @property
    def steps(self) -> int:
        """Steps that were played and learned from."""
        return self.folder.record[-1]["steps"] if self.folder.record else 0

    def _network(self) -> nn.Sequential:
        """An MLP of tanh layers with orthogonal weights, as released."""
        draws = torch.Generator().manual_seed(self.how.seed)
        sizes = sum(self.sizes.values()), *self.how.hidden, 1
        return tanh_mlp(sizes, 1.0, draws, self.victim.dtype).to(self.victim.device)

    def _begin(self) -> None:
        """What changes from round to round: new, or from the last checkpoint."""
        self.learner = SarsaLearner(self._network(), self.how, self.sizes["features"])
        self.returns, self.normalise = ReturnStatistics(self.how.gamma), _normaliser(self.victim)
        checkpoint = self.folder.checkpoint
        if checkpoint is None:
            return
        # the learner, what it knows of returns, and the normaliser of its first round
        state = read_tensors(checkpoint)
        with decoding(f"{checkpoint} as the state of this critic"):
            self.learner.load_state_dict(state["learner"])
            self.returns = ReturnStatistics(self.how.gamma, state["moments"])
            if self.normalise is None:
                mean, std = (state[name].to(self.victim.device) for name in ("mean", "std"))
                self.normalise = Normalize(mean, std, CLIP)

    def _tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=self.victim.dtype, device=self.victim.device).flatten(0, 1)

    def _play_round(self, collector: TransitionCollector) -> None:
        """Play 2048 steps (in the last round, what is left) and learn from them."""
        rows = self.how.num_envs
        whole = self.how.steps
        before = self.steps
        length = math.ceil(min(ROUND, whole - before) / rows)
        taken = collector.collect(max(length, 2))
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
        entropy = np.random.SeedSequence((self.how.seed, len(self.folder.record)))
        draws = torch.Generator().manual_seed(int(entropy.generate_state(1)[0]))
        # ten passes, and a line of the record
        part, found = len(x) / whole / EPOCHS, []
        for epoch in range(EPOCHS):
            done = before / whole + epoch * part
            found.append(self.learner.epoch(batch, MINIBATCHES, draws, done, part))
        with torch.no_grad():
            q = float(self.learner.net(x).mean()) * self.returns.std
        self._add(
            {
                "steps": before + len(x),
                "loss": found[-1][0],
                "robustness": found[-1][1],
                "width": self.learner.width(x),
                "q": q,
                "return_std": self.returns.std,
                "episodes": len(taken.returns),
                "mean_return": float(np.mean(taken.returns)) if taken.returns else None,
            }
        )

    def critic(self, losses: Sequence[Info]) -> Critic:
        """The critic as it is now, its last layer scaled back to the units of the environment's rewards.

        Args:
            losses: the rows of its rounds.
        """
        assert self.normalise is not None
        net = copy.deepcopy(self.learner.net)
        with torch.no_grad():
            # it was trained on rewards in units of the spread of returns
            for param in net[-1].parameters():
                param.mul_(self.returns.std)
        rule = {"rule": "clip((o - mean) / std, -clip, clip)", "clip": self.normalise.clip}
        sections = {"network": self.sizes, "observation": rule, "losses": [*losses]}
        card = self.folder.card("robust-sarsa critic", **sections)
        return Critic.of(ActionValue(self.normalise, net), card)

    def _add(self, row: Info) -> None:
        """Keep the critic so far, and the state that an interrupted training goes on from."""
        checkpoint = self.folder.begin_checkpoint(row["steps"])
        if checkpoint is not None:
            assert self.normalise is not None
            state = {"mean": self.normalise.mean, "std": self.normalise.std, "moments": self.returns.moments}
            write_tensors(checkpoint, {"learner": self.learner.state_dict(), **state})
            self.critic([*self.folder.record, row]).save(checkpoint)
        self.folder.add(row, checkpoint, best=True)


# the 6 x 5 settings of the released scan (its box is around observation and action), of which papers report the minimum
CRITIC_GRID: tuple[CriticSetting, ...] = tuple(
    {"eps": eps, "weight": weight} for eps in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3) for weight in (0.1, 0.3, 1.0, 3.0, 10.0)
)
# The released default with both successors, and two of the paper's boxes. On a vanilla DDPG Hopper single trainings of
# one setting differ widely (mean returns from 670 to 2270 over three seeds): more critics and more steps help.
SMALL: tuple[CriticSetting, ...] = (
    {"eps": 0.02, "weight": 0.1}, {"eps": 0.02, "weight": 0.1, "successor": "shuffled"},
    {"eps": 0.1, "weight": 1.0, "box": "action"}, {"eps": 0.3, "weight": 3.0, "box": "action"},
)  # fmt: skip
_CHOOSE, _SCORE = 1, 2  # added to three times the seed, so that training, choosing and scoring share no episode
EPS = 0.1  # of the victim's own unit, where no budget is given
# what a scan varies: whoever gives one of these arguments asks for one critic
_ONE_SETTING = {"robust", "eps", "weight", "box", "successor"}


@dataclass(frozen=True)
class CriticScan(Tabular):
    """The result of :func:`scan_critics`.

    Attributes:
        settings, critics: the settings, and the critics trained with them, in the same order.
        best: index of the strongest critic.
        chosen: the report of all critics on the episodes that the strongest was chosen on: first the clean run, then
            one row a setting.
        scored: the report of the strongest alone, on other episodes, so that its mean is not the luckiest of many.
    """

    settings: tuple[CriticSetting, ...]
    critics: tuple[Critic, ...]
    best: int
    chosen: Report
    scored: Report

    @property
    def critic(self) -> Critic:
        """The strongest critic."""
        return self.critics[self.best]

    @property
    def protocol(self) -> str:
        """How the figure came about, in one sentence to print beside it."""
        chosen, scored = self.chosen.threats[1 + self.best], self.scored.threats[1]
        return (
            f"best of {len(self.critics)} critics by mean return over {self.chosen.episodes} episodes "
            f"({number_text(chosen['mean_return'])}); {number_text(scored['mean_return'])} over "
            f"{self.scored.episodes} others"
        )

    def save(self, folder: str | Path) -> Critic:
        """Write the strongest critic and the record of the scan to a folder; returns the saved critic.

        Raises:
            CardError, ValueRangeError: as :func:`check_scan_folder` does.
        """
        check_scan_folder(folder)
        return self.recorded().save(folder)

    def recorded(self) -> Critic:
        """The strongest critic, whose card has the record of the scan as ``scan``."""
        rows = zip(self.settings, self.chosen.threats[1:], strict=True)
        about = {
            "protocol": self.protocol,
            "threat": self.scored.threats[1].threat,
            "critics": [{"setting": dict(setting), "mean_return": row.mean_return} for setting, row in rows],
            "episode_seeds": list(self.chosen.episode_seeds),
        }
        return Critic.of(self.critic.net, {**self.critic.card, "scan": about})

    def table(self) -> TextTable:
        """The table, one row a critic, the strongest marked."""
        names = ["none (clean)", *(setting_text(setting) for setting in self.settings)]
        best = self.best + 1
        names[best] += " *"
        rows = [
            (name, number_text(row.mean_return), interval_text(row), number_text(row.median))
            for name, row in zip(names, self.chosen.threats, strict=True)
        ]
        columns, notes = ("critic", "return", "95% interval", "median"), tuple(footnotes(self.chosen.threats))
        return TextTable(self.protocol, columns, tuple(rows), notes, bold=(best,))


def setting_text(setting: CriticSetting) -> str:
    """A setting in one line of text."""
    return ",".join(f"{key}={value}" for key, value in setting.items()) or "default"


@checked
@holding
def train_critic(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget | None = None,
    settings: Sequence[CriticSetting] | None = None,
    episodes: EpisodeCount = 20,
    attack_steps: Positive = 10,
    seed: Seed = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **training: Any,
) -> Critic:
    """Train critics of a victim's policy for :class:`adv_wrappers.RobustSarsa`, and return the strongest.

    By default four critics are trained, with the settings of :data:`adv_wrappers.training.models.critic.SMALL`. Each is
    attacked with under ``within``, and the strongest is chosen by mean return on seeds that no training sees. That
    takes four trainings of ``steps`` (61,440 each by default), five times ``episodes`` episodes to choose the
    strongest, and twice ``episodes`` to score it on other seeds.

    Only one critic is trained, without attacks and so without a budget, where ``settings`` holds one setting, or where
    ``robust``, ``eps``, ``weight``, ``box`` or ``successor`` is given: ``train_critic(victim, env, settings=[{}])``
    takes the defaults of :class:`~adv_wrappers.training.models.critic.CriticSettings`.
    :func:`scan_critics` returns all critics and the reports.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        within: the budget of the attacks that critics are compared by, best the one that you will attack with; None
            takes a tenth of the victim's own unit, ``Linf(0.1, scale="victim")``.
        settings: dictionaries of arguments of :class:`CriticSettings`; ``CRITIC_GRID`` holds the papers' 30.
        episodes, attack_steps, seed, progress: as for :func:`scan_critics`.
        out: a folder for the strongest critic; each critic gets a folder in it, as do the reports ``chosen`` and
            ``scored``. The same call resumes an interrupted one.
        **training: arguments of :class:`CriticSettings`, such as ``steps``, for every critic.

    Returns:
        The critic. If several were trained, ``critic.card["scan"]`` holds the record of the choice.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained; :class:`ThreatError` for a victim without a
            unit of its own where no budget is given.

    >>> from adv_wrappers import train_critic
    >>> critic = train_critic("zoo:hopper-ppo", "Hopper-v5", settings=[{"eps": 0.1}], steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    if settings is None:
        settings = [{}] if _ONE_SETTING & {*training} else SMALL
    # one critic is trained without attacks, several are compared by them
    if len(settings) == 1:
        one = CriticSettings.of({"seed": seed}, training, *settings)
        return CriticTraining(victim, environment, one, out).run(progress)
    if out is not None:
        check_scan_folder(out)
    how: Any = {"within": within, "episodes": episodes, "attack_steps": attack_steps, "seed": seed, **training}
    scan = scan_critics(victim, environment, settings=settings, out=out, progress=progress, **how)
    return scan.recorded() if out is None else scan.save(out)


def default_budget(victim: Victim) -> Linf:
    """The budget of the attacks that critics are compared by, where none is given.

    Raises:
        VictimError: for a victim that Robust Sarsa is not defined for.
        ThreatError: for a victim without a unit of its own.
    """
    exploring_victim(victim, 1.0)
    if victim.scale is None:
        raise ThreatError(
            "the strongest of several critics is found by attacks, and this victim has no unit of its own to count "
            "their budget in: give within= (--eps), or settings=[{}] for one critic (--one)"
        )
    return Linf(EPS, scale="victim")


@checked
@holding
def scan_critics(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget | None = None,
    settings: Sequence[CriticSetting] = SMALL,
    episodes: EpisodeCount = 20,
    attack_steps: Positive = 10,
    seed: Seed = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **training: Any,
) -> CriticScan:
    """Train one critic for every setting, attack with each, and find the strongest.

    Args:
        victim, env, within, env_kwargs, make: as for :func:`train_critic`.
        settings: as for :func:`train_critic`.
        episodes: episodes that each critic is judged by. As many others score the strongest.
        attack_steps: gradient steps of the attack by which critics are compared.
        seed: seeds training, choosing and scoring, which share no episode.
        out: a folder for one folder a critic and for the reports ``chosen`` and ``scored``; the same call resumes an
            interrupted scan.
        progress: called as ``progress(setting or threat, done, total)``, where a single critic is trained with
            ``"robust-sarsa critic"``.
        **training: as for :func:`train_critic`; a setting's own take precedence.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work, those of every
            setting and of the attack included: :class:`ValueRangeError` for no settings or two equal ones,
            :class:`ThreatError` for anything else than a setting, :class:`BudgetError` for the budget.
    """
    settings = [*settings]
    check_critic_settings(settings, training)
    how = RobustSarsa(critic=lambda obs, act: act, steps=attack_steps)
    victim = load_victim(victim)
    # the attack that critics are compared by, without its critic yet
    attack = ThreatModel("observation", how, default_budget(victim) if within is None else within)
    needed_budget("a comparison of critics", None, None, attack.within)
    attack = attack.against(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    trainings = {}  # all are checked, their folders too, before the first begins
    for setting in settings:
        folder = None if out is None else Path(out) / _folder_name(setting)
        one = CriticSettings.of({"seed": 3 * seed}, training, setting)
        trainings[setting_text(setting)] = CriticTraining(victim, environment, one, folder)
    attack.check(*environment.spaces_for(victim))
    # the critics, and the attack with each of them
    critics = [training_run.run(progress, name) for name, training_run in trainings.items()]
    attacks = [replace(attack, how=RobustSarsa(victim, critic=critic, steps=how.steps)) for critic in critics]

    def evaluate_on(threats: list[ThreatModel], part: int, name: str) -> Report:
        return evaluate(
            victim,
            environment,
            threats,
            episodes=episodes,
            seed=3 * seed + part,
            progress=progress,
            out=None if out is None else Path(out) / name,
            resume=out is not None,
        )

    # the strongest is chosen on some episodes and scored on others
    chosen = evaluate_on(attacks, _CHOOSE, "chosen")
    means = [row.mean_return for row in chosen.threats[1:]]
    best = means.index(min(means))
    scored = evaluate_on([attacks[best]], _SCORE, "scored")
    return CriticScan(tuple(settings), tuple(critics), best, chosen, scored)


def check_scan_folder(folder: str | Path) -> None:
    """Raise unless the strongest of several critics may be written to this folder, as :func:`.check_chosen_folder`."""
    check_chosen_folder(Path(folder), "scan", "the strongest of several critics")


def check_critic_settings(settings: Sequence[CriticSetting], *training: CriticSetting) -> list[CriticSettings]:
    """The settings of :func:`scan_critics`, checked.

    Args:
        settings: the settings, one a critic.
        training: arguments that all of them share.

    Raises:
        ThreatError: for anything else than settings of a critic.
        ValueRangeError: for values out of range, no settings, and two equal ones.
    """
    found = [CriticSettings.of(*training, setting) for setting in settings]
    if not settings or len({_folder_name(setting) for setting in settings}) != len(settings):
        got = [setting_text(setting) for setting in settings]
        raise ValueRangeError(f"expected settings that differ, at least one, got {got}")
    return found


def _folder_name(setting: CriticSetting) -> str:
    return re.sub(r"[^\w.]+", "-", setting_text(setting)).strip("-")
