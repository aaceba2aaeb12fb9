"""What a shell completes on the command line beside options: environment ids, victims and presets of threats.

Nothing here imports torch, so that the answer comes at once. The shells' scripts are click's; Bash alone needs one that
knows that a victim such as ``zoo:cartpole-dqn`` is one word, where Bash reads three.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_ZOO = Path(__file__).parents[1] / "zoo"


def complete_env(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
    """Ids of environments that begin with a text."""
    import ale_py  # noqa: F401  # registers the ids of Atari games
    import gymnasium as gym

    return _items(gym.registry, text)


def complete_env_or_path(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
    """Ids of environments, or the files and folders that the shell finds where no id begins with a text."""
    return complete_env(ctx, param, text) or [CompletionItem(text, type="file")]


def complete_threat(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
    """Presets of threats, of the last one of a stack."""
    from adv_wrappers.registry import names_without_importing

    before, plus, last = text.rpartition(" + ")
    return _items((f"{before}{plus}{name}" for name in names_without_importing()), f"{before}{plus}{last}")


def complete_victim(*kinds: str) -> Complete:
    """The completion of an option that takes victims: ``zoo:NAME``, and files of some ``VICTIM_FILES``.

    Args:
        kinds: their prefixes.
    """
    from adv_wrappers.registry import VICTIM_FILES

    def complete(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
        kind, colon, path = text.partition(":")
        if colon and kind in kinds:
            ends = VICTIM_FILES[kind].ends
            return [] if ends is None else [CompletionItem(f"{kind}:{found}") for found in _paths(path, ends)]
        return _items([*(f"zoo:{name}" for name in _zoo()), *(f"{kind}:" for kind in kinds)], text)

    return complete


def _zoo() -> list[str]:
    return [path.parent.name for path in _ZOO.glob("*/card.json")]


def _items(names: Iterable[str], text: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(names) if name.startswith(text)]


def _paths(text: str, ends: str) -> list[str]:
    """Folders and files that begin with a text and lead to a file of this kind; a folder that is one has no slash."""
    parent, name = os.path.split(text)
    found = []
    for path in sorted(Path(parent or ".").glob("*")):
        shown = os.path.join(parent, path.name)
        # hidden files only where a dot was typed
        if not path.name.startswith(name) or (path.name.startswith(".") and not name):
            continue
        if path.is_dir():
            found.append(shown if (path / ends).exists() else f"{shown}/")
        elif path.name.endswith(ends) and path.name != ends:
            found.append(shown)
    return found


class WholeWords(BashComplete):
    """Bash's completion, for words that hold what Bash breaks them at, such as the colon.

    Bash puts what is chosen in the place of the part behind the last such character, so that alone is answered. No
    space follows what goes on, such as ``card:`` and a folder.
    """

    name = "bash"
    source_template = BashComplete.source_template.replace(
        'env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD',
        'env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS"',
    ).replace(
        "    return 0", "    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *[:/] ]] && compopt -o nospace\n\n    return 0"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)
        self._incomplete = "" if line[-1:].isspace() or len(words) < 2 else words[-1]
        return words[1 : None if not self._incomplete else -1], self._incomplete

    def format_completion(self, item: CompletionItem) -> str:
        breaks = [self._incomplete.rfind(mark) for mark in ":=" if mark in os.environ.get("COMP_WORDBREAKS", ":=")]
        return f"{item.type},{str(item.value).removeprefix(self._incomplete[: max(breaks, default=-1) + 1])}"


add_completion_class(WholeWords)
