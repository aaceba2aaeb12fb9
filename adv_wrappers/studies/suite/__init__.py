"""Suites: a list of attacks on one agent, and what is left of it under the strongest."""
