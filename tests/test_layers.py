"""Imports go down only. The order of the floors, and what each may import from outside, is written here once."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import adv_wrappers

ROOT = Path(adv_wrappers.__file__).parent
FLOORS = [
    "errors",
    "utils",
    "networks",
    "bounds",
    "accel",
    "core",
    "victims",
    "timing",
    ("attacks", "daylight", "actions"),
    "adversaries",
    "parsing",
    "presets",
    "formatting",
    "snapshots",
    "wrappers",
    "atari",
    "registration",
    "daylight_ids",
    "rendering",
    "evaluation",
    "certification",
    "training",
    "campaign",
    "testing",
    "cli",
]
LEVEL = {name: i for i, floor in enumerate(FLOORS) for name in ((floor,) if isinstance(floor, str) else floor)}
# arrows that point up and are still to be turned
PENDING: set[tuple[str, str]] = set()
SIBLINGS = {"attacks", "daylight", "actions"}
SB3 = ("victims/sb3", "wrappers/sb3", "training/")
FILES = sorted(p for p in ROOT.rglob("*.py"))


def imports(path: Path):
    """Names of the modules that a file imports, those under TYPE_CHECKING and inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def floor_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def faults(path: Path) -> list[str]:
    """Arrows of a file that go up, sideways between siblings, or out where they must not."""
    here, found = floor_of(path), []
    name = path.relative_to(ROOT).as_posix()
    top = here in ("__init__", "__main__")
    if not top and here not in LEVEL:
        return [f"{name} is on no floor: add it to FLOORS"]
    for module, item in imports(path):
        parts = module.split(".")
        if parts[0] == "adv_wrappers":
            target = parts[1] if len(parts) > 1 else item
            if top or (target.startswith("__") and LEVEL[here] >= LEVEL["registration"]):
                continue
            if target not in LEVEL:
                found.append(f"{name} imports {module}.{item}")
            elif (name, target) in PENDING:
                continue
            elif LEVEL[target] > LEVEL[here] or (target != here and {target, here} <= SIBLINGS):
                found.append(f"{name} imports {module}: {target} is not below {here}")
        elif parts[0] == "gymnasium" and not top and LEVEL[here] < LEVEL["wrappers"]:
            if module != "gymnasium.spaces" and not (module == "gymnasium" and item == "spaces"):
                found.append(f"{name} imports {module} {item}: below wrappers only gymnasium.spaces")
        elif (parts[0] in ("stable_baselines3", "sb3_contrib") and not name.startswith(SB3)) or (
            parts[0] == "ray" and name != "campaign/cluster.py"
        ):
            found.append(f"{name} imports {module}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_arrows_go_down(path):
    assert not faults(path)


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("core/x.py", "from adv_wrappers.timing import Every"),
        ("attacks/x.py", "from adv_wrappers.actions.flip import ActionFlip"),
        ("timing.py", "from adv_wrappers.presets import threat"),
        ("core/x.py", "import gymnasium as gym"),
        ("attacks/x.py", "from gymnasium.vector import VectorEnv"),
        ("presets.py", "def f():\n    from adv_wrappers.wrappers.stack import wrap"),
        ("wrappers/env.py", "import stable_baselines3"),
        ("new.py", "import math"),
        ("evaluation/x.py", "from adv_wrappers.cli import main"),
    ],
)
def test_an_arrow_that_goes_up_is_found(tmp_path, monkeypatch, where, line):
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_text(line)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert faults(tmp_path / where)
