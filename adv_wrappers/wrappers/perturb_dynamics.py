"""Perturbed dynamics, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_layers`."""

from __future__ import annotations

import inspect
from typing import Any

from gymnasium.vector import VectorEnv

from adv_wrappers.wrappers.dynamics_layer import DynamicsLayer
from adv_wrappers.wrappers.env_layer import EnvLayer
from adv_wrappers.wrappers.layer import is_vec_env
from adv_wrappers.wrappers.vector_layer import VectorLayer


class VectorPerturbDynamics(DynamicsLayer, VectorLayer):
    """:class:`PerturbDynamics` for a :class:`gymnasium.vector.VectorEnv` whose environments are in this process."""


class PerturbDynamics(DynamicsLayer, EnvLayer):
    """Changes the physics of the environment: masses, friction, gravity, actuators, forces.

    Parameters are factors of the environment's own values, 1 where nothing is changed; forces (newtons) and wind
    (metres a second) are 0 there. Which there are, ``at="?"`` says in its error: of MuJoCo and dm_control ``mass``,
    ``inertia``, ``friction``, ``damping``, ``gravity``, ``gain`` (of actuators), ``wind`` and ``force``; of Box2D
    ``gravity``, ``density`` and ``force``; of classic control their constants; of an environment of one's own what its
    class lists in ``physical_parameters``. They are the environment's own again at the end of every episode, at steps
    that are not attacked, and when it is closed.

    Args:
        env: a Gymnasium ``Env`` or ``VectorEnv``, or an SB3 ``VecEnv``; the wrapper that fits is returned. The
            environments of a vector are in this process.
        how: a perturbation of the dynamics, a :class:`ThreatModel`, a text such as
            ``"dynamics-noise:at=mass,eps=0.2"``, a threat's dictionary, or any function ``(x, context) -> x'`` on
            float tensors ``[B, n]``.
        within: the budget, around the environment's own values, or those that another such layer around this one has
            set; an inner :class:`FixedDynamics` replaces them.
        when: the timing; None attacks at every step.
        at: which parameters: a name such as ``"mass.torso"``, the part before the dot for all of its kind, or a tuple.
        victim: fills in a victim that ``how`` leaves open; a reference such as ``"zoo:hopper-ppo"`` will do.
        eps, norm, scale: the budget in words, instead of ``within``, as for :func:`adv_wrappers.threat`.
        keep_true: put the parameters as they would be without this layer into
            ``info["adv_wrappers"][layer]["true"]``; those that were drawn are not recorded.

    Raises:
        AdvWrappersError: one of its kinds, for a threat that cannot work on this environment, before anything is spent:
            :class:`BudgetError` for one with values that the simulator does not hold. :class:`SimulationError` at a
            step that diverges.

    >>> import gymnasium as gym
    >>> env = PerturbDynamics(gym.make("CartPole-v1"), "dynamics-noise:at=mass;length,eps=0.5")
    >>> obs, info = env.reset(seed=0)
    """

    __signature__ = inspect.signature(EnvLayer)  # that of __new__ would say nothing

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(env, VectorEnv):
            return VectorPerturbDynamics(env, *args, **kwargs)
        if is_vec_env(env):
            from adv_wrappers.wrappers.sb3_layers import VecPerturbDynamics

            return VecPerturbDynamics(env, *args, **kwargs)
        return super().__new__(cls)
