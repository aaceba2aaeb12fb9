"""Every draw is what it was: results that people published can be had again, to the bit.

``python -m tests.core.test_draws`` records the draws anew, which a change must have a reason for.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from adv_wrappers.core import rng
from adv_wrappers.core.budgets.budget import L0, L2, Linf, Sparse, Valid
from adv_wrappers.core.engine.context import AttackedStep, Context
from adv_wrappers.core.engine.engine import Engine
from adv_wrappers.core.threat import ThreatModel
from tests.core.tape import elsewhere

FILE = Path(__file__).with_name("draws.json")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
INTEGERS = [0, 1, 5, 2**31, 2**63 - 1, 2**63, 2**64 - 1]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (4,), (3, 5), (376,), (84, 84, 4), (70000,)]
BUDGETS = {
    "linf": Linf(0.5), "scaled": Linf(0.5, (1.0, 0.0, 2.0)), "l2": L2(0.5), "l0": L0(2), "valid": Valid(),
    "sparse": Sparse(1, Linf(0.5, (1.0, 0.5, 2.0))),
}  # fmt: skip


def nothing(x: torch.Tensor, context: Context) -> torch.Tensor:
    """Leaves observations as they are."""
    return x


def code(value: Any) -> str:
    """A hash of the bytes, the shape and the dtype."""
    array = np.ascontiguousarray(value)
    return hashlib.sha256(f"{array.shape} {array.dtype}".encode() + array.tobytes()).hexdigest()[:16]


def some(value: torch.Tensor) -> list[float]:
    """Up to five numbers out of many, and the mean of all."""
    flat = value.double().flatten()
    return [*flat[:: max(len(flat) // 4, 1)][:5].tolist(), float(flat.mean())] if len(flat) else []


def keys(rows: int) -> torch.Tensor:
    """Keys of several rows."""
    values = [rng.fold(rng.root(row), 3 * row) for row in range(rows)]
    return rng.as_tensor(rng.roots(values), rows, torch.device("cpu"))


def of_integers() -> Iterator[tuple[str, Any]]:
    """Keys made of keys, in numbers, arrays and tensors."""
    yield "root", [rng.root(seed) for seed in INTEGERS]
    yield "fold", [[rng.fold(key, data) for key in INTEGERS] for data in INTEGERS]
    yield "uniform_of", [rng.uniform_of(key) for key in INTEGERS]
    array, data = rng.roots(INTEGERS), np.arange(len(INTEGERS)) * 2**40
    tensor = rng.as_tensor(array, len(array), torch.device("cpu"))
    yield "array", [code(rng.fold(array, data)), code(rng.fold(array, 7)), code(rng.uniform_of(array))]
    yield "tensor", [code(rng.fold(tensor, torch.as_tensor(data))), code(rng.fold(tensor, 7)), code(tensor)]


def of_shapes() -> Iterator[tuple[str, Any]]:
    """Draws in many shapes, also of more numbers than are drawn at once."""
    for rows in (1, 3, 65):
        for shape in SHAPES:
            if rows > 3 and len(shape) == 3:
                continue
            name = f"{rows} rows {shape}"
            for kind, dtype in DTYPES.items():
                yield f"signs {name} {kind}", code(rng.signs(keys(rows), shape, dtype))
                for start in (0, 7, 40000)[: 3 if rows == 3 else 1]:
                    yield f"uniform {name} {kind} from {start}", code(rng.uniform(keys(rows), shape, dtype, start))
                    drawn = rng.normal(keys(rows), shape, dtype, start)
                    yield f"normal {name} {kind} from {start}", [list(drawn.shape), some(drawn)]


def of_contexts() -> Iterator[tuple[str, Any]]:
    """Draws as attacks and timings have them: in layers, rows, episodes and steps."""
    space = spaces.Box(-4.0, 4.0, (3,), np.float64)
    for (kind, budget), rows, layer in itertools.product(BUDGETS.items(), (None, 1, 4), (0, 2)):
        if kind != "linf" and (rows, layer) != (4, 2):
            continue
        threat = ThreatModel("observation", nothing, budget)
        engine = Engine(threat, space, spaces.Discrete(2), rows, stream=layer)
        engine.begin_episode(11 if rows is None else [11 + row for row in range(rows)])
        for step in range(3):
            yield from of_engine(f"{kind} {rows} rows, layer {layer}, step {step}", engine, rows)
            engine.clock.tick()
        engine.begin_episode()
        yield from of_engine(f"{kind} {rows} rows, layer {layer}, another episode", engine, rows)


def of_engine(name: str, engine: Engine, rows: int | None) -> Iterator[tuple[str, Any]]:
    """The draws of one step."""
    x = np.linspace(-3, 3, 3 * (rows or 1)).reshape(rows or 1, 3)
    yield f"{name}: chance", [code(engine.chance(path, gate)) for path in (0, 1) for gate in (None, 0, 3)]
    for some_rows in (None,) if rows is None or rows < 4 else (None, np.array([0, 3])):
        context = Context(AttackedStep(engine.applied, engine.state, x[0] if rows is None else x, x, some_rows))
        part = "all" if some_rows is None else "some"
        yield f"{name} {part}: keys", [code(context.key), code(context.episode_key)]
        yield f"{name} {part}: exact", [code(context.uniform()), code(context.signs()), code(context.numbers(5))]
        yield f"{name} {part}: noise", [some(context.noise(kind)) for kind in ("uniform", "sign", "gaussian")]
        yield f"{name} {part}: draw", some(context.draw())
        yield f"{name} {part}: normals", [*map(some, [context.normal(), *context.normals(3)])]


def of_images() -> Iterator[tuple[str, Any]]:
    """Draws for stacks of frames, of which several steps do not fit into one piece."""
    space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    engine = Engine(ThreatModel("observation", nothing, Linf(2)), space, spaces.Discrete(2), 2)
    engine.begin_episode([1, 2])
    x = np.full((2, 84, 84, 4), 7, np.uint8)
    context = Context(AttackedStep(engine.applied, engine.state, x, x))
    yield "frames", [*map(code, (context.draw(), context.noise("uniform"), context.noise("sign")))]
    yield "frames: normals", [*map(some, context.normals(6))]


PARTS = {"integers": of_integers, "shapes": of_shapes, "contexts": of_contexts, "images": of_images}


def close(name: str, new: Any, old: Any) -> bool:
    """Whether hashes are equal, and numbers up to the rounding of the last places."""
    if isinstance(new, (list, tuple)):
        return len(new) == len(old) and all(close(name, a, b) for a, b in zip(new, old, strict=True))
    if isinstance(new, float) and name != "uniform_of":
        few = 2e-6 if "float32" in name or "frames" in name else 1e-14  # erfinv rounds differently on other machines
        return bool(np.isclose(new, old, few, few))
    return bool(new == old)


@pytest.mark.parametrize(
    ("part", "where"), [*((part, "host") for part in PARTS), ("integers", "elsewhere"), ("images", "elsewhere")]
)
def test_draws_are_those_that_were_recorded(part, where, monkeypatch):
    if where == "elsewhere":
        elsewhere(monkeypatch)
    recorded, made = json.loads(FILE.read_text())[part], dict(PARTS[part]())
    assert made.keys() == recorded.keys()
    assert [name for name, value in made.items() if not close(name, value, recorded[name])] == []


if __name__ == "__main__":
    drawn = {part: dict(function()) for part, function in PARTS.items()}
    FILE.write_text(json.dumps(drawn, indent=0) + "\n")
