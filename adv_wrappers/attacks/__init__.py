"""Attacks on observations and actions: an objective times an ascent, with the defaults of the paper each comes from."""
