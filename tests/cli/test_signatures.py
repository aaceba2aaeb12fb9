"""Options that are read from a function's text are what the function has."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Literal, get_type_hints

import click
import pytest

from adv_wrappers.cli import main
from adv_wrappers.cli.options import SPELLED
from adv_wrappers.cli.signatures import FunctionCommand, arguments_of
from adv_wrappers.utils.validation import Expected
from tests.every_case import every_case


def commands(group: click.Group = main) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


FUNCTIONS = sorted({name for one in commands() if isinstance(one, FunctionCommand) for name in one.functions})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_those_of_the_function(name: str) -> None:
    if "train" in name or "resilience" in name or "robustness" in name:
        pytest.importorskip("stable_baselines3")
    path, _, names = name.partition(":")
    module, _, function = path.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    parameters = {name: one for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD}
    found = arguments_of(name)
    assert [*found] == [one for one in parameters if not names or one in names.split(",")]
    for argument, about in found.items():
        assert about["type"] is None or about["default"] == parameters[argument].default


OTHERWISE = {*SPELLED, "measure", "source"}  # arguments that a command gives in a way of its own, or not at all


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_is_left_out_for_its_type(name: str) -> None:
    if "train" in name or "resilience" in name or "robustness" in name:
        pytest.importorskip("stable_baselines3")
    function = pkgutil.resolve_name(name.partition(":")[0])
    made = function.__init__ if isinstance(function, type) and not is_dataclass(function) else function
    hints = get_type_hints(made, include_extras=True)
    for argument, about in arguments_of(name).items():
        kinds = {part.kind for part in Expected(hints[argument]).parts} & {Literal, bool, int, float, Path}
        assert about["type"] is not None or not kinds or argument in OTHERWISE, (
            f"{argument}= of {name} has no option: its type stands in registry.py or utils/validation.py, or in the "
            "signature itself, for options are made without importing the module"
        )


@every_case("command", [*commands()])
def test_every_option_says_what_it_is(command: click.Command) -> None:
    for option in command.params:
        said = getattr(option, "help", "") or ""
        assert said or not isinstance(command, FunctionCommand) or isinstance(option, click.Argument), option.name
        assert "`" not in said and len(said) < 160, said
