"""The agents of a parallel environment: their names, seeds and masks."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from adv_wrappers.core.action_masks import action_mask_of
from adv_wrappers.errors import SpaceError, VictimError
from adv_wrappers.wrappers.single_agent_env import agent_in_errors, check_agents, check_parallel_env, seed_of_agent


def test_seeds_differ_by_agent_and_by_seed_and_stay_what_they_are() -> None:
    seeds = {seed_of_agent(seed, agent) for seed in range(50) for agent in ("agent_0", "agent_1", ("agent", 0), 0)}
    assert len(seeds) == 200 and all(0 <= seed < 2**64 for seed in seeds)
    assert seed_of_agent(0, "agent_0") == seed_of_agent(0, "agent_0") == SEED


SEED = 14035367399271185635  # results that were published under a seed must be found again


def test_the_names_of_agents() -> None:
    pytest.importorskip("pettingzoo")
    from tests.wrappers.parallel_envs import AGENTS, Trio

    assert check_parallel_env(Trio()) == AGENTS
    with pytest.raises(SpaceError, match="expected a PettingZoo ParallelEnv, got int"):
        check_parallel_env(1)
    check_agents("threats", ["left"], AGENTS)
    with pytest.raises(SpaceError, match="threats of unknown agents: 'a', 'b'; this environment has 'left'"):
        check_agents("threats", ["a", "left", "b"], AGENTS)


def test_games_in_turns_are_told_how_to_become_parallel() -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.utils.conversions import parallel_to_aec

    from tests.wrappers.parallel_envs import Trio

    with pytest.raises(SpaceError, match=r"got an AECEnv \(trio\): pettingzoo.utils.conversions has aec_to_parallel"):
        check_parallel_env(parallel_to_aec(Trio()))


def test_without_pettingzoo_it_is_said_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ImportError, match=r"pip install 'adv_wrappers\[pettingzoo\]'"):
        check_parallel_env(1)


def test_errors_say_which_agent_they_are_about() -> None:
    with pytest.raises(VictimError, match=r"^agent 'left': it does not fit$"), agent_in_errors("left"):
        raise VictimError("it does not fit")


def test_masks_are_in_the_info_or_in_the_observation() -> None:
    mask = np.ones(3, np.int8)
    assert action_mask_of(np.zeros(2), {"action_mask": mask}, None) is mask
    assert action_mask_of({"observation": 0, "action_mask": mask}, {}, ("action_mask",)) is mask
    assert action_mask_of(np.zeros(2), {}, None) is None
