"""The command line, also as ``python -m adv_wrappers``.

``adv-wrappers certify | demo | evaluate | imitate | look | resilience | robustness | suite | threats |
train-adversary | train-critic | train-dynamics | victims``
"""

from adv_wrappers.cli import certify, evaluation, imitate, listing, look, measure, suite, train
from adv_wrappers.cli.main import main

__all__ = ["certify", "evaluation", "imitate", "listing", "look", "main", "measure", "suite", "train"]
