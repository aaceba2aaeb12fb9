"""Faults of sensors, actuators, channels, dynamics and rewards: perturbations that need no adversary."""
