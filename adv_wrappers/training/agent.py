"""train_agent: agents trained against adversaries, under attacks, by robust losses, or plainly.

Against an adversary that learns beside it (:mod:`adv_wrappers.training.defences.atla`), under attacks that are computed
(the baselines of Sun et al. 2022, appendix E.2.6, train under MinBest and MaxDiff), by a robust loss
(``training/defences/``), or plainly. In all of them:

- The agent's normaliser sees true observations and changes between its rollouts only, so eps in its units
  (``scale="victim"``) means the present units, exactly, in every step of both phases. In the first rollout they are
  those of the environment.
- Steps count the agent's alone. Its learning rate falls linearly to zero.
- The checkpoint that is returned has the highest mean of its clean return and its return under the adversary of its
  day, on seeds that training never sees, among those of the second half: early adversaries are weak. The papers report
  an agent of medium robustness among 21. With a robust loss the second return is the greedy worst case, or that under
  MaxDiff where actions are in a Box: the best clean agents are those of the days when eps was small. Checkpoints of
  which all episodes are lost alike under that are compared by what they keep under MaxDiff in shares of the budget.

PPO's settings: 32 environments, 64 steps each, batches of 128, 10 epochs, rate 3e-4; gamma 0.99, lambda 0.95, two
layers of 64 with tanh, rewards and observations normalised. A2C's: 16 steps each, rate 7e-4. DQN's: double
Q-learning, 100 000 transitions that are drawn evenly, an update of 128 of them every 8 steps, a new target network
every 400, exploration that falls to 5% within the first tenth, rate 2e-3, two layers of 64 with ReLU; observations
as they are, since the values of its target network would move with a normaliser. TD3's and DDPG's are those of SB3,
with Gaussian noise of 0.1 on actions in [-1, 1] while they learn, an update of 256 transitions a step, two layers
of 256 with ReLU, and observations as they are, for the same reason.

RecurrentPPO's settings are those of PPO. Actions and state value have an LSTM of 64 each (the size in ATLA's code,
and in the RL Zoo's settings for CartPole without velocities) and a layer of 64 with tanh behind it. A minibatch is
made of sequences, as sb3-contrib cuts them: gradients go back to the beginning of the rollout, the episode or the
minibatch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy

from adv_wrappers.adversaries.actor import ActionActor, Actor
from adv_wrappers.adversaries.hybrid_attack import Hybrid
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.threat import ThreatModel, fits, given_budget
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv, json_value
from adv_wrappers.errors import (
    SpaceError,
    ThreatError,
    ValueRangeError,
    VictimError,
)
from adv_wrappers.registry import Rewards, Robust, Select
from adv_wrappers.threats.presets import as_threat, parse_when, presets
from adv_wrappers.training.agent_fit import (
    AGENT_FILES,
    AgentFit,
    AgentProgress,
    AgentScore,
    LearningAgent,
    hold_statistics,
)
from adv_wrappers.training.defences.atla import LearningAdversary
from adv_wrappers.training.defences.base import RobustPolicyMethod, RobustQMethod
from adv_wrappers.training.defences.lookup import POLICY_METHODS, Q_METHODS
from adv_wrappers.training.defences.method import RobustTraining, TrainingMethod
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.defences.robust_dqn import RobustDQN
from adv_wrappers.training.defences.robust_ppo import RobustA2C, RobustPPO, RobustUpdates, make_robust
from adv_wrappers.training.fit import restore_model
from adv_wrappers.training.folder import (
    TrainingFolder,
    describe_settings,
    described,
    functions_of,
    later_seed,
    warn_of_unknown,
)
from adv_wrappers.training.history import has_given_up
from adv_wrappers.training.sb3 import hyperparameters as defaults
from adv_wrappers.training.sb3.algorithms import Training, algorithm_class, made_model
from adv_wrappers.training.sb3.conversion import (
    AgentNetworks,
    MLPPolicy,
    RecurrentPolicy,
    live_victim,
    load_weights,
    networks_of_agent,
    policy_kwargs_of,
)
from adv_wrappers.training.sb3.image_policy import ImagePolicy, image_policy_kwargs, is_stack
from adv_wrappers.training.sb3.one_environment import OneEnvironment, only_one_runs
from adv_wrappers.training.sb3.prioritized_dqn import LayerNormQPolicy
from adv_wrappers.training.sb3.vec_env import AgentVecEnv
from adv_wrappers.training.sb3.vector_env import RowsVectorEnv, make_vector
from adv_wrappers.training.scoring import SIDE_BY_SIDE, Scoring, ScoringSetup
from adv_wrappers.utils.checks import check_choice, either
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.number_text import number_text
from adv_wrappers.utils.processes import check_env_workers, pickled
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    AboveZero,
    EnvCount,
    EpisodeCount,
    Share,
    TrainingSeed,
    TrainingSteps,
    Workers,
    checked,
)
from adv_wrappers.victims import Victim, from_sb3, load_victim
from adv_wrappers.victims.victim import OutputKind

# ----------------------------------------------------------------------------------------------------------------------
# The algorithms that agents are trained by, one line each: what they are for, and which robust methods they take.
# ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AgentAlgorithm:
    """What :func:`adv_wrappers.train_agent` knows of an algorithm.

    Attributes:
        name: as the function takes it.
        actions: the spaces of actions that it learns in.
        begins_from: the kinds of victims whose weights it can go on from; none where it begins from scratch alone.
        width: of both hidden layers of a new agent.
        images: whether it learns from images; else from observations ``[n]`` alone.
        off_policy: whether it learns from a replay buffer, by values of target networks. These would move with the
            statistics of a normaliser, so new agents see observations as they are.
        recurrent: whether its agents have a hidden state.
        robust: the class that learns by a robust method; None where there is none.
        method: the type of its robust methods.
        methods: those that have a name.
    """

    name: str
    actions: tuple[type[spaces.Space[object]], ...]
    begins_from: tuple[OutputKind, ...]
    _: KW_ONLY
    width: int = 64
    images: bool = False
    off_policy: bool = False
    recurrent: bool = False
    robust: type[BaseAlgorithm] | None = None
    method: type[TrainingMethod] = RobustPolicyMethod
    methods: Mapping[str, type[TrainingMethod]] = field(default_factory=dict)


_ANY = (spaces.Discrete, spaces.Box)
_DISCRETE = (spaces.Discrete,)
_BOX = (spaces.Box,)
_POLICY: tuple[OutputKind, ...] = ("logits", "gaussian")
AGENT_ALGORITHMS = {
    one.name: one
    for one in (
        AgentAlgorithm("ppo", _ANY, _POLICY, images=True, robust=RobustPPO, methods=POLICY_METHODS),
        AgentAlgorithm("a2c", _ANY, _POLICY, images=True, robust=RobustA2C, methods=POLICY_METHODS),
        AgentAlgorithm(
            "dqn", _DISCRETE, ("q",), images=True, off_policy=True, robust=RobustDQN, method=RobustQMethod,
            methods=Q_METHODS,
        ),
        AgentAlgorithm("td3", _BOX, (), width=256, off_policy=True),
        AgentAlgorithm("ddpg", _BOX, (), width=256, off_policy=True),
        AgentAlgorithm("recurrent-ppo", _ANY, _POLICY, recurrent=True),
    )
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------
# What ``train_agent`` begins with: the adversary that is meant, the settings of the algorithms, and both models.
# ----------------------------------------------------------------------------------------------------------------------


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
        # plain training has no adversary, and so no timing of one
        if adversary is None or adversary == "none":
            if when is not None:
                raise ThreatError("when= is the timing of an adversary, and there is none: give adversary=")
            return AdversarySpec()
        # an actor, by its name, its dictionary or itself, learns beside the agent
        name = adversary.get("type") if isinstance(adversary, Mapping) else adversary
        kind = Value.kinds.get(name) if isinstance(name, str) else type(adversary)
        if kind is not None and issubclass(kind, Actor):
            if issubclass(kind, (ActionActor, Hybrid)) or getattr(adversary, "on", "observation") == "action":
                raise ThreatError(
                    f"agents are trained against actors on observations or the dynamics, got one on actions: "
                    f"{adversary!r}"
                )
            if budget is None:
                raise ThreatError(f"{adversary!r:.40} needs a budget: give eps=")
            return AdversarySpec(adversary, budget, when)
        # anything else is a threat, which attacks the agent as it is
        if isinstance(adversary, str) and adversary.partition(":")[0].strip() not in presets:
            known = ", ".join(presets)
            raise ThreatError(
                f"unknown adversary {adversary!r:.80}: expected 'pa-ad', 'sa-rl', an actor, a threat ({known}) or none"
            )
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
            f"robust= is for ppo, a2c and dqn, not for {algorithm.name}: train against an adversary, such as "
            "adversary='pa-ad'"
        )
    # a name stands for the method with its defaults
    named = algorithm.methods
    found = named[robust]() if isinstance(robust, str) and robust in named else robust
    if not isinstance(found, algorithm.method):
        known, example = either(map(repr, named)), next(iter(named.values())).__name__
        others = [one.name for one in AGENT_ALGORITHMS.values() if isinstance(robust, str) and robust in one.methods]
        of = f", of {' and '.join(others)}" if others else ""
        raise ThreatError(
            f"robust must be {known}, or a value such as {example}() for {algorithm.name}, got {robust!r:.80}{of}"
        )
    if budget is None:
        raise ThreatError(f"robust={found.name!r} needs a budget: give eps=")
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
    check_choice("algorithm", algorithm, (*AGENT_ALGORITHMS, None), error=ThreatError)
    if victim is None:
        return None, AGENT_ALGORITHMS[algorithm or "ppo"]
    is_model = not isinstance(victim, (Victim, str)) and hasattr(victim, "policy")
    found = from_sb3(victim) if is_model else load_victim(victim)
    # the algorithm that the victim's kind of output asks for, unless one was given
    own = "dqn" if found.kind == "q" else "recurrent-ppo" if found.recurrent else "ppo"
    kind = AGENT_ALGORITHMS[algorithm or own]
    if not kind.begins_from:
        raise VictimError(f"{kind.name} begins from scratch: victim= is for the others")
    if found.kind not in kind.begins_from:
        expected = "DQN" if "q" in kind.begins_from else "PPO or A2C"
        raise VictimError(f"expected an agent of {expected} to begin from, got one of kind {found.kind!r}")
    if found.recurrent and not kind.recurrent:
        raise VictimError(
            f"{kind.name} trains feed-forward agents, got a recurrent victim: algorithm='recurrent-ppo' is for it"
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
    # what agents can see and do, then what this algorithm can
    one_dimension = isinstance(observations, spaces.Box) and len(observations.shape) == 1
    if not (one_dimension and np.dtype(observations.dtype).kind == "f") and not is_stack(observations):
        raise SpaceError(
            "agents are trained on observations of float [n], or images of uint8 [C, H, W] from 0 to 255, got "
            f"{observations}"
        )
    from_zero = isinstance(actions, spaces.Discrete) and actions.start == 0
    if not from_zero and not (isinstance(actions, spaces.Box) and len(actions.shape) == 1):
        raise SpaceError(f"agents are trained for actions Discrete(n) from 0, or Box [n], got {actions}")
    # what this algorithm can learn from, and the method beside it
    if not algorithm.images and is_stack(observations):
        raise SpaceError(
            f"{algorithm.name} takes observations of float [n], got {observations}: use ppo on stacks of frames"
        )
    if not isinstance(actions, algorithm.actions):
        takes = "actions in a Box" if spaces.Box in algorithm.actions else "discrete actions"
        raise SpaceError(f"{algorithm.name} is for {takes}, and this environment has {actions}: use ppo or a2c")
    if method is not None and not method.images and is_stack(observations):
        raise SpaceError(f"robust={method.name!r} takes observations of float [n], got {observations}")
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
    # networks like those that it starts from, or new ones
    if parts is not None:
        kwargs = policy_kwargs_of(parts, q=algorithm.name == "dqn")
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
    # what the method needs comes before defaults, and what was given before all
    own = {**kwargs, **({} if method is None else method.policy_kwargs), **given.get("policy_kwargs", {})}
    return {**defaults.agent_settings(algorithm.name, rows, images, given), "policy_kwargs": own}


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
    # the normaliser: none for images and off-policy algorithms, and that of the first agent where there is one
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
    # the policy that has these networks
    norms = isinstance(parts, MLPPolicy) and bool(parts.policy.norms)
    q_policy = LayerNormQPolicy if norms else DQNPolicy
    flat = "MlpLstmPolicy" if algorithm.recurrent else "MlpPolicy"
    policy = q_policy if algorithm.name == "dqn" else ImagePolicy if images else flat
    own = {"seed": training.seed, "device": training.device, "tensorboard_log": training.logs}
    arguments = {"policy": policy, "env": normal, **own}
    # a robust loss is minimised by the algorithm's own class, in its train()
    kind = algorithm.robust if method is not None and algorithm.robust else algorithm_class(algorithm.name)
    model = made_model(kind, arguments, settings)
    if isinstance(model, RobustUpdates) and isinstance(method, RobustPolicyMethod):
        model.method_critic = method.make_critic(model)
    # weights of the checkpoint, or of the agent that it starts from
    if checkpoint is not None:
        restore_model(model, *(checkpoint / name for name in AGENT_FILES))
    elif parts is not None:
        load_weights(model.policy, parts)
    return model


@dataclass(frozen=True)
class Hardened:
    """The result of :func:`train_agent`.

    Attributes:
        victim: the agent of the best checkpoint, acting as ``select`` says.
        threat: the threat that it was evaluated under at that checkpoint, its victim left open, so that ``evaluate``
            takes it; None for plain training, and with ``robust`` and discrete actions.
        record: one dictionary a checkpoint: ``steps``, ``adversary_steps``, ``clean``, ``attacked`` (mean returns),
            with ``robust`` and discrete actions ``gwc`` (the greedy worst-case return; ``gwc_acr`` is the share of its
            steps without a choice), their ``_std``, ``score``, where all episodes are lost alike ``max_diff`` (by the
            share of the budget the mean return under MaxDiff) and ``max_diff_score`` (the mean of that and of the clean
            return), ``late`` (of the second half), ``in_training`` and
            ``seconds`` of the processor for either side.
        best: index of the best checkpoint.
        began_with: the clean mean return of the agent that it began with, in the same episodes; None of a new one.
    """

    victim: Victim
    threat: ThreatModel | None
    record: tuple[dict[str, Any], ...]
    best: int
    began_with: float | None = None

    @property
    def protocol(self) -> str:
        """How the agent was chosen, in one sentence to print beside its figures."""
        row, last = self.record[self.best], self.record[-1]["steps"]
        count = sum(point["late"] for point in self.record)
        names = {"clean": "clean", "attacked": "attacked", "gwc": "greedy worst-case"}
        known = [name for key, name in names.items() if row.get(key) is not None]
        rule = "clean return" if known == ["clean"] else f"mean of {' and '.join(known)} return"
        if all("max_diff" in point for point in self.record if point["late"]):
            rule = "mean of clean return and return under MaxDiff in shares of the budget, since all is lost at each"
        return f"the best of {count} checkpoints by the {rule}, at {row['steps']} of {last} steps"

    @property
    def given_up(self) -> str:
        """What of the clean return it had on its way the agent gave up, in a sentence; "" for less than a fifth."""
        row, before = self.record[self.best], max(self.record, key=lambda point: point["clean"])
        most, then = before["clean"], f"after {before['steps']} steps"
        if self.began_with is not None and self.began_with > most:
            most, then = self.began_with, "as the agent that it began with"
        if not has_given_up(row["clean"], most):
            return ""
        return (
            f"without an attack it earned {number_text(most)} {then}, and earns {number_text(row['clean'])} now: more "
            f"steps may win that back, and a smaller eps gives up less"
        )


@checked
@holding
def train_agent(
    env: AnyEnvironment,
    adversary: str | Any = "auto",
    eps: float | None = None,
    steps: TrainingSteps = 1_000_000,
    algorithm: str | None = None,
    num_envs: EnvCount = 32,
    seed: TrainingSeed = 0,
    *,
    victim: Any = None,
    robust: Robust | Any = None,
    select: Select = "mode",
    rewards: Rewards = "normalized",
    gamma: Share | None = None,
    observations: Literal["normalized", "raw"] | None = None,
    scale: Any = None,
    within: Budget | None = None,
    when: Any = None,
    phase: TrainingSteps = 8192,
    ratio: AboveZero = 1.0,
    checks: TrainingSteps = 10,
    episodes: EpisodeCount = 20,
    out: str | Path | None = None,
    tensorboard: str | Path | None = None,
    progress: AgentProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    settings: Mapping[str, object] | None = None,
    adversary_settings: Mapping[str, object] | None = None,
    workers: Workers = 1,
    env_workers: Workers = 1,
    on_steps: Callable[[int], object] | None = None,
) -> Hardened:
    """Train an agent, against an adversary or without one.

    Args:
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`. Observations ``[n]``, or images uint8 ``[C, H, W]`` from 0 to 255 (an Atari
            id is made by :func:`adv_wrappers.atari.atari`); actions ``Box`` or ``Discrete``.
        adversary: ``"pa-ad"``, ``"sa-rl"`` or ``"forces"``, which learn too, a threat such as ``"max-diff"`` or
            ``"dynamics-noise:at=mass,eps=0.3"``, or ``"none"``; ``"auto"`` is pa-ad, or none with ``robust``. An actor
            learns alternately with the agent: PA-ATLA, ATLA, RARL. A threat attacks the agent as it is at that step.
            ``"none"`` or None is plain training, which ignores the budget.
        eps: radius of the l-infinity budget. Instead of it and ``scale``, ``within`` is the budget itself; a threat
            that has its own needs none.
        scale: of :class:`Linf`; ``"victim"`` is the agent's own unit, which changes with its normaliser.
        steps: the agent's steps, summed over all environments.
        algorithm: the agent's: ``"ppo"``, ``"a2c"``, ``"dqn"``, ``"td3"``, ``"ddpg"`` or ``"recurrent-ppo"``; None
            takes that of ``victim``, else ``"ppo"``. DQN is for discrete actions, TD3 and DDPG for actions in a Box and
            observations ``[n]``, RecurrentPPO (of sb3-contrib) for recurrent agents on observations ``[n]``. A victim
            with Q-values goes on by DQN, one with an LSTM by RecurrentPPO, others by PPO. Adversaries learn with PPO.
            Replay buffers are not kept in ``out``: a training that resumes fills them first.
        num_envs: environments of either side, attacked as one batch. With 1, where no second can be made beside it,
            both sides and the episodes of checkpoints share the one: each interrupts the episode of another.
        seed: seeds all randomness of the training.
        victim: the agent to start from: an SB3 model, a :class:`Victim` or its reference, with a policy of linear
            layers (of DQN, with or without layer normalisation behind the hidden ones; of RecurrentPPO behind an LSTM),
            or of convolutions and linear layers where it sees images. Its normaliser stays as it is (or missing). None
            starts from scratch, as TD3 and DDPG always do.
        robust: a loss against any perturbation in the budget, of smoothed in noise of sigma ``eps``; None takes the
            algorithm's own. For PPO and A2C ``"radial"``, ``"sa"`` or ``"wocar"``, or :class:`Radial`,
            :class:`SARegularizer` or :class:`Wocar` for other settings; for DQN ``"radial"``, ``"sa"`` or ``"car"``
            (:class:`RadialDQN`, :class:`SADQN`, :class:`CarDQN`).
            ``"smoothed"`` (:class:`SmoothedPolicy`, :class:`SmoothedDQN`) trains for randomized smoothing instead: eps
            is then the standard deviation of the noise. The budget is :class:`Linf`, of images in grey levels (a
            paper's 1/255 is 1). TD3, DDPG and recurrent agents have none.
        rewards: what the agent learns from: rewards normalized by the spread of returns, clipped to their signs, or
            raw.
        gamma: the discount factor of its returns, which ``settings`` may have instead; None takes 0.99.
        observations: what a new agent sees: observations normalized by their mean and spread, or raw; None takes
            ``"normalized"``. Images are only divided by 255, and a new DQN, TD3 or DDPG always sees them raw.
        select: how the agent acts in the adversary's phase, at checkpoints, and afterwards.
        when: timing of the adversary, such as ``bernoulli(0.5)``; None takes every step.
        phase: the agent's steps between two phases of the adversary (rounded up to whole rollouts).
        ratio: the adversary's steps for each of the agent's.
        checks: checkpoints, of which the second half is compared.
        episodes: episodes, clean and again attacked, that each checkpoint is judged by.
        out: a folder for the agent's card; the same call goes on where it stopped. It holds the best agent
            (``load_victim("card:FOLDER")``), the adversary that it met last (``FOLDER/adversary``), the record, and the
            checkpoints from which an interrupted training resumes, with new episodes. Nothing in it is unpickled, so
            resuming from somebody else's folder runs none of their code.
        tensorboard: a folder for SB3's logs.
        progress: called as ``progress(steps done, clean mean return, attacked mean return or None)``.
        on_steps: called as ``on_steps(steps done)`` between rollouts; an exception ends the training there.
        settings, adversary_settings: settings of the two algorithms, instead of the defaults.
        workers, env_workers: as for :func:`adv_wrappers.train_adversary`.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained. With several ``workers`` or
            ``env_workers`` :class:`WorkerError` for an environment that cannot be sent to another process, and for a
            process that dies.

    For example::

        hardened = train_agent("Hopper-v5", "pa-ad", 0.075, scale="victim", steps=2_000_000, out="hopper")
        evaluate(hardened.victim, "Hopper-v5", [hardened.threat, "max-diff:eps=0.075,scale=victim"])
    """
    check_env_workers(env_workers, 2)
    initial, kind = victim_and_algorithm(victim, algorithm)
    own = {} if settings is None else settings
    opposed = {} if adversary_settings is None else adversary_settings
    training = Training(
        steps=steps,
        algorithm=kind.name,
        num_envs=num_envs,
        checks=checks,
        episodes=episodes,
        seed=seed,
        settings=own,
        device="cpu",
        tensorboard=tensorboard,
        workers=workers,
        env_workers=env_workers,
    )
    # the adversary learns by PPO, from draws of its own
    opposing = replace(training, algorithm="ppo", seed=later_seed(seed, ADVERSARY_SEED), settings=opposed)
    # what several arguments say has to be the same
    if gamma is not None:
        if own.get("gamma", gamma) != gamma:
            raise ThreatError(f"gamma={gamma!r} and settings['gamma']={own['gamma']!r} differ: give one of them")
        own = {**own, "gamma": gamma}
    if observations is not None and initial is not None:
        raise ValueRangeError("observations= is of a new agent: that of victim= keeps its own")
    observations = "normalized" if observations is None else observations
    # what the agent is trained against: an adversary, a robust loss, or both
    if adversary == "auto":
        adversary = "pa-ad" if robust is None else None
    budget = given_budget(eps, scale, within)
    spec = AdversarySpec.parse(adversary, budget, when)
    if training.workers > 1:
        pickled("the threat", spec)
    hardening = parse_robust(robust, budget, kind)
    method = None if hardening is None else hardening.method
    parts = None if initial is None else networks_of_agent(initial)
    # the environment has to suit agent, algorithm and method
    environment = Environment.of(env, initial, env_kwargs, make)
    functions = () if spec.threat is None else functions_of(spec.threat)
    warn_of_unknown(out, None, environment, *functions)
    images = check_spaces(environment, initial, kind, method)
    training = replace(training, settings=algorithm_settings(kind, num_envs, own, parts, images, method))
    opposing = replace(opposing, settings=defaults.adversary_settings("ppo", num_envs, True, opposed))
    # What identifies the training: an option that is not here is ignored where a folder is resumed, and a new one whose
    # default is not None refuses the folders that earlier releases wrote.
    about = {
        **training.described(),
        "environment": json_value(environment.described),
        "adversary": spec.describe(),
        "phase": phase,
        "ratio": ratio,
        "select": select,
        "sampled": True,  # folders of 0.2.0 say whether the adversary explored in the agent's phase
        "victim": None if initial is None else initial.fingerprint(),
        "structure": None if initial is None else initial.structure(),
        "rewards": rewards,
        "observations": observations,
        "adversary_settings": describe_settings(opposing.settings if spec.learns else {}),
    }
    if hardening is not None:
        about["robust"] = hardening.describe()
    folder = TrainingFolder(out, "agent", about)
    opened = ExitStack()  # closes the environments at the end

    def make_rows() -> RowsVectorEnv:
        return opened.enter_context(closing(make_vector(played, num_envs, training.env_workers)))

    with opened, one_thread():
        played, most = environment, SIDE_BY_SIDE
        if num_envs == training.workers == 1 and only_one_runs(environment):
            one = opened.enter_context(closing(OneEnvironment(environment)))
            played, most = Environment(one), 1
        # both sides, new or from the last checkpoint
        checkpoint, normalize = folder.checkpoint, observations == "normalized"
        scored_under = None if spec.threat is None or spec.threat.on == "reward" else spec.threat
        model = make_agent(make_rows(), training, parts, checkpoint, rewards, method, normalize)
        agent = LearningAgent(model, live_victim(model, select), initial)
        if hardening is not None:
            bounds = BoundedPolicy(model, agent.victim, hardening.within, initial)
            make_robust(model, hardening.method, bounds)
            agent.bounds = bounds if hardening.method.bounded else None
            if agent.bounds is not None and scored_under is None and not spec.learns and not bounds.count:
                scored_under = as_threat("max-diff", within=budget)
        opponent = None
        if spec.actor is not None and spec.within is not None:
            opponent = LearningAdversary(
                spec.actor,
                spec.within,
                spec.when,
                agent=agent.victim,
                rows=make_rows(),
                training=opposing,
                phase=phase,
                ratio=ratio,
            )
            if checkpoint is not None:
                opponent.restore(checkpoint)
        agent.attack(spec.threat, opponent)
        # checkpoints are scored beside the training
        setup = ScoringSetup(played, episodes, training.seed, True, AgentScore(hardening), most)
        scoring = opened.enter_context(Scoring(setup, training.workers))
        fit = AgentFit(agent, opponent, scored_under, scoring, training, folder, progress=progress, on_steps=on_steps)
        fit.train()
        found, threat = fit.best()
        if hardening is not None:
            found = hardening.deployed(found)
        return Hardened(found, threat, tuple(folder.record), folder.best, fit.began_with.get("clean"))
