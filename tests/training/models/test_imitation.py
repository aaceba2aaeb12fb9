"""imitate: every query is counted, interrupted runs go on, and black boxes are all it needs; queries, the network."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import adv_wrappers as adv
from adv_wrappers import imitate
from adv_wrappers.attacks.objectives import divergence_of
from adv_wrappers.errors import AdvWrappersError, BudgetError, CardError, ValueRangeError, VictimError
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.models import imitation
from adv_wrappers.training.models.imitation import (
    NEARBY,
    QUERIES,
    SOURCES,
    Labels,
    agreement,
    ask,
    ask_nearby,
    episode_seeds,
    fit_surrogate,
)
from tests.core.helpers import randn
from tests.every_case import every_case
from tests.training.toys import POINT, TWO, Alternating, Plane, Rule

# its environments and agents are functions, which folders cannot tell apart
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot tell a victim that is a function:RuntimeWarning")

TINY = {"queries": 300, "rounds": 2, "hidden": (8,), "epochs": 1, "episodes": 1, "threats": ["fgsm:eps=0.2"]}
BRIEF = {**TINY, "queries": 50, "rounds": 0, "threats": ()}
GRID = torch.cartesian_prod(torch.linspace(-2, 2, 5), torch.linspace(-2, 2, 5))


@pytest.fixture
def rule():
    return Rule()


@pytest.fixture
def victim(rule):
    found = adv.from_module(rule, POINT, TWO, "action")
    rule.asked = 0
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """What an imitation that nothing interrupts comes to, its folder, what was told, what was asked, and the seeds."""
    rule, told, out = Rule(), [], tmp_path_factory.mktemp("imitation") / "whole"
    victim, Plane.seeds = adv.from_module(rule, POINT, TWO, "action"), []
    rule.asked = 0
    found = imitate(victim, Plane, **TINY, out=out, progress=lambda *at: told.append(at))
    return found, out, told, rule.asked, [*Plane.seeds]


def test_every_query_is_counted_and_trainings_and_tests_share_no_episode(finished):
    found, _, told, asked, seeds = finished
    assert found.queries == 300 and found.test_queries > 0
    assert asked == found.queries + found.test_queries
    assert told == [(100, 300), (200, 300), (300, 300)]
    assert [row["queries"] for row in found.rounds] == [100, 200, 300]
    last = found.rounds[-1]
    assert [last[source] for source in SOURCES] == [100, 66, 66, 68]
    assert [row["threat"] for row in found.rounds] == [None, "fgsm:eps=0.2", "fgsm:eps=0.2"]
    tests = [seed for seed in seeds if seed % 2]
    assert len(tests) >= 4 and len(seeds) > 2 * len(tests)
    assert len({*seeds}) == len(seeds)


def test_the_surrogate_agrees_and_serves_any_attack(victim):
    found = imitate(victim, Plane, 600, rounds=2, epochs=10, episodes=3, hidden=[16], threats="fgsm:eps=0.2")
    assert found.agreement == found.rounds[-1]["agreement"] > 0.95 and found.attacked_agreement > 0.7
    assert found.victim.kind == "logits" and found.victim.differentiable
    report = adv.evaluate(victim, Plane, [adv.threat("pgd", found.victim, eps=1.0)], episodes=2)
    assert report.threats[1]["transfer"] and report.threats[1]["action_change"] > 0.1


def test_the_attacked_states_are_those_of_attacks_on_the_surrogate(tmp_path, victim):
    settings = {**TINY, "threats": [adv.ThreatModel("observation", adv.Noise(), adv.Linf(1000.0))]}
    imitate(victim, Plane, **settings, out=tmp_path)
    with safe_open(tmp_path / QUERIES, "np") as file:
        seen, sources = file.get_tensor("observations"), file.get_tensor("sources")
    assert abs(seen[sources == 1]).max() > 100 > abs(seen[(sources == 0) | (sources == 2)]).max()


@pytest.mark.slow
def test_the_default_attacks_are_those_of_the_actions():
    box = spaces.Box(-1, 1, (1,), np.float32)
    victim = adv.from_module(lambda o: torch.tanh(o[:, :1]), POINT, box, "mean")
    found = imitate(victim, lambda: Plane(box), 200, rounds=1, epochs=2, episodes=1, hidden=[8])
    assert found.rounds[1]["threat"] == "max-diff:eps=0.05,scale=victim" and found.victim.kind == "mean"
    assert found.victim.clip
    victim = adv.load_victim("zoo:mountaincar-dqn")
    found = imitate(victim, lambda: Plane(spaces.Discrete(3)), 100, rounds=1, epochs=1, episodes=1)
    assert found.rounds[1]["threat"] == "pgd:eps=0.05,scale=victim"


def test_a_card_is_left_and_the_finished_result_is_read(rule, victim, finished):
    found, out, *_ = finished
    assert found.victim.ref == f"card:{out}"
    loaded = adv.load_victim(f"card:{out}")
    assert torch.equal(loaded.params(GRID), found.victim.params(GRID))
    card = json.loads((out / "card.json").read_text())
    assert card["result"]["queries"] == 300 and card["environment"]["id"] == "Plane"
    again = imitate(victim, Plane, **TINY, out=out)
    assert rule.asked == 0 and again.victim.fingerprint() == loaded.fingerprint()
    assert (again.agreement, again.rounds) == (found.agreement, found.rounds)


def test_an_imitation_that_is_killed_within_a_round_goes_on_to_the_same_result(tmp_path, victim, finished, monkeypatch):
    """Of the labels that are there already, those of the round that was not done are asked for again."""
    function, left = TrainingFolder.keep, [2]

    def killed(folder, *given):
        left[0] -= 1
        function(folder, *given)
        if not left[0]:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrainingFolder, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            imitate(victim, Plane, **TINY, out=tmp_path)
    assert len(load_file(tmp_path / QUERIES)["sources"]) == 200
    found, whole = imitate(victim, Plane, **TINY, out=tmp_path), finished[0]
    assert torch.equal(found.victim.params(GRID), whole.victim.params(GRID)) and found.rounds == whole.rounds


def test_labels_that_cannot_be_read_are_named(tmp_path, victim):
    def stop(spent, _):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imitate(victim, Plane, **TINY, out=tmp_path, progress=stop)
    labels = load_file(tmp_path / QUERIES)
    save_file({name: part[:99] for name, part in labels.items()}, tmp_path / QUERIES)
    with pytest.raises(CardError, match=r"holds 99 labels, and .*state\.json speaks of 100"):
        imitate(victim, Plane, **TINY, out=tmp_path)
    (tmp_path / QUERIES).write_bytes(b"no labels")
    with pytest.raises(CardError, match=r"cannot read .*queries"):
        imitate(victim, Plane, **TINY, out=tmp_path)


def test_a_victim_that_samples_is_asked_for_what_it_plays():
    """Of a coin that shows heads at three of four tosses, the surrogate learns the side."""
    victim = adv.from_module(
        lambda o: torch.tensor([0.0, np.log(3.0)]).expand(len(o), 2) + 0 * o[:, :1],
        POINT,
        TWO,
        "logits",
        select="sample",
    )
    found = imitate(victim, Plane, 400, rounds=0, epochs=5, episodes=5, hidden=[4], threats=())
    assert found.agreement == pytest.approx(0.75, abs=0.2) and found.victim.select == "mode"
    assert found.attacked_agreement is None


def test_a_recurrent_victim_is_not_asked_at_random_points():
    victim = adv.from_module(Alternating(), POINT, TWO, "logits", initial_state=torch.zeros)
    assert imitate(victim, Plane, **TINY).rounds[-1]["nearby"] == 0


def test_a_space_that_starts_elsewhere():
    space = spaces.Discrete(2, start=1)
    victim = adv.from_module(lambda o: (o[:, 1] > 0).astype(int) + 1, POINT, space, "action")
    found = imitate(victim, lambda: Plane(space), **BRIEF)
    assert found.victim.act_on(np.zeros((1, 2), np.float32))[0] in (1, 2)


class Unplayed(Plane):
    """Nobody may play it."""

    def step(self, action):
        raise AssertionError("something was spent")


@every_case(
    ("change", "error", "words"),
    [
        ({"queries": 149}, ValueRangeError, "queries must be at least 50 a round, so 150 with rounds=2, got 149"),
        ({"rounds": -1}, ValueRangeError, "rounds must be an integer from 0"),
        ({"threats": "pgd"}, BudgetError, "pgd needs a budget"),
        ({"threats": ["nothing:eps=1"]}, AdvWrappersError, "unknown preset"),
        ({"threats": ["robust-sarsa:eps=0.1"]}, AdvWrappersError, "robust-sarsa"),
    ],
)
def test_bad_arguments(victim, change, error, words):
    with pytest.raises(error, match=words):
        imitate(victim, Unplayed, **{**TINY, **change})


def test_victims_and_spaces_that_do_not_fit(tmp_path, victim):
    with pytest.raises(VictimError, match="for observation space"):
        imitate(victim, "CartPole-v1", **TINY)
    image = spaces.Box(0, 255, (4, 8, 8), np.uint8)
    pixels = adv.from_module(lambda o: o.flatten(1)[:, :2], image, TWO, "q")
    with pytest.raises(VictimError, match=r"takes observations \[n\], got Box.* no convolutions"):
        imitate(pixels, lambda: Unplayed(None, image), **TINY)
    many = spaces.MultiDiscrete([2, 2])
    with pytest.raises(VictimError, match="takes Discrete actions or a Box of one dimension, got MultiDiscrete"):
        imitate(adv.from_module(torch.nn.Linear(2, 4), POINT, many, "logits"), lambda: Unplayed(many), **TINY)
    late = spaces.Discrete(2, start=1)
    with pytest.raises(VictimError, match="a card holds actions of a Discrete that starts at 0"):
        imitate(
            adv.from_module(torch.nn.Linear(2, 2), POINT, late, "q"), lambda: Unplayed(late), **TINY, out=tmp_path / "a"
        )
    assert not (tmp_path / "a").exists()


def test_the_folder_of_another_imitation_is_refused(victim, finished):
    with pytest.raises(ValueRangeError, match=r"another imitation, with imitation\.seed 0 and not 1"):
        imitate(victim, Plane, **TINY, seed=1, out=finished[1])


# queries


def test_seeds_of_trainings_are_even_and_those_of_tests_odd():
    drawn = [[*itertools.islice(episode_seeds([0, 1], test), 50)] for test in (False, True)]
    assert {seed % 2 for seed in drawn[0]} == {0} and {seed % 2 for seed in drawn[1]} == {1}
    assert drawn[0] == [*itertools.islice(episode_seeds([0, 1], False), 50)] and len({*drawn[0]}) == 50


def test_a_recurrent_victim_keeps_its_state():
    victim = adv.from_module(Alternating(), POINT, TWO, "logits", initial_state=torch.zeros)
    labels = ask(victim, Plane, episode_seeds([0], False), count=14)
    assert labels.actions.tolist() == [1, 0, 1, 0, 1, 0, 1] * 2


@pytest.mark.parametrize("count", [19, 20, 21])
def test_several_rows_ask_no_more_than_they_may(count, monkeypatch):
    rule = Rule()
    victim = adv.from_module(rule, POINT, TWO, "action")
    rule.asked = 0
    monkeypatch.setattr(imitation, "_LENGTH", 5)
    labels = ask(victim, Plane, episode_seeds([0], False), count=count)
    assert len(labels) == rule.asked == count


@pytest.mark.parametrize(("dtype", "high"), [(np.float32, 1.0), (np.uint8, 3)])
def test_random_points_are_near_what_was_seen_and_inside_the_space(dtype, high):
    space = spaces.Box(0, high, (2,), dtype)
    victim = adv.from_module(Rule(), space, TWO, "action")
    seen = np.array([[0, 0], [high, 0]], dtype)
    found = ask_nearby(victim, space, Labels(seen, np.zeros(2), np.array([0, NEARBY])), np.array([2.0, 0.1]), 200, 0)
    assert found.observations.dtype == dtype and (found.sources == NEARBY).all() and len(found) == 200
    low, top = found.observations.min(0), found.observations.max(0)
    assert low.tolist() == [0, 0] and 0.5 * min(high, 2) < top[0] <= min(high, 2) and top[1] <= 0.1
    assert found.actions.tolist() == Rule()(found.observations.astype(float)).tolist()
    again = ask_nearby(victim, space, Labels(seen, np.zeros(2), np.array([0, NEARBY])), np.array([2.0, 0.1]), 200, 0)
    assert np.array_equal(found.observations, again.observations)


# the network


SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float64)
BOX = spaces.Box(-1, 1, (2,), np.float32)
X = randn(600, 3).numpy() * [1.0, 10.0, 0.01] + [0.0, 5.0, 0.0]
RULE = ((X - [0, 5, 0]) @ [1.0, 0.1, 50.0] > 0).astype(np.int64)


def labels(actions, x=X):
    return Labels(x, actions, np.zeros(len(x), np.uint8))


def fitted(actions, space, epochs=10, **more):
    return fit_surrogate(labels(actions), SEEN, space, [16], epochs, 0, **more)


def test_a_rule_is_learned_and_the_same_weights_come_twice():
    before = torch.get_rng_state()
    one, two = fitted(RULE, TWO, 5), fitted(RULE, TWO, 5)
    assert torch.equal(torch.get_rng_state(), before)
    assert one.fingerprint() == two.fingerprint()
    assert agreement(one.act_on(X), RULE, TWO) > 0.97
    other = fit_surrogate(labels(RULE), SEEN, TWO, [16], 1, 1)
    assert other.fingerprint() != one.fingerprint()


def test_the_unit_is_the_victims_or_the_spread_of_what_was_seen():
    np.testing.assert_allclose(fitted(RULE, TWO, 1).scale, X.std(0))
    unit = torch.tensor([1.0, 2.0, 3.0])
    assert torch.equal(fitted(RULE, TWO, 1, scale=unit).scale, unit)


def test_actions_count_from_the_start_of_the_space():
    space = spaces.Discrete(2, start=7)
    assert agreement(fitted(RULE + 7, space).act_on(X), RULE + 7, space) > 0.97


def test_a_single_action_has_no_lead():
    assert fitted(0 * RULE, spaces.Discrete(1), 1).act_on(X).tolist() == [0] * len(X)


@pytest.mark.slow
def test_logits_are_divided_until_a_divergence_has_a_slope(monkeypatch):
    """A fit of actions alone grows ever surer; the division changes no action."""
    net = fitted(RULE, TWO, 30)
    monkeypatch.setattr(imitation, "LEAD", np.inf)
    sure = fitted(RULE, TWO, 30)
    lead = (net.params(X)[:, 0] - net.params(X)[:, 1]).abs()
    assert float(lead.quantile(0.9)) == pytest.approx(3.0, rel=1e-3)
    assert float((sure.params(X)[:, 0] - sure.params(X)[:, 1]).abs().quantile(0.9)) > 10
    assert torch.equal(sure.act_on(torch.tensor(X)), net.act_on(torch.tensor(X)))
    slopes = []
    for victim in (net, sure):
        clean = victim.params(torch.tensor(X)).detach()
        slope = victim.gradient(divergence_of(victim, clean, None, None))(torch.tensor(X + 0.05 * X.std(0)).float())
        slopes.append(float((slope * torch.tensor(X.std(0))).abs().amax(-1).quantile(0.1)))
    assert slopes[0] > 1e-4 and slopes[1] < 1e-6  # MaxDiff's own noise is 1e-5 at first


def test_continuous_actions_in_their_own_units():
    mean = (X - [0, 5, 0]) @ np.array([[3.0, 0.0], [0.1, -200.0], [0.0, 1e4]])
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    net = fitted(mean, space, 20)
    assert net.kind == "mean" and not net.clip
    assert agreement(net.act_on(X), mean, space) > 0.98


@pytest.mark.slow
def test_clipped_actions_cost_nothing_beyond_their_bound():
    actions = np.clip((X - [0, 5, 0]) @ np.array([[3.0, 0.0], [0.0, -0.3], [0.0, 0.0]]), -1, 1).astype(np.float32)
    net = fitted(actions, BOX, 20)
    assert net.clip and agreement(net.act_on(X), actions, BOX) > 0.98
    assert float(net.params(X).abs().max()) > 1.2  # linear, and not bent at the bound
    outside = fitted(3 * actions, BOX, 1)
    assert not outside.clip


def test_labels_that_no_training_survives():
    with pytest.raises(ValueRangeError, match="the training of the surrogate diverged"):
        fit_surrogate(labels(RULE, X * 1e300), SEEN, TWO, [4], 1, 0)


def test_agreement():
    assert agreement(np.array([0, 1, 1, 1]), np.array([0, 1, 0, 1]), TWO) == 0.75
    theirs = np.array([[0.0, 5.0], [2.0, 5.0]])
    assert agreement(theirs, theirs, BOX) == 1.0
    assert agreement(np.array([[1.0, 5.0], [1.0, 5.0]]), theirs, BOX) == pytest.approx(0.5)  # R2 of 0 and 1
    assert agreement(theirs + np.array([0.0, 1.0]), theirs, BOX) == pytest.approx(0.5)  # the constant one is missed
