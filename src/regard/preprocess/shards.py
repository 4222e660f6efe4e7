"""The shards of a store: chunks of pairs, encoded in the background, written, and found again."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BufferedWriter
from itertools import chain
from types import TracebackType
from typing import Annotated, TypeVar

import msgspec
import numpy as np

from regard.data.columns import Column, LengthTable
from regard.data.pair_store import SIDES, shard_name
from regard.data.shard_file import OFFSETS
from regard.errors import CheckpointError
from regard.storage.folder import SMALL, Folder
from regard.storage.manifest import check_folder, staged
from regard.text.corpus import Pair

# Limits in characters, over both sides, bound the memory for long sentences.
SAMPLE_PAIRS = 1_000_000
SAMPLE_CHARS = 200_000_000
CHUNK_PAIRS = 2**14
CHUNK_CHARS = 2**23
READ_AHEAD = 2  # chunks that are read while one is encoded

Argument = TypeVar("Argument")
Result = TypeVar("Result")
ShardCount = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


def spread_sample(
    pairs: Iterator[Pair], progress: Callable[[int], None] = lambda count: None
) -> tuple[list[Pair], int]:
    """Return pairs spread evenly over a stream, and the length of the stream. The sample is always the same.

    `progress` is called with the number of pairs read. When the sample is full, every other pair of it is dropped, and from
    then on half as many pairs are added.
    """
    kept: list[Pair] = []
    count, stride, chars = 0, 1, 0
    for count, pair in enumerate(pairs, start=1):
        if count % stride:
            continue
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        while len(kept) > 1 and (len(kept) > SAMPLE_PAIRS or chars > SAMPLE_CHARS):
            kept, stride = kept[1::2], stride * 2
            chars = sum(len(pair.source) + len(pair.target) for pair in kept)
        progress(count)
    return kept, count


def first_sample(pairs: Iterator[Pair]) -> tuple[list[Pair], Iterator[Pair]]:
    """Return the first pairs of a stream that can be read only once, and the complete stream."""
    kept: list[Pair] = []
    chars = 0
    for pair in pairs:
        kept.append(pair)
        chars += len(pair.source) + len(pair.target)
        if len(kept) >= SAMPLE_PAIRS or chars > SAMPLE_CHARS:
            break
    return kept, chain(kept, pairs)


def chunks_of(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in chunks of at most CHUNK_PAIRS."""
    chunk: list[Pair] = []
    chars = 0
    for pair in pairs:
        chunk.append(pair)
        chars += len(pair.source) + len(pair.target)
        if len(chunk) == CHUNK_PAIRS or chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


def map_in_background(work: Callable[[Argument], Result], items: Iterable[Argument]) -> Iterator[Result]:
    """Yield work(item) for each item, in order. A thread works while the next items are read.

    One thread is enough, because SentencePiece uses all cores and, like hashing, releases the interpreter lock.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > READ_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class ShardInfo(msgspec.Struct, frozen=True):
    """The content of shard.json."""

    pairs: int
    source_tokens: int
    target_tokens: int
    source_text: str  # SHA-256 of its lines
    target_text: str
    lengths: list[tuple[ShardCount, ShardCount, ShardCount, ShardCount]]  # rows of a LengthTable

    def fits(self, folder: Folder) -> bool:
        """Whether the numbers are consistent with each other and with the sizes of the files in the folder."""
        _, pairs, *tokens = map(sum, zip(*self.lengths, strict=True)) if self.lengths else [0] * 4
        sizes = [folder.file_size(f"{side}.ids") for side in SIDES]
        return (
            (pairs, tokens) == (self.pairs, [self.source_tokens, self.target_tokens])
            and all(size in (2 * count, 4 * count) for size, count in zip(sizes, tokens, strict=True))
            and all(row[0] <= max(tokens) for row in self.lengths)
        )


class TextHash:
    """Hashes of both sides of a sequence of pairs, one sentence per line. They do not depend on the chunks."""

    def __init__(self) -> None:
        self._digests = [hashlib.sha256() for _ in SIDES]

    def update(self, pairs: Sequence[Pair]) -> None:
        for digest, texts in zip(self._digests, zip(*pairs, strict=True), strict=True):
            digest.update(("\n".join(texts) + "\n").encode())

    def hexdigests(self) -> tuple[str, str]:
        source, target = (digest.hexdigest() for digest in self._digests)
        return source, target


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk of pairs with its ids."""

    pairs: list[Pair]
    source: Column
    target: Column


class ShardWriter:
    """A context that writes one shard, chunk by chunk. The shard appears in its folder when the context ends."""

    def __init__(self, out: Folder, number: int) -> None:
        self.pairs = 0
        self.tokens = [0, 0]
        self._text = TextHash()
        self._lengths = LengthTable.from_rows([])
        self._files: list[tuple[BufferedWriter, BufferedWriter]] = []
        self._staged = staged(out, shard_name(number))

    def __enter__(self) -> ShardWriter:
        self._folder = self._staged.__enter__()
        for side in SIDES:
            ids, offsets = (self._folder.create_file(f"{side}.{name}") for name in ("ids", "offsets"))
            offsets.write(np.zeros(1, dtype=OFFSETS).tobytes())
            self._files.append((ids, offsets))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ids, offsets in self._files:
            ids.close()
            offsets.close()
        if kind is None:
            self._folder.save_json("shard.json", msgspec.to_builtins(self._info()))
        self._staged.__exit__(kind, error, trace)

    def add(self, chunk: EncodedChunk) -> None:
        for side, store in enumerate((chunk.source, chunk.target)):
            ids, offsets = self._files[side]
            ids.write(store.values.astype(store.values.dtype.newbyteorder("<"), copy=False).tobytes())
            offsets.write((store.offsets[1:] + self.tokens[side]).astype(OFFSETS).tobytes())
            self.tokens[side] += len(store.values)
        self._lengths += LengthTable.of(chunk.source.lengths, chunk.target.lengths)
        self._text.update(chunk.pairs)
        self.pairs += len(chunk.pairs)

    def _info(self) -> ShardInfo:
        (source_tokens, target_tokens), (source_text, target_text) = self.tokens, self._text.hexdigests()
        rows = [(a, b, c, d) for a, b, c, d in self._lengths.rows()]
        return ShardInfo(self.pairs, source_tokens, target_tokens, source_text, target_text, rows)


def read_shard(folder: Folder) -> ShardInfo:
    """Return the description of a shard. Raise CheckpointError if the shard is damaged."""
    check_folder(folder)
    try:
        info = msgspec.json.decode(folder.load_bytes("shard.json", limit=SMALL), type=ShardInfo)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{folder.path / 'shard.json'} is damaged: {error}") from error
    if not info.fits(folder):
        raise CheckpointError(f"{folder.path / 'shard.json'} is damaged: its numbers contradict each other")
    return info


def finished_shards(out: Folder) -> list[ShardInfo]:
    """Return the descriptions of the shards before the first missing or damaged one."""
    found: list[ShardInfo] = []
    while out.has_folder(shard_name(len(found))):
        try:
            found.append(read_shard(out / shard_name(len(found))))
        except CheckpointError:
            break
    return found
