"""The frame of a page of results: rows that are kept as they come, a command that repeats them, and what is written."""

from __future__ import annotations

import json
import sys

import pytest

from tests.result_scripts import result_script


@pytest.fixture(scope="module")
def frame():
    with result_script("page") as module:
        yield module


@pytest.fixture
def page(frame, monkeypatch):
    """A page of squares, which counts what was measured."""
    monkeypatch.setattr(sys, "argv", ["/anywhere/benchmarks/reproduce/squares.py"])
    asked = []

    def square(number, power):
        asked.append(number)
        if number == 13:
            raise KeyboardInterrupt
        return {"value": number**power}

    def measure(results):
        for number in results.given.numbers:
            results.once(results.part("rows", "of one"), str(number), square, number, power=results.given.power)

    made = frame.Page(
        "squares",
        "Squares",
        "what it does",
        measure,
        lambda data: [", ".join(f"{name}: {row['value']}" for name, row in data["rows"]["of one"].items())],
        lambda data, folder: frame.write(folder / "squares.png", "a picture"),
        page="squares",
        options={
            "--numbers": {"nargs": "+", "type": int, "default": [2, 3]},
            "--power": {"type": int, "default": 2},
            **frame.WORK,
            **frame.AGAIN,
        },
        needs=["--work"],
        partly=["--numbers"],
    )
    return made, asked


def test_rows_are_measured_once_and_the_page_is_made_of_them(page, tmp_path):
    made, asked = page
    words = ["--work", "/secret", "--out", str(tmp_path)]
    made.main([*words, "--numbers", "2"])
    made.main(words)
    assert asked == [2, 3]
    data = json.loads((tmp_path / "squares.json").read_text())
    assert data["rows"] == {"of one": {"2": {"power": 2, "value": 4}, "3": {"power": 2, "value": 9}}}
    assert data["command"] == "python benchmarks/reproduce/squares.py --work FOLDER"
    text, processor = (tmp_path / "squares.md").read_text(), data["machine"].partition(", 1 thread")[0]
    assert f"## Squares\n\nMade by `{data['command']}` on {processor}.\n\n2: 4, 3: 9\n" in text
    assert (tmp_path / "squares.png").exists()
    made.main([*words, "--power", "3"])  # rows of other settings
    made.main([*words, "--power", "3", "--numbers", "2", "--again"])
    assert asked == [2, 3, 2, 3, 2]
    assert "2: 8, 3: 27\n" in (tmp_path / "squares.md").read_text()


def test_a_killed_run_goes_on_and_its_page_can_be_written(page, tmp_path):
    made, asked = page
    words = ["--work", "/secret", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        made.main([*words, "--numbers", "2", "13", "3"])
    assert [*tmp_path.iterdir()] == [tmp_path / "squares.json"]
    made.main(["--page", "--out", str(tmp_path)])  # needs no folder and measures nothing
    assert asked == [2, 13] and "\n\n2: 4\n" in (tmp_path / "squares.md").read_text()
    made.main([*words, "--numbers", "2", "3"])
    assert asked == [2, 13, 3]


def test_what_is_missing_is_said_before_anything_is_measured(page, tmp_path, capsys):
    made, asked = page
    with pytest.raises(SystemExit):
        made.main(["--out", str(tmp_path)])
    assert "--work FOLDER is needed" in capsys.readouterr().err and asked == []
    with pytest.raises(SystemExit, match=r"squares\.json has no rows"):
        made.main(["--page", "--out", str(tmp_path)])


def test_a_command_names_no_folder(frame, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/home/me/benchmarks/attacks.py"])
    words = ["--victims", "/home/me/x", "--out=/home/me/y", "--only", "a b", "c", "--work=/home/me/z", "--again"]
    assert frame.command(words) == "python benchmarks/attacks.py --victims FOLDER --only 'a b' c --work FOLDER --again"
    assert frame.command(words, left_out=["--only"]) == (
        "python benchmarks/attacks.py --victims FOLDER --work FOLDER --again"
    )


@pytest.mark.parametrize(("said", "name"), [
    ("Vendor ID: AuthenticAMD\n  Model name: AMD EPYC\n    CPU family: 25\n    Model: 17\n",
     "AMD EPYC (family 25, model 17)"),
    ("Model name: Intel(R) Xeon(R) Processor @ 2.10GHz\nCPU family: 6\nModel: 143\n",
     "Intel(R) Xeon(R) Processor @ 2.10GHz (family 6, model 143)"),
    ("Vendor ID: ARM\nModel name: Neoverse-N1\nModel: 1\n", "Neoverse-N1"),
    ("Apple M2 Pro\n", "Apple M2 Pro"),
    ("Architecture: riscv64\nModel: 1\n", ""),
    ("", ""),
])  # fmt: skip
def test_processors_have_names(frame, said, name):
    assert frame.processor_of(said) == name


def test_a_machine_is_its_processor_and_versions(frame):
    processor, machine = frame.processor(), frame.machine()
    assert processor and machine.startswith(f"{processor}, ") and "torch" in machine
