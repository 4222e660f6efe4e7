"""Training examples of which some are ids on disk: one store, or several corpora, as text or as stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.config import Recipe, TokenizerConfig
from regard.data.columns import Columns, Dataset
from regard.data.mixing import JoinedPairs
from regard.data.pair_store import SIDES, PairStore
from regard.errors import ConfigError, DataError
from regard.messages import counted
from regard.tasks.corpus import TextPairs, read_pairs_of
from regard.text.bitext import find_store
from regard.text.corpus import Pair
from regard.text.text_report import TextReport
from regard.text.tokenizer_pair import Tokenizers


@dataclass(frozen=True)
class StoredCorpora:
    """The corpora in the order of the recipe. At least one is a store."""

    parts: tuple[PairStore | TextPairs, ...]

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.parts))

    def fingerprints(self) -> list[dict[str, int | str]]:
        return [found for part in self.parts for found in part.fingerprints()]

    def examples(self) -> list[Pair]:
        """Raise DataError: a store has no text."""
        raise DataError(f"{self.folder} holds ids and no text")

    def notes(self) -> dict[str, dict[str, int]]:
        """Return what was left out of the text of stores and mended in it, and how often."""
        left_out, mended = Counter[str](), Counter[str]()
        for store in self._stores:
            left_out.update(store.info.left_out)
            mended.update(store.info.mended)
        counts = {"store_left_out": dict(left_out), "store_mended": dict(mended)}
        return {name: found for name, found in counts.items() if found}

    @property
    def folder(self) -> Path:
        """The folder of the first store."""
        return self._stores[0].folder

    @property
    def _stores(self) -> list[PairStore]:
        return [part for part in self.parts if isinstance(part, PairStore)]

    def tokenizers(self, config: TokenizerConfig, tags: Sequence[str]) -> Tokenizers:
        """Return the tokenizers that made the ids, which must be those of all stores, and have all tags of the recipe."""
        first, *others = self._stores
        for other in others:
            if other.info.tokenizer_sha256 != first.info.tokenizer_sha256:
                raise DataError(
                    f"{first.folder} and {other.folder} were prepared with different tokenizers; prepare them together"
                )
        tokenizers = first.tokenizers(config)
        missing = [tag for tag in tags if tag not in tokenizers.tags]
        if missing:
            raise DataError(f"{first.folder} was prepared without the tag {missing[0]!r}; prepare it with this recipe")
        return tokenizers

    def encoded(self, tokenizers: Tokenizers, encode: Callable[[Sequence[Pair], Tokenizers], Columns]) -> Dataset:
        """Return the pairs as a dataset that reads the ids of stores from the disk."""
        parts: list[Dataset] = [
            part.encoded(tokenizers) if isinstance(part, PairStore) else encode(part.examples(), tokenizers)
            for part in self.parts
        ]
        return parts[0] if len(parts) == 1 else JoinedPairs(parts)


def read_stores(recipe: Recipe, folders: list[Path], report: TextReport) -> StoredCorpora:
    """Return the corpora of a recipe that names a store for at least one of them.

    What is left out of text is counted in the report.
    """
    parts: list[PairStore | TextPairs] = []
    for corpus in recipe.data.corpora:
        if corpus.store is None:
            parts.append(read_pairs_of(recipe, corpus, folders, report))
            continue
        store, tags = PairStore(find_store(corpus.store, folders)), recipe.data.tags_of(corpus)
        if store.info.tags != tags:
            with_tags = f"the tags {' '.join(store.info.tags)}" if store.info.tags else "no tags"
            raise ConfigError(
                f"the sources in {store.folder} have {with_tags}, but those of the recipe have {' '.join(tags) or 'none'}; "
                "prepare it with this recipe"
            )
        for side, wanted, found in zip(
            SIDES, recipe.data.cuts, (store.info.source_cut, store.info.target_cut), strict=True
        ):
            if (wanted or 0) != found:
                cut = f"cut to {counted(found, 'token')}" if found else "not cut"
                raise ConfigError(
                    f"each {side} in {store.folder} is {cut}, but data.cut_{side} is {str(bool(wanted)).lower()} and "
                    f"data.max_length {recipe.data.max_length:,}; prepare it with this recipe, or change these settings"
                )
        parts.append(store)
    if any(isinstance(part, TextPairs) and part.of_epoch is not None for part in parts):
        raise ConfigError("a corpus that is fresh in each epoch cannot be mixed with a store of ids; leave out fresh")
    return StoredCorpora(tuple(parts))
