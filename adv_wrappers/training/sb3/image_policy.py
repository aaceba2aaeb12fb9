"""The policy of agents that see images: convolutions for PPO and A2C, as fast as a processor allows.

Weights and pictures have their channels last in memory, and the convolutions of rollouts and of the standard loss
compute in bfloat16, which is twice as fast on a processor and as good for learning (``examples/ppo_atari.py`` does the
same). Bounds, evaluations and cards compute in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.networks.tracing import layers_in_order
from adv_wrappers.victims import Victim
from adv_wrappers.victims.sb3.networks import is_image_space

Conv = tuple[int, int, int]  # channels, kernel, stride
NATURE: tuple[Conv, ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # Mnih et al. 2015


def is_stack(space: object) -> bool:
    """Whether observations are pictures, channels or frames first, uint8 from 0 to 255."""
    return isinstance(space, spaces.Box) and is_image_space(space) and space.shape[0] < min(space.shape[1:])


class ImageTrunk(BaseFeaturesExtractor):
    """Convolutions and one linear layer, each with a ReLU, from pictures in [0, 1] to features.

    Args:
        observation_space: of pictures ``[C, H, W]``.
        features_dim: the width of the linear layer.
        convs: channels, kernel and stride of each convolution.
    """

    def __init__(
        self, observation_space: spaces.Space[object], features_dim: int = 512, convs: tuple[Conv, ...] = NATURE
    ) -> None:
        super().__init__(observation_space, features_dim)
        assert observation_space.shape is not None
        channels, *sides = observation_space.shape
        layers: list[nn.Module] = []
        for out, kernel, stride in convs:
            layers += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
            channels, sides = out, [(side - kernel) // stride + 1 for side in sides]
        width = channels * sides[0] * sides[1]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, features_dim), nn.ReLU())

    def forward(self, observations: Tensor) -> Tensor:
        found: Tensor = self.layers(observations)
        return found


class ImagePolicy(ActorCriticCnnPolicy):
    """SB3's policy for images whose convolutions compute in bfloat16 in rollouts and in the standard loss."""

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _features(self, obs: PyTorchObs) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16):
            features = self.extract_features(obs)
        assert isinstance(features, Tensor)  # one extractor for policy and value
        return features.float()

    def forward(self, obs: Tensor, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        features = self._features(obs)
        distribution = self._get_action_dist_from_latent(features)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, self.value_net(features), distribution.log_prob(actions)

    def evaluate_actions(self, obs: PyTorchObs, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        features = self._features(obs)
        distribution = self._get_action_dist_from_latent(features)
        return self.value_net(features), distribution.log_prob(actions), distribution.entropy()


@dataclass(frozen=True)
class ImageNetworks:
    """The networks of an agent that sees images.

    Attributes:
        trunk: convolutions and one linear layer, which policy and value share.
        policy: the last layer of the policy.
        value: the last layer of the value; None where the victim has none on the same trunk.
    """

    trunk: tuple[nn.Conv2d | nn.Linear, ...]
    policy: nn.Linear
    value: nn.Linear | None

    normalise = None  # pictures are divided by 255, and nothing is learned of that

    @property
    def policy_kwargs(self) -> dict[str, object]:
        """The ``policy_kwargs`` of :class:`ImagePolicy` for networks of the same sizes."""
        *convs, hidden = self.trunk
        shapes = tuple((c.out_channels, c.kernel_size[0], c.stride[0]) for c in convs if isinstance(c, nn.Conv2d))
        return image_policy_kwargs(shapes, hidden.weight.shape[0])

    @property
    def layers(self) -> tuple[nn.Module, ...]:
        """Those of trunk and policy."""
        return *self.trunk, self.policy

    @property
    def value_layers(self) -> tuple[nn.Module, ...]:
        """Those of the value alone."""
        return () if self.value is None else (self.value,)


def image_policy_kwargs(convs: tuple[Conv, ...] = NATURE, features_dim: int = 512) -> dict[str, object]:
    """The ``policy_kwargs`` of :class:`ImagePolicy`."""
    return {
        "features_extractor_class": ImageTrunk,
        "net_arch": [],
        "features_extractor_kwargs": {"convs": convs, "features_dim": features_dim},
    }


def image_networks_of(victim: Victim) -> ImageNetworks:
    """The parts of a victim that sees images: convolutions, one hidden linear layer, ReLUs between, two heads.

    Raises:
        VictimError: for recurrent victims and other networks.
    """
    net, valued = getattr(victim, "net", None), getattr(victim, "value_net", None)
    layers = layers_in_order(net) if isinstance(net, nn.Module) and not victim.recurrent else None
    found = None if layers is None else _parts(layers)
    if found is None:
        what = "a recurrent victim" if victim.recurrent else str(net)
        raise VictimError(
            "expected pictures over 255, convolutions without padding, one hidden linear layer, and ReLUs between, "
            f"got {what:.300}"
        )
    # a value is taken over where it shares the policy's trunk
    trunk, policy = found
    others = None if not isinstance(valued, nn.Module) else _parts(layers_in_order(valued) or [])
    shared = others is not None and all(
        torch.equal(mine.weight, theirs.weight) for mine, theirs in zip(trunk, others[0], strict=False)
    )
    return ImageNetworks(trunk, policy, others[1] if others is not None and shared else None)


def _parts(layers: list[nn.Module]) -> tuple[tuple[nn.Conv2d | nn.Linear, ...], nn.Linear] | None:
    first, *rest = layers or [nn.Identity()]
    # pictures over 255, then convolutions and two linear layers, with a ReLU between any two
    over_255 = isinstance(first, Normalize) and bool((first.mean == 0).all() and (first.std == 255).all())
    weighted = [layer for layer in rest if isinstance(layer, (nn.Conv2d, nn.Linear))]
    if not over_255 or first.clip is not None or len(weighted) < 3:
        return None
    *convs, hidden, last = weighted
    expected = [kind for _ in convs for kind in (nn.Conv2d, nn.ReLU)] + [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    if [type(layer) for layer in rest] != expected or any(layer.bias is None for layer in weighted):
        return None
    assert isinstance(hidden, nn.Linear) and isinstance(last, nn.Linear)
    plain = all(
        isinstance(c, nn.Conv2d)
        and (c.padding, c.dilation, c.groups) == ((0, 0), (1, 1), 1)
        and c.kernel_size[0] == c.kernel_size[1]
        and c.stride[0] == c.stride[1]
        for c in convs
    )
    return ((*convs, hidden), last) if plain else None
