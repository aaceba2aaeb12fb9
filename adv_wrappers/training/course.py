"""The course of one critic's training: rounds of playing and learning, and what is written after each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.errors import CardError, ValueRangeError
from adv_wrappers.core.files import write
from adv_wrappers.training.another import refuse_another
from adv_wrappers.training.sarsa import Learner, Returns, Rule, network
from adv_wrappers.training.transitions import Collector, Transitions
from adv_wrappers.victims.card_nets import Critic as CriticNet
from adv_wrappers.victims.chain import Normalize
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
