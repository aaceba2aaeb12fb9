"""train_one: Robust Sarsa's critic (Zhang et al. 2020, section 3.5 and appendix D) of a victim's own policy.

As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs of
32 minibatches; two tanh layers of 64; no target network. Choices of ours: a deterministic victim explores by Gaussian
noise (SA-DDPG's code: an Ornstein-Uhlenbeck process of the same size), and observations are normalised as the victim
does it, else by mean and deviation of the first round.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.errors import ThreatError, ValueRangeError
from adv_wrappers.core.files import holding
from adv_wrappers.evaluation.environments import Make, builder
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.training.course import ROUND, Course, resume
from adv_wrappers.training.sarsa import Rule
from adv_wrappers.training.transitions import exploring
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

_PLACE = ("victim", "env", "env_kwargs", "make", "out", "progress")  # what is no setting of a training
_CHOICES = {"robust": ("interval", "sample", None), "box": ("both", "action"), "successor": ("next", "shuffled")}
_NUMBERS = {"eps": math.inf, "weight": math.inf, "lr": math.inf, "gamma": 1.0, "noise": math.inf}  # and their tops
_LARGEST = 2**60
_WHOLE = {"steps": 2, "seed": 0, "num_envs": 1}  # and the least of each


@holding
def train_one(
    victim: Victim | str, env: str | Make, *, steps: int = 30 * ROUND, robust: str | None = "interval",
    eps: float = 0.02, weight: float = 0.1, box: str = "both", successor: str = "next", gamma: float = 0.99,
    lr: float = 3e-4, noise: float = 0.2, hidden: Sequence[int] = (64, 64), seed: int = 0, num_envs: int = 8,
    env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None, out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Critic:  # fmt: skip
    """Train one critic of a victim's policy for :class:`adv_wrappers.RobustSarsa`, of one setting.

    Args:
        victim: with continuous actions and observations of one dimension. One with recurrent state is played with it,
            and its critic sees the observation alone.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        steps: of all environments together, in rounds of 2048.
        robust: what keeps the critic smooth: ``"interval"`` bounds, the largest change at four random corners of the
            box (``"sample"``), or None.
        eps: radius of the box at the end, in normalised observations and in native actions; ``weight`` of the term.
        box: ``"both"`` for a box around observation and action (as released), ``"action"`` as in the paper.
        successor: ``"next"`` for Sarsa's own, or ``"shuffled"`` for the released code's, which shuffles a batch before
            it takes the next entry as successor: its target is a random state's value.
        gamma, lr: discount, and learning rate before it falls to zero in the last third.
        noise: of a deterministic victim, standard deviation as a fraction of half the range of its actions.
        hidden: widths of the layers.
        seed: of everything that is drawn.
        num_envs: environments side by side.
        out: a folder for the result. Every round writes the critic so far, and what it takes to go on: the same call
            goes on after an interruption, with new episodes, and reads the result if it is finished.
        progress: called as ``progress(steps done, steps)``.

    Raises:
        VictimError: for discrete actions, observations of more dimensions, and an environment that does not fit.
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training; with
            ``out``, for ``env_kwargs`` that are not JSON.
        CardError: for a folder that holds something else, or files that cannot be read.

    >>> from adv_wrappers.training.critic import train_one
    >>> critic = train_one("zoo:hopper-ppo", "Hopper-v5", steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    setting = {
        "steps": steps, "robust": robust, "eps": eps, "weight": weight, "box": box, "successor": successor,
        "gamma": gamma, "lr": lr, "noise": noise, "hidden": hidden, "seed": seed, "num_envs": num_envs,
    }  # fmt: skip
    return Training(victim, env, setting, env_kwargs, make, out).run(progress)


class Training:
    """One training whose arguments are in order: nothing is spent, and no environment made, before :meth:`run`.

    Args:
        victim, env, env_kwargs, make, out: as for :func:`train_one`.
        setting: what else it takes; its defaults stand in for the rest.

    Raises:
        AdvWrappersError: as :func:`train_one` does; :class:`ThreatError` for a setting that it does not take.
    """

    def __init__(
        self, victim: Victim | str, env: str | Make, setting: Mapping[str, Any],
        env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None, out: str | Path | None = None,
    ) -> None:  # fmt: skip
        how = checked(setting)
        self.rule = Rule(**{field.name: how[field.name] for field in dataclasses.fields(Rule)})
        self.victim = load_victim(victim)
        self.player = exploring(self.victim, how["noise"])
        self.one, name, kwargs = builder(env, self.victim, env_kwargs, make)
        self.card: dict[str, Any] = {
            "name": "robust-sarsa critic", "environment": {"id": name, "kwargs": kwargs},
            "victim": {"ref": self.victim.ref, "sha256": self.victim.fingerprint()},
            "training": {**how, "noise": how["noise"] if self.victim.kind == "mean" else None},
            "versions": versions(), "git": revision(),
        }  # fmt: skip
        self.steps: int = how["steps"]
        self.folder = None if out is None else Path(out)
        self.kept = None if self.folder is None else resume(self.folder, self.card)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Critic:
        """Play and learn what is left."""
        if isinstance(self.kept, Critic):
            return self.kept
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # small networks are slower on several
        try:
            run = Course(self.victim, self.player, self.one, self.card, self.rule, self.kept)
            try:
                if self.folder is not None:
                    _make_folder(self.folder)
                while run.steps < self.steps:
                    run.round()
                    if self.folder is not None:
                        run.write(self.folder, run.steps >= self.steps)
                    if progress is not None:
                        progress(min(run.steps, self.steps), self.steps)
            finally:
                run.collector.venv.close()
        finally:
            torch.set_num_threads(threads)
        return run.critic() if self.folder is None else Critic(str(self.folder))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueRangeError(f"cannot write to the folder {folder}: {error}") from error


def checked(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting as JSON holds it, with the defaults of :func:`train_one` for what it leaves open.

    Raises:
        ThreatError: for what :func:`train_one` does not take, or the caller decides, such as ``out``.
        ValueRangeError: for values out of range.
    """
    signature = inspect.signature(train_one).parameters
    known = {name: parameter.default for name, parameter in signature.items() if name not in _PLACE}
    unknown = sorted(map(str, {*setting} - {*known})) if isinstance(setting, Mapping) else [repr(setting)]
    if unknown:
        raise ThreatError(f"a critic's setting takes {', '.join(sorted(known))}, not {', '.join(unknown)}")
    how = {**known, **setting}
    for name, allowed in _CHOICES.items():
        if how[name] not in allowed:
            raise ValueRangeError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {how[name]!r}")
    for name, top in _NUMBERS.items():
        value = how[name]
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if not 0 <= number <= top or not math.isfinite(number):
            raise ValueRangeError(f"{name} must be a finite number from 0 to {top}, got {value!r}")
        how[name] = number
    for name, least in _WHOLE.items():
        how[name] = whole(name, how[name], least)
    if isinstance(how["hidden"], str) or not isinstance(how["hidden"], Iterable):
        raise ValueRangeError(f"hidden must hold integers of at least 1, got {how['hidden']!r}")
    how["hidden"] = [whole("hidden", size, 1, "hold integers") for size in how["hidden"]]
    return how


def whole(name: str, value: Any, least: int, be: str = "be an integer") -> int:
    """``value`` as an int; :class:`ValueRangeError` unless it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueRangeError(f"{name} must {be} of at least {least}, got {value!r:.80}")
    if value > _LARGEST:
        raise ValueRangeError(f"{name} must be at most {_LARGEST}, got {value!r:.80}")
    return int(value)
