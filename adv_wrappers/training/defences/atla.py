"""ATLA and PA-ATLA: an agent and an adversary that learn by turns (Zhang et al. 2021; Sun et al. 2022, section 6).

Zhang et al. ("Robust RL on State Observations with Learned Optimal Adversary") train an agent against SA-RL's
adversary, Sun et al. against PA-AD's; against forces it is RARL. The papers alternate: the agent learns while the
adversary is held fixed, then the adversary while the agent is. They leave open, and here it is:

- The agent begins. A phase of the adversary comes after every ``phase`` steps of the agent and lasts until it has
  ``ratio`` times the agent's steps. Both keep their optimisers and their running episodes.
- In the agent's phase the adversary draws its actions as it does in its own phase: both learn in one
  game. It is evaluated, and deployed, by its mode.
- In the adversary's phase the agent acts as it will be used: by its mode, or a sample (``select``).
- The adversary learns by PPO, at a constant rate, and has a normaliser of its own, on the same true observations as
  that of the agent.

The agent's side is :mod:`adv_wrappers.training.agent_fit`, which calls :meth:`LearningAdversary.learn` between its
rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from adv_wrappers.adversaries.actor import Actor, ActorPerturbation
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.engine.context import Context
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.threats.presets import as_actor
from adv_wrappers.training.adversary import adversary_game, adversary_model
from adv_wrappers.training.fit import restore_model
from adv_wrappers.training.folder import later_seed
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.sb3.director_networks import director_of, policy_kwargs
from adv_wrappers.training.sb3.vector_env import RowsVectorEnv
from adv_wrappers.victims import Victim

ADVERSARY_FILES = "adversary.zip", "adversary-normaliser.json"  # of a checkpoint
_DIRECTOR_STREAM = 1 << 30  # draws of the adversary's actions, apart from those of the actor


class DirectorSnapshot:
    """A copy of the adversary's policy, which draws its actions while the agent learns."""

    def __init__(self) -> None:
        self.director: Director
        self.log_std: Tensor | None = None

    def update(self, model: OnPolicyAlgorithm) -> None:
        """Copy a model's policy."""
        self.director = director_of(model)
        self.log_std = None if self.director.discrete else model.policy.log_std.detach().clone()

    @torch.no_grad()
    def act(self, x: Tensor, key: Tensor) -> Tensor:
        """The adversary's actions ``[B, *A]`` at true observations ``[B, n]``, drawn with the int64 keys ``[B]``."""
        out: Tensor = self.director.net(x.float())
        if self.log_std is None:
            uniform = rng.uniform(key, tuple(out.shape[1:]), out.dtype).clamp(min=1e-20)
            return (out - (-uniform.log()).log()).argmax(-1)
        normal = rng.normal(key, tuple(out.shape[1:]), out.dtype)
        return (out + self.log_std.exp() * normal).clamp(-1, 1)


@dataclass(frozen=True)
class SnapshotAdversary(ActorPerturbation):
    """The adversary in training, as the agent meets it.

    Args:
        actor: turns the adversary's action into a perturbation.
        snapshot: chooses the adversary's action.
    """

    name: ClassVar[str] = "opponent"
    actor: Actor
    snapshot: DirectorSnapshot

    def _action(self, x: Tensor, context: Context) -> Tensor:
        seen = x if self.on == "observation" else context.observation
        return self.snapshot.act(seen, rng.fold(context.key, _DIRECTOR_STREAM))


class LearningAdversary:
    """The adversary's side of an alternating training, against the live agent.

    Args:
        given: the actor, its name or its dictionary.
        within, when: budget and timing.
        agent: the agent as a live victim.
        rows: the adversary's environments.
        training: how it is trained, with all settings of the algorithm.
        phase: the agent's steps between two phases of the adversary.
        ratio: the adversary's steps for each of the agent's.

    Attributes:
        model: the algorithm that trains it.
        env: the game from its side.
        snapshot: the policy that it plays with in the agent's phase.
        threat: what the agent meets there.
    """

    def __init__(
        self,
        given: Actor | str | Mapping[str, Any],
        within: Budget,
        when: When | Callable[..., Any] | None,
        *,
        agent: Victim,
        rows: RowsVectorEnv,
        training: Training,
        phase: int,
        ratio: float,
    ) -> None:
        actor = as_actor(given, agent)
        # the adversary's game is against the agent as it is at that moment
        now = within.resolve(agent if actor.on == "observation" else None)
        self.env, settings = adversary_game(rows, agent, actor, now, when), dict(training.settings)
        settings["policy_kwargs"] = {**policy_kwargs(self.env.observation_space), **settings.get("policy_kwargs", {})}
        model: Any = adversary_model(self.env, replace(training, settings=settings), True)
        self.model: OnPolicyAlgorithm = model
        # in the agent's phase a snapshot of the director attacks, which does not change while the agent learns
        self.snapshot = DirectorSnapshot()
        self.snapshot.update(model)
        self._actor = actor.open() if actor.victim is agent else actor  # as it is deployed, its victim left open
        self.threat = ThreatModel(actor.on, SnapshotAdversary(actor, self.snapshot), within, when)
        self.phase, self.ratio = phase, ratio

    def restore(self, checkpoint: Path) -> None:
        """Go on from the folder of a checkpoint."""
        restore_model(self.model, *(checkpoint / name for name in ADVERSARY_FILES))
        assert self.model.env is not None and self.model.seed is not None
        self.model.env.seed(later_seed(self.model.seed, self.model.num_timesteps))
        self.snapshot.update(self.model)

    def learn(self, steps: int) -> None:
        """Learn until it has ``ratio`` times the ``steps`` of the agent, which does not change."""
        missing = round(self.ratio * steps) - int(self.model.num_timesteps)
        if missing > 0:
            self.model.learn(missing, reset_num_timesteps=False, tb_log_name="adversary")
            self.model.set_logger(self.model.logger)  # or every phase would open another
            self.snapshot.update(self.model)

    def deployed(self) -> ThreatModel:
        """The threat that the agent is evaluated under now: the adversary by its mode, its victim open."""
        learned = Learned(director_of(self.model), self._actor)
        return ThreatModel(learned.on, learned, self.threat.budget, self.threat.when)
