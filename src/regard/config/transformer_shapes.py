"""The names and shapes of a Transformer's weights, without torch and without allocating them."""

from __future__ import annotations

from collections.abc import Iterator

from regard.config.transformer import EncoderConfig, TransformerConfig

CONV_TOKENS = 3  # that a convolution in place of a feed-forward layer reads

Shape = tuple[int, ...]


def transformer_shapes(config: TransformerConfig, *, source_size: int, target_size: int) -> dict[str, Shape]:
    """Return the shape of every parameter of a Transformer without copying, tied ones once."""
    assert not config.copy, "the parameters of copying are not listed here"
    shapes: dict[str, Shape] = {"target_embedding": (target_size, config.width)}
    if config.tie != "all":
        shapes["source_embedding"] = (source_size, config.width)
    if config.tie == "none":
        shapes["output"] = (target_size, config.width)
    if config.output_bias:
        shapes["output_bias"] = (target_size,)
    if config.positions == "learned":
        for side in ("source", "target"):
            shapes[f"{side}_positions.learned"] = (config.max_positions, config.width)
    for stack, layers in (("encoder", config.num_layers), ("decoder", config.depth)):
        for layer in range(layers):
            shapes.update((f"{stack}.{layer}.{name}", shape) for name, shape in _layer(config, stack == "decoder"))
        if config.has_final_norm:
            shapes.update(_norm(config, f"{stack}_norm"))
    return shapes


def _layer(config: EncoderConfig, decodes: bool) -> Iterator[tuple[str, Shape]]:
    heads, width = config.heads, config.width
    keys, values = heads.num_heads * heads.key_width, heads.num_heads * heads.value_width
    attentions = {"attention": {"project": 2 * keys + values}}
    if decodes:
        attentions["cross_attention"] = {"query": keys, "memory": keys + values}
    for name, projections in attentions.items():
        for projection, size in projections.items():
            yield from _linear(f"{name}.{projection}", size, width, bias=heads.bias)
        yield from _linear(f"{name}.output", width, values, bias=heads.bias)
        if heads.normed:
            yield from ((f"{name}.{one}_norm.weight", (heads.key_width,)) for one in ("query", "key"))
        yield from _norm(config, f"around_{name}.norm")
    read = CONV_TOKENS if config.feed_forward == "conv" else 1
    gated = 2 if config.feed_forward == "swiglu" else 1
    yield from _linear("feed_forward.inner", gated * config.hidden, read * width, bias=True)
    yield from _linear("feed_forward.outer", width, read * config.hidden, bias=True)
    yield from _norm(config, "around_feed_forward.norm")


def _linear(name: str, rows: int, columns: int, *, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if bias:
        yield f"{name}.bias", (rows,)


def _norm(config: EncoderConfig, name: str) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (config.width,)
    if config.norm == "layer":
        yield f"{name}.bias", (config.width,)
