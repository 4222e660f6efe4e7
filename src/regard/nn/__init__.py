"""Attention and the layers around it, as PyTorch modules.

They accept an ordinary padded tensor [B, T, D] with a boolean mask [B, T] (True for real tokens), or a `Ragged` batch
without padding, and return the form they were given. See `nn.sequences`.

>>> import torch
>>> from regard.nn import TransformerEncoderLayer
>>> layer = TransformerEncoderLayer(64, heads=4, hidden=128)
>>> x, lengths = torch.randn(2, 5, 64), torch.tensor([5, 3])
>>> layer(x, torch.arange(5) < lengths[:, None]).shape
torch.Size([2, 5, 64])
"""

from __future__ import annotations

from regard.config.transformer import HeadShape
from regard.data.ragged import Layout, Ragged
from regard.nn.attend import AttentionMask
from regard.nn.attention import MultiHeadAttention
from regard.nn.attention_log import AttentionLog, capture_attention
from regard.nn.cross_entropy import label_smoothed_cross_entropy, linear_cross_entropy
from regard.nn.dropout import Dropout, Noise
from regard.nn.feedforward import FeedForward
from regard.nn.layers import TransformerDecoderLayer, TransformerEncoderLayer
from regard.nn.norms import Norm
from regard.nn.positions import Positions, Rotation, sinusoids
from regard.nn.sequences import to_padded, to_ragged

__all__ = [
    "AttentionLog",
    "AttentionMask",
    "Dropout",
    "FeedForward",
    "HeadShape",
    "Layout",
    "MultiHeadAttention",
    "Noise",
    "Norm",
    "Positions",
    "Ragged",
    "Rotation",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "capture_attention",
    "label_smoothed_cross_entropy",
    "linear_cross_entropy",
    "sinusoids",
    "to_padded",
    "to_ragged",
]
