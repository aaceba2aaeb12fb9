"""resilience and robustness: how few perturbations break a policy, at which steps, and how much a few of them cost it.

After Behzadan and Hsu 2019. An adversary plays the victim's game and decides at every step whether to perturb; its
reward is Algorithm 1 (resilience) or 2 (robustness), its action set equation 2 (nothing, or the action that the victim
values least) or, with ``induce="any"``, equation 1. Then the deterministic adversary is tested on episodes of its own.

Equations 1 and 2 are ``actors_of``, equation 3 ``worst_action_of``, the two algorithms ``Measurement._reward``;
the steps of section 3 follow one another in ``Measurement.run``. What they find, and Table 6, is ``result.py``; the DQN
of Tables 2 and 5 is ``training/sb3/prioritized_dqn.py``.

Choices where the paper leaves one open, or where this differs:

- Reward: the paper pays R_max - R_T at the end of an episode. That sum telescopes into -r_t a step and a constant, so
  for gamma = 1 both rewards have the same optimum; the dense one is learned from far sooner and is the default,
  ``terminal=True`` takes the paper's. gamma is 1 here, since what is measured are sums over an episode.
- Algorithm: PPO learns the same timings as the paper's DQN in a fraction of the steps (``docs/results/resilience.md``);
  ``algorithm="dqn"`` takes the paper's, with the settings of its Table 5.
- Checkpoints: the adversary that is tested is not the last one but the best of ``checks`` checkpoints, compared by the
  return that they leave plus what they cost, over episodes that are neither those of the training nor of the test.
- A perturbation induces another action than the one that is played, as equation 1 has it. The paper's argmin of Q may
  name the very action: A2C's and PPO's state values contradict their policies at one step in twenty, and the adversary
  would pay for nothing.
- The victim's Q (equation 3): a victim with a state value alone gets ``by="successor"``, Q = r + gamma V(s'), from the
  environment's snapshots. The paper approximates Q by imitation where a victim has neither: :func:`imitate`.
- A budget makes the game depend on what was spent: the adversary of ``robustness`` observes it, which the paper's does
  not. With a hard budget it may exceed it in training, at a high cost (ten budgets, or a tenth of r_max if that is
  more), and is tested without: one that spent its budget too early would otherwise play out whole episodes in which it
  has nothing to learn.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
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
from adv_wrappers.environments.environment import AnyEnvironment, EnvFactory, Environment, MakeEnv
from adv_wrappers.environments.replay import record_for_replay
from adv_wrappers.environments.snapshot import check_repeats
from adv_wrappers.errors import ThreatError, ValueRangeError, VictimError, threat_in_errors
from adv_wrappers.evaluation.episodes import Episodes, draw_seeds
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.evaluation.player import Block, Cell, Player
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.threat_stacks import ThreatStack
from adv_wrappers.registry import Observe
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
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.reading import read_json
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    AttackCount,
    Cost,
    EnvCount,
    EpisodeCount,
    Return,
    Seed,
    TrainingSeed,
    TrainingSteps,
    checked,
    checked_arguments,
)
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

HARD = 10.0  # beyond a hard budget a perturbation costs, in training, this many budgets, or r_max by this if more
_TAKEN = {*inspect.signature(train_adversary).parameters}  # arguments that are no settings of the algorithm
By = Literal["q", "policy", "successor"]  # how the worst action is found
MeasurementProgress = Callable[[str, int, int], None]
PerturbationLike: TypeAlias = ThreatModel | Perturbation | Mapping[str, object] | str | None


@checked
@holding
def resilience(
    victim: Victim | str,
    env: AnyEnvironment,
    cost: Cost = 1.0,
    r_max: Return | None = None,
    steps: TrainingSteps = 60_000,
    episodes: EpisodeCount = 100,
    seed: TrainingSeed = 0,
    algorithm: str = "ppo",
    *,
    how: PerturbationLike = None,
    induce: Literal["worst", "any"] = "worst",
    by: Literal["q", "successor", "policy"] | None = None,
    within: Budget | None = None,
    terminal: bool = False,
    transfer: Iterable[Victim | str] = (),
    test_seed: Seed | None = None,
    checks: TrainingSteps = 10,
    check_episodes: EpisodeCount = 30,
    num_envs: EnvCount | None = None,
    observe: Observe | None = None,
    device: str | torch.device | None = None,
    tensorboard: str | Path | None = None,
    out: str | Path | None = None,
    progress: MeasurementProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    **settings: Any,
) -> Resilience:
    """Measure the test-time resilience of a victim: how few perturbations a learned adversary needs to break it.

    The adversary decides at every step whether to perturb, and is trained on Algorithm 1 of Behzadan and Hsu 2019.
    Then it is tested, deterministic, on ``episodes`` other episodes.

    Args:
        victim: the victim, or its reference.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        cost: of a perturbation, in units of a reward (c_adv; the paper's is 1).
        r_max: return that regret is counted from; None takes the highest clean return of the test.
        steps: environment steps of the adversary's training, summed over all environments.
        episodes: episodes of the test.
        seed: seeds all randomness of the training, and the test's episodes.
        algorithm: ``"ppo"``, ``"a2c"``, or ``"dqn"``, the paper's.
        how: what a perturbation does, such as ``"max-diff:eps=0.1"``; None takes the action that the victim values
            least. It is a perturbation of observations or actions, a threat, or the text of one. None is
            :class:`adv_wrappers.WorstAction` (equation 2).
        induce: ``"worst"``, or ``"any"``: the adversary names the action (equation 1).
        by: how the worst action is found; None takes ``"q"`` where the victim has Q-values, else ``"successor"``. They
            are those of :class:`adv_wrappers.WorstAction`; the latter needs a state value, and an environment that
            repeats from snapshots.
        within: budget of ``how``, where it needs one.
        terminal: the paper's reward, at the end of an episode, instead of one at every step. It is r_max minus the
            return, instead of minus the victim's reward.
        transfer: further victims or references that the adversary is tested on, untrained.
        test_seed: seeds the test's episodes instead of ``seed``. They are those of ``evaluate(..., seed=test_seed)``.
        checks: checkpoints of the training that are compared.
        check_episodes: episodes that each checkpoint is judged by.
        num_envs: environments attacked as one batch; None takes 32, or 8 for images.
        observe: what the adversary observes; None takes ``"state+action"``, for images ``"state"``. As for
            :class:`adv_wrappers.AdversaryEnv`; the first is the paper's augmented state.
        out: a folder for results and figures; the same call goes on where it stopped. It gets the result
            (``resilience.json``) and the adversary (``adversary``). A call returns what is finished; with more
            ``steps`` it goes on.
        progress: called as ``progress(what, done, of how many)``.
        device, tensorboard: as for :func:`adv_wrappers.train_adversary`.
        **settings: settings of the algorithm, instead of the defaults.

    Returns:
        The result; what it measured agrees with :func:`adv_wrappers.evaluate` on its adversary.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained: :class:`VictimError` for a victim with neither
            Q-values nor a state value, and for ``induce="any"`` on continuous actions; :class:`SnapshotError` for an
            environment that does not repeat; :class:`ValueRangeError` for a negative cost, and for an ``r_max`` below
            the clean return.
    """
    return Measurement({**locals(), "budget": None, "hard": False}).run()


@checked
@holding
def robustness(
    victim: Victim | str,
    env: AnyEnvironment,
    budget: AttackCount,
    hard: bool = False,
    cost: Cost = 1.0,
    r_max: Return | None = None,
    steps: TrainingSteps = 60_000,
    episodes: EpisodeCount = 100,
    seed: TrainingSeed = 0,
    algorithm: str = "ppo",
    *,
    out: str | Path | None = None,
    progress: MeasurementProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    **options: Any,
) -> Resilience:
    """Measure the test-time robustness of a victim: how much regret a budget of perturbations causes.

    Args:
        victim, env, cost, r_max, steps, episodes, seed, algorithm: as for :func:`resilience`.
        budget: perturbations of an episode.
        hard: no more than ``budget``, instead of a higher cost of each beyond it. No more are possible in the test then
            (:class:`adv_wrappers.AtMost`); else, as in Algorithm 2, each beyond it costs ``budget`` times as much.
        out: as for :func:`resilience`; the result is ``robustness.json``.
        progress, env_kwargs, make: as for :func:`resilience`.
        **options: further arguments of :func:`resilience`. ``observe=None`` takes ``"state+action+spent"``: which steps
            are worth a perturbation depends on how many are left.

    Raises:
        AdvWrappersError: as :func:`resilience`.
    """
    given = {**locals()}
    for name in ("budget", "hard", "options"):
        del given[name]
    asked = checked_arguments(resilience, **given, **options)
    return Measurement({**asked, "budget": budget, "hard": hard}).run()


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
    victim: Victim, make_env: EnvFactory, asked: Mapping[str, Any]
) -> tuple[Callable[[Victim], Actor], ThreatModel | None]:
    """What makes the actor for a victim, and the threat that ``how`` stands for.

    Args:
        victim: the victim.
        make_env: makes its environment.
        asked: ``how``, ``induce``, ``by`` and ``within`` of :func:`adv_wrappers.resilience`.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that do not go together.
    """
    how, induce, by = asked["how"], asked["induce"], asked["by"]
    for name, given in (("by", by is not None), ("induce", induce != "worst")):
        if how is not None and given:
            raise ThreatError(f"{name}= chooses what is induced, and so does how=: give one of them")
    # equation 1: the adversary names the action itself
    if induce == "any":
        if by is not None:
            raise ThreatError("by= finds the worst action, induce= leaves it to the adversary: give one of them")
        return Induce, None
    # equation 2: it decides when the worst action is taken; and likewise when any other perturbation is applied
    if how is None:
        return lambda each: Timed(worst_action_of(each, make_env, by), each), None
    threat = as_threat(how, within=asked["within"])
    if threat.at is not None:
        raise ThreatError(f"an adversary perturbs whole observations, got a threat at {threat.at!r}")

    def timed(victim: Victim) -> Actor:
        with threat_in_errors(how):
            return Timed(threat.how, victim)

    return timed, threat


def timing_settings(algorithm: str, flat: bool, given: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the settings of other adversaries for one that learns when to attack.

    Args:
        algorithm: ``"ppo"``, ``"a2c"`` or ``"dqn"``.
        flat: whether observations have one dimension; else they are images, whose other settings stay.
        given: settings that take precedence.
    """
    if algorithm == "dqn":
        return {**given}
    rate = {"learning_rate": 3e-3} if algorithm == "ppo" else {}
    return {"gamma": 1.0, **({**rate, "ent_coef": 0.01} if flat else {}), **given}


# arguments that a folder is known by, of those that are kept as they are; ``steps`` may grow
_ASKED = (
    "episodes", "checks", "check_episodes", "cost", "r_max", "seed", "test_seed", "algorithm", "terminal",
    "num_envs", "observe", "budget", "hard",
)  # fmt: skip


class Measurement:
    """A measurement of resilience, or with a ``budget`` of robustness: its arguments, and its steps in their order.

    Clean episodes, the training, the test and every transfer are written to the folder as they are done; what is there
    is not done again.

    Args:
        asked: the arguments of :func:`adv_wrappers.resilience` by their names, checked, with ``budget`` and ``hard`` of
            :func:`adv_wrappers.robustness`.

    Raises:
        AdvWrappersError: one of its kinds, for arguments that cannot work.
    """

    def __init__(self, asked: dict[str, Any]) -> None:
        check_algorithm(asked["algorithm"])
        self.asked = asked
        self.budget: int | None = asked["budget"]
        self.victim = victim = load_victim(asked["victim"])
        self.environment = Environment.of(asked["env"], victim, asked["env_kwargs"], asked["make"])
        # other victims, which the trained adversary is tried on
        transfer = asked["transfer"]
        self.others = [load_victim(one) for one in ([transfer] if isinstance(transfer, (str, Victim)) else transfer)]
        for each in (victim, *self.others):
            seen, _ = self.environment.spaces_for(each)
        # what the adversary times, within which budget and at which steps
        self.aim, threat = actors_of(victim, self.environment, asked)
        self.actor, *_ = [self.aim(each) for each in (victim, *self.others)]  # raises before anything is played
        self.within = asked["within"] if threat is None else threat.within
        when = None if threat is None else threat.when
        if not (when is None or isinstance(when, When)):
            raise ThreatError(f"the timing of how= must be one such as Bernoulli(0.5), not the function {when!r:.60}")
        # no more than a hard budget allows in the test
        self.when = self.tested_when = when
        if asked["hard"]:
            assert self.budget is not None
            self.tested_when = AtMost(self.budget) if when is None else And(when, AtMost(self.budget))
        # what the adversary sees, by default as much as it can use
        flat = isinstance(seen, spaces.Box) and len(seen.shape) == 1 and seen.dtype.kind == "f"
        if asked["observe"] is None:
            asked["observe"] = "state" if not flat else "state+action" if self.budget is None else "state+action+spent"
        if asked["test_seed"] is None:
            asked["test_seed"] = asked["seed"]
        # how it is trained
        if refused := sorted({*asked["settings"]} & _TAKEN):
            raise ThreatError(f"{', '.join(refused)} cannot be set here: how= is a threat with its budget and timing")
        named = ("steps", "algorithm", "num_envs", "checks", "seed", "device", "tensorboard")
        self.training = Training(
            episodes=asked["check_episodes"],
            settings=timing_settings(asked["algorithm"], flat, asked["settings"]),
            **{name: asked[name] for name in named},
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
        self.folder = TrainingFolder(asked["out"], "resilience" if self.budget is None else "robustness", known)
        self.seeds = draw_seeds(asked["test_seed"], asked["episodes"])

    def run(self) -> Resilience:
        """Measure what the folder does not hold yet.

        Raises:
            ValueRangeError: for an ``r_max`` below the clean return.
        """
        steps, given = self.training.steps, self.asked["r_max"]
        done, save = self.folder.result, self.folder.save_result
        # the highest clean return, which regret counts from
        if "clean_returns" not in done:
            clean = self._play("clean episodes", self.victim)[0].returns.tolist()
            save(versions=versions(), clean_returns=clean, transfer=[])
        highest = max(done["clean_returns"])
        if given is not None and given < highest:
            raise ValueRangeError(f"r_max must be at least the highest clean return, {highest:g}, got {given:g}")
        r_max = float(highest if given is None else given)
        # the trained adversary, then its test
        reward = self._reward(r_max)
        if done.get("asked") == steps:
            assert self.folder.out is not None
            adversary = Learned(card=str(self.folder.out / "adversary"), victim=self.actor.victim)
        else:
            adversary, trained = self._train(reward, r_max)
            save(**trained, asked=steps, test=None, transfer=[])
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
            hard=self.asked["hard"],
        )
        if self.folder.out is not None:
            found.to_json(self.folder.out / f"{found.kind}.json")
        return found

    def _reward(self, r_max: float) -> PerturbationCost:
        """The adversary's reward in training: Algorithm 1, or with a budget Algorithm 2.

        Where no perturbation beyond the budget is possible, an adversary that has spent it too early plays a whole
        episode to no purpose: of CartPole it sees a hundred episodes then in the time of six thousand. So it may go on
        in training, at a high cost.
        """
        cost, terminal = float(self.asked["cost"]), self.asked["terminal"]
        beyond = None
        if self.asked["hard"]:
            beyond = max(HARD * cost * (self.budget or 0), abs(r_max) / HARD) or 1.0
        return PerturbationCost(cost, self.budget, terminal, r_max if terminal else None, beyond)

    def _train(self, reward: PerturbationCost, r_max: float) -> tuple[Learned, dict[str, Any]]:
        """The trained adversary, and what the result says of its training."""
        out, started, steps = self.folder.out, time.process_time(), self.training.steps
        folder = None if out is None else out / "adversary"
        before: dict[str, Any] = {"steps": 0, "seconds": 0.0}
        if folder is not None and (folder / STATE).exists():
            before = (read_record(folder) or [before])[-1]
        reached = [int(before["steps"])]
        # episodes that ended after the last checkpoint are played again
        known = self.folder.result.get("training", {})
        columns = (known.get(name, ()) for name in ("steps", "returns", "perturbations", "lengths"))
        episodes = [episode for episode in zip(*columns, strict=True) if episode[0] <= before["steps"]]

        def trained() -> dict[str, Any]:
            ends, *columns = np.array(episodes, np.float64).reshape(-1, 4).T
            return {**_episodes(reward, r_max, *columns).to_dict(), "steps": ends.astype(int).tolist()}

        def progress(done: int, _: float) -> None:
            reached.append(done)
            self.folder.save_result(training=trained())
            self._show("training", min(done, steps), steps)

        self._show("training", min(before["steps"], steps), steps)
        actor = as_actor(self.actor, self.victim)
        budget = adversary_budget(actor, self.victim, None, None, self.within)
        score = AdversaryScore(self.victim, actor, budget, self.when, self.asked["observe"])
        task = AdversaryTask(self.environment, score, reward, True)
        adversary = train_director(task, self.training, folder, progress, lambda *episode: episodes.append(episode))
        if self.asked["hard"]:
            adversary = replace(adversary, when=self.tested_when)
            if folder is not None:
                adversary = adversary.save(folder, self.within, read_json(folder / "card.json")["training"])
        seconds = before["seconds"] + time.process_time() - started
        return adversary, {"training": trained(), "steps": reached[-1], "seconds": seconds}

    def _test(
        self, what: str, victim: Victim, adversary: Learned, reward: PerturbationCost, r_max: float
    ) -> tuple[AttackedEpisodes, list[int]]:
        """The test's episodes of a victim under its adversary, and how many of them were attacked at step t."""
        run, attacked = self._play(what, victim, ThreatModel(adversary.on, adversary, self.within, self.tested_when))
        histogram = [attacked[t] for t in range(int(run.lengths.max()))]
        return _episodes(reward, r_max, run.returns, run.attacked_steps, run.lengths), histogram

    def _transfer(self, other: Victim, adversary: Learned, reward: PerturbationCost) -> TransferRow:
        """What the adversary does to another victim: its decisions of when, with the other's own worst actions."""
        name = f"transfer to {other.ref or 'victim'}"
        clean = self._play(f"{name}, clean", other)[0].returns
        seen = adversary.observe
        aimed = Learned(adversary.director, self.aim(other), observe=seen, within=self.within, when=self.tested_when)
        test, _ = self._test(name, other, aimed, reward, float(clean.max()))
        return TransferRow(other.described(), test, clean)

    def _play(self, what: str, victim: Victim, *threats: ThreatModel) -> tuple[BlockMeasurements, Counter[int]]:
        """The test's episodes, as :func:`adv_wrappers.evaluate` plays them, and how many were attacked at step t."""
        episodes, attacked = len(self.seeds), Counter[int]()
        images = len(victim.observation_space.shape or ()) > 1
        how = Episodes(episodes, num_envs=min(8 if images else 32, episodes))
        cell = Cell(victim, self.environment, ThreatStack(what, threats, False), how)
        with closing(Player([cell])) as player, one_thread():
            self._show(what, 0, episodes)
            block = Block(0, tuple(self.seeds))
            run = player.play(block, lambda done: self._show(what, done, episodes), attacked)
        return run, attacked

    def _show(self, what: str, done: int, whole: int) -> None:
        if self.asked["progress"] is not None:
            self.asked["progress"](what, done, whole)


def _episodes(
    reward: PerturbationCost, r_max: float, returns: ArrayLike, perturbations: ArrayLike, lengths: ArrayLike
) -> AttackedEpisodes:
    """Episodes with what their perturbations cost."""
    found, attacks = np.asarray(returns, np.float64), np.asarray(perturbations, np.int64)
    costs = np.asarray(reward.total(np.zeros_like(found), attacks), np.float64)
    return AttackedEpisodes(found, attacks, np.asarray(lengths, np.int64), costs, r_max)
