"""Modules that keep a hidden state inside: each row, episode and query has its own."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from collections import deque

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.distributions import Beta

import adv_wrappers as adv
from tests.core.helpers import randn

SEEN, BOX = spaces.Box(-np.inf, np.inf, (6,), np.float32), spaces.Box(-9, 9, (2,), np.float32)
X = randn(5, 3, 6).float()


class Lstm(nn.Module):
    """As legged_gym exports it: for one robot."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.actor = nn.LSTM(6, 8), nn.Linear(8, 2)
        self.register_buffer("hidden", torch.zeros(1, 1, 8))
        self.register_buffer("cell", torch.zeros(1, 1, 8))

    def forward(self, x):
        out, (h, c) = self.memory(x.unsqueeze(0), (self.hidden, self.cell))
        self.hidden[:] = h
        self.cell[:] = c
        return self.actor(out.squeeze(0))

    @torch.jit.export
    def reset_memory(self):
        self.hidden[:] = 0.0
        self.cell[:] = 0.0


class StartsAtNone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.memory, self.actor, self.state = nn.GRU(6, 8), nn.Linear(8, 2), None

    def forward(self, x):
        out, self.state = self.memory(x[None], self.state)
        return self.actor(out[0])

    def reset(self, dones=None):
        self.state = None


class Filter(nn.Module):
    """A low-pass filter on the action, in a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.last = nn.Linear(6, 2), torch.zeros(2)

    def forward(self, x):
        self.last = 0.8 * self.last + 0.2 * self.actor(x)
        return self.last


class History(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(18, 2)
        self.register_buffer("seen", torch.zeros(1, 3, 6))

    def forward(self, x):
        self.seen = torch.cat([self.seen[:, 1:], x[:, None]], 1)
        return self.actor(self.seen.flatten(1))


class Queue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.seen = nn.Linear(6, 2), deque(maxlen=3)

    def forward(self, x):
        self.seen.append(x)
        return self.actor(torch.stack(list(self.seen)).mean(0))


class Clock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.t = nn.Linear(6, 2), 0

    def forward(self, x):
        self.t += 1
        return self.actor(x) * float(np.sin(self.t))


class Gait(nn.Module):
    """A clock with a period that divides many numbers of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(6, 2)
        self.register_buffer("phase", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        out = self.actor(x) * (1 + self.phase)
        self.phase.copy_((self.phase + 1) % 4)
        return out


class Late(nn.Module):
    """What it plays was seen twenty steps ago."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(6, 2)
        self.register_buffer("line", torch.zeros(20, 2))

    def forward(self, x):
        self.line = torch.cat([self.line, self.actor(x)])
        out, self.line = self.line[:1], self.line[1:]
        return out


class InParameter(nn.Module):
    """Its state is a parameter that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.actor = nn.GRUCell(6, 8), nn.Linear(8, 2)
        self.hidden = nn.Parameter(torch.zeros(1, 8), requires_grad=False)

    def forward(self, x):
        hidden = self.memory(x, self.hidden)
        self.hidden.data = hidden.detach()
        return self.actor(hidden)


class Slots:
    """An object without a dictionary."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = torch.zeros(1, 2)


class InSlots(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.kept = nn.Linear(6, 2), Slots()

    def forward(self, x):
        self.kept.last = 0.5 * self.kept.last + self.actor(x)
        return self.kept.last


class Chunks(nn.Module):
    """Four actions at a time, handed out one by one by a method."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(6, 8)
        self.reset()

    def reset(self):
        self.queues = {"action": deque(maxlen=4)}

    def select_action(self, x):
        if not self.queues["action"]:
            self.queues["action"].extend(self.actor(x).detach().view(-1, 4, 2).unbind(1))
        return self.queues["action"].popleft()


class Arrays:
    """An object on numpy arrays."""

    def __init__(self) -> None:
        self.weight, self.last = np.linspace(-1, 1, 12).astype(np.float32).reshape(6, 2), np.zeros(2, np.float32)

    def act(self, x):
        self.last = 0.5 * self.last + np.asarray(x) @ self.weight
        return self.last


def _seeded(make):
    torch.manual_seed(0)
    return make()


def _scripted(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(_seeded(make))


def _by_rows(program, x):
    return torch.cat([program(row[None]) for row in x])


MAKERS = {
    "buffers": lambda: _seeded(Lstm),
    "program": lambda: _scripted(Lstm),
    "starts at None": lambda: _seeded(StartsAtNone),
    "attribute": lambda: _seeded(Filter),
    "history": lambda: _seeded(History),
    "queue": lambda: _seeded(Queue),
    "number": lambda: _seeded(Clock),
    "period": lambda: _seeded(Gait),
    "parameter": lambda: _seeded(InParameter),
    "slots": lambda: _seeded(InSlots),
    "chunks": lambda: _seeded(Chunks).select_action,
    "method on arrays": lambda: Arrays().act,
    "lambda": lambda: (lambda program: lambda x: _by_rows(program, x))(_scripted(Lstm)),
    "partial": lambda: functools.partial(_by_rows, _seeded(Lstm)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("program", "lambda"))) for name in MAKERS]
)
def test_every_row_has_the_state_of_its_own_episode(name):
    victim, wanted = adv.from_module(MAKERS[name](), SEEN, BOX, "mean"), []
    assert victim.recurrent
    for i in range(3):
        alone = MAKERS[name]()
        wanted.append(
            [
                np.asarray(alone(x[i : i + 1]).detach() if "arrays" not in name else alone(x[i : i + 1].numpy()))
                for x in X
            ]
        )
    state = victim.initial_state(3)
    for t, x in enumerate(X):
        before = victim.act_on(x, state)
        if victim.differentiable:
            slope = victim.gradient(lambda p: p.sum(-1), state)(x)
            assert slope.abs().sum(1).min() > 0
        assert torch.equal(victim.act_on(x, state), before)  # a query advances nothing
        np.testing.assert_allclose(before, np.concatenate([rows[t] for rows in wanted]), atol=1e-5)
        state = victim.advance(x, state)
    assert torch.equal(victim.act_on(X[0]), victim.act_on(X[0], victim.initial_state(3)))


def test_gradients_are_those_of_the_output_although_the_state_is_written_over():
    victim = adv.from_module(_scripted(Lstm), SEEN, BOX, "mean", dtype=torch.float64)
    state = victim.advance(X[0].double(), victim.initial_state(3))
    x, step = X[1].double(), torch.zeros(3, 6, dtype=torch.float64)
    step[:, 2] = 1e-5
    slope = victim.gradient(lambda p: p[:, 0], state)(x)[:, 2]
    change = victim.params(x + step, state)[:, 0] - victim.params(x - step, state)[:, 0]
    torch.testing.assert_close(slope, change / 2e-5, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("live", [False, True])
def test_the_module_holds_what_it_held(live):
    net = _seeded(Lstm).eval()
    net.hidden += 0.5
    held, fingerprint = [net.hidden, net.cell], None
    victim = adv.from_module(net, SEEN, BOX, "mean", live=live)
    fingerprint = victim.fingerprint()
    for x in X[:3]:
        victim.gradient(lambda p: p.sum(-1), victim.initial_state(3))(x)
    assert net.hidden is held[0] and net.cell is held[1]
    assert (net.hidden == 0.5).all() and not net.cell.any() and victim.fingerprint() == fingerprint
    assert all(not value.any() for value in victim.initial_state(1)[0])  # reset_memory() says where episodes begin


class Walk(gym.Env):
    observation_space, action_space = SEEN, BOX

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._draw(), {}

    def _draw(self):
        return self.np_random.normal(size=6).astype(np.float32)

    def step(self, action):
        self.t += 1
        return self._draw(), float(np.sum(action)), self.t >= 5, False, {}


@pytest.mark.slow
def test_returns_do_not_depend_on_the_number_of_environments_nor_on_attacks():
    program = _scripted(Lstm)
    victim = adv.from_module(lambda x: _by_rows(program, x), SEEN, BOX, "mean")
    reports = [adv.evaluate(victim, Walk, ["max-diff:eps=0.1"], episodes=3, num_envs=n) for n in (1, 3)]
    tables = [report.to_dataframe(long=True) for report in reports]
    np.testing.assert_allclose(tables[0]["return"], tables[1]["return"], atol=1e-4)
    clean = tables[0][tables[0].threat == "none"]
    for seed, earned in zip(clean.episode_seed, clean["return"], strict=True):
        program.reset_memory()
        env, total, done = Walk(), 0.0, False
        obs, _ = env.reset(seed=int(seed))
        while not done:
            obs, reward, done, _, _ = env.step(program(torch.as_tensor(obs)[None]).detach().numpy()[0])
            total += reward
        assert earned == pytest.approx(total, abs=1e-4)


def test_a_file_of_a_program_for_one_robot(tmp_path):
    _scripted(Lstm).save(str(tmp_path / "policy.pt"))
    victim = adv.from_torchscript(tmp_path / "policy.pt", SEEN, BOX, "mean", trust=True)
    again, state = pickle.loads(pickle.dumps(victim)), victim.advance(X[0], victim.initial_state(3))
    assert torch.equal(again.params(X[1], state), victim.params(X[1], state))
    assert victim.net.axes == (1, 1)  # several robots at once


class Normalised(nn.Module):
    """Running statistics that go on in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(6, 2)
        self.register_buffer("obs_mean", torch.zeros(6))
        self.register_buffer("obs_var", torch.ones(6))
        self.register_buffer("count", torch.ones(()))

    def forward(self, x):
        self.count += len(x)
        self.obs_mean += (x.mean(0) - self.obs_mean) / self.count
        self.obs_var += ((x - self.obs_mean).square().mean(0) - self.obs_var) / self.count
        return self.actor((x - self.obs_mean) / self.obs_var.sqrt())


def test_running_statistics_go_on_for_every_row_by_itself():
    net = _seeded(Normalised)
    victim = adv.from_module(net, SEEN, BOX, "mean")
    state, before = victim.initial_state(3), copy.deepcopy(net.state_dict())
    for t in range(3):
        state = victim.advance(X[t], state)
    alone = _seeded(Normalised)
    for t in range(3):
        alone(X[t][1:2])
    torch.testing.assert_close(victim.params(X[3], state)[1:2], alone(X[3][1:2]).detach())
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_a_state_in_a_variable_of_a_function_is_warned_of():
    actor, last = _seeded(lambda: nn.Linear(6, 2)), torch.zeros(1, 2)

    def act(x):
        nonlocal last
        last = 0.5 * last + actor(x).mean(0, keepdim=True)
        return actor(x) + last

    with pytest.warns(UserWarning, match="an attribute of a module or object"):
        adv.from_module(act, SEEN, BOX, "mean")


def test_a_module_for_one_row_is_called_row_by_row():
    class One(nn.Linear):
        def forward(self, x):
            return super().forward(x.view(1, 6))

    net = _seeded(lambda: One(6, 2))
    victim = adv.from_module(net, SEEN, BOX, "mean")
    assert not victim.recurrent
    torch.testing.assert_close(victim.params(X[0]), nn.Linear.forward(net, X[0]))


def test_what_is_only_kept_for_later_is_no_state():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.calls, self.latest = nn.Linear(6, 2), 0, None

        def forward(self, x):
            self.calls, self.latest = self.calls + 1, self.actor(x)
            return self.latest

    net = _seeded(Keeps)
    net(X[0])
    victim = adv.from_module(net, SEEN, BOX, "mean")
    assert not victim.recurrent and torch.equal(victim.params(X[0]), copy.deepcopy(net.actor)(X[0]))


def test_nobody_elses_random_numbers_change():
    program = _scripted(Lstm)
    torch.manual_seed(3)
    np.random.seed(3)
    for_cuda = torch.cuda._lazy_seed_tracker.get_calls()  # with what it will be seeded once it is used
    with pytest.warns(UserWarning, match="answers by chance"):
        adv.from_module(lambda x: x[:, :2] + torch.rand(()) + float(np.random.rand()), SEEN, BOX, "mean", live=True)
    adv.from_module(program, SEEN, BOX, "mean")
    one = torch.ones(1, 2)
    beta = adv.from_module(lambda x: Beta(one.expand(len(x), 2), one), SEEN, spaces.Box(0, 1, (2,)), select="sample")
    assert beta.act_on(X[0], key=torch.arange(3)).shape == (3, 2)
    assert torch.cuda._lazy_seed_tracker.get_calls() == for_cuda
    after = np.random.rand()
    np.random.seed(3)
    for _ in range(10):
        if np.random.rand() == after:
            break
    else:
        pytest.fail("random numbers of NumPy come from elsewhere")


def test_a_long_delay_is_found():
    victim = adv.from_module(_seeded(Late), SEEN, BOX, "mean")
    assert victim.recurrent


class Masked(nn.Module):
    """Begins anew where it is told which rows are over."""

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.actor, self.hidden = nn.GRUCell(6, 8), nn.Linear(8, 2), torch.zeros(1, 8)

    def forward(self, x):
        self.hidden = self.memory(x, self.hidden).detach()
        return self.actor(self.hidden)


def test_a_module_that_was_called_before():
    net, resets = _seeded(Masked), _seeded(Masked)
    net(X[0][:1])
    with pytest.warns(UserWarning, match=r"a state \(hidden\) that was written before, and no reset"):
        adv.from_module(net, SEEN, BOX, "mean")
    kind = type("Resets", (Masked,), {"reset": lambda self, dones: self.hidden.mul_(1 - dones.float()[:, None])})
    resets.__class__ = kind
    resets(X[0][:1])
    assert not adv.from_module(resets, SEEN, BOX, "mean").initial_state(1)[0][0].any()


def test_a_counter_is_no_state_and_all_rows_are_computed_at_once():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor = nn.Linear(6, 2)
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.calls += len(x)
            sizes.append(len(x))
            return self.actor(x)

    sizes = []
    net = _seeded(Counts)
    victim = adv.from_module(net, SEEN, BOX, "mean")
    sizes.clear()
    torch.testing.assert_close(victim.params(X[0]), net.actor(X[0]))
    assert sizes == [len(X[0])] and not victim.recurrent


@pytest.mark.parametrize("make", [Lstm, Queue])
def test_without_a_state_it_is_that_of_a_start(make):
    victim = adv.from_module(_seeded(make), SEEN, BOX, "mean")
    assert torch.equal(victim.params(X[0]), victim.params(X[0], victim.initial_state(len(X[0]))))
