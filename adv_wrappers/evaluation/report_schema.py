"""The JSON schema of ``report.json``, by which programs in any language can check what they read (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JsonSchema = dict[str, Any]


def _described(about: str, **schema: Any) -> JsonSchema:
    return {"description": about, **schema}


def _number(about: str, **limits: float) -> JsonSchema:
    return _described(about, type="number", **limits)


def _number_or_null(about: str, **limits: float) -> JsonSchema:
    return _described(about, type=["number", "null"], **limits)


def _count(about: str, least: int = 0) -> JsonSchema:
    return _described(about, type="integer", minimum=least)


def _list(of: JsonSchema, about: str) -> JsonSchema:
    return _described(about, type="array", items=of)


def _list_or_null(of: JsonSchema, about: str) -> JsonSchema:
    return _described(about, type=["array", "null"], items=of)


def _object(properties: Mapping[str, JsonSchema], about: str, *, required: bool = True, more: bool) -> JsonSchema:
    needed = {"required": [*properties]} if required else {}
    return _described(about, type="object", properties=dict(properties), **needed, additionalProperties=more)


_ANY_NUMBER = {"type": "number"}
_SHARE = {"minimum": 0.0, "maximum": 1.0}
_ROW: dict[str, JsonSchema] = {
    "threat": _described("the threat as text, none for the run without one", type="string"),
    "mean_return": _number("mean return over the episodes"),
    "low": _number("lower end of its 95% interval"),
    "high": _number("upper end of its 95% interval"),
    "caveat": _described("why low and high are not a 95% interval", type=["string", "null"]),
    "std": _number("standard deviation of the sample of returns", minimum=0.0),
    "median": _number("of the returns"),
    "min": _number("of the returns"),
    "max": _number("of the returns"),
    "regret": _number("clean mean return minus this one"),
    "impact": _number_or_null("regret as a share of what can be lost, counted from minimum"),
    "general_impact": _number_or_null("the same, counted from the lowest return that the rules of the game allow"),
    "attacked_fraction": _number("share of all steps at which any layer attacked", **_SHARE),
    "e_adv": _number("mean over the episodes of the attacked share of an episode", **_SHARE),
    "e_adv_std": _number("its standard deviation over the episodes", minimum=0.0),
    "action_change": _number_or_null("share of the attacked steps at which the action was another", **_SHARE),
    "l2": _number_or_null("mean Euclidean distance of the attacked steps", minimum=0.0),
    "linf": _number_or_null("mean largest distance of the attacked steps", minimum=0.0),
    "distances": _described(
        "mean of every other distance, by its name", type="object", additionalProperties={"type": ["number", "null"]}
    ),
    "distance_images": _count("observations over which distances are means"),
    "ms_per_step": _number("milliseconds of wall clock for a step of one environment", minimum=0.0),
    "episodes": _count("number of episodes", 1),
    "mean_length": _number("mean number of steps of an episode", minimum=0.0),
    "transfer": _described("whether the attack is aimed at another victim", type="boolean"),
    "layers": _list(
        {"type": ["object", "null"]}, "the threats, innermost first; null where one has no JSON form; none if clean"
    ),
    "returns": _list(_ANY_NUMBER, "of every episode"),
    "lengths": _list({"type": "integer", "minimum": 0}, "steps of every episode"),
    "attacked_fractions": _list({"type": "number", **_SHARE}, "attacked share of every episode"),
    "loss": _number_or_null("mean over the episodes of the total loss of states"),
    "loss_std": _number_or_null("its standard deviation over the episodes", minimum=0.0),
    "losses": _list_or_null(_ANY_NUMBER, "of every episode"),
    "best_of": _count("draws of every episode, of which the best counts", 1),
    "draws": {
        "description": "returns and losses of every draw (outer) of every episode (inner); null for one draw",
        "type": ["object", "null"],
        "properties": {
            "returns": _list({"type": "array", "items": _ANY_NUMBER}, "by draw"),
            "losses": _list_or_null({"type": "array", "items": _ANY_NUMBER}, "by draw"),
        },
        "required": ["returns", "losses"],
        "additionalProperties": False,
    },
    "checks": _object(
        {
            **{name: {"type": "integer", "minimum": 0} for name in ("attacked", "unchanged")},
            **{name: {"type": "integer", "minimum": 0} for name in ("gradients", "zero_gradients")},
            **{name: {"type": "boolean"} for name in ("integers", "alike")},
            **{name: {"type": "integer", "minimum": 0} for name in ("asked_twice", "unequal_answers")},
        },
        "counts of observations, which warnings are made of; and unrepeated and outside, sentences of the environment",
        more=True,
    ),
}
_REPORT: dict[str, JsonSchema] = {
    "versions": _described("of Python and of packages", type="object", additionalProperties={"type": "string"}),
    "seed": _count("the seed that was given"),
    "episode_seeds": _list({"type": "integer", "minimum": 0}, "drawn from it, one an episode"),
    "git": _described("revision of the package's sources", type=["string", "null"]),
    "device": _described("on which the victim computed", type="string"),
    "victim": _object(
        {
            "ref": _described("such as zoo:NAME", type=["string", "null"]),
            "fingerprint": _described("sha256 of its weights", type="string"),
            "select": _described("how it acts on its distribution", enum=["mode", "sample"]),
        },
        "the agent",
        more=True,
    ),
    "env": {
        "description": "the environment",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "kwargs": {"type": "object"},
            "make": _described("the function that made it, where that is not gymnasium.make", type="string"),
        },
        "required": ["id", "kwargs"],
        "additionalProperties": False,
    },
    "episodes": _count("of every threat", 1),
    "num_envs": _count("environments that were stepped at once", 1),
    "warnings": _list({"type": "string"}, "signs that a number should not be trusted"),
    "threats": _described(
        "one row a threat, the clean run first",
        type="array",
        items=_object(_ROW, "what one run measured", more=True),
    ),
    "minimum": _object(
        {
            "kind": _described("what it is", enum=["fixed", "argmin-Q agent", "least likely action", "unknown"]),
            "value": {"type": ["number", "null"]},
        },
        "the return that impact counts from",
        more=False,
    ),
    "quantize": _described("whether integer observations stayed integers", type=["boolean", "null"]),
    "measure": _described("the target whose loss was measured, as text", type=["string", "null"]),
    "by": _described("what the best of several draws was chosen by", enum=["return", "loss"]),
}
REPORT_SCHEMA: JsonSchema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "report.json of adv_wrappers",
    **_object(_REPORT, "what adv_wrappers.evaluate found", more=False),
}
