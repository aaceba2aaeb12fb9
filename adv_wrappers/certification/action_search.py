"""Searches over action sequences: the lowest return that attacks on a deterministic victim can bring about.

Oikarinen et al. 2020, Algorithm 1: from the first state on, every action is followed that the victim may take at some
observation within the budget, as far as bounds on its outputs say. The lowest return of all these sequences is the
absolute worst-case reward, AWC: the worst case itself where bounds exclude all that no observation brings about. Where
victim and simulator are deterministic no attack within the budget leaves less: whatever it shows, the victim plays one
of the possible actions, and the search has followed it.

Their number grows exponentially with the length of an episode, so most searches have to stop before. What is left then
are states from which sequences are still open, and the return of each of these is bounded from below
(:class:`~adv_wrappers.evaluation.statistics.return_range.LeastReturn`). The lowest of these bounds, and of the returns
that were found, holds for every attack, whenever the search stops. Two orders are built on the same open states:

- depth-first, as in the paper, which finds low returns early. The paper's cap is 5000 sequences.
- best-first: the open states of the lowest bound go next, which raises the bound of all as fast as can be.

A state whose bound is not below the lowest return found so far is dropped, since nothing lower follows from it: that
includes the paper's rule to stop at a sequence of the worst return there is. A state that equals one met before to the
bit, with at least its reward so far, is dropped too: the same follows from it. Two steps of BankHeist by each of its 18
actions lead to 16 states, two of Pong's 6 to 10.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from adv_wrappers.certification.possible_actions import PossibleActions
from adv_wrappers.environments.snapshot import StateFingerprints
from adv_wrappers.evaluation.searches.search_tree import DeterministicEpisodes, TreeNode, collection_paused
from adv_wrappers.evaluation.statistics.return_range import LeastReturn
from adv_wrappers.utils.deadline import NEVER, Deadline, TimedBatches

SearchOrder = Literal["depth-first", "best-first"]
_NEVER_MET = 2000  # states after which a search looks no more for those that it has met before


@dataclass(frozen=True, slots=True, eq=False)
class OpenState:
    """A state from which sequences are open.

    Attributes:
        node: the state, and the reward and the steps so far.
        bound: the least return of any sequence through it.
    """

    node: TreeNode
    bound: float

    def __lt__(self, other: OpenState) -> bool:
        """Whether best-first looks at this one before: at the lower bound, and of equal ones at the later state."""
        return (self.bound, -self.node.steps) < (other.bound, -other.node.steps)


class ActionSearch:
    """The search of one episode, which can be continued, in either order.

    Args:
        episodes: the victim and the environment.
        possible: what the victim may do under a budget.
        least: what is known of rewards.
        seed: the seed of the episode.
        found: the lowest return of a sequence of possible actions that is known beforehand.

    Attributes:
        lowest: the lowest return of a sequence of possible actions that is known; infinity before there is one.
        nodes: how many steps were simulated.
        sequences: how many sequences were followed to their end.
        met: how many states were dropped since they had been met before.
        open: the states from which sequences are open.

    Raises:
        SnapshotError: for an environment that can neither be saved nor replayed.
        ValueRangeError: for rewards below what is taken to be the least.
    """

    def __init__(
        self,
        episodes: DeterministicEpisodes,
        possible: PossibleActions,
        least: LeastReturn,
        seed: int,
        found: float = math.inf,
    ) -> None:
        self.episodes = episodes
        self.possible = possible
        self.least = least
        self.lowest = found
        self.nodes = 0
        self.sequences = 0
        self.met = 0
        self.first = episodes.reset(seed)
        self.open = [OpenState(self.first, least.after(0.0, 0))]
        self._totals: dict[bytes, float] | None = {}  # the least reward so far in every state, by its fingerprint
        self._fingerprints = StateFingerprints()

    @property
    def lower(self) -> float:
        """A lower bound on the return under any attack within the budget; it rises as the search goes on."""
        return min([self.lowest, *(state.bound for state in self.open)])

    @property
    def finished(self) -> bool:
        """Whether no open sequence can have a return below ``lowest``, which then is the worst case."""
        return self.lower == self.lowest

    def run(
        self,
        order: SearchOrder,
        deadline: Deadline = NEVER,
        max_nodes: int | None = None,
        max_sequences: int | None = None,
        batch: int = 64,
    ) -> None:
        """Go on until the search is finished or a limit is reached; limits are looked at between batches.

        The time is kept but for one state, from which the possible actions are tried.

        Args:
            order: which open states go next.
            deadline: when to stop.
            max_nodes: how many steps are simulated at most, those of earlier calls included; None for any number.
            max_sequences: after how many sequences to stop, those of earlier calls included; None for no limit.
            batch: from how many states the possible actions are tried at once at most: the more the faster, and
                depth-first goes down as many ways side by side. Near the end of the time it is fewer.
        """
        batches = TimedBatches(deadline, batch)
        most = math.inf if max_nodes is None else max_nodes
        ends = math.inf if max_sequences is None else max_sequences
        if order == "best-first":
            heapq.heapify(self.open)
        with collection_paused():
            while self.open and self.sequences < ends:
                # every state is stepped with up to `count` actions: no more states than the steps that are left allow
                room = (most - self.nodes) // self.episodes.count
                count = batches.next(int(min(len(self.open), room)))
                if count < 1:
                    break
                self._follow(self._next(order, count), order)
                batches.done(count)

    def _next(self, order: SearchOrder, count: int) -> list[OpenState]:
        """The open states that go next, at most ``count``; those from which nothing lower can follow are dropped."""
        if order == "depth-first":
            taken, self.open[-count:] = self.open[-count:], []
        else:
            taken = [heapq.heappop(self.open) for _ in range(min(count, len(self.open)))]
        return [state for state in taken if state.bound < self.lowest]

    def _follow(self, states: list[OpenState], order: SearchOrder) -> None:
        """Try every possible action of some states."""
        if not states:
            return
        possible, outputs = self.possible.at(self.episodes.batch([state.node.observation for state in states]))
        # what looks worst to the victim is pushed last, so that depth-first tries it first
        ranked = outputs.argsort(-1, descending=True).cpu().numpy()
        for state, allowed, actions in zip(states, possible, ranked, strict=True):
            for action in actions[allowed[actions]]:
                after = self._step(state.node, action)
                if after is None or self._met_before(after.node):
                    continue
                if order == "depth-first":
                    self.open.append(after)
                else:
                    heapq.heappush(self.open, after)

    def _met_before(self, node: TreeNode) -> bool:
        """Whether everything that follows from a state follows from an equal one that had earned no more."""
        if self._totals is None:
            return False
        content = self._fingerprints.of(node.snapshot)
        if content is None or (self.met == 0 and len(self._totals) >= _NEVER_MET):
            self._totals = None  # to look at every state takes a third of the time
            return False
        key = content + np.asarray(node.observation).tobytes()
        if self._totals.get(key, math.inf) <= node.total:
            self.met += 1
            return True
        self._totals[key] = node.total
        return False

    def _step(self, node: TreeNode, action: np.int64) -> OpenState | None:
        """The state after an action; None where that ends the episode, and where nothing lower can follow."""
        after = self.episodes.step(node, self.episodes.start + action)
        self.nodes += 1
        self.least.check(after.reward, after.steps, after.over)
        # the end of a sequence, which may be the lowest return so far
        if after.over:
            self.episodes.check_drew_nothing(self.first)
            self.least.check_return(after.total)
            self.sequences += 1
            self.lowest = min(self.lowest, after.total)
            return None
        # the least that any rest of the episode adds says whether to go on from here
        bound = self.least.after(after.total, after.steps)
        return None if bound >= self.lowest else OpenState(self.episodes.save(after), bound)
