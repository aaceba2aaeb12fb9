"""Presets: every attack by a name, and threats as texts."""
