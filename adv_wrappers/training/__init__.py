"""Training: the critics that Robust Sarsa attacks through."""

from __future__ import annotations

from adv_wrappers.training.critic import train_one
from adv_wrappers.training.scan import GRID, SMALL, Scan, scan_critics, train_critic

__all__ = ["GRID", "SMALL", "Scan", "scan_critics", "train_critic", "train_one"]
