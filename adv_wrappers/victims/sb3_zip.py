"""What can be read of an SB3 ``.zip`` without unpickling: spaces, arguments and the class from plain text, weights.

SB3 writes ``data`` as JSON. What JSON cannot hold is a pickle under ``:serialized:``, with the first level of its
attributes as text beside it (``_shape``, ``low``, ``n``); the pickle is never looked at. Values in that text only ever
pick from the lists below, so a hostile file can at worst describe a wrong network, whose weights then do not fit.
"""

from __future__ import annotations

import ast
import io
import json
import pickle
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.errors import CardError, TrustError

_ACTIVATIONS = {
    c.__name__: c
    for c in (nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Identity)
}
_EXTRACTORS = ("FlattenExtractor", "NatureCNN", "CombinedExtractor")
_PLAIN = (
    "net_arch", "n_critics", "n_quantiles", "share_features_extractor", "normalize_images", "features_extractor_kwargs",
    "lstm_hidden_size", "n_lstm_layers", "shared_lstm", "enable_critic_lstm", "lstm_kwargs",
)  # fmt: skip
_IGNORED = (
    "optimizer_class", "optimizer_kwargs", "ortho_init", "log_std_init", "full_std", "use_expln", "squash_output",
    "clip_mean", "use_sde",
)  # fmt: skip
_POLICIES = {
    "RecurrentPPO": ("sb3_contrib.common.recurrent.policies", "RecurrentActorCriticPolicy", "lstm_actor."),
    "QRDQN": ("sb3_contrib.qrdqn.policies", "QRDQNPolicy", "quantile_net."),
    "DQN": ("stable_baselines3.dqn.policies", "DQNPolicy", "q_net."),
    "SAC": ("stable_baselines3.sac.policies", "SACPolicy", "actor.latent_pi."),
    "TD3": ("stable_baselines3.td3.policies", "TD3Policy", "actor.mu."),
    "PPO": ("stable_baselines3.common.policies", "ActorCriticPolicy", "action_net."),
}
_NUMBER = r"[-+]?(?:inf|nan|\d+\.?\d*(?:e[-+]?\d+)?)"
_LEAF = re.compile(
    rf"'([^']+)': (?:Box\((\[[^()]*?\]|{_NUMBER}), (\[[^()]*?\]|{_NUMBER}), \(([\d, ]*)\), (\w+)\)"
    r"|Discrete\((\d+)\)|MultiBinary\((\d+)\))"
)


@dataclass
class Contents:
    """A policy in plain form."""

    algorithm: str
    policy: tuple[str, str]
    observation_space: Any
    action_space: Any
    arguments: dict[str, Any]
    weights: dict[str, Tensor]


def read_zip(path: Path, trust: bool = False) -> Contents:
    """Read ``path``; with ``trust`` only as far as is needed to know the algorithm.

    Raises:
        CardError: for a file that is missing, damaged or no model of SB3.
        TrustError: for a pickle with code in it, and where something needed exists only as a pickle.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data, stored = json.loads(archive.read("data")), archive.read("policy.pth")
    except (OSError, KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise CardError(f"cannot read {path} as a model of Stable-Baselines3: {error}") from error
    if not isinstance(data, dict):
        raise CardError(f"{path}: expected a JSON object in 'data', got {type(data).__name__}")
    weights = stored_tensors(stored, f"{path}: policy.pth")
    named = isinstance(weights, dict) and all(isinstance(name, str) for name in weights)
    if not named or not all(isinstance(value, Tensor) for value in weights.values()):
        raise CardError(f"{path}: policy.pth must hold a dictionary of tensors")
    algorithm = algorithm_of(weights, data)
    if algorithm is None:
        raise CardError(f"{path}: no weights of a known policy among {', '.join(list(weights)[:8])}")
    module, name, _ = _POLICIES["PPO" if algorithm == "A2C" else algorithm]
    if trust:
        return Contents(algorithm, (module, name), None, None, {}, {})
    stated = data.get("policy_class")
    home = str(stated.get("__module__", "")) if isinstance(stated, dict) else ""
    if home.split(".")[0] not in ("stable_baselines3", "sb3_contrib"):
        raise _needs_trust(path, f"the policy class (of module {home!r}, not of Stable-Baselines3)")
    if data.get("use_sde") or _kwargs(data).get("use_sde") in (True, "True"):
        raise CardError(f"{path}: no victim for state-dependent exploration (gSDE)")
    observed, acted = (_space(data.get(f"{what}_space"), path, what) for what in ("observation", "action"))
    return Contents(algorithm, (module, name), observed, acted, _arguments(data, weights, path, algorithm), weights)


def stored_tensors(data: bytes, where: str) -> Any:
    """What ``torch.save`` wrote, without running code of it.

    Args:
        data: the bytes of the file, or of a member of a ``.zip``.
        where: what an error calls it.

    Raises:
        TrustError: for what could only be read by running code.
        CardError: for a damaged file.
    """
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TrustError(f"{where} holds more than weights, and reading it would run code: {error}") from error
    except Exception as error:  # torch's reader meets damaged files with errors of any kind
        raise CardError(f"{where} is damaged: {error}") from error


def algorithm_of(weights: dict[str, Tensor], data: dict[str, Any]) -> str | None:
    """The algorithm, from the names of its weights; DDPG reads as TD3, which it is a case of."""
    found = next((a for a, (_, _, start) in _POLICIES.items() if any(k.startswith(start) for k in weights)), None)
    return "A2C" if found == "PPO" and "n_epochs" not in data else found


def _needs_trust(path: Path, what: str) -> TrustError:
    return TrustError(f"{path}: {what} can only be read from a pickle. trust=True does so, and runs code from the file")


def _kwargs(data: dict[str, Any]) -> dict[str, Any]:
    kwargs = data.get("policy_kwargs")
    return {k: v for k, v in kwargs.items() if not k.startswith(":")} if isinstance(kwargs, dict) else {}


def _arguments(data: dict[str, Any], weights: dict[str, Tensor], path: Path, algorithm: str) -> dict[str, Any]:
    """Constructor arguments from ``policy_kwargs``, the rest from the weights."""
    out: dict[str, Any] = {}
    for key, value in _kwargs(data).items():
        if key in ("activation_fn", "features_extractor_class"):
            name = str(value).removeprefix("<class '").removesuffix("'>").split(".")
            home = {"activation_fn": "torch", "features_extractor_class": "stable_baselines3"}[key]
            if name[0] != home or name[-1] not in (_ACTIVATIONS if key == "activation_fn" else _EXTRACTORS):
                raise _needs_trust(path, f"policy_kwargs[{key!r}] ({value})")
            out[key] = _ACTIVATIONS[name[-1]] if key == "activation_fn" else name[-1]
        elif key in _PLAIN and not isinstance(value, str):
            out[key] = value
        elif key not in _IGNORED:
            raise _needs_trust(path, f"policy_kwargs[{key!r}] ({value})")
    if "features_extractor_class" not in out:
        cnn, several = (any(f"features_extractor.{part}." in k for k in weights) for part in ("cnn", "extractors"))
        combined = several or "Dict" in str((data.get("observation_space") or {}).get(":type:"))
        extractor = "CombinedExtractor" if combined else "NatureCNN" if cnn else "FlattenExtractor"
        out["features_extractor_class"] = extractor
    if algorithm == "TD3":  # DDPG's files are TD3's with one critic
        out["n_critics"] = len({k.split(".")[1] for k in weights if k.startswith("critic.qf")})
    return out


def _space(entry: Any, path: Path, what: str) -> spaces.Space[Any]:
    """A space from the text beside its pickle."""
    kind = str(entry.get(":type:", "")).removesuffix("'>").split(".")[-1] if isinstance(entry, dict) else ""
    try:
        if kind == "Discrete":
            return spaces.Discrete(int(entry["n"]), start=int(entry.get("start", 0)))
        if kind == "MultiDiscrete":
            nvec = _whole(entry["nvec"])
            return spaces.MultiDiscrete(nvec, start=_whole(entry.get("start", [0] * len(nvec))))
        if kind == "MultiBinary":
            return spaces.MultiBinary(int(entry["n"]))
        if kind == "Box":
            shape = entry.get("_shape", entry.get("shape"))
            return _box(entry["low"], entry["high"], tuple(ast.literal_eval(str(shape))), str(entry["dtype"]))
        if kind == "Dict":
            return _dict(str(entry["spaces"]))
    except (LookupError, ValueError, TypeError, SyntaxError, AssertionError, OverflowError, MemoryError) as error:
        raise _needs_trust(path, f"the {what} space {kind} ({error})") from error
    raise _needs_trust(path, f"the {what} space {kind or repr(entry)}")


def _whole(text: Any) -> list[int]:
    return [int(token) for token in re.findall(r"-?\d+", str(text))]


def _box(low: Any, high: Any, shape: tuple[int, ...], dtype: str) -> spaces.Box:
    number = np.dtype(dtype)
    if number.kind not in "fiu":
        raise ValueError(f"dtype {dtype}")
    bounds = []
    for text in (str(low), str(high)):
        values = [float(token) for token in re.findall(r"[^\s\[\],]+", text) if token != "..."]
        if len(set(values)) == 1:  # numpy leaves out the middle of large arrays
            values = values[:1] * int(np.prod(shape))
        bounds.append(np.array(values, np.float64).reshape(shape).astype(number))
    return spaces.Box(bounds[0], bounds[1], shape, number.type)


def _dict(text: str) -> spaces.Dict:
    leaves: dict[str, spaces.Space[Any]] = {}
    end = 1
    for match in _LEAF.finditer(text):
        if text[end : match.start()].strip(", ") or not text.startswith("{"):
            break
        key, low, high, shape, dtype, n, bits = match.groups()
        if low is not None:
            leaves[key] = _box(low, high, tuple(_whole(shape)), dtype)
        else:
            leaves[key] = spaces.Discrete(int(n)) if n else spaces.MultiBinary(int(bits))
        end = match.end()
    if text[end:].strip() != "}":
        raise ValueError(f"cannot read {text[end : end + 60]!r}")
    return spaces.Dict(list(leaves.items()))  # as pairs: their order is that of the features, and a dict is sorted
