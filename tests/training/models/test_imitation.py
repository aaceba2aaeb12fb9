"""imitate: every query is counted, seeds are separate, interrupted runs go on, and black boxes are all it needs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import adv_wrappers as adv
from adv_wrappers import imitate
from adv_wrappers.errors import AdvWrappersError, BudgetError, CardError, ValueRangeError, VictimError
from adv_wrappers.training.folder import TrainingFolder
from adv_wrappers.training.models.imitation import QUERIES, SOURCES
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
