"""Translates one sentence and sees how: attention, probabilities, and what else could have been written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.ragged import Ragged
from regard.decoding.hypotheses import Check, SearchOptions, never_stop
from regard.decoding.non_autoregressive import refine
from regard.decoding.search import search
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.explain.trace_types import Alternative, Attention, Side, Text, Trace
from regard.explain.words import between_words, group, shown
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.nn.alignment import Alignment
from regard.nn.attention import CrossAttention, PositionalAttention
from regard.nn.attention_log import AttentionLog, capture_attention
from regard.text.tokenizer import EOS, Tokenizer, Tokenizers

# Source and output tokens of all alternatives that are continued: enough for a sentence of everyday length.
MOST_CONTINUED = 32_768
CHUNK = 8192  # of those that are searched together, which bounds the memory


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
    """How a sentence is translated, beginning with `prefix` where one is given.

    `check` is called before every step of a search.
    """
    model, tokenizers = translator.model, translator.tokenizers
    source_ids = _source_ids(translator, text)
    source = Ragged.from_lists([source_ids], next(model.parameters()).device)
    options = options or translator.config
    if isinstance(model, NonAutoregressive):
        if prefix:
            raise DecodeError("this model writes all tokens at once; it cannot go on from given ones")
        target_ids, seen = _written_at_once(model, source, options, check)
        probabilities, others = [], []
    else:
        assert isinstance(model, Seq2Seq)
        target_ids = [*search(model, source, options=options, prefixes=[prefix], check=check)[0][0].ids, model.eos]
        check()
        seen, logp = _written_again(model, source, target_ids)
        probabilities = [round(float(logp[place, token].exp()), 6) for place, token in enumerate(target_ids)]
        others = _alternatives(translator, source_ids, target_ids, logp, options, alternatives, check)
    trace = Trace(
        model=name,
        source=_text(tokenizers.source, source_ids),
        target=_text(tokenizers.target, target_ids),
        attentions=[],
        probabilities=probabilities,
        alternatives=others,
    )
    # A model that writes at once may have more places than tokens came of them: those it cannot name are left out.
    named = [one for one in _attentions(model, seen) if one.weights.shape[1:] == trace.shape_of(one)]
    return replace(trace, attentions=named)


def attention_between(model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str) -> dict[str, Any]:
    """What the words of a translation drew on, in percent of the source's words; for a log."""
    source_ids, target_ids = [*tokenizers.source.encode(source), EOS], [*tokenizers.target.encode(target), model.eos]
    model_side = Ragged.from_lists([source_ids], next(model.parameters()).device)
    with torch.inference_mode():
        seen, _ = _written_again(model, model_side, target_ids)
    across = [one.weights.mean(axis=0) for one in _attentions(model, seen) if one.name == "encoder-decoder"]
    texts = [_text(tokenizers.source, source_ids), _text(tokenizers.target, target_ids)]
    words = [[shown("".join(text.tokens[index] for index in word)) for word in text.words] for text in texts]
    if not across:
        return {"source": words[0], "target": words[1], "percent": []}
    between = between_words(np.mean(across, axis=0)[None], texts[1].words, texts[0].words)[0]
    return {
        "source": words[0],
        "target": words[1],
        "percent": np.rint(100 * np.nan_to_num(between)).astype(int).tolist(),
    }


def _source_ids(translator: Translator, text: str) -> list[int]:
    ids = translator.tokenizers.source.encode(text)
    if not ids or not text.strip():
        raise DecodeError("there is no sentence to look at; give one with words in it")
    most = translator.longest_source
    if len(ids) > most:
        raise DecodeError(f"the sentence has {len(ids)} tokens; this model takes {most}")
    return [*ids, EOS]


def _text(tokenizer: Tokenizer, ids: list[int]) -> Text:
    return Text(tokenizer.decode(ids), ids, tokenizer.tokens(ids), group(tokenizer, ids))


def _written_again(model: Seq2Seq, source: Ragged, target_ids: list[int]) -> tuple[AttentionLog, Tensor]:
    """What attention did while these tokens were read in one go, and all log-probabilities: [tokens, V]."""
    with capture_attention() as seen:
        target = Ragged.from_lists([[model.bos, *target_ids[:-1]]], source.layout.device)
        logits = model.project(model.hidden(target, model.encode(source))).float()
    logp = logits.log_softmax(dim=-1)
    logp[:, list(model.never)] = float("-inf")
    return seen, logp


def _written_at_once(
    model: NonAutoregressive, source: Ragged, options: SearchOptions, check: Check
) -> tuple[list[int], AttentionLog]:
    """What it writes, and what attention did where its likeliest candidate is what it writes."""
    best = refine(model, source, options=options, check=check)[0][0].ids
    with capture_attention() as seen:
        alone = refine(model, source, options=options.replace(beam=1, nbest=1), check=check)[0][0].ids
    return [*best, EOS], seen if alone == best else AttentionLog()


def _alternatives(
    translator: Translator,
    source_ids: list[int],
    target_ids: list[int],
    logp: Tensor,
    options: SearchOptions,
    count: int,
    check: Check,
) -> list[list[Alternative]]:
    """For each place the likeliest other tokens, each with the translation that would have come of it."""
    if count == 0:
        return [[] for _ in target_ids]
    tokenizer = translator.tokenizers.target
    best = logp.topk(min(count + 1, logp.size(1)), dim=-1)
    places = [
        [(token, p) for token, p in zip(tokens, ps, strict=True) if token != own and p > float("-inf")][:count]
        for own, tokens, ps in zip(target_ids, best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    prefixes = [[*target_ids[:at], token] for at, found in enumerate(places) for token, _ in found]
    texts = iter(_continued(translator, source_ids, prefixes, options, check))
    return [
        [
            Alternative(token, tokenizer.tokens([token])[0], round(float(np.exp(p)), 6), next(texts))
            for token, p in found
        ]
        for found in places
    ]


def _continued(
    translator: Translator, source_ids: list[int], prefixes: list[list[int]], options: SearchOptions, check: Check
) -> list[str]:
    """The likeliest translation that begins with each prefix, greedily; empty where there are too many to search."""
    limit = options.limit(len(source_ids) - 1)
    sizes = [len(source_ids) + max(limit, len(prefix) + 1) for prefix in prefixes]
    if sum(sizes) > MOST_CONTINUED:
        return ["" for _ in prefixes]
    model, decode = translator.model, translator.tokenizers.target.decode
    assert isinstance(model, Seq2Seq)
    greedy = options.replace(beam=1, nbest=1, scores=False)
    texts: list[str] = []
    for chunk in _chunks(prefixes, sizes):
        source = Ragged.from_lists([source_ids] * len(chunk), next(model.parameters()).device)
        open_ones = [prefix[:-1] if prefix[-1] == model.eos else prefix for prefix in chunk]
        found = search(model, source, options=greedy, prefixes=open_ones, check=check)
        texts += [
            decode(prefix if prefix[-1] == model.eos else hypotheses[0].ids)
            for prefix, hypotheses in zip(chunk, found, strict=True)
        ]
    return texts


def _chunks(prefixes: list[list[int]], sizes: list[int]) -> Iterator[list[list[int]]]:
    """The prefixes in order, as many together as fit into a chunk, and at least one."""
    chunk: list[list[int]] = []
    filled = 0
    for prefix, size in zip(prefixes, sizes, strict=True):
        if chunk and filled + size > CHUNK:
            yield chunk
            chunk, filled = [], 0
        chunk.append(prefix)
        filled += size
    if chunk:
        yield chunk


def _attentions(model: Model, seen: AttentionLog) -> list[Attention]:
    """What was written down, lowest layer first, the encoder's before the decoder's."""
    found = []
    for name, module in model.named_modules():
        if module not in seen.calls:
            continue
        calls = [call[0] for call in seen.calls[module]]
        one_by_one = not model.non_autoregressive and len(calls) > 1 and all(call.size(1) == 1 for call in calls)
        weights = torch.cat(calls, dim=1) if one_by_one else calls[-1]
        kind, queries, keys = _kind(name, module, non_autoregressive=model.non_autoregressive)
        digits = re.search(r"\d+", name)
        layer = int(digits.group()) + 1 if digits else 1
        found.append(Attention(kind, layer, queries, keys, weights.float().cpu().numpy()))
    return found


def _kind(name: str, module: nn.Module, *, non_autoregressive: bool) -> tuple[str, Side, Side]:
    if isinstance(module, CrossAttention | Alignment):
        return "encoder-decoder", "target", "source"
    if "encoder" in name.split("."):
        return "encoder", "source", "source"
    kind = "positions" if isinstance(module, PositionalAttention) else "decoder"
    return kind, "target", "target" if non_autoregressive else "read"
