"""Resilience and robustness on CartPole (Behzadan and Hsu 2019, Table 6, Figures 1-12, sections 6.1 to 6.3).

    python benchmarks/reproduce/resilience.py --victims FOLDER --targets FOLDER --work FOLDER [--exact]

measures the zoo's DQN, A2C and PPO, and those that ``resilience_targets.py`` trained with the paper's Tables 2 to 4
into ``--targets``: five trainings of the adversary each, and 100 test episodes, the same for all. Beside them stand the
exact optimum, an attack at every step, random timing and ``Strategic`` with as many perturbations, the paper's DQN as
the adversary's algorithm, budgets of 10 and 5, and three ways to find the worst action. Writes ``resilience.json`` as
results come, ``resilience.md`` and its pictures; a killed run goes on where it was. ``--only PART`` does one part of
it, ``--exact`` the exact optimum alone.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from figures import command, load, machine, options, save, write
from resilience_exact import optimum, profile
from resilience_page import TOGETHER, draw, drawn, markdown
from stable_baselines3 import PPO

import adv_wrappers as adv
from adv_wrappers.evaluation.episodes import draw_seeds
from adv_wrappers.training.resilience_result import LAST, AttackedEpisodes, Resilience

ENV = "CartPole-v1"
SEEDS = 5
BUDGET_SEEDS = 3  # under a budget of 5, soft; hard for the zoo's victims alone
STEPS = 60_000
DQN_STEPS = 20_000  # Table 5 allows 100_000, seven minutes of the processor; the training is done after 10_000
TEST = 1000  # seeds the test's episodes, the same for all trainings
TUNING = 2000  # seeds the episodes that p and beta are chosen on
PROFILE_STARTS = 6  # a start whose victim survives three perturbations takes half a minute, four take several
PARTS = ("resilience", "baselines", "robustness", "opinions", "dqn", "profile", "exact")
Job = tuple[str, Callable[[], dict[str, Any]]]


def victims_of(arguments: argparse.Namespace) -> dict[str, str]:
    """References of the victims by name, those of the zoo first."""
    found = {f"zoo {kind}": f"zoo:cartpole-{kind}" for kind in ("dqn", "a2c", "ppo")}
    if arguments.targets is not None:
        found |= {
            f"Tables 2-4 {kind}": f"card:{arguments.targets / kind}"
            for kind in ("dqn", "a2c", "ppo")
            if (arguments.targets / kind / "card.json").exists()
        }
    return found


def curve_of(training: AttackedEpisodes) -> dict[str, list[float]]:
    """A training curve as the pictures need it: means of ``TOGETHER`` episodes in a row, of which the last are left."""
    whole = len(training) // TOGETHER * TOGETHER
    assert training.steps is not None
    return {
        "steps": training.steps[TOGETHER - 1 : whole : TOGETHER].tolist(),
        "regrets": training.regrets[:whole].reshape(-1, TOGETHER).mean(1).round(2).tolist(),
        "perturbations": training.perturbations[:whole].reshape(-1, TOGETHER).mean(1).round(2).tolist(),
    }


def row_of(found: Resilience, curve: bool = False) -> dict[str, Any]:
    """What the page needs of a result, with the curve of its training where that is drawn."""
    late = found.training.last(LAST)
    return {
        "max_regret": found.max_regret,
        "training_regret": late.mean_regret,
        "training_perturbations": late.mean_perturbations,
        "regrets": found.test.regrets.tolist(),
        "perturbations": found.test.perturbations.tolist(),
        "lengths": found.test.lengths.tolist(),
        "total": float((found.returns + found.test.perturbations).mean()),
        "seconds": round(found.seconds, 1),
        "steps": found.steps,
        "histogram": found.histogram.tolist(),
        "clean": float(found.clean_returns.mean()),
        **({"curve": curve_of(found.training)} if curve else {}),
    }


def played(victim: adv.Victim, threats: list[Any], episodes: int, seed: int, env: str = ENV) -> list[dict[str, Any]]:
    """Returns and perturbations of every episode, under each threat."""
    report = adv.evaluate(victim, env, threats, episodes, seed)
    rows = []
    for row in report.threats[1:]:
        perturbations = np.rint(np.array(row["attacked_fractions"]) * row["lengths"]).astype(int)
        rows.append(
            {
                "returns": row["returns"],
                "perturbations": perturbations.tolist(),
                "lengths": row["lengths"],
                "changed": row["action_change"],
            }
        )
    return rows


def gaps(victim: adv.Victim) -> np.ndarray[Any, Any]:
    """How far the victim's favourite action is ahead of its least, at the states of five clean episodes."""
    found = []
    with closing(gym.make(ENV)) as env:
        for seed in range(5):
            obs, _ = env.reset(seed=TUNING + seed)
            over = False
            while not over:
                params = victim.params(torch.as_tensor(obs)[None])
                probabilities = torch.softmax(params, -1)[0]
                found.append(float(probabilities.max() - probabilities.min()))
                obs, _, terminated, truncated, _ = env.step(int(victim.act(params)[0]))
                over = terminated or truncated
    return np.array(found)


def tuned(victim: adv.Victim, when: Callable[[float], Any], target: float) -> tuple[float, Any]:
    """The share of the steps at which a timing spends ``target`` perturbations an episode, and the timing.

    Bisected on episodes of its own, between a share that spends hardly any and one of a tenth.
    """
    low, high = math.log(0.001), math.log(0.1)
    for _ in range(8):
        middle = (low + high) / 2
        threat = adv.ThreatModel("action", adv.WorstAction(victim, "policy"), when=when(math.exp(middle)))
        spent = np.mean(played(victim, [threat], 30, TUNING)[0]["perturbations"])
        low, high = (middle, high) if spent < target else (low, middle)
    return math.exp((low + high) / 2), when(math.exp((low + high) / 2))


def baselines(ref: str, target: float, episodes: int) -> dict[str, Any]:
    """An attack at every step, random timing and ``Strategic`` with ``target`` perturbations an episode."""
    victim = adv.load_victim(ref)
    apart = gaps(victim)
    timings: dict[str, Callable[[float], Any]] = {
        "random": lambda share: adv.Bernoulli(share),
        "strategic": lambda share: adv.Strategic(float(np.quantile(apart, 1 - share)), victim),
    }
    found: dict[str, Any] = {"target": target}
    chosen: dict[str, Any] = {"always": None}
    for name, timing in timings.items():
        found[f"{name} share"], chosen[name] = tuned(victim, timing, target)
        found[f"{name} timing"] = str(chosen[name]) if name == "random" else f"strategic({chosen[name].beta:.6g})"
    threats = [adv.ThreatModel("action", adv.WorstAction(victim, "policy"), when=when) for when in chosen.values()]
    return found | dict(zip(chosen, played(victim, threats, episodes, TEST), strict=True))


def acrobot(arguments: argparse.Namespace) -> str:
    """The card of a PPO agent for Acrobot, whose action is one of three; it is trained if it is not there."""
    folder: Path = arguments.work / "acrobot-ppo"
    if not (folder / "card.json").exists():
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize

        env = VecNormalize(make_vec_env("Acrobot-v1", 16, seed=0))  # without it PPO learns nothing here
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=256,
            batch_size=256,
            n_epochs=4,
            gae_lambda=0.94,
            seed=0,
            device="cpu",
            learning_rate=1e-3,
        )
        model.learn(150_000)
        adv.save_card(folder, adv.from_sb3(model), environment=("Acrobot-v1", {}))
    return f"card:{folder}"


def surrogate_of(ref: str, env: str, arguments: argparse.Namespace) -> adv.Victim:
    """A victim imitated from 20,000 queries: what ``imitation.py`` has left in ``--surrogates``, or a new one."""
    name = ref.rsplit("/", 1)[-1].replace(":", "-")
    if arguments.surrogates is not None and (folder := arguments.surrogates / f"{name}-all-0").exists():
        return adv.load_victim(f"card:{folder}")
    return adv.imitate(ref, env, queries=20_000, seed=0, out=arguments.work / f"imitated-{name}").victim


def opinions(ref: str, env: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """What the worst action costs by the policy, by the successor's value, and by an imitated Q, at every step."""
    victim = adv.load_victim(ref)
    surrogate = surrogate_of(ref, env, arguments)
    ways = {
        "policy": adv.WorstAction(victim, "policy", other=True),
        "successor": adv.WorstAction(victim, "successor", other=True),
        "imitated": adv.WorstAction(surrogate, other=True),
        "successor, own allowed": adv.WorstAction(victim, "successor"),
    }
    threats = [adv.ThreatModel("action", how) for how in ways.values()]
    half = [adv.ThreatModel("action", how, when=adv.Bernoulli(0.25)) for how in ways.values()]
    episodes = min(arguments.episodes, 50)
    rows = played(victim, [*threats, *half], episodes, TEST, env)
    return {
        "clean": adv.evaluate(victim, env, episodes=episodes, seed=TEST).threats[0]["returns"],
        "always": dict(zip(ways, rows[: len(ways)], strict=True)),
        "quarter": dict(zip(ways, rows[len(ways) :], strict=True)),
    }


def jobs(arguments: argparse.Namespace, data: dict[str, Any]) -> Iterator[Job]:
    """Every result by its key, the most important first; those that need earlier ones come after them."""
    found = victims_of(arguments)

    def measure(key: str, ref: str, seed: int, **more: Any) -> Job:
        def run() -> dict[str, Any]:
            given = {"episodes": arguments.episodes, "seed": seed, "test_seed": TEST, "steps": STEPS, **more}
            how = adv.resilience if "budget" not in given else adv.robustness
            folder = arguments.work / key.replace("/", "-").replace(" ", "-").replace(":", "-")
            return row_of(how(ref, ENV, out=folder, **given), key in drawn())

        return key, run

    for seed in range(SEEDS):
        for name, ref in found.items():
            yield measure(f"resilience/{name}/{seed}", ref, seed)
        if seed == 0:
            for name, ref in found.items():
                for budget in (5, 10):
                    for form in ("soft", "hard"):
                        key = f"robustness/{name}/{budget}/{form}/0"
                        yield measure(key, ref, 0, budget=budget, hard=form == "hard")
            for name, ref in found.items():
                rows = [row for key, row in data["results"].items() if key.startswith(f"resilience/{name}/")]
                if rows:
                    target = float(np.mean([np.mean(row["perturbations"]) for row in rows]))
                    yield (
                        f"baselines/{name}",
                        lambda ref=ref, target=target: baselines(ref, target, arguments.episodes),  # type: ignore[misc]
                    )
            for name, ref in found.items():
                if name.startswith("zoo"):
                    yield measure(f"dqn/{name}/0", ref, 0, algorithm="dqn", steps=DQN_STEPS)
            for name in ("zoo a2c", "zoo ppo"):
                yield f"opinions/{name}", lambda ref=found[name]: opinions(ref, ENV, arguments)  # type: ignore[misc]
                for by in ("policy", "imitated"):
                    yield (
                        f"opinions resilience/{name}/{by}",
                        lambda ref=found[name], by=by: by_opinion(ref, by, arguments),
                    )  # type: ignore[misc]
            yield "opinions/Acrobot ppo", lambda: opinions(acrobot(arguments), "Acrobot-v1", arguments)
        elif seed < BUDGET_SEEDS:
            for name, ref in found.items():
                for form in ("soft", "hard") if name.startswith("zoo") else ("soft",):
                    key = f"robustness/{name}/5/{form}/{seed}"
                    yield measure(key, ref, seed, budget=5, hard=form == "hard")
    for name, ref in found.items():
        if name.startswith("zoo"):
            yield f"profile/{name}", lambda ref=ref: profiled(ref, arguments)  # type: ignore[misc]


def profiled(ref: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The highest regret of 1 to 10 perturbations, exactly, over the first starts of the test."""
    seeds = draw_seeds(TEST, min(PROFILE_STARTS, arguments.episodes))
    found = profile(adv.load_victim(ref), seeds)
    return {
        "budgets": list(found["budgets"]),
        "regret": found["regret"],
        "finished": found["finished"],
        "seconds": round(found["seconds"], 1),
    }


def by_opinion(ref: str, by: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """A resilience measurement whose worst action is found by the policy, or through an imitated Q."""
    given: dict[str, Any] = {"episodes": arguments.episodes, "test_seed": TEST, "steps": STEPS}
    if by == "policy":
        return row_of(adv.resilience(ref, ENV, by="policy", **given))
    how = adv.WorstAction(surrogate_of(ref, ENV, arguments), other=True)
    return row_of(adv.resilience(ref, ENV, how=how, **given))


def exact(arguments: argparse.Namespace, data: dict[str, Any], keep: Callable[[], None]) -> None:
    """The exact optimum over the very starts of the test, of the CartPole agents in ``--victims`` too."""
    seeds = draw_seeds(TEST, arguments.episodes)
    shared = {f"shared {kind}": f"card:{arguments.victims / f'zoo-cartpole-{kind}'}" for kind in ("dqn", "a2c", "ppo")}
    for name, ref in (victims_of(arguments) | shared).items():
        if f"exact/{name}" not in data["results"]:
            found = optimum(adv.load_victim(ref), seeds)
            data["results"][f"exact/{name}"] = {
                "totals": found["objective"],
                "perturbations": found["perturbations"],
                "finished": all(found["finished"]),
                "seconds": round(found["seconds"], 1),
            }
            keep()


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = options(__doc__, episodes=100)
    parser.add_argument("--targets", type=Path, help="folder of the agents of Tables 2 to 4")
    parser.add_argument("--work", type=Path, help="folder of trainings")
    parser.add_argument("--surrogates", type=Path, help="folder of trainings of imitation.py")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    parser.add_argument("--exact", action="store_true", help="the exact optimum, and nothing else")
    parser.add_argument("--page", action="store_true", help="the page alone, from what was measured")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="gymnasium")
    path = arguments.out / "resilience.json"
    data = {} if arguments.again else load(path)
    data = {
        "command": command(sys.argv[1:]),
        "machine": machine(),
        "episodes": arguments.episodes,
        "results": {},
    } | data

    def keep() -> None:
        save(path, data)
        write(arguments.out / "resilience.md", markdown(data))
        draw(data["results"], arguments.out)

    if arguments.page:
        keep()
        return
    if arguments.work is None and not arguments.exact:
        parser.error("--work FOLDER is needed for what is trained")
    if not arguments.exact:
        for key, run in jobs(arguments, data):
            row = data["results"].get(key)
            missing = row is None or (key in drawn() and "curve" not in row)
            if missing and (arguments.only is None or key.startswith(arguments.only)):
                data["results"][key] = run()
                keep()
                print(key, {k: v for k, v in data["results"][key].items() if isinstance(v, (int, float))}, flush=True)
    if arguments.exact or arguments.only in (None, "exact"):
        exact(arguments, data, keep)
    keep()


if __name__ == "__main__":
    main()
