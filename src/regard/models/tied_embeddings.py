"""Models whose embeddings and output layer may share one matrix (Press and Wolf 2017; section 3.4 of the paper)."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import Tensor, nn

from regard.config.transformer import Tie
from regard.errors import ConfigError
from regard.models.base import Model
from regard.nn.linear import logits_of

CHUNK = 4096  # vectors whose logits are in memory at a time


class TiedEmbeddings(Model):
    """A model with an embedding per language and an output layer, [V, D] each; `tie` says which of them are one matrix.

    With `output_bias` the output layer also has a bias, [V].
    """

    def __init__(self, width: int, tie: Tie, *, source_size: int, target_size: int, output_bias: bool = False) -> None:
        super().__init__()
        self.width = width
        self.target_embedding = _table(target_size, width)
        self.source_embedding = self.target_embedding
        if tie != "all":
            self.source_embedding = _table(source_size, width)
        elif source_size != target_size:
            raise ConfigError("model.tie is 'all' but the two sides have separate vocabularies; set model.tie=target")
        self.output = _table(target_size, width) if tie == "none" else None
        self.output_bias = nn.Parameter(torch.zeros(target_size)) if output_bias else None

    @property
    def output_weight(self) -> Tensor:
        return self.target_embedding if self.output is None else self.output

    @property
    def logit_bias(self) -> Tensor | None:
        return self.output_bias

    def with_columns(self, columns: Tensor) -> Self:
        """Return the model with an output layer that has these columns alone. All other parameters are shared."""
        short = copy.copy(self)
        short._parameters = dict(self._parameters)
        short.output = nn.Parameter(self.output_weight[columns], requires_grad=False)
        if self.output_bias is not None:
            short.output_bias = nn.Parameter(self.output_bias[columns], requires_grad=False)
        return short

    def project(self, hidden: Tensor) -> Tensor:
        """Apply the output layer: [N, D] to logits [N, V]."""
        return logits_of(hidden, self.output_weight, self.output_bias)

    def likeliest(self, hidden_ND: Tensor, *, without: int) -> tuple[Tensor, Tensor]:
        """Return the likeliest token for each vector, other than `without`, and its log-probability, both [N]."""
        logp, tokens = [], []
        for hidden in hidden_ND.split(CHUNK):
            logits_CV = self.project(hidden).float()
            logits_CV[:, without] = float("-inf")
            best = logits_CV.log_softmax(dim=-1).max(dim=-1)
            logp.append(best.values)
            tokens.append(best.indices)
        return torch.cat(tokens), torch.cat(logp)


def _table(size: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(size, width).normal_(std=width**-0.5))
