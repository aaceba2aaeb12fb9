"""Recurrent modules: one that keeps its hidden state inside, and one that takes it and returns the next.

Policies of legged robots are exported with their state in buffers: ``policy(obs)`` writes it, ``reset_memory()`` clears
it. Called as they are, such a state runs on over rows, episodes and the queries of an attack. Here it is found by
calling the module and comparing what it holds before and after; then it is taken out. A call puts the state of its row
in, and what lay there before back: the module itself is never changed.

A victim's state has rows first, one tensor beside another. Those of ``nn.LSTM`` and ``nn.GRU`` have layers first, an
answer may have values between the output and the state, and a state may be several arguments. Many modules begin where
none is given, ``forward(x, hidden=None)``: called so, they would begin anew at every step.
"""

from __future__ import annotations

import inspect
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import leaves, map_leaves, select, tensors
from adv_wrappers.victims.functions import to_arrays
from adv_wrappers.victims.modules.asking import (
    Owner,
    Place,
    Rows,
    ask,
    copied,
    joined_answers,
    nearly,
    owners,
    put,
    put_back,
    rows_of,
    seed_all,
    told,
    unseen,
    values_of,
)
from adv_wrappers.victims.modules.frozen_copy import TorchScriptNet

_RESETS = ("reset_memory", "reset_hidden_states", "reset_hidden_state", "reset_hidden", "reset_states", "reset_state",
           "reset")  # fmt: skip
_WARM, _ASKED = (12, 13, 64), 8  # observations before: no period divides them all; and at which answers are compared
_STATE = re.compile(r"state|hidden|^hx|^h$|^h_|memor|rnn|lstm|gru|carry|recurren", re.IGNORECASE)

# ----------------------------------------------------------------------------------------------------------------------
# A state that is kept inside.
# ----------------------------------------------------------------------------------------------------------------------


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
                put(*slot, value)
            with _saved_apart(given):
                out = self.function(obs)
            return out, tuple(copied(getattr(*slot)) for slot in slots[: len(self.places)])
        finally:
            for slot, value in zip(slots, before, strict=True):
                put(*slot, value)


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


def take_out_state(net: Callable[..., Any], given: Rows) -> HiddenState | None:
    """The module or function with its hidden state taken out, or called row by row; None for one that needs neither.

    It is called some times, with the states that it holds put back and without a trace in anybody's random numbers.

    Args:
        net: takes a batch of observations.
        given: a seed and a number of rows to as many random observations.
    """
    with unseen(), put_back(net) as (held, first):
        # how it can be called: with tensors or arrays, with two rows or one
        forms = [given] if isinstance(net, nn.Module) else [given, lambda seed, count: to_arrays(given(seed, count))]
        rows, alone = next(
            ((form, count == 1) for form in forms for count in (2, 1) if rows_of(ask(net, form(0, count))) == count),
            (given, True),
        )
        # what two calls change is a state, or a cache
        try:
            for seed in range(2):
                net(rows(seed, 1))
        except Exception:
            return None  # what is wrong with it is said later
        changed = [place for place, value in values_of(held) if place in first and told(value) != told(first[place])]
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


def _is_buffer(owner: Owner, name: str) -> bool:
    return isinstance(owner, nn.Module) and name in dict(owner.named_buffers(recurse=False))


def _depends(state: HiddenState, rows: Rows) -> bool:
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
    modules = [owner for owner in held if isinstance(owner, nn.Module)]
    states = {id(getattr(held[place.owner], place.name)) for place in changed}
    weights = [weight for owner in modules for weight in owner.parameters(recurse=False) if id(weight) not in states]
    before = [(weight, weight.detach().clone(), weight._version) for weight in weights]
    parts: list[Any] = [*modules]
    parts += [held[place.owner] for place in changed if not isinstance(held[place.owner], nn.Module)]
    called = [_resets(part, name) for part in parts for name in _RESETS]
    for weight, own, version in before:
        if weight._version != version:  # a reset of another kind
            weight.copy_(own)
    return {place: copied(getattr(held[place.owner], place.name)) for place in changed} if any(called) else {}


def _resets(part: Any, name: str) -> bool:
    """Whether a method of this name could be called: without anything, or with which rows are over."""
    for given in ((), (torch.ones(1, dtype=torch.bool),), (torch.ones(1),)):
        try:
            getattr(part, name)(*given)
        except Exception:  # no such method, or one that takes something else
            continue
        return True
    return False


def _axes(state: HiddenState, rows: Rows) -> tuple[int | None, ...] | None:
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


# ----------------------------------------------------------------------------------------------------------------------
# A state that is taken, and returned.
# ----------------------------------------------------------------------------------------------------------------------


class RowsFirst:
    """A recurrent function, ``(obs, state) -> (output, state)``, with a state whose leaves are ``[rows, ...]``.

    Args:
        function: takes observations and its own state, whose first value is its output and whose last the next state.
        first: rows to its own state at the start of an episode.
        axes: where rows lie in every leaf of it.
        spread: whether the parts of the state are several arguments, and several values at the end.
    """

    def __init__(
        self, function: Callable[..., Any], first: Callable[[int], Any], axes: tuple[int, ...], spread: bool
    ) -> None:
        self.function = function
        self.first = first
        self.axes = axes
        self.spread = spread
        self.form = first(1)
        if (step := getattr(function, "advance", None)) is not None:
            self.advance = partial(self._advanced, step)

    def start(self, rows: int) -> tuple[Any, ...]:
        """The state at the start of an episode, by rows."""
        return self._by_rows(self.first(rows))

    def own(self, state: tuple[Any, ...]) -> Any:
        """The same state as the function takes it."""
        parts = iter([_moved(leaf, 0, axis) for leaf, axis in zip(state, self.axes, strict=True)])
        return map_leaves(lambda _: next(parts), self.form)

    def __call__(self, obs: Any, state: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        own = self.own(state)
        answer = self.function(obs, *own) if self.spread else self.function(obs, own)
        return answer[0], self._by_rows(answer[1:] if self.spread else answer[-1])

    def value(self, net: Callable[..., Any], obs: Any, state: tuple[Any, ...]) -> Any:
        """What a network beside it answers, which takes the state as the function does."""
        return net(obs, *self.own(state)) if self.spread else net(obs, self.own(state))

    def _advanced(self, step: Callable[..., Any], obs: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._by_rows(step(obs, self.own(state)))

    def _by_rows(self, own: Any) -> tuple[Any, ...]:
        return tuple(_moved(leaf, axis, 0) for leaf, axis in zip(leaves(own), self.axes, strict=True))


def _moved(leaf: Any, source: int, target: int) -> Any:
    return leaf.movedim(source, target) if isinstance(leaf, Tensor) else np.moveaxis(leaf, source, target)


class Zeros:
    """Rows to a state of zeros of the form of another one, where rows lie along some axis of every leaf."""

    def __init__(self, form: Any, axes: tuple[int, ...]) -> None:
        self.form, self.axes = form, axes

    def __call__(self, rows: int) -> Any:
        axes = iter(self.axes)

        def zeros(leaf: Tensor) -> Tensor:
            shape = list(leaf.shape)
            shape[next(axes)] = rows
            return leaf.new_zeros(shape)

        return map_leaves(zeros, self.form)


def rows_first(function: Callable[..., Any], first: Callable[[int], Any], rows: Rows) -> RowsFirst | None:
    """The function as :class:`RowsFirst`; None for one that is so already, or whose answers say nothing of a state.

    Raises:
        VictimError: for a state of which a part is the same for any number of rows.
    """
    if getattr(first(2), "dtype", None) == np.dtype(object):  # which a function keeps itself
        return None
    axes = _axes_of(first(2), first(3))
    if axes is None:
        shapes = [tuple(np.shape(leaf)) for leaf in leaves(first(2))]
        raise VictimError(f"initial_state(rows) must have rows along an axis of every part, got shapes {shapes} for 2")
    # the state as one argument, or as several
    whole, spread = _answer(function, rows(0, 2), first(2), False), False
    if whole is None and isinstance(first(2), tuple):
        whole, spread = _answer(function, rows(0, 2), first(2), True), True
    plain = all(axis == 0 for axis in axes) and not isinstance(first(2), list)
    if whole is None or (plain and not spread and len(whole) == 2):
        return None
    return RowsFirst(function, first, axes, spread)


def _answer(function: Callable[..., Any], obs: Any, state: Any, spread: bool) -> tuple[Any, ...] | None:
    """What a function answers, if that is a tuple that ends with a state of the same form."""
    answer = ask(function, obs, *(state if spread else (state,)))
    after = answer[1:] if spread and answer else answer[-1] if isinstance(answer, tuple) else None
    same = [np.shape(leaf) for leaf in leaves(after)] == [np.shape(leaf) for leaf in leaves(state)]
    return answer if isinstance(answer, tuple) and same else None


def _axes_of(two: Any, three: Any) -> tuple[int, ...] | None:
    """Along which axis of every leaf the rows lie, from states of two rows and of three; None if of one along none."""
    shapes = zip(map(np.shape, leaves(two)), map(np.shape, leaves(three)), strict=True)
    found = [[i for i, size in enumerate(a) if (size, *b[i : i + 1]) == (2, 3)] for a, b in shapes]
    return tuple(axes[0] for axes in found) if all(found) else None


def returned_start(function: Callable[..., Any], rows: Rows) -> Zeros | None:
    """The state at the start of an episode of a module that begins where none is given, and returns the next.

    Such a module has a second argument that is named as a state and may be left out; what it returns last changes its
    next answer. Actions may be the same for a while: there the next state is enough.

    Args:
        function: the module or function.
        rows: a seed and a number of rows to as many random observations.

    Raises:
        VictimError: for one that begins elsewhere than at zeros.
    """
    name = _second(function)
    if name is None or _STATE.search(name) is None:
        return None
    try:
        with unseen(function):
            two = function(rows(0, 2))
            three = function(rows(0, 3))
            after = rows(1, 2)
            state = two[-1] if isinstance(two, tuple) and len(two) > 1 else None
            if not [*tensors(state)]:
                return None
            # whether the state changes the next answer, or, of actions, the next state
            told, fresh = function(after, state), function(after)
            alike = map_leaves(np.shape, told) == map_leaves(np.shape, fresh)
            of_numbers = torch.is_tensor(told[0]) and told[0].is_floating_point()
            if not alike or (nearly(told[0], fresh[0]) and (of_numbers or nearly(told[-1], fresh[-1]))):
                return None
            axes = _axes_of(state, three[-1])
            if axes is None:
                return None
            # zeros of the state's form have to give the answer that it gives without a state
            start = Zeros(map_leaves(lambda leaf: leaf.detach(), state), axes)
            begins = nearly(function(after, start(2))[0], fresh[0])
    except Exception:  # of one that takes something else there
        return None
    if not begins:
        raise VictimError(
            f"the module returns a hidden state and takes it as {name!r}, and begins elsewhere than at zeros: give "
            "initial_state=, a function of a number of rows to the state that an episode begins with"
        )
    return start


def begins_anew(function: Callable[..., Any], obs: Any) -> str | None:
    """The start of an LSTM, GRU or RNN, as code, that begins at zeros for one step of each row; None without one.

    So does one whose state is left behind. One that reads a sequence within the observation takes several steps.
    """
    found = list[str]()

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(layer, nn.RNNBase):
            steps = inputs[0].shape[1 if layer.batch_first and inputs[0].dim() == 3 else 0]
            zeros = f"torch.zeros({layer.num_layers}, rows, {layer.hidden_size})"
        elif isinstance(layer, nn.RNNCellBase):
            steps, zeros = 1, f"torch.zeros(rows, {layer.hidden_size})"
        else:
            return
        if steps == 1 and not any(bool(part.any()) for part in tensors(inputs[1:])):
            found.append(f"({zeros}, {zeros})" if isinstance(layer, (nn.LSTM, nn.LSTMCell)) else zeros)

    # every recurrent layer is watched in one call
    hook = nn.modules.module.register_module_forward_pre_hook(look)
    try:
        ask(function, obs)
    finally:
        hook.remove()
    return found[0] if found else None


def _second(function: Callable[..., Any]) -> str | None:
    """The name of the second argument of a function, where it may be left out and others too."""
    if isinstance(function, TorchScriptNet):
        arguments = function.program.forward.schema.arguments[1:]
        return arguments[1].name if len(arguments) > 1 and arguments[1].has_default_value() else None
    try:
        called = getattr(function, "forward", function)
        known = [*inspect.signature(called).parameters.values()]
    except (TypeError, ValueError):
        return None
    takes = [each for each in known if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return takes[1].name if len(takes) > 1 and takes[1].default is not inspect.Parameter.empty else None
