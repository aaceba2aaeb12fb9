"""What ``train_agent`` begins with: the adversary that is meant, the settings of the algorithms, and both models."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

from adv_wrappers.adversaries.actor import ActionActor, Actor
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.json_values import Value
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel, fits
from adv_wrappers.errors import EPS_OR_WITHIN, Argument, Message, SpaceError, ThreatError, VictimError, Words
from adv_wrappers.parse_threat_text import parse_when
from adv_wrappers.presets import as_threat, presets
from adv_wrappers.registry import Rewards
from adv_wrappers.training.agent_algorithms import AGENT_ALGORITHMS, AgentAlgorithm
from adv_wrappers.training.alternating_agent_and_adversary import (
    AdversaryTrainer,
    AgentTrainer,
    DirectorSnapshot,
    SnapshotAdversary,
    hold_statistics,
)
from adv_wrappers.training.check_sb3_settings import algorithm_class, made_model
from adv_wrappers.training.checkpoints import restore_model
from adv_wrappers.training.convert_victims_to_sb3_agents import (
    AgentNetworks,
    MLPPolicy,
    RecurrentPolicy,
    load_q_weights,
    load_weights,
    policy_kwargs_of,
    q_policy_kwargs_of,
)
from adv_wrappers.training.default_sb3_hyperparameters import agent_settings
from adv_wrappers.training.director_networks import policy_kwargs
from adv_wrappers.training.dqn_of_behzadan_and_hsu import LayerNormQPolicy, PrioritizedDQN
from adv_wrappers.training.multiprocess_vector_env import RowsVectorEnv
from adv_wrappers.training.robust_policy_losses import RobustMethod
from adv_wrappers.training.robust_ppo_a2c import RobustUpdates
from adv_wrappers.training.sb3_image_policy import ImagePolicy, image_policy_kwargs, is_stack
from adv_wrappers.training.sb3_vec_env_adapter import AgentVecEnv, Sb3Adapter
from adv_wrappers.training.training_folder import described, later_seed
from adv_wrappers.training.training_method import RobustTraining, TrainingMethod
from adv_wrappers.training.training_settings import Training
from adv_wrappers.victims import Victim, from_sb3, load_victim
from adv_wrappers.wrappers.adversary_config import as_actor
from adv_wrappers.wrappers.dynamics_layer import end_diverged_episodes
from adv_wrappers.wrappers.sb3_adversary_env import VecAdversaryEnv

ADVERSARY_SEED = 1_000_003  # between the seeds of the two sides


@dataclass(frozen=True)
class AdversarySpec:
    """What an agent is trained against: an adversary that learns, a threat that is computed, or nothing.

    Attributes:
        actor: the actor of an adversary that learns, its name or its dictionary; None where none learns.
        within, when: budget and timing.
        threat: the threat that the agent is evaluated under, its victim open; None for an adversary that learns, whose
            perturbation is not there yet.
    """

    actor: Actor | str | Mapping[str, Any] | None = None
    within: Budget | None = None
    when: When | Callable[..., Any] | None = None
    threat: ThreatModel | None = None

    @property
    def learns(self) -> bool:
        """Whether the adversary learns."""
        return self.actor is not None

    @staticmethod
    def parse(adversary: Any, budget: Budget | None, when: Any) -> AdversarySpec:
        """The adversary that the arguments of :func:`adv_wrappers.train_agent` describe, within a budget or its own.

        Raises:
            AdvWrappersError: one of its kinds, for arguments that describe none.
        """
        when = parse_when(when) if isinstance(when, str) else when
        if adversary is None:
            return AdversarySpec()
        named = Value.kinds.get(adversary) if isinstance(adversary, str) else None
        if isinstance(adversary, Mapping):
            named = Value.kinds.get(str(adversary.get("type")))
        if isinstance(adversary, Actor) or (named is not None and issubclass(named, Actor)):
            kind = type(adversary) if named is None else named
            if issubclass(kind, ActionActor) or getattr(adversary, "on", "observation") == "action":
                raise ThreatError(
                    f"agents are trained against actors on observations or the dynamics, got one on actions: "
                    f"{adversary!r}"
                )
            if budget is None:
                raise ThreatError(Message(f"{adversary!r:.40} needs a budget: ", EPS_OR_WITHIN))
            return AdversarySpec(adversary, budget, when)
        if isinstance(adversary, str) and adversary.partition(":")[0].strip() not in presets:
            known = ", ".join(presets)
            expected = f"expected 'pa-ad', 'sa-rl', an actor, a threat ({known}) or "
            raise ThreatError(Message(f"unknown adversary {adversary!r:.80}: {expected}", Words("None", "none")))
        threat = as_threat(adversary, within=budget, when=when)
        return AdversarySpec(within=threat.budget, when=threat.when, threat=threat)

    def describe(self) -> dict[str, Any] | None:
        """A JSON form, as far as there is one, that distinguishes one training from another."""
        if self.threat is not None:
            return dict(described(self.threat))
        if self.actor is None:
            return None
        assert self.within is not None
        actor = self.actor.to_dict() if isinstance(self.actor, Actor) else self.actor
        when = self.when.to_dict() if isinstance(self.when, Value) else self.when and repr(self.when)
        return {"actor": actor, "within": self.within.to_dict(), "when": when}


def parse_robust(robust: object, budget: Budget | None, algorithm: AgentAlgorithm) -> RobustTraining | None:
    """Method and budget of what ``robust=`` of :func:`adv_wrappers.train_agent` describes: a name, a value, or None.

    Raises:
        ThreatError: for another, one for other algorithms, and without a budget; and for any of recurrent agents.
    """
    if robust is None:
        return None
    if algorithm.robust is None:
        raise ThreatError(
            Message(
                Argument("robust", ...),
                f" is not for {algorithm.name}: there are no bounds through an LSTM, and smoothing is for agents "
                "without a hidden state. Train against an adversary, such as ",
                Argument("adversary", "pa-ad"),
            )
        )
    named = algorithm.methods
    found = named[robust]() if isinstance(robust, str) and robust in named else robust
    if not isinstance(found, algorithm.method):
        known, example = " or ".join(map(repr, named)), next(iter(named.values())).__name__
        expected = f" must be {known}, or a value such as {example}() for {algorithm.name}, got {robust!r:.80}"
        others = [one.name for one in AGENT_ALGORITHMS.values() if isinstance(robust, str) and robust in one.methods]
        raise ThreatError(Message(Argument("robust"), expected + (f", of {' and '.join(others)}" if others else "")))
    if budget is None:
        raise ThreatError(Message(Argument("robust", found.name), " needs a budget: ", EPS_OR_WITHIN))
    return RobustTraining(found, budget)


def victim_and_algorithm(victim: Any, algorithm: str | None) -> tuple[Victim | None, AgentAlgorithm]:
    """The victim that the agent's training starts from, and the algorithm that it goes on by.

    Args:
        victim: an SB3 model, a reference, a victim, or None.
        algorithm: one of ``AGENT_ALGORITHMS``; None takes that of the victim's kind: DQN for Q-values, RecurrentPPO for
            a hidden state, else PPO.

    Raises:
        ThreatError: for an unknown algorithm.
        VictimError: for a victim that is no agent of the algorithm: without Q-values for DQN, with them for the others;
            recurrent for other algorithms than RecurrentPPO, and feed-forward for that one; and any for TD3 and DDPG.
    """
    if algorithm is not None and algorithm not in AGENT_ALGORITHMS:
        known = " or ".join(map(repr, AGENT_ALGORITHMS))
        raise ThreatError(Message(Argument("algorithm"), f" must be {known}, got {algorithm!r}"))
    if victim is None:
        return None, AGENT_ALGORITHMS[algorithm or "ppo"]
    is_model = not isinstance(victim, (Victim, str)) and hasattr(victim, "policy")
    found = from_sb3(victim) if is_model else load_victim(victim)
    own = "dqn" if found.kind == "q" else "recurrent-ppo" if found.recurrent else "ppo"
    kind = AGENT_ALGORITHMS[algorithm or own]
    if not kind.begins_from:
        raise VictimError(Message(f"{kind.name} begins from scratch: ", Argument("victim"), " is for the others"))
    if found.kind not in kind.begins_from:
        expected = "DQN" if "q" in kind.begins_from else "PPO or A2C"
        raise VictimError(f"expected an agent of {expected} to begin from, got one of kind {found.kind!r}")
    if found.recurrent and not kind.recurrent:
        trains = Argument("algorithm", "recurrent-ppo")
        raise VictimError(
            Message(f"{kind.name} trains feed-forward agents, got a recurrent victim: ", trains, " is for it")
        )
    if kind.recurrent and not found.recurrent:
        raise VictimError(f"{kind.name} begins from a recurrent victim, got a feed-forward one: {found!r}")
    return found, kind


def check_spaces(
    make_env: Callable[[], gym.Env[Any, Any]],
    initial: Victim | None,
    algorithm: AgentAlgorithm,
    method: TrainingMethod | None = None,
) -> bool:
    """Whether observations are images.

    Raises:
        SpaceError: unless an agent of the algorithm, or the ``initial`` one, can be trained in this environment by the
            method.
    """
    env = make_env()
    observations, actions = env.observation_space, env.action_space
    env.close()
    one_dimension = isinstance(observations, spaces.Box) and len(observations.shape) == 1
    if not (one_dimension and np.dtype(observations.dtype).kind == "f") and not is_stack(observations):
        expected = "observations of float [n], or images of uint8 [C, H, W] from 0 to 255"
        raise SpaceError(Message(Words("train_agent", "train-agent"), f" takes {expected}, got {observations}"))
    from_zero = isinstance(actions, spaces.Discrete) and actions.start == 0
    if not from_zero and not (isinstance(actions, spaces.Box) and len(actions.shape) == 1):
        expected = f" takes actions Discrete(n) from 0, or Box [n], got {actions}"
        raise SpaceError(Message(Words("train_agent", "train-agent"), expected))
    if not algorithm.images and is_stack(observations):
        raise SpaceError(
            f"{algorithm.name} takes observations of float [n], got {observations}: use ppo on stacks of frames"
        )
    if not isinstance(actions, algorithm.actions):
        takes = "actions in a Box" if spaces.Box in algorithm.actions else "discrete actions"
        raise SpaceError(f"{algorithm.name} is for {takes}, and this environment has {actions}: use ppo or a2c")
    if method is not None and not method.images and is_stack(observations):
        raise SpaceError(
            Message(Argument("robust", method.name), f" takes observations of float [n], got {observations}")
        )
    if initial is not None:
        fits(initial, observations, actions)
    return is_stack(observations)


def _linear_schedule(rate: float, remaining: float) -> float:
    return rate * remaining


def algorithm_settings(
    algorithm: AgentAlgorithm,
    rows: int,
    given: Mapping[str, Any],
    parts: AgentNetworks | None,
    images: bool = False,
    method: TrainingMethod | None = None,
) -> dict[str, Any]:
    """The given settings of an agent's algorithm, completed with the defaults and the networks.

    Args:
        algorithm: the algorithm.
        rows: the number of environments.
        given: settings that take precedence.
        parts: the networks that the agent starts from; None for new ones.
        images: whether observations are images.
        method: a robust one, which may have networks of its own.
    """
    kwargs: dict[str, Any]
    if parts is not None and algorithm.name == "dqn":
        assert not isinstance(parts, RecurrentPolicy)
        kwargs = q_policy_kwargs_of(parts)
    elif parts is not None:
        kwargs = policy_kwargs_of(parts)
    elif images:
        kwargs = image_policy_kwargs()
    elif algorithm.recurrent:
        kwargs = {"lstm_hidden_size": 64, "net_arch": [64], "activation_fn": torch.nn.Tanh}
    else:
        kwargs = {
            "net_arch": [algorithm.width] * 2,
            **({} if algorithm.off_policy else {"activation_fn": torch.nn.Tanh}),
        }
    if algorithm.name != "a2c":
        kwargs["optimizer_kwargs"] = {"fused": True, **({} if algorithm.off_policy else {"eps": 1e-5})}
    own = {**kwargs, **({} if method is None else method.policy_kwargs), **given.get("policy_kwargs", {})}
    return {**agent_settings(algorithm.name, rows, images, given), "policy_kwargs": own}


def make_agent(
    env: RowsVectorEnv,
    training: Training,
    parts: AgentNetworks | None,
    checkpoint: Path | None,
    rewards: Rewards = "normalized",
    method: TrainingMethod | None = None,
    normalize: bool = True,
) -> BaseAlgorithm:
    """The agent's model: new, with the weights of ``parts``, or from a checkpoint.

    Args:
        env: the agent's environments.
        training: how it is trained, with all settings of the algorithm.
        parts: the networks that the agent starts from; None for new ones.
        checkpoint: the folder of a checkpoint to restore, or None.
        rewards: what the agent learns from, see :func:`adv_wrappers.train_agent`.
        method: a robust one, which may need networks of its own.
        normalize: whether a new agent normalises observations.
    """
    algorithm, settings = AGENT_ALGORITHMS[training.algorithm], dict(training.settings)
    if not callable(settings["learning_rate"]):
        settings["learning_rate"] = functools.partial(_linear_schedule, float(settings["learning_rate"]))
    images = is_stack(env.single_observation_space)
    normalize = normalize and not algorithm.off_policy
    norm = not images and (normalize if parts is None else parts.normalise is not None)
    inner = AgentVecEnv(env, clip_rewards=rewards == "clipped")
    normal = VecNormalize(inner, norm_obs=norm, norm_reward=rewards == "normalized", gamma=settings["gamma"])
    if isinstance(parts, (MLPPolicy, RecurrentPolicy)) and parts.normalise is not None:
        std = parts.normalise.std.double().numpy()
        statistics: Any = normal.obs_rms
        statistics.mean, statistics.var = parts.normalise.mean.double().numpy(), std**2 - normal.epsilon
        normal.clip_obs = math.inf if parts.normalise.clip is None else parts.normalise.clip
    hold_statistics(normal, fixed=parts is not None)
    norms = isinstance(parts, MLPPolicy) and bool(parts.norms)
    q_policy = LayerNormQPolicy if norms else DQNPolicy
    flat = "MlpLstmPolicy" if algorithm.recurrent else "MlpPolicy"
    policy = q_policy if algorithm.name == "dqn" else ImagePolicy if images else flat
    own = {"seed": training.seed, "device": training.device, "tensorboard_log": training.logs}
    arguments = {"policy": policy, "env": normal, **own}
    kind = algorithm.robust if method is not None and algorithm.robust else algorithm_class(algorithm.name)
    model = made_model(kind, arguments, settings)
    if isinstance(model, RobustUpdates) and isinstance(method, RobustMethod):
        model.method_critic = method.make_critic(model)
    if checkpoint is not None:
        restore_model(model, checkpoint / "agent.zip", checkpoint / "normaliser.json")
    elif isinstance(model, PrioritizedDQN) and parts is not None:
        assert not isinstance(parts, RecurrentPolicy)
        load_q_weights(model.policy, parts)
    elif parts is not None:
        assert isinstance(model.policy, ActorCriticPolicy)
        load_weights(model.policy, parts)
    return model


def make_adversary(
    agent: AgentTrainer,
    spec: AdversarySpec,
    make_rows: Callable[[], RowsVectorEnv],
    sampled: bool,
    training: Training,
    checkpoint: Path | None,
) -> AdversaryTrainer | None:
    """The adversary that learns against the live agent; None where none does.

    Args:
        agent: the agent's side.
        spec: what the agent is trained against.
        make_rows: makes the adversary's environments.
        sampled: whether the adversary explores in the agent's phase.
        training: how the adversary is trained, with all settings of the algorithm.
        checkpoint: as for :func:`make_agent`.
    """
    if spec.actor is None or spec.within is None:
        return None
    actor = as_actor(spec.actor, agent.victim)
    assert isinstance(actor, Actor)
    within = spec.within.resolve(agent.victim if actor.on == "observation" else None)
    # float64: the adversary's reward is made of the victim's before that is rounded
    env = VecAdversaryEnv(Sb3Adapter(make_rows(), np.float64), agent.victim, actor, within, spec.when)
    settings = training.settings
    end_diverged_episodes(env)
    normal = VecNormalize(env, norm_reward=True, gamma=settings["gamma"])
    networks = {**policy_kwargs(env.observation_space), **settings.get("policy_kwargs", {})}
    own = {"seed": training.seed, "device": training.device, "tensorboard_log": training.logs}
    arguments = {"policy": "MlpPolicy", "env": normal, **own}
    model = made_model(PPO, arguments, {**settings, "policy_kwargs": networks})
    if checkpoint is not None:
        restore_model(model, checkpoint / "adversary.zip", checkpoint / "adversary-normaliser.json")
        normal.seed(later_seed(training.seed, int(model.num_timesteps)))
    snapshot = DirectorSnapshot(sampled)
    snapshot.update(model)
    deployed = actor.open() if actor.victim is agent.victim else actor
    threat = ThreatModel(actor.on, SnapshotAdversary(actor, snapshot), spec.within, spec.when)
    return AdversaryTrainer(model, env, snapshot, deployed, threat)
