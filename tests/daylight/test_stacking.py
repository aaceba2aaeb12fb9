"""Transforms beneath and above a gradient attack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adv_wrappers as adv
from adv_wrappers.daylight import JPEG, MedianBlur, Perspective, Rotation
from tests.rigs import RIGS, ReplayEnv, run

RIG = RIGS["image"]
TRANSFORMS = {"median-blur": MedianBlur(3), "rotation": Rotation(3), "jpeg": JPEG(10), "perspective": Perspective(3)}


def attack():
    # in float64: which of two points that are as good is kept must not depend on the size of a batch
    return adv.threat("pgd", RIG.victim(torch.float64), eps=2, steps=2, step=1.0, restarts=2)


def played(*threats):
    """Two episodes of one environment under the threats."""
    return run("env", RIG, lambda env: adv.wrap(env, *threats), (8,))


@pytest.mark.parametrize("name", ["rotation", "jpeg"])
def test_the_attack_is_relative_to_the_transformed_frame(name):
    under, both = played(TRANSFORMS[name]), played(TRANSFORMS[name], attack())
    moved = [
        np.abs(a.astype(int) - b).max()
        for row, other in zip(under, both, strict=True)
        for e, f in zip(row, other, strict=True)
        for a, b in zip(e.seen, f.seen, strict=True)
    ]
    assert max(moved) == 2  # the whole budget, and no more


@pytest.mark.parametrize("name", ["median-blur", "perspective"])
def test_the_transform_of_the_attacked_frame(name):
    """The other way round the attack acts first, and the transform is what the agent gets."""
    attacked, both = played(attack()), played(attack(), TRANSFORMS[name])
    space = RIG.space
    for row, other in zip(attacked, both, strict=True):
        for e, f in zip(row, other, strict=True):
            again = adv.wrap(ReplayEnv([e.seen], space, RIG.actions), TRANSFORMS[name])
            seen = [again.reset(seed=0)[0], *(again.step(0)[0] for _ in e.seen[1:])]
            for a, b in zip(seen, f.seen, strict=True):
                np.testing.assert_array_equal(a, b)
