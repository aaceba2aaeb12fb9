"""Resolve what the README's two commands install, for every supported Python and platform, without installing it.

``python .ci/resolve.py`` resolves them against ``constraints.txt`` and names what conflicts; ``--write`` makes
``constraints.txt`` anew, keeping the releases that still fit (``--write --upgrade`` takes the newest). Both need uv,
which knows the wheels of platforms other than its own. Only wheels count: what would have to be compiled is a conflict.

The pins are for what this project asks for by name, and for what that asks for in turn. What a build of torch asks for
(triton, CUDA's libraries) is left to torch: each of its builds demands releases of its own.
"""

from __future__ import annotations

import argparse
import configparser
import itertools
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TORCH = "torch==2.13.0"
OF_TORCH = ("triton", "cuda-bindings", "cuda-pathfinder", "cuda-toolkit", "nvidia-*")
TOOLS = ("mypy", "ruff")  # what the environments of tox install beside the extras
ENVIRONMENTS = ("demo", "style", "typing", "docs", "py")  # of tox: the demo's, and those of the README's second command
HEAD = """\
# Releases that are known to work together, for Python {first} to {last} on Linux, macOS and Windows.
# Use them as: pip install -c constraints.txt .
# Made by `tox -e resolve -- --write`; what torch itself asks for (triton, CUDA's libraries) is torch's to choose.
"""


@dataclass(frozen=True)
class Platform:
    """Where a set is resolved for: uv's name of it, and whether torch's build for CUDA is meant."""

    title: str
    name: str
    cuda: bool = False


PLATFORMS = (
    Platform("Linux x86-64, CUDA build", "x86_64-manylinux_2_28", cuda=True),
    Platform("Linux x86-64, CPU build", "x86_64-manylinux_2_28"),
    Platform("macOS arm64", "aarch64-apple-darwin"),
    Platform("Windows", "x86_64-pc-windows-msvc"),
)


class NoAnswer(Exception):
    """No registry of packages answers."""


def listed(text: str) -> list[str]:
    """The entries of a multi-line value of a ``.cfg`` file, without comments."""
    return [line for line in (line.strip() for line in text.splitlines()) if line and not line.startswith("#")]


def read(name: str) -> configparser.ConfigParser:
    """A file of settings at the root of the project."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / name, encoding="utf-8")
    return parser


def project_requirements(extras: list[str]) -> Iterator[str]:
    """What the project asks for with these extras; an extra may name others, as ``adv_wrappers[a,b]``."""
    setup = read("setup.cfg")
    yield from listed(setup["options"]["install_requires"])
    waiting, seen = list(extras), set[str]()
    while waiting:
        extra = waiting.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for line in listed(setup["options.extras_require"][extra]):
            if own := re.fullmatch(r"adv_wrappers\[(.*)\]", line):
                waiting += own[1].split(",")
            else:
                yield line


def tox_requirements(environment: str) -> list[str]:
    """What tox installs in one of its environments."""
    tox = read("tox.ini")
    base, own = tox["testenv"], tox[f"testenv:{environment}"] if f"testenv:{environment}" in tox else tox["testenv"]
    found = listed(own.get("deps", ""))
    if own.get("skip_install") != "True":
        extras = own.get("extras", base["extras"]).replace(",", "\n")
        found += project_requirements(listed(extras))
    return found


def compiled(requirements: list[str], python: str, *arguments: str) -> str:
    """What ``uv pip compile`` answers.

    Raises:
        NoAnswer: where no registry answers.
        ValueError: what conflicts.
    """
    command = ["uv", "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    done = subprocess.run(
        [*command, "--python-version", python, *arguments],
        input="\n".join(requirements),
        text=True,
        capture_output=True,
        # torch's wheels for macOS ask for this release
        env={"MACOSX_DEPLOYMENT_TARGET": "14.0", **os.environ},
    )
    if done.returncode == 0:
        return done.stdout
    if "No solution found" in done.stderr:
        raise ValueError(done.stderr.strip())
    raise NoAnswer(done.stderr.strip())


def check() -> int:
    """Resolve all that the two commands install, everywhere; in how many places it conflicts.

    Each environment asks for a part of it, and a part of what fits together fits together.
    """
    wanted = sorted({each for name in ENVIRONMENTS for each in tox_requirements(name)})
    places = list(itertools.product(PYTHONS, PLATFORMS))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(4) as pool:  # most of it is waiting for a registry
        without_cuda = Path(folder) / "excludes.txt"
        without_cuda.write_text("\n".join(name for name in OF_TORCH if "*" not in name), encoding="utf-8")

        def conflict(place: tuple[str, Platform]) -> str:
            python, platform = place
            arguments = ["--python-platform", platform.name, "--constraints", str(CONSTRAINTS)]
            if not platform.cuda:  # the registry's wheel for Linux asks for CUDA; a CPU build does not
                arguments += ["--excludes", str(without_cuda)]
            try:
                compiled(wanted, python, *arguments)
            except ValueError as error:
                return str(error)
            return ""

        found = list(pool.map(conflict, places))
    for (python, platform), text in zip(places, found, strict=True):
        print(f"Python {python}, {platform.title}: {'conflict' if text else 'ok'}")
        if text:
            print(textwrap.indent(text, "    "))
    return sum(map(bool, found))


def write(upgrade: bool) -> None:
    """Make ``constraints.txt`` anew, for all extras, Pythons and platforms at once."""
    extras = list(read("setup.cfg")["options.extras_require"])
    wanted = [*project_requirements(extras), *TOOLS, TORCH]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "constraints.txt"  # uv keeps the releases of its output file, if there is one
        if not upgrade:
            out.write_text(CONSTRAINTS.read_text(encoding="utf-8"), encoding="utf-8")
        compiled(wanted, PYTHONS[0], "--universal", "--output-file", str(out))
        lines = out.read_text(encoding="utf-8").splitlines()
    of_torch = re.compile("|".join(name.replace("*", ".*") for name in OF_TORCH))
    pins = [line for line in lines if not of_torch.fullmatch(line.partition("==")[0])]
    head = HEAD.format(first=PYTHONS[0], last=PYTHONS[-1])
    CONSTRAINTS.write_text(head + "\n".join(pins) + "\n", encoding="utf-8")


def main() -> int:
    """Check the sets, or write the constraints; the exit status is 1 where something conflicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="make constraints.txt anew")
    parser.add_argument("--upgrade", action="store_true", help="with --write: take the newest releases")
    arguments = parser.parse_args()
    try:
        if arguments.write:
            write(arguments.upgrade)
            return 0
        return int(check() > 0)
    except NoAnswer as error:
        print(f"no registry answers, so nothing was resolved:\n{error}")
        return int(arguments.write)


if __name__ == "__main__":
    sys.exit(main())
