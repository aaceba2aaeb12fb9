"""One thread for every test, worker processes that take no time to start, and the rigs as fixtures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adv_wrappers.utils import processes as workers
from tests.processes import context
from tests.rigs import RIGS

torch.set_num_threads(1)
# Importing torch takes seconds: workers are forked from the process that has done so. tests/utils/test_processes.py
# has workers that are spawned, as they are outside of the tests.
workers.START_METHOD = context.get_start_method()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each worker of ``-n`` begins with a part of the files, so that what the tests of one share is made once."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(params=list(RIGS))
def rig(request):
    return RIGS[request.param]
