"""train_critic and scan_critics: Robust Sarsa as papers report it, the strongest of many critics, and of how many.

No setting of a critic is the strongest on all victims, and trainings of one setting differ: on Ant a single default
critic left 726 where the scan of its authors left 264. So the default is a small scan.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.errors import Message, ThreatError, ValueRangeError, Words
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.evaluation.episodes import MOST_EPISODES
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.report import Report, interval_text, number_text
from adv_wrappers.evaluation.return_statistics import footnotes
from adv_wrappers.rendering.fit_table_to_width import PrintedTable
from adv_wrappers.training.robust_sarsa_data_and_updates import exploring_victim
from adv_wrappers.training.train_one_robust_sarsa_critic import CriticTraining, check_setting
from adv_wrappers.training.training_folder import check_chosen_folder
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import holding
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.saved_networks import Critic
from adv_wrappers.victims.victim import Victim

CriticSetting = Mapping[str, object]

# the 6 x 5 settings of the released scan (its box is around observation and action), of which papers report the minimum
CRITIC_GRID: tuple[CriticSetting, ...] = tuple(
    {"eps": eps, "weight": weight} for eps in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3) for weight in (0.1, 0.3, 1.0, 3.0, 10.0)
)
# The released default with both successors, and two of the paper's boxes. On a vanilla DDPG Hopper single trainings of
# one setting differ widely (mean returns from 670 to 2270 over three seeds): more critics and more steps help.
SMALL: tuple[CriticSetting, ...] = (
    {"eps": 0.02, "weight": 0.1}, {"eps": 0.02, "weight": 0.1, "successor": "shuffled"},
    {"eps": 0.1, "weight": 1.0, "box": "action"}, {"eps": 0.3, "weight": 3.0, "box": "action"},
)  # fmt: skip
_CHOOSE, _SCORE = 1, 2  # added to three times the seed, so that training, choosing and scoring share no episode
EPS = 0.1  # of the victim's own unit, where no budget is given
# what a scan varies: whoever gives one of these arguments asks for one critic
_ONE_SETTING = {"robust", "eps", "weight", "box", "successor"}


@dataclass(frozen=True)
class CriticScan:
    """The result of :func:`scan_critics`.

    Attributes:
        settings, critics: the settings, and the critics trained with them, in the same order.
        best: index of the strongest critic.
        chosen: the report of all critics on the episodes that the strongest was chosen on: first the clean run, then
            one row a setting.
        scored: the report of the strongest alone, on other episodes, so that its mean is not the luckiest of many.
    """

    settings: tuple[CriticSetting, ...]
    critics: tuple[Critic, ...]
    best: int
    chosen: Report
    scored: Report

    @property
    def critic(self) -> Critic:
        """The strongest critic."""
        return self.critics[self.best]

    @property
    def protocol(self) -> str:
        """How the figure came about, in one sentence to print beside it."""
        chosen, scored = self.chosen.threats[1 + self.best], self.scored.threats[1]
        return (
            f"best of {len(self.critics)} critics by mean return over {self.chosen.episodes} episodes "
            f"({number_text(chosen['mean_return'])}); {number_text(scored['mean_return'])} over "
            f"{self.scored.episodes} others"
        )

    def save(self, folder: str | Path) -> Critic:
        """Write the strongest critic and the record of the scan to a folder; returns the saved critic.

        Raises:
            CardError, ValueRangeError: as :func:`check_scan_folder` does.
        """
        check_scan_folder(folder)
        return self.recorded().save(folder)

    def recorded(self) -> Critic:
        """The strongest critic, whose card has the record of the scan as ``scan``."""
        rows = zip(self.settings, self.chosen.threats[1:], strict=True)
        about = {
            "protocol": self.protocol,
            "threat": self.scored.threats[1]["threat"],
            "critics": [{"setting": dict(setting), "mean_return": row["mean_return"]} for setting, row in rows],
            "episode_seeds": list(self.chosen.episode_seeds),
        }
        return Critic.of(self.critic.net, {**self.critic.card, "scan": about})

    def table(self) -> Table:
        """A rich table with one row a critic, the strongest marked."""
        table = PrintedTable(title=self.protocol, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
        table.caption = "\n".join(footnotes(self.chosen.threats)) or None
        table.add_column("critic", overflow="fold")
        for name in ("return", "95% interval", "median"):
            table.add_column(name, justify="right", no_wrap=True)
        names = ["none (clean)", *(setting_text(setting) for setting in self.settings)]
        for i, (name, row) in enumerate(zip(names, self.chosen.threats, strict=True)):
            cells = (interval_text(row), number_text(row["median"]))
            style = "bold" if i == self.best + 1 else None
            mark = " *" if i == self.best + 1 else ""
            table.add_row(name + mark, number_text(row["mean_return"]), *cells, style=style)
        return table

    def __str__(self) -> str:
        """The table as plain text."""
        text = io.StringIO()
        Console(file=text, width=120, color_system=None).print(self.table())
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines()).strip()


def setting_text(setting: CriticSetting) -> str:
    """A setting in one line of text."""
    return ",".join(f"{key}={value}" for key, value in setting.items()) or "default"


@holding
def train_critic(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget | None = None,
    settings: Sequence[CriticSetting] | None = None,
    episodes: int = 20,
    attack_steps: int = 10,
    seed: int = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    **training: Any,
) -> Critic:
    """Train critics of a victim's policy for :class:`adv_wrappers.RobustSarsa`, and return the strongest.

    By default four critics are trained, with the settings of :data:`adv_wrappers.training.train_critic.SMALL`. Each is
    attacked with under ``within``, and the strongest is chosen by mean return on seeds that no training sees. That
    takes four trainings of ``steps`` (61,440 each by default), five times ``episodes`` episodes to choose the
    strongest, and twice ``episodes`` to score it on other seeds.

    Only one critic is trained, without attacks and so without a budget, where ``settings`` holds one setting, or where
    ``robust``, ``eps``, ``weight``, ``box`` or ``successor`` is given: ``train_critic(victim, env, settings=[{}])``
    takes the defaults of :func:`~adv_wrappers.training.train_one_robust_sarsa_critic.train_one_critic`.
    :func:`scan_critics` returns all critics and the reports.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        within: the budget of the attacks that critics are compared by, best the one that you will attack with; None
            takes a tenth of the victim's own unit, ``Linf(0.1, scale="victim")``.
        settings: dictionaries of arguments of
            :func:`~adv_wrappers.training.train_one_robust_sarsa_critic.train_one_critic`; ``CRITIC_GRID`` holds the
            papers' 30.
        episodes, attack_steps, seed: as for :func:`scan_critics`.
        out: a folder for the strongest critic; each critic gets a folder in it, as do the reports ``chosen`` and
            ``scored``. The same call resumes an interrupted one.
        progress: called as ``progress(steps done, steps)``, summed over all trainings.
        **training: arguments of :func:`~adv_wrappers.training.train_one_robust_sarsa_critic.train_one_critic`, such as
            ``steps``, for every critic.

    Returns:
        The critic. If several were trained, ``critic.card["scan"]`` holds the record of the choice.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained; :class:`ThreatError` for a victim without a
            unit of its own where no budget is given.

    >>> from adv_wrappers import train_critic
    >>> critic = train_critic("zoo:hopper-ppo", "Hopper-v5", settings=[{"eps": 0.1}], steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    settings = _default_settings(settings, training)
    check_critic_settings(settings, training)
    if len(settings) == 1:
        setting = {"seed": integer("seed", seed, 0), **training, **settings[0]}
        return CriticTraining(victim, environment, setting, out).run(progress)
    within = default_budget(victim) if within is None else within
    if out is not None:
        check_scan_folder(out)
    steps_done: dict[str, int] = {setting_text(setting): 0 for setting in settings}
    total = sum(check_setting({**training, **setting})["steps"] for setting in settings)

    def report_progress(name: str, done: int, _: int) -> None:
        if name in steps_done and progress is not None:  # else it is an evaluation
            steps_done[name] = done
            progress(sum(steps_done.values()), total)

    scan = scan_critics(
        victim,
        environment,
        within=within,
        settings=settings,
        episodes=episodes,
        attack_steps=attack_steps,
        seed=seed,
        progress=report_progress,
        out=out,
        **training,
    )
    return scan.recorded() if out is None else scan.save(out)


def _default_settings(settings: Sequence[CriticSetting] | None, training: CriticSetting) -> Sequence[CriticSetting]:
    """The given settings; else one, if ``training`` holds a part of one; else the four of ``SMALL``."""
    if settings is not None:
        return [*settings]
    return [{}] if _ONE_SETTING & {*training} else SMALL


def default_budget(victim: Victim) -> Linf:
    """The budget of the attacks that critics are compared by, where none is given.

    Raises:
        VictimError: for a victim that Robust Sarsa is not defined for.
        ThreatError: for a victim without a unit of its own.
    """
    exploring_victim(victim, 1.0)
    if victim.scale is None:
        raise ThreatError(
            Message(
                "the strongest of several critics is found by attacks, and this victim has no unit of its own to count "
                "their budget in: give ",
                Words("within=, or settings=[{}] for one critic", "--eps, or --one for one critic"),
            )
        )
    return Linf(EPS, scale="victim")


@holding
def scan_critics(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget,
    settings: Sequence[CriticSetting] = SMALL,
    episodes: int = 20,
    attack_steps: int = 10,
    seed: int = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **training: Any,
) -> CriticScan:
    """Train one critic for every setting, attack with each, and find the strongest.

    Args:
        victim, env, env_kwargs, make: as for :func:`train_critic`.
        within: the budget of the attack, such as ``Linf(0.075, scale="victim")``.
        settings: dictionaries of arguments of
            :func:`~adv_wrappers.training.train_one_robust_sarsa_critic.train_one_critic`; ``CRITIC_GRID`` holds the
            papers' 30, ``SMALL`` four.
        episodes: the number of episodes to choose the strongest on, and of others to score it on.
        attack_steps: gradient steps of the attack.
        seed: seeds training, choosing and scoring, which share no episode.
        out: a folder for one folder a critic and for the reports ``chosen`` and ``scored``; the same call resumes an
            interrupted scan.
        progress: called as ``progress(setting or threat, done, total)``.
        **training: arguments of :func:`~adv_wrappers.training.train_one_robust_sarsa_critic.train_one_critic`, such as
            ``steps``, for every critic; a setting's own take precedence.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work, those of every
            setting and of the attack included: :class:`ValueRangeError` for no settings or two equal ones,
            :class:`ThreatError` for anything else than a setting, :class:`BudgetError` for the budget.
    """
    settings = [*settings]
    check_critic_settings(settings, training)
    episodes, seed = integer("episodes", episodes, 1, MOST_EPISODES), integer("seed", seed, 0)
    how = RobustSarsa(critic=lambda obs, act: act, steps=integer("attack_steps", attack_steps, 1))
    attack, victim = ThreatModel("observation", how, within), load_victim(victim)
    needed_budget("a comparison of critics", None, None, attack.within)
    attack = attack.against(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    trainings = {}  # all are checked, their folders too, before the first begins
    for setting in settings:
        folder = None if out is None else Path(out) / _folder_name(setting)
        arguments = {"seed": 3 * seed, **training, **setting}
        trainings[setting_text(setting)] = CriticTraining(victim, environment, arguments, folder)
    attack.check(*environment.spaces_for(victim))
    critics = [
        training_run.run(None if progress is None else functools.partial(progress, name))
        for name, training_run in trainings.items()
    ]
    attacks = [replace(attack, how=RobustSarsa(victim, critic=critic, steps=how.steps)) for critic in critics]

    def evaluate_on(threats: list[ThreatModel], part: int, name: str) -> Report:
        return evaluate(
            victim,
            environment,
            threats,
            episodes=episodes,
            seed=3 * seed + part,
            progress=progress,
            out=None if out is None else Path(out) / name,
            resume=out is not None,
        )

    chosen = evaluate_on(attacks, _CHOOSE, "chosen")
    means = [row["mean_return"] for row in chosen.threats[1:]]
    best = means.index(min(means))
    scored = evaluate_on([attacks[best]], _SCORE, "scored")
    return CriticScan(tuple(settings), tuple(critics), best, chosen, scored)


def check_scan_folder(folder: str | Path) -> None:
    """Raise unless the strongest of several critics may be written to this folder, as :func:`.check_chosen_folder`."""
    check_chosen_folder(Path(folder), "scan", "the strongest of several critics")


def check_critic_settings(settings: Sequence[CriticSetting], training: CriticSetting | None = None) -> None:
    """Raise unless these are settings for :func:`scan_critics`.

    Args:
        settings: the settings, one a critic.
        training: arguments that all of them share.

    Raises:
        ThreatError: for anything else than settings of a critic.
        ValueRangeError: for values out of range, no settings, and two equal ones.
    """
    for setting in settings:
        check_setting({**(training or {}), **setting} if isinstance(setting, Mapping) else setting)
    if not settings or len({_folder_name(setting) for setting in settings}) != len(settings):
        got = [setting_text(setting) for setting in settings]
        raise ValueRangeError(f"expected settings that differ, at least one, got {got}")


def _folder_name(setting: CriticSetting) -> str:
    return re.sub(r"[^\w.]+", "-", setting_text(setting)).strip("-")
