"""Environments of tensors: what a step may not do, on a device without data, and Gymnasium's JAX environments."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import adv_wrappers as adv
from adv_wrappers.core import rng
from adv_wrappers.errors import SpaceError
from tests.attacks.helpers import NoTrips
from tests.processes import python

ROOT = Path(__file__).parent.parent.parent
META, ROWS = torch.device("meta"), 6
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
THREATS = {
    "noise": "noise:eps=0.1",
    "noise in l2": "noise:eps=0.1,norm=l2,kind=gaussian",
    "fgsm": "fgsm:eps=0.1",
    "max-diff": "max-diff:eps=0.1,steps=2",
    "min-q": "min-q:eps=0.1,steps=2",
    "action-flip": "action-flip:p=0.1",
    "worst-action": "worst-action",
}
STACK = ["pgd:eps=0.1,steps=2,p=0.5", "noise:eps=0.1,when=every(2)&atmost(3)|~window(1,4)", "action-flip:p=0.2"]
# without JPEG, which is coded on the host wherever there are no kernels for it
PICTURES = ["brightness", "median-blur", "rotation", "noise:eps=4,newest=true"]


class Still(VectorEnv):
    """Zeros on any device. ``masks`` are those that resets were given."""

    def __init__(self, device: Any, mode: AutoresetMode, space: Any = VECTOR) -> None:
        self.num_envs, self.device, self.metadata = ROWS, device, {"autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = space, spaces.Discrete(2)
        self.observation_space = batch_space(space, ROWS)
        self.action_space = batch_space(self.single_action_space, ROWS)
        self.masks: list[Any] = []

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(ROWS, *shape, dtype=dtype, device=self.device)

    def _seen(self) -> Tensor:
        space = self.single_observation_space
        return self._zeros(*space.shape, dtype=torch.uint8 if space is IMAGE else torch.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Tensor, dict[str, Any]]:
        self.masks.append((options or {}).get("reset_mask"))
        return self._seen(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        over = self._zeros(dtype=torch.bool)
        info = {"final_obs": self._seen()} if self.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP else {}
        return self._seen(), self._zeros(), over, over.clone(), info


class OneDevice(TorchDispatchMode):
    """Fails on every kernel that reads or makes a tensor elsewhere; one without dimensions is an argument."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        places = {t.device for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor) and t.dim()}
        assert places <= {META}, f"{function.name()} on {places}"
        return out


@contextlib.contextmanager
def no_trips() -> Iterator[None]:
    """Tensors of the processor as if they were a device's: drawn by its kernels, never waited for, never an array."""
    unreadable = mock.patch.multiple(Tensor, numpy=None, tolist=None, __array__=None)
    with mock.patch.object(rng, "_HOST", ()), NoTrips(), unreadable:
        yield


def wrapped(env: Any, threats: list[str], device: Any, gated: bool = False) -> Any:
    """The threats around ``env``, a victim on ``device``; ``gated`` by one coin for all of them."""
    agent = adv.load_victim("zoo:cartpole-dqn")  # which refuses a device without numbers
    net = copy.deepcopy(agent.net)
    victim = adv.from_module(net, agent.observation_space, agent.action_space, agent.kind, device=device)
    for text in threats:
        wrapper = adv.PerturbAction if "action" in text else adv.PerturbObservation
        env = wrapper(
            env, text, keep_true=True, **({} if env.single_observation_space is IMAGE else {"victim": victim})
        )
    return adv.ProbabilisticTiming(env, 0.5) if gated else env


def test_the_watchman_wakes():
    x = torch.zeros(3, device=META)
    home = functools.partial(torch.as_tensor, np.zeros(3), device=META)
    for trip in (lambda: torch.ones(3), home, lambda: x.add(torch.ones(3)), lambda: x.sum().item()):
        with pytest.raises((AssertionError, RuntimeError)), OneDevice():
            trip()


CASES = [(name, MODES[turn % 3], False) for turn, name in enumerate(THREATS)] + [
    *((name, AutoresetMode.SAME_STEP, False) for name in PICTURES),  # whose final observations are attacked as well
    ("a stack", AutoresetMode.SAME_STEP, True),
]


@pytest.mark.parametrize(("name", "mode", "gated"), CASES)
def test_a_step_stays_on_its_device(name, mode, gated):
    """Tensors of the meta device have no data: whatever would wait for them, read them or copy them out fails."""
    picture = name in PICTURES
    env = Still(META, mode, IMAGE if picture else VECTOR)
    env = wrapped(env, STACK if name == "a stack" else [name] if picture else [THREATS[name]], META, gated)
    actions = torch.zeros(ROWS, dtype=torch.int64, device=META)
    env.reset(seed=0)
    env.step(actions)  # tables that depend on the threat alone are made
    with OneDevice(), mock.patch.object(Tensor, "numpy", None):
        obs, *_, info = env.step(actions)
        if mode == AutoresetMode.DISABLED:
            env.reset(options={"reset_mask": actions > 0})
    assert all(leaf.device == META for leaf in tree_leaves((obs, info)))  # no leaf is an array


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_masks_of_either_kind(kind):
    """A mask on the device stays there; the rows outside keep what they were handed."""
    env = wrapped(Still("cpu", AutoresetMode.DISABLED), ["noise:eps=0.1"], "cpu")
    before = env.reset(seed=0)[0]
    mask = kind([True, False] * (ROWS // 2))
    after = env.reset(options={"reset_mask": mask})[0]
    assert (after != before).any(1).tolist() == mask.tolist()
    given = env.unwrapped.masks[-1]
    assert type(given) is type(mask) and given is not mask and (given == mask).all()
    assert env.engine.clock.episode.tolist() == [1, 0] * (ROWS // 2)


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module("on_device")


def test_the_example_counts_trips(example):
    x = torch.arange(3)
    for trip in (lambda: x.sum().item(), lambda: x.nonzero(), lambda: x[x > 0], lambda: bool((x > 0).any())):
        watch = example.Trips()
        with watch:
            trip()
        assert watch.trips >= 1 and watch.kernels >= watch.trips
    with example.Trips() as watch:
        torch.where(x > 0, x, x[[0, 1, 2]]).clamp_(0, 1)
        x.to(META)
    assert watch.trips == 1


def test_cartpole_in_torch_is_gymnasiums(example):
    """The same transitions, rewards and ends from many states, the ends among them."""
    pole, one = example.TorchCartPole(400, "cpu"), gym.make("CartPole-v1").unwrapped
    pole.reset(seed=0)
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (400, 4)) * [2.5, 3, 0.22, 3]
    actions = rng.integers(0, 2, 400)
    pole.state = torch.from_numpy(states).float()
    obs, reward, terminated, truncated, _ = pole.step(torch.from_numpy(actions))
    ends = 0
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        one.reset()
        one.state = tuple(state)
        seen, paid, over, _, _ = one.step(int(action))
        np.testing.assert_allclose(obs[i], seen, rtol=1e-5, atol=1e-6)
        assert (reward[i], terminated[i]) == (paid, over)
        ends += over
    assert 40 < ends < 360 and not truncated.any()


def test_cartpole_in_torch_resets_in_the_next_step(example, monkeypatch):
    monkeypatch.setattr(example, "LIMIT", 30)
    pole = example.TorchCartPole(2, "cpu")
    obs, _ = pole.reset(seed=1)
    assert torch.equal(obs, pole.reset(seed=1)[0]) and obs.abs().max() <= 0.05
    lengths, rewards, ends = [], [], []
    for t in range(40):
        obs, reward, terminated, truncated, _ = pole.step(
            torch.tensor([0, t % 2])
        )  # the first falls, the second stands
        lengths.append(pole.t.tolist())
        rewards.append(reward.tolist())
        ends.append((terminated.tolist(), truncated.tolist()))
    for row, kind in ((0, 0), (1, 1)):
        end = next(t for t in range(40) if ends[t][kind][row])
        assert lengths[end][row] == end + 1 and not any(ends[t][0][row] or ends[t][1][row] for t in range(end))
        assert not ends[end][1 - kind][row] and not ends[end + 1][kind][row]
        assert [r[row] for r in rewards[: end + 3]] == [1.0] * (end + 1) + [0.0, 1.0]
        assert [n[row] for n in lengths[end : end + 3]] == [end + 1, 0, 1]
    assert end == 29


def jaxed(number):
    """Gymnasium's own vector of functional environments, through its own wrapper."""
    from gymnasium.wrappers.vector import JaxToTorch

    return JaxToTorch(gym.make_vec("phys2d/CartPole-v1", num_envs=number, vectorization_mode="vector_entry_point"))


def bare_jax_is_refused():
    bare = jaxed(2).env
    for threat in ("noise:eps=0.1", "action-flip"):
        with pytest.raises(SpaceError, match=r"hands out jaxlib.*vector.JaxToTorch"):
            adv.wrap(bare, threat).reset(seed=0)


def gymnasiums_own_vector_runs_under_attack():
    victim = adv.load_victim("zoo:cartpole-dqn")
    threats = [adv.threat("pgd", victim, eps=0.2, steps=2, restarts=2), "noise:eps=0.1", "action-flip:p=0.2"]
    runs, vector = [], jaxed(4)  # which is compiled once
    for _ in range(2):
        env, seen, woken = adv.wrap(vector, *threats, keep_true=True), [], 0
        obs, info = env.reset(seed=3)
        for t in range(30):
            assert env.engine.clock.t.tolist() == env.unwrapped.steps.tolist()
            assert type(obs) is Tensor and obs.dtype == torch.float32 and obs.shape == (4, 4)
            layers = info["adv_wrappers"]
            true = layers["0:min-best"]["true"]
            assert 0 < (layers["1:noise"]["true"] - true).abs().max() <= 0.2 + 1e-6
            assert 0 < (obs - layers["1:noise"]["true"]).abs().max() <= 0.1 + 1e-6
            assert all(type(leaf) is Tensor for leaf in tree_leaves(info))
            before = env.engine.clock.episode.clone()
            actions = victim.act(victim.params(obs))
            with torch.no_grad(), no_trips() if t else contextlib.nullcontext():
                obs, reward, terminated, truncated, info = env.step(actions)
            assert all(type(part) is Tensor for part in (reward, terminated, truncated))
            woken += int((env.engine.clock.episode - before).sum())
            seen.append(obs)
        assert woken >= 4
        runs.append(torch.stack(seen))
    assert torch.equal(*runs)
    with pytest.raises(gym.error.Error, match="integer"):  # its key is one for all rows
        env.reset(seed=[0, 1, 2, 3])


def cartpole_in_jax_is_gymnasiums():
    """The same transitions and ends as CartPole-v1's, and finished rows begin anew, their last observation attacked."""
    from gymnasium.wrappers.vector import JaxToTorch

    sys.path.insert(0, str(ROOT / "examples"))
    pole = importlib.import_module("on_device").JaxCartPole(100)
    env, one = adv.wrap(JaxToTorch(pole), "noise:eps=0.1", keep_true=True), gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    states = (rng.uniform(-1, 1, (100, 4)) * [2.5, 3, 0.22, 3]).astype(np.float32)
    actions = rng.integers(0, 2, 100)
    pole.state = pole.jax.numpy.array(states)
    _, reward, terminated, truncated, info = env.step(torch.from_numpy(actions))
    true, final = info["adv_wrappers"]["0:noise"]["true"], info["final_obs"]
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        one.reset()
        one.state = tuple(state.tolist())
        seen, _, over, _, _ = one.step(int(action))
        assert bool(terminated[i]) == over
        np.testing.assert_allclose(final[i], seen, rtol=1e-5, atol=0.1 + 1e-6 if over else 1e-6)
        assert (np.abs(final[i].numpy() - seen).max() > 1e-3) == over
        if over:
            assert true[i].abs().max() <= 0.05
        else:
            np.testing.assert_allclose(true[i], seen, rtol=1e-5, atol=1e-6)
    assert 10 < terminated.sum() < 90 and not truncated.any() and (reward == 1).all()
    assert env.engine.clock.t.tolist() == pole.t.tolist() == (~terminated).long().tolist()


@pytest.mark.slow
@pytest.mark.skipif(
    not (importlib.util.find_spec("jax") and importlib.util.find_spec("flax")), reason="the extra jax is not installed"
)
def test_in_jax():
    """In a process of its own: where JAX has been imported, tests that fork are warned of its threads."""
    names = [bare_jax_is_refused, gymnasiums_own_vector_runs_under_attack, cartpole_in_jax_is_gymnasiums]
    calls = "; ".join(f"tests.{test.__name__}()" for test in names)
    code = f"from tests.wrappers import test_on_device as tests; {calls}; print('passed')"
    done = python(code, cwd=ROOT, JAX_PLATFORMS="cpu")
    assert done.stdout == "passed\n", done.stderr[-4000:]
