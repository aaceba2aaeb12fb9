"""Late and lost actions, against the same written by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

import adv_wrappers as adv
from tests.every_case import every_case


class Late(gym.ActionWrapper[Any, Any, Any]):
    """A delay as one writes it by hand."""

    def __init__(self, env: gym.Env[Any, Any], steps: int, idle: Any) -> None:
        super().__init__(env)
        self.steps, self.idle, self.past = steps, idle, list[Any]()

    def reset(self, **kwargs: Any) -> Any:
        self.past = []
        return self.env.reset(**kwargs)

    def action(self, action: Any) -> Any:
        self.past.append(action)
        return self.past[-1 - self.steps] if len(self.past) > self.steps else self.idle


@every_case("steps", [1, 3, 50])
@every_case(("id", "idle"), [("CartPole-v1", 0), ("Pendulum-v1", np.zeros(1, np.float32))])
def test_a_delay_equals_one_written_by_hand(id: str, idle: Any, steps: int) -> None:
    by_hand, ours = Late(gym.make(id), steps, idle), adv.wrap(gym.make(id), f"action-delay:steps={steps}")
    for seed in range(2):
        assert by_hand.reset(seed=seed)[0].tobytes() == ours.reset(seed=seed)[0].tobytes()
        by_hand.action_space.seed(seed)
        for _ in range(40):
            action = by_hand.action_space.sample()
            one, other = by_hand.step(action), ours.step(action)
            assert one[0].tobytes() == other[0].tobytes() and one[1:4] == other[1:4]
            if one[2]:
                break


def test_a_lost_action_is_the_one_before() -> None:
    received = list[int]()

    class Seen(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            received.append(int(action))
            return np.zeros(4, np.float32), 0.0, False, False, {}

    env = adv.wrap(Seen(gym.make("CartPole-v1")), "action-loss:rate=0.4")
    env.reset(seed=1)
    given = [int(one) for one in np.random.default_rng(0).integers(0, 2, 200)]
    for action in given:
        env.step(action)
    kept = [one == other for one, other in zip(received, given, strict=True)]
    before = [0, *received[:-1]]
    assert all(ok or one == last for ok, one, last in zip(kept, received, before, strict=True))
    assert 0.1 < 1 - np.mean(kept) < 0.35  # two fifths are lost, of which half equal the action before
