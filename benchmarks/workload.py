"""The common workload of all systems: model sizes, sentence lengths, ids, batches and how tokens are counted.

A batch depends only on the setup and its seed, so each process draws it again instead of receiving it.
"""

import argparse
import typing
import zlib
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

# The first ids are reserved, so that each system can use them for its own special tokens.
PAD, EOS, BOS, UNKNOWN = range(4)
FIRST_WORD = 4
POOL = 50  # batches


@dataclass(frozen=True, kw_only=True)
class Setup:
    """All settings of a measurement; each field is also a command-line flag."""

    # machine
    device: str = "cpu"
    precision: str = "fp32"  # or bf16: autocast in training, bf16 weights in decoding
    threads: int = 2
    # model; the source, target and output embeddings are one matrix
    width: int = 256
    layers: int = 3  # of the encoder and of the decoder
    heads: int = 4
    hidden: int = 1024
    vocabulary: int = 8192
    dropout: float = 0.1
    # training
    smoothing: float = 0.1
    lr: float = 3e-4
    clip: float = 1.0
    tokens: int = 2048  # real tokens per batch, on the longer side
    # sentences: log-normal source lengths in subwords, without the end token
    median: float = 14.0
    spread: float = 0.35
    shortest: int = 4
    longest: int = 45
    corpus: int = 29_000  # sentences that are cut into batches
    bucketing: Literal["source", "both"] = "source"  # how sentences of similar length are grouped (`pools_of`)
    batches: int = 10
    # decoding
    sentences: int = 32  # per batch
    output: int = 20  # target tokens that every system must produce for every sentence
    seed: int = 1


PRESETS = {
    "small": Setup(),
    "base": Setup(
        width=512,
        layers=6,
        heads=8,
        hidden=2048,
        vocabulary=37_000,
        tokens=25_000,
        median=24.0,
        spread=0.5,
        longest=120,
        corpus=1_000_000,
    ),
}


@dataclass(frozen=True)
class Sentences:
    """A batch of sentence pairs as plain ids, without special tokens."""

    sources: list[list[int]]
    targets: list[list[int]]

    @property
    def source_tokens(self) -> int:
        return sum(len(ids) + 1 for ids in self.sources)  # +1: the end token, for every system

    @property
    def target_tokens(self) -> int:
        return sum(len(ids) + 1 for ids in self.targets)


def draw_lengths(setup: Setup, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target lengths in subwords; both are similar, as in European language pairs."""
    source = np.exp(rng.normal(np.log(setup.median), setup.spread, count))
    source = source.round().clip(setup.shortest, setup.longest)
    target = source * rng.normal(1.05, 0.15, count) + rng.normal(0.0, 1.0, count)
    target = target.round().clip(setup.shortest, setup.longest)
    return source.astype(np.int64), target.astype(np.int64)


def draw_batch(setup: Setup, source: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> Sentences:
    def words(lengths: np.ndarray) -> list[list[int]]:
        return [rng.integers(FIRST_WORD, setup.vocabulary, length).tolist() for length in lengths]

    return Sentences(words(source), words(target))


def spaced(items: list[np.ndarray], count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Return `count` evenly spaced items in shuffled order, so that few batches represent all lengths of the corpus."""
    if len(items) < count:
        raise SystemExit(f"the corpus gives {len(items)} batches, but --batches is {count}; raise --corpus")
    chosen = [items[int((i + 0.5) * len(items) / count)] for i in range(count)]
    return [chosen[i] for i in rng.permutation(count)]


def pools_of(setup: Setup, source: np.ndarray, target: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return the corpus as sorted pools of row numbers, each of which is cut into batches.

    "source": the corpus is shuffled, and pools of 50 batches are sorted by source length, as in Hugging Face's trainer with
    grouping by length. "both": one pool sorted by target and source length, as in fairseq, which leaves the least padding.
    """
    if setup.bucketing == "both":
        return [np.lexsort((source, target))]
    shuffled, size = rng.permutation(len(source)), int(POOL * setup.tokens / (target.mean() + 1))
    pools = [shuffled[start : start + size] for start in range(0, len(shuffled), size)]
    return [pool[np.argsort(source[pool], kind="stable")] for pool in pools]


def cut(pool: np.ndarray, setup: Setup, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
    """Cut a pool into batches of at most `setup.tokens` real tokens per side; drop an incomplete last batch."""
    cuts, start, source_sum, target_sum = [], 0, 0, 0
    for row, (s, t) in enumerate(zip(source[pool].tolist(), target[pool].tolist(), strict=True)):
        source_sum, target_sum = source_sum + s + 1, target_sum + t + 1
        if max(source_sum, target_sum) > setup.tokens:
            cuts.append(pool[start:row])
            start, source_sum, target_sum = row, s + 1, t + 1
    return cuts


def training_batches(setup: Setup) -> list[Sentences]:
    """Return batches of sentences of similar length that represent the corpus."""
    rng = np.random.default_rng(setup.seed)
    source, target = draw_lengths(setup, setup.corpus, rng)
    cuts = [one for pool in pools_of(setup, source, target, rng) for one in cut(pool, setup, source, target)]
    return [draw_batch(setup, source[rows], target[rows], rng) for rows in spaced(cuts, setup.batches, rng)]


def decoding_batches(setup: Setup) -> list[Sentences]:
    """Return batches of `setup.sentences` sentences, sorted by source length, as the manuals of all engines advise."""
    rng = np.random.default_rng(setup.seed)
    source, target = draw_lengths(setup, setup.sentences * setup.batches, rng)
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    cuts = [np.arange(start, start + setup.sentences) for start in range(0, len(source), setup.sentences)]
    return [draw_batch(setup, source[rows], target[rows], rng) for rows in spaced(cuts, setup.batches, rng)]


def fingerprint(batches: list[Sentences]) -> int:
    """Return a checksum, with which the parent verifies that a worker drew the same batches."""
    crc = 0
    for batch in batches:
        for ids in batch.sources + batch.targets:
            crc = zlib.crc32(np.asarray(ids, dtype=np.int64).tobytes(), crc)
    return crc


def describe(batches: list[Sentences]) -> dict[str, Any]:
    """Return token counts, and the share of padding on each side of a padded [B, T] batch."""

    def wasted(sides: list[list[list[int]]], real: int) -> float:
        padded = sum(len(side) * (max(map(len, side)) + 1) for side in sides)
        return round(1 - real / padded, 4)

    source_tokens = sum(batch.source_tokens for batch in batches)
    target_tokens = sum(batch.target_tokens for batch in batches)
    return {
        "batches": len(batches),
        "sentences": sum(len(batch.sources) for batch in batches),
        "source_tokens": source_tokens,
        "target_tokens": target_tokens,
        "source_padding": wasted([batch.sources for batch in batches], source_tokens),
        "target_padding": wasted([batch.targets for batch in batches], target_tokens),
        "fingerprint": fingerprint(batches),
    }


def training_flops(setup: Setup, source_tokens: int, target_tokens: int) -> float:
    """Return the operations of all matrix products, forward and backward, without padding and attention's own products."""
    square, wide = setup.width**2, 2 * setup.width * setup.hidden
    a_source = setup.layers * (4 * square + wide + 2 * square)  # the encoder, and keys and values for the decoder
    a_target = setup.layers * (4 * square + wide + 2 * square) + setup.width * setup.vocabulary
    return 6.0 * (source_tokens * a_source + target_tokens * a_target)


def add_setup_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", choices=sorted(PRESETS), default="small", help="defaults of the flags below")
    hints = typing.get_type_hints(Setup)
    for field in fields(Setup):
        words, default = typing.get_args(hints[field.name]), f"default of the small preset: {field.default}"
        chosen = {"choices": words} if words else {"type": hints[field.name]}
        parser.add_argument(f"--{field.name}", **chosen, help=default)


def setup_from(arguments: argparse.Namespace) -> Setup:
    given = {f.name: getattr(arguments, f.name) for f in fields(Setup) if getattr(arguments, f.name) is not None}
    return replace(PRESETS[arguments.preset], **given)
