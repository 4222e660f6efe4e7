"""Sampling continuations of prompts, with random numbers of each prompt's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from regard.config import SearchOptions, Struct, between
from regard.config.search_options import COLDEST, HOTTEST
from regard.data.budget import batches_by_length
from regard.data.ragged import Ragged
from regard.decoding.constraints import Demands
from regard.decoding.drawing import Draws, generator
from regard.decoding.hypothesis import never_stop
from regard.decoding.next_tokens import NextTokens
from regard.decoding.row_search import search_rows
from regard.decoding.torch_scores import TorchStepModel
from regard.errors import DecodeError
from regard.models.base import Seq2Seq


class SampleOptions(Struct, frozen=True):
    """How to sample. A low temperature and a small `top_k` keep to likely tokens."""

    temperature: float = 1.0  # logits are divided by it; 0: the likeliest token
    top_k: int | None = None  # only this many likeliest tokens are drawn from; None: all
    top_p: float | None = None  # only the likeliest tokens are, up to this sum of their probabilities
    epsilon: float | None = None  # only tokens of at least this probability are
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
        between(self, 0, 1, "top_p", "epsilon")
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
        found.append(generator(seed, seen[prompt], prompt))
        seen[prompt] += 1
    return found


@torch.inference_mode()
def _sample_batch(
    model: Seq2Seq,
    prompts: Sequence[Sequence[int]],
    randoms: Sequence[np.random.Generator],
    options: SampleOptions,
) -> list[list[int]]:
    stepped = TorchStepModel(model)
    memory = stepped.encode(Ragged.from_lists([[model.eos]] * len(prompts), stepped.device))
    limits = [len(prompt) + options.max_tokens for prompt in prompts]
    if model.max_length is not None:
        limits = [min(limit, model.max_length) for limit in limits]
    constraints = Demands.prefixes(prompts, eos=model.eos).constraints(limits)
    next_tokens = NextTokens(model, SearchOptions(beam=1, scores=False), constraints)
    results = search_rows(stepped, memory, limits, next_tokens, never_stop, Draws(randoms, options))
    found = {number: best[0].ids for some in results for number, best in some}
    return [[*prompt, *found[number][len(prompt) :]] for number, prompt in enumerate(prompts)]
