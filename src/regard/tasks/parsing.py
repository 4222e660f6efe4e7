"""Parsing as translation into brackets (Vinyals et al. 2015; Vaswani et al. 2017, section 6.3).

An example is a line of words, split at spaces, and its tree as a line of brackets with a placeholder for each word
(`text.trees`). An output need not be a tree over the words of its input; metrics and pictures repair it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from regard.data.columns import Columns
from regard.decoding.translator import Translator
from regard.errors import DataError
from regard.explain.attention import SPACE, Axis, merge_words
from regard.explain.pictures import Picture
from regard.explain.trace import Trace, TraceOptions, soft_alignment
from regard.explain.tree import draw_tree
from regard.messages import counted
from regard.metrics import TREES
from regard.tasks.corpus import TrainingData
from regard.tasks.stored_corpora import StoredCorpora
from regard.tasks.translation import TranslationTask
from regard.text.pair import Pair, TaggedPair
from regard.text.tokenizer_pair import Tokenizers, fit_tokenizers
from regard.text.trees import is_well_formed, linearize, repair, without_words


class ParsingTask(TranslationTask):
    """Words in, a linearized tree out. Any model that turns one text into another can do it."""

    name = "parsing"
    augments = False
    uses_families_of = TranslationTask.name
    compares = TREES

    def fit(self, train: TrainingData) -> Tokenizers:
        if isinstance(train, StoredCorpora):
            return super().fit(train)
        pairs = [(source, without_words(target)) for source, target in train.examples()]
        return fit_tokenizers(pairs, self.recipe.tokenizer, tags=self.recipe.data.tags)

    def encode(self, examples: Sequence[Pair], codec: Tokenizers) -> Columns:
        for number, (source, target) in enumerate(examples, start=1):
            words = len(source.split())
            if not is_well_formed(target, words):
                raise DataError(
                    f"the target of example {number}, {target[:80]!r}, is not a tree over {counted(words, 'word')}; "
                    "it must look like (S (NP XX )NP (VP XX )VP )S, with one XX per word"
                )
        bare = [TaggedPair(pair.source, without_words(pair.target), pair.tags) for pair in examples]
        return super().encode(bare, codec)

    def trace(self, predictor: Translator, text: str, options: TraceOptions) -> Trace:
        """Return the trace of the translation, with the words of the input as they are split at spaces, and the tree."""
        trace = super().trace(predictor, text, options)
        words = text.split()
        tree = repair(trace.target.tokens[:-1], len(words))
        source = replace(trace.source, words=words_at_spaces(predictor.tokenizers.source.kind, trace.source))
        target = replace(trace.target, text=linearize(tree, words))
        trace = replace(trace, axes={**trace.axes, "source": source, "target": target})
        every = [[place] for place in range(len(target.tokens))]
        weights = None
        if trace.layers("encoder-decoder") and len(source.words) == len(words) + 1:
            weights = merge_words(soft_alignment(trace)[None], every, source.words)[0]
        return replace(trace, pictures=(Picture("tree", lambda plt: draw_tree(plt, tree, words, weights)),))


def words_at_spaces(kind: str, axis: Axis) -> list[list[int]]:
    """Return the tokens of each word of an input that ends in EOS, where only spaces separate words."""
    words: list[list[int]] = []
    last = len(axis.tokens) - 1
    for place, token in enumerate(axis.tokens):
        if kind == "char" and token.isspace() and place < last:
            continue
        after_space = place > 0 and axis.tokens[place - 1].isspace() if kind == "char" else token.startswith(SPACE)
        if place in (0, last) or kind == "word" or after_space:
            words.append([])
        words[-1].append(place)
    return words
