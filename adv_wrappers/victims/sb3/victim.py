"""Victims from Stable-Baselines3 and sb3-contrib.

Of DQN, PPO, A2C, SAC, TD3 and DDPG; and of QR-DQN, TQC, CrossQ, ARS, TRPO and RecurrentPPO.

SB3 is imported only where a file is read; a policy is recognised by the names of its classes.
"""

from __future__ import annotations

import copy
import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import torch
from gymnasium import spaces
from torch import Tensor
from torch.overrides import TorchFunctionMode

from adv_wrappers.core.spaces import from_zero
from adv_wrappers.core.threat import fits, turned_or_stacked
from adv_wrappers.errors import (
    AdvWrappersError,
    CardError,
    TrustError,
    VictimError,
)
from adv_wrappers.networks.policy_layers import Normalize, dtype_to_normalize
from adv_wrappers.victims.modules.module import ModuleVictim
from adv_wrappers.victims.sb3.networks import is_image_space, networks_of, statistics_of
from adv_wrappers.victims.sb3.vecnormalize import read_statistics, statistics_beside
from adv_wrappers.victims.sb3.zip_file import OF_CONTRIB, Contents, read_zip
from adv_wrappers.victims.victim import Select

Stats = str | Path | Literal[False] | None  # a file of a VecNormalize's statistics; False for none at all


def from_sb3(
    model_or_policy: Any,
    *,
    vec_normalize: Any = None,
    stats: Stats = None,
    select: Select = "mode",
    device: torch.device | str | None = None,
    live: bool = False,
    ref: str | None = None,
    observation_space: spaces.Space[object] | None = None,
    action_space: spaces.Space[object] | None = None,
) -> Sb3Victim:
    """A victim from an SB3 model or policy; observations enter as the environment gives them, before ``VecNormalize``.

    Images enter channels first, in 0..255, as in the model's own observation space. Discrete actions have kind ``q``
    (DQN, QR-DQN) or ``logits``; PPO, A2C and TRPO on a Box ``gaussian``, clipped to the box when acting; SAC, TQC and
    CrossQ ``gaussian`` before their tanh; TD3, DDPG and ARS ``mean`` in [-1, 1] (a linear ARS: clipped to the box).
    Native actions are in the units of the action box; choices are numbered from 0, whatever ``start`` is, as SB3 sends
    them. Critics of continuous actions are the least of the agent's own,
    TQC's the mean over all quantiles. CrossQ is played with the running statistics of its batch renormalisation.

    Args:
        model_or_policy: an algorithm, or its policy.
        vec_normalize: the ``VecNormalize`` that the agent was trained with, whose statistics are frozen here; None
            takes the model's own, if it has one.
        stats: the same as a file, as :func:`load_victim` takes it; False for none, also where the model has one.
        device: None for the policy's own.
        live: follow the policy's weights instead of a copy. A copy computes in float64 where observations lie so far
            from zero that float32 would round them by more than 1e-5 of a standard deviation; a live one in float32.
        observation_space, action_space: of the environment, where they differ from the model's in more than shape.

    Raises:
        VictimError: without SB3, for policies that are not SB3's own in what they compute, for MaskablePPO, whose
            masks are no part of observations, and where spaces or statistics do not fit.
        CardError: for statistics that cannot be read; TrustError: where reading them would run code.

    Warns:
        UserWarning: for a model that was trained behind a ``VecNormalize`` and comes without it, as far as it can be
            seen: those of off-policy algorithms do not tell.
    """
    _sb3("stable_baselines3.common.policies")
    policy = getattr(model_or_policy, "policy", model_or_policy)
    vec_normalize = _normalizer(vec_normalize, stats)
    if vec_normalize is None and hasattr(model_or_policy, "get_vec_normalize_env"):
        vec_normalize = model_or_policy.get_vec_normalize_env()
        # left by learn() wherever there was one; off-policy algorithms leave it always
        off_policy = hasattr(model_or_policy, "replay_buffer")
        left = getattr(model_or_policy, "_last_original_obs", None) is not None
        if vec_normalize is None and left and not off_policy:
            _warn_of_missing("this model", 3)
    # the networks of the policy, behind its normaliser
    networks = networks_of(policy)
    statistics, raw = statistics_of(vec_normalize or None, policy.observation_space)
    nets = networks(policy, statistics, live)
    # spaces of the environment, and a dtype in which its observations keep their digits
    observed, acted = from_zero(observation_space or raw), from_zero(action_space or policy.action_space)
    precise = not live and any(dtype_to_normalize(mean, std) == torch.float64 for mean, std, _ in statistics.values())
    dtype = torch.float64 if precise else torch.float32
    where = device or policy.device
    victim = Sb3Victim(observed, acted, nets.kind, select=select, device=where, dtype=dtype, ref=ref)
    if observed.shape != policy.observation_space.shape:
        raise VictimError(
            f"expected an observation_space of the shape of the policy's, {policy.observation_space}, got {observed}"
            f"{turned_or_stacked(policy.observation_space, observed)}"
        )
    fits(victim, policy.observation_space, policy.action_space)
    if live:
        for layer in (layer for net in nets for layer in net.modules()):
            if isinstance(layer, Normalize):  # the statistics are a copy, and only they are cast
                layer.to(device=victim.device, dtype=dtype)
    else:  # together, so that what they share stays shared; and not the policy, whose optimizer would come along
        nets = copy.deepcopy(nets)
    victim.take(nets, live)
    # an attacker's unit: the normaliser's divisor, and 255 for images that the policy divides itself
    leaves = policy.observation_space.spaces if isinstance(observed, spaces.Dict) else {None: policy.observation_space}
    units = {key: unit for key, (_, unit, _) in statistics.items()}
    for key, leaf in leaves.items():
        if key not in units and policy.normalize_images and is_image_space(leaf):
            units[key] = torch.full(leaf.shape, 255.0)
    units = {key: unit.to(victim.device) for key, unit in units.items()}
    victim.scale = units.pop(None, None)
    victim.scales = cast(dict[str, Tensor], units)
    return victim


def load_sb3(
    path: str | Path,
    *,
    trust: bool = False,
    device: torch.device | str = "cpu",
    vec_normalize: Any = None,
    stats: Stats = None,
    select: Select = "mode",
    max_bytes: int | None = None,
    ref: str | None = None,
) -> Sb3Victim:
    """The victim in an SB3 ``.zip``.

    Without ``trust`` nothing in the file is unpickled: spaces and arguments are read from the plain text beside the
    pickles, weights with ``weights_only=True``, and the statistics of ``VecNormalize`` by a reader that makes no
    objects.

    Args:
        trust: run the pickles of a file whose plain text does not say it all, such as one with a network of one's own.
        vec_normalize: the ``VecNormalize`` that the agent was trained with, or a file as ``stats``.
        stats: the file of its statistics; None looks beside the zip, where SB3's callbacks, rl-zoo3 and tutorials
            write it (``NAME_vecnormalize.pkl``, ``vecnormalize.pkl``, ...), and False takes none.

    Raises:
        CardError: for a file that is missing, damaged, too large, or holds weights of another network.
        TrustError: where something needed exists only as a pickle. ``trust=True`` runs whatever code the file holds.

    Warns:
        UserWarning: if the agent was trained behind a ``VecNormalize`` and no statistics were given or found.
    """
    path = Path(path)
    contents = read_zip(path, trust, max_bytes)
    # statistics: those given, or those of a file beside the zip
    if isinstance(vec_normalize, (str, Path)):
        vec_normalize, stats = None, vec_normalize if stats is None else stats
    beside = statistics_beside(path) if vec_normalize is None and stats is None else None
    stats = stats if beside is None else beside
    normalizer = _normalizer(vec_normalize, stats, trust, max_bytes)
    if normalizer is None and contents.normalised:
        _warn_of_missing(str(path), 4, f" (looked for {path.stem}_vecnormalize.pkl, vecnormalize.pkl and the like)")
    # without running anything from the file; with trust also what can only be unpickled
    try:
        if contents.unread is not None:
            raise contents.unread
        policy = _rebuild(contents, str(path))
    except (TrustError, CardError) as error:
        if not trust:
            raise
        policy = _unpickle(contents, path, device, error)
    made = functools.partial(from_sb3, policy, select=select, device=device, ref=ref or f"sb3:{path}")
    try:
        victim = made(vec_normalize=normalizer)
    except VictimError as error:
        if beside is None:
            raise
        warnings.warn(
            f"{beside} is not used, since it is of another agent than {path}: {error}. {_HOW_TO_SAY}",
            UserWarning,
            stacklevel=3,
        )
        victim = made(vec_normalize=None)
    # how it learned, for a training that goes on from here
    name = contents.algorithm.replace("RecurrentPPO", "recurrent-ppo").lower()
    rewards = {} if normalizer or contents.normalised else {"rewards": "raw"}  # else perhaps normalised, too
    victim.learned = {"algorithm": name, "settings": {"gamma": contents.gamma}, **rewards}
    return victim


def _normalizer(given: Any, stats: Stats, trust: bool = False, max_bytes: int | None = None) -> Any:
    """The normaliser from either argument: None where neither is given, False for none at all."""
    if given is not None and stats is not None:
        raise VictimError("give vec_normalize= or stats=, not both")
    if isinstance(stats, (str, Path)):
        return read_statistics(stats, trust=trust, max_bytes=max_bytes)
    if stats is not None and stats is not False:
        raise VictimError(f"stats must be the path of a file, False or None, got {stats!r:.80}")
    return stats if given is None else given


_HOW_TO_SAY = (
    "Give stats=FILE, or sb3:FILE.zip?stats=none (in Python stats=False) where it did not normalise observations"
)


def _warn_of_missing(what: str, level: int, looked: str = "") -> None:
    warnings.warn(
        f"{what} was trained behind a VecNormalize, and its statistics are not there{looked}: if it normalised "
        f"observations, the victim plays on other observations than it learned from. {_HOW_TO_SAY}",
        UserWarning,
        stacklevel=level,
    )


class Sb3Victim(ModuleVictim):
    """A victim around the networks of an SB3 policy; made by :func:`from_sb3`.

    Attributes:
        learned: what its file says of how it learned, as the ``training`` of a card; empty without a file.
    """

    learned: Mapping[str, Any] = {}
    from_zero = True
    squash = ""
    integers = False


def _sb3(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise VictimError(
            f"this needs {module.split('.')[0].replace('_', '-')}, which is not installed: {error}"
        ) from error


class _Weightless(TorchFunctionMode):
    """Under it and ``torch.device("meta")`` layers have shapes and no memory, whatever device they are moved to."""

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if function is Tensor.to and args[0].is_meta:
            return args[0]
        if function is Tensor.__bool__ and args[0].is_meta:  # a distribution checks its parameters when it is made
            return True
        return function(*args, **(kwargs or {}))


_UNUSED = 0.0  # a rate or a range of trainings


def _unpickle(contents: Contents, path: Path, device: torch.device | str, why: AdvWrappersError) -> Any:
    """The policy as SB3 loads it, by running the pickles of the file: all but those of what is known or not needed."""
    name = contents.algorithm
    kind = getattr(_sb3("sb3_contrib" if name in OF_CONTRIB else "stable_baselines3"), name)
    schedules = dict.fromkeys(("learning_rate", "clip_range", "lr_schedule", "exploration_schedule"), _UNUSED)
    try:
        return kind.load(path, device=device, custom_objects={**schedules, **contents.known_spaces}).policy
    except Exception as error:  # whatever the code of a file raises
        needs = ""
        if isinstance(error, ModuleNotFoundError):
            needs = f". Install {error.name}, or save the agent anew where it can be loaded, with the newest releases"
        raise CardError(
            f"{why!s:.300}. Running the pickles in {path} failed: {type(error).__name__}: {error!s:.300}{needs}"
        ) from error


def _rebuild(contents: Contents, where: str) -> Any:
    """A policy of SB3's own class around the file's weights: it takes no memory before they are known to fit."""
    # SB3's own classes by the names that the file's text has
    module, name = contents.policy
    layers = _sb3("stable_baselines3.common.torch_layers")
    arguments = dict(contents.arguments)
    if "features_extractor_class" in arguments:
        arguments["features_extractor_class"] = getattr(layers, arguments["features_extractor_class"])
    if name != "ARSPolicy":  # which has no optimizer
        arguments["lr_schedule"] = float
    kind = getattr(_sb3(module), name)
    about = f"those of {name} with {contents.arguments!s:.300}"
    try:
        # on the device meta there is no memory, so sizes from the file cost nothing until its weights are known to fit
        with torch.random.fork_rng(devices=[]), torch.device("meta"), _Weightless():
            policy = kind(**contents.known_spaces, **arguments)
        expected = policy.state_dict()
        for key, value in contents.weights.items():
            if key in expected and value.shape != expected[key].shape:
                shapes = f"{tuple(expected[key].shape)}, got {tuple(value.shape)}"
                raise CardError(f"{where}: the weights are not {about}: expected {key} of shape {shapes}")
        weights = {
            key: value.to(expected[key].dtype) if key in expected else value for key, value in contents.weights.items()
        }
        _, extra = policy.load_state_dict(weights, strict=False, assign=True)
    except CardError:
        raise
    except Exception as error:  # arguments from a file may raise errors of any kind
        raise CardError(f"{where}: the weights are not {about}: {error!s:.300}") from error
    # files of SB3 < 1.8 name a shared extractor once, so what is missing is what has no values
    missing = [key for key, value in policy.state_dict().items() if value.is_meta]
    if missing or extra:
        raise CardError(f"{where}: expected weights {missing!s:.300}, got {extra!s:.300} instead")
    if not all(torch.isfinite(value).all() for value in contents.weights.values()):
        raise CardError(f"{where}: weights that are not finite")
    return policy
