"""The default settings of the algorithms of Stable-Baselines3, by what they train; whatever a user gives comes first.

- Adversaries (:func:`adversary_settings`): see the head of :mod:`adv_wrappers.training.adversary`.
- Adversaries that learn when to attack: ``timing_settings`` of :mod:`adv_wrappers.training.resilience.resilience`.
- Agents (:func:`agent_settings`): see the head of :mod:`adv_wrappers.training.agent`.
- DQN of Behzadan and Hsu 2019: ``TABLE_5`` of :mod:`adv_wrappers.training.sb3.prioritized_dqn`.

Networks are not among them (``policy_kwargs``): they follow from what is observed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from adv_wrappers.training.sb3.director_networks import minibatch
from adv_wrappers.training.sb3.prioritized_dqn import TABLE_5

AlgorithmSettings = Mapping[str, Any]
_UPDATE_EVERY = 8  # steps of an agent of DQN, as in Oikarinen et al. 2020


def adversary_settings(algorithm: str, rows: int, flat: bool, given: AlgorithmSettings) -> dict[str, Any]:
    """Settings of an adversary's algorithm.

    Args:
        algorithm: ``"ppo"``, ``"a2c"`` or ``"dqn"``.
        rows: the number of environments.
        flat: whether observations have one dimension; else they are images.
        given: settings that take precedence.
    """
    if algorithm == "dqn":
        return {**TABLE_5, **given}
    common = {"gamma": 0.99, "gae_lambda": 0.95, "ent_coef": 0.0 if flat else 0.01}
    if algorithm == "a2c":
        return {**common, "n_steps": 16, "learning_rate": 7e-4, **given}
    steps = given.get("n_steps", 64 if flat else 128)
    batch, epochs = minibatch(rows, steps), 10 if flat else 4
    own = {"n_steps": steps, "batch_size": batch, "n_epochs": epochs, "learning_rate": 3e-4}
    return {**common, **own, **given}


def agent_settings(algorithm: str, rows: int, images: bool, given: AlgorithmSettings) -> dict[str, Any]:
    """Settings of an agent's algorithm.

    Args:
        algorithm: ``"ppo"``, ``"a2c"``, ``"dqn"``, ``"td3"``, ``"ddpg"``, or ``"recurrent-ppo"``, whose settings are
            those of PPO.
        rows: the number of environments.
        images: whether observations are images.
        given: settings that take precedence.
    """
    if algorithm == "dqn":
        own = {
            "gamma": 0.99,
            "learning_rate": 2e-3,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "batch_size": 128,
            "train_freq": max(_UPDATE_EVERY // rows, 1),
            "gradient_steps": max(rows // _UPDATE_EVERY, 1),
            "target_update_interval": 400,
            "exploration_fraction": 0.1,
            "exploration_final_eps": 0.05,
            "alpha": 0.0,
            "param_noise": False,
        }
        if images:  # those of Oikarinen et al. 2020, appendix B
            own |= {"learning_rate": 1.25e-4, "target_update_interval": 2000, "exploration_final_eps": 0.01}
            own["buffer_size"] = 50_000  # of 200 000, which take 11 GB as stacks of four frames
        return {**own, **given}
    if algorithm in ("td3", "ddpg"):  # those of SB3; one update for each step of an environment
        own = {"gamma": 0.99, "learning_rate": 1e-3, "buffer_size": 300_000, "learning_starts": 1000}
        return {**own, "batch_size": 256, "train_freq": 1, "gradient_steps": rows, **given}
    # those of algorithms on rollouts
    common = {"gamma": 0.99, "gae_lambda": 0.95}
    if algorithm == "a2c":
        return {**common, "n_steps": 16, "learning_rate": 7e-4, **given}
    if images:  # those of Huang et al. 2022, "The 37 implementation details of PPO"
        steps = given.get("n_steps", 128)
        own = {"n_steps": steps, "n_epochs": 4, "batch_size": math.gcd(256, rows * steps), "learning_rate": 2.5e-4}
        return {**common, **own, "clip_range": 0.1, "ent_coef": 0.01, **given}
    steps = given.get("n_steps", 64)
    own = {"n_steps": steps, "n_epochs": 10, "batch_size": math.gcd(128, rows * steps), "learning_rate": 3e-4}
    return {**common, **own, **given}
