"""Attacks on observations: an objective times an ascent, with the published defaults of the paper each comes from."""
