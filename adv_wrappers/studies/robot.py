"""What a robot's policy survives: pushes, loads, worn actuators, late messages and faulty sensors, in their own units.

Each disturbance is a threat of one magnitude, from nothing to the largest that is sensible for the robot, and the least
magnitude at which the policy breaks is found by bisection. Which disturbances there are is a table
(:func:`disturbances`); what an environment does not offer is left out with the reason. Then those that break the policy
first are combined, each at half of what does it alone (:class:`Combination`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.environments.physical_parameters import PhysicalParameters, parameters_of
from adv_wrappers.errors import AdvWrappersError, SpaceError, ValueRangeError, WorkerError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.rows.row import Row
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.evaluation.statistics.confidence_intervals import MeanWithInterval
from adv_wrappers.evaluation.threat_stacks import CLEAN_RUN
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import expand
from adv_wrappers.studies.report.article import (
    DASH,
    FILMS,
    Article,
    Command,
    Facts,
    Listing,
    Paragraph,
    Part,
    Pictures,
    Section,
    check_target,
    embedded,
    render,
)
from adv_wrappers.studies.report.charts import Cell, Column, Line, LineChart, Point, Table, TableLine, Tone, limits_of
from adv_wrappers.studies.report.film import write_side_by_side
from adv_wrappers.studies.study import play_study
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.validation import EnvCount, EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.layer import AnyEnv
from adv_wrappers.wrappers.wrap import wrap

PAGE_FILE = "robot.html"
_FINE = 32  # parts of the largest magnitude, to one of which the least that breaks the policy is found
_USUAL_STEP, _USUAL_LENGTH = 0.02, 500  # seconds, and steps of an episode, where the environment does not say them
_USUAL_ROWS = 5  # of a disturbance
_COARSE = 2  # magnitudes of every disturbance that are played before any is known well
_COMBINED = 5  # disturbances, of which combinations are made
_GRAVITY = 9.81
_LEAST_MINUTES = 0.01  # for the first round, which has the run without a disturbance, whatever was spent before it
_MOST_CHARTS = 12
# seconds
_FILM, _AFTER = 3.0, 0.6  # of a film before a failure and after it
_PICTURE = 0.06

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

    def said(self, m: float) -> str:
        """The disturbance at a magnitude, within a sentence."""
        completes = self.name.endswith((" by", " for", " up to"))
        return f"{self.name} {self.size(m)}" if completes else f"{self.name} ({self.size(m)})"


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
    # what is sensible for this robot: magnitudes by its weight, times by its step
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
    # what not every robot has: limits and gains of its own, sensors, joints
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

    def __str__(self) -> str:
        one = self.disturbance
        if self.breaks is None:
            more = "; more was not tried yet" if self.next is not None else ", the largest"
            return f"{one.name}: bears {one.size(self.points[-1][0])}{more}"
        harmless = f"harmless up to {one.size(self.safe)}" if self.safe else "none that was played is harmless"
        if self.next is not None:
            return f"{one.name}: breaks it at {one.size(self.breaks)}, {harmless}; less was not tried yet"
        return f"{one.name}: breaks it from {one.size(self.breaks)} on, {harmless}"


@dataclass(frozen=True)
class Combination:
    """Several disturbances at once, each at half of the least magnitude that alone breaks the policy.

    Attributes:
        parts: the disturbances, each with its magnitude here.
        row: of the episodes under all of them; None before they are played.
        breaks: whether it breaks the policy.
    """

    parts: tuple[tuple[Disturbance, float], ...]
    row: Row | None = None
    breaks: bool = False

    @property
    def threat(self) -> str:
        """The stack of threats."""
        return " + ".join(one.threat(m) for one, m in self.parts)

    def __str__(self) -> str:
        *others, last = (one.said(m) for one, m in self.parts)
        return f"{', '.join(others)} and {last}"


@dataclass(frozen=True)
class RobotStudy:
    """The bisections, and the combinations of what breaks the policy first.

    First come a few magnitudes of every disturbance, then the bisections to their ends, of those first that break the
    policy at the smallest share of their largest. Once the few that break it first are known well they are combined:
    all pairs of them, all triples where no pair breaks the policy, and so on. So a limit of time leaves open what
    matters least.

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
        open_ = [one for one in (self._margin(each, rows) for each in self.table) if one.next is not None]
        coarse = [one for one in open_ if len(one.points) < _COARSE and not one.disturbance.last]
        coarse.sort(key=lambda one: len(one.points))
        fine = sorted(open_, key=lambda one: (one.disturbance.last, one.share))
        threats = [one.threat for one in self.combinations(rows) if self._is_open(one)]  # none before the coarse
        threats += [one.disturbance.threat(one.next or 0.0) for one in coarse or fine]
        return Plan((replace(self.plan.grids[0], threats=tuple(threats[: self.at_once])),)) if threats else None

    def conclusion(self, rows: Sequence[Row]) -> tuple[list[DisturbanceMargin], list[Combination], list[Combination]]:
        """The margins of what was played, the smallest first, those whose simulation failed among them; combinations.

        The combinations are those of :meth:`combinations`: first those that were played, the worst first, then those
        that come next.
        """
        margins = sorted((self._margin(each, rows) for each in self.table), key=lambda one: one.share)
        known = [one for one in margins if one.points or one.error]
        found = self.combinations(rows) if rows else []
        played = [one for one in found if not self._is_open(one)]
        played.sort(key=lambda one: (one.breaks, self._harm(one.row)), reverse=True)
        return known, played, [one for one in found if self._is_open(one)]

    def combinations(self, rows: Sequence[Row]) -> list[Combination]:
        """The combinations of the few that break the policy first, with the rows that there are.

        There are none before a few magnitudes of every disturbance, and all of the few, were played. Once one of them
        breaks the policy, those of more disturbances are left out; they also wait for those of fewer.
        """
        halves, kinds = list[tuple[Disturbance, float]](), set[str]()
        # every disturbance has to be known roughly first
        margins = [one for one in (self._margin(each, rows) for each in self.table) if not one.disturbance.last]
        if any(one.next is not None and len(one.points) < _COARSE for one in margins):
            return []
        for margin in sorted(margins, key=lambda one: one.share):
            # the few that break it first, each at half of that, and one of a kind
            one, breaks = margin.disturbance, margin.breaks or 0.0
            half = float(f"{breaks / 2:.3g}") if one.step is None else breaks // 2
            acts_on = re.search("(at|scale)=[^,]+", one.text)  # pushes of two sides are one force
            kind = acts_on.group() if acts_on else one.name
            if len(halves) == _COMBINED or (margin.breaks is None and margin.next is None):
                break
            if margin.next is not None:  # it may turn out to be among the few
                return []
            if half and kind not in kinds:
                halves.append((one, half))
                kinds.add(kind)
        played, found = {row.threat: row for row in rows}, list[Combination]()
        # two of them, then three, until some break it
        for count in range(2, len(halves) + 1):
            if any(one.breaks or self._is_open(one) for one in found):
                break
            for parts in itertools.combinations(halves, count):
                row = played.get(Combination(parts).threat)
                found.append(Combination(parts, row, row is not None and self.breaks(row, rows[0])))
        return found

    def _is_open(self, one: Combination) -> bool:
        """Whether it was not played yet."""
        return one.row is None and one.threat not in self.failed

    def _margin(self, one: Disturbance, rows: Sequence[Row]) -> DisturbanceMargin:
        """Follow the bisection of one disturbance through its rows, as far as there are any."""
        known, points = {row.threat: row for row in rows}, list[tuple[float, Row]]()
        low, high = 0.0, None  # what does not break it, and what does
        m: float | None = _between(one, 0.0, one.most / 2) or one.most  # is played next
        while m is not None and (row := known.get(one.threat(m))) is not None:
            points.append((m, row))
            low, high = (low, m) if self.breaks(row, rows[0]) else (m, high)
            m = _between(one, low, high) if high is not None else one.most if low < one.most else None
        error = "" if m is None else self.failed.get(one.threat(m), "")
        points.sort(key=lambda point: point[0])
        failed = next((m for m, row in points if self._fails(row, rows[0])), None)
        safe = max((m for m, _ in points if failed is None or m < failed), default=0.0)
        return DisturbanceMargin(one, tuple(points), safe, high, None if error else m, error)

    def breaks(self, row: Row, clean: Row) -> bool:
        """Whether half of the episodes fail, or half of what the metric is without a disturbance is lost."""
        metric = metric_of(self.metric)
        mean = row.metric(self.metric).mean
        without = clean.metric(self.metric).mean
        if metric.is_rate:
            return (mean if metric.bad_when_high else 1 - mean) >= 0.5
        if row is clean:
            return False
        return mean >= 2 * without if metric.bad_when_high else without - mean >= 0.5 * abs(without)

    def _harm(self, row: Row | None) -> float:
        """By which rows are compared."""
        mean = 0.0 if row is None else row.metric(self.metric).mean
        return mean if metric_of(self.metric).bad_when_high else -mean

    def _fails(self, row: Row, clean: Row) -> bool:
        """Whether any episode fails; of a metric that is no rate, whether the policy breaks."""
        metric, mean = metric_of(self.metric), row.metric(self.metric).mean
        return (mean > 0 if metric.bad_when_high else mean < 1) if metric.is_rate else self.breaks(row, clean)


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
        combinations: of several that were played, the worst first.
        clean: the row without any.
        left_out: why the others were not played, by their names.
        unfinished: what more time would play: magnitudes that come next, disturbances that were not begun, and
            combinations.
    """

    page: Path
    sentence: str
    margins: tuple[DisturbanceMargin, ...]
    combinations: tuple[Combination, ...]
    clean: Row
    left_out: Mapping[str, str]
    unfinished: tuple[str, ...] = ()

    @property
    def reasons(self) -> dict[str, list[str]]:
        """By the reason, the names of what was not played."""
        found = dict[str, list[str]]()
        for name, reason in self.left_out.items():
            found.setdefault(reason, []).append(name)
        return found

    @property
    def worst(self) -> tuple[str, str, Row] | None:
        """The worst combination that breaks the policy, or the disturbance that breaks it first.

        In words, as a threat, and the row; None where nothing breaks it.
        """
        for one in self.combinations[:1]:
            if one.breaks and one.row is not None:
                return str(one), one.threat, one.row
        for margin in self.margins[:1]:
            if margin.breaks is not None:
                what, m = margin.disturbance, margin.breaks
                return what.said(m), what.threat(m), dict(margin.points)[m]
        return None

    def __str__(self) -> str:
        lines = [self.sentence, *(f"- {margin}" for margin in self.margins)]
        lines += [f"not tried: {', '.join(names)}: {reason}" for reason, names in self.reasons.items()]
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
    that break it first, their combinations, each at half of what does it alone, and the others. The same call goes on
    with more minutes.

    Args:
        victim: the policy, or a reference.
        env: the id of the environment, or an :class:`adv_wrappers.Environment` of one.
        minutes: of wall clock, after which no more is begun. A faster machine plays more in them, so what is found
            depends on it.
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
    folder = Path(out)
    victim = load_victim(victim)
    deadline = Deadline(60 * minutes)
    name, page = name or victim.ref or "policy", folder / PAGE_FILE
    check_target(page)
    metric_of(metric)  # raises for what is none
    environment = Environment.of(env, victim, env_kwargs, make)
    environment.spaces_for(victim)
    with closing(environment.make_one()) as made:
        # what the environment offers
        robot = _robot_of(made, sensors, body)
        table, left_out = _offered(disturbances(robot), made)
        renders = "rgb_array" in (made.metadata.get("render_modes") or ())
    how: dict[str, Any] = {"episodes": episodes, "seeds": [seed], "metrics": [metric], "num_envs": num_envs}
    # a study, whose rows are kept, so that the same call goes on
    plan = Plan.of(victims=[name], environments=[_of_plan(environment)], **how)
    failed = dict[str, str]()
    study = RobotStudy(plan, tuple(table), metric, workers, failed)
    with Store(folder / ROWS_FILE) as store:
        before = len(store)

        def tell(done: int, failed: int, total: int) -> None:
            if progress is not None:
                there, spent = len(store), 60 * minutes - deadline.left
                fit = there + math.ceil((there - before) * deadline.left / spent)  # until the minutes are over
                usual = max(_USUAL_ROWS * len(study.table), there)
                progress(there, min(fit, usual) if there > before else usual)

        def leave_out(threat: str, error: str) -> None:
            if threat == CLEAN_RUN.name:
                raise WorkerError(f"{name} could not be played without a disturbance: {error}")
            failed[threat] = error  # such as of a simulation that diverges

        given: dict[str, Any] = {"victims": {name: victim}, "progress": tell, "failed": leave_out}
        left = max(deadline.left / 60, _LEAST_MINUTES)
        ended, combined, waiting = play_study(study, store, workers, minutes=left, **given)
        known = store.found([cell.key for cell in expand(plan, {name: victim}).cells])
    # what was found, and what was not tried or has failed
    clean, margins = next(iter(known.values())), [margin for margin in ended if not margin.error]
    left_out |= {margin.disturbance.name: margin.error for margin in ended if margin.error}
    sentence = _sentence(study, clean, margins, combined)
    played = {one.disturbance.name for one in margins}
    unfinished = [f"{one.disturbance.name}, of {one.disturbance.size(one.next)}" for one in margins if one.next]
    unfinished += [one.name for one in study.table if one.name not in played | left_out.keys()]
    unfinished += [str(one) for one in waiting]
    found = RobotReport(page, sentence, tuple(margins), tuple(combined), clean, left_out, tuple(unfinished))
    about = [name, str(environment), f"{episodes} episodes each, seed {seed}"]
    # the film, if the environment renders, and the page
    film = list[Part]()
    if (worst := found.worst) is not None:
        made_by = partial(write_side_by_side, folder, victim, environment, seconds=robot.step)
        film = _film(*worst, study, draw_seeds(seed, episodes), robot.step, made_by) if renders else [_NO_PICTURES]
    article = _article(found, study, film, about, command)
    labels: dict[str, Any] = {"source": ROWS_FILE, "version": versions()["adv_wrappers"], "overview": None, "notes": []}
    write(page, render("page.html", articles=[article], title=f"{name} in {environment}", **labels))
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
    # what its parameters tell: bodies, joints, a controller with gains
    names, servos = () if known is None else known.space.names, known is not None and known.servos
    parts = {
        group: [n.partition(".")[2] for n in names if n.startswith(f"{group}.")] for group in ("load", "frictionloss")
    }
    controller = [name for name in names if name.startswith("controller.stiffness")]
    if body is not None and body not in parts["load"]:
        raise ValueRangeError(
            f"there is no body {body!r} to push and load: {', '.join(parts['load']) or 'none is known'}"
        )
    [features, *_] = env.observation_space.shape or (0,)
    return _Robot(
        step=float(getattr(inner, "dt", None) or 1 / env.metadata.get("render_fps", 1 / _USUAL_STEP)),
        length=int(getattr(env.spec, "max_episode_steps", None) or _USUAL_LENGTH),
        mass=getattr(known, "mass", None) or 1.0,
        body=body or next(iter(parts["load"]), "?"),
        joints=parts["frictionloss"],
        features=features,
        sensors=_sensors(_own_sensors(inner) if sensors is None else sensors, features),
        weaker="torque" if any(n.startswith("torque.") for n in names) else "" if servos else "gain",
        stiffness=controller[0] if controller else "gain" if servos else "",
    )


def _own_sensors(inner: Any) -> dict[str, Any]:
    """The sensors that an environment lists and that are known here; it may list others."""
    listed = getattr(inner, "sensors", None) or {}
    return {name: place for name, place in listed.items() if name in _SENSORS}


def _sensors(given: Mapping[str, Any], features: int) -> dict[str, tuple[int, int, float]]:
    """Where sensors stand.

    Raises:
        ValueRangeError: for a name that is not known, for places that an observation does not have or that two
            sensors share, and for a factor of 0.
    """
    found = dict[str, tuple[int, int, float]]()
    for name, place in given.items():
        if name not in _SENSORS:
            raise ValueRangeError(f"there is no sensor {name!r}: known are {', '.join(_SENSORS)}")
        # first and end, and perhaps a factor
        parts = place.split(":") if isinstance(place, str) else place
        try:
            first, end, factor = (kind(part) for kind, part in zip((int, int, float), (*parts, 1.0), strict=False))
        except (TypeError, ValueError) as error:
            raise ValueRangeError(
                f"sensors are places such as gyro=3:6 or gyro=0:3:0.25, got {name}={place!r:.40}"
            ) from error
        if not 0 <= first < end <= features:
            within = f"first:end with 0 <= first < end <= {features}, the numbers of an observation"
            raise ValueRangeError(f"the sensor {name} stands at {within}; got {place!r:.40}")
        if not (math.isfinite(factor) and factor):
            raise ValueRangeError(f"the factor of the sensor {name} is what its unit is multiplied by, got {factor:g}")
        found[name] = first, end, factor
    for (one, a), (other, b) in itertools.combinations(found.items(), 2):
        if a[0] < b[1] and b[0] < a[1]:
            raise ValueRangeError(f"the sensors {one} ({a[0]}:{a[1]}) and {other} ({b[0]}:{b[1]}) share numbers")
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


def _sentence(
    study: RobotStudy, clean: Row, margins: Sequence[DisturbanceMargin], combined: Sequence[Combination]
) -> str:
    """What is to be known first."""
    what = "falls" if study.metric == "terminated" else f"breaks by {study.metric}"
    if study.breaks(clean, clean):
        return f"It {what} without any disturbance in half of the episodes or more, so nothing else was played."
    # what breaks it first alone, and then several at once
    broken = [one for one in margins if one.breaks is not None]
    if not broken:
        return f"Nothing that was played {'makes it fall' if what == 'falls' else 'breaks it'}."
    first, *others = (one.disturbance.said(one.breaks or 0.0) for one in broken[:4])
    alone = f"It {what} first under {first}" + (f"; then under {', '.join(others)}." if others else ".")
    if not combined:
        return alone
    worst, breaks = combined[0], "makes it fall" if what == "falls" else "breaks it"
    if not worst.breaks:
        return f"{alone} Combinations of them, each at half of that: none of {len(combined)} {breaks}."
    return f"{alone} Together {worst} are enough, each half of what does it alone."


_NO_PICTURES = Paragraph("There is no film: the environment has no render_mode rgb_array.")


def _film(
    words: str,
    threat: str,
    row: Row,
    study: RobotStudy,
    seeds: Sequence[int],
    step: float,
    made_by: Callable[..., Path],
) -> list[Part]:
    """The episode that a disturbance spoils most, beside the same one without it; or why there is none."""
    values, sign = row.metrics[study.metric], 1 if metric_of(study.metric).bad_when_high else -1
    worst = max(range(len(seeds)), key=lambda i: (sign * values[i], -row.lengths[i]))
    end = row.lengths[worst]
    first = max(end - round(_FILM / step), 0)
    steps = range(first, end + round(_AFTER / step), max(round(_PICTURE / step), 1))
    try:
        file = made_by({"without a disturbance": None, "with it": threat}, seeds[worst], steps)
    except Exception as error:  # whatever renderers raise
        return [Paragraph(f"There is no film: {type(error).__name__}: {error}. Without a display, set MUJOCO_GL=egl.")]
    lead = f"{words}: episode {worst + 1} of {len(seeds)}, from {first * step:.1f} s to {end * step:.1f} s."
    return [Paragraph(lead), Pictures("", {f"a film of {words}": embedded(file, FILMS)}, True)]


def _article(
    found: RobotReport, study: RobotStudy, film: Sequence[Part], about: Sequence[str], command: str | None
) -> Article:
    broken = [one for one in found.margins if one.breaks is not None][:_MOST_CHARTS]
    missing, reasons = found.unfinished, found.reasons
    # sections that have nothing to say are left out
    how = (
        "A rate breaks where half of the episodes fail, another metric where half of it is lost. The least magnitude "
        "that does it is found by bisection, which takes more for worse: the curves show what was played. Margins are "
        "sorted by their share of the largest magnitude. On a slope what an environment computes from the world's axes "
        "is relative to the ground, and where it shows the last action, that is the one that it received."
    )
    protocol = Facts({"environment": about[1:2], "metric": [study.metric], "episodes": about[2:], "how": [how]})
    sections: dict[str, tuple[str, Sequence[Part]]] = {
        "margins": ("What it bears", [_margins(found.margins, found.clean)]),
        "combinations": ("Several at once", [_combinations(found, study)] if found.combinations else []),
        "film": ("A film of the worst", film),
        "curves": (
            "From nothing to where it breaks",
            [_curve(one, found.clean, study) for one in broken],
        ),
        "more": ("With more time", [Listing([(one, "") for one in missing])] if missing else []),
        "cannot": ("Not tried", [Facts({", ".join(n): [reason] for reason, n in reasons.items()})] if reasons else []),
        "protocol": ("Protocol", [protocol, *([Command(command)] if command else [])]),
    }
    return Article(
        id="a0",
        what="What a robot's policy survives",
        title=about[0],
        about=f"in {about[1]}",
        sentence=found.sentence,
        headline=None,
        facts={f"{study.metric} without a disturbance": str(found.clean.metric(study.metric))},
        sections=[Section(key, title, parts) for key, (title, parts) in sections.items() if parts],
        finished=not missing,
    )


_TONES: dict[tuple[bool, bool], Tone] = {(True, True): "other", (True, False): "certified"}  # of those that bear it


def _margins(margins: Sequence[DisturbanceMargin], clean: Row) -> Table:
    """A line for each disturbance: the largest harmless magnitude, the return at it, and the least breaking one.

    The return shows a robot that does not fall because it stands still.
    """
    lines = list[TableLine]()
    for one in margins:
        what = one.disturbance
        breaks = one.breaks
        open_ = one.next is not None
        # where it breaks, or how far that is known
        if breaks is None:
            where = "more was not tried yet" if open_ else DASH
        else:
            where = f"at most {what.size(breaks)}" if open_ else what.size(breaks)
        left = next((f"{row.mean_return:.3g}" for m, row in one.points if m == one.safe), DASH)
        cells: list[Cell] = [what.size(one.safe) if one.safe else DASH, left, where]
        # a bar from what it bears to what breaks it, as shares of the largest
        low, high = (100 * m / what.most for m in (one.safe, one.safe if breaks is None else breaks))
        bar, tone = MeanWithInterval(high, low, high, None), _TONES.get((breaks is None, open_), "attack")
        lines.append(TableLine(what.name, [*cells, what.size(what.most)], bar=bar, tone=tone))
    columns = [
        Column("harmless up to", "text"),
        Column(f"return there (of {clean.mean_return:.3g})", "text"),
        Column("breaks from", "text"),
        Column("largest", "text", True),
    ]
    legend = [("attack", "where it breaks, as a share of the largest"), ("certified", "the largest does not break it")]
    return Table("Margins", "disturbance", columns, lines, limits=(0.0, 100.0), legend=legend)


def _combinations(found: RobotReport, study: RobotStudy) -> Table:
    """A line a combination, with what the metric is under it."""
    metric, lines = study.metric, list[TableLine]()
    for one in found.combinations:
        if one.row is not None:
            mean = one.row.metric(metric)
            bar = MeanWithInterval(mean.mean, mean.low, mean.high, None)
            lines.append(TableLine(str(one), [str(mean)], bar=bar, tone="attack" if one.breaks else "certified"))
    limits = (0.0, 1.0) if metric_of(metric).is_rate else limits_of([line.bar.mean for line in lines if line.bar])
    legend = [("attack", "breaks the policy"), ("certified", "does not")]
    return Table(
        "Combinations",
        "each at half of what breaks it alone",
        [Column(metric, "text")],
        lines,
        limits=limits,
        legend=legend,
    )


def _curve(one: DisturbanceMargin, clean: Row, study: RobotStudy) -> LineChart:
    """What the metric is at the magnitudes that were played."""
    points, metric = list[Point](), study.metric
    for m, row in [(0.0, clean), *one.points]:
        found = row.metric(metric)
        points.append(Point(m, MeanWithInterval(found.mean, found.low, found.high, None), one.disturbance.size(m)))
    # the axis holds all intervals
    ends = [end for point in points for end in (point.mean.low, point.mean.high)]
    return LineChart(
        x_label=f"{one.disturbance.name}, {one.disturbance.unit}",
        y_label=metric,
        lines=[Line(metric, points, "attack", True)],
        limits=(-0.05, 1.05) if metric_of(metric).is_rate else limits_of(ends),
        legend=[("attack", f"{metric}, mean and 95% interval")],
        title=one.disturbance.name,
    )
