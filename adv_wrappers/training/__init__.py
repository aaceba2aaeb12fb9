"""Training: the critics that Robust Sarsa attacks through."""

from __future__ import annotations

from adv_wrappers.training.critic import train_critic
from adv_wrappers.training.scan import GRID, SMALL, Scan, scan_critics

__all__ = ["GRID", "SMALL", "Scan", "scan_critics", "train_critic"]
