"""Checkpoints of rsl_rl and rl_games, which train the policies of robots in Isaac Lab, mjlab and legged_gym.

A checkpoint holds weights. What their names and shapes say of the network is taken from them; its activation, and
whether actions are clipped, stand in the configuration that Isaac Lab and IsaacGymEnvs write near it, or are told.
Nothing in either file is run. Actors are multi-layer perceptrons, of rsl_rl behind an LSTM too, whose actions are
Gaussian with a standard deviation that is the same for all observations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.errors import CardError
from adv_wrappers.networks.policy_layers import AppendLogStd, Normalize
from adv_wrappers.networks.recurrent import RecurrentActor
from adv_wrappers.utils.reading import decoding, read_bytes
from adv_wrappers.victims.modules.module import ModuleVictim, VictimNetworks
from adv_wrappers.victims.sb3.zip_file import stored_tensors
from adv_wrappers.victims.victim import Select

Library = Literal["rsl_rl", "rl_games"]
Weights = dict[str, Tensor]

# the names that both libraries give activations in their configurations
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU, "relu": nn.ReLU, "tanh": nn.Tanh, "selu": nn.SELU, "lrelu": nn.LeakyReLU, "crelu": nn.CELU,
    "sigmoid": nn.Sigmoid, "softplus": nn.Softplus, "gelu": nn.GELU, "swish": nn.SiLU, "mish": nn.Mish,
}  # fmt: skip
_CONFIGURATIONS = ("params/agent.yaml", "agent.yaml", "config.yaml")
_RSL_EPSILON = 1e-2  # what rsl_rl adds to the standard deviation of observations
_RL_GAMES_EPSILON, _RL_GAMES_CLIP = 1e-5, 5.0  # what rl_games adds to their variance, and cuts normalised ones at


def load_checkpoint(
    path: str | Path,
    library: Library,
    *,
    activation: str | None = None,
    select: Select = "mode",
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
    ref: str | None = None,
) -> ModuleVictim:
    """The actor of a checkpoint as a victim, with its normaliser of observations.

    Args:
        path: ``model_1500.pt`` of rsl_rl (2.x to 5.x), or ``nn/NAME.pth`` of rl_games.
        library: which of both wrote it.
        activation: between the layers, by its name in the libraries' configurations (``"elu"``); None reads it in
            ``params/agent.yaml`` or ``config.yaml`` beside the file or beside its folder.
        select, device, dtype, ref: as for :func:`adv_wrappers.from_module`.
        max_bytes: how long the file may be, and how much it may unpack to; None is 256 MiB.

    Raises:
        CardError: for a file that is missing, damaged, too large or of another library, an activation that is nowhere
            said or unknown, and an actor of another kind, such as one with convolutions, a GRU or a Beta distribution.
        TrustError: for a file that could only be read by running code in it.
    """
    path = Path(path)
    scalars = [np._core.multiarray.scalar, np.dtype, type(np.dtype("f4")), type(np.dtype("f8"))]  # type: ignore[attr-defined]
    with torch.serialization.safe_globals(scalars):  # rl_games keeps its best reward as one
        found = stored_tensors(read_bytes(path, max_bytes), str(path), max_bytes)
    # the network by the names and shapes of its weights, and what these do not tell by the configuration
    said = _configuration(path)
    with decoding(f"{path} as a checkpoint of {library}"):
        weights, normalize = (_of_rsl_rl if library == "rsl_rl" else _of_rl_games)(found)
        between = _activation(activation, said)
        net, features = _network(weights, normalize, between)
        most = _clipped_at(said, library)
    victim = ModuleVictim(
        spaces.Box(-np.inf, np.inf, (features,), np.float32),
        spaces.Box(-most, most, weights["log_std"].shape, np.float32),
        "gaussian",
        select=select,
        device=device,
        dtype=torch.float32 if dtype is None else dtype,
        ref=ref,
        scale=None if normalize is None else normalize.std.to(device),
    )
    victim.clip = bool(np.isfinite(most))
    victim.take(VictimNetworks(net, "gaussian"))
    with decoding(f"{path} as a checkpoint of {library}"), torch.no_grad():  # whose layers may not fit together
        zeros = torch.zeros(1, features, device=victim.device, dtype=victim.dtype)
        victim.check_params(victim.params(zeros, victim.initial_state(1)), 1)
    return victim


def _of_rsl_rl(found: Mapping[str, Any]) -> tuple[Weights, Normalize | None]:
    """The weights of an actor by common names, and its normaliser: of 4.x and 5.x, of 3.x, of 2.x."""
    # what each release calls the same weights
    if "actor_state_dict" in found:
        names = {"mlp.": "actor.", "rnn.rnn.": "lstm.", "obs_normalizer.": "normalizer.", "distribution.": ""}
        weights = _renamed(found["actor_state_dict"], names)
    else:
        names = {"actor.": "actor.", "memory_a.rnn.": "lstm.", "actor_obs_normalizer.": "normalizer.", "std": "std"}
        weights = _renamed(found["model_state_dict"], names | {"log_std": "log_std"})
    weights |= {f"normalizer.{name}": value for name, value in found.get("obs_norm_state_dict", {}).items()}
    # a standard deviation is kept as itself or as its logarithm
    if (std := weights.get("std", weights.get("std_param"))) is not None:
        weights["log_std"] = std.log()
    elif "log_std_param" in weights:
        weights["log_std"] = weights["log_std_param"]
    if "normalizer._mean" not in weights:
        return weights, None
    mean, std = weights["normalizer._mean"], weights["normalizer._std"]
    return weights, Normalize(mean.flatten(), std.flatten() + _RSL_EPSILON)


def _of_rl_games(found: Mapping[str, Any]) -> tuple[Weights, Normalize | None]:
    """The same of a checkpoint of rl_games, whose last layer has a name of its own."""
    plain = {name.removeprefix("_orig_mod."): value for name, value in found["model"].items()}  # of a compiled network
    names = {"a2c_network.actor_mlp.": "actor.", "a2c_network.mu.": "mu.", "a2c_network.sigma": "log_std"}
    weights = _renamed(
        plain,
        names | {"running_mean_std.": "normalizer.", "a2c_network.rnn.": "rnn.", "a2c_network.actor_cnn.": "cnn."},
    )
    if other := [name for name in weights if name.startswith(("rnn.", "cnn.", "log_std."))]:
        raise CardError(f"expected a perceptron whose standard deviations are weights of their own, got {other[0]!r}")
    if "normalizer.running_mean" not in weights:
        return weights, None
    mean, variance = (weights[f"normalizer.running_{name}"].float() for name in ("mean", "var"))
    return weights, Normalize(mean, (variance + _RL_GAMES_EPSILON).sqrt(), _RL_GAMES_CLIP)


def _renamed(weights: Mapping[str, Tensor], names: Mapping[str, str]) -> Weights:
    """The weights whose names begin with one of some beginnings, under another."""
    return {
        new + name[len(old) :]: weights[name] for name in weights for old, new in names.items() if name.startswith(old)
    }


def _network(weights: Weights, normalize: Normalize | None, between: type[nn.Module]) -> tuple[nn.Module, int]:
    """The actor, and how many numbers it observes."""
    if "log_std" not in weights:
        raise CardError(
            "expected a Gaussian with one standard deviation for each action: for other distributions export the "
            "policy as ONNX or TorchScript"
        )
    # the linear layers in their order, with the activation between them
    places = sorted({int(name.split(".")[1]) for name in weights if name.startswith("actor.")})
    names = [*(f"actor.{place}." for place in places), *(["mu."] if "mu.weight" in weights else [])]
    first, *others = [_linear(weights, name) for name in names]
    layers = [layer for linear in others for layer in (between(), linear)]
    head = nn.Sequential(first, *layers, AppendLogStd(weights["log_std"]))
    before = nn.Sequential(*([] if normalize is None else [normalize]))

    # a recurrent layer stands between the normaliser and the others
    lstm = {name.removeprefix("lstm."): value for name, value in weights.items() if name.startswith("lstm.")}
    if not lstm:
        return nn.Sequential(*before, *head), first.in_features
    gates, features = lstm["weight_ih_l0"].shape
    hidden = lstm["weight_hh_l0"].shape[1]
    if gates != 4 * hidden:
        raise CardError(
            f"expected an LSTM with 4 gates, got a recurrent layer with {gates // hidden}: export the policy as "
            "TorchScript"
        )
    memory = nn.LSTM(features, hidden, len(lstm) // 4)
    memory.load_state_dict(lstm)
    return RecurrentActor(before, memory, head, None), features


def _linear(weights: Weights, name: str) -> nn.Linear:
    """The fully connected layer with these weights."""
    weight, bias = weights[f"{name}weight"], weights[f"{name}bias"]
    if weight.ndim != 2:
        raise CardError(f"expected fully connected layers, got {name}weight of shape {tuple(weight.shape)}")
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _configuration(path: Path) -> str:
    """The text of the configuration near a checkpoint; "" where there is none."""
    near = [folder / name for folder in (path.parent, path.parent.parent) for name in _CONFIGURATIONS]
    found = next((file for file in near if file.is_file()), None)
    return "" if found is None else read_bytes(found, 2**20).decode("utf-8", "replace")


def _said(name: str, configuration: str) -> set[str]:
    """The values that a configuration gives a key, wherever it stands."""
    return {value.lower() for value in re.findall(rf"^\s*{name}:\s*['\"]?([\w.]+)", configuration, re.MULTILINE)}


def _activation(given: str | None, configuration: str) -> type[nn.Module]:
    """The activation that was given, or is the only one in the configuration."""
    names = _said("activation", configuration) if given is None else {given.lower()}
    if len(names) != 1:
        got = f"{sorted(names)} in its configuration" if names else "no configuration near the file"
        raise CardError(f"expected one activation, got {got}: name it, as in rsl_rl:model.pt?activation=elu")
    if (name := names.pop()) not in ACTIVATIONS:
        raise CardError(f"expected an activation among {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS[name]


def _clipped_at(configuration: str, library: Library) -> float:
    """Where actions are clipped: rsl_rl says a number, or none; rl_games clips at 1 unless it says that it does not."""
    said = _said("clip_actions", configuration)
    if library == "rl_games":
        return np.inf if "false" in said else 1.0
    return next((float(value) for value in said if re.fullmatch(r"[\d.]+", value)), np.inf)
