"""Attention weights of one example: the labelled axes of each matrix, and weights merged over words, heads and layers.

Shapes: H heads, Q queries, K keys, W words.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.text.symbols import EOS
from regard.text.tokenizer import Tokenizer
from regard.text.unknown_words import ExtendedVocabulary

AttentionWeights = NDArray[np.float32]
SPACE = "\u2581"  # SentencePiece's symbol for a space
OPEN_BOX = "\u2423"  # shown for a token that is only a space
BYTE = re.compile("<0x[0-9A-F]{2}>")  # how SentencePiece writes a byte of a character that it does not know
BYTES = re.compile(f"(?:{BYTE.pattern})+")
CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")  # Chinese characters and kana
APOSTROPHES = ("'", "\u2019")


@dataclass(frozen=True)
class Axis:
    """One axis of an attention matrix: a sequence of tokens, and which of them form a word."""

    label: str  # the heading of the axis in pictures, such as "source"
    text: str
    ids: list[int]  # empty if the tokens have none, such as the points of a plane
    tokens: list[str]  # as they are displayed: a placeholder as the span that it stands for
    words: list[list[int]]  # token indices of each word

    @classmethod
    def from_ids(cls, label: str, tokenizer: Tokenizer | ExtendedVocabulary, ids: list[int]) -> Axis:
        """Return the axis of an output."""
        tokens = tokenizer.tokens(ids)
        return cls(label, tokenizer.decode(ids), ids, tokens, group_words(tokenizer.kind, ids, tokens))

    @classmethod
    def from_text(cls, label: str, kind: str, text: str, ids: list[int], tokens: list[str]) -> Axis:
        """Return the axis of an input as it was written. `tokens` are those of `Tokenizer.tokenize`."""
        return cls(label, text, ids, tokens, group_words(kind, ids, tokens))

    @classmethod
    def from_tokens(cls, label: str, tokens: Sequence[str]) -> Axis:
        """Return the axis of a sequence without a tokenizer, such as labels or positions. Each token is one word."""
        return cls(label, " ".join(tokens), [], list(tokens), [[index] for index in range(len(tokens))])

    @property
    def word_texts(self) -> list[str]:
        """The words as they are displayed."""
        return [display_token("".join(self.tokens[index] for index in word)) for word in self.words]

    @property
    def words_without_eos(self) -> list[list[int]]:
        """The words of the text itself. EOS is always a word of its own."""
        return self.words[:-1] if self.ids[-1:] == [EOS] else self.words


@dataclass(frozen=True)
class Attention:
    """The weights of one layer, [H, Q, K], and the names of the axes they lie between."""

    name: str  # the kind of attention: "encoder", "decoder", "encoder-decoder", ...
    layer: int  # counted from 1
    queries: str  # name of the axis of the queries
    keys: str  # name of the axis of the keys
    weights: AttentionWeights
    # Whether position i of both axes belongs to the same hidden state, so that layers can be multiplied (rollout).
    self_attention: bool = False
    # Queries, [H, Q, width], and keys, [H, K, width], whose scaled product gives the weights; None: not recorded.
    vectors: tuple[AttentionWeights, AttentionWeights] | None = None


def axis_labels(queries: Axis, keys: Axis) -> tuple[str, str]:
    """Return the headings of both axes. Equal labels, as in self-attention, are told apart by (from) and (to)."""
    if queries.label != keys.label:
        return queries.label, keys.label
    return f"{queries.label} (from)", f"{keys.label} (to)"


# Merging weights


def mean_over_heads(weights_HQK: AttentionWeights) -> AttentionWeights:
    return weights_HQK.mean(axis=0)


def normalized_entropy(weights_HQK: AttentionWeights) -> NDArray[np.float64]:
    """Return the mean entropy of each head divided by that of equal weights, [H]: 1 if all keys have the same weight."""
    weights = np.clip(weights_HQK.astype(np.float64), 1e-12, 1.0)
    entropy_HQ = -(weights * np.log(weights)).sum(axis=2)
    return entropy_HQ.mean(axis=1) / np.log(weights.shape[2]) if weights.shape[2] > 1 else np.zeros(len(weights))


def attention_rollout(layers_QQ: Sequence[AttentionWeights]) -> AttentionWeights:
    """Return how much of each input reaches each position through these layers (Abnar and Zuidema 2020): [Q, Q].

    Half of the output of each layer comes through its residual connection.
    """
    rollout = np.eye(layers_QQ[0].shape[0], dtype=np.float32)
    for weights in layers_QQ:
        rollout = (0.5 * weights + 0.5 * np.eye(len(weights), dtype=np.float32)) @ rollout
    return rollout


def merge_words(
    weights_HQK: AttentionWeights, queries: Sequence[Sequence[int]], keys: Sequence[Sequence[int]]
) -> AttentionWeights:
    """Return weights between words: the sum over the tokens of a key word, the mean over those of a query word. [H, W, W]"""
    summed = np.stack([weights_HQK[:, :, word].sum(axis=2) for word in keys], axis=2)
    return np.stack([summed[:, word].mean(axis=1) for word in queries], axis=1)


# Words


def group_words(kind: str, ids: Sequence[int], tokens: Sequence[str]) -> list[list[int]]:
    """Return the token indices of each word.

    EOS, each punctuation mark and each Chinese or Japanese character are words of their own, unless a token holds several
    of them. An apostrophe between letters, as in didn't, belongs to the word.
    """
    texts = tokens if kind == "word" else _texts_of_tokens(kind, tokens)
    words: list[list[int]] = []
    for index in range(len(tokens)):
        if index == 0 or kind == "word" or EOS in ids[index - 1 : index + 1] or _begins_word(texts, index):
            words.append([index])
        else:
            words[-1].append(index)
    return words


def _texts_of_tokens(kind: str, tokens: Sequence[str]) -> list[str]:
    """Return the text of each token. Of bytes that spell a character, the first has the character and the others nothing."""
    if kind == "char":
        return [SPACE if token.isspace() else token for token in tokens]
    texts: list[str] = []
    for index, token in enumerate(tokens):
        if not BYTE.fullmatch(token):
            texts.append(token)
        elif "8" <= token[3] <= "B" and index and BYTE.fullmatch(tokens[index - 1]):
            texts.append("")
        else:
            # At most four bytes spell a character.
            spelled = "".join(itertools.takewhile(BYTE.fullmatch, tokens[index : index + 4]))
            texts.append(_bytes_of(spelled).decode("utf-8", "replace")[:1])
    return texts


def _begins_word(texts: Sequence[str], index: int) -> bool:
    text = texts[index]
    before = next((one for one in reversed(texts[:index]) if one), "")
    if not text or before == SPACE:
        # A byte within a character; or what follows a space that is a token of its own.
        return False
    if text.startswith(SPACE) or CJK.match(text) or CJK.match(before[-1:]):
        return True
    after = texts[index + 1] if index + 1 < len(texts) else ""
    if text in APOSTROPHES:
        return not (_has_letters(before[-1:]) and _has_letters(after[:1]))
    if before in APOSTROPHES and index > 1:
        return not (_has_letters(text[:1]) and _has_letters(texts[index - 2][-1:]))
    return not (_has_letters(text) and _has_letters(before))


def _has_letters(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def _bytes_of(text: str) -> bytes:
    return bytes(int(one[3:5], 16) for one in BYTE.findall(text))


def display_token(token: str) -> str:
    """Return a token or a word as it is displayed: without spaces around it, or as an open box if it is nothing else.

    Bytes that spell characters are displayed as these characters.
    """
    spelled = BYTES.sub(lambda found: _spell_bytes(found[0]), token)
    return spelled.replace(SPACE, " ").strip() or OPEN_BOX


def _spell_bytes(text: str) -> str:
    try:
        return _bytes_of(text).decode("utf-8")
    except UnicodeDecodeError:
        return text
