"""Copies of modules that nobody trains any more: of wrapped, cached, scripted and quantised ones, too."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.nn.utils import parametrize

from adv_wrappers.errors import VictimError
from adv_wrappers.utils.trees import leaves

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(net: Any) -> Any:
    """The module within ``torch.compile``, ``DataParallel`` and ``DistributedDataParallel``; else ``net`` itself."""
    while isinstance(net, nn.Module):
        inner = getattr(net, "module", None) if isinstance(net, _WRAPPERS) else getattr(net, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            break
        net = inner
    return net


def check_weights(net: nn.Module) -> None:
    """Raise :class:`VictimError` for a module with lazy layers that have no weights yet."""
    for name, part in net.named_modules():
        own = [*part._parameters.values(), *part._buffers.values()] if hasattr(part, "_parameters") else []
        if any(isinstance(tensor, (UninitializedParameter, UninitializedBuffer)) for tensor in own):
            raise VictimError(
                f"{type(part).__name__} {name or 'itself'} has no weights yet: call the module once on a batch of "
                f"observations, net(torch.zeros(1, ...)), and load or train its weights, before from_module"
            )


def frozen_copy(net: nn.Module, device: torch.device, dtype: torch.dtype | None) -> nn.Module | None:
    """A copy in evaluation mode whose weights require no gradient; None for a module that cannot be copied.

    Args:
        net: the module.
        device: where the copy lies.
        dtype: of its weights; None leaves each its own.

    Warns:
        UserWarning: for a module that cannot be copied.
    """
    try:
        # results that a forward pass left behind have a graph, which a copy does not need
        results = {id(tensor): tensor.detach().clone() for tensor in _results(net)}
        with torch.no_grad():  # of which copies of ScriptModules would be results, and no weights
            made = _program_of(net) or copy.deepcopy(net, dict(results))
        for part in made.modules():
            part.__dict__.pop("_compiled_call_impl", None)  # of module.compile(): the plain one has gradients
        _unwrap_parts(made)
        made.to(device=device, dtype=dtype)
    except Exception as error:  # whatever copying, or a method of the module's own, raises
        warnings.warn(
            f"{type(net).__name__} cannot be copied ({type(error).__name__}: {error!s:.200}), so the victim calls the "
            f"module itself: it follows what becomes of it, and a run with workers may not be able to send it there. "
            f"from_module(copy, ...) of a fresh module with load_state_dict(net.state_dict()) stays as it is",
            UserWarning,
            stacklevel=4,
        )
        return None
    # in evaluation mode, with weights that need no gradient
    with contextlib.suppress(NotImplementedError, RuntimeError):  # exported programs have one mode alone
        made.eval()
    _compute_parametrized(made)
    for weight in made.parameters():
        if weight.is_leaf:
            weight.requires_grad_(False)
    return made


def _program_of(net: nn.Module) -> TorchScriptNet | None:
    """A ScriptModule as the program of a file; None for other modules, and for one that cannot be saved."""
    if not isinstance(net, torch.jit.ScriptModule):
        return None
    try:
        return TorchScriptNet(net.save_to_buffer())
    except RuntimeError:
        return None


def _unwrap_parts(net: nn.Module) -> None:
    for part in list(net.modules()):
        if isinstance(part, torch.jit.ScriptModule):
            continue
        for name, child in part.named_children():
            if (inner := unwrapped(child)) is not child:
                setattr(part, name, inner)


def _compute_parametrized(net: nn.Module) -> None:
    """Weights that are computed from others, such as orthogonal ones, as they are: those could not be pickled."""
    parts: list[Any] = list(net.modules())
    for part in parts:
        if not isinstance(part, torch.jit.ScriptModule) and parametrize.is_parametrized(part):
            kind = type(part)  # made for the original, which keeps it: what is removed is taken from the class
            part.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
            for name in list(part.parametrizations):
                parametrize.remove_parametrizations(part, name)


def _results(net: nn.Module) -> Iterator[Tensor]:
    """Tensors with a graph that a module's parts hold, in attributes, buffers, and distributions there."""
    for part in net.modules():
        if not isinstance(part, torch.jit.ScriptModule):
            yield from _with_graph([value for value in vars(part).values() if not isinstance(value, nn.Module)])


def _with_graph(value: object) -> Iterator[Tensor]:
    for leaf in leaves(value):
        if isinstance(leaf, Tensor) and not leaf.is_leaf:
            yield leaf
        elif isinstance(leaf, torch.distributions.Distribution | torch.distributions.Transform):
            yield from _with_graph([part for part in vars(leaf).values() if not isinstance(part, torch.Size)])


class TorchScriptNet(nn.Module):
    """The program of a TorchScript file as a frozen module, which can be copied and pickled.

    Args:
        data: the bytes of the file.
    """

    file_sha256: Tensor

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data
        with warnings.catch_warnings():
            # TorchScript is deprecated in favour of torch.export; files of it are still about
            warnings.simplefilter("ignore", DeprecationWarning)
            self.program = torch.jit.load(io.BytesIO(data), map_location="cpu")
        # programs of the same weights differ: the hash of the file is part of the victim's fingerprint
        self.register_buffer("file_sha256", torch.tensor(list(hashlib.sha256(data).digest()), dtype=torch.uint8))
        self.eval().requires_grad_(False)

    def forward(self, *inputs: object) -> object:
        """What the program returns for the same inputs."""
        return self.program(*inputs)

    def __reduce__(self) -> tuple[object, ...]:
        weight = next((p for p in self.parameters() if p.is_floating_point()), None)
        place = self.file_sha256.device
        return _restored, (self.data, place, None if weight is None else weight.dtype)


def _restored(data: bytes, device: torch.device, dtype: torch.dtype | None) -> TorchScriptNet:
    return TorchScriptNet(data).to(device=device, dtype=dtype)
