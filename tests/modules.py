"""A module that notes that it was imported, for files that name one."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import adv_wrappers


@pytest.fixture
def noted_module(tmp_path, monkeypatch):
    """Its name, and a function that says whether it was imported; it registers nothing."""
    name, note = f"noted_{tmp_path.name}", tmp_path / "imported"
    (tmp_path / f"{name}.py").write_text(f"open({str(note)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name, note.exists
    sys.modules.pop(name, None)


def card_naming(folder, id, kwargs=None):
    """A card of the zoo's DQN whose environment is another one; its reference."""
    shutil.copytree(Path(adv_wrappers.__file__).parent / "zoo" / "cartpole-dqn", folder)
    card = json.loads((folder / "card.json").read_text())
    card["environment"] = {"id": id, "kwargs": kwargs or {}}
    (folder / "card.json").write_text(json.dumps(card))
    return f"card:{folder}"
