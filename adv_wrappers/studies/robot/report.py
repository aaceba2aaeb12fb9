"""robot_report: which disturbance breaks a robot's policy first, found in a given time, and the page that says it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import SpaceError
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.rows.store import ROWS_FILE, Store
from adv_wrappers.studies.plan import Plan
from adv_wrappers.studies.plan_cells import expand
from adv_wrappers.studies.report.article import Part, check_target, render
from adv_wrappers.studies.report.film import write_side_by_side
from adv_wrappers.studies.robot.disturbances import disturbances, offered, robot_of
from adv_wrappers.studies.robot.page import NO_PICTURES, article_of, film_of, sentence_of
from adv_wrappers.studies.robot.study import RobotReport, RobotStudy
from adv_wrappers.studies.study import play_study
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.validation import EnvCount, EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.victims import Victim, load_victim

PAGE_FILE = "robot.html"
_USUAL_ROWS = 5  # of a disturbance


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
        robot = robot_of(made, sensors, body)
        table, left_out = offered(disturbances(robot), made)
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

        given: dict[str, Any] = {"victims": {name: victim}, "progress": tell, "failed": failed}
        ended, combined, waiting = play_study(study, store, workers, minutes=deadline, **given)
        known = store.found([cell.key for cell in expand(plan, {name: victim}).cells])
    # what was found, and what was not tried or has failed
    clean, margins = next(iter(known.values())), [margin for margin in ended if not margin.error]
    left_out |= {margin.disturbance.name: margin.error for margin in ended if margin.error}
    sentence = sentence_of(study, clean, margins, combined)
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
        film = film_of(*worst, study, draw_seeds(seed, episodes), robot.step, made_by) if renders else [NO_PICTURES]
    article = article_of(found, study, film, about, command)
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
