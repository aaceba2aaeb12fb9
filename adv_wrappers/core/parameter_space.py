"""The physical parameters of an environment, as a layer on its dynamics sees them: names, ranges and own values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from adv_wrappers.core.spaces import At
from adv_wrappers.core.types import Floats
from adv_wrappers.errors import SpaceError


@dataclass(frozen=True)
class Parameter:
    """One physical parameter, or the three components of a vector.

    Attributes:
        name: what it is, and a dot and of what: ``"mass.torso"``; ``"gravity"`` is of the whole environment.
        low, high: the values that the simulator holds.
        nominal: the environment's own value: 1 of a factor, 0 of a force or wind.
        size: how many numbers it has.
    """

    name: str
    low: float
    high: float
    nominal: float = 1.0
    size: int = 1


class ParameterSpace:
    """The physical parameters of an environment, side by side.

    Args:
        parameters: the parameters; their names are unique.

    Attributes:
        parameters: as they were given.
        low, high, nominal: of all of them, float64 ``[n]``.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters, start = tuple(parameters), 0
        self._places: dict[str, range] = {}
        for one in parameters:
            self._places[one.name] = range(start, start + one.size)
            start += one.size
        repeats = [one.size for one in parameters]
        self.low: Floats = np.repeat([float(one.low) for one in parameters], repeats)
        self.high: Floats = np.repeat([float(one.high) for one in parameters], repeats)
        self.nominal: Floats = np.repeat([float(one.nominal) for one in parameters], repeats)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ParameterSpace) and self.parameters == other.parameters

    __hash__ = None  # type: ignore[assignment]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parameters."""
        return tuple(self._places)

    def places(self, at: At) -> NDArray[np.intp]:
        """Where parameters stand, int ``[k]``.

        Args:
            at: names, or what is before their dots: ``"mass"`` is that of every body.

        Raises:
            SpaceError: for a name that there is not, one that is named twice, and None.
        """
        groups = dict.fromkeys(name.partition(".")[0] for name in self._places)
        known = "; ".join(self._listed(group) for group in groups)
        if at is None:
            raise SpaceError(f"a threat to the dynamics says which parameters it changes, at='mass': it has {known}")
        # a name, or all that share what is before the dot
        chosen: list[int] = []
        for name in at if isinstance(at, tuple) else (at,):
            found = [one for one in self._places if one == name or one.partition(".")[0] == name]
            if not found:
                raise SpaceError(f"at={at!r} must name parameters of the dynamics: it has {known}")
            chosen += [place for one in found for place in self._places[one]]
        if len({*chosen}) < len(chosen):
            raise SpaceError(f"at={at!r} names a parameter twice")
        return np.array(chosen, np.intp)

    def _listed(self, group: str) -> str:
        parts = [name.partition(".")[2] for name in self._places if name.partition(".")[0] == group]
        return group if parts == [""] else f"{group} ({', '.join(f'{group}.{part}' for part in parts)})"

    def box(self, places: NDArray[np.intp]) -> spaces.Box:
        """The space of some parameters."""
        return spaces.Box(self.low[places], self.high[places], dtype=np.float64)

    def name_of(self, place: int) -> str:
        """The name of one number, with its index where the parameter has several."""
        name, places = next((name, places) for name, places in self._places.items() if place in places)
        return name if len(places) == 1 else f"{name}[{place - places.start}]"

    def text_of(self, values: Floats) -> str:
        """The parameters that are not the environment's own, as ``mass.torso=1.5``."""
        changed = np.flatnonzero(values != self.nominal).tolist()
        return ", ".join(f"{self.name_of(place)}={values[place]:.6g}" for place in changed)
