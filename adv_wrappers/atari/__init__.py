"""Atari games: preprocessing, screens, keyword arguments, and the daylight environment ids."""

from adv_wrappers.atari.preprocessed_atari_env import atari, atari_vec
from adv_wrappers.atari.raw_screen_wrapper import RawFrames, ShrinkFrames, VectorShrinkFrames

__all__ = ["RawFrames", "ShrinkFrames", "VectorShrinkFrames", "atari", "atari_vec"]
