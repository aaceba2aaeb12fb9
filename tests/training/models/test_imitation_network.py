"""The network that imitates: what it learns of labels, how sure it is, and how agreement is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.attacks.objectives import divergence_of
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.training.models import imitation
from adv_wrappers.training.models.imitation import Labels, agreement, fit_surrogate
from tests.core.helpers import randn

SEEN, TWO = spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(2)
BOX = spaces.Box(-1, 1, (2,), np.float32)
X = randn(600, 3).numpy() * [1.0, 10.0, 0.01] + [0.0, 5.0, 0.0]
RULE = ((X - [0, 5, 0]) @ [1.0, 0.1, 50.0] > 0).astype(np.int64)


def labels(actions, x=X):
    return Labels(x, actions, np.zeros(len(x), np.uint8))


def fitted(actions, space, epochs=10, **more):
    return fit_surrogate(labels(actions), SEEN, space, [16], epochs, 0, **more)


def test_a_rule_is_learned_and_the_same_weights_come_twice():
    before = torch.get_rng_state()
    one, two = fitted(RULE, TWO, 5), fitted(RULE, TWO, 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.fingerprint() == two.fingerprint()
    assert agreement(one.act_on(X), RULE, TWO) > 0.97
    other = fit_surrogate(labels(RULE), SEEN, TWO, [16], 1, 1)
    assert other.fingerprint() != one.fingerprint()


def test_the_unit_is_the_victims_or_the_spread_of_what_was_seen():
    np.testing.assert_allclose(fitted(RULE, TWO, 1).scale, X.std(0))
    unit = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(fitted(RULE, TWO, 1, scale=unit).scale, unit)


def test_actions_count_from_the_start_of_the_space():
    space = spaces.Discrete(2, start=7)
    assert agreement(fitted(RULE + 7, space).act_on(X), RULE + 7, space) > 0.97


def test_a_single_action_has_no_lead():
    assert fitted(0 * RULE, spaces.Discrete(1), 1).act_on(X).tolist() == [0] * len(X)


@pytest.mark.slow
def test_logits_are_divided_until_a_divergence_has_a_slope(monkeypatch):
    """A fit of actions alone grows ever surer; the division changes no action."""
    net = fitted(RULE, TWO, 30)
    monkeypatch.setattr(imitation, "LEAD", np.inf)
    sure = fitted(RULE, TWO, 30)
    lead = (net.params(X)[:, 0] - net.params(X)[:, 1]).abs()
    assert float(lead.quantile(0.9)) == pytest.approx(3.0, rel=1e-3)
    assert float((sure.params(X)[:, 0] - sure.params(X)[:, 1]).abs().quantile(0.9)) > 10
    assert torch.equal(sure.act_on(torch.tensor(X)), net.act_on(torch.tensor(X)))
    slopes = []
    for victim in (net, sure):
        clean = victim.params(torch.tensor(X)).detach()
        slope = victim.gradient(divergence_of(victim, clean, None, None))(torch.tensor(X + 0.05 * X.std(0)).float())
        slopes.append(float((slope * torch.tensor(X.std(0))).abs().amax(-1).quantile(0.1)))
    assert slopes[0] > 1e-4 and slopes[1] < 1e-6  # MaxDiff's own noise is 1e-5 at first


def test_continuous_actions_in_their_own_units():
    mean = (X - [0, 5, 0]) @ np.array([[3.0, 0.0], [0.1, -200.0], [0.0, 1e4]])
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    net = fitted(mean, space, 20)
    assert net.kind == "mean" and not net.clip
    assert agreement(net.act_on(X), mean, space) > 0.98


@pytest.mark.slow
def test_clipped_actions_cost_nothing_beyond_their_bound():
    actions = np.clip((X - [0, 5, 0]) @ np.array([[3.0, 0.0], [0.0, -0.3], [0.0, 0.0]]), -1, 1).astype(np.float32)
    net = fitted(actions, BOX, 20)
    assert net.clip and agreement(net.act_on(X), actions, BOX) > 0.98
    assert float(net.params(X).abs().max()) > 1.2  # linear, and not bent at the bound
    outside = fitted(3 * actions, BOX, 1)
    assert not outside.clip


def test_labels_that_no_training_survives():
    with pytest.raises(ValueRangeError, match="the training of the surrogate diverged"):
        fit_surrogate(labels(RULE, X * 1e300), SEEN, TWO, [4], 1, 0)


def test_agreement():
    assert agreement(np.array([0, 1, 1, 1]), np.array([0, 1, 0, 1]), TWO) == 0.75
    theirs = np.array([[0.0, 5.0], [2.0, 5.0]])
    assert agreement(theirs, theirs, BOX) == 1.0
    assert agreement(np.array([[1.0, 5.0], [1.0, 5.0]]), theirs, BOX) == pytest.approx(0.5)  # R2 of 0 and 1
    assert agreement(theirs + np.array([0.0, 1.0]), theirs, BOX) == pytest.approx(0.5)  # the constant one is missed
