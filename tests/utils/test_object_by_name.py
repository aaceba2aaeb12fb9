"""What a text names: in packages, in the current directory, and nowhere."""

from __future__ import annotations

import sys

import pytest

from adv_wrappers.errors import SpaceError, ThreatError
from adv_wrappers.utils.object_by_name import object_by_name
from tests.every_case import every_case


def test_a_name_may_have_dots_and_lie_in_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "own_module_here.py").write_text("class A:\n    b = 3\n")
    assert object_by_name("own_module_here:A.b", ThreatError) == 3


@every_case(
    ("text", "said"),
    [("math", "expected module:name"), ("math:", "expected module:name"), ("math:no.pi", "has no 'no.pi'"),
     ("no_such_module_x:a", "cannot import 'no_such_module_x'")],
)  # fmt: skip
def test_what_is_not_there_raises_the_error_that_was_asked_for(text, said):
    with pytest.raises(SpaceError, match=said):
        object_by_name(text, SpaceError)
