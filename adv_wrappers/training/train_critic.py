"""train_critic: the strongest of a few Robust Sarsa critics (Zhang et al. 2020), or one critic of a given setting.

The default is a small scan (:mod:`adv_wrappers.training.critic_scan`), since no single setting is the strongest on all
victims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.errors import ThreatError
from adv_wrappers.evaluation.environments import MakeEnv
from adv_wrappers.training.critic_scan import (
    SMALL,
    Setting,
    check_scan_folder,
    check_settings,
    scan_critics,
    setting_text,
)
from adv_wrappers.training.sarsa import exploring_victim
from adv_wrappers.training.train_one_critic import CriticTraining, check_setting
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.numbers import integer
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim

EPS = 0.1  # of the victim's own unit, where no budget is given
# what a scan varies: whoever gives one of these arguments asks for one critic
_ONE_SETTING = {"robust", "eps", "weight", "box", "successor"}


@holding
def train_critic(
    victim: Victim | str, env: str | MakeEnv, *, within: Budget | None = None,
    settings: Sequence[Setting] | None = None, episodes: int = 20, attack_steps: int = 10, seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    make: MakeEnv | None = None, out: str | Path | None = None, progress: Callable[[int, int], None] | None = None,
    **training: Any,
) -> Critic:  # fmt: skip
    """Train critics of a victim's policy for :class:`adv_wrappers.RobustSarsa`, and return the strongest.

    By default four critics are trained, with the settings of :data:`adv_wrappers.training.critic_scan.SMALL`. Each is
    attacked with under ``within``, and the strongest is chosen by mean return on seeds that no training sees. That
    takes four trainings of ``steps`` (61,440 each by default), five times ``episodes`` episodes to choose the
    strongest, and twice ``episodes`` to score it on other seeds.

    Only one critic is trained, without attacks and so without a budget, where ``settings`` holds one setting, or where
    ``robust``, ``eps``, ``weight``, ``box`` or ``successor`` is given: ``train_critic(victim, env, settings=[{}])``
    takes the defaults of :func:`~adv_wrappers.training.train_one_critic.train_one_critic`. :func:`scan_critics` returns
    all critics and the reports.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        within: the budget of the attacks that critics are compared by, best the one that you will attack with; None
            takes a tenth of the victim's own unit, ``Linf(0.1, scale="victim")``.
        settings: dictionaries of arguments of :func:`~adv_wrappers.training.train_one_critic.train_one_critic`;
            ``GRID`` holds the papers' 30.
        episodes, attack_steps, seed: as for :func:`scan_critics`.
        out: a folder for the strongest critic; each critic gets a folder in it, as do the reports ``chosen`` and
            ``scored``. The same call resumes an interrupted one.
        progress: called as ``progress(steps done, steps)``, summed over all trainings.
        **training: arguments of :func:`~adv_wrappers.training.train_one_critic.train_one_critic`, such as ``steps``,
            for every critic.

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
    env_arguments: dict[str, Any] = {"env_kwargs": env_kwargs, "make": make, "out": out}
    settings = _default_settings(settings, training)
    check_settings(settings, training)
    if len(settings) == 1:
        setting = {"seed": integer("seed", seed, 0), **training, **settings[0]}
        return CriticTraining(victim, env, setting, **env_arguments).run(progress)
    victim = load_victim(victim)
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
        victim, env, within=within, settings=settings, episodes=episodes, attack_steps=attack_steps, seed=seed,
        progress=report_progress, **env_arguments, **training,
    )  # fmt: skip
    return scan.critic if out is None else scan.save(out)


def _default_settings(settings: Sequence[Setting] | None, training: Setting) -> Sequence[Setting]:
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
            "the strongest of several critics is found by attacks, and this victim has no unit of its own to count "
            "their budget in: give within= (--eps), or settings=[{}] (--one) for one critic"
        )
    return Linf(EPS, scale="victim")
