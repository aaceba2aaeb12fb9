"""Victims from any torch module or function, on tensors or numpy arrays: a CleanRL agent, code of one's own."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import CHOICES, size_difference, to_victim
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.input_gradient import LayerGraph, followed, graph_of, traced_graph
from adv_wrappers.utils.trees import clone, map_leaves, tensors
from adv_wrappers.victims.action_check import draws, own_methods, play_as_it_says
from adv_wrappers.victims.distributions import DistributionFamily, as_distribution, params_of, unscale
from adv_wrappers.victims.frozen_copy import check_weights, frozen_copy, unwrapped
from adv_wrappers.victims.functions import ArrayFunction, ArrayStart, ChosenActions, answers_arrays, to_arrays
from adv_wrappers.victims.hidden_state import HiddenState, answers, take_out_state, unchanged_randomness
from adv_wrappers.victims.victim import (
    BatchedObservation,
    OutputKind,
    RecurrentState,
    Select,
    Victim,
    choice_sizes,
    device_of,
)

# ----------------------------------------------------------------------------------------------------------------------
# What a module takes and returns, found out by calling it with two random observations before a victim is made of it.
# ----------------------------------------------------------------------------------------------------------------------


Net = nn.Module | Callable[..., Any]  # a function may return anything; what it does is checked
InitialState = Callable[[int], RecurrentState]  # rows to a hidden state with leaves [rows, ...]
RandomRows = Callable[[int, int], Any]  # a seed and a number of rows to as many observations


def action_width(space: spaces.Space[object]) -> int:
    """How many numbers per row describe an action of this space: a mean, or logits of every choice."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return space.shape[0]
    if sizes := choice_sizes(space):
        return sum(sizes)
    raise VictimError(f"expected Discrete, MultiDiscrete, MultiBinary or one-dimensional Box actions, got {space}")


def random_rows(space: spaces.Space[object], device: torch.device, dtype: torch.dtype) -> RandomRows:
    """A function of a seed and a number of rows to as many random observations, as a module takes them."""

    def leaf_rows(leaf: spaces.Space[object], rows: list[Any]) -> Any:
        if isinstance(leaf, spaces.Dict):
            return {key: leaf_rows(part, [row[key] for row in rows]) for key, part in leaf.spaces.items()}
        if isinstance(leaf, spaces.Tuple):
            return tuple(leaf_rows(part, [row[i] for row in rows]) for i, part in enumerate(leaf.spaces))
        if isinstance(leaf, spaces.Text) and not isinstance(space, spaces.Text):
            return np.array(rows, dtype=object)
        if not isinstance(leaf, (spaces.Box, *CHOICES)):
            raise VictimError(
                f"expected Box, Discrete, MultiDiscrete or MultiBinary observations (or a Dict or Tuple of these and "
                f"Text), got {leaf}: env = gymnasium.wrappers.TransformObservation(env, function, "
                f"gymnasium.spaces.Box(...)) makes numbers of them, by a function of yours"
            )
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
    net: Net, rows: RandomRows, start: InitialState | None
) -> Literal["gradients", "tensors", "arrays", "arrays of tensors"]:
    """Whether a module or function works on tensors, with or without gradients, or on numpy arrays.

    It is tried on tensors that require a gradient, then on arrays (NumPy's own functions take tensors too, and
    return them without a gradient), then on plain tensors. One that is quantised, or runs without gradients, has none;
    one that takes tensors alone may answer with arrays.

    Raises:
        VictimError: for a function that takes none of them.
    """

    def call(arrays: bool, gradient: bool) -> tuple[object, bool]:
        obs, state = rows(0, 2), (start(2),) if start else ()
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
    on_arrays = faults[min(1, len(faults) - 1)]
    raise VictimError(f"the module does not take observations: as tensors {faults[0]}; as numpy arrays {on_arrays}")


def takes_float64(net: Net, space: spaces.Space[object], start: InitialState | None) -> bool:
    """Whether a space has a Box of float64, and a function on arrays takes such observations."""
    leaves = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    if not any(isinstance(leaf, spaces.Box) and leaf.dtype == np.float64 for leaf in leaves):
        return False
    obs = random_rows(space, torch.device("cpu"), torch.float64)(0, 2)
    try:
        net(*to_arrays((obs, start(2)) if start else (obs,)))
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


def inspect_output(net: Net, rows: RandomRows, start: InitialState | None, kind: str | None = None) -> ModuleOutput:
    """What the module returns for two random observations.

    Args:
        net: the module, which takes observations, and with ``start`` a hidden state.
        rows: makes observations.
        start: the function from rows to a hidden state, or None.
        kind: the kind that the user gave; two tensors are a mean and a log-std unless it has no log-std.

    Raises:
        VictimError: for a module that fails on such observations, or returns what no victim can be made of.
    """
    given = (rows(0, 2), start(2)) if start else (rows(0, 2),)
    before = [leaf._version for leaf in tensors(given)]
    try:
        with torch.no_grad():
            out = net(*given)
            out = as_distribution(out[0] if start else out)
    except Exception as error:
        seen = [tuple(leaf.shape) for leaf in tensors(given)]
        # of a linear layer that takes another number of features, which torch says at the end of a traceback
        sizes = re.search(r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x\d+\)", str(error))
        why = str(error) or type(error).__name__
        if sizes is not None:
            why = sizes.group() + (size_difference(int(sizes[3]), int(sizes[2])) if int(sizes[1]) == 2 else "")
        raise VictimError(f"the module does not take observations of shapes {seen}: {why}{_by_method(net)}") from error
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
    return ModuleOutput("tensor", None, int(_checked(out).shape[-1]), writes)


def gives_probabilities(
    net: Net, form: Form, space: spaces.Space[object], rows: RandomRows, start: InitialState | None
) -> bool:
    """Whether all that a module returns at random observations are probabilities of each choice, and not certain ones.

    Args:
        net: the module, which has answered before.
        form: of its output, as :class:`ModuleOutput` says.
        space: the action space.
        rows: a seed and a number of rows to as many random observations.
        start: the function from rows to a hidden state, or None.
    """
    sizes = choice_sizes(space)
    if not sizes:
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
    parts = ", ".join(name for name, _ in module.named_children()) or "none"
    raise VictimError(
        f"{type(module).__name__} has no forward, by which a victim computes: give the part of it that maps "
        f"observations to logits, Q-values or means (its parts are {parts}), as in from_module(agent.actor, ..., "
        f"'logits', value=agent.critic) or from_module(lambda x: (agent.actor_mean(x), agent.actor_logstd), ..., "
        f"'gaussian', clip=True){_by_method(module)}"
    )


def _by_method(net: Net) -> str:
    """What to give of a module with a method that says what it plays, or nothing."""
    methods = own_methods(net) if isinstance(net, nn.Module) else []
    return f". Its {methods[0]} may be what to give: from_module(net.{methods[0]}, ..., 'action')" if methods else ""


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


def _checked(out: object, rows: bool = True) -> Tensor:
    """``out``, if it is a batch of floats of two rows."""
    if not isinstance(out, Tensor) or (rows and not _is_batch(out)):
        raise VictimError(
            "the module must return [B, K], a (mean, log_std) pair, a Distribution or one of [B, K] with a state, "
            f"got {_described(out)} for a batch of 2: give a function of the part that is meant, such as lambda x: "
            "net(x)[0]"
        )
    if not out.is_floating_point():
        raise VictimError(
            f"the module must return floats that depend smoothly on the observation (Q-values, logits, or means), got "
            f"{out.dtype}: an action that was already chosen has no gradient"
        )
    return out


def from_module(
    module: Net,
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    kind: Literal["q", "logits", "mean", "gaussian", "distribution", "action"] | None = None,
    *,
    value: Net | None = None,
    critic: Net | None = None,
    robust_sarsa: Net | None = None,
    initial_state: Callable[[int], RecurrentState] | None = None,
    select: Select = "mode",
    clip: bool = False,
    scale: Tensor | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    live: bool = False,
    compile: bool = False,
    ref: str | None = None,
) -> ModuleVictim:
    """A victim from a module or function that maps raw observations ``[B, *S]`` to what ``kind`` says.

    Args:
        module: observations to Q-values ``[B, A]`` (``q``), ``logits``, an action (``mean``), mean and log-std as a
            pair or side by side (``gaussian``), a torch ``Distribution`` (``distribution``), or the action that the
            agent takes (``action``: discrete ones become logits without a gradient). A recurrent one takes
            ``(obs, state)`` and returns ``(output, state)``; if it has a method ``advance(obs, state) -> state``,
            that one makes the new state, and the returned one is ignored. One that is not recurrent may return
            ``(output, state)`` too, as Tianshou's networks do: the output is taken where ``kind`` is ``q``,
            ``logits`` or ``mean``, or the state is no tensor. Outputs are cast to ``dtype``. A function may also take
            and return numpy arrays (of ``dtype``): it is tried on both. Such a victim has no gradient, and is attacked
            by its scores (``square``) or its decisions (``hop-skip-jump``) alone; functions beside it take arrays too.
            Discrete and MultiDiscrete observations come as int64, MultiBinary ones as int8, those of a Dict as a
            dictionary, of a Tuple as a tuple.
        kind: what the module returns, as above; None finds it out, and raises where it is ambiguous. Rows in [0, 1]
            that sum to one are probabilities: their logarithms are the logits, with a warning where a kind was given.
            A module with a method of its own that says what it plays (``get_action``, ``get_action_and_value``,
            ``act``, ``act_inference``, ``select_action``, ``predict``) is compared with it: where the method squashes
            the output by tanh and scales it to the box, as the actors of CleanRL's SAC, the victim does so too.
        value: observations (and the state, of a recurrent one) to state values ``[B]`` or ``[B, 1]``.
        critic: observations and native actions to Q-values ``[B]`` or ``[B, 1]``.
        robust_sarsa: the same, for the attack of that name.
        initial_state: rows to a hidden state with leaves ``[rows, ...]``; makes the victim recurrent.
        clip: clip continuous actions to the action box, as most agents do when they act.
        scale: the victim's own unit of every feature ``[*S]``, for ``Linf(eps, scale="victim")``.
        dtype: what the victim computes in, float32 or float64; None takes the widest of the weights and buffers, and
            float32 for narrower ones, which a frozen copy is cast to. A function on arrays gets float64 where the space
            has it and the function takes it.
        live: follow the module's weights as they are trained, instead of a frozen copy.
        compile: compute gradients that are not written out (see
            :mod:`adv_wrappers.networks.input_gradient`) by ``torch.compile``, where there is a
            compiler: seconds at the first attack, then faster for small networks.

    Raises:
        VictimError: for a module of which a method of its own plays something else than the victim would; if the output
            does not have the shape that the action space asks for or is not made of floats, and
            for a ``live`` module in training mode with dropout or batch normalisation (attacking it would change it),
            here and whenever it is called later.
    """
    if not callable(module):
        raise VictimError(f"expected a module or function, got {module!r:.80}")
    module, value, critic, robust_sarsa = (unwrapped(net) for net in (module, value, critic, robust_sarsa))
    check_forward(module)
    nets = [net for net in (module, value, critic, robust_sarsa) if isinstance(net, nn.Module)]
    tensors = [t for net in nets for t in [*net.parameters(), *net.buffers()] if t.is_floating_point()]
    device = device_of(tensors[0].device if device is None and tensors else device or "cpu", shapes_only=True)
    free = dtype is None
    if dtype is None:
        first = tensors[:1] if live else tensors  # a normaliser may be float64 where layers are float32
        dtype = torch.float64 if any(each.dtype == torch.float64 for each in first) else torch.float32
        if live and tensors and tensors[0].dtype != dtype:
            raise VictimError(
                f"a victim computes in float32 or float64, the weights of a live one are {tensors[0].dtype}"
            )
    for net in nets:
        check_weights(net)
    takes_rows, followed_nets = random_rows(observation_space, device, dtype), list[nn.Module](nets if live else ())

    def keep(net: Net | None) -> Net | None:
        if live or not isinstance(net, nn.Module):
            return net
        copied = frozen_copy(net, device, dtype)
        if net is module and copied is not None and initial_state is None and not answers(copied, takes_rows):
            # a module that casts what it computes itself
            own = frozen_copy(net, device, None)
            copied = own if own is not None and answers(own, takes_rows) else copied
        followed_nets.extend([net] if copied is None else ())
        return net if copied is None else copied

    module, (value, critic, robust_sarsa) = cast(Net, keep(module)), map(keep, (value, critic, robust_sarsa))
    live = bool(followed_nets)
    unstable = unstable_of(followed_nets)
    check_live(unstable)
    own, said = module, kind
    if kind == "action":
        chooses = not isinstance(action_space, spaces.Box)
        if chooses and initial_state is not None:
            raise VictimError("kind='action' is for modules without a hidden state: return logits from a recurrent one")
        module = ChosenActions(module, action_space) if chooses else module
        kind = "logits" if chooses else "mean"
    if initial_state is None:
        inner = take_out_state(module, takes_rows)
        if inner is not None:
            module, initial_state = inner, inner.start if inner.recurrent else None
    accepts = input_form(module, takes_rows, initial_state)
    if accepts.startswith("arrays"):
        if free and takes_float64(module, observation_space, initial_state):
            dtype = torch.float64
            takes_rows = random_rows(observation_space, device, dtype)
        stateful = initial_state is not None
        initial_state = None if initial_state is None else ArrayStart(initial_state, device)
        of_tensors = accepts == "arrays of tensors"
        module = ArrayFunction(module, stateful, device, dtype, of_tensors)
        value, critic, robust_sarsa = (
            net if net is None or isinstance(net, nn.Module) else ArrayFunction(net, False, device, dtype, of_tensors)
            for net in (value, critic, robust_sarsa)
        )
    output = inspect_output(module, takes_rows, initial_state, kind)
    probable = said != "action" and kind in (None, "logits", "q") and output.form in ("tensor", "first")
    probable = probable and gives_probabilities(module, output.form, action_space, takes_rows, initial_state)
    if kind is None:
        if output.form not in ("pair", "distribution") and not probable:
            raise VictimError("say what the module returns: kind='q', 'logits', 'mean', 'gaussian' or 'distribution'")
        kind = "logits" if probable else "gaussian" if output.form == "pair" else "distribution"
    if output.form == "distribution" and kind != "distribution":
        raise VictimError(f"the module returns a Distribution, so kind must be 'distribution', got {kind!r}")
    final = output.kind if kind == "distribution" else kind
    if final is None:
        raise VictimError("kind='distribution' takes a module that returns a torch Distribution")
    victim = ModuleVictim(
        observation_space,
        action_space,
        final,
        select=select,
        device=device,
        dtype=dtype,
        ref=ref,
        scale=scale,
        family=output.family,
    )
    expected = action_width(action_space) * (2 if final == "gaussian" else 1)
    if output.family is not None:
        check_family(output.family, action_space)
        expected = output.width
    if output.width != expected:
        raise VictimError(
            f"the module returns {output.width} numbers a row; {final} over {action_space} needs {expected}"
        )
    victim.net, victim.value_net, victim.critic, victim.robust_sarsa = module, value, critic, robust_sarsa
    victim.start, victim.recurrent, victim.live, victim.clip = initial_state, initial_state is not None, live, clip
    victim.carried = isinstance(_outer(module), HiddenState) and initial_state is not None
    victim.compile, victim.differentiable = compile, accepts == "gradients"
    victim.first, victim.writes, victim.unstable = output.form == "first", output.writes, unstable
    if probable:
        victim.read_probabilities(said)
    if isinstance(victim.net, nn.Module) and initial_state is None and isinstance(observation_space, spaces.Box):
        victim.find_graph(victim.net, output.form)
    victim.chooses = said == "action" and final == "logits"
    if not live and victim.graph is None and draws(victim, takes_rows):
        warnings.warn(
            "the module answers by chance (otherwise when it is asked again), so figures are those of some draws, and "
            "an attack sees the noise. Give what it draws from, as in from_module(agent.actor, ..., 'logits', "
            "select='sample'), or its most likely action; call .eval() on what a function calls; a state is found in "
            "an attribute of a module or object, and not in a variable of a function",
            UserWarning,
            stacklevel=2,
        )
    if initial_state is None or victim.carried:
        play_as_it_says(victim, own, takes_rows)
    return victim


_UNSTABLE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


def unstable_of(nets: Iterable[nn.Module]) -> tuple[nn.Module, ...]:
    """The layers of networks that change, or are random, when they are evaluated in training mode."""
    return tuple(m for net in nets for m in net.modules() if isinstance(m, _UNSTABLE) or is_batch_renorm(m))


def is_batch_renorm(layer: nn.Module) -> bool:
    """Whether it is the batch renormalisation of CrossQ in sb3-contrib, which torch has no class of."""
    return any(c.__name__ == "BatchRenorm" and c.__module__.startswith("sb3_contrib.") for c in type(layer).__mro__)


def check_live(layers: Iterable[nn.Module]) -> None:
    """Raise :class:`VictimError` if any of the ``layers`` that :func:`unstable_of` found is in training mode."""
    for layer in layers:
        if layer.training:
            raise VictimError(
                "a live victim must not hold dropout or batch normalisation in training mode, since attacking it would "
                f"change it: call .eval() on it before it acts (found {layer})"
            )


def _outer(net: object) -> object:
    return net.function if isinstance(net, ArrayFunction) else net


def _inner(net: object) -> object:
    """What a function on arrays, or one that chooses, was made of."""
    while isinstance(net, (ArrayFunction, ChosenActions, HiddenState)):
        net = net.function
    return net


@dataclass
class VictimNetworks:
    """What a victim is made of whose file or library says what its networks are.

    Attributes:
        net: with a method ``initial_state`` where it is recurrent.
        kind: of its output.
        value, critic, robust_sarsa: as :func:`from_module` takes them.
        squash: what brings an action into the box, see :class:`ModuleVictim`; None for what its class says.
    """

    net: nn.Module
    kind: OutputKind
    value: nn.Module | None = None
    critic: nn.Module | None = None
    robust_sarsa: nn.Module | None = None
    squash: str | None = None

    def __iter__(self) -> Iterator[nn.Module]:
        return (net for net in (self.net, self.value, self.critic, self.robust_sarsa) if net is not None)


class ModuleVictim(Victim):
    """A victim around a module or function; :func:`from_module` finds out what these do, :meth:`take` is told."""

    net: Net
    value_net: Net | None = None
    critic: Net | None = None
    robust_sarsa: Net | None = None
    start: Callable[[int], RecurrentState] | None = None
    live = False
    clip = False
    squash: str | None = None  # what brings an action into the box: "scale" from [-1, 1], "tanh" before that, "clip"
    graph: LayerGraph | None = None
    layered = False  # whether the network's layers are looked for
    first = False  # whether the module returns something beside its output that is ignored
    integers = True  # whether values of Discrete spaces come as integers, or as floats as all others
    writes = False  # whether the module writes to its input, and so is given copies
    chooses = False  # whether the module returns actions, of which logits are made
    probabilities = False  # whether the network returns probabilities, whose logarithms are the logits
    carried = False  # whether the state is one that the module keeps itself
    unstable: tuple[nn.Module, ...] = ()  # layers of a live victim that must not be in training mode

    def take(self, nets: VictimNetworks, live: bool = False) -> None:
        """Own networks, which are frozen here unless they are ``live``, and followed as they are trained elsewhere.

        Raises:
            VictimError: for ``live`` networks in training mode with dropout or batch normalisation.
        """
        if live:
            self.unstable = unstable_of(nets)
            check_live(self.unstable)
        else:
            for net in nets:
                net.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)
                net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as cards are read
        self.net, self.value_net, self.critic, self.robust_sarsa = nets.net, nets.value, nets.critic, nets.robust_sarsa
        self.live, self.squash = live, self.squash if nets.squash is None else nets.squash
        self.start = getattr(nets.net, "initial_state", None)
        self.recurrent = self.start is not None
        if not self.recurrent and isinstance(self.observation_space, spaces.Box):
            self.find_graph(nets.net)

    @property
    def _plays(self) -> str:
        return "actions as its module chooses them" if self.chooses else super()._plays

    def _taken(self, obs: BatchedObservation) -> Any:
        """Observations as the networks take them: in the victim's dtype, on its device, and theirs to write to."""
        if self.unstable:
            check_live(self.unstable)
        space = self.observation_space if self.integers else None
        if not isinstance(obs, Tensor) or isinstance(space, CHOICES):
            obs = to_victim(obs, self.dtype, self.device, True, space=space)
        elif obs.dtype != self.dtype:
            obs = obs.to(self.dtype)
        return clone(obs) if self.writes else obs

    def _run(self, obs: BatchedObservation, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        obs = self._taken(obs)
        out, state = self.net(obs, clone(state) if self.writes else state) if self.recurrent else (self.net(obs), None)
        if not isinstance(out, (Tensor, tuple)):
            out = as_distribution(out)
            out = params_of(out)[1] if isinstance(out, torch.distributions.Distribution) else out
        elif isinstance(out, tuple):
            out = out[0] if self.first else torch.cat([out[0], out[1].expand_as(out[0])], -1)
        out = out if out.dtype == self.dtype else out.to(self.dtype)
        return (out.clamp_min(torch.finfo(out.dtype).tiny).log() if self.probabilities else out), state

    def params(self, obs: BatchedObservation, state: RecurrentState = None) -> Tensor:
        return self._run(obs, state)[0]

    def q(self, obs: BatchedObservation, act: Tensor | None = None, state: RecurrentState = None) -> Tensor | None:
        if self.critic is None or act is None:
            return super().q(obs, act, state)
        return self.critic(self._taken(obs), act).reshape(len(act))  # type: ignore[no-any-return]

    @property
    def has_value(self) -> bool:
        return self.value_net is not None or super().has_value

    def value(self, obs: BatchedObservation, state: RecurrentState = None) -> Tensor | None:
        if self.value_net is None:
            return super().value(obs, state)
        obs = self._taken(obs)
        out: Tensor = self.value_net(obs, state) if self.recurrent and not self.carried else self.value_net(obs)
        return out.reshape(-1)

    def ends(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """The ends ``[D]`` of the box of actions, like an action."""
        box: Any = self.action_space
        low, high = (torch.as_tensor(b, device=action.device).to(action.dtype).flatten() for b in (box.low, box.high))
        return low, high

    def native(self, action: Tensor) -> Tensor:
        box = self.action_space
        if not isinstance(box, spaces.Box) or not (self.clip or self.squash):
            return super().native(action)
        low, high = self.ends(action)
        if self.squash in ("scale", "tanh"):
            out = unscale(action.tanh() if self.squash == "tanh" else action, low, high)
        else:
            out = torch.clamp(action, low, high)
        return out.view(len(action), *box.shape)

    def modules(self) -> list[nn.Module]:
        nets = (_inner(net) for net in (self.net, self.value_net, self.critic, self.robust_sarsa))
        return [net for net in nets if isinstance(net, nn.Module)]

    @property
    def is_known(self) -> bool:
        nets = [_inner(net) for net in (self.net, self.value_net, self.critic, self.robust_sarsa) if net is not None]
        return all(isinstance(net, nn.Module) for net in nets)

    def read_probabilities(self, said: str | None) -> None:
        """Take logarithms of what the network returns, which are probabilities.

        Args:
            said: the kind that the user gave.

        Warns:
            UserWarning: where the user said another kind.
        """
        if said is not None:
            no = "Q-values, and attacks on them are weak" if said == "q" else "logits, so their logarithms are taken"
            warnings.warn(
                f"every row that the module returns lies in [0, 1] and sums to one: these are probabilities, and no "
                f"{no}. Give the network without its softmax, or the same as 'logits'",
                UserWarning,
                stacklevel=3,
            )
        if said == "q":
            return
        net = self.net
        if isinstance(net, nn.Sequential) and len(net) > 1 and isinstance(net[-1], nn.Softmax) and not self.live:
            self.net = net[:-1]  # the logits themselves, whose layers are known
        else:
            self.probabilities = True

    def find_graph(self, net: nn.Module, form: Form = "pair") -> None:
        """Look for the layers of a network, whose gradient is then written out.

        Args:
            net: the victim's network, which takes observations alone.
            form: of its output, see :class:`ModuleOutput`; ``"pair"`` stands for a tensor as well.
        """
        if self.probabilities:
            return
        self.layered, self.graph = True, graph_of(net, frozen=not self.live)
        if self.graph is None and not self.live and not self.writes and form != "distribution":
            self.graph = traced_graph(net, form, self.params, self.some_observations)

    def some_observations(self, rows: int) -> Tensor:
        """Random observations ``[rows, *S]``, each nearer to zero than the one before, to where nothing saturates."""
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        x: Tensor = random_rows(space, self.device, self.dtype)(rows, rows)
        x = x * torch.logspace(0, -2, rows, device=self.device, dtype=self.dtype).view(-1, *[1] * len(space.shape))
        return torch.clamp(x, *(torch.as_tensor(end).to(x) for end in (space.low, space.high)))

    def layer_graph(self) -> LayerGraph | None:
        if self.live and self.layered:
            assert isinstance(self.net, nn.Module)
            self.graph = followed(self.net, self.graph)
        return self.graph

    def initial_state(self, rows: int) -> RecurrentState:
        return None if self.start is None else self.start(rows)

    def advance(self, obs: BatchedObservation, state: RecurrentState) -> RecurrentState:
        step = getattr(self.net, "advance", None)
        if step is None:
            return self._run(obs, state)[1]
        return step(self._taken(obs), clone(state) if self.writes else state)

    def fingerprint(self) -> str:
        if self.live:
            self._fingerprint = None
        return super().fingerprint()
