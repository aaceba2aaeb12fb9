"""Daylight transforms beside a loop over OpenCV's calls and other libraries, on one thread, interleaved in one run.

    python benchmarks/daylight_speed.py
    python benchmarks/daylight_speed.py --only rotation shift    # these rows alone; the others of the page stay

Every contestant gets uint8 observations in host memory and returns a new uint8 batch: images a second, on noise, with
the daylight paper's settings for Pong and JPEG quality 30. Layouts: stacks of four frames 84x84x4 as Stable-Baselines3
has them and 4x84x84 as Gymnasium has them, and colour frames 210x160x3.

The OpenCV loop is the one that a person would write, ``np.stack([call(image) for image in batch])``, with
``convertScaleAbs`` (so ours has ``rule="abs"``), ``medianBlur``, ``warpAffine`` (for the shift too),
``warpPerspective``, and ``imencode`` with ``imdecode``. Of 4x84x84 it takes frame by frame; JPEG codes every frame of a
stack. The loop with ``dst`` hands OpenCV the place of each result, which spares a copy; the calls alone leave their
results apart, and are timed at batch 1. The column torch is ours as it runs on other devices, forced on the host.

Peers convert to what they need and back: kornia to float32 ``[N, K, H, W]``, Pillow to images of its own. They do not
all do the same: Pillow's borders are black, kornia and Albumentations warp by other rules, Albumentations has no
perspective that is given. A contestant that needs more than a quarter of a second a call is timed on the first images
of the batch, and its rate is that of those. What a single observation costs beyond OpenCV's call is the difference of
both in their quickest rounds, which are many and short: a few microseconds drown in what else the machine does.

A whole step is that of one environment that hands out one stack 84x84x4 again and again, under ``PerturbObservation``
and under a ``gymnasium.ObservationWrapper`` that returns what OpenCV's call makes of the observation.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from daylight_loops import CALL, LOOP, OURS, STRICT, TORCH, Call, Images, by_torch, opencv, ours
from daylight_peers import PACKAGES, PEERS
from daylight_steps import HAND, WRAPPED, measure_step
from timing import (
    INTERLEAVED,
    Data,
    Page,
    Results,
    interleave,
    machine,
    machines,
    made_by,
    medians,
    prose,
    releases,
    table,
    timing_options,
)

LAYOUTS = {"84x84x4": ("HWF", (84, 84, 4)), "4x84x84": ("FHW", (4, 84, 84)), "210x160x3": ("HWC", (210, 160, 3))}
TRANSFORMS = ("brightness", "median 3", "median 5", "rotation", "shift", "perspective", "JPEG 30")
LONGEST = 0.25  # seconds a call
SHORT = 20  # times as many rounds, each as many times shorter, find the quickest of a single observation
OVER, STEP_OVER = (
    15,
    25,
)  # microseconds that a single observation, and a whole step of it, may cost beyond OpenCV's call


def contestants(transform: str, shape_name: str, batch: int, missing: set[str]) -> dict[str, Call]:
    """Everyone who has this transform; peers that are not installed are noted in ``missing``."""
    layout, shape = LAYOUTS[shape_name]
    calls = {**opencv(transform, layout, shape), OURS: ours(transform, layout), TORCH: by_torch(transform, layout)}
    if batch > 1:
        del calls[CALL]
    for name, make in PEERS.items():
        try:
            call = make(transform, layout, shape)
        except ImportError:
            missing.add(name)
            continue
        if call is not None:
            calls[name] = call
    return calls


def bound(call: Call, x: Images) -> tuple[Callable[[], object], int]:
    """The call on as many images as take no longer than allowed, and how many these are."""
    few = x[:2]
    call(few)
    started = time.process_time()
    call(few)
    count = max(1, min(len(x), int(LONGEST * len(few) / max(time.process_time() - started, 1e-9))))
    part = x[:count]
    return lambda: call(part), count


def measure(
    transform: str, shape_name: str, batch: int, rounds: int, least: float, missing: set[str]
) -> dict[str, Any]:
    """One row: images a second of everyone, and their ratio to the OpenCV loop in the same round."""
    x = np.random.default_rng(0).integers(0, 256, (batch, *LAYOUTS[shape_name][1]), np.uint8)
    calls = contestants(transform, shape_name, batch, missing)
    if STRICT in calls:  # noise, of which every value tells
        assert np.array_equal(calls[LOOP](x), calls[STRICT](x))
    timed, counts = {}, {}
    for name, call in calls.items():
        timed[name], counts[name] = bound(call, x)
    if batch == 1:
        close = {name: timed[name] for name in (CALL, OURS)}
        quick = {name: min(times) for name, times in interleave(close, SHORT * rounds, least / SHORT).items()}
    seconds = interleave(timed, rounds, least)
    each = {name: [t / counts[name] for t in times] for name, times in seconds.items()}
    ratios = {name: 1 / value for name, value in medians(each, LOOP).items()}
    row = {
        "transform": transform,
        "shape": shape_name,
        "batch": batch,
        "machine": machine(),
        "per_second": {name: 1 / statistics.median(times) for name, times in each.items()},
        "ratio": ratios,
    }
    return row if batch > 1 else {**row, "microseconds_over": 1e6 * (quick[OURS] - quick[CALL])}


def goals(rows: list[dict[str, Any]], steps: dict[str, dict[str, float]]) -> list[tuple[str, str, bool]]:
    """What was wanted, what was measured and whether it was met."""
    found = []
    for row in rows:
        transform, where = row["transform"], f"{row['transform']}, {row['shape']}, {row['batch']}"
        own, rates = row["ratio"][OURS], row["per_second"]
        if row["batch"] == 1:
            over = row["microseconds_over"]
            found.append((f"{where}: within {OVER} microseconds of OpenCV's call", f"{over:+.1f}", over <= OVER))
            continue
        if row["batch"] == 64 and "first" in row:
            first = row["first"]
            wanted = f"{where}: at least 0.95 of the ratio that was recorded first, {first:.2f}"
            found.append((wanted, f"{own:.2f}", own >= 0.95 * first))
        least = 0.95
        if transform in ("rotation", "perspective"):
            least = 1.0 if row["shape"] == "210x160x3" else 0.7
        elif transform == "shift":
            least = 10.0
        found.append((f"{where}: at least {least:g} of the OpenCV loop", f"{own:.2f}", own >= least))
        if "kornia" in rates and transform.split()[0] in ("median", "JPEG"):
            times = own / row["ratio"]["kornia"]
            found.append((f"{where}: at least 5 times kornia", f"{times:.0f}", times >= 5))
    for name, step in steps.items():
        over = step[WRAPPED] - step[HAND]
        wanted = f"{name}, a step: within {STEP_OVER} microseconds of OpenCV's call in a wrapper by hand"
        found.append((wanted, f"{over:+.1f}", over <= STEP_OVER))
    return found


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row measures."""
    return row["transform"], row["shape"], row["batch"]


def rate(row: dict[str, Any], name: str) -> str:
    """Images a second, and the ratio to the OpenCV loop."""
    if name not in row["per_second"]:
        return ""
    return f"{row['per_second'][name]:.3g} ({row['ratio'][name]:.2g})".replace("e+0", "e")


def over(rows: list[dict[str, Any]]) -> str:
    """A table of what a single observation costs, by the shape of its images."""
    single = {place(row)[:2]: row["microseconds_over"] for row in rows if row["batch"] == 1}
    names = dict.fromkeys(name for name, _ in single)
    body = [
        [name, *(f"{single[name, shape]:+.1f}" if (name, shape) in single else "" for shape in LAYOUTS)]
        for name in names
    ]
    return table(["transform", *LAYOUTS], body)


def stepped(steps: dict[str, dict[str, float]]) -> str:
    """A table of whole steps."""
    body = [
        [name, *(f"{step[key]:.1f}" for key in (HAND, WRAPPED)), f"{step[WRAPPED] - step[HAND]:+.1f}"]
        for name, step in steps.items()
    ]
    return table(["transform", HAND, WRAPPED, "difference"], body)


def head(data: Data) -> str:
    """Which command made the page, on which machines, beside which releases of other libraries."""
    where = f"{machines(data['rows'], 'transform')}; {data['versions']}; one thread of OpenCV"
    return f"{made_by({**data, 'machine': where})} {INTERLEAVED}, ratios within a round."


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows, steps = data["rows"], data["steps"]
    names = [
        name for name in (OURS, CALL, LOOP, STRICT, TORCH, *PEERS) if any(name in row["per_second"] for row in rows)
    ]
    lines = [[row["transform"], row["shape"], row["batch"], *(rate(row, name) for name in names)] for row in rows]
    parts = [
        *prose(__doc__),
        "## Images a second (as a share of the OpenCV loop)\n\n"
        + table(["transform", "images", "batch", *names], lines),
        "## One observation, microseconds beyond OpenCV's call\n\n" + over(rows),
        "## A step of one environment, microseconds\n\n" + stepped(steps),
        "## Goals\n\n"
        + table(["goal", "measured", "met"], [(a, b, "yes" if c else "**no**") for a, b, c in goals(rows, steps)]),
    ]
    if data.get("missing"):
        parts.append("Not installed, so not measured: " + ", ".join(data["missing"]))
    return parts


def measure_all(results: Results) -> None:
    """Measure the transforms that are asked for; the rows of the others stay."""
    given, data = results.given, results.data
    cv2.setNumThreads(1)
    print(f"{machine()}; {releases(*PACKAGES)}", flush=True)
    known = {place(row): row for row in data.get("rows", ())}
    steps: dict[str, dict[str, float]] = data.get("steps", {})
    missing: set[str] = set()
    for transform, shape_name, batch in itertools.product(given.only, LAYOUTS, (1, 64, 256)):
        row = measure(transform, shape_name, batch, given.rounds, given.least, missing)
        if batch == 64 and (last := known.get(place(row))) is not None:
            row["first"] = last.get("first", last["ratio"][OURS])
        known[place(row)] = row
        rates = "  ".join(f"{name} {rate(row, name)}" for name in row["per_second"])
        more = f"{row['microseconds_over']:+9.1f} us" if batch == 1 else " " * 12
        print(f"{transform:11} {shape_name:9} {batch:3d}  {more}  {rates}", flush=True)
    for transform in given.only:
        steps[transform] = measure_step(transform, SHORT * given.rounds, given.least / SHORT)
    wanted = itertools.product(TRANSFORMS, LAYOUTS, (1, 64, 256))
    data |= {
        "versions": releases(*PACKAGES),
        "missing": sorted(missing),
        "rows": [known[at] for at in wanted if at in known],
        "steps": {name: steps[name] for name in TRANSFORMS if name in steps},
    }
    results.keep()
    for goal, text, met in goals(data["rows"], data["steps"]):
        print(f"{'met   ' if met else 'MISSED'} {goal}: {text}")


PAGE = Page(
    "daylight_speed",
    "Speed of the daylight transforms",
    __doc__,
    measure_all,
    body,
    options={
        **timing_options(9, 0.02),
        "--only": {
            "choices": TRANSFORMS,
            "nargs": "+",
            "default": TRANSFORMS,
            "help": "the rows of the others stay as they are recorded",
        },
    },
    partly=["--rounds", "--least", "--only"],
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
