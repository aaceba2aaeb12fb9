"""Directors: the trained policy of an adversary, from true observations to its actions, and its card."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from adv_wrappers.core.types import Space
from adv_wrappers.errors import CardError, SpaceError
from adv_wrappers.networks.card import Card, output_shape, section
from adv_wrappers.networks.fingerprint import digest
from adv_wrappers.networks.recurrent import LSTMState, is_plain, lstm_step, zero_state
from adv_wrappers.utils.reading import decoding, most_numbers


class Director(nn.Module):
    """A network whose deterministic output is the adversary's action.

    With an ``nn.LSTM`` (or several) among its layers it is recurrent: it is called with a state and returns the next
    one too, ``(x, state) -> (action, state)``; :meth:`initial_state` is the state that an episode begins with.

    Args:
        net: float observations ``[B, *S]`` to numbers ``[B, A]``: a point of the actor's box, or one score a choice.
        discrete: the action is the index of the largest output, int64 ``[B]``.
        clip: outputs are clipped to [-1, 1] one by one, as they were in training (Stable-Baselines3 does so). Without
            it the actor gets them as they are; it scales a direction back as a whole, and clips values.

    Attributes:
        record: of its training, where it is from a folder or from :func:`adv_wrappers.train_adversary`: among others
            the ``seed`` and the number of ``episodes`` that chose the checkpoint. Else empty.

    Raises:
        CardError: for an LSTM that runs both ways, has no biases, or projects its state.
    """

    def __init__(self, net: nn.Sequential, discrete: bool, clip: bool = False) -> None:
        super().__init__()
        self.net = net.eval().requires_grad_(False)
        self.discrete = discrete
        self.clip = clip
        self._lstms = tuple(layer for layer in net if isinstance(layer, nn.LSTM))
        for lstm in self._lstms:
            if not is_plain(lstm):
                raise CardError(f"a director's LSTM goes one way, has biases and is not projected, got {lstm}")
        self.record: Mapping[str, object] = {}
        self._elsewhere: dict[torch.device, nn.Sequential] = {}

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""
        return bool(self._lstms)

    def initial_state(self, rows: int) -> LSTMState:
        """Zeros ``[rows, layers, hidden]``, float32: hidden and cell of every LSTM in turn."""
        return zero_state(self._lstms, rows)

    @torch.no_grad()
    def forward(self, x: Tensor, state: LSTMState | None = None) -> Any:
        """Actions at observations ``[B, *S]``: int64 ``[B]``, or float32 ``[B, A]``; if recurrent, ``(action, state)``.

        Args:
            state: None stands for the one that an episode begins with.
        """
        net = self._on(x.device)
        if not self.recurrent:
            return self._action(net(x.float()))
        if state is None:
            state = tuple(leaf.to(x.device) for leaf in self.initial_state(len(x)))
        # layer by layer, since an LSTM takes its own part of the state and leaves the next one
        out, new = x.float(), list[Tensor]()
        for layer in net:
            if isinstance(layer, nn.LSTM):
                out, *both = lstm_step(layer, out, *state[len(new) : len(new) + 2])
                new += both
            else:
                out = layer(out)
        return self._action(out), tuple(new)

    def _action(self, out: Tensor) -> Tensor:
        if self.discrete:
            return out.argmax(-1)
        return out.clamp(-1, 1) if self.clip else out

    def _on(self, device: torch.device) -> nn.Sequential:
        """The network where the observations are: a threat does not know beforehand on which device it attacks."""
        weight = next(self.net.parameters(), None)
        if weight is None or weight.device == device:
            return self.net
        if device not in self._elsewhere:
            self._elsewhere[device] = copy.deepcopy(self.net).to(device)
        return self._elsewhere[device]

    def check(self, space: Space, actions: Space, observe: str) -> None:
        """Raise :class:`SpaceError` unless this director takes observations of ``space`` to ``actions``."""
        # the layers that say what the network takes and gives
        first, last = (
            next((m for m in layers if isinstance(m, (nn.Linear, nn.Conv2d, nn.LSTM))), None)
            for layers in (list(self.net), [*reversed(self.net)])
        )
        shape = space.shape or ()
        size = int(actions.n) if isinstance(actions, spaces.Discrete) else math.prod(actions.shape or ())
        # the first against the observations: the length of vectors, the channels of images
        sees = first.input_size if isinstance(first, nn.LSTM) else getattr(first, "in_features", None)
        if sees is not None and observe == "state" and sees != math.prod(shape):
            raise SpaceError(f"this director sees {sees} numbers, the observations are {shape}")
        if isinstance(first, nn.Conv2d) and (len(shape) != 3 or first.in_channels != shape[0]):
            raise SpaceError(f"this director sees {first.in_channels} channels of images, the observations are {shape}")
        # the last against the actions of the actor
        gives = last.hidden_size if isinstance(last, nn.LSTM) else getattr(last, "out_features", None)
        if gives is not None and gives != size:
            raise SpaceError(f"this director gives {gives} numbers, an action is {actions}")

    def fingerprint_of_weights(self) -> str:
        """sha256 over names, shapes and bytes of all weights (hexadecimal)."""
        return digest([self])


def save_director(folder: str | Path, director: Director, about: Mapping[str, Any]) -> None:
    """Write ``card.json`` and ``weights.safetensors``, each at once or not at all.

    Args:
        about: further sections of the card: ``actor``, ``within``, ``victim``, ``training``.

    Raises:
        CardError: for a layer that no card can hold.
    """
    about = {"discrete": director.discrete, "clip": director.clip, **about}
    card = Card.of("director", about, {"policy": director.net}, {})
    replace(card, tensors={name: tensor.float() for name, tensor in card.tensors.items()}).write(folder)


def load_director(folder: str | Path) -> tuple[Director, dict[str, Any]]:
    """The director of a folder, and its card.

    Raises:
        CardError: for a folder that holds no director, and for weights that do not fit its card.
    """
    card = Card.read(folder, "director")
    about = card.about
    with decoding(folder):
        section(about, "actor")
        dict(about.get("victim") or {})  # type: ignore[call-overload]  # raises for anything else
        net = card.networks()["policy"]
        card.weights.finish()
        # its layers follow one another; of pictures the card does not say how large they are
        first = next((weight for weight in net.parameters() if weight.dim() > 1), None)
        if first is not None and first.dim() == 2:
            output_shape(net, (first.shape[1],), most_numbers(None))
        director = Director(
            net, bool(about.get("discrete")), bool(about.get("clip", True))
        )  # what is older was clipped
    director.record = found if isinstance(found := about.get("training"), dict) else {}
    return director, about
