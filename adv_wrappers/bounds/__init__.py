"""Bounds on what a network can answer anywhere in a box: pure torch on modules."""

from __future__ import annotations

from adv_wrappers.bounds.crown_bounds import crown
from adv_wrappers.bounds.interval_bounds import graph_network, interval, known

__all__ = ["crown", "graph_network", "interval", "known"]
