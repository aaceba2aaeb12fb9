"""What can be read of an SB3 ``.zip`` without unpickling: spaces, arguments and the class from plain text, weights.

SB3 writes ``data`` as JSON. What JSON cannot hold is a pickle under ``:serialized:``, with the first level of its
attributes as text beside it (``_shape``, ``low``, ``n``); the pickle is never looked at. Values in that text only ever
pick from the lists below, so a hostile file can at worst describe a wrong network, whose weights then do not fit. Sizes
in it are compared with the weights before anything of that size is made.
"""

from __future__ import annotations

import io
import math
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import AdvWrappersError, CardError, TrustError, VictimError
from adv_wrappers.networks.operations.lookup import OPERATIONS
from adv_wrappers.networks.operations.operation import Elementwise
from adv_wrappers.utils.checks import finite_float, is_integer, number
from adv_wrappers.utils.reading import MAX_BYTES, check_zip, decoding, members, most_numbers, parse_json, read_bytes
from adv_wrappers.victims.sb3.networks import MASKED

_ACTIVATIONS = {  # those of torch that are known here, by the names of their classes
    kind.__name__: kind for kind, each in OPERATIONS.items() if issubclass(each, Elementwise) and kind in each.layers
} | {"Identity": nn.Identity}
_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")
_PLAIN = (
    "net_arch", "n_critics", "n_quantiles", "share_features_extractor", "normalize_images", "features_extractor_kwargs",
    "lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm", "lstm_kwargs", "batch_norm",
    "batch_norm_eps",
)  # fmt: skip
_IGNORED = (
    "optimizer_class", "optimizer_kwargs", "ortho_init", "log_std_init", "use_sde", "batch_norm_momentum",
    "renorm_warmup_steps",
)  # fmt: skip
_OF_GSDE = ("full_std", "use_expln", "squash_output", "clip_mean")  # without it they change nothing
_POLICIES = {
    "RecurrentPPO": ("sb3_contrib.common.recurrent.policies", "RecurrentActorCriticPolicy", "lstm_actor."),
    "QRDQN": ("sb3_contrib.qrdqn.policies", "QRDQNPolicy", "quantile_net."),
    "DQN": ("stable_baselines3.dqn.policies", "DQNPolicy", "q_net."),
    "SAC": ("stable_baselines3.sac.policies", "SACPolicy", "actor.log_std"),
    "TD3": ("stable_baselines3.td3.policies", "TD3Policy", "actor.mu."),
    "PPO": ("stable_baselines3.common.policies", "ActorCriticPolicy", "action_net."),
    "A2C": ("stable_baselines3.common.policies", "ActorCriticPolicy", "action_net."),
    "TRPO": ("stable_baselines3.common.policies", "ActorCriticPolicy", "action_net."),
    "TQC": ("sb3_contrib.tqc.policies", "TQCPolicy", "actor.log_std"),
    "CrossQ": ("sb3_contrib.crossq.policies", "CrossQPolicy", "actor.log_std"),
    "ARS": ("sb3_contrib.ars.policies", "ARSPolicy", "action_net."),
}
OF_CONTRIB = ("QRDQN", "RecurrentPPO", "TRPO", "TQC", "CrossQ", "ARS")  # algorithms that sb3-contrib has
_ON_POLICY = ("RecurrentPPO", "PPO", "A2C", "TRPO", "ARS")
_LAYERS = 1000  # of a network; it takes a second to describe so many


@dataclass
class Contents:
    """A policy in plain form.

    Attributes:
        normalised: whether it was trained behind a ``VecNormalize``.
        known_spaces: those that the plain text says, by the names of the constructor's arguments.
        gamma: the discount factor that it learned with, or None.
        unread: why its pickles have to be run, where the plain text does not say it all.
    """

    algorithm: str
    policy: tuple[str, str]
    weights: dict[str, Tensor]
    normalised: bool
    known_spaces: dict[str, spaces.Space[object]]
    arguments: dict[str, Any]
    gamma: float | None = None
    unread: AdvWrappersError | None = None


def read_zip(path: Path, trust: bool = False, max_bytes: int | None = None) -> Contents:
    """Read ``path`` without running code from it; with ``trust`` as much as can be read so.

    Args:
        trust: return what could be read where pickles would have to be run for the rest, and why.
        max_bytes: what the file and what it unpacks to may take; None is 256 MiB.

    Raises:
        CardError: for a file that is missing, damaged, too large or no model of SB3.
        TrustError: for a pickle with code in it, and where something needed exists only as a pickle.
        VictimError: for MaskablePPO, whose masks are no part of observations.
    """
    stored = members(read_bytes(path, max_bytes), path, ("data", "policy.pth"), max_bytes)
    if len(stored) < 2:
        raise CardError(f"cannot read {path} as a model of Stable-Baselines3: expected data and policy.pth in the zip")
    data = parse_json(stored["data"], f"{path}: data", max_bytes)
    weights = stored_tensors(stored["policy.pth"], f"{path}: policy.pth", max_bytes)
    # the class that the file names, which is not imported
    stated = data.get("policy_class")
    home = str(stated.get("__module__", "")).split(".") if isinstance(stated, dict) else [""]
    if home[0] == "sb3_contrib" and "maskable" in home:
        raise VictimError(f"{path}: {MASKED}")
    with decoding(path):
        return _contents(weights, data, home, path, trust, max_bytes)


def _contents(
    weights: Any, data: dict[str, Any], home: list[str], path: Path, trust: bool, max_bytes: int | None
) -> Contents:
    # one number may be seen as a billion, which costs nothing until it is looked at
    if sum(value.numel() * value.element_size() for value in weights.values()) > (max_bytes or MAX_BYTES):
        raise CardError("policy.pth states more numbers than it holds")
    algorithm = algorithm_of(weights, data)
    if algorithm is None:
        raise CardError(f"no weights of a known policy among {', '.join(list(weights)[:8]):.300}")
    module, name, _ = _POLICIES[algorithm]
    # left by learn() whenever there was a VecNormalize, also one that normalises rewards alone; those with a replay
    # buffer leave it always
    normalised = algorithm in _ON_POLICY and data.get("_last_original_obs") is not None
    found = Contents(algorithm, (module, name), weights, normalised, {}, {}, finite_float(data.get("gamma")))
    # spaces and arguments; what only a pickle says is left to a reader with trust
    try:
        for what in ("observation_space", "action_space"):
            found.known_spaces[what] = _space(data.get(what), path, what.partition("_")[0], most_numbers(max_bytes))
        if home[0] not in ("stable_baselines3", "sb3_contrib"):
            raise _needs_trust(path, f"the policy class (of module {'.'.join(home)!r:.80}, not of Stable-Baselines3)")
        found.arguments = _arguments(data, weights, path, algorithm)
        _check_layers(found.arguments, weights)
    except (TrustError, CardError) as error:
        if not trust:
            raise
        found.unread = error
    return found


def _check_layers(arguments: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Raise :class:`CardError` for more layers than there are weights: each takes time to be made."""
    layers, open_ = 0, [arguments.get(key) for key in _PLAIN]
    # lists in lists, each entry of which is a layer
    while open_:
        item = open_.pop()
        if isinstance(item, (list, dict)):
            layers += len(item)
            open_ += item.values() if isinstance(item, dict) else item
    layers += sum(arguments.get(key, 0) for key in ("n_critics", "n_lstm_layers") if is_integer(arguments.get(key)))
    if layers > min(len(weights), _LAYERS):
        raise CardError(f"expected weights of {layers} layers (at most {_LAYERS}), got {len(weights)} tensors")


def stored_tensors(data: bytes, where: str, max_bytes: int | None = None) -> Any:
    """What ``torch.save`` wrote, without running code of it.

    Args:
        data: the bytes of the file, or of a member of a ``.zip``.
        where: what an error calls it.

    Raises:
        TrustError: for what could only be read by running code.
        CardError: for a damaged file.
    """
    if data.startswith(b"PK"):  # since torch 1.6 a zip as well, which torch unpacks whatever it becomes
        check_zip(data, where, max_bytes)
    with decoding(where):
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            text = f"{where} holds more than weights, and reading it would run code: {error!s:.300}"
            raise TrustError(text) from error


def algorithm_of(weights: dict[str, Tensor], data: dict[str, Any]) -> str | None:
    """The algorithm, from the names of its weights and settings; DDPG reads as TD3, which it is a case of."""
    found = next((a for a, (_, _, start) in _POLICIES.items() if any(k.startswith(start) for k in weights)), None)
    if found == "PPO" and "n_epochs" not in data:
        return "ARS" if "n_delta" in data else "TRPO" if "cg_max_steps" in data else "A2C"
    if found == "SAC" and "top_quantiles_to_drop_per_net" in data:
        return "TQC"
    if found == "SAC" and not any(k.startswith("critic_target.") for k in weights):
        return "CrossQ"
    return found


def _needs_trust(path: Path, what: str) -> TrustError:
    return TrustError(f"{path}: {what} can only be read from a pickle. trust=True does so, and runs code from the file")


def _kwargs(data: dict[str, Any]) -> dict[str, Any]:
    kwargs = data.get("policy_kwargs")
    return {k: v for k, v in kwargs.items() if not k.startswith(":")} if isinstance(kwargs, dict) else {}


def _arguments(data: dict[str, Any], weights: dict[str, Tensor], path: Path, algorithm: str) -> dict[str, Any]:
    """Constructor arguments from ``policy_kwargs``, the rest from the weights."""
    kwargs = _kwargs(data)
    out: dict[str, Any] = {"use_sde": True} if data.get("use_sde") or kwargs.get("use_sde") in (True, "True") else {}
    # what is known is picked from lists, what changes nothing is skipped, and anything else needs the pickle
    for key, value in kwargs.items():
        if key in ("activation_fn", "features_extractor_class"):
            name = str(value).removeprefix("<class '").removesuffix("'>").split(".")
            home = {"activation_fn": "torch", "features_extractor_class": "stable_baselines3"}[key]
            if name[0] != home or name[-1] not in (_ACTIVATIONS if key == "activation_fn" else _EXTRACTORS):
                raise _needs_trust(path, f"policy_kwargs[{key!r:.80}] ({value!s:.80})")
            out[key] = _ACTIVATIONS[name[-1]] if key == "activation_fn" else name[-1]
        elif key in _PLAIN and not isinstance(value, str):
            out[key] = value
        elif key in ("squash_output", "with_bias") and algorithm == "ARS":
            out[key] = value is True
        elif key in _OF_GSDE and isinstance(value, (bool, int, float)):
            out |= {key: value} if "use_sde" in out else {}
        elif key not in _IGNORED and (key, value) != ("sde_net_arch", None):  # of SB3 1.x
            raise _needs_trust(path, f"policy_kwargs[{key!r:.80}] ({value!s:.80})")
    if isinstance(out.get("net_arch"), list) and len(out["net_arch"]) == 1 and isinstance(out["net_arch"][0], dict):
        out["net_arch"] = out["net_arch"][0]  # as SB3 1.x had it
    number("batch_norm_eps", out.get("batch_norm_eps", 1), 0, above=True, error=CardError)
    if algorithm == "ARS":
        linear = "net_arch" not in out and "action_net.2.weight" not in weights  # ARSLinearPolicy, with its defaults
        out = ({"net_arch": [], "squash_output": False} if linear else {}) | out
        for part in ("weight", "bias"):  # before sb3-contrib 1.8 the only layer was no Sequential
            if f"action_net.{part}" in weights:
                weights[f"action_net.0.{part}"] = weights.pop(f"action_net.{part}")
        return out | {"with_bias": "action_net.0.bias" in weights}
    # the extractor that SB3 takes by default, by what its weights are called
    if "features_extractor_class" not in out:
        cnn, several = (any(f"features_extractor.{part}." in k for k in weights) for part in ("cnn", "extractors"))
        space = data.get("observation_space")
        combined = several or (isinstance(space, dict) and "Dict" in str(space.get(":type:")))
        extractor = "CombinedExtractor" if combined else "NatureCNN" if cnn else "FlattenExtractor"
        out["features_extractor_class"] = extractor
    if algorithm == "TD3":  # DDPG's files are TD3's with one critic
        out["n_critics"] = len({k.split(".")[1] for k in weights if k.startswith("critic.qf")})
    return out


def _space(entry: Any, path: Path, what: str, most: int) -> spaces.Space[object]:
    """A space of at most ``most`` elements from the text beside its pickle."""
    kind = str(entry.get(":type:", "")).removesuffix("'>").split(".")[-1] if isinstance(entry, dict) else ""
    try:
        if kind == "Discrete":
            return spaces.Discrete(int(entry["n"]), start=int(entry.get("start", 0)))
        if kind == "MultiDiscrete":
            nvec = _whole(entry["nvec"])
            return spaces.MultiDiscrete(nvec, start=_whole(entry.get("start", [0] * len(nvec))))
        if kind == "MultiBinary":
            return spaces.MultiBinary(_few(int(entry["n"]), most))
        if kind == "Box":
            shape = _whole(entry.get("_shape", entry.get("shape")))
            return _box(str(entry["low"]), str(entry["high"]), tuple(shape), str(entry["dtype"]), most)
        if kind == "Dict":
            return _dict(str(entry["spaces"]), most)
    except CardError as error:
        raise CardError(f"the {what} space {kind}: {error}") from error
    except Exception as error:  # a text may be anything
        raise _needs_trust(path, f"the {what} space {kind:.40} ({error!s:.200})") from error
    raise _needs_trust(path, f"the {what} space {kind or repr(entry):.80}")


def _few(count: int, most: int) -> int:
    if count > most:
        raise CardError(f"{count} elements, at most {most} are read (max_bytes= of load_victim raises that)")
    return count


def _whole(value: Any) -> list[int]:
    return [int(token) for token in re.findall(r"-?\d+", str(value))]


def _box(low: str, high: str, shape: tuple[int, ...], dtype: str, most: int) -> spaces.Box:
    number, count = np.dtype(dtype), _few(math.prod(shape), most)
    if number.kind not in "fiu":
        raise ValueError(f"dtype {dtype}")
    if any(size < 1 for size in shape):
        raise ValueError(f"shape {shape}")
    bounds = []
    for text in (low, high):
        values = [float(token) for token in re.findall(r"[^\s\[\],]+", text) if token != "..."]
        # numpy leaves out the middle of large arrays
        whole = np.full(count, values[0]) if len(set(values)) == 1 else np.array(values, np.float64)
        bounds.append(whole.reshape(shape).astype(number))
    return spaces.Box(bounds[0], bounds[1], shape, number.type)


_LEAF = re.compile(
    r"'([^']*)'(?:: |, )(Box|Discrete|MultiDiscrete|MultiBinary)\(((?:[^()]|\([^()]*\))*)\)"  # a key, and its space
)


def _dict(text: str, most: int) -> spaces.Dict:
    """A dictionary such as ``{'a': Box(-1.0, 1.0, (3,), float32), 'b': Discrete(3)}``.

    Gymnasium before 1.0, and gym, print an ``OrderedDict`` of that, or before Python 3.12 of a list of pairs.
    """
    leaves: dict[str, spaces.Space[object]] = {}
    if re.sub(r"OrderedDict|[\[\](){}, ]", "", _LEAF.sub("", text)):
        raise ValueError(f"cannot read {text!r:.60}")
    # leaf by leaf, each within what is left of the limit
    for key, kind, told in _LEAF.findall(text):
        first = told.split(", start=")[0]  # which SB3 ignores
        if kind == "Box":
            low, high, shape, dtype = re.fullmatch(r"([^,]+), ([^,]+), (\([^()]*\)), (\w+)", told).groups()  # type: ignore[union-attr]
            leaf: spaces.Space[object] = _box(low, high, tuple(_whole(shape)), dtype, most)
            most -= math.prod(_whole(shape))
        elif kind == "MultiDiscrete":
            if not re.fullmatch(r"\[[\d\s]+\]", first):  # no more than one axis
                raise ValueError(f"cannot read {told!r:.60}")
            leaf = spaces.MultiDiscrete(_whole(first))
            _few(sum(_whole(first)), most)
        else:
            leaf = {"Discrete": spaces.Discrete, "MultiBinary": spaces.MultiBinary}[kind](_few(int(first), most))
        if key in leaves or len(leaves) == _LAYERS:
            raise ValueError(f"more than {_LAYERS} spaces, or {key!r:.60} twice")
        leaves[key] = leaf
    return spaces.Dict(list(leaves.items()))  # as pairs: their order is that of the features, and a dict is sorted
