"""scan_critics: Robust Sarsa as papers report it, the strongest of many critics, and how many that was."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.errors import ValueRangeError
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.environments import Make, spaces_of
from adv_wrappers.evaluation.episodes import evaluate
from adv_wrappers.evaluation.metrics import footnotes
from adv_wrappers.evaluation.report import Report, bounds, number
from adv_wrappers.training.critic import Training, checked, whole
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

Setting = Mapping[str, Any]

# the 6 x 5 settings of the released scan (its box is around observation and action), of which papers report the minimum
GRID: tuple[Setting, ...] = tuple(
    {"eps": eps, "weight": weight} for eps in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3) for weight in (0.1, 0.3, 1.0, 3.0, 10.0)
)
# The released default with both successors, and two of the paper's boxes. On a vanilla DDPG Hopper single trainings of
# one setting differ widely (mean returns from 670 to 2270 over three seeds): more critics and more steps help.
SMALL: tuple[Setting, ...] = (
    {"eps": 0.02, "weight": 0.1}, {"eps": 0.02, "weight": 0.1, "successor": "shuffled"},
    {"eps": 0.1, "weight": 1.0, "box": "action"}, {"eps": 0.3, "weight": 3.0, "box": "action"},
)  # fmt: skip
_CHOOSE, _SCORE = 1, 2  # added to the seed times three: training, choosing and scoring share no episode


@dataclass(frozen=True)
class Scan:
    """What :func:`scan_critics` found.

    Attributes:
        settings, critics: what was trained, in order; ``best`` is the index of the strongest.
        chosen: the report of all of them, on the episodes that the strongest was chosen on: first the clean run, then
            one row a setting.
        scored: the report of the strongest alone, on episodes of their own: its mean is not the luckiest of many.
    """

    settings: tuple[Setting, ...]
    critics: tuple[Critic, ...]
    best: int
    chosen: Report
    scored: Report

    @property
    def critic(self) -> Critic:
        """The strongest."""
        return self.critics[self.best]

    @property
    def protocol(self) -> str:
        """How the figure came about, to stand beside it."""
        chosen, scored = self.chosen.threats[1 + self.best], self.scored.threats[1]
        return (
            f"best of {len(self.critics)} critics by mean return over {self.chosen.episodes} episodes "
            f"({number(chosen['mean_return'])}); {number(scored['mean_return'])} over {self.scored.episodes} others"
        )

    def table(self) -> Table:
        """A rich table, one row a critic, the strongest marked."""
        table = Table(title=self.protocol, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
        table.caption = "\n".join(footnotes(self.chosen.threats)) or None
        table.add_column("critic", overflow="fold")
        for name in ("return", "95% interval", "median"):
            table.add_column(name, justify="right", no_wrap=True)
        names = ["none (clean)", *(text_of(setting) for setting in self.settings)]
        for i, (name, row) in enumerate(zip(names, self.chosen.threats, strict=True)):
            cells = (bounds(row), number(row["median"]))
            style = "bold" if i == self.best + 1 else None
            mark = " *" if i == self.best + 1 else ""
            table.add_row(name + mark, number(row["mean_return"]), *cells, style=style)
        return table

    def __str__(self) -> str:
        """The table as plain text."""
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip()


def text_of(setting: Setting) -> str:
    """A setting in one line."""
    return ",".join(f"{key}={value}" for key, value in setting.items()) or "default"


def scan_critics(
    victim: Victim | str, env: str | Make, *, within: Budget, settings: Sequence[Setting] = SMALL, episodes: int = 20,
    attack_steps: int = 10, seed: int = 0, env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None,
    out: str | Path | None = None, progress: Callable[[str, int, int], None] | None = None, **training: Any,
) -> Scan:  # fmt: skip
    """Train a critic a setting, attack with each, and find the strongest.

    Args:
        victim, env, env_kwargs, make: as for :func:`train_critic`.
        within: the budget of the attack, such as ``Linf(0.075, scale="victim")``.
        settings: dictionaries of what ``train_critic`` takes; ``GRID`` holds the papers' 30, ``SMALL`` four.
        episodes: that each critic is judged on, and again as many that the strongest is scored on.
        attack_steps: of the attack.
        seed: of training, choosing and scoring, which share no episode.
        out: a folder with one a critic, and the reports ``chosen`` and ``scored``; an interrupted scan goes on.
        progress: called as ``progress(setting or threat, done, of how many)``.
        **training: what :func:`train_critic` takes, such as ``steps``, for every critic; a setting's own come first.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work, those of every
            setting and of the attack included: :class:`ValueRangeError` for no settings, or two that are the same,
            :class:`ThreatError` for what :func:`train_critic` does not take, :class:`BudgetError` for the budget.
    """
    settings = [*settings]
    check_critics(settings, training)
    episodes, seed = whole("episodes", episodes, 1), whole("seed", seed, 0)
    how = RobustSarsa(critic=lambda obs, act: act, steps=whole("attack_steps", attack_steps, 1))
    attack, victim = ThreatModel("observation", how, within), load_victim(victim)
    attack = attack.against(victim)
    there: dict[str, Any] = {"env_kwargs": env_kwargs, "make": make}
    trainings = {}  # all are looked at, with what their folders hold, before the first is begun
    for setting in settings:
        folder = None if out is None else Path(out) / _slug(setting)
        every = {"seed": 3 * seed, **training, **setting}
        trainings[text_of(setting)] = Training(victim, env, every, **there, out=folder)
    attack.check(*spaces_of(next(iter(trainings.values())).one, victim))
    tell = {name: None if progress is None else _teller(progress, name) for name in trainings}
    critics = [one.run(tell[name]) for name, one in trainings.items()]
    attacks = [replace(attack, how=RobustSarsa(victim, critic=critic, steps=how.steps)) for critic in critics]

    def judge(threats: list[ThreatModel], part: int, into: str) -> Report:
        return evaluate(
            victim, env, threats, episodes=episodes, seed=3 * seed + part, **there, progress=progress,
            out=None if out is None else Path(out) / into, resume=out is not None,
        )  # fmt: skip

    chosen = judge(attacks, _CHOOSE, "chosen")
    means = [row["mean_return"] for row in chosen.threats[1:]]
    best = means.index(min(means))
    scored = judge([attacks[best]], _SCORE, "scored")
    return Scan(tuple(settings), tuple(critics), best, chosen, scored)


def check_critics(critics: Sequence[Setting], training: Setting | None = None) -> None:
    """Raise unless these are settings for :func:`scan_critics`; ``training`` is what all of them share.

    Raises:
        ThreatError: for what :func:`train_critic` does not take.
        ValueRangeError: for values out of range, no settings, and two that are the same.
    """
    for setting in critics:
        checked({**(training or {}), **setting} if isinstance(setting, Mapping) else setting)
    if not critics or len({_slug(setting) for setting in critics}) != len(critics):
        got = [text_of(setting) for setting in critics]
        raise ValueRangeError(f"expected settings that differ, at least one, got {got}")


def _slug(setting: Setting) -> str:
    return re.sub(r"[^\w.]+", "-", text_of(setting)).strip("-")


def _teller(progress: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, whole: progress(name, done, whole)
