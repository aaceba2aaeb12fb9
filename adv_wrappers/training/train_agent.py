"""The rounds of a training in which an agent and an adversary take turns, and the checkpoints in between.

Agents trained against adversaries: ATLA, PA-ATLA, and training under attacks that are computed.

ATLA is of Zhang et al. 2021 ("Robust RL on State Observations with Learned Optimal Adversary"), PA-ATLA of Sun et al.
2022 (section 6); the second paper's baselines train under MinBest and MaxDiff (appendix E.2.6). The papers alternate:
the agent learns while the adversary is held fixed, then the adversary while the agent is. They leave open, and here it
is:

- The agent begins. A turn of the adversary comes after every ``phase`` steps of the agent and lasts until it has
  ``ratio`` times the agent's steps. Both keep their optimisers and their running episodes.
- In the agent's phase the adversary draws its steers as it does in its own phase (``sampled``): both learn in one game.
  It is judged, and deployed, by its mode.
- In the adversary's phase the agent plays as it will be used: by its mode, or a sample (``select``).
- The agent's normaliser sees true observations and moves between its rollouts only, so eps in its units
  (``scale="victim"``) means the present units, exactly, in every step of both phases. In the first rollout they are
  those of the environment. The adversary has a normaliser of its own, on the same true observations.
- Steps count the agent's alone. Its learning rate falls linearly to zero, the adversary's is constant.
- The checkpoint that is returned has the highest mean of its clean return and its return under the adversary of its
  day, on seeds that training never sees, among those of the second half: early adversaries are weak. The papers report
  an agent of medium robustness among 21.

PPO's settings: 32 environments, 64 steps each, batches of 128, 10 epochs, rate 3e-4; gamma 0.99, lambda 0.95, two
layers of 64 with tanh, rewards and observations normalised. A2C's: 16 steps each, rate 7e-4.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed

from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.errors import ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import MakeEnv, environment_factory
from adv_wrappers.training.agent_setup import (
    ALGORITHMS,
    Against,
    Rival,
    Table,
    begun_from,
    check_spaces,
    make_agent,
    make_rival,
    settings_of,
)
from adv_wrappers.training.checkpoint_eval import Arena
from adv_wrappers.training.checkpoints import Found, Keeper, Progress, check_seed, in_words
from adv_wrappers.training.director_networks import director_of
from adv_wrappers.training.sb3_agents import anatomy, live
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.numbers import check_integer, check_number
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, from_sb3


@dataclass(frozen=True)
class Schedule:
    """Numbers of a training: see :func:`adv_wrappers.training.train_agent.train_agent`.

    Raises:
        ValueRangeError: for what is no number of at least one step, turn, checkpoint, episode or environment.
    """

    steps: int
    phase: int
    ratio: float
    checks: int
    episodes: int
    num_envs: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "ratio":
                check_number(name, value, 0, above=True)
            else:
                check_integer(name, value, 1)

    @property
    def every(self) -> int:
        """Steps between two checkpoints."""
        return max(self.steps // self.checks, 1)


class Rounds(BaseCallback):
    """Called by the agent's algorithm at the beginning of every rollout.

    Between two of them the adversary has its phase, checkpoints are judged, and the agent's normaliser moves.

    Args:
        table: the agent and what is about it.
        rival: the adversary, or None where none learns.
        judge: the threat that the agent is judged under where none learns, or None.
        select: how the agent plays when it is judged.
    """

    def __init__(
        self, table: Table, rival: Rival | None, judge: ThreatModel | None, arena: Arena, plan: Schedule, keep: Keeper,
        select: Any, progress: Progress | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.table, self.rival, self.judge, self.arena, self.plan, self.keep = table, rival, judge, arena, plan, keep
        self.select, self.progress = select, progress
        last = keep.record[-1]["seconds"] if keep.record else {"agent": 0.0, "adversary": 0.0}
        self.spent, self.since = dict(last), time.process_time()
        self.turn = self.check = 0
        self._advance()

    @property
    def steps(self) -> int:
        """That the agent has taken."""
        return int(self.table.model.num_timesteps)

    def _advance(self) -> None:
        self.turn, self.check = ((self.steps // each + 1) * each for each in (self.plan.phase, self.plan.every))

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that what is kept is whole
        check = self.steps >= self.check
        if check or self.steps >= self.turn:
            self._between(check)
        self.table.settle()

    def finish(self) -> Found:
        """The best checkpoint; the last steps are judged too."""
        if not self.keep.record or self.keep.record[-1]["steps"] < self.steps:
            self._between(True)
        return self.keep.finish(self.present())

    def _between(self, check: bool) -> None:
        self._advance()
        self._lap("agent")
        self._adversary()
        self._lap("adversary")
        if check:
            self._check()
        self.since = time.process_time()

    def _lap(self, who: str) -> None:
        now = time.process_time()
        self.spent[who] += now - self.since
        self.since = now

    def _adversary(self) -> None:
        """The adversary's phase: until it has ``ratio`` times the steps of the agent, who stays as it is."""
        if self.rival is None:
            return
        lack = round(self.plan.ratio * self.steps) - int(self.rival.model.num_timesteps)
        if lack > 0:
            self.rival.model.learn(lack, reset_num_timesteps=False, tb_log_name="adversary")
            self.rival.model.set_logger(self.rival.model.logger)  # or every phase would open another
            self.rival.seat.take(self.rival.model)

    def present(self) -> ThreatModel | None:
        """What the agent is judged under now: an adversary that learns by its mode, its victim open."""
        if self.rival is None:
            return self.judge
        learned, opponent = Learned(director_of(self.rival.model), self.rival.actor), self.rival.opponent
        return ThreatModel("observation", learned, opponent.budget, opponent.when)

    def _check(self) -> None:
        model, threat = self.table.model, self.present()
        agent = from_sb3(model, select=self.select)
        attacked = None if threat is None else self.arena.play(agent, threat)
        returns = {"clean": self.arena.play(agent), "attacked": attacked}
        recent = [episode["r"] for episode in model.ep_info_buffer or ()]
        row: dict[str, Any] = {
            "steps": self.steps, "adversary_steps": 0 if self.rival is None else int(self.rival.model.num_timesteps),
        }  # fmt: skip
        for name, of_all in returns.items():
            row[name] = None if of_all is None else float(of_all.mean())
            row[f"{name}_std"] = None if of_all is None else float(of_all.std())
            if of_all is not None:
                model.logger.record(f"agent/{name}", row[name])
        row["score"] = float(np.mean([row[name] for name in returns if row[name] is not None]))
        row["in_training"] = float(np.mean(recent)) if recent else None
        row["seconds"] = {who: round(spent, 1) for who, spent in self.spent.items()}
        row["late"] = 2 * self.steps >= self.plan.steps  # the adversary has had half of its training
        self.keep.add(row, (agent, threat), model, self.rival)
        if self.progress is not None:
            self.progress(self.steps, row["clean"], row["attacked"])


_NOBODY: Any = SimpleNamespace(card=None, observation_space=None)  # whom an environment is made for


@dataclass(frozen=True)
class Hardened:
    """What :func:`train_agent` returns.

    Attributes:
        victim: the agent of the best checkpoint, by the way it plays (``select``).
        threat: what it was judged under there, its victim open, so that ``evaluate`` takes it; None in peace.
        record: one dictionary a checkpoint: ``steps``, ``adversary_steps``, ``clean``, ``attacked`` (mean returns),
            their ``_std``, ``score``, ``late`` (of the second half), ``in_training`` and ``seconds`` of the processor
            for either side.
        best: which of them it is.
    """

    victim: Victim
    threat: ThreatModel | None
    record: tuple[dict[str, Any], ...]
    best: int

    @property
    def protocol(self) -> str:
        """How the agent was chosen, to stand beside its figures."""
        row, last = self.record[self.best], self.record[-1]["steps"]
        several = sum(point["late"] for point in self.record)
        rule = "clean return" if self.threat is None else "mean of clean and attacked return"
        return f"the best of {several} checkpoints by the {rule}, at {row['steps']} of {last} steps"


@holding
def train_agent(
    env: str | MakeEnv, adversary: Any = "pa-ad", eps: float | None = None, steps: int = 1_000_000,
    algorithm: str = "ppo", num_envs: int = 32, seed: int = 0, *, victim: Any = None, select: Any = "mode",
    scale: Any = None, within: Budget | None = None, when: Any = None, phase: int = 8192, ratio: float = 1.0,
    sampled: bool = True, checks: int = 10, episodes: int = 20, out: str | Path | None = None,
    tensorboard: str | Path | None = None, progress: Progress | None = None,
    env_kwargs: Mapping[str, Any] | None = None, make: MakeEnv | None = None,
    settings: Mapping[str, Any] | None = None, adversary_settings: Mapping[str, Any] | None = None,
) -> Hardened:  # fmt: skip
    """Train an agent, against an adversary or in peace.

    Args:
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`. Observations ``[n]``, actions ``Box`` or ``Discrete``.
        adversary: ``"pa-ad"`` (PA-ATLA), ``"sa-rl"`` (ATLA) or another actor: an adversary that learns beside the
            agent. A threat, such as ``"max-diff"``, ``"min-best"`` or ``"noise"``: it attacks the agent as it is at
            that step. None: plain training, in which the budget goes unused.
        eps, scale: of a budget ``Linf``; or ``within``, the budget itself; not needed by a threat that brings one.
            ``scale="victim"`` is the agent's own unit, which moves with its normaliser.
        steps: of the agent, in all environments together.
        algorithm: of the agent, ``"ppo"`` or ``"a2c"``; adversaries learn with PPO.
        num_envs: environments of either side, attacked as one batch.
        seed: of the training.
        victim: where the agent begins: an SB3 model, a :class:`Victim` or its reference, with a policy of linear
            layers. It keeps its normaliser as it is (or has none). None begins from scratch.
        select: how the agent plays in the adversary's phase, when it is judged, and in its card: ``"mode"`` or
            ``"sample"``.
        when: the timing, as a value or a text; None strikes at every step.
        phase: steps of the agent between two turns of the adversary (rounded up to whole rollouts).
        ratio: the adversary's steps to one of the agent's.
        sampled: whether the adversary explores in the agent's phase.
        checks: how many checkpoints are judged, each by ``episodes`` episodes clean and as many attacked.
        out: a folder for the best agent as a card (``load_victim("card:FOLDER")``), the adversary that it met last
            (``FOLDER/adversary``), the record, and the checkpoints from which a training that was interrupted goes on,
            with new episodes, when it is called again with the same arguments. Nothing in it is unpickled: going on
            from somebody else's folder runs none of their code.
        tensorboard: a folder for SB3's logs.
        progress: called as ``progress(steps done, clean mean return, attacked one or None)``.
        settings, adversary_settings: of the two algorithms, instead of the defaults.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained.

    For example::

        hardened = train_agent("Hopper-v5", "pa-ad", 0.075, scale="victim", steps=2_000_000, out="hopper")
        evaluate(hardened.victim, "Hopper-v5", [hardened.threat, "max-diff:eps=0.075,scale=victim"])
    """
    check_seed(seed)
    if algorithm not in ALGORITHMS:
        raise ThreatError(f"algorithm must be {' or '.join(map(repr, ALGORITHMS))}, got {algorithm!r}")
    if select not in ("mode", "sample"):
        raise ValueRangeError(f"select must be 'mode' or 'sample', got {select!r}")
    plan = Schedule(steps, phase, ratio, checks, episodes, num_envs)
    against = Against.of(adversary, eps, scale, within, when)
    begun = begun_from(victim)
    parts = None if begun is None else anatomy(begun)
    one, name, kwargs = environment_factory(env, begun or _NOBODY, env_kwargs, make)
    chosen = settings_of(algorithm, num_envs, settings, parts)
    theirs = settings_of("ppo", num_envs, adversary_settings, None, adversary=True) if against.learns else {}
    about = {
        "environment": {"id": name, "kwargs": kwargs}, "algorithm": algorithm, "adversary": against.about(),
        **asdict(plan), "seed": seed, "select": select, "sampled": sampled,
        "victim": None if begun is None else begun.fingerprint(),
        "settings": in_words(chosen), "adversary_settings": in_words(theirs),
    }  # fmt: skip
    keep = Keeper(None if out is None else Path(out), about, (name, kwargs))
    opened = ExitStack()  # closes the environments at the end

    def vector() -> SyncVectorEnv:
        return opened.enter_context(closing(SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)))

    with opened, one_thread():
        check_spaces(one, begun)
        logs = None if tensorboard is None else str(tensorboard)
        model = make_agent(vector(), algorithm, chosen, parts, seed, logs, keep.place)
        table = Table(model, live(model, select))
        rival = make_rival(table, against, vector, sampled, theirs, seed, logs, keep.place)
        table.lay(against.threat, rival)
        arena = opened.enter_context(closing(Arena(one, episodes, seed)))
        rounds = Rounds(table, rival, against.threat, arena, plan, keep, select, progress)
        if model.num_timesteps:  # other draws and episodes than at the beginning
            set_random_seed(seed + model.num_timesteps)
            table.normal.seed(seed + model.num_timesteps)
        rounds.init_callback(model)
        if model.num_timesteps < steps:
            left = steps - model.num_timesteps
            model.learn(left, callback=rounds, reset_num_timesteps=False, tb_log_name="agent")
        found, met = rounds.finish()
        for side in [model] if rival is None else [model, rival.model]:
            if hasattr(side, "_logger"):  # else it has not learned in this call
                side.logger.close()
        return Hardened(found, met, tuple(keep.record), keep.best)
