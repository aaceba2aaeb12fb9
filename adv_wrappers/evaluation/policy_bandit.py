"""Online policy selection: an agent that has several policies, and chooses one before every episode by its returns.

This is what PROTECTED (Liu et al. 2024) does at test time: of a few policies none of which is dominated by the
others (:func:`non_dominated`), an adversarial bandit chooses one before every episode,
and is told the return of that one alone. Its regret is what the best single policy would have earned more in all
rounds; it grows no faster than the square root of their number, whatever attacks come. So in the long run the agent
earns what the policy for the worst attack earns where it meets that, and more where the attacker is weaker and
another policy is better.

The bandit is EXP3-IX (Neu 2015), exponential weights with implicit exploration. Of losses ``l`` in ``[0, 1]`` the
estimate is ``l / (p + gamma)`` for the policy that was chosen, with probability ``p``, and 0 for the others; weights
are ``exp(-eta * sum of estimates)``. With ``eta = 2 gamma = sqrt(2 ln K / (K T))`` for K policies and T rounds the
regret is of the order ``sqrt(K T ln K)`` with high probability.

The paper was at hand in its abstract, its first figure and its code. What differs from the code:

- It has gains, ``return / 6000``, where Neu has losses. With gains ``gamma`` makes a policy that is seldom chosen look
  worse than it is, and with losses better, which is what explores. A range of returns is given here, and what lies
  outside counts as its end.
- Its ``eta`` is ``5 sqrt(ln K / (K T))`` where agents are tested, 3.5 times Neu's, which ``learning_rate`` takes.
- Its class of policies is trained for the purpose, one after the other. Here policies are given.
- Its attacker is one adversary that was trained against all policies together, on and off by turns. Here threats are
  aimed at each policy, as :func:`adv_wrappers.evaluate` aims them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adv_wrappers.core.types import Floats, Integers
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.validation import AboveZero, Expected, Finite, Limits, Positive, Seed, checked

# ----------------------------------------------------------------------------------------------------------------------
# Non-dominated policies: which policies of several are worth keeping, by their returns under several attacks.
#
# The notion of PROTECTED (Liu et al. 2024): a policy is dominated where others, chosen among at random with fixed
# probabilities (a mixture), earn at least as much under every attack. Their class of policies is trained so that none
# of it is dominated; here policies that are there already are looked through, under attacks that were played. Whether
# a mixture dominates a policy is the value of a matrix game: the mixture chooses a policy, its opponent the attack,
# and the payoff is the policy's return less that of the policy in question. A small linear program has that value.
# ----------------------------------------------------------------------------------------------------------------------


_ROUNDING = 1e-9  # of the largest return: a mixture that is behind by less is not behind
_ZERO = 1e-12  # of the tableau, whose entries are about 1


def non_dominated(returns: ArrayLike) -> NDArray[np.bool_]:
    """Which policies to keep, so that for each of the others some mixture of these earns as much under every attack.

    Policies are looked at from the last to the first, and one that a mixture of those that are left dominates is left
    out. So of equal ones the first is kept.

    Args:
        returns: mean returns, float ``[policies, attacks]``; the run without an attack is a column like the others.
            They are taken as they are: :func:`adv_wrappers.evaluate` has the intervals, within which a policy may be
            dominated by chance.

    Returns:
        Whether each is kept, bool ``[policies]``; at least one is.

    Raises:
        ValueRangeError: for another shape, no policy or no attack, and returns that are not finite.

    >>> from adv_wrappers.evaluation.policy_bandit import non_dominated
    >>> non_dominated([[500, 0], [200, 200], [0, 500]]).tolist()  # half of each other one earns 250 under either attack
    [True, False, True]
    """
    table = _table(returns, "attacks", 1)
    kept = np.ones(len(table), np.bool_)
    slack = _ROUNDING * float(np.abs(table).max())
    for policy in reversed(range(len(table))):
        kept[policy] = False
        if not kept.any() or value_of_game(table[kept] - table[policy]) < -slack:
            kept[policy] = True
    return kept


def _table(returns: ArrayLike, columns: str, least: int) -> Floats:
    """Returns ``[policies, columns]`` of at least so many policies."""
    table = np.array(returns, np.float64)
    if table.ndim != 2 or len(table) < least or not table.size or not np.isfinite(table).all():
        expected = f"expected finite returns [policies, {columns}], at least {least} by 1"
        raise ValueRangeError(f"{expected}, got shape {table.shape}: {table!r:.80}")
    return table


def value_of_game(payoffs: Floats) -> float:
    """What the best mixture of rows is sure of, whatever column is chosen: the value of a matrix game.

    With payoffs that are positive, the columns' player has the linear program *maximise* ``sum(y)`` *such that*
    ``payoffs @ y <= 1`` *and* ``y >= 0``, whose maximum is one over the value. It is solved by the simplex method with
    Bland's rule, which cannot cycle.

    Args:
        payoffs: float ``[rows, columns]``, finite.
    """
    low, span = float(payoffs.min()), float(np.ptp(payoffs))
    if span == 0:
        return low
    # the tableau: payoffs shifted to be positive, slack variables, and the objective in the last row
    rows, columns = payoffs.shape
    tableau = np.zeros((rows + 1, columns + rows + 1))
    tableau[:rows, :columns] = 1 + (payoffs - low) / span
    tableau[:rows, columns:-1] = np.eye(rows)
    tableau[:rows, -1] = 1
    tableau[-1, :columns] = -1
    basis = np.arange(columns, columns + rows)
    while len(entering := np.flatnonzero(tableau[-1, :-1] < -_ZERO)):
        # the row that bounds the entering variable first leaves; of equals, the one of the smallest index (Bland)
        column = tableau[:rows, entering[0]]
        ratios = np.full(rows, np.inf)
        np.divide(tableau[:rows, -1], column, ratios, where=column > _ZERO)
        ties = np.flatnonzero(ratios == ratios.min())
        leaving = ties[basis[ties].argmin()]
        # the pivot: the entering column becomes a unit vector
        basis[leaving] = entering[0]
        tableau[leaving] /= tableau[leaving, entering[0]]
        others = np.arange(rows + 1) != leaving
        tableau[others] -= np.outer(tableau[others, entering[0]], tableau[leaving])
    return low + span * (1 / float(tableau[-1, -1]) - 1)


class Exp3IX:
    """EXP3-IX (Neu 2015): which of several policies plays the next episode.

    Args:
        policies: K, how many there are, at least 2.
        rounds: T, the number of episodes that the learning rate is meant for; there may be more or fewer.
        return_range: the lowest and the highest return of an episode; one that lies outside counts as the nearer end.
        learning_rate: eta, above 0; None is ``sqrt(2 ln K / (K T))``. Half of it is gamma.
        seed: of the choices.

    Attributes:
        learning_rate: eta.
        estimated_losses: float64 ``[K]``, of every policy the sum of its estimated losses, in units of the range.

    Raises:
        ValueRangeError: for numbers out of their range.

    >>> from adv_wrappers.evaluation.policy_bandit import Exp3IX
    >>> bandit = Exp3IX(policies=2, rounds=200, return_range=(0, 500))
    >>> for _ in range(200):
    ...     chosen = bandit.choose()
    ...     bandit.update(chosen, [100, 400][chosen])  # the return of an episode that was played by this policy
    >>> bool(bandit.probabilities[1] > 0.9)
    True
    """

    @checked
    def __init__(
        self,
        policies: Annotated[int, Limits(2)],
        rounds: Positive,
        return_range: tuple[float, float],
        learning_rate: AboveZero | None = None,
        seed: Seed = 0,
    ) -> None:
        self._low, self._high = _checked_range(return_range)
        if learning_rate is None:
            learning_rate = math.sqrt(2 * math.log(policies) / (policies * rounds))
        self.learning_rate = learning_rate
        self.estimated_losses: Floats = np.zeros(policies)
        self._random = np.random.default_rng(seed)

    @property
    def probabilities(self) -> Floats:
        """The probability that each policy is chosen next, float64 ``[K]``."""
        weights = np.exp(-self.learning_rate * (self.estimated_losses - self.estimated_losses.min()))
        found: Floats = weights / weights.sum()
        return found

    def choose(self) -> int:
        """The policy of the next episode, drawn by :attr:`probabilities`."""
        return int(self._random.choice(len(self.estimated_losses), p=self.probabilities))

    @checked
    def update(self, chosen: int, episode_return: Finite) -> None:
        """Learn from an episode, before the next policy is chosen.

        Args:
            chosen: the policy that played it, as :meth:`choose` drew it.
            episode_return: its return.

        Raises:
            ValueRangeError: for a policy that there is not, and a return that is not finite.
        """
        chosen = integer("chosen", chosen, 0, len(self.estimated_losses) - 1)
        earned = (episode_return - self._low) / (self._high - self._low)
        loss = 1 - min(max(earned, 0.0), 1.0)
        self.estimated_losses[chosen] += loss / (self.probabilities[chosen] + self.learning_rate / 2)


@dataclass(frozen=True)
class OnlineSelection:
    """What became of choosing online: T rounds, K policies.

    Attributes:
        returns: float64 ``[K, T]``, what every policy earns in every round; of these only those that were chosen were
            known to the bandit.
        chosen: int64 ``[T]``, the policy of every round.
        probabilities: float64 ``[T, K]``, those that it was drawn by.
    """

    returns: Floats
    chosen: Integers
    probabilities: Floats

    def __str__(self) -> str:
        policies, rounds = self.returns.shape
        means = ", ".join(f"{mean:.4g}" for mean in self.returns.mean(1))
        shares = ", ".join(f"{np.mean(self.chosen == policy):.0%}" for policy in range(policies))
        return (
            f"mean return {self.received.mean():.4g} over {rounds} rounds; of the policies alone {means}, chosen in "
            f"{shares} of the rounds"
        )

    @property
    def received(self) -> Floats:
        """The returns of the policies that were chosen, float64 ``[T]``."""
        return self.returns[self.chosen, np.arange(len(self.chosen))]

    @property
    def best(self) -> int:
        """The policy that earns most in all rounds together, the first of equal ones."""
        return int(self.returns.sum(1).argmax())

    @property
    def regret(self) -> Floats:
        """What the best policy of rounds 0 to t earned in them more than those that were chosen, float64 ``[T]``."""
        found: Floats = self.returns.cumsum(1).max(0) - self.received.cumsum()
        return found


def select_online(
    returns: ArrayLike, return_range: tuple[float, float], learning_rate: float | None = None, seed: int = 0
) -> OnlineSelection:
    """Choose among policies by EXP3-IX, round by round, where it is known what each would earn in each.

    In a round the bandit is told the return of the policy that it chose, and nothing of the others. This is the same as
    playing one episode after another, as long as what a policy earns in a round does not depend on which were chosen
    before: true of every threat that :func:`adv_wrappers.evaluate` plays, and not of an attacker who learns meanwhile.

    Args:
        returns: float ``[policies, rounds]``, paired: a column is one episode. The ``"returns"`` of the rows of
            evaluations on the same episodes, such as of every policy under an adversary that was trained against it.
        return_range, learning_rate, seed: as for :class:`Exp3IX`.

    Raises:
        ValueRangeError: for fewer than two policies or no round, returns that are not finite, and numbers out of range.

    >>> from adv_wrappers.evaluation.policy_bandit import select_online
    >>> found = select_online([[500.0] * 100 + [100.0] * 100, [200.0] * 200], (0, 500))
    >>> found.best, found.chosen.shape, bool(found.received.mean() > 200)
    (0, (200,), True)
    """
    table = _table(returns, "rounds", 2)
    policies, rounds = table.shape
    bandit = Exp3IX(policies, rounds, return_range, learning_rate, seed)
    chosen, probabilities = np.zeros(rounds, np.int64), np.zeros((rounds, policies))
    for t in range(rounds):
        probabilities[t], chosen[t] = bandit.probabilities, bandit.choose()
        bandit.update(int(chosen[t]), float(table[chosen[t], t]))
    return OnlineSelection(table, chosen, probabilities)


def _checked_range(return_range: tuple[float, float]) -> tuple[float, float]:
    low, high = Expected(tuple[Finite, Finite]).check("return_range", return_range)
    if not (low < high and math.isfinite(high - low)):
        raise ValueRangeError(f"return_range must go from a return to a higher one, got {return_range!r:.80}")
    return low, high
