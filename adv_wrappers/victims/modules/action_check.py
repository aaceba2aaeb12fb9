"""What a module itself says that it plays, compared with what a victim of it would play.

An actor may compute the mean of a distribution in ``forward`` and squash, scale or sample in a method of its own, as
those of CleanRL's SAC do in ``get_action``. Both are asked for the same observations. A method that samples is asked
often: where the victim's action lies outside of all that was drawn, it is another one. A function around such a module
is taken as it is.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import select
from adv_wrappers.victims.functions import batched, to_arrays
from adv_wrappers.victims.modules.asking import Rows, ask, joined_answers, nearly, seed_all, unseen
from adv_wrappers.victims.modules.frozen_copy import TorchScriptNet
from adv_wrappers.victims.victim import Victim

METHODS = (
    "act_inference", "get_deterministic_action", "deterministic_action", "act_deterministic", "get_mean_action",
    "mean_action", "get_greedy_action", "greedy_action", "select_greedy_action", "best_action", "get_best_action",
    "get_eval_action", "eval_action", "exploit", "get_action", "get_actions", "get_action_and_value", "act",
    "select_action", "select_actions", "choose_action", "choose_actions", "take_action", "compute_action",
    "compute_actions", "predict", "sample_action", "sample", "explore",
)  # fmt: skip
_FLAGS = {
    **dict.fromkeys(("deterministic", "evaluate", "eval", "evaluation", "eval_mode", "is_eval", "greedy", "test",
                     "testing", "is_test", "use_mean"), True),
    **dict.fromkeys(("explore", "exploration", "training", "is_training", "train", "is_train", "stochastic", "sample",
                     "noise", "add_noise", "with_noise", "use_noise"), False),
    "epsilon": 0.0, "eps": 0.0,
}  # fmt: skip
_ROWS, _DRAWS = 16, 32
_OFTEN = 0.9  # of draws: a policy whose mode is another action draws none so often
_SQUASHES = ("tanh", "scale")
Played = tuple[str, int | None, Tensor]  # the method, the number of its answer's part, and draws [n, B, D]


def own_methods(net: object) -> list[str]:
    """The names of a module's methods that say what it plays."""
    return [name for name in METHODS if not hasattr(nn.Module, name) and callable(getattr(net, name, None))]


def play_as_it_says(victim: Any, net: Callable[..., Any], rows: Rows) -> None:
    """Make a victim play what its module says, where it is known how.

    Args:
        victim: the victim, feed-forward or with a state that it begins with.
        net: its module or function.
        rows: a seed and a number of rows to as many random observations.

    Raises:
        VictimError: for a module of which a method of its own plays something else.

    Warns:
        UserWarning: for one with an ``action_scale`` that nothing uses.
    """
    net = net.program if isinstance(net, TorchScriptNet) else net  # whose methods are those of the program
    methods = own_methods(net) if isinstance(net, nn.Module) else []
    if not methods and not (isinstance(net, nn.Module) and hasattr(net, "action_scale")):
        return
    # both are asked for the same observations
    obs = rows(300, _ROWS)
    with unseen(net):
        params = victim.params(obs, victim.initial_state(_ROWS))
        played = [each for name in methods for each in _played(net, name, obs, victim)]
        _compare(victim, net, params, played)
        unused = not played and hasattr(net, "action_scale") and not _uses_scale(net, obs)
        mean = "net(x)[0]" if unused and isinstance(net(obs), (tuple, list)) else "net(x)"
    if unused:
        warnings.warn(
            f"{_owner(net)} has action_scale, and its forward does not use it: if its agent squashes and scales "
            f"actions, give what it plays, as in from_module(lambda x: torch.tanh({mean}) * net.action_scale + "
            "net.action_bias, ..., 'mean')",
            UserWarning,
            stacklevel=3,
        )


def draws(victim: Any, rows: Rows) -> bool:
    """Whether a victim answers by chance; one that does not take so many rows is not asked."""
    obs, state = rows(500, _ROWS), victim.initial_state(_ROWS)
    first, *others = (ask(victim.params, obs, state, seed=seed) for seed in range(4))
    return first is not None and not first.is_meta and not all(nearly(first, each) for each in others)


def mixes_rows(victim: Any, rows: Rows) -> bool:
    """Whether a victim answers otherwise for an observation among others; one that takes none so is not asked."""
    obs, state = rows(501, 3), victim.initial_state(3)
    together, *alone = (
        ask(victim.params, select(obs, of), select(state, of), seed=0)
        for of in (None, *(np.array([i]) for i in range(3)))
    )
    if any(answer is None or answer.is_meta for answer in (together, *alone)):
        return False
    apart = (together - torch.cat(alone)).abs().nan_to_num(nan=0.0).amax()
    return bool(apart > 1e-2 * (1 + together.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).amax()))


def _compare(victim: Any, net: Any, params: Tensor, played: Sequence[Played]) -> None:
    """Compare the victim's actions by its ``params`` with what its module plays."""
    mine, box = _of(victim, params), victim.action_space
    squashed = _squashed(victim, params) if isinstance(box, spaces.Box) and box.is_bounded() else {}
    fixed, drawn = ([each for each in played if (len(each[2]) == 1) == single] for single in (True, False))
    # what is always played tells more than the range of draws, in which an action that is not squashed may lie too
    ways = [_likeliest([draws for _, _, draws in some], {None: mine, **squashed}, victim) for some in (fixed, drawn)]
    for squash in ways:
        if squash in squashed:
            victim.squash, victim.clip = squash, False
            return
    if not played or ways[0] is not None or (ways[1] is not None and not _contradicts(victim, params, fixed)):
        return
    # the message names the method that contradicts most plainly, at the row where it does so most, and what to write
    name, part, draws = next((each for each in played if len(each[2]) == 1), played[0])
    row = int((draws.median(0).values - mine).abs().sum(-1).argmax())
    always, kind = len(draws) == 1, "mean" if isinstance(box, spaces.Box) else "action"
    own = _shown(draws[0, row]) if always else f"{_shown(draws[:, row].amin(0))} to {_shown(draws[:, row].amax(0))}"
    line = f"net.{name}(x){'' if part is None else f'[{part}]'}"
    helps = (
        f"from_module(lambda x: {line}, ..., {kind!r}) plays as it does"
        if always
        else "give a function of what it plays, as in from_module(lambda x: torch.tanh(net(x)[0]), ..., 'mean')"
    )
    raise VictimError(
        f"{_owner(net)}.{name} plays {own} where the victim, which reads the output as kind={victim.kind!r}, would "
        f"play {_shown(mine[row])}: {helps}; if the agent does play what forward returns, from_module(lambda x: "
        "net(x), ...) is taken as it is"
    )


def _squashed(victim: Any, params: Tensor) -> dict[str | None, Tensor]:
    """The actions of a victim that squashes, by how it does; none of a victim whose output is no action."""
    squash, found = victim.squash, dict[str | None, Tensor]()
    if victim.kind in ("mean", "gaussian"):
        for victim.squash in _SQUASHES:
            found[victim.squash] = _of(victim, params)
    victim.squash = squash
    return found


def _likeliest(played: Sequence[Tensor], ways: dict[str | None, Tensor], victim: Any) -> str | None:
    """Which of several ``ways`` to act agrees best with what is played: ``"as it is"`` for the first, None for none.

    Without a squash the action is kept unless another one is twice as near.
    """
    far = {}
    for squash, mine in ways.items():
        apart = [float((draws.median(0).values - mine).abs().mean()) for draws in played if _agree(draws, mine, victim)]
        if apart:
            far[squash] = min(apart)
    if not far:
        return None
    best = min(far, key=lambda squash: far[squash])
    if best == "scale" and victim.kind == "gaussian" and far.get("tanh", np.inf) < 2 * far[best]:
        best = "tanh"  # a mean that is small is nearly its tanh, and what is drawn beside a log-std comes before it
    return "as it is" if best is None or (None in far and far[best] > far[None] / 2) else best


def _contradicts(victim: Any, params: Tensor, fixed: Sequence[Played]) -> bool:
    """Whether what is always played cannot be the victim's: another choice, or its mean squashed and then scaled."""
    if not isinstance(victim.action_space, spaces.Box):
        return any(bool((draws[0] != draws[0, :1]).any()) for _, _, draws in fixed)
    if victim.kind not in ("mean", "gaussian"):
        return False
    flat = torch.tanh(victim.mode(params).reshape(len(params), -1).double().cpu())
    # what it always plays would be the squashed mean, times a factor and plus an offset
    centred = flat - flat.mean(0)
    for _, _, draws in fixed:
        wanted = draws[0] - draws[0].mean(0)
        slope = (centred * wanted).sum(0) / centred.square().sum(0).clamp_min(1e-12)
        if bool((slope.abs() > 1e-2).all()) and torch.allclose(slope * centred, wanted, rtol=1e-3, atol=1e-4):
            return True
    return False


def _owner(net: Any) -> str:
    return str(getattr(net, "original_name", type(net).__name__))  # of a program its class


def _shown(action: Tensor) -> str:
    return str([float(f"{number:.4g}") for number in action.tolist()])


def _of(victim: Any, params: Tensor) -> Tensor:
    """The victim's actions ``[B, D]`` in float64, as an environment with bounds takes them."""
    return _taken(victim.mode(params).reshape(len(params), -1).double().cpu(), victim)


def _taken(actions: Tensor, victim: Victim) -> Tensor:
    box = victim.action_space
    if not isinstance(box, spaces.Box):
        return actions
    low, high = (torch.as_tensor(end.reshape(-1), dtype=torch.float64) for end in (box.low, box.high))
    return actions.clamp(low, high)


def _agree(draws: Tensor, mine: Tensor, victim: Victim) -> bool:
    """Whether actions may be those that were drawn; ``draws`` of a single one are what is always played."""
    if not isinstance(victim.action_space, spaces.Box):
        if len(draws) == 1:
            return float((draws[0] == mine).double().mean()) >= _OFTEN
        if bool(draws.max() < mine.min()) or bool(draws.min() > mine.max()):  # numbered from elsewhere
            return False
        often = draws.mode(0).values
        surely = ((draws == often).double().mean(0) >= _OFTEN) & (often != mine)
        return int(surely.sum()) <= 1
    least, most = draws.amin(0), draws.amax(0)
    slack = 1e-2 * (1 + mine.abs())  # of half precision
    inside = (mine >= least - slack) & (mine <= most + slack)
    return float(inside.double().mean()) >= (1.0 if len(draws) == 1 else 0.97)


def _played(net: Any, name: str, obs: Any, victim: Victim) -> Iterator[Played]:
    """What a method plays: each part of its answer that may be an action; nothing where it takes something else."""
    method = getattr(net, name)
    call = _callable(method, obs)
    if call is None:
        return

    def parts(seed: int) -> dict[int | None, Tensor]:
        return dict(_parts(call(seed), victim))

    # asked with two seeds: where both answers are the same it does not sample, elsewhere it is asked often
    first, second = parts(0), parts(1)
    for part, answer in first.items():
        again = second.get(part)
        if again is None:
            continue
        if nearly(answer, again):
            yield name, part, answer[None]
        else:
            drawn = [each for seed in range(2, _DRAWS) if (each := parts(seed).get(part)) is not None]
            yield name, part, torch.stack([answer, again, *drawn])


def flags_of(function: Callable[..., Any]) -> dict[str, bool | float]:
    """The arguments of a function by which it plays its most likely action, with what they are then."""
    try:
        known = inspect.signature(getattr(function, "forward", function)).parameters
    except (TypeError, ValueError):
        return {}
    return {name: value for name, value in _FLAGS.items() if name in known}


def _callable(method: Callable[..., Any], obs: Any) -> Callable[[int], Any] | None:
    """The method at ``obs``, by a seed: on tensors or arrays, of all rows or of each; None where it takes none."""
    flags = flags_of(method)

    def by_rows(inputs: Any) -> Any:
        rows = [select(inputs, np.array([i])) for i in range(_ROWS)]
        return joined_answers([batched(method(_single(row), **flags)) for row in rows])

    # all rows as tensors, one by one, and the same of arrays: the first form that it takes
    for given in (obs, to_arrays(obs)):
        for run in (lambda inputs: method(inputs, **flags), by_rows):

            def call(seed: int, run: Callable[[Any], Any] = run, given: Any = given) -> Any:
                seed_all(seed)
                return run(given)

            try:
                call(0)
            except Exception:  # of a method that takes something else
                continue
            return call
    return None


def _single(row: Any) -> Any:
    return {key: value[0] for key, value in row.items()} if isinstance(row, dict) else row[0]


def _parts(answer: object, victim: Victim) -> Iterator[tuple[int | None, Tensor]]:
    """Parts of an answer that have the form of actions ``[B, D]``, in float64, and their numbers in a tuple."""
    space = victim.action_space
    width = 1 if isinstance(space, spaces.Discrete) else int(np.prod(space.shape or ()))
    for number, part in enumerate(answer) if isinstance(answer, (tuple, list)) else [(None, answer)]:
        if not isinstance(part, (Tensor, np.ndarray)):
            continue
        found = torch.as_tensor(part).detach().cpu()
        # as many numbers as an action has, in every row
        if found.numel() != _ROWS * width or len(found) != _ROWS or found.dtype.is_complex:
            continue
        actions = found.reshape(_ROWS, width).double()
        if isinstance(space, spaces.Box) or bool((actions == actions.floor()).all()):
            yield number, _taken(actions, victim)


def _uses_scale(net: Any, obs: Any) -> bool:
    """Whether what ``forward`` returns depends on ``action_scale``."""
    before, scale = ask(net, obs), net.action_scale
    net.action_scale = scale * 2
    try:
        after = ask(net, obs)
    finally:
        net.action_scale = scale
    return before is None or not nearly(before, after)
