"""Models of PyTorch as search steps them: logits stay on their device, which ranks them.

Shapes: B sentences, R rows, V columns of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.ragged import Ragged
from regard.decoding.hypothesis import IMPOSSIBLE
from regard.decoding.ranking import Ranking
from regard.decoding.shortlist_model import with_shortlist
from regard.decoding.step_model import Chosen, Distribution, Floats, Integers
from regard.models.base import Seq2Seq

FEW_COLUMNS = 2  # that are made impossible one by one


@lru_cache(maxsize=64)
def _on_device(columns: tuple[int, ...], device: torch.device) -> Tensor:
    """Return columns as a tensor. Searches have the same ones in every step."""
    # Not one of inference mode, because it outlives this search.
    with torch.inference_mode(False):
        return torch.tensor(columns, device=device)


class TorchScores:
    """The logits of one step in a tensor, [R, V]."""

    def __init__(self, logits_RV: Tensor, eos: int) -> None:
        self.logits, self.eos = logits_RV, eos
        self.ranking: Ranking | None = None

    def __len__(self) -> int:
        return len(self.logits)

    def repeat(self, times: int) -> TorchScores:
        return TorchScores(self.logits.repeat_interleave(times, dim=0), self.eos)

    def prepare(self, *, normalized: bool) -> None:
        self.ranking = Ranking(self.logits, normalized=normalized)

    def ban_columns(self, columns: Sequence[int]) -> None:
        if len(columns) <= FEW_COLUMNS:
            for column in columns:
                self.logits.select(1, column).fill_(IMPOSSIBLE)
        else:
            self.logits.index_fill_(1, _on_device(tuple(columns), self.logits.device), IMPOSSIBLE)

    def ban_rows(self, rows: Sequence[int]) -> None:
        self.logits[torch.tensor(rows)] = IMPOSSIBLE

    def ban(self, rows: Sequence[int] | Integers, columns: Sequence[int] | Integers) -> None:
        self.logits[torch.as_tensor(rows), torch.as_tensor(columns)] = IMPOSSIBLE

    def take(self, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
        return self.logits[torch.tensor(rows), torch.tensor(columns)]

    def put(self, rows: Sequence[int], columns: Sequence[int], values: Tensor) -> None:
        self.logits[torch.tensor(rows), torch.tensor(columns)] = values

    def likeliest(self) -> list[int]:
        found: list[int] = self.logits.argmax(dim=-1).tolist()
        return found

    def choose(self) -> Chosen:
        assert self.ranking is not None, "prepare() comes first"
        normalizer = self.ranking.normalizer
        minus_R = self.logits.new_zeros(len(self)) if normalizer is None else -normalizer
        best_R1, tokens_R1, _ = self.ranking.best(minus_R, beams=1, count=1, filler=self.eos)
        return self._chosen(tokens_R1[:, 0], None if normalizer is None else best_R1[:, 0])

    def draw(self, options: Distribution, numbers: NDArray[np.float64]) -> Chosen:
        tokens_R = draw(self.logits, options, torch.from_numpy(numbers).to(self.logits.device))
        normalizer = None if self.ranking is None else self.ranking.normalizer
        if normalizer is None:
            return self._chosen(tokens_R, None)
        return self._chosen(tokens_R, self.logits.gather(1, tokens_R[:, None])[:, 0] - normalizer)

    @staticmethod
    def _chosen(tokens_R: Tensor, logp_R: Tensor | None) -> Chosen:
        return Chosen(tokens_R.cpu().numpy(), None if logp_R is None else logp_R.float().cpu().numpy(), tokens_R)

    def best(self, logp: Tensor, *, beams: int, count: int, filler: int) -> tuple[Floats, Integers, Integers]:
        scores, tokens, rows = self._ranking().best(self._more(logp), beams=beams, count=count, filler=filler)
        return scores.float().cpu().numpy(), tokens.cpu().numpy(), rows.cpu().numpy()

    def continued(self, logp: Tensor, rows: Sequence[int], tokens: Sequence[int]) -> list[float]:
        rows_P = torch.tensor(rows, device=self.logits.device)
        tokens_P = torch.tensor(tokens, device=self.logits.device)
        found: list[float] = (self.logits[rows_P, tokens_P].float() + self._more(logp)[rows_P]).tolist()
        return found

    def _more(self, logp_R: Tensor) -> Tensor:
        """Return what is added to the logits of each row, [R]."""
        normalizer = self._ranking().normalizer
        assert normalizer is not None, "prepare(normalized=True) comes first"
        return logp_R - normalizer

    def _ranking(self) -> Ranking:
        assert self.ranking is not None, "prepare() comes first"
        return self.ranking


class TorchStepModel:
    """A `Seq2Seq` whose sources are `Ragged`."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model, self.device = model, next(model.parameters()).device
        self.bos, self.eos, self.never, self.max_length = model.bos, model.eos, model.never, model.max_length

    def place(self, *arrays: NDArray[Any]) -> Sequence[Tensor]:
        return torch.from_numpy(np.stack(arrays)).to(self.device).unbind()

    def source_ids(self, source: Ragged) -> list[list[int]]:
        return [sentence.tolist() for sentence in source.values.split(source.layout.lengths)]

    def with_vocabularies(self, vocabularies: Sequence[Integers]) -> TorchStepModel:
        return TorchStepModel(with_shortlist(self.model, vocabularies))

    def encode(self, source: Ragged) -> Any:
        return self.model.encode(source)

    def start(self, memory: Any, *, beams: int) -> Any:
        return self.model.start(memory, beams=beams)

    def step(self, tokens: Tensor, state: Any) -> TorchScores:
        return TorchScores(self.model.step(tokens, state), self.eos)


def draw(logits_RV: Tensor, options: Distribution, numbers_R: Tensor) -> Tensor:
    """Return a token per row, [R], given a random number from 0 to 1 for each, in float64."""
    if options.temperature == 0 or options.top_k == 1:
        return logits_RV.argmax(dim=-1)
    logits_RV = logits_RV.double() / options.temperature
    if options.top_k is not None and options.top_k < logits_RV.size(1):
        least_R1 = logits_RV.topk(options.top_k, dim=-1).values[:, -1:]
        logits_RV = logits_RV.masked_fill(logits_RV < least_R1, IMPOSSIBLE)
    probabilities_RV = logits_RV.softmax(dim=-1)
    if options.top_p is not None:
        probabilities_RV = probabilities_RV.masked_fill(probabilities_RV < _nucleus(probabilities_RV, options.top_p), 0)
    if options.epsilon is not None:
        # The likeliest token stays, however unlikely it is.
        least_R1 = probabilities_RV.amax(dim=-1, keepdim=True).clamp(max=options.epsilon)
        probabilities_RV = probabilities_RV.masked_fill(probabilities_RV < least_R1, 0)
    # The first token up to which the probabilities add up to more than the number.
    sums_RV = probabilities_RV.cumsum(dim=-1)
    bounds_R1 = (numbers_R * (1 - 1e-12) * sums_RV[:, -1])[:, None]
    return torch.searchsorted(sums_RV, bounds_R1, right=True)[:, 0]


def _nucleus(probabilities_RV: Tensor, top_p: float) -> Tensor:
    """Return the probability of the least likely token of the nucleus (Holtzman et al. 2020), [R, 1].

    The nucleus has the likeliest tokens, as few as add up to at least `top_p`.
    """
    sorted_RV = probabilities_RV.sort(dim=-1, descending=True).values
    before_RV = sorted_RV.cumsum(dim=-1) - sorted_RV
    last_R1 = (before_RV < top_p).sum(dim=-1, keepdim=True).clamp(min=1) - 1
    return sorted_RV.gather(1, last_R1)
