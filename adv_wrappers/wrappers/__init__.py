"""Thin wrappers that let Gymnasium, vector and Stable-Baselines3 environments call the engine."""
