"""train_dynamics: a model of an environment, learned from what a victim and random actions do there.

Algorithm 2 of Weng et al. 2020: transitions of the victim and of random actions, as many of each, and a network trained
on them by least squares. As there it has four layers of 1000 ReLU units unless told otherwise; ``hidden=()`` is the
paper's linear model, solved in closed form. Choices made here, which the paper leaves open: the network predicts the
normalised change of the observation, Adam's learning rate falls to zero along half a cosine, and the last tenth of the
steps of every row is held out, of which the errors in the card are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.core.types import Info
from adv_wrappers.environments.dmc import feature_names
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.networks.card import Section
from adv_wrappers.registry import MOST_HIDDEN
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.models.networks import (
    Learner,
    check_vectors,
    cosine_rate,
    descend,
    fit,
    mean_and_std,
    relu_mlp,
)
from adv_wrappers.training.models.trajectories import Trajectories, kept_or_played, recorded_trajectories
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    EnvCount,
    Epochs,
    Exploration,
    LearningRate,
    Seed,
    Share,
    TrainingSteps,
    Transitions,
    Width,
    checked,
)
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.auxiliary_networks import Dynamics, MeanStd, TransitionModel
from adv_wrappers.victims.victim import Victim

HELD_OUT = 0.1  # share of the steps of every row
LEAST_STEPS = 5  # of a row, so that one is held out
HORIZONS = (1, 5, 10, 20, 50, 100)  # of the errors in the card
STARTS = 256  # of predictions without correction, on each side


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
        hidden: widths of the layers; none for a linear model, which has no use for the next three arguments.
        epochs: passes over the transitions.
        batch: transitions of a step of the training.
        lr: Adam's first learning rate.
        seed: seeds all randomness.
        num_envs: environments side by side.
        out: a folder for the model; the same call goes on where it stopped. It also holds the transitions.
        progress: called as ``progress(part, done, whole)``, with ``part`` one of ``"victim"``, ``"random"``
            (transitions) and ``"training"`` (epochs).

    Returns:
        The model. ``card["errors"]`` holds, for the victim's transitions that were held out and for the random ones (or
        for the ``recorded``):
        ``one_step``, the mean squared error of the change of every feature as a share of the variance of changes;
        ``mse``, the mean squared error of the next observation in its own units; and ``open_loop``, by number of
        steps that are predicted without correction, the mean squared error as a share of the variance of observations,
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
    check_vectors("a model of the dynamics", victim)
    environment = Environment.of(env, victim, env_kwargs, make)
    sizes = (math.prod(space.shape or ()) for space in (victim.observation_space, victim.action_space))
    given = None if recorded is None else recorded_trajectories(recorded, *sizes)
    if given is not None:
        if len(given) < LEAST_STEPS:
            raise ValueRangeError(f"expected at least {LEAST_STEPS} recorded transitions, got {len(given)}")
        transitions = len(given)
        noise = 0
        random = 0
        num_envs = 1
    # every part has to be long enough for something to be held out
    drawn = round(transitions * random)
    for what, count in (("the victim's own", transitions - drawn), ("random", drawn)):
        if 0 < count <= (LEAST_STEPS - 1) * num_envs:
            raise ValueRangeError(
                f"of {count} transitions with {what} actions in {num_envs} environments none could be held out: "
                f"expected none, or more than {(LEAST_STEPS - 1) * num_envs}: give more, or a smaller num_envs="
            )
    linear = not hidden
    how = {
        "transitions": transitions,
        "noise": noise,
        "random": random,
        "hidden": list(hidden),
        "epochs": None if linear else epochs,
        "batch": None if linear else batch,
        "lr": None if linear else lr,
        "seed": seed,
        "num_envs": num_envs,
        **({} if given is None else {"recorded": hashlib.sha256(given.to_bytes()).hexdigest()}),
    }
    folder = TrainingFolder.of(out, "dynamics", environment, victim, training=how)
    if folder.finished:
        return Dynamics(str(folder.out))
    environment.spaces_for(victim)  # which checks them
    with one_thread():
        # algorithm 2: transitions of the victim and of random actions
        counts = {"victim": (victim, transitions - drawn), "random": (None, drawn)}
        parts = {} if given is None else {"recorded": given}
        for stream, (source, (player, count)) in enumerate(counts.items() if given is None else ()):
            if count:
                parts[source] = kept_or_played(folder, environment, player, count, stream, progress)
        kept = {source: part.split(round(len(part.over) * (1 - HELD_OUT))) for source, part in parts.items()}
        # the network learns from the first steps, its errors are those of the last
        data = _Data.of([train for train, _ in kept.values()])
        net = _fit(data, folder, progress)
        with closing(environment()) as made:
            names = list(feature_names(made)) or None
        card = folder.card(
            "dynamics",
            network={"features": data.obs.shape[1], "actions": data.act.shape[1]},
            feature_names=names,
            errors={source: _errors(net, held_out) for source, (_, held_out) in kept.items()},
        )
        found = Dynamics.of(net, card)
        if folder.out is not None:
            found = found.save(folder.out)
            folder.finish()
        return found


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
        """Mean and standard deviation of each part."""
        return {name: mean_and_std(getattr(self, name)) for name in ("obs", "act", "change")}

    def targets(self) -> Tensor:
        """Normalised changes, ``[M, n + 1]``."""
        mean, std = self.statistics()["change"]
        return (self.change - mean) / std


class _Learner(Learner):
    """The least squared error of normalised changes, an epoch a round.

    Args:
        model: what is trained, its one network.
        data: transitions.
        how: as :func:`train_dynamics` has it.
    """

    def __init__(self, model: TransitionModel, data: _Data, how: Info) -> None:
        (self.net,) = model.nets
        self.adam = torch.optim.Adam(self.net.parameters())
        self.how = how
        self.x, self.y = model.inputs(data.obs, data.act), data.targets()

    def round(self, number: int) -> Info:
        """An epoch, whose order follows from its number, so that a training that resumes goes on alike."""
        how, count = self.how, len(self.x)
        order = torch.from_numpy(np.random.default_rng((how["seed"], 3, number)).permutation(count))
        batch = min(how["batch"], count)
        steps = count // batch
        loss = torch.zeros(())
        for i, rows in enumerate(order[: steps * batch].split(batch)):
            rate = cosine_rate(how["lr"], number + i / steps, how["epochs"])
            loss = (self.net(self.x[rows]) - self.y[rows]).square().mean()
            failed = f"the training of the model left the finite numbers: choose lr below {rate:g}"
            descend(self.adam, loss, rate, failed)
        return {"steps": number + 1, "loss": float(loss.detach())}


def _fit(data: _Data, folder: TrainingFolder, progress: Callable[[str, int, int], None] | None) -> TransitionModel:
    """The model with the least squared error of normalised changes."""
    how, statistics = folder.about["training"], data.statistics()
    sizes = data.obs.shape[1] + data.act.shape[1], *how["hidden"], data.change.shape[1]
    if len(sizes) == 2:
        # a linear model has a solution in closed form, by least squares
        layer = nn.Linear(*sizes)
        model = TransitionModel([nn.Sequential(layer)], **statistics)
        x, y = model.inputs(data.obs, data.act).double(), data.targets().double()
        solved = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x[:, :1])], -1), y).solution
        with torch.no_grad():
            layer.weight.copy_(solved[:-1].T)
            layer.bias.copy_(solved[-1])
        return model
    model = TransitionModel([relu_mlp(sizes, (how["seed"], 2, 0))], **statistics)

    def tell(row: Info) -> None:
        if progress is not None:
            progress("training", row["steps"], how["epochs"])

    fit(_Learner(model, data, how), how["epochs"], folder, tell)
    return model


@torch.no_grad()
def _errors(model: TransitionModel, held_out: Trajectories) -> Section:
    """What :func:`train_dynamics` says of the errors on trajectories that were held out."""
    data = _Data.of([held_out])
    found = torch.cat([model(*rows)[0] for rows in zip(data.obs.split(4096), data.act.split(4096), strict=True)])
    squared = (found - data.obs - data.change[:, :-1]).double().square()
    loops = {}
    for steps in HORIZONS:
        if (loop := _open_loop(model, held_out, steps)) is not None:
            loops[str(steps)] = loop if math.isfinite(loop) else None
    return {
        "one_step": (squared.mean(0) / model.change_std[:-1].double().square()).tolist(),
        "mse": float(squared.mean()),
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
    # from starts that are spread evenly, each step from the one that was predicted before
    chosen = np.linspace(0, len(t) - 1, min(STARTS, len(t))).astype(int)
    t, row = t[chosen], row[chosen]
    obs = torch.from_numpy(played.obs[t, row])
    for i in range(steps):
        obs, _ = model(obs, torch.from_numpy(played.act[t + i, row]))
    truth = torch.from_numpy(played.next_obs[t + steps - 1, row])
    return float(((obs - truth) / model.obs_std).double().square().mean())
