"""One measurement of resilience or robustness: its arguments, checked, and its steps, each written as it is done.

Clean episodes, the training, the test and every transfer are written to the folder as they are done; what is there is
not done again.
"""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import JSON
from adv_wrappers.core.values import Value
from adv_wrappers.errors import Argument, Message, ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.measurements import RunMeasurements
from adv_wrappers.evaluation.player import Block, Cell, Player
from adv_wrappers.evaluation.provenance import versions
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.option_values import OBSERVE
from adv_wrappers.timing import And, AtMost
from adv_wrappers.training.algorithms import check_settings
from adv_wrappers.training.default_settings import timing_settings
from adv_wrappers.training.episode_log import EpisodeLog, TrainingEpisode
from adv_wrappers.training.resilience_result import AttackedEpisodes, Resilience, Robustness, TransferRow
from adv_wrappers.training.stop_rule import StopRule
from adv_wrappers.training.timed_actors import How, actors_of
from adv_wrappers.training.train_adversary import check_algorithm, train_adversary
from adv_wrappers.training.training_folder import (
    STATE,
    TrainingFolder,
    check_counts,
    describe_settings,
    read_record,
    warn_of_unknown,
)
from adv_wrappers.utils.numbers import integer, number
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_rewards import MOST_COST, PerturbationCost

HARD = 10.0  # beyond a hard budget a perturbation costs, in training, this many budgets, or r_max by this if more
_BESIDE = {"device", "tensorboard"}  # arguments of train_adversary that are accepted among the settings
_TAKEN = {*inspect.signature(train_adversary).parameters} - _BESIDE  # those that a measurement sets itself
MeasurementProgress = Callable[[str, int, int], None]


@dataclass
class Measurement:
    """A measurement of resilience, or with a ``budget`` of robustness: its checked arguments, and its steps.

    Attributes:
        victim, environment: the victim, and how its environment is made.
        actor, within, when: the adversary's actor, the budget of its perturbations, and the timing of ``how``, or None.
        aim: makes the actor that is aimed at another victim.
        options: the other arguments of :func:`resilience`, by name.
        budget, hard: as for :func:`robustness`; None and False for resilience.
        others: the victims of ``transfer=``.
        settings: of the algorithm.
        progress: as for :func:`resilience`.
        about: the arguments, as the result has them.
        folder: what is kept.
    """

    victim: Victim
    environment: Environment
    actor: Actor
    within: Budget | None
    when: When | None
    aim: Callable[[Victim], Actor]
    options: dict[str, JSON]
    budget: int | None
    hard: bool
    others: list[Victim]
    settings: dict[str, object]
    progress: MeasurementProgress | None
    about: dict[str, JSON]
    folder: TrainingFolder

    @staticmethod
    def create(
        victim: Victim | str,
        env: AnyEnvironment,
        cost: float,
        r_max: float | None,
        steps: int,
        episodes: int,
        seed: int,
        algorithm: str,
        *,
        how: How = None,
        induce: str = "worst",
        by: str | None = None,
        within: Budget | None = None,
        terminal: bool = False,
        stop: bool = False,
        transfer: Iterable[Victim | str] = (),
        test_seed: int | None = None,
        checks: int = 10,
        check_episodes: int = 30,
        num_envs: int | None = None,
        observe: str | None = None,
        out: str | Path | None = None,
        progress: MeasurementProgress | None = None,
        env_kwargs: Mapping[str, object] | None = None,
        make: MakeEnv | None = None,
        settings: Mapping[str, object] | None = None,
        budget: int | None = None,
        hard: bool = False,
        **more: object,
    ) -> Measurement:
        """The measurement of arguments as :func:`resilience` and :func:`robustness` take them.

        Raises:
            AdvWrappersError: one of its kinds, for arguments that cannot work.
        """
        cost = number("cost", cost, 0, MOST_COST)
        r_max = None if r_max is None else number("r_max", r_max, -MOST_COST, MOST_COST)
        check_algorithm(algorithm)
        seed = integer("seed", seed, 0)
        test_seed = seed if test_seed is None else integer("test_seed", test_seed, 0)
        whole = {"steps": steps, "episodes": episodes, "checks": checks, "check_episodes": check_episodes}
        options: dict[str, JSON] = {name: integer(name, value) for name, value in whole.items()}
        check_counts(**options)
        victim = load_victim(victim)
        others = [load_victim(other) for other in ([transfer] if isinstance(transfer, (str, Victim)) else transfer)]
        environment = Environment.of(env, victim, env_kwargs, make)
        for each in (victim, *others):
            seen, _ = environment.spaces_for(each)
        aim, threat = actors_of(victim, environment, how, induce, by, within)
        actor, *_ = [aim(each) for each in (victim, *others)]  # raises before anything is played
        when = None if threat is None else threat.when
        if not (when is None or isinstance(when, When)):
            expected = f" must be one such as Bernoulli(0.5), not the function {when!r:.60}"
            raise ThreatError(Message("the timing of ", Argument("how", ...), expected))
        flat = isinstance(seen, spaces.Box) and len(seen.shape) == 1 and seen.dtype.kind == "f"
        if observe is None:
            observe = "state" if not flat else "state+action" if budget is None else "state+action+spent"
        options |= {
            "cost": cost,
            "r_max": r_max,
            "seed": seed,
            "test_seed": test_seed,
            "algorithm": algorithm,
            "terminal": bool(terminal),
            "stop": bool(stop),
            "num_envs": num_envs,
            "observe": observe,
        }
        found = timing_settings(algorithm, flat, {**(settings or {}), **more})
        if num_envs is not None:
            check_counts(num_envs=integer("num_envs", num_envs))
        if observe not in OBSERVE:
            known = ", ".join(map(repr, OBSERVE))
            raise ValueRangeError(Message(Argument("observe"), f" must be one of {known}, got {observe!r:.80}"))
        refused = sorted({*found} & _TAKEN)
        if refused:
            refusal = f"{', '.join(refused)} cannot be set here: "
            raise ThreatError(Message(refusal, Argument("how", ...), " is a threat with its budget and timing"))
        check_settings(algorithm, {name: value for name, value in found.items() if name not in _BESIDE})
        warn_of_unknown(out, victim, environment)
        within = within if threat is None else threat.within
        compared = {key: value for key, value in options.items() if key != "steps"}
        about = {
            **compared,
            "budget": budget,
            "hard": hard,
            "actor": _description(actor),
            "when": _description(when),
            "within": _description(within),
            "settings": describe_settings(found),
        }
        asked = {"victim": victim.described(), "environment": environment.described, **about}
        folder = TrainingFolder(out, "resilience" if budget is None else "robustness", asked)
        return Measurement(
            victim,
            environment,
            actor,
            within,
            when,
            aim,
            options,
            budget,
            hard,
            others,
            found,
            progress,
            about,
            folder,
        )

    @property
    def kind(self) -> type[Resilience]:
        """The class of the result."""
        return Resilience if self.budget is None else Robustness

    def run(self) -> Resilience:
        """Measure what the folder does not hold yet.

        Raises:
            ValueRangeError: for an ``r_max`` below the clean return.
        """
        done, save = self.folder.result, self.folder.save_result
        if "clean_returns" not in done:
            clean = self._play("clean episodes", self.victim, None)[0].returns.tolist()
            save(versions=versions(), clean_returns=clean, transfer=[])
        r_max = self._r_max(done["clean_returns"])
        reward = self._reward(r_max)
        if done.get("asked") == self.options["steps"]:
            adversary = self._trained()
        else:
            adversary, trained = self._train(reward, r_max)
            save(**trained, asked=self.options["steps"], test=None, transfer=[])
        if done["test"] is None:
            test, histogram = self._test("test", self.victim, adversary, reward, r_max)
            save(test=test.to_dict(), histogram=histogram)
        rows = []
        for other in self.others:
            known = [row for row in done["transfer"] if row["victim"] == other.described()]
            rows += known or [self._transfer(other, adversary, reward).to_dict()]
            if not known:
                save(transfer=[*done["transfer"], rows[-1]])
        data = {
            **done,
            "kind": self.kind.kind,
            "victim": self.victim.described(),
            "env": self.environment.described,
            "about": self.about,
            "episode_seeds": self.seeds,
            "r_max": r_max,
            "transfer": rows,
            **({} if self.budget is None else {"budget": self.budget, "hard": self.hard}),
        }
        found = self.kind.from_dict(data, adversary)
        if self.folder.out is not None:
            found.to_json(self.folder.out / f"{self.kind.kind}.json")
        return found

    def _reward(self, r_max: float) -> PerturbationCost:
        """The adversary's reward in training.

        Where no perturbation beyond the budget is possible, an adversary that has spent it too early plays a whole
        episode to no purpose: of CartPole it sees a hundred episodes then in the time of six thousand. So it may go on
        in training, at a high cost.
        """
        cost, terminal = self.options["cost"], self.options["terminal"]
        beyond = (max(HARD * cost * (self.budget or 0), abs(r_max) / HARD) or 1.0) if self.hard else None
        return PerturbationCost(cost, self.budget, terminal, r_max if terminal else None, beyond)

    @property
    def timing(self) -> When | None:
        """The timing of the adversary that is tested."""
        if not self.hard:
            return self.when
        assert self.budget is not None
        return AtMost(self.budget) if self.when is None else And(self.when, AtMost(self.budget))

    def _r_max(self, clean: list[float]) -> float:
        given, highest = self.options["r_max"], max(clean)
        if given is not None and given < highest:
            least = f" must be at least the highest clean return, {highest:g}, got {given:g}"
            raise ValueRangeError(Message(Argument("r_max"), least))
        return float(highest if given is None else given)

    def _train(self, reward: PerturbationCost, r_max: float) -> tuple[Learned, dict[str, JSON]]:
        """The trained adversary, and what the result says of its training."""
        options, started = self.options, time.process_time()
        out = self.folder.out
        folder = None if out is None else out / "adversary"
        before: dict[str, JSON] = {"steps": 0, "seconds": 0.0}
        if folder is not None and (folder / STATE).exists():
            before = (read_record(folder) or [before])[-1]
        log = EpisodeLog(None if out is None else out / "training.csv", before["steps"])
        rule = StopRule(r_max)
        for row in log.rows:
            rule.add(row.victim_return, row.perturbations)

        def on_episode(steps: int, victim_return: float, perturbations: int, length: int) -> bool:
            log.add(TrainingEpisode(steps, victim_return, perturbations, length))
            return not (rule.add(victim_return, perturbations) and options["stop"])

        reached = [int(before["steps"])]

        def progress(done: int, _: float) -> None:
            reached.append(done)
            self._show("training", min(done, options["steps"]), options["steps"])

        if options["stop"] and rule.met and folder is not None:
            adversary = self._trained()
        else:
            self._show("training", min(before["steps"], options["steps"]), options["steps"])
            train: Callable[..., Learned] = train_adversary  # settings are of any type
            adversary = train(
                self.actor,
                self.environment,
                self.victim,
                steps=options["steps"],
                algorithm=options["algorithm"],
                num_envs=options["num_envs"],
                seed=options["seed"],
                within=self.within,
                when=self.when,
                checks=options["checks"],
                episodes=options["check_episodes"],
                out=folder,
                progress=progress,
                observe=options["observe"],
                reward=reward,
                on_episode=on_episode,
                **self.settings,
            )
        found: dict[str, JSON] = {name: [getattr(row, name) for row in log.rows] for name in TrainingEpisode._fields}
        episodes = self._episodes(reward, r_max, found["victim_return"], found["perturbations"], found["length"])
        if self.hard:
            adversary = replace(adversary, when=self.timing)
            if folder is not None:
                card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
                adversary = adversary.save(folder, self.within, card["training"])
        seconds = before["seconds"] + time.process_time() - started
        return adversary, {
            "training": {**episodes.to_dict(), "steps": found["steps"]},
            "steps": reached[-1],
            "seconds": seconds,
            "stopped": bool(options["stop"] and rule.met),
        }

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

    def _play(self, what: str, victim: Victim, threat: ThreatModel | None) -> tuple[RunMeasurements, Counter[int]]:
        """The test's episodes, as :func:`adv_wrappers.evaluate` plays them, and how many were attacked at step t."""
        episodes, attacked = self.options["episodes"], Counter[int]()
        images = len(victim.observation_space.shape or ()) > 1
        how = Episodes(episodes, num_envs=min(8 if images else 32, episodes))
        stack = ThreatStack(what, () if threat is None else (threat,), False)
        with closing(Player([Cell(victim, self.environment, stack, how)])) as player, one_thread():
            self._show(what, 0, episodes)
            block = Block(0, tuple(self.seeds))
            run, _ = player.play(block, lambda done: self._show(what, done, episodes), attacked)
        return run, attacked

    def _episodes(
        self, reward: PerturbationCost, r_max: float, returns: ArrayLike, perturbations: ArrayLike, lengths: ArrayLike
    ) -> AttackedEpisodes:
        """Episodes with what their perturbations cost."""
        found, attacks = np.asarray(returns, np.float64), np.asarray(perturbations, np.int64)
        costs = np.asarray(reward.total(np.zeros_like(found), attacks), np.float64)
        return AttackedEpisodes(found, attacks, np.asarray(lengths, np.int64), costs, r_max)

    @property
    def seeds(self) -> list[int]:
        """The seeds of the test's episodes."""
        return draw_seeds(self.options["test_seed"], self.options["episodes"])

    def _show(self, what: str, done: int, whole: int) -> None:
        if self.progress is not None:
            self.progress(what, done, whole)

    def _trained(self) -> Learned:
        """The adversary of the folder."""
        assert self.folder.out is not None
        return Learned(card=str(self.folder.out / "adversary"), victim=self.actor.victim)


def _description(part: object) -> JSON:
    """A part of a measurement in JSON."""
    if isinstance(part, Actor):
        return part.open().to_dict()
    return part.to_dict() if isinstance(part, Value) else describe_settings(part)
