"""Training of one Robust Sarsa critic of a victim's own policy (Zhang et al. 2020, section 3.5 and appendix D).

As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs of
32 minibatches; two tanh layers of 64; no target network. Choices made here: a deterministic victim explores by Gaussian
noise (SA-DDPG's code: an Ornstein-Uhlenbeck process of the same size), and observations are normalised as the victim
normalises them, else by mean and deviation of the first round.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from adv_wrappers.core.types import Info
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.evaluation.episodes import MOST_ENVS
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.networks.layers import ActionValue, Normalize
from adv_wrappers.training.robust_sarsa_data_and_updates import (
    ReturnStatistics,
    SarsaLearner,
    SarsaSettings,
    TransitionCollector,
    Transitions,
    critic_network,
    exploring_victim,
)
from adv_wrappers.training.training_folder import (
    MOST_TRAINING_STEPS,
    TrainingFolder,
    described_victim,
    read_tensors,
    warn_of_unknown,
    write_tensors,
)
from adv_wrappers.utils.checks import integer, number
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.saved_networks import Critic
from adv_wrappers.victims.victim import Victim

ROUND, EPOCHS, MINIBATCHES, CLIP = 2048, 10, 32, 10.0


class CriticTrainingState:
    """Everything that changes from round to round of one training.

    Args:
        victim: the victim whose policy is valued.
        player: the victim as it explores.
        make_env: makes one environment.
        card: the card that the critic will have.
        settings: the loss and the optimiser's settings.
        folder: what is kept, and what an interrupted training goes on from.

    Raises:
        CardError: for the state of another critic.
    """

    def __init__(
        self,
        victim: Victim,
        player: Victim,
        make_env: Callable[[], gym.Env[Any, Any]],
        card: dict[str, Any],
        settings: SarsaSettings,
        folder: TrainingFolder,
    ) -> None:
        self.victim, self.card, self.settings, self.how = victim, card, settings, card["training"]
        self.folder, self.losses = folder, folder.record
        self.steps: int = self.losses[-1]["steps"] if self.losses else 0
        seed, rows = self.how["seed"], self.how["num_envs"]
        self.collector = TransitionCollector(make_env, player, rows, (seed, len(self.losses)))
        features, actions = (int((s.shape or ())[0]) for s in (victim.observation_space, victim.action_space))
        self.sizes = {"features": features, "actions": actions}
        hidden = tuple(self.how["hidden"])
        net = critic_network(features + actions, hidden, seed, victim.device, victim.dtype)
        self.learner, self.returns = SarsaLearner(net, settings, features), ReturnStatistics(settings.gamma)
        self.normalise = _normaliser(victim)
        if folder.checkpoint is not None:
            state = read_tensors(folder.checkpoint)
            try:
                self.learner.load_state_dict(state["learner"])
                self.returns = ReturnStatistics(settings.gamma, state["moments"])
                if self.normalise is None:
                    self.normalise = Normalize(state["mean"].to(victim.device), state["std"].to(victim.device), CLIP)
            except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
                self.collector.venv.close()
                raise CardError(f"{folder.checkpoint} holds the state of another critic: {error}") from error

    def _tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=self.victim.dtype, device=self.victim.device).flatten(0, 1)

    def play_round(self) -> None:
        """Play 2048 steps (in the last round, what is left) and learn from them."""
        rows, whole = self.collector.rows, self.how["steps"]
        length = math.ceil(min(ROUND, whole - self.steps) / rows)
        taken = self.collector.collect(max(length, 2))
        self.returns.update(taken.reward, taken.over)
        if self.normalise is None:
            seen = self._tensor(taken.obs)
            std = seen.std(0)
            self.normalise = Normalize(seen.mean(0), torch.where(std > 1e-6, std, torch.ones_like(std)), CLIP)
        x, after = (
            torch.cat([self.normalise(self._tensor(obs)), self._tensor(act)], -1)
            for obs, act in ((taken.obs, taken.act), (taken.next_obs, taken.next_act))
        )
        ended, over = (torch.from_numpy(flags).flatten().to(x.device) for flags in (taken.ended, taken.over))
        reward = self._tensor(taken.reward / self.returns.std)
        entropy = np.random.SeedSequence((self.how["seed"], len(self.losses)))
        draws = torch.Generator().manual_seed(int(entropy.generate_state(1)[0]))
        part, found = reward.numel() / whole / EPOCHS, []
        for epoch in range(EPOCHS):
            done = self.steps / whole + epoch * part
            found.append(self.learner.epoch(x, reward, after, ended, over, MINIBATCHES, draws, done, part))
        self.steps += reward.numel()
        self._add(self._row(taken, x, found[-1]))

    def _row(self, taken: Transitions, x: Tensor, last: tuple[float, float]) -> Info:
        with torch.no_grad():
            q = float(self.learner.net(x).mean()) * self.returns.std
        return {
            "steps": self.steps,
            "loss": last[0],
            "robustness": last[1],
            "width": self.learner.width(x),
            "q": q,
            "return_std": self.returns.std,
            "episodes": len(taken.returns),
            "mean_return": float(np.mean(taken.returns)) if taken.returns else None,
        }

    def critic(self, losses: Sequence[Info]) -> Critic:
        """The critic as it is now, its last layer scaled back to the units of the environment's rewards.

        Args:
            losses: the rows of its rounds.
        """
        assert self.normalise is not None
        net = critic_network(
            sum(self.sizes.values()), tuple(self.how["hidden"]), 0, self.victim.device, self.victim.dtype
        )
        net.load_state_dict(self.learner.net.state_dict())
        with torch.no_grad():
            for param in net[-1].parameters():
                param.mul_(self.returns.std)
        about = {
            "network": {"kind": "critic-mlp", "hidden": self.how["hidden"], "activation": "tanh", **self.sizes},
            "observation": {"rule": "clip((o - mean) / std, -clip, clip)", "clip": self.normalise.clip},
            "losses": [*losses],
        }
        return Critic.of(ActionValue(self.normalise, net), {**self.card, **about})

    def _add(self, row: Info) -> None:
        """Keep the critic so far, and the state that an interrupted training goes on from."""
        checkpoint = self.folder.begin_checkpoint(self.steps)
        if checkpoint is not None:
            assert self.normalise is not None
            state = {"mean": self.normalise.mean, "std": self.normalise.std, "moments": self.returns.moments}
            write_tensors(checkpoint, {"learner": self.learner.state_dict(), **state})
            self.critic([*self.losses, row]).save(checkpoint)
        self.folder.add(row, checkpoint, best=True)


def _normaliser(victim: Victim) -> Normalize | None:
    """A copy of the victim's own normaliser of observations, one number a feature; None where it has none."""
    shape = victim.observation_space.shape
    for module in (m for net in victim.modules() for m in net.modules()):
        if isinstance(module, Normalize) and module.mean.shape in ((), (1,), shape):
            mean, std = (t.expand(shape).clone() for t in (module.mean, module.std))  # type: ignore[arg-type]
            return Normalize(mean, std, module.clip)
    return None


_NOT_SETTINGS = ("victim", "env", "env_kwargs", "make", "out", "progress")
_CHOICES = {"robust": ("interval", "sample", None), "box": ("both", "action"), "successor": ("next", "shuffled")}
_NUMBERS = {"eps": 1e30, "weight": 1e30, "lr": 1e3, "gamma": 1.0, "noise": 1e30}  # and their tops
_WHOLE = {"steps": (2, MOST_TRAINING_STEPS), "seed": (0, 2**60), "num_envs": (1, MOST_ENVS)}  # the least and the most
_WIDEST = 2**16  # units of a layer


@holding
def train_one_critic(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    steps: int = 30 * ROUND,
    robust: str | None = "interval",
    eps: float = 0.02,
    weight: float = 0.1,
    box: str = "both",
    successor: str = "next",
    gamma: float = 0.99,
    lr: float = 3e-4,
    noise: float = 0.2,
    hidden: Sequence[int] = (64, 64),
    seed: int = 0,
    num_envs: int = 8,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Critic:
    """Train one critic of a victim's policy, with one setting, for :class:`adv_wrappers.RobustSarsa`.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``. A recurrent victim plays
            with its hidden state; its critic sees the observation alone.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        steps: environment steps, summed over all environments, in rounds of 2048.
        robust: the robustness term: ``"interval"`` bounds of Q over the box, its largest change at four random corners
            of the box (``"sample"``), or None.
        eps: final radius of the box, in units of normalised observations and of native actions.
        weight: weight of the robustness term.
        box: ``"both"`` for a box around observation and action (as released), ``"action"`` for one around the action
            alone (as in the paper).
        successor: ``"next"`` for Sarsa's own, or ``"shuffled"`` for the released code's, which shuffles a batch before
            it takes the next entry as successor: its target is a random state's value.
        gamma: the discount.
        lr: the learning rate before it falls to zero in the last third.
        noise: standard deviation of a deterministic victim's exploration, as a fraction of half the range of its
            actions.
        hidden: widths of the layers.
        seed: seeds all randomness.
        num_envs: the number of environments side by side.
        out: a folder for the result. Every round writes the critic so far and the state of the training: the same call
            resumes after an interruption, with new episodes, and reads the result if the training is finished.
        progress: called as ``progress(steps done, steps)``.

    Raises:
        VictimError: for discrete actions, observations of more dimensions, and an environment that does not fit.
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training; with
            ``out``, for ``env_kwargs`` that are not JSON.
        CardError: for a folder that holds something else, or files that cannot be read.

    >>> from adv_wrappers.training.train_one_robust_sarsa_critic import train_one_critic
    >>> critic = train_one_critic("zoo:hopper-ppo", "Hopper-v5", steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    setting = {
        "steps": steps,
        "robust": robust,
        "eps": eps,
        "weight": weight,
        "box": box,
        "successor": successor,
        "gamma": gamma,
        "lr": lr,
        "noise": noise,
        "hidden": hidden,
        "seed": seed,
        "num_envs": num_envs,
    }
    victim = load_victim(victim)
    return CriticTraining(victim, Environment.of(env, victim, env_kwargs, make), setting, out).run(progress)


class CriticTraining:
    """One training with checked arguments; no environment is made before :meth:`run`.

    Args:
        victim, out: as for :func:`train_one_critic`.
        environment: how the environment is made.
        setting: other arguments of :func:`train_one_critic`; its defaults apply to the rest.

    Raises:
        AdvWrappersError: as :func:`train_one_critic` does; :class:`ThreatError` for a setting that it does not take.
    """

    def __init__(
        self, victim: Victim, environment: Environment, setting: Mapping[str, object], out: str | Path | None = None
    ) -> None:
        how = check_setting(setting)
        self.settings = SarsaSettings(**{field.name: how[field.name] for field in dataclasses.fields(SarsaSettings)})
        self.victim, self.environment = victim, environment
        self.player = exploring_victim(self.victim, how["noise"])
        warn_of_unknown(out, victim, environment)
        self.card: dict[str, Any] = {
            "name": "robust-sarsa critic",
            "environment": environment.described,
            "victim": described_victim(self.victim),
            "training": {**how, "noise": how["noise"] if self.victim.kind == "mean" else None},
            "versions": versions(),
            "git": revision(),
        }
        self.steps: int = how["steps"]
        about = {part: self.card[part] for part in ("environment", "victim", "training")}
        self.folder = TrainingFolder(out, "critic", about)
        self.finished = Critic(str(out)) if self.folder.finished else None

    def run(self, progress: Callable[[int, int], None] | None = None) -> Critic:
        """Train what is left to train, and return the critic."""
        if self.finished is not None:
            return self.finished
        with one_thread():
            rounds = CriticTrainingState(
                self.victim, self.player, self.environment, self.card, self.settings, self.folder
            )
            try:
                while rounds.steps < self.steps:
                    rounds.play_round()
                    if progress is not None:
                        progress(min(rounds.steps, self.steps), self.steps)
            finally:
                rounds.collector.venv.close()
                self.folder.remove_parts()
        self.folder.finish()
        return rounds.critic(rounds.losses) if self.folder.out is None else Critic(str(self.folder.out))


def check_setting(setting: Mapping[str, object]) -> dict[str, Any]:
    """A setting with plain numbers, completed with the defaults of :func:`train_one_critic`.

    Raises:
        ThreatError: for arguments that :func:`train_one_critic` does not take, and for those that are not part of a
            setting, such as ``out``.
        ValueRangeError: for values out of range.
    """
    signature = inspect.signature(train_one_critic).parameters
    known = {name: parameter.default for name, parameter in signature.items() if name not in _NOT_SETTINGS}
    unknown = sorted(map(str, {*setting} - {*known})) if isinstance(setting, Mapping) else [repr(setting)]
    if unknown:
        raise ThreatError(f"a critic's setting takes {', '.join(sorted(known))}, not {', '.join(unknown)}")
    how = {**known, **setting}
    for name, allowed in _CHOICES.items():
        if how[name] not in allowed:
            raise ValueRangeError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {how[name]!r}")
    for name, top in _NUMBERS.items():
        how[name] = number(name, how[name], 0, top)
    for name, (least, most) in _WHOLE.items():
        how[name] = integer(name, how[name], least, most)
    if isinstance(how["hidden"], str) or not isinstance(how["hidden"], Iterable):
        raise ValueRangeError(f"hidden must hold integers of at least 1, got {how['hidden']!r}")
    how["hidden"] = [integer("a size of hidden", size, 1, _WIDEST) for size in how["hidden"]]
    return how
