"""What the exercise bug_language_model starts from."""

import math

import torch
from torch import Tensor, nn


def make_parameters(V: int, d_model: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return embeddings E, which the output layer shares, and the matrices of one layer of attention."""
    shapes = {"E": (V, d_model), "W_Q": (d_model, d_model), "W_K": (d_model, d_model), "W_V": (d_model, d_model)}
    made = {name: torch.randn(shape, generator=generator) * d_model**-0.5 for name, shape in shapes.items()}
    return {name: one.requires_grad_() for name, one in made.items()}


def inputs_and_labels(ids: Tensor, bos: int) -> tuple[Tensor, Tensor]:
    """Return what the model reads, [B, n], which begins with bos, and what it must predict at each position."""
    return nn.functional.pad(ids[:, :-1], (1, 0), value=bos), ids


def logits_of(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Return the logits of the word at each position, given the inputs up to that position: [B, n, V]."""
    E = parameters["E"]
    n, d_model = inputs.size(1), E.size(1)
    angles = torch.arange(n)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    x = E[inputs] * math.sqrt(d_model) + torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    mask = torch.ones(n, n, dtype=torch.bool).tril(diagonal=1)
    scores = (x @ parameters["W_Q"]) @ (x @ parameters["W_K"]).mT / math.sqrt(d_model)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    return (x + weights @ (x @ parameters["W_V"])) @ E.T


def loss_of(parameters: dict[str, Tensor], ids: Tensor, bos: int) -> Tensor:
    """Return the cross-entropy per word."""
    inputs, labels = inputs_and_labels(ids, bos)
    return nn.functional.cross_entropy(logits_of(parameters, inputs).flatten(0, 1), labels.flatten())


def continue_text(parameters: dict[str, Tensor], length: int, bos: int) -> list[int]:
    """Return the words that the model outputs when it begins with bos and always takes the likeliest."""
    ids = torch.tensor([[bos]])
    while ids.size(1) <= length:
        ids = torch.cat([ids, logits_of(parameters, ids)[:, -1:].argmax(dim=-1)], dim=1)
    return [int(one) for one in ids[0, 1:]]
