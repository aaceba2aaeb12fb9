"""Perturbed dynamics, for single environments and vectors; SB3: :mod:`adv_wrappers.wrappers.sb3_vec_env`."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch

from adv_wrappers.core.parameter_space import ParameterSpace
from adv_wrappers.core.perturbation import On
from adv_wrappers.environments.physical_parameters import parameters_of
from adv_wrappers.errors import SpaceError
from adv_wrappers.wrappers.layer import EnvLayer, ForAnyEnv, Layer, layers, wrappers_of
from adv_wrappers.wrappers.parameterized_env import ParameterizedEnv, parameterized


def dynamics_beneath(env: Any) -> ParameterSpace:
    """The physical parameters of an environment, or of the rows of a vector, which stays as it is.

    Raises:
        SpaceError: for rows in other processes, and for environments whose parameters are not known.
    """
    return parameters_of(env if isinstance(env, gym.Env) else _vector(env).envs[0]).space


def end_diverged_episodes(env: Any) -> None:
    """Cut off episodes whose simulation diverges, instead of an error, under the layers on dynamics around ``env``.

    A training would be over for one unlucky push, and an adversary earns nothing by it.
    """
    for layer in layers(env):
        if isinstance(layer, DynamicsLayer):
            for inner in layer.parameterized:
                inner.ends_diverged = True


def _vector(env: Any) -> Any:
    """The vector beneath all wrappers, whose rows are environments in this process."""
    vector = wrappers_of(env)[-1]
    rows = getattr(vector, "envs", None)
    if not isinstance(rows, list) or not all(isinstance(row, gym.Env) for row in rows):
        raise SpaceError(
            f"the dynamics of a vector are changed in its environments, row by row, and those of "
            f"{type(vector).__name__} are not in this process, or not one by one: use SyncVectorEnv "
            f"(gym.make_vec(..., vectorization_mode='sync')), or DummyVecEnv of SB3, or put PerturbDynamics around "
            f"each of the environments"
        )
    return vector


class DynamicsLayer(Layer):
    """Mixin of the wrappers that perturb the dynamics: before every step they propose parameters to each row.

    Attributes:
        parameterized: what sets the parameters of each row.
    """

    on: ClassVar[On] = "dynamics"

    parameterized: list[ParameterizedEnv]

    def _parameters_beneath(self, env: Any) -> tuple[Any, ParameterSpace]:
        """The environment, its rows able to take parameters, and what these are.

        Raises:
            SpaceError: for rows in other processes, and for environments whose parameters are not known or differ.
        """
        vector = None if isinstance(env, gym.Env) else _vector(env)
        made = [parameterized(row) for row in ([env] if vector is None else vector.envs)]
        self.parameterized = [inner for _, inner in made]
        space = self.parameterized[0].parameters.space
        if any(one.parameters.space != space for one in self.parameterized):
            raise SpaceError("the rows of a vector must have the same physical parameters, these have not")
        if vector is None:
            return made[0][0], space
        vector.envs[:] = [outer for outer, _ in made]  # in place: others may hold the list
        return env, space

    def _threat_taken(self) -> None:
        """Note where the parameters of the threat stand."""
        self._places = self.parameterized[0].parameters.space.places(self.engine.threat.at)

    def _send(self, action: Any) -> Any:
        """Propose parameters to every row; the action stays what it is."""
        engine, places = self.engine, self._places
        if not engine.batched:
            [env] = self.parameterized
            env.proposed[places] = engine.act(env.proposed[places])
            return action
        # all rows in one batch, on the device of the engine
        received: Any = np.stack([env.proposed[places] for env in self.parameterized])
        if engine.on_host:
            proposed = engine.act(received)
        else:
            proposed = engine.act(torch.from_numpy(received).to(engine.clock.device)).cpu().numpy()
        for env, values in zip(self.parameterized, proposed, strict=True):
            env.proposed[places] = values
        return action


class PerturbDynamics(ForAnyEnv, DynamicsLayer, EnvLayer):
    """Changes the physics of the environment: masses, friction, gravity, actuators, forces.

    Parameters are factors of the environment's own values, 1 where nothing is changed; forces (newtons), wind (metres a
    second), loads (kilograms), dry friction of joints (N m) and slopes (degrees) are 0 there. Which there are,
    ``at="?"`` says in its error: of MuJoCo and dm_control ``mass``, ``inertia``, ``load``, ``friction``, ``damping``,
    ``frictionloss``, ``gain`` and ``torque`` (of actuators), ``gravity``, ``slope``, ``wind`` and ``force``; of Box2D
    ``gravity``, ``density`` and ``force``; of classic control their constants; and of an environment of one's own what
    its class lists in ``physical_parameters``. They are the environment's own again at the end of every episode, at
    steps that are not attacked, and when it is closed.

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
        AdvWrappersError: one of its kinds, for a threat that cannot work on this environment, before anything is spent.
            :class:`SimulationError` at a step that diverges.

    >>> import gymnasium as gym
    >>> env = PerturbDynamics(gym.make("CartPole-v1"), "dynamics-noise:at=mass;length,eps=0.5")
    >>> obs, info = env.reset(seed=0)
    """


VectorPerturbDynamics = PerturbDynamics.of_vector
