"""Adversaries that learn: actors, and directors, the trained policies that choose the adversary's action."""

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.actor_that_may_decline_a_step import Induce, Timed
from adv_wrappers.adversaries.director_policy import Director
from adv_wrappers.adversaries.forces_actor import Forces
from adv_wrappers.adversaries.learned_attack import Learned
from adv_wrappers.adversaries.observation_and_action_actor import Hybrid
from adv_wrappers.adversaries.pa_ad_actor import PAAD, ActionPAAD
from adv_wrappers.adversaries.sa_rl_actor import SARL

__all__ = ["PAAD", "SARL", "ActionPAAD", "Actor", "Director", "Forces", "Hybrid", "Induce", "Learned", "Timed"]
