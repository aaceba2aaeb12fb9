"""Faults of sensors, and of the channel between them and the agent: perturbations that need no adversary."""
