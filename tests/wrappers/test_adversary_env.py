"""The adversary environment: spaces, rewards, what the adversary sees, Gymnasium's checker, specs, and bad input."""

from __future__ import annotations

import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import adv_wrappers as adv
from adv_wrappers.adversaries import Director
from adv_wrappers.errors import BudgetError, OrderError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.threats.presets import threat_layers
from tests.every_case import every_case
from tests.rigs import RIGS, TensorVector

BUDGET = adv.Linf(0.05)
HYBRID = adv.Hybrid(adv.PAAD(), adv.ActionPAAD(), adv.Valid())


def cart():
    return gym.make("CartPole-v1")


def two(mode=AutoresetMode.SAME_STEP):
    return SyncVectorEnv([cart] * 2, autoreset_mode=mode)


@pytest.mark.parametrize(("actor", "within"), [("pa-ad-action", None), (HYBRID, BUDGET)], ids=str)
def test_gymnasiums_checker(actor, within):
    env = adv.AdversaryEnv(cart(), "zoo:cartpole-a2c", actor, within, observe="state+action")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*Box .*space.*")  # CartPole's own bounds
        check_env(env, skip_render_check=True)


@pytest.mark.parametrize(("actor", "within"), [("pa-ad-action", None), (HYBRID, BUDGET)], ids=str)
def test_specs_rebuild_the_same_game(actor, within):
    first = adv.AdversaryEnv(cart(), "zoo:cartpole-a2c", actor, within, "bernoulli(0.5)", observe="state+action")
    again = gym.make(EnvSpec.from_json(json.loads(json.dumps(first.spec.to_json()))))
    copy = pickle.loads(pickle.dumps(first))
    assert len(again.spec.additional_wrappers) == 1
    for env in (again, copy):
        obs, _ = first.reset(seed=3)
        other, _ = env.reset(seed=3)
        rng = np.random.default_rng(0)
        for _ in range(12):
            np.testing.assert_array_equal(obs, other)
            adversary_action = rng.uniform(-1, 1, first.action_space.shape).astype(np.float32)
            adversary_action = (
                int(rng.integers(2)) if isinstance(first.action_space, spaces.Discrete) else adversary_action
            )
            obs, *rest, info = first.step(adversary_action)
            other, *same, received = env.step(adversary_action)
            assert rest == same and info == received
            if rest[1] or rest[2]:
                break


def test_what_the_reward_is_told():
    received = []

    def reward(reward, **more):
        received.append(more)
        return 2.0 * more["spent"]

    env = adv.AdversaryEnv(cart(), "zoo:cartpole-a2c", "sa-rl", BUDGET, adv.Every(2), reward=reward)
    env.reset(seed=0)
    rewards = [env.step(np.zeros(4, np.float32))[1] for _ in range(5)]
    assert rewards == [2.0, 2.0, 4.0, 4.0, 6.0]
    assert [m["attacked"] for m in received] == [True, False, True, False, True]
    assert [m["return_"] for m in received] == [1, 2, 3, 4, 5] and not any(m["terminated"] for m in received)


def test_every_row_has_its_own_account():
    received = []
    env = adv.AdversaryEnv(
        two(), "zoo:cartpole-a2c", "sa-rl", BUDGET, adv.AtMost(3), reward=lambda r, **more: received.append(more) or -r
    )
    env.reset(seed=0)
    over = np.zeros(2, bool)
    while not over.any():
        adversary_action = np.zeros(env.action_space.shape, env.action_space.dtype)
        *_, terminated, truncated, _ = env.step(adversary_action)
        over = terminated | truncated
    assert received[-1]["spent"].tolist() == [3, 3] and received[-1]["attacked"].tolist() == [False, False]
    assert received[0]["attacked"].tolist() == [True, True] and received[-1]["return_"].max() == len(received)


def test_beside_the_state_is_what_the_victim_does():
    agent = adv.load_victim("zoo:cartpole-dqn")
    env = adv.AdversaryEnv(cart(), agent, "sa-rl", BUDGET, observe="state+action")
    assert env.observation_space.shape == (6,) and env.action_space.shape == (4,)
    obs, _ = env.reset(seed=1)
    for _ in range(10):
        with torch.no_grad():
            action = int(agent.mode(agent.params(torch.from_numpy(obs[None, :4])))[0])
        np.testing.assert_array_equal(obs[4:], np.eye(2)[action])
        obs = env.step(np.zeros(4, np.float32))[0]
        assert obs in env.observation_space


def test_last_observations_are_as_wide_as_the_others():
    env = adv.AdversaryEnv(two(), "zoo:cartpole-a2c", "pa-ad-action", observe="state+action")
    obs, _ = env.reset(seed=0)
    info = {}
    while "final_obs" not in info:
        obs, *_, info = env.step(np.zeros(2, np.int64))
    final = next(row for row in info["final_obs"] if row is not None)
    assert obs.shape == (2, 6) and final.shape == (6,) and final[4:].sum() == 1


def test_below_one_grey_level():
    rig = RIGS["image"]
    with pytest.raises(BudgetError, match="quantize"):
        adv.AdversaryEnv(rig.env(), rig.victim(), "pa-ad", adv.Linf(0.3))
    env = adv.AdversaryEnv(rig.env(), rig.victim(), "pa-ad", adv.Linf(0.3), quantize=False)
    obs, _ = env.reset(seed=0)
    shown = []
    act = env.runner.act
    env.runner.act = lambda seen: shown.append(seen) or act(seen)
    env.step(1)
    assert obs.dtype == np.uint8 and shown[0].dtype == np.float32
    gap = np.abs(shown[0][0] - obs.astype(np.float32))
    assert 0 < gap.max() <= 0.3 + 1e-4


def test_actions_are_moved_within_their_budget():
    done = []

    class Watched(gym.ActionWrapper):
        def action(self, action):
            done.append(np.array(action))
            return action

    agent = adv.load_victim("zoo:hopper-ppo")
    env = adv.AdversaryEnv(Watched(gym.make("Hopper-v5")), agent, "pa-ad-action", adv.Linf(0.1))
    obs, _ = env.reset(seed=0)
    for adversary_action in ([1.0, 0.2, -0.4], [0.0, 0.0, 0.0], [0.1, -0.1, 0.05]):
        with torch.no_grad():
            own = agent.mode(agent.params(torch.from_numpy(obs[None]).float()))[0].numpy()
        obs = env.step(np.array(adversary_action, np.float32))[0]
        top = max(map(abs, adversary_action)) or 1.0
        np.testing.assert_allclose(done[-1], np.clip(own + 0.1 * np.array(adversary_action) / top, -1, 1), atol=1e-6)


BAD = [
    (dict(actor="fgsm"), ThreatError, "unknown actor 'fgsm'"),
    (dict(actor=adv.Noise()), ThreatError, "expected an actor"),
    (dict(within=None), BudgetError, "needs a budget"),
    (dict(within=adv.Valid()), BudgetError, "searches its budget"),
    (dict(victim="zoo:hopper-ppo"), VictimError, "observation space"),
    (dict(reward=3), ThreatError, "reward must be a function"),
    (dict(observe="everything"), ThreatError, "observe must be"),
    (dict(when="sometimes"), ThreatError, "cannot read the timing"),
    (dict(actor=adv.Hybrid(adv.SARL(), adv.ActionPAAD(), adv.Valid())), ThreatError, "share one action"),
]


@every_case(("changes", "error", "match"), BAD)
def test_what_cannot_work(changes, error, match):
    from stable_baselines3.common.vec_env import DummyVecEnv

    given = {"victim": "zoo:cartpole-a2c", "actor": "pa-ad", "within": BUDGET} | changes
    for make in (cart, two, lambda: DummyVecEnv([cart])):
        with pytest.raises(error, match=match):
            adv.AdversaryEnv(make(), **given)


def test_what_cannot_work_later():
    env = adv.AdversaryEnv(cart(), "zoo:cartpole-a2c", "sa-rl", BUDGET)
    with pytest.raises(VictimError, match="call reset first"):
        env.step(np.zeros(4))
    env.reset(seed=0)
    for adversary_action, match in ((np.zeros(3), "shape"), (np.full(4, np.nan), "finite")):
        with pytest.raises(ValueRangeError, match=match):
            env.step(adversary_action)
    with pytest.raises(SpaceError, match="expected a gymnasium Env"):
        adv.AdversaryEnv("CartPole-v1", "zoo:cartpole-a2c", "sa-rl", BUDGET)
    rig = RIGS["q"]
    tensors = TensorVector(SyncVectorEnv([rig.env] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    with pytest.raises(SpaceError, match="played on the host"):
        adv.AdversaryEnv(tensors, rig.victim(), "sa-rl", adv.Linf(0.1)).reset(seed=0)


@pytest.mark.parametrize("own", [None, float("nan"), "much"])
def test_rewards_that_are_none(own):
    env = adv.AdversaryEnv(cart(), "zoo:cartpole-a2c", "sa-rl", BUDGET, reward=lambda reward, **more: own)
    env.reset(seed=0)
    with pytest.raises(ValueRangeError, match="reward must be finite"):
        env.step(np.zeros(4))


def test_the_normaliser_goes_outside():
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    with pytest.raises(OrderError, match="VecNormalize goes around AdversaryEnv"):
        adv.AdversaryEnv(VecNormalize(DummyVecEnv([cart])), "zoo:cartpole-a2c", "sa-rl", BUDGET)


def test_the_forms_of_a_hybrid_agree():
    hopper, dqn = adv.load_victim("zoo:hopper-ppo"), adv.load_victim("zoo:cartpole-dqn")
    both = {
        (victim, *given): adv.Hybrid(adv.PAAD(form=given[0]), adv.ActionPAAD(form=given[1]), adv.Valid()).against(
            victim
        )
        for victim, *given in [
            (hopper, None, None),
            (hopper, "target", None),
            (hopper, None, "target"),
            (dqn, None, None),
        ]
    }
    assert [(h.state.form, h.action.form) for h in both.values()] == [
        ("direction", "direction"),
        ("target", "target"),
        ("target", "target"),
        ("target", "target"),
    ]


def test_a_hybrid_is_two_layers():
    agent = adv.load_victim("zoo:cartpole-a2c")
    hybrid = HYBRID.against(agent)
    net = torch.nn.Sequential(torch.nn.Linear(4, 2))
    whole = adv.ThreatModel("observation", adv.Learned(Director(net, True), hybrid), BUDGET)
    with pytest.raises(OrderError, match="two layers"):
        adv.PerturbObservation(cart(), whole)
    action, observation = threat_layers(whole)
    assert (action.on, observation.on) == ("action", "observation")
    with pytest.raises(OrderError, match="shares its actions with a layer around it"):
        alone = adv.PerturbAction(cart(), action)
        alone.reset(seed=0)
        alone.step(0)
    env = adv.wrap(cart(), whole)
    _, first = env.reset(seed=0)
    *_, info = env.step(0)
    assert first["adv_wrappers"] == {
        "0:learned hybrid (action)": {"attacked": False},
        "1:learned hybrid (observation)": {"attacked": True},
    }
    assert info["adv_wrappers"] == {key: {"attacked": True} for key in first["adv_wrappers"]}
