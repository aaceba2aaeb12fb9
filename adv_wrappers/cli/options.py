"""The options that commands share, and what they read: the environment, the victim, budgets and folders.

``ENV``, ``--env-kwargs`` and ``--make`` say how the environment is made, ``--victim``, ``--stats`` and ``--trust``
where the victim comes from. :func:`repeated` gives them back as words, for the commands that a command prints.
"""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from adv_wrappers.cli.completion import complete_env, complete_threat, complete_victim
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import ThreatError
from adv_wrappers.registry import VICTIM_FILES, WITH_SPACES, written_references
from adv_wrappers.utils.parsing import parse_value, split_arguments
from adv_wrappers.utils.reading import parse_json

if TYPE_CHECKING:
    from adv_wrappers.environments.environment import Environment

Command = TypeVar("Command", bound=Callable[..., object])


class EnvArguments(dict[str, object]):
    """Keyword arguments of an environment, and the text that they were read from."""

    text = ""


def _read_arguments(text: str) -> EnvArguments:
    """``key=value,key=value``, with values as in the text of a threat, or a dictionary in JSON."""
    found = EnvArguments(_json(text) if text.lstrip().startswith("{") else _pairs(text))
    found.text = text
    return found


class Text(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no argument
    """The type of an option whose text is read by a function; what that raises is said on one line.

    Args:
        read: the function, which may run code of the user's.
        name: what stands for the text in the help, in capitals.
    """

    def __init__(self, read: Callable[[str], object], name: str) -> None:
        self.read, self.name = read, name

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """What the text says."""
        try:
            return self.read(value)
        except Exception as error:
            self.fail(" ".join(str(error).split()), param, ctx)


def finite_number(ctx: click.Context, param: click.Parameter, number: float | None) -> float | None:
    """The callback of an option of numbers that refuses infinity and NaN."""
    if number is None or math.isfinite(number):
        return number
    raise click.BadParameter(f"expected a finite number, got {number}", ctx, param)


FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)


def _none_if_empty(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...] | None:
    return given or None


def _needs_tensorboard(ctx: click.Context, param: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None and importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError("--tensorboard needs tensorboard: pip install tensorboard")
    return folder


REQUIRED = {"required": True}
ENV = click.Argument(["env"], shell_complete=complete_env)
# by the names of arguments of functions, how options of other types are written, and what is of the command line alone
SPELLED: dict[str, dict[str, Any]] = {
    "env_kwargs": {
        "type": Text(_read_arguments, "text"),
        "help": "of ENV: frameskip=4,mode=1, or a dictionary in JSON; None takes those of the victim's card",
    },
    "make": {
        "type": Text(MakeFunction, "module:function"),
        "help": "called as function(ENV, **env_kwargs) instead of gymnasium.make; found in the current directory too",
    },
    "victim": {
        "type": str, "metavar": "REF", "shell_complete": complete_victim(*WITH_SPACES),
        "help": written_references(WITH_SPACES),
    },
    "stats": {"type": str, "metavar": "FILE"},
    "scale": {
        "type": Text(parse_value, "unit"),
        "help": "unit of --eps: victim, a number, or one a feature as in 1;1;2; None takes 1",
    },
    "when": {"type": str, "metavar": "TIMING"},
    "threats": {
        "type": str, "flag": "--threat", "multiple": True, "callback": _none_if_empty,
        "shell_complete": complete_threat,
    },
    "attacks": {"type": str, "flag": "--attack", "multiple": True, "callback": _none_if_empty},
    "metrics": {"type": str, "flag": "--metric", "multiple": True},
    "out": {"type": FOLDER},
    "sensors": {
        "type": Text(_read_arguments, "text"),
        "help": "where velocity, gyro, gravity, joints, joint_speeds and command stand: gyro=3:6,joints=9:21; None "
        "takes what the environment says",
    },
    "tensorboard": {"type": FOLDER, "callback": _needs_tensorboard},
}  # fmt: skip


# of commands whose victim may be a file that knows no spaces, which then takes those of ENV
VICTIM_FILE = {"help": written_references(VICTIM_FILES), "shell_complete": complete_victim(*VICTIM_FILES)}
_CODE = ", ".join(VICTIM_FILES[kind].written for kind in WITH_SPACES if VICTIM_FILES[kind].trust)
TRUST_FILE = {"help": f"run the code in {_CODE} and --stats, or the program in a TorchScript file"}
KIND = click.option(
    "--kind",
    type=click.Choice(["q", "logits", "mean", "gaussian", "action"]),
    help="what an ONNX or TorchScript file returns  [default: mean, of continuous actions]",
)


def load_agent(given: dict[str, Any], device: str | None = None, env: str | None = None) -> Any:
    """The victim that ``--victim`` names, with ``--trust``, ``--stats`` and ``--select``; None where none is named.

    An adversary in a folder names its victim by reference. Where this file is trusted, it is found there again until
    the command ends; any other file of this kind is not.

    Args:
        given: what the command was given, from which these options are taken.
        device: the device that it is loaded onto, None for the CPU.
        env: the environment, whose spaces a victim in a file takes; None for commands without ``--kind``.
    """
    from adv_wrappers.environments.environment import Environment
    from adv_wrappers.victims import load_victim
    from adv_wrappers.victims.references import trusted_reference

    kind = given.pop("kind", None)
    ref, how = given.pop("victim"), {name: given.pop(name) for name in ("trust", "stats", "select") if name in given}
    # a command that needs no victim
    if ref is None:
        if how["trust"] or how["stats"] is not None:
            raise click.UsageError(
                f"{'--trust' if how['trust'] else '--stats'} is for the file of --victim, which is not given"
            )
        return None
    # files that know no spaces take those of the environment
    files = VICTIM_FILES.get(ref.partition(":")[0])
    if env is not None and files is not None and not files.spaces:
        if how.pop("stats", None) is not None:
            raise click.UsageError("--stats goes with sb3:FILE.zip: an exported file has its normaliser inside")
        return _from_file(ref, Environment(env, given["env_kwargs"], given["make"]), kind, device or "cpu", **how)
    if kind is not None:
        raise click.UsageError("--kind goes with onnx:FILE and torchscript:FILE")
    victim = load_victim(ref, device=device or "cpu", **how)
    if how["trust"]:
        click.get_current_context().with_resource(trusted_reference(victim))
    return victim


def _from_file(
    ref: str, environment: Environment, kind: Any, device: str, trust: bool = False, select: Any = None
) -> Any:
    """The victim in an ONNX or TorchScript file, with the spaces of the environment."""
    from gymnasium import spaces

    from adv_wrappers.victims import from_onnx, from_torchscript

    made = environment()
    made.close()
    seen, acted = made.observation_space, made.action_space
    if kind is None and not isinstance(acted, spaces.Box):
        raise click.UsageError(f"{ref} does not say what it returns: give --kind")
    # ONNX Runtime computes on the CPU alone
    where, _, path = ref.partition(":")
    if where == "onnx":
        if device != "cpu":
            raise click.UsageError("an ONNX file is played on the CPU: leave out --device")
        return from_onnx(path, seen, acted, kind or "mean", select=select or "mode")
    return from_torchscript(path, seen, acted, kind or "mean", select=select or "mode", device=device, trust=trust)


def repeated(given: Mapping[str, Any], *names: str) -> list[str]:
    """The words with which another command gets the same environment and trusts the same files.

    Args:
        given: what this command was given.
        names: of further options that the other command gets.
    """
    words = list[str]()
    for name in ("env_kwargs", "make", *names):
        value = given[name]
        words += [] if value is None else [f"--{name.replace('_', '-')}", str(getattr(value, "text", value))]
    return [*words, "--trust"] if given.get("trust") else words


def evaluate_with(env: str, words: Sequence[str], victim: str, *threats: str) -> str:
    """The command that evaluates under threats; ``words`` are those of :func:`repeated`."""
    attacks = (word for text in threats for word in ("--threat", text))
    return shlex.join(["adv-wrappers", "evaluate", env, *words, "--victim", victim, *attacks])


def _json(text: str) -> dict[str, object]:
    return parse_json(text.encode(), f"the dictionary {text!r:.80}", error=ThreatError)


def _pairs(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for piece in split_arguments(text):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not key.isidentifier():
            raise ThreatError(
                f"cannot read {piece.strip()!r:.80}: expected key=value,key=value or a dictionary in JSON"
            )
        if key in found:
            raise ThreatError(f"{key} is given twice in {text!r:.80}")
        found[key] = parse_value(value)
    return found
