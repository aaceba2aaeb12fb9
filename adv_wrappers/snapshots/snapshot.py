"""Save the state of an environment and come back to it, through any stack of wrappers.

A snapshot holds the content of everything that the environment can change: the attributes of every wrapper and of the
environment itself, and of every list, array, random generator or other object in them. Coming back writes the contents
into the same objects, so whatever refers to them still does. What simulators keep outside Python is copied by their own
means, the only ones that repeat to the bit: MuJoCo's data as a whole (parts of it miss the first step of some tasks),
the emulator of the Arcade Learning Environment with its random state. Shared, not copied: spaces, specs, victims,
networks, perturbations, MuJoCo's models and whatever draws pictures.

Environments that cannot be saved so are brought back by a replay, where a recorder was put around them before their
reset (:mod:`adv_wrappers.snapshots.restore_by_replaying`).
"""

from __future__ import annotations

from typing import Any

from adv_wrappers.errors import SnapshotError
from adv_wrappers.snapshots.save_and_restore_python_objects import (
    NotCopied,
    SavedContents,
    Walk,
    is_mujoco_data,
    random_parts,
)


class Snapshot:
    """The state of one environment at one moment.

    >>> import gymnasium as gym
    >>> from adv_wrappers.snapshots import Snapshot
    >>> env = gym.make("CartPole-v1")
    >>> _ = env.reset(seed=0)
    >>> snapshot = Snapshot.of(env)
    >>> first = env.step(1)
    >>> snapshot.restore(env)
    >>> bool((env.step(1)[0] == first[0]).all())
    True
    """

    __slots__ = ("_env", "_kept")

    def __init__(self, env: Any, kept: SavedContents) -> None:
        self._env, self._kept = env, kept

    @classmethod
    def of(cls, env: Any, reuse: Snapshot | None = None) -> Snapshot:
        """The present state of an environment.

        Args:
            env: the environment, of any wrappers around it the outermost: an ``Env``, or a vector of them in this
                process.
            reuse: an older snapshot that is needed no more, whose memory is written over: to allocate MuJoCo's takes
                forty times as long as to copy it.

        Raises:
            SnapshotError: for a part that cannot be copied, with its path.
        """
        walk = Walk()
        if reuse is not None:
            walk.spare = {id(target): kept for _, target, kept in reuse._kept if is_mujoco_data(kept)}
        try:
            walk.visit(env)
        except NotCopied as error:
            raise SnapshotError(f"{env} cannot be saved: {error.text}") from error
        return cls(env, walk.kept)

    @property
    def kept(self) -> SavedContents:
        """How each content is put back, into which object, and the content; not to be written to."""
        return self._kept

    def restore(self, env: Any) -> None:
        """Bring the environment back to the state of the snapshot, which can be used again.

        ALE draws its screen with the next frame: until then ``render`` shows the one before.

        Args:
            env: the environment that the snapshot is of.

        Raises:
            SnapshotError: for another one, and for an environment whose episode is replayed and goes another way.
        """
        if env is not self._env:
            raise SnapshotError(
                f"a snapshot is of one environment: expected that {type(self._env).__name__} itself, got another "
                f"{type(env).__name__} (wrapped or unwrapped afterwards, it is another)"
            )
        for put, target, kept in self._kept:
            put(target, kept)


def random_states(env: Any) -> list[object]:
    """The random states in an environment, saved or not, which are equal where nothing was drawn in between."""
    found = [kept for _, _, kept in random_parts(env)]
    return [kept.serialize() if type(kept).__name__ == "ALEState" else kept for kept in found]
