"""Documents read sentence by sentence: how they are encoded, a model of them in use, and its attention over the text.

Shapes: B documents, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
import torch
from torch import Tensor

from regard.config import SearchOptions
from regard.data.batch_sampler import cut_to_budget
from regard.data.ragged import Layout, Ragged
from regard.errors import ConfigError, DecodeError
from regard.explain.attention import Attention, AttentionWeights, Axis, group_words
from regard.explain.document import document_picture
from regard.explain.trace import Alternative, Trace
from regard.models.base import Model
from regard.models.han import Han
from regard.nn.attention_log import capture_attention
from regard.tasks.labels import LabelCodec
from regard.text.inputs import as_texts
from regard.text.segmenter import sentences_of
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Document:
    """The sentences of a text, without those that have no ids, and the ids of each."""

    sentences: list[str]
    ids: list[list[int]]

    @property
    def length(self) -> int:
        """The number of ids."""
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


class DocumentPredictor:
    """A model of documents in use. `warn` receives a message for each document that is cut."""

    def __init__(
        self, model: Model, codec: LabelCodec, options: SearchOptions, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        if not isinstance(model, Han):
            raise ConfigError(f"documents need a model of the class Han, and {type(model).__name__} is not one")
        self.model, self.codec, self.budget, self.limit = model, codec, options.tokens, options.max_source
        self.warn = warn

    def predict(self, inputs: Sequence[str], *, options: SearchOptions | None = None) -> list[str]:
        """Return the label of each document; an empty one has none. Search options do not apply."""
        documents = self._encode_all(inputs)
        outputs = [""] * len(documents)
        for rows in self._batches(documents):
            best = self.scores([documents[row] for row in rows]).argmax(dim=-1).tolist()
            for row, number in zip(rows, best, strict=True):
                outputs[row] = self.codec.labels[number]
        return outputs

    def attention(self, inputs: Sequence[str]) -> list[DocumentAttention | None]:
        """Return the label of each document and what the model attended to; None for an empty document."""
        documents = self._encode_all(inputs)
        found: list[DocumentAttention | None] = [None] * len(documents)
        for rows in self._batches(documents):
            with capture_attention() as log:
                best = self.scores([documents[row] for row in rows]).argmax(dim=-1).tolist()
            words, sentences = (log.calls[level.attention][0] for level in (self.model.words, self.model.sentences))
            of_words = iter(one.flatten().tolist() for one in words)
            for row, number, weights in zip(rows, best, sentences, strict=True):
                own = [next(of_words) for _ in documents[row].ids]
                found[row] = DocumentAttention(self.codec.labels[number], weights.flatten().tolist(), own)
        return found

    @torch.inference_mode()
    def scores(self, documents: Sequence[Document]) -> Tensor:
        """Return the logits of every label for each document: [B, L]."""
        device = next(self.model.parameters()).device
        source = Ragged.from_lists([ids for document in documents for ids in document.ids], device)
        return self.model.scores(source, Layout([len(document.ids) for document in documents], device)).float()

    def _encode_all(self, inputs: Sequence[str]) -> list[Document]:
        documents = []
        for number, text in enumerate(as_texts(inputs, call="predict()"), start=1):
            document = encode_document(self.codec.tokenizer, text)
            if document.length > self.limit:
                self.warn(f"line {number} has {document.length} tokens; only the first {self.limit} are used")
            documents.append(document.cut(self.limit))
        return documents

    def _batches(self, documents: list[Document]) -> list[list[int]]:
        """Return the numbers of the documents that are not empty, longest first, in batches of a token budget."""
        lengths = np.array([document.length for document in documents], dtype=np.int64)
        order = np.flatnonzero(lengths)
        order = order[np.argsort(-lengths[order], kind="stable")]
        return [rows.tolist() for rows in cut_to_budget(order, (lengths,), self.budget)]


@torch.inference_mode()
def trace_document(predictor: DocumentPredictor, text: str, *, name: str = "", alternatives: int = 0) -> Trace:
    """Return the label of a document, its probability, and the attention at both levels over the text."""
    codec = predictor.codec
    document = encode_document(codec.tokenizer, text)
    if not document.ids:
        raise DecodeError("the text is empty; give one with words in it")
    if document.length > predictor.limit:
        raise DecodeError(f"the text has {document.length} tokens; this model takes at most {predictor.limit}")
    found = predictor.attention([text])[0]
    assert found is not None
    best = predictor.scores([document])[0].softmax(dim=-1).topk(min(1 + alternatives, len(codec.labels)))
    labels = [(number, round(p, 6)) for number, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
    axes = {
        "source": _word_axis(codec.tokenizer, document, text),
        "sentences": Axis.from_tokens("sentences", document.sentences),
        "target": Axis.from_tokens("label", [codec.labels[labels[0][0]]]),
    }
    attentions = [
        Attention("words", 1, "sentences", "source", _by_sentence(found.words)),
        Attention("sentences", 1, "target", "sentences", np.array([[found.sentences]], dtype=np.float32)),
    ]
    others = [[Alternative(number, codec.labels[number], p, "") for number, p in labels[1:]]]
    picture = document_picture(_words(axes["source"], document, found), found.sentences, found.label)
    return Trace(name, axes, attentions, [labels[0][1]], others, (picture,))


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
