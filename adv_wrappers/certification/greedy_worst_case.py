"""Episodes along one way through what is possible: the victim's own, and the worst of every step.

Oikarinen et al. 2020, Algorithm 2: at every step the possible actions are computed, those that the victim may take at
some observation within the budget, and of these the one of the smallest clean output is played (Q-values; of a policy
its logits, which have the order of the probabilities). The return is the greedy worst-case reward, GWC. It is an
estimate of the worst case, and no bound: what looks worst to the victim need not be. Whether a bound on outputs is
tight decides it too: with looser bounds more actions seem possible.

The action certification rate, ACR, is the share of steps with one possible action: whatever is done to the observation,
the victim acts as it would. It says nothing about how well that is, so it belongs beside the clean return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.deadline import NEVER, Deadline
from adv_wrappers.wrappers.layer import AnyEnv

Choose = Callable[[NDArray[np.bool_], Tensor], Tensor]


def own_action(possible: NDArray[np.bool_], outputs: Tensor) -> Tensor:
    """The action that the victim takes where nothing is perturbed, int64 ``[B]``."""
    return outputs.argmax(-1)


def worst_possible_action(possible: NDArray[np.bool_], outputs: Tensor) -> Tensor:
    """The possible action of the smallest clean output, int64 ``[B]`` (Algorithm 2, step 3)."""
    return outputs.masked_fill(~torch.as_tensor(possible, device=outputs.device), torch.inf).argmin(-1)


@dataclass(frozen=True)
class PlayedEpisodes:
    """What some episodes earned, one entry an episode.

    Attributes:
        returns: the returns; float64 ``[E]``, NaN where the time did not suffice.
        acr: the action certification rates, shares of the steps; float64 ``[E]``, NaN where the time did not suffice.
    """

    returns: Floats
    acr: Floats


def play_choices(
    envs: Sequence[AnyEnv],
    reachable: PossibleActions,
    seeds: Sequence[int],
    choose: Choose,
    on_episode: Callable[[int], None] | None = None,
    bounds_until: Deadline = NEVER,
    until: Deadline = NEVER,
) -> PlayedEpisodes:
    """Play one episode for each seed, and look at every step at what is possible.

    Args:
        envs: environments that are alike, in which episodes are played side by side.
        reachable: what the agent may do under the budget.
        seeds: the seeds that the environment is reset with.
        choose: which action is played, of the possible ones ``[B, A]`` and the victim's outputs ``[B, A]``: as
            :func:`own_action` or :func:`worst_possible_action`.
        on_episode: called with the number of finished episodes, whenever one finishes.
        bounds_until: until when it is looked at what is possible; then everything is taken to be possible.
        until: until when episodes are played, all but one step of each.

    Raises:
        ValueRangeError: for observations or rewards that are not finite.
    """
    episodes = len(seeds)
    returns, certified = np.zeros(episodes), np.zeros(episodes)
    lengths = np.zeros(episodes, np.int64)
    finished = np.zeros(episodes, bool)
    space = envs[0].observation_space
    start = int(reachable.victim.action_space.start)  # type: ignore[attr-defined]  # one discrete action
    for first in range(0, episodes, len(envs)):
        # as many episodes side by side as there are environments; what each that goes on shows
        playing = dict(zip(range(first, episodes), envs, strict=False))
        shown = {i: np.array(env.reset(seed=seeds[i])[0]) for i, env in playing.items()}
        while shown and not until.passed:
            now = list(shown)
            seen = np.stack([*shown.values()]).astype(space.dtype, copy=False)
            # where there is no time for bounds the path goes on without a certification rate
            if bounds_until.passed:
                outputs = reachable.outputs(seen)
                possible, certified[now] = np.ones(tuple(outputs.shape), bool), np.nan
            else:
                possible, outputs = reachable.at(seen)
                certified[now] += possible.sum(1) == 1
            lengths[now] += 1
            actions = (choose(possible, outputs) + start).cpu().numpy()
            for i, action in zip(now, actions, strict=True):
                observation, reward, terminated, truncated, _ = playing[i].step(action)
                returns[i] += float(reward)
                if not np.isfinite(returns[i]):
                    raise ValueRangeError(f"the environment returned a reward that is not finite: {reward}")
                shown[i] = np.array(observation)
                if terminated or truncated:
                    finished[i] = True
                    del shown[i]
                    if on_episode is not None:
                        on_episode(int(finished.sum()))
    # episodes that were cut short have no return
    returns[~finished] = certified[~finished] = np.nan
    return PlayedEpisodes(returns, certified / np.maximum(lengths, 1))
