"""Atari games: preprocessing, screens, keyword arguments, and the daylight environment ids."""

from adv_wrappers.atari.env import atari, atari_vec
from adv_wrappers.atari.raw_screen import RawFrames, ShrinkFrames

__all__ = ["RawFrames", "ShrinkFrames", "atari", "atari_vec"]
