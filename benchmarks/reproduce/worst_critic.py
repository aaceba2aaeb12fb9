"""An attack through a defence's own critic: WocaR's estimate of the worst attack in the place of Robust Sarsa's critic.

    python benchmarks/reproduce/worst_critic.py --work FOLDER

While WocaR-PPO trains, a second critic learns the least return under attacks. An attacker who has it need not learn
one: here Robust Sarsa perturbs by that critic, and by one of `train_critic`. The agent is of Hopper (1M steps, seed 0,
twenty episodes), its best checkpoint its last.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from defences import HOPPERS, TASKS
from figures import brief, kept, table
from page import AGAIN, WORK, Data, Page, Results, episode_options, prose
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

import adv_wrappers as adv
from adv_wrappers.training.agent import train_agent
from adv_wrappers.training.defences.wocar import Wocar, WorstAttackCritic

ENV = "Hopper-v5"
TASK = TASKS[ENV]
CRITIC = "worst-attack-critic.pt"
NAMES = {
    "none": "none",
    "noise": "noise",
    "max-diff": "MaxDiff",
    "own": "Robust Sarsa, a critic of its own",
    "worst": "Robust Sarsa, the defence's critic",
    "worst 50": "the same, 50 steps from a random start",
}


class Keeping(Wocar):
    """WocaR that keeps the model and the critic of its training at hand."""

    made: tuple[OnPolicyAlgorithm, WorstAttackCritic]

    def make_critic(self, model: OnPolicyAlgorithm) -> WorstAttackCritic:
        critic = super().make_critic(model)
        object.__setattr__(self, "made", (model, critic))
        return critic


def train(work: Path) -> str:
    """Train the agent and keep its critic where the folder does not have them; the agent's reference."""
    out = work / "wocar"
    if not (work / CRITIC).exists():
        method = Keeping()
        settings: dict[str, Any] = {**HOPPERS["wocar-ppo"], "robust": method}
        hardened = train_agent(ENV, out=out, eps=TASK.eps, scale=TASK.scale, adversary=None, seed=0, **settings)
        if hardened.best != len(hardened.record) - 1:
            raise SystemExit("the best checkpoint is not the last: the critic is not that of the agent")
        model, critic = method.made
        normal = model.get_vec_normalize_env()
        assert normal is not None
        statistics: Any = normal.obs_rms
        mean, std = (torch.as_tensor(part) for part in (statistics.mean, (statistics.var + normal.epsilon) ** 0.5))
        torch.save(
            {"critic": critic.net.state_dict(), "mean": mean, "std": std, "clip": normal.clip_obs}, work / CRITIC
        )
    return f"card:{out}"


def worst_q(work: Path) -> Any:
    """The critic, of observations and actions in the units of the environment."""
    data = torch.load(work / CRITIC, weights_only=True)
    critic = WorstAttackCritic(len(data["mean"]), 3, False, 1e-3)
    critic.net.load_state_dict(data["critic"])
    critic.requires_grad_(False)

    def answer(obs: Tensor, act: Tensor) -> Tensor:
        seen = ((obs - data["mean"]) / data["std"]).clamp(-data["clip"], data["clip"])
        return critic(seen.float(), act.float())

    return answer


def measured(work: Path, episodes: int, seed: int) -> Data:
    """What the attacks leave of the agent."""
    ref = train(work)
    victim = adv.load_victim(ref)
    within, worst = adv.Linf(TASK.eps, scale=TASK.scale), worst_q(work)
    own = adv.train_critic(ref, ENV, seed=0, out=work / "own")
    attacks = {
        "noise": adv.Noise(),
        "max-diff": adv.MaxDiff(victim),
        "own": adv.RobustSarsa(victim, critic=own),
        "worst": adv.RobustSarsa(victim, critic=worst),
        "worst 50": adv.RobustSarsa(victim, critic=worst, steps=50, random_start=True),
    }
    threats = [adv.ThreatModel("observation", how, within) for how in attacks.values()]
    rows = adv.evaluate(victim, ENV, threats, episodes=episodes, seed=seed).threats
    found = {name: kept(row) for name, row in zip(("none", *attacks), rows, strict=True)}
    for name, row in found.items():
        row["threat"] = NAMES[name]  # a result must not name a folder of a machine
    return {"rows": found}


def measure(results: Results) -> None:
    """Measure what is missing."""
    given = results.given
    results.once(results.data, "hopper", measured, given.work, episodes=given.episodes, seed=given.seed)


def body(data: Data) -> list[str]:
    """The page after its head."""
    rows = data["hopper"]["rows"]
    lines = [[NAMES[name], brief(row)] for name, row in rows.items()]
    return [
        *prose(__doc__),
        f"{ENV} at eps {TASK.eps:g} of the agent's own scale:",
        table(["attack", "left"], lines),
    ]


PAGE = Page(
    "worst_critic",
    "An attack through a defence's own critic",
    __doc__,
    measure,
    body,
    page="defences",
    options={**WORK, **episode_options(20), **AGAIN},
    needs=["--work"],
)

if __name__ == "__main__":
    PAGE.main()
