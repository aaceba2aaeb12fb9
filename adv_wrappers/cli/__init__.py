"""The command line, also as ``python -m adv_wrappers``.

``adv-wrappers certify | demo | evaluate | imitate | look | plot | report | resilience | robot | robustness | run |
standing | suite | threats | train-adversary | train-agent | train-critic | train-dynamics | victims``
"""

from adv_wrappers.cli import (
    certify,
    evaluate,
    imitate,
    lists,
    look,
    plot,
    report,
    resilience,
    robot,
    run,
    standing,
    suite,
    train,
)
from adv_wrappers.cli.main import main

__all__ = [
    "certify",
    "evaluate",
    "imitate",
    "lists",
    "look",
    "main",
    "plot",
    "report",
    "resilience",
    "robot",
    "run",
    "standing",
    "suite",
    "train",
]
