"""train_critic and scan_critics: Robust Sarsa as papers report it, the strongest of many critics, and of how many.

No setting of a critic is the strongest on all victims, and trainings of one setting differ: on Ant a single default
critic left 726 where the scan of its authors left 264. So the default is a small scan. One critic is trained by
:mod:`adv_wrappers.training.models.robust_sarsa`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.rows.report import Report
from adv_wrappers.training.folder import check_chosen_folder
from adv_wrappers.training.models.robust_sarsa import CriticSetting, CriticSettings, CriticTraining, exploring_victim
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.number_text import number_text
from adv_wrappers.utils.validation import EpisodeCount, Positive, Seed, checked
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.auxiliary_networks import Critic
from adv_wrappers.victims.victim import Victim

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
_SCAN = ("scan", "the strongest of several critics")  # in cards, and what a folder with it holds


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
            CardError, ValueRangeError: for a folder with something else in it.
        """
        check_chosen_folder(Path(folder), *_SCAN)
        return self.recorded().save(folder)

    def recorded(self) -> Critic:
        """The strongest critic, whose card has the record of the scan as ``scan``."""
        rows = zip(self.settings, self.chosen.threats[1:], strict=True)
        about = {
            "protocol": self.protocol,
            "threat": self.scored.threats[1].threat,
            "critics": [{"setting": dict(setting), "mean_return": row.mean_return} for setting, row in rows],
            "episode_seeds": list(self.chosen.episode_seeds),
        }
        return Critic.of(self.critic.net, {**self.critic.card, "scan": about})


def setting_text(setting: CriticSetting) -> str:
    """A setting in one line of text."""
    return ",".join(f"{key}={value}" for key, value in setting.items()) or "default"


@checked
@holding
def train_critic(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget | None = None,
    settings: Sequence[CriticSetting] | None = None,
    episodes: EpisodeCount = 20,
    attack_steps: Positive = 10,
    seed: Seed = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **training: Any,
) -> Critic:
    """Train critics of a victim's policy for :class:`adv_wrappers.RobustSarsa`, and return the strongest.

    By default four critics are trained, with the settings of :data:`~adv_wrappers.training.models.critic_scan.SMALL`.
    Each is attacked with under ``within``, and the strongest is chosen by mean return on seeds that no training sees.
    That takes four trainings of ``steps`` (61,440 each by default), five times ``episodes`` episodes to choose the
    strongest, and twice ``episodes`` to score it on other seeds.

    Only one critic is trained, without attacks and so without a budget, where ``settings`` holds one setting, or where
    ``robust``, ``eps``, ``weight``, ``box`` or ``successor`` is given: ``train_critic(victim, env, settings=[{}])``
    takes the defaults of :class:`~adv_wrappers.training.models.robust_sarsa.CriticSettings`.
    :func:`scan_critics` returns all critics and the reports.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        within: the budget of the attacks that critics are compared by, best the one that you will attack with; None
            takes a tenth of the victim's own unit, ``Linf(0.1, scale="victim")``.
        settings: dictionaries of arguments of :class:`.CriticSettings`; ``CRITIC_GRID`` holds the papers' 30.
        episodes, attack_steps, seed, progress: as for :func:`scan_critics`.
        out: a folder for the strongest critic; each critic gets a folder in it, as do the reports ``chosen`` and
            ``scored``. The same call resumes an interrupted one.
        **training: arguments of :class:`.CriticSettings`, such as ``steps``, for every critic.

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
    if settings is None:
        settings = [{}] if _ONE_SETTING & {*training} else SMALL
    # one critic is trained without attacks, several are compared by them
    if len(settings) == 1:
        one = CriticSettings.of({"seed": seed}, training, *settings)
        return CriticTraining(victim, environment, one, out).run(progress)
    how: Any = {"within": within, "episodes": episodes, "attack_steps": attack_steps, "seed": seed, **training}
    scan = scan_critics(victim, environment, settings=settings, out=out, progress=progress, **how)
    return scan.recorded() if out is None else scan.save(out)


def default_budget(victim: Victim) -> Linf:
    """The budget of the attacks that critics are compared by, where none is given.

    Raises:
        VictimError: for a victim that Robust Sarsa is not defined for.
        ThreatError: for a victim without a unit of its own.
    """
    exploring_victim(victim, 1.0)
    if victim.scale is None:
        raise ThreatError(
            "the strongest of several critics is found by attacks, and this victim has no unit of its own to count "
            "their budget in: give within= (--eps), or settings=[{}] for one critic (--one)"
        )
    return Linf(EPS, scale="victim")


@checked
@holding
def scan_critics(
    victim: Victim | str,
    env: AnyEnvironment,
    *,
    within: Budget | None = None,
    settings: Sequence[CriticSetting] = SMALL,
    episodes: EpisodeCount = 20,
    attack_steps: Positive = 10,
    seed: Seed = 0,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **training: Any,
) -> CriticScan:
    """Train one critic for every setting, attack with each, and find the strongest.

    Args:
        victim, env, within, env_kwargs, make: as for :func:`train_critic`.
        settings: as for :func:`train_critic`.
        episodes: episodes that each critic is judged by. As many others score the strongest.
        attack_steps: gradient steps of the attack by which critics are compared.
        seed: seeds training, choosing and scoring, which share no episode.
        out: a folder for one folder a critic and for the reports ``chosen`` and ``scored``; the same call resumes an
            interrupted scan.
        progress: called as ``progress(setting or threat, done, total)``, where a single critic is trained with
            ``"robust-sarsa critic"``.
        **training: as for :func:`train_critic`; a setting's own take precedence.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained, for arguments that cannot work, those of every
            setting and of the attack included: :class:`ValueRangeError` for no settings or two equal ones,
            :class:`ThreatError` for anything else than a setting, :class:`BudgetError` for the budget.
    """
    settings = [*settings]
    check_critic_settings(settings, training)
    if out is not None:
        check_chosen_folder(Path(out), *_SCAN)
    how = RobustSarsa(critic=lambda obs, act: act, steps=attack_steps)
    victim = load_victim(victim)
    # the attack that critics are compared by, without its critic yet
    attack = ThreatModel("observation", how, default_budget(victim) if within is None else within)
    needed_budget("a comparison of critics", None, None, attack.within)
    attack = attack.against(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    trainings = {}  # all are checked, their folders too, before the first begins
    for setting in settings:
        folder = None if out is None else Path(out) / _folder_name(setting)
        one = CriticSettings.of({"seed": 3 * seed}, training, setting)
        trainings[setting_text(setting)] = CriticTraining(victim, environment, one, folder)
    attack.check(*environment.spaces_for(victim))
    # the critics, and the attack with each of them
    critics = [training_run.run(progress, name) for name, training_run in trainings.items()]
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

    # the strongest is chosen on some episodes and scored on others
    chosen = evaluate_on(attacks, _CHOOSE, "chosen")
    means = [row.mean_return for row in chosen.threats[1:]]
    best = means.index(min(means))
    scored = evaluate_on([attacks[best]], _SCORE, "scored")
    return CriticScan(tuple(settings), tuple(critics), best, chosen, scored)


def check_critic_settings(settings: Sequence[CriticSetting], *training: CriticSetting) -> list[CriticSettings]:
    """The settings of :func:`scan_critics`, checked.

    Args:
        settings: the settings, one a critic.
        training: arguments that all of them share.

    Raises:
        ThreatError: for anything else than settings of a critic.
        ValueRangeError: for values out of range, no settings, and two equal ones.
    """
    found = [CriticSettings.of(*training, setting) for setting in settings]
    if not settings or len({_folder_name(setting) for setting in settings}) != len(settings):
        got = [setting_text(setting) for setting in settings]
        raise ValueRangeError(f"expected settings that differ, at least one, got {got}")
    return found


def _folder_name(setting: CriticSetting) -> str:
    return re.sub(r"[^\w.]+", "-", setting_text(setting)).strip("-")
