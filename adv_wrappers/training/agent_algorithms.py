"""The algorithms that agents are trained by, one line each: what they are for, and which robust methods they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm

from adv_wrappers.training.robust_dqn import RobustDQN, RobustQMethod
from adv_wrappers.training.robust_methods import ACTOR_METHODS, POLICY_METHODS, Q_METHODS
from adv_wrappers.training.robust_policy_losses import RobustMethod
from adv_wrappers.training.robust_ppo_a2c import RobustA2C, RobustPPO
from adv_wrappers.training.robust_td3 import RobustActorMethod, RobustDDPG, RobustTD3
from adv_wrappers.training.training_method import TrainingMethod
from adv_wrappers.victims.victim import OutputKind


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
    method: type[TrainingMethod] = RobustMethod
    methods: Mapping[str, type[TrainingMethod]] = field(default_factory=dict)


_ANY, _DISCRETE, _BOX = (spaces.Discrete, spaces.Box), (spaces.Discrete,), (spaces.Box,)
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
        AgentAlgorithm(
            "td3", _BOX, (), width=256, off_policy=True, robust=RobustTD3, method=RobustActorMethod,
            methods=ACTOR_METHODS,
        ),
        AgentAlgorithm(
            "ddpg", _BOX, (), width=256, off_policy=True, robust=RobustDDPG, method=RobustActorMethod,
            methods=ACTOR_METHODS,
        ),
        AgentAlgorithm("recurrent-ppo", _ANY, _POLICY, recurrent=True),
    )
}  # fmt: skip
