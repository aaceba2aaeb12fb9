"""The command line, also as ``python -m adv_wrappers``.

``adv-wrappers demo | evaluate | look | suite | threats | train-adversary | train-critic | victims``
"""

from adv_wrappers.cli import lists, look, runs, suite, train
from adv_wrappers.cli.group import main

__all__ = ["lists", "look", "main", "runs", "suite", "train"]
