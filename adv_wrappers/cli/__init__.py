"""The command line: ``adv-wrappers demo | evaluate | look | threats | victims``, also as ``python -m adv_wrappers``."""

from adv_wrappers.cli import lists, look, runs
from adv_wrappers.cli.group import main

__all__ = ["lists", "look", "main", "runs"]
