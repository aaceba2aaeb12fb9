"""Commands whose options are the arguments of the function that they call: names, types, defaults and descriptions.

An option is every argument that may be a number, a text, a path, yes or no, or one of several words, and what
:data:`adv_wrappers.cli.options.SPELLED` knows how to write. Its help is the first sentence of the docstring. The module
of the function is not imported, which would import torch, and ``--help`` would take seconds.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import click

from adv_wrappers import registry
from adv_wrappers.cli.main import by_option, main
from adv_wrappers.cli.options import ENV, KIND, SPELLED, TRUST_FILE, VICTIM_FILE
from adv_wrappers.errors import ValueRangeError
from adv_wrappers.utils import validation
from adv_wrappers.utils.validation import Expected, Part

_ROOT = Path(__file__).parents[1]
_LOAD_VICTIM = "adv_wrappers.victims.references.load_victim:trust,select,stats"  # of every command with a victim
_FIRST = ("env", "env_kwargs", "make", "victim", "stats", "trust", "select")
_NONE_IS = r"[;,] None (?:takes|is) "  # how a docstring says what the default is


class _Names(dict[str, Any]):
    """The names that an annotation or a default may use, of which those that are not known are None."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, None)


_NAMES = _Names({**vars(registry), **vars(validation), "Path": Path})


@functools.cache
def _read(module: str) -> ast.Module:
    """A module as it is written; one of this package is not imported, and one's own is already."""
    inside = module.partition(".")[0] == _ROOT.name
    path = _ROOT.parent / f"{module.replace('.', '/')}.py" if inside else Path(str(sys.modules[module].__file__))
    return ast.parse(path.read_text(encoding="utf-8"))


def _definition(path: str) -> ast.FunctionDef | ast.ClassDef:
    """A function or class by its module and name."""
    module, _, name = path.rpartition(".")
    if module == _ROOT.name:
        imports = (each for each in ast.walk(_read("adv_wrappers.public")) if isinstance(each, ast.ImportFrom))
        module = next(str(each.module) for each in imports if name in [alias.name for alias in each.names])
    return next(each for each in _defined(_read(module)) if each.name == name)


def _defined(inside: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    return (each for each in inside.body if isinstance(each, (ast.FunctionDef, ast.ClassDef)))


def _arguments(path: str) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """The arguments of a function, class or data class: their names, annotations and defaults."""
    found = _definition(path)
    if isinstance(found, ast.ClassDef):
        made = next((each for each in _defined(found) if each.name == "__init__"), None)
        if made is None:
            fields = (each for each in found.body if isinstance(each, ast.AnnAssign))
            yield from ((ast.unparse(each.target), each.annotation, each.value) for each in fields)
            return
        found = made
    # defaults belong to the last of the arguments
    given = found.args  # type: ignore[union-attr]
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    for one, default in zip([*given.args, *given.kwonlyargs], defaults, strict=True):
        if one.arg != "self":
            yield one.arg, one.annotation, default


def _value(node: ast.expr) -> Any:
    return eval(compile(ast.Expression(node), "", "eval"), {}, _NAMES)


def arguments_of(function: str) -> dict[str, dict[str, Any]]:
    """The arguments of a function, of each the attributes of its option, without a type where it can have none.

    Args:
        function: its module and name; behind a colon the names of some arguments, without it all are meant.
    """
    path, _, names = function.partition(":")
    return {
        name: {
            "type": option_type(_parts(annotation)),
            "default": inspect.Parameter.empty if default is None else _value(default),
            "help": _text(path, name),
        }
        for name, annotation, default in _arguments(path)
        if not names or name in names.split(",")
    }


class _Number(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no argument
    """A number of an annotation, refused in the words of the library."""

    def __init__(self, part: Part, **ends: Any) -> None:
        super().__init__(**ends)
        self.part, self._any = part, click.INT if part.kind is int else click.FLOAT
        self.name = self._any.name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, if it is within its limits."""
        number = self._any.convert(value, param, ctx)
        if not self.part.takes(number):
            raise ValueRangeError(f"{'it' if param is None else param.name} must be {self.part}, got {value}")
        return number


class _IntRange(_Number, click.IntRange):
    """One with an end, which the help shows."""


class _FloatRange(_Number, click.FloatRange):
    """The same."""


def option_type(union: Iterable[Part]) -> Any:
    """What an option takes: one of the words of a ``Literal``, a path, or a text, number or flag with its limits."""
    parts = {part.kind: part for part in union}
    if words := [word for word in parts[Literal].words if isinstance(word, str)] if Literal in parts else []:
        return click.Choice(words)
    if Path in parts:
        return click.Path(path_type=Path)
    # a number with limits gets a range, of which the help tells the ends
    kind = next((kind for kind in (str, float, bool, int) if kind in parts), None)
    if kind is None or (ends := parts[kind].limits) is None:
        return kind
    low, high = _near(ends.minimum), _near(ends.maximum)
    if low is high is None:
        return _Number(parts[kind])
    made = _IntRange if kind is int else _FloatRange
    return made(parts[kind], min=low, max=high, min_open=ends.above, max_open=ends.below)


def _near(end: float | None) -> float | None:
    """An end of a range as a help shows it, where it is near enough to concern anybody."""
    return None if end is None or abs(end) >= 10**6 else int(end) if end == int(end) else end


def _parts(annotation: ast.expr | None) -> Iterator[Part]:
    """Those parts of a union that are known here."""
    if isinstance(annotation, ast.BinOp):
        yield from _parts(annotation.left)
        yield from _parts(annotation.right)
    elif annotation is not None:
        with contextlib.suppress(TypeError, AttributeError):  # of names that are not known
            yield from Expected(_value(annotation)).parts


def _text(path: str, name: str) -> str:
    """What a docstring says of an argument, where it says ``as for`` another function what that one's says."""
    documentation = ast.get_docstring(_definition(path)) or ""
    found = re.search(rf"^ +(?:\w+, )*{name}(?:, \w+)*: (.*(?:\n {{8}}.*)*)", documentation, re.MULTILINE)
    text = "" if found is None else " ".join(found[1].split())
    other = re.match(r"as for :func:`([\w.]+)`", text)
    if other is None:
        return text
    return _text(other[1] if "." in other[1] else f"{path.rpartition('.')[0]}.{other[1]}", name)


def _help(text: str, flags: Mapping[str, str], again: bool) -> str:
    """The first sentence of a description, in the words of the command line."""
    sentence = re.split(r"\.(?: |$)", text, maxsplit=1)[0]
    if again:
        sentence = re.sub(rf"(?={_NONE_IS}|$)", "; again for more", sentence, count=1)
    sentence = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", sentence)
    sentence = re.sub(r"``\"?(.*?)\"?``", lambda found: flags.get(found[1], found[1]), sentence)
    return re.sub(rf"{_NONE_IS}(.*)", r"  [default: \1]", by_option(sentence, flags))


def _option(flag: str, name: str, *, default: Any, **about: Any) -> click.Option:
    if default is inspect.Parameter.empty:
        about["required"] = about.get("required", True)
    elif default is not None:  # which click would take for a default, too
        about |= {"default": default, "show_default": default is not False and default != ""}
    if about["type"] is bool:
        about["is_flag"] = True
        flag += f"/--no-{flag[2:]}" if default else ""
    return click.Option([flag, name], **about)


class FunctionCommand(click.Command):
    """A command whose options are made when somebody asks for them.

    Args:
        functions: that it calls, as for :func:`arguments_of`.
        without: arguments that are no options.
        spelled: by the names of arguments, what their options have instead of what the function says.
        **given: of :class:`click.Command`. A parameter that is given here takes the place of an argument of its name.
    """

    def __init__(
        self, functions: Iterable[str], without: Iterable[str], spelled: Mapping[str, Mapping[str, Any]], **given: Any
    ) -> None:
        super().__init__(**given)
        self._own: list[click.Parameter] = self.__dict__.pop("params")
        self.functions, self._spelled = functions, spelled
        self._without = {*without, *(one.name for one in self._own)}

    @functools.cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The options of the functions, and what was given."""
        found = dict[str, dict[str, Any]]()
        for function in self.functions:
            found = {**found, **arguments_of(function), **found}
        if "victim" in found and "victim" not in self._without:
            found = {**found, **arguments_of(_LOAD_VICTIM), **found}
        found = {name: about for name, about in found.items() if name not in self._without}
        made: list[click.Parameter] = [ENV] if "env" in found and found["env"]["type"] is None else []
        # what is written in a way of its own, then the names of the options
        for name, about in found.items():
            about |= {**SPELLED.get(name, {}), **self._spelled.get(name, {})}
        flags = {
            name: about.pop("flag", f"--{name.replace('_', '-')}")
            for name, about in found.items()
            if about["type"] is not None
        }
        for name, flag in flags.items():
            about = found[name]
            about["help"] = _help(about["help"], flags, "multiple" in about)
            made.append(_option(flag, name, **about))
        made.sort(key=lambda one: _FIRST.index(one.name) if one.name in _FIRST else len(_FIRST))
        return made + self._own


def command(
    name: str,
    /,
    *functions: str,
    without: Iterable[str] = (),
    group: click.Group = main,
    files: bool = False,
    **spelled: Mapping[str, Any],
) -> Callable[[Callable[..., object]], click.Command]:
    """Add a command that calls functions.

    Args:
        name: its own.
        *functions: as for :class:`FunctionCommand`, as are ``without`` and ``spelled``.
        group: where it is added.
        files: whether its victim may be a file that knows no spaces, which then takes those of ENV.
    """
    if files:
        spelled = {"victim": VICTIM_FILE, "trust": TRUST_FILE, **spelled}
    add = group.command(name, cls=FunctionCommand, functions=functions, without=without, spelled=spelled)
    return (lambda run: add(KIND(run))) if files else add
