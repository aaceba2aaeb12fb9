"""Victims from RLlib: they act as its own connectors and modules do, step by step, and their gradients are whole."""

from __future__ import annotations

import contextlib
import os
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import CardError, TrustError, VictimError
from adv_wrappers.victims.rllib import from_rllib

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
pytestmark = pytest.mark.filterwarnings("ignore")  # RLlib's own, of its other API stack
ppo = pytest.importorskip("ray.rllib.algorithms.ppo", exc_type=ImportError)  # ray[rllib] pins another Gymnasium
from ray.rllib.algorithms.appo import APPOConfig  # noqa: E402
from ray.rllib.algorithms.bc import BCConfig  # noqa: E402
from ray.rllib.algorithms.dqn import DQNConfig  # noqa: E402
from ray.rllib.algorithms.impala import IMPALAConfig  # noqa: E402
from ray.rllib.algorithms.marwil import MARWILConfig  # noqa: E402
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule  # noqa: E402
from ray.rllib.algorithms.sac import SACConfig  # noqa: E402
from ray.rllib.algorithms.tqc import TQCConfig  # noqa: E402
from ray.rllib.connectors.env_to_module import (  # noqa: E402
    AgentToModuleMapping,
    FlattenObservations,
    MeanStdFilter,
    PrevActionsPrevRewards,
)
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule as FrameStacking  # noqa: E402
from ray.rllib.connectors.env_to_module.observation_preprocessor import SingleAgentObservationPreprocessor  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.core.rl_module.apis import ValueFunctionAPI  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.core.rl_module.torch import TorchRLModule  # noqa: E402
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES  # noqa: E402
from ray.rllib.env.single_agent_episode import SingleAgentEpisode  # noqa: E402

from tests.victims.helpers import check_gradient  # noqa: E402

VECTOR = spaces.Box(-5, 5, (4,), np.float32)
IMAGE = spaces.Box(-1, 1, (42, 42, 1), np.float32)
MIXED = spaces.Dict(b=VECTOR, a=spaces.Discrete(3), c=spaces.MultiDiscrete([2, 3]))
TWO, THREE = spaces.Discrete(2), spaces.Discrete(3)
BOX = spaces.Box(np.float32([-2, 0]), np.float32([2, 0.5]))
SMALL = {"fcnet_hiddens": [8, 8]}
LSTM = SMALL | {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 4}
CONV = {"conv_filters": [[4, 4, 2], [8, 4, 2]], "head_fcnet_hiddens": [8]}
DUELING = SMALL | {"head_fcnet_hiddens": [8]}


class Agent:
    """A module between connectors, as an algorithm builds and runs them, without its processes."""

    def __init__(self, config, observed, acted, model, pieces=(), settings=None):
        config = config.environment(**(settings or {}))
        self.observed, self.acted = observed, acted
        both = {INPUT_ENV_SINGLE_SPACES: (observed, acted)}
        config._env_to_module_connector = (lambda env, spaces, device: [make() for make in pieces]) if pieces else None
        self.before = config.build_env_to_module_connector(spaces=both)
        self.behind = config.build_module_to_env_connector(spaces=both)
        spec = config.get_default_rl_module_spec()
        spec.observation_space, spec.action_space = self.before.observation_space, acted
        spec.model_config = config._model_config_auto_includes | DefaultModelConfig(**model).__dict__
        torch.manual_seed(0)
        self.module = spec.build()
        for value in self.module.parameters():  # so that actions saturate, and differ between rows
            value.data.add_((0.7 if value.dim() > 1 else 0.1) * torch.randn_like(value))
        if any(isinstance(piece, MeanStdFilter) for piece in self.before.connectors):
            self.act([batch(self.observed, 50, seed=9)])  # which filters learn from, and then no more
            for piece in self.before.connectors:
                piece._update_stats = False

    def victim(self, **about):
        return from_rllib(self.module, env_to_module=self.before, module_to_env=self.behind, **about)

    def act(self, steps):
        """RLlib's own deterministic actions at observations ``[steps][rows]``, and what they were made of."""
        episodes, out = [], []
        for t, rows in enumerate(steps):
            if not t:
                about = {"observation_space": self.observed, "action_space": self.acted}
                episodes = [SingleAgentEpisode(observations=[obs], **about) for obs in rows]
            how = {"rl_module": self.module, "episodes": episodes, "explore": False, "shared_data": {}}
            with torch.no_grad():
                answer = self.module.forward_inference(self.before(batch={}, **how))
            answer = self.behind(batch=answer, **how)
            made_of = answer.get(Columns.ACTION_DIST_INPUTS)
            actions = np.stack(answer.get(Columns.ACTIONS_FOR_ENV, answer[Columns.ACTIONS]))
            out.append((actions, None if made_of is None else np.stack(made_of)))
            if t + 1 == len(steps):
                break
            for i, episode in enumerate(episodes):
                extra = {
                    key: answer[key][i] for key in answer if key in (Columns.STATE_OUT, Columns.ACTION_DIST_INPUTS)
                }
                episode.observation_space = self.observed
                episode.add_env_step(steps[t + 1][i], answer[Columns.ACTIONS][i], 0.0, extra_model_outputs=extra)
        return out


def batch(space, rows, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(rows)]


def stacked(rows):
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def tensors(tree):
    return {k: tensors(v) for k, v in tree.items()} if isinstance(tree, dict) else torch.as_tensor(tree).float()


CASES = {
    "ppo": lambda: Agent(ppo.PPOConfig(), VECTOR, TWO, SMALL),
    "ppo filter": lambda: Agent(ppo.PPOConfig(), VECTOR, TWO, SMALL, [MeanStdFilter]),
    "ppo tight filter": lambda: Agent(
        ppo.PPOConfig(), VECTOR, BOX, SMALL, [lambda: MeanStdFilter(clip_by_value=0.7, de_mean_to_zero=False)]
    ),
    "ppo box": lambda: Agent(ppo.PPOConfig(), VECTOR, BOX, SMALL),
    "ppo box free std": lambda: Agent(ppo.PPOConfig(), VECTOR, BOX, SMALL | {"free_log_std": True}),
    "ppo box clip": lambda: Agent(
        ppo.PPOConfig(), VECTOR, BOX, SMALL, (), {"normalize_actions": False, "clip_actions": True}
    ),
    "ppo box raw": lambda: Agent(
        ppo.PPOConfig(), VECTOR, BOX, SMALL, (), {"normalize_actions": False, "clip_actions": False}
    ),
    "ppo unbounded": lambda: Agent(ppo.PPOConfig(), VECTOR, spaces.Box(-np.inf, np.inf, (2,)), SMALL),
    "ppo shared": lambda: Agent(ppo.PPOConfig(), VECTOR, TWO, SMALL | {"vf_share_layers": True}),
    "ppo many": lambda: Agent(ppo.PPOConfig(), VECTOR, spaces.MultiDiscrete([2, 3]), SMALL),
    "ppo dict": lambda: Agent(ppo.PPOConfig(), MIXED, TWO, SMALL, [FlattenObservations]),
    "ppo dict filter": lambda: Agent(ppo.PPOConfig(), MIXED, BOX, SMALL, [FlattenObservations, MeanStdFilter]),
    "ppo flat": lambda: Agent(ppo.PPOConfig(), spaces.Box(-1, 1, (2, 3)), TWO, SMALL, [FlattenObservations]),
    "ppo image": lambda: Agent(ppo.PPOConfig(), IMAGE, TWO, CONV),
    "ppo frames": lambda: Agent(
        ppo.PPOConfig(), IMAGE, TWO, CONV, [lambda: FrameStacking(num_frames=3)]
    ),
    "ppo frames filter": lambda: Agent(
        ppo.PPOConfig(), IMAGE, TWO, CONV, [MeanStdFilter, lambda: FrameStacking(num_frames=3)]
    ),
    "ppo lstm": lambda: Agent(ppo.PPOConfig(), VECTOR, TWO, LSTM),
    "ppo lstm box filter": lambda: Agent(ppo.PPOConfig(), VECTOR, BOX, LSTM, [MeanStdFilter]),
    "appo": lambda: Agent(APPOConfig(), VECTOR, BOX, SMALL, [MeanStdFilter]),
    "impala": lambda: Agent(IMPALAConfig(), VECTOR, THREE, SMALL),
    "bc": lambda: Agent(BCConfig(), VECTOR, THREE, SMALL),
    "marwil": lambda: Agent(MARWILConfig(), VECTOR, BOX, SMALL),
    "dqn": lambda: Agent(DQNConfig().training(dueling=False), VECTOR, THREE, SMALL),
    "dqn dueling": lambda: Agent(DQNConfig().training(dueling=True), VECTOR, THREE, DUELING, [MeanStdFilter]),
    "dqn atoms": lambda: Agent(DQNConfig().training(num_atoms=5, v_min=-1, v_max=1), VECTOR, THREE, DUELING),
    "sac": lambda: Agent(SACConfig(), VECTOR, BOX, SMALL | {"head_fcnet_hiddens": [8]}),
    "sac filter": lambda: Agent(SACConfig(), VECTOR, BOX, SMALL | {"head_fcnet_hiddens": [8]}, [MeanStdFilter]),
    "sac discrete": lambda: Agent(SACConfig(), VECTOR, THREE, SMALL | {"head_fcnet_hiddens": [8]}),
    "tqc": lambda: Agent(TQCConfig(), VECTOR, BOX, SMALL | {"head_fcnet_hiddens": [8]}),
}  # fmt: skip
AUTOGRAD = {"ppo image", "dqn dueling", "dqn atoms", "ppo dict", "ppo dict filter"}
RECURRENT = {"ppo frames", "ppo frames filter", "ppo lstm", "ppo lstm box filter"}


@pytest.fixture(params=CASES)
def case(request):
    return request.param, CASES[request.param]()


def test_acts_as_rllib_does(case):
    name, agent = case
    victim = agent.victim()
    assert victim.observation_space == agent.observed and victim.action_space == agent.acted
    steps = [batch(agent.observed, 40, seed=t) for t in range(4)]
    expected = agent.act(steps)
    state = victim.initial_state(40)
    for rows, (actions, inputs) in zip(steps, expected, strict=True):
        found = victim.act_on(stacked(rows), state)
        np.testing.assert_allclose(found, actions, rtol=1e-4, atol=1e-5)
        if inputs is not None and name not in ("sac", "sac filter", "tqc"):  # whose log-stds are clamped
            np.testing.assert_allclose(victim.params(tensors(stacked(rows)), state), inputs, rtol=1e-4, atol=1e-4)
        state = victim.advance(tensors(stacked(rows)), state)
    assert victim.recurrent is (name in RECURRENT)
    assert len(np.unique(np.concatenate([actions for actions, _ in expected]), axis=0)) > 1
    assert (victim.layer_graph() is None) is (name in RECURRENT | AUTOGRAD)


def test_gradient_is_autograd_and_moves_nothing(case):
    _, agent = case
    obs = tensors(stacked(batch(agent.observed, 6)))
    key = "b" if isinstance(obs, dict) else None
    check_gradient(agent.victim(), agent.module, obs, key, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["ppo filter", "ppo lstm box filter", "ppo frames filter", "dqn", "sac filter", "tqc"])
def test_a_change_of_weights_or_statistics_is_not_seen(name):
    agent = CASES[name]()
    victim, obs = agent.victim(), tensors(stacked(batch(agent.observed, 6)))
    state = victim.initial_state(6)
    before, first = victim.params(obs, state), victim.fingerprint()
    with torch.no_grad():
        for value in agent.module.parameters():
            value.add_(0.1)
    for piece in agent.before.connectors:
        if isinstance(piece, MeanStdFilter):
            for running in piece._filters.values():
                running.running_stats.mean_array += 1
    assert torch.equal(victim.params(obs, state), before) and victim.fingerprint() == first
    assert not torch.allclose(agent.victim().params(obs, state), before)


@pytest.mark.parametrize("name", ["ppo", "ppo filter", "ppo shared", "ppo box", "ppo lstm box filter", "ppo frames"])
def test_value(name):
    agent = CASES[name]()
    victim, rows = agent.victim(), batch(agent.observed, 5)
    episodes = [
        SingleAgentEpisode(observations=[obs], observation_space=agent.observed, action_space=agent.acted)
        for obs in rows
    ]
    seen = agent.before(rl_module=agent.module, batch={}, episodes=episodes, explore=False, shared_data={})
    with torch.no_grad():
        expected = agent.module.compute_values(seen).reshape(5)
    obs = tensors(stacked(rows))
    torch.testing.assert_close(victim.value(obs, victim.initial_state(5)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sac", "sac filter", "tqc"])
def test_critic(name):
    agent = CASES[name]()
    victim, rows = agent.victim(), batch(agent.observed, 5)
    box, act = agent.acted, np.stack(batch(agent.acted, 5))
    episodes = [
        SingleAgentEpisode(observations=[obs], observation_space=agent.observed, action_space=box) for obs in rows
    ]
    seen = agent.before(rl_module=agent.module, batch={}, episodes=episodes, explore=False, shared_data={})
    scaled = torch.as_tensor(2 * (act - box.low) / (box.high - box.low) - 1)
    with torch.no_grad():
        expected = agent.module.compute_q_values(seen | {Columns.ACTIONS: scaled})
    x, a = tensors(np.stack(rows)).requires_grad_(), torch.as_tensor(act).requires_grad_()
    found = victim.q(x, a)
    torch.testing.assert_close(found.detach(), expected, rtol=1e-4, atol=1e-4)
    assert all(slope.abs().max() > 0 for slope in torch.autograd.grad(found.sum(), (x, a)))


def test_samples_of_a_squashed_gaussian_are_squashed():
    """RLlib leaves the tanh out of the action that it plays without exploring, and not out of samples."""
    agent = CASES["sac"]()
    victim, obs = agent.victim(select="sample"), torch.zeros(2000, 4)
    found = victim.act(victim.params(obs), torch.arange(2000))
    mean, log_std = victim.params(obs)[:1].chunk(2, -1)
    middle = 0.5 * (torch.as_tensor(BOX.high) - torch.as_tensor(BOX.low))
    torch.manual_seed(0)
    noise = mean + log_std.exp() * torch.randn(2000, 2)
    expected = torch.as_tensor(BOX.low) + (noise.tanh() + 1) * middle
    torch.testing.assert_close(found.mean(0), expected.mean(0), rtol=0.2, atol=0.1)
    assert (found >= torch.as_tensor(BOX.low)).all() and (found <= torch.as_tensor(BOX.high)).all()
    assert "tanh of samples" in victim.squash


def test_the_unit_of_a_filter():
    assert CASES["ppo"]().victim().scale is None and CASES["ppo dict filter"]().victim().scale is None
    agent = CASES["ppo filter"]()
    seen = np.stack(batch(VECTOR, 50, seed=9))
    np.testing.assert_allclose(agent.victim().scale, seen.std(0, ddof=1), rtol=1e-4)


def test_pickles_and_attacks():
    for name in ("ppo filter", "ppo lstm", "ppo frames", "sac filter", "ppo dict filter"):
        victim = CASES[name]().victim()
        again = pickle.loads(pickle.dumps(victim))
        obs, state = tensors(stacked(batch(victim.observation_space, 2))), victim.initial_state(2)
        assert torch.equal(again.params(obs, again.initial_state(2)), victim.params(obs, state))
        assert again.fingerprint() == victim.fingerprint() and again.structure() == victim.structure()
    agent = Agent(ppo.PPOConfig(), spaces.Box(-np.inf, np.inf, (4,)), TWO, LSTM, [MeanStdFilter])
    report = adv.evaluate(agent.victim(), "CartPole-v1", ["max-diff:eps=0.1"], episodes=2)
    assert report.threats[1]["threat"] == "max-diff:eps=0.1"


class Squared(SingleAgentObservationPreprocessor):
    def preprocess(self, observation, episode):
        return observation**2


class Several(DefaultPPOTorchRLModule):
    def get_inference_action_dist_cls(self):
        class Mixture:
            __module__ = "mine"

        return Mixture


class OfOnesOwn(TorchRLModule, ValueFunctionAPI):
    """As RLlib's examples write them: the networks have names of their own."""

    def setup(self):
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        self.logits, self.worth = torch.nn.Linear(8, 2), torch.nn.Linear(8, 1)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.logits(self.body(batch[Columns.OBS]))}

    def compute_values(self, batch, embeddings=None):
        return self.worth(self.body(batch[Columns.OBS])).squeeze(-1)


def test_a_module_of_ones_own():
    torch.manual_seed(0)
    module = OfOnesOwn(observation_space=VECTOR, action_space=TWO, model_config={})
    victim, obs = from_rllib(module), torch.randn(50, 4)
    with torch.no_grad():
        answer = module.forward_inference({Columns.OBS: obs})[Columns.ACTION_DIST_INPUTS]
        torch.testing.assert_close(victim.params(obs), answer)
        torch.testing.assert_close(victim.value(obs), module.compute_values({Columns.OBS: obs}))
    assert victim.layer_graph() is not None and (victim.act_on(obs) == answer.argmax(-1)).all()


def test_what_is_not_expressed_is_refused_by_name():
    for piece, name in ((Squared, "Squared"), (PrevActionsPrevRewards, "PrevActionsPrevRewards")):
        pieces = [piece, *([FlattenObservations] if piece is PrevActionsPrevRewards else [])]
        agent = Agent(ppo.PPOConfig(), VECTOR, TWO, SMALL, pieces)
        with pytest.raises(VictimError, match=rf"connector [\w.]*{name} .*from_module"):
            agent.victim()
    whole = spaces.Box(-50, 50, (4,), np.int8)  # which it would round its answers to
    with pytest.raises(VictimError, match=r"MeanStdFilter is not expressed in a victim on Box\(-50, 50"):
        from_rllib(CASES["ppo"]().module, env_to_module=[MeanStdFilter()], observation_space=whole)
    with pytest.raises(VictimError, match=r"FlattenObservations is not expressed in a victim behind a frame stack"):
        from_rllib(CASES["ppo image"]().module, env_to_module=[FrameStacking(num_frames=2), FlattenObservations()])
    several = AgentToModuleMapping(rl_module_specs=set(), agent_to_module_mapping_fn=str)
    with pytest.raises(VictimError, match=r"AgentToModuleMapping is not expressed in a victim of several agents"):
        from_rllib(CASES["ppo"]().module, env_to_module=[several])
    agent = CASES["ppo"]()
    with pytest.raises(VictimError, match=r"connector [\w.]*Squared is not expressed"):
        from_rllib(agent.module, module_to_env=[Squared(), *agent.behind.connectors])
    agent.module.__class__ = Several
    with pytest.raises(VictimError, match=r"distribution mine\..*Mixture.*TorchCategorical"):
        agent.victim()
    with pytest.raises(VictimError, match="does not answer to observations"):
        from_rllib(CASES["ppo"]().module, observation_space=spaces.Box(-1, 1, (7,)))
    for thing in (torch.nn.Linear(2, 2), 3):
        with pytest.raises(VictimError, match=r"expected an Algorithm or RLModule.*from_module"):
            from_rllib(thing)


def test_a_module_alone():
    """RLlib's defaults stand for the connectors that are not given."""
    agent = CASES["ppo box"]()
    obs = torch.randn(5, 4)
    alone, between = from_rllib(agent.module), agent.victim()
    assert torch.equal(alone.params(obs), between.params(obs))
    torch.testing.assert_close(alone.act(alone.params(obs)), between.act(between.params(obs)))
    raw = from_rllib(agent.module, module_to_env=[])
    torch.testing.assert_close(raw.act(raw.params(obs)), raw.params(obs)[:, :2])


def test_checkpoints_of_modules(tmp_path):
    agent = CASES["dqn"]()
    agent.module.save_to_path(tmp_path / "module")
    with pytest.raises(TrustError, match=r"pickles.*trust=True"):
        from_rllib(tmp_path / "module")
    found, obs = from_rllib(tmp_path / "module", trust=True), torch.randn(5, 4)
    assert torch.equal(found.params(obs), agent.victim().params(obs))
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(CardError, match=r"is no checkpoint of an Algorithm or RLModule"):
            from_rllib(place, trust=True)
    (tmp_path / "module" / "module_state.pkl").write_bytes(b"nothing")
    with pytest.raises(CardError, match="cannot read"):
        from_rllib(tmp_path / "module", trust=True)


@pytest.fixture(scope="module")
def cluster():
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.parametrize(("runners", "learners"), [(0, 0), (1, 0), (0, 1)])
def test_an_algorithm_and_its_checkpoint(cluster, runners, learners, tmp_path):
    """Before and after a training, with environments and learner in this process and in others."""
    config = (
        ppo.PPOConfig()
        .environment("Pendulum-v1")
        .env_runners(num_env_runners=runners, env_to_module_connector=lambda env, spaces, device: MeanStdFilter())
        .learners(num_learners=learners)
        .training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        .rl_module(model_config=SMALL)
    )
    with contextlib.closing(_Stops(config.build_algo())) as stops:
        algorithm = stops.algorithm
        algorithm.train()
        frozen, obs = from_rllib(algorithm), torch.randn(20, 3)
        before = frozen.params(obs)
        assert frozen.scale is not None and frozen.has_value and frozen.squash == "scale"
        algorithm.save_to_path(tmp_path / "all")
        with pytest.raises(TrustError, match="trust=True"):
            from_rllib(tmp_path / "all")
        found = adv.load_victim(f"rllib:{tmp_path / 'all'}", trust=True)
        assert found.ref == f"rllib:{tmp_path / 'all'}"
        assert torch.equal(found.params(obs), before) and found.fingerprint() == frozen.fingerprint()
        assert found.observation_space == frozen.observation_space == gym.make("Pendulum-v1").observation_space
        with pytest.raises(VictimError, match=r"no module 'other'.*default_policy"):
            from_rllib(tmp_path / "all", module_id="other", trust=True)
        with pytest.raises(VictimError, match="no module 'other'"):
            from_rllib(algorithm, module_id="other")
        algorithm.train()
        assert torch.equal(frozen.params(obs), before)
        assert not torch.allclose(from_rllib(algorithm).params(obs), before)


class _Stops:
    def __init__(self, algorithm):
        self.algorithm = algorithm

    def close(self):
        self.algorithm.stop()


@pytest.mark.parametrize("acted", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[4, 1])], ids=str)
def test_choices_are_numbered_as_rllib_sends_them(acted):
    agent, rows = Agent(ppo.PPOConfig(), VECTOR, acted, SMALL), batch(VECTOR, 20)
    np.testing.assert_array_equal(agent.victim().act_on(stacked(rows)), agent.act([rows])[0][0])


def test_filters_of_observations_far_from_zero():
    space = spaces.Box(1e7 - 1, 1e7 + 1, (4,), np.float64)
    agent, rows = Agent(ppo.PPOConfig(), space, BOX, SMALL, [MeanStdFilter]), batch(space, 20)
    expected = agent.act([rows])[0][0]
    assert np.ptp(expected, 0).max() > 0.1
    np.testing.assert_allclose(agent.victim().act_on(stacked(rows)), expected, atol=1e-4)
