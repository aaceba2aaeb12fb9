"""A function that makes environments, by its name; the command line reads it before anything slow is imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adv_wrappers.errors import AdvWrappersError, SpaceError
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.object_by_name import object_by_name

if TYPE_CHECKING:
    from adv_wrappers.wrappers.layer import AnyEnv


@dataclass(frozen=True)
class MakeFunction:
    """The function that ``module:function`` names, found in the current directory too.

    Workers and copies find it again by its name.

    Args:
        text: the name of the module, a colon, and the name in it, which may have dots.

    Raises:
        SpaceError: for a text of another form, a module that is not there or fails, a name that it does not have, and
            something that cannot be called.
    """

    text: str
    function: Callable[..., AnyEnv] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found = object_by_name(self.text, SpaceError)
        if not callable(found):
            raise SpaceError(f"expected a function, {self.text!r} is {found!r:.80}")
        set_fields(self, function=found)

    def __call__(self, id: str, **arguments: object) -> AnyEnv:
        """The environment that the function makes; :class:`SpaceError` for whatever it raises."""
        try:
            return self.function(id, **arguments)
        except AdvWrappersError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SpaceError(f"{self.text} cannot make {id!r} with {arguments}: {reason}") from error

    def __reduce__(self) -> tuple[type[MakeFunction], tuple[str]]:
        return MakeFunction, (self.text,)
