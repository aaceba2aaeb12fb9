"""Attacks and transforms on a GPU beside the limits of the machine and other libraries, in one run.

    python benchmarks/gpu.py

Batches live on the device and results stay there. Ours is recorded as a CUDA graph of one call (ten for batches below
1024) and replayed; plain torch is the same without Triton's kernels. Times are those of CUDA events, medians over
rounds in which everyone takes a turn. The limit, of the same run, is for transforms the rate of a copy of 1 GiB, for
attacks that of a product of two matrices of 8192 x 8192 in their own precision. Of the first 64 rows the share of
elements is given that are equal to the processor's: to the bit for transforms, within 1e-6 for attacks, as an element
whose gradient is within rounding of zero may step the other way. Attacks take 10 steps of a quarter of 8/255 and are
given the labels; transforms take stacks of four frames 84x84x4 with the daylight paper's settings for Pong.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from gpu_rows import OURS, ROWS, SIZES, TORCH, TRANSFORMS, Call, Row, in_precision_of, inputs, ours, peers, plain
from timing import Data, Page, Results, interleave, prose, table, timing_options

FEW = 64


def gpu() -> dict[str, str]:
    """Name, driver and versions."""
    import triton

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = "unknown"
    name = torch.cuda.get_device_name()
    return {"gpu": name, "driver": driver, "CUDA": str(torch.version.cuda), "Triton": triton.__version__}


def recorded(call: Call, device: torch.device, count: int) -> Call:
    """A replay of ``count`` calls; the calls themselves on a processor."""

    def several() -> Any:
        for _ in range(count - 1):
            call()
        return call()

    if device.type != "cuda":
        return several
    from adv_wrappers.accel.cuda_graphs import CudaGraphRecorder

    replay: Call = CudaGraphRecorder(device).record(several)
    return replay


def clocked(contestants: Mapping[str, Call], rounds: int, least: float, device: torch.device) -> dict[str, list[float]]:
    """Seconds a call of every contestant in each round, by events on the device."""
    if device.type != "cuda":
        return interleave(contestants, rounds, least)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def lasting(call: Call, count: int) -> float:
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000 / count

    repeats = {}
    for name, call in contestants.items():
        lasting(call, 3)
        repeats[name] = max(1, round(least / lasting(call, 1)))
    names, seconds = list(contestants), {name: [] for name in contestants}  # type: dict[str, list[float]]
    for i in range(rounds):
        at = i % len(names)
        for name in names[at:] + names[:at]:
            seconds[name].append(lasting(contestants[name], repeats[name]))
    return seconds


def limits(rounds: int, least: float, device: torch.device, side: int = 8192) -> dict[str, float]:
    """Bytes a second of a copy, and floating-point operations a second of a product in both precisions."""
    source = torch.zeros(side * side * 16, dtype=torch.uint8, device=device)
    target, a = torch.empty_like(source), torch.rand(side, side, device=device)
    out = torch.empty_like(a)
    before, found = torch.get_float32_matmul_precision(), {}
    calls: dict[str, tuple[str, Call, float]] = {
        "copy": (before, lambda: target.copy_(source), 2.0 * source.numel()),
        "fp32": ("highest", lambda: torch.mm(a, a, out=out), 2.0 * side**3),
        "tf32": ("high", lambda: torch.mm(a, a, out=out), 2.0 * side**3),
    }
    for name, (precision, call, work) in calls.items():
        torch.set_float32_matmul_precision(precision)
        found[name] = work / statistics.median(clocked({name: call}, rounds, least, device)[name])
    torch.set_float32_matmul_precision(before)
    return found


def agreement(row: Row, got: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of equal elements: to the bit for transforms, within 1e-6 for attacks."""
    if row.kind in TRANSFORMS:
        return float((got.cpu() == expected.cpu()).float().mean())
    return float(((got.cpu() - expected.cpu()).abs() <= 1e-6).float().mean())


def measure(
    row: Row, size: int, device: torch.device, rounds: int, least: float, others: bool
) -> tuple[dict[str, Any], list[str]]:
    """One row at one size."""
    host = inputs(row.kind, size)
    given = tuple(tensor.to(device) for tensor in host)
    own, missing = ours(row, given), []
    calls = {OURS: own, TORCH: plain(own)}
    few = tuple(tensor[:FEW] for tensor in host)
    ends = {name: call()[:FEW].clone() for name, call in calls.items()}
    found: dict[str, Any] = {
        "name": row.name,
        "size": size,
        "precision": row.precision,
        "same_as_cpu": agreement(row, ends[OURS], ours(row, few)()),
        "same_as_torch": agreement(row, ends[OURS], ends[TORCH]),
        "seconds": {},
    }
    count = 10 if size < 1024 and device.type == "cuda" else 1
    timed: dict[str, Callable[[], Any]] = {name: recorded(call, device, count) for name, call in calls.items()}
    counts = dict.fromkeys(timed, count)
    if others:
        elsewhere, missing = peers(row, given)
        missing += [f"{name}, {row.name}, {size}: {why}" for name, why in failing(elsewhere).items()]
        timed |= elsewhere
        counts |= dict.fromkeys(elsewhere, 1)
    times = clocked(timed, rounds, least, device)
    found["seconds"] = {name: statistics.median(times[name]) / counts[name] for name in timed}
    return found, missing


def failing(calls: dict[str, Call]) -> dict[str, str]:
    """Takes out the calls that fail (a batch may be too large for a peer), and says why."""
    found = {}
    for name in list(calls):
        try:
            calls[name]()
        except (RuntimeError, ValueError) as error:  # out of memory among them
            found[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            del calls[name]
    return found


def share(row: dict[str, Any], found: dict[str, float]) -> str:
    """How much of the limit it has: of the copy's rate, or of the product's."""
    line = next(r for r in ROWS if r.name == row["name"])
    work, limit = (line.bytes, "copy") if line.bytes else (line.flops, line.precision or "fp32")
    return f"{work * row['size'] / row['seconds'][OURS] / found[limit]:.1%} of {limit}"


def duration(seconds: float) -> str:
    """Microseconds below a millisecond."""
    return f"{seconds * 1e6:.3g} us" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def head(data: Data) -> str:
    """Which command made the page, and on what."""
    device = ", ".join(f"{key} {value}" for key, value in data["device"].items())
    made = f"Made by `{data['command']}` on {device}; {data['machine']}."
    dry = "**A dry run on a processor: these are no figures of a GPU.**"
    return f"{dry}\n\n{made}" if data["dry"] else made


def body(data: Data) -> Iterable[str]:
    """What is measured, the limits and all rows."""
    rows, found = data["rows"], data["limits"]
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    lines = [
        [
            row["name"],
            row["size"],
            *(duration(row["seconds"][n]) if n in row["seconds"] else "-" for n in names),
            share(row, found),
            f"{row['same_as_cpu']:.4%}",
        ]
        for row in rows
    ]
    yield from prose(__doc__)
    yield (
        f"Limits: a copy of {found['copy'] / 1e12:.3g} TB/s, products of {found['fp32'] / 1e12:.3g} TFLOP/s in fp32 "
        f"and {found['tf32'] / 1e12:.3g} in tf32."
    )
    columns = ["row", "batch", *names, "share of the limit", "as on the processor"]
    yield table(columns, lines)
    if data["missing"]:
        yield "Not installed, or failed, so not measured: " + "; ".join(data["missing"])


def measure_all(results: Results) -> None:
    """Every row at every size, anew.

    Raises:
        SystemExit: with 2 without CUDA.
    """
    given, data = results.given, results.data
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("benchmarks/gpu.py needs CUDA, and torch finds none here (--device cpu is a dry run)", file=sys.stderr)
        raise SystemExit(2)
    dry = device.type == "cpu"
    rounds, sizes = given.rounds, SIZES[:1] if dry else SIZES
    limit = limits(rounds, given.least, device, 256 if dry else 8192)
    data |= {"dry": dry, "device": {"gpu": "none"} if dry else gpu(), "limits": limit, "rows": []}
    print(data["device"], data["limits"], sep="\n", flush=True)
    missing: set[str] = set()
    for row in ROWS:
        for size in sizes if given.only is None or row.name in given.only else ():
            with in_precision_of(row):
                found, absent = measure(row, size, device, rounds, given.least, given.peers)
            data["rows"].append(found)
            missing.update(absent)
            times = "  ".join(f"{name} {duration(seconds)}" for name, seconds in found["seconds"].items())
            same = f"{found['same_as_cpu']:.4%} {found['same_as_torch']:.4%}"
            print(f"{row.name:24} {size:6d} same {same}  {times}", flush=True)
            if not dry:
                torch.cuda.empty_cache()
    data["missing"] = sorted(missing)
    results.keep()


PAGE = Page(
    "gpu",
    "Attacks and transforms on a GPU",
    __doc__,
    measure_all,
    body,
    page="gpu",
    options={
        **timing_options(9, 0.02),
        "--only": {"choices": [row.name for row in ROWS], "action": "append"},
        "--peers": {"action": argparse.BooleanOptionalAction, "default": True},
        "--device": {"default": "cuda", "choices": ["cuda", "cpu"], "help": "cpu: a dry run at N = 1, with --out"},
    },
    head=head,
)


if __name__ == "__main__":
    PAGE.main()
