"""train_adversary: SA-RL, PA-AD and other actors trained by PPO, A2C or DQN of Stable-Baselines3.

The paper trains its directors with ACKTR (Atari) and PPO (MuJoCo). PPO's settings here: 32 environments attacked as one
batch, 64 steps each (32 suit short episodes), batches of 256, 10 epochs, learning rate 3e-4, gamma 0.99, lambda 0.95,
two layers of 64 with tanh, an initial standard deviation of 0.5, rewards and observations normalised; on images 8
environments, 128 steps, 4 epochs and an entropy bonus of 0.01. The best checkpoint is chosen on seeds of its own: the
return in training is that of a policy that samples, which says little of the deterministic one that is deployed.
DQN is that of Behzadan and Hsu (2019), Table 5 (``dqn.py``): one environment, and nothing is normalised.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from pickle import loads
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import stored
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget, Valid
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import needed_budget
from adv_wrappers.core.values import Value
from adv_wrappers.errors import Argument, Message, SpaceError, ThreatError, Words
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.option_values import BOTH
from adv_wrappers.parsing import parse_when
from adv_wrappers.training.adversary_checkpoints import (
    AdversaryCheckpoints,
    AdversaryProgress,
    AdversaryScore,
    AdversaryTask,
    OnEpisode,
)
from adv_wrappers.training.algorithms import ALGORITHMS, check_settings, made_model
from adv_wrappers.training.default_settings import adversary_settings
from adv_wrappers.training.director_networks import director_of, policy_kwargs, rollout_of
from adv_wrappers.training.dqn import PrioritizedDQN
from adv_wrappers.training.multiprocess_vector import make_vector
from adv_wrappers.training.pa_ad_forms import actors_by_form, check_forms_folder, strongest_form
from adv_wrappers.training.sb3_adapter import EpisodicNormalize, Sb3Adapter
from adv_wrappers.training.scoring import Scoring, ScoringSetup
from adv_wrappers.training.training_folder import (
    TrainingFolder,
    check_counts,
    check_seed,
    describe_settings,
    described_victim,
    later_seed,
    warn_of_unknown,
)
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.processes import ON_DEMAND, call_in_worker, check_processes, pickled, warm_pool
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_config import as_actor
from adv_wrappers.wrappers.adversary_rewards import Reward, minus_reward
from adv_wrappers.wrappers.sb3_adversary_env import VecAdversaryEnv

MOST_NUMBERS = 4096  # of an adversary's action


@holding
def train_adversary(
    kind: str | Actor | Hybrid | Mapping[str, object],
    env: AnyEnvironment,
    victim: Victim | str,
    eps: float | None = None,
    steps: int = 100_000,
    algorithm: str = "ppo",
    num_envs: int | None = None,
    seed: int = 0,
    *,
    scale: Any = None,
    within: Budget | None = None,
    when: Any = None,
    form: str | None = None,
    checks: int = 10,
    episodes: int = 30,
    out: str | Path | None = None,
    tensorboard: str | Path | None = None,
    progress: AdversaryProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    observe: str = "state",
    quantize: bool = True,
    reward: Reward | None = None,
    on_episode: OnEpisode | None = None,
    device: str | torch.device | None = None,
    workers: int = 1,
    env_workers: int = 1,
    **settings: Any,
) -> Learned:
    """Train an adversary against a victim: the director of SA-RL, PA-AD or another actor.

    Args:
        kind: ``"sa-rl"``, ``"pa-ad"``, ``"pa-ad-action"``; ``"timed:"`` and a perturbation, as in
            ``"timed:max-diff"``, to learn when to attack with it, or ``"induce"``; an actor with other arguments, a
            :class:`Hybrid`, or the dictionary of one.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        victim: the victim or its reference.
        eps, scale: arguments of the budget :class:`Linf`; or ``within``, the budget itself. Discrete actions need none.
        steps: environment steps, summed over all environments.
        algorithm: ``"ppo"``, ``"a2c"``, or ``"dqn"`` for actors that choose among discrete actions, such as
            ``"timed:max-diff"``.
        num_envs: the number of environments attacked as one batch; None takes 32, or 8 for images, or 1 for DQN.
        seed: seeds all randomness of the training.
        when: the timing, as a value or a text; None attacks at every step.
        form: form of PA-AD's actions, ``"direction"`` or ``"target"``; None takes the actor's own. Which is stronger
            differs by a factor from victim to victim: ``"both"`` trains the two, ``steps`` each, and returns the best
            checkpoint of either. It takes twice the time, unless there are ``workers``: then another process trains the
            second form meanwhile.
        checks: the number of checkpoints that are compared.
        episodes: the number of episodes that each checkpoint's deterministic director is evaluated on, with seeds that
            the training never sees; the checkpoint with the lowest mean return of the victim is returned.
        out: a folder for the best adversary so far, the record of all checkpoints, and the state from which the same
            call resumes an interrupted training, or continues a finished one with more ``steps``. Nothing in the folder
            is unpickled, so resuming from somebody else's folder runs none of their code. DQN's replay buffer is not
            kept: it plays ``learning_starts`` steps before it learns on. With ``form="both"`` each form has its record
            and state in a folder of its own in this one.
        tensorboard: a folder for SB3's logs; ``adversary/victim_return`` is the victim's mean return at a checkpoint.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``; with
            ``form="both"`` the steps of the second form come after ``steps``, and with several ``workers`` at the end.
        observe, quantize: as for :class:`adv_wrappers.AdversaryEnv`.
        reward: as for :class:`adv_wrappers.AdversaryEnv`; None is minus the victim's reward. Where attacks cost
            something, :class:`adv_wrappers.wrappers.adversary_rewards.PerturbationCost`, checkpoints are compared by
            the victim's return and that cost.
        on_episode: called as ``on_episode(steps done, return of the victim, attacks, length)`` at the end of every
            training episode; it stops the training there by returning False.
        device: the device that the director is trained on; None takes the CPU for flat observations, where that is
            faster, and for images a CUDA device if there is one. The victim and the attack stay on the victim's device.
        workers: the number of processes; 1 is this one alone. The others play the episodes of checkpoints while this
            one trains on, which changes nothing in the result; two are enough unless a checkpoint's episodes take
            longer than the training between two checkpoints. The processes are spawned (a script needs its
            ``if __name__ == "__main__":``) and stay for the next call. A training that is killed loses the checkpoints
            that have no score yet, at most ``workers`` of them.
        env_workers: the number of processes that step the environments of the training, this one included, each some
            of the ``num_envs`` rows. That changes nothing in the result, and pays where stepping is slow.
        **settings: settings of the algorithm, instead of the defaults. With ``gamma=1`` an episode that a time limit
            truncates is over: nothing is added for what might have followed.

    Returns:
        The adversary, which ``evaluate`` and every wrapper take; with ``out`` it has a JSON form.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained. With several ``workers`` or
            ``env_workers`` :class:`WorkerError` for an environment or a victim that cannot be sent to another process,
            and for a process that dies.
    """
    seed = check_seed(seed)
    check_algorithm(algorithm)
    workers, env_workers = check_processes(workers, env_workers)
    check_settings(algorithm, settings)
    victim = load_victim(victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    if form is not None:
        actors = actors_by_form(as_actor(kind, victim), form)
        given = {
            "eps": eps,
            "steps": steps,
            "algorithm": algorithm,
            "num_envs": num_envs,
            "seed": seed,
            "scale": scale,
            "within": within,
            "when": when,
            "checks": checks,
            "episodes": episodes,
            "tensorboard": tensorboard,
            "observe": observe,
            "quantize": quantize,
            "device": device,
            "reward": reward,
            "on_episode": on_episode,
            "workers": workers,
            "env_workers": env_workers,
            **settings,
        }
        if form != BOTH:
            return train_adversary(actors[form], environment, victim, out=out, progress=progress, **given)
        return _train_forms(actors, environment, victim, None if out is None else Path(out), progress, given)
    flat = len(victim.observation_space.shape or ()) == 1
    rows = num_envs if num_envs is not None else 1 if algorithm == "dqn" else 32 if flat else 8
    check_counts(steps=steps, num_envs=rows, checks=checks, episodes=episodes)
    actor = as_actor(kind, victim)
    if within is None and eps is None:
        within = getattr(actor, "within", None)
        if within is None and getattr(actor, "on", None) == "action" and victim.discrete:
            within = Valid()
    budget = needed_budget(Words("train_adversary", "train-adversary"), eps, scale, within)
    budget = budget.resolve(None if getattr(actor, "on", None) == "action" else victim)
    when = parse_when(when) if isinstance(when, str) else when
    if out is not None and when is not None and not isinstance(when, When):
        raise ThreatError(f"a folder keeps timings such as Bernoulli(0.5), not the function {when!r:.60}")
    if out is not None and reward is not None and not isinstance(reward, Value):
        raise ThreatError(f"a folder keeps rewards such as PerturbationCost(1.0), not the function {reward!r:.60}")
    _check_learnable(algorithm, actor, victim)
    warn_of_unknown(out, victim, environment)
    by_victim = AdversaryScore(victim, actor, budget, when, observe)
    setup = ScoringSetup(environment, episodes, seed, quantize, by_victim)
    with (
        closing(make_vector(environment, rows, env_workers)) as vector,
        one_thread(),
        Scoring(setup, workers) as scoring,
    ):
        # float64: the adversary's reward is made of the victim's before that is rounded
        adapter = Sb3Adapter(vector, np.float64)
        earned = minus_reward if reward is None else reward
        game = VecAdversaryEnv(adapter, victim, actor, budget, when, reward=earned, observe=observe, quantize=quantize)
        chosen = adversary_settings(algorithm, rows, flat, settings)
        own = policy_kwargs(game.observation_space, q=algorithm == "dqn")
        chosen["policy_kwargs"] = {**own, **settings.get("policy_kwargs", {})}
        about = {
            "algorithm": algorithm,
            "environment": environment.described,
            "num_envs": rows,
            "seed": seed,
            "episodes": episodes,
            "observe": observe,
            "quantize": quantize,
            "actor": actor.open().to_dict(),
            "within": budget.to_dict(),
            "when": when.to_dict() if isinstance(when, When) else repr(when),
            "victim": described_victim(victim),
            "actor_victim": None if actor.victim is None else actor.victim.fingerprint(),
            "settings": describe_settings(chosen),
            **({"reward": reward.to_dict()} if isinstance(reward, Value) else {}),
        }
        kept, task = TrainingFolder(out, "adversary", about), AdversaryTask(by_victim, scoring, earned)
        checkpoints = AdversaryCheckpoints(task, max(steps // checks, 1), kept, progress, on_episode)
        place, logs = device or ("cpu" if flat else "auto"), None if tensorboard is None else str(tensorboard)
        normaliser = EpisodicNormalize if chosen["gamma"] == 1 else VecNormalize
        scaled = algorithm != "dqn"
        normal = normaliser(game, norm_obs=flat and scaled, norm_reward=scaled, gamma=chosen["gamma"])
        given = {"policy": "MlpPolicy", "env": normal, "seed": seed, "device": place, "tensorboard_log": logs}
        model = made_model(ALGORITHMS[algorithm], given, chosen)
        if checkpoints.resume(model):  # other draws and episodes than at the beginning
            later = later_seed(seed, model.num_timesteps)
            set_random_seed(later)
            game.seed(later)
            if isinstance(model, PrioritizedDQN):
                model.refill()
        director = director_of(model)
        if out is not None:  # raises for a director that cannot be saved, before it is trained
            stored(director)
        checkpoints.init_callback(model)
        if model.num_timesteps - rollout_of(model) >= steps:  # more than the last rollout of a training of steps
            done = f"{out} holds a training of {model.num_timesteps} steps, more than the {steps} asked for"
            warnings.warn(f"{done}: what is returned is the best of all of them", RuntimeWarning, stacklevel=2)
        try:
            if steps > model.num_timesteps:
                model.learn(steps - model.num_timesteps, callback=checkpoints, reset_num_timesteps=False)
            found = checkpoints.finish()
            if hasattr(model, "_logger"):  # else it has not learned in this call
                model.logger.close()
            return found
        finally:
            kept.remove_parts()


def check_algorithm(algorithm: str) -> None:
    """Raise :class:`ThreatError` unless an adversary can be trained by an algorithm of this name."""
    if algorithm not in ALGORITHMS:
        known = ", ".join(map(repr, ALGORITHMS))
        others = f"must be one of {known}, got {algorithm!r}; AdversaryEnv is for every other library"
        raise ThreatError(Message(Argument("algorithm"), f" {others}"))


def _train_forms(
    actors: Mapping[str, Actor],
    environment: Environment,
    victim: Victim,
    out: Path | None,
    progress: AdversaryProgress | None,
    given: Mapping[str, Any],
) -> Learned:
    """Train one adversary for every form; returns the strongest, and leaves the records of all in ``out``.

    With several ``workers`` the second form is trained in another process, while this one trains the first.

    Args:
        actors: the actor of every form.
        environment: how the environment is made.
        victim, out, progress: as for :func:`train_adversary`.
        given: further arguments of :func:`train_adversary`.
    """
    check_forms_folder(out)

    def report(form: str, done: int, mean: float) -> None:
        if progress is not None:
            progress([*actors].index(form) * given["steps"] + min(done, given["steps"]), mean)

    def train(form: str, **changed: int) -> Learned:
        folder, how = None if out is None else out / form, {**given, **changed}
        return train_adversary(actors[form], environment, victim, out=folder, progress=partial(report, form), **how)

    if given["workers"] == 1 or given["on_episode"] is not None:
        return strongest_form({form: train(form) for form in actors}, out)
    first, second = actors
    environment.pickled()
    pickled("the victim", victim)
    pickled("the timing", given["when"])
    aside = (actors[second], environment, victim, None if out is None else out / second, {**given, "workers": 1})
    with warm_pool(ON_DEMAND) as pool:
        future = pool.submit(call_in_worker, _train_aside, pickled("the training", aside))
        found = {first: train(first, workers=given["workers"] - 1)}
        found[second], checked = future.result()
    for done, mean in checked:
        report(second, done, mean)
    return strongest_form(found, out)


def _train_aside(data: bytes) -> tuple[Learned, list[tuple[int, float]]]:
    """Train one form in another process; returns it, with the steps and mean returns of its checkpoints."""
    actor, env, victim, folder, given = loads(data)
    checked: list[tuple[int, float]] = []
    learned = train_adversary(
        actor, env, victim, out=folder, progress=lambda done, mean: checked.append((done, mean)), **given
    )
    return learned, checked


def _check_learnable(algorithm: str, actor: Actor | Hybrid, victim: Victim) -> None:
    """Raise :class:`SpaceError` for actions that an algorithm cannot choose.

    Those are other than discrete ones for DQN, and of so many numbers that PPO's ratio of probabilities overflows.
    """
    space = actor.action_space(victim.observation_space.shape or ())
    size = math.prod(space.shape or ())
    if algorithm == "dqn" and not isinstance(space, Discrete):
        raise SpaceError(f"dqn chooses among discrete actions, and {actor.name} takes {space}: use ppo or a2c")
    if algorithm == "ppo" and size > MOST_NUMBERS:
        raise SpaceError(
            f"{actor.name} would choose {size} numbers a step, and PPO's ratio of their probabilities overflows beyond "
            f"{MOST_NUMBERS}: pa-ad chooses as many as there are actions"
        )
