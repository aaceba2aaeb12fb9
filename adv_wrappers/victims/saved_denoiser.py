"""Denoisers of observations: networks that reconstruct an observation from a perturbed one, and from what went before.

Two kinds have one network each, which says how far an observation was moved, counted in the budget that it was trained
for. ``plain``: the reconstruction is the observation without that. ``diffusion``: a denoising diffusion model (Ho, Jain
and Abbeel 2020), used after DMBP (Yang and Xu, ICLR 2024): an observation is taken for a sample of the last noise level
and is brought down level by level, each time by the posterior mean of the level below and noise of its own.

Both may be conditioned on the last reconstructions and the last action (``history``), as DMBP is. Where the episode is
younger than that, what is missing is zero and marked so.

A reconstruction is projected onto the budget around what was given, where the true observation must be: without that
the errors of a denoiser with history feed on themselves until it follows its own predictions alone.

The levels are written in coordinates in which an observation is not shrunk by noise (divided by ``sqrt(alpha_bar)``):
``x_i = x + sigma_i * unit * noise``. The posterior of Ho et al., equation 7, is then ``x_0 + (sigma_{i-1} / sigma_i)^2
(x_i - x_0)`` with the standard deviation ``sigma_{i-1} sqrt(1 - (sigma_{i-1} / sigma_i)^2)``, in units.

A denoiser is a folder with ``card.json`` and ``weights.safetensors``, which holds data and no code;
:func:`adv_wrappers.training.train_denoiser.train_denoiser` makes one.
"""

from __future__ import annotations

from pathlib import Path

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.types import Space
from adv_wrappers.errors import CardError, VictimError
from adv_wrappers.networks.card_format import Card, Weights
from adv_wrappers.utils.check_numbers import is_integer
from adv_wrappers.victims.build_card_networks import mlp
from adv_wrappers.victims.saved_network_base import SavedNetwork
from adv_wrappers.victims.victim import Victim

MOST_HISTORY, MOST_LEVELS = 100, 1000
Past = tuple[Tensor, Tensor, Tensor]  # reconstructions [B, H, n], the last action [B, k], which are known [B, H]


class DenoisingNetwork(nn.Module):
    """How far observations were moved, in units of a budget, and what they were without that.

    Args:
        net: from ``n`` numbers, those of the condition and one a noise level, to ``n``.
        mean, std: of clean observations, ``[n]``.
        unit: how far the budget allows every feature to be moved, ``[n]``.
        levels: the sizes of the noise, in units, from the smallest to the largest, ``[L]``; None for a plain denoiser.
        history: the number of reconstructions that are remembered.
        actions: how many numbers an action is, where any are remembered.
    """

    mean: Tensor
    std: Tensor
    unit: Tensor
    levels: Tensor | None

    def __init__(
        self,
        net: nn.Module,
        mean: Tensor,
        std: Tensor,
        unit: Tensor,
        levels: Tensor | None,
        history: int = 0,
        actions: int = 0,
    ) -> None:
        super().__init__()
        self.net, self.history, self.actions = net, history, actions if history else 0
        for name, value in (("mean", mean), ("std", std), ("unit", unit)):
            self.register_buffer(name, value)
        self.register_buffer("levels", levels)

    @staticmethod
    def inputs(features: int, levels: int, history: int, actions: int) -> int:
        """How many numbers the network takes."""
        return features + levels + (history * (features + 1) + actions if history else 0)

    def start(self, rows: int) -> Past:
        """The past of an episode that has none."""
        zeros, history = self.mean.new_zeros, self.history
        return zeros(rows, history, len(self.mean)), zeros(rows, self.actions), zeros(rows, history)

    @staticmethod
    def push(past: Past, obs: Tensor, act: Tensor) -> Past:
        """The past after an action ``[B, k]`` at the reconstruction ``obs`` ``[B, n]``."""
        known = torch.ones_like(past[2][:, :1])
        return torch.cat([past[0][:, 1:], obs[:, None]], 1), act, torch.cat([past[2][:, 1:], known], 1)

    def condition(self, past: Past | None) -> Tensor | None:
        """What the network is told of the past, ``[B, C]``; None without history."""
        if not self.history or past is None:
            return None
        seen, act, known = past
        seen = (seen - self.mean) / self.std * known[..., None]
        return torch.cat([seen.flatten(1), known, act * known[:, -1:]], 1)

    def noise(self, obs: Tensor, condition: Tensor | None, level: Tensor | None = None) -> Tensor:
        """How far every feature was moved: in units, and of a diffusion model divided by the size of the level.

        Args:
            obs: perturbed observations ``[B, n]``.
            condition: of :meth:`condition`.
            level: the number of the level of every row, int64 ``[B]``, for a diffusion model.
        """
        parts = [(obs - self.mean) / (self.std.square() + self.unit.square()).sqrt()]
        if self.levels is not None and level is not None:
            parts.append(nn.functional.one_hot(level, len(self.levels)).to(obs.dtype))
        if condition is not None:
            parts.append(condition)
        found: Tensor = self.net(torch.cat(parts, 1))
        return found

    def forward(self, obs: Tensor, past: Past | None, draws: Tensor | None = None) -> Tensor:
        """Reconstructions ``[B, n]``.

        Args:
            obs: observations ``[B, n]``.
            past: what went before, for a denoiser with history.
            draws: standard normal noise of a diffusion model, ``[D, L - 1, n]``: the mean of D reconstructions is
                returned. None for reverse steps without noise.
        """
        condition = self.condition(past)
        if self.levels is None:
            return obs - self.unit * self.noise(obs, condition).clamp(-1, 1)
        copies = 1 if draws is None else len(draws)
        x = obs.repeat_interleave(copies, 0)
        if condition is not None:
            condition = condition.repeat_interleave(copies, 0)
        for i in reversed(range(len(self.levels))):
            level = torch.full((len(x),), i, device=x.device)
            clean = x - self.levels[i] * self.unit * self.noise(x, condition, level)
            if i == 0:
                x = clean
                break
            below = self.levels[i - 1]
            share = (below / self.levels[i]).square()
            x = clean + share * (x - clean)
            if draws is not None:
                x = x + below * (1 - share).sqrt() * self.unit * draws[:, i - 1].repeat(len(obs), 1)
        return torch.clamp(x.view(len(obs), copies, -1).mean(1), obs - self.unit, obs + self.unit)


class Denoiser(SavedNetwork[DenoisingNetwork]):
    """A trained denoiser, read from its folder.

    Args:
        folder: holds ``card.json`` and ``weights.safetensors``.
        sha256: what the folder's hash must be, if given; it covers both files.

    Attributes:
        card: the parsed ``card.json``: network, victim, environment, ``budget``, ``errors`` and ``training``.
        net: the network.

    Raises:
        CardError: for files that are missing, malformed, of two different moments, or changed since ``sha256``.
    """

    name = "denoiser"
    card_kind = "denoiser"
    called = "denoiser"

    @staticmethod
    def _network(card: Card) -> DenoisingNetwork:
        where, network = card.where, card.section("network")
        most = {"features": 2**16, "actions": 2**16, "history": MOST_HISTORY, "levels": MOST_LEVELS}
        sizes = {}
        for name, largest in most.items():
            size, least = network.get(name), 1 if name == "features" else 0
            if not is_integer(size) or not least <= size <= largest:
                raise CardError(
                    f"{where}: network.{name} must be an integer from {least} to {largest}, got {size!r:.80}"
                )
            sizes[name] = size
        weights, features = Weights(card.tensors, where), sizes["features"]
        mean, std, unit = (weights.take(name, features).data for name in ("mean", "std", "unit"))
        levels = weights.take("levels", sizes["levels"]).data if sizes["levels"] else None
        if not bool((std > 0).all() and (unit >= 0).all()):
            raise CardError(f"{where}: standard deviations must be above 0, and units at least 0")
        if levels is not None and not bool((levels > 0).all() and (levels.diff() > 0).all()):
            raise CardError(f"{where}: levels must be above 0, each larger than the one before, got {levels.tolist()}")
        net = mlp(weights, "net", network, DenoisingNetwork.inputs(**sizes), features)
        weights.finish()
        return DenoisingNetwork(net, mean, std, unit, levels, sizes["history"], sizes["actions"])

    @property
    def history(self) -> int:
        """How many reconstructions it remembers."""
        return self.net.history

    @property
    def diffusion(self) -> bool:
        """Whether it is a diffusion model, whose reverse steps draw noise."""
        return self.net.levels is not None

    def net_like(self, x: Tensor) -> DenoisingNetwork:
        """The network in the dtype and on the device of ``x``."""
        return self._net_like(x)

    def check(self, victim: Victim) -> None:
        """Raise :class:`VictimError` unless a victim sees and acts in what this was trained on."""
        features = (len(self.net.mean),)
        if victim.observation_space.shape != features:
            raise VictimError(
                f"the denoiser takes observations of shape {features}, this victim sees {victim.observation_space}"
            )
        if self.history and (width := action_feature_count(victim.action_space)) != self.net.actions:
            raise VictimError(
                f"the denoiser remembers actions of {self.net.actions} numbers, those of this victim have {width}"
            )


def action_feature_count(space: Space) -> int:
    """How many numbers stand for an action: one a choice of a Discrete space, those of a Box.

    Raises:
        VictimError: for actions of other spaces.
    """
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return space.shape[0]
    raise VictimError(f"a denoiser knows actions that are one choice, or a Box of one dimension, got {space}")


def action_features(space: Space, act: Tensor) -> Tensor:
    """Native actions ``[B, ...]`` as numbers ``[B, k]``: of a Discrete space one-hot."""
    if isinstance(space, spaces.Discrete):
        return nn.functional.one_hot(act.long() - int(space.start), int(space.n))
    return act


def load_denoiser(ref: Denoiser | str | Path) -> Denoiser:
    """The denoiser in a folder; a denoiser is returned as it is.

    Raises:
        CardError: for a folder that holds no denoiser.
    """
    return ref if isinstance(ref, Denoiser) else Denoiser(str(ref).removeprefix("card:"))
