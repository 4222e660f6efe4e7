"""Straightforward implementations of the rivals from PyTorch's own modules: padded batches, no custom kernels.

Each has the shape of the corresponding model of ours, so that parameter counts agree.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from systems.padded import PaddedBatch, PaddedTrainer, draw_weights
from workload import PAD, Setup

MAX_POSITIONS = 1024
HALF = math.sqrt(0.5)


class Lstm(nn.Module):
    """nn.LSTM over nn.LSTM, Luong's general attention, one embedding for everything."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        E, D, self.layers = setup.width, 2 * setup.width, min(setup.layers, 2)
        self.embedding = nn.Embedding(setup.vocabulary, E)
        options = {"batch_first": True, "dropout": setup.dropout, "num_layers": self.layers}
        self.encoder = nn.LSTM(E, D // 2, bidirectional=True, **options)
        self.decoder = nn.LSTM(E, D, **options)
        self.bridge = nn.Linear(D, 2 * self.layers * D)
        self.general = nn.Linear(D, D, bias=False)
        self.readout = nn.Linear(2 * D, E)
        self.dropout = nn.Dropout(setup.dropout)

    def embed(self, ids_BT: Tensor) -> Tensor:
        vectors: Tensor = self.dropout(self.embedding(ids_BT) * math.sqrt(self.embedding.embedding_dim))
        return vectors

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor) -> Tensor:
        real_BS = source_BS != PAD
        packed = pack_padded_sequence(self.embed(source_BS), lengths_B, batch_first=True, enforce_sorted=False)
        out, (last, _) = self.encoder(packed)
        memory_BSD = self.dropout(pad_packed_sequence(out, batch_first=True)[0])
        first = torch.tanh(self.bridge(torch.cat([last[-2], last[-1]], dim=-1)))
        h, c = first.view(-1, 2, self.layers, memory_BSD.size(-1)).permute(1, 2, 0, 3).contiguous()
        states_BTD, _ = self.decoder(self.embed(target_BT), (h, c))
        scores_BTS = (states_BTD @ self.general(memory_BSD).transpose(1, 2)).masked_fill(~real_BS[:, None], -torch.inf)
        context_BTD = scores_BTS.softmax(-1) @ memory_BSD
        read_BTE = self.dropout(torch.tanh(self.readout(torch.cat([states_BTD, context_BTD], dim=-1))))
        return F.linear(read_BTE, self.embedding.weight)


class Convolutions(nn.Module):
    """ConvS2S on nn.Conv1d."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        E = setup.width
        self.embedding = nn.Embedding(setup.vocabulary, E)
        self.source_positions, self.target_positions = nn.Embedding(MAX_POSITIONS, E), nn.Embedding(MAX_POSITIONS, E)
        self.ends = nn.ModuleList(nn.Linear(E, E) for _ in range(4))  # into and out of encoder and decoder
        self.encoder = nn.ModuleList(nn.Conv1d(E, 2 * E, 3, padding=1) for _ in range(setup.layers))
        self.decoder = nn.ModuleList(nn.Conv1d(E, 2 * E, 3) for _ in range(setup.layers))
        self.queries = nn.ModuleList(nn.Linear(E, E) for _ in range(setup.layers))
        self.answers = nn.ModuleList(nn.Linear(E, E) for _ in range(setup.layers))
        self.dropout = nn.Dropout(setup.dropout)

    def embed(self, ids_BT: Tensor, positions: nn.Embedding) -> Tensor:
        places = torch.arange(ids_BT.size(1), device=ids_BT.device)
        scale = math.sqrt(self.embedding.embedding_dim)
        vectors: Tensor = self.dropout(self.embedding(ids_BT) * scale + positions(places))
        return vectors

    def forward(self, source_BS: Tensor, target_BT: Tensor, lengths_B: Tensor) -> Tensor:
        real_BS = source_BS != PAD
        e_BSE = self.embed(source_BS, self.source_positions)
        x = self.ends[0](e_BSE)
        for layer in self.encoder:
            gated = F.glu(layer((self.dropout(x) * real_BS[:, :, None]).transpose(1, 2)).transpose(1, 2))
            x = (gated + x) * HALF
        z_BSE = self.ends[1](x)
        values_BSE, root = (z_BSE + e_BSE) * HALF, real_BS.sum(1).sqrt()[:, None, None]
        g_BTE = self.embed(target_BT, self.target_positions)
        x = self.ends[2](g_BTE)
        for layer, query, answer in zip(self.decoder, self.queries, self.answers, strict=True):
            gated = F.glu(layer(F.pad(self.dropout(x).transpose(1, 2), (2, 0))).transpose(1, 2))
            scores = ((query(gated) + g_BTE) * HALF) @ z_BSE.transpose(1, 2)
            read = scores.masked_fill(~real_BS[:, None], -torch.inf).softmax(-1) @ values_BSE * root
            x = ((gated + answer(read)) * HALF + x) * HALF
        return F.linear(self.dropout(self.ends[3](x)), self.embedding.weight)


class Plain(PaddedTrainer):
    """One of these models, by name."""

    def __init__(self, *, family: str) -> None:
        super().__init__()
        self.family = family

    def build(self, setup: Setup) -> nn.Module:
        model = {"rnn": Lstm, "convs2s": Convolutions}[self.family](setup)
        draw_weights(model)
        return model

    def logits(self, batch: PaddedBatch) -> Tensor:
        logits: Tensor = self.model(batch.source, batch.target_in, batch.source_lengths)
        return logits
