"""Evaluation: what an agent earns under each threat, with intervals, checks and a report that can be trusted."""
