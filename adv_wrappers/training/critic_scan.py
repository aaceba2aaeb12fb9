"""train_critic and scan_critics: Robust Sarsa as papers report it, the strongest of many critics, and of how many.

No setting of a critic is the strongest on all victims, and trainings of one setting differ: on Ant a single default
critic left 726 where the scan of its authors left 264. So the default is a small scan.
"""

from __future__ import annotations

import io
import json
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
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import Make, spaces_of
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.report import Report, bounds, number
from adv_wrappers.evaluation.statistics import footnotes
from adv_wrappers.training.sarsa import exploring
from adv_wrappers.training.train_critic import UNFINISHED, Training, checked
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.numbers import integer
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
EPS = 0.1  # of the victim's own unit, where a scan is told of no budget
_CHOSEN = {"robust", "eps", "weight", "box", "successor"}  # what a scan varies: whoever gives one of them has chosen
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

    def save(self, folder: str | Path) -> Critic:
        """Write the strongest to a folder of its own, with what it was chosen from; what was saved.

        Raises:
            CardError, ValueRangeError: as :func:`refuse_one` does.
        """
        refuse_one(folder)
        rows = zip(self.settings, self.chosen.threats[1:], strict=True)
        about = {
            "protocol": self.protocol, "threat": self.scored.threats[1]["threat"],
            "critics": [{"setting": dict(setting), "mean_return": row["mean_return"]} for setting, row in rows],
        }  # fmt: skip
        return Critic.of(self.critic.net, {**self.critic.card, "scan": about}).save(folder)

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


@holding
def train_critic(
    victim: Victim | str, env: str | Make, *, within: Budget | None = None, settings: Sequence[Setting] | None = None,
    episodes: int = 20, attack_steps: int = 10, seed: int = 0, env_kwargs: Mapping[str, Any] | None = None,
    make: Make | None = None, out: str | Path | None = None, progress: Callable[[int, int], None] | None = None,
    **training: Any,
) -> Critic:  # fmt: skip
    """Train critics of a victim's policy for :class:`adv_wrappers.RobustSarsa`, and return the strongest.

    By default these are the four of ``adv_wrappers.training.SMALL``, each attacked with under ``within``, the strongest
    chosen by mean return on seeds that no training sees. That takes four trainings of ``steps`` (61,440 each by
    default), five times ``episodes`` episodes to choose, and twice to say on other seeds what the choice is worth.

    One critic alone, without attacks and so without a budget, is trained where ``settings`` holds one, or where
    ``robust``, ``eps``, ``weight``, ``box`` or ``successor`` is given: ``train_critic(victim, env, settings=[{}])``
    takes the defaults of :func:`adv_wrappers.training.train_one`. :func:`scan_critics` returns all critics and reports.

    Args:
        victim: with continuous actions and observations of one dimension.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        within: the budget of the attacks that critics are compared by; None takes a tenth of the victim's own unit,
            ``Linf(0.1, scale="victim")``. The budget that will be attacked with is better.
        settings: dictionaries of what :func:`adv_wrappers.training.train_one` takes; ``GRID`` holds the papers' 30.
        episodes, attack_steps, seed: as for :func:`scan_critics`.
        out: a folder for the strongest critic; under it each critic has a folder of its own, with the reports
            ``chosen`` and ``scored``. An interrupted call goes on.
        progress: called as ``progress(steps done, steps)`` of all trainings together.
        **training: what :func:`adv_wrappers.training.train_one` takes, such as ``steps``, for every critic.

    Returns:
        The critic. ``critic.card["scan"]`` says what it was chosen from, unless it is one alone.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained; :class:`ThreatError` for a victim without a
            unit of its own where no budget is given.

    >>> critic = train_critic("zoo:hopper-ppo", "Hopper-v5", settings=[{"eps": 0.1}], steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    there: dict[str, Any] = {"env_kwargs": env_kwargs, "make": make, "out": out}
    settings = one_of(settings, training)
    check_critics(settings, training)
    if len(settings) == 1:
        setting = {"seed": integer("seed", seed, 0), **training, **settings[0]}
        return Training(victim, env, setting, **there).run(progress)
    victim = load_victim(victim)
    within = budget_of(victim) if within is None else within
    if out is not None:
        refuse_one(out)
    done: dict[str, int] = {text_of(setting): 0 for setting in settings}
    total = sum(checked({**training, **setting})["steps"] for setting in settings)

    def told(what: str, at: int, _: int) -> None:
        if what in done and progress is not None:
            done[what] = at
            progress(sum(done.values()), total)

    scan = scan_critics(
        victim, env, within=within, settings=settings, episodes=episodes, attack_steps=attack_steps, seed=seed,
        progress=told, **there, **training,
    )  # fmt: skip
    return scan.critic if out is None else scan.save(out)


def one_of(settings: Sequence[Setting] | None, training: Setting) -> Sequence[Setting]:
    """The settings of :func:`train_critic`: the given ones, else one that is chosen in ``training``, else four."""
    if settings is not None:
        return [*settings]
    return [{}] if _CHOSEN & {*training} else SMALL


def budget_of(victim: Victim) -> Linf:
    """The budget that critics are compared by where none is given.

    Raises:
        VictimError: for a victim that has no critic of this kind.
        ThreatError: for one without a unit of its own.
    """
    exploring(victim, 1.0)
    if victim.scale is None:
        raise ThreatError(
            "the strongest of several critics is found by attacks, and this victim has no unit of its own to count "
            "their budget in: give within= (--eps), or settings=[{}] (--one) for one critic"
        )
    return Linf(EPS, scale="victim")


def refuse_one(folder: str | Path) -> None:
    """Raise for a folder that the strongest of several critics cannot be written to.

    Raises:
        CardError: for a card that cannot be read.
        ValueRangeError: for the folder of one critic's training, or of something else.
    """
    path = Path(folder) / "card.json"
    if not path.exists() and not (Path(folder) / UNFINISHED).exists():
        return
    try:
        card = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise CardError(f"cannot read {path}: {error}") from error
    if not isinstance(card, dict) or "scan" not in card:
        raise ValueRangeError(f"{folder} holds something else than the strongest of several critics: give another out=")


@holding
def scan_critics(
    victim: Victim | str, env: str | Make, *, within: Budget, settings: Sequence[Setting] = SMALL, episodes: int = 20,
    attack_steps: int = 10, seed: int = 0, env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None,
    out: str | Path | None = None, progress: Callable[[str, int, int], None] | None = None, **training: Any,
) -> Scan:  # fmt: skip
    """Train a critic a setting, attack with each, and find the strongest.

    Args:
        victim, env, env_kwargs, make: as for :func:`train_critic`.
        within: the budget of the attack, such as ``Linf(0.075, scale="victim")``.
        settings: dictionaries of what :func:`adv_wrappers.training.train_one` takes; ``GRID`` holds the papers' 30,
            ``SMALL`` four.
        episodes: that each critic is judged on, and again as many that the strongest is scored on.
        attack_steps: of the attack.
        seed: of training, choosing and scoring, which share no episode.
        out: a folder with one a critic, and the reports ``chosen`` and ``scored``; an interrupted scan goes on.
        progress: called as ``progress(setting or threat, done, of how many)``.
        **training: what :func:`adv_wrappers.training.train_one` takes, such as ``steps``, for every critic; a setting's
            own come first.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work, those of every
            setting and of the attack included: :class:`ValueRangeError` for no settings, or two that are the same,
            :class:`ThreatError` for what is no setting of a critic, :class:`BudgetError` for the budget.
    """
    settings = [*settings]
    check_critics(settings, training)
    episodes, seed = integer("episodes", episodes, 1), integer("seed", seed, 0)
    how = RobustSarsa(critic=lambda obs, act: act, steps=integer("attack_steps", attack_steps, 1))
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
        ThreatError: for what is no setting of a critic.
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
