"""Directors: the trained policy of an adversary, from true observations to steers, and the folder it is kept in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from adv_wrappers.core.errors import CardError
from adv_wrappers.core.files import write
from adv_wrappers.victims.chain import Normalize
from adv_wrappers.victims.gradients import digest
from adv_wrappers.victims.weights import Weights

FORMAT = 1


class Director(nn.Module):
    """A network whose deterministic answer is the steer.

    Args:
        net: float observations ``[B, n]`` to numbers ``[B, A]``: what a box of steers holds, or one a choice.
        discrete: the steer is the number of the largest output, int64 ``[B]``; else outputs are clipped to [-1, 1].
    """

    def __init__(self, net: nn.Sequential, discrete: bool) -> None:
        super().__init__()
        self.net, self.discrete = net.eval().requires_grad_(False), discrete

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x.flatten(1).float())
        return out.argmax(-1) if self.discrete else out.clamp(-1, 1)

    def fingerprint_of_weights(self) -> str:
        """sha256 over names, shapes and bytes of all weights (hexadecimal)."""
        return digest([self])


def save_director(folder: str | Path, director: Director, about: Mapping[str, Any]) -> None:
    """Write ``card.json`` and ``weights.safetensors``, each at once or not at all.

    Args:
        about: what the card says beside the network: ``actor``, ``within``, ``victim``, ``training``.
    """
    folder = Path(folder)
    tensors: dict[str, Tensor] = {}
    layers = list(director.net)
    card: dict[str, Any] = {"format": FORMAT, "kind": "adversary", "discrete": director.discrete, **about}
    if layers and isinstance(layers[0], Normalize):
        first = layers.pop(0)
        assert isinstance(first, Normalize)
        tensors |= {"normalize.mean": first.mean, "normalize.std": first.std}
        card["clip"] = first.clip
    for i, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            tensors |= {f"policy.{i}.weight": layer.weight, f"policy.{i}.bias": layer.bias}
    card["network"] = {"activation": "relu" if any(isinstance(layer, nn.ReLU) for layer in layers) else "tanh"}
    stored = save({name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()})
    write(folder / "weights.safetensors", stored)
    write(folder / "card.json", (json.dumps(card, indent=2) + "\n").encode())


def load_director(folder: str | Path) -> tuple[Director, dict[str, Any]]:
    """The director of a folder, and its card.

    Raises:
        CardError: for a folder that holds no adversary, and for weights that do not fit its card.
    """
    folder = Path(folder)
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
        tensors = load_file(folder / "weights.safetensors")
    except Exception as error:  # whatever json and safetensors raise
        raise CardError(f"{folder} is no adversary's folder: {error}") from error
    if not isinstance(card, dict) or card.get("kind") != "adversary" or card.get("format") != FORMAT:
        kind = card.get("kind") if isinstance(card, dict) else type(card).__name__
        raise CardError(f"{folder}: expected a card of kind 'adversary', format {FORMAT}, got {kind!r}")
    if not isinstance(card.get("network"), dict) or not isinstance(card.get("actor"), dict):
        raise CardError(f"{folder}: the card must have sections network and actor")
    weights = Weights(tensors, str(folder))
    layers: list[nn.Module] = []
    if weights.has("normalize"):
        mean = weights.take("normalize.mean", None)
        layers.append(Normalize(mean.detach(), weights.take("normalize.std", len(mean)).detach(), card.get("clip")))
    policy = weights.mlp("policy", card["network"])
    weights.finish()
    return Director(nn.Sequential(*layers, *policy), bool(card.get("discrete"))), card
