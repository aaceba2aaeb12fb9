"""References: texts that name a victim, so that a threat's dictionary or an environment's id can hold one."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from adv_wrappers.core.budgets.budget import Linf
from adv_wrappers.errors import VictimError
from adv_wrappers.registry import VICTIM_FILES, WITH_SPACES, written_references
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.parsing import parse_value
from adv_wrappers.utils.reading import check_max_bytes
from adv_wrappers.utils.threads import one_thread_in_workers
from adv_wrappers.utils.validation import either
from adv_wrappers.victims.card import load_card
from adv_wrappers.victims.carrl import LowerBound
from adv_wrappers.victims.hub import fetch
from adv_wrappers.victims.isaac_lab import Library, load_checkpoint
from adv_wrappers.victims.rllib import from_rllib
from adv_wrappers.victims.sb3.victim import Stats, load_sb3
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Select, Victim, device_of

_ZOO = Path(__file__).parent.parent / "zoo"

# victims whose files were trusted, by reference
_trusted: ContextVar[dict[str, Victim]] = ContextVar("trusted")


def zoo_names() -> tuple[str, ...]:
    """Names of the agents that are shipped, sorted."""
    return _names_in(_ZOO)


@functools.cache
def _names_in(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in folder.glob("*/card.json")))


@dataclass(frozen=True)
class _How:
    """How a file is loaded: the arguments of :func:`load_victim`."""

    trust: bool
    select: Select | None
    device: torch.device
    dtype: torch.dtype | None
    stats: Stats
    max_bytes: int | None


def _around(rest: str, how: _How, *known: str) -> tuple[Victim, dict[str, Any]]:
    """The victim and the options of ``REFERENCE?name=value&name=value``; the first option is needed."""
    inner, _, told = rest.rpartition("?")
    pairs = [pair.partition("=") for pair in told.split("&")]
    found = {name: parse_value(value) for name, _, value in pairs}
    if not set(found) <= set(known) or known[0] not in found:
        more = ", ".join(known[1:])
        raise VictimError(f"expected REFERENCE?{known[0]}=VALUE, and {more} likewise, joined by &, got {rest!r:.80}")
    return load_victim(inner, **vars(how)), found


def _smoothed(ref: str, rest: str, how: _How) -> Victim:
    agent, options = _around(rest, how, "sigma", "vote", "scale", "samples")
    return Smoothed(agent, **options)


def _lower_bound(ref: str, rest: str, how: _How) -> Victim:
    agent, options = _around(rest, how, "eps", "scale", "method")
    within = Linf(options.pop("eps"), options.pop("scale", None))
    return LowerBound(agent, within, **options)


def _zoo(ref: str, rest: str, how: _How) -> Victim:
    names = zoo_names()
    if rest not in names:  # compared with the names and never joined to a path: no .. can leave the zoo
        close = difflib.get_close_matches(rest, names, 1)
        meant = f": did you mean zoo:{close[0]}?" if close else f"; known: {', '.join(names) or 'none'}"
        raise VictimError(f"no agent {rest!r} in the zoo{meant}")
    return load_card(_ZOO / rest, select=how.select, device=how.device, dtype=how.dtype, ref=ref)


def _card(ref: str, rest: str, how: _How) -> Victim:
    return load_card(rest, select=how.select, device=how.device, dtype=how.dtype, ref=ref, max_bytes=how.max_bytes)


def _hub(ref: str, rest: str, how: _How) -> Victim:
    folder, ref = fetch(rest, how.max_bytes)
    return _card(ref, str(folder), how)


def _sb3(ref: str, rest: str, how: _How) -> Victim:
    stats = how.stats
    path, marker, stated = rest.rpartition("?stats=")
    if marker and stats is None:
        stats = False if stated == "none" else stated
    path = path if marker else rest
    if not Path(path).exists() and Path(f"{path}.zip").exists():  # as Stable-Baselines3 loads it
        path = f"{path}.zip"
    # in the reference, so that a dictionary finds it again
    named = "" if stats is None else f"?stats={'none' if stats is False else stats}"
    return load_sb3(
        path,
        trust=how.trust,
        device=how.device,
        select=how.select or "mode",
        stats=stats,
        max_bytes=how.max_bytes,
        ref=f"sb3:{path}{named}",
    )


def _rllib(ref: str, rest: str, how: _How) -> Victim:
    return from_rllib(Path(rest), trust=how.trust, device=how.device, select=how.select or "mode", ref=ref)


def _checkpoint(library: Library, ref: str, rest: str, how: _How) -> Victim:
    path, _, activation = rest.partition("?activation=")
    return load_checkpoint(
        path,
        library,
        activation=activation or None,
        select=how.select or "mode",
        device=how.device,
        dtype=how.dtype,
        max_bytes=how.max_bytes,
        ref=ref,
    )


def _without_spaces(ref: str, rest: str, how: _How) -> Victim:
    raise VictimError(
        f"{ref!r:.80} is a file that knows no spaces: adv-wrappers evaluate, report and robot take it with those "
        f"of ENV, imitate makes a card that imitates it, and in Python from_{ref.partition(':')[0]}(FILE, "
        "observation_space, action_space, kind) is a victim"
    )


_AROUND = {"smoothed": _smoothed, "lower-bound": _lower_bound}  # another victim
# by prefix, what loads a reference; called with all of it, what is behind the colon, and how
_LOADERS: dict[str, Callable[[str, str, _How], Victim]] = {
    **_AROUND,
    "zoo": _zoo,
    "card": _card,
    "hub": _hub,
    "sb3": _sb3,
    "rllib": _rllib,
    **{library: partial(_checkpoint, library) for library in get_args(Library)},
    "onnx": _without_spaces,
    "torchscript": _without_spaces,
}


def load_victim(
    ref: Victim | str,
    *,
    trust: bool = False,
    select: Select | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    stats: Stats = None,
    max_bytes: int | None = None,
) -> Victim:
    """The victim that a text names; a victim is returned as it is.

    Args:
        ref: a victim, or ``zoo:NAME`` (shipped, see :func:`zoo_names`), ``card:FOLDER``, ``hub:user/name@revision``
            (a card on the Hugging Face Hub, see :func:`adv_wrappers.push_to_hub`; the victim's ``ref`` names the
            commit), ``sb3:FILE.zip``, ``sb3:FILE.zip?stats=FILE``, ``rllib:FOLDER`` (a checkpoint, see
            :func:`adv_wrappers.from_rllib`), ``rsl_rl:FILE.pt`` or ``rl_games:FILE.pth``, with ``?activation=elu``
            where no configuration lies near it (see
            :func:`adv_wrappers.victims.isaac_lab.load_checkpoint`); or one around another:
            ``smoothed:REFERENCE?sigma=0.1&vote=5`` (``scale``, ``samples``, see
            :class:`adv_wrappers.victims.smoothed.Smoothed`) and ``lower-bound:REFERENCE?eps=0.05`` (``scale``,
            ``method``, see :class:`adv_wrappers.victims.carrl.LowerBound`).
        trust: run the code that is pickled in sb3:FILE.zip, rllib:FOLDER and ``stats``: for files of your own. A
            checkpoint of RLlib needs it.
        select: how the victim acts; None takes what its card says. An SB3 agent plays the mode.
        dtype: float32 or float64; None is float32, or float64 where observations lie so far from zero that float32
            would round normalised ones. Agents of SB3 and RLlib take None or float32.
        stats: statistics of the ``VecNormalize`` of sb3:FILE.zip; None takes the file that is found beside it. It is a
            file that ``VecNormalize.save`` wrote, or ``.npz`` or ``.json`` with ``mean``, ``var`` or ``std``, ``clip``
            and ``epsilon``. None takes those of the reference, else the file that SB3's callbacks, rl-zoo3 or a
            tutorial left beside the zip; False takes none.
        max_bytes: how long files may be, and how much they may unpack to; None is 256 MiB.

    Raises:
        VictimError: for any other reference, and a name that is not in the zoo.
        CardError: for files that are missing, malformed or too large.
        TrustError: for an SB3 file, statistics, or a checkpoint of RLlib that cannot be read without running code
            from them.

    Warns:
        UserWarning: if an SB3 agent was trained behind a ``VecNormalize`` whose statistics are nowhere.
    """
    if isinstance(ref, Victim):
        return ref
    one_thread_in_workers()
    check_choice("select", select, (None, "mode", "sample"), error=VictimError)
    how = _How(trust, select, device_of(device), dtype, stats, check_max_bytes(max_bytes))
    # KIND:REST, each kind with its loader
    kind, _, rest = ref.partition(":") if isinstance(ref, str) else ("", "", "")
    # arguments that only some kinds take
    if stats is not None and kind not in ("sb3", *_AROUND):
        raise VictimError(f"stats= goes with sb3:FILE.zip: a card holds its own statistics, got {ref!r:.80}")
    if kind in ("sb3", "rllib") and dtype not in (None, torch.float32):
        raise VictimError(f"agents of Stable-Baselines3 and RLlib compute in float32, got dtype={dtype}")
    if kind in _LOADERS and (rest or kind not in VICTIM_FILES):
        return _LOADERS[kind](ref, rest, how)
    if isinstance(ref, str) and Path(ref).suffix == ".zip":
        raise VictimError(f"a victim in a zip of Stable-Baselines3 is sb3:FILE.zip: did you mean sb3:{ref}?")
    # what else it may have been meant as
    without = [kind for kind, files in VICTIM_FILES.items() if not files.spaces]
    meant = [kind for kind in without if isinstance(ref, str) and Path(ref).suffix == VICTIM_FILES[kind].ends]
    hint = f"; in the zoo: {', '.join(zoo_names()) or 'none'}"
    if meant:
        file = rest or ref
        hint = f": did you mean {meant[0]}:{file}, as commands take it, or from_{meant[0]}({file!r}, ...) in Python?"
    written, more = written_references(WITH_SPACES, quote="'"), either(VICTIM_FILES[kind].written for kind in without)
    raise VictimError(
        f"a victim is {written}; commands that play ENV also take {more}, Python what from_sb3, from_module, from_onnx "
        f"and from_torchscript make; got {ref!r:.80}{hint}"
    )


@contextmanager
def trusted_reference(victim: Victim) -> Iterator[None]:
    """Within it, a dictionary that names this victim by its reference means this one.

    An adversary in a folder names its victim by reference. A file that was loaded with ``trust=True`` could not be
    loaded for it again: the folder's word is not the user's.
    """
    token = _trusted.set(_trusted.get({}) | ({victim.ref: victim} if victim.ref else {}))
    try:
        yield
    finally:
        _trusted.reset(token)


def load_referenced(ref: str) -> Victim:
    """The victim that a dictionary names: one within :func:`trusted_reference`, else :func:`load_victim`'s."""
    return _trusted.get({}).get(ref) or load_victim(ref)
