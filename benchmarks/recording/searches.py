"""What searches over whole episodes find."""

from __future__ import annotations

import functools
from typing import Any

import adv_wrappers as adv
from benchmarks.recording.values import Items, Value, exact, inner, summary


def searches() -> Items:
    """Beam search, the fewest perturbations and the worst dynamics: what they found, and what it leaves."""
    found: Items = {}
    for victim, env, how in (
        ("zoo:cartpole-dqn", "CartPole-v1", {"eps": 0.1}),
        ("zoo:cartpole-radial-ppo", "CartPole-v1", {"eps": 0.3}),
        ("zoo:mountaincar-dqn", "MountainCar-v0", {"eps": 0.01}),
        ("zoo:hopper-ppo", "Hopper-v5", {"eps": 0.075, "scale": "victim"}),
    ):
        found[f"beam {victim}"] = functools.partial(beam, victim, env, **how)
    for victim, by in (("zoo:cartpole-dqn", "q"), ("zoo:cartpole-ppo", "policy"), ("zoo:cartpole-a2c", None)):
        found[f"fewest perturbations {victim}"] = functools.partial(fewest, victim, by)
        found[f"resilience profile {victim}"] = functools.partial(profile, victim, by)
    for method in ("cma", "random"):
        for victim, env, at in (
            ("zoo:cartpole-ppo", "CartPole-v1", ("mass", "length")),
            ("zoo:hopper-ppo", "Hopper-v5", ("mass", "friction")),
        ):
            found[f"worst dynamics {victim} {method}"] = functools.partial(dynamics, victim, env, at, method)
    return found


def beam(victim: str, env: str, **how: Any) -> Value:
    """The sequence that was found, as far as its threat tells it, and its return when it is played again."""
    kwargs = {"env_kwargs": {"max_episode_steps": 40}}
    found = inner("beam_search")(victim, env, episodes=2, width=4, steps=4, restarts=1, **how, **kwargs)
    played = adv.evaluate(victim, env, [found.threat], 2, 0, **kwargs).threats[-1]
    data = {key: value for key, value in found.to_dict().items() if key != "returns"}
    returns = [[exact(one) for one in returns] for returns in (found.returns, played["returns"])]
    return {**data, "returns": returns, "played": [played["l2"], played["linf"], played["attacked_fraction"]]}


def fewest(victim: str, by: str | None) -> Value:
    """Timings of the fewest perturbations."""
    found = inner("fewest_perturbations")(victim, "CartPole-v1", [0, 1, 2], 1.0, by, lowest_reward=1.0, max_nodes=3000)
    return [[exact(one) for one in found.returns], found.steps, found.finished, found.nodes, found.regret]


def profile(victim: str, by: str | None) -> Value:
    """Lowest returns by the number of perturbations."""
    how = {"lowest_reward": 1.0, "max_nodes": 3000}
    found = inner("resilience_profile")(victim, "CartPole-v1", [0, 1], [1, 3, 6], 20, by, **how)
    return [found.returns, found.steps, found.finished, found.nodes]


def dynamics(victim: str, env: str, at: tuple[str, ...], method: str) -> Value:
    """The parameters that cost most, and all that were tried."""
    how = {"evaluations": 12, "episodes": 2, "method": method, "env_kwargs": {"max_episode_steps": 60}}
    found = adv.worst_dynamics(victim, env, at, 0.3, **how)
    tried = [[*one.values, one.mean_return] for one in found.tried]
    return [found.values, exact(found.clean_return), found.mean_return, len(tried), *summary([tried])]
