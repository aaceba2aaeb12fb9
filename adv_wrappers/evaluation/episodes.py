"""Episodes: how an evaluation is played, as one value from the public functions down to the environments."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from adv_wrappers.core.spaces import has_images
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.measurements.metrics import metric_of
from adv_wrappers.evaluation.measurements.sampled_distances import Distance
from adv_wrappers.evaluation.measurements.target_distance import Measure
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.registry import By
from adv_wrappers.utils.frozen import set_fields
from adv_wrappers.utils.validation import BestOf, EnvCount, EpisodeCount, Seed, check_fields
from adv_wrappers.victims.victim import Victim

MOST_BLOCKS = 16  # of a cell: more than the cores that one is worth, and few enough that rows are rarely idle
SEED_OFFSET = 7919  # added to the seed of a training: nobody evaluates on the episodes that chose the checkpoint
Distances = Sequence[str | Distance] | str | Distance | None


def draw_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds of the episodes of an evaluation, by which every run with this ``seed`` plays the same ones."""
    return [int(drawn) for drawn in np.random.SeedSequence(seed).generate_state(episodes)]


def checkpoint_seeds(seed: int, episodes: int) -> list[int]:
    """The seeds of the episodes that checkpoints of a training with this ``seed`` are compared by."""
    return draw_seeds(SEED_OFFSET + seed, episodes)


@dataclass(frozen=True)
class Episodes:
    """How an evaluation is played: which episodes, how many at once, how often each, and what is measured.

    Args:
        count: the number of episodes of every run.
        seed: seeds all randomness.
        num_envs: the number of environments that are stepped at once; None takes 32, or 8 for images.
        best_of: draws of every episode, of which the best counts: a number, or a dictionary by the text of a threat.
        by: what the best is chosen by, ``"return"`` or ``"loss"``, which needs ``measure``.
        measure: the loss of states that is measured, as for :func:`adv_wrappers.evaluate`.
        distances: how observations are compared, as for :func:`adv_wrappers.evaluate`.
        quantize: whether integer observations stay integers.
        metrics: what is counted beside the return, as for :func:`adv_wrappers.evaluate`.

    Raises:
        ValueRangeError: for a metric that is none, and for ``by`` that names nothing that is measured.

    >>> import adv_wrappers as adv
    >>> how = adv.Episodes(2, seed=7, num_envs=1)
    >>> short = adv.Environment("CartPole-v1", {"max_episode_steps": 50})
    >>> report = adv.evaluate("zoo:cartpole-dqn", short, ["pgd:eps=0.1"], how)
    >>> report.seed, report.num_envs
    (7, 1)
    """

    count: EpisodeCount = 10
    seed: Seed = 0
    num_envs: EnvCount | None = None
    best_of: BestOf = 1
    by: By = "return"
    measure: Measure = None
    distances: Distances = None
    quantize: bool = True
    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        named = (self.metrics,) if isinstance(self.metrics, str) else tuple(self.metrics)
        set_fields(self, metrics=tuple(dict.fromkeys(metric_of(text).text for text in named)))
        if self.by == "loss" and (self.measure is None or self.measure is False):
            raise ValueRangeError("by='loss' needs the loss of states: give measure=")

    @classmethod
    def of(cls, episodes: int | Episodes, **how: object) -> Episodes:
        """What public functions are given as ``episodes`` and beside it.

        Args:
            episodes: their number, or the whole value.
            **how: the other attributes.

        Raises:
            ValueRangeError: for numbers out of their range, and for other attributes beside the whole value.
        """
        if not isinstance(episodes, Episodes):
            return cls(episodes, **how)  # type: ignore[arg-type]  # they are checked
        usual = {part.name: part.default for part in fields(cls)}
        if beside := [name for name, value in how.items() if value is not usual[name] and value != usual[name]]:
            raise ValueRangeError(f"an Episodes has its own {' and '.join(beside)}: give them to it")
        return episodes

    @property
    def seeds(self) -> list[int]:
        """The seed of every episode."""
        return draw_seeds(self.seed, self.count)

    def fitted(self, victim: Victim) -> Episodes:
        """The same for an agent, with the number of environments that the largest block of any run needs."""
        asked = self.num_envs or (8 if has_images(victim.observation_space) else 32)
        draws = {1, *(self.best_of.values() if isinstance(self.best_of, Mapping) else (self.best_of,))}
        stages = {part * self.count for n in draws for part in (min(n, 2), n - 2) if part > 0}
        widest = max(len(block) for plays in stages for block in blocks_of(plays, asked))
        return replace(self, num_envs=int(min(asked, widest)))

    def blocks(self, plays: int) -> list[range]:
        """The numbers of the plays of every block, of so many plays: see :func:`blocks_of`."""
        assert self.num_envs is not None
        return blocks_of(plays, self.num_envs)

    def draws(self, stacks: Sequence[ThreatStack]) -> list[int]:
        """How often each run draws every episode: 1 without a threat, and where a dictionary does not name it.

        Raises:
            ValueRangeError: for the text of a threat that is not evaluated.
        """
        named = self.best_of if isinstance(self.best_of, Mapping) else {}
        texts = {stack.name for stack in stacks if stack.layers}
        if unknown := [name for name in named if name not in texts]:
            raise ValueRangeError(f"best_of names {unknown[0]!r}, which is none of the threats {sorted(texts)}")
        every = 1 if isinstance(self.best_of, Mapping) else int(self.best_of)
        return [int(named.get(stack.name, every)) if stack.layers else 1 for stack in stacks]


def blocks_of(plays: int, num_envs: int) -> list[range]:
    """The plays of every block of a cell: as equal as can be, and at most 16 blocks.

    The last digits of a matrix product depend on how many rows it has, so an episode that is attacked beside fifteen
    others may differ in them from the same one beside seven. Hence a cell is cut into blocks by its own numbers alone,
    and a block is played whole, by this process or another: its results are the same bits on the same machine.

    Args:
        plays: the number of episodes of the run, every draw of one counted.
        num_envs: how many of them are played at once.

    >>> from adv_wrappers.evaluation.episodes import blocks_of
    >>> [len(block) for block in blocks_of(50, 32)], [len(block) for block in blocks_of(1000, 32)][:3]
    ([25, 25], [63, 63, 63])
    """
    count = min(-(-plays // num_envs), MOST_BLOCKS)
    share, more = divmod(plays, count)
    ends = list(itertools.accumulate(share + (i < more) for i in range(count)))
    return [range(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
