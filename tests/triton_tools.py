"""How kernels are tested without a GPU: run by Triton's interpreter on tiny shapes, and compiled for a GPU that is not
there. Both happen in a process of their own, since Triton decides at import which of the two a kernel is for."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def interpreted(code: str, timeout: float = 300) -> str:
    """What ``code`` prints when kernels run in Triton's interpreter on the processor; its failure is the test's."""
    return _python(code, {"TRITON_INTERPRET": "1"}, timeout)


def compiled(code: str, timeout: float = 300) -> str:
    """What ``code`` prints when kernels are real: they can be compiled (``cubin`` below), not launched."""
    return _python(_CUBIN + code, {"TRITON_INTERPRET": "0"}, timeout)


_CUBIN = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton

def cubin(kernel, signature, constexprs, **options):
    'Machine code for an sm_90 GPU: signature maps every argument to its type, as *u8, i32, fp32 or constexpr.'
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]
"""


def compiling():
    """From here on kernels are compiled where they would be launched, for sm_90; the list that they are put into."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    run, made = JITFunction.run, {}

    def compiled_only(self, *args, **options):
        kernel = run(self, *args, **{**options, "warmup": True})
        made[id(kernel)] = kernel
        return kernel

    JITFunction.run = compiled_only
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
        )
    )
    return made


def resources(kernel):
    """Registers and bytes of stack a thread: a stack is where values wait for which there is no register."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        shown = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = dict(word.split(":") for word in shown.split() if word.count(":") == 1 and word.split(":")[1].isdigit())
    return int(found["REG"]), int(found["STACK"])


def _python(code: str, more: dict[str, str], timeout: float) -> str:
    # a process forked from another would have Triton imported, by torch._dynamo
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**os.environ, **more}, timeout=timeout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
