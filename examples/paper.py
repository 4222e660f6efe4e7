"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), in the paper's order and notation.

Read it next to the paper: it is plain PyTorch on padded batches. `regard.Transformer` is the fast version, and the same
weights give the same logits, loss and gradients in both (tests/laws/test_paper.py).

    python examples/paper.py        train a small model to copy sentences, and test it on new ones (ten seconds on a CPU)

Sizes have the paper's names: N layers, d_model, d_ff, h heads, d_k = d_v = d_model / h, P_drop. V is the vocabulary size.
Shapes: B sentences, n source positions, m target positions. In a mask, True means "may be attended to".
"""

import math

import torch
from torch import Tensor, nn

PAD, BOS, EOS = 0, 1, 2  # ids of padding, and of the beginning and the end of a sentence

# 3.1 Encoder and decoder stacks (Figure 1)


class EncoderLayer(nn.Module):
    """Figure 1, left: self-attention, then a feed-forward network."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        x = self.add_norm[0](x, self.self_attention(x, x, x, source_mask))
        return self.add_norm[1](x, self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Figure 1, right: masked self-attention, attention to the encoder's output, then a feed-forward network."""

    def __init__(self, d_model: int, d_ff: int, h: int, P_drop: float) -> None:
        super().__init__()
        self.self_attention, self.cross_attention = MultiHeadAttention(d_model, h), MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(self, y: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor) -> Tensor:
        y = self.add_norm[0](y, self.self_attention(y, y, y, target_mask))
        y = self.add_norm[1](y, self.cross_attention(y, memory, memory, source_mask))
        return self.add_norm[2](y, self.feed_forward(y))


class AddNorm(nn.Module):
    """Around each sub-layer: LayerNorm(x + Sublayer(x)), with dropout on the sub-layer's output (section 5.4)."""

    def __init__(self, d_model: int, P_drop: float) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model, eps=1e-6), nn.Dropout(P_drop)

    def forward(self, x: Tensor, sublayer_of_x: Tensor) -> Tensor:
        return self.norm(x + self.dropout(sublayer_of_x))


# 3.2 Attention


def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
    """Section 3.2.1, equation 1 and Figure 2, left: softmax(Q Kᵀ / √d_k) V, over the positions that the mask allows."""
    d_k = Q.size(-1)
    scores = Q @ K.mT / math.sqrt(d_k)  # unscaled, they would grow with d_k to where the softmax has tiny gradients
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return weights @ V


class MultiHeadAttention(nn.Module):
    """Section 3.2.2 and Figure 2, right: Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)."""

    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h = h
        # One matrix holds the matrices of all heads: W^Q = [W_1^Q ... W_h^Q], and so on.
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> Tensor:
        projected = self.W_Q(Q), self.W_K(K), self.W_V(V)
        split = (x.unflatten(-1, (self.h, -1)).transpose(1, 2) for x in projected)  # [B, n, d_model] to [B, h, n, d_k]
        heads = attention(*split, mask[:, None])
        return self.W_O(heads.transpose(1, 2).flatten(2))


def mask_of(ids: Tensor, *, causal: bool = False) -> Tensor:
    """No position attends to padding, and a causal one attends to none after itself (section 3.2.3): [B, 1 or n, n]."""
    real, n = (ids != PAD)[:, None, :], ids.size(1)
    return real & torch.ones(n, n, dtype=torch.bool, device=ids.device).tril() if causal else real


# 3.3 Position-wise feed-forward networks


class FeedForward(nn.Module):
    """Equation 2: FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, the same at every position."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.W_2(torch.relu(self.W_1(x)))


# 3.5 Positional encoding


def positional_encoding(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)): [length, d_model]."""
    pos, two_i = torch.arange(length, dtype=torch.float64)[:, None], torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = pos / 10000 ** (two_i / d_model)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


# 3 Model architecture (Figure 1), with the base model's sizes (Table 3)


class Transformer(nn.Module):
    """The whole model. Section 3.4: both embeddings and the output layer share one matrix E."""

    def __init__(
        self, V: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8, P_drop: float = 0.1
    ) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(EncoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, d_ff, h, P_drop) for _ in range(N))
        for matrix in (one for one in self.parameters() if one.dim() == 2):
            nn.init.xavier_uniform_(matrix)  # the authors' code does; the paper does not say
        self.E = nn.Parameter(torch.empty(V, d_model).normal_(std=d_model**-0.5))
        self.dropout = nn.Dropout(P_drop)

    def embed(self, ids: Tensor) -> Tensor:
        """Section 3.4: embeddings times √d_model. Section 3.5: plus positional encodings. Section 5.4: then dropout."""
        x = self.E[ids] * math.sqrt(self.E.size(1))
        return self.dropout(x + positional_encoding(*x.shape[1:]).to(x))

    def encode(self, source: Tensor) -> Tensor:
        x, source_mask = self.embed(source), mask_of(source)
        for layer in self.encoder:
            x = layer(x, source_mask)
        return x

    def decode(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Return the logits of the token that follows each target position: [B, m, V]. Figure 1 takes their softmax."""
        y, target_mask, source_mask = self.embed(target), mask_of(target, causal=True), mask_of(source)
        for layer in self.decoder:
            y = layer(y, memory, target_mask, source_mask)
        return y @ self.E.T

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(target, self.encode(source), source)


# 5 Training


def lrate(step_num: int, *, d_model: int, warmup_steps: int) -> float:
    """Equation 3: linear growth for `warmup_steps`, then decay with the inverse square root of the step."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


def smoothed_loss(logits: Tensor, labels: Tensor, *, epsilon_ls: float) -> Tensor:
    """Section 5.4: label-smoothed cross-entropy, summed over all labels that are not padding."""
    return nn.functional.cross_entropy(logits.mT, labels, ignore_index=PAD, label_smoothing=epsilon_ls, reduction="sum")


def random_sentences(B: int, *, longest: int, V: int) -> Tensor:
    """Random words, EOS, and padding up to a common length: [B, longest + 1]."""
    words, length = torch.randint(3, V, (B, longest + 1)), torch.randint(1, longest + 1, (B, 1))
    return words.masked_fill(torch.arange(longest + 1) > length, PAD).scatter(1, length, EOS)


def main(steps: int = 350, V: int = 8, longest: int = 4) -> float:
    """Train a model to copy, then copy new sentences greedily. Return the share of sentences without any error."""
    torch.manual_seed(1)
    model = Transformer(V, N=1, d_model=64, d_ff=128, h=2, P_drop=0.0)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)  # section 5.3
    for step in range(1, steps + 1):
        source = labels = random_sentences(32, longest=longest, V=V)
        target = nn.functional.pad(labels[:, :-1], (1, 0), value=BOS)  # section 3.1: shifted right by one position
        loss = smoothed_loss(model(source, target), labels, epsilon_ls=0.1) / (labels != PAD).sum()
        adam.param_groups[0]["lr"] = lrate(step, d_model=64, warmup_steps=1000)
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 50 == 0:
            print(f"step {step}: loss per token {loss.item():.3f}")
    source, written = random_sentences(200, longest=longest, V=V), torch.full((200, 1), BOS)
    while written.size(1) <= source.size(1):  # one more token, the likeliest after what is written
        written = torch.cat([written, model(source, written)[:, -1:].argmax(dim=-1)], dim=1)
    right = ((written[:, 1:] == source) | (source == PAD)).all(dim=1).double().mean().item()
    print(f"{right:.0%} of 200 new sentences are copied without an error")
    return right


if __name__ == "__main__":
    main()
