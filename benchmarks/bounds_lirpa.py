"""Bounds by auto_LiRPA (Xu et al. 2020), for ``benchmarks/bounds.py``, in an environment that has it.

The release on PyPI, 0.3, is of 2022. :func:`adapt` gives it the names that torch and numpy have moved since, and what
its layer normalisation reads before it is there; its bounds are left as they are.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
from torch import Tensor, nn

METHODS = ("IBP", "CROWN-IBP", "CROWN")


def adapt() -> Any:
    """Import auto_LiRPA; ImportError where it is not installed."""
    import torch.onnx.symbolic_helper
    import torch.onnx.utils
    from torch.onnx._internal.torchscript_exporter import utils
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    moved = types.ModuleType("numpy.lib.arraysetops")
    moved.isin = np.isin  # type: ignore[attr-defined]
    sys.modules.setdefault("numpy.lib.arraysetops", moved)
    names: Any = torch.onnx.utils
    names._optimize_graph = utils._optimize_graph
    names = torch.onnx.symbolic_helper
    names._set_opset_version = lambda version: setattr(GLOBALS, "export_onnx_opset_version", version)
    names = torch._C.Node
    names.__getitem__ = lambda node, key: getattr(node, node.kindOf(key))(key)
    import auto_LiRPA
    from auto_LiRPA.operators import BoundDiv

    members = auto_LiRPA.BoundedModule._named_members
    auto_LiRPA.BoundedModule._named_members = lambda self, get, prefix="", recurse=True, **_: members(
        self, get, prefix, recurse
    )
    BoundDiv.forward = _divide
    propagate = BoundDiv.interval_propagate

    def interval(self: Any, *values: Any) -> Any:
        for node in self.inputs[0].inputs:
            if getattr(node, "forward_value", None) is None and getattr(node, "lower", None) is not None:
                node.forward_value = (node.lower + node.upper) / 2  # whose shape is read
        return propagate(self, *values)

    BoundDiv.interval_propagate = interval
    return auto_LiRPA


def _divide(self: Any, x: Tensor, y: Tensor) -> Tensor:
    self.x, self.y = x, y
    return x / y


def bounds(net: nn.Module, low: Tensor, high: Tensor, method: str) -> tuple[Tensor, Tensor]:
    """Bounds on the outputs of a float32 network in boxes ``[B, *S]``, each ``[B, K]``."""
    library = adapt() if "auto_LiRPA" not in sys.modules else sys.modules["auto_LiRPA"]
    middle = (low + high) / 2
    within = library.PerturbationLpNorm(norm=float("inf"), x_L=low, x_U=high)
    bounded = library.BoundedModule(net, middle, device="cpu")
    least, most = bounded.compute_bounds(x=(library.BoundedTensor(middle, within),), method=method)
    return least, most
