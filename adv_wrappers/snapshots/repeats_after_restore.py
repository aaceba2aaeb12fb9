"""Whether an environment repeats after a snapshot of it was restored: a few steps are played twice and compared."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.spaces import action_mask_of
from adv_wrappers.core.types import Flags, Info
from adv_wrappers.errors import SnapshotError
from adv_wrappers.snapshots.restore_by_replaying import recorders_of
from adv_wrappers.snapshots.snapshot import Snapshot


class _Answer(NamedTuple):
    """What an environment returned to one action."""

    observation: Any
    reward: object
    terminated: Flags
    truncated: Flags
    info: Info


def check_repeats(env: Any, action: Any = None, steps: int = 3, action_space: spaces.Space[Any] | None = None) -> None:
    """Play a few steps twice from the present state, compare them to the bit, and return to it.

    What a wrapper measures by the clock on the wall, ``info["episode"]["t"]``, is not compared. Where a recorder is
    around an environment whose contents do not repeat, its episodes are replayed from then on
    (:class:`adv_wrappers.snapshots.ReplayRecorder`); if they do repeat, it records no more.

    Args:
        env: the environment, reset before; an ``Env`` or a ``VectorEnv`` in this process.
        action: the first action; None draws it, as the later ones are: not from the environment's own generators, and
            by the ``action_mask`` of its infos.
        steps: how many steps are played, fewer where the episode is over before.
        action_space: from which actions are drawn; None for the environment's own. Agents may number them otherwise.

    Raises:
        SnapshotError: for an environment that cannot be saved, for one that was not reset, and for one that answers
            differently the second time, naming what differs.
    """
    before = Snapshot.of(env)
    moments = [(recorder, recorder.at) for recorder in recorders_of(env) if recorder.at and not recorder.why]
    space = env.action_space if action_space is None else action_space
    where = _difference(env, before, action, steps, space)
    if where and moments:
        for recorder, moment in moments:
            recorder.replay(f"does not repeat after its contents were restored: {where}", moment)
        before = Snapshot.of(env)
        where = _difference(env, before, action, steps, space)
    if where:
        raise SnapshotError(
            f"{env} does not repeat: {where}; it has a state outside Python's objects, or draws from a generator that "
            f"it does not hold itself"
        )
    for recorder, _ in moments:
        recorder.save_contents()


def _difference(env: Any, before: Snapshot, action: Any, steps: int, space: spaces.Space[Any]) -> str:
    """Where a few steps from a snapshot differ the second time, "" where they do not; the state is the same after."""
    try:
        first, actions = list[_Answer](), list[Any]()
        for played, answer in _play(env, action, steps, copy.deepcopy(space)):
            actions.append(played)
            first.append(answer)
        before.restore(env)
        for number, (one, played) in enumerate(zip(first, actions, strict=True), 1):
            two = copy.deepcopy(_Answer(*env.step(played)))
            for name, part, again in zip(_Answer._fields, one, two, strict=True):
                where = difference(part, again, name)
                if where:
                    return f"step {number} after a restore has another {where}"
        return ""
    except gym.error.ResetNeeded as error:
        raise SnapshotError(f"{env} has no state yet: call reset first") from error
    finally:
        before.restore(env)


def _play(env: Any, action: Any, steps: int, space: spaces.Space[Any]) -> Iterator[tuple[Any, _Answer]]:
    space.seed(0)
    action = space.sample() if action is None else action
    for _ in range(steps):
        answer = copy.deepcopy(_Answer(*env.step(action)))
        yield action, answer
        if np.all(np.asarray(answer.terminated) | np.asarray(answer.truncated)):
            return
        mask = action_mask_of(answer.observation, answer.info)
        action = space.sample() if mask is None else space.sample(np.asarray(mask, np.int8))


def difference(one: object, two: object, name: str) -> str:
    """Where two answers differ, "" where they do not."""
    if name == "info[episode][t]":  # seconds
        return ""
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        one, two = one.detach().cpu().numpy(), two.detach().cpu().numpy()
    if type(one) is not type(two):
        return f"{name} ({one!r:.60}, then {two!r:.60})"
    if isinstance(one, dict) and isinstance(two, dict):
        if one.keys() != two.keys():
            return f"{name} (with {sorted(map(str, one.keys() ^ two.keys()))} only once)"
        return next(filter(None, (difference(one[key], two[key], f"{name}[{key}]") for key in one)), "")
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)) and len(one) == len(two):
        parts = (difference(a, b, f"{name}[{i}]") for i, (a, b) in enumerate(zip(one, two, strict=True)))
        return next(filter(None, parts), "")
    if isinstance(one, np.ndarray) and one.dtype == object and isinstance(two, np.ndarray):
        return difference(one.tolist(), two.tolist(), name)
    if isinstance(one, (np.ndarray, np.generic, float)):
        a, b = np.asarray(one), np.asarray(two)
        alike = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        alike = type(one).__eq__ is object.__eq__ or bool(one == two)
    return "" if alike else f"{name} ({one!r:.60}, then {two!r:.60})"
