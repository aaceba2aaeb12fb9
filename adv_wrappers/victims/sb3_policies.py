"""Which of SB3's policies an object is, told by the names of its classes, so that SB3 need not be imported."""

from __future__ import annotations

from typing import Any

from torch import nn

from adv_wrappers.core.errors import VictimError

_USED = {
    "ActorCriticPolicy": (
        "get_distribution",
        "_predict",
        "predict_values",
        "extract_features",
        "_get_action_dist_from_latent",
    ),
    "DQNPolicy": ("_predict", "forward"),
    "QRDQNPolicy": ("_predict", "forward"),
    "SACPolicy": ("_predict", "forward"),
    "TD3Policy": ("_predict", "forward"),
}


def by_function(name: str) -> str:
    """What to do about a policy that there is no class of victims for."""
    return (
        f"no victim is made of {name} itself: give its actor to from_module, such as from_module(torch.nn.Sequential("
        "policy.actor.latent_pi, policy.actor.mu, torch.nn.Tanh()), observation_space, action_space, 'mean') for TQC "
        "and CrossQ, policy.action_net for ARS, or any function from observations to actions, logits or Q-values"
    )


def family_of(policy: Any) -> str:
    """Which of the known policies this is; a class that overrides what it computes is not one of them."""
    classes = {
        c.__name__: c
        for c in reversed(type(policy).__mro__)
        if c.__module__.split(".")[0] in ("stable_baselines3", "sb3_contrib")
    }
    family = next((name for name in _USED if name in classes), None)
    if family is None and classes:
        raise VictimError(by_function(type(policy).__name__))
    if family is None or not isinstance(policy, nn.Module):
        raise VictimError(
            "expected a model or policy of DQN, QR-DQN, PPO, A2C, SAC, TD3, DDPG or RecurrentPPO, "
            f"got {type(policy).__name__}; from_module takes any function from observations to actions"
        )
    for name in _USED[family]:
        if getattr(type(policy), name).__module__.split(".")[0] not in ("stable_baselines3", "sb3_contrib"):
            raise VictimError(f"{type(policy).__name__} overrides {name}: use from_module with a function of your own")
    return family
