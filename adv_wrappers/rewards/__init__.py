"""Perturbations of rewards, for trainings: noise, flipped signs, delays, clipping."""
