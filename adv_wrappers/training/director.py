"""Training an adversary: SA-RL and PA-AD on PPO of Stable-Baselines3.

The paper trains its directors with ACKTR (Atari) and PPO (MuJoCo). PPO's settings here: 32 environments attacked as one
batch, 64 steps each (32 suit short episodes), batches of 256, 10 epochs, learning rate 3e-4, gamma 0.99, lambda 0.95,
two layers of 64 with tanh, a standard deviation of 0.5 to begin with, rewards and observations normalised. The best
checkpoint is chosen on seeds of its own: the return in training is that of a policy that samples, which says little of
the deterministic one that is deployed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.balls import Linf
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.errors import ThreatError, ValueRangeError
from adv_wrappers.core.files import write
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.episodes import evaluate
from adv_wrappers.training.chairs import Chairs
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.chain import Normalize
from adv_wrappers.wrappers.adversary import VectorAdversaryEnv, actor_of

Progress = Callable[[int, float], None]
CHOOSING = 7919  # the seed of the episodes that checkpoints are chosen on


def train_adversary(
    kind: str | Actor, env: str | Callable[[], Any], victim: Victim | str, eps: float | None = None,
    steps: int = 100_000, algorithm: str = "ppo", num_envs: int = 32, seed: int = 0, *, scale: Any = None,
    within: Budget | None = None,
    when: Any = None, checks: int = 10, episodes: int = 30, out: str | Path | None = None,
    tensorboard: str | None = None, progress: Progress | None = None, env_kwargs: dict[str, Any] | None = None,
    **settings: Any,
) -> Learned:  # fmt: skip
    """Train an adversary against a victim.

    Args:
        kind: ``"sa-rl"``, ``"pa-ad"``, or an actor with other arguments.
        env: id of the environment, or a function that makes one.
        victim: who is attacked.
        eps, scale: of a budget ``Linf``; or ``within``, the budget itself.
        steps: of all environments together.
        algorithm: ``"ppo"``.
        num_envs: environments attacked as one batch.
        seed: of the training.
        when: the timing.
        checks: how many checkpoints are compared, each by ``episodes`` episodes of the deterministic director on seeds
            that the training never sees; the one that leaves the lowest mean return is returned.
        out: a folder for the best adversary so far, the record of all checkpoints, and the state from which a training
            that was killed goes on when it is called again with the same arguments.
        tensorboard: a folder for SB3's logs.
        progress: called as ``progress(steps done, mean return of the victim at the last checkpoint)``.
        **settings: of PPO, instead of the defaults.

    Returns:
        A :class:`Learned`, which ``evaluate`` and every wrapper take; with ``out`` it has a JSON form.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained.
    """
    if algorithm != "ppo":
        raise ThreatError(f"algorithm must be 'ppo', got {algorithm!r}; AdversaryEnv is for every other library")
    for name, value in (("steps", steps), ("num_envs", num_envs), ("checks", checks), ("episodes", episodes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueRangeError(f"{name} must be a whole number of at least 1, got {value!r}")
    if (eps is None) == (within is None):
        raise ThreatError("train_adversary needs a budget: eps=, or within=")
    victim = load_victim(victim)
    actor = actor_of(kind, victim)
    budget = (within if within is not None else Linf(float(eps or 0.0), scale)).resolve(victim)

    def make() -> Any:
        return gym.make(env, **(env_kwargs or {})) if isinstance(env, str) else env()

    vector = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    chairs = Chairs(VectorAdversaryEnv(vector, victim, actor, budget, when))
    run = _Run(actor, budget, victim, env, env_kwargs, when, episodes, max(steps // checks, 1), seed, out, progress)
    try:
        return run.train(chairs, steps, settings, tensorboard)
    finally:
        chairs.close()


class _Run(BaseCallback):
    """One training: its checkpoints, the best of them, and the state it can go on from."""

    def __init__(
        self, actor: Actor, budget: Budget, victim: Victim, env: Any, env_kwargs: Any, when: Any, episodes: int,
        every: int, seed: int, out: str | Path | None, progress: Progress | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.actor, self.budget, self.victim, self.when = actor, budget, victim, when
        self.env, self.env_kwargs, self.episodes, self.every, self.seed = env, env_kwargs, episodes, every, seed
        self.out = None if out is None else Path(out)
        self.progress = progress
        self.next, self.best, self.found = every, np.inf, None  # type: tuple[int, float, Learned | None]
        self.record: list[dict[str, Any]] = []

    def train(self, chairs: Any, steps: int, settings: dict[str, Any], tensorboard: str | None) -> Learned:
        """Train, or go on with a training that was killed."""
        images = len(chairs.observation_space.shape) > 1
        rows = chairs.num_envs
        defaults: dict[str, Any] = {
            "n_steps": 64, "batch_size": min(256, 64 * rows), "n_epochs": 10, "learning_rate": 3e-4, "gamma": 0.99,
            "gae_lambda": 0.95, "ent_coef": 0.0,
            "policy_kwargs": {"net_arch": [64, 64], "activation_fn": nn.Tanh, "log_std_init": -0.7},
        }  # fmt: skip
        state = self.out / "state.json" if self.out is not None else None
        if state is not None and state.exists():
            normal = VecNormalize.load(str(self.out / "normaliser.pkl"), chairs)  # type: ignore[operator]
            model = PPO.load(self.out / "model.zip", normal, device="cpu")  # type: ignore[operator]
            self._recall(json.loads(state.read_text(encoding="utf-8")))
        else:
            normal = VecNormalize(chairs, norm_obs=not images, norm_reward=True, gamma=defaults["gamma"])
            policy = "CnnPolicy" if images else "MlpPolicy"
            chosen = {**defaults, **settings}
            model = PPO(policy, normal, seed=self.seed, device="cpu", tensorboard_log=tensorboard, **chosen)
        left = steps - model.num_timesteps
        if left > 0:
            model.learn(left, callback=self, reset_num_timesteps=False)
        if self.found is None or left > 0:
            self._check()
        assert self.found is not None
        return self.found

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps >= self.next:
            self.next += self.every
            self._check()

    def _check(self) -> None:
        """Play the deterministic director, keep it if it is the strongest so far, and write what there is."""
        learned = Learned(director_of(self.model), self.actor)
        threat = ThreatModel("observation", learned, self.budget, self.when)
        report = evaluate(
            self.victim, self.env, [threat], self.episodes, CHOOSING + self.seed,
            env_kwargs=self.env_kwargs,
        )  # fmt: skip
        left = float(report.threats[1]["mean_return"])
        self.record.append({"steps": int(self.model.num_timesteps), "mean_return": left})
        if left < self.best:
            self.best, self.found = left, learned
            if self.out is not None:
                about = {"checkpoints": self.record, "episodes": self.episodes, "seed": self.seed}
                self.found = learned.save(self.out, self.budget, about)
        if self.out is not None:
            self._write()
        if self.progress is not None:
            self.progress(int(self.model.num_timesteps), left)

    def _write(self) -> None:
        assert self.out is not None
        self.model.save(self.out / "model.part.zip")
        os.replace(self.out / "model.part.zip", self.out / "model.zip")
        self.model.get_vec_normalize_env().save(str(self.out / "normaliser.part"))  # type: ignore[union-attr]
        os.replace(self.out / "normaliser.part", self.out / "normaliser.pkl")
        state = {"best": self.best, "next": self.next, "record": self.record}
        write(self.out / "state.json", (json.dumps(state, indent=1) + "\n").encode())

    def _recall(self, state: dict[str, Any]) -> None:
        self.best, self.next, self.record = float(state["best"]), int(state["next"]), list(state["record"])
        self.found = Learned(card=str(self.out))


def director_of(model: Any) -> Director:
    """The deterministic policy of an SB3 PPO model over flat observations, its normaliser included."""
    policy, normal = model.policy, model.get_vec_normalize_env()
    layers: list[nn.Module] = []
    if normal is not None and normal.norm_obs:
        mean, std = normal.obs_rms.mean, np.sqrt(normal.obs_rms.var + normal.epsilon)
        middle, unit = (torch.as_tensor(part, dtype=torch.float32).reshape(-1).clone() for part in (mean, std))
        layers.append(Normalize(middle, unit, float(normal.clip_obs)))
    for layer in [*policy.mlp_extractor.policy_net, policy.action_net]:
        if isinstance(layer, nn.Linear):
            copy = nn.Linear(layer.in_features, layer.out_features)
            copy.load_state_dict(layer.state_dict())
            layers.append(copy)
        else:
            layers.append(type(layer)())
    return Director(nn.Sequential(*layers), isinstance(model.action_space, spaces.Discrete))
