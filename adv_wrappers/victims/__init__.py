"""Victims: the policies under attack, made from modules, agents of SB3 and RLlib, cards and references."""

from __future__ import annotations

from adv_wrappers.victims.card import environment_of, load_card, save_card
from adv_wrappers.victims.modules.module import from_module
from adv_wrappers.victims.modules.torchscript import from_torchscript
from adv_wrappers.victims.onnx.victim import from_onnx
from adv_wrappers.victims.references import load_victim, zoo_names
from adv_wrappers.victims.rllib import from_rllib
from adv_wrappers.victims.sb3.victim import from_sb3, load_sb3
from adv_wrappers.victims.victim import Victim

__all__ = [
    "Victim", "environment_of", "from_module", "from_onnx", "from_rllib", "from_sb3", "from_torchscript", "load_card",
    "load_sb3", "load_victim", "save_card", "zoo_names",
]  # fmt: skip
