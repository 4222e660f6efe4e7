"""How a translation was found: its search is repeated, and attention, probabilities and other outputs are recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.hypothesis import Check, never_stop
from regard.decoding.search import refine, search
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.explain.attention import (
    Axis,
    merge_words,
    recorded_attentions,
)
from regard.explain.limits import MAX_CONTINUED_TOKENS
from regard.explain.pictures import Picture, copied_shares, draw_copying
from regard.explain.trace import Alternative, Trace, alternatives_of, soft_alignment
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.nn.attention_log import AttentionLog, capture_attention
from regard.text.symbols import BOS, EOS, RESERVED
from regard.text.tokenizer import Tokenizer
from regard.text.tokenizer_pair import Tokenizers
from regard.text.unknown_words import ExtendedVocabulary

# Tokens of alternatives that are searched in one batch, which bounds the memory.
BATCH_TOKENS = 8192


@torch.inference_mode()
def trace_translation(
    translator: Translator,
    text: str,
    *,
    options: SearchOptions | None = None,
    prefix: Sequence[int] = (),
    alternatives: int = 3,
    name: str = "",
    check: Check = never_stop,
) -> Trace:
    """Translate a sentence and record how. The output begins with the ids of `prefix`.

    `name` is what the trace calls the model. `check` is called before every step of a search.
    """
    model = translator.model
    options = translator.options.with_given(options)
    source_ids, vocabulary = _source_ids(translator, text, options)
    source = Ragged.from_lists([source_ids], next(model.parameters()).device)
    probabilities: list[float] = []
    others: list[list[Alternative]] = []
    if isinstance(model, NonAutoregressive):
        if prefix:
            raise DecodeError("this model outputs all tokens at once; it cannot continue a prefix")
        target_ids, log = _record_refinement(model, source, options, check)
    else:
        assert isinstance(model, Seq2Seq)
        demands = translator.demands([(source_ids, vocabulary)], [prefix], shortlist=options.shortlist)
        found = search(model, source, options=options, demands=demands, check=check)
        target_ids = [*found[0][0].ids, model.eos]
        check()
        log, logp = record_forced(model, source, target_ids)
        probabilities, others = alternatives_of(
            logp.exp(), target_ids, alternatives, lambda id: vocabulary.tokens([id])[0]
        )
        others = _continued(translator, vocabulary, source_ids, target_ids, others, options, check)
    axes = _translation_axes(model, translator.tokenizers.source, vocabulary, text, source_ids, target_ids)
    attentions = recorded_attentions(model, log, axes)
    return Trace(name, axes, attentions, probabilities, others, _pictures(log, axes))


def _pictures(log: AttentionLog, axes: Mapping[str, Axis]) -> tuple[Picture, ...]:
    """Return the picture of a model that copies."""
    shares = copied_shares(log)
    if shares is None:
        return ()
    return (Picture("copying", lambda plt: draw_copying(plt, *shares, axes["source"], axes["target"])),)


def attention_between(
    model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str, *, tags: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the mean encoder-decoder attention between the words of a translation, in percent, for the log.

    `tags` are the symbols in front of the source.
    """
    source_ids = [*tokenizers.tag_ids(tags), *tokenizers.source.encode(source), EOS]
    target_ids = [*tokenizers.target.encode(target), model.eos]
    with torch.inference_mode():
        log, _ = record_forced(model, Ragged.from_lists([source_ids], next(model.parameters()).device), target_ids)
    vocabulary = ExtendedVocabulary(tokenizers.target)
    axes = _translation_axes(model, tokenizers.source, vocabulary, source, source_ids, target_ids)
    trace = Trace("", axes, recorded_attentions(model, log, axes))
    percent = []
    if trace.layers("encoder-decoder"):
        between = merge_words(soft_alignment(trace)[None], trace.target.words, trace.source.words)[0]
        percent = np.rint(100 * np.nan_to_num(between)).astype(int).tolist()
    return {"source": trace.source.word_texts, "target": trace.target.word_texts, "percent": percent}


def _source_ids(translator: Translator, text: str, options: SearchOptions) -> tuple[list[int], ExtendedVocabulary]:
    ids, vocabulary = translator.encode(text, protect=options.protect)
    if not ids or not text.strip():
        raise DecodeError("the sentence is empty; give one with words in it")
    limit = translator.longest_source
    if len(ids) > limit:
        raise DecodeError(f"the sentence has {len(ids)} tokens; this model takes at most {limit}")
    return [*ids, EOS], vocabulary


def _translation_axes(
    model: Model,
    tokenizer: Tokenizer,
    vocabulary: ExtendedVocabulary,
    source: str,
    source_ids: list[int],
    target_ids: list[int],
) -> dict[str, Axis]:
    text_tokens = tokenizer.tokenize(source if vocabulary.masked is None else vocabulary.masked.text)
    tags = tokenizer.tokens(source_ids[: len(source_ids) - 1 - len(text_tokens)])
    source_tokens = [*tags, *text_tokens, RESERVED[EOS]]
    if not model.reads_source_eos:
        source_ids, source_tokens = source_ids[:-1], source_tokens[:-1]
    target = Axis.from_ids("output", vocabulary, target_ids)
    read_words = [[0], *([index + 1 for index in word] for word in target.words[:-1])]
    read_tokens = [RESERVED[BOS], *target.tokens[:-1]]
    return {
        "source": Axis.from_text("source", tokenizer.kind, source, source_ids, source_tokens),
        "target": target,
        "read": Axis("decoder input", target.text, [BOS, *target_ids[:-1]], read_tokens, read_words),
    }


def record_forced(model: Seq2Seq, source: Ragged, target_ids: list[int]) -> tuple[AttentionLog, Tensor]:
    """Run the decoder over a known target. Return the attention, and log-probabilities: [tokens, V]."""
    with capture_attention() as log:
        target = Ragged.from_lists([[model.bos, *target_ids[:-1]]], source.layout.device)
        logits = model.decode(target, model.encode(source)).float()
    logp = logits.log_softmax(dim=-1)
    # Search never outputs these.
    logp[:, list(model.never)] = float("-inf")
    return log, logp


def _record_refinement(
    model: NonAutoregressive, source: Ragged, options: SearchOptions, check: Check
) -> tuple[list[int], AttentionLog]:
    """Return the output, and its attention if a search with one candidate finds the same output; otherwise an empty log."""
    best = refine(model, source, options=options, check=check)[0][0].ids
    with capture_attention() as log:
        single = refine(model, source, options=options.replace(beam=1, nbest=1), check=check)[0][0].ids
    return [*best, EOS], log if single == best else AttentionLog()


# Alternatives


def _continued(
    translator: Translator,
    vocabulary: ExtendedVocabulary,
    source_ids: list[int],
    target_ids: list[int],
    alternatives: list[list[Alternative]],
    options: SearchOptions,
    check: Check,
) -> list[list[Alternative]]:
    """Return the alternatives at each position with the translation that each leads to."""
    prefixes = [[*target_ids[:at], one.id] for at, found in enumerate(alternatives) for one in found]
    texts = iter(_continue_prefixes(translator, vocabulary, source_ids, prefixes, options, check))
    return [[replace(one, text=next(texts)) for one in found] for found in alternatives]


def _continue_prefixes(
    translator: Translator,
    vocabulary: ExtendedVocabulary,
    source_ids: list[int],
    prefixes: list[list[int]],
    options: SearchOptions,
    check: Check,
) -> list[str]:
    """Return the greedy translation that begins with each prefix; empty texts if there are too many tokens to search."""
    limit = options.limit(len(source_ids) - 1)
    sizes = [len(source_ids) + max(limit, len(prefix) + 1) for prefix in prefixes]
    if sum(sizes) > MAX_CONTINUED_TOKENS:
        return ["" for _ in prefixes]
    model, decode = translator.model, vocabulary.decode
    assert isinstance(model, Seq2Seq)
    greedy = options.greedy().replace(scores=False)
    texts: list[str] = []
    for batch in _batches(prefixes, sizes):
        source = Ragged.from_lists([source_ids] * len(batch), next(model.parameters()).device)
        unfinished = [prefix[:-1] if prefix[-1] == model.eos else prefix for prefix in batch]
        sources = [(source_ids, vocabulary)] * len(batch)
        demands = translator.demands(sources, unfinished, shortlist=options.shortlist)
        found = search(model, source, options=greedy, demands=demands, check=check)
        texts += [
            decode(prefix if prefix[-1] == model.eos else hypotheses[0].ids)
            for prefix, hypotheses in zip(batch, found, strict=True)
        ]
    return texts


def _batches(prefixes: list[list[int]], sizes: list[int]) -> Iterator[list[list[int]]]:
    """Yield the prefixes in order, in batches of at most BATCH_TOKENS or of a single prefix."""
    batch: list[list[int]] = []
    filled = 0
    for prefix, size in zip(prefixes, sizes, strict=True):
        if batch and filled + size > BATCH_TOKENS:
            yield batch
            batch, filled = [], 0
        batch.append(prefix)
        filled += size
    if batch:
        yield batch
