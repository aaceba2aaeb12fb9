"""Atari games: preprocessing, screens, keyword arguments, and the daylight environment ids."""
