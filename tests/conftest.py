"""One thread for every test, and worker processes that take no time to start."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Files of tests are kept in memory where there is room for them: most are databases and cards that are synchronised.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2**31:
    os.environ.setdefault("TMPDIR", "/dev/shm")
    tempfile.tempdir = None  # asks for the variable anew

# What is compiled is kept beside its source, where git ignores it, whatever PYTHONDONTWRITEBYTECODE says: each worker,
# and each process that a test begins, would compile the package anew, and pytest rewrite every assertion.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker of ``-n`` begins with a part of the files, so that what the tests of one share is made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_collection(session: pytest.Session) -> None:
    """What every test takes for granted, where tests are collected: with ``-n`` one more process begins the workers."""
    import torch

    from adv_wrappers.utils import pace
    from adv_wrappers.utils import processes as workers
    from tests.processes import context

    torch.set_num_threads(1)
    # Importing torch takes seconds: workers are forked from the process that has done so. tests/utils/test_processes.py
    # has workers that are spawned, as they are outside of the tests.
    workers.START_METHOD = context.get_start_method()
    # How far a command is, is told every ten seconds: what a test reads of its output would depend on who else
    # computes.
    pace.EVERY_S = 3600.0
    gc.disable()  # until all is collected: it looks through torch and every syntax tree again and again
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    if worker != "0" and session.config.args == session.config.getini("testpaths"):
        import_from(int(worker) / int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))


def import_from(share: float) -> None:
    """Import the files of tests after a share of them, which another worker comes to later, and finds compiled."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    for path in files[int(len(files) * share) :]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which collecting it says
            importlib.import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector does not look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A file of which every test is slow, or needs a package that is not here, has not failed when it is run alone."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not session.config.option.keyword:
        session.exitstatus = pytest.ExitCode.OK
