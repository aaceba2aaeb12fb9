import json
import pickle
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import adv_wrappers as adv
from adv_wrappers.errors import CardError, TrustError
from adv_wrappers.victims.isaac_lab import load_checkpoint

HERE = Path(__file__).parent / "checkpoints"
ANSWERS = json.loads((HERE / "answers.json").read_text())
ACTIVATIONS = {"rsl_rl_2": "elu", "rsl_rl_3": "tanh", "rsl_rl_5": "swish", "rl_games": "elu"}
FILES = [pytest.param(name, "rl_games" if name == "rl_games" else "rsl_rl", id=name) for name in ACTIVATIONS]


def steps_of(victim, observations):
    """The actions of a victim at consecutive observations of the same environments."""
    state = victim.initial_state(len(observations[0]))
    for obs in observations:
        yield victim.act(victim.params(obs, state))
        state = victim.advance(obs, state) if victim.recurrent else state


@pytest.mark.parametrize("name, library", FILES)
def test_a_checkpoint_acts_as_in_its_own_library(name, library):
    victim = adv.load_victim(f"{library}:{HERE / name}.pt?activation={ACTIVATIONS[name]}")
    answers = ANSWERS[name]
    observations = torch.tensor(answers["observations"])

    acted = torch.stack([torch.as_tensor(action) for action in steps_of(victim, observations)])

    torch.testing.assert_close(acted, torch.tensor(answers["actions"]), rtol=0, atol=1e-6)
    stds = victim.params(observations[0], victim.initial_state(4))[:, 2:].exp()
    torch.testing.assert_close(stds, torch.tensor(answers["std"]).expand_as(stds))


class Standing(gym.Env):
    """Always the same observation."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(6, 2, np.float32), {}

    def step(self, action):
        return np.full(6, 2, np.float32), 0.0, False, True, {}


@pytest.mark.parametrize("name, library", FILES)
def test_a_checkpoint_is_attacked_in_its_own_unit_and_saved_as_a_card(name, library, tmp_path):
    victim = load_checkpoint(HERE / f"{name}.pt", library, activation=ACTIVATIONS[name])

    within = adv.Linf(0.1, scale="victim")
    moved, _ = adv.PerturbObservation(Standing(), adv.MaxDiff(victim, steps=3), within=within).reset(seed=0)
    adv.save_card(tmp_path / "card", victim, environment="Standing-v0", licence="MIT")
    again = adv.load_victim(f"card:{tmp_path / 'card'}")

    share = np.abs(moved - 2) / (0.1 * victim.scale.numpy())
    assert 0.1 < share.max() <= 1 + 1e-5
    obs, state = torch.tensor(ANSWERS[name]["observations"][0]), victim.initial_state(4)
    torch.testing.assert_close(again.params(obs, state), victim.params(obs, state))


@pytest.mark.parametrize("place", ["params/agent.yaml", "../params/agent.yaml", "../config.yaml"])
def test_the_activation_is_read_in_the_configuration_near_the_file(place, tmp_path):
    path = tmp_path / "run" / "nn" / "model_1500.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes((HERE / "rsl_rl_2.pt").read_bytes())
    (path.parent / place).parent.mkdir(parents=True, exist_ok=True)
    (path.parent / place).write_text("policy:\n  class_name: ActorCritic\n  activation: elu\nclip_actions: 0.01\n")

    victim = adv.load_victim(f"rsl_rl:{path}")

    assert victim.action_space == spaces.Box(-0.01, 0.01, (2,), np.float32)
    acted = next(steps_of(victim, torch.tensor(ANSWERS["rsl_rl_2"]["observations"])))
    torch.testing.assert_close(acted, torch.tensor(ANSWERS["rsl_rl_2"]["actions"][0]).clamp(-0.01, 0.01))


def test_rl_games_clips_actions_unless_its_configuration_says_that_it_does_not(tmp_path):
    path = tmp_path / "model.pth"
    path.write_bytes((HERE / "rl_games.pt").read_bytes())
    (tmp_path / "config.yaml").write_text("mlp:\n  activation: elu\nconfig:\n  clip_actions: False\n")

    assert adv.load_victim(f"rl_games:{path}").action_space.low[0] == -np.inf
    assert adv.load_victim(f"rl_games:{HERE / 'rl_games.pt'}?activation=elu").action_space.low[0] == -1


def saved(path, **changed):
    """A checkpoint like that of rsl_rl 2, with other weights of the actor."""
    found = torch.load(HERE / "rsl_rl_2.pt", weights_only=True)
    weights = found["model_state_dict"]
    for name, value in changed.items():
        weights.pop(name, None)
        if value is not None:
            weights[name] = value
    torch.save(found, path)
    return path


@pytest.mark.parametrize(
    "change, expected",
    [
        ({"std": None}, "expected a Gaussian with one standard deviation for each action"),
        ({"actor.0.weight": torch.zeros(8, 6, 3, 3)}, "expected fully connected layers, got actor.0.weight of shape"),
        ({"actor.2.bias": None}, "'actor.2.bias' is missing"),
        (
            {f"memory_a.rnn.{name}_l0": torch.zeros(*shape) for name, shape in (
                ("weight_ih", (12, 6)), ("weight_hh", (12, 4)), ("bias_ih", (12,)), ("bias_hh", (12,)),
            )},
            "expected an LSTM with 4 gates, got a recurrent layer with 3",
        ),
    ],
)  # fmt: skip
def test_an_actor_of_another_kind_is_refused(change, expected, tmp_path):
    with pytest.raises(CardError, match=expected):
        load_checkpoint(saved(tmp_path / "model.pt", **change), "rsl_rl", activation="elu")


@pytest.mark.parametrize(
    "ref, expected",
    [
        (f"rsl_rl:{HERE}/rsl_rl_2.pt", "expected one activation, got no configuration near the file"),
        (f"rsl_rl:{HERE}/rsl_rl_2.pt?activation=step", "expected an activation among elu, .*, got 'step'"),
        (f"rl_games:{HERE}/rsl_rl_2.pt?activation=elu", "as a checkpoint of rl_games: 'model' is missing"),
        (f"rsl_rl:{HERE}/none.pt?activation=elu", "No such file"),
    ],
)
def test_what_cannot_be_read_is_named(ref, expected):
    with pytest.raises(CardError, match=expected):
        adv.load_victim(ref)


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Runs:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"model_state_dict": {"actor.0.weight": Runs()}}, tmp_path / "model.pt", pickle_module=pickle)

    with pytest.raises(TrustError, match="reading it would run code"):
        load_checkpoint(tmp_path / "model.pt", "rsl_rl", activation="elu")
    assert not (tmp_path / "ran").exists()
