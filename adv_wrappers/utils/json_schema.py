"""JSON schemas (draft 2020-12) of annotated types: what a file holds is written down once, where it is defined."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from adv_wrappers.utils.validation import Limits

JsonSchema = dict[str, Any]

_PLAIN = {str: "string", float: "number", int: "integer", bool: "boolean"}


def json_schema(kind: Any) -> JsonSchema:
    """The JSON schema of an annotation: of a dataclass, a ``TypedDict``, a container, a choice, or a plain value.

    Args:
        kind: the annotation. In ``Annotated``, a text is a description, :class:`Limits` are those of a number, and a
            dictionary holds further keywords of the schema.

    >>> json_schema(Annotated[list[Share] | None, "of every episode"])["items"]
    {'type': 'number', 'minimum': 0.0, 'maximum': 1.0}
    """
    origin, args = get_origin(kind), get_args(kind)
    # what an annotation adds: limits, a description, further keywords
    if origin is Annotated:
        keywords: JsonSchema = {}
        for one in kind.__metadata__:
            if isinstance(one, Limits):
                ends = {"minimum": one.minimum, "maximum": one.maximum}
                keywords |= {name: end for name, end in ends.items() if end is not None}
            else:
                keywords |= {"description": one} if isinstance(one, str) else one
        return {**keywords, **json_schema(args[0]), **keywords}
    # unions with None, choices, lists and dictionaries
    if origin in (Union, UnionType):
        found = json_schema(next(one for one in args if one is not NoneType))
        return {**found, "type": [found["type"], "null"]}
    if origin is Literal:
        return {"enum": [*args]}
    if origin in (list, tuple):
        return {"type": "array", "items": json_schema(args[0])}
    if origin is dict:
        return {"type": "object", **({} if args[1] is Any else {"additionalProperties": json_schema(args[1])})}
    # an object with its fields, and no others
    if is_dataclass(kind) or is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        names = [one.name for one in fields(kind)] if is_dataclass(kind) else [*hints]
        return {
            "type": "object",
            "properties": {name: json_schema(hints[name]) for name in names},
            "required": [name for name in names if name not in getattr(kind, "__optional_keys__", ())],
            "additionalProperties": False,
        }
    return {} if kind is Any else {"type": _PLAIN[kind]}
