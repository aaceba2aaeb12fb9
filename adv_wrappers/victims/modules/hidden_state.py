"""Modules and functions that keep a hidden state inside, made recurrent: exported LSTMs, filters, histories.

Policies of legged robots are exported with their state in buffers: ``policy(obs)`` writes it, ``reset_memory()`` clears
it. Called as they are, such a state runs on over rows, episodes and the queries of an attack. Here it is found by
calling the module and comparing what it holds before and after; then it is taken out. A call puts the state of its row
in, and what lay there before back: the module itself is never changed.

Looked through are buffers and other values (tensors, arrays, numbers, lists of them) of a module and its parts, of
ScriptModules as well, and of the objects that a function reaches: by what it encloses, by global names, as the object
of a method. Running statistics of a normaliser that go on in evaluation are such a state, too, and so is a parameter
that calls write.
"""

from __future__ import annotations

import copy
import functools
import itertools
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

from adv_wrappers.utils.trees import leaves, map_leaves, select, tensors
from adv_wrappers.victims.distributions import DistributionFamily, as_distribution
from adv_wrappers.victims.functions import SingleObservation, to_arrays

_RESETS = ("reset_memory", "reset_hidden_states", "reset_hidden_state", "reset_hidden", "reset_states", "reset_state",
           "reset")  # fmt: skip
_DEEPEST = 5  # objects within objects of a function that are looked through
_MOST = 2**24  # bytes of one value; a replay buffer is no hidden state
_MOST_WEIGHTS = 2**14  # numbers of a parameter that may be one
_WARM, _ASKED = (12, 13, 64), 8  # observations before: no period divides them all; and at which answers are compared
_FOREIGN = ("torch.", "numpy.", "gymnasium.", "adv_wrappers.core.", "adv_wrappers.utils.")  # whose code has no state
_OWN = {*vars(nn.Module()), "training"}
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


def _values(held: Sequence[Owner]) -> Iterator[tuple[Place, object]]:
    """All values that may be a state, and where they are kept."""
    for number, owner in enumerate(held):
        names: Any = [*_attributes(owner)]
        if isinstance(owner, torch.jit.ScriptModule):
            # a program lists what it holds in its own text alone
            names = re.findall(
                r"^    (\w+) = ", owner._c.dump_to_str(False, False, False).partition("methods {")[0], re.M
            )
        elif isinstance(owner, nn.Module):
            names += [*owner._buffers]
        for name in dict.fromkeys(names):
            if name not in _OWN and _is_value(value := getattr(owner, name, None)):
                yield Place(number, name), value


def _weights(held: Sequence[Owner]) -> Iterator[tuple[Place, nn.Parameter]]:
    """The parameters of modules that are small enough for a state, and where they are kept."""
    for number, owner in enumerate(held):
        if isinstance(owner, nn.Module) and not isinstance(owner, torch.jit.ScriptModule):
            for name, weight in owner._parameters.items():
                if weight is not None and not weight.is_meta and weight.numel() <= _MOST_WEIGHTS:
                    yield Place(number, name), weight


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.detach(), other)


def _put(owner: Owner, name: str, value: Any) -> None:
    if isinstance(owner, nn.Module) and isinstance(getattr(owner, name, None), nn.Parameter):
        owner._parameters[name] = value if isinstance(value, nn.Parameter) else nn.Parameter(value, requires_grad=False)
    elif isinstance(owner, nn.Module):
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)  # of frozen dataclasses, too


def copied(value: Any) -> Any:
    """A state that is written to by nobody else, without the graph of what made it."""
    return map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else copy.copy(leaf), value)


def _told(value: Any) -> Any:
    """A state in a form whose equality is that of all its numbers."""

    def told(leaf: Any) -> object:
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().dequantize() if leaf.is_quantized else leaf.detach()
            # by the bits, so that NaN equals itself
            bits = leaf.cpu().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)
            return leaf.dtype, leaf.shape, leaf.device, bits.numpy().tobytes()
        if isinstance(leaf, np.ndarray):
            return leaf.dtype, leaf.shape, leaf.tobytes()
        return type(leaf), repr(leaf)

    return map_leaves(told, value)


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
    before = dict(_values(held))
    weights = dict(_weights(held))
    kept = {place: copied(value) for place, value in {**before, **weights}.items()}
    programs = {number for number, owner in enumerate(held) if isinstance(owner, torch.jit.ScriptModule)}
    for place, value in before.items():
        if place.owner not in programs and isinstance(value, (Tensor, np.ndarray, list, dict, deque)):
            _put(held[place.owner], place.name, copied(value))  # it may be written to
    try:
        yield held, kept
    finally:
        # the objects themselves are put back, and of programs, which hand out new ones, what they contained
        for place, value in before.items():
            owner = held[place.owner]
            now = getattr(owner, place.name, None)
            if place.owner not in programs and now is not value:
                _put(owner, place.name, value)
            elif place.owner in programs and _told(now) != _told(kept[place]):
                _put(owner, place.name, kept[place])
        for place, weight in weights.items():
            if not _equal(weight, kept[place]):
                weight.data = kept[place]
            _put(held[place.owner], place.name, weight)


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
    """Whether two answers are the same but for rounding."""
    first, second = numbers(one), numbers(other)
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )


class HiddenState:
    """A module or function with its state taken out: ``(obs, state) -> (output, state)``, row by row or all at once.

    Args:
        function: the module or function, which takes observations.
        places: where its state is kept; without any it is called for every row alone, ``obs -> output``.
        still: what a call changes beside that and must not, since it is the state of no episode.
        first: the state at the start of an episode, a value for each of ``places``.
        axes: the axis of each value along which rows lie side by side; None calls the function for one row at a time.
    """

    def __init__(
        self,
        function: Callable[..., object],
        places: Sequence[Place] = (),
        still: Sequence[Place] = (),
        first: Sequence[object] = (),
        axes: tuple[int | None, ...] | None = None,
    ) -> None:
        self.function = function
        self.places = places
        self.still = still
        self.first = tuple(first)
        self.axes = axes
        self._owners: list[Owner] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_owners": None}

    @property
    def recurrent(self) -> bool:
        """Whether there is a state, or rows alone are what is called."""
        return bool(self.places)

    def start(self, rows: int) -> np.ndarray[Any, Any]:
        """The state at the start of an episode: an array of ``rows`` objects, each with a value for each place."""
        return _array([self.first] * rows)

    def __call__(self, obs: Any, state: Any = None) -> Any:
        """The output, or ``(output, new state)`` of one with a state; None is its first one, and none is written to."""
        rows = len(next(leaves(obs)))
        states = self.start(rows) if state is None else state
        # all rows in one call, where their states can lie side by side
        if self.axes is not None and rows > 1:
            try:
                joined = [_join([each[i] for each in states], axis) for i, axis in enumerate(self.axes)]
            except (TypeError, RuntimeError, AttributeError):  # of values whose form differs from row to row
                joined = None
            if joined is not None:
                out, after = self._call(obs, joined)
                parts = [_split(value, axis, rows) for value, axis in zip(after, self.axes, strict=True)]
                return (out, _array([*zip(*parts, strict=True)])) if self.recurrent else out
        # else one row after the other
        answers = [self._call(select(obs, np.array([i])), states[i]) for i in range(rows)]
        out = joined_answers([answer for answer, _ in answers])
        return (out, _array([after for _, after in answers])) if self.recurrent else out

    def _call(self, obs: Any, values: Sequence[object]) -> tuple[Any, tuple[Any, ...]]:
        """The function with some state, and the state that it leaves."""
        self._owners = owners(self.function) if self._owners is None else self._owners
        slots = [(self._owners[place.owner], place.name) for place in (*self.places, *self.still)]
        before = [getattr(*slot) for slot in slots]
        given = [copied(value) for value in (*values, *before[len(self.places) :])]
        # the state goes in, the function runs, and whatever happens what lay there before is put back
        try:
            for slot, value in zip(slots, given, strict=True):
                _put(*slot, value)
            with _saved_apart(given):
                out = self.function(obs)
            return out, tuple(copied(getattr(*slot)) for slot in slots[: len(self.places)])
        finally:
            for slot, value in zip(slots, before, strict=True):
                _put(*slot, value)


@contextmanager
def _saved_apart(state: Sequence[object]) -> Iterator[None]:
    """What autograd keeps of a state it copies: a module writes its new state over it before any gradient is taken."""
    if not torch.is_grad_enabled():
        yield
        return
    written = {tensor.untyped_storage().data_ptr() for tensor in tensors(state)}

    def keep(tensor: Tensor) -> Tensor:
        return tensor.clone() if tensor.untyped_storage().data_ptr() in written else tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


def _array(states: Sequence[object]) -> np.ndarray[Any, Any]:
    made = np.empty(len(states), dtype=object)
    for i, state in enumerate(states):
        made[i] = state
    return made


def _join(values: Sequence[Any], axis: int | None) -> Tensor:
    if any(value.shape != values[0].shape for value in values):
        raise TypeError("states of different shapes")
    return torch.stack([*values]) if axis is None else torch.cat([*values], axis)


def _split(value: Tensor, axis: int | None, rows: int) -> Sequence[Tensor]:
    return value.unbind(0) if axis is None else value.split(value.shape[axis] // rows, axis)


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


def take_out_state(net: Callable[..., Any], given: Callable[[int, int], Any]) -> HiddenState | None:
    """The module or function with its hidden state taken out, or called row by row; None for one that needs neither.

    It is called some times, with the states that it holds put back and without a trace in anybody's random numbers.

    Args:
        net: takes a batch of observations.
        given: a seed and a number of rows to as many random observations.
    """
    with torch.no_grad(), warnings.catch_warnings(), unchanged_randomness(), put_back(net) as (held, first):
        warnings.simplefilter("ignore")  # of NumPy, when it gets tensors
        # how it can be called: with tensors or arrays, with two rows or one
        forms = [given] if isinstance(net, nn.Module) else [given, lambda seed, count: to_arrays(given(seed, count))]
        rows, alone = next(
            ((form, count == 1) for form in forms for count in (2, 1) if _takes(net, form, count)), (given, True)
        )
        # what two calls change is a state, or a cache
        try:
            for seed in range(2):
                net(rows(seed, 1))
        except Exception:
            return None  # what is wrong with it is said later
        changed = [p for p, value in _values(held) if p in first and _told(value) != _told(first[p])]
        changed += [place for place, weight in _weights(held) if place in first and not _equal(weight, first[place])]
        if not changed:
            return HiddenState(net) if alone else None

        # whether answers depend on what was seen before, by way of what changes
        after_reset = _after_reset(held, changed)
        initial = {place: first[place] for place in changed} | after_reset
        state = HiddenState(net, changed, (), [initial[place] for place in changed])
        if not _depends(state, rows):
            if not alone and not any(_is_buffer(held[place.owner], place.name) for place in changed):
                return None  # what it only caches
            state = HiddenState(net, (), changed)
        state.axes = _axes(state, rows)
    if state.recurrent and not after_reset and any(map(_is_used, tensors(state.first))):
        names = ", ".join(sorted({place.name for place in changed}))
        warnings.warn(
            f"the module keeps a state ({names}) that was written before, and no reset() that says how an episode "
            "begins: every episode begins with what it holds now. Give it as it is before its first observation",
            UserWarning,
            stacklevel=3,
        )
    return state


def _is_used(value: Tensor) -> bool:
    """Whether this looks like what a call left: zeros, ones and counts are what modules begin with."""
    return value.is_floating_point() and bool((value != value.round()).any())


def _takes(net: Callable[..., Any], rows: Callable[[int, int], Any], count: int) -> bool:
    """Whether a module answers for so many observations at once, with a row for each; what it changes is put back."""
    with put_back(net), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _rows_of(net(rows(0, count))) == count
        except Exception:
            return False


def _rows_of(answer: object) -> int | None:
    """How many rows an answer has; None for a number."""
    if isinstance(answer, list) and all(np.ndim(part) < 2 for part in answer):  # an action, and not heads
        return len(answer)
    parts: list[Any] = [*map(as_distribution, leaves(answer))]
    shapes = [
        each.batch_shape if isinstance(each, torch.distributions.Distribution) else np.shape(each) for each in parts
    ]
    return next((int(shape[0]) for shape in shapes if shape), None)


def takes_one(net: Callable[..., Any], given: Callable[[int, int], Any]) -> bool:
    """Whether it is a function of one observation ``[*S]``: of a batch it answers for no row by itself.

    Args:
        net: takes observations.
        given: a seed and a number of rows to as many random observations.
    """
    forms = [given, lambda seed, count: to_arrays(given(seed, count))]
    with torch.no_grad(), unchanged_randomness():
        if any(_takes(net, form, count) for count in (7, 1) for form in forms):
            return False
        one = SingleObservation(net)
        return any(_takes(one, form, 1) for form in forms)


def answers(net: Callable[..., Any], rows: Callable[[int, int], Any]) -> bool:
    """Whether a module answers for observations, two of them or one."""
    with torch.no_grad(), unchanged_randomness():
        return _takes(net, rows, 2) or _takes(net, rows, 1)


def _is_buffer(owner: Owner, name: str) -> bool:
    return isinstance(owner, nn.Module) and name in dict(owner.named_buffers(recurse=False))


def _depends(state: HiddenState, rows: Callable[[int, int], Any]) -> bool:
    """Whether what was seen before changes an answer."""
    asked = [rows(100 + seed, 1) for seed in range(_ASKED)]

    def answers(at: Any) -> list[object]:
        found = []
        for obs in asked:
            seed_all(0)
            found.append(state(obs, at)[0])
        return found

    # the same questions with a fresh state, and after some steps on other observations
    now = state.start(1)
    fresh = answers(now)
    for step in range(1, max(_WARM) + 1):
        now = state(rows(step, 1), now)[1]
        if step in _WARM and not nearly(answers(now), fresh):
            return True
    return False


def _after_reset(held: Sequence[Owner], changed: Sequence[Place]) -> dict[Place, Any]:
    """What the module's own method leaves at the start of an episode, where it has one."""
    called = False
    parts: list[Any] = [owner for owner in held if isinstance(owner, nn.Module)]
    weights = [
        (weight, weight.detach().clone(), weight._version) for place, weight in _weights(held) if place not in changed
    ]
    parts += [held[place.owner] for place in changed if not isinstance(held[place.owner], nn.Module)]
    for part in parts:
        called = any(_resets(part, name) for name in _RESETS) or called
    for weight, before, version in weights:
        if weight._version != version:  # a reset of another kind
            weight.copy_(before)
    return {place: copied(getattr(held[place.owner], place.name)) for place in changed} if called else {}


def _resets(part: Any, name: str) -> bool:
    """Whether a method of this name could be called: without anything, or with which rows are over."""
    for given in ((), (torch.ones(1, dtype=torch.bool),), (torch.ones(1),)):
        try:
            getattr(part, name)(*given)
        except Exception:  # no such method, or one that takes something else
            continue
        return True
    return False


def _axes(state: HiddenState, rows: Callable[[int, int], Any]) -> tuple[int | None, ...] | None:
    """Along which axes states of several rows lie side by side, if all rows at once give what each alone does."""
    obs, start = [rows(200 + seed, 3) for seed in range(3)], state.start(3)
    first = [value for value in state.first if isinstance(value, Tensor)]
    if len(first) < len(state.first):
        return None

    def played() -> list[object]:
        now, seen = start, list[object]()
        for each in obs:
            out, now = state(each, now) if state.recurrent else (state(each), now)
            seen += [out, *(list(row) for row in now)]
        return seen

    # rows one by one, then with their states joined along every axis that may be that of rows
    alone = played()
    # where a state for one row has sides of one, rows may lie
    ones = [[i for i, size in enumerate(value.shape) if size == 1] + [None] for value in first]
    for axes in itertools.islice(itertools.product(*ones), 64):
        state.axes = axes
        try:
            if nearly(played(), alone):
                return axes
        except Exception:
            continue
        finally:
            state.axes = None
    return None
