"""Victims from any torch module or function, on tensors or numpy arrays: a CleanRL agent, code of one's own.

What a module takes and returns is found out by calling it with two rows of zeros, before a victim is made of it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import advice, to_victim
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.input_gradient import LayerGraph, followed, graph_of, traced_graph
from adv_wrappers.utils.trees import clone, tensors
from adv_wrappers.victims.distributions import params_of
from adv_wrappers.victims.numpy_functions import ArrayFunction, ArrayStart, answers_arrays, to_arrays
from adv_wrappers.victims.victim import Observation, Select, State, Victim

Net = nn.Module | Callable[..., Any]  # a function may return anything; what it does is checked
InitialState = Callable[[int], State]  # rows to a hidden state with leaves [rows, ...]


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
    if not top:
        if isinstance(space, spaces.Discrete):
            return torch.full((2,), int(space.start), device=device)
        if isinstance(space, spaces.MultiDiscrete):
            return torch.as_tensor(np.stack([space.start] * 2), device=device)
        if isinstance(space, spaces.MultiBinary):
            return torch.zeros(2, *space.shape, device=device, dtype=torch.int8)
        if isinstance(space, spaces.Text):
            return np.array([str(space.character_list[0]) * int(space.min_length)] * 2, dtype=object)
    if not isinstance(space, spaces.Box):
        raise VictimError(
            f"expected Box observations (or a Dict of these, Discrete, MultiDiscrete, MultiBinary and Text), got "
            f"{space}: {advice(space)}"
        )
    return torch.zeros(2, *space.shape, device=device, dtype=dtype)


def input_form(
    net: Net, space: spaces.Space[object], start: InitialState | None, device: torch.device, dtype: torch.dtype
) -> Literal["gradients", "tensors", "arrays"]:
    """Whether a module or function works on tensors, with or without gradients, or on numpy arrays.

    A function is tried on tensors that require a gradient, then on arrays (NumPy's own functions take tensors too, and
    return them without a gradient), then on plain tensors. A module is expected to take tensors.

    Raises:
        VictimError: for a function that takes none of them.
    """

    def call(arrays: bool, gradient: bool) -> object:
        obs, state = _zeros(space, device, dtype), (start(2),) if start else ()
        if arrays:
            return net(to_arrays(obs), *to_arrays(state))
        with torch.set_grad_enabled(gradient):
            return net(_requiring_gradient(obs) if gradient else obs, *state)

    faults: list[Exception] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, when it gets tensors
        plain = isinstance(net, nn.Module)
        for arrays, gradient in [(False, False)] if plain else [(False, True), (True, False), (False, False)]:
            try:
                out = call(arrays, gradient)
            except Exception as error:
                faults.append(error)
                continue
            if answers_arrays(out):
                return "arrays"
            if not arrays:
                return "gradients" if plain or (gradient and _differentiable(out)) else "tensors"
    if plain:
        return "gradients"  # inspect_output says what is wrong with it
    raise VictimError(
        f"the module does not take observations of {space}: as tensors {faults[0]}; as numpy arrays {faults[1]}"
        if len(faults) > 1
        else f"the module does not take observations of {space}: {faults[0]}"
    )


def _requiring_gradient(obs: object) -> object:
    """Observations that require a gradient; copies, because a function may well scale its input in place."""
    if isinstance(obs, dict):
        return {key: _requiring_gradient(value) for key, value in obs.items()}
    return obs.requires_grad_().clone() if isinstance(obs, Tensor) and obs.is_floating_point() else obs


def _differentiable(out: object) -> bool:
    out = out[0] if isinstance(out, tuple) and out else out
    if isinstance(out, torch.distributions.Distribution):
        try:
            out = params_of(out)[1]
        except TypeError:  # inspect_output raises for it
            return True
    return not isinstance(out, Tensor) or out.requires_grad


@dataclass(frozen=True)
class ModuleOutput:
    """What a module was found to return.

    Attributes:
        form: "tensor", "pair" (a mean and a log-std), "distribution" or "first" (a tensor, and beside it something
            else such as a hidden state, which is ignored).
        kind: the kind of a distribution; None otherwise.
        width: how many numbers a row has, in both halves of a pair together.
        writes: whether the module writes to its input.
    """

    form: str
    kind: Literal["logits", "gaussian"] | None
    width: int
    writes: bool


def inspect_output(
    net: Net, space: spaces.Space[object], start: InitialState | None, device: torch.device, dtype: torch.dtype,
    kind: str | None = None,
) -> ModuleOutput:  # fmt: skip
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
            out = out[0] if start else out
    except Exception as error:
        raise VictimError(f"the module does not take observations of {space}: {error}") from error
    writes = [leaf._version for leaf in tensors(given)] != before
    if isinstance(out, torch.distributions.Distribution):
        try:
            found, params = params_of(out)
        except TypeError as error:
            raise VictimError(str(error)) from error
        return ModuleOutput("distribution", found, int(_checked(params).shape[-1]), writes)
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


def _checked(out: object, rows: bool = True) -> Tensor:
    """``out``, if it is a batch of floats of two rows."""
    if not isinstance(out, Tensor) or (rows and (out.dim() != 2 or len(out) != 2)):
        raise VictimError(
            "the module must return [B, K], a (mean, log_std) pair, a Distribution or one of [B, K] with a state, "
            f"got {type(out).__name__} of shape {tuple(getattr(out, 'shape', ()))} for a batch of 2"
        )
    if not out.is_floating_point():
        raise VictimError(
            f"the module must return floats that depend smoothly on the observation (Q-values, logits, or means), got "
            f"{out.dtype}: an action that was already chosen has no gradient"
        )
    return out


def from_module(
    module: Net, observation_space: spaces.Space[object], action_space: spaces.Space[object],
    kind: Literal["q", "logits", "mean", "gaussian", "distribution"] | None = None, *,
    value: Net | None = None, critic: Net | None = None, robust_sarsa: Net | None = None,
    initial_state: Callable[[int], State] | None = None, select: Select = "mode", clip: bool = False,
    scale: Tensor | None = None, device: torch.device | str | None = None, dtype: torch.dtype | None = None,
    live: bool = False, compile: bool = False, ref: str | None = None,
) -> ModuleVictim:  # fmt: skip
    """A victim from a module or function that maps raw observations ``[B, *S]`` to what ``kind`` says.

    Args:
        module: observations to Q-values ``[B, A]`` (``q``), ``logits``, an action (``mean``), mean and log-std as a
            pair or side by side (``gaussian``), or a torch ``Distribution`` (``distribution``). A recurrent one takes
            ``(obs, state)`` and returns ``(output, state)``; if it has a method ``advance(obs, state) -> state``,
            that one makes the new state, and the returned one is ignored. One that is not recurrent may return
            ``(output, state)`` too, as Tianshou's networks do: the output is taken where ``kind`` is ``q``,
            ``logits`` or ``mean``, or the state is no tensor. Outputs are cast to ``dtype``. A function may also take
            and return numpy arrays (of ``dtype``): it is tried on both. Such a victim has no gradient, and is attacked
            by its scores (``square``) or its decisions (``hop-skip-jump``) alone; functions beside it take arrays too.
        kind: what the module returns, as above; None finds it out, and raises where it is ambiguous.
        value: observations (and the state, of a recurrent one) to state values ``[B]`` or ``[B, 1]``.
        critic: observations and native actions to Q-values ``[B]`` or ``[B, 1]``.
        robust_sarsa: the same, for the attack of that name.
        initial_state: rows to a hidden state with leaves ``[rows, ...]``; makes the victim recurrent.
        clip: clip continuous actions to the action box, as most agents do when they act.
        scale: the victim's own unit of every feature ``[*S]``, for ``Linf(eps, scale="victim")``.
        dtype: what the victim computes in, float32 or float64; None takes that of the weights, and float32 for
            narrower ones, which a frozen copy is cast to.
        live: follow the module's weights as they are trained, instead of a frozen copy.
        compile: compute gradients that are not written out (see :mod:`adv_wrappers.networks.input_gradient`) by
            ``torch.compile``, where there is a compiler: seconds at the first attack, then faster for small networks.

    Raises:
        VictimError: if the output does not have the shape that the action space asks for or is not made of floats, and
            for a ``live`` module in training mode with dropout or batch normalisation (attacking it would change it),
            here and whenever it is called later.
    """
    nets = [net for net in (module, value, critic, robust_sarsa) if isinstance(net, nn.Module)]
    tensors = [t for net in nets for t in [*net.parameters(), *net.buffers()] if t.is_floating_point()]
    device = torch.device(device) if device is not None else tensors[0].device if tensors else torch.device("cpu")
    if dtype is None:
        dtype = torch.float64 if tensors and tensors[0].dtype == torch.float64 else torch.float32
        if live and tensors and tensors[0].dtype != dtype:
            raise VictimError(
                f"a victim computes in float32 or float64, the weights of a live one are {tensors[0].dtype}"
            )
    unstable = unstable_of(nets) if live else ()
    check_live(unstable)

    def keep(net: Net | None) -> Net | None:
        if live or not isinstance(net, nn.Module):
            return net
        return copy.deepcopy(net).to(device=device, dtype=dtype).eval().requires_grad_(False)

    module, value, critic, robust_sarsa = _some(keep(module)), keep(value), keep(critic), keep(robust_sarsa)
    accepts = input_form(module, observation_space, initial_state, device, dtype)
    if accepts == "arrays":
        stateful = initial_state is not None
        initial_state = None if initial_state is None else ArrayStart(initial_state, device)
        module = ArrayFunction(module, stateful, device, dtype)
        value, critic, robust_sarsa = (
            net if net is None or isinstance(net, nn.Module) else ArrayFunction(net, False, device, dtype)
            for net in (value, critic, robust_sarsa)
        )
    output = inspect_output(module, observation_space, initial_state, device, dtype, kind)
    if kind is None:
        if output.form not in ("pair", "distribution"):
            raise VictimError("say what the module returns: kind='q', 'logits', 'mean', 'gaussian' or 'distribution'")
        kind = "gaussian" if output.form == "pair" else "distribution"
    if output.form == "distribution" and kind != "distribution":
        raise VictimError(f"the module returns a Distribution, so kind must be 'distribution', got {kind!r}")
    final = output.kind if kind == "distribution" else kind
    if final is None:
        raise VictimError("kind='distribution' takes a module that returns a torch Distribution")
    victim = ModuleVictim(
        observation_space, action_space, final, select=select, device=device, dtype=dtype, ref=ref, scale=scale
    )
    expected = action_width(action_space) * (2 if final == "gaussian" else 1)
    if output.width != expected:
        raise VictimError(
            f"the module returns {output.width} numbers a row; {final} over {action_space} needs {expected}"
        )
    victim.net, victim.value_net, victim.critic, victim.robust_sarsa = module, value, critic, robust_sarsa
    victim.start, victim.recurrent, victim.live, victim.clip = initial_state, initial_state is not None, live, clip
    victim.compile, victim.differentiable = compile, accepts == "gradients"
    victim.first, victim.writes, victim.unstable = output.form == "first", output.writes, unstable
    if isinstance(module, nn.Module) and initial_state is None and isinstance(observation_space, spaces.Box):
        victim.find_graph(module, output.form)
    return victim


_UNSTABLE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


def unstable_of(nets: Iterable[nn.Module]) -> tuple[nn.Module, ...]:
    """The layers of networks that change, or are random, when they are evaluated in training mode."""
    return tuple(m for net in nets for m in net.modules() if isinstance(m, _UNSTABLE))


def check_live(layers: Iterable[nn.Module]) -> None:
    """Raise :class:`VictimError` if any of the ``layers`` that :func:`unstable_of` found is in training mode."""
    for layer in layers:
        if layer.training:
            raise VictimError(
                "a live victim must not hold dropout or batch normalisation in training mode, since attacking it would "
                f"change it: call .eval() on it before it acts (found {layer})"
            )


def _some(net: Net | None) -> Net:
    if net is None:
        raise VictimError("expected a module or function, got None")
    return net


class ModuleVictim(Victim):
    """A victim around a module or function; made by :func:`from_module`."""

    net: Net
    value_net: Net | None = None
    critic: Net | None = None
    robust_sarsa: Net | None = None
    start: Callable[[int], State] | None = None
    live = False
    clip = False
    graph: LayerGraph | None = None
    layered = False  # whether the network's layers are looked for
    first = False  # whether the module returns something beside its output that is ignored
    integers = True  # whether Discrete leaves of a dictionary come as integers, or as floats as all others
    writes = False  # whether the module writes to its input, and so is given copies
    unstable: tuple[nn.Module, ...] = ()  # layers of a live victim that must not be in training mode

    def _taken(self, obs: Observation) -> Any:
        """Observations as the networks take them: in the victim's dtype, on its device, and theirs to write to."""
        if self.unstable:
            check_live(self.unstable)
        if isinstance(obs, Tensor):
            if obs.dtype != self.dtype:
                obs = obs.to(self.dtype)
        else:
            space = self.observation_space if self.integers else None
            obs = to_victim(obs, self.dtype, self.device, True, space=space)
        return clone(obs) if self.writes else obs

    def _run(self, obs: Observation, state: State) -> tuple[Tensor, State]:
        obs = self._taken(obs)
        out, state = self.net(obs, clone(state) if self.writes else state) if self.recurrent else (self.net(obs), None)
        if isinstance(out, torch.distributions.Distribution):
            out = params_of(out)[1]
        elif isinstance(out, tuple):
            out = out[0] if self.first else torch.cat([out[0], out[1].expand_as(out[0])], -1)
        return (out if out.dtype == self.dtype else out.to(self.dtype)), state

    def params(self, obs: Observation, state: State = None) -> Tensor:
        return self._run(obs, state)[0]

    def q(self, obs: Observation, act: Tensor | None = None, state: State = None) -> Tensor | None:
        if self.critic is None or act is None:
            return super().q(obs, act, state)
        return self.critic(self._taken(obs), act).reshape(len(act))  # type: ignore[no-any-return]

    @property
    def has_value(self) -> bool:
        return self.value_net is not None or super().has_value

    def value(self, obs: Observation, state: State = None) -> Tensor | None:
        if self.value_net is None:
            return super().value(obs, state)
        obs = self._taken(obs)
        out: Tensor = self.value_net(obs, state) if self.recurrent else self.value_net(obs)
        return out.reshape(-1)

    def native(self, action: Tensor) -> Tensor:
        if self.clip and isinstance(self.action_space, spaces.Box):
            bounds = self.action_space.low, self.action_space.high
            low, high = (torch.as_tensor(bound, dtype=action.dtype, device=action.device) for bound in bounds)
            return torch.clamp(action, low, high)
        return super().native(action)

    def modules(self) -> list[nn.Module]:
        return [n for n in (self.net, self.value_net, self.critic, self.robust_sarsa) if isinstance(n, nn.Module)]

    def find_graph(self, net: nn.Module, form: str = "tensor") -> None:
        """Look for the layers of a network, whose gradient is then written out.

        Args:
            net: the victim's network, which takes observations alone.
            form: of its output, see :class:`ModuleOutput`.
        """
        self.layered, self.graph = True, graph_of(net, frozen=not self.live)
        if self.graph is None and not self.live and not self.writes and form != "distribution":
            self.graph = traced_graph(net, form, self.params, self._some_observations)

    def _some_observations(self, rows: int) -> Tensor:
        """Random observations ``[rows, *S]``, each nearer to zero than the one before, to where nothing saturates."""
        space, random = self.observation_space, np.random.default_rng(rows)
        assert isinstance(space, spaces.Box)
        low, high = (np.where(abs(bound) < 1e3, bound, 10.0 * np.sign(bound)) for bound in (space.low, space.high))
        x = random.uniform(low, high, (rows, *space.shape))
        x *= 10.0 ** np.linspace(0, -2, rows).reshape(-1, *[1] * low.ndim)
        return torch.as_tensor(np.clip(x, low, high), device=self.device, dtype=self.dtype)

    def layer_graph(self) -> LayerGraph | None:
        if self.live and self.layered:
            assert isinstance(self.net, nn.Module)
            self.graph = followed(self.net, self.graph)
        return self.graph

    def initial_state(self, rows: int) -> State:
        return None if self.start is None else self.start(rows)

    def advance(self, obs: Observation, state: State) -> State:
        step = getattr(self.net, "advance", None)
        if step is None:
            return self._run(obs, state)[1]
        return step(self._taken(obs), clone(state) if self.writes else state)

    def fingerprint(self) -> str:
        if self.live:
            self._fingerprint = None
        return super().fingerprint()
