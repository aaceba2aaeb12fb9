"""Warnings: signs that an evaluation should not be trusted (after AutoAttack's checks, Croce and Hein 2020).

An attack that fails looks like an agent that is robust. Each check returns sentences that say what was seen and what
may be done about it; a report carries them, and so does the table of the command line. What rows say of each other is
looked at in :mod:`.gradient_masking`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.hop_skip_jump import HopSkipJump
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.attacks.min_best import MinBest
from adv_wrappers.attacks.noise import Flip, Noise
from adv_wrappers.attacks.robust_sarsa import RobustSarsa
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.spaces import Field
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.evaluation.episodes import checkpoint_seeds
from adv_wrappers.evaluation.rows.checked_row import CheckedRow, clean_row
from adv_wrappers.evaluation.rows.gradient_masking import find_masking
from adv_wrappers.evaluation.rows.row import EnvironmentNotes
from adv_wrappers.evaluation.statistics.confidence_intervals import (
    MOST_COUNTED,
    POWER,
    episodes_needed,
    mean_interval,
    paired_differences,
)
from adv_wrappers.threats.text import name_of
from adv_wrappers.utils.checks import either, finite_float, is_integer
from adv_wrappers.victims.auxiliary_networks import Critic
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Victim

_MAX_SHARE = 0.5  # above this share, what may happen now and then is a warning
_MOST_EPISODES = 10**6  # of a card, which may be anybody's file
_STRONGER = ("pgd", "apgd", "multi-targeted")  # forms of single runs, of agents with discrete actions
_STRONGER_MAX_DIFF = "max-diff:restarts=6,keep=best,noise=0"
_CLAIMED = 0.1  # of the clean mean: what a reader would take for a difference


def find_warnings(
    rows: Sequence[CheckedRow],
    victim: Victim,
    env: str | None = None,
    under: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> list[str]:
    """All warnings about a set of runs of one victim, in the order of the runs.

    Args:
        rows: the runs; the one without threats is the clean run.
        victim: the agent.
        env: the id of the environment.
        under: texts of the threats that the environment has itself, innermost first.
        seeds: those of the episodes.
    """
    found = said_of_environment(rows) + perturbed_already(under)
    found += mode_of_stochastic_policy(victim) + random_answers(rows, victim)
    found += other_environment(victim, env) + ([] if under else far_below_training(rows, victim, env))
    for row in rows:
        found += budget_covers_space(row, victim) + without_effect(row)
    found += whole_space_takes_nothing(rows, victim) + find_masking(rows) + learned_nothing(rows)
    found += chosen_on_scored_episodes(rows, victim, env, seeds) + too_few_episodes(rows)
    return found + only_single_runs(rows, victim)


def said_of_environment(rows: Sequence[CheckedRow]) -> list[str]:
    """An environment that does not follow its seed, what does not go with its spaces, a mask; each once."""
    names = EnvironmentNotes.__annotations__
    said = [[row.checks[name] for row in rows if name in row.checks][:1] for name in names]
    return [*itertools.chain(*said)]


def perturbed_already(under: Sequence[str]) -> list[str]:
    """An environment that is perturbed itself, so that no row of the report is without an attack."""
    if not under:
        return []
    return [
        f"the environment is perturbed already, by {' + '.join(under)}: its first row is not the clean agent, regret "
        f"counts from that row, and there is no impact. Evaluate the environment beneath for clean figures"
    ]


def other_environment(victim: Victim, env: str | None) -> list[str]:
    """An environment that is not the one of the victim's card."""
    own = ((victim.card or {}).get("environment") or {}).get("id")
    if env is None or not isinstance(own, str) or own == env:
        return []
    return [f"{victim.ref or 'the agent'} is an agent for {own}, and plays in {env} here"]


def far_below_training(rows: Sequence[CheckedRow], victim: Victim, env: str | None) -> list[str]:
    """A clean run that leaves far less than the victim's card says was measured in the same environment.

    Far is beyond three standard errors of the difference and a tenth of the measured mean, with an interval that does
    not reach that mean. Of several measurements the lowest of these bounds counts.
    """
    clean = clean_row(rows)
    card = victim.card or {}
    bounds = list[tuple[float, float]]()
    if clean is None or env is None or (card.get("environment") or {}).get("id") != env:
        return []
    # for every clean measurement of the card, what a mean must reach to be no less
    for entry in card.get("measured") or ():
        if isinstance(entry, dict) and entry.get("attack") == "none":
            mean, std, episodes = (finite_float(entry.get(key)) for key in ("mean", "std", "episodes"))
            if mean is not None and std is not None and episodes:
                error = std * (1 / max(episodes, 1) + 1 / len(clean.returns)) ** 0.5
                bounds.append((mean - max(3 * error, 0.1 * abs(mean)), mean))
    bound, mean = min(bounds, default=(-math.inf, -math.inf))
    if clean.mean >= bound or mean_interval(clean.returns)[1] >= mean:
        return []
    return [
        f"without an attack the agent earns {clean.mean:.6g}, its card says {mean:.6g}: this may not be what was "
        f"measured. Look at its observation statistics (VecNormalize), the version of {env}, the keyword arguments "
        f"of the environment, and select="
    ]


def budget_covers_space(row: CheckedRow, victim: Victim) -> list[str]:
    """Budgets within which every bounded feature can take every value of its space."""
    found = []
    for layer in row.layers:
        if (covered := _covered(layer, victim)) is not None:
            budget, low, high = covered
            unit = "of the space" if budget.scale is None else "of its scale"
            found.append(
                f"{row.name}: a radius of eps={budget.eps:g} in units {unit} covers the whole range of the "
                f"{layer.on} ({low:g} to {high:g}), so every value of a bounded feature is allowed"
            )
    return found


def _covered(layer: ThreatModel, victim: Victim) -> tuple[Linf, float, float] | None:
    """The budget of a threat and the ends of the space, where it covers the range of every bounded feature."""
    budget = layer.budget.frame
    if layer.on == "dynamics" or not isinstance(budget, Linf) or isinstance(budget.scale, str):
        return None
    field = Field(victim.observation_space if layer.on == "observation" else victim.action_space, layer.at, layer.on)
    low, high = (np.asarray(end, np.float64).reshape(-1) for end in (field.low, field.high))
    # features with bounds, and whether the radius reaches across all of them
    bounded = np.isfinite(high - low)
    radius = budget.eps * np.asarray(1.0 if budget.scale is None else budget.scale)
    width = (high - low)[bounded]
    low, high = low[bounded], high[bounded]
    covers = np.broadcast_to(radius, bounded.shape)[bounded] >= width
    return (budget, float(low.min()), float(high.max())) if covers.all() and (width > 0).any() else None


def whole_space_takes_nothing(rows: Sequence[CheckedRow], victim: Victim) -> list[str]:
    """Attacks that may show anything and leave the clean return (Athalye, Carlini and Wagner 2018, section 3.1)."""
    clean = clean_row(rows)
    return [
        f"{row.name} leaves the clean return ({row.mean:.6g} of {clean.mean:.6g}) with a radius that covers the space: "
        f"an attack that may show the agent anything should take something, so it fails, or the agent does not act by "
        f"what it sees"
        for row in rows
        if clean is not None and row.attack is not None and not isinstance(row.attack.how, (Noise, Flip, Learned))
        if _covered(row.attack, victim) is not None and row.least_taken(clean) <= 0
    ]


def only_single_runs(rows: Sequence[CheckedRow], victim: Victim) -> list[str]:
    """One sentence where gradient attacks are single runs, and no stronger form of them is among the rows."""
    attacks = [row for row in rows if row.attack is not None]
    names = [name_of(row.layers[0]) for row in attacks]
    strong = _STRONGER if victim.discrete else (_STRONGER_MAX_DIFF,)
    if {*names} & {*strong} or any(getattr(row.layers[0].how, "restarts", 1) > 1 for row in attacks):
        return []
    single = [row.name for row in attacks if isinstance(row.layers[0].how, (MinBest, MaxDiff))]
    verb = "is a single run" if len(single) == 1 else "are single runs"
    said = f"{', '.join(single)} {verb} with published settings: {either(strong)} would search the same budget harder"
    return [said] if single else []


def too_few_episodes(rows: Sequence[CheckedRow]) -> list[str]:
    """Differences that a reader would claim, and that the episodes of the report do not tell from chance.

    Those are what an attack takes from the clean return, and the lead of the strongest attack over the second
    strongest, where they are a tenth of the clean mean or more. One sentence names all of them.
    """
    clean, attacks = clean_row(rows), sorted((row for row in rows if row.layers), key=lambda row: row.mean)
    if clean is None or not attacks or len(clean.returns) < 2:
        return []
    said = []
    # every attack against the clean run, and the strongest against the second strongest
    for lower, higher in [*((attack, clean) for attack in attacks), *itertools.pairwise(attacks[:2])]:
        differences = paired_differences(higher.returns, lower.returns)
        mean = float(differences.mean())
        if mean > 0 and mean >= _CLAIMED * abs(clean.mean) and mean_interval(differences)[0] <= 0:
            needed = episodes_needed(differences)
            count = f"more than {MOST_COUNTED}" if needed is None else f"about {max(needed, len(differences) + 1)}"
            said.append(f"{lower.name} against {higher.name} ({lower.against(higher)}, {count} episodes)")
    sentence = (
        f"too few episodes to tell from chance: {'; '.join(said)}. For a power of {POWER:.0%} at the difference that "
        f"was seen play more, and take the number for a rough one"
    )
    return [sentence] if said else []


def mode_of_stochastic_policy(victim: Victim) -> list[str]:
    """A victim that samples its actions where it comes from, evaluated by their mode."""
    if victim.chooses or victim.select == "sample" or victim.kind not in ("logits", "gaussian", "distribution"):
        return []
    source = ((victim.card or {}).get("action") or {}).get("select")
    if source == "sample":
        return ["the victim's source samples its actions, here it plays their mode: load it with select='sample'"]
    if victim.card is None:
        return ["a stochastic policy is evaluated by its mode: if the agent samples its actions, use select='sample'"]
    return []


def random_answers(rows: Sequence[CheckedRow], victim: Victim) -> list[str]:
    """Victims of which an attack sees one draw, or the most likely action, of several.

    An agent that samples its actions is none of these to an attack by its parameters: they are the probabilities, over
    which nothing is drawn. :class:`Smoothed` averages over draws of noise itself (Athalye et al. 2018).
    """
    asked, unequal = (sum(row.count(name) for row in rows) for name in ("asked_twice", "unequal_answers"))
    found = []
    if unequal:
        found.append(
            f"the agent answers differently when it is asked twice about one observation ({unequal} of {asked}): there "
            f"is noise, or dropout, in its forward pass, or a state that runs on from call to call (give that by "
            f"initial_state=), and an attack's gradient is that of one draw. Switch it off, "
            f"or aim the attacks at the expectation: a victim whose module averages many draws (as Smoothed does)"
        )
    # a smoothed agent, and one that samples, has to be looked at as a whole
    if isinstance(victim, Smoothed) and victim.samples < 2 and any(row.layers for row in rows):
        seen = "without its noise" if victim.samples == 0 else "under one draw of its noise"
        found.append(f"attacks see the agent {seen}: the expectation over many takes Smoothed(samples=16) or more")
    if victim.select == "sample" and not isinstance(victim, Smoothed):
        found += [
            f"{row.name} looks at the most likely action, and the agent samples its actions: square and max-diff look "
            f"at the probabilities"
            for row in rows
            if any(isinstance(layer.how, HopSkipJump) for layer in row.layers)
        ]
    return found


def without_effect(row: CheckedRow) -> list[str]:
    """Zero gradients, attacks that change nothing, and draws that are all the same."""
    found = []
    zero, gradients = row.count("zero_gradients"), row.count("gradients")
    if zero > _MAX_SHARE * gradients:
        found.append(
            f"zero gradients at {zero} of {gradients} observations, so the attack is blind there: another loss, or an "
            f"attack that needs no gradient, may be far stronger"
        )
    # attacks that came to nothing, and draws that drew nothing
    unchanged, attacked = row.count("unchanged"), row.count("attacked")
    if unchanged > _MAX_SHARE * attacked:
        rounded = row.count("integers") and not zero
        hint = ": lost by rounding to integers; raise eps or use quantize=False" if rounded else ""
        found.append(f"{unchanged} of {attacked} attacked observations came out unchanged{hint}")
    if row.count("alike"):
        found.append(
            "two draws of every episode are alike, so nothing in it is random and no others were played: best_of is "
            "for random attacks"
        )
    return [f"{row.name}: {said}" for said in found]


def learned_nothing(rows: Sequence[CheckedRow]) -> list[str]:
    """Trained adversaries that take no more than chance from the clean return, on the same episodes."""
    clean = clean_row(rows)
    return [
        f"{row.name} takes nothing of the clean return ({row.mean:.6g} of {clean.mean:.6g}): its training may have met "
        f"no reward to learn from, so it says little of the agent"
        for row in rows
        if clean is not None and any(isinstance(layer.how, Learned) for layer in row.layers)
        if row.least_taken(clean) <= 0
    ]


def chosen_on_scored_episodes(
    rows: Sequence[CheckedRow], victim: Victim, env: str | None, seeds: Sequence[int]
) -> list[str]:
    """Agents, adversaries and critics that were chosen among several by episodes which the report scores."""
    scored, found = {*seeds}, dict[str, str]()
    for what, instead, card in _chosen(rows, victim):
        trained = card.get("training")
        record: Mapping[str, Any] = trained if isinstance(trained, Mapping) else {}
        about = record.get("environment") or card.get("environment")
        if isinstance(about, Mapping) and env is not None and about.get("id") not in (None, env):
            continue
        # the episodes that chose it and score it too
        if shared := len(scored & {*_choosing_seeds(card.get("scan")), *_choosing_seeds(record)}):
            found[what] = (
                f"{what} was chosen on {shared} of the {len(scored)} episodes that are scored here, so its figure is "
                f"too {instead}: take another seed"
            )
    return [*found.values()]


def _chosen(rows: Sequence[CheckedRow], victim: Victim) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """What a report scores and may have been chosen among several: its name, how it then seems, and its card."""
    if isinstance(victim.card, Mapping):
        yield "the agent's checkpoint", "high", victim.card
    for row in rows:
        for how in (layer.how for layer in row.layers):
            if isinstance(how, Learned):
                yield f"the checkpoint of {row.name}", "low", {"training": getattr(how.director, "record", None)}
            critic = (how.critic or getattr(how.victim, "robust_sarsa", None)) if isinstance(how, RobustSarsa) else None
            if isinstance(critic, Critic):
                yield f"the critic of {row.name}", "low", critic.card


def _choosing_seeds(record: object) -> list[int]:
    """The seeds of the episodes that a choice was made by: kept in a record, or following from its seed and number."""
    if not isinstance(record, Mapping):
        return []
    kept, seed, episodes = (record.get(name) for name in ("episode_seeds", "seed", "episodes"))
    if isinstance(kept, (list, tuple)):
        return [seed for seed in kept if is_integer(seed)]
    if not {"checks", "checkpoints"} & {*record} or not is_integer(seed) or not is_integer(episodes):
        return []
    return checkpoint_seeds(seed, episodes) if seed >= 0 and 0 < episodes <= _MOST_EPISODES else []
