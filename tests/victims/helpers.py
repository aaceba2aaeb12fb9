"""What is asked of every victim, and files with something changed."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

import adv_wrappers as adv


def check_gradient(victim, module, obs, key=None, **tolerance):
    """The gradient in the second step of 6 rows, of a dictionary's part ``key``, is autograd's; nothing else moves."""
    weights, mode = {k: v.clone() for k, v in module.state_dict().items()}, module.training
    first, state = victim.fingerprint(), victim.advance(obs, victim.initial_state(6))
    slope = torch.randn_like(victim.params(obs, state))
    x = obs if key is None else obs[key]
    fill = None if key is None else (lambda y: obs | {key: y})
    found = victim.gradient(lambda p: (p * slope).sum(-1), state, fill)(x)
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad((victim.params(fill(y) if fill else y, state) * slope).sum(), y)
    assert expected.abs().max() > 0
    torch.testing.assert_close(found, expected, **tolerance)
    assert all(torch.equal(weights[k], v) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert module.training is mode and victim.fingerprint() == first


def rows_of_short_episodes(victim, threats):
    """Rows of two episodes of 20 steps of CartPole: the same one after the other and at once."""
    how = {"episodes": 2, "env_kwargs": {"max_episode_steps": 20}}
    one, two = (adv.evaluate(victim, "CartPole-v1", threats, num_envs=n, **how).threats for n in (1, 2))
    assert [row["returns"] for row in one] == [row["returns"] for row in two]
    return one


def check_adversary_repeats(victim):
    """An adversary plays against the victim as it is deployed: twice the same from one seed."""
    env = adv.AdversaryEnv(gym.make("CartPole-v1"), victim, "sa-rl", adv.Linf(0.1))
    runs = []
    for _ in range(2):
        env.reset(seed=3)
        runs.append([env.step(np.zeros(4, np.float32))[0].tolist() for _ in range(5)])
    assert runs[0] == runs[1]


def damaged(data, rng):
    """The same bytes with some changed, taken out or doubled."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        where, kind = rng.randrange(len(out)), rng.random()
        if kind < 0.6:
            out[where] = rng.randrange(256)
        elif kind < 0.8:
            del out[where : where + rng.randrange(1, 20)]
        else:
            out[where:where] = out[where : where + rng.randrange(1, 20)]
    return bytes(out) or b"x"


def refused(calls):
    """How many of the calls were refused; each works or is an error of ours, of a length that can be read."""
    count = 0
    for call in calls:
        try:
            call()
        except adv.AdvWrappersError as error:
            assert 15 < len(str(error)) < 3000, str(error)[:200]
            count += 1
    return count
