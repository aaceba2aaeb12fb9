"""Public names, and threats as texts and dictionaries."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
from typing import Any

import gymnasium as gym

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, data_text, digest, inner, raised, unplaced
from tests.laws.checks import Case, cases, fitting


def shown(value: Any) -> str:
    """A default, without the address of an object."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def signature(thing: Any) -> list[str]:
    """The parameters of a function or class, each with its default."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ["none"]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    out, keywords = [], False
    for one in parameters:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            out.append("*")
        keywords = one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        default = "" if one.default is inspect.Parameter.empty else f"={shown(one.default)}"
        out.append(f"{stars.get(one.kind, '')}{one.name}{default}")
    return out


def names() -> Items:
    """Public names with their parameters, registered ids, presets with their arguments, and hints for wrong names."""
    found: Items = {"all": lambda: sorted(adv.__all__), "presets": lambda: list(adv.presets)}
    for name in adv.__all__:
        found[f"adv.{name}"] = lambda name=name: signature(getattr(adv, name))
    for name in adv.presets:
        found[f"preset {name}"] = lambda name=name: preset_arguments(name)
    found["ids"] = lambda: sorted(id for id in gym.registry if id.startswith(("adv/", "adv-daylight/")))
    for name in ("Nois", "beam_search", "max_diff", "nonsense"):
        found[f"no adv.{name}"] = lambda name=name: raised(lambda: getattr(adv, name))
    return found


def preset_arguments(name: str) -> Value:
    """What a preset is, and every argument that its attack takes with its default."""
    preset = adv.presets[name]
    fields = {field.name: shown(field.default) for field in dataclasses.fields(preset.kind)}
    return {"on": preset.on, "class": preset.kind.__name__, "arguments": {**fields, **preset_defaults(preset)}}


def preset_defaults(preset: Any) -> dict[str, str]:
    """The arguments that a preset fills in."""
    given = getattr(preset, "arguments", None) or getattr(preset, "kwargs", None) or {}
    return {key: shown(value) for key, value in dict(given).items()}


def threats() -> Items:
    """Threats as texts and dictionaries, there and back, and what is said of texts that are none."""

    def both(case: Case, budget: str) -> Value:
        threat, victim = case.threat(budget), case.rig.victim()
        data = json.loads(json.dumps(threat.to_dict()))
        again = adv.ThreatModel.from_dict(data, victims={victim.fingerprint(): victim})
        text = unplaced(inner("text_of")(threat, victim))
        return {"text": text, "same": again == threat, "dictionary": digest(data_text(data))}

    def parsed(text: str) -> Value:
        threat = inner("parse_threat")(text)
        return {"text": inner("text_of")(threat), "dictionary": data_text(threat.to_dict())}

    found: Items = {}
    for case in cases(rigs=3):
        for budget in fitting(case):
            found[f"{case} {budget}"] = functools.partial(both, case, budget)
    for text in TEXTS:
        found[f"text {text}"] = functools.partial(parsed, text)
    for text in WRONG_TEXTS:
        found[f"wrong {text}"] = lambda text=text: raised(lambda: inner("parse_threat")(text))
    return found


TEXTS = (
    "noise:eps=0.1", "noise:eps=0.1,kind=sign", "pgd:eps=0.3,steps=3,restarts=2", "max-diff:eps=0.075,scale=victim",
    "pgd:eps=0.1,norm=l2", "noise:eps=3,norm=l0", "pgd:eps=0.1,norm=sparse(2)", "noise:eps=0.1,scale=1;0;2;0.5",
    "fgsm:eps=0.1,when=every(2)", "fgsm:eps=0.1,when=bernoulli(0.1)&atmost(7)", "min-best:eps=0.1,at=vector",
    'fgsm:eps=0.1,when="~window(1, 4)|bernoulli(0.5)"', "fgsm:eps=0.1,p=0.5", "noise:eps=2,newest=true",
    "action-noise:eps=0.1", "action-flip", "worst-action:by=policy", "sensor-bias:eps=0.1", "rotation:degrees=4",
    "brightness", "daylight:game=Pong,transform=shift", "reward-noise:eps=0.5", "dynamics-noise:eps=0.1,at=mass",
    "shift", "fgsm:victim=zoo:cartpole-dqn,eps=0.1", "max-diff:victim=zoo:hopper-ppo,eps=0.075,scale=victim",
)  # fmt: skip
WRONG_TEXTS = (
    "", "nois:eps=0.1", "noise", "noise:eps=-1", "noise:eps=x", "noise:epz=1", "noise:eps=1,eps=2", "noise:eps",
    "pgd:eps=1,norm=l3", "pgd:eps=1,when=sometimes", "pgd:eps=1,when=bernoulli(2)", "pgd:eps=1,steps=0",
    "pgd:eps=1,victim=zoo:nobody", "noise:eps=1,scale=1;;2", "noise:eps=nan", "rotation:eps=1", "saturation",
    "worst-action:by=nonsense", "daylight:game=Chess", "fixed-dynamics", "learned", "noise:eps=1,at=", "noise:'eps=1",
)  # fmt: skip
