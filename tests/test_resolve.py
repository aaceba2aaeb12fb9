"""The pins of ``constraints.txt``, and the check that they fit together on every supported Python and platform."""

from __future__ import annotations

import importlib.util
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

from tests.every_case import every_case

ROOT = Path(__file__).parent.parent


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


resolve = load(ROOT / ".ci" / "resolve.py")


def name_of(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[]", requirement)[0].lower().replace("_", "-")


def pinned() -> list[str]:
    lines = resolve.CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return [name_of(line) for line in lines if not line.startswith("#")]


def test_what_torch_asks_for_is_not_pinned():
    assert [name for name in pinned() if any(fnmatch(name, pattern) for pattern in resolve.OF_TORCH)] == []


@every_case("environment", resolve.ENVIRONMENTS)
def test_what_the_commands_ask_for_by_name_is_pinned(environment):
    asked = {name_of(requirement) for requirement in resolve.tox_requirements(environment)}
    assert asked - set(pinned()) <= {"triton"}


def test_extras_name_others():
    assert {"dm_control", "hypothesis"} <= {re.split("[<>=; ]", r)[0] for r in resolve.tox_requirements("py")}
    assert resolve.tox_requirements("style") == ["ruff"]
    assert not any(requirement.startswith("adv_wrappers") for requirement in resolve.tox_requirements("py"))


def test_supported_pythons_are_the_same_everywhere():
    setup, tox = resolve.read("setup.cfg"), resolve.read("tox.ini")
    classifiers = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    environments = re.findall(r"py3(\d+)", tox["tox"]["env_list"])
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert tuple(classifiers) == tuple(f"3.{minor}" for minor in environments) == resolve.PYTHONS
    assert setup["options"]["python_requires"] == f">={resolve.PYTHONS[0]}"
    assert f'target-version = "py{resolve.PYTHONS[0].replace(".", "")}"' in pyproject
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"{resolve.PYTHONS[0]} to {resolve.PYTHONS[-1]}" in (ROOT / page).read_text(encoding="utf-8")


def test_the_check_resolves_what_the_readme_runs():
    command = re.search(r"tox -p 2 -e ([a-z,]+)", (ROOT / "README.md").read_text(encoding="utf-8"))[1].split(",")
    assert set(command) - {"resolve"} == set(resolve.ENVIRONMENTS) - {"demo"}
    assert f"tox -p 2 -e {','.join(command)}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
