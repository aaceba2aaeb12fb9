"""Certified returns: what no attack within a budget takes from an agent."""
