"""The axes of a translation: tokens of the source, of the output, and of what the decoder reads."""

from __future__ import annotations

from dataclasses import replace

from regard.explain.attention import Axis
from regard.text.symbols import BOS, EOS, RESERVED
from regard.text.tokenizer import Tokenizer
from regard.text.unknown_words import ExtendedVocabulary


def translation_axes(
    tokenizer: Tokenizer,
    vocabulary: ExtendedVocabulary,
    source: str,
    source_ids: list[int],
    target_ids: list[int],
    *,
    reads_source_eos: bool = True,
) -> dict[str, Axis]:
    """Return the axes "source", "target" and "read". `reads_source_eos`: the encoder reads the EOS behind a source.

    Placeholders are displayed as the spans that they stand for.
    """
    text_tokens = tokenizer.tokenize(source if vocabulary.masked is None else vocabulary.masked.text)
    tags = tokenizer.tokens(source_ids[: len(source_ids) - 1 - len(text_tokens)])
    source_tokens = [*tags, *text_tokens, RESERVED[EOS]]
    if not reads_source_eos:
        source_ids, source_tokens = source_ids[:-1], source_tokens[:-1]
    target = Axis.from_ids("output", vocabulary, target_ids)
    target = replace(target, tokens=vocabulary.display(target.tokens))
    # The last token, which nothing reads, is EOS and a word of its own, or ends a word where there was no room for EOS.
    last = len(target_ids) - 1
    read_words = [[index + 1 for index in word if index < last] for word in target.words]
    read_tokens = [RESERVED[BOS], *target.tokens[:-1]]
    read_source = Axis.from_text("source", tokenizer.kind, source, source_ids, source_tokens)
    return {
        "source": replace(read_source, tokens=vocabulary.display(source_tokens)),
        "target": target,
        "read": Axis(
            "decoder input", target.text, [BOS, *target_ids[:-1]], read_tokens, [[0], *filter(None, read_words)]
        ),
    }
