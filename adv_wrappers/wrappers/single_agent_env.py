"""A task of several agents from the side of one of them; fixed policies play all others.

With the other players fixed, a game of several agents is a task of one. So a policy that plays against a victim is an
agent like any other, in the environment that the victim is a part of (Gleave et al. 2020, "Adversarial Policies:
Attacking Deep Reinforcement Learning", section 3): it changes neither what the victim observes nor what it does, and
reaches it only by playing.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

from adv_wrappers.core import rng
from adv_wrappers.core.action_masks import action_mask_of, mask_choices, mask_path
from adv_wrappers.core.engine.clock import row_seeds
from adv_wrappers.core.threat import fits
from adv_wrappers.core.types import Info
from adv_wrappers.errors import AdvWrappersError, SpaceError, VictimError
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.policy_runner import PolicyRunner

# ----------------------------------------------------------------------------------------------------------------------
# The agents of a PettingZoo parallel environment: their names, and the seed of each.
# ----------------------------------------------------------------------------------------------------------------------


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
    # agents in turns, anything else, and names that are known too late
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
        error.args = (f"agent {agent!r}: {error}", *error.args[1:])
        raise


def seed_of_agent(seed: int, agent: Any) -> int:
    """The seed of one agent's draws in an episode that the environment was reset to with ``seed``: 64 bits."""
    name = int.from_bytes(hashlib.blake2b(str(agent).encode(), digest_size=8).digest(), "little")
    return int(rng.fold(rng.root(seed), name))


RANDOM = "random"


def make_parallel_env(env: str | Callable[..., Any], kwargs: Mapping[str, Any] | None = None) -> Any:
    """A PettingZoo parallel environment.

    Args:
        env: a function that makes one, or ``"module:function"``; a module alone has the function ``parallel_env``, as
            those of PettingZoo do: ``"mpe2.simple_tag_v3"``.
        kwargs: of the function.

    Raises:
        SpaceError: for what makes none.
    """
    if isinstance(env, str):
        module, _, name = env.partition(":")
        try:
            env = getattr(importlib.import_module(module), name or "parallel_env")
        except (ImportError, AttributeError, ValueError) as error:
            raise SpaceError(f"{env!r} names no function that makes a parallel environment: {error}") from error
    if not callable(env):
        raise SpaceError(
            f"expected a function that makes a PettingZoo ParallelEnv, or its name, got {env!r:.80}: every environment "
            f"of a vector needs one of its own"
        )
    made = env(**dict(kwargs or {}))
    check_parallel_env(made)
    return made


class _RandomPolicy:
    """Draws an agent's actions evenly from its action space, and from what an action mask leaves.

    A draw depends on the seed of the episode and the step alone, as those of attacks do: there is no generator, whose
    state would have to be saved with the environment's.

    Args:
        observation_space: of the agent.
        action_space: of the agent; its own draws are left alone.
    """

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.space = copy.deepcopy(action_space)
        self._root = secrets.randbits(64)
        self._t = 0
        self._mask_path = mask_path(observation_space, mask_choices(action_space))

    def reset(self, seed: int | None) -> None:
        self._root, self._t = rng.fold(self._root, 0) if seed is None else seed, 0

    def act(self, obs: Any, info: Info) -> Any:
        mask = action_mask_of(obs, info, self._mask_path)
        self.space.seed(rng.fold(self._root, self._t))
        self._t += 1
        return self.space.sample() if mask is None else self.space.sample(mask=mask)


class _VictimPolicy:
    """Acts for one agent as a victim does.

    Args:
        victim: the policy.
    """

    def __init__(self, victim: Victim) -> None:
        self.runner = PolicyRunner(victim, 1)

    def reset(self, seed: int | None) -> None:
        self.runner.reset(seeds=None if seed is None else [seed])

    def act(self, obs: Any, info: Info) -> Any:
        return self.runner.act_one(obs)


class SingleAgentEnv(gym.Env[Any, Any]):
    """One agent's side of a PettingZoo ``ParallelEnv``, as a Gymnasium environment: fixed policies play the others.

    From the victim's side, with an opponent among the others, :func:`adv_wrappers.evaluate` measures what the opponent
    does to it, and any threat on top. From the opponent's side, with the victim among the others, any library trains an
    adversarial policy; :func:`adv_wrappers.train_opponent` does with Stable-Baselines3.

    Args:
        env: a function that makes a ``ParallelEnv``, or its name, ``"module:function"``; a module alone has the
            function ``parallel_env``, such as ``"mpe2.simple_tag_v3"``.
        agent: the name of the agent that is played.
        others: by the names of all other agents, the policies that play them: a :class:`Victim` or its reference, or
            ``"random"`` for actions drawn evenly. They act as ``select`` says.
        zero_sum_with: the name of another agent: the reward is minus that agent's. None is the agent's own.
        env_kwargs: keyword arguments of the function.

    An episode lasts as long as the agent does; where others go on without it, what they earn then counts nowhere. The
    others' draws depend on the seed of the reset and the name of their agent. A victim among them is not told of action
    masks, a random policy keeps to them.

    Attributes:
        parallel_env: the environment of all agents.
        agent, zero_sum_with: as given.

    Raises:
        AdvWrappersError: one of its kinds, for unknown or missing agents and policies for other spaces, before anything
            is played.

    For example::

        env = SingleAgentEnv("mpe2.simple_push_v3", "agent_0", {"adversary_0": "card:pusher"})
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        agent: Any,
        others: Mapping[Any, Victim | str],
        zero_sum_with: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.parallel_env = make_parallel_env(env, env_kwargs)
        known = list(self.parallel_env.possible_agents)
        check_agents("a side", [agent], known)
        if not isinstance(others, Mapping):
            raise VictimError(f"expected policies by the names of the other agents, a dictionary, got {others!r:.80}")
        check_agents("policies", others, known)
        # every other agent has a policy, and one of them may have the opposite reward
        rest = [name for name in known if name != agent]
        if set(others) != set(rest):
            needed, given = (", ".join(map(repr, names)) or "none" for names in (rest, others))
            raise VictimError(f"expected a policy for each agent but {agent!r}: for {needed}, got them for {given}")
        if zero_sum_with is not None and zero_sum_with not in rest:
            raise SpaceError(f"zero_sum_with={zero_sum_with!r:.80} must be another agent: {', '.join(map(repr, rest))}")
        # the spaces are those of the agent whose side this is
        self.agent, self.zero_sum_with = agent, zero_sum_with
        self._policies = {name: self._policy(name, others[name]) for name in rest}
        self.observation_space = self.parallel_env.observation_space(agent)
        self.action_space = self.parallel_env.action_space(agent)
        self.metadata = {"render_modes": [], **(getattr(self.parallel_env, "metadata", None) or {})}
        self.render_mode = getattr(self.parallel_env, "render_mode", None)
        self._obs: dict[Any, Any] = {}  # newest of all agents
        self._infos: dict[Any, Info] = {}

    def _policy(self, name: Any, given: Victim | str) -> _RandomPolicy | _VictimPolicy:
        observation_space = self.parallel_env.observation_space(name)
        action_space = self.parallel_env.action_space(name)
        if given == RANDOM:
            return _RandomPolicy(observation_space, action_space)
        with agent_in_errors(name):
            victim = load_victim(given)
            fits(victim, observation_space, action_space)
        return _VictimPolicy(victim)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment and all policies; with a seed their draws begin anew."""
        row_seeds(seed)
        super().reset(seed=seed)
        self._obs, self._infos = self.parallel_env.reset(seed=seed, options=options)
        for name, policy in self._policies.items():
            policy.reset(None if seed is None else seed_of_agent(seed, name))
        return self._own()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """One step of all agents."""
        actions = {self.agent: action}
        for name in self.parallel_env.agents:
            if name != self.agent:
                actions[name] = self._policies[name].act(self._obs[name], self._infos.get(name, {}))
        self._obs, rewards, terminated, truncated, self._infos = self.parallel_env.step(actions)
        earned = rewards[self.agent] if self.zero_sum_with is None else -rewards.get(self.zero_sum_with, 0.0)
        obs, info = self._own()
        return obs, float(earned), bool(terminated[self.agent]), bool(truncated[self.agent]), info

    def _own(self) -> tuple[Any, Info]:
        if self.agent not in self._obs:
            there = ", ".join(map(repr, self._obs)) or "none"
            raise SpaceError(
                f"agent {self.agent!r} has no observation: it must be there from the reset on, got {there}"
            )
        return self._obs[self.agent], dict(self._infos.get(self.agent, {}))

    def render(self) -> Any:
        """As the environment of all agents does."""
        return self.parallel_env.render()

    def close(self) -> None:
        """Close the environment of all agents."""
        self.parallel_env.close()
