"""Steps of CartPole, MountainCar and Pendulum on boxes of states: where any of these states can lead to.

The formulas are those of Gymnasium's classic control, with the constants of the environment at hand. A box that comes
out holds the next state of every state that went in, also as float64 rounds it: ``_ROUNDING`` is thousands of times
what the hundred operations of a step can be off.

Boxes have the axes of ``coordinates @ state``. CartPole's are those in which its motion near the upright pole does
not mix them: a box of positions, velocities and angles comes out as a slanted one, whose hull would grow by a tenth
at every step. There the pole's angle and velocity are replaced by the part of them that grows and the part that
decays (``angle + velocity / rate`` and ``angle - velocity / rate``), and the cart by the centre of mass, which
moves as if it had no pole.

What does not rise or fall with a coordinate all over a box is bounded by its value in the middle and its derivatives
(mean value form), which themselves are bounded by interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.envs.classic_control.mountain_car import MountainCarEnv
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from adv_wrappers.core.types import Floats
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.searches.search_tree import step_limit
from adv_wrappers.wrappers.layer import AnyEnv, wrappers_of

# ----------------------------------------------------------------------------------------------------------------------
# Interval arithmetic on float64 arrays, rounded outwards (Moore 1966): what a formula can give for numbers in ranges.
#
# Every operation answers with an interval that holds the exact result for all numbers in its operands, and the result
# that float64 computes for them. Formulas in which a variable occurs several times are bounded, not exactly: each
# occurrence is taken to vary by itself.
# ----------------------------------------------------------------------------------------------------------------------


_TURN = 2 * np.pi
_WAVE = 2.0**-48  # more than sines and cosines, and the multiples of pi that they are reduced by, are off


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, elementwise; float64 arrays of one shape, or numbers.

    >>> from adv_wrappers.core.types import Floats
    from adv_wrappers.certification.interval_dynamics import Interval
    >>> Interval(1.0, 2.0) - Interval(0.0, 1.0)  # doctest: +ELLIPSIS
    Interval(low=..., high=...)
    """

    low: Floats
    high: Floats

    @classmethod
    def of(cls, value: Interval | Floats | float) -> Interval:
        """A number or array as an interval of no width; intervals as they are."""
        return value if isinstance(value, Interval) else cls(np.float64(value), np.float64(value))  # type: ignore[arg-type]

    @property
    def middle(self) -> Floats:
        """The middle, rounded."""
        return 0.5 * self.low + 0.5 * self.high

    @property
    def radius(self) -> Floats:
        """How far the interval reaches from its middle at most."""
        middle = self.middle
        return np.nextafter(np.maximum(self.high - middle, middle - self.low), np.inf)

    @property
    def largest(self) -> Floats:
        """The largest absolute value in it."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __add__(self, other: Interval | Floats | float) -> Interval:
        other = Interval.of(other)
        return _rounded(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval | Floats | float) -> Interval:
        return self + -Interval.of(other)

    def __mul__(self, other: Interval | Floats | float) -> Interval:
        other = Interval.of(other)
        ends = self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high
        return _rounded(
            np.minimum(np.minimum(ends[0], ends[1]), np.minimum(ends[2], ends[3])),
            np.maximum(np.maximum(ends[0], ends[1]), np.maximum(ends[2], ends[3])),
        )

    def __truediv__(self, other: Interval | Floats | float) -> Interval:
        """Divided by intervals without zero; through one that holds it, the quotient has no bounds."""
        other = Interval.of(other)
        holds_zero = (other.low <= 0) & (other.high >= 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = _rounded(1 / other.high, 1 / other.low)
        low, high = np.where(holds_zero, -np.inf, inverse.low), np.where(holds_zero, np.inf, inverse.high)
        return self * Interval(low, high)

    def square(self) -> Interval:
        """The square, in which both factors are the same number."""
        least = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(np.abs(self.low), np.abs(self.high)))
        found = _rounded(least * least, self.largest * self.largest)
        return Interval(np.maximum(found.low, 0.0), found.high)

    def clip(self, most: float) -> Interval:
        """Brought within plus and minus a number."""
        return Interval(np.clip(self.low, -most, most), np.clip(self.high, -most, most))

    def cos(self) -> Interval:
        """The cosine."""
        ends = np.cos(self.low), np.cos(self.high)
        low, high = np.minimum(*ends) - _WAVE, np.maximum(*ends) + _WAVE
        high = np.where(_holds_multiple(self, 0.0), 1.0, np.minimum(high, 1.0))
        return Interval(np.where(_holds_multiple(self, np.pi), -1.0, np.maximum(low, -1.0)), high)

    def sin(self) -> Interval:
        """The sine."""
        return (self - np.pi / 2).cos()


def _rounded(low: Floats, high: Floats) -> Interval:
    return Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))


def _holds_multiple(x: Interval, shift: float) -> NDArray[np.bool_]:
    """Whether an interval may hold ``shift`` plus a multiple of a full turn."""
    turns = np.floor((x.high - shift) / _TURN + _WAVE)
    return np.asarray((x.low - shift) / _TURN - _WAVE <= turns)


Bools = NDArray[np.bool_]

_ROUNDING = 1e-11  # relative to one plus the largest number of a state; a step is off by some 1e-14
_SINGLE = 2.0**-20  # relatively, more than some operations in float32 are off
LARGEST_STATE = 1e3  # the largest number of a state for which that holds


@dataclass(frozen=True)
class SteppedBoxes:
    """What a step makes of boxes, one row each.

    Attributes:
        low, high: boxes around the next states from which the episode goes on; ``[N, D]``.
        reward: lower bounds on the rewards of steps after which the episode goes on; ``[N]``.
        last_reward: lower bounds on those that end it; ``[N]``.
        may_end: whether the episode may end with this step; ``[N]``.
        surely_ends: whether it does; ``[N]``.
    """

    low: Floats
    high: Floats
    reward: Floats
    last_reward: Floats
    may_end: Bools
    surely_ends: Bools


class IntervalDynamics:
    """One environment on boxes of states.

    Attributes:
        env: the environment, without wrappers.
        coordinates: what a state is multiplied by to get the axes of boxes; ``[D, D]``.
        limit: the largest number of steps of an episode.
        start_low, start_high: the box of states that the environment is reset to by default; ``[D]``.
        periods: after how much an axis repeats; infinity for those that do not. ``[D]``.
        most: the largest return of an episode, where it is known; else infinity.
    """

    env: Any
    coordinates: Floats
    limit: int
    start_low: Floats
    start_high: Floats
    periods: Floats
    most: float = np.inf

    def cells(self, scale: float, many: bool) -> Floats:
        """The sides of the cells of a grid ``[D]``; the smaller ``scale``, the smaller some of them are.

        Args:
            scale: above 0.
            many: whether the search is from a set of states, and not from one.
        """
        raise NotImplementedError

    def state(self) -> Floats:
        """The environment's present state ``[D]``."""
        return np.array(self.env.state, np.float64)

    def observe(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Boxes around the observations, in float64, at the states of boxes ``[N, D]``."""
        raise NotImplementedError

    def step(self, low: Floats, high: Floats, action: Floats) -> SteppedBoxes:
        """A step from boxes ``[N, D]``: of a discrete action ``[N]``, or of any in boxes of actions ``[N, 2, 1]``."""
        raise NotImplementedError

    def least_rest(self, steps: int) -> float:
        """What an episode that is not over earns at least in at most this many steps that are left."""
        raise NotImplementedError


def has_dynamics(env: AnyEnv) -> bool:
    """Whether :func:`dynamics_of` takes this environment."""
    try:
        dynamics_of(env)
    except ValueRangeError:
        return False
    return True


def dynamics_of(env: AnyEnv) -> IntervalDynamics:
    """The dynamics of an environment that is known here.

    Raises:
        ValueRangeError: for other environments, wrappers that change what is seen, done or earned, and episodes without
            a limit of steps.

    >>> import gymnasium as gym
    >>> from adv_wrappers.certification.interval_dynamics import dynamics_of
    >>> dynamics_of(gym.make("CartPole-v1")).limit
    500
    """
    # boxes know nothing of what a wrapper does
    *wrappers, inner = wrappers_of(env)
    for wrapper in wrappers:
        if type(wrapper) not in _TRANSPARENT:
            raise ValueRangeError(
                f"a search over boxes of states needs an environment without wrappers that change what is seen, done "
                f"or earned, got {type(wrapper).__name__}"
            )
    make = _KNOWN.get(type(inner))
    if make is None:
        raise ValueRangeError(
            f"a search over boxes of states knows Gymnasium's CartPole, MountainCar and Pendulum, got {inner}"
        )
    limit = step_limit(env)
    if limit is None:
        raise ValueRangeError(f"a search over boxes of states needs a limit of steps: wrap {inner} in TimeLimit")
    return make(inner, limit)


def _widened(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Boxes with room for the rounding of a step."""
    room = _ROUNDING * (1 + np.maximum(np.abs(low), np.abs(high)).max(-1, keepdims=True, initial=0.0))
    return low - room, high + room


class CartPoleDynamics(IntervalDynamics):
    """CartPole: states are cart position and velocity, pole angle and angular velocity.

    The boxes' axes are the position and velocity of the centre of mass, and the growing and the decaying part of the
    pole's motion, which are angles.
    """

    def __init__(self, env: CartPoleEnv, limit: int) -> None:
        if env.kinematics_integrator != "euler":
            raise ValueRangeError(f"expected kinematics_integrator='euler', got {env.kinematics_integrator!r}")
        self.env = env
        self.limit = limit
        self.most = 0.0 if env._sutton_barto_reward else float(limit)
        self.start_low, self.start_high = np.full(4, -0.05), np.full(4, 0.05)
        self.periods = np.full(4, np.inf)
        self._share = env.polemass_length / env.total_mass
        # the axes in which the linearised motion around the upright pole is diagonal
        reach = env.length * (4 / 3 - env.masspole / env.total_mass)
        rate = math.sqrt(env.gravity / reach)
        self.coordinates = np.array(
            [[1, 0, self._share, 0], [0, 1, 0, self._share], [0, 0, 1, 1 / rate], [0, 0, 1, -1 / rate]]
        )
        self._back = np.linalg.inv(self.coordinates)
        # what one push changes: velocity, and both parts of the pole's motion
        self._push = env.tau * env.force_mag / env.total_mass
        self._turn = self._push / (reach * rate)

    def cells(self, scale: float, many: bool) -> Floats:
        if many:  # velocities differ by whole pushes, so that cells of one push keep sets of them apart
            return np.array([0.8 * math.sqrt(scale), self._push, self._turn * scale / 8, self._turn * scale])
        # of sides that shrink alike, searches of a given number of boxes get less far
        root, turn = math.sqrt(scale), self._turn * scale / 4
        return np.array([root / 4, self._push / 2 * root, turn, turn])

    def states(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Boxes of states around those of the slanted axes."""
        middle, radius = _halves(low, high)
        centre, reach = middle @ self._back.T, radius @ np.abs(self._back).T
        return _widened(centre - reach, centre + reach)

    def observe(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return self.states(low, high)

    def step(self, low: Floats, high: Floats, action: Floats) -> SteppedBoxes:
        env, back = self.env, self._back
        force = np.where(action == 1, env.force_mag, -env.force_mag)
        # the middle of the box takes a step as it is
        middle, radius = _halves(low, high)
        at = middle @ back.T
        move, turn = self._acceleration(at[:, 2], at[:, 3], force)
        to = at + env.tau * np.stack([at[:, 1], move, at[:, 3], turn], 1)
        # derivatives of the step, their middles and how far they reach to both sides
        first, last = self.states(low, high)
        slopes = self._slopes(Interval(first[:, 2], last[:, 2]), Interval(first[:, 3], last[:, 3]), force)
        jacobian = np.broadcast_to(np.eye(4), (len(low), 4, 4)).copy()
        jacobian[:, 0, 1] = jacobian[:, 2, 3] = env.tau
        unsure = np.zeros((len(low), 4))
        sides = radius @ np.abs(back).T
        for (row, column), slope in slopes.items():
            jacobian[:, row, column] += env.tau * slope.middle
            unsure[:, row] += env.tau * slope.radius * sides[:, column]
        # mean value form: the derivatives in the middle stretch the box, and what they are unsure of comes on top
        slanted = np.abs(self.coordinates @ jacobian @ back)
        reach = (slanted * radius[:, None]).sum(-1) + unsure @ np.abs(self.coordinates).T
        centre = to @ self.coordinates.T
        low, high = _widened(centre - reach, centre + reach)
        first, last = self.states(low, high)
        # which boxes may have left the range, and which have for sure
        limits = np.array([env.x_threshold, env.theta_threshold_radians])
        first, last = first[:, [0, 2]], last[:, [0, 2]]
        may_end: Bools = np.any((first < -limits) | (last > limits), axis=1)
        surely: Bools = np.any((first > limits) | (last < -limits), axis=1)
        # rewards of a step, and of the last one
        one = np.ones(len(low))
        rewards = (0 * one, -one) if env._sutton_barto_reward else (one, one)
        return SteppedBoxes(low, high, *rewards, may_end, surely)

    def _acceleration(self, angle: Floats, spin: Floats, force: Floats) -> tuple[Floats, Floats]:
        """The accelerations of cart and pole, as the environment computes them."""
        env = self.env
        cos, sin = np.cos(angle), np.sin(angle)
        push = (force + env.polemass_length * np.square(spin) * sin) / env.total_mass
        turn = (env.gravity * sin - cos * push) / (
            env.length * (4.0 / 3.0 - env.masspole * np.square(cos) / env.total_mass)
        )
        return push - env.polemass_length * turn * cos / env.total_mass, turn

    def _slopes(self, angle: Interval, spin: Interval, force: Floats) -> dict[tuple[int, int], Interval]:
        """Derivatives of both accelerations with respect to angle and angular velocity, by row and column."""
        env, share = self.env, self._share
        cos, sin = angle.cos(), angle.sin()
        bent = spin.square() * share  # the centripetal part
        push = bent * sin + force / env.total_mass
        push_angle, push_spin = bent * cos, spin * sin * (2 * share)
        # the pole's acceleration is a quotient, top over inertia, and its derivatives follow from the quotient rule
        ratio = env.masspole / env.total_mass
        inertia = (cos.square() * -ratio + 4.0 / 3.0) * env.length
        turn = (sin * env.gravity - cos * push) / inertia
        top = cos * env.gravity + sin * push - cos * push_angle
        turn_angle = (top - turn * (cos * sin * (2 * ratio * env.length))) / inertia
        turn_spin = -(cos * push_spin) / inertia
        return {
            (1, 2): push_angle - (turn_angle * cos - turn * sin) * share,
            (1, 3): push_spin - turn_spin * cos * share,
            (3, 2): turn_angle,
            (3, 3): turn_spin,
        }

    def least_rest(self, steps: int) -> float:
        if self.env._sutton_barto_reward:
            return -1.0 if steps else 0.0
        return float(min(steps, 1))


class MountainCarDynamics(IntervalDynamics):
    """MountainCar: states are position and velocity."""

    def __init__(self, env: MountainCarEnv, limit: int) -> None:
        self.env, self.limit = env, limit
        self.start_low, self.start_high = np.array([-0.6, 0.0]), np.array([-0.4, 0.0])
        self.coordinates, self.periods = np.eye(2), np.full(2, np.inf)

    def cells(self, scale: float, many: bool) -> Floats:
        env = self.env
        return np.array([env.max_position - env.min_position, 2 * env.max_speed]) * scale / 50

    def observe(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        return low, high

    def step(self, low: Floats, high: Floats, action: Floats) -> SteppedBoxes:
        env = self.env
        position, velocity = Interval(low[:, 0], high[:, 0]), Interval(low[:, 1], high[:, 1])
        # interval arithmetic, and where the step rises with both coordinates the two ends themselves
        push = (action - 1) * env.force
        speed = (velocity + ((position * 3.0).cos() * -env.gravity + push)).clip(env.max_speed)
        place = position + speed
        if 3 * abs(env.gravity) < 1:  # it rises with both: the ends are those of the box
            place = Interval(*(
                x + np.clip(v + (push - env.gravity * np.cos(3 * x)), -env.max_speed, env.max_speed)
                for x, v in (low.T, high.T)
            ))  # fmt: skip
        first, last = _widened(np.stack([place.low, speed.low], 1), np.stack([place.high, speed.high], 1))
        # at the left wall velocities to the left become zero
        stops = first[:, 0] <= env.min_position
        last[:, 1] = np.where(stops, np.maximum(last[:, 1], 0.0), last[:, 1])
        at_wall = last[:, 0] <= env.min_position
        first[:, 1] = np.where(at_wall, np.maximum(first[:, 1], 0.0), first[:, 1])
        last[:, 1] = np.maximum(first[:, 1], last[:, 1])
        first[:, 0], last[:, 0] = (np.clip(x[:, 0], env.min_position, env.max_position) for x in (first, last))
        # an episode ends at the goal's position, with at least its velocity
        may_end = (last[:, 0] >= env.goal_position) & (last[:, 1] >= env.goal_velocity)
        fast = first[:, 1] >= env.goal_velocity
        surely = (first[:, 0] >= env.goal_position) & fast
        # an episode that goes on has not reached the goal, unless it was too slow
        last[:, 0] = np.where(fast & ~surely, np.minimum(last[:, 0], env.goal_position), last[:, 0])
        reward = np.full(len(low), -1.0)
        return SteppedBoxes(first, last, reward, reward, may_end, surely)

    def least_rest(self, steps: int) -> float:
        return -float(steps)


class PendulumDynamics(IntervalDynamics):
    """Pendulum: states are the angle, up to full turns, and the angular velocity."""

    def __init__(self, env: PendulumEnv, limit: int) -> None:
        self.env, self.limit = env, limit
        self.start_low, self.start_high = np.array([-np.pi, -1.0]), np.array([np.pi, 1.0])
        self.coordinates, self.periods = np.eye(2), np.array([2 * np.pi, np.inf])

    def cells(self, scale: float, many: bool) -> Floats:
        return np.array([2 * np.pi / max(round(60 / scale), 1), 2 * self.env.max_speed * scale / 60])

    def observe(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        angle = Interval(low[:, 0], high[:, 0])
        cos, sin = angle.cos(), angle.sin()
        return np.stack([cos.low, sin.low, low[:, 1]], 1), np.stack([cos.high, sin.high, high[:, 1]], 1)

    def step(self, low: Floats, high: Floats, action: Floats) -> SteppedBoxes:
        env = self.env
        torque = Interval(action[:, 0, 0], action[:, 1, 0]).clip(env.max_torque)
        room = _SINGLE * torque.largest  # the environment multiplies torques in float32
        torque = Interval(torque.low - room, torque.high + room)
        angle, spin = Interval(low[:, 0], high[:, 0]), Interval(low[:, 1], high[:, 1])
        # the cost is of the angle in [-pi, pi], the velocity and the torque, each at the most
        far = np.minimum(angle.largest * (1 + _ROUNDING) + _ROUNDING, np.pi)
        cost = Interval(far, far).square() + spin.square() * 0.1 + torque.square() * 0.001
        # interval arithmetic, and where the step rises with everything the two ends themselves
        pull, gain = 3 * env.g / (2 * env.l), 3.0 / (env.m * env.l**2)
        faster = (spin + (angle.sin() * pull + torque * gain) * env.dt).clip(env.max_speed)
        to = angle + faster * env.dt
        if abs(pull) * env.dt**2 < 1:  # it rises with everything: the ends are those of the box
            to = Interval(*(
                th + np.clip(thdot + (pull * np.sin(th) + gain * u) * env.dt, -env.max_speed, env.max_speed) * env.dt
                for (th, thdot), u in ((low.T, torque.low), (high.T, torque.high))
            ))  # fmt: skip
        first, last = _widened(np.stack([to.low, faster.low], 1), np.stack([to.high, faster.high], 1))
        first[:, 1], last[:, 1] = (np.clip(x[:, 1], -env.max_speed, env.max_speed) for x in (first, last))
        reward, never = -cost.high - _ROUNDING, np.zeros(len(low), bool)  # rounded as their sum is, too
        return SteppedBoxes(first, last, reward, reward, never, never)

    def least_rest(self, steps: int) -> float:
        env = self.env
        most = np.pi**2 + 0.1 * max(env.max_speed, 1.0) ** 2 + 0.001 * env.max_torque**2
        return -steps * float(most) * (1 + 1e-9)


def _halves(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Middles and radii of boxes, rounded outwards."""
    found = Interval(low, high)
    return found.middle, found.radius


_TRANSPARENT = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
_KNOWN: dict[type, Callable[..., IntervalDynamics]] = {
    CartPoleEnv: CartPoleDynamics, MountainCarEnv: MountainCarDynamics, PendulumEnv: PendulumDynamics,
}  # fmt: skip
