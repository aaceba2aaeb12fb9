"""What small environments of tests have in common."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class Brief(gym.Env[Any, Any]):
    """Episodes of a few steps: a subclass says what is seen, and what an action does and pays.

    Attributes:
        steps: of an episode.
        cut: whether the episode is cut short at the last of them, rather than over.
        t: the step; in :meth:`act` that at which the agent acts.
    """

    steps = 8
    cut = True
    t = 0

    def begin(self) -> None:
        """What a reset draws."""

    def seen(self) -> Any:
        """The observation."""
        raise NotImplementedError

    def act(self, action: Any) -> float:
        """What an action does, and its reward."""
        return 0.0

    def over(self) -> bool:
        """Whether the episode is over before its last step."""
        return False

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(self.act(action))
        self.t += 1
        last = self.t >= self.steps
        return self.seen(), reward, self.over() or (last and not self.cut), last and self.cut, {}
