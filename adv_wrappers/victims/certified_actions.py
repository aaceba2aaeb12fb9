"""The actions that an agent may take anywhere in a box of observations: sound, from bounds on its network.

An action is possible unless a bound excludes it: some other action's output is higher everywhere in the box. Bounds
hold in exact arithmetic and are computed in float64, while the victim plays what its own arithmetic makes the largest.
So a difference counts as above zero only where it exceeds 8 times the estimate of the victim's rounding errors
(:mod:`adv_wrappers.bounds.rounding_error`); of 25 agents none was off by more than 1.8 times the estimate. It
is one for the victim's dtype in full, and not for TF32 (:func:`adv_wrappers.utils.precision.full_precision`).
Ties exclude nothing.
"""

from __future__ import annotations

import copy
import itertools
from typing import get_args
from weakref import WeakKeyDictionary

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.bounds.branch_and_bound import decide
from adv_wrappers.bounds.crown_bounds import Intermediate, crown
from adv_wrappers.bounds.interval_bounds import graph_network, interval
from adv_wrappers.bounds.rounding_error import rounding
from adv_wrappers.errors import ValueRangeError, VictimError
from adv_wrappers.networks.graph import GraphNetwork
from adv_wrappers.registry import Method as Method
from adv_wrappers.utils.checks import check_choice
from adv_wrappers.victims.modules.module import ModuleVictim
from adv_wrappers.victims.victim import Victim

ROUNDING_FACTOR = 8  # times the estimate
_FROZEN: WeakKeyDictionary[Victim, nn.Module] = WeakKeyDictionary()


def possible_actions(
    victim: Victim, low: Tensor, high: Tensor, method: Method = "crown", hull: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Which actions some observation ``x`` with ``low <= x <= high`` may make the victim's mode; sound.

    Args:
        victim: one with actions ``Discrete(A)``, whose network has bounds.
        low, high: raw observations ``[B, *S]`` of the victim's dtype, on its device.
        method: how outputs are bounded. ``interval``: as fast as three evaluations. ``crown``: linear bounds, whose
            relaxations lie in interval bounds of hidden layers. ``full-crown``: those of hidden layers are linear
            bounds too, in boxes that ``crown`` leaves open. ``bisect``: boxes are split until every action is found or
            excluded.
        hull: a box ``[1, *S]`` twice that holds all of these. The victim's rounding errors are then estimated once,
            for this box, which saves a fifth of the time where boxes are many and small.

    Returns:
        bool ``[B, A]``; column a stands for the action ``start + a``. An action that the victim plays somewhere in the
        box is always True; one that it plays nowhere may be.

    Raises:
        VictimError: for victims without such a network, with a hidden state, with other actions, and for weights that
            are not finite.
        ValueRangeError: for boxes that are none, and unknown methods.

    >>> from adv_wrappers import load_victim
    >>> import torch
    >>> from adv_wrappers.victims.certified_actions import possible_actions
    >>> x = torch.tensor([[0.0, 0.0, 0.05, 0.0]])
    >>> possible_actions(load_victim("zoo:cartpole-dqn"), x - 0.001, x + 0.001, "crown").tolist()
    [[False, True]]
    """
    if torch.is_inference_mode_enabled():  # whose tensors have no gradient
        with torch.inference_mode(False), torch.no_grad():
            low, high = (end.clone() if isinstance(end, Tensor) else end for end in (low, high))
            return possible_actions(victim, low, high, method, hull)
    if not isinstance(victim.action_space, spaces.Discrete):
        raise VictimError(f"expected a victim with Discrete actions, got {victim!r}")
    # bounds are computed in float64, with room for the rounding of the victim's own dtype
    count = victim.width
    net, low, high = _exactly(victim, low, high, method)
    one = torch.eye(count, dtype=low.dtype, device=low.device)
    widest = (low, high) if hull is None else (hull[0].double(), hull[1].double())
    if method == "bisect":
        return decide(net, low, high, margin=_margin(victim, net, *widest, one).expand(len(low), -1)).possible
    # every pair once: where its difference is above zero one action is excluded, where it is below zero the other
    pairs = torch.tensor([*itertools.combinations(range(count), 2)], dtype=torch.int64, device=low.device)
    first, second = pairs.view(-1, 2).unbind(1)
    spec = one[first] - one[second]
    margin = _margin(victim, net, *widest, spec).expand(len(low), -1)
    possible = torch.ones(len(low), count, dtype=torch.bool, device=low.device)
    left = torch.arange(len(low), device=low.device)  # boxes that go on to tighter bounds
    ways: tuple[Method, ...] = ("crown", "full-crown") if method == "full-crown" else (method,)
    for cheaper in ways:
        if not len(left):
            break
        # an action is excluded by any difference that says so; boxes with one action left are done
        least, most = _bounds(victim, net, low[left], high[left], spec, cheaper, margin[left])
        for excluded, rows in ((second, least > 0), (first, most < 0)):
            times = torch.zeros(len(left), count, device=low.device).index_add_(1, excluded, rows.float())
            possible[left] &= times == 0
        left = left[possible[left].sum(1) > 1]
    return possible


def action_bounds(victim: Victim, low: Tensor, high: Tensor, method: Method = "full-crown") -> tuple[Tensor, Tensor]:
    """A box ``(low, high)`` ``[B, D]`` that holds the victim's modes at every ``x`` with ``low <= x <= high``; sound.

    In the units of the environment, as the agent plays them: clipped to the action space where it clips.

    Args:
        victim: one with continuous actions, whose network has bounds.
        low, high: raw observations ``[B, *S]`` of the victim's dtype, on its device.
        method: as for :func:`possible_actions`; ``bisect`` is for discrete actions alone. The default is tighter than
            that of discrete actions, which searches ask for at many small boxes: of continuous ones there is nothing
            to exclude, and half the width is worth half as much time again.

    Raises:
        VictimError: for victims without such a network, with a hidden state, with discrete actions, and for weights
            that are not finite.
        ValueRangeError: for boxes that are none, and unknown methods.
    """
    if not isinstance(victim.action_space, spaces.Box):
        raise VictimError(f"expected a victim with continuous actions, got {victim!r}")
    if method == "bisect":
        raise ValueRangeError("bisect decides which of n actions are possible; boxes of actions take other methods")
    # bounds on the means alone: the log standard deviations beside them do not change the mode
    net, low, high = _exactly(victim, low, high, method)
    size = victim.width if victim.kind == "mean" else victim.width // 2
    mean = torch.eye(size, victim.width, dtype=low.dtype, device=low.device)
    beside = low.new_zeros(len(low), victim.width - size)
    ends = _bounds(victim, net, low, high, mean, method, _margin(victim, net, low, high, mean))
    with torch.no_grad():
        # rises with every mean
        least, most = (victim.mode(torch.cat([end, beside], -1).to(victim.dtype)) for end in ends)
    return least, most


def params_network(victim: Victim) -> GraphNetwork:
    """The graph from raw observations to the victim's parameters, around its weights.

    Raises:
        VictimError: for a victim with a hidden state, a function, a network that holds what has no bounds, and one that
            does not compute what its graph does.
    """
    if victim.recurrent:
        raise VictimError(f"there are no bounds for victims with a hidden state, got {victim!r}")
    net = victim.net if isinstance(victim, ModuleVictim) else None
    if not isinstance(net, nn.Module) or not isinstance(victim.observation_space, spaces.Box):
        raise VictimError(f"expected a victim around a torch module with Box observations, got {victim!r}")
    assert isinstance(victim, ModuleVictim)
    return graph_network(net, victim.some_observations(3), "first" if victim.first else "pair")


def _exactly(victim: Victim, low: Tensor, high: Tensor, method: str) -> tuple[nn.Module, Tensor, Tensor]:
    """The victim's network and a box in float64, after checking them."""
    check_choice("method", method, get_args(Method))
    # a network that nobody trains is copied to float64 once
    net = _FROZEN.get(victim)
    if net is None:
        net = copy.deepcopy(params_network(victim)).double().requires_grad_(False)
        if isinstance(victim, ModuleVictim) and not victim.live:
            _FROZEN[victim] = net
    shape = victim.observation_space.shape or ()
    for end in (low, high):
        if not isinstance(end, Tensor) or end.dtype != victim.dtype or tuple(end.shape[1:]) != shape or end.dim() < 1:
            got = f"{end.dtype} {tuple(end.shape)}" if isinstance(end, Tensor) else type(end).__name__
            raise ValueRangeError(f"the ends of a box are {victim.dtype} {('B', *shape)}, got {got}")
    if not bool(torch.isfinite(low).all() & torch.isfinite(high).all()):
        raise ValueRangeError("the ends of a box must be finite numbers")
    return net, low.double(), high.double()


def _bounds(
    victim: Victim, net: nn.Module, low: Tensor, high: Tensor, spec: Tensor, method: Method, margin: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds ``[B, M]`` on ``spec`` times what the victim computes, which rounds by the ``margin`` at most."""
    # of outputs themselves, which is tighter where an activation function comes last
    rows = None if victim.kind == "mean" else spec
    with torch.no_grad():
        if method == "interval":
            least, most = interval(net, low, high, rows)
        else:
            full: Intermediate = "interval" if method == "crown" else "crown"
            least, most = crown(net, low, high, rows, full)
    return least - margin, most + margin


@torch.no_grad()
def _margin(victim: Victim, net: nn.Module, low: Tensor, high: Tensor, spec: Tensor) -> Tensor:
    """How far combinations of the victim's outputs may be off by rounding, ``[B, M]``."""
    margin: Tensor = ROUNDING_FACTOR * rounding(net, low, high, spec, torch.finfo(victim.dtype).eps)
    if not bool(torch.isfinite(margin).all()):
        raise VictimError(f"bounds on {victim!r} are not finite: are its weights?")
    return margin
