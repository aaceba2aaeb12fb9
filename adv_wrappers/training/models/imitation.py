"""imitate: a surrogate of a policy from queries alone, to attack policies whose network nobody has.

Behzadan and Hsu (2019, section 3) approximate a black box by imitation. The victim is asked for the action that it
takes at one observation, and for nothing else: no logits, no gradients. First it plays its own episodes (behaviour
cloning). Every later round asks for labels where the surrogate's errors matter (DAgger, Ross et al. 2011): a third at
observations that attacks on the present surrogate make of the victim's (Papernot et al. 2017 ask there for images), a
third at states that the surrogate itself reaches, and a third at random points near what was seen, whose actions tell
the slope that gradient attacks follow. Each round trains from scratch on all labels, so a result follows from
the labels and the seed, and an interrupted imitation goes on as if nothing had happened.

The surrogate's logits rank the actions and estimate no value: ``WorstAction(by="policy")`` takes its least likely
one, and ``by="successor"`` needs another victim's value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.core.types import Array, Space
from adv_wrappers.environments.environment import AnyEnvironment, EnvFactory, Environment, MakeEnv
from adv_wrappers.errors import CardError, ValueRangeError, VictimError
from adv_wrappers.evaluation.rollout import EpisodesVectorEnv
from adv_wrappers.evaluation.rows.row_key import versions
from adv_wrappers.evaluation.threat_stacks import as_threat_stack
from adv_wrappers.networks.policy_layers import Normalize
from adv_wrappers.training.folder import STATE, TrainingFolder, described
from adv_wrappers.training.models.networks import descend, tanh_mlp
from adv_wrappers.training.models.trajectories import Arrays, ContinuingEpisodes
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.utils.validation import (
    EpisodeCount,
    Epochs,
    Limits,
    LongCount,
    NotNegative,
    TrainingSteps,
    Width,
    checked,
)
from adv_wrappers.victims import load_card, load_victim, save_card
from adv_wrappers.victims.modules.module import from_module
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.victim import Victim
from adv_wrappers.wrappers.layer import AnyVectorEnv
from adv_wrappers.wrappers.wrap import wrap

# ----------------------------------------------------------------------------------------------------------------------
# The network that imitates: its layers, its training on observations and chosen actions, and how well it agrees.
#
# Discrete actions are learned by their cross-entropy, continuous ones by their squared error. Labels are actions,
# which say nothing of how sure the victim was, so a network that fits them grows ever surer, and its divergence flat:
# its slope falls below the noise that :class:`adv_wrappers.MaxDiff` adds to gradients. So logits are divided
# afterwards, which changes no action, until the best one leads by at most :data:`LEAD` at nine of ten of the
# observations that were asked about. Without that, ``docs/results/strength.md`` has what becomes of attacks on
# CartPole's PPO agent.
# ----------------------------------------------------------------------------------------------------------------------


LEAD = 3.0  # nats; at 90% of the states
_Loss = Callable[[Tensor], Tensor]
_RATE, _LEAST_STD = 1e-2, 1e-6
_GAIN = 0.1  # of the last layer's first weights


@dataclass(frozen=True)
class Labels(Arrays):
    """What was asked, and what the victim answered.

    Attributes:
        observations: ``[n, features]``, in the dtype of the environment.
        actions: native actions, ``[n]`` or ``[n, D]``.
        sources: where each observation came from, an index into ``SOURCES``, uint8 ``[n]``.
    """

    observations: Array
    actions: Array
    sources: Array

    def __len__(self) -> int:
        return len(self.observations)

    def joined(self, other: Labels) -> Labels:
        """These and then the others."""
        return Labels(*map(np.concatenate, zip(vars(self).values(), vars(other).values(), strict=True)))


def fit_surrogate(
    labels: Labels,
    observed: Space,
    acted: Space,
    hidden: Sequence[int],
    epochs: int,
    seed: int,
    scale: Tensor | None = None,
) -> Victim:
    """A surrogate trained from scratch on all labels; the same labels and seed make the same weights.

    Args:
        labels: at least one.
        observed, acted: the spaces; actions are Discrete, or a Box of one dimension.
        hidden: widths of the layers, tanh between them.
        epochs: passes through the labels.
        seed: seeds the weights and the order.
        scale: the unit of ``scale="victim"``, ``[features]``; None for the observations' standard deviations.

    Raises:
        ValueRangeError: for labels that the training diverges on.
    """
    # inputs normalised by the mean and deviation of all labels
    x = torch.as_tensor(labels.observations, dtype=torch.float64)
    std = x.std(0, correction=0)
    std = torch.where(std > _LEAST_STD, std, torch.ones_like(std))
    normalise = Normalize(x.mean(0).float(), std.float())
    inputs = normalise(x.float())
    draws = torch.Generator().manual_seed(seed)
    # discrete actions by cross-entropy, continuous ones by regression
    if isinstance(acted, spaces.Discrete):
        chosen = torch.as_tensor(labels.actions, dtype=torch.int64) - int(acted.start)
        net = tanh_mlp((inputs.shape[1], *hidden, int(acted.n)), _GAIN, draws)
        _train(net, inputs, lambda rows: functional.cross_entropy(net(inputs[rows]), chosen[rows]), epochs, draws)
        _temper(net, inputs)
    else:
        net = _regression(inputs, labels.actions, acted, hidden, epochs, draws)
    victim = from_module(
        nn.Sequential(normalise, *net),
        observed,
        acted,
        "logits" if isinstance(acted, spaces.Discrete) else "mean",
        clip=_all_inside(labels.actions, acted),
        scale=std if scale is None else scale,
    )
    return victim


def _train(net: nn.Sequential, inputs: Tensor, loss_of: _Loss, epochs: int, draws: torch.Generator) -> None:
    """Adam on minibatches, some eighty in every pass, its rate falling to zero."""
    adam = torch.optim.Adam(net.parameters(), _RATE)
    batch = min(max(len(inputs) // 80, 32), 256)
    steps, done = epochs * math.ceil(len(inputs) / batch), 0
    failed = "the training of the surrogate diverged: are the observations or actions very large?"
    for _ in range(epochs):
        for rows in torch.randperm(len(inputs), generator=draws).split(batch):
            descend(adam, loss_of(rows), _RATE * (1 - done / steps), failed)
            done += 1


@torch.no_grad()
def _temper(net: nn.Sequential, inputs: Tensor) -> None:
    """Divide the logits until the best one leads by at most :data:`LEAD` at nine states of ten."""
    logits = net(inputs)
    if logits.shape[1] == 1:
        return
    top = logits.topk(2, -1).values
    lead = float((top[:, 0] - top[:, 1]).quantile(0.9))
    for parameter in net[-1].parameters() if lead > LEAD else ():
        parameter.mul_(LEAD / lead)


def _regression(
    inputs: Tensor, actions: Array, space: Space, hidden: Sequence[int], epochs: int, draws: torch.Generator
) -> nn.Sequential:
    """A network whose clipped outputs are the actions, in their units.

    Actions at a bound were clipped there: an output beyond it is as good, and costs nothing.
    """
    assert isinstance(space, spaces.Box)
    # outputs are learned in units of the actions' deviation
    y = torch.as_tensor(actions, dtype=torch.float32)
    mean, std = y.mean(0), y.std(0, correction=0)
    std = torch.where(std > _LEAST_STD, std, torch.ones_like(std))
    low, high = (torch.as_tensor(bound, dtype=torch.float32) for bound in (space.low, space.high))
    clipped = _all_inside(actions, space)
    at_low, at_high = (y <= low) & clipped, (y >= high) & clipped
    net = tanh_mlp((inputs.shape[1], *hidden, y.shape[1]), _GAIN, draws)

    def loss_of(rows: Tensor) -> Tensor:
        over = net(inputs[rows]) - (y[rows] - mean) / std
        over = torch.where(at_low[rows], over.clamp(min=0), torch.where(at_high[rows], over.clamp(max=0), over))
        return over.square().mean()

    _train(net, inputs, loss_of, epochs, draws)
    # and brought back to their own units by the last layer
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(std[:, None])
        last.bias.mul_(std).add_(mean)
    return net


def _all_inside(actions: Array, space: Space) -> bool:
    """Whether continuous actions all lie in a bounded box, as those of agents do that clip them."""
    if not isinstance(space, spaces.Box) or not space.is_bounded():
        return False
    return bool(((actions >= space.low) & (actions <= space.high)).all())


def agreement(own: Array, victims: Array, space: Space) -> float:
    """How well the actions of a surrogate agree with the victim's at the same observations.

    Args:
        own, victims: native actions, ``[n]`` or ``[n, D]``.
        space: of the actions.

    Returns:
        For discrete actions the share of equal ones; for continuous ones R2, the mean over their dimensions, and of a
        dimension that the victim never changes 1 where the surrogate does neither, else 0.
    """
    if isinstance(space, spaces.Discrete):
        return float((own == victims).mean())
    error = np.square(own.astype(float) - victims).sum(0)
    spread = np.square(victims.astype(float) - victims.mean(0)).sum(0)
    constant = spread <= _LEAST_STD**2 * len(victims)
    ratio = error / np.where(constant, 1.0, spread)
    return float(np.where(constant, error <= _LEAST_STD**2 * len(victims), 1 - ratio).mean())


# ----------------------------------------------------------------------------------------------------------------------
# Queries: a victim's actions at observations of episodes, attacked ones too, and at random points near them.
#
# Every observation that is returned has cost one query: one call of the victim's policy on it.
# ----------------------------------------------------------------------------------------------------------------------


SOURCES = ("victim", "attacked", "surrogate", "nearby")  # where observations are from
VICTIM, ATTACKED, SURROGATE, NEARBY = range(4)
_LENGTH, _ROWS = 1000, 8  # steps that a row plays where there are enough, and the most rows


def episode_seeds(entropy: Sequence[int], test: bool) -> Iterator[int]:
    """Seeds of episodes: even ones for the training, and odd ones to test on, so that no episode is of both."""
    draw = np.random.default_rng(entropy)
    while True:
        yield int(draw.integers(2**30)) * 2 + test


def ask(
    victim: Victim,
    make_env: EnvFactory,
    seeds: Iterator[int],
    count: int | None = None,
    episodes: int | None = None,
    threats: Sequence[ThreatModel] = (),
    player: Victim | None = None,
    source: int = VICTIM,
) -> Labels:
    """Play, and ask the victim for its action at every observation.

    Args:
        victim: the victim, which is asked once for every observation that is returned.
        make_env: makes one environment.
        seeds: of the episodes.
        count, episodes: the number of queries, or of episodes, to stop after.
        threats: between the environment and who plays, innermost first.
        player: who plays; None for the victim itself.
        source: the index into ``SOURCES`` that the labels get.
    """
    # side by side, in fewer rows where few queries are left to fill them
    rows = 1 if count is None else max(1, min(_ROWS, count // _LENGTH))
    venv: AnyVectorEnv = wrap(EpisodesVectorEnv(make_env, rows), *threats)
    observations = []
    actions = []
    spent = 0
    finished = 0
    with closing(venv):
        runners = [PolicyRunner(victim, rows)] + ([] if player is None else [PolicyRunner(player, rows)])
        playing = ContinuingEpisodes(venv, runners, seeds)
        while finished != episodes:
            obs, left = playing.obs, rows if count is None else min(rows, count - spent)
            if left < rows:  # the last query asks about some rows alone
                if left:
                    observations.append(obs[:left])
                    actions.append(runners[0].peek(obs, np.arange(left)))
                break
            # the victim is asked at every observation, and acts on it unless somebody else plays
            taken = [runner.act(obs) for runner in runners]
            observations.append(np.array(obs))
            actions.append(taken[0])
            spent += rows
            *_, over = playing.step(taken[-1])
            finished += int(over.sum())
            playing.begin(over)
    # labels, with where they come from
    seen = np.concatenate(observations)
    return Labels(seen, np.concatenate(actions), np.full(len(seen), source, np.uint8))


def ask_nearby(victim: Victim, space: Space, labels: Labels, radius: Array, count: int, seed: int) -> Labels:
    """Labels at random points near the observations of the other sources, within the bounds of the space.

    Args:
        victim: the victim, without a hidden state.
        space: of the observations, a Box.
        labels: whose observations the points are near.
        radius: the largest distance in every feature, ``[features]``.
        count: the number of queries.
        seed: seeds the points.
    """
    assert isinstance(space, spaces.Box)
    draw, seen = np.random.default_rng(seed), labels.observations[labels.sources != NEARBY]
    # an even draw around observations that were seen elsewhere
    around = seen[draw.integers(len(seen), size=count)].astype(np.float64)
    moved = around + draw.uniform(-1, 1, around.shape) * radius
    moved = np.round(moved) if np.issubdtype(seen.dtype, np.integer) else moved
    points = np.clip(moved, space.low, space.high).astype(seen.dtype)
    runner = PolicyRunner(victim, count)
    runner.reset(None, seed)
    return Labels(points, runner.act(points), np.full(count, NEARBY, np.uint8))


LEAST_QUERIES = 50  # queries of a round
QUERIES = "queries.safetensors"  # the labels so far
# of what the victim's own unit is, if it has one, else the observations' standard deviations
RADII = (0.05, 0.1, 0.2)
Round = dict[str, Any]


@dataclass(frozen=True)
class Imitation:
    """The result of :func:`imitate`.

    Attributes:
        victim: the surrogate, the ``victim=`` of any attack; with ``out`` it is ``card:OUT``.
        agreement: with the victim on episodes of the victim that the training never saw: the share of equal actions,
            or R2 of continuous ones, the mean over their dimensions.
        attacked_agreement: the same on what attacks on the surrogate show to the victim there; None without attacks.
        queries: how many observations the victim was asked about for the training.
        test_queries: how many for the two agreements.
        rounds: the record: for each round ``queries`` so far, how many came from which of ``SOURCES``, the ``threat``,
            and the ``agreement`` that it reached.
    """

    victim: Victim
    agreement: float
    attacked_agreement: float | None
    queries: int
    test_queries: int
    rounds: tuple[Round, ...]


@checked
@holding
def imitate(
    victim: Victim | str,
    env: AnyEnvironment,
    queries: TrainingSteps = 20_000,
    rounds: Annotated[int, Limits(0, 10**6)] = 6,
    seed: LongCount = 0,
    out: str | Path | None = None,
    *,
    threats: Iterable[object] | str | None = None,
    noise: NotNegative = 0.5,
    hidden: Sequence[Width] = (64, 64),
    epochs: Epochs = 60,
    episodes: EpisodeCount = 10,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Imitation:
    """Train a surrogate of a victim from the actions that it takes, and say how well it agrees.

    Args:
        victim: the victim or its reference; only its actions are looked at, as it plays them. Observations ``[n]``,
            actions Discrete or a Box. The surrogate has no hidden state and plays the mode.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        queries: actions that the victim is asked for, playing included.
        rounds: how many follow the first, which is the victim's own play; 0 clones behaviour. All ask about equally
            many observations.
        seed: seeds all randomness.
        out: a folder for the surrogate's card; the same call goes on where it stopped. It also holds the labels, both
            written after every round. An imitation resumes to the same result; of a finished one it is read.
        threats: an attack to ask under, such as ``pgd:eps=0.1``; None takes pgd or max-diff at three radii. They attack
            the surrogate, one a round and then again from the first, each as :func:`evaluate` takes it. Best those that
            the surrogate is for. None takes ``pgd`` (of continuous actions ``max-diff``) at 0.05, 0.1 and 0.2 of the
            victim's unit. Without any, ``()``, no queries are asked under attacks.
        noise: how far from what was seen random points are, in every feature, in the victim's unit. 0 is for none. Of a
            recurrent victim there are none: its action depends on more than what it sees.
        hidden: widths of the surrogate's layers.
        epochs: passes of a round's training through all labels.
        episodes: episodes that the agreement is measured on.
        progress: called as ``progress(queries spent, queries)``.

    Raises:
        VictimError: for observations and actions of other spaces, and a victim that does not fit the environment.
        ValueRangeError: for numbers out of range, less than 50 queries a round, and a folder of something else.
        AdvWrappersError: others, before anything is spent, for threats that do not fit.

    >>> from adv_wrappers import imitate
    >>> found = imitate("zoo:cartpole-dqn", "CartPole-v1", queries=400, rounds=1, epochs=2, episodes=1)
    >>> found.queries, found.victim.kind
    (400, 'logits')
    """
    if queries < (least := LEAST_QUERIES * (rounds + 1)):
        raise ValueRangeError(
            f"queries must be at least {LEAST_QUERIES} a round, so {least} with rounds={rounds}, got {queries}"
        )
    how = {
        "queries": queries,
        "rounds": rounds,
        "seed": seed,
        "noise": noise,
        "hidden": hidden,
        "epochs": epochs,
        "episodes": episodes,
    }
    victim = load_victim(victim)
    imitation = _Imitating(victim, Environment.of(env, victim, env_kwargs, make), how, threats, out)
    with one_thread():
        return imitation.run(progress)


def check_imitable(observed: Space, acted: Space, out: object = None) -> None:
    """Raise :class:`VictimError` for spaces of observations and actions that :func:`imitate` does not take."""
    if not isinstance(observed, spaces.Box) or len(observed.shape) != 1:
        raise VictimError(
            f"imitate takes observations [n], got {observed}: gymnasium.wrappers.FlattenObservation makes these of "
            "others, but a surrogate has no convolutions and does not imitate what acts on images"
        )
    if not isinstance(acted, spaces.Discrete) and not (isinstance(acted, spaces.Box) and len(acted.shape) == 1):
        raise VictimError(f"imitate takes Discrete actions or a Box of one dimension, got {acted}")
    if out is not None and isinstance(acted, spaces.Discrete) and acted.start != 0:
        raise VictimError(f"a card holds actions of a Discrete that starts at 0, got {acted}: imitate without out=")


def _part(count: int, number: int, parts: int) -> int:
    """How many of a count are in one of parts that differ by one at most."""
    return count * (number + 1) // parts - count * number // parts


class _Imitating:
    """One imitation with checked numbers: what was asked so far, and what is left to ask.

    Args:
        victim: the victim.
        environment: how its environment is made.
        how: the numbers of :func:`imitate`, by the names of its arguments.
        threats: the attacks that later rounds ask under, aimed at the surrogate that there is by then.
        out: a folder, or None.

    Raises:
        AdvWrappersError: one of its kinds, for a victim that cannot be imitated, and a threat that cannot be applied.
        CardError, ValueRangeError: as :class:`TrainingFolder`, and for labels that cannot be read.
    """

    def __init__(
        self, victim: Victim, environment: Environment, how: dict[str, Any], threats: Any, out: str | Path | None
    ) -> None:
        self.victim = victim
        self.environment = environment
        self.how = how
        observed, acted = self.observed, self.acted = environment.spaces_for(victim)
        check_imitable(observed, acted, out)
        # the attacks that the victim is asked under
        if threats is None:
            name = "pgd" if isinstance(acted, spaces.Discrete) else "max-diff"
            threats = [f"{name}:eps={radius},scale=victim" for radius in RADII]
        single = isinstance(threats, (str, Mapping)) or not isinstance(threats, Iterable)
        self.threats: list[object] = [threats] if single else [*threats]
        # all are tried on a surrogate that has learned nothing
        actions = np.stack([np.asarray(acted.sample())] * 2)
        some = Labels(np.zeros((2, *(observed.shape or ()))), actions, np.zeros(2, np.uint8))
        untrained = self._fit(some, hidden=[1], epochs=1, seed=0)
        stacks = [as_threat_stack(item, untrained) for item in self.threats]
        for threat in (layer for stack in stacks for layer in stack.layers):
            threat.check(observed, acted)
        self.names = [stack.name for stack in stacks]
        # what a text does not say; without the surrogate, which differs from round to round
        in_full = [None if isinstance(item, str) else described(item) for item in self.threats]
        asked = {**how, "threats": self.names, "threats_in_full": in_full}
        self.folder = TrainingFolder.of(out, "imitation", environment, victim, imitation=asked)
        self.labels: Labels | None = None
        if self.folder.out is None or not self.folder.record or self.folder.finished:
            return
        # the labels of the rounds that are done: the file may hold more, of one that was not scored
        path, count = self.folder.out / QUERIES, self.folder.record[-1]["queries"]
        self.labels = Labels.read(path).part(slice(count))
        if len(self.labels) < count:
            raise CardError(f"{path} holds {len(self.labels)} labels, and {self.folder.out / STATE} speaks of {count}")

    def run(self, progress: Callable[[int, int], None] | None) -> Imitation:
        """Ask what is left to ask, and return the result."""
        folder = self.folder
        queries = self.how["queries"]
        rounds = self.how["rounds"]
        seed = self.how["seed"]
        if folder.finished and folder.out is not None:
            return Imitation(load_card(folder.out), **folder.result, rounds=tuple(folder.record))
        # agreement is measured on episodes of their own
        test = ask(self.victim, self.environment, episode_seeds((seed, 1), True), episodes=self.how["episodes"])
        surrogate = None if self.labels is None else self._fit(self.labels)
        # each round asks its share of the queries, and trains anew on all labels
        for done in range(len(folder.record), rounds + 1):
            self.labels = self._round(done, _part(queries, done, rounds + 1), surrogate)
            surrogate = self._fit(self.labels)
            row = self._row(done, self._agreement(surrogate, test))
            self._write(surrogate, [*folder.record, row], None)
            folder.add(row)
            if progress is not None:
                progress(len(self.labels), queries)
        assert surrogate is not None and self.labels is not None
        # and how often both agree where the surrogate is attacked
        attacked = self._ask_attacked(surrogate)
        result = {
            "agreement": self._agreement(surrogate, test),
            "attacked_agreement": None if attacked is None else self._agreement(surrogate, attacked),
            "queries": len(self.labels),
            "test_queries": len(test) + (0 if attacked is None else len(attacked)),
        }
        self._write(surrogate, folder.record, result)
        folder.finish(**result)
        surrogate = surrogate if folder.out is None else load_card(folder.out)
        return Imitation(surrogate, **folder.result, rounds=tuple(folder.record))

    def _fit(self, labels: Labels, **other: Any) -> Victim:
        how = {name: self.how[name] for name in ("hidden", "epochs", "seed")} | other
        scale = None if self.victim.scale is None else self.victim.scale.detach().cpu()  # where the surrogate is
        return fit_surrogate(labels, self.observed, self.acted, **how, scale=scale)

    def _agreement(self, surrogate: Victim, labels: Labels) -> float:
        return agreement(surrogate.act_on(labels.observations), labels.actions, self.acted)

    def _threats(self, surrogate: Victim, number: int) -> tuple[ThreatModel, ...]:
        """The threats of a round or an episode."""
        return as_threat_stack(self.threats[number % len(self.threats)], surrogate).layers

    def _round(self, number: int, count: int, surrogate: Victim | None) -> Labels:
        """The labels so far and those of one round: equal parts of every source that there is."""
        seed, noise = self.how["seed"], self.how["noise"]
        if surrogate is None or self.labels is None:
            return ask(self.victim, self.environment, episode_seeds((seed, 3, number), False), count)
        found = self.labels
        # the sources of this round in equal parts
        near = noise > 0 and not self.victim.recurrent
        sources = ((ATTACKED, bool(self.threats)), (SURROGATE, True), (NEARBY, near))
        parts = [source for source, there in sources if there]
        for i, source in enumerate(parts):
            more = _part(count, i, len(parts))
            seeds = episode_seeds((seed, 3 + source, number), False)
            if source == NEARBY:
                unit = noise * np.asarray(surrogate.scale)
                new = ask_nearby(self.victim, self.observed, self.labels, unit, more, next(seeds))
            else:
                threats = self._threats(surrogate, number - 1) if source == ATTACKED else ()
                player = surrogate if source == SURROGATE else None
                new = ask(self.victim, self.environment, seeds, more, threats=threats, player=player, source=source)
            found = found.joined(new)
        return found

    def _ask_attacked(self, surrogate: Victim) -> Labels | None:
        """What the attacks on the surrogate show to the victim in episodes to test on, and its actions there."""
        found: Labels | None = None
        for episode in range(self.how["episodes"]) if self.threats else ():
            seeds, threats = episode_seeds((self.how["seed"], 2, episode), True), self._threats(surrogate, episode)
            more = ask(self.victim, self.environment, seeds, episodes=1, threats=threats, source=ATTACKED)
            found = more if found is None else found.joined(more)
        return found

    def _row(self, number: int, agreed: float) -> Round:
        assert self.labels is not None
        counts = np.bincount(self.labels.sources, minlength=len(SOURCES)).tolist()
        return {
            "queries": len(self.labels),
            **dict(zip(SOURCES, counts, strict=True)),
            "threat": self.names[(number - 1) % len(self.names)] if number and self.names else None,
            "agreement": agreed,
        }

    def _write(self, surrogate: Victim, rounds: Sequence[Round], result: Mapping[str, object] | None) -> None:
        """Write the labels, and the card that is made of them."""
        out = self.folder.out
        if out is None or self.labels is None:
            return
        self.folder.keep(QUERIES, self.labels.to_bytes())
        # the surrogate is a victim's card, which says how it came about
        described = self.environment.described
        save_card(
            out,
            surrogate,
            environment=(described["id"], described["kwargs"]),
            name=f"imitation of {self.victim.ref or type(self.victim).__name__}",
            training=self.folder.about,
            rounds=[*rounds],
            result=result,
            versions=versions(),
        )
