"""Daylight transforms beside a loop over OpenCV's calls, on one thread, interleaved in one run.

    python benchmarks/daylight_speed.py
    python benchmarks/daylight_speed.py --only rotation shift    # these rows alone; the others stay

Images a second from uint8 observations in host memory to a new uint8 batch, on noise, with the daylight paper's
settings for Pong and JPEG quality 30, as a share of the OpenCV loop, ``np.stack([call(image) for image in batch])``. Of
4x84x84 it takes frame by frame; JPEG codes every frame of a stack. ``torch`` is ours as it runs on other devices,
forced on the host.

The last column is microseconds of a single observation beyond OpenCV's call; a whole step of one environment takes
about as many more than one under a ``gymnasium.ObservationWrapper`` around that call.
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
PACKAGE = "opencv-python"
SHORT = 20  # times as many rounds, each as many times shorter, find the quickest of a single observation


def contestants(transform: str, shape_name: str, batch: int) -> dict[str, Call]:
    """OpenCV's loops and call, and this library."""
    layout, shape = LAYOUTS[shape_name]
    calls = {**opencv(transform, layout, shape), OURS: ours(transform, layout), TORCH: by_torch(transform, layout)}
    if batch > 1:
        del calls[CALL]
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


def measure(transform: str, shape_name: str, batch: int, rounds: int, least: float) -> dict[str, Any]:
    """One row: images a second of everyone, and their ratio to the OpenCV loop in the same round."""
    x = np.random.default_rng(0).integers(0, 256, (batch, *LAYOUTS[shape_name][1]), np.uint8)
    calls = contestants(transform, shape_name, batch)
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


def rate(row: dict[str, Any], name: str) -> str:
    """Images a second, and the ratio to the OpenCV loop."""
    return f"{row['per_second'][name]:.3g} ({row['ratio'][name]:.2g})".replace("e+0", "e")


def head(data: Data) -> str:
    """Which command made the page, on which machines, beside which release of OpenCV."""
    where = f"{machines(data['rows'], 'transform')}; {data['versions']}; one thread of OpenCV"
    return f"{made_by({**data, 'machine': where})} {INTERLEAVED}, ratios within a round."


def body(data: Data) -> list[str]:
    """The section after its head."""
    names = [OURS, TORCH]
    single = {(row["transform"], row["shape"]): row for row in data["rows"] if row["batch"] == 1}
    lines = []
    for row in (row for row in data["rows"] if row["batch"] == 64):
        beyond = single[row["transform"], row["shape"]]["microseconds_over"]
        lines.append([
            row["transform"], row["shape"], f"{row['per_second'][LOOP]:.3g}".replace("e+0", "e"),
            *(f"{row['ratio'][name]:.2g}" for name in names),
            f"{beyond:+.1f}",
        ])  # fmt: skip
    head = ["transform", "images", "OpenCV loop, images a second", *names, "one observation, us"]
    return [*prose(__doc__), "Batches of 64.", table(head, lines)]


def measure_all(results: Results) -> None:
    """Measure the transforms that are asked for; the rows of the others stay."""
    given, data = results.given, results.data
    cv2.setNumThreads(1)
    print(f"{machine()}; {releases(PACKAGE)}", flush=True)
    known = {(row["transform"], row["shape"], row["batch"]): row for row in data.get("rows", ())}
    for transform, shape_name, batch in itertools.product(given.only, LAYOUTS, (1, 64)):
        row = measure(transform, shape_name, batch, given.rounds, given.least)
        known[transform, shape_name, batch] = row
        rates = "  ".join(f"{name} {rate(row, name)}" for name in row["per_second"])
        more = f"{row['microseconds_over']:+9.1f} us" if batch == 1 else " " * 12
        print(f"{transform:11} {shape_name:9} {batch:3d}  {more}  {rates}", flush=True)
    wanted = itertools.product(TRANSFORMS, LAYOUTS, (1, 64))
    data |= {
        "versions": releases(PACKAGE),
        "rows": [known[at] for at in wanted if at in known],
    }
    results.keep()


PAGE = Page(
    "daylight_speed",
    "Speed of the daylight transforms",
    __doc__,
    measure_all,
    body,
    page="speed",
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
