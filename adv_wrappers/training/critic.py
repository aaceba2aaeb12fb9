"""train_critic: Robust Sarsa's critic (Zhang et al. 2020, section 3.5 and appendix D) of a victim's own policy.

As released with SA-PPO: 30 rounds of 2048 steps with the victim's sampled actions, each learned from in ten epochs of
32 minibatches; two tanh layers of 64; no target network. Choices of ours: a deterministic victim explores by Gaussian
noise (SA-DDPG's code: an Ornstein-Uhlenbeck process of the same size), and observations are normalised as the victim
does it, else by mean and deviation of the first round.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from adv_wrappers.attacks.critic import Critic
from adv_wrappers.core.errors import CardError, ValueRangeError
from adv_wrappers.evaluation.environments import Make, builder
from adv_wrappers.evaluation.provenance import revision, versions
from adv_wrappers.training.another import refuse_another
from adv_wrappers.training.course import ROUND, UNFINISHED, Course
from adv_wrappers.training.sarsa import Rule
from adv_wrappers.training.transitions import exploring
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.victim import Victim


def train_critic(
    victim: Victim | str, env: str | Make, *, steps: int = 30 * ROUND, robust: str | None = "interval",
    eps: float = 0.02, weight: float = 0.1, box: str = "both", successor: str = "next", gamma: float = 0.99,
    lr: float = 3e-4, noise: float = 0.2, hidden: Sequence[int] = (64, 64), seed: int = 0, num_envs: int = 8,
    env_kwargs: Mapping[str, Any] | None = None, make: Make | None = None, out: str | Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Critic:  # fmt: skip
    """Train the critic of a victim's policy for :class:`adv_wrappers.RobustSarsa`.

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
        ValueRangeError: for arguments out of range, values that are not finite, and a folder of another training.
        CardError: for a folder with files that cannot be read.

    >>> critic = train_critic("zoo:hopper-ppo", "Hopper-v5", steps=64, num_envs=2)
    >>> critic.card["losses"][-1]["steps"]
    64
    """
    rule = Rule(robust, float(eps), float(weight), box, successor, float(gamma), float(lr))
    hidden = _checked(rule, steps, hidden, seed, num_envs)
    victim = load_victim(victim)
    player = exploring(victim, noise)
    one, name, kwargs = builder(env, victim, env_kwargs, make)
    card: dict[str, Any] = {
        "name": "robust-sarsa critic", "environment": {"id": name, "kwargs": kwargs},
        "victim": {"ref": victim.ref, "sha256": victim.fingerprint()},
        "training": {
            **dataclasses.asdict(rule), "steps": int(steps), "noise": float(noise) if victim.kind == "mean" else None,
            "hidden": list(hidden), "seed": int(seed), "num_envs": int(num_envs),
        },
        "versions": versions(), "git": revision(),
    }  # fmt: skip
    folder = None if out is None else Path(out)
    kept = None if folder is None else _resume(folder, card)
    if isinstance(kept, Critic):
        return kept
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small networks are slower on several
    try:
        run = Course(victim, player, one, card, rule, kept)
        try:
            while run.steps < steps:
                run.round()
                if folder is not None:
                    run.write(folder, run.steps >= steps)
                if progress is not None:
                    progress(min(run.steps, int(steps)), int(steps))
        finally:
            run.collector.venv.close()
    finally:
        torch.set_num_threads(threads)
    return run.critic() if folder is None else Critic(str(folder))


def _resume(folder: Path, card: dict[str, Any]) -> Critic | dict[str, Any] | None:
    """What a folder holds of this training: the finished critic, the state to go on from, or nothing."""
    unfinished = folder / UNFINISHED
    if unfinished.exists():
        try:
            with safe_open(unfinished, "pt") as file:
                about = json.loads(file.metadata()["about"])
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
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


def _told(card: Mapping[str, Any]) -> dict[str, Any]:
    """What tells one training from another."""
    return {part: card.get(part) for part in ("environment", "victim", "training")}


def _checked(rule: Rule, steps: Any, hidden: Any, seed: Any, num_envs: Any) -> tuple[int, ...]:
    for name, value, allowed in (
        ("robust", rule.robust, ("interval", "sample", None)), ("box", rule.box, ("both", "action")),
        ("successor", rule.successor, ("next", "shuffled")),
    ):  # fmt: skip
        if value not in allowed:
            raise ValueRangeError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    for name, number, top in (
        ("eps", rule.eps, math.inf), ("weight", rule.weight, math.inf), ("lr", rule.lr, math.inf),
        ("gamma", rule.gamma, 1.0),
    ):  # fmt: skip
        if not 0 <= number <= top or not math.isfinite(number):
            raise ValueRangeError(f"{name} must be a finite number from 0 to {top}, got {number!r}")
    hidden = tuple(hidden)
    for name, whole, least in (
        ("steps", steps, 2), ("seed", seed, 0), ("num_envs", num_envs, 1), *(("hidden", size, 1) for size in hidden)
    ):  # fmt: skip
        if isinstance(whole, bool) or not isinstance(whole, (int, np.integer)) or whole < least:
            raise ValueRangeError(f"{name} must hold integers of at least {least}, got {whole!r}")
    return tuple(int(size) for size in hidden)
