"""SB3 numbers choices from 0 whatever ``start`` is: so do its agents here, and everything between them and the game."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.evaluation.searches.fewest_perturbations import resilience_profile
from adv_wrappers.wrappers.layer import layers

sb3 = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

STARTS = {"below": spaces.Discrete(3, start=-1), "above": spaces.Discrete(3, start=20)}
TWO = spaces.MultiDiscrete([3, 2], start=[5, 7])
SMALL = {"net_arch": [8]}
OFF = {"buffer_size": 50, "learning_starts": 8}
received: list[object] = []


class Move(gym.Env):
    """Pays 1 for the action that the observation names, counted from 0, as its author had to write it for SB3."""

    def __init__(self, acted=STARTS["below"], observed=None):
        self.action_space, self.observation_space = acted, observed or spaces.Box(-1, 1, (3,))

    def _observe(self):
        self.best = int(self.np_random.integers(3))
        return (
            self.best if isinstance(self.observation_space, spaces.Discrete) else np.eye(3, dtype=np.float32)[self.best]
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        assert np.all(np.asarray(action) >= 0) and np.all(np.asarray(action) < 3)
        received.append(np.array(action).tolist())
        self.t += 1
        reward = float(np.ravel(action)[0] == self.best)
        return self._observe(), reward, self.t >= 5, False, {}


@pytest.fixture(autouse=True)
def forget():
    received.clear()


def own_play(model, make, seeds):
    """Returns as SB3 itself plays."""
    found = []
    for seed in seeds:
        env, done, total, state, first = make(), False, 0.0, None, np.ones(1, bool)
        obs, _ = env.reset(seed=int(seed))
        while not done:
            action, state = model.predict(obs, state=state, episode_start=first, deterministic=True)
            obs, reward, done, _, _ = env.step(action)
            total, first = total + reward, np.zeros(1, bool)
        found.append(total)
    return found


AGENTS = {
    "ppo": (sb3.PPO, "MlpPolicy", {}), "a2c": (sb3.A2C, "MlpPolicy", {}), "dqn": (sb3.DQN, "MlpPolicy", OFF),
    "qrdqn": (contrib.QRDQN, "MlpPolicy", OFF),
    "ars": (contrib.ARS, "LinearPolicy", {}), "recurrent": (contrib.RecurrentPPO, "MlpLstmPolicy", {}),
}  # fmt: skip


def agent(name, env, **more):
    kind, policy, arguments = AGENTS[name]
    kwargs = (
        {} if name == "ars" else {"policy_kwargs": SMALL | ({"lstm_hidden_size": 4} if name == "recurrent" else {})}
    )
    return kind(policy, env, seed=0, device="cpu", **kwargs, **arguments, **more)


@pytest.mark.parametrize(
    ("name", "start"),
    [("ppo", "below"), ("dqn", "above"), ("qrdqn", "below"), ("ars", "below"), ("recurrent", "above")],
)
def test_agents_play_what_predict_says(name, start, tmp_path):
    def make():
        return Move(STARTS[start])

    model = agent(name, make())
    victim = adv.from_sb3(model)
    assert victim.action_space == spaces.Discrete(3)
    model.save(tmp_path / "model.zip")
    loaded = adv.load_victim(f"sb3:{tmp_path / 'model.zip'}")
    assert loaded.action_space == spaces.Discrete(3) and loaded.fingerprint() == victim.fingerprint()
    for player in (victim, loaded):
        report = adv.evaluate(player, make, [], episodes=3)
        table = report.to_dataframe(long=True)
        assert own_play(model, make, table.episode_seed) == table["return"].tolist()
        assert "declares" not in str(report.warnings)
    if name != "recurrent":
        card = adv.save_card(tmp_path / "card", victim, environment="Move-v0")
        obs = np.eye(3, dtype=np.float32)
        np.testing.assert_array_equal(card.act_on(obs), model.predict(obs, deterministic=True)[0])
        report = adv.evaluate(card, make, [], episodes=2)
        assert report.threats[0]["mean_return"] == np.mean(own_play(model, make, table.episode_seed[:2]))
        assert "declares" not in str(report.warnings)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("threat", ["action-flip", "worst-action", "action-noise:norm=valid", "action-delay"])
def test_attacks_on_actions_count_as_the_agent_does(threat, start):
    model = agent("ppo", Move(STARTS[start]))
    victim = adv.from_sb3(model)
    report = adv.evaluate(victim, lambda: Move(STARTS[start]), [threat], episodes=3)
    assert report.threats[1]["attacked_fraction"] == 1
    attacked = received[-15:]
    assert {*received} <= {0, 1, 2}
    assert len(received) == 4 * 5 + 30  # the first episode is played twice beforehand, and by two side by side
    if threat == "action-flip":
        assert attacked == [2 - action for action in received[-30:-15]]
    if threat == "worst-action":
        scores = victim.params(torch.eye(3)).argmin(-1).tolist()
        assert {*attacked} <= {*scores}


def test_several_choices_at_once():
    model = sb3.PPO("MlpPolicy", Move(TWO), policy_kwargs=SMALL, seed=0, device="cpu")
    victim = adv.from_sb3(model)
    assert victim.action_space == spaces.MultiDiscrete([3, 2])
    adv.evaluate(victim, lambda: Move(TWO), ["action-flip"], episodes=1)
    assert received[-5:] == [[2 - a, 1 - b] for a, b in received[-10:-5]]


def test_choices_that_are_observed():
    observed = spaces.Discrete(3, start=5)

    def make():
        return Move(observed=observed)

    model = agent("a2c", make())
    victim = adv.from_sb3(model)
    assert victim.observation_space == spaces.Discrete(3)
    table = adv.evaluate(victim, make, ["noise:norm=valid"], episodes=2).to_dataframe(long=True)
    assert own_play(model, make, table.episode_seed[:2]) == table["return"].tolist()[:2]


def test_layers_know_the_agent_by_their_threat_or_as_victim():
    model = agent("ppo", Move())
    victim = adv.from_sb3(model)
    for env in (
        adv.PerturbAction(Move(), adv.ActionFlip(), victim=victim),
        adv.wrap(Move(), "action-flip", victim=victim),
        adv.PerturbAction(
            gym.wrappers.TransformAction(Move(), lambda action: action, spaces.Discrete(3)), "action-flip"
        ),
        adv.PerturbAction(DummyVecEnv([Move]), "action-flip"),
    ):
        env.reset()
        env.step(np.array([2]) if isinstance(env, sb3.common.vec_env.VecEnv) else 2)
    assert received == [0, 0, 0, 0]
    env = adv.PerturbAction(Move(), "worst-action", victim=victim)
    env.reset(seed=0)
    env.step(0)
    assert received[-1] in (0, 1, 2)


def test_a_layer_that_does_not_know_the_agent_says_so():
    env = adv.PerturbAction(Move(), "action-flip")
    env.reset()
    with pytest.raises(ValueRangeError, match=r"got the action \[2\], expected one of Discrete\(3, start=-1\).*from 0"):
        env.step(2)


def test_actions_that_honour_start_are_flipped_as_before():
    class Honest(Move):
        def step(self, action):
            return super().step(action + 1)

    env = adv.PerturbAction(Honest(), "action-flip")
    env.reset()
    env.step(-1)
    assert received == [2]


def test_trainings_with_attacks_on_actions():
    def make():
        return adv.PerturbAction(DummyVecEnv([Move]), "action-flip:p=0.5")

    agent("ppo", make(), n_steps=16, batch_size=16, n_epochs=1).learn(16)
    assert {*received} <= {0, 1, 2}


@pytest.mark.parametrize("actor", ["pa-ad-action", "induce"])
def test_adversaries_of_such_agents(actor):
    victim = adv.from_sb3(agent("ppo", Move()))
    env = adv.AdversaryEnv(Move(), victim, actor, observe="state+action")
    env.reset(seed=0)
    for action in range(int(env.action_space.n)):
        env.step(action)
    assert received[-3:] == [0, 1, 2]
    assert layers(env)[0].engine.action_space == spaces.Discrete(3)


def test_callbacks_evaluate_such_agents():
    from adv_wrappers.training.sb3.callbacks import RobustnessCallback

    model = agent("a2c", Move(), n_steps=8)
    callback = RobustnessCallback(["worst-action", "action-flip"], every=8, episodes=2, env=Move)
    model.learn(8, callback=callback)
    table = callback.report.to_dataframe(long=True)
    assert own_play(model, Move, table.episode_seed[:2]) == table["return"].tolist()[:2]
    assert {*received} <= {0, 1, 2} and len(table) == 6


@pytest.mark.filterwarnings("ignore:.*draws random numbers in its steps")
def test_what_tries_actions_tries_those_of_the_agent():
    victim = adv.from_sb3(agent("ppo", Move()))
    report = adv.evaluate(victim, Move, ["worst-action:by=successor"], episodes=1)
    assert report.threats[1]["attacked_fraction"] == 1
    profile = resilience_profile(victim, Move, seeds=[0], budgets=[0, 5])
    assert profile.returns[0, 1] <= profile.returns[0, 0]
    more = {"episodes": 2, "checks": 1, "check_episodes": 2, "n_steps": 16, "batch_size": 16, "num_envs": 1}
    adv.resilience(victim, Move, steps=16, **more)
    assert {*received} <= {0, 1, 2}


def test_adversaries_learn_against_such_agents():
    victim = adv.from_sb3(agent("ppo", Move()))
    more = {"episodes": 2, "checks": 1, "n_steps": 16, "batch_size": 16, "num_envs": 1}
    learned = adv.train_adversary("pa-ad-action", Move, victim, steps=16, **more)
    adv.evaluate(victim, Move, [learned], episodes=1)
    assert {*received} <= {0, 1, 2}
