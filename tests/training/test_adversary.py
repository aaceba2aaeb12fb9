"""Training an adversary: a few steps of it, its folder, going on after a kill, and the arguments that cannot work."""

from __future__ import annotations

import inspect
import json
import math
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.adversaries.learned import Learned
from adv_wrappers.errors import BudgetError, CardError, SpaceError, ThreatError, ValueRangeError, VictimError
from adv_wrappers.evaluation.episodes import SEED_OFFSET
from tests.evaluation.agents import short
from tests.every_case import every_case
from tests.rigs import RIGS, ReplayEnv

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from adv_wrappers.training.adversary import ALGORITHMS, strongest_form, train_adversary
from adv_wrappers.training.sb3.prioritized_dqn import PrioritizedDQN
from adv_wrappers.wrappers.adversary_rewards import PerturbationCost

SHORT = "tests/Short-v0"  # CartPole of 30 steps
QUICK = {"num_envs": 4, "checks": 2, "episodes": 2, "n_steps": 16, "batch_size": 64, "n_epochs": 1}
GIVEN = (SHORT, "zoo:cartpole-a2c", 0.05, 64)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished training of SA-RL, not to be written to."""
    folder = tmp_path_factory.mktemp("adversaries") / "sa-rl"
    train_adversary("sa-rl", *GIVEN, out=folder, **QUICK)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(finished, tmp_path / "sa-rl")


def test_what_is_trained_is_a_threat(tmp_path):
    received = []
    learned = train_adversary(
        "pa-ad",
        SHORT,
        "zoo:cartpole-a2c",
        0.05,
        128,
        out=tmp_path,
        progress=lambda *at: received.append(at),
        **QUICK,
    )
    assert isinstance(learned, Learned) and learned.within == adv.Linf(0.05)
    assert [steps for steps, _ in received] == [64, 128] and all(0 < left <= 30 for _, left in received)
    state = json.loads((tmp_path / "state.json").read_text())
    assert [point["mean_return"] for point in state["record"]] == [left for _, left in received]
    # what tells one training from another: a call with another value of what is missing goes on with this one
    assert {*inspect.signature(train_adversary).parameters} - {*state["about"]} == {
        "kind", "form", "eps", "scale",  # in the actor and the budget
        "env", "env_kwargs", "make",  # in the environment
        "reward",  # where one is given
        "steps", "checks", "device", "tensorboard", "workers", "env_workers", "out", "progress", "on_episode",
    }  # fmt: skip
    kept = json.loads((tmp_path / "card.json").read_text())["training"]["checkpoints"]
    assert kept[-1]["mean_return"] == min(left for _, left in received)
    threat = adv.ThreatModel("observation", learned, adv.Linf(0.05))
    again = adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())), adv.load_victim)
    x = torch.randn(5, 4)
    assert torch.equal(again.how.director(x), learned.director(x)) and again.how.sha256 == learned.sha256
    report = adv.evaluate("zoo:cartpole-a2c", SHORT, [again], episodes=2)
    assert report.threats[1]["linf"] <= 0.05 + 1e-6 and report.threats[1]["attacked_fraction"] == 1


def test_episodes_that_chose_the_checkpoint_are_not_for_scoring(finished):
    learned = f"learned:card={finished}"
    chosen, apart = (adv.evaluate("zoo:cartpole-a2c", SHORT, [learned], 4, seed) for seed in (SEED_OFFSET, 0))
    assert [warning for warning in chosen.warnings if "was chosen on 2 of the 4 episodes" in warning]
    assert not [warning for warning in apart.warnings if "was chosen on" in warning]


def test_a_finished_training_goes_on_for_more_steps(folder):
    arguments = ("sa-rl", *GIVEN[:3])
    before = json.loads((folder / "state.json").read_text())["record"]
    received = []
    train_adversary(*arguments, 192, out=folder, progress=lambda steps, left: received.append(steps), **QUICK)
    record = json.loads((folder / "state.json").read_text())["record"]
    assert record[: len(before)] == before and received[0] > 64 and record[-1]["steps"] == 192
    with pytest.warns(RuntimeWarning, match="holds a training of 192 steps, more than the 64 asked for"):
        train_adversary(*arguments, 64, out=folder, **QUICK)
    train_adversary(*arguments, 150, out=folder, **QUICK)  # 150 steps end with the rollout that 192 do: no warning


def records(folder):
    return {
        form: [row["mean_return"] for row in json.loads((folder / form / "state.json").read_text())["record"]]
        for form in ("direction", "target")
    }


@pytest.mark.slow
def test_both_forms_are_trained_and_the_stronger_is_kept(tmp_path):
    given, received = ("pa-ad", short, "zoo:cartpole-a2c", 0.2, 64), []
    how = {"form": "both", "out": tmp_path, **QUICK}
    learned = train_adversary(*given, progress=lambda *at: received.append(at), **how)
    left = records(tmp_path)
    assert [steps for steps, _ in received] == [64, 128]
    assert [mean for _, mean in received] == [*left["direction"], *left["target"]]
    best = min(left, key=lambda form: min(left[form]))
    kept = Learned(card=str(tmp_path / best))
    assert learned.card == str(tmp_path) and learned.sha256 == kept.sha256 and learned.actor.form == best
    assert json.loads((tmp_path / "card.json").read_text())["forms"] == {form: min(left[form]) for form in left}
    alone = train_adversary(*given, form=best, **QUICK)  # each is what a training of its own is
    assert alone._weights != learned._weights
    assert alone.director.fingerprint_of_weights() == kept.sha256
    with pytest.raises(ValueRangeError, match="belongs to something else"):
        train_adversary(*given, form=best, out=tmp_path, **QUICK)
    again = train_adversary(*given[:4], 128, progress=lambda *at: received.append(at), **how)
    assert [steps for steps, _ in received[2:]] == [128, 256] and again.card == learned.card
    assert all(now[: len(left[form])] == left[form] for form, now in records(tmp_path).items())


def test_both_forms_without_a_folder():
    received = []
    learned = train_adversary(
        "pa-ad",
        short,
        "zoo:cartpole-a2c",
        0.2,
        32,
        form="both",
        progress=lambda *at: received.append(at),
        workers=2,
        **{**QUICK, "n_steps": 8, "batch_size": 32},
    )
    means = [mean for _, mean in received]
    assert len(means) == 2 and learned.actor.form == ("direction", "target")[means.index(min(means))]


@pytest.mark.slow
def test_forms_are_compared_by_the_score_that_checkpoints_are(tmp_path):
    scores = {"direction": 5.0, "target": 3.0}
    made, saved = {}, {}
    for form, returned in (("direction", 1.0), ("target", 2.0)):  # the form with the higher return attacks less
        learned = train_adversary("pa-ad", SHORT, "zoo:cartpole-a2c", 0.05, 64, form=form, **{**QUICK, "checks": 1})
        record = {"checkpoints": [{"steps": 64, "mean_return": returned, "score": scores[form]}]}
        learned.director.record = record
        made[form], saved[form] = learned, learned.save(tmp_path / form, adv.Linf(0.05), record)
    assert strongest_form(made, None).actor.form == strongest_form(saved, tmp_path).actor.form == "target"
    assert json.loads((tmp_path / "card.json").read_text())["forms"] == scores


@every_case(
    ("kind", "form", "error", "match"),
    [
        ("sa-rl", "both", ThreatError, "sa-rl has none"),
        (adv.PAAD(form="target"), "both", ThreatError, "given beside an actor with form='target'"),
        ("pa-ad-action", "both", ValueRangeError, "discrete actions have no direction"),
    ],
)
def test_forms_that_there_are_not(kind, form, error, match, tmp_path):
    with pytest.raises(error, match=match):
        train_adversary(kind, SHORT, "zoo:cartpole-dqn", 0.05, 64, form=form, out=tmp_path, **QUICK)
    assert not [*tmp_path.iterdir()]


def test_both_forms_leave_the_folder_of_something_else_alone(folder):
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueRangeError, match="something else than a training of both forms"):
        train_adversary("pa-ad", *GIVEN, form="both", out=folder, **QUICK)
    (folder / "card.json").write_text("{")
    with pytest.raises(CardError, match="cannot read"):
        train_adversary("pa-ad", *GIVEN, form="both", out=folder, **QUICK)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_changed_folder_is_refused(finished, tmp_path):
    other = train_adversary("sa-rl", *GIVEN, seed=1, **QUICK).save(tmp_path / "other")
    assert Learned(card=str(finished)).sha256 != other.sha256
    with pytest.raises(CardError, match="changed: expected"):
        Learned(card=str(finished), sha256=other.sha256)
    with pytest.raises(CardError, match=r"cannot read .*card\.json"):
        Learned(card=str(tmp_path))
    with pytest.raises(CardError, match="expected the card of a director, got that of a victim"):
        Learned(card=str(Path(adv.__file__).parent / "zoo" / "cartpole-a2c"))


@every_case(
    ("arguments", "error", "match"),
    [
        ({"kind": "pa-bd"}, ThreatError, "unknown actor 'pa-bd'; known: .*pa-ad, pa-ad-action, sa-rl, .*timed"),
        ({"eps": None}, ThreatError, "needs a budget"),
        ({"steps": 0}, ValueRangeError, "steps must be an integer from 1 to 1000000000000"),
        ({"learning_rat": 0.1}, ThreatError, "learning_rat"),
        ({"eps": [0.1] * 4}, BudgetError, "eps must be"),
        ({"algorithm": "acktr"}, ThreatError, "algorithm must be one of 'ppo', 'a2c', 'dqn', got 'acktr'"),
        ({"algorithm": "dqn"}, SpaceError, "dqn chooses among discrete actions, and pa-ad takes Box"),
        ({"victim": "zoo:hopper-ppo"}, VictimError, "for observation space"),
    ],
)
def test_what_cannot_work(arguments, error, match):
    given = {
        "kind": "pa-ad",
        "env": SHORT,
        "victim": "zoo:cartpole-a2c",
        "eps": 0.05,
        "steps": 100,
        **arguments,
    }
    with pytest.raises(error, match=match):
        train_adversary(**given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "within", "observe"),
    [
        ("pa-ad-action", None, "state+action"),
        (adv.Hybrid(adv.PAAD(form="target"), adv.ActionPAAD(), adv.Valid()), adv.Linf(0.05), "state"),
    ],
    ids=["action", "hybrid"],
)
def test_actions_too(kind, within, observe, tmp_path):
    learned = train_adversary(
        kind,
        SHORT,
        "zoo:cartpole-dqn",
        within=within,
        steps=128,
        out=tmp_path,
        observe=observe,
        **{**QUICK, "n_epochs": 4},
    )
    report = adv.evaluate("zoo:cartpole-dqn", SHORT, [learned, f"learned:card={tmp_path}"], episodes=3)
    clean, trained, loaded = report.threats
    assert trained["returns"] == loaded["returns"] != clean["returns"] and learned.observe == observe


def test_a2c_trains_too():
    learned = train_adversary("sa-rl", SHORT, "zoo:cartpole-a2c", 0.05, 20, "a2c", 4, checks=1, episodes=1)
    assert learned.director.net[-1].out_features == 4


def test_a_victim_without_a_reference_is_left_open(tmp_path):
    rig = RIGS["gaussian"]
    victim = rig.victim()
    learned = train_adversary(
        "pa-ad", rig.env, victim, 0.2, 32, out=tmp_path, num_envs=2, n_steps=16, checks=1, episodes=2
    )
    assert learned.victim is victim and Learned(card=str(tmp_path)).victim is None
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["victim"] == {"ref": None, "sha256": victim.fingerprint()} and "victim" not in card["actor"]
    report = adv.evaluate(victim, rig.env, [learned], episodes=2)
    assert report.threats[1]["attacked_fraction"] == 1 and not report.threats[1]["transfer"]


def test_budget_and_timing_come_along(tmp_path):
    given, few = ("pa-ad", SHORT, "zoo:cartpole-a2c", 0.05, 64), {**QUICK, "checks": 1, "episodes": 1}
    learned = train_adversary(*given, when="every(3)", out=tmp_path, **few)
    env = adv.PerturbObservation(gym.make(SHORT), learned)
    assert env.threat.within == adv.Linf(0.05) and env.threat.when == adv.Every(3)
    found = adv.threat("learned", card=str(tmp_path))
    again = adv.ThreatModel.from_dict(json.loads(json.dumps(found.to_dict())), adv.load_victim)
    assert found.when == again.when == adv.Every(3) and again.to_dict() == found.to_dict()
    assert adv.threat("learned", card=str(tmp_path), when="always").when == adv.Always()
    report = adv.evaluate("zoo:cartpole-a2c", SHORT, [learned, f"learned:card={tmp_path}"], episodes=3)
    assert all(0.3 < row["attacked_fraction"] < 0.4 for row in report.threats[1:])
    with pytest.raises(ThreatError, match="a folder keeps timings"):
        train_adversary(*given, when=lambda x, context: True, out=tmp_path / "other", **few)


def test_an_adversary_of_another_game_or_agent(tmp_path):
    rig = RIGS["q"]
    train_adversary("sa-rl", rig.env, rig.victim(), 0.2, 32, out=tmp_path, num_envs=2, n_steps=16, checks=1, episodes=2)
    with pytest.raises(SpaceError, match="this director sees 4 numbers, the observations are"):
        adv.evaluate("zoo:mountaincar-dqn", "MountainCar-v0", [f"learned:card={tmp_path}"], episodes=1)
    text = f"learned:card='{tmp_path}'"
    assert not adv.evaluate(rig.victim(), rig.env, [text], episodes=1).threats[1]["transfer"]
    other = RIGS["q"].victim(torch.float64)
    assert adv.evaluate(other, rig.env, [text], episodes=1).threats[1]["transfer"]
    with pytest.raises(SpaceError, match="this director gives 4 numbers, an action is"):
        wide = Learned(Learned(card=str(tmp_path)).director, adv.PAAD(rig.victim()))
        adv.wrap(rig.env(), adv.ThreatModel("observation", wide, adv.Linf(0.2)))
    env = adv.wrap(rig.env(), adv.ThreatModel("observation", Learned(lambda x: x.numpy(), adv.SARL()), adv.Linf(0.2)))
    with pytest.raises(ThreatError, match="a tensor of one action a row"):
        env.reset(seed=0)


def test_images(tmp_path):
    """A director of convolutions, below one grey level, deployed from its folder."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 84 * 84, 3))
    rng = np.random.default_rng(0)
    space, acts = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(3)
    victim = adv.from_module(net, space, acts, "logits")
    frames = [[rng.integers(0, 256, space.shape).astype(np.uint8) for _ in range(5)] for _ in range(2)]

    def make():
        return ReplayEnv(frames, space, acts)

    learned = train_adversary(
        "pa-ad", make, victim, 0.3, 16, num_envs=2, n_steps=8, checks=1, episodes=2, out=tmp_path, quantize=False
    )
    kinds = [layer["kind"] for layer in json.loads((tmp_path / "card.json").read_text())["network"]["policy"]]
    assert kinds[:2] == ["normalize", "conv"] and kinds[-1] == "linear"
    report = adv.evaluate(victim, make, [learned], episodes=2, quantize=False)
    assert 0 < report.threats[1]["linf"] <= 0.3 + 1e-4
    with pytest.raises(BudgetError, match="below one grey level"):
        train_adversary("pa-ad", make, victim, 0.3, 16, num_envs=2)
    with pytest.raises(SpaceError, match="would choose 28224 numbers a step"):
        train_adversary("sa-rl", make, victim, 3.0, 16, num_envs=2)


def test_numbers_in_a_matrix(tmp_path):
    torch.manual_seed(0)
    shape = (2, 3, 4)
    space, acts = gym.spaces.Box(-9, 9, shape), gym.spaces.Discrete(2)
    victim = adv.from_module(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), 2)), space, acts, "logits"
    )
    seen = np.random.default_rng(0).normal(size=(2, 5, *shape)).astype(np.float32)

    def make():
        return ReplayEnv([list(episode) for episode in seen], space, acts)

    learned = train_adversary("sa-rl", make, victim, 0.3, 16, num_envs=2, n_steps=8, checks=1, episodes=2, out=tmp_path)
    row = adv.evaluate(victim, make, [f"learned:card={tmp_path}"], episodes=2).threats[1]
    assert 0 < row.linf <= 0.3 and row.attacked_fraction == 1
    assert learned.director(torch.from_numpy(seen[0])).shape == (5, math.prod(shape))


def test_keys_of_a_dict_are_left_to_attacks_that_do_not_learn():
    space = gym.spaces.Dict(a=gym.spaces.Box(-9, 9, (2,)))
    victim = adv.from_module(lambda obs: obs["a"], space, gym.spaces.Discrete(2), "logits")
    with pytest.raises(SpaceError, match=r"sees one Box .*, got Dict.*: attacks that do not learn.* keys by at="):
        train_adversary("sa-rl", lambda: None, victim, 0.3, 16)


class Bare(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 4)

    def forward(self, x):
        return x.tanh()


def test_whatever_tells_a_training_apart_is_kept(finished):
    given = {**dict(zip(("env", "victim", "eps", "steps"), GIVEN, strict=True)), "out": finished, **QUICK}
    for more, match in (
        ({"kind": "pa-ad", "eps": 0.1}, r"actor.type 'sa-rl' and not 'pa-ad', within.eps 0.05 and not 0.1"),
        ({"victim": adv.load_victim("zoo:cartpole-a2c", select="sample")}, "victim.select 'mode' and not 'sample'"),
        ({"policy_kwargs": {"net_arch": [16]}}, r"settings.policy_kwargs.net_arch \[64, 64\] and not \[16\]"),
        ({"learning_rate": lambda left: left * 1e-3}, "settings.learning_rate 0.0003 and not 'tests.training"),
        ({"kind": adv.PAAD(adv.load_victim("zoo:cartpole-ppo"))}, "actor_victim"),
    ):
        with pytest.raises(ValueRangeError, match=match):
            train_adversary(**{"kind": "sa-rl", **given, **more})


def test_the_actor_keeps_a_victim_of_its_own_after_a_break(tmp_path):
    actor, few = adv.PAAD(adv.load_victim("zoo:cartpole-a2c")), {**QUICK, "checks": 1, "episodes": 1}
    first, again = (train_adversary(actor, SHORT, "zoo:cartpole-ppo", 0.05, 64, out=tmp_path, **few) for _ in range(2))
    assert first.actor.victim.ref == again.actor.victim.ref == "zoo:cartpole-a2c"


@every_case(
    ("more", "error", "match"),
    [
        ({"policy_kwargs": {"activation_fn": torch.nn.Mish}}, CardError, "Mish"),
        ({"policy_kwargs": {"features_extractor_class": Bare}}, ThreatError, "Bare"),
        ({"tensorboard_log": "logs"}, ThreatError, "tensorboard_log cannot be set here"),
    ],
)
def test_what_cannot_be_kept_is_told_of_before_it_is_trained(more, error, match, tmp_path):
    received = []
    with pytest.raises(error, match=match):
        train_adversary("sa-rl", *GIVEN, out=tmp_path, progress=lambda *at: received.append(at), **QUICK, **more)
    assert not received and not (tmp_path / "card.json").exists()


@pytest.mark.parametrize(("gamma", "kind"), [(1.0, "EpisodicNormalize"), (0.99, "VecNormalize")])
def test_a_time_limit_ends_an_episode_without_a_discount(gamma, kind, monkeypatch):
    made = []

    class Seen(PPO):
        def __init__(self, *given, env, **more):
            made.append(type(env).__name__)
            super().__init__(*given, env=env, **more)

    monkeypatch.setitem(ALGORITHMS, "ppo", Seen)
    small = {**QUICK, "num_envs": 1, "checks": 1, "episodes": 1}
    train_adversary("sa-rl", SHORT, "zoo:cartpole-a2c", 0.05, 16, gamma=gamma, **{**small, "batch_size": 16})
    assert made == [kind]


TIMED = ("timed:worst-action", SHORT, "zoo:cartpole-dqn")


@pytest.mark.slow
def test_a_learned_timing_is_compared_by_what_its_attacks_cost(tmp_path):
    cost, ended = PerturbationCost(3.0), []
    how = {"reward": cost, "observe": "state+action+spent", "out": tmp_path, **QUICK}
    learned = train_adversary(*TIMED, steps=128, on_episode=lambda *episode: ended.append(episode), **how)
    assert learned.declines and learned.within == adv.Valid() and learned.observe == "state+action+spent"
    record = json.loads((tmp_path / "state.json").read_text())["record"]
    assert all(row["score"] == pytest.approx(row["mean_return"] + 3 * row["attacks"]) for row in record)
    kept = json.loads((tmp_path / "card.json").read_text())["training"]
    assert kept["checkpoints"][-1]["score"] == min(row["score"] for row in record) and kept["reward"] == cost.to_dict()
    assert ended and all(attacks <= length == left <= 30 for _, left, attacks, length in ended)
    assert [steps for steps, *_ in ended] == sorted(steps for steps, *_ in ended) and ended[-1][0] <= 128
    with pytest.raises(ValueRangeError, match="reward"):
        train_adversary(*TIMED, steps=128, **{**how, "reward": PerturbationCost(2.0)})


def test_a_function_as_a_reward_needs_no_folder(tmp_path):
    def praise(reward, **outcome):
        return reward

    assert isinstance(train_adversary(*TIMED, steps=32, reward=praise, **QUICK), Learned)
    with pytest.raises(ThreatError, match="a folder keeps rewards such as PerturbationCost"):
        train_adversary(*TIMED, steps=32, reward=praise, out=tmp_path, **QUICK)


DQN = {"algorithm": "dqn", "learning_starts": 40, "checks": 2, "episodes": 3}


@pytest.mark.slow
def test_dqn_learns_what_a_reward_pays_for():
    """Whoever is paid for attacks attacks, and who pays for them does not."""

    def praise(reward, attacked, **outcome):
        return np.where(attacked, 1.0, 0.0)

    for reward, share in ((praise, 1.0), (PerturbationCost(50.0), 0.0)):
        learned = train_adversary(
            *TIMED,
            steps=200,
            reward=reward,
            **{**DQN, "checks": 1},
            gamma=0.5,
            exploration_fraction=0.3,
            target_update_interval=50,
            learning_rate=5e-3,
        )
        report = adv.evaluate("zoo:cartpole-dqn", SHORT, [learned], episodes=1)
        assert report.threats[1]["attacked_fraction"] == pytest.approx(share, abs=0.2)


@pytest.mark.slow
def test_a_training_by_dqn_goes_on_with_its_networks_and_a_new_replay_buffer(tmp_path, monkeypatch):
    models = []

    class Seen(PrioritizedDQN):
        def learn(self, *given, **more):
            models.append(self)
            self.began = self.num_timesteps, self._n_updates, float(self.parameter_noise.std), self.learning_starts
            self.weights = self.q_net.q_net[0].weight.detach().clone()
            return super().learn(*given, **more)

    monkeypatch.setitem(ALGORITHMS, "dqn", Seen)
    for steps in (120, 240):
        train_adversary(*TIMED, steps=steps, out=tmp_path, **DQN)
    first, second = models
    assert first.began[:2] == (0, 0) and first._n_updates == 80
    assert second.began == (120, 80, float(first.parameter_noise.std), 160)
    assert torch.equal(second.weights, first.q_net.q_net[0].weight)
    assert second.replay_buffer.size() == 120 and second._n_updates == 160
    record = json.loads((tmp_path / "state.json").read_text())["record"]
    assert [row["steps"] for row in record] == [60, 120, 240]  # a checkpoint every half of the steps asked for
    with pytest.warns(RuntimeWarning, match="holds a training of 240 steps, more than the 120 asked for"):
        train_adversary(*TIMED, steps=120, out=tmp_path, **DQN)
    (tmp_path / "checkpoint-240" / "model.zip").write_bytes(b"no archive")
    with pytest.raises(CardError, match=r"cannot read .*model.zip"):
        train_adversary(*TIMED, steps=400, out=tmp_path, **DQN)


def test_dqn_on_several_environments_stops_where_an_episode_says_so():
    ended, done = [], []
    how = {"num_envs": 3, "progress": lambda steps, left: done.append(steps), **DQN}
    stop = lambda *episode: ended.append(episode) or len(ended) < 4  # noqa: E731
    learned = train_adversary(*TIMED, steps=2000, on_episode=stop, **how)
    assert isinstance(learned, Learned) and 4 <= len(ended) <= 6 and done == [ended[-1][0]] and done[0] < 500
