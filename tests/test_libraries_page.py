"""The script that runs the snippets of the page of other libraries, and writes down what became of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def load(path):
    spec = importlib.util.spec_from_file_location("libraries_script", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


libraries = load(ROOT / ".ci" / "libraries.py")

PAGE = """\
Other libraries
===============

Words.

.. begin of what .ci/libraries.py writes
.. end of what .ci/libraries.py writes

skrl
----

.. testcode::

   x = 1

   def twice():
       return 2 * x

.. testcode::
   :skipif: lacking("nowhere")

   raise RuntimeError("not to be run")

sbx
---

.. doctest::
   :skipif: False

   >>> twice()
   2

::

   y = "no snippet"

Minari
------

.. testcode::

   1 / 0

.. testcode::

   z = 3
"""


@pytest.fixture
def ran(monkeypatch):
    monkeypatch.setattr(libraries, "releases", lambda title: f"{title} 1.0")
    names = {"lacking": lambda module: module == "nowhere"}
    found = libraries.sections(PAGE)
    for section in found:
        libraries.run(section, names)
    return found, names


def test_sections_and_their_snippets():
    found = libraries.sections(PAGE)
    assert [(s.title, [b.kind for b in s.snippets]) for s in found] == [
        ("skrl", ["testcode", "testcode"]), ("sbx", ["doctest"]), ("Minari", ["testcode", "testcode"]),
    ]  # fmt: skip
    assert found[0].snippets[1].skipif == 'lacking("nowhere")' and found[0].snippets[0].skipif is None
    assert "def twice():\n    return 2 * x" in found[0].snippets[0].code


def test_a_section_that_fails_stops_no_other(ran):
    found, names = ran
    assert [(s.ran, s.skipped, s.error) for s in found] == [
        (1, 1, ""), (1, 0, ""), (0, 0, "ZeroDivisionError: division by zero"),
    ]  # fmt: skip
    assert "z" not in names and names["x"] == 1
    lines = [*libraries.report(found)]
    assert "skrl" in lines[0] and "1 of 2" in lines[0] and "failed" in lines[2]


def test_another_answer_fails():
    section = libraries.sections(PAGE.replace("   2\n\n::", "   3\n\n::"))[1]
    libraries.run(section, {"twice": lambda: 2})
    assert section.error and not section.ran


def test_the_table_gets_rows_in_the_order_of_the_page_and_keeps_others(ran):
    found, _ = ran
    last = libraries.with_table(PAGE, found[2:])
    assert "   * - Minari\n     - Minari 1.0\n" in last and "     - 0 of 2\n     - failed\n" in last
    whole = libraries.with_table(last, found[:1])
    assert [*libraries.rows(whole)] == ["skrl", "Minari"]
    assert libraries.with_table(whole, found[:1]) == whole
    assert whole.startswith("Other libraries\n===") and whole.endswith("z = 3\n")


def test_what_is_not_installed_gets_no_row(monkeypatch):
    monkeypatch.setitem(libraries.LIBRARIES, "skrl", ("adv-wrappers-has-no-such-package",))
    (section, *_) = libraries.sections(PAGE)
    section.ran = 1
    assert libraries.releases("skrl") is None
    assert not libraries.rows(libraries.with_table(PAGE, [section]))


def test_a_section_that_is_not_there_is_an_error(capsys):
    with pytest.raises(SystemExit):
        libraries.main(["sklr"])
    assert "no section sklr with snippets in libraries.rst" in capsys.readouterr().err


def test_the_page_itself():
    """Every library that the script knows has a section with snippets and a row that says that they ran."""
    text = libraries.PAGE.read_text(encoding="utf-8")
    titles = [section.title for section in libraries.sections(text)]
    assert set(libraries.LIBRARIES) <= set(titles)
    rows = libraries.rows(text.split(libraries.BEGIN)[1].split(libraries.END)[0])
    assert set(rows) == set(libraries.LIBRARIES)
    for title, row in rows.items():
        done, of = map(int, row[3].split(" of "))
        assert row[4] == "ran" and done == of, f"{title}: {row}"
    assert "lacking" in libraries.setup()
