"""One side of a game of several agents: what the others do, what the side earns, when it ends, and what is refused."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import adv_wrappers as adv
from adv_wrappers.environments.snapshot import Snapshot
from adv_wrappers.errors import SpaceError, VictimError

pytest.importorskip("pettingzoo")

from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.wrappers.perturb_agents import PerturbAgents
from adv_wrappers.wrappers.single_agent_env import SingleAgentEnv, make_parallel_env, seed_of_agent
from tests.every_case import every_case
from tests.wrappers.parallel_envs import AGENTS, STEPS, Trio

RANDOM = {"right": "random", "keeper": "random"}


def policy(agent: str = "right", masked: bool = False, select: str = "mode") -> adv.Victim:
    """A small policy for an agent of :class:`Trio`."""
    torch.manual_seed(1)
    env = Trio(masked=masked)
    net, kind = torch.nn.Linear(3, 4 if masked else 2), "logits" if masked else "mean"
    made = adv.from_module(net, env.observation_space(agent), env.action_space(agent), kind)
    made.select = select
    return made


def played(env: Any, seeds: tuple[int | None, ...] = (3, None)) -> list[Any]:
    """What some episodes return, the side's own actions being draws of their own."""
    draws, found = np.random.default_rng(5), list[Any]()
    for seed in seeds:
        obs, info = env.reset(seed=seed)
        found.append((obs.tobytes(), info))
        over = False
        while not over:
            obs, reward, terminated, truncated, info = env.step(draws.uniform(-1, 1, 2).astype(np.float32))
            found.append((obs.tobytes(), reward, terminated, truncated, info))
            over = terminated or truncated
    return found


def test_the_others_play_what_their_policies_say() -> None:
    right = policy("right")
    env = SingleAgentEnv(Trio, "left", {"right": right, "keeper": "random"})
    mine = np.array([0.5, -0.5], np.float32)
    env.reset(seed=3)
    runner = PolicyRunner(right, 1)
    bare = Trio()
    obs, _ = bare.reset(seed=3)
    for _ in range(2):
        own, reward, *_ = env.step(mine)
        sent = env.parallel_env.received[-1]
        assert np.array_equal(sent["left"], mine) and set(sent) == set(AGENTS)
        assert np.array_equal(sent["right"], runner.act(obs["right"][None])[0])
        obs, rewards, *_ = bare.step(sent)
        assert own.tobytes() == obs["left"].tobytes() and reward == rewards["left"]


def test_an_episode_lasts_as_long_as_its_agent_and_dead_agents_are_not_asked() -> None:
    found = played(SingleAgentEnv(Trio, "left", RANDOM), seeds=(0,))
    assert len(found) == 1 + STEPS and found[-1][2:4] == (False, True)
    env = SingleAgentEnv(Trio, "right", {"left": "random", "keeper": "random"})
    assert [part[2:4] for part in played(env, seeds=(0,))[1:]] == [(False, False), (True, False)]
    left = SingleAgentEnv(Trio, "left", RANDOM)
    played(left, seeds=(0,))
    assert [len(sent) for sent in left.parallel_env.received] == [3, 3, 2, 2, 2, 2]


def test_the_reward_is_its_own_or_minus_the_victims() -> None:
    own, against = (SingleAgentEnv(Trio, "left", RANDOM, zero_sum_with=other) for other in (None, "keeper"))
    for one, other in zip(played(own)[1:STEPS], played(against)[1:STEPS], strict=True):
        assert one[0] == other[0]
        assert np.isclose(other[1], -3 * one[1])  # what the keeper earns is thrice that of left
    gone = SingleAgentEnv(Trio, "left", RANDOM, zero_sum_with="right")
    rewards = [part[1] for part in played(gone, seeds=(0,))[1:]]
    assert all(rewards[:2]) and not any(rewards[2:])  # one that is dead earns nothing


def test_the_same_seed_gives_the_same_bytes_and_others_have_draws_of_their_own() -> None:
    others = {"right": policy(select="sample"), "keeper": "random"}
    first, again = (SingleAgentEnv(Trio, "left", others) for _ in range(2))
    assert played(first) == played(again) == played(first)
    assert played(first, seeds=(4,)) != played(first, seeds=(3,))
    both = SingleAgentEnv(Trio, "left", RANDOM)
    both.reset(seed=0)
    both.step(np.zeros(2, np.float32))
    sent = both.parallel_env.received[-1]
    assert not np.allclose(sent["right"], sent["keeper"])
    assert seed_of_agent(0, "right") != seed_of_agent(0, "keeper")


def test_the_draws_of_policies_change_nothing_in_the_environment() -> None:
    """Neither its stream nor the draws of its own spaces."""
    env = SingleAgentEnv(Trio, "left", RANDOM)
    spaces = [env.parallel_env.action_space(agent) for agent in AGENTS]
    for space in spaces:
        space.seed(0)
    before = [copy.deepcopy(space.np_random.bit_generator.state) for space in spaces]
    observed = [part[0] for part in played(env, seeds=(3,))]
    assert [space.np_random.bit_generator.state for space in spaces] == before
    bare = Trio()
    obs, _ = bare.reset(seed=3)
    found = [obs["left"].tobytes()]
    while bare.agents:
        found.append(bare.step(dict.fromkeys(bare.agents, np.zeros(2, np.float32)))[0]["left"].tobytes())
    assert observed == found


def test_random_policies_keep_to_action_masks() -> None:
    env = SingleAgentEnv(Trio, "left", RANDOM, env_kwargs={"masked": True})
    for seed in range(20):
        env.reset(seed=seed)
        env.step(0)
        assert 0 not in [int(env.parallel_env.received[-1][agent]) for agent in ("right", "keeper")]


def test_it_copies_and_pickles_in_the_midst_of_an_episode() -> None:
    env = SingleAgentEnv(Trio, "left", {"right": policy(select="sample"), "keeper": "random"})
    env.reset(seed=1)
    mine = np.zeros(2, np.float32)
    env.step(mine)
    copies = [env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    first, *others = [[one.step(mine)[0].tobytes() for _ in range(3)] for one in copies]
    assert others == [first, first]


def test_searches_save_and_restore_it() -> None:
    """Over the game, and the draws of whoever plays in it."""
    env = SingleAgentEnv(Trio, "left", {"right": policy(select="sample"), "keeper": "random"})
    env.reset(seed=1)
    mine = np.zeros(2, np.float32)
    env.step(mine)
    snapshot = Snapshot.of(env)
    first = [(obs.tobytes(), reward) for obs, reward, *_ in (env.step(mine) for _ in range(3))]
    snapshot.restore(env)
    assert [(obs.tobytes(), reward) for obs, reward, *_ in (env.step(mine) for _ in range(3))] == first


def test_gymnasiums_own_test() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(Box observation space|not within the observation space).*")
        check_env(SingleAgentEnv(Trio, "left", RANDOM), skip_render_check=True)


def test_threats_on_either_side_and_the_evaluation_that_plays_them() -> None:
    left, arguments = policy("left"), {"env": Trio, "agent": "left", "others": RANDOM}
    report = adv.evaluate(left, SingleAgentEnv, ["noise:eps=0.5"], env_kwargs=arguments, episodes=4, seed=0)
    clean, noisy = report.threats
    assert len(clean["returns"]) == 4 and clean["returns"] != noisy["returns"]
    again = adv.evaluate(left, SingleAgentEnv, env_kwargs=arguments, episodes=4, seed=0, num_envs=1)
    # a batch of one row may be rounded otherwise than one of four
    assert again.threats[0]["returns"] == pytest.approx(clean["returns"], rel=1e-5)
    beneath = {**arguments, "env": perturbed, "others": {**RANDOM, "right": policy("right")}}
    other = adv.evaluate(left, SingleAgentEnv, env_kwargs=beneath, episodes=4, seed=0)
    assert other.threats[0]["returns"] != clean["returns"]


def perturbed() -> Any:
    """Trio under a threat to another agent than the one that is played."""
    return PerturbAgents(Trio(), {"right": "noise:eps=0.5"})


def test_an_environment_knows_the_weights_of_those_that_play_in_it() -> None:
    def described(victim: adv.Victim) -> Any:
        from adv_wrappers.environments.environment import json_value

        others = {"right": victim, "keeper": "random"}
        environment = adv.Environment(SingleAgentEnv, {"env": Trio, "agent": "left", "others": others})
        assert environment.is_known
        return json_value(environment.described)

    first, second = policy(), policy()
    assert described(first) == described(second)
    with torch.no_grad():
        next(iter(second.modules()[0].parameters())).add_(1)
    changed = adv.from_module(second.modules()[0], second.observation_space, second.action_space, "mean")
    assert described(first) != described(changed)


def test_names_of_functions_that_make_environments() -> None:
    assert isinstance(make_parallel_env("tests.wrappers.parallel_envs:Trio", {"back": 4}), Trio)
    pytest.importorskip("mpe2")
    env = SingleAgentEnv("mpe2.simple_push_v3", "agent_0", {"adversary_0": "random"})
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space and env.step(1)[1] < 0


@every_case(
    ("error", "match", "arguments"),
    [
        (SpaceError, "a side of unknown agents: 'up'; this environment has 'left'", (Trio, "up", RANDOM)),
        (SpaceError, "policies of unknown agents: 'up'", (Trio, "left", {**RANDOM, "up": "random"})),
        (VictimError, "a policy for each agent but 'left': for 'right', 'keeper', got them for 'right'",
         (Trio, "left", {"right": "random"})),
        (VictimError, "a policy for each agent but 'left'", (Trio, "left", {**RANDOM, "left": "random"})),
        (VictimError, "expected policies by the names of the other agents, a dictionary, got 'random'",
         (Trio, "left", "random")),
        (VictimError, "^agent 'right': the victim zoo:cartpole-dqn is for observation space",
         (Trio, "left", {**RANDOM, "right": "zoo:cartpole-dqn"})),
        (SpaceError, "zero_sum_with='left' must be another agent: 'right', 'keeper'", (Trio, "left", RANDOM, "left")),
        (SpaceError, "a function that makes a PettingZoo ParallelEnv, or its name, got .*: every environment of a",
         (Trio(), "left", RANDOM)),
        (SpaceError, "'nowhere' names no function that makes a parallel environment", ("nowhere", "left", RANDOM)),
        (SpaceError, "expected a PettingZoo ParallelEnv, got dict", (dict, "left", RANDOM)),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(error: type[Exception], match: str, arguments: Any) -> None:
    with pytest.raises(error, match=match):
        SingleAgentEnv(*arguments)


def test_an_agent_must_be_there_from_the_reset_on() -> None:
    class Late(Trio):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            obs, infos = super().reset(seed, options)
            return {agent: part for agent, part in obs.items() if agent != "left"}, infos

    with pytest.raises(SpaceError, match=r"agent 'left' .*from the reset on, got 'right', 'keeper'"):
        SingleAgentEnv(Late, "left", RANDOM).reset()
