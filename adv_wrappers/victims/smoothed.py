"""Randomized smoothing of an agent: Gaussian noise on every observation (Kumar, Levine and Feizi 2022).

The agent acts on ``observation + N(0, sigma^2)`` at every step. What its return then is under any attack of a given
total length follows from its clean returns: :mod:`adv_wrappers.certification.smoothing`. The noise is added inside the
victim, to the observation as an attack left it, in floats, and is not clipped to the space: images become fractions of
grey levels, beyond 0 and 255 too. Clipping before the noise (the space, an integer grid) only limits the attacker.

Noise is drawn afresh for the whole observation at every step, frame stacks included. Kumar et al. add noise to each new
frame once, and the stack shows it four times; then the length of an attack counts each frame once. Here an attack may
change every frame of every stack anew, and its length counts all of that. An attacker beneath the stack, who changes a
frame by ``d``, changes four stacks by ``d`` each: twice the length in all (``sqrt(10)`` times for the first frame of an
episode where the stack begins with four of it).

An attacker knows the agent, sigma and all that was seen, and not the noise of the step. What it looks at
(:meth:`Smoothed.params`, its gradient, ``value``) is the average over ``samples`` draws of noise of its own, the same
at every step (Athalye et al. 2018 call it Expectation over Transformation): an attack on the network without noise
overestimates what a small change does. The draws come in pairs of opposite sign, so that their mean is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import one_hot

from adv_wrappers.core import rng
from adv_wrappers.core.types import Space
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.checks import integer, number
from adv_wrappers.victims.distributions import MultiCategoricalFamily
from adv_wrappers.victims.victim import Victim, VictimAround

_STREAM = 1 << 43  # folded into the keys of an agent's steps, so that noise and sampled actions share no draws
_ATTACKER = 1 << 44  # in its place for the noise that attackers average over
_LEAST = -1e30  # in place of logits of minus infinity, which have no gradient
SMOOTHING_SAMPLES = 16

NoiseSource = Callable[[int, tuple[int, ...]], Tensor]  # number and shape of a leaf to [B or 1, copies, *S]


class Smoothed(VictimAround):
    """A victim that adds Gaussian noise to its observation at every step.

    ``select`` is ``"sample"``: the agent's actions are random, and acting takes keys. So a run can be repeated, and
    clean and attacked runs on the same seeds have the same noise.

    Args:
        victim: the agent, without a hidden state.
        sigma: standard deviation of the noise, above 0, in the units of the observation or of ``scale``.
        vote: how many noisy copies of an observation are acted on; of discrete actions the most frequent is played (of
            equally frequent ones the first). 1 acts on one copy, as policy smoothing does.
        scale: the unit of sigma: None (that of the observation), a number, one number a feature, or ``"victim"`` for
            the victim's own (the standard deviations of its normaliser). Lengths of attacks are then in this unit too.
        samples: how many draws of noise an attacker averages over; 0 lets it look at the agent without noise.

    Attributes:
        victim: the agent without noise.
        sigma, vote, samples: as given.

    Of a Dict space the Box leaves get noise; lengths are those of all these leaves together, and nothing is certified
    where an attack may change another leaf.

    Raises:
        VictimError: for a victim with a hidden state, which would have to advance on the same noise; observations
            without a Box; several votes of continuous actions; a scale that does not fit.
        ValueRangeError: for other arguments out of range.

    >>> import torch
    >>> from adv_wrappers import load_victim
    >>> from adv_wrappers.victims.smoothed import Smoothed
    >>> victim = Smoothed(load_victim("zoo:cartpole-dqn"), sigma=0.1)
    >>> victim.ref
    'smoothed:zoo:cartpole-dqn?sigma=0.1'
    >>> victim.act_on(torch.zeros(3, 4), key=torch.arange(3)).shape
    torch.Size([3])
    """

    def __init__(
        self,
        victim: Victim,
        sigma: float,
        vote: int = 1,
        *,
        scale: float | Sequence[float] | str | None = None,
        samples: int = SMOOTHING_SAMPLES,
    ) -> None:
        super().__init__(victim, "sample")
        if victim.recurrent:
            raise VictimError(f"noise is for victims without a hidden state, got {victim!r}")
        self.sigma, self.vote = number("sigma", sigma, 0, above=True), integer("vote", vote, 1)
        self.samples = integer("samples", samples, 0)
        if self.vote > 1 and isinstance(victim.action_space, spaces.Box):
            raise VictimError(f"a majority is one of discrete actions, this victim acts in {victim.action_space}")
        # noise is added to numbers: every Box of the observation
        space = victim.observation_space
        self._shapes = [leaf.shape for leaf in _boxes(space)]
        if not self._shapes:
            raise VictimError(f"noise is added to a Box, or to those of a Dict, this victim sees {space}")
        self.unit = self._unit_of(scale)
        if isinstance(scale, (str, int, float, type(None))):  # else no text can say it
            usual = {"vote": 1, "samples": SMOOTHING_SAMPLES}
            self.ref = self.reference("smoothed", usual, sigma=self.sigma, vote=vote, scale=scale, samples=samples)
        self._own: list[Tensor] | None = None

    def _unit_of(self, scale: float | Sequence[float] | str | None) -> float | Tensor:
        """Standard deviation of the noise, a number or ``[*S]``."""
        if scale is None:
            return self.sigma
        if isinstance(scale, str):
            if scale != "victim" or self.scale is None:
                raise VictimError(
                    f"scale must be a number, one number a feature, or 'victim' for a victim with a unit of its own (a "
                    f"normaliser), got {scale!r} for {self.victim!r}"
                )
            return self.sigma * self.scale.to(self.device, self.dtype)
        # one number for every feature
        if isinstance(scale, (Sequence, np.ndarray, Tensor)):
            space = self.observation_space
            each = [number("scale", one, 0, above=True) for one in np.asarray(scale).reshape(-1)]
            if not isinstance(space, spaces.Box) or len(each) != math.prod(space.shape):
                raise VictimError(f"scale has {len(each)} numbers for observations of {space}")
            return self.sigma * torch.tensor(each, device=self.device, dtype=self.dtype).view(space.shape)
        return self.sigma * number("scale", scale, 0, above=True)

    # acting, with noise that nobody else knows

    def play(self, obs: Any, state: Any = None, key: Tensor | None = None) -> Tensor:
        """Native actions on noisy observations ``[B, ...]``; the noise of a row is drawn with its int64 key.

        Raises:
            VictimError: without keys.
        """
        if key is None:
            raise VictimError("this victim adds noise to what it sees: acting needs one key per row")
        noisy, keys = self.noisy(obs, key, self.vote)
        actions = self.victim.play(noisy, None, keys)
        return actions if self.vote == 1 else self._majority(actions.view(len(key), self.vote, -1))

    def noisy(self, obs: Any, key: Tensor, copies: int) -> tuple[Any, Tensor]:
        """Noisy copies of observations ``[B, *S]``, those of a row one after the other, and a key for each.

        Args:
            obs: observations as :meth:`params` takes them.
            key: int64 keys ``[B]``.
            copies: how many of each.

        Returns:
            Observations ``[B * copies, *S]`` and int64 keys ``[B * copies]``, whose draws the noise does not share.
        """
        base = rng.fold(key, _STREAM)
        many = self._spread(obs, copies, lambda i, s: rng.normal(rng.fold(base, i), (copies, *s), self.dtype))
        numbers = torch.arange(copies, device=key.device).repeat(len(key))
        return many, rng.fold(key.repeat_interleave(copies), numbers)

    def _majority(self, actions: Tensor) -> Tensor:
        """The most frequent native action of ``[B, copies, D]``, number by number: ``[B]``, or ``[B, D]``."""
        counted = one_hot((actions - self._start).long()).sum(1)
        found = self.native(counted.argmax(-1))
        return found.squeeze(-1) if isinstance(self.action_space, spaces.Discrete) else found

    def act(self, params: Tensor, key: Tensor | None = None) -> Tensor:
        """Raise :class:`VictimError`: parameters are an average over noise, and the agent acts on noise of its own."""
        raise VictimError("this victim acts on noisy observations: victim.act_on(observations, key=keys) acts on them")

    # what an attacker looks at

    def params(self, obs: Any, state: Any = None) -> Tensor:
        """The average over ``samples`` draws of noise: of Q-values, action probabilities, or means (and log-stds)."""
        if self.samples == 0:
            return self.victim.params(obs)
        out = self._averaged(obs, self.victim.params)
        if self.kind != "logits":
            return out.mean(1)
        parts = (
            torch.split(out, list(self.family.nvec), -1) if isinstance(self.family, MultiCategoricalFamily) else [out]
        )
        logs = [part.log_softmax(-1).clamp(min=_LEAST).logsumexp(1) for part in parts]
        return torch.cat(logs, -1) - math.log(self.samples)

    def value(self, obs: Any, state: Any = None) -> Tensor | None:
        """State value ``[B]``, averaged over noise; None where the victim has none."""
        if self.kind == "q" or not self.has_value or self.samples == 0:
            return super().value(obs) if self.kind == "q" else self.victim.value(obs)
        return self._averaged(obs, lambda noisy: self.victim.value(noisy)[:, None]).mean((1, 2))  # type: ignore[index]

    def _averaged(self, obs: Any, function: Callable[[Any], Tensor]) -> Tensor:
        """``function`` at every draw of the attacker's own noise, ``[B, samples, K]``."""
        if self._own is None:
            self._own = [self._own_noise(i, shape) for i, shape in enumerate(self._shapes)]
        own = self._own
        out = function(self._spread(obs, self.samples, lambda i, _: own[i]))
        return out.view(-1, self.samples, out.shape[-1])

    def _own_noise(self, leaf: int, shape: tuple[int, ...]) -> Tensor:
        """Draws ``[1, samples, *S]`` of unit variance, each followed by its opposite."""
        key = rng.as_tensor(rng.fold(rng.fold(rng.root(0), _ATTACKER), leaf), 1, torch.device("cpu"))
        half = rng.normal(key, ((self.samples + 1) // 2, *shape), self.dtype)
        return torch.stack([half, -half], 2).flatten(1, 2)[:, : self.samples].to(self.device)

    # both

    def _spread(self, obs: Any, copies: int, noise: NoiseSource) -> Any:
        """Every row ``copies`` times, one after the other, with noise ``[B or 1, copies, *S]`` in every Box leaf."""
        counted = iter(range(len(self._shapes)))

        def spread(value: Any, space: Space) -> Any:
            if isinstance(space, spaces.Dict):
                return {key: spread(value[key], leaf) for key, leaf in space.spaces.items()}
            if not isinstance(space, spaces.Box):
                return value.repeat_interleave(copies, 0) if isinstance(value, Tensor) else np.repeat(value, copies, 0)
            return (value[:, None] + self.unit * noise(next(counted), space.shape)).flatten(0, 1)

        return spread(self.taken(obs), self.observation_space)

    def acts_by(self) -> str:
        unit = self.unit.flatten().tolist() if isinstance(self.unit, Tensor) else self.unit
        return f"{unit} {self.vote} {self.samples}"

    def __repr__(self) -> str:
        votes = f", {self.vote} votes" if self.vote > 1 else ""
        return f"<Smoothed, sigma={self.sigma:g}{votes}, of {self.victim!r}>"


def _boxes(space: Space) -> list[spaces.Box]:
    """The Box leaves of a space, in order."""
    if isinstance(space, spaces.Dict):
        return [box for leaf in space.spaces.values() for box in _boxes(leaf)]
    return [space] if isinstance(space, spaces.Box) else []
