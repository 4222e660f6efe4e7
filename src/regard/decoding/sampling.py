"""Sampling: each next token is drawn from the model's distribution, with random numbers of each prompt's own.

Shapes: R rows, V columns of the scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regard.config import Struct, between
from regard.data.batch_sampler import batches_by_length
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


def sample(
    model: Seq2Seq, prompts: Sequence[Sequence[int]], options: SampleOptions, *, budget: int = 8192
) -> list[list[int]]:
    """Return each prompt with its continuation, without EOS. The prompts are ids, and may be empty.

    A batch has prompts and continuations of at most `budget` tokens. A continuation does not depend on the other prompts,
    except that equal prompts have different ones.
    """
    randoms = _generators(prompts, options.seed)
    outputs: list[list[int]] = [[] for _ in prompts]
    for rows in batches_by_length([len(prompt) + options.max_tokens for prompt in prompts], budget):
        found = _sample_batch(model, [prompts[row] for row in rows], [randoms[row] for row in rows], options)
        for row, ids in zip(rows, found, strict=True):
            outputs[row] = ids
    return outputs


def _generators(prompts: Sequence[Sequence[int]], seed: int) -> list[np.random.Generator]:
    """Return a generator per prompt, which follows from the seed, the prompt, and how many equal ones come before it."""
    seen: Counter[tuple[int, ...]] = Counter()
    found = []
    for prompt in map(tuple, prompts):
        found.append(np.random.default_rng([seed, seen[prompt], len(prompt), *prompt]))
        seen[prompt] += 1
    return found


@torch.inference_mode()
def _sample_batch(
    model: Seq2Seq,
    prompts: Sequence[Sequence[int]],
    randoms: Sequence[np.random.Generator],
    options: SampleOptions,
) -> list[list[int]]:
    device = next(model.parameters()).device
    state = model.start(model.encode(Ragged.from_lists([[model.eos]] * len(prompts), device)), beams=1)
    limits = [len(prompt) + options.max_tokens for prompt in prompts]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    outputs, rows = [list(prompt) for prompt in prompts], list(range(len(prompts)))
    tokens = torch.full((len(rows),), model.bos, device=device)
    for step in range(max(limits, default=0)):
        logits_RV = model.step(tokens, state)
        forbid(model, logits_RV, eos=False)
        # A row draws no number while it reads its prompt.
        numbers = [0.0 if step < len(prompts[row]) else randoms[row].random() for row in rows]
        drawn = draw(logits_RV, options, torch.tensor(numbers, dtype=torch.float64, device=device)).tolist()
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


def draw(logits_RV: Tensor, options: SampleOptions, numbers_R: Tensor) -> Tensor:
    """Return a token per row, [R], given a random number from 0 to 1 for each, in float64."""
    if options.temperature == 0 or options.top_k == 1:
        return logits_RV.argmax(dim=-1)
    logits_RV = logits_RV.double() / options.temperature
    if options.top_k is not None and options.top_k < logits_RV.size(1):
        least_R1 = logits_RV.topk(options.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, IMPOSSIBLE)
    # The first token up to which the probabilities add up to more than the number.
    sums_RV = logits_RV.softmax(dim=-1).cumsum(dim=-1)
    bounds_R1 = (numbers_R * (1 - 1e-12) * sums_RV[:, -1])[:, None]
    return torch.searchsorted(sums_RV, bounds_R1, right=True)[:, 0]
