"""How a translation was found: its search is repeated, and attention, probabilities and other outputs are recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.config import SearchOptions
from regard.decoding.backend import ForcedTrace
from regard.decoding.hypothesis import Check, never_stop
from regard.decoding.translator import Translator
from regard.errors import DecodeError
from regard.explain.attention import Attention
from regard.explain.limits import MAX_CONTINUED_TOKENS, MAX_REDRAWN_WEIGHTS
from regard.explain.trace import Alternative, Trace
from regard.explain.translation_axes import translation_axes
from regard.messages import counted
from regard.text.symbols import EOS
from regard.text.unknown_words import ExtendedVocabulary

# Tokens of alternatives that are searched in one batch, which bounds the memory.
BATCH_TOKENS = 8192


def trace_translation(
    translator: Translator,
    text: str,
    *,
    options: SearchOptions | None = None,
    prefix: Sequence[int] = (),
    alternatives: int = 3,
    name: str = "",
    redraw: bool = False,
    check: Check = never_stop,
    tell: Callable[[str], None] = lambda text: None,
) -> Trace:
    """Translate a sentence and record how. The output begins with the ids of `prefix`.

    `name` is what the trace calls the model. With `redraw`, alternatives have traces too, as far as they are small. `check`
    is called before every step of a search, `tell` with what is computed next.
    """
    backend, options = translator.backend, translator.options.with_given(options)
    source_ids, vocabulary = _source_ids(translator, text, options)
    if backend.non_autoregressive:
        if prefix:
            raise DecodeError("this model outputs all tokens at once; it cannot continue a prefix")
        from regard.explain.recorded import trace_refinement

        return trace_refinement(translator, text, source_ids, vocabulary, options, name=name, check=check)
    demands = translator.demands([(source_ids, vocabulary)], [prefix], shortlist=options.shortlist)
    tell(f"translating {counted(len(source_ids) - 1, 'token')}")
    found = [
        best for some in backend.search([source_ids], options=options, demands=demands, check=check) for _, best in some
    ]
    # With learned positions, an output may leave no room for EOS.
    target_ids = [*found[0][0].ids, backend.eos][: backend.max_length]
    check()
    never = frozenset(backend.never)
    if demands is not None:
        # Placeholders of other spans than those of the source.
        own = demands.automata[0]
        never |= set(demands.never).difference(own.symbols if own is not None else ())
    traced = _Traced(translator, vocabulary, text, source_ids, never, name)
    trace, others = traced.trace(target_ids, alternatives)
    count = sum(map(len, others))
    if count:
        tell(f"translating with each of {counted(count, 'alternative')}")
    others = _continued(traced, target_ids, others, options, redraw=redraw, check=check)
    return replace(trace, alternatives=others)


@dataclass(frozen=True)
class _Traced:
    """A source, and how outputs for it come about."""

    translator: Translator
    vocabulary: ExtendedVocabulary
    text: str
    source_ids: list[int]
    never: frozenset[int]  # tokens that search does not output
    name: str

    def trace(self, target_ids: list[int], alternatives: int) -> tuple[Trace, list[list[Alternative]]]:
        """Return the trace of an output, and the alternatives of each of its tokens."""
        backend, vocabulary = self.translator.backend, self.vocabulary
        axes = translation_axes(
            self.translator.tokenizers.source,
            vocabulary,
            self.text,
            self.source_ids,
            target_ids,
            reads_source_eos=backend.reads_source_eos,
        )
        best = min(alternatives + 1 + len(self.never), vocabulary.tokenizer.size)
        forced = backend.forced_trace(self.source_ids, target_ids, best=best)
        if forced is not None:
            probabilities, others = _of_forced(forced, target_ids, alternatives, vocabulary, self.never)
            return Trace(self.name, axes, _attentions(forced), probabilities), others
        # Imported here, because torch may not be installed where the engine records.
        from regard.explain.recorded import trace_forced

        return trace_forced(
            backend.model, self.source_ids, target_ids, axes, alternatives, vocabulary, never=self.never, name=self.name
        )


def _source_ids(translator: Translator, text: str, options: SearchOptions) -> tuple[list[int], ExtendedVocabulary]:
    ids, vocabulary = translator.encode(text, protect=options.protect)
    if not ids or not text.strip():
        raise DecodeError("the sentence is empty; give one with words in it")
    limit = translator.longest_source
    if len(ids) > limit:
        raise DecodeError(f"the sentence has {counted(len(ids), 'token')}; this model takes at most {limit:,}")
    return [*ids, EOS], vocabulary


def _of_forced(
    forced: ForcedTrace, target_ids: list[int], count: int, vocabulary: ExtendedVocabulary, never: Collection[int]
) -> tuple[list[float], list[list[Alternative]]]:
    """Return the probability of the output at each position, and the `count` likeliest others, without zero probability."""
    others = [
        [
            Alternative(column, vocabulary.display(vocabulary.tokens([column]))[0], round(p, 6), "")
            for column, p in zip(columns, ps, strict=True)
            if column != own and column not in never and p > 0
        ][:count]
        for own, columns, ps in zip(target_ids, forced.columns.tolist(), np.exp(forced.values).tolist(), strict=True)
    ]
    own = zip(target_ids, np.exp(forced.logp).tolist(), strict=True)
    return [0.0 if id in never else round(p, 6) for id, p in own], others


def _attentions(forced: ForcedTrace) -> list[Attention]:
    """Return the weights of all layers: encoder before decoder, lowest layer first."""
    found = [
        Attention("encoder", layer, "source", "source", weights, self_attention=True)
        for layer, weights in enumerate(forced.encoder, start=1)
    ]
    for layer, (own, between) in enumerate(zip(forced.decoder, forced.between, strict=True), start=1):
        found.append(Attention("decoder", layer, "target", "read", own, self_attention=True))
        found.append(Attention("encoder-decoder", layer, "target", "source", between))
    return found


# Alternatives


def _continued(
    traced: _Traced,
    target_ids: list[int],
    alternatives: list[list[Alternative]],
    options: SearchOptions,
    *,
    redraw: bool,
    check: Check,
) -> list[list[Alternative]]:
    """Return the alternatives at each position with the translation that each leads to, and with its trace."""
    places = [(rank, at) for at, found in enumerate(alternatives) for rank in range(len(found))]
    prefixes = [[*target_ids[:at], alternatives[at][rank].id] for rank, at in places]
    outputs = dict(zip(places, _continue_prefixes(traced, prefixes, options, check), strict=True))
    traces = _traces(traced, outputs, check) if redraw else {}
    return [
        [
            replace(one, text=traced.vocabulary.decode(outputs[rank, at]), trace=traces.get((rank, at)))
            for rank, one in enumerate(found)
        ]
        for at, found in enumerate(alternatives)
    ]


def _traces(traced: _Traced, outputs: dict[tuple[int, int], list[int]], check: Check) -> dict[tuple[int, int], Trace]:
    """Return the traces of outputs by rank and position, likelier ones first, as many as are small together."""
    found: dict[tuple[int, int], Trace] = {}
    weights, eos = 0, traced.translator.backend.eos
    for place in sorted(outputs):
        if not outputs[place]:
            continue
        check()
        target_ids = outputs[place] if outputs[place][-1] == eos else [*outputs[place], eos]
        trace, _ = traced.trace(target_ids[: traced.translator.backend.max_length], 0)
        weights += sum(one.weights.size for one in trace.attentions if "target" in (one.queries, one.keys))
        if weights > MAX_REDRAWN_WEIGHTS:
            break
        found[place] = trace
    return found


def _continue_prefixes(
    traced: _Traced, prefixes: list[list[int]], options: SearchOptions, check: Check
) -> list[list[int]]:
    """Return the greedy output that begins with each prefix; empty outputs if there are too many tokens to search."""
    translator, source_ids = traced.translator, traced.source_ids
    limit = options.limit(len(source_ids) - 1)
    sizes = [len(source_ids) + max(limit, len(prefix) + 1) for prefix in prefixes]
    if sum(sizes) > MAX_CONTINUED_TOKENS:
        return [[] for _ in prefixes]
    backend = translator.backend
    greedy = options.greedy().replace(scores=False)
    outputs: list[list[int]] = []
    for batch in _batches(prefixes, sizes):
        unfinished = [prefix[:-1] if prefix[-1] == backend.eos else prefix for prefix in batch]
        sources = [(source_ids, traced.vocabulary)] * len(batch)
        demands = translator.demands(sources, unfinished, shortlist=options.shortlist)
        results = backend.search([source_ids] * len(batch), options=greedy, demands=demands, check=check)
        found = {place: list(best[0].ids) for some in results for place, best in some}
        outputs += [prefix if prefix[-1] == backend.eos else found[place] for place, prefix in enumerate(batch)]
    return outputs


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
