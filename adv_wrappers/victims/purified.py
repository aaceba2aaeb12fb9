"""Purified observations: the agent acts on a reconstruction of what it sees, and is not trained anew.

The reconstruction is that of a denoiser that was trained beside the agent
(:mod:`adv_wrappers.victims.saved_networks`). With ``history`` it is DMBP (Yang and Xu, "DMBP: Diffusion model-based
predictor for robust offline RL against state observation perturbations", ICLR 2024): a diffusion model of the next
state, conditioned on the last reconstructions and the last action. What is remembered is this victim's hidden state,
so an attack at a step meets the memory that the attacked observations before it have left, as the agent does.

What an attacker looks at is ``gradient``:

- ``"exact"``: the agent behind the denoiser, with the gradient through all of it;
- ``"bpda"``: the same answers, and the gradient as if the denoiser returned what it is given (backward pass
  differentiable approximation, Athalye, Carlini and Wagner 2018);
- ``"agent"``: the agent without the denoiser, for an attacker who does not know of it, as in the paper.

How the agent acts is the same in all three. A purifier is as strong as the strongest attack on it leaves it: what the
last two show alone is that its gradients mislead.

Departures from the paper, and choices that it leaves open. The paper draws the noise of the reverse steps afresh and
averages 50 reconstructions. Here ``draws`` of them are averaged, and their noise is the same at every step, drawn from
``seed``: the hidden state of a victim follows from what it saw alone, and an attacker who knows the agent knows the
noise as well, so nothing rests on a draw that he could not see. An attacker who does not know it looks at the victim
with another ``seed`` and more draws: that is the expectation over transformations (Athalye et al. 2018). The number of
reverse steps is that of the levels, which end where the budget does; the paper chooses it by the size of the noise. The
network and its training are those of :mod:`adv_wrappers.training.models.denoiser`. What is remembered of an agent that
samples its actions is the most likely one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core import rng
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.validation import Count, Seed, checked
from adv_wrappers.victims.saved_networks import Denoiser, Past, action_features, load_denoiser
from adv_wrappers.victims.victim import Victim, VictimAround

SeenGradient = Literal["exact", "bpda", "agent"]
PURIFIER_DRAWS = 4
_STREAM = 1 << 45  # of the noise, apart from that of other victims
_IN_TEXTS = "?&"  # what ends a reference, or an option


class Purified(VictimAround):
    """A victim that acts on the reconstruction of its observation.

    Args:
        victim: the agent, without a hidden state, with observations ``[n]``.
        denoiser: of its observations, or the folder that holds it.
        gradient: what an attacker looks at, ``"exact"``, ``"bpda"`` or ``"agent"`` (see above).
        draws: how many reconstructions of a diffusion model are averaged; 0 takes reverse steps without noise. Of no
            use to a plain denoiser.
        seed: of the noise of the reverse steps.

    Attributes:
        victim: the agent.
        denoiser, draws, seed: as given.
        seen: as given in ``gradient``.
        recurrent: whether the denoiser has history.

    Raises:
        VictimError: for a victim with a hidden state, and one that sees or acts in something else than the denoiser.
        CardError: for a folder that holds no denoiser.
        ValueRangeError: for other arguments out of range.
    """

    @checked
    def __init__(
        self,
        victim: Victim,
        denoiser: Denoiser | str | Path,
        gradient: SeenGradient = "exact",
        *,
        draws: Count = PURIFIER_DRAWS,
        seed: Seed = 0,
    ) -> None:
        super().__init__(victim)
        if victim.recurrent:
            raise VictimError(f"a denoiser stands before victims without a hidden state, got {victim!r}")
        self.draws, self.seed = draws, seed
        if not isinstance(victim.observation_space, spaces.Box) or len(victim.observation_space.shape) != 1:
            raise VictimError(f"a denoiser takes a Box of one dimension, this victim sees {victim.observation_space}")
        # with a history the reconstructions before are the victim's hidden state
        self.denoiser, self.seen = load_denoiser(denoiser), gradient
        self.denoiser.check(victim)
        self.recurrent = self.denoiser.history > 0
        folder = self.denoiser.folder
        if folder is not None and not any(mark in folder for mark in _IN_TEXTS):  # else no text can say it
            usual = {"gradient": "exact", "draws": PURIFIER_DRAWS, "seed": 0}
            self.ref = self.reference("purified", usual, denoiser=folder, gradient=gradient, draws=draws, seed=seed)
        self._net = self.denoiser.net_like(torch.zeros(0, dtype=self.dtype, device=self.device))
        self._noise = self._fixed_noise()

    def _fixed_noise(self) -> Tensor | None:
        """Draws ``[draws, L - 1, n]``, each followed by its opposite, so that their mean is zero."""
        levels = self._net.levels
        if levels is None or self.draws == 0:
            return None
        key = rng.as_tensor(rng.fold(rng.root(self.seed), _STREAM), 1, torch.device("cpu"))
        shape = (self.draws + 1) // 2, len(levels) - 1, len(self._net.mean)
        half = rng.normal(key, shape, self.dtype)[0]
        return torch.stack([half, -half], 1).flatten(0, 1)[: self.draws].to(self.device)

    def purify(self, obs: Any, state: Any = None) -> Tensor:
        """Reconstructions ``[B, n]`` of observations ``[B, n]``, differentiable in them.

        Args:
            obs: observations as :meth:`params` takes them.
            state: what is remembered, as :meth:`initial_state` and :meth:`advance` make it; None at the beginning of an
                episode.
        """
        obs = self.taken(obs)
        past = self.initial_state(len(obs)) if state is None else state
        found: Tensor = self._net(obs, past, self._noise)
        return found

    def _seen(self, obs: Any, state: Any) -> Any:
        """What the agent sees, as far as the attacker knows, with the gradient that he takes."""
        if self.seen == "agent":
            return obs
        if self.seen == "exact":
            return self.purify(obs, state)
        obs = self.taken(obs)
        with torch.no_grad():
            found = self.purify(obs, state)
        return found + (obs - obs.detach())  # zero, with the gradient of the observation

    # acting

    def play(self, obs: Any, state: Any = None, key: Tensor | None = None) -> Tensor:
        """Native actions at the reconstructions of observations ``[B, n]``."""
        return self.victim.play(self.purify(obs, state), None, key)

    def act(self, params: Tensor, key: Tensor | None = None) -> Tensor:
        """Native actions by :meth:`params`, where these are what the agent acts by.

        Raises:
            VictimError: where they are those of the agent without the denoiser.
        """
        if self.seen == "agent":
            raise VictimError(
                "these parameters know nothing of the denoiser that the agent acts behind: "
                "victim.act_on(observations) acts on observations"
            )
        return self.victim.act(params, key)

    def initial_state(self, rows: int) -> Past | None:
        """Nothing is known yet; None for a denoiser without history."""
        return self._net.start(rows) if self.recurrent else None

    def advance(self, obs: Any, state: Any) -> Past | None:
        """What is remembered after acting on ``obs``: its reconstruction, and the action there."""
        if not self.recurrent:
            return None
        with torch.no_grad():
            found = self.purify(obs, state)
            act = self.victim.mode(self.victim.params(found))
            numbers = action_features(self.action_space, act).to(self.dtype)
            return self._net.push(self._net.start(len(found)) if state is None else state, found, numbers)

    # what an attacker looks at

    def params(self, obs: Any, state: Any = None) -> Tensor:
        """Parameters of the action distribution ``[B, K]`` at the reconstruction (``"agent"``: at the observation)."""
        return self.victim.params(self._seen(obs, state))

    def value(self, obs: Any, state: Any = None) -> Tensor | None:
        """State value ``[B]`` at the reconstruction; None where the victim has none."""
        return self.victim.value(self._seen(obs, state)) if self.has_value else None

    # what it is

    def acts_by(self) -> str:
        return f"{self.denoiser.sha256} {self.seen} {self.draws} {self.seed}"

    def __repr__(self) -> str:
        kind = "a diffusion model" if self.denoiser.diffusion else "a plain denoiser"
        past = f" with {self.denoiser.history} steps of history" if self.recurrent else ""
        return f"<Purified by {kind}{past}, {self.seen} gradient, of {self.victim!r}>"
