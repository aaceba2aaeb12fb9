"""The box of a certificate: it holds whatever an attack shows to the victim, and no more than one may show."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers import L0, L2, Linf, Newest, PerturbObservation, Sparse, Valid, from_module, load_victim
from adv_wrappers.certification.possible_actions import ObservationBoxes, PossibleActions, observation_box
from adv_wrappers.core.spaces import to_victim
from adv_wrappers.errors import BudgetError, SpaceError, ValueRangeError, VictimError
from tests.core.helpers import linear, randn
from tests.every_case import every_case
from tests.toys import Brief


class Recorded(Brief):
    """Shows the rows of an array, one a step."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, rows):
        self.observation_space, self.rows, self.steps = space, rows, len(rows) - 1

    def seen(self):
        return self.rows[self.t]


def recording(space, steps=30, seed=0):
    """Observations of a space, some of its elements at its bounds and, of floats, beyond them."""
    random = np.random.default_rng(seed)
    low, high = space.low.astype(np.float64).clip(-1e4, 1e4), space.high.astype(np.float64).clip(-1e4, 1e4)
    x = random.uniform(low, high, (steps, *space.shape))
    x = np.where(random.random(x.shape) < 0.2, low, np.where(random.random(x.shape) < 0.2, high, x))
    if space.dtype.kind == "f":
        x = np.where(random.random(x.shape) < 0.1, x * 1.3 + 0.1, x)
    return (x.round() if space.dtype.kind in "iu" else x).astype(space.dtype)


def stacked(space, frames):
    """A space of stacks, and the stacks of frames that were recorded."""
    rows = recording(space)
    stacks = [np.stack([rows[max(t - k, 0)] for k in range(frames)][::-1]) for t in range(len(rows))]
    low, high = (np.repeat(side[None], frames, 0) for side in (space.low, space.high))
    return spaces.Box(low, high, dtype=space.dtype), stacks


def attack(kind):
    """Asks for the corners of the budget, and for random points of it; numbers far beyond it are projected back."""
    draws = torch.Generator().manual_seed(1)

    def wanted(x, context):
        if kind == "corners":
            return x + 1e6 * torch.randn(x.shape, generator=draws).sign().to(x)
        return x + 3 * torch.randn(x.shape, generator=draws).to(x)

    return wanted


FLOATS, UNITS = spaces.Box(-2, 3, (5,), np.float32), spaces.Box(-np.inf, np.inf, (5,), np.float64)
PIXELS, WHOLE = spaces.Box(0, 255, (3, 4), np.uint8), spaces.Box(-1000, 1000, (5,), np.int64)
MIXED = (0.0, 0.1, 1.0, 2.5, 7.0)
CASES = [
    (FLOATS, Linf(0.1), True), (FLOATS, Linf(0.1, MIXED), True), (FLOATS, Valid(), True), (UNITS, Linf(1e-3), True),
    (UNITS, Linf(0.1, MIXED), True), (UNITS, Linf(3e-9), True), (PIXELS, Linf(3), True), (PIXELS, Linf(2.7), True),
    (PIXELS, Linf(0.5), False), (PIXELS, Linf(1, tuple(range(12))), True), (PIXELS, Valid(), True),
    (WHOLE, Linf(0.7, MIXED), True),
]  # fmt: skip


def all_in_box(space, budget, quantize, rows, dtype=torch.float32):
    """Asserts that what attacks show lies in the box, as the victim sees both; returns how much of the corners does."""
    reached = 0.0
    for kind in ("corners", "points"):
        env = PerturbObservation(Recorded(space, rows), attack(kind), within=budget, quantize=quantize)
        seen = [env.reset(seed=0)[0]]
        while len(seen) < len(rows):
            seen.append(env.step(0)[0])
        true = np.stack(rows)
        boxes = ObservationBoxes(env.observation_space, budget)
        low, high = (side.to(dtype) for side in boxes(true if quantize else true.astype(np.float32)))
        victim_sees = to_victim(np.stack(seen), dtype, torch.device("cpu"), True)
        assert (low <= victim_sees).all() and (victim_sees <= high).all()
        if kind == "corners":
            reached = float(((victim_sees == low) | (victim_sees == high)).float().mean())
    return reached


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("space", "budget", "quantize"), CASES)
def test_it_holds_what_attacks_show_and_no_more(space, budget, quantize, dtype):
    assert all_in_box(space, budget, quantize, recording(space), dtype) == 1


@pytest.mark.parametrize(
    ("space", "budget"),
    [
        (FLOATS, Newest(Linf(0.1))), (PIXELS, Newest(Linf(3), axis=0)), (PIXELS, Newest(Valid(), axis=0)),
        (FLOATS, Newest(Linf(0.1, (5.0,) * 5 + (1.0,) * 5 + (7.0, 6.0, 5.0, 4.0, 3.0)))),
        (PIXELS, Newest(Linf(1, (1.0,) * 24 + (9.0,) * 12), axis=0)),
    ],
)  # fmt: skip
def test_stacks_whose_past_stays_as_it_was_shown(space, budget):
    whole, stacks = stacked(space, 3)
    all_in_box(whole, budget, True, stacks)


def test_places_of_a_stack_with_bounds_of_their_own():
    whole, stacks = stacked(FLOATS, 3)
    low, high = whole.low.copy(), whole.high.copy()
    low[0], high[0] = -0.5, 0.5
    all_in_box(spaces.Box(low, high, dtype=np.float32), Newest(Linf(0.7)), True, stacks)


def test_a_box_that_forgets_where_frames_were_new_is_found(monkeypatch):
    monkeypatch.setattr(ObservationBoxes, "_alike", lambda boxes, axis: True)
    with pytest.raises(AssertionError):
        test_stacks_whose_past_stays_as_it_was_shown(PIXELS, Newest(Linf(1, (1.0,) * 24 + (9.0,) * 12), axis=0))
    with pytest.raises(AssertionError):
        test_places_of_a_stack_with_bounds_of_their_own()


def test_a_box_that_is_too_small_is_found(monkeypatch):
    real = ObservationBoxes.__call__

    def inside(boxes, observations):
        low, high = real(boxes, observations)
        return torch.nextafter(low, high), high

    monkeypatch.setattr(ObservationBoxes, "__call__", inside)
    with pytest.raises(AssertionError):
        test_it_holds_what_attacks_show_and_no_more(FLOATS, Linf(0.1), True, torch.float32)


DICT = spaces.Dict({"a": FLOATS})


@every_case(
    ("space", "budget", "error", "words"),
    [
        (FLOATS, L2(0.1), BudgetError, r"needs a budget that is a box.*got L2\(eps=0.1\); the box of Linf"),
        (FLOATS, L0(1), BudgetError, "needs a budget that is a box"),
        (FLOATS, Sparse(2, Linf(0.1)), BudgetError, "needs a budget that is a box"),
        (FLOATS, Newest(L2(1.0), axis=0), BudgetError, "needs a budget that is a box"),
        (UNITS, Valid(), BudgetError, r"Valid\(\) is unbounded in Box"),
        (PIXELS, Linf(0.5), BudgetError, "below one grey level on an integer space.*quantize=False"),
        (FLOATS, Linf(0.1, (1.0,)), BudgetError, "scale has 1 numbers for a space of 5 features"),
        (FLOATS, Linf(0.1, "victim"), BudgetError, "scale='victim' needs a victim"),
        (spaces.Discrete(3), Linf(1), SpaceError, "needs observations that are one Box, this environment has Discrete"),
        (DICT, Linf(1), SpaceError, "needs observations that are one Box, this environment has Dict"),
    ],
)
def test_what_has_no_box(space, budget, error, words):
    with pytest.raises(error, match=words):
        ObservationBoxes(space, budget)


def test_observations_that_are_not_finite():
    with pytest.raises(ValueRangeError, match="returned an observation that is not finite"):
        observation_box(FLOATS, Linf(1), np.full((1, 5), np.nan, np.float32))


def test_what_a_victim_may_do():
    net = linear(randn(3, 5, seed=3, dtype=torch.float32))
    victim = from_module(net, FLOATS, spaces.Discrete(3), "q")
    x = recording(FLOATS, 300)
    for eps in (0.0, 0.2):
        possible, outputs = PossibleActions(victim, FLOATS, Linf(eps), "interval").at(x)
        assert possible.shape == (300, 3) and torch.equal(outputs, victim.params(torch.from_numpy(x)))
        own = victim.act_on(x)
        assert possible[np.arange(300), own].all()
        near = x + eps * np.random.default_rng(0).choice([-1, 0, 1], (50, *x.shape)).astype(np.float32)
        near = near.clip(np.minimum(x, FLOATS.low), np.maximum(x, FLOATS.high))
        for shown in near:
            assert possible[np.arange(300), victim.act_on(shown)].all()
        assert (possible.sum(1) > 1).any() == (eps > 0)


def test_images_as_floats():
    net = torch.nn.Sequential(torch.nn.Flatten(), linear(randn(2, 12, dtype=torch.float32)))
    victim = from_module(net, PIXELS, spaces.Discrete(2), "q")
    x = recording(spaces.Box(0, 3, (3, 4), np.uint8))
    less = PossibleActions(victim, PIXELS, Linf(0.5), "interval", quantize=False).at(x)[0]
    more = PossibleActions(victim, PIXELS, Linf(1), "interval").at(x)[0]
    assert (more | less == more).all() and less.sum() < more.sum()


def test_the_victim_s_own_unit():
    hopper = load_victim("zoo:hopper-ppo")
    budget = PossibleActions(hopper, hopper.observation_space, Linf(0.1, "victim"), "interval").budget
    assert isinstance(budget.scale, tuple) and len(budget.scale) == 11


def test_weights_that_are_not_numbers():
    net = linear(randn(2, 5, dtype=torch.float32))
    victim = from_module(net, FLOATS, spaces.Discrete(2), "q")
    with torch.no_grad():
        next(victim.modules()[0].parameters())[0, 0] = torch.nan
    with pytest.raises(VictimError, match="not finite"):
        PossibleActions(victim, FLOATS, Linf(0.1), "interval").at(recording(FLOATS))
