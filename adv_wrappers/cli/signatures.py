"""Commands whose options are the arguments of the function that they call: names, types, defaults and descriptions.

The text of the function is read and not imported: that would import torch, and ``--help`` would take seconds. An option
is every argument that can be a number, a text, a path, yes or no, or one of several words, and what
:data:`adv_wrappers.cli.options.SPELLED` knows how to write. Its help is the first sentence of the docstring.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from adv_wrappers import registry
from adv_wrappers.cli.main import by_option, main
from adv_wrappers.cli.options import ENV, SPELLED

_ROOT = Path(__file__).parents[1]
_KNOWN = {**vars(registry), "Literal": Literal, "Path": Path}  # what annotations and defaults may name
_LOAD_VICTIM = "adv_wrappers.victims.references.load_victim:trust,select,stats"  # of every command with a victim
_FIRST = ("env", "env_kwargs", "make", "victim", "stats", "trust", "select")


@functools.cache
def arguments_of(function: str) -> dict[str, dict[str, Any]]:
    """The arguments of a function, or the fields of a data class: of each the attributes of an option.

    Args:
        function: its module and name; behind a colon the names of some arguments, without it all are meant.
    """
    path, _, names = function.partition(":")
    node = _definition(path)
    found: list[tuple[str, ast.expr | None, ast.expr | None]]
    if isinstance(node, ast.ClassDef):
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        found = [(ast.unparse(one.target), one.annotation, one.value) for one in fields]
    else:
        named, given = [*node.args.args, *node.args.kwonlyargs], node.args.defaults
        defaults = [*[None] * (len(node.args.args) - len(given)), *given, *node.args.kw_defaults]
        found = [(one.arg, one.annotation, default) for one, default in zip(named, defaults, strict=True)]
    return {
        name: {
            "type": _type(annotation),
            "default": _evaluated(default),
            "required": default is None,
            "help": _text(path, name),
        }
        for name, annotation, default in found
        if not names or name in names.split(",")
    }


@functools.cache
def _definition(path: str) -> ast.FunctionDef | ast.ClassDef:
    """A function or class alone: to parse the rest of its module would take longer than all else."""
    module, _, name = path.rpartition(".")
    if module == _ROOT.name:
        module = _public_modules()[name]
    source = (_ROOT.parent / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    found = re.search(rf"^(?:def|class) {name}\b.*?(?=^[^\s)]|\Z)", source, re.DOTALL | re.MULTILINE)
    assert found is not None, path
    [node] = ast.parse(found[0]).body
    assert isinstance(node, (ast.FunctionDef, ast.ClassDef))
    return node


@functools.cache
def _public_modules() -> dict[str, str]:
    """The modules of what ``import adv_wrappers`` has."""
    tree = ast.parse((_ROOT / "public.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def _type(annotation: ast.expr | None) -> Any:
    """The type of an option, None for what cannot be written on a command line."""
    kinds = [*_kinds(annotation)]
    if words := [kind for kind in kinds if isinstance(kind, str)]:
        return click.Choice(words)
    if Path in kinds:
        return click.Path(path_type=Path)
    return next((kind for kind in (str, float, bool, int) if kind in kinds), None)


def _kinds(annotation: ast.expr | None) -> Iterable[Any]:
    """Those types of a union that are known here, the words of a ``Literal`` one by one."""
    if isinstance(annotation, ast.BinOp):
        yield from (*_kinds(annotation.left), *_kinds(annotation.right))
    elif get_origin(kind := _evaluated(annotation)) is Literal:
        yield from get_args(kind)
    elif isinstance(kind, type):
        yield kind


def _evaluated(node: ast.expr | None) -> Any:
    """The value of an annotation or a default, None for what is not known here."""
    try:
        return None if node is None else eval(ast.unparse(node), dict(_KNOWN))
    except NameError:
        return None


def _text(path: str, name: str) -> str:
    """What a docstring says of an argument, where it says ``as for`` another function what that one's says."""
    documentation = inspect.cleandoc(ast.get_docstring(_definition(path)) or "")
    found = re.search(rf"^ +(?:\w+, )*{name}(?:, \w+)*: (.*(?:\n {{8}}.*)*)", documentation, re.MULTILINE)
    text = "" if found is None else " ".join(found[1].split())
    other = re.match(r"as for :\w+:`~?([\w.]+)`", text)
    if other is None:
        return text
    return _text(other[1] if "." in other[1] else f"{path.rpartition('.')[0]}.{other[1]}", name)


def _help(text: str, flags: Mapping[str, str], again: bool) -> str:
    """The first sentence of a description, in the words of the command line."""
    sentence = re.split(r"\.(?: |$)", text, maxsplit=1)[0]
    if again:
        sentence = re.sub(r"(?=[;,] None (?:takes|is) |$)", "; again for more", sentence, count=1)
    sentence = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", sentence)
    sentence = re.sub(r"``\"?(.*?)\"?``", lambda found: flags.get(found[1], found[1]), sentence)
    return re.sub(r"[;,] None (?:takes|is) (.*)", r"  [default: \1]", by_option(sentence, flags))


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
        self.functions, self._without, self._spelled = functions, without, spelled
        self._own: list[click.Parameter] = self.__dict__.pop("params")

    @functools.cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The options of the functions, and what was given."""
        found, made = dict[str, dict[str, Any]](), list[click.Parameter]()
        without = {*self._without, *(one.name for one in self._own)}
        for function in self.functions:
            found = {**found, **arguments_of(function), **found}
        if "victim" in {*found} - without:
            found = {**found, **arguments_of(_LOAD_VICTIM), **found}
        if "env" in {*found} - without and found["env"]["type"] is None:
            made.append(ENV)
        found = {
            name: {**about, **SPELLED.get(name, {}), **self._spelled.get(name, {})}
            for name, about in found.items()
            if name not in without
        }
        flags = {
            name: about.pop("flag", f"--{name.replace('_', '-')}")
            for name, about in found.items()
            if about["type"] is not None
        }
        made += [_option(name, flags, **found[name]) for name in flags]
        made.sort(key=lambda one: _FIRST.index(one.name) if one.name in _FIRST else len(_FIRST))
        return made + self._own


def _option(name: str, flags: Mapping[str, str], *, help: str, default: Any, **about: Any) -> click.Parameter:
    flag, about["help"] = flags[name], _help(help, flags, "multiple" in about)
    if about["type"] is bool:
        about["is_flag"] = True
    if default is True:
        flag += f"/--no-{flag[2:]}"
    if default is not None:  # a default of None would be one for click, too
        about |= {"default": default, "required": False, "show_default": default is not False and default != ""}
    return click.Option([flag, name], **about)


def command(
    name: str, /, *functions: str, without: Iterable[str] = (), group: click.Group = main, **spelled: Mapping[str, Any]
) -> Callable[[Callable[..., object]], click.Command]:
    """Add a command that calls functions; arguments as for :class:`FunctionCommand`."""
    return group.command(name, cls=FunctionCommand, functions=functions, without=without, spelled=spelled)
