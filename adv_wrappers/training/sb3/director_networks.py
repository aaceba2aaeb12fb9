"""The networks of a director in training, and the deterministic director that they make.

Numbers go through two layers of 64 with tanh, those of several dimensions one after another. Images go through the
trunk of Mnih et al. 2015 at half its width: a director has as many decisions to learn as its victim has actions, and
the trunk is what a training costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor
from stable_baselines3.dqn.policies import DQNPolicy
from torch import Tensor, nn

from adv_wrappers.adversaries.director import Director
from adv_wrappers.core.types import Space
from adv_wrappers.errors import SpaceError, ThreatError
from adv_wrappers.networks.card import copy_of
from adv_wrappers.networks.policy_layers import Normalize

_SMALLEST = 36  # pixels: what the trunk's convolutions leave something of
_MOST_NUMBERS = 4096  # of a matrix that goes through linear layers


class DirectorCNN(BaseFeaturesExtractor):
    """Stacks of frames ``[B, C, H, W]``, channels first, of uint8 or of float pixels up to 255, to features."""

    def __init__(self, space: spaces.Box, features: int = 256) -> None:
        super().__init__(space, features)
        self.net = nn.Sequential(
            Normalize(torch.zeros(1), torch.full((1,), 255.0)),
            nn.Conv2d(space.shape[0], 16, 8, 4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
        )
        # how many numbers the convolutions give, found by running them
        with torch.no_grad():
            size = self.net(torch.zeros(1, *space.shape)).shape[1]
        self.net.extend([nn.Linear(size, features), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.float())
        return out


def sees_images(space: Space) -> bool:
    """Whether observations are images that :class:`DirectorCNN` is for: 84x84, or at least 36x36 of bytes."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3:
        return False
    return space.shape[1:] == (84, 84) or (min(space.shape[1:]) >= _SMALLEST and bool((space.high == 255).all()))


def policy_kwargs(space: Space, q: bool = False) -> dict[str, Any]:
    """What SB3's policies take for a director that sees this space.

    Args:
        space: what the director sees.
        q: whether it is a Q-network, whose layers for flat observations are those of
        :class:`.dqn.LayerNormQPolicy`.

    Raises:
        SpaceError: for observations that are no Box of a few numbers, and no images with their channels first.
    """
    std = {} if q else {"log_std_init": -0.7}
    if sees_images(space):
        return {"net_arch": [], "features_extractor_class": DirectorCNN, "normalize_images": False, **std}
    shape = space.shape or ()
    several = isinstance(space, spaces.Box) and len(shape) > 1 and math.prod(shape) <= _MOST_NUMBERS
    if len(shape) == 1 or (several and not (q and is_image_space(space))):  # SB3 would turn images, and divide by 255
        return {} if q else {"net_arch": [64, 64], "activation_fn": nn.Tanh, **std}
    raise SpaceError(
        f"an adversary that learns sees one Box of at most {_MOST_NUMBERS} numbers, or images with their channels "
        f"first, got {space}: attacks that do not learn, such as max-diff, take others, and keys by at="
    )


def director_of(model: Any) -> Director:
    """The deterministic policy of an SB3 model of PPO, A2C or DQN, on the processor.

    Raises:
        ThreatError: for another policy than linear layers on flat observations, or on :class:`DirectorCNN`.
    """
    policy, normal = model.policy, model.get_vec_normalize_env()
    # the layers behind the features, by the kind of policy
    head: list[nn.Module] = []
    if isinstance(policy, DQNPolicy):
        policy = policy.q_net
        head = [*policy.q_net]
    elif hasattr(getattr(policy, "mlp_extractor", None), "policy_net"):
        head = [*policy.mlp_extractor.policy_net, policy.action_net]
    features: Any = getattr(policy, "features_extractor", None)
    if not head or type(features) not in (FlattenExtractor, DirectorCNN):
        found = f"{type(model).__name__} with {type(policy).__name__} on {type(features).__name__}"
        raise ThreatError(
            f"expected a PPO, A2C or DQN model whose features are flat observations or DirectorCNN, got {found}: give "
            f"Director(nn.Sequential(...)) its layers"
        )
    # from observations to actions in one row of layers: flattened, normalised as in training, and the policy
    layers: list[nn.Module] = []
    if isinstance(features, FlattenExtractor) and len(model.observation_space.shape) > 1:
        layers.append(nn.Flatten())
    if isinstance(features, DirectorCNN):
        layers += features.net
    elif normal is not None and normal.norm_obs:
        mean, std = normal.obs_rms.mean, np.sqrt(normal.obs_rms.var + normal.epsilon)
        middle, unit = (torch.as_tensor(part, dtype=torch.float32).reshape(-1) for part in (mean, std))
        layers.append(Normalize(middle, unit, float(normal.clip_obs)))
    layers += head
    discrete = isinstance(model.action_space, spaces.Discrete)
    net = copy_of(layer for layer in layers if not isinstance(layer, nn.Identity))
    return Director(net.cpu(), discrete, clip=True)  # as SB3 does before every step


def rollout_of(model: BaseAlgorithm) -> int:
    """Environment steps between two updates of a model, all environments together."""
    steps = model.n_steps if isinstance(model, OnPolicyAlgorithm) else model.train_freq.frequency  # type: ignore[attr-defined]
    return int(steps * model.n_envs)


def minibatch(rows: int, steps: int) -> int:
    """256, or the largest divisor of a rollout below it."""
    return next(size for size in range(min(256, rows * steps), 0, -1) if rows * steps % size == 0)
