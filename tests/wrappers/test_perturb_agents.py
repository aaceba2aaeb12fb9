"""Threats on single agents: which observations and actions change, whose draws they are, and what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import AdvWrappersError, BudgetError, SnapshotError, SpaceError, ThreatError, VictimError

pytest.importorskip("pettingzoo")

from pettingzoo import ParallelEnv

with warnings.catch_warnings(action="ignore"):  # PettingZoo's own, of games that it imports by their old names
    from pettingzoo.test import parallel_api_test, parallel_seed_test

from adv_wrappers.wrappers.perturb_agents import PerturbAgents
from tests.every_case import every_case
from tests.wrappers.parallel_envs import AGENTS, Trio

THREATS = {"left": ["noise:eps=0.1", "sensor-bias:eps=0.2"], "right": ["noise:eps=0.1", "action-noise:eps=0.3"]}


def linear_victim(env: Any, agent: str = "left") -> adv.Victim:
    """A small policy for an agent of :class:`Trio`."""
    torch.manual_seed(0)
    outputs = 4 if env.masked else 2
    kind = "logits" if env.masked else "mean"
    return adv.from_module(torch.nn.Linear(3, outputs), env.observation_space(agent), env.action_space(agent), kind)


def valued() -> adv.Victim:
    """A policy with discrete actions that knows the values of states."""
    env, nets = Trio(masked=True), (torch.nn.Linear(3, 4), torch.nn.Linear(3, 1))
    spaces_ = env.observation_space("left"), env.action_space("left")
    return adv.from_module(nets[0], *spaces_, "logits", value=nets[1])


def transcript(env: Any, seeds: tuple[int | None, ...] = (3, None), skip: tuple[str, ...] = ()) -> list[Any]:
    """What some episodes return, arrays as bytes; the actions are draws of their own."""
    draws, found = np.random.default_rng(5), list[Any]()
    for seed in seeds:
        obs, infos = env.reset(seed=seed)
        found.append(({a: o.tobytes() for a, o in obs.items() if a not in skip}, infos))
        while env.agents:
            actions = {agent: draws.uniform(-1, 1, 2).astype(np.float32) for agent in env.agents}
            obs, *rest = env.step(actions)
            found.append(({a: o.tobytes() for a, o in obs.items() if a not in skip}, *rest))
    return found


@pytest.mark.parametrize("threats", [{}, {"left": []}])
def test_without_threats_it_is_the_bare_environment(threats: dict[str, Any]) -> None:
    bare, wrapped = Trio(), PerturbAgents(Trio(), threats)
    assert transcript(bare) == transcript(wrapped)
    assert repr(bare.received) == repr(wrapped.received) and wrapped.possible_agents == AGENTS


def test_layers_of_one_agent_and_nested_wrappers_are_the_same() -> None:
    """As ``wrap(env, a, b)`` equals ``wrap(wrap(env, a), b)``: draws, keys of info and sessions go on."""
    whole = PerturbAgents(Trio(), {"left": ["noise:eps=0.1", "sensor-bias:eps=0.2"], "right": "noise:eps=0.1"})
    inner = PerturbAgents(Trio(), {"left": "noise:eps=0.1", "right": "noise:eps=0.1"})
    nested = PerturbAgents(inner, {"left": "sensor-bias:eps=0.2"})
    assert transcript(whole) == transcript(nested)
    assert nested.layers["left"][0].engine.session is inner.layers["left"][0].engine.session


def test_an_agent_that_dies_is_left_out_and_one_that_comes_back_begins_another_episode() -> None:
    env = PerturbAgents(Trio(back=4), {"right": "noise:eps=0.1,when=window(0,1)"})
    env.reset(seed=0)
    attacked = list[Any]()
    while env.agents:
        *_, infos = env.step({agent: np.zeros(2, np.float32) for agent in env.agents})
        attacked.append(infos["right"]["adv_wrappers"]["0:noise"]["attacked"] if "right" in infos else None)
    assert attacked == [False, False, None, True, False, False]  # t is 0 again at its first observation


def test_action_masks_are_kept_to() -> None:
    env = PerturbAgents(Trio(masked=True), {"left": "action-flip:p=1"})
    for seed in range(20):
        env.reset(seed=seed)
        env.step({agent: 3 for agent in env.agents})
        assert int(env.unwrapped.received[-1]["left"]) in (1, 2, 3)  # 0 is masked


def test_an_environment_in_the_midst_of_an_episode_copies_and_pickles() -> None:
    env = PerturbAgents(Trio(), THREATS, victims={"left": linear_victim(Trio())})
    env.reset(seed=1)
    actions = dict.fromkeys(env.agents, np.zeros(2, np.float32))
    env.step(actions)
    copies = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    first, *others = [{a: o.tobytes() for a, o in one.step(actions)[0].items()} for one in copies]
    assert others == [first, first]


def test_budgets_can_be_changed_by_the_layers_of_an_agent() -> None:
    env = PerturbAgents(Trio(), {"left": "noise:eps=0.1"}, keep_true=True)
    env.layers["left"][0].set_budget(adv.Linf(0.0))
    obs, infos = env.reset(seed=0)
    assert np.array_equal(obs["left"], infos["left"]["adv_wrappers"]["0:noise"]["true"])


def test_integers_become_floats_without_quantizing() -> None:
    class Grey(Trio):
        def __init__(self) -> None:
            super().__init__()
            self._seen["left"] = spaces.Box(0, 255, (3,), np.uint8)

        def _observations(self) -> dict[str, Any]:
            obs = super()._observations()
            return obs | {"left": np.full(3, 7, np.uint8)}

    with pytest.raises(BudgetError, match=r"^agent 'left': .*quantize=False"):
        PerturbAgents(Grey(), {"left": "noise:eps=0.4"})
    env = PerturbAgents(Grey(), {"left": "noise:eps=0.4"}, quantize=False)
    obs, _ = env.reset(seed=0)
    assert obs["left"].dtype == np.float32 and obs["left"] in env.observation_space("left")
    assert env.observation_space("right") is env.unwrapped.observation_space("right")


def test_pettingzoos_own_tests() -> None:
    parallel_api_test(PerturbAgents(Trio(), THREATS), 50)
    parallel_seed_test(lambda: PerturbAgents(Trio(), THREATS), 50)


def test_a_particle_environment_of_several_agents() -> None:
    simple_tag_v3 = pytest.importorskip("mpe2.simple_tag_v3")
    threats = {"agent_0": ["noise:eps=0.1", "sensor-dropout:rate=0.2"], "adversary_1": "action-noise:eps=0.1"}
    parallel_api_test(PerturbAgents(simple_tag_v3.parallel_env(continuous_actions=True), threats), 50)
    parallel_seed_test(lambda: PerturbAgents(simple_tag_v3.parallel_env(continuous_actions=True), threats), 20)
    kwargs = {"gen": simple_tag_v3.parallel_env, "seed": 3}
    bare, wrapped = (_played(**kwargs, threats=given) for given in ({}, {"adversary_0": "noise:eps=0.1"}))
    assert bare.keys() == wrapped.keys()
    assert [agent for agent in bare if bare[agent] != wrapped[agent]] == ["adversary_0"]


def _played(gen: Any, seed: int, threats: dict[str, Any]) -> dict[str, list[bytes]]:
    """Observations of all agents in an episode in which nobody moves."""
    env = PerturbAgents(gen(), threats)
    obs, _ = env.reset(seed=seed)
    found = {agent: [part.tobytes()] for agent, part in obs.items()}
    while env.agents:
        obs = env.step(dict.fromkeys(env.agents, 0))[0]
        for agent, part in obs.items():
            found[agent].append(part.tobytes())
    return found


class Unnamed(ParallelEnv):
    """Agents that are not known before a reset."""

    metadata = {"name": "unnamed"}  # noqa: RUF012


@every_case(
    ("error", "match", "make"),
    [
        (SpaceError, r"threats of unknown agents: 'up'; this .* has 'left', 'right', 'keeper'",
         lambda: PerturbAgents(Trio(), {"up": "noise:eps=0.1"})),
        (SpaceError, "victims of unknown agents: 'up'",
         lambda: PerturbAgents(Trio(), {"left": "noise:eps=0.1"}, victims={"up": "zoo:cartpole-dqn"})),
        (ThreatError, "expected threats by the names of agents, a dictionary, got 'noise:eps=0.1'",
         lambda: PerturbAgents(Trio(), "noise:eps=0.1")),
        (VictimError, r"^agent 'left': pgd:eps=0\.1: the victim zoo:cartpole-dqn is for observation space",
         lambda: PerturbAgents(Trio(), {"left": "pgd:eps=0.1"}, victims={"left": "zoo:cartpole-dqn"})),
        (VictimError, r"^agent 'left': max-diff needs a victim",
         lambda: PerturbAgents(Trio(), {"left": "max-diff:eps=0.1"})),
        (AdvWrappersError, r"^agent 'left': ", lambda: PerturbAgents(Trio(), {"left": "nothing:eps=0.1"})),
        (SnapshotError, r"^agent 'left': .* tries actions, which takes a single environment",
         lambda: PerturbAgents(Trio(masked=True), {"left": "worst-action:by=successor"}, victims={"left": valued()})),
        (SpaceError, "expected a PettingZoo ParallelEnv, got TimeLimit",
         lambda: PerturbAgents(gym.make("CartPole-v1"), {})),
        (SpaceError, "has no possible_agents", lambda: PerturbAgents(Unnamed(), {})),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(error: type[Exception], match: str, make: Any) -> None:
    with pytest.raises(error, match=match):
        make()


def test_whoever_wraps_all_agents_at_once_is_told_of_this_class() -> None:
    with pytest.raises(SpaceError, match="got Trio: PerturbAgents takes PettingZoo's"):
        adv.wrap(Trio(), "noise:eps=0.1")
