"""Perturbed observations and actions of single agents of a PettingZoo parallel environment, by their names.

Every named agent has a stack of the layers that :func:`adv_wrappers.wrap` makes for single environments, and an engine
a layer: budgets, timings, recurrent victims and draws are those of a single environment that this agent plays. The
layers are called in the order in which nested wrappers call them; the step between them is the one of all agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import gymnasium as gym

from adv_wrappers.core.engine.clock import row_seeds
from adv_wrappers.core.types import Info, Space
from adv_wrappers.errors import SnapshotError, ThreatError
from adv_wrappers.victims import Victim
from adv_wrappers.wrappers.layer import EnvLayer, layers
from adv_wrappers.wrappers.single_agent_env import agent_in_errors, check_agents, check_parallel_env, seed_of_agent
from adv_wrappers.wrappers.wrap import wrap

try:
    from pettingzoo.utils import BaseParallelWrapper
except ModuleNotFoundError:  # an extra: without it the class is there, and says what it needs when one is made
    BaseParallelWrapper = object


class _OneAgent(gym.Env[Any, Any]):
    """The spaces of one agent, around which its layers are made; it is never stepped.

    Args:
        observation_space, action_space: of the agent.
        beneath: the agent's layers in a :class:`PerturbAgents` further in, if there is one.
    """

    def __init__(self, observation_space: Space, action_space: Space, beneath: gym.Env[Any, Any] | None) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.env = beneath
        if beneath is not None:
            self.metadata = beneath.metadata  # has the number of layers, which their draws and keys depend on


class PerturbAgents(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo has no types
    """Perturbs what some agents of a PettingZoo ``ParallelEnv`` observe and do; all others are left alone.

    Args:
        env: a ``ParallelEnv`` with ``possible_agents``.
        threats: what is done to each agent, by its name: a threat as :func:`adv_wrappers.wrap` takes it, or a list of
            them, left to right; the last is nearest the agent.
        victims: by the names of agents, the policies that fill in threats which were left open; references such as
            ``"card:FOLDER"`` will do. They act nowhere: whoever steps the environment gives the actions.
        quantize, keep_true: as for :class:`adv_wrappers.PerturbObservation`.

    An attack's draws depend on the seed of the reset, the agent's name and the layer, so agents under the same threat
    are perturbed differently, and no agent's perturbation on what is done to another. A step of an episode (``t``) is
    one of the agent's own: an agent that joins later begins with 0 then, and one that comes back after its end begins
    another episode. ``infos[agent]["adv_wrappers"]`` is as for single environments. ``state()`` is that of the
    environment, unperturbed.

    Attributes:
        layers: by the names of agents, their layers, innermost first, for ``set_budget`` and the like.

    Raises:
        AdvWrappersError: one of its kinds, for an unknown agent and for a threat that cannot work on an agent's spaces,
            before anything is played.

    For example::

        threats = {"agent_0": ["noise:eps=0.1", "pgd:eps=0.1"], "adversary_0": "action-flip:p=0.5"}
        env = PerturbAgents(simple_tag_v3.parallel_env(), threats, victims={"agent_0": "card:runner"})
        obs, infos = env.reset(seed=0)
    """

    def __init__(
        self,
        env: Any,
        threats: Mapping[Any, Any],
        victims: Mapping[Any, Victim | str] | None = None,
        *,
        quantize: bool = True,
        keep_true: bool = False,
    ) -> None:
        known, victims = check_parallel_env(env), {} if victims is None else victims
        for what, given in (("threats", threats), ("victims", victims)):
            if not isinstance(given, Mapping):
                raise ThreatError(f"expected {what} by the names of agents, a dictionary, got {given!r:.80}")
            check_agents(what, given, known)
        super().__init__(env)
        # the layers of every agent, as around a single environment that it plays, around those of wrappers further in
        inside = _stacks_of(env)
        self._stacks: dict[Any, gym.Env[Any, Any]] = dict(inside)  # those of wrappers further in, and ours around them
        self.layers: dict[Any, tuple[EnvLayer, ...]] = {}
        for agent, given in threats.items():
            with agent_in_errors(agent):
                one = _OneAgent(env.observation_space(agent), env.action_space(agent), inside.get(agent))
                listed = list(given) if isinstance(given, (list, tuple)) else [given]
                stack = wrap(one, *listed, victim=victims.get(agent), quantize=quantize, keep_true=keep_true)
                own = cast("list[EnvLayer]", layers(stack)[len(layers(one)) :])
                for layer in own:
                    if layer.on not in ("observation", "action"):
                        raise ThreatError(
                            f"{layer.threat.label} is a threat to the {layer.on}, which is no agent's own"
                        )
                    if getattr(layer.threat.how, "simulates", False):
                        raise SnapshotError(f"{layer.threat.label} tries actions, which takes a single environment")
            self._stacks[agent], self.layers[agent] = stack, tuple(own)
        self._playing: set[Any] = set()  # agents whose episode has begun and is not over
        self._over: set[Any] = set()  # agents whose episode is over

    def observation_space(self, agent: Any) -> Space:
        """What an agent observes; of integers it is float32 with ``quantize=False``."""
        env = self._stacks[agent] if agent in self.layers else None
        space: Space = self.env.observation_space(agent) if env is None else env.observation_space
        return space

    def reset(self, seed: int | None = None, options: Info | None = None) -> tuple[dict[Any, Any], dict[Any, Info]]:
        """Reset; a seed restarts the draws of every layer, without one the next episode of each begins."""
        row_seeds(seed)
        obs, infos = self.env.reset(seed=seed, options=options)
        obs, infos = dict(obs), dict(infos)
        for agent, own in self.layers.items():
            own_seed = None if seed is None else seed_of_agent(seed, agent)
            for layer in own:
                if agent in obs:
                    obs[agent], infos[agent] = layer._begin(obs[agent], infos.get(agent, {}), own_seed)
                else:  # one that joins the game later
                    layer.engine.begin_episode(own_seed)
        self._playing, self._over = set(obs), set()
        return obs, infos

    def step(
        self, actions: dict[Any, Any]
    ) -> tuple[dict[Any, Any], dict[Any, float], dict[Any, bool], dict[Any, bool], dict[Any, Info]]:
        """One step of all agents under attack."""
        # actions from the outermost layer to the innermost, then the step of all agents
        sent = dict(actions)
        for agent, own in self.layers.items():
            if agent in sent and agent in self._playing:
                for layer in reversed(own):
                    sent[agent] = layer._send(sent[agent])
        obs, rewards, terminated, truncated, infos = self.env.step(sent)
        # observations from the innermost layer to the outermost; an agent that comes back begins another episode
        obs, infos = dict(obs), dict(infos)
        for agent, own in self.layers.items():
            if agent not in obs:
                continue
            seen, info = obs[agent], infos.get(agent, {})
            ends = terminated.get(agent, False), truncated.get(agent, False)
            for layer in own:
                if agent in self._playing:
                    seen, *_, info = layer._step(seen, rewards.get(agent), *ends, info)
                else:
                    receive = layer._begin if agent in self._over else layer._receive
                    seen, info = receive(seen, info)
            obs[agent], infos[agent] = seen, info
        # agents whose episode is over, and those that go on
        over = {agent for agent in obs if terminated.get(agent) or truncated.get(agent)}
        self._playing, self._over = set(obs) - over, self._over | over
        return obs, rewards, terminated, truncated, infos


def _stacks_of(env: Any) -> dict[Any, gym.Env[Any, Any]]:
    """The layers of every agent in the wrappers of an environment, by the names of agents."""
    while not isinstance(env, PerturbAgents):
        env = env.__dict__.get("env")
        if env is None:
            return {}
    return env._stacks
