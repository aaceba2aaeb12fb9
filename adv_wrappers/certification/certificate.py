"""What no attack within a budget takes from an agent: lower bounds on the returns of episodes.

One value for every method that bounds episodes: bounds on networks (:func:`adv_wrappers.certify`, and its ranges), and
boxes of states from all starts at once (:mod:`adv_wrappers.certification.all_starts`). What a method does not compute
is NaN. The expected return of an agent with noise is another statement, of a distribution and for every length of an
attack (:class:`adv_wrappers.certification.smoothing.SmoothedCertificate`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.certification.greedy_worst_case import PlayedEpisodes
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.serialization import decode
from adv_wrappers.core.types import Floats, Integers
from adv_wrappers.evaluation.statistics.return_range import LeastReturn


@dataclass(frozen=True)
class CertifiedEpisode:
    """What the searches of one episode found, as :class:`Certificate` has it; by default that nothing was searched."""

    lower: float = math.nan
    lowest: float = math.nan
    by_boxes: float = math.nan
    nodes: int = 0
    sequences: int = 0

    @property
    def finished(self) -> bool:
        """Whether nothing lower can be found."""
        return self.lower == self.lowest


_MEANS = ("clean", "gwc", "awc", "acr", "lower", "finished", "nodes")


@dataclass(frozen=True, repr=False, eq=False)
class Certificate:
    """Certified returns of some episodes; arrays have one entry an episode.

    Attributes:
        victim, env: the agent and the environment, as reports call them.
        within: the budget.
        method: how it was bounded what the agent may do.
        seeds: the seeds of the episodes, those of :func:`adv_wrappers.evaluate` with the same ``seed``; none where the
            one entry is of every episode, whatever its start.
        least_reward, least_return: what the bounds take to be the least of a step and of an episode; None where it was
            not known.
        clean_returns: what the agent earns without an attack; float64 ``[E]``.
        gwc_returns: greedy worst-case rewards; float64 ``[E]``. Estimates, which an attack may fall below.
        lower_returns: lower bounds on the return under every attack within the budget; float64 ``[E]``, NaN where
            nothing was searched. In CartPole and MountainCar the larger one of the search's bound and that over boxes
            of states (:mod:`adv_wrappers.certification.all_starts`).
        lowest_found: the lowest return of a sequence of possible actions that was followed to its end; float64 ``[E]``,
            NaN where nothing was searched, and infinity where none was. AWC is no higher; what attacks leave may be,
            where bounds allow actions that no attack brings about.
        state_box_returns: lower bounds over boxes of states; float64 ``[E]``, NaN where they were not computed: in
            other environments, and where the search was finished without.
        clean_acr, gwc_acr: the shares of steps with one possible action, on the clean path and on that of the greedy
            worst case; float64 ``[E]``, NaN where the time did not suffice.
        node_counts: how many steps the search simulated, or boxes of states it stepped where they are all that was
            searched; int64 ``[E]``.
        sequence_counts: how many sequences it followed to their end, beside those of ``clean`` and ``gwc``; int64
            ``[E]``.
        cut: of every episode what ``budget_s`` did not suffice for: ``"clean"``, ``"acr"``, ``"gwc"``, ``"search"``.
    """

    victim: str
    env: str
    within: Budget
    method: str
    seeds: tuple[int, ...]
    least_reward: float | None
    least_return: float | None
    clean_returns: Floats
    gwc_returns: Floats
    lower_returns: Floats
    lowest_found: Floats
    state_box_returns: Floats
    clean_acr: Floats
    gwc_acr: Floats
    node_counts: Integers
    sequence_counts: Integers
    cut: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(
        cls,
        victim: str,
        env: str,
        within: Budget,
        method: str,
        seeds: Sequence[int],
        found: Sequence[CertifiedEpisode],
        least: LeastReturn | None = None,
        clean: PlayedEpisodes | None = None,
        gwc: PlayedEpisodes | None = None,
        cut: tuple[tuple[str, ...], ...] = (),
    ) -> Self:
        """What was searched, beside the clean and the greedy path where these were played."""
        unknown = np.full(len(found), np.nan)
        return cls(
            victim=victim,
            env=env,
            within=within,
            method=method,
            seeds=tuple(seeds),
            least_reward=None if least is None else least.reward,
            least_return=None if least is None else least.whole,
            clean_returns=unknown if clean is None else clean.returns,
            gwc_returns=unknown if gwc is None else gwc.returns,
            lower_returns=np.array([one.lower for one in found]),
            lowest_found=np.array([one.lowest for one in found]),
            state_box_returns=np.array([one.by_boxes for one in found]),
            clean_acr=unknown if clean is None else clean.acr,
            gwc_acr=unknown if gwc is None else gwc.acr,
            node_counts=np.array([one.nodes for one in found], np.int64),
            sequence_counts=np.array([one.sequences for one in found], np.int64),
            cut=cut,
        )

    @property
    def finished_searches(self) -> NDArray[np.bool_]:
        """Whether the search was finished, or its lowest return is the lower bound; bool ``[E]``."""
        found: NDArray[np.bool_] = self.lower_returns == self.lowest_found
        return found

    @property
    def awc_returns(self) -> Floats:
        """Absolute worst-case rewards; float64 ``[E]``, NaN where the search was not finished.

        They are the lowest returns of all sequences of actions that bounds of this ``method`` allow: with ``"bisect"``
        the worst case, and otherwise at most that.
        """
        return np.where(self.finished_searches, self.lowest_found, np.nan)

    @property
    def clean(self) -> float:
        """The mean clean return."""
        return float(self.clean_returns.mean())

    @property
    def gwc(self) -> float:
        """The mean greedy worst-case reward, an estimate."""
        return float(self.gwc_returns.mean())

    @property
    def awc(self) -> float:
        """The mean absolute worst-case reward, as bounds of this method allow; NaN unless every search was finished."""
        return float(self.awc_returns.mean())

    @property
    def acr(self) -> float:
        """The mean action certification rate on the clean path."""
        return float(self.clean_acr.mean())

    @property
    def lower(self) -> float:
        """The mean of the lower bounds: no attack within the budget leaves a lower mean return on these episodes."""
        return float(self.lower_returns.mean())

    @property
    def finished(self) -> float:
        """The share of searches that were finished."""
        return float(self.finished_searches.mean())

    @property
    def nodes(self) -> float:
        """The mean number of simulated steps of a search."""
        return float(self.node_counts.mean())

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, the means included; None stands for NaN."""
        names = (*_MEANS, *(field.name for field in fields(self)), "awc_returns", "finished_searches")
        return {name: _json(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`, for which infinity is NaN too."""
        given = {field.name: data[field.name] for field in fields(cls)}
        for name, value in given.items():
            if isinstance(value, list):
                given[name] = np.array(value, np.int64 if name.endswith("_counts") else np.float64)
        given["within"] = decode(data["within"])
        given["seeds"], given["cut"] = tuple(data["seeds"]), tuple(map(tuple, data["cut"]))
        return cls(**given)

    def __repr__(self) -> str:
        known = {name: value for name in _MEANS if not math.isnan(value := getattr(self, name))}
        figures = ", ".join(f"{name} {value:.4g}" for name, value in known.items())
        episodes = f"{len(self.seeds)} episodes" if self.seeds else "all episodes"
        said = "; ".join(filter(None, (figures, cut_text(self.cut))))
        return f"<Certificate of {self.victim} in {self.env} within {self.within!r}, {episodes}: {said}>"


def cut_text(cut: Sequence[Sequence[str]]) -> str:
    """What ``budget_s`` did not suffice for, in words; "" for nothing.

    >>> from adv_wrappers.certification.certificate import cut_text
    >>> cut_text([("gwc", "search"), ("search",)])
    'cut by budget_s: gwc in 1 of 2 episodes, search in 2 of 2'
    """
    count = {what: sum(what in names for names in cut) for what in ("clean", "acr", "gwc", "search")}
    parts = [f"{what} in {times} of {len(cut)}" for what, times in count.items() if times]
    if not parts:
        return ""
    return f"cut by budget_s: {', '.join([parts[0] + ' episodes', *parts[1:]])}"


def _json(value: object) -> Any:
    if isinstance(value, Budget):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return [_json(entry) for entry in value.tolist()]
    if isinstance(value, tuple):
        return [_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
