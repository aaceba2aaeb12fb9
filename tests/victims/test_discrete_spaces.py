"""Observations that are choices, or Tuples of them, from a victim to a report: FrozenLake, Taxi and Blackjack."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

import adv_wrappers as adv
from adv_wrappers.errors import VictimError
from adv_wrappers.victims.policy_runner import PolicyRunner
from tests.rigs import same_bytes


def table(states=16, actions=4, **more):
    torch.manual_seed(0)
    return adv.from_module(
        nn.Embedding(states, actions), spaces.Discrete(states), spaces.Discrete(actions), "q", **more
    )


class Cards(nn.Module):
    """Sticks on what its table says of sum and ace."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.sums, self.aces, self.given = nn.Embedding(32, 2), nn.Embedding(2, 2), ()

    def forward(self, obs):
        mine, dealer, ace = obs
        self.given = tuple((leaf.dtype, tuple(leaf.shape)) for leaf in obs)
        return self.sums(mine) + 0.1 * self.aces(ace) + 0.01 * dealer[:, None]


def cards():
    env = gym.make("Blackjack-v1")
    return adv.from_module(Cards(), env.observation_space, env.action_space, "logits")


def test_a_table_acts_on_numbers_arrays_and_tensors():
    victim = table()
    expected = victim.net.weight.argmax(1).tolist()
    assert victim.act_on(np.arange(16)).tolist() == expected == victim.act_on(torch.arange(16)).tolist()
    assert PolicyRunner(victim, 16).act(np.arange(16)).tolist() == expected
    assert victim.act_on(np.arange(16, dtype=np.float32)).tolist() == expected
    with pytest.raises(VictimError, match=r"shape \('B',\)"):
        victim.act_on(np.zeros((2, 1), int))


def test_functions_on_arrays_of_choices():
    values = np.arange(12.0).reshape(4, 3)
    victim = adv.from_module(lambda at: values[at], spaces.Discrete(4), spaces.Discrete(3), "q")
    assert not victim.differentiable and victim.act_on(np.arange(4)).tolist() == [2] * 4
    env = adv.PerturbObservation(Walk(), "discrete-search", victim=victim)
    env.reset(seed=0)


class Walk(gym.Env):
    observation_space, action_space = spaces.Discrete(4), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return int(self.np_random.integers(4)), 0.0, False, False, {}


def test_a_tuple_reaches_a_module_as_a_tuple():
    victim = cards()
    obs = (np.array([12, 20]), np.array([3, 4]), np.array([0, 1]))
    actions = victim.act_on(obs)
    assert victim.net.given == ((torch.int64, (2,)),) * 3 and actions.shape == (2,)
    assert PolicyRunner(victim, 2).act(obs).tolist() == actions.tolist()
    with pytest.raises(VictimError, match="tuple of 3 parts, got tuple of 2"):
        victim.act_on(obs[:2])
    with pytest.raises(VictimError, match="this environment has"):
        adv.wrap(gym.make("FrozenLake-v1"), "discrete-search", victim=victim)


@pytest.mark.parametrize("game", ["FrozenLake-v1", pytest.param("Taxi", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_toy_text_from_end_to_end(game):
    env = gym.make(game)
    victim = table(int(env.observation_space.n), int(env.action_space.n))
    texts = ["noise:norm=valid", "discrete-search", "discrete-search:loss=q", "observation-delay:steps=2"]
    for text in texts:
        layer = adv.wrap(gym.make(game), text, victim=victim)
        obs, _ = layer.reset(seed=1)
        assert type(obs) is type(env.reset(seed=1)[0])
    report = adv.evaluate(victim, game, texts, episodes=2, num_envs=2)
    rows = {row["threat"]: row for row in report.threats}
    assert rows["noise:norm=valid"]["linf"] == rows["noise:norm=valid"]["l2"] == 1  # another one, however far away
    assert rows["discrete-search"]["linf"] == 1 and rows["discrete-search"]["action_change"] == 1
    assert rows["noise:norm=valid"]["action_change"] < 1


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("at", [1, (0, 2), (0,)])
def test_blackjack_from_end_to_end(at):
    plain = gym.make("Blackjack-v1")
    layer = adv.PerturbObservation(gym.make("Blackjack-v1"), "discrete-search:eps=2,norm=l0", at=at, victim=cards())
    touched = at if isinstance(at, tuple) else (at,)
    for seed in range(8):
        true, shown = plain.reset(seed=seed)[0], layer.reset(seed=seed)[0]
        assert [type(part) for part in shown] == [type(part) for part in true]
        assert all(shown[i] == true[i] for i in range(3) if i not in touched)
    check_env(layer, skip_render_check=True)
    text = f"noise:norm=valid,at={';'.join(map(str, touched))}" + (";" if at == (0,) else "")
    report = adv.evaluate(cards(), "Blackjack-v1", [text], episodes=8, num_envs=2)
    row = report.threats[1]
    assert row["linf"] == 1 and row["l2"] == pytest.approx(len(touched) ** 0.5)
    assert adv.threat("noise", norm="valid", at=at).to_dict()["at"] == (list(at) if isinstance(at, tuple) else at)


@pytest.mark.parametrize(
    ("game", "mode"),
    [("Blackjack-v1", AutoresetMode.SAME_STEP), ("FrozenLake-v1", AutoresetMode.NEXT_STEP)],
)
def test_vector_environments(game, mode):
    """Rows equal those of the single environments, last observations keep their types, and texts pass through."""
    at, victim = (0, cards()) if game == "Blackjack-v1" else (None, table())
    single = [adv.PerturbObservation(gym.make(game), "discrete-search", at=at, victim=victim) for _ in range(3)]
    venv = SyncVectorEnv([lambda: gym.make(game)] * 3, autoreset_mode=mode)
    venv = adv.PerturbObservation(venv, "discrete-search", at=at, victim=victim)
    obs, _ = venv.reset(seed=[3, 4, 5])
    for i, env in enumerate(single):
        same_bytes(_row(obs, i), _row(env.reset(seed=3 + i)[0]), f"row {i}")
    for _ in range(3):
        obs, _, terminated, truncated, info = venv.step(np.zeros(3, int))
        alone = [env.step(0)[0] for env in single]
        for i in np.flatnonzero(~(terminated | truncated)):
            same_bytes(_row(obs, i), _row(alone[i]), f"row {i}")
        for i in np.flatnonzero(info.get("_final_obs", [])):
            final = info["final_obs"][i]
            assert type(final) is type(alone[i])
            same_bytes(_row(final), _row(alone[i]), f"last observation of row {i}")
        if (terminated | truncated).any():
            return


def _row(obs, i=None):
    parts = obs if isinstance(obs, tuple) else (obs,)
    return tuple(np.asarray(part if i is None else part[i], np.int64) for part in parts)


def test_an_image_in_a_tuple_beside_a_text():
    space = spaces.Tuple(
        [spaces.Text(5), spaces.Dict({"image": spaces.Box(0, 255, (4, 4), np.uint8), "n": spaces.Discrete(3)})]
    )

    class Mixed(gym.Env):
        observation_space, action_space = space, spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.step(0)[0], {}

        def step(self, action):
            image = self.np_random.integers(0, 256, (4, 4), dtype=np.uint8)
            return ("go", {"image": image, "n": int(self.np_random.integers(3))}), 0.0, False, False, {}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.head, self.embed = nn.Linear(16, 2), nn.Embedding(3, 2)

        def forward(self, obs):
            texts, inner = obs
            lengths = torch.tensor([[len(text)] for text in texts])
            return self.head(inner["image"].flatten(1) / 255) + self.embed(inner["n"]) + lengths

    victim = adv.from_module(Net(), space, spaces.Discrete(2), "logits")
    for make in (Mixed, lambda: SyncVectorEnv([Mixed] * 2)):
        plain, env = make(), adv.wrap(make(), "pgd:eps=8,at=1/image", "discrete-search:at=1/n", victim=victim)
        true, shown = plain.reset(seed=0)[0], env.reset(seed=0)[0]
        gap = np.abs(true[1]["image"].astype(int) - shown[1]["image"])
        assert 0 < gap.max() <= 8 and shown[1]["image"].dtype == np.uint8 and true[0] == shown[0]
        assert type(shown[1]["n"]) is type(true[1]["n"]) and not np.array_equal(shown[1]["n"], true[1]["n"])
    floats = adv.PerturbObservation(Mixed(), "noise:eps=0.5", at="1/image", quantize=False)
    assert floats.reset(seed=0)[0][1]["image"].dtype == np.float32
    assert floats.observation_space.contains(floats.reset(seed=0)[0])


@pytest.mark.parametrize("at", [0, (0, 1)])
def test_actions_in_a_tuple(at):
    class Buttons(Walk):
        action_space = spaces.Tuple([spaces.Discrete(5), spaces.Discrete(4), spaces.Box(-1, 1, (2,), np.float32)])

        def step(self, action):
            self.received = action
            return super().step(action)

    env = adv.PerturbAction(Buttons(), "action-flip", at=at)
    env.reset(seed=0)
    push = np.array([0.5, -0.5], np.float32)
    env.step((1, 1, push))
    assert env.unwrapped.received[:2] == ((3, 1) if at == 0 else (3, 2)) and env.unwrapped.received[2] is push
