"""Certified ranges: the worst case over several radii, between certificates from below and attacks from above.

Attacks bound from above what an agent keeps in the worst case, certificates from below. The paper of the certificates
here (Oikarinen et al. 2020) shows both, but no lower bound that holds for all attacks; GWC is an estimate, and in its
Table 1 an attack falls below it. Here every episode is certified and attacked from the same start. An attacked episode
below its own certificate would mean that one of the two is wrong, and stops everything. What is found is a table, a
figure and a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from adv_wrappers.certification.certificate import Certificate, cut_text
from adv_wrappers.certification.certify import certify
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget, Linf
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Floats
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import CertificateError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.applicable_attacks import (
    BEAM,
    UNTRAINED,
    check_no_budget,
    untrained_threat,
    why_no_beam,
    why_untrained_excluded,
)
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.searches.beam import beam_search
from adv_wrappers.registry import BEAM_WIDTH
from adv_wrappers.rendering.plots import BandedLine, LinesPanel, plot_lines
from adv_wrappers.rendering.table import Tabular, TextTable
from adv_wrappers.threats.presets import parse_threat, threat
from adv_wrappers.utils.checks import finite_float
from adv_wrappers.utils.files import holding, write_json
from adv_wrappers.utils.number_text import number_text
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.precision import full_precision
from adv_wrappers.utils.reading import check_same, decoding, read_result
from adv_wrappers.utils.validation import (
    AboveZero,
    EnvCount,
    EpisodeCount,
    Finite,
    LongCount,
    NotNegative,
    Positive,
    Seed,
    checked,
)
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.certified_actions import Method
from adv_wrappers.wrappers.layer import as_float

_ROUNDING = 1e-9  # of sums of rewards in another order, relatively
_FILE, _COUNTEREXAMPLE = "ranges.json", "counterexample.json"
_AWC = (
    "AWC is the lowest return of all sequences of actions that the bounds ({}) do not exclude: the worst case itself "
    "where these are by bisect, else at most that"
)


@dataclass(frozen=True)
class CertifiedRange:
    """What is known of the worst case within one budget.

    Attributes:
        eps: the radius.
        certificate: what no attack takes, with lower bounds that are at least those of larger radii, which hold for
            smaller ones.
        attacks: returns of every episode, by the name of the attack; float ``[E]``.
        left_out: by the name of an attack that was not run, the reason.
    """

    eps: float
    certificate: Certificate
    attacks: Mapping[str, Sequence[float]]
    left_out: Mapping[str, str]

    @property
    def lower_returns(self) -> Floats:
        """The certified returns, ``[E]``; NaN where nothing was searched."""
        return self.certificate.lower_returns

    @property
    def upper_returns(self) -> Floats:
        """What the strongest of the attacks, or none, leaves of every episode, ``[E]``: the worst case is no higher."""
        # clean may be cut
        found: Floats = np.fmin.reduce([self.certificate.clean_returns, *map(np.array, self.attacks.values())])
        return found

    @property
    def strongest(self) -> str:
        """The name of the attack with the lowest mean return; "" where none is below the clean one."""
        means = {name: float(np.mean(returns)) for name, returns in self.attacks.items()}
        lowest = min(means, key=means.__getitem__, default="")
        clean = self.certificate.clean
        return "" if means.get(lowest, np.inf) >= clean else lowest

    @property
    def means(self) -> tuple[float, float, float, float]:
        """Mean returns, NaN where there is none: clean, certified, attacked, and the greedy worst case."""
        known = self.certificate
        return known.clean, known.lower, float(self.upper_returns.mean()), known.gwc

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows, the means included."""
        _, lower, upper, _ = self.means
        return {
            "eps": self.eps,
            "lower": finite_float(lower),
            "upper": finite_float(upper),
            "strongest": self.strongest,
            "certificate": self.certificate.to_dict(),
            "attacks": dict(self.attacks),
            "left_out": dict(self.left_out),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        found = Certificate.from_dict(data["certificate"])
        return cls(float(data["eps"]), found, data["attacks"], data["left_out"])


_COLUMNS = ("eps", "clean", "certified", "attacked", "strongest", "GWC", "ACR", "AWC", "searches finished")
_BY_IMPORTANCE = ("eps", "certified", "attacked", "clean", "strongest", "searches finished", "GWC", "ACR")


@dataclass(frozen=True)
class CertifiedRanges(Tabular):
    """Certificates beside attacks over several radii.

    Attributes:
        settings: what was asked for: ``victim``, ``env``, ``scale``, ``episodes``, ``seed``, ``method``, ``budget_s``,
            ``max_nodes``, ``max_boxes``, ``width``, ``quantize`` and ``versions``.
        ranges: one a radius, in the order in which they were asked for.
    """

    settings: Mapping[str, Any]
    ranges: tuple[CertifiedRange, ...]

    @property
    def title(self) -> str:
        """What was measured, in one line."""
        about = self.settings
        unit = "" if about["scale"] is None else f" in units of {_unit_text(about['scale'])}"
        return (
            f"{about['victim']['ref'] or 'victim'} on {about['env']['id']}{unit}, {about['episodes']} episodes, seed "
            f"{about['seed']}"
        )

    def table(self) -> TextTable:
        """The table, one row a radius, with :meth:`notes`."""
        rows = list[tuple[str, ...]]()
        for one in self.ranges:
            about, (*means, gwc) = one.certificate, map(finite_float, one.means)
            rows.append(
                (
                    f"{one.eps:g}",
                    *map(number_text, means),
                    one.strongest or "-",
                    number_text(gwc),
                    "-" if math.isnan(about.acr) else f"{about.acr:.2f}",
                    number_text(finite_float(about.awc)),
                    f"{about.finished_searches.sum()} of {len(about.seeds)}",
                )
            )
        notes = tuple(self.notes())
        return TextTable(self.title, _COLUMNS, tuple(rows), notes, texts=("strongest",), by_importance=_BY_IMPORTANCE)

    def notes(self) -> list[str]:
        """What the columns mean, and what was left out."""
        left_out = {name: reason for one in self.ranges for name, reason in one.left_out.items()}
        return [
            "certified: no attack within eps leaves a lower mean on these episodes; attacked: the mean over episodes "
            "of what the strongest of these attacks leaves of each, and others may leave less",
            "GWC is an estimate and no bound; ACR is the share of steps with one possible action",
            _AWC.format(self.settings["method"]),
            *(f"eps {one.eps:g}: {text}" for one in self.ranges if (text := cut_text(one.certificate.cut))),
            *(f"{name}: left out: {reason}" for name, reason in left_out.items()),
        ]

    def plot(self, path: str | Path) -> None:
        """Write a figure: a band from the certified return to the attacked one, and the estimate as a line apart.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        scale = self.settings["scale"]
        unit = "eps" if scale is None else f"eps, in units of {_unit_text(scale)}"
        order = sorted(self.ranges, key=lambda one: one.eps)
        eps, none = [one.eps for one in order], [np.nan] * len(order)
        clean, lower, upper, gwc = (list(means) for means in zip(*(one.means for one in order), strict=True))
        lines = [
            BandedLine("strongest of the attacks in every episode; in the band lies the worst case", eps, upper, lower,
                       upper),
            BandedLine("certified: no attack is below", eps, lower, none, none),
            BandedLine("clean", eps, clean, none, none),
            BandedLine("GWC, an estimate: no bound", eps, gwc, none, none),
        ]  # fmt: skip
        plot_lines([LinesPanel("", lines)], path, self.title, (unit, "mean return"))

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        return {"settings": dict(self.settings), "ranges": [one.to_dict() for one in self.ranges]}

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing."""
        write_json(Path(path), self.to_dict())


def _threat(item: str | ThreatModel, budget: Budget) -> ThreatModel:
    """A given attack within a budget.

    Raises:
        ThreatError: for what cannot be understood, and for an attack on actions.
        BudgetError: for a text with a budget.
    """
    if isinstance(item, ThreatModel):
        found = item
    else:
        check_no_budget(item)
        found = untrained_threat(item, budget) if item in UNTRAINED else parse_threat(item, within=budget)
    if found.on != "observation":
        raise ThreatError(f"these certificates are for perturbed observations, and {item} perturbs the action")
    return found


def _default_attacks(
    victim: Victim, environment: Environment, budget: Budget, quantize: bool
) -> tuple[list[str], dict[str, str]]:
    """The names of the attacks without training that apply, and of the others the reason why they do not."""
    seen, acted = environment.spaces_for(victim)
    seen = seen if quantize else as_float(seen, threat("noise", within=budget))
    reasons = {name: why_untrained_excluded(name, victim, budget, seen, acted) for name in UNTRAINED}
    reasons[BEAM] = why_no_beam(victim, environment, budget)
    return [name for name, reason in reasons.items() if not reason], {
        name: reason for name, reason in reasons.items() if reason
    }


@checked
@holding
@full_precision()  # of attacks too: they are played by the agent that is certified
def certified_ranges(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: Sequence[NotNegative],
    episodes: EpisodeCount = 10,
    seed: Seed = 0,
    method: Method = "crown",
    budget_s: AboveZero | None = None,
    *,
    scale: Scale = None,
    attacks: Sequence[str | ThreatModel] | None = None,
    least_reward: Finite | None = None,
    least_return: Finite | None = None,
    max_nodes: LongCount | None = None,
    max_boxes: Positive | None = None,
    width: Positive = BEAM_WIDTH,
    num_envs: EnvCount | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    quantize: bool = True,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> CertifiedRanges:
    """Certify and attack the same episodes, at every radius of an l-infinity ball around the observations.

    Args:
        victim, env, episodes, seed, num_envs, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`.
        eps: radii of the l-infinity budget, in the units of the observation or of ``scale``.
        method, budget_s, least_reward, least_return, max_nodes, max_boxes: as for :func:`adv_wrappers.certify`, for the
            certificate of each radius. Attacks take their time besides.
        scale: of :class:`adv_wrappers.Linf`.
        attacks: a name of the suite's, beam, or a threat without a budget; None takes all without training. Names are
            those of the attacks without training (:data:`adv_wrappers.studies.SUITES`) and ``"beam"``; any other
            threat is a text without a budget, such as ``"pgd:steps=50"`` or ``"learned:card=FOLDER"``; also threats
            with budgets of their own, which are then at most the radii. None takes all that apply.
        width: states that the beam search keeps (:func:`adv_wrappers.evaluation.searches.beam.beam_search`).
        out: a folder for the ranges; the same call goes on where it stopped. It gets ``ranges.json``, what is found as
            it comes, and everything that was played. Radii and attacks may be added. No other process gets it
            meanwhile.
        progress: called as ``progress(what, done, of how many)``.

    Raises:
        CertificateError: for an attacked episode below its own certificate. ``counterexample.json`` in ``out`` then
            holds the seed, the radius, the threat and both returns, as the error itself does.
        AdvWrappersError: as :func:`adv_wrappers.certify` and :func:`adv_wrappers.evaluate`.
        ValueRangeError: without a radius, for one twice, and for a folder of other settings.

    >>> from adv_wrappers.certification.ranges import certified_ranges
    >>> how = {"attacks": ["pgd"], "max_nodes": 50, "env_kwargs": {"max_episode_steps": 50}}
    >>> found = certified_ranges("zoo:cartpole-ppo", "CartPole-v1", [0.02], 1, **how)
    >>> one = found.ranges[0]
    >>> bool((one.lower_returns <= one.upper_returns).all())
    True
    """
    radii = [*eps]
    if not radii or len(set(radii)) < len(radii):
        raise ValueRangeError(f"eps must be different radii, at least one, got {radii!r:.80}")
    if attacks is not None and (isinstance(attacks, str) or not attacks):
        raise ThreatError(f"attacks must be a list of names or texts, at least one, got {attacks!r:.80}")
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    # all that the folder's figures depend on: a call with other settings does not go on in it
    played_as: dict[str, Any] = {"episodes": episodes, "seed": seed, "quantize": quantize}
    search: dict[str, Any] = {"method": method, "budget_s": budget_s, "max_nodes": max_nodes, "max_boxes": max_boxes}
    about = {"victim": victim.described(), "env": json_value(environment.described), "scale": scale}
    settings: dict[str, Any] = json.loads(
        json.dumps({**about, **played_as, **search, "width": width, "versions": versions()})
    )
    folder = None if out is None else Path(out)
    is_known = victim.is_known and environment.is_known
    known = _read(folder, settings) if folder is not None and is_known else {}
    for item in attacks or ():
        if item != BEAM:
            _threat(item, Linf(radii[0], scale).resolve(victim))  # raises before anything is computed
    # every radius has a certificate, then the attacks on the same episodes
    done = dict(known)
    for radius in radii:
        budget, place = Linf(radius, scale).resolve(victim), None if folder is None else folder / f"eps-{radius:g}"
        one = known.get(radius)
        if one is None:
            least: dict[str, Any] = {"least_reward": least_reward, "least_return": least_return}
            found = certify(
                victim, environment, within=budget, num_envs=num_envs, progress=progress, **least, **played_as, **search
            )
            one = CertifiedRange(radius, found, {}, {})
            _write(folder, settings, done | {radius: one})
        # every attack as a threat within this budget; that of a beam search is searched for first
        chosen, left_out = _default_attacks(victim, environment, budget, quantize) if attacks is None else (attacks, {})
        threats = dict[str, ThreatModel]()
        for item in chosen:
            if item == BEAM:
                found_in = None if place is None else place / BEAM
                threats[BEAM] = beam_search(
                    victim, environment, width=width, within=budget, progress=progress, out=found_in, **played_as
                ).threat
            else:
                threats[item if isinstance(item, str) else item.label] = _threat(item, budget)
        # the same episodes, without an attack and under each
        report = evaluate(
            victim,
            environment,
            [*threats.values()],
            num_envs=num_envs,
            distances=(),
            **played_as,
            progress=progress,
            out=None if place is None else place / "attacks",
            resume=place is not None,
        )
        played = {name: row.returns for name, row in zip(("none", *threats), report.threats, strict=True)}
        for attack, returns in played.items():
            _check(one, attack, threats.get(attack), returns, draw_seeds(seed, episodes), settings, folder)
        played.pop("none")
        done[radius] = CertifiedRange(radius, one.certificate, {**one.attacks, **played}, {**one.left_out, **left_out})
        _write(folder, settings, done)
    # what holds within a radius holds within the smaller ones, and every attack is compared with that once more
    done = _with_larger_radii(done)
    for one in done.values():
        for attack, earned in one.attacks.items():
            _check(one, attack, None, earned, draw_seeds(seed, episodes), settings, folder)
    _write(folder, settings, done)
    return CertifiedRanges(settings, tuple(done[radius] for radius in radii))


def _with_larger_radii(done: Mapping[float, CertifiedRange]) -> dict[float, CertifiedRange]:
    """The same with lower bounds that are at least those of larger radii.

    What no attack within a radius does, none within a smaller one does. A search at a larger radius may find more,
    where it has less to follow: the worst sequence comes to its end sooner.
    """
    raised, best = dict[float, CertifiedRange](), None
    for radius in sorted(done, reverse=True):
        found = done[radius].certificate
        best = found.lower_returns if best is None else np.fmax(best, found.lower_returns)
        raised[radius] = replace(done[radius], certificate=replace(found, lower_returns=best))
    return raised


def _check(
    one: CertifiedRange,
    attack: str,
    threat: ThreatModel | None,
    returns: Sequence[float],
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    folder: Path | None,
) -> None:
    """Raise :class:`CertificateError`, after writing down the first of them, for an episode below its certificate."""
    lower = one.lower_returns
    below = np.asarray(returns) < lower - _ROUNDING * np.maximum(1.0, np.abs(lower))  # False where it is NaN
    if not below.any():
        return
    episode = int(np.flatnonzero(below)[0])
    try:
        form = None if threat is None else threat.to_dict()
    except ThreatError:
        form = None
    # what is needed to play the counterexample again is written down before the error ends everything
    example: dict[str, Any] = {
        "seed": int(seeds[episode]),
        "episode": episode,
        "eps": one.eps,
        "attack": attack,
        "threat": form,
        "attacked_return": float(returns[episode]),
        "certified_return": float(lower[episode]),
        "episodes_below": int(below.sum()),
        "settings": dict(settings),
    }
    where = ""
    if folder is not None:
        path = folder / _COUNTEREXAMPLE
        write_json(path, example, allow_nan=True)
        where = f"; {path} holds the counterexample"
    error = CertificateError(
        f"{attack} at eps={one.eps:g} leaves {returns[episode]:g} in the episode with seed {seeds[episode]}, below its "
        f"certified return of {lower[episode]:g}: the certificate does not hold, or more was attacked than it is "
        f"for{where}"
    )
    error.counterexample = example
    raise error


def _write(folder: Path | None, settings: Mapping[str, Any], done: Mapping[float, CertifiedRange]) -> None:
    if folder is not None:
        CertifiedRanges(settings, tuple(done[radius] for radius in sorted(done))).to_json(folder / _FILE)


def _read(folder: Path, settings: Mapping[str, Any]) -> dict[float, CertifiedRange]:
    """What a folder holds of a call with the same settings, by radius.

    Raises:
        ValueRangeError: for a folder of other settings, and for a file of another form.
    """
    path = folder / _FILE
    if not path.exists():
        return {}
    data = read_result(path)
    with decoding(path, ValueRangeError):
        theirs = dict(data["settings"])
        ranges = [CertifiedRange.from_dict(one) for one in data["ranges"]]
    check_same(folder, theirs, settings, "call's certified ranges")
    return {one.eps: one for one in ranges}


def _unit_text(scale: Any) -> str:
    return "the victim" if scale == "victim" else f"{scale}"
