"""The shape of the package: imports go down only and in no circles, and the name of a class means one thing.

The order of the floors, and what each may import from outside, is written here once.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import adv_wrappers

ROOT = Path(adv_wrappers.__file__).parent
FLOORS = [
    "errors",
    "registry",
    "utils",
    "networks",
    "bounds",
    "accel",
    "core",
    "victims",
    ("attacks", "daylight", "faults"),
    "adversaries",
    "threats",
    "environments",
    "wrappers",
    "atari",
    ("environments.environment", "environments.registration", "environments.named_function"),
    "rendering",
    "evaluation",
    "certification",
    "training",
    "studies",
    "public",
    "cli",
]
LEVEL = {name: i for i, floor in enumerate(FLOORS) for name in ((floor,) if isinstance(floor, str) else floor)}
SIBLINGS = {"attacks", "daylight", "faults"}
SB3 = ("victims/sb3/", "wrappers/sb3", "training/")
FILES = sorted(p for p in ROOT.rglob("*.py"))
KNOWN = frozenset(FILES)


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """The imports and the heads of classes of a file, wherever in it; to parse whole files takes seconds."""
    lines = r"^[ \t]*((?:from [\w.]+ )?import (?:\([^)]*\)|[^(\n]+)|class \w+)"
    found = re.findall(lines, path.read_text(encoding="utf-8"), re.MULTILINE)
    return [node for text in found for node in ast.parse(text + ": pass" * text.startswith("class ")).body]


def imports(path: Path):
    """Names of the modules that a file imports, those under TYPE_CHECKING and inside functions included."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((node.module, alias.name) for alias in node.names)


def floor_of(*parts: str) -> str:
    """The floor of a module, by its name in the package: that of its folder, unless the file has one of its own."""
    own = ".".join(parts[:2])
    return own if own in LEVEL else parts[0]


def faults(path: Path) -> list[str]:
    """Arrows of a file that go up, sideways between siblings, or out where they must not."""
    here = floor_of(*path.relative_to(ROOT).with_suffix("").parts)
    found = []
    name = path.relative_to(ROOT).as_posix()
    top = here in ("__init__", "__main__")
    if not top and here not in LEVEL:
        return [f"{name} is on no floor: add it to FLOORS"]
    for module, item in imports(path):
        parts = module.split(".")
        if parts[0] == "adv_wrappers":
            target = floor_of(*parts[1:], item)
            if top or (target.startswith("__") and LEVEL[here] >= LEVEL["environments.registration"]):
                continue
            if target not in LEVEL:
                found.append(f"{name} imports {module}.{item}")
            elif LEVEL[target] > LEVEL[here] or (target != here and {target, here} <= SIBLINGS):
                found.append(f"{name} imports {module}: {target} is not below {here}")
        elif parts[0] == "gymnasium" and not top and here != "registry" and LEVEL[here] < LEVEL["environments"]:
            if module != "gymnasium.spaces" and not (module == "gymnasium" and item == "spaces"):
                found.append(f"{name} imports {module} {item}: below environments only gymnasium.spaces")
        elif (parts[0] in ("stable_baselines3", "sb3_contrib") and not name.startswith(SB3)) or (
            parts[0] == "ray" and name != "studies/ray_cluster.py"
        ):
            found.append(f"{name} imports {module}")
    return found


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def targets(path: Path) -> set[Path]:
    """Files of the package that a file imports, wherever in it."""
    found = set()
    for module, item in imports(path):
        if module.partition(".")[0] != ROOT.name:
            continue
        place = ROOT.parent.joinpath(*module.split("."))
        inner = place / item
        for file in (inner.with_suffix(".py"), inner / "__init__.py", place.with_suffix(".py"), place / "__init__.py"):
            if file in KNOWN:
                found.add(file)
                break
    return found - {path}


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Files each of which imports the one before, back to the first; none where there is no circle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_imports_run_in_no_circles():
    assert circle({named(path): {*map(named, targets(path))} for path in FILES}) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert {*circle({"a": {"b"}, "b": {"a", "c"}, "c": set()})} == {"a", "b"}
    assert {*circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})} == {"a", "b", "c"}


def test_class_names_are_unique():
    found = defaultdict(list)
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(named(path))
    double = {name: where for name, where in found.items() if len(where) > 1}
    print(f"classes of the same name: {double or 'none'}")
    assert not double


def test_arrows_go_down():
    assert not [fault for path in FILES for fault in faults(path)]


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("core/x.py", "from adv_wrappers.victims.victim import Victim"),
        ("attacks/x.py", "from adv_wrappers.faults.trigger import Trigger"),
        ("core/timing.py", "from adv_wrappers.threats.presets import threat"),
        ("core/x.py", "import gymnasium as gym"),
        ("attacks/x.py", "from gymnasium.vector import VectorEnv"),
        ("threats/presets.py", "def f():\n    from adv_wrappers.wrappers.wrap import wrap"),
        ("wrappers/layer.py", "import stable_baselines3"),
        ("new.py", "import math"),
        ("evaluation/x.py", "from adv_wrappers.cli import main"),
    ],
)
def test_an_arrow_that_goes_up_is_found(tmp_path, monkeypatch, where, line):
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / where).write_text(line)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert faults(tmp_path / where)
