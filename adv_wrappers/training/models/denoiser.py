"""train_denoiser: a denoiser of an agent's observations, learned from its own episodes without an attack.

What is learned is how far an observation was moved, by least squares, from moves that are drawn: for a plain denoiser
moves of the budget (a share of it that is drawn for every row, of that either an even draw or the corners), for a
diffusion model Gaussian noise of a level that is drawn for every row.

With history the network is told the last reconstructions and the last action, as DMBP is (Yang and Xu, ICLR 2024). Its
own errors come back to it there, so it is trained on them: the loss of several consecutive steps is summed, with the
weights 1, 2, 3, ..., and from the second on the history holds what the network made of the steps before (the paper's
non-Markovian loss). What is remembered at the first of these steps is the truth with an offset of about the budget,
the same at all of them: without it a network learns to follow its memory, and what errors it makes stay.

Departures from the paper. That offset is ours. It learns offline from data of others; here the agent plays, every
second row with noise on its actions. The network is an MLP, there a U-net over the history. There are ``levels`` levels
of noise, of which the largest is the budget, and all of them are used; the paper's code trains the first tenth of 100.
The reconstruction that goes into the history is that of one step from the noisy observation; the paper's code puts the
true observation in its place. There is no moving average of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.types import Info
from adv_wrappers.environments.environment import AnyEnvironment, Environment, MakeEnv
from adv_wrappers.errors import BudgetError, ValueRangeError, VictimError
from adv_wrappers.networks.card import Section
from adv_wrappers.registry import MOST_HIDDEN
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.models.dynamics_model import HELD_OUT, LEAST_STEPS
from adv_wrappers.training.models.networks import check_vectors, cosine_rate, descend_in_rounds, mean_and_std, relu_mlp
from adv_wrappers.training.models.trajectories import Trajectories, kept_or_played
from adv_wrappers.utils.checks import integer
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    EnvCount,
    Exploration,
    LearningRate,
    Limits,
    Seed,
    TrainingSteps,
    Transitions,
    Width,
    checked,
)
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.saved_networks import (
    MOST_HISTORY,
    MOST_LEVELS,
    Denoiser,
    DenoisingNetwork,
    Past,
    action_feature_count,
)
from adv_wrappers.victims.victim import Victim

DenoiserKind = Literal["diffusion", "plain"]
LEAST_ROUND, MOST_ROUNDS = 100, 50  # updates between two checkpoints, and how many of these there are
SMALLEST_LEVEL = 0.1  # of the levels of a diffusion model, in units; the largest is 1


@checked
@holding
def train_denoiser(
    victim: Victim | str,
    env: AnyEnvironment,
    eps: float,
    scale: float | Sequence[float] | str | None = None,
    kind: DenoiserKind = "diffusion",
    *,
    history: Annotated[int, Limits(0, MOST_HISTORY)] | None = None,
    levels: Annotated[int, Limits(1, MOST_LEVELS)] = 5,
    unroll: TrainingSteps = 4,
    transitions: Transitions = 50_000,
    noise: Exploration = 0.3,
    hidden: Sequence[Width] = (256, 256),
    updates: TrainingSteps = 10_000,
    batch: TrainingSteps = 256,
    lr: LearningRate = 1e-3,
    seed: Seed = 0,
    num_envs: EnvCount = 8,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Denoiser:
    """Learn a denoiser for :class:`adv_wrappers.victims.purified.Purified`.

    Args:
        victim: the agent or its reference, with observations ``[n]`` and actions that are Discrete or a Box ``[k]``.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        eps, scale: the budget, as :class:`adv_wrappers.Linf` takes it: how far a feature may be moved.
        kind: ``"diffusion"`` or ``"plain"``.
        history: how many of the last reconstructions, with the last action, the network is told; 0 for none, which is
            the default of a plain denoiser. That of a diffusion model is 4, as in DMBP.
        levels: of noise, of a diffusion model: the reverse steps of a reconstruction.
        unroll: consecutive steps whose losses are summed, with history.
        transitions: how many are played. A tenth of the steps of every row is held out, of which the errors are.
        noise: on the actions of every second row: the standard deviation of Gaussian noise, as a fraction of half their
            range, or the share of Discrete actions that are drawn evenly instead.
        hidden: widths of the layers, with ReLU units between them.
        updates, batch, lr: of the training: steps of Adam, rows of each, and its first learning rate, which falls to
            zero along half a cosine.
        seed: seeds all randomness.
        num_envs: the number of environments side by side.
        out: a folder for the denoiser. The same call goes on where it stopped, and reads what is finished. The folder
            also holds the transitions.
        progress: called as ``progress(part, done, whole)``, with ``part`` ``"victim"`` (transitions) or ``"training"``.

    Returns:
        The denoiser. ``card["errors"]`` holds, from episodes that were held out and in units of the budget, the root
        mean square of the difference between the true observation and: what an even draw of the budget (``noise``) or
        one of its corners (``corners``) makes of it, ``before`` and ``after`` the denoiser; and ``clean``, the
        reconstruction of the observation itself.

    Raises:
        VictimError: for a victim with a hidden state, other observations or actions, and an environment that does not
            fit.
        BudgetError: for a budget of size zero, or that does not fit.
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training.
        CardError: for a folder that holds something else, or files that cannot be read.

    >>> from adv_wrappers import load_victim
    >>> from adv_wrappers.training.models.denoiser import train_denoiser
    >>> from adv_wrappers.victims.purified import Purified
    >>> denoiser = train_denoiser("zoo:cartpole-dqn", "CartPole-v1", 0.1, transitions=500, updates=20)
    >>> Purified(load_victim("zoo:cartpole-dqn"), denoiser).recurrent
    True
    """
    history = (4 if kind == "diffusion" else 0) if history is None else history
    integer("the number of hidden layers", len(hidden), 0, MOST_HIDDEN)
    victim = load_victim(victim)
    seen = victim.observation_space
    if victim.recurrent:
        raise VictimError(f"a denoiser stands before victims without a hidden state, got {victim!r}")
    check_vectors("a denoiser", victim, continuous=False)
    assert isinstance(seen, spaces.Box)
    action_feature_count(victim.action_space)
    # the budget, within which noise is drawn and reconstructions stay
    budget = Linf(eps, scale).resolve(victim)  # type: ignore[arg-type]
    budget.check(seen.low, seen.high, False)
    if budget.is_zero:
        raise BudgetError(f"a denoiser is trained for a budget above zero, got {budget!r}")
    # enough steps for windows of the training and for those that are held out
    least = (LEAST_STEPS - 1) * num_envs + (unroll + 1) * num_envs
    if transitions <= least:
        raise ValueRangeError(f"expected more than {least} transitions in {num_envs} environments, got {transitions}")
    environment = Environment.of(env, victim, env_kwargs, make)
    diffusion = kind == "diffusion"
    how = {
        "kind": kind,
        "history": history,
        "levels": levels if diffusion else 0,
        "unroll": unroll if history else 1,
        "transitions": transitions,
        "noise": noise,
        "hidden": list(hidden),
        "updates": updates,
        "batch": batch,
        "lr": lr,
        "seed": seed,
        "num_envs": num_envs,
    }
    folder = TrainingFolder.of(out, "denoiser", environment, victim, budget=budget.to_dict(), training=how)
    if folder.finished:
        return Denoiser(str(folder.out))
    environment.spaces_for(victim)  # which checks them
    with one_thread():
        # clean episodes, the network, and its errors on what was held out
        played = kept_or_played(folder, environment, victim, transitions, 0, progress)
        trained, held_out = played.split(round(len(played.over) * (1 - HELD_OUT)))
        net = _fit(trained, budget, folder, progress)
        sizes = {"features": len(net.mean), "actions": net.actions, "history": history, "levels": how["levels"]}
        return folder.save_network(Denoiser, "denoiser", net, network=sizes, errors=_errors(net, held_out, seed))


def _network(played: Trajectories, budget: Linf, how: Info) -> DenoisingNetwork:
    """The network before its training."""
    n = played.obs.shape[-1]
    count = how["levels"]
    history = how["history"]
    obs = torch.from_numpy(played.obs).flatten(0, 1)
    unit = torch.as_tensor(budget.radius(obs[:1]), dtype=torch.float32).expand(n).clone()
    # levels of noise in shares of the budget, from the smallest up to all of it
    levels = torch.logspace(math.log10(SMALLEST_LEVEL), 0, count) if count > 1 else torch.ones(count)
    actions = played.act.shape[-1] if history else 0
    sizes = DenoisingNetwork.inputs(n, count, history, actions), *how["hidden"], n
    net = relu_mlp(sizes, (how["seed"], 1))
    return DenoisingNetwork(net, *mean_and_std(obs), unit, levels if count else None, history, actions)


def _fit(
    played: Trajectories, budget: Linf, folder: TrainingFolder, progress: Callable[[str, int, int], None] | None
) -> DenoisingNetwork:
    """The network with the least squared error of the moves that are drawn."""
    how = folder.about["training"]
    net, updates = _network(played, budget, how), how["updates"]
    windows = _Windows(played, how["history"], how["unroll"])
    draws = torch.Generator().manual_seed(int(np.random.SeedSequence((how["seed"], 2)).generate_state(1)[0]))

    def steps(begin: int, end: int) -> Iterator[tuple[float, Tensor]]:
        # on windows that are drawn evenly
        for done in range(begin, end):
            yield cosine_rate(how["lr"], done, updates), _loss(net, windows, how["batch"], draws)

    each = max(LEAST_ROUND, math.ceil(updates / MOST_ROUNDS))
    ends = [*range(each, updates, each), updates]
    # clipped as the paper's code does
    descend_in_rounds(net.net, ends, steps, folder, "the denoiser", clip=10.0, draws=draws, progress=progress)
    return net


class _Windows:
    """Consecutive steps of one episode, with the history before them.

    Args:
        played: trajectories.
        history: how many observations come before the first step, fewer where the episode is younger.
        steps: how many there are.
    """

    def __init__(self, played: Trajectories, history: int, steps: int) -> None:
        self.obs, self.act = torch.from_numpy(played.obs), torch.from_numpy(played.act)
        self.history, self.steps = history, steps
        over = played.over
        age = np.zeros(over.shape, np.int64)  # steps since the beginning of the episode
        for t in range(1, len(over)):
            age[t] = np.where(over[t - 1], 0, age[t - 1] + 1)
        # windows lie within one episode: they start at least so many steps before its end
        whole = np.zeros(over.shape, bool)
        last = len(over) - steps + 1
        whole[:last] = age[steps - 1 :] >= steps - 1 if steps > 1 else True
        first, row = np.nonzero(whole)
        if not len(first):
            raise ValueRangeError(f"no episode of the agent is {steps} steps long: expected a smaller unroll=")
        self.t, self.row = torch.from_numpy(first), torch.from_numpy(row)
        self.age = torch.from_numpy(age[first, row])

    def sample(self, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Past | None]:
        """Observations ``[B, steps, n]``, the actions there, and the past of the first."""
        chosen = torch.randint(len(self.t), (count,), generator=draw)
        t, row = self.t[chosen], self.row[chosen]
        steps = t[:, None] + torch.arange(self.steps)
        obs, act = self.obs[steps, row[:, None]], self.act[steps, row[:, None]]
        if not self.history:
            return obs, act, None
        # what went before, zero and unknown before the beginning of the episode
        back = torch.arange(self.history, 0, -1)
        known = (back <= self.age[chosen][:, None]).float()
        before = (t[:, None] - back).clamp(min=0)
        seen = self.obs[before, row[:, None]] * known[..., None]
        return obs, act, (seen, self.act[before[:, -1], row] * known[:, -1:], known)


def _loss(net: DenoisingNetwork, windows: _Windows, batch: int, draw: torch.Generator) -> Tensor:
    """The squared error of the moves of a batch, of all steps of its windows."""
    obs, act, past = windows.sample(batch, draw)
    if past is not None:  # as if reconstructions had drifted off
        drift = torch.rand(batch, 1, generator=draw) * torch.randn(obs[:, 0].shape, generator=draw)
        past = past[0] + (net.unit * drift)[:, None] * past[2][..., None], past[1], past[2]
    # how much noise: a share of the budget, or a level that is drawn for every row
    level = size = None
    if net.levels is None:
        size = torch.rand(batch, 1, generator=draw)
    else:
        level = torch.randint(len(net.levels), (batch,), generator=draw)
        size = net.levels[level][:, None]
    total, weights = obs.new_zeros(()), 0
    for step in range(windows.steps):
        if net.levels is None:  # of the budget
            even = 2 * torch.rand(obs[:, step].shape, generator=draw) - 1
            corners = torch.rand(batch, 1, generator=draw) < 0.5
            move = target = size * torch.where(corners, even.sign(), even)
        else:
            target = torch.randn(obs[:, step].shape, generator=draw)
            move = size * target
        # the network says how far the observation was moved; later steps count more
        moved = obs[:, step] + net.unit * move
        found = net.noise(moved, net.condition(past), level)
        total = total + (step + 1) * (found - target).square().mean()
        weights += step + 1
        # what the next step remembers is this reconstruction, with its errors
        if past is not None:
            clean = moved - net.unit * (found if net.levels is None else size * found)
            past = net.push(past, clean, act[:, step])
    return total / weights


@torch.no_grad()
def _errors(net: DenoisingNetwork, held_out: Trajectories, seed: int) -> Section:
    """What :func:`train_denoiser` says of the errors on episodes that were held out."""
    obs, act = torch.from_numpy(held_out.obs), torch.from_numpy(held_out.act)
    draw = torch.Generator().manual_seed(int(np.random.SeedSequence((seed, 3)).generate_state(1)[0]))
    # the moves that errors are measured under, in features that the budget moves at all
    even = 2 * torch.rand(obs.shape, generator=draw) - 1
    corners = (2 * torch.rand(obs.shape, generator=draw) - 1).sign()
    moved_features = net.unit > 0  # of the others nothing is lost
    unit = torch.where(moved_features, net.unit, torch.ones_like(net.unit))

    def left(move: Tensor) -> dict[str, float]:
        # episode by episode: the memory begins anew where one ends
        past, after = net.start(obs.shape[1]), []
        for t in range(len(obs)):
            found = net(obs[t] + net.unit * move[t], past)
            after.append((found - obs[t]) / unit)
            over = torch.from_numpy(held_out.over[t])[:, None]
            new, fresh = net.push(past, found, act[t]) if net.history else past, net.start(obs.shape[1])
            past = tuple(  # type: ignore[assignment]
                torch.where(over.view(-1, *[1] * (new[i].dim() - 1)), fresh[i], new[i]) for i in range(3)
            )
        return {"before": _rms(move[..., moved_features]), "after": _rms(torch.stack(after)[..., moved_features])}

    found: dict[str, Any] = {"noise": left(even), "corners": left(corners)}
    return {**found, "clean": left(torch.zeros_like(obs))["after"]}


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
