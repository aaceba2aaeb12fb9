"""Transfers between the host and a device, on a processor whose copies arrive at the fence and no earlier."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

import adv_wrappers as adv
from adv_wrappers.accel import transfer
from adv_wrappers.accel.transfer import Transfer
from adv_wrappers.core.engine.engine import Engine, Wrapped
from tests.core.helpers import box, chooser, mlp
from tests.core.tape import Late, install
from tests.laws.checks import Case, by_turns, seeds_of, wrapper
from tests.rigs import RIGS, run, same

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("shape", [(3,), (3, 5), (4, 2, 2), (1, 0)])
def test_there_and_back(dtype, shape):
    made, x = Late(CPU), (np.random.default_rng(0).random(shape) * 3).astype(dtype)
    there = made.up(x)
    assert there.dtype == torch.from_numpy(x).dtype and np.array_equal(there.numpy(), x)
    back, count = made.down(there, torch.tensor(len(x)))
    assert back.dtype == dtype and np.array_equal(back, x) and count == len(x) and made.fences == 1


def test_some_rows_go_alone():
    made, x, rows = Late(CPU), np.arange(20.0).reshape(5, 2, 2), np.array([4, 0, 0])
    assert np.array_equal(made.up(x, rows).numpy(), x[rows])
    backwards = x[:, ::-1]
    assert np.array_equal(made.up(backwards).numpy(), backwards)


def test_what_is_under_way_is_not_written_over():
    made = Late(CPU)
    arrays = [np.full((4, 4), i, np.uint8) for i in range(3)]
    sent = [made.up(array) for array in arrays]
    assert len({buffer.data_ptr() for buffer in made._taken}) == 3
    for tensor, array in zip(sent, arrays, strict=True):
        assert np.array_equal(tensor.numpy(), array)
    made.down(*sent)
    assert made.fences == 1 and not made._taken


def test_buffers_are_used_again_by_batches_of_all_sizes():
    made = Late(CPU)
    for size in [*range(1, 65)] * 2:
        made.down(made.up(np.zeros((size, 3), np.float32)))
    assert made.buffers == 2 * 5, "two of 64, 128, ..., 1024 bytes"


def test_results_are_read_behind_the_fence(monkeypatch):
    x = torch.arange(4.0)
    assert np.array_equal(Late(CPU).down(x)[0], x.numpy())
    monkeypatch.setattr(Late, "fence", lambda self: None)
    assert not np.array_equal(Late(CPU).down(x)[0], x.numpy()), "without a fence the test sees what lay there before"


def test_where_there_is_one():
    assert transfer.between(CPU) is None and isinstance(transfer.between(torch.device("cuda")), Transfer)


def test_transfers_pickle_without_their_memory():
    made = Transfer(CPU)
    made._free[64], made._event = [torch.zeros(64)], object()
    again = pickle.loads(pickle.dumps(made))
    assert not again._free and again._event is None and again.device == CPU


def hosted(how, space, rows=6, budget=None, when=None):
    victim = chooser(mlp(4, 3)) if how is None else None
    threat = adv.ThreatModel("observation", how or adv.MinBest(victim, steps=2), budget or adv.Linf(0.3), when)
    made = Engine(threat, Wrapped(space, spaces.Discrete(3), rows))
    made.begin_episode(0)
    return made


def test_one_fence_a_step_and_results_of_their_own(monkeypatch):
    _, lates = install(monkeypatch)
    made, x = hosted(None, box(4, 5.0)), np.random.default_rng(0).uniform(-1, 1, (6, 4))
    outs = [made.apply(x * i, True if i % 2 else np.arange(6) < 4) for i in range(1, 6)]
    kept = [out.copy() for out in outs]
    made.apply(x * 9, True)
    assert all(np.array_equal(a, b) for a, b in zip(outs, kept, strict=True)), "handed out is not staged"
    assert lates[0].fences == 6


def test_timings_that_look_keep_no_buffers(monkeypatch):
    _, lates = install(monkeypatch)
    victim = chooser(mlp(4, 3))
    made = hosted(adv.MinBest(victim), box(4, 5.0), when=adv.Strategic(0.999999, victim))
    for _ in range(5):
        assert not made.decide(np.zeros((6, 4))).any()
        assert lates[0].fences and not lates[0]._taken
    assert lates[0].buffers <= 4


AWAY = [("max-diff", rig) for rig in ("q", "image", "recurrent", "dict", "gaussian")]
AWAY += [("worst-action", rig) for rig in ("logits", "mean", "recurrent", "dict")]


@pytest.mark.parametrize(
    ("away", "kind", "graphs"),
    [(*one, turn % 2 == 0) for turn, one in enumerate(by_turns(AWAY, ["env", "next", "sb3"]))],
)
def test_attacks_across_the_border_are_those_at_home(monkeypatch, away, kind, graphs):
    preset, rig = away
    case = Case(preset, RIGS[rig])
    threat = case.threat(dtype=torch.float64)
    home = run(kind, case.rig, wrapper(threat), seeds_of(kind))
    install(monkeypatch)
    if not graphs:
        monkeypatch.undo()
        monkeypatch.setattr(transfer, "between", Late)
    same(run(kind, case.rig, wrapper(threat), seeds_of(kind)), home, True, f"{rig} {kind}")


class Crossing(TorchDispatchMode):
    """Notes what is copied between devices, and in which dtypes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function.name() in ("aten::copy_", "aten::_to_copy"):
            ends = (out, args[1] if function.name() == "aten::copy_" else args[0])
            if ends[0].device != ends[1].device and ends[1].dim():
                self.seen.append((ends[1].dtype, ends[0].dtype, ends[1].numel()))
        return out


class Elsewhere(Late):
    """From a device that holds nothing, nothing comes back but zeros."""

    def send(self, buffer, value):
        self.coming.append((buffer, torch.zeros(value.shape, dtype=value.dtype)))


@pytest.mark.parametrize("attacked", [True, np.arange(6) < 3])
def test_bytes_travel_as_bytes(monkeypatch, attacked):
    monkeypatch.setattr(transfer, "between", lambda device: Elsewhere(device))
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2 * 4 * 4, 3))
    image = spaces.Box(0, 255, (2, 4, 4), np.uint8)
    victim = adv.from_module(net, image, spaces.Discrete(3), "q", device="meta")
    made = hosted(adv.MinBest(victim, steps=2), image, budget=adv.Linf(2))
    made.home = torch.device("meta")
    with Crossing() as border:
        y = made.apply(np.ones((6, 2, 4, 4), np.uint8), attacked)
    assert y.dtype == np.uint8
    rows = 6 if attacked is True else 3
    assert [crossing for crossing in border.seen if crossing[2] >= rows * 32] == [(torch.uint8, torch.uint8, rows * 32)]
    assert all(given == got for given, got, _ in border.seen)


@pytest.mark.parametrize("preset", ["noise:eps=0.1", "pgd:eps=0.1"])
def test_on_a_processor_nothing_is_staged(preset):
    env = adv.wrap(gym.make("CartPole-v1"), preset, victim="zoo:cartpole-dqn")
    assert env.engine.applied.transfer is None and env.engine.state.graphs is None
