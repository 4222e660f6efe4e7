"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), in the paper's order and notation.

Plain PyTorch on padded batches, nothing clever: read it next to the paper. `regard.Transformer` is the fast version;
`tests/laws/test_paper.py` checks that the same weights give the same logits, loss and gradients in both.

    python examples/paper.py        trains a small model to reverse a sequence of digits

Shapes: B sentences, n source and m target positions, h heads, V vocabulary. Sizes are named as in the paper:
d_model, d_ff, d_k = d_v = d_model / h, N layers, P_drop. In a mask True means "may be attended to".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

PAD, BOS = 0, 1  # ids; there is no end of sentence here, because all toy targets are equally long


# 3.2.1 Scaled dot-product attention


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Equation 1: softmax(Q Kᵀ / √d_k) V. Without the scale, large d_k pushes the softmax to where its gradient vanishes."""
    d_k = Q.size(-1)
    scores = Q @ K.transpose(-2, -1) / math.sqrt(d_k)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)  # Figure 2, left: MatMul, Scale, Mask, SoftMax
    return weights @ V


# 3.2.2 Multi-head attention


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Figure 2, right)."""

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h = h
        # The matrices of all heads side by side: W^Q = [W_1^Q ... W_h^Q] and so on.
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        Q, K, V = (self._heads(W(x)) for W, x in ((self.W_Q, queries), (self.W_K, keys), (self.W_V, values)))
        heads = attention(Q, K, V, mask[:, None])  # the mask is the same for all heads
        concat = heads.transpose(1, 2).flatten(2)
        return self.W_O(concat)

    def _heads(self, x: Tensor) -> Tensor:
        """[B, n, d_model] to [B, h, n, d_k]."""
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)


# 3.3 Position-wise feed-forward networks


class FeedForward(nn.Module):
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(torch.relu(self.W_1(x)))


# 3.1 Encoder and decoder stacks (Figure 1)


class Sublayer(nn.Module):
    """LayerNorm(x + Sublayer(x)), with dropout on the sub-layer's output (section 5.4)."""

    def __init__(self, d_model: int, P_drop: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model, eps=1e-6), nn.Dropout(P_drop)

    def forward(self, x: Tensor, output: Tensor) -> Tensor:
        return self.norm(x + self.dropout(output))


class EncoderLayer(nn.Module):
    """Figure 1, left: self-attention, then feed-forward."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(Sublayer(d_model, P_drop) for _ in range(2))

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.attention(x, x, x, source_mask))
        return self.add_norm[1](x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Figure 1, right: masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(Sublayer(d_model, P_drop) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, x, x, target_mask))
        x = self.add_norm[1](x, self.cross_attention(x, memory, memory, source_mask))
        return self.add_norm[2](x, self.feed_forward(x))


# 3.5 Positional encoding


def positional_encoding(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same)."""
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    angles = pos / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


class Transformer(nn.Module):
    """Figure 1. Both embeddings and the output layer share one matrix (section 3.4)."""

    def __init__(
        self, V: int, *, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8, P_drop: float = 0.1
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Parameter(torch.empty(V, d_model).normal_(std=d_model**-0.5))
        self.encoder = nn.ModuleList(EncoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        self.dropout = nn.Dropout(P_drop)

    def embed(self, ids: Tensor) -> Tensor:
        """Embeddings times √d_model (section 3.4), plus positional encodings, then dropout (section 5.4)."""
        x = self.embedding[ids] * math.sqrt(self.d_model)
        return self.dropout(x + positional_encoding(ids.size(1), self.d_model).to(x))

    def encode(self, source: Tensor) -> Tensor:
        x, mask = self.embed(source), (source != PAD)[:, None, :]
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Logits of the token after each target prefix: [B, m, V]."""
        m = target.size(1)
        causal = torch.ones(m, m, dtype=torch.bool, device=target.device).tril()  # position i sees positions up to i
        target_mask, source_mask = causal & (target != PAD)[:, None, :], (source != PAD)[:, None, :]
        x = self.embed(target)
        for layer in self.decoder:
            x = layer(x, memory, target_mask, source_mask)
        return x @ self.embedding.T

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source), source)


# 5.3 Optimizer and 5.4 regularization


def learning_rate(step_num: int, *, d_model: int, warmup_steps: int) -> float:
    """Equation 3: linear growth for `warmup_steps`, then decay with the inverse square root of the step."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


def smoothed_loss(logits: Tensor, labels: Tensor, *, epsilon_ls: float = 0.1) -> Tensor:
    """Label-smoothed cross-entropy, summed over all tokens that are not padding."""
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=epsilon_ls, reduction="sum"
    )


def main(steps: int = 300) -> float:
    """Learn to reverse ten digits; the share of digits that greedy decoding gets right."""
    torch.manual_seed(1)
    model = Transformer(12, N=2, d_model=64, d_ff=128, h=4, P_drop=0.0)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, steps + 1):
        source = torch.randint(2, 12, (64, 10))
        labels = source.flip(1)
        target = torch.cat([torch.full((64, 1), BOS), labels[:, :-1]], dim=1)
        adam.param_groups[0]["lr"] = learning_rate(step, d_model=64, warmup_steps=100)
        loss = smoothed_loss(model(source, target), labels) / labels.numel()
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
    source, target = torch.randint(2, 12, (64, 10)), torch.full((64, 1), BOS)
    for _ in range(10):
        target = torch.cat([target, model(source, target)[:, -1:].argmax(dim=-1)], dim=1)
    right = (target[:, 1:] == source.flip(1)).float().mean().item()
    print(f"{100 * right:.1f} % of the digits of new sequences are right")
    return right


if __name__ == "__main__":
    main()
