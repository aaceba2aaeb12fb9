"""train_opponent: adversarial policies, which attack a victim by playing against it (Gleave et al. 2020).

The victim is fixed, so the opponent is an agent like any other, in the environment that the victim is a part of
(:class:`adv_wrappers.SingleAgentEnv`), and it is trained by what trains agents, :func:`adv_wrappers.train_agent`. The
paper trains with PPO for 20 million steps in simulated robots that fight each other, with rewards that are sparse: won
or lost. Its opponents see what the environment shows to their side, as ours do, and nothing of the victim's networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from adv_wrappers.environments.environment import Environment
from adv_wrappers.training.agent import Hardened, train_agent
from adv_wrappers.utils.validation import TrainingSteps
from adv_wrappers.victims import Victim, load_victim
from adv_wrappers.wrappers.single_agent_env import RANDOM, SingleAgentEnv


def train_opponent(
    env: str | Callable[..., Any],
    agent: Any,
    others: Mapping[Any, Victim | str],
    steps: TrainingSteps = 1_000_000,
    *,
    zero_sum_with: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    start: Any = None,
    progress: Callable[[int, float], None] | None = None,
    **training: Any,
) -> Hardened:
    """Train a policy for one agent of a PettingZoo environment against fixed policies of all others.

    Args:
        env, agent, others, env_kwargs: as for :class:`adv_wrappers.SingleAgentEnv`. The victim is among the others.
        steps: environment steps, summed over all environments.
        zero_sum_with: the name of the victim's agent, for an opponent that earns what the victim loses; or None, for
            one that earns its own reward. It must be said which: where a task is not a zero-sum game, these are two.
        start: the policy to start from, as ``victim`` of :func:`adv_wrappers.train_agent`: what the victim was trained
            with, for example. None starts from scratch.
        progress: called as ``progress(steps done, mean return of the opponent)``.
        **training: further arguments of :func:`adv_wrappers.train_agent`, such as ``algorithm``, ``num_envs``, ``seed``
            and ``out``. The checkpoint with the highest mean return among those of the second half is returned. What
            identifies a training in a folder includes the weights of all others.

    Returns:
        The training's result, as of an agent: ``victim`` is the opponent's policy, ``record`` the checkpoints.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained; as :func:`adv_wrappers.train_agent` does.

    For example::

        found = train_opponent("mpe2.simple_tag_v3", "adversary_0", {"agent_0": "card:runner"}, steps=200_000,
                               zero_sum_with="agent_0", env_kwargs={"num_adversaries": 1}, out="chaser")
        side = {"env": "mpe2.simple_tag_v3", "agent": "agent_0", "env_kwargs": {"num_adversaries": 1}}
        for opponent in ("random", "card:chaser"):
            print(evaluate("card:runner", SingleAgentEnv, env_kwargs={**side, "others": {"adversary_0": opponent}}))
    """
    if isinstance(others, Mapping):  # loaded once, for all environments, and known by its weights
        others = {name: given if given == RANDOM else load_victim(given) for name, given in others.items()}
    arguments = {"env": env, "agent": agent, "others": others, "zero_sum_with": zero_sum_with}
    if env_kwargs is not None:
        arguments["env_kwargs"] = dict(env_kwargs)
    environment = Environment(SingleAgentEnv, arguments)

    def report(done: int, clean: float, attacked: float | None) -> None:
        if progress is not None:
            progress(done, clean)

    return train_agent(environment, None, steps=steps, victim=start, progress=report, **training)
