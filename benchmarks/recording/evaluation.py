"""Rows of the agents of the zoo under threats."""

from __future__ import annotations

import functools
import json
from typing import Any

import adv_wrappers as adv
from benchmarks.recording.commands import invoke
from benchmarks.recording.values import Items, Value, data_text, digest, exact, untimed

AGENTS = {  # threats by kind of agent, with a radius for each environment; episodes, steps of an episode
    "vector": (
        "none", "noise:eps={eps}", "noise:eps={eps},kind=sign", "fgsm:eps={eps}", "pgd:eps={eps},norm=l2",
        "max-diff:eps={eps},when=every(3)", "momentum:eps={eps}", "min-q:eps={eps}", "max-worst:eps={eps}",
        "apgd:eps={eps},restarts=1,steps=5", "square:eps={eps},queries=8",
        "carlini-wagner:eps={eps},searches=2,steps=5",
        "sensor-bias:eps={eps}", "quantization:eps={eps}", "observation-delay:steps=2", "action-flip:p=0.2",
        "worst-action:p=0.2", "action-noise:eps=0.1", "noise:eps={eps},when=bernoulli(0.5) + action-delay:steps=1",
    ),
    "image": (
        "none", "noise:eps=4", "fgsm:eps=1", "pgd:eps=1,restarts=1,steps=3", "max-diff:eps=2,steps=3",
        "rotation:degrees=3", "jpeg:quality=20", "brightness:alpha=1.2,beta=20", "median-blur", "shift:dx=2,dy=1",
        "perspective", "action-flip:p=0.3",
    ),
}  # fmt: skip
RADII = {
    "CartPole-v1": "0.2", "MountainCar-v0": "0.01", "Hopper-v5": "0.075,scale=victim",
    "Walker2d-v5": "0.05,scale=victim",
}  # fmt: skip


def evaluation() -> Items:
    """Every agent of the zoo under a dozen threats: 5 episodes, cut to 100 steps; 2 of 20 steps for images."""
    found: Items = {}
    for victim in json.loads(invoke("victims --json").stdout):
        kind = "image" if "NoFrameskip" in victim["environment"] else "vector"
        for text in AGENTS[kind]:
            text = text.format(eps=RADII.get(victim["environment"], "0.05"))
            key = f"{victim['victim']} {text}"
            found[key] = functools.partial(evaluated, victim["victim"], victim["environment"], text, kind)
    return found


def evaluated(victim: str, env: str, text: str, kind: str) -> Value:
    """The row of a threat."""
    episodes, steps = (5, 100) if kind == "vector" else (2, 20)
    threats = [] if text == "none" else [text.split(" + ")]
    how: Any = {"env_kwargs": {"max_episode_steps": steps}, "distances": ("ssim", "psnr") if kind == "image" else None}
    try:
        report = adv.evaluate(victim, env, threats, episodes, 3, **how)
    except adv.AdvWrappersError as error:
        return f"{type(error).__name__}: {error}"
    row = dict(report.threats[-1])
    row["returns"] = [exact(one) for one in row["returns"]]
    return untimed({**row, "layers": digest(data_text(row["layers"]))})
