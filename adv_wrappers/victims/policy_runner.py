"""The policy runner: acts for a victim in many episodes at once, one hidden state a row, reproducibly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from adv_wrappers.core import rng
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.core.types import Array
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.utils.trees import is_text, leaves, map_leaves, merge, select
from adv_wrappers.victims.victim import Victim

_STREAM = 1 << 42  # folded where layers fold the number of an episode, so an agent never shares an attack's draws


class PolicyRunner:
    """Runs the policy of one victim in ``rows`` episodes side by side.

    A sampling victim draws with the key of (seed of the row's episode, t): a run can be repeated, and does not depend
    on how many rows there are. A recurrent victim has one hidden state a row.

    Args:
        victim: the policy that acts.
        rows: the number of environments.
    """

    def __init__(self, victim: Victim, rows: int) -> None:
        self.victim, self.rows = victim, rows
        self.state: Any = victim.initial_state(rows)
        self._roots = rng.roots([rng.fold(rng.root(row), _STREAM) for row in range(rows)])
        self._t = np.zeros(rows, np.int64)
        space = victim.action_space
        self._dtype = np.dtype(np.int64) if victim.discrete else np.dtype(space.dtype or np.float32)

    def reset(self, mask: NDArray[np.bool_] | None = None, seeds: Sequence[int | None] | int | None = None) -> None:
        """Begin a new episode in some rows.

        Args:
            mask: the rows, bool ``[rows]``; None for all.
            seeds: one seed a row, read in the rows of ``mask`` alone (an integer s stands for s + i for row i). A row
                without a seed derives its draws from those of its previous episode.
        """
        mask = np.ones(self.rows, bool) if mask is None else mask
        given = seeds if seeds is None or isinstance(seeds, Sequence) else [int(seeds) + i for i in range(self.rows)]
        for row in np.flatnonzero(mask).tolist():
            seed = None if given is None else given[row]
            # without a seed the row's own draws go on, as if it had another one
            fresh = rng.fold(int(self._roots[row]), 0) if seed is None else rng.fold(rng.root(seed), _STREAM)
            self._roots[row] = fresh
        self._t[mask] = 0
        if self.victim.recurrent:
            self.state = merge(torch.as_tensor(mask), self.victim.initial_state(self.rows), self.state)

    def act(self, obs: Any) -> Array:
        """Act at observations, and advance by one step.

        Args:
            obs: observations ``[rows, *S]``, or a dictionary of them.

        Returns:
            Native actions ``[rows, ...]``: int64 for discrete actions, else the dtype of the action space.

        Raises:
            ValueRangeError: for observations that are not finite.
            VictimError: for a victim that answers with another shape than it promised, or not with finite numbers.
        """
        inputs = self._to_victim(obs)
        action = self._select_action(inputs, self.state, None)
        if self.victim.recurrent:
            with torch.no_grad():
                self.state = self.victim.advance(inputs, self.state)
        self._t += 1
        return action

    def act_one(self, obs: Any) -> Any:
        """:meth:`act` at one observation ``[*S]``, or a dictionary or tuple of some, of a runner of one row."""
        single = obs if isinstance(obs, (dict, tuple)) else np.asarray(obs)
        return self.act(map_leaves(lambda leaf: np.asarray(leaf)[None], single))[0]

    def episode(self, env: Any, seed: int | None) -> Iterator[tuple[Any, bool]]:
        """An episode of one environment, played by a runner of one row; a step is taken when it is asked for.

        Yields:
            Every observation, that of the reset first, and whether the episode is over with it.
        """
        obs, _ = env.reset(seed=seed)
        self.reset(None, [seed])
        over = False
        yield obs, over
        while not over:
            obs, _, terminated, truncated, _ = env.step(self.act_one(obs))
            over = bool(terminated or truncated)
            yield obs, over

    def peek(self, obs: Any, rows: NDArray[np.intp] | None = None) -> Array:
        """The actions that :meth:`act` would return at ``obs``, for some rows (None for all); nothing advances."""
        return self._select_action(self._to_victim(select(obs, rows)), select(self.state, rows), rows)

    def params(self, obs: Any, rows: NDArray[np.intp] | None = None) -> torch.Tensor:
        """The victim's parameters ``[n, K]`` at ``obs``, for some rows (None for all); nothing advances."""
        with torch.no_grad():
            inputs = self._to_victim(select(obs, rows))
            params = self.victim.params(inputs, select(self.state, rows))
            self.victim.check_params(params, len(next(leaves(inputs))))
            return params

    def mode(self, obs: Any) -> Array:
        """The most likely native actions ``[rows, ...]`` at ``obs``; nothing advances."""
        params = self.params(obs)
        with torch.no_grad():
            return self._to_native(self.victim.mode(params))

    def _to_victim(self, obs: Any) -> Any:
        self._check_finite(obs)
        return to_victim(obs, self.victim.dtype, self.victim.device, True, space=self.victim.observation_space)

    def _check_finite(self, obs: Any) -> None:
        for leaf in leaves(obs):
            if isinstance(leaf, str) or is_text(leaf):
                continue
            # the sum of finite numbers is finite but for overflow, which the second check finds
            if leaf.dtype.kind == "f" and not math.isfinite(float(leaf.sum())) and not np.isfinite(leaf).all():
                raise ValueRangeError(f"the environment handed out an observation that is not finite: {leaf}")

    def _select_action(self, inputs: Any, state: Any, rows: NDArray[np.intp] | None) -> Array:
        key = None
        if self.victim.select == "sample":
            roots, t = (self._roots, self._t) if rows is None else (self._roots[rows], self._t[rows])
            key = rng.as_tensor(rng.fold(roots, t), len(t), self.victim.device)
        with torch.no_grad():
            return self._to_native(self.victim.play(inputs, state, key))

    def _to_native(self, action: torch.Tensor) -> Array:
        out = action.cpu().numpy().astype(self._dtype, copy=False)
        # finite parameters make other numbers where a standard deviation overflows
        if out.dtype.kind == "f" and not np.isfinite(out).all():
            raise VictimError(f"{self.victim!r} acts with numbers that are not finite: {out}")
        return out
