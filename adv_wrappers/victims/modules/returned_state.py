"""Recurrent modules that take their hidden state and return the next one, in whatever form they keep it.

A victim's state has rows first, one tensor beside another. Those of ``nn.LSTM`` and ``nn.GRU`` have layers first, an
answer may have values between the output and the state, and a state may be several arguments. Many modules begin where
none is given, ``forward(x, hidden=None)``: called so, they would begin anew at every step.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import leaves, map_leaves, tensors
from adv_wrappers.victims.modules.frozen_copy import TorchScriptNet
from adv_wrappers.victims.modules.hidden_state import nearly, put_back, unchanged_randomness

_STATE = re.compile(r"state|hidden|^hx|^h$|^h_|memor|rnn|lstm|gru|carry|recurren", re.IGNORECASE)


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


def rows_first(
    function: Callable[..., Any], first: Callable[[int], Any], rows: Callable[[int, int], Any]
) -> RowsFirst | None:
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
    try:
        with torch.no_grad(), unchanged_randomness():
            answer = function(obs, *state) if spread else function(obs, state)
    except Exception:  # what is wrong with it is said later
        return None
    after = answer[1:] if spread else answer[-1] if isinstance(answer, tuple) else None
    same = [np.shape(leaf) for leaf in leaves(after)] == [np.shape(leaf) for leaf in leaves(state)]
    return answer if isinstance(answer, tuple) and same else None


def _axes_of(two: Any, three: Any) -> tuple[int, ...] | None:
    """Along which axis of every leaf the rows lie, from states of two rows and of three; None if of one along none."""
    shapes = zip(map(np.shape, leaves(two)), map(np.shape, leaves(three)), strict=True)
    found = [[i for i, size in enumerate(a) if (size, *b[i : i + 1]) == (2, 3)] for a, b in shapes]
    return tuple(axes[0] for axes in found) if all(found) else None


def returned_start(function: Callable[..., Any], rows: Callable[[int, int], Any]) -> Zeros | None:
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
        with torch.no_grad(), unchanged_randomness():
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
        with torch.no_grad(), unchanged_randomness(), put_back(function):
            function(obs)
    except Exception:  # what is wrong with it is said later
        return None
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
