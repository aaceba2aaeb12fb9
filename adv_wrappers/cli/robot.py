"""``robot``: which disturbance breaks a robot's policy first."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from adv_wrappers.cli.interruption import resumable
from adv_wrappers.cli.main import make_console
from adv_wrappers.cli.options import load_agent, repeated
from adv_wrappers.cli.progress import show_progress
from adv_wrappers.cli.signatures import command


@command("robot", "adv_wrappers.robot_report", without=("command", "name", "progress"), files=True)
def robot_(env: str, minutes: float, out: Path, **given: Any) -> None:
    """Find out which disturbance breaks a robot's policy first: pushes, loads, delays, faults.

    ENV is played under each of many disturbances, whose least magnitude that breaks the policy is found by bisection,
    in newtons, kilograms, milliseconds. The same command goes on with more minutes.
    """
    from adv_wrappers.studies.robot.report import robot_report

    # the command that repeats it stands on the page
    again = repeated(given, "victim", "stats", "select", "kind", "metric", "episodes", "seed", "sensors", "body")
    words = ["adv-wrappers", "robot", env, *again, "--minutes", f"{minutes:g}", "--out", str(out)]
    name, agent = given["victim"], load_agent(given, env=env)
    with resumable(out), show_progress() as move:
        found = robot_report(
            agent,
            env,
            minutes,
            out=out,
            name=name,
            progress=lambda *counts: move("rows", *counts),
            command=shlex.join(words),
            **given,
        )
    make_console().print(str(found), markup=False, soft_wrap=True)
