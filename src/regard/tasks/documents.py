"""Documents read sentence by sentence: how they are encoded, a model of them in use, and its attention over the text.

Shapes: B documents, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.ragged import Layout, Ragged
from regard.explain.attention import Attention, AttentionWeights, Axis, group_words
from regard.explain.document import document_picture
from regard.explain.recorded import alternatives_of
from regard.explain.trace import Trace, TraceOptions
from regard.models.han import Han
from regard.nn.attention_log import capture_attention
from regard.tasks.labels import LabelCodec
from regard.tasks.predictor import BatchPredictor
from regard.text.segmenter import sentences_of
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Document:
    """The sentences of a text, without those that have no ids, and the ids of each."""

    sentences: list[str]
    ids: list[list[int]]

    def __len__(self) -> int:
        return sum(map(len, self.ids))

    def cut(self, limit: int) -> Document:
        """Return the document up to so many ids. A sentence may be cut, but keeps its text."""
        starts = [0, *accumulate(map(len, self.ids))]
        ids = [one[: limit - start] for one, start in zip(self.ids, starts, strict=False) if start < limit]
        return Document(self.sentences[: len(ids)], ids)


def encode_document(tokenizer: Tokenizer, text: str) -> Document:
    """Return the sentences of a text, encoded one by one."""
    sentences = sentences_of(text)
    encoded = [(sentence, ids) for sentence, ids in zip(sentences, tokenizer.encode_all(sentences), strict=True) if ids]
    return Document([sentence for sentence, _ in encoded], [ids for _, ids in encoded])


@dataclass(frozen=True)
class DocumentAttention:
    """How much each sentence of a document counted, and each word within its sentence. Both sum to 1."""

    label: str
    sentences: list[float]
    words: list[list[float]]  # of each sentence


class DocumentPredictor(BatchPredictor[Han, LabelCodec, Document]):
    """A model of documents in use: the label of each."""

    needs = Han

    def encode(self, text: str) -> Document:
        return encode_document(self.codec.tokenizer, text)

    def cut(self, one: Document) -> Document:
        return one.cut(self.limit)

    def outputs(self, batch: Sequence[Document], options: SearchOptions) -> list[str]:
        return [self.codec.labels[number] for number in self.scores(batch).argmax(dim=-1).tolist()]

    def attention(self, inputs: Sequence[str]) -> list[DocumentAttention | None]:
        """Return the label of each document and what the model attended to; None for an empty document."""
        documents = self.encode_all(inputs, call="attention()")
        found: list[DocumentAttention | None] = [None] * len(documents)
        for rows in self.batches(documents, self.options):
            for row, one in zip(rows, self.attended([documents[row] for row in rows])[1], strict=True):
                found[row] = one
        return found

    def attended(self, batch: Sequence[Document]) -> tuple[Tensor, list[DocumentAttention]]:
        """Return the logits of a batch, [B, L], and what the model attended to in each document."""
        with capture_attention() as log:
            logits_BL = self.scores(batch)
        words, sentences = (log.calls[level.attention][0] for level in (self.model.words, self.model.sentences))
        of_words = iter(one.flatten().tolist() for one in words)
        return logits_BL, [
            DocumentAttention(
                self.codec.labels[number], weights.flatten().tolist(), [next(of_words) for _ in document.ids]
            )
            for document, number, weights in zip(batch, logits_BL.argmax(dim=-1).tolist(), sentences, strict=True)
        ]

    @torch.inference_mode()
    def scores(self, documents: Sequence[Document]) -> Tensor:
        """Return the logits of every label for each document: [B, L]."""
        source = Ragged.from_lists([ids for document in documents for ids in document.ids], self.device)
        layout = Layout([len(document.ids) for document in documents], source.layout.device)
        return self.model.scores(source, layout).float()


@torch.inference_mode()
def trace_document(predictor: DocumentPredictor, text: str, options: TraceOptions) -> Trace:
    """Return the label of a document, its probability, and the attention at both levels over the text."""
    codec, document = predictor.codec, predictor.encode_one(text)
    logits_BL, (found,) = predictor.attended([document])
    axes = {
        "source": _word_axis(codec.tokenizer, document, text),
        "sentences": Axis.from_tokens("sentences", document.sentences),
        "target": Axis.from_tokens("label", [found.label]),
    }
    attentions = [
        Attention("words", 1, "sentences", "source", _by_sentence(found.words)),
        Attention("sentences", 1, "target", "sentences", np.array([[found.sentences]], dtype=np.float32)),
    ]
    best, labels = logits_BL.argmax(dim=-1).tolist(), codec.labels
    others = alternatives_of(logits_BL.softmax(dim=-1), best, options.alternatives, labels.__getitem__)
    picture = document_picture(_words(axes["source"], document, found), found.sentences, found.label)
    return Trace(options.name, axes, attentions, *others, (picture,))


def _word_axis(tokenizer: Tokenizer, document: Document, text: str) -> Axis:
    """Return the axis of all words. No word continues from one sentence to the next."""
    tokens: list[str] = []
    words: list[list[int]] = []
    for sentence, ids in zip(document.sentences, document.ids, strict=True):
        own = tokenizer.tokenize(sentence)
        words += [[len(tokens) + index for index in word] for word in group_words(tokenizer.kind, ids, own)]
        tokens += own
    return Axis("words", text, list(chain.from_iterable(document.ids)), tokens, words)


def _by_sentence(words: list[list[float]]) -> AttentionWeights:
    """Return a matrix of one row per sentence, whose weights lie where its words are: [1, sentences, words]."""
    weights = np.zeros((1, len(words), sum(map(len, words))), dtype=np.float32)
    start = 0
    for row, own in enumerate(words):
        weights[0, row, start : start + len(own)] = own
        start += len(own)
    return weights


def _words(axis: Axis, document: Document, found: DocumentAttention) -> list[list[tuple[str, float]]]:
    """Return the words of each sentence with their weights. A word of several tokens has the sum of theirs."""
    weights = list(chain.from_iterable(found.words))
    ends = list(accumulate(map(len, document.ids)))
    sentences: list[list[tuple[str, float]]] = [[] for _ in ends]
    for word, text in zip(axis.words, axis.word_texts, strict=True):
        sentence = next(number for number, end in enumerate(ends) if word[0] < end)
        sentences[sentence].append((text, sum(weights[index] for index in word)))
    return sentences
