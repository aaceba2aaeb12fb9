"""Files and folders: all or nothing, one process at a time, and errors in plain words."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import adv_wrappers as adv
from adv_wrappers import studies
from adv_wrappers.errors import OutputError
from adv_wrappers.training.models import critic_scan as critic
from adv_wrappers.utils.files import held, holding, make_folder, probe, probe_file, write
from tests.every_case import every_case
from tests.processes import context, python


def hold(folder: Path, pipe: Any) -> None:
    """Holds a folder until the other end of the pipe says something."""
    with held(folder):
        pipe.send("holds it")
        pipe.recv()


@pytest.fixture
def other(tmp_path: Path):
    """A second process that holds the folder ``tmp_path / "o"`` until its ``pipe`` is written to."""
    here, there = context.Pipe()
    with here, there:
        process = context.Process(target=hold, args=(tmp_path / "o", there))
        process.start()
        assert here.recv() == "holds it"
        yield SimpleNamespace(pid=process.pid, kill=process.kill, join=process.join, pipe=here)
        if process.is_alive():
            here.send("let go")
        process.join()
        process.close()


def test_a_folder_that_another_process_holds(tmp_path: Path, other) -> None:
    (tmp_path / "o" / "kept").write_text("")
    with pytest.raises(OutputError, match=f"o is in use by process {other.pid} on "), held(tmp_path / "o"):
        pass
    with held(tmp_path / "another"):
        pass
    other.pipe.send("let go")
    other.join()
    with held(tmp_path / "o"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path, other) -> None:
    other.kill()
    other.join()
    assert (tmp_path / "o" / ".lock").exists()
    with held(tmp_path / "o"):
        assert (tmp_path / "o" / ".lock").exists()
    assert not list((tmp_path / "o").iterdir())


def test_calls_inside_hold_it_again_and_threads_do_not(tmp_path: Path) -> None:
    def ask() -> None:
        with held(tmp_path):
            pass

    with held(tmp_path), held(tmp_path / "x" / ".."), ThreadPoolExecutor() as pool:
        with pytest.raises(OutputError, match="in use by another thread of this process; wait for it"):
            pool.submit(ask).result()
        assert (tmp_path / ".lock").exists()
    ask()
    with held(None), held(None):
        pass
    assert not list(tmp_path.iterdir())


def test_a_function_with_a_folder(tmp_path: Path) -> None:
    @holding
    def run(a: int, out: Path | None = None) -> int:
        assert out is None or (out / ".lock").exists()
        return a

    assert run(1) == 1 and run(2, tmp_path) == 2 and run(a=3, out=tmp_path) == 3 and not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="unexpected keyword"):
        run(1, wrong=2)  # type: ignore[call-arg]


@every_case("call", [lambda folder: held(folder).__enter__(), probe, lambda f: write(f / "x", b"1")])
def test_a_place_that_is_no_folder(tmp_path: Path, call) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*file.*: (file exists|not a directory)"):
        call(tmp_path / "file" / "under" if call is probe else tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_another_process_takes_away_while_it_is_made(tmp_path: Path, monkeypatch) -> None:
    mkdir, found = os.mkdir, list[Any]()

    def there_for_a_moment(path: Any, *more: Any) -> None:
        found.append(path)
        if len(found) == 1:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        mkdir(path, *more)

    monkeypatch.setattr(os, "mkdir", there_for_a_moment)
    assert make_folder(tmp_path / "o") and (tmp_path / "o").is_dir() and len(found) == 2


@pytest.mark.parametrize("bytes_", [0, 1000])
def test_a_disk_that_is_full(tmp_path: Path, bytes_: int) -> None:
    """The limit on the size of a file is that of a full disk."""
    code = f"""
import resource, sys
from pathlib import Path
from adv_wrappers.errors import OutputError
from adv_wrappers.utils.files import held, write
folder = Path(sys.argv[1])
write(folder / "old", b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_}, {bytes_}))
for place in (folder, folder / "new"):
    try:
        with held(place):
            sys.exit("held")
    except OutputError as error:
        assert str(error) == f"cannot write to the folder {{place}}: file too large", error
try:
    write(folder / "old", b"n" * 2000)
except OutputError as error:
    assert str(error) == f"cannot write {{folder / 'old'}}: file too large", error
else:
    sys.exit("written")
"""
    done = python(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old"] and (tmp_path / "old").read_text() == "old"


def test_a_probe_leaves_nothing(tmp_path: Path) -> None:
    probe(tmp_path / "new" / "deep")
    assert [path.name for path in (tmp_path / "new").iterdir()] == []


@every_case("name", ["evaluate", "run_suite", "train_critic", "scan_critics", "train_adversary", "train_agent"])
def test_whatever_writes_to_a_folder_holds_it(tmp_path: Path, other, name: str) -> None:
    """Before anything else: these arguments make no sense."""
    if name.startswith("train_a"):
        pytest.importorskip("stable_baselines3")
    place = {"run_suite": studies, "scan_critics": critic}.get(name, adv)
    function = getattr(place, name)
    with pytest.raises(OutputError, match=r"is in use by process \d+ on"):
        function(None, None, out=tmp_path / "o")
    with pytest.raises((adv.AdvWrappersError, TypeError)) as error:
        function(None, None, out=tmp_path / "new")
    assert not isinstance(error.value, OutputError) and not (tmp_path / "new").exists()


def test_what_is_no_name_of_a_file(tmp_path: Path) -> None:
    """An empty name, as of a variable of the shell that is not set, and a folder's."""
    for path in (Path(""), Path("."), Path("/"), tmp_path):
        for call in (lambda path: write(path, b""), probe_file):
            with pytest.raises(OutputError, match="expected the name of a file"):
                call(path)
    probe_file(tmp_path / "new" / "file")
    assert not list(tmp_path.iterdir())
