"""Where numbers come from: the releases and the revision that made them."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path


def versions() -> dict[str, str]:
    """Versions of Python, this package and those that numbers depend on; packages that are missing are left out."""
    return dict(_versions())


@functools.cache  # looking them up takes as long as an episode of a small environment
def _versions() -> dict[str, str]:
    root = sys.modules[__name__.partition(".")[0]]
    found = {"python": platform.python_version(), "adv_wrappers": str(getattr(root, "__version__", "unknown"))}
    for name in ("gymnasium", "torch", "numpy", "mujoco", "ale-py", "opencv-python", "dm-control"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def revision() -> str | None:
    """Git revision of this package's sources; None where git does not know this very file (an installed copy)."""
    here = Path(__file__)
    try:
        for arguments in (["ls-files", "--error-unmatch", here.name], ["rev-parse", "HEAD"]):
            done = subprocess.run(
                ["git", *arguments], cwd=here.parent, check=True, capture_output=True, text=True, timeout=10
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return str(done.stdout).strip() or None
