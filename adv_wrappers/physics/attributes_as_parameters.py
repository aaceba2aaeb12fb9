"""Physical parameters that are attributes of an environment, as in Gymnasium's classic control tasks.

An environment of one's own lists them in a class attribute ``physical_parameters``: by the name of the parameter the
attribute, as in ``{"mass.pole": "masspole", "gravity": "gravity"}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from numpy.typing import NDArray

from adv_wrappers.core.parameter_space import Parameter, ParameterSpace
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import SpaceError
from adv_wrappers.physics.physical_parameters import HIGHEST, LOWEST, PhysicalParameters

_MAY_VANISH = ("gravity", "gain", "damping", "wind")

_KNOWN: dict[type, dict[str, str]] = {
    CartPoleEnv: {
        "mass.cart": "masscart", "mass.pole": "masspole", "length.pole": "length", "gravity": "gravity",
        "gain": "force_mag",
    },
    PendulumEnv: {"mass": "m", "length": "l", "gravity": "g"},
    AcrobotEnv: {
        "mass.link1": "LINK_MASS_1", "mass.link2": "LINK_MASS_2", "length.link1": "LINK_LENGTH_1",
        "center.link1": "LINK_COM_POS_1", "center.link2": "LINK_COM_POS_2", "inertia": "LINK_MOI",
    },
    MountainCarEnv: {"gain": "force", "gravity": "gravity"},
    Continuous_MountainCarEnv: {"gain": "power"},
}  # fmt: skip


class AttributeParameters(PhysicalParameters):
    """Attributes of an environment as factors of their own values.

    Args:
        env: the environment itself.
        attributes: by the name of a parameter, the attribute.

    Raises:
        SpaceError: for an attribute that is no number other than 0.
    """

    def __init__(self, env: Any, attributes: Mapping[str, str]) -> None:
        self._env, self._attributes = env, dict(attributes)
        self._own: dict[str, float] = {}
        for name, attribute in attributes.items():
            value = getattr(env, attribute, None)
            if not isinstance(value, (int, float, np.number)) or not np.isfinite(value) or value == 0:
                raise SpaceError(
                    f"{type(env).__name__} lists {name!r} in physical_parameters: expected a number other than 0 as "
                    f"its attribute {attribute!r}, got {value!r:.80}"
                )
            self._own[attribute] = float(value)
        self._of_class = {name for name in self._own if name not in vars(env)}
        lowest = {name: 0.0 if name.partition(".")[0] in _MAY_VANISH else LOWEST for name in attributes}
        super().__init__(ParameterSpace([Parameter(name, low, HIGHEST) for name, low in lowest.items()]))

    def write(self, values: Floats, changed: NDArray[np.bool_]) -> None:
        for (attribute, own), value in zip(self._own.items(), values.tolist(), strict=True):
            if value == 1 and attribute in self._of_class:
                vars(self._env).pop(attribute, None)
            else:
                setattr(self._env, attribute, own if value == 1 else own * value)
        if isinstance(self._env, CartPoleEnv):  # which it computes of them once, when it is made
            env: Any = self._env
            env.total_mass = env.masspole + env.masscart
            env.polemass_length = env.masspole * env.length


def attribute_parameters(env: Any) -> AttributeParameters | None:
    """The parameters of an environment without wrappers; None where its class lists none."""
    declared = getattr(type(env), "physical_parameters", None)
    if declared is not None:
        if not isinstance(declared, Mapping):
            raise SpaceError(
                f"{type(env).__name__}.physical_parameters must be a dictionary from names to attributes, as in "
                f"{{'mass.pole': 'masspole'}}, got {declared!r:.80}"
            )
        return AttributeParameters(env, declared)
    found = next((attributes for kind, attributes in _KNOWN.items() if isinstance(env, kind)), None)
    return None if found is None else AttributeParameters(env, found)
