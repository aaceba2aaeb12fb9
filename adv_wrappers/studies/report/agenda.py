"""What a report tries, in an order that does not depend on the time: each section looks at the rows so far.

Noise first, and a cheap attack that aims at the agent, at eps from small to large; then what is strongest for its
price, downwards while half of the return is lost; then what else may happen, and last what takes long.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from gymnasium import spaces

from adv_wrappers.certification.certify import certify
from adv_wrappers.core.budgets.budget import L0, Budget, Linf, Valid
from adv_wrappers.core.spaces import At
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.checked import with_place
from adv_wrappers.errors import AdvWrappersError, SpaceError
from adv_wrappers.evaluation.applicable_attacks import BEAM, why_no_beam
from adv_wrappers.evaluation.perturbed_samples import daylight_threats
from adv_wrappers.evaluation.searches.beam import WIDTH, beam_search
from adv_wrappers.studies.report.advised_training import advised_training, training_step_seconds
from adv_wrappers.studies.report.choices import CertifiedReturn, ReportChoices
from adv_wrappers.studies.report.eps_search import EpsSweep, broken_eps, half_return, lowest_up_to, strongest_by_eps
from adv_wrappers.studies.report.film import write_film, write_stills
from adv_wrappers.studies.report.observation_ranges import ObservationRanges
from adv_wrappers.studies.report.trials import NO_LOSS, SOME_LOSS, Trial, TrialPlayer, one_feature
from adv_wrappers.studies.report.verdict import is_whole
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath

Tell = Callable[[str], None]
_Try = tuple[str, Budget | None, str | None]  # an attack, its budget, and when it acts

# attacks on observations
_CHEAP = ("fgsm", "max-diff:steps=1", "square:queries=20", "noise")  # the first that fits sweeps first
_STRONG = ("fgsm", "max-diff", "momentum", "min-q", "multi-targeted", "apgd")  # next, downwards
_OTHERS = (  # at the eps of the sweep, cheapest first
    "noise", "fgsm", "max-diff", "momentum", "min-q", "multi-targeted", "pgd", "square:queries=100",
    "max-diff:noise=0,restarts=6,keep=best", "apgd", "hop-skip-jump:queries=100",
)  # fmt: skip
_FIRST_POINTS = 3  # of these eps that are played first, those around which the return falls
_CHANGES = ("noise", "discrete-search", "discrete-search:loss=divergence", "discrete-search:loss=q")  # of choices
_RATES = (0.05, 0.2, 0.5)  # of the steps, at which choices are changed, beside all of them
_OF_ITS_OWN = "episode search", "learned"  # attacks that were made for this agent, by a search or a training

# parts of observations and episodes
_MOST_FEATURES = 32  # that are attacked one by one
_LARGE = (0.3, 1.0)  # eps of single features, where that at which half is lost takes nothing from them
_WINDOWS = 5  # parts of an episode that are attacked one by one
_FEW = (1, 2, 5, 10, 20, 50)  # perturbations of an episode

# what fails without an attack
_MOST_STUCK = 12  # features, each of which sticks alone; of more, none does
_CHANNEL = (
    "observation-delay:steps=1", "observation-delay:steps=3", "observation-loss:rate=0.2", "action-delay:steps=1",
    "action-delay:steps=3",
)  # fmt: skip
_FAULTS = ("sensor-dropout:rate=0.1,fill=last", *_CHANNEL)
_DYNAMICS = {  # factors of what an environment has of these
    "mass": (0.7, 1.3), "density": (0.7, 1.3), "length": (0.7, 1.3), "friction": (0.5, 1.5), "damping": (0.5, 2.0),
    "gain": (0.8, 1.2), "gravity": (0.9, 1.1),
}  # fmt: skip

# searches over whole episodes: narrow ones go first, and find more at half the price
_FIRST_WIDTH = 8
_FIRST_EPISODES = 1
_FIRST_ROWS = 64  # observations that are attacked in the time of one
_ASCENTS: dict[str, Any] = {"steps": 4, "restarts": 1}
_TOGETHER, _MOST_EPISODES = 2, 10  # episodes that are searched side by side, and of a wide search
_ENDING = 3  # times that episodes take without an attack, which are kept for the end of their search
_SEARCHED = 3  # eps of a wide search, those around which the return falls first

# shares of the time that is left
_CHEAP_SHARE = 0.3  # for sweeps over eps
_STRONG_SHARE = 0.6  # for what is strongest for its price
_FIRST_SHARE = 0.75  # of that, for the narrow search
_TRY_SHARE = 0.6  # of a search, for one eps
_CERTIFIED_SHARE = 0.15
_FEATURES_SHARE = 0.25
_SEARCH_SHARE = 0.5
_TRAINING_SHARE = 0.8
_PRICE_SHARE, _PRICE_SECONDS = 0.25, 30.0  # of the time that is left, and at most, to time a training
# seconds
_LEAST_SEARCH = 1.5
_LEAST_TRAINING = 90.0
_LEAST_PRICE = 5.0

_CERTIFICATES = 4  # at most, from the smallest eps of the sweep, divided by _CERTIFIED_BELOW, on
_CERTIFIED_BELOW, _CERTIFIED_STEP = 50.0, 4.0
_SAMPLE_STEPS = 2048  # of a training, by which it is said how many steps there is time for
_USUAL_STEPS = 50_000  # of a training that there was no time for


def first_width(actions: int) -> int:
    """The width of the search that goes first: the ascents of a step, one to each other action, are of one batch."""
    width = _FIRST_WIDTH
    while 2 * width * max(actions - 1, 1) <= _FIRST_ROWS // 2:  # a beam keeps nearly twice its width
        width *= 2
    return width


class Agenda:
    """Plays a report section by section.

    Args:
        rows: what plays rows, the one without an attack already.
        ranges: what the agent sees.
        before: what an earlier call chose.
        swept: its rows on all features at all steps.
        tell: called with a sentence, whenever something else begins.

    Attributes:
        swept: the trials on all features at all steps.
        certificates, frames, film: what stands beside the rows.
        not_tried: what could not be tried, in sentences that say why.
        told_of: the parts of the observation of which there is a row, or a reason why there is none.
        advised: the training that is advised.
    """

    def __init__(
        self, rows: TrialPlayer, ranges: ObservationRanges, before: ReportChoices, swept: Sequence[Trial], tell: Tell
    ) -> None:
        self.rows = rows
        self.ranges = ranges
        self.tell = tell
        self.victim = rows.victim
        self.environment = rows.environment
        self.path = rows.out
        self.seed = rows.episodes.seed
        self.num_envs = rows.episodes.num_envs  # 1 where only one environment can be at a time
        self.deadline = rows.deadline
        # what was found so far, in this call and in those before
        self.clean = rows.clean.mean_return
        self.sweep, self.swept = EpsSweep(ranges, self.clean), [*swept]
        self.not_tried, self.told_of = [*ranges.unfit], set[At]()
        self.certificates = [*before.certificates]
        self.frames = before.frames
        self.film = before.film
        self._let_go()
        self.advised = advised_training(self.victim, self.environment, self.path.parent, self.seed)
        if before.training.by == self.advised.by:
            self.advised = replace(self.advised, seconds=before.training.seconds)

    def play(self) -> None:
        """Play everything, until the time is over."""
        for section in (
            partial(self._errors, self.ranges), self._strongest_first, self._other_parts, self._certify,
            self._price_of_hardening, self._changes_of_images, self._single_features, self._some_steps, self._actions,
            self._faults, self._dynamics, partial(self._sweep_others, _FIRST_POINTS), self._search, self._train,
            self._sweep_others,
        ):  # fmt: skip
            self._let_go()  # some sections make environments of their own
            with contextlib.suppress(OutOfTime):
                section()

    # What is known so far.

    def budget(self, eps: float) -> Linf:
        """The budget of an eps."""
        return Linf(eps, self.ranges.scale)

    @property
    def strongest(self) -> dict[float, Trial]:
        """By eps, the strongest trial on all features at all steps, those of an earlier call among them."""
        return strongest_by_eps(self.swept)

    @property
    def focus(self) -> float | None:
        """The least eps at which half of the return is lost, else the largest; None before the sweep."""
        return self._focus(self.strongest)

    def _focus(self, found: dict[float, Trial]) -> float | None:
        return broken_eps(self.clean, found) or max(found, default=None)

    @property
    def _half(self) -> float:
        """What is left where half of the return is lost, as far as is known."""
        return half_return(self.clean, (one.mean for one in self.strongest.values()))

    def _points(self) -> list[float]:
        """The eps of the sweep, those around which the return falls first."""
        half = self.focus or 1.0
        return sorted(self.strongest, key=lambda eps: abs(math.log(eps / half)))

    def _best_attack(self) -> tuple[str, float]:
        """The attack step by step that is the strongest, and an eps at which it takes much of the return."""
        found = strongest_by_eps(one for one in self.swept if one.attack.partition(":")[0] not in _OF_ITS_OWN)
        eps, focus = self._focus(found), self.focus
        if focus in found and found[focus].takes(SOME_LOSS):
            eps = focus
        assert eps is not None  # the sweep came first
        return found[eps].attack, eps

    # How rows are played.

    def _begin(self, purpose: str) -> None:
        """Say what is played from now on."""
        self.rows.purpose = purpose
        self.tell(purpose)

    def _at(self, attack: str, eps: float) -> Trial:
        """What an attack leaves at an eps, which may be known."""
        for trial in self.swept:
            if (trial.attack, trial.eps) == (attack, eps):
                return trial
        self.swept.append(self.rows.play(attack, self.budget(eps)))
        return self.swept[-1]

    def _try(self, attack: str, budget: Budget | None, when: str | None = None, at: At = None) -> Trial | None:
        """Play a row; None where it does not fit into the time, or does not apply, which is noted."""
        trial = None
        try:
            trial = self.rows.play(attack, budget, when, at=at)
        except OutOfTime:
            return None
        except AdvWrappersError as error:
            self._note(f"{attack} does not apply: {error}")
        self.told_of.add(at)
        return trial

    def _try_each(self, purpose: str, tries: Iterable[_Try]) -> None:
        """Play some rows."""
        self._begin(purpose)
        for one in tries:
            self._try(*one)

    def _note(self, why: str) -> None:
        """Say once what was not tried."""
        if why not in self.not_tried:
            self.not_tried.append(why)

    def _let_go(self) -> None:
        """Close the environments of rows where there may be only one; the next row makes one again."""
        if self.num_envs == 1:
            self.rows.close()

    # Errors of what the agent sees, over eps.

    def _errors(self, part: ObservationRanges) -> None:
        """What a part of the observations is attacked by first: other values of choices, else errors over eps."""
        if part.choices:
            self._changed_choices(part)
        else:
            self._sweep_part(part)

    def _sweep_part(self, part: ObservationRanges) -> None:
        """One row of noise, then the cheapest attack that aims at the agent; noise where that takes less than half."""
        own = part is self.ranges
        self._begin(f"errors of {part.words}{'' if own else ' alone'}, from small to large")
        sweep, swept = (self.sweep, self.swept) if own else (EpsSweep(part, self.clean), list[Trial]())
        # the cheapest attacks that can be aimed at this part
        reasons = {attack: self.rows.fits(attack, Linf(sweep.start, part.scale), part.at) for attack in _CHEAP}
        fitting = [attack for attack, reason in reasons.items() if reason is None]
        if not fitting:
            self.told_of.add(part.at)
            self._note(f"Nothing was tried on {part.words}: {reasons[_CHEAP[0]]}")
            return
        until = self.deadline.share(_CHEAP_SHARE)

        def look(attack: str, eps: float) -> Trial:
            if swept:
                until.check()
            trial = self.rows.play(attack, Linf(eps, part.scale), at=part.at)
            self.told_of.add(part.at)
            swept.append(trial)
            return trial

        # noise once, then the cheapest up and down the ladder, and noise over all eps where that one breaks nothing
        look(fitting[-1], sweep.start)
        for attack in dict.fromkeys((fitting[0], fitting[-1])):
            with contextlib.suppress(OutOfTime):
                self._over_eps(sweep, partial(look, attack), {}, all=True)
            if broken_eps(self.clean, strongest_by_eps(swept)):
                break
        if not own:
            self._over_eps(sweep, partial(look, fitting[0]), strongest_by_eps(swept), all=False)

    def _strongest_first(self) -> None:
        """What is strongest for its price, each attack from the eps found so far down to where it takes less than half.

        The search over whole episodes, where there can be one, then attacks of single steps, the cheapest first.
        """
        if not self.swept:
            return
        until = self.deadline.share(_STRONG_SHARE)
        if self._searchable():
            search = until.share(_FIRST_SHARE)
            self._begin("a narrow search over whole episodes, from the eps found so far downwards")

            def look(eps: float) -> Trial:
                # it asks whether half is lost: an episode that has earned as much says no
                self.swept.append(self._beam(self.budget(eps), search.share(_TRY_SHARE), below=self._half))
                return self.swept[-1]

            self._downwards(look)
        # then what is computed step by step, as long as one of them fits
        self.rows.purpose = "strong attacks"
        for attack, price in self._by_price(_STRONG, self.focus or 1.0):
            if price <= until.left:
                self.tell(f"{attack}, from the eps found so far downwards, about {price:.1f} s each")
                self._downwards(partial(self._at, attack))

    def _downwards(self, play: Callable[[float], Trial]) -> None:
        """Play at ever smaller eps than that at which half is lost so far, while there is time."""
        focus = self.focus
        assert focus is not None  # the sweep came first
        with contextlib.suppress(OutOfTime):
            known = {eps: trial for eps, trial in self.strongest.items() if eps >= focus}
            if self.strongest[focus].mean > self._half or self._half >= self.clean:
                known = {focus: play(focus)}
            self._over_eps(self.sweep, play, known, all=False)

    def _over_eps(
        self, sweep: EpsSweep, play: Callable[[float], Trial], known: dict[float, Trial], *, all: bool
    ) -> None:
        """Play an attack at one eps after another; ``known`` and ``all`` as for :meth:`EpsSweep.next`."""
        while (eps := sweep.next(known, all)) is not None:
            known = lowest_up_to([*known.items(), (eps, play(eps))])

    def _sweep_others(self, most: int | None = None) -> None:
        """Other attacks at the eps of the sweep, cheapest first; of so many eps at most."""
        if not self.swept:
            return
        self.rows.purpose = "another attack at the same eps"
        for attack, price in self._by_price(_OTHERS, self._points()[0]):
            # at the eps that it has not been played at
            played = {trial.eps for trial in self.swept if trial.attack == attack}
            left = [eps for eps in self._points()[:most] if eps not in played]
            # an attack that does not fit is noted once, with what it would take
            if left and not self.rows.has_time_for(price):
                if not any(threat == attack for threat, _ in self.rows.left_out):
                    self.tell(f"{attack} does not fit, about {price:.0f} s each")
                    self.rows.leave_out(attack, price * len(left))
            elif left:
                self.tell(f"{attack} at {len(left)} eps, about {price:.1f} s each")
                for eps in left:
                    with contextlib.suppress(OutOfTime):
                        self._at(attack, eps)
                self._downwards(partial(self._at, self._best_attack()[0]))

    def _by_price(self, attacks: Sequence[str], eps: float) -> list[tuple[str, float]]:
        """Those attacks that can be aimed at the agent, with the seconds of a row, the cheapest first."""
        prices = dict[str, float]()
        for attack in attacks:
            try:
                prices[attack] = self.rows.price(attack, self.budget(eps))
            except AdvWrappersError as error:
                self._note(f"{attack} does not apply: {error}")
        return sorted(prices.items(), key=lambda item: (item[0] != "noise", item[1]))

    # Searches over whole episodes.

    def _searchable(self) -> bool:
        """Whether there is time to search whole episodes, and they can be searched."""
        return not self.deadline.passed and self._why_no_search is None and _SEARCHED > 0

    @cached_property
    def _why_no_search(self) -> str | None:
        """Why whole episodes cannot be searched, which is noted; or None."""
        self._let_go()
        why = why_no_beam(self.victim, self.environment, self.budget(self.sweep.ladder[0]), self.ranges.at)
        if why is not None:
            self._note(f"A search over whole episodes does not apply: {why}")
        return why

    def _beam(
        self, budget: Linf, until: Deadline, part: str = "", *, wide: bool = False, below: float = math.inf
    ) -> Trial:
        """What a search over whole episodes finds under a budget, in those that it came to before ``until``.

        Raises:
            OutOfTime: where there is too little time to begin.
        """
        episodes, eps = self.rows.episodes, budget.eps
        # narrow searches are of one episode, wide ones of several
        count = min(episodes.count, _MOST_EPISODES if wide else _FIRST_EPISODES)
        assert isinstance(self.victim.action_space, spaces.Discrete)
        width = WIDTH if wide else first_width(int(self.victim.action_space.n))
        # episodes whose search was cut short are played to their end, and then all of them for the row
        after = _ENDING * self.rows.clean.ms_per_step / 1000 * sum(self.rows.clean.lengths[:count])
        until = Deadline(min(until.left, self.deadline.left - after))
        if until.left < _LEAST_SEARCH:
            raise OutOfTime
        self._let_go()
        found = beam_search(
            self.victim, self.environment, None, count, episodes.seed, width, within=budget, at=self.ranges.at,
            out=self.path / f"beam-{eps:.4g}-width{width}{part}",
            together=_TOGETHER, until=until, below=below, **({} if wide else _ASCENTS),
        )  # fmt: skip
        return self.rows.play(found.threat, label=BEAM, episodes=len(found.seeds))

    def _search(self) -> None:
        """Searches over whole episodes at their usual width, for a share of the time that is left."""
        if not self.swept or not self._searchable():
            return
        self._begin("a search over whole episodes")
        until = self.deadline.share(_SEARCH_SHARE)
        for eps in self._points()[:_SEARCHED]:
            began = time.monotonic()
            with contextlib.suppress(OutOfTime):
                self.swept.append(self._beam(self.budget(eps), until, wide=True))
            # how long a whole search would take is known from this one
            if until.passed:
                self.rows.leave_out(BEAM, 2 * (time.monotonic() - began) + 60)
                return

    # Parts of the observations, of an episode, and few of its steps.

    def _other_parts(self) -> None:
        """The other parts of a Dict or Tuple, each under a budget of its own."""
        for part in self.ranges.others:
            with contextlib.suppress(OutOfTime):
                self._errors(part)

    def _changed_choices(self, part: ObservationRanges) -> None:
        """Other values of what has no distances, from one entry to all, at some of the steps and at all of them."""
        assert part.choices is not None
        self._begin(f"other values of {part.words}")
        # one entry, two, four, eight, all of them
        counts = [*(L0(k) for k in (1, 2, 4, 8) if k < len(part.choices)), Valid()]
        attacks = [attack for attack in _CHANGES if self.victim.kind == "q" or not attack.endswith("loss=q")]
        tried = [self._try(attack, budget, at=part.at) for attack in attacks for budget in counts]
        # the strongest at some of the steps alone
        worst = min(filter(None, tried), key=lambda trial: trial.mean, default=None)
        if worst is not None and worst.takes(NO_LOSS):
            for when in (*(f"bernoulli({rate})" for rate in _RATES), *self._timings()):
                self._try(worst.attack, Valid(), when, part.at)

    def _single_features(self) -> None:
        """Errors in one feature alone: of the size at which half is lost, or larger ones where these take nothing."""
        scale, focus = self.ranges.scale, self.focus
        if scale is None or focus is None:
            return
        changing = [i for i, unit in enumerate(scale) if unit > 0]
        if len(changing) > _MOST_FEATURES:
            self._note(f"Of {len(changing)} features the first {_MOST_FEATURES} were tried alone.")
        # from the size at which half is lost upwards, until a feature alone takes something
        attack, _ = self._best_attack()
        self.rows.purpose = "errors in single features"
        trials = dict[int, Trial]()  # by feature, the worst
        for eps in [focus, *(eps for eps in _LARGE if eps > focus)]:
            self.tell(f"{self.rows.purpose}, by {attack}, at eps {eps:.3g}")
            for i in changing[:_MOST_FEATURES]:
                if (trial := self._try(attack, one_feature(self.budget(eps), i, scale))) is not None:
                    trials[i] = min(trial, trials.get(i, trial), key=lambda one: one.mean)
            if any(trial.takes(SOME_LOSS) for trial in trials.values()):
                break
        if not self._searchable():
            return
        # the same by searches at the last of these sizes, what hurts most first
        self.tell(f"{self.rows.purpose}, by a narrow search over whole episodes")
        until = self.deadline.share(_FEATURES_SHARE)
        for i in sorted(trials, key=lambda i: trials[i].mean):
            with contextlib.suppress(OutOfTime):
                self._beam(one_feature(self.budget(eps), i, scale), until.share(_TRY_SHARE), f"-feature{i}")

    def _timings(self) -> list[str]:
        """Timings of few steps, and of the parts of an episode; none of a short one."""
        length = round(self.rows.clean.mean_length)
        edges = [length * i // _WINDOWS for i in range(_WINDOWS + 1)] if length >= 2 * _WINDOWS else []
        windows = [f"window({start},{end})" for start, end in itertools.pairwise(edges)]
        return [*windows, *(f"atmost({count})" for count in _FEW if count < length)]

    def _some_steps(self) -> None:
        """The strongest attack in parts of an episode, and in few of its steps."""
        if self.swept:
            attack, eps = self._best_attack()
            tries = ((attack, self.budget(eps), when) for when in self._timings())
            self._try_each("parts of an episode, and few perturbations", tries)

    # What fails without an attack on observations.

    def _changes_of_images(self) -> None:
        images = [part for part in (self.ranges, *self.ranges.others) if part.image]
        if not images:
            return
        self._begin("changes of images: brightness, blur, rotation, shift, JPEG, perspective")
        # every transform on every image
        threats = daylight_threats(self.environment.name)
        for image, threat in itertools.product(images, threats):
            self._try(threat, None, at=image.at)
        if not self.swept:
            return
        # pictures of one step under some of the threats, and a short film under the strongest
        attack, eps = self._best_attack()
        strongest = parse_threat(attack, within=self.budget(eps), at=self.ranges.at)
        made = (self.path, self.victim, self.environment)
        self._let_go()
        with contextlib.suppress(AdvWrappersError):
            if not self.frames:
                self.frames = write_stills(*made, [strongest, *threats[:2]], self.seed)
            if not self.film:
                self.film = write_film(*made, strongest, self.seed, self.deadline)

    def _actions(self) -> None:
        space, tries = self.victim.action_space, list[tuple[Linf | None, str | None]]()
        if not isinstance(space, spaces.Box):
            tries = [(None, f"bernoulli({p})") for p in (0.05, 0.2)]
        elif np.isfinite(width := float(np.min(np.asarray(space.high, np.float64) - space.low))):
            tries = [(Linf(share * width / 2), None) for share in (0.1, 0.3)]
        self._try_each("actions", ((attack, *one) for attack in ("action-noise", "worst-action") for one in tries))

    def _faults(self) -> None:
        """Sensors and channels that fail: off by the size at which half of the return is lost, stuck, late or lost."""
        names, tries = self.ranges.names, list[_Try]()
        # errors of the size at which half of the return is lost
        if self.focus is not None:
            half, budget = max(round(self.rows.clean.mean_length) // 2, 1), self.budget(self.focus)
            tries = [("sensor-bias", budget, None), (f"sensor-drift:steps={half}", budget, None)]
        elif not self.ranges.choices:
            return
        stuck = [f"stuck-sensor:features={i}" for i in range(len(names))] if len(names) <= _MOST_STUCK else []
        stuck = ["stuck-sensor"] if len(names) == 1 else stuck
        tries += [(text, None, None) for text in (*stuck, *(_CHANNEL if self.ranges.choices else _FAULTS))]
        self._try_each("faults of sensors and channels", tries)

    def _dynamics(self) -> None:
        """Another body and another world, from the first step on: each kind of parameter smaller and larger."""
        try:
            with contextlib.closing(self.environment.make_one()) as env:
                groups = {name.partition(".")[0] for name in dynamics_beneath(env).names}
        except SpaceError as error:
            self._note(f"Its body and its world were left as they are: {error}.")
            return
        changes = [(group, factor) for group, factors in _DYNAMICS.items() for factor in factors if group in groups]
        tries = [(f"fixed-dynamics:values={factor:g},at={group}", None, None) for group, factor in changes]
        self._try_each("another body, another world", tries)

    # What stands beside the rows, and adversaries that are trained.

    def _certify(self) -> None:
        """What is proved, from far below the smallest eps of the sweep on, until something may be lost."""
        share = self.deadline.share(_CERTIFIED_SHARE)
        if self.ranges.image:
            self._note("Nothing is certified: of agents that see images it takes longer: adv-wrappers certify")
        if self.ranges.image or self.certificates or share.passed or not self.swept:
            return
        self._begin("what can be proved")
        # from far below what was seen to take anything, in steps, each with its share of the time
        eps, count = min(self.strongest) / _CERTIFIED_BELOW, min(self.rows.episodes.count, 3)
        for _ in range(_CERTIFICATES):
            eps = float(f"{eps:.2g}")
            try:
                found = certify(
                    self.victim, self.environment, within=self.budget(eps), episodes=count, seed=self.seed,
                    budget_s=max(share.left / _CERTIFICATES / count, 0.1),
                )  # fmt: skip
            except AdvWrappersError as error:
                self._note(f"Nothing is certified: {error}")
                return
            # what is proved at this eps, and on to a larger one as long as nothing may be lost
            if (proved := CertifiedReturn.of(found, eps)) is None:
                return
            self.certificates.append(proved)
            if share.passed or not is_whole(found.lower, found.clean):
                return
            eps *= _CERTIFIED_STEP

    def _price_of_hardening(self) -> None:
        """What a step of the training takes that will be advised, where the agent loses something."""
        focus, advised = self.focus, self.advised
        until = Deadline(min(_PRICE_SECONDS, _PRICE_SHARE * self.deadline.left))
        if focus is None or not self.strongest[focus].takes(NO_LOSS) or until.left < _LEAST_PRICE:
            return
        if advised.by and advised.seconds is None and self.victim.ref is not None:
            self.tell(f"what a training against this takes ({advised.by})")
            made = (self.victim, self.environment, self.budget(focus), until, self.num_envs)
            self.advised = replace(advised, seconds=training_step_seconds(advised.by, *made))

    def _train(self) -> None:
        """An adversary that is trained in the time that is left, after a short one that tells how long a step takes."""
        focus = self.focus
        if focus is None:
            return
        if self.num_envs == 1:
            self._note("No adversary is trained: that takes more than one environment at a time.")
            return
        self._begin("an adversary that is trained")
        # a short training tells how many steps fit into the time, and a longer one goes on from it
        budget, began = self.budget(focus), time.monotonic()
        kind = "pa-ad" if self.victim.differentiable else "sa-rl"
        try:
            if self.deadline.left >= _LEAST_TRAINING and importlib.util.find_spec("stable_baselines3") is not None:
                self._trained(kind, _SAMPLE_STEPS, budget)
                each = (time.monotonic() - began) / _SAMPLE_STEPS
                times = max(int(_TRAINING_SHARE**2 * self.deadline.left / each // _SAMPLE_STEPS), 2)
                self.tell(f"{_SAMPLE_STEPS * times:,} steps of {kind}")
                threat = self._trained(kind, _SAMPLE_STEPS * times, budget)
                self.swept.append(self.rows.play(threat, label=kind))
                return
        except OutOfTime:
            pass
        except Exception as error:  # whatever so many environments of a user raise; what was played is kept
            why = error if isinstance(error, AdvWrappersError) else with_place(error)
            self._note(f"No adversary ({kind}) was trained to the end: {why}")
        self.rows.leave_out("pa-ad", 2 * _LEAST_TRAINING + _USUAL_STEPS * 4 * self.ranges.seconds)

    def _trained(self, kind: str, steps: int, budget: Linf) -> ThreatModel:
        """An adversary after some steps of training; :class:`OutOfTime` where it takes most of the time."""
        from adv_wrappers.training.adversary import train_adversary

        until, seed = self.deadline.share(_TRAINING_SHARE), self.seed + 1
        found = train_adversary(
            kind, self.environment, self.victim, steps=steps, within=budget, checks=1 if steps == _SAMPLE_STEPS else 5,
            episodes=min(self.rows.episodes.count, 10), seed=seed, out=self.path / f"{kind}-{steps}-seed{seed}",
            num_envs=self.num_envs, progress=until.check, on_episode=until.check,
        )  # fmt: skip
        return ThreatModel("observation", found, budget)
