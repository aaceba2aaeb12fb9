"""Learned: the budget of a hybrid's parts, what tells two adversaries apart, and directors of one's own."""

from __future__ import annotations

import json

import gymnasium as gym
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.adversaries import Director
from adv_wrappers.adversaries.actor import fit_unit_box
from adv_wrappers.adversaries.timed import Timed
from adv_wrappers.errors import CardError, SpaceError, ThreatError, ValueRangeError
from tests.core.helpers import context, randn
from tests.every_case import every_case

A2C = adv.load_victim("zoo:cartpole-a2c")
DQN = adv.load_victim("zoo:cartpole-dqn")
X = randn(5, 4, seed=3).float()


def test_the_action_part_of_a_hybrid_has_its_own_budget(tmp_path):
    hopper = adv.load_victim("zoo:hopper-ppo")
    hybrid = adv.Hybrid(adv.PAAD(), adv.ActionPAAD(), reach=adv.Linf(0.1)).against(hopper)
    director = Director(torch.nn.Sequential(torch.nn.Linear(11, 3)), discrete=False)
    adv.Learned(director, hybrid).save(tmp_path, within=adv.Linf(0.5, scale="victim"))
    parts = {part: adv.Learned(card=str(tmp_path), part=part).within for part in ("action", "observation")}
    assert parts == {"action": adv.Linf(0.1), "observation": adv.Linf(0.5, scale="victim")}
    env = adv.PerturbAction(gym.make("Hopper-v5"), f"learned:card={tmp_path},part=action")
    assert env.threat.budget == adv.Linf(0.1)


def test_a_report_names_the_folder(tmp_path):
    director = Director(torch.nn.Sequential(torch.nn.Linear(4, 1)), discrete=False)
    both = [adv.Learned(director, adv.PAAD(A2C)).save(tmp_path / name, adv.Linf(0.05)) for name in ("a", "b")]
    report = adv.evaluate(A2C, "CartPole-v1", both, episodes=1, env_kwargs={"max_episode_steps": 10})
    names = [row["threat"] for row in report.threats[1:]]
    assert all(str(tmp_path / folder) in name for folder, name in zip("ab", names, strict=True)), names


@every_case(
    ("victim", "action", "match"),
    [
        (A2C, torch.zeros(5, 7), r"actions of shape \(5, 1\), got \(5, 7\)"),
        (A2C, torch.full((5, 1), torch.nan), "finite actions"),
        (DQN, torch.zeros(5), "integers below 2"),
        (DQN, torch.full((5,), 9), "integers below 2"),
        (DQN, torch.zeros(3, dtype=torch.int64), r"shape \(5,\), got \(3,\)"),
    ],
)
def test_directors_of_ones_own_are_checked(victim, action, match):
    learned = adv.Learned(lambda x: action, adv.PAAD(victim))
    with pytest.raises(ValueRangeError, match=match):
        learned(X, context(X, adv.Linf(0.1)))


HOPPER = adv.load_victim("zoo:hopper-ppo")
SEEN, FAR = randn(5, 11, seed=4).float(), torch.tensor([3.0, 0.6, -1.5])
VALUES = [adv.SARL(), adv.PAAD(HOPPER, form="target")]
DIRECTIONS = [adv.PAAD(HOPPER, form="direction"), adv.PAAD(HOPPER, form="direction", variant="literal")]


def constant(action):
    return lambda x: action.expand(len(x), -1)


def moved(learned, on="observation"):
    x = SEEN if on == "observation" else randn(5, 3, seed=5).float()
    return learned(x, context(x, adv.Linf(0.1), observation=SEEN))


@pytest.mark.parametrize("actor", VALUES, ids=["sa-rl", "target"])
def test_values_beyond_their_box_are_clipped_and_told_of_once(actor):
    size = actor.action_space((11,)).shape[0]
    far, near = (adv.Learned(constant(torch.full((size,), s)), actor) for s in (7.0, 1.0))
    with pytest.warns(RuntimeWarning, match=rf"beyond \[-1, 1\], up to 7; {actor.name} takes values") as received:
        first, second = moved(far), moved(far)
    assert len(received) == 1 and torch.equal(first, second) and torch.equal(first, moved(near))


@pytest.mark.parametrize("actor", DIRECTIONS, ids=["linear-first", "literal"])
def test_a_direction_beyond_its_box_keeps_where_it_points(actor):
    far, near, cut = (adv.Learned(constant(s), actor) for s in (FAR, FAR / 3, FAR.clamp(-1, 1)))
    assert torch.equal(moved(far), moved(near)) and not torch.equal(moved(far), moved(cut))
    asked = actor._direction(FAR[None])
    assert torch.allclose(torch.cosine_similarity(asked, FAR[None]), torch.ones(1))
    saved = Director(torch.nn.Sequential(torch.nn.Linear(11, 3)), discrete=False)
    saved.net[0].weight.data.zero_()
    saved.net[0].bias.data.copy_(FAR)
    assert torch.equal(moved(adv.Learned(saved, actor)), moved(near))
    saved.clip = True
    assert torch.equal(moved(adv.Learned(saved, actor)), moved(cut))


def test_a_direction_of_actions_keeps_where_it_points():
    whole = adv.Hybrid(adv.PAAD(), adv.ActionPAAD(), reach=adv.Linf(0.1)).against(HOPPER)
    for actor, part in ((adv.ActionPAAD(HOPPER), None), (whole, "action"), (whole, "observation")):
        on = "observation" if part == "observation" else "action"
        far, near = (moved(adv.Learned(constant(s), actor, part=part), on) for s in (FAR, FAR / 3))
        assert torch.equal(far, near)


@pytest.mark.parametrize("actor", [adv.PAAD(form="direction"), adv.SARL()], ids=["direction", "values"])
def test_an_action_beyond_the_box(actor):
    def shown(action):
        env = adv.AdversaryEnv(gym.make("Hopper-v5"), HOPPER, actor, adv.Linf(0.1))
        env.reset(seed=0)
        return env.step(action)[0]

    far = torch.zeros(actor.against(HOPPER).action_space((11,)).shape).numpy()
    far[:3] = FAR
    drawn_back = far / 3 if actor.against(HOPPER).direction else far.clip(-1, 1)
    assert (shown(far) == shown(drawn_back)).all() and (shown(far) != shown(-drawn_back)).any()


def test_within_the_box_nothing_changes():
    action = torch.rand(7, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    assert torch.equal(fit_unit_box(action, True), action) and torch.equal(fit_unit_box(action, False), action)
    out = fit_unit_box(5 * action, True)
    assert out.abs().amax() <= 1 and torch.allclose(torch.cosine_similarity(out, action), torch.ones(7))
    assert fit_unit_box(torch.zeros(4, 0), True).shape == (4, 0)


def test_a_card_says_whether_its_director_clips(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(11, 3))
    net[0].bias.data.copy_(FAR)
    for clip in (False, True):
        adv.Learned(Director(net, discrete=False, clip=clip), DIRECTIONS[0]).save(tmp_path)
        assert adv.Learned(card=str(tmp_path)).director.clip is clip
    card = json.loads((tmp_path / "card.json").read_text())
    del card["clip"]
    (tmp_path / "card.json").write_text(json.dumps(card))
    assert adv.Learned(card=str(tmp_path)).director.clip  # cards that do not say were trained so


class Counting(torch.nn.Module):
    """Steers by how often it was asked in this episode; the state is one tensor."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def initial_state(self, rows):
        return torch.zeros(rows, 1)

    def forward(self, x, state):
        self.seen.append(state.clone())
        return (0.1 * state).clamp(max=1.0), state + 1


def test_a_state_begins_anew_with_every_episode():
    director = Counting()
    env = adv.PerturbObservation(gym.make("CartPole-v1"), adv.Learned(director, adv.PAAD(A2C), within=adv.Linf(0.05)))
    for seed in range(2):
        env.reset(seed=seed)
        for _ in range(4):
            env.step(0)
    assert [int(state) for state in director.seen] == [0, 1, 2, 3, 4] * 2


def test_a_state_stays_where_it_is_while_a_row_is_not_attacked():
    director = Counting()
    learned = adv.Learned(director, adv.PAAD(A2C), within=adv.Linf(0.05), when=adv.Every(2))
    env = adv.PerturbObservation(gym.make("CartPole-v1"), learned)
    env.reset(seed=0)
    for _ in range(5):
        env.step(0)
    assert [int(state) for state in director.seen] == [0, 1, 2]


def test_a_recurrent_director_takes_one_step_of_its_lstm_at_a_time(tmp_path):
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(11, 6), torch.nn.Tanh(), torch.nn.LSTM(6, 4, 2), torch.nn.Linear(4, 3))
    director = Director(body, discrete=False)
    xs = randn(9, 5, 11, seed=6).float()
    expected = body[3](body[2](body[1](body[0](xs)))[0])
    adv.Learned(director, DIRECTIONS[0]).save(tmp_path)
    for one in (director, adv.Learned(card=str(tmp_path)).director):
        assert one.recurrent and one.fingerprint_of_weights() == director.fingerprint_of_weights()
        state = one.initial_state(5)
        assert [leaf.shape for leaf in state] == [(5, 2, 4)] * 2
        for x, wanted in zip(xs, expected, strict=True):
            action, state = one(x, state)
            torch.testing.assert_close(action, wanted)
        torch.testing.assert_close(one(xs[0])[0], expected[0])  # without a state an episode begins


def test_a_recurrent_director_is_deployed_as_it_was_trained(tmp_path):
    """In the environment it is asked by a loop of one's own, as a perturbation by the library: the same game."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.LSTM(11, 8), torch.nn.Linear(8, 3))
    net[0].weight_hh_l0.data *= 4
    director, budget = Director(net, discrete=False), adv.Linf(0.05)
    game = adv.AdversaryEnv(gym.make("Hopper-v5", max_episode_steps=40), HOPPER, DIRECTIONS[0], budget)
    x, _ = game.reset(seed=3)
    state, earned, over = director.initial_state(1), 0.0, False
    while not over:
        action, state = director(torch.as_tensor(x)[None], state)
        x, reward, terminated, truncated, _ = game.step(action[0].numpy())
        earned, over = earned - reward, terminated or truncated
    learned = adv.Learned(director, DIRECTIONS[0]).save(tmp_path, budget)
    env = adv.PerturbObservation(gym.make("Hopper-v5", max_episode_steps=40), learned)
    x, _ = env.reset(seed=3)
    deployed, over = 0.0, False
    while not over:
        seen = torch.as_tensor(x, dtype=torch.float32)[None]
        x, reward, terminated, truncated, _ = env.step(HOPPER.act(HOPPER.params(seen))[0].numpy())
        deployed, over = deployed + reward, terminated or truncated
    assert deployed == earned


class Odd(Counting):
    def __init__(self, start=None, answer=None):
        super().__init__()
        self.start, self.answer = start, answer

    def initial_state(self, rows):
        return torch.zeros(rows, 1) if self.start is None else self.start

    def forward(self, x, state):
        return self.answer


@every_case(
    ("director", "match"),
    [
        (Odd(start=torch.zeros(3, 1)), r"initial_state\(5\) must be a tensor \[5, ...\]"),
        (Odd(start={"h": torch.zeros(5)}), "or a tuple of them"),
        (Odd(start=()), "or a tuple of them"),
        (Odd(answer=torch.zeros(5, 1)), "must return .action, state."),
        (Odd(answer=(torch.zeros(5, 1), torch.zeros(5, 2))), "the state as it came"),
        (Odd(answer=(torch.zeros(5, 1), (torch.zeros(5, 1),))), "the state as it came"),
        (Odd(answer=(3, torch.zeros(5, 1))), "a tensor of one action a row"),
    ],
)
def test_recurrent_directors_of_ones_own_are_checked(director, match):
    with pytest.raises(ThreatError, match=match):
        adv.Learned(director, adv.PAAD(A2C))(X, context(X, adv.Linf(0.1)))


def test_what_no_card_holds(tmp_path):
    with pytest.raises(CardError, match=r"only a Director, which may have an nn.LSTM among its layers, can be"):
        adv.Learned(Counting(), adv.PAAD(A2C)).save(tmp_path)
    for lstm in (torch.nn.LSTM(4, 2, bidirectional=True), torch.nn.LSTM(4, 2, proj_size=1)):
        with pytest.raises(CardError, match="goes one way"):
            Director(torch.nn.Sequential(lstm), discrete=False)
    with pytest.raises(SpaceError, match="this director sees 5 numbers"):
        wrong = Director(torch.nn.Sequential(torch.nn.LSTM(5, 1)), discrete=False)
        adv.PerturbObservation(gym.make("CartPole-v1"), adv.Learned(wrong, adv.PAAD(A2C), within=adv.Linf(0.1)))
    with pytest.raises(SpaceError, match="this director gives 2 numbers"):
        wrong = Director(torch.nn.Sequential(torch.nn.LSTM(4, 2)), discrete=False)
        adv.PerturbObservation(gym.make("CartPole-v1"), adv.Learned(wrong, adv.PAAD(A2C), within=adv.Linf(0.1)))


def test_a_card_of_a_timed_attack_has_one_victim(tmp_path):
    """Named twice, it would be loaded twice: two networks, and an actor that cannot be aimed at another victim."""
    victim = adv.load_victim("zoo:cartpole-dqn")
    director = Director(torch.nn.Sequential(torch.nn.Linear(4, 2)), discrete=True)
    saved = adv.Learned(director, Timed(adv.WorstAction(victim), victim)).save(tmp_path)
    actor = adv.Learned(card=saved.card).actor
    assert actor.how.victim is actor.victim and actor.victim.ref == "zoo:cartpole-dqn"
    assert actor.open().how.victim is None
    surrogate = adv.load_victim("zoo:cartpole-ppo")
    saved = adv.Learned(director, Timed(adv.WorstAction(surrogate), victim)).save(tmp_path / "b")
    actor = adv.Learned(card=saved.card).actor.open()
    assert actor.victim is None and actor.how.victim.ref == "zoo:cartpole-ppo"
