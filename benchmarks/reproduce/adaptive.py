"""Adaptive defence: choosing among hardened agents online, by the returns that they get.

    python benchmarks/reproduce/adaptive.py

The test-time half of PROTECTED (Liu et al. 2024), on CartPole: before every episode EXP3-IX chooses one of the agents
of seed 0 above by the returns of the episodes before. They were trained one by one for eps 0.05, and not discovered one
after the other as in the paper; attacks are larger than that, so that no agent keeps everything. An attacker sees the
agent that was chosen. 2000 rounds are drawn from episodes that every agent has played under every attack; figures are
means over 10 draws.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from figures import table
from page import AGAIN, Data, Page, Results, episode_options, prose

import adv_wrappers as adv
from adv_wrappers.evaluation.policy_bandit import non_dominated, select_online

ENV, RETURN_RANGE = "CartPole-v1", (0.0, 500.0)
AGENTS = ("ppo", "sa-ppo", "radial-ppo", "wocar-ppo")
ATTACKS = ("none", "noise:eps=0.2", "max-diff:eps=0.15", "pgd:eps=0.15")
ROUNDS, DRAWS, TIMES = 2000, 10, (250, 500, 1000, 2000)
PERIOD = 100  # rounds between two changes of the attacker who changes again and again, as in the paper's code
THEIRS = 5.0  # times sqrt(ln K / (K T)), the learning rate in the paper's code; Neu's is 1.41 times that


def played(agent: str, episodes: int, seed: int) -> Data:
    """Returns of an agent under every attack, ``[episodes]`` each, and what they took of a processor."""
    began = time.process_time()
    ref = f"card:benchmarks/reproduce/defences/cartpole-{agent}-s0"
    run = adv.evaluate(ref, ENV, ATTACKS[1:], episodes, seed, 100, distances=())
    returns = {name: [int(one) for one in row["returns"]] for name, row in zip(ATTACKS, run.threats, strict=True)}
    return {"returns": returns, "seconds": time.process_time() - began}


def attackers() -> dict[str, Any]:
    """By name, which attack an attacker uses in every round, int ``[ROUNDS]``."""
    rounds = np.arange(ROUNDS)
    noise, max_diff, pgd = range(1, len(ATTACKS))
    return {
        **{name: np.full(ROUNDS, i) for i, name in enumerate(ATTACKS)},
        "max-diff, from half-way on pgd": np.where(rounds < ROUNDS // 2, max_diff, pgd),
        "pgd, from half-way on max-diff": np.where(rounds < ROUNDS // 2, pgd, max_diff),
        f"noise and pgd, {PERIOD} rounds each": np.where(rounds // PERIOD % 2, pgd, noise),
    }


def returns_of(agents: Data, names: Sequence[str]) -> Any:
    """Of these agents, float ``[agents, attacks, episodes]``."""
    return np.array([[agents[name]["returns"][attack] for attack in ATTACKS] for name in names], float)


def chosen_by(returns: Any, attack: Any, eta: float | None) -> Data:
    """What becomes of choosing against an attacker, as means over all draws of the rounds and the choices.

    Args:
        returns: float ``[agents, attacks, episodes]``.
        attack: of every round, int ``[rounds]``.
        eta: the learning rate; None is the default.
    """
    found = []
    for seed in range(DRAWS):
        episode = np.random.default_rng([1, seed]).integers(returns.shape[2], size=len(attack))
        found.append(select_online(returns[:, attack, episode], RETURN_RANGE, eta, seed))
    return {
        "return": float(np.mean([one.received for one in found])),
        "alone": np.mean([one.returns.mean(1) for one in found], 0).tolist(),
        "best": float(np.mean([one.returns.mean(1).max() for one in found])),
        "share": np.mean([one.probabilities.mean(0) for one in found], 0).tolist(),
        "regret": [float(np.mean([one.regret[t - 1] for one in found])) for t in TIMES],
    }


def kept_of(agents: Data) -> list[str]:
    """The agents that no mixture of the others dominates, by their mean returns."""
    names = [name for name in AGENTS if name in agents]
    kept = non_dominated(returns_of(agents, names).mean(2))
    return [name for name, keep in zip(names, kept, strict=True) if keep]


def measure(results: Results) -> None:
    """Play, and choose, what is not there yet."""
    given, agents = results.given, results.part("agents")
    for agent in AGENTS:
        results.once(agents, agent, played, agent, episodes=given.episodes, seed=given.seed)
    names = kept_of(agents)
    returns = returns_of(agents, names)
    theirs = THEIRS * float(np.sqrt(np.log(len(names)) / (len(names) * ROUNDS)))
    for attacker, attack in attackers().items():
        results.once(results.part("choosing"), attacker, chosen_by, returns, attack, None)
        results.once(results.part("choosing at their rate"), attacker, chosen_by, returns, attack, theirs)
        results.once(results.part("choosing from all"), attacker, chosen_by, returns_of(agents, AGENTS), attack, None)


def told(value: Any) -> str:
    """A mean, as a cell."""
    return f"{float(value):.0f}"


def body(data: Data) -> list[str]:
    """The page after its head."""
    agents = data["agents"]
    names, kept = [*agents], kept_of(agents)
    means = returns_of(agents, names).mean(2)
    left_out = [f"`{name}`" for name in names if name not in kept]
    verdict = "A mixture of the others dominates none of them (`non_dominated`)."
    if left_out:
        verdict = (
            f"For {' and for '.join(left_out)} there is a mixture of the others that earns at least as much under "
            "every one of these attacks (`non_dominated`): they are left out."
        )
    lines = [[name, *map(told, line), told(line.min())] for name, line in zip(names, means, strict=True)]
    chosen = []
    for attacker, row in data["choosing"].items():
        most = int(np.argmax(row["share"]))
        theirs, from_all = (data[part][attacker] for part in ("choosing at their rate", "choosing from all"))
        chosen.append(
            [
                attacker, *map(told, row["alone"]), told(np.mean(row["alone"])), f"**{told(row['return'])}**",
                told(theirs["return"]), told(from_all["return"]), told(row["best"]),
                f"{kept[most]}, {row['share'][most]:.0%}",
            ]
        )  # fmt: skip
    return [
        *prose(__doc__),
        f"Mean returns over {len(agents[names[0]]['returns'][ATTACKS[0]])} episodes.",
        table(["agent", *ATTACKS, "worst"], lines),
        verdict,
        f"Mean return over {ROUNDS} rounds of every agent alone; of one drawn evenly in each round; and of EXP3-IX, "
        f"with Neu's learning rate, with that of the paper's code, {THEIRS / 2**0.5:.1f} times as large, and with "
        f"Neu's from all {len(names)} agents. `best` is the best single agent in hindsight, `chosen most` by Neu's "
        "rate.",
        table(["attacker", *kept, "evenly", "EXP3-IX", "at their rate", "from all", "best", "chosen most"], chosen),
    ]


PAGE = Page(
    "adaptive",
    "Adaptive defence: choosing among agents online",
    __doc__,
    measure,
    body,
    page="defences",
    options={**episode_options(400), **AGAIN},
    releases=["safetensors"],
)


if __name__ == "__main__":
    PAGE.main()
