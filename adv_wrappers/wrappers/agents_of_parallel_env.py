"""The agents of a PettingZoo parallel environment: their names, and the seed of each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adv_wrappers.core import rng
from adv_wrappers.errors import AdvWrappersError, Message, SpaceError


def check_parallel_env(env: Any) -> list[Any]:
    """The names of all agents of a parallel environment, its ``possible_agents``.

    Raises:
        ImportError: where PettingZoo is not installed.
        SpaceError: for anything but a parallel environment that knows them before a reset.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv
    except ModuleNotFoundError as error:
        raise ImportError(
            "environments of several agents need PettingZoo: pip install 'adv_wrappers[pettingzoo]'"
        ) from error
    if isinstance(env, AECEnv):
        raise SpaceError(
            f"expected a PettingZoo ParallelEnv, got an AECEnv ({env}): pettingzoo.utils.conversions has "
            f"aec_to_parallel, and turn_based_aec_to_parallel for games in turns"
        )
    if not isinstance(env, ParallelEnv):
        raise SpaceError(f"expected a PettingZoo ParallelEnv, got {type(env).__name__}")
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise SpaceError(f"{env} has no possible_agents: its agents, and their spaces, are not known before a reset")
    return list(agents)


def check_agents(what: str, names: Any, known: list[Any]) -> None:
    """Raise :class:`SpaceError` unless these are agents that are known.

    Args:
        what: what was given by these names, for the message.
        names: of agents.
        known: the names of all agents.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        said = ", ".join(map(repr, unknown))
        raise SpaceError(f"{what} of unknown agents: {said}; this environment has {', '.join(map(repr, known))}")


@contextmanager
def agent_in_errors(agent: Any) -> Iterator[None]:
    """Errors raised inside say which agent they are about."""
    try:
        yield
    except AdvWrappersError as error:
        error.args = (Message(f"agent {agent!r}: ", error.message), *error.args[1:])
        raise


def seed_of_agent(seed: int, agent: Any) -> int:
    """The seed of one agent's draws in an episode that the environment was reset to with ``seed``: 64 bits."""
    name = int.from_bytes(hashlib.blake2b(str(agent).encode(), digest_size=8).digest(), "little")
    return int(rng.fold(rng.root(seed), name))
