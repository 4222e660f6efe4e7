"""Sampling: each next token is drawn from the model's distribution.

Shapes: R rows, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.config import Struct, between
from regard.data.ragged import Ragged
from regard.decoding.ranking import IMPOSSIBLE, forbid
from regard.errors import DecodeError
from regard.models.base import Seq2Seq

COLDEST, HOTTEST = 0.01, 100  # temperatures; below, logits divided by them may exceed what float32 can hold


class SampleOptions(Struct, frozen=True):
    """How to sample. A low temperature and a small `top_k` keep to likely tokens."""

    temperature: float = 1.0  # logits are divided by it; 0: the likeliest token
    top_k: int | None = None  # only this many likeliest tokens are drawn from; None: all
    max_tokens: int = 100  # most tokens that are added to a prompt
    seed: int = 1

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ValueError as error:
            raise DecodeError(str(error)) from error

    def check(self) -> None:
        if self.temperature and not COLDEST <= self.temperature <= HOTTEST:
            raise ValueError(f"temperature is {self.temperature}; it must be 0, or from {COLDEST} to {HOTTEST}")
        between(self, 1, 10_000_000, "top_k")
        between(self, 1, 100_000, "max_tokens")
        between(self, 0, 2**53, "seed")


@torch.inference_mode()
def sample(model: Seq2Seq, prompts: Sequence[Sequence[int]], options: SampleOptions) -> list[list[int]]:
    """Return each prompt with its continuation, without EOS. The prompts are ids, and may be empty."""
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(options.seed)
    state = model.start(model.encode(Ragged.from_lists([[model.eos]] * len(prompts), device)), beams=1)
    limits = [len(prompt) + options.max_tokens for prompt in prompts]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    outputs, rows = [list(prompt) for prompt in prompts], list(range(len(prompts)))
    tokens = torch.full((len(rows),), model.bos, device=device)
    for step in range(max(limits, default=0)):
        logits_RV = model.step(tokens, state)
        forbid(model, logits_RV, eos=False)
        drawn = draw(logits_RV, options, generator).tolist()
        going: list[int] = []  # places among the rows
        for place, row in enumerate(rows):
            if step < len(prompts[row]):
                drawn[place] = prompts[row][step]
            elif drawn[place] == model.eos or step >= limits[row]:
                continue
            else:
                outputs[row].append(drawn[place])
            going.append(place)
        if not going:
            break
        tokens = torch.tensor([drawn[place] for place in going], device=device)
        if len(going) < len(rows):
            state.reorder(torch.tensor(going, device=device))
            rows = [rows[place] for place in going]
    return outputs


def draw(logits_RV: Tensor, options: SampleOptions, generator: torch.Generator) -> Tensor:
    """Return a token per row: [R]."""
    if options.temperature == 0 or options.top_k == 1:
        return logits_RV.argmax(dim=-1)
    logits_RV = logits_RV.float() / options.temperature
    if options.top_k is not None and options.top_k < logits_RV.size(1):
        least_R1 = logits_RV.topk(options.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, IMPOSSIBLE)
    return torch.multinomial(logits_RV.softmax(dim=-1), 1, generator=generator)[:, 0]
