"""Daylight: six natural changes of what a camera sees, as plain functions on batches and as perturbations.

The threat model of "Daylight: Assessing Generalization Skills of Deep Reinforcement Learning Agents". The functions
take uint8 or float tensors ``[B, *S]`` (:func:`adv_wrappers.core.image_layouts.layout_of` names layouts) and are exact:
equal to OpenCV to the bit on the host, and to themselves on every device.
"""

from adv_wrappers.daylight.blur import MedianBlur, median_blur
from adv_wrappers.daylight.brightness import Brightness, brightness
from adv_wrappers.daylight.daylight import PROBABILITIES, SETTINGS, Daylight
from adv_wrappers.daylight.jpeg import JPEG, jpeg
from adv_wrappers.daylight.perspective import Perspective, perspective
from adv_wrappers.daylight.rotation import Rotation, rotate
from adv_wrappers.daylight.shift import Shift, shift
from adv_wrappers.daylight.transform import compose

__all__ = [
    "JPEG", "PROBABILITIES", "SETTINGS", "Brightness", "Daylight", "MedianBlur", "Perspective", "Rotation", "Shift",
    "brightness", "compose", "jpeg", "median_blur", "perspective", "rotate", "shift",
]  # fmt: skip
