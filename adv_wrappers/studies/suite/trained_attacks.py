"""Attacks of suites that are trained: adversaries that learn, critics, and surrogates that attacks are computed on."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from gymnasium import spaces

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.perturbation import On
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import AdvWrappersError, SpaceError, ThreatError, VictimError
from adv_wrappers.registry import FORMS
from adv_wrappers.studies.suite.entry import AttackSetting, Entry, MadeAttack
from adv_wrappers.threats.presets import as_actor, threat
from adv_wrappers.training.folder import read_record
from adv_wrappers.training.models.critic_scan import check_critic_settings, scan_critics
from adv_wrappers.training.models.imitation import LEAST_QUERIES, check_imitable, imitate
from adv_wrappers.training.models.robust_sarsa import exploring_victim
from adv_wrappers.utils.checks import check_choice, check_names
from adv_wrappers.utils.number_text import counted
from adv_wrappers.utils.validation import expected_arguments

SARSA = "robust-sarsa"
_ROUNDS, _MOST_QUERIES = 6, 20_000  # of an imitation
# arguments of train_adversary that a suite sets itself
_SUITE_ARGUMENTS = {"env", "victim", "eps", "scale", "within", "kind", "form", "steps", "seed", "num_envs", "when"}
_SUITE_ARGUMENTS |= {"out", "progress", "env_kwargs", "make", "quantize"}


# adversaries that learn


def learned_entry(name: str, kind: str | None = None, on: On = "observation") -> Entry:
    """The entry of an adversary that is trained by :func:`adv_wrappers.train_adversary`.

    Args:
        name: the name of the entry, and what is trained where no ``kind`` is given.
        kind: as for :func:`adv_wrappers.train_adversary`.
        on: what it perturbs.
    """
    kind = name if kind is None else kind
    return Entry(name, partial(_why_not_learned, name, kind, on), partial(_learned, name, kind, on), trained=True)


def _why_not_learned(name: str, kind: str, on: On, setting: AttackSetting) -> str | None:
    if setting.train:
        check_training(setting.training)
    seen, _ = setting.spaces
    if why := setting.no_budget(on):
        return why
    try:
        if not isinstance(seen, spaces.Box):
            raise SpaceError(f"{name} is trained on a Box of observations, this victim sees {seen}")
        if kind == "sa-rl" and len(seen.shape) > 1:
            size = " x ".join(map(str, seen.shape))
            return f"on images it would choose {size} numbers a step, which PPO cannot learn"
        # whether the actor suits the victim, and a director can see what it sees
        as_actor(kind, setting.victim).action_space(seen.shape)
        if setting.train:  # Stable-Baselines3 is there
            from adv_wrappers.training.sb3.director_networks import policy_kwargs

            policy_kwargs(seen)
    except (VictimError, SpaceError) as error:
        return str(error)
    return None


def _learned(name: str, kind: str, on: On, setting: AttackSetting) -> MadeAttack:
    """One training; of PA-AD against continuous actions the stronger of two, since victims differ in its forms."""
    steps, several = setting.steps, kind == "pa-ad" and isinstance(setting.victim.action_space, spaces.Box)
    whats = [f"{name} {form}" for form in FORMS] if several else [name]
    returns: list[list[float]] = [[] for _ in whats]  # mean returns at the checkpoints of each training
    folder, budget = setting.folder(name), setting.within(on)

    def report(done: int, mean: float) -> None:
        i = min(max(done - 1, 0) // steps, len(whats) - 1)  # the second training's steps come after the first's
        returns[i].append(mean)
        setting.report(whats[i], min(done - i * steps, steps), steps)

    for what in whats:
        setting.report(what, 0, steps)
    # trained, or gone on with in its folder
    train = import_train_adversary()
    learned = train(
        kind,
        setting.environment,
        setting.victim,
        within=budget,
        form="both" if several else None,
        steps=steps,
        seed=setting.seed,
        out=folder,
        progress=report,
        **{**setting.training, "num_envs": setting.num_envs, "quantize": setting.quantize},
    )
    if folder is not None:  # a training that was resumed reports only what was missing
        folders = [folder / form for form in FORMS] if several else [folder]
        returns = [[float(row["mean_return"]) for row in read_record(place)] for place in folders]
    for what in whats:
        setting.report(what, steps, steps)
    # how the best was chosen, and whether it was still improving
    others = setting.training.get("episodes", inspect.signature(train).parameters["episodes"].default)
    chosen = f"chosen by mean return over {others} other episodes"
    what, each = ("two trainings (direction and target)", " each") if several else ("one training", "")
    best = min(returns, key=min)
    late = len(best) > 1 and best[-1] < min(best[:-1])
    return MadeAttack(
        ThreatModel(on, learned, budget),
        f"{what} of {steps} steps{each}, best of {counted(len(returns[0]), 'checkpoint')}{each}, {chosen}",
        (f"the best of {len(best)} checkpoints of {name} is its last: train it longer",) if late else (),
    )


def import_train_adversary() -> Callable[..., Learned]:
    """Import ``train_adversary``; raises :class:`AdvWrappersError` where Stable-Baselines3 is not installed."""
    with imports_of_sb3("adversaries that learn"):
        from adv_wrappers.training.adversary import train_adversary
    return train_adversary


@contextlib.contextmanager
def imports_of_sb3(what: str) -> Iterator[None]:
    """Say what Stable-Baselines3 is needed for, where an import inside fails without it.

    Args:
        what: what is trained, in the plural.

    Raises:
        AdvWrappersError: where it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "stable_baselines3":
            raise
        needs = f"{what} are trained with Stable-Baselines3: pip install 'adv_wrappers[sb3]'"
        raise AdvWrappersError(needs) from error


def check_training(training: Mapping[str, object]) -> None:
    """Raise :class:`ThreatError` for arguments that :func:`train_adversary` does not take, or that a suite sets."""
    train = import_train_adversary()
    from adv_wrappers.training.sb3.algorithms import ALGORITHMS, check_settings, setting_names

    algorithm = training.get("algorithm", "ppo")
    check_choice("algorithm", algorithm, ALGORITHMS, error=ThreatError)
    # arguments that a suite sets itself may not be given
    known = {*inspect.signature(train).parameters} | setting_names(str(algorithm))
    known -= {*_SUITE_ARGUMENTS, "settings", "device"}
    check_names("training", training, known)
    settings = setting_names(str(algorithm)) & {*training}
    check_settings(str(algorithm), {name: training[name] for name in settings})
    for name, each in expected_arguments(train).items():
        if name in training:
            each.check(f"{name} of training", training[name])


# critics


def trains_critics(setting: AttackSetting) -> bool:
    """Whether critics are trained, as the victim's card brings none."""
    return setting.victim.robust_sarsa is None


def _why_no_sarsa(setting: AttackSetting) -> str | None:
    if why := setting.no_budget():
        return why
    try:
        RobustSarsa(setting.victim, critic=lambda obs, act: act)
        if trains_critics(setting):
            exploring_victim(setting.victim, 1.0)
    except (VictimError, SpaceError) as error:
        return str(error)
    if trains_critics(setting) and setting.train:
        check_critic_settings([*setting.critics])
    return None


def _sarsa(setting: AttackSetting) -> MadeAttack:
    budget = setting.budget
    assert budget is not None
    if not trains_critics(setting):
        made = ThreatModel("observation", RobustSarsa(setting.victim), budget)
        return MadeAttack(made, "one run, through the critic of the victim's card")

    def report(what: str, done: int, total: int) -> None:
        setting.report(f"{SARSA}: {what}", done, total)

    # a scan of critics, of which the strongest is kept
    scan = scan_critics(
        setting.victim,
        setting.environment,
        within=budget,
        settings=setting.critics,
        seed=setting.seed,
        out=setting.folder(SARSA),
        progress=report,
    )
    chosen = f"chosen by mean return over {scan.chosen.episodes} other episodes"
    return MadeAttack(
        ThreatModel("observation", RobustSarsa(setting.victim, critic=scan.critic), budget),
        f"best of {counted(len(scan.critics), 'critic')}, {chosen}",
    )


robust_sarsa = Entry(SARSA, _why_no_sarsa, _sarsa, trained=trains_critics)


# a surrogate


def _surrogate_attack(setting: AttackSetting) -> str:
    """The attack that is computed on the surrogate."""
    return "pgd" if isinstance(setting.victim.action_space, spaces.Discrete) else "max-diff"


def _why_no_transfer(setting: AttackSetting) -> str | None:
    if why := setting.no_budget():
        return why
    try:
        check_imitable(*setting.spaces, setting.out)
    except VictimError as error:
        return str(error)
    return None


def _transfer(setting: AttackSetting) -> MadeAttack:
    """The attack on a surrogate that is trained from queries, as many as there are steps, but at most 20,000."""
    assert setting.budget is not None
    name, queries = _surrogate_attack(setting), min(max(setting.steps, LEAST_QUERIES * (_ROUNDS + 1)), _MOST_QUERIES)
    folder = setting.folder("transfer")  # more queries are another imitation
    # the surrogate, which the attack is then computed on
    found = imitate(
        setting.victim,
        setting.environment,
        queries,
        _ROUNDS,
        setting.seed,
        None if folder is None else folder / str(queries),
        threats=[threat(name, within=setting.budget)],
        progress=lambda done, total: setting.report("transfer", done, total),
    )
    alike = "its actions" if setting.victim.discrete else "the variance of its actions (R2)"
    return MadeAttack(
        threat(name, found.victim, within=setting.budget.resolve(setting.victim)),
        f"{name} on one surrogate, trained from {queries} queries, which predicts {found.agreement:.0%} of {alike}",
    )


transfer = Entry("transfer", _why_no_transfer, _transfer, trained=True)
