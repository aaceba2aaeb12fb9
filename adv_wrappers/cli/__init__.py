"""The command line, also as ``python -m adv_wrappers``.

``adv-wrappers certify | demo | evaluate | imitate | look | plot | report | resilience | robustness | run | standing |
suite | threats | train-adversary | train-agent | train-critic | train-dynamics | victims``
"""

from adv_wrappers.cli import (
    agent_report_command,
    campaign,
    certify,
    evaluation,
    imitate,
    list_threats_and_victims,
    look_at_threats,
    plot,
    resilience_commands,
    standing_commands,
    suite,
    train,
)
from adv_wrappers.cli.main import main

__all__ = [
    "agent_report_command",
    "campaign",
    "certify",
    "evaluation",
    "imitate",
    "list_threats_and_victims",
    "look_at_threats",
    "main",
    "plot",
    "resilience_commands",
    "standing_commands",
    "suite",
    "train",
]
