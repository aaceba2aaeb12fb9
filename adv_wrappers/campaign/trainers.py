"""The attacks of a suite, made: presets are filled in, critics scanned, adversaries trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium import spaces

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.campaign.entries import LEARNED, READY, checkpoints, ready, trainer
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.environments import MakeEnv
from adv_wrappers.training.pa_ad_forms import FORMS
from adv_wrappers.training.train_critic import scan_critics
from adv_wrappers.victims.victim import Victim

Progress = Callable[[str, int, int], None]


class Makers:
    """Makes attacks on one victim, and remembers how each came about.

    Args:
        victim, env: who is attacked, and where.
        budget: of every attack.
        seed: of all trainings.
        out: a folder, in which every training has one of its own; or None.
        progress: called as ``progress(what, done, of how many)``.
        **there: ``env_kwargs`` and ``make``.

    Attributes:
        protocol: by attack, of how many runs, settings and checkpoints it is the best.
        warnings: signs that an attack could be stronger.
    """

    def __init__(
        self, victim: Victim, env: str | MakeEnv, budget: Budget, seed: int, out: Path | None,
        progress: Progress | None, **there: Any,
    ) -> None:  # fmt: skip
        self.victim, self.env, self.budget, self.seed, self.out = victim, env, budget, seed, out
        self.progress, self.there = progress, there
        self.protocol: dict[str, str] = {}
        self.warnings: list[str] = []

    def make(
        self, name: str, steps: int, critics: Sequence[Mapping[str, Any]], training: Mapping[str, Any]
    ) -> ThreatModel:
        """The attack of a name; what is trained takes minutes to hours."""
        if name in READY:
            self.protocol[name] = "one setting, one run"
            return ready(name, self.budget)
        how = self._learned(name, steps, training) if name in LEARNED else self._sarsa(name, critics)
        return ThreatModel("observation", how, self.budget)

    def _folder(self, name: str) -> Path | None:
        return None if self.out is None else self.out / name

    def _sarsa(self, name: str, critics: Sequence[Mapping[str, Any]]) -> RobustSarsa:
        if self.victim.robust_sarsa is not None:
            self.protocol[name] = "one run, through the critic of the victim's card"
            return RobustSarsa(self.victim)
        tell = self.progress

        def told(what: str, done: int, whole: int) -> None:
            if tell is not None:
                tell(f"{name}: {what}", done, whole)

        scan = scan_critics(
            self.victim, self.env, within=self.budget, settings=critics, seed=self.seed, out=self._folder(name),
            progress=told, **self.there,
        )  # fmt: skip
        chosen = f"chosen by mean return over {scan.chosen.episodes} other episodes"
        self.protocol[name] = f"best of {_count(scan.critics, 'critic')}, {chosen}"
        return RobustSarsa(self.victim, critic=scan.critic)

    def _learned(self, name: str, steps: int, training: Mapping[str, Any]) -> Any:
        """One training; of PA-AD against continuous actions the stronger of two, since victims differ in its forms."""
        several = name == "pa-ad" and isinstance(self.victim.action_space, spaces.Box)
        whats = [f"{name} {form}" for form in FORMS] if several else [name]
        left: list[list[float]] = [[] for _ in whats]  # what the checkpoints of each training left
        folder, tell = self._folder(name), self.progress

        def told(done: int, mean: float) -> None:
            i = min(max(done - 1, 0) // steps, len(whats) - 1)  # the second training's steps come after the first's
            left[i].append(mean)
            if tell is not None:
                tell(whats[i], min(done - i * steps, steps), steps)

        if tell is not None:
            for what in whats:
                tell(what, 0, steps)
        learned = trainer()(
            name, self.env, self.victim, within=self.budget, form="both" if several else None, steps=steps,
            seed=self.seed, out=folder, progress=told, **self.there, **training,
        )  # fmt: skip
        if folder is not None:  # a training that went on was told only of what was missing
            places = [folder / form for form in FORMS] if several else [folder]
            left = [[float(row["mean_return"]) for row in checkpoints(place)] for place in places]
        if tell is not None:
            for what in whats:
                tell(what, steps, steps)
        others = training.get("episodes", inspect.signature(trainer()).parameters["episodes"].default)
        chosen = f"chosen by mean return over {others} other episodes"
        what, each = ("two trainings (direction and target)", " each") if several else ("one training", "")
        count = _count(left[0], "checkpoint")
        self.protocol[name] = f"{what} of {steps} steps{each}, best of {count}{each}, {chosen}"
        best = min(left, key=min)
        if len(best) > 1 and best[-1] < min(best[:-1]):
            self.warnings.append(f"the best of {len(best)} checkpoints of {name} is its last: train it longer")
        return learned


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
