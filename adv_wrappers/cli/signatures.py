"""Commands whose options are the arguments of the function that they call: names, types, defaults and descriptions.

An option is every argument that may be a number, a text, a path, yes or no, or one of several words, and what
:data:`adv_wrappers.cli.options.SPELLED` knows how to write. Its help is the first sentence of the docstring. The module
of the function is not imported, which would import torch, and ``--help`` would take seconds.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from adv_wrappers import registry
from adv_wrappers.cli.main import by_option, main
from adv_wrappers.cli.options import ENV, SPELLED
from adv_wrappers.utils.parsing import split_outside_quotes

_ROOT = Path(__file__).parents[1]
_LOAD_VICTIM = "adv_wrappers.victims.references.load_victim:trust,select,stats"  # of every command with a victim
_FIRST = ("env", "env_kwargs", "make", "victim", "stats", "trust", "select")
_NONE_IS = r"[;,] None (?:takes|is) "  # how a docstring says what the default is


class _Names(dict[str, Any]):
    """The names that a definition may use, of which those that are not known are None."""

    def __missing__(self, name: str) -> None:
        return None


@functools.cache
def definition(path: str) -> Callable[..., object]:
    """A function, or data class, by its module and name, to ask about and not to call: its module is not imported."""
    module, _, name = path.rpartition(".")
    if module == _ROOT.name:
        public = re.search(rf"from (\S+) import .*\b{name}\b", (_ROOT / "public.py").read_text(encoding="utf-8"))
        assert public is not None, path
        module = public[1]
    source = (_ROOT.parent / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    found = re.search(rf"^(?:def|class) {name}\b.*?(?=^[^\s)]|\Z)", source, re.DOTALL | re.MULTILINE)
    assert found is not None, path
    names = _Names(vars(registry))
    exec(f"from __future__ import annotations\n{found[0]}", {}, names)
    made: Callable[..., object] = names[name]
    return dataclass(made) if isinstance(made, type) else made


def arguments_of(function: str) -> dict[str, dict[str, Any]]:
    """The arguments of a function, of each the attributes of its option, without a type where it can have none.

    Args:
        function: its module and name; behind a colon the names of some arguments, without it all are meant.
    """
    path, _, names = function.partition(":")
    return {
        name: {"type": _type(one.annotation), "default": one.default, "help": _text(path, name)}
        for name, one in inspect.signature(definition(path)).parameters.items()
        if one.kind is not one.VAR_KEYWORD and (not names or name in names.split(","))
    }


def _type(annotation: str) -> Any:
    kinds = [*_kinds(annotation)]
    if words := [kind for kind in kinds if isinstance(kind, str)]:
        return click.Choice(words)
    if Path in kinds:
        return click.Path(path_type=Path)
    return next((kind for kind in (str, float, bool, int) if kind in kinds), None)


def _kinds(annotation: str) -> Iterator[Any]:
    """Those types of a union that are known here, the words of a ``Literal`` one by one."""
    for part in split_outside_quotes(annotation, " | "):
        with contextlib.suppress(NameError):
            kind = eval(part, {**vars(registry), "Literal": Literal, "Path": Path})
            yield from get_args(kind) if get_origin(kind) is Literal else [kind]


def _text(path: str, name: str) -> str:
    """What a docstring says of an argument, where it says ``as for`` another function what that one's says."""
    documentation = inspect.getdoc(definition(path)) or ""
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
        found = {name: about for name, about in found.items() if name not in self._without}
        if "victim" in found:
            found = {**found, **arguments_of(_LOAD_VICTIM), **found}
        made: list[click.Parameter] = [ENV] if "env" in found and found["env"]["type"] is None else []
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
    name: str, /, *functions: str, without: Iterable[str] = (), group: click.Group = main, **spelled: Mapping[str, Any]
) -> Callable[[Callable[..., object]], click.Command]:
    """Add a command that calls functions; arguments as for :class:`FunctionCommand`."""
    return group.command(name, cls=FunctionCommand, functions=functions, without=without, spelled=spelled)
