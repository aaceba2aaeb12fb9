"""train_agent: agents trained against adversaries: ATLA, PA-ATLA, and training under attacks that are computed.

ATLA is of Zhang et al. 2021 ("Robust RL on State Observations with Learned Optimal Adversary"), PA-ATLA of Sun et al.
2022 (section 6); the second paper's baselines train under MinBest and MaxDiff (appendix E.2.6). The papers alternate:
the agent learns while the adversary is held fixed, then the adversary while the agent is. They leave open, and here it
is:

- The agent begins. A phase of the adversary comes after every ``phase`` steps of the agent and lasts until it has
  ``ratio`` times the agent's steps. Both keep their optimisers and their running episodes.
- In the agent's phase the adversary draws its actions as it does in its own phase (``sampled``): both learn in one
  game. It is evaluated, and deployed, by its mode.
- In the adversary's phase the agent acts as it will be used: by its mode, or a sample (``select``).
- The agent's normaliser sees true observations and changes between its rollouts only, so eps in its units
  (``scale="victim"``) means the present units, exactly, in every step of both phases. In the first rollout they are
  those of the environment. The adversary has a normaliser of its own, on the same true observations.
- Steps count the agent's alone. Its learning rate falls linearly to zero, the adversary's is constant.
- The checkpoint that is returned has the highest mean of its clean return and its return under the adversary of its
  day, on seeds that training never sees, among those of the second half: early adversaries are weak. The papers report
  an agent of medium robustness among 21. With a robust loss the second return is the greedy worst case, or that under
  MaxDiff where actions are in a Box: the best clean agents are those of the days when eps was small. Checkpoints of
  which all episodes are lost alike under that are compared by what they keep under MaxDiff in shares of the budget.

PPO's settings: 32 environments, 64 steps each, batches of 128, 10 epochs, rate 3e-4; gamma 0.99, lambda 0.95, two
layers of 64 with tanh, rewards and observations normalised. A2C's: 16 steps each, rate 7e-4. DQN's: double Q-learning,
100 000 transitions that are drawn evenly, an update of 128 of them every 8 steps, a new target network every 400,
exploration that falls to 5% within the first tenth, rate 2e-3, two layers of 64 with ReLU; observations as they are,
since the values of its target network would move with a normaliser. TD3's and DDPG's are those of SB3, with Gaussian
noise of 0.1 on actions in [-1, 1] while they learn, an update of 256 transitions a step, two layers of 256 with ReLU,
and observations as they are, for the same reason.

RecurrentPPO's settings are those of PPO. Actions and state value have an LSTM of 64 each (the size in ATLA's code, and
in the RL Zoo's settings for CartPole without velocities) and a layer of 64 with tanh behind it. A minibatch is made of
sequences, as sb3-contrib cuts them: gradients go back to the beginning of the rollout, the episode or the minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from stable_baselines3.common.utils import set_random_seed

from adv_wrappers.core.budgets import Budget
from adv_wrappers.core.threat import ThreatModel, given_budget
from adv_wrappers.errors import Argument, Message, ValueRangeError
from adv_wrappers.evaluation.environments import AnyEnvironment, Environment, MakeEnv, json_value
from adv_wrappers.evaluation.report import number_text
from adv_wrappers.presets import as_threat
from adv_wrappers.registry import REWARDS, Rewards
from adv_wrappers.training import default_sb3_hyperparameters as defaults
from adv_wrappers.training.alternating_agent_and_adversary import (
    AgentScore,
    AgentTrainer,
    AlternatingTraining,
    Schedule,
)
from adv_wrappers.training.checkpoints import AgentCheckpoints, AgentProgress
from adv_wrappers.training.convert_victims_to_sb3_agents import live_victim, networks_of_agent
from adv_wrappers.training.multiprocess_vector_env import RowsVectorEnv, make_vector
from adv_wrappers.training.one_environment import OneEnvironment, only_one_runs
from adv_wrappers.training.policy_interval_bounds import BoundedPolicy
from adv_wrappers.training.robust_ppo_a2c import make_robust
from adv_wrappers.training.score_checkpoints import SIDE_BY_SIDE, Scoring, ScoringSetup
from adv_wrappers.training.train_agent_setup import (
    ADVERSARY_SEED,
    AdversarySpec,
    algorithm_settings,
    check_spaces,
    make_adversary,
    make_agent,
    parse_robust,
    victim_and_algorithm,
)
from adv_wrappers.training.training_folder import (
    TrainingFolder,
    check_counts,
    check_seed,
    describe_settings,
    functions_of,
    later_seed,
    warn_of_unknown,
)
from adv_wrappers.training.training_method import hardened_before
from adv_wrappers.training.training_settings import Training
from adv_wrappers.utils.files import holding
from adv_wrappers.utils.processes import check_processes, pickled
from adv_wrappers.utils.threads import one_thread
from adv_wrappers.victims import Victim

_GIVEN_UP = 0.2  # of the clean return, from which it is said


@dataclass(frozen=True)
class Hardened:
    """The result of :func:`train_agent`.

    Attributes:
        victim: the agent of the best checkpoint, acting as ``select`` says.
        threat: the threat that it was evaluated under at that checkpoint, its victim left open, so that ``evaluate``
            takes it; None for plain training, and with ``robust`` and discrete actions.
        record: one dictionary a checkpoint: ``steps``, ``adversary_steps``, ``clean``, ``attacked`` (mean returns),
            with ``robust`` and discrete actions ``gwc`` (the greedy worst-case return; ``gwc_acr`` is the share of its
            steps without a choice), their ``_std``, ``score``, where all episodes are lost alike ``max_diff`` (by the
            share of the budget the mean return under MaxDiff) and ``max_diff_score`` (the mean of that and of the clean
            return), ``late`` (of the second half), ``in_training`` and
            ``seconds`` of the processor for either side.
        best: index of the best checkpoint.
    """

    victim: Victim
    threat: ThreatModel | None
    record: tuple[dict[str, Any], ...]
    best: int

    @property
    def protocol(self) -> str:
        """How the agent was chosen, in one sentence to print beside its figures."""
        row, last = self.record[self.best], self.record[-1]["steps"]
        count = sum(point["late"] for point in self.record)
        names = {"clean": "clean", "attacked": "attacked", "gwc": "greedy worst-case"}
        known = [name for key, name in names.items() if row.get(key) is not None]
        rule = "clean return" if known == ["clean"] else f"mean of {' and '.join(known)} return"
        if all("max_diff" in point for point in self.record if point["late"]):
            rule = "mean of clean return and return under MaxDiff in shares of the budget, since all is lost at each"
        return f"the best of {count} checkpoints by the {rule}, at {row['steps']} of {last} steps"

    @property
    def given_up(self) -> str:
        """What of the clean return it had on its way the agent gave up, in a sentence; "" for less than a fifth."""
        row, before = self.record[self.best], max(self.record, key=lambda point: point["clean"])
        if before["clean"] - row["clean"] <= _GIVEN_UP * abs(before["clean"]):
            return ""
        return (
            f"without an attack it earned {number_text(before['clean'])} after {before['steps']} steps, and earns "
            f"{number_text(row['clean'])} now: more steps may win that back, and a smaller eps gives up less"
        )


@holding
def train_agent(
    env: AnyEnvironment,
    adversary: Any = "auto",
    eps: float | None = None,
    steps: int = 1_000_000,
    algorithm: str | None = None,
    num_envs: int = 32,
    seed: int = 0,
    *,
    victim: Any = None,
    robust: Any = None,
    select: Literal["mode", "sample"] = "mode",
    rewards: Rewards = "normalized",
    observations: Literal["normalized", "raw"] = "normalized",
    scale: Any = None,
    within: Budget | None = None,
    when: Any = None,
    phase: int = 8192,
    ratio: float = 1.0,
    sampled: bool = True,
    checks: int = 10,
    episodes: int = 20,
    out: str | Path | None = None,
    tensorboard: str | Path | None = None,
    progress: AgentProgress | None = None,
    env_kwargs: Mapping[str, object] | None = None,
    make: MakeEnv | None = None,
    settings: Mapping[str, object] | None = None,
    adversary_settings: Mapping[str, object] | None = None,
    workers: int = 1,
    env_workers: int = 1,
    on_steps: Callable[[int], object] | None = None,
) -> Hardened:
    """Train an agent, against an adversary or without one.

    Args:
        env: id of the environment, or a function that makes one; ``env_kwargs`` and ``make`` as for
            :func:`adv_wrappers.evaluate`. Observations ``[n]``, or images uint8 ``[C, H, W]`` from 0 to 255 (an Atari
            id is made by :func:`adv_wrappers.atari.atari`); actions ``Box`` or ``Discrete``.
        adversary: ``"pa-ad"`` (PA-ATLA), ``"sa-rl"`` (ATLA) or another actor: an adversary that learns alternately with
            the agent. ``Forces(...)`` learns to push (RARL). A threat, such as ``"max-diff"``, ``"min-best"``,
            ``"noise"`` or ``"dynamics-noise:at=mass,eps=0.3"``, attacks the agent as it is at
            that step. None is plain training, which ignores the budget. ``"auto"`` is ``"pa-ad"``, or None with
            ``robust``.
        eps, scale: arguments of the budget :class:`Linf`; or ``within``, the budget itself; not needed by a threat that
            has its own. ``scale="victim"`` is the agent's own unit, which changes with its normaliser.
        steps: the agent's steps, summed over all environments.
        algorithm: the agent's algorithm, ``"ppo"``, ``"a2c"``, for discrete actions ``"dqn"``, for actions in a Box and
            observations ``[n]`` ``"td3"`` or ``"ddpg"``, or for recurrent agents on observations ``[n]``
            ``"recurrent-ppo"`` (of sb3-contrib); None goes on by that of the ``victim``, ``"dqn"`` for Q-values and
            ``"recurrent-ppo"`` for an LSTM, else by ``"ppo"``. Adversaries learn with PPO. Replay buffers are not kept
            in ``out``: a training that resumes fills them first.
        num_envs: the number of environments of either side, attacked as one batch. With 1, where no second can be made
            beside it, both sides and the episodes of checkpoints share the one: each interrupts the episode of another.
        seed: seeds all randomness of the training.
        victim: the agent to start from: an SB3 model, a :class:`Victim` or its reference, with a policy of linear
            layers (of DQN, with or without layer normalisation behind the hidden ones; of RecurrentPPO behind an LSTM),
            or of convolutions and linear layers where it sees images. Its normaliser stays as it is (or missing). None
            starts from scratch, as TD3 and DDPG always do.
        robust: how the loss is made robust against every perturbation in the budget: ``"radial"``, ``"sa"``, or
            ``"wocar"``, or :class:`Radial`, :class:`SARegularizer` or :class:`Wocar` for other settings; for DQN
            ``"radial"``, ``"sa"`` or ``"car"`` (:class:`RadialDQN`, :class:`SADQN`, :class:`CarDQN`); for TD3 and DDPG
            ``"sa"`` (:class:`SADDPG`). ``"smoothed"``
            (:class:`SmoothedPolicy`, :class:`SmoothedDQN`) trains for randomized smoothing instead: eps is then the
            standard deviation of the noise. The budget is :class:`Linf`, of images in grey levels (a paper's 1/255 is
            1). Recurrent agents have none: no bounds go through an LSTM. None is the algorithm's own loss.
        rewards: what the agent learns from: rewards ``"normalized"`` by the spread of returns, ``"clipped"`` to their
            signs, or ``"raw"``.
        observations: what a policy from scratch sees: observations ``"normalized"`` by their mean and spread, or
            ``"raw"``. Images are only divided by 255, and a new DQN, TD3 or DDPG always sees them raw.
        select: how the agent acts in the adversary's phase, in evaluations, and in its card: ``"mode"`` or
            ``"sample"``.
        when: the timing, as a value or a text; None attacks at every step.
        phase: the agent's steps between two phases of the adversary (rounded up to whole rollouts).
        ratio: the adversary's steps for each of the agent's.
        sampled: whether the adversary explores in the agent's phase.
        checks: the number of checkpoints.
        episodes: the number of episodes, clean and again attacked, that each checkpoint is evaluated on.
        out: a folder for the best agent as a card (``load_victim("card:FOLDER")``), the adversary that it met last
            (``FOLDER/adversary``), the record, and the checkpoints from which the same call resumes an interrupted
            training, with new episodes. Nothing in it is unpickled, so resuming from somebody else's folder runs none
            of their code.
        tensorboard: a folder for SB3's logs.
        progress: called as ``progress(steps done, clean mean return, attacked mean return or None)``.
        on_steps: called as ``on_steps(steps done)`` between rollouts; an exception ends the training there.
        settings, adversary_settings: settings of the two algorithms, instead of the defaults.
        workers: the number of processes; the others than this one play the episodes of checkpoints while this one
            trains on, as for :func:`adv_wrappers.train_adversary`, which changes nothing in the result.
        env_workers: the number of processes that step the environments of either side, this one included, as for
            :func:`adv_wrappers.train_adversary`, which changes nothing in the result.

    Raises:
        AdvWrappersError: one of its kinds, before anything is trained. With several ``workers`` or
            ``env_workers`` :class:`WorkerError` for an environment that cannot be sent to another process, and for a
            process that dies.

    For example::

        hardened = train_agent("Hopper-v5", "pa-ad", 0.075, scale="victim", steps=2_000_000, out="hopper")
        evaluate(hardened.victim, "Hopper-v5", [hardened.threat, "max-diff:eps=0.075,scale=victim"])
    """
    processes = check_processes(workers, env_workers, 2)
    initial, kind = victim_and_algorithm(victim, algorithm)
    check_counts(num_envs=num_envs)
    given = {} if settings is None else settings
    training = Training(
        steps, kind.name, num_envs, checks, episodes, check_seed(seed), given, "cpu", tensorboard, *processes
    )
    own_seed = later_seed(training.seed, ADVERSARY_SEED)
    own_settings = {} if adversary_settings is None else adversary_settings
    opposing = replace(training, algorithm="ppo", seed=own_seed, settings=own_settings)
    if select not in ("mode", "sample"):
        raise ValueRangeError(Message(Argument("select"), f" must be 'mode' or 'sample', got {select!r}"))
    if rewards not in REWARDS:
        known = " or ".join(map(repr, REWARDS))
        raise ValueRangeError(Message(Argument("rewards"), f" must be {known}, got {rewards!r:.80}"))
    if observations not in ("normalized", "raw"):
        expected = f" must be 'normalized' or 'raw', got {observations!r:.80}"
        raise ValueRangeError(Message(Argument("observations"), expected))
    schedule = Schedule(training, phase, ratio)
    if adversary == "auto":
        adversary = "pa-ad" if robust is None else None
    budget = given_budget(eps, scale, within)
    spec = AdversarySpec.parse(adversary, budget, when)
    if training.workers > 1:
        pickled("the threat", spec)
    hardening = parse_robust(robust, budget, kind)
    method = None if hardening is None else hardening.method
    parts = None if initial is None else networks_of_agent(initial)
    environment = Environment.of(env, initial, env_kwargs, make)
    functions = () if spec.threat is None else functions_of(spec.threat)
    warn_of_unknown(out, None, environment, *functions)
    images = check_spaces(environment, initial, kind, method)
    training = replace(training, settings=algorithm_settings(kind, num_envs, given, parts, images, method))
    opposing = replace(opposing, settings=defaults.adversary_settings("ppo", num_envs, True, own_settings))
    about = {
        "environment": json_value(environment.described),
        "algorithm": kind.name,
        "adversary": spec.describe(),
        "steps": steps,
        "phase": phase,
        "ratio": ratio,
        "checks": checks,
        "episodes": episodes,
        "num_envs": num_envs,
        "seed": training.seed,
        "select": select,
        "sampled": sampled,
        "victim": None if initial is None else initial.fingerprint(),
        "structure": None if initial is None else initial.structure(),
        "rewards": rewards,
        "observations": observations,
        "settings": describe_settings(training.settings),
        "adversary_settings": describe_settings(opposing.settings if spec.learns else {}),
    }
    if hardening is not None:
        about["robust"] = hardening.describe()
    folder = TrainingFolder(out, "agent", about)
    opened = ExitStack()  # closes the environments at the end

    def make_rows() -> RowsVectorEnv:
        return opened.enter_context(closing(make_vector(played, num_envs, training.env_workers)))

    with opened, one_thread():
        played, most = environment, SIDE_BY_SIDE
        if num_envs == training.workers == 1 and only_one_runs(environment):
            one = opened.enter_context(closing(OneEnvironment(environment)))
            played, most = Environment(one), 1
        checkpoint, normalize = folder.checkpoint, observations == "normalized"
        scored_under = None if spec.threat is None or spec.threat.on == "reward" else spec.threat
        model = make_agent(make_rows(), training, parts, checkpoint, rewards, method, normalize)
        agent = AgentTrainer(model, live_victim(model, select))
        boxes = None
        if hardening is not None:
            bounds = BoundedPolicy(model, agent.victim, hardening.within, initial)
            make_robust(model, hardening.method, bounds)
            boxes = bounds if hardening.method.bounded else None
            if boxes is not None and scored_under is None and not spec.learns and not bounds.count:
                scored_under = as_threat("max-diff", within=budget)
        opponent = make_adversary(agent, spec, make_rows, sampled, opposing, checkpoint)
        agent.attack(spec.threat, opponent)
        setup = ScoringSetup(played, episodes, training.seed, True, AgentScore(hardening), most)
        scoring = opened.enter_context(Scoring(setup, training.workers))
        before = [] if initial is None else [one.by for one in hardened_before(initial.card)]
        turns = AlternatingTraining(
            agent,
            opponent,
            scored_under,
            scoring,
            schedule,
            AgentCheckpoints(folder, before),
            select,
            progress,
            boxes,
            on_steps,
        )
        if model.num_timesteps:  # other draws and episodes than at the beginning
            later = later_seed(training.seed, model.num_timesteps)
            set_random_seed(later)
            agent.normal.seed(later)
        opened.callback(folder.remove_parts)
        turns.init_callback(model)
        if model.num_timesteps < steps:
            left = steps - model.num_timesteps
            model.learn(left, callback=turns, reset_num_timesteps=False, tb_log_name="agent")
        found, threat = turns.finish()
        for side in [model] if opponent is None else [model, opponent.model]:
            if hasattr(side, "_logger"):  # else it has not learned in this call
                side.logger.close()
        if hardening is not None:
            found = hardening.deployed(found)
        return Hardened(found, threat, tuple(folder.record), folder.best)
