"""Code in processes of their own that take no time to start: they are forked from one that has imported the package.

A fresh interpreter takes seconds to import torch, longer than most tests. What a test does to a process forked from
one that has run nothing else (limits of the system, what Triton decides at its import, a folder that it locks until it
is killed) ends with it.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import runpy
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

PRELOADED = ["adv_wrappers.public", "adv_wrappers.studies", "adv_wrappers.cli", "stable_baselines3", "pytest"]
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([name for name in PRELOADED if importlib.util.find_spec(name.split(".")[0])])


@dataclass(frozen=True)
class Done:
    """How a process ended and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def python(code: str | Path, *arguments: str, cwd: Path | None = None, timeout: float = 300, **env: str) -> Done:
    """What ``python -c code arguments`` does, or ``python script arguments`` where ``code`` is a path."""
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    process = context.Process(target=_run, args=(code, arguments, cwd, env, [pipe[1] for pipe in pipes]))
    process.start()
    for _, writer in pipes:
        writer.close()
    written = {reader: b"" for reader, _ in pipes}
    left, end = set(written), time.monotonic() + timeout
    while left and (ready := wait(left, max(end - time.monotonic(), 0))):
        for reader in ready:
            more = os.read(reader.fileno(), 2**16)
            written[reader] += more
            if not more:
                left.remove(reader)
    if left:
        process.kill()
    process.join()
    for reader in written:
        reader.close()
    done = Done(process.exitcode or 0, *(text.decode() for text in written.values()))
    process.close()
    return done


def _run(
    code: str | Path, arguments: tuple[str, ...], cwd: Path | None, env: dict[str, str], pipes: list[Connection]
) -> None:
    for number, pipe in enumerate(pipes, 1):
        os.dup2(pipe.fileno(), number)
        pipe.close()
    # The server blocks interruptions where a pool, whose processes ignore them, was the first to ask it for one.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # The streams that came with the fork may be those of a file, and would seek in a pipe.
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding=stream.encoding, errors=stream.errors, closefd=False)
        for number, stream in ((1, sys.stdout), (2, sys.stderr))
    )
    torch.set_num_threads(1)
    os.environ.update({"OMP_NUM_THREADS": "1", **env})
    os.chdir(cwd or os.getcwd())
    if isinstance(code, Path):
        sys.argv = [str(code), *arguments]
        sys.path.insert(0, str(code.parent))
        runpy.run_path(str(code), run_name="__main__")
    else:
        sys.argv = ["-c", *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
