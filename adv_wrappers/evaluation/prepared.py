"""An evaluation that is checked and ready: its runs, what a report says of all of them, and their rows as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from adv_wrappers.core.types import JSON
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.best_of import BestOf, check_by, draws_of
from adv_wrappers.evaluation.checks import find_warnings
from adv_wrappers.evaluation.environments import Environment, is_named, json_value
from adv_wrappers.evaluation.least_return import LeastReturn
from adv_wrappers.evaluation.losses import Measure, measure_text, measured_target
from adv_wrappers.evaluation.pool import EpisodePlayer, OnEpisode, PlayBlocks, PlayerSetup, blocks_of, play_run
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.evaluation.report import COLUMNS, Report, Row, compared, describe_minimum, measured_row, outcome_of
from adv_wrappers.evaluation.resume import row_key
from adv_wrappers.evaluation.rollout import draw_seeds
from adv_wrappers.evaluation.sampled_distances import Distance, sampled_distances
from adv_wrappers.evaluation.threat_stacks import (
    ThreatStack,
    is_worst_action,
    json_form,
    threats_of_environment,
    with_unique_names,
)
from adv_wrappers.utils.numbers import integer
from adv_wrappers.utils.step_timer import StepTimer
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.dmc import feature_names

MOST_EPISODES = 10**6
MOST_ENVS = 2**16  # side by side: each is a simulator in memory
PERTURBED = " (on an environment already perturbed by "  # in the name of the run without a threat
Distances = Sequence[str | Distance] | str | Distance | None


def default_num_envs(victim: Victim) -> int:
    """The number of environments side by side where none is given: 32, or 8 for images."""
    return 8 if len(victim.observation_space.shape or ()) > 1 else 32


def used_num_envs(asked: int, episodes: int, counts: Sequence[int]) -> int:
    """The number of environments that the largest block of any run needs, at most as many as are asked for.

    Args:
        asked: the number of environments side by side.
        episodes: the number of episodes of every run.
        counts: of every run how often an episode is drawn.
    """
    stages = {part * episodes for count in counts for part in (min(count, 2), count - 2) if part > 0}
    return min(asked, max(len(block) for plays in stages for block in blocks_of(plays, asked)))


class PreparedEvaluation:
    """The runs of an evaluation, each of one stack of threats, on the same episodes.

    Args:
        victim: the agent.
        environment: how its environments are made.
        stacks: the threats of each run, aimed at the victim; those with the same name are numbered.
        episodes, seed, num_envs, distances, quantize, measure, best_of, by: as for :func:`adv_wrappers.evaluate`.
        player: plays in this process; None opens one, which :meth:`close` closes. One that is given is of the same
            victim and environment, with ``used_num_envs`` environments.

    Attributes:
        stacks: the runs.
        about: the attributes of a report that are known before anything is played.
        setup: what another process needs to play.
        player: plays in this process.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that cannot work.
    """

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        stacks: Sequence[ThreatStack],
        episodes: int = 10,
        seed: int = 0,
        num_envs: int | None = None,
        *,
        distances: Distances = None,
        quantize: bool = True,
        measure: Measure = None,
        best_of: BestOf = 1,
        by: str = "return",
        player: EpisodePlayer | None = None,
    ) -> None:
        self.victim, self.by, environment = victim, by, environment.for_victim(victim)
        self.episodes, seed = integer("episodes", episodes, 1, MOST_EPISODES), integer("seed", seed, 0)
        self._asked = default_num_envs(victim) if num_envs is None else integer("num_envs", num_envs, 1, MOST_ENVS)
        self.seeds = draw_seeds(seed, self.episodes)
        self.stacks = with_unique_names(stacks)
        self.counts = draws_of(best_of, self.stacks)
        check_by(by, measure is not None and measure is not False)
        width = used_num_envs(self._asked, self.episodes, self.counts)
        self.setup = PlayerSetup(victim, environment, tuple(self.stacks), width, quantize)
        self._own = player is None
        self.player = EpisodePlayer(self.setup) if player is None else player
        try:
            if player is not None:
                player.prepare(self.stacks, quantize)
            venv, name = self.player.venv, environment.name
            if not quantize and distances is None:  # those of images compare whole grey levels
                distances = ()
            self.target = measured_target(measure, victim, name, feature_names(venv))
            self.sampled = sampled_distances(distances, venv.single_observation_space, COLUMNS)
            self.under = threats_of_environment(venv, victim)
            rows = getattr(venv, "envs", ())  # none where tasks of the DeepMind Control Suite are stepped directly
            self._least = LeastReturn.of(rows[0]).lowest if rows else None
        except BaseException:
            self.close()
            raise
        if self.under:
            first = f"none{PERTURBED}{' + '.join(self.under)})"
            self.stacks = [replace(stack, name=stack.name if stack.layers else first) for stack in self.stacks]
        self.about: dict[str, JSON] = {
            "versions": versions(),
            "seed": seed,
            "episode_seeds": tuple(self.seeds),
            "git": revision(),
            "device": str(victim.device),
            "episodes": self.episodes,
            "env": json_value(environment.described),
            "num_envs": venv.num_envs,
            "quantize": bool(quantize),
            "victim": victim.described(),
            "measure": measure_text(self.target, victim),
            "by": by,
        }

    def key(self, i: int) -> str | None:
        """What distinguishes the row of a run from all others (see :func:`row_key`); None where nothing does."""
        layers = [json_form(layer) for layer in self.stacks[i].layers]
        target = getattr(self.target, "function", None)
        known = self.victim.is_known and self.setup.environment.is_known and is_named(target)
        return row_key(self.about, layers, self.counts[i], self.sampled) if known else None

    def play(self, i: int, play: PlayBlocks | None = None, on_episode: OnEpisode | None = None) -> Row:
        """The columns that one run decides.

        Args:
            i: index of the run.
            play: plays its blocks; None is this process.
            on_episode: called with the number of finished episodes.

        Raises:
            ValueRangeError: for observations, rewards or distances that are not finite.
        """
        found = play_run(
            play or self.player.play_all,
            i,
            self.seeds,
            self._asked,
            self.counts[i],
            self.by,
            bool(self.sampled),
            self.target,
            on_episode,
        )
        return measured_row(self.stacks[i], *found, self.sampled)

    def steps_of(self, lengths: Sequence[int]) -> int:
        """The number of steps, of all rows at once, of a run whose episodes have these lengths."""
        width, count = self.player.venv.num_envs, 0
        for block in blocks_of(len(lengths), self._asked):
            part = [lengths[i] for i in block]
            count += max(sum(part[row::width]) for row in range(width))
        return count

    def step_seconds(self, i: int, timer: StepTimer, rows: int) -> list[float]:
        """Seconds of some steps of a run, of which nothing is kept.

        Args:
            i: index of the run.
            timer: says when there are enough.
            rows: the number of rows that are attacked, at most as many as there are; the others stand still.
        """
        return self.player.step_seconds(i, self.seeds[:rows], timer)

    def report(self, rows: Mapping[int, Row], minimum: float | str | None = None) -> Report:
        """The report of the runs that have their row.

        Args:
            rows: by index of the run; that of the first is there.
            minimum: as for :func:`adv_wrappers.evaluate`.
        """
        if 0 not in rows:
            raise ValueRangeError("a report needs the row of its first run, which the others are compared with")
        played = [(self.stacks[i], rows[i]) for i in sorted(rows)]
        name = self.setup.environment.name
        fixed = self._least if minimum is None or isinstance(minimum, str) else float(minimum)
        lowest = fixed
        if isinstance(minimum, str):
            lowest = next((row["mean_return"] for stack, row in played if is_worst_action(stack, self.victim)), None)
        outcomes = [outcome_of(stack, row) for stack, row in played]
        warnings = find_warnings(outcomes, self.victim, name, self.under, self.seeds)
        return Report(
            **self.about,
            warnings=tuple(warnings),
            minimum=describe_minimum(minimum, self.victim, lowest),
            threats=compared([row for _, row in played], *((None, None) if self.under else (lowest, fixed))),
        )

    def close(self) -> None:
        """Close the environments that were opened here."""
        if self._own:
            self.player.close()
