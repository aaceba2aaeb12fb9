"""References: texts that name a victim, so that a threat's dictionary or an environment's id can hold one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import cast, get_args

import torch

from adv_wrappers.core.budgets import Linf
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.reading import check_max_bytes
from adv_wrappers.utils.threads import one_thread_in_workers
from adv_wrappers.victims.card import load_card
from adv_wrappers.victims.carrl import LowerBound
from adv_wrappers.victims.purified import Purified
from adv_wrappers.victims.rllib import from_rllib
from adv_wrappers.victims.robot_checkpoints import Library, load_checkpoint
from adv_wrappers.victims.sb3 import Stats, load_sb3
from adv_wrappers.victims.smoothed import Smoothed
from adv_wrappers.victims.victim import Select, Victim, device_of

_ZOO = Path(__file__).parent.parent / "zoo"
_AROUND = {  # prefixes of victims around another one, and their options, the first of which is needed
    "smoothed": ("sigma", "vote", "scale", "samples"), "lower-bound": ("eps", "scale", "method"),
    "purified": ("denoiser", "gradient", "draws", "seed"),
}  # fmt: skip


# victims whose files were trusted, by reference
_trusted: ContextVar[dict[str, Victim]] = ContextVar("trusted")


def zoo_names() -> tuple[str, ...]:
    """Names of the agents that are shipped, sorted."""
    return tuple(sorted(path.parent.name for path in _ZOO.glob("*/card.json")))


def _with_options(text: str, known: tuple[str, ...]) -> tuple[str, dict[str, float | str]]:
    """A reference and the options behind it, from ``REFERENCE?name=value&name=value``; the first is needed."""
    inner, _, told = text.rpartition("?")
    pairs = [pair.partition("=") for pair in told.split("&")]
    found = {name: _number(value) for name, _, value in pairs}
    if not set(found) <= set(known) or known[0] not in found:
        more = ", ".join(known[1:])
        raise VictimError(f"expected REFERENCE?{known[0]}=VALUE, and {more} likewise, joined by &, got {text!r:.80}")
    return inner, found


def _number(text: str) -> float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


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
        ref: a victim, or ``zoo:NAME`` (shipped, see :func:`zoo_names`), ``card:FOLDER``, ``sb3:FILE.zip``,
            ``sb3:FILE.zip?stats=FILE``, ``rllib:FOLDER`` (a checkpoint, see :func:`adv_wrappers.from_rllib`),
            ``rsl_rl:FILE.pt`` or ``rl_games:FILE.pth``, with ``?activation=elu`` where no configuration lies near it
            (see :func:`adv_wrappers.victims.robot_checkpoints.load_checkpoint`); or one around another:
            ``smoothed:REFERENCE?sigma=0.1&vote=5`` (``scale``, ``samples``, see
            :class:`adv_wrappers.victims.smoothed.Smoothed`), ``lower-bound:REFERENCE?eps=0.05`` (``scale``, ``method``,
            see :class:`adv_wrappers.victims.carrl.LowerBound`) and ``purified:REFERENCE?denoiser=FOLDER``
            (``gradient``, ``draws``, ``seed``, see :class:`adv_wrappers.victims.purified.Purified`).
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
    device, max_bytes = device_of(device), check_max_bytes(max_bytes)
    kind, _, rest = ref.partition(":") if isinstance(ref, str) else ("", "", "")
    if kind in _AROUND:
        inner, options = _with_options(rest, _AROUND[kind])
        more = {"trust": trust, "select": select, "device": device, "dtype": dtype, "stats": stats}
        agent = load_victim(inner, max_bytes=max_bytes, **more)  # type: ignore[arg-type]
        if kind == "smoothed":
            return Smoothed(agent, **options)  # type: ignore[arg-type]
        if kind == "purified":
            return Purified(agent, str(options.pop("denoiser")), **options)  # type: ignore[arg-type]
        within = Linf(options.pop("eps"), options.pop("scale", None))  # type: ignore[arg-type]
        return LowerBound(agent, within, **options)  # type: ignore[arg-type]
    names = zoo_names()
    if stats is not None and kind != "sb3":
        raise VictimError(f"stats= goes with sb3:FILE.zip: a card holds its own statistics, got {ref!r:.80}")
    if kind == "zoo":
        if rest not in names:  # compared with the names and never joined to a path: no .. can leave the zoo
            close = difflib.get_close_matches(rest, names, 1)
            meant = f": did you mean zoo:{close[0]}?" if close else f"; known: {', '.join(names) or 'none'}"
            raise VictimError(f"no agent {rest!r} in the zoo{meant}")
        return load_card(_ZOO / rest, select=select, device=device, dtype=dtype, ref=ref)
    if kind == "card" and rest:
        return load_card(rest, select=select, device=device, dtype=dtype, ref=ref, max_bytes=max_bytes)
    if kind == "sb3" and rest:
        if dtype not in (None, torch.float32):
            raise VictimError(f"SB3 agents compute in float32, got dtype={dtype}")
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
            trust=trust,
            device=device,
            select=select or "mode",
            stats=stats,
            max_bytes=max_bytes,
            ref=f"sb3:{path}{named}",
        )
    if kind == "rllib" and rest:
        if dtype not in (None, torch.float32):
            raise VictimError(f"RLlib agents compute in float32, got dtype={dtype}")
        return from_rllib(Path(rest), trust=trust, device=device, select=select or "mode", ref=ref)
    if kind in get_args(Library) and rest:
        path, _, activation = rest.partition("?activation=")
        return load_checkpoint(
            path,
            cast(Library, kind),
            activation=activation or None,
            select=select or "mode",
            device=device,
            dtype=dtype,
            max_bytes=max_bytes,
            ref=ref,
        )
    if kind in ("onnx", "torchscript"):
        raise VictimError(
            f"{ref!r:.80} is a file that knows no spaces: adv-wrappers evaluate, report and robot take it with those "
            f"of ENV, imitate makes a card that imitates it, and in Python from_{kind}(FILE, observation_space, "
            "action_space, kind) is a victim"
        )
    if isinstance(ref, str) and Path(ref).suffix == ".zip":
        raise VictimError(f"a victim in a zip of Stable-Baselines3 is sb3:FILE.zip: did you mean sb3:{ref}?")
    raise VictimError(
        "a victim is 'zoo:NAME', 'card:FOLDER', 'sb3:FILE.zip', 'rllib:FOLDER', 'rsl_rl:FILE.pt' or "
        "'rl_games:FILE.pth' (in Python also what from_sb3 and from_module make), got "
        f"{ref!r:.80}; in the zoo: {', '.join(names) or 'none'}"
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
