"""Errors of the library in the words of the command line: ``give resume=True`` becomes ``give --resume``.

The library names its arguments as Python has them. What the running command has as an option is said as that option;
what only Python can give is left, and a few sentences with calls in them have a form of their own here. The arguments
of a threat are written ``eps=0.1`` on the command line too: an error about a threat's text keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType

import click

# parts of the package that read, build and apply threats: arguments in their errors are those of a threat's text
_OF_THREATS = ("attacks", "actions", "adversaries", "daylight", "timing", "parsing", "presets", "formatting")
# commands whose options are the arguments of a threat
_BUILT_FROM_OPTIONS = ("train-adversary", "train-agent", "resilience", "robustness")
# arguments that are set by an option of another name: as Python writes them, and how the option is written
_OTHER_NAMES = {"quantize=False": "--no-quantize", "induce='any'": "--any-action"}
# what commands say instead of a call, or of arguments that no option sets
_SENTENCES = tuple((re.compile(pattern), said) for pattern, said in (
    (r"eps=, or within=", "eps="),
    (r"give within= \(--eps\), or settings=\[\{\}\] \(--one\)", "give --eps, or --one"),
    (r"from_(\w+)\(FILE, .*?\) makes a victim of it, and imitate\(victim, env, out=FOLDER\) a card",
     r"adv-wrappers imitate ENV --victim \1:FILE --kind KIND --out FOLDER makes a card"),
    (r"a Victim \(from_sb3\(model\) and from_module\(net, \.\.\.\) make one\), ", ""),
    (r"imitate\(victim, env\)", "adv-wrappers imitate"),
    (r"adv\.train_dynamics", "adv-wrappers train-dynamics"),
    (r"train_adversary, or adv-wrappers", "adv-wrappers"),
    (r"^train_adversary needs", "train-adversary needs"),
    (r"(expected 'pa-ad', .*) or None$", r"\1 or none"),
    (r"^train_agent takes", "train-agent takes"),
    (r"as in wrap\(env, threat, victim=victim\), \w+\(\.\.\., victim=victim\) or the text", "as in the text"),
    (r" to the attack, or call threat\.against\(victim\)", " to the attack"),
    (r"give it in victims=\{\.\.\.\}", "only Python can give it, in victims={...} of from_dict"),
    (r"max_bytes= (raises|allows)", r"max_bytes= of load_victim, in Python, \1"),
    (r"make ([\w/:.-]+) with max_episode_steps=", "give --env-kwargs max_episode_steps=N"),
    (r"stats=False", "sb3:FILE.zip?stats=none"),
))  # fmt: skip
_CALL = r"(?P<call>\w\([^()]*=[^()]*\))"  # Linf(eps=0.1, scale=None): a value, in Python's words
_VALUE = r"'[^']*'|[\w+-](?:[\w.+-]*[\w+-])?|\.\.\."


def option_names(command: click.Command) -> dict[str, str]:
    """By the name of an argument in Python, the option of a command that sets it."""
    found: dict[str, str] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            option = max(parameter.opts, key=len)
            found |= {name: option for name in (parameter.name, option.lstrip("-").replace("-", "_")) if name}
    return found


def threat_words() -> frozenset[str]:
    """The arguments of all presets, and those that a victim's reference in a threat has no words for."""
    from adv_wrappers.presets import presets

    own = {name for preset in presets.values() for name in getattr(preset.kind, "__dataclass_fields__", ())}
    return frozenset(own | {"eps", "norm", "scale", "newest", "victim", "when", "p", "at", "trust", "stats"})


def in_own_words(error: BaseException, command: click.Command, name: str, words: Iterable[str]) -> str:
    """The message of an error, on one line, as a command says it.

    Args:
        error: what a command has raised.
        command: the command.
        name: its name.
        words: what was typed after it.
    """
    known, modules = option_names(command), set(_modules(error))
    if name in _BUILT_FROM_OPTIONS:
        kept = frozenset(re.findall(r"[:,](\w+)=", " ".join(words)))
    else:
        kept = threat_words() if any(module.split(".")[1] in _OF_THREATS for module in modules) else frozenset()
    if "robust_eps" in known and "adv_wrappers.training.train_one_critic" in modules:
        known["eps"] = known["robust_eps"]
    return translate(" ".join(str(error).split()), known, kept)


def translate(message: str, known: dict[str, str], kept: frozenset[str] = frozenset()) -> str:
    """A message with options in place of arguments.

    Args:
        message: one line.
        known: options by the names of arguments.
        kept: names that stay as they are, since they are a threat's.

    >>> from adv_wrappers.cli.messages import translate
    >>> translate("resume=True goes on with a folder: give out=", {"resume": "--resume", "out": "--out"})
    '--resume goes on with a folder: give --out'
    """
    for pattern, said in _SENTENCES:
        message = pattern.sub(said, message)
    for argument, option in _OTHER_NAMES.items():
        if option in known.values():
            message = re.sub(rf"(?<![\w.]){re.escape(argument)}", option, message)
    known = {name: option for name, option in known.items() if name not in kept}
    for name, option in known.items():
        alone = rf"|(?<![\w.:/'\"=-]){name}(?![\w.:/'\"=(-])" if "_" in name else rf"|^{name}(?=, the | must | goes )"
        assigned = rf"(?<![\w.?:,(;/'\"-]){name}=(?P<value>{_VALUE})?"
        message = re.sub(rf"{_CALL}|{assigned}{alone}", partial(_said, option), message)
    return message


def _said(option: str, found: re.Match[str]) -> str:
    """An option with its value, as it is typed."""
    value = found["value"]
    if found["call"] is not None:
        return found[0]
    if value in (None, "True", "..."):
        return option
    return f"no {option}" if value in ("None", "False") else f"{option} {value.strip(chr(39))}"


def _modules(error: BaseException | None) -> Iterator[str]:
    """The package's modules that an error has come through, and those that it was made of."""
    while error is not None:
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            module = str(trace.tb_frame.f_globals.get("__name__"))
            if module.startswith("adv_wrappers."):
                yield module
            trace = trace.tb_next
        error = error.__cause__
