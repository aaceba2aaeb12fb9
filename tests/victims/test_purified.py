"""Purified victims: how they act, what they remember, and what each kind of attacker sees."""

from __future__ import annotations

import copy
import json
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers import from_module, load_victim
from adv_wrappers.core import rng
from adv_wrappers.errors import CardError, ValueRangeError, VictimError
from adv_wrappers.training.models.critic import exploring_victim
from adv_wrappers.victims.policy_runner import PolicyRunner
from adv_wrappers.victims.purified import Purified
from adv_wrappers.victims.smoothed import Smoothed
from tests.core.helpers import actor, box, chooser, mlp, randn
from tests.victims.helpers import check_adversary_repeats, denoiser, rows_of_short_episodes

KEYS = rng.as_tensor(rng.roots([rng.root(i) for i in range(4)]), 4, torch.device("cpu"))
FORMS = [(0, 0), (0, 2), (3, 0), (3, 2)]


@pytest.mark.parametrize(("levels", "history"), FORMS)
def test_the_agent_acts_on_reconstructions_whatever_the_attacker_sees(levels, history):
    inner, found = chooser(mlp(4, 3), "q"), denoiser(levels, history)
    obs = randn(6, 4)
    kinds = [Purified(inner, found, gradient) for gradient in ("exact", "bpda", "agent")]
    exact, bpda, agent = kinds
    clean = exact.purify(obs)
    assert not torch.equal(clean, obs)
    assert all(torch.equal(one.act_on(obs), inner.act_on(clean)) for one in kinds)
    torch.testing.assert_close(exact.params(obs), inner.params(clean))
    torch.testing.assert_close(bpda.params(obs), inner.params(clean))
    assert torch.equal(agent.params(obs), inner.params(obs))
    assert torch.equal(exact.q(obs), exact.params(obs)) and torch.equal(exact.value(obs), inner.value(clean))
    assert all(one.recurrent == (history > 0) for one in kinds)


@pytest.mark.parametrize(("levels", "history"), FORMS)
def test_gradients_through_the_denoiser_around_it_and_without_it(levels, history):
    inner, found = chooser(mlp(4, 3), "q"), denoiser(levels, history)
    obs, loss = randn(5, 4), lambda params: params[:, 0]
    exact, bpda, agent = (Purified(inner, found, gradient) for gradient in ("exact", "bpda", "agent"))
    state = exact.initial_state(5)
    step = 1e-6 * torch.eye(4, dtype=torch.float64)
    rise = [(exact.params(obs + e, state)[:, 0] - exact.params(obs - e, state)[:, 0]) / 2e-6 for e in step]
    assert exact.gradient(loss, state)(obs) == pytest.approx(torch.stack(rise, 1), abs=1e-5)
    at_clean = inner.gradient(loss)(exact.purify(obs, state))
    torch.testing.assert_close(bpda.gradient(loss, state)(obs), at_clean)
    torch.testing.assert_close(agent.gradient(loss, state)(obs), inner.gradient(loss)(obs))


@pytest.mark.parametrize("kind", ["q", "mean"])
def test_what_is_remembered_is_the_reconstruction_and_the_action(kind):
    inner = (chooser if kind == "q" else actor)(mlp(4, 3), kind)
    victim = Purified(inner, denoiser(3, 2))
    obs, state = randn(5, 4), victim.initial_state(5)
    clean = victim.purify(obs, state)
    seen, act, known = victim.advance(obs, state)
    torch.testing.assert_close(seen[:, 1], clean)
    assert not seen[:, 0].any() and known.tolist() == [[0, 1]] * 5
    played = inner.act_on(clean)
    expected = torch.nn.functional.one_hot(played, 3).double() if kind == "q" else played
    torch.testing.assert_close(act, expected)
    assert not torch.equal(victim.purify(obs, (seen, act, known)), clean)
    torch.testing.assert_close(victim.purify(obs), clean)  # without a state an episode begins
    assert Purified(inner, denoiser(3)).advance(obs, None) is None


def test_rows_do_not_depend_on_each_other_nor_runs_on_chance():
    victim = Purified(load_victim("zoo:cartpole-dqn"), denoiser(3, 2, actions=2, unit=0.1))
    whole, part = PolicyRunner(victim, 6), PolicyRunner(victim, 2)
    obs = np.random.default_rng(0).normal(size=(6, 4)) * 0.2
    for _ in range(10):
        assert part.act(obs[[3, 1]]).tolist() == whole.act(obs)[[3, 1]].tolist()
        obs = obs + 0.01


def test_the_noise_is_that_of_the_seed_and_its_mean_is_zero():
    inner, found = chooser(mlp(4, 3)), denoiser(3)
    obs = randn(5, 4)
    one, same, other = (Purified(inner, found, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.purify(obs), same.purify(obs)) and not torch.equal(one.purify(obs), other.purify(obs))
    torch.testing.assert_close(one._noise.sum(0), torch.zeros(2, 4, dtype=torch.float64))
    assert Purified(inner, found, draws=3)._noise.shape == (3, 2, 4)
    without = Purified(inner, found, draws=0)
    torch.testing.assert_close(without.purify(obs), without._net(obs, None))
    many = [Purified(inner, found, draws=400, seed=seed).purify(obs) for seed in (1, 2)]
    assert (many[0] - many[1]).abs().max() < (one.purify(obs) - other.purify(obs)).abs().max()


def test_an_agent_that_samples_does_so_behind_a_denoiser():
    inner = chooser(mlp(4, 3), select="sample")
    victim, obs = Purified(inner, denoiser()), randn(4, 4)
    assert victim.select == "sample"
    assert torch.equal(victim.act_on(obs, key=KEYS), inner.act_on(victim.purify(obs), key=KEYS))
    with pytest.raises(VictimError, match="key"):
        victim.act_on(obs)


def test_what_acts_by_parameters():
    inner, obs = chooser(mlp(4, 3)), randn(4, 4)
    victim = Purified(inner, denoiser())
    assert torch.equal(victim.act(victim.params(obs)), victim.act_on(obs))
    unaware = Purified(inner, denoiser(), "agent")
    with pytest.raises(VictimError, match="know nothing of the denoiser"):
        unaware.act(unaware.params(obs))


def test_it_stands_before_and_behind_noise():
    inner = load_victim("zoo:cartpole-dqn")
    found = denoiser(actions=2, unit=0.1)
    obs = torch.zeros(4, 4)
    before, behind = Purified(Smoothed(inner, 0.1), found), Smoothed(Purified(inner, found), 0.1)
    assert before.act_on(obs, key=KEYS).shape == behind.act_on(obs, key=KEYS).shape == (4,)
    with pytest.raises(VictimError, match="without a hidden state"):
        Smoothed(Purified(inner, denoiser(history=2, actions=2)), 0.1)


def test_references_fingerprints_copies_and_pickles(tmp_path):
    inner, saved = load_victim("zoo:cartpole-dqn"), denoiser(3, 2, actions=2).save(tmp_path / "denoiser")
    victim = Purified(inner, saved, "bpda", draws=8, seed=3)
    assert victim.ref == f"purified:zoo:cartpole-dqn?denoiser={tmp_path}/denoiser&gradient=bpda&draws=8&seed=3"
    read = load_victim(victim.ref)
    assert isinstance(read, Purified) and read.fingerprint() == victim.fingerprint() and read.card == inner.card
    others = [Purified(inner, saved), Purified(inner, saved, seed=1), Purified(inner, saved, draws=8), inner]
    others += [Purified(inner, denoiser(3, actions=2)), victim]
    assert len({one.fingerprint() for one in others}) == 6
    assert Purified(inner, denoiser(actions=2)).ref is None
    assert Purified(inner, denoiser(actions=2).save(tmp_path / "a&b")).ref is None
    assert copy.deepcopy(victim) is victim and pickle.loads(pickle.dumps(victim)).fingerprint() == read.fingerprint()
    threat = adv.threat("pgd", victim, eps=0.05)
    again = adv.ThreatModel.from_dict(json.loads(json.dumps(threat.to_dict())), adv.load_victim)
    assert again.victims[0].seen == "bpda"
    assert "a diffusion model with 2 steps of history, bpda gradient" in repr(victim)


def test_it_is_evaluated_and_attacked_like_any_other_and_twice_the_same(tmp_path):
    denoiser(actions=2, unit=0.02).save(tmp_path)
    victim = f"purified:zoo:cartpole-dqn?denoiser={tmp_path}"
    pgd = "pgd:eps=0.3,steps=2,restarts=1"
    threats = [pgd, "square:eps=0.3,queries=5", f"{pgd},victim={victim}&gradient=bpda"]
    one = rows_of_short_episodes(victim, threats)
    assert one[0]["mean_return"] > one[1]["mean_return"]


def test_an_adversary_plays_against_it_as_it_is_deployed(tmp_path):
    saved = denoiser(3, 2, actions=2, unit=0.1).save(tmp_path)
    check_adversary_repeats(f"purified:zoo:cartpole-dqn?denoiser={saved.folder}")


def test_a_critic_explores_behind_the_denoiser():
    victim = Purified(actor(mlp(4, 3), "mean"), denoiser(unit=1e-6))
    other = exploring_victim(victim, 0.3)
    obs = torch.zeros(4, 4, dtype=torch.float64)
    assert (other.act_on(obs, key=KEYS) - victim.act_on(obs)).abs().mean() > 0.1


def test_what_is_refused(tmp_path):
    inner, found = load_victim("zoo:cartpole-dqn"), denoiser(actions=2)
    start = lambda rows: torch.zeros(rows, 1)  # noqa: E731
    space = gym.spaces.Discrete(2)
    recurrent = from_module(lambda obs, state: (obs, state), box(2), space, "q", initial_state=start)
    seen = gym.spaces.Box(-1, 1, (1, 2))
    image = from_module(torch.nn.Flatten(), seen, space, "q")
    for wrong, match in [
        (lambda: Purified("zoo:cartpole-dqn", found), "expected a victim"),
        (lambda: Purified(recurrent, found), "without a hidden state"),
        (lambda: Purified(image, found), "Box of one dimension"),
        (lambda: Purified(inner, denoiser(features=3)), r"observations of shape \(3,\)"),
        (lambda: load_victim("purified:zoo:cartpole-dqn"), "denoiser=VALUE"),
        (lambda: load_victim("purified:zoo:cartpole-dqn?denoiser=x&more=1"), "denoiser=VALUE"),
    ]:
        with pytest.raises(VictimError, match=match):
            wrong()
    for wrong, match in [
        (lambda: Purified(inner, found, "none"), "gradient must be 'exact', 'bpda' or 'agent'"),
        (lambda: Purified(inner, found, draws=-1), "draws must be"),
        (lambda: Purified(inner, found, seed=-1), "seed must be"),
    ]:
        with pytest.raises(ValueRangeError, match=match):
            wrong()
    with pytest.raises(CardError, match=r"card\.json"):
        load_victim(f"purified:zoo:cartpole-dqn?denoiser={tmp_path}")
