"""Perturbations of the dynamics: other masses, frictions or gravity, worn actuators, wind and pushes."""
