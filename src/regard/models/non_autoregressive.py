"""What the non-autoregressive Transformers share.

Shapes: N target tokens, B sentences, C candidates per sentence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError
from regard.models.base import Output
from regard.models.encoder_decoder import TransformerConfig
from regard.text.tokenizer import BOS, EOS


def refuse_causal_layers(config: TransformerConfig) -> None:
    """Raise ConfigError for options that need a decoder which only looks back: this one attends in both directions."""
    if config.copy:
        raise ConfigError("model.copy is for models that output one token after another; remove it")
    if config.start_id != BOS or not config.source_eos:
        raise ConfigError("model.start_id and source_eos are for models that output token by token; remove them")
    if config.feed_forward == "conv":
        raise ConfigError(
            "model.feed_forward is 'conv', which looks back only in a decoder; set relu, gelu, silu or swiglu"
        )


def refuse_unused_embedding(config: TransformerConfig) -> None:
    """Raise ConfigError if a decoder that reads no target tokens would have an embedding of its own for them."""
    if config.tie == "none":
        raise ConfigError("model.tie is 'none', but this decoder reads no target words; set model.tie=target")


def repeated(memory: Ragged, count: int) -> Ragged:
    """Return `count` copies of each sentence, next to each other."""
    if count == 1:
        return memory
    parts = [part for part in memory.split() for _ in range(count)]
    lengths = [length for length in memory.layout.lengths for _ in range(count)]
    return Ragged(torch.cat(parts), Layout(lengths, memory.layout.device))


def ranked_outputs(tokens_N: Tensor, logp_N: Tensor, layout: Layout, count: int) -> list[list[Output]]:
    """Return the `count` candidates of each sentence, best first. An output ends before its first EOS."""
    outputs = []
    for tokens, logp in zip(Ragged(tokens_N, layout).split(), Ragged(logp_N, layout).split(), strict=True):
        ids = tokens.tolist()
        ids = ids[: ids.index(EOS)] if EOS in ids else ids
        outputs.append(Output(ids, logp.mean().item()))
    return [sorted(outputs[at : at + count], key=lambda one: -one.score) for at in range(0, len(outputs), count)]
