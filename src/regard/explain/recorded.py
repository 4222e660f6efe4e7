"""What modules of PyTorch record while they compute: attention, and probabilities of given outputs.

Shapes: N tokens, V columns of the scores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.hypothesis import Check
from regard.decoding.search import refine
from regard.decoding.translator import Translator
from regard.explain.attention import Attention, AttentionWeights, Axis, merge_words
from regard.explain.pictures import Picture, draw_copying
from regard.explain.trace import Alternative, Trace, soft_alignment, source_entropy
from regard.explain.translation_axes import translation_axes
from regard.models.base import Model, NonAutoregressive, Seq2Seq
from regard.nn.attention_log import COPY, AttentionKind, AttentionLog, capture_attention
from regard.text.symbols import EOS
from regard.text.tokenizer_pair import Tokenizers
from regard.text.unknown_words import ExtendedVocabulary


def recorded_attentions(model: Model, log: AttentionLog, axes: Mapping[str, Axis]) -> list[Attention]:
    """Return the attention recorded for the first sentence of a batch: encoder before decoder, lowest layer first.

    Weights whose axes are not in `axes`, or have another number of tokens, are left out. A non-autoregressive model may
    have more decoder positions than it outputs tokens, and such positions have no name.
    """
    found = []
    for name, module in model.named_modules():
        if module not in log.calls:
            continue
        kind = log.kinds.get(module) or _kind(name, non_autoregressive=model.non_autoregressive)
        calls = [call[0] for call in log.calls[module]]
        weights = _joined(calls, non_autoregressive=model.non_autoregressive).float().cpu().numpy()
        sizes = [len(axes[axis].tokens) if axis in axes else None for axis in (kind.queries, kind.keys)]
        if list(weights.shape[1:]) == sizes:
            digits = re.search(r"\d+", name)
            layer = int(digits.group()) + 1 if digits else 1
            vectors = _vectors(log, module, weights)
            found.append(Attention(kind.name, layer, kind.queries, kind.keys, weights, kind.self_attention, vectors))
    return found


def _vectors(
    log: AttentionLog, module: torch.nn.Module, weights: AttentionWeights
) -> tuple[AttentionWeights, AttentionWeights] | None:
    """Return the queries and keys of weights, [H, tokens, width], if they are those of one sentence in one call."""
    if module not in log.products:
        return None
    q_HQK, k_HSK = (one.transpose(0, 1).float().cpu().numpy() for one in log.products[module])
    return (q_HQK, k_HSK) if (q_HQK.shape[:2], k_HSK.shape[1]) == (weights.shape[:2], weights.shape[2]) else None


def _joined(calls: list[Tensor], *, non_autoregressive: bool) -> Tensor:
    """Return the weights of all queries: of one call, or of one call per query."""
    stepwise = not non_autoregressive and len(calls) > 1 and all(call.size(1) == 1 for call in calls)
    return torch.cat(calls, dim=1) if stepwise else calls[-1]


def _kind(name: str, *, non_autoregressive: bool) -> AttentionKind:
    """Return the kind of self-attention in a module of this name."""
    if "encoder" in name.split("."):
        return AttentionKind("encoder", "source", "source", self_attention=True)
    return AttentionKind("decoder", "target", "target" if non_autoregressive else "read", self_attention=True)


def alternatives_of(
    probabilities_NV: Tensor, outputs: Sequence[int], count: int, token: Callable[[int], str]
) -> tuple[list[float], list[list[Alternative]]]:
    """Return the probability of the output at each position, and the `count` likeliest others, without zero probability.

    `token` returns the text of a column.
    """
    own_N = probabilities_NV.gather(1, torch.tensor(outputs, device=probabilities_NV.device)[:, None])[:, 0]
    best = probabilities_NV.topk(min(count + 1, probabilities_NV.size(1)), dim=-1)
    others = [
        [
            Alternative(column, token(column), round(p, 6), "")
            for column, p in zip(columns, ps, strict=True)
            if column != own and p > 0
        ][:count]
        for own, columns, ps in zip(outputs, best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return [round(p, 6) for p in own_N.tolist()], others


def record_forced(model: Seq2Seq, source: Ragged, target_ids: list[int]) -> tuple[AttentionLog, Tensor]:
    """Run the decoder over a known target. Return the attention, and log-probabilities: [tokens, V]."""
    with capture_attention() as log:
        target = Ragged.from_lists([[model.bos, *target_ids[:-1]]], source.layout.device)
        logits = model.decode(target, model.encode(source)).float()
    logp = logits.log_softmax(dim=-1)
    # Search never outputs these.
    logp[:, list(model.never)] = float("-inf")
    return log, logp


def record_refinement(
    model: NonAutoregressive, source: Ragged, options: SearchOptions, check: Check
) -> tuple[list[int], AttentionLog]:
    """Return the output, and its attention if a search with one candidate finds the same output; otherwise an empty log."""
    best = refine(model, source, options=options, check=check)[0][0].ids
    with capture_attention() as log:
        single = refine(model, source, options=options.replace(beam=1, nbest=1), check=check)[0][0].ids
    return [*best, EOS], log if single == best else AttentionLog()


def copied_shares(log: AttentionLog) -> tuple[AttentionWeights, AttentionWeights] | None:
    """Return p_gen of each output token, [Q], and the probability of copying each source token, [Q, K].

    The log is that of one sentence. None if the model does not copy.
    """
    weights = log.first(COPY)
    if weights is None:
        return None
    gate = log.gates[-1][0].float().cpu().numpy()
    return gate, (1 - gate[:, None]) * weights[0].float().cpu().numpy()


def recorded_pictures(log: AttentionLog, axes: Mapping[str, Axis]) -> tuple[Picture, ...]:
    """Return the picture of a model that copies."""
    shares = copied_shares(log)
    if shares is None:
        return ()
    return (Picture("copying", lambda plt: draw_copying(plt, *shares, axes["source"], axes["target"])),)


def attention_between(
    model: Seq2Seq, tokenizers: Tokenizers, source: str, target: str, *, tags: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the mean encoder-decoder attention between the words of a translation, in percent, for the log.

    "entropy" is the smallest normalized entropy of a head over the source, if it can be judged. `tags` are the symbols
    in front of the source.
    """
    source_ids = [*tokenizers.tag_ids(tags), *tokenizers.source.encode(source), EOS]
    target_ids = [*tokenizers.target.encode(target), model.eos]
    with torch.inference_mode():
        log, _ = record_forced(model, Ragged.from_lists([source_ids], next(model.parameters()).device), target_ids)
    vocabulary = ExtendedVocabulary(tokenizers.target)
    axes = translation_axes(
        tokenizers.source, vocabulary, source, source_ids, target_ids, reads_source_eos=model.reads_source_eos
    )
    trace = Trace("", axes, recorded_attentions(model, log, axes))
    percent = []
    if trace.layers("encoder-decoder"):
        between = merge_words(soft_alignment(trace)[None], trace.target.words, trace.source.words)[0]
        percent = np.rint(100 * np.nan_to_num(between)).astype(int).tolist()
    found = {"source": trace.source.word_texts, "target": trace.target.word_texts, "percent": percent}
    entropy = source_entropy(trace)
    return found if entropy is None else {**found, "entropy": round(entropy, 3)}


@torch.inference_mode()
def trace_refinement(
    translator: Translator,
    text: str,
    source_ids: list[int],
    vocabulary: ExtendedVocabulary,
    options: SearchOptions,
    *,
    name: str,
    check: Check,
) -> Trace:
    """Return the trace of a model that outputs all tokens at once."""
    model = translator.model
    assert isinstance(model, NonAutoregressive)
    source = Ragged.from_lists([source_ids], next(model.parameters()).device)
    target_ids, log = record_refinement(model, source, options, check)
    axes = translation_axes(
        translator.tokenizers.source,
        vocabulary,
        text,
        source_ids,
        target_ids,
        reads_source_eos=model.reads_source_eos,
    )
    return Trace(name, axes, recorded_attentions(model, log, axes), pictures=recorded_pictures(log, axes))


@torch.inference_mode()
def trace_forced(
    model: Model,
    source_ids: list[int],
    target_ids: list[int],
    axes: Mapping[str, Axis],
    alternatives: int,
    vocabulary: ExtendedVocabulary,
    *,
    never: Collection[int],
    name: str,
) -> tuple[Trace, list[list[Alternative]]]:
    """Return the trace of a given output, and the alternatives at each of its positions, of which none is in `never`."""
    assert isinstance(model, Seq2Seq)
    log, logp = record_forced(model, Ragged.from_lists([source_ids], next(model.parameters()).device), target_ids)
    logp[:, list(never)] = float("-inf")
    probabilities, others = alternatives_of(
        logp.exp(), target_ids, alternatives, lambda id: vocabulary.display(vocabulary.tokens([id]))[0]
    )
    attentions = recorded_attentions(model, log, axes)
    return Trace(name, axes, attentions, probabilities, pictures=recorded_pictures(log, axes)), others
