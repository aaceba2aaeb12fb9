"""Victims from any torch module or function, on tensors or numpy arrays: a CleanRL agent, code of one's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.spaces import CHOICES, to_victim
from adv_wrappers.errors import VictimError
from adv_wrappers.networks.input_gradient import LayerGraph, followed, graph_of, traced_graph
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.utils.trees import clone
from adv_wrappers.victims.distributions import as_distribution, params_of, unscale
from adv_wrappers.victims.functions import ArrayFunction, ArrayStart, ChosenActions, MainPart, SingleObservation
from adv_wrappers.victims.modules.action_check import draws, flags_of, mixes_rows, play_as_it_says
from adv_wrappers.victims.modules.asking import Rows, ask, rows_of
from adv_wrappers.victims.modules.frozen_copy import check_weights, frozen_copy, unwrapped
from adv_wrappers.victims.modules.probe import (
    Form,
    ModuleOutput,
    Net,
    Probe,
    by_method,
    check_action_space,
    check_bytes,
    check_family,
    check_forward,
    other_parts,
    random_rows,
    reads_a_part,
)
from adv_wrappers.victims.modules.state import (
    HiddenState,
    RowsFirst,
    begins_anew,
    returned_start,
    rows_first,
    take_out_state,
)
from adv_wrappers.victims.victim import (
    BatchedObservation,
    OutputKind,
    RecurrentState,
    Select,
    Victim,
    choice_sizes,
    device_of,
)


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
    ref: str | None = None,
) -> ModuleVictim:
    """A victim from a module or function that maps raw observations ``[B, *S]`` to what ``kind`` says.

    Args:
        module: observations to Q-values ``[B, A]`` (``q``), ``logits``, an action (``mean``), mean and log-std as a
            pair or side by side (``gaussian``), a torch ``Distribution`` (``distribution``), or the action that the
            agent takes (``action``: discrete ones become logits without a gradient). A recurrent one takes
            ``(obs, state)`` and returns ``(output, state)``, or more values between these; if it has a method
            ``advance(obs, state) -> state``, that one makes the new state, and the returned one is ignored. One that
            is not recurrent may return ``(output, state)`` too, as Tianshou's networks do: the output is taken where
            ``kind`` is ``q``, ``logits`` or ``mean``, or the state is no tensor. Of more values the first is taken, and
            logits of several choices are, as a list or tuple, put side by side. Outputs are cast to ``dtype``. A
            function may also take and return numpy arrays (of ``dtype``), or take one observation ``[*S]``: all are
            tried. Such a victim has no gradient, and is attacked by its scores (``square``) or its decisions
            (``hop-skip-jump``) alone; functions beside it take arrays too.
            Discrete and MultiDiscrete observations come as int64, MultiBinary ones as int8, those of a Dict as a
            dictionary, of a Tuple as a tuple.
        kind: what the module returns, as above; None finds it out, and raises where it is ambiguous. Rows in [0, 1]
            that sum to one are probabilities: their logarithms are the logits, with a warning where a kind was given;
            so are probabilities times a number.
            A module with a method of its own that says what it plays (``get_action``, ``get_action_and_value``,
            ``act``, ``act_inference``, ``select_action``, ``predict``) is compared with it: where the method squashes
            the output by tanh and scales it to the box, as the actors of CleanRL's SAC, the victim does so too.
        value: observations (and the state, of a recurrent one) to state values ``[B]`` or ``[B, 1]``.
        critic: observations and native actions to Q-values ``[B]`` or ``[B, 1]``.
        robust_sarsa: the same, for the attack of that name.
        initial_state: rows to a hidden state, whose parts have rows along any axis, as of ``nn.LSTM``; makes the victim
            recurrent. None is zeros for a module that takes a state as an argument with a default, such as
            ``forward(x, hidden=None)``, and returns the next.
        clip: clip continuous actions to the action box, as most agents do when they act.
        scale: the victim's own unit of every feature ``[*S]``, for ``Linf(eps, scale="victim")``.
        dtype: what the victim computes in, float32 or float64; None takes the widest of the weights and buffers, and
            float32 for narrower ones, which a frozen copy is cast to. A function on arrays gets float64 where the space
            has it and the function takes it; a module or function on tensors, where it uses the precision before it
            casts, as one that normalises.
        live: follow the module's weights as they are trained, instead of a frozen copy.

    Raises:
        VictimError: for a module of which a method of its own plays something else than the victim would; if the output
            does not have the shape that the action space asks for or is not made of floats, and
            for a ``live`` module in training mode with dropout or batch normalisation (attacking it would change it),
            here and whenever it is called later.
    """
    if not callable(module):
        raise VictimError(f"expected a module or function, got {module!r:.80}{by_method(module)}")
    if kind is not None:
        check_choice("kind", kind, (*get_args(OutputKind), "action"), error=VictimError)
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if not isinstance(space, spaces.Space):
            raise VictimError(f"expected a gymnasium space as {name}, such as env.{name}, got {space!r:.80}")
    if dtype not in (None, torch.float32, torch.float64):
        raise VictimError(f"a victim computes in float32 or float64, got dtype={dtype!r}: give torch.float64")
    module, value, critic, robust_sarsa = (unwrapped(net) for net in (module, value, critic, robust_sarsa))
    check_forward(module)
    check_action_space(action_space)
    nets = [net for net in (module, value, critic, robust_sarsa) if isinstance(net, nn.Module)]
    device, computes = _place(nets, device, dtype, live)

    # copies that nobody trains, of those that can be copied
    followed_nets = list[nn.Module](nets if live else ())
    rows = random_rows(observation_space, device, computes)

    def keep(net: Net | None) -> Net | None:
        if live or not isinstance(net, nn.Module):
            return net
        copied = frozen_copy(net, device, computes)
        if net is module and copied is not None and initial_state is None and not takes_batches(copied, rows):
            # a module that casts what it computes itself
            own = frozen_copy(net, device, None)
            copied = own if own is not None and takes_batches(own, rows) else copied
        followed_nets.extend([net] if copied is None else ())
        return net if copied is None else copied

    module, (value, critic, robust_sarsa) = cast(Net, keep(module)), map(keep, (value, critic, robust_sarsa))
    live, unstable = bool(followed_nets), unstable_of(followed_nets)
    check_live(unstable)

    # a function of observations and a hidden state, on tensors
    own, said = module, kind
    if initial_state is None and not takes_batches(module, rows, (7, 1)):
        one = SingleObservation(module)
        module = one if takes_batches(one, rows, (1,)) else module
    returns = module
    # a chosen action is read as logits, one of continuous actions as the mean
    if kind == "action":
        chooses = not isinstance(action_space, spaces.Box)
        module = ChosenActions(module, action_space) if chooses else module
        kind = "logits" if chooses else "mean"
    # a hidden state, which the module keeps inside, returns as its second value, or gets from the caller
    kept = initial_state is None  # whether the state is the module's own affair
    if kept and (inner := take_out_state(module, rows)) is not None:
        module, initial_state = inner, inner.start if inner.recurrent else None
    elif kept:
        initial_state = returned_start(returns, rows)
    if initial_state is not None and (by_rows := rows_first(module, initial_state, rows)) is not None:
        value = value if kept or value is None else partial(by_rows.value, value)
        module, initial_state = by_rows, by_rows.start
    # of an answer in several parts, the one that the kind speaks of
    parts = MainPart(module, choice_sizes(action_space), kind == "gaussian")
    given = (rows(0, 2),) if initial_state is None else (rows(0, 2), initial_state(2))
    module = parts if reads_a_part(parts, rows, initial_state) else module
    # whether it takes tensors, with gradients or without, or arrays
    check_bytes(module, observation_space, rows, initial_state)
    probe = Probe(module, rows, initial_state)
    accepts = probe.input_form()
    if dtype is None and computes == torch.float32 and probe.takes_float64(observation_space, accepts, device):
        computes = torch.float64
        rows = random_rows(observation_space, device, computes)
        probe = Probe(module, rows, initial_state)
    if accepts.startswith("arrays"):
        of_tensors = accepts == "arrays of tensors"
        on_tensors = partial(ArrayFunction, device=device, dtype=computes, takes_tensors=of_tensors)
        module = on_tensors(module, initial_state is not None)
        initial_state = None if initial_state is None else ArrayStart(initial_state, device)
        value, critic, robust_sarsa = (
            net if net is None or isinstance(net, nn.Module) else on_tensors(net, False)
            for net in (value, critic, robust_sarsa)
        )
        probe = Probe(module, rows, initial_state)

    # what its answers mean
    output = probe.output(kind)
    sought = said != "action" and kind in (None, "logits", "q")
    total = probe.gives_probabilities(output.form, action_space) if sought else 0.0
    probable = total == 1 or (total > 0 and kind is not None)
    final = _final_kind(kind, output, probable, action_space)
    victim = ModuleVictim(
        observation_space,
        action_space,
        final,
        select=select,
        device=device,
        dtype=computes,
        ref=ref,
        scale=scale,
        family=output.family,
    )
    # the output has to be as wide as the action space asks for
    if output.family is not None:
        check_family(output.family, action_space)
    if output.width != victim.width:
        needs = f"{final} over {action_space} needs {victim.width}{other_parts(parts.function, given, victim.width)}"
        if isinstance(action_space, spaces.MultiBinary) and 2 * output.width == victim.width:
            needs += ", of 0 and of 1 for every bit: lambda x: torch.distributions.Bernoulli(logits=net(x)) has them"
        raise VictimError(f"the module returns {output.width} numbers a row; {needs}")
    # what was found out is the victim's own
    victim.clip = clip
    victim.carried = kept and initial_state is not None
    victim.differentiable = accepts == "gradients"
    victim.first = output.form == "first"
    victim.writes = output.writes
    found = VictimNetworks(module, final, value, critic, robust_sarsa, start=initial_state)
    if probable:
        found.net = victim.read_probabilities(module, said, total, live)
    victim.own(found, live, unstable, output.form)
    victim.chooses = said == "action" and final == "logits"
    _warn_of_mistakes(victim, own, cast(Net, _inner(module)), rows)
    if kept:
        play_as_it_says(victim, own, rows)
    return victim


def _warn_of_mistakes(victim: ModuleVictim, own: Net, inner: Net, rows: Rows) -> None:
    """Warn of what would spoil figures without an error: chance, other rows of a batch, a layer that begins anew."""
    if not victim.live and victim.graph is None and draws(victim, rows):
        flags = ", ".join(f"{name}={value}" for name, value in flags_of(own).items())
        asked = f"lambda x: net(x, {flags}) asks for its most likely action. " if flags else ""
        warnings.warn(
            "the module answers by chance (otherwise when it is asked again), so figures are those of some draws, and "
            f"an attack sees the noise. {asked}Give what it draws from, as in from_module(agent.actor, ..., 'logits', "
            "select='sample'), or its most likely action; call .eval() on what a function calls; a state is found in "
            "an attribute of a module or object, and not in a variable of a function",
            UserWarning,
            stacklevel=3,
        )
    elif victim.graph is None and mixes_rows(victim, rows):
        warnings.warn(
            "the module answers otherwise for an observation among others than for it alone, so figures depend on how "
            "many environments are played at once: call .eval() on what a function calls, and normalise by what is the "
            "same for all batches",
            UserWarning,
            stacklevel=3,
        )
    if not victim.recurrent and (start := begins_anew(inner, rows(0, 2))) is not None:
        warnings.warn(
            "a recurrent layer of the module begins anew at every step, so the victim remembers nothing: give a "
            "function that takes the state and returns the next, as in from_module(lambda x, state: net(x, state), "
            f"..., initial_state=lambda rows: {start})",
            UserWarning,
            stacklevel=3,
        )


def _place(
    nets: Iterable[nn.Module], device: torch.device | str | None, dtype: torch.dtype | None, live: bool
) -> tuple[torch.device, torch.dtype]:
    """Where, and in which dtype, a victim of these networks computes; arguments as of :func:`from_module`."""
    floats = [t for net in nets for t in [*net.parameters(), *net.buffers()] if t.is_floating_point()]
    place = device_of(floats[0].device if device is None and floats else device or "cpu", shapes_only=True)
    if dtype is None:
        first = floats[:1] if live else floats  # a normaliser may be float64 where layers are float32
        dtype = torch.float64 if any(each.dtype == torch.float64 for each in first) else torch.float32
        if live and floats and floats[0].dtype != dtype:
            raise VictimError(
                f"a victim computes in float32 or float64, the weights of a live one are {floats[0].dtype}"
            )
    for net in nets:
        check_weights(net)
    return place, dtype


def _final_kind(kind: Any, output: ModuleOutput, probable: bool, space: spaces.Space[object]) -> OutputKind:
    """The kind of a victim, from that which the user gave and what the module was found to return."""
    if kind is None:
        known = output.form == "distribution" or (output.form == "pair" and isinstance(space, spaces.Box))
        if not known and not probable:
            raise VictimError("say what the module returns: kind='q', 'logits', 'mean', 'gaussian' or 'distribution'")
        kind = "logits" if probable else "gaussian" if output.form == "pair" else "distribution"
    # a distribution says itself what it is of
    if output.form == "distribution" and kind != "distribution":
        raise VictimError(f"the module returns a Distribution, so kind must be 'distribution', got {kind!r}")
    final: OutputKind | None = output.kind if kind == "distribution" else kind
    if final is None:
        raise VictimError("kind='distribution' takes a module that returns a torch Distribution")
    return final


def takes_batches(net: Net, rows: Rows, counts: tuple[int, ...] = (2, 1)) -> bool:
    """Whether a module or function answers for so many observations at once, as tensors or arrays, with a row each."""
    forms = (False,) if isinstance(net, nn.Module) and counts == (2, 1) else (False, True)
    asked = ((count, arrays) for count in counts for arrays in forms)
    return any(rows_of(ask(net, rows(0, count), arrays=arrays)) == count for count, arrays in asked)


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


def _inner(net: object) -> object:
    """What a function on arrays, or one that chooses, was made of."""
    while isinstance(net, (ArrayFunction, ChosenActions, HiddenState, MainPart, RowsFirst, SingleObservation)):
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
        start: rows to the hidden state that an episode begins with; None takes the network's own method.
    """

    net: Any
    kind: OutputKind
    value: Any = None
    critic: Any = None
    robust_sarsa: Any = None
    squash: str | None = None
    start: Callable[[int], RecurrentState] | None = None

    def __iter__(self) -> Iterator[nn.Module]:
        nets = (_inner(net) for net in (self.net, self.value, self.critic, self.robust_sarsa))
        return (net for net in nets if isinstance(net, nn.Module))


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
    probabilities = False  # whether the network returns probabilities, whose logarithms are the logits
    carried = False  # whether the state is one that the user did not give, and the value's network does not take
    unstable: tuple[nn.Module, ...] = ()  # layers of a live victim that must not be in training mode

    def take(self, nets: VictimNetworks, live: bool = False) -> None:
        """Own networks, which are frozen here unless they are ``live``, and followed as they are trained elsewhere.

        Raises:
            VictimError: for ``live`` networks in training mode with dropout or batch normalisation.
        """
        unstable = unstable_of(nets) if live else ()
        check_live(unstable)
        if not live:
            for net in nets:
                net.to(device=self.device, dtype=self.dtype).eval().requires_grad_(False)
                net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # as cards are read
        nets.start = getattr(nets.net, "initial_state", None)  # which knows how an episode begins
        self.own(nets, live, unstable)

    def own(self, nets: VictimNetworks, live: bool, unstable: tuple[nn.Module, ...] = (), form: Form = "pair") -> None:
        """Have these networks, as they are; those without a hidden state are looked through for known layers.

        Args:
            nets: the networks.
            live: whether they are followed as they are trained.
            unstable: layers of them that must not be in training mode.
            form: of the output, see :class:`ModuleOutput`; ``"pair"`` stands for a tensor as well.
        """
        self.net, self.value_net = nets.net, nets.value
        self.critic, self.robust_sarsa = nets.critic, nets.robust_sarsa
        self.live, self.unstable = live, unstable
        self.squash = self.squash if nets.squash is None else nets.squash
        self.start, self.recurrent = nets.start, nets.start is not None
        layered = isinstance(nets.net, nn.Module) and isinstance(self.observation_space, spaces.Box)
        if layered and not self.recurrent and not self.probabilities:
            self.layered, self.graph = True, graph_of(nets.net, frozen=not live)
            if self.graph is None and not live and not self.writes and form != "distribution":
                self.graph = traced_graph(nets.net, form, self.params, self.some_observations)

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
        # smaller probabilities than its own precision has have no logarithm whose gradient that could hold
        tiny = max(torch.finfo(dtype).tiny for dtype in (out.dtype, self.dtype)) if self.probabilities else 0.0
        out = out if out.dtype == self.dtype else out.to(self.dtype)
        return (out.clamp_min(tiny).log() if self.probabilities else out), state

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

    def _nets(self) -> list[object]:
        nets = (self.net, self.value_net, self.critic, self.robust_sarsa)
        return [_inner(net) for net in nets if net is not None]

    def modules(self) -> list[nn.Module]:
        return [net for net in self._nets() if isinstance(net, nn.Module)]

    @property
    def is_known(self) -> bool:
        return len(self.modules()) == len(self._nets())

    def read_probabilities(self, net: Net, said: str | None, total: float, live: bool) -> Net:
        """The network whose outputs are read as logits, of one that returns probabilities.

        Args:
            net: the network.
            said: the kind that the user gave.
            total: what its outputs add up to.
            live: whether it is followed.

        Warns:
            UserWarning: where the user said another kind.
        """
        if said is not None:
            no = "Q-values, and attacks on them are weak" if said == "q" else "logits, so their logarithms are taken"
            rows = "lies in [0, 1] and sums to one" if total == 1 else f"has no negative number and sums to {total:.6g}"
            warnings.warn(
                f"every row that the module returns {rows}: these are probabilities, and no {no}. Give the "
                "network without its softmax, or the same as 'logits'",
                UserWarning,
                stacklevel=3,
            )
        # probabilities that were called Q-values are left as the user has them
        if said == "q":
            return net
        if isinstance(net, nn.Sequential) and len(net) > 1 and isinstance(net[-1], nn.Softmax) and not live:
            return net[:-1]  # the logits themselves, whose layers are known
        self.probabilities = True
        return net

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
