"""One training of an adversary: its checkpoints, the best of them, and the state it can go on from.

Training an adversary: SA-RL and PA-AD on the on-policy algorithms of Stable-Baselines3.

The paper trains its directors with ACKTR (Atari) and PPO (MuJoCo). PPO's settings here: 32 environments attacked as one
batch, 64 steps each (32 suit short episodes), batches of 256, 10 epochs, learning rate 3e-4, gamma 0.99, lambda 0.95,
two layers of 64 with tanh, a standard deviation of 0.5 to begin with, rewards and observations normalised; on images 8
environments, 128 steps, 4 epochs and an entropy bonus of 0.01. The best checkpoint is chosen on seeds of its own: the
return in training is that of a policy that samples, which says little of the deterministic one that is deployed.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecNormalize

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import stored
from adv_wrappers.adversaries.hybrid import Hybrid
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.core.budgets import Budget, Linf, Valid
from adv_wrappers.core.perturbation import When
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import construct
from adv_wrappers.errors import CardError, SpaceError, ThreatError
from adv_wrappers.evaluation.environments import MakeEnv, environment_factory
from adv_wrappers.parsing import parse_when
from adv_wrappers.training.checkpoint_eval import Arena
from adv_wrappers.training.checkpoints import check_seed, in_words, keep, plain, refuse_another, refuse_card, restore
from adv_wrappers.training.director_networks import director_of, minibatch, policy_kwargs
from adv_wrappers.training.pa_ad_forms import BOTH, formed, refuse_other, stronger
from adv_wrappers.training.sb3_adapter import Chairs
from adv_wrappers.utils.files import holding, make_folder, write
from adv_wrappers.utils.numbers import check_integer
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.adversary_config import actor_of
from adv_wrappers.wrappers.adversary_env import VectorAdversaryEnv

Progress = Callable[[int, float], None]


@dataclass
class Game:
    """Whom the adversary plays against, with what, and where its checkpoints are compared."""

    victim: Victim
    actor: Actor | Hybrid
    budget: Budget
    when: Any
    observe: str
    arena: Arena
    about: dict[str, Any] = field(default_factory=dict)  # what tells this training from another


class Run(BaseCallback):
    """Compares the deterministic director with the best one so far, every ``every`` steps, and writes what there is.

    Args:
        game: what is played.
        every: steps between two checkpoints.
        out: a folder, or None.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``.
    """

    def __init__(self, game: Game, every: int, out: str | Path | None, progress: Progress | None) -> None:
        super().__init__()
        self.game, self.every, self.progress = game, every, progress
        self.out = None if out is None else Path(out)
        self.next, self.best, self.found = every, np.inf, None  # type: tuple[int, float, Learned | None]
        self.record: list[dict[str, Any]] = []
        self.spent, self.since = 0.0, time.process_time()  # seconds of the processor, checkpoints left out
        if self.out is not None:
            make_folder(self.out)
            game.about = plain(game.about)
            if not (self.out / "state.json").exists():
                refuse_card(self.out, game.about)

    def resume(self, model: Any) -> bool:
        """Fill a new model with what the folder holds of this training, if it does, and recall its best adversary.

        The folder's files are read as data: no code of theirs runs.

        Raises:
            ValueRangeError: for a folder of another training.
            CardError: for one that cannot be read.
        """
        if self.out is None or not (self.out / "state.json").exists():
            return False
        try:
            state = json.loads((self.out / "state.json").read_text(encoding="utf-8"))
            found = state["about"]
            self.next, self.record = int(state["next"]), list(state["record"])
            kept = json.loads((self.out / "card.json").read_text(encoding="utf-8"))["training"]["checkpoints"]
            self.best = float(kept[-1]["mean_return"])  # the card may be newer: it is written first
        except (KeyError, TypeError) as error:
            raise CardError(f"{self.out} holds no training of an adversary (no {error}): give another out=") from error
        except (OSError, ValueError) as error:
            raise CardError(f"cannot read {self.out / 'state.json'}: {error}") from error
        refuse_another(self.out, found, self.game.about)
        self.spent = float(self.record[-1]["seconds"]) if self.record else 0.0
        self.found = Learned(card=str(self.out), victim=self.game.actor.victim)
        restore(model, self.out / "model.zip", self.out / "normaliser.json")
        return True

    def finish(self) -> Learned:
        """The strongest checkpoint; the last steps are compared too."""
        if not self.record or self.record[-1]["steps"] < self.model.num_timesteps:
            self._check()
        assert self.found is not None
        return self.found

    def _on_training_start(self) -> None:
        self.since = time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # after the update that follows a rollout, so that what is kept is whole
        if self.num_timesteps >= self.next:
            self._check()

    def _check(self) -> None:
        self.spent += time.process_time() - self.since
        game, steps = self.game, int(self.model.num_timesteps)
        self.next = (steps // self.every + 1) * self.every
        parts: dict[str, Any] = {"observe": game.observe, "within": game.budget, "when": game.when}
        learned = Learned(director_of(self.model), game.actor, **parts)
        returns = game.arena.play(game.victim, ThreatModel(learned.on, learned, game.budget, game.when))
        left = float(returns.mean())
        recent = [-episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.record.append({
            "steps": steps, "mean_return": left, "std": float(returns.std()), "median": float(np.median(returns)),
            "in_training": float(np.mean(recent)) if recent else None, "seconds": round(self.spent, 3),
        })  # fmt: skip
        if hasattr(self.model, "_logger"):  # not if a training that was finished is finished again
            self.logger.record("adversary/victim_return", left)
        if left < self.best:
            self.best, self.found = left, learned
            if self.out is not None:
                self.found = learned.save(self.out, game.budget, {**game.about, "checkpoints": self.record})
        if self.out is not None:
            self._write(self.out)
        if self.progress is not None:
            self.progress(steps, left)
        self.since = time.process_time()

    def _write(self, out: Path) -> None:
        keep(self.model, out / "model.zip", out / "normaliser.json")
        state = {"next": self.next, "about": self.game.about, "record": self.record}
        write(out / "state.json", (json.dumps(state, indent=1) + "\n").encode())


ALGORITHMS: dict[str, Any] = {"ppo": PPO, "a2c": A2C}
MOST = 4096  # numbers of a steer


@holding
def train_adversary(
    kind: str | Actor | Hybrid | Mapping[str, Any], env: str | MakeEnv, victim: Victim | str, eps: float | None = None,
    steps: int = 100_000, algorithm: str = "ppo", num_envs: int | None = None, seed: int = 0, *, scale: Any = None,
    within: Budget | None = None, when: Any = None, form: str | None = None, checks: int = 10, episodes: int = 30,
    out: str | Path | None = None, tensorboard: str | Path | None = None, progress: Progress | None = None,
    env_kwargs: Mapping[str, Any] | None = None, make: MakeEnv | None = None, observe: str = "state",
    quantize: bool = True, device: str | torch.device | None = None, **settings: Any,
) -> Learned:  # fmt: skip
    """Train an adversary against a victim.

    Args:
        kind: ``"sa-rl"``, ``"pa-ad"``, ``"pa-ad-action"``, an actor with other arguments, a :class:`Hybrid`, or a
            dictionary of one.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        victim: who is attacked, or its reference.
        eps, scale: of a budget ``Linf``; or ``within``, the budget itself. Discrete actions need none.
        steps: of all environments together.
        algorithm: ``"ppo"`` or ``"a2c"``.
        num_envs: environments attacked as one batch; None takes 32, or 8 for images.
        seed: of the training.
        when: the timing, as a value or a text; None strikes at every step.
        form: of PA-AD's steer, ``"direction"`` or ``"target"``; None leaves it to the actor. Which is stronger differs
            by a factor from victim to victim: ``"both"`` trains the two, ``steps`` each, and returns the best
            checkpoint of either. It takes twice the time.
        checks: how many checkpoints are compared, each by ``episodes`` episodes of the deterministic director on seeds
            that the training never sees; the one that leaves the lowest mean return is returned.
        out: a folder for the best adversary so far, the record of all checkpoints, and the state from which a training
            that was interrupted goes on when it is called again with the same arguments. With more ``steps`` it goes
            on from where it ended. Nothing in the folder is unpickled: going on from somebody else's runs none of
            their code. With ``form="both"`` each form has its record and state in a folder of its own under this one.
        tensorboard: a folder for SB3's logs; ``adversary/victim_return`` is what a checkpoint leaves.
        progress: called as ``progress(steps done, mean return of the victim at this checkpoint)``; with
            ``form="both"`` the steps of the second form come after ``steps``.
        observe, quantize: as for :class:`adv_wrappers.AdversaryEnv`.
        device: where the director learns; None takes the processor for flat observations, where that is faster, and
            for images a CUDA device if there is one. The victim and its attack stay where the victim is.
        **settings: of the algorithm, instead of the defaults.

    Returns:
        A :class:`Learned`, which ``evaluate`` and every wrapper take; with ``out`` it has a JSON form.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained.
    """
    check_seed(seed)
    if algorithm not in ALGORITHMS:
        known = " or ".join(map(repr, ALGORITHMS))
        raise ThreatError(f"algorithm must be {known}, got {algorithm!r}; AdversaryEnv is for every other library")
    taken = sorted({"env", "policy", "tensorboard_log", "reward"} & {*settings})
    if taken:
        raise ThreatError(f"{', '.join(taken)} cannot be set here; AdversaryEnv is for other games and trainings")
    victim = load_victim(victim)
    if form is not None:
        kinds = formed(actor_of(kind, victim), form)
        given = {
            "eps": eps, "steps": steps, "algorithm": algorithm, "num_envs": num_envs, "seed": seed, "scale": scale,
            "within": within, "when": when, "checks": checks, "episodes": episodes, "tensorboard": tensorboard,
            "env_kwargs": env_kwargs, "make": make, "observe": observe, "quantize": quantize, "device": device,
            **settings,
        }  # fmt: skip
        if form != BOTH:
            return train_adversary(kinds[form], env, victim, out=out, progress=progress, **given)
        return train_forms(kinds, env, victim, None if out is None else Path(out), progress, given)
    flat = len(victim.observation_space.shape or ()) == 1
    rows = (32 if flat else 8) if num_envs is None else num_envs
    for name, value in (("steps", steps), ("num_envs", rows), ("checks", checks), ("episodes", episodes)):
        check_integer(name, value, 1)
    actor = actor_of(kind, victim)
    if within is None and eps is None and getattr(actor, "on", None) == "action" and victim.discrete:
        within = Valid()
    if (eps is None) == (within is None):
        raise ThreatError("train_adversary needs a budget: eps=, or within=")
    budget = within if within is not None else Linf(eps, scale)  # type: ignore[arg-type]  # it says what is no number
    budget = budget.resolve(None if getattr(actor, "on", None) == "action" else victim)
    when = parse_when(when) if isinstance(when, str) else when
    if out is not None and when is not None and not isinstance(when, When):
        raise ThreatError(f"a folder keeps timings such as Bernoulli(0.5), not the function {when!r:.60}")
    if algorithm == "ppo":
        _learnable(actor, victim)
    one, name, kwargs = environment_factory(env, victim, env_kwargs, make)
    vector = SyncVectorEnv([one] * rows, autoreset_mode=AutoresetMode.SAME_STEP)
    with closing(vector), one_thread(flat):
        chairs = Chairs(VectorAdversaryEnv(vector, victim, actor, budget, when, observe=observe, quantize=quantize))
        chosen = {**_defaults(algorithm, flat, rows, settings), **settings}
        chosen["policy_kwargs"] = {**policy_kwargs(chairs.observation_space), **settings.get("policy_kwargs", {})}
        game = Game(victim, actor, budget, when, observe, Arena(one, episodes, seed, quantize))
        game.about = {
            "algorithm": algorithm, "environment": {"id": name, "kwargs": kwargs}, "num_envs": rows, "seed": seed,
            "episodes": episodes, "observe": observe, "quantize": quantize, "actor": actor.open().to_dict(),
            "within": budget.to_dict(), "when": when.to_dict() if isinstance(when, When) else repr(when),
            "victim": {"ref": victim.ref, "sha256": victim.fingerprint(), "select": victim.select},
            "actor_victim": None if actor.victim is None else actor.victim.fingerprint(),
            "settings": in_words(chosen),
        }  # fmt: skip
        try:
            run = Run(game, max(steps // checks, 1), out, progress)
            place, logs = device or ("cpu" if flat else "auto"), None if tensorboard is None else str(tensorboard)
            normal = VecNormalize(chairs, norm_obs=flat, norm_reward=True, gamma=chosen["gamma"])
            given = {"policy": "MlpPolicy", "env": normal, "seed": seed, "device": place, "tensorboard_log": logs}
            model = construct(ALGORITHMS[algorithm], **given, **chosen)
            if run.resume(model):  # other draws and episodes than at the beginning
                set_random_seed(seed + model.num_timesteps)
                chairs.seed(seed + model.num_timesteps)
            director = director_of(model)
            if out is not None:  # one that cannot be kept is told of before it is trained
                stored(director)
            run.init_callback(model)
            if model.num_timesteps - model.n_steps * rows >= steps:  # more than the last rollout of a training of steps
                done = f"{out} holds a training of {model.num_timesteps} steps, more than the {steps} asked for"
                warnings.warn(f"{done}: what is returned is the best of all of them", RuntimeWarning, stacklevel=2)
            if steps > model.num_timesteps:
                model.learn(steps - model.num_timesteps, callback=run, reset_num_timesteps=False)
                model.logger.close()
            return run.finish()
        finally:
            game.arena.close()


def train_forms(
    kinds: Mapping[str, Actor], env: str | MakeEnv, victim: Victim, out: Path | None, progress: Progress | None,
    given: Mapping[str, Any],
) -> Learned:  # fmt: skip
    """The stronger of several trainings, one a form; the others' records stay in ``out``.

    Args:
        kinds: the actor of every form.
        given: what else :func:`train_adversary` takes.
    """
    refuse_other(out)
    found: dict[str, Learned] = {}
    told: dict[str, list[float]] = {form: [] for form in kinds}
    for i, (form, kind) in enumerate(kinds.items()):

        def tell(at: int, left: float, before: int = i * given["steps"], mine: list[float] = told[form]) -> None:
            mine.append(left)
            if progress is not None:
                progress(before + min(at, given["steps"]), left)

        folder = None if out is None else out / form
        found[form] = train_adversary(kind, env, victim, out=folder, progress=tell, **given)
    return stronger(found, told, out)


def _learnable(actor: Any, victim: Victim) -> None:
    """Raise :class:`SpaceError` for steers of more numbers than a ratio of probabilities can be told of."""
    space = actor.steer_space(victim.observation_space.shape or ())
    size = math.prod(space.shape or ())
    if size > MOST:
        raise SpaceError(
            f"{actor.name} would choose {size} numbers a step, and PPO's ratio of their probabilities overflows beyond "
            f"{MOST}: pa-ad chooses as many as there are actions"
        )


def _defaults(algorithm: str, flat: bool, rows: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were not given; the same on every victim."""
    common: dict[str, Any] = {"gamma": 0.99, "gae_lambda": 0.95, "ent_coef": 0.0 if flat else 0.01}
    if algorithm == "a2c":
        return {**common, "n_steps": 16, "learning_rate": 7e-4}
    steps = given.get("n_steps", 64 if flat else 128)
    return {
        **common, "n_steps": steps, "batch_size": minibatch(rows, steps), "n_epochs": 10 if flat else 4,
        "learning_rate": 3e-4,
    }  # fmt: skip
