"""One measurement of resilience or robustness: its arguments, checked, and its steps, each written as it is done.

Clean episodes, the training, the test and every transfer are written to the folder as they are done; what is there is
not done again.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.adversaries.timed import Induce, Timed
from adv_wrappers.attacks.action_attacks import WorstAction
from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.core.perturbation import Perturbation, When
from adv_wrappers.core.spaces import numbered_as
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.timing import And, AtMost
from adv_wrappers.environments.environment import EnvFactory, Environment
from adv_wrappers.environments.replay import record_for_replay
from adv_wrappers.environments.snapshot import check_repeats
from adv_wrappers.errors import (
    ThreatError,
    ValueRangeError,
    VictimError,
    threat_in_errors,
)
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.player import Block, Cell, Player
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.threats.presets import as_actor, as_threat
from adv_wrappers.training.adversary import (
    AdversaryScore,
    AdversaryTask,
    adversary_budget,
    check_algorithm,
    train_adversary,
    train_director,
)
from adv_wrappers.training.folder import (
    STATE,
    TrainingFolder,
    describe_settings,
    read_record,
    warn_of_unknown,
)
from adv_wrappers.training.resilience.result import AttackedEpisodes, Resilience, TransferRow
from adv_wrappers.training.sb3.algorithms import Training
from adv_wrappers.training.sb3.hyperparameters import timing_settings
from adv_wrappers.utils.reading import read_json
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

HARD = 10.0  # beyond a hard budget a perturbation costs, in training, this many budgets, or r_max by this if more
_TAKEN = {*inspect.signature(train_adversary).parameters}  # arguments that are no settings of the algorithm
By = Literal["q", "policy", "successor"]  # how the worst action is found
Induced = Literal["worst", "any"]
MeasurementProgress = Callable[[str, int, int], None]


PerturbationLike: TypeAlias = ThreatModel | Perturbation | Mapping[str, object] | str | None


def worst_action_of(victim: Victim, make_env: EnvFactory, by: By | None = None) -> WorstAction:
    """The action that a victim values least, found in the best way that there is for it (equations 2 and 3).

    Of discrete actions it is another than the one that is played, of which a value may think the least.

    Args:
        victim: the victim.
        make_env: makes its environment.
        by: as for :class:`adv_wrappers.WorstAction`; None takes ``"q"``, else ``"successor"``.

    Raises:
        VictimError: for a victim with neither Q-values nor a state value.
        SnapshotError: where the successors are needed and the environment can neither be saved nor replayed.
    """
    if by is None and victim.has_q:
        by = "q"
    if by is None and victim.has_value and victim.discrete:
        by = "successor"
    if by is None:
        raise VictimError(
            "the worst action needs Q-values, or the state value of a victim with discrete actions, and this victim "
            "has neither: approximate them with imitate, take the least "
            "likely action with by='policy', or give how="
        )
    # equation 3 tries actions and undoes them, which has to lead back to the same state
    if by == "successor":
        with closing(record_for_replay(make_env())) as env:
            env.reset(seed=0)
            check_repeats(env, action_space=numbered_as(victim.action_space, env.action_space))
    return WorstAction(victim, by, other=victim.discrete)


def actors_of(
    victim: Victim, make_env: EnvFactory, how: PerturbationLike, induce: Induced, by: By | None, within: Budget | None
) -> tuple[Callable[[Victim], Actor], ThreatModel | None]:
    """What makes the actor for a victim, and the threat that ``how`` stands for.

    Args:
        victim: the victim.
        make_env: makes its environment.
        how, induce, by, within: as for :func:`adv_wrappers.resilience`.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that do not go together.
    """
    for name, value in (("by", by), *((("induce", induce),) if induce != "worst" else ())):
        if how is not None and value is not None:
            raise ThreatError(f"{name}= chooses what is induced, and so does how=: give one of them")
    # the adversary names the action itself, or times what is the worst action or a perturbation
    if induce == "any":
        if by is not None:
            raise ThreatError("by= finds the worst action, induce= leaves it to the adversary: give one of them")
        return Induce, None
    if how is None:
        return lambda each: Timed(worst_action_of(each, make_env, by), each), None
    threat = as_threat(how, within=within)
    if threat.at is not None:
        raise ThreatError(f"an adversary perturbs whole observations, got a threat at {threat.at!r}")

    def timed(victim: Victim) -> Actor:
        with threat_in_errors(how):
            return Timed(threat.how, victim)

    return timed, threat


# arguments that a folder is known by, of those that are kept as they are; ``steps`` may grow
_ASKED = (
    "episodes", "checks", "check_episodes", "cost", "r_max", "seed", "test_seed", "algorithm", "terminal",
    "num_envs", "observe", "budget", "hard",
)  # fmt: skip


class Measurement:
    """A measurement of resilience, or with a ``budget`` of robustness: its arguments, and its steps.

    Args:
        given: the arguments of :func:`adv_wrappers.resilience` by their names, checked.
        budget, hard: as for :func:`adv_wrappers.robustness`; None for resilience.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that cannot work.
    """

    def __init__(self, given: Mapping[str, Any], budget: int | None = None, hard: bool = False) -> None:
        asked = {**given, "budget": budget, "hard": hard}
        check_algorithm(asked["algorithm"])
        self.victim = victim = load_victim(asked["victim"])
        self.environment = Environment.of(asked["env"], victim, asked["env_kwargs"], asked["make"])
        # other victims, which the trained adversary is tried on
        transfer = asked["transfer"]
        self.others = [load_victim(one) for one in ([transfer] if isinstance(transfer, (str, Victim)) else transfer)]
        for each in (victim, *self.others):
            seen, _ = self.environment.spaces_for(each)
        # what the adversary times, and within which budget
        parts = (asked[name] for name in ("how", "induce", "by", "within"))
        self.aim, threat = actors_of(victim, self.environment, *parts)
        self.actor, *_ = [self.aim(each) for each in (victim, *self.others)]  # raises before anything is played
        when = None if threat is None else threat.when
        if not (when is None or isinstance(when, When)):
            raise ThreatError(f"the timing of how= must be one such as Bernoulli(0.5), not the function {when!r:.60}")
        self.when, self.within = when, asked["within"] if threat is None else threat.within
        # what the adversary sees, by default as much as it can use
        flat = isinstance(seen, spaces.Box) and len(seen.shape) == 1 and seen.dtype.kind == "f"
        if asked["observe"] is None:
            asked["observe"] = "state" if not flat else "state+action" if budget is None else "state+action+spent"
        if asked["test_seed"] is None:
            asked["test_seed"] = asked["seed"]
        if refused := sorted({*asked["settings"]} & _TAKEN):
            raise ThreatError(f"{', '.join(refused)} cannot be set here: how= is a threat with its budget and timing")
        self.asked = asked
        self.budget = budget
        self.hard = hard
        self.cost = float(asked["cost"])
        self.steps: int = asked["steps"]
        # how it is trained
        self.training = Training(
            steps=self.steps,
            algorithm=asked["algorithm"],
            num_envs=asked["num_envs"],
            checks=asked["checks"],
            episodes=asked["check_episodes"],
            seed=asked["seed"],
            settings=timing_settings(asked["algorithm"], flat, asked["settings"]),
            device=asked["device"],
            tensorboard=asked["tensorboard"],
        )
        warn_of_unknown(asked["out"], victim, self.environment)
        # what the folder is known by
        self.about = {
            **{name: asked[name] for name in _ASKED},
            "actor": self.actor.open().to_dict(),
            "when": describe_settings(when),
            "within": describe_settings(self.within),
            "settings": describe_settings(self.training.settings),
        }
        known = {"victim": victim.described(), "environment": self.environment.described, **self.about}
        known["stop"] = False  # folders of 0.2.0 say whether a rule might end the training
        self.folder = TrainingFolder(asked["out"], "resilience" if budget is None else "robustness", known)
        self.seeds = draw_seeds(asked["test_seed"], asked["episodes"])

    def run(self) -> Resilience:
        """Measure what the folder does not hold yet.

        Raises:
            ValueRangeError: for an ``r_max`` below the clean return.
        """
        done, save = self.folder.result, self.folder.save_result
        # the clean return, which regret counts from
        if "clean_returns" not in done:
            clean = self._play("clean episodes", self.victim, None)[0].returns.tolist()
            save(versions=versions(), clean_returns=clean, transfer=[])
        r_max = self._r_max(done["clean_returns"])
        reward = self._reward(r_max)
        # the trained adversary, then its test
        if done.get("asked") == self.steps:
            adversary = self._trained()
        else:
            adversary, trained = self._train(reward, r_max)
            save(**trained, asked=self.steps, test=None, transfer=[])
        if done["test"] is None:
            test, histogram = self._test("test", self.victim, adversary, reward, r_max)
            save(test=test.to_dict(), histogram=histogram)
        # the same adversary against the other victims
        rows = []
        for other in self.others:
            known = [row for row in done["transfer"] if row["victim"] == other.described()]
            rows += known or [self._transfer(other, adversary, reward).to_dict()]
            if not known:
                save(transfer=[*done["transfer"], rows[-1]])
        # all of it as one result
        found = Resilience(
            adversary=adversary,
            victim=self.victim.described(),
            env=self.environment.described,
            r_max=r_max,
            test=AttackedEpisodes.from_dict(done["test"], r_max),
            training=AttackedEpisodes.from_dict(done["training"], r_max),
            clean_returns=np.asarray(done["clean_returns"], np.float64),
            histogram=np.asarray(done["histogram"], np.int64),
            transfer=tuple(map(TransferRow.from_dict, rows)),
            steps=done["steps"],
            seconds=done["seconds"],
            episode_seeds=tuple(self.seeds),
            about=self.about,
            versions=done["versions"],
            budget=self.budget,
            hard=self.hard,
        )
        if self.folder.out is not None:
            found.to_json(self.folder.out / f"{found.kind}.json")
        return found

    def _reward(self, r_max: float) -> PerturbationCost:
        """The adversary's reward in training.

        Where no perturbation beyond the budget is possible, an adversary that has spent it too early plays a whole
        episode to no purpose: of CartPole it sees a hundred episodes then in the time of six thousand. So it may go on
        in training, at a high cost.
        """
        cost = self.cost
        terminal = self.asked["terminal"]
        budget = self.budget
        beyond = (max(HARD * cost * (budget or 0), abs(r_max) / HARD) or 1.0) if self.hard else None
        return PerturbationCost(cost, budget, terminal, r_max if terminal else None, beyond)

    @property
    def timing(self) -> When | None:
        """The timing of the adversary that is tested."""
        if not self.hard:
            return self.when
        assert self.budget is not None
        return AtMost(self.budget) if self.when is None else And(self.when, AtMost(self.budget))

    def _r_max(self, clean: list[float]) -> float:
        given, highest = self.asked["r_max"], max(clean)
        if given is not None and given < highest:
            raise ValueRangeError(f"r_max must be at least the highest clean return, {highest:g}, got {given:g}")
        return float(highest if given is None else given)

    def _train(self, reward: PerturbationCost, r_max: float) -> tuple[Learned, dict[str, Any]]:
        """The trained adversary, and what the result says of its training."""
        out, started = self.folder.out, time.process_time()
        folder = None if out is None else out / "adversary"
        before: dict[str, Any] = {"steps": 0, "seconds": 0.0}
        if folder is not None and (folder / STATE).exists():
            before = (read_record(folder) or [before])[-1]
        known = self.folder.result.get("training", {})
        columns = (known.get(name, ()) for name in ("steps", "returns", "perturbations", "lengths"))
        # those that ended after the last checkpoint are played again
        episodes = [episode for episode in zip(*columns, strict=True) if episode[0] <= before["steps"]]
        reached = [int(before["steps"])]

        def trained() -> dict[str, Any]:
            steps, returns, perturbations, lengths = np.array(episodes, np.float64).reshape(-1, 4).T
            found = self._episodes(reward, r_max, returns, perturbations, lengths)
            return {**found.to_dict(), "steps": steps.astype(int).tolist()}

        def progress(done: int, _: float) -> None:
            reached.append(done)
            self.folder.save_result(training=trained())
            self._show("training", min(done, self.steps), self.steps)

        self._show("training", min(before["steps"], self.steps), self.steps)
        actor = as_actor(self.actor, self.victim)
        budget = adversary_budget(actor, self.victim, None, None, self.within)
        score = AdversaryScore(self.victim, actor, budget, self.when, self.asked["observe"])
        task = AdversaryTask(self.environment, score, reward, True)
        adversary = train_director(task, self.training, folder, progress, lambda *episode: episodes.append(episode))
        if self.hard:
            adversary = replace(adversary, when=self.timing)
            if folder is not None:
                card = read_json(folder / "card.json")
                adversary = adversary.save(folder, self.within, card["training"])
        seconds = before["seconds"] + time.process_time() - started
        return adversary, {"training": trained(), "steps": reached[-1], "seconds": seconds}

    def _test(
        self, what: str, victim: Victim, adversary: Learned, reward: PerturbationCost, r_max: float
    ) -> tuple[AttackedEpisodes, list[int]]:
        """The test's episodes of a victim under its adversary, and how many of them were attacked at step t."""
        threat = ThreatModel(adversary.on, adversary, self.within, self.timing)
        run, attacked = self._play(what, victim, threat)
        histogram = [attacked[t] for t in range(int(run.lengths.max()))]
        return self._episodes(reward, r_max, run.returns, run.attacked_steps, run.lengths), histogram

    def _transfer(self, other: Victim, adversary: Learned, reward: PerturbationCost) -> TransferRow:
        """What the adversary does to another victim: its decisions of when, with the other's own worst actions."""
        name = f"transfer to {other.ref or 'victim'}"
        clean = self._play(f"{name}, clean", other, None)[0].returns
        aimed = Learned(
            adversary.director, self.aim(other), observe=adversary.observe, within=self.within, when=self.timing
        )
        test, _ = self._test(name, other, aimed, reward, float(clean.max()))
        return TransferRow(other.described(), test, clean)

    def _play(self, what: str, victim: Victim, threat: ThreatModel | None) -> tuple[BlockMeasurements, Counter[int]]:
        """The test's episodes, as :func:`adv_wrappers.evaluate` plays them, and how many were attacked at step t."""
        episodes, attacked = len(self.seeds), Counter[int]()
        images = len(victim.observation_space.shape or ()) > 1
        how = Episodes(episodes, num_envs=min(8 if images else 32, episodes))
        stack = ThreatStack(what, () if threat is None else (threat,), False)
        with closing(Player([Cell(victim, self.environment, stack, how)])) as player, one_thread():
            self._show(what, 0, episodes)
            block = Block(0, tuple(self.seeds))
            run = player.play(block, lambda done: self._show(what, done, episodes), attacked)
        return run, attacked

    def _episodes(
        self, reward: PerturbationCost, r_max: float, returns: ArrayLike, perturbations: ArrayLike, lengths: ArrayLike
    ) -> AttackedEpisodes:
        """Episodes with what their perturbations cost."""
        found, attacks = np.asarray(returns, np.float64), np.asarray(perturbations, np.int64)
        costs = np.asarray(reward.total(np.zeros_like(found), attacks), np.float64)
        return AttackedEpisodes(found, attacks, np.asarray(lengths, np.int64), costs, r_max)

    def _show(self, what: str, done: int, whole: int) -> None:
        if self.asked["progress"] is not None:
            self.asked["progress"](what, done, whole)

    def _trained(self) -> Learned:
        """The adversary of the folder."""
        assert self.folder.out is not None
        return Learned(card=str(self.folder.out / "adversary"), victim=self.actor.victim)
