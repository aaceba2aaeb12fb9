"""ONNX files for tests, written node by node."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")


def saved(path, given, nodes, returned, tensors=None, opset=17, dtype=np.float32, **external):
    """A file of nodes ``(operator, inputs, outputs, attributes)``; sizes of inputs and outputs by their names.

    Inputs and outputs of a node are lists, or texts with spaces between names. Those of the graph are floats, but for
    a ``mask`` and an ``action``.
    """
    kinds = {"mask": onnx.TensorProto.BOOL, "action": onnx.TensorProto.INT64}
    float_ = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    described = [
        [onnx.helper.make_tensor_value_info(name, kinds.get(name, float_), sizes) for name, sizes in part.items()]
        for part in (given, returned)
    ]
    kept = [
        onnx.numpy_helper.from_array(value.astype(dtype) if value.dtype.kind == "f" else value, name)
        for name, value in (tensors or {}).items()
    ]
    made = [onnx.helper.make_node(kind, named(ins), named(outs), **more) for kind, ins, outs, more in nodes]
    graph = onnx.helper.make_graph(made, "policy", *described, kept)
    domains = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=domains, ir_version=8), str(path), **external)
    return path


def named(names):
    return names.split() if isinstance(names, str) else names
