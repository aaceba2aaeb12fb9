"""Scripts of ``benchmarks`` and ``benchmarks/reproduce``, loaded for the tests of what they compute and write."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
FOLDERS = (BENCHMARKS / "reproduce", BENCHMARKS)


@contextmanager
def result_script(name: str) -> Iterator[ModuleType]:
    """The script ``name`` as a module; its neighbours, of which other folders may have their own, are forgotten."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        path = next(folder / f"{name}.py" for folder in FOLDERS if (folder / f"{name}.py").exists())
        for folder in reversed(FOLDERS):
            patch.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location(f"{name}_of_results", path)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
    for other in set(sys.modules) - before:
        if Path(getattr(sys.modules[other], "__file__", None) or "/").parent in FOLDERS:
            del sys.modules[other]
