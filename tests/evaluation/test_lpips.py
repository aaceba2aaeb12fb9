"""Lpips: the paper's formula in loops, what the backbone is shown, and a clear no to everything that is not one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adv_wrappers.errors import SpaceError, ValueRangeError
from adv_wrappers.evaluation.image_distances import BATCH, SCALE, SHIFT, Lpips
from tests.every_case import every_case

RNG = np.random.default_rng(1)


class Trunk(nn.Module):
    """Two layers of features with fixed weights."""

    def __init__(self) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 5, 3), nn.Conv2d(5, 7, 3, stride=2)
        with torch.no_grad():
            for part in self.parameters():
                part.copy_(torch.randn(part.shape, generator=draws))

    def forward(self, x: Tensor) -> list[Tensor]:
        a = self.first(x).relu()
        return [a, self.second(a).relu()]


WEIGHTS = [RNG.random(5), RNG.random(7)]


def by_hand(trunk: Trunk, x: np.ndarray, y: np.ndarray, weights: list[np.ndarray] | None) -> float:
    """Equation 1 of Zhang et al. 2018 for two pictures ``[3, H, W]`` in [-1, 1], in loops."""
    maps = []
    for picture in (x, y):
        scaled = (picture - np.reshape(SHIFT, (3, 1, 1))) / np.reshape(SCALE, (3, 1, 1))
        with torch.no_grad():
            maps.append([m[0].double().numpy() for m in trunk(torch.as_tensor(scaled[None], dtype=torch.float32))])
    total = 0.0
    for layer, (a, b) in enumerate(zip(*maps, strict=True)):
        places = []
        for i in range(a.shape[1]):
            for j in range(a.shape[2]):
                u, v = a[:, i, j], b[:, i, j]
                gap = (u / (np.linalg.norm(u) + 1e-10) - v / (np.linalg.norm(v) + 1e-10)) ** 2
                places.append((gap * (1 if weights is None else weights[layer])).sum())
        total += np.mean(places)
    return float(total)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_it_is_the_formula_of_the_paper(weights: list[np.ndarray] | None) -> None:
    x, y = RNG.random((2, 3, 3, 12, 9))
    want = [by_hand(Trunk(), 2 * a - 1, 2 * b - 1, weights) for a, b in zip(x, y, strict=True)]
    found = Lpips(Trunk(), weights)(x, y)
    assert found.dtype == torch.float64 and found.tolist() == pytest.approx(want, rel=1e-5) and want[0] > 0.01
    bytes_x, bytes_y = ((255 * z).round().astype(np.uint8) for z in (x, y))
    assert Lpips(Trunk(), weights)(bytes_x, bytes_y).tolist() == pytest.approx(want, rel=0.05)
    assert Lpips(Trunk(), weights, limits=(-1, 1))(2 * x - 1, 2 * y - 1).tolist() == pytest.approx(want, rel=1e-5)


def test_equal_images_are_at_zero_and_the_order_does_not_matter() -> None:
    x, y = RNG.random((2, 3, 3, 12, 9))
    lpips = Lpips(Trunk())
    assert lpips(x, x).tolist() == [0, 0, 0] and (lpips(x, y) > 0).all()
    assert lpips(x, y).tolist() == pytest.approx(lpips(y, x).tolist(), rel=1e-5)


def test_the_backbone_sees_colours_scaled_as_it_expects() -> None:
    seen: list[Tensor] = []

    def backbone(images: Tensor) -> list[Tensor]:
        seen.append(images)
        return [images]

    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    colour = RNG.integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
    Lpips(backbone, mean=mean, std=std)(colour, colour)
    want = ((colour / 127.5 - 1 - mean) / std).transpose(0, 3, 1, 2)
    assert seen[0].dtype == torch.float32 and torch.allclose(seen[0][:2].double(), torch.as_tensor(want), atol=1e-6)
    grey = colour[..., 0]
    Lpips(backbone, mean=(0, 0, 0), std=(1, 1, 1))(grey, grey)
    assert seen[1].shape == (4, 3, 6, 5) and (seen[1] == seen[1][:, :1]).all()


def test_a_stack_is_the_mean_of_its_frames_also_in_pieces() -> None:
    x, y = RNG.random((2, BATCH, 4, 12, 9))
    lpips = Lpips(Trunk(), WEIGHTS)
    each = torch.stack([lpips(x[:, i], y[:, i]) for i in range(4)], 1).mean(1)
    assert lpips(x, y).tolist() == pytest.approx(each.tolist(), rel=1e-4)
    last = lpips(np.moveaxis(x, 1, -1), np.moveaxis(y, 1, -1))
    assert last.tolist() == pytest.approx(each.tolist(), rel=1e-4)


def test_it_says_which_variant_it_is() -> None:
    plain, linear = Lpips(Trunk()), Lpips(Trunk(), WEIGHTS)
    assert (plain.kind, plain.name, linear.kind, linear.name) == ("baseline", "lpips-baseline", "lin", "lpips")
    assert "baseline" in repr(plain) and "not 'lin'" in repr(plain) and "unweighted" not in repr(linear)
    assert Lpips(Trunk(), name="vgg").name == "vgg"


def test_weights_and_outputs_in_other_forms() -> None:
    x, y = RNG.random((2, 2, 12, 9))
    want = Lpips(Trunk(), WEIGHTS)(x, y).tolist()
    stored = [torch.as_tensor(w, dtype=torch.float32).view(1, -1, 1, 1) for w in WEIGHTS]
    assert Lpips(Trunk(), stored)(x, y).tolist() == pytest.approx(want, rel=1e-5)
    trunk = Trunk()
    named = Lpips(lambda z: OrderedDict(zip("ab", trunk(z), strict=True)), WEIGHTS)
    assert named(x, y).tolist() == want
    assert Lpips(Trunk().double(), WEIGHTS)(x, y).tolist() == pytest.approx(want, rel=1e-5)


@every_case(
    ("arguments", "message"),
    [
        ({}, "needs a backbone"), ({"backbone": "vgg"}, "needs a backbone"), ({"backbone": Trunk}, "needs a backbone"),
        ({"backbone": Trunk(), "weights": [WEIGHTS[0], -WEIGHTS[1]]}, "layer 1"),
        ({"backbone": Trunk(), "weights": [[np.inf]]}, "finite"),
        ({"backbone": Trunk(), "weights": [np.ones((2, 2))]}, "expected weights"),
        ({"backbone": Trunk(), "mean": (0.5,)}, "3 colours"), ({"backbone": Trunk(), "std": (0, 1, 1)}, "above zero"),
    ],
)  # fmt: skip
def test_what_it_cannot_be_made_of(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueRangeError, match=message):
        Lpips(**arguments)


@every_case(
    ("output", "message"),
    [
        (lambda x: x, "list, tuple or dictionary"), (lambda x: [], "list, tuple or dictionary"),
        (lambda x: [x.flatten(1)], "maps"), (lambda x: [x[:1]], "maps"), (lambda x: [x.long()], "maps"),
        (lambda x: {"a": 3}, "maps"), (lambda x: [x], r"\[5, 7\] channels, the backbone returned \[3\]"),
        (lambda x: Trunk()(x)[::-1], "channels"),
    ],
)  # fmt: skip
def test_outputs_that_are_no_features(output: Any, message: str) -> None:
    x = RNG.random((2, 12, 9))
    with pytest.raises(SpaceError, match=message):
        Lpips(output, WEIGHTS)(x, x)


def test_a_backbone_that_depends_on_the_batch_or_on_chance() -> None:
    for part in (nn.BatchNorm2d(3), nn.Dropout(0.5)):
        trunk = nn.Sequential(part)
        with pytest.raises(ValueRangeError, match=r"training mode and has .*call backbone.eval\(\)"):
            Lpips(trunk)
        made = Lpips(trunk.eval())
        trunk.train()
        with pytest.raises(ValueRangeError, match="training mode"):
            made(np.zeros((1, 12, 12)), np.zeros((1, 12, 12)))
    Lpips(Trunk().train())  # nothing in it behaves otherwise in training
