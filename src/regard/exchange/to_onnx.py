"""Writing a model as ONNX graphs: encoder.onnx, decoder.onnx, and translate.py, a loop that needs onnxruntime only.

encoder    ids, mask                                    →  keys and values of every decoder layer's attention to the source
decoder    ids, mask, these, keys and values so far     →  logits of the next tokens, keys and values so far

The decoder takes any number of tokens at once, so that one step of search and the scoring of an output are the same graph.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.errors import ConfigError, require
from regard.exchange.onnx_graph import HIDDEN, Graph
from regard.exchange.portable import Portable, has_final_norm, refuse_options
from regard.nn.positions import is_sinusoid, sinusoids
from regard.storage.folder import Folder
from regard.text.symbols import BOS, EOS, UNK

TARGET = "the ONNX export"
MAX_BYTES = 2**31 - 2**24  # of one file of the format
FITTING: dict[str, tuple[Any, ...]] = {
    "feed_forward": ("relu", "gelu", "silu", "swiglu"),
    "copy": (False,),
}


def refuse(model: Portable, weights: str) -> None:
    """Raise ConfigError for what the graphs cannot express."""
    refuse_options(model.config, TARGET, FITTING)
    if weights == "float16":
        raise ConfigError("--weights is float16, which onnxruntime converts on a CPU; use float32 or int8")
    size = sum(4 * tensor.numel() for tensor in model.weights.values())
    if size > MAX_BYTES:
        raise ConfigError(
            f"the model has {size / 1e9:.1f} GB, and a file of ONNX at most 2; {TARGET} is for smaller ones"
        )


def write(model: Portable, folder: Folder, weights: str) -> None:
    """Write the graphs, the vocabularies, the SentencePiece files and the loop."""
    onnx = require("onnx", extra="onnx")
    for name, graph in (("encoder.onnx", _encoder(model)), ("decoder.onnx", _decoder(model))):
        onnx.save(graph, str(folder.path / name))
        if weights == "int8":
            _quantize(folder.path / name)
    config, options = model.config, model.options
    ids = {"unk": UNK, "bos": BOS, "eos": EOS, "start": config.start_id, "source_ends": [EOS] * config.source_eos}
    # Learned positions limit sources and outputs too; a source needs one for EOS.
    longest = min(model.num_positions, options.max_length or model.num_positions)
    limits = {"max_source": min(options.max_source, model.num_positions - 1), "max_extra": options.max_extra}
    limits["max_length"] = longest
    folder.save_json("config.json", {**ids, **limits, "tags": model.tags})
    folder.save_json("vocabulary.json", [model.symbols("source"), model.symbols("target")])
    folder.save_bytes("translate.py", Path(__file__).with_name("onnx_translate.py").read_bytes())
    for name, content in model.models().items():
        folder.save_bytes(name, content)


def _quantize(path: Path) -> None:
    """Store matrices as 8-bit integers; their inputs are quantized at each product."""
    quantization = require("onnxruntime.quantization", extra="onnx")
    large = path.with_suffix(".float32")
    path.rename(large)
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        quantization.quantize_dynamic(
            str(large),
            str(path),
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # Products of signed and unsigned bytes overflow on processors without VNNI.
            weight_type=quantization.QuantType.QUInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    finally:
        logging.root.setLevel(level)
        large.unlink()


# The graphs


def _tables(graph: Graph, model: Portable, side: str, begin: str, end: str) -> tuple[str | None, list[str]]:
    """Return the vectors that are added to embeddings at these positions, and the cosines and sines of rotations."""
    config, count = model.config, model.num_positions
    if config.positions == "learned":
        return graph.rows(graph.weight(f"{side}_positions.learned"), begin, end), []
    if is_sinusoid(config.positions):
        table = sinusoids(count, config.width, kind=config.positions, first=config.first_position)
        return graph.rows(graph.keep("positions", table.numpy()), begin, end), []
    if config.positions == "rotary":
        width = config.heads.key_width
        frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = (torch.arange(count, dtype=torch.float64)[:, None] * frequencies).float()
        tables = {"cosines": angles.cos().numpy(), "sines": angles.sin().numpy()}
        return None, [graph.rows(graph.keep(name, table), begin, end) for name, table in tables.items()]
    return None, []


def _embed(graph: Graph, model: Portable, embedded: str, positions: str | None) -> str:
    if model.config.scale_embeddings:
        embedded = graph.op("Mul", embedded, graph.constant(model.config.width**0.5))
    return embedded if positions is None else graph.op("Add", embedded, positions)


def _hide(graph: Graph, seen: str) -> str:
    """Return what is added to scores: 0 where a key is seen."""
    return graph.op("Where", seen, graph.constant(0.0), graph.constant(HIDDEN))


def _memory_bias(graph: Graph) -> str:
    return _hide(graph, graph.op("Unsqueeze", "mask", graph.ints(1, 2)))


def _near(graph: Graph, queries: str, keys: str, window: int, *, causal: bool) -> str:
    """Return which keys are at most `window` positions away, [T, S]; `causal` says that later ones are hidden anyway."""
    distance = graph.op(
        "Sub", graph.op("Unsqueeze", queries, graph.ints(1)), graph.op("Unsqueeze", keys, graph.ints(0))
    )
    distance = distance if causal else graph.op("Abs", distance)
    return graph.op("LessOrEqual", distance, graph.constant(window, np.int64))


def _encoder(model: Portable) -> Any:
    config = model.config
    graph = Graph(config, model.weights)
    zero, length = graph.ints(0), graph.size("ids", 1)
    positions, rotation = _tables(graph, model, "source", zero, length)
    table = "target_embedding" if config.tie == "all" else "source_embedding"
    x = _embed(graph, model, graph.op("Gather", graph.weight(table), "ids", axis=0), positions)
    bias = _memory_bias(graph)
    if config.window is not None:
        places = graph.numbers(zero, length)
        bias = graph.op("Add", bias, _hide(graph, _near(graph, places, places, config.window, causal=False)))
    for number in range(config.num_layers):
        at = f"encoder.{number}"

        def attention(x: str, at: str = at) -> str:
            q, k, v = graph.project(x, f"{at}.attention", rotation)
            return graph.attend(q, k, v, bias, f"{at}.attention")

        def feed_forward(x: str, at: str = at) -> str:
            return graph.feed_forward(x, f"{at}.feed_forward")

        x = graph.around(x, f"{at}.around_attention", attention)
        x = graph.around(x, f"{at}.around_feed_forward", feed_forward)
    if has_final_norm(config):
        x = graph.norm(x, "encoder_norm")
    heads = config.heads
    split = graph.ints(heads.num_heads * heads.key_width, heads.num_heads * heads.value_width)
    for number in range(_depth(model)):
        at = f"decoder.{number}.cross_attention"
        keys, values = graph.ops("Split", graph.linear(x, f"{at}.memory"), split, outputs=2, axis=-1)
        graph.output(f"memory_key_{number}", graph.heads(keys, f"{at}.key_norm"))
        graph.output(f"memory_value_{number}", graph.heads(values, ""))
    inputs = [graph.value("ids", "int", ("B", "S")), graph.value("mask", "bool", ("B", "S"))]
    return graph.model(inputs, _caches(graph, model, "memory", "S"))


def _decoder(model: Portable) -> Any:
    config = model.config
    graph = Graph(config, model.weights)
    past, count = graph.size("past_key_0", 2), graph.size("ids", 1)
    end = graph.op("Add", past, count)
    positions, rotation = _tables(graph, model, "target", past, end)
    # One matrix [D, V] is the output layer, and the embedding too where they are tied.
    name = "target_embedding" if config.tie != "none" else "output"
    output = graph.weight(name, transposed=True)
    if config.tie != "none":
        embedded = graph.op("Transpose", graph.op("Gather", output, "ids", axis=1), perm=[1, 2, 0])
    else:
        embedded = graph.op("Gather", graph.weight("target_embedding"), "ids", axis=0)
    x = _embed(graph, model, embedded, positions)
    queries, keys = graph.numbers(past, end), graph.numbers(graph.ints(0), end)
    seen = graph.op(
        "LessOrEqual", graph.op("Unsqueeze", keys, graph.ints(0)), graph.op("Unsqueeze", queries, graph.ints(1))
    )
    if config.window is not None:
        seen = graph.op("And", seen, _near(graph, queries, keys, config.window, causal=True))
    own_bias, memory_bias = _hide(graph, seen), _memory_bias(graph)
    for number in range(_depth(model)):
        at = f"decoder.{number}"

        def attention(x: str, at: str = at, number: int = number) -> str:
            q, k, v = graph.project(x, f"{at}.attention", rotation)
            k = graph.op("Concat", f"past_key_{number}", k, axis=2)
            v = graph.op("Concat", f"past_value_{number}", v, axis=2)
            graph.output(f"key_{number}", k)
            graph.output(f"value_{number}", v)
            return graph.attend(q, k, v, own_bias, f"{at}.attention")

        def cross_attention(x: str, at: str = at, number: int = number) -> str:
            q = graph.heads(graph.linear(x, f"{at}.cross_attention.query"), f"{at}.cross_attention.query_norm")
            memory = f"memory_key_{number}", f"memory_value_{number}"
            return graph.attend(q, *memory, memory_bias, f"{at}.cross_attention")

        def feed_forward(x: str, at: str = at) -> str:
            return graph.feed_forward(x, f"{at}.feed_forward")

        x = graph.around(x, f"{at}.around_attention", attention)
        x = graph.around(x, f"{at}.around_cross_attention", cross_attention)
        x = graph.around(x, f"{at}.around_feed_forward", feed_forward)
    if has_final_norm(config):
        x = graph.norm(x, "decoder_norm")
    logits = graph.op("MatMul", x, output)
    graph.output("logits", graph.op("Add", logits, graph.weight("output_bias")) if config.output_bias else logits)
    inputs = [graph.value("ids", "int", ("B", "T")), graph.value("mask", "bool", ("B", "S"))]
    inputs += [*_caches(graph, model, "memory", "S"), *_caches(graph, model, "past", "P")]
    size = len(model.symbols("target"))
    outputs = [graph.value("logits", "float", ("B", "T", size)), *_caches(graph, model, "", "P + T")]
    return graph.model(inputs, outputs)


def _depth(model: Portable) -> int:
    config = model.config
    return config.num_layers if config.decoder_layers is None else config.decoder_layers


def _caches(graph: Graph, model: Portable, prefix: str, length: str) -> list[Any]:
    """Return the keys and values of all decoder layers as inputs or outputs."""
    heads = model.config.heads
    widths = {"key": heads.key_width, "value": heads.value_width}
    return [
        graph.value(f"{prefix}_{kind}_{number}".lstrip("_"), "float", ("B", heads.num_heads, length, width))
        for number in range(_depth(model))
        for kind, width in widths.items()
    ]
