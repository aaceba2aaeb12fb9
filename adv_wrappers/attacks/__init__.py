"""Attacks on observations and actions: an objective times an ascent, with the published defaults of the paper each comes from."""
