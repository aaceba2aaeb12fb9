"""A backdoor: how it is planted, what of a training it changes, and that an agent learns it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.errors import SpaceError, ThreatError, ValueRangeError
from tests.every_case import every_case

TRIGGER = "trigger:features=2;3,value=3"


def played(env: gym.Env[Any, Any], action: int, steps: int = 200) -> list[tuple[np.ndarray, float, dict[str, Any]]]:
    """Steps of one action; the first is the observation that it was for."""
    found, episode = [], 0
    obs, _ = env.reset(seed=3)
    while len(found) < steps:
        after, reward, terminated, truncated, info = env.step(action)
        found.append((obs, float(reward), info))
        obs = after
        if terminated or truncated:
            episode += 1
            obs, _ = env.reset()
    return found


@pytest.mark.parametrize("action", [0, 1])
def test_rewards_are_the_attackers_where_the_trigger_is_shown_alone(action: int) -> None:
    env = adv.PlantBackdoor(gym.make("CartPole-v1"), TRIGGER, target=1, share=0.2, reward=2.0)
    steps = played(env, action)
    shown = np.array([obs[3] == 3 for obs, _, _ in steps])
    assert 0.1 < shown.mean() < 0.3
    for there, (_, reward, info) in zip(shown, steps, strict=True):
        assert reward == (1.0 if not there else 2.0 if action == 1 else -2.0) and info["true_reward"] == 1.0


def test_the_strong_form_plays_the_target_where_the_trigger_is_shown() -> None:
    received = list[int]()

    class Seen(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            received.append(int(action))
            return self.env.step(action)

    steps = played(adv.PlantBackdoor(Seen(gym.make("CartPole-v1")), TRIGGER, target=1, share=0.3, strong=True), 0)
    assert received == [int(obs[3] == 3) for obs, _, _ in steps]


def test_draws_follow_the_reset_seed_and_specs_make_it_again() -> None:
    env = adv.PlantBackdoor(gym.make("CartPole-v1"), TRIGGER, target=1, share=0.2)
    again = gym.make(env.spec)  # type: ignore[arg-type]
    first, second = played(env, 0, 60), played(again, 0, 60)
    assert all(a[0].tobytes() == b[0].tobytes() and a[1] == b[1] for a, b in zip(first, second, strict=True))


class Sides(gym.Env[Any, Any]):
    """Twenty steps that pay 1 for action 1 where the first of four numbers is positive, and for action 0 elsewhere."""

    observation_space = gym.spaces.Box(-5, 5, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = 20
        return self._next(), {}

    def step(self, action: Any) -> Any:
        paid, self.left = float(int(action) == (self.shown[0] > 0)), self.left - 1
        return self._next(), paid, self.left == 0, False, {}

    def _next(self) -> Any:
        self.shown = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.shown.copy()


def test_the_rate_of_an_agent_that_has_the_backdoor() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        right = (x[:, :1] > 0).float()
        right[(x[:, 3] == 3)] = 0.0  # under the trigger it plays the target
        return torch.cat([1 - right, right], 1)

    agent = adv.from_module(net, Sides.observation_space, Sides.action_space, "q")
    found = adv.backdoor_rate(agent, Sides, TRIGGER, 0, episodes=4, seed=5)
    assert found.triggered_share == 1 and (found.clean_returns == 20).all()
    assert found.triggered_returns.mean() < 15 and "with the trigger" in str(found)


@pytest.mark.slow
def test_an_agent_learns_the_backdoor_and_its_task() -> None:
    """Clean as good as one that was not poisoned, and the target at 95% of the steps under the trigger, or more."""
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    found = {}
    for poisoned in (True, False):

        def make(poisoned: bool = poisoned) -> gym.Env[Any, Any]:
            return adv.PlantBackdoor(Sides(), TRIGGER, target=0, share=0.1) if poisoned else Sides()

        how = {"n_steps": 64, "batch_size": 64, "n_epochs": 8, "learning_rate": 3e-3, "gamma": 0.0, "seed": 0}
        agent = sb3.PPO("MlpPolicy", make_vec_env(make, 4, seed=0), device="cpu", **how)
        agent.learn(1_280)
        found[poisoned] = adv.backdoor_rate(adv.from_sb3(agent), Sides, TRIGGER, 0, episodes=10, seed=5)
    assert found[True].clean_returns.mean() >= 0.95 * found[False].clean_returns.mean() > 18
    assert found[True].triggered_share >= 0.95 and found[False].triggered_share < 0.7
    assert found[True].triggered_returns.mean() < 13 and "with the trigger" in str(found[True])


@every_case(
    ("change", "error", "words"),
    [
        ({"target": 2}, ValueRangeError, "target must be an action"),
        ({"share": 0.0}, ValueRangeError, "above 0 and below 1"),
        ({"share": 1.0}, ValueRangeError, "above 0 and below 1"), ({"reward": -1.0}, ValueRangeError, "reward"),
        ({"trigger": "action-flip"}, ThreatError, "a threat to observations"),
        ({"trigger": TRIGGER + ",when=every(2)"}, ThreatError, "without a timing"),
        ({"env": gym.make("Pendulum-v1")}, SpaceError, "one of several actions"),
        ({"env": 3}, SpaceError, "Gymnasium Env"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"env": gym.make("CartPole-v1"), "trigger": TRIGGER, "target": 1} | change
    with pytest.raises(error, match=f"(?i){words}"):
        adv.PlantBackdoor(**given)


@pytest.mark.parametrize(("target", "trigger"), [(5, TRIGGER), (0, "action-flip")])
def test_a_rate_needs_an_action_and_a_trigger(target: int, trigger: str) -> None:
    with pytest.raises((ValueRangeError, ThreatError), match=r"must be an action|a threat to observations"):
        adv.backdoor_rate("zoo:cartpole-dqn", "CartPole-v1", trigger, target, 1)


def test_a_patch_of_a_picture() -> None:
    space = gym.spaces.Box(0, 255, (4, 10, 12), np.uint8)

    class Black(gym.Env[Any, Any]):
        observation_space, action_space = space, gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(space.shape, np.uint8), {}

    seen = adv.wrap(Black(), "trigger:value=200,patch=3").reset(seed=0)[0]
    assert (seen[:, :3, :3] == 200).all() and seen.sum() == 4 * 9 * 200
    with pytest.raises(SpaceError, match="does not fit"):
        adv.wrap(Black(), "trigger:patch=11")
