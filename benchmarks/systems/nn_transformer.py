"""torch.nn.Transformer: the module that ships with PyTorch, with the embeddings around it that its tutorial adds."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from systems.padded import PaddedBatch, PaddedTrainer, draw_weights
from workload import PAD, Setup


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines in the even columns, cosines in the odd ones (Vaswani et al. 2017, 3.5)."""
    angles = torch.arange(positions)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


class Translator(nn.Module):
    """One embedding for source, target and output around nn.Transformer."""

    positions: Tensor
    causal: Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.embedding = nn.Embedding(setup.vocabulary, setup.width, padding_idx=PAD)
        self.transformer = nn.Transformer(
            setup.width, setup.heads, setup.layers, setup.layers, setup.hidden, setup.dropout, batch_first=True
        )
        self.dropout = setup.dropout
        self.register_buffer("positions", sinusoids(setup.longest + 1, setup.width), persistent=False)
        causal = nn.Transformer.generate_square_subsequent_mask(setup.longest + 1)
        self.register_buffer("causal", causal, persistent=False)
        # Dropout on residuals and embeddings only, as in the paper and in the other systems: dropout on the attention
        # weights would also keep this peer from its fused attention kernels.
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, ids_BT: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.embedding_dim)
        vectors_BTD = self.embedding(ids_BT) * scale + self.positions[: ids_BT.size(1)]
        return F.dropout(vectors_BTD, self.dropout, self.training)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        padding_BS = source_BS == PAD
        T = target_BT.size(1)
        # No padding mask for the target: padding is last, so no real token looks at it under the causal mask, and
        # without one the module takes the causal kernel instead of a written-out mask.
        states_BTD = self.transformer(
            self.embed(source_BS),
            self.embed(target_BT),
            tgt_mask=self.causal[:T, :T],
            tgt_is_causal=True,
            src_key_padding_mask=padding_BS,
            memory_key_padding_mask=padding_BS,
        )
        return F.linear(states_BTD, self.embedding.weight)


class NnTransformer(PaddedTrainer):
    def build(self, setup: Setup) -> nn.Module:
        model = Translator(setup)
        draw_weights(model)
        return model

    def logits(self, batch: PaddedBatch) -> Tensor:
        logits: Tensor = self.model(batch.source, batch.target_in)
        return logits
