"""Trainings that make an agent harder to attack, a paper a file."""
