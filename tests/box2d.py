"""Box2D for tests: imported once, here, and a mark for what needs it."""

from __future__ import annotations

import importlib
import warnings

import pytest
from gymnasium.error import DependencyNotInstalled

try:
    with warnings.catch_warnings():
        # types of SWIG have no __module__, of which Python warns; where that is an error, the process dies
        warnings.simplefilter("ignore")
        importlib.import_module("gymnasium.envs.box2d")
    INSTALLED = True
except (ImportError, DependencyNotInstalled):
    INSTALLED = False

needs_box2d = pytest.mark.skipif(not INSTALLED, reason="needs Box2D: pip install gymnasium[box2d]")
