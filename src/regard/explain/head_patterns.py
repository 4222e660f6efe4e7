"""Where each head attends, on average: to how many positions (entropy), and how far away (distance).

Both are means over all queries of all sentences. They describe what a head does, and not whether its output matters: that
is `head_importance`. Clark et al. (2019, "What does BERT look at?") and Voita et al. (2019) describe heads with them.

Shapes: H heads, Q queries, S keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.batch import shift_right
from regard.explain.head_gates import Head, attention_layers
from regard.explain.head_importance import Examples, Report
from regard.models.base import Seq2Seq
from regard.nn.attention_log import capture_attention


def attention_entropy(weights_HQS: Tensor) -> Tensor:
    """Return the entropy of each query's weights, in nats: [H, Q]. It is ln n if n keys have equal weights."""
    return torch.special.entr(weights_HQS).sum(dim=-1)


def attention_distance(weights_HQS: Tensor) -> Tensor:
    """Return the mean |query position - key position| of each query's weights: [H, Q]. Both must be of one sequence."""
    positions_S = torch.arange(weights_HQS.size(2))
    apart_QS = (torch.arange(weights_HQS.size(1))[:, None] - positions_S).abs()
    return (weights_HQS * apart_QS).sum(dim=-1)


@torch.inference_mode()
def attention_patterns(
    model: Seq2Seq, examples: Examples, report: Report
) -> tuple[dict[Head, float], dict[Head, float]]:
    """Return the mean entropy of each head, and the mean distance of each head of self-attention.

    Encoder-decoder attention has no distance: its queries and keys are positions of two languages. The decoder reads BOS and
    the output so far, so a query's own position is the token before the one that it predicts.
    """
    layers = attention_layers(model)
    queries = dict.fromkeys(layers, 0)
    entropies = {layer: torch.zeros(len(layer.heads), dtype=torch.float64) for layer in layers}
    distances = {layer: torch.zeros_like(entropies[layer]) for layer in layers if layer.attention != "encoder-decoder"}
    done = 0
    for source, labels in examples.batches():
        report("attention", done, len(examples.sources))
        with capture_attention() as log:
            model.decode(shift_right(labels, model.bos), model.encode(source))
        for layer in layers:
            for weights in log.calls[layer.module][0]:
                weights_HQS = weights.double()
                queries[layer] += weights_HQS.size(1)
                entropies[layer] += attention_entropy(weights_HQS).sum(dim=1)
                if layer in distances:
                    distances[layer] += attention_distance(weights_HQS).sum(dim=1)
        done += source.layout.num_sentences
    entropy, distance = (
        {
            head: value / queries[layer]
            for layer, sums in every.items()
            for head, value in zip(layer.heads, sums.tolist(), strict=True)
        }
        for every in (entropies, distances)
    )
    return entropy, distance
