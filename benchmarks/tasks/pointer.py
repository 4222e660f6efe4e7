"""Pointer networks of plain PyTorch on padded batches: `nn.LSTM` and `nn.LSTMCell`, or `nn.Transformer` layers.

Shapes: B instances, S longest input, T longest output, V = S + 1 outputs (0: the end), D width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.pointer import PointerConfig
from regard.models.pointer_lstm import PointerLstmConfig


def point(scores_BTV: Tensor, lengths: Tensor, labels_BT: Tensor) -> Tensor:
    """Return the loss of the scores, without those of padded inputs."""
    padding_BV = torch.arange(scores_BTV.size(2), device=scores_BTV.device) > lengths[:, None]
    logits = scores_BTV.float().masked_fill(padding_BV[:, None], float("-inf"))
    return F.cross_entropy(logits.flatten(0, 1), labels_BT.flatten(), ignore_index=NO_LABEL, reduction="sum")


class PlainPointerLstm(nn.Module):
    """An LSTM encoder, and a loop over an LSTM cell with additive attention."""

    def __init__(self, config: PointerLstmConfig, input_width: int) -> None:
        super().__init__()
        E, D = config.width, config.hidden
        self.input = nn.Linear(input_width, E)
        self.encoder = nn.LSTM(E, D, config.num_layers, batch_first=True, dropout=config.dropout)
        self.decoder, self.bridge = nn.LSTMCell(E, D), nn.Linear(D, 2 * D)
        self.start, self.end = nn.Parameter(torch.randn(E) * E**-0.5), nn.Parameter(torch.randn(D) * D**-0.5)
        self.key, self.query, self.v = nn.Linear(D, D, bias=False), nn.Linear(D, D), nn.Linear(D, 1, bias=False)

    def forward(self, points_BSW: Tensor, lengths: Tensor, inputs_BT: Tensor, labels_BT: Tensor) -> Tensor:
        x_BSE = self.input(points_BSW)
        packed = pack_padded_sequence(x_BSE, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, (last, _) = self.encoder(packed)
        encoded_BSD, _ = pad_packed_sequence(out, batch_first=True, total_length=x_BSE.size(1))
        B = len(x_BSE)
        keys_BVD = torch.cat([self.end.expand(B, 1, -1), self.key(encoded_BSD)], dim=1)
        read_BVE = torch.cat([self.start.expand(B, 1, -1).to(x_BSE.dtype), x_BSE], dim=1)
        h, c = torch.tanh(self.bridge(last[-1])).chunk(2, dim=-1)
        state, scores = (h, c), []
        for step in range(inputs_BT.size(1)):
            x_BE = read_BVE[torch.arange(B, device=x_BSE.device), inputs_BT[:, step]]
            state = self.decoder(x_BE, state)
            scores.append(self.v(torch.tanh(self.query(state[0])[:, None] + keys_BVD)).squeeze(-1))
        return point(torch.stack(scores, dim=1), lengths, labels_BT)


class PlainPointer(nn.Module):
    """Transformer layers of PyTorch, and a product for the pointer."""

    def __init__(self, config: PointerConfig, input_width: int) -> None:
        super().__init__()
        D, depth = config.width, config.num_layers if config.decoder_layers is None else config.decoder_layers
        options = {"batch_first": True, "norm_first": config.norm_order == "pre", "dropout": config.dropout}
        self.config, self.input = config, nn.Linear(input_width * (1 + 2 * config.frequencies), D)
        encoder = nn.TransformerEncoderLayer(D, config.num_heads, config.hidden, **options)
        decoder = nn.TransformerDecoderLayer(D, config.num_heads, config.hidden, **options)
        self.encoder = nn.TransformerEncoder(encoder, config.num_layers, nn.LayerNorm(D), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(decoder, depth, nn.LayerNorm(D))
        self.start, self.end = nn.Parameter(torch.randn(D) * D**-0.5), nn.Parameter(torch.randn(D) * D**-0.5)
        self.key, self.query = nn.Linear(D, D, bias=False), nn.Linear(D, D, bias=False)

    def forward(self, points_BSW: Tensor, lengths: Tensor, inputs_BT: Tensor, labels_BT: Tensor) -> Tensor:
        scale = math.pi * 2.0 ** torch.arange(self.config.frequencies, device=points_BSW.device)
        angles = (points_BSW[..., None] * scale).flatten(2)
        x_BSD = self.input(torch.cat([points_BSW, angles.sin(), angles.cos()], dim=-1))
        padding_BS = torch.arange(x_BSD.size(1), device=x_BSD.device) >= lengths[:, None]
        encoded_BSD = self.encoder(x_BSD, src_key_padding_mask=padding_BS)
        B, T = inputs_BT.shape
        read_BVD = torch.cat([self.start.expand(B, 1, -1).to(encoded_BSD.dtype), encoded_BSD], dim=1)
        x_BTD = read_BVD.gather(1, inputs_BT[:, :, None].expand(-1, -1, read_BVD.size(2)))
        future_TT = torch.ones(T, T, dtype=torch.bool, device=x_BTD.device).triu(1)
        hidden_BTD = self.decoder(x_BTD, encoded_BSD, tgt_mask=future_TT, memory_key_padding_mask=padding_BS)
        keys_BSD = self.key(encoded_BSD)
        keys_BVD = torch.cat([self.end.expand(B, 1, -1).to(keys_BSD.dtype), keys_BSD], dim=1)
        scores_BTV = self.query(hidden_BTD) @ keys_BVD.transpose(1, 2) / math.sqrt(keys_BVD.size(-1))
        return point(scores_BTV, lengths, labels_BT)


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the network that the recipe describes, for inputs of numbers."""
    _, config = model_config(recipe.model)
    if isinstance(config, PointerLstmConfig):
        return PlainPointerLstm(config, sizes["input_width"])
    assert isinstance(config, PointerConfig), "the recipe's model is not a pointer network"
    return PlainPointer(config, sizes["input_width"])


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return numbers [B, S, W], lengths [B], what the decoder reads [B, T] and labels [B, T]."""
    assert batch.target is not None
    source, written = batch.source.layout, batch.target.layout
    points = source.pad(batch.source.values).masked_fill(~source.mask[:, :, None], 0.0)
    inputs = written.pad(batch.target.values).masked_fill(~written.mask, 0)
    labels = written.pad(batch.labels.values).masked_fill(~written.mask, NO_LABEL)
    return points, torch.tensor(source.lengths), inputs, labels
