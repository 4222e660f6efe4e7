"""The dropout masks of our kernels, in plain PyTorch."""

import torch

BITS = 24


def kept(entries, seed, site, rate):
    """Return what `kernels.common.kept` returns for these entries (int64)."""

    def mix(h):
        h = h ^ (h >> 16)
        h = h * 0x7FEB352D & 0xFFFFFFFF
        h = h ^ (h >> 15)
        h = h * 0x846CA68B & 0xFFFFFFFF
        return h ^ (h >> 16)

    key = mix(torch.tensor((seed + site * 0x9E3779B9) & 0xFFFFFFFF))
    bits = mix((((entries & 0xFFFFFFFF) ^ key) * 0x9E3779B1 + key) & 0xFFFFFFFF)
    return (bits >> 8) >= round(rate * 2**BITS)


def mask(shape, seed, site, rate):
    """Return the mask of a tensor of this shape: entries are zero or 1 / (1 - rate)."""
    count = torch.Size(shape).numel()
    return kept(torch.arange(count), seed, site, rate).view(shape) / (1 - rate)


def weight_mask(num_heads, num_queries, num_keys, total_queries, seed, site, rate):
    """Return the mask of attention weights: [H, N, M]."""
    row = torch.arange(num_heads)[:, None] * total_queries + torch.arange(num_queries)
    entries = (row * 0x85EBCA6B & 0xFFFFFFFF)[:, :, None] + torch.arange(num_keys)
    return kept(entries, seed, site, rate) / (1 - rate)
