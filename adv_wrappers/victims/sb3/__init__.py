"""Victims from Stable-Baselines3: from agents in memory, and from their files without unpickling."""
