"""What a module or function takes and returns, found out by calling it before a victim is made of it."""

from __future__ import annotations

import copy
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import CHOICES, children, is_text_space, size_difference
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import clone, leaves, map_leaves, tensors
from adv_wrappers.victims.distributions import DistributionFamily, as_distribution, params_of
from adv_wrappers.victims.functions import MainPart, answers_arrays, is_array, to_arrays
from adv_wrappers.victims.modules.action_check import own_methods
from adv_wrappers.victims.modules.asking import Rows, ask, nearly, numbers, unchanged_randomness
from adv_wrappers.victims.victim import RecurrentState, choice_sizes

Net = nn.Module | Callable[..., Any]  # a function may return anything; what it does is checked
InitialState = Callable[[int], RecurrentState]  # rows to a hidden state with leaves [rows, ...]
InputForm = Literal["gradients", "tensors", "arrays", "arrays of tensors"]


Form = Literal["tensor", "pair", "first", "distribution"]


@dataclass(frozen=True)
class ModuleOutput:
    """What a module was found to return.

    Attributes:
        form: "tensor", "pair" (a mean and a log-std), "distribution" or "first" (a tensor, and beside it something
            else such as a hidden state, which is ignored).
        kind: the kind of a distribution; None otherwise.
        width: how many numbers a row has, in both halves of a pair together.
        writes: whether the module writes to its input.
        family: that of a distribution which is neither categorical nor a diagonal Normal.
    """

    form: Form
    kind: Literal["logits", "gaussian", "distribution"] | None
    width: int
    writes: bool
    family: DistributionFamily | None = None


class Probe:
    """A module or function that is called with random observations.

    Args:
        net: takes observations, and with ``start`` a hidden state.
        rows: a seed and a number of rows to as many random observations.
        start: rows to a hidden state, or None.
    """

    def __init__(self, net: Net, rows: Rows, start: InitialState | None) -> None:
        self.net = net
        self.rows = rows
        self.start = start

    def given(self, seed: int = 0, count: int = 2) -> tuple[Any, ...]:
        """What it is called with: observations, and a hidden state where it has one."""
        obs = self.rows(seed, count)
        return (obs,) if self.start is None else (obs, self.start(count))

    def input_form(self) -> InputForm:
        """Whether it works on tensors, with or without gradients, or on numpy arrays.

        It is tried on tensors that require a gradient, then on arrays (NumPy's own functions take tensors too, and
        return them without a gradient), then on plain tensors. One that is quantised, or runs without gradients, has
        none; one that takes tensors alone may answer with arrays.

        Raises:
            VictimError: for a function that takes none of them.
        """

        def call(arrays: bool, gradient: bool) -> tuple[object, bool]:
            if arrays:
                return self.net(*to_arrays(self.given())), False
            obs, *state = self.given()
            with torch.set_grad_enabled(gradient):
                out = self.net(_requiring_gradient(obs) if gradient else obs, *state)
                return out, gradient and _differentiable(out, obs)

        # the forms in turn, until it takes one
        faults: list[Exception] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of NumPy, when it gets tensors
            converts = False
            for arrays, gradient in [(False, True), (True, False), (False, False)]:
                try:
                    out, differentiable = call(arrays, gradient)
                except Exception as error:
                    faults.append(error)
                    continue
                by_arrays = answers_arrays(out)
                # one that fails on tensors and answers with them makes them of arrays within
                if arrays and (by_arrays or (faults and isinstance(out, Tensor))):
                    return "arrays"
                if by_arrays:
                    converts = True
                elif not arrays:
                    return "gradients" if differentiable else "tensors"
        # none did: the fault of the most likely form is told
        if converts:
            return "arrays of tensors"
        if isinstance(self.net, nn.Module):
            return "gradients"  # output says what is wrong with it
        on_arrays = faults[min(1, len(faults) - 1)]
        raise VictimError(f"the module does not take observations: as tensors {faults[0]}; as numpy arrays {on_arrays}")

    def takes_float64(self, space: spaces.Space[object], accepts: InputForm, device: torch.device) -> bool:
        """Whether a space has a Box of float64, and such observations are taken; of tensors, and their precision used.

        A network of float32 takes none. One that normalises before it casts what it has to float32 does.
        """
        inside = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
        wide = any(isinstance(leaf, spaces.Box) and leaf.dtype == np.float64 for leaf in inside)
        if not wide or device.type == "meta":  # which computes nothing that could be compared
            return False
        asked = Probe(self.net, random_rows(space, device, torch.float64), self.start)
        if accepts.startswith("arrays"):
            return ask(self.net, *asked.given(), arrays=True) is not None  # else an inference session for float32
        for size in (1.0, 1e3, 1e6):  # what is subtracted may be large, and rounding shows near it alone
            obs, *state = asked.given(count=16)
            obs = map_leaves(partial(_times, size), obs)
            found = [numbers(ask(self.net, given, *state, seed=0)) for given in (obs, map_leaves(_narrow, obs))]
            if not all(torch.equal(a.float(), b.float()) for a, b in zip(*found, strict=False)):
                return len(found[0]) == len(found[1])
        return False

    def output(self, kind: str | None = None) -> ModuleOutput:
        """What it returns for two random observations.

        Args:
            kind: the kind that the user gave; two tensors are a mean and a log-std unless it has no log-std.

        Raises:
            VictimError: for a module that fails on such observations, or returns what no victim can be made of.
        """
        # asked with two rows, whose error is told as plainly as it can be
        given = self.given()
        before = [leaf._version for leaf in tensors(given)]
        try:
            with torch.no_grad():
                out = self.net(*given)
                out = as_distribution(out if self.start is None else out[0])
        except Exception as error:
            seen = [tuple(leaf.shape) for leaf in tensors(given)]
            # of a linear layer that takes another number of features, which torch says at the end of a traceback
            sizes = re.search(r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x\d+\)", str(error))
            why = str(error) or type(error).__name__
            if sizes is not None:
                why = sizes.group() + (size_difference(int(sizes[3]), int(sizes[2])) if int(sizes[1]) == 2 else "")
            if self.start is None and re.search(r"missing \d+ required positional", why):
                why += "; one that takes a hidden state needs initial_state=lambda rows: torch.zeros(rows, ...)"
            raise VictimError(
                f"the module does not take observations of shapes {seen}: {why}{by_method(self.net)}"
            ) from error
        # whether the call wrote over its input, and whether it takes batches of other sizes
        writes = [leaf._version for leaf in tensors(given)] != before
        more: Any = None
        for count in (1, 3):
            try:
                with torch.no_grad(), unchanged_randomness():
                    more = self.net(*self.given(count=count))
            except Exception as error:
                trained = "when training" in str(error)  # of batch normalisation
                helps = "torch.export.export takes dynamic_shapes=({0: torch.export.Dim('batch')},)"
                raise VictimError(
                    f"the module takes 2 observations at once and not {count}, and batches have any size: {error}; "
                    f"{'call .eval() on what a function calls' if trained else helps}"
                ) from error
        # what was returned: a distribution, two tensors or one
        if isinstance(out, torch.distributions.Distribution):
            try:
                found, params = params_of(out)
            except TypeError as error:
                raise VictimError(str(error)) from error
            family = None
            if found == "distribution":
                family = DistributionFamily(out)
                again = family.params(family.policy(params))
                if not torch.equal(again, params):
                    raise VictimError(f"no victim is made of {type(out).__name__}: it is not what its parameters say")
            return ModuleOutput("distribution", found, int(_checked(params).shape[-1]), writes, family)
        # a mean and a log-std, or an answer with something beside it
        if isinstance(out, tuple) and len(out) == 2 and isinstance(out[0], Tensor):
            if not isinstance(out[1], Tensor) or kind not in (None, "gaussian"):
                return ModuleOutput("first", None, int(_checked(out[0]).shape[-1]), writes)
            width = int(_checked(out[0]).shape[-1])
            _check_floats(out[1])
            _check_log_std(out, more if self.start is None else more[0])
            return ModuleOutput("pair", None, 2 * width, writes)
        return ModuleOutput("tensor", None, int(_checked(out, self.net).shape[-1]), writes)

    def gives_probabilities(self, form: Form, space: spaces.Space[object]) -> float:
        """To what the probabilities of each choice add up in all that it returns; 0 where these are none, or certain.

        Probabilities times a number, or with one added to each, are found, too: all rows have the same sum.

        Args:
            form: of its output, as :class:`ModuleOutput` says.
            space: the action space.
        """
        sizes = choice_sizes(space)
        if not sizes or max(sizes) < 2 or form not in ("tensor", "first"):
            return 0.0
        for size in (1.0, 0.1, 0.01):  # far observations may leave no doubt
            obs, *state = self.given(400, 8)
            out = ask(self.net, map_leaves(partial(_times, size), obs), *state)
            if out is None:
                return 0.0
            out = out[0] if self.start is not None or form == "first" else out
            if not isinstance(out, Tensor) or out.is_meta or out.dim() != 2 or out.shape[1] != sum(sizes):
                return 0.0
            parts = [part.double() for part in torch.split(out, sizes, 1)]
            sums = torch.stack([part.sum(1) for part in parts])
            total, slack = float(sums[0, 0]), max(1e-4, 4 * torch.finfo(out.dtype).eps)
            if not (bool((out >= 0).all()) and total > 0 and bool(((sums - total).abs() <= slack * total).all())):
                return 0.0
            # not only zeros and a number, which a choice that was made has too
            if any(bool((part.amax(1) < part.sum(1)).any()) for part in parts):
                if abs(total - 1) <= slack:
                    return 1.0
                # what hardly changes may have any sum
                noise = max(float((sums - total).abs().max()), torch.finfo(out.dtype).eps * total)
                return total if float((out.double() - out[:1].double()).abs().max()) > 20 * noise else 0.0
        return 0.0


def _times(size: float, leaf: Any) -> Any:
    return leaf * size if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _narrow(leaf: Any) -> Any:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _requiring_gradient(obs: object) -> object:
    """Observations that require a gradient; copies, because a function may well scale its input in place."""

    def requiring(leaf: object) -> object:
        return leaf.requires_grad_().clone() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    return map_leaves(requiring, obs)


def _differentiable(out: object, obs: object) -> bool:
    """Whether a gradient comes from an output to the observations: weights alone may require one, too."""
    out = as_distribution(out[0] if isinstance(out, tuple) and out else out)
    if isinstance(out, torch.distributions.Distribution):
        try:
            out = params_of(out)[1]
        except TypeError:  # output raises for it
            return True
    if not isinstance(out, Tensor):
        return True
    seen = [leaf for leaf in tensors(obs) if leaf.requires_grad]
    if not seen:  # choices, which no attack by gradients is for
        return True
    if not out.requires_grad:
        return False
    return any(slope is not None for slope in torch.autograd.grad(out.sum(), seen, allow_unused=True))


def check_action_space(space: spaces.Space[object]) -> None:
    """Raise :class:`VictimError` for actions that no output of a network describes."""
    if not choice_sizes(space) and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise VictimError(
            f"expected Discrete, MultiDiscrete, MultiBinary or one-dimensional Box actions, got {space}{_flat(space)}"
        )


def _flat(space: spaces.Space[object]) -> str:
    """The line that gives an environment actions of one space in place of these."""
    parts = [part for _, part in children(space)] or [space]
    whole = "space = env.action_space; env = gymnasium.wrappers.TransformAction(env, lambda a: "
    sizes = [int(part.n) for part in parts if isinstance(part, spaces.Discrete) and part.start == 0]
    if len(sizes) == len(parts):
        made = "dict(zip(space, a))" if isinstance(space, spaces.Dict) else "tuple(a)"
        return f": {whole}{made}, gymnasium.spaces.MultiDiscrete({sizes})) takes one vector"
    if all(isinstance(part, spaces.Box) for part in parts):
        utils = "gymnasium.spaces.utils"
        return f": {whole}{utils}.unflatten(space, a), {utils}.flatten_space(space)) takes one vector"
    return (
        f": {whole}FUNCTION(a), gymnasium.spaces.Box(...)) takes one vector, of which a function of yours makes these"
    )


def random_rows(space: spaces.Space[object], device: torch.device, dtype: torch.dtype) -> Rows:
    """A function of a seed and a number of rows to as many random observations, as a module takes them."""
    own = copy.deepcopy(space)

    def leaf_rows(leaf: spaces.Space[object], rows: int) -> Any:
        if isinstance(leaf, spaces.Dict):
            return {key: leaf_rows(part, rows) for key, part in leaf.spaces.items()}
        if isinstance(leaf, spaces.Tuple):
            return tuple(leaf_rows(part, rows) for part in leaf.spaces)
        if is_text_space(leaf) and leaf is not own:
            return np.array([leaf.sample() for _ in range(rows)], dtype=object)
        if not isinstance(leaf, (spaces.Box, *CHOICES)):
            fit = [key for key, part in children(space) if _is_taken(part)]
            numbers = "env = gymnasium.wrappers.TransformObservation(env, function, gymnasium.spaces.Box(...)) makes "
            without = f"env = gymnasium.wrappers.FilterObservation(env, {fit}) leaves it out, and " if fit else ""
            raise VictimError(
                f"expected Box, Discrete, MultiDiscrete or MultiBinary observations (or a Dict or Tuple of these and "
                f"Text), got {leaf}: {without}{numbers}numbers of them, by a function of yours"
            )
        # drawn by the space itself
        if type(leaf) is spaces.Box and rows > 8:  # drawn at once, which is what making a space for them pays for
            low, high = (np.tile(end, (rows, *[1] * end.ndim)) for end in (leaf.low, leaf.high))
            values = spaces.Box(low, high, dtype=leaf.low.dtype.type, seed=leaf.np_random).sample()
        else:
            values = np.stack([leaf.sample() for _ in range(rows)])
        if not isinstance(leaf, spaces.Box):
            return torch.from_numpy(values).to(device)
        # what a space without real bounds draws is too large for any network
        high = np.where(abs(leaf.high) < 1e3, leaf.high, 10.0)
        return torch.from_numpy(np.clip(values, np.where(abs(leaf.low) < 1e3, leaf.low, -10.0), high)).to(device, dtype)

    drawn = dict[tuple[int, int], Any]()  # asked for again and again, and each time to be written to

    def rows_of(seed: int, rows: int) -> Any:
        if (seed, rows) not in drawn:
            own.seed(seed)
            drawn[seed, rows] = leaf_rows(own, rows)
        return clone(drawn[seed, rows])

    return rows_of


def reads_a_part(parts: MainPart, rows: Rows, start: InitialState | None) -> bool:
    """Whether a function answers with more than a victim reads, or with a row that has no batch."""
    for count, arrays in itertools.product((2, 1), (False, True)):
        state = () if start is None else (start(count),)
        answer = ask(parts.function, rows(0, count), *state, arrays=arrays)
        part = answer[0] if state and isinstance(answer, tuple) else answer
        if answer is not None and parts.read(part, count) is not part:
            return True
    return False


def check_bytes(net: Net, space: spaces.Space[object], rows: Rows, start: InitialState | None) -> None:
    """Raise :class:`VictimError` for a module that divides images by 255 where they are bytes, and floats not.

    A victim computes in floats, so that there are gradients.
    """

    def images(leaf: spaces.Space[object], obs: Any, change: Callable[[Tensor], Tensor]) -> Any:
        if isinstance(leaf, spaces.Dict):
            return {key: images(part, obs[key], change) for key, part in leaf.spaces.items()}
        if isinstance(leaf, spaces.Tuple):
            return tuple(images(part, obs[i], change) for i, part in enumerate(leaf.spaces))
        return change(obs) if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 else obs

    # the same images as bytes, as floats, and as floats that were divided
    obs, state = rows(0, 2), () if start is None else (start(2),)
    changes: list[Callable[[Tensor], Tensor]] = [lambda x: x.to(torch.uint8), lambda x: x, lambda x: x / 255]
    given = [(images(space, obs, change), *state) for change in changes]
    if all(a is b for a, b in zip(leaves(given[0]), leaves(given[1]), strict=True)):
        return
    # it divides if bytes give the same as what was divided, and another answer than floats
    for arrays in (False, True):
        of_bytes, of_floats, of_shares = (ask(net, *each, arrays=arrays) for each in given)
        divides = of_bytes is not None and nearly(of_bytes, of_shares) and not nearly(of_bytes, of_floats)
        if divides:
            raise VictimError(
                "the module divides bytes by 255, and floats not, and a victim computes in floats: from_module(lambda "
                "x: net(x / 255), ...), of the key of the image where observations are a dictionary, plays as it does"
            )


def _is_taken(space: spaces.Space[object]) -> bool:
    """Whether a module can take a part of a Dict or Tuple."""
    inside = children(space)
    if inside:
        return all(_is_taken(part) for _, part in inside)
    return isinstance(space, (spaces.Box, *CHOICES)) or is_text_space(space)


def check_family(family: DistributionFamily, space: spaces.Space[object]) -> None:
    """Raise :class:`VictimError` unless the actions of a distribution are those of a space.

    Warns:
        UserWarning: for actions in [0, 1] where the box is another one.
    """
    # an agent plays the mode, so there has to be one, of the action space
    mode = family.mode(family.params(family.example).detach())
    name = type(family.example).__name__
    if not bool(torch.isfinite(mode).all()):
        raise VictimError(f"{name} has no mode, which an agent could play: give a function of its actions, kind 'mean'")
    if not isinstance(space, spaces.Box) or mode.shape[1:] != space.shape:
        raise VictimError(f"the module returns a {name} over {mode.shape[1]} numbers, and actions are {space}")
    # a Beta distribution without a transform around it plays numbers in [0, 1]
    base = family.example
    while isinstance(base, torch.distributions.Independent):
        base = base.base_dist
    if isinstance(base, torch.distributions.Beta) and not ((space.low == 0).all() and (space.high == 1).all()):
        warnings.warn(
            f"actions of a Beta distribution lie in [0, 1], and those of the environment in {space}: they are played "
            f"as they are. If the agent scales them, return "
            f"TransformedDistribution(beta, AffineTransform(low, high - low))",
            UserWarning,
            stacklevel=3,
        )


def check_forward(module: Net) -> None:
    """Raise :class:`VictimError` for a module without ``forward``, with what to give of one made as CleanRL's."""
    if not isinstance(module, nn.Module) or isinstance(module, torch.jit.ScriptModule):
        return
    if type(module).forward is not nn.Module.forward or "forward" in vars(module):
        return
    parts = ", ".join(name for name, _ in module.named_children()) or "none"
    raise VictimError(
        f"{type(module).__name__} has no forward, by which a victim computes: give the part of it that maps "
        f"observations to logits, Q-values or means (its parts are {parts}), as in from_module(agent.actor, ..., "
        f"'logits', value=agent.critic) or from_module(lambda x: (agent.actor_mean(x), agent.actor_logstd), ..., "
        f"'gaussian', clip=True){by_method(module)}"
    )


def by_method(net: object) -> str:
    """What to give of a module or object with a method that says what it plays, or nothing."""
    methods = own_methods(net) if isinstance(net, nn.Module) or not callable(net) else []
    return f". Its {methods[0]} may be what to give: from_module(net.{methods[0]}, ..., 'action')" if methods else ""


def _described(out: object) -> str:
    """What something is, with the shapes of the tensors in it: ``a tuple of (int64 [2], float32 [2, 1])``."""
    if isinstance(out, Tensor):
        return f"{str(out.dtype).removeprefix('torch.')} {list(out.shape)}"
    if isinstance(out, (tuple, list)):
        return f"a {type(out).__name__} of ({', '.join(map(_described, out))})"
    if isinstance(out, dict):
        return f"a dictionary of ({', '.join(f'{key!r}: {_described(part)}' for key, part in out.items())})"
    return type(out).__name__


_NAMES = ("logits", "q_values", "q", "mean", "mu", "mus", "loc", "action_mean", "actions", "action")


def _part(out: Any, line: str = "net(x)") -> str:
    """The line that takes what is most likely meant from an answer."""
    if isinstance(out, dict):
        name = next((name for name in _NAMES if name in out), next(iter(out), None))
        return line if name is None else _part(out[name], f"{line}[{name!r}]")
    if isinstance(out, (tuple, list)) and out:
        return _part(out[0], f"{line}[0]")
    # three axes may be several things, which probabilities give away
    if isinstance(out, Tensor):
        if out.dim() != 3:
            return line
        if bool((out >= 0).all()) and torch.allclose(out.sum(-1), torch.ones_like(out[..., 0]), atol=1e-3):
            return f"{line} @ atoms, of probabilities of values"
        return f"{line}.mean(-1) of quantiles, {line}[:, -1] of a sequence or {line}.flatten(1) of several choices"
    name = None if is_array(out) else next((name for name in _NAMES if hasattr(out, name)), None)
    return f"{line}[0]" if name is None else _part(getattr(out, name), f"{line}.{name}")


def other_parts(net: Net, given: tuple[Any, ...], width: int) -> str:
    """What to give of a tuple of which another part has the width that is needed, or nothing."""
    out = ask(net, *given)
    shapes = [getattr(part, "shape", ()) for part in out] if isinstance(out, tuple) else []
    fits = [i for i, shape in enumerate(shapes) if tuple(shape[1:]) == (width,)]
    return f"; it returns {_described(out)}: give lambda x: net(x)[{fits[0]}]" if fits and len(given) == 1 else ""


def _checked(out: object, net: object = None) -> Tensor:
    """``out``, if it is a batch of floats of two rows."""
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != 2:
        raise VictimError(
            "the module must return [B, K], a (mean, log_std) pair, a Distribution or one of [B, K] with a state, "
            f"got {_described(out)} for a batch of 2: give a function of the part that is meant, such as lambda x: "
            f"{_part(out)}{by_method(net)}"
        )
    _check_floats(out)
    return out


def _check_floats(out: Tensor) -> None:
    if not out.is_floating_point():
        raise VictimError(
            f"the module must return floats that depend smoothly on the observation (Q-values, logits, or means), got "
            f"{out.dtype}: an action that was already chosen has no gradient"
        )


def _check_log_std(two: tuple[Tensor, Tensor], three: tuple[Tensor, Tensor]) -> None:
    """Raise :class:`VictimError` unless the second of a pair may be the log-std of the first.

    Args:
        two, three: answers to as many rows.

    Warns:
        UserWarning: where it looks like a standard deviation, which a network computes.
    """
    (mean, log_std), wide = two, [two[0].shape]
    if log_std.shape == three[1].shape:  # of all rows
        wide += [torch.Size(each) for each in ((), (1,), (1, 1), mean.shape[1:], (1, *mean.shape[1:]))]
    if log_std.shape not in wide:
        raise VictimError(
            f"the module returns {_described(two)} for a batch of 2, and the second is no log-std of the first: say "
            "what the first is, kind='mean' (or 'logits', 'q' of discrete actions)"
        )
    # positive numbers that differ from row to row are more likely standard deviations
    if log_std.shape != three[1].shape and bool((three[1] > 0).all() and (three[1] != three[1][:1]).any()):
        warnings.warn(
            "all numbers beside the mean are positive, as standard deviations are, and are read as their logarithms: "
            "where they are no logarithms, give lambda x: (net(x)[0], net(x)[1].log())",
            UserWarning,
            stacklevel=4,
        )
