"""How much memory an attack holds: copies of the batch that are alive at once, beside the true values themselves.

Counted are the storages that an attack allocates, at every kernel that it runs: what a kernel allocates within and
frees again is not seen. Batches of the victim's own (activations, gradients of them) are told by their size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from adv_wrappers import MinBest, from_module
from adv_wrappers.attacks.noise import Noise
from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.perturbation import Perturbation
from adv_wrappers.core.threat import ThreatModel
from adv_wrappers.threats.presets import presets
from adv_wrappers.utils.trees import tensors

ROWS = {"mlp": 4096, "cnn": 16}  # so many that what is drawn at once is less than a batch
MLP = spaces.Box(-5, 5, (17,), np.float32)
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)


class Meter(TorchDispatchMode):
    """Bytes of the storages made within that are alive: those with whole batches of observations, and the others.

    Attributes:
        copies, rest: the most of either at any one time, in batches of observations as floats, and in bytes.
        held: what was alive when ``copies`` was reached: the kernel, and who made every copy.
    """

    def __init__(self, count: int, itemsize: int = 4) -> None:
        super().__init__()
        self.count, self.batch = count, count * itemsize
        self.copies, self.rest, self.held = 0.0, 0, []
        self._alive, self._known = [], set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        known = {tensor.untyped_storage()._cdata for tensor in tensors((args, kwargs))}
        out = function(*args, **(kwargs or {}))
        self._alive = [item for item in self._alive if not item[0].expired()]
        alive = {item[0].cdata for item in self._alive}
        for tensor in tensors(out):
            storage = tensor.untyped_storage()
            if storage._cdata not in known | alive:
                whole = tensor.numel() >= self.count and tensor.numel() % self.count == 0
                self._alive.append((StorageWeakRef(storage), storage.nbytes(), whole, function.name()))
                alive.add(storage._cdata)
        held = [(name, size / self.batch) for _, size, whole, name in self._alive if whole]
        copies = sum(size for _, size in held)
        if copies > self.copies:
            self.copies, self.held = copies, [function.name(), *held]
        self.rest = max(self.rest, sum(size for _, size, whole, _ in self._alive if not whole))
        return out


def test_the_meter_counts_what_is_alive():
    x = torch.zeros(4, 5)
    with Meter(20) as meter:
        y = x + 1
        z = (y * 2).sub_(1)
        del y
        w = torch.cat([z, x]).view(8, 5)[:4]
        small = z.sum(1)
    assert meter.copies == 3 and meter.rest == small.nbytes and len(w) == 4
    with Meter(20) as meter:
        for _ in range(5):
            x = x + 1
    assert meter.copies == 2


def network(space):
    if space is MLP:
        return nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6))
    convolutions = (
        nn.Conv2d(4, 32, 8, 4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, 2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
    )
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6))


def attack(how, space, budget):
    """What one attack of the engine on tensors holds."""
    rows = ROWS["mlp" if space is MLP else "cnn"]
    engine = Engine(ThreatModel("observation", how, budget), space, spaces.Discrete(6), rows)
    engine.to(torch.device("cpu"))
    x = torch.randint(0, 255, (rows, *space.shape)).to(torch.uint8)
    x = x if space is IMAGES else x / 100
    engine.apply(x, True)  # tables that are made once
    with Meter(x.numel()) as meter:
        engine.apply(x, True)
    return meter


PGD = MinBest(steps=10, step=0.25, random_start=True)

# Copies beside the true values. One is the attack's own, which it may write to. The two sides of the box and the point
# where the attack stands are three more; the next is the gradient, which is the victim's, and which the next step is
# written over. Above that are the direction that momentum keeps, the noise of max-diff, and draws and true values on
# their way into another layout; where the space is made of floats, while a side of the box is rounded, also a mask of a
# quarter, the next floats and the choice of both.
REACHED = {("pgd", "mlp"): 7.25, ("momentum", "cnn"): 7, ("max-diff", "mlp"): 8.25}


@pytest.mark.parametrize(("preset", "net"), REACHED)
def test_copies_of_an_attack(preset, net):
    space = {"mlp": MLP, "cnn": IMAGES}[net]
    victim = from_module(network(space), space, spaces.Discrete(6), "q")
    how = PGD if preset == "pgd" else presets[preset].kind(**presets[preset].arguments)
    meter = attack(replace(how, victim=victim), space, Linf(1.0))
    most = REACHED[preset, net]
    assert 3 <= meter.copies - 1 <= most, f"{meter.copies - 1} copies, at most {most} were: {meter.held}"
    activations = ROWS[net] * (2 * 64 + 17 + 2 * 6) if net == "mlp" else ROWS[net] * (12800 + 2 * 5184 + 3136 + 512)
    assert meter.rest < 3 * 4 * activations, f"{meter.rest} bytes of activations"


@dataclass(frozen=True)
class Still(Perturbation):
    """Stays where it is."""

    name: ClassVar[str] = "test-still"
    capturable: ClassVar[bool] = True

    def __call__(self, x, context):
        return x


@pytest.mark.parametrize("space", [MLP, IMAGES], ids=["mlp", "cnn"])
def test_copies_of_the_engine(space):
    """The true values as numbers, a copy, two bounds and the result; bounds are first widened to hold the values."""
    assert attack(Still(), space, Linf(1.0)).copies <= (5 if space is IMAGES else 8.25)


def test_copies_of_noise():
    assert attack(Noise(), IMAGES, Linf(1.0)).copies - 1 <= 4
