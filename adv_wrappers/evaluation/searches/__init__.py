"""Searches for the worst that can befall an agent: where perturbations lead, their timing, physical parameters."""
