"""What a text such as ``module:name`` names, in a module of one's own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from adv_wrappers.errors import AdvWrappersError


def import_from_current_directory() -> None:
    """Let modules in the current directory be imported, which Python does not in a command such as ``adv-wrappers``."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def object_by_name(text: str, error: type[AdvWrappersError]) -> object:
    """What ``module:name`` names, found in the current directory too.

    Args:
        text: the name of the module, a colon, and the name in it, which may have dots.
        error: what is raised for a text of another form, a module that is not there or fails, and a name that it does
            not have.

    >>> object_by_name("math:pi", AdvWrappersError)
    3.141592653589793
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise error(f"expected module:name, got {text!r:.80}")
    import_from_current_directory()
    try:
        found: object = importlib.import_module(module)
    except Exception as raised:  # whatever a user's module may raise
        raise error(f"cannot import {module!r} of {text!r}: {type(raised).__name__}: {raised}") from raised
    for part in name.split("."):
        if not hasattr(found, part):
            raise error(f"{module!r} has no {name!r}, which {text!r} names")
        found = getattr(found, part)
    return found
