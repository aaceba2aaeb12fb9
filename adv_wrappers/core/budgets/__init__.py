"""Budgets: balls around the true value, and those that look back at what was shown before."""
