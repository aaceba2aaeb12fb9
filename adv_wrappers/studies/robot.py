"""What a robot's policy survives: pushes, loads, worn actuators, late messages and faulty sensors, in their own units.

Each disturbance is a threat of one magnitude, from nothing to the largest that is sensible for the robot, and the least
magnitude at which the policy breaks is found by bisection. Which disturbances there are is a table
(:func:`disturbances`); what an environment does not offer is left out with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.environments.physical_parameters import PhysicalParameters, parameters_of
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError, WorkerError
from adv_wrappers.evaluation.confidence_intervals import MeanWithInterval
from adv_wrappers.evaluation.metrics import metric_of
from adv_wrappers.evaluation.row import Row
from adv_wrappers.evaluation.row_key import versions
from adv_wrappers.evaluation.store import ROWS_FILE, Store
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN
from adv_wrappers.rendering.table import grouped
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import expand
from adv_wrappers.studies.report.article import (
    DASH,
    Article,
    Command,
    Facts,
    Listing,
    Paragraph,
    Part,
    Section,
    check_target,
    render,
)
from adv_wrappers.studies.report.charts import Column, Table, TableLine, Tone
from adv_wrappers.studies.study import play_study
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.limits import EnvCount, EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.layer import AnyEnv
from adv_wrappers.wrappers.wrap import wrap

PAGE_FILE = "robot.html"
_FINE = 32  # parts of the largest magnitude, to one of which the least that breaks the policy is found
_USUAL_STEP, _USUAL_LENGTH = 0.02, 500  # seconds, and steps of an episode, where the environment does not say them
_USUAL_ROWS = 5  # of a disturbance
_COARSE = 2  # magnitudes of every disturbance that are played before any is known well
_GRAVITY = 9.81
_LEAST_MINUTES = 0.01  # for the first round, which has the run without a disturbance, whatever was spent before it

# sensors by the names that an environment gives them: what they are, their unit, and how far off each may be
_SENSORS = {
    "velocity": ("velocity estimate", "m/s", 2.0), "gyro": ("gyroscope", "rad/s", 3.0),
    "gravity": ("gravity direction of the IMU", "g", 1.0), "joints": ("joint encoders", "rad", 1.0),
    "joint_speeds": ("joint speeds", "rad/s", 20.0), "command": ("command", "m/s", 1.0),
}  # fmt: skip


@dataclass(frozen=True)
class Disturbance:
    """One kind of disturbance.

    Attributes:
        name, unit: in words.
        most: the largest magnitude that is sensible.
        text: the threat, with ``{m}`` for the magnitude, ``{share}`` for a hundredth of it, ``{left}`` for one less
            that share, and ``{more}`` for one and that share.
        step: seconds of a step where magnitudes are whole steps, else None.
        last: whether it is played after all others.
    """

    name: str
    unit: str
    most: float
    text: str
    step: float | None = None
    last: bool = False

    def threat(self, m: float) -> str:
        """The threat of a magnitude."""
        numbers = {"m": m, "share": m / 100, "left": 1 - m / 100, "more": 1 + m / 100}
        return self.text.format(**{name: f"{value:.6g}" for name, value in numbers.items()})

    def size(self, m: float) -> str:
        """A magnitude in words."""
        if self.step is not None:
            return f"{m:g} step{'s' if m != 1 else ''} ({1000 * m * self.step:.0f} ms)"
        return f"{m:.3g}{'' if self.unit == '%' else ' '}{self.unit}"


@dataclass(frozen=True)
class _Robot:
    """What the table of disturbances goes by.

    Attributes:
        step: seconds of a step of the environment.
        length: steps of an episode.
        mass: of the robot, kilograms.
        body: what is pushed and loaded.
        joints: those that may drag.
        features: numbers of an observation.
        sensors: by name, the first and the end of their numbers in an observation, and its factor.
        weaker, stiffness: the parameters of the strength of actuators and of the controller's stiffness, or "".
    """

    step: float
    length: int
    mass: float
    body: str
    joints: Sequence[str]
    features: int
    sensors: Mapping[str, tuple[int, int, float]]
    weaker: str
    stiffness: str


def disturbances(robot: _Robot) -> list[Disturbance]:
    """The table, in the order in which they are played."""
    two, tenth = (max(round(seconds / robot.step), 1) for seconds in (2, 0.1))
    weight, torque = robot.mass * _GRAVITY, robot.mass * _GRAVITY / 2  # N; N m: of half a metre
    fixed, push = "fixed-dynamics:at=", f"when=every({two},{2 * tenth},{two - 2 * tenth})"
    ways = {"forward": "{m};0;0", "backward": "-{m};0;0", "left": "0;{m};0", "right": "0;-{m};0"}
    rows: list[tuple[Any, ...]] = [
        *((f"push {way} for 0.2 s every 2 s", "N", 2 * weight, f"{fixed}force.{robot.body},values={xyz},{push}")
          for way, xyz in ways.items()),
        (f"load on {robot.body}", "kg", 2 * robot.mass, f"{fixed}load.{robot.body},values={{m}}"),
        ("actions late by", "steps", 2 * tenth, "action-delay:steps={m}", robot.step),
        ("observations late by", "steps", 2 * tenth, "observation-delay:steps={m}", robot.step),
        ("observations late by 0 up to", "steps", 2 * tenth, "observation-jitter:most={m}", robot.step),
        ("lost actions", "%", 95.0, "action-loss:rate={share}"),
        ("lost observations", "%", 95.0, "observation-loss:rate={share}"),
        ("observations that stop after 2 s for", "steps", two,
         f"stuck-sensor:when=~window(0,{two})&atmost({{m}})", robot.step),
        ("less friction of the ground", "%", 99.0, f"{fixed}friction,values={{left}}"),
        ("slope uphill", "degrees", 30.0, f"{fixed}slope,values={{m}};0"),
        ("slope downhill", "degrees", 30.0, f"{fixed}slope,values=-{{m}};0"),
        ("slope to the side", "degrees", 30.0, f"{fixed}slope,values=0;{{m}}"),
        ("drag in every joint", "N m", torque / 4, f"{fixed}frictionloss,values={{m}}"),
    ]  # fmt: skip
    if robot.weaker:
        rows.append(("weaker actuators by", "%", 100.0, f"{fixed}{robot.weaker},values={{left}}"))
    if robot.stiffness:
        rows.append(("softer controller by", "%", 100.0, f"{fixed}{robot.stiffness},values={{left}}"))
        rows.append(("stiffer controller by", "%", 200.0, f"{fixed}{robot.stiffness},values={{more}}"))
    for sensor, (first, end, factor) in robot.sensors.items():
        what, unit, most = _SENSORS[sensor]
        scale = ";".join(f"{factor:g}" if first <= i < end else "0" for i in range(robot.features))
        rows.append((f"{what} off by", unit, most, f"sensor-bias:eps={{m}},scale={scale}"))
        if sensor != "command":
            rows.append((f"noise of {what}", unit, most, f"noise:eps={{m}},scale={scale}"))
        if sensor in ("gyro", "gravity", "velocity"):
            drift = f"sensor-drift:steps={robot.length},eps={{m}},scale={scale}"
            rows.append((f"drift of {what} up to", unit, most, drift))
    for joint in robot.joints:
        rows.append((f"drag in {joint} alone", "N m", torque, f"{fixed}frictionloss.{joint},values={{m}}", None, True))
    return [Disturbance(*row) for row in rows]


@dataclass(frozen=True)
class DisturbanceMargin:
    """How much of a disturbance the policy bears.

    Attributes:
        disturbance: the disturbance.
        points: the magnitudes that were played, in rising order, with their rows.
        safe: the largest magnitude at which, and below which, no episode failed; of a metric that is no rate, none
            that breaks the policy.
        breaks: the least that breaks the policy; None where none does.
        next: the magnitude that would be played next; None where the bisection is done.
        error: of the magnitude at which a simulation failed, which ends the bisection, or "".
    """

    disturbance: Disturbance
    points: tuple[tuple[float, Row], ...]
    safe: float
    breaks: float | None
    next: float | None
    error: str = ""

    @property
    def share(self) -> float:
        """Of the largest magnitude, at which the policy breaks; above 1 where it does not."""
        return 2.0 if self.breaks is None else self.breaks / self.disturbance.most

    @property
    def words(self) -> tuple[str, str]:
        """Up to which magnitude it is harmless, and from which it breaks the policy, as far as that was played."""
        size, open_ = self.disturbance.size, self.next is not None
        breaks = "more was not tried yet" if open_ else DASH
        if self.breaks is not None:
            breaks = f"{'at most ' if open_ else ''}{size(self.breaks)}"
        return size(self.safe) if self.safe else DASH, breaks

    def __str__(self) -> str:
        return f"{self.disturbance.name}: harmless up to {self.words[0]}, breaks from {self.words[1]}"


@dataclass(frozen=True)
class RobotStudy:
    """The bisections.

    First come a few magnitudes of every disturbance, then the bisections to their ends, of those first that break the
    policy at the smallest share of their largest. So a limit of time leaves open what matters least.

    Attributes:
        plan: of the runs without a threat.
        table: the disturbances.
        metric: what counts.
        at_once: rows of a round: the time is looked at between two rounds.
        failed: by the threats whose rows could not be played, the errors; those that come while it is played too.
    """

    plan: Plan
    table: tuple[Disturbance, ...]
    metric: str
    at_once: int = 1
    failed: Mapping[str, str] = field(default_factory=dict)

    def next(self, rows: Sequence[Row]) -> Plan | None:
        """The next magnitudes of a few disturbances; None once all are done, or it breaks without any."""
        if rows and self.breaks(rows[0], rows[0]):
            return None
        open_ = [one for one in self._margins(rows) if one.next is not None]
        coarse = [one for one in open_ if len(one.points) < _COARSE and not one.disturbance.last]
        coarse.sort(key=lambda one: len(one.points))
        fine = sorted(open_, key=lambda one: one.disturbance.last)
        threats = [one.disturbance.threat(one.next or 0.0) for one in coarse or fine]
        return Plan((replace(self.plan.grids[0], threats=tuple(threats[: self.at_once])),)) if threats else None

    def conclusion(self, rows: Sequence[Row]) -> list[DisturbanceMargin]:
        """The margins of what was played, the smallest first, those whose simulation failed among them."""
        return [one for one in self._margins(rows) if one.points or one.error]

    def _margins(self, rows: Sequence[Row]) -> list[DisturbanceMargin]:
        """All margins, the smallest first."""
        known = {row.threat: row for row in rows}
        return sorted((self._margin(one, known, rows) for one in self.table), key=lambda one: one.share)

    def _margin(self, one: Disturbance, known: Mapping[str, Row], rows: Sequence[Row]) -> DisturbanceMargin:
        """Follow the bisection of one disturbance through its rows, as far as there are any."""
        points, low, high = dict[float, Row](), 0.0, None  # what does not break it, and what does
        m: float | None = _between(one, 0.0, one.most / 2) or one.most  # is played next
        while m is not None and (row := known.get(one.threat(m))) is not None:
            points[m] = row
            low, high = (low, m) if self.breaks(row, rows[0]) else (m, high)
            m = _between(one, low, high) if high is not None else one.most if low < one.most else None
        error = "" if m is None else self.failed.get(one.threat(m), "")
        rising = sorted(points)
        fails = [self.breaks(points[m], rows[0], any_fails=True) for m in rising]
        harmless = rising[: fails.index(True)] if True in fails else rising
        safe = max(harmless, default=0.0)
        return DisturbanceMargin(one, tuple((m, points[m]) for m in rising), safe, high, None if error else m, error)

    def breaks(self, row: Row, clean: Row, any_fails: bool = False) -> bool:
        """Whether half of the episodes fail, or half of what the metric is without a disturbance is lost.

        Args:
            row, clean: with a disturbance, and without.
            any_fails: of a rate, whether any episode fails.
        """
        harm = self._harm(row, clean)
        if metric_of(self.metric).is_rate:
            return harm > 0 if any_fails else harm >= 0.5
        return row is not clean and harm >= 0.5 * abs(clean.metric(self.metric).mean)

    def _harm(self, row: Row, clean: Row) -> float:
        """The share of the episodes that fail, by a rate; else what is lost, of what was to be low half of the rise."""
        metric, mean = metric_of(self.metric), row.metric(self.metric).mean
        if metric.is_rate:
            return mean if metric.bad_when_high else 1 - mean
        lost = clean.metric(self.metric).mean - mean
        return -lost / 2 if metric.bad_when_high else lost


def _between(one: Disturbance, low: float, high: float) -> float | None:
    """The middle of two magnitudes; None where they are close enough."""
    if high - low <= (one.most / _FINE if one.step is None else 1):
        return None
    return float(f"{(low + high) / 2:.3g}" if one.step is None else round((low + high) / 2))


@dataclass(frozen=True)
class RobotReport:
    """What :func:`robot_report` found.

    Attributes:
        page: the page.
        sentence: what breaks the policy first.
        margins: of every disturbance that was played, the smallest first.
        clean: the row without any.
        left_out: why the others were not played, by their names.
        unfinished: what more time would play: magnitudes that come next, and disturbances that were not begun.
    """

    page: Path
    sentence: str
    margins: tuple[DisturbanceMargin, ...]
    clean: Row
    left_out: Mapping[str, str]
    unfinished: tuple[str, ...] = ()

    @property
    def worst(self) -> str | None:
        """The disturbance that breaks the policy first, as a threat; None where none does."""
        first = next((one for one in self.margins if one.breaks is not None), None)
        return None if first is None or first.breaks is None else first.disturbance.threat(first.breaks)

    def __str__(self) -> str:
        lines = [self.sentence, *(f"- {margin}" for margin in self.margins)]
        lines += [f"not tried: {names}: {reason}" for reason, names in grouped(self.left_out).items()]
        if self.unfinished:
            lines.append(f"not finished, more minutes play: {'; '.join(self.unfinished)}")
        return "\n".join([*lines, f"the page: {self.page}"])


@checked
@holding
def robot_report(
    victim: Victim | str,
    env: AnyEnvironment,
    minutes: Annotated[float, Limits(0.02, 1e5)] = 5.0,
    *,
    out: str | Path = "adv_robot",
    metric: str = "terminated",
    episodes: EpisodeCount = 8,
    seed: Seed = 0,
    sensors: Mapping[str, Any] | None = None,
    body: str | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    workers: Workers = 1,
    num_envs: EnvCount | None = None,
    progress: Callable[[int, int], None] | None = None,
    name: str | None = None,
    command: str | None = None,
) -> RobotReport:
    """Find out which disturbance breaks a robot's policy first, and write a page that says it.

    Pushes, loads, worn actuators, the controller's gains, friction, slopes, late and lost messages, and faults of the
    sensors that the environment names: of each the least magnitude that breaks the policy, by bisection, in its own
    unit. The coarse comes first, so that every disturbance is known roughly before any is known well. Then come those
    that break it first, and the others. The same call goes on with more minutes.

    Args:
        victim: the policy, or a reference.
        env: the id of the environment, or an :class:`adv_wrappers.Environment` of one.
        minutes: of wall clock, after which no more is begun.
        out: the folder, which is made; that of an earlier call goes on.
        metric: what counts: ``terminated`` for falls, ``success``, ``cost`` or any key of ``info``, as for
            :func:`adv_wrappers.evaluate`. A rate breaks where half of the episodes fail, another where half is lost.
        episodes: of every row.
        seed: seeds all randomness.
        sensors: where sensors stand in an observation, by the names velocity, gyro, gravity, joints, joint_speeds and
            command: ``{"gyro": (3, 6)}``, or ``"3:6"``; with a third number for the factor that its unit (m/s, rad/s,
            rad) is multiplied by. None takes the attribute ``sensors`` of the environment, if it has one.
        body: what is pushed and loaded; None takes the first with a mass, the trunk of most models.
        env_kwargs, make, workers, num_envs: as for :func:`adv_wrappers.evaluate`.
        progress: called as ``progress(rows that are there, about how many it takes)``.
        name: of the policy, on the page; None takes its reference.
        command: the command that repeats this, for the page.

    Returns:
        The margins, the smallest first, and where the page is.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played, for arguments that cannot work;
            :class:`SpaceError` for an environment that is a function, which a study does not find again.

    >>> from adv_wrappers import robot_report
    >>> robot_report("zoo:hopper-ppo", "Hopper-v5", minutes=2).margins  # doctest: +SKIP
    """
    folder, victim, deadline = Path(out), load_victim(victim), Deadline(60 * minutes)
    name, page = name or victim.ref or "policy", folder / PAGE_FILE
    check_target(page)
    metric_of(metric)  # raises for what is none
    environment = Environment.of(env, victim, env_kwargs, make)
    environment.spaces_for(victim)
    with closing(environment.make_one()) as made:
        robot = _robot_of(made, sensors, body)
        table, left_out = _offered(disturbances(robot), made)
    how: dict[str, Any] = {"episodes": episodes, "seeds": [seed], "metrics": [metric], "num_envs": num_envs}
    plan = Plan.of(victims=[name], environments=[_of_plan(environment)], **how)
    failed = dict[str, str]()
    study = RobotStudy(plan, tuple(table), metric, workers, failed)
    with Store(folder / ROWS_FILE) as store:

        def tell(*_: int) -> None:
            if progress is not None:
                progress(len(store), max(_USUAL_ROWS * len(table), len(store)))

        def leave_out(threat: str, error: str) -> None:
            if threat == CLEAN_RUN.name:
                raise WorkerError(f"{name} could not be played without a disturbance: {error}")
            failed[threat] = error  # such as of a simulation that diverges

        given: dict[str, Any] = {"victims": {name: victim}, "progress": tell, "failed": leave_out}
        left = max(deadline.left / 60, _LEAST_MINUTES)
        ended = play_study(study, store, workers, minutes=left, **given)
        known = store.found([cell.key for cell in expand(plan, {name: victim}).cells])
    clean, margins = next(iter(known.values())), [margin for margin in ended if not margin.error]
    left_out |= {margin.disturbance.name: margin.error for margin in ended if margin.error}
    played = {one.disturbance.name for one in margins}
    unfinished = [f"{one.disturbance.name}, of {one.disturbance.size(one.next)}" for one in margins if one.next]
    unfinished += [one.name for one in table if one.name not in played | left_out.keys()]
    sentence = _sentence(study, clean, margins)
    found = RobotReport(page, sentence, tuple(margins), clean, left_out, tuple(unfinished))
    protocol = {"environment": [str(environment)], "metric": [metric], "episodes": [f"{episodes} each, seed {seed}"]}
    article = Article(
        "a0", "What a robot's policy survives", name, f"in {environment}", sentence, None,
        {f"{metric} without a disturbance": str(clean.metric(metric))},
        _sections(found, [Facts({**protocol, "how": [_HOW]}), *([Command(command)] if command else [])]),
        not unfinished,
    )  # fmt: skip
    about = {"title": f"{name} in {environment}", "source": ROWS_FILE, "version": versions()["adv_wrappers"]}
    write(page, render("page.html", articles=[article], **about))
    return found


def _of_plan(environment: Environment) -> dict[str, Any]:
    """The environment as a plan has it.

    Raises:
        SpaceError: for one that is made by a function without a name.
    """
    make = environment.make
    if not isinstance(environment.env, str) or not (make is None or isinstance(make, MakeFunction)):
        raise SpaceError(
            f"a study goes on by the names of environments: register {environment.name} (gymnasium.register) and give "
            f"its id, or make='module:function'"
        )
    return {"id": environment.env, "kwargs": dict(environment.kwargs or {}), "make": make and make.text}


def _robot_of(env: AnyEnv, sensors: Mapping[str, Any] | None, body: str | None) -> _Robot:
    """What there is to know of a robot before anything is played."""
    inner: Any = env.unwrapped
    known: PhysicalParameters | None = None
    try:
        known = parameters_of(env)
    except SpaceError:  # what needs parameters is left out, with this very reason
        if getattr(inner, "physical_parameters", None):  # but a list of its own that is wrong is a mistake
            raise
    names, servos = () if known is None else known.space.names, known is not None and known.servos
    loads, joints = (
        [n.partition(".")[2] for n in names if n.startswith(f"{group}.")] for group in ("load", "frictionloss")
    )
    controller = [name for name in names if name.startswith("controller.stiffness")]
    if body is not None and body not in loads:
        raise ValueRangeError(f"there is no body {body!r} to push and load: {', '.join(loads) or 'none is known'}")
    [features, *_] = env.observation_space.shape or (0,)
    if sensors is None:  # those that are known of the environment's own
        sensors = {name: place for name, place in (getattr(inner, "sensors", None) or {}).items() if name in _SENSORS}
    return _Robot(
        step=float(getattr(inner, "dt", None) or 1 / env.metadata.get("render_fps", 1 / _USUAL_STEP)),
        length=int(getattr(env.spec, "max_episode_steps", None) or _USUAL_LENGTH),
        mass=getattr(known, "mass", None) or 1.0,
        body=body or next(iter(loads), "?"),
        joints=joints,
        features=features,
        sensors=_sensors(sensors, features),
        weaker="torque" if any(n.startswith("torque.") for n in names) else "" if servos else "gain",
        stiffness=controller[0] if controller else "gain" if servos else "",
    )


def _sensors(given: Mapping[str, Any], features: int) -> dict[str, tuple[int, int, float]]:
    """Where sensors stand.

    Raises:
        ValueRangeError: for a name that is not known, for places that an observation does not have or that two
            sensors share, and for a factor of 0.
    """
    found, taken = dict[str, tuple[int, int, float]](), dict[int, str]()
    for name, place in given.items():
        if name not in _SENSORS:
            raise ValueRangeError(f"there is no sensor {name!r}: known are {', '.join(_SENSORS)}")
        parts = place.split(":") if isinstance(place, str) else place
        try:
            first, end, factor = (kind(part) for kind, part in zip((int, int, float), (*parts, 1.0), strict=False))
        except (TypeError, ValueError) as error:
            where = f"gyro=3:6 or gyro=0:3:0.25, got {name}={place!r:.40}"
            raise ValueRangeError(f"sensors are places such as {where}") from error
        if not (0 <= first < end <= features and math.isfinite(factor) and factor):
            where = f"first:end or first:end:factor with 0 <= first < end <= {features} and a factor other than 0"
            raise ValueRangeError(f"the sensor {name} stands at {where}; got {place!r:.40}")
        for i in range(first, end):
            if (other := taken.setdefault(i, name)) != name:
                raise ValueRangeError(f"the sensors {other} and {name} share the number {i} of an observation")
        found[name] = first, end, factor
    return found


def _offered(table: Sequence[Disturbance], env: AnyEnv) -> tuple[list[Disturbance], dict[str, str]]:
    """The disturbances that an environment can have, and why not the others."""
    found, left_out = list[Disturbance](), dict[str, str]()
    for one in table:
        try:
            wrap(env, one.threat(one.most))
            found.append(one)
        except AdvWrappersError as error:  # the parameters that there are, in brackets, are many
            left_out[one.name] = re.sub(r" \([^()]*\)", "", str(error)).removeprefix(f"{one.threat(one.most)}: ")
    if not any("scale=" in one.text for one in table):
        reason = "the environment does not say where they stand in an observation: sensors, such as gyro=3:6"
        left_out["faults of single sensors"] = reason
    return found, left_out


# ----------------------------------------------------------------------------------------------------------------------
# The page.
# ----------------------------------------------------------------------------------------------------------------------

_HOW = (
    "A rate breaks where half of the episodes fail, another metric where half of it is lost. The least magnitude "
    "that does it is found by bisection, which takes more for worse. Margins are "
    "sorted by their share of the largest magnitude. On a slope what an environment computes from the world's axes "
    "is relative to the ground, and where it shows the last action, that is the one that it received."
)


def _sentence(study: RobotStudy, clean: Row, margins: Sequence[DisturbanceMargin]) -> str:
    """What is to be known first."""
    falls = study.metric == "terminated"
    what, breaks = ("falls", "makes it fall") if falls else (f"breaks by {study.metric}", "breaks it")
    if study.breaks(clean, clean):
        return f"It {what} without any disturbance in half of the episodes or more, so nothing else was played."
    words = list[str]()
    for one in (one for one in margins if one.breaks is not None):
        name, size = one.disturbance.name, one.disturbance.size(one.breaks or 0.0)
        words.append(f"{name} {size}" if name.endswith((" by", " for", " up to")) else f"{name} ({size})")
    if not words:
        return f"Nothing that was played {breaks}."
    others = f"; then under {', '.join(words[1:4])}" if words[1:] else ""
    return f"It {what} first under {words[0]}{others}."


def _sections(found: RobotReport, protocol: Sequence[Part]) -> list[Section]:
    """The sections that have something in them."""
    worst = list[Part]()
    if found.worst is not None:
        lead = "To see how it fails, put what breaks it first around the environment, and record that."
        worst = [Paragraph(lead), Command(f'adv.wrap(env, "{found.worst}")')]
    reasons = Facts({names: [reason] for reason, names in grouped(found.left_out).items()})
    sections: dict[str, tuple[str, Sequence[Part]]] = {
        "margins": ("What it bears", [_margins(found.margins, found.clean)]),
        "worst": ("The worst as a threat", worst),
        "more": ("With more time", [Listing([(one, "") for one in found.unfinished])] if found.unfinished else []),
        "cannot": ("Not tried", [reasons] if reasons.items else []),
        "protocol": ("Protocol", protocol),
    }
    return [Section(key, title, parts) for key, (title, parts) in sections.items() if parts]


def _margins(margins: Sequence[DisturbanceMargin], clean: Row) -> Table:
    """A line for each disturbance: the largest harmless magnitude, the return at it, and the least breaking one.

    The return shows a robot that does not fall because it stands still.
    """
    lines = list[TableLine]()
    for one in margins:
        what, (harmless, breaks) = one.disturbance, one.words
        tone: Tone = "attack" if one.breaks is not None else "other" if one.next is not None else "certified"
        left = next((f"{row.mean_return:.3g}" for m, row in one.points if m == one.safe), DASH)
        low, high = (100 * m / what.most for m in (one.safe, one.safe if one.breaks is None else one.breaks))
        bar = MeanWithInterval(high, low, high, None)
        lines.append(TableLine(what.name, [harmless, left, breaks, what.size(what.most)], bar=bar, tone=tone))
    columns = [
        Column("harmless up to", "text"), Column(f"return there (of {clean.mean_return:.3g})", "text"),
        Column("breaks from", "text"), Column("largest", "text", True),
    ]  # fmt: skip
    legend = [("attack", "where it breaks, as a share of the largest"), ("certified", "the largest does not break it")]
    return Table("Margins", "disturbance", columns, lines, limits=(0.0, 100.0), legend=legend)
