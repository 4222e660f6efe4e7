"""The results of a search on the device, as hypotheses on the host.

Shapes: B sentences, Q beams.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.config import SearchOptions
from regard.decoding.hypothesis import Hypothesis, SearchResults

ENDED = ("ended_scores", "ended_logp", "ended_steps", "ended_beams", "ended_tokens")


class Ended(NamedTuple):
    """The best hypotheses of each sentence, on the host: [B, Q], and how many of them are wanted, [B]."""

    scores: NDArray[np.float64]
    logp: NDArray[np.float32]
    steps: NDArray[np.int32]
    beams: NDArray[np.int32]
    last: NDArray[np.int32]
    counts: NDArray[np.int32]

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int32]], *, nbest: int) -> Ended:
        """Return them from the tensors `ENDED` and the counts, all given as integers."""
        scores, logp, steps, parents, last = (part.reshape(len(parts[5]), -1) for part in parts[:5])
        return cls(scores.view(np.float64), logp.view(np.float32), steps, parents, last, np.minimum(parts[5], nbest))

    def hypotheses(self, history: dict[str, NDArray[np.int32]], options: SearchOptions, eos: int) -> SearchResults:
        """Return them with their tokens, which lie along a path through the history, [B, Q, steps] each."""
        tokens, parents = history["history_tokens"], history.get("history_parents")
        ranks = np.arange(self.scores.shape[1])
        sentence, rank = np.nonzero(ranks < self.counts[:, None])
        steps, beam = self.steps[sentence, rank], self.beams[sentence, rank]
        ids = np.zeros((len(sentence), tokens.shape[2]), dtype=np.int32)
        sums = np.zeros(ids.shape, dtype=np.float32)
        logp = history["history_logp"].view(np.float32) if options.token_scores else None
        if parents is None:
            ids = tokens[sentence, 0]
            sums = sums if logp is None else logp[sentence, 0]
        else:
            for step in range(steps.max(initial=0) - 1, -1, -1):
                there = step < steps
                ids[:, step] = tokens[sentence, beam, step]
                if logp is not None:
                    sums[:, step] = logp[sentence, beam, step]
                beam = np.where(there, parents[sentence, beam, step], beam)
        found: SearchResults = [(number, []) for number in range(len(self.counts))]
        scored = options.scores or options.beam > 1
        lists = zip(
            sentence.tolist(), ids.tolist(), steps.tolist(), self.last[sentence, rank].tolist(),
            self.scores[sentence, rank].tolist(), strict=True,
        )  # fmt: skip
        for place, (number, path, length, token, score) in enumerate(lists):
            output = path[:length] if token == eos else [*path[:length], token]
            token_scores = None
            if logp is not None:
                last = float(self.logp[number, rank[place]])
                token_scores = np.diff([0.0, *sums[place, :length].tolist(), last]).tolist()
            found[number][1].append(Hypothesis(output, score if scored else 0.0, token_scores))
        return found
