"""What an agent may be trained against: an adversary that learns beside it, a threat that is computed, or nothing.

The two sides of a training: the models of the agent and of an adversary that learns, and their settings.

The game that an agent and its adversary play, seen from the agent's chair, and what holds the two together.

The agent sits outside of the layer that perturbs, and its normaliser outside of that::

    environments -> layer (true observations in, perturbed ones out) -> VecNormalize -> PPO or A2C

Its statistics are those of the true observations and move between rollouts only; then the budget (where it is counted
in them) and the live victim (whose first layer they are) move with them. So at every step the agent acts with the very
numbers that the adversary attacks and the budget is counted in.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor

from adv_wrappers.adversaries.actor import Actor
from adv_wrappers.adversaries.director import Director
from adv_wrappers.core import rng
from adv_wrappers.core.budgets import Budget, Linf
from adv_wrappers.core.context import Context
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.spaces import fits
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.values import Value, construct
from adv_wrappers.errors import SpaceError, ThreatError, VictimError
from adv_wrappers.parsing import parse_when
from adv_wrappers.presets import as_threat, presets
from adv_wrappers.training.checkpoints import restore
from adv_wrappers.training.director_networks import director_of, minibatch, policy_kwargs
from adv_wrappers.training.sb3_adapter import Chairs, hold
from adv_wrappers.training.sb3_agents import Anatomy, fill, follow, policy_kwargs_of
from adv_wrappers.victims import Victim, from_sb3, load_victim
from adv_wrappers.wrappers.adversary_config import actor_of
from adv_wrappers.wrappers.adversary_env import VectorAdversaryEnv
from adv_wrappers.wrappers.base import layers
from adv_wrappers.wrappers.recorder import VectorActionRecorder
from adv_wrappers.wrappers.stack import wrap


@dataclass(frozen=True)
class Against:
    """What an agent is trained against: an actor that learns to be steered, a threat that is computed, or nothing.

    ``threat`` is what the agent is judged under, open; with an ``actor`` its perturbation is not there yet.
    """

    actor: Any = None
    within: Budget | None = None
    when: Any = None
    threat: ThreatModel | None = None

    @property
    def learns(self) -> bool:
        """Whether the adversary does."""
        return self.actor is not None

    @staticmethod
    def of(adversary: Any, eps: float | None, scale: Any, within: Budget | None, when: Any) -> Against:
        """What a user means by it.

        Raises:
            AdvWrappersError: one of its kinds, for what nobody can be.
        """
        if eps is not None and within is not None:
            raise ThreatError("give eps= or within=, not both")
        budget = within if eps is None else Linf(eps, scale)
        when = parse_when(when) if isinstance(when, str) else when
        if adversary is None:
            return Against()
        named = Value.kinds.get(adversary) if isinstance(adversary, str) else None
        if isinstance(adversary, Mapping):
            named = Value.kinds.get(str(adversary.get("type")))
        if isinstance(adversary, Actor) or (named is not None and issubclass(named, Actor)):
            on = getattr(adversary if named is None else named, "on", "observation")
            if on != "observation":
                raise ThreatError(f"agents are trained against actors on observations, got one on {on}s: {adversary!r}")
            if budget is None:
                raise ThreatError(f"{adversary!r:.40} needs a budget: eps=, or within=")
            return Against(adversary, budget, when)
        if isinstance(adversary, str) and adversary.partition(":")[0].strip() not in presets:
            known = ", ".join(presets)
            raise ThreatError(
                f"unknown adversary {adversary!r:.80}: expected 'pa-ad', 'sa-rl', an actor, a threat ({known}) or None"
            )
        threat = as_threat(adversary, within=budget, when=when)
        return Against(within=threat.budget, when=threat.when, threat=threat)

    def about(self) -> Any:
        """Itself in JSON, as far as it goes: what tells one training from another."""
        if self.threat is not None:
            try:
                return self.threat.to_dict()
            except ThreatError:
                return {"how": self.threat.label, "within": self.threat.budget.to_dict()}
        if self.actor is None:
            return None
        assert self.within is not None
        who = self.actor.to_dict() if isinstance(self.actor, Actor) else self.actor
        when = self.when.to_dict() if isinstance(self.when, Value) else self.when and repr(self.when)
        return {"actor": who, "within": self.within.to_dict(), "when": when}


ALGORITHMS: dict[str, Any] = {"ppo": PPO, "a2c": A2C}
_APART = 1_000_003  # between the seeds of the two sides


def begun_from(victim: Any) -> Victim | None:
    """The victim that an agent begins as: from an SB3 model, a reference, or itself."""
    if victim is None:
        return None
    model = not isinstance(victim, (Victim, str)) and hasattr(victim, "policy")
    found = from_sb3(victim) if model else load_victim(victim)
    if found.kind not in ("logits", "gaussian"):
        raise VictimError(f"expected an agent of PPO or A2C to begin from, got one of kind {found.kind!r}")
    return found


def check_spaces(one: Callable[[], gym.Env[Any, Any]], begun: Victim | None) -> None:
    """Raise :class:`SpaceError` for an environment that no agent here can be trained in."""
    env = one()
    seen, acted = env.observation_space, env.action_space
    env.close()
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1 or np.dtype(seen.dtype).kind != "f":
        raise SpaceError(f"train_agent takes observations of float [n], got {seen}: images need another library")
    whole = isinstance(acted, spaces.Discrete) and acted.start == 0
    if not whole and not (isinstance(acted, spaces.Box) and len(acted.shape) == 1):
        raise SpaceError(f"train_agent takes actions Discrete(n) from 0, or Box [n], got {acted}")
    if begun is not None:
        fits(begun, seen, acted)


def _falling(rate: float, left: float) -> float:
    return rate * left


def settings_of(
    algorithm: str, rows: int, given: Mapping[str, Any] | None, parts: Anatomy | None, adversary: bool = False
) -> dict[str, Any]:
    """Settings of an algorithm: the given ones over the defaults at the head of :mod:`.train_agent`."""
    given = dict(given or {})
    out: dict[str, Any] = {"gamma": 0.99, "gae_lambda": 0.95}
    if algorithm == "ppo":
        steps = given.get("n_steps", 64)
        size = minibatch(rows, steps) if adversary else math.gcd(128, rows * steps)
        out |= {"n_steps": steps, "n_epochs": 10, "batch_size": size, "learning_rate": 3e-4}
    else:
        out |= {"n_steps": 16, "learning_rate": 7e-4}
    kwargs: dict[str, Any] = {}
    if not adversary:
        kwargs = {"net_arch": [64, 64], "activation_fn": torch.nn.Tanh} if parts is None else policy_kwargs_of(parts)
        if algorithm == "ppo":
            kwargs["optimizer_kwargs"] = {"eps": 1e-5, "fused": True}
    out |= {**given, "policy_kwargs": {**kwargs, **given.get("policy_kwargs", {})}}
    return out


def make_agent(
    env: SyncVectorEnv, algorithm: str, settings: Mapping[str, Any], parts: Anatomy | None, seed: int,
    logs: str | None, place: Path | None,
) -> Any:  # fmt: skip
    """The agent's model on its seats: new, begun from ``parts``, or from the checkpoint at ``place``."""
    seats, kind = Seats(VectorActionRecorder(env)), ALGORITHMS[algorithm]
    settings = dict(settings)
    if not callable(settings["learning_rate"]):
        settings["learning_rate"] = functools.partial(_falling, float(settings["learning_rate"]))
    norm = parts is None or parts.normalise is not None
    normal = VecNormalize(seats, norm_obs=norm, norm_reward=True, gamma=settings["gamma"])
    if parts is not None and parts.normalise is not None:
        std = parts.normalise.std.double().numpy()
        rms: Any = normal.obs_rms
        rms.mean, rms.var = parts.normalise.mean.double().numpy(), std**2 - normal.epsilon
        normal.clip_obs = math.inf if parts.normalise.clip is None else parts.normalise.clip
    hold(normal, parts is not None)
    model = construct(kind, policy="MlpPolicy", env=normal, seed=seed, device="cpu", tensorboard_log=logs, **settings)
    if place is not None:
        restore(model, place / "agent.zip", place / "normaliser.json")
    elif parts is not None:
        fill(model.policy, parts)
    return model


def make_rival(
    table: Table, against: Against, vector: Callable[[], SyncVectorEnv], sampled: bool, settings: Mapping[str, Any],
    seed: int, logs: str | None, place: Path | None,
) -> Rival | None:  # fmt: skip
    """The adversary that learns, in its chairs against the live agent; None where none does."""
    if not against.learns or against.within is None:
        return None
    actor = actor_of(against.actor, table.victim)
    chairs = Chairs(
        VectorAdversaryEnv(vector(), table.victim, actor, against.within.resolve(table.victim), against.when)
    )
    normal = VecNormalize(chairs, norm_reward=True, gamma=settings["gamma"])
    given = {**settings, "policy_kwargs": {**policy_kwargs(chairs.observation_space), **settings["policy_kwargs"]}}
    model = construct(
        PPO, policy="MlpPolicy", env=normal, seed=seed + _APART, device="cpu", tensorboard_log=logs, **given
    )
    if place is not None:
        restore(model, place / "adversary.zip", place / "adversary-normaliser.json")
        normal.seed(seed + _APART + int(model.num_timesteps))
    deployed = actor.open() if actor.victim is table.victim else actor
    seat = Seat(sampled)
    seat.take(model)
    opponent = ThreatModel("observation", Opponent(actor, seat), against.within, against.when)
    return Rival(model, chairs, seat, deployed, opponent)


_STEER = 1 << 30  # draws of steers, apart from those of the actor


class Seats(Chairs):
    """A SAME_STEP vector environment, under layers or not, as what SB3 trains an agent in.

    Attributes:
        true: the true observations ``[N, n]`` since they were last taken in, one batch a step.
    """

    def __init__(self, recorder: VectorActionRecorder) -> None:
        self.env: Any = recorder
        super(Chairs, self).__init__(recorder.num_envs, recorder.single_observation_space, recorder.single_action_space)
        self.recorder, self.true = recorder, list[NDArray[Any]]()
        self._returns, self._lengths = np.zeros(recorder.num_envs), np.zeros(recorder.num_envs, np.int64)
        self._actions: Any = None

    def step_wait(self) -> Any:
        out = super().step_wait()
        self.true.append(self.recorder.observation)
        return out


class Seat:
    """Who steers in the agent's phase: the director as its own phase left it.

    Args:
        sampled: whether it explores, as it does in its own phase.
    """

    def __init__(self, sampled: bool) -> None:
        self.sampled = sampled
        self.director: Director
        self.log_std: Tensor | None = None

    def take(self, model: Any) -> None:
        """Take over a copy of a model's policy."""
        self.director = director_of(model)
        self.log_std = None if self.director.discrete else model.policy.log_std.detach().clone()

    @torch.no_grad()
    def steer(self, x: Tensor, key: Tensor) -> Tensor:
        """Steers ``[B, *A]`` at true observations ``[B, n]``, drawn with the int64 keys ``[B]``."""
        if not self.sampled:
            return self.director(x)  # type: ignore[no-any-return]
        out: Tensor = self.director.net(x.float())
        if self.log_std is None:
            uniform = rng.uniform(key, tuple(out.shape[1:]), out.dtype).clamp(min=1e-20)
            return (out - (-uniform.log()).log()).argmax(-1)
        normal = rng.normal(key, tuple(out.shape[1:]), out.dtype)
        return (out + self.log_std.exp() * normal).clamp(-1, 1)


@dataclass(frozen=True)
class Opponent(Perturbation):
    """The adversary in training, at the agent's side of the table.

    Args:
        actor: what is steered.
        seat: who steers.
    """

    name: ClassVar[str] = "opponent"
    search: ClassVar[bool] = True
    actor: Any
    seat: Any

    @property
    def victim(self) -> Any:
        """The actor's."""
        return self.actor.victim

    def __call__(self, x: Tensor, context: Context) -> Tensor:
        return self.actor(x, self.seat.steer(x, rng.fold(context.key, _STEER)), context)  # type: ignore[no-any-return]


@dataclass
class Rival:
    """An adversary that learns.

    Attributes:
        model: the algorithm that trains it, on ``chairs``.
        seat: what it takes in the agent's phase.
        actor: as it is deployed, its victim open.
        opponent: the threat that it is in the agent's phase.
    """

    model: Any
    chairs: Chairs
    seat: Seat
    actor: Any
    opponent: ThreatModel


class Table:
    """What an agent in training, its live victim and the layers between it and its environments have in common.

    Args:
        model: the agent, made on ``VecNormalize(Seats(...))``.
        victim: the agent as a live victim.
    """

    def __init__(self, model: Any, victim: Victim) -> None:
        self.model, self.victim = model, victim
        self.within: Budget | None = None
        self.layers: list[Any] = []

    @property
    def normal(self) -> Any:
        """The agent's normaliser."""
        return self.model.get_vec_normalize_env()

    @property
    def seats(self) -> Seats:
        """The agent's environments."""
        return self.normal.venv  # type: ignore[no-any-return]

    def lay(self, threat: ThreatModel | None, rival: Rival | None) -> None:
        """Put the adversary between the environments and the agent; open victims are the agent itself."""
        threat = threat if rival is None else rival.opponent
        if threat is None:
            return
        self.within = threat.budget
        self.seats.env = wrap(self.seats.recorder, threat, victim=self.victim)
        self.layers = [*layers(self.seats.env), *([] if rival is None else [rival.chairs.env])]

    def settle(self) -> None:
        """Between two rollouts: the normaliser moves, and with it the live victim and the budgets."""
        if self.normal.norm_obs:
            self.normal.obs_rms.settle(self.seats.true)
            follow(self.victim, self.normal)
        self.seats.true.clear()
        for layer in self.layers:
            assert self.within is not None
            within = self.within.resolve(next(iter(layer.threat.victims), self.victim))
            if within != layer.threat.budget:
                layer.set_budget(within)
