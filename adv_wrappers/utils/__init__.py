"""Helpers that know nothing of reinforcement learning: files, threads, trees of arrays."""
