"""Non-dominated policies: which policies of several are worth keeping, by their returns under several attacks.

The notion of PROTECTED (Liu et al. 2024): a policy is dominated where others, chosen among at random with fixed
probabilities (a mixture), earn at least as much under every attack. Their class of policies is trained so that none of
it is dominated; here policies that are there already are looked through, under attacks that were played. Whether a
mixture dominates a policy is the value of a matrix game: the mixture chooses a policy, its opponent the attack, and the
payoff is the policy's return less that of the policy in question. A small linear program has that value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adv_wrappers.core.types import Floats
from adv_wrappers.errors import ValueRangeError

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

    >>> from adv_wrappers.evaluation.non_dominated_policies import non_dominated
    >>> non_dominated([[500, 0], [200, 200], [0, 500]]).tolist()  # half of each other one earns 250 under either attack
    [True, False, True]
    """
    table = np.asarray(returns, np.float64)
    if table.ndim != 2 or not table.size:
        raise ValueRangeError(f"expected returns [policies, attacks], at least one of each, got shape {table.shape}")
    if not np.isfinite(table).all():
        raise ValueRangeError("expected returns [policies, attacks] that are finite numbers, got some that are not")
    kept = np.ones(len(table), np.bool_)
    slack = _ROUNDING * float(np.abs(table).max())
    for policy in reversed(range(len(table))):
        kept[policy] = False
        if not kept.any() or value_of_game(table[kept] - table[policy]) < -slack:
            kept[policy] = True
    return kept


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
    rows, columns = payoffs.shape
    tableau = np.zeros((rows + 1, columns + rows + 1))
    tableau[:rows, :columns] = 1 + (payoffs - low) / span
    tableau[:rows, columns:-1] = np.eye(rows)
    tableau[:rows, -1] = 1
    tableau[-1, :columns] = -1
    basis = np.arange(columns, columns + rows)
    while len(entering := np.flatnonzero(tableau[-1, :-1] < -_ZERO)):
        column = tableau[:rows, entering[0]]
        ratios = np.full(rows, np.inf)
        np.divide(tableau[:rows, -1], column, ratios, where=column > _ZERO)
        ties = np.flatnonzero(ratios == ratios.min())
        leaving = ties[basis[ties].argmin()]
        basis[leaving] = entering[0]
        tableau[leaving] /= tableau[leaving, entering[0]]
        others = np.arange(rows + 1) != leaving
        tableau[others] -= np.outer(tableau[others, entering[0]], tableau[leaving])
    return low + span * (1 / float(tableau[-1, -1]) - 1)
