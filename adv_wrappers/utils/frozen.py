"""Frozen dataclasses that normalise what they were given."""

from __future__ import annotations


def set_fields(value: object, /, **fields: object) -> None:
    """Put fields into a frozen dataclass that is being made, in the place of what it was given.

    For ``__post_init__`` alone: a list becomes a tuple, a reference the victim that it names. From then on the value is
    frozen. What follows from its fields is a property.

    Args:
        value: the dataclass.
        **fields: its fields by name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     place: tuple[int, ...]
    ...     def __post_init__(self):
    ...         set_fields(self, place=tuple(self.place))
    >>> Point([1, 2])
    Point(place=(1, 2))
    """
    for name, field in fields.items():
        object.__setattr__(value, name, field)  # what dataclasses do in their own __init__
