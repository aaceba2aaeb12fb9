"""Attacks on actions, between the agent and its actuators."""
