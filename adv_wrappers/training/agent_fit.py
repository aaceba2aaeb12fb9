"""The training of an agent: its side, that of an adversary that learns, and how the two take turns.

The agent is outside of the layer that perturbs, and its normaliser outside of the agent's environments::

    environments -> layer (true observations in, perturbed ones out) -> VecNormalize -> PPO, A2C, DQN or RecurrentPPO

The normaliser holds the statistics of the true observations and changes between rollouts only; then the budget (where
it is counted in units of the normaliser) and the live victim (whose first layer the normaliser is) change with it. So
at every step the agent acts with the very numbers that the adversary attacks and the budget is counted in.

A recurrent agent has its state in three places. In its own phase RecurrentPPO carries it from step to step, and the
layer (its session) another one, from the same perturbed observations and by the live victim: what an attack looks at is
the state that the agent acts with. In the adversary's phase the policy runner of the adversary's environments has it.
All begin at zero with an episode. When the networks change, states go on from what the old ones made of the episode.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.attacks.max_diff import MaxDiff
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array, Info
from adv_wrappers.errors import BudgetError
from adv_wrappers.training.defences.atla import ADVERSARY_FILES, LearningAdversary
from adv_wrappers.training.defences.method import RobustTraining
from adv_wrappers.training.defences.policy_bounds import BoundedPolicy
from adv_wrappers.training.fit import Fit, next_multiple
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.history import hardened_before
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.sb3.conversion import update_normaliser
from adv_wrappers.training.sb3.vec_env import AgentVecEnv
from adv_wrappers.training.scoring import CheckpointEvaluator, CheckpointScore, Scoring
from adv_wrappers.utils.number_text import number_text
from adv_wrappers.victims import Victim, from_sb3, load_card, save_card
from adv_wrappers.wrappers.layer import Layer

_SHARES = (1.0, 0.5, 0.25, 0.125)  # of a budget under which all is lost
_SOME_LOSS, _ALIKE = 0.1, 0.02  # of the clean return, and the spread of returns as a share of what is lost
_FEW = 3  # episodes below which nothing is said of what they have in common
_NAMES = {"attacked": "the attack", "gwc": "the greedy worst case"}  # of returns in a record
AGENT_FILES = "agent.zip", "normaliser.json"  # of a checkpoint
_TOLD = 1000  # times that on_steps is called in a training, about, at most


class HeldStatistics(RunningMeanStd):
    """Statistics of a ``VecNormalize`` that change by :meth:`take_in` alone, and not at all if they are ``fixed``."""

    fixed = False

    def update(self, arr: Array) -> None:
        """Do nothing: ``VecNormalize`` calls this at every step, with perturbed observations."""

    def take_in(self, observations: list[Array]) -> None:
        """Update with batches ``[N, n]`` of true observations."""
        if observations and not self.fixed:
            super().update(np.concatenate(observations))


def hold_statistics(normal: VecNormalize, fixed: bool) -> None:
    """Replace the observation statistics of a ``VecNormalize`` by :class:`HeldStatistics` of the same numbers."""
    if normal.norm_obs:
        old: Any = normal.obs_rms
        held = HeldStatistics(shape=old.mean.shape)
        held.mean, held.var = old.mean, old.var
        held.count = old.count
        held.fixed = fixed
        normal.obs_rms = held  # type: ignore[assignment]


class LearningAgent:
    """The agent's side: its model, the live victim, and the layers whose budgets follow its normaliser.

    Args:
        model: the agent's algorithm, made on ``VecNormalize(AgentVecEnv(...))``.
        victim: the agent as a live victim, which acts as the agent does in evaluations.
        first: the agent that the training begins with, or None.

    Attributes:
        bounds: of the agent's policy, where its loss is one over the budget's box.
    """

    def __init__(self, model: BaseAlgorithm, victim: Victim, first: Victim | None) -> None:
        self.model, self.victim, self.first = model, victim, first
        self.bounds: BoundedPolicy | None = None
        self.within: Budget | None = None
        self.layers: list[Layer] = []

    @property
    def normal(self) -> VecNormalize:
        """The agent's normaliser."""
        found = self.model.get_vec_normalize_env()
        assert found is not None
        return found

    @property
    def env(self) -> AgentVecEnv:
        """The agent's environments."""
        return self.normal.venv  # type: ignore[return-value]

    def attack(self, threat: ThreatModel | None, adversary: LearningAdversary | None) -> None:
        """Put the adversary between the environments and the agent; open victims are the agent itself."""
        threat = threat if adversary is None else adversary.threat
        if threat is None:
            return
        self.within = threat.budget
        self.layers = [*self.env.attack(threat, self.victim), *([] if adversary is None else [adversary.env])]

    def update_normaliser(self) -> None:
        """Between two rollouts: update the normaliser, and with it the live victim and the budgets."""
        seen = self.env.true_observations
        if self.normal.norm_obs:
            assert isinstance(self.normal.obs_rms, HeldStatistics)
            self.normal.obs_rms.take_in(seen)
            update_normaliser(self.victim, self.normal)
            if self.victim.recurrent:
                # The agent has its last observation in the old units. Its state would go on from these, that of the
                # live victim from the new ones, and they would differ to the end of the episode.
                self.model._last_obs = self.normal.normalize_obs(self.normal.get_original_obs())
        seen.clear()
        # budgets in units of the normaliser change with it
        for layer in self.layers:
            assert self.within is not None
            within = self.within.resolve(next(iter(layer.threat.victims), self.victim))
            if within != layer.threat.budget:
                layer.set_budget(within)


@dataclass(frozen=True)
class AgentSnapshot:
    """An agent as it was at a checkpoint, with what it is scored under.

    Attributes:
        agent: the agent, a copy.
        threat: the threat, or None.
        worst_within: the budget of the greedy worst case, or None where that is not played.
        is_first: whether it is the agent that the training begins with, which has not learned by its method.
    """

    agent: Victim
    threat: ThreatModel | None = None
    worst_within: Budget | None = None
    is_first: bool = False


@dataclass(frozen=True)
class AgentReturns:
    """What an agent did at a checkpoint.

    Attributes:
        returns: of every episode, ``[episodes]``, under the names of the record: ``clean``, ``attacked``, which may be
            None, and ``gwc`` where the greedy worst case was played.
        acr: of its episodes the share of steps without a choice, ``[episodes]``, or None.
        max_diff: where all is lost, by the share of the budget the mean return under MaxDiff.
    """

    returns: dict[str, NDArray[np.float64] | None]
    acr: NDArray[np.float64] | None = None
    max_diff: dict[str, float] | None = None


@dataclass(frozen=True)
class AgentScore(CheckpointScore[AgentSnapshot, AgentReturns]):
    """The returns of an agent: clean, attacked and in the greedy worst case, as far as there are those.

    Where the strongest of them ends all episodes alike, far below those without an attack, it says nothing of how far
    an agent is from withstanding it. Then MaxDiff is played too, in the budget, which the greedy worst
    case exceeds by what its bounds are loose, and in shares of it.

    Attributes:
        robust: of a robust training, which says how the agent is used; or None.
    """

    robust: RobustTraining | None = None

    def __call__(self, evaluator: CheckpointEvaluator, checkpoint: AgentSnapshot) -> AgentReturns:
        agent, threat = checkpoint.agent, checkpoint.threat
        if self.robust is not None and not checkpoint.is_first:
            agent = self.robust.deployed(agent)
        # the clean return, and that under the adversary of its day
        attacked = None if threat is None else evaluator.play(agent, threat)
        clean = evaluator.play(agent)
        returns = {"clean": clean, "attacked": attacked}
        # what the agent loses most by, of which nothing is learned where all is lost at every checkpoint
        within, worst = checkpoint.worst_within, None
        if within is not None:
            worst = evaluator.worst_case(agent, within)
            returns["gwc"] = worst.returns
        elif threat is not None and threat.on == "observation":
            within = threat.budget
        # where every episode is lost alike, smaller budgets tell checkpoints apart
        strongest = attacked if worst is None else worst.returns
        lost = strongest is not None and all_lost(strongest, clean)
        max_diff = self._max_diff(evaluator, agent, within) if lost and within is not None else None
        return AgentReturns(returns, None if worst is None else worst.acr, max_diff)

    def _max_diff(self, evaluator: CheckpointEvaluator, agent: Victim, within: Budget) -> dict[str, float] | None:
        """By the share of a budget the mean return under MaxDiff in it; None where none of them is one."""
        found, grid = dict[str, float](), np.dtype(agent.observation_space.dtype).kind in "iu"
        for share in _SHARES:
            with contextlib.suppress(BudgetError):
                part = within.scaled(share, grid)
                if not part.is_zero:
                    threat = ThreatModel("observation", MaxDiff(), part)
                    found[f"{share:g}"] = float(evaluator.play(agent, threat.against(agent)).mean())
        return found or None


def all_lost(returns: NDArray[np.float64], clean: NDArray[np.float64]) -> bool:
    """Whether an attack ends all episodes alike, well below those without one, so that it tells no agents apart.

    >>> all_lost(np.full(20, -500.0), np.full(20, -80.0)), all_lost(np.full(20, 500.0), np.full(20, 500.0))
    (True, False)
    """
    lost = float(clean.mean() - returns.mean())
    alike = len(returns) >= _FEW and float(returns.std()) <= _ALIKE * lost
    return alike and lost > _SOME_LOSS * abs(float(clean.mean()))


AgentAndThreat = tuple[Victim, "ThreatModel | None"]
AgentProgress = Callable[[int, float, "float | None"], None]


class AgentFit(Fit[AgentSnapshot, AgentReturns]):
    """A training of an agent, in which the adversary's phases come between its rollouts, where one learns.

    Args:
        agent: the agent's side.
        adversary: the adversary's side; None where no adversary learns.
        threat: the threat that the agent is evaluated under where no adversary learns, or None.
        scoring, training, folder: as for :class:`.Fit`.
        progress: called after every checkpoint.
        on_steps: called between rollouts with the steps that the agent has taken.
    """

    log = "agent"

    def __init__(
        self,
        agent: LearningAgent,
        adversary: LearningAdversary | None,
        threat: ThreatModel | None,
        scoring: Scoring[AgentSnapshot, AgentReturns],
        training: Training,
        folder: TrainingFolder,
        *,
        progress: AgentProgress | None,
        on_steps: Callable[[int], object] | None,
    ) -> None:
        models = [(agent.model, *AGENT_FILES)]
        if adversary is not None:
            models.append((adversary.model, *ADVERSARY_FILES))
        super().__init__(models, scoring, training, folder)
        self.agent = agent
        self.adversary = adversary
        self.threat = threat
        self.progress, self.on_steps = progress, on_steps
        # a training that resumes counts on from its record
        self.seconds.update(folder.record[-1]["seconds"] if folder.record else {})
        self.next_phase = self._phase_after()
        self.told = -1  # steps that on_steps was told of last
        self.found: AgentAndThreat | None = None  # the best so far

    @property
    def began_with(self) -> Info:
        """Of the agent that it began with the ``ref`` and the ``clean`` mean return; empty for a new one."""
        return dict(self.folder.result.get("began_with", {}))

    def begin(self) -> None:
        """Score the agent that the training begins with, as it is without an attack."""
        if self.agent.first is None or self.began_with:
            return

        def keep(found: AgentReturns) -> None:
            clean = found.returns["clean"]
            assert clean is not None and self.agent.first is not None
            self.folder.result["began_with"] = {"ref": self.agent.first.ref, "clean": float(clean.mean())}

        self.scoring.submit(AgentSnapshot(self.agent.first, is_first=True), keep)

    @property
    def is_due(self) -> bool:
        return super().is_due or self.num_steps >= self.next_phase

    def _phase_after(self) -> float:
        """The agent's steps at the adversary's next phase."""
        return math.inf if self.adversary is None else next_multiple(self.num_steps, self.adversary.phase)

    def _on_rollout_start(self) -> None:
        super()._on_rollout_start()
        self.agent.update_normaliser()
        if self.on_steps is not None and (self.told < 0 or self.num_steps - self.told >= self.training.steps // _TOLD):
            self.told = self.num_steps
            self.on_steps(self.num_steps)

    def pause(self, checkpoint: bool) -> None:
        if checkpoint or self.num_steps >= self.next_phase:
            self.next_phase = self._phase_after()
            if self.adversary is not None:
                self.adversary.learn(self.num_steps)
            self.count_seconds("adversary")

    def current_threat(self) -> ThreatModel | None:
        """The threat that the agent is evaluated under now."""
        return self.threat if self.adversary is None else self.adversary.deployed()

    def snapshot(self, row: Info) -> AgentSnapshot:
        row["adversary_steps"] = 0 if self.adversary is None else int(self.adversary.model.num_timesteps)
        row["seconds"] = {side: round(self.seconds[side], 1) for side in ("agent", "adversary")}
        row["late"] = 2 * self.num_steps >= self.training.steps  # the adversary has had half of its training
        bounds = self.agent.bounds
        worst = bounds.within if bounds is not None and bounds.count else None
        agent = from_sb3(self.model, select=self.agent.victim.select)
        return AgentSnapshot(agent, self.current_threat(), worst)

    def add_score(self, row: Info, found: AgentReturns) -> dict[str, float]:
        for name, returns in found.returns.items():
            row[name] = None if returns is None else float(returns.mean())
            row[f"{name}_std"] = None if returns is None else float(returns.std())
        means = {name: row[name] for name in found.returns if row[name] is not None}
        row["score"] = float(np.mean([*means.values()]))
        # what tells checkpoints apart where all is lost alike
        if found.max_diff is not None:
            row["max_diff"] = found.max_diff
            row["max_diff_score"] = float(np.mean([row["clean"], np.mean([*found.max_diff.values()])]))
        if found.acr is not None:
            row["gwc_acr"] = float(found.acr.mean())
        return {f"agent/{name}": mean for name, mean in means.items()}

    def is_best(self, row: Info) -> bool:
        return is_better(row, self.folder.best_row)

    def keep(self, snapshot: AgentSnapshot, row: Info, part: Path | None) -> None:
        self.found = snapshot.agent, snapshot.threat
        if part is None:
            return
        # the agent's card says how it was trained, and what was tried on it before
        about, threat = self.folder.about, snapshot.threat
        tried = [] if self.agent.first is None else [one.by for one in hardened_before(self.agent.first.card)]
        known = {**about, "tried": tried, "began_with": self.began_with, "checkpoints": [*self.folder.record, row]}
        environment = about["environment"]["id"], about["environment"]["kwargs"]
        save_card(part, snapshot.agent, environment=environment, training=known)
        if self.adversary is not None and threat is not None and isinstance(threat.how, Learned):
            threat.how.save(part / "adversary", threat.budget, {**about, "steps": row["steps"]})

    def tell(self, row: Info) -> None:
        if self.progress is not None:
            self.progress(row["steps"], row["clean"], row["attacked"])

    def best(self) -> AgentAndThreat:
        """The best agent and the threat that it was evaluated under, from their cards where there is a folder."""
        self._warn_of_one_score()
        out, threat = self.folder.out, self.current_threat()
        if out is None:
            assert self.found is not None
            return self.found
        learned = out / "adversary"
        if threat is not None and isinstance(threat.how, Learned) and (learned / "card.json").exists():
            threat = replace(threat, how=Learned(card=str(learned)))
        return load_card(out), threat

    def _warn_of_one_score(self) -> None:
        """Warn where the attacks of the training's own budget told no two checkpoints apart."""
        late = [row for row in self.folder.record if row["late"]]
        if len(late) < 2 or not all("max_diff" in row for row in late):
            return
        name = "attacked" if late[-1].get("gwc") is None else "gwc"
        low, high = (number_text(edge(row[name] for row in late)) for edge in (min, max))
        left, shares = low if low == high else f"{low} to {high}", " and ".join(late[-1]["max_diff"])
        warnings.warn(
            f"{_NAMES[name]} leaves {left} at each of the {len(late)} checkpoints that are compared, and so tells none "
            "from another: they were chosen by their clean return and what they keep under MaxDiff at "
            f"{shares} of the budget; a smaller eps may leave more to learn from",
            UserWarning,
            stacklevel=6,
        )


def is_better(row: Info, best: Info | None) -> bool:
    """Whether a checkpoint is ``late`` and no better one is known: of equals, the longest trained.

    Two of which all is lost are compared by what they keep under MaxDiff in shares of the budget (``max_diff``).
    """
    if not row["late"] or best is None:
        return bool(row["late"])
    key = "max_diff_score" if "max_diff" in row and "max_diff" in best else "score"
    return bool(row[key] >= best[key])
