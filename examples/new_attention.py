"""A new attention in one file: linear attention in the encoder, as a model family that recipes can name.

What you learn: how to replace one part of a model, register the result with `register_model`, and train it with
everything else unchanged. Linear attention (Katharopoulos et al. 2020) replaces the softmax by a feature map φ, so that its
cost grows with the length of a sentence and not with its square.

    python examples/new_attention.py        trains it on the toy task "copy", in seconds

Shapes: N tokens, D width, H heads, K head width, B sentences.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.models.encoder_decoder import TransformerConfig
from regard.models.transformer import PRESETS


class LinearAttention(nn.Module):
    """φ(Q) (φ(K)ᵀ V), normalized, with φ(x) = elu(x) + 1. It sees a sentence in both directions."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.project, self.output = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x_ND: Tensor, mask: regard.nn.AttentionMask) -> tuple[Tensor, Tensor]:
        """Return the output and the input, as sub-layers of an encoder layer do."""
        sentences_N, B = mask.queries.sentences, mask.queries.num_sentences
        q_NHK, k_NHK, v_NHK = self.project(x_ND).unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        q_NHK, k_NHK = F.elu(q_NHK) + 1, F.elu(k_NHK) + 1
        # Sums over the tokens of each sentence; there is no padding to mask.
        products_NHKK = k_NHK[..., :, None] * v_NHK[..., None, :]
        products_BHKK = products_NHKK.new_zeros(B, *products_NHKK.shape[1:]).index_add(0, sentences_N, products_NHKK)
        keys_BHK = k_NHK.new_zeros(B, *k_NHK.shape[1:]).index_add(0, sentences_N, k_NHK)
        mixed_NHK = (q_NHK[..., None, :] @ products_BHKK[sentences_N]).squeeze(-2)
        normalizer_NH1 = (q_NHK * keys_BHK[sentences_N]).sum(-1, keepdim=True)
        return self.output((mixed_NHK / normalizer_NH1).flatten(1)), x_ND


class LinearTransformer(regard.Transformer):
    """The Transformer with linear attention in its encoder."""

    def __init__(self, config: TransformerConfig | None = None, **sizes: Any) -> None:
        super().__init__(config, **sizes)
        for layer in self.encoder:
            attention = LinearAttention(self.config.width, self.config.num_heads)
            layer.register_module("attention", attention)  # in place of the one that was there

    @property
    def static_shapes(self) -> bool:
        return False  # the packed batches of a GPU are for regard's own attention


def main() -> float:
    regard.register_model("linear-transformer", regard.Family(TransformerConfig, LinearTransformer, PRESETS))
    options = (
        "model.width=64 model.num_layers=1 model.num_heads=4 model.hidden=128 model.dropout=0 model.norm_order=pre"
    )
    settings = "train.steps=250 train.tokens=256 train.lr=5e-3 train.validate_every=250 train.validate_pairs=100"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        overrides = ["model.kind=linear-transformer", *options.split(), *settings.split()]
        regard.train("copy", out=run, overrides=overrides)
        (result,) = regard.evaluate(run)
        outputs = regard.load(run).predict(["c a b d e"])
    print("c a b d e ->", outputs[0])
    errors = next(score.value for score in result.scores if score.name == "token_errors")
    print(f"{100 - errors:.1f} % of the letters of {result.num_pairs:,} new sequences are right")
    return 100 - errors


if __name__ == "__main__":
    main()
