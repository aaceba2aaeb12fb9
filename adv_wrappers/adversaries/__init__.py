"""Adversaries that learn: actors, and directors, the trained policies that choose the adversary's action."""

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.forces import Forces
from adv_wrappers.adversaries.hybrid_attack import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.adversaries.pa_ad import PAAD, ActionPAAD
from adv_wrappers.adversaries.sa_rl import SARL
from adv_wrappers.adversaries.timed import Induce, Timed

__all__ = ["PAAD", "SARL", "ActionPAAD", "Actor", "Director", "Forces", "Hybrid", "Induce", "Learned", "Timed"]
