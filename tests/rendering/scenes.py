"""A picture to look at, without an environment."""

from __future__ import annotations

import numpy as np


def scene(frames=4, size=44, seed=0):
    """A picture with edges and some texture, uint8 ``[F, H, W]``."""
    rng = np.random.default_rng(seed)
    x = np.full((frames, size, size), 80, np.uint8)
    x[:, 6:12] = 200
    for i in range(frames):
        x[i, 20 : 26 + i, 10 + i : 18 + i] = 150
    return x + rng.integers(0, 6, x.shape, dtype=np.uint8)
