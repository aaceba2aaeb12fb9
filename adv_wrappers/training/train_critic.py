"""The course of one critic's training: rounds of playing and learning, and what is written after each.

train_one: Robust Sarsa's critic (Zhang et al. 2020, section 3.5 and appendix D) of a victim's own policy.

As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs of
32 minibatches; two tanh layers of 64; no target network. Choices of ours: a deterministic victim explores by Gaussian
noise (SA-DDPG's code: an Ornstein-Uhlenbeck process of the same size), and observations are normalised as the victim
does it, else by mean and deviation of the first round.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.errors import CardError, ThreatError, ValueRangeError
from adv_wrappers.evaluation.environments import Make, builder
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.networks.input_gradient import Normalize
from adv_wrappers.training.checkpoints import refuse_another
from adv_wrappers.training.sarsa import Collector, Learner, Returns, Rule, Transitions, exploring, network
from adv_wrappers.utils.files import holding, write
from adv_wrappers.utils.numbers import integer, number
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.card_nets import Critic as CriticNet
from adv_wrappers.victims.victim import Victim

ROUND, EPOCHS, MINIBATCHES, CLIP = 2048, 10, 32, 10.0
UNFINISHED = "training.safetensors"


class Course:
    """One training: everything that changes from round to round."""

    def __init__(
        self, victim: Victim, player: Victim, one: Any, card: dict[str, Any], rule: Rule, kept: dict[str, Any] | None
    ) -> None:
        self.victim, self.card, self.rule, self.how = victim, card, rule, card["training"]
        self.losses: list[dict[str, Any]] = [] if kept is None else kept["losses"]
        self.steps = self.losses[-1]["steps"] if self.losses else 0
        seed, rows = self.how["seed"], self.how["num_envs"]
        self.collector = Collector(one, player, rows, (seed, len(self.losses)))
        features, actions = (int((s.shape or ())[0]) for s in (victim.observation_space, victim.action_space))
        self.sizes = {"features": features, "actions": actions}
        hidden = tuple(self.how["hidden"])
        net = network(features + actions, hidden, seed, victim.device, victim.dtype)
        self.learner, self.returns = Learner(net, rule, features), Returns(rule.gamma)
        self.normalise = _normaliser(victim)
        if kept is not None:
            state = kept["state"]
            self.learner.restore(state)
            self.returns = Returns(rule.gamma, state["moments"])
            if self.normalise is None:
                self.normalise = Normalize(state["mean"].to(victim.device), state["std"].to(victim.device), CLIP)

    def _tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=self.victim.dtype, device=self.victim.device).flatten(0, 1)

    def round(self) -> None:
        """Play 2048 steps (what is left, in the last round) and learn from them."""
        rows, whole = self.collector.rows, self.how["steps"]
        length = math.ceil(min(ROUND, whole - self.steps) / rows)
        taken = self.collector.collect(max(length, 2))
        self.returns.update(taken.reward, taken.over)
        if self.normalise is None:
            seen = self._tensor(taken.obs)
            std = seen.std(0)
            self.normalise = Normalize(seen.mean(0), torch.where(std > 1e-6, std, torch.ones_like(std)), CLIP)
        x, after = (
            torch.cat([self.normalise(self._tensor(obs)), self._tensor(act)], -1)
            for obs, act in ((taken.obs, taken.act), (taken.next_obs, taken.next_act))
        )
        ended, over = (torch.from_numpy(flags).flatten().to(x.device) for flags in (taken.ended, taken.over))
        reward = self._tensor(taken.reward / self.returns.std)
        entropy = np.random.SeedSequence((self.how["seed"], len(self.losses)))
        draws = torch.Generator().manual_seed(int(entropy.generate_state(1)[0]))
        part, found = reward.numel() / whole / EPOCHS, []
        for epoch in range(EPOCHS):
            done = self.steps / whole + epoch * part
            found.append(self.learner.epoch(x, reward, after, ended, over, MINIBATCHES, draws, done, part))
        self.steps += reward.numel()
        self._record(taken, x, found[-1])

    def _record(self, taken: Transitions, x: Tensor, last: tuple[float, float]) -> None:
        with torch.no_grad():
            q = float(self.learner.net(x).mean()) * self.returns.std
        self.losses.append({
            "steps": self.steps, "loss": last[0], "robustness": last[1], "width": self.learner.width(x), "q": q,
            "return_std": self.returns.std, "episodes": len(taken.returns),
            "mean_return": float(np.mean(taken.returns)) if taken.returns else None,
        })  # fmt: skip

    def critic(self) -> Critic:
        """The critic as it is now, its last layer scaled back to the environment's rewards."""
        assert self.normalise is not None
        net = network(sum(self.sizes.values()), tuple(self.how["hidden"]), 0, self.victim.device, self.victim.dtype)
        net.load_state_dict(self.learner.net.state_dict())
        with torch.no_grad():
            for param in net[-1].parameters():
                param.mul_(self.returns.std)
        about = {
            "network": {"kind": "critic-mlp", "hidden": self.how["hidden"], "activation": "tanh", **self.sizes},
            "observation": {"rule": "clip((o - mean) / std, -clip, clip)", "clip": self.normalise.clip},
            "losses": self.losses,
        }  # fmt: skip
        return Critic.of(CriticNet(self.normalise, net), {**self.card, **about})

    def write(self, folder: Path, finished: bool) -> None:
        """The critic so far, and beside it, until it is finished, what it takes to go on."""
        unfinished = folder / UNFINISHED
        if not finished:
            assert self.normalise is not None
            about = {"card": self.card, "losses": self.losses}
            state = {**self.learner.state(), "moments": self.returns.moments}
            state |= {"mean": self.normalise.mean, "std": self.normalise.std}
            whole = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
            write(unfinished, save(whole, {"about": json.dumps(about)}))
        self.critic().save(folder)
        if finished:
            unfinished.unlink(missing_ok=True)


def _normaliser(victim: Victim) -> Normalize | None:
    """The victim's own rule for observations, with a number a feature; None where it has none."""
    shape = victim.observation_space.shape
    for module in (m for net in victim.modules() for m in net.modules()):
        if isinstance(module, Normalize) and module.mean.shape in ((), (1,), shape):
            mean, std = (t.expand(shape).clone() for t in (module.mean, module.std))  # type: ignore[arg-type]
            return Normalize(mean, std, module.clip)
    return None


def resume(folder: Path, card: dict[str, Any]) -> Critic | dict[str, Any] | None:
    """What a folder holds of the training of ``card``: the finished critic, the state to go on from, or nothing.

    Raises:
        CardError: for a folder that holds something else, or files that cannot be read.
        ValueRangeError: for a folder of another training, and for a card that no folder can hold.
    """
    for name, value in card["environment"]["kwargs"].items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueRangeError(
                f"env_kwargs must be finite numbers, texts, lists and dictionaries for card.json in {folder} to hold "
                f"them, got {name}={value!r:.60}: {error}"
            ) from error
    held = _held(folder)
    if held is not None:
        raise CardError(f"expected a folder for a critic, {folder} holds {held}: give another out=")
    unfinished = folder / UNFINISHED
    if unfinished.exists():
        try:
            with safe_open(unfinished, "pt") as file:
                about = json.loads(file.metadata()["about"])
                # copies: what is read is memory of the file itself, which the next round replaces
                state = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no dictionary
            found, kept = about["card"], {"losses": about["losses"], "state": state}
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise CardError(f"cannot read {unfinished}: {error}") from error
        refuse_another(folder, _told(found), _told(card))
        return kept
    if (folder / "card.json").exists():
        critic = Critic(str(folder))
        refuse_another(folder, _told(critic.card), _told(card))
        return critic
    return None


def _held(folder: Path) -> str | None:
    """In words, what a folder holds that is not a critic; None where a critic or nothing is there."""
    about: dict[str, Any] = {}
    for name in ("state.json", "card.json"):
        try:
            about[name] = json.loads((folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError, RecursionError) as error:
            raise CardError(f"cannot read {folder / name}: {error}") from error
    if "state.json" in about:
        adversary = isinstance(about["state.json"], dict) and "next" in about["state.json"]
        return f"the training of an {'adversary' if adversary else 'agent'}"
    if "card.json" not in about:
        return None
    card = about["card.json"] if isinstance(about["card.json"], dict) else {}
    network = card.get("network")
    kind = network.get("kind") if isinstance(network, dict) else card.get("kind")
    if kind == "critic-mlp":
        return None
    return "an adversary" if kind == "adversary" else f"a victim, {kind}" if kind else "a card.json of something else"


def _told(card: Mapping[str, Any]) -> dict[str, Any]:
    """What tells one training from another."""
    return {part: card.get(part) for part in ("environment", "victim", "training")}


_PLACE = ("victim", "env", "env_kwargs", "make", "out", "progress")  # what is no setting of a training
_CHOICES = {"robust": ("interval", "sample", None), "box": ("both", "action"), "successor": ("next", "shuffled")}
_NUMBERS = {"eps": math.inf, "weight": math.inf, "lr": math.inf, "gamma": 1.0, "noise": math.inf}  # and their tops
_LARGEST = 2**60
_WHOLE = {"steps": 2, "seed": 0, "num_envs": 1}  # and the least of each


@holding
def train_one(
    victim: Victim | str, env: str | Make, *, steps: int = 30 * ROUND, robust: str | None = "interval",
    eps: float = 0.02, weight: float = 0.1, box: str = "both", successor: str = "next", gamma: float = 0.99,
    lr: float = 3e-4, noise: float = 0.2, hidden: Sequence[int] = (64, 64), seed: int = 0, num_envs: int = 8,
    env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None, out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Critic:  # fmt: skip
    """Train one critic of a victim's policy for :class:`adv_wrappers.RobustSarsa`, of one setting.

    Args:
        victim: with continuous actions and observations of one dimension. One with recurrent state is played with it,
            and its critic sees the observation alone.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        steps: of all environments together, in rounds of 2048.
        robust: what keeps the critic smooth: ``"interval"`` bounds, the largest change at four random corners of the
            box (``"sample"``), or None.
        eps: radius of the box at the end, in normalised observations and in native actions; ``weight`` of the term.
        box: ``"both"`` for a box around observation and action (as released), ``"action"`` as in the paper.
        successor: ``"next"`` for Sarsa's own, or ``"shuffled"`` for the released code's, which shuffles a batch before
            it takes the next entry as successor: its target is a random state's value.
        gamma, lr: discount, and learning rate before it falls to zero in the last third.
        noise: of a deterministic victim, standard deviation as a fraction of half the range of its actions.
        hidden: widths of the layers.
        seed: of everything that is drawn.
        num_envs: environments side by side.
        out: a folder for the result. Every round writes the critic so far, and what it takes to go on: the same call
            goes on after an interruption, with new episodes, and reads the result if it is finished.
        progress: called as ``progress(steps done, steps)``.

    Raises:
        VictimError: for discrete actions, observations of more dimensions, and an environment that does not fit.
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training; with
            ``out``, for ``env_kwargs`` that are not JSON.
        CardError: for a folder that holds something else, or files that cannot be read.

    >>> from adv_wrappers.training.train_critic import train_one
    >>> critic = train_one("zoo:hopper-ppo", "Hopper-v5", steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    setting = {
        "steps": steps, "robust": robust, "eps": eps, "weight": weight, "box": box, "successor": successor,
        "gamma": gamma, "lr": lr, "noise": noise, "hidden": hidden, "seed": seed, "num_envs": num_envs,
    }  # fmt: skip
    return Training(victim, env, setting, env_kwargs, make, out).run(progress)


class Training:
    """One training whose arguments are in order: nothing is spent, and no environment made, before :meth:`run`.

    Args:
        victim, env, env_kwargs, make, out: as for :func:`train_one`.
        setting: what else it takes; its defaults stand in for the rest.

    Raises:
        AdvWrappersError: as :func:`train_one` does; :class:`ThreatError` for a setting that it does not take.
    """

    def __init__(
        self, victim: Victim | str, env: str | Make, setting: Mapping[str, Any],
        env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None, out: str | Path | None = None,
    ) -> None:  # fmt: skip
        how = checked(setting)
        self.rule = Rule(**{field.name: how[field.name] for field in dataclasses.fields(Rule)})
        self.victim = load_victim(victim)
        self.player = exploring(self.victim, how["noise"])
        self.one, name, kwargs = builder(env, self.victim, env_kwargs, make)
        self.card: dict[str, Any] = {
            "name": "robust-sarsa critic", "environment": {"id": name, "kwargs": kwargs},
            "victim": {"ref": self.victim.ref, "sha256": self.victim.fingerprint()},
            "training": {**how, "noise": how["noise"] if self.victim.kind == "mean" else None},
            "versions": versions(), "git": revision(),
        }  # fmt: skip
        self.steps: int = how["steps"]
        self.folder = None if out is None else Path(out)
        self.kept = None if self.folder is None else resume(self.folder, self.card)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Critic:
        """Play and learn what is left."""
        if isinstance(self.kept, Critic):
            return self.kept
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # small networks are slower on several
        try:
            run = Course(self.victim, self.player, self.one, self.card, self.rule, self.kept)
            try:
                if self.folder is not None:
                    _make_folder(self.folder)
                while run.steps < self.steps:
                    run.round()
                    if self.folder is not None:
                        run.write(self.folder, run.steps >= self.steps)
                    if progress is not None:
                        progress(min(run.steps, self.steps), self.steps)
            finally:
                run.collector.venv.close()
        finally:
            torch.set_num_threads(threads)
        return run.critic() if self.folder is None else Critic(str(self.folder))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueRangeError(f"cannot write to the folder {folder}: {error}") from error


def checked(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting as JSON holds it, with the defaults of :func:`train_one` for what it leaves open.

    Raises:
        ThreatError: for what :func:`train_one` does not take, or the caller decides, such as ``out``.
        ValueRangeError: for values out of range.
    """
    signature = inspect.signature(train_one).parameters
    known = {name: parameter.default for name, parameter in signature.items() if name not in _PLACE}
    unknown = sorted(map(str, {*setting} - {*known})) if isinstance(setting, Mapping) else [repr(setting)]
    if unknown:
        raise ThreatError(f"a critic's setting takes {', '.join(sorted(known))}, not {', '.join(unknown)}")
    how = {**known, **setting}
    for name, allowed in _CHOICES.items():
        if how[name] not in allowed:
            raise ValueRangeError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {how[name]!r}")
    for name, top in _NUMBERS.items():
        how[name] = number(name, how[name], 0, top)
    for name, least in _WHOLE.items():
        how[name] = integer(name, how[name], least, _LARGEST)
    if isinstance(how["hidden"], str) or not isinstance(how["hidden"], Iterable):
        raise ValueRangeError(f"hidden must hold integers of at least 1, got {how['hidden']!r}")
    how["hidden"] = [integer("a size of hidden", size, 1, _LARGEST) for size in how["hidden"]]
    return how
