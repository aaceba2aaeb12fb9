"""What a module takes and returns, found out by calling it with two rows of zeros before a victim is made of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import CHOICES
from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import map_leaves, tensors
from adv_wrappers.victims.distributions import DistributionFamily, as_distribution, params_of
from adv_wrappers.victims.hidden_state import unchanged_randomness
from adv_wrappers.victims.numpy_functions_as_victims import answers_arrays, to_arrays
from adv_wrappers.victims.own_actions import own_methods
from adv_wrappers.victims.victim import RecurrentState

Net = nn.Module | Callable[..., Any]  # a function may return anything; what it does is checked
InitialState = Callable[[int], RecurrentState]  # rows to a hidden state with leaves [rows, ...]


def action_width(space: spaces.Space[object]) -> int:
    """How many numbers per row describe an action of this space: a mean, or logits of every choice."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(torch.tensor(space.shape).prod())
    if isinstance(space, spaces.Box) and space.shape is not None and len(space.shape) == 1:
        return int(space.shape[0])
    raise VictimError(f"expected Discrete, MultiDiscrete, MultiBinary or one-dimensional Box actions, got {space}")


def _zeros(space: spaces.Space[object], device: torch.device, dtype: torch.dtype, top: bool = True) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _zeros(value, device, dtype, False) for key, value in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_zeros(value, device, dtype, False) for value in space.spaces)
    if isinstance(space, CHOICES):
        least = np.zeros(space.shape) if isinstance(space, spaces.MultiBinary) else np.asarray(space.start)
        return torch.from_numpy(np.stack([least] * 2).astype(space.dtype)).to(device)
    if isinstance(space, spaces.Text) and not top:
        return np.array([str(space.character_list[0]) * int(space.min_length)] * 2, dtype=object)
    if not isinstance(space, spaces.Box):
        raise VictimError(
            f"expected Box, Discrete, MultiDiscrete or MultiBinary observations (or a Dict or Tuple of these and Text),"
            f" got {space}: env = gymnasium.wrappers.TransformObservation(env, function, gymnasium.spaces.Box(...)) "
            f"makes numbers of them, by a function of yours"
        )
    return torch.zeros(2, *space.shape, device=device, dtype=dtype)


def random_rows(space: spaces.Space[object], device: torch.device, dtype: torch.dtype) -> Callable[[int, int], Any]:
    """A function of a seed and a number of rows to as many random observations, as a module takes them."""

    def leaf_rows(leaf: spaces.Space[object], rows: list[Any]) -> Any:
        if isinstance(leaf, spaces.Dict):
            return {key: leaf_rows(part, [row[key] for row in rows]) for key, part in leaf.spaces.items()}
        if isinstance(leaf, spaces.Tuple):
            return tuple(leaf_rows(part, [row[i] for row in rows]) for i, part in enumerate(leaf.spaces))
        if isinstance(leaf, spaces.Text):
            return np.array(rows, dtype=object)
        values = np.stack(rows)
        if not isinstance(leaf, spaces.Box):
            return torch.from_numpy(values).to(device)
        # what a space without real bounds draws is too large for any network
        high = np.where(abs(leaf.high) < 1e3, leaf.high, 10.0)
        return torch.from_numpy(np.clip(values, np.where(abs(leaf.low) < 1e3, leaf.low, -10.0), high)).to(device, dtype)

    def rows_of(seed: int, rows: int) -> Any:
        own = copy.deepcopy(space)
        own.seed(seed)
        return leaf_rows(own, [own.sample() for _ in range(rows)])

    return rows_of


def input_form(
    net: Net, space: spaces.Space[object], start: InitialState | None, device: torch.device, dtype: torch.dtype
) -> Literal["gradients", "tensors", "arrays", "arrays of tensors"]:
    """Whether a module or function works on tensors, with or without gradients, or on numpy arrays.

    It is tried on tensors that require a gradient, then on arrays (NumPy's own functions take tensors too, and
    return them without a gradient), then on plain tensors. One that is quantised, or runs without gradients, has none;
    one that takes tensors alone may answer with arrays.

    Raises:
        VictimError: for a function that takes none of them.
    """

    def call(arrays: bool, gradient: bool) -> tuple[object, bool]:
        obs, state = _zeros(space, device, dtype), (start(2),) if start else ()
        if arrays:
            return net(to_arrays(obs), *to_arrays(state)), False
        with torch.set_grad_enabled(gradient):
            out = net(_requiring_gradient(obs) if gradient else obs, *state)
            return out, gradient and _differentiable(out, obs)

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
            if answers_arrays(out):
                if arrays:
                    return "arrays"
                converts = True
            elif not arrays:
                return "gradients" if differentiable else "tensors"
    if converts:
        return "arrays of tensors"
    if isinstance(net, nn.Module):
        return "gradients"  # inspect_output says what is wrong with it
    raise VictimError(
        f"the module does not take observations of {space}: as tensors {faults[0]}; as numpy arrays {faults[1]}"
        if len(faults) > 1
        else f"the module does not take observations of {space}: {faults[0]}"
    )


def takes_float64(net: Net, space: spaces.Space[object], start: InitialState | None) -> bool:
    """Whether a space has a Box of float64, and a function on arrays takes such observations."""
    leaves = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if not any(isinstance(leaf, spaces.Box) and leaf.dtype == np.float64 for leaf in leaves):
        return False
    obs, state = _zeros(space, torch.device("cpu"), torch.float64), (start(2),) if start else ()
    try:
        net(to_arrays(obs), *to_arrays(state))
    except Exception:  # such as of an inference session for float32
        return False
    return True


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
        except TypeError:  # inspect_output raises for it
            return True
    if not isinstance(out, Tensor):
        return True
    seen = [leaf for leaf in tensors(obs) if leaf.requires_grad]
    if not seen:  # choices, which no attack by gradients is for
        return True
    if not out.requires_grad:
        return False
    return any(slope is not None for slope in torch.autograd.grad(out.sum(), seen, allow_unused=True))


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


def inspect_output(
    net: Net,
    space: spaces.Space[object],
    start: InitialState | None,
    device: torch.device,
    dtype: torch.dtype,
    kind: str | None = None,
) -> ModuleOutput:
    """What the module returns for two rows of zeros.

    Args:
        net: the module, which takes observations, and with ``start`` a hidden state.
        space: the space of one observation.
        start: the function from rows to a hidden state, or None.
        kind: the kind that the user gave; two tensors are a mean and a log-std unless it has no log-std.

    Raises:
        VictimError: for a module that fails on such observations, or returns what no victim can be made of.
    """
    given = (_zeros(space, device, dtype), start(2)) if start else (_zeros(space, device, dtype),)
    before = [leaf._version for leaf in tensors(given)]
    try:
        with torch.no_grad():
            out = net(*given)
            out = as_distribution(out[0] if start else out)
    except Exception as error:
        what = f"{str(error) or type(error).__name__}{_by_method(net)}"
        raise VictimError(f"the module does not take observations of {space}: {what}") from error
    writes = [leaf._version for leaf in tensors(given)] != before
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
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[0], Tensor):
        if not isinstance(out[1], Tensor) or kind not in (None, "gaussian"):
            return ModuleOutput("first", None, int(_checked(out[0]).shape[-1]), writes)
        _checked(out[1], rows=False)
        return ModuleOutput("pair", None, 2 * int(_checked(out[0]).shape[-1]), writes)
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[0], tuple):
        raise VictimError(
            "the module returns a pair within a pair, and whether that is a mean with a standard deviation or with its "
            "logarithm nothing says: give a function that returns (mean, log_std)"
        )
    return ModuleOutput("tensor", None, int(_checked(out).shape[-1]), writes)


def gives_probabilities(
    net: Net, form: Form, space: spaces.Space[object], rows: Callable[[int, int], Any], start: InitialState | None
) -> bool:
    """Whether all that a module returns at random observations are probabilities of each choice, and not certain ones.

    Args:
        net: the module, which has answered before.
        form: of its output, as :class:`ModuleOutput` says.
        space: the action space.
        rows: a seed and a number of rows to as many random observations.
        start: the function from rows to a hidden state, or None.
    """
    if isinstance(space, spaces.Discrete):
        sizes = [int(space.n)]
    elif isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.reshape(-1).tolist()
    elif isinstance(space, spaces.MultiBinary):
        sizes = [2] * int(np.prod(space.shape))
    else:
        return False
    try:
        with torch.no_grad(), unchanged_randomness():
            out = net(rows(400, 8), start(8)) if start else net(rows(400, 8))
    except Exception:  # of a function that takes no such observations: it has answered for zeros
        return False
    out = out[0] if start or form == "first" else out
    if not isinstance(out, Tensor) or out.is_meta or out.dim() != 2 or out.shape[1] != sum(sizes) or max(sizes) < 2:
        return False
    slack = max(1e-4, 4 * torch.finfo(out.dtype).eps)
    sums = torch.stack([part.double().sum(1) for part in torch.split(out, sizes, 1)])
    whole = bool(((out == 0) | (out == 1)).all())
    return not whole and bool((out >= 0).all() and ((sums - 1).abs() <= slack).all())


def check_family(family: DistributionFamily, space: spaces.Space[object]) -> None:
    """Raise :class:`VictimError` unless the actions of a distribution are those of a space.

    Warns:
        UserWarning: for actions in [0, 1] where the box is another one.
    """
    mode = family.mode(family.params(family.example).detach())
    size, name = action_width(space), type(family.example).__name__
    if not bool(torch.isfinite(mode).all()):
        raise VictimError(f"{name} has no mode, which an agent could play: give a function of its actions, kind 'mean'")
    if mode.shape[1] != size or not isinstance(space, spaces.Box):
        raise VictimError(f"the module returns a {name} over {mode.shape[1]} numbers, and actions are {space}")
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
    value = ", value=agent.critic" if hasattr(module, "critic") else ""
    if hasattr(module, "actor_mean") and hasattr(module, "actor_logstd"):
        given = f"lambda x: (agent.actor_mean(x), agent.actor_logstd), ..., 'gaussian', clip=True{value}"
    elif hasattr(module, "actor") and hasattr(module, "network"):
        given = "lambda x: agent.actor(agent.network(x / 255.0)), ..., 'logits'"
    elif hasattr(module, "actor"):
        given = f"agent.actor, ..., 'logits'{value}"
    else:
        given = "lambda x: agent.PART(x), ..., KIND"
    parts = ", ".join(name for name, _ in module.named_children()) or "none"
    raise VictimError(
        f"{type(module).__name__} has no forward, by which a victim computes: give the part of it that maps "
        f"observations to logits, Q-values or means, as in from_module({given}); its parts are {parts}"
        f"{_by_method(module)}"
    )


def _by_method(net: Net) -> str:
    """What to give of a module with a method that says what it plays, or nothing."""
    methods = own_methods(net) if isinstance(net, nn.Module) else []
    return (
        f". If its {methods[0]} takes observations, give that: from_module(net.{methods[0]}, ..., 'action')"
        if methods
        else ""
    )


def _is_batch(out: object) -> bool:
    return isinstance(out, Tensor) and out.dim() == 2 and len(out) == 2


def _described(out: object) -> str:
    """What something is, with the shapes of the tensors in it: ``a tuple of (int64 [2], float32 [2, 1])``."""
    if isinstance(out, Tensor):
        return f"{str(out.dtype).removeprefix('torch.')} {list(out.shape)}"
    if isinstance(out, (tuple, list)):
        return f"a {type(out).__name__} of ({', '.join(map(_described, out))})"
    if isinstance(out, dict):
        return f"a dictionary of ({', '.join(f'{key!r}: {_described(part)}' for key, part in out.items())})"
    return type(out).__name__


def _chosen(out: object) -> str:
    """How the part of an output that could be meant is given, or nothing where there is none."""
    pairs = out.items() if isinstance(out, dict) else enumerate(out) if isinstance(out, (tuple, list)) else ()
    parts = {key: part for key, part in pairs if _is_batch(part) and part.is_floating_point()}
    if not parts:
        return ""
    widest = max(parts, key=lambda key: parts[key].shape[1])  # values of states are [B, 1]
    return f". Give a function of the part that is meant, as in from_module(lambda x: net(x)[{widest!r}], ...)"


def _checked(out: object, rows: bool = True) -> Tensor:
    """``out``, if it is a batch of floats of two rows."""
    if not isinstance(out, Tensor) or (rows and not _is_batch(out)):
        raise VictimError(
            "the module must return [B, K], a (mean, log_std) pair, a Distribution or one of [B, K] with a state, "
            f"got {_described(out)} for a batch of 2{_chosen(out)}"
        )
    if not out.is_floating_point():
        raise VictimError(
            f"the module must return floats that depend smoothly on the observation (Q-values, logits, or means), got "
            f"{out.dtype}: an action that was already chosen has no gradient"
        )
    return out
