"""Certificates beside attacks: between the two lies the worst case, on the same episodes.

Attacks bound from above what an agent keeps in the worst case, certificates from below. The paper of the certificates
here (Oikarinen et al. 2020) shows both, but no lower bound that holds for all attacks; GWC is an estimate, and in its
Table 1 an attack falls below it. Here every episode is certified and attacked from the same start. An attacked episode
below its own certificate would mean that one of the two is wrong, and stops everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from adv_wrappers.certification.certificate import certify, check_budget_s
from adv_wrappers.certification.ranges_report import CertifiedRange, CertifiedRanges
from adv_wrappers.core.arithmetic import Scale
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import JSON
from adv_wrappers.errors import CertificateError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.beam import WIDTH, beam_search
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.evaluation.episodes import MOST_EPISODES, draw_seeds
from adv_wrappers.evaluation.evaluate import evaluate
from adv_wrappers.evaluation.provenance import versions
from adv_wrappers.evaluation.untrained_attacks import (
    BEAM,
    UNTRAINED,
    check_no_budget,
    untrained_threat,
    why_no_beam,
    why_untrained_excluded,
)
from adv_wrappers.presets import parse_threat, threat
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.numbers import integer, number
from adv_wrappers.utils.precision import full_precision
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.possible import Method
from adv_wrappers.wrappers.base import as_float

Progress = Callable[[str, int, int], None]
_ROUNDING = 1e-9  # of sums of rewards in another order, relatively
_FILE, _COUNTEREXAMPLE = "ranges.json", "counterexample.json"


@dataclass
class _Runner:
    """What does not change from radius to radius."""

    victim: Victim
    environment: Environment
    episodes: int
    seed: int
    attacks: Sequence[str | ThreatModel] | None
    width: int
    quantize: bool
    num_envs: int | None
    progress: Progress | None
    left_out: dict[str, str] = field(default_factory=dict)

    def threats(self, budget: Budget, folder: Path | None) -> dict[str, ThreatModel]:
        """The attacks within a budget by their names; those of the default that do not apply are left out."""
        chosen: Sequence[str | ThreatModel] = self.attacks if self.attacks is not None else (*UNTRAINED, BEAM)
        seen, acted = self.environment.spaces_for(self.victim)
        seen = seen if self.quantize else as_float(seen, threat("noise", within=budget))
        found, self.left_out = dict[str, ThreatModel](), {}
        for item in chosen:
            name = item if isinstance(item, str) else item.label
            reason = None
            if self.attacks is None and name in UNTRAINED:
                reason = why_untrained_excluded(name, self.victim, budget, seen, acted)
            elif self.attacks is None:
                reason = why_no_beam(self.victim, self.environment, budget)
            if reason is not None:
                self.left_out[name] = reason
            elif name == BEAM:
                found[name] = beam_search(
                    self.victim,
                    self.environment,
                    None,
                    self.episodes,
                    self.seed,
                    self.width,
                    within=budget,
                    quantize=self.quantize,
                    progress=self.progress,
                    out=None if folder is None else folder / BEAM,
                ).threat
            else:
                found[name] = self.threat(item, budget)
        return found

    def threat(self, item: str | ThreatModel, budget: Budget) -> ThreatModel:
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

    def returns(self, threats: Mapping[str, ThreatModel], folder: Path | None) -> dict[str, list[float]]:
        """The returns of the same episodes under each attack, and under ``none``."""
        report = evaluate(
            self.victim,
            self.environment,
            [*threats.values()],
            self.episodes,
            self.seed,
            self.num_envs,
            distances=(),
            quantize=self.quantize,
            progress=self.progress,
            out=None if folder is None else folder / "attacks",
            resume=folder is not None,
        )
        return {name: row["returns"] for name, row in zip(("none", *threats), report.threats, strict=True)}


@holding
@full_precision()  # of attacks too: they are played by the agent that is certified
def certified_ranges(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: Sequence[float],
    episodes: int = 10,
    seed: int = 0,
    method: Method = "crown",
    budget_s: float | None = 10.0,
    *,
    scale: Scale = None,
    attacks: Sequence[str | ThreatModel] | None = None,
    least_reward: float | None = None,
    least_return: float | None = None,
    max_nodes: int | None = 1_000_000,
    max_boxes: int | None = None,
    width: int = WIDTH,
    num_envs: int | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    quantize: bool = True,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> CertifiedRanges:
    """Certify and attack the same episodes, at every radius of an l-infinity ball around the observations.

    Args:
        victim, env, episodes, seed, num_envs, env_kwargs, make, quantize: as for :func:`adv_wrappers.evaluate`.
        eps: the radii, in the units of the observation or of ``scale``.
        method, budget_s, least_reward, least_return, max_nodes, max_boxes: as for :func:`adv_wrappers.certify`, for the
            certificate of each radius. Attacks take their time besides.
        scale: of :class:`adv_wrappers.Linf`.
        attacks: names of the attacks without training (those of :func:`adv_wrappers.campaign.standard`), ``"beam"``,
            and any other threat as a text without a budget, such as ``"pgd:steps=50"`` or ``"learned:card=FOLDER"``;
            also threats with budgets of their own, which are then at most the radii. None takes all attacks without
            training that apply.
        width: of the beam (:func:`adv_wrappers.evaluation.beam.beam_search`).
        out: a folder for ``ranges.json``, what is found as it comes, and everything that was played. The same call goes
            on after an interruption; radii and attacks may be added. No other process gets it meanwhile.
        progress: called as ``progress(what, done, of how many)``.

    Raises:
        CertificateError: for an attacked episode below its own certificate. ``counterexample.json`` in ``out`` then
            holds the seed, the radius, the threat and both returns, as the error itself does.
        AdvWrappersError: as :func:`adv_wrappers.certify` and :func:`adv_wrappers.evaluate`.
        ValueRangeError: without a radius, for one twice, and for a folder of other settings.

    >>> from adv_wrappers.certification.sandwich import certified_ranges
    >>> found = certified_ranges("zoo:cartpole-ppo", "CartPole-v1", [0.02], 2, attacks=["pgd"], max_nodes=500)
    >>> one = found.ranges[0]
    >>> bool((one.lower_returns <= one.upper_returns).all())
    True
    """
    radii = [number("eps", value, 0) for value in eps]
    if not radii or len(set(radii)) < len(radii):
        raise ValueRangeError(f"eps must be different radii, at least one, got {list(eps)!r:.80}")
    episodes, seed = integer("episodes", episodes, 1, MOST_EPISODES), integer("seed", seed, 0)
    width = integer("width", width, 1)
    check_budget_s(budget_s)
    if attacks is not None and (isinstance(attacks, str) or not attacks):
        raise ThreatError(f"attacks must be a list of names or texts, at least one, got {attacks!r:.80}")
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    settings: dict[str, JSON] = json.loads(
        json.dumps(
            {
                "victim": victim.described(),
                "env": json_value(environment.described),
                "scale": scale,
                "episodes": episodes,
                "seed": seed,
                "method": method,
                "budget_s": budget_s,
                "max_nodes": max_nodes,
                "max_boxes": max_boxes,
                "width": width,
                "quantize": bool(quantize),
                "versions": versions(),
            }
        )
    )
    folder = None if out is None else Path(out)
    is_known = victim.is_known and environment.is_known
    known = _read(folder, settings) if folder is not None and is_known else {}
    runner = _Runner(victim, environment, episodes, seed, attacks, width, quantize, num_envs, progress)
    for item in attacks or ():
        if item != BEAM:
            runner.threat(item, Linf(radii[0], scale).resolve(victim))  # raises before anything is computed
    done = dict(known)
    for radius in radii:
        budget, place = Linf(radius, scale).resolve(victim), None if folder is None else folder / f"eps-{radius:g}"
        one = known.get(radius)
        if one is None:
            found = certify(
                victim,
                environment,
                None,
                episodes,
                seed,
                method,
                budget_s,
                within=budget,
                least_reward=least_reward,
                least_return=least_return,
                max_nodes=max_nodes,
                max_boxes=max_boxes,
                num_envs=num_envs,
                quantize=quantize,
                progress=progress,
            )
            one = CertifiedRange(radius, json.loads(json.dumps(found.to_dict())), {}, {})
            _write(folder, settings, done | {radius: one})
        threats = runner.threats(budget, place)
        played = runner.returns(threats, place)
        for attack, returns in played.items():
            _check(one, attack, threats.get(attack), returns, draw_seeds(seed, episodes), settings, folder)
        played.pop("none")
        done[radius] = CertifiedRange(
            radius, one.certificate, {**one.attacks, **played}, {**one.left_out, **runner.left_out}
        )
        _write(folder, settings, done)
    done = _with_larger_radii(done)
    for one in done.values():
        for attack, earned in one.attacks.items():
            _check(one, attack, None, earned, draw_seeds(seed, episodes), settings, folder)
    _write(folder, settings, done)
    return CertifiedRanges(settings, tuple(done[radius] for radius in radii))


def _with_larger_radii(done: Mapping[float, CertifiedRange]) -> dict[float, CertifiedRange]:
    """The same with lower bounds as good as those at larger radii: what no attack of these does, no smaller one does.

    A search at a larger radius may find more, where it has less to follow: the worst sequence comes to its end sooner.
    """
    found, best = dict(done), None
    for radius in sorted(done, reverse=True):
        one = done[radius]
        best = one.lower_returns if best is None else np.fmax(best, one.lower_returns)
        if not np.array_equal(best, one.lower_returns, equal_nan=True):
            returns = [None if np.isnan(value) else value for value in best.tolist()]
            mean = None if None in returns else float(best.mean())
            found[radius] = replace(one, certificate={**one.certificate, "lower_returns": returns, "lower": mean})
    return found


def _check(
    one: CertifiedRange,
    attack: str,
    threat: ThreatModel | None,
    returns: Sequence[float],
    seeds: Sequence[int],
    settings: Mapping[str, JSON],
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
    example: dict[str, JSON] = {
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
        write(path, (json.dumps(example, indent=1) + "\n").encode())
        where = f"; {path} holds the counterexample"
    error = CertificateError(
        f"{attack} at eps={one.eps:g} leaves {returns[episode]:g} in the episode with seed {seeds[episode]}, below its "
        f"certified return of {lower[episode]:g}: the certificate does not hold, or more was attacked than it is for"
        f"{where}"
    )
    error.counterexample = example
    raise error


def _write(folder: Path | None, settings: Mapping[str, JSON], done: Mapping[float, CertifiedRange]) -> None:
    if folder is not None:
        CertifiedRanges(settings, tuple(done[radius] for radius in sorted(done))).to_json(folder / _FILE)


def _read(folder: Path, settings: Mapping[str, JSON]) -> dict[float, CertifiedRange]:
    """What a folder holds of a call with the same settings, by radius.

    Raises:
        ValueRangeError: for a folder of other settings, and for a file of another form.
    """
    path = folder / _FILE
    if not path.exists():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        theirs = data["settings"]
        ranges = [
            CertifiedRange(float(one["eps"]), one["certificate"], one["attacks"], one["left_out"])
            for one in data["ranges"]
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueRangeError(f"cannot read certified ranges from {path}: {error}") from error
    apart = sorted(key for key in {*theirs, *settings} if theirs.get(key) != settings.get(key))
    if apart:
        said = ", ".join(f"{key} {theirs.get(key)!r:.60} and not {settings.get(key)!r:.60}" for key in apart)
        raise ValueRangeError(f"{folder} holds certified ranges with {said}: give another folder, or what it has")
    return {one.eps: one for one in ranges}
