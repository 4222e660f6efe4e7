"""A recipe: all of its tables, and the `[evaluate]` table."""

from __future__ import annotations

from typing import Any, Literal

from regard.config.data import DataConfig, TokenizerConfig
from regard.config.mixing import refuse_empty_stages
from regard.config.search_options import SearchOptions
from regard.config.struct import Struct
from regard.config.train import TrainConfig


class EvaluateConfig(Struct, frozen=True):
    """The `[evaluate]` table, which every metric receives."""

    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab"] = "13a"  # sacreBLEU's tokenizer
    lowercase: bool = False  # BLEU and chrF ignore case
    metrics: tuple[str, ...] | None = None  # in `metrics.METRICS`; unset: those of the task that are not on demand
    # What the positions are that a pointer network outputs, which decides how they are scored.
    positions: Literal["sequence", "hull", "tour", "triangles"] = "sequence"

    def check(self) -> None:
        if self.metrics is not None and not 0 < len(self.metrics) == len(set(self.metrics)) <= 100:
            raise ValueError("metrics must name at least one metric, each once; leave it out for those of the task")


class Recipe(Struct, frozen=True):
    """All settings of a run."""

    name: str  # of the run; that of the file if the recipe has none
    data: DataConfig  # what is read
    model: dict[str, Any]  # the model family, `kind`, and its options; `preset` names a set of them
    task: str | None = None  # the task that model.kind is for, if it is to be said; one that it is not for is refused
    tokenizer: TokenizerConfig = TokenizerConfig()  # how text is split
    train: TrainConfig = TrainConfig()  # how the model is trained
    decode: SearchOptions = SearchOptions()  # how outputs are searched for
    evaluate: EvaluateConfig = EvaluateConfig()  # how outputs are scored

    def check(self) -> None:
        if not self.name.isprintable() or not 0 < len(self.name) <= 200:
            raise ValueError("name must be one line of at most 200 printable characters")
        refuse_empty_stages(self.data.corpora, self.train.steps)
        default = SearchOptions()
        changed = [name for name in default.per_call if getattr(self.decode, name) != getattr(default, name)]
        if changed:
            raise ValueError(f"decode.{changed[0]} cannot be set in a recipe; give it with each search")
