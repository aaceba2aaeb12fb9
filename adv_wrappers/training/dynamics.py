"""train_dynamics: a model of an environment, learned from what a victim and random actions do there.

Algorithm 2 of Weng et al. 2020: transitions of the victim and of random actions, as many of each, and a network trained
on them by least squares. As there it has four layers of 1000 ReLU units unless told otherwise; ``hidden=()`` is the
paper's linear model, solved in closed form. Choices made here, which the paper leaves open: the network predicts the
normalised change of the observation, Adam's learning rate falls to zero along half a cosine, and the last tenth of the
steps of every row is held out, of which the errors in the card are.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.types import Info
from adv_wrappers.environments.dmc import feature_names
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.evaluation.rollout import side_by_side
from adv_wrappers.evaluation.row_key import revision, versions
from adv_wrappers.networks.card import Section
from adv_wrappers.registry import MOST_HIDDEN
from adv_wrappers.training.folder import TrainingFolder, described_victim, read_tensors, warn_of_unknown, write_tensors
from adv_wrappers.training.transitions import Trajectories, collect, recorded_trajectories
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.limits import (
    EnvCount,
    Epochs,
    Exploration,
    LearningRate,
    Networks,
    Seed,
    Share,
    TrainingSteps,
    Transitions,
    Width,
    checked,
)
from adv_wrappers.utils.reading import decoding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.saved_networks import ERROR_QUANTILES, LEAST_SHARE, Dynamics, MeanStd, TransitionModel
from adv_wrappers.victims.victim import Victim

HELD_OUT = 0.1  # share of the steps of every row
LEAST_STEPS = 5  # of a row, so that one is held out
HORIZONS = (1, 5, 10, 20, 50, 100)  # of the errors in the card
STARTS = 256  # of predictions without correction, on each side
PLAYED = "trajectories-{}.safetensors"
PLAYERS = ("victim", "random")


@checked
@holding
def train_dynamics(
    victim: Victim | str,
    env: AnyEnvironment,
    transitions: Transitions = 100_000,
    *,
    recorded: Iterable[Any] | None = None,
    noise: Exploration = 0.3,
    random: Share = 0.5,
    hidden: Sequence[Width] = (1000,) * 4,
    ensemble: Networks = 1,
    epochs: Epochs = 20,
    batch: TrainingSteps = 512,
    lr: LearningRate = 1e-3,
    seed: Seed = 0,
    num_envs: EnvCount = 8,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Dynamics:
    """Learn a model of an environment for :class:`adv_wrappers.ModelBased`.

    Args:
        victim: the victim or its reference, with continuous actions and observations ``[n]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        transitions: steps of the environment that are played (decisions, where it repeats actions).
        recorded: episodes to learn from instead of playing, such as a dataset of Minari: each with ``observations``
            ``[T + 1, n]``, ``actions`` ``[T, k]`` and ``rewards`` ``[T]``. The last tenth of their steps, in order, is
            held out. ``transitions``, ``noise``, ``random`` and ``num_envs`` are of no use then.
        noise: on the actions of half of the victim's episodes, as a fraction of half their range. It is the standard
            deviation of Gaussian noise.
        random: share of transitions with random actions, drawn evenly from the action space.
        hidden: widths of the layers; none for a linear model, which has no use for the next four arguments.
        ensemble: networks, trained from different weights, whose predictions are averaged.
        epochs: passes over the transitions.
        batch: transitions of a step of the training.
        lr: Adam's first learning rate.
        seed: seeds all randomness.
        num_envs: environments side by side.
        out: a folder for the model; the same call goes on where it stopped. It also holds the transitions.
        progress: called as ``progress(part, done, whole)``, with ``part`` one of ``"victim"``, ``"random"``
            (transitions) and ``"training"`` (epochs of all networks).

    Returns:
        The model. ``card["errors"]`` holds, for the victim's transitions that were held out and for the random ones (or
        for the ``recorded``):
        ``one_step``, the mean squared error of the change of every feature as a share of the variance of changes;
        ``mse``, the mean squared error of the next observation in its own units; ``quantiles``, see
        :meth:`adv_wrappers.victims.saved_networks.Dynamics.error_quantile`; and ``open_loop``, by number of steps
        that are predicted without correction, the mean squared error as a share of the variance of observations,
        averaged over the features (None where it is not finite). Variances are those of all training transitions.

    Raises:
        VictimError: for discrete actions, observations of more dimensions, and an environment that does not fit.
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training.
        CardError: for a folder that holds something else, or files that cannot be read.

    >>> from adv_wrappers import train_dynamics
    >>> model = train_dynamics("zoo:hopper-ppo", "Hopper-v5", 2000, hidden=())
    >>> len(model.card["errors"]["victim"]["one_step"])
    11
    """
    integer("the number of hidden layers", len(hidden), 0, MOST_HIDDEN)
    victim = load_victim(victim)
    space, seen = victim.action_space, victim.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise VictimError(f"a model of the dynamics is for continuous actions, this victim acts in {space}")
    if not isinstance(seen, spaces.Box) or len(seen.shape) != 1:
        raise VictimError(f"a model of the dynamics takes observations of one dimension, this victim sees {seen}")
    environment = Environment.of(env, victim, env_kwargs, make)
    given = None if recorded is None else recorded_trajectories(recorded, seen.shape[0], space.shape[0])
    if given is not None:
        if len(given) < LEAST_STEPS:
            raise ValueRangeError(f"expected at least {LEAST_STEPS} recorded transitions, got {len(given)}")
        transitions, noise, random, num_envs = len(given), 0, 0, 1
    drawn = round(transitions * random)
    for what, count in (("the victim's own", transitions - drawn), ("random", drawn)):
        if 0 < count <= (LEAST_STEPS - 1) * num_envs:
            raise ValueRangeError(
                f"of {count} transitions with {what} actions in {num_envs} environments none could be held out: "
                f"expected none, or more than {(LEAST_STEPS - 1) * num_envs}: give more, or a smaller num_envs="
            )
    warn_of_unknown(out, victim, environment)
    linear = not hidden
    about: Section = {
        "environment": environment.described,
        "victim": described_victim(victim),
        "training": {
            "transitions": transitions,
            "noise": noise,
            "random": random,
            "hidden": list(hidden),
            "ensemble": 1 if linear else ensemble,
            "epochs": None if linear else epochs,
            "batch": None if linear else batch,
            "lr": None if linear else lr,
            "seed": seed,
            "num_envs": num_envs,
            **({} if given is None else {"recorded": hashlib.sha256(given.to_bytes()).hexdigest()}),
        },
    }
    training = _Training(victim, environment, TrainingFolder(out, "dynamics", about), progress, given)
    with one_thread():
        return training.run()


@dataclass
class _Data:
    """Transitions as tensors, in the order in which they were played.

    Attributes:
        obs, act: ``[M, n]`` and ``[M, k]``.
        change: ``[M, n + 1]``, of observations, and the reward.
    """

    obs: Tensor
    act: Tensor
    change: Tensor

    @classmethod
    def of(cls, parts: Sequence[Trajectories]) -> _Data:
        def joined(name: str) -> Tensor:
            arrays = [getattr(part, name) for part in parts]
            return torch.from_numpy(np.concatenate([array.reshape(-1, *array.shape[2:]) for array in arrays]))

        obs, reward = joined("obs"), joined("reward")
        return cls(obs, joined("act"), torch.cat([joined("next_obs") - obs, reward[:, None]], -1))

    def statistics(self) -> dict[str, MeanStd]:
        """Mean and standard deviation of each part; what does not vary has a standard deviation of 1."""
        found = {}
        for name in ("obs", "act", "change"):
            values: Tensor = getattr(self, name)
            std = values.double().std(0)
            std = torch.where(std > 1e-8, std, torch.ones_like(std))
            found[name] = values.double().mean(0).float(), std.float()
        return found


class _Training:
    """One training with checked arguments.

    Args:
        victim: the victim.
        environment: how one is made.
        folder: what is kept, and what was asked: environment, victim, and settings.
        progress: as for :func:`train_dynamics`.
        recorded: what is learned from instead of playing.
    """

    def __init__(
        self,
        victim: Victim,
        environment: Environment,
        folder: TrainingFolder,
        progress: Callable[[str, int, int], None] | None,
        recorded: Trajectories | None = None,
    ) -> None:
        self.victim, self.environment, self.folder, self.progress = victim, environment, folder, progress
        self.recorded = recorded
        self.how: Info = folder.about["training"]

    def run(self) -> Dynamics:
        """What the folder lacks is played and trained."""
        if self.folder.finished:
            return Dynamics(str(self.folder.out))
        self.environment.spaces_for(self.victim)  # which checks them
        if self.recorded is None:
            parts = {source: part for source in PLAYERS if (part := self.play(source)) is not None}
        else:
            parts = {"recorded": self.recorded}
        kept = {source: part.split(round(len(part.over) * (1 - HELD_OUT))) for source, part in parts.items()}
        data = _Data.of([train for train, _ in kept.values()])
        net = self.fit(data)
        rms = _one_step(net, data).square().mean(0).sqrt()
        errors = {source: _errors(net, held_out, rms) for source, (_, held_out) in kept.items()}
        card: Section = {
            "name": "dynamics",
            **self.folder.about,
            "network": {"features": data.obs.shape[1], "actions": data.act.shape[1]},
            "feature_names": self.names(),
            "errors": errors,
            "versions": versions(),
            "git": revision(),
        }
        made = Dynamics.of(net, card)
        if self.folder.out is None:
            return made
        made = made.save(self.folder.out)
        self.folder.finish()
        return made

    def count(self, source: str) -> int:
        """Steps a row that a source plays."""
        drawn = round(self.how["transitions"] * self.how["random"])
        own: int = drawn if source == "random" else self.how["transitions"] - drawn
        rows: int = self.how["num_envs"]
        return math.ceil(own / rows)

    def play(self, source: str) -> Trajectories | None:
        """The transitions of a source, from the folder where they are there."""
        steps, rows = self.count(source), self.how["num_envs"]
        if not steps:
            return None
        name, out = PLAYED.format(source), self.folder.out
        if out is not None and (out / name).exists():
            return Trajectories.read(out / name)

        def tell(done: int) -> None:
            if self.progress is not None:
                self.progress(source, done, steps * rows)

        victim = self.victim if source == "victim" else None
        entropy = (self.how["seed"], PLAYERS.index(source))
        found = collect(
            functools.partial(side_by_side, self.environment), victim, steps, rows, entropy, self.how["noise"], tell
        )
        self.folder.keep(name, found.to_bytes())
        return found

    def names(self) -> list[str] | None:
        """The names that the environment has for the numbers of an observation."""
        env = self.environment()
        try:
            return list(feature_names(env)) or None
        finally:
            env.close()

    def fit(self, data: _Data) -> TransitionModel:
        """The model with the least squared error of normalised changes."""
        statistics = data.statistics()
        sizes = data.obs.shape[1] + data.act.shape[1], *self.how["hidden"], data.change.shape[1]
        if len(sizes) == 2:
            layer = nn.Linear(*sizes)
            model = TransitionModel([nn.Sequential(layer)], **statistics)
            x, y = model.inputs(data.obs, data.act).double(), _normalised(data.change, statistics["change"]).double()
            solved = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x[:, :1])], -1), y).solution
            with torch.no_grad():
                layer.weight.copy_(solved[:-1].T)
                layer.bias.copy_(solved[-1])
            return model
        nets = []
        for i in range(self.how["ensemble"]):
            torch_state = torch.random.get_rng_state()
            try:
                torch.manual_seed(int(np.random.SeedSequence((self.how["seed"], 2, i)).generate_state(1)[0]))
                nets.append(relu_mlp(sizes))
            finally:
                torch.random.set_rng_state(torch_state)
        model = TransitionModel(nets, **statistics)
        self.descend(model, data)
        return model

    def descend(self, model: TransitionModel, data: _Data) -> None:
        """Train all networks of a model, from the saved state where there is one."""
        x, y = model.inputs(data.obs, data.act), _normalised(data.change, (model.change_mean, model.change_std))
        epochs, batch = self.how["epochs"], min(self.how["batch"], len(x))
        whole, each = epochs * len(model.nets), len(x) // batch
        optimizers = [torch.optim.Adam(net.parameters(), lr=self.how["lr"]) for net in model.nets]
        self.restore(model, optimizers)
        for epoch in range(len(self.folder.record), whole):
            number, own = divmod(epoch, epochs)
            draw = np.random.default_rng((self.how["seed"], 3, epoch))
            order = torch.from_numpy(draw.permutation(len(x)))
            for i in range(each):
                rate = self.how["lr"] * (1 + math.cos(math.pi * (own + i / each) / epochs)) / 2
                optimizers[number].param_groups[0]["lr"] = rate
                rows = order[i * batch : (i + 1) * batch]
                loss = (model.nets[number](x[rows]) - y[rows]).square().mean()
                optimizers[number].zero_grad()
                loss.backward()
                optimizers[number].step()
            if not math.isfinite(float(loss.detach())):
                raise ValueRangeError(f"the training of the model left the finite numbers: choose lr below {rate:g}")
            checkpoint = self.folder.begin_checkpoint(epoch + 1)
            if checkpoint is not None:
                state = [optimizer.state_dict() for optimizer in optimizers]
                write_tensors(checkpoint, {"networks": model.nets.state_dict(), "optimizers": state})
            self.folder.add({"steps": epoch + 1, "loss": float(loss.detach())}, checkpoint)
            if self.progress is not None:
                self.progress("training", epoch + 1, whole)

    def restore(self, model: TransitionModel, optimizers: list[torch.optim.Adam]) -> None:
        """Load the last checkpoint, where there is one."""
        checkpoint = self.folder.checkpoint
        if checkpoint is None:
            return
        state = read_tensors(checkpoint)
        with decoding(f"{checkpoint} as the state of this model"):
            model.nets.load_state_dict(state["networks"])
            for optimizer, own in zip(optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(own)


def relu_mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers from ``sizes[0]`` to ``sizes[-1]`` numbers, with ReLU units between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _normalised(values: Tensor, statistics: MeanStd) -> Tensor:
    mean, std = statistics
    return (values - mean) / std


@torch.no_grad()
@torch.no_grad()
def _one_step(model: TransitionModel, data: _Data) -> Tensor:
    """The errors of the next observations, float64 ``[M, n]``."""
    found = torch.cat([model(*rows)[0] for rows in zip(data.obs.split(4096), data.act.split(4096), strict=True)])
    return (found - data.obs - data.change[:, :-1]).double()


@torch.no_grad()
def _errors(model: TransitionModel, held_out: Trajectories, rms: Tensor) -> Section:
    """What :func:`train_dynamics` says of the errors on trajectories that were held out.

    Args:
        model: the model.
        held_out: the trajectories.
        rms: root mean squares of the errors on those that it was trained on, ``[n]``: the unit of quantiles, which must
            not depend on what is held out.
    """
    error, scale = _one_step(model, _Data.of([held_out])), model.change_std[:-1].double()
    share = error.square().mean(0) / scale.square()
    unit = torch.maximum(rms, LEAST_SHARE**0.5 * scale)
    largest = (error.abs() / unit).amax(1).sort().values
    quantiles = {}
    for q in ERROR_QUANTILES:
        rank = math.ceil((len(largest) + 1) * q)  # of one more that is exchangeable with these, q are below it
        quantiles[str(q)] = (largest[rank - 1] * unit).tolist() if rank <= len(largest) else None
    loops = {}
    for steps in HORIZONS:
        if (loop := _open_loop(model, held_out, steps)) is not None:
            loops[str(steps)] = loop if math.isfinite(loop) else None
    return {
        "one_step": share.tolist(),
        "mse": float(error.square().mean()),
        "quantiles": quantiles,
        "open_loop": loops,
    }


def _open_loop(model: TransitionModel, played: Trajectories, steps: int) -> float | None:
    """The error after some steps that are predicted from the actions alone; None where no episode is as long."""
    # starts whose next steps are of one episode: none of them but the last may end it
    ends = np.cumsum(np.vstack([np.zeros_like(played.over[:1]), played.over]), axis=0)
    last = len(played.over) - steps
    if last < 0:
        return None
    t, row = np.nonzero(ends[steps - 1 : steps + last] == ends[: last + 1])
    if not len(t):
        return None
    chosen = np.linspace(0, len(t) - 1, min(STARTS, len(t))).astype(int)
    t, row = t[chosen], row[chosen]
    obs = torch.from_numpy(played.obs[t, row])
    for i in range(steps):
        obs, _ = model(obs, torch.from_numpy(played.act[t + i, row]))
    truth = torch.from_numpy(played.next_obs[t + steps - 1, row])
    return float(((obs - truth) / model.obs_std).double().square().mean())
