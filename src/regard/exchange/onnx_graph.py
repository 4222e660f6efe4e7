"""The layers of a Transformer as nodes of an ONNX graph.

Shapes: B sentences, T queries, S keys, D width, H heads, K width of keys, W width of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from regard.config.transformer import NORM_EPS as EPS
from regard.errors import require
from regard.models.encoder_decoder import TransformerConfig

OPSET, IR_VERSION = 17, 8
HIDDEN = -1e9  # added to the scores of keys that a query does not see


class Graph:
    """Nodes and constants. Each method adds nodes, and returns the name of their output."""

    def __init__(self, config: TransformerConfig, weights: Mapping[str, Tensor]) -> None:
        self.config, self.weights = config, weights
        self.onnx = require("onnx", extra="onnx")
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}

    # Nodes

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        return self.ops(kind, *inputs, outputs=outputs, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        names = [f"{kind}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        array = np.asarray(value, dtype=dtype)
        return self.keep(f"constant_{array.dtype}_{array.shape}_{array.tobytes().hex()}", array)

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def keep(self, name: str, array: NDArray[Any]) -> str:
        """Add a constant, once."""
        self.constants.setdefault(name, array)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        tensor = self.weights[name].t() if transposed else self.weights[name]
        return self.keep(name + (".T" if transposed else ""), tensor.contiguous().numpy())

    def output(self, name: str, value: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))

    # Sizes and positions

    def size(self, value: str, axis: int) -> str:
        """Return one size of a tensor, as a tensor of one number."""
        return self.op("Gather", self.op("Shape", value), self.ints(axis), axis=0)

    def numbers(self, begin: str, end: str) -> str:
        """Return the whole numbers from `begin` up to `end`."""
        scalars = (self.op("Squeeze", one) for one in (begin, end))
        return self.op("Range", *scalars, self.constant(1, np.int64))

    def rows(self, table: str, begin: str, end: str) -> str:
        return self.op("Slice", table, begin, end, self.ints(0))

    # Layers

    def linear(self, x: str, name: str) -> str:
        result = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", result, self.weight(f"{name}.bias")) if f"{name}.bias" in self.weights else result

    def norm(self, x: str, name: str, *, kind: str | None = None, eps: float | None = None) -> str:
        eps = self.config.norm_eps if eps is None else eps
        if (kind or self.config.norm) == "layer":
            weights = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
            return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=eps)
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.constant(eps)))
        return self.op("Mul", self.op("Div", x, root), self.weight(f"{name}.weight"))

    def heads(self, x: str, norm: str) -> str:
        """[B, T, H * K] to [B, H, T, K], normed if the model has this norm."""
        split = self.op("Reshape", x, self.ints(0, 0, self.config.num_heads, -1))
        if f"{norm}.weight" in self.weights:
            split = self.norm(split, norm, kind="rms", eps=EPS)
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def rotate(self, x_BHTK: str, cos: str, sin: str) -> str:
        """Return queries or keys, rotated: pairs of neighbouring entries turn by the angle of their position."""
        pairs = self.op("Reshape", x_BHTK, self.ints(0, 0, 0, -1, 2))
        even, odd = (self.op("Gather", pairs, self.constant(at, np.int64), axis=4) for at in (0, 1))
        first = self.op("Sub", self.op("Mul", even, cos), self.op("Mul", odd, sin))
        second = self.op("Add", self.op("Mul", even, sin), self.op("Mul", odd, cos))
        both = [self.op("Unsqueeze", one, self.ints(4)) for one in (first, second)]
        turned = self.op("Concat", *both, axis=4)
        return self.op("Reshape", turned, self.ints(0, 0, 0, self.config.heads.key_width))

    def attend(self, q: str, k: str, v: str, bias: str, name: str) -> str:
        """Return the weighted values, heads joined and projected: [B, T, D]."""
        q = self.op("Mul", q, self.constant(self.config.heads.key_width**-0.5))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        heads = self.op("MatMul", self.op("Softmax", self.op("Add", scores, bias), axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", heads, perm=[0, 2, 1, 3]), self.ints(0, 0, -1))
        return self.linear(joined, f"{name}.output")

    def project(self, x: str, name: str, rotation: Sequence[str]) -> list[str]:
        """Return the queries, keys and values of self-attention."""
        heads = self.config.heads
        keys, values = heads.num_heads * heads.key_width, heads.num_heads * heads.value_width
        parts = self.ops("Split", self.linear(x, f"{name}.project"), self.ints(keys, keys, values), outputs=3, axis=-1)
        found = [self.heads(parts[0], f"{name}.query_norm"), self.heads(parts[1], f"{name}.key_norm")]
        found = [self.rotate(one, *rotation) for one in found] if rotation else found
        return [*found, self.heads(parts[2], "")]

    def feed_forward(self, x: str, name: str) -> str:
        kind = self.config.feed_forward
        hidden = self.linear(x, f"{name}.inner")
        if kind == "relu":
            hidden = self.op("Relu", hidden)
        elif kind == "gelu":
            error = self.op("Erf", self.op("Mul", hidden, self.constant(0.5**0.5)))
            half = self.op("Mul", hidden, self.constant(0.5))
            hidden = self.op("Mul", half, self.op("Add", error, self.constant(1.0)))
        elif kind == "silu":
            hidden = self._silu(hidden)
        else:
            size = self.ints(self.config.hidden, self.config.hidden)
            gate, hidden = self.ops("Split", hidden, size, outputs=2, axis=-1)
            hidden = self.op("Mul", self._silu(gate), hidden)
        return self.linear(hidden, f"{name}.outer")

    def _silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def around(self, x: str, name: str, sublayer: Any) -> str:
        """Return a sub-layer's output with its residual connection and norm."""
        if self.config.norm_order == "pre":
            return self.op("Add", x, sublayer(self.norm(x, f"{name}.norm")))
        return self.norm(self.op("Add", x, sublayer(x)), f"{name}.norm")

    # The file

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the graph as a checked ONNX model."""
        helper, numpy_helper = self.onnx.helper, self.onnx.numpy_helper
        short = {name: f"c{number}" for number, name in enumerate(self.constants) if name.startswith("constant_")}
        for node in self.nodes:
            node.input[:] = [short.get(name, name) for name in node.input]
        constants = [numpy_helper.from_array(array, short.get(name, name)) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "regard", list(inputs), list(outputs), constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="regard")
        self.onnx.checker.check_model(model)
        return model

    def value(self, name: str, kind: str, shape: Sequence[str | int]) -> Any:
        types = {
            "float": self.onnx.TensorProto.FLOAT,
            "int": self.onnx.TensorProto.INT64,
            "bool": self.onnx.TensorProto.BOOL,
        }
        return self.onnx.helper.make_tensor_value_info(name, types[kind], list(shape))
