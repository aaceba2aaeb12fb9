"""certify: what an agent earns at least, whatever is done to its observations within a budget.

Three figures of Oikarinen et al. 2020 and one that holds: the greedy worst-case reward (GWC, an estimate), the absolute
worst-case reward (AWC), the action certification rate (ACR), and a lower bound on the return that holds for every
attack, finished or not (``lower``).

AWC is the lowest return of all sequences of actions that the bounds on the network do not exclude. Where they exclude
all that no observation brings about, as ``method="bisect"`` does unless it reaches its limits, that is the worst case
itself. Looser bounds leave actions that no attack can bring about, and AWC is then below the worst case: of
zoo:cartpole-dqn at 0.05 it is 11 and 9 in the first two episodes with CROWN's, where ``"bisect"`` certifies 20 and 22.

Beyond the paper: searches that do not finish are counted, and bound the return all the same; the paper leaves them out.
Its possible actions are those whose upper bound reaches the largest lower bound; here bounds are on differences of
outputs, which exclude more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np

from adv_wrappers.certification.action_search import ActionSearch, SearchOrder
from adv_wrappers.certification.all_starts import StateBoxSearch
from adv_wrappers.certification.certificate import Certificate, CertifiedEpisode
from adv_wrappers.certification.greedy_worst_case import own_action, play_choices, worst_possible_action
from adv_wrappers.certification.interval_dynamics import has_dynamics
from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.core.arrays import Scale
from adv_wrappers.core.budgets.budget import Budget, Linf, Valid
from adv_wrappers.core.spaces import has_images
from adv_wrappers.core.threat import needed_budget
from adv_wrappers.environments.environment import AnyEnvironment, Environment, EnvKwargs, MakeEnv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes
from adv_wrappers.evaluation.statistics.return_range import LeastReturn
from adv_wrappers.utils.deadline import Deadline
from adv_wrappers.utils.pace import Progress
from adv_wrappers.utils.precision import full_precision
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    AboveZero,
    EnvCount,
    EpisodeCount,
    Finite,
    LongCount,
    Positive,
    Seed,
    checked,
)
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.victims.certified_actions import Method

_PATHS_SHARE = 0.1  # of the time that the clean path, and GWC, get at most
_BOXES_SHARE = 0.9  # of the time for an episode that boxes of states get, where they are known
_NODES, _NODES_IN_TIME = 10_000, 1_000_000  # of an episode, where only counts limit its search, and where seconds do
_SHARE = 0.5  # of the limits of a search that depth-first gets, before best-first goes on


@checked
@full_precision()
def certify(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: float | None = None,
    episodes: EpisodeCount = 10,
    seed: Seed = 0,
    method: Method = "crown",
    budget_s: AboveZero | None = None,
    *,
    scale: Scale = None,
    within: Budget | None = None,
    least_reward: Finite | None = None,
    least_return: Finite | None = None,
    order: SearchOrder | None = None,
    max_sequences: Positive | None = 5000,
    max_nodes: LongCount | None = None,
    max_boxes: Positive | None = None,
    num_envs: EnvCount | None = None,
    env_kwargs: EnvKwargs | None = None,
    make: MakeEnv | None = None,
    quantize: bool = True,
    progress: Progress | None = None,
) -> Certificate:
    """Bound from below what an agent earns, whatever is done to its observations within a budget.

    The victim must be deterministic, and the environment be so under its seed. The victim computes in float32 (or
    float64) in full: torch's switches for TF32 and autocast are off meanwhile, and the certificate is of the agent
    without them. Every step of an episode may be attacked, also those that a schedule would leave alone, and the
    adversary may know everything, what the environment will draw included. What is certified is the return of the
    episodes with these seeds: those that ``evaluate(victim, env, ..., episodes, seed)`` plays.

    Args:
        victim: the agent, or a reference such as ``"zoo:cartpole-dqn"``: one discrete action a step, its most likely
            one, by a feed-forward network whose layers have bounds.
        env: an id, or a function that makes one environment.
        eps: the radius of :class:`adv_wrappers.Linf` around every observation, in its units or in those of ``scale``.
        episodes, seed: as for :func:`adv_wrappers.evaluate`, with the same seeds for the episodes.
        method: how the outputs of the network are bounded, from the fastest to the tightest.
        budget_s: seconds for an episode, for all but the attacks; None is no limit, but that of counts. Then
            the clean path, ACR and GWC are whole, and the searches end by their counts, with the same figures on every
            machine, however busy. All that a call with seconds does together takes at most ``episodes`` times as many,
            but for one step: of the clean path or GWC, of all episodes side by side, or of a search. The clean path
            with its ACR and GWC get up to a tenth each, and the searches what is left. What is cut is NaN and named in
            ``cut``; lower bounds hold all the same.
        scale: the scale of ``Linf``.
        within: a budget instead of ``eps``: ``Linf``, ``Valid`` or one of these in ``Newest``.
        least_reward: least reward of a step, as the rules set it; None takes what is known of the environment. That is
            of the environment as it is, its arguments and wrappers included (CartPole, MountainCar, Acrobot, some Atari
            games, ...).
        least_return: least return of an episode, as the rules set it; None takes what is known of the environment. A
            search that finds it is finished.
        order: the order of the search: ``"depth-first"``, the paper's, or ``"best-first"``, which raises the lower
            bound. None takes depth-first for half of the time and steps, then best-first.
        max_sequences: after how many sequences depth-first stops; the paper's 5000. None for any number.
        max_nodes: steps that a search simulates, 0 for no search; None is 10 000, or a million with ``budget_s``. They
            are those of an episode, at most; without a search the clean path, GWC and ACR are computed alone. States
            that are open are kept in memory, some kilobytes each; of images a hundred.
        max_boxes: boxes of states that it steps; None takes ten times ``max_nodes``. They are those of an episode, at
            most, where the environment is one of those that
            :func:`adv_wrappers.certification.all_starts.certify_all_starts` knows; a box takes far less time than a
            simulated step.
        num_envs: how many environments are stepped side by side for GWC; None takes 32, or 8 for images.
        env_kwargs, make: as for :func:`adv_wrappers.evaluate`.
        quantize: False lets integer observations vary as floats, for budgets below one grey level, as attacks with
            ``quantize=False`` do.
        progress: called as ``progress(what, episodes finished, episodes)`` where ``what`` is ``"clean"``, ``"gwc"`` or
            ``"search"``.

    Returns:
        The certificate. ``lower`` is never above what an attack within the budget leaves on the same seeds.

    Raises:
        VictimError: for a victim that samples, has a hidden state or no bounds, or does not fit the environment.
        ThreatError: for no budget, and for ``within`` beside ``eps`` or ``scale``.
        BudgetError: for a budget that is no box, unbounded, or below one grey level.
        SpaceError: for actions other than one discrete one, and observations other than one Box.
        SnapshotError: for an environment that can neither be saved nor replayed (:ref:`replays`).
        ValueRangeError: for numbers out of range; where neither the least reward of a step nor that of an episode is
            known, or it is negative without a limit of steps; and for a reward below it.

    >>> from adv_wrappers import certify
    >>> short = {"max_episode_steps": 50}
    >>> found = certify("zoo:cartpole-dqn", "CartPole-v1", 0.01, episodes=2, max_nodes=200, env_kwargs=short)
    >>> found.clean_returns, found.finished_searches, bool((found.lower_returns <= found.clean_returns).all())
    (array([50., 50.]), array([False, False]), True)
    """
    budget = needed_budget("a certificate", eps, scale, within, zero=True)
    seeds, searched = draw_seeds(seed, episodes), max_nodes != 0
    whole = Deadline(None if budget_s is None else budget_s * episodes)
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    with closing(DeterministicEpisodes(victim, environment)) as played, one_thread():
        space = played.env.observation_space
        possible = PossibleActions(played.victim, space, budget, method, quantize)
        rows = num_envs or (8 if has_images(space) else 32)
        least = LeastReturn.create(played.env, environment.name, least_reward, least_return) if searched else None
        possible.at(played.batch([played.env.reset(seed=seeds[0])[0]]))  # which finds what has no bounds
        if searched:
            played.check_deterministic(seeds[0])
        # the victim's own path and the greedy worst case, whose lowest return each search begins with
        share = _PATHS_SHARE if searched else 0.5
        bounds_until, until = whole.share(share), whole.share(2 * share)
        with ExitStack() as opened:
            envs = [opened.enter_context(closing(played.environment())) for _ in range(min(rows, episodes))]
            clean = play_choices(
                envs, possible, seeds, own_action, _progress(progress, "clean", episodes), bounds_until, until
            )
            gwc = play_choices(
                envs, possible, seeds, worst_possible_action, _progress(progress, "gwc", episodes), until=until
            )
        paths = {"clean": clean.returns, "acr": clean.acr, "gwc": gwc.returns}
        cut = [[name for name, values in paths.items() if np.isnan(values[i])] for i in range(episodes)]
        # every search gets an equal share of the time that is left
        told, found = _progress(progress, "search", episodes), [CertifiedEpisode()] * episodes
        if least is not None:
            by_boxes = _state_boxes(played, possible.budget, method)
            search = CertifyingSearch(
                played, possible, least, by_boxes, order, max_sequences, max_nodes, max_boxes, budget_s
            )
            for i in range(episodes):
                own = whole.share(1 / (episodes - i))
                of_paths = np.nan_to_num([clean.returns[i], gwc.returns[i]], nan=np.inf).min()  # of possible actions
                found[i] = search.episode(seeds[i], float(of_paths), own)
                if not found[i].finished and own.passed:
                    cut[i].append("search")
                told(i + 1)
        return Certificate.of(
            played.label,
            environment.name,
            possible.budget,
            method,
            seeds,
            found,
            least,
            clean,
            gwc,
            tuple(map(tuple, cut)),
        )


def _state_boxes(played: DeterministicEpisodes, budget: Budget, method: Method) -> StateBoxSearch | None:
    """The search over boxes of states, for the environments and budgets that it takes."""
    if not isinstance(budget, (Linf, Valid)) or not has_dynamics(played.env):
        return None
    return StateBoxSearch(played.victim, played.env, within=budget, method=method)


def _progress(progress: Progress | None, what: str, episodes: int) -> Callable[[int], None]:
    return lambda done: None if progress is None else progress(what, done, episodes)


@dataclass(frozen=True)
class CertifyingSearch:
    """The searches that certify episodes: over sequences of actions, and over boxes of states where these are known.

    Attributes:
        played: the victim and the environment.
        possible: what the victim may do under the budget.
        least: what is known of rewards.
        boxes: the search over boxes of states, or None.
        order, max_sequences, max_nodes, max_boxes, budget_s: of every episode, as for :func:`certify`.
    """

    played: DeterministicEpisodes
    possible: PossibleActions
    least: LeastReturn
    boxes: StateBoxSearch | None
    order: SearchOrder | None
    max_sequences: int | None
    max_nodes: int | None
    max_boxes: int | None
    budget_s: float | None

    @property
    def nodes(self) -> int:
        """How many steps are simulated at most."""
        if self.max_nodes is not None:
            return self.max_nodes
        return _NODES if self.budget_s is None else _NODES_IN_TIME

    def episode(self, seed: int, lowest: float, own: Deadline) -> CertifiedEpisode:
        """Search one episode.

        Args:
            seed: of the episode.
            lowest: the lowest return of a sequence of possible actions that is known beforehand.
            own: until when.

        Raises:
            ValueRangeError: for rewards and returns below what is taken to be the least.
        """
        self.least.check_return(lowest)
        # without a search nothing is known but the least return there is
        lower = min(self.least.after(0.0, 0), lowest)
        by_boxes = math.nan
        boxes = self.boxes
        search = None
        # sequences of actions, which leave some of the time to boxes of states
        if not own.passed:
            search = ActionSearch(self.played, self.possible, self.least, seed, lowest)
            self._run(search, self.order, own if boxes is None else own.share(1 - _BOXES_SHARE))
            lower, lowest = search.lower, search.lowest
        # boxes from the same start, where sequences alone did not find the worst case
        if boxes is not None and lower != lowest and not own.passed:
            self.played.env.reset(seed=seed)
            start = boxes.dynamics.state()
            seconds = None if self.budget_s is None else own.left
            by_boxes = boxes.run(start, start, seconds, self.max_boxes or max(10 * self.nodes, 1)).lower
            lower = max(lower, by_boxes)
            if search is not None and lower != lowest:  # with the time that boxes have left
                self._run(search, self.order or "best-first", own)
                lower, lowest = max(lower, search.lower), search.lowest
        nodes, sequences = (0, 0) if search is None else (search.nodes, search.sequences)
        return CertifiedEpisode(lower, lowest, by_boxes, nodes, sequences)

    def _run(self, search: ActionSearch, order: SearchOrder | None, deadline: Deadline) -> None:
        """Search over sequences of actions, in an order or in both."""
        images = has_images(self.played.env.observation_space)
        share = 1.0 if order is not None else _SHARE
        # depth-first finds low returns early, best-first raises the bound of what is open
        if order != "best-first":
            nodes, batch = int(share * self.nodes), 8 if images else 32
            search.run("depth-first", deadline.share(share), nodes, self.max_sequences, batch)
        if order != "depth-first":
            search.run("best-first", deadline, self.nodes, batch=8 if images else 256)
