"""Making the attacks of a suite: presets get the budget, critics are scanned, adversaries are trained."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymnasium import spaces

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.campaign.select_attacks import LEARNED, MODEL, import_train_adversary, model_based
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.environments import MakeEnv
from adv_wrappers.evaluation.untrained_attacks import UNTRAINED, untrained_threat
from adv_wrappers.training.pa_ad_forms import FORMS
from adv_wrappers.training.train_critic import scan_critics
from adv_wrappers.training.training_folder import read_record
from adv_wrappers.victims.dynamics import Dynamics
from adv_wrappers.victims.victim import Victim

SuiteProgress = Callable[[str, int, int], None]


class AttackTrainer:
    """Makes the attacks on one victim, and records how each came about.

    Args:
        victim: the victim under attack.
        env: the environment's id, or a function that makes one.
        budget: the budget of every attack.
        seed: seeds all trainings.
        out: a folder, in which every training gets a folder of its own; or None.
        progress: called as ``progress(what, done, total)``.
        dynamics: the model that ``model-based`` plans through, or None.
        **env_arguments: ``env_kwargs`` and ``make``.

    Attributes:
        protocol: by attack, the number of runs, settings and checkpoints that it is the best of.
        warnings: signs that an attack could be stronger.
    """

    def __init__(
        self, victim: Victim, env: str | MakeEnv, budget: Budget, seed: int, out: Path | None,
        progress: SuiteProgress | None, dynamics: Dynamics | None = None, **env_arguments: Any,
    ) -> None:  # fmt: skip
        self.victim, self.env, self.budget, self.seed, self.out = victim, env, budget, seed, out
        self.progress, self.env_arguments, self.dynamics = progress, env_arguments, dynamics
        self.protocol: dict[str, str] = {}
        self.warnings: list[str] = []

    def make(
        self, name: str, steps: int, critics: Sequence[Mapping[str, object]], training: Mapping[str, object]
    ) -> ThreatModel:
        """The attack with this name; trained ones take minutes to hours."""
        if name in UNTRAINED:
            self.protocol[name] = "one setting, one run"
            return untrained_threat(name, self.budget)
        if name == MODEL:
            assert self.dynamics is not None
            self.protocol[name] = "one setting, one run, through the model that was given"
            return ThreatModel("observation", model_based(self.victim, self.dynamics), self.budget)
        how = self._learned(name, steps, training) if name in LEARNED else self._sarsa(name, critics)
        return ThreatModel("observation", how, self.budget)

    def _folder(self, name: str) -> Path | None:
        return None if self.out is None else self.out / name

    def _sarsa(self, name: str, critics: Sequence[Mapping[str, object]]) -> RobustSarsa:
        if self.victim.robust_sarsa is not None:
            self.protocol[name] = "one run, through the critic of the victim's card"
            return RobustSarsa(self.victim)
        progress = self.progress

        def report(what: str, done: int, total: int) -> None:
            if progress is not None:
                progress(f"{name}: {what}", done, total)

        scan = scan_critics(
            self.victim, self.env, within=self.budget, settings=critics, seed=self.seed, out=self._folder(name),
            progress=report, **self.env_arguments,
        )  # fmt: skip
        chosen = f"chosen by mean return over {scan.chosen.episodes} other episodes"
        self.protocol[name] = f"best of {_count(scan.critics, 'critic')}, {chosen}"
        return RobustSarsa(self.victim, critic=scan.critic)

    def _learned(self, name: str, steps: int, training: Mapping[str, object]) -> Learned:
        """One training; of PA-AD against continuous actions the stronger of two, since victims differ in its forms."""
        several = name == "pa-ad" and isinstance(self.victim.action_space, spaces.Box)
        whats = [f"{name} {form}" for form in FORMS] if several else [name]
        returns: list[list[float]] = [[] for _ in whats]  # mean returns at the checkpoints of each training
        folder, progress = self._folder(name), self.progress

        def report(done: int, mean: float) -> None:
            i = min(max(done - 1, 0) // steps, len(whats) - 1)  # the second training's steps come after the first's
            returns[i].append(mean)
            if progress is not None:
                progress(whats[i], min(done - i * steps, steps), steps)

        if progress is not None:
            for what in whats:
                progress(what, 0, steps)
        learned = import_train_adversary()(
            name, self.env, self.victim, within=self.budget, form="both" if several else None, steps=steps,
            seed=self.seed, out=folder, progress=report, **self.env_arguments, **training,
        )  # fmt: skip
        if folder is not None:  # a training that was resumed reports only what was missing
            folders = [folder / form for form in FORMS] if several else [folder]
            returns = [[float(row["mean_return"]) for row in read_record(place)] for place in folders]
        if progress is not None:
            for what in whats:
                progress(what, steps, steps)
        others = training.get("episodes", inspect.signature(import_train_adversary()).parameters["episodes"].default)
        chosen = f"chosen by mean return over {others} other episodes"
        what, each = ("two trainings (direction and target)", " each") if several else ("one training", "")
        count = _count(returns[0], "checkpoint")
        self.protocol[name] = f"{what} of {steps} steps{each}, best of {count}{each}, {chosen}"
        best = min(returns, key=min)
        if len(best) > 1 and best[-1] < min(best[:-1]):
            self.warnings.append(f"the best of {len(best)} checkpoints of {name} is its last: train it longer")
        return learned


def _count(things: Sequence[Any], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
