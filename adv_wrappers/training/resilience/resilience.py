"""resilience and robustness: how few perturbations break a policy, at which steps, and how much a few of them cost it.

After Behzadan and Hsu 2019. An adversary plays the victim's game and decides at every step whether to perturb; its
reward is Algorithm 1 (resilience) or 2 (robustness), its action set equation 2 (nothing, or the action that the victim
values least) or, with ``induce="any"``, equation 1. Then the deterministic adversary is tested on episodes of its own.

Choices where the paper leaves one open, or where this differs:

- Reward: the paper pays R_max - R_T at the end of an episode. That sum telescopes into -r_t a step and a constant, so
  for gamma = 1 both rewards have the same optimum; the dense one is learned from far sooner and is the default,
  ``terminal=True`` takes the paper's. gamma is 1 here, since what is measured are sums over an episode.
- Algorithm: PPO learns the same timings as the paper's DQN in a fraction of the steps (``docs/results/resilience.md``);
  ``algorithm="dqn"`` takes the paper's, with the settings of its Table 5.
- Checkpoints: the adversary that is tested is not the last one but the best of ``checks`` checkpoints, compared by the
  return that they leave plus what they cost, over episodes that are neither those of the training nor of the test.
- A perturbation induces another action than the one that is played, as equation 1 has it. The paper's argmin of Q may
  name the very action: A2C's and PPO's state values contradict their policies at one step in twenty, and the adversary
  would pay for nothing.
- The victim's Q (equation 3): a victim with a state value alone gets ``by="successor"``, Q = r + gamma V(s'), from the
  environment's snapshots. The paper approximates Q by imitation where a victim has neither: :func:`imitate`.
- A budget makes the game depend on what was spent: the adversary of ``robustness`` observes it, which the paper's does
  not. With a hard budget it may exceed it in training, at a high cost (ten budgets, or a tenth of r_max if that is
  more), and is tested without: one that spent its budget too early would otherwise play out whole episodes in which it
  has nothing to learn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from adv_wrappers.core.budgets.budget import Budget
from adv_wrappers.environments.environment import AnyEnvironment, MakeEnv
from adv_wrappers.registry import Observe
from adv_wrappers.training.resilience.measurement import (
    Measurement,
    MeasurementProgress,
    PerturbationLike,
)
from adv_wrappers.training.resilience.result import Resilience
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.validation import (
    AttackCount,
    Cost,
    EnvCount,
    EpisodeCount,
    Return,
    Seed,
    TrainingSeed,
    TrainingSteps,
    checked,
    checked_arguments,
)
from adv_wrappers.victims import Victim


@checked
@holding
def resilience(
    victim: Victim | str,
    env: AnyEnvironment,
    cost: Cost = 1.0,
    r_max: Return | None = None,
    steps: TrainingSteps = 60_000,
    episodes: EpisodeCount = 100,
    seed: TrainingSeed = 0,
    algorithm: str = "ppo",
    *,
    how: PerturbationLike = None,
    induce: Literal["worst", "any"] = "worst",
    by: Literal["q", "successor", "policy"] | None = None,
    within: Budget | None = None,
    terminal: bool = False,
    transfer: Iterable[Victim | str] = (),
    test_seed: Seed | None = None,
    checks: TrainingSteps = 10,
    check_episodes: EpisodeCount = 30,
    num_envs: EnvCount | None = None,
    observe: Observe | None = None,
    device: str | torch.device | None = None,
    tensorboard: str | Path | None = None,
    out: str | Path | None = None,
    progress: MeasurementProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    **settings: Any,
) -> Resilience:
    """Measure the test-time resilience of a victim: how few perturbations a learned adversary needs to break it.

    The adversary decides at every step whether to perturb, and is trained on Algorithm 1 of Behzadan and Hsu 2019.
    Then it is tested, deterministic, on ``episodes`` other episodes.

    Args:
        victim: the victim, or its reference.
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`.
        cost: of a perturbation, in units of a reward (c_adv; the paper's is 1).
        r_max: return that regret is counted from; None takes the highest clean return of the test.
        steps: environment steps of the adversary's training, summed over all environments.
        episodes: episodes of the test.
        seed: seeds all randomness of the training, and the test's episodes.
        algorithm: ``"ppo"``, ``"a2c"``, or ``"dqn"``, the paper's.
        how: what a perturbation does, such as ``"max-diff:eps=0.1"``; None takes the action that the victim values
            least. It is a perturbation of observations or actions, a threat, or the text of one. None is
            :class:`adv_wrappers.WorstAction` (equation 2).
        induce: ``"worst"``, or ``"any"``: the adversary names the action (equation 1).
        by: how the worst action is found; None takes ``"q"`` where the victim has Q-values, else ``"successor"``. They
            are those of :class:`adv_wrappers.WorstAction`; the latter needs a state value, and an environment that
            repeats from snapshots.
        within: budget of ``how``, where it needs one.
        terminal: the paper's reward, at the end of an episode, instead of one at every step. It is r_max minus the
            return, instead of minus the victim's reward.
        transfer: further victims or references that the adversary is tested on, untrained.
        test_seed: seeds the test's episodes instead of ``seed``. They are those of ``evaluate(..., seed=test_seed)``.
        checks: checkpoints of the training that are compared.
        check_episodes: episodes that each checkpoint is judged by.
        num_envs: environments attacked as one batch; None takes 32, or 8 for images.
        observe: what the adversary observes; None takes ``"state+action"``, for images ``"state"``. As for
            :class:`adv_wrappers.AdversaryEnv`; the first is the paper's augmented state.
        out: a folder for results and figures; the same call goes on where it stopped. It gets the result
            (``resilience.json``) and the adversary (``adversary``). A call returns what is finished; with more
            ``steps`` it goes on.
        progress: called as ``progress(what, done, of how many)``.
        device, tensorboard: as for :func:`adv_wrappers.train_adversary`.
        **settings: settings of the algorithm, instead of the defaults.

    Returns:
        The result; what it measured agrees with :func:`adv_wrappers.evaluate` on its adversary.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained: :class:`VictimError` for a victim with neither
            Q-values nor a state value, and for ``induce="any"`` on continuous actions; :class:`SnapshotError` for an
            environment that does not repeat; :class:`ValueRangeError` for a negative cost, and for an ``r_max`` below
            the clean return.
    """
    return Measurement({**locals()}).run()


@checked
@holding
def robustness(
    victim: Victim | str,
    env: AnyEnvironment,
    budget: AttackCount,
    hard: bool = False,
    cost: Cost = 1.0,
    r_max: Return | None = None,
    steps: TrainingSteps = 60_000,
    episodes: EpisodeCount = 100,
    seed: TrainingSeed = 0,
    algorithm: str = "ppo",
    *,
    out: str | Path | None = None,
    progress: MeasurementProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    **options: Any,
) -> Resilience:
    """Measure the test-time robustness of a victim: how much regret a budget of perturbations causes.

    Args:
        victim, env, cost, r_max, steps, episodes, seed, algorithm: as for :func:`resilience`.
        budget: perturbations of an episode.
        hard: no more than ``budget``, instead of a higher cost of each beyond it. No more are possible in the test then
            (:class:`adv_wrappers.AtMost`); else, as in Algorithm 2, each beyond it costs ``budget`` times as much.
        out: as for :func:`resilience`; the result is ``robustness.json``.
        progress, env_kwargs, make: as for :func:`resilience`.
        **options: further arguments of :func:`resilience`. ``observe=None`` takes ``"state+action+spent"``: which steps
            are worth a perturbation depends on how many are left.

    Raises:
        AdvWrappersError: as :func:`resilience`.
    """
    given = {**locals()}
    for name in ("budget", "hard", "options"):
        del given[name]
    return Measurement(checked_arguments(resilience, **given, **options), budget, hard).run()
