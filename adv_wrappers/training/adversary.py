"""train_adversary: SA-RL, PA-AD and other actors trained by PPO, A2C or DQN of Stable-Baselines3.

The paper trains its directors with ACKTR (Atari) and PPO (MuJoCo). PPO's settings here: 32 environments attacked as
one batch, 64 steps each (32 suit short episodes), batches of 256, 10 epochs, learning rate 3e-4, gamma 0.99, lambda
0.95, two layers of 64 with tanh, an initial standard deviation of 0.5, rewards and observations normalised; on
images 8 environments, 128 steps, 4 epochs and an entropy bonus of 0.01. The best checkpoint is chosen on seeds of
its own: the return in training is that of a policy that samples, which says little of the deterministic one that is
deployed. DQN is that of Behzadan and Hsu (2019), Table 5 (``prioritized_dqn.py``): one environment, and
nothing is normalised.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets.budget import Budget, Valid
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.serialization import Value
from adv_wrappers.core.threat import ThreatModel, needed_budget
from adv_wrappers.core.types import Info
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import (
    SpaceError,
    ThreatError,
)
from adv_wrappers.evaluation.measurements.measurements import BlockMeasurements
from adv_wrappers.registry import BOTH, FORMS, Form, Observe
from adv_wrappers.threats.presets import as_actor, parse_when
from adv_wrappers.training.fit import Fit, restore_model
from adv_wrappers.training.folder import (
    TrainingFolder,
    check_chosen_folder,
    described_victim,
    warn_of_unknown,
)
from adv_wrappers.training.sb3.algorithms import ALGORITHMS, Training, made_model
from adv_wrappers.training.sb3.director_networks import director_of, policy_kwargs, rollout_of, sees_images
from adv_wrappers.training.sb3.hyperparameters import adversary_settings
from adv_wrappers.training.sb3.vec_env import EpisodicNormalize, Sb3Adapter
from adv_wrappers.training.sb3.vector_env import RowsVectorEnv, make_vector
from adv_wrappers.training.scoring import CheckpointEvaluator, CheckpointScore, Scoring, ScoringSetup
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.processes import check_env_workers
from adv_wrappers.utils.reading import decoding, read_json
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import EnvCount, EpisodeCount, TrainingSeed, TrainingSteps, Workers, checked
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward
from adv_wrappers.wrappers.perturb_dynamics import end_diverged_episodes
from adv_wrappers.wrappers.sb3_vec_env import VecAdversaryEnv

# ----------------------------------------------------------------------------------------------------------------------
# The checkpoints of an adversary's training: which is the best, and from which the training resumes.
# ----------------------------------------------------------------------------------------------------------------------


AdversaryProgress = Callable[[int, float], None]
OnTrainingEpisode = Callable[[int, float, int, int], "bool | None"]
MODEL, NORMALISER = "model.zip", "normaliser.json"


@dataclass(frozen=True)
class AdversaryScore(CheckpointScore[Director, BlockMeasurements]):
    """What a director does to its victim.

    Attributes:
        victim: the victim under attack.
        actor: turns the adversary's action into a perturbation.
        budget, when: budget and timing of the attack.
        observe: what the director observes, as for :class:`adv_wrappers.AdversaryEnv`.
    """

    victim: Victim
    actor: Actor
    budget: Budget
    when: When | Callable[..., Any] | None
    observe: str

    def adversary(self, director: Director) -> Learned:
        """The adversary of a director."""
        return Learned(director, self.actor, observe=self.observe, within=self.budget, when=self.when)

    def __call__(self, evaluator: CheckpointEvaluator, checkpoint: Director) -> BlockMeasurements:
        learned = self.adversary(checkpoint)
        return evaluator.measure(self.victim, ThreatModel(learned.on, learned, self.budget, self.when))


@dataclass(frozen=True)
class AdversaryTask:
    """What an adversary is trained for.

    Attributes:
        environment: how the environment is made.
        score: what a checkpoint is compared by: victim, actor, budget, timing, and what the director observes.
        reward: what the adversary earns; None is minus the victim's reward.
        quantize: as for :class:`adv_wrappers.AdversaryEnv`.
    """

    environment: Environment
    score: AdversaryScore
    reward: Reward | None
    quantize: bool


def adversary_score(row: Info) -> float:
    """What checkpoints of adversaries are compared by, lower is better: return of the victim, and cost of attacks."""
    return float(row["score"] if "score" in row else row["mean_return"])


class AdversaryFit(Fit[Director, BlockMeasurements]):
    """A training of an adversary: its deterministic director is scored at checkpoints.

    Args:
        model: the algorithm.
        task: what the adversary is trained for.
        scoring, training, folder: as for :class:`.Fit`.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
        on_episode: called at the end of every training episode; it stops the training by returning False.
    """

    log = "adversary"

    def __init__(
        self,
        model: BaseAlgorithm,
        task: AdversaryTask,
        scoring: Scoring[Director, BlockMeasurements],
        training: Training,
        folder: TrainingFolder,
        progress: AdversaryProgress | None,
        on_episode: OnTrainingEpisode | None = None,
    ) -> None:
        with decoding(f"{folder.out} as a training of an adversary"):
            super().__init__([(model, MODEL, NORMALISER)], scoring, training, folder)
            self.seconds[self.log] = folder.record[-1]["seconds"] if folder.record else 0
        self.task = task
        self.progress = progress
        self.on_episode = on_episode
        self.found: Learned | None = None  # the best so far

    def best(self) -> Learned:
        """The strongest checkpoint."""
        if self.folder.out is not None:
            return Learned(card=str(self.folder.out), victim=self.task.score.actor.victim)
        assert self.found is not None
        return self.found

    def _on_step(self) -> bool:
        goes_on = True
        for info in self.locals["infos"] if self.on_episode is not None else ():
            if (episode := info.get("adversary_episode")) is not None:
                assert self.on_episode is not None
                done = self.num_timesteps, episode["victim_return"], episode["attacks"], episode["length"]
                goes_on = self.on_episode(*done) is not False and goes_on
        return goes_on

    def snapshot(self, row: Info) -> Director:
        if row["in_training"] is not None:
            row["in_training"] = -row["in_training"]  # of the victim
        row["seconds"] = round(self.seconds[self.log], 3)
        return director_of(self.model)

    def add_score(self, row: Info, found: BlockMeasurements) -> dict[str, float]:
        returns = found.returns
        row |= {"mean_return": float(returns.mean()), "std": float(returns.std()), "median": float(np.median(returns))}
        total = getattr(self.task.reward, "total", None)
        if total is not None:
            row["attacks"] = float(found.attacked_steps.mean())
            row["score"] = float(total(returns, found.attacked_steps).mean())
        return {"adversary/victim_return": row["mean_return"]}

    def is_best(self, row: Info) -> bool:
        best = self.folder.best_row
        return best is None or adversary_score(row) < adversary_score(best)

    def keep(self, snapshot: Director, row: Info, part: Path | None) -> None:
        self.found = self.task.score.adversary(snapshot)
        snapshot.record = {**self.folder.about, "checkpoints": [*self.folder.record, row]}
        if part is not None:
            self.found.save(part, self.task.score.budget, dict(snapshot.record))

    def tell(self, row: Info) -> None:
        if self.progress is not None:
            self.progress(row["steps"], row["mean_return"])


MOST_NUMBERS = 4096  # of an adversary's action


def actors_by_form(actor: Actor, form: Form) -> dict[str, Actor]:
    """The actor in one form, or in each of the two for ``"both"``.

    Raises:
        ThreatError: for an actor without forms, or with another form of its own.
        ValueRangeError: for one that the victim's actions do not allow.
    """
    if not hasattr(actor, "form"):
        raise ThreatError(f"form= goes with pa-ad and pa-ad-action, {actor.name} has none")
    if actor.form not in (None, form):
        raise ThreatError(f"form={form!r} is given beside an actor with form={actor.form!r}")
    chosen = FORMS if form == BOTH else (form,)
    return {name: replace(actor, form=name) for name in chosen}  # type: ignore[type-var]


def strongest_form(found: Mapping[str, Learned], out: Path | None) -> Learned:
    """The adversary whose best checkpoint has the lowest score (:func:`.adversary_score`).

    Its card is copied into ``out`` itself, with the scores of all forms.

    Args:
        found: the best adversary of every form.
        out: the folder, which holds those of earlier calls too; or None.
    """
    if out is None:
        return min(found.values(), key=lambda learned: _best_score(learned.director.record))
    # the card of the better form is copied to the top, with the scores of both
    cards = {form: read_json(out / form / "card.json") for form in found}
    lowest = {form: _best_score(card["training"]) for form, card in cards.items()}
    best = min(lowest, key=lambda form: lowest[form])
    card = cards[best]
    write(out / "weights.safetensors", (out / best / "weights.safetensors").read_bytes())
    write(out / "card.json", (json.dumps({**card, "forms": lowest}, indent=2) + "\n").encode())
    return Learned(card=str(out), victim=found[best].victim)


def _best_score(training: Mapping[str, Any]) -> float:
    """The score of the best checkpoint of a training, which is the last of its record at that time."""
    return adversary_score(training["checkpoints"][-1])


@checked
@holding
def train_adversary(
    kind: str | Actor | Mapping[str, object],
    env: AnyEnvironment,
    victim: Victim | str,
    eps: float | None = None,
    steps: TrainingSteps = 100_000,
    algorithm: str = "ppo",
    num_envs: EnvCount | None = None,
    seed: TrainingSeed = 0,
    *,
    scale: Any = None,
    within: Budget | None = None,
    when: Any = None,
    form: Form | None = None,
    checks: TrainingSteps = 10,
    episodes: EpisodeCount = 30,
    out: str | Path | None = None,
    tensorboard: str | Path | None = None,
    progress: AdversaryProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    observe: Observe = "state",
    quantize: bool = True,
    reward: Reward | None = None,
    on_episode: OnTrainingEpisode | None = None,
    device: str | torch.device | None = None,
    workers: Workers = 1,
    env_workers: Workers = 1,
    **settings: Any,
) -> Learned:
    """Train an adversary against a victim: the director of SA-RL, PA-AD or another actor.

    Args:
        kind: ``"sa-rl"``, ``"pa-ad"``, ``"pa-ad-action"``, ``"forces"`` (on all bodies), ``"induce"``, or
            ``"timed:max-diff"`` and the like, to learn when to attack. Also an actor with other arguments, a
            :class:`Hybrid`, or the dictionary of one.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        victim: the victim or its reference.
        eps: radius of the l-infinity budget, which pa-ad-action on discrete actions does not need. Instead of it and
            ``scale``, ``within`` is the budget itself.
        scale: of :class:`Linf`.
        steps: environment steps, summed over all environments.
        algorithm: ``"ppo"``, ``"a2c"``, or ``"dqn"`` for actors that choose among discrete actions.
        num_envs: environments attacked as one batch; None takes 32, or 8 for images, or 1 for DQN.
        seed: seeds all randomness of the training.
        when: timing, such as ``bernoulli(0.5)``; None takes every step.
        form: of PA-AD's actions; both trains the two and keeps the stronger; None takes the actor's own. Which is
            stronger differs by a factor from victim to victim: ``"both"`` trains the two, ``steps`` each, and returns
            the best checkpoint of either. It takes twice the time, unless there are ``workers``: then another process
            trains the second form meanwhile.
        checks: checkpoints that are compared.
        episodes: episodes that each checkpoint is judged by, with seeds that the training never sees. They are played
            by its deterministic director; the checkpoint with the lowest mean return of the victim is returned.
        out: a folder for the adversary; the same call goes on where it stopped. It holds the best adversary so far, the
            record of all checkpoints, and the state from which an interrupted training resumes, or a finished one
            continues with more ``steps``. Nothing in the folder is unpickled, so resuming from somebody else's folder
            runs none of their code. DQN's replay buffer is not kept: it plays ``learning_starts`` steps before it
            learns on. With ``form="both"`` each form has its record and state in a folder of its own in this one.
        tensorboard: a folder for SB3's logs. ``adversary/victim_return`` is the victim's mean return at a checkpoint.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``; with ``form="both"``
            the steps of the second form come after ``steps``.
        observe: what the adversary observes. It is that of :class:`adv_wrappers.AdversaryEnv`.
        quantize: as for :func:`adv_wrappers.evaluate`.
        reward: as for :class:`adv_wrappers.AdversaryEnv`; None is minus the victim's reward. Where attacks cost
            something, :class:`adv_wrappers.wrappers.adversary_rewards.PerturbationCost`, checkpoints are compared by
            the victim's return and that cost.
        on_episode: called as ``on_episode(steps done, return of the victim, attacks, length)`` at the end of every
            training episode; it stops the training there by returning False.
        device: the device that the director is trained on; None takes the CPU, for images a CUDA device if there is
            one. The victim and the attack stay on the victim's device.
        workers: processes, this one included; the others play the episodes of checkpoints. This one trains on
            meanwhile, which changes nothing in the result; two are enough unless a checkpoint's episodes take longer
            than the training between two checkpoints. The processes are spawned (a script needs its
            ``if __name__ == "__main__":``) and stay for the next call. A training that is killed loses the checkpoints
            that have no score yet, at most ``workers`` of them.
        env_workers: processes that step the training's environments, this one included. Each has some of the
            ``num_envs`` rows. That changes nothing in the result, and pays where stepping is slow.
        **settings: settings of the algorithm, instead of the defaults. With ``gamma=1`` an episode that a time limit
            truncates is over: nothing is added for what might have followed.

    Returns:
        The adversary, which ``evaluate`` and every wrapper take; with ``out`` it has a JSON form.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained. With several ``workers`` or
            ``env_workers`` :class:`WorkerError` for an environment or a victim that cannot be sent to another process,
            and for a process that dies.
    """
    check_env_workers(env_workers)
    check_algorithm(algorithm)
    training = Training(
        steps=steps,
        algorithm=algorithm,
        num_envs=num_envs,
        checks=checks,
        episodes=episodes,
        seed=seed,
        settings=settings,
        device=device,
        tensorboard=tensorboard,
        workers=workers,
        env_workers=env_workers,
    )
    # what the adversary is trained for: against whom, where, by which actor and within what
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    actor = as_actor(kind, victim)
    actors: Mapping[str, Actor] = {actor.name: actor} if form is None else actors_by_form(actor, form)
    budget = adversary_budget(actor, victim, eps, scale, within)
    when = parse_when(when) if isinstance(when, str) else when
    # a folder holds values alone, no functions
    if out is not None and when is not None and not isinstance(when, When):
        raise ThreatError(f"a folder keeps timings such as Bernoulli(0.5), not the function {when!r:.60}")
    if out is not None and reward is not None and not isinstance(reward, Value):
        raise ThreatError(f"a folder keeps rewards such as PerturbationCost(1.0), not the function {reward!r:.60}")
    warn_of_unknown(out, victim, environment)
    # one training for every form of PA-AD's actions, or a single one
    tasks = {
        name: AdversaryTask(environment, AdversaryScore(victim, one, budget, when, observe), reward, quantize)
        for name, one in actors.items()
    }
    folder = None if out is None else Path(out)
    if form == BOTH:
        return _train_forms(tasks, training, folder, progress, on_episode)
    [task] = tasks.values()
    return train_director(task, training, folder, progress, on_episode)


def adversary_budget(actor: Actor, victim: Victim, eps: float | None, scale: Any, within: Budget | None) -> Budget:
    """The budget of an adversary, resolved for its victim; the actor's own, or no limit on actions, if none is given.

    Raises:
        BudgetError: where there is none.
    """
    on_actions = actor.on == "action"
    if within is None and eps is None:
        within = actor.within
        if within is None and on_actions and victim.discrete:
            within = Valid()
    return needed_budget("an adversary", eps, scale, within).resolve(victim if actor.on == "observation" else None)


@holding
def train_director(
    task: AdversaryTask,
    training: Training,
    out: Path | None,
    progress: AdversaryProgress | None,
    on_episode: OnTrainingEpisode | None,
) -> Learned:
    """Train one adversary, as :func:`train_adversary` does.

    Args:
        task: what it is trained for.
        training: how.
        out, progress, on_episode: as for :func:`train_adversary`.
    """
    environment = task.environment
    victim = task.score.victim
    actor = task.score.actor
    budget = task.score.budget
    when = task.score.when
    algorithm = training.algorithm
    steps = training.steps
    # what cannot be trained is refused before anything is made
    flat = not sees_images(victim.observation_space)
    rows = training.num_envs if training.num_envs is not None else 1 if algorithm == "dqn" else 32 if flat else 8
    _check_learnable(algorithm, actor, victim)
    policy_kwargs(victim.observation_space, q=algorithm == "dqn")  # raises before anything is made
    setup = ScoringSetup(environment, training.episodes, training.seed, task.quantize, task.score)
    with (
        closing(make_vector(environment, rows, training.env_workers)) as vector,
        one_thread(),
        Scoring(setup, training.workers) as scoring,
    ):
        # the game, and the algorithm with its networks
        reward = minus_reward if task.reward is None else task.reward
        how: Any = {"reward": reward, "observe": task.score.observe, "quantize": task.quantize}
        game = adversary_game(vector, victim, actor, budget, when, **how)
        settings = adversary_settings(algorithm, rows, flat, training.settings)
        own = policy_kwargs(game.observation_space, q=algorithm == "dqn")
        settings["policy_kwargs"] = {**own, **training.settings.get("policy_kwargs", {})}
        whole = replace(training, num_envs=rows, settings=settings)
        # the same call with more steps or checkpoints goes on
        known = {name: value for name, value in whole.described().items() if name not in ("steps", "checks")}
        about = {
            **known,
            "environment": environment.described,
            "observe": task.score.observe,
            "quantize": task.quantize,
            "actor": actor.open().to_dict(),
            "within": budget.to_dict(),
            "when": when.to_dict() if isinstance(when, When) else repr(when),
            "victim": described_victim(victim),
            "actor_victim": None if actor.victim is None else actor.victim.fingerprint(),
            **({"reward": task.reward.to_dict()} if isinstance(task.reward, Value) else {}),
        }
        kept = TrainingFolder(out, "adversary", about)
        # a new model, or one that goes on from the last checkpoint
        model = adversary_model(game, whole, flat)
        if kept.checkpoint is not None:
            restore_model(model, kept.checkpoint / MODEL, kept.checkpoint / NORMALISER)
        director_of(model)  # raises for a director that cannot be saved, before it is trained
        if model.num_timesteps - rollout_of(model) >= steps:  # more than the last rollout of a training of steps
            done = f"{out} holds a training of {model.num_timesteps} steps, more than the {steps} asked for"
            warnings.warn(f"{done}: what is returned is the best of all of them", RuntimeWarning, stacklevel=6)
        fit = AdversaryFit(model, task, scoring, training, kept, progress, on_episode)
        fit.train()
        return fit.best()


def adversary_game(vector: RowsVectorEnv, *given: Any, **more: Any) -> VecAdversaryEnv:
    """The game of an adversary; further arguments are those of :class:`.VecAdversaryEnv`."""
    # float64: the adversary's reward is made of the victim's before that is rounded
    game = VecAdversaryEnv(Sb3Adapter(vector, np.float64), *given, **more)
    end_diverged_episodes(game)
    return game


def adversary_model(game: VecAdversaryEnv, training: Training, flat: bool) -> BaseAlgorithm:
    """The model of an adversary in its game.

    Args:
        game: the game.
        training: how it is trained, with all settings of the algorithm.
        flat: whether observations are numbers, which are normalised; else they are images.
    """
    settings, scaled = training.settings, training.algorithm != "dqn"
    normaliser = EpisodicNormalize if settings["gamma"] == 1 else VecNormalize
    arguments = {
        "policy": "MlpPolicy",
        "env": normaliser(game, norm_obs=flat and scaled, norm_reward=scaled, gamma=settings["gamma"]),
        "seed": training.seed,
        "device": training.device or ("cpu" if flat else "auto"),
        "tensorboard_log": training.logs,
    }
    return made_model(ALGORITHMS[training.algorithm], arguments, settings)


def check_algorithm(algorithm: str) -> None:
    """Raise :class:`ThreatError` unless an adversary can be trained by an algorithm of this name."""
    if algorithm not in ALGORITHMS:
        known = ", ".join(map(repr, ALGORITHMS))
        raise ThreatError(
            f"algorithm must be one of {known}, got {algorithm!r}; AdversaryEnv is for every other library"
        )


def _train_forms(
    tasks: Mapping[str, AdversaryTask],
    training: Training,
    out: Path | None,
    progress: AdversaryProgress | None,
    on_episode: OnTrainingEpisode | None,
) -> Learned:
    """Train one adversary for every form; returns the strongest, and leaves the records of all in ``out``.

    Args:
        tasks: what the adversary of every form is trained for.
        training: how each of them is.
        out, progress, on_episode: as for :func:`train_adversary`.
    """
    if out is not None:
        check_chosen_folder(out, "forms", "a training of both forms")

    def report(form: str, done: int, mean: float) -> None:
        if progress is not None:
            progress([*tasks].index(form) * training.steps + min(done, training.steps), mean)

    def train(form: str) -> Learned:
        folder = None if out is None else out / form
        return train_director(tasks[form], training, folder, partial(report, form), on_episode)

    return strongest_form({form: train(form) for form in tasks}, out)


def _check_learnable(algorithm: str, actor: Actor, victim: Victim) -> None:
    """Raise :class:`SpaceError` for actions that an algorithm cannot choose.

    Those are other than discrete ones for DQN, and of so many numbers that PPO's ratio of probabilities overflows.
    """
    if actor.on == "dynamics" and algorithm != "dqn":
        return  # of how many parameters there are the environment tells
    space = actor.action_space(victim.observation_space.shape or ())
    size = math.prod(space.shape or ())
    if algorithm == "dqn" and not isinstance(space, Discrete):
        raise SpaceError(f"dqn chooses among discrete actions, and {actor.name} takes {space}: use ppo or a2c")
    if algorithm == "ppo" and size > MOST_NUMBERS:
        raise SpaceError(
            f"{actor.name} would choose {size} numbers a step, and PPO's ratio of their probabilities overflows beyond "
            f"{MOST_NUMBERS}: pa-ad chooses as many as there are actions"
        )
