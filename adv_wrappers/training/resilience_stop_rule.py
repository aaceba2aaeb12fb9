"""When the training of a resilience measurement may end (Behzadan and Hsu 2019, section 5).

"The training process is terminated when the adversarial regret is maximized and the 100-episode average of the number
of adversarial perturbations is quasi-stable for 200 episodes." The paper does not say what quasi-stable is, nor what
regret counts as maximal. Here: over the last 200 episodes, the means of 100 episodes differ by at most 0.5
perturbations, and the last mean of the regret is within 1% of ``r_max`` of the highest mean so far.

An adversary that attacks at every step has the highest regret from its first episode on, and its perturbations do not
change either: the rule may then end a training before it has learned anything. It is therefore off by default.
"""

from __future__ import annotations

from collections import deque

WINDOW = 100  # episodes of a mean
STABLE = 200  # episodes for which the mean has to stay
TOLERANCE = 0.5  # perturbations
REGRET_SHARE = 0.01  # of r_max, that the regret may be below its highest mean


class StopRule:
    """Whether a training has converged, episode by episode.

    Args:
        r_max: the highest return of the victim, from which regret is counted.

    Attributes:
        episodes: the number of episodes that were added.
        met: whether the rule was met at any of them.
    """

    def __init__(self, r_max: float) -> None:
        self.r_max, self.episodes, self.met = r_max, 0, False
        self._regrets, self._attacks = deque[float](maxlen=WINDOW), deque[float](maxlen=WINDOW)
        self._means, self._highest = deque[float](maxlen=STABLE + 1), -float("inf")

    def add(self, victim_return: float, perturbations: float) -> bool:
        """Add an episode; whether the training may end with it.

        Args:
            victim_return: the victim's return of the episode.
            perturbations: the number of steps at which it was attacked.
        """
        self.episodes += 1
        self._regrets.append(self.r_max - victim_return)
        self._attacks.append(perturbations)
        if len(self._attacks) < WINDOW:
            return False
        self._means.append(sum(self._attacks) / WINDOW)
        regret = sum(self._regrets) / WINDOW
        self._highest = max(self._highest, regret)
        stable = len(self._means) > STABLE and max(self._means) - min(self._means) <= TOLERANCE
        stop = stable and regret >= self._highest - REGRET_SHARE * abs(self.r_max)
        self.met = self.met or stop
        return stop
