"""What options of the command line choose from, and the defaults that its help shows.

The modules that these belong to import torch, which takes more than a second. They take them from here, so that
``adv-wrappers COMMAND --help``, errors of usage and completions in a shell do not wait for it.
"""

from __future__ import annotations

from typing import Literal, get_args

SUITE_NAMES = ("standard", "action", "daylight", "certified", "everything")  # of adv_wrappers.campaign.SUITES
Method = Literal["interval", "crown", "full-crown", "refined", "bisect"]  # of bounds, from the fastest to the tightest
BY = ("return", "loss")  # what the best of several draws is chosen by
CURVES_BY = (
    "threat",
    "victim",
    "env",
    "seed",
)  # of adv_wrappers.evaluation.curves_from_stored_rows: curves or panels for each
FORMS = ("direction", "target")  # of PA-AD's actions
BOTH = "both"  # forms are trained, and the stronger is kept
OBSERVE = ("state", "state+action", "state+action+spent")  # what an adversary that learns may observe
ROBUST = ("radial", "sa", "wocar", "car", "smoothed")  # robust losses; wocar of PPO and A2C, car of DQN
Rewards = Literal["normalized", "clipped", "raw"]  # what an agent learns from
REWARDS: tuple[Rewards, ...] = get_args(Rewards)
MOST_HIDDEN = 500  # layers of a learned model of an environment
BEAM_WIDTH = 32  # states that a beam search keeps of every episode
SAMPLE_SHARE = 0.05  # of the cells of every kind in a plan, which are played to say what the rest will take
Select = Literal["mode", "sample"]  # what a victim plays of its distribution
