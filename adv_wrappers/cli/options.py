"""The options that commands share, and what they read: the environment, the victim, budgets and folders.

``ENV``, ``--env-kwargs`` and ``--make`` say how the environment is made, ``--victim``, ``--stats`` and ``--trust``
where the victim comes from. :func:`repeated` gives them back as words, for the commands that a command prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from adv_wrappers.cli.completion import complete_env, complete_victim
from adv_wrappers.environments.named_function import MakeFunction
from adv_wrappers.errors import SpaceError, ThreatError
from adv_wrappers.registry import Select as Select
from adv_wrappers.utils.parsing import parse_value, split_arguments
from adv_wrappers.utils.reading import parse_json

if TYPE_CHECKING:
    from adv_wrappers.victims import Victim

Command = TypeVar("Command", bound=Callable[..., object])


class EnvArguments(dict[str, object]):
    """Keyword arguments of an environment, and the text that they were read from."""

    text = ""


def _read_arguments(ctx: click.Context, param: click.Parameter, text: str | None) -> EnvArguments | None:
    """``key=value,key=value``, with values as in the text of a threat, or a dictionary in JSON."""
    if text is None:
        return None
    try:
        found = EnvArguments(_json(text) if text.lstrip().startswith("{") else _pairs(text))
    except ThreatError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    found.text = text
    return found


def _read_function(ctx: click.Context, param: click.Parameter, text: str | None) -> MakeFunction | None:
    try:
        return None if text is None else MakeFunction(text)
    except SpaceError as error:
        raise click.BadParameter(" ".join(str(error).split()), ctx, param) from error


def finite_number(ctx: click.Context, param: click.Parameter, number: float | None) -> float | None:
    """The callback of an option of numbers that refuses infinity and NaN."""
    if number is None or math.isfinite(number):
        return number
    raise click.BadParameter(f"expected a finite number, got {number}", ctx, param)


FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)
ENV_WORKERS = click.option(
    "--env-workers", default=1, show_default=True, type=POSITIVE, help="processes that step the training's environments"
)
NUM_ENVS = click.option("--num-envs", type=POSITIVE, help="side by side  [default: 32, or 8 for images]")
WORKERS = click.option("--workers", default=1, show_default=True, type=POSITIVE, help="processes that play episodes")
VICTIM = click.option(
    "--victim", required=True, metavar="REF", help="zoo:NAME, card:FOLDER, sb3:FILE.zip or rllib:FOLDER",
    shell_complete=complete_victim("card", "sb3", "rllib"),
)  # fmt: skip
SELECT = click.option(
    "--select", type=click.Choice(["mode", "sample"]), help="how the victim acts  [default: as its card says]"
)
SCALE = click.option("--scale", metavar="UNIT", help="of eps: victim, a number, or a;b;... a feature  [default: 1]")
SEED = click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
STATS = click.option(
    "--stats", metavar="FILE", help="of the VecNormalize of sb3:FILE.zip  [default: looked for beside it]"
)
TRUST = click.option(
    "--trust",
    is_flag=True,
    help="run the code that is pickled in sb3:FILE.zip, rllib:FOLDER and --stats: for files of your own",
)
TRUST_MODULES = click.option(
    "--trust", is_flag=True, help="import the module of an environment that a card names: for files of your own"
)
ENV_KWARGS = click.option(
    "--env-kwargs", callback=_read_arguments, metavar="TEXT",
    help="of ENV: frameskip=4,mode=1, or a dictionary in JSON  [default: as the victim's card says]",
)  # fmt: skip
MAKE = click.option(
    "--make", callback=_read_function, metavar="MODULE:FUNCTION",
    help="called as function(ENV, **env_kwargs) instead of gymnasium.make; found in the current directory too",
)  # fmt: skip


def environment_options(command: Command) -> Command:
    """The argument ``ENV`` with ``--env-kwargs`` and ``--make``, given as ``env``, ``env_kwargs`` and ``make``."""
    return click.argument("env", shell_complete=complete_env)(ENV_KWARGS(MAKE(command)))


def victim_options(command: Command) -> Command:
    """``--victim``, which is needed, with ``--stats`` and ``--trust``."""
    return VICTIM(STATS(TRUST(command)))


def load_agent(
    ref: str, trust: bool, stats: str | None, select: Select | None = None, device: str | None = None
) -> Victim:
    """The victim that ``--victim`` names, with ``--trust``, ``--stats``, ``--select`` and ``--device``.

    An adversary in a folder names its victim by reference. Where this file is trusted, it is found there again until
    the command ends; any other file of this kind is not.
    """
    from adv_wrappers.victims import load_victim
    from adv_wrappers.victims.references import trusted_reference

    victim = load_victim(ref, trust=trust, stats=stats, select=select, device=device or "cpu")
    if trust:
        click.get_current_context().with_resource(trusted_reference(victim))
    return victim


def repeated(env_kwargs: EnvArguments | None, make: MakeFunction | None, trust: bool) -> list[str]:
    """The words with which another command gets the same environment and trusts the same files."""
    words = [] if env_kwargs is None else ["--env-kwargs", env_kwargs.text]
    words += [] if make is None else ["--make", make.text]
    return [*words, "--trust"] if trust else words


def parse_scale(text: str | None) -> float | str | tuple[float, ...] | None:
    """A budget's scale as it is written on the command line."""
    scale: float | str | tuple[float, ...] | None = None if text is None else parse_value(text)
    return scale


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
