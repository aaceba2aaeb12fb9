"""report: how an agent breaks, found in a given time, and the page that says it."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium import spaces

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.certification.certificate import certify
from adv_wrappers.core.budgets import L0, Budget, Linf, Valid
from adv_wrappers.core.spaces import At, keys_in
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.environments.checked import with_place
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv, json_value
from adv_wrappers.errors import (
    AdvWrappersError,
    SpaceError,
    ValueRangeError,
)
from adv_wrappers.evaluation.applicable_attacks import BEAM, why_no_beam
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.report import Report
from adv_wrappers.evaluation.report_warnings import other_environment
from adv_wrappers.evaluation.return_range import lowest_return
from adv_wrappers.evaluation.searches.beam import WIDTH, beam_search
from adv_wrappers.evaluation.store import ROWS_FILE, Store
from adv_wrappers.evaluation.threat_comparison import daylight_threats
from adv_wrappers.studies.report.choices import CertifiedReturn, ReportChoices, Untried, read_choices, write_choices
from adv_wrappers.studies.report.eps_search import NO_LOSS, EpsSweep, half_return, halving_eps, strongest_by_eps
from adv_wrappers.studies.report.film import write_film, write_stills
from adv_wrappers.studies.report.hardening import advised_training, training_step_seconds
from adv_wrappers.studies.report.observation_ranges import ObservationRanges, observed_ranges
from adv_wrappers.studies.report.page import PAGE_FILE, write_page
from adv_wrappers.studies.report.sections import AgentSections, AttackRow, report_of, sorted_report
from adv_wrappers.studies.report.trials import Trial, TrialPlayer, grouped_by_attack, one_feature
from adv_wrappers.studies.report.verdict import GREY_LEVELS, SOME_LOSS, Verdict, is_whole, verdict
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.utils.deadline import Deadline, OutOfTime
from adv_wrappers.utils.files import LOCK, holding
from adv_wrappers.utils.limits import EnvCount, EpisodeCount, Limits, Seed, Workers, checked
from adv_wrappers.utils.parsing import duration
from adv_wrappers.utils.processes import check_workers
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.perturb_dynamics import dynamics_beneath

_RESERVE = 3.0  # seconds that are kept for the page, before it is known how long one takes
_SHORT = 100  # steps of an episode, in the advice where the time is over before one is
_PAGE_EVERY = 20.0  # seconds between two pages of what is known so far
_PAGES = 1.5  # times that the last page took, which are kept for the next
_RANGES_SHARE = 0.05  # of the time, for the clean episodes that budgets are chosen by
_FIRST_EPISODE_SHARE = 0.5  # of the time, within which the first episode ends
_LEAST_CLEAN = 5.0  # seconds for what is played without an attack, should the time be over when it begins
_CLEAN_SHARE = 0.2  # of the time that is left, for the row without an attack: others take as long
_ROW_SECONDS = 2.0  # of a row under a cheap attack, which decides how many episodes a row has
_MANY, _ROW_SHARE = 10, 0.005  # episodes beyond which such a row takes at most this share of the time; a wide search
# has no more
_COUNTS = (30, 20, 10, 5, 3)  # episodes of a row
_IMAGE_COUNTS = (10, 5, 3, 2)
_MOST_FEATURES = 32  # that are attacked one by one
_LARGE = (0.3, 1.0)  # eps of single features, where that at which half is lost takes nothing from them
_WINDOWS = 5  # parts of an episode that are attacked one by one
_FEW = (1, 2, 5, 10, 20, 50)  # perturbations of an episode
_CERTIFIED_SHARE = 0.15  # of the time that is left, for certificates
_CERTIFICATES = 4  # at most, from the smallest eps of the sweep, divided by _CERTIFIED_BELOW, on
_CERTIFIED_BELOW, _CERTIFIED_STEP = 50.0, 4.0
_PRICE_SHARE, _PRICE_SECONDS, _LEAST_PRICE = 0.05, 30.0, 5.0  # of the time, and seconds at most and at least, to
# time the training that will be advised in
_MOST_STUCK = 12  # features, each of which sticks alone; of more, none does
_DYNAMICS = {  # factors of what an environment has of these
    "mass": (0.7, 1.3), "density": (0.7, 1.3), "length": (0.7, 1.3), "friction": (0.5, 1.5), "damping": (0.5, 2.0),
    "gain": (0.8, 1.2), "gravity": (0.9, 1.1),
}  # fmt: skip
_CHANNEL = (
    "observation-delay:steps=1", "observation-delay:steps=3", "observation-loss:rate=0.2", "action-delay:steps=1",
    "action-delay:steps=3",
)  # fmt: skip
_FAULTS = ("sensor-dropout:rate=0.1,fill=last", *_CHANNEL)
_CHANGES = ("noise", "discrete-search", "discrete-search:loss=divergence", "discrete-search:loss=q")  # of choices
_RATES = (0.05, 0.2, 0.5)  # of the steps, at which choices are changed, beside all of them
_FIRST_WIDTH, _FIRST_EPISODES = 8, 1  # of the search that goes first: a wider one of fewer finds more
_FIRST_ROWS = 64  # observations that are attacked in the time of one
_TOGETHER = 2  # episodes that are searched side by side: more take longer before the first is known
_ASCENTS: dict[str, Any] = {"steps": 4, "restarts": 1}  # of a narrow search: half the price, and hardly weaker
_FIRST_SHARE = 0.75  # of the time for strong attacks, for that search
_TRY_SHARE = 0.6  # of the time that is left for a narrow search, at one eps
_FAR = 1.5  # times half of the return, from which on an attack that takes it is tried at an eps much smaller
_ENDING = 3  # times that episodes take without an attack, which are kept for the end of their search
_LEAST_SEARCH = 1.5  # seconds, below which none begins
_FEATURES_SHARE = 0.25  # of the time that is left, for searches of errors in single features
_SEARCHED = 3  # eps at which whole episodes are searched, those around which the return falls first
_SEARCH_SHARE = 0.5  # of the time that is left, for a search before an adversary is trained
_LEAST_TRAINING = 90.0  # seconds below which no adversary is trained
_TRAINING_SHARE = 0.8  # of the time that is left, for a training
_SAMPLE_STEPS = 2048  # of a training, by which it is said how many steps there is time for
_USUAL_STEPS = 50_000  # of a training that there was no time for
_CHEAP = ("fgsm", "max-diff:steps=1", "square:queries=20", "noise")  # the first that fits sweeps first
_CHEAP_SHARE = 0.3  # of the time that is left, for that
_STRONG = ("fgsm", "max-diff", "momentum", "min-q", "multi-targeted", "apgd")  # next, downwards
_STRONG_SHARE = 0.6  # of the time that is left, for these and for the search that goes before them
_QUICK = ("noise", "fgsm", "max-diff", "momentum", "min-q")
_QUICK_POINTS = 3  # eps of a quick attack before single features, parts of an episode and faults have their turn
_THOROUGH = (
    "multi-targeted", "pgd", "square:queries=100", "max-diff:restarts=6,keep=best,noise=0", "apgd",
    "hop-skip-jump:queries=100",
)  # fmt: skip
_TRAINED = "pa-ad", "sa-rl"
_THOROUGH_POINTS = 5  # eps of a thorough attack, those around which the return falls first

Tell = Callable[[str], None]


@dataclass(frozen=True)
class AgentReport:
    """What :func:`report` found.

    Attributes:
        folder: holds ``rows.db``, ``choices.json``, ``report.json`` and the page.
        page: the page.
        report: every row that was played.
        choices: what was chosen and why.
        verdict: what the rows say.
    """

    folder: Path
    page: Path
    report: Report
    choices: ReportChoices
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.verdict.sentence}\n{self.page}"


@checked
@holding
def report(
    victim: Victim | str,
    env: AnyEnvironment,
    minutes: Annotated[float, Limits(0.02, 1e5)] = 5.0,
    *,
    out: str | Path = "adv_report",
    episodes: EpisodeCount | None = None,
    seed: Seed = 0,
    device: torch.device | str | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    workers: Workers = 1,
    num_envs: EnvCount | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    tell: Tell | None = print,
    command: str | None = None,
    began: float | None = None,
) -> AgentReport:
    """Find out how an agent breaks, in a given time, and write a page that says it.

    What is tried is chosen by what the agent sees and how long things take, in an order that does not depend on the
    time: noise, and a cheap attack that aims at the agent, on observations from no effect to half of the return; what
    is strongest for its price, a narrow search over whole episodes where states can be saved and attacks of single
    steps, downwards while half of the return is lost; certificates where there are any; changes of images; single
    features; other attacks at the same sizes; parts of an episode, few perturbations; actions; faults; thorough
    attacks; searches; and an adversary that is trained. A search whose time is over keeps the episodes that it came to,
    and its row says how many these are. With more time the same order goes further. Rows are kept as they come: the
    same call, with more minutes, goes on where it ended, and with fewer it keeps what is there. Where episodes take
    long, a row has fewer of them.

    Args:
        victim: the agent, or a reference such as ``"sb3:model.zip"``.
        env: the id of the environment, a function that makes one, or an :class:`adv_wrappers.Environment`.
        minutes: of wall clock, after which the page is ready, and what is not played is left out.
        out: the folder, which is made; that of an earlier call goes on.
        episodes: of every row; None takes as many as there is time for.
        seed: seeds all randomness.
        device, env_kwargs, make, workers: as for :func:`adv_wrappers.evaluate`.
        num_envs: as for :func:`adv_wrappers.evaluate`; 1 where only one environment can be at a time.
        progress: called as ``progress(threat, episodes finished, episodes)``.
        tell: called with a sentence, whenever something else begins; None for silence.
        command: the command that repeats this, for the page; None makes it of the arguments.
        began: the ``time.monotonic()`` from which the minutes count; None for that of this call.

    Returns:
        The rows, what was chosen, and where the page is.

    Raises:
        AdvWrappersError: one of its kinds, before anything is played, for arguments that cannot work;
            :class:`ValueRangeError` for a folder that holds something else, or the report of another agent, and where
            the time is over before the episodes without an attack are.

    >>> import adv_wrappers as adv
    >>> found = adv.report("zoo:cartpole-dqn", "CartPole-v1", minutes=0.1)  # doctest: +SKIP
    """
    now = time.monotonic()
    limit = 60 * minutes
    check_workers(workers)
    agent = load_victim(victim) if device is None else load_victim(victim, device=device)
    environment = Environment.of(env, agent, env_kwargs, make)
    environment.spaces_for(agent)
    folder = ReportFolder(Path(out), agent, environment, seed)
    started = now if began is None else min(began, now)
    sections = _Sections(
        agent, environment, folder, limit, started, episodes, workers, num_envs, progress, tell or _silent
    )
    with closing(sections) as played:
        if command is not None:
            played.command = command
        try:
            try:
                played.play()
            except OutOfTime as over:
                played.check_clean(over)
            played.finished = True
        except BaseException:
            played.write_what_is_known()
            raise
        return played.write()


def _silent(sentence: str) -> None:
    """Tell nobody."""


class ReportFolder:
    """The folder of a report: which agent it is of, and what an earlier call chose.

    Args:
        path: the folder.
        victim, environment, seed: whose report it is.

    Raises:
        ValueRangeError: for a folder that holds something else, or the report of another agent.
    """

    def __init__(self, path: Path, victim: Victim, environment: Environment, seed: int) -> None:
        self.path, self.seed = path, seed
        self.identity = {"victim": victim.described(), "env": json_value(environment.described), "seed": seed}
        self.before = read_choices(path)
        if self.before.played and self.before.identity != self.identity:
            raise ValueRangeError(
                f"{path} holds the report of {_whose(self.before.identity)}, "
                f"not of {_whose(self.identity)}: give another folder"
            )
        self.earlier: AgentSections | None = None  # its rows
        if self.before.played and (path / ROWS_FILE).is_file():
            with Store(path / ROWS_FILE, read_only=True) as store:
                found = report_of(self.before, store.reports())
            self.earlier = None if found is None else sorted_report(found, self.before)
        if not self.before.played and path.is_dir() and any(one.name != LOCK for one in path.iterdir()):
            raise ValueRangeError(f"{path} is not empty and holds no report: give a new folder")


def _whose(identity: Mapping[str, Any] | None) -> str:
    about = identity or {}
    victim, env = about.get("victim") or {}, about.get("env") or {}
    return f"{victim.get('ref') or 'an agent'} in {env.get('id')} from seed {about.get('seed')}"


def first_width(actions: int) -> int:
    """The width of the search that goes first: the ascents of a step, one to each other action, are of one batch."""
    width = _FIRST_WIDTH
    while 2 * width * max(actions - 1, 1) <= _FIRST_ROWS // 2:  # a beam keeps nearly twice its width
        width *= 2
    return width


class _Sections:
    """Plays a report section by section, in an order that does not depend on the time."""

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        folder: ReportFolder,
        limit: float,
        began: float,
        asked: int | None,
        workers: int,
        num_envs: int | None,
        progress: Callable[[str, int, int], None] | None,
        tell: Tell,
    ) -> None:
        self.victim, self.environment, self.folder, self.limit = victim, environment, folder, limit
        self.asked, self.workers, self.num_envs, self.progress, self.tell = asked, workers, num_envs, progress, tell
        self.deadline, self._began = Deadline(limit - (time.monotonic() - began)), began
        self._written = began  # when the page was
        words = ["adv-wrappers", "report", environment.name, "--victim", victim.ref or "REF"]
        words += ["--env-kwargs", json.dumps(environment.kwargs, default=str)] if environment.kwargs else []
        self.command = shlex.join([*words, "--out", str(folder.path)])
        self.finished, self._interrupted = False, False
        self._player: TrialPlayer | None = None
        self._swept = list[Trial]()  # trials on all features at all steps
        self.certificates = [*folder.before.certificates]
        self.not_tried = list[str]()
        self.frames, self.film = folder.before.frames, folder.before.film
        self.more = dict[str, Untried]()  # what was left out beside rows, by its attack
        self._searched = set[float]()  # eps
        self._said = list[str]()  # of the environment, in its first steps
        self._told_of = set[At]()  # of the other parts of the observation, by a row or a reason why there is none
        self.advised = advised_training(victim, environment, folder.path.parent, folder.seed)
        if folder.before.training.by == self.advised.by:
            self.advised = replace(self.advised, seconds=folder.before.training.seconds)
        self._no_search: str | None = ""  # why whole episodes cannot be searched; "" before that is known

    @property
    def rows(self) -> TrialPlayer:
        """What plays the rows, once it is known how many episodes they have."""
        if self._player is None:
            raise ValueRangeError("nothing was played")
        return self._player

    def play(self) -> None:
        """Everything, until the time is over."""
        for warning in other_environment(self.victim, self.environment.name):
            self.tell(f"WARNING: {warning}")
        seeds = draw_seeds(self.folder.seed, 30)
        self.tell("the agent is played without an attack")
        clean_until = Deadline(max(self.deadline.left, _LEAST_CLEAN))
        until = clean_until.share(_FIRST_EPISODE_SHARE)
        found = observed_ranges(self.victim, self.environment, seeds, _RANGES_SHARE * self.limit, until)
        self.ranges = self._as_before(found)
        episodes = Episodes(self._episodes(), self.folder.seed, self.num_envs)
        self._player = TrialPlayer(
            self.victim, self.environment, episodes, self.deadline, self.folder.path, self.workers, self.progress,
            self.ranges.at,
        )  # fmt: skip
        self.rows.clean_until = clean_until
        self.rows.reserve = min(_RESERVE, self.limit / 4)
        self.rows.play_clean()
        for sentence in self.rows.clean.environment_notes.values():
            self.tell(f"WARNING: {sentence}")
            self._said.append(f"{sentence[:1].upper()}{sentence[1:]}.")
        self.not_tried += self.ranges.unfit
        self.sweep = self._sweep_of(self.ranges)
        if self.ranges.choices:
            self._changed_choices(self.ranges)
        else:
            self._sweep_cheap()
        self.write()  # which tells how long a page takes, and that time is kept
        if self._swept:
            self._strongest_first()
        self._other_parts()
        self._certify()
        self._price_of_hardening()
        self._write_at_times()
        self._changes_of_images()
        self._single_features()
        self._sweep_others(_QUICK, _QUICK_POINTS)
        self._some_steps()
        self._actions()
        self._faults()
        self._dynamics()
        self._write_at_times()
        self._sweep_others((*_QUICK, *_THOROUGH), _THOROUGH_POINTS)
        self._write_at_times()
        self._search(_SEARCH_SHARE)
        self._train()
        self._sweep_others((*_QUICK, *_THOROUGH))  # at the other eps
        self._search(1.0)

    def check_clean(self, over: OutOfTime) -> None:
        """Raise :class:`ValueRangeError` where the time was over before the episodes without an attack were."""
        if self._player is not None and self._player.has_clean:
            return
        why = str(over)
        if not why:
            episode = duration(self.ranges.length * self.ranges.seconds)
            why = f"an episode takes about {episode} here, and the report is of {self.rows.episodes.count}"
        raise ValueRangeError(
            f"{self.limit:.3g} seconds were over before the agent was played without an attack: {why}. Give more time, "
            f"or shorter episodes: minutes=, or max_episode_steps={_SHORT} among env_kwargs="
        )

    # what is chosen

    def _swept_before(self) -> list[AttackRow]:
        """The trials on all features at all steps that an earlier call played; this one may have no time for some."""
        earlier = self.folder.earlier
        swept = earlier.sweeps[0].curves if earlier is not None and earlier.sweeps else ()
        return [row for curve in swept for row in curve.rows]

    def _as_before(self, found: ObservationRanges) -> ObservationRanges:
        """The ranges with those of an earlier call, if there were any: in them its rows are counted."""
        before = self.folder.before
        spreads, at = before.features or (), tuple(map(str, keys_in(found.at) or ()))
        known = tuple(spread.name for spread in spreads) == found.names and before.at == at and before.scale
        if not known or any(None in (one.low, one.high, one.std) for one in spreads):
            return found
        low, high, std = (np.array([getattr(one, name) for one in spreads]) for name in ("low", "high", "std"))
        return replace(found, low=low, high=high, std=std)

    def _episodes(self) -> int:
        """The number of episodes of a row: that of an earlier call, or by how long a row takes."""
        if self.folder.before.episodes is not None:
            return self.folder.before.episodes
        if self.asked is not None:
            return self.asked
        counts = _IMAGE_COUNTS if self.ranges.image else _COUNTS
        steps = 3 if self.ranges.image else 2  # a cheap attack costs about so many times a clean step
        seconds = steps * self.ranges.seconds * self.ranges.length / 4  # several are stepped at once
        for count in counts:
            most = _ROW_SECONDS if count <= _MANY else min(_ROW_SECONDS, _ROW_SHARE * self.limit)
            if count * seconds <= most:
                return count
        room = _CLEAN_SHARE * self.deadline.left / max(self.ranges.seconds * self.ranges.length, 1e-9)
        return max(min(counts[-1], int(room)), 1)

    def _sweep_of(self, part: ObservationRanges) -> EpsSweep:
        return EpsSweep(part.image, part.levels, part.whole, self.rows.clean.mean_return, part.least_eps)

    def budget(self, eps: float) -> Linf:
        """The budget of an eps."""
        return Linf(eps, self.ranges.scale)

    @property
    def strongest(self) -> dict[float, Trial]:
        """By eps, the strongest trial on all features at all steps, those of an earlier call among them."""
        return strongest_by_eps([*self._swept, *self._swept_before()])

    @property
    def focus(self) -> float | None:
        """The least eps at which half of the return is lost, else the largest; None before the sweep."""
        return self._focus(self.strongest)

    def _focus(self, found: Mapping[float, Trial]) -> float | None:
        clean = self.rows.clean.mean_return
        half = half_return(clean, (trial.mean for trial in found.values()))
        broken = (eps for eps, trial in found.items() if half < clean and trial.mean <= half)
        return next(broken, max(found, default=None))

    def _halves(self, trial: Trial, times: float = 1.0) -> bool:
        """Whether a trial takes half of the return, or so many times that."""
        clean, half = self.rows.clean.mean_return, self._half
        return bool(half < clean and clean - trial.mean >= times * (clean - half))

    @property
    def _half(self) -> float:
        """What is left where half of the return is lost, as far as is known."""
        return half_return(self.rows.clean.mean_return, (one.mean for one in self.strongest.values()))

    # the sections

    def _at(self, attack: str, why: str) -> Callable[[float], Trial]:
        """A function that plays an attack at an eps, or returns what it left there before."""

        def play(eps: float) -> Trial:
            if (before := next((t for t in self._swept if (t.attack, t.eps) == (attack, eps)), None)) is not None:
                return before
            trial = self.rows.play(attack, self.budget(eps), why)
            self._swept.append(trial)
            return trial

        return play

    def _try(
        self, attack: str, budget: Budget | None, why: str, when: str | None = None, at: At = None
    ) -> Trial | None:
        """Play a row; None where it does not fit into the time, or does not apply, which is noted."""
        try:
            trial = self.rows.play(attack, budget, why, when, at=at)
        except OutOfTime:
            return None
        except AdvWrappersError as error:
            trial = None
            if (said := f"{attack} does not apply: {error}") not in self.not_tried:
                self.not_tried.append(said)
        self._told_of.add(at)
        return trial

    def _strongest_first(self) -> None:
        """What is strongest for its price, each attack from the eps found so far down to where it takes less than half.

        The search over whole episodes, where there can be one, then attacks of single steps, the cheapest first.
        """
        until = self._until(_STRONG_SHARE)
        if self._searchable():
            search = until.share(_FIRST_SHARE)
            self.tell("a narrow search over whole episodes, from the eps found so far downwards")

            def look(eps: float) -> Trial:
                # it asks whether half is lost: an episode that has earned as much says no
                trial = self._beam(self.budget(eps), search.share(_TRY_SHARE), below=self._half)
                self._swept.append(trial)
                return trial

            self._downwards(look)
        for attack, price in self._by_price(_STRONG, self.focus or 1.0):
            if price <= until.left:
                self.tell(f"{attack}, from the eps found so far downwards, about {price:.1f} s each")
                self._downwards(self._at(attack, "a strong attack"))
        with contextlib.suppress(OutOfTime):
            self._refine(self._best_attack()[0])

    def _downwards(self, play: Callable[[float], Trial]) -> None:
        """Play at the eps at which half is lost so far, then at smaller ones while half is lost, then between the two.

        Ends where the time for it does.
        """
        eps: float | None = self.focus
        with contextlib.suppress(OutOfTime):
            if eps is not None and self._halves(self.strongest[eps]):
                eps = self._below(eps) or eps
            while eps is not None and self._halves(trial := play(eps)):
                below = self._below(eps)
                wide = below is not None and eps / below >= 2 and not self.ranges.whole
                near = wide and not self._halves(trial, _FAR)
                eps = float(f"{math.sqrt(below * eps):.3g}") if below is not None and near else below
        with contextlib.suppress(OutOfTime):
            while (between := self.sweep.next_between(self.strongest)) is not None:
                play(between)

    def _below(self, eps: float) -> float | None:
        """The next smaller eps of the ladder, or that was played; None below the ladder."""
        return max((one for one in {*self.sweep.ladder, *self.strongest} if one < eps), default=None)

    def _until(self, share: float) -> Deadline:
        """The end of a share of the time that is left for rows."""
        return Deadline(share * max(self.deadline.left - self.rows.reserve, 0.0))

    def _sweep_cheap(self) -> None:
        """One row of noise, then the cheapest attack that aims at the agent; noise where that takes less than half."""
        some, why = self.budget(self.sweep.start), "the sweep of eps"
        self.tell("errors of what the agent sees, from small to large")
        reasons = {attack: self.rows.fits(attack, some) for attack in _CHEAP}
        fitting = [attack for attack, reason in reasons.items() if reason is None]
        if not fitting:
            raise ValueRangeError(f"no attack on observations can be aimed at this agent: {reasons[_CHEAP[-1]]}")
        self._at(fitting[-1], why)(self.sweep.start)
        until = self._until(_CHEAP_SHARE)
        for attack in dict.fromkeys((fitting[0], fitting[-1])):
            play = self._at(attack, why)

            def look(eps: float, play: Callable[[float], Trial] = play) -> Trial:
                until.check()
                return play(eps)

            with contextlib.suppress(OutOfTime):
                self.sweep.outwards(look)
            if any(map(self._halves, self.strongest.values())):
                break

    def _reasons(self) -> tuple[str, ...]:
        """What the environment's first steps said, and why these budgets and this order."""
        found = self.strongest
        if not found:
            return tuple(self._said)
        clean, least = self.rows.clean.mean_return, found[min(found)]
        at_least = "nothing is lost" if clean - least.mean <= NO_LOSS * abs(clean) else "something is lost already"
        return (
            *self._said,
            f"eps goes from {min(found):.3g} to {max(found):.3g} {self._unit()}; at the smallest {at_least}.",
            "Noise is played once, and a cheap attack that aims at the agent at eps from small to large; then what is "
            "strongest for its price, at ever smaller eps while half is lost; then the other attacks, from the "
            "quickest to the slowest, first at the eps around which the return falls.",
        )

    def _other_parts(self) -> None:
        """The other parts of a Dict or Tuple, each under a budget of its own."""
        for part in self.ranges.others:
            with contextlib.suppress(OutOfTime):
                if part.choices:
                    self._changed_choices(part)
                else:
                    self._sweep_part(part)

    def _sweep_part(self, part: ObservationRanges) -> None:
        """Errors of one part of the observation alone, from small to large."""
        self.tell(f"errors of {part.words} alone, from small to large")
        sweep, swept = self._sweep_of(part), list[Trial]()
        some = Linf(sweep.ladder[len(sweep.ladder) // 2], part.scale)
        attack = next((name for name in _CHEAP if self.rows.fits(name, some, part.at) is None), None)
        if attack is None:
            self.not_tried.append(f"Nothing was tried on {part.words}: {self.rows.fits(_CHEAP[0], some, part.at)}")
            self._told_of.add(part.at)
            return

        def play(eps: float, attack: str = attack) -> Trial:
            swept.append(self.rows.play(attack, Linf(eps, part.scale), f"errors of {part.words} alone", at=part.at))
            self._told_of.add(part.at)
            return swept[-1]

        sweep.outwards(play)
        while (eps := sweep.next_between(strongest_by_eps(swept))) is not None:
            play(eps)
        for eps in [*strongest_by_eps(swept)][-2:]:
            if attack != "noise":
                play(eps, "noise")

    def _changed_choices(self, part: ObservationRanges) -> None:
        """Other values of what has no distances, from one entry to all, at some of the steps and at all of them."""
        assert part.choices is not None
        self.tell(f"other values of {part.words}")
        why, clean, count = "other values of the observation", self.rows.clean.mean_return, len(part.choices)
        counts = [Valid()] if count == 1 else [*(L0(k) for k in (1, 2, 4, 8) if k < count), Valid()]
        attacks = [attack for attack in _CHANGES if self.victim.kind == "q" or not attack.endswith("loss=q")]
        played = dict[str, float]()
        for attack, budget in itertools.product(attacks, counts):
            if (trial := self._try(attack, budget, why, at=part.at)) is not None:
                played[attack] = min(trial.mean, played.get(attack, clean))
        worst = min(played, key=lambda attack: played[attack], default="")
        if not worst or clean - played[worst] <= NO_LOSS * abs(clean):
            return
        for when in (*(f"bernoulli({rate})" for rate in _RATES), *self._few_steps(), *self._windows()):
            self._try(worst, Valid(), why, when, part.at)

    def _refine(self, attack: str) -> None:
        while (eps := self.sweep.next_between(self.strongest)) is not None:
            self._at(attack, "where the return halves")(eps)

    def _sweep_others(self, attacks: Sequence[str], most: int | None = None) -> None:
        """Other attacks at the eps of the sweep, cheapest first; of so many eps at most."""
        points = self._points()[:most]
        if not points:
            return
        for attack, price in self._by_price(attacks, points[0]):
            played = {trial.eps for trial in self._swept if trial.attack == attack}
            left = [eps for eps in points if eps not in played]
            if not left or not self.rows.has_time_for(price):
                if left and not any(one.threat == attack for one in self.rows.left_out):
                    self.tell(f"{attack} does not fit, about {price:.0f} s each")
                    self.rows.leave_out(attack, "another attack at the same eps", price * len(left))
                continue
            self.tell(f"{attack} at {len(left)} eps, about {price:.1f} s each")
            for eps in left:
                with contextlib.suppress(OutOfTime):
                    self._at(attack, "another attack at the same eps")(eps)
            with contextlib.suppress(OutOfTime):
                self._refine(self._best_attack()[0])
            points = self._points()[:most]

    def _by_price(self, attacks: Sequence[str], eps: float) -> list[tuple[str, float]]:
        """Those attacks that can be aimed at the agent, with the seconds of a row, the cheapest first."""
        some = self.budget(eps)
        reasons = {attack: self.rows.fits(attack, some) for attack in attacks}
        why_not = [f"{name} does not apply: {reason}" for name, reason in reasons.items() if reason]
        self.not_tried += [reason for reason in why_not if reason not in self.not_tried]
        prices = {attack: self.rows.price(attack, some) for attack, reason in reasons.items() if reason is None}
        return sorted(prices.items(), key=lambda item: (item[0] != "noise", item[1]))

    def _points(self) -> list[float]:
        """The eps of the sweep, those around which the return falls first."""
        found = self.strongest
        half = self.focus or 1.0
        return sorted(found, key=lambda eps: abs(np.log(eps / half)))

    def _best_attack(self) -> tuple[str, float]:
        """The attack step by step that is the strongest, and an eps at which it takes much of the return."""
        found = strongest_by_eps(trial for trial in self._swept if trial.attack not in (BEAM, *_TRAINED))
        eps, focus = self._focus(found), self.focus
        if focus in found and self._takes_some(found[focus].mean):
            eps = focus
        assert eps is not None  # the sweep came first
        return found[eps].attack, eps

    def _single_features(self) -> None:
        """Errors in one feature alone: of the size at which half is lost, or larger ones where these take nothing."""
        scale, names = self.ranges.scale, self.ranges.names
        if scale is None or names is None or self.focus is None:
            return
        changing = [i for i in range(len(names)) if scale[i] > 0]
        if len(changing) > _MOST_FEATURES:
            self.not_tried.append(f"Of {len(changing)} features the first {_MOST_FEATURES} were tried alone.")
        attack, _ = self._best_attack()
        sizes = [self.focus, *(eps for eps in _LARGE if eps > self.focus)]
        least = dict[int, float]()  # by feature, what was left at the least
        for eps in sizes:
            self.tell(f"errors in single features, by {attack}, at eps {eps:.3g}")
            for i in changing[:_MOST_FEATURES]:
                trial = self._try(attack, one_feature(self.budget(eps), i, scale), "errors in single features")
                if trial is not None:
                    least[i] = min(trial.mean, least.get(i, trial.mean))
            if least and self._takes_some(min(least.values())):
                break
        if self._searchable():
            self._search_features(sizes, scale, sorted(least, key=lambda i: least[i]))

    def _search_features(self, sizes: Sequence[float], scale: tuple[float, ...], features: Sequence[int]) -> None:
        """Search whole episodes under errors in one feature alone, from the largest eps down while some is lost."""
        self.tell("errors in single features, by a narrow search over whole episodes")
        until = self._until(_FEATURES_SHARE)
        for i in features:
            with contextlib.suppress(OutOfTime):
                for eps in reversed(sizes):
                    budget = one_feature(self.budget(eps), i, scale)
                    trial = self._beam(budget, until.share(_TRY_SHARE), f"-feature{i}")
                    if not self._takes_some(trial.mean):
                        break

    def _takes_some(self, mean: float) -> bool:
        """Whether what is left is a tenth of the return less."""
        clean = self.rows.clean.mean_return
        return clean - mean >= SOME_LOSS * abs(clean)

    def _windows(self) -> list[str]:
        """Timings of the parts of an episode; none of a short one."""
        length = round(self.rows.clean.mean_length)
        edges = [length * i // _WINDOWS for i in range(_WINDOWS + 1)] if length >= 2 * _WINDOWS else []
        return [f"window({start},{end})" for start, end in itertools.pairwise(edges)]

    def _few_steps(self) -> list[str]:
        """Timings of few steps, fewer than an episode has."""
        return [f"atmost({count})" for count in _FEW if count < self.rows.clean.mean_length]

    def _some_steps(self) -> None:
        """The strongest attack in parts of an episode, and in few of its steps."""
        if not self._swept:
            return
        attack, eps = self._best_attack()
        self.tell("parts of an episode, and few perturbations")
        for when in self._windows():
            self._try(attack, self.budget(eps), "a part of the episode alone", when)
        for when in self._few_steps():
            self._try(attack, self.budget(eps), "few perturbations", when)

    def _actions(self) -> None:
        self.tell("actions")
        space = self.victim.action_space
        tries: list[tuple[str, Linf | None, str | None]]
        if isinstance(space, spaces.Box):
            width = np.asarray(space.high, np.float64) - np.asarray(space.low, np.float64)
            sizes = [Linf(share * float(np.min(width)) / 2) for share in (0.1, 0.3)] if np.isfinite(width).all() else []
            tries = [(name, size, None) for name in ("action-noise", "worst-action") for size in sizes]
        else:
            tries = [(name, None, f"bernoulli({p})") for name in ("action-noise", "worst-action") for p in (0.05, 0.2)]
        for attack, budget, when in tries:
            self._try(attack, budget, "errors of actions", when)

    def _faults(self) -> None:
        """Sensors and channels that fail: off by the size at which half of the return is lost, stuck, late or lost."""
        if self.focus is None and not self.ranges.choices:
            return
        self.tell("faults of sensors and channels")
        names, tries = self.ranges.names or (), list[tuple[str, Linf | None]]()
        if self.focus is not None:
            half, budget = max(round(self.rows.clean.mean_length) // 2, 1), self.budget(self.focus)
            tries = [("sensor-bias", budget), (f"sensor-drift:steps={half}", budget)]
        stuck = [f"stuck-sensor:features={i}" for i in range(len(names))] if 1 < len(names) <= _MOST_STUCK else []
        stuck = ["stuck-sensor"] if len(names) == 1 else stuck
        tries += [(text, None) for text in (*stuck, *(_CHANNEL if self.ranges.choices else _FAULTS))]
        for text, within in tries:
            self._try(text, within, "faults of sensors and channels")

    def _dynamics(self) -> None:
        """Another body and another world, from the first step on: each kind of parameter smaller and larger."""
        self.tell("another body, another world")
        self._let_go()
        try:
            with contextlib.closing(self.environment.make_one()) as env:
                groups = dict.fromkeys(name.partition(".")[0] for name in dynamics_beneath(env).names)
            for group in (group for group in _DYNAMICS if group in groups):
                for factor in _DYNAMICS[group]:
                    self._try(f"fixed-dynamics:values={factor:g},at={group}", None, "changes of body and world")
        except SpaceError as error:
            self.not_tried.append(f"Its body and its world were left as they are: {error}.")

    def _changes_of_images(self) -> None:
        images = [part for part in (self.ranges, *self.ranges.others) if part.image]
        if not images:
            return
        self.tell("changes of images: brightness, blur, rotation, shift, JPEG, perspective")
        for image, threat in itertools.product(images, daylight_threats(self.environment.name)):
            self._try(threat, None, "a change of the image", at=image.at)
        self._pictures()

    def _certify(self) -> None:
        """What is proved, from far below the smallest eps of the sweep on, until something may be lost."""
        if self.ranges.image or self.certificates:
            if self.ranges.image:
                self.not_tried.append("Certificates of agents that see images take longer: adv-wrappers certify")
            return
        if self.ranges.choices or self.ranges.at is not None:
            self.not_tried.append("Nothing is certified: certificates are of agents that see one Box.")
            return
        share = self._until(_CERTIFIED_SHARE)
        if share.passed:
            return
        self._let_go()
        if lowest_return(self.environment) is None:
            self.not_tried.append(
                "Nothing is certified: how low a return can be is not known of this environment. Where you know it, "
                "give it to adv-wrappers certify as --least-reward or --least-return."
            )
            return
        self.tell("what can be proved")
        eps, count = min(self.strongest) / _CERTIFIED_BELOW, min(self.rows.episodes.count, 3)
        for _ in range(_CERTIFICATES):
            try:
                found = certify(
                    self.victim,
                    self.environment,
                    within=self.budget(float(f"{eps:.2g}")),
                    episodes=count,
                    seed=self.folder.seed,
                    budget_s=max(share.left / _CERTIFICATES / count, 0.1),
                )
            except AdvWrappersError as error:
                self.not_tried.append(f"Nothing is certified: {error}")
                return
            lower, clean = float(np.mean(found.lower_returns)), float(np.mean(found.clean_returns))
            if not (np.isfinite(lower) and np.isfinite(clean)):
                return
            method = "search" if found.finished_searches.all() else "bounds"
            self.certificates.append(CertifiedReturn(float(f"{eps:.2g}"), lower, clean, count, method))
            if share.passed or not is_whole(lower, clean):
                return
            eps *= _CERTIFIED_STEP

    def _price_of_hardening(self) -> None:
        """What a step of the training takes that will be advised, where the agent loses something."""
        focus, clean = self.focus, self.rows.clean.mean_return
        lost = focus is not None and clean - self.strongest[focus].mean > NO_LOSS * abs(clean)
        until = Deadline(min(max(_PRICE_SHARE * self.limit, _PRICE_SECONDS), self.deadline.left / 4))
        if lost and self.advised.why_none:
            self.not_tried.append(f"No training by train-agent is advised: {self.advised.why_none}.")
        if not lost or focus is None or not self.advised.by or self.victim.ref is None or until.left < _LEAST_PRICE:
            return
        if self.advised.seconds is None:
            self._let_go()
            self.tell(f"what a training against this takes ({self.advised.by})")
            seconds = training_step_seconds(
                self.advised.by, self.victim, self.environment, self.budget(focus), until, self.num_envs
            )
            self.advised = replace(self.advised, seconds=seconds)

    def _pictures(self) -> None:
        """Pictures of one step under some of the threats, and a short film under the strongest."""
        if not self._swept:
            return
        attack, eps = self._best_attack()
        strongest = parse_threat(attack, within=self.budget(eps), at=self.ranges.at)
        self._let_go()
        made = (self.folder.path, self.victim, self.environment)
        with contextlib.suppress(AdvWrappersError):
            if not self.frames:
                threats = [strongest, *daylight_threats(self.environment.name)[:2]]
                self.frames = write_stills(*made, threats, self.folder.seed)
            if self.film is None:
                self.film = write_film(*made, strongest, self.folder.seed, self._until(1.0))

    def _searchable(self) -> bool:
        """Whether whole episodes can be searched; why they cannot is noted."""
        if self.rows.is_over:
            return False
        if self._no_search == "":
            self._let_go()
            self._no_search = why_no_beam(self.victim, self.environment, self.budget(self.sweep.ladder[0]))
            if self._no_search is not None:
                self.not_tried.append(f"A search over whole episodes does not apply: {self._no_search}")
        return self._no_search is None and _SEARCHED > 0

    def _beam(
        self, budget: Linf, until: Deadline, part: str = "", *, wide: bool = False, below: float = math.inf
    ) -> Trial:
        """What a search over whole episodes finds under a budget, in those that it came to before ``until``.

        Raises:
            OutOfTime: where there is too little time to begin.
        """
        episodes, eps = self.rows.episodes, budget.eps
        count = min(episodes.count, _MANY if wide else _FIRST_EPISODES)
        assert isinstance(self.victim.action_space, spaces.Discrete)
        width = WIDTH if wide else first_width(int(self.victim.action_space.n))
        # episodes whose search was cut short are played to their end, and then all of them for the row
        after = _ENDING * self.rows.clean.ms_per_step / 1000 * sum(self.rows.clean.lengths[:count])
        until = Deadline(min(until.left, self.deadline.left - self.rows.reserve - after))
        if until.left < _LEAST_SEARCH:
            raise OutOfTime
        self._let_go()
        found = beam_search(
            self.victim, self.environment, None, count, episodes.seed, width, within=budget,
            out=self.folder.path / f"beam-{eps:.4g}-width{width}{part}",
            together=_TOGETHER, until=until, below=below, **({} if wide else _ASCENTS),
        )  # fmt: skip
        trial = self.rows.play(found.threat, None, "what the search found", label=BEAM, episodes=len(found.seeds))
        return replace(trial, eps=eps)

    def _search(self, share: float) -> None:
        """A search over whole episodes at its usual width, for a share of the time that is left."""
        points = [eps for eps in self._points()[:_SEARCHED] if eps not in self._searched]
        if not points or not self._searchable():
            return
        self.tell("a search over whole episodes")
        until = self._until(share)
        self.more.pop(BEAM, None)
        for eps in points:
            began = time.monotonic()
            with contextlib.suppress(OutOfTime):
                self._swept.append(self._beam(self.budget(eps), until, wide=True))
            if until.passed:
                seconds = 2 * (time.monotonic() - began) + 60
                self.more[BEAM] = Untried(BEAM, "a search over whole episodes", seconds)
                return
            self._searched.add(eps)

    def _train(self) -> None:
        """Adversaries that are trained in the time that is left: longer ones, while there is time for another."""
        focus = self.focus
        if focus is None:
            return
        seconds = 2 * _LEAST_TRAINING + _USUAL_STEPS * 4 * self.ranges.seconds
        if self.num_envs == 1:
            self.not_tried.append("No adversary is trained: that takes more than one environment at a time.")
            return
        self.more["pa-ad"] = Untried("pa-ad", "an adversary that is trained", seconds)
        if self.deadline.left < _LEAST_TRAINING or importlib.util.find_spec("stable_baselines3") is None:
            return
        kind = "pa-ad" if self.victim.differentiable else "sa-rl"
        self.tell(f"an adversary ({kind}) is trained in the time that is left")
        steps, seed, budget = _SAMPLE_STEPS, self.folder.seed + 1, self.budget(focus)
        try:
            while True:
                until, began = self.deadline.share(_TRAINING_SHARE), time.monotonic()
                self._let_go()
                found = self._trained(kind, steps, seed, budget, until)
                if steps > _SAMPLE_STEPS:  # the first tells how long a step takes
                    threat = ThreatModel("observation", found, budget)
                    trial = self.rows.play(threat, None, "a trained adversary", label=kind)
                    self._swept.append(replace(trial, eps=focus))
                    self.more.pop("pa-ad", None)
                each = (time.monotonic() - began) / steps
                room = int(_TRAINING_SHARE * self.deadline.share(_TRAINING_SHARE).left / each // _SAMPLE_STEPS)
                if room < 2 or (self.deadline.left < _LEAST_TRAINING and steps > _SAMPLE_STEPS):
                    break
                steps, seed = _SAMPLE_STEPS * room, seed + 1
                self.tell(f"{steps:,} steps of it")
        except OutOfTime:
            pass
        except AdvWrappersError as error:
            self.not_tried.append(f"No adversary ({kind}) was trained to the end: {error}")
        except Exception as error:  # whatever so many environments of a user raise; what was played is kept
            self.not_tried.append(f"No adversary ({kind}) was trained to the end: {with_place(error)}")

    def _trained(self, kind: str, steps: int, seed: int, budget: Linf, until: Deadline) -> Learned:
        """An adversary after some steps of training; :class:`OutOfTime` once ``until`` has passed."""
        from adv_wrappers.training.adversary import train_adversary

        return train_adversary(
            kind, self.environment, self.victim, steps=steps, within=budget, checks=1 if steps == _SAMPLE_STEPS else 5,
            episodes=min(self.rows.episodes.count, 10), seed=seed, out=self.folder.path / f"{kind}-{steps}-seed{seed}",
            num_envs=self.num_envs, progress=until.check, on_episode=until.check,
        )  # fmt: skip

    def _let_go(self) -> None:
        """Close the environments of rows where there may be only one; the next row makes one again."""
        if self.num_envs == 1:
            self.rows.close()

    def _write_at_times(self) -> None:
        """The page of what is known so far, unless one was written a moment ago."""
        if time.monotonic() - self._written >= _PAGE_EVERY:
            self.write()

    def write(self) -> AgentReport:
        """Write the rows, what was chosen, and the page."""
        whole, kept = self._with_earlier(self.rows.report())
        whole.to_json(self.folder.path / "report.json")
        left_out = [one for one in [*self.rows.left_out, *self.more.values()] if one.threat not in kept]
        more = sum(one.seconds for one in left_out)
        choices = ReportChoices(
            identity=self.folder.identity,
            command=self._again(self.limit / 60),
            minutes=self.limit / 60,
            seconds=time.monotonic() - self._began,
            finished=self.finished,
            episodes=self.rows.episodes.count,
            features=self.ranges.spreads,
            scale=self.ranges.scale,
            unit=self._unit(),
            at=tuple(map(str, keys_in(self.ranges.at) or ())),
            eps=(0.0, *self.strongest),
            halving_eps=halving_eps(self.rows.clean.mean_return, self.strongest),
            reasons=self._reasons(),
            certificates=tuple(self.certificates),
            untried=tuple(grouped_by_attack(left_out)),
            more=self._again(math.ceil((self.limit + 1.5 * more) / 60)) if left_out else "",
            frames=self.frames,
            film=self.film,
            training=self.advised,
            not_tried=(*self.not_tried, *(self._not_attacked())),
        )
        write_choices(self.folder.path, choices)
        began = time.monotonic()
        page = write_page(self.folder.path, self.folder.path / PAGE_FILE)
        self._written = time.monotonic()
        self.rows.reserve = _PAGES * (self._written - began)
        said = verdict(sorted_report(whole, read_choices(self.folder.path)))
        return AgentReport(self.folder.path, page, whole, choices, said)

    def _with_earlier(self, played: Report) -> tuple[Report, set[str]]:
        """A report with the rows that an earlier call played and this one did not, and the attacks of those."""
        earlier = self.folder.earlier
        if earlier is None:
            return played, set()
        known = [row.layers for row in played.threats]
        more = [row for row in earlier.attacked if row.row.layers not in known]
        if not more:
            return played, set()
        kept = {row.attack for row in more}
        kept |= {BEAM for row in more if "<recorded>" in row.row.threat}
        kept |= {kind for row in more if row.row.threat.startswith("learned") for kind in _TRAINED}
        rows, warnings = [row.row for row in more], dict.fromkeys([*played.warnings, *earlier.report.warnings])
        return replace(played, threats=(*played.threats, *rows), warnings=tuple(warnings)), kept

    def _unit(self) -> str:
        if self.ranges.choices:
            return ""
        if not self.ranges.image:
            return "of the range of each feature"
        return GREY_LEVELS if self.ranges.levels == 255 else "in the unit of a pixel"

    def _not_attacked(self) -> list[str]:
        parts = [part.words for part in self.ranges.others if part.at not in self._told_of]
        why = "the time was over before"
        if not self.finished:
            why = "the report was interrupted before" if self._interrupted else "the report is still being made"
        return [f"Nothing was tried on {words}: {why}." for words in parts]

    def write_what_is_known(self) -> None:
        """Write the page of an interrupted report, if there is anything to say."""
        self._interrupted = True
        if self._player is not None and self._player.has_clean:
            with contextlib.suppress(AdvWrappersError):
                self.write()

    def _again(self, minutes: float) -> str:
        """The command, or the line of Python, that goes on with this report."""
        if self.victim.ref is None:
            env, out = self.environment.name, str(self.folder.path)
            return f"adv.report(victim, {env!r}, minutes={minutes:g}, out={out!r})"
        return f"{self.command} --minutes {minutes:g}"

    def close(self) -> None:
        """Close the environments."""
        if self._player is not None:
            self._player.close()
