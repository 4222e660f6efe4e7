"""torch.nn.Transformer: the module that ships with PyTorch, with the embeddings around it that its tutorial adds."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from systems.padded import PaddedBatch, PaddedTrainer, draw_weights
from workload import PAD, Setup

WINDOW = 8  # of restricted attention


def sinusoids(positions: int, width: int) -> Tensor:
    """Sines in the even columns, cosines in the odd ones (Vaswani et al. 2017, 3.5)."""
    angles = torch.arange(positions)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


class Translator(nn.Module):
    """One embedding for source, target and output around nn.Transformer."""

    positions: Tensor
    causal: Tensor
    far: Tensor

    def __init__(self, setup: Setup, window: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(setup.vocabulary, setup.width, padding_idx=PAD)
        self.transformer = nn.Transformer(
            setup.width, setup.heads, setup.layers, setup.layers, setup.hidden, setup.dropout, batch_first=True
        )
        self.dropout = setup.dropout
        self.register_buffer("positions", sinusoids(setup.longest + 1, setup.width), persistent=False)
        causal = nn.Transformer.generate_square_subsequent_mask(setup.longest + 1)
        self.register_buffer("causal", causal, persistent=False)
        places = torch.arange(setup.longest + 1)
        far = (places[:, None] - places).abs() > (setup.longest if window is None else window)
        self.windowed = window is not None
        self.register_buffer("far", far, persistent=False)
        if window is not None:
            self.causal = causal.masked_fill(far, -torch.inf)
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
        S, T = source_BS.size(1), target_BT.size(1)
        # No padding mask for the target: padding is last, so no real token attends to it under the causal mask, and
        # without one the module uses the causal kernel instead of an explicit mask.
        states_BTD = self.transformer(
            self.embed(source_BS),
            self.embed(target_BT),
            src_mask=self.far[:S, :S] if self.windowed else None,
            tgt_mask=self.causal[:T, :T],
            tgt_is_causal=not self.windowed,
            src_key_padding_mask=padding_BS,
            memory_key_padding_mask=padding_BS,
        )
        return F.linear(states_BTD, self.embedding.weight)


class NnTransformer(PaddedTrainer):
    def __init__(self, *, compiled: bool = False, family: str = "transformer") -> None:
        super().__init__(compiled=compiled)
        self.window = WINDOW if family == "window" else None

    def build(self, setup: Setup) -> nn.Module:
        model = Translator(setup, self.window)
        draw_weights(model)
        return model

    def logits(self, batch: PaddedBatch) -> Tensor:
        logits: Tensor = self.model(batch.source, batch.target_in)
        return logits
