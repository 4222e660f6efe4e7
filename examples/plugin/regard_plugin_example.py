"""A plug-in for regard: the metric `char_errors` and the tokenizer `bytes`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn

from regard import Metric, TokenizerKind, register_metric, register_tokenizer
from regard.config import EvaluateConfig
from regard.errors import CheckpointError, ConfigError
from regard.metrics import edit_distance
from regard.storage.folder import Folder
from regard.text.symbols import BOS, EOS, RESERVED, UNK


def register() -> None:
    """Add both to regard. The entry point in pyproject.toml names this function."""
    label = "character errors"
    register_metric(Metric("char_errors", char_error_rate, higher_is_better=False, label=label, unit="%"))
    register_tokenizer("bytes", TokenizerKind(train=train_bytes, load=load_bytes))


def char_error_rate(
    outputs: Sequence[str], references: Sequence[str], inputs: Sequence[str], config: EvaluateConfig
) -> tuple[float, str]:
    """Return the character edits per hundred reference characters, and how they are counted."""
    edits = sum(edit_distance(output, reference) for output, reference in zip(outputs, references, strict=True))
    return 100 * edits / max(1, sum(map(len, references))), "Levenshtein over characters"


class ByteTokenizer:
    """UTF-8 bytes as tokens. Only bytes that occur in the training text have an id; others are unknown."""

    kind = "bytes"

    def __init__(self, known: Sequence[int]) -> None:
        self._bytes = list(known)
        self._ids = {byte: id for id, byte in enumerate(self._bytes, start=len(RESERVED))}

    @property
    def size(self) -> int:
        return len(RESERVED) + len(self._bytes)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(byte, UNK) for byte in text.encode()]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def tokenize(self, text: str) -> list[str]:
        return [bytes([byte]).decode(errors="replace") for byte in text.encode()]

    def resampled(self, texts: Sequence[str], rate: float) -> NoReturn:
        raise ConfigError("bytes can be split in one way only; tokenizer.sampling needs bpe or unigram")

    def decode(self, ids: Sequence[int]) -> str:
        parts = [RESERVED[UNK].encode() if id == UNK else self._byte(id) for id in ids if id not in (BOS, EOS)]
        return b"".join(parts).decode(errors="replace")

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [RESERVED[id] if id < len(RESERVED) else self._byte(id).decode(errors="replace") for id in ids]

    def _byte(self, id: int) -> bytes:
        return bytes([self._bytes[id - len(RESERVED)]])

    def save(self, folder: Folder, name: str) -> None:
        folder.save_bytes(f"{name}.json", json.dumps(self._bytes).encode())


def train_bytes(texts: Sequence[str], *, kind: str, size: int, coverage: float) -> ByteTokenizer:
    """Return a tokenizer with every byte of the texts."""
    tokenizer = ByteTokenizer(sorted(set().union(*(text.encode() for text in texts))))
    if tokenizer.size > size:
        raise ConfigError(f"tokenizer.size is {size}, but the text has {tokenizer.size} different bytes; raise it")
    return tokenizer


def load_bytes(folder: Folder, name: str, *, kind: str) -> ByteTokenizer:
    """Return the tokenizer that `save` wrote. A run folder may come from a stranger, so its content is checked."""
    known = folder.load_json(f"{name}.json")
    if not isinstance(known, list) or not all(isinstance(byte, int) and 0 <= byte < 256 for byte in known):
        raise CheckpointError(f"{folder}/{name}.json is not a list of bytes; restore it from a copy of the run")
    return ByteTokenizer(known)
