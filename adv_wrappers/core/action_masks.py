"""Action masks: which actions an environment allows, found under many names in observations and infos."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces

from adv_wrappers.core.spaces import Path, children, leaf_at
from adv_wrappers.core.types import Info, Space
from adv_wrappers.errors import SpaceError

MASK = "action_mask"
# what games call that which says which actions are allowed: those of sb3-contrib, SMAC, OpenSpiel, RLlib; methods may
# have a get_ before it, and entries of observations and infos have any ..._mask, too
MASK_NAMES = ("action_masks", MASK, "avail_actions", "available_actions", "legal_actions", "legal_moves",
              "valid_actions", "allowed_actions", "valid_action_mask", "valid_action_masks", "legal_action_mask",
              "legal_actions_mask")  # fmt: skip
_OPPOSITE = ("invalid", "illegal", "unavailable", "forbidden")  # of names whose masks would be read the wrong way


@lru_cache(1024)
def _names_mask(key: object) -> bool:
    """Whether an entry of this name may say which actions are allowed."""
    name = key.lower() if isinstance(key, str) else ""
    return name in MASK_NAMES or (name.endswith(("mask", "masks")) and not name.startswith(("_", *_OPPOSITE)))


def mask_path(space: Space, choices: tuple[int, ...]) -> Path | None:
    """Where observations hold the action mask: under ``action_mask``, or under another usual name.

    Args:
        space: of observations.
        choices: the :func:`mask_choices` of the actions. What has another name than ``action_mask`` is a mask where it
            has one entry of 0 or 1 for each of them.

    >>> bits = spaces.MultiBinary(3)
    >>> mask_path(spaces.Dict(obs=spaces.Dict(x=spaces.Discrete(2), legal_actions=bits)), (3,))
    ('obs', 'legal_actions')
    """
    for key, inner in children(space):
        if key == MASK or (_names_mask(key) and _is_mask(inner, sum(choices))):
            return (key,)
        if (path := mask_path(inner, choices)) is not None:
            return (key, *path)
    return None


def unnamed_mask(space: Space, choices: tuple[int, ...]) -> int | None:
    """The part of a Tuple that has the form of an action mask, and no name that says so; None without."""
    if not isinstance(space, spaces.Tuple) or mask_path(space, choices) is not None:
        return None
    return next((i for i, part in enumerate(space.spaces) if choices and _is_mask(part, sum(choices))), None)


def _is_mask(space: Space, entries: int) -> bool:
    if space.shape != (entries,):
        return False
    ends = isinstance(space, spaces.Box) and bool(np.all(space.low == 0) and np.all(space.high == 1))
    return ends or isinstance(space, spaces.MultiBinary)


def mask_name(info: Mapping[str, Any], choices: tuple[int, ...]) -> str | None:
    """Under which name an info holds the action mask: ``action_mask``, or another usual one; None without.

    Args:
        info: of one row, or of several.
        choices: the :func:`mask_choices` of the actions. What has another name than ``action_mask`` is a mask where it
            has the form of one.
    """
    if info.get(MASK) is not None or not choices:
        return MASK if MASK in info else None
    for key in info:
        if _names_mask(key) and as_mask(info[key], choices, key) is not None:
            return key
    return None


def as_mask(value: Any, choices: tuple[int, ...], name: str) -> Any:
    """What has the form of an action mask, of one row or of several, as an array; None for anything else.

    The numbers of the actions that are allowed make one, too, as OpenSpiel lists them under ``legal_actions``.

    >>> as_mask([0, 2], (3,), "legal_actions"), as_mask([True, False, True], (3,), "mask"), as_mask("all", (3,), "mask")
    (array([1, 0, 1], dtype=int8), array([ True, False,  True]), None)
    """
    if isinstance(value, np.ndarray) and value.dtype == np.dtype(object) and len(choices) == 1:  # of several rows
        rows = [as_mask(np.ones(choices, bool) if row is None else row, choices, name) for row in value]
        return np.stack(rows) if rows and all(row is not None for row in rows) else None
    numbered = len(choices) == 1 and not any(word in name for word in ("mask", "avail"))
    try:
        found: Any = np.asarray(side_by_side_mask(value, choices))
    except (SpaceError, ValueError, TypeError, IndexError):
        found = None
    entries = sum(choices)
    if found is not None and found.dtype.kind in "biuf" and found.shape[-1:] == (entries,):
        both = numbered and found.dtype.kind in "iu" and found.tolist() == [0, 1]  # the numbers of both actions
        if np.isin(found, (0, 1)).all() and not both:
            return found
    if not numbered or not isinstance(value, (list, tuple, set, np.ndarray)):
        return None
    numbers = np.array([*value])
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or not np.isin(numbers, range(entries)).all():
        return None
    mask = np.zeros(entries, np.int8)
    mask[numbers] = 1
    return mask


def told_mask(info: Mapping[str, Any], choices: tuple[int, ...]) -> Any:
    """The mask that an info holds under one of the names, as one array; None where it holds none."""
    name = mask_name(info, choices)
    if name is None:
        return None
    return side_by_side_mask(info[MASK], choices) if name == MASK else as_mask(info[name], choices, name)


def action_mask_of(obs: Any, info: Mapping[str, Any], path: Path | None) -> Any:
    """The action mask, from an info or an observation; or None.

    Args:
        obs: the observation, or several side by side, as the environment returned it: that of a layer is not trusted.
        info: its info.
        path: the :func:`mask_path` of observations.
    """
    mask = info.get(MASK)
    return leaf_at(obs, path) if mask is None and path is not None else mask


def with_mask(obs: Any, info: Info, path: Path | None) -> Info:
    """``info`` with the mask of the observation, where it has none: layers further out see an observation attacked."""
    mask = action_mask_of(obs, info, path)
    return info if mask is None or mask is info.get(MASK) else {**info, MASK: mask}


def mask_choices(space: Space) -> tuple[int, ...]:
    """How many entries a mask has for each action of a space; none where masks have another form, or there are none."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    return tuple(space.nvec.tolist()) if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 else ()


def side_by_side_mask(mask: Any, choices: tuple[int, ...]) -> Any:
    """A mask as one array: Gymnasium's of a MultiDiscrete is a tuple, with an array or a list for every entry.

    Args:
        mask: of one row or of several, or None.
        choices: the :func:`mask_choices` of the actions.

    Returns:
        None where there is none, and for actions whose masks have another form.

    Raises:
        SpaceError: for a mask of another length.
    """
    if mask is None or not choices:
        return None
    if isinstance(mask, np.ndarray) and mask.dtype.kind == "O":  # a tuple a row, as a vector collects them
        whole = np.ones(sum(choices), np.int8)
        return np.stack([whole if row is None else side_by_side_mask(row, choices) for row in mask])
    # an array for every entry, or one of all choices
    parts = isinstance(mask, (tuple, list)) and len(mask) > 0 and np.ndim(mask[0]) > 0
    lengths = tuple(np.shape(part)[-1] for part in mask) if parts else np.shape(mask)[-1:]
    expected = choices if parts else (sum(choices),)
    if lengths != expected:
        wanted, found = (" and ".join(map(str, sizes)) or "none" for sizes in (expected, lengths))
        raise SpaceError(f"{MASK} must hold {wanted} entries, one for every choice of an action, got {found}")
    return np.concatenate([np.asarray(part) for part in mask], -1) if parts else mask
