"""The results of :func:`adv_wrappers.resilience` and :func:`adv_wrappers.robustness`: figures, tables, plots, JSON.

Regret is counted from ``r_max``, as in Algorithms 1 and 2 of Behzadan and Hsu 2019. The columns of the paper's Table 6
are those of :meth:`Resilience.table`; the paper does not say what its training columns are taken over, but gives their
perturbations as the "mean-per-100 episodes" at convergence (section 6.1): here over the last 100 episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.rendering.plots import TrainingCurve, plot_histograms, plot_trainings
from adv_wrappers.rendering.table import Tabular, TextTable
from adv_wrappers.utils.files import write_json
from adv_wrappers.utils.number_text import number_text

LAST = 100  # episodes that the training columns of Table 6 are taken over
TABLE_COLUMNS = (
    "victim", "max. regret", "regret (training)", "perturbations (training)", "regret", "perturbations", "cost",
    "return + cost",
)  # fmt: skip

# what JSON takes as it is, of a result; and the arrays of episodes
_PLAIN = ("victim", "env", "r_max", "steps", "seconds", "about", "versions")
_DTYPES = {
    "returns": np.float64, "perturbations": np.int64, "lengths": np.int64, "costs": np.float64, "steps": np.int64,
}  # fmt: skip


@dataclass(frozen=True)
class AttackedEpisodes:
    """Episodes of a victim under an adversary.

    Attributes:
        returns: of the victim, float64 ``[n]``.
        perturbations: the number of attacked steps of every episode, int64 ``[n]``.
        lengths: the number of steps of every episode, int64 ``[n]``.
        costs: what the perturbations cost the adversary, float64 ``[n]``, in the units of a reward.
        r_max: the return that regret is counted from.
        steps: environment steps of the training at the end of every episode, int64 ``[n]``; None in a test.
    """

    returns: NDArray[np.float64]
    perturbations: NDArray[np.int64]
    lengths: NDArray[np.int64]
    costs: NDArray[np.float64]
    r_max: float
    steps: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.returns)

    @property
    def regrets(self) -> NDArray[np.float64]:
        """Adversarial regret of every episode, ``r_max`` minus its return, float64 ``[n]``."""
        return self.r_max - self.returns

    @property
    def mean_regret(self) -> float | None:
        """Mean adversarial regret; None without an episode."""
        return _mean(self.regrets)

    @property
    def max_regret(self) -> float | None:
        """Highest adversarial regret; None without an episode."""
        return float(self.regrets.max()) if len(self) else None

    @property
    def mean_perturbations(self) -> float | None:
        """Mean number of perturbations an episode; None without one."""
        return _mean(self.perturbations)

    @property
    def mean_cost(self) -> float | None:
        """Mean cost of an episode: in a test the paper's mean resilience (section 3, step 4); None without one."""
        return _mean(self.costs)

    @property
    def mean_total(self) -> float | None:
        """Mean of the return plus the cost, which the adversary minimises; None without an episode."""
        return _mean(self.returns + self.costs)

    def last(self, episodes: int) -> AttackedEpisodes:
        """The last ``episodes`` of them."""
        return replace(self, **{name: values[-episodes:] for name, values in self._arrays.items()})

    @property
    def _arrays(self) -> dict[str, Any]:
        return {name: values for name in _DTYPES if (values := getattr(self, name)) is not None}

    def to_dict(self) -> dict[str, Any]:
        """The arrays as lists; ``r_max`` is that of the result."""
        return {name: values.tolist() for name, values in self._arrays.items()}

    @staticmethod
    def from_dict(data: Mapping[str, Any], r_max: float) -> AttackedEpisodes:
        """Inverse of :meth:`to_dict`."""
        arrays = {name: np.asarray(values, _DTYPES[name]) for name, values in data.items()}
        return AttackedEpisodes(**arrays, r_max=r_max)  # type: ignore[arg-type]  # by their names


def _mean(values: NDArray[np.float64] | NDArray[np.int64]) -> float | None:
    return None if len(values) == 0 else float(values.mean())


@dataclass(frozen=True)
class TransferRow:
    """What the adversary of one victim does to another.

    Attributes:
        victim: ``ref``, ``fingerprint`` and ``select`` of the other victim.
        test: its episodes under the adversary; regret is counted from its own highest clean return.
        clean_returns: its returns without an adversary, float64 ``[n]``.
    """

    victim: dict[str, Any]
    test: AttackedEpisodes
    clean_returns: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as values that JSON knows."""
        rest: dict[str, Any] = {"r_max": self.test.r_max, "test": self.test.to_dict()}
        return {"victim": self.victim, **rest, "clean_returns": self.clean_returns.tolist()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TransferRow:
        """Inverse of :meth:`to_dict`."""
        test = AttackedEpisodes.from_dict(data["test"], data["r_max"])
        return TransferRow(data["victim"], test, np.asarray(data["clean_returns"], np.float64))


@dataclass(frozen=True)
class Resilience(Tabular):
    """The resilience of a victim, or its robustness: what perturbations by a learned adversary cost it in a test.

    What a trained adversary reaches is an upper bound on the perturbations that are needed, never the number itself;
    :func:`.fewest_perturbations` computes it where victim and environment are deterministic.

    Attributes:
        adversary: the trained adversary, which ``evaluate`` and every wrapper take.
        victim: ``ref``, ``fingerprint`` (sha256 of the weights) and ``select``.
        env: ``id`` and ``kwargs``.
        r_max: the return that regret is counted from.
        test: the episodes that the deterministic adversary was tested on.
        training: the episodes of its training, in which it sampled its actions, with ``steps``: the training curve.
        clean_returns: the victim's returns without an adversary on the episodes of the test, float64 ``[n]``.
        histogram: the number of test episodes that were attacked at step t, int64 ``[T]``, T steps of the longest one.
        transfer: what the adversary does to other victims.
        steps: environment steps of the training.
        seconds: processor time of the training, its checkpoints included.
        episode_seeds: the seeds of the test's episodes.
        about: the arguments of the measurement.
        versions: the versions of Python and of the packages that numbers depend on.
        budget: the largest number of perturbations of an episode, of a measurement of robustness: the regret is one
            that this many can reach, at least. None of one of resilience.
        hard: whether no more were possible; else each beyond the budget cost ``budget`` times as much (Algorithm 2).
    """

    adversary: Learned
    victim: dict[str, Any]
    env: dict[str, Any]
    r_max: float
    test: AttackedEpisodes
    training: AttackedEpisodes
    clean_returns: NDArray[np.float64]
    histogram: NDArray[np.int64]
    transfer: tuple[TransferRow, ...]
    steps: int
    seconds: float
    episode_seeds: tuple[int, ...]
    about: dict[str, Any]
    versions: dict[str, str]
    budget: int | None = None
    hard: bool = False

    @property
    def kind(self) -> str:
        """``"resilience"``, or ``"robustness"`` where there is a budget."""
        return "resilience" if self.budget is None else "robustness"

    @property
    def returns(self) -> NDArray[np.float64]:
        """The victim's returns in the test, float64 ``[n]``."""
        return self.test.returns

    @property
    def mean_regret(self) -> float | None:
        """Mean regret of the test."""
        return self.test.mean_regret

    @property
    def mean_perturbations(self) -> float | None:
        """Mean number of perturbations of the test: with a cost of 1 the paper's mean test-time resilience."""
        return self.test.mean_perturbations

    @property
    def max_regret(self) -> float | None:
        """Highest regret of a training episode (section 3, step 2); None where no episode ended in the training."""
        return self.training.max_regret

    def to_dict(self) -> dict[str, Any]:
        """Everything but the adversary, which is a card in a folder, as values that JSON knows."""
        return {
            "kind": self.kind,
            **{name: getattr(self, name) for name in _PLAIN},
            "test": self.test.to_dict(),
            "training": self.training.to_dict(),
            "clean_returns": self.clean_returns.tolist(),
            "histogram": self.histogram.tolist(),
            "transfer": [row.to_dict() for row in self.transfer],
            "episode_seeds": list(self.episode_seeds),
            **({} if self.budget is None else {"budget": self.budget, "hard": self.hard}),
        }

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON: all of it, or nothing."""
        write_json(Path(path), self.to_dict())

    def figures(self) -> list[dict[str, Any]]:
        """What :meth:`table` says, one dictionary for each victim; figures of the training are None for the others."""
        late = self.training.last(LAST)
        tests = [(self.victim, self.test), *((row.victim, row.test) for row in self.transfer)]
        return [
            {
                "victim": victim.get("ref") or "victim",
                "transfer": victim is not self.victim,
                "max_regret": self.max_regret if victim is self.victim else None,
                "training_regret": late.mean_regret if victim is self.victim else None,
                "training_perturbations": late.mean_perturbations if victim is self.victim else None,
                "regret": test.mean_regret,
                "perturbations": test.mean_perturbations,
                "cost": test.mean_cost,
                "return_and_cost": test.mean_total,
            }
            for victim, test in tests
        ]

    def table(self) -> TextTable:
        """The columns of the paper's Table 6, the mean cost of an episode, and the return plus the cost.

        All but the maximum are means. The return plus the cost is what the adversary minimises: of two adversaries of
        one victim, the one with less is better.
        """
        rows = [
            (f"{victim}{' (transfer)' * transfer}", *map(number_text, numbers))
            for victim, transfer, *numbers in (line.values() for line in self.figures())
        ]
        first = ("victim", "regret", "perturbations", "return + cost")
        return TextTable(f"{self.title()}, {len(self.test)} episodes", TABLE_COLUMNS, tuple(rows), by_importance=first)

    def title(self) -> str:
        """What was measured, in a few words."""
        form = "" if self.budget is None else f" at {self.budget} perturbations ({'hard' if self.hard else 'soft'})"
        return f"{self.kind} of {self.victim.get('ref') or 'victim'} on {self.env['id']}{form}"

    def plot_training(self, path: str | Path) -> None:
        """Write the training curve (Figures 1-3 and 7-12): regret and perturbations by steps of the training.

        The file's name says what it is, ``.png``, ``.svg`` or ``.pdf``; :class:`ValueRangeError` for another.
        """
        assert self.training.steps is not None
        curve = TrainingCurve(self.training.steps, self.training.regrets, self.training.perturbations)
        plot_trainings({"": curve}, path, self.title(), LAST)

    def plot_histogram(self, path: str | Path) -> None:
        """Write the perturbations of the test by time step (Figures 4-6); formats as for :meth:`plot_training`."""
        plot_histograms({"": self.histogram}, len(self.test), path, self.title())
