"""Helpers that know nothing of reinforcement learning: files, threads, checks of numbers, trees of arrays."""
