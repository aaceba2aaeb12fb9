"""Modules and functions are asked, and left as they were: all that they hold is put back after a call.

Looked through are buffers and other values (tensors, arrays, numbers, lists of them) of a module and its parts, of
ScriptModules as well, and of the objects that a function reaches: by what it encloses, by global names, as the object
of a method. Running statistics of a normaliser that go on in evaluation are such values, too, and so is a small
parameter, which calls may write.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.utils.trees import clone, leaves, map_leaves
from adv_wrappers.victims.distributions import DistributionFamily, as_distribution
from adv_wrappers.victims.functions import to_arrays

_DEEPEST = 5  # objects within objects of a function that are looked through
_MOST = 2**24  # bytes of one value; a replay buffer is no hidden state
_MOST_WEIGHTS = 2**14  # numbers of a parameter that may be one
_FOREIGN = ("torch.", "numpy.", "gymnasium.", "adv_wrappers.core.", "adv_wrappers.utils.")  # whose code has no state
_OWN = {*vars(nn.Module()), "training"}
Rows = Callable[[int, int], Any]  # a seed and a number of rows to as many random observations
Owner = Any  # an object with attributes


@dataclass(frozen=True)
class Place:
    """Where a value is kept: the number of its owner among :func:`owners`, and its name there."""

    owner: int
    name: str


def owners(root: object) -> list[Owner]:
    """What keeps the values that a module or function can change, in an order that its copies have, too."""
    found, seen = list[Owner](), set[int]()
    queue = deque([(root, 0)])
    while queue:
        it, depth = queue.popleft()
        if id(it) in seen or depth > _DEEPEST or isinstance(it, (type, ModuleType, Tensor)):
            continue
        seen.add(id(it))
        inner: list[object] = []
        # what each kind of object holds: modules their parts, functions what they enclose and name, methods their
        # object
        if isinstance(it, nn.Module):
            found.append(it)
            inner = [*it.children(), *(value for name, value in vars(it).items() if name not in _OWN)]
            depth -= 1  # modules may lie as deep as they like
        elif isinstance(it, FunctionType):
            if (it.__module__ or "").startswith(_FOREIGN):
                continue
            inner = [cell.cell_contents for cell in it.__closure__ or () if _filled(cell)]
            inner += [it.__globals__[name] for name in _names(it.__code__) if name in it.__globals__]
            inner += [*(it.__defaults__ or ()), *(it.__kwdefaults__ or {}).values()]
        elif isinstance(it, MethodType):
            inner = [it.__self__, it.__func__]
        elif isinstance(it, functools.partial):
            inner = [it.func, *it.args, *it.keywords.values()]
        elif isinstance(it, (list, tuple, dict)) and len(it) < 100:
            inner = [*(it.values() if isinstance(it, dict) else it)]
        elif _is_object(it) and not type(it).__module__.startswith(_FOREIGN) and not _is_environment(it):
            found.append(it)
            inner = [*_attributes(it).values(), type(it).__call__ if callable(it) else None]
        queue.extend((each, depth + 1) for each in inner if not _is_value(each))
    return found


def _slots(it: object) -> list[str]:
    named = [kind.__dict__.get("__slots__", ()) for kind in type(it).__mro__]
    return [name for names in named for name in ((names,) if isinstance(names, str) else names)]


def _is_object(it: object) -> bool:
    return hasattr(it, "__dict__") or bool(_slots(it))


def _attributes(it: object) -> dict[str, Any]:
    """The attributes of an object, also of one with slots."""
    slots = {name: getattr(it, name) for name in _slots(it) if name[:2] != "__" and hasattr(it, name)}
    return {**getattr(it, "__dict__", {}), **slots}


def _is_environment(it: object) -> bool:
    return all(hasattr(it, name) for name in ("observation_space", "reset", "step"))


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(code: CodeType) -> set[str]:
    """The global names in a function's code, and in that of comprehensions and functions within it."""
    return {*code.co_names}.union(*(_names(part) for part in code.co_consts if isinstance(part, CodeType)))


def _is_value(value: object) -> bool:
    """Whether this may be a state: a tensor that is no weight, an array, a number, None, or a few of them."""
    if isinstance(value, Tensor):
        return not isinstance(value, nn.Parameter) and value.numel() * value.element_size() <= _MOST
    if isinstance(value, np.ndarray):
        return value.dtype != object and value.nbytes <= _MOST
    if isinstance(value, (list, tuple, deque)):
        return len(value) <= 1000 and all(map(_is_value, value))
    if isinstance(value, dict):
        return len(value) <= 100 and all(map(_is_value, value.values()))
    return value is None or isinstance(value, (bool, int, float, np.generic))


def values_of(held: Sequence[Owner]) -> Iterator[tuple[Place, Any]]:
    """All values that may be a state, and where they are kept."""
    for number, owner in enumerate(held):
        names: Any = [*_attributes(owner)]
        if isinstance(owner, torch.jit.ScriptModule):
            # a program lists what it holds in its own text alone
            names = re.findall(
                r"^    (\w+) = ", owner._c.dump_to_str(False, False, False).partition("methods {")[0], re.M
            )
        elif isinstance(owner, nn.Module):
            names += [*owner._buffers, *owner._parameters]
        for name in dict.fromkeys(names):
            value: Any = getattr(owner, name, None)
            weight = isinstance(owner, nn.Module) and isinstance(value, nn.Parameter) and not value.is_meta
            if name not in _OWN and (_is_value(value) or (weight and value.numel() <= _MOST_WEIGHTS)):
                yield Place(number, name), value


def put(owner: Owner, name: str, value: Any) -> None:
    """Let an owner keep a value under a name, whatever it kept there."""
    if isinstance(owner, nn.Module) and isinstance(getattr(owner, name, None), nn.Parameter):
        owner._parameters[name] = value if isinstance(value, nn.Parameter) else nn.Parameter(value, requires_grad=False)
    elif isinstance(owner, nn.Module):
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)  # of frozen dataclasses, too


def copied(value: Any) -> Any:
    """A state that is written to by nobody else, without the graph of what made it."""
    return map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else copy.copy(leaf), value)


def told(value: Any) -> Any:
    """A state in a form whose equality is that of all its numbers."""

    def tell(leaf: Any) -> object:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().dequantize() if leaf.is_quantized else leaf.detach()
            # by the bits, so that NaN equals itself
            bits = leaf.cpu().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
            return leaf.dtype, leaf.shape, leaf.device, bits.numpy().tobytes()
        if isinstance(leaf, np.ndarray):
            return leaf.dtype, leaf.shape, leaf.tobytes()
        return type(leaf), repr(leaf)

    return map_leaves(tell, value)


@contextmanager
def unchanged_randomness() -> Iterator[None]:
    """What is called within draws its random numbers, and those of everybody else are what they would have been."""
    before, own = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        try:
            yield
        finally:
            np.random.set_state(before)
            random.setstate(own)


@contextmanager
def put_back(root: object) -> Iterator[tuple[list[Owner], dict[Place, Any]]]:
    """Within it a module may be called; afterwards it holds what it held: its :func:`owners`, and copies of that."""
    held = owners(root)
    # the objects that are held now, and copies of what they contain
    before = dict(values_of(held))
    kept = {place: copied(value) for place, value in before.items()}
    programs = {number for number, owner in enumerate(held) if isinstance(owner, torch.jit.ScriptModule)}
    for place, value in before.items():
        if place.owner not in programs and isinstance(value, (Tensor, np.ndarray, list, dict, deque)):
            put(held[place.owner], place.name, copied(value))  # it may be written to
    try:
        yield held, kept
    finally:
        # the objects themselves are put back, and of programs, which hand out new ones, what they contained
        for place, value in before.items():
            owner = held[place.owner]
            now = getattr(owner, place.name, None)
            if place.owner not in programs and now is not value:
                put(owner, place.name, value)
            elif place.owner in programs and told(now) != told(kept[place]):
                put(owner, place.name, kept[place])


@contextmanager
def unseen(*nets: object) -> Iterator[None]:
    """Within it modules may be called, without gradients, warnings, and traces in them and in all random numbers."""
    with torch.no_grad(), warnings.catch_warnings(), unchanged_randomness(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")  # such as NumPy's, when it gets tensors
        for net in nets:
            stack.enter_context(put_back(net))
        yield


def ask(net: Callable[..., Any], *given: Any, seed: int | None = None, arrays: bool = False) -> Any:
    """What a module or function answers to tensors, or to arrays of them; None where it takes no such thing."""
    with unseen(net):
        if seed is not None:
            seed_all(seed)
        try:
            return net(*(to_arrays(given) if arrays else clone(given)))
        except Exception:  # whatever a user's function raises; what is wrong with it is said later
            return None


def seed_all(seed: int) -> None:
    """Begin the draws of torch, NumPy and Python anew; those of CUDA where it is in use."""
    device = torch.accelerator.current_accelerator()
    # torch.manual_seed also decides what CUDA draws once it is used, and nobody could put that back
    unused = device is None or (device.type == "cuda" and not torch.cuda.is_initialized())
    (torch.default_generator if unused else torch).manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def numbers(answer: object) -> list[Tensor]:
    """All that a module's answer holds, as tensors to compare."""
    if isinstance(answer, torch.distributions.Distribution):
        answer = [value for _, value in sorted(vars(answer).items()) if not isinstance(value, torch.Size)]
        return [t for value in answer for t in numbers(value)]
    return [
        torch.as_tensor(leaf).detach()
        for leaf in leaves(answer)
        if isinstance(leaf, (Tensor, np.ndarray, np.generic, float, int, bool))
    ] + [t for leaf in leaves(answer) if isinstance(leaf, torch.distributions.Distribution) for t in numbers(leaf)]


def nearly(one: object, other: object) -> bool:
    """Whether two answers are the same but for rounding; of the device meta, whose tensors hold nothing, none are."""
    first, second = numbers(one), numbers(other)
    return len(first) == len(second) and all(
        not a.is_meta
        and a.shape == b.shape
        and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


def joined_answers(answers: Sequence[Any]) -> Any:
    """The answers for one row each, as the answer for all of them."""
    one = answers[0]
    if isinstance(one, Tensor):
        return torch.cat([answer if answer.dim() else answer[None] for answer in answers])
    if isinstance(one, (np.ndarray, np.generic, int, float)):
        return np.concatenate([np.atleast_1d(answer) for answer in answers])
    # part by part
    if isinstance(one, (tuple, list)):
        return type(one)(joined_answers([answer[i] for answer in answers]) for i in range(len(one)))
    if isinstance(one, dict):
        return {key: joined_answers([answer[key] for answer in answers]) for key in one}
    if isinstance(one, torch.distributions.Distribution):
        family = DistributionFamily(one)
        return family.policy(torch.cat([family.params(answer) for answer in answers]))
    return one


def rows_of(answer: object) -> int | None:
    """How many rows an answer has; None for a number."""
    with contextlib.suppress(ValueError):  # of a list of parts of several shapes
        if isinstance(answer, list) and all(np.ndim(part) < 2 for part in answer):  # an action, and not heads
            return len(answer)
    parts: list[Any] = [*map(as_distribution, leaves(answer))]
    shapes = [
        each.batch_shape if isinstance(each, torch.distributions.Distribution) else np.shape(each) for each in parts
    ]
    return next((int(shape[0]) for shape in shapes if shape), None)
