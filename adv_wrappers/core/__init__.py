"""Threats as values, with their budgets, timings and spaces; and the engine that applies them to rows."""
