"""Exploration by noise on the parameters of a Q-network (Plappert et al. 2018, Parameter Space Noise for Exploration).

A copy of the Q-network with Gaussian noise on its linear layers acts for an episode. Noise is as strong as
``eps``-greedy exploration would be: its standard deviation grows by 1% while the divergence KL(softmax Q || softmax
noisy Q) is below ``-log(1 - eps + eps / n)``, n actions, and shrinks by 1% while it is not (appendix C.1).
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from adv_wrappers.core.types import Array

_PACE = 1.01  # of the standard deviation, a step


class ParameterNoise(nn.Module):
    """Exploration by noise on the parameters of a Q-network; see the head of this file.

    Args:
        net: the Q-network, whose weights this follows.

    Attributes:
        acting: the noisy copy that acts, until the next :meth:`perturb`.
        std: standard deviation of the noise.
    """

    std: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.acting = copy.deepcopy(net)
        self.register_buffer("std", torch.tensor(0.01))
        self._others = net, copy.deepcopy(net)  # in a tuple, so that they are not saved along with the acting copy
        self._weights = list(net.parameters())
        # a copy's weights are parts of one vector: one draw of noise for all of them
        self._vectors = [parameters_to_vector(self._weights).detach().clone() for _ in range(2)]
        for part, vector in zip((self.acting, self._others[1]), self._vectors, strict=True):
            vector_to_parameters(vector, part.parameters())
        linear = [isinstance(layer, nn.Linear) for layer in net.modules() for _ in layer.parameters(recurse=False)]
        parts = (torch.full_like(weight, on) for weight, on in zip(self._weights, linear, strict=True))
        self._noisy = parameters_to_vector(parts).detach()  # 1 where there is noise, else 0
        self.perturb()

    def _fill(self, vector: Tensor) -> None:
        vector.copy_(parameters_to_vector(self._weights)).addcmul_(torch.randn_like(vector), self._noisy * self.std)

    @torch.no_grad()
    def perturb(self) -> None:
        """Give the acting copy the present weights and new noise."""
        self._fill(self._vectors[0])

    @torch.no_grad()
    def adapt(self, observations: Tensor, rate: float) -> None:
        """Compare a newly perturbed copy with the network, and correct the standard deviation.

        Args:
            observations: ``[B, *S]``.
            rate: the exploration rate that the noise is to correspond to, from 0 to 1.
        """
        self._fill(self._vectors[1])
        plain, noisy = (functional.log_softmax(net(observations), 1) for net in self._others)
        divergence = float((plain.exp() * (plain - noisy)).sum(1).mean())
        allowed = -math.log(1 - rate + rate / plain.shape[1])
        self.std.mul_(_PACE if divergence < allowed else 1 / _PACE)

    @torch.no_grad()
    def act(self, observations: Tensor) -> Array:
        """Actions ``[B]`` of the acting copy."""
        found: Array = self.acting(observations).argmax(1).cpu().numpy()
        return found
