"""Bounds on what a network can answer anywhere in a box: pure torch on modules."""

from __future__ import annotations

from adv_wrappers.bounds.crown_linear_bounds import crown
from adv_wrappers.bounds.interval_bound_propagation import interval, joined
from adv_wrappers.bounds.interval_rules_by_layer_type import graph_network, known, monotone, rule

__all__ = ["crown", "graph_network", "interval", "joined", "known", "monotone", "rule"]
