"""Surrogates from 20 000 queries: how well they agree, and what attacks on them cost the victim.

    python benchmarks/reproduce/imitation.py --victims FOLDER --work FOLDER

For CartPole's PPO agent, MountainCar's DQN agent (both of the zoo) and the card wocar-hopper-ppo: surrogates by cloning
alone, with DAgger on the surrogate's own states, on those that attacks visit as well, and with random points near all
of these; of discrete actions the last one also without the division of its logits. Each is attacked at three eps,
beside noise and attacks on the victim itself (white box), on the same episodes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from figures import kept, table
from page import AGAIN, VICTIMS, Data, Page, Results, episode_options
from safetensors.numpy import load_file

import adv_wrappers as adv
from adv_wrappers.threats.presets import parse_threat
from adv_wrappers.training.models import imitation
from adv_wrappers.training.models.imitation import QUERIES, VICTIM, Imitation

HALF = (0.9, 0.07)  # of MountainCar's positions and speeds
STRONG = "max-diff:restarts=2,keep=best,noise=0"  # a search for the largest divergence, not one ascent with noise
ROUNDS = 6
CLONING, OWN, ATTACKED, ALL, AS_TRAINED = "cloning", "own states", "attacked states", "all", "logits as trained"
SETTINGS = (CLONING, OWN, ATTACKED, ALL, AS_TRAINED)


@dataclass(frozen=True)
class Case:
    """A victim, its environment, the attacks on it, and what the surrogate should reach."""

    name: str
    ref: str
    env: str
    scale: Any
    eps: tuple[float, ...]
    attacks: tuple[str, ...]
    goal: float

    def load(self, victims: Path) -> adv.Victim:
        """The victim: one of the zoo, or a card in a folder."""
        return adv.load_victim(self.ref if ":" in self.ref else f"card:{victims / self.ref}")

    def within(self, eps: float) -> adv.Linf:
        """The budget of a radius."""
        return adv.Linf(eps, self.scale) if self.scale is not None else adv.Linf(eps)

    def threat(self, attack: str, eps: float, victim: adv.Victim | None) -> adv.ThreatModel:
        """An attack, aimed at a victim, or open."""
        return parse_threat(attack, victim=victim, within=self.within(eps))


CASES = (
    Case("CartPole, PPO", "zoo:cartpole-ppo", "CartPole-v1", None, (0.05, 0.1, 0.15), ("pgd", "max-diff"), 0.97),
    Case(
        "MountainCar, DQN", "zoo:mountaincar-dqn", "MountainCar-v0", HALF, (0.025, 0.05, 0.1), ("pgd", "max-diff"), 0.97
    ),
    Case(
        "Hopper, WocaR-PPO", "wocar-hopper-ppo", "Hopper-v4", "victim", (0.05, 0.075, 0.1), ("max-diff", STRONG), 0.99
    ),
)  # fmt: skip


def folder_of(case: Case, setting: str, arguments: argparse.Namespace) -> Path:
    """Where the surrogate of a setting is kept."""
    work: Path = arguments.work
    return work / f"{case.ref.replace(':', '-')}-{setting.replace(' ', '-')}-{arguments.seed}"


def imitated(
    case: Case, victim: adv.Victim, setting: str, arguments: argparse.Namespace
) -> tuple[Imitation, float | None]:
    """The surrogate of a setting, and its processor time in seconds; None for one that an earlier run has begun."""
    threats = [case.threat(case.attacks[0], eps, None) for eps in case.eps] if setting in (ATTACKED, ALL) else ()
    rounds = 0 if setting == CLONING else ROUNDS
    began, fresh = time.process_time(), not folder_of(case, setting, arguments).exists()
    found = adv.imitate(
        victim,
        case.env,
        arguments.queries,
        rounds,
        arguments.seed,
        folder_of(case, setting, arguments),
        threats=threats,
        noise=0.5 if setting == ALL else 0,
        progress=lambda *at: print(case.name, setting, *at, flush=True),
    )
    return found, time.process_time() - began if fresh else None


def as_trained(case: Case, victim: adv.Victim, arguments: argparse.Namespace) -> adv.Victim:
    """The surrogate of all sources from the same labels, its logits as they are after the training."""
    imitated(case, victim, ALL, arguments)
    labels = imitation.Labels(**load_file(folder_of(case, ALL, arguments) / QUERIES))
    spaces, before = (victim.observation_space, victim.action_space), imitation.LEAD
    imitation.LEAD = math.inf
    try:
        return imitation.fit_surrogate(labels, *spaces, (64, 64), 60, arguments.seed, victim.scale)
    finally:
        imitation.LEAD = before


def same_gradient_direction(victim: adv.Victim, other: adv.Victim, seen: torch.Tensor) -> float | None:
    """The mean cosine, over observations, between the gradients of two networks' outputs, in the victim's unit.

    The outputs are the lead of the first action that is played over the other best, or the continuous actions.
    """
    if not victim.differentiable:
        return None
    unit = seen.std(0) if victim.scale is None else victim.scale.to(seen.dtype)

    def slope(who: adv.Victim) -> torch.Tensor:
        if not victim.discrete:
            parts = [who.gradient(lambda params, i=i: params[:, i])(seen) for i in range(len(victim.action_space.low))]
            return (torch.stack(parts, 1) * unit).flatten(1)
        best = victim.params(seen).topk(2, -1).indices
        lead = lambda params: params.gather(-1, best[:, :1]).sum(-1) - params.gather(-1, best[:, 1:]).sum(-1)  # noqa: E731
        return who.gradient(lead)(seen) * unit

    return float(torch.nn.functional.cosine_similarity(slope(victim), slope(other)).mean())


def measure_case(case: Case, results: Results) -> None:
    """Everything about one victim that is not there yet."""
    given, found = results.given, results.part("cases", case.ref)
    victim = case.load(given.victims)

    def rows(target: adv.Victim | None, attacks: tuple[str, ...]) -> dict[str, Any]:
        threats = [case.threat(name, eps, target) for name in attacks for eps in case.eps]
        names = [f"{name} {eps:g}" for name in attacks for eps in case.eps]
        report = adv.evaluate(victim, case.env, threats, given.episodes, given.seed, num_envs=50).to_dict()
        found = dict(zip(["none", *names], map(kept, report["threats"]), strict=True))
        for row in found.values():  # a threat's text names the surrogate's folder, which is one of this machine
            row["threat"] = row["threat"].replace(str(given.work), "FOLDER")
        return found

    def of_surrogate(setting: str) -> dict[str, Any]:
        if setting == AS_TRAINED:
            target, about = as_trained(case, victim, given), {}
        else:
            result, seconds = imitated(case, victim, setting, given)
            target = result.victim
            about = {
                "agreement": result.agreement,
                "attacked_agreement": result.attacked_agreement,
                "queries": result.queries,
                "rounds": list(result.rounds),
                "processor_seconds": seconds,
            }
        labels = load_file(folder_of(case, ALL if setting == AS_TRAINED else setting, given) / QUERIES)
        own = labels["observations"][labels["sources"] == VICTIM]
        seen = torch.tensor(own[:: len(own) // 500 or 1], dtype=torch.float32)
        about["cosine"] = same_gradient_direction(victim, target, seen)
        return {**about, "rows": rows(target, case.attacks)}

    results.once(found, "noise", rows, None, ("noise",))
    results.once(found, "white box", rows, victim, case.attacks)
    for setting in given.settings:
        if setting != AS_TRAINED or victim.discrete:
            results.once(found, setting, of_surrogate, setting)


def share(clean: float, white: float, left: float) -> float | None:
    """The part of the white box's cost that an attack reaches; None where that costs nothing."""
    return (clean - left) / (clean - white) if clean - white > 1e-9 else None


def body(data: Data) -> list[str]:
    """The section after its head."""
    quality, left = [], []
    for case in (case for case in CASES if data["cases"].get(case.ref, {}).keys() & {*SETTINGS}):
        found = data["cases"][case.ref]
        settings = [name for name in SETTINGS if name in found]
        for name in settings:
            row = found[name]
            agreed = [row.get(key) for key in ("agreement", "attacked_agreement")]
            cells = ["" if value is None else f"{value:.4f}" for value in agreed]
            quality.append([case.name, name, *cells, f"{row['cosine']:.3f}"])
        clean = found["noise"]["none"]["mean_return"]
        for attack, eps in itertools.product(case.attacks, case.eps):
            key = f"{attack} {eps:g}"
            white = found["white box"][key]["mean_return"]
            cells = [f"{found['noise'][f'noise {eps:g}']['mean_return']:.1f}", f"{white:.1f}"]
            for name in (CLONING, ALL):
                own = found[name]["rows"][key]["mean_return"]
                reached = share(clean, white, own)
                cells.append(f"{own:.1f}" + ("" if reached is None else f" ({reached:.0%})"))
            left.append([case.name, f"`{attack}`", f"{eps:g}", f"{clean:.1f}", *cells])
    return [
        f"A surrogate is trained from {data['queries']} actions of the victim, and attacked; the victim plays under "
        "that attack. `own states` has DAgger on the surrogate's own states; `attacked states` asks half of the "
        "later queries at what an attack on the surrogate shows; `all`, the default, asks a third each there, at the "
        "surrogate's states, and at random points near all that was seen. `logits as trained` lacks the division "
        "that makes the best logit lead by 3 at most states: MaxDiff on it reaches 0%, 6% and 66% of the white box's "
        "cost at the three eps. Agreement (equal actions, of Hopper R2) is of ten other episodes, and of what "
        "attacks on the surrogate show; the cosine is that of the gradients of the victim's lead and the surrogate's.",
        table(["victim", "labels", "agreement", "agreement, attacked", "cosine"], quality),
        "Mean returns over 50 episodes (Hopper 30); in brackets the share of the white box's cost.",
        table(["victim", "attack", "eps", "none", "noise", "white box", CLONING, ALL], left),
    ]


def measure(results: Results) -> None:
    """Measure what is not there yet."""
    warnings.filterwarnings("ignore")
    results.data["queries"] = results.given.queries
    for case in CASES:
        if results.given.only in (None, case.ref):
            measure_case(case, results)


PAGE = Page(
    "imitation",
    "Imitated victims: agreement and transfer",
    __doc__,
    measure,
    body,
    page="strength",
    options={
        **VICTIMS,
        **episode_options(50),
        **AGAIN,
        "--work": {"type": Path, "help": "folder for the surrogates"},
        "--queries": {"type": int, "default": 20_000},
        "--only": {"choices": [case.ref for case in CASES], "help": "one victim"},
        "--settings": {"nargs": "+", "choices": SETTINGS, "default": SETTINGS, "help": "some of the surrogates"},
    },
    needs=["--victims", "--work"],
    partly=["--only", "--settings"],
)


if __name__ == "__main__":
    PAGE.main()
